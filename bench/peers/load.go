package main

import (
	"bytes"
	"context"
	"encoding/csv"
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
	"time"

	"github.com/redis/go-redis/v9"
	clientv3 "go.etcd.io/etcd/client/v3"

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
}, allStringTests(), allTypeTests(), typeTests())

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
	t.run = func(ctx context.Context, x *bench, to peerTarget, in *instance, r *measurement) error {
		return x.sendAll(ctx, t, to, in, r)
	}
	return t
}

// allStringTests are the tests with neokv bench of SET and GET. They are in the default list.
func allStringTests() (all []test) {
	for _, workload := range []string{"set", "get"} {
		for _, pipeline := range []int{1, 16} {
			t := neokvBenchTest(workload, 50, pipeline, keysPerTag)
			t.optional = false
			all = append(all, t)
		}
	}
	return all
}

// allTypeTests are the tests with neokv bench of counters, hashes, lists, sets and sorted sets. All collections
// together have as many elements as the other tests have keys.
func allTypeTests() []test {
	all := []test{neokvBenchTest("incr", 50, 16, keysPerTag)}
	for _, workload := range []string{"lpush", "rpush", "hset", "sadd", "zadd", "lpop", "spop", "zpopmin"} {
		all = append(all, neokvBenchTest(workload, 50, 16, keysPerTag/elementsPerKey))
	}
	return all
}

// elements returns how many elements neokv bench loads into each collection. For pops these are more than a run takes.
// For other commands they are few, since the compactions of what is loaded go on into the run.
func (x *bench) elements(t test, to peerTarget) int {
	if !strings.Contains(t.workload, "pop") {
		return elementsPerKey
	}
	perSecond := 600_000.0
	if to.proxy { // a NeoKV
		perSecond = 100_000
	}
	return int(perSecond * (x.length + 1) / float64(t.records))
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
	bytes, _, err := in.use()
	r.Value = float64(bytes) / 1e6
	return err
}

func measureIdle(ctx context.Context, x *bench, _ peerTarget, in *instance, r *measurement) error {
	_, before, err := in.use()
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
	_, after, err := in.use()
	r.Value = 100 * (after - before).Seconds() / took.Seconds()
	return err
}

// use adds up memory and CPU time of the target's processes.
func (in *instance) use() (bytes int64, cpu time.Duration, err error) {
	for _, s := range in.servers {
		b, c, err := s.use()
		if err != nil {
			return 0, 0, err
		}
		bytes += b
		cpu += c
	}
	return bytes, cpu, nil
}

func measureFailover(ctx context.Context, x *bench, t peerTarget, _ *instance, r *measurement) error {
	in, err := x.start(ctx, t, start{nodeTimeout: time.Second})
	if err != nil {
		return err
	}
	defer in.stop()
	begin := time.Now()
	in.servers[0].kill()
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
	if _, sum.cpu, err = in.use(); err != nil {
		return sum, err
	}
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
	at := in.addrs[0]
	if t.proxy && in.proxy != "" {
		at = in.proxy
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
	return parseCSV(string(out))
}

// parseCSV reads the one line of figures that redis-benchmark --csv prints.
func parseCSV(out string) (r loadResult, err error) {
	at := strings.Index(out, `"test","rps"`)
	if at < 0 {
		return r, fmt.Errorf("redis-benchmark printed no table: %q", out)
	}
	rows, err := csv.NewReader(strings.NewReader(out[at:])).ReadAll()
	if err != nil || len(rows) != 2 {
		return r, fmt.Errorf("redis-benchmark printed %q: want one line of figures (%v)", out, err)
	}
	for i, name := range rows[0] {
		to := map[string]*float64{"rps": &r.perSecond, "p50_latency_ms": &r.p50, "p95_latency_ms": &r.p95,
			"p99_latency_ms": &r.p99}[name]
		if to == nil {
			continue
		}
		if *to, err = strconv.ParseFloat(rows[1][i], 64); err != nil {
			return r, fmt.Errorf("redis-benchmark: %s: %w", name, err)
		}
	}
	return r, nil
}

// sendAll runs neokv bench against a target that runs.
func (x *bench) sendAll(ctx context.Context, t test, to peerTarget, in *instance, r *measurement) error {
	s, err := x.neokvBench(ctx, in, benchLoad{
		workload: t.workload, clients: t.clients, pipeline: t.pipeline, records: t.records, elements: x.elements(t, to),
		valueBytes: valueBytes, warmup: time.Second,
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
	elements                               int           // of each record that is a collection, 0 for the default
	warmup                                 time.Duration // sent first, without measuring
}

// neokvBench sends a load to a target that runs and returns the summary.
func (x *bench) neokvBench(ctx context.Context, in *instance, l benchLoad) (*results.Summary, error) {
	file := filepath.Join(in.dir, "bench.jsonl")
	args := []string{"bench", "--target", strings.Join(in.addrs, ","), "--workload", l.workload, "--clients",
		strconv.Itoa(l.clients),
		"--pipeline", strconv.Itoa(l.pipeline), "--duration", strconv.FormatFloat(x.length, 'f', -1, 64) + "s",
		"--warmup", l.warmup.String(),
		"--records", strconv.Itoa(l.records), "--value-size", strconv.Itoa(l.valueBytes), "--out", file}
	if l.elements > 0 {
		args = append(args, "--elements", strconv.Itoa(l.elements))
	}
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
