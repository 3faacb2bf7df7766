package compare

import (
	"encoding/csv"
	"flag"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"neokv.dev/results"
)

// How much the tests below simulate, and from where. They fail by chance once in a million runs at most.
var (
	trials = flag.Int("compare.trials", 300, "simulated runs of each kind")
	seed   = flag.Uint64("compare.seed", 1, "where simulations begin")
)

// A noise is that of the logarithm of a block's figure.
type noise struct {
	name string
	draw func(*rand.Rand) float64
}

var noises = []noise{
	{"normal", (*rand.Rand).NormFloat64},
	{"exponential", (*rand.Rand).ExpFloat64},
	{"heavy tail", func(r *rand.Rand) float64 { return math.Pow(1-r.Float64(), -1/1.5) }}, // Pareto: no variance
	{"bimodal", func(r *rand.Rand) float64 {
		if r.IntN(5) == 0 {
			return 3 + 0.3*r.NormFloat64()
		}
		return 0.3 * r.NormFloat64()
	}},
}

// rounds draws rounds of arms, with a change of B and a noise of 3 %.
func (n noise) rounds(r *rand.Rand, rounds, arms int, change float64) (out []turn) {
	for range rounds {
		t := turn{change}
		for range arms - 1 {
			t = append(t, 0)
		}
		for i := range t {
			t[i] += 0.03 * n.draw(r)
		}
		out = append(out, t)
	}
	return out
}

// rate counts what tests found on each side.
type rate struct{ low, high int }

func (r *rate) add(low, high bool) {
	if low {
		r.low++
	}
	if high {
		r.high++
	}
}

func (r rate) String() string {
	return fmt.Sprintf("%.4f %.4f", float64(r.low)/float64(*trials), float64(r.high)/float64(*trials))
}

// most returns how often something may come in so many trials that has a probability, at five standard deviations.
func most(probability float64) int {
	n := float64(*trials)
	return int(n*probability + 5*math.Sqrt(n*probability*(1-probability)) + 1)
}

// side is the level of each side of a test of Level.
const side = (1 - Level) / 2

// medianOfRatios is a test that leans: it takes the ratio of B to the geometric mean of A and its copy to have a median
// of 1. Of skewed noise the mean of two blocks has another median than one block.
func medianOfRatios(turns []turn) (low, high bool) {
	var logs []float64
	for _, t := range turns {
		logs = append(logs, t[0]-(t[1]+t[2])/2)
	}
	e := NewEstimate(logs)
	return e.Interval[1] < 0, e.Interval[0] > 0
}

// TestRates: where nothing differs, each test finds a difference on each side as seldom as it should, whatever the
// noise is like; where B differs, alignedRanks finds it at least as often as medianOfRatios on both sides together.
func TestRates(t *testing.T) {
	t.Logf("seed %d, %d trials; shares found lower and higher", *seed, *trials)
	random := rand.New(rand.NewPCG(*seed, 1))
	for _, n := range noises {
		for _, rounds := range []int{6, 14, 30, 100} {
			var aligned, inRounds, pairs, today rate
			for range *trials {
				turns := n.rounds(random, rounds, 3, 0)
				for _, x := range []struct {
					into *rate
					p    places
				}{{&aligned, alignedRanks(turns, 0)}, {&inRounds, placesInRounds(turns)},
					{&pairs, alignedRanks(n.rounds(random, rounds, 2, 0), 0)}} {
					low, high := x.p.tails(quick)
					x.into.add(low <= side, high <= side)
				}
				today.add(medianOfRatios(turns))
			}
			t.Logf("%-11s %3d rounds: aligned ranks %s, places in rounds %s, two arms %s, median of ratios %s", n.name,
				rounds, aligned, inRounds, pairs, today)
			for name, r := range map[string]rate{"aligned ranks": aligned, "places in rounds": inRounds,
				"two arms": pairs} {
				if max(r.low, r.high) > most(side) {
					t.Errorf("%s, %d rounds: %s find %s where nothing differs, want %g on each side", n.name, rounds,
						name, r, side)
				}
			}
		}
		for _, rounds := range []int{14, 30} {
			var aligned, inRounds, today [2]rate
			for i, change := range []float64{-.02, .02} {
				for range *trials {
					turns := n.rounds(random, rounds, 3, change)
					low, high := alignedRanks(turns, 0).tails(quick)
					aligned[i].add(low <= side, high <= side)
					low, high = placesInRounds(turns).tails(quick)
					inRounds[i].add(low <= side, high <= side)
					today[i].add(medianOfRatios(turns))
				}
			}
			t.Logf("%-11s %3d rounds, B -2 %% and +2 %%: aligned ranks %s, places in rounds %s, median of ratios %s",
				n.name, rounds, aligned, inRounds, today)
			finds, found := aligned[0].low+aligned[1].high, today[0].low+today[1].high
			if slack := int(5 * math.Sqrt(float64(*trials))); finds < found-slack {
				t.Errorf("%s, %d rounds: found %d of %d changes of 2 %%, the median of ratios %d", n.name, rounds,
					finds, 2**trials, found)
			}
		}
	}
}

// TestSaddlePoint: the formula agrees with the whole distribution.
func TestSaddlePoint(t *testing.T) {
	random := rand.New(rand.NewPCG(*seed, 2))
	for _, n := range noises {
		for _, arms := range []int{2, 3} {
			for range 40 {
				rounds, off := 17+random.IntN(30), 0.03
				turns := n.rounds(random, rounds, arms, .02*random.Float64())
				if random.IntN(2) == 0 { // equal values make sums with gaps, which the formula does not know
					off = 0.2
					for _, x := range turns {
						for i := range x {
							x[i] = math.Round(40 * x[i])
						}
					}
				}
				for name, p := range map[string]places{"ranks": alignedRanks(turns, 0),
					"places": placesInRounds(turns)} {
					varied, sum, step := p.varied()
					if sum == 0 {
						continue
					}
					got, want := p.upper(0)/formulaMargin, varied.exact(sum, step)
					if want > 1e-9 && math.Abs(math.Log(got/want)) > off {
						t.Errorf("%s of %d rounds of %d arms, %s: %g, want %g", name, rounds, arms, n.name, got, want)
					}
				}
			}
		}
	}
}

// TestIntervals: an interval has the true shift as often as it should, and 0 if the test sees no difference.
func TestIntervals(t *testing.T) {
	random := rand.New(rand.NewPCG(*seed, 3))
	const samples, truth = 40, .02
	for _, n := range noises {
		for _, rounds := range []int{6, 12, 30} {
			missed := 0
			for range samples {
				turns := n.rounds(random, rounds, 3, truth)
				center, interval := shifts(turns, side)
				if interval[0] > center || center > interval[1] {
					t.Fatalf("%s, %d rounds: %g is not within %g", n.name, rounds, center, interval)
				}
				if interval[0] > truth || interval[1] < truth {
					missed++
				}
				low, high := alignedRanks(turns, 0).tails(thorough)
				if (interval[0] > 0) != (high <= side) || (interval[1] < 0) != (low <= side) {
					t.Errorf("%s, %d rounds: the interval is %g, the tails %g and %g", n.name, rounds, interval, low,
						high)
				}
			}
			if missed > 9 { // five standard deviations more than 2
				t.Errorf("%s, %d rounds: %d of %d intervals lack the truth", n.name, rounds, missed, samples)
			}
		}
	}
	if _, interval := shifts([]turn{{1, 0, 0}, {1, 0, 0}, {1, 0, 0}}, side); interval != nil {
		t.Errorf("three rounds: %g", interval)
	}
}

// TestRecordedBlocks: with blocks that were measured, three of one arm in each round, and dealt anew to A, B and A
// again, each side of the test keeps its level. testdata/equal.csv is of a redis-server on a machine that other work
// shared.
func TestRecordedBlocks(t *testing.T) {
	file, err := os.Open("testdata/equal.csv")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	rows, err := csv.NewReader(file).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	blocks := map[string][]turn{}
	for _, row := range rows[1:] {
		var x turn
		for _, text := range row[1:] {
			v, err := strconv.ParseFloat(text, 64)
			if err != nil {
				t.Fatal(err)
			}
			x = append(x, math.Log(v))
		}
		blocks[row[0]] = append(blocks[row[0]], x)
	}
	random := rand.New(rand.NewPCG(*seed, 8))
	for _, figure := range slices.Sorted(maps.Keys(blocks)) {
		all := blocks[figure]
		for _, rounds := range []int{6, 14, len(all)} {
			var found rate
			for range *trials {
				var turns []turn
				for _, i := range random.Perm(len(all))[:rounds] {
					x := slices.Clone(all[i])
					random.Shuffle(len(x), func(i, k int) { x[i], x[k] = x[k], x[i] })
					turns = append(turns, x)
				}
				low, high := alignedRanks(turns, 0).tails(quick)
				found.add(low <= side, high <= side)
			}
			t.Logf("%s, %d of %d rounds: %s", figure, rounds, len(all), found)
			if max(found.low, found.high) > most(side) {
				t.Errorf("%s, %d rounds: found %s where nothing differs, want %g on each side", figure, rounds, found,
					side)
			}
		}
	}
}

// TestTies: of figures of which many values are equal, aligned ranks keep their level. They find at least as many
// changes as the same test with equal values parted by a draw, which keeps its level, too. A figure that never differs
// has no verdict.
func TestTies(t *testing.T) {
	random := rand.New(rand.NewPCG(*seed, 9))
	t.Logf("seed %d, %d trials", *seed, *trials)
	// parted ranks blocks as alignedRanks does, but leaves out rounds without a difference, and draws which of two
	// equal blocks is the larger one.
	parted := func(turns []turn) places {
		var differ []turn
		for _, x := range turns {
			if slices.Min(x) == slices.Max(x) {
				continue
			}
			x = slices.Clone(x)
			median := slices.Sorted(slices.Values(x))[len(x)/2] // of three
			for i := range x {
				x[i] += -median + 1e-9*random.Float64()
			}
			differ = append(differ, x)
		}
		flat := ranks(slices.Concat(differ...))
		var out places
		for _, x := range differ {
			out, flat = append(out, flat[:len(x):len(x)]), flat[len(x):]
		}
		return out
	}
	for _, n := range noises {
		for _, step := range []float64{.5, 1, 2} { // as a part of the noise, which is 3 %
			for _, rounds := range []int{14, 30} {
				if *trials < 1000 && (step != 1 || rounds > 14) {
					continue // the rest takes seconds
				}
				var equal, drawn, drawnEqual, found int
				for range *trials {
					for _, change := range []float64{0, .03} {
						turns := n.rounds(random, rounds, 3, change)
						for _, x := range turns {
							for i := range x {
								x[i] = .03 * step * math.Round(x[i]/(.03*step))
							}
						}
						mean := alignedRanks(turns, 0).upper(quick) <= side
						byDraw := parted(turns)
						draw := byDraw != nil && byDraw.upper(quick) <= side
						switch {
						case change == 0 && mean:
							equal++
						case change > 0 && mean:
							found++
						}
						switch {
						case change == 0 && draw:
							drawnEqual++
						case change > 0 && draw:
							drawn++
						}
					}
				}
				share := func(n int) float64 { return 100 * float64(n) / float64(*trials) }
				t.Logf("%-11s steps of %.1f %%, %d rounds: nothing differs %.1f, by draw %.1f; +3 %% %.1f, by draw %.1f",
					n.name, 3*step, rounds, share(equal), share(drawnEqual), share(found), share(drawn))
				if max(equal, drawnEqual) > most(side) {
					t.Errorf("%s, %d rounds: found %d, by draw %d of %d where nothing differs", n.name, rounds, equal,
						drawnEqual, *trials)
				}
				if slack := int(3 * math.Sqrt(float64(*trials))); found < drawn-slack {
					t.Errorf("%s, %d rounds: found %d of %d changes, by draw %d", n.name, rounds, found, *trials, drawn)
				}
			}
		}
	}
	var rounds []Round
	for range 60 {
		side := []results.Figure{{Name: "allocations", Value: 12}}
		rounds = append(rounds, Round{A: side, B: side, Control: side})
	}
	if d := Rounds(rounds, []string{"allocations"}); d.Rows[0].Verdict != Same || d.Conclusion.Verdict != Same {
		t.Errorf("a figure that is 12 in all blocks: %+v, %+v", d.Rows[0], d.Conclusion)
	}
}
