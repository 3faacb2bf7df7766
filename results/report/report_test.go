package report

import (
	"bytes"
	"encoding/json"
	"flag"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/results"
)

var update = flag.Bool("update", false, "write the golden files anew")

// hostile is text that a page must show and never run.
const hostile = `</script><script>document.title="broken out"</script><img src=x onerror="document.title='broken out'">`

// synthetic makes a result of two groups of clients, an open loop and a slow closed one, with a stall of a second, a
// failed event, errors, and a curve. A factor of 1.2 makes it 1.2 times slower.
func synthetic(seed uint64, slower float64) *results.Result {
	rng := rand.New(rand.NewPCG(seed, 1))
	start := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	r := &results.Result{Header: results.Header{
		Format: results.Format, Started: start, Command: []string{"neokv", "bench", "--rate", "500"},
		Profile:  "default",
		Settings: map[string]string{"engine.wal_sync": "always", "engine.row_cache": "64MiB"},
		Groups: []results.ClientGroup{
			{Name: "main", Workload: "ycsb-a", Keys: "zipfian", Clients: 50, Pipeline: 1, Rate: "500", Records: 1000,
				ValueBytes: "100"},
			{Name: "info " + hostile, Workload: "info", Clients: 1, Pipeline: 1},
		},
		Duration: 20 * time.Second, Warmup: 3 * time.Second, Seed: seed,
		Build: results.Build{Version: "v1", Commit: "0123456789ab", Go: "go1.26"},
		Machine: results.Machine{CPU: "a CPU", Cores: 2, MemoryBytes: 8 << 30, OS: "an OS", Kernel: "1.2",
			Arch: "amd64"},
		Cluster: results.ClusterShape{InProcess: true, Stores: 3, Replicas: 3, Regions: 8, Sync: "always",
			Transport: "memory", InMemory: true},
		Target: results.Target{Version: "7.0.0", Cluster: true, Info: map[string]string{"odd": hostile}},
	}}
	ops := [][]string{{"read", "update"}, {"info"}}
	whole := map[string]*opSamples{}
	var sums []results.GroupStats
	total := results.Work{}
	at := start
	second := func(phase string, since int) {
		at = at.Add(time.Second)
		stalled := phase == results.PhaseRun && since == 12
		iv := results.Interval{Phase: phase, At: at, Since: float64(since), Seconds: 1,
			Generator: results.GeneratorLoad{Cores: 0.4 + 0.1*rng.Float64(), Busy: 0.7,
				Late: &results.Latency{P50: us(20), P99: us(300), Max: us(2000)}}}
		for g, names := range ops {
			stats := results.GroupStats{Name: r.Header.Groups[g].Name, Total: results.OpStats{Name: "total"},
				Incidents: results.Incidents{Kinds: map[string]int64{}}}
			for k, name := range names {
				s := newOpSamples()
				for range []int{250, 250}[k] / (1 + 240*g) {
					us := slower * 200 * float64(1+3*k) * math.Exp(rng.NormFloat64()/2)
					if stalled {
						us += 1e6 * rng.Float64()
					}
					s.add(time.Duration(us)*time.Microsecond, g == 0)
				}
				op := s.stats(name, 1)
				op.Reads = name == "read"
				stats.Ops = append(stats.Ops, op)
				stats.Total.Count += op.Count
				if phase == results.PhaseRun {
					if whole[name] == nil {
						whole[name] = newOpSamples()
					}
					whole[name].merge(s)
				}
			}
			stats.Ledger = results.Ledger{Offered: stats.Total.Count, OK: stats.Total.Count}
			if stalled && g == 0 {
				stats.Kinds = map[string]int64{"timeout": 7, "CLUSTERDOWN": 3}
				stats.Ledger.Offered += 15
				stats.Ledger.Errors, stats.Ledger.Unknown, stats.Ledger.InFlight = 3, 7, 5
			}
			iv.Groups = append(iv.Groups, stats)
			if phase == results.PhaseRun {
				if g == len(sums) {
					sums = append(sums, results.GroupStats{Name: stats.Name,
						Incidents: results.Incidents{Kinds: map[string]int64{}}})
				}
				sums[g].Ledger.Add(stats.Ledger)
				for kind, n := range stats.Kinds {
					sums[g].Kinds[kind] += n
				}
			}
		}
		iv.Work = results.Work{
			"sync_calls": 300 + rng.Int64N(50), "raft_entries": 200 + rng.Int64N(20), "raft_commands": 250,
			"wal_bytes": 1<<20 + rng.Int64N(1<<18), "memtable_flushes": int64(since % 5 / 4), "write_stalls": 0,
			"memtable_flush_bytes": int64(since%5/4) << 22, "compactions": rng.Int64N(3), "write_stall_us": 0,
			"compaction_bytes": rng.Int64N(1 << 23), "elections": 0, "leader_changes": 0, "row_cache_hits": 700,
			"row_cache_misses": 300 + rng.Int64N(100), "block_cache_hits": 900, "block_cache_misses": 100,
			"bloom_probes": 1000, "bloom_hits": 970, "process_cpu_us": 600_000 + rng.Int64N(100_000),
			"process_rss_bytes": 200<<20 + int64(since)<<20,
		}
		if stalled {
			iv.Work["elections"], iv.Work["leader_changes"] = 2, 2
			iv.Work["write_stalls"], iv.Work["write_stall_us"] = 4, 900_000
			iv.Events = []results.Event{{At: 11.5, Do: "kill store 2"},
				{At: 12.5, Do: "start store 2", Error: "no such store"}}
		}
		if phase == results.PhaseRun {
			total.Add(iv.Work)
		}
		r.Intervals = append(r.Intervals, iv)
	}
	for i := range 3 {
		second(results.PhaseLoad, i)
	}
	for i := range 3 {
		second(results.PhaseWarmup, i)
	}
	for i := range 20 {
		second(results.PhaseRun, i)
	}
	s := &results.Summary{
		Seconds: 20, Work: total, Generator: results.GeneratorLoad{Cores: 0.45, Busy: 0.7},
		Warnings:    []string{"the generator was late: " + hostile},
		FirstErrors: map[string]string{"CLUSTERDOWN": "CLUSTERDOWN Hash slot not served"},
		Events:      r.Intervals[len(r.Intervals)-8].Events,
		Curve: &results.Curve{SLO: "p99<5ms", Lags: 1500, Breaks: 1500, Saturates: 2000, Best: 1000,
			Confirmed: true},
	}
	for g, names := range ops {
		sum := results.GroupSummary{GroupStats: sums[g]}
		all := newOpSamples()
		for _, name := range names {
			op := whole[name].stats(name, 20)
			op.Reads = name == "read"
			sum.Ops = append(sum.Ops, op)
			all.merge(whole[name])
		}
		sum.Total = all.stats("total", 20)
		sum.Total.Service.HDR = ""
		if sum.Total.Response != nil {
			sum.Total.Response.HDR = ""
		}
		s.Groups = append(s.Groups, sum)
	}
	for i, rate := range []float64{500, 1000, 1500, 2000} {
		step := results.Step{Rate: rate, Seconds: 10, GroupStats: results.GroupStats{Name: "main"}}
		t := int64(slower * 400 * math.Pow(3, float64(i)))
		step.Total = results.OpStats{Name: "total", Count: int64(10 * rate), PerSecond: min(rate, 1700),
			Service: results.Latency{P50: us(t), P99: us(4 * t), P999: us(9 * t), Max: us(12 * t)}}
		if i > 1 {
			step.Why = "p99 is 14.4 ms"
		}
		s.Curve.Rows = append(s.Curve.Rows, step)
	}
	r.Summary = s
	return r
}

// opSamples are the latencies of an operation. response stays empty in a closed loop.
type opSamples struct{ service, response results.Distribution }

func newOpSamples() *opSamples { return &opSamples{} }

func us(v int64) results.Quantile { return results.Quantile{US: v} }

// add adds an operation. In an open loop it left 100 us late.
func (s *opSamples) add(took time.Duration, open bool) {
	s.service.Answer(took)
	if open {
		s.response.Answer(took + 100*time.Microsecond)
	}
}

func (s *opSamples) merge(from *opSamples) {
	s.service.Merge(from.service)
	s.response.Merge(from.response)
}

func (s *opSamples) stats(name string, seconds float64) results.OpStats {
	n, _ := s.service.Count()
	op := results.OpStats{Name: name, Count: n, PerSecond: float64(n) / seconds,
		Service: s.service.Latency(true)}
	if l := s.response.Latency(true); l.Known() {
		op.Response = &l
	}
	return op
}

// twoSubjects are two synthetic results that differ in a setting.
func twoSubjects() []results.ResultFile {
	a, b := synthetic(1, 1), synthetic(2, 1.2)
	b.Header.Settings["engine.row_cache"] = "0"
	return []results.ResultFile{{Name: "before", Result: a}, {Name: "after", Result: b}}
}

// golden compares text with a file in testdata, which -update writes.
func golden(t *testing.T, name string, got []byte) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, got, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("%s differs; -update writes it anew:\n%s", path, got)
	}
}

// TestNodes: of a cluster a row per node stands in each form of a report, of one result and of several.
func TestNodes(t *testing.T) {
	subjects := twoSubjects()
	for i, s := range subjects {
		s.Result.Summary.Nodes = []results.NodeStats{
			{Addr: "10.0.0.1:7001", Slots: 8192, PerSecond: 250, Count: 5000 + int64(i), Mean: 210, Max: 9000},
			{Addr: "10.0.0." + hostile, Slots: 8192, Count: 4000, Unanswered: 12, NoAnswer: 1_000_000},
		}
	}
	forms := map[string]func(io.Writer, []results.ResultFile) error{"page": HTML, "table": Table, "Markdown": Markdown}
	for n := 1; n <= 2; n++ {
		for name, form := range forms {
			var out bytes.Buffer
			if err := form(&out, subjects[:n]); err != nil {
				t.Fatal(err)
			}
			text := out.String()
			for _, once := range []string{"10.0.0.1:7001", "no answer for"} {
				if got := strings.Count(text, once); got != n {
					t.Errorf("%s of %d results: %q stands there %d times, want %d", name, n, once, got, n)
				}
			}
			if strings.Contains(text, "5,001") != (n == 2) || name == "page" && strings.Contains(text, "<img src=x") {
				t.Errorf("%s of %d results:\n%s", name, n, text)
			}
		}
	}
}

func TestMarkdown(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	curve := synthetic(1, 1) // a run with --curve has no measured part
	curve.Summary.Seconds, curve.Summary.Groups = 0,
		[]results.GroupSummary{{GroupStats: results.GroupStats{Name: "main"}}}
	curve.Summary.Curve.Best, curve.Summary.Curve.SLO, curve.Summary.Curve.Breaks = 0, "", 0
	for _, c := range []struct {
		file     string
		subjects []results.ResultFile
	}{{"one.md", twoSubjects()[:1]}, {"two.md", twoSubjects()},
		{"curve.md", []results.ResultFile{{Name: "curve", Result: curve}}}} {
		var got bytes.Buffer
		if err := Markdown(&got, c.subjects); err != nil {
			t.Fatal(err)
		}
		golden(t, c.file, got.Bytes())
	}
}

func TestDrawing(t *testing.T) {
	subjects := twoSubjects()
	for i := range subjects {
		// A few seconds of each phase are enough for a file that people can read.
		subjects[i].Result.Intervals = subjects[i].Result.Intervals[2:9]
	}
	got, err := json.MarshalIndent(newDrawing(subjects), "", "\t")
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "two.json", append(got, '\n'))
}

// TestPageIsSafe: no text of a result ends an element of the page or begins one.
func TestPageIsSafe(t *testing.T) {
	subjects := twoSubjects()
	subjects[0].Name = hostile
	var page bytes.Buffer
	if err := HTML(&page, subjects); err != nil {
		t.Fatal(err)
	}
	if got := bytes.Count(page.Bytes(), []byte("</script>")); got != 3 {
		t.Errorf("%d ends of scripts, want those of the data, the library and the script", got)
	}
	for _, part := range []string{"<img", "http://", "https://"} {
		at := bytes.Index(bytes.ReplaceAll(page.Bytes(), []byte(echartsJS), nil), []byte(part))
		if at >= 0 {
			t.Errorf("the page has %q: %q", part, page.Bytes()[at:at+100])
		}
	}
}

// TestLongRun: the page of a day has few enough columns, and none holds intervals of two phases.
func TestLongRun(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	r := synthetic(1, 1)
	var long []results.Interval
	start := r.Intervals[0].At
	for i := range 20_000 {
		iv := r.Intervals[i%len(r.Intervals)]
		iv.Phase, iv.Since, iv.Events = results.PhaseRun, float64(4*i), nil
		if i < 10 {
			iv.Phase = results.PhaseLoad
		}
		iv.Seconds, iv.At = 4, start.Add(time.Duration(4*i)*time.Second)
		long = append(long, iv)
	}
	r.Intervals = long
	columns := columnsOf(long, maxColumns, 0)
	if len(columns) > maxColumns+len(phases) || len(columns) < maxColumns/2 {
		t.Errorf("%d columns, want up to %d", len(columns), maxColumns)
	}
	intervals := 0
	for _, c := range columns {
		intervals += len(c.intervals)
		for _, iv := range c.intervals {
			if iv.Phase != c.intervals[0].Phase {
				t.Fatalf("a column from %.0f s has intervals of %s and %s", c.from, iv.Phase, c.intervals[0].Phase)
			}
		}
	}
	if intervals != len(long) {
		t.Errorf("the columns have %d intervals of %d", intervals, len(long))
	}
	r.Intervals = long[:1500] // all that a test has time for
	var page bytes.Buffer
	if err := HTML(&page, []results.ResultFile{{Name: "long", Result: r}}); err != nil {
		t.Fatal(err)
	}
	if size := page.Len() - len(echartsJS); size > 3<<20 {
		t.Errorf("the page has %d bytes beside the library", size)
	}
}

// TestColumns: figures of a column are those of its intervals together.
func TestColumns(t *testing.T) {
	r := synthetic(1, 1)
	run := r.Intervals[6:]
	columns := columnsOf(run, 2, 20*time.Second)
	if len(columns) != 2 || columns[0].from != 0 || columns[0].to != 10 || columns[1].to != 20 ||
		columns[1].seconds != 10 {
		t.Fatalf("columns %+v", columns)
	}
	got := columns[1].latencies(0, []string{"read", "update"}, responseTime)
	if len(got) != 3 {
		t.Fatalf("%d latencies, want those of two operations and of all", len(got))
	}
	for i, op := range []string{"read", "update"} {
		var want results.Distribution
		for _, iv := range run[10:] {
			merge(&want, operation(iv.Groups, 0, op).Response)
		}
		if q := want.Quantiles(99, 100); got[i].P99 != q[0] || got[i].Max != q[1] {
			t.Errorf("%s: p99 %s, max %s, want %s", op, got[i].P99, got[i].Max, q)
		}
	}
	var cells int64
	for _, n := range got[2].heat[1:] {
		cells += n
	}
	if cells != 5000 {
		t.Errorf("the heat map has %d operations, want 5000", cells)
	}
	if g := columns[1].groups[0]; g.Kinds["timeout"] != 7 || g.Ledger.Offered != 5015 || g.Ledger.InFlight != 0 {
		t.Errorf("group %+v", g)
	}
	if n := columns[1].work["leader_changes"]; n != 2 {
		t.Errorf("%d leader changes, want 2", n)
	}
}

// TestColumnsDoNotOverlap: time that a late generator counted in two intervals is in the first one.
func TestColumnsDoNotOverlap(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	interval := func(phase string, end, seconds, since float64) results.Interval {
		return results.Interval{Phase: phase, At: at.Add(time.Duration(end * float64(time.Second))), Since: since,
			Seconds: seconds}
	}
	columns := columnsOf([]results.Interval{
		interval(results.PhaseWarmup, 1, 1, 0), interval(results.PhaseWarmup, 4, 3, 1),
		interval(results.PhaseRun, 8, 6, 0), interval(results.PhaseRun, 9, 6, 1),
		interval(results.PhaseRun, 9.5, 0.5, 2),
	}, 100, 0)
	var got []float64
	for _, c := range columns {
		got = append(got, c.from, c.to, c.seconds)
	}
	want := []float64{-2, -1, 1, -1, 2, 3, 2, 6, 4, 6, 7, 1, 7, 7.5, 0.5}
	if !slices.Equal(got, want) {
		t.Errorf("begins, ends and lengths %v, want %v", got, want)
	}
}

// TestEndOfRun: the curves do not fall because the run has ended. In its last second a server answered one operation
// late, so the run waited for the answer; what came after it is too short for a rate of its own.
func TestEndOfRun(t *testing.T) {
	at := time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC)
	r := &results.Result{Header: results.Header{Duration: 3 * time.Second,
		Groups: []results.ClientGroup{{Name: "set", Rate: "1000"}}}}
	for _, x := range []struct {
		from, to          float64
		offered, inFlight int64
	}{{0, 1, 1000, 5}, {1, 2, 1000, 5}, {2, 3.9, 1000, 0}, {3.9, 3.95, 0, 0}} {
		r.Intervals = append(r.Intervals, results.Interval{Phase: results.PhaseRun, Since: x.from,
			Seconds: x.to - x.from, At: at.Add(time.Duration(x.to * float64(time.Second))),
			Work: results.Work{"sync_calls": x.offered}, Groups: []results.GroupStats{{Name: "set",
				Ledger: results.Ledger{Offered: x.offered, OK: x.offered, InFlight: x.inFlight}}}})
	}
	d := newDrawing([]results.ResultFile{{Name: "x", Result: r}})
	want := map[string]string{"offered": "[1000,1000,1000]", "reached": "[1000,1000,1000]", "in flight": "[5,5,null]",
		"syncs": "[1000,1000,1000]"}
	for _, p := range append(d.Groups[0].Panels, d.Target...) {
		for _, line := range p.Traces {
			got, err := json.Marshal(line.Values)
			if err != nil || want[line.Name] != string(got) {
				t.Errorf("%s: %s %v, want %s", line.Name, got, err, want[line.Name])
			}
			delete(want, line.Name)
		}
	}
	if len(want) > 0 {
		t.Errorf("not drawn: %v", want)
	}
}

// TestBeside: only figures that at least two results have are compared, and no errors are a figure, too.
func TestBeside(t *testing.T) {
	subject := func(ops ...results.OpStats) results.ResultFile {
		g := results.GroupSummary{GroupStats: results.GroupStats{Name: "g", Ops: ops}}
		return results.ResultFile{Result: &results.Result{
			Header:  results.Header{Groups: []results.ClientGroup{{Name: "g"}}},
			Summary: &results.Summary{Groups: []results.GroupSummary{g}},
		}}
	}
	all := func(v int64) results.Latency { return results.Latency{P50: us(v), P99: us(v), P999: us(v), Max: us(v)} }
	response := all(900)
	subjects := []results.ResultFile{
		subject(results.OpStats{Name: "get", PerSecond: 100, Service: all(200), Response: &response}),
		subject(results.OpStats{Name: "get", PerSecond: 19_000, Errors: 7, Service: all(100)},
			results.OpStats{Name: "set", PerSecond: 5, Service: all(100)}),
		{Result: &results.Result{Header: results.Header{Groups: []results.ClientGroup{{Name: "g"}}}}},
	}
	got := beside(subjects, matchGroups(subjects)[0])
	want := &sideBySide{Letters: []string{"A", "B", "C"}, Rows: []comparedRow{
		{"get", "ops/s", []string{"100", "19,000 (x190)", "-"}},
		{"", "errors", []string{"0", "7", "-"}},
		{"", "service p50", []string{"200 us", "100 us (-50.0 %)", "-"}},
		{"", "service p99", []string{"200 us", "100 us (-50.0 %)", "-"}},
		{"", "service p99.9", []string{"200 us", "100 us (-50.0 %)", "-"}},
		{"", "service max", []string{"200 us", "100 us (-50.0 %)", "-"}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("beside = %+v; want %+v", got, want)
	}
}

func TestHeat(t *testing.T) {
	for _, c := range []struct {
		us   []int64
		want []int64
	}{
		{nil, nil},
		{[]int64{1}, []int64{0, 1}},
		{[]int64{100, 100, 130, 300}, []int64{20, 2, 1, 0, 0, 1}},
	} {
		var d results.Distribution
		for _, us := range c.us {
			d.Answer(time.Duration(us) * time.Microsecond)
		}
		if got := heatOf(d); !slices.Equal(got, c.want) {
			t.Errorf("heatOf(%v) = %v; want %v", c.us, got, c.want)
		}
	}
}

func TestPercentileCurve(t *testing.T) {
	var d results.Distribution
	for us := range 1000 {
		d.Answer(time.Duration(us+1) * time.Microsecond)
	}
	got := percentileCurve(d)
	points := map[figure]figure{}
	for i := 0; i < len(got); i += 2 {
		points[got[i]] = got[i+1]
	}
	for _, c := range []struct{ x, us figure }{{10, 900}, {100, 990}, {1000, 1000}} {
		if points[c.x] != c.us {
			t.Errorf("at 1/(1-q) = %v: %v us, want %v", c.x, points[c.x], c.us)
		}
	}
	for range 1000 { // never answered
		d.Censor(time.Hour)
	}
	got = percentileCurve(d)
	if first, last := got[1], got[len(got)-1]; first != 1 || last > -3_600_000_000 || last < -3_605_000_000 {
		t.Errorf("with operations that have no answer the curve goes from %v to %v us, want 1 to a lower bound of an "+
			"hour", first, last)
	}
	if got := percentileCurve(results.Distribution{}); len(got) != 0 {
		t.Errorf("the curve of no values has %v", got)
	}
}

// TestUnfinished: of a run without a summary there is what the intervals say.
func TestUnfinished(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	r := synthetic(1, 1)
	r.Summary, r.Warnings = nil, []string{"no summary: the run did not come to its end"}
	d := newDrawing([]results.ResultFile{{Name: "cut", Result: r}})
	whole := newDrawing(twoSubjects()[:1])
	if got, want := len(d.Groups[0].Latencies[0].Percentiles),
		len(whole.Groups[0].Latencies[0].Percentiles); got != want {
		t.Errorf("the percentile curve has %d figures, want %d", got, want)
	}
	if got := len(d.Runs[0].Events); got != 2 {
		t.Errorf("%d events, want 2", got)
	}
	var out bytes.Buffer
	cut := []results.ResultFile{{Name: "cut", Result: r}}
	if err := Markdown(&out, cut); err != nil || !strings.Contains(out.String(), "no summary") {
		t.Errorf("%v, %s", err, out.String())
	}
	out.Reset()
	if err := HTML(&out, cut); err != nil || !strings.Contains(out.String(), "<li>no summary") {
		t.Errorf("the page does not say that there is no summary: %v", err)
	}
}

func TestMatchGroups(t *testing.T) {
	subject := func(groups ...string) results.ResultFile {
		r := &results.Result{}
		for _, g := range groups {
			r.Header.Groups = append(r.Header.Groups, results.ClientGroup{Name: g})
		}
		return results.ResultFile{Result: r}
	}
	for _, c := range []struct {
		subjects []results.ResultFile
		want     []matched
	}{
		{[]results.ResultFile{subject("a"), subject("b")}, []matched{{"", []int{0, 0}}}},
		{[]results.ResultFile{subject("a"), subject("a")}, []matched{{"a", []int{0, 0}}}},
		{[]results.ResultFile{subject("a", "b"), subject("b", "c")},
			[]matched{{"a", []int{0, -1}}, {"b", []int{1, 0}}, {"c", []int{-1, 1}}}},
		{[]results.ResultFile{subject("a", "a")}, []matched{{"a", []int{0}}, {"a", []int{1}}}},
		{[]results.ResultFile{subject()}, nil},
	} {
		if got := matchGroups(c.subjects); !reflect.DeepEqual(got, c.want) {
			t.Errorf("matchGroups(%v) = %v; want %v", c.subjects, got, c.want)
		}
	}
}
