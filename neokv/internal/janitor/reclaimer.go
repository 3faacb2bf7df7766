package janitor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// Reclaimer gives the space of deleted collections back, on every replica of a store, on one goroutine. Its work list are the orphan
// records, which apply writes and which no reader looks at. What it does is in no log: replicas reclaim at their own pace.
//
// A step takes some orphan records of a region and deletes them with all their elements in one batch, without sync: a few elements
// one by one, many by one range deletion in each keyspace. That an orphan goes as a whole is what makes a step harmless whatever has
// happened to the region since it looked, even if a snapshot has brought the same orphan back: no element is left without its record. Its
// version is never used again. A crash takes a suffix of the store's one WAL, so a deletion never outlives the orphan record that it is due to.
//
// It also has the logs cut of regions at rest, and the write-ahead log of a store at rest: else what was deleted last would stay in them
// until more is written.
//
// Like the cleaner, behind each step it leaves the store to others for a multiple of the time that the step took. The engine gives the
// space back by itself behind range deletions, and where the cleaner has it flushed.
type Reclaimer struct {
	o     ReclaimerOptions
	sites map[topology.RegionID]*orphanage
	trim  time.Time // when the logs are looked at next
	rest  time.Time // when the write-ahead log is looked at next
	wg    sync.WaitGroup

	lower, upper []byte // scratch
}

// ReclaimerOptions of a store's reclaimer.
type ReclaimerOptions struct {
	Knobs settings.Redis
	// Replicas returns the store's replicas; it is not changed any more.
	Replicas func() map[topology.RegionID]*region.Replica
	Engine   *engine.Engine // of the store
	Failed   func() error   // why the store has failed, nil while it has not
	Fence    func(error)    // makes the store fail
	Faults   ReclaimerFaults
}

// ReclaimerFaults are planted mistakes, for tests that must catch them; the zero value plants none.
type ReclaimerFaults struct {
	AnyVersion bool // elements of all versions of a key are deleted
	NoLimits   bool // iterators take no notice of limits, as Pebble's may
}

// orphanage is how far the reclaimer is in a region.
type orphanage struct {
	replica *region.Replica
	epoch   uint64    // of the replica, as of when counted was
	counted bool      // the orphan records that it began with are
	place   []byte    // the pass goes on behind this orphan record; nil: between two passes
	begun   uint64    // Replica.OrphanWrites when the pass began
	done    uint64    // and when the last one began that went to the end
	next    time.Time // the next pass is not to begin before, so that it finds more than one orphan to delete

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
	// logRest is how often logs are looked at: one of a region where nothing has been applied meanwhile is at rest. logWorth is how many
	// bytes of it are worth a cut.
	logRest  = 10 * time.Second
	logWorth = 64 << 10
	// never is no number of batches.
	never = ^uint64(0)
)

// NewReclaimer returns a reclaimer that does not run yet.
func NewReclaimer(o ReclaimerOptions) *Reclaimer {
	return &Reclaimer{o: o, sites: make(map[topology.RegionID]*orphanage)}
}

// Start starts the reclaimer. It ends with ctx.
func (x *Reclaimer) Start(ctx context.Context) { x.wg.Go(func() { x.run(ctx) }) }

// Join returns when the reclaimer has ended.
func (x *Reclaimer) Join() { x.wg.Wait() }

func (x *Reclaimer) run(ctx context.Context) {
	tick := time.NewTicker(reclaimTick)
	defer tick.Stop()
	for ctx.Err() == nil {
		now := time.Now()
		if !now.Before(x.trim) {
			x.trim = now.Add(logRest)
			x.trimLogs()
		}
		if !now.Before(x.rest) {
			x.rest = now.Add(engine.UpkeepPause)
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
func (x *Reclaimer) pass(ctx context.Context) (busy bool) {
	for id, r := range x.o.Replicas() {
		begin := time.Now()
		if !r.Running() {
			continue
		}
		s := x.site(id, r)
		if s.place == nil && begin.Before(s.next) || !x.step(s) {
			continue
		}
		busy = true
		if s.place == nil {
			s.next = begin.Add(reclaimTick)
		}
		rest := time.NewTimer(max(time.Millisecond, time.Duration(x.o.Knobs.ReclaimRest)*time.Since(begin)))
		select {
		case <-ctx.Done():
			rest.Stop()
			return busy
		case <-rest.C:
		}
	}
	return busy
}

func (x *Reclaimer) site(id topology.RegionID, r *region.Replica) *orphanage {
	s := x.sites[id]
	if s == nil || s.replica != r {
		s = &orphanage{replica: r}
		x.sites[id] = s
	}
	return s
}

// trimLogs cuts the logs of regions at rest that take twice the space of the region's data: a replica that has missed what was in one
// is then brought up to date by a snapshot at less cost than by the log.
func (x *Reclaimer) trimLogs() {
	for id, r := range x.o.Replicas() {
		s := x.site(id, r)
		if applied := r.Applied(); applied != s.applied {
			s.applied, s.trimmed = applied, false
			continue
		}
		if s.trimmed || !r.Running() {
			continue
		}
		worth := false
		r.Inspect(func(*engine.View) (err error) {
			if worth, err = x.logOutweighs(r); err != nil {
				return fmt.Errorf("size of its log: %w", err)
			}
			return nil
		})
		s.trimmed = worth && r.CutLog(1) // the last entry stays, for its term
	}
}

// logOutweighs reports whether the region's log takes logWorth and twice what the region's data takes, in tables: what is in memtables does not count.
func (x *Reclaimer) logOutweighs(r *region.Replica) (bool, error) {
	desc, _ := r.Region()
	lower, upper := keys.RaftBounds(desc.ID)
	log, err := x.o.Engine.TableBytes(engine.Span{Lower: lower, Upper: upper})
	if err != nil || log < logWorth {
		return false, err
	}
	data := uint64(0)
	for _, ks := range keys.RegionKeyspaces {
		lower, upper := r.Space().Bounds(ks, desc.Slots)
		n, err := x.o.Engine.TableBytes(engine.Span{Lower: lower, Upper: upper})
		if err != nil {
			return false, err
		}
		data += n
	}
	return log > 2*data, nil
}

// step takes the next step in a region, and reports whether there was one to take.
func (x *Reclaimer) step(s *orphanage) bool {
	r := s.replica
	if epoch := r.Epoch(); epoch != s.epoch {
		s.epoch, s.counted, s.place = epoch, false, nil
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

// each calls f with orphan records of a region, from where the pass is on, until it reports false, and moves on. At the end the pass is
// over.
func (s *orphanage) each(view *engine.View, f func(o *keys.Orphan, key []byte) (bool, error)) (err error) {
	r := s.replica
	desc, _ := r.Region()
	lower, upper := r.Space().OrphanBounds(desc.Slots)
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
func (x *Reclaimer) count(s *orphanage, view *engine.View) error {
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
func (x *Reclaimer) reclaim(s *orphanage, view *engine.View) (err error) {
	r := s.replica
	b := x.o.Engine.NewBatch()
	desc, _ := r.Region()
	d := deletion{x: x, view: view, batch: b, space: r.Space(), slots: desc.Slots, left: x.o.Knobs.ReclaimKeys}
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
		if r.OrphanWrites() == s.done { // nothing has come in meanwhile
			c.Set(0, 0)
		}
	}
	return nil
}

// deletion deletes the elements of orphans in one batch.
type deletion struct {
	x     *Reclaimer
	view  *engine.View
	batch *engine.Batch
	space keys.Space
	slots topology.SlotRange
	iters [len(keys.RegionKeyspaces)]*engine.Iter // by place in keys.RegionKeyspaces, opened when needed
	left  int                                     // of ReclaimKeys
	bytes int                                     // passed over
}

func (d *deletion) close() (err error) {
	for _, it := range d.iters {
		if it != nil {
			err = errors.Join(err, it.Close())
		}
	}
	return err
}

// orphan deletes all elements of one.
func (d *deletion) orphan(o *keys.Orphan) error {
	for _, ks := range redis.Spaces(o.Type, o.Size) {
		x := d.x
		x.lower = d.space.AppendCollection(x.lower[:0], ks, o.Slot, o.User, o.Version)
		if d.x.o.Faults.AnyVersion {
			x.lower = x.lower[:len(x.lower)-keys.VersionLen]
		}
		x.upper = keys.Successor(append(x.upper[:0], x.lower...))
		if o.Size < uint64(d.x.o.Knobs.ReclaimRange) {
			whole, err := d.oneByOne(ks)
			if err != nil {
				return err
			}
			if whole {
				continue
			}
		}
		d.left -= rangeCost
		if err := d.batch.DeleteRange(x.lower, x.upper); err != nil {
			return err
		}
	}
	return nil
}

// oneByOne deletes the keys from x.lower to x.upper, unless they are so large or, against what the orphan record says, so many that
// they are left to a range deletion.
func (d *deletion) oneByOne(ks keys.Keyspace) (whole bool, err error) {
	it, err := d.iter(ks)
	if err != nil {
		return false, err
	}
	limit := d.x.upper
	if d.x.o.Faults.NoLimits {
		limit = nil
	}
	n, passed := 0, 0
	state := it.SeekGEWithLimit(d.x.lower, limit)
	for ; state == pebble.IterValid; state = it.NextWithLimit(limit) {
		if bytes.Compare(it.Key(), d.x.upper) >= 0 { // Pebble may go past a limit, which only saves it steps
			break
		}
		if n++; n > d.x.o.Knobs.ReclaimRange || passed > reclaimBytes {
			return false, nil
		}
		value := it.LazyValue()
		size := len(it.Key()) + value.Len()
		passed += size
		d.bytes += size
		d.left--
		if err := d.batch.Delete(it.Key()); err != nil {
			return false, err
		}
	}
	return true, it.Error()
}

func (d *deletion) iter(ks keys.Keyspace) (*engine.Iter, error) {
	for i, known := range keys.RegionKeyspaces {
		if known != ks {
			continue
		}
		if d.iters[i] == nil {
			lower, upper := d.space.Bounds(ks, d.slots)
			it, err := d.view.Iter(lower, upper)
			if err != nil {
				return nil, err
			}
			d.iters[i] = it
		}
		return d.iters[i], nil
	}
	panic(fmt.Sprintf("no data of a region is in %v", ks))
}
