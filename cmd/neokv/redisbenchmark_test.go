//go:build redisserver

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"neokv.dev/bench/redisbenchmark"
)

// The whole verb, with real programs.
func TestRedisBenchmark(t *testing.T) {
	if testing.Short() {
		t.Skip("what its processes do, those of other tests do, too")
	}
	t.Setenv(programEnv, "1") // the NeoKV that the verb starts is this program
	dir := t.TempDir()
	r := neokvRun(t, nil, "redis-benchmark", "--rounds", "1", "--cluster", "--spread", "500ms", "--durability", "none",
		"--profile", "small", "--dir", dir, "--format", "json", "--", "-t", "ping_mbulk,set,lrange_100", "-n", "300",
		"-c", "6", "-r", "100")
	if r.status != statusDone {
		t.Fatalf("status %d: %s", r.status, r.stderr)
	}
	var f redisbenchmark.Findings
	if err := json.Unmarshal([]byte(r.stdout), &f); err != nil {
		t.Fatal(err)
	}
	if f.Rounds != 1 || len(f.Pairs) != 2 || len(f.Hidden) < 3 || f.Tool == "" {
		t.Errorf("findings %+v", f)
	}
	for _, p := range f.Pairs {
		if p.NeoKV.Version == "" || p.Peer.Version == "" || p.NeoKV.Version == p.Peer.Version ||
			!strings.Contains(p.NeoKV.Started, "engine.wal_sync=none") ||
			!strings.Contains(p.Peer.Started, "--appendonly no") {
			t.Errorf("%s: %+v, %+v", p.NeoKV.Name, p.NeoKV, p.Peer)
		}
		for _, test := range slices.Concat(p.Tests, p.Spread) {
			for _, a := range []redisbenchmark.SideFigures{test.NeoKV, test.Peer} {
				if len(a.PerSecond) != 1 || slices.Min(a.PerSecond) <= 0 || len(a.P99) != 1 || a.Errors != nil {
					t.Errorf("%s: %s: %+v", p.NeoKV.Name, test.Test, a)
				}
			}
			// A run of 300 commands in a cluster ends before redis-benchmark looks.
			short := test.TooShort && p.Threads == 3
			if (test.Ratio == nil) != short || !short && (test.Ratio.ExcludesOne() || test.Ratio.Interval != nil) {
				t.Errorf("%s: %s: ratio %+v, too short %v, want a ratio without interval", p.NeoKV.Name, test.Test,
					test.Ratio, test.TooShort)
			}
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
}

// Where Valkey's programs are installed and Redis' are not, those run.
func TestRedisBenchmarkOfValkey(t *testing.T) {
	if testing.Short() {
		t.Skip("what its processes do, those of other tests do, too")
	}
	bin := t.TempDir()
	for _, name := range []string{"benchmark", "server"} {
		path, err := exec.LookPath("redis-" + name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(path, filepath.Join(bin, "valkey-"+name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin)
	t.Setenv(programEnv, "1")
	r := neokvRun(t, nil, "redis-benchmark", "--rounds", "1", "--spread", "0", "--durability", "none", "--profile",
		"small", "--dir", t.TempDir(), "--format", "json", "--", "-t", "set", "-n", "10000")
	var f redisbenchmark.Findings
	if err := json.Unmarshal([]byte(r.stdout), &f); r.status != statusDone || err != nil || len(f.Pairs) != 1 ||
		len(f.Pairs[0].Tests[0].Peer.PerSecond) != 1 {
		t.Errorf("status %d: %s, %+v, %v", r.status, r.stderr, f, err)
	}
}

// Ctrl-C in the second round, which goes backwards, leaves the figures of the first.
func TestRedisBenchmarkIsInterrupted(t *testing.T) {
	t.Setenv(programEnv, "1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var stdout bytes.Buffer
	stderr := &atLine{line: "round 2 of 9: neokv", do: cancel}
	dir := t.TempDir()
	status := run(ctx, process{nil, strings.NewReader(""), &stdout, stderr},
		[]string{"redis-benchmark", "--rounds", "9", "--spread", "0", "--profile", "small", "--dir", dir, "--format",
			"md", "--", "-t", "set", "-n", "10000"})
	if status != statusFailed || !strings.Contains(stdout.String(), "1 round, ") ||
		!strings.HasSuffix(stderr.String(), "round 2 of 9: redis-server\nround 2 of 9: neokv\nneokv: interrupted\n") {
		t.Errorf("status %d, %s, %s", status, stdout.String(), stderr.String())
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) > 0 {
		t.Errorf("%d files are left, %v", len(entries), err)
	}
}

// atLine calls do when a line is written that begins in a certain way.
type atLine struct {
	bytes.Buffer
	line string
	do   func()
}

func (a *atLine) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), a.line) {
		a.do()
	}
	return a.Buffer.Write(p)
}

// A program that is missing is said in one line that says how to install it.
func TestRedisBenchmarkIsMissing(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	r := neokvRun(t, nil, "redis-benchmark")
	const want = "neokv: redis-benchmark is missing: apt-get install redis-tools (macOS: brew install redis)\n" +
		"neokv: redis-server is missing: apt-get install redis-server (macOS: brew install redis)\n"
	if r.status != statusFailed || r.stdout != "" || r.stderr != want {
		t.Errorf("status %d, %q, want %q", r.status, r.stderr, want)
	}
}
