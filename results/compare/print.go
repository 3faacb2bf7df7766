package compare

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"neokv.dev/results"
)

// PrintTable prints a comparison for people. It begins with the conclusion.
func (d *Delta) PrintTable(w io.Writer) error {
	var b strings.Builder
	b.WriteString(strings.Join(d.Lead(), "\n") + "\n\n")
	for _, r := range d.SetupRows() {
		fmt.Fprintf(&b, "%s: %s\n", r.Name, r.Value)
	}
	b.WriteByte('\n')
	rows := [][]string{d.Heading()}
	for i := range d.Rows {
		rows = append(rows, d.Cells(&d.Rows[i]))
	}
	for i, r := range results.Align(rows, 1) {
		if i > 0 && d.exploratory() == i-1 {
			b.WriteString(Exploratory + "\n")
		}
		b.WriteString(r + "\n")
	}
	b.WriteByte('\n')
	for _, line := range d.Notes() {
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Exploratory is the line above figures that make no conclusion.
var Exploratory = fmt.Sprintf("exploratory: of those that differ one in %.0f is expected to be false",
	1/FalseDiscoveries)

// exploratory returns the place of the first exploratory row, -1 if there is none.
func (d *Delta) exploratory() int {
	return slices.IndexFunc(d.Rows, func(r Row) bool { return !r.Primary })
}

// PrintMarkdown prints a comparison for a pull request.
func (d *Delta) PrintMarkdown(w io.Writer) error {
	var b strings.Builder
	text := results.MarkdownText
	for i, line := range d.Lead() {
		if line = text(line); i == 0 {
			line = "**" + line + "**"
		}
		b.WriteString(line + "\n\n")
	}
	for i, r := range d.SetupRows() {
		value := text(r.Value)
		if i < 2 {
			value = "`" + strings.ReplaceAll(r.Value, "`", "'") + "`"
		}
		fmt.Fprintf(&b, "- %s: %s\n", text(r.Name), value)
	}
	b.WriteByte('\n')
	table := func(from, to int) {
		var rows [][]string
		for i := range d.Rows[from:to] {
			rows = append(rows, d.Cells(&d.Rows[from+i]))
		}
		b.WriteString(results.MarkdownTable(d.Heading(), 1, 1, rows) + "\n")
	}
	switch first := d.exploratory(); first {
	case -1:
		table(0, len(d.Rows))
	default:
		if first > 0 {
			table(0, first)
		}
		b.WriteString(text(Exploratory) + "\n\n")
		table(first, len(d.Rows))
	}
	for _, line := range d.Notes() {
		b.WriteString(text(line) + "  \n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Lead returns the lines with which a comparison begins: the conclusion, and what a reader must know before believing
// it.
func (d *Delta) Lead() (out []string) {
	for _, line := range []string{d.Conclusion.Text, d.Conclusion.Power, d.Next} {
		if line != "" {
			out = append(out, line)
		}
	}
	for _, mark := range d.Marks {
		out = append(out, "compared all the same: "+mark)
	}
	return out
}

// SetupRows returns the conditions of a comparison, each with its name: what the sides are, what both share, and in
// what else they differ.
func (d *Delta) SetupRows() (rows []results.NamedValue) {
	add := func(name, value string) { rows = append(rows, results.NamedValue{Name: name, Value: value}) }
	add("A", d.A)
	add("B", d.B)
	for _, s := range d.Setup {
		if s.A == s.B {
			add(s.Name, s.A)
		} else {
			add(s.Name+" of A", orNone(s.A))
			add(s.Name+" of B", orNone(s.B))
		}
	}
	for _, c := range d.Conditions {
		add("differs", fmt.Sprintf("%s: %s and %s", c.Name, orNone(c.A), orNone(c.B)))
	}
	return rows
}

// Heading returns the names of the columns of a table.
func (d *Delta) Heading() []string {
	out := []string{"figure", "A", "B", "B against A", "95 % interval"}
	if d.Control {
		out = append(out, "A again")
	}
	return append(out, "adjusted p", "")
}

// Cells returns the cells of a row, in the order of the heading.
func (d *Delta) Cells(r *Row) []string {
	mean := ""
	if r.Means {
		mean = " mean"
	}
	change := func(e *Estimate) string {
		if e == nil {
			return "-"
		}
		return Percent(e.Center)
	}
	out := []string{r.Name, r.A.text(r.Unit) + mean, r.B.text(r.Unit) + mean, change(r.Ratio), r.Ratio.Span()}
	if d.Control {
		out = append(out, change(r.Control))
	}
	p := fmt.Sprintf("%.3f", r.Adjusted)
	switch {
	case r.Verdict == TooFew, r.Verdict == Unknown:
		p = "-"
	case r.Adjusted < 0.001:
		p = "<0.001"
	}
	return append(out, p, string(r.Verdict))
}

// text prints a median.
func (e *Estimate) text(unit string) string {
	if e.AtLeast {
		return ">= " + results.FigureText(e.Center, unit)
	}
	return results.FigureText(e.Center, unit)
}

// Span prints the interval of a ratio, - if there is none.
func (e *Estimate) Span() string {
	if e == nil || e.Interval == nil {
		return "-"
	}
	low, high := e.Interval[0], e.Interval[1]
	if large(low) || large(high) {
		return times(low) + " to " + times(high)
	}
	return Percent(low) + " to " + Percent(high)
}

// Percent prints a ratio as a change: 1.05 is +5.0 %, and 190 is x190.
func Percent(ratio float64) string {
	change := 100 * (ratio - 1)
	switch {
	case large(ratio):
		return times(ratio)
	case math.Abs(change) >= 0.095 || change == 0:
		return fmt.Sprintf("%+.1f %%", change)
	}
	return fmt.Sprintf("%+.3f %%", change)
}

// large reports whether a ratio reads better as times than as a percentage.
func large(ratio float64) bool { return ratio >= 2 || ratio > 0 && ratio < 0.1 }

// times prints a ratio with three digits.
func times(ratio float64) string {
	switch {
	case ratio >= 100:
		return "x" + results.Count(int64(ratio+0.5))
	case ratio >= 10:
		return fmt.Sprintf("x%.1f", ratio)
	case ratio >= 1:
		return fmt.Sprintf("x%.2f", ratio)
	}
	return fmt.Sprintf("x%.3g", ratio)
}

// Notes says of what the table is, and warns.
func (d *Delta) Notes() []string {
	var out []string
	switch {
	case d.Rounds > 0 && d.Control:
		out = append(out, fmt.Sprintf("%s of A, B and A again; the change is that of B against both, in per cent of A",
			results.Plural(int64(d.Rounds), "round")))
	case d.Rounds > 0:
		out = append(out, results.Plural(int64(d.Rounds), "round")+" of A and B; the change is in per cent of A")
	case len(d.Rows) > 0:
		out = append(out, fmt.Sprintf("%d and %s, which did not take turns: a change of the machine in between counts "+
			"as one of B; p is that of a Mann-Whitney U test, and the interval is that of Hodges and Lehmann",
			d.Rows[0].A.N, results.Plural(int64(d.Rows[0].B.N), "run")))
	}
	for _, r := range d.Rows {
		if !r.Means && r.Ratio != nil && r.Ratio.Interval != nil && r.A.Center > 0 {
			medians := r.B.Center / r.A.Center
			if d.Rounds > 0 && (medians < r.Ratio.Interval[0] || medians > r.Ratio.Interval[1]) && r.Primary {
				out = append(out, fmt.Sprintf("%s: the medians of A and B differ by %s, the blocks of a round by %s: "+
					"rounds differ from each other, so the latter counts", r.Name, Percent(medians),
					Percent(r.Ratio.Center)))
			}
		}
	}
	out = append(out, d.Proof...)
	for _, warning := range d.Warnings {
		out = append(out, "warning: "+warning)
	}
	return out
}
