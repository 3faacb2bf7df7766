package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"neokv.dev/results"
)

// resultFile is a file of JSON Lines: a header, then a line per run.
type resultFile struct {
	header
	runs []measurement
	file *os.File
}

type header struct {
	Kind    string             `json:"kind"` // kindPeers or kindCurves
	Started time.Time          `json:"started"`
	Command []string           `json:"command"`
	Commit  string             `json:"commit"`
	Rounds  int                `json:"rounds"`
	Machine results.Machine    `json:"machine"`
	Disk    results.DataFolder `json:"disk"`
}

const (
	kindPeers  = "peers"
	kindCurves = "curves"
)

// newHeader describes what the program measures and where. Result files are committed, so the header names no folder of
// the machine.
func newHeader(ctx context.Context, kind, dir string, rounds int) (h header, err error) {
	h = header{
		Kind: kind, Started: time.Now().UTC(), Command: withoutFolders(os.Args), Commit: commit(ctx), Rounds: rounds,
		Machine: results.NewHeader().Machine,
	}
	h.Machine.GOMAXPROCS, h.Machine.GCPercent = 0, 0 // those of this program, which is not measured
	h.Disk, err = results.ProbeFolder(dir)
	h.Disk.Path = ""
	return h, err
}

// withoutFolders cuts each path in a command line down to its last part.
func withoutFolders(args []string) (out []string) {
	for _, arg := range args {
		if slash := strings.LastIndexByte(arg, '/'); slash >= 0 {
			arg = arg[:strings.LastIndexByte(arg[:slash], '=')+1] + arg[slash+1:]
		}
		out = append(out, arg)
	}
	return out
}

// String returns the machine, the disk, the commit and the rounds.
func (h header) String() string {
	m, d := h.Machine, h.Disk
	return fmt.Sprintf("%s, %d cores, %.1f GB, %s, Linux %s; %s, fdatasync p50 %v; %s, commit %s, %d rounds, "+
		"interleaved",
		m.CPU, m.Cores, float64(m.MemoryBytes)/1e9, m.OS, m.Kernel, d.FileSystem, d.SyncP50.Round(time.Microsecond),
		h.Started.Format(time.DateOnly), h.Commit, h.Rounds)
}

// enoughRounds is the number of rounds from which on median and range mean something.
const enoughRounds = 5

// warning returns a sentence if there are too few rounds, else nothing.
func (h header) warning() string {
	if h.Rounds >= enoughRounds {
		return ""
	}
	return fmt.Sprintf("\nFewer than %d rounds: the ranges are too narrow to draw conclusions.\n", enoughRounds)
}

// measurement is the result of one test of one target in one round.
type measurement struct {
	Round  int     `json:"round"`
	Target string  `json:"target"`
	Test   string  `json:"test"`
	Value  float64 `json:"value"` // in the test's unit
	P50    float64 `json:"p50_ms,omitempty"`
	P95    float64 `json:"p95_ms,omitempty"`
	P99    float64 `json:"p99_ms,omitempty"`
	CPU    float64 `json:"cpu_us,omitempty"` // of the target, in microseconds per operation
	Misses int64   `json:"misses"`           // GETs of absent keys; -1 if the target does not count them
	Errors int64   `json:"errors"`           // error replies
	Load   float64 `json:"load_average"`
	// Failure is why there are no figures.
	Failure string `json:"failure,omitempty"`
}

// valid reports whether the run did what it should. The figures of other runs are not used.
func (r measurement) valid() bool { return r.Misses <= 0 && r.Errors == 0 && r.Failure == "" }

func (r measurement) String() string {
	s := fmt.Sprintf("round %d  %-14s %-14s %8.4g %s", r.Round, r.Target, r.Test, r.Value, find(r.Test).unit)
	if r.P50 > 0 {
		s += fmt.Sprintf("  p50 %.3g p99 %.3g ms", r.P50, r.P99)
	}
	if r.CPU > 0 {
		s += fmt.Sprintf("  CPU %.3g us", r.CPU)
	}
	s += fmt.Sprintf("  load %.1f", r.Load)
	if r.Misses < 0 {
		s += "  misses not counted"
	}
	if !r.valid() {
		s += fmt.Sprintf("  INVALID: %d misses, %d errors %s", r.Misses, r.Errors, r.Failure)
	}
	return s
}

func find(name string) test {
	return tests[slices.IndexFunc(tests, func(t test) bool { return t.name == name })]
}

func createRecord(path string, h header) (*resultFile, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &resultFile{header: h, file: f}, json.NewEncoder(f).Encode(h)
}

func (rec *resultFile) add(r measurement) error {
	rec.runs = append(rec.runs, r)
	return json.NewEncoder(rec.file).Encode(r)
}

func (rec *resultFile) close() error { return rec.file.Close() }

// report prints the tables of a file of raw figures, of either kind.
func report(path string, to io.Writer) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	d := json.NewDecoder(bufio.NewReader(f))
	var h header
	if err := d.Decode(&h); err != nil {
		return fmt.Errorf("%s: header: %w", path, err)
	}
	var tables interface{ print(io.Writer) error }
	switch h.Kind {
	case kindPeers:
		tables, err = readRecord(h, d)
	case kindCurves:
		tables, err = readSamples(h, d)
	default:
		err = fmt.Errorf("kind %q: want %s or %s", h.Kind, kindPeers, kindCurves)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return tables.print(to)
}

// readRecord reads the lines after the header.
func readRecord(h header, d *json.Decoder) (*resultFile, error) {
	rec := &resultFile{header: h}
	for {
		var r measurement
		switch err := d.Decode(&r); {
		case err == io.EOF:
			return rec, nil
		case err == nil && !slices.Contains(names(tests), r.Test):
			return nil, fmt.Errorf("run %d: test %q: not one of this program's", len(rec.runs)+1, r.Test)
		case err != nil:
			return nil, fmt.Errorf("run %d: %w", len(rec.runs)+1, err)
		}
		rec.runs = append(rec.runs, r)
	}
}

// requirement is a bound that a figure of the target neokv must reach, and one that it aims at.
type requirement struct {
	test      string
	peer      string // the figure is divided by this target's of the same round; empty for none
	by        string // or by that of this other test of neokv
	tail      bool   // the figure is p99 / p50
	must, aim float64
	most      bool // the bounds are upper bounds
}

var requirements = []requirement{
	{test: "set-1", peer: "etcd", must: 1.2, aim: 2},
	{test: "set-50-1", peer: "etcd", must: 4},
	{test: "set-50-1", peer: "redis-cluster", must: 0.8, aim: 1.3},
	{test: "set-50-16", peer: "redis-cluster", must: 0.65, aim: 1.1},
	{test: "get-50-1", peer: "redcon", must: 0.8, aim: 0.95},
	{test: "get-50-16", peer: "redcon", must: 0.33, aim: 0.6},
	{test: "boot", must: 0.8, aim: 0.2, most: true},
	{test: "idle", must: 5, aim: 2, most: true},
	{test: "memory", must: 150, aim: 80, most: true},
	{test: "set-50-16", tail: true, must: 4, aim: 3, most: true},
	{test: "lrange-100-50-16", peer: "redis", must: 0.5},
	{test: "hgetall-1000-50-1", peer: "redis", must: 1. / 3},
	{test: "zrange-1000-50-1", peer: "redis", must: 1. / 3},
	{test: "mset-10-50-16", must: 12},
	{test: "incr-50-16", by: "set-50-16", must: 0.6},
	{test: "lpush-50-16", by: "set-50-16", must: 0.6},
	{test: "rpush-50-16", by: "set-50-16", must: 0.6},
	{test: "hset-50-16", by: "set-50-16", must: 0.45},
	{test: "sadd-50-16", by: "set-50-16", must: 0.45},
	{test: "zadd-50-16", by: "set-50-16", must: 0.35},
	{test: "spop-50-16", by: "set-50-16", must: 0.35},
	{test: "lpop-50-16", by: "set-50-16", must: 0.35},
	{test: "zpopmin-50-16", by: "set-50-16", must: 0.35},
}

func (q requirement) String() string {
	switch {
	case q.peer != "":
		return q.test + ", neokv : " + q.peer
	case q.by != "":
		return q.test + " : " + q.by
	case q.tail:
		return q.test + ", p99 / p50"
	}
	return find(q.test).withUnit()
}

// figures returns the values of the figure, one per round, sorted.
func (q requirement) figures(rec *resultFile) spread {
	of := rec.values(q.test, "neokv", value)
	switch {
	case q.peer != "":
		return ratios(of, rec.values(q.test, q.peer, value))
	case q.by != "":
		return ratios(of, rec.values(q.by, "neokv", value))
	case q.tail:
		return sorted(rec.values(q.test, "neokv", tail))
	}
	return sorted(of)
}

// verdict compares a median with a bound; a bound of 0 is none.
func (q requirement) verdict(median, bound float64) string {
	switch sign := map[bool]string{false: ">=", true: "<="}[q.most]; {
	case bound == 0:
		return none
	case median >= bound && !q.most || median <= bound && q.most:
		return fmt.Sprintf("%s %.3g: met", sign, bound)
	default:
		return fmt.Sprintf("%s %.3g: not met", sign, bound)
	}
}

// none is printed where nothing was measured.
const none = "-"

// spread is a sorted sample.
type spread []float64

func (s spread) median() float64 {
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

// String is the median and the range, with three digits.
func (s spread) String() string {
	switch len(s) {
	case 0:
		return none
	case 1:
		return digits(s[0])
	}
	return fmt.Sprintf("%s (%s-%s)", digits(s.median()), digits(s[0]), digits(s[len(s)-1]))
}

// digits prints a number with three digits, more before the point.
func digits(v float64) string {
	if v >= 1000 {
		return results.Count(int64(v + 0.5))
	}
	return fmt.Sprintf("%.3g", v)
}

// beside returns String, with a mark if the bound lies inside the range, so that the rounds do not agree on which side
// they are.
func (s spread) beside(bound float64) string {
	if len(s) > 1 && s[0] <= bound && bound <= s[len(s)-1] {
		return s.String() + " ~"
	}
	return s.String()
}

// values returns a figure of the valid runs of a test, by round.
func (rec *resultFile) values(test, target string, figure func(measurement) float64) map[int]float64 {
	out := map[int]float64{}
	for _, r := range rec.runs {
		if r.Test == test && r.Target == target && r.valid() {
			out[r.Round] = figure(r)
		}
	}
	return out
}

func sorted(values map[int]float64) (s spread) {
	for _, v := range values {
		s = append(s, v)
	}
	slices.Sort(s)
	return s
}

// ratios divides figures of the same round, since anything that slows down a whole round slows down both.
func ratios(of, by map[int]float64) (s spread) {
	for round, v := range of {
		if d := by[round]; d > 0 {
			s = append(s, v/d)
		}
	}
	slices.Sort(s)
	return s
}

func value(r measurement) float64 { return r.Value }

func p50(r measurement) float64 { return r.P50 }

func p99(r measurement) float64 { return r.P99 }

func cpu(r measurement) float64 { return r.CPU }

func tail(r measurement) float64 { return r.P99 / r.P50 }

// columns lists the targets that were measured, in the order of targets. NeoKVs with other numbers of regions follow
// neokv.
func (rec *resultFile) columns() (out []string) {
	for _, t := range targets {
		for _, r := range rec.runs {
			if (r.Target == t.name || strings.HasPrefix(r.Target, t.name+"/")) && !slices.Contains(out, r.Target) {
				out = append(out, r.Target)
			}
		}
	}
	return out
}

// section is a part of the report: tests whose figures may be compared.
type section struct {
	title, about string
	has          func(test) bool
}

var sections = []section{
	{"Keys of all slots", "neokv bench sends them to all regions of NeoKV and to all masters of Redis Cluster.",
		func(t test) bool { return t.workload != "" }},
	{"Keys of one slot per node", "redis-benchmark --cluster sends them to three of NeoKV's eight regions, and " +
		"to all masters\nof Redis Cluster.",
		func(t test) bool { return t.workload == "" && t.unit == unitRate }},
	{"Without load", "", func(t test) bool { return t.unit != unitRate }},
}

// cheaper is a warning for readers who compare NeoKV with the others.
const cheaper = `What makes NeoKV cheaper than a cluster of processes: its three stores are one process, their Raft
messages stay in memory, and one sync makes the logs of all three durable. The target neokv-apart sends the messages
over TCP and syncs each store's log by itself; it is one process, too.`

// print writes the tables, as Markdown.
func (rec *resultFile) print(to io.Writer) error {
	w := bufio.NewWriter(to)
	var loads spread
	for _, r := range rec.runs {
		loads = append(loads, r.Load)
	}
	slices.Sort(loads)
	fmt.Fprintf(w, "%v; load average before the runs %v.\n%s\n%s\n\n", rec.header, loads, rec.warning(), cheaper)
	fmt.Fprintln(w, "Figures are medians of the rounds, with their range. Ratios are of two runs of one round;")
	fmt.Fprintln(w, "`~` stands where they lie on both sides of 1.")
	columns := rec.columns()
	for _, s := range sections {
		if !slices.ContainsFunc(rec.runs, func(r measurement) bool { return s.has(find(r.Test)) }) {
			continue
		}
		fmt.Fprintf(w, "\n## %s\n", s.title)
		if s.about != "" {
			fmt.Fprintf(w, "\n%s\n", s.about)
		}
		if !s.has(find("idle")) {
			rec.rates(w, s, columns)
			continue
		}
		rec.table(w, s, "", columns, test.withUnit, func(t test, target string) string {
			return sorted(rec.values(t.name, target, value)).String()
		})
	}
	rows := [][]string{{"figure", "median (range)", "must", "aim"}}
	for _, q := range requirements {
		if s := q.figures(rec); len(s) > 0 {
			rows = append(rows, []string{q.String(), s.String(), q.verdict(s.median(), q.must),
				q.verdict(s.median(), q.aim)})
		}
	}
	if len(rows) > 1 {
		fmt.Fprintf(w, "\n## Requirements\n\n")
		markdown(w, rows)
	}
	rec.remarks(w)
	return w.Flush()
}

// rates writes the tables of the tests of a section that send a load.
func (rec *resultFile) rates(w io.Writer, s section, columns []string) {
	of := func(figure func(measurement) float64) func(test, string) string {
		return func(t test, target string) string {
			values := sorted(rec.values(t.name, target, figure))
			if len(values) == 0 || values[len(values)-1] == 0 {
				return none
			}
			return values.String()
		}
	}
	rec.table(w, s, unitRate, columns, test.key, of(value))
	for _, base := range []string{"neokv", "neokv-apart"} {
		if !slices.Contains(columns, base) {
			continue
		}
		others := slices.DeleteFunc(slices.Clone(columns), func(c string) bool { return c == base || c == "neokv" })
		rec.table(w, s, base+" : the others", others, test.key, func(t test, target string) string {
			return ratios(rec.values(t.name, base, value), rec.values(t.name, target, value)).beside(1)
		})
	}
	rec.table(w, s, "p50, ms", columns, test.key, of(p50))
	rec.table(w, s, "p99, ms", columns, test.key, of(p99))
	rec.table(w, s, "p99 / p50", columns, test.key, of(tail))
	rec.table(w, s, "CPU, us per operation", columns, test.key, of(cpu))
}

// table writes a row for each test of a section and a column for each target. Rows of nothing are left out.
func (rec *resultFile) table(w io.Writer, s section, title string, columns []string, label func(test) string,
	cell func(t test, target string) string) {
	rows := [][]string{append([]string{title}, columns...)}
	for _, t := range tests {
		if !s.has(t) {
			continue
		}
		row := []string{label(t)}
		for _, c := range columns {
			row = append(row, cell(t, c))
		}
		if slices.ContainsFunc(row[1:], func(s string) bool { return s != none }) {
			rows = append(rows, row)
		}
	}
	if len(rows) > 1 {
		fmt.Fprintln(w)
		markdown(w, rows)
	}
}

// markdown writes a table whose first row is the head. It pads the columns for readers of the plain text.
func markdown(w io.Writer, rows [][]string) {
	width := make([]int, len(rows[0]))
	for _, row := range rows {
		for i, cell := range row {
			width[i] = max(width[i], len(cell), 3)
		}
	}
	line := func(cells []string) {
		for i, cell := range cells {
			fmt.Fprintf(w, "| %-*s ", width[i], cell)
		}
		fmt.Fprintln(w, "|")
	}
	line(rows[0])
	for _, n := range width {
		fmt.Fprintf(w, "| %s ", strings.Repeat("-", n))
	}
	fmt.Fprintln(w, "|")
	for _, row := range rows[1:] {
		line(row)
	}
}

// remarks lists the runs that do not count.
func (rec *resultFile) remarks(w io.Writer) {
	invalid := 0
	var uncounted []string
	for _, r := range rec.runs {
		if r.Misses < 0 && !slices.Contains(uncounted, r.Target) {
			uncounted = append(uncounted, r.Target)
		}
		if !r.valid() {
			if invalid++; invalid == 1 {
				fmt.Fprintf(w, "\n## Left out\n\n")
			}
			fmt.Fprintf(w, "- %v\n", r)
		}
	}
	fmt.Fprintf(w, "\n%d of %d runs are invalid, for misses, error replies or a failure.\n", invalid, len(rec.runs))
	if uncounted != nil {
		fmt.Fprintf(w, "Targets without keyspace_misses in INFO, whose misses nobody counts: %s.\n",
			strings.Join(uncounted, ", "))
	}
}
