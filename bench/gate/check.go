package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"neokv.dev/bench/ab"
	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// Conclusion is what a check says.
type Conclusion string

const (
	Pass         Conclusion = "pass"
	Regression   Conclusion = "regression"
	Inconclusive Conclusion = "inconclusive"
)

// Finding is what a check found of one figure.
type Finding struct {
	Case    string          `json:"case"`
	Figure  string          `json:"figure"`
	Unit    string          `json:"unit"`
	Before  float64         `json:"before"`
	Now     float64         `json:"now"`
	Change  float64         `json:"change"` // 0.02 is 2 % more
	Gates   bool            `json:"gates"`  // it can fail the check
	Verdict compare.Verdict `json:"verdict"`
	// Threshold is the change from which on a count differs. Interval is that of a timed figure.
	Threshold float64   `json:"threshold,omitempty"`
	Interval  []float64 `json:"interval,omitempty"`
	// Runs are how many runs or rounds the finding is of.
	Runs int `json:"runs"`
}

// What a finding says, beside the verdicts of a comparison. The first two are of a figure for which no direction is
// better.
const (
	More     compare.Verdict = "more"
	Less     compare.Verdict = "less"
	AsBefore compare.Verdict = "as before"
	NotSure  compare.Verdict = "inconclusive"
)

// Outcome is what a check found.
type Outcome struct {
	Verdict Conclusion `json:"verdict"`
	Counts  []Finding  `json:"counts,omitempty"`
	Timed   []Finding  `json:"timed,omitempty"`
	// Power says what the check could have seen.
	Power    []string `json:"power"`
	Warnings []string `json:"warnings,omitempty"`
}

// ReadBaseline reads a baseline and checks it.
func ReadBaseline(r io.Reader) (*Baseline, error) {
	text, err := io.ReadAll(io.LimitReader(r, maxBaseline+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxBaseline {
		return nil, fmt.Errorf("more than %d bytes: no baseline", maxBaseline)
	}
	b := &Baseline{}
	if err := json.Unmarshal(text, b); err != nil || b.Format == 0 {
		return nil, errors.New("not a baseline: want a file that neokv check --renew has written")
	}
	if b.Format != BaselineFormat {
		return nil, fmt.Errorf("baseline of format %d: this program reads format %d; renew it", b.Format, BaselineFormat)
	}
	if len(b.Cases) == 0 || b.Runs < FewestRuns {
		return nil, fmt.Errorf("%d cases of %d runs: a baseline has cases of %d runs", len(b.Cases), b.Runs, FewestRuns)
	}
	return b, nil
}

const maxBaseline = 16 << 20

// Write writes a baseline as people can read it.
func (b *Baseline) Write(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", " ")
	return e.Encode(b)
}

// Elsewhere says in what the machine and the Go runtime differ from those of the baseline, so that the baseline's build
// would not count the same here; "" if in nothing.
func (b *Baseline) Elsewhere(build results.Build, m results.Machine) string {
	switch {
	case build.Go != b.Build.Go:
		return fmt.Sprintf("the baseline is of %s, this build of %s", b.Build.Go, build.Go)
	case m.Arch != b.Machine.Arch || m.OS != b.Machine.OS:
		return fmt.Sprintf("the baseline is of %s %s, this machine %s %s", b.Machine.OS, b.Machine.Arch, m.OS, m.Arch)
	case m.Cores != b.Machine.Cores:
		return fmt.Sprintf("the baseline is of %d cores, this machine has %d", b.Machine.Cores, m.Cores)
	}
	return ""
}

// Counts judges the work of a program against the baseline. A case with a change is counted again, twice, before the
// change counts: the median of the three decides. Progress is called before each run.
func (b *Baseline) Counts(ctx context.Context, program string, env []string,
	progress func(name string, run int)) (out []Finding, err error) {
	for _, c := range b.Cases {
		var runs [][]results.Figure
		for range 3 {
			progress(c.Name, len(runs))
			figures, err := c.Count(ctx, program, env)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			if runs = append(runs, figures); !anyGated(c.judge(runs)) {
				break
			}
		}
		out = append(out, c.judge(runs)...)
	}
	return out, nil
}

// anyGated reports whether a figure that gates has changed.
func anyGated(findings []Finding) bool {
	for _, f := range findings {
		if f.Gates && f.Verdict != AsBefore {
			return true
		}
	}
	return false
}

// judge compares runs with the case of a baseline.
func (c *CountedCase) judge(runs [][]results.Figure) (out []Finding) {
	now := summarize(runs)
	for _, before := range c.Figures {
		f := Finding{Case: c.Name, Figure: before.Name, Unit: before.Unit, Before: before.Median, Gates: before.Gates(),
			Threshold: before.Threshold(), Runs: len(runs), Verdict: AsBefore}
		for _, x := range now {
			if x.Name == before.Name {
				f.Now = x.Median
			}
		}
		if f.Before == f.Now {
			if f.Before != 0 {
				out = append(out, f)
			}
			continue
		}
		f.Change = f.Now/f.Before - 1
		if f.Before == 0 {
			f.Change = math.MaxFloat64 // JSON has no infinity
		}
		more := f.Now > f.Before
		switch {
		case math.Abs(f.Change) <= f.Threshold:
		case before.Better == "" && more:
			f.Verdict = More
		case before.Better == "":
			f.Verdict = Less
		case more == (before.Better == results.Higher):
			f.Verdict = compare.Better
		default:
			f.Verdict = compare.Worse
		}
		out = append(out, f)
	}
	return out
}

// Timed says how to judge CPU time beside the baseline's build.
type Timed struct {
	Plan ab.Plan // A is the baseline's build
	// Most is the regression that a check must not let pass, as a share.
	Most float64
	// Budget is how long the rounds take. A regression takes as long again, since it is measured twice.
	Budget time.Duration
}

// Judged are the timed figures that gate. Latencies at a rate far below saturation say more about the machine.
var judged = []string{"CPU"}

// Run measures until the budget is used up, a second time if it found a regression.
func (t *Timed) Run(ctx context.Context, keep func(compare.Block) error) ([]Finding, error) {
	for again := false; ; again = true {
		plan := t.Plan
		plan.Until = time.Now().Add(t.Budget)
		plan.Load.Seed += map[bool]uint64{true: 1 << 40}[again]
		var turns compare.Turns
		turns.Header.Control = plan.Control
		err := plan.Run(ctx, func(b compare.Block) error {
			turns.Blocks = append(turns.Blocks, b)
			return keep(b)
		})
		if err != nil {
			return nil, err
		}
		findings := t.judge(turns.Compare())
		if again || !anyWorse(findings) {
			return findings, nil
		}
	}
}

func anyWorse(findings []Finding) bool {
	for _, f := range findings {
		if f.Gates && f.Verdict == compare.Worse {
			return true
		}
	}
	return false
}

// judge gives each timed figure its verdict. One that gates is worse if it has grown by more than noise, and perhaps by
// as much as may not pass. It is as before if it surely has not grown by that much. Else nobody can tell.
func (t *Timed) judge(d *compare.Delta) (out []Finding) {
	for _, r := range d.Rows {
		if r.Kind == results.Counted || r.Ratio == nil {
			continue
		}
		f := Finding{Case: "beside the baseline's build", Figure: r.Name, Unit: r.Unit, Before: r.A.Center, Now: r.B.Center,
			Change: r.Ratio.Center - 1, Runs: r.Ratio.N, Verdict: r.Verdict}
		if r.Ratio.Interval != nil {
			f.Interval = []float64{r.Ratio.Interval[0] - 1, r.Ratio.Interval[1] - 1}
		}
		for _, name := range judged {
			f.Gates = f.Gates || name == r.Name
		}
		if f.Gates {
			f.Verdict = t.verdict(&r)
		}
		out = append(out, f)
	}
	return out
}

func (t *Timed) verdict(r *compare.Row) compare.Verdict {
	if r.Ratio.Interval == nil {
		return NotSure
	}
	low, high := r.Ratio.Interval[0]-1, r.Ratio.Interval[1]-1
	switch {
	case high < t.Most && high < 0:
		return compare.Better
	case high < t.Most:
		return AsBefore
	case r.Verdict == compare.Contaminated:
		return compare.Contaminated
	case low > 0:
		return compare.Worse
	}
	return NotSure
}

// Conclude sums up.
func (o *Outcome) Conclude() {
	o.Verdict = Pass
	for _, f := range append(append([]Finding{}, o.Counts...), o.Timed...) {
		switch {
		case !f.Gates:
		case f.Verdict == compare.Worse:
			o.Verdict = Regression
		case (f.Verdict == NotSure || f.Verdict == compare.Contaminated) && o.Verdict == Pass:
			o.Verdict = Inconclusive
		}
	}
	gating := 0
	for _, f := range o.Counts {
		if f.Gates {
			gating++
		}
	}
	if len(o.Counts) > 0 {
		o.Power = append(o.Power, fmt.Sprintf("%d counts gate; the smallest change that they see is %.1f %%", gating,
			100*leastThreshold))
	}
	for _, f := range o.Timed {
		if f.Gates && f.Interval != nil {
			o.Power = append(o.Power, fmt.Sprintf("%s: %d rounds; a change of less than %.1f %% could not have been told "+
				"from noise", f.Figure, f.Runs, 100*max(f.Interval[1]-f.Change, f.Change-f.Interval[0])))
		}
	}
}
