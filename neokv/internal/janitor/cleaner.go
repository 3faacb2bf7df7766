// Package janitor does the background work of a store over all of its replicas: the cleaner deletes expired records,
// and the reclaimer gives the space of deleted collections back.
package janitor

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// Cleaner deletes expired records of the regions that a store leads, in the background, on one goroutine. Nobody depends on it
// for an answer: to readers and writers an expired record is absent. It gives the space back.
//
// It has two ways to find them, and both are made of steps: look at some records, then delete what has expired, by one entry of
// the region's log. An entry costs a round of syncs, which writers wait for, however many keys it deletes; and it holds up the
// writers of its region while it is applied, the longer the more they are. So it takes as many as are applied in about a ms.
//
//   - Rounds: every ExpireInterval it looks at the next ExpireKeys records of each region, and goes on from there in the next round.
//   - Samples: where records may have expired, it looks at ExpireSample records from a random place on. While more than a tenth of
//     those with an expiry have expired, it goes on from where it is; else it comes back when the first of them will.
//
// Apply tells a replica the expire time of what it writes (Replica.notice), so that a region without expiries costs no looks.
// A step leaves the store to others for as long as it has taken, many times over: the busier the store is, the longer that is. Where
// that is not enough, since keys expire faster, entries become larger as minutes go by.
//
// It also sees, by sweeps, when a region holds no collection any more.
//
// Deleted keys keep their space until their deletion has left the memtable, which without more writes is never. So the cleaner sees
// to that, too, on every replica's store, whoever has deleted.
type Cleaner struct {
	o     CleanerOptions
	off   atomic.Bool
	sites map[topology.RegionID]*site

	search  redis.ExpirySearch
	records redis.ExpirySearch // of sweeps
	pending region.Pending
	flush   time.Time // when the engine is to be flushed if enough has been deleted by then
	flushed uint64    // what it had deleted when it was flushed last
	wg      sync.WaitGroup
}

// CleanerOptions of a store's cleaner.
type CleanerOptions struct {
	Knobs settings.Redis
	// Replicas returns the store's replicas; it is not changed any more.
	Replicas func() map[topology.RegionID]*region.Replica
	Rand     *rand.Rand     // its own
	Engine   *engine.Engine // of the store
	Failed   func() error   // why the store has failed, nil while it has not
	Fence    func(error)    // makes the store fail
}

// site is how far the cleaner is in a region that its store leads.
type site struct {
	replica *region.Replica
	term    uint64
	round   time.Time // when the next round begins
	left    int       // records that the present round has not looked at yet
	place   []byte    // where rounds go on, nil for the region's beginning
	sampled []byte    // where samples go on, nil for a random place
	more    bool      // the last sample was worth going on
	since   time.Time // while more: when that began

	sweeping bool      // a sweep is under way
	swept    []byte    // where it goes on, nil for the region's beginning
	begun    time.Time // when it began
	index    uint64    // and the apply index by then
	sweep    time.Time // when the next one may begin
}

const (
	// cleanerTick is how often a cleaner without work looks whether there is any.
	cleanerTick = 100 * time.Millisecond
	// cleanerLooks is how many records a step looks at, at most: about a ms.
	cleanerLooks = 1024
	// cleanerKeys is how many keys one entry deletes, at most, unless samples go on for minutes: it doubles with each of the first three.
	cleanerKeys = 128
	// cleanerRest is how many times as long as a step the rest behind it is. What the deletions cost the engine later, in flushes and
	// compactions, others feel more than the steps: a million keys go in a minute and a half.
	cleanerRest = 31
	// cleanerPatience bounds how long one entry is waited for. What it has not brought about the next round finds again.
	cleanerPatience = time.Second
	// sampleAgain is the least time between a sample that was not worth going on and the next one.
	sampleAgain = time.Second
	// flushDeleted is how many deleted keys are worth a flush, and flushEvery about how often there is one for their sake, at most. The
	// moments are random, so that stores that delete the same keys take turns.
	flushDeleted = 10_000
	flushEvery   = 30 * time.Second
	// sweepShare is how many times as long as a sweep took the next one waits: one in a region that still has collections may go far before
	// it meets the first.
	sweepShare = 10
)

// NewCleaner returns a cleaner that does not run yet.
func NewCleaner(o CleanerOptions) *Cleaner {
	return &Cleaner{o: o, sites: make(map[topology.RegionID]*site), pending: region.Pending{Run: new(redis.Run)}}
}

// Start starts the cleaner. It ends with ctx; what waits then for a replica ends when the replica stops.
func (c *Cleaner) Start(ctx context.Context) { c.wg.Go(func() { c.run(ctx) }) }

// Join returns when the cleaner has ended.
func (c *Cleaner) Join() { c.wg.Wait() }

// SetActive switches the cleaner on, as it is at first, or off. It may be called at any time.
func (c *Cleaner) SetActive(on bool) { c.off.Store(!on) }

func (c *Cleaner) run(ctx context.Context) {
	tick := time.NewTicker(cleanerTick)
	defer tick.Stop()
	for {
		c.reclaim(time.Now())
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
func (c *Cleaner) pass(ctx context.Context) (busy bool) {
	if c.off.Load() {
		return false
	}
	for id, r := range c.o.Replicas() {
		_, term, serving := r.Leading()
		if !serving {
			delete(c.sites, id)
			continue
		}
		now := time.Now()
		s := c.sites[id]
		if s == nil || s.replica != r || s.term != term {
			// The first round is at a random moment, so that the regions take turns. What expires is not known yet.
			s = &site{replica: r, term: term, round: now.Add(time.Duration(c.o.Rand.Float64() * float64(c.o.Knobs.ExpireInterval)))}
			s.sweep = s.round
			c.sites[id] = s
			r.Expiry().Notice(0)
		}
		if !c.step(s, now) {
			continue
		}
		busy = true
		rest := time.NewTimer(max(time.Millisecond, cleanerRest*time.Since(now)))
		select {
		case <-ctx.Done():
			rest.Stop()
			return busy
		case <-rest.C:
		}
	}
	return busy
}

// step takes the next step in a region, if one is due, and reports whether it was.
func (c *Cleaner) step(s *site, now time.Time) bool {
	r, k := s.replica, c.o.Knobs
	instant := r.LeaderTimeMS(now)
	switch {
	case k.ExpireInterval > 0 && !now.Before(s.round):
		s.round, s.left = now.Add(k.ExpireInterval), k.ExpireKeys
		fallthrough
	case s.left > 0:
		if !c.look(r, s.place, min(s.left, cleanerLooks), cleanerKeys, instant) {
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
		r.Expiry().Forget() // what is written from here on is noticed again
		c.sample(s, now, instant)
		return true
	}
	return k.ExpireInterval > 0 && c.sweepStep(s, now)
}

// sample looks at some records, and settles when to do so again.
func (c *Cleaner) sample(s *site, now time.Time, instant uint64) {
	r, x := s.replica, &c.search
	looks, most, from := c.o.Knobs.ExpireSample, cleanerKeys, s.sampled
	if s.more {
		looks, most = cleanerLooks, cleanerKeys<<min(3, now.Sub(s.since)/time.Minute)
	} else {
		s.since = now
	}
	if from == nil {
		c.aim(r)
		slots := x.Slots
		from = bytes.Clone(x.At(slots.First + topology.Slot(c.o.Rand.IntN(int(slots.Last-slots.First)+1))))
	}
	s.more, s.sampled = false, nil
	if !c.look(r, from, looks, most, instant) {
		r.Expiry().Notice(instant + uint64(sampleAgain.Milliseconds()))
		return
	}
	again := instant + uint64(sampleAgain.Milliseconds())
	switch {
	case x.All: // so far nothing else can expire
		r.Expiry().Notice(x.SoonestMS)
	case 10*len(x.Expired) > x.Volatile:
		s.more = true
		s.sampled = bytes.Clone(x.Next)
	case x.Looked == 0: // among records that are deleted already: on from here, but later
		s.sampled = bytes.Clone(x.Next)
		r.Expiry().Notice(again)
	case x.Volatile > 0:
		most := instant + uint64(max(c.o.Knobs.ExpireInterval, sampleAgain).Milliseconds())
		r.Expiry().Notice(min(max(x.SoonestMS, again), most))
	}
}

// aim points the search at a region.
func (c *Cleaner) aim(r *region.Replica) {
	desc, _ := r.Region()
	c.search.Space, c.search.Slots = r.Space(), desc.Slots
}

// look looks at some records of a region from a position on, until it has found most that are expired at instant, and deletes those. It
// reports false where the region cannot be read or written now.
func (c *Cleaner) look(r *region.Replica, from []byte, limit, most int, instant uint64) bool {
	x := &c.search
	c.aim(r)
	x.Limit, x.Most = limit, most
	if !r.Inspect(func(view *engine.View) error { return x.Step(view, from, instant) }) {
		return false
	}
	if len(x.Expired) == 0 {
		return true
	}
	if !c.propose(r, x.Call()) {
		return false
	}
	if n, err := strconv.ParseUint(string(bytes.Trim(c.pending.Run.Out.Buf, ":\r\n")), 10, 64); err == nil {
		r.Counters().ExpiredKeys.Add(n)
	}
	return true
}

// propose has a region apply a call, and reports whether it has.
func (c *Cleaner) propose(r *region.Replica, call redis.Call) bool {
	p := &c.pending
	p.Run.Reset()
	p.Run.Calls = append(p.Run.Calls, call)
	p.Deadline = time.Now().Add(cleanerPatience)
	r.Propose(p)
	p.Wait()
	if p.Lost {
		*p = region.Pending{Run: new(redis.Run)}
		return false
	}
	return p.Err == nil
}

// sweepStep takes the next step of a sweep, if one is due, and reports whether it was. A sweep walks over all records of a region that has
// held collections, to find out that it does not any more: then SETs need not read what they replace. It ends at the first collection.
//
// What it has not met was not there when it began, or has gone since; and what has been written since has raised the region state's index,
// which the entry at the end compares with that of the sweep's beginning.
func (c *Cleaner) sweepStep(s *site, now time.Time) bool {
	r := s.replica
	may := r.MayHold()
	if !may.Any() || now.Before(s.sweep) {
		return false
	}
	if !s.sweeping {
		s.sweeping, s.swept, s.begun, s.index = true, nil, now, r.Applied()
	}
	x := &c.records
	desc, _ := r.Region()
	x.Space, x.Slots, x.Limit, x.Most = r.Space(), desc.Slots, cleanerLooks, cleanerLooks
	var gone redis.Unblinding
	ok := r.Inspect(func(view *engine.View) (err error) {
		gone, err = x.Sweep(view, s.swept, may)
		return err
	})
	switch {
	case !ok:
		return false
	case x.Collections == 0 && x.Next != nil:
		s.swept = append(s.swept[:0], x.Next...)
		return true
	}
	if gone.Any() {
		c.propose(r, redis.Swept(s.index, gone))
	}
	s.sweeping = false
	s.sweep = time.Now().Add(max(c.o.Knobs.ExpireInterval, sweepShare*time.Since(s.begun)))
	return true
}

// reclaim has the engine flushed where many keys have been deleted since the last time. What else it takes the engine does by itself.
func (c *Cleaner) reclaim(now time.Time) {
	if now.Before(c.flush) {
		return
	}
	c.flush = now.Add(flushEvery/2 + time.Duration(c.o.Rand.Float64()*float64(flushEvery)))
	e := c.o.Engine
	if deleted := e.Deleted(); deleted-c.flushed >= flushDeleted && c.o.Failed() == nil {
		c.flushed = deleted
		if err := e.Flush(); err != nil {
			c.o.Fence(err)
		}
	}
}
