package store

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
)

// slots knows which slots belong to a replica of the store, and lets go of the others. A slot belongs to one replica of
// the store at most: to the one whose region state has it. A joining replica has the slots of its region from the
// beginning, so that nobody else takes them. What the store holds of slots that belong to none of its replicas was left
// behind: it can be deleted at any time.
//
// slots is the store as its replicas see it: see region.Beside. join, retireLeft, leave and reclaim are of the
// keeper's goroutine.
type slots struct {
	*core
	records  *records
	replicas *replicaSet
	space    *space
	cluster  *clusterMap

	// mu is held by whoever gives slots to a replica or takes them away: a merge, the installation of a snapshot that
	// brings more slots, a join, and the reclaiming of what was left behind. A split needs no lock, since its one batch
	// hands the slots over.
	mu   sync.Mutex
	left atomic.Bool // the store may hold data of slots that belong to none of its replicas
	// ending has the regions of which a replica has ended here, and the Raft library may not have let go of it yet.
	ending map[topology.RegionID]bool
}

// join makes records of replicas that the map gives to this store and that it does not have, where their slots belong
// to no other replica here.
func (x *slots) join() error {
	m := x.cluster.adopted()
	replicas := x.replicas.all()
	var missing []*topology.Region
	for i := range m.Regions {
		r := &m.Regions[i]
		if p, held := r.PeerOn(x.o.ID); held && p.Role == topology.Voter && replicas[r.ID] == nil {
			missing = append(missing, r)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.engine.NewBatch()
	if err := x.addMissing(b, m, missing); err != nil || b.Empty() {
		b.Close()
		return err
	}
	return b.Commit(true)
}

// addMissing adds to a batch the records of missing replicas that may join.
func (x *slots) addMissing(b *engine.Batch, m *meta.Map, missing []*topology.Region) error {
	all, err := x.records.owned()
	if err != nil {
		return err
	}
	ancestors := ancestorsOn(x.o.ID, m, all)
	for _, r := range missing {
		if slices.ContainsFunc(all, func(o ownedRegion) bool {
			return o.id == r.ID || o.state.Slots.Overlaps(r.Slots) && !x.o.Mistakes.AnyJoin
		}) || ancestors.of(r) {
			continue
		}
		if value, err := x.records.get(keys.AppendRegionState(nil, r.ID)); err != nil {
			return err
		} else if value != nil {
			continue // it was absorbed
		}
		peer, _ := r.PeerOn(x.o.ID)
		if x.before(peer.Replica) {
			continue
		}
		if ended, err := x.records.ended(r.ID); err != nil {
			return err
		} else if peer.Replica <= ended && !x.o.Mistakes.AnyReturn || x.ending[r.ID] {
			continue // the map is older than the removal of this replica
		}
		record := keys.ReplicaRecord{ID: peer.Replica, Begins: keys.JoinsVoting, Born: r.ConfVersion,
			PeerSet: keys.PeerSet{Conf: r.ConfVersion, Peers: r.Peers}}
		state := keys.RegionState{Slots: r.Slots, Version: r.Version}
		if err := errors.Join(b.DeleteSlots(r.Slots), setReplica(b, r.ID, &state, &record)); err != nil {
			return err
		}
		all = append(all, ownedRegion{r.ID, record, state})
	}
	return nil
}

// retireLeft ends frozen replicas that merges have left behind here, which keep their slots from regions that have them
// by now. A merge that ends as it should leaves none behind. A program that ended merges before all stores had synced
// them may have: a crash took the merge from this store, and the next split narrowed the left region elsewhere before
// the store had caught up.
func (x *slots) retireLeft() error {
	m := x.cluster.adopted()
	for id, r := range x.replicas.all() {
		b := r.Bounds()
		if b.Phase != keys.Frozen || !gone(m, id, b) {
			continue
		}
		past, err := x.past(b.Change)
		if err != nil {
			return err
		}
		if !past {
			continue
		}
		err = r.Absorbed(region.ByRepair, func() error {
			if r.Bounds().Phase != keys.Frozen {
				return errNotFrozen
			}
			x.mu.Lock()
			defer x.mu.Unlock()
			return region.Retire(x.engine, id)
		})
		if errors.Is(err, errNotFrozen) {
			continue
		}
		if err != nil {
			return err
		}
		x.tell("region %d: its replica on store %d, which a merge had left behind, is removed", id, x.o.ID)
		x.left.Store(true)
	}
	return nil
}

// reserveCall asks a store to begin a replica of a region, as a non-voter without data.
type reserveCall struct {
	Region topology.Region    `json:"region"` // as of the entry that made the replica a peer
	Since  uint64             `json:"since"`  // the index of that entry
	As     topology.ReplicaID `json:"as"`
}

// reserveAnswer says why the store does not begin the replica, yet; "" if it does, or has done so before.
type reserveAnswer struct {
	Refused string `json:"refused,omitempty"`
}

// reserve makes the records of a replica that is to join, and drops what the store has of its slots, in one synced
// batch. From then on no other region takes these slots here. The keeper starts the replica.
func (x *slots) reserve(c reserveCall) (a reserveAnswer, err error) {
	r := &c.Region
	switch {
	case x.cluster.Table() == nil:
		return a, errors.New("the store has not started yet")
	case x.space.full.Load():
		return reserveAnswer{"it has no space"}, nil
	}
	if st := x.cluster.adopted().Store(x.o.ID); st != nil && st.State != meta.Up {
		return reserveAnswer{"it drains"}, nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	all, err := x.records.owned()
	if err != nil {
		return a, err
	}
	for i := range all {
		switch o := &all[i]; {
		case o.id == r.ID && o.record.ID == c.As:
			return a, nil
		case o.id == r.ID:
			return reserveAnswer{fmt.Sprintf("it has replica %d of the region yet", o.record.ID)}, nil
		case o.state.Slots.Overlaps(r.Slots):
			return reserveAnswer{fmt.Sprintf("region %d has slots %v there", o.id, o.state.Slots)}, nil
		}
	}
	ended, err := x.records.ended(r.ID)
	switch {
	case err != nil:
		return a, err
	case c.As <= ended:
		return reserveAnswer{fmt.Sprintf("replica %d has ended there", c.As)}, nil
	case x.ending[r.ID]:
		return reserveAnswer{"its last replica of the region has not ended yet"}, nil
	}
	if x.before(c.As) {
		return reserveAnswer{fmt.Sprintf("replica %d has ended there, since the store was wiped", c.As)}, nil
	}
	record := keys.ReplicaRecord{ID: c.As, Begins: keys.JoinsNonVoting, Born: r.ConfVersion, After: c.Since,
		PeerSet: keys.PeerSet{Conf: r.ConfVersion, Since: c.Since, Peers: r.Peers}}
	state := keys.RegionState{Slots: r.Slots, Version: r.Version}
	b := x.engine.NewBatch()
	if err := errors.Join(b.DeleteSlots(r.Slots), setReplica(b, r.ID, &state, &record)); err != nil {
		b.Close()
		return a, err
	}
	if err := b.Commit(true); err != nil {
		return a, err
	}
	x.tending.ring()
	return a, nil
}

// before reports whether a replica id may be one that the store had before it was wiped. It may have voted then, and
// promised to have entries, of which the store knows nothing any more.
func (x *slots) before(id topology.ReplicaID) bool {
	return uint64(id) < x.o.Wiped.Floor
}

// leave ends the replicas that have left their regions, and destroys their data. A replica that was removed mostly
// never hears of it, so the map tells. Its data goes on one of two grounds alone, never on a message or on silence:
//
//   - The map has the region at a conf that is not older than the replica's reservation, and the replica is no peer. So
//     it was removed, for a move ends, and gets on the map, when the members of the group are its peers.
//   - The map lacks the region, others have its slots by later versions, and the replica is not frozen. A merge waits
//     until all peers are frozen, so the replica had been removed before.
func (x *slots) leave() error {
	m := x.cluster.adopted()
	onMap := m.ByID()
	for id, r := range x.replicas.all() {
		b, p := r.Bounds(), r.Peers()
		_, self := r.Region()
		if b.Phase == keys.Absorbed || !r.Opened() { // without its state, a log that was cut would not go with it
			continue
		}
		if known := onMap[id]; known != nil {
			peer := slices.ContainsFunc(known.Peers, func(p topology.Peer) bool { return p.Replica == self })
			if peer || known.ConfVersion < r.Born() && !x.o.Mistakes.StaleRemoval {
				continue
			}
		} else if !gone(m, id, b) || b.Phase == keys.Frozen {
			continue
		}
		err := r.Absorbed(region.ByRemoval, func() error {
			x.mu.Lock()
			defer x.mu.Unlock()
			if r.Bounds().Phase == keys.Absorbed || r.Bounds().Phase == keys.Frozen && onMap[id] == nil {
				return errNotFrozen
			}
			x.ending[id] = true
			return region.Remove(x.engine, id, self)
		})
		if errors.Is(err, errNotFrozen) {
			continue
		}
		if err != nil {
			return err
		}
		x.tell("region %d: its replica %d on store %d, which has left it (conf %d), is removed", id, self, x.o.ID, p.Conf)
	}
	return nil
}

// ended notes that the Raft library has let go of the store's last replica of a region.
func (x *slots) ended(id topology.RegionID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.ending, id)
}

// past reports whether the left region's replica here is past the change in which it takes over a region that leaves.
// If it is not, its log has the merge yet, which ends the replica of that one.
func (x *slots) past(leaving keys.RegionChange) (bool, error) {
	left := x.replicas.get(leaving.Other)
	if left == nil {
		was, err := region.PhaseOf(x.engine, leaving.Other)
		return was == keys.Absorbed, err
	}
	applied := left.Applied() // before the bounds, which are not older then
	c := left.Bounds().Change
	open := (c.Kind == keys.Merging || c.Kind == keys.Merged) && c.Begun == leaving.Begun
	return applied >= leaving.Begun && !open, nil
}

// reclaim deletes what the store holds of slots that belong to none of its replicas. It looks only when a region may
// have lost slots since it looked last.
func (x *slots) reclaim() error {
	if !x.left.Swap(false) {
		return nil
	}
	return x.reclaimAll()
}

// reclaimAll is reclaim that looks in any case.
func (x *slots) reclaimAll() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	all, err := x.records.owned()
	if err != nil {
		return err
	}
	held := make([]topology.SlotRange, len(all))
	for i := range all {
		held[i] = all[i].state.Slots
	}
	for _, r := range topology.Complement(held) {
		empty, err := x.records.empty(r)
		if err != nil {
			return err
		}
		if empty {
			continue
		}
		b := x.engine.NewBatch()
		if err := b.DeleteSlots(r); err != nil {
			b.Close()
			return err
		}
		if err := b.Commit(false); err != nil {
			return err
		}
	}
	return nil
}

// Child implements region.Beside.
func (x *slots) Child(b *engine.Batch, child topology.Region) error {
	peer, held := child.PeerOn(x.o.ID)
	if !held {
		x.left.Store(true)
		return nil
	}
	record := keys.ReplicaRecord{ID: peer.Replica, Born: 1, PeerSet: keys.FirstPeers(child.Peers)}
	if err := b.Set(keys.AppendReplica(nil, child.ID), record.Append(nil)); err != nil {
		return err
	}
	if err := x.raft.BeginAfter(b, child, peer.Replica, region.ChildIndex, region.ChildTerm); err != nil {
		return err
	}
	x.cluster.bear(child)
	return nil
}

// Absorb implements region.Beside.
func (x *slots) Absorb(right topology.RegionID, f func() error) error {
	// The right replica's lock comes first: it may be installing a snapshot, which takes the lock of the slots, too.
	locked := func() error {
		x.mu.Lock()
		defer x.mu.Unlock()
		return f()
	}
	if r := x.replicas.get(right); r != nil {
		return r.Absorbed(region.ByEntry, locked)
	}
	return locked()
}

// Cover implements region.Beside. The replicas that it ends are frozen, so nobody else changes what it finds.
func (x *slots) Cover(by topology.RegionID, slots topology.SlotRange, install func() error) error {
	all, err := x.records.owned()
	if err != nil {
		return err
	}
	var ended []topology.RegionID
	// The last step holds the lock until the region has the slots. In between they belong to nobody, and would be taken
	// for left behind. The locks of replicas come before it, as everywhere.
	end := func() error {
		x.mu.Lock()
		defer x.mu.Unlock()
		for _, id := range ended {
			if err := region.Retire(x.engine, id); err != nil {
				return err
			}
		}
		err := install()
		x.left.Store(true) // the region may have lost slots
		return err
	}
	for i := range all {
		o := &all[i]
		if o.id == by || !o.state.Slots.Overlaps(slots) {
			continue
		}
		ended = append(ended, o.id)
		if r := x.replicas.get(o.id); r != nil {
			inner := end
			end = func() error { return r.Absorbed(region.ByEntry, inner) }
		}
	}
	return end()
}

// errNotFrozen says that a merge has ended or frozen a replica meanwhile, after all, or that it has thawed.
var errNotFrozen = errors.New("the replica is in another phase")

// gone reports whether a map shows that a region with some bounds was absorbed: the map does not have it, and only
// regions of later versions have its slots. A region that has not got on the map yet has a later version than they.
func gone(m *meta.Map, id topology.RegionID, b *region.Bounds) bool {
	return m.Version > 0 && !slices.ContainsFunc(m.Regions, func(r topology.Region) bool {
		return r.ID == id || r.Slots.Overlaps(b.Slots) && r.Version <= b.Version
	})
}

// ancestors has for each slot the first of the regions that may be sent a state here in which they have the slot:
// regions that join and have no data yet, or that are to. It is settled where there is none, and 0 where the map does
// not tell.
//
// For what the map knows of a region may be newer than what a joining replica of it is sent, by a leader that has not
// applied the last split yet, or that has been replaced and does not know. That state has the slots of both halves, and
// its log has the split, which makes the replica of the right half here. A replica of that half that has joined
// meanwhile would be in the way of both.
//
// A region keeps its first slot for life, and a child has a larger id than its parent. So what stands between a region
// and the next slots to its left that are settled tells whether one of its ancestors may be sent such a state.
type ancestors []topology.RegionID

const settled topology.RegionID = math.MaxInt64

// ancestorsOn returns the ancestors as they are on a store with these replicas.
func ancestorsOn(store topology.StoreID, m *meta.Map, all []ownedRegion) ancestors {
	a := make(ancestors, topology.SlotCount)
	note := func(slots topology.SlotRange, id topology.RegionID) {
		for slot := int(slots.First); slot <= int(slots.Last); slot++ {
			if a[slot] == 0 || a[slot] > id {
				a[slot] = id
			}
		}
	}
	for i := range m.Regions {
		r := &m.Regions[i]
		if _, held := r.PeerOn(store); held {
			note(r.Slots, r.ID)
		} else {
			note(r.Slots, settled)
		}
	}
	for i := range all {
		o := &all[i]
		if o.record.Begins == keys.JoinsVoting && o.state.ApplyIndex == 0 {
			note(o.state.Slots, o.id)
			continue
		}
		for slot := int(o.state.Slots.First); slot <= int(o.state.Slots.Last); slot++ {
			a[slot] = settled
		}
	}
	return a
}

// of reports whether one of a region's ancestors may be sent a state in which it has slots of the region.
func (a ancestors) of(r *topology.Region) bool {
	for slot := int(r.Slots.First) - 1; slot >= 0 && a[slot] != settled; slot-- {
		if a[slot] < r.ID {
			return true
		}
	}
	return false
}
