package neokv

import (
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/topology"
)

// ClusterStatus is the state of a cluster at one moment.
type ClusterStatus struct {
	Stores  []StoreStatus  `json:"stores"`
	Regions []RegionStatus `json:"regions"`
	Faults  []fault.Fault  `json:"faults"` // those in force, as text
}

// StoreStatus is the state of one store.
type StoreStatus struct {
	Store    int    `json:"store"`
	Addr     string `json:"addr"`
	State    string `json:"state"` // ok, full, paused, stopped, killed or failed
	Reason   string `json:"reason,omitempty"`
	Replicas int    `json:"replicas"`
	Leads    int    `json:"leads"`
	// Lag is how many entries of the log the store's replicas have not applied which their leaders have, in all.
	Lag uint64 `json:"lag"`
}

// The states of a store.
const (
	StateOK      = "ok"
	StateFull    = "full" // its disk has less space left than the reserve: it takes no writes
	StatePaused  = "paused"
	StateStopped = "stopped"
	StateKilled  = "killed"
	StateFailed  = "failed"
)

// RegionStatus is the state of one region.
type RegionStatus struct {
	Region   int             `json:"region"`
	Slots    string          `json:"slots"`
	Leader   int             `json:"leader"` // the store that serves the region, 0 if none does
	Term     uint64          `json:"term"`
	Pinned   bool            `json:"pinned,omitempty"` // the leader was moved on purpose, and stays until heal
	Replicas []ReplicaStatus `json:"replicas"`
}

// ReplicaStatus is the state of one replica.
type ReplicaStatus struct {
	Store   int    `json:"store"`
	Running bool   `json:"running"`
	Applied uint64 `json:"applied"` // the index of the log up to which it has applied, 0 if it does not run
	Lag     uint64 `json:"lag"`     // entries that its leader has applied and it has not
}

// Status returns the state of the cluster. It asks no other store: a leader that has been cut off and does not know it
// yet still counts as one, unless another replica leads in a later term.
func (c *Cluster) Status() ClusterStatus {
	s := ClusterStatus{Faults: append([]fault.Fault{}, c.Faults()...)}
	for _, n := range c.nodes {
		state, reason := n.state()
		s.Stores = append(s.Stores, StoreStatus{Store: int(n.id), Addr: n.addr, State: state, Reason: reason})
	}
	for _, r := range c.initial.Regions {
		region := RegionStatus{Region: int(r.ID), Slots: r.Slots.String(), Pinned: c.pinned(r.ID)}
		applied := uint64(0)
		if leader := c.leaderOf(r.ID); leader != nil {
			if replica := c.replica(leader.id, r.ID); replica != nil {
				_, region.Term, _ = replica.Leading()
				region.Leader, applied = int(leader.id), replica.Applied()
				s.Stores[leader.id-1].Leads++
			}
		}
		for _, p := range r.Peers {
			region.Replicas = append(region.Replicas, c.replicaStatus(p.Store, r.ID, applied))
			own := region.Replicas[len(region.Replicas)-1]
			s.Stores[p.Store-1].Replicas++
			s.Stores[p.Store-1].Lag += own.Lag
		}
		s.Regions = append(s.Regions, region)
	}
	return s
}

// replicaStatus returns the state of a replica whose leader has applied so much.
func (c *Cluster) replicaStatus(on topology.StoreID, id topology.RegionID, leaderApplied uint64) ReplicaStatus {
	out := ReplicaStatus{Store: int(on)}
	if r := c.replica(on, id); r != nil && r.Running() {
		out.Running, out.Applied = true, r.Applied()
		if leaderApplied > out.Applied {
			out.Lag = leaderApplied - out.Applied
		}
	}
	return out
}

// state returns the state of the store, and the reason if it has failed.
func (n *storePlace) state() (state, reason string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.failure != nil:
		return StateFailed, n.failure.Error()
	case n.why == fault.Kill:
		return StateKilled, ""
	case n.down:
		return StateStopped, ""
	case n.paused:
		return StatePaused, ""
	}
	if s := n.store.Load(); s != nil {
		if why := s.Full(); why != "" {
			return StateFull, why
		}
	}
	return StateOK, ""
}
