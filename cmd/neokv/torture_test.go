package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"neokv.dev/neokv/torture"
)

// TestTorture runs a few seeds, and then some with a planted mistake. The text of the scenario that is left runs again.
func TestTorture(t *testing.T) {
	dir := t.TempDir()
	log := filepath.Join(dir, "log.jsonl")
	common := []string{"torture", "--seed", "1", "--duration", "5s", "--dir", dir, "--log", log}
	torturing := func(args ...string) result { return neokvRun(t, nil, append(common, args...)...) }

	got := torturing("--seeds", "4", "--faults", "kill,transfer")
	if got.status != statusDone ||
		!strings.HasPrefix(got.stdout, "nothing found: 4 seeds from 1 on, 5s each in virtual") ||
		!strings.HasSuffix(got.stdout,
			"log.jsonl: 4 seeds in virtual time of 1 commits, 0 sittings found something\n") {
		t.Errorf("status %d, stdout\n%s\nstderr\n%s", got.status, got.stdout, got.stderr)
	}
	got = torturing("--planted", "early-reply", "--shrink", "2s", "--seeds", "200")
	if got.status != statusDone || !strings.HasPrefix(got.stdout, "found: ") ||
		!strings.Contains(got.stdout, "\nagain: neokv torture --seed ") {
		t.Errorf("planted: status %d, stdout\n%s\nstderr\n%s", got.status, got.stdout, got.stderr)
	}
	files, err := filepath.Glob(filepath.Join(dir, "neokv-torture-*.txt"))
	if err != nil || len(files) != 1 {
		t.Fatalf("smaller scenarios: %q, %v; want one", files, err)
	}
	got = torturing("--schedule", files[0], "--shrink", "0s")
	if got.status != statusDone || !strings.HasPrefix(got.stdout, "nothing found: 4 seeds") {
		t.Errorf("without the mistake: status %d, stdout\n%s\nstderr\n%s", got.status, got.stdout, got.stderr)
	}

	quiet := filepath.Join(dir, "quiet.txt")
	if err := os.WriteFile(quiet, []byte("1 clients, reads 1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	got = torturing("--planted", "log-unsynced", "--schedule", quiet)
	if got.status != statusFound || !strings.HasSuffix(got.stderr, "neokv: planted mistake not found\n") {
		t.Errorf("a mistake that is not found: status %d, stdout\n%s\nstderr\n%s", got.status, got.stdout, got.stderr)
	}

	real := filepath.Join(dir, "real")
	got = neokvRun(t, nil, "torture", "--real", "--seeds", "2", "--duration", "2s", "--dir", real)
	if got.status != statusDone || !strings.HasPrefix(got.stdout, "nothing found: 2 seeds from ") ||
		!strings.Contains(got.stdout, ", 2s each in real time: ") {
		t.Errorf("real time: status %d, stdout\n%s\nstderr\n%s", got.status, got.stdout, got.stderr)
	}
	if left, err := os.ReadDir(real); err != nil || len(left) > 0 {
		t.Errorf("in the folder of the runs are %v, %v; want nothing", left, err)
	}

	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	var verdicts []string
	for line := range strings.Lines(string(text)) {
		var s torture.Sitting
		if err := json.Unmarshal([]byte(line), &s); err != nil || s.Seeds == 0 || s.Length != "5s" {
			t.Errorf("%+v, %v: %s", s, err, line)
		}
		verdicts = append(verdicts, s.Verdict)
	}
	if got := strings.Join(verdicts, ", "); got != "nothing found, found, nothing found, planted mistake not found" {
		t.Errorf("verdicts in the log: %s", got)
	}
}

// TestTortureInvalid: every flag that is wrong is named, with what is allowed.
func TestTortureInvalid(t *testing.T) {
	got := neokvRun(t, nil, "torture", "--seeds", "0", "--duration", "1ms", "--faults", "kil,disk", "--planted", "leas")
	for _, part := range []string{"0 seeds: want 1 to 1000000", "a run of 1ms: want 1s to 1h",
		`unknown fault "kil"; did you mean kill?; want all, or some of stop, `, `unknown mistake "leas"`} {
		if got.status != statusInvalid || !strings.Contains(got.stderr, part) {
			t.Errorf("status %d, stderr\n%s\nwant 2, %s", got.status, got.stderr, part)
		}
	}
	got = neokvRun(t, nil, "torture", "cause", "--branches", "3", "--faults", "kil")
	for _, part := range []string{"want --seed", "--branches 3: want 4 to 1000", "unknown fault"} {
		if got.status != statusInvalid || !strings.Contains(got.stderr, part) {
			t.Errorf("cause: status %d, stderr\n%s\nwant 2, %s", got.status, got.stderr, part)
		}
	}
	got = neokvRun(t, nil, "torture", "--schedule", filepath.Join(t.TempDir(), "none"), "--faults", "kill")
	if got.status != statusInvalid || strings.Count(got.stderr, "\nneokv: ") != 1 {
		t.Errorf("status %d, stderr\n%s\nwant 2, and two lines", got.status, got.stderr)
	}
}

// TestTortureFindings: findings stay in a file over sittings, whose text and exit status tell which they are.
func TestTortureFindings(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "findings.jsonl")
	sitting := func(args ...string) result {
		return neokvRun(t, nil, append([]string{"torture", "--findings", path, "--seed", "1", "--duration", "1s",
			"--dir", dir, "--shrink", "0s", "--faults", "kill"}, args...)...)
	}
	if got := sitting("--seeds", "1"); got.status != statusDone || !strings.HasSuffix(got.stdout,
		": 0 new, 0 returned, 0 ongoing, 0 resolved, 0 not tried\n") {
		t.Errorf("nothing to find: status %d, stdout\n%s\nstderr\n%s", got.status, got.stdout, got.stderr)
	}
	const line = `{"class":"lost write: key #","state":"new","problem":"p","time":"virtual","seed":7,"command":"c",` +
		`"scenario":"1 clients, reads 1","length":"1s","first":{"date":"2026-01-02T00:00:00Z"},` +
		`"last":{"date":"2026-01-03T00:00:00Z"}}` + "\n"
	real := strings.NewReplacer("key #", "another", "virtual", "real").Replace(line)
	if err := os.WriteFile(path, []byte(line+real), 0o666); err != nil {
		t.Fatal(err)
	}
	got := sitting("--seeds", "0", "--tries", "3")
	for _, part := range []string{": 0 new, 0 returned, 0 ongoing, 1 resolved, 1 not tried\n", "it is of real time",
		"seed 7, first seen 2026-01-02, last 2026-01-03; none of 3 runs failed, so at most 63.2 % do, with 95 % confidence"} {
		if got.status != statusDone || !strings.Contains(got.stdout, part) {
			t.Errorf("status %d, stdout\n%s\nstderr\n%s\nwant %s", got.status, got.stdout, got.stderr, part)
		}
	}
	all, err := readFindings(path)
	if err != nil || len(all) != 2 || all[0].State != torture.FindingResolved || all[0].Resolved == nil ||
		all[1].State != torture.FindingNew {
		t.Errorf("%+v, %v; want a resolved finding and a new one", all, err)
	}

	bad := strings.ReplaceAll(line, `"new"`, `"odd"`) + "{}\n" + line + line + `{"class":`
	if err := os.WriteFile(path, []byte(bad), 0o666); err != nil {
		t.Fatal(err)
	}
	got = sitting()
	for _, part := range []string{`line 1: state "odd": want one of ["new" "ongoing"`, "line 2: no class; state",
		"line 4: the finding of line 3 again", "line 5: unexpected EOF"} {
		if got.status != statusInvalid || !strings.Contains(got.stderr, path+": "+part) {
			t.Errorf("status %d, stderr\n%s\nwant 2, %s", got.status, got.stderr, part)
		}
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != bad {
		t.Errorf("the file is now %q, %v; want it as it was", text, err)
	}
}

// TestTortureStatus: the exit status tells what is new from what goes on.
func TestTortureStatus(t *testing.T) {
	failure := &torture.Failure{Seed: 7}
	for _, x := range []struct {
		planted, verdict string
		failure          *torture.Failure
		want             string
	}{
		{"", torture.NothingFound, nil, "<nil>"},
		{"", torture.OnlyKnown, nil, "4 open findings are seen again"},
		{"", torture.ProblemFound, failure, "3 seed 7 fails"},
		{"", torture.ProblemFound, nil, "3 found"},
		{"m", torture.ProblemFound, failure, "<nil>"},
		{"m", torture.OnlyKnown, nil, "<nil>"},
		{"m", "planted mistake not found", nil, "3 planted mistake not found"},
	} {
		f := tortureFlags{Options: torture.Options{Planted: x.planted}}
		got := "<nil>"
		if err := new(statusError); errors.As(f.status(torture.Sitting{Verdict: x.verdict}, x.failure), &err) {
			got = fmt.Sprint(err.status, " ", err.text)
		}
		if got != x.want {
			t.Errorf("%q, %q: %s; want %s", x.planted, x.verdict, got, x.want)
		}
	}
}

// TestTortureRepeat: it says how many runs have the same trace. Flags that are wrong are named.
func TestTortureRepeat(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "quiet.txt")
	if err := os.WriteFile(path, []byte("cluster.stores 1, cluster.replicas 1\n1 clients, reads 1\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	got := neokvRun(t, nil, "torture", "repeat", "--seed", "1", "--times", "2", "--duration", "1s",
		"--schedule", path, "--dir", dir)
	if got.status != statusDone || !strings.HasPrefix(got.stdout, "seed 1: 2 runs of 1s, 0 of which fail: ") ||
		!strings.Contains(got.stdout, " of 1 repetitions (") {
		t.Errorf("status %d, stdout\n%s\nstderr\n%s", got.status, got.stdout, got.stderr)
	}
	got = neokvRun(t, nil, "torture", "repeat", "--times", "1", "--faults", "kil")
	for _, part := range []string{"want --seed", "--times 1: want 2 to 1000", "unknown fault"} {
		if got.status != statusInvalid || !strings.Contains(got.stderr, part) {
			t.Errorf("status %d, stderr\n%s\nwant 2, %s", got.status, got.stderr, part)
		}
	}
}
