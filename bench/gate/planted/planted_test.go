package planted

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/bench/gate"
	"neokv.dev/results"
)

// What makes TestPlanted build programs with the mistakes, and check them.
var (
	trials = flag.Int("gate.planted", 0, "build neokv with planted mistakes, and make so many trials of each")
	only   = flag.String("gate.kinds", "", "the kinds to try, between commas; empty for all")
	budget = flag.Duration("gate.budget", 3*time.Minute, "of the timed part of each trial")
)

// file has the trials of all sittings.
const file = "trials.jsonl"

// TestPlanted: the places of the planted mistakes are in the source. With -gate.planted it makes trials, and appends
// each to the file at once. It fails where a kind has all the trials that it needs, and too few of them caught it.
func TestPlanted(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	var kinds []Kind
	for _, k := range Kinds() {
		if _, err := k.Overlay(root); err != nil {
			t.Error(err)
		}
		if *only == "" || slices.Contains(strings.Split(*only, ","), k.Name) {
			kinds = append(kinds, k)
		}
	}
	if *trials == 0 || t.Failed() {
		return
	}
	dir, programs := t.TempDir(), map[string]string{}
	for _, k := range append(kinds, Kind{Name: "clean"}) {
		if programs[k.Name], err = k.Build(t.Context(), root, dir); err != nil {
			t.Fatal(err)
		}
	}
	for n := range *trials {
		for _, k := range kinds {
			one, err := try(t, root, k, programs[k.Name], programs["clean"])
			if err == nil {
				err = keep(one)
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("trial %d of %d, %s: %s %q", n+1, *trials, k.Name, one.Verdict, one.Worse)
		}
	}
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	all, err := ReadTrials(f)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("all trials:\n%s", Table(all))
	for _, k := range kinds {
		if n, caught := k.tally(all); n >= k.Of && caught*k.Of < k.Wanted*n || k.Figure == "" && caught > 0 {
			t.Errorf("%s: %d of %d trials", k.Name, caught, n)
		}
	}
}

// TestKindsCompile: what each mistake makes of the source compiles. Only the changed packages are checked, for types,
// with all that they import as it is built already.
func TestKindsCompile(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("slower.go needs Linux")
	}
	root, err := filepath.Abs(filepath.Join("..", "..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	changed := map[string]map[string]map[string]string{} // text by file by kind by folder
	for _, k := range Kinds() {
		texts, err := k.Overlay(root)
		if err != nil {
			t.Fatal(err)
		}
		for file, text := range texts {
			dir := filepath.Dir(file)
			if changed[dir] == nil {
				changed[dir] = map[string]map[string]string{}
			}
			if changed[dir][k.Name] == nil {
				changed[dir][k.Name] = map[string]string{}
			}
			changed[dir][k.Name][filepath.Base(file)] = text
		}
	}
	for dir, kinds := range changed {
		c := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-json=ImportPath,Export,GoFiles", "./"+dir)
		c.Dir = root
		out, err := c.Output()
		if err != nil {
			t.Fatalf("%s: %v", c, err)
		}
		exports, files := map[string]string{}, []string(nil)
		for d := json.NewDecoder(bytes.NewReader(out)); ; {
			var p struct {
				ImportPath, Export string
				GoFiles            []string
			}
			if err := d.Decode(&p); err == io.EOF {
				break
			} else if err != nil {
				t.Fatal(err)
			}
			exports[p.ImportPath], files = p.Export, p.GoFiles // the package itself comes last
		}
		set := token.NewFileSet()
		imports := importer.ForCompiler(set, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })
		for kind, texts := range kinds {
			var parsed []*ast.File
			for _, name := range slices.Compact(slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(files),
				maps.Keys(texts))))) {
				var source any // nil is the file of the tree
				if text, is := texts[name]; is {
					source = text
				}
				file, err := parser.ParseFile(set, filepath.Join(root, dir, name), source, 0)
				if err != nil {
					t.Fatalf("%s: %v", kind, err)
				}
				parsed = append(parsed, file)
			}
			check := types.Config{Importer: imports, Error: func(err error) { t.Errorf("%s: %v", kind, err) }}
			_, _ = check.Check(dir, set, parsed, nil) // Error has told
		}
	}
}

// try checks a program once.
func try(t *testing.T, root string, k Kind, program, clean string) (one Trial, err error) {
	h := results.NewHeader()
	one = Trial{At: h.Started, Kind: k.Name, Machine: h.Machine, Load: loadAverage(), Verdict: gate.Pass}
	if one.Commit, err = commit(t, root); err != nil {
		return one, err
	}
	for _, part := range k.Parts {
		args := []string{"check", "--baseline", filepath.Join(root, "bench", "gate", "baseline.json"), "--only", part,
			"--format", "json"}
		if part == "timed" {
			one.Budget = *budget
			args = append(args, "--against", "program="+clean, "--budget", budget.String())
		}
		c := exec.CommandContext(t.Context(), program, args...)
		var said bytes.Buffer
		c.Dir, c.Stderr = t.TempDir(), &said
		out, err := c.Output()
		if exit := new(exec.ExitError); err != nil && !(errors.As(err, &exit) && exit.ExitCode() == 3) {
			return one, fmt.Errorf("%s: %w: %s", c, err, said.Bytes())
		}
		var o gate.Outcome
		if err := json.Unmarshal(out, &o); err != nil {
			return one, fmt.Errorf("%s: %w", c, err)
		}
		one.add(&o)
	}
	return one, nil
}

// commit returns that of the source; what else has changed there, but for trials, is said by "-dirty".
func commit(t *testing.T, root string) (string, error) {
	name, err := exec.CommandContext(t.Context(), "git", "-C", root, "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "", fmt.Errorf("git rev-parse: %w", err)
	}
	changed, err := exec.CommandContext(t.Context(), "git", "-C", root, "status", "--porcelain", "--", ".",
		":!bench/gate/planted/"+file, ":!docs/benchmarks.md").Output()
	if err != nil {
		return "", fmt.Errorf("git status: %w", err)
	}
	if len(changed) > 0 {
		return strings.TrimSpace(string(name)) + "-dirty", nil
	}
	return strings.TrimSpace(string(name)), nil
}

// keep appends a trial to the file.
func keep(one Trial) (err error) {
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o666)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return json.NewEncoder(f).Encode(one)
}

// loadAverage returns that of the last minute, 0 where the system does not tell it.
func loadAverage() (load float64) {
	text, err := os.ReadFile("/proc/loadavg")
	if err == nil {
		_, err = fmt.Sscan(string(text), &load)
	}
	if err != nil {
		return 0
	}
	return load
}

// TestCommittedTrials: the committed file can be read, and its trials are of kinds that there are.
func TestCommittedTrials(t *testing.T) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	all, err := ReadTrials(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range all {
		if !slices.ContainsFunc(Kinds(), func(k Kind) bool { return k.Name == one.Kind }) || one.Commit == "" {
			t.Errorf("%+v: no such kind, or no commit", one)
		}
	}
}

// TestTable: a trial counts for a kind if the figure that the mistake makes worse was worse.
func TestTable(t *testing.T) {
	all := []Trial{
		{Kind: "flushes", Verdict: gate.Regression, Worse: []string{"x P=1: flush bytes", "x P=1: WAL bytes"}},
		{Kind: "flushes", Verdict: gate.Regression, Worse: []string{"x P=1: WAL bytes"}},
		{Kind: "flushes", Verdict: gate.Inconclusive},
		{Kind: "same", Verdict: gate.Pass}, {Kind: "same", Verdict: gate.Inconclusive},
	}
	table := Table(all)
	for _, want := range []string{
		"| WAL bytes 2 of 3, flush bytes 1 of 3 | 1 of 3 | at least ", "|  | 0 of 2 | at most 78 % | 0 of 60 |",
	} {
		if !strings.Contains(table, want) {
			t.Errorf("no %q in:\n%s", want, table)
		}
	}
	for _, text := range []string{"{}", `{"kind":`, `{"build":{"go":"go1"},"verdict":"pass"}`} {
		if _, err := ReadTrials(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
