package gate

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"strings"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// PrintTable prints an outcome for people: what has changed, and what the check could have seen.
func (o *Outcome) PrintTable(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n", o.headline())
	rows := o.rows()
	width := 0
	for _, r := range rows {
		width = max(width, len(r.what))
	}
	for _, r := range rows {
		fmt.Fprintf(&b, "  %-*s  %s\n", width, r.what, r.says)
	}
	for _, line := range o.Power {
		fmt.Fprintf(&b, "%s\n", line)
	}
	for _, line := range o.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintMarkdown prints an outcome for a pull request.
func (o *Outcome) PrintMarkdown(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "**%s**\n\n", o.headline())
	plain := strings.NewReplacer("|", `\|`, "<", "&lt;", "~", `\~`)
	if rows := o.rows(); len(rows) > 0 {
		b.WriteString("| figure | change |\n|---|---|\n")
		for _, r := range rows {
			fmt.Fprintf(&b, "| %s | %s |\n", plain.Replace(r.what), plain.Replace(r.says))
		}
		b.WriteByte('\n')
	}
	for _, line := range o.Power {
		fmt.Fprintf(&b, "- %s\n", plain.Replace(line))
	}
	for _, line := range o.Warnings {
		fmt.Fprintf(&b, "- warning: %s\n", plain.Replace(line))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// PrintJSON prints an outcome for programs.
func (o *Outcome) PrintJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	return e.Encode(o)
}

func (o *Outcome) headline() string {
	changed, same := 0, 0
	for _, f := range o.all() {
		if !f.Gates {
			continue
		}
		if f.Verdict == AsBefore {
			same++
		} else {
			changed++
		}
	}
	return fmt.Sprintf("%s: of %d figures that gate %d have changed or cannot be told", o.Verdict, same+changed, changed)
}

func (o *Outcome) all() []Finding { return append(append([]Finding{}, o.Counts...), o.Timed...) }

type findingRow struct{ what, says string }

// rows returns the findings that a reader wants to see: those that gate and are not as before, and all timed ones.
func (o *Outcome) rows() (out []findingRow) {
	for _, f := range o.Counts {
		if f.Gates && f.Verdict != AsBefore {
			out = append(out, findingRow{f.Case + ": " + f.Figure, f.text()})
		}
	}
	for _, f := range o.Timed {
		out = append(out, findingRow{f.Figure, f.text()})
	}
	return out
}

// text says what was found.
func (f *Finding) text() string {
	s := fmt.Sprintf("%s, now %s (%+.2f %%", results.FigureText(f.Before, f.Unit), results.FigureText(f.Now, f.Unit),
		100*f.Change)
	switch {
	case f.Interval != nil:
		s += fmt.Sprintf(", %+.1f %% to %+.1f %%", 100*f.Interval[0], 100*f.Interval[1])
	case f.Threshold > 0:
		s += fmt.Sprintf(", threshold %.2f %%", 100*f.Threshold)
	}
	s += "): " + string(f.Verdict)
	if !f.Gates {
		s += ", for information"
	}
	return s
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
	s.Out = strings.Join(append(append([]string{o.headline()}, o.Power...), o.Warnings...), "\n")
	if _, err := io.WriteString(w, xml.Header); err != nil {
		return err
	}
	e := xml.NewEncoder(w)
	e.Indent("", "  ")
	if err := e.Encode(s); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}
