package bench

import (
	"math"
	"time"
)

// warmupEnd finds the end of a warm-up from the data: the mean service times of short slices of it. It uses MSER-5,
// which cuts as much from the beginning of a series as makes the rest's mean most certain: of the means of five values
// each it leaves out the first d, such that the rest's sum of squared deviations over the square of their number is
// smallest. If the best d is half of the series or more, the series is still changing and too short. (White, "An
// effective truncation heuristic for bias reduction in simulation output", Simulation 69, 1997; White, Cobb and Spratt,
// "A comparison of five steady-state truncation heuristics for simulation", Winter Simulation Conference 2000.)
type warmupEnd struct {
	slice  time.Duration
	values []float64
	found  bool
}

const (
	warmupSlice = 100 * time.Millisecond
	// autoWarmup bounds a warm-up whose end is to be found.
	autoWarmup = time.Minute
	// mserBatch and mserLeast are how many values make a batch, and how many batches there must be.
	mserBatch = 5
	mserLeast = 10
)

// newWarmupEnd returns a finder for so many clients. To collect their counts takes the longer the more there are.
func newWarmupEnd(clients int) *warmupEnd {
	return &warmupEnd{slice: warmupSlice * time.Duration(1+clients/1000)}
}

// add takes in the value of the next slice.
func (e *warmupEnd) add(value float64) {
	e.values = append(e.values, value)
	if n := len(e.values) / mserBatch; n >= mserLeast && len(e.values)%mserBatch == 0 {
		e.found = e.found || mser(batchMeans(e.values)) < n/2
	}
}

func batchMeans(values []float64) []float64 {
	means := make([]float64, len(values)/mserBatch)
	for i := range means {
		for _, v := range values[i*mserBatch:][:mserBatch] {
			means[i] += v / mserBatch
		}
	}
	return means
}

// mser returns how many values to leave out at the beginning. It leaves at least mserBatch values, whose deviation says
// something.
func mser(values []float64) (cut int) {
	best, sum, squares := math.Inf(1), 0.0, 0.0
	for i := len(values) - 1; i >= 0; i-- {
		sum += values[i]
		squares += values[i] * values[i]
		n := float64(len(values) - i)
		if n < mserBatch {
			continue
		}
		// Of equal series the longer one is better.
		if error := max(0, squares-sum*sum/n) / (n * n); error <= best {
			best, cut = error, i
		}
	}
	return cut
}
