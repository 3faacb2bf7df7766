// Package region is one replica of one region: proposal batching, apply, linearizable reads by lease or read index.
package region

import (
	"errors"
	"time"

	"neokv.dev/neokv/internal/redis"
)

// Why a run was not served. Both leave the region's data untouched by the run, provably.
var (
	ErrNotLeader = errors.New("not leader")    // this replica does not lead, or stopped leading: look at the slot table again
	ErrStopped   = errors.New("store stopped") // the store is closing or has failed
	ErrDeadline  = errors.New("no leader in time")
	ErrTooLarge  = errors.New("command too large for a raft entry")
)

// UnknownOutcome is the error of a write that may or may not be applied, now or later.
type UnknownOutcome struct{ Reason string }

func (e *UnknownOutcome) Error() string { return "write outcome unknown: " + e.Reason }

// Pending is a run of writes on its way through Raft. The caller fills Run and Deadline, calls Propose, then Wait; until Wait
// returns the run belongs to the region. A Pending may be reused afterwards.
type Pending struct {
	Run      *redis.Run
	Deadline time.Time
	// Err is valid after Wait: nil when all calls are applied, their replies in Run.Out; an *UnknownOutcome; or one of the
	// errors above, and then nothing is applied.
	Err error

	done chan struct{}
}

// Replica is a region's replica on this store.
type Replica struct{}

// Propose hands a run of writes to the region. It does not wait. The run travels in one Raft entry, or, when it is larger than
// raft.batch_max_ops or raft.batch_max_bytes allow, in several in order.
func (r *Replica) Propose(p *Pending) { panic("skeleton") }

// Wait returns when the outcome is known, soon after Deadline at the latest.
func (p *Pending) Wait() { panic("skeleton") }

// Read runs a run of reads on the local replica, linearizably, and returns nil; or an error above, with run.Out as it was.
func (r *Replica) Read(run *redis.Run, deadline time.Time) error { panic("skeleton") }
