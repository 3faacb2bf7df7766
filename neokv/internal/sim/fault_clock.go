package sim

import (
	"math/rand/v2"
	"time"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// skewClocks makes the clocks of stores disagree by as much as the seed says; by nothing in one seed of four.
func (s *sim) skewClocks(h *seam.Hooks) {
	random := s.random(2)
	s.h.skew = []time.Duration{0, 50 * time.Millisecond, time.Second, 5 * time.Second}[random.IntN(4)]
	for i := range s.skews {
		s.skew(i, random)
	}
	h.ClockAhead = func(id topology.StoreID) time.Duration { return time.Duration(s.skews[id-1].Load()) }
}

// skew sets the clock of a store anew.
func (s *sim) skew(store int, random *rand.Rand) {
	d := time.Duration((2*random.Float64() - 1) * float64(s.h.skew)).Truncate(time.Millisecond)
	s.h.note("clock of %d is %s ahead", store+1, d)
	s.skews[store].Store(int64(d))
}

// settingClocks sets one clock after the other, forward or back.
func settingClocks(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(200+random.IntN(4000)) * time.Millisecond) {
		s.skew(random.IntN(len(s.nodes)), random)
	}
}
