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
		b.WriteString("\n")
		if heading, rows := differing(subjects); len(rows) == 0 {
			b.WriteString(noDifference + "\n")
		} else {
			b.WriteString(results.MarkdownTable(heading, len(heading), 0, rows))
		}
	}
	for i, s := range subjects {
		for _, c := range curvesOf(i, s.Result) {
			heading, rows := c.rows()
			fmt.Fprintf(&b, "\n**%s**\n\n%s", text(c.title(several)), results.MarkdownTable(heading, 1, 1, rows))
			if c.SLO != "" {
				fmt.Fprintf(&b, "\nSLO: %s\n", text(c.SLO))
			}
		}
	}
	for _, g := range groupTables(subjects) {
		if !measured(subjects) {
			continue // the curves have the figures
		}
		if g.Compare != nil {
			b.WriteString("\n")
			if g.Name != "" {
				fmt.Fprintf(&b, "**%s**\n\n", text(g.Name))
			}
			b.WriteString(results.MarkdownTable(g.Compare.heading(), 2, 0, g.Compare.rows()))
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
	for _, t := range nodeTables(subjects) {
		b.WriteString("\n")
		if several {
			fmt.Fprintf(&b, "%s, nodes\n\n", t.Letter)
		}
		b.WriteString(results.MarkdownTable(t.Heading, t.Names, 0, t.Rows) + "\n")
	}
	if several {
		b.WriteString("\n" + oneRunEach + "\n")
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

// What a summary of several results says, where they do not differ and below their figures.
const (
	noDifference = "The results have the same load, settings, build and machine."
	oneRunEach   = "Changes are against the first result. Each result is one run: a small change may be noise."
)

func (c drawnCurve) title(several bool) string {
	name := c.Group
	if several {
		name = letter(c.Run) + ", " + name
	}
	return "Latency against rate: " + name
}

// rows has a row for each rate of a curve, with what begins there and why the rate did not hold.
func (c drawnCurve) rows() (heading []string, rows [][]string) {
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
	return []string{"mark", "rate", "ops/s", "p50", "p99", "p99.9", "max", "why it does not hold"}, rows
}

// differing says in what the results differ, apart from their figures.
func differing(subjects []results.ResultFile) (heading []string, rows [][]string) {
	heading = []string{"differs", ""}
	for i := range subjects {
		heading = append(heading, letter(i))
	}
	for _, f := range results.Facts(subjects) {
		if f.Differ && f.Name != "command" {
			rows = append(rows, append([]string{f.Section, f.Name}, f.Values...))
		}
	}
	return heading, rows
}
