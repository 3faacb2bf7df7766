package tune

import (
	"math"
	"math/rand/v2"
	"testing"

	"neokv.dev/results/tuning"
)

// TestEstimator: where what a knob is worth depends on the knob before it, the best of sixty configurations that the
// estimator asks for are better than the best of sixty random ones, whether values have an order or not.
func TestEstimator(t *testing.T) {
	const asks, searches, noise = 60, 50, 0.02
	for _, ordered := range []bool{true, false} {
		var knobs []tuning.Knob
		for _, name := range []string{"a", "b", "c", "d", "e"} {
			knobs = append(knobs, tuning.Knob{Setting: name, Values: []string{"1", "2", "4", "8", "16", "32"},
				Default: "4", Ordered: ordered})
		}
		e := estimator{knobs: knobs}
		worth := func(set []string) (sum float64) { // 0 for the best
			e := estimator{knobs: knobs}
			e.tell(set, 0)
			values := e.told[0].values
			for i, v := range values {
				sum -= 0.03 * math.Abs(float64(v-i-1))
				if i > 0 {
					sum -= 0.03 * math.Abs(float64(v-values[i-1]-1))
				}
			}
			return sum
		}
		best := func(seed uint64, ask func() []string) (worthOfBest float64) {
			e = estimator{knobs: knobs, random: rand.New(rand.NewPCG(seed, 1))}
			highest := math.Inf(-1)
			for range asks {
				set := ask()
				measured := worth(set) + noise*e.random.NormFloat64()
				if e.tell(set, measured); measured > highest {
					highest, worthOfBest = measured, worth(set)
				}
			}
			return worthOfBest
		}
		asked, random := 0.0, 0.0
		for seed := range uint64(searches) {
			asked += best(seed, func() []string { return e.ask() }) / searches
			random += best(seed, func() []string { return (&Tuner{random: e.random}).anySet(knobs) }) / searches
		}
		if t.Logf("ordered %v: worth %.3f, at random %.3f", ordered, asked, random); asked < 0.75*random {
			t.Errorf("ordered %v: worth %.3f, want clearly more than %.3f", ordered, asked, random)
		}
	}
}
