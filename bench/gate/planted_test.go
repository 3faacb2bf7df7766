package gate

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checkPlanted makes TestPlanted build programs with the mistakes, and check them. -run TestPlanted/NAME chooses one.
var checkPlanted = flag.Bool("gate.planted", false, "build neokv with planted mistakes, and check that")

// A planted mistake is a change of one place in this module's source, with which a test builds a neokv. No other build
// can make the mistake.
var planted = []struct {
	name     string
	file     string // from the root of the module
	was, now string // was is there once; without it the file is new and is testdata/NAME.go
	part     string // of the check that finds the mistake
	figure   string // is worse
}{
	// It syncs what an entry has changed, although the entry itself is in the log, synced. That is exactly one sync
	// more per entry with one store and one client; other syncs of several may be one.
	{"more-syncs", "neokv/internal/region/apply.go", "\n\tif err := b.Commit(false)", "\n\tif err := b.Commit(true)",
		"counts", "syncs"},
	// It adds a record that nobody reads to each batch. With what frames it, the log grows by 2.1 to 2.3 %.
	{"more-bytes", "neokv/internal/engine/batch.go",
		"return e.viewPool.change(func() error { return e.db.Apply(b, opts) })",
		`if err := b.LogData(make([]byte, b.Len()/57), nil); err != nil {
		return err
	}
	return e.viewPool.change(func() error { return e.db.Apply(b, opts) })`, "counts", "WAL bytes"},
	// It wastes 5 % of its CPU time.
	{"slower", "cmd/neokv/slower.go", "", "", "timed", "CPU"},
}

// TestPlanted: the places of the planted mistakes are in the source. With -gate.planted the gate finds each mistake, as
// a regression of the figure that it changes, and the reverse of those that change counts as a gain.
func TestPlanted(t *testing.T) {
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	baseline := filepath.Join(root, "bench", "gate", "baseline.json")
	for _, m := range planted {
		t.Run(m.name, func(t *testing.T) {
			dir := t.TempDir()
			source := filepath.Join(root, m.file)
			changed := filepath.Join(root, "bench", "gate", "testdata", m.name+".go")
			if m.was != "" {
				text, err := os.ReadFile(source)
				if n := strings.Count(string(text), m.was); err != nil || n != 1 {
					t.Fatalf("%s has %d times %q, want once: %v", m.file, n, m.was, err)
				}
				changed = filepath.Join(dir, "changed.go")
				write(t, changed, strings.Replace(string(text), m.was, m.now, 1))
			}
			if !*checkPlanted {
				return
			}
			replace, err := json.Marshal(map[string]map[string]string{"Replace": {source: changed}})
			if err != nil {
				t.Fatal(err)
			}
			overlay := filepath.Join(dir, "overlay")
			program, clean := filepath.Join(dir, "neokv"), filepath.Join(dir, "clean")
			write(t, overlay, string(replace))
			execute(t, root, 0, "go", "build", "-buildvcs=false", "-overlay", overlay, "-o", program, "./cmd/neokv")
			execute(t, root, 0, "go", "build", "-buildvcs=false", "-o", clean, "./cmd/neokv")
			says := execute(t, dir, 3, program, "check", "--baseline", baseline, "--only", m.part, "--against",
				"program="+clean, "--inconclusive", "fail")
			if !regexp.MustCompile(m.figure + " .*: worse\n").MatchString(says) {
				t.Errorf("no case in which %s: worse", m.figure)
			}
			if m.part != "counts" {
				return
			}
			execute(t, dir, 0, program, "check", "--renew", "planted.json", "--runs", "6")
			says = execute(t, dir, 0, clean, "check", "--baseline", "planted.json", "--only", "counts")
			if !regexp.MustCompile(m.figure + " .*: better\n").MatchString(says) {
				t.Errorf("no case in which %s: better", m.figure)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}

// execute runs a program to its end and returns its standard output.
func execute(t *testing.T, dir string, status int, name string, args ...string) string {
	t.Helper()
	c := exec.CommandContext(t.Context(), name, args...)
	c.Dir, c.Stderr = dir, os.Stderr
	out, err := c.Output()
	t.Logf("%s: %v\n%s", c, err, out)
	if c.ProcessState.ExitCode() != status {
		t.Fatalf("want status %d", status)
	}
	return string(out)
}
