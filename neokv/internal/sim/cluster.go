package sim

import (
	"slices"
	"time"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// simSettings are small, because boots and restarts are most of the cost of a run.
func simSettings() *settings.Settings {
	s := settings.Default()
	s.Cluster = settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: simRegions}
	s.Engine.MemtableSize, s.Engine.BlockCache, s.Engine.RowCache, s.Engine.DiskReserve = 3<<20, 1<<20, 1<<20, 512<<10
	// A store that is away for a second or two needs a snapshot.
	s.Raft.SnapshotEntries, s.Raft.CompactionOverhead = 30, 10
	s.Raft.MaxInflight = 4  // a fault hits several entries of a region at once
	s.Raft.LeaderReturn = 0 // tests move leaders by hand
	s.Redis.FollowerRead = true
	s.Redis.UnknownOutcome = settings.ErrorUnknown // tests read why
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

// leader returns the store that serves a region, and its term. It is nil if no store does.
func (s *sim) leader(r topology.RegionID) (leader seam.StorePlace, term uint64) {
	for _, n := range s.nodes {
		st := n.Store()
		if st == nil || st.Failed() != nil {
			continue
		}
		for _, l := range st.Replicas().Leads() {
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

// move hands the leadership of a region over to a store.
func (s *sim) move(r topology.RegionID, to seam.StorePlace) { s.do("transfer %d %d", r, to.ID()) }

// heal ends all faults and starts the stores that do not run.
func (s *sim) heal() { s.do("heal") }
