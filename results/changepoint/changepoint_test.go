package changepoint

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// level appends n values of a level with noise, a share of the level.
func level(random *rand.Rand, values []float64, n int, level, noise float64) []float64 {
	for range n {
		values = append(values, level*(1+noise*random.NormFloat64()))
	}
	return values
}

func places(changes []Change) (out []int) {
	for _, c := range changes {
		out = append(out, c.At)
	}
	return out
}

// nile is the annual flow of the Nile at Aswan, 1871 to 1970 (Cobb, The Problem of the Nile, Biometrika 1978).
var nile = []float64{
	1120, 1160, 963, 1210, 1160, 1160, 813, 1230, 1370, 1140, 995, 935, 1110, 994, 1020, 960, 1180, 799, 958, 1140,
	1100, 1210, 1150, 1250, 1260, 1220, 1030, 1100, 774, 840, 874, 694, 940, 833, 701, 916, 692, 1020, 1050, 969, 831,
	726, 456, 824, 702, 1120, 1100, 832, 764, 821, 768, 845, 864, 862, 698, 845, 744, 796, 1040, 759, 781, 865, 845,
	944, 984, 897, 822, 1010, 771, 676, 649, 846, 812, 742, 801, 1040, 860, 874, 848, 890, 744, 749, 838, 1050, 918,
	986, 797, 923, 975, 815, 1020, 906, 901, 1170, 912, 746, 919, 718, 714, 740,
}

// TestBest: the split is that of the definition in the paper, computed from all pairs.
func TestBest(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	series := [][]float64{nile, {1, 1, 2, 2}, {3, 1, 4, 1, 5, 9, 2, 6}, {0, 0, 0, 1, 1}, {-1, -5, 3e5, 7, 1e-9, 2}}
	for range 40 {
		var s []float64
		for range 4 + random.IntN(40) {
			s = append(s, float64(random.IntN(7))+random.Float64()*float64(random.IntN(2)))
		}
		series = append(series, s)
	}
	for _, values := range series {
		for _, least := range []int{2, 3} {
			split, distance := byDefinition(values, least)
			s := newSubseries(values, 0, least)
			if math.Abs(s.distance-distance) > 1e-9*(1+distance) || s.split != split {
				t.Errorf("%v, at least %d: split %d, distance %g; want %d, %g", values, least, s.split, s.distance, split,
					distance)
			}
			s.permuted(random, least)
			var mixed []float64
			for _, at := range s.order {
				mixed = append(mixed, values[at])
			}
			_, want := byDefinition(mixed, least)
			if _, got := s.best(least); s.distance > 0 && math.Abs(got-want) > 1e-9*(1+want) {
				t.Errorf("%v in another order: distance %g, want %g", values, got, want)
			}
		}
	}
}

// byDefinition is equation 5 of the paper, for all splits.
func byDefinition(values []float64, least int) (split int, distance float64) {
	mean := func(a, b []float64, pairs float64) (sum float64) {
		for _, x := range a {
			for _, y := range b {
				sum += math.Abs(x-y) / pairs
			}
		}
		return sum
	}
	for i := least; i <= len(values)-least; i++ {
		a, b := values[:i], values[i:]
		n, m := float64(len(a)), float64(len(b))
		d := n * m / (n + m) * (2*mean(a, b, n*m) - mean(a, a, n*(n-1)) - mean(b, b, m*(m-1)))
		if d > distance+1e-12 {
			split, distance = i, d
		}
	}
	return split, distance
}

// TestKnownSeries: series whose changes are published.
func TestKnownSeries(t *testing.T) {
	steps := slices.Concat(slices.Repeat([]float64{0}, 100), slices.Repeat([]float64{1}, 100),
		slices.Repeat([]float64{20}, 100))
	for _, c := range []struct {
		name   string
		values []float64
		want   []int
	}{
		{"Nile, the change of 1899", nile, []int{28}},
		{"steps of signal-processing-algorithms", steps, []int{100, 200}},
		{"no values", nil, nil}, {"one", []float64{7}, nil}, {"two", []float64{7, 9}, nil},
		{"too short for two sides", []float64{1, 1, 1, 1, 9, 9, 9, 9, 9}, nil},
		{"the shortest", slices.Concat(slices.Repeat([]float64{1}, 5), slices.Repeat([]float64{2}, 5)), []int{5}},
		{"constant", slices.Repeat([]float64{0.1}, 500), nil},
		{"nearly", append(slices.Repeat([]float64{0.1}, 499), math.Nextafter(0.1, 1)), nil},
		{"negative", slices.Concat(slices.Repeat([]float64{-2}, 9), slices.Repeat([]float64{-3}, 9)), []int{9}},
		{"huge", slices.Concat(slices.Repeat([]float64{1e300}, 9), slices.Repeat([]float64{1.1e300}, 9)), []int{9}},
	} {
		if got := places(Find(c.values, Options{})); !slices.Equal(got, c.want) {
			t.Errorf("%s: changes at %v, want %v", c.name, got, c.want)
		}
	}
}

// TestFalseChanges: of series without a change one in a hundred may show one.
func TestFalseChanges(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	const series = 1000
	for _, c := range []struct {
		name string
		next func() float64
	}{
		{"normal", random.NormFloat64},
		{"heavy tails", func() float64 { return math.Tan(math.Pi * (random.Float64() - 0.5)) }},
		{"few values", func() float64 { return float64(random.IntN(3)) }},
	} {
		found := 0
		for seed := range uint64(series) {
			values := make([]float64, 10+random.IntN(40))
			for i := range values {
				values[i] = c.next()
			}
			if Find(values, Options{Seed: seed}) != nil {
				found++
			}
		}
		if found > 22 || found == 0 { // 10 are expected; more than 22 come with a chance of 1 in 3000
			t.Errorf("%s: changes in %d of %d series without one, want about 10", c.name, found, series)
		}
	}
}

// TestPower: a step of 5 % in noise of 2 % is found close to its place, in almost every series.
func TestPower(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	random := rand.New(rand.NewPCG(5, 6))
	const series = 200
	for _, c := range []struct {
		name          string
		before, after int
		missed, far   int // series at most in which no change is found, or none near the step
	}{{"in the middle", 20, 20, 0, 4}, {"ten runs ago", 90, 10, 0, 4}, {"five runs ago", 45, 5, 30, 45}} {
		missed, far := 0, 0
		for seed := range uint64(series) {
			values := level(random, level(random, nil, c.before, 100, 0.02), c.after, 105, 0.02)
			got := places(Find(values, Options{Seed: seed}))
			if got == nil {
				missed++
			}
			if !slices.ContainsFunc(got, func(at int) bool { return abs(at-c.before) <= 4 }) {
				far++
			}
		}
		t.Logf("%s: of %d series %d have no change, %d none near the step", c.name, series, missed, far)
		if missed > c.missed || far > c.far {
			t.Errorf("%s: of %d series %d have no change, %d none near the step; want at most %d, %d", c.name, series,
				missed, far, c.missed, c.far)
		}
	}
}

// TestShapes: what is no single step.
func TestShapes(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	var drift []float64
	for i := range 100 {
		drift = level(random, drift, 1, 100+float64(i)/5, 0.01)
	}
	steps := Find(drift, Options{})
	if len(steps) < 2 {
		t.Errorf("drift: changes at %v, want some steps", places(steps))
	}
	// A level for a time, and back.
	there := level(random, level(random, level(random, nil, 40, 100, .02), 20, 110, .02), 40, 100, .02)
	if got := places(Find(there, Options{})); len(got) != 2 || abs(got[0]-40) > 2 || abs(got[1]-60) > 2 {
		t.Errorf("there and back: changes at %v, want 40 and 60", got)
	}
	// Single values that lie far away are no change, and hide none.
	for _, far := range []float64{30, 300} {
		flat := level(random, nil, 60, 100, .02)
		flat[20], flat[41] = far, far
		if got := places(Find(flat, Options{})); got != nil {
			t.Errorf("two values of %g: changes at %v, want none", far, got)
		}
		step := level(random, level(random, nil, 30, 100, .02), 30, 110, .02)
		step[10], step[50] = far, far
		if got := places(Find(step, Options{})); len(got) != 1 || abs(got[0]-30) > 2 {
			t.Errorf("a step beside two values of %g: changes at %v, want 30", far, got)
		}
	}
	// Noise that grows is a change, too.
	wide := level(random, level(random, nil, 60, 100, .01), 60, 100, .1)
	if got := places(Find(wide, Options{})); len(got) == 0 {
		t.Error("noise that grows tenfold: no change")
	}
}

func abs(n int) int { return max(n, -n) }

// TestSeed: equal seeds find the same, with the same p-values, and the options count.
func TestSeed(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	values := level(random, level(random, nil, 12, 100, .03), 12, 110, .03)
	a, b := Find(values, Options{Seed: 7}), Find(values, Options{Seed: 7})
	if len(a) != 1 || !slices.Equal(a, b) {
		t.Errorf("equal seeds: %v and %v, want one change", a, b)
	}
	if got := Find(values, Options{Level: 0.001, Permutations: 199}); got != nil {
		t.Errorf("p is at least 1/200, and yet below 0.001: %v", got)
	}
	if got := Find(values, Options{Least: 13}); got != nil {
		t.Errorf("two sides of 13 of 24 values: %v", got)
	}
}

// TestLongest: the longest series with many changes is a matter of seconds.
func TestLongest(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	var values []float64
	for i := range 5 {
		values = level(random, values, MaxValues/5, float64(100+10*i%30), .02)
	}
	began := time.Now()
	got := places(Find(values, Options{}))
	t.Logf("%d values: changes at %v, %s", len(values), got, time.Since(began).Round(time.Millisecond))
	if len(got) != 4 {
		t.Errorf("changes at %v, want 200, 400, 600, 800", got)
	}
}
