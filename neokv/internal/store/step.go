package store

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
)

// A step is one step of a change of a region. The store that leads the region takes it.
type step int

const (
	stepBegin       step = iota // the entry that opens the change
	stepSplit                   // the entry that splits the region
	stepChildBegins             // wait until a quorum has the child's log
	stepFreeze                  // the right region's leader opens its part in a merge, and freezes the region
	stepAllFrozen               // wait until every store has applied the freeze, and synced it
	stepMerge                   // the entry that takes the right region over
	stepAllMerged               // wait until every store has applied the merge, and synced it
	stepEnd                     // the entry that closes a change which has happened
	stepAbort                   // the entry that closes a split which has not happened, so that it never will
	stepCallOff                 // likewise of a merge
	stepThaw                    // the right region's leader closes its part in a merge that never will be
	stepAsk                     // ask the left region's leader, which calls a merge off that nobody drives
	stepLeave                   // the entry with which a region closes its part in a merge that never will be
	stepNone                    // there is nothing left to do
)

var stepNames = [...]string{"begin", "split", "child begins", "freeze", "all frozen", "merge", "all merged", "end",
	"abort", "call off", "thaw", "ask", "leave", "none"}

func (x step) String() string { return stepNames[x] }

// changeView is what a driver knows of a change beside what the region's log says. A driver that finds the change open
// knows nothing: the zero view.
type changeView struct {
	wants  keys.ChangeKind // Splitting or Merging from when the driver has begun it until it has happened or is called off
	gaveUp bool            // the merge that the driver wants takes too long, or was refused
	last   step            // the last one that the driver has taken
}

// nextStep returns the step that a change needs next. Open is its kind in the region's log, NoChange once it is closed.
// A change that nobody wants any more is undone if it has not happened, and finished otherwise.
func nextStep(open keys.ChangeKind, v changeView) step {
	switch {
	case v.wants == keys.Splitting: // the log refuses a split or a merge if the change is not open any more
		return stepSplit
	case v.wants == keys.Merging && v.gaveUp:
		return stepCallOff
	case v.wants == keys.Merging && v.last == stepBegin:
		return stepFreeze
	case v.wants == keys.Merging && v.last == stepFreeze:
		return stepAllFrozen
	case v.wants == keys.Merging:
		return stepMerge
	}
	switch open {
	case keys.Splitting:
		return stepAbort
	case keys.Merging:
		return stepCallOff
	case keys.HasSplit:
		if v.last == stepChildBegins {
			return stepEnd
		}
		return stepChildBegins
	case keys.Merged:
		if v.last == stepAllMerged {
			return stepEnd
		}
		return stepAllMerged
	case keys.Leaving:
		if v.last == stepAsk {
			return stepLeave
		}
		return stepAsk
	}
	if v.last == stepCallOff {
		return stepThaw
	}
	return stepNone
}

// after returns the view of a driver that has taken a step.
func (v changeView) after(x step) changeView {
	if v.last = x; x == stepSplit || x == stepMerge || x == stepCallOff {
		v.wants = keys.NoChange
	}
	return v
}

// steps takes the steps of changes. It has no state of its own; what a change has got to is in the driven and in the
// regions' logs. proceed may run concurrently for different changes.
type steps struct {
	*core
	replicas  *replicaSet
	progress  *progress
	drivers   *drivers
	stepCalls *stepCalls
}

// driven is a change of a region that this store drives.
type driven struct {
	*region.Replica
	begun uint64
	other topology.Region // the child, or the other one of a merge; its id alone if this store has not begun the change
	changeView
	until    time.Time // when the driver gives up a merge that it wants
	failed   error     // why it has
	happened func()    // called when what the driver wants has happened
}

// open returns what the change is in the region's log.
func (d *driven) open() keys.ChangeKind {
	if c := d.Bounds().Change; c.Begun == d.begun {
		return c.Kind
	}
	return keys.NoChange
}

// proceed takes the steps of a change until there is nothing left to do, or until one of them cannot be taken. It
// returns that one.
func (s *steps) proceed(ctx context.Context, d *driven) (step, error) {
	for {
		if f := s.drivers.onStep; f != nil {
			f(d.ID(), d.last)
		}
		x, wanted := nextStep(d.open(), d.changeView), d.wants
		if x == stepNone {
			return x, nil
		}
		err := s.take(ctx, d, x)
		switch {
		case err == nil:
			d.changeView = d.after(x)
		case wanted == keys.Merging && !d.gaveUp:
			d.gaveUp, d.failed = true, err
		default:
			return x, err
		}
		// A merge may have been applied although its driver waited for it no longer.
		if d.wants != wanted && (x != stepCallOff || d.open() == keys.Merged) {
			d.happened()
		}
	}
}

// errWait is the error of a step that a driver waits for no longer.
var errWait = errors.New("not yet")

// take takes a step of a change.
func (s *steps) take(caller context.Context, d *driven, x step) error {
	deadline := time.Now().Add(stepTime)
	parent, until := caller, deadline
	switch x {
	case stepFreeze, stepAllFrozen, stepMerge:
		until = d.until
	case stepCallOff, stepThaw: // also when the caller has left
		parent = s.ctx
	}
	ctx, cancel := context.WithDeadline(parent, until)
	defer cancel()
	call := changeCall{Region: d.other.ID, Left: d.ID(), Begun: d.begun}
	switch x {
	case stepSplit:
		return d.Split(caller, deadline, d.begun, d.other.Slots.First, d.other.ID, d.other.Peers)
	case stepChildBegins:
		if !retry(caller, changePause, func() bool { return s.hasBegun(d.other.ID) }) {
			return errWait
		}
		return nil
	case stepFreeze:
		call.Do = doFreeze
		return s.stepCalls.want(ctx, call)
	case stepAllFrozen:
		return s.allFrozen(ctx, d)
	case stepMerge:
		mine := s.replicas.get(d.other.ID)
		if mine == nil {
			return fmt.Errorf("region %d: no replica on store %d", d.other.ID, s.o.ID)
		}
		state, err := mine.State()
		if err != nil {
			return err
		}
		return d.Merge(ctx, deadline, d.begun, d.Bounds().Version, state)
	case stepAllMerged:
		// A store that is down leaves the merge open: while it has not retired the right region for good, the left one
		// must not be split there again.
		desc, _ := d.Region()
		return s.progress.everyStore(ctx, &desc, !s.o.Mistakes.EarlyEnd, func(b boundsAnswer) bool {
			return b.Version >= desc.Version
		})
	case stepEnd:
		return d.End(ctx, deadline, d.begun)
	case stepAbort, stepCallOff:
		return d.Abort(ctx, deadline, d.begun)
	case stepThaw:
		call.Do = doThaw
		return s.stepCalls.want(ctx, call)
	case stepAsk:
		never, err := s.stepCalls.call(ctx, changeCall{Region: d.other.ID, Do: doAsk, Begun: d.begun})
		if err != nil {
			desc, _ := d.Region()
			never = s.absorbed(ctx, d.other.ID, desc.Peers)
		}
		if !never {
			return errWait
		}
		return nil
	default: // stepLeave
		return d.Thaw(ctx, deadline, d.other.ID, d.begun)
	}
}

// allFrozen waits until every store has applied and synced that the right region is frozen.
func (s *steps) allFrozen(ctx context.Context, d *driven) error {
	if mine := s.replicas.get(d.other.ID); s.o.Mistakes.EarlyMerge && mine != nil {
		if !retry(ctx, changePause, func() bool { return mine.Bounds().Phase == keys.Frozen }) {
			return ctx.Err()
		}
		return nil
	}
	desc, _ := d.Region()
	if err := s.progress.endedAlike(&desc, &d.other); err != nil {
		return err
	}
	leaving := keys.RegionChange{Kind: keys.Leaving, Other: d.ID(), Begun: d.begun}
	return s.progress.everyStore(ctx, &d.other, !s.o.Mistakes.UnsyncedFreeze, func(b boundsAnswer) bool {
		return b.Phase == keys.Frozen && b.Change == leaving
	})
}

// absorbed reports whether one of the stores knows that a region has been absorbed, which is never undone. Then the
// changes of its own were over before. Had it absorbed its right neighbour in one of them, no replica of that would be
// left, since a merge ends when all stores have it for good.
//
// That a store has no replica of the region proves nothing. A power cut may have taken the replica together with the
// split that made it, which the log of the parent brings back, or the store may have missed the split and not have
// joined yet. The merge may be on its way all the same.
func (s *steps) absorbed(ctx context.Context, id topology.RegionID, peers []topology.Peer) bool {
	return slices.ContainsFunc(peers, func(p topology.Peer) bool {
		b, err := s.progress.on(ctx, p.Store, boundsCall{Region: id})
		return err == nil && b.Phase == keys.Absorbed
	})
}

// hasBegun reports whether a child has applied an entry of its own here, so that a quorum of it has its log.
func (s *steps) hasBegun(child topology.RegionID) bool {
	r := s.replicas.get(child)
	return r != nil && r.Applied() > region.ChildIndex
}
