package results

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// PrintTable prints a summary for people: what was measured, a line per operation, and what went wrong.
func PrintTable(w io.Writer, h Header, s Summary) error {
	open := h.Load.OpenLoop()
	rows := [][]string{{"operation", "ops/s", "count", "errors", "p50", "p95", "p99", "p99.9", "max"}}
	if open {
		rows[0] = slices.Insert(rows[0], 1, "time")
	}
	ops := s.Ops
	if len(ops) > 1 {
		total := s.Total
		total.Name = "total"
		ops = append(slices.Clone(ops), total)
	}
	for _, op := range ops {
		rows = append(rows, opRows(op, open)...)
	}
	lines := append([]string{title(h), ""}, align(rows, open)...)
	lines = append(append(lines, ""), notes(h, s)...)
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// opRows makes the rows of an operation: one in a closed loop; in an open loop response time, and below it service
// time.
func opRows(op OpStats, open bool) [][]string {
	counts := []string{Count(int64(op.PerSecond + 0.5)), Count(op.Count), Count(op.Errors)}
	if !open {
		return [][]string{slices.Concat([]string{op.Name}, counts, latencies(&op.Service))}
	}
	return [][]string{
		slices.Concat([]string{op.Name, "response"}, counts, latencies(op.Response)),
		slices.Concat([]string{"", "service", "", "", ""}, latencies(&op.Service)),
	}
}

func latencies(l *Latency) []string {
	if l == nil || l.Max == 0 {
		return []string{"-", "-", "-", "-", "-"}
	}
	return []string{Micros(l.P50), Micros(l.P95), Micros(l.P99), Micros(l.P999), Micros(l.Max)}
}

// align pads cells to columns. Names go to the left, figures to the right.
func align(rows [][]string, open bool) []string {
	names := 1
	if open {
		names = 2
	}
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], len(cell))
		}
	}
	var lines []string
	for _, r := range rows {
		var b strings.Builder
		for i, cell := range r {
			if i < names {
				fmt.Fprintf(&b, "%-*s  ", width[i], cell)
			} else {
				fmt.Fprintf(&b, "%*s  ", width[i], cell)
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// title returns the first line: what was measured, on what, and whether the data would have survived a power failure.
func title(h Header) string {
	l := h.Load
	loop := "closed loop"
	if l.OpenLoop() {
		loop = fmt.Sprintf("open loop at %s ops/s", Count(int64(l.Rate)))
	}
	parts := []string{
		fmt.Sprintf("%s: %s, pipeline %d, %s", l.Workload, plural(int64(l.Clients), "client"), l.Pipeline, loop),
		records(l),
	}
	if c := h.Cluster; c.InProcess {
		parts = append(parts, fmt.Sprintf("%s and %s in this process, %s transport", plural(int64(c.Stores), "store"),
			plural(int64(c.Regions), "region"), c.Transport))
		if why := h.NotDurable(); why != "" {
			parts = append(parts, "not durable ("+why+")")
		} else {
			parts = append(parts, fmt.Sprintf("sync %s on %s (fdatasync p50 %s)", c.Sync, c.Synced().FileSystem,
				Micros(c.Synced().SyncP50.Microseconds())))
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

// records describes the records of the load.
func records(l Load) string {
	s := plural(int64(l.Records), "record")
	if l.Elements > 0 {
		s += " of " + plural(int64(l.Elements), "element")
	}
	if l.ValueBytes > 0 {
		s += " of " + Bytes(int64(l.ValueBytes))
	}
	return s
}

// notes returns the lines below the table.
func notes(h Header, s Summary) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if in := s.Inserted; in != nil {
		line := fmt.Sprintf("load: %s inserted in %.1f s, %s/s", plural(in.Insert.Count, "record"), in.Seconds,
			Count(int64(in.Insert.PerSecond+0.5)))
		if in.Insert.Errors > 0 {
			line += fmt.Sprintf(", %s on the way (%s)", plural(in.Insert.Errors, "error"), kinds(in.Errors))
		}
		add("%s", line)
	}
	add("measured: %.1f s after %s of warm-up, seed %d", s.Seconds, h.Load.Warmup.Round(time.Millisecond), h.Load.Seed)
	out = append(out, s.Work.lines(h, s.Total.Count)...)
	for _, op := range s.Ops {
		if op.Misses > 0 {
			add("%s: %s answered null or empty", op.Name, Count(op.Misses))
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
		add("fell behind: %s operations were due and not sent before the end; the rate is more than the target takes",
			Count(s.Unsent))
	}
	if v := s.Verified; v != nil {
		out = append(out, v.lines()...)
	}
	if s.Interrupted {
		add("interrupted: the figures cover the part that ran")
	}
	if s.Failure != "" {
		add("failed: %s", s.Failure)
	}
	return out
}

// lines says what reading back found.
func (v *Verified) lines() (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	what := cmp.Or(v.What, "record")
	switch {
	case v.Lost > 0:
		add("verified: LOST: %s of %s do not hold what was acknowledged, the first:", Count(v.Lost),
			plural(v.Checked, what))
		for _, x := range v.Examples {
			add("  %s", x)
		}
	case v.Complete:
		add("verified: %s read back in %.1f s, all as acknowledged", plural(v.Checked, what), v.Seconds)
	default:
		add("verified: %s read back in %.1f s, all as acknowledged; the others were not reached",
			plural(v.Checked, what),
			v.Seconds)
	}
	if v.Unjudged > 0 {
		add("  %s not judged: too many writes to each had an unknown outcome", plural(v.Unjudged, what))
	}
	if v.Ignored > 0 {
		add("  %s went to records that were not followed", plural(v.Ignored, "acknowledged write"))
	}
	return out
}

// kinds lists errors by kind, the most frequent first.
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

// Count prints a number with commas between its thousands.
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
