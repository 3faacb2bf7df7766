package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os/exec"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"neokv.dev/neokv/settings"
	"neokv.dev/results"
	"neokv.dev/results/history"
	"neokv.dev/results/report"
)

func historyCommand(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "history",
		Short: "Keep the figures of runs in a file, and find the runs at which they change",
		Example: `  neokv bench --out run.jsonl && neokv history add history.jsonl run.jsonl
  neokv history show history.jsonl
  neokv history show history.jsonl --figure throughput --figure CPU --format html -o history.html
  neokv history confirm history.jsonl`,
		Args: verbsOnly,
		RunE: wantVerb,
	}
	c.AddCommand(historyAddCommand(p), historyShowCommand(p), historyConfirmCommand(p))
	return c
}

func historyAddCommand(p process) *cobra.Command {
	return &cobra.Command{
		Use:   "add HISTORY RESULT...",
		Short: "Add result files of bench to a history",
		Long: `Add result files of bench to a history: a line per run, with its figures, load, settings, build and machine. A
run that is in the history already is refused, as is one that did not come to its end.`,
		Example: `  neokv history add history.jsonl neokv-ycsb-a-*.jsonl`,
		Args:    wantArgs(2, math.MaxInt, "a history and results"),
		RunE:    func(_ *cobra.Command, args []string) error { return addToHistory(p, args[0], args[1:]) },
	}
}

// addToHistory adds all results or none. Its error names everything that is wrong.
func addToHistory(p process, path string, names []string) error {
	var wrong []error
	var entries []history.Entry
	for _, name := range names {
		r, err := readMeasured(name)
		if err != nil {
			wrong = append(wrong, err)
			continue
		}
		e, err := history.NewEntry(results.ResultFile{Name: name, Result: r})
		if err != nil {
			wrong = append(wrong, &usageError{name + ": " + err.Error()})
			continue
		}
		entries = append(entries, e)
	}
	if err := otherKind(path, "history"); err != nil {
		wrong = append(wrong, err)
	}
	warnings, err := history.Check(path, entries...)
	if err != nil {
		wrong = append(wrong, &usageError{err.Error()})
	}
	if wrong != nil {
		return errors.Join(wrong...)
	}
	for _, w := range warnings {
		fmt.Fprintf(p.stderr, "neokv: warning: %s: %s\n", path, w)
	}
	if err := history.Append(path, entries...); err != nil {
		return err
	}
	_, err = fmt.Fprintln(p.stdout, path)
	return err
}

// historyChoice says which part of a history to look at.
type historyChoice struct{ figures, workloads []string }

func (f *historyChoice) register(flags *pflag.FlagSet) {
	flags.StringArrayVar(&f.figures, "figure", nil, "`name` of a figure to look at; may be repeated (default all)")
	flags.StringArrayVar(&f.workloads, "workload", nil, "`name` of a workload to look at; may be repeated (default all)")
}

// trends reads a history. Its error has what was wrong before, too.
func (f *historyChoice) trends(p process, path string, wrong error) ([]*history.Trend, error) {
	if err := otherKind(path, "history"); err != nil {
		return nil, errors.Join(wrong, err)
	}
	content, err := history.Read(path)
	if err != nil {
		return nil, errors.Join(wrong, usageErrors(path, err))
	}
	for _, x := range []struct {
		flag         string
		asked, known []string
	}{{"--figure", f.figures, content.FigureNames()}, {"--workload", f.workloads, content.Workloads()}} {
		for _, name := range x.asked {
			if !slices.Contains(x.known, name) {
				wrong = errors.Join(wrong, &usageError{fmt.Sprintf("%s %s: not in %s%s", x.flag, name, path,
					settings.DidYouMean(name, x.known))})
			}
		}
	}
	if wrong != nil {
		return nil, wrong
	}
	for _, w := range content.Warnings {
		fmt.Fprintf(p.stderr, "neokv: warning: %s: %s\n", path, w)
	}
	trends := content.Trends(history.Options{Figures: f.figures, Workloads: f.workloads})
	if len(trends) == 0 {
		return nil, &usageError{path + ": no run has these figures and workloads"}
	}
	return trends, nil
}

// historyShowFlags are the flags of history show.
type historyShowFlags struct {
	pageFlags
	historyChoice
	failOnChange bool
	latest       int
}

func historyShowCommand(p process) *cobra.Command {
	f := historyShowFlags{pageFlags: pageFlags{forms: []string{"table", "html", "json"}, page: "history.html"}}
	c := &cobra.Command{
		Use:   "show HISTORY",
		Short: "Show figures over the runs of a history, and the commits between which they change",
		Long: `Show figures over the runs of a history, in the order in which the runs began, and the commits between which
they change. Runs of one load, target and machine stand together. Settings and builds may differ: a change names
what did.

The exit status is 3 if --fail-on-change is given and there is a change, else 0.`,
		Example: `  neokv history show history.jsonl
  neokv history show history.jsonl --workload ycsb-a --figure throughput
  neokv history show history.jsonl --fail-on-change --latest 1
  neokv history show history.jsonl --format html -o history.html`,
		Args: wantArgs(1, 1, "a history"),
		RunE: func(c *cobra.Command, args []string) error { return f.show(c, p, args[0]) },
	}
	flags := c.Flags()
	f.pageFlags.register(flags)
	f.historyChoice.register(flags)
	flags.BoolVar(&f.failOnChange, "fail-on-change", false, "end with status 3 if there is a change")
	flags.IntVar(&f.latest, "latest", 0, "--fail-on-change only for changes that the latest `n` runs brought to light "+
		"(default all)")
	return c
}

func (f *historyShowFlags) show(c *cobra.Command, p process, path string) error {
	wrong := f.check(path)
	if c.Flags().Changed("latest") && (f.latest < 1 || !f.failOnChange) {
		wrong = errors.Join(wrong, &usageError{fmt.Sprintf("--latest %d: want 1 or more, and --fail-on-change", f.latest)})
	}
	trends, err := f.trends(p, path, wrong)
	if err != nil {
		return err
	}
	err = f.write(p, func(w io.Writer, format string) error {
		switch format {
		case "html":
			return report.HistoryHTML(w, path, trends)
		case "json":
			return history.PrintJSON(w, trends)
		}
		return history.PrintTable(w, trends)
	})
	if err != nil || !f.failOnChange {
		return err
	}
	changes := 0
	for _, t := range trends {
		for _, c := range t.Changes {
			if f.latest == 0 || c.Found >= len(t.Runs)-f.latest {
				changes++
			}
		}
	}
	if changes > 0 {
		return &statusError{statusBroken, "history: " + results.Plural(int64(changes), "change")}
	}
	return nil
}

func historyConfirmCommand(p process) *cobra.Command {
	var f historyChoice
	var number int
	c := &cobra.Command{
		Use:   "confirm HISTORY [-- FLAG...]",
		Short: "Measure the builds on both sides of a change in turn, by neokv ab",
		Long: `Measure the builds on both sides of a change in turn, by the neokv ab that history show prints. What stands
after -- goes to ab, too. The current folder must be in a git checkout that has both commits. The exit status
is that of ab.`,
		Example: `  neokv history confirm history.jsonl
  neokv history confirm history.jsonl --change 2 -- --rounds 20`,
		Args: func(c *cobra.Command, args []string) error {
			if at := c.ArgsLenAtDash(); at >= 0 {
				args = args[:at]
			}
			return wantArgs(1, 1, "a history")(c, args)
		},
		RunE: func(c *cobra.Command, args []string) error {
			var wrong error
			if c.Flags().Changed("change") && number < 1 {
				wrong = &usageError{fmt.Sprintf("--change %d: want 1 or more", number)}
			}
			trends, err := f.trends(p, args[0], wrong)
			if err != nil {
				return err
			}
			change, err := changeToConfirm(args[0], trends, number)
			if err != nil {
				return err
			}
			if err := checkoutHas(c.Context(), change.Confirm); err != nil {
				return fmt.Errorf("change %d: %w", change.Number, err)
			}
			command := slices.Concat(change.Confirm, args[1:])
			fmt.Fprintf(p.stderr, "neokv: change %d: %s\n", change.Number, history.CommandLine(command))
			if status := run(c.Context(), p, command); status != statusDone {
				return &statusError{status, ""} // ab has said why
			}
			return nil
		},
	}
	flags := c.Flags()
	f.register(flags)
	flags.IntVar(&number, "change", 0, "`number` of the change, as history show prints it with the same --figure and "+
		"--workload (default the latest one)")
	return c
}

// changeToConfirm returns the change of a number; if that is 0, the one that begins with the latest run.
func changeToConfirm(path string, trends []*history.Trend, number int) (*history.ChangePoint, error) {
	var found *history.ChangePoint
	var began time.Time
	changes := 0
	for _, t := range trends {
		for i := range t.Changes {
			c := &t.Changes[i]
			changes++
			at := t.Runs[c.Run].At
			if c.Number == number || number == 0 && (found == nil || at.After(began)) {
				found, began = c, at
			}
		}
	}
	switch {
	case changes == 0:
		return nil, &usageError{path + ": no change to confirm"}
	case found == nil:
		return nil, &usageError{fmt.Sprintf("--change %d: %s has %s", number, path,
			results.Plural(int64(changes), "change"))}
	case found.Confirm == nil:
		return nil, &usageError{fmt.Sprintf("change %d %s", found.Number, found.ToConfirm())}
	}
	return found, nil
}

// checkoutHas returns an error if the current folder is not in a git checkout that has the revisions of an ab.
func checkoutHas(ctx context.Context, command []string) error {
	git := func(args ...string) error { return exec.CommandContext(ctx, "git", args...).Run() }
	if err := git("rev-parse", "--show-toplevel"); err != nil {
		return errors.New("the current folder is not in a git checkout, which ab builds the commits from")
	}
	for _, arg := range command {
		first, _, _ := strings.Cut(arg, " ")
		if commit, ok := strings.CutPrefix(first, "revision="); ok && git("cat-file", "-e", commit+"^{commit}") != nil {
			return fmt.Errorf("this git checkout does not have commit %s", commit)
		}
	}
	return nil
}
