package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/bench/tune"
	"neokv.dev/results"
	"neokv.dev/results/tuning"
)

// sums returns the checksum of every file in a folder.
func sums(t *testing.T, dir string) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		out[path] = fmt.Sprintf("%x", sha256.Sum256(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func tinyPlan() tuning.StudyPlan {
	return tuning.StudyPlan{
		Profile: "small", Block: 300 * time.Millisecond, Seed: 3,
		Load: tuning.Load{Workload: "ycsb-a", Clients: 4, Pipeline: 4, Records: 500, Elements: 1,
			ValueSize: 10_000},
		Objective: tuning.Objective{Figure: "throughput", Better: results.Higher},
		Knobs: []tuning.Knob{{Setting: "engine.bloom_bits", Values: []string{"0", "10"}, Default: "10", Shapes: true},
			{Setting: "raft.batch_max_ops", Values: []string{"1", "512"}, Default: "512", Ordered: true}},
	}
}

// Trials run on copies: the loaded data stays as it is, however much they write. Configurations have data of their own
// only where a setting shapes it.
func TestTuneMachine(t *testing.T) {
	if testing.Short() {
		t.Skip("what its processes do, those of other tests do, too")
	}
	t.Setenv(programEnv, "1") // the clusters are this program
	plan := tinyPlan()
	m := &tune.Local{Plan: plan, Dir: t.TempDir()}
	var before map[string]string
	for i, set := range [][]string{nil, {"raft.batch_max_ops=1"}, {"engine.bloom_bits=0"}, nil} {
		var trial tuning.StudyTrial
		if err := m.Run(t.Context(), tune.Variant{Load: plan.Load}, set, uint64(i), &trial); err != nil {
			t.Fatalf("%q: %v", set, err)
		}
		for _, name := range []string{"throughput", "p99", "CPU", tuning.WriteAmplification, tuning.Memory,
			tuning.Drain} {
			if value, ok := trial.Figure(name); !ok || value <= 0 {
				t.Errorf("%q: %s is %g, %v", set, name, value, ok)
			}
		}
		loaded, err := filepath.Glob(filepath.Join(m.Dir, "loaded-*"))
		if want := []int{1, 1, 2, 2}[i]; err != nil || len(loaded) != want {
			t.Errorf("%d folders with loaded data after trial %d, want %d", len(loaded), i, want)
		}
		now := sums(t, m.Dir)
		for path, sum := range before {
			if now[path] != sum {
				t.Errorf("trial %d changed %s", i, path)
			}
		}
		before = now
	}
	if left, err := filepath.Glob(filepath.Join(m.Dir, "*")); err != nil || len(left) != 2 {
		t.Errorf("left behind: %q, %v", left, err)
	}
	near, err := m.Near()
	var names []string
	for _, v := range near {
		names = append(names, v.Name)
	}
	want := []string{"values twice as large", "twice as many clients", "reads twice as frequent",
		"values half as large", "half as many clients", "reads half as frequent"}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("near: %q, %v; want %q", names, err, want)
	}
}

// A configuration that cannot boot has an error that says why.
func TestTuneFailure(t *testing.T) {
	if testing.Short() {
		t.Skip("what its processes do, those of other tests do, too")
	}
	t.Setenv(programEnv, "1")
	plan := tinyPlan()
	m := &tune.Local{Plan: plan, Dir: t.TempDir()}
	err := m.Run(t.Context(), tune.Variant{Load: plan.Load}, []string{"raft.batch_max_ops=0"}, 1, &tuning.StudyTrial{})
	if err == nil || !strings.Contains(err.Error(), "raft.batch_max_ops: 0: want 1 to 65536") {
		t.Errorf("%v; want the reason", err)
	}
}

// watcher ends a run when it has written some text often enough.
type watcher struct {
	bytes.Buffer
	text   string
	count  int
	cancel context.CancelFunc
}

func (w *watcher) Write(b []byte) (int, error) {
	n, err := w.Buffer.Write(b)
	if bytes.Count(w.Bytes(), []byte(w.text)) >= w.count {
		w.cancel()
	}
	return n, err
}

// Ctrl-C keeps what is known, and --resume goes on with it.
func TestTuneInterrupted(t *testing.T) {
	if testing.Short() {
		t.Skip("what its processes do, those of other tests do, too")
	}
	t.Setenv(programEnv, "1")
	t.Chdir(t.TempDir())
	goOn := func(trials int, args ...string) (stdout, stderr string, status int) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		var out bytes.Buffer
		errs := &watcher{text: " left\n", count: trials, cancel: cancel}
		status = run(ctx, process{os.Environ(), strings.NewReader(""), &out, errs}, append([]string{"tune"}, args...))
		return out.String(), errs.String(), status
	}
	out, errs, status := goOn(4, "--workload", "set", "--profile", "small", "--records", "100", "--knob",
		"raft.batch_max_ops=1,512", "--block", "100ms", "--warmup", "0s", "--budget", "5m", "--out", "study.jsonl",
		"--seed", "9")
	if status != statusFailed || !strings.Contains(errs, "go on with neokv tune --resume study.jsonl") ||
		!strings.Contains(out, "3 trials of 100ms") || !strings.HasSuffix(out, "\nstudy.jsonl\n") {
		t.Fatalf("status %d\n%s\n%s", status, out, errs)
	}
	before, err := os.ReadFile("study.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	cut := append(slices.Clone(before), `{"phase":"cur`...) // as a kill -9 leaves it
	if err := os.WriteFile("study.jsonl", cut, 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, status = goOn(2, "--resume", "study.jsonl", "--format", "html")
	after, err := os.ReadFile("study.jsonl")
	if status != statusFailed || err != nil || !bytes.HasPrefix(after, before) ||
		bytes.Count(
			after,
			[]byte("\n"),
		) != bytes.Count(
			before,
			[]byte("\n"),
		)+1 || !strings.HasPrefix(out, "not finished: ") || !strings.HasSuffix(out, "\nstudy.html\nstudy.jsonl\n") {
		t.Errorf("status %d, %d bytes before and %d after, %v\n%s\n%s", status, len(before), len(after), err, out, errs)
	}
}

// Everything that is wrong is said at once, before anything is measured.
func TestTuneUsage(t *testing.T) {
	t.Chdir(t.TempDir())
	got := neokvRun(t, nil, "tune", "--knob", "engine.blom_bits=1", "--knob", "engine.bloom_bits=10", "--knob",
		"engine.bloom_bits=0,40", "--knob", "engine.memtable_size=8MiB..4MiB", "--knob", "load.clients=1..4", "--knob",
		"raft.rtt", "--knob", "raft.max_inflight=1,2", "--knob", "raft.max_inflight=4", "--knob",
		"engine.l0_compaction=16,80", "--knob", "redis.requirepass=a", "--objective", "max p99", "--subject",
		"p99<10,foo<1,memory<1GiB", "--block", "1ms",
		"--format", "pdf")
	if got.status != statusInvalid || got.stdout != "" {
		t.Errorf("status %d, %q", got.status, got.stdout)
	}
	for _, want := range []string{
		"--knob engine.blom_bits=1: unknown setting: engine.blom_bits; did you mean engine.bloom_bits?",
		"--knob engine.bloom_bits=10: 10 is the default, want another value, too",
		"--knob engine.bloom_bits=0,40: engine.bloom_bits: 40: want 0 to 32",
		"--knob engine.memtable_size=8MiB..4MiB: engine.memtable_size: 8MiB..4MiB: the range is empty",
		"--knob load.clients=1..4: it is about the load",
		"--knob raft.rtt: want name=value,value,... or name=from..to",
		"--knob raft.max_inflight=4: raft.max_inflight is there twice",
		"--knob engine.l0_compaction=16,80: 80: ",
		"--knob redis.requirepass=(set): it makes nothing faster or slower",
		`--objective "max p99": want max throughput, or min with one of p50`,
		`--subject "p99<10": limit "10": want a time such as 5ms`,
		`--subject "foo<1": "foo" is unknown`,
		"--block 1ms: want 100ms to 1h",
		"--format pdf: want one of table, html, json",
	} {
		if !strings.Contains(got.stderr, "neokv: "+want) {
			t.Errorf("no %q in:\n%s", want, got.stderr)
		}
	}
	if err := os.WriteFile("other.jsonl", []byte("{}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		want string
		args []string
	}{
		{"--budget 10s: too few trials; these knobs want 56 trials of 3s at least, so --budget 5m8s; or try ",
			[]string{"--knob", "raft.max_inflight=1,2", "--budget", "10s"}},
		{"--budget 5m7s: too few trials", []string{"--knob", "raft.max_inflight=1,2", "--budget", "5m7s"}},
		{"with a --rate it says nothing", []string{"--knob", "raft.max_inflight=1,2", "--rate", "100"}},
		{"--resume and --budget exclude each other", []string{"--resume", "x", "--budget", "1h"}},
		{"other.jsonl: not a file of neokv tune", []string{"--resume", "other.jsonl"}},
		{"other.jsonl exists; --force writes over it, --resume goes on with it",
			[]string{"--knob", "raft.max_inflight=1,2", "--out", "other.jsonl"}},
		{"--knob: none given", nil},
	} {
		if got := neokvRun(t, nil, append([]string{"tune"}, x.args...)...); got.status != statusInvalid ||
			!strings.Contains(got.stderr, x.want) {
			t.Errorf("%q: status %d, %s; want %s", x.args, got.status, got.stderr, x.want)
		}
	}
	if left, err := filepath.Glob("*"); err != nil || len(left) != 1 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// Where the default wins --write-profile says so, and its file has the default's settings, so that nobody takes those
// that an earlier search has left there. A study that has not ended leaves the file alone.
func TestWriteProfileOfDefault(t *testing.T) {
	path := filepath.Join(t.TempDir(), "mine.yaml")
	f := tuneFlags{newProfile: path}
	f.format = "table"
	plan := tuning.StudyPlan{Profile: "small", Set: []string{"engine.bloom_bits=5"},
		Load: tuning.Load{Workload: "set"}, Objective: tuning.Objective{Figure: "throughput", Better: results.Higher}}
	for _, x := range []struct {
		done       bool
		says, file string
	}{
		{false, "not written, since the study is not finished", "what was there"},
		{true, "the default wins, so the file has its settings", "The default won."},
	} {
		if err := os.WriteFile(path, []byte("what was there"), 0o600); err != nil {
			t.Fatal(err)
		}
		var out, errs bytes.Buffer
		err := f.print(process{nil, strings.NewReader(""), &out, &errs}, &tuning.Study{Plan: plan, Done: x.done}, "x.jsonl")
		text, readErr := os.ReadFile(path)
		if err := errors.Join(err, readErr); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(errs.String(), "neokv: --write-profile "+path+": "+x.says) ||
			!strings.Contains(string(text), x.file) {
			t.Errorf("done %v: %s\n%s", x.done, errs.String(), text)
		}
		if got := neokvRun(t, nil, "profiles", "show", path); x.done &&
			(got.status != statusDone || !strings.Contains(got.stdout, "bloom_bits")) {
			t.Errorf("%s%s\n%s", got.stdout, got.stderr, text)
		}
	}
}

// The chosen settings are a profile that says the same.
func TestChosenProfile(t *testing.T) {
	text, err := chosenProfile(&tuning.StudyPlan{Profile: "small", Set: []string{"engine.bloom_bits=5"},
		Load: tuning.Load{Workload: "set"}}, []string{"engine.memtable_size=32MiB", "raft.batch_max_ops=64"})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "chosen.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	a := neokvRun(t, nil, "profiles", "show", path)
	for _, want := range []string{"bloom_bits", "32MiB", "8MiB", "64"} {
		if a.status != statusDone || !strings.Contains(a.stdout, want) {
			t.Errorf("no %s in the profile\n%s\n%s%s", want, text, a.stdout, a.stderr)
		}
	}
}
