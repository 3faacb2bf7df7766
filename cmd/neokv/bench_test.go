package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/tidwall/redcon"

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
	first, _, _ := strings.Cut(got.stdout, "\n")
	want := regexp.MustCompile(`^NeoKV \S+ at 127\.0\.0\.1:\d+, 3 stores and \d+ regions, \S+ transport, ` +
		`not durable \(in memory\)$`)
	if !want.MatchString(first) {
		t.Errorf("the table begins %q, want %s", first, want)
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

// nobodyAt returns an address that refuses connections until the test ends: a port is bound and nobody listens.
func nobodyAt(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	at, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint("127.0.0.1:", at.(*syscall.SockaddrInet4).Port)
}

func TestBenchFails(t *testing.T) {
	t.Chdir(t.TempDir())
	nobody := nobodyAt(t)
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
	web := httptest.NewServer(http.NotFoundHandler())
	defer web.Close()
	wantOneLine(t, "a target that is not a Redis", neokvRun(t, nil, "bench", "--target", web.Listener.Addr().String()),
		statusInvalid, "not a Redis: target "+web.Listener.Addr().String())
	if left, err := os.ReadDir("."); err != nil || len(left) != 0 {
		t.Errorf("left behind: %v, %v; want no empty result files", left, err)
	}
}

// server knows SET alone, or nothing, and returns its address.
func server(t *testing.T, knowsSet bool) (addr string) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go redcon.Serve(ln, func(c redcon.Conn, cmd redcon.Command) {
		if knowsSet && strings.EqualFold(string(cmd.Args[0]), "SET") {
			c.WriteString("OK")
		} else {
			c.WriteError("ERR unknown command")
		}
	}, nil, nil)
	return ln.Addr().String()
}

// A run in which every operation fails has a table, which begins with a warning, and the status says so.
func TestBenchOfErrorsAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	target := server(t, false)
	got := neokvRun(t, nil, "bench", "--workload", "set", "--target", target, "--warmup", "0s", "--duration", "200ms",
		"--clients", "2", "--rate", "100", "--out", "x.jsonl")
	r := readResult(t, got.stdout)
	if got.status != statusFailed || !strings.Contains(got.stdout, target+"\nwarning: set: 100 % of 20 operations ") ||
		!strings.Contains(got.stdout, "\nerrors: 20 of 20 (100 %)\n") || r.Summary.Groups[0].Total.Errors != 20 ||
		!strings.Contains(got.stderr, "no operation succeeded") {
		t.Errorf("status %d, stderr %q, stdout\n%s", got.status, got.stderr, got.stdout)
	}
}

// Everything that is wrong with the flags of a load is said at once, and nothing is booted.
func TestBenchRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("bad.yaml", []byte("- at: 1s\n  do: kill 1\n- do: FLUSHALL\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("monitor.txt", []byte("1.000000 [0 a] \"SET\" \"k\" \"v\"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("large.yaml", make([]byte, 1<<20+1), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"--rate", "ramp 1..x 3s", "--warmup", "soon", "--group", "clients=x colour=red rate=1"}, []string{
			"--rate: load.rate: ramp 1..x 3s: want N per second, ramp A..B TIME, or steps",
			"--warmup: load.warmup: soon: want 0s to 1h, or auto", "clients=x: want a whole number",
			"colour: unknown, want any of clients, elements, name",
		}},
		{[]string{"--group", "workload=nope", "--group", "clients=0 name=b", "--group", "name=b value-size=many",
			"--group", "fast", "--pipeline-slots", "two"}, []string{
			"value-size=many: want a size such as 64MiB", "fast: want name=value",
			"--pipeline-slots two: want spread, node or slot",
		}},
		{[]string{"--group", "workload=nope", "--group", "clients=0 name=b", "--group", "name=b"}, []string{
			`group nope: workload "nope": unknown`, "group b: clients: 0, want 1 to 10000",
			"group b: another group has that name, too",
		}},
		{[]string{"--at", "5s kill 1", "--at", "soon FLUSHALL", "--schedule", "bad.yaml", "--slo", "p99>1s", "--step",
			"5s"}, []string{
			`at "soon FLUSHALL": time "soon"`,
			`bad.yaml:3: time ""`, `slo "p99>1s": want pN<TIME`,
			"--step and --max-step are for --find-max, --curve and --curve-clients",
		}},
		{[]string{"--at", "5s kill", "--at", "6s kill 1,9", "--at", "7s disk 2 hung", "--at", "8s split 1 16384"},
			[]string{
				`at 5s fault "kill": no stores`, `at 6s fault "kill 1,9": there is no store 9; want 1 to 3`,
				`at 7s fault "disk 2 hung"`, `at 8s fault "split 1 16384": "16384" is no slot from 1 to 16383`,
			}},
		{[]string{"--schedule", "none.yaml"}, []string{"none.yaml: no such file"}},
		{[]string{"--schedule", "large.yaml"}, []string{"large.yaml: more than 1048576 bytes"}},
		{[]string{"--at", "1h FLUSHALL", "--at", "1s rate 5"}, []string{
			"the measured part ends after 30s", "group ycsb-a is a closed loop",
		}},
		{[]string{"--find-max", "--curve"}, []string{"exclude each other", "--find-max: want --slo"}},
		{[]string{"--curve-clients", "0", "--rate", "5", "--clients", "5"}, []string{
			`--curve-clients "0": want N,N,... or steps A..B by N, each 1 to 10000`, "--rate is for a load without it",
			"--clients is for a load without it",
		}},
		{[]string{"--verify", "--group", "name=b"}, []string{
			"verify: groups ycsb-a and b may write the same keys, user... and user...: reading back cannot tell whose",
		}},
		{[]string{"--command", "GTE {key zipf 5}", "--command", "SET {key uniform 5}", "--workload", "get", "--records",
			"5", "--clients", "0"}, []string{
			"--command says what is sent and to how many keys; --workload is for a load without it",
			"--command says what is sent and to how many keys; --records is for a load without it",
		}},
		{[]string{"--command", "GTE {key zipf 5}", "--command", "SET {key uniform 5}", "--verify", "--slo", "p99<1s",
			"--replay", "monitor.txt"}, []string{"--replay is for a load without it"}},
		{[]string{"--command", "GTE {key zipf 5}", "--command", "SET {key uniform 5}", "--verify"}, []string{
			`command "GTE {key zipf 5}": {key zipf 5}: want {key DISTRIBUTION COUNT [KEY]}: `,
			`command "GTE {key zipf 5}": command GTE: unknown`,
			`command "SET {key uniform 5}": 1 words behind the command, want at least 2`,
			"verify: reading back does not know what commands leave behind; want a workload file",
		}},
		{[]string{"--verify", "--replay", "monitor.txt"}, []string{
			"verify: reading back does not know what the commands of a recording leave behind",
		}},
		{[]string{"--verify", "--at", "1s flushall", "--at", "1s CONFIG SET hz 10"}, []string{
			"at 1s flushall: it may write, and --verify reads back what the clients alone have written",
		}},
	} {
		got := neokvRun(t, nil, append([]string{"bench", "--mem"}, c.args...)...)
		for _, want := range c.says {
			if got.status != statusInvalid || got.stdout != "" || !strings.Contains(got.stderr, want) ||
				strings.Contains(got.stderr, "booted") {
				t.Errorf("%v: status %d, stderr\n%s\nwant %d and %q", c.args, got.status, got.stderr, statusInvalid,
					want)
			}
		}
	}
	if left, err := os.ReadDir("."); err != nil || len(left) != 3 {
		t.Errorf("left behind: %v, %v; want no result files", left, err)
	}
}

// Groups side by side, a plan of rates, and a schedule, from the command line into the result file.
func TestBenchGroups(t *testing.T) {
	out := filepath.Join(t.TempDir(), "groups.jsonl")
	got := neokvRun(t, nil, append([]string{"bench", "--mem", "--workload", "set", "--rate", "poisson 500", "--out",
		out, "--group", "name=rare workload=get rate=steps 20..40 by 20 every 200ms clients=1 value-size=10B", "--at",
		"200ms rate of rare 50", "--at", "100ms FLUSHALL", "--at", "500ms split 1"},
		append(short, "--duration", "1200ms")...)...) // time for the counters before the split, and behind it
	if got.status != statusDone {
		t.Fatalf("status %d, stderr %q", got.status, got.stderr)
	}
	r := readResult(t, got.stdout)
	if g := r.Header.Groups; len(g) != 2 || g[0].Rate != "poisson 500" || g[0].Clients != 4 || g[1].Name != "rare" ||
		g[1].Rate != "steps 20..40 by 20 every 200ms" || g[1].Clients != 1 || g[1].Records != 200 ||
		g[1].ValueBytes != "10" {
		t.Errorf("groups %+v", g)
	}
	s := r.Summary
	if len(s.Groups) != 2 || s.Groups[0].Total.Count == 0 || s.Groups[1].Total.Count == 0 || len(s.Events) != 3 ||
		s.Events[0].Do != "FLUSHALL" || s.Events[0].Error != "" {
		t.Errorf("summary %+v", s)
	}
	const outcome = "split 1: region 1 is split at slot "
	if e := s.Events[2]; !strings.HasPrefix(e.Do+": "+e.Outcome, outcome) || s.Work["splits"] != 1 ||
		!strings.Contains(got.stdout, "s: "+outcome) {
		t.Errorf("split: %+v, %d splits, stdout\n%s", e, s.Work["splits"], got.stdout)
	}
	if g := s.Generator; g.Cores <= 0 || g.Late == nil {
		t.Errorf("generator %+v", g)
	}
	if !strings.Contains(got.stdout, "rare: get: 1 client") || !strings.Contains(got.stdout, "\ngenerator: ") {
		t.Errorf("stdout\n%s", got.stdout)
	}
}

// Commands in place of a workload, on a cluster of bench's own: keys are loaded, and a reply that is an error makes a
// failed operation.
func TestBenchCommands(t *testing.T) {
	t.Chdir(t.TempDir())
	got := neokvRun(t, nil, "bench", "--mem", "--operations", "400", "--clients", "2", "--value-size", "64",
		"--command", "2: SET {key zipfian 50} {value 64}", "--command", "GET {key uniform 50}",
		"--command", "MGET {tag}:a {tag}:b {key uniform 50 {tag}:}", "--command", `INCR "{key uniform 50}"`,
		"--command", "MSET a 1 b 2", "--group", "name=beside workload=get records=10")
	if got.status != statusDone {
		t.Fatalf("status %d, stderr %q", got.status, got.stderr)
	}
	const sent = "2: SET {key zipfian 50} {value 64} | GET {key uniform 50} | " +
		`MGET {tag}:a {tag}:b {key uniform 50 {tag}:} | INCR "{key uniform 50}" | MSET a 1 b 2`
	if !strings.Contains(got.stdout, "\ncommands: "+sent+": 2 clients, pipeline 1, closed loop\n") ||
		!strings.Contains(got.stdout, "CROSSSLOT") ||
		!regexp.MustCompile(`\nneokv-commands-\S+\n$`).MatchString(got.stdout) {
		t.Errorf("stdout\n%s", got.stdout)
	}
	r := readResult(t, got.stdout)
	h := r.Header.Groups[0]
	if h.Workload != sent || h.Records != 0 || h.ValueBytes != "64" ||
		!strings.Contains(h.Content.Text, "\nMSET a 1 b 2\n") || r.Header.Groups[1].Records != 10 ||
		h.Keys != "key:<n>: 50, zipfian; key:<n>: 50, uniform; {tag}:<n>: 50, uniform" {
		t.Errorf("header %+v", r.Header.Groups)
	}
	g := r.Summary.Groups[0]
	if in := g.Inserted; in == nil || in.Insert.Count != 100 || g.Total.Count+g.Total.Errors != 400 {
		t.Errorf("inserted %+v, total %+v; want 100 records and 400 operations", in, g.Total)
	}
	for _, op := range g.Ops {
		failed := op.Name == "mset" // its keys have different slots
		if failed && (op.Errors == 0 || op.Count != 0) || !failed && (op.Errors != 0 || op.Count == 0) ||
			op.Name == "get" && op.Misses != 0 {
			t.Errorf("%s: %+v", op.Name, op)
		}
	}
}

// Commands go to any server, and their errors count there, too.
func TestBenchCommandsToATarget(t *testing.T) {
	t.Chdir(t.TempDir())
	got := neokvRun(t, nil, "bench", "--target", server(t, true), "--operations", "100", "--clients", "2",
		"--out", "x.jsonl", "--command", "SET {key uniform 50} {value 8}", "--command", "3: EXISTS {key uniform 50}")
	if got.status != statusDone {
		t.Fatalf("status %d, stderr %q", got.status, got.stderr)
	}
	ops := readResult(t, got.stdout).Summary.Groups[0].Ops
	if ops[0].Count == 0 || ops[0].Errors != 0 || ops[1].Count != 0 || ops[1].Errors <= ops[0].Count ||
		ops[0].Count+ops[1].Errors != 100 {
		t.Errorf("operations %+v", ops)
	}
}

// A search from the command line.
func TestBenchFindMax(t *testing.T) {
	if testing.Short() {
		t.Skip("what its processes do, those of other tests do, too")
	}
	out := filepath.Join(t.TempDir(), "max.jsonl")
	got := neokvRun(t, nil, append([]string{"bench", "--mem", "--workload", "set", "--rate", "50", "--out", out,
		"--find-max", "--slo", "max<1us", "--step", "100ms"}, short...)...)
	if got.status != statusFailed || !strings.Contains(got.stdout, "want max<1us") ||
		!strings.Contains(got.stdout, "\nno rate that was tried holds max<1us, errors<1%\n") ||
		!strings.Contains(got.stderr, "no rate that holds max<1us, errors<1% was confirmed") {
		t.Fatalf("status %d, stdout\n%s\nstderr %q", got.status, got.stdout, got.stderr)
	}
	c := readResult(t, got.stdout).Summary.Curve
	if c == nil || c.Best != 0 || len(c.Rows) < 2 || c.Rows[0].Rate != 50 || c.Rows[len(c.Rows)-1].Rate != 1 {
		t.Errorf("curve %+v; want a search down to 1 per second, since nothing takes less than a microsecond", c)
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
