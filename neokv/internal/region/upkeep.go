package region

import (
	"fmt"
	"time"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis"
)

// This file is what the background work of a store needs of a replica. None of it is on the path of a command.

// Space says where the region's keys stand in the engine.
func (r *Replica) Space() keys.Space { return r.space }

// StateMachine is what Start hands to Raft. A test may drive it without Raft, from one goroutine.
func (r *Replica) StateMachine() sm.IOnDiskStateMachine { return r.machine }

// Inspect runs f over a view of the store's engine and reports whether f succeeded. It does not run f on a replica that
// is stopped or a store that has failed. Stop waits until f has returned. An error of f makes the store fail.
func (r *Replica) Inspect(f func(view *engine.View) error) bool {
	if r.o.Failed() != nil || !r.gate.enter() {
		return false
	}
	defer r.gate.leave()
	view := r.o.Engine.NewView()
	err := f(view)
	view.Close()
	if r.o.Failed() != nil {
		return false
	}
	if err != nil {
		r.o.Fence(fmt.Errorf("region %d: %w", r.o.Region.ID, err))
	}
	return err == nil
}

// Epoch changes whenever something other than an entry has replaced the region's data. A caller loads it before it
// opens a view: while the epoch stays the same, what the caller has found there is changed by entries alone.
func (r *Replica) Epoch() uint64 { return r.epoch.Load() }

// MayHold names the kinds of records of which the region may hold some. It names too many rather than too few.
func (r *Replica) MayHold() redis.Unblinding {
	return redis.Unblinding{Collections: r.collectedAt.Load() != 0, Legacy: r.legacyAt.Load() != 0}
}

// LeaderTimeMS is the instant by which a leader judges expiry at now, in ms: the larger of its clock and the region
// time, carried on by the monotonic clock. It never goes back.
func (r *Replica) LeaderTimeMS(now time.Time) uint64 { return r.leaderTime(now) }

// CutLog asks for the region's log to be cut, so that about so many entries stay. It reports false while an earlier
// request waits. Nobody is told when the log has been cut; Raft may refuse to.
func (r *Replica) CutLog(entries uint64) bool { return r.askCut(entries) }

// Expiry returns the replica's bound.
func (r *Replica) Expiry() *ExpiryBound { return &r.expiry }

// OrphanWrites counts the batches that have written orphan records or removed all of them, each after its commit. A
// caller loads it before it opens a view: while the count stays the same, the view has shown every orphan record.
func (r *Replica) OrphanWrites() uint64 { return r.orphanWrites.Load() }
