package sim

import (
	"context"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// start boots a cluster that is closed with the test.
func start(t *testing.T, c neokv.Config) *neokv.Cluster {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	cluster, err := neokv.Start(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	return cluster
}

// until waits for a condition, for a minute at most.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s in a minute", what)
		}
	}
}

// inBubble runs a test on a cluster in virtual time, without a schedule of faults.
func inBubble(t *testing.T, faults store.Faults, test func(t *testing.T, s *sim, c *caller)) {
	inBubbleWith(t, simSettings(), faults, test)
}

func inBubbleWith(t *testing.T, k *settings.Settings, faults store.Faults, test func(t *testing.T, s *sim, c *caller)) {
	synctest.Test(t, func(t *testing.T) {
		s := &sim{seed: 1, config: neokv.Config{NoSockets: true}, h: newHistory(io.Discard)}
		s.starts = s.random(8)
		hooks := &seam.Hooks{Store: faults, JournalBytes: journalBytes(s.starts)}
		s.attach(start(t, neokv.Config{InMemory: true, NoSockets: true, Seed: 1, Settings: k, Hooks: hooks}), hooks)
		s.lives = make([]atomic.Uint64, len(s.nodes))
		c := s.newCaller(1)
		defer c.close()
		test(t, s, c)
		if s.problem != nil {
			t.Error(s.problem)
		}
	})
}

// ask runs a command on one store and returns its reply.
func (s *sim) ask(t *testing.T, at seam.Node, args ...string) string {
	t.Helper()
	nc, err := s.c.Dial(t.Context(), at.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	reply, err := newWire(nc).call(args...)
	if err != nil {
		return err.Error()
	}
	return reply
}

// TestLeaseReads has reads that need no round, which end with leadership and begin anew at the next leader.
func TestLeaseReads(t *testing.T) {
	inBubble(t, store.Faults{}, func(t *testing.T, s *sim, c *caller) {
		const region, reads = topology.RegionID(1), 200
		key := "r{" + regionTags[0] + "}"
		home, _ := s.leader(region)
		away := s.others(home)[0]
		read := func(at seam.Node) (lease, index, rounds uint64, answered int) {
			n := at.Store().Replica(region).Counters()
			lease, index, rounds = n.LeaseReads.Load(), n.IndexReads.Load(), n.ReadIndexRounds.Load()
			for range reads {
				if ok, err := c.at(at.Addr(), get, key, ""); err != nil {
					t.Error(err)
				} else if ok {
					answered++
				}
				time.Sleep(5 * time.Millisecond)
			}
			return n.LeaseReads.Load() - lease, n.IndexReads.Load() - index, n.ReadIndexRounds.Load() - rounds, answered
		}
		for _, at := range []seam.Node{home, away} {
			s.move(region, at)
			lease, index, rounds, answered := read(at)
			if answered != reads || lease < reads*9/10 || lease+index != reads {
				t.Errorf("store %d: %d of %d reads answered, %d under a lease, %d behind a round", at.ID(), answered, reads, lease, index)
			}
			if rounds == 0 || rounds > reads/5 {
				t.Errorf("store %d: %d reads took %d rounds", at.ID(), reads, rounds)
			}
			for _, other := range s.others(at) {
				if lease, index, _, answered := read(other); answered+int(lease+index) > 0 {
					t.Errorf("store %d: %d reads answered, which store %d leads", other.ID(), answered, at.ID())
				}
			}
		}
		// Renewed only while reads arrive.
		n := away.Store().Replica(region).Counters()
		time.Sleep(time.Second)
		before := n.ReadIndexRounds.Load()
		time.Sleep(10 * time.Second)
		if after := n.ReadIndexRounds.Load(); after != before {
			t.Errorf("%d rounds while nobody read", after-before)
		}
	})
}

// TestExpiryBehindASlowClock moves leadership from a store whose clock is fast to stores whose clocks are behind: what has expired
// stays so, and what has not goes on expiring as of the last write.
func TestExpiryBehindASlowClock(t *testing.T) {
	const fast, region = topology.StoreID(2), topology.RegionID(1)
	var faults store.Faults
	faults.Region.Skew = func(s topology.StoreID) time.Duration {
		if s == fast {
			return time.Minute
		}
		return 0
	}
	inBubble(t, faults, func(t *testing.T, s *sim, _ *caller) {
		home, slow := s.nodes[fast-1], s.others(s.nodes[fast-1])
		s.move(region, home)
		key := func(name string) string { return name + "{" + regionTags[0] + "}" }
		expect := func(at seam.Node, want string, args ...string) {
			t.Helper()
			if got := s.ask(t, at, args...); got != want {
				t.Errorf("store %d: %s = %q; want %q", at.ID(), args, got, want)
			}
		}
		expect(home, "OK", "SET", key("short"), "v", "PX", "1000")
		expect(home, "OK", "SET", key("long"), "v", "PX", "5000")
		time.Sleep(1100 * time.Millisecond)
		expect(home, "", "GET", key("short"))
		for i, at := range slow {
			s.move(region, at)
			expect(at, "", "GET", key("short"))
			expect(at, "0", "EXISTS", key("short"))
			expect(at, "v", "GET", key("long"))
			if i == 0 {
				time.Sleep(3 * time.Second)
				expect(at, "OK", "SET", key("tick"), "v") // the region time travels with writes
			}
		}
		time.Sleep(time.Second)
		expect(slow[1], "", "GET", key("long"))
		s.move(region, slow[0])
		expect(slow[0], "", "GET", key("long"))
	})
}

// writers keep all regions busy until stop has returned; they count their writes, and those of them without success.
func (s *sim) writers() (writes, refused *atomic.Int64, stop func()) {
	writes, refused = new(atomic.Int64), new(atomic.Int64)
	over := make(chan struct{})
	var clients sync.WaitGroup
	for i := range 4 * simRegions {
		clients.Go(func() {
			c := s.newCaller(100 + i)
			defer c.close()
			for {
				select {
				case <-over:
					return
				case <-time.After(5 * time.Millisecond):
				}
				ok, err := c.do(set, s.key('r', i%simRegions), "v")
				s.fail(err)
				writes.Add(1)
				if !ok {
					refused.Add(1)
				}
			}
		})
	}
	return writes, refused, func() {
		close(over)
		clients.Wait()
	}
}

// TestStalledDisk has the disk that all stores share take half a second for a sync, under load: the leaders are there, and stay.
func TestStalledDisk(t *testing.T) {
	var until atomic.Int64 // Unix ns
	var faults store.Faults
	faults.Log.BeforeSync = func() { time.Sleep(time.Until(time.Unix(0, until.Load()))) }
	inBubble(t, faults, func(t *testing.T, s *sim, _ *caller) {
		changes := func() (n uint64) {
			for _, node := range s.nodes {
				for _, r := range node.Store().Counters().Regions {
					n += r.LeaderChanges.Load()
				}
			}
			return n
		}
		writes, refused, stop := s.writers()
		time.Sleep(time.Second)
		before := changes()
		for range 5 {
			until.Store(time.Now().Add(500 * time.Millisecond).UnixNano())
			time.Sleep(2 * time.Second)
		}
		stop()
		if n := changes() - before; n > 0 || refused.Load() > 0 {
			t.Errorf("%d changes of leader, %d writes without success; want none", n, refused.Load())
		}
		t.Logf("%d writes", writes.Load())
	})
}

// TestSlowDisk has every sync take longer than a stall is, and kills a store under load: the others elect leaders all the same.
func TestSlowDisk(t *testing.T) {
	var slow atomic.Bool
	var faults store.Faults
	faults.Log.BeforeSync = func() {
		if slow.Load() {
			time.Sleep(200 * time.Millisecond)
		}
	}
	inBubble(t, faults, func(t *testing.T, s *sim, _ *caller) {
		_, _, stop := s.writers()
		time.Sleep(time.Second)
		slow.Store(true)
		time.Sleep(3 * time.Second)
		for region := topology.RegionID(1); region <= simRegions; region++ {
			if at, _ := s.leader(region); at == nil {
				t.Errorf("region %d has no leader while syncs are slow", region)
			}
		}
		victim, _ := s.leader(1)
		s.kill(100, s.random(1), victim)
		begun := time.Now()
		for region := topology.RegionID(1); region <= simRegions; region++ {
			for at, _ := s.leader(region); (at == nil || at == victim) && time.Since(begun) < 40*time.Second; at, _ = s.leader(region) {
				time.Sleep(10 * time.Millisecond)
			}
		}
		if took := time.Since(begun); took > 30*time.Second {
			t.Errorf("leaders after %s", took)
		} else {
			t.Logf("leaders after %s", took)
		}
		slow.Store(false)
		s.restart(victim)
		stop()
	})
}
