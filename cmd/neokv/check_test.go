package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"neokv.dev/bench"
	"neokv.dev/bench/gate"
	"neokv.dev/results"
)

// smallCase is a case that takes little time. Beside so many entries one that the cluster makes by itself is noise.
var smallCase = gate.CountCase{Name: "small", Set: []string{"cluster.stores=1", "cluster.regions=2"},
	Load: bench.CountedLoad{Workload: "set", Pipeline: 16, Operations: 8000, Records: 100, Elements: 10, ValueSize: 100,
		Seed: 1}}

// TestCheckCounts makes a baseline and checks by it: the same build passes, and one that writes more entries fails.
func TestCheckCounts(t *testing.T) {
	if testing.Short() {
		t.Skip("what its processes do, those of other tests do, too")
	}
	t.Setenv(programEnv, "1") // what is counted is this program
	t.Chdir(t.TempDir())
	b, err := gate.Renew(t.Context(), "", []gate.CountCase{smallCase}, gate.FewestRuns, func(string, int) {})
	if err != nil {
		t.Fatal(err)
	}
	err = writeOutput("baseline.json", os.O_TRUNC, func(w io.Writer) error { return results.PrintJSON(w, b) })
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"check", "--baseline", "baseline.json", "--only", "counts", "--format", "json", "--history",
		"h.jsonl"}
	got := neokvRun(t, os.Environ(), args...)
	var o gate.Outcome
	if err := json.Unmarshal([]byte(got.stdout), &o); err != nil {
		t.Fatalf("%v: %+v", err, got)
	}
	entries := gate.Finding{}
	for _, f := range o.Counts {
		if f.Figure == "Raft entries" {
			entries = f
		}
	}
	if !entries.Gates || entries.Verdict != gate.AsBefore {
		t.Errorf("the same build: %+v", entries)
	}
	got = neokvRun(t, os.Environ(), append(args, "--env", "NEOKV_RAFT_BATCH_MAX_OPS=1", "--format", "table", "--junit",
		"check.xml", "--summary", "check.md")...)
	if got.status != statusBroken || !strings.Contains(got.stdout, "small: Raft entries") ||
		!strings.HasPrefix(got.stdout, "regression: ") || got.stderr == "" ||
		!strings.Contains(got.stdout, "check --renew baseline.json") {
		t.Errorf("an entry for each write: %+v", got)
	}
	for n := range 2 { // sittings
		got := neokvRun(t, os.Environ(), "check", "--prove", "trials", "--baseline", "baseline.json", "--only",
			"counts", "--runs", "1")
		want := fmt.Sprintf("0 false alarms in %s of the same build, 0 inconclusive: ",
			results.Plural(int64(n+1), "trial"))
		if got.status != statusDone || !strings.HasPrefix(got.stdout, want) {
			t.Errorf("%+v, want %s", got, want)
		}
	}
	seen := neokvRun(t, nil, "history", "show", "h.jsonl")
	if seen.status != statusDone || !strings.Contains(seen.stdout, "small") ||
		!strings.Contains(seen.stdout, "1 store, ") || !strings.Contains(seen.stdout, "Raft entries") {
		t.Errorf("the history: %+v", seen)
	}
	for name, want := range map[string]string{"check.xml": "<failure message=", "check.md": "**regression: "} {
		if text, err := os.ReadFile(name); err != nil || !strings.Contains(string(text), want) {
			t.Errorf("%s: %s, %v; want %q in it", name, text, err, want)
		}
	}
}

// TestCheckElsewhere checks by a baseline of another machine, where there is no git history: what follows from the
// program alone is compared, and the output says what is not.
func TestCheckElsewhere(t *testing.T) {
	if testing.Short() {
		t.Skip("what its processes do, those of other tests do, too")
	}
	t.Setenv(programEnv, "1")
	t.Chdir(t.TempDir())
	figures, err := smallCase.Count(t.Context(), "", nil)
	if err != nil {
		t.Fatal(err)
	}
	b := gate.Baseline{Format: gate.BaselineFormat, Runs: gate.FewestRuns,
		Build: results.Build{Go: "go0", Commit: "0123456789abcdef"}, Cases: []gate.CountedCase{{CountCase: smallCase}}}
	for _, f := range figures {
		c := gate.CountedFigure{Name: f.Name, Unit: f.Unit, Better: f.Better, Median: f.Value}
		if f.Name == "syncs" {
			c.Median, c.Spread = c.Median/2, 0.004 // would fail here, but for the spread
		}
		b.Cases[0].Figures = append(b.Cases[0].Figures, c)
	}
	err = writeOutput("baseline.json", os.O_TRUNC, func(w io.Writer) error { return results.PrintJSON(w, b) })
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"check", "--baseline", "baseline.json", "--only", "counts"}
	got := neokvRun(t, os.Environ(), args...)
	if got.status != statusDone || !strings.HasPrefix(got.stdout, "pass: ") ||
		!strings.Contains(got.stdout, "the baseline is of go0, this build of go") ||
		!strings.Contains(got.stdout, "not: syncs (small)") {
		t.Errorf("the same build: %+v", got)
	}
	got = neokvRun(t, os.Environ(), append(args, "--env", "NEOKV_RAFT_BATCH_MAX_OPS=1")...)
	if got.status != statusBroken || !strings.Contains(got.stdout, "small: Raft entries") {
		t.Errorf("an entry for each write: %+v", got)
	}
	got = neokvRun(t, os.Environ(), "check", "--baseline", "baseline.json", "--budget", "2m")
	if got.status != statusFailed || !strings.Contains(got.stderr, "--only counts needs none") {
		t.Errorf("a build that is not there: %+v", got)
	}
}

// TestCountTriesAgain: a run that fails is tried again, once.
func TestCountTriesAgain(t *testing.T) {
	t.Setenv(programEnv, "1")
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	c := smallCase
	c.Load.Operations = 100
	for failures, works := range map[int]bool{0: true, 1: true, 2: false} {
		dir := t.TempDir()
		program := filepath.Join(dir, "neokv")
		text := fmt.Sprintf("#!/bin/sh\necho x >>%[1]s/starts\n[ $(wc -l <%[1]s/starts) -gt %d ] || exit 1\nexec %s "+
			"\"$@\"\n", dir, failures, self)
		if err := os.WriteFile(program, []byte(text), 0o777); err != nil {
			t.Fatal(err)
		}
		figures, err := c.Count(t.Context(), program, nil)
		if (err == nil) != works || (len(figures) > 0) != works {
			t.Errorf("a program that fails %d times: %d figures, %v", failures, len(figures), err)
		}
	}
}

func TestCheckRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	writeResult(t, "result.jsonl", "")
	got := neokvRun(t, nil, "check", "--baseline", "result.jsonl", "--max-regression", "5", "--only", "all", "--budget",
		"0s", "--format", "xml", "--history", "result.jsonl", "--set", "a.b=c", "--env", "X", "--against", "redis=none",
		"--inconclusive", "maybe")
	if got.status != statusInvalid || got.stdout != "" {
		t.Fatalf("%+v", got)
	}
	for _, want := range []string{
		"result.jsonl: this is a file of bench", "--max-regression 5: want a share", "--only all: want counts or timed",
		"--budget 0s: want", "--format xml: want", "unknown setting: a.b", "--env X: want",
		"--against redis=none: want",
		"--inconclusive maybe: want pass or fail", "result.jsonl: line 1: not a line of a history",
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("no %q in:\n%s", want, got.stderr)
		}
	}
	got = neokvRun(t, nil, "check", "--prove", "p", "--only", "timed", "--budget", "20s", "--max-latency", "x")
	for _, want := range []string{"--budget 20s: want 53s to 24h, since a verdict takes 6 rounds",
		"--max-latency x: want a share"} {
		if got.status != statusInvalid || !strings.Contains(got.stderr, want) {
			t.Errorf("%+v, want %q", got, want)
		}
	}
	for _, args := range [][]string{
		{"check"}, {"check", "--baseline", "nosuch"}, {"check", "--renew", "b", "--runs", "1"},
		{"check", "--renew", "b", "--baseline", "a"}, {"check", "--renew", "b", "--history", "h"},
		{"check", "--renew", "b", "--prove", "p"}, {"check", "--prove", "p", "--junit", "x.xml"},
		{"check", "--prove", "p", "--only", "timed", "--format", "json"}, {"check", "--prove", "p"},
		{"check", "--prove", "p", "--only", "timed", "--runs", "0"},
		{"check", "--baseline", "testdata/nosuch", "--runs", "3"},
	} {
		if got := neokvRun(t, nil, args...); got.status != statusInvalid || got.stderr == "" {
			t.Errorf("%q: %+v", args, got)
		}
	}
}

// TestCheckStatus: what cannot be told passes, unless the user wants otherwise.
func TestCheckStatus(t *testing.T) {
	for _, x := range []struct {
		verdict      gate.Conclusion
		inconclusive string
		want         int
	}{
		{gate.Pass, "fail", statusDone}, {gate.Inconclusive, "pass", statusDone},
		{gate.Inconclusive, "fail", statusInconclusive}, {gate.Regression, "pass", statusBroken},
	} {
		f := checkFlags{inconclusive: x.inconclusive}
		if got := exitStatus(&strings.Builder{}, f.status(&gate.Outcome{Verdict: x.verdict})); got != x.want {
			t.Errorf("%s, --inconclusive %s: status %d, want %d", x.verdict, x.inconclusive, got, x.want)
		}
	}
}
