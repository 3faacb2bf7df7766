package sim

import (
	"flag"
	"math/rand/v2"
	"runtime"
	"testing"
	"time"
)

var simExplore = flag.Duration("sim.explore", 20*time.Second, "how long TestExplore runs fresh seeds")

// TestExplore runs fresh seeds of all plans in turn, without planted mistakes. It prints the seeds and, for a seed
// that fails, the command that runs it again.
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
