package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"neokv.dev/results"
)

// short are the flags of a run that takes about a second.
var short = []string{"--profile", "small", "--duration", "400ms", "--warmup", "100ms", "--records", "200", "--clients",
	"4"}

// readResult reads the result file that the last line of standard output names.
func readResult(t *testing.T, stdout string) *results.Result {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(stdout, "\n"), "\n")
	f, err := os.Open(lines[len(lines)-1])
	if err != nil {
		t.Fatalf("the last line of the output is no result file: %v\n%s", err, stdout)
	}
	defer f.Close()
	r, err := results.Read(f)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestBenchBootsACluster(t *testing.T) {
	t.Chdir(t.TempDir())
	t.Setenv("TMPDIR", t.TempDir())
	got := neokvRun(t, []string{"NEOKV_ENGINE_BLOOM_BITS=12"},
		append([]string{"bench", "--seed", "7", "--regions", "3"}, short...)...)
	if got.status != statusDone {
		t.Fatalf("status %d, stderr %q", got.status, got.stderr)
	}
	if !regexp.MustCompile(`\nneokv-ycsb-a-\d{8}T\d{6}Z\.jsonl\n$`).MatchString(got.stdout) ||
		!strings.Contains(got.stdout, "\nycsb-a: 4 clients") {
		t.Errorf("stdout\n%s\nwant a table, and the file's name in the last line", got.stdout)
	}
	if !strings.Contains(got.stderr, "neokv: booted 3 stores with 3 regions in ") ||
		!strings.Contains(got.stderr, "\nrun ") {
		t.Errorf("stderr %q: want the boot and the progress of the run", got.stderr)
	}
	r := readResult(t, got.stdout)
	h := r.Header
	if h.Profile != "small" || h.Settings["engine.bloom_bits"] != "12" || h.Settings["cluster.regions"] != "3" ||
		h.Settings["load.seed"] != "" {
		t.Errorf("header: profile %s, settings %v", h.Profile, h.Settings)
	}
	if c := h.Cluster; !c.InProcess || c.Stores != 3 || c.Regions != 3 || c.Sync != "always" ||
		c.Transport != "memory" ||
		c.Data.FileSystem == "" || c.Data.SyncP50 == 0 {
		t.Errorf("header: cluster %+v", c)
	}
	if l := h.Groups[0]; l.Workload != "ycsb-a" || h.Seed != 7 || l.Records != 200 || l.ValueBytes != "100" ||
		h.Duration != 400*time.Millisecond {
		t.Errorf("header: %s, seed %d, load %+v", h.Duration, h.Seed, l)
	}
	if r.Summary == nil || r.Summary.Groups[0].Total.Count == 0 || r.Summary.Groups[0].Total.Errors != 0 {
		t.Errorf("summary %+v: want operations and no errors", r.Summary)
	}
	// The target's own counters are in the intervals and in the summary.
	for _, name := range []string{"process_procs", "row_cache_hits", "row_cache_bytes", "raft_commands",
		"keyspace_hits"} {
		if n := r.Summary.Work[name]; n == 0 {
			t.Errorf("summary: no %s in %v", name, r.Summary.Work)
		}
	}
	if last := r.Intervals[len(r.Intervals)-1].Work; last["process_procs"] == 0 || h.Machine.GOMAXPROCS == 0 ||
		h.Machine.GCPercent == 0 {
		t.Errorf("interval %v, machine %+v: want GOMAXPROCS in both", last, h.Machine)
	}
	if !strings.Contains(got.stdout, "row cache answered ") {
		t.Errorf("the table does not say what the row cache answered:\n%s", got.stdout)
	}
	if left, err := os.ReadDir(os.TempDir()); err != nil || len(left) != 0 {
		t.Errorf("left behind in %s: %v, %v", os.TempDir(), left, err)
	}
}

// The header says what is in force, not what was asked for: a data folder has its shape and the place of its logs.
func TestBenchHeaderIsOfTheClusterThatBooted(t *testing.T) {
	dir, logs := filepath.Join(t.TempDir(), "data"), filepath.Join(t.TempDir(), "logs")
	t.Chdir(t.TempDir())
	bench := func(args ...string) results.Header {
		got := neokvRun(t, nil, append(append([]string{"bench", "--dir", dir, "--workload", "set"}, args...),
			short...)...)
		if got.status != statusDone {
			t.Fatalf("status %d, stderr %q", got.status, got.stderr)
		}
		return readResult(t, got.stdout).Header
	}
	first := bench("--set", "engine.wal_dir="+logs, "--stores", "2", "--regions", "3", "--out", "first.jsonl")
	again := bench("--out", "again.jsonl")
	for _, h := range []results.Header{first, again} {
		if h.Settings["engine.wal_dir"] != logs || h.Settings["cluster.stores"] != "2" ||
			h.Settings["cluster.regions"] != "3" ||
			h.Cluster.Stores != 2 || h.Cluster.Regions != 3 || h.Cluster.Logs.Path != logs ||
			h.Cluster.Data.Path != dir {
			t.Errorf("header: cluster %+v, settings %v; want 2 stores, 3 regions, logs in %s", h.Cluster, h.Settings,
				logs)
		}
	}
}

func TestBenchInMemoryIsNotDurable(t *testing.T) {
	out := filepath.Join(t.TempDir(), "mine.jsonl")
	got := neokvRun(t, nil, append([]string{"bench", "--mem", "--workload", "set", "--rate", "500", "--out", out},
		short...)...)
	first, _, _ := strings.Cut(got.stdout, "\n")
	if got.status != statusDone || !strings.Contains(first, "not durable") ||
		!strings.HasSuffix(got.stdout, "\n"+out+"\n") {
		t.Errorf("status %d, stdout\n%s\nstderr %q; want `not durable` in the first line and %s in the last",
			got.status,
			got.stdout, got.stderr, out)
	}
	r := readResult(t, got.stdout)
	if !r.Header.Cluster.InMemory || r.Header.Groups[0].Rate != "500" || r.Header.Seed == 0 ||
		r.Summary.Groups[0].Total.Response == nil {
		t.Errorf("header %+v, total %+v: want memory, an open loop of 500/s with response times, a seed", r.Header,
			r.Summary.Groups[0].Total)
	}
}

func TestBenchTarget(t *testing.T) {
	s := startServe(t, "--mem", "--port", "0")
	out := filepath.Join(t.TempDir(), "target.jsonl")
	got := neokvRun(t, nil, append([]string{"bench", "--workload", "get", "--target", "127.0.0.1:" + s.ready[0],
		"--out",
		out}, short...)...)
	s.stop(t)
	if got.status != statusDone {
		t.Fatalf("status %d, stderr %q", got.status, got.stderr)
	}
	h := readResult(t, got.stdout).Header
	if in := h.Target.Info; in["in_memory"] != "1" || in["stores"] != "3" || in["wal_sync"] != "always" ||
		in["store"] != "" {
		t.Errorf("header: target's INFO %v; want what is in force there", in)
	}
	if h.Cluster.InProcess || len(h.Settings) != 0 || !h.Target.Cluster || len(h.Target.Nodes) != 3 {
		t.Errorf("header: cluster %+v, settings %v, target %+v; want a Redis Cluster of 3 nodes and nothing of ours",
			h.Cluster, h.Settings, h.Target)
	}
}

func TestBenchFails(t *testing.T) {
	t.Chdir(t.TempDir())
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody := ln.Addr().String()
	ln.Close()
	for _, c := range []struct {
		what string
		args []string
		says string
	}{
		{"nobody at the target", []string{"--target", nobody}, nobody},
		{"a result file that cannot be made", []string{"--mem", "--out", "none/x.jsonl"}, "none/x.jsonl"},
	} {
		wantOneLine(t, c.what, neokvRun(t, nil, append([]string{"bench"}, c.args...)...), statusFailed, c.says)
	}
	if left, err := os.ReadDir("."); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v; want no empty result files", left, err)
	}
}

// A run that is interrupted prints what it has and does not count as done.
func TestBenchInterrupted(t *testing.T) {
	out := filepath.Join(t.TempDir(), "cut.jsonl")
	ctx, interrupt := context.WithCancel(context.Background())
	defer interrupt()
	stderr := newOutput()
	var stdout bytes.Buffer
	status := make(chan int, 1)
	go func() {
		args := []string{"bench", "--profile", "small", "--mem", "--workload", "set", "--duration", "1h", "--warmup",
			"0s",
			"--out", out}
		status <- run(ctx, process{nil, nil, &stdout, stderr}, args)
	}()
	bound, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if !stderr.waitFor(bound, "run ") {
		t.Fatalf("no progress: %q", stderr)
	}
	interrupt()
	select {
	case got := <-status:
		if got != statusFailed || !strings.HasSuffix(stderr.String(), "neokv: interrupted\n") ||
			!strings.Contains(stdout.String(), "interrupted: ") {
			t.Errorf("status %d, stderr %q, stdout\n%s", got, stderr, stdout.String())
		}
		if r := readResult(t, stdout.String()); r.Summary == nil || !r.Summary.Interrupted {
			t.Errorf("summary %+v: want one marked interrupted", r.Summary)
		}
	case <-time.After(patience):
		t.Fatal("bench did not end")
	}
}

func TestProgress(t *testing.T) {
	ticks := func(p *progress) {
		begin := time.Unix(0, 0)
		for i := range 7 {
			p.show("load", fmt.Sprint("load ", i), begin.Add(time.Duration(i)*time.Second))
		}
		p.show("run", "run 0", begin.Add(8*time.Second))
		p.show("run", "run 1", begin.Add(9*time.Second))
		p.end()
		p.end()
	}
	var b strings.Builder
	ticks(&progress{w: &b})
	if want := "load 0\nload 5\nload 6\nrun 0\nrun 1\n"; b.String() != want {
		t.Errorf("%q; want %q", b.String(), want)
	}
}
