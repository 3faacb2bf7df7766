// Package gate tells whether this build is worse than the one of a baseline. It judges work per operation first, which
// hardly depends on the machine, and then CPU time and speed beside the baseline's build.
package gate

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/bench"
	"neokv.dev/bench/children"
	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// CountCase is a load whose work is counted, and the settings of the cluster for it.
type CountCase struct {
	Name string            `json:"name"`
	Set  []string          `json:"set"`
	Load bench.CountedLoad `json:"load"`
}

// directions are those of counts for which more or less is better only where the load is the same.
var directions = map[string]results.Direction{
	"row cache answers": results.Higher, "bloom probes": results.Lower, "bloom answers": results.Higher,
}

// bounds are what counts may be that the baseline has nothing of. A single flush of a memtable, by a store that takes a
// machine which stands still for a rest, stays below them.
var bounds = map[string]float64{"flush bytes": 25, "compaction bytes": 25, "block reads": 0.01}

// uncollected keeps the collector from emptying pools at other times in each run, so allocations are steady.
const uncollected = "GOGC=off"

// quiet are settings without which background work would come at other times in each run.
var quiet = []string{
	"raft.rtt=100ms", "redis.expire_interval=24h", "engine.memtable_size=1GiB", "raft.snapshot_entries=1000000",
}

// CountCases are the cases of a new baseline. A single store does the same work in every run, nearly to the byte. What
// three stores write depends a little on when their messages meet. Their entries are those of a single store, so one
// workload is enough for them. Absent keys of a table are for what filters and the block cache answer.
func CountCases() (out []CountCase) {
	for _, c := range []struct {
		workload string
		stores   int
	}{{"ycsb-a", 1}, {"redis-benchmark", 1}, {"ycsb-a", 3}} {
		for _, pipeline := range []int{1, 16} {
			out = append(out, CountCase{
				Name: fmt.Sprintf("%s P=%d stores=%d", c.workload, pipeline, c.stores),
				Set:  append([]string{fmt.Sprintf("cluster.stores=%d", c.stores)}, quiet...),
				Load: bench.CountedLoad{Workload: c.workload, Pipeline: pipeline, Operations: 20_000,
					Records: 1000, Elements: 10, ValueSize: 100, Seed: 7},
			})
		}
	}
	return append(out, CountCase{
		Name: "read-missing P=16 stores=1",
		Set:  append([]string{"cluster.stores=1", "engine.row_cache=0"}, quiet...),
		Load: bench.CountedLoad{Workload: "read-missing", Pipeline: 16, Operations: 24_000, Records: 10_000,
			Elements: 10, ValueSize: 100, Seed: 7, Tables: true},
	})
}

// Count runs the case on a cluster of its own in memory, and returns the work per operation. program is the neokv to
// run, empty for this one. A run that fails is tried again, once: where a machine stands still for seconds a write gets
// no answer in time. So is a run in which a store flushed its memtable: it may have taken a machine that stood still
// for half a second for a rest.
func (c CountCase) Count(ctx context.Context, program string, env []string) ([]results.Figure, error) {
	figures, err := c.run(ctx, program, env)
	flushed := slices.ContainsFunc(figures, func(f results.Figure) bool { return f.Name == "flush bytes" && f.Value > 0 })
	if err == nil && !flushed || ctx.Err() != nil {
		return figures, err
	}
	figures, again := c.run(ctx, program, env)
	if err == nil {
		return figures, again
	}
	if again != nil {
		return nil, fmt.Errorf("%w; tried again: %w", err, again)
	}
	return figures, nil
}

func (c CountCase) run(ctx context.Context, program string, env []string) (figures []results.Figure, err error) {
	target, err := children.Start(ctx, "", children.NeoKV{Program: program, InMemory: true, Set: c.Set,
		Env: append([]string{uncollected}, env...)})
	if err != nil {
		return nil, err
	}
	figures, err = bench.CountWork(ctx, target.Proxy(), c.Load)
	if err == nil {
		err = target.Err()
	}
	for i, f := range figures {
		if better, known := directions[f.Name]; known {
			figures[i].Better = better
		}
	}
	return slices.DeleteFunc(figures, func(f results.Figure) bool { return f.Kind != results.Counted }),
		errors.Join(err, target.Kill())
}

// Baseline is what a build did, to judge later ones by: a file of JSON.
type Baseline struct {
	Format  int             `json:"baseline_format"`
	Made    time.Time       `json:"made"`
	Build   results.Build   `json:"build"`
	Machine results.Machine `json:"machine"`
	Runs    int             `json:"runs"` // of each case; every second one beside a hog
	Cases   []CountedCase   `json:"cases"`
}

// BaselineFormat is the version of baselines.
const BaselineFormat = 1

// CountedCase is a case with what its runs counted.
type CountedCase struct {
	CountCase
	Figures []CountedFigure `json:"figures"`
}

// CountedFigure is one count of a case. Spread is how far the runs were from the median, at most, as a share of it.
type CountedFigure struct {
	Name   string            `json:"name"`
	Unit   string            `json:"unit"`
	Better results.Direction `json:"better,omitempty"`
	Median float64           `json:"median"`
	Spread float64           `json:"spread"`
}

// What a count must not exceed.
const (
	leastThreshold = 0.002  // also of a count that never varies
	widestSpread   = 0.005  // a count that varies more is information
	exactSpread    = 0.0002 // a count that varies less is exact
	FewestRuns     = 6      // of a case, for a baseline
)

// steady are counts that are not exact, and yet about the same on every machine as long as the collector empties no
// pools. They differ from a share on, and from a value per operation on, which is more where there is little of them.
var steady = map[string]struct{ share, value float64 }{
	"allocations": {0.15, 0.5}, "allocated bytes": {0.10, 100},
}

// Gates reports whether a change of the count fails a check.
func (f *CountedFigure) Gates() bool {
	widest := widestSpread
	if s, is := steady[f.Name]; is {
		widest = s.share
	}
	if f.Better == "" || f.Median == 0 {
		return f.Better != "" && f.Bound() > 0
	}
	return f.Spread <= widest || f.Spread*f.Median < f.Bound()/2
}

// Bound is by how much the count may differ: that of a steady count, or what it may be if the baseline has nothing of
// it. It is 0 if the threshold alone counts.
func (f *CountedFigure) Bound() float64 {
	if s, is := steady[f.Name]; is {
		return s.value
	}
	if f.Median > 0 {
		return 0
	}
	return bounds[f.Name]
}

// Exact reports whether the count gates and follows from the program alone, since neither time nor a hog changes it, or
// hardly so. So it is the same on another machine and with another number of cores.
func (f *CountedFigure) Exact() bool {
	return f.Gates() && (f.Bound() > 0 || f.Spread <= exactSpread)
}

// Threshold is the change from which on a count differs, as a share. It is four times what the runs of the baseline
// spread, since a check has more figures and more runs than the baseline had; twice that of a steady count.
func (f *CountedFigure) Threshold() float64 {
	if s, is := steady[f.Name]; is {
		return max(s.share, 2*f.Spread)
	}
	return max(leastThreshold, 4*f.Spread)
}

// Renew makes a baseline of a program, of this one if the path is empty. Every second run of a case goes on beside a
// goroutine that hogs a core, since a check may run on a busy machine. Progress is called before each run.
func Renew(ctx context.Context, program string, cases []CountCase, runs int,
	progress func(name string, run int)) (*Baseline, error) {
	if runs < FewestRuns {
		return nil, fmt.Errorf("%d runs: a baseline needs %d", runs, FewestRuns)
	}
	h := results.NewHeader()
	b := &Baseline{Format: BaselineFormat, Made: time.Now().UTC(), Build: h.Build, Machine: h.Machine, Runs: runs}
	for _, c := range cases {
		var all [][]results.Figure
		for i := range runs {
			progress(c.Name, i)
			stop := func() {}
			if i%2 == 1 {
				stop = hog()
			}
			figures, err := c.Count(ctx, program, nil)
			stop()
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.Name, err)
			}
			all = append(all, figures)
		}
		b.Cases = append(b.Cases, CountedCase{c, summarize(all)})
	}
	return b, nil
}

// summarize returns the median and the spread of each figure over the runs.
func summarize(runs [][]results.Figure) (out []CountedFigure) {
	for _, f := range runs[0] {
		var values []float64
		for _, run := range runs {
			for _, x := range run {
				if x.Name == f.Name {
					values = append(values, x.Value)
				}
			}
		}
		c := CountedFigure{Name: f.Name, Unit: f.Unit, Better: f.Better, Median: compare.NewEstimate(values).Center}
		for _, v := range values {
			if c.Median != 0 {
				c.Spread = max(c.Spread, math.Abs(v/c.Median-1))
			} else if v != 0 {
				c.Spread = 1
			}
		}
		out = append(out, c)
	}
	return out
}

// hog keeps a core busy until stop is called.
func hog() (stop func()) {
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for runtime.LockOSThread(); !done.Load(); {
			// a thread that never yields
		}
	})
	return func() {
		done.Store(true)
		wg.Wait()
	}
}
