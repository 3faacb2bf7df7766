package results

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sample makes the lines of a result file with known latencies: 1 to 1000 ms for reads, ten times faster for updates.
func sample(open bool) (Header, []Interval, Summary) {
	h := Header{
		Format: Format, Started: time.Date(2026, 5, 4, 3, 2, 1, 0, time.UTC), Command: []string{"neokv", "bench"},
		Profile:  "default",
		Settings: map[string]string{"engine.wal_sync": "always"},
		Groups: []ClientGroup{{
			Name: "ycsb-a", Workload: "ycsb-a", Keys: "scrambled_zipfian(100000, 0.99)", Clients: 50, Pipeline: 1,
			Records: 100_000, ValueBytes: "1000",
		}},
		Duration: 30 * time.Second, Warmup: 5 * time.Second, Seed: 7,
		Machine: Machine{CPU: "a CPU", Cores: 2, GOMAXPROCS: 4, MemoryBytes: 8 << 30, OS: "an OS", Kernel: "1.2",
			Arch: "amd64"},
		Cluster: ClusterShape{
			InProcess: true, Stores: 3, Replicas: 3, Regions: 8, Sync: "always", Transport: "memory",
			Data: DataFolder{Path: "/data", FileSystem: "ext4", SyncP50: 874 * time.Microsecond},
		},
		Target: Target{Addrs: []string{"127.0.0.1:7001"}, Nodes: []string{"127.0.0.1:7001"}, Cluster: true,
			Version: "7.0.0"},
	}
	var reads, updates, readsDue, updatesDue Distribution
	for i := range 1000 {
		reads.Answer(time.Duration(i+1) * time.Millisecond)
		updates.Answer(time.Duration(i+1) * 100 * time.Microsecond)
	}
	for range 11 {
		reads.Censor(2 * time.Millisecond) // answered with an error
	}
	reads.Censor(3 * time.Second) // timed out
	reads.Censor(3 * time.Second)
	readsDue.Merge(reads)
	updatesDue.Merge(reads)
	updatesDue.Censored = nil
	for range 4321 {
		updatesDue.Censor(1500 * time.Millisecond) // dropped
	}
	latency := func(parts ...Distribution) Latency {
		var sum Distribution
		for _, d := range parts {
			sum.Merge(d)
		}
		return sum.Latency(len(parts) == 1)
	}
	g := GroupSummary{
		GroupStats: GroupStats{
			Name:      "ycsb-a",
			Ledger:    Ledger{Offered: 2013, OK: 2000, Errors: 11, Unknown: 2},
			Incidents: Incidents{Kinds: map[string]int64{"timeout": 2, "CLUSTERDOWN": 11}, Moved: 1234},
			Ops: []OpStats{
				{Name: "read", Count: 1000, Errors: 11, Unanswered: 2, Misses: 5, Reads: true, PerSecond: 12345.4,
					Service: latency(reads)},
				{Name: "update", Count: 1000, PerSecond: 987.6, Service: latency(updates)},
			},
			Total: OpStats{Name: "total", Count: 2000, Errors: 11, Unanswered: 2, Misses: 5, PerSecond: 13333,
				Service: latency(reads, updates)},
		},
		Inserted: &Inserted{Seconds: 2.5, Insert: OpStats{Name: "insert", Count: 100_000, PerSecond: 40_000}},
	}
	if open {
		h.Groups[0].Rate = "14000"
		r, u, all := latency(readsDue), latency(updatesDue), latency(readsDue, updatesDue)
		g.Ops[0].Response, g.Ops[1].Response, g.Total.Response = &r, &u, &all
		g.Ops[1].Unanswered += 4321
		g.Total.Unanswered += 4321
		g.Ledger.Dropped = 4321
		g.Ledger.Offered += 4321
	}
	s := Summary{
		Seconds: 30.0004, Groups: []GroupSummary{g},
		FirstErrors: map[string]string{"CLUSTERDOWN": "CLUSTERDOWN Hash slot not served"},
	}
	intervals := []Interval{
		{Phase: PhaseLoad, At: h.Started, Seconds: 1, Groups: []GroupStats{{
			Name: "ycsb-a", Ledger: Ledger{Offered: 3, OK: 3}, Ops: []OpStats{{Name: "insert", Count: 3}},
			Total: OpStats{Name: "total", Count: 3},
		}}},
		{Phase: PhaseRun, At: h.Started.Add(time.Second), Since: 1, Seconds: 1, Work: Work{"sync_calls": 3},
			Generator: GeneratorLoad{Cores: 0.5, Busy: 0.75}, Events: []Event{{At: 1, Do: "FLUSHALL"}},
			Groups: []GroupStats{{
				Name: "ycsb-a", Ledger: Ledger{Offered: 5, OK: 3, InFlight: 2, Behind: 2},
				Incidents: Incidents{Asked: 1},
				Ops: []OpStats{{Name: "read", Count: 1, Service: latency(reads, Distribution{})},
					{Name: "update", Count: 2}},
				Total: OpStats{Name: "total", Count: 3},
			}}},
	}
	return h, intervals, s
}

func write(t *testing.T, w *RecordWriter, h Header, ivs []Interval, s Summary) {
	t.Helper()
	if err := w.Begin(h); err != nil {
		t.Fatal(err)
	}
	for _, iv := range ivs {
		if err := w.Interval(iv); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.End(s); err != nil {
		t.Fatal(err)
	}
}

func TestRoundTrip(t *testing.T) {
	h, ivs, s := sample(true)
	s.Curve = &Curve{SLO: "p99<5ms", Lags: 3, Breaks: 2, Best: 1, Measured: 1, Confirmed: true,
		Rows: []Step{{Rate: 3, Seconds: 1, GroupStats: ivs[1].Groups[0], Why: "late"}}}
	path := filepath.Join(t.TempDir(), DefaultPath("ycsb-a", h.Started))
	if !strings.HasSuffix(path, "neokv-ycsb-a-20260504T030201Z.jsonl") {
		t.Errorf("default path %s", path)
	}
	w, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	write(t, w, h, ivs, s)
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := Read(f)
	if err != nil {
		t.Fatal(err)
	}
	if want := (&Result{Header: h, Intervals: ivs, Summary: &s}); !reflect.DeepEqual(got, want) {
		t.Errorf("read back\n%+v\nwant\n%+v", got, want)
	}
	d, err := got.Summary.Groups[0].Ops[0].Service.Distribution()
	if answered, censored := d.Count(); err != nil || answered != 1000 || censored != 13 ||
		d.Answered.ValueAtPercentile(50) < 500_000 || d.Answered.ValueAtPercentile(50) > 500_500 {
		t.Errorf("distribution: %v, %v", d, err)
	}
	if _, err := Create(filepath.Join(t.TempDir(), "no", "such", "folder")); err == nil {
		t.Error("made a file in a folder that does not exist")
	}
}

func TestReadCutOff(t *testing.T) {
	h, ivs, s := sample(false)
	var buf bytes.Buffer
	write(t, NewWriter(&buf), h, ivs, s)
	whole := buf.String()
	lines := strings.SplitAfter(whole, "\n")
	head := len(lines[0])
	// A run that was killed leaves some prefix of the record.
	for cut := head; cut < len(whole); cut += 97 {
		got, err := Read(strings.NewReader(whole[:cut]))
		if err != nil {
			t.Fatalf("cut to %d bytes: %v", cut, err)
		}
		if got.Summary == nil && len(got.Warnings) == 0 {
			t.Fatalf("cut to %d bytes: no warning", cut)
		}
	}
	got, err := Read(strings.NewReader(lines[0] + lines[1] + lines[2][:20]))
	if err != nil || len(got.Intervals) != 1 || len(got.Warnings) != 2 ||
		!strings.Contains(got.Warnings[0], "line 3 is cut off") {
		t.Errorf("%+v, %v", got, err)
	}
	// Without the last line's end it is still whole.
	if got, err := Read(strings.NewReader(strings.TrimSuffix(whole, "\n"))); err != nil || got.Summary == nil ||
		len(got.Warnings) != 0 {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestCurveLines(t *testing.T) {
	response := Latency{P50: Quantile{100, false}, P95: Quantile{200, false}, P99: Quantile{6000, false},
		P999: Quantile{7000, true}, Max: Quantile{8000, true}}
	c := Curve{SLO: "p99<5ms", Lags: 4000, Breaks: 3000, Best: 2500, Confirmed: true, Rows: []Step{
		{Rate: 5000, GroupStats: GroupStats{Total: OpStats{PerSecond: 5000, Service: response}}, Why: "closed loop"},
		{Rate: 1000, GroupStats: GroupStats{Total: OpStats{PerSecond: 999.6, Errors: 2, Response: &response}}},
		{Rate: 3000, GroupStats: GroupStats{Total: OpStats{PerSecond: 3000}}, Why: "6.00 ms, want p99<5ms"},
	}}
	c.Rows[2].Total.Unanswered = 7
	if got := strings.Fields(c.lines()[3]); got[3] != "7" {
		t.Errorf("a row where 7 operations have no answer: %q", got)
	}
	c.Rows[2].Total.Unanswered = 0
	want := `rate   ops/s  errors     p50     p95      p99       p99.9         max
5,000  5,000       0  100 us  200 us  6.00 ms  >= 7.00 ms  >= 8.00 ms  closed loop
1,000  1,000       2  100 us  200 us  6.00 ms  >= 7.00 ms  >= 8.00 ms
3,000  3,000       0       -       -        -           -           -  6.00 ms, want p99<5ms

curve: lags behind its schedule from 4,000/s, breaks p99<5ms from 3,000/s
highest rate that holds p99<5ms: 2,500/s, confirmed by the run`
	if got := strings.Join(c.lines(), "\n"); got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
}

func TestWorkAdds(t *testing.T) {
	w := Work{"sync_calls": 3, "process_goroutines": 10}
	w.Add(Work{"sync_calls": 4, "wal_bytes": 5, "process_goroutines": 7})
	if want := (Work{"sync_calls": 7, "wal_bytes": 5, "process_goroutines": 7}); !reflect.DeepEqual(w, want) {
		t.Errorf("%v; want %v", w, want)
	}
	for v, want := range map[float64]string{0: "0", 0.00042: "4.2e-04", 0.0123: "0.0123", 1.2345: "1.23",
		12.345: "12.3",
		99.96:  "100", 1234.5: "1,235"} {
		if got := figure(v); got != want {
			t.Errorf("figure(%g) = %s; want %s", v, got, want)
		}
	}
}

func TestReadRefuses(t *testing.T) {
	h, ivs, s := sample(false)
	var buf bytes.Buffer
	write(t, NewWriter(&buf), h, ivs, s)
	lines := strings.SplitAfter(buf.String(), "\n")
	lines = lines[:len(lines)-1]
	format := fmt.Sprintf(`"format":%d`, Format)
	newer := strings.Replace(lines[0], format, `"format":99,"groups":"of another type"`, 1)
	wrongCount := s
	wrongCount.Groups = slices.Clone(s.Groups)
	g := &wrongCount.Groups[0]
	g.Ops = slices.Clone(g.Ops)
	g.Ops[0].Count++
	g.Total.Count++
	b, _ := json.Marshal(line{Summary: &wrongCount})
	for name, c := range map[string]struct{ in, want string }{
		"nothing":        {"", "empty record"},
		"something else": {"hello\n", "not the header"},
		"no header":      {lines[1], "not the header"},
		"a newer format": {newer, fmt.Sprintf("line 1: result format 99, this program reads %d", Format)},
		"an older format": {strings.Replace(lines[0], format, `"format":3`, 1),
			fmt.Sprintf("line 1: result format 3, this program reads %d", Format)},
		"no format":       {strings.Replace(lines[0], format, `"format":0`, 1), "result format 0"},
		"a broken line":   {lines[0] + "{\n" + lines[2], "line 2: "},
		"an unknown line": {lines[0] + "{}\n", "line 2: neither"},
		"an unknown phase": {lines[0] + strings.Replace(lines[1], `"phase":"load"`, `"phase":"lod"`, 1),
			`line 2: phase "lod"`},
		"a wrong sum": {lines[0] + strings.Replace(lines[1], `"count":3`, `"count":4`, 1),
			"line 2: total count 3, 0 errors, 0 unanswered; operations add up to 4, 0, 0"},
		"a wrong ledger": {lines[0] + lines[1] + strings.Replace(lines[2], `"in_flight":2`, `"in_flight":3`, 1),
			"line 3: group ycsb-a: the ledger is off by -1 operations"},
		"a wrong ledger of all": {lines[0] + strings.Replace(lines[3], `"offered":2013`, `"offered":2014`, 1),
			"line 2: group ycsb-a: the ledger is off by 1 operations"},
		"a wrong histogram": {lines[0] + string(b) + "\n",
			"line 2: operation read: histogram of 1000 values, count 1001"},
		"more than a summary": {lines[0] + lines[3] + lines[1], "line 3: a line after the summary"},
	} {
		if _, err := Read(strings.NewReader(c.in)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

func TestTable(t *testing.T) {
	closed, _, cs := sample(false)
	open, _, ops := sample(true)
	memory, _, ms := sample(false)
	memory.Cluster.InMemory = true
	ms.FirstErrors, ms.Interrupted = nil, true
	ms.Groups[0].Incidents = Incidents{}
	foreign, _, _ := sample(false)
	foreign.Cluster, foreign.Groups[0].Workload, foreign.Groups[0].Clients = ClusterShape{}, "get", 1
	foreign.Groups = append(foreign.Groups,
		ClientGroup{Name: "info", Workload: "info", Clients: 1, Pipeline: 1, Rate: "1"})
	fs := Summary{Seconds: 1, Failure: "target dead", Groups: []GroupSummary{
		{GroupStats: GroupStats{Name: "get", Ops: []OpStats{{Name: "get"}}, Total: OpStats{Name: "total"}}},
		{GroupStats: GroupStats{Name: "info", Ops: []OpStats{{Name: "info"}}, Total: OpStats{Name: "total"}}},
	}, Warnings: []string{"the generator was the bottleneck"}, Events: []Event{{At: 3, Do: "FLUSHALL", Error: "no"}},
		Generator: GeneratorLoad{Cores: 1.5, Busy: 0.98, Late: &Latency{P50: Quantile{US: 10},
			P99: Quantile{US: 1000}, Max: Quantile{US: 2000}}}}
	cs.Work = Work{
		"sync_calls": 400, "raft_entries": 500, "raft_commands": 1000, "wal_bytes": 2_469_000,
		"memtable_flush_bytes": 33, "compaction_bytes": 1,
		"block_cache_hits": 900, "block_cache_misses": 100, "bloom_probes": 12_345, "bloom_hits": 12_000,
		"process_cpu_us": 84_000,
		"row_cache_hits": 875, "row_cache_misses": 125, "process_allocs": 23_000, "write_stalls": 1,
		"write_stall_us": 1500, "leader_changes": 2,
	}
	cs.Groups[0].Verified = &Verified{Seconds: 1.25, Checked: 100_000, Complete: true}
	ops.Groups[0].Verified = &Verified{Seconds: 1.25, Checked: 100_000, Lost: 2,
		Examples: []string{"key:1: absent", "key:2: absent"}, Complete: true, Unjudged: 1, Ignored: 3}
	ms.Groups[0].Verified = &Verified{Seconds: 1.25, Checked: 100}
	fs.Work, fs.Groups[0].Total.Count = Work{"process_cpu_us": 12_000_000}, 1_000_000
	var got bytes.Buffer
	for _, c := range []struct {
		h Header
		s Summary
	}{{closed, cs}, {open, ops}, {memory, ms}, {foreign, fs}} {
		if err := PrintTable(&got, c.h, c.s); err != nil {
			t.Fatal(err)
		}
		got.WriteString("----\n")
	}
	wantGolden(t, "tables.txt", got.Bytes())
}

func TestNotDurable(t *testing.T) {
	disk := ClusterShape{InProcess: true, Sync: "always", Data: DataFolder{FileSystem: "ext4"}}
	ram, none, memory := disk, disk, disk
	ram.Data.FileSystem = "tmpfs"
	none.Sync = "none"
	memory.InMemory = true
	for _, c := range []struct {
		c    ClusterShape
		want string
	}{{disk, ""}, {ram, "tmpfs is a RAM disk"}, {none, "sync none"}, {memory, "in memory"}, {ClusterShape{}, ""}} {
		h := Header{Cluster: c.c}
		if got := h.NotDurable(); got != c.want {
			t.Errorf("%+v: %q, want %q", c.c, got, c.want)
		}
		var b bytes.Buffer
		if err := PrintTable(&b, h, Summary{}); err != nil {
			t.Fatal(err)
		}
		if first, _, _ := strings.Cut(b.String(), "\n"); strings.Contains(first, "not durable") != (c.want != "") {
			t.Errorf("first line %q", first)
		}
	}
}

func TestUnits(t *testing.T) {
	for us, want := range map[int64]string{
		0: "0 us", 999: "999 us", 1000: "1.00 ms", 1234: "1.23 ms", 9994: "9.99 ms", 9996: "10.0 ms", 12345: "12.3 ms",
		99960:   "100 ms",
		999_499: "999 ms", 1_000_000: "1.00 s", 60_000_000: "60.0 s",
	} {
		if got := Micros(us); got != want {
			t.Errorf("Micros(%d) = %q, want %q", us, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", -1234567: "-1,234,567", 100: "100",
		-100: "-100"} {
		if got := Count(n); got != want {
			t.Errorf("Count(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{1: "1 B", 1000: "1000 B", 1024: "1 KiB", 3 << 20: "3 MiB", 1<<20 +
		1: "1048577 B"} {
		if got := Bytes(n); got != want {
			t.Errorf("Bytes(%d) = %q, want %q", n, got, want)
		}
	}
}

// record never makes a value smaller, nor loses one.
func TestRecord(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for _, d := range []time.Duration{-time.Second, 0, 1, 1001, time.Microsecond, time.Hour,
		time.Duration(rng.Int64N(int64(time.Minute)))} {
		var h *hdrhistogram.Histogram
		record(&h, time.Millisecond, 1)
		h.Reset()
		record(&h, d, 1)
		want := max(d, time.Microsecond)
		got := time.Duration(h.Max()) * time.Microsecond
		if h.TotalCount() != 1 || got < want || got > want+want/500+time.Microsecond {
			t.Errorf("seed %d: %s recorded as %s", seed, d, got)
		}
	}
}

func TestHeader(t *testing.T) {
	h := NewHeader()
	m := h.Machine
	if h.Format != Format || h.Started.IsZero() || h.Command != nil || h.Build.Go == "" || m.Cores < 1 ||
		m.GCPercent < 1 || m.MemoryBytes < 1<<20 || m.OS == "" || m.Kernel == "" {
		t.Errorf("header %+v", h)
	}
	d, err := ProbeFolder(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if d.FileSystem == "" || d.SyncP50 <= 0 {
		t.Errorf("data folder %+v", d)
	}
	left, err := os.ReadDir(d.Path)
	if err != nil || len(left) > 0 {
		t.Errorf("the probe left %v, %v", left, err)
	}
	if _, err := ProbeFolder(filepath.Join(t.TempDir(), "missing")); err == nil {
		t.Error("probed a folder that is missing")
	}
	t.Logf("%+v %+v", h, d)
}

// FuzzRead reads any bytes as a record: it takes them, with counts that add up, or says what is wrong. What it takes
// can be converted.
func FuzzRead(f *testing.F) {
	present, err := os.ReadFile("testdata/result.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(present)
	f.Add(present[:len(present)*2/3])
	f.Add([]byte(`{"header":{"format":4}}` + "\n" + `{"interval":{"phase":"run","groups":[{"ops":[{"name":"x",` +
		`"count":1}],"total":{"count":1},"ledger":{"offered":1,"ok":1}}]}}`))
	f.Add([]byte(`{"header":{"format":4},"Header":null}`))
	f.Add([]byte(`{"header":{"format":4}}` + "\n" + `{"summary":{"groups":[{"ops":[{"name":"x","count":1,"service":` +
		`{"hdr":"HISTFAAAAB542pNpmSzMwMDAyAABTFCaEUoz2X+AiAgAAQAAAA=="}}],"total":{"count":1},` +
		`"ledger":{"offered":1,"ok":1}}]}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		res, err := Read(bytes.NewReader(text))
		if (res == nil) == (err == nil) {
			t.Fatalf("%v, %v", res, err)
		}
		if err != nil {
			return
		}
		files := []ResultFile{{"x", res}}
		for _, d := range res.Histograms() {
			err = errors.Join(err, d.WriteHGRM(io.Discard))
		}
		if err := errors.Join(err, WriteHLog(io.Discard, res), WriteBenchfmt(io.Discard, files),
			WriteCSV(io.Discard, files), PrintTable(io.Discard, res.Header, res.Measured())); err != nil {
			t.Fatal(err)
		}
	})
}

// endless is a line without an end.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) {
	for i := range b {
		b[i] = ' '
	}
	if e.read += len(b); e.read > 2*maxLine {
		return 0, fmt.Errorf("read %d bytes of a line", e.read)
	}
	return len(b), nil
}

func TestReadEndlessLine(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	if _, err := Read(&endless{}); err == nil || err.Error() != fmt.Sprintf("line 1: more than %d bytes", maxLine) {
		t.Errorf("%v; want the line refused at its limit", err)
	}
}

func TestSparkline(t *testing.T) {
	for _, c := range []struct {
		values []float64
		width  int
		want   string
	}{
		{nil, 5, ""}, {[]float64{0, 0}, 5, "▁▁"}, {[]float64{7}, 5, "█"},
		{[]float64{0, 1, 2, 3, 4, 5, 6, 7}, 8, "▁▂▃▄▅▆▇█"}, {[]float64{100, 1, 2}, 2, "▅█"}, {[]float64{1}, 0, ""},
	} {
		if got := Sparkline(c.values, c.width); got != c.want {
			t.Errorf("Sparkline(%v, %d) = %q; want %q", c.values, c.width, got, c.want)
		}
	}
}

// TestImpaired says what makes a target slower than its settings say, and nothing of one that is well.
func TestImpaired(t *testing.T) {
	if got := (Work{"sync_calls": 7, "alone_syncs": 0, "regions_without_lease": 0}).Impaired(); got != nil {
		t.Errorf("a target that is well: %q", got)
	}
	got := strings.Join(Work{"alone_syncs": 1200, "file_retries": 3, "regions_without_lease": 2}.Impaired(), "\n")
	for _, want := range []string{"1,200 syncs of a log", "tried 3 times again",
		"2 regions were read without a lease"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q lacks %q", got, want)
		}
	}
}
