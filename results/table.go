package results

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// PrintTable prints a summary for people: what was measured, a line per operation, and what went wrong.
func PrintTable(w io.Writer, h Header, s Summary) error {
	var b strings.Builder
	b.WriteString(title(h))
	b.WriteString("\n\n")
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', tabwriter.AlignRight)
	open := h.Load.OpenLoop()
	columns := []string{"operation", "ops/s", "count", "errors"}
	if open {
		columns = append(columns, "time")
	}
	row(t, append(columns, "p50", "p95", "p99", "p99.9", "max")...)
	for _, op := range s.Ops {
		printOp(t, op, open)
	}
	if len(s.Ops) > 1 {
		total := s.Total
		total.Name = "total"
		printOp(t, total, open)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	b.WriteString("\n")
	for _, note := range notes(h, s) {
		b.WriteString(note)
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, leftAlignFirst(b.String()))
	return err
}

func row(t io.Writer, cells ...string) { fmt.Fprintln(t, strings.Join(cells, "\t")+"\t") }

func printOp(t io.Writer, op OpStats, open bool) {
	cells := []string{op.Name, Count(int64(op.PerSecond + 0.5)), Count(op.Count), Count(op.Errors)}
	latency := func(l Latency) []string {
		out := make([]string, 0, 5)
		for _, us := range []int64{l.P50, l.P95, l.P99, l.P999, l.Max} {
			if op.Count == 0 {
				out = append(out, "-")
			} else {
				out = append(out, Micros(us))
			}
		}
		return out
	}
	if !open || op.Response == nil {
		row(t, append(cells, latency(op.Service)...)...)
		return
	}
	row(t, append(append(cells, "response"), latency(*op.Response)...)...)
	row(t, append([]string{"", "", "", "", "service"}, latency(op.Service)...)...)
}

// title is the first line: what was measured, on what, and whether it would have survived a power failure.
func title(h Header) string {
	l := h.Load
	loop := "closed loop"
	if l.OpenLoop() {
		loop = fmt.Sprintf("open loop at %s ops/s", Count(int64(l.Rate)))
	}
	parts := []string{
		fmt.Sprintf("%s: %s, pipeline %d, %s", l.Workload, plural(int64(l.Clients), "client"), l.Pipeline, loop),
		fmt.Sprintf("%s of %s", plural(int64(l.Records), "record"), Bytes(int64(l.ValueBytes))),
	}
	if c := h.Cluster; c.InProcess {
		parts = append(parts, fmt.Sprintf("%s and %s in this process, %s transport", plural(int64(c.Stores), "store"), plural(int64(c.Regions), "region"), c.Transport))
		if why := h.NotDurable(); why != "" {
			parts = append(parts, "not durable ("+why+")")
		} else {
			parts = append(parts, fmt.Sprintf("sync %s on %s (fdatasync p50 %s)", c.Sync, c.Data.FileSystem, Micros(c.Data.SyncP50.Microseconds())))
		}
	} else {
		kind := "Redis"
		if h.Target.Cluster {
			kind = fmt.Sprintf("Redis Cluster of %s", plural(int64(len(h.Target.Nodes)), "node"))
		}
		parts = append(parts, fmt.Sprintf("%s %s at %s", kind, h.Target.Version, strings.Join(h.Target.Addrs, ",")))
	}
	return strings.Join(parts, "; ")
}

// notes are the lines below the table.
func notes(h Header, s Summary) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if in := s.Inserted; in != nil {
		line := fmt.Sprintf("load: %s inserted in %.1f s, %s/s", plural(in.Count, "record"), in.Seconds, Count(int64(in.PerSecond+0.5)))
		if in.Errors > 0 {
			line += fmt.Sprintf(", %s on the way (%s)", plural(in.Errors, "error"), kinds(in.Counters.Errors))
		}
		add("%s", line)
	}
	add("measured: %.1f s after %s of warm-up, seed %d", s.Seconds, h.Load.Warmup.Round(time.Millisecond), h.Load.Seed)
	for _, op := range s.Ops {
		if op.Misses > 0 {
			add("%s: %s answered null", op.Name, Count(op.Misses))
		}
	}
	if s.Moved+s.Asked > 0 {
		add("redirections followed: %s moved, %s asked", Count(s.Moved), Count(s.Asked))
	}
	if len(s.Errors) > 0 {
		add("errors: %s", kinds(s.Errors))
		for _, k := range slices.Sorted(maps.Keys(s.Errors)) {
			if first := s.FirstErrors[k]; first != "" {
				add("  first %s: %s", k, first)
			}
		}
	}
	if s.Unsent > 0 {
		add("fell behind: %s operations were due and not sent before the end; the rate is more than the target takes", Count(s.Unsent))
	}
	if s.Interrupted {
		add("interrupted: the figures cover the part that ran")
	}
	if s.Failure != "" {
		add("failed: %s", s.Failure)
	}
	return out
}

// kinds lists errors by kind, most first.
func kinds(m map[string]int64) string {
	names := slices.SortedFunc(maps.Keys(m), func(a, b string) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), strings.Compare(a, b))
	})
	for i, k := range names {
		names[i] = fmt.Sprintf("%s %s", Count(m[k]), k)
	}
	return strings.Join(names, ", ")
}

func plural(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return Count(n) + " " + noun + "s"
}

// leftAlignFirst moves the first column's padding behind its text: the columns of figures are right-aligned, names are not.
func leftAlignFirst(s string) string {
	lines := strings.Split(s, "\n")
	width := 0
	for _, l := range lines {
		if strings.HasSuffix(l, "max") {
			width = strings.Index(l, "operation") + len("operation")
		}
	}
	for i, l := range lines {
		if len(l) > width && strings.HasPrefix(l, " ") {
			name := strings.TrimLeft(l[:width], " ")
			lines[i] = name + strings.Repeat(" ", width-len(name)) + l[width:]
		}
	}
	return strings.Join(lines, "\n")
}

// Count prints a number with its thousands apart.
func Count(n int64) string {
	s := fmt.Sprint(n)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

// Micros prints microseconds in the unit that leaves three digits.
func Micros(us int64) string {
	switch {
	case us < 1_000:
		return fmt.Sprintf("%d us", us)
	case us < 1_000_000:
		return three(float64(us)/1e3) + " ms"
	}
	return three(float64(us)/1e6) + " s"
}

func three(v float64) string {
	switch {
	case v < 9.995:
		return fmt.Sprintf("%.2f", v)
	case v < 99.95:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.0f", v)
}

// Bytes prints a size in the largest binary unit that divides it.
func Bytes(n int64) string {
	for _, u := range []struct {
		size int64
		name string
	}{{1 << 30, "GiB"}, {1 << 20, "MiB"}, {1 << 10, "KiB"}} {
		if n >= u.size && n%u.size == 0 {
			return fmt.Sprintf("%d %s", n/u.size, u.name)
		}
	}
	return fmt.Sprintf("%d B", n)
}
