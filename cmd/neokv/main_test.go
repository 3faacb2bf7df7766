package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"neokv.dev/bench"
	"neokv.dev/neokv/torture"
	"neokv.dev/workloads"
)

var unknownWorkload = `workload "ycsb-z": unknown, want one of ` + strings.Join(workloads.Names(), ", ") +
	", or the path of a YAML file; did you mean ycsb-a?"

func TestMain(m *testing.M) {
	torture.Child()
	if os.Getenv(programEnv) != "" {
		program()
		return
	}
	tuneProcess(os.Getenv, os.Stderr)
	os.Exit(m.Run())
}

// result is what a verb left behind.
type result struct {
	status         int
	stdout, stderr string
}

// neokvRun runs a verb with the given environment to its end.
func neokvRun(t *testing.T, env []string, args ...string) result {
	t.Helper()
	var stdout, stderr bytes.Buffer
	status := run(t.Context(), process{env, strings.NewReader(""), &stdout, &stderr}, args)
	return result{status, stdout.String(), stderr.String()}
}

// What is wrong with a command line is said in lines that begin with our name, on standard error, without a usage text.
func TestInvalidInput(t *testing.T) {
	for _, c := range []struct {
		args string
		env  []string
		want string
	}{
		{args: "serv", want: `neokv: unknown verb "serv"; did you mean serve?`},
		{args: "profiles shov", want: `neokv: profiles: unknown verb "shov"; did you mean show?`},
		{args: "serve now", want: `neokv: serve: unexpected argument "now"`},
		{args: "serve --prot 1", want: "neokv: unknown flag: --prot; did you mean port?"},
		{args: "serve --dir= --profile=", want: "neokv: serve: --dir is empty: leave it out for the default\n" +
			"neokv: serve: --profile is empty: leave it out for the default"},
		{args: "bench --workload= --out=", want: "neokv: bench: --out is empty: leave it out for the default\n" +
			"neokv: bench: --workload is empty: leave it out for the default"},
		{args: "bench --target x:1 --set load.records=5 --set engine.bloom_bits=5",
			want: "neokv: --target takes a cluster that runs; --set engine.bloom_bits is for one that is booted"},
		{args: "serve --port x",
			want: `neokv: invalid argument "x" for "--port" flag: strconv.ParseInt: parsing "x": invalid syntax`},
		{args: "serve --port 65534",
			want: "neokv: port 65534: 3 stores need the ports 65534 to 65536, want 1 to 65535, or 0 for free ones"},
		{args: "serve --proxy-port -1", want: "neokv: proxy port -1: want 1 to 65535, or 0 for a free one"},
		{args: "serve --mem --dir x", want: "neokv: --dir and --mem exclude each other"},
		{args: "serve --stores 99 --regions some --set engine.blom_bits=1", env: []string{"NEOKV_RAFT_RTT=x"},
			want: `neokv: env NEOKV_RAFT_RTT: raft.rtt: "x": want a duration such as 10ms, 1ms to 1s
neokv: --set: unknown setting: engine.blom_bits; did you mean engine.bloom_bits?
neokv: --regions: cluster.regions: "some": want a whole number, 1 to 1024
neokv: --stores: cluster.stores: 99: want 1 to 9`},
		{args: "serve --replicas 4", want: "neokv: --replicas: cluster.replicas: 4: want at most cluster.stores (3)"},
		{args: "serve --profile smal", want: "neokv: profile smal: no such profile; did you mean small?"},
		{args: "profiles show", want: "neokv: profiles show: 0 arguments, want one: the name of a profile or the " +
			"path of a YAML file"},
		{args: "workloads show", want: "neokv: workloads show: 0 arguments, want one: the name of a workload or the " +
			"path of a YAML file"},
		{args: "workloads show ycsb-z", want: "neokv: " + unknownWorkload},
		{args: "workloads show ycsb-a --requests -1", want: "neokv: --requests -1: want 0 to 1000000"},
		{args: "profiles show none", want: "neokv: profile none: no such profile"},
		{args: "profiles show small --set a", want: "neokv: --set a: want name=value"},
		{args: "bench --clients 0 --value-size 1x",
			want: `neokv: --value-size: load.value_size: "1x": want a size such as 64MiB, 1B to 64MiB
neokv: --clients: load.clients: 0: want 1 to 10000`},
		{args: "bench --workload ycsb-z",
			want: "neokv: --workload: load.workload: " + unknownWorkload},
		{args: "bench --clients 0 --workload ycsb-z --target x:,y:1 --mem --stores 4 --bind 1.2.3.4",
			want: "neokv: --workload: load.workload: " + unknownWorkload + `
neokv: --clients: load.clients: 0: want 1 to 10000
neokv: --bind 1.2.3.4: want a loopback address such as 127.0.0.1 or ::1, or a password in redis.requirepass
neokv: --target takes a cluster that runs; --stores is for one that is booted
neokv: --target takes a cluster that runs; --bind is for one that is booted
neokv: --target takes a cluster that runs; --mem is for one that is booted
neokv: --target "x:": want ` + bench.TargetForms},
		{args: "serve --profile durable",
			want: "neokv: engine.durable true: the data needs a folder that stays, not memory or a temporary one: " +
				"want --dir"},
		{args: "bench --profile durable --mem",
			want: "neokv: engine.durable true: the data needs a folder that stays, not memory or a temporary one: " +
				"want --dir"},
		{args: "serve --profile durable --dir x --set engine.wal_sync=none",
			want: "neokv: --set: engine.wal_sync: none: want always with engine.durable"},
		{args: "serve --set engine.wal_dir=/w",
			want: "neokv: engine.wal_dir /w: write-ahead logs apart need a data folder that stays: want --dir"},
		{args: "bench --target x:1 --mem",
			want: "neokv: --target takes a cluster that runs; --mem is for one that is booted"},
		{args: "bench --target :", want: `neokv: --target ":": want ` + bench.TargetForms},
		{args: "redis-benchmark -t set", want: "neokv: unknown shorthand flag: 't' in -t"},
		{args: "redis-benchmark set -- -n 1",
			want: `neokv: redis-benchmark: unexpected argument "set"; flags of redis-benchmark follow --`},
		{args: "redis-benchmark --rounds 0 --spread 1ms --format tabel --durability maybe --set engine.wal_sync=none " +
			"--set redis.requirepass=x --set engine.wal_dir=/w -- -p 1 -n 0 -t sett",
			want: `neokv: --rounds 0: want 1 to 1000
neokv: --durability maybe: want none, everysec or always
neokv: --spread 1ms: want 100ms to 1h, or 0 to leave it out
neokv: --format tabel: want one of table, md, json; did you mean table?
neokv: redis.requirepass: redis-server has no password here, so NeoKV must have none
neokv: engine.wal_dir: each round has a folder of its own, so its logs cannot be elsewhere
neokv: --set engine.wal_sync=none: --durability says that
neokv: redis-benchmark -p: not possible here, since this command sets it
neokv: redis-benchmark -n 0: want 1 to 2147483647
neokv: redis-benchmark -t "sett": unknown, want some of ping, lrange, ping_inline, ping_mbulk, set, get, incr, ` +
				"lpush, rpush, lpop, rpop, sadd, hset, spop, zadd, zpopmin, lrange_100, lrange_300, lrange_500, lrange_600, mset"},
		{args: "redis-benchmark --cluster -- -n 1 get key:1",
			want: `neokv: --cluster: key "key:1" of the command: want {tag} in it, before any other brace, as in ` +
				`"{tag}:key:1": redis-benchmark puts the hash tag of a node there, and else sends the command to nodes ` +
				`that do not have the key`},
		{args: "redis-benchmark --profile durable --durability none --set engine.blom_bits=1",
			want: "neokv: --set: unknown setting: engine.blom_bits; did you mean engine.bloom_bits?"},
		{args: "redis-benchmark --profile durable --durability none",
			want: "neokv: engine.durable: want --durability always or everysec"},
	} {
		got := neokvRun(t, c.env, strings.Fields(c.args)...)
		if got.status != statusInvalid || strings.TrimSpace(got.stderr) != c.want || got.stdout != "" {
			t.Errorf("neokv %s: status %d, stdout %q, stderr\n%s\nwant status 2 and\n%s", c.args, got.status,
				got.stdout, got.stderr, c.want)
		}
	}
}

func TestWithoutAVerb(t *testing.T) {
	got := neokvRun(t, nil)
	if got.status != statusInvalid || got.stdout != "" || !strings.Contains(got.stderr, "neokv serve ") ||
		!strings.HasSuffix(got.stderr, "\nneokv: want a verb\n") {
		t.Errorf("neokv: status %d, stdout %q, stderr %q; want 2, the verbs and a reason on stderr", got.status,
			got.stdout, got.stderr)
	}
}

func TestHelp(t *testing.T) {
	for _, verb := range []string{"", "serve", "bench", "results", "profiles", "profiles list",
		"profiles show", "workloads", "workloads list", "workloads show", "redis-benchmark", "version"} {
		got := neokvRun(t, nil, append(strings.Fields(verb), "--help")...)
		if got.status != statusDone || got.stderr != "" || !strings.Contains(got.stdout, "Examples:\n  ") {
			t.Errorf("neokv %s --help: status %d, stderr %q, stdout\n%s\nwant 0 and an example", verb, got.status,
				got.stderr, got.stdout)
		}
	}
	help := neokvRun(t, nil, "serve", "--help").stdout
	for _, flag := range []string{"--profile", "--stores", "--replicas", "--regions", "--bind", "--port",
		"--proxy-port", "--dir", "--mem", "--set"} {
		if !strings.Contains(help, flag+" ") {
			t.Errorf("neokv serve --help has no %s", flag)
		}
	}
	help = neokvRun(t, nil, "bench", "--help").stdout
	for _, flag := range []string{"--workload", "--target", "--clients", "--pipeline", "--rate", "--duration",
		"--warmup", "--records", "--verify",
		"--value-size", "--seed", "--out", "--profile", "--stores", "--dir", "--mem", "--set"} {
		if !strings.Contains(help, flag+" ") {
			t.Errorf("neokv bench --help has no %s", flag)
		}
	}
}

func TestProfiles(t *testing.T) {
	for _, args := range []string{"profiles", "profiles list"} {
		got := neokvRun(t, nil, strings.Fields(args)...)
		if got.status != statusDone || !regexp.MustCompile(`(?s)^default +Take it .*\nsmall +Take it `).MatchString(got.stdout) {
			t.Errorf("neokv %s: status %d, stdout\n%s", args, got.status, got.stdout)
		}
	}
	got := neokvRun(t, []string{"NEOKV_ENGINE_BLOOM_BITS=16"}, "profiles", "show", "small", "--set", "raft.rtt=5ms")
	lines := map[string]string{} // what follows a name
	column := 0
	for line := range strings.Lines(strings.SplitN(got.stdout, "\n", 2)[1]) {
		name, rest, _ := strings.Cut(line, " ")
		lines[name] = strings.Join(strings.Fields(rest), " ")
		at := len(line) - len(strings.TrimLeft(rest, " "))
		if column == 0 {
			column = at
		}
		if at != column {
			t.Errorf("line %q: value at column %d, want %d", line, at, column)
		}
	}
	for name, want := range map[string]string{
		"cluster.stores":    "3 default",
		"cluster.regions":   "4 profile small",
		"engine.bloom_bits": "16 env NEOKV_ENGINE_BLOOM_BITS",
		"raft.rtt":          "5ms --set",
		"load.value_size":   "100B profile small",
	} {
		if lines[name] != want {
			t.Errorf("%s: %s; want %s", name, lines[name], want)
		}
	}
	if got.status != statusDone || !strings.HasPrefix(got.stdout, "# Take it ") || got.stderr != "" || t.Failed() {
		t.Errorf("neokv profiles show: status %d, stderr %q, stdout\n%s", got.status, got.stderr, got.stdout)
	}
}

func TestVersion(t *testing.T) {
	got := neokvRun(t, nil, "version")
	for _, name := range []string{"neokv ", "module ", "commit ", "go ", "github.com/cockroachdb/pebble/v2 ",
		"github.com/lni/dragonboat/v4 "} {
		if !strings.Contains("\n"+got.stdout, "\n"+name) {
			t.Errorf("no line for %s", name)
		}
	}
	if got.status != statusDone || got.stderr != "" || t.Failed() {
		t.Errorf("neokv version: status %d, stderr %q, stdout\n%s", got.status, got.stderr, got.stdout)
	}
}

// TestVersionInALine: --version has the version and what it was built from.
func TestVersionInALine(t *testing.T) {
	got := neokvRun(t, nil, "--version")
	want := regexp.MustCompile(`^neokv \d+\.\d+\.\d+, (commit [0-9a-f]{12}\+?|version \S+), go1\S* \w+/\w+\n$`)
	if got.status != statusDone || !want.MatchString(got.stdout) || got.stderr != "" {
		t.Errorf("%+v; want %s", got, want)
	}
}

// TestCompletion: shells get a script, and the values of flags.
func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		got := neokvRun(t, nil, "completion", shell)
		if got.status != statusDone || !strings.Contains(got.stdout, "__complete") || got.stderr != "" {
			t.Errorf("completion %s: status %d, stderr %q, %d bytes", shell, got.status, got.stderr, len(got.stdout))
		}
	}
	for args, want := range map[string]string{
		"bench --workload ycsb-":                  "ycsb-a\nycsb-b\nycsb-c\nycsb-d\nycsb-e\nycsb-f\n",
		"serve --profile def":                     "default\n",
		"serve --set engine.memtable_s":           "engine.memtable_size=\n",
		"ctl parti":                               "partition",
		"serve --exec -- ls --no-such-flag --dir": "",
	} {
		got := neokvRun(t, nil, append([]string{"__complete"}, strings.Fields(args)...)...)
		if got.status != statusDone || !strings.HasPrefix(got.stdout, want) {
			t.Errorf("%s: %+v; want %q", args, got, want)
		}
	}
}

type failingWriter struct{}

func (failingWriter) Write([]byte) (int, error) { return 0, io.ErrClosedPipe }

type panickingWriter struct{}

func (panickingWriter) Write([]byte) (int, error) { panic("of the test") }

func TestFailures(t *testing.T) {
	for _, c := range []struct {
		what   string
		stdout io.Writer
		want   string
	}{
		{"output that cannot be written", failingWriter{}, "neokv: io: read/write on closed pipe\n"},
		{"panic", panickingWriter{}, "neokv: panic: of the test\n"},
	} {
		var stderr bytes.Buffer
		status := run(t.Context(), process{nil, nil, c.stdout, &stderr}, []string{"profiles", "show", "small"})
		if status != statusFailed || !strings.HasPrefix(stderr.String(), c.want) {
			t.Errorf("%s: status %d, stderr %q; want 1, %q", c.what, status, stderr.String(), c.want)
		}
	}
}

// output collects what a running verb writes, and lets a test wait for it.
type output struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{} // closed and replaced at each write
}

func newOutput() *output { return &output{changed: make(chan struct{})} }

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	close(o.changed)
	o.changed = make(chan struct{})
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// waitFor waits until the text has a part, or ctx ends.
func (o *output) waitFor(ctx context.Context, part string) bool {
	for {
		o.mu.Lock()
		found, changed := strings.Contains(o.text.String(), part), o.changed
		o.mu.Unlock()
		if found {
			return true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return false
		}
	}
}

// reference lists what it cannot set.
func TestProfileNotes(t *testing.T) {
	got := neokvRun(t, nil, "profiles", "show", "reference").stdout
	for _, part := range []string{"\n# - 4 subcompactions: ", "\n# - memtable prefix bloom ", "\n# - slow-down at 10 ",
		"\nengine.block_cache "} {
		if !strings.Contains(got, part) {
			t.Errorf("neokv profiles show reference has no %q:\n%s", part, got)
		}
	}
}

func TestWorkloadsVerbs(t *testing.T) {
	for _, args := range []string{"workloads", "workloads list"} {
		got := neokvRun(t, nil, strings.Fields(args)...)
		if got.status != statusDone || strings.Count(got.stdout, "\n") != len(workloads.Names()) ||
			!strings.Contains(got.stdout, "\nycsb-a           YCSB workload A") {
			t.Errorf("%s: status %d, stdout\n%s", args, got.status, got.stdout)
		}
	}
	if got := neokvRun(t, nil, "workloads", "show", "ycsb-a"); !strings.HasPrefix(got.stdout, "about: YCSB workload A") {
		t.Errorf("status %d, stdout\n%s", got.status, got.stdout)
	}
	path := filepath.Join(t.TempDir(), "mine.yaml")
	text := "records: [{key: \"a b<n>\"}]\nmix: [{op: rmw, do: [GET <key>, SET <key> <value> EX <int uniform 5-5>]}]\n"
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	got := neokvRun(t, nil, "workloads", "show", path, "--requests", "1", "--seed", "7")
	if want := regexp.MustCompile(`^# \S+mine\.yaml
# record: 100000, uniform
# seed 7
rmw: GET "a b\d+"
rmw: SET "a b\d+" ".+"\.\.\. \(1000 bytes\) EX 5
$`); !want.MatchString(got.stdout) {
		t.Errorf("status %d, stdout\n%s\nwant %s", got.status, got.stdout, want)
	}
	again := neokvRun(t, nil, "workloads", "show", path, "--requests", "1", "--seed", "7")
	if again.stdout != got.stdout {
		t.Errorf("the same seed shows\n%s\nand\n%s", got.stdout, again.stdout)
	}
}
