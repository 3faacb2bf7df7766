package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/spf13/cobra"

	"neokv.dev/neokv/settings"
	"neokv.dev/results"
	"neokv.dev/results/changepoint"
	"neokv.dev/results/history"
	"neokv.dev/results/report"
)

func historyCommand(p process) *cobra.Command {
	c := &cobra.Command{
		Use:   "history",
		Short: "Keep the figures of runs in a file, and find the runs at which they change",
		Example: `  neokv bench --out run.jsonl && neokv history add history.jsonl run.jsonl
  neokv history show history.jsonl
  neokv history show history.jsonl --figure throughput --figure CPU --format html -o history.html`,
		Args: verbsOnly,
		RunE: wantVerb,
	}
	c.AddCommand(historyAddCommand(p), historyShowCommand(p))
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

// historyFlags are the flags of history show.
type historyFlags struct {
	pageFlags
	figures, workloads []string
	seed               uint64
}

func historyShowCommand(p process) *cobra.Command {
	f := historyFlags{pageFlags: pageFlags{forms: []string{"table", "html", "json"}, page: "history.html"}}
	c := &cobra.Command{
		Use:   "show HISTORY",
		Short: "Show figures over the runs of a history, and the runs at which they change",
		Long: `Show figures over the runs of a history, in the order in which the runs began, and the runs at which they
change. Runs of one load, target and machine stand together. Settings and builds may differ: a change names what did.`,
		Example: `  neokv history show history.jsonl
  neokv history show history.jsonl --workload ycsb-a --figure throughput
  neokv history show history.jsonl --format html -o history.html`,
		Args: wantArgs(1, 1, "a history"),
		RunE: func(c *cobra.Command, args []string) error { return f.show(p, args[0]) },
	}
	flags := c.Flags()
	f.register(flags)
	flags.StringArrayVar(&f.figures, "figure", nil, "`name` of a figure to show; may be repeated (default all)")
	flags.StringArrayVar(&f.workloads, "workload", nil, "`name` of a workload to show; may be repeated (default all)")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the permutations that a change is tested against")
	return c
}

func (f *historyFlags) show(p process, path string) error {
	wrong := f.check(path)
	if err := otherKind(path, "history"); err != nil {
		return errors.Join(wrong, err)
	}
	content, err := history.Read(path)
	if err != nil {
		return errors.Join(wrong, usageErrors(path, err))
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
	o := history.Options{Figures: f.figures, Workloads: f.workloads, Points: changepoint.Options{Seed: f.seed}}
	if wrong != nil {
		return wrong
	}
	for _, w := range content.Warnings {
		fmt.Fprintf(p.stderr, "neokv: warning: %s: %s\n", path, w)
	}
	trends := content.Trends(o)
	if len(trends) == 0 {
		return &usageError{path + ": no run has these figures and workloads"}
	}
	return f.write(p, func(w io.Writer, format string) error {
		switch format {
		case "html":
			return report.HistoryHTML(w, path, trends, o)
		case "json":
			return history.PrintJSON(w, trends, o)
		}
		return history.PrintTable(w, trends, o)
	})
}
