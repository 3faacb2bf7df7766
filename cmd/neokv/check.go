package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"neokv.dev/bench/ab"
	"neokv.dev/bench/gate"
	"neokv.dev/neokv/settings"
	"neokv.dev/profiles"
	"neokv.dev/results"
	"neokv.dev/results/compare"
	"neokv.dev/results/history"
)

// checkFlags are the flags of check.
type checkFlags struct {
	baseline, renew, against string
	prove, profile           string
	set, env                 []string
	command                  []string // the command line as the history may keep it
	maxRegression            string
	maxLatency, confirmWith  string
	slow                     bool
	budget                   time.Duration
	inconclusive, only       string
	pageFlags
	junit, summary, history string
	runs                    int
}

func checkCommand(p process) *cobra.Command {
	f := checkFlags{pageFlags: pageFlags{forms: []string{"table", "md", "json", "html"}, page: "check.html"}}
	c := &cobra.Command{
		Use:   "check",
		Short: "Fail if this build does more work or takes more CPU than that of a baseline",
		Long: `Fail if this build does more work or takes more CPU than that of a baseline: a gate for CI.

Work per operation comes first: a fixed number of operations of one client, counted on a cluster in memory and compared
with the counts of the baseline. Then this build takes turns with the baseline's build and a copy of that, in closed
loops, and their CPU time per operation and their service times are compared. If that does not show that this build is
as good, it is measured for as long again, and all rounds count. A baseline is made by --renew, from several runs; the
baseline's build is built from its commit.

--only counts builds nothing and needs no git history. On another machine, or with another Go release, than the
baseline's it compares the counts that follow from the program alone, and says which others it left out; --against
counts the baseline's build here, too.

Exit status: 0 pass, 3 regression, 4 inconclusive (only with --inconclusive fail; else that passes with a warning),
1 could not measure, 2 usage.`,
		Example: `  neokv check --renew baseline.json
  neokv check --baseline baseline.json --only counts
  neokv check --baseline baseline.json --budget 1m --max-regression 5% --junit check.xml --summary check.md
  neokv check --baseline baseline.json --against program=./neokv.last-release --inconclusive fail
  neokv check --baseline baseline.json --only counts --history history.jsonl && neokv history show history.jsonl
  neokv check --baseline baseline.json --only counts --format html -o check.html`,
		Args: noArgs,
	}
	flags := c.Flags()
	flags.StringVar(&f.baseline, "baseline", "", "`file` to judge by")
	flags.StringVar(&f.renew, "renew", "", "write a new baseline of this build to this `file`, and judge nothing")
	flags.IntVar(&f.runs, "runs", 10,
		"`n`: how many runs of each case a new baseline is made of, or how many trials --prove makes")
	flags.StringVar(&f.prove, "prove", "",
		"check this build against itself, append these trials to this `file`, and say how many of all failed")
	flags.StringVar(&f.against, "against", "",
		"`arm` to time this build beside: program=PATH or revision=GIT (default the baseline's commit)")
	flags.StringVar(&f.profile, "profile", "default", "`profile` of the timed part")
	setFlags(flags, &f.set, "change a setting in the timed part")
	flags.Var(&listValue{into: &f.env, kind: "NAME=VALUE", hide: profiles.ShownVariable}, "env",
		"a variable of the process of this build, `NAME=VALUE`; may be repeated")
	flags.StringVar(&f.maxRegression, "max-regression", "3%",
		"`percent` of CPU time per operation that may not pass, such as 5%")
	flags.StringVar(&f.maxLatency, "max-latency", "20%", "`percent` of service time that may not pass, such as 10%")
	flags.DurationVar(&f.budget, "budget", 3*time.Minute,
		"how long the timed part takes; as long again where that does not show that this build is as good")
	flags.StringVar(&f.inconclusive, "inconclusive", "pass",
		"`pass|fail`: what to do when nobody can tell: pass or fail")
	flags.BoolVar(&f.slow, "slow", false,
		"also compare boot time, memory at rest, size on disk and fail-over time; 4 minutes or --budget, and as long again")
	flags.StringVar(&f.only, "only", "", "only one part: `counts|timed`")
	flags.StringVar(&f.confirmWith, "confirm-with", "",
		"join the verdict with that of another machine: a `file` of check --format json of the same builds")
	f.register(flags)
	flags.StringVar(&f.junit, "junit", "", "write JUnit's XML to this `file`, too")
	flags.StringVar(&f.summary, "summary", "", "append a summary in Markdown to this `file`, too")
	flags.StringVar(&f.history, "history", "", "append the figures of this build to this history, a `file`, too")
	c.RunE = func(c *cobra.Command, _ []string) error {
		f.command = commandLine(c)
		switch {
		case f.renew != "":
			if err := onlyFlags(c.Flags(), "renew", "runs"); err != nil {
				return err
			}
			return f.makeBaseline(c.Context(), p)
		case f.prove != "":
			if err := onlyFlags(c.Flags(), "prove", "runs", "only", "baseline", "budget", "max-regression",
				"max-latency", "profile", "set", "set-from", "slow"); err != nil {
				return err
			}
			return f.tryGate(c.Context(), p)
		case c.Flags().Changed("runs"):
			return &usageError{"--runs is for --prove and --renew"}
		}
		return f.check(c.Context(), p)
	}
	return c
}

// statusError ends neokv with a status of its own.
type statusError struct {
	status int
	text   string
}

func (e *statusError) Error() string { return e.text }

// onlyFlags complains of each flag that is given beside those that --mode looks at.
func onlyFlags(flags *pflag.FlagSet, mode string, looksAt ...string) (err error) {
	flags.Visit(func(given *pflag.Flag) {
		if given.Name != mode && !slices.Contains(looksAt, given.Name) {
			err = errors.Join(err, &usageError{fmt.Sprintf("--%s and --%s exclude each other", mode, given.Name)})
		}
	})
	return err
}

// makeBaseline writes a new baseline.
func (f *checkFlags) makeBaseline(ctx context.Context, p process) error {
	progress := func(name string, run int) {
		fmt.Fprintf(p.stderr, "neokv: %s, run %d of %d\n", name, run+1, f.runs)
	}
	if f.runs < gate.FewestRuns || f.runs > 1000 {
		return &usageError{fmt.Sprintf("--runs %d: want %d to 1000", f.runs, gate.FewestRuns)}
	}
	b, err := gate.Renew(ctx, "", gate.CountCases(), f.runs, progress)
	if err != nil {
		return err
	}
	if b.Build.Modified || b.Build.Commit == "" {
		fmt.Fprintln(p.stderr, "neokv: warning: this build is of no commit alone, so a check cannot build it again")
	}
	return writeOutput(f.renew, os.O_TRUNC, func(w io.Writer) error { return results.PrintJSON(w, b) })
}

func writeOutput(path string, how int, write func(io.Writer) error) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|how, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return write(file)
}

// counting returns what tells the user which case is counted.
func counting(p process) func(name string, run int) {
	return func(name string, run int) { fmt.Fprintf(p.stderr, "neokv: counting %s, run %d\n", name, run+1) }
}

// tryGate checks this build against itself, and says what all trials of the file say of false alarms.
func (f *checkFlags) tryGate(ctx context.Context, p process) (err error) {
	var wrong mistakes
	wrong.check(f.runs >= 1 && f.runs <= 10_000, "--runs %d: want 1 to 10000", f.runs)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.against = "program=" + self
	b, t, err := f.parse(p)
	if err = errors.Join(append(wrong, err)...); err != nil {
		return err
	}
	file, err := os.OpenFile(f.prove, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	trials, err := gate.ReadOwnTrials(file)
	if err != nil {
		return fmt.Errorf("%s: %w", f.prove, err)
	}
	defer tuneGenerator(os.Getenv)()
	h := results.NewHeader()
	exactOnly := b != nil && b.Elsewhere(h.Build, h.Machine) != ""
	for run := range f.runs {
		o := &gate.Outcome{}
		if err := f.measure(ctx, p, b, t, exactOnly, o); err != nil {
			return tooSmall(err)
		}
		o.Conclude()
		trial := gate.NewTrial(f.only, f.budget, o)
		if err := json.NewEncoder(file).Encode(trial); err != nil {
			return err
		}
		trials = append(trials, trial)
		fmt.Fprintf(p.stderr, "neokv: trial %d of %d: %s\n", run+1, f.runs, o.Verdict)
	}
	_, err = fmt.Fprintln(p.stdout, gate.FalseAlarms(trials, f.only, f.budget))
	return err
}

// measure judges the parts that --only names.
func (f *checkFlags) measure(ctx context.Context, p process, b *gate.Baseline, t *gate.Timed, exactOnly bool,
	o *gate.Outcome) (err error) {
	if f.only != "timed" {
		if o.Counts, err = b.Counts(ctx, f.env, exactOnly, counting(p)); err != nil {
			return err
		}
	}
	if f.only != "counts" {
		began := time.Now()
		t.Progress = func(round int) {
			fmt.Fprintf(p.stderr, "neokv: timed round %d, %s so far\n", round+1, time.Since(began).Round(time.Second))
		}
		t.Rounds, t.Impaired = nil, nil
		o.Timed, err = t.Run(ctx)
		o.Seed, o.Rounds = t.Seed, t.Rounds
		o.Warnings = append(o.Warnings, t.Impaired...)
		if err == nil && f.slow {
			var found []gate.Finding
			found, err = t.SlowLane().Run(ctx)
			o.Timed = append(o.Timed, found...)
		}
	}
	return err
}

// parse checks the flags and reads the baseline. Its error names everything that is wrong.
func (f *checkFlags) parse(p process) (b *gate.Baseline, t *gate.Timed, err error) {
	var wrong mistakes
	if f.baseline == "" && f.prove != "" && f.only == "timed" {
		// this build is the baseline's
	} else if f.baseline == "" {
		wrong.check(false, "want --baseline, or --renew to make one")
	} else if file, err := os.Open(f.baseline); err != nil {
		wrong.check(false, "%v", err)
	} else {
		defer file.Close()
		if err = otherKind(f.baseline, "check"); err != nil {
			wrong.add(err)
		} else {
			b, err = gate.ReadBaseline(file)
			wrong.check(err == nil, "%s: %v", f.baseline, err)
		}
	}
	share := func(flag, text string) float64 {
		percent, err := strconv.ParseFloat(strings.TrimSuffix(text, "%"), 64)
		wrong.check(err == nil && percent > 0 && percent <= 100 && strings.HasSuffix(text, "%"),
			"--%s %s: want a share such as 5%%, up to 100%%", flag, text)
		return percent / 100
	}
	most, mostLatency := share("max-regression", f.maxRegression), share("max-latency", f.maxLatency)
	oneOf := func(flag, value string, allowed ...string) {
		wrong.check(slices.Contains(allowed, value), "--%s %s: want %s%s", flag, value, strings.Join(allowed, " or "),
			settings.DidYouMean(value, allowed))
	}
	oneOf("inconclusive", f.inconclusive, "pass", "fail")
	wrong.check(!f.slow || f.only != "counts", "--slow is not for --only counts")
	if f.only != "" {
		oneOf("only", f.only, "counts", "timed")
	}
	wrong.add(f.pageFlags.check(f.baseline, f.history))
	if f.history != "" {
		warnings, err := history.Check(f.history)
		wrong.check(err == nil, "%v", err)
		for _, w := range warnings {
			fmt.Fprintf(p.stderr, "neokv: warning: %s: %s\n", f.history, w)
		}
	}
	for _, e := range f.env {
		wrong.check(strings.Contains(e, "="), "--env %s: want NAME=VALUE", e)
	}
	r, err := profiles.Resolve(profiles.ValueSources{Profile: f.profile, Env: slices.Concat(p.env, f.env), Set: f.set})
	wrong.add(err)
	wrong.check(err != nil || r.Redis.RequirePass == "",
		"redis.requirepass: clusters of check listen on loopback and take no password")
	f.set, _ = profiles.Split(f.set)
	f.env, _ = profiles.SplitVariables(f.env)
	arm, err := ab.ParseArm(f.against)
	wrong.check(err == nil, "--against: %v", err)
	wrong.check(err != nil || arm.NeoKV() && arm.Set == nil && arm.Env == nil && arm.Profile == "",
		"--against %s: want program=PATH or revision=GIT", shownArm(f.against))
	if f.against == "" && b != nil {
		arm.Revision = b.Build.Commit
	}
	arm.Profile, arm.Set = f.profile, f.set
	t = &gate.Timed{A: arm, B: ab.Arm{Profile: f.profile, Set: f.set, Env: f.env}, Cases: gate.TimedCases(),
		Most: most, MostLatency: mostLatency, Budget: f.budget}
	needs := time.Second
	if f.only != "counts" {
		needs = t.Needs()
	}
	wrong.check(f.budget >= needs && f.budget <= 24*time.Hour, "--budget %s: want %s to 24h, since a verdict takes %d "+
		"rounds", f.budget, needs, compare.FewestRounds)
	return b, t, errors.Join(wrong...)
}

// check measures, and prints what it found.
func (f *checkFlags) check(ctx context.Context, p process) error {
	b, t, err := f.parse(p)
	if err != nil {
		return err
	}
	defer tuneGenerator(os.Getenv)()
	var o gate.Outcome
	h := results.NewHeader()
	o.Conditions = f.conditions(b, t, &h)
	o.Subject = gate.Subject{Baseline: b.Build, Build: h.Build, Machine: h.Machine}
	other, err := f.other(&o.Subject)
	if err != nil {
		return err
	}
	if other != nil {
		t.Joined = other.Rounds
		o.Conditions = append(o.Conditions, results.NamedValue{Name: "joined with", Value: fmt.Sprintf("%s, %s, %s",
			f.confirmWith, other.Subject.Machine, results.Plural(int64(len(other.Rounds)), "round"))})
	}
	elsewhere := b.Elsewhere(h.Build, h.Machine)
	recount := elsewhere != "" && (f.only != "counts" || f.against != "")
	if f.only != "counts" || recount {
		builds, err := os.MkdirTemp("", "neokv-build-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(builds)
		if t.A.Program == "" && t.A.Revision == "" {
			return errors.New("the baseline names no commit: want --against program=PATH or revision=GIT, or " +
				"--only counts")
		}
		if b.Build.Modified && f.against == "" {
			o.Warnings = append(o.Warnings,
				"the baseline is of a tree with uncommitted changes; its commit stands for it")
		}
		if t.A.Revision != "" {
			fmt.Fprintf(p.stderr, "neokv: building %s\n", t.A.Revision)
		}
		if err := t.A.Build(ctx, ".", builds); err != nil {
			return fmt.Errorf("%w; --against names another build, --only counts needs none", err)
		}
	}
	if recount && f.only != "timed" {
		o.Warnings = append(o.Warnings, elsewhere+": its build was counted here anew")
		var cases []gate.CountCase
		for _, c := range b.Cases {
			cases = append(cases, c.CountCase)
		}
		if b, err = gate.Renew(ctx, t.A.Program, cases, gate.FewestRuns, counting(p)); err != nil {
			return err
		}
	}
	exactOnly := elsewhere != "" && !recount
	if err := f.measure(ctx, p, b, t, exactOnly, &o); err != nil {
		return tooSmall(err)
	}
	if other != nil {
		o.JoinCounts(other)
	}
	left := o.NotCompared()
	switch {
	case exactOnly && left == "":
		o.Warnings = append(o.Warnings, elsewhere+"; all counts that gate follow from the program alone")
	case exactOnly:
		o.Warnings = append(o.Warnings, fmt.Sprintf("%s: only counts that follow from the program alone were "+
			"compared, not: %s; --against counts the baseline's build here, too", elsewhere, left))
	case left != "":
		o.Warnings = append(o.Warnings, "this build does not tell these counts of the baseline: "+left)
	}
	o.Conclude()
	if o.Verdict == gate.Inconclusive {
		o.Warnings = append(o.Warnings, "inconclusive: this passes, but it does not show that the build is as good; a "+
			"longer --budget, or a quieter machine, may")
	}
	if o.ChangedCounts() {
		why := "if the change is meant"
		if o.Verdict != gate.Regression {
			why = "lest a later build loses the gain"
		}
		o.Next = []string{
			fmt.Sprintf("to see all counts: %s check --baseline %s --only counts --format html -o check.html",
				os.Args[0], f.baseline),
			fmt.Sprintf("%s: %s check --renew %s, from a clean commit, and commit the file, too", why, os.Args[0],
				f.baseline),
		}
	}
	if slices.Contains(p.env, "GITHUB_ACTIONS=true") {
		o.Annotate(p.stderr)
	}
	return errors.Join(f.print(p, &o), f.keep(b, t, &o, h), f.status(&o))
}

// other reads the outcome that --confirm-with names; nil if there is none.
func (f *checkFlags) other(s *gate.Subject) (*gate.Outcome, error) {
	switch {
	case f.confirmWith == "":
		return nil, nil
	case f.against != "":
		return nil, &usageError{"--confirm-with and --against exclude each other: the other machine has the commits"}
	}
	file, err := os.Open(f.confirmWith)
	if err != nil {
		return nil, &usageError{"--confirm-with: " + err.Error()}
	}
	defer file.Close()
	other, err := gate.ReadOutcome(file)
	if err == nil {
		err = other.Joins(s, f.only != "timed", f.only != "counts")
	}
	if err != nil {
		return nil, &usageError{fmt.Sprintf("--confirm-with %s: %v", f.confirmWith, err)}
	}
	return other, nil
}

// tooSmall makes a budget that is too small for this machine an error of the command line.
func tooSmall(err error) error {
	if small := new(gate.BudgetError); errors.As(err, &small) {
		return &usageError{small.Error()}
	}
	return err
}

// conditions says what was compared, on what and when.
func (f *checkFlags) conditions(b *gate.Baseline, t *gate.Timed, h *results.Header) (out []results.NamedValue) {
	add := func(name, value string) { out = append(out, results.NamedValue{Name: name, Value: value}) }
	add("baseline", fmt.Sprintf("%s, %s, made %s", f.baseline, b.Build, b.Made.UTC().Format(time.DateOnly)))
	add("build", h.Build.String())
	if f.only != "timed" {
		add("counts", fmt.Sprintf("%s, profile %s", results.Plural(int64(len(b.Cases)), "case"), f.profile))
	}
	if f.only != "counts" {
		add("timed", fmt.Sprintf("%s in closed loops, for %s", results.Plural(int64(len(t.Cases)), "case"), f.budget))
	}
	add("durability", "not durable (in memory), but for cases on disk")
	add("machine", h.Machine.String())
	add("date", h.Started.Format("2006-01-02 15:04 UTC"))
	return out
}

func (f *checkFlags) print(p process, o *gate.Outcome) error {
	err := f.write(p, func(w io.Writer, format string) error {
		switch format {
		case "md":
			return o.PrintMarkdown(w)
		case "json":
			return results.PrintJSON(w, o)
		case "html":
			return o.PrintHTML(w)
		}
		return o.PrintTable(w)
	})
	if f.junit != "" {
		err = errors.Join(err, writeOutput(f.junit, os.O_TRUNC, o.PrintJUnit))
	}
	if f.summary != "" {
		err = errors.Join(err, writeOutput(f.summary, os.O_APPEND, o.PrintMarkdown))
	}
	return err
}

// keep appends what this build did to the history: an entry for each case.
func (f *checkFlags) keep(b *gate.Baseline, t *gate.Timed, o *gate.Outcome, h results.Header) error {
	if f.history == "" {
		return nil
	}
	h.Command = f.command
	var entries []history.Entry
	add := func(name, profile string, set []string, inMemory bool, findings []gate.Finding) error {
		e := history.Entry{Header: h, Case: name, Warnings: o.Warnings}
		for _, x := range findings {
			if x.Case == name {
				e.Figures = append(e.Figures, results.Figure{Name: x.Figure, Unit: x.Unit, Kind: x.Kind,
					Better: x.Better, Value: x.Now})
			}
		}
		if len(e.Figures) == 0 {
			return nil
		}
		r, err := profiles.Resolve(profiles.ValueSources{Profile: profile, Env: append(os.Environ(), f.env...),
			Set: set})
		if err != nil {
			return err
		}
		describe(&e.Header, r)
		e.Header.Cluster.InMemory = inMemory
		entries = append(entries, e)
		return nil
	}
	var wrong []error
	for _, c := range b.Cases {
		wrong = append(wrong, add(c.Name, "default", c.Set, true, o.Counts))
	}
	for _, c := range slices.Concat(t.Cases, t.SlowLane().Cases) {
		wrong = append(wrong, add(c.Name, t.B.Profile, t.B.Set, !c.OnDisk, o.Timed))
	}
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	return history.Append(f.history, entries...)
}

// statusInconclusive is an exit status of check.
const statusInconclusive = 4

func (f *checkFlags) status(o *gate.Outcome) error {
	switch {
	case o.Verdict == gate.Regression:
		return &statusError{statusBroken, "check: regression"}
	case o.Verdict == gate.Inconclusive && f.inconclusive == "fail":
		return &statusError{statusInconclusive, "check: inconclusive"}
	}
	return nil
}
