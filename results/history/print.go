package history

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/changepoint"
	"neokv.dev/results/compare"
)

// columns is how wide the curves of a table are at most.
const columns = 40

// PrintTable prints trends for people: of each what was found, its conditions, and its figures.
func PrintTable(w io.Writer, trends []*Trend) error {
	var b strings.Builder
	for i, t := range trends {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(t.Conclusion() + "\n\n")
		for _, c := range t.Conditions() {
			fmt.Fprintf(&b, "%s: %s\n", c.Name, c.Value)
		}
		b.WriteByte('\n')
		t.printChanges(&b)
		rows := [][]string{{"figure", "first", "median", "last", "correlation"}}
		for k := range t.Series {
			rows = append(rows, t.Series[k].Cells())
		}
		for k, line := range results.Align(rows, 1) {
			b.WriteString(line)
			if k > 0 {
				b.WriteString("  " + t.Series[k-1].curve())
			}
			b.WriteByte('\n')
		}
		b.WriteByte('\n')
		for _, note := range t.Notes() {
			b.WriteString(note + "\n")
		}
	}
	fmt.Fprintf(&b, "change points: %s\n", Method)
	_, err := io.WriteString(w, b.String())
	return err
}

// Conditions returns what the runs of a trend share, each with its name.
func (t *Trend) Conditions() []results.NamedValue {
	return []results.NamedValue{{Name: "load", Value: t.Load}, {Name: "target", Value: t.Target},
		{Name: "machine", Value: t.Machine}, {Name: "runs", Value: t.Span()}}
}

// Conclusion says in a sentence what was found. It names the last changes, and the first figures of each.
func (t *Trend) Conclusion() string {
	const changes, figures = 3, 3
	runs := results.Plural(int64(len(t.Runs)), "run")
	switch {
	case len(t.Runs) < changepoint.Fewest:
		return fmt.Sprintf("cannot tell: %s, and a change point needs %d", runs, changepoint.Fewest)
	case t.Changes == nil:
		return fmt.Sprintf("no change of %s in %s", results.Plural(int64(len(t.Series)), "figure"), runs)
	}
	var said []string
	for i := range t.Changes[max(0, len(t.Changes)-changes):] {
		c := &t.Changes[max(0, len(t.Changes)-changes)+i]
		var found []string
		for _, l := range c.Levels {
			r := t.Level(l).Change
			text := fmt.Sprintf("%s %s", r.Name, r.Verdict)
			if r.Ratio != nil {
				text += fmt.Sprintf(" (%s of %s)", compare.Percent(r.Ratio.Center),
					results.FigureText(r.A.Center, r.Unit))
			}
			found = append(found, text)
		}
		if more := len(found) - figures; more > 0 {
			found = append(found[:figures], fmt.Sprintf("and %d more", more))
		}
		said = append(said, fmt.Sprintf("on %s %s", t.Runs[c.Run].At.UTC().Format(time.DateOnly),
			strings.Join(found, ", ")))
	}
	last := ""
	if len(t.Changes) > changes {
		last = ", the last"
	}
	return fmt.Sprintf("%s in %s%s: %s", results.Plural(int64(len(t.Changes)), "change"), runs, last,
		strings.Join(said, "; "))
}

// Span says which runs a trend has.
func (t *Trend) Span() string {
	runs := results.Plural(int64(len(t.Runs)), "run")
	const day = "2006-01-02"
	from, to := t.Runs[0].At.UTC().Format(day), t.Runs[len(t.Runs)-1].At.UTC().Format(day)
	if from == to {
		return runs + " on " + from
	}
	return runs + " from " + from + " to " + to
}

// Cells returns the name of a series, its first value, its median, its last value, and the correlation of its values.
// A lower bound has `>=` before it.
func (s *Series) Cells() []string {
	text := func(v float64, bound bool) string {
		if bound {
			return ">= " + results.FigureText(v, s.Unit)
		}
		return results.FigureText(v, s.Unit)
	}
	last := len(s.Values) - 1
	return []string{s.Name, text(s.Values[0], s.AtLeast[0]),
		text(compare.NewEstimate(s.Values).Center, slices.Contains(s.AtLeast, true)),
		text(s.Values[last], s.AtLeast[last]), fmt.Sprintf("%.2f", s.Correlation)}
}

// curve draws a series from its lowest to its highest value. Of a long series a column is the median of several values.
func (s *Series) curve() string {
	n := min(len(s.Values), columns)
	var points []float64
	for i := range n {
		part := s.Values[i*len(s.Values)/n : (i+1)*len(s.Values)/n]
		points = append(points, compare.NewEstimate(part).Center)
	}
	low := slices.Min(points)
	for i := range points {
		points[i] -= low
	}
	return results.Sparkline(points, columns)
}

// printChanges writes the changes, and in what else the runs differ.
func (t *Trend) printChanges(b *strings.Builder) {
	for i := range t.Changes {
		c := &t.Changes[i]
		fmt.Fprintf(b, "%s\n", t.Where(c))
		var rows [][]string
		for _, l := range c.Levels {
			rows = append(rows, append([]string{"  " + t.Series[l.Series].Name}, t.Level(l).Cells()...))
		}
		for _, line := range results.Align(rows, 1) {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
		for _, f := range c.Differ {
			fmt.Fprintf(b, "  %s: %s -> %s\n", f.Name, cmp.Or(f.Values[0], "(none)"), cmp.Or(f.Values[1], "(none)"))
		}
		fmt.Fprintf(b, "  %s\n", c.ToConfirm())
		b.WriteByte('\n')
	}
}

// Level returns a level by its place.
func (t *Trend) Level(l ChangedLevel) *Level { return &t.Series[l.Series].Levels[l.Level] }

// Where says between which runs and commits a change lies.
func (t *Trend) Where(c *ChangePoint) string {
	const minute = "2006-01-02 15:04"
	after, by := &t.Runs[c.After], &t.Runs[c.By]
	text := fmt.Sprintf("change %d between the runs of %s and %s", c.Number, after.At.UTC().Format(minute),
		by.At.UTC().Format(minute))
	switch {
	case by.Commit == "" && after.Commit == "":
	case by.Commit == after.Commit:
		text += ", both of commit " + by.Commit
	default:
		text += fmt.Sprintf(", between commits %s and %s", cmp.Or(after.Commit, "(none)"), cmp.Or(by.Commit, "(none)"))
	}
	if c.By-c.After > 1 {
		text += ", likely with that of " + t.Runs[c.Run].At.UTC().Format(minute)
	}
	return text
}

// Cells returns the medians of the level before and of this one, the change with its interval, and the verdict.
func (l *Level) Cells() []string {
	r := l.Change
	out := []string{results.FigureText(r.A.Center, r.Unit), "to", results.FigureText(r.B.Center, r.Unit), "-", "-"}
	if r.Ratio != nil {
		out[3], out[4] = compare.Percent(r.Ratio.Center), r.Ratio.Span()
	}
	return append(out, string(r.Verdict))
}

// Notes says what a reader must know about a trend.
func (t *Trend) Notes() (out []string) {
	if t.Older > 0 {
		out = append(out, fmt.Sprintf("%s older runs are left out", results.Count(int64(t.Older))))
	}
	warned, last := 0, ""
	for _, r := range t.Runs {
		if len(r.Warnings) > 0 {
			warned, last = warned+1, r.Warnings[0]
		}
	}
	if warned > 0 {
		out = append(out, fmt.Sprintf("warning: %d of the runs have warnings, the last: %s", warned, last))
	}
	if names := t.varying(); names != nil {
		out = append(out, "settings that changed where no figure did: "+strings.Join(names, ", "))
	}
	return out
}

// varying returns the settings that differ between a run and the one before it, where no figure changes. Those that
// change with a figure stand with its change.
func (t *Trend) varying() (out []string) {
	for i := 1; i < len(t.Runs); i++ {
		if slices.ContainsFunc(t.Changes, func(c ChangePoint) bool { return c.After < i && i <= c.By }) {
			continue
		}
		for _, f := range differ(t.Runs[i-1].header, t.Runs[i].header) {
			if f.OfSetting() && !slices.Contains(out, f.Name) {
				out = append(out, f.Name)
			}
		}
	}
	slices.Sort(out)
	return out
}

// PrintJSON prints trends for programs.
func PrintJSON(w io.Writer, trends []*Trend) error {
	return results.PrintJSON(w, struct {
		Method string   `json:"method"`
		Trends []*Trend `json:"trends"`
	}{Method, trends})
}
