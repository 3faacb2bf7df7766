package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"neokv.dev/results"
)

// CountedLoad is a fixed number of operations of one client, for counting what they cost. The same seed gives the same
// operations in the same order, so the same program does nearly the same work.
type CountedLoad struct {
	Workload   string
	Pipeline   int
	Operations int
	Records    uint64
	Elements   int
	ValueSize  int
	Seed       uint64
	// Tables says to send the operations once before they count, and to wait until the target has compacted what was
	// loaded. So the records are in one table, whose blocks are in the cache.
	Tables bool `json:",omitempty"`
}

// countedIdle is how long the target is watched before and after, while it has nothing to do. It is well below the half
// second after which a store at rest flushes.
const countedIdle = 200 * time.Millisecond

// CountWork loads the records, sends the operations to one address that takes any key, and returns the work per
// operation. It takes off what the target does in the background by itself, at the rate at which it does that while
// idle: the lesser rate of before and after, since what happens once, such as the end of a boot, is no rate. An error
// reply is an error.
func CountWork(ctx context.Context, addr string, l CountedLoad) ([]results.Figure, error) {
	o := Options{Targets: []string{addr}, Seed: l.Seed, Groups: []GroupOptions{{
		Workload: l.Workload, Clients: 1, Pipeline: l.Pipeline, Operations: l.Operations, Records: l.Records,
		Elements: l.Elements, ValueSize: l.ValueSize,
	}}}
	if l.Tables {
		if _, _, err := Measure(ctx, o); err != nil {
			return nil, err
		}
		if err := compacted(ctx, addr); err != nil {
			return nil, err
		}
		o.Load = LoadedBefore
		if _, _, err := Measure(ctx, o); err != nil {
			return nil, err
		}
	}
	before, err := idleRates(ctx, addr)
	if err != nil {
		return nil, err
	}
	_, s, err := Measure(ctx, o)
	if err != nil {
		return nil, err
	}
	if len(s.FirstErrors) > 0 {
		return nil, fmt.Errorf("the target answers with errors: %v", s.FirstErrors)
	}
	after, err := idleRates(ctx, addr)
	if err != nil {
		return nil, err
	}
	for name := range s.Work {
		s.Work[name] -= int64(min(before[name], after[name]) * s.Seconds)
	}
	return s.Work.Figures(int64(l.Operations)), nil
}

// compactedPatience is how long a target with little to do may take to flush and compact what was loaded.
const compactedPatience = time.Minute

// compacted waits until a target has flushed its memtable and compacted the table.
func compacted(ctx context.Context, addr string) error {
	for end := time.Now().Add(compactedPatience); ; time.Sleep(20 * time.Millisecond) {
		counts, err := Counts(ctx, addr, "")
		if err != nil || counts["memtable_flushes"] > 0 && counts["compactions"] > 0 {
			return err
		}
		if time.Now().After(end) {
			return fmt.Errorf("the target has not compacted what was loaded within %s", compactedPatience)
		}
	}
}

// idleRates returns how much the counters of a target that has nothing to do grow in a second.
func idleRates(ctx context.Context, addr string) (map[string]float64, error) {
	first, err := Counts(ctx, addr, "")
	if err != nil {
		return nil, err
	}
	if len(first) == 0 {
		return nil, errors.New("the target has no INFO neokv")
	}
	began := time.Now()
	time.Sleep(countedIdle)
	second, err := Counts(ctx, addr, "")
	took, rates := time.Since(began).Seconds(), map[string]float64{}
	for name, n := range second {
		rates[name] = float64(n-first[name]) / took
	}
	return rates, err
}
