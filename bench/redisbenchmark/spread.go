package redisbenchmark

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"go.yaml.in/yaml/v3"

	"neokv.dev/bench"
	"neokv.dev/bench/children"
	"neokv.dev/results"
	"neokv.dev/workloads"
)

// This file sends a test with NeoKV's own generator: the operation of that test of the workload redis-benchmark, with
// the clients, pipeline, threads and sizes of values of the command line, over keys of all slots.

const (
	usualKeys = 100_000 // where the command line has no -r
	leastKeys = 10_000  // of which the workload makes one list for LRANGE
	// popsPerSecond is for how many pops a second there are elements.
	popsPerSecond = 200_000
	mostElements  = 10_000 // of a collection
)

func (o *Options) records() int64 {
	if o.Load.Keys == 0 {
		return usualKeys
	}
	return max(o.Load.Keys, leastKeys)
}

// spreads says what the generator sends, with as many threads as redis-benchmark has.
func (o *Options) spreads(threads int) string {
	return fmt.Sprintf("neokv's own generator: keys of all slots, clients %d, pipeline %d, threads %d, values of %d "+
		"bytes, %s keys, %v a test after a warm-up of %v", o.Load.Clients, o.Load.Pipeline, max(1, threads),
		o.Load.ValueBytes, results.Count(o.records()), o.Spread, o.Spread/2)
}

// spread runs the generator for one test. The process has as many threads for Go code as redis-benchmark has meanwhile.
func (c *comparing) spread(ctx context.Context, r *children.Running, s comparedSide, t *TestFigures) error {
	own := findTest(t.Test)
	path := filepath.Join(r.Dir(), own.op+".yaml")
	if err := writeWorkload(path, own.op); err != nil {
		return err
	}
	targets := []string{r.Proxy()}
	if s.cluster {
		targets = r.Addrs()
	}
	elements := 10
	if own.op == "lpop" || own.op == "rpop" || own.op == "spop" || own.op == "zpopmin" {
		collections := float64(c.records() / 10)
		elements = min(max(elements, int(popsPerSecond*c.Spread.Seconds()/collections)), mostElements)
	}
	slots := bench.SpreadSlots
	if s.cluster {
		slots = bench.OneNode
	}
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(max(1, s.pair.Threads)))
	_, sum, err := bench.Measure(ctx, bench.Options{
		Targets: targets,
		Groups: []bench.GroupOptions{{
			Workload: path, Clients: c.Load.Clients, Pipeline: c.Load.Pipeline, Slots: slots,
			Records: uint64(c.records()), Elements: elements, ValueSize: c.Load.ValueBytes,
		}},
		Duration: c.Spread, Warmup: c.Spread / 2, Seed: 1, Login: bench.Login{Password: r.Password()},
	})
	switch {
	case err != nil:
		return err
	case len(sum.Groups) == 0 || sum.Groups[0].Total.Count == 0:
		return errors.New("nothing was answered")
	}
	total, figures := sum.Groups[0].Total, s.of(t)
	figures.add(total.PerSecond, float64(total.Service.P50.US)/1e3, float64(total.Service.P99.US)/1e3)
	if cpu, ok := sum.Work["process_cpu_us"]; ok {
		figures.CPU = append(figures.CPU, float64(cpu)/float64(total.Count))
	}
	for kind, n := range sum.Groups[0].Kinds {
		if figures.Errors == nil {
			figures.Errors = map[string]int64{}
		}
		figures.Errors[kind] += n
	}
	if total.Reads {
		figures.Reads += total.Count
		figures.Misses += total.Misses
	}
	return nil
}

// writeWorkload writes a workload of one operation of the workload redis-benchmark.
func writeWorkload(path, op string) error {
	all, err := workloads.Find("redis-benchmark")
	if err != nil {
		return err
	}
	text, err := oneOperation(all.Text, op)
	if err != nil {
		return err
	}
	return os.WriteFile(path, text, 0o644)
}

// oneOperation returns a workload file with one operation of another file, and the records that it is about.
func oneOperation(text []byte, op string) ([]byte, error) {
	var file struct {
		About   string           `yaml:"about"`
		Records []map[string]any `yaml:"records"`
		Mix     []map[string]any `yaml:"mix"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil {
		return nil, err
	}
	for _, m := range file.Mix {
		if m["op"] != op {
			continue
		}
		for _, r := range file.Records {
			if r["kind"] == m["on"] { // both are absent for strings
				return yaml.Marshal(map[string]any{"about": op + " alone", "records": []any{r}, "mix": []any{m}})
			}
		}
	}
	return nil, fmt.Errorf("workload redis-benchmark: no operation %s", op)
}
