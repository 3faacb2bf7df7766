package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"neokv.dev/bench/tune"
	"neokv.dev/profiles"
	"neokv.dev/results"
	"neokv.dev/results/report"
	"neokv.dev/results/tuning"
)

// tuneFlags are the flags of tune.
type tuneFlags struct {
	blockFlags
	knobs              []string
	objective, subject string
	budget             time.Duration
	cold, around       bool
	resume             string
	newProfile         string
}

// tuneForms are the formats of tune, the default first.
var tuneForms = []string{"table", "html", "json"}

func tuneCommand(p process) *cobra.Command {
	var f tuneFlags
	c := &cobra.Command{
		Use:   "tune",
		Short: "Search settings that make a workload run better, and say how sure that is",
		Long: `Search settings that make a workload run better, and say how sure that is.

Each trial runs in processes of its own, on a copy of the same loaded data, and in turn with the default. What it leaves
undone in memtables and compactions counts as part of it. First each knob changes on its own, in so many rounds as the
budget has time for: that gives a curve, and says which knobs have a measurable effect. Then those change together. The
best run again, and the winner is compared with the default on fresh seeds. If it is better, further rounds say by how
much; others have four times the records, or 80 % of the rate.

A knob is setting=value,value,... or setting=from..to. An objective is max throughput, or min with one of
` + strings.Join(tuneFigures(), ", ") + `. A subject is what must hold, such as
'p99<10ms,memory<1GiB'. Ctrl-C keeps what is known; --resume goes on with it.`,
		Example: `  neokv tune --workload write-heavy --knob engine.memtable_size=4MiB..128MiB
  neokv tune --workload read-missing --knob engine.bloom_bits=0,5,10,16 --knob engine.bloom_prefix=region,collection,key
  neokv tune --pipeline 16 --knob raft.batch_max_ops=1..1024 --objective 'max throughput' --subject 'p99<20ms'
  neokv tune --rate 5000 --knob raft.max_inflight=1..16 --objective 'min p99' --budget 15m --around
  neokv tune --resume neokv-tune-20261123T150405.jsonl --format html`,
		Args: noArgs,
	}
	f.register(c, "trial", tuneForms)
	flags := c.Flags()
	flags.StringArrayVar(&f.knobs, "knob", nil,
		"setting and the values to try, `name=values`; may be repeated")
	flags.StringVar(&f.objective, "objective", "max throughput", "`figure` to make better")
	flags.StringVar(&f.subject, "subject", "",
		"`subjects` that must hold, such as 'p99<10ms'; several joined by commas")
	flags.DurationVar(&f.budget, "budget", 10*time.Minute, "how long all trials may take together")
	flags.BoolVar(&f.cold, "cold", false, "begin each trial with its data files out of the page cache; Linux only")
	flags.BoolVar(&f.around, "around", false, "try the winner on loads near this one, too, and name the worst case")
	flags.StringVar(&f.profile, "profile", "default", "`profile` that is the default of all trials")
	setFlags(flags, &f.set, "change a setting in all trials")
	flags.StringVar(&f.resume, "resume", "", "go on with this `file`, by the plan that it has")
	flags.StringVar(&f.newProfile, "write-profile", "",
		"write the chosen settings, or the default's if it wins, to this `file`, for --profile")
	c.RunE = func(c *cobra.Command, _ []string) error { return f.run(c, p) }
	return c
}

func (f *tuneFlags) run(c *cobra.Command, p process) (err error) {
	plan, trials, path, err := f.study(c, p)
	if err != nil {
		return err
	}
	how := os.O_APPEND
	if f.resume == "" {
		how |= os.O_TRUNC
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|how, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	keep := func(line any) error { return results.WriteLine(file, "file of trials", line) }
	if f.resume == "" {
		if err := keep(plan); err != nil {
			return err
		}
	}
	dir, err := os.MkdirTemp(f.dir, "neokv-tune-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	defer tuneGenerator(os.Getenv)()
	machine := &tune.Local{Plan: *plan, Dir: dir}
	s := tune.Tuner{Runner: machine, Keep: func(t *tuning.StudyTrial) error { return keep(t) }, Near: machine.Near,
		Progress: func(what string, left time.Duration) {
			fmt.Fprintf(p.stderr, "neokv: %s; %s left\n", what, left.Round(time.Second))
		}}
	study, err := s.Run(c.Context(), *plan, trials)
	if errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted; go on with neokv tune --resume %s", path)
	}
	if len(study.Trials) == 0 {
		return err
	}
	return errors.Join(err, f.print(p, study, path))
}

// print prints what the trials say, and the name of their file.
func (f *tuneFlags) print(p process, study *tuning.Study, path string) error {
	o := study.Outcome()
	if o.Confirmed {
		text, err := chosenProfile(&study.Plan, o.Winner)
		if err != nil {
			return err
		}
		o.Settings = text
	}
	if f.newProfile != "" {
		if err := f.writeProfile(p, o); err != nil {
			return err
		}
	}
	return f.show(p, path, func(w io.Writer, format string) error {
		switch format {
		case "html":
			return report.TuningHTML(w, o)
		case "json":
			return results.PrintJSON(w, o)
		}
		return o.PrintTable(w)
	})
}

// writeProfile writes what a study has chosen: settings that are confirmed, or the default if it wins.
func (f *tuneFlags) writeProfile(p process, o *tuning.StudyOutcome) error {
	text := o.Settings
	switch {
	case o.Confirmed:
	case !o.Done:
		fmt.Fprintf(p.stderr, "neokv: --write-profile %s: not written, since the study is not finished\n", f.newProfile)
		return nil
	default:
		fmt.Fprintf(p.stderr, "neokv: --write-profile %s: the default wins, so the file has its settings\n", f.newProfile)
		var err error
		if text, err = chosenProfile(&o.Plan, nil); err != nil {
			return err
		}
	}
	return os.WriteFile(f.newProfile, []byte(text), 0o666)
}

// study returns the plan of the flags, or of the file of --resume with its trials. Its error names everything that is
// wrong.
func (f *tuneFlags) study(c *cobra.Command, p process) (plan *tuning.StudyPlan, trials []tuning.StudyTrial,
	path string, err error) {
	wrong := checkForm(f.format, tuneForms)
	if f.resume != "" {
		others := onlyFlags(c.Flags(), "resume", "format", "write-profile", "dir") // the file has the plan
		study, err := readStudy(f.resume)
		if err = errors.Join(wrong, others, err); err != nil {
			return nil, nil, "", err
		}
		return &study.Plan, study.Trials, f.resume, nil
	}
	plan, err = f.plan(c, p)
	if err = errors.Join(wrong, err); err != nil {
		return nil, nil, "", err
	}
	path = cmp.Or(f.out, results.DefaultPath("tune", time.Now()))
	if err := f.spare(path); err != nil {
		return nil, nil, "", &usageError{err.Error() + ", --resume goes on with it"}
	}
	return plan, nil, path, nil
}

// readStudy reads a file to go on with. A last line that was cut off is removed.
func readStudy(path string) (*tuning.Study, error) {
	if err := otherKind(path, "tune"); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return nil, &usageError{err.Error()}
	}
	defer file.Close()
	study, size, err := tuning.Read(file)
	if err != nil {
		return nil, &usageError{fmt.Sprintf("%s: %v", path, err)}
	}
	h := results.NewHeader()
	if study.Plan.Build.Commit != h.Build.Commit {
		return nil, &usageError{fmt.Sprintf("%s: its trials are of commit %s, this is %s: they cannot be compared",
			path, cmp.Or(study.Plan.Build.Commit, "(unknown)"), cmp.Or(h.Build.Commit, "(unknown)"))}
	}
	if a, b := study.Plan.Machine, h.Machine; a.CPU != b.CPU || a.Cores != b.Cores {
		return nil, &usageError{fmt.Sprintf("%s: its trials are of another machine, %s with %d cores", path, a.CPU,
			a.Cores)}
	}
	return study, file.Truncate(size)
}

// plan turns the flags into a plan. Its error names everything that is wrong.
func (f *tuneFlags) plan(c *cobra.Command, p process) (*tuning.StudyPlan, error) {
	var wrong mistakes
	r, o, err := f.load(c, p)
	wrong.add(err)
	h := results.NewHeader()
	plan := &tuning.StudyPlan{Format: tuning.FileFormat, Started: time.Now(),
		Command: commandLine(c), Build: h.Build, Machine: h.Machine, Profile: f.profile, Budget: f.budget,
		Block: f.block, Warmup: o.Warmup, Seed: o.Seed, Cold: f.cold, Around: f.around}
	plan.Set, _ = profiles.Split(f.set) // the clusters of tune have no password
	plan.Objective, err = parseObjective(f.objective)
	wrong.add(err)
	if f.subject != "" {
		plan.Subjects, err = parseSubjects(f.subject)
		wrong.add(err)
	}
	if r == nil {
		usual, err := profiles.Resolve(profiles.ValueSources{})
		if err != nil {
			panic(err) // the embedded profile is tested
		}
		_, err = f.parseKnobs(usual, func([]string) error { return nil })
		wrong.add(err)
		return nil, errors.Join(wrong...)
	}
	wrong.check(r.Redis.RequirePass == "",
		"redis.requirepass: clusters of tune listen on loopback and take no password")
	plan.Knobs, err = f.parseKnobs(r, func(set []string) error {
		_, err := profiles.Resolve(profiles.ValueSources{Profile: f.profile, Env: p.env, Set: set,
			Flags: givenSettings(c.Flags())})
		return err
	})
	wrong.add(err)
	wrong.check(!o.WarmupAuto, "--warmup auto: trials must have the same length, want a time")
	plan.Load = tuning.Load{Workload: r.Load.Workload, Clients: r.Load.Clients, Pipeline: r.Load.Pipeline,
		Records: uint64(r.Load.Records), Elements: r.Load.Elements, ValueSize: int(r.Load.ValueSize)}
	if r.Load.Rate != "0" {
		plan.Load.Rate = r.Load.Rate
	}
	wrong.check(plan.Load.Rate == "" || plan.Objective.Figure != "throughput",
		"--objective max throughput: with a --rate it says nothing; want min p99 or another figure")
	for _, path := range []*string{&plan.Load.Workload, &plan.Profile} { // the clusters run in other folders
		if strings.ContainsRune(*path, filepath.Separator) || filepath.Ext(*path) != "" {
			abs, err := filepath.Abs(*path)
			wrong.add(err)
			*path = abs
		}
	}
	n, took := tune.FewestTrials(plan)
	wrong.check(wrong != nil || f.budget >= took, "--budget %s: too few trials; these knobs want %d trials of %s at "+
		"least, so --budget %s; or try fewer values, or a shorter --block", f.budget, n, f.block,
		(took + time.Second - 1).Truncate(time.Second))
	return plan, errors.Join(wrong...)
}
