package compare

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"neokv.dev/results"
)

// PrintSpread prints how far the figures of runs of one load spread, what a reader must know of each run, and the names
// of the files. The runs are finished.
func PrintSpread(w io.Writer, runs []results.ResultFile) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s of %s\n", results.Plural(int64(len(runs)), "run"), runs[0].Header.Where())
	all := make([][]results.Figure, len(runs))
	rounds := make([]Round, len(runs)) // for the names of the figures
	for i, r := range runs {
		for _, line := range r.Summary.Caveats() {
			fmt.Fprintf(&b, "%s: %s\n", r.Name, line)
		}
		all[i] = r.Summary.Figures(&r.Header)
		rounds[i].A = all[i]
	}
	for _, line := range runs[0].Header.Load() {
		fmt.Fprintln(&b, line)
	}
	rows := [][]string{{"figure", "median", "95 % interval", "lowest", "highest", "spread"}}
	for _, f := range named(rounds) {
		v := values(all, f.Name)
		e, low, high := NewEstimate(v), slices.Min(v), slices.Max(v)
		text := func(value float64) string { return results.FigureText(value, f.Unit) }
		if atLeast(all, f.Name) {
			text = func(value float64) string { return ">= " + results.FigureText(value, f.Unit) }
		}
		interval, spread := "-", "-"
		if e.Interval != nil {
			interval = text(e.Interval[0]) + " to " + text(e.Interval[1])
		}
		if e.Center > 0 {
			spread = fmt.Sprintf("%.1f %%", 100*(high-low)/e.Center)
		}
		rows = append(rows, []string{f.Name, text(e.Center), interval, text(low), text(high), spread})
	}
	b.WriteString("\n" + strings.Join(results.Align(rows, 1), "\n") + "\n\n")
	for _, r := range runs {
		fmt.Fprintln(&b, r.Name)
	}
	_, err := io.WriteString(w, b.String())
	return err
}
