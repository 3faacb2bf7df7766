package sim

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

var simExplore = flag.Duration("sim.explore", 20*time.Second, "how long TestExplore runs fresh seeds")

// TestExplore runs seeds that nobody has chosen, of all plans in turn, without the mistakes that some are made to find.
// The seeds of a run are printed, and of one that fails the command that runs it again.
func TestExplore(t *testing.T) {
	end := time.Now().Add(*simExplore)
	for i := rand.IntN(len(plans)); time.Now().Before(end); i++ {
		b := newBatch(t, plans[i%len(plans)], false, *simVirtual)
		first := 1 + uint64(rand.Uint32())
		b.run(first, 2*runtime.NumCPU(), false)
		t.Logf("from seed %d on:", first)
		b.report()
	}
}
