package sim

import (
	"math/rand/v2"
	"time"
)

// powerCuts kills all stores at one instant, again and again: every other time while a store that was away catches up
// by snapshots.
func powerCuts(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(100+random.IntN(500)) * time.Millisecond) {
		keep, sync := []int{0, 50, 100}[random.IntN(3)], 1+random.IntN(40)
		if random.IntN(2) == 0 {
			store := 1 + random.IntN(len(s.nodes))
			s.do("kill %d keep=%d%%", store, keep)
			if !s.sleep(time.Duration(1200+random.IntN(800)) * time.Millisecond) {
				return // heal restarts the store
			}
			s.do("restart %d", store)
			sync += 10 + random.IntN(60)
		}
		s.do("kill all keep=%d%% sync=%d", keep, sync)
		s.do("restart all")
	}
}
