package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"neokv.dev/bench"
	"neokv.dev/bench/ab"
	"neokv.dev/neokv/settings"
	"neokv.dev/profiles"
	"neokv.dev/results"
	"neokv.dev/results/compare"
	"neokv.dev/results/report"
)

// blockFlags are the flags of verbs that measure a load again and again, each time for a block of time, in clusters of
// their own.
type blockFlags struct {
	benchFlags
	block  time.Duration
	format string
}

// register registers the flags of a verb that calls its blocks so.
func (f *blockFlags) register(c *cobra.Command, block string, forms []string) {
	flags := c.Flags()
	flags.DurationVar(&f.block, "block", 3*time.Second, "how long a "+block+" is measured")
	flags.StringVar(&f.dir, "dir", "", "`folder` below which the data is (default that for temporary files)")
	f.outFlags.register(flags, fmt.Sprintf("`file` for the %ss (default neokv-%s-<UTC time>.jsonl)", block, c.Name()))
	flags.StringVar(&f.format, "format", forms[0], "`format`, one of "+strings.Join(forms, ", "))
	for _, name := range []string{"workload", "clients", "pipeline", "rate", "warmup", "records", "elements",
		"value-size", "seed"} {
		settingFlag(flags, name, "load."+strings.ReplaceAll(name, "-", "_"))
	}
	flags.Lookup("warmup").Usage += "; of each " + block + ", 1s if nothing says otherwise"
	f.pipelineSlots = "spread"
}

// load returns the settings, and the load of a block. The settings are nil if they are wrong.
func (f *blockFlags) load(c *cobra.Command, p process) (r *profiles.Resolved, o bench.Options, err error) {
	var wrong mistakes
	wrong.check(f.block >= 100*time.Millisecond && f.block <= time.Hour, "--block %s: want 100ms to 1h", f.block)
	if r, err = f.resolve(c, p.env); err != nil {
		return nil, o, errors.Join(append(wrong, err)...)
	}
	if !r.Asked("load.warmup") {
		r.Load.Warmup = "1s"
	}
	r.Load.Duration = f.block
	if o, err = f.options(c, r.Load); err == nil {
		if err = o.Check(); err != nil {
			err = &usageError{err.Error()}
		}
	}
	return r, o, errors.Join(append(wrong, err)...)
}

// show prints what blocks say, and the name of the file that has them. A page goes to a file beside that one.
func (f *blockFlags) show(p process, path string, write func(w io.Writer, format string) error) error {
	page := pageFlags{format: f.format, outFlags: outFlags{out: "-"}}
	if f.format == "html" {
		page.out = strings.TrimSuffix(path, ".jsonl") + ".html"
	}
	err := page.write(p, write)
	if err != nil || f.format == "json" {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, path)
	return err
}

// abFlags are the flags of ab.
type abFlags struct {
	blockFlags
	rounds int
	budget time.Duration
	// Bounds of the generator's lateness: the smallest change to claim, in percent, and an SLO.
	effect  float64
	slo     string
	primary []string
	proof   proofFlags
}

func abCommand(p process) *cobra.Command {
	var f abFlags
	var a, b armValue
	var control, together bool
	c := &cobra.Command{
		Use:   "ab",
		Short: "Measure two configurations, builds or servers in turn, and say how they differ",
		Long: `Measure two arms in turn on this machine, and say how they differ, with intervals.

An arm is ` + ab.ArmForm + `.
Each block starts the arm as a child process with data of its own, loads it, sends the load for --block, and ends it. A
round has a block of each arm, in an order that is drawn at random. The arms of a round get the same operations. A third
arm is a copy of A: if it differs from A, something else has changed, and the run says nothing. Standard output has the
conclusion and the table; its last line is the name of the file that has every block. With --format html a page with a
chart goes to a file beside that one.

With --prove there is no B: ab measures A against itself, and in every other round stops one arm for some of the time.
How often it then saw what was not there, and what was, stands under every later table of the same setup.`,
		Example: `  neokv ab --b engine.memtable_size=4MiB --workload write-heavy
  neokv ab --a raft.batch_max_ops=1 --b raft.batch_max_ops=256 --pipeline 16 --mem
  neokv ab --b engine.row_cache=0 --command 'SET {key uniform 1000} {value 64}' --command '3: GET {key uniform 1000}'
  neokv ab --a revision=HEAD~1 --b revision=HEAD --rounds 20
  neokv ab --a program=./neokv.old --b program=./neokv.new
  neokv ab --a redis=always --b '' --workload set
  neokv ab --a 'redis=always cluster=yes' --b '' --pipeline 16
  neokv ab --a target=127.0.0.1:6379 --b target=127.0.0.1:6380
  neokv ab --prove --a redis=none --workload set --rounds 40`,
		Args: noArgs,
	}
	f.register(c, "block", compareForms)
	flags := c.Flags()
	commandFlag(flags, &f.commands)
	flags.IntVar(&f.rounds, "rounds", usualRounds, "`n` rounds, in each of which each arm has a block")
	flags.StringSliceVar(&f.primary, "primary", nil,
		"`figures` that make the conclusion, with commas between (default throughput or rate reached, p50, p99, CPU)")
	flags.Float64Var(&f.effect, "effect", 5, "smallest change to claim, in `percent`: a round of an open loop whose "+
		"arms the generator served with a lateness that differs by more is void and repeated; 0 is no bound")
	flags.StringVar(&f.slo, "slo", "", "`conditions` that response times must hold: a round is void, too, if the p99 "+
		"of the generator's lateness passes a tenth of the shortest time in them")
	flags.DurationVar(&f.budget, "budget", 0, "begin no new round after so long; 0 is no limit")
	flags.StringVar(&f.profile, "profile", "default", "`profile` of all arms that name none")
	setFlags(flags, &f.set, "change a setting in all arms of NeoKV")
	flags.BoolVar(&f.mem, "mem", false, "keep the data in memory")
	flags.Var(&a, "a", "`arm` A")
	flags.Var(&b, "b", "`arm` B")
	for _, arm := range []string{"a", "b"} {
		if err := flags.SetAnnotation(arm, mayBeEmpty, nil); err != nil {
			panic(err)
		}
	}
	flags.BoolVar(&control, "control", true, "measure a copy of A, too")
	flags.BoolVar(&together, "together", false,
		"measure the arms of a round at the same time; wants a --rate that leaves the machine room")
	f.proof.register(flags)
	c.RunE = func(c *cobra.Command, _ []string) error {
		if f.proof.prove {
			b = a
		}
		plan, err := f.plan(c, p, string(a), string(b))
		if err == nil && together && !plan.Load.Groups[0].Rate.Open() {
			err = &usageError{"--together: want a --rate, or the arms share the machine by chance"}
		}
		if err != nil {
			return err
		}
		plan.Control, plan.Together = control, together
		done, err := f.prepare(c, p, plan)
		if err != nil {
			return err
		}
		defer done()
		if f.proof.prove {
			return f.proof.measure(c, p, plan)
		}
		run, path, err := f.measure(c, p, plan)
		if run == nil {
			return err
		}
		return errors.Join(err, f.show(p, path, func(w io.Writer, format string) error {
			return writeComparison(w, c, compareTurns(run), format)
		}))
	}
	return c
}

// plan turns the flags into what to measure. Its error names everything that is wrong.
func (f *abFlags) plan(c *cobra.Command, p process, textA, textB string) (*ab.Plan, error) {
	var wrong mistakes
	plan := &ab.Plan{Rounds: f.rounds, InMemory: f.mem, Dir: f.dir, Effect: f.effect / 100}
	for _, x := range []struct {
		flag, text string
		arm        *ab.Arm
	}{{"--a", textA, &plan.A}, {"--b", textB, &plan.B}} {
		var err error
		if *x.arm, err = ab.ParseArm(x.text); err != nil {
			wrong.add(usageErrors(x.flag, err))
		} else if err := f.complete(x.arm, c, p); err != nil {
			wrong.add(usageErrors(x.flag, err))
		}
	}
	wrong.check(wrong != nil || f.proof.prove || textA != textB, "--a and --b are the same")
	wrong.add(f.proof.check(c.Flags(), plan))
	wrong.check(f.rounds >= 1 && f.rounds <= 1000, "--rounds %d: want 1 to 1000", f.rounds)
	wrong.check(f.budget >= 0, "--budget %s: want 0s or more", f.budget)
	wrong.check(f.effect >= 0, "--effect %g: want 0 or more percent", f.effect)
	if f.slo != "" {
		slo, err := bench.ParseSLO(f.slo)
		wrong.check(err == nil, "%v", err)
		plan.SLO = slo.Shortest()
	}
	wrong.add(checkForm(f.format, compareForms))
	wrong.check(!f.mem || f.dir == "", "--dir and --mem exclude each other")
	wrong.add(f.spare(f.out))
	r, o, err := f.load(c, p)
	if err = errors.Join(append(wrong, err)...); err != nil {
		return nil, err
	}
	plan.Load = o
	for _, arm := range []*ab.Arm{&plan.A, &plan.B} {
		switch {
		case !arm.NeoKV():
			arm.Password = r.Load.Password
		case arm.Password == "": // another program: its profile may differ
			arm.Password = r.Redis.RequirePass
		}
	}
	return plan, nil
}

// complete gives an arm of NeoKV the profile, the settings and the workload of all arms, and hides its secrets. It
// checks the settings if this program is to run the arm.
func (f *abFlags) complete(arm *ab.Arm, c *cobra.Command, p process) error {
	if !arm.NeoKV() {
		return nil
	}
	if arm.Profile == "" {
		arm.Profile = f.profile
	}
	arm.Set = slices.Concat(f.set, arm.Set)
	if arm.Program == "" && arm.Revision == "" {
		r, err := profiles.Resolve(profiles.ValueSources{Profile: arm.Profile, Env: p.env, Set: arm.Set})
		if err != nil {
			return err
		}
		arm.Password = r.Redis.RequirePass
	}
	hideSecrets(arm, p.env)
	for _, flag := range givenSettings(c.Flags()) {
		if flag.Setting == "load.workload" { // settings may follow from it
			arm.Set = append(arm.Set, flag.Setting+"="+flag.Value)
		}
	}
	return nil
}

// prepare builds what has to be built, until done is called.
func (f *abFlags) prepare(c *cobra.Command, p process, plan *ab.Plan) (done func(), err error) {
	back := tuneGenerator(os.Getenv)
	builds, err := os.MkdirTemp("", "neokv-build-")
	if err != nil {
		back()
		return nil, err
	}
	done = func() {
		back()
		os.RemoveAll(builds)
	}
	for _, arm := range []*ab.Arm{&plan.A, &plan.B} {
		if arm.Revision != "" {
			fmt.Fprintf(p.stderr, "neokv: building %s\n", arm.Revision)
		}
		if err := arm.Build(c.Context(), ".", builds); err != nil {
			done()
			return nil, err
		}
	}
	if f.budget > 0 {
		plan.Until = time.Now().Add(f.budget)
	}
	began := time.Now()
	plan.Progress = func(round int, arm compare.Side) {
		fmt.Fprintf(p.stderr, "neokv: round %d of %d, arm %s, %s so far\n", round+1, plan.First+plan.Rounds, arm,
			time.Since(began).Round(time.Second))
	}
	plan.Void = func(round int, why string) {
		fmt.Fprintf(p.stderr, "neokv: round %d is void and repeated: %s\n", round+1, why)
	}
	return done, nil
}

// measure runs the plan and keeps every block in a file. It returns what it has when it is interrupted, and nil if it
// has no round.
func (f *abFlags) measure(c *cobra.Command, p process, plan *ab.Plan) (run *compare.Turns, path string, err error) {
	path = cmp.Or(f.out, results.DefaultPath(c.Name(), time.Now()))
	file, err := os.Create(path)
	if err != nil {
		return nil, "", err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	run = &compare.Turns{Header: turnsHeader(c, plan)}
	run.Header.Primary = f.primary
	if _, err := os.Stat(f.proof.path); err == nil {
		run.Header.Proof = f.proof.path
	}
	keep := func(line any) error { return results.WriteLine(file, "file of blocks", line) }
	if err := keep(run.Header); err != nil {
		return nil, "", err
	}
	err = plan.Run(c.Context(), func(b compare.Block) error {
		run.Blocks = append(run.Blocks, b)
		return errors.Join(keep(b), run.CheckPrimary())
	})
	if len(run.Rounds()) == 0 {
		run = nil
	}
	return run, path, err
}

// compareForms are the formats of comparisons, the default first.
var compareForms = []string{"table", "md", "html", "json"}

func checkForm(format string, forms []string) error {
	if slices.Contains(forms, format) {
		return nil
	}
	return &usageError{fmt.Sprintf("--format %s: want one of %s%s", format, strings.Join(forms, ", "),
		settings.DidYouMean(format, forms))}
}

// writeComparison writes what a verb has found.
func writeComparison(w io.Writer, verb *cobra.Command, c *compare.Delta, format string) error {
	switch format {
	case "md":
		return c.PrintMarkdown(w)
	case "html":
		return report.ComparisonHTML(w, verb.Name(), c)
	case "json":
		return results.PrintJSON(w, c)
	}
	return c.PrintTable(w)
}
