package sim

import (
	"context"
	"slices"
	"time"

	"neokv.dev/neokv/fault"
)

// A smaller scenario is run some times before it counts as one that does not fail, since equal seeds give nearly equal
// runs only: three times as often as it takes until the first one fails again, within these limits.
const fewestTries, mostTries = 4, 30

// shrinker makes a failing scenario smaller.
type shrinker struct {
	ctx  context.Context
	as   simReport // the failure to keep
	best simReport // the last run that failed like it
	job  job
	from scenario // the smallest scenario so far
	runs int
	note func(string)
}

// shrink makes the scenario of a failing seed smaller as long as it still fails in the same way and the time of the
// options lasts: first the schedule, then what else happens and the load.
func (b *simBatch) shrink(ctx context.Context, r simReport, o TortureOptions) *TortureFailure {
	x := &shrinker{as: r, best: r, job: b.job, from: b.plan.scenario.draw(r.Seed, b.Length), note: o.Shrinking}
	x.job.First, x.job.Count, x.job.Same = r.Seed, mostTries, true
	var stop context.CancelFunc
	x.ctx, stop = context.WithTimeout(ctx, o.Shrink)
	defer stop()
	if x.ctx.Err() == nil && x.fails(x.from, x.job.Length) {
		x.job.Count = min(max(3*x.runs, fewestTries), mostTries)
		x.shorter()
		x.fewerEvents()
		x.smallerLoad()
		x.shorter()
	}
	out := &TortureFailure{Seed: r.Seed, Problem: x.best.Problem, Scenario: x.from.String(), Length: x.job.Length,
		Tries: x.runs}
	if i := slices.IndexFunc(x.best.Classes, func(c string) bool { return slices.Contains(r.Classes, c) }); i >= 0 {
		out.Class = x.best.Classes[i]
	}
	return out
}

// fails reports whether a scenario fails like the first one.
func (x *shrinker) fails(s scenario, length time.Duration) bool {
	j := x.job
	j.Plan, j.Length = s.String(), length
	b, err := newBatch(j)
	if err != nil {
		return false
	}
	same := func(r simReport) bool {
		if len(x.as.Classes) == 0 { // too few operations, which no run is told alone
			return r.Problem != "" && len(r.Classes) == 0
		}
		return slices.ContainsFunc(r.Classes, func(c string) bool { return slices.Contains(x.as.Classes, c) })
	}
	b.stop = same
	b.run(x.ctx)
	x.runs += b.seeds
	i := slices.IndexFunc(b.failed, same)
	if i >= 0 {
		x.best = b.failed[i]
	}
	return i >= 0
}

// try takes a smaller scenario if it fails, and reports whether it does.
func (x *shrinker) try(s scenario, length time.Duration) bool {
	if x.ctx.Err() != nil || !x.fails(s, length) {
		return false
	}
	x.from, x.job.Length = s, length
	if x.note != nil {
		x.note(s.String())
	}
	return true
}

// shorter ends the run earlier, and leaves out the events of the time that is gone.
func (x *shrinker) shorter() {
	for d := x.job.Length / 2; d >= time.Second; d = x.job.Length / 2 {
		s := x.from
		s.schedule = slices.DeleteFunc(slices.Clone(s.schedule), func(e fault.FaultEvent) bool { return e.At >= d })
		if !x.try(s, d) {
			return
		}
	}
}

// fewerEvents leaves out events of the schedule: halves of it, then quarters, and so on down to single ones.
func (x *shrinker) fewerEvents() {
	for size := (len(x.from.schedule) + 1) / 2; size > 0 && x.ctx.Err() == nil; {
		less := false
		for at := 0; at < len(x.from.schedule); {
			s := x.from
			s.schedule = slices.Delete(slices.Clone(s.schedule), at, min(at+size, len(s.schedule)))
			if x.try(s, x.job.Length) {
				less = true
			} else {
				at += size
			}
		}
		if size == 1 && !less {
			return
		}
		size = max(1, min(size, len(x.from.schedule))/2)
		if len(x.from.schedule) == 0 {
			return
		}
	}
}

// smallerLoad leaves out what happens beside the schedule, then operations, then clients.
func (x *shrinker) smallerLoad() {
	for i := len(x.from.faults) - 1; i >= 0; i-- {
		s := x.from
		s.faults = slices.Delete(slices.Clone(s.faults), i, i+1)
		x.try(s, x.job.Length)
	}
	for _, change := range []func(*scenario){
		func(s *scenario) { s.tcp = false },
		func(s *scenario) { s.proxy = 0 },
		func(s *scenario) { s.caches = 0 },
		func(s *scenario) { s.caches = min(s.caches, 1) },
		func(s *scenario) { s.queues = 0 },
		func(s *scenario) { s.queues = min(s.queues, 1) },
		func(s *scenario) { s.chats = 0 },
		func(s *scenario) { s.chats = min(s.chats, 1) },
		func(s *scenario) { s.messages = false },
	} {
		s := x.from
		if change(&s); s.String() != x.from.String() {
			x.try(s, x.job.Length)
		}
	}
	for i := len(x.from.mix) - 1; i >= 0 && len(x.from.mix) > 1; i-- {
		s := x.from
		s.mix = slices.Delete(slices.Clone(s.mix), i, i+1)
		x.try(s, x.job.Length)
	}
	for x.from.clients > 1 {
		s := x.from
		if s.clients /= 2; !x.try(s, x.job.Length) {
			return
		}
	}
}
