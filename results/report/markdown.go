package report

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"neokv.dev/results"
)

// Markdown writes a summary for a pull request, in GitHub's dialect. It wants 1 to MaxResults subjects, whose names
// differ.
func Markdown(w io.Writer, subjects []results.ResultFile) error {
	var b strings.Builder
	several := len(subjects) > 1
	text := results.MarkdownText
	fmt.Fprintf(&b, "### Benchmark: %s\n\n**%s**\n\n", text(title(subjects)), text(Headline(subjects)))
	for _, c := range conditions(subjects) {
		fmt.Fprintf(&b, "- %s: %s\n", text(c.Name), text(c.Value))
	}
	for i, s := range subjects {
		indent := ""
		if several {
			indent = "  "
			fmt.Fprintf(&b, "- **%s** `%s`\n", letter(i), strings.ReplaceAll(s.Name, "`", "'"))
		}
		for _, p := range problems(s.Result) {
			fmt.Fprintf(&b, "%s- ⚠ %s\n", indent, text(p))
		}
	}
	if several {
		differ(&b, subjects)
	}
	for i, s := range subjects {
		for _, c := range curvesOf(i, s.Result) {
			c.table(&b, several)
		}
	}
	for i, g := range groupTables(subjects) {
		if !measured(subjects) {
			continue // the curves have the figures
		}
		if g.Compare != nil {
			b.WriteString("\n")
			if name := matchGroups(subjects)[i].name; name != "" {
				fmt.Fprintf(&b, "**%s**\n\n", results.MarkdownText(name))
			}
			rows := [][]string{}
			for _, r := range g.Compare.Rows {
				rows = append(rows, append([]string{r.Op, r.What}, r.Values...))
			}
			b.WriteString(results.MarkdownTable(append([]string{"operation", "figure"}, g.Compare.Letters...), 2, 0, rows))
			continue
		}
		for _, t := range g.Tables {
			fmt.Fprintf(&b, "\n%s\n\n", results.MarkdownText(t.Title))
			b.WriteString(results.MarkdownTable(t.Heading, t.Names, 0, t.Rows))
			b.WriteString("\n")
			for _, n := range t.Notes {
				fmt.Fprintf(&b, "- %s\n", results.MarkdownText(n))
			}
		}
	}
	if several {
		b.WriteString("\nChanges are against the first result. Each result is one run: a small change may be noise.\n")
	} else if s := subjects[0].Result; s.Summary != nil {
		if !measured(subjects) {
			b.WriteString("\n")
		}
		for _, n := range s.Summary.Notes(&s.Header) {
			fmt.Fprintf(&b, "- %s\n", results.MarkdownText(n))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// measured reports whether a run has a measured part, beside rates that it tried.
func measured(subjects []results.ResultFile) bool {
	return slices.ContainsFunc(subjects, func(s results.ResultFile) bool {
		return s.Result.Summary == nil || s.Result.Summary.Curve == nil || s.Result.Summary.Seconds > 0
	})
}

// table writes a row for each rate of a curve, with what begins there and why the rate did not hold.
func (c drawnCurve) table(b *strings.Builder, several bool) {
	name := c.Group
	if several {
		name = letter(c.Run) + ", " + name
	}
	fmt.Fprintf(b, "\n**Latency against rate: %s**\n\n", results.MarkdownText(name))
	var rows [][]string
	marks := slices.Clone(c.Marks)
	for i, x := range shownSteps(&drawing{Curves: []drawnCurve{c}}) {
		var here []string
		marks = slices.DeleteFunc(marks, func(m mark) bool {
			if m.At != c.Steps[i].Rate {
				return false
			}
			here = append(here, m.Name)
			return true
		})
		rows = append(rows, []string{strings.Join(here, ", "), x.Rate, x.Reached, x.P50, x.P99, x.P999, x.Max, x.Why})
	}
	heading := []string{"mark", "rate", "ops/s", "p50", "p99", "p99.9", "max", "why it does not hold"}
	b.WriteString(results.MarkdownTable(heading, 1, 1, rows))
	if c.SLO != "" {
		fmt.Fprintf(b, "\nSLO: %s\n", results.MarkdownText(c.SLO))
	}
}

// differ writes in what the results differ, apart from their figures.
func differ(b *strings.Builder, subjects []results.ResultFile) {
	heading := []string{"differs", ""}
	for i := range subjects {
		heading = append(heading, letter(i))
	}
	var rows [][]string
	for _, f := range results.Facts(subjects) {
		if f.Differ && f.Name != "command" {
			rows = append(rows, append([]string{f.Section, f.Name}, f.Values...))
		}
	}
	b.WriteString("\n")
	if len(rows) == 0 {
		b.WriteString("The results have the same load, settings, build and machine.\n")
		return
	}
	b.WriteString(results.MarkdownTable(heading, len(heading), 0, rows))
}
