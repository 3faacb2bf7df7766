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

	"neokv.dev/bench"
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
	prove                    string
	trials                   []string
	profile                  string
	set, env                 []string
	maxRegression            string
	budget                   time.Duration
	inconclusive, only       string
	pageFlags
	junit, summary, history string
	runs                    int
	withoutBaseline         bool
}

func checkCommand(p process) *cobra.Command {
	f := checkFlags{pageFlags: pageFlags{forms: []string{"table", "md", "json", "html"}, page: "check.html"}}
	c := &cobra.Command{
		Use:   "check",
		Short: "Fail if this build does more work or takes more CPU than that of a baseline",
		Long: `Fail if this build does more work or takes more CPU than that of a baseline: a gate for CI.

Work per operation comes first: a fixed number of operations of one client, counted on a cluster in memory and compared
with the counts of the baseline. Then this build runs at the same time as the baseline's build and a copy of that, at a
rate that leaves the machine room, and their CPU time per operation is compared. Each is measured again before it fails.
A baseline is made by --renew, from several runs; the baseline's build is built from its commit.

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
	flags.IntVar(&f.runs, "runs", 10, "how many `runs` of each case a new baseline is made of")
	flags.StringVar(&f.prove, "prove", "",
		"try the gate on this build itself and on one with a mistake, --runs times, and append the trials to this `file`")
	flags.StringSliceVar(&f.trials, "trial", trialNames(), "`kinds` of trials of --prove; those of counts want --baseline")
	flags.StringVar(&f.against, "against", "",
		"`arm` to time this build beside: program=PATH or revision=GIT (default the baseline's commit)")
	flags.StringVar(&f.profile, "profile", "default", "`profile` of the timed part")
	flags.StringArrayVar(&f.set, "set", nil, "change a setting in the timed part, `name=value`; may be repeated")
	flags.StringArrayVar(&f.env, "env", nil, "a variable of the process of this build, `NAME=VALUE`; may be repeated")
	flags.StringVar(&f.maxRegression, "max-regression", "5%", "CPU time per operation: how much more may `not` pass")
	flags.DurationVar(&f.budget, "budget", 3*time.Minute, "how long the timed part takes; as long again before it fails")
	flags.StringVar(&f.inconclusive, "inconclusive", "pass", "`what` to do when nobody can tell: pass or fail")
	flags.StringVar(&f.only, "only", "", "only one `part`: counts or timed")
	f.register(flags)
	flags.StringVar(&f.junit, "junit", "", "write JUnit's XML to this `file`, too")
	flags.StringVar(&f.summary, "summary", "", "append a summary in Markdown to this `file`, too")
	flags.StringVar(&f.history, "history", "", "append the figures of this build to this history, a `file`, too")
	c.RunE = func(c *cobra.Command, _ []string) error {
		switch {
		case f.renew != "":
			if err := onlyFlags(c.Flags(), "renew", "runs"); err != nil {
				return err
			}
			return f.makeBaseline(c.Context(), p)
		case f.prove != "":
			if err := onlyFlags(c.Flags(), "prove", "runs", "trial", "baseline", "budget", "max-regression", "profile",
				"set"); err != nil {
				return err
			}
			return f.proveGate(c.Context(), p, c.Flags().Changed("runs"))
		}
		for name, modes := range map[string]string{"runs": "--prove and --renew", "trial": "--prove"} {
			if c.Flags().Changed(name) {
				return &usageError{fmt.Sprintf("--%s is for %s", name, modes)}
			}
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
	return writeOutput(f.renew, os.O_TRUNC, b.Write)
}

func writeOutput(path string, how int, write func(io.Writer) error) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|how, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	return write(file)
}

func trialNames() (names []string) {
	for _, a := range gate.Attempts {
		names = append(names, string(a.Kind))
	}
	return names
}

// proveGate tries the gate, and says what all trials of the file say together.
func (f *checkFlags) proveGate(ctx context.Context, p process, runsGiven bool) error {
	var wrong []error
	self, err := os.Executable()
	if err != nil {
		return err
	}
	f.against = "program=" + self
	var attempts []*gate.Attempt
	needBaseline := false
	for _, name := range f.trials {
		a := gate.FindAttempt(gate.TrialKind(name))
		if a == nil {
			wrong = append(wrong, &usageError{fmt.Sprintf("--trial %s: want some of %s%s", name,
				strings.Join(trialNames(), ", "), settings.DidYouMean(name, trialNames()))})
			continue
		}
		attempts = append(attempts, a)
		needBaseline = needBaseline || a.Counts()
	}
	if !runsGiven {
		f.runs = 1
	}
	if f.runs < 1 || f.runs > 10_000 {
		wrong = append(wrong, &usageError{fmt.Sprintf("--runs %d: want 1 to 10000", f.runs)})
	}
	f.withoutBaseline = !needBaseline && f.baseline == ""
	b, timed, err := f.parse(p)
	if err = errors.Join(append(wrong, err)...); err != nil {
		return err
	}
	defer tuneGenerator(os.Getenv)()
	builds, err := os.MkdirTemp("", "neokv-build-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(builds)
	h := results.NewHeader()
	sitting := proof{baseline: b, timed: timed, builds: builds, programs: map[*gate.Mistake]string{},
		gains: map[*gate.Mistake]*gate.Baseline{}, elsewhere: b != nil && b.Elsewhere(h.Build, h.Machine) != ""}
	for run := range f.runs {
		for _, a := range attempts {
			began := time.Now()
			o, err := sitting.try(ctx, a)
			if err != nil {
				return fmt.Errorf("trial %s: %w", a.Kind, err)
			}
			trial := gate.NewTrial(a.Kind, o)
			trial.Commit, trial.CPU, trial.Cores = h.Build.Commit, h.Machine.CPU, h.Machine.Cores
			if trial.Took = time.Since(began); o.Timed != nil {
				trial.Budget = f.budget
			}
			if err := writeOutput(f.prove, os.O_APPEND, func(w io.Writer) error {
				return json.NewEncoder(w).Encode(trial)
			}); err != nil {
				return err
			}
			fmt.Fprintf(p.stderr, "neokv: run %d of %d, %s: %s after %s\n", run+1, f.runs, a.Kind, o.Verdict,
				trial.Took.Round(time.Second))
		}
	}
	file, err := os.Open(f.prove)
	if err != nil {
		return err
	}
	defer file.Close()
	trials, err := gate.ReadTrials(file)
	if err != nil {
		return fmt.Errorf("%s: %w", f.prove, err)
	}
	for _, line := range gate.Proof(trials) {
		if _, err := fmt.Fprintln(p.stdout, line); err != nil {
			return err
		}
	}
	return nil
}

// proof is what the trials of a sitting have in common.
type proof struct {
	baseline  *gate.Baseline
	elsewhere bool // the baseline is of another machine
	timed     *gate.Timed
	builds    string // a folder
	programs  map[*gate.Mistake]string
	gains     map[*gate.Mistake]*gate.Baseline // of the builds with mistakes
}

// try tries the gate once. It builds each mistake when it first needs it.
func (x *proof) try(ctx context.Context, a *gate.Attempt) (o *gate.Outcome, err error) {
	o = &gate.Outcome{}
	defer func() { o.Conclude(nil, 0) }()
	if !a.Counts() {
		t := *x.timed
		t.Plan.B.Env = a.Env
		t.Plan.Load.Seed = uint64(time.Now().UnixNano()) >> 11
		o.Timed, err = t.Run(ctx, func(compare.Block) error { return nil })
		return o, err
	}
	b, how := x.baseline, gate.Counting{Env: a.Env, Elsewhere: x.elsewhere}
	if a.Mistake != nil {
		if x.programs[a.Mistake] == "" {
			if x.programs[a.Mistake], err = a.Mistake.Build(ctx, ".", x.builds); err != nil {
				return o, err
			}
		}
		how.Program = x.programs[a.Mistake]
	}
	if a.Gain {
		if x.gains[a.Mistake] == nil {
			if x.gains[a.Mistake], err = b.Of(ctx, how.Program); err != nil {
				return o, err
			}
		}
		b, how.Program = x.gains[a.Mistake], ""
	}
	o.Counts, err = b.Counts(ctx, how)
	return o, err
}

// parse checks the flags and reads the baseline. Its error names everything that is wrong.
func (f *checkFlags) parse(p process) (b *gate.Baseline, t *gate.Timed, err error) {
	var wrong []error
	complain := func(format string, args ...any) {
		wrong = append(wrong, &usageError{fmt.Sprintf(format, args...)})
	}
	if f.withoutBaseline {
		// only timed trials of the gate
	} else if f.baseline == "" {
		complain("want --baseline, or --renew to make one")
	} else if file, err := os.Open(f.baseline); err != nil {
		wrong = append(wrong, &usageError{err.Error()})
	} else {
		defer file.Close()
		if b, err = gate.ReadBaseline(file); err != nil {
			complain("%s: %v", f.baseline, err)
		}
	}
	percent, err := strconv.ParseFloat(strings.TrimSuffix(f.maxRegression, "%"), 64)
	if err != nil || percent <= 0 || percent > 100 || !strings.HasSuffix(f.maxRegression, "%") {
		complain("--max-regression %s: want a share such as 5%%, up to 100%%", f.maxRegression)
	}
	if f.budget < time.Second || f.budget > 24*time.Hour {
		complain("--budget %s: want 1s to 24h", f.budget)
	}
	oneOf := func(flag, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			complain("--%s %s: want %s%s", flag, value, strings.Join(allowed, " or "),
				settings.DidYouMean(value, allowed))
		}
	}
	oneOf("inconclusive", f.inconclusive, "pass", "fail")
	if f.only != "" {
		oneOf("only", f.only, "counts", "timed")
	}
	if err := f.pageFlags.check(f.baseline, f.history); err != nil {
		wrong = append(wrong, err)
	}
	if f.history != "" {
		if warnings, err := history.Check(f.history); err != nil {
			complain("%v", err)
		} else {
			for _, w := range warnings {
				fmt.Fprintf(p.stderr, "neokv: warning: %s: %s\n", f.history, w)
			}
		}
	}
	for _, e := range f.env {
		if !strings.Contains(e, "=") {
			complain("--env %s: want NAME=VALUE", e)
		}
	}
	if _, err := profiles.Resolve(profiles.ValueSources{Profile: f.profile, Env: p.env, Set: f.set}); err != nil {
		wrong = append(wrong, err)
	}
	arm, err := ab.ParseArm(f.against)
	switch {
	case err != nil:
		complain("--against: %v", err)
	case !arm.NeoKV() || arm.Set != nil || arm.Env != nil || arm.Profile != "":
		complain("--against %s: want program=PATH or revision=GIT", f.against)
	}
	if f.against == "" && b != nil {
		arm.Revision = b.Build.Commit
	}
	arm.Profile, arm.Set = f.profile, f.set
	t = &gate.Timed{Most: percent / 100, Budget: f.budget, Plan: ab.Plan{
		A: arm, B: ab.Arm{Profile: f.profile, Set: f.set, Env: f.env}, Control: true, Together: true, Rounds: 1000,
		InMemory: true, Load: timedLoad(),
	}}
	return b, t, errors.Join(wrong...)
}

// timedLoad is what each arm gets in the timed part: a rate at which three of them leave a machine of two cores room.
func timedLoad() bench.Options {
	rate, err := bench.ParsePace("2000")
	if err != nil {
		panic(err)
	}
	return bench.Options{
		Duration: 3 * time.Second, Warmup: 500 * time.Millisecond, Seed: uint64(time.Now().UnixNano()) >> 11,
		Groups: []bench.GroupOptions{{Workload: "ycsb-a", Clients: 4, Pipeline: 16, Rate: rate, Records: 1000, Elements: 10,
			ValueSize: 100}},
	}
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
	elsewhere := b.Elsewhere(h.Build, h.Machine)
	recount := elsewhere != "" && (f.only != "counts" || f.against != "")
	if f.only != "counts" || recount {
		builds, err := os.MkdirTemp("", "neokv-build-")
		if err != nil {
			return err
		}
		defer os.RemoveAll(builds)
		if t.Plan.A.Program == "" && t.Plan.A.Revision == "" {
			return errors.New("the baseline names no commit: want --against program=PATH or revision=GIT, or --only counts")
		}
		if b.Build.Modified && f.against == "" {
			o.Warnings = append(o.Warnings, "the baseline is of a tree with uncommitted changes; its commit stands for it")
		}
		if t.Plan.A.Revision != "" {
			fmt.Fprintf(p.stderr, "neokv: building %s\n", t.Plan.A.Revision)
		}
		if err := t.Plan.A.Build(ctx, ".", builds); err != nil {
			return fmt.Errorf("%w; --against names another build, --only counts needs none", err)
		}
	}
	if f.only != "timed" {
		how := gate.Counting{Env: f.env, Elsewhere: elsewhere != "" && !recount, Progress: func(name string, run int) {
			fmt.Fprintf(p.stderr, "neokv: counting %s, run %d\n", name, run+1)
		}}
		if recount {
			o.Warnings = append(o.Warnings, elsewhere+": its build was counted here anew")
			var cases []gate.CountCase
			for _, c := range b.Cases {
				cases = append(cases, c.CountCase)
			}
			if b, err = gate.Renew(ctx, t.Plan.A.Program, cases, gate.FewestRuns, how.Progress); err != nil {
				return err
			}
		}
		if o.Counts, err = b.Counts(ctx, how); err != nil {
			return err
		}
		left := o.NotCompared()
		switch {
		case how.Elsewhere && left == "":
			o.Warnings = append(o.Warnings, elsewhere+"; all counts that gate follow from the program alone")
		case how.Elsewhere:
			o.Warnings = append(o.Warnings, fmt.Sprintf("%s: only counts that follow from the program alone were compared, "+
				"not: %s; --against counts the baseline's build here, too", elsewhere, left))
		case left != "":
			o.Warnings = append(o.Warnings, "this build does not tell these counts of the baseline: "+left)
		}
	}
	if f.only != "counts" {
		began := time.Now()
		t.Plan.Progress = func(round int, arm compare.Side) {
			if arm == compare.SideB {
				fmt.Fprintf(p.stderr, "neokv: timed round %d, %s so far\n", round+1, time.Since(began).Round(time.Second))
			}
		}
		if o.Timed, err = t.Run(ctx, func(compare.Block) error { return nil }); err != nil {
			return err
		}
	}
	o.Conclude(gate.KnownTrials(), f.budget)
	if o.Verdict == gate.Inconclusive {
		o.Warnings = append(o.Warnings, "nobody can tell; a longer --budget, or a quieter machine, may")
	}
	if o.ChangedCounts() {
		why := "if the change is meant"
		if o.Verdict != gate.Regression {
			why = "lest a later build loses the gain"
		}
		o.Next = []string{
			fmt.Sprintf("to see all counts: %s check --baseline %s --only counts --format html -o check.html", os.Args[0],
				f.baseline),
			fmt.Sprintf("%s: %s check --renew %s, from a clean commit, and commit the file, too", why, os.Args[0], f.baseline),
		}
	}
	return errors.Join(f.print(p, &o), f.keep(b, t, &o, h), f.status(&o))
}

func (f *checkFlags) print(p process, o *gate.Outcome) error {
	err := f.write(p, func(w io.Writer) error {
		switch f.format {
		case "md":
			return o.PrintMarkdown(w)
		case "json":
			return o.PrintJSON(w)
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

// keep appends what this build did to the history: an entry for each case, and one for the timed part.
func (f *checkFlags) keep(b *gate.Baseline, t *gate.Timed, o *gate.Outcome, h results.Header) error {
	if f.history == "" {
		return nil
	}
	h.Command = withoutSecrets(h.Command)
	var entries []history.Entry
	add := func(name, profile string, set []string, findings []gate.Finding) error {
		e := history.Entry{Header: h, Case: name, Warnings: o.Warnings}
		for _, x := range findings {
			if x.Case == name {
				e.Figures = append(e.Figures, results.Figure{Name: x.Figure, Unit: x.Unit, Kind: x.Kind, Better: x.Better,
					Value: x.Now})
			}
		}
		if len(e.Figures) == 0 {
			return nil
		}
		r, err := profiles.Resolve(profiles.ValueSources{Profile: profile, Env: append(os.Environ(), f.env...), Set: set})
		if err != nil {
			return err
		}
		describe(&e.Header, r)
		e.Header.Cluster.InMemory = true
		entries = append(entries, e)
		return nil
	}
	var wrong []error
	for _, c := range b.Cases {
		wrong = append(wrong, add(c.Name, "default", c.Set, o.Counts))
	}
	wrong = append(wrong, add(gate.TimedCase, t.Plan.B.Profile, t.Plan.B.Set, o.Timed))
	if err := errors.Join(wrong...); err != nil {
		return err
	}
	return history.Append(f.history, entries...)
}

// Exit status of check.
const (
	statusRegression   = 3
	statusInconclusive = 4
)

func (f *checkFlags) status(o *gate.Outcome) error {
	switch {
	case o.Verdict == gate.Regression:
		return &statusError{statusRegression, "check: regression"}
	case o.Verdict == gate.Inconclusive && f.inconclusive == "fail":
		return &statusError{statusInconclusive, "check: inconclusive"}
	}
	return nil
}
