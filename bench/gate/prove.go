package gate

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"time"
)

// TrialKind says what a trial of the gate tries: the same build twice, or a build with a mistake.
type TrialKind string

const (
	TimedSame   TrialKind = "timed-same"   // the same build
	TimedSlower TrialKind = "timed-slower" // a build that wastes 5 % of its CPU time
	CountsSame  TrialKind = "counts-same"  // the same build
	CountsMore  TrialKind = "counts-more"  // a build that writes each command of a pipeline as an entry of its own
)

// TrialKinds are all of them.
var TrialKinds = []TrialKind{TimedSame, TimedSlower, CountsSame, CountsMore}

// SlowdownEnv is the variable that makes a neokv waste a share of its CPU time, such as 0.05. Linux alone does so.
const SlowdownEnv = "_NEOKV_SLOWDOWN"

// Right is what a check should say.
func (k TrialKind) Right() Conclusion {
	if k == TimedSlower || k == CountsMore {
		return Regression
	}
	return Pass
}

// Env returns the variables that make the mistake.
func (k TrialKind) Env() []string {
	switch k {
	case TimedSlower:
		return []string{SlowdownEnv + "=0.05"}
	case CountsMore:
		return []string{"NEOKV_RAFT_BATCH_MAX_OPS=1"}
	}
	return nil
}

// Trial is one trial of the gate: a line of a file to which sittings append.
type Trial struct {
	At      time.Time     `json:"at"`
	Commit  string        `json:"commit"`
	CPU     string        `json:"cpu"`
	Cores   int           `json:"cores"`
	Kind    TrialKind     `json:"kind"`
	Budget  time.Duration `json:"budget_ns,omitempty"`
	Took    time.Duration `json:"took_ns"`
	Verdict Conclusion    `json:"verdict"`
	Timed   []Finding     `json:"timed,omitempty"`  // those that gate
	Counts  []Finding     `json:"counts,omitempty"` // those that gate and have changed
}

// ReadTrials reads the trials of all sittings. A last line that is cut off is left out.
func ReadTrials(r io.Reader) (out []Trial, err error) {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	var wrong error
	for n := 1; lines.Scan(); n++ {
		if wrong != nil {
			return nil, wrong
		}
		var t Trial
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil || !slices.Contains(TrialKinds, t.Kind) {
			wrong = fmt.Errorf("line %d: not a trial", n)
			continue
		}
		out = append(out, t)
	}
	if len(out) == 0 && wrong != nil {
		return nil, wrong
	}
	return out, lines.Err()
}

// Proof says what trials together say of the gate, a line for each kind.
func Proof(trials []Trial) (out []string) {
	for _, kind := range TrialKinds {
		n, wrong, unsure := 0, 0, 0
		for _, t := range trials {
			switch {
			case t.Kind != kind:
				continue
			case t.Verdict == Inconclusive:
				unsure++
			case t.Verdict != kind.Right():
				wrong++
			}
			n++
		}
		if n > 0 {
			out = append(out, fmt.Sprintf("%s: all of %d trials should say %s; %d said something else, %d could not tell. "+
				"With 95 %% confidence a trial is wrong in at most %.1f %% of cases", kind, n, kind.Right(), wrong, unsure,
				100*upperBound(wrong, n)))
		}
	}
	return out
}

// upperBound returns the one-sided bound of Clopper and Pearson: the probability of a wrong trial at which only one of
// twenty series of n trials has as few as k wrong ones.
func upperBound(k, n int) float64 {
	if k >= n {
		return 1
	}
	low, high := 0.0, 1.0
	for range 60 {
		p := (low + high) / 2
		sum := 0.0
		for i := range k + 1 {
			choose, _ := math.Lgamma(float64(n + 1))
			a, _ := math.Lgamma(float64(i + 1))
			b, _ := math.Lgamma(float64(n - i + 1))
			sum += math.Exp(choose - a - b + float64(i)*math.Log(p) + float64(n-i)*math.Log1p(-p))
		}
		if sum > 0.05 {
			low = p
		} else {
			high = p
		}
	}
	return high
}

// NewTrial makes a trial of an outcome.
func NewTrial(kind TrialKind, o *Outcome) Trial {
	t := Trial{At: time.Now().UTC(), Kind: kind, Verdict: o.Verdict}
	for _, f := range o.Timed {
		if f.Gates {
			t.Timed = append(t.Timed, f)
		}
	}
	for _, f := range o.Counts {
		if f.Gates && f.Verdict != AsBefore {
			t.Counts = append(t.Counts, f)
		}
	}
	return t
}
