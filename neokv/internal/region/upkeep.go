package region

import (
	"fmt"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/multiraft"
)

// This file has the methods of Replica that the store's background work uses. None of them is on the path of a command.

// StateMachine returns the state machine that Start hands to Raft. A test may drive it without Raft, from one
// goroutine.
func (r *Replica) StateMachine() multiraft.Machine { return r.machine }

// Inspect calls f with a view of the store's engine and reports whether f succeeded. It does not call f if the replica
// is stopped or the store has failed. Stop waits until f has returned. An error of f makes the store fail.
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

// Epoch returns a number that changes whenever something other than an entry has replaced the region's data. A caller
// loads it before it opens a view. As long as the number stays the same, only entries have changed what the caller
// found in that view.
func (r *Replica) Epoch() uint64 { return r.epoch.Load() }

// MayHold reports whether the region may hold something else than short strings in redis_metadata.
func (r *Replica) MayHold() bool { return r.unblind.Load() != 0 }

// MayHoldLegacy reports whether the region may hold legacy strings.
func (r *Replica) MayHoldLegacy() bool { return r.legacy.Load() }

// Expiry returns the replica's ExpiryBound.
func (r *Replica) Expiry() *ExpiryBound { return &r.expiry }

// OrphanWrites returns how many committed batches have written orphan records, or removed all of them. A caller loads
// it before it opens a view. As long as the number stays the same, the view has shown every orphan record.
func (r *Replica) OrphanWrites() uint64 { return r.orphanWrites.Load() }
