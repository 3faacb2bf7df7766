package sim

import (
	"math/rand/v2"
	"sync"
	"time"

	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
)

const stallPhrase = "stall writes"

// stallWrites plants the hook that lets one write of a hundred wait between reading the term and being proposed, as
// its goroutine may when the machine is busy.
func (s *sim) stallWrites(h *region.Hooks) {
	var mu sync.Mutex
	random := s.random(11)
	h.BeforePropose = func(topology.RegionID, uint64) {
		if s.isOver() {
			return
		}
		mu.Lock()
		stall := time.Duration(0)
		if random.IntN(100) == 0 {
			stall = min(time.Duration(random.ExpFloat64()*float64(200*time.Millisecond)), time.Second)
		}
		mu.Unlock()
		time.Sleep(stall)
	}
}

// stalling has nothing to do beside the hook.
func stalling(s *sim, _ *rand.Rand) { <-s.over }
