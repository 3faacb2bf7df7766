package compare

import (
	"fmt"
	"io"
	"math"
	"strings"

	"neokv.dev/results"
)

// PrintTable prints a comparison for people, in the way of benchstat: `~` is a difference that may be noise.
func (c *Delta) PrintTable(w io.Writer) error {
	var b strings.Builder
	if lead := c.Lead(); lead != nil {
		b.WriteString(strings.Join(lead, "\n") + "\n\n")
	}
	for _, r := range c.SetupRows() {
		fmt.Fprintf(&b, "%s: %s\n", r[0], r[1])
	}
	b.WriteByte('\n')
	rows := [][]string{c.Heading()}
	for i := range c.Rows {
		rows = append(rows, c.Cells(&c.Rows[i]))
	}
	for _, r := range results.Align(rows, 1) {
		b.WriteString(r + "\n")
	}
	b.WriteByte('\n')
	for _, line := range c.Notes() {
		b.WriteString(line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintMarkdown prints a comparison for a pull request.
func (c *Delta) PrintMarkdown(w io.Writer) error {
	var b strings.Builder
	text := results.MarkdownText
	for i, line := range c.Lead() {
		if line = text(line); i == 0 {
			line = "**" + line + "**"
		}
		b.WriteString(line + "\n\n")
	}
	for i, r := range c.SetupRows() {
		value := text(r[1])
		if i < 2 {
			value = "`" + strings.ReplaceAll(r[1], "`", "'") + "`"
		}
		fmt.Fprintf(&b, "- %s: %s\n", text(r[0]), value)
	}
	b.WriteByte('\n')
	var rows [][]string
	for i := range c.Rows {
		rows = append(rows, c.Cells(&c.Rows[i]))
	}
	b.WriteString(results.MarkdownTable(c.Heading(), 1, 1, rows) + "\n")
	for _, line := range c.Notes() {
		b.WriteString(text(line) + "  \n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Lead returns the lines with which a comparison begins: the conclusion, and what a reader must know before believing it.
func (c *Delta) Lead() (out []string) {
	for _, line := range []string{c.Conclusion, c.Next} {
		if line != "" {
			out = append(out, line)
		}
	}
	for _, mark := range c.Marks {
		out = append(out, "compared all the same: "+mark)
	}
	return out
}

// SetupRows returns the conditions of a comparison, each with its name: what the sides are, what both share, and in what
// else they differ.
func (c *Delta) SetupRows() [][]string {
	rows := [][]string{{"A", c.A}, {"B", c.B}}
	for _, s := range c.Setup {
		if s.A == s.B {
			rows = append(rows, []string{s.Name, s.A})
		} else {
			rows = append(rows, []string{s.Name + " of A", orNone(s.A)}, []string{s.Name + " of B", orNone(s.B)})
		}
	}
	for _, d := range c.Conditions {
		rows = append(rows, []string{"differs", fmt.Sprintf("%s: %s and %s", d.Name, orNone(d.A), orNone(d.B))})
	}
	return rows
}

// Heading returns the names of the columns of a table.
func (c *Delta) Heading() []string {
	out := []string{"figure", "A", "B", "B against A", "95 % interval"}
	switch {
	case c.Rounds == 0:
		out = append(out, "p")
	case c.Control:
		out = append(out, "A again")
	}
	return append(out, "")
}

// Cells returns the cells of a row, in the order of the heading.
func (c *Delta) Cells(r *Row) []string {
	out := []string{r.Name, results.FigureText(r.A.Center, r.Unit), results.FigureText(r.B.Center, r.Unit)}
	change := "-"
	if r.Ratio != nil {
		change = Percent(r.Ratio.Center)
	}
	out = append(out, change, r.Ratio.Span())
	switch {
	case c.Rounds == 0 && r.Verdict == TooFew:
		out = append(out, "-")
	case c.Rounds == 0:
		out = append(out, fmt.Sprintf("%.3f", r.P))
	case c.Control && r.Control == nil:
		out = append(out, "-")
	case c.Control:
		out = append(out, Percent(r.Control.Center))
	}
	return append(out, string(r.Verdict))
}

// Span prints the interval of a ratio, - if there is none.
func (e *Estimate) Span() string {
	if e == nil || e.Interval == nil {
		return "-"
	}
	return Percent(e.Interval[0]) + " to " + Percent(e.Interval[1])
}

// Percent prints a ratio as a change: 1.05 is +5.0 %.
func Percent(ratio float64) string {
	change := 100 * (ratio - 1)
	switch {
	case math.Abs(change) >= 99.95:
		return fmt.Sprintf("%+.0f %%", change)
	case math.Abs(change) >= 0.095 || change == 0:
		return fmt.Sprintf("%+.1f %%", change)
	}
	return fmt.Sprintf("%+.3f %%", change)
}

// Notes says how much the comparison could have seen, and warns.
func (c *Delta) Notes() []string {
	var out []string
	switch {
	case c.Rounds > 0 && c.Control:
		out = append(out, fmt.Sprintf("%d rounds of A, B and A again; the change is that of B against both", c.Rounds))
	case c.Rounds > 0:
		out = append(out, fmt.Sprintf("%d rounds of A and B", c.Rounds))
	case len(c.Rows) > 0:
		out = append(out, fmt.Sprintf("%d and %d runs, which did not take turns: a change of the machine in between counts "+
			"as one of B; p is that of a Mann-Whitney U test, and the interval is that of Hodges and Lehmann",
			c.Rows[0].A.N, c.Rows[0].B.N))
	}
	var seen []string
	for _, r := range c.Rows {
		if r.Visible > 0 && len(seen) < 4 {
			seen = append(seen, fmt.Sprintf("%.1f %% in %s", 100*r.Visible, r.Name))
		}
	}
	if seen != nil {
		out = append(out, "smallest change that this run could have told from noise: "+strings.Join(seen, ", "))
	}
	for _, warning := range c.Warnings {
		out = append(out, "warning: "+warning)
	}
	return out
}
