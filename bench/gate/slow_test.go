package gate

import (
	"math/rand/v2"
	"testing"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// TestSlowLane: each figure of the slow lane has its own bound, and none is worse for CPU time.
func TestSlowLane(t *testing.T) {
	slow := (&Timed{Most: .03, MostLatency: .2, Budget: time.Minute, Cases: TimedCases()}).SlowLane()
	if slow.Budget < slow.Needs() || slow.Needs() < time.Minute {
		t.Errorf("a budget of %s, needs %s", slow.Budget, slow.Needs())
	}
	random := rand.New(rand.NewPCG(1, 2))
	arm := func(more float64) (out []results.Figure) {
		for _, name := range []string{bootFigure, memoryFigure, diskFigure, failOverFigure} {
			out = append(out, results.Figure{Name: slowName + ": " + name, Unit: "B", Kind: results.Timed,
				Better: results.Lower, Value: 1000 * (1 + more) * (1 + .01*random.Float64())})
		}
		return out
	}
	for more, want := range map[float64][4]compare.Verdict{
		0:   {AsBefore, AsBefore, AsBefore, AsBefore},
		.15: {AsBefore, compare.Worse, compare.Worse, AsBefore},
		.3:  {compare.Worse, compare.Worse, compare.Worse, compare.Worse},
	} {
		var rounds []compare.Round
		for range 12 {
			rounds = append(rounds, compare.Round{A: arm(0), B: arm(more), Control: arm(0)})
		}
		found := slow.judge(rounds, 1)
		if len(found) != len(want) {
			t.Fatalf("%+v", found)
		}
		for i, f := range found {
			if f.Verdict != want[i] || f.Case != slowName {
				t.Errorf("%.0f %% more: %+v, want %s", 100*more, f, want[i])
			}
		}
	}
}
