package janitor

import (
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/redis"
)

// sweep is a walk over all records of a region that has held something else than short strings. If it finds that the
// region does not any more, SETs need not look at what they replace. A sweep ends at the first collection that it
// meets.
//
// A sweep can only miss a collection that was written after it began. Such a write has raised an index in the region
// state. The entry at the end of a sweep carries the apply index of the sweep's beginning, and apply compares the two.
// That index says nothing of collections that came with a merge, which were written at indices of another log. But a
// merge changes the version of the bounds: a sweep ends with its cleaning, and the region refuses an entry of the old
// version. The bounds are loaded before the index, so a sweep with the new version has begun after the merge.
type sweep struct {
	running bool
	place   []byte    // where it goes on, nil for the region's beginning
	began   time.Time // when it began
	index   uint64    // the apply index by then
	next    time.Time // when the next one may begin
}

// sweepRest is how long the next sweep waits, as a multiple of the time that the last one took. A sweep of a region
// that still has collections may go far before it meets the first.
const sweepRest = 10

// sweepStep takes the next step of a region's sweep, if one is due, and reports whether it was.
func (c *cleaner) sweepStep(s *cleaning, now time.Time) bool {
	r, w := s.replica, &s.sweep
	if !r.MayHold() || now.Before(w.next) {
		return false
	}
	if !w.running {
		w.running, w.place, w.began, w.index = true, nil, now, r.Applied()
	}
	x := &c.records
	x.Slots = s.bounds.Slots
	x.Limit, x.Most = cleanerLooks, cleanerLooks
	none := false
	ok := r.Inspect(func(view *engine.View) (err error) {
		none, err = x.Sweep(view, w.place, r.MayHoldLegacy())
		return err
	})
	switch {
	case !ok:
		return false
	case x.Collections == 0 && x.Next != nil:
		w.place = append(w.place[:0], x.Next...)
		return true
	}
	if none {
		c.propose(s, redis.Swept(w.index))
	}
	w.running = false
	w.next = time.Now().Add(max(c.o.Knobs.ExpireInterval, sweepRest*time.Since(w.began)))
	return true
}
