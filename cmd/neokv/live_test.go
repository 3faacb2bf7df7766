package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/charmbracelet/x/ansi"

	"neokv.dev/bench"
	"neokv.dev/results"
)

var update = flag.Bool("update", false, "write the golden files anew")

// twoGroups is the header of a run with a closed and an open loop.
var twoGroups = results.Header{Groups: []results.ClientGroup{
	{Name: "ycsb-a", Workload: "ycsb-a", Clients: 50, Pipeline: 16},
	{Name: "watch", Workload: "info", Clients: 1, Pipeline: 1, Rate: "1000"},
}}

// liveGroup makes the figures of a group in a second.
func liveGroup(name string, rate, p50, p99 int64, l results.Ledger) results.GroupStats {
	g := results.GroupStats{Name: name, Ledger: l}
	g.Total = results.OpStats{Name: "total", Count: rate, PerSecond: float64(rate),
		Service: results.Latency{P50: results.Quantile{US: p50}, P99: results.Quantile{US: p99},
			Max: results.Quantile{US: 2 * p99}}}
	return g
}

// liveTick makes a tick of a second.
func liveTick(phase string, second int, nodes []bench.NodeTick, groups ...results.GroupStats) tickMsg {
	t := bench.Tick{Phase: phase, Elapsed: time.Duration(second) * time.Second, Total: 30 * time.Second, Nodes: nodes,
		Interval: results.Interval{Phase: phase, Seconds: 1, Groups: groups,
			Generator: results.GeneratorLoad{Cores: 0.51, Busy: 0.75}}}
	for _, g := range groups {
		t.Latencies = append(t.Latencies, *g.Total.Latency())
	}
	h := twoGroups
	h.Groups = h.Groups[:len(groups)]
	return tickMsg{h, t}
}

// shownAfter returns the model behind some messages.
func shownAfter(msgs ...tea.Msg) liveModel {
	var m tea.Model = liveModel{}
	for _, msg := range msgs {
		m, _ = m.Update(msg)
	}
	return m.(liveModel)
}

func size(width, height int) tea.Msg { return tea.WindowSizeMsg{Width: width, Height: height} }

// aRun is twelve seconds of two groups on three stores. In the tenth the second store stops writes and loses its leads,
// in the eleventh it does not answer.
func aRun() (msgs []tea.Msg) {
	for s := 1; s <= 12; s++ {
		var nodes []bench.NodeTick
		for n := range 3 {
			w := results.Work{"memtable_flushes": int64(s % 2), "compactions": int64(s / 10), "sync_calls": 350,
				"raft_entries": 1234}
			node := bench.NodeTick{Addr: fmt.Sprintf("127.0.0.1:700%d", n+1), Slots: 16384 / 3, Work: w}
			if n == 1 && s >= 10 {
				node.Slots, w["write_stalls"] = 0, 1
			}
			if n == 1 && s >= 11 {
				node.Work = nil
			}
			nodes = append(nodes, node)
		}
		ledger := results.Ledger{Offered: 12_000, OK: 12_000, InFlight: 50}
		g := liveGroup("ycsb-a", int64(12_000+100*s), int64(300+10*s), int64(4000+(s%4)*900), ledger)
		watch := liveGroup("watch", 1000, 100, 900, results.Ledger{Offered: 1000, OK: 1000})
		response := watch.Total.Service
		response.P50.US, response.P99.US = 150, 1900
		watch.Total.Response = &response
		if s >= 10 {
			g.Ledger.OK, g.Ledger.Errors, g.Ledger.Unknown = 11_000, 900, 100
			g.Kinds, g.Moved = map[string]int64{"CLUSTERDOWN": 900, "timeout": 100}, 17
			g.Total.PerSecond, g.Total.Service.P99 = 3000, results.Quantile{US: 812_000, AtLeast: true}
			watch.Ledger.Behind, watch.Ledger.InFlight = 321, 322
		}
		msg := liveTick(results.PhaseRun, s, nodes, g, watch)
		if s == 9 {
			msg.tick.Interval.Events = []results.Event{{At: 9, Do: "CONFIG SET x\x1b[2J 1", Error: "ERR unknown"}}
		}
		msgs = append(msgs, msg)
	}
	return msgs
}

// The frames of the view, as text.
func TestLiveFrames(t *testing.T) {
	one := func(second int) tea.Msg {
		return liveTick(results.PhaseRun, second, nil, liveGroup("ycsb-a", 12_345, 213, 5880,
			results.Ledger{Offered: 12_345, OK: 12_345}))
	}
	load := liveTick(results.PhaseLoad, 1, nil, liveGroup("ycsb-a", 40_000, 900, 8000, results.Ledger{OK: 40_000}))
	load.tick.Total, load.tick.Items, load.tick.Reached = 0, 100_000, 40_000
	verify := liveTick(results.PhaseVerify, 1, nil, liveGroup("ycsb-a", 90_000, 900, 8000, results.Ledger{OK: 90_000}))
	verify.tick.Total, verify.tick.Items, verify.tick.Reached = 0, 100_000, 90_000
	plainRedis := liveTick(results.PhaseRun, 1, []bench.NodeTick{{Addr: "127.0.0.1:6379", Work: results.Work{}}},
		liveGroup("ycsb-a", 12_345, 213, 5880, results.Ledger{}))
	redisCluster := liveTick(results.PhaseRun, 1, []bench.NodeTick{{Addr: "127.0.0.1:7002", Slots: 8192},
		{Addr: "127.0.0.1:7001", Slots: 8192}}, liveGroup("ycsb-a", 12_345, 213, 5880, results.Ledger{}))
	run := aRun()
	var got bytes.Buffer
	for _, c := range []struct {
		what          string
		width, height int
		msgs          []tea.Msg
	}{
		{"nothing yet", 80, 24, nil},
		{"the records are loaded", 80, 24, []tea.Msg{load}},
		{"two groups, failures, a store that is silent", 80, 30, run},
		{"the same on a narrow terminal", 40, 30, run},
		{"the same on a wide one", 130, 30, run},
		{"the same on a low one", 80, 10, run},
		{"the same on a tiny one", 12, 3, run},
		{"another phase begins", 80, 24, append(run, verify)},
		{"cut short", 80, 24, []tea.Msg{one(1), one(2), stoppingMsg{}}},
		{"a Redis", 80, 24, []tea.Msg{plainRedis}},
		{"a Redis Cluster", 80, 24, []tea.Msg{redisCluster}},
	} {
		m := shownAfter(append([]tea.Msg{size(c.width, c.height)}, c.msgs...)...)
		lines := m.frame()
		fmt.Fprintf(&got, "---- %s, %d x %d\n", c.what, c.width, c.height)
		for _, line := range lines {
			fmt.Fprintln(&got, ansi.Strip(line))
			if n := ansi.StringWidth(line); n > c.width {
				t.Errorf("%s: a line of %d columns, want at most %d: %q", c.what, n, c.width, line)
			}
		}
		v := m.View()
		if n := strings.Count(v.Content, "\n") + 1; n > c.height || v.Cursor.Y != n-1 || v.Cursor.X != 0 {
			t.Errorf("%s: %d lines and the cursor at %v, want at most %d, the cursor in the last", c.what, n,
				v.Cursor.Position, c.height)
		}
	}
	const golden = "testdata/live.txt"
	if *update {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(golden, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got.Bytes(), want) {
		t.Errorf("differs from %s (go test -update writes it):\n%s", golden, got.Bytes())
	}
}

// TestKeptTicks: the curves of a long run stay short.
func TestKeptTicks(t *testing.T) {
	var g groupView
	for range 2 * keptTicks {
		g.take(results.GroupStats{}, results.Latency{})
	}
	if len(g.rates) != keptTicks || cap(g.rates) > 4*keptTicks {
		t.Errorf("%d values kept in room for %d, want %d", len(g.rates), cap(g.rates), keptTicks)
	}
}

// writes keeps each write.
type writes struct {
	mu  sync.Mutex
	all []string
}

func (w *writes) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.all = append(w.all, string(b))
	return len(b), nil
}

var (
	modes  = regexp.MustCompile("\x1b\\[\\?[0-9;]*[hl]|\x1b\\[[0-9]* q")
	colors = regexp.MustCompile("\x1b\\[[0-9;]*3[0-9][0-9;]*m")
)

// Between two writes of the view a terminal is as it was before: nothing has to be restored when the program dies. With
// NO_COLOR there are no colours.
func TestLiveLeavesTheTerminalAsItIs(t *testing.T) {
	for _, env := range [][]string{{"TERM=xterm-256color", "TTY_FORCE=1"},
		{"TERM=xterm-256color", "TTY_FORCE=1", "NO_COLOR=1"}} {
		var out writes
		p := liveProgram(&out, env, tea.WithWindowSize(80, 24))
		ended := make(chan error, 1)
		go func() {
			_, err := p.Run()
			ended <- err
		}()
		for _, msg := range append([]tea.Msg{size(80, 24)}, aRun()...) {
			p.Send(msg)
		}
		p.Println("a line above")
		p.Send(stoppingMsg{})
		p.Quit()
		if err := <-ended; err != nil {
			t.Fatal(err)
		}
		text := strings.Join(out.all, "")
		if !strings.Contains(text, "a line above") || !strings.Contains(text, "CLUSTERDOWN") {
			t.Errorf("%v: the line and the last frame are not in %q", env, text)
		}
		for _, w := range out.all {
			hidden := false
			for _, mode := range modes.FindAllString(w, -1) {
				switch mode {
				case "\x1b[?25l":
					hidden = true
				case "\x1b[?25h":
					hidden = false
				default:
					t.Errorf("%v: %q changes the terminal", env, mode)
				}
			}
			if hidden {
				t.Errorf("%v: the cursor stays hidden behind %q", env, w)
			}
		}
		if got, want := colors.MatchString(text), len(env) == 2; got != want {
			t.Errorf("%v: colours %v, want %v", env, got, want)
		}
	}
}
