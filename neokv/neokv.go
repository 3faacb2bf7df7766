// Package neokv boots a cluster of logical store nodes in this process: full Multi-Raft, one Pebble per store, each store
// speaking the Redis Cluster protocol on a port of its own.
package neokv

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
	"neokv.dev/neokv/settings"
)

// Config says what to boot. The zero value is a valid one: three stores on disk, in a temporary folder, on free ports.
type Config struct {
	// Stores, Replicas and Regions shape the cluster; 0 takes what Dir records, else what Settings says. A value set here that
	// differs from the recorded one is an error.
	Stores, Replicas, Regions int
	// Dir holds the data; it is made if missing. Empty: a temporary folder that Close removes.
	Dir string
	// InMemory keeps the data in memory: what Close leaves is nothing.
	InMemory bool
	// Discard empties a folder that was not closed cleanly under engine.wal_sync none; such a folder is refused otherwise.
	Discard bool
	// NoSockets leaves the listeners in memory alone, reached by Dial.
	NoSockets bool
	// Bind is the IP address listened on, 127.0.0.1 if empty. One beyond loopback needs redis.requirepass, and an unspecified
	// one redis.advertise_ip too.
	Bind string
	// Port is store 1's port, the other stores follow upwards, and ProxyPort the proxy's; 0 picks free ones.
	Port, ProxyPort int
	// Settings are the knobs; nil takes settings.Default.
	Settings *settings.Settings
	// Seed feeds every random choice that is ours; 0 picks one.
	Seed uint64
	// Progress, if not nil, is told what the boot waits for when that takes longer than a second.
	Progress func(string)

	// Hooks are for the tests of this module; nil otherwise.
	Hooks *seam.Hooks
}

// Cluster is a running cluster.
type Cluster struct {
	config    Config
	settings  settings.Settings
	hooks     seam.Hooks
	folder    *folder // nil in memory
	network   *transport.Network
	nodes     []*node
	journal   *disk.Journal // nil where each store syncs for itself
	journalFS *disk.FS      // what it is on in memory
	proxy     *server.Server
	proxyAddr string
	proxyPipe *server.Pipe
	proxied   atomic.Pointer[proxied]
	clients   *server.Memory // bounds what the clients of all stores and of the proxy hold
	boot      time.Duration
	failed    chan error
	anyFailed atomic.Bool // since Start: what the disks hold may lag what was acknowledged
	wg        sync.WaitGroup
	close     sync.Once
	closeErr  error

	randMu sync.Mutex
	rand   *rand.Rand
}

// Start boots a cluster and returns when every slot is served and, where there are enough regions, every store leads one.
func Start(ctx context.Context, config Config) (*Cluster, error) {
	begin := time.Now()
	c, err := open(config)
	if err != nil {
		return nil, err
	}
	if err := c.start(ctx); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.boot = time.Since(begin)
	return c, nil
}

// open checks the configuration and opens the folder.
func open(config Config) (*Cluster, error) {
	s := settings.Default()
	if config.Settings != nil {
		s = *config.Settings
	}
	if config.Bind == "" {
		config.Bind = "127.0.0.1"
	}
	if err := CheckBind(config.Bind, s.Redis); err != nil {
		return nil, fmt.Errorf("bind %s: %w", config.Bind, err)
	}
	for config.Seed == 0 {
		config.Seed = rand.Uint64()
	}
	c := &Cluster{config: config, rand: rand.New(rand.NewPCG(config.Seed, 1))}
	if config.Hooks != nil {
		c.hooks = *config.Hooks
	}
	asked := settings.Cluster{Stores: config.Stores, Replicas: config.Replicas, Regions: config.Regions}
	if config.Dir == "" {
		if err := CheckNoDir(s.Engine); err != nil {
			return nil, err
		}
	}
	if !config.InMemory {
		f, err := openFolder(vfs.Default, config.Dir, asked, s, config.Discard, c.random128)
		if err != nil {
			return nil, err
		}
		c.folder, s.Cluster, s.Engine.WALDir = f, f.shape, f.walDir
	} else if config.Dir != "" {
		return nil, fmt.Errorf("folder %s: a cluster in memory has none", config.Dir)
	} else {
		s.Cluster = shape(asked, s.Cluster)
	}
	c.settings = s
	err := s.Validate()
	if err == nil {
		err = CheckPorts(config.Port, config.ProxyPort, s.Cluster.Stores)
	}
	if err != nil {
		if c.folder != nil {
			err = errors.Join(err, c.folder.close(true)) // no store has been opened
		}
		return nil, err
	}
	c.failed, c.clients = make(chan error, s.Cluster.Stores), server.NewMemory(s.Redis.ClientMemory, s.Cluster.Stores)
	return c, nil
}

// CheckBind says why a cluster with these settings may not listen on an address, nil if it may: beyond loopback only with a
// password, and on all addresses only when clients can be told one.
func CheckBind(addr string, k settings.Redis) error {
	switch ip := net.ParseIP(addr); {
	case ip == nil:
		return errors.New("want an IP address such as 127.0.0.1 or ::1")
	case !ip.IsLoopback() && k.RequirePass == "":
		return errors.New("want a loopback address such as 127.0.0.1 or ::1, or a password in redis.requirepass")
	case ip.IsUnspecified() && k.AdvertiseIP == "":
		return errors.New("want redis.advertise_ip too, the host that clients are sent to")
	}
	return nil
}

// CheckNoDir says why a cluster with these settings needs a folder that stays, nil if it does not.
func CheckNoDir(k settings.Engine) error {
	switch {
	case k.Durable:
		return errors.New("engine.durable true: the data needs a folder that stays, not memory or a temporary one")
	case k.WALDir != "":
		return fmt.Errorf("engine.wal_dir %s: write-ahead logs apart need a data folder that stays", k.WALDir)
	}
	return nil
}

// shape is the shape asked for, filled up from the settings. Replicas that nobody asked for are at most one per store.
func shape(asked, from settings.Cluster) settings.Cluster {
	if asked.Stores == 0 {
		asked.Stores = from.Stores
	}
	if asked.Replicas == 0 {
		asked.Replicas = min(from.Replicas, asked.Stores)
	}
	if asked.Regions == 0 {
		asked.Regions = from.Regions
	}
	return asked
}

// CheckPorts says why a cluster of so many stores may not listen on these ports, nil if it may. Store 1 has the port, the
// others the ones that follow; 0 stands for free ports.
func CheckPorts(port, proxyPort, stores int) error {
	last := port + stores - 1
	switch {
	case port < 0 || port > 0 && last > 65535:
		return fmt.Errorf("port %d: %d stores need the ports %d to %d, want 1 to 65535, or 0 for free ones", port, stores, port, last)
	case proxyPort < 0 || proxyPort > 65535:
		return fmt.Errorf("proxy port %d: want 1 to 65535, or 0 for a free one", proxyPort)
	case port > 0 && port <= proxyPort && proxyPort <= last:
		return fmt.Errorf("proxy port %d: it is the port of store %d (ports %d to %d)", proxyPort, proxyPort-port+1, port, last)
	}
	return nil
}

func (c *Cluster) random128() (b [16]byte) {
	c.randMu.Lock()
	defer c.randMu.Unlock()
	for i := range b {
		b[i] = byte(c.rand.Uint32())
	}
	return b
}

// start listens, starts the stores and waits until the cluster serves.
func (c *Cluster) start(ctx context.Context) error {
	identity := c.random128()
	if c.folder != nil {
		identity = c.folder.cluster
	}
	c.network = c.newNetwork(identity)
	initial := meta.Initial(fmt.Sprintf("%x", identity), c.settings.Cluster)
	for i := range c.settings.Cluster.Stores {
		n := &node{c: c, id: topology.StoreID(i + 1), cluster: identity, initial: initial}
		if c.folder != nil {
			n.dir, n.walDir = c.folder.store(n.id), c.folder.wal(n.id)
		} else {
			n.dir, n.fs = "/"+n.id.RaftAddress(), disk.Mem()
		}
		c.nodes = append(c.nodes, n)
	}
	if c.config.Hooks != nil {
		c.config.Hooks.Cluster = inside{c}
	}
	if err := c.openJournal(); err != nil {
		return err
	}
	port := func(first, i int) int {
		if first == 0 {
			return 0
		}
		return first + i
	}
	listeners := make([]net.Listener, len(c.nodes))
	closeAll := func() {
		for _, ln := range listeners {
			if ln != nil {
				ln.Close()
			}
		}
	}
	for i, n := range c.nodes {
		var err error
		if listeners[i], n.addr, err = c.listen(port(c.config.Port, i), i); err != nil {
			closeAll()
			return fmt.Errorf("store %d: %w", n.id, err)
		}
	}
	proxyListener, addr, err := c.listen(c.config.ProxyPort, len(c.nodes))
	if err != nil {
		closeAll()
		return fmt.Errorf("proxy: %w", err)
	}
	c.proxyAddr = addr

	// The stores open side by side: each waits for its disk.
	errs := make([]error, len(c.nodes))
	var wg sync.WaitGroup
	for i, n := range c.nodes {
		wg.Go(func() { errs[i] = n.start(listeners[i], true) })
	}
	wg.Wait()
	c.proxy = server.New(server.Options{
		Settings: c.settings, Table: c.proxyTable, Replica: c.replica, Version: Version, Info: c.info,
		Replicated: c.replicated, Compare: c.compare, ActiveExpire: c.setActiveExpire, Memory: c.clients, Exposed: c.exposed(),
		Faults: c.hooks.Server,
	})
	c.proxyPipe = server.NewPipe(memoryAddr(addr))
	c.serve(c.proxy, c.proxyPipe, proxyListener)
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return c.waitServing(ctx)
}

// openJournal makes the stores' logs whole with what their journal holds, and opens it where there shall be one.
func (c *Cluster) openJournal() (err error) {
	o := disk.JournalOptions{Logs: make(map[uint16]string), Faults: c.hooks.Store.Journal}
	for _, n := range c.nodes {
		o.Logs[uint16(n.id)] = store.LogDir(n.dir, n.walDir)
	}
	shared := c.settings.Engine.SharedSync && c.settings.Engine.WALSync == "always" && len(c.nodes) > 1
	switch {
	case c.folder == nil && c.hooks.JournalBytes == 0:
		return nil
	case c.folder == nil:
		if c.journalFS == nil {
			c.journalFS = disk.Mem()
		}
		o.FS, o.Bytes, o.Disks = c.journalFS, c.hooks.JournalBytes, make(map[uint16]vfs.FS)
		for _, n := range c.nodes {
			o.Disks[uint16(n.id)] = n.fs
		}
	default:
		// Twice what the memtables hold: the logs of a segment have been flushed and removed when the other is nearly full. Not less than holds
		// some large groups, and not more than a start reads in a few seconds.
		o.Dir, o.Bytes = c.folder.journal(), max(64<<20, min(2*int64(c.settings.Engine.MemtableSize), 1<<30))
	}
	if !shared {
		return disk.DropJournal(o)
	}
	c.journal, err = disk.OpenJournal(o)
	return err
}

// setActiveExpire switches the background deletion of expired keys on or off on every store that runs.
func (c *Cluster) setActiveExpire(on bool) {
	for _, n := range c.nodes {
		if s := n.store.Load(); s != nil {
			s.SetActiveExpire(on)
		}
	}
}

// newNetwork returns what the stores reach each other by. Over TCP every store has a port on loopback, wherever clients connect to,
// that nobody is told of; without sockets the connections are in memory.
func (c *Cluster) newNetwork(identity [16]byte) *transport.Network {
	if c.settings.Raft.Transport == "memory" {
		return transport.NewNetwork()
	}
	t := transport.TCP{
		Cluster: identity,
		Listen:  func() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") },
		Dial: func(ctx context.Context, addr string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "tcp", addr)
		},
	}
	if c.config.NoSockets {
		var mu sync.Mutex
		pipes := make(map[string]*server.Pipe)
		t.Listen = func() (net.Listener, error) {
			mu.Lock()
			defer mu.Unlock()
			addr := fmt.Sprintf("raft-%d", len(pipes))
			pipes[addr] = server.NewPipe(memoryAddr(addr))
			return pipes[addr], nil
		}
		t.Dial = func(ctx context.Context, addr string) (net.Conn, error) {
			mu.Lock()
			p := pipes[addr]
			mu.Unlock()
			return p.Dial(ctx)
		}
	}
	return transport.NewTCP(t)
}

// listen opens a port, unless the cluster has no sockets: then the address is only a name.
func (c *Cluster) listen(port, i int) (net.Listener, string, error) {
	if c.config.NoSockets {
		if port == 0 {
			port = 7001 + i
		}
		return nil, net.JoinHostPort(c.config.Bind, strconv.Itoa(port)), nil
	}
	ln, err := insist(func() (net.Listener, error) {
		return net.Listen("tcp", net.JoinHostPort(c.config.Bind, strconv.Itoa(port)))
	},
		func(err error) bool { return errors.Is(err, syscall.EADDRINUSE) })
	if err != nil {
		return nil, "", err
	}
	return ln, ln.Addr().String(), nil
}

// serve hands the listeners to the server; a nil one is left out.
func (c *Cluster) serve(s *server.Server, pipe *server.Pipe, ln net.Listener) {
	c.wg.Go(func() { s.Serve(pipe) })
	if ln != nil {
		c.wg.Go(func() { s.Serve(ln) })
	}
}

// waitServing returns when every region has a leader that serves, every store leads one where there are enough, and every
// store knows where to send clients. Leaders that stand in the way of an even spread are asked to hand over.
func (c *Cluster) waitServing(ctx context.Context) error {
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	begin := time.Now()
	told, moved := begin, begin
	for {
		missing := c.missing()
		if missing == "" {
			return nil
		}
		for _, n := range c.nodes {
			n.mu.Lock()
			err := n.failure
			n.mu.Unlock()
			if err != nil {
				return fmt.Errorf("boot: %w", err)
			}
		}
		if c.config.Progress != nil && time.Since(told) > time.Second {
			told = time.Now()
			c.config.Progress(fmt.Sprintf("waiting for %s (%.0fs)", missing, time.Since(begin).Seconds()))
		}
		if time.Since(moved) > 500*time.Millisecond {
			moved = time.Now()
			c.spread()
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("boot: waiting for %s: %w", missing, context.Cause(ctx))
		case <-tick.C:
		}
	}
}

// missing says what the cluster still waits for, "" when it serves.
func (c *Cluster) missing() string {
	leads := make(map[topology.StoreID]int)
	served := 0
	for _, n := range c.nodes {
		s := n.store.Load()
		if s == nil {
			return n.id.RaftAddress() + " to start"
		}
		t := s.Table()
		if t == nil {
			return "the cluster map"
		}
		if len(t.Stores) < len(c.nodes) {
			return fmt.Sprintf("store %d to know the others", n.id)
		}
		for i := range t.Regions {
			if t.Regions[i].Leader == n.id {
				leads[n.id]++
				served++
			}
			if t.Regions[i].Leader == 0 {
				return fmt.Sprintf("the leader of region %d", t.Regions[i].ID)
			}
		}
	}
	if served < c.settings.Cluster.Regions {
		return fmt.Sprintf("leaders of %d of %d regions", c.settings.Cluster.Regions-served, c.settings.Cluster.Regions)
	}
	if c.settings.Cluster.Regions >= len(c.nodes) && len(leads) < len(c.nodes) {
		return fmt.Sprintf("leaders on %d of %d stores", len(c.nodes)-len(leads), len(c.nodes))
	}
	return ""
}

// spread asks leaders of regions that another store is to lead to hand over, where that store leads nothing.
func (c *Cluster) spread() {
	leads := make(map[topology.StoreID]int)
	for _, n := range c.nodes {
		if s := n.store.Load(); s != nil {
			leads[n.id] = len(s.Leads())
		}
	}
	for _, n := range c.nodes {
		s := n.store.Load()
		if s == nil || s.Table() == nil {
			continue
		}
		for _, l := range s.Leads() {
			r := s.Table().ByID(l.Region)
			if r == nil || leads[n.id] < 2 {
				continue
			}
			for _, p := range r.Peers {
				if leads[p.Store] == 0 && s.Transfer(r.ID, p.Store) == nil {
					leads[p.Store]++
					leads[n.id]--
					break
				}
			}
		}
	}
}

// replica is the proxy's way to a region's replica on a store of this process.
func (c *Cluster) replica(id topology.StoreID, r topology.RegionID) *region.Replica {
	if i := int(id) - 1; i >= 0 && i < len(c.nodes) {
		if s := c.nodes[i].store.Load(); s != nil {
			return s.Replica(r)
		}
	}
	return nil
}

// exposed reports whether the cluster can be reached from beyond loopback.
func (c *Cluster) exposed() bool { return !net.ParseIP(c.config.Bind).IsLoopback() }

// replicated is the proxy's way to the stores that can tell who has applied an entry.
func (c *Cluster) replicated(ctx context.Context, r topology.RegionID, index uint64) int {
	for _, n := range c.nodes {
		if s := n.store.Load(); s != nil && s.Failed() == nil {
			return s.Replicated(ctx, r, index)
		}
	}
	return 0
}

// compare is the proxy's way to the checksums of a region's replicas: by the first store that finds the leader.
func (c *Cluster) compare(ctx context.Context, r topology.RegionID) (got region.Comparison, err error) {
	err = errors.New("no store runs")
	for _, n := range c.nodes {
		if s := n.store.Load(); s != nil && s.Failed() == nil {
			if got, err = s.Compare(ctx, r); err == nil {
				return got, nil
			}
		}
	}
	return got, err
}

// proxied is the proxy's slot table and the stores' tables that it was made of.
type proxied struct {
	from  []*route.Table
	table *route.Table
}

// proxyTable joins what the stores know of themselves: a region is led by the store that serves it in the latest term.
// It is made anew only when a store has published another table.
func (c *Cluster) proxyTable() *route.Table {
	old := c.proxied.Load()
	fresh := old != nil
	for i, n := range c.nodes {
		var t *route.Table
		if s := n.store.Load(); s != nil && s.Failed() == nil {
			t = s.Table()
		}
		if fresh && old.from[i] != t {
			fresh = false
		}
	}
	if fresh {
		return old.table
	}
	next := &proxied{from: make([]*route.Table, len(c.nodes))}
	var best *route.Table
	leaders := make(map[topology.RegionID]route.Region)
	for i, n := range c.nodes {
		s := n.store.Load()
		if s == nil || s.Failed() != nil {
			continue
		}
		t := s.Table()
		if next.from[i] = t; t == nil {
			continue
		}
		if best == nil || len(t.Stores) > len(best.Stores) {
			best = t
		}
		for _, r := range t.Regions {
			if r.Leader == n.id && r.Term >= leaders[r.ID].Term {
				leaders[r.ID] = r
			}
		}
	}
	if best == nil {
		return nil
	}
	regions := make([]route.Region, len(best.Regions))
	for i, r := range best.Regions {
		r.Leader, r.Term = leaders[r.ID].Leader, leaders[r.ID].Term
		regions[i] = r
	}
	epoch := uint64(1)
	if old != nil && old.table != nil {
		epoch = old.table.Epoch + 1
	}
	next.table = route.NewTable(epoch, best.Stores, regions)
	c.proxied.Store(next)
	return next.table
}

// Addrs returns the stores' addresses, host:port, by store number.
func (c *Cluster) Addrs() []string {
	out := make([]string, len(c.nodes))
	for i, n := range c.nodes {
		out[i] = n.addr
	}
	return out
}

// ProxyAddr returns the address of the proxy port.
func (c *Cluster) ProxyAddr() string { return c.proxyAddr }

// Dial returns a connection through memory to one of the addresses. Its form fits go-redis's Dialer as
// func(ctx, network, addr) { return c.Dial(ctx, addr) }.
func (c *Cluster) Dial(ctx context.Context, addr string) (net.Conn, error) {
	if addr == c.proxyAddr {
		return c.proxyPipe.Dial(ctx)
	}
	for _, n := range c.nodes {
		if n.addr == addr {
			return n.dial(ctx)
		}
	}
	return nil, fmt.Errorf("dial %s: no listener of this cluster, want one of %s or %s", addr, strings.Join(c.Addrs(), ", "), c.proxyAddr)
}

// Dir is the folder that holds the data, empty in memory; temporary reports whether Close removes it.
func (c *Cluster) Dir() (dir string, temporary bool) {
	if c.folder == nil {
		return "", false
	}
	return c.folder.dir, c.folder.temporary
}

// Settings returns the settings in effect; their shape is the folder's.
func (c *Cluster) Settings() settings.Settings { return c.settings }

// Shape returns how many stores, replicas and regions the cluster has.
func (c *Cluster) Shape() settings.Cluster { return c.settings.Cluster }

// Seed returns the seed of every random choice that is the cluster's.
func (c *Cluster) Seed() uint64 { return c.config.Seed }

// BootTime is how long Start took.
func (c *Cluster) BootTime() time.Duration { return c.boot }

// Syncs is how many syncs the disks of the stores that run have made, and whether somebody waits for one now. It costs next to nothing to ask.
func (c *Cluster) Syncs() (made int64, waiting bool) {
	for _, node := range c.nodes {
		node.mu.Lock()
		if node.fs != nil {
			s := node.fs.Stats()
			made, waiting = made+s.Syncs, waiting || s.Syncing > 0
		}
		node.mu.Unlock()
	}
	return made, waiting
}

// Failed delivers the error of each store that stops because of its disk.
func (c *Cluster) Failed() <-chan error { return c.failed }

// Close stops the cluster and returns when everything of it has ended. It may be called again.
func (c *Cluster) Close() error {
	c.close.Do(func() { c.closeErr = c.shutdown() })
	return c.closeErr
}

func (c *Cluster) shutdown() error {
	// Clients first, of all stores at once: what they still wait for needs the other stores.
	var clients sync.WaitGroup
	if c.proxy != nil {
		clients.Go(func() { c.proxy.Close() })
	}
	for _, n := range c.nodes {
		clients.Go(n.hangUp)
	}
	clients.Wait()
	var errs []error
	for _, n := range c.nodes {
		errs = append(errs, n.stop())
	}
	c.network.Close()
	c.wg.Wait()
	if c.journal != nil {
		errs = append(errs, c.journal.Close())
	}
	if c.folder != nil {
		errs = append(errs, c.folder.close(errors.Join(errs...) == nil && !c.anyFailed.Load()))
	}
	return errors.Join(errs...)
}
