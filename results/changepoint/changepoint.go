// Package changepoint finds where the level of a series changes, in series whose values may depend on the one before,
// and that somebody looks at after each value.
//
// A look at the first n values asks, of a few m, whether the last m of them have another level. It compares two models:
// noise of an autoregression of order 1 around one level, and the same with a step (a shift of the mean as in Albert
// and Chib, Bayes Inference via Gibbs Sampling of Autoregressive Time Series Subject to Markov Mean and Variance
// Shifts, JBES 1993). Levels, noise and correlation are unknown and integrated out, so a walk of correlated noise is no
// step unless a step explains it far better. What counts is the Bayes factor of the two. The bounds that it must reach
// are set by simulation such that of series without a change, of 200 values and any correlation up to 0.9, some 1 % at
// most show one in any look. docs/benchmarks.md has the figures; -series in the tests of this package measures them.
package changepoint

import (
	"math"
	"slices"
)

// MaxValues is how many values Find takes. With so many it needs some 0.1 s.
const MaxValues = 1000

// Least is how many values stand between two changes at least.
const Least = 5

// Fewest is how many values Find needs to see a change.
const Fewest = 2 * Least

// Method names the method for people.
const Method = "Bayes factor of a step in AR(1) noise, at most 1 % of unchanged figures ever show a change, " +
	"looked at after each run"

// Change is where a level begins.
type Change struct {
	At int // the first value of the new level, the likeliest one
	// First and Last bound At: with 95 % the new level begins with one of the values from First to Last.
	First, Last int
	// Found is how many values showed the change. It does not depend on later ones.
	Found int
	// Factor is the natural logarithm of the Bayes factor with which it was found.
	Factor float64
}

// windows are the lengths of the new levels that a look asks for. Every place is asked about with each of them in turn,
// while the series grows.
var windows = []int{5, 7, 10, 14, 20, 28, 40, 56, 80, 112, 160, 224, 320, 448, 640, 896}

// bounds are what the logarithm of the Bayes factor must pass in a look at so many values, for a new level of 10
// values. Half of the 1 % is for looks at 35 to 50 values: so few hardly tell a step from correlated noise, and a lower
// bound there is what finds a step that comes after 30 values. Between its rows the bound goes with the logarithm of n.
var bounds = []struct{ n, bound float64 }{
	{10, 18}, {35, 8}, {40, 4.7}, {50, 5.5}, {65, 6}, {90, 7}, {130, 7.4}, {200, 8}, {MaxValues, 13},
}

// bound is what the logarithm of the Bayes factor must pass in a look at n values for a new level of m values.
func bound(n, m int) float64 {
	i := 1
	for bounds[i].n < float64(n) {
		i++
	}
	a, b := bounds[i-1], bounds[i]
	level := a.bound + (b.bound-a.bound)*math.Log(float64(n)/a.n)/math.Log(b.n/a.n)
	switch {
	case m < 10:
		return level + 3.5
	case m > 10:
		return level + 4
	}
	return level
}

// Find returns the changes of a series in their order. Values must be finite. It panics for more than MaxValues of
// them.
//
// Find looks at the values as they came: after each, at all since the last change. A change once found stays, however
// the series goes on, but its place may become more precise.
func Find(values []float64) (changes []Change) {
	if len(values) > MaxValues {
		panic("changepoint: too many values")
	}
	from := 0
	for n := Fewest; n <= len(values); n++ {
		if n-from < Fewest {
			continue
		}
		factor, found := look(values[from:n])
		if !found {
			continue
		}
		c := place(values[from:n])
		c.At, c.Found, c.Factor = c.At+from, n, factor
		changes, from = append(changes, c), c.At
	}
	begin := 0
	for i := range changes { // what came later tells more about the place
		end := len(values)
		if i+1 < len(changes) {
			end = changes[i+1].At
		}
		c := place(values[begin:end])
		changes[i].At, changes[i].First, changes[i].Last = begin+c.At, begin+c.First, begin+c.Last
		begin = changes[i].At
	}
	return changes
}

// look reports whether the last values have a level of their own, and with which factor.
func look(values []float64) (factor float64, found bool) {
	n := len(values)
	step := newModels(values)
	excess := 0.
	for _, m := range windows {
		if n-m < Least {
			break
		}
		if f := step.factor(n - m); f-bound(n, m) > excess {
			factor, found, excess = f, true, f-bound(n, m)
		}
	}
	return factor, found
}

// place returns where the step of a series lies that has one. Every place is as likely before the values are seen.
func place(values []float64) (c Change) {
	step := newModels(values)
	last := len(values) - Least
	weights := make([]float64, last+1)
	sum, best := 0., math.Inf(-1)
	for k := Least; k <= last; k++ {
		weights[k] = step.factor(k)
		if weights[k] > best {
			c.At, best = k, weights[k]
		}
	}
	for k := Least; k <= last; k++ {
		weights[k] = math.Exp(weights[k] - best)
		sum += weights[k]
	}
	c.First, c.Last = Least, last
	for left := 0.025 * sum; c.First < c.At && weights[c.First] <= left; c.First++ {
		left -= weights[c.First]
	}
	for left := 0.025 * sum; c.Last > c.At && weights[c.Last] <= left; c.Last-- {
		left -= weights[c.Last]
	}
	return c
}

// Correlation returns the correlation of each value with the one before, both without their levels: those between
// changes. It is 0 of values that do not vary.
func Correlation(values []float64, changes []Change) float64 {
	rest := make([]float64, 0, len(values))
	from := 0
	for i := range len(changes) + 1 {
		to := len(values)
		if i < len(changes) {
			to = changes[i].At
		}
		z, _ := bounded(values[from:to])
		mean := 0.
		for _, v := range z {
			mean += v / float64(len(z))
		}
		for _, v := range z {
			rest = append(rest, v-mean)
		}
		from = to
	}
	product, square := 0., 0.
	for i, v := range rest {
		square += v * v
		if i > 0 {
			product += v * rest[i-1]
		}
	}
	if square == 0 {
		return 0
	}
	return product / square
}

// farthest is how many standard deviations from the median a value may count. A value beyond counts as this far, so
// that a few far values are no level.
const farthest = 3

// bounded returns values as deviations from their median, in standard deviations of a normal distribution with their
// median absolute deviation, at most farthest. If most values are the same that is 0. Then the unit is a third of the
// smallest deviation, and noise is the variance of the independent noise that values could have unseen.
func bounded(values []float64) (z []float64, noise float64) {
	z = slices.Clone(values)
	middle := median(z)
	sizes := make([]float64, len(z))
	for i := range z {
		z[i] -= middle
		sizes[i] = math.Abs(z[i])
	}
	unit := 1.4826 * median(sizes)
	if unit == 0 {
		noise, unit = 1, math.Inf(1)
		for _, s := range sizes {
			if s > 0 {
				unit = min(unit, s/farthest)
			}
		}
	}
	for i := range z {
		z[i] = max(-farthest, min(farthest, z[i]/unit))
	}
	return z, noise
}

func median(values []float64) float64 {
	s := slices.Sorted(slices.Values(values))
	return s[(len(s)-1)/2]/2 + s[len(s)/2]/2
}

// Correlations that noise may have, each as likely. Of noise around a step they end at 0.6: a step in noise of more can
// not be told from that noise.
var (
	correlations = []float64{0, .1, .2, .3, .4, .5, .6, .7, .8, .9, .95}
	withStep     = 7
)

// models are those of a series, one for each correlation.
type models struct {
	n    int
	each []model
	flat float64 // the sum of the likelihoods without a step
	top  float64 // the logarithm of what all likelihoods are divided by
}

// model is a series z without its correlation r: y[0] = sqrt(1-r^2) z[0], y[i] = z[i] - r z[i-1].
type model struct {
	r       float64
	y       []float64
	after   []float64 // the sum of y from here on
	ones    float64   // the sum of the squares of a level of 1, transformed as z is
	level   float64   // the product of y and that
	square  float64   // the sum of squares that a level leaves
	measure float64   // the logarithm of the likelihood, but for the sum of squares
}

func newModels(values []float64) *models {
	z, noise := bounded(values)
	n := len(z)
	all := &models{n: n, top: math.Inf(-1)}
	for _, r := range correlations {
		m := model{r: r, y: make([]float64, n), after: make([]float64, n+1), square: noise * (1 + r*r) * float64(n)}
		first, rest := math.Sqrt(1-r*r), 1-r
		for i := n - 1; i >= 0; i-- {
			m.y[i] = first * z[i]
			if i > 0 {
				m.y[i] = z[i] - r*z[i-1]
			}
			m.after[i] = m.after[i+1] + m.y[i]
			m.square += m.y[i] * m.y[i]
		}
		m.ones = first*first + float64(n-1)*rest*rest
		m.level = first*m.y[0] + rest*m.after[1]
		m.square = max(m.square-m.level*m.level/m.ones, 1e-9)
		m.measure = math.Log((1-r*r)/m.ones) / 2
		all.each = append(all.each, m)
		all.top = max(all.top, m.likelihood(n, m.square))
	}
	for _, m := range all.each {
		all.flat += math.Exp(m.likelihood(n, m.square) - all.top)
	}
	return all
}

// likelihood is the logarithm of the likelihood of n values, integrated over the level and the variance.
func (m *model) likelihood(n int, square float64) float64 {
	return m.measure - float64(n-1)/2*math.Log(square)
}

// factor returns the logarithm of the Bayes factor of a step before the value k. The step is distributed normally
// around 0 before the values are seen, with three standard deviations of the noise.
func (all *models) factor(k int) float64 {
	sum := 0.
	for _, m := range all.each[:withStep] {
		rest := 1 - m.r
		behind := float64(all.n-1-k) * rest * rest
		product := m.y[k] + rest*m.after[k+1] - (rest+behind)/m.ones*m.level
		square := 1 + behind - (rest+behind)*(rest+behind)/m.ones
		width := 9 / (1 - m.r*m.r)
		left := max(m.square-product*product/(square+1/width), 1e-9)
		sum += math.Exp(m.likelihood(all.n, left) - math.Log(1+width*square)/2 - all.top)
	}
	return math.Log(sum / all.flat)
}
