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

// quiet are settings without which background work would come at other times in each run.
var quiet = []string{
	"raft.rtt=100ms", "redis.expire_interval=24h", "engine.memtable_size=1GiB", "raft.snapshot_entries=1000000",
}

// CountCases are the cases of a new baseline. A single store does the same work in every run, to the byte. What three
// stores write depends a little on when their messages meet.
func CountCases() (out []CountCase) {
	for _, stores := range []string{"1", "3"} {
		for _, pipeline := range []int{1, 16} {
			for _, workload := range []string{"ycsb-a", "redis-benchmark"} {
				out = append(out, CountCase{
					Name: fmt.Sprintf("%s P=%d stores=%s", workload, pipeline, stores),
					Set:  append([]string{"cluster.stores=" + stores}, quiet...),
					Load: bench.CountedLoad{Workload: workload, Pipeline: pipeline, Operations: 20_000,
						Records: 1000, Elements: 10, ValueSize: 100, Seed: 7},
				})
			}
		}
	}
	return out
}

// Count runs the case once, on a cluster of its own in memory, and returns the work per operation. program is the neokv
// to run, empty for this one.
func (c CountCase) Count(ctx context.Context, program string, env []string) (figures []results.Figure, err error) {
	target, err := children.Start(ctx, "", children.NeoKV{Program: program, InMemory: true, Set: c.Set, Env: env})
	if err != nil {
		return nil, err
	}
	figures, err = bench.CountWork(ctx, target.Proxy(), "", c.Load)
	if err == nil {
		err = target.Err()
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
	leastThreshold = 0.002 // also of a count that never varies
	widestSpread   = 0.005 // a count that varies more is information
	FewestRuns     = 6     // of a case, for a baseline
)

// Gates reports whether a change of the count fails a check.
func (f *CountedFigure) Gates() bool {
	return f.Better != "" && f.Median > 0 && f.Spread <= widestSpread
}

// Threshold is the change from which on a count differs, as a share. It is four times what the runs of the baseline
// spread, since a check has more figures and more runs than the baseline had.
func (f *CountedFigure) Threshold() float64 { return max(leastThreshold, 4*f.Spread) }

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
