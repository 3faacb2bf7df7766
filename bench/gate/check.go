package gate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

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
	Case    string             `json:"case"`
	Figure  string             `json:"figure"`
	Unit    string             `json:"unit"`
	Kind    results.FigureKind `json:"kind,omitempty"`
	Better  results.Direction  `json:"better,omitempty"`
	Before  float64            `json:"before"`
	Now     float64            `json:"now"`
	Change  float64            `json:"change"` // 0.02 is 2 % more
	Gates   bool               `json:"gates"`  // it can fail the check
	Verdict compare.Verdict    `json:"verdict"`
	// Threshold is the change from which on a count differs, and Bound the value where the baseline has nothing of it.
	// Interval is that of a timed figure.
	Threshold float64   `json:"threshold,omitempty"`
	Bound     float64   `json:"bound,omitempty"`
	Interval  []float64 `json:"interval,omitempty"`
	// Visible is the smallest change, as a share, that nine of ten such checks tell from noise; 0 if that is not known.
	Visible float64 `json:"visible,omitempty"`
	// Ratios are those of the rounds of a timed figure that gates, now to before.
	Ratios []float64 `json:"ratios,omitempty"`
	// P is how likely so large a difference of a timed figure is if no timed figure differs.
	P float64 `json:"p,omitempty"`
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
	// NotCompared is of a count that may be another one on this machine, whatever the build.
	NotCompared compare.Verdict = "not compared"
)

// Outcome is what a check found.
type Outcome struct {
	Verdict Conclusion `json:"verdict"`
	// Conditions are what a reader must know before the figures mean anything.
	Conditions []results.NamedValue `json:"conditions,omitempty"`

	Counts []Finding `json:"counts,omitempty"`
	Timed  []Finding `json:"timed,omitempty"`
	// Seed is what drew the operations and the order of the timed part, and Rounds are what it measured.
	Seed   uint64          `json:"seed,omitempty"`
	Rounds []compare.Round `json:"rounds,omitempty"`
	// Subject is what the outcome is about.
	Subject Subject `json:"subject"`
	// Power says what the check could have seen.
	Power    []string `json:"power"`
	Warnings []string `json:"warnings,omitempty"`
	// Next says what to do about changes.
	Next []string `json:"next,omitempty"`
}

const maxBaseline = 16 << 20

// ReadBaseline reads a baseline and checks it.
func ReadBaseline(r io.Reader) (*Baseline, error) {
	b := &Baseline{}
	if err := json.NewDecoder(io.LimitReader(r, maxBaseline)).Decode(b); err != nil || b.Format == 0 {
		return nil, errors.New("not a baseline: want a file that neokv check --renew has written")
	}
	if b.Format != BaselineFormat {
		return nil, fmt.Errorf("baseline of format %d: this program reads format %d; renew it", b.Format,
			BaselineFormat)
	}
	if len(b.Cases) == 0 || b.Runs < FewestRuns {
		return nil, fmt.Errorf("%d cases of %d runs: a baseline has cases of %d runs", len(b.Cases), b.Runs, FewestRuns)
	}
	return b, nil
}

// Elsewhere says in what the machine and the Go runtime differ from those of the baseline, so that the baseline's build
// may not count the same here; "" if in nothing.
func (b *Baseline) Elsewhere(build results.Build, m results.Machine) string {
	switch {
	case build.Go != b.Build.Go:
		return fmt.Sprintf("the baseline is of %s, this build of %s", b.Build.Go, build.Go)
	case m.Arch != b.Machine.Arch || m.OS != b.Machine.OS:
		return fmt.Sprintf("the baseline is of %s %s, this machine %s %s", b.Machine.OS, b.Machine.Arch, m.OS, m.Arch)
	case m.CPU != b.Machine.CPU:
		return fmt.Sprintf("the baseline is of the CPU %q, this machine has %q", b.Machine.CPU, m.CPU)
	case m.Cores != b.Machine.Cores:
		return fmt.Sprintf("the baseline is of %d cores, this machine has %d", b.Machine.Cores, m.Cores)
	}
	return ""
}

// agreeing is how many runs must show a change before it counts.
const agreeing = 3

// Counts judges the work of this program against the baseline. env are further variables of its process. elsewhere is
// set where the machine or the Go runtime is not that of the baseline: then only exact counts gate. Progress is called
// before each run. A case in which a figure that gates has changed is counted again, when all others have been counted:
// what else the machine does has passed by then. A change counts if three runs show it.
func (b *Baseline) Counts(ctx context.Context, env []string, elsewhere bool,
	progress func(name string, run int)) ([]Finding, error) {
	found, runs := make([][]Finding, len(b.Cases)), make([][][]results.Figure, len(b.Cases))
	for run := range agreeing {
		for i := range b.Cases {
			c := &b.Cases[i]
			if run > 0 && !slices.ContainsFunc(found[i], Finding.differs) {
				continue
			}
			progress(c.Name, run)
			figures, err := c.Count(ctx, "", env)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			runs[i] = append(runs[i], figures)
			found[i] = c.judge(runs[i], elsewhere)
		}
	}
	return slices.Concat(found...), nil
}

// judge compares runs with the case of a baseline.
func (c *CountedCase) judge(runs [][]results.Figure, elsewhere bool) (out []Finding) {
	now := summarize(runs)
	for _, before := range c.Figures {
		f := Finding{Case: c.Name, Figure: before.Name, Unit: before.Unit, Kind: results.Counted, Better: before.Better,
			Before: before.Median, Gates: before.Gates(), Threshold: before.Threshold(), Bound: before.Bound(),
			Runs: len(runs)}
		told := slices.IndexFunc(now, func(x CountedFigure) bool { return x.Name == before.Name })
		if told >= 0 {
			f.Now = now[told].Median
		}
		if f.Bound < f.Threshold*f.Before {
			f.Bound = 0 // the threshold is the larger one
		}
		switch {
		case f.Now == f.Before:
		case f.Before == 0:
			f.Change = math.MaxFloat64 // JSON has no infinity
		default:
			f.Change = f.Now/f.Before - 1
		}
		if f.Verdict = before.verdict(runs); told < 0 || elsewhere && before.Gates() && !before.Exact() {
			f.Gates, f.Verdict = false, NotCompared
		}
		if f.Before != 0 || f.Now != 0 {
			out = append(out, f)
		}
	}
	return out
}

// verdict says what all runs say of a count; it is as before if they do not agree.
func (f *CountedFigure) verdict(runs [][]results.Figure) (v compare.Verdict) {
	for i, run := range runs {
		one := f.one(run)
		if i > 0 && one != v {
			return AsBefore
		}
		v = one
	}
	return v
}

func (f *CountedFigure) one(run []results.Figure) compare.Verdict {
	now := 0.0
	for _, x := range run {
		if x.Name == f.Name {
			now = x.Value
		}
	}
	more := now > f.Median
	switch {
	case math.Abs(now-f.Median) <= max(f.Threshold()*f.Median, f.Bound()):
		return AsBefore
	case f.Better == "" && more:
		return More
	case f.Better == "":
		return Less
	case more == (f.Better == results.Higher):
		return compare.Better
	}
	return compare.Worse
}

// Conclude sums up.
func (o *Outcome) Conclude() {
	switch gating, _, worse, unsure := o.tally(); {
	case worse > 0:
		o.Verdict = Regression
	case unsure > 0 || gating == 0:
		o.Verdict = Inconclusive
	default:
		o.Verdict = Pass
	}
	if len(o.Counts) > 0 {
		o.Power = append(o.Power, o.countPower())
	}
	if len(o.Timed) > 0 {
		o.Power = append(o.Power, o.timedPower())
	}
}

// timedPower says which changes of timed figures the check finds.
func (o *Outcome) timedPower() string {
	var rows []compare.Row
	for _, f := range o.Timed {
		rows = append(rows, compare.Row{Name: f.Case + " " + f.Figure, Visible: f.Visible})
	}
	seen := compare.Power(rows)
	if seen == "" {
		seen = "too few to say which change such runs find"
	}
	return fmt.Sprintf("timed: %s of 3 arms; %s", results.Plural(int64(o.Timed[0].Runs), "round"), seen)
}

// tally counts the figures that gate. unsure are those of which nobody can tell.
func (o *Outcome) tally() (gating, better, worse, unsure int) {
	for _, f := range o.all() {
		if !f.Gates {
			continue
		}
		gating++
		switch f.Verdict {
		case AsBefore:
		case compare.Better:
			better++
		case compare.Worse:
			worse++
		default:
			unsure++
		}
	}
	return gating, better, worse, unsure
}

// NotCompared names the counts that could not be compared, with their cases; "" if there are none.
func (o *Outcome) NotCompared() string {
	var names []string
	for _, f := range o.Counts {
		if f.Verdict == NotCompared {
			names = append(names, fmt.Sprintf("%s (%s)", f.Figure, f.Case))
		}
	}
	return strings.Join(names, ", ")
}

// ChangedCounts reports whether a count that gates has changed.
func (o *Outcome) ChangedCounts() bool { return slices.ContainsFunc(o.Counts, Finding.differs) }

// differs reports whether a figure that gates is not as before.
func (f Finding) differs() bool { return f.Gates && f.Verdict != AsBefore }

// countPower says which changes of counts the check sees.
func (o *Outcome) countPower() string {
	gating, most := 0, leastThreshold
	for _, f := range o.Counts {
		if f.Gates {
			gating++
			most = max(most, f.Threshold)
		}
	}
	s := fmt.Sprintf("counts: %d gate; the smallest change seen is %.1f %%", gating, 100*leastThreshold)
	if most > leastThreshold {
		s += fmt.Sprintf(", %.1f %% of the count that varies most", 100*most)
	}
	return s + fmt.Sprintf("; a change fails if %d runs show it", agreeing)
}
