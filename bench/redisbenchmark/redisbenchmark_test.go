package redisbenchmark

import (
	"encoding/json"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/compare"
	"neokv.dev/workloads"
)

const (
	columns = `"test","rps","avg_latency_ms","min_latency_ms","p50_latency_ms","p95_latency_ms","p99_latency_ms",` +
		`"max_latency_ms"` + "\n"
	setRow = `"SET","39840.64","2.077","0.168","1.703","3.871","10.983","14.759"` + "\n"
	// What redis-benchmark 7.0.15 prints in front of its table with --cluster.
	nodesOfCluster = "Cluster has 3 master nodes:\n\n" +
		"Master 0: 7d4736955dfdd85a33539da8ba068a065bdd6340 127.0.0.1:36641\n" +
		"Master 1: d8eeb37a16b51f1791080e2b1222f9b31102f22d 127.0.0.1:45511\n" +
		"Master 2: ccd598fc66401e414973239f4ff11b4bd781ebc8 127.0.0.1:38969\n\n"
)

func TestParseCSV(t *testing.T) {
	set := PrintedRow{"SET", 39840.64, 1.703, 3.871, 10.983}
	for _, c := range []struct {
		out  string
		want []PrintedRow
		err  string
	}{
		{out: columns + setRow, want: []PrintedRow{set}},
		{out: nodesOfCluster + columns + setRow, want: []PrintedRow{set}},
		{out: columns +
			`"LPUSH (needed to benchmark LRANGE)","3952.57","2.272","0.352","1.903","4.895","9.759","9.935"` + "\n" +
			`"LRANGE_100 (first 100 elements)","3984.06","2.257","0.048","1.311","8.247","18.479","25.071"` + "\n",
			want: []PrintedRow{{"LPUSH (needed to benchmark LRANGE)", 3952.57, 1.903, 4.895, 9.759},
				{"LRANGE_100 (first 100 elements)", 3984.06, 1.311, 8.247, 18.479}}},
		{out: columns}, // as for names behind -t that it does not know
		{out: "", err: "printed no table"},
		{out: nodesOfCluster, err: "printed no table"},
		{out: "Could not connect\n" + columns + setRow, err: `printed "Could not connect", want "test","rps"`},
		{out: columns + "Error from server: ERR no\n" + setRow, err: "wrong number of fields"},
		{out: columns + setRow + "all done\n", err: "wrong number of fields"},
		{out: `"SET","39840.64"` + "\n", err: `want "test","rps"`}, // before version 6.2
		{out: `"test","rps"` + "\n" + `"SET","1.00"` + "\n", err: "no column"},
		{out: columns + strings.Replace(setRow, "39840.64", "0.00", 1), err: `SET: rps is "0.00", want a figure`},
		{out: columns + strings.Replace(setRow, "39840.64", "inf", 1),
			err: `"inf", want a figure: the test took less than`},
		{out: columns + strings.Replace(setRow, "39840.64", "nan", 1), err: `SET: rps is "nan", want a figure`},
		{out: columns + strings.Replace(setRow, "1.703", "", 1), err: `SET: p50_latency_ms is "", want a figure`},
		{out: columns + `"set a"b","1","1","1","1","1","1","1"` + "\n", err: "table"},
	} {
		got, err := ParseCSV(c.out)
		if !slices.Equal(got, c.want) || (err == nil) != (c.err == "") ||
			err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("ParseCSV(%q) = %+v, %v; want %+v, %q", c.out, got, err, c.want, c.err)
		}
	}
}

func TestParseFlags(t *testing.T) {
	all := SentLoad{Requests: 100_000, Clients: 50, Pipeline: 1, ValueBytes: 3}
	for _, own := range ownTests {
		all.Tests = append(all.Tests, own.name)
	}
	for _, c := range []struct {
		args string
		want SentLoad
		err  []string
	}{
		{args: "", want: all},
		{args: "-t SET,ping -n 10 -c 2 -P 3 -d 4 -r 5 --threads 6 -k 0 -3", want: SentLoad{
			Flags: strings.Fields("-n 10 -c 2 -P 3 -d 4 -r 5 --threads 6 -k 0 -3"),
			Tests: []string{"ping_inline", "ping_mbulk", "set"}, Requests: 10, Clients: 2, Pipeline: 3, ValueBytes: 4,
			Keys: 5, Threads: 6}},
		{args: "-t lrange", want: SentLoad{Tests: []string{"lrange_100", "lrange_300", "lrange_500", "lrange_600"},
			Requests: 100_000, Clients: 50, Pipeline: 1, ValueBytes: 3}},
		{args: "-n 7 hset key:{tag} -t x", want: SentLoad{Flags: []string{"-n", "7"},
			Command: []string{"hset", "key:{tag}", "-t", "x"}, Requests: 7, Clients: 50, Pipeline: 1, ValueBytes: 3}},
		{args: "-h x -p 1 -s y -a z --user u -u v --cluster --csv -q -l -I -x --tls --dbnum 1", err: []string{
			"-h: not possible here, since this command sets it", "-p: not", "-s: not", "-a: not", "--user: not",
			"-u: not", "--cluster: not", "--csv: not", "-q: not",
			"-l: not possible here, since the tests would never end", "-I: not", "-x: not", "--tls: not",
			"--dbnum: not"}},
		{args: "-n 0 -c x -P 10001 -d -1 -r 3000000000 --threads 501 -k 2 --fast -t", err: []string{
			"-n 0: want 1 to 2147483647", "-c x: want 1 to 10000", "-P 10001: want", "-d -1: want",
			"-r 3000000000: want", "--threads 501: want 1 to 500", "-k 2: want 0 to 1",
			"--fast: unknown, want any of -c, -n", "-t: want a value"}},
		{args: "-t set,sett,", err: []string{`-t "sett": unknown, want some of ping, lrange, ping_inline`,
			`-t "": unknown`}},
		{args: "-t set get key", err: []string{"-t set: not beside the command get"}},
		{args: `set key "x"`, err: []string{"cannot have quotes"}},
	} {
		got, err := ParseFlags(strings.Fields(c.args))
		if c.err == nil {
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("ParseFlags(%q) = %+v, %v; want %+v", c.args, got, err, c.want)
			}
			continue
		}
		if err == nil || strings.Count(err.Error(), "\n")+1 != len(c.err) {
			t.Errorf("ParseFlags(%q): %v; want %d problems", c.args, err, len(c.err))
			continue
		}
		for _, want := range c.err {
			if !strings.Contains(err.Error(), "redis-benchmark "+want) && !strings.Contains(err.Error(), want) {
				t.Errorf("ParseFlags(%q): %v; want %q", c.args, err, want)
			}
		}
	}
}

// A cluster gets no command whose key redis-benchmark cannot lead to its node.
func TestCheckCluster(t *testing.T) {
	for _, c := range []struct {
		args, want string // want is a part of the error, "" for none
	}{
		{"-t set", ""},
		{"set key:{tag}:__rand_int__ x", ""},
		{"set {tag}:{other} x", ""},
		{"ping", ""},
		{"publish channel x", ""},
		{"eval script 1 {tag} x", ""},
		{"eval script 0 x", ""},
		{"blmpop 1 1 {tag} left", ""},
		{"GET key:1", `key "key:1" of the command: want {tag} in it, before any other brace, as in "{tag}:key:1"`},
		{"set key {tag}", `key "key"`}, // in the value it does not count
		{"set set x", `as in "{tag}:set"`},
		{"set {a}{tag} x", `as in "{tag}:{a}"`},
		{"set {}{tag} x", `key "{}{tag}"`}, // Redis hashes all of this key
		{"set {{tag} x", `key "{{tag}"`},
		{"eval script 1 key {tag}", `key "key"`},
		{"blmpop 1 1 key left", `key "key"`},
	} {
		l, err := ParseFlags(strings.Fields(c.args))
		if err != nil {
			t.Fatal(err)
		}
		if err = l.CheckCluster(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("CheckCluster(%q) = %v; want %q", c.args, err, c.want)
		}
	}
}

func TestRatio(t *testing.T) {
	for _, c := range []struct {
		neokv, peer []float64
		want        *compare.Estimate
	}{
		{nil, nil, nil},
		{[]float64{1, 2, 3, 4, 6}, []float64{1, 1, 1, 1, 1}, &compare.Estimate{Center: 3, N: 5}}, // too few for 95 %
		{[]float64{2, 4, 6, 8, 10, 12}, []float64{1, 1, 1, 1, 1, 1},
			&compare.Estimate{Center: 7, Interval: []float64{2, 12}, N: 6}},
		{[]float64{9, 18, 27, 36, 45, 63}, []float64{10, 20, 30, 40, 50, 60}, // one round of six is ahead
			&compare.Estimate{Center: 0.9, Interval: []float64{0.9, 1.05}, N: 6}},
	} {
		if got := newRatio(c.neokv, c.peer); !reflect.DeepEqual(got, c.want) {
			t.Errorf("newRatio(%v, %v) = %+v, want %+v", c.neokv, c.peer, got, c.want)
		}
	}
}

// six returns figures of six rounds around one.
func six(rate, p50, p99, cpu float64) SideFigures {
	var a SideFigures
	for _, x := range []float64{0.9, 1.1, 0.95, 1.05, 1, 1} {
		a.add(rate*x, p50*x, p99*x)
		a.CPU = append(a.CPU, cpu*x)
	}
	return a
}

func someFindings() *Findings {
	wrong, missed := six(30_000, 1, 2, 3), six(80_000, 0.5, 1, 2)
	wrong.Errors = map[string]int64{"MOVED": 1234, "ERR": 1}
	missed.Reads, missed.Misses = 1000, 250
	short := six(400_000, 1, 2, 3)
	steady := SideFigures{PerSecond: []float64{1, 1, 1, 1, 1, 1}, P50: []float64{1}, P99: []float64{1}}
	return &Findings{
		Started: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Tool: "redis-benchmark 7.0.15", Rounds: 6,
		Durability: "always",
		Machine:    results.Machine{CPU: "a CPU", Cores: 2, MemoryBytes: 8e9, OS: "an OS"},
		Load: SentLoad{Tests: []string{"set"}, Requests: 1_000_000, Clients: 50, Pipeline: 16, ValueBytes: 64,
			Keys: 1000, Threads: 3},
		Pairs: []*Pair{{
			Threads: 3, Generator: "the generator",
			NeoKV: SideFacts{neokvAlone, "0.1.0", "neokv, by a port"},
			Peer:  SideFacts{redisCluster, "7.0.15", "3 masters"},
			Tests: []*TestFigures{
				{Test: "set", NeoKV: six(10_000, 1, 2, 3), Peer: six(20_000, 0.5, 1, 2)},
				{Test: "get", NeoKV: six(10_000, 1, 2, 3), Peer: missed},
				{Test: "incr", NeoKV: wrong, Peer: six(20_000, 0.5, 1, 2)},
				{Test: "mset", NeoKV: short, Peer: short},
			},
			Spread: []*TestFigures{
				{Test: "set", NeoKV: SideFigures{PerSecond: []float64{1, 1, 1, 2, 2, 0.5}}, Peer: steady},
			},
		}},
	}
}

const table = "rate of neokv against redis-cluster: lower in set (x0.50), get (x0.12); cannot tell in incr, mset\n\n" +
	"redis-benchmark 7.0.15: 1,000,000 commands a test, clients 50, threads 3, pipeline 16, " +
	"values of 64 bytes, random keys of 1,000" + `
6 rounds, every other one in the opposite order, each side started afresh; durability always
a CPU, 2 cores, 8.0 GB, an OS
2026-01-02 03:04 UTC

neokv: 0.1.0, neokv, by a port
redis-cluster: 7.0.15, 3 masters

redis-benchmark  neokv/s  redis-cluster/s      ratio   interval  p50, ms        p99, ms        CPU, us
set               10,000           20,000       0.50  0.50-0.50     1.00  0.50     2.00  1.00     3.00  2.00
get               10,000           80,000       0.12  0.12-0.12     1.00  0.50     2.00  1.00     3.00  2.00
incr              30,000           20,000     errors          -     1.00  0.50     2.00  1.00     3.00  2.00
mset             400,000          400,000  too short          -     1.00  1.00     2.00  2.00     3.00  3.00

the generator

over all slots  neokv/s  redis-cluster/s  ratio   interval  p50, ms        p99, ms        CPU, us
set                   1                1  ~1.00  0.50-2.00        -  1.00        -  1.00        -  -
`

func TestPrint(t *testing.T) {
	f := someFindings()
	f.finish()
	var b strings.Builder
	if err := f.Print(&b, "table"); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(b.String(), table) {
		t.Errorf("printed\n%s\nwant\n%s", b.String(), table)
	}
	for _, want := range []string{
		"counts error replies as answers. The servers counted incr of neokv: 1 ERR, incr of neokv: 1,234 MOVED.",
		"-r spreads strings and counters over 1,000 keys.", "one slot per node", "coordinated omission",
		"Reads that found nothing count like others: get of redis-cluster 25 %.",
		"There is no ratio of mset of neokv; a larger -n",
	} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("printed\n%s\nwant %q", b.String(), want)
		}
	}
	b.Reset()
	if err := f.Print(&b, "md"); err != nil {
		t.Fatal(err)
	}
	const row = "| set | 10,000 | 20,000 | 0.50 | 0.50-0.50 | 1.00 | 0.50 | 2.00 | 1.00 | 3.00 | 2.00 |\n"
	if !strings.HasPrefix(b.String(), "**rate of neokv against redis-cluster: lower in set (x0.50)") ||
		!strings.Contains(b.String(), row) {
		t.Errorf("printed\n%s\nwant %q", b.String(), row)
	}
	b.Reset()
	if err := f.Print(&b, "json"); err != nil {
		t.Fatal(err)
	}
	var back *Findings
	if err := json.Unmarshal([]byte(b.String()), &back); err != nil || !reflect.DeepEqual(back, f) {
		t.Errorf("JSON %s, %v", b.String(), err)
	}

	// Without -r, on one server, and without errors.
	f = someFindings()
	f.Load.Keys, f.Pairs[0].Threads = 0, 0
	f.Pairs[0].Peer.Name, f.Pairs[0].Tests = redisServer, f.Pairs[0].Tests[:1]
	f.finish()
	if len(f.Hidden) != 3 || !strings.Contains(f.Hidden[0], "The servers counted none.") ||
		!strings.Contains(f.Hidden[1], "each test is about one key. SPOP") {
		t.Errorf("hidden: %q", f.Hidden)
	}
}

// Each test has a workload of its own that the generator can send.
func TestOneOperation(t *testing.T) {
	for _, own := range ownTests {
		path := filepath.Join(t.TempDir(), own.op+".yaml")
		if err := writeWorkload(path, own.op); err != nil {
			t.Fatal(err)
		}
		w, err := workloads.Find(path)
		if err != nil {
			t.Fatal(err)
		}
		if len(w.Ops) != 1 || w.Ops[0].Name != own.op || w.Ops[0].Share != 1 {
			t.Errorf("%s: operations %+v", own.name, w.Ops)
		}
		if _, err := workloads.NewSource(w, workloads.SourceOptions{
			Records: leastKeys, Elements: 10, ValueSize: 3, Clients: 50, Seed: 1,
		}); err != nil {
			t.Errorf("%s: %v", own.name, err)
		}
	}
	if err := writeWorkload(filepath.Join(t.TempDir(), "x"), "nosuch"); err == nil {
		t.Error("an operation that is not there has a workload")
	}
}

func TestDropRound(t *testing.T) {
	c := &comparing{found: someFindings()}
	c.dropRound(2)
	for _, test := range c.found.Pairs[0].Tests {
		if len(test.NeoKV.PerSecond) != 2 || len(test.Peer.CPU) != 2 || len(test.NeoKV.P50) != 2 {
			t.Errorf("%s: %+v", test.Test, test)
		}
	}
}
