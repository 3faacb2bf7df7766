package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// writeRuns writes result files of runs on successive days, and returns their names. From the run step on, throughput
// is lower by a fifth.
func writeRuns(t *testing.T, n, step int) (names []string) {
	t.Helper()
	text := writeResult(t, "one.jsonl", "")
	if err := os.Remove("one.jsonl"); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 5, 4, 3, 2, 2, 0, time.UTC)
	for i := range n {
		rate := 1000 + i*7919%13
		if i >= step {
			rate = rate * 4 / 5
		}
		run := strings.Replace(text, at.Format(time.RFC3339), at.AddDate(0, 0, i).Format(time.RFC3339), 1)
		run = strings.ReplaceAll(run, `"per_second":100`, fmt.Sprintf(`"per_second":%d`, rate))
		names = append(names, fmt.Sprintf("run-%02d.jsonl", i))
		if err := os.WriteFile(names[i], []byte(run), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	return names
}

func TestHistory(t *testing.T) {
	t.Chdir(t.TempDir())
	names := writeRuns(t, 24, 12)
	got := neokvRun(t, nil, append([]string{"history", "add", "h.jsonl"}, names[:20]...)...)
	if got.status != statusDone || got.stdout != "h.jsonl\n" || got.stderr != "" {
		t.Fatalf("%+v", got)
	}
	whole, err := os.ReadFile("h.jsonl")
	if err != nil || strings.Count(string(whole), "\n") != 20 {
		t.Fatalf("%d lines, %v; want 20", strings.Count(string(whole), "\n"), err)
	}
	// The last line is cut off. Adding says so, and repairs it.
	if err := os.WriteFile("h.jsonl", whole[:len(whole)-30], 0o666); err != nil {
		t.Fatal(err)
	}
	const cut = "neokv: warning: h.jsonl: line 20 is cut off and left out\n"
	if got := neokvRun(t, nil, "history", "show", "h.jsonl"); got.status != statusDone || got.stderr != cut ||
		!strings.Contains(got.stdout, "19 runs from 2026-05-04 to 2026-05-22") {
		t.Errorf("%+v", got)
	}
	got = neokvRun(t, nil, append([]string{"history", "add", "h.jsonl"}, names[19:]...)...)
	if got.status != statusDone || got.stderr != cut {
		t.Errorf("%+v", got)
	}
	got = neokvRun(t, nil, "history", "show", "h.jsonl", "--workload", "get", "--figure", "throughput")
	for _, want := range []string{"24 runs from 2026-05-04 to 2026-05-27", "change at 2026-05-16 03:02",
		"-20.0 %", "worse", "seed 1"} {
		if got.status != statusDone || got.stderr != "" || !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in status %d, %s%s", want, got.status, got.stderr, got.stdout)
		}
	}
	if strings.Contains(got.stdout, "p99") {
		t.Errorf("a figure that nobody asked for:\n%s", got.stdout)
	}
	got = neokvRun(t, nil, "history", "show", "h.jsonl", "--format", "html")
	if page, err := os.ReadFile("history.html"); err != nil ||
		!strings.HasPrefix(got.stdout, "1 change in 24 runs: on 2026-05-16 ") ||
		!strings.HasSuffix(got.stdout, "\nhistory.html\n") ||
		!strings.Contains(string(page), "<h1>History of h</h1>") {
		t.Errorf("%+v, %v", got, err)
	}
	var back struct {
		Trends []struct{ Changes []struct{ Run int } }
	}
	got = neokvRun(t, nil, "history", "show", "h.jsonl", "--format", "json", "--seed", "7")
	if err := json.Unmarshal([]byte(got.stdout), &back); err != nil || len(back.Trends) != 1 ||
		len(back.Trends[0].Changes) != 1 || back.Trends[0].Changes[0].Run != 12 ||
		!strings.Contains(got.stdout, "seed 7") {
		t.Errorf("%+v, %v", back, err)
	}
}

// TestHistoryOfBadInput: everything that is wrong is said at once, and nothing is written.
func TestHistoryOfBadInput(t *testing.T) {
	t.Chdir(t.TempDir())
	names := writeRuns(t, 3, 3)
	if got := neokvRun(t, nil, "history", "add", "h.jsonl", names[0]); got.status != statusDone {
		t.Fatalf("%+v", got)
	}
	before, err := os.ReadFile("h.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	run, err := os.ReadFile(names[1])
	if err != nil {
		t.Fatal(err)
	}
	interrupted := strings.Replace(string(run), `"summary":{`, `"summary":{"interrupted":true,`, 1)
	for name, text := range map[string]string{"cut.jsonl": string(run[:len(run)-9]), "stopped.jsonl": interrupted,
		"bad.jsonl": "{}\n" + string(before) + "{\n"} {
		if err := os.WriteFile(name, []byte(text), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args string
		want []string
	}{
		{"history", []string{"neokv: history: want a verb\n"}},
		{"history list", []string{`history: unknown verb "list"`}},
		{"history add h.jsonl", []string{"history add: 1 arguments, want a history and results"}},
		{"history add h.jsonl run-00.jsonl run-01.jsonl run-01.jsonl none.jsonl cut.jsonl stopped.jsonl h.jsonl",
			[]string{
				"run-00.jsonl is in line 1 already", "run-01.jsonl is the same run as run-01.jsonl",
				"none.jsonl: no such file", "cut.jsonl: no summary: the run did not come to its end",
				"stopped.jsonl: the run was interrupted",
				"h.jsonl: this is a file of history: neokv history show prints it",
			}},
		{"history add bad.jsonl run-01.jsonl none.jsonl", []string{"bad.jsonl: line 1: not a line of a history",
			"bad.jsonl: line 3: unexpected end of JSON input", "none.jsonl: no such file"}},
		{"history show", []string{"history show: 0 arguments, want a history"}},
		{"history show none.jsonl --format xml", []string{"--format xml: want one of table, html, json",
			"none.jsonl: no such"}},
		{"history show run-00.jsonl", []string{"run-00.jsonl: this is a file of bench: neokv results prints it"}},
		{"history show h.jsonl --figure thruput --figure throughputs --workload set --format htm -o h.jsonl", []string{
			"--format htm: want one of table, html, json; did you mean html?", "--out: h.jsonl is a file to read",
			"--figure thruput: not in h.jsonl", "--figure throughputs: not in h.jsonl; did you mean throughput?",
			"--workload set: not in h.jsonl"}},
	} {
		got := neokvRun(t, nil, strings.Fields(c.args)...)
		if got.status != statusInvalid || got.stdout != "" {
			t.Errorf("neokv %s: %+v", c.args, got)
		}
		for _, want := range c.want {
			if !strings.Contains(got.stderr, want) {
				t.Errorf("neokv %s: no %q in\n%s", c.args, want, got.stderr)
			}
		}
	}
	if after, err := os.ReadFile("h.jsonl"); err != nil || string(after) != string(before) {
		t.Errorf("the history has changed: %v", err)
	}
	if got := neokvRun(t, nil, "history", "add", "none/h.jsonl", names[1]); got.status != statusFailed {
		t.Errorf("a folder that is not there: %+v", got)
	}
}
