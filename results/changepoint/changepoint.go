// Package changepoint finds where the level of a series changes, by E-divisive (Matteson and James, A Nonparametric
// Approach for Multiple Change Point Analysis of Multivariate Data, JASA 2014) in the form in which MongoDB uses it for
// performance tests (Daly et al., The Use of Change Point Detection to Identify Software Performance Regressions in a
// Continuous Integration System, ICPE 2020). It assumes nothing of how values are distributed. It does assume that
// values between two changes could as well have come in another order: a slow drift is split into steps.
package changepoint

import (
	"cmp"
	"math/rand/v2"
	"slices"
)

// MaxValues is how many values Find takes. With so many it needs some 50 ms per change.
const MaxValues = 1000

// Options of Find. The zero value has the defaults.
type Options struct {
	Seed uint64 // of the permutations
	// Level is the share of series without a change in which Find may see one; 0 is DefaultLevel.
	Level float64
	// Least is how many values stand between two changes at least; 0 is DefaultLeast.
	Least int
	// Permutations is how many orders a change is tested against; 0 is DefaultPermutations.
	Permutations int
}

// Defaults of Options.
const (
	DefaultLevel        = 0.01
	DefaultLeast        = 5
	DefaultPermutations = 999
)

// Change is where a level begins.
type Change struct {
	At int     // the first value of the new level
	P  float64 // the share of orders of the values that show as great a change
}

// Find returns the changes of a series in their order. Values must be finite. It panics for more than MaxValues of
// them.
//
// Find looks at all parts for the split whose sides differ most, and tests it against permutations of the values
// within each part. If it is significant the part becomes two, and Find goes on; else it ends.
func Find(values []float64, o Options) []Change {
	if len(values) > MaxValues {
		panic("changepoint: too many values")
	}
	o = o.Filled()
	random := rand.New(rand.NewPCG(o.Seed, 0))
	parts := []subseries{newSubseries(values, 0, o.Least)}
	var changes []Change
	for {
		best := 0
		for i := range parts {
			if parts[i].distance > parts[best].distance {
				best = i
			}
		}
		s := parts[best]
		if s.distance <= 0 {
			break
		}
		p := o.test(random, parts, s.distance)
		if p > o.Level {
			break
		}
		changes = append(changes, Change{At: s.from + s.split, P: p})
		at, end := s.from+s.split, s.from+len(s.values)
		parts = slices.Replace(parts, best, best+1, newSubseries(values[s.from:at], s.from, o.Least),
			newSubseries(values[at:end], at, o.Least))
	}
	slices.SortFunc(changes, func(a, b Change) int { return a.At - b.At })
	return changes
}

// Filled returns the options with their defaults filled in.
func (o Options) Filled() Options {
	if o.Level == 0 {
		o.Level = DefaultLevel
	}
	if o.Least == 0 {
		o.Least = DefaultLeast
	}
	o.Least = max(o.Least, 2) // the distances within a side need two values
	if o.Permutations == 0 {
		o.Permutations = DefaultPermutations
	}
	return o
}

// test returns the share of permutations, the order at hand among them, in which some part has a split of at least
// this distance. It ends as soon as the share must be above the level.
func (o *Options) test(random *rand.Rand, parts []subseries, distance float64) float64 {
	distance *= 1 - 1e-9 // sums of the same values in another order differ in their last digits
	reached := 1
	for range o.Permutations {
		for i := range parts {
			if parts[i].permuted(random, o.Least) >= distance {
				reached++
				break
			}
		}
		if float64(reached) > o.Level*float64(o.Permutations+1) {
			break
		}
	}
	return float64(reached) / float64(o.Permutations+1)
}

// subseries is the series between two changes, with its best split.
type subseries struct {
	from     int       // of the series
	values   []float64 // less the one in the middle of their order, since sums of small numbers are exact
	ranks    []int     // the place of each value in the order of sizes, from 1
	toAll    []float64 // the sum of the distances from each value to all others
	total    float64   // of the distances of all pairs
	split    int       // values before the best split
	distance float64   // between the sides of the best split
	left     tree      // the values on the left while best looks for the split
	order    []int
}

func newSubseries(values []float64, from, least int) subseries {
	n := len(values)
	s := subseries{from: from, values: slices.Clone(values), ranks: make([]int, n), toAll: make([]float64, n),
		left: make(tree, n+1), order: make([]int, n)}
	for i := range s.order {
		s.order[i] = i
	}
	bySize := slices.Clone(s.order)
	slices.SortStableFunc(bySize, func(a, b int) int { return cmp.Compare(values[a], values[b]) })
	all := 0.0
	for i, at := range bySize {
		s.ranks[at] = i + 1
		s.values[at] -= values[bySize[n/2]]
		all += s.values[at]
	}
	below := 0.0
	for i, at := range bySize {
		v := s.values[at]
		s.toAll[at] = (v*float64(i) - below) + (all - below - v*float64(n-i))
		s.total += s.toAll[at] / 2
		below += v
	}
	if n > 0 && values[bySize[0]] < values[bySize[n-1]] {
		s.split, s.distance = s.best(least)
	}
	return s
}

// permuted returns the distance of the best split of the values in a random order.
func (s *subseries) permuted(random *rand.Rand, least int) float64 {
	if s.distance == 0 {
		return 0 // too short, or all values are the same
	}
	random.Shuffle(len(s.order), func(i, j int) { s.order[i], s.order[j] = s.order[j], s.order[i] })
	_, distance := s.best(least)
	return distance
}

// best returns the split of the values in s.order whose sides differ most, by the energy distance of two samples of n
// and m values (equation 5 of the paper, with exponent 1):
//
//	nm/(n+m) * (2 * mean |x-y|  -  mean |x-x'|  -  mean |y-y'|)
//
// A value that moves from the right side to the left one adds its distances to the left side to what is within that,
// and takes those to the right side from what is within this one. A tree over the sizes gives the sum of distances to
// the values on the left, so all splits together take O(n log n).
func (s *subseries) best(least int) (split int, distance float64) {
	clear(s.left)
	n, left, right, sum := len(s.order), 0.0, s.total, 0.0
	for i, at := range s.order {
		v, rank := s.values[at], s.ranks[at]
		count, below := s.left.upTo(rank)
		toLeft := (v*count - below) + (sum - below - v*(float64(i)-count))
		left, right = left+toLeft, right-(s.toAll[at]-toLeft)
		s.left.add(rank, v)
		sum += v
		if i+1 < least || n-i-1 < least {
			continue
		}
		x, y := float64(i+1), float64(n-i-1)
		between := s.total - left - right
		d := x * y / (x + y) * (2*between/(x*y) - 2*left/(x*(x-1)) - 2*right/(y*(y-1)))
		if d > distance {
			split, distance = i+1, d
		}
	}
	return split, distance
}

// tree is a Fenwick tree of values by rank: it adds one, and counts and sums those up to a rank, in O(log n).
type tree []struct{ count, sum float64 }

func (t tree) add(rank int, v float64) {
	for ; rank < len(t); rank += rank & -rank {
		t[rank].count++
		t[rank].sum += v
	}
}

func (t tree) upTo(rank int) (count, sum float64) {
	for ; rank > 0; rank -= rank & -rank {
		count += t[rank].count
		sum += t[rank].sum
	}
	return count, sum
}
