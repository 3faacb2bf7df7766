package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/history"
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
	for _, want := range []string{"24 runs from 2026-05-04 to 2026-05-27",
		"change 1 between the runs of 2026-05-15 03:02 and 2026-05-16 03:02",
		"-20.0 %", "worse", "correlation"} {
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
		Trends []struct {
			Changes []struct{ Run, After, By, Found int }
		}
	}
	got = neokvRun(t, nil, "history", "show", "h.jsonl", "--format", "json", "--fail-on-change")
	if err := json.Unmarshal([]byte(got.stdout), &back); err != nil || len(back.Trends) != 1 ||
		len(back.Trends[0].Changes) != 1 || back.Trends[0].Changes[0].Run != 12 ||
		got.status != statusBroken || got.stderr != "neokv: history: 1 change\n" {
		t.Errorf("%+v, %v, %+v", back, err, got)
	}
	c := back.Trends[0].Changes[0]
	if c.After != 11 || c.By != 12 || c.Found < 16 {
		t.Errorf("the change lies after run %d, at most in run %d, and was found with run %d", c.After, c.By, c.Found)
	}
	for latest, want := range map[int]int{24 - c.Found: statusBroken, 24 - c.Found - 1: statusDone} {
		if latest < 1 {
			t.Errorf("the change was found with the last run")
			continue
		}
		got := neokvRun(t, nil, "history", "show", "h.jsonl", "--fail-on-change", "--latest", fmt.Sprint(latest))
		if got.status != want {
			t.Errorf("--latest %d: %+v", latest, got)
		}
	}
	got = neokvRun(t, nil, "history", "confirm", "h.jsonl")
	want := "neokv: change 1 cannot be confirmed by ab: the target was not a cluster of bench's own\n"
	if got.status != statusInvalid || got.stderr != want {
		t.Errorf("%+v", got)
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
		{"history show h.jsonl --latest 2", []string{"--latest 2: want 1 or more, and --fail-on-change"}},
		{"history show h.jsonl --latest 0 --fail-on-change", []string{"--latest 0: want 1 or more"}},
		{"history confirm", []string{"history confirm: 0 arguments, want a history"}},
		{"history confirm h.jsonl --change 0 --figure thruput", []string{"--change 0: want 1 or more",
			"--figure thruput: not in h.jsonl"}},
		{"history confirm h.jsonl", []string{"h.jsonl: no change to confirm"}},
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

// TestHistoryConfirm: ab runs for the two commits of a change, and its status is that of the verb.
func TestHistoryConfirm(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	t.Chdir(t.TempDir())
	git := func(args ...string) string {
		t.Helper()
		c := exec.Command("git", append([]string{"-c", "user.name=a", "-c", "user.email=a@b.example"}, args...)...)
		out, err := c.CombinedOutput()
		if err != nil {
			t.Fatalf("git %s: %v: %s", args, err, out)
		}
		return strings.TrimSpace(string(out))
	}
	entry := func(day int, commit string, value float64) history.Entry {
		return history.Entry{Header: results.Header{Started: time.Date(2026, 5, 1+day, 0, 0, 0, 0, time.UTC),
			Build: results.Build{Commit: commit}, Cluster: results.ClusterShape{InProcess: true, InMemory: true}},
			Figures: []results.Figure{{Name: "throughput", Better: results.Higher, Value: value + float64(day*7919%13)/10}}}
	}
	write := func(first, second string) {
		t.Helper()
		os.Remove("h.jsonl")
		var all []history.Entry
		for day := range 24 {
			if day < 12 {
				all = append(all, entry(day, first, 100))
			} else {
				all = append(all, entry(day, second, 80))
			}
		}
		if err := history.Append("h.jsonl", all...); err != nil {
			t.Fatal(err)
		}
	}
	write("0123456789ab", "123456789abc")
	got := neokvRun(t, nil, "history", "confirm", "h.jsonl")
	if got.status != statusFailed ||
		!strings.Contains(got.stderr, "change 1: the current folder is not in a git checkout") {
		t.Errorf("no checkout: %+v", got)
	}
	git("init", "-q", ".")
	git("commit", "-q", "--allow-empty", "-m", "one")
	first := git("rev-parse", "HEAD")
	got = neokvRun(t, nil, "history", "confirm", "h.jsonl")
	if got.status != statusFailed || !strings.Contains(got.stderr, "this git checkout does not have commit 0123456789ab") {
		t.Errorf("unknown commits: %+v", got)
	}
	git("commit", "-q", "--allow-empty", "-m", "two")
	second := git("rev-parse", "HEAD")
	write(first, second)
	running := fmt.Sprintf("neokv: change 1: neokv ab --a revision=%s --b revision=%s --mem", first[:12], second[:12])
	// The flags after -- are for ab, which refuses this one.
	got = neokvRun(t, nil, "history", "confirm", "h.jsonl", "--", "--rounds", "0")
	if got.status != statusInvalid || !strings.HasPrefix(got.stderr, running+" --rounds 0\n") ||
		!strings.Contains(got.stderr, "--rounds 0: want 1 to 1000") {
		t.Errorf("wrong flags of ab: %+v", got)
	}
	// The commits have no program to build, so ab fails.
	got = neokvRun(t, nil, "history", "confirm", "h.jsonl", "--change", "1")
	if got.status != statusFailed || !strings.HasPrefix(got.stderr, running+"\n") ||
		!strings.Contains(got.stderr, "neokv: revision "+first[:12]+": go build") {
		t.Errorf("nothing to build: %+v", got)
	}
	got = neokvRun(t, nil, "history", "confirm", "h.jsonl", "--change", "2")
	if got.status != statusInvalid || !strings.Contains(got.stderr, "--change 2: h.jsonl has 1 change") {
		t.Errorf("no such change: %+v", got)
	}
}
