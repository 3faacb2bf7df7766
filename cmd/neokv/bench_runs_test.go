package main

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestBenchRuns: --runs repeats all of it with seeds of their own, and prints how far the figures spread. What does not
// hold its SLO ends with status 3.
func TestBenchRuns(t *testing.T) {
	t.Chdir(t.TempDir())
	args := []string{"bench", "--mem", "--profile", "small", "--records", "50", "--clients", "2", "--operations", "300",
		"--seed", "7", "--out", "r.jsonl"}
	got := neokvRun(t, nil, append(args, "--runs", "2", "--slo", "max<1ns", "--interval", "50ms")...)
	if got.status != statusBroken ||
		!strings.Contains(got.stderr, "SLO max<1ns, errors<1%: does not hold in 2 of 2 runs") {
		t.Errorf("status %d, %s", got.status, got.stderr)
	}
	for _, want := range []string{
		`^2 runs of 3 stores .* \(in memory\)`,
		`\nr-1\.jsonl: SLO max<1ns, errors<1%: does not hold: `,
		`\nfigure +median +95 % interval +lowest +highest +spread\nthroughput +[\d,.]+ ops/s +- `,
		`\nr-1\.jsonl\nr-2\.jsonl\n$`,
	} {
		if !regexp.MustCompile(want).MatchString(got.stdout) {
			t.Errorf("no %s in\n%s", want, got.stdout)
		}
	}
	for i, seed := range []uint64{7, 8} {
		r := readResult(t, fmt.Sprintf("r-%d.jsonl\n", i+1))
		if r.Header.Seed != seed || r.Summary.Groups[0].Ledger.Offered != 300 || len(r.Summary.Nodes) != 3 ||
			r.Summary.NoAnswer == 0 || r.Header.Duration != 0 {
			t.Errorf("run %d: seed %d, %+v", i+1, r.Header.Seed, r.Summary)
		}
	}
	if got := neokvRun(t, nil, append(args, "--runs", "3")...); got.status != statusInvalid ||
		strings.Count(got.stderr, "exists; --force writes over it") != 2 {
		t.Errorf("files that exist: %+v", got)
	}
	if _, err := os.Stat("r-3.jsonl"); err == nil {
		t.Error("a run was made all the same")
	}
}

// TestBenchLoads: records can be inserted by one run and used by another one.
func TestBenchLoads(t *testing.T) {
	t.Chdir(t.TempDir())
	flags := strings.Fields("bench --dir d --profile small --workload get --records 50 --clients 2")
	got := neokvRun(t, nil, append(flags, "--load-only", "--out", "load.jsonl")...)
	if got.status != statusDone || !strings.Contains(got.stdout, "load: 50 records inserted") {
		t.Fatalf("%+v", got)
	}
	run := strings.Fields("--no-load --operations 100 --slo p50<1m --out run.jsonl")
	got = neokvRun(t, nil, append(flags, run...)...)
	s := readResult(t, got.stdout).Summary
	if got.status != statusDone || s.Groups[0].Inserted != nil || s.Groups[0].Total.Count != 100 ||
		s.Groups[0].Total.Misses != 0 ||
		!strings.Contains(got.stdout, "\nSLO p50<1m, errors<1%: holds\n") {
		t.Errorf("%+v", got)
	}
	for text, want := range map[string][]string{
		"--no-load":                              {"has no records; want --target or --dir"},
		"--no-load --load-only --mem":            {"--load-only and --no-load exclude each other"},
		"--load-only --verify --rate 5":          {"--verify is for what follows", "--rate is for what follows"},
		"--operations 0":                         {"--operations 0: want 1 or more"},
		"--operations 5 --warmup 1s":             {"--warmup is for runs of some time"},
		"--operations 5 --rate 10":               {"operations: 5 are for a closed loop of a workload"},
		"--operations 5 --find-max --slo p50<1s": {"operations: a search sends for a time"},
		"--runs 0 --interval 1ms":                {"--runs 0: want 1 to 1000"},
		"--interval 1ms":                         {"interval: 1ms, want 10ms to 1h"},
	} {
		got := neokvRun(t, nil, append([]string{"bench"}, strings.Fields(text)...)...)
		for _, w := range want {
			if got.status != statusInvalid || !strings.Contains(got.stderr, w) {
				t.Errorf("%s: %+v; want %q", text, got, w)
			}
		}
	}
}
