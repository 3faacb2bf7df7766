package sim

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"
)

// TortureOptions say what Torture runs.
type TortureOptions struct {
	Seed  uint64 // the first
	Seeds int
	// Length is that of a run, in virtual time or, with Real, in real time: on files in a folder of Dir, and on sockets.
	Length time.Duration
	Real   bool
	// Faults are kinds that seeds draw; see Kinds. Scenario is a text in their place that every seed runs: a scenario,
	// or a schedule of faults alone, which then gets the load of the general plan.
	Faults   []string
	Scenario string
	Planted  string        // the name of a mistake to plant; "" for none
	Shrink   time.Duration // how long a failing scenario may be made smaller
	Dir      string        // for histories and pictures; "" for the system's folder of temporary files
	// Progress is called after each run, one at a time; it may be nil.
	Progress func(TortureSitting)
	// Shrinking is called with each smaller scenario that still fails, as its text; it may be nil.
	Shrinking func(text string)
}

// TortureSitting is what a sweep came to, as the log keeps it.
type TortureSitting struct {
	Date    time.Time     `json:"date"`
	Commit  string        `json:"commit,omitempty"` // with "+" behind it if files were changed since
	Time    string        `json:"time"`             // "virtual" or "real"
	Faults  string        `json:"faults"`
	Planted string        `json:"planted,omitempty"`
	First   uint64        `json:"first"`
	Seeds   int           `json:"seeds"`
	Length  string        `json:"length"` // of a run
	Verdict string        `json:"verdict"`
	Found   []string      `json:"found,omitempty"` // a line for each seed that failed
	Acked   int           `json:"acknowledged"`
	Kills   int           `json:"kills"`
	Served  string        `json:"served"` // the longest time until all regions took writes after faults
	States  map[state]int `json:"states"`
	Missing []state       `json:"missing,omitempty"`
	CPU     float64       `json:"cpuSeconds"`
}

// The verdicts of a sitting.
const (
	NothingFound = "nothing found"
	ProblemFound = "found" // or, if a mistake is planted, what it should show
	MistakeLost  = "planted mistake not found"
	StatesMissed = "states missed"
)

// TortureFailure is a seed that failed, made as small as the time allowed.
type TortureFailure struct {
	Seed     uint64
	Problem  string // with the paths of the history and of a picture of it
	Scenario string // the smallest that still failed
	Length   time.Duration
	Tries    int // runs of candidates
}

// enough is how many seeds reach every state for sure. A sweep of so many that misses one fails.
const enough = 500

// Validate returns every problem of the options.
func (o *TortureOptions) Validate() error {
	var wrong []error
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Errorf(format, args...)) }
	if o.Seeds < 1 || o.Seeds > 1_000_000 {
		complain("%d seeds: want 1 to 1000000", o.Seeds)
	}
	if o.Length < time.Second || o.Length > time.Hour {
		complain("a run of %s: want 1s to 1h", o.Length)
	}
	if o.Shrink < 0 || o.Shrink > 24*time.Hour {
		complain("%s to shrink: want 0s to 24h", o.Shrink)
	}
	if err := checkDrawn(o.Faults); err != nil && o.Scenario == "" {
		wrong = append(wrong, err)
	}
	if _, err := o.job(); err != nil {
		wrong = append(wrong, err)
	}
	return errors.Join(wrong...)
}

// job returns what the children do.
func (o *TortureOptions) job() (j job, err error) {
	j = job{Plan: drawnPhrase + strings.Join(o.Faults, " "), First: o.Seed, Count: o.Seeds, Length: o.Length, Dir: o.Dir,
		Mistake: o.Planted, Real: o.Real}
	if len(o.Faults) == 1 && o.Faults[0] == allKinds {
		j.Plan = torturePlan
	}
	if o.Scenario != "" {
		x, err := parseScenario(o.Scenario)
		if err != nil {
			return j, err
		}
		if len(x.mix) == 0 && x.drawn == nil {
			load, err := planOf(general)
			if err != nil {
				return j, err
			}
			x.clients, x.proxy, x.mix = load.clients, load.proxy, load.mix
		}
		j.Plan = x.String()
	}
	if o.Planted != "" {
		_, err = mistakeOf(o.Planted)
	}
	return j, err
}

// torturePlan is the plan in which each seed draws its scenario.
const torturePlan = "torture"

// Bound returns within how many seeds of all faults torture finds a planted mistake, 0 if plans.txt does not say.
func Bound(mistake string) (seeds int) {
	p, err := planOf(torturePlan + "-" + mistake)
	if err != nil {
		return 0
	}
	return p.bound
}

// Torture runs seeds until one fails or, with a planted mistake, until one shows it. The error says what kept it from
// its work. The caller's program must call Child before anything else.
func Torture(ctx context.Context, o TortureOptions) (TortureSitting, *TortureFailure, error) {
	sitting := TortureSitting{Date: time.Now().UTC().Truncate(time.Second), Time: "virtual", First: o.Seed,
		Length: o.Length.String(), Planted: o.Planted, Faults: strings.Join(o.Faults, " ")}
	if err := o.Validate(); err != nil {
		return sitting, nil, err
	}
	j, err := o.job()
	if err != nil {
		return sitting, nil, err
	}
	b, err := newBatch(j)
	if err != nil {
		return sitting, nil, err
	}
	if o.Scenario != "" {
		sitting.Faults = "scenario"
	}
	if o.Real {
		sitting.Time = "real"
	}
	b.stop = func(r simReport) bool { return r.Problem != "" }
	if p, err := planOf(torturePlan + "-" + o.Planted); o.Planted != "" && err == nil {
		b.plan.shows, b.stop = p.shows, b.shows
	}
	if o.Progress != nil {
		b.each = func(b *simBatch) { b.sum(&sitting); o.Progress(sitting) }
	}
	err = b.run(ctx)
	b.sum(&sitting)
	if err != nil {
		return sitting, nil, err
	}
	failed := b.firstFailed(o.Planted != "")
	sitting.Verdict = NothingFound
	switch {
	case failed != nil:
		sitting.Verdict = ProblemFound
	case o.Planted != "":
		sitting.Verdict = MistakeLost
	case j.Plan == torturePlan && !o.Real && sitting.Seeds >= enough && sitting.Missing != nil:
		sitting.Verdict = StatesMissed
	}
	if failed == nil {
		return sitting, nil, nil
	}
	return sitting, b.shrink(ctx, *failed, o), nil
}

// firstFailed returns the first seed that failed or, with a planted mistake, the one that shows it; nil if there is
// none.
func (b *simBatch) firstFailed(planted bool) *simReport {
	if planted && b.plan.shows != nil {
		return b.shown
	}
	if len(b.failed) == 0 {
		return nil
	}
	return &b.failed[0]
}

// sum adds up a batch for a sitting.
func (b *simBatch) sum(x *TortureSitting) {
	x.Seeds, x.Acked, x.Kills, x.CPU = b.seeds, b.stats.Acknowledged, b.stats.Kills, float64(int(b.seconds*10))/10
	x.Served, x.States = b.stats.Served.Round(time.Millisecond).String(), b.stats.States
	x.Found, x.Missing = nil, nil
	for _, r := range b.failed {
		line, _, _ := strings.Cut(r.Problem, "\n")
		x.Found = append(x.Found, fmt.Sprintf("seed %d: %.300s", r.Seed, line))
	}
	for _, s := range states {
		if b.stats.States[s] == 0 {
			x.Missing = append(x.Missing, s)
		}
	}
}
