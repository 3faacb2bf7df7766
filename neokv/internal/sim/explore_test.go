package sim

import (
	"flag"
	"math/rand/v2"
	"testing"
	"time"
)

var simExplore = flag.Duration("sim.explore", 0, "how long TestExplore runs fresh seeds; 0: it does not run")

// exploredSeeds is how many seeds of a plan TestExplore runs together. About half of the seeds of some plans draw a
// cluster without transfers and comparisons; with four seeds a batch was below its floors by chance.
const exploredSeeds = 16

// TestExplore runs fresh seeds of all plans in turn, without planted mistakes. It prints the seeds and, for a seed
// that fails, the command that runs it again.
func TestExplore(t *testing.T) {
	if *simExplore == 0 {
		t.Skip("-sim.explore says for how long")
	}
	end := time.Now().Add(*simExplore)
	for i := rand.IntN(len(plans)); time.Now().Before(end); i++ {
		p := plans[i%len(plans)]
		if p.drawn != nil && p.mistake.plant != nil { // the same as the one without
			continue
		}
		first := 1 + uint64(rand.Uint32())
		t.Logf("from seed %d on:", first)
		runBatch(t, p.name, first, exploredSeeds, *simVirtual)
	}
}
