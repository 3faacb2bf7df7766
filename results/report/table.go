package report

import (
	"fmt"
	"io"
	"strings"

	"neokv.dev/results"
)

// Table prints what a page has in words and figures, for people: of one result, the sentence and the table of bench; of
// several, what they are, in what they differ, and their figures side by side. It wants 1 to MaxResults subjects, whose
// names differ.
func Table(w io.Writer, subjects []results.ResultFile) error {
	var b strings.Builder
	b.WriteString(Headline(subjects) + "\n\n")
	if len(subjects) == 1 {
		r := subjects[0].Result
		if err := results.PrintTable(&b, r.Header, r.Measured()); err != nil {
			return err
		}
	} else {
		printBeside(&b, subjects)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// printBeside prints several results side by side.
func printBeside(b *strings.Builder, subjects []results.ResultFile) {
	table := func(names int, heading []string, rows [][]string) {
		b.WriteByte('\n')
		for _, line := range results.Align(append([][]string{heading}, rows...), names) {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
		}
	}
	for _, c := range conditions(subjects) {
		fmt.Fprintf(b, "%s: %s\n", c.Name, c.Value)
	}
	for i, s := range subjects {
		fmt.Fprintf(b, "%s: %s\n", letter(i), s.Name)
		for _, p := range problems(s.Result) {
			fmt.Fprintf(b, "%s: warning: %s\n", letter(i), p)
		}
	}
	heading, rows := differing(subjects)
	if len(rows) == 0 {
		b.WriteString("\n" + noDifference + "\n")
	} else {
		table(len(heading), heading, rows)
	}
	for i, s := range subjects {
		for _, c := range curvesOf(i, s.Result) {
			fmt.Fprintf(b, "\n%s\n", c.title(true))
			heading, rows := c.rows()
			table(1, heading, rows)
			if c.SLO != "" {
				fmt.Fprintf(b, "\nSLO: %s\n", c.SLO)
			}
		}
	}
	if measured(subjects) {
		for _, g := range groupTables(subjects) {
			if g.Name != "" {
				fmt.Fprintf(b, "\n%s\n", g.Name)
			}
			if g.Compare != nil {
				table(2, g.Compare.heading(), g.Compare.rows())
				continue
			}
			for _, t := range g.Tables {
				fmt.Fprintf(b, "\n%s, %s\n", t.Letter, t.Title)
				table(t.Names, t.Heading, t.Rows)
			}
		}
	}
	for _, t := range nodeTables(subjects) {
		fmt.Fprintf(b, "\n%s, nodes\n", t.Letter)
		table(t.Names, t.Heading, t.Rows)
	}
	b.WriteString("\n" + oneRunEach + "\n")
}
