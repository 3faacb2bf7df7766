package sim

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"neokv.dev/neokv/fault"
)

// CauseOptions say what TortureCause runs.
type CauseOptions struct {
	TortureOptions     // Seeds, Real and Shrink have no meaning here
	Branches       int // how many runs branch off at each moment
	// Moment is called when the branches of a moment have ended; it may be nil.
	Moment func(CauseMoment)
}

// CauseMoment is a moment of a run at which branches have left it.
type CauseMoment struct {
	At           time.Duration // since the run began; its length for repetitions of the whole run
	Failed, Runs int           // branches that failed, in whatever way, of all
}

// surely reports whether nearly all branches failed: nine of ten.
func (m CauseMoment) surely() bool { return 10*m.Failed >= 9*m.Runs }

// Cause is where a failing run was lost.
type Cause struct {
	Problem string // of a repetition of the run
	Moments []CauseMoment
	// Before and From are neighbours of Moments: from From on nearly all branches of all moments fail, and at Before
	// fewer do. Before is 0 if nearly all branches fail from the beginning on.
	Before, From time.Duration
	Between      []string // what the run's schedule does from Before to From
}

const (
	causeMoments = 8 // even ones, at first
	causeHalves  = 4 // then so many between the last that many branches survive and the next
)

// ErrNoFailure is the error of TortureCause if repetitions of the run do not fail in nine of ten cases.
var ErrNoFailure = errors.New("the run does not fail again in 9 of 10 repetitions, so no moment decides it")

// TortureCause repeats a failing run up to many moments, and lets it go on with other random choices from there: of
// clients, and of faults, whose kinds are those of the schedule and as frequent. It finds the moment from which on
// nearly all of these branches fail. What decides the failure happens before that moment.
//
// A seed does not fix how goroutines interleave, so repetitions differ a little, and shares are what counts. Elections
// draw from the cluster's seed, which branches keep.
func TortureCause(ctx context.Context, o CauseOptions) (*Cause, error) {
	o.Seeds = 1
	err := o.Validate()
	if o.Real {
		err = errors.Join(err, errors.New("branches are of virtual time"))
	}
	if o.Branches < 4 || o.Branches > 1000 {
		err = errors.Join(err, fmt.Errorf("%d branches: want 4 to 1000", o.Branches))
	}
	if err != nil {
		return nil, err
	}
	j, err := o.job()
	if err != nil {
		return nil, err
	}
	p, err := j.parse()
	if err != nil {
		return nil, err
	}
	p.scenario = p.draw(o.Seed, o.Length)
	j.Plan, j.Count, j.Same = p.scenario.String(), o.Branches, true
	out := new(Cause)
	look := func(at time.Duration) (CauseMoment, error) {
		j.Branch = at
		b, err := newBatch(j)
		if err == nil {
			err = b.run(ctx)
		}
		if err != nil {
			return CauseMoment{}, err
		}
		if out.Problem == "" && len(b.failed) > 0 {
			out.Problem = b.failed[0].Problem
		}
		m := CauseMoment{At: at, Runs: b.seeds, Failed: len(b.failed)}
		out.Moments = append(out.Moments, m)
		if o.Moment != nil {
			o.Moment(m)
		}
		return m, nil
	}
	whole, err := look(o.Length)
	if err != nil {
		return nil, err
	}
	if !whole.surely() {
		return out, ErrNoFailure
	}
	out.From = o.Length
	for i := causeMoments - 1; i > 0 && out.Before == 0; i-- {
		at := (o.Length * time.Duration(i) / causeMoments).Truncate(time.Millisecond)
		m, err := look(at)
		if err != nil {
			return nil, err
		}
		if m.surely() {
			out.From = at
		} else {
			out.Before = at
		}
	}
	for range causeHalves {
		at := ((out.Before + out.From) / 2).Truncate(time.Millisecond)
		if at <= out.Before {
			break
		}
		m, err := look(at)
		if err != nil {
			return nil, err
		}
		if m.surely() {
			out.From = at
		} else {
			out.Before = at
		}
	}
	slices.SortFunc(out.Moments, func(a, b CauseMoment) int { return int(a.At - b.At) })
	for _, e := range p.schedule {
		if e.At+e.For >= out.Before && e.At <= out.From {
			out.Between = append(out.Between, e.String())
		}
	}
	return out, nil
}

// branch is where a run leaves the one that it repeats; the zero branch does not.
type branch struct {
	at     time.Duration
	number int
}

// schedule returns the scenario's schedule up to the branch, and behind it another one: of the same kinds of faults,
// which are as frequent.
func (b branch) schedule(x scenario, seed uint64, length time.Duration) (all fault.Schedule) {
	o := fault.DrawOptions{Regions: 2 * simRegions, Length: length, Slots: splitSlots}
	for _, e := range x.schedule {
		if e.At < b.at {
			all = append(all, e)
		}
		if slices.Contains(fault.Drawn(), e.Fault.Verb) && !slices.Contains(o.Verbs, e.Fault.Verb) {
			o.Verbs = append(o.Verbs, e.Fault.Verb)
		}
	}
	if len(o.Verbs) == 0 {
		return all
	}
	k := simSettings()
	if err := x.set(k); err != nil {
		panic(err) // parseScenario has tried each
	}
	o.Stores, o.Gap = k.Cluster.Stores, length*time.Duration(len(o.Verbs))/time.Duration(len(x.schedule))
	for _, e := range fault.Draw(rand.New(rand.NewPCG(b.seed(seed), 56)), o) {
		if e.At >= b.at {
			all = append(all, e)
		}
	}
	return all
}

// seed returns the seed of what a branch draws.
func (b branch) seed(of uint64) uint64 { return of ^ uint64(b.number)<<32 }

// branching draws as the run does that it repeats, until the branch.
type branching struct {
	s             *sim
	before, after rand.Source
}

func (b *branching) Uint64() uint64 {
	if time.Since(b.s.begin) < b.s.branch.at {
		return b.before.Uint64()
	}
	return b.after.Uint64()
}
