package neokv

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// ClusterStatus is the state of a cluster at one moment.
type ClusterStatus struct {
	Stores  []StoreStatus  `json:"stores"`
	Regions []RegionStatus `json:"regions"`
	Faults  []fault.Fault  `json:"faults"` // those in force, as text
	// Impaired says what is worse than it should be, though every store runs and every region is served.
	Impaired []string `json:"impaired,omitempty"`
	Backup   string   `json:"backup,omitempty"` // how far the one is that is being made
	// Migrations of slots are shown to clients: by slots.
	Migrations []MigrationStatus `json:"migrations,omitempty"`
	// Wipes are open: stores that were wiped, and do not have all their replicas again.
	Wipes []WipeStatus `json:"wipes,omitempty"`
}

// StoreStatus is the state of one store.
type StoreStatus struct {
	Store int    `json:"store"`
	Addr  string `json:"addr"`
	// ReplicaAddr is the second address: see Cluster.ReplicaAddrs.
	ReplicaAddr string `json:"replica_addr,omitempty"`
	State       string `json:"state"` // ok, full, paused, stopped, killed or failed
	Reason      string `json:"reason,omitempty"`
	// Member is what the store is to the cluster: MemberJoining, MemberDraining, MemberGone, or "" for a full member.
	Member   string `json:"member,omitempty"`
	Replicas int    `json:"replicas"`
	Leads    int    `json:"leads"`
	// Lag is how many entries of the log the store's replicas have not applied which their leaders have, in all.
	Lag uint64 `json:"lag"`
	// Rate is how many commands clients call per second at the store's port, over the last moments.
	Rate float64 `json:"commands_per_second"`
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

// What a store is to the cluster, where it is no full member.
const (
	MemberJoining  = "joining"  // it has been added, and is not on the cluster map yet
	MemberDraining = "draining" // its replicas move away, and none comes
	MemberGone     = "gone"     // it is being removed
)

// RegionStatus is the state of one region.
type RegionStatus struct {
	Region   int             `json:"region"`
	Slots    string          `json:"slots"`
	Version  uint64          `json:"version"`          // of the bounds: it grows with every split and merge
	Change   string          `json:"change,omitempty"` // the split, merge or move that the region is part of
	Leader   int             `json:"leader"`           // the store that serves the region, 0 if none does
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

// MigrationStatus is a migration of slots that clients are shown.
type MigrationStatus struct {
	Slots string        `json:"slots"`
	From  int           `json:"from"`
	To    int           `json:"to"`
	Share fault.Portion `json:"share"` // of the keys that From says have gone
	Left  time.Duration `json:"left_ns"`
}

// WipeStatus is a wipe of a store that is not done.
type WipeStatus struct {
	Store int       `json:"store"`
	At    time.Time `json:"at"`    // when it was ordered
	Begun bool      `json:"begun"` // the store has begun with an empty folder
	// Missing is how many regions have no replica on the store yet. With 0 that of the cluster map is missing.
	Missing int `json:"missing"`
}

// Status returns the state of the cluster. It asks no other store: a leader that has been cut off and does not know it
// yet still counts as one, unless another replica leads in a later term.
func (c *Cluster) Status() ClusterStatus {
	s := ClusterStatus{Faults: append([]fault.Fault{}, c.Faults()...)}
	table := c.in.Table()
	at := make(map[topology.StoreID]int) // in s.Stores
	for i, n := range c.in.Places() {
		state, reason := n.State()
		at[n.ID()] = i
		s.Stores = append(s.Stores, StoreStatus{Store: int(n.ID()), Addr: n.Addr(), ReplicaAddr: n.ReplicaAddr(),
			State: state, Reason: reason, Member: memberText(table, n.ID()), Rate: n.CommandRate()})
	}
	for _, r := range c.in.Regions() {
		region := RegionStatus{
			Region: int(r.ID), Slots: r.Slots.String(), Version: r.Version, Pinned: c.in.Pinned(r.ID),
			Replicas: []ReplicaStatus{},
		}
		applied := uint64(0)
		if leader := c.in.Places().LeaderOf(r.ID); leader != nil {
			if replica := c.in.Places().Replica(leader.ID(), r.ID); replica != nil {
				_, region.Term, _ = replica.Leading()
				desc, _ := replica.Region()
				region.Change = cmp.Or(changeText(replica.Bounds().Change), moveText(&desc))
				region.Leader, applied = int(leader.ID()), replica.Applied()
				if i, ok := at[leader.ID()]; ok {
					s.Stores[i].Leads++
				}
			}
		}
		for _, p := range r.Peers {
			if p.Role == topology.Leaving && hasJoiner(&r, p.Store) {
				continue // the store was wiped: the joiner stands for both
			}
			region.Replicas = append(region.Replicas, c.replicaStatus(p.Store, r.ID, applied))
			own := region.Replicas[len(region.Replicas)-1]
			if i, ok := at[p.Store]; ok {
				s.Stores[i].Replicas++
				s.Stores[i].Lag += own.Lag
			}
		}
		s.Regions = append(s.Regions, region)
	}
	s.Impaired, s.Backup, s.Migrations = c.in.Impaired(), c.in.BackupText(), c.shownMigrations()
	s.Wipes = c.openWipes()
	return s
}

// memberText is StoreStatus.Member by a slot table, which may be nil.
func memberText(t *route.Table, id topology.StoreID) string {
	if t == nil {
		return ""
	}
	switch st := t.Store(id); {
	case slices.Contains(t.Gone, id):
		return MemberGone
	case st == nil:
		return MemberJoining
	case st.Draining:
		return MemberDraining
	}
	return ""
}

// openWipes is ClusterStatus.Wipes.
func (c *Cluster) openWipes() (all []WipeStatus) {
	_, wipes, _ := c.in.UnderWay()
	for _, w := range wipes {
		if w.Done {
			continue
		}
		s := WipeStatus{Store: int(w.Store), At: time.UnixMilli(w.MS), Begun: w.Begun != 0}
		for _, r := range c.in.Regions() {
			if w.Lacks(&r) {
				s.Missing++
			}
		}
		all = append(all, s)
	}
	return all
}

// shownMigrations is ClusterStatus.Migrations.
func (c *Cluster) shownMigrations() (all []MigrationStatus) {
	now := time.Now()
	open, _, _ := c.in.UnderWay()
	for _, w := range open {
		left := w.Length()
		if w.BeginMS > 0 {
			left = max(0, w.End().Sub(now))
		}
		all = append(all, MigrationStatus{Slots: w.Slots.String(), From: int(w.From), To: int(w.To),
			Share: fault.Portion(w.Share(now)), Left: left})
	}
	return all
}

// WaitHealthy returns when every store runs, every region is served, and all replicas have applied what their leaders
// had then. The error of a ctx that ends first says what it has waited for. Faults that are in force do not count.
func (c *Cluster) WaitHealthy(ctx context.Context) error {
	if ctx == nil {
		return ErrNilContext
	}
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		ailing := c.ailing()
		if ailing == "" {
			if ailing = c.behind(ctx); ailing == "" {
				return nil
			}
		}
		select {
		case <-tick.C:
		case <-c.in.Closing():
			return ErrClosed
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", ailing, context.Cause(ctx))
		}
	}
}

// behind waits for a second at most until all replicas have applied what their leaders have. It names a store that
// leads replicas which have not, "" if there is none.
func (c *Cluster) behind(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	for _, n := range c.in.Places() {
		if s := n.Store(); s == nil || s.AwaitReplicas(ctx) != nil {
			return fmt.Sprintf("the replicas of what store %d leads", n.ID())
		}
	}
	return ""
}

// ailing names a store that does not run or a region that is not served, "" if there is none.
func (c *Cluster) ailing() string {
	status := c.Status()
	for _, s := range status.Stores {
		if s.State != StateOK {
			return fmt.Sprintf("store %d, which is %s", s.Store, s.State)
		}
	}
	for _, w := range status.Wipes {
		return fmt.Sprintf("store %d, which was wiped, to get its replicas anew", w.Store)
	}
	for _, r := range status.Regions {
		if r.Leader == 0 {
			return fmt.Sprintf("the leader of region %d", r.Region)
		}
	}
	return ""
}

// replicaStatus returns the state of a replica whose leader has applied so much.
func (c *Cluster) replicaStatus(on topology.StoreID, id topology.RegionID, leaderApplied uint64) ReplicaStatus {
	out := ReplicaStatus{Store: int(on)}
	if r := c.in.Places().Replica(on, id); r != nil && r.Running() {
		out.Running, out.Applied = true, r.Applied()
		if leaderApplied > out.Applied {
			out.Lag = leaderApplied - out.Applied
		}
	}
	return out
}

// hasJoiner reports whether a replica joins a region on a store.
func hasJoiner(r *topology.Region, on topology.StoreID) bool {
	return slices.ContainsFunc(r.Peers, func(p topology.Peer) bool {
		return p.Store == on && p.Role == topology.Joining
	})
}

// moveText says which replicas of a region come and go.
func moveText(r *topology.Region) string {
	var all []string
	for _, p := range r.Peers {
		switch p.Role {
		case topology.Joining:
			all = append(all, fmt.Sprintf("gets a replica on store %d", p.Store))
		case topology.Leaving:
			all = append(all, fmt.Sprintf("loses that on store %d", p.Store))
		}
	}
	return strings.Join(all, ", ")
}

// changeText says what part a region has in a change.
func changeText(x keys.RegionChange) string {
	switch x.Kind {
	case keys.Splitting:
		return "splits"
	case keys.HasSplit:
		return fmt.Sprintf("has split off region %d", x.Other)
	case keys.Merging:
		return fmt.Sprintf("takes region %d over", x.Other)
	case keys.Merged:
		return fmt.Sprintf("has taken region %d over", x.Other)
	case keys.Leaving:
		return fmt.Sprintf("goes to region %d", x.Other)
	}
	return ""
}
