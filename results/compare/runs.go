package compare

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"neokv.dev/results"
)

// Runs are the results of one side, of runs that stand each for itself.
type Runs struct {
	Name  string
	Files []results.ResultFile
}

// OfRuns compares two sides. A run counts once, however often and under whichever name it is given. The error has a
// line for each thing that keeps the runs from being compared. With anyway, runs that are unsound, and sides of several
// setups, are compared all the same, and Marks names them.
func OfRuns(a, b Runs, anyway bool) (*Delta, error) {
	var marks []string
	var warned [][]string
	warnings, wrong := once(&a, &b)
	if wrong != nil {
		return nil, errors.Join(wrong...)
	}
	all := slices.Concat(a.Files, b.Files)
	for _, f := range all {
		if err := Comparable(&all[0].Header, &f.Header); err != nil {
			for line := range strings.Lines(err.Error()) {
				wrong = append(wrong, fmt.Errorf("%s and %s have different loads: %s", all[0].Name, f.Name,
					strings.TrimSpace(line)))
			}
		}
		for _, why := range unsound(f.Result) {
			marks = append(marks, f.Name+": "+why)
		}
		warned = append(warned, f.Measured().Warnings)
	}
	warnings = append(warnings, counted("runs", warned)...)
	marks = slices.Concat(marks, a.several("A"), b.several("B"))
	if !anyway {
		for _, mark := range marks {
			wrong = append(wrong, errors.New(mark+"; --anyway compares it all the same"))
		}
	}
	if wrong != nil {
		return nil, errors.Join(wrong...)
	}
	c := Sides(a.figures(), b.figures(), Primary(&all[0].Header))
	c.A, c.B, c.Marks, c.Warnings = a.Name, b.Name, marks, append(c.Warnings, warnings...)
	c.Setup, c.Conditions = setupOf(a.headers(), b.headers()), differences(&a, &b)
	c.Setup = append(c.Setup, Condition{"runs", fmt.Sprint(len(a.Files)), fmt.Sprint(len(b.Files))})
	if !alternate(a.started(), b.started()) {
		c.CannotTell("the runs of A and B did not alternate in time, so a change of the machine in between would " +
			"look like one of B")
		c.Next = "this would tell: " + inTurn(&a, &b)
	}
	return c, nil
}

func (r *Runs) headers() (out []*results.Header) {
	for i := range r.Files {
		out = append(out, &r.Files[i].Header)
	}
	return out
}

func (r *Runs) started() (out []time.Time) {
	for _, h := range r.headers() {
		out = append(out, h.Started)
	}
	return out
}

func (r *Runs) figures() (out [][]results.Figure) {
	for _, f := range r.Files {
		s := f.Measured()
		out = append(out, s.Figures(&f.Header))
	}
	return out
}

// once leaves each run to its side once. What tells runs apart is their header, which has the nanosecond of the start,
// the seed and all else that was known before the load. It warns of files that are left out. It is an error if both
// sides have a run, and if files that are of one run hold different things.
func once(a, b *Runs) (warnings []string, wrong []error) {
	type known struct {
		side       *Runs
		name, text string
	}
	runs := map[string]known{}
	for _, side := range []*Runs{a, b} {
		kept := side.Files[:0:0]
		for _, f := range side.Files {
			id, text := asText(f.Header), asText([]any{f.Summary, f.Intervals})
			before, seen := runs[id]
			switch {
			case !seen:
				runs[id] = known{side, f.Name, text}
				kept = append(kept, f)
			case before.text != text:
				wrong = append(wrong, fmt.Errorf("%s and %s are of the same run and hold different things: one of "+
					"them was cut short or edited", before.name, f.Name))
			case before.side != side:
				wrong = append(wrong, fmt.Errorf("%s and %s are the same run, which cannot be on both sides",
					before.name, f.Name))
			default:
				warnings = append(warnings, fmt.Sprintf("%s is the same run as %s and does not count", f.Name,
					before.name))
			}
		}
		side.Files = kept
	}
	return warnings, wrong
}

func asText(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		panic(err) // it has been read from JSON
	}
	return string(text)
}

// unsound says why the figures of a run are not those of its load and its target alone. Operations without an answer
// are no such reason: they are in the figures.
func unsound(r *results.Result) (out []string) {
	s := r.Summary
	switch {
	case s == nil:
		return []string{"the run did not come to its end"}
	case s.Failure != "":
		out = append(out, "the run failed: "+s.Failure)
	case s.Interrupted:
		out = append(out, "the run was interrupted")
	}
	if sched := r.Header.Schedule; sched != nil && sched.Faults > 0 {
		out = append(out, "faults were brought about: "+sched.String())
	}
	for _, e := range s.Events {
		if e.Error != "" {
			out = append(out, fmt.Sprintf("at %.1f s %s: %s", e.At, e.Do, e.Error))
		}
	}
	return out
}

// several says in what the setups of the runs of a side differ.
func (r *Runs) several(side string) (out []string) {
	for _, f := range results.Facts(r.Files) {
		if !f.Differ || f.PerRun() || f.OfLoad() {
			continue
		}
		other := slices.IndexFunc(f.Values, func(v string) bool { return v != f.Values[0] })
		out = append(out, fmt.Sprintf("side %s has several setups: %s: %s in %s and %s in %s", side, f.Name,
			orNone(f.Values[0]), r.Files[0].Name, orNone(f.Values[other]), r.Files[other].Name))
	}
	return out
}

// differences are the conditions that not all runs of both sides share.
func differences(a, b *Runs) (out []Condition) {
	for _, f := range results.Facts(slices.Concat(a.Files, b.Files)) {
		if f.Differ && !f.PerRun() {
			out = append(out, Condition{f.Name, listed(f.Values[:len(a.Files)]), listed(f.Values[len(a.Files):])})
		}
	}
	return out
}

// alternate reports whether the runs of two sides took turns: no more than two of a side followed each other.
func alternate(a, b []time.Time) bool {
	type start struct {
		at   time.Time
		side int
	}
	var all []start
	for side, times := range [][]time.Time{a, b} {
		for _, at := range times {
			all = append(all, start{at, side})
		}
	}
	slices.SortStableFunc(all, func(x, y start) int { return x.at.Compare(y.at) })
	for i := 2; i < len(all); i++ {
		if all[i].side == all[i-1].side && all[i].side == all[i-2].side {
			return false
		}
	}
	return true
}
