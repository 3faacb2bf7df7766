package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/results"
)

// writeResult writes a small result file and returns its text.
func writeResult(t *testing.T, path string, rate string) string {
	t.Helper()
	w, err := results.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	var d results.Distribution
	for us := range 100 {
		d.Answer(time.Duration(us+1) * time.Microsecond)
	}
	op := results.OpStats{Name: "read", Count: 100, PerSecond: 100, Reads: true, Service: d.Latency(true)}
	g := results.GroupStats{Name: "get", Ledger: results.Ledger{Offered: 100, OK: 100}, Ops: []results.OpStats{op},
		Total: op}
	g.Total.Name, g.Total.Service.HDR = "total", ""
	at := time.Date(2026, 5, 4, 3, 2, 2, 0, time.UTC)
	header := results.Header{Started: at, Groups: []results.ClientGroup{{Name: "get", Workload: "get", Clients: 1,
		Pipeline: 1, Rate: rate}}}
	for _, err := range []error{
		w.Begin(header),
		w.Interval(results.Interval{Phase: results.PhaseRun, At: at, Seconds: 1, Groups: []results.GroupStats{g}}),
		w.End(results.Summary{Seconds: 1, Groups: []results.GroupSummary{{GroupStats: g}}}),
		w.Close(),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func TestReport(t *testing.T) {
	t.Chdir(t.TempDir())
	writeResult(t, "a.jsonl", "")
	writeResult(t, "b.jsonl", "200")
	page := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	got := neokvRun(t, nil, "report", "a.jsonl")
	const sentence = "100 ops/s, service time p50 50 us, p99 99 us\n\n"
	table := strings.TrimSuffix(neokvRun(t, nil, "results", "a.jsonl").stdout, "a.jsonl\n")
	if got.status != statusDone || got.stdout != sentence+table+"report.html\n" || got.stderr != "" {
		t.Errorf("status %d, stdout %q, stderr %q; want the table\n%s", got.status, got.stdout, got.stderr, table)
	}
	if !strings.Contains(page("report.html"), "<h1>a</h1>") {
		t.Error("report.html has no heading with the name of the result")
	}
	got = neokvRun(t, nil, "report", "a.jsonl", "b.jsonl", "-o", "both.html")
	if got.status != statusDone || !strings.Contains(page("both.html"), "2 results compared") {
		t.Errorf("status %d, stderr %q", got.status, got.stderr)
	}
	for _, want := range []string{"cannot tell: ", "A: a", "B: b", "load rate closed loop 200 operations per second",
		"read ops/s 100 100 (+0.0 %)", "service p99 99 us 99 us (+0.0 %)", "both.html"} {
		if !slices.ContainsFunc(strings.Split(got.stdout, "\n"), func(line string) bool {
			return strings.HasPrefix(strings.Join(strings.Fields(line), " "), want)
		}) {
			t.Errorf("two results: no line %q in\n%s", want, got.stdout)
		}
	}
	alone := neokvRun(t, nil, "report", "--format", "table", "a.jsonl", "b.jsonl").stdout
	if alone+"both.html\n" != got.stdout {
		t.Errorf("--format table differs from what stands beside the page:\n%s", alone)
	}
	got = neokvRun(t, nil, "report", "-o", "-", "a.jsonl")
	if got.status != statusDone || got.stdout != page("report.html") {
		t.Errorf("status %d, stderr %q: standard output is not the page", got.status, got.stderr)
	}
	got = neokvRun(t, nil, "report", "--format", "md", "a.jsonl", "b.jsonl")
	row := "| load | rate | closed loop | 200 operations per second |"
	if got.status != statusDone || !strings.Contains(got.stdout, row) {
		t.Errorf("status %d, stderr %q, stdout\n%s", got.status, got.stderr, got.stdout)
	}
}

// A file that was cut short is drawn. What is missing is said, on standard error and on the page.
func TestReportOfACutFile(t *testing.T) {
	t.Chdir(t.TempDir())
	text := writeResult(t, "whole.jsonl", "")
	if err := os.WriteFile("cut.jsonl", []byte(text[:len(text)-10]), 0o666); err != nil {
		t.Fatal(err)
	}
	got := neokvRun(t, nil, "report", "cut.jsonl", "-o", "-")
	for _, want := range []string{"line 3 is cut off and left out", "no summary: the run did not come to its end"} {
		if !strings.Contains(got.stderr, "neokv: cut.jsonl: "+want+"\n") || !strings.Contains(got.stdout, "<li>"+want) {
			t.Errorf("stderr %q: want %q there and on the page", got.stderr, want)
		}
	}
	if got.status != statusInvalid {
		t.Errorf("status %d, want %d", got.status, statusInvalid)
	}
}

func TestReportOfBadInput(t *testing.T) {
	t.Chdir(t.TempDir())
	text := writeResult(t, "a.jsonl", "")
	for name, bad := range map[string]string{
		"newer.jsonl": strings.Replace(text, `"format":4`, `"format":99`, 1),
		"other.jsonl": "{\"name\": \"something else\"}\n",
		"wrong.jsonl": strings.Replace(text, `"phase":"run"`, `"phase":"walk"`, 1),
		"empty.jsonl": "",
	} {
		if err := os.WriteFile(name, []byte(bad), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args string
		want string
	}{
		{"report", "neokv: report: 0 arguments, want 1 to 8 results\n"},
		{"report a b c d e f g h i", "neokv: report: 9 arguments, want 1 to 8 results\n"},
		{"report --format mdd -o a.jsonl a.jsonl none.jsonl newer.jsonl other.jsonl wrong.jsonl empty.jsonl a.jsonl",
			`neokv: --format mdd: want one of html, table, md; did you mean md?
neokv: --out: a.jsonl is a file to read
neokv: --out: a.jsonl is a file to read
neokv: none.jsonl: no such file or directory
neokv: newer.jsonl: line 1: result format 99, this program reads 4
neokv: other.jsonl: line 1: not the header of a result record
neokv: wrong.jsonl: line 2: phase "walk": unknown
neokv: empty.jsonl: empty record
neokv: a.jsonl: named twice
`},
	} {
		got := neokvRun(t, nil, strings.Fields(c.args)...)
		if got.status != statusInvalid || got.stderr != c.want || got.stdout != "" {
			t.Errorf("neokv %s: status %d, stdout %q, stderr\n%s\nwant status %d, stderr\n%s", c.args, got.status,
				got.stdout, got.stderr, statusInvalid, c.want)
		}
	}
	if b, err := os.ReadFile("a.jsonl"); err != nil || string(b) != text {
		t.Errorf("the result was overwritten: %v", err)
	}
	if left, _ := filepath.Glob("*.html"); left != nil {
		t.Errorf("left %q", left)
	}
	if got := neokvRun(t, nil, "report", "a.jsonl", "-o", "none/report.html"); got.status != statusFailed {
		t.Errorf("a folder that is not there: status %d, want %d", got.status, statusFailed)
	}
}
