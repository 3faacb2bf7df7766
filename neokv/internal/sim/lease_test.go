package sim

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// TestLeaseReads: a leader serves reads under its lease without a round, until its leadership ends. The next leader
// does the same.
func TestLeaseReads(t *testing.T) {
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, c *caller) {
		const region, reads = topology.RegionID(1), 200
		key := "r{" + regionTags[0] + "}"
		home, _ := s.leader(region)
		away := s.others(home)[0]
		read := func(at seam.StorePlace) (lease, index, rounds uint64, answered int) {
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
		for _, at := range []seam.StorePlace{home, away} {
			s.move(region, at)
			lease, index, rounds, answered := read(at)
			if answered != reads || lease < reads*9/10 || lease+index != reads {
				t.Errorf("store %d: %d of %d reads answered, %d under a lease, %d behind a round",
					at.ID(), answered, reads, lease, index)
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
		// A leader renews its lease only while reads arrive.
		n := away.Store().Replica(region).Counters()
		time.Sleep(time.Second)
		before := n.ReadIndexRounds.Load()
		time.Sleep(10 * time.Second)
		if after := n.ReadIndexRounds.Load(); after != before {
			t.Errorf("%d rounds while nobody read", after-before)
		}
	})
}

// TestFarQuorum: where the quorum is farther away than a round gets at first, reads and writes go on.
func TestFarQuorum(t *testing.T) {
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		at, _ := s.leader(1)
		key := "r{" + regionTags[0] + "}"
		s.do("link all all delay=115ms")
		for i := range 20 {
			value := fmt.Sprint(i)
			if got := s.ask(t, at, "SET", key, value); got != "OK" {
				t.Errorf("SET: %q", got)
			}
			if got := s.ask(t, at, "GET", key); got != value {
				t.Errorf("GET: %q; want %q", got, value)
			}
			time.Sleep(time.Duration(i) * 40 * time.Millisecond)
		}
	})
}

// TestLostLeaseIsTold: a leader that has lost its lease for the rest of its term, as after a transfer that came to
// nothing, reads by rounds, and the status says so until another store leads.
func TestLostLeaseIsTold(t *testing.T) {
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		const region = topology.RegionID(1)
		home, _ := s.leader(region)
		if told := s.c.Status().Impaired; told != nil {
			t.Errorf("a cluster that is well: %q", told)
		}
		r := home.Store().Replica(region)
		_, term, _ := r.Leading()
		r.Revoke(term)
		before := r.Counters().IndexReads.Load()
		for range 10 {
			s.ask(t, home, "GET", "r{"+regionTags[0]+"}")
		}
		if n := r.Counters().IndexReads.Load() - before; n != 10 {
			t.Errorf("%d of 10 reads took a round", n)
		}
		want := fmt.Sprintf("store %d has no lease in 1 of the regions that it leads, the first is region 1", home.ID())
		if told := s.c.Status().Impaired; len(told) != 1 || !strings.HasPrefix(told[0], want) {
			t.Errorf("told %q; want %q", told, want)
		}
		if n := home.Store().Counters().Leaseless; n != 1 {
			t.Errorf("%d regions counted without a lease; want 1", n)
		}
		s.move(region, s.others(home)[0])
		if told := s.c.Status().Impaired; told != nil {
			t.Errorf("after the move: %q", told)
		}
	})
}

// TestExpiryBehindASlowClock moves leadership from a store whose clock is fast to stores whose clocks are slower.
// Keys that have expired stay so, and the others expire as the last write says.
func TestExpiryBehindASlowClock(t *testing.T) {
	notShort(t)
	const fast, region = topology.StoreID(2), topology.RegionID(1)
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		s.do("clock %d 1m", fast)
		home, slow := s.nodes[fast-1], s.others(s.nodes[fast-1])
		s.move(region, home)
		key := func(name string) string { return name + "{" + regionTags[0] + "}" }
		expect := func(at seam.StorePlace, want string, args ...string) {
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
				expect(at, "OK", "SET", key("tick"), "v") // a write carries the region time
			}
		}
		time.Sleep(time.Second)
		expect(slow[1], "", "GET", key("long"))
		s.move(region, slow[0])
		expect(slow[0], "", "GET", key("long"))
	})
}
