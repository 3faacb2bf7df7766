package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
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

	Commit string // of the build, for what is kept
	// Tries is how many runs an open finding takes at most before it counts as resolved; 0 keeps no findings. With
	// findings Seeds may be 0, and a seed that shows an open one does not end the sweep.
	Tries    int
	Findings []TortureFinding     // of the sittings before
	Trying   func(TortureFinding) // called before a finding is tried; it may be nil
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
	// Findings are those of the options, as this sitting leaves them, and new ones.
	Findings []TortureFinding `json:"-"`
}

// The verdicts of a sitting.
const (
	NothingFound = "nothing found"
	ProblemFound = "found"             // or, if a mistake is planted, what it should show
	OnlyKnown    = "nothing new found" // but open findings were seen again
	MistakeLost  = "planted mistake not found"
	StatesMissed = "states missed"
)

// TortureFailure is a seed that failed, made as small as the time allowed.
type TortureFailure struct {
	Seed     uint64
	Problem  string // with the paths of the history and of a picture of it
	Class    string // of the problem; see TortureFinding
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
	if o.Seeds < 1 && (o.Seeds < 0 || o.Tries == 0) || o.Seeds > 1_000_000 {
		complain("%d seeds: want 1 to 1000000", o.Seeds)
	}
	if o.Tries < 0 || o.Tries > 1000 {
		complain("%d tries: want 1 to 1000", o.Tries)
	}
	open := 0
	for i := range o.Findings {
		if o.Findings[i].Open() {
			open++
		}
	}
	if open > mostFindings {
		complain("%d open findings: want at most %d, since each takes runs in each sitting", open, mostFindings)
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

// The times of sittings.
const virtualTime, realTime = "virtual", "real"

// Torture tries the open findings again. Then it runs seeds until one fails or, with a planted mistake, until one
// shows it. The error says what kept it from its work; the sitting then has what is known of the findings so far. The
// caller's program must call Child before anything else.
func Torture(ctx context.Context, o TortureOptions) (sitting TortureSitting, _ *TortureFailure, err error) {
	sitting = TortureSitting{Date: time.Now().UTC().Truncate(time.Second), Commit: o.Commit, Time: virtualTime,
		First: o.Seed, Length: o.Length.String(), Planted: o.Planted, Faults: strings.Join(o.Faults, " "),
		Findings: o.Findings}
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
		sitting.Time = realTime
	}
	known := &findings{all: slices.Clone(o.Findings), now: Sight{sitting.Date, o.Commit, o.Planted}, time: sitting.Time,
		tries: o.Tries}
	for i := range known.all {
		known.all[i].Now, known.all[i].Untried = false, ""
	}
	defer func() { sitting.Findings = known.all }()
	fails := func(r simReport) bool { return r.Problem != "" }
	if p, err := planOf(torturePlan + "-" + o.Planted); o.Planted != "" && err == nil {
		b.plan.shows, fails = p.shows, b.shows
	}
	b.stop = func(r simReport) bool { return fails(r) && !known.explains(r) }
	if o.Progress != nil {
		b.each = func(b *simBatch) { b.sum(&sitting); o.Progress(sitting) }
	}
	if err := known.retry(ctx, &o); err != nil {
		return sitting, nil, err
	}
	err = b.run(ctx)
	b.sum(&sitting)
	if err != nil {
		return sitting, nil, err
	}
	var failure *TortureFailure
	if i := slices.IndexFunc(b.failed, b.stop); i >= 0 {
		failure = b.shrink(ctx, b.failed[i], o)
	}
	known.again(b.failed)
	if failure != nil {
		known.add(failure)
	}
	known.end()
	sitting.Verdict = NothingFound
	switch {
	case failure != nil || known.some(FindingNew, FindingReturned):
		sitting.Verdict = ProblemFound
	case known.some(FindingOngoing):
		sitting.Verdict = OnlyKnown
	case o.Planted != "":
		sitting.Verdict = MistakeLost
	case j.Plan == torturePlan && !o.Real && sitting.Seeds >= enough && sitting.Missing != nil:
		sitting.Verdict = StatesMissed
	}
	return sitting, failure, nil
}

// mostFound bounds how many failures a sitting lists: seeds that show open findings do not end it.
const mostFound = 20

// sum adds up a batch for a sitting.
func (b *simBatch) sum(x *TortureSitting) {
	x.Seeds, x.Acked, x.Kills, x.CPU = b.seeds, b.stats.Acknowledged, b.stats.Kills, float64(int(b.seconds*10))/10
	x.Served, x.States = b.stats.Served.Round(time.Millisecond).String(), b.stats.States
	x.Found, x.Missing = nil, nil
	for _, r := range b.failed[:min(len(b.failed), mostFound)] {
		line, _, _ := strings.Cut(r.Problem, "\n")
		x.Found = append(x.Found, fmt.Sprintf("seed %d: %.300s", r.Seed, line))
	}
	for _, s := range states {
		if b.stats.States[s] == 0 {
			x.Missing = append(x.Missing, s)
		}
	}
}
