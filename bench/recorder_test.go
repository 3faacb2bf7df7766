package bench

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/results"
)

// Merged tallies give the same figures as one tally that saw everything.
func TestTallyMerge(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	whole, merged := newTally(2), newTally(2)
	var parts []*tally
	for range 5 {
		part := newTally(2)
		for range 1000 {
			op := uint8(rng.IntN(2))
			service := time.Duration(rng.ExpFloat64() * float64(time.Millisecond))
			if rng.IntN(10) == 0 {
				kind := []string{"timeout", "TRYAGAIN"}[rng.IntN(2)]
				part.fail(op, kind)
				whole.fail(op, kind)
				continue
			}
			miss := rng.IntN(5) == 0
			part.add(op, service, 2*service, miss)
			whole.add(op, service, 2*service, miss)
		}
		part.moved, whole.moved = 3, whole.moved+3
		parts = append(parts, part)
	}
	for _, p := range parts {
		merged.merge(p)
	}
	names := []string{"read", "update"}
	for i, op := range []*tally{merged, whole} {
		ops, total := op.stats(names, 2, true)
		if total.Count != ops[0].Count+ops[1].Count || total.Errors != ops[0].Errors+ops[1].Errors ||
			total.Misses != ops[0].Misses+ops[1].Misses {
			t.Errorf("seed %d: tally %d: total %+v is not the sum of %+v", seed, i, total, ops)
		}
	}
	a, at := merged.stats(names, 2, true)
	b, bt := whole.stats(names, 2, true)
	for i := range a {
		if a[i].Service != b[i].Service || *a[i].Response != *b[i].Response || a[i].Count != b[i].Count ||
			a[i].PerSecond != b[i].PerSecond {
			t.Errorf("seed %d: merged %+v, want %+v", seed, a[i], b[i])
		}
	}
	if at.Service != bt.Service || merged.counters().Errors["timeout"] != whole.errors["timeout"] ||
		merged.moved != whole.moved {
		t.Errorf("seed %d: merged %+v %v, want %+v %v", seed, at, merged.errors, bt, whole.errors)
	}
	merged.reset()
	if _, total := merged.stats(names, 2, false); total != (results.OpStats{Name: "total"}) || len(merged.errors) > 0 ||
		merged.moved > 0 {
		t.Errorf("after reset: %+v %v", total, merged.errors)
	}
}

// Whatever a worker counts while tallies are exchanged under it is collected once.
func TestRecorderExchange(t *testing.T) {
	const batches, perBatch = 500, 2000 // long stretches: most exchanges fall into one
	var r recorder
	r.current.Store(newTally(1))
	var done atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		defer done.Store(true)
		for range batches {
			into := r.begin()
			for range perBatch {
				into.add(0, time.Microsecond, -1, false)
			}
			r.end()
		}
	})
	sum, spare := newTally(1), newTally(1)
	for last := false; !last; {
		last = done.Load()
		full := r.exchange(spare)
		sum.merge(full)
		full.reset()
		spare = full
	}
	wg.Wait()
	if _, total := sum.stats([]string{"op"}, 1, false); total.Count != batches*perBatch {
		t.Errorf("collected %d operations, want %d", total.Count, batches*perBatch)
	}
}
