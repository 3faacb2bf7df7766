package tuning

import (
	"math"
	"math/rand/v2"
	"slices"
)

// Level is the confidence of the intervals of all values of all knobs together. Where no knob has an effect, a study
// calls some knob measurable with a probability of 1 - Level at most. That is half of one in 20, so that 200 studies
// can show that it is no more than one in 20.
const Level = 0.975

// DefaultEvery is how many trials of other configurations stand beside each one of the default.
const DefaultEvery = 3

// Deal draws the order of a round: its configurations in a random order, cut into hands of DefaultEvery, each with the
// default at a random place of the hand.
func Deal[T any](random *rand.Rand, sets []T, byDefault T) (order []T) {
	sets = slices.Clone(sets)
	random.Shuffle(len(sets), func(i, k int) { sets[i], sets[k] = sets[k], sets[i] })
	for hand := range slices.Chunk(sets, DefaultEvery) {
		at := random.IntN(len(hand) + 1)
		order = append(append(append(order, hand[:at]...), byDefault), hand[at:]...)
	}
	return order
}

// gaps returns by how much each of some trials in a row lies above the defaults next to it: the last one before it and
// the first one behind it. logs are of the objective, NaN for a trial without one. The gap of a default, and of a trial
// without an objective, is NaN.
func gaps(logs []float64, isDefault func(i int) bool) []float64 {
	out := make([]float64, len(logs))
	before := math.NaN()
	for i, log := range logs {
		if out[i] = log - before; isDefault(i) {
			out[i] = math.NaN()
			if !math.IsNaN(log) {
				before = log
			}
		}
	}
	behind := math.NaN()
	for i, log := range slices.Backward(logs) {
		gap := log - behind
		switch {
		case isDefault(i):
			if !math.IsNaN(log) {
				behind = log
			}
		case math.IsNaN(out[i]):
			out[i] = gap
		case !math.IsNaN(gap):
			out[i] = (out[i] + gap) / 2
		}
	}
	return out
}

// draws is how many orders the test of the curves draws. A share of 1 - Level of so many, with the true one, is a whole
// number.
const draws = 999

// limit returns how many standard errors the mean of a value must lie away from the default for a measurable effect:
// so far, or farther, lies the farthest of all values of all knobs in a share of 1 - Level at most of the studies in
// which no knob has an effect. The curves are complete.
//
// Chance dealt the trials of each round to the values and the default. If none of them has an effect, any other order
// that Deal might have drawn would have given the same figures in the same places. So the order that it did draw is one
// of many that are alike, whatever the noise is like and however trials depend on each other (a randomization test;
// Fisher, The Design of Experiments, section 21; for the largest of many statistics Westfall and Young,
// Resampling-Based Multiple Testing, 1993). Distances count in standard errors of their own order, since an effect of
// one value would else make those of all others look like chance.
func (s *Study) limit() float64 {
	places := map[string]int{Name(nil): 0} // of the values, from 1 on
	var rounds [][]int                     // the values of each round
	var logs []float64
	number := -1
	for i := range s.Trials {
		t := &s.Trials[i]
		if t.Phase != Curves {
			continue
		}
		if t.Round != number {
			number, rounds = t.Round, append(rounds, nil)
		}
		if name := Name(t.Set); !t.Default() {
			if places[name] == 0 {
				places[name] = len(places)
			}
			rounds[len(rounds)-1] = append(rounds[len(rounds)-1], places[name])
		}
		logs = append(logs, s.log(t))
	}
	random := rand.New(rand.NewPCG(s.Plan.Seed, 2))
	farthest := make([]float64, draws)
	order := make([]int, 0, len(logs))
	for i := range farthest {
		order = order[:0]
		for _, values := range rounds {
			order = append(order, Deal(random, values, 0)...)
		}
		farthest[i] = errorsAway(gaps(logs, func(k int) bool { return order[k] == 0 }), order, len(places))
	}
	slices.Sort(farthest)
	const rounding = 1e-9 // an order may be the true one, or its mirror image
	within := int(math.Round((1 - Level) * (draws + 1)))
	return farthest[draws-within] * (1 + rounding)
}

// errorsAway returns how many standard errors the farthest value lies away from the default. order has the value of
// each gap, below values; 0 is the default.
func errorsAway(gaps []float64, order []int, values int) float64 {
	sums := make([]struct{ n, sum, squares float64 }, values)
	for i, gap := range gaps {
		if !math.IsNaN(gap) {
			s := &sums[order[i]]
			s.n, s.sum, s.squares = s.n+1, s.sum+gap, s.squares+gap*gap
		}
	}
	farthest, within, freedom := 0.0, 0.0, 0.0
	for _, s := range sums {
		if s.n > 0 {
			farthest = max(farthest, s.sum*s.sum/s.n)
			within, freedom = within+s.squares-s.sum*s.sum/s.n, freedom+s.n-1
		}
	}
	if within <= 0 || freedom <= 0 {
		return 0
	}
	return math.Sqrt(farthest / within * freedom)
}

// log returns the logarithm of the objective, NaN if there is none.
func (s *Study) log(t *StudyTrial) float64 {
	value, ok := t.Figure(s.Plan.Objective.Figure)
	if !ok || value <= 0 {
		return math.NaN()
	}
	return math.Log(value)
}
