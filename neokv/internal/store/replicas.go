package store

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
)

// The store's replicas. The store has a record of each (keys.ReplicaRecord), beside the replica's region state. It
// starts the replicas that have records, whatever the cluster map says. A record is made
//
//   - when the store is opened for the first time, for the regions of a new cluster;
//   - by the split of a region, for the child, in the batch that splits the parent;
//   - for a region that the map gives to this store, if no replica here has any of its slots: the store missed the
//     split, since it got the parent as a snapshot. Such a replica joins: it begins empty, and is sent everything. A
//     region joins after its ancestors: see ancestors.
//
// A record goes when another region has absorbed the region, and for no other reason. The region state stays, as
// Absorbed, so that a map that is older does not bring the region back.
//
// A slot belongs to one replica of the store at most: to the one whose region state has it. A joining
// replica has the slots of its region from the beginning, so that nobody else takes them. What the store holds of slots
// that belong to none of its replicas was left behind: it can be deleted at any time.
//
// ranges.mu is held by whoever gives slots to a replica or takes them away: a merge, the installation of a snapshot
// that brings more slots, a join, and the reclaiming of what was left behind. A split needs no lock, since its one
// batch hands the slots over.
type ranges struct{ mu sync.Mutex }

// newReplica makes the store's replica of a region; startReplica starts it.
func (s *Store) newReplica(o *ownedRegion) *region.Replica {
	return region.New(region.Options{
		Region: o.region(), Store: s.o.ID, Replica: o.record.ID, Engine: s.engine, Host: s.raft,
		Knobs: s.o.Settings.Raft, Incarnation: s.incarnation(), Failed: s.o.FS.Failed,
		Seed:  rand.NewPCG(s.o.Seed^uint64(s.o.ID)<<48, uint64(o.id)).Uint64(),
		Fence: s.o.FS.Fence, ClockAhead: s.o.ClockAhead, OldestRead: s.o.FS.OldestRead, Changed: s.leadingChanged,
		OnServe: s.o.OnServe, ScriptLog: s.o.OnScriptLog, OnBounds: s.boundsChanged, Listener: s.o.Listener, Beside: beside{s},
		Counters: s.counters.of(o.id), Sampler: s.loads.sampler, PopMemory: &s.popped, ScriptTurn: s.scriptTurn,
		Mistakes: s.o.Mistakes.Region, Hooks: s.o.Hooks,
	})
}

func (s *Store) incarnation() uint64 {
	s.randMu.Lock()
	defer s.randMu.Unlock()
	return s.o.Rand.Uint64() ^ uint64(time.Now().UnixNano())
}

// startParallel is how many replicas a store starts at once. the Raft library starts one after the other; the rest is
// reading.
const startParallel = 4

// checkLogs checks the logs of the replicas of a store that opens, meta's too.
func (s *Store) checkLogs(all []ownedRegion) error {
	errs := make([]error, startParallel)
	var wg sync.WaitGroup
	for w := range startParallel {
		wg.Go(func() {
			for i := w; i < len(all) && errs[w] == nil; i += startParallel {
				errs[w] = s.raft.Check(all[i].id, all[i].record.ID)
			}
		})
	}
	wg.Wait()
	if meta.IsMember(s.o.Settings.Cluster.Stores, s.o.ID) {
		errs = append(errs, s.raft.Check(topology.MetaRegion, topology.ReplicaID(s.o.ID)))
	}
	return errors.Join(errs...)
}

// startReplicas starts the replicas that have records and do not run. They are all known before the first one runs, so
// that no slot table lacks a child whose parent it has.
func (s *Store) startReplicas(all []ownedRegion) error {
	var fresh []int
	next := s.replicas.change(func(next Replicas) bool {
		for i := range all {
			if next[all[i].id] == nil {
				next[all[i].id] = s.newReplica(&all[i])
				fresh = append(fresh, i)
			}
		}
		return len(fresh) > 0
	})
	if len(fresh) == 0 {
		return nil
	}
	s.cluster.publish()
	errs := make([]error, len(fresh))
	var wg sync.WaitGroup
	for w := range min(startParallel, len(fresh)) {
		wg.Go(func() {
			for i := w; i < len(fresh) && s.failed() == nil; i += startParallel {
				errs[i] = s.startReplica(next[all[fresh[i]].id], &all[fresh[i]])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func (s *Store) startReplica(replica *region.Replica, o *ownedRegion) error {
	var members []topology.Peer
	joins := false
	switch {
	case s.raft.Ran(o.id, o.record.ID):
	case o.record.Joins: // the region may have been here before, so it is not Fresh: promises belong to the store
		joins = true
	default:
		s.endpoint.Fresh(o.id)
		members = o.record.Peers
	}
	born := s.cluster.runs(o.id)
	if born {
		s.endpoint.Fresh(o.id)
	}
	if err := replica.Start(members, joins); err != nil {
		return err
	}
	var voters []topology.StoreID
	for _, p := range o.record.Peers {
		voters = append(voters, p.Store)
	}
	if !born {
		voters = s.leadership.present(voters)
	}
	if voters[0] != s.o.ID || !s.o.Booting && !born {
		return nil
	}
	s.wg.Go(func() { s.leadership.campaign(o.id, voters, born) })
	return nil
}

// boundsChanged is called by a replica whose bounds have changed. It does not block.
func (s *Store) boundsChanged(topology.RegionID) {
	s.cluster.publish()
	s.tending.ring()
	s.reporting.ring()
}

// tend brings the replicas that run in line with the records, whenever bounds have changed and once per heartbeat.
func (s *Store) tend() {
	tick := time.NewTicker(Heartbeat)
	defer tick.Stop()
	for {
		if s.failed() == nil {
			if err := s.tendReplicas(); err != nil && s.failed() == nil && s.ctx.Err() == nil {
				s.o.FS.Fence(err)
			}
		}
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		case <-s.tending:
		}
	}
}

func (s *Store) tendReplicas() error {
	if err := s.join(); err != nil {
		return err
	}
	all, err := s.records.owned()
	if err != nil {
		return err
	}
	if err := s.startReplicas(all); err != nil {
		return err
	}
	if err := s.retireLeft(); err != nil {
		return err
	}
	for id, r := range s.replicas.all() {
		if r.Bounds().Phase == keys.Absorbed {
			s.remove(id, r)
		}
	}
	if err := s.reclaim(); err != nil {
		return err
	}
	s.changes.settleAll()
	return nil
}

// retireLeft ends frozen replicas that merges have left behind here, which keep their slots from regions that have them
// by now. A merge that ends as it should leaves none behind. A program that ended merges before all stores had synced
// them may have: a crash took the merge from this store, and the next split narrowed the left region elsewhere before
// the store had caught up.
func (s *Store) retireLeft() error {
	m := s.cluster.adopted()
	for id, r := range s.replicas.all() {
		b := r.Bounds()
		if b.Phase != keys.Frozen || !gone(m, id, b) {
			continue
		}
		past, err := s.past(b.Change)
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
			s.ranges.mu.Lock()
			defer s.ranges.mu.Unlock()
			return region.Retire(s.engine, id)
		})
		if errors.Is(err, errNotFrozen) {
			continue
		}
		if err != nil {
			return err
		}
		s.tell("region %d: its replica on store %d, which a merge had left behind, is removed", id, s.o.ID)
		s.left.Store(true)
	}
	return nil
}

// errNotFrozen says that the merge has ended a replica meanwhile, after all.
var errNotFrozen = errors.New("the replica is not frozen any more")

// gone reports whether a map shows that a region with some bounds was absorbed: the map does not have it, and only
// regions of later versions have its slots. A region that has not got on the map yet has a later version than they.
func gone(m *meta.Map, id topology.RegionID, b *region.Bounds) bool {
	return m.Version > 0 && !slices.ContainsFunc(m.Regions, func(r topology.Region) bool {
		return r.ID == id || r.Slots.Overlaps(b.Slots) && r.Version <= b.Version
	})
}

// past reports whether the left region's replica here is past the change in which it takes over a region that leaves.
// If it is not, its log has the merge yet, which ends the replica of that one.
func (s *Store) past(leaving keys.RegionChange) (bool, error) {
	left := s.replicas.get(leaving.Other)
	if left == nil {
		was, err := region.PhaseOf(s.engine, leaving.Other)
		return was == keys.Absorbed, err
	}
	applied := left.Applied() // before the bounds, which are not older then
	c := left.Bounds().Change
	open := (c.Kind == keys.Merging || c.Kind == keys.Merged) && c.Begun == leaving.Begun
	return applied >= leaving.Begun && !open, nil
}

// remove ends a replica whose region was absorbed. Its log goes in the background: Raft may take long to let go
// of a replica that sends a snapshot, and children of splits must not wait for that to start.
func (s *Store) remove(id topology.RegionID, r *region.Replica) {
	s.replicas.change(func(next Replicas) bool {
		delete(next, id)
		return true
	})
	s.cluster.publish()
	s.wg.Go(func() {
		if err := s.removeReplica(id, r); err != nil && s.failed() == nil {
			s.o.FS.Fence(fmt.Errorf("region %d: remove its replica: %w", id, err))
		}
	})
}

// removeReplica stops a replica and removes its log. If the store closes meanwhile, the next start removes the log.
func (s *Store) removeReplica(id topology.RegionID, r *region.Replica) error {
	r.Stop()
	_, replica := r.Region()
	if err := s.raft.Stop(id, replica); err != nil {
		return err
	}
	r.Join()
	r.Counters().Orphans.Set(0, 0) // the region that has its slots now counts them
	for {
		removed, err := s.raft.RemoveLog(id, replica)
		if err != nil {
			return err
		}
		if removed {
			break
		}
		if !pause(s.ctx, removePause) {
			return nil
		}
	}
	s.endpoint.Forget(id)
	s.counters.end(id)
	return nil
}

// removePause is how long removeReplica waits for Raft before it asks again.
const removePause = 5 * time.Millisecond

// removeLogs removes the logs of replicas that have no record, which a crash has left behind, and what received
// snapshots have left of them.
func (s *Store) removeLogs(all []ownedRegion) error {
	return s.raft.RemoveOthers(func(region topology.RegionID, replica topology.ReplicaID) bool {
		return region == topology.MetaRegion || slices.ContainsFunc(all, func(o ownedRegion) bool {
			return o.id == region && o.record.ID == replica
		})
	})
}

// join makes records of replicas that the map gives to this store and that it does not have, where their slots belong
// to no other replica here.
func (s *Store) join() error {
	m := s.cluster.adopted()
	replicas := s.replicas.all()
	var missing []*topology.Region
	for i := range m.Regions {
		r := &m.Regions[i]
		if _, held := r.PeerOn(s.o.ID); held && replicas[r.ID] == nil {
			missing = append(missing, r)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	s.ranges.mu.Lock()
	defer s.ranges.mu.Unlock()
	b := s.engine.NewBatch()
	if err := s.addMissing(b, m, missing); err != nil || b.Empty() {
		b.Close()
		return err
	}
	return b.Commit(true)
}

// addMissing adds to a batch the records of missing replicas that may join.
func (s *Store) addMissing(b *engine.Batch, m *meta.Map, missing []*topology.Region) error {
	all, err := s.records.owned()
	if err != nil {
		return err
	}
	ancestors := s.ancestors(m, all)
	for _, r := range missing {
		if slices.ContainsFunc(all, func(o ownedRegion) bool {
			return o.id == r.ID || o.state.Slots.Overlaps(r.Slots) && !s.o.Mistakes.AnyJoin
		}) || ancestors.of(r) {
			continue
		}
		if value, err := s.records.get(keys.AppendRegionState(nil, r.ID)); err != nil {
			return err
		} else if value != nil {
			continue // it was absorbed
		}
		peer, _ := r.PeerOn(s.o.ID)
		record := keys.ReplicaRecord{ID: peer.Replica, Joins: true, Peers: r.Peers}
		state := keys.RegionState{Slots: r.Slots, Version: r.Version}
		if err := errors.Join(b.DeleteSlots(r.Slots), setReplica(b, r.ID, &state, &record)); err != nil {
			return err
		}
		all = append(all, ownedRegion{r.ID, record, state})
	}
	return nil
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

func (s *Store) ancestors(m *meta.Map, all []ownedRegion) ancestors {
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
		if _, held := r.PeerOn(s.o.ID); held {
			note(r.Slots, r.ID)
		} else {
			note(r.Slots, settled)
		}
	}
	for i := range all {
		o := &all[i]
		if o.record.Joins && o.state.ApplyIndex == 0 {
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

// reclaim deletes what the store holds of slots that belong to none of its replicas. It looks only when a region may
// have lost slots since it looked last.
func (s *Store) reclaim() error {
	if !s.left.Swap(false) {
		return nil
	}
	return s.reclaimAll()
}

// reclaimAll is reclaim that looks in any case.
func (s *Store) reclaimAll() error {
	s.ranges.mu.Lock()
	defer s.ranges.mu.Unlock()
	all, err := s.records.owned()
	if err != nil {
		return err
	}
	held := make([]topology.SlotRange, len(all))
	for i := range all {
		held[i] = all[i].state.Slots
	}
	for _, r := range topology.Complement(held) {
		empty, err := s.records.empty(r)
		if err != nil {
			return err
		}
		if empty {
			continue
		}
		b := s.engine.NewBatch()
		if err := b.DeleteSlots(r); err != nil {
			b.Close()
			return err
		}
		if err := b.Commit(false); err != nil {
			return err
		}
		s.counters.reclaimed.Add(1)
	}
	return nil
}

// beside is the store as its replicas see it: see region.Beside.
type beside struct{ s *Store }

// Child implements region.Beside.
func (x beside) Child(b *engine.Batch, child topology.Region) error {
	peer, held := child.PeerOn(x.s.o.ID)
	if !held {
		x.s.left.Store(true)
		return nil
	}
	record := keys.ReplicaRecord{ID: peer.Replica, Peers: child.Peers}
	if err := b.Set(keys.AppendReplica(nil, child.ID), record.Append(nil)); err != nil {
		return err
	}
	if err := x.s.raft.BeginAfter(b, child, peer.Replica, region.ChildIndex, region.ChildTerm); err != nil {
		return err
	}
	x.s.cluster.bear(child)
	return nil
}

// Absorb implements region.Beside.
func (x beside) Absorb(right topology.RegionID, f func() error) error {
	// The right replica's lock comes first: it may be installing a snapshot, which takes the lock of the ranges, too.
	locked := func() error {
		x.s.ranges.mu.Lock()
		defer x.s.ranges.mu.Unlock()
		return f()
	}
	if r := x.s.replicas.get(right); r != nil {
		return r.Absorbed(region.ByEntry, locked)
	}
	return locked()
}

// Cover implements region.Beside. The replicas that it ends are frozen, so nobody else changes what it finds.
func (x beside) Cover(by topology.RegionID, slots topology.SlotRange, install func() error) error {
	s := x.s
	all, err := s.records.owned()
	if err != nil {
		return err
	}
	var ended []topology.RegionID
	// The last step holds the lock until the region has the slots. In between they belong to nobody, and would be taken
	// for left behind. The locks of replicas come before it, as everywhere.
	end := func() error {
		s.ranges.mu.Lock()
		defer s.ranges.mu.Unlock()
		for _, id := range ended {
			if err := region.Retire(s.engine, id); err != nil {
				return err
			}
		}
		err := install()
		s.left.Store(true) // the region may have lost slots
		return err
	}
	for i := range all {
		o := &all[i]
		if o.id == by || !o.state.Slots.Overlaps(slots) {
			continue
		}
		ended = append(ended, o.id)
		if r := s.replicas.get(o.id); r != nil {
			inner := end
			end = func() error { return r.Absorbed(region.ByEntry, inner) }
		}
	}
	return end()
}
