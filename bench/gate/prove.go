package gate

import (
	"bufio"
	"bytes"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"
	"time"

	"neokv.dev/results/compare"
)

// TrialKind names what a trial of the gate tries: the same build twice, or a build with a mistake.
type TrialKind string

const (
	TimedSame     TrialKind = "timed-same"
	TimedSlower   TrialKind = "timed-slower"
	CountsSame    TrialKind = "counts-same"
	CountsEntries TrialKind = "counts-more" // entries; the name is that of the first trials
	CountsSync    TrialKind = "counts-sync"
	CountsBytes   TrialKind = "counts-bytes"
	CountsNoSync  TrialKind = "counts-less-sync"
	CountsNoBytes TrialKind = "counts-less-bytes"
)

// SlowdownEnv is the variable that makes a neokv waste a share of its CPU time, such as 0.05. Linux alone does so.
const SlowdownEnv = "_NEOKV_SLOWDOWN"

// Attempt is a kind of trial.
type Attempt struct {
	Kind TrialKind
	// Env are the variables that make the mistake, and Mistake is the change of the source that does.
	Env     []string
	Mistake *Mistake
	// Gain turns the trial round: the build with the mistake is that of the baseline, and the one without it is
	// checked.
	Gain bool
	// The check should say Verdict, and of Figure, in some case, that it is Direction. Without a figure no count may
	// differ.
	Verdict   Conclusion
	Figure    string
	Direction compare.Verdict
}

// Attempts are all kinds.
var Attempts = []Attempt{
	{Kind: TimedSame, Verdict: Pass},
	// A build that wastes 5 % of its CPU time.
	{Kind: TimedSlower, Verdict: Regression, Env: []string{SlowdownEnv + "=0.05"}, Figure: "CPU",
		Direction: compare.Worse},
	{Kind: CountsSame, Verdict: Pass},
	// A build that writes each command of a pipeline as an entry of its own.
	{Kind: CountsEntries, Verdict: Regression, Env: []string{"NEOKV_RAFT_BATCH_MAX_OPS=1"}, Figure: "Raft entries",
		Direction: compare.Worse},
	{Kind: CountsSync, Verdict: Regression, Mistake: moreSyncs, Figure: "syncs", Direction: compare.Worse},
	{Kind: CountsBytes, Verdict: Regression, Mistake: moreBytes, Figure: "WAL bytes", Direction: compare.Worse},
	{Kind: CountsNoSync, Verdict: Pass, Mistake: moreSyncs, Gain: true, Figure: "syncs", Direction: compare.Better},
	{Kind: CountsNoBytes, Verdict: Pass, Mistake: moreBytes, Gain: true, Figure: "WAL bytes", Direction: compare.Better},
}

// FindAttempt returns the attempt of a kind, nil if there is none.
func FindAttempt(kind TrialKind) *Attempt {
	i := slices.IndexFunc(Attempts, func(a Attempt) bool { return a.Kind == kind })
	if i < 0 {
		return nil
	}
	return &Attempts[i]
}

// Counts reports whether the attempt is about counts.
func (a *Attempt) Counts() bool { return strings.HasPrefix(string(a.Kind), "counts") }

// right reports whether a trial said what it should.
func (a *Attempt) right(t *Trial) bool {
	if a.Figure == "" {
		return t.Verdict == a.Verdict && len(t.Counts) == 0
	}
	return t.Verdict == a.Verdict && slices.ContainsFunc(slices.Concat(t.Timed, t.Counts), func(f Finding) bool {
		return f.Figure == a.Figure && f.Verdict == a.Direction
	})
}

// should says what a trial should say.
func (a *Attempt) should() string {
	if a.Figure == "" {
		return string(a.Verdict)
	}
	return fmt.Sprintf("%s and that %s is %s", a.Verdict, a.Figure, a.Direction)
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
		if err := json.Unmarshal(lines.Bytes(), &t); err != nil || FindAttempt(t.Kind) == nil {
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

// trialsFile has the trials of this build's commit.
//
//go:embed trials.jsonl
var trialsFile []byte

// KnownTrials returns the trials that this program was built with: bench/gate/trials.jsonl.
func KnownTrials() []Trial {
	trials, err := ReadTrials(bytes.NewReader(trialsFile))
	if err != nil {
		panic(err) // a test reads the file
	}
	return trials
}

// Proof says what trials together say of the gate, a line for each kind.
func Proof(trials []Trial) (out []string) {
	for _, a := range Attempts {
		n, wrong, unsure := 0, 0, 0
		for _, t := range trials {
			switch {
			case t.Kind != a.Kind:
				continue
			case t.Verdict == Inconclusive:
				unsure++
			case !a.right(&t):
				wrong++
			}
			n++
		}
		if n > 0 {
			out = append(out, fmt.Sprintf("%s: all of %d trials should say %s; %d said something else, %d could not tell. "+
				"With 95 %% confidence a trial is wrong in at most %.1f %% of cases", a.Kind, n, a.should(), wrong, unsure,
				100*upperBound(wrong, n)))
		}
	}
	return out
}

// falseAlarms says how often trials of the same build have failed. Of timed trials it takes those that had no more
// time.
func falseAlarms(trials []Trial, kind TrialKind, budget time.Duration) string {
	n, wrong := 0, 0
	for _, t := range trials {
		if t.Kind == kind && t.Budget <= budget {
			if n++; t.Verdict == Regression {
				wrong++
			}
		}
	}
	if n == 0 {
		return "false alarms: no trials are known"
	}
	return fmt.Sprintf("false alarms: %d in %d trials of the same build (%s), so with 95 %% confidence at most %.1f %%",
		wrong, n, kind, 100*upperBound(wrong, n))
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
		if f.differs() {
			t.Counts = append(t.Counts, f)
		}
	}
	return t
}
