package region

import (
	"math"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/topology"
)

// LeaderChanged takes the event of multiraft.Options. It does not block.
func (r *Replica) LeaderChanged(i multiraft.Leader) {
	r.told.Store(&i)
	select {
	case r.nudge <- struct{}{}:
	default:
	}
}

// Leading returns the leader that Raft knows, its term, and whether this replica is the leader and serves. leader is 0
// if Raft knows none, or if this replica leads but does not serve yet. It takes no lock.
func (r *Replica) Leading() (leader topology.ReplicaID, term uint64, serving bool) {
	id, term, ok, err := r.raft.Leader()
	if told := r.told.Load(); err == nil && told != nil && told.Term > term {
		return 0, told.Term, false // the event comes a little before Raft agrees with it
	}
	if err != nil || !ok {
		return 0, term, false
	}
	if id == r.o.Replica {
		if r.servingTerm.Load() != term {
			return 0, term, false
		}
		return r.o.Replica, term, true
	}
	return id, term, false
}

// lead watches who leads. A new leader applies a barrier before it serves: an empty entry of its own term.
func (r *Replica) lead() {
	for {
		select {
		case <-r.stop:
			return
		case entries := <-r.cut:
			r.cutLog(entries)
			continue
		case <-r.nudge:
		}
		for wait := 100 * time.Microsecond; !r.settleLeadership(); wait = min(2*wait, r.o.Knobs.RTT) {
			select {
			case <-r.stop:
				return
			case <-time.After(wait):
			}
		}
	}
}

// cutLog asks Raft to take a snapshot record and to cut the log so that this many entries before the record stay.
// Nobody waits for it. If Raft refuses, a later request does the work.
func (r *Replica) cutLog(entries uint64) {
	left := min(entries, uint64(r.o.Knobs.CompactionOverhead))
	// The index is settled here, not when the record is taken: an entry that holds the log may be applied in between.
	applied := r.applied.Load()
	cut := applied - min(applied, left)
	if !r.o.Mistakes.AnyCut {
		cut = min(cut, r.heldTo())
	}
	if !r.hosted.enter() {
		return
	}
	r.raft.Cut(cut)
	r.hosted.leave()
}

// Transfer asks Raft to hand the leadership to another replica. Raft may ignore the request.
func (r *Replica) Transfer(to topology.ReplicaID) error {
	if !r.hosted.enter() {
		return ErrStopped
	}
	defer r.hosted.leave()
	return r.raft.Transfer(to)
}

// held is the index up to which the log may be cut. While a region splits, its log is kept from the beginning of the
// change on: a store that has not applied the split yet must get there by the log. If it got a snapshot of the narrower
// region instead, it could not begin the child, and the child might never have a quorum.
func (b *Bounds) held() uint64 {
	if b.Change.Kind == keys.Splitting || b.Change.Kind == keys.HasSplit {
		return b.Change.Begun - 1
	}
	return math.MaxUint64
}

// CutLog asks Raft to cut the region's log so that about this many entries stay. It returns false while an earlier
// request waits. The caller does not learn when the log has been cut, and Raft may refuse.
func (c *core) CutLog(entries uint64) bool {
	select {
	case c.cut <- entries:
		return true
	default:
		return false
	}
}

// settleLeadership brings servingTerm in line with what Raft says. If it returns false the caller must try again: the
// event comes a little before Raft agrees with it.
func (r *Replica) settleLeadership() bool {
	id, term, ok, err := r.raft.Leader()
	if err == nil {
		if told := r.told.Load(); term < told.Term || term == told.Term && id != told.Leader {
			return false
		}
	}
	self := err == nil && ok && id == r.o.Replica
	serving := r.servingTerm.Load()
	switch {
	case self && serving == term:
		return true
	case self:
		r.stepDown()
		r.o.Changed() // from now on clients wait here for the barrier; the old leader would only send them back
		if !r.proposer.barrier(term) {
			return false
		}
		if !r.leads(term) {
			return false
		}
		r.counters.LeaderChanges.Add(1)
		if !r.o.Mistakes.KeptRows || r.counters.LeaderChanges.Load() == 1 {
			r.rows.Open()
		}
		if f := r.o.OnServe; f != nil {
			f(r.o.Region.ID, term)
		}
		r.lost(r.bounds.Load().Slots) // the leader before may not have told of its last entries
		r.servingTerm.Store(term)
		desc, _ := r.Region()
		if f := r.o.OnBounds; f != nil && (r.bounds.Load().Change.Kind != keys.NoChange || !desc.Settled()) {
			f(r.o.Region.ID) // the store finishes the change, or calls it off: clients may wait for that
		}
	case serving != 0:
		r.stepDown()
	}
	r.o.Changed()
	return true
}

// stepDown ends serving. It answers the runs that wait to be proposed; proposals in flight go on.
func (r *Replica) stepDown() {
	if !r.o.Mistakes.KeptRows {
		r.rows.Close()
	}
	if r.servingTerm.Swap(0) != 0 {
		if !r.o.Mistakes.KeptWatches {
			r.watches.drop()
		}
		r.lost(r.bounds.Load().Slots)
		r.proposer.rejectQueue(ErrNotLeader)
	}
}

// barrier proposes an empty entry in the term. It reports whether the entry was applied here, with no entry of a later
// term before it.
func (x *proposer) barrier(term uint64) bool {
	b := newProposal()
	x.mu.Lock()
	x.register(b)
	x.mu.Unlock()
	rs, err := x.send(b, term, time.Duration(x.o.Knobs.ElectionTicks)*x.o.Knobs.RTT)
	x.await(b, rs, err)
	return b.applied && b.err == nil
}

// leads reports whether Raft knows this replica as the leader of term. It takes no lock.
func (c *core) leads(term uint64) bool {
	id, t, ok, err := c.raft.Leader()
	return err == nil && ok && id == c.o.Replica && t == term
}
