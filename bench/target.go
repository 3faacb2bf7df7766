package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/counters"
	"neokv.dev/results"
)

// nodeID numbers the addresses of a target in the order in which bench learned of them. A number keeps its address.
type nodeID int16

const noNode nodeID = -1

// slots is the number of hash slots of a Redis Cluster.
const slots = 16384

// slotTable says which node serves a slot. A table is immutable; a new one replaces it.
type slotTable [slots]nodeID

// target is what receives the load: plain servers, or a Redis Cluster and what bench knows of its slots.
type target struct {
	dial  func(ctx context.Context, addr string) (net.Conn, error)
	seeds []string // as given

	mu    sync.Mutex
	addrs []string // by nodeID
	ids   map[string]nodeID
	all   []string // every node that CLUSTER SLOTS has named, replicas too

	table atomic.Pointer[slotTable] // nil: no cluster
	// stale wakes the goroutine that keeps the table. It has room for one request, since one new table serves all
	// workers that ask for it.
	stale chan struct{}
}

// askTimeout bounds a question about the target, from connecting to the answer.
const askTimeout = 3 * time.Second

// discover asks the addresses whether they are a cluster. Of a cluster one node must answer, of plain servers all. The
// error is an OptionsError if the addresses are of no use for a load, whoever answers there.
func discover(ctx context.Context, dial func(context.Context, string) (net.Conn, error), addrs []string) (*target,
	results.Target, error) {
	t := &target{dial: dial, seeds: addrs, ids: map[string]nodeID{}, stale: make(chan struct{}, 1)}
	facts := results.Target{Addrs: addrs}
	infos, failures := make([]map[string]string, len(addrs)), make([]error, len(addrs))
	var asked sync.WaitGroup
	for i, addr := range addrs {
		asked.Go(func() { infos[i], failures[i] = t.fields(ctx, addr, "INFO") })
	}
	asked.Wait()
	var failed []error
	var plain, nodes []string // addresses of plain servers, and of nodes of a cluster
	for i, addr := range addrs {
		info, err := infos[i], failures[i]
		switch {
		case errors.Is(err, errProtocol):
			return nil, facts, &OptionsError{fmt.Errorf("not a Redis: target %s: %w", addr, err)}
		case err != nil:
			failed = append(failed, fmt.Errorf("target %s: %w", addr, err))
			continue
		case info["redis_mode"] == "sentinel":
			return nil, facts, &OptionsError{fmt.Errorf(
				"target %s is a Sentinel, which keeps no data; SENTINEL MASTERS says where the servers are", addr)}
		case info["cluster_enabled"] == "1":
			nodes = append(nodes, addr)
		default:
			plain = append(plain, addr)
			t.id(addr)
		}
		if len(nodes) <= 1 {
			facts.Version, facts.Info = info["redis_version"], map[string]string{}
			for k, v := range info {
				if k == "os" || k == "server_name" || k == "valkey_version" || inForce(k) {
					facts.Info[k] = v
				}
			}
			// NeoKV has the line for programs that look for it.
			if aof := info["aof_enabled"]; aof != "" && !facts.NeoKV() {
				facts.Info["aof_enabled"] = aof
				if aof == "1" {
					facts.Info["appendfsync"] = t.configured(ctx, addr, "appendfsync")
				}
			}
		}
	}
	switch facts.Cluster = len(nodes) > 0; {
	case facts.Cluster && len(plain) > 0:
		return nil, facts, &OptionsError{fmt.Errorf("target %s is a node of a cluster, %s is none: want one of these "+
			"alone", nodes[0], strings.Join(plain, ","))}
	case facts.Cluster:
		if err := t.refresh(ctx); err != nil {
			return nil, facts, err
		}
	case len(failed) > 0:
		return nil, facts, errors.Join(failed...)
	}
	facts.Nodes = append(facts.Nodes, t.addrs...)
	return t, facts, nil
}

// id returns the number of an address.
func (t *target) id(addr string) nodeID {
	t.mu.Lock()
	defer t.mu.Unlock()
	id, known := t.ids[addr]
	if !known {
		id = nodeID(len(t.addrs))
		t.ids[addr] = id
		t.addrs = append(t.addrs, addr)
	}
	return id
}

// redirectID returns the number of the address in a redirection, where an IPv6 address has no brackets. An empty host
// stands for the node that was asked; we take the host of the first seed.
func (t *target) redirectID(addr string) nodeID {
	colon := strings.LastIndexByte(addr, ':')
	if colon < 0 {
		return t.id(addr)
	}
	host := strings.Trim(addr[:colon], "[]")
	if host == "" {
		host, _, _ = net.SplitHostPort(t.seeds[0]) // a Unix socket has none
	}
	return t.id(net.JoinHostPort(host, addr[colon+1:]))
}

// addr returns the address of a node.
func (t *target) addr(id nodeID) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.addrs[id]
}

// nodes returns the addresses of all nodes by their IDs.
func (t *target) nodes() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return slices.Clone(t.addrs)
}

// members returns the addresses of all nodes of the target.
func (t *target) members() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.table.Load() == nil {
		return slices.Clone(t.addrs)
	}
	return slices.Clone(t.all)
}

// met adds addresses to the members.
func (t *target) met(addrs []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, addr := range addrs {
		if !slices.Contains(t.all, addr) {
			t.all = append(t.all, addr)
		}
	}
}

func (t *target) known() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return append(append([]string(nil), t.addrs...), t.seeds...)
}

// markStale asks for a new slot table, soon. It does not wait.
func (t *target) markStale() {
	if t.table.Load() == nil {
		return
	}
	select {
	case t.stale <- struct{}{}:
	default:
	}
}

// refreshPause is the shortest time between two reads of the slots. While a cluster elects, every operation asks for
// one.
const refreshPause = 50 * time.Millisecond

// keep reads the slots whenever they are stale, until ctx ends.
func (t *target) keep(ctx context.Context) {
	pause := time.NewTimer(0)
	defer pause.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		select {
		case <-ctx.Done():
			return
		case <-t.stale:
		}
		_ = t.refresh(ctx) // on an error the old table stays, and a worker that misses a node asks again
		pause.Reset(refreshPause)
	}
}

// refresh reads the slots from the first node that has an answer.
func (t *target) refresh(ctx context.Context) error {
	var failed []error
	for _, addr := range t.known() {
		table, err := t.slots(ctx, addr)
		if err == nil {
			t.table.Store(table)
			return nil
		}
		failed = append(failed, fmt.Errorf("target %s: %w", addr, err))
	}
	return errors.Join(failed...)
}

// ask sends one request on a connection of its own.
func (t *target) ask(ctx context.Context, addr string, args ...string) (any, error) {
	return t.askWithin(ctx, askTimeout, addr, args...)
}

// askWithin is ask for a request that may take long.
func (t *target) askWithin(ctx context.Context, patience time.Duration, addr string, args ...string) (any, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	nc, err := t.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	c := loadConn{epoch: time.Now(), timeout: patience}
	c.attach(nc)
	v, err := c.call(args...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", strings.Join(args, " "), err)
	}
	return v, nil
}

// Ask sends one command to a server over a connection of its own, and returns the reply: nil, string, int64 or []any.
func Ask(ctx context.Context, addr, password string, args ...string) (any, error) {
	return (&target{dial: dialer(nil, Login{Password: password})}).ask(ctx, addr, args...)
}

// settlePatience is how long a NeoKV may take to do what it has put off.
const settlePatience = 2 * time.Minute

// Settle has a NeoKV do what it has put off: apply entries, write memtables, compact. addr is that of its proxy.
func Settle(ctx context.Context, addr, password string) error {
	t := &target{dial: dialer(nil, Login{Password: password})}
	_, err := t.askWithin(ctx, settlePatience, addr, "NEOKV", "SETTLE")
	return err
}

// Counts returns the counters of a server and of its process.
func Counts(ctx context.Context, addr, password string) (map[string]int64, error) {
	v, err := Ask(ctx, addr, password, "INFO", "neokv")
	if err != nil {
		return nil, err
	}
	text, _ := v.(string)
	return readCounts(text), nil
}

// Fields asks a server and returns the lines `name:value` of its reply, as INFO and CLUSTER INFO have. Of a server that
// does not know the command there are none.
func Fields(ctx context.Context, addr, password string, args ...string) (map[string]string, error) {
	return (&target{dial: dialer(nil, Login{Password: password})}).fields(ctx, addr, args...)
}

// inForce reports whether a line of a NeoKV's INFO is about the whole cluster: its version, shape or settings.
func inForce(name string) bool {
	line, _ := counters.Find(name)
	return line.Kind == counters.Fact && line.Scope != counters.Store
}

// configured returns a setting of a Redis, "" if the server does not tell.
func (t *target) configured(ctx context.Context, addr, name string) string {
	v, err := t.ask(ctx, addr, "CONFIG", "GET", name)
	if pair, _ := v.([]any); err == nil && len(pair) == 2 {
		value, _ := pair[1].(string)
		return value
	}
	return ""
}

// fields returns the lines `name:value` of a reply, none if the server does not know the command.
func (t *target) fields(ctx context.Context, addr string, args ...string) (map[string]string, error) {
	v, err := t.ask(ctx, addr, args...)
	if refused := serverError(""); errors.As(err, &refused) &&
		strings.HasPrefix(string(refused), "ERR unknown command") {
		return map[string]string{}, nil
	}
	if err != nil {
		return nil, err
	}
	text, ok := v.(string)
	if !ok {
		return nil, fmt.Errorf("%s: answered with %T, want text", strings.Join(args, " "), v)
	}
	fields := map[string]string{}
	for line := range strings.Lines(text) {
		if k, v, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			fields[k] = v
		}
	}
	return fields, nil
}

// slots reads CLUSTER SLOTS: ranges of [first, last, [host, port, ...master], [host, port, ...replica]...].
func (t *target) slots(ctx context.Context, addr string) (*slotTable, error) {
	v, err := t.ask(ctx, addr, "CLUSTER", "SLOTS")
	if err != nil {
		return nil, err
	}
	ranges, _ := v.([]any)
	if len(ranges) == 0 {
		return nil, errors.New("CLUSTER SLOTS: no slot is served")
	}
	table := new(slotTable)
	for i := range table {
		table[i] = noNode
	}
	for _, r := range ranges {
		first, last, nodes, err := slotRange(r, addr)
		if err != nil {
			return nil, err
		}
		t.met(nodes)
		id := t.id(nodes[0])
		for s := first; s <= last; s++ {
			table[s] = id
		}
	}
	return table, nil
}

// slotRange decodes an entry of CLUSTER SLOTS: the range, and the addresses of its nodes, the master's first. An empty
// host stands for the node that was asked.
func slotRange(v any, asked string) (first, last int64, addrs []string, err error) {
	entry, _ := v.([]any)
	bad := fmt.Errorf("CLUSTER SLOTS: %w: entry %v", errProtocol, v)
	if len(entry) < 3 {
		return 0, 0, nil, bad
	}
	first, ok1 := entry[0].(int64)
	last, ok2 := entry[1].(int64)
	if !ok1 || !ok2 || first < 0 || first > last || last >= slots {
		return 0, 0, nil, bad
	}
	for i, node := range entry[2:] {
		node, _ := node.([]any)
		if len(node) < 2 {
			if i == 0 {
				return 0, 0, nil, bad
			}
			continue // bench reads only the counters of replicas
		}
		host, _ := node[0].(string)
		if host == "" {
			if host, _, err = net.SplitHostPort(asked); err != nil {
				return 0, 0, nil, err
			}
		}
		port, ok := node[1].(int64)
		if !ok {
			return 0, 0, nil, bad
		}
		addrs = append(addrs, net.JoinHostPort(host, fmt.Sprint(port)))
	}
	return first, last, addrs, nil
}

// slotOf returns the hash slot of a key: CRC16 (XMODEM) of the key, or of what stands between the first { and the next
// } if that is not empty, modulo 16384.
func slotOf(key []byte) uint16 {
	if i := bytes.IndexByte(key, '{'); i >= 0 {
		if j := bytes.IndexByte(key[i+1:], '}'); j > 0 {
			key = key[i+1 : i+1+j]
		}
	}
	var crc uint16
	for _, b := range key {
		crc = crc<<8 ^ crcTable[byte(crc>>8)^b]
	}
	return crc % slots
}

var crcTable = func() (t [256]uint16) {
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
	}
	return t
}()
