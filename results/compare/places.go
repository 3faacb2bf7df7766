package compare

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/aclements/go-moremath/stats"
)

// turn has what the arms of a round have of a figure: first B, then A, then the copy of A if there is one.
type turn []float64

// places are scores of arms that took turns, a slice per round, in the order of a turn. Which arm a block belongs to
// was drawn at random. So if the arms do not differ, each of a round's scores is as likely to be B's as any other,
// whatever the noise is like and however blocks depend on each other. The sum of B's scores then has a distribution
// that follows from the scores alone (Fisher, The Design of Experiments, section 21).
type places [][]int

// placesInRounds scores each arm by its place among the arms of its round (Friedman, JASA 1937). With two arms that
// makes a sign test.
func placesInRounds(turns []turn) (out places) {
	for _, t := range turns {
		out = append(out, ranks(t))
	}
	return out
}

// alignedRanks scores each arm by its rank among all blocks, where each block is taken against the median of its round
// (Hodges and Lehmann, Annals of Mathematical Statistics 1962). The median and not the mean, since one block that is
// far off would move its whole round. With two arms that makes Wilcoxon's signed-rank test. B counts as if its values
// were less by shift.
func alignedRanks(turns []turn, shift float64) (out places) {
	var all, sorted []float64
	for _, t := range turns {
		from := len(all)
		all = append(all, t[0]-shift)
		all = append(all, t[1:]...)
		sorted = append(sorted[:0], all[from:]...)
		slices.Sort(sorted)
		median := (sorted[(len(sorted)-1)/2] + sorted[len(sorted)/2]) / 2
		for i := range all[from:] {
			all[from+i] -= median
		}
	}
	flat := ranks(all)
	for _, t := range turns {
		out, flat = append(out, flat[:len(t):len(t)]), flat[len(t):]
	}
	return out
}

// ranks returns twice the rank of each value. Equal values have the mean of their ranks.
func ranks(values []float64) []int {
	order := make([]int, len(values))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(values[i], values[j]) })
	out := make([]int, len(values))
	for from := 0; from < len(order); {
		to := from + 1
		for to < len(order) && values[order[to]] == values[order[from]] {
			to++
		}
		for _, i := range order[from:to] {
			out[i] = from + to + 1
		}
		from = to
	}
	return out
}

// sum is that of B's scores; mean is what it is on average if nothing differs.
func (p places) sum() (sum int, mean float64) {
	for _, scores := range p {
		all := 0
		for _, s := range scores {
			all += s
		}
		sum, mean = sum+scores[0], mean+float64(all)/float64(len(scores))
	}
	return sum, mean
}

// tails returns how likely B's sum is to be as low as it is, and as high as it is, if nothing differs. steps bounds how
// long it takes.
func (p places) tails(steps int) (low, high float64) {
	mirrored := make(places, len(p))
	for i, scores := range p {
		for _, s := range scores {
			mirrored[i] = append(mirrored[i], -s)
		}
	}
	return mirrored.upper(steps), p.upper(steps)
}

// p returns how likely a sum as far from its mean is, either way, if nothing differs; sign is above 0 if B's places are
// high.
func (p places) p(steps int) (chance, sign float64) {
	low, high := p.tails(steps)
	return min(1, 2*min(low, high)), low - high
}

// How many steps working out a distribution may take: of a test, up to some seventy rounds, and of each of the hundred
// tests that an interval takes, up to some twenty rounds. Beyond, a formula stands in.
const (
	thorough = 2_000_000
	quick    = 50_000
)

// formulaMargin keeps the formula from saying less than the truth: beyond seventy rounds it is short by 3 % at most, if
// many values are equal, and by less than 0.1 % else.
const formulaMargin = 1.05

// upper returns how likely B's sum is to be as high as it is.
func (p places) upper(steps int) float64 {
	varied, sum, step := p.varied()
	most, chance := 0, 1.0 // the highest sum, and how likely it is
	for _, scores := range varied {
		highest, n := slices.Max(scores), 0
		for _, s := range scores {
			if s == highest {
				n++
			}
		}
		most, chance = most+highest, chance*float64(n)/float64(len(scores))
	}
	switch {
	case sum == 0:
		return 1
	case sum == most: // the saddle point would lie at infinity
		return chance
	case len(varied)*(most/step) > steps:
		return min(1, formulaMargin*varied.saddlePoint(float64(sum), float64(step)))
	}
	return varied.exact(sum, step)
}

// varied returns the rounds whose scores differ, in each of which they count from 0 on; B's sum in them; and a number
// of which all scores are multiples.
func (p places) varied() (out places, sum, step int) {
	for _, scores := range p {
		least := slices.Min(scores)
		if slices.Max(scores) == least {
			continue
		}
		from := make([]int, len(scores))
		for i, s := range scores {
			from[i] = s - least
			step = gcd(step, from[i])
		}
		out, sum = append(out, from), sum+from[0]
	}
	return out, sum, step
}

// exact is upper, by the distribution of the sum, for scores that are multiples of step, from 0 on.
func (p places) exact(sum, step int) float64 {
	most := 0
	for _, scores := range p {
		most += slices.Max(scores) / step
	}
	chances, reached := make([]float64, most+1), 0 // chances of each sum
	chances[0] = 1
	for _, scores := range p {
		next := make([]float64, len(chances))
		for _, s := range scores {
			for sum, chance := range chances[:reached+1] {
				next[sum+s/step] += chance / float64(len(scores))
			}
		}
		chances, reached = next, reached+slices.Max(scores)/step
	}
	high := 0.0
	for _, chance := range slices.Backward(chances[sum/step:]) { // the smallest first
		high += chance
	}
	return min(high, 1)
}

func gcd(a, b int) int {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}

// saddlePoint is upper by the formula of Lugannani and Rice with Daniels's second correction for sums that are
// multiples of step (Daniels, International Statistical Review 1987, sections 4 and 6). A normal distribution would not
// do: where noise is skewed, so are the scores, and its tails are off by half at 30 rounds.
func (p places) saddlePoint(sum, step float64) float64 {
	at := sum - step/2
	// cumulants returns the logarithm of the mean of exp(s * sum), and its first two derivatives.
	cumulants := func(s float64) (k, k1, k2 float64) {
		for _, scores := range p {
			highest := 0.0
			for _, x := range scores {
				highest = max(highest, s*float64(x))
			}
			var m0, m1, m2 float64
			for _, x := range scores {
				x := float64(x)
				e := math.Exp(s*x - highest)
				m0, m1, m2 = m0+e, m1+x*e, m2+x*x*e
			}
			k += highest + math.Log(m0/float64(len(scores)))
			k1 += m1 / m0
			k2 += m2/m0 - m1/m0*m1/m0
		}
		return k, k1, k2
	}
	_, mean, variance := cumulants(0)
	if math.Abs(at-mean) < 1e-4*math.Sqrt(variance) { // the formula is 0/0 there
		return 0.5
	}
	// Newton's method, kept within a bracket: k1 grows with s.
	s, low, high := (at-mean)/variance, math.Inf(-1), math.Inf(1)
	for range 100 {
		_, k1, k2 := cumulants(s)
		if math.Abs(k1-at) < 1e-9*math.Sqrt(variance) {
			break
		}
		if k1 < at {
			low = s
		} else {
			high = s
		}
		next := s + (at-k1)/k2
		switch {
		case next > low && next < high:
		case math.IsInf(high, 1):
			next = 2 * math.Abs(s)
		case math.IsInf(low, -1):
			next = -2 * math.Abs(s)
		default:
			next = (low + high) / 2
		}
		s = next
	}
	k, _, k2 := cumulants(s)
	w := math.Copysign(math.Sqrt(2*(s*at-k)), s)
	u := 2 / step * math.Sinh(s*step/2) * math.Sqrt(k2)
	normal := stats.StdNormal
	return min(max(normal.CDF(-w)+normal.PDF(w)*(1/u-1/w), 0), 1)
}

// bisections find the end of an interval to a ten-millionth of the range of ratios.
const bisections = 24

// bisect returns where a condition that holds at from, and not at to, ceases to hold.
func bisect(from, to float64, holds func(float64) bool) float64 {
	for range bisections {
		if mid := from + (to-from)/2; holds(mid) {
			from = mid
		} else {
			to = mid
		}
	}
	return from
}

// shifts returns by how much B lies above A: where its aligned ranks have the sum that they have if nothing differs
// (Hodges and Lehmann, Annals of Mathematical Statistics 1963); and the lowest and the highest shift at which a test of
// one side at a level sees no difference. These are nil if rounds are too few.
func shifts(turns []turn, level float64) (center float64, interval []float64) {
	low, high := math.Inf(1), math.Inf(-1) // from there on B has the highest place in every round, and the lowest
	mirrored := make([]turn, len(turns))
	for i, t := range turns {
		for _, a := range t[1:] {
			low, high = min(low, t[0]-a), max(high, t[0]-a)
		}
		for _, v := range t {
			mirrored[i] = append(mirrored[i], -v)
		}
	}
	beyond := 1e-6 * (high - low)
	low, high = low-beyond, high+beyond
	excess := func(shift float64) float64 {
		sum, mean := alignedRanks(turns, shift).sum()
		return float64(sum) - mean
	}
	const rounding = 0.25 // scores are integers, and means of two or three of them
	center = (bisect(low, high, func(shift float64) bool { return excess(shift) > rounding }) +
		bisect(high, low, func(shift float64) bool { return excess(shift) < -rounding })) / 2
	if len(turns) >= fewest(len(turns[0]), level) {
		interval = []float64{lowest(turns, center, low, level), -lowest(mirrored, -center, -high, level)}
	}
	return center, interval
}

// lowest returns the lowest shift at which B does not lie above A, between far and center. Tails change little by
// little, and not always one way, so 0 is tried first: the interval has it in it if, and only if, the test says so.
func lowest(turns []turn, center, far, level float64) float64 {
	accepts := func(shift float64) bool { return alignedRanks(turns, shift).upper(quick) > level }
	if far < 0 && 0 < center {
		if alignedRanks(turns, 0).upper(thorough) > level {
			center = 0
		} else {
			far = 0
		}
	}
	return bisect(center, far, accepts)
}

// fewest returns how many rounds of so many arms a test of one side needs at least.
func fewest(arms int, level float64) int {
	return int(math.Ceil(-math.Log(level)/math.Log(float64(arms)) - 1e-9))
}

// How visible works: it draws so many tables, and takes this share of them. The share is more than Found, since a small
// table knows little of the noise: of changes at that share, some nine of ten are found.
const (
	drawnTables = 50
	drawnShare  = 0.95
)

// beyondDrawn returns how far visible goes beyond the tables that it draws: so many times as far as their drawnShare
// lies above their median. With the fewest rounds that a test takes the largest of all blocks decide, and a table has
// hardly seen those. The numbers are from simulations (TestVisible).
func beyondDrawn(rounds, arms int, level float64) float64 {
	few := 2 / float64(arms-1) * math.Pow(float64(fewest(arms, level))/float64(rounds), 2)
	return few * few
}

// visible returns by how much B must lie above A, or below it, to be found by a test of one side at a level in nine of
// ten tables like this one. It draws rounds of the table, takes away by how much B lies above A, and deals the blocks
// of each anew to the arms; each such table tells which change would have been found in it (Efron and Tibshirani, An
// Introduction to the Bootstrap, section 25.5). It is 0 if the test finds nothing in so few rounds.
func visible(turns []turn, level float64) float64 {
	if len(turns) < fewest(len(turns[0]), level) {
		return 0
	}
	center, _ := shifts(turns, level)
	random := rand.New(rand.NewPCG(1, uint64(len(turns))))
	var found []float64
	for range drawnTables {
		up, down := make([]turn, len(turns)), make([]turn, len(turns))
		for i := range up {
			t := slices.Clone(turns[random.IntN(len(turns))])
			t[0] -= center
			random.Shuffle(len(t), func(i, k int) { t[i], t[k] = t[k], t[i] })
			up[i] = t
			for _, v := range t {
				down[i] = append(down[i], -v)
			}
		}
		found = append(found, least(up, level), least(down, level))
	}
	slices.Sort(found)
	usual, high := found[len(found)/2], found[int(drawnShare*float64(len(found)))]
	if usual <= 0 { // most blocks are equal
		return high
	}
	return high * min(10, math.Pow(high/usual, beyondDrawn(len(turns), len(turns[0]), level)))
}

// least returns the least change of B that a test of one side at a level finds.
func least(turns []turn, level float64) float64 {
	most := 0.0 // from there on B is above all others in every round
	for _, t := range turns {
		for _, a := range t[1:] {
			most = max(most, a-t[0])
		}
	}
	from, to := 0.0, most*(1+1e-6)
	for range 11 { // to a two-thousandth of the range, which is enough for a share of tables
		if mid := (from + to) / 2; alignedRanks(turns, -mid).upper(quick/5) > level {
			from = mid
		} else {
			to = mid
		}
	}
	return to
}
