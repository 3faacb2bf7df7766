package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/tidwall/redcon"

	"neokv.dev/results/compare"
)

// TestAB measures two rounds, and prints them again from the file.
func TestAB(t *testing.T) {
	t.Setenv(programEnv, "1") // the arms are this program
	t.Chdir(t.TempDir())
	got := neokvRun(t, os.Environ(), "ab", "--b", "engine.row_cache=0", "--workload", "get", "--mem", "--rounds", "2",
		"--block", "100ms", "--warmup", "0s", "--records", "100", "--clients", "2", "--set", "cluster.regions=2",
		"--out", "run.jsonl")
	if got.status != statusDone || !strings.HasSuffix(got.stdout, "\nrun.jsonl\n") {
		t.Fatalf("%+v", got)
	}
	for _, want := range []string{"A: as it is\n", "B: engine.row_cache=0\n", "throughput", "CPU",
		"2 rounds of A, B and A again", "too few",
		"cannot tell: 2 rounds, and a conclusion about 4 figures takes 7\n\nA: "} {
		if !strings.Contains(got.stdout, want) {
			t.Errorf("no %q in:\n%s", want, got.stdout)
		}
	}
	again := neokvRun(t, nil, "compare", "run.jsonl")
	if again.status != statusDone || again.stdout+"run.jsonl\n" != got.stdout {
		t.Errorf("printed again: %+v", again)
	}
	page := neokvRun(t, nil, "compare", "run.jsonl", "--format", "html")
	if text, err := os.ReadFile("compare.html"); page.stdout != again.stdout+"compare.html\n" || err != nil ||
		!strings.Contains(string(text), "engine.row_cache=0</dd>") ||
		!strings.Contains(string(text), "Made by neokv compare.") {
		t.Errorf("as a page: %+v, %v", page, err)
	}
	if err := os.Remove("compare.html"); err != nil {
		t.Fatal(err)
	}
	var d compare.Delta
	text := neokvRun(t, nil, "compare", "run.jsonl", "--format", "json").stdout
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		t.Fatal(err)
	}
	row := d.Row("row cache answers")
	if row == nil || row.A.Center < 0.9 || row.B.Center != 0 {
		t.Errorf("the arms had the same settings: %+v", row)
	}
	if left, err := filepath.Glob("*"); err != nil || len(left) != 1 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// TestABProve: sittings of a proof go to one file, and what it says stands under later tables of the same setup.
func TestABProve(t *testing.T) {
	t.Setenv(programEnv, "1") // the arms are this program
	t.Chdir(t.TempDir())
	load := []string{
		"--workload",
		"get",
		"--mem",
		"--rounds",
		"1",
		"--block",
		"100ms",
		"--warmup",
		"0s",
		"--records",
		"100",
		"--clients",
		"2",
		"--set",
		"cluster.regions=2",
	}
	run := func(more ...string) result {
		return neokvRun(t, os.Environ(), slices.Concat([]string{"ab"}, more, load)...)
	}
	for sitting := range 2 {
		got := run("--prove")
		want := fmt.Sprintf(
			"proof of this setup, neokv-proof.jsonl: 1 equal round and %d in which B was held back; tables of 10 "+
				"rounds take more\nneokv-proof.jsonl\n",
			sitting,
		)
		if got.status != statusDone || got.stdout != want {
			t.Fatalf("sitting %d: %+v; want %q", sitting+1, got, want)
		}
	}
	file, err := os.Open("neokv-proof.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	proof, _, err := compare.ReadProof(file, "")
	if err != nil || len(proof.Blocks) != 6 {
		t.Fatalf("%d blocks, %v", len(proof.Blocks), err)
	}
	for _, b := range proof.Blocks {
		if held := b.Round == 1 && b.Side == compare.SideB; held != (b.Handicap > 0) {
			t.Errorf("round %d, arm %s was stopped for %g of the time", b.Round, b.Side, b.Handicap)
		}
	}
	if got := run("--b", "engine.row_cache=0", "--out", "run.jsonl"); got.status != statusDone ||
		!strings.Contains(got.stdout, "false alarms: 0 of 1 tables as measured") ||
		neokvRun(t, nil, "compare", "run.jsonl").stdout+"run.jsonl\n" != got.stdout {
		t.Errorf("the same setup: %+v", got)
	}
	if got := run("--b", "engine.row_cache=0", "--control=false", "--out", "other.jsonl"); got.status != statusDone ||
		!strings.Contains(got.stdout,
			"no proof of this setup: neokv-proof.jsonl is of another one, one has a copy of A") {
		t.Errorf("another setup: %+v", got)
	}
	for want, args := range map[string][]string{
		"neokv-proof.jsonl is of another setup: load: get: 2 clients": {
			"--prove", "--pipeline", "2",
		},
		"--handicap: neokv-proof.jsonl has rounds with 5%": {"--prove", "--handicap", "10%"},
		"--handicap is for --prove":                        {"--handicap", "10%", "--b", "engine.row_cache=0"},
		"--b: with --prove B is A":                         {"--prove", "--b", "engine.row_cache=0"},
		"--proof: stat nosuch":                             {"--proof", "nosuch", "--b", "engine.row_cache=0"},
		"--a: --prove stops processes":                     {"--prove", "--a", "target=127.0.0.1:1"},
		"run.jsonl: not a proof":                           {"--prove", "--proof", "run.jsonl"},
	} {
		if got := run(args...); got.status != statusInvalid || !strings.Contains(got.stderr, want) {
			t.Errorf("%q: %+v, want %q", args, got, want)
		}
	}
	got := run("--b", "engine.row_cache=0", "--primary", "p98", "--out", "typo.jsonl")
	if got.status != statusFailed ||
		!strings.Contains(got.stderr, "--primary: no figure p98; there are throughput, p50,") {
		t.Errorf("a figure that nobody has: %+v", got)
	}
}

// TestABPage: the page goes to a file beside that of the blocks.
func TestABPage(t *testing.T) {
	t.Chdir(t.TempDir())
	f := blockFlags{format: "html"}
	var out bytes.Buffer
	err := f.show(process{stdout: &out}, "blocks.jsonl", func(w io.Writer, format string) error {
		return writeComparison(w, abCommand(process{}), &compare.Delta{A: "a", B: "b"}, format)
	})
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile("blocks.html")
	if err != nil || !strings.HasPrefix(string(text), "<!DOCTYPE html>") ||
		!strings.Contains(out.String(), "\nA: a\n") ||
		!strings.HasSuffix(out.String(), "\nblocks.html\nblocks.jsonl\n") ||
		!strings.Contains(string(text), "Made by neokv ab.") {
		t.Errorf("printed %q, %v, the page begins %.40q", out.String(), err, text)
	}
}

// TestABTargets compares two servers that run already and know only the commands of the load. They ask for a password.
func TestABTargets(t *testing.T) {
	t.Chdir(t.TempDir())
	var addrs []string
	for range 2 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { ln.Close() })
		addrs = append(addrs, "target="+ln.Addr().String())
		go redcon.Serve(ln, func(c redcon.Conn, cmd redcon.Command) {
			switch name := strings.ToUpper(string(cmd.Args[0])); {
			case name == "AUTH" && string(cmd.Args[1]) == "pw":
				c.SetContext(true)
				c.WriteString("OK")
			case name == "AUTH":
				c.WriteError("WRONGPASS")
			case c.Context() == nil:
				c.WriteError("NOAUTH Authentication required.")
			case name == "SET":
				c.WriteString("OK")
			default:
				c.WriteError("ERR unknown command '" + name + "'")
			}
		}, nil, nil)
	}
	args := []string{"ab", "--a", addrs[0], "--b", addrs[1], "--workload", "set", "--rounds", "1", "--block", "100ms",
		"--warmup", "0s", "--records", "10", "--clients", "2", "--out", "run.jsonl", "--force"}
	got := neokvRun(t, nil, append(args, "--set", "load.password=pw")...)
	if got.status != statusDone || !strings.Contains(got.stdout, "throughput") {
		t.Errorf("%+v", got)
	}
	if text, err := os.ReadFile("run.jsonl"); err != nil || strings.Contains(string(text), "load.password=pw") {
		t.Errorf("the file has the password, %v:\n%s", err, text)
	}
	for password, want := range map[string]string{"": "NOAUTH", "wrong": "WRONGPASS"} {
		got := neokvRun(t, []string{"NEOKV_LOAD_PASSWORD=" + password}, args...)
		if got.status != statusFailed || !strings.Contains(got.stderr, want) {
			t.Errorf("password %q: %+v", password, got)
		}
	}
	for arm, want := range map[string]string{
		"target=nowhere":            `target "nowhere"`,
		addrs[1] + " profile=small": "target runs already, so it takes no other word",
	} {
		got := neokvRun(t, nil, "ab", "--a", addrs[0], "--b", arm)
		if got.status != statusInvalid || !strings.Contains(got.stderr, "--b: "+want) {
			t.Errorf("arm %s: %+v", arm, got)
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0") // nobody listens at its address once it is closed
	if err != nil {
		t.Fatal(err)
	}
	ln.Close()
	got = neokvRun(t, []string{"NEOKV_LOAD_PASSWORD=pw"}, append(args, "--a", "target="+ln.Addr().String())...)
	if got.status != statusFailed || !strings.Contains(got.stderr, "round 1, arm ") ||
		!strings.Contains(got.stderr, "connection refused") {
		t.Errorf("nobody listens: %+v", got)
	}
}

// An arm that only fails keeps its figures: no throughput, lower bounds of latencies, and errors.
func TestABOfAnArmThatFails(t *testing.T) {
	t.Chdir(t.TempDir())
	got := neokvRun(t, nil, "ab", "--a", "target="+server(t, true), "--b", "target="+server(t, false), "--workload",
		"set", "--rounds", "1", "--block", "100ms", "--warmup", "0s", "--clients", "2", "--out", "run.jsonl")
	if got.status != statusDone {
		t.Fatalf("%+v", got)
	}
	for _, want := range []string{`\nthroughput .* 0 ops/s `, `\np99 .*>= \d`, `\nerrors +0 .* 1 `,
		`have no good answer`} {
		if !regexp.MustCompile(want).MatchString(got.stdout) {
			t.Errorf("no %q in\n%s", want, got.stdout)
		}
	}
}

func TestABRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	got := neokvRun(t, nil, "ab", "--a", "engine.memtabel_size=4MiB", "--b", "redis=often", "--rounds", "0", "--block",
		"1ns", "--format", "xml", "--workload", "nosuch", "--clients", "0")
	if got.status != statusInvalid || got.stdout != "" {
		t.Fatalf("%+v", got)
	}
	for _, want := range []string{
		"--a: --set: unknown setting: engine.memtabel_size; did you mean", "--b: redis=often: want none",
		"--rounds 0: want 1 to 1000", "--block 1ns: want", "--format xml: want one of", "nosuch", "load.clients",
	} {
		if !strings.Contains(got.stderr, want) {
			t.Errorf("no %q in:\n%s", want, got.stderr)
		}
	}
	if got := neokvRun(t, nil, "ab"); got.status != statusInvalid || !strings.Contains(got.stderr, "are the same") {
		t.Errorf("the same arms: %+v", got)
	}
	// An arm that cannot boot.
	t.Setenv(programEnv, "1")
	got = neokvRun(t, os.Environ(), "ab", "--b", "env=NEOKV_CLUSTER_STORES=x", "--mem", "--rounds", "1", "--block",
		"100ms", "--warmup", "0s", "--records", "10")
	if got.status != statusFailed || !strings.Contains(got.stderr, "round 1, arm B (env=NEOKV_CLUSTER_STORES=x)") ||
		!strings.Contains(got.stderr, "cluster.stores") {
		t.Errorf("an arm that cannot boot: %+v", got)
	}
}
