package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	tea "charm.land/bubbletea/v2"
	"charm.land/lipgloss/v2"
	"github.com/charmbracelet/x/ansi"
	"github.com/charmbracelet/x/term"

	"neokv.dev/bench"
	"neokv.dev/results"
)

// screen is standard error, as printable text. While a live view is up, what others write appears above it.
type screen struct {
	*os.File
	mu   sync.Mutex
	view *live     // nil without a live view
	held io.Writer // gets what others write; nil where that goes to standard error
}

func (s *screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.held != nil {
		return s.held.Write(b)
	}
	if s.view != nil && s.view.above(strings.TrimSuffix(escape(string(b), "\n\t"), "\n")) {
		return len(b), nil
	}
	return printable{s.File}.Write(b)
}

// hold sends what others write to w, until release is called.
func (s *screen) hold(w io.Writer) (release func()) {
	set := func(w io.Writer) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.held = w
	}
	set(w)
	return func() { set(nil) }
}

// show says which view is up.
func (s *screen) show(view *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view = view
}

// draws reports whether a live view can be drawn.
func (s *screen) draws(p process) bool {
	terminal := p.variable("TERM")
	return terminal != "" && terminal != "dumb" && term.IsTerminal(s.Fd())
}

// frames is the terminal as the view writes to it. The view leaves the cursor in the first column; what a user types is
// echoed there, and each write begins by going back.
type frames struct{ *os.File }

func (f frames) Write(b []byte) (int, error) {
	n, err := f.File.Write(append([]byte{'\r'}, b...))
	return max(0, n-1), err
}

// live shows a run on a terminal. It leaves the terminal as it is: it reads no keys, so Ctrl-C stays a signal, it stays
// on the normal screen, and the cursor is visible whenever the terminal has all of a frame. So there is nothing to
// restore, also if the process is killed or another goroutine panics.
type live struct {
	screen  *screen
	program *tea.Program
	stop    func() bool
	// updates go to the view. If a terminal takes no output, ticks that find no room are left out of the view; the run
	// does not wait.
	updates chan tea.Msg
	fed     sync.WaitGroup
	ended   chan struct{} // closed when the program has ended
	err     error         // why it ended, if something went wrong
}

// framesPerSecond bounds how often the view looks whether it has changed. Ticks come once a second.
const framesPerSecond = 5

func startLive(ctx context.Context, s *screen, env []string) *live {
	l := &live{screen: s, program: liveProgram(frames{s.File}, env), updates: make(chan tea.Msg, 64),
		ended: make(chan struct{})}
	go func() {
		_, l.err = l.program.Run()
		close(l.ended)
	}()
	l.fed.Go(func() {
		for m := range l.updates {
			l.program.Send(m)
		}
	})
	l.stop = context.AfterFunc(ctx, func() { l.program.Send(stoppingMsg{}) })
	s.show(l)
	return l
}

// liveProgram returns the program of the view.
func liveProgram(out io.Writer, env []string, more ...tea.ProgramOption) *tea.Program {
	return tea.NewProgram(liveModel{}, append(more, tea.WithInput(nil), tea.WithOutput(out), tea.WithEnvironment(env),
		tea.WithoutSignalHandler(), tea.WithoutCatchPanics(), tea.WithFPS(framesPerSecond))...)
}

func (l *live) tick(h results.Header, t bench.Tick) {
	select {
	case l.updates <- tickMsg{h, t}:
	default:
	}
}

// above prints text above the view. It reports false if the view has ended.
func (l *live) above(text string) bool {
	printed := make(chan struct{})
	go func() { // for ever, if the program ends before it takes the text
		l.program.Println(text)
		close(printed)
	}()
	select {
	case <-printed:
		return true
	case <-l.ended:
		return false
	}
}

// end draws the last frame, which stays on the screen.
func (l *live) end() {
	l.stop()
	l.screen.show(nil)
	close(l.updates)
	l.fed.Wait()
	l.program.Quit()
	if <-l.ended; l.err != nil {
		fmt.Fprintln(l.screen, "neokv: live view:", l.err)
	}
}

type tickMsg struct {
	header results.Header
	tick   bench.Tick
}

// stoppingMsg says that the run was asked to end.
type stoppingMsg struct{}

// liveModel is what the view shows. Sums and curves are those of the phase under way.
type liveModel struct {
	width, height int
	header        results.Header
	tick          bench.Tick
	groups        []groupView
	nodes         []nodeView
	events        []results.Event
	stopping      bool
}

// groupView is a group of clients in the view.
type groupView struct {
	name       string
	ledger     results.Ledger
	kinds      map[string]int64
	redirected int64
	rates      []float64 // a value per tick
	p50, p99   []results.Quantile
}

// nodeView is a node of the target in the view.
type nodeView struct {
	addr          string
	slots         int
	told, answers bool         // it has ever told its counters, and it did so in the last tick
	last, sum     results.Work // of the last tick, and of the phase
}

// keptTicks bounds the curves; no terminal is wider.
const keptTicks = 1000

func (m liveModel) Init() tea.Cmd { return nil }

func (m liveModel) Update(msg tea.Msg) (tea.Model, tea.Cmd) {
	switch msg := msg.(type) {
	case tea.WindowSizeMsg:
		m.width, m.height = msg.Width, msg.Height
	case stoppingMsg:
		m.stopping = true
	case tickMsg:
		m.take(msg)
	default:
		return m, nil
	}
	// The whole frame is drawn anew, over what keys have put there and what the terminal has wrapped.
	return m, tea.ClearScreen
}

// take adds a tick.
func (m *liveModel) take(msg tickMsg) {
	if msg.tick.Phase != m.tick.Phase {
		m.groups, m.events = nil, nil
		for i := range m.nodes {
			m.nodes[i].sum = results.Work{}
		}
	}
	m.header, m.tick = msg.header, msg.tick
	m.events = append(m.events, msg.tick.Interval.Events...)
	for i, g := range msg.tick.Interval.Groups {
		if i == len(m.groups) {
			m.groups = append(m.groups, groupView{name: g.Name, kinds: map[string]int64{}})
		}
		m.groups[i].take(g, msg.tick.Latencies[i])
	}
	for _, n := range msg.tick.Nodes {
		i := slices.IndexFunc(m.nodes, func(v nodeView) bool { return v.addr == n.Addr })
		if i < 0 {
			i = len(m.nodes)
			m.nodes = append(m.nodes, nodeView{addr: n.Addr, sum: results.Work{}})
		}
		v := &m.nodes[i]
		v.slots, v.last, v.answers = n.Slots, n.Work, n.Work != nil
		v.told = v.told || len(n.Work) > 0
		v.sum.Add(n.Work)
	}
	slices.SortFunc(m.nodes, func(a, b nodeView) int { return cmp.Compare(a.addr, b.addr) })
}

func (g *groupView) take(s results.GroupStats, l results.Latency) {
	g.ledger.Add(s.Ledger)
	for kind, n := range s.Kinds {
		g.kinds[kind] += n
	}
	g.redirected += s.Moved + s.Asked
	keep(&g.rates, s.Total.PerSecond)
	keep(&g.p50, l.P50)
	keep(&g.p99, l.P99)
}

// keep adds a value of a tick.
func keep[V any](to *[]V, v V) {
	*to = append(*to, v)
	*to = (*to)[max(0, len(*to)-keptTicks):]
}

// asItIs is the shape of cursor for which the library writes nothing.
const asItIs tea.CursorShape = -1

// View draws a frame. The cursor stands in an empty line below.
func (m liveModel) View() tea.View {
	lines := m.frame()
	v := tea.NewView(strings.Join(append(lines, ""), "\n"))
	v.Cursor = &tea.Cursor{Position: tea.Position{Y: len(lines)}, Shape: asItIs}
	v.DisableBracketedPasteMode = true
	return v
}

var (
	strong = lipgloss.NewStyle().Bold(true)
	faint  = lipgloss.NewStyle().Faint(true)
	bad    = lipgloss.NewStyle().Foreground(lipgloss.Red).Bold(true)
	slow   = lipgloss.NewStyle().Foreground(lipgloss.Yellow).Bold(true)
	curve  = lipgloss.NewStyle().Foreground(lipgloss.Cyan)
)

// frame returns the lines of a frame, none wider than the terminal and at most as many as it has, less the cursor's. If
// there is not enough room each group has one line.
func (m liveModel) frame() []string {
	if m.tick.Phase == "" || m.width < 1 || m.height < 2 {
		return nil
	}
	build := func(group func(int) []string) []string {
		lines := []string{m.progress()}
		for i := range m.groups {
			lines = append(lines, group(i)...)
		}
		lines = append(lines, m.stores()...)
		return append(lines, m.foot()...)
	}
	lines := build(m.group)
	if len(lines) > m.height-1 {
		lines = build(m.groupInALine)
	}
	lines = lines[:min(len(lines), m.height-1)]
	for i, line := range lines {
		lines[i] = ansi.Truncate(line, m.width, "…")
	}
	return lines
}

// progress says how far the phase is.
func (m liveModel) progress() string {
	t := m.tick
	text, part := fmt.Sprintf("%s of %s records", results.Count(int64(t.Reached)), results.Count(int64(t.Items))), 0.0
	if t.Total > 0 {
		text = fmt.Sprintf("%.0f of %.0f s", min(t.Elapsed, t.Total).Seconds(), t.Total.Seconds())
		part = float64(t.Elapsed) / float64(t.Total)
	} else if t.Items > 0 {
		part = float64(t.Reached) / float64(t.Items)
	}
	line := strong.Render(t.Phase) + " " + text + " "
	if m.stopping {
		return line + slow.Render("cut short")
	}
	width := min(40, m.width-ansi.StringWidth(line))
	if width < 5 {
		return line
	}
	full := int(min(part, 1)*float64(width) + 0.5)
	return line + curve.Render(strings.Repeat("━", full)) + faint.Render(strings.Repeat("─", width-full))
}

// load describes what a group sends.
func (m liveModel) load(i int) string {
	g := m.groups[i]
	text := shown(g.name)
	if i >= len(m.header.Groups) {
		return text
	}
	h := m.header.Groups[i]
	if h.Workload != g.name {
		text += " (" + shown(h.Workload) + ")"
	}
	text += fmt.Sprintf(": %s, pipeline %d, ", results.Plural(int64(h.Clients), "client"), h.Pipeline)
	if !h.OpenLoop() || m.tick.Total == 0 {
		return text + "closed loop, service time"
	}
	rate := h.Rate
	if n, err := strconv.ParseInt(rate, 10, 64); err == nil {
		rate = results.Count(n)
	}
	return text + "open loop at " + rate + "/s, response time"
}

// group draws a group: what it sends, its curves, its ledger.
func (m liveModel) group(i int) []string {
	g := m.groups[i]
	lines := []string{faint.Render(m.load(i))}
	row := func(name string, values []float64, last, most string) {
		head := fmt.Sprintf("  %-4s %11s  ", name, last)
		tail := "  max " + most
		room := m.width - ansi.StringWidth(head) - ansi.StringWidth(tail)
		if room < 20 {
			room, tail = room+ansi.StringWidth(tail), ""
		}
		line := curve.Render(results.Sparkline(values, max(0, room)))
		lines = append(lines, strong.Render(head)+line+faint.Render(tail))
	}
	row("rate", g.rates, ratePerSecond(g.rates[len(g.rates)-1]), ratePerSecond(slices.Max(g.rates)))
	quantiles := func(name string, q []results.Quantile) {
		var values []float64
		for _, v := range q {
			values = append(values, float64(v.US))
		}
		most := slices.MaxFunc(q, func(a, b results.Quantile) int { return cmp.Compare(a.US, b.US) })
		row(name, values, q[len(q)-1].String(), most.String())
	}
	quantiles("p50", g.p50)
	quantiles("p99", g.p99)
	lines = append(lines, wrap(m.width, g.facts())...)
	if len(g.kinds) > 0 {
		var kinds []string
		for _, k := range slices.Sorted(maps.Keys(g.kinds)) {
			kinds = append(kinds, bad.Render(results.Count(g.kinds[k])+" "+shown(k)))
		}
		lines = append(lines, wrap(m.width, kinds)...)
	}
	return lines
}

func ratePerSecond(v float64) string { return results.Count(int64(v+0.5)) + "/s" }

// facts is the ledger of a group, with what matters most first.
func (g *groupView) facts() []string {
	l := g.ledger
	count := func(n int64, name string, style lipgloss.Style) string {
		text := results.Count(n) + " " + name
		if n > 0 {
			return style.Render(text)
		}
		return text
	}
	plain := lipgloss.NewStyle()
	out := []string{count(l.Errors, "failed", bad)}
	if l.Unknown > 0 {
		out = append(out, count(l.Unknown, "unknown", bad))
	}
	out = append(out, count(l.InFlight, "in flight", plain), count(l.Behind, "behind", slow))
	if l.Dropped > 0 {
		out = append(out, count(l.Dropped, "dropped", slow))
	}
	if g.redirected > 0 {
		out = append(out, count(g.redirected, "redirected", plain))
	}
	return append(out, count(l.OK, "ok", plain))
}

// groupInALine draws a group where there is no room for more.
func (m liveModel) groupInALine(i int) []string {
	g := m.groups[i]
	last := len(g.rates) - 1
	head := fmt.Sprintf("%s %s p50 %s p99 %s", shown(g.name), ratePerSecond(g.rates[last]), g.p50[last], g.p99[last])
	return []string{strong.Render(head) + ", " + strings.Join(g.facts(), ", ")}
}

// stores draws a table of the nodes: which share of the slots each leads, and what its store does.
func (m liveModel) stores() []string {
	type column struct {
		name string
		cell func(nodeView) string
	}
	perSecond := func(name string) func(nodeView) string {
		return func(v nodeView) string {
			return results.Count(int64(float64(v.last[name])/max(m.tick.Interval.Seconds, 1e-3) + 0.5))
		}
	}
	sum := func(name string) func(nodeView) string {
		return func(v nodeView) string { return results.Count(v.sum[name]) }
	}
	columns := []column{{"node", func(v nodeView) string { return shown(v.addr) }}}
	if slices.ContainsFunc(m.nodes, func(v nodeView) bool { return v.slots > 0 }) {
		columns = append(columns, column{"leads", func(v nodeView) string {
			return fmt.Sprintf("%.1f %%", 100*float64(v.slots)/16384)
		}})
	}
	if slices.ContainsFunc(m.nodes, func(v nodeView) bool { return v.told }) {
		columns = append(columns, column{"flushes", sum("memtable_flushes")}, column{"compactions", sum("compactions")},
			column{"stalls", sum("write_stalls")}, column{"syncs/s", perSecond("sync_calls")},
			column{"entries/s", perSecond("raft_entries")})
	}
	if len(columns) == 1 {
		return nil
	}
	lines := make([]string, len(m.nodes)+1)
	for i, c := range columns {
		cells := []string{c.name}
		for _, v := range m.nodes {
			switch {
			case i < 2 && c.name != "flushes" || v.answers:
				cells = append(cells, c.cell(v))
			case v.told && c.name == "flushes":
				cells = append(cells, "silent")
			default:
				cells = append(cells, "-")
			}
		}
		width := 0
		for _, cell := range cells {
			width = max(width, ansi.StringWidth(cell))
		}
		if i > 0 && ansi.StringWidth(lines[0])+2+width > m.width {
			break // columns that do not fit are left out
		}
		for j, cell := range cells {
			pad := strings.Repeat(" ", width-ansi.StringWidth(cell))
			if i == 0 {
				cell += pad
			} else {
				cell = "  " + pad + cell
			}
			if j == 0 {
				cell = faint.Render(cell)
			} else if c.name == "stalls" && m.nodes[j-1].sum["write_stalls"] > 0 {
				cell = slow.Render(cell)
			} else if strings.HasSuffix(cell, "silent") {
				cell = bad.Render(cell)
			}
			lines[j] += cell
		}
	}
	return lines
}

// foot says how busy the machine is, and what the schedule did last.
func (m liveModel) foot() (lines []string) {
	if g := m.tick.Interval.Generator; g.Busy > 0 {
		lines = append(lines, faint.Render(fmt.Sprintf("machine %.0f %% busy, this process %.2f cores", 100*g.Busy,
			g.Cores)))
	}
	if len(m.events) > 0 {
		e := m.events[len(m.events)-1]
		text := fmt.Sprintf("at %s: %s", time.Duration(e.At*float64(time.Second)).Round(time.Millisecond), shown(e.Do))
		switch {
		case e.Error != "":
			text += " " + bad.Render("failed: "+shown(e.Error))
		case e.Outcome != "":
			text += ": " + shown(e.Outcome)
		}
		lines = append(lines, text)
	}
	return lines
}

// wrap puts items into lines of a width, indented by two.
func wrap(width int, items []string) []string {
	var lines []string
	line := " "
	for i, item := range items {
		if i < len(items)-1 {
			item += ","
		}
		if line != " " && ansi.StringWidth(line)+1+ansi.StringWidth(item) > width {
			lines, line = append(lines, line), " "
		}
		line += " " + item
	}
	return append(lines, line)
}

// shown returns a name without characters that would move the cursor.
func shown(name string) string { return escape(name, "") }
