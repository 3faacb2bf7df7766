package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

	"neokv.dev/bench/redisbenchmark"
	"neokv.dev/results"
)

// test is a row of the tables.
type test struct {
	name, doc         string
	unit              string
	optional          bool // no requirement asks for it
	ownStart          bool // starts the target itself
	keys              bool // wants keys loaded
	fits              func(peerTarget) bool
	run               func(ctx context.Context, x *bench, t peerTarget, in *instance, r *measurement) error
	clients, pipeline int
	write             bool

	workload string // the workload and number of records of neokv bench
	records  int

	types bool     // a test of types.go, whose fields follow
	words []string // the command that redis-benchmark sends, instead of SET or GET
	fill  fill     // what the keys hold before the run
	proxy bool     // sent to the proxy port of a NeoKV
}

func (t test) key() string { return t.name }

func (t test) about() string { return t.doc }

func (t test) withUnit() string { return t.name + ", " + t.unit }

func requiredTests() (out []string) {
	for _, t := range tests {
		if !t.optional {
			out = append(out, t.name)
		}
	}
	return out
}

const (
	unitRate    = "k op/s"
	unitSeconds = "s"
	unitBytes   = "MB"
	unitCPU     = "% of a core"
)

var tests = slices.Concat([]test{
	{name: "boot", doc: "start in memory until every slot takes a write", unit: unitSeconds, ownStart: true,
		run:  measureBoot,
		fits: func(t peerTarget) bool { return t.redis && t.name != "redcon" }},
	{name: "failover", doc: "kill -9 of a master of Redis Cluster at a node time-out of 1 s until its slots " +
		"take writes",
		unit:     unitSeconds,
		ownStart: true, run: measureFailover, fits: func(t peerTarget) bool { return t.name == "redis-cluster" }},
	{name: "memory", doc: "resident memory of all processes after boot", unit: unitBytes, run: measureMemory,
		fits: anyTarget},
	{name: "idle", doc: "CPU of all processes with no clients", unit: unitCPU, run: measureIdle, fits: anyTarget},
	sendTest("set-1", "redis-benchmark: SET, 1 client", 1, 1, true),
	sendTest("set-50-1", "redis-benchmark: SET -c 50 -P 1", 50, 1, true),
	sendTest("set-50-16", "redis-benchmark: SET -c 50 -P 16", 50, 16, true),
	sendTest("get-50-1", "redis-benchmark: GET -c 50 -P 1", 50, 1, false),
	sendTest("get-50-16", "redis-benchmark: GET -c 50 -P 16", 50, 16, false),
}, allTests(), typeTests())

func anyTarget(peerTarget) bool { return true }

// sendTest makes a test with redis-benchmark, or for etcd with the loop of this program. redis-benchmark --cluster
// wants slots on every node; NeoKV has those from three regions on.
func sendTest(name, doc string, clients, pipeline int, write bool) test {
	t := test{name: name, doc: doc, unit: unitRate, keys: true, clients: clients, pipeline: pipeline, write: write}
	t.fits = func(t peerTarget) bool { return t.regions == 0 || t.regions >= clientThreads }
	t.run = func(ctx context.Context, x *bench, to peerTarget, in *instance, r *measurement) error {
		return x.send(ctx, t, to, in, r)
	}
	return t
}

// neokvBenchTest makes a test with neokv bench, which sends keys of all regions.
func neokvBenchTest(workload string, clients, pipeline, records int) test {
	t := test{
		name: fmt.Sprintf("all-%s-%d-%d", workload, clients, pipeline),
		doc:  fmt.Sprintf("neokv bench, keys of all slots: %s, %d clients, pipeline %d", workload, clients, pipeline),
		unit: unitRate, optional: true, clients: clients, pipeline: pipeline, workload: workload, records: records,
	}
	t.fits = func(t peerTarget) bool { return t.redis }
	t.run = func(ctx context.Context, x *bench, _ peerTarget, in *instance, r *measurement) error {
		return x.sendAll(ctx, t, in, r)
	}
	return t
}

// allTests are the tests with neokv bench, of strings and counters. For other types see neokv redis-benchmark.
func allTests() (all []test) {
	for _, workload := range []string{"set", "get"} {
		for _, pipeline := range []int{1, 16} {
			t := neokvBenchTest(workload, 50, pipeline, keysPerTag)
			t.optional = false
			all = append(all, t)
		}
	}
	return append(all, neokvBenchTest("incr", 50, 16, keysPerTag))
}

func (t test) command() string {
	if t.write {
		return "set"
	}
	return "get"
}

func measureBoot(ctx context.Context, x *bench, t peerTarget, _ *instance, r *measurement) error {
	in, err := x.start(ctx, t, start{memory: true})
	if err != nil {
		return err
	}
	r.Value = in.boot.Seconds()
	in.stop()
	return nil
}

func measureMemory(_ context.Context, _ *bench, _ peerTarget, in *instance, r *measurement) error {
	use, err := in.Use()
	r.Value = float64(use.Memory) / 1e6
	return err
}

func measureIdle(ctx context.Context, x *bench, _ peerTarget, in *instance, r *measurement) error {
	before, err := in.Use()
	if err != nil {
		return err
	}
	begin := time.Now()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Duration(x.idle * float64(time.Second))):
	}
	took := time.Since(begin)
	after, err := in.Use()
	r.Value = 100 * (after.CPU - before.CPU).Seconds() / took.Seconds()
	return err
}

func measureFailover(ctx context.Context, x *bench, t peerTarget, _ *instance, r *measurement) error {
	in, err := x.start(ctx, t, start{nodeTimeout: time.Second})
	if err != nil {
		return err
	}
	defer in.stop()
	info, err := infoFields(ctx, in.nodes[0], "server")
	if err != nil {
		return err
	}
	pid, err := strconv.Atoi(info["process_id"])
	if err != nil {
		return fmt.Errorf("INFO server: process_id: %w", err)
	}
	begin := time.Now()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		return err
	}
	in.nodes[0].Close()
	in.nodes = in.nodes[1:]
	err = await(ctx, "fail over", func() error { return in.accepts(ctx) })
	r.Value = time.Since(begin).Seconds()
	return err
}

// load writes every key that redis-benchmark will ask for.
func (in *instance) load(ctx context.Context) error {
	if in.etcd != nil {
		return loadEtcd(ctx, in)
	}
	prefixes := []string{"key:"}
	if len(in.nodes) > 1 {
		var err error
		if prefixes, err = in.taggedPrefixes(ctx); err != nil {
			return err
		}
	}
	value := strings.Repeat("x", valueBytes)
	for _, prefix := range prefixes {
		const perPipeline = 1000
		for first := 0; first < keysPerTag; first += perPipeline {
			err := in.pipelined(ctx, func(p redis.Pipeliner) {
				for i := range perPipeline {
					p.Set(ctx, fmt.Sprintf("%s%012d", prefix, first+i), value, 0)
				}
			})
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// pipelined sends commands of one slot to the node that accepts them. It first tries the node that accepted the last
// ones.
func (in *instance) pipelined(ctx context.Context, fill func(redis.Pipeliner)) (err error) {
	for range in.nodes {
		if _, err = in.nodes[in.taker].Pipelined(ctx,
			func(p redis.Pipeliner) error { fill(p); return nil }); err == nil {
			return nil
		}
		in.taker = (in.taker + 1) % len(in.nodes)
	}
	return err
}

// taggedPrefixes finds out which keys redis-benchmark --cluster uses: it puts a tag of each node's first slot into
// them. A tiny run writes some keys, and SCAN finds them.
func (in *instance) taggedPrefixes(ctx context.Context) ([]string, error) {
	if _, err := redisBenchmark(ctx, in, test{write: true, clients: clientThreads, pipeline: 1}, 100, 1); err != nil {
		return nil, err
	}
	found := map[string]bool{}
	for _, c := range in.nodes {
		it := c.Scan(ctx, 0, "key:{*}:*", 1000).Iterator()
		for it.Next(ctx) {
			found[it.Val()[:strings.LastIndex(it.Val(), ":")+1]] = true
		}
		if err := it.Err(); err != nil {
			return nil, err
		}
	}
	if len(found) != clientThreads {
		return nil, fmt.Errorf("redis-benchmark used the tags %v: want one of each of %d nodes", found, clientThreads)
	}
	var prefixes []string
	for p := range found {
		prefixes = append(prefixes, p)
	}
	slices.Sort(prefixes)
	return prefixes, nil
}

// send runs redis-benchmark, or the loop for etcd, for about as long as asked, and counts misses and error replies. The
// rate of the run before tells how many operations that takes. A run of less than half that time is repeated:
// redis-benchmark with threads checks only every quarter of a second whether it is done, so a short run would have a
// wrong rate.
func (x *bench) send(ctx context.Context, t test, to peerTarget, in *instance, r *measurement) error {
	load := redisBenchmark
	if in.etcd != nil {
		load = loopEtcd
	}
	limited, cancel := context.WithTimeout(ctx,
		time.Minute+time.Duration(20*x.length)*time.Second) // a client that waits for a lost answer must end
	defer cancel()
	id := to.name + " " + t.name
	n := 500 * t.pipeline
	if rate := x.rates[id]; rate > 0 {
		n = int(rate*x.length) + 1
	}
	for {
		if err := in.prepare(ctx, t, n); err != nil {
			return err
		}
		before, err := in.counters(ctx)
		if err != nil {
			return err
		}
		got, err := load(limited, in, t, n, keysPerTag)
		if err != nil {
			return err
		}
		after, err := in.counters(ctx)
		if err != nil {
			return err
		}
		if err := in.drained(ctx, t); err != nil {
			return err
		}
		x.rates[id] = got.perSecond
		if float64(n) < got.perSecond*x.length/2 {
			n = int(got.perSecond*x.length) + 1
			continue
		}
		r.Value, r.P50, r.P95, r.P99 = got.perSecond/1e3, got.p50, got.p95, got.p99
		r.CPU = float64((after.cpu - before.cpu).Microseconds()) / float64(n)
		r.Misses, r.Errors = after.misses-before.misses+got.misses, after.errors-before.errors+got.errors
		if after.misses < 0 && !t.write {
			r.Misses = -1
		}
		return nil
	}
}

// loadResult is the result of a run of load; latencies are in milliseconds.
type loadResult struct {
	perSecond, p50, p95, p99 float64
	misses, errors           int64
}

// nodeCounters are the sums over all nodes. misses is -1 if a node does not count them.
type nodeCounters struct {
	misses, errors int64
	cpu            time.Duration
}

func (in *instance) counters(ctx context.Context) (sum nodeCounters, err error) {
	use, err := in.Use()
	if err != nil {
		return sum, err
	}
	sum.cpu = use.CPU
	for _, c := range in.nodes {
		f, err := infoFields(ctx, c, "stats")
		if err != nil {
			return sum, fmt.Errorf("INFO stats: %w", err)
		}
		errs, err := strconv.ParseInt(f["total_error_replies"], 10, 64)
		if err != nil {
			return sum, fmt.Errorf("INFO stats: total_error_replies: %w", err)
		}
		sum.errors += errs
		if misses, err := strconv.ParseInt(f["keyspace_misses"], 10, 64); err == nil && sum.misses >= 0 {
			sum.misses += misses
		} else {
			sum.misses = -1
		}
	}
	return sum, nil
}

// redisBenchmark sends n operations on keys below limit.
func redisBenchmark(ctx context.Context, in *instance, t test, n, limit int) (loadResult, error) {
	at := in.Addrs()[0]
	if t.proxy {
		at = in.Proxy()
	}
	_, port, _ := strings.Cut(at, ":")
	args := []string{"-p", port, "-c", strconv.Itoa(t.clients), "-P", strconv.Itoa(t.pipeline), "-n", strconv.Itoa(n),
		"-d", strconv.Itoa(valueBytes), "-r", strconv.Itoa(limit), "--threads", strconv.Itoa(clientThreads), "--csv"}
	if len(in.nodes) > 1 && !t.proxy {
		args = append(args, "--cluster")
	}
	if t.words != nil {
		args = append(args, t.words...)
	} else {
		args = append(args, "-t", t.command())
	}
	c := exec.CommandContext(ctx, "redis-benchmark", args...)
	var errs bytes.Buffer
	c.Stderr = &errs
	out, err := c.Output()
	if err != nil {
		return loadResult{}, fmt.Errorf("redis-benchmark %s: %w: %s", strings.Join(short(args), " "), err,
			errs.String())
	}
	rows, err := redisbenchmark.ParseCSV(string(out))
	if err == nil && len(rows) != 1 {
		err = fmt.Errorf("redis-benchmark printed %d rows, want 1", len(rows))
	}
	if err != nil {
		return loadResult{}, err
	}
	return loadResult{perSecond: rows[0].PerSecond, p50: rows[0].P50, p95: rows[0].P95, p99: rows[0].P99}, nil
}

// sendAll runs neokv bench against a target that runs.
func (x *bench) sendAll(ctx context.Context, t test, in *instance, r *measurement) error {
	s, err := x.neokvBench(ctx, in, benchLoad{
		workload: t.workload, clients: t.clients, pipeline: t.pipeline, records: t.records, valueBytes: valueBytes,
		warmup: time.Second,
	})
	if err != nil {
		return err
	}
	r.measured(s)
	return nil
}

// measured copies the figures of neokv bench into the run.
func (r *measurement) measured(s *results.Summary) {
	ms := func(us int64) float64 { return float64(us) / 1e3 }
	total := s.Groups[0].Total
	r.Value, r.P50, r.P95, r.P99 = total.PerSecond/1e3, ms(total.Service.P50), ms(total.Service.P95),
		ms(total.Service.P99)
	r.Misses, r.Errors = total.Misses, total.Errors
	if total.Count > 0 {
		r.CPU = float64(s.Work["process_cpu_us"]) / float64(total.Count)
	}
}

// benchLoad is what neokv bench sends.
type benchLoad struct {
	workload                               string
	clients, pipeline, records, valueBytes int
	warmup                                 time.Duration // sent first, without measuring
}

// neokvBench sends a load to a target that runs and returns the summary.
func (x *bench) neokvBench(ctx context.Context, in *instance, l benchLoad) (*results.Summary, error) {
	file := filepath.Join(in.Dir(), "bench.jsonl")
	args := []string{"bench", "--target", strings.Join(in.Addrs(), ","), "--workload", l.workload, "--clients",
		strconv.Itoa(l.clients),
		"--pipeline", strconv.Itoa(l.pipeline), "--duration", strconv.FormatFloat(x.length, 'f', -1, 64) + "s",
		"--warmup", l.warmup.String(),
		"--records", strconv.Itoa(l.records), "--value-size", strconv.Itoa(l.valueBytes), "--out", file}
	if out, err := exec.CommandContext(ctx, x.neokv, args...).CombinedOutput(); err != nil {
		return nil, fmt.Errorf("neokv %s: %w: %s", strings.Join(args, " "), err, out)
	}
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	res, err := results.Read(f)
	if err != nil {
		return nil, err
	}
	if res.Summary == nil {
		return nil, errors.New("neokv bench left no summary")
	}
	return res.Summary, nil
}

// etcdConnections is how many connections the clients share: three to each of three nodes.
const etcdConnections = 9

func etcdKey(i int) string { return fmt.Sprintf("key:%012d", i) }

func loadEtcd(ctx context.Context, in *instance) error {
	value := strings.Repeat("x", valueBytes)
	const perTxn = 100
	var next atomic.Int64
	return each(len(in.etcd), func(worker int) error {
		for {
			first := int(next.Add(perTxn) - perTxn)
			if first >= keysPerTag {
				return nil
			}
			ops := make([]clientv3.Op, perTxn)
			for i := range ops {
				ops[i] = clientv3.OpPut(etcdKey(first+i), value)
			}
			if _, err := in.etcd[worker].Txn(ctx).Then(ops...).Commit(); err != nil {
				return err
			}
		}
	})
}

// loopEtcd sends n operations on keys below limit in a closed loop. The protocol of etcd has no pipelines, so as many
// operations are under way as the pipelines of all clients would hold.
func loopEtcd(ctx context.Context, in *instance, t test, n, limit int) (loadResult, error) {
	var mu sync.Mutex
	all := results.NewHistogram()
	var left, misses, failed atomic.Int64
	left.Store(int64(n))
	value := strings.Repeat("x", valueBytes)
	begin := time.Now()
	err := each(t.clients*t.pipeline, func(worker int) error {
		c, h := in.etcd[worker%len(in.etcd)], results.NewHistogram()
		for left.Add(-1) >= 0 && ctx.Err() == nil {
			key, sent := etcdKey(rand.IntN(limit)), time.Now()
			if t.write {
				if _, err := c.Put(ctx, key, value); err != nil {
					failed.Add(1)
				}
			} else if got, err := c.Get(ctx, key); err != nil {
				failed.Add(1)
			} else if len(got.Kvs) == 0 {
				misses.Add(1)
			}
			results.Record(h, time.Since(sent))
		}
		mu.Lock()
		defer mu.Unlock()
		all.Merge(h)
		return ctx.Err()
	})
	took := time.Since(begin)
	ms := func(percentile float64) float64 { return float64(all.ValueAtQuantile(percentile)) / 1e3 }
	return loadResult{
		perSecond: float64(n) / took.Seconds(), p50: ms(50), p95: ms(95), p99: ms(99), misses: misses.Load(),
		errors: failed.Load(),
	}, err
}

// each runs n workers and returns all their errors.
func each(n int, work func(worker int) error) error {
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() { errs[i] = work(i) })
	}
	wg.Wait()
	return errors.Join(errs...)
}
