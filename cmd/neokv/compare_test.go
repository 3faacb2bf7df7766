package main

import (
	"os"
	"strings"
	"testing"
)

// TestCompareOfAnEditedWorkload: a file of the same name with other contents is another load, for compare, the report and
// a history.
func TestCompareOfAnEditedWorkload(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, mix := range map[string]string{
		"before.jsonl": "mix:\n  - do: SET <key> <value>\n",
		"after.jsonl":  "mix:\n  - do: SET <key> <value>\n    share: 0.5\n  - do: GET <key>\n    share: 0.5\n",
	} {
		writeFile(t, "mine.yaml", "records: [{key: 'k<n>', count: 9}]\n", mix)
		got := neokvRun(t, nil, append([]string{"bench", "--mem", "--workload", "mine.yaml", "--seed", "1", "--out", name},
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
