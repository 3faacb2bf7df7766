package gate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"neokv.dev/bench"
	"neokv.dev/bench/ab"
	"neokv.dev/bench/children"
	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// TimedCase is a load in a closed loop, whose CPU time per command and service time are compared. A closed loop keeps
// the target busy: at a low rate most of the CPU time would be that of goroutines that sleep and wake up.
type TimedCase struct {
	Name     string
	OnDisk   bool // else the data is in memory
	Workload string
	Clients  int
	Pipeline int
}

// TimedCases are the cases of the timed part. Few clients, so that a reply that comes late is not hidden by a queue.
func TimedCases() []TimedCase {
	return []TimedCase{
		{Name: "GET P=1", Workload: "get", Clients: 4, Pipeline: 1},
		{Name: "GET P=16", Workload: "get", Clients: 4, Pipeline: 16},
		{Name: "SET P=1", Workload: "set", Clients: 4, Pipeline: 1},
		{Name: "SET P=16", Workload: "set", Clients: 4, Pipeline: 16},
		{Name: "SET P=16 on disk", OnDisk: true, Workload: "set", Clients: 4, Pipeline: 16},
	}
}

// A round measures each case in each arm turns times, for sliceTime. Short turns share what else the machine does.
const (
	turns      = 2
	sliceTime  = 150 * time.Millisecond
	sliceStart = 30 * time.Millisecond // of warm-up before it
	// sliceRest and bootTime are what a slice and the boot of three arms take besides, on a machine with little to do.
	sliceRest = 50 * time.Millisecond
	bootTime  = time.Second
)

// Wrong is the share of checks of a build that does not differ in which some timed figure may be said to differ, for
// the worse or for the better. All timed figures share it by Holm's method, and both looks: spent has the part of each.
// The parts add up to Wrong, so the rate holds however the looks depend on each other.
const Wrong = 0.005

var spent = [2]float64{Wrong / 10, Wrong * 9 / 10}

// Timed says how to judge CPU time and service time beside the baseline's build.
type Timed struct {
	A, B  ab.Arm // A is the baseline's build
	Cases []TimedCase
	// Most is the growth of CPU time that a check must not let pass, as a share, and MostLatency that of service time.
	Most, MostLatency float64
	// Budget is how long the first look takes. The second one takes as long again.
	Budget   time.Duration
	Progress func(round int)

	// Joined are rounds of another machine, which the verdict uses, too.
	Joined []compare.Round
	// Rounds are those that were measured. Impaired says what made builds slower than their settings say.
	Rounds   []compare.Round
	Impaired []string
	Seed     uint64 // what drew the operations and the order

	random *rand.Rand
	slow   bool // it is the slow lane
}

// The timed figures that gate: CPU time, and the median of service times.
const (
	cpuFigure     = "CPU"
	latencyFigure = "p50"
)

// Needs returns the least budget: that of as many rounds as an interval takes.
func (t *Timed) Needs() time.Duration {
	if t.slow {
		return compare.FewestRounds * arms * slowArm
	}
	round := time.Duration(0)
	for _, onDisk := range []bool{false, true} {
		if n := len(t.cases(onDisk)); n > 0 {
			round += bootTime + time.Duration(n*arms*turns)*(sliceStart+sliceTime+sliceRest)
		}
	}
	return (compare.FewestRounds * round).Round(time.Second)
}

func (t *Timed) cases(onDisk bool) (out []TimedCase) {
	for _, c := range t.Cases {
		if c.OnDisk == onDisk {
			out = append(out, c)
		}
	}
	return out
}

// Run measures until the budget is used up, and looks at all rounds. Where no figure is worse, and each has surely
// grown by less than may not pass, that is all. Where one is worse beyond doubt, that is all, too. Else it measures as
// long again and looks at the rounds of both measurements.
func (t *Timed) Run(ctx context.Context) ([]Finding, error) {
	t.Seed = uint64(time.Now().UnixNano()) >> 11 // exact also where JSON's numbers are doubles
	t.random = rand.New(rand.NewPCG(t.Seed, 1))
	began := time.Now()
	for look := 0; ; look++ {
		until := time.Duration(look+1) * t.Budget
		for n := len(t.Rounds); time.Since(began) < until || n < compare.FewestRounds; n++ {
			t.Progress(n)
			round, err := t.round(ctx, t.Seed+uint64(n))
			if err != nil {
				return nil, fmt.Errorf("round %d: %w", n+1, err)
			}
			t.Rounds = append(t.Rounds, round)
			if needs := compare.FewestRounds * time.Since(began); n == 0 && needs > t.Budget && !t.slow {
				return nil, &BudgetError{t.Budget, needs}
			}
		}
		findings := t.judge(t.Rounds, look)
		if look+1 == len(spent) || !slices.ContainsFunc(findings, Finding.unsure) ||
			slices.ContainsFunc(findings, Finding.worse) {
			return findings, nil
		}
	}
}

// BudgetError says that a budget is too small for the rounds that a verdict takes.
type BudgetError struct{ Budget, Needs time.Duration }

func (e *BudgetError) Error() string {
	return fmt.Sprintf("--budget %s: a verdict takes %d rounds, and so %s on this machine", e.Budget,
		compare.FewestRounds, (e.Needs + 5*time.Second).Round(10*time.Second))
}

// unsure reports whether longer measurements may change what a finding says.
func (f Finding) unsure() bool {
	return f.Gates && f.Verdict != AsBefore && f.Verdict != compare.Better
}

func (f Finding) worse() bool { return f.Gates && f.Verdict == compare.Worse }

// arms are those of a round: B, A, and a copy of A.
const arms = 3

// round measures all cases once. Which of the processes is whose is the only thing that tells arms that do not differ
// apart, so the order of their starts is drawn at random. The turns are, too, which only lessens the noise.
func (t *Timed) round(ctx context.Context, seed uint64) (r compare.Round, err error) {
	if t.slow {
		return t.slowRound(ctx, seed)
	}
	figures := [arms][]results.Figure{}
	for _, onDisk := range []bool{false, true} {
		if cases := t.cases(onDisk); len(cases) > 0 {
			if err := t.serve(ctx, cases, seed, &figures); err != nil {
				return r, err
			}
		}
	}
	return compare.Round{B: figures[0], A: figures[1], Control: figures[2]}, nil
}

// serve starts the arms, and sends them the loads of cases that are all in memory or all on disk.
func (t *Timed) serve(ctx context.Context, cases []TimedCase, seed uint64, into *[arms][]results.Figure) (err error) {
	var targets [arms]*children.Running
	defer func() {
		for _, target := range targets {
			if target != nil {
				err = errors.Join(err, target.Err(), target.Kill())
			}
		}
	}()
	var wrong [arms]error
	var all sync.WaitGroup
	for _, i := range t.random.Perm(arms) {
		arm := t.A
		if i == 0 {
			arm = t.B
		}
		all.Go(func() { targets[i], wrong[i] = children.Start(ctx, "", arm.Startable(!cases[0].OnDisk)) })
	}
	all.Wait()
	if err := errors.Join(wrong[:]...); err != nil {
		return err
	}
	for _, c := range cases {
		var parts [arms][][]results.Figure
		for turn := range turns {
			for _, i := range t.random.Perm(arms) {
				f, err := c.send(ctx, targets[i], seed, turn > 0)
				if err != nil {
					return fmt.Errorf("%s: %w", c.Name, errors.Join(targets[i].Err(), err))
				}
				parts[i] = append(parts[i], f.figures)
				t.impaired(f.impaired)
			}
		}
		for i := range into {
			into[i] = append(into[i], c.merge(parts[i])...)
		}
	}
	return nil
}

// slice is what an arm did in a turn.
type slice struct {
	figures  []results.Figure
	impaired []string
}

func (c TimedCase) send(ctx context.Context, target *children.Running, seed uint64, loaded bool) (slice, error) {
	o := bench.Options{
		Targets: target.Addrs(), Seed: seed, Duration: sliceTime, Warmup: sliceStart,
		Groups: []bench.GroupOptions{{Workload: c.Workload, Clients: c.Clients, Pipeline: c.Pipeline, Records: 1000,
			Elements: 10, ValueSize: 100}},
	}
	if loaded {
		o.Load = bench.LoadedBefore
	}
	h, s, err := bench.Measure(ctx, o)
	if err != nil {
		return slice{}, err
	}
	return slice{s.Figures(&h), s.Work.Impaired()}, nil
}

// merge returns the means of the figures that gate over the turns of an arm, under names that have the case.
func (c TimedCase) merge(turns [][]results.Figure) (out []results.Figure) {
	for _, f := range turns[0] {
		if f.Name != cpuFigure && f.Name != latencyFigure && !(&compare.Row{Name: f.Name}).Loss() {
			continue
		}
		sum, n := 0.0, 0
		for _, turn := range turns {
			for _, x := range turn {
				if x.Name == f.Name {
					sum, n = sum+x.Value, n+1
				}
			}
		}
		f.Name, f.Value = c.Name+": "+f.Name, sum/float64(n)
		out = append(out, f)
	}
	return out
}

// impaired keeps lines that differ from those before.
func (t *Timed) impaired(lines []string) {
	for _, line := range lines {
		if !slices.Contains(t.Impaired, line) && len(t.Impaired) < 10 {
			t.Impaired = append(t.Impaired, line)
		}
	}
}

// judge gives each timed figure its verdict by all rounds, at the level that the look may spend. A figure is worse if
// it has grown by more than noise, and perhaps by as much as may not pass. It is as before if it surely has not grown
// by that much. Else nobody can tell. Of operations without a good answer there are rows where an arm has some.
func (t *Timed) judge(rounds []compare.Round, look int) (out []Finding) {
	rounds = slices.Concat(t.Joined, rounds)
	d := compare.Rounds(rounds, t.primary())
	gating := 0
	for _, r := range d.Rows {
		if r.Primary {
			gating++
		}
	}
	for _, c := range t.Cases {
		for i := range d.Rows {
			r := &d.Rows[i]
			name, found := strings.CutPrefix(r.Name, c.Name+": ")
			if !found || !r.Loss() && r.Ratio == nil {
				continue
			}
			f := Finding{Case: c.Name, Figure: name, Unit: r.Unit, Kind: r.Kind, Better: r.Better, Gates: true,
				Before: r.A.Center, Now: r.B.Center, Runs: len(rounds), Ratios: r.Ratios, P: r.Adjusted}
			f.Verdict = timedVerdict(r, spent[look], t.most(name), d.Conclusion.Verdict == compare.Contaminated)
			if f.Verdict == compare.Better && r.Verdict == compare.Unknown {
				f.Verdict = NotSure // this build loses operations
			}
			if !r.Loss() {
				f.Visible = r.VisibleAt(spent[look] / float64(gating))
			}
			switch {
			case r.Ratio != nil:
				f.Change = r.Ratio.Center - 1
				if r.Ratio.Interval != nil {
					f.Interval = []float64{r.Ratio.Interval[0] - 1, r.Ratio.Interval[1] - 1}
				}
			case f.Now > f.Before:
				f.Change = math.MaxFloat64 // JSON has no infinity
			}
			out = append(out, f)
		}
	}
	return out
}

// primary are the figures that share the rate.
func (t *Timed) primary() (out []string) {
	for _, c := range t.Cases {
		names := []string{cpuFigure, latencyFigure}
		if t.slow {
			names = []string{bootFigure, memoryFigure, diskFigure, failOverFigure}
		}
		for _, name := range names {
			out = append(out, c.Name+": "+name)
		}
	}
	return out
}

// most is the growth of a figure that must not pass.
func (t *Timed) most(figure string) float64 {
	switch figure {
	case cpuFigure:
		return t.Most
	case memoryFigure, diskFigure:
		return mostSlow
	}
	return t.MostLatency
}

// differs says whether a figure for which less is better differs, at a level that all figures share. It is as before if
// nobody can tell.
func differs(r *compare.Row, level float64) compare.Verdict {
	switch {
	case r.Adjusted > level:
		return AsBefore
	case r.More():
		return compare.Worse
	}
	return compare.Better
}

// timedVerdict judges a row. contaminated says that the copy of A differs from A.
func timedVerdict(r *compare.Row, level, most float64, contaminated bool) compare.Verdict {
	v := differs(r, level)
	if r.Loss() {
		return v
	}
	if r.Ratio.Interval == nil {
		return NotSure
	}
	switch high := r.Ratio.Interval[1] - 1; {
	case high < most && v == compare.Worse:
		return AsBefore // by less than may not pass
	case high < most:
		return v
	case contaminated:
		return compare.Contaminated
	case v == compare.Worse:
		return v
	}
	return NotSure
}
