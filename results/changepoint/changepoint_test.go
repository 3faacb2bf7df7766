package changepoint

import (
	"flag"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

var many = flag.Int("series", 0, "series of each kind; the tests then take minutes")

// seriesOf returns how many series a test has.
func seriesOf(usual int) int { return max(usual, *many) }

// noise returns n values of an autoregression of order 1 around 0, with a standard deviation of 1.
func noise(random *rand.Rand, correlation float64, n int) []float64 {
	values := make([]float64, n)
	for i := range values {
		values[i] = random.NormFloat64()
		if i > 0 {
			values[i] = correlation*values[i-1] + math.Sqrt(1-correlation*correlation)*values[i]
		}
	}
	return values
}

// mixed is noise of which a share lies far away.
func mixed(random *rand.Rand, share, far float64, n int) []float64 {
	values := noise(random, 0, n)
	for i := range values {
		if random.Float64() < share {
			values[i] += far
		}
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

// TestFalseChanges: of series without a change, looked at after each of 200 runs, at most one in a hundred ever shows
// one.
func TestFalseChanges(t *testing.T) {
	const runs = 200
	n := seriesOf(25)
	for i, c := range []struct {
		name string
		next func(random *rand.Rand) []float64
	}{
		{"AR(1) at 0", func(random *rand.Rand) []float64 { return noise(random, 0, runs) }},
		{"AR(1) at 0.4", func(random *rand.Rand) []float64 { return noise(random, .4, runs) }},
		{"AR(1) at 0.6", func(random *rand.Rand) []float64 { return noise(random, .6, runs) }},
		{"AR(1) at 0.8", func(random *rand.Rand) []float64 { return noise(random, .8, runs) }},
		{"AR(1) at 0.9", func(random *rand.Rand) []float64 { return noise(random, .9, runs) }},
		{"spikes", func(random *rand.Rand) []float64 { return mixed(random, .05, 10, runs) }},
		{"two modes", func(random *rand.Rand) []float64 { return mixed(random, .3, 10, runs) }},
		{"two even modes", func(random *rand.Rand) []float64 { return mixed(random, .5, 10, runs) }},
		{"heavy tails", func(random *rand.Rand) []float64 {
			values := make([]float64, runs)
			for i := range values {
				values[i] = math.Tan(math.Pi * (random.Float64() - 0.5))
			}
			return values
		}},
		{"few values", func(random *rand.Rand) []float64 {
			values := make([]float64, runs)
			for i := range values {
				values[i] = float64(random.IntN(3))
			}
			return values
		}},
	} {
		random := rand.New(rand.NewPCG(3, uint64(i)))
		found := 0
		for range n {
			if Find(c.next(random)) != nil { // a change of any look stays to the last one
				found++
			}
		}
		t.Logf("%s: a look at %d of %d series has shown a change, %.2f %%", c.name, found, n,
			100*float64(found)/float64(n))
		// As many come with a chance of 1 in 1000 at most if 1 % are expected.
		expected := float64(n) / 100
		if float64(found) > expected+3.1*math.Sqrt(expected)+1 {
			t.Errorf("%s: changes in %d of %d series without one, want at most 1 %%", c.name, found, n)
		}
	}
}

// TestFactor: the Bayes factor is that of least squares with the transformed columns of a level and a step, in which a
// step that is drawn from a normal distribution is one more row.
func TestFactor(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	values := noise(random, .5, 30)
	z, _ := bounded(values)
	for _, k := range []int{5, 17, 25} {
		var with, without float64
		for i, r := range correlations {
			transform := func(x []float64) []float64 {
				y := []float64{math.Sqrt(1-r*r) * x[0]}
				for i := 1; i < len(x); i++ {
					y = append(y, x[i]-r*x[i-1])
				}
				return y
			}
			ones, step := slices.Repeat([]float64{1}, len(z)), make([]float64, len(z))
			for i := k; i < len(z); i++ {
				step[i] = 1
			}
			y, a, b := transform(z), transform(ones), transform(step)
			width := 3 / math.Sqrt(1-r*r)
			product := func(x, y []float64) (sum float64) {
				for i := range x {
					sum += x[i] * y[i]
				}
				return sum
			}
			aa, ab, bb := product(a, a), product(a, b), product(b, b)+1/(width*width)
			ya, yb, yy := product(y, a), product(y, b), product(y, y)
			det := aa*bb - ab*ab
			left := yy - (ya*ya*bb-2*ya*yb*ab+yb*yb*aa)/det
			power := -float64(len(z)-1) / 2
			without += math.Sqrt((1-r*r)/aa) * math.Pow(yy-ya*ya/aa, power)
			if i < withStep {
				with += math.Sqrt((1-r*r)/det) / width * math.Pow(left, power)
			}
		}
		if got, want := newModels(values).factor(k), math.Log(with/without); math.Abs(got-want) > 1e-6 {
			t.Errorf("a step before value %d: factor %g, want %g", k, got, want)
		}
	}
}

// TestKnownSeries: series whose changes are known.
func TestKnownSeries(t *testing.T) {
	random := rand.New(rand.NewPCG(2, 2))
	steps := slices.Concat(slices.Repeat([]float64{0}, 100), slices.Repeat([]float64{1}, 100),
		slices.Repeat([]float64{20}, 100))
	there := slices.Concat(noise(random, 0, 40), noise(random, 0, 20), noise(random, 0, 40))
	for i := 40; i < 60; i++ {
		there[i] += 5
	}
	for _, c := range []struct {
		name   string
		values []float64
		want   []int
	}{
		{"Nile, the change of 1899", nile, []int{28}},
		{"steps of signal-processing-algorithms", steps, []int{100, 200}},
		{"there and back", there, []int{40, 60}},
		{"no values", nil, nil}, {"one", []float64{7}, nil}, {"two", []float64{7, 9}, nil},
		{"too short for two sides", []float64{1, 1, 1, 1, 9, 9, 9, 9, 9}, nil},
		{"constant", slices.Repeat([]float64{0.1}, 500), nil},
		{"nearly", append(slices.Repeat([]float64{0.1}, 499), math.Nextafter(0.1, 1)), nil},
		{"constant, then another", slices.Concat(slices.Repeat([]float64{-2}, 40), slices.Repeat([]float64{-3}, 10)),
			[]int{40}},
		{"huge", slices.Concat(slices.Repeat([]float64{1e300}, 40), slices.Repeat([]float64{1.1e300}, 12)), []int{40}},
	} {
		if got := places(Find(c.values)); !slices.Equal(got, c.want) {
			t.Errorf("%s: changes at %v, want %v", c.name, got, c.want)
		}
	}
}

// TestPower: a step of three standard deviations shows within ten runs.
func TestPower(t *testing.T) {
	n := seriesOf(80)
	for _, c := range []struct {
		correlation float64
		before      int
		least       float64 // share of series that show it
	}{{.4, 30, .55}, {.4, 60, .65}, {.4, 100, .70}, {.4, 150, .75}, {0, 30, .85}, {0, 100, .95}} {
		random := rand.New(rand.NewPCG(5, uint64(c.before)))
		found, inside := 0, 0
		for range n {
			values := noise(random, c.correlation, c.before+10)
			for i := c.before; i < len(values); i++ {
				values[i] += 3
			}
			if changes := Find(values); changes != nil {
				last := changes[len(changes)-1]
				found++
				if last.First <= c.before && c.before <= last.Last {
					inside++
				}
			}
		}
		t.Logf("AR(1) at %g, a step after %d: %.1f %% show it within ten runs; the place is in the range of %.1f %%",
			c.correlation, c.before, 100*float64(found)/float64(n), 100*float64(inside)/float64(found))
		if share := float64(found) / float64(n); share < c.least {
			t.Errorf("AR(1) at %g, a step after %d: found in %.2f, want at least %.2f", c.correlation, c.before, share,
				c.least)
		}
		if float64(inside) < .85*float64(found) {
			t.Errorf("AR(1) at %g, a step after %d: in %d of %d ranges", c.correlation, c.before, inside, found)
		}
	}
}

// TestSpikes: far values are no change, hide none, and do not draw its place to themselves.
func TestSpikes(t *testing.T) {
	random := rand.New(rand.NewPCG(7, 8))
	for _, far := range []float64{-30, 300} {
		values := noise(random, 0, 80)
		for i := range values {
			if i >= 50 {
				values[i] += 5
			}
		}
		values[20], values[41], values[42], values[70] = far, far, far, far
		if got := Find(values); len(got) != 1 || got[0].At < 48 || got[0].At > 52 {
			t.Errorf("a step beside values of %g: %+v, want one at 50", far, got)
		}
	}
}

// TestLooks: a change that some look has shown stays, and is known as found then.
func TestLooks(t *testing.T) {
	random := rand.New(rand.NewPCG(9, 10))
	values := noise(random, .2, 120)
	for i := range values {
		if i >= 45 {
			values[i] += 4
		}
		if i >= 80 {
			values[i] -= 8
		}
	}
	all := Find(values)
	if len(all) != 2 {
		t.Fatalf("changes %+v, want two", all)
	}
	for n := range len(values) {
		want := 0
		for _, c := range all {
			if c.Found <= n {
				want++
			}
		}
		if got := Find(values[:n]); len(got) != want {
			t.Errorf("%d changes in the first %d values, want %d", len(got), n, want)
		}
	}
}

// TestCorrelation: the estimate is near the truth, and a step does not add to it.
func TestCorrelation(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	for _, want := range []float64{0, .4, .8} {
		values := noise(random, want, 400)
		for i := 200; i < 400; i++ {
			values[i] += 50
		}
		if got := Correlation(values, []Change{{At: 200}}); math.Abs(got-want) > 0.12 {
			t.Errorf("correlation %.2f, want %.1f", got, want)
		}
	}
	if got := Correlation(slices.Repeat([]float64{3}, 10), nil); got != 0 {
		t.Errorf("correlation of a constant: %g", got)
	}
}

// TestLongest: the longest series with many changes is a matter of a second.
func TestLongest(t *testing.T) {
	random := rand.New(rand.NewPCG(11, 12))
	values := noise(random, 0, MaxValues)
	for i := range values {
		values[i] += float64(i / 200 % 3 * 4)
	}
	began := time.Now()
	got := Find(values)
	t.Logf("%d values: changes at %v, %s", len(values), places(got), time.Since(began).Round(time.Millisecond))
	if len(got) != 4 {
		t.Errorf("changes at %v, want 200, 400, 600, 800", places(got))
	}
}
