package sim

import (
	"fmt"
	"strings"
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
			if led := at.Store().Replicas().Leads(); len(led) == 0 {
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

// TestReplicaAddress reads at the stores' second addresses, which serve what the store follows and nothing that it
// leads.
func TestReplicaAddress(t *testing.T) {
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		const region = topology.RegionID(1)
		key := "r{" + regionTags[0] + "}"
		slot := fmt.Sprint(topology.SlotOf([]byte(key)))
		home, _ := s.leader(region)
		leader := s.session(t, home)
		moved := fmt.Sprintf("MOVED %s %s", slot, home.Addr())
		for _, at := range s.nodes {
			replica := s.sessionAt(t, at.ReplicaAddr())
			replica.want(moved, "GET", key)
			replica.want("OK", "READONLY")
			replica.want(moved, "SET", key, "v")
			if at == home {
				replica.want(moved, "GET", key)
				replica.want("0", "DBSIZE")
				replica.want("0", "CLUSTER", "COUNTKEYSINSLOT", slot)
				continue
			}
			n := at.Store().Replica(region).Counters()
			// The follower learns of a commit later than the client.
			s.do("link %d %d one-way delay=30ms", home.ID(), at.ID())
			before := n.FollowerReads.Load()
			for i := range 20 {
				value := fmt.Sprintf("%d-%02d", at.ID(), i)
				leader.want("OK", "SET", key, value)
				replica.want(value, "GET", key)
			}
			s.do("link %d %d one-way ok", home.ID(), at.ID())
			if got := n.FollowerReads.Load() - before; got != 20 {
				t.Errorf("store %d counts %d follower reads of 20", at.ID(), got)
			}
			for range 2 { // the second count may be one that is remembered
				replica.want("1", "DBSIZE")
			}
			replica.want("1", "CLUSTER", "COUNTKEYSINSLOT", slot)
			replica.want(key, "RANDOMKEY")
			if got := replica.ask("SCAN", "0", "COUNT", "100000"); !strings.Contains(got, key) {
				t.Errorf("SCAN = %q; want %s in it", got, key)
			}
			replica.want(`unexpected reply: "-READONLY You can't write against a read only replica."`, "FLUSHALL")
			replica.want("OK", "MULTI")
			replica.want("QUEUED", "GET", key)
			replica.want("QUEUED", "STRLEN", key)
			if got := replica.ask("EXEC"); !strings.Contains(got, fmt.Sprintf("%d-19", at.ID())) {
				t.Errorf("EXEC of reads = %q", got)
			}
			// What a client caches only the leader may tell it.
			replica.want("OK", "CLIENT", "TRACKING", "ON", "REDIRECT", replica.ask("CLIENT", "ID"), "OPTIN")
			replica.want(fmt.Sprintf("%d-19", at.ID()), "GET", key)
			replica.want("OK", "CLIENT", "CACHING", "YES")
			replica.want(moved, "GET", key)
			replica.want(fmt.Sprintf("%d-19", at.ID()), "GET", key)
			replica.want("OK", "READWRITE")
			replica.want(moved, "GET", key)
		}
		// Roles change under a connection.
		other := s.others(home)[0]
		was, is := s.sessionAt(t, home.ReplicaAddr()), s.sessionAt(t, other.ReplicaAddr())
		was.want("OK", "READONLY")
		is.want("OK", "READONLY")
		leader.want("OK", "SET", key, "v")
		is.want("v", "GET", key)
		s.move(region, other)
		moved = fmt.Sprintf("MOVED %s %s", slot, other.Addr())
		is.want(moved, "GET", key)
		was.want("v", "GET", key)
		was.want(moved, "SET", key, "w")
		// A stand-in is at both addresses.
		s.do("kill %d", home.ID())
		down := s.sessionAt(t, home.ReplicaAddr())
		down.want("OK", "READONLY")
		down.want(moved, "GET", key)
		if got := down.ask("CLUSTER", "NODES"); !strings.Contains(got, "myself,slave,fail") {
			t.Errorf("CLUSTER NODES at the address of a store that is down: %q", got)
		}
		down.want("CLUSTERDOWN ...", "DBSIZE")
		s.do("restart %d", home.ID())
	})
}

// TestReplicaCountsExpired: a walk at a follower judges expiry by the region time of the log, so that it need not ask
// the leader.
func TestReplicaCountsExpired(t *testing.T) {
	k := simSettings()
	k.Redis.ExpireInterval, k.Redis.ExpireSample = 0, 0 // only readers move the region time
	inBubbleWith(t, k, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		key := "a{" + regionTags[0] + "}"
		home, _ := s.leader(1)
		leader, replica := s.session(t, home), s.sessionAt(t, s.others(home)[0].ReplicaAddr())
		leader.want("OK", "SET", key, "v", "PX", "1000")
		replica.want("1", "DBSIZE")
		time.Sleep(1100 * time.Millisecond)
		replica.want("1", "DBSIZE")
		replica.want("OK", "READONLY")
		replica.want("MOVED ...", "GET", key)
		leader.want("", "GET", key)
		replica.want("0", "DBSIZE")
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
