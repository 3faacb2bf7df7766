package gate

import (
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// rateTrials makes TestRateOfTwoLooks simulate so many checks at the levels that the gate has.
var rateTrials = flag.Int("gate.trials", 0, "how many checks to simulate; 0 is few, at higher levels")

// simulated makes a round of cases. Blocks of a case have skewed noise; what a process does to the speed of all cases
// is part of it. B has so much more of everything.
func simulated(random *rand.Rand, cases []TimedCase, more float64) compare.Round {
	arm := func(more float64) (out []results.Figure) {
		process := 0.01 * random.NormFloat64()
		for _, c := range cases {
			noise := process + 0.02*random.ExpFloat64()
			for _, name := range []string{cpuFigure, latencyFigure} {
				out = append(out, results.Figure{Name: c.Name + ": " + name, Kind: results.CPUTime,
					Better: results.Lower, Value: 100 * (1 + more) * math.Exp(noise+0.01*random.NormFloat64())})
			}
		}
		return out
	}
	return compare.Round{A: arm(0), B: arm(more), Control: arm(0)}
}

// TestRateOfTwoLooks: of checks of a build that does not differ, no more fail than the level allows, although each
// looks twice, at several figures. The truth is known, since the blocks are drawn.
func TestRateOfTwoLooks(t *testing.T) {
	trials, level := 150, 0.2
	if *rateTrials > 0 {
		trials, level = *rateTrials, Wrong
	}
	defer func(before [2]float64) { spent = before }(spent)
	spent = [2]float64{level / 10, level * 9 / 10}
	for _, x := range []struct {
		more        float64
		least, most float64 // of checks in which something differs
	}{{0, 0, level}, {.03, .5, 1}} {
		random := rand.New(rand.NewPCG(3, 4))
		timed := Timed{Cases: TimedCases()}
		differing, worse := 0, 0
		for range trials {
			var rounds []compare.Round
			found := map[compare.Verdict]bool{}
			for look := range spent {
				for range 8 {
					rounds = append(rounds, simulated(random, timed.Cases, x.more))
				}
				d := compare.Tested(rounds, timed.primary())
				for i := range d.Rows {
					found[differs(&d.Rows[i], spent[look])] = true
				}
				if found[compare.Worse] {
					break
				}
			}
			if found[compare.Worse] {
				worse++
			}
			if found[compare.Worse] || found[compare.Better] {
				differing++
			}
		}
		share := float64(differing) / float64(trials)
		allowed := x.most + 3*math.Sqrt(x.most*(1-x.most)/float64(trials))
		text := fmt.Sprintf("%.1f %% more: of %d checks %d have a figure that differs, %d a worse one", 100*x.more,
			trials, differing, worse)
		t.Log(text)
		if share < x.least || share > allowed {
			t.Errorf("%s; want a share of %.3f to %.3f", text, x.least, allowed)
		}
	}
}
