package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// FindingState is what the latest sitting that has tried a finding says of it.
type FindingState string

// The states of findings.
const (
	FindingNew      FindingState = "new"      // no sitting has seen it before
	FindingOngoing  FindingState = "ongoing"  // it was open, and was seen again
	FindingReturned FindingState = "returned" // it was resolved, and was seen again
	FindingResolved FindingState = "resolved" // none of the tries showed it
)

// Sight is when something was seen, and with which build.
type Sight struct {
	Date   time.Time `json:"date"`
	Commit string    `json:"commit,omitempty"` // with "+" behind it if files were changed since
	// Planted is the mistake that the build had; "" for none.
	Planted string `json:"planted,omitempty"`
}

// TortureFinding is a class of problems that sittings have seen, open unless it is resolved.
type TortureFinding struct {
	// Class is the kind of evidence, and the text of the problem without what differs from run to run. It tells
	// findings apart.
	Class   string       `json:"class"`
	State   FindingState `json:"state"`
	Problem string       `json:"problem"` // its first line, when it was seen last by a fresh seed
	Time    string       `json:"time"`    // "virtual" or "real"
	Seed    uint64       `json:"seed"`
	Command string       `json:"command"` // which runs the seed again
	// Scenario is what the seed draws, made as small as the time allowed, and Length that of its runs. Sittings try this
	// again, since another build may draw something else.
	Scenario string `json:"scenario,omitempty"`
	Length   string `json:"length"`
	First    Sight  `json:"first"`
	Last     Sight  `json:"last"`
	// Tries is how many runs of the scenario the latest sitting that tried it took: none of them showed a resolved
	// finding, and the last one another.
	Tries    int    `json:"tries,omitempty"`
	Resolved *Sight `json:"resolved,omitempty"` // when the finding was resolved last
	// Now says that the state is what this sitting has found. Untried says why this one has not tried an open finding.
	Now     bool   `json:"-"`
	Untried string `json:"-"`
}

// Bounds of a file of findings.
const (
	mostFindings = 200
	maxScenario  = 64 << 10 // bytes of one that a finding keeps
	maxProblem   = 300
)

// UsualTries is how often a sitting tries an open finding before it counts as resolved: a run that fails in one of ten
// cases fails within so many in 96 of 100.
const UsualTries = 30

// Open reports whether the finding is not resolved.
func (f *TortureFinding) Open() bool { return f.State != FindingResolved }

// length returns how long a run of the finding lasts.
func (f *TortureFinding) length() (time.Duration, error) {
	d, err := time.ParseDuration(f.Length)
	if err != nil || d < time.Second || d > time.Hour {
		return 0, fmt.Errorf("length %q: want 1s to 1h", f.Length)
	}
	return d, nil
}

// Validate returns every problem of a finding that was read from a file.
func (f *TortureFinding) Validate() error {
	var wrong []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			wrong = append(wrong, fmt.Errorf(format, args...))
		}
	}
	check(f.Class != "", "no class")
	all := []FindingState{FindingNew, FindingOngoing, FindingReturned, FindingResolved}
	check(slices.Contains(all, f.State), "state %q: want one of %q", f.State, all)
	check(f.Time == virtualTime || f.Time == realTime, "time %q: want %s or %s", f.Time, virtualTime, realTime)
	_, err := f.length()
	check(err == nil, "%v", err)
	check(!f.First.Date.IsZero() && !f.Last.Date.Before(f.First.Date), "first seen at %s, last at %s",
		f.First.Date.Format(time.RFC3339), f.Last.Date.Format(time.RFC3339))
	check(f.Open() || f.Resolved != nil, "resolved, but not when")
	check(len(f.Scenario) <= maxScenario, "a scenario of %d bytes: want at most %d", len(f.Scenario), maxScenario)
	return errors.Join(wrong...)
}

// findings are those of a sitting.
type findings struct {
	all   []TortureFinding
	now   Sight
	time  string // of the sitting
	tries int    // 0 if no findings are kept
}

// of returns the finding of one of the classes that fits, nil if there is none.
func (x *findings) of(classes []string, fits func(*TortureFinding) bool) *TortureFinding {
	for i := range x.all {
		if f := &x.all[i]; slices.Contains(classes, f.Class) && fits(f) {
			return f
		}
	}
	return nil
}

// explains reports whether a run shows an open finding.
func (x *findings) explains(r simReport) bool {
	return x.tries > 0 && x.of(r.Classes, (*TortureFinding).Open) != nil
}

// again takes note of runs that show open findings.
func (x *findings) again(all []simReport) {
	for _, r := range all {
		for i := range x.all {
			if f := &x.all[i]; f.Open() && !f.Now && slices.Contains(r.Classes, f.Class) {
				f.State, f.Last, f.Now = FindingOngoing, x.now, true
			}
		}
	}
}

// add takes note of a failure that no open finding explains: it is new, or a resolved one has returned. It keeps no
// failure without a class.
func (x *findings) add(failure *TortureFailure) {
	if x.tries == 0 || failure.Class == "" {
		return
	}
	line, _, _ := strings.Cut(failure.Problem, "\n")
	f := TortureFinding{Class: failure.Class, State: FindingNew, Problem: strings.ToValidUTF8(
		line[:min(len(line), maxProblem)], ""), Time: x.time, Seed: failure.Seed, Scenario: failure.Scenario,
		Length: failure.Length.String(), First: x.now, Last: x.now, Now: true}
	if len(f.Scenario) > maxScenario {
		f.Scenario = ""
	}
	if before := x.of([]string{f.Class}, func(*TortureFinding) bool { return true }); before != nil {
		f.State, f.First, f.Resolved = FindingReturned, before.First, before.Resolved
		*before = f
		return
	}
	x.all = append(x.all, f)
}

// retry tries the open findings, each until a run shows it. Runs may show something else, which is new.
func (x *findings) retry(ctx context.Context, o *TortureOptions) error {
	if x.tries == 0 {
		return nil
	}
	for i := range x.all {
		f := &x.all[i]
		if !f.Open() || f.Now {
			continue
		}
		length, err := f.length()
		var b *simBatch
		switch {
		case f.Time != x.time:
			err = fmt.Errorf("it is of %s time", f.Time)
		case f.Scenario == "":
			err = errors.New("its scenario was too large to keep")
		case err == nil:
			b, err = newBatch(job{Plan: f.Scenario, Mistake: o.Planted, First: f.Seed, Count: x.tries, Same: true,
				Length: length, Real: o.Real, Dir: o.Dir})
		}
		if err != nil {
			f.Untried = err.Error()
			continue
		}
		b.stop = func(r simReport) bool { return slices.Contains(r.Classes, f.Class) }
		if o.Trying != nil {
			o.Trying(*f)
		}
		if err := b.run(ctx); err != nil {
			return err
		}
		f.Tries = b.seeds
		x.again(b.failed)
		scenario := f.Scenario
		for _, r := range b.failed {
			if !x.explains(r) && len(r.Classes) > 0 {
				x.add(&TortureFailure{Seed: r.Seed, Problem: r.Problem, Class: r.Classes[0], Scenario: scenario,
					Length: length})
			}
		}
	}
	return nil
}

// end resolves what was tried and not seen, and leaves out the resolved findings that were seen longest ago where there
// are too many.
func (x *findings) end() {
	for i := range x.all {
		if f := &x.all[i]; f.Open() && f.Untried == "" && !f.Now {
			now := x.now
			f.State, f.Resolved, f.Now = FindingResolved, &now, true
		}
	}
	for len(x.all) > mostFindings {
		oldest := -1
		for i := range x.all {
			if f := &x.all[i]; !f.Open() && (oldest < 0 || f.Last.Date.Before(x.all[oldest].Last.Date)) {
				oldest = i
			}
		}
		if oldest < 0 {
			return
		}
		x.all = slices.Delete(x.all, oldest, oldest+1)
	}
}

// some reports whether the sitting has seen a finding in one of the states.
func (x *findings) some(states ...FindingState) bool {
	return slices.ContainsFunc(x.all, func(f TortureFinding) bool {
		return f.Now && slices.Contains(states, f.State)
	})
}
