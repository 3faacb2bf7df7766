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
	s.Cluster = settings.Cluster{Stores: 1, Replicas: 1, Regions: 1}
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
		run.Calls = append(run.Calls, redis.Call{Command: redis.Lookup([]byte("incr")), Args: [][]byte{[]byte("incr"), []byte("k")}})
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
			o.Faults.Region.Observe = func(topology.StoreID, topology.RegionID, uint64, uint64, bool) {
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
		for end := time.Now().Add(10 * time.Second); r.Counters().Commands.Load() < runs+2; time.Sleep(time.Millisecond) {
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

// pair cuts the third store off from the leader of region 1 and one follower, and returns the numbers of the three.
func pair(c *cluster) (leader *Store, follower int) {
	leader = c.leader(1)
	l := int(leader.ID())
	follower, third := 1+l%3, 1+(l+1)%3
	for _, x := range []int{l, follower} {
		c.network.Cut(topology.StoreID(x), topology.StoreID(third))
		c.network.Cut(topology.StoreID(third), topology.StoreID(x))
	}
	return leader, follower
}

// TestFailingFollowerPromisesNothing holds a follower at the instant when its disk has failed and it is not cut off yet: what it
// cannot write it must not confirm.
func TestFailingFollowerPromisesNothing(t *testing.T) {
	c := newCluster(t, settings.Cluster{Stores: 3, Replicas: 3, Regions: 1})
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

// TestOpenOnAFailingDisk starts a store again whose disk is full: it takes no part in Raft on the way to its error.
func TestOpenOnAFailingDisk(t *testing.T) {
	c := newCluster(t, settings.Cluster{Stores: 3, Replicas: 3, Regions: 2})
	defer c.close()
	c.untilServing()
	l := int(c.leader(1).ID())
	f := 1 + l%3
	if err := c.stores[f-1].Close(); err != nil {
		t.Fatal(err)
	}
	c.stores[f-1] = nil
	fs := c.fs[f-1]
	fs.Inject(&disk.Fault{Op: disk.OpWrite, Path: "MANIFEST*", Err: syscall.ENOSPC})
	s := settings.Default()
	s.Cluster = c.shape
	s.Engine.MemtableSize, s.Engine.BlockCache = 16<<20, 16<<20
	store, err := Open(Options{
		ID: topology.StoreID(f), FS: fs, Dir: "/data", Network: c.network, Settings: s, Host: "h", Port: 7000 + f,
		Initial: c.initial, Rand: rand.New(rand.NewPCG(1, 9)),
	})
	if err == nil {
		store.Close()
		t.Fatal("opened on a full disk")
	}
	if !errors.Is(err, syscall.ENOSPC) {
		t.Errorf("Open = %v; want %v", err, syscall.ENOSPC)
	}
}

// TestCutRunBehindAStall has a run of two entries whose first is applied long after its deadline: the rest is answered too.
func TestCutRunBehindAStall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var armed atomic.Bool
		store, r := alone(t, func(o *Options) {
			o.Settings.Raft.BatchMaxOps = 1
			o.Faults.Region.Observe = func(topology.StoreID, topology.RegionID, uint64, uint64, bool) {
				if armed.CompareAndSwap(true, false) {
					time.Sleep(3 * time.Second) // a write stall
				}
			}
		})
		defer store.Close()
		armed.Store(true)
		p := increments(2, time.Second)
		r.Propose(p)
		done := make(chan struct{})
		go func() {
			p.Wait()
			close(done)
		}()
		select {
		case <-done:
			if len(p.Run.Ends) != 1 || p.Err == nil {
				t.Errorf("%d calls applied, %v; want 1 and an error for the other", len(p.Run.Ends), p.Err)
			}
		case <-time.After(time.Minute):
			t.Error("not answered a minute after its deadline of 1 s")
		}
	})
}

// TestReturnedProposalsFreeTheirPlaces moves leadership away and back under load: what was proposed at the wrong moment keeps
// nobody from writing afterwards.
func TestReturnedProposalsFreeTheirPlaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, settings.Cluster{Stores: 3, Replicas: 3, Regions: 1})
		defer c.close()
		c.untilServing()
		stop := make(chan struct{})
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(time.Millisecond):
					}
					p := &region.Pending{Run: run("set", "k", "v"), Deadline: time.Now().Add(2 * time.Second)}
					c.stores[i%3].Replica(1).Propose(p)
					p.Wait()
				}
			})
		}
		for range 30 {
			from := c.leader(1)
			if from == nil {
				continue
			}
			to := topology.StoreID(1 + int(from.ID())%3)
			c.until("transfer", func() bool {
				l := c.leader(1)
				if l != nil && l.ID() == to {
					return true
				}
				if l != nil {
					l.Transfer(1, to)
				}
				return false
			})
			begin := time.Now()
			p := &region.Pending{Run: run("set", "k", "v"), Deadline: begin.Add(2 * time.Second)}
			c.stores[to-1].Replica(1).Propose(p)
			p.Wait()
			if d := time.Since(begin); p.Err == nil && d > 300*time.Millisecond {
				t.Errorf("a write at the new leader took %v", d)
			}
		}
		close(stop)
		wg.Wait()
	})
}
