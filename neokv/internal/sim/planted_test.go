package sim

import (
	"testing"
	"time"
)

// TestPlanted plants each mistake and runs seeds until one shows it. Then it runs seeds of the same plan without the
// mistake. The plans run side by side, with one process each.
func TestPlanted(t *testing.T) {
	notShort(t)
	const virtual = 10 * time.Second
	for _, p := range plans {
		if p.mistake.plant == nil || p.drawn != nil { // TestTorturePlanted looks for some of the latter
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			findPlanted(t, 1, p.name, virtual)
			if p.special() { // TestVirtual and others run more seeds of the other plans, TestExplore fresh ones of all
				runBatchBy(t, 1, p.name, 1, min(p.bound, 3), virtual)
			}
		})
	}
}

// TestSearchesEnd: a search with one process at once runs no seed behind the one that it was for.
func TestSearchesEnd(t *testing.T) {
	b, err := newBatch(job{Plan: "1 clients, reads 1", First: 1, Count: 9, Length: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	b.workers, b.stop = 1, func(r simReport) bool { return r.Seed == 2 }
	if err := b.run(t.Context()); err != nil || b.seeds != 2 || b.failed != nil {
		t.Errorf("%d seeds, %v, %+v; want two", b.seeds, err, b.failed)
	}
}
