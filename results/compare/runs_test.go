package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/results"
)

var began = time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)

// runAt is a result of a run that began so many minutes after another one.
func runAt(minute int, perSecond float64, changes ...func(*results.Result)) results.ResultFile {
	g := results.GroupSummary{GroupStats: results.GroupStats{Name: "set",
		Ledger: results.Ledger{Offered: 1000, OK: 1000}, Total: results.OpStats{Count: 1000, PerSecond: perSecond}}}
	r := &results.Result{
		Header: results.Header{
			Started: began.Add(time.Duration(minute) * time.Minute), Seed: uint64(minute), Duration: 10 * time.Second,
			Settings: map[string]string{"engine.row_cache": "64MiB"}, Profile: "default",
			Groups: []results.ClientGroup{{Name: "set", Workload: "set", Clients: 4, Pipeline: 1, Records: 100,
				ValueBytes: "10"}},
			Machine: results.Machine{CPU: "a CPU", Cores: 2},
			Cluster: results.ClusterShape{InProcess: true, Stores: 3, Regions: 8, Transport: "memory", InMemory: true},
		},
		Summary: &results.Summary{Seconds: 10, Groups: []results.GroupSummary{g}},
	}
	for _, change := range changes {
		change(r)
	}
	return results.ResultFile{Name: fmt.Sprintf("run-%d.jsonl", minute), Result: r}
}

func setting(name, value string) func(*results.Result) {
	return func(r *results.Result) { r.Header.Settings = map[string]string{name: value} }
}

// inTurns returns sides of so many runs that alternate. B is faster, and has another setting.
func inTurns(n int, faster float64) (a, b Runs) {
	a.Name, b.Name = "a/", "b/"
	for i := range n {
		a.Files = append(a.Files, runAt(2*i, 1000+float64(i)))
		b.Files = append(b.Files, runAt(2*i+1, faster*(1000+float64(i)), setting("engine.row_cache", "0")))
	}
	return a, b
}

func copyOf(f results.ResultFile, name string) results.ResultFile {
	f.Name = name
	return f
}

// TestRunsCountOnce: copies of a run are one run, whatever their names.
func TestRunsCountOnce(t *testing.T) {
	a, b := inTurns(1, 1.2)
	for i := range 3 {
		a.Files = append(a.Files, copyOf(a.Files[0], fmt.Sprintf("copy-a%d", i)))
		b.Files = append(b.Files, copyOf(b.Files[0], fmt.Sprintf("copy-b%d", i)))
	}
	d, err := OfRuns(a, b, false)
	if err != nil {
		t.Fatal(err)
	}
	if r := d.Row("throughput"); r.A.N != 1 || r.B.N != 1 || r.Verdict == Better {
		t.Errorf("%+v: four copies count as more than one run", r)
	}
	if len(d.Warnings) < 6 || d.Warnings[0] != "copy-a0 is the same run as run-0.jsonl and does not count" {
		t.Errorf("warnings %q", d.Warnings)
	}
	for want, sides := range map[string][2]Runs{
		"run-0.jsonl and copy are the same run, which cannot be on both sides": {{"a", a.Files[:1]},
			{"b", []results.ResultFile{copyOf(a.Files[0], "copy")}}},
		"run-0.jsonl and cut are of the same run and hold different things": {{"a", append(a.Files[:1:1],
			copyOf(runAt(0, 7), "cut"))}, b},
	} {
		if _, err := OfRuns(sides[0], sides[1], true); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// TestUnsoundRuns: what was cut short, or disturbed on purpose, is compared only if somebody insists, and marked then.
// Operations without an answer are part of the figures.
func TestUnsoundRuns(t *testing.T) {
	for want, change := range map[string]func(*results.Result){
		"the run was interrupted":             func(r *results.Result) { r.Summary.Interrupted = true },
		"the run failed: target dead":         func(r *results.Result) { r.Summary.Failure = "target dead" },
		"at 3.0 s FLUSHALL: no such command":  func(r *results.Result) { event(r, "FLUSHALL", "no such command") },
		"the run did not come to its end":     func(r *results.Result) { r.Summary = nil },
		"side B has several setups: engine.r": setting("engine.row_cache", "1MiB"),
		"side B has several setups: CPU: a C": func(r *results.Result) { r.Header.Machine.CPU = "another" },
		"side B has several setups: stores":   func(r *results.Result) { r.Header.Cluster.Stores = 1 },
		"side B has several setups: duration": func(r *results.Result) { r.Header.Duration = time.Second },
		"side B has several setups: commit: ": func(r *results.Result) { r.Header.Build.Commit = "abc" },
		"": func(r *results.Result) {
			l := &r.Summary.Groups[0].Ledger
			l.Offered, l.InFlight, l.Dropped, l.Unknown = 1100, 10, 60, 30
			r.Header.Command, r.Header.Cluster.Data.SyncP50 = []string{"other"}, 7
		},
	} {
		a, b := inTurns(8, 1.2)
		change(b.Files[3].Result) // not the first
		d, err := OfRuns(a, b, false)
		if want == "" {
			if err != nil || d.Marks != nil || d.Row("throughput").Verdict != Better {
				t.Errorf("operations without an answer: %v, %+v", err, d)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), want) ||
			!strings.Contains(err.Error(), "; --anyway compares it") || !strings.Contains(err.Error(), "run-7.jsonl") {
			t.Errorf("%v; want %q of run-7.jsonl", err, want)
		}
		d, err = OfRuns(a, b, true)
		if err != nil {
			t.Fatalf("%s: %v", want, err)
		}
		if lead := strings.Join(d.Lead(), "\n"); len(d.Marks) != 1 || !strings.Contains(lead, want) {
			t.Errorf("marks %q, lead %q; want %q", d.Marks, lead, want)
		}
	}
	// Faults are part of the load, so both sides have them.
	a, b := inTurns(4, 1)
	for _, side := range []Runs{a, b} {
		for _, f := range side.Files {
			f.Header.Schedule = results.NewSchedule([]string{"1s FLUSHALL", "2s kill 2"}, 1)
		}
	}
	_, err := OfRuns(a, b, false)
	if want := "run-7.jsonl: faults were brought about: 2 events, 1 fault among them: 1s FLUSHALL; 2s kill 2; " +
		"--anyway"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v; want %q", err, want)
	}
}

func event(r *results.Result, do, failed string) {
	r.Summary.Events = []results.Event{{At: 3, Do: do, Error: failed}}
}

// TestRunsNameAllDifferences: what differs is named from all files, and what every run shares stands once.
func TestRunsNameAllDifferences(t *testing.T) {
	a, b := inTurns(4, 1)
	b.Files[2].Header.Settings = map[string]string{"engine.row_cache": "1MiB"}
	d, err := OfRuns(a, b, true)
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Conditions) != 1 || d.Conditions[0] != (Condition{"engine.row_cache", "64MiB", "0, 1MiB"}) {
		t.Errorf("differences %+v", d.Conditions)
	}
	var rows []string
	for _, r := range d.SetupRows() {
		rows = append(rows, r.Name+": "+r.Value)
	}
	const want = `A: a/
B: b/
load: set: 4 clients, pipeline 1, closed loop; 100 records of 10 B
measured: 10s after 0s of warm-up
target: 3 stores and 8 regions in this process, memory transport
settings: profile default
durability: not durable (in memory)
machine: a CPU, 2 cores
date: 2026-05-04 03:02 to 03:09 UTC
seed of A: 0, 2, 4, 6
seed of B: 1, 3, 5, 7
runs: 4
differs: engine.row_cache: 64MiB and 0, 1MiB`
	if got := strings.Join(rows, "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// TestRunsThatDoNotAlternate have figures, no verdict, and the command that would give one.
func TestRunsThatDoNotAlternate(t *testing.T) {
	var a, b Runs
	for i := range 8 {
		a.Files = append(a.Files, runAt(i, 1000+float64(i)))
		b.Files = append(b.Files, runAt(100+i, 2000+float64(i), setting("engine.row_cache", "0")))
	}
	d, err := OfRuns(a, b, false)
	if err != nil {
		t.Fatal(err)
	}
	r := d.Row("throughput")
	if r.Verdict != Unknown || r.Ratio == nil || r.A.Center != 1003.5 {
		t.Errorf("%+v", r)
	}
	lead := strings.Join(d.Lead(), "\n")
	for _, want := range []string{"cannot tell: the runs of A and B did not alternate in time",
		"this would tell: neokv ab --a engine.row_cache=64MiB --b engine.row_cache=0 --workload set --clients 4 " +
			"--pipeline 1 --records 100 --value-size 10 --mem --block 10s --warmup 0s"} {
		if !strings.Contains(lead, want) {
			t.Errorf("%s\nwant %s", lead, want)
		}
	}
	for _, f := range b.Files {
		f.Header.Settings["engine.row_cache"] = "64MiB"
	}
	if d, err = OfRuns(a, b, false); err != nil || !strings.Contains(d.Next, "run neokv bench for A and B in turn") {
		t.Errorf("%v, %q: ab has no arms for sides that do not differ", err, d.Next)
	}
}

// TestTurnsOfDifferentLoads: a file that was edited while ab ran leaves no verdict.
func TestTurnsOfDifferentLoads(t *testing.T) {
	turns := func(edited bool) *Delta {
		r := &Turns{Header: TurnsHeader{A: "a", B: "b", Primary: []string{"throughput"}}}
		for round := range 20 {
			for i, side := range []Side{SideA, SideB} {
				f := runAt(2*round+i, float64(1000+1000*i+round))
				f.Header.Groups[0].Content = results.ContentOf([]byte("x"))
				if edited && round > 9 {
					f.Header.Groups[0].Content = results.ContentOf([]byte("y"))
				}
				r.Blocks = append(r.Blocks, Block{Round: round, Side: side, Header: f.Header, Summary: *f.Summary})
			}
		}
		return r.Compare()
	}
	if d := turns(false); d.Conclusion.Verdict != Better {
		t.Errorf("%+v", d.Conclusion)
	}
	d := turns(true)
	if want := "cannot tell: blocks are of different loads: contents: sha256 "; d.Conclusion.Verdict != Unknown ||
		!strings.HasPrefix(d.Conclusion.Text, want) || d.Row("throughput").Verdict != Unknown {
		t.Errorf("%+v, want %q", d.Conclusion, want)
	}
}

// TestWarningsOfRuns: what several runs warn of stands once.
func TestWarningsOfRuns(t *testing.T) {
	a, b := inTurns(4, 1)
	for i, f := range slices.Concat(a.Files, b.Files) {
		f.Summary.Warnings = []string{fmt.Sprintf("%d %% busy", 90+i)}
	}
	d, err := OfRuns(a, b, false)
	if want := "8 of 8 runs, the first: 90 % busy"; err != nil || len(d.Warnings) != 1 || d.Warnings[0] != want {
		t.Errorf("%v, %q; want %q", err, d.Warnings, want)
	}
}

// TestAlternate: on a machine whose speed wanders, runs one side after the other differ far too often although nothing
// does, and runs in turn do not.
func TestAlternate(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 9))
	for order, want := range map[string]bool{"ABABABABABABABAB": true, "ABBAABBABAABBAAB": true,
		"AAAAAAAABBBBBBBB": false, "AAABBBAAABBBAABB": false, "AABBAABBAABBAABB": true} {
		const trials = 400
		alarms := 0
		for range trials {
			speed := 1000.0
			var sides [2]Runs
			for i, side := range order {
				speed *= math.Exp(0.03 * random.NormFloat64())
				k := int(side - 'A')
				sides[k].Files = append(sides[k].Files, runAt(i, speed*math.Exp(0.01*random.NormFloat64())))
			}
			rows := Sides(sides[0].figures(), sides[1].figures(), nil).Rows
			if v := rows[0].Verdict; v == Better || v == Worse {
				alarms++
			}
			if got := alternate(sides[0].started(), sides[1].started()); got != want {
				t.Fatalf("%s: they alternate: %v", order, got)
			}
		}
		t.Logf("%s: %d of %d", order, alarms, trials)
		if share := float64(alarms) / trials; want && share > 0.05 {
			t.Errorf("%s: %d of %d claim a difference", order, alarms, trials)
		}
	}
}
