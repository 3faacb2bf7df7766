package sim

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// away kills a store, and has clients write until the logs of the others no longer hold the entries that it lacks.
func (s *sim) away(c *caller, n seam.StorePlace, writes int) error {
	s.do("kill %d keep=100%%", n.ID())
	for i := range writes {
		for r := range simRegions {
			for ok, deadline := false, time.Now().Add(20*time.Second); !ok; {
				var err error
				if ok, err = c.do(set, s.key('r', r), fmt.Sprintf("away-%d", i)); err != nil {
					return err
				}
				if time.Now().After(deadline) {
					return fmt.Errorf("region %d: no write in 20s with two of three stores", r+1)
				}
			}
		}
	}
	return nil
}

// healed kills each other store in turn, and starts it when it needs a snapshot of region 1 from the leader. It
// returns what a comparison finds when all have installed one.
func (s *sim) healed(t *testing.T, c *caller) error {
	leader, _ := s.leader(1)
	for _, n := range s.others(leader) {
		if err := s.away(c, n, 50); err != nil {
			t.Fatal(err)
		}
		s.do("restart %d", n.ID())
		replica := n.Store().Replica(1)
		for end := time.Now().Add(10 * time.Second); replica.Counters().SnapshotsReceived.Load() == 0; {
			if time.Now().After(end) {
				t.Fatalf("store %d: no snapshot of region 1 in 10s", n.ID())
			}
			time.Sleep(10 * time.Millisecond)
		}
		if now, _ := s.leader(1); now != leader {
			t.Fatalf("region 1 is led by store %d, and was by store %d", now.ID(), leader.ID())
		}
	}
	s.compareReplicas()
	return s.problem
}

// TestDifferenceBeforeASnapshot: a comparison finds that replicas differ, though later snapshots heal the difference,
// so that a comparison at the end finds none.
func TestDifferenceBeforeASnapshot(t *testing.T) {
	k := simSettings()
	k.Raft.ReadSets = false // a read set would tell the followers what SPOP took
	var hooks seam.Hooks
	hooks.Mistakes.Store.Region.MapOrder = true
	inBubbleWith(t, k, hooks, func(t *testing.T, s *sim, c *caller) {
		leader, _ := s.leader(1)
		at := s.session(t, leader)
		for i := range 100 {
			at.ask("SADD", s.nearby(0), strconv.Itoa(i))
		}
		if err := s.compare(1, leader); err != nil {
			t.Errorf("before any difference: %v", err)
		}
		for range 20 {
			at.ask("SPOP", s.nearby(0))
		}
		if err := s.compare(1, leader); evidenceOf(err) != replicasDiffer {
			t.Errorf("replicas that differ: %v", err)
		}
		if err := s.healed(t, c); err != nil {
			t.Errorf("behind snapshots: %v", err)
		}
	})
}

// TestPayloadThatDiffers changes the payload of an entry on its way to a follower. The witness in apply finds it,
// though a snapshot heals it later.
func TestPayloadThatDiffers(t *testing.T) {
	notShort(t)
	var witness atomic.Pointer[sim]
	var hooks seam.Hooks
	hooks.Region.BeforeApply = func(
		st topology.StoreID, r topology.RegionID, index, tag uint64, payload []byte, refusal error,
	) {
		if s := witness.Load(); s != nil {
			s.observe(st, r, index, tag, payload, refusal)
		}
	}
	inBubble(t, hooks, func(t *testing.T, s *sim, c *caller) {
		s.entries = make(map[topology.RegionID]map[uint64]appliedEntry)
		witness.Store(s)
		leader, _ := s.leader(1)
		at := s.session(t, leader)
		at.ask("SET", s.nearby(0), "sent")
		if s.problem != nil {
			t.Errorf("before any difference: %v", s.problem)
		}
		follower := s.others(leader)[0]
		s.inside.Network().Hold(leader.ID(), follower.ID(), time.Millisecond, func(m *multiraft.Message) bool {
			m.Entries = slices.Clone(m.Entries) // the sender's log shares them
			for i := range m.Entries {
				m.Entries[i].Cmd = bytes.ReplaceAll(m.Entries[i].Cmd, []byte("sent"), []byte("seen"))
			}
			return false
		})
		at.ask("SET", s.nearby(0), "sent")
		time.Sleep(time.Second) // the other follower acknowledges the write, perhaps before this one gets it
		s.inside.Network().Hold(leader.ID(), follower.ID(), 0, nil)
		s.mu.Lock()
		problem := s.problem
		s.problem = nil
		s.mu.Unlock()
		if evidenceOf(problem) != logsDiffer {
			t.Errorf("an entry that differs on store %d: %v", follower.ID(), problem)
		}
		witness.Store(nil)
		if err := s.healed(t, c); err != nil {
			t.Errorf("behind snapshots: %v", err)
		}
	})
}

// TestSnapshotBySize: the bytes applied make a region cut its log, long before the number of entries does, so that a
// store that was away needs snapshots.
func TestSnapshotBySize(t *testing.T) {
	k := simSettings()
	k.Raft.SnapshotEntries, k.Raft.SnapshotBytes, k.Raft.CompactionOverhead = 1_000_000, 64<<10, 5
	inBubbleWith(t, k, seam.Hooks{}, func(t *testing.T, s *sim, c *caller) {
		s.epochs = []string{""}
		victim := s.nodes[2]
		s.do("kill %d keep=100%%", victim.ID())
		value := strings.Repeat("v", 8<<10)
		for r := range simRegions {
			for n, end := 0, time.Now().Add(20*time.Second); n < 40; {
				home, _ := s.leader(topology.RegionID(r + 1))
				if home != nil && s.ask(t, home, "SET", fmt.Sprint(n, "{", regionTags[r], "}"), value) == "OK" {
					n++
				} else {
					time.Sleep(10 * time.Millisecond)
				}
				if time.Now().After(end) {
					t.Fatalf("region %d: %d writes in 20s with two of three stores", r+1, n)
				}
			}
		}
		s.do("restart %d", victim.ID())
		s.compareReplicas()
		for r := topology.RegionID(1); r <= simRegions; r++ {
			if n := victim.Store().Replica(r).Counters().SnapshotsReceived.Load(); n == 0 {
				t.Errorf("region %d: caught up without a snapshot after 320 KiB, with raft.snapshot_bytes at 64 KiB", r)
			}
		}
	})
}

// TestLogsAtRest: the log of a region without writes is cut if it takes more than twice the space of the region's
// data, and stays otherwise. A store that is away then catches up all the same.
func TestLogsAtRest(t *testing.T) {
	notShort(t)
	k := simSettings()
	k.Raft.SnapshotEntries, k.Raft.CompactionOverhead = 10_000, 2000
	inBubbleWith(t, k, seam.Hooks{}, func(t *testing.T, s *sim, c *caller) {
		at := s.session(t, s.leads(t))
		rng := rand.New(rand.NewPCG(1, 1))
		logs := func() (low, high uint64) {
			low = math.MaxUint64
			for _, n := range s.nodes {
				lower, upper := keys.RaftBounds(1)
				bytes, err := n.Store().Engine().TableBytes(engine.Span{Lower: lower, Upper: upper})
				if err != nil {
					t.Fatal(err)
				}
				low, high = min(low, bytes), max(high, bytes)
			}
			return low, high
		}
		value := make([]byte, 50_000)
		for i := range 120 {
			for j := range value {
				value[j] = byte(rng.Uint32()) // random bytes do not compress
			}
			at.ask("HSET", s.nearby(0), strconv.Itoa(i), string(value))
		}
		for _, n := range s.nodes {
			if err := n.Store().Engine().Flush(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if low, _ := logs(); low < 5_000_000 {
			t.Errorf("%d bytes of log where the data is as large; it was to stay", low)
		}
		at.ask("DEL", s.nearby(0))
		for _, n := range s.nodes {
			if err := n.Store().Engine().Flush(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Minute)
		if _, high := logs(); high > 300_000 {
			t.Errorf("%d bytes of log a minute after all of 6 MB was deleted", high)
		}
		at.ask("SET", s.nearby(0), "v")
		if err := s.away(c, s.nodes[1], 10); err != nil {
			t.Error(err)
		}
		if got := at.ask("GET", s.nearby(0)); got != "v" {
			t.Errorf("GET = %q", got)
		}
	})
}
