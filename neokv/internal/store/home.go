package store

import (
	"fmt"
	"time"

	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// The home of a region is the store of its first replica. At the boot of a cluster it leads the region, so leaders are
// spread evenly then. A fault makes leaders move, and Raft leaves them where they are. So a store that leads a region
// of another home hands it back, when
//
//   - it has led the region for raft.leader_return, and nobody has pinned the region to where it is;
//   - the home does not drain, and has been well for as long: it runs, meta's leader answers it, and no sync of its log has stalled;
//   - the home's replica has applied what the leader had applied catchUp ago.
//
// All this is to make sure that the hand-over succeeds, since a failed one costs clients an election time-out: from
// when Raft is asked for it, the leader takes no proposal until another one is elected, or raft.election_ticks have
// passed. The home gets the lead only when it has all entries, and it cannot even ask for votes on a disk that hangs.
// In a region without writes every replica has applied all, however bad its disk is. So the home itself says how it is.
//
// A store hands regions over one after the other, so that few hand-overs share the cores and the disks. Each takes
// milliseconds. If one fails, or if the home loses the region again soon, the leader waits twice as long before it
// tries this region again. All stores that have a replica of a region note how long the home has led it, since any of
// them may be the next leader.

// longestReturn bounds how long a leader waits before it tries a region's home again, unless raft.leader_return is
// longer. A home that leads the region for longer than longestReturn has not lost it soon.
const longestReturn = time.Minute

// awayRegion is what a store remembers of a region whose home is another store.
type awayRegion struct {
	id      topology.RegionID
	leader  topology.StoreID // the last one that was seen
	since   time.Time        // when it was seen first, or when this store, being the leader, has last tried to hand over
	wait    time.Duration    // how long the leader must have led, and the home have been well
	applied uint64           // by this store, when the region was last found to be due
}

// fitness is a store's answer about regions whose home it is.
type fitness struct {
	Well    time.Duration `json:"well"`    // for how long nothing has been wrong with the store
	Applied []uint64      `json:"applied"` // the apply index of the replica of each region that was asked for
}

// homes is the goroutine that hands regions back to their homes. It alone uses away. fitness may run concurrently.
type homes struct {
	*core
	space      *space
	replicas   *replicaSet
	cluster    *clusterMap
	leadership *leadership
	away       map[topology.RegionID]*awayRegion
}

// run hands regions back to their homes until the store closes. It looks once per heartbeat. It has a
// goroutine of its own, since heartbeats must not wait for a store that does not answer.
func (x *homes) run() {
	for pause(x.ctx, Heartbeat) {
		if t := x.cluster.Table(); t != nil && x.failed() == nil {
			x.look(t)
		}
	}
}

// look notes who leads the regions that have their homes elsewhere, and hands over those of this store that
// are due.
func (x *homes) look(t *route.Table) {
	due := make(map[topology.StoreID][]*awayRegion) // by home
	now := time.Now()
	for i := range t.Regions {
		r := &t.Regions[i]
		home, replica := r.Peers[0].Store, x.replicas.get(r.ID)
		if home == x.o.ID || replica == nil {
			continue
		}
		if x.pinned(r.ID) {
			delete(x.away, r.ID)
			continue
		}
		a := x.away[r.ID]
		if a == nil {
			a = &awayRegion{id: r.ID, wait: x.o.Settings.Raft.LeaderReturn}
			x.away[r.ID] = a
		}
		x.note(a, r.Leader, home, now)
		st := t.Store(home)
		if r.Leader == x.o.ID && now.Sub(a.since) >= a.wait && st != nil && st.Alive && !st.Draining {
			a.applied = replica.Applied()
			due[home] = append(due[home], a)
		}
	}
	if len(due) == 0 || !pause(x.ctx, x.catchUp()) {
		return
	}
	for _, home := range t.Stores { // in order, so that runs with one seed are alike
		if regions := due[home.ID]; regions != nil {
			x.handBack(home.ID, regions)
		}
	}
}

// note takes the leader of a region as of now, 0 if it has none.
func (x *homes) note(a *awayRegion, leader, home topology.StoreID, now time.Time) {
	if leader == 0 || leader == a.leader {
		return
	}
	switch {
	case a.leader == 0 && leader == home:
		now = time.Time{} // it may have led for long
	case a.leader == home && now.Sub(a.since) < longestReturn:
		x.waitLonger(a)
	case a.leader == home:
		a.wait = x.o.Settings.Raft.LeaderReturn
	}
	a.leader, a.since = leader, now
}

func (x *homes) waitLonger(a *awayRegion) {
	a.wait = max(min(2*a.wait, longestReturn), x.o.Settings.Raft.LeaderReturn)
}

// handBack hands over the regions for which their home is fit. It stops at the first that does not get there.
func (x *homes) handBack(home topology.StoreID, regions []*awayRegion) {
	asked := time.Now()
	f, err := x.askFitness(home, regions)
	if err != nil {
		return // the next look asks again
	}
	for i, a := range regions {
		if f.Well < a.wait || f.Applied[i] < a.applied || x.pinned(a.id) {
			continue
		}
		// Raft would pass the request on to another leader, which may have the region by a user's wish.
		r := x.replicas.get(a.id) // nil if another region has taken this one over
		if r == nil {
			continue
		}
		if _, _, serving := r.Leading(); !serving {
			continue
		}
		if time.Since(asked) > Heartbeat {
			return // the home may have changed since
		}
		if !x.leadership.handOver(a.id, home) {
			a.since = time.Now()
			x.waitLonger(a)
			return
		}
	}
}

// askFitness asks a store how it is, and how far its replicas of some regions are.
func (x *homes) askFitness(of topology.StoreID, regions []*awayRegion) (f fitness, err error) {
	var m message
	for _, a := range regions {
		m.Fit = append(m.Fit, a.id)
	}
	err = x.ask(x.ctx, of, m, &f)
	if err == nil && len(f.Applied) != len(regions) {
		err = fmt.Errorf("store %d: %d apply indexes of %d regions", of, len(f.Applied), len(regions))
	}
	return f, err
}

// fitness answers another store's askFitness.
func (x *homes) fitness(regions []topology.RegionID) fitness {
	f := fitness{Applied: make([]uint64, len(regions))}
	heard, ok := x.cluster.well()
	if ok && x.failed() == nil && !x.space.full.Load() {
		f.Well = min(time.Since(heard), time.Since(x.raft.StallOver()))
	}
	for i, id := range regions {
		if r := x.replicas.get(id); r != nil && r.Running() {
			f.Applied[i] = r.Applied()
		}
	}
	return f
}

// catchUp is by how much the replica of a home may be behind the leader's. A follower learns what is committed by a
// heartbeat at the latest. With a third of an election time-out more than half of it is left for the hand-over.
func (x *homes) catchUp() time.Duration {
	return x.o.Settings.Raft.RTT * time.Duration(x.o.Settings.Raft.ElectionTicks) / 3
}

// pinned reports whether a region stays with the leader that it has.
func (x *homes) pinned(id topology.RegionID) bool {
	return x.o.Pinned != nil && x.o.Pinned(id) || x.cluster.migrates(id)
}
