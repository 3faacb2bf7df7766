package store

import (
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

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
		Initial: meta.Initial("00", s.Cluster, false), Booting: true, Rand: rand.New(rand.NewPCG(1, 1)),
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
			o.Faults.Region.Observe = func(topology.StoreID, topology.RegionID, uint64, uint64, []byte, error) {
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
		o.Faults.Region.Skew = func(topology.StoreID) time.Duration {
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
	store, r := alone(t, func(o *Options) { o.Faults.Region.LostRounds = true })
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

// pair cuts the third store off from the leader of region 1 and one follower, and returns the numbers of the three.
func pair(c *testStores) (leader *Store, follower int) {
	leader = c.leader(1)
	l := int(leader.ID())
	follower, third := 1+l%3, 1+(l+1)%3
	for _, x := range []int{l, follower} {
		c.network.Cut(topology.StoreID(x), topology.StoreID(third))
		c.network.Cut(topology.StoreID(third), topology.StoreID(x))
	}
	return leader, follower
}

// TestFailingFollowerPromisesNothing holds a follower at the instant when its disk has failed and the store is not cut
// off yet. The follower must not confirm an entry that it cannot write.
func TestFailingFollowerPromisesNothing(t *testing.T) {
	c := newCluster(t, settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 1})
	defer c.close()
	c.untilServing()
	leader, f := pair(c)
	fs, follower := c.fs[f-1], c.stores[f-1]
	hold := make(chan struct{})
	fs.OnFence(func(err error) {
		<-hold
		follower.fenced(err)
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

// heldSource is a random source that holds the caller that draws the second number, until the test lets it go.
type heldSource struct {
	rand.Source
	n              int
	reached, letGo chan struct{}
}

func (s *heldSource) Uint64() uint64 {
	if s.n++; s.n == 2 {
		close(s.reached)
		<-s.letGo
	}
	return s.Source.Uint64()
}

// TestOpenOnAFailingDisk starts a store again whose disk is full. Until Open returns the error, however late, the store
// takes no part in Raft. The test holds Open between the start of its first replica and that of its second.
func TestOpenOnAFailingDisk(t *testing.T) {
	c := newCluster(t, settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 2})
	defer c.close()
	c.untilServing()
	f := 1 + int(c.leader(1).ID())%3
	if err := c.stores[f-1].Close(); err != nil {
		t.Fatal(err)
	}
	c.stores[f-1] = nil
	fs := c.fs[f-1]
	fs.Inject(&disk.FailingOp{Op: disk.OpWrite, Path: "MANIFEST*", Err: syscall.ENOSPC})
	s := settings.Default()
	s.Cluster = c.shape
	s.Engine.MemtableSize, s.Engine.BlockCache = 16<<20, 16<<20
	source := &heldSource{Source: rand.NewPCG(1, 9), reached: make(chan struct{}), letGo: make(chan struct{})}
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
		c.until("leader of region 1", func() bool { return c.leader(1) != nil })
		leader, follower := pair(c)
		if follower != f {
			t.Fatalf("region 1 is led by store %d now", leader.ID())
		}
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

// TestCutRunBehindAStall proposes a run of two entries, the first of which is applied long after the run's deadline.
// The run is answered at its deadline, and the replica serves others afterwards.
func TestCutRunBehindAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		store, r := alone(t, func(o *Options) {
			o.Settings.Raft.BatchMaxOps = 1
			o.Faults.Region.Observe = func(topology.StoreID, topology.RegionID, uint64, uint64, []byte, error) {
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
		c.initial = meta.Initial("00", c.shape, false)
		c.faults.Region.BeforeWrite = func(topology.RegionID, uint64) {
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
		from := c.leader(1)
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
	fs.BeforeUsage(func() {
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
