package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"neokv.dev/neokv/torture"
	"neokv.dev/results"
)

// tortureFlags are the flags of torture.
type tortureFlags struct {
	torture.Options
	schedule, log, findings string
}

// The exit statuses of torture if it found a problem, and if it found what --findings knows, and nothing else.
const (
	statusFound = 3
	statusKnown = 4
)

func tortureCommand(p process) *cobra.Command {
	f := tortureFlags{Options: torture.Options{Seed: 1 + uint64(rand.Uint32()), Faults: []string{"all"}}}
	c := &cobra.Command{
		Use:   "torture",
		Short: "Run clusters under random faults, and check what their clients saw",
		Long: `Run clusters under random faults, and check what their clients saw: in virtual time, where twenty seconds of a
cluster in memory take a few tenths of a second, or with --real in real time, on files and sockets.

Each seed draws a cluster, a load and a schedule of faults. Clients work on strings, counters, locks, hashes, lists,
queues, sets and sorted sets, alone and several at once. Their histories are checked for linearizability, replicas are
compared at equal apply indexes, and all regions must take writes within three election time-outs after faults have
ended, or in real time within 20 s. A sweep of 500 seeds and more must also have reached every state of a list.

The first seed that fails ends the sweep. Torture then looks for a smaller scenario that fails in the same way, prints
it with the command that repeats the seed, and writes porcupine's picture of the history.

Kinds of faults: ` + strings.Join(torture.Kinds(), ", ") + `.

--findings keeps what was found in a file, over sittings. A sitting first tries what is open there, and then fresh
seeds; a seed that shows an open finding does not end it. A finding is new, ongoing if it was open and is seen again,
resolved if none of --tries runs shows it, or returned if it was resolved and is seen again.

Exit status: 0 nothing found (with --planted: the mistake was found), 3 a problem found (with --findings: one that is
new or has returned), a state missed or a planted mistake not found, 4 only ongoing findings of --findings, 1 could not
run, 2 usage.`,
		Example: `  neokv torture
  neokv torture --seeds 1000 --log torture.jsonl
  neokv torture --findings findings.jsonl
  neokv torture --findings findings.jsonl --seeds 0
  neokv torture --seed 17 --seeds 1 --faults kill,disk
  neokv torture --seed 17 --schedule smaller.txt
  neokv torture --planted lease-unchecked`,
		Args: noArgs,
	}
	flags := c.Flags()
	f.register(flags)
	flags.Uint64Var(&f.Seed, "seed", f.Seed, "the first `seed`; a fresh one if it is not given")
	flags.Lookup("seed").DefValue = "0"
	flags.IntVar(&f.Seeds, "seeds", 500, "`n`: how many seeds")
	flags.BoolVar(&f.Real, "real", false, "real time, files and sockets; 10 seeds of 30s if --seeds and --duration are not given")
	flags.DurationVar(&f.Shrink, "shrink", 2*time.Minute, "how long to look for a smaller scenario, in real time")
	flags.StringVar(&f.log, "log", "", "append what came out to this `file`, and sum it up")
	flags.StringVar(&f.findings, "findings", "", "keep findings in this `file`, and try open ones again")
	flags.IntVar(&f.Tries, "tries", torture.UsualTries,
		"`n`: how many runs an open finding takes before it counts as resolved; 3 with --real")
	c.RunE = func(c *cobra.Command, _ []string) error { return f.run(c.Context(), p, c.Flags()) }
	c.AddCommand(causeCommand(p), repeatCommand(p))
	return c
}

// register registers the flags that torture and torture cause have.
func (f *tortureFlags) register(flags *pflag.FlagSet) {
	flags.DurationVar(&f.Length, "duration", 20*time.Second, "how long each run lasts, in its own time")
	flags.StringSliceVar(&f.Faults, "faults", f.Faults, "`kinds` of faults that seeds draw")
	flags.StringVar(&f.schedule, "schedule", "", "run the scenario, or the schedule of faults, of this `file` instead")
	flags.StringVar(&f.Planted, "planted", "", "plant this `mistake`; it must be found within its number of seeds")
	flags.StringVar(&f.Dir, "dir", "", "`folder` for histories and pictures (default that of temporary files)")
}

// causeCommand is torture cause.
func causeCommand(p process) *cobra.Command {
	f := tortureFlags{Options: torture.Options{Seeds: 1, Faults: []string{"all"}}}
	branches := 0
	c := &cobra.Command{
		Use:   "cause",
		Short: "Find the moment that decides a failing run",
		Long: `Find the moment that decides a failing run of torture. The run is repeated up to many moments, and goes on
with other random choices from there: of clients and of faults, whose kinds are those of its schedule. What decides the
failure happens before the moment from which on nine of ten of these branches fail. A seed does not fix how goroutines
interleave, so shares are printed.

Exit status: 0 a moment was found, 3 the run hardly fails when it is repeated, 1 could not run, 2 usage.`,
		Example: `  neokv torture cause --seed 17
  neokv torture cause --seed 17 --duration 5s --schedule smaller.txt --branches 50`,
		Args: noArgs,
	}
	flags := c.Flags()
	f.register(flags)
	flags.Uint64Var(&f.Seed, "seed", 0, "the `seed` of the run that fails")
	flags.IntVar(&branches, "branches", 20, "`n`: how many runs branch off at each moment")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var wrong mistakes
		wrong.check(c.Flags().Changed("seed"), "want --seed, that of the run that fails")
		wrong.check(branches >= 4 && branches <= 1000, "--branches %d: want 4 to 1000", branches)
		wrong.add(f.check(c.Flags()))
		if wrong != nil {
			return errors.Join(wrong...)
		}
		return f.cause(c.Context(), p, branches)
	}
	return c
}

// repeatCommand is torture repeat.
func repeatCommand(p process) *cobra.Command {
	f := tortureFlags{Options: torture.Options{Seeds: 1, Faults: []string{"all"}}}
	times := 0
	c := &cobra.Command{
		Use:   "repeat",
		Short: "Say how often the same seed gives the same trace",
		Long: `Say how often the same seed gives the same trace. A seed fixes faults and operations, but not how goroutines
interleave. The seed runs several times in virtual time, and the traces are compared: the calls of all clients with
their replies, and the faults, in order. Printed are the share of runs that have the first one's trace, where the
others leave it, and the earliest difference.

Exit status: 0 compared, 1 could not run, 2 usage.`,
		Example: `  neokv torture repeat --seed 17
  neokv torture repeat --seed 17 --times 100 --duration 5s --schedule smaller.txt`,
		Args: noArgs,
	}
	flags := c.Flags()
	f.register(flags)
	flags.Uint64Var(&f.Seed, "seed", 0, "the `seed` to repeat")
	flags.IntVar(&times, "times", 20, "`n`: how often the seed runs")
	c.RunE = func(c *cobra.Command, _ []string) error {
		var wrong mistakes
		wrong.check(c.Flags().Changed("seed"), "want --seed, the one to repeat")
		wrong.check(times >= 2 && times <= 1000, "--times %d: want 2 to 1000", times)
		wrong.add(f.check(c.Flags()))
		if wrong != nil {
			return errors.Join(wrong...)
		}
		return f.repeat(c.Context(), p, times)
	}
	return c
}

// repeat runs a seed several times, and prints how much the runs resemble each other.
func (f *tortureFlags) repeat(ctx context.Context, p process, times int) error {
	shown := progress{w: p.stderr}
	r, err := torture.CompareTraces(ctx, torture.RepeatOptions{TortureOptions: f.Options, Times: times,
		Ran: func(runs int) { shown.show("runs", fmt.Sprintf("neokv: %d of %d runs", runs, times), time.Now()) }})
	shown.end()
	if err != nil {
		return err
	}
	fmt.Fprintf(p.stdout, "seed %d: %d runs of %s, %d of which fail: %d different traces\n", f.Seed, r.Runs, f.Length,
		r.Failed, r.Traces)
	fmt.Fprintf(p.stdout, "%d of %d repetitions (%.0f %%) have the trace of the first run\n", r.Equal, r.Runs-1,
		100*float64(r.Equal)/float64(r.Runs-1))
	if r.Earliest == nil {
		return nil
	}
	n := len(r.Apart)
	fmt.Fprintf(p.stdout, "the others leave it after %s to %s, half of them by %s\n\n"+
		"the earliest difference, in line %d:\n  %s\n  %s\n", r.Apart[0], r.Apart[n-1], r.Apart[(n-1)/2], r.Earliest.Line,
		cmp.Or(r.Earliest.First, "the end of the first run"), cmp.Or(r.Earliest.Other, "the end of the other run"))
	return nil
}

// cause looks for the moment that decides a run, and prints what it has found.
func (f *tortureFlags) cause(ctx context.Context, p process, branches int) error {
	shown, looked := progress{w: p.stderr}, 0
	cause, err := torture.FindCause(ctx, torture.CauseOptions{TortureOptions: f.Options, Branches: branches,
		Moment: func(torture.CauseMoment) {
			looked++
			shown.show("moments", fmt.Sprintf("neokv: branched at %d moments", looked), time.Now())
		}})
	shown.end()
	if err != nil && !errors.Is(err, torture.ErrNoFailure) {
		return err
	}
	var rows [][]string
	for _, m := range cause.Moments {
		at := m.At.String()
		if m.At == f.Length {
			at = "whole run"
		}
		rows = append(rows, []string{at, fmt.Sprintf("%d of %d fail", m.Failed, m.Runs)})
	}
	fmt.Fprintln(p.stdout, strings.Join(results.Align(rows, 1), "\n"))
	if err != nil {
		return &statusError{statusFound, err.Error()}
	}
	fmt.Fprintf(p.stdout, "\nseed %d: %s\n\nfrom %s on nearly all branches fail", f.Seed, cause.Problem, cause.From)
	if cause.Before > 0 {
		fmt.Fprintf(p.stdout, "; what decides it happens between %s and %s", cause.Before, cause.From)
	}
	fmt.Fprintln(p.stdout, "\nthe schedule has meanwhile:")
	for _, e := range cause.Between {
		fmt.Fprintln(p.stdout, "  "+e)
	}
	if cause.Between == nil {
		fmt.Fprintln(p.stdout, "  nothing: it is what clients do")
	}
	return nil
}

// run runs a sweep and prints what came out.
func (f *tortureFlags) run(ctx context.Context, p process, flags *pflag.FlagSet) error {
	if err := f.check(flags); err != nil {
		return err
	}
	if f.Dir != "" {
		if err := os.MkdirAll(f.Dir, 0o777); err != nil {
			return err
		}
	}
	if build := results.NewHeader().Build; build.Commit != "" {
		f.Commit = build.Commit
		if build.Modified {
			f.Commit += "+"
		}
	}
	shown := progress{w: p.stderr}
	f.Trying = func(x torture.Finding) {
		shown.show("open findings", fmt.Sprintf("neokv: trying seed %d again: %s", x.Seed, x.Class), time.Now())
	}
	f.Progress = func(s torture.Sitting) {
		shown.show("runs", fmt.Sprintf("neokv: %d of %d seeds, %d operations, %d kills, %d states reached", s.Seeds, f.Seeds, s.Acked,
			s.Kills, len(s.States)), time.Now())
	}
	f.Shrinking = func(text string) {
		shown.show("shrinking", fmt.Sprintf("neokv: it still fails with %d lines of scenario", strings.Count(text, "\n")+1),
			time.Now())
	}
	sitting, failure, err := torture.Run(ctx, f.Options)
	shown.end()
	if f.findings != "" {
		for i := range sitting.Findings {
			if x := &sitting.Findings[i]; x.Command == "" {
				x.Command = f.again(x.Seed)
			}
		}
		err = errors.Join(err, writeFindings(f.findings, sitting.Findings))
	}
	if err != nil {
		return err
	}
	f.print(p.stdout, sitting, failure)
	if f.findings != "" {
		printFindings(p.stdout, f.findings, sitting.Findings)
	}
	if f.log != "" {
		if err := f.keep(p.stdout, sitting); err != nil {
			return err
		}
	}
	return f.status(sitting, failure)
}

// status returns the error with the exit status of a sitting; nil for 0.
func (f *tortureFlags) status(sitting torture.Sitting, failure *torture.Failure) error {
	switch {
	case sitting.Verdict == torture.NothingFound:
		return nil
	case f.Planted != "" && (sitting.Verdict == torture.ProblemFound || sitting.Verdict == torture.OnlyKnown):
		return nil
	case sitting.Verdict == torture.OnlyKnown:
		return &statusError{statusKnown, "open findings are seen again"}
	case failure != nil:
		return &statusError{statusFound, fmt.Sprintf("seed %d fails", failure.Seed)}
	}
	return &statusError{statusFound, sitting.Verdict}
}

// check checks the flags, and reads the schedule. Its error names everything that is wrong.
func (f *tortureFlags) check(flags *pflag.FlagSet) error {
	var wrong mistakes
	if f.Real && !flags.Changed("seeds") {
		f.Seeds = 10
	}
	if f.Real && !flags.Changed("duration") {
		f.Length = 30 * time.Second
	}
	if f.Real && !flags.Changed("tries") {
		f.Tries = 3
	}
	if f.findings == "" {
		wrong.check(!flags.Changed("tries"), "--tries is for --findings")
		f.Tries = 0
	} else {
		wrong.check(f.Tries > 0, "--tries %d: want 1 to 1000", f.Tries)
		var err error
		if f.Findings, err = readFindings(f.findings); err != nil {
			wrong.add(usageErrors("", err))
		}
	}
	if f.schedule != "" {
		text, err := os.ReadFile(f.schedule)
		wrong.check(err == nil, "--schedule: %v", err)
		f.Scenario = string(text)
		wrong.check(strings.TrimSpace(f.Scenario) != "" || err != nil, "--schedule %s: empty", f.schedule)
		wrong.check(!flags.Changed("faults"), "--schedule and --faults exclude each other")
		if !flags.Changed("seeds") {
			f.Seeds = 4 // equal seeds give nearly equal runs
		}
	}
	if f.Planted != "" {
		if bound := torture.Bound(f.Planted); bound > 0 && !flags.Changed("seeds") && f.schedule == "" {
			f.Seeds = bound
		}
	}
	err := f.Validate()
	wrong.check(err == nil, "%v", err)
	return errors.Join(wrong...)
}

// print prints a sitting.
func (f *tortureFlags) print(w io.Writer, s torture.Sitting, failure *torture.Failure) {
	fmt.Fprintf(w, "%s: %d seeds from %d on, %s each in %s time: %d operations acknowledged, %d kills\n", s.Verdict, s.Seeds,
		s.First, s.Length, s.Time, s.Acked, s.Kills)
	if s.Seeds > 0 {
		fmt.Fprintf(w, "after faults all regions took writes within %s\n", s.Served)
	}
	for _, name := range slices.Sorted(maps.Keys(s.States)) {
		fmt.Fprintf(w, "%8d  %s\n", s.States[name], name)
	}
	for _, name := range s.Missing { // some faults alone cannot lead to all of them
		if f.Scenario != "" || !slices.Equal(f.Faults, []string{"all"}) || f.Real || s.Seeds == 0 {
			break
		}
		fmt.Fprintf(w, "%8s  %s\n", "never", name)
	}
	if failure == nil {
		return
	}
	fmt.Fprintf(w, "\nseed %d: %s\nagain: %s\n", failure.Seed, failure.Problem, f.again(failure.Seed))
	dir := cmp.Or(f.Dir, os.TempDir())
	path := filepath.Join(dir, fmt.Sprintf("neokv-torture-%d.txt", failure.Seed))
	if err := os.WriteFile(path, []byte(failure.Scenario+"\n"), 0o666); err != nil {
		fmt.Fprintf(w, "the smaller scenario is not in a file: %v\n", err)
	}
	fmt.Fprintf(w, "after %d runs of smaller ones, this still fails in %s, by --seed %d --duration %s --schedule %s:\n%s\n",
		failure.Tries, failure.Length, failure.Seed, failure.Length, path, failure.Scenario)
}

// again returns the command that runs a seed again.
func (f *tortureFlags) again(seed uint64) string {
	again := fmt.Sprintf("neokv torture --seed %d --seeds 1 --duration %s", seed, f.Length)
	if f.schedule != "" {
		again += " --schedule " + f.schedule
	} else {
		again += " --faults " + strings.Join(f.Faults, ",")
	}
	if f.Real {
		again += " --real"
	}
	if f.Planted != "" {
		again += " --planted " + f.Planted
	}
	return again
}

// keep appends a sitting to the log, and says what all sittings there come to.
func (f *tortureFlags) keep(w io.Writer, s torture.Sitting) error {
	if err := writeOutput(f.log, os.O_APPEND, func(w io.Writer) error { return json.NewEncoder(w).Encode(s) }); err != nil {
		return err
	}
	file, err := os.Open(f.log)
	if err != nil {
		return err
	}
	defer file.Close()
	seeds, sittings, failed, commits := 0, 0, 0, map[string]bool{}
	for d := json.NewDecoder(file); ; {
		var x torture.Sitting
		if err := d.Decode(&x); err == io.EOF {
			break
		} else if err != nil {
			return fmt.Errorf("%s: sitting %d: %w", f.log, sittings+1, err)
		}
		sittings++
		if x.Time != s.Time || x.Planted != "" {
			continue
		}
		seeds += x.Seeds
		commits[x.Commit] = true
		if x.Verdict != torture.NothingFound {
			failed++
		}
	}
	_, err = fmt.Fprintf(w, "%s: %d seeds in %s time of %d commits, %d sittings found something\n", f.log, seeds, s.Time,
		len(commits), failed)
	return err
}
