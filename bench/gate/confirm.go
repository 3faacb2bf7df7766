package gate

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// Subject is what an outcome is about, so that another machine's outcome about the same can be joined with it.
type Subject struct {
	Baseline results.Build   `json:"baseline"`
	Build    results.Build   `json:"build"`
	Machine  results.Machine `json:"machine"`
}

const maxOutcome = 64 << 20

// ReadOutcome reads an outcome that was written as JSON.
func ReadOutcome(r io.Reader) (*Outcome, error) {
	o := &Outcome{}
	if err := json.NewDecoder(io.LimitReader(r, maxOutcome)).Decode(o); err != nil || o.Verdict == "" {
		return nil, errors.New("not an outcome: want a file of neokv check --format json")
	}
	if len(o.Counts) == 0 && len(o.Rounds) == 0 {
		return nil, errors.New("the outcome has neither counts nor timed rounds")
	}
	return o, nil
}

// Joins says why an outcome cannot be joined with one about a subject that has these parts; nil if it can.
func (o *Outcome) Joins(s *Subject, counts, timed bool) error {
	var wrong []error
	for _, x := range []struct {
		name         string
		theirs, mine results.Build
	}{{"baseline", o.Subject.Baseline, s.Baseline}, {"build", o.Subject.Build, s.Build}} {
		if x.theirs.Commit != x.mine.Commit || x.theirs.Modified || x.mine.Modified {
			wrong = append(wrong, fmt.Errorf("%s: %s there and %s here, want one commit without other changes", x.name,
				x.theirs, x.mine))
		}
	}
	if counts != (len(o.Counts) > 0) || timed != (len(o.Rounds) > 0) {
		wrong = append(wrong, errors.New("it has other parts of the check: want the same --only"))
	}
	return errors.Join(wrong...)
}

// JoinCounts joins the counts with those of another machine. A count differs if it does so on both machines, in
// the same direction. If it does on one of them alone, nobody can tell.
func (o *Outcome) JoinCounts(other *Outcome) {
	for i := range o.Counts {
		f := &o.Counts[i]
		there := slices.IndexFunc(other.Counts, func(x Finding) bool { return x.Case == f.Case && x.Figure == f.Figure })
		theirs := compare.Verdict(AsBefore) // an outcome leaves out counts that both builds have nothing of
		if there >= 0 {
			theirs = other.Counts[there].Verdict
		}
		if f.Gates && f.Verdict != theirs && theirs != NotCompared {
			f.Verdict = NotSure
		}
	}
}
