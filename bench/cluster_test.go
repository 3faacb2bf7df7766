package bench

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/tidwall/redcon"

	"neokv.dev/neokv/fault"
	"neokv.dev/results"
)

// fakeCluster is a Redis Cluster of three map servers over TCP. They share their data, so that slots can move at once.
type fakeCluster struct {
	addrs []string
	index map[string]int

	mu       sync.Mutex
	data     map[string]string
	owner    [slots]int
	asks     map[int]int // slot -> node that ASK names
	tryAgain int         // how many commands are still to be answered TRYAGAIN
	looks    int         // at CLUSTER SLOTS
	told     []string    // commands that concern a node as a whole, behind the number of the node
	unasked  int         // commands that came to a node which is only asked, without ASKING
	asked    int         // commands that came to such a node with ASKING
	inPlace  int         // GET and SET since the last one that was answered MOVED
	settled  func()      // called, unless it is nil, when clients have followed all that has moved
}

func startFakeCluster(t *testing.T) *fakeCluster {
	t.Helper()
	f := &fakeCluster{index: map[string]int{}, data: map[string]string{}, asks: map[int]int{}}
	for node := range 3 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := ln.Addr().String()
		f.index[addr] = node
		f.addrs = append(f.addrs, addr)
		served := make(chan struct{})
		go func() {
			defer close(served)
			_ = redcon.Serve(ln, func(c redcon.Conn, cmd redcon.Command) { f.serve(node, c, cmd) }, nil, nil)
		}()
		t.Cleanup(func() {
			ln.Close()
			<-served
		})
	}
	for s := range slots {
		f.owner[s] = s * 3 / slots
	}
	return f
}

func tcp(ctx context.Context, addr string) (net.Conn, error) {
	return new(net.Dialer).DialContext(ctx, "tcp", addr)
}

func (f *fakeCluster) serve(node int, c redcon.Conn, cmd redcon.Command) {
	f.mu.Lock()
	defer f.mu.Unlock()
	asking := c.Context() == "asking"
	c.SetContext(nil)
	switch name := strings.ToUpper(string(cmd.Args[0])); name {
	case "INFO":
		c.WriteBulkString("# Server\r\nredis_version:7.0.98\r\nneokv_version:1\r\n# Cluster\r\ncluster_enabled:1\r\n")
	case "CLUSTER":
		f.looks++
		f.writeSlots(c)
	case "FLUSHALL", "CONFIG":
		f.told = append(f.told, fmt.Sprintf("%d %s", node, bytes.Join(cmd.Args, []byte(" "))))
		c.WriteString("OK")
	case "ASKING":
		c.SetContext("asking")
		c.WriteString("OK")
	case "GET", "SET":
		key := string(cmd.Args[1])
		slot := int(slotOf(cmd.Args[1]))
		asked, ask := f.asks[slot]
		f.inPlace++
		if ask && asked == node && asking {
			f.asked++
		}
		switch {
		case ask && asked == node && !asking:
			f.unasked++
			f.inPlace = 0
			c.WriteError(fmt.Sprintf("MOVED %d %s", slot, f.addrs[f.owner[slot]]))
		case ask && asked != node && f.owner[slot] == node:
			c.WriteError(fmt.Sprintf("ASK %d %s", slot, f.addrs[asked]))
		case f.owner[slot] != node && !(ask && asked == node):
			f.inPlace = 0
			c.WriteError(fmt.Sprintf("MOVED %d %s", slot, f.addrs[f.owner[slot]]))
		case f.tryAgain > 0:
			f.tryAgain--
			c.WriteError("TRYAGAIN Multiple keys request during rehashing of slot")
		case name == "SET":
			f.data[key] = string(cmd.Args[2])
			c.WriteString("OK")
		default:
			if v, ok := f.data[key]; ok {
				c.WriteBulkString(v)
			} else {
				c.WriteNull()
			}
		}
		// A sixth of all would be answered MOVED by the old slots.
		if f.settled != nil && f.inPlace >= 1000 && f.asked > 0 && f.tryAgain == 0 {
			f.settled()
		}
	default:
		c.WriteError("ERR unknown command")
	}
}

func (f *fakeCluster) writeSlots(c redcon.Conn) {
	var ranges [][3]int
	for s, o := range f.owner {
		if s > 0 && f.owner[s-1] == o {
			ranges[len(ranges)-1][1] = s
		} else {
			ranges = append(ranges, [3]int{s, s, o})
		}
	}
	c.WriteArray(len(ranges))
	for _, r := range ranges {
		_, port, _ := net.SplitHostPort(f.addrs[r[2]])
		c.WriteArray(3)
		c.WriteInt(r[0])
		c.WriteInt(r[1])
		c.WriteArray(3)
		c.WriteBulkString("") // the host that was asked
		c.WriteRaw([]byte(":" + port + "\r\n"))
		c.WriteBulkString(fmt.Sprintf("%040d", r[2]))
	}
}

func TestCluster(t *testing.T) {
	f := startFakeCluster(t)
	const records, moved = 2000, slots / 3 / 2
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	loaded, served := map[string]int{}, map[string]int{} // slots by node, in the first tick and in the last
	o := Options{
		Groups:  []GroupOptions{{Workload: "ycsb-a", Clients: 4, Pipeline: 8, Records: records, ValueSize: 32}},
		Targets: f.addrs[1:2], Duration: time.Minute, Seed: 1,
		// When the records are loaded half of a node's slots move to another, and a thousand others begin to.
		Events: []ScheduledEvent{event("0s split 1")},
		Inject: func(context.Context, fault.Fault) (string, error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for s := range moved {
				f.owner[s] = 2
			}
			for s := slots / 2; s < slots/2+1000; s++ {
				f.asks[s] = 0
			}
			f.tryAgain, f.inPlace, f.settled = 5, 0, cancel
			return "", nil
		},
		Progress: func(tick Tick) {
			for _, n := range tick.Nodes {
				if served[n.Addr] = n.Slots; loaded[n.Addr] == 0 {
					loaded[n.Addr] = n.Slots
				}
			}
		},
	}
	var buf bytes.Buffer
	s, err := Run(ctx, usual(o), results.NewWriter(&buf))
	if err != nil {
		t.Fatal(err)
	}
	rec, err := results.Read(&buf)
	if err != nil {
		t.Fatal(err)
	}
	for i, addr := range f.addrs {
		if want := slots / 3; len(loaded) != 3 || loaded[addr] < want || loaded[addr] > want+1 {
			t.Errorf("node %d served %d slots by the first tick, want a third: %v", i, loaded[addr], loaded)
		}
	}
	if h := rec.Header.Target; !h.Cluster || len(h.Nodes) != 3 || h.Version != "7.0.98" ||
		h.Info["neokv_version"] != "1" {
		t.Errorf("target is said to be %+v", h)
	}
	if s.Groups[0].Inserted.Insert.Count != records || len(f.data) != records || s.Groups[0].Inserted.Moved != 0 {
		t.Errorf("inserted %+v, %d keys", s.Groups[0].Inserted, len(f.data))
	}
	if s.Groups[0].Kinds["TRYAGAIN"] != 5 || s.Groups[0].Total.Errors != 5 || s.Groups[0].Total.Misses != 0 {
		t.Errorf("errors %v, %d misses, want 5 TRYAGAIN", s.Groups[0].Kinds, s.Groups[0].Total.Misses)
	}
	if s.FirstErrors["TRYAGAIN"] != "TRYAGAIN Multiple keys request during rehashing of slot" {
		t.Errorf("first errors %v", s.FirstErrors)
	}
	// Redirections are followed, and after a look at the slots there are no more MOVED: so the run ended early.
	g := s.Groups[0]
	if !s.Interrupted || g.Total.Count == 0 || g.Moved == 0 || f.looks < 2 {
		t.Errorf("interrupted %v, %d moved of %d operations, %d looks at the slots", s.Interrupted, g.Moved,
			g.Total.Count, f.looks)
	}
	if a, c := f.addrs[0], f.addrs[2]; served[a] != loaded[a]-moved || served[c] != loaded[c]+moved {
		t.Errorf("slots by the last tick %v, by the first %v; want %d moved", served, loaded, moved)
	}
	if s.Groups[0].Asked == 0 || f.unasked != 0 {
		t.Errorf("%d asked; %d commands without ASKING", s.Groups[0].Asked, f.unasked)
	}
}

// A command of the schedule reaches the nodes that it concerns.
func TestTellCluster(t *testing.T) {
	f := startFakeCluster(t)
	tg, _, err := discover(t.Context(), tcp, f.addrs[:1])
	if err != nil {
		t.Fatal(err)
	}
	f.mu.Lock()
	for s := range slots { // nobody has told bench
		f.owner[s] = 2
	}
	f.mu.Unlock()
	for _, command := range []string{"FLUSHALL", "config SET a b", "SET key value"} {
		words, err := splitWords(command)
		if err != nil {
			t.Fatal(err)
		}
		if err := tg.tell(t.Context(), words); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
	want := "[0 FLUSHALL 1 FLUSHALL 2 FLUSHALL 0 config SET a b 1 config SET a b 2 config SET a b]"
	if got := fmt.Sprint(f.told); got != want || f.data["key"] != "value" {
		t.Errorf("told %s, key holds %q; want %s, and the redirection followed", got, f.data["key"], want)
	}
	if err := tg.tell(t.Context(), []string{"NONSENSE"}); err == nil || err.Error() != "ERR unknown command" {
		t.Errorf("nonsense: %v", err)
	}
}

// A cluster that redirects in circles costs errors, not the run.
func TestClusterInCircles(t *testing.T) {
	f := startFakeCluster(t)
	f.mu.Lock()
	for s := range slots {
		f.owner[s] = 3 // nobody: every node names the address of the first
	}
	f.addrs = append(f.addrs, f.addrs[0])
	f.mu.Unlock()
	tg := &target{dial: tcp, seeds: f.addrs[:1], ids: map[string]nodeID{}, stale: make(chan struct{}, 1)}
	tg.id(f.addrs[0])
	tg.table.Store(new(slotTable))
	w := nullWorker("set", 3, SpreadSlots)
	w.run.target, w.run.firsts = tg, map[string]string{}
	w.conns = nil
	defer w.drop()
	w.once()
	if got := w.rec.current.Load(); got.errors[kindRedirects] != 3 || got.moved != 3*(maxRedirects+1) {
		t.Errorf("errors %v, %d moved", got.errors, got.moved)
	}
}

func TestSlotRange(t *testing.T) {
	node := func(host any) []any { return []any{host, int64(7001), "id"} }
	for _, c := range []struct {
		in   any
		want string
	}{
		{[]any{int64(0), int64(5), node("10.0.0.1")}, "0 5 [10.0.0.1:7001]"},
		{[]any{int64(0), int64(5), node("::1"), node("replica")}, "0 5 [[::1]:7001 replica:7001]"},
		{[]any{int64(0), int64(5), node("")}, "0 5 [seed:7001]"},
		{[]any{int64(0), int64(5), node(nil)}, "0 5 [seed:7001]"},
		{[]any{int64(6), int64(5), node("a")}, ""},
		{[]any{int64(0), int64(slots), node("a")}, ""},
		{[]any{int64(0), int64(5)}, ""},
		{[]any{int64(0), int64(5), []any{"a", "b"}}, ""},
		{nil, ""},
	} {
		first, last, addr, err := slotRange(c.in, "seed:1")
		if got := fmt.Sprint(first, " ", last, " ", addr); err == nil && got != c.want ||
			(err != nil) != (c.want == "") {
			t.Errorf("%v: %s, %v; want %s", c.in, got, err, c.want)
		}
	}
}

// TestRedirections reads addresses as Redis writes them in redirections: of IPv6 without brackets, and without a host
// where clients shall take the one that they have.
func TestRedirections(t *testing.T) {
	tg := &target{seeds: []string{"[fd00::1]:7001"}, ids: map[string]nodeID{}}
	for in, want := range map[string]string{
		"127.0.0.1:7002": "127.0.0.1:7002", "db:7002": "db:7002", ":7002": "[fd00::1]:7002",
		"fd00::2:7002": "[fd00::2]:7002", "[fd00::2]:7002": "[fd00::2]:7002", "::1:7002": "[::1]:7002",
	} {
		if got := tg.addr(tg.redirectID(in)); got != want {
			t.Errorf("MOVED 0 %s: to %s; want %s", in, got, want)
		}
	}
}
