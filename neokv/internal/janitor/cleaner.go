package janitor

import (
	"bytes"
	"context"
	"maps"
	"strconv"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
)

// cleaner deletes expired records of the regions that a store leads. Readers and writers treat an expired record as
// absent, so the cleaner only gives space back.
//
// It works in steps. A step looks at some records and deletes the expired ones by one entry of the region's log. An
// entry costs a round of syncs, which writers wait for, however many keys it deletes. While it is applied it holds up
// the writers of its region, the longer the more keys it has. So an entry has as many keys as apply deletes in about
// a millisecond.
//
// The cleaner finds expired records in two ways:
//
//   - Rounds: every ExpireInterval it looks at the next ExpireKeys records of each region, from where the last round
//     ended.
//   - Samples: where records may have expired, it looks at ExpireSample records from a random place on. While more than
//     a tenth of those with an expiry have expired, it goes on from there. Else it comes back when the first of them
//     will have expired.
//
// Apply notices the expiry of what it writes (region.ExpiryBound), so a region without expiries costs no looks.
//
// After each step the cleaner rests for many times as long as the step took: the busier the store, the longer the rest.
// Where keys expire faster than that, entries grow from one minute to the next.
//
// By sweeps the cleaner also finds out when a region holds no collection any more (sweep.go).
//
// A region's bounds may change at any time. A step loads them before it opens a view, and what it proposes carries
// their version. So the region refuses what was found within other bounds than those in which it would be applied, and
// the cleaner begins anew in the region.
//
// A deleted key keeps its space until its deletion leaves the memtable. Without more writes that never happens, so the
// cleaner makes the engine flush when many keys have been deleted, no matter by which command.
type cleaner struct {
	o       Options
	off     atomic.Bool
	regions map[topology.RegionID]*cleaning

	search  redis.ExpirySearch
	records redis.ExpirySearch // for sweeps
	pending region.Pending
	flush   time.Time // the instant of the next flush, if enough keys have been deleted by then
	flushed uint64    // how many keys the engine had deleted when it was flushed last
}

// cleaning is how far the cleaner has come in a region while the store leads it and its bounds stay the same.
type cleaning struct {
	replica *region.Replica
	term    uint64
	bounds  *region.Bounds
	round   time.Time // when the next round begins
	left    int       // records that the present round has not looked at yet
	place   []byte    // where rounds go on, nil for the region's beginning
	sampled []byte    // where samples go on, nil for a random place
	more    bool      // the last sample found so much that the next one goes on from there
	since   time.Time // if more: when the first of these samples began

	sweep sweep
}

const (
	// cleanerTick is how often a cleaner without work looks whether there is any.
	cleanerTick = 100 * time.Millisecond
	// cleanerLooks is how many records a step looks at, at most: about a millisecond of work.
	cleanerLooks = 1024
	// cleanerKeys is how many keys one entry deletes, at most. Where samples go on for minutes, it doubles with each of
	// the first three.
	cleanerKeys = 128
	// cleanerRest is the length of the rest after a step, as a multiple of the step's time. Clients notice the later
	// flushes and compactions of deletions more than the steps. At this pace a million keys take a minute and a half.
	cleanerRest = 31
	// cleanerPatience bounds the wait for one entry. The next round finds again what the entry has not deleted.
	cleanerPatience = time.Second
	// sampleAgain is the least time between a sample that found little and the next one.
	sampleAgain = time.Second
	// flushDeleted is how many deleted keys are worth a flush. flushEvery is about the shortest time between two
	// flushes; it is random, so that stores which delete the same keys take turns.
	flushDeleted = 10_000
	flushEvery   = 30 * time.Second
)

func newCleaner(o Options) *cleaner {
	return &cleaner{
		o: o, regions: make(map[topology.RegionID]*cleaning), pending: region.Pending{Run: new(redis.Run)},
	}
}

func (c *cleaner) run(ctx context.Context) {
	tick := time.NewTicker(cleanerTick)
	defer tick.Stop()
	for {
		c.flushDeletions(time.Now())
		if !c.pass(ctx) {
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
		if ctx.Err() != nil {
			return
		}
	}
}

// pass takes one step in every region that needs one, and reports whether any did.
func (c *cleaner) pass(ctx context.Context) (busy bool) {
	if c.off.Load() {
		return false
	}
	replicas := c.o.Replicas()
	maps.DeleteFunc(c.regions, func(id topology.RegionID, s *cleaning) bool { return replicas[id] != s.replica })
	for id, r := range replicas {
		now := time.Now()
		s := c.progress(id, r, now)
		if s == nil || !c.step(s, now) {
			continue
		}
		busy = true
		if !rest(ctx, cleanerRest, now) {
			return busy
		}
	}
	return busy
}

// progress returns how far the cleaner has come in a region. It returns nil if the store does not lead the region, or
// if the region is frozen or absorbed and would refuse all that the cleaner proposes.
func (c *cleaner) progress(id topology.RegionID, r *region.Replica, now time.Time) *cleaning {
	_, term, serving := r.Leading()
	bounds := r.Bounds()
	if !serving || bounds.Phase != keys.Serving {
		delete(c.regions, id)
		return nil
	}
	s := c.regions[id]
	if s == nil || s.replica != r || s.term != term || s.bounds.Version != bounds.Version {
		// The first round begins at a random instant, so that the regions take turns.
		first := now.Add(time.Duration(c.o.Rand.Float64() * float64(c.o.Knobs.ExpireInterval)))
		s = &cleaning{replica: r, term: term, bounds: bounds, round: first, sweep: sweep{next: first}}
		c.regions[id] = s
		// This store knows nothing of a region that another store has led, or of slots that were another region's.
		r.Expiry().Notice(0)
	}
	return s
}

// step takes the next step in a region, if one is due, and reports whether it was.
func (c *cleaner) step(s *cleaning, now time.Time) bool {
	r, k := s.replica, c.o.Knobs
	instant := r.LeaderTimeMS(now)
	switch {
	case k.ExpireInterval > 0 && !now.Before(s.round):
		s.round, s.left = now.Add(k.ExpireInterval), k.ExpireKeys
		fallthrough
	case s.left > 0:
		if !c.look(s, s.place, min(s.left, cleanerLooks), cleanerKeys, instant) {
			s.left = 0
			return true
		}
		s.place = append(s.place[:0], c.search.Next...)
		if c.search.Next == nil {
			s.place = nil
		}
		s.left -= max(c.search.Looked, cleanerKeys) // a step among records that are deleted already counts, too
		if c.search.All || c.search.Next == nil {
			s.left = 0
		}
		r.Expiry().Notice(c.search.SoonestMS)
		return true
	case k.ExpireSample > 0 && (s.more || r.Expiry().Passed(instant)):
		r.Expiry().Forget() // apply notices what it writes from here on
		c.sample(s, now, instant)
		return true
	}
	return k.ExpireInterval > 0 && c.sweepStep(s, now)
}

// sample looks at some records, and settles when to do so again.
func (c *cleaner) sample(s *cleaning, now time.Time, instant uint64) {
	r, x := s.replica, &c.search
	looks, most, from := c.o.Knobs.ExpireSample, cleanerKeys, s.sampled
	if s.more {
		looks, most = cleanerLooks, cleanerKeys<<min(3, now.Sub(s.since)/time.Minute)
	} else {
		s.since = now
	}
	if from == nil {
		x.Slots = s.bounds.Slots
		from = bytes.Clone(x.At(x.Slots.First + topology.Slot(c.o.Rand.IntN(int(x.Slots.Last-x.Slots.First)+1))))
	}
	s.more, s.sampled = false, nil
	again := instant + uint64(sampleAgain.Milliseconds())
	if !c.look(s, from, looks, most, instant) {
		r.Expiry().Notice(again)
		return
	}
	switch {
	case x.All: // it has seen all records: nothing else can expire now
		r.Expiry().Notice(x.SoonestMS)
	case 10*len(x.Expired) > x.Volatile:
		s.more = true
		s.sampled = bytes.Clone(x.Next)
	case x.Looked == 0: // among records that are deleted already: on from here, but later
		s.sampled = bytes.Clone(x.Next)
		r.Expiry().Notice(again)
	case x.Volatile > 0:
		latest := instant + uint64(max(c.o.Knobs.ExpireInterval, sampleAgain).Milliseconds())
		r.Expiry().Notice(min(max(x.SoonestMS, again), latest))
	}
}

// look looks at up to limit records of a region from a position on, until it has found most that are expired at
// instant, and deletes those. It returns false if the region cannot be read or written now.
func (c *cleaner) look(s *cleaning, from []byte, limit, most int, instant uint64) bool {
	r, x := s.replica, &c.search
	x.Slots = s.bounds.Slots
	x.Limit, x.Most = limit, most
	if !r.Inspect(func(view *engine.View) error { return x.Step(view, from, instant) }) {
		return false
	}
	if len(x.Expired) == 0 {
		return true
	}
	if !c.propose(s, x.Call()) {
		return false
	}
	if n, err := strconv.ParseUint(string(bytes.Trim(c.pending.Run.Out.Buf, ":\r\n")), 10, 64); err == nil {
		r.Counters().ExpiredKeys.Add(n)
	}
	return true
}

// propose makes a region apply a call that follows from what the cleaner has found within the bounds of s, and reports
// whether it has.
func (c *cleaner) propose(s *cleaning, call redis.Call) bool {
	p := &c.pending
	p.Run.Reset()
	p.Run.Calls, p.Run.Version = append(p.Run.Calls, call), s.bounds.Version
	p.Deadline = time.Now().Add(cleanerPatience)
	s.replica.Propose(p)
	p.Wait()
	if p.Lost {
		*p = region.Pending{Run: new(redis.Run)}
		return false
	}
	return p.Err == nil
}

// flushDeletions makes the engine flush if many keys have been deleted since the last time. The engine compacts the new
// tables by itself.
func (c *cleaner) flushDeletions(now time.Time) {
	if now.Before(c.flush) {
		return
	}
	c.flush = now.Add(flushEvery/2 + time.Duration(c.o.Rand.Float64()*float64(flushEvery)))
	if deleted := c.o.Engine.Deleted(); deleted-c.flushed >= flushDeleted && c.o.Failed() == nil {
		c.flushed = deleted
		if err := c.o.Engine.Flush(); err != nil {
			c.o.Fence(err)
		}
	}
}
