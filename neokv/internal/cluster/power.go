package cluster

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
)

// This file stops, kills and starts stores while the cluster runs. One such change happens at a time.
//
// A kill takes the writes that a store has not synced, of its log and of its data at the same instant. A store that is
// killed alone leaves its part of the journal, which the other stores go on using. In memory a kill of all stores is
// one of the process: the journal, too, loses what it has not synced, and the next start of a store opens it again. On
// the machine's disk the journal stays open. Nothing depends on that, since the logs have all bytes that the journal
// has.

// power stops, kills and starts stores.
type power struct {
	*core
	journal *journal
	places  *placeSet

	changing chan struct{} // has one place: for the change that is under way
}

// change runs fn while no other change of this cluster runs.
func (p *power) change(ctx context.Context, fn func() error) error {
	select {
	case p.changing <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.closing:
		return ErrClosed
	}
	defer func() { <-p.changing }()
	select {
	case <-p.closing: // shutdown waits for the change that runs
		return ErrClosed
	default:
	}
	return fn()
}

// running reports whether a store runs here, and is not failing.
func (n *Place) running() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.down && n.failure == nil
}

// stopStores ends stores cleanly.
func (p *power) stopStores(_ context.Context, which Places, _ fault.Fault) error {
	if err := errors.Join(which.allRun(), which.noneHangs()); err != nil {
		return err
	}
	err := which.onAll((*Place).stop)
	for _, n := range which {
		n.ended(fault.Stop)
	}
	return err
}

// ended notes why no store runs here.
func (n *Place) ended(why fault.Verb) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.down, n.failure, n.faults.process = true, nil, why
}

// killStores cuts the power of stores, at once or as f.Kill.Sync says.
func (p *power) killStores(ctx context.Context, which Places, f fault.Fault) error {
	if len(which) < len(p.places.all()) {
		if err := which.allRun(); err != nil {
			return err
		}
	} else if !slices.ContainsFunc(which, (*Place).running) {
		return errors.New("no store runs")
	}
	if f.Kill.Sync == 0 {
		return p.bury(p.cutPower(which, f.Kill.Keep, p.newRand(), false))
	}
	return p.killAtSync(ctx, which, f.Kill, func() error { return nil })
}

// killSyncWait is how long a kill waits for the sync in whose middle it should happen.
const killSyncWait = 2 * time.Second

// killAtSync cuts the power of stores in the middle of a sync: the at.Sync-th of all that they make, and their journal
// if they are the whole process, since meanwhile began. If there are fewer within killSyncWait after meanwhile, it does
// so at the end of that. If meanwhile fails by itself, or the caller gives up, no store is killed.
func (p *power) killAtSync(ctx context.Context, which Places, at fault.Power, meanwhile func() error) error {
	random := p.newRand()
	var disks []*disk.FS
	for _, n := range which {
		disks = append(disks, n.FS())
	}
	if p.journal.fs != nil && len(which) == len(p.places.all()) {
		disks = append(disks, p.journal.fs)
	}
	left := make(chan wreckage, 1)
	var begun atomic.Int64
	var done atomic.Bool
	for _, fs := range disks {
		fs.Hook(disk.BeforeSync, func(int64) {
			if begun.Add(1) == int64(at.Sync) && done.CompareAndSwap(false, true) {
				left <- p.cutPower(which, at.Keep, random, true)
			}
		})
	}
	err := meanwhile()
	if err == nil {
		wait := time.NewTimer(killSyncWait)
		defer wait.Stop()
		select {
		case r := <-left:
			return p.bury(r)
		case <-wait.C:
		case <-ctx.Done():
			err = context.Cause(ctx)
		case <-p.closing:
			err = ErrClosed
		}
	}
	for _, fs := range disks {
		fs.Hook(disk.BeforeSync, nil)
	}
	switch {
	case !done.CompareAndSwap(false, true):
		return p.bury(<-left)
	case err != nil:
		return err
	}
	return p.bury(p.cutPower(which, at.Keep, random, false))
}

// wreckage is what a kill leaves.
type wreckage struct {
	places  Places
	disks   []*disk.FS // of the places, by their order
	journal *disk.FS   // nil unless the whole process was killed, and had a journal
}

// cutPower kills stores at this instant, which may be in the middle of a sync. It waits for nothing.
func (p *power) cutPower(which Places, keep fault.Portion, random *rand.Rand, inSync bool) wreckage {
	p.anyFailed.Store(true) // without wal_sync always, a kill tears data
	if f := p.hooks.Killed; f != nil {
		f(which.ids(), inSync)
	}
	left := wreckage{places: which}
	percent := int(keep*100 + 0.5)
	for _, n := range which {
		n.mu.Lock()
		n.turnAway()
		left.disks = append(left.disks, n.fs)
		n.mu.Unlock()
	}
	if len(which) == len(p.places.all()) && p.journal.fs != nil {
		left.journal, left.disks = disk.CrashTogether(percent, random, p.journal.fs, left.disks...)
		return left
	}
	for i, fs := range left.disks {
		left.disks[i] = fs.Crash(percent, random)
	}
	return left
}

// bury ends the goroutines of killed stores and gives their places the disks that they left.
func (p *power) bury(left wreckage) error {
	errs := []error{left.places.onAll((*Place).stop)}
	for i, n := range left.places {
		errs = append(errs, left.disks[i].Lose())
		n.Move(left.disks[i], n.dir)
		n.ended(fault.Kill)
	}
	if left.journal != nil {
		errs = append(errs, p.journal.die(left.journal))
	}
	return errors.Join(errs...)
}

// startStores starts stores again, side by side, since each waits for its disk: what a store that runs has begun ends
// first, cleanly. With f.Kill.Sync it kills them in the middle of a sync of the start, or of what follows.
func (p *power) startStores(ctx context.Context, which Places, f fault.Fault) error {
	if err := which.noneHangs(); err != nil {
		return err
	}
	stopped := which.onAll(func(n *Place) error {
		ran := n.running()
		err := n.stop()
		if !ran { // a store that has failed may still be closing
			err = nil
		}
		if fs := n.FS(); fs.Failed() != nil { // after a failed sync, only what was synced before is known to be there
			left := fs.Crash(0, p.newRand())
			err = errors.Join(err, left.Lose())
			n.Move(left, n.dir)
		}
		return err
	})
	start := func() error { return p.openStores(which) }
	if f.Kill.Sync == 0 {
		return errors.Join(stopped, start())
	}
	return errors.Join(stopped, p.killAtSync(ctx, which, f.Kill, start))
}

// openStores opens stores that do not run, and the journal first if the process was killed.
func (p *power) openStores(which Places) error {
	if err := p.journal.revive(p.places.all()); err != nil {
		return err
	}
	return which.open()
}

// open opens stores that do not run, side by side.
func (p Places) open() error {
	return p.onAll(func(n *Place) error {
		err := n.restart()
		if err != nil {
			n.mu.Lock()
			if n.failure == nil {
				n.failure = err
			}
			n.down = true
			n.mu.Unlock()
		}
		return err
	})
}

// pauseStores holds all that leaves stores or reaches them: messages, commands, replies, syncs. Their timers go on.
func (p *power) pauseStores(_ context.Context, which Places, _ fault.Fault) error {
	if err := which.allRun(); err != nil {
		return err
	}
	for _, n := range which {
		n.mu.Lock()
		if n.faults.process == "" && !n.leaving && n.server != nil { // a store that fails at this moment has none
			n.faults.process = fault.Pause
			p.network.Pause(n.id)
			n.server.Pause()
			n.driveChanged()
		}
		n.mu.Unlock()
	}
	return nil
}
