package results

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// PrintTable prints a summary for people: what was measured, for each group of clients a line per operation, and what
// went wrong.
func PrintTable(w io.Writer, h Header, s Summary) error {
	lines := []string{h.Where()}
	if settings := h.inForce(); settings != "" && !h.Cluster.InProcess {
		lines = append(lines, "settings in force: "+settings)
	}
	lines = append(lines, s.Caveats()...)
	if s.Curve != nil {
		lines = append(append(lines, s.Curve.lines()...), "")
	}
	for i, g := range s.Groups {
		load := ClientGroup{Workload: g.Name}
		if i < len(h.Groups) {
			load = h.Groups[i]
		}
		if s.Curve != nil && s.Curve.Measured > 0 && i == 0 {
			spread, _ := spreadOf(load.Rate)
			load.Rate = spread + strconv.FormatFloat(s.Curve.Measured, 'f', -1, 64)
		}
		name := ""
		if len(s.Groups) > 1 {
			name = load.Name
		}
		if s.Curve != nil && s.Seconds == 0 { // the curve has the figures
			tried := "several rates"
			if s.Curve.OfClients() && i == 0 {
				tried = "several numbers of clients"
			}
			lines = append(lines, title(load, name, tried))
			continue
		}
		lines = append(lines, title(load, name, loop(load)))
		rows := g.Rows(load.OpenLoop())
		if load.OpenLoop() {
			lines = append(lines, "response times, with service times below them")
			for i, r := range rows { // one column for both names, so that a terminal has room
				rows[i] = slices.Insert(r[2:], 0, cmp.Or(r[0], "  "+r[1]))
			}
		}
		lines = slices.Concat(lines, []string{""}, Align(rows, 1), []string{""})
		lines = append(lines, g.Notes(load.OpenLoop())...)
		if len(s.Groups) > 1 {
			lines = append(lines, "")
		}
	}
	if len(s.Nodes) > 0 {
		lines = slices.Concat(lines, []string{""}, Align(s.NodeRows(), 1), []string{""})
	}
	lines = slices.Concat(lines, s.Notes(&h), s.events())
	_, err := io.WriteString(w, strings.Join(lines, "\n")+"\n")
	return err
}

// Rows returns the table of a group, with its heading. An operation has one row in a closed loop; in an open loop it
// has one for response time, and below it one for service time. The first cell of a row is the operation, and in an
// open loop the second one is the time; the others are figures.
func (g *GroupSummary) Rows(open bool) [][]string {
	reads := slices.ContainsFunc(g.Ops, func(op OpStats) bool { return op.Reads })
	heading := []string{"operation"}
	if open {
		heading = append(heading, "time")
	}
	heading = append(heading, "ops/s", "count", "errors")
	if reads {
		heading = append(heading, "hits")
	}
	rows := [][]string{append(heading, "p50", "p95", "p99", "p99.9", "max")}
	ops := g.Ops
	if len(ops) > 1 {
		total := g.Total
		total.Name = "total"
		ops = append(slices.Clone(ops), total)
	}
	for _, op := range ops {
		counts := []string{Count(int64(op.PerSecond + 0.5)), Count(op.Count), Count(op.Errors)}
		switch {
		case op.Reads && op.Count > 0:
			counts = append(counts, percent(op.Count-op.Misses, op.Count))
		case reads:
			counts = append(counts, "-")
		}
		if !open {
			rows = append(rows, slices.Concat([]string{op.Name}, counts, latencies(&op.Service)))
			continue
		}
		rows = append(rows,
			slices.Concat([]string{op.Name, "response"}, counts, latencies(op.Response)),
			slices.Concat([]string{"", "service"}, make([]string, len(counts)), latencies(&op.Service)))
	}
	return rows
}

// NodeRows returns the table of the nodes of a cluster, with its heading.
func (s *Summary) NodeRows() [][]string {
	rows := [][]string{{"node", "slots", "ops/s", "count", "errors", "unanswered", "mean", "max", "no answer for"}}
	for _, n := range s.Nodes {
		rows = append(rows, []string{n.Addr, Count(int64(n.Slots)), Count(int64(n.PerSecond + 0.5)), Count(n.Count),
			Count(n.Errors), Count(n.Unanswered), Micros(int64(n.Mean + 0.5)), Micros(n.Max), Micros(n.NoAnswer)})
	}
	return rows
}

func latencies(l *Latency) (cells []string) {
	if l == nil {
		l = &Latency{}
	}
	for _, q := range l.quantiles() {
		cells = append(cells, q.String())
	}
	return cells
}

// terminalWidth is how wide a terminal is at least.
const terminalWidth = 80

// Align pads cells to columns and returns a line per row. The first columns have names, which go to the left; figures
// go to the right. Between columns are two spaces, or one where only that fits into a terminal.
func Align(rows [][]string, names int) []string {
	width := make([]int, len(rows[0]))
	for _, r := range rows {
		for i, cell := range r {
			width[i] = max(width[i], len(cell))
		}
	}
	sum, gap := 0, "  "
	for _, w := range width {
		sum += w
	}
	if n := len(width) - 1; sum+n <= terminalWidth && terminalWidth < sum+2*n {
		gap = " "
	}
	var lines []string
	for _, r := range rows {
		var b strings.Builder
		for i, cell := range r {
			if i < names {
				fmt.Fprintf(&b, "%-*s%s", width[i], cell, gap)
			} else {
				fmt.Fprintf(&b, "%*s%s", width[i], cell, gap)
			}
		}
		lines = append(lines, strings.TrimRight(b.String(), " "))
	}
	return lines
}

// loop says when the operations of a group were sent.
func loop(g ClientGroup) string {
	if g.OpenLoop() {
		return "open loop at " + rate(g.Rate)
	}
	return "closed loop"
}

// Describe says what the clients of a group sent.
func (g ClientGroup) Describe() string { return title(g, "", loop(g)) }

// title returns the line above the table of a group: what was sent, by clients of a name that may be empty.
func title(g ClientGroup, name, loop string) string {
	pipeline := strconv.Itoa(g.Pipeline)
	if g.OneNode {
		pipeline += " on one node"
	}
	if g.OneSlot {
		pipeline += " in one slot"
	}
	text := fmt.Sprintf("%s: %s, pipeline %s, %s", g.Workload, Plural(int64(g.Clients), "client"), pipeline, loop)
	if g.Records > 0 { // a recording has none
		text += "; " + records(g)
	}
	if name != "" {
		text = name + ": " + text
	}
	return text
}

// spreads are the words in front of a plan that say how its starts are spread, and what tables say for them.
var spreads = map[string]string{"poisson ": ", Poisson", "jitter ": ", with jitter"}

// spreadOf splits a plan behind the word in front of it, if there is one.
func spreadOf(plan string) (word, rest string) {
	for word := range spreads {
		if rest, ok := strings.CutPrefix(plan, word); ok {
			return word, rest
		}
	}
	return "", plan
}

// rate prints a plan, with commas and a unit if it is a plain number.
func rate(plan string) string {
	word, plan := spreadOf(plan)
	if n, err := strconv.ParseInt(plan, 10, 64); err == nil {
		plan = Count(n) + " ops/s"
	}
	return plan + spreads[word]
}

// Where says on what was measured, and whether the data would have survived a power failure: the first line.
func (h *Header) Where() string {
	text := h.what(" at " + strings.Join(h.Target.Addrs, ","))
	durable := h.Durability()
	if h.Cluster.InProcess && h.NotDurable() == "" {
		durable += fmt.Sprintf(" (fdatasync p50 %s)", Micros(h.Cluster.Synced().SyncP50.Microseconds()))
	}
	if durable != "" {
		text += ", " + durable
	}
	return text
}

// What says on what was measured, without addresses and durability.
func (h *Header) What() string { return h.what("") }

func (h *Header) what(place string) string {
	c, t := h.Cluster, &h.Target
	switch text := strings.TrimSpace(t.product()+" "+t.version()) + place; {
	case c.InProcess:
		return fmt.Sprintf("%s and %s in this process, %s transport", Plural(int64(c.Stores), "store"),
			Plural(int64(c.Regions), "region"), c.Transport)
	case t.NeoKV():
		return fmt.Sprintf("%s, %s stores and %s regions, %s transport", text, t.Info["stores"], t.Info["regions"],
			t.Info["raft_transport"])
	default:
		return text
	}
}

// Load says what was sent, for how long or with which seed aside: a line for each group of clients, and one for each
// thing that the run does beside that.
func (h *Header) Load() (out []string) {
	for _, g := range h.Groups {
		text := g.Describe()
		for _, more := range []string{g.Keys, g.Content.name()} {
			if more != "" {
				text += "; " + more
			}
		}
		if len(h.Groups) > 1 {
			text = g.Name + ": " + text
		}
		out = append(out, text)
	}
	return append(out, h.beside()...)
}

// beside says what the run does beside the load of its groups.
func (h *Header) beside() (out []string) {
	for _, x := range []struct{ what, text string }{{"schedule: ", h.Schedule.String()}, {"looks for ", h.Search}} {
		if x.text != "" {
			out = append(out, x.what+x.text)
		}
	}
	if h.Verify {
		out = append(out, "reads back what was written")
	}
	if h.LoadedBefore {
		out = append(out, "the records were loaded before")
	}
	return out
}

// records describes the records of a load.
func records(g ClientGroup) string {
	s := Plural(int64(g.Records), "record")
	if g.Elements > 0 {
		s += " of " + Plural(int64(g.Elements), "element")
	}
	if n, err := strconv.ParseInt(g.ValueBytes, 10, 64); err == nil {
		s += " of " + Bytes(n)
	} else if g.ValueBytes == "various" {
		s += " of various sizes"
	} else if g.ValueBytes != "" {
		s += " of " + g.ValueBytes + " B"
	}
	return s
}

// Notes returns the lines that stand below the table of a group of an open or a closed loop.
func (g *GroupSummary) Notes(open bool) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	if in := g.Inserted; in != nil {
		line := fmt.Sprintf("load: %s inserted in %.1f s, %s/s", Plural(in.Insert.Count, "record"), in.Seconds,
			Count(int64(in.Insert.PerSecond+0.5)))
		if in.Insert.Errors > 0 {
			line += fmt.Sprintf(", %s on the way (%s)", Plural(in.Insert.Errors, "error"), kinds(in.Kinds))
		}
		add("%s", line)
	}
	l, due := g.Ledger, g.Total.Due()
	if open && due > 0 {
		add("rate reached: %s of what was due", percent(g.Total.Count, due))
	}
	add("errors: %s", share(g.Total.Errors, due))
	line := "unanswered: " + share(g.Total.Unanswered, due)
	if !open {
		line += "; in a closed loop only what was sent is due"
	} else if unsent := due - g.Total.Count - g.Total.Service.Censored; unsent > 0 {
		line += fmt.Sprintf("; %s were never sent, and are not in service time", Count(unsent))
	}
	add("%s", line)
	if len(g.Kinds) > 0 {
		add("failed, by kind: %s", kinds(g.Kinds))
	}
	add("operations: %s offered = %s ok + %s failed + %s unknown + %s dropped + %s in flight", Count(l.Offered),
		Count(l.OK), Count(l.Errors), Count(l.Unknown), Count(l.Dropped), Count(l.InFlight))
	if w := g.Wait; w != nil {
		add("all clients busy: %s of them waited until one was free, p50 %s, p99 %s, max %s", Count(g.Waited),
			w.P50, w.P99, w.Max)
	}
	if m := g.Messages; m != nil {
		add("messages: %s due at %s of %s = %s received + %s lost; %s twice or out of order", Count(m.Due),
			Plural(int64(m.Subscribers), "subscriber"), Plural(int64(m.Channels), "channel"), Count(m.Received),
			Count(m.Lost), Count(m.Odd))
		add("from publish to receipt: p50 %s, p95 %s, p99 %s, p99.9 %s, max %s", m.Time.P50, m.Time.P95, m.Time.P99,
			m.Time.P999, m.Time.Max)
	}
	if p := g.PushToPop; p != nil {
		add("from push to pop: %s elements, p50 %s, p95 %s, p99 %s, p99.9 %s, max %s", Count(p.Elements), p.Time.P50,
			p.Time.P95, p.Time.P99, p.Time.P999, p.Time.Max)
	}
	for _, op := range g.Ops {
		if op.Misses > 0 && !op.Reads {
			add("%s: %s answered null or empty", op.Name, Count(op.Misses))
		}
	}
	if g.Moved+g.Asked+g.Retried > 0 {
		add("redirections followed: %s moved, %s asked; sent again: %s", Count(g.Moved), Count(g.Asked),
			Count(g.Retried))
	}
	if v := g.Verified; v != nil {
		out = append(out, v.lines()...)
	}
	return out
}

// share prints a part of the operations that were due.
func share(n, due int64) string {
	if n == 0 {
		return "0"
	}
	return fmt.Sprintf("%s of %s (%.3g %%)", Count(n), Count(due), 100*float64(n)/float64(due))
}

// Notes returns the lines that stand below all tables, without events, warnings, and how the run ended.
func (s *Summary) Notes(h *Header) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	warmup := h.Warmup
	if s.Warmup > 0 {
		warmup = time.Duration(s.Warmup * float64(time.Second))
	}
	if s.Seconds > 0 || s.Curve == nil {
		add("measured: %.1f s after %s of warm-up, seed %d", s.Seconds, warmup.Round(time.Millisecond), h.Seed)
	}
	if s.NoAnswer > 0 {
		add("no answer for %s at the longest", Micros(s.NoAnswer))
	}
	if s.SLO != nil && s.SLO.Broken == "" {
		add("%s", s.SLO)
	}
	if g := s.Generator; g != (GeneratorLoad{}) {
		add("%s", g.line(*h))
	}
	var ops int64
	for _, g := range s.Groups {
		ops += g.Total.Count
	}
	out = append(out, s.Work.lines(*h, ops)...)
	for _, k := range slices.Sorted(maps.Keys(s.FirstErrors)) {
		add("first %s: %s", k, s.FirstErrors[k])
	}
	return out
}

// Caveats returns what a reader must know before the figures: how the run ended, and its warnings.
func (s *Summary) Caveats() (out []string) {
	if s.Failure != "" {
		out = append(out, "failed: "+s.Failure)
	}
	if s.Interrupted {
		out = append(out, "interrupted: the figures cover the part that ran")
	}
	if s.SLO != nil && s.SLO.Broken != "" {
		out = append(out, s.SLO.String())
	}
	for _, w := range s.Warnings {
		out = append(out, "warning: "+w)
	}
	return out
}

// events returns the lines behind the notes.
func (s *Summary) events() (out []string) {
	for _, e := range s.Events {
		line := fmt.Sprintf("at %.1f s: %s", e.At, e.Do)
		switch {
		case e.Error != "":
			line += ": failed: " + e.Error
		case e.Outcome != "":
			line += ": " + e.Outcome
		}
		out = append(out, line)
	}
	return out
}

// line says what the generator cost.
func (g GeneratorLoad) line(h Header) string {
	text := fmt.Sprintf("generator: %.2f cores", g.Cores)
	if h.Cluster.InProcess {
		text += " with the cluster's"
	}
	if g.Busy > 0 {
		text += fmt.Sprintf(", the machine %.0f %% busy", 100*g.Busy)
	}
	if g.Late != nil {
		text += fmt.Sprintf(", operations left late by p50 %s, p99 %s, max %s", g.Late.P50, g.Late.P99,
			g.Late.Max)
	}
	return text
}

// lines says what reading back found.
func (v *Verified) lines() (out []string) {
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	what := cmp.Or(v.What, "record")
	switch {
	case v.Lost > 0:
		add("verified: LOST: %s of %s do not hold what was acknowledged, the first:", Count(v.Lost),
			Plural(v.Checked, what))
		for _, x := range v.Examples {
			add("  %s", x)
		}
	case v.Complete:
		add("verified: %s read back in %.1f s, all as acknowledged", Plural(v.Checked, what), v.Seconds)
	default:
		add("verified: %s read back in %.1f s, all as acknowledged; the others were not reached",
			Plural(v.Checked, what),
			v.Seconds)
	}
	if len(v.NotFollowed) > 0 {
		add("  not followed: %s", strings.Join(v.NotFollowed, ", "))
	}
	if v.Unjudged > 0 {
		add("  %s not judged: too many writes to each had an unknown outcome", Plural(v.Unjudged, what))
	}
	if v.Ignored > 0 {
		add("  %s went to records that were not followed", Plural(v.Ignored, "acknowledged write"))
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

// Plural prints how many of something there are.
func Plural(n int64, noun string) string {
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
