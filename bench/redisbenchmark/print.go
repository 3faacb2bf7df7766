package redisbenchmark

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// Formats are the forms in which Print writes findings.
var Formats = []string{"table", "md", "json"}

// Print writes the findings in one of the formats.
func (f *Findings) Print(w io.Writer, format string) error {
	if format == "json" {
		return results.PrintJSON(w, f)
	}
	md := format == "md"
	var b strings.Builder
	for _, p := range f.Pairs {
		line := p.conclusion()
		if md {
			line = "**" + results.MarkdownText(line) + "**\n"
		}
		b.WriteString(line + "\n")
	}
	for _, line := range f.heading() {
		if b.WriteString("\n" + line); md {
			b.WriteString("  ")
		}
	}
	b.WriteString("\n")
	for _, p := range f.Pairs {
		b.WriteString("\n")
		for _, a := range []SideFacts{p.NeoKV, p.Peer} {
			fmt.Fprintf(&b, "%s%s: %s, %s\n", map[bool]string{true: "- "}[md], a.Name, a.Version, a.Started)
		}
		b.WriteString("\n" + p.table("redis-benchmark", p.Tests, md))
		if len(p.Spread) > 0 {
			fmt.Fprintf(&b, "\n%s\n\n%s", p.Generator, p.table("over all slots", p.Spread, md))
		}
	}
	b.WriteString("\n" + f.legend() + "\n\nWhat redis-benchmark does not say:\n")
	for _, line := range f.Hidden {
		b.WriteString("- " + line + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// conclusion says in a sentence in which tests of redis-benchmark NeoKV has the higher rate, and in which the lower
// one.
func (p *Pair) conclusion() string {
	const most = 4
	var higher, lower, rest []string
	for _, t := range p.Tests {
		switch ratio := t.Ratio; {
		case ratio == nil || !ratio.ExcludesOne():
			rest = append(rest, t.Test)
		case ratio.Center > 1:
			higher = append(higher, fmt.Sprintf("%s (x%s)", t.Test, digits(ratio.Center)))
		default:
			lower = append(lower, fmt.Sprintf("%s (x%s)", t.Test, digits(ratio.Center)))
		}
	}
	var said []string
	for _, x := range []struct {
		what  string
		tests []string
	}{{"higher in ", higher}, {"lower in ", lower}, {"cannot tell in ", rest}} {
		n := len(x.tests)
		if n == 0 {
			continue
		}
		list := strings.Join(x.tests[:min(n, most)], ", ")
		if n > most {
			list += fmt.Sprintf(" and %d more", n-most)
		}
		said = append(said, x.what+list)
	}
	return fmt.Sprintf("rate of %s against %s: %s", p.NeoKV.Name, p.Peer.Name, strings.Join(said, "; "))
}

// heading says what was measured, on what and when.
func (f *Findings) heading() []string {
	l := f.Load
	keys := "one key a test"
	switch {
	case l.Keys > 0:
		keys = "random keys of " + results.Count(l.Keys)
	case l.Command != nil:
		keys = "as the command says"
	}
	threads := ""
	if l.Threads > 0 {
		threads = fmt.Sprintf(", threads %d", l.Threads)
	}
	return []string{
		fmt.Sprintf("%s: %s commands a test, clients %d%s, pipeline %d, values of %d bytes, %s", f.Tool,
			results.Count(l.Requests), l.Clients, threads, l.Pipeline, l.ValueBytes, keys),
		fmt.Sprintf("%s, every other one in the opposite order, each side started afresh; durability %s",
			results.Plural(int64(f.Rounds), "round"), f.Durability),
		fmt.Sprintf("%s, %d cores, %.1f GB, %s", f.Machine.CPU, f.Machine.Cores,
			float64(f.Machine.MemoryBytes)/1e9, f.Machine.OS),
		f.Started.Format("2006-01-02 15:04 UTC"),
	}
}

// legend says what the columns are.
func (f *Findings) legend() string {
	return fmt.Sprintf("Rates, latencies and CPU time are medians of the rounds. The ratio is neokv's rate by the "+
		"other's of the same\nround: its median, and the interval in which the median lies at %.0f %% confidence or "+
		"more. A ~ says that the ratio\nmay be noise: the interval has 1 in it, or there are too few rounds for one "+
		"(fewer than %d). Of two columns with one heading the first is\nneokv's.", 100*compare.Level,
		compare.FewestRounds)
}

// table has a row for each test.
func (p *Pair) table(title string, tests []*TestFigures, md bool) string {
	rows := [][]string{{title, p.NeoKV.Name + "/s", p.Peer.Name + "/s", "ratio", "interval", "p50, ms", "", "p99, ms",
		"", "CPU, us", ""}}
	for _, t := range tests {
		row := []string{t.Test, rate(t.NeoKV), rate(t.Peer)}
		row = append(row, t.ratio()...)
		for _, of := range []func(SideFigures) []float64{
			func(a SideFigures) []float64 { return a.P50 }, func(a SideFigures) []float64 { return a.P99 },
			func(a SideFigures) []float64 { return a.CPU },
		} {
			row = append(row, figure(of(t.NeoKV)), figure(of(t.Peer)))
		}
		rows = append(rows, row)
	}
	if md {
		return results.MarkdownTable(rows[0], 1, 0, rows[1:])
	}
	return strings.Join(results.Align(rows, 1), "\n") + "\n"
}

// ratio returns the ratio, with a ~ if it may be noise, and its interval; or why there is none.
func (t *TestFigures) ratio() []string {
	r := t.Ratio
	switch {
	case t.TooShort:
		return []string{"too short", "-"}
	case r == nil:
		return []string{"errors", "-"}
	}
	ratio, interval := digits(r.Center), "-"
	if !r.ExcludesOne() {
		ratio = "~" + ratio
	}
	if r.Interval != nil {
		interval = digits(r.Interval[0]) + "-" + digits(r.Interval[1])
	}
	return []string{ratio, interval}
}

func rate(a SideFigures) string {
	if len(a.PerSecond) == 0 {
		return "-"
	}
	return results.Count(int64(compare.NewEstimate(a.PerSecond).Center + 0.5))
}

func figure(figures []float64) string {
	if len(figures) == 0 {
		return "-"
	}
	return digits(compare.NewEstimate(figures).Center)
}

// digits prints a figure with three digits.
func digits(v float64) string {
	switch {
	case v < 10:
		return strconv.FormatFloat(v, 'f', 2, 64)
	case v < 100:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return results.Count(int64(v + 0.5))
}
