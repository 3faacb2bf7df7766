// Package janitor does the background work of a store over all of its replicas. The cleaner deletes expired records of
// the regions that the store leads, by entries of their logs. The reclaimer gives back the space of deleted collections
// on every replica, past the logs. No command waits for either, and no reply depends on them.
package janitor

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// Options are the options of a store's janitor.
type Options struct {
	Knobs  settings.RedisKnobs
	Engine *engine.Engine
	// Replicas returns the store's replicas. Nobody changes the map afterwards.
	Replicas func() map[topology.RegionID]*region.Replica
	Rand     *rand.Rand // for the janitor alone
	// Failed returns why the store has failed, nil while it has not; Fence makes it fail.
	Failed   func() error
	Fence    func(error)
	Mistakes Mistakes
}

// Mistakes are errors in the logic of a janitor that a test plants, to see that a checker finds them. None by default.
type Mistakes struct {
	AnyVersion bool // the reclaimer deletes elements of all versions of a key
	NoLimits   bool // iterators ignore the reclaimer's limits, which Pebble permits
}

// Janitor runs the cleaner and the reclaimer, each on a goroutine of its own.
type Janitor struct {
	cleaner   *cleaner
	reclaimer *reclaimer
	wg        sync.WaitGroup
}

// Start starts a janitor. It ends with ctx, though a proposal of the cleaner may hold it up until the replica stops.
func Start(ctx context.Context, o Options) *Janitor {
	j := &Janitor{cleaner: newCleaner(o), reclaimer: newReclaimer(o)}
	j.wg.Go(func() { j.cleaner.run(ctx) })
	j.wg.Go(func() { j.reclaimer.run(ctx) })
	return j
}

// Join returns when the janitor has ended. The engine must stay open until then.
func (j *Janitor) Join() { j.wg.Wait() }

// SetActiveExpire switches the cleaner on or off. It is on at first.
func (j *Janitor) SetActiveExpire(on bool) { j.cleaner.off.Store(!on) }

// rest pauses after a step that began at began, for times as long as the step took. It returns false when ctx has
// ended.
func rest(ctx context.Context, times int, began time.Time) bool {
	t := time.NewTimer(max(time.Millisecond, time.Duration(times)*time.Since(began)))
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
