package gate

import (
	"encoding/xml"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"neokv.dev/results"
	"neokv.dev/results/compare"
	"neokv.dev/results/report"
)

// PrintTable prints an outcome for people: what has changed, and what the check could have seen.
func (o *Outcome) PrintTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintln(&b, o.headline())
	for _, c := range o.Conditions {
		fmt.Fprintf(&b, "%s: %s\n", c.Name, c.Value)
	}
	if rows := o.rows(); len(rows) > 0 {
		for _, line := range results.Align(rows, 2) {
			fmt.Fprintln(&b, "  "+line)
		}
	}
	for _, line := range o.notes() {
		fmt.Fprintln(&b, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// notes are the lines below the findings.
func (o *Outcome) notes() []string {
	notes := slices.Clone(o.Power)
	for _, line := range o.Warnings {
		notes = append(notes, "warning: "+line)
	}
	return append(notes, o.Next...)
}

// Annotate prints what is not a pass as an annotation of GitHub Actions.
func (o *Outcome) Annotate(w io.Writer) {
	kind := map[Conclusion]string{Regression: "error", Inconclusive: "warning"}[o.Verdict]
	if kind != "" {
		fmt.Fprintf(w, "::%s title=neokv check::%s\n", kind, strings.NewReplacer("%", "%25", "\n", "%0A").
			Replace(o.headline()))
	}
}

// PrintMarkdown prints an outcome for a pull request.
func (o *Outcome) PrintMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**\n\n", o.headline())
	for _, c := range o.Conditions {
		fmt.Fprintf(&b, "- %s: %s\n", results.MarkdownText(c.Name), results.MarkdownText(c.Value))
	}
	if o.Conditions != nil {
		b.WriteByte('\n')
	}
	if rows := o.rows(); len(rows) > 0 {
		b.WriteString(results.MarkdownTable([]string{"figure", "change"}, 2, 0, rows) + "\n")
	}
	for _, line := range o.notes() {
		fmt.Fprintf(&b, "- %s\n", results.MarkdownText(line))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintHTML writes an outcome as a page, with all figures.
func (o *Outcome) PrintHTML(w io.Writer) error {
	p := report.CheckPage{Verdict: string(o.Verdict), Headline: o.headline(), Conditions: o.Conditions, Power: o.Power,
		Warnings: o.Warnings, Next: o.Next}
	for _, f := range o.all() {
		if n := len(p.Cases); n == 0 || p.Cases[n-1].Name != f.Case {
			p.Cases = append(p.Cases, report.CheckedCase{Name: f.Case})
		}
		c := &p.Cases[len(p.Cases)-1]
		c.Rows = append(c.Rows, report.CheckedFigure{Figure: f.Figure, Before: f.value(f.Before), Now: f.value(f.Now),
			Change: f.change(), Bounds: f.bounds(), Verdict: f.Verdict, Gates: f.Gates})
	}
	return report.CheckHTML(w, p)
}

func (o *Outcome) headline() string {
	gating, better, worse, unsure := o.tally()
	var changed []string
	for _, x := range []struct {
		n    int
		what string
	}{{worse, "worse"}, {better, "better"}, {unsure, "inconclusive"}} {
		if x.n > 0 {
			changed = append(changed, fmt.Sprintf("%d %s", x.n, x.what))
		}
	}
	if changed == nil {
		changed = []string{"none has changed"}
	}
	gate := "gate"
	if gating == 1 {
		gate = "gates"
	}
	return fmt.Sprintf("%s: of %s that %s, %s", o.Verdict, results.Plural(int64(gating), "figure"), gate,
		strings.Join(changed, ", "))
}

func (o *Outcome) all() []Finding { return slices.Concat(o.Counts, o.Timed) }

// rows returns the findings that a reader wants to see: those that gate and are not as before, and all timed ones.
func (o *Outcome) rows() (out [][]string) {
	for _, f := range o.Counts {
		if f.differs() {
			out = append(out, []string{f.Case + ": " + f.Figure, f.text()})
		}
	}
	for _, f := range o.Timed {
		out = append(out, []string{f.Case + ": " + f.Figure, f.text()})
	}
	return out
}

// text says what was found.
func (f *Finding) text() string {
	s := fmt.Sprintf("%s, now %s (%s", f.value(f.Before), f.value(f.Now), f.change())
	switch {
	case f.Interval != nil:
		s += ", " + f.bounds()
	case f.Bound > 0 || f.Threshold > 0:
		s += ", threshold " + f.bounds()
	}
	s += "): " + string(f.Verdict)
	if !f.Gates {
		s += ", for information"
	}
	return s
}

// change prints the change, that of a count with two digits behind the point, as its threshold.
func (f *Finding) change() string {
	if f.Before == 0 {
		return "new"
	}
	change := compare.Percent(1 + f.Change)
	if f.Kind == results.Counted && strings.HasSuffix(change, "%") { // no times
		return fmt.Sprintf("%+.2f %%", 100*f.Change)
	}
	return change
}

// bounds prints the interval, or the threshold.
func (f *Finding) bounds() string {
	switch {
	case f.Interval != nil:
		return (&compare.Estimate{Interval: []float64{1 + f.Interval[0], 1 + f.Interval[1]}}).Span()
	case f.Bound > 0:
		return f.value(f.Bound)
	case f.Threshold > 0:
		return fmt.Sprintf("%.2f %%", 100*f.Threshold)
	}
	return "-"
}

// value prints a value, that of a count with six digits, since a change of 0.2 % may fail.
func (f *Finding) value(v float64) string {
	if f.Kind != results.Counted {
		return results.FigureText(v, f.Unit)
	}
	return strings.TrimSuffix(strconv.FormatFloat(v, 'g', 6, 64)+" "+strings.TrimSuffix(f.Unit, "/op"), " ")
}

// The parts of JUnit's XML that CI systems read.
type (
	junitSuite struct {
		XMLName  xml.Name    `xml:"testsuite"`
		Name     string      `xml:"name,attr"`
		Tests    int         `xml:"tests,attr"`
		Failures int         `xml:"failures,attr"`
		Skipped  int         `xml:"skipped,attr"`
		Cases    []junitCase `xml:"testcase"`
		Out      string      `xml:"system-out"`
	}
	junitCase struct {
		Class   string        `xml:"classname,attr"`
		Name    string        `xml:"name,attr"`
		Failure *junitMessage `xml:"failure,omitempty"`
		Skipped *junitMessage `xml:"skipped,omitempty"`
	}
	junitMessage struct {
		Message string `xml:"message,attr"`
	}
)

// PrintJUnit prints the figures that gate as JUnit's XML: a regression is a failure, what cannot be told is skipped.
func (o *Outcome) PrintJUnit(w io.Writer) error {
	s := junitSuite{Name: "neokv check"}
	for _, f := range o.all() {
		if !f.Gates {
			continue
		}
		c := junitCase{Class: f.Case, Name: f.Figure}
		switch f.Verdict {
		case compare.Worse:
			c.Failure = &junitMessage{f.text()}
			s.Failures++
		case NotSure, compare.Contaminated:
			c.Skipped = &junitMessage{f.text()}
			s.Skipped++
		}
		s.Cases = append(s.Cases, c)
	}
	s.Tests = len(s.Cases)
	s.Out = strings.Join(append([]string{o.headline()}, o.notes()...), "\n")
	text, err := xml.MarshalIndent(s, "", "  ")
	if err == nil {
		_, err = fmt.Fprintf(w, "%s%s\n", xml.Header, text)
	}
	return err
}
