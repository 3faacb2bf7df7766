package sim

import (
	"flag"
	"testing"
	"time"
)

var simCuts = flag.Int("sim.cuts", 40,
	"how many power cuts of all stores TestPowerCuts makes at least, from seed -sim.first on")

// TestPowerCuts cuts the power of all stores at random syncs, the journal's included, also in the middle of a
// snapshot's installation. It starts them again on what is left, and compares that with what was acknowledged. It
// prints how many cuts there were.
func TestPowerCuts(t *testing.T) {
	cuts := *simCuts
	if testing.Short() {
		cuts = 1
	}
	b, err := newBatch(job{Plan: "power-cuts", First: *simFirst, Count: cuts, Length: 20 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	b.stop = func(simReport) bool { return b.stats.Ends >= cuts }
	b.judge(t)
	t.Logf("%d power cuts, %d of them in the middle of an installation; %d of %d seeds found something", b.stats.Ends,
		b.stats.Installing, len(b.failed), b.seeds)
	if b.stats.Ends < cuts {
		t.Errorf("%d power cuts; want at least %d", b.stats.Ends, cuts)
	}
}
