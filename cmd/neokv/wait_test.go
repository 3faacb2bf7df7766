package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"neokv.dev/bench"
	"neokv.dev/results"
)

func TestWait(t *testing.T) {
	s := startServe(t, "--mem", "--port", "0", "--set", "redis.requirepass=p")
	store, proxy := "127.0.0.1:"+s.ready[0], "127.0.0.1:"+s.ready[2]
	env := []string{"NEOKV_REDIS_REQUIREPASS=p"} // as a health check beside serve has it
	for _, c := range []struct {
		env    []string
		args   []string
		status int
		stderr string
	}{
		{env, []string{store, proxy, "redis://:p@" + proxy}, statusDone, ""},
		{nil, []string{"redis://default:p@" + store, "--set", "load.password=x"}, statusDone, ""},
		{nil, []string{store}, statusFailed, "neokv: wait: " + store + ": INFO: NOAUTH "}, // at once
		{nil, []string{"redis://:x@" + store}, statusFailed, "neokv: wait: " + store + ": AUTH: WRONGPASS "},
		{env, []string{store, "127.0.0.1:1", "--timeout", "0s"}, statusFailed, "neokv: wait: 127.0.0.1:1: dial tcp "},
		{env, []string{store, "--timeout", "-1s"}, statusInvalid, "neokv: --timeout -1s: want 0s or more\n"},
		{env, []string{"here", store + "0"}, statusInvalid, `neokv: target "here": want ` + bench.TargetForms + "\n"},
		{env, []string{store, "--cacert", "x"}, statusInvalid, "neokv: --cacert is for TLS; want --tls or rediss://\n"},
		{env, []string{store, "--tls", "--cacert", "none", "--key", "k"}, statusInvalid,
			"neokv: --cacert: open none: no such file or directory\nneokv: --cert and --key go together\n"},
	} {
		got := neokvRun(t, c.env, append([]string{"wait"}, c.args...)...)
		if got.status != c.status || got.stdout != "" || !strings.HasPrefix(got.stderr, c.stderr) ||
			c.stderr == "" && got.stderr != "" {
			t.Errorf("wait %v: %+v; want %d and %q", c.args, got, c.status, c.stderr)
		}
	}
	s.stop(t)
}

// TestBenchJSON: --json prints the result in place of the table, one after the other with --runs.
func TestBenchJSON(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run.jsonl")
	got := neokvRun(t, nil, strings.Fields("bench --profile small --mem --workload set --records 100 --clients 2 --warmup 0s "+
		"--duration 100ms --json --runs 2 --out "+out)...)
	all := json.NewDecoder(strings.NewReader(got.stdout))
	for range 2 {
		var run struct {
			File    string
			Header  results.Header
			Summary results.Summary
		}
		if err := all.Decode(&run); err != nil || run.Header.Format != results.Format || run.Summary.Groups[0].Total.Count == 0 ||
			!strings.HasPrefix(run.File, strings.TrimSuffix(out, ".jsonl")) {
			t.Errorf("%v, %+v", err, run)
		}
	}
	if all.More() || got.status != statusDone {
		t.Errorf("status %d, more than two objects: %s%s", got.status, got.stdout, got.stderr)
	}
}
