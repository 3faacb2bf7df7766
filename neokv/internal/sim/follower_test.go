package sim

import (
	"fmt"
	"testing"
	"time"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// TestFollowerReads reads at followers the value that the leader has just acknowledged, with and without READONLY.
func TestFollowerReads(t *testing.T) {
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		const region = topology.RegionID(1)
		key := "r{" + regionTags[0] + "}"
		home, _ := s.leader(region)
		leader := s.session(t, home)
		moved := fmt.Sprintf("MOVED %d %s", topology.SlotOf([]byte(key)), home.Addr())
		for _, at := range s.others(home) {
			n := at.Store().Replica(region).Counters()
			reader := s.session(t, at)
			reader.want(moved, "GET", key)
			reader.want("OK", "READONLY")
			// The follower learns of a commit later than the client.
			s.do("link %d %d one-way delay=30ms", home.ID(), at.ID())
			before := n.FollowerReads.Load()
			for i := range 20 {
				value := fmt.Sprintf("%d-%02d", at.ID(), i)
				leader.want("OK", "SET", key, value)
				reader.want(value, "GET", key)
			}
			s.do("link %d %d one-way ok", home.ID(), at.ID())
			if got := n.FollowerReads.Load() - before; got != 20 {
				t.Errorf("store %d counts %d follower reads of 20", at.ID(), got)
			}
			begin := time.Now()
			reader.want(moved, "SET", key, "v")
			if d := time.Since(begin); d > 0 {
				t.Errorf("store %d held a write for %s", at.ID(), d)
			}
			reader.want("1", "EXISTS", key)
			reader.want("CROSSSLOT ...", "EXISTS", key, "other")
			reader.want("4", "STRLEN", key)
			reader.want("OK", "READWRITE")
			reader.want(moved, "GET", key)
			if led := at.Store().Leads(); len(led) == 0 {
				t.Errorf("store %d leads nothing", at.ID())
			}
		}
		// A store counts the keys of the regions that it leads.
		sum := 0
		for _, at := range s.nodes {
			x := s.session(t, at)
			x.want("OK", "READONLY")
			var n int
			fmt.Sscan(x.ask("DBSIZE"), &n)
			sum += n
		}
		if sum != 1 {
			t.Errorf("the stores together count %d keys, want 1", sum)
		}
	})
}

// TestFollowerReadsAndExpiry: a follower answers for a key that has expired by the region time of the log, and
// redirects a reader to the leader if the key has expired only by the clock.
func TestFollowerReadsAndExpiry(t *testing.T) {
	k := simSettings()
	k.Redis.ExpireInterval, k.Redis.ExpireSample = 0, 0 // only readers move the region time
	inBubbleWith(t, k, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		key := func(name string) string { return name + "{" + regionTags[0] + "}" }
		home, _ := s.leader(1)
		leader := s.session(t, home)
		follower := s.session(t, s.others(home)[0])
		follower.want("OK", "READONLY")
		leader.want("OK", "SET", key("a"), "v", "PX", "1000")
		leader.want("OK", "SET", key("b"), "v")
		follower.want("v", "GET", key("a"))
		time.Sleep(1100 * time.Millisecond)
		follower.want("MOVED ...", "GET", key("a"))
		follower.want("MOVED ...", "EXISTS", key("b"), key("a"))
		follower.want("v", "GET", key("b"))
		follower.want("MOVED ...", "GET", key("a")) // no client has asked the leader
		leader.want("", "GET", key("a"))
		follower.want("", "GET", key("a"))
		follower.want("1", "EXISTS", key("b"), key("a"))
	})
}

// TestFollowerReadsAtALeaderChange reads at followers while leadership moves, and while the leader is cut off. The
// followers hold the reads, and then answer.
func TestFollowerReadsAtALeaderChange(t *testing.T) {
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		const region = topology.RegionID(1)
		key := "r{" + regionTags[0] + "}"
		home, _ := s.leader(region)
		s.session(t, home).want("OK", "SET", key, "v")
		for i := range 6 {
			home, _ = s.leader(region)
			if home == nil {
				t.Fatal("no leader")
			}
			others := s.others(home)
			x := s.session(t, others[i%2])
			x.want("OK", "READONLY")
			if i < 3 {
				s.move(region, others[(i+1)%2])
				x.want("v", "GET", key)
				continue
			}
			s.do("partition %d all", home.ID())
			x.want("v", "GET", key)
			s.do("mend %d all", home.ID())
			time.Sleep(time.Second)
		}
	})
}
