package store

import (
	"context"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unsafe"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
	"neokv.dev/neokv/settings"
)

// testStores is some stores in memory, without clients.
type testStores struct {
	t        testing.TB
	network  *transport.Network
	shape    settings.ClusterKnobs
	initial  *meta.Map
	fs       []*disk.FS
	stores   []*Store
	hooks    region.Hooks
	raft     func(*settings.RaftKnobs) // changes settings, nil for none
	knobs    func(*settings.Settings)  // likewise
	rand     rand.Source               // of the stores opened from now on, nil: by their number
	onServe  func(topology.RegionID, uint64)
	mistakes Mistakes

	waitInLog bool // disks that are slow or hang wait as they must in virtual time
}

func newCluster(t testing.TB, shape settings.ClusterKnobs, change ...func(*testStores)) *testStores {
	c := &testStores{t: t, network: transport.NewNetwork(), shape: shape, initial: meta.Initial("00", shape)}
	for _, f := range change {
		f(c)
	}
	for range shape.Stores {
		fs := disk.Mem()
		fs.WaitInLog(c.waitInLog)
		c.fs = append(c.fs, fs)
		c.stores = append(c.stores, nil)
	}
	for i := range c.stores {
		c.open(i, true)
	}
	return c
}

// newPair opens two stores of three. Their logs are short, so that the third one is sent snapshots when it opens.
func newPair(t testing.TB, regions int) *testStores {
	c := &testStores{t: t, network: transport.NewNetwork(),
		shape: settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: regions}}
	c.initial = meta.Initial("00", c.shape)
	c.raft = func(k *settings.RaftKnobs) { k.SnapshotEntries, k.CompactionOverhead = 20, 5 }
	for range c.shape.Stores {
		c.fs, c.stores = append(c.fs, disk.Mem()), append(c.stores, nil)
	}
	c.open(0, true)
	c.open(1, true)
	return c
}

func (c *testStores) open(i int, booting bool) {
	c.t.Helper()
	s := settings.Default()
	s.Cluster = c.shape
	s.Engine.MemtableSize, s.Engine.BlockCache = 16<<20, 16<<20
	if c.raft != nil {
		c.raft(&s.Raft)
	}
	if c.knobs != nil {
		c.knobs(&s)
	}
	source := c.rand
	if source == nil {
		source = rand.NewPCG(1, uint64(i))
	}
	store, err := Open(Options{
		ID: topology.StoreID(i + 1), FS: c.fs[i], Dir: "/data", Network: c.network, Settings: s, Host: "h",
		Port: 7001 + i, Initial: c.initial, Booting: booting, Rand: rand.New(source),
		Hooks: c.hooks, OnServe: c.onServe, Mistakes: c.mistakes,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.stores[i] = store
}

func (c *testStores) close() {
	for i, s := range c.stores {
		if s != nil {
			if err := s.Close(); err != nil {
				c.t.Errorf("close store %d: %v", i+1, err)
			}
		}
	}
	c.network.Close()
}

// TestServesAfterOnServe: nobody sees a store serve a region before OnServe has been called.
func TestServesAfterOnServe(t *testing.T) {
	shape := settings.ClusterKnobs{Stores: 1, Replicas: 1, Regions: 1}
	c := &testStores{
		t: t, network: transport.NewNetwork(), shape: shape, initial: meta.Initial("00", shape),
		fs: []*disk.FS{disk.Mem()}, stores: []*Store{nil},
	}
	opened := make(chan struct{})
	c.onServe = func(id topology.RegionID, term uint64) {
		<-opened
		if c.leader(id) != nil {
			t.Errorf("the store serves region %d, and OnServe is called for term %d", id, term)
		}
	}
	c.open(0, true)
	defer c.close()
	close(opened)
	c.untilServing()
}

// until waits for a condition, with a bound.
func (c *testStores) until(what string, ok func() bool) {
	c.t.Helper()
	c.untilWithin(20*time.Second, what, ok)
}

// untilWithin is until with another bound than 20 s.
func (c *testStores) untilWithin(bound time.Duration, what string, ok func() bool) {
	c.t.Helper()
	for end := time.Now().Add(bound); !ok(); time.Sleep(bound / 20000) {
		if time.Now().After(end) {
			for _, s := range c.stores {
				if s != nil {
					c.t.Logf("store %d: leads %v", s.ID(), s.Replicas().Leads())
				}
			}
			c.t.Fatalf("no %s in %s", what, bound)
		}
	}
}

// leader returns the store that serves a region, nil if none does.
func (c *testStores) leader(id topology.RegionID) *Store {
	for _, s := range c.stores {
		if s == nil {
			continue
		}
		if r := s.Replica(id); r != nil {
			if _, _, serving := r.Leading(); serving {
				return s
			}
		}
	}
	return nil
}

// awaitLeader waits until a store serves a region and returns it. The store may lose the region again at any time.
func (c *testStores) awaitLeader(id topology.RegionID) (s *Store) {
	c.t.Helper()
	c.until(fmt.Sprintf("leader of region %d", id), func() bool { s = c.leader(id); return s != nil })
	return s
}

func (c *testStores) untilServing() {
	c.t.Helper()
	for i := range c.shape.Regions {
		c.awaitLeader(topology.RegionID(i + 1))
	}
	c.until("full tables", func() bool {
		for _, s := range c.stores {
			if s == nil {
				continue
			}
			t := s.Table()
			if t == nil || len(t.Stores) < len(c.stores) {
				return false
			}
			for _, r := range t.Regions {
				if r.Leader == 0 {
					return false
				}
			}
		}
		return true
	})
}

func run(args ...string) *redis.Run {
	call := redis.Call{Command: redis.Lookup([]byte(args[0]))}
	for _, a := range args {
		call.Args = append(call.Args, []byte(a))
	}
	return &redis.Run{Calls: []redis.Call{call}}
}

// do runs one command on the leader of its key's region.
func (c *testStores) do(args ...string) string {
	c.t.Helper()
	slot := topology.SlotOf([]byte(args[1]))
	id := topology.RegionID(0)
	for _, r := range c.initial.Regions {
		if r.Slots.Contains(slot) {
			id = r.ID
		}
	}
	s := c.awaitLeader(id)
	x := run(args...)
	deadline := time.Now().Add(2 * time.Second)
	if x.Calls[0].Command.Write == nil {
		if err := s.Replica(id).Read(x, deadline); err != nil {
			return err.Error()
		}
		return string(x.Out.Buf)
	}
	p := region.Pending{Run: x, Deadline: deadline}
	s.Replica(id).Propose(&p)
	p.Wait()
	if p.Err != nil {
		return p.Err.Error()
	}
	return string(x.Out.Buf)
}

func (c *testStores) want(reply string, args ...string) {
	c.t.Helper()
	if got := c.do(args...); got != reply {
		c.t.Errorf("%q = %q; want %q", args, got, reply)
	}
}

func testServes(t *testing.T) {
	c := newCluster(t, settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 8})
	defer c.close()
	c.untilServing()
	for i := range 50 {
		c.want("+OK\r\n", "SET", fmt.Sprint("k", i), fmt.Sprint(i))
	}
	for i := range 50 {
		c.want(fmt.Sprintf(":%d\r\n", i+1), "INCR", fmt.Sprint("k", i))
		v := fmt.Sprint(i + 1)
		c.want(fmt.Sprintf("$%d\r\n%s\r\n", len(v), v), "GET", fmt.Sprint("k", i))
	}
	lease := uint64(0)
	for _, s := range c.stores {
		for _, r := range s.replicas.all() {
			lease += r.Counters().LeaseReads.Load()
		}
	}
	if lease == 0 {
		t.Error("no read was served under a lease")
	}
}

func TestServes(t *testing.T)              { testServes(t) }
func TestServesInVirtualTime(t *testing.T) { synctest.Test(t, testServes) }

// TestEntrySlices checks that dragonboat makes its slices of entries as small as the variables in inside/sizes.go say.
func TestEntrySlices(t *testing.T) {
	defer func(rate int) { runtime.MemProfileRate = rate }(runtime.MemProfileRate)
	runtime.MemProfileRate = 1
	c := newCluster(t, settings.ClusterKnobs{Stores: 1, Replicas: 1, Regions: 1})
	c.untilServing()
	for range 50 {
		c.want("+OK\r\n", "SET", "k", "v")
	}
	c.close()
	runtime.GC() // the profile shows the state of two collections ago
	runtime.GC()
	records := make([]runtime.MemProfileRecord, 1_000_000)
	n, ok := runtime.MemProfile(records, true)
	if !ok {
		t.Fatalf("%d records", n)
	}
	seen := false
	for _, r := range records[:n] {
		for frames := runtime.CallersFrames(r.Stack()); ; {
			frame, more := frames.Next()
			if strings.HasSuffix(frame.Function, "newEntrySlice") {
				seen = true
				if size := r.AllocBytes / r.AllocObjects; size > 2*32*int64(unsafe.Sizeof(multiraft.LogEntry{})) {
					// What is allocated is rounded up.
					t.Errorf("slices of %d bytes; want room for 32 entries", size)
				}
			}
			if !more {
				break
			}
		}
	}
	if !seen {
		t.Error("no slice was made")
	}
}

// TestSurvivesCrashes cuts the power of one store after the other, and then of all at once.
func TestSurvivesCrashes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 4})
		defer c.close()
		c.untilServing()
		random := rand.New(rand.NewPCG(7, 7))
		crash := func(i int) {
			left := c.fs[i].Crash(50, random)
			if err := c.stores[i].Close(); err != nil {
				t.Errorf("close crashed store: %v", err)
			}
			c.stores[i], c.fs[i] = nil, left
		}
		n := 0
		write := func() {
			for range 20 {
				c.want("+OK\r\n", "SET", fmt.Sprint("k", n), fmt.Sprint(n))
				n++
			}
		}
		check := func() {
			for i := range n {
				v := fmt.Sprint(i)
				c.want(fmt.Sprintf("$%d\r\n%s\r\n", len(v), v), "GET", fmt.Sprint("k", i))
			}
		}
		write()
		for i := range c.stores {
			crash(i)
			c.until("two serve", func() bool {
				for r := range c.shape.Regions {
					if c.leader(topology.RegionID(r+1)) == nil {
						return false
					}
				}
				return true
			})
			write()
			check()
			c.open(i, false)
			c.untilServing()
		}
		for i := range c.stores {
			crash(i)
		}
		for i := range c.stores {
			c.open(i, true)
		}
		c.untilServing()
		check()
		write()
	})
}

// TestMoreStoresThanReplicas has stores without replicas of some regions and of meta: they learn the leaders from
// meta's leader.
func TestMoreStoresThanReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, settings.ClusterKnobs{Stores: 5, Replicas: 3, Regions: 10})
		defer c.close()
		c.untilServing()
		c.until("equal tables", func() bool {
			for _, s := range c.stores[1:] {
				for i, r := range s.Table().Regions {
					if r.Leader != c.stores[0].Table().Regions[i].Leader {
						return false
					}
				}
			}
			return true
		})
	})
}

// TestMetaCatchesUp keeps a store that has never seen the map away until meta's log is cut. The store then gets the map
// as a snapshot, and still has it after a crash.
func TestMetaCatchesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPair(t, 2)
		defer c.close()
		for i := range c.shape.Regions {
			c.until("leaders", func() bool { return c.leader(topology.RegionID(i+1)) != nil })
		}
		c.until("a map", func() bool { return c.stores[0].meta.group.Load().Map().Version > 0 })
		want := c.stores[0].meta.group.Load().Map()
		var leader *Store
		c.until("leader of meta", func() bool {
			for _, s := range c.stores[:2] {
				if s.meta.leader() == s.ID() {
					leader = s
				}
			}
			return leader != nil
		})
		for n := 0; n < 60; { // each is an entry, and changes nothing
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			if leader.meta.group.Load().Bootstrap(ctx, meta.Initial("another", c.shape)) == nil {
				n++
			}
			cancel()
		}
		c.open(2, false)
		late := c.stores[2]
		has := func(s *Store) bool { return reflect.DeepEqual(s.meta.group.Load().Map(), want) }
		c.until("map on the late store", func() bool { return has(late) })
		if index, received, err := late.raft.Snapshot(topology.MetaRegion, 3); err != nil || !received {
			t.Errorf("meta's snapshot record on the late store is at %d, received %v, %v; want one that was received", index,
				received, err)
		}
		left := c.fs[2].Crash(0, rand.New(rand.NewPCG(1, 1)))
		if err := late.Close(); err != nil {
			t.Error(err)
		}
		c.stores[2], c.fs[2] = nil, left
		c.open(2, false)
		c.until("map on the store after a crash", func() bool { return has(c.stores[2]) })
		c.untilServing()
	})
}

func TestRefusesAnotherStoresFolder(t *testing.T) {
	c := newCluster(t, settings.ClusterKnobs{Stores: 1, Replicas: 1, Regions: 1})
	c.close()
	s := settings.Default()
	s.Cluster = c.shape
	_, err := Open(Options{ID: 2, FS: c.fs[0], Dir: "/data", Network: c.network, Settings: s,
		Rand: rand.New(rand.NewPCG(1, 1))})
	want := "store 2: folder /data belongs to store 1 of cluster 00000000000000000000000000000000, not to store 2 of " +
		"cluster 00000000000000000000000000000000"
	if err == nil || err.Error() != want {
		t.Errorf("Open = %v; want %s", err, want)
	}
}

// TestFirstLegacyWriteUnderARead makes a key's record a legacy string, the first of its region, while a read is under
// way that began without any. After the read has opened its view, a write and a sweep remove the string again. The read
// finds the key.
func TestFirstLegacyWriteUnderARead(t *testing.T) {
	store, r := alone(t, func(*Options) {})
	defer func() {
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}()
	propose := func(c redis.Call) {
		t.Helper()
		p := region.Pending{Run: &redis.Run{Calls: []redis.Call{c}}, Deadline: time.Now().Add(10 * time.Second)}
		r.Propose(&p)
		if p.Wait(); p.Err != nil {
			t.Fatal(p.Err)
		}
	}
	set, legacy := run("set", "k", "v").Calls[0], run("neokv", "legacyset", "k", "v").Calls[0]
	swept := redis.Swept(1 << 62)
	meanwhile := func(calls ...redis.Call) redis.Call {
		// Is applied in the middle of the first read of which it is a part.
		once := sync.OnceFunc(func() {
			for _, c := range calls {
				propose(c)
			}
		})
		return redis.Call{Command: &redis.Command{Read: func(*redis.Reader, [][]byte, *redis.Reply) error {
			once()
			return nil
		}}}
	}
	for _, x := range []struct{ read, want string }{{"get", "$1\r\nv\r\n"}, {"exists", ":1\r\n"},
		{"strlen", ":1\r\n"}} {
		propose(set)
		propose(swept)
		got := run(x.read, "k")
		got.Calls = []redis.Call{meanwhile(legacy), got.Calls[0], meanwhile(set, swept), got.Calls[0]}
		if err := r.Read(got, time.Now().Add(10*time.Second)); err != nil || string(got.Out.Buf) != x.want+x.want {
			t.Errorf("%s twice = %q, %v; want %q twice", x.read, got.Out.Buf, err, x.want)
		}
	}
}
