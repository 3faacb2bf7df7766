package sim

import (
	"testing"
	"time"
)

// TestPlanted plants each mistake and runs seeds until one shows it. Then it runs the same seed without the mistake,
// which must show nothing. The plans run side by side, with one process each.
func TestPlanted(t *testing.T) {
	notShort(t)
	const virtual = 10 * time.Second
	for _, p := range plans {
		if p.mistake.plant == nil || p.drawn != nil { // TestTorturePlanted looks for some of the latter
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			shown := findPlanted(t, 1, p.name, virtual)
			if shown != 0 && p.special() { // TestVirtual and others run seeds of the other plans, TestExplore of all
				runBatchBy(t, 1, p.name, shown, 1, virtual)
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
