package gate

import (
	"fmt"
	"io"
	"slices"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// Trial is a check of a build against itself: a line of a file to which sittings append.
type Trial struct {
	At      time.Time       `json:"at"`
	Build   results.Build   `json:"build"`
	Machine results.Machine `json:"machine"`
	Only    string          `json:"only,omitempty"` // the part of the check; empty for both
	Budget  time.Duration   `json:"budget_ns"`
	Verdict Conclusion      `json:"verdict"`
	// Findings are those that gate: counts that differ, and all timed ones.
	Findings []Finding `json:"findings,omitempty"`
}

// NewTrial makes a trial of an outcome.
func NewTrial(only string, budget time.Duration, o *Outcome) Trial {
	h := results.NewHeader()
	return Trial{h.Started, h.Build, h.Machine, only, budget, o.Verdict,
		slices.DeleteFunc(o.all(), func(f Finding) bool {
			return !f.Gates || f.Kind == results.Counted && !f.differs()
		})}
}

// ReadOwnTrials reads trials of a build against itself.
func ReadOwnTrials(r io.Reader) ([]Trial, error) {
	return ReadTrials(r, "neokv check --prove", func(t *Trial) bool { return t.Verdict != "" && t.Build.Go != "" })
}

// FalseAlarms says how often trials have failed that had the same parts and the same budget.
func FalseAlarms(trials []Trial, only string, budget time.Duration) string {
	n, wrong, unsure := 0, 0, 0
	for _, t := range trials {
		if t.Only != only || t.Budget != budget {
			continue
		}
		switch n++; t.Verdict {
		case Regression:
			wrong++
		case Inconclusive:
			unsure++
		}
	}
	text := fmt.Sprintf("%s in %s of the same build, %d inconclusive: with 95 %% confidence a check of a build that is "+
		"as good fails in at most %.1f %% of cases", results.Plural(int64(wrong), "false alarm"),
		results.Plural(int64(n), "trial"), unsure, 100*compare.AtMost(wrong, n))
	if n >= strictTrials {
		advice := "is not advised here"
		if (wrong+unsure)*strictTrials <= n {
			advice = "is advised here"
		}
		text += fmt.Sprintf("; --inconclusive fail %s, since it would fail %d", advice, wrong+unsure)
	}
	return text
}

// strictTrials are the trials of which at most one in so many may fail or be inconclusive where inconclusive checks
// should fail.
const strictTrials = 60
