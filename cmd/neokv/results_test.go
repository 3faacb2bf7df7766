package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// resultLines returns the lines of a small result file: header, load, three seconds of run, summary.
func resultLines(t *testing.T) []string {
	t.Helper()
	text, err := os.ReadFile("../../results/testdata/result.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	return strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
}

func writeFile(t *testing.T, path string, lines ...string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte(strings.Join(lines, "")), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestResults(t *testing.T) {
	lines := resultLines(t)
	t.Chdir(t.TempDir())
	writeFile(t, "a.jsonl", lines...)
	writeFile(t, "b.jsonl", lines...)
	for _, c := range []struct {
		args   string
		stdout string // a part of it
		files  string
	}{
		{"a.jsonl", "ycsb-a: 50 clients, pipeline 1, open loop at 14,000 ops/s", ""},
		{"a.jsonl b.jsonl --format table", "\n\n3 stores and 8 regions", ""},
		{"a.jsonl --format hgrm", "#[a.jsonl: ycsb-a.update.service]\n       Value     Percentile", ""},
		{"a.jsonl --format hgrm --out p/", "", "p/a.ycsb-a.read.response.hgrm p/a.ycsb-a.read.service.hgrm " +
			"p/a.ycsb-a.total.response.hgrm p/a.ycsb-a.total.service.hgrm p/a.ycsb-a.update.response.hgrm " +
			"p/a.ycsb-a.update.service.hgrm"},
		{"a.jsonl --format hlog", "\nTag=ycsb-a.read.response,0.0", ""},
		{"a.jsonl b.jsonl --format hlog -o l/", "", "l/a.hlog l/b.hlog"},
		{"a.jsonl b.jsonl --format benchfmt", "\nBenchmarkWork 2000 0.15 syncs/op", ""},
		{"a.jsonl b.jsonl --format csv -o all.csv", "", "all.csv"},
	} {
		got := neokvRun(t, nil, append([]string{"results"}, strings.Fields(c.args)...)...)
		if got.status != statusDone || got.stderr != "" || !strings.Contains(got.stdout, c.stdout) ||
			c.stdout == "" && got.stdout != "" {
			t.Errorf("neokv results %s: status %d, stderr %q, stdout\n%s", c.args, got.status, got.stderr, got.stdout)
		}
		var files []string
		for _, pattern := range []string{"*.csv", "*/*"} {
			found, err := filepath.Glob(pattern)
			if err != nil {
				t.Fatal(err)
			}
			files = append(files, found...)
		}
		if want := strings.Fields(c.files); !slices.Equal(files, want) {
			t.Errorf("neokv results %s wrote %v; want %v", c.args, files, want)
		}
		for _, name := range files {
			text, err := os.ReadFile(name)
			if err != nil || len(text) == 0 {
				t.Errorf("%s: %d bytes, %v", name, len(text), err)
			}
			os.Remove(name)
		}
	}
}

// A result that was cut short is converted as far as it goes, and the exit status says that it is invalid.
func TestResultsCutShort(t *testing.T) {
	cut := resultLines(t)
	path := writeFile(t, filepath.Join(t.TempDir(), "cut.jsonl"), append(cut[:4:4], cut[4][:40])...)
	for _, format := range resultForms {
		got := neokvRun(t, nil, "results", path, "--format", format)
		if want := "neokv: " + path + ": line 5 is cut off and left out\nneokv: " + path +
			": no summary: the run did not come to its end\n"; got.status != statusInvalid || got.stderr != want ||
			got.stdout == "" {
			t.Errorf("%s: status %d, stderr %q, stdout\n%s", format, got.status, got.stderr, got.stdout)
		}
		if format == "table" && (!strings.Contains(got.stdout, "\ninterrupted: ") ||
			!strings.Contains(got.stdout, "500 ms")) {
			t.Errorf("stdout\n%s\nwant what the intervals add up to, marked as interrupted", got.stdout)
		}
	}
}

// Everything that is wrong is said at once, and nothing is written.
func TestResultsRefuses(t *testing.T) {
	lines := resultLines(t)
	t.Chdir(t.TempDir())
	writeFile(t, "good.jsonl", lines...)
	writeFile(t, "text.jsonl", "hello\n")
	writeFile(t, "newer.jsonl", strings.Replace(lines[0], `"format":4`, `"format":5`, 1))
	writeFile(t, "older.jsonl", strings.Replace(lines[0], `"format":4`, `"format":3`, 1))
	writeFile(t, "broken.jsonl", lines[0], "{}\n", lines[1], "{\n", lines[2])
	writeFile(t, "empty.jsonl")
	writeFile(t, "begun.jsonl", lines[0], lines[1])
	if err := os.Mkdir("folder", 0o755); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ args, want string }{
		{"", "neokv: results: 0 arguments, want the name of a result file"},
		{"none.jsonl text.jsonl newer.jsonl older.jsonl broken.jsonl empty.jsonl folder good.jsonl --format hgrn " +
			"--out out/",
			`neokv: --format hgrn: want one of table, hgrm, hlog, benchfmt, csv; did you mean hgrm?
neokv: none.jsonl: no such file or directory
neokv: text.jsonl: line 1: not the header of a result record
neokv: newer.jsonl: line 1: result format 5, this program reads 4
neokv: older.jsonl: line 1: result format 3, this program reads 4
neokv: broken.jsonl: line 2: neither an interval nor a summary
neokv: broken.jsonl: line 4: unexpected end of JSON input
neokv: empty.jsonl: empty record
neokv: folder: a folder, want a result file`},
		{"good.jsonl good.jsonl --format hlog -o x",
			"neokv: --format hlog: 2 results need a folder: want --out folder/"},
		{"good.jsonl folder/../good.jsonl --format csv -o out/", "neokv: --out: two results would be out/good.csv"},
		{"good.jsonl --format csv -o folder/../good.jsonl", "neokv: --out: folder/../good.jsonl is a result to read"},
		{"begun.jsonl --format hgrm", "neokv: begun.jsonl: no histogram of the measured part"},
		{"begun.jsonl --format hlog", "neokv: begun.jsonl: no histogram of the measured part"},
		{"begun.jsonl --format benchfmt", "neokv: begun.jsonl: nothing was measured"},
	} {
		got := neokvRun(t, nil, append([]string{"results"}, strings.Fields(c.args)...)...)
		if got.status != statusInvalid || strings.TrimSpace(got.stderr) != c.want || got.stdout != "" {
			t.Errorf("neokv results %s: status %d, stdout %q, stderr\n%s\nwant status 2 and\n%s", c.args, got.status,
				got.stdout, got.stderr, c.want)
		}
	}
	if _, err := os.Stat("out"); err == nil {
		t.Error("wrote to out/")
	}
	if text, err := os.ReadFile("good.jsonl"); err != nil || string(text) != strings.Join(lines, "") {
		t.Errorf("good.jsonl changed: %v", err)
	}
}

// TestFilesOfOtherVerbs: every verb that reads a file says so if another verb has written it.
func TestFilesOfOtherVerbs(t *testing.T) {
	lines := resultLines(t)
	t.Chdir(t.TempDir())
	files := map[string]string{
		"bench":   writeFile(t, "bench.jsonl", lines...),
		"ab":      writeFile(t, "ab.jsonl", `{"blocks_format":1}`+"\n"),
		"tune":    writeFile(t, "tune.jsonl", `{"tuning_format":1}`+"\n"),
		"history": writeFile(t, "history.jsonl", `{"history_format":2,"header":{"format":3}}`+"\n"),
		"check":   writeFile(t, "check.json", "{\n  \"baseline_format\": 1\n}\n"),
	}
	for reader, args := range map[string][]string{
		"bench":   {"results"},
		"ab":      {"compare"},
		"tune":    {"tune", "--resume"},
		"history": {"history", "show"},
		"check":   {"check", "--baseline"},
	} {
		for writer, path := range files {
			got := neokvRun(t, nil, append(args, path)...)
			if want := fmt.Sprintf("neokv: %s: this is a file of %s: neokv ", path, writer); writer != reader &&
				(got.status != statusInvalid || !strings.Contains(got.stderr, want)) {
				t.Errorf("neokv %v of a file of %s: status %d, stderr %q; want %q", args, writer, got.status,
					got.stderr, want)
			}
			if writer == reader && strings.Contains(got.stderr, "this is a file of") {
				t.Errorf("neokv %v of a file of its own: %q", args, got.stderr)
			}
		}
	}
}

// TestOutSpares: nothing that has content is overwritten without --force.
func TestOutSpares(t *testing.T) {
	lines := resultLines(t)
	t.Chdir(t.TempDir())
	in := writeFile(t, "in.jsonl", lines...)
	for _, args := range [][]string{
		append([]string{"bench", "--mem", "--out", "precious"}, short...),
		{"ab", "--b", "raft.batch_max_ops=1", "--mem", "--out", "precious"},
		{"tune", "--knob", "raft.max_inflight=1,2", "--out", "precious"},
		{"results", in, "--format", "csv", "-o", "precious"},
		{"report", in, "--out", "precious"},
	} {
		writeFile(t, "precious", "text")
		got := neokvRun(t, nil, args...)
		text, err := os.ReadFile("precious")
		if want := "neokv: --out: precious exists; --force writes over it"; got.status != statusInvalid ||
			!strings.Contains(got.stderr, want) || err != nil || string(text) != "text" {
			t.Errorf("%v: status %d, stderr %q, file %q; want %q and the file as it was", args, got.status, got.stderr,
				text, want)
		}
	}
	got := neokvRun(t, nil, "results", in, "--format", "csv", "-o", "precious", "--force")
	if got.status != statusDone {
		t.Errorf("with --force: %d, %s", got.status, got.stderr)
	}
	writeFile(t, "empty")
	if got := neokvRun(t, nil, "results", in, "--format", "csv", "-o", "empty"); got.status != statusDone {
		t.Errorf("over an empty file, as mktemp makes: %d, %s", got.status, got.stderr)
	}
}

// TestControlCharacters: what a server or a file sends does not reach the terminal as a command to it.
func TestControlCharacters(t *testing.T) {
	lines := resultLines(t)
	t.Chdir(t.TempDir())
	path := writeFile(t, "run.jsonl", lines...)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	evil := strings.ReplaceAll(string(text), `"first_errors":{`,
		`"first_errors":{"EVIL":"\u001b]0;title\u0007\u009b31m",`)
	if evil == string(text) {
		t.Fatal("the result has no errors")
	}
	writeFile(t, "evil.jsonl", evil)
	got := neokvRun(t, nil, "results", "evil.jsonl")
	if want := `first EVIL: \x1b]0;title\a\u009b31m`; got.status != statusDone || !strings.Contains(got.stdout, want) ||
		strings.ContainsAny(got.stdout, "\x1b\a\u009b") {
		t.Errorf("status %d, stdout\n%q\nwant %q", got.status, got.stdout, want)
	}
}
