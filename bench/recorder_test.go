package bench

import (
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
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
			part.begun++
			whole.begun++
			service := time.Duration(rng.ExpFloat64() * float64(time.Millisecond))
			if rng.IntN(20) == 0 {
				part.drop(op, -1, service)
				whole.drop(op, -1, service)
				continue
			}
			if rng.IntN(10) == 0 {
				kind := []string{"timeout", "TRYAGAIN"}[rng.IntN(2)]
				part.fail(op, kind, service, 2*service)
				whole.fail(op, kind, service, 2*service)
				continue
			}
			miss := rng.IntN(5) == 0
			part.late.Answer(service)
			whole.late.Answer(service)
			part.add(op, service, 2*service, miss)
			whole.add(op, service, 2*service, miss)
		}
		part.moved, whole.moved = 3, whole.moved+3
		part.resent, whole.resent = 2, whole.resent+2
		parts = append(parts, part)
	}
	for _, p := range parts {
		merged.merge(p)
	}
	ops := []workloads.Op{{Name: "read", Reads: true}, {Name: "update"}}
	for i, tally := range []*tally{merged, whole} {
		g := tally.stats(ops, 2)
		if g.Total.Count != g.Ops[0].Count+g.Ops[1].Count || g.Total.Errors != g.Ops[0].Errors+g.Ops[1].Errors ||
			g.Total.Misses != g.Ops[0].Misses+g.Ops[1].Misses || g.Ledger.Balance(0) != 0 {
			t.Errorf("seed %d: tally %d: total %+v is not the sum of %+v", seed, i, g.Total, g.Ops)
		}
	}
	if got, want := merged.stats(ops, 2), whole.stats(ops, 2); !reflect.DeepEqual(got, want) {
		t.Errorf("seed %d: merged %+v, want %+v", seed, got, want)
	}
	late, _ := merged.late.Count()
	if want, _ := whole.late.Count(); late != want || merged.serviceSum != whole.serviceSum ||
		merged.answers != whole.answers {
		t.Errorf("seed %d: merged %d late, %s of %d; want %d, %s of %d", seed, late, merged.serviceSum, merged.answers,
			want, whole.serviceSum, whole.answers)
	}
	merged.reset()
	if g := merged.stats(ops, 2); g.Total != (results.OpStats{Name: "total"}) || len(g.Kinds) > 0 || g.Moved > 0 ||
		g.Retried > 0 || g.Ledger != (results.Ledger{}) {
		t.Errorf("after reset: %+v", g)
	}
}

// An answered operation is counted without an allocation.
func BenchmarkTally(b *testing.B) {
	t := newTally(1)
	b.ReportAllocs()
	for i := range b.N {
		t.add(0, time.Duration(i%1000)*time.Microsecond, time.Duration(i%2000)*time.Microsecond, false)
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
	if g := sum.stats([]workloads.Op{{Name: "op"}}, 1); g.Total.Count != batches*perBatch {
		t.Errorf("collected %d operations, want %d", g.Total.Count, batches*perBatch)
	}
}
