package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// simSettings are small, because boots and restarts are most of the cost of a run.
func simSettings() *settings.Settings {
	s := settings.Default()
	s.Cluster = settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: simRegions}
	s.Engine.MemtableSize, s.Engine.BlockCache, s.Engine.DiskReserve = 3<<20, 1<<20, 512<<10
	// A store that is away for a second or two needs a snapshot.
	s.Raft.SnapshotEntries, s.Raft.CompactionOverhead = 30, 10
	s.Raft.MaxInflight = 4  // a fault hits several entries of a region at once
	s.Raft.LeaderReturn = 0 // tests move leaders by hand
	s.Redis.FollowerRead = true
	return &s
}

// maxStores is the largest number of stores that a run has.
const maxStores = 5

// shapes are the clusters of plans with "any shape". Half of the runs have the first one.
var shapes = []settings.ClusterKnobs{
	{Stores: 3, Replicas: 3, Regions: simRegions},
	{Stores: 5, Replicas: 3, Regions: simRegions},
	{Stores: 5, Replicas: 5, Regions: simRegions},
	{Stores: 1, Replicas: 1, Regions: simRegions},
	{Stores: 3, Replicas: 1, Regions: simRegions},
}

// leaderReturns are the values of raft.leader_return that seeds draw: half of the runs leave leaders where they are.
var leaderReturns = []time.Duration{0, 0, 300 * time.Millisecond, time.Second}

// vary lets the seed choose the shape of the cluster, how many entries of a region may be in flight, how many commands
// an entry takes, and whether leaders return.
func (s *sim) vary(k *settings.Settings) {
	random := s.random(9)
	if n := random.IntN(8); n < len(shapes) {
		k.Cluster = shapes[n]
	}
	k.Raft.MaxInflight = []int{1, 2, 4, 16}[random.IntN(4)]
	if random.IntN(3) == 0 {
		k.Raft.BatchMaxOps = 1 + random.IntN(4) // pipelines travel in several entries
	}
	k.Raft.LeaderReturn = leaderReturns[random.IntN(len(leaderReturns))]
	s.h.note("%+v, %d entries in flight, of %d commands at most, leaders return after %s", k.Cluster, k.Raft.MaxInflight,
		k.Raft.BatchMaxOps, k.Raft.LeaderReturn)
}

// journalBytes draws the length of a segment of the journal, between 64 and 512 KiB: segments change some times in a
// run, or many times.
func journalBytes(random *rand.Rand) int64 { return 64 << 10 << random.IntN(4) }

// leader returns the store that serves a region, and its term. It is nil if no store does.
func (s *sim) leader(r topology.RegionID) (leader seam.StorePlace, term uint64) {
	for _, n := range s.nodes {
		st := n.Store()
		if st == nil || st.Failed() != nil {
			continue
		}
		for _, l := range st.Leads() {
			if l.Region == r && l.Term >= term {
				leader, term = n, l.Term
			}
		}
	}
	return leader, term
}

// others are all nodes but n.
func (s *sim) others(n seam.StorePlace) []seam.StorePlace {
	return slices.DeleteFunc(slices.Clone(s.nodes), func(o seam.StorePlace) bool { return o == n })
}

// transfer asks the leader of a region to hand over to a store.
func (s *sim) transfer(r topology.RegionID, to seam.StorePlace) {
	from, _ := s.leader(r)
	if from == nil || from == to {
		return
	}
	if st := from.Store(); st != nil {
		s.h.note("transfer region %d from %d to %d: %v", r, from.ID(), to.ID(), st.Transfer(r, to.ID()))
		s.mu.Lock()
		s.stats.Transfers++
		s.mu.Unlock()
	}
}

// move hands the leadership of a region over to a store. It asks again and again, since Raft may ignore a request.
func (s *sim) move(r topology.RegionID, to seam.StorePlace) {
	for range 100 {
		if leader, _ := s.leader(r); leader == to {
			return
		}
		s.transfer(r, to)
		for range 10 {
			if leader, _ := s.leader(r); leader == to {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	s.fail(fmt.Errorf("region %d does not move to store %d", r, to.ID()))
}

// mend ends the faults that the cluster itself has carried out, but for those of stores that do not run.
func (s *sim) mend() {
	for _, f := range s.c.Faults() {
		if f.Verb != fault.Stop && f.Verb != fault.Kill {
			_, err := s.c.Inject(context.Background(), f.End())
			s.fail(err)
		}
	}
}

// heal makes all links, disks and clocks good, and then starts the stores that do not run.
func (s *sim) heal() {
	s.mend()
	for _, a := range s.nodes {
		d := &s.disks[a.ID()-1]
		d.until.Store(0)
		d.each.Store(0)
		s.network.Resume(a.ID())
		for _, b := range s.nodes {
			s.network.Heal(a.ID(), b.ID())
			s.network.Delay(a.ID(), b.ID(), 0)
			s.network.Hold(a.ID(), b.ID(), 0, nil)
			s.network.Disturb(a.ID(), b.ID(), nil)
		}
	}
	for _, n := range s.nodes {
		if !s.runs(n) {
			s.restart(n)
		}
	}
}
