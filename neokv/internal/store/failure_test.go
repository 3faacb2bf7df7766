package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
	"neokv.dev/neokv/settings"
)

// alone opens one store with one region and waits until it serves.
func alone(t testing.TB, change func(*Options)) (*Store, *region.Replica) {
	t.Helper()
	s := settings.Default()
	s.Cluster = settings.ClusterKnobs{Stores: 1, Replicas: 1, Regions: 1}
	o := Options{
		ID: 1, FS: disk.Mem(), Dir: "/data", Network: transport.NewNetwork(), Settings: s, Host: "h", Port: 7001,
		Initial: meta.Initial("00", s.Cluster), Booting: true, Rand: rand.New(rand.NewPCG(1, 1)),
	}
	change(&o)
	store, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if r := store.Replica(1); r != nil {
			if _, _, serving := r.Leading(); serving {
				return store, r
			}
		}
		if time.Now().After(end) {
			t.Fatal("no leader in 20 s")
		}
	}
}

// increments is a run of n INCRs with a deadline from now.
func increments(n int, deadline time.Duration) *region.Pending {
	run := new(redis.Run)
	for range n {
		run.Calls = append(run.Calls,
			redis.Call{Command: redis.Lookup([]byte("incr")), Args: [][]byte{[]byte("incr"), []byte("k")}})
	}
	return &region.Pending{Run: run, Deadline: time.Now().Add(deadline)}
}

// TestFenceUnderLoad makes the disk fail while an entry of many runs is applied: each run is answered once.
func TestFenceUnderLoad(t *testing.T) {
	const runs = 4096
	for round := range 10 {
		var n atomic.Int64
		var armed atomic.Bool
		hold := [3]chan struct{}{nil, make(chan struct{}), make(chan struct{})}
		at := [3]chan struct{}{nil, make(chan struct{}), make(chan struct{})}
		var fs *disk.FS
		store, r := alone(t, func(o *Options) {
			fs = o.FS
			o.Settings.Raft.MaxInflight, o.Settings.Raft.BatchMaxOps = 2, runs
			o.Hooks.BeforeApply = func(topology.StoreID, topology.RegionID, uint64, uint64, []byte, error) {
				if armed.Load() {
					if i := n.Add(1); i <= 2 {
						close(at[i])
						<-hold[i]
					}
				}
			}
		})
		armed.Store(true)
		var all []*region.Pending
		put := func() {
			p := increments(1, 20*time.Second)
			all = append(all, p)
			r.Propose(p)
		}
		put()
		<-at[1]
		put()
		for range runs {
			put()
		}
		close(hold[1])
		<-at[2] // the entry of all runs is proposed while the second is being applied
		for end := time.Now().Add(10 * time.Second); r.Counters().Commands.Load() < runs+
			2; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("the large entry was not proposed")
			}
		}
		var wg sync.WaitGroup
		for _, p := range all {
			wg.Go(p.Wait)
		}
		close(hold[2])
		for end := time.Now().Add(time.Duration(60*round) * time.Microsecond); time.Now().Before(end); {
		}
		fs.Fence(errors.New("planted"))
		wg.Wait()
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
}

// TestStopWhileProposing closes the store between the stamping of an entry and its proposal: the run is answered once.
func TestStopWhileProposing(t *testing.T) {
	var armed atomic.Bool
	var store *Store
	var r *region.Replica
	var once sync.Once
	closed := make(chan struct{})
	store, r = alone(t, func(o *Options) {
		o.ClockAhead = func() time.Duration {
			if armed.Load() {
				once.Do(func() {
					go func() {
						defer close(closed)
						if err := store.Close(); err != nil {
							t.Error(err)
						}
					}()
					for _, term, _ := r.Leading(); term != 0; _, term, _ = r.Leading() {
						time.Sleep(time.Millisecond)
					}
				})
			}
			return 0
		}
	})
	p := increments(1, 2*time.Second)
	armed.Store(true)
	r.Propose(p)
	p.Wait()
	<-closed // every goroutine of the replica has ended
	again := make(chan struct{})
	go func() {
		p.Wait()
		close(again)
	}()
	select {
	case <-again:
		t.Fatalf("finished twice, the second time with %v", p.Err)
	case <-time.After(100 * time.Millisecond):
		r.Propose(p) // answers, and so lets the waiting goroutine end
		<-again
	}
}

// TestCloseWithALostRound closes the store while a read index round is under way that gets no answer.
func TestCloseWithALostRound(t *testing.T) {
	store, r := alone(t, func(o *Options) { o.Mistakes.Region.LostRounds = true })
	if err := r.Read(run("get", "k"), time.Now().Add(10*time.Millisecond)); err != region.ErrDeadline {
		t.Fatalf("a read whose round is lost: %v; want %v", err, region.ErrDeadline)
	}
	late := make(chan error, 1)
	go func() { late <- r.Read(run("get", "k"), time.Now().Add(time.Hour)) }()
	closed := make(chan error, 1)
	go func() { closed <- store.Close() }()
	for what, c := range map[string]chan error{"Close": closed, "the read": late} {
		select {
		case err := <-c:
			if (err == nil) != (what == "Close") {
				t.Errorf("%s = %v", what, err)
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%s has not returned in 20 s", what)
		}
	}
}

// cut cuts the links between two stores.
func (c *testStores) cut(a, b topology.StoreID) {
	c.network.SetLink(a, b, fault.Net{Cut: true}, nil)
	c.network.SetLink(b, a, fault.Net{Cut: true}, nil)
}

// pair cuts the third of three stores off from the leader of region 1 and one follower.
func pair(c *testStores, leader, follower int) {
	third := 1 + 2 + 3 - leader - follower
	for _, x := range []int{leader, follower} {
		c.cut(topology.StoreID(x), topology.StoreID(third))
	}
}

// TestFailingFollowerPromisesNothing holds a follower at the instant when its disk has failed and the store is not cut
// off yet. The follower must not confirm an entry that it cannot write.
func TestFailingFollowerPromisesNothing(t *testing.T) {
	c := newCluster(t, settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 1})
	defer c.close()
	c.untilServing()
	leader := c.awaitLeader(1)
	f := 1 + int(leader.ID())%3
	pair(c, int(leader.ID()), f)
	fs, follower := c.fs[f-1], c.stores[f-1]
	hold := make(chan struct{})
	fs.OnFence(func(err error) {
		<-hold
		follower.keeper.fenced(err)
	})
	fenced := make(chan struct{})
	go func() {
		fs.Fence(errors.New("planted"))
		close(fenced)
	}()
	c.until("failed follower", func() bool { return fs.Failed() != nil })
	p := &region.Pending{Run: run("set", "k", "v"), Deadline: time.Now().Add(time.Second)}
	leader.Replica(1).Propose(p)
	p.Wait()
	if p.Err == nil {
		t.Errorf("a write was acknowledged by the leader and store %d alone, whose disk had failed", f)
	}
	close(hold)
	<-fenced
}

// heldSource is a random source that holds the caller that draws the nth number, until the test lets it go.
type heldSource struct {
	rand.Source
	nth            int
	drawn          int
	reached, letGo chan struct{}
}

func hold(nth int) *heldSource {
	return &heldSource{
		Source: rand.NewPCG(1, 9), nth: nth, reached: make(chan struct{}), letGo: make(chan struct{}),
	}
}

func (s *heldSource) Uint64() uint64 {
	if s.drawn++; s.drawn == s.nth {
		close(s.reached)
		<-s.letGo
	}
	return s.Source.Uint64()
}

// TestOpenOnAFailingDisk starts a store again whose disk is full. Until Open returns the error, however late, the store
// takes no part in Raft. The test holds Open, if it has not failed by then, when the second replica is made: the
// janitor draws two numbers, and each replica one.
func TestOpenOnAFailingDisk(t *testing.T) {
	c := newCluster(t, settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 2})
	defer c.close()
	c.untilServing()
	f := 1 + int(c.awaitLeader(1).ID())%3
	if err := c.stores[f-1].Close(); err != nil {
		t.Fatal(err)
	}
	c.stores[f-1] = nil
	fs := c.fs[f-1]
	fs.SetDrive(fault.Drive{Full: true}, rand.New(rand.NewPCG(1, 1)))
	s := settings.Default()
	s.Cluster = c.shape
	s.Engine.MemtableSize, s.Engine.BlockCache = 16<<20, 16<<20
	source := hold(4)
	opened := make(chan error, 1)
	go func() {
		store, err := Open(Options{
			ID: topology.StoreID(f), FS: fs, Dir: "/data", Network: c.network, Settings: s, Host: "h", Port: 7000 + f,
			Initial: c.initial, Rand: rand.New(source),
		})
		if err == nil {
			store.Close()
		}
		opened <- err
	}()
	var err error
	select {
	case <-source.reached:
		leader := c.awaitLeader(1) // perhaps another one than before
		pair(c, int(leader.ID()), f)
		p := &region.Pending{Run: run("set", "{a}", "v"), Deadline: time.Now().Add(time.Second)}
		leader.Replica(1).Propose(p)
		p.Wait()
		if p.Err == nil {
			t.Errorf("a write was acknowledged by the leader and store %d alone, whose disk had failed", f)
		}
		close(source.letGo)
		err = <-opened
	case err = <-opened:
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Open = %v; want %v", err, syscall.ENOSPC)
	}
}

// TestViewWhileOpening sends a store a view whose map is older than that of its folder. The view arrives after the
// store's endpoint has started, and before the store has read the folder's map. The store keeps the newer map.
func TestViewWhileOpening(t *testing.T) {
	c := newCluster(t, settings.ClusterKnobs{Stores: 1, Replicas: 1, Regions: 1})
	defer c.close()
	c.untilServing()
	newer := *c.initial
	newer.Version += 2
	if err := c.stores[0].cluster.adopt(&newer); err != nil {
		t.Fatal(err)
	}
	if err := c.stores[0].Close(); err != nil {
		t.Fatal(err)
	}
	older := *c.initial
	older.Version++
	caller := c.network.NewEndpoint(transport.Options{Store: 2, Lease: time.Second})
	defer caller.Close()
	source := hold(2)
	c.rand, c.stores[0] = source, nil
	called := make(chan error, 1)
	go func() {
		<-source.reached
		_, err := caller.Call(t.Context(), 1, mustJSON(t, message{View: &meta.ClusterView{Map: &older}}))
		close(source.letGo)
		called <- err
	}()
	c.open(0, false)
	if err := <-called; err != nil {
		t.Fatal(err)
	}
	s := c.stores[0]
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if s.cluster.newer != nil || s.cluster.current.Version != newer.Version {
		t.Errorf("the store has map %d and %v to adopt; want %d", s.cluster.current.Version, s.cluster.newer, newer.Version)
	}
}

// TestCutRunBehindAStall proposes a run of two entries, the first of which is applied long after the run's deadline.
// The run is answered at its deadline, and the replica serves others afterwards.
func TestCutRunBehindAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		store, r := alone(t, func(o *Options) {
			o.Settings.Raft.BatchMaxOps = 1
			o.Hooks.BeforeApply = func(topology.StoreID, topology.RegionID, uint64, uint64, []byte, error) {
				if armed.CompareAndSwap(true, false) {
					time.Sleep(3 * time.Second) // a write stall
				}
			}
		})
		defer store.Close()
		armed.Store(true)
		p, begin := increments(2, time.Second), time.Now()
		r.Propose(p)
		done := make(chan struct{})
		go func() {
			p.Wait()
			close(done)
		}()
		select {
		case <-done:
			if unknown := new(region.UnknownOutcome); !p.Lost || !errors.As(p.Err, &unknown) ||
				time.Since(begin) != time.Second {
				t.Errorf("lost %v, %v, after %v; want true and an unknown outcome after 1 s", p.Lost, p.Err,
					time.Since(begin))
			}
		case <-time.After(time.Minute):
			t.Error("not answered a minute after its deadline of 1 s")
		}
		time.Sleep(5 * time.Second)
		p = increments(2, time.Second)
		r.Propose(p)
		if p.Wait(); p.Err != nil || len(p.Run.Ends) != 2 {
			t.Errorf("behind the stall: %d calls applied, %v; want 2", len(p.Run.Ends), p.Err)
		}
	})
}

// TestReturnedProposalsFreeTheirPlaces makes a leader lose the lead while all its places hold proposals that are
// stamped and not proposed yet. The transport drops what they then propose. When the lead is back, no caller waits for
// these places.
func TestReturnedProposalsFreeTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var held atomic.Int64
		letGo := make(chan struct{})
		var armed atomic.Bool
		c := &testStores{t: t, network: transport.NewNetwork(),
			shape: settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 1}}
		c.initial = meta.Initial("00", c.shape)
		c.hooks.BeforePropose = func(topology.RegionID, uint64) {
			if armed.Load() {
				held.Add(1)
				<-letGo
			}
		}
		for i := range c.shape.Stores {
			c.fs, c.stores = append(c.fs, disk.Mem()), append(c.stores, nil)
			c.open(i, true)
		}
		defer c.close()
		c.untilServing()
		from := c.awaitLeader(1)
		lead := func(to topology.StoreID) {
			c.until("transfer", func() bool {
				l := c.leader(1)
				if l != nil && l.ID() != to {
					l.Transfer(1, to)
				}
				return l != nil && l.ID() == to
			})
		}
		armed.Store(true)
		var wg sync.WaitGroup
		places := int64(settings.Default().Raft.MaxInflight)
		for range places {
			wg.Go(func() {
				p := &region.Pending{Run: run("set", "k", "lost"), Deadline: time.Now().Add(2 * time.Second)}
				from.Replica(1).Propose(p)
				p.Wait()
				if p.Err != region.ErrNotLeader {
					t.Errorf("a dropped proposal: %v; want %v", p.Err, region.ErrNotLeader)
				}
			})
		}
		c.until("all places taken", func() bool { return held.Load() == places })
		armed.Store(false)
		lead(1 + from.ID()%3)
		close(letGo)
		wg.Wait()
		lead(from.ID())
		begin := time.Now()
		c.want("+OK\r\n", "SET", "k", "v")
		if d := time.Since(begin); d > 300*time.Millisecond {
			t.Errorf("the first write of the leader that is back took %v", d)
		}
	})
}

// TestCloseOnAHungDisk closes a store whose disk does not say any more how much space it has.
func TestCloseOnAHungDisk(t *testing.T) {
	fs := disk.OS()
	store, _ := alone(t, func(o *Options) { o.FS, o.Dir = fs, t.TempDir() })
	asked, ended := make(chan struct{}), make(chan struct{})
	defer close(ended)
	var once sync.Once
	fs.Hook(disk.BeforeUsage, func(int64) {
		once.Do(func() { close(asked) })
		<-ended
	})
	<-asked
	closed := make(chan error, 1)
	go func() { closed <- store.Close() }()
	select {
	case err := <-closed:
		if err != nil {
			t.Errorf("Close = %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Fatal("Close has not returned in 20 s")
	}
}

// TestCloseWhileSettling closes a store while a caller from outside has it flush, and the sync of the new table does
// not return. The caller gets an error before the engine closes, and so does a caller that comes later.
func TestCloseWhileSettling(t *testing.T) {
	for name, settles := range map[string]bool{"settle": true, "flush": false} {
		settle := func(s *Store, ctx context.Context) error { return s.Flush(ctx, settles) }
		t.Run(name, func(t *testing.T) {
			fs := disk.Mem()
			store, r := alone(t, func(o *Options) { o.FS = fs })
			p := increments(1, 20*time.Second)
			r.Propose(p)
			if p.Wait(); p.Err != nil {
				t.Fatal(p.Err)
			}
			before := tables(t, fs)
			reached, letGo := make(chan struct{}), make(chan struct{})
			once := sync.OnceFunc(func() { close(reached) })
			fs.Hook(disk.BeforeSync, func(int64) {
				if tables(t, fs) > before {
					once()
					<-letGo
				}
			})
			call := func() (err error) {
				defer func() {
					if p := recover(); p != nil {
						err = fmt.Errorf("panic: %v", p)
					}
				}()
				return settle(store, t.Context())
			}
			settled, closed := make(chan error, 1), make(chan error, 1)
			go func() { settled <- call() }()
			<-reached
			go func() { closed <- store.Close() }()
			select {
			case err := <-settled:
				if err != errClosing {
					t.Errorf("%s = %v; want %v", name, err, errClosing)
				}
				close(letGo)
			case <-time.After(20 * time.Second):
				t.Errorf("%s has not returned 20 s after the store began to close", name)
				close(letGo)
				t.Errorf("behind the sync: %s = %v", name, <-settled)
			}
			if err := <-closed; err != nil {
				t.Errorf("Close = %v", err)
			}
			if err := call(); err != errClosing {
				t.Errorf("%s of a closed store = %v; want %v", name, err, errClosing)
			}
		})
	}
}

// tables is how many tables the engine's folder has.
func tables(t *testing.T, fs *disk.FS) (n int) {
	t.Helper()
	names, err := fs.List("/data/engine")
	if err != nil {
		t.Error(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			n++
		}
	}
	return n
}

// testAwaitedReplicas has a store wait for a replica that it never hears of, because their link is cut. away ends what
// the store waits for.
func testAwaitedReplicas(t *testing.T, away func(t *testing.T, c *testStores, waiting *Store), want error) {
	synctest.Test(t, func(t *testing.T) {
		c, _, s := newAngle(t)
		defer c.close()
		c.lead(2, s.ID())
		ctx, cancel := context.WithCancel(t.Context())
		awaited := make(chan error, 1)
		go func() { awaited <- s.AwaitReplicas(ctx) }()
		synctest.Wait()
		if len(awaited) > 0 {
			t.Fatalf("AwaitReplicas = %v, although a replica does not answer", <-awaited)
		}
		away(t, c, s)
		select {
		case err := <-awaited:
			if !errors.Is(err, want) {
				t.Errorf("AwaitReplicas = %v; want %v", err, want)
			}
		case <-time.After(time.Minute):
			t.Error("AwaitReplicas has not returned in a minute")
			cancel()
			<-awaited
		}
		cancel()
	})
}

// newAngle opens three stores with two regions, which stay with their leaders. One store leads both, and meta. The link
// between the two others, of which newAngle returns one, is cut.
func newAngle(t *testing.T) (c *testStores, leader, other *Store) {
	c = &testStores{t: t, network: transport.NewNetwork(),
		shape: settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 2}}
	c.initial = meta.Initial("00", c.shape)
	c.raft = func(k *settings.RaftKnobs) { k.LeaderReturn = 0 }
	for i := range c.shape.Stores {
		c.fs, c.stores = append(c.fs, disk.Mem()), append(c.stores, nil)
		c.open(i, true)
	}
	c.untilServing()
	at := c.stores[0].meta.target()
	c.lead(1, at)
	c.lead(2, at)
	a, b := 1+at%3, 1+(at+1)%3
	c.cut(a, b)
	return c, c.stores[at-1], c.stores[a-1]
}

// lead moves the leadership of a region to a store.
func (c *testStores) lead(id topology.RegionID, to topology.StoreID) {
	c.t.Helper()
	c.until("transfer", func() bool {
		l := c.leader(id)
		if l != nil && l.ID() != to {
			l.Transfer(id, to)
		}
		return l != nil && l.ID() == to
	})
}

// merge merges a region's right neighbour into it.
func (c *testStores) merge(left topology.RegionID) {
	c.t.Helper()
	c.until("merge", func() bool {
		ctx, cancel := context.WithTimeout(c.t.Context(), 5*time.Second)
		defer cancel()
		_, err := c.leader(left).Merge(ctx, left, "", new(time.Duration))
		return err == nil
	})
}

// TestAwaitReplicasOfAMergedRegion merges the region away whose replicas a store waits for. The store that leads it by
// then has no link that is cut.
func TestAwaitReplicasOfAMergedRegion(t *testing.T) {
	testAwaitedReplicas(t, func(t *testing.T, c *testStores, waiting *Store) {
		c.lead(2, c.leader(1).ID())
		c.merge(1)
	}, nil)
}

// TestAwaitReplicasOfAClosingStore closes the store that waits for replicas.
func TestAwaitReplicasOfAClosingStore(t *testing.T) {
	testAwaitedReplicas(t, func(t *testing.T, c *testStores, waiting *Store) {
		if err := waiting.Close(); err != nil {
			t.Error(err)
		}
		c.stores[waiting.ID()-1] = nil
	}, errClosing)
}
