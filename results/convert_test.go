package results

import (
	"bytes"
	"encoding/csv"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/perf/benchfmt"
)

// spanned makes a result of an open loop of 3 s whose intervals add up to the summary: reads of 1 to 1000 ms in the
// first second, updates of 0.1 to 100 ms in the second, and nothing in the third.
func spanned() *Result {
	h, ivs, s := sample(true)
	h.Build = Build{Commit: "0123abc", Modified: true}
	run := func(second int, ops ...OpStats) Interval {
		g := GroupStats{Name: "ycsb-a", Ops: ops, Total: OpStats{Name: "total"}}
		for _, op := range ops {
			g.Total.Count += op.Count
			g.Total.Errors += op.Errors
			g.Total.Misses += op.Misses
		}
		g.Ledger = Ledger{Offered: g.Total.Count, OK: g.Total.Count}
		return Interval{Phase: PhaseRun, At: h.Started.Add(time.Duration(second+8) * time.Second),
			Since: float64(second), Seconds: 1, Groups: []GroupStats{g},
			Work: Work{"sync_calls": 100, "wal_bytes": 12345, "process_cpu_us": 50}}
	}
	g := &s.Groups[0]
	g.Ledger = Ledger{Offered: 2000, OK: 2000}
	g.Incidents = Incidents{}
	g.Total.Errors, g.Total.Unanswered = 0, 0
	for clock := range 2 {
		var all Distribution
		for i := range g.Ops {
			op := &g.Ops[i]
			op.Errors, op.Unanswered = 0, 0
			l := []*Latency{&op.Service, op.Response}[clock]
			d, _ := l.Distribution()
			d.Censored = nil
			*l = d.Latency(true)
			all.Merge(d)
		}
		*[]*Latency{&g.Total.Service, g.Total.Response}[clock] = all.Latency(false)
	}
	s.Seconds, s.Work = 3, Work{"sync_calls": 300, "wal_bytes": 37035, "process_cpu_us": 150}
	for _, op := range []*OpStats{&g.Ops[0], &g.Ops[1], &g.Total} {
		op.PerSecond = float64(op.Count) / 3
	}
	silent := func(op OpStats) OpStats { return OpStats{Name: op.Name, Reads: op.Reads} }
	return &Result{Header: h, Summary: &s, Intervals: []Interval{ivs[0], run(0, g.Ops[0], silent(g.Ops[1])),
		run(1, silent(g.Ops[0]), g.Ops[1]), run(2, silent(g.Ops[0]), silent(g.Ops[1]))}}
}

// encoded returns a result as the lines of a file.
func encoded(t *testing.T, r *Result) string {
	t.Helper()
	var b bytes.Buffer
	write(t, NewWriter(&b), r.Header, r.Intervals, *r.Summary)
	return b.String()
}

// wantGolden compares with a file below testdata.
func wantGolden(t *testing.T, name string, got []byte) {
	t.Helper()
	golden := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(golden, got, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("differs from %s (go test -update writes it):\n%s", golden, got)
	}
}

// What a file that was cut short has of the measured part is what its intervals add up to.
func TestMeasuredOfACutFile(t *testing.T) {
	r := spanned()
	cut := *r
	cut.Summary = nil
	got, want := cut.Measured(), r.Measured()
	g, w := &got.Groups[0], &want.Groups[0]
	// Means are of histograms added in another order; the total's own histograms are encoded only here.
	for _, l := range []*Latency{&g.Total.Service, g.Total.Response, &w.Total.Service, w.Total.Response} {
		l.HDR, l.CensoredHDR, l.Mean = "", "", math.Round(l.Mean)
	}
	// The sample's total has other response times than its operations.
	w.Total.Response = g.Total.Response
	w.Inserted, want.FirstErrors, want.Interrupted = nil, nil, true
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v\nwant\n%+v", got, want)
	}

	// An interval without its histogram leaves the operation without latency.
	cut.Intervals = slices.Clone(cut.Intervals)
	lost := cut.Intervals[1].Groups[0]
	lost.Ops = slices.Clone(lost.Ops)
	lost.Ops[0].Service.HDR = ""
	cut.Intervals[1].Groups = []GroupStats{lost}
	if op := cut.Measured().Groups[0].Ops[0]; op.Count != 1000 || op.Service != (Latency{}) || op.Response == nil {
		t.Errorf("%+v; want 1000 operations without service times", op)
	}
}

// The golden file is, byte for byte, what outputPercentileDistribution of HdrHistogram for Java 2.1.11 prints of the
// same histogram with the scale 1000.
func TestHGRM(t *testing.T) {
	all := spanned().Histograms()
	var names []string
	for _, d := range all {
		names = append(names, d.FileName())
	}
	if want := []string{"ycsb-a.read.response", "ycsb-a.read.service", "ycsb-a.update.response",
		"ycsb-a.update.service", "ycsb-a.total.response", "ycsb-a.total.service"}; !slices.Equal(names, want) {
		t.Fatalf("%v; want %v", names, want)
	}
	var b bytes.Buffer
	if err := all[3].WriteHGRM(&b); err != nil {
		t.Fatal(err)
	}
	wantGolden(t, "update.hgrm", b.Bytes())

	for _, c := range []struct {
		lowest, highest     int64
		digits              int
		buckets, subBuckets int64
	}{{1, 60_000_000, 3, 16, 2048}, {1, 2047, 3, 1, 2048}, {1, 2048, 3, 2, 2048}, {1000, 3_600_000_000_000, 2, 26, 256},
		{1, math.MaxInt64, 3, 53, 2048}} {
		buckets, subBuckets := layout(hdrhistogram.New(c.lowest, c.highest, c.digits))
		if buckets != c.buckets || subBuckets != c.subBuckets {
			t.Errorf("layout of %d to %d, %d digits = %d, %d; want %d, %d", c.lowest, c.highest, c.digits, buckets,
				subBuckets, c.buckets, c.subBuckets)
		}
	}
}

func TestHLog(t *testing.T) {
	r := spanned()
	for _, c := range []struct {
		r     *Result
		spans map[string][2]int64 // start and end by tag, in seconds from the start of the run
	}{
		{r, map[string][2]int64{"ycsb-a.read.response": {0, 1}, "ycsb-a.read.service": {0, 1},
			"ycsb-a.update.response": {1, 2}, "ycsb-a.update.service": {1, 2}}},
	} {
		var b bytes.Buffer
		if err := WriteHLog(&b, c.r); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(b.String(), "#[StartTime: 1777863728 (seconds since epoch), 2026-05-04T03:02:08Z]\n"+
			"#[BaseTime: 1777863728 (seconds since epoch)]\n") {
			t.Errorf("no start and base time in\n%s", b.String())
		}
		log := hdrhistogram.NewHistogramLogReader(&b)
		got := map[string][2]int64{}
		for {
			h, err := log.NextIntervalHistogram()
			if err != nil {
				t.Fatal(err)
			}
			if h == nil {
				break
			}
			base := r.Header.Started.Add(7 * time.Second).UnixMilli()
			got[h.Tag()] = [2]int64{(h.StartTimeMs() - base) / 1000, (h.EndTimeMs() - base) / 1000}
			op := r.Summary.Groups[0].Ops[0]
			if strings.Contains(h.Tag(), "update") {
				op = r.Summary.Groups[0].Ops[1]
			}
			l := op.Service
			if strings.HasSuffix(h.Tag(), "response") {
				l = *op.Response
			}
			if h.TotalCount() != op.Count {
				t.Errorf("%s: %d values, want %d", h.Tag(), h.TotalCount(), op.Count)
			}
			for q, us := range map[float64]int64{50: l.P50.US, 99: l.P99.US, 99.9: l.P999.US, 100: l.Max.US} {
				// Never below what was measured, and above by one step of three digits at most.
				if ns := h.ValueAtPercentile(q); ns < us*1000 || ns > us*1000+us {
					t.Errorf("%s: p%g %d ns, want %d us", h.Tag(), q, ns, us)
				}
			}
		}
		if !reflect.DeepEqual(got, c.spans) {
			t.Errorf("%v; want %v", got, c.spans)
		}
	}
}

func TestBenchfmt(t *testing.T) {
	r, closed := spanned(), spanned()
	closed.Header.Groups[0].Rate = ""
	for i := range closed.Summary.Groups[0].Ops {
		closed.Summary.Groups[0].Ops[i].Response = nil
	}
	closed.Summary.Groups[0].Total.Response = nil
	step := closed.Summary.Groups[0].GroupStats
	closed.Summary.Curve = &Curve{Rows: []Step{{Rate: 2500, Seconds: 1, GroupStats: step}}}
	var b bytes.Buffer
	if err := WriteBenchfmt(&b, []ResultFile{{"a.jsonl", r}, {"b.jsonl", closed}}); err != nil {
		t.Fatal(err)
	}
	wantGolden(t, "benchfmt.txt", b.Bytes())

	in := benchfmt.NewReader(&b, "results")
	value := map[string]float64{} // by name and unit
	for in.Scan() {
		switch rec := in.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Error(rec)
		case *benchfmt.Result:
			for key, want := range map[string]string{"profile": "default", "workload": "ycsb-a",
				"commit": "0123abc-modified", "machine": "a CPU, 2 cores, an OS 1.2 amd64"} {
				if got := rec.GetConfig(key); got != want {
					t.Errorf("%s: %s %q, want %q", rec.Name, key, got, want)
				}
			}
			for _, v := range rec.Values {
				value[string(rec.Name)+" "+v.Unit] = v.Value
			}
		}
	}
	if err := in.Err(); err != nil {
		t.Fatal(err)
	}
	for what, want := range map[string]float64{
		"Ycsb-a/op=read/clock=response ops/s":             1000. / 3,
		"Ycsb-a/op=read/clock=response p99-sec":           0.990207,
		"Ycsb-a/op=update/clock=service p50-sec":          0.050015,
		"Ycsb-a/op=update/clock=service sec/op":           0.050051938,
		"Ycsb-a/op=read/rate=2500/clock=service max-sec":  1.000447,
		"Ycsb-a/op=total/rate=2500/clock=service p50-sec": 0.091007,
		"Ycsb-a/op=read/clock=response misses/op":         0.005,
		"Work syncs/op":   0.15,
		"Work wal-B/op":   18.5175,
		"Work cpu-sec/op": 75e-9,
	} {
		if got, known := value[what]; !known || math.Abs(got-want) > want*1e-9 {
			t.Errorf("%s: %g, want %g", what, got, want)
		}
	}
	if _, known := value["Ycsb-a/op=read/clock=service ops/s"]; !known {
		t.Error("the closed loop has no throughput")
	}
}

func TestCSV(t *testing.T) {
	var b bytes.Buffer
	if err := WriteCSV(&b, []ResultFile{{"a, b.jsonl", spanned()}}); err != nil {
		t.Fatal(err)
	}
	wantGolden(t, "intervals.csv", b.Bytes())
	rows, err := csv.NewReader(&b).ReadAll() // refuses rows of different lengths
	if err != nil {
		t.Fatal(err)
	}
	if len(rows) != 12 || rows[3][0] != "a, b.jsonl" || rows[3][6] != "read" || rows[3][14] != "990207" {
		t.Errorf("%d rows, %q; want 11 below the heading, and the reads of the first second", len(rows), rows[3])
	}
}

// Names of a file that somebody else made do not break a format.
func TestConvertOddNames(t *testing.T) {
	r := spanned()
	const odd = "a b,c\n/../Tag=x"
	r.Summary.Groups[0].Name, r.Header.Groups[0].Workload = odd, odd
	for i := range r.Intervals {
		r.Intervals[i].Groups[0].Name = odd
	}
	d := r.Histograms()[0]
	if got, want := d.FileName(), "a_b_c__.._Tag_x.read.response"; got != want {
		t.Errorf("file name %q, want %q", got, want)
	}
	var b bytes.Buffer
	if err := WriteHLog(&b, r); err != nil || !strings.Contains(b.String(), "\nTag=a_b_c__.._Tag_x.read.response,0.0") {
		t.Errorf("%v\n%s", err, b.String())
	}
	b.Reset()
	if err := WriteBenchfmt(&b, []ResultFile{{"x", r}}); err != nil {
		t.Fatal(err)
	}
	for in := benchfmt.NewReader(&b, "results"); in.Scan(); {
		switch rec := in.Result().(type) {
		case *benchfmt.SyntaxError:
			t.Error(rec)
		case *benchfmt.Result:
			if got := rec.GetConfig("workload"); got != "a b,c /../Tag=x" {
				t.Errorf("%s: workload %q", rec.Name, got)
			}
		}
	}
}

// The file of the present format from which the fuzzer and the tests of the program start.
func TestPresentFile(t *testing.T) { wantGolden(t, "result.jsonl", []byte(encoded(t, spanned()))) }

// What operations without an answer had waited is in every format, marked as a lower bound.
func TestLowerBounds(t *testing.T) {
	h, _, s := sample(true)
	g := s.Groups[0].GroupStats
	g.Ledger.InFlight = 0
	r := &Result{Header: h, Summary: &s, Intervals: []Interval{{Phase: PhaseRun, At: h.Started.Add(time.Second),
		Seconds: 1, Groups: []GroupStats{g}}}}
	var names []string
	var text bytes.Buffer
	for _, d := range r.Histograms() {
		names = append(names, d.FileName())
		if err := d.WriteHGRM(&text); err != nil {
			t.Fatal(err)
		}
	}
	if want := []string{"ycsb-a.read.response.at-least", "ycsb-a.read.service.at-least",
		"ycsb-a.update.response.at-least", "ycsb-a.update.service", "ycsb-a.total.response.at-least",
		"ycsb-a.total.service.at-least"}; !slices.Equal(names, want) {
		t.Errorf("%v; want %v", names, want)
	}
	if err := WriteHLog(&text, r); err != nil {
		t.Fatal(err)
	}
	files := []ResultFile{{"a.jsonl", r}}
	if err := WriteBenchfmt(&text, files); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"\n#[At least: 4321 of 5321 values are lower bounds]\n", "\nTag=ycsb-a.update.response.at-least,",
		"\nTag=ycsb-a.update.service,", " 987.6 ops/s 0 errors/op 0.812", " 1.500159e+09 p99-at-least-ns ",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("no %q in\n%s", want, &text)
		}
	}
	text.Reset()
	if err := WriteCSV(&text, files); err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(&text).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for column, want := range map[string]string{"operation": "update", "count": "1000", "unanswered": "4321",
		"service_p99_us": "99007", "service_p99_at_least": "false", "service_censored": "0",
		"response_p99_us": "1500159", "response_p99_at_least": "true", "response_censored": "4321"} {
		if got := rows[2][slices.Index(csvColumns, column)]; got != want {
			t.Errorf("column %s: %q, want %q", column, got, want)
		}
	}
	if err := g.check(); err != nil {
		t.Error(err)
	}
	g.Ops[1].Response.Censored++
	if err := g.check(); err == nil || !strings.Contains(err.Error(), "4321 censored values, 4322 counted") {
		t.Errorf("a wrong count of lower bounds: %v", err)
	}
}
