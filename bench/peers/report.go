package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"neokv.dev/results"
)

// A record is JSON Lines: a header, then a line per run.
type record struct {
	header
	runs []run
	file *os.File
}

type header struct {
	Started time.Time          `json:"started"`
	Command []string           `json:"command"`
	Commit  string             `json:"commit"`
	Rounds  int                `json:"rounds"`
	Machine results.Machine    `json:"machine"`
	Disk    results.DataFolder `json:"disk"`
}

// String says what was measured on.
func (h header) String() string {
	m, d := h.Machine, h.Disk
	return fmt.Sprintf("%s, %d cores, %.1f GB, %s, Linux %s; %s, fdatasync p50 %v", m.CPU, m.Cores, float64(m.MemoryBytes)/1e9, m.OS, m.Kernel,
		d.FileSystem, d.SyncP50.Round(time.Microsecond))
}

// run is one measurement.
type run struct {
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

// valid says whether the run did what it should: figures of others count nowhere.
func (r run) valid() bool { return r.Misses <= 0 && r.Errors == 0 && r.Failure == "" }

func (r run) String() string {
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

func createRecord(path string, h header) (*record, error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	return &record{header: h, file: f}, json.NewEncoder(f).Encode(h)
}

func (rec *record) add(r run) error {
	rec.runs = append(rec.runs, r)
	return json.NewEncoder(rec.file).Encode(r)
}

func (rec *record) close() error { return rec.file.Close() }

func readRecord(in io.Reader) (*record, error) {
	var rec record
	d := json.NewDecoder(bufio.NewReader(in))
	if err := d.Decode(&rec.header); err != nil {
		return nil, fmt.Errorf("header: %w", err)
	}
	for {
		var r run
		switch err := d.Decode(&r); {
		case err == io.EOF:
			return &rec, nil
		case err == nil && !slices.Contains(names(tests), r.Test):
			return nil, fmt.Errorf("run %d: test %q: not one of this program's", len(rec.runs)+1, r.Test)
		case err != nil:
			return nil, fmt.Errorf("run %d: %w", len(rec.runs)+1, err)
		}
		rec.runs = append(rec.runs, r)
	}
}

// requirement is what a figure of NeoKV, or its ratio to a peer's, must reach and aims at.
type requirement struct {
	test, peer string // no peer: the figure itself
	tail       bool   // p99 / p50 instead of the figure
	must, aim  float64
	most       bool // the bounds are upper ones
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
}

// verdict compares a median with the bounds.
func (q requirement) verdict(median float64) string {
	reached := func(bound float64) bool { return median >= bound && !q.most || median <= bound && q.most }
	sign := map[bool]string{false: ">=", true: "<="}[q.most]
	met := map[bool]string{false: "not met", true: "met"}
	s := fmt.Sprintf("must %s %.3g: %s", sign, q.must, met[reached(q.must)])
	if q.aim > 0 {
		s += fmt.Sprintf("\taim %s %g: %s", sign, q.aim, met[reached(q.aim)])
	}
	return s
}

// none stands where nothing was measured.
const none = "-"

// spread is a sorted sample.
type spread []float64

func (s spread) median() float64 {
	n := len(s)
	return (s[(n-1)/2] + s[n/2]) / 2
}

func (s spread) String() string {
	switch len(s) {
	case 0:
		return none
	case 1:
		return fmt.Sprintf("%.3g", s[0])
	}
	return fmt.Sprintf("%.3g (%.3g-%.3g)", s.median(), s[0], s[len(s)-1])
}

// values picks a figure out of the valid runs of a test, by round.
func (rec *record) values(test, target string, figure func(run) float64) map[int]float64 {
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

// ratios divides round by round: what slows a whole round down, slows both.
func ratios(of, by map[int]float64) (s spread) {
	for round, v := range of {
		if d := by[round]; d > 0 {
			s = append(s, v/d)
		}
	}
	slices.Sort(s)
	return s
}

func value(r run) float64 { return r.Value }

func p50(r run) float64 { return r.P50 }

func p99(r run) float64 { return r.P99 }

func cpu(r run) float64 { return r.CPU }

func tail(r run) float64 { return r.P99 / r.P50 }

// columns are the targets that were measured, in the order of the list; names that are made follow theirs.
func (rec *record) columns() (out []string) {
	for _, t := range targets {
		for _, r := range rec.runs {
			if (r.Target == t.name || strings.HasPrefix(r.Target, t.name+"/")) && !slices.Contains(out, r.Target) {
				out = append(out, r.Target)
			}
		}
	}
	return out
}

// print writes the tables.
func (rec *record) print(to io.Writer) error {
	w := tabwriter.NewWriter(to, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, rec.header)
	var loads spread
	for _, r := range rec.runs {
		loads = append(loads, r.Load)
	}
	slices.Sort(loads)
	fmt.Fprintf(w, "%s, commit %s, %d rounds; load average before the runs %v\n\n", rec.Started.Format(time.RFC3339), rec.Commit, rec.Rounds, loads)

	columns := rec.columns()
	rec.table(w, "median (range)", columns, test.withUnit, func(t test, target string) string {
		return sorted(rec.values(t.name, target, value)).String()
	})
	rec.table(w, "p50, p99 in ms, p99/p50", columns, test.key, func(t test, target string) string {
		s := sorted(rec.values(t.name, target, p50))
		if t.unit != unitRate || len(s) == 0 {
			return none
		}
		return fmt.Sprintf("%.3g, %.3g, %.2g", s.median(), sorted(rec.values(t.name, target, p99)).median(),
			sorted(rec.values(t.name, target, tail)).median())
	})
	rec.table(w, "CPU, us per operation", columns, test.key, func(t test, target string) string {
		s := sorted(rec.values(t.name, target, cpu))
		if len(s) == 0 || s[0] == 0 {
			return none
		}
		return s.String()
	})
	fmt.Fprintf(w, "neokv : peer, of each round\tmedian (range)\n")
	for _, t := range tests {
		for _, c := range columns {
			if c == "neokv" || t.unit != unitRate {
				continue
			}
			s := ratios(rec.values(t.name, "neokv", value), rec.values(t.name, c, value))
			if len(s) == 0 {
				continue
			}
			fmt.Fprintf(w, "%s : %s\t%v", t.name, c, s)
			for _, q := range requirements {
				if q.test == t.name && q.peer == c {
					fmt.Fprintf(w, "\t%s", q.verdict(s.median()))
				}
			}
			fmt.Fprintln(w)
		}
	}
	own := rec.values("set-50-16", "neokv", value)
	if len(own) > 0 && slices.ContainsFunc(rec.runs, func(r run) bool { return find(r.Test).types }) {
		fmt.Fprintf(w, "\nneokv : its own set-50-16, of each round\tmedian (range)\n")
		for _, t := range tests {
			s := ratios(rec.values(t.name, "neokv", value), own)
			if !t.types || len(s) == 0 {
				continue
			}
			fmt.Fprintf(w, "%s\t%v", t.name, s)
			for _, q := range ownRatios {
				if q.test == t.name {
					fmt.Fprintf(w, "\t%s", q.verdict(s.median()))
				}
			}
			fmt.Fprintln(w)
		}
	}
	fmt.Fprintf(w, "\nneokv itself\tmedian (range)\n")
	for _, q := range requirements {
		figure, name := value, find(q.test).withUnit()
		if q.tail {
			figure, name = tail, q.test+", p99/p50"
		}
		if s := sorted(rec.values(q.test, "neokv", figure)); q.peer == "" && len(s) > 0 {
			fmt.Fprintf(w, "%s\t%v\t%s\n", name, s, q.verdict(s.median()))
		}
	}
	rec.remarks(w)
	return w.Flush()
}

// table writes a row per test and a column per target; rows of nothing are left out.
func (rec *record) table(w io.Writer, title string, columns []string, label func(test) string, cell func(t test, target string) string) {
	fmt.Fprintf(w, "%s\t%s\n", title, strings.Join(columns, "\t"))
	for _, t := range tests {
		var cells []string
		for _, c := range columns {
			cells = append(cells, cell(t, c))
		}
		if slices.ContainsFunc(cells, func(s string) bool { return s != none }) {
			fmt.Fprintf(w, "%s\t%s\n", label(t), strings.Join(cells, "\t"))
		}
	}
	fmt.Fprintln(w)
}

// remarks says what must not be forgotten beside the figures.
func (rec *record) remarks(w io.Writer) {
	fmt.Fprintf(w, "\nredis-benchmark --cluster drives one slot per node, so three of NeoKV's regions; the tests all-* drive all.\n")
	invalid := 0
	var uncounted []string
	for _, r := range rec.runs {
		if !r.valid() {
			invalid++
			fmt.Fprintln(w, r)
		}
		if r.Misses < 0 && !slices.Contains(uncounted, r.Target) {
			uncounted = append(uncounted, r.Target)
		}
	}
	fmt.Fprintf(w, "%d of %d runs are invalid, for misses, error replies or a failure, and left out.\n", invalid, len(rec.runs))
	if uncounted != nil {
		fmt.Fprintf(w, "Misses are not counted, for want of keyspace_misses in INFO: %s.\n", strings.Join(uncounted, ", "))
	}
}
