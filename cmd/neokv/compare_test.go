package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestCompareOfAnEditedWorkload: a file of the same name with other contents is another load, for compare, the report
// and a history.
func TestCompareOfAnEditedWorkload(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, mix := range map[string]string{
		"before.jsonl": "mix:\n  - do: SET <key> <value>\n",
		"after.jsonl":  "mix:\n  - do: SET <key> <value>\n    share: 0.5\n  - do: GET <key>\n    share: 0.5\n",
	} {
		writeFile(t, "mine.yaml", "records: [{key: 'k<n>', count: 9}]\n", mix)
		got := neokvRun(t, nil, append(strings.Fields("bench --mem --workload mine.yaml --seed 1 --out "+name),
			short...)...)
		if got.status != statusDone {
			t.Fatalf("%+v", got)
		}
	}
	got := neokvRun(t, nil, "compare", "before.jsonl", "after.jsonl")
	const want = "before.jsonl and after.jsonl have different loads: contents: sha256 "
	if got.status != statusInvalid || !strings.Contains(got.stderr, want) {
		t.Errorf("%+v: want %q", got, want)
	}
	got = neokvRun(t, nil, "report", "--format", "md", "before.jsonl", "after.jsonl")
	if got.status != statusDone || !strings.Contains(got.stdout, "| load | contents | sha256 ") {
		t.Errorf("%+v", got)
	}
	got = neokvRun(t, nil, "history", "add", "h.jsonl", "before.jsonl", "after.jsonl")
	if got.status != statusDone {
		t.Fatalf("%+v", got)
	}
	got = neokvRun(t, nil, "history", "show", "h.jsonl")
	if n := strings.Count(got.stdout, "1 run on "); n != 2 {
		t.Errorf("%d trends, want one for each load:\n%s", n, got.stdout)
	}
	text, err := os.ReadFile("after.jsonl")
	if err != nil || !strings.Contains(string(text), `share: 0.5\n`) {
		t.Errorf("the result does not hold the workload's file: %v", err)
	}
}

// writeRunsOf writes result files of runs, one a minute, of each side in the order of sides. The files of a side go to
// a folder of its name. Runs of b have twice the throughput.
func writeRunsOf(t *testing.T, sides string) {
	t.Helper()
	text := writeResult(t, "one.jsonl", "")
	if err := os.Remove("one.jsonl"); err != nil {
		t.Fatal(err)
	}
	at := time.Date(2026, 5, 4, 3, 2, 2, 0, time.UTC)
	for i, side := range sides {
		rate := 1000 + i
		if side == 'b' {
			rate *= 2
		}
		began := at.Add(time.Duration(i) * time.Minute)
		run := strings.Replace(text, at.Format(time.RFC3339), began.Format(time.RFC3339), 1)
		run = strings.ReplaceAll(run, `"per_second":100`, fmt.Sprintf(`"per_second":%d`, rate))
		if err := os.MkdirAll(string(side), 0o777); err != nil {
			t.Fatal(err)
		}
		writeFile(t, fmt.Sprintf("%c/%02d.jsonl", side, i), run)
	}
}

func edit(t *testing.T, path, old, new string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil || !strings.Contains(string(text), old) {
		t.Fatalf("%v, no %s in %s", err, old, path)
	}
	writeFile(t, path, strings.Replace(string(text), old, new, 1))
}

const (
	betterByThroughput = `throughput +1,[0-9]+ ops/s +2,[0-9]+ ops/s .*better`
	summaryOfRun       = `"summary":{`
)

// TestCompare: runs that alternated have a verdict.
func TestCompare(t *testing.T) {
	t.Chdir(t.TempDir())
	writeRunsOf(t, strings.Repeat("ab", 8))
	got := neokvRun(t, nil, "compare", "a", "b")
	if got.status != statusDone || !regexp.MustCompile(betterByThroughput).MatchString(got.stdout) {
		t.Errorf("%+v", got)
	}
	writeResult(t, "open.jsonl", "200")
	for _, x := range []struct {
		args, want []string
	}{
		{[]string{"a/00.jsonl"}, []string{
			"a/00.jsonl: this is a file of bench: neokv results prints it; to compare results, name two"}},
		{nil, []string{"compare: 0 arguments"}},
		{[]string{"a,nosuch", t.TempDir()}, []string{"nosuch: no such file", "no *.jsonl in this folder"}},
		{[]string{"a", "open.jsonl"}, []string{
			"neokv: a/00.jsonl and open.jsonl have different loads: rate: closed loop and 200"}},
		{[]string{"a/00.jsonl", "nosuch", "--format", "htm", "-o", "a/00.jsonl"}, []string{"nosuch: no such file",
			"--format htm: want one of table, md, html, json; did you mean html?",
			"--out: a/00.jsonl is a file to read"}},
	} {
		got := neokvRun(t, nil, append([]string{"compare"}, x.args...)...)
		for _, want := range x.want {
			if got.status != statusInvalid || !strings.Contains(got.stderr, want) {
				t.Errorf("%q: %+v, want %q", x.args, got, want)
			}
		}
	}
}

// TestCompareOfCopies: a run counts once, however often and under whichever name it is given.
func TestCompareOfCopies(t *testing.T) {
	t.Chdir(t.TempDir())
	writeRunsOf(t, "ab")
	for _, side := range []string{"a/00", "b/01"} {
		text, err := os.ReadFile(side + ".jsonl")
		if err != nil {
			t.Fatal(err)
		}
		for i := range 7 {
			writeFile(t, fmt.Sprintf("%s-%d.jsonl", side, i), string(text))
		}
	}
	got := neokvRun(t, nil, "compare", "a", "b")
	if got.status != statusDone || strings.Contains(got.stdout, "better") ||
		!strings.Contains(got.stdout, "is the same run as a/00") {
		t.Errorf("status %d, stderr %s, stdout\n%s", got.status, got.stderr, got.stdout)
	}
	if got := neokvRun(t, nil, "compare", "a", "a"); got.status != statusInvalid ||
		!strings.Contains(got.stderr, "cannot be on both sides") {
		t.Errorf("a side and itself: %+v", got)
	}
}

// TestCompareOfUnsoundRuns: runs that were cut short or disturbed are refused, and marked if somebody insists.
func TestCompareOfUnsoundRuns(t *testing.T) {
	for want, change := range map[string]string{
		"b/03.jsonl: the run was interrupted":             `"interrupted":true,`,
		"b/03.jsonl: the run failed: target dead":         `"failure":"target dead",`,
		"b/03.jsonl: at 2.0 s kill 2: no such store":      `"events":[{"at":2,"do":"kill 2","error":"no such store"}],`,
		"b/03.jsonl: faults were brought about: 1 event,": "",
	} {
		t.Chdir(t.TempDir())
		writeRunsOf(t, strings.Repeat("ab", 8))
		edit(t, "b/03.jsonl", summaryOfRun, summaryOfRun+change)
		if change == "" {
			for _, side := range []string{"a", "b"} {
				found, err := filepath.Glob(side + "/*")
				if err != nil {
					t.Fatal(err)
				}
				for _, path := range found {
					edit(t, path, `"seed":`,
						`"schedule":{"sha256":"00","bytes":9,"text":"2s kill 2","events":1,"faults":1},"seed":`)
				}
			}
		}
		got := neokvRun(t, nil, "compare", "a", "b")
		if got.status != statusInvalid || !strings.Contains(got.stderr, "neokv: "+want) {
			t.Errorf("%s: status %d, stderr %s, stdout\n%s", want, got.status, got.stderr, got.stdout)
		}
		got = neokvRun(t, nil, "compare", "a", "b", "--anyway")
		head, _, _ := strings.Cut(got.stdout, "\nthroughput")
		if got.status != statusDone || !strings.Contains(head, "compared all the same: "+want) {
			t.Errorf("%s: status %d, stderr %s, stdout\n%s", want, got.status, got.stderr, got.stdout)
		}
	}
}

// TestCompareOfRunsThatDoNotAlternate: they get no verdict.
func TestCompareOfRunsThatDoNotAlternate(t *testing.T) {
	t.Chdir(t.TempDir())
	writeRunsOf(t, "aaaaaaaabbbbbbbb")
	got := neokvRun(t, nil, "compare", "a", "b")
	if got.status != statusDone ||
		!strings.HasPrefix(got.stdout, "cannot tell: the runs of A and B did not alternate") ||
		strings.Contains(got.stdout, "better") || !strings.Contains(got.stdout, "\nthis would tell: run neokv bench") ||
		!regexp.MustCompile(`throughput +1,0[0-9]+ ops/s +2,0[0-9]+ ops/s +(x2|\+10)`).MatchString(got.stdout) {
		t.Errorf("status %d, stderr %s, stdout\n%s", got.status, got.stderr, got.stdout)
	}
}
