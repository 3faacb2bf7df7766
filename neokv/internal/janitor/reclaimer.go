package janitor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
)

// reclaimer gives the space of deleted collections back, on every replica of a store. Its work list are the orphan
// records, which apply writes and no reader reads. Its deletions are in no log: replicas reclaim at their own pace.
//
// A step takes some orphan records of a region and deletes them with all their elements in one batch, without sync: a
// few elements one by one, many by one range deletion in each keyspace. Nothing that happens to the region after the
// reclaimer has looked can make a step harmful, for these reasons:
//
//   - An orphan goes as a whole, so no element is left without its record. That holds even if a snapshot has brought
//     the same orphan back meanwhile.
//   - The version of an orphan is never used again for its key.
//   - What a step deletes belongs to single keys, each within one slot: a range deletion covers one version of one key.
//     If the bounds of the region change while the step is under way, some of these slots are another region's by the
//     time of the commit. In these, too, the orphan is what it was, whichever region has the slot: only the key's own
//     slot and version say that nobody reads the elements. The other region's reclaimer may delete the same once more,
//     which does nothing.
//   - A crash takes a suffix of the store's one WAL, so no deletion outlives the orphan record that it is due to.
//
// The reclaimer also has the logs of regions at rest cut, and the write-ahead log of a store at rest flushed. Otherwise
// what was deleted last would stay in these logs until more is written.
//
// Like the cleaner, it rests after each step for a multiple of the time that the step took. The engine compacts by
// itself what range deletions cover. For single deletions the cleaner makes it flush.
type reclaimer struct {
	o       Options
	regions map[topology.RegionID]*reclaiming
	trim    time.Time // when the logs are looked at next
	upkeep  time.Time // when IdleUpkeep is called next

	lower, upper []byte // scratch
}

// reclaiming is how far the reclaimer has come in a region.
type reclaiming struct {
	replica *region.Replica
	epoch   uint64         // of the replica when counted was set
	bounds  *region.Bounds // likewise; a step stays within their slots
	counted bool           // the orphan records that the replica began with are counted
	place   []byte         // the pass goes on after this orphan record; nil: between two passes
	begun   uint64         // Replica.OrphanWrites when the pass began
	done    uint64         // Replica.OrphanWrites when the last complete pass began
	next    time.Time      // the next pass begins no earlier, so that it finds more than one orphan to delete

	applied uint64 // the apply index when the logs were looked at last
	trimmed bool   // the log has been cut since then
}

const (
	// reclaimTick is how often a reclaimer without work looks whether there is any.
	reclaimTick = 100 * time.Millisecond
	// reclaimLooks is how many orphan records a step looks at, at most.
	reclaimLooks = 1024
	// reclaimBytes bounds the keys and values of elements that a step passes over, but for a single larger one.
	reclaimBytes = 1 << 20
	// rangeCost is how many keys of ReclaimKeys a range deletion counts for.
	rangeCost = 64
	// never is a number that Replica.OrphanWrites does not reach.
	never = ^uint64(0)
)

func newReclaimer(o Options) *reclaimer {
	return &reclaimer{o: o, regions: make(map[topology.RegionID]*reclaiming)}
}

func (x *reclaimer) run(ctx context.Context) {
	tick := time.NewTicker(reclaimTick)
	defer tick.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		if !now.Before(x.trim) {
			x.trim = now.Add(trimPause)
			x.trimLogs()
		}
		if !now.Before(x.upkeep) {
			x.upkeep = now.Add(engine.UpkeepPause)
			x.o.Engine.IdleUpkeep()
		}
		if !x.pass(ctx) {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}
}

// pass takes one step in every region that has work, and reports whether any had.
func (x *reclaimer) pass(ctx context.Context) (busy bool) {
	replicas := x.o.Replicas()
	maps.DeleteFunc(x.regions, func(id topology.RegionID, s *reclaiming) bool { return replicas[id] != s.replica })
	for id, r := range replicas {
		if !r.Running() {
			continue
		}
		begin := time.Now()
		s := x.progress(id, r)
		if s.place == nil && begin.Before(s.next) || !x.step(s) {
			continue
		}
		busy = true
		if s.place == nil {
			s.next = begin.Add(reclaimTick)
		}
		if !rest(ctx, x.o.Knobs.ReclaimRest, begin) {
			return busy
		}
	}
	return busy
}

// progress returns how far the reclaimer has come in a replica.
func (x *reclaimer) progress(id topology.RegionID, r *region.Replica) *reclaiming {
	s := x.regions[id]
	if s == nil || s.replica != r {
		s = &reclaiming{replica: r}
		x.regions[id] = s
	}
	return s
}

// step takes the next step in a region, and reports whether there was one to take.
func (x *reclaimer) step(s *reclaiming) bool {
	r := s.replica
	epoch, bounds := r.Epoch(), r.Bounds() // before the view is opened
	if bounds.Phase == keys.Absorbed {
		return false // the region that has its slots now sees to them
	}
	if epoch != s.epoch || s.bounds == nil || bounds.Version != s.bounds.Version {
		s.epoch, s.bounds, s.counted, s.place = epoch, bounds, false, nil
	}
	if s.place == nil {
		writes := r.OrphanWrites() // before the view is opened
		if s.counted && s.done == writes {
			return false
		}
		s.begun = writes
	}
	work := x.reclaim
	if !s.counted {
		work = x.count
	}
	return r.Inspect(func(view *engine.View) error {
		if err := work(s, view); err != nil {
			return fmt.Errorf("reclaim: %w", err)
		}
		return nil
	})
}

// each calls f with the next orphan records of the pass, until f returns false, and moves the pass on. At the region's
// end the pass is over.
func (s *reclaiming) each(view *engine.View, f func(o *keys.Orphan, key []byte) (bool, error)) (err error) {
	lower, upper := keys.OrphanBounds(s.bounds.Slots)
	if s.place != nil {
		lower = append(s.place, 0) // the next key there can be
	}
	it, err := view.Iter(lower, upper)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	for ok := it.First(); ok; ok = it.Next() {
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		o, err := keys.ParseOrphan(it.Key(), value)
		if err != nil {
			return err
		}
		more, err := f(&o, it.Key())
		if err != nil {
			return err
		}
		s.place = append(s.place[:0], it.Key()...)
		if !more {
			return nil
		}
	}
	if it.Error() == nil {
		s.place = nil
	}
	return nil
}

// count is a step of the pass that counts the orphans with which a replica begins.
func (x *reclaimer) count(s *reclaiming, view *engine.View) error {
	c := &s.replica.Counters().Orphans
	if s.place == nil {
		c.Set(0, 0)
	}
	n := 0
	err := s.each(view, func(o *keys.Orphan, _ []byte) (bool, error) {
		c.Add(1, int64(o.Size))
		n++
		return n < reclaimLooks, nil
	})
	if s.place == nil && err == nil {
		s.counted, s.done = true, never
	}
	return err
}

// reclaim is a step of a pass that deletes orphans.
func (x *reclaimer) reclaim(s *reclaiming, view *engine.View) (err error) {
	r := s.replica
	b := x.o.Engine.NewBatch()
	d := deletion{x: x, view: view, batch: b, slots: s.bounds.Slots, left: x.o.Knobs.ReclaimKeys}
	defer func() { err = errors.Join(err, d.close()) }()
	n, collections, elements := 0, int64(0), int64(0)
	err = s.each(view, func(o *keys.Orphan, key []byte) (bool, error) {
		if err := d.orphan(o); err != nil {
			return false, err
		}
		collections, elements = collections+1, elements+int64(o.Size)
		n++
		return n < reclaimLooks && d.left > 0 && d.bytes < reclaimBytes, b.Delete(key)
	})
	if err != nil || x.o.Failed() != nil {
		b.Close()
		return err
	}
	if err := b.Commit(false); err != nil {
		return err
	}
	c := &r.Counters().Orphans
	c.Add(-collections, -elements)
	r.Counters().ReclaimedElements.Add(uint64(elements))
	if s.place == nil {
		s.done = s.begun
		if r.OrphanWrites() == s.done { // no orphan was added meanwhile
			c.Set(0, 0)
		}
	}
	return nil
}
