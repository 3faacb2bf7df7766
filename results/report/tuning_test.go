package report

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/tuning"
)

// syntheticTuning is an outcome with an ordered and an unordered knob, a value that cannot boot, a winner, and texts
// that must not become part of the page's code.
func syntheticTuning() *tuning.StudyOutcome {
	random := rand.New(rand.NewPCG(1, 1))
	s := &tuning.Study{Curved: true, Done: true, Plan: tuning.StudyPlan{
		Started: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), Profile: "default", Command: []string{"neokv", hostile},
		Machine: results.Machine{CPU: "a CPU " + hostile, Cores: 2},
		Load:    tuning.Load{Workload: "write-heavy " + hostile, Records: 1000},
		Knobs: []tuning.Knob{
			{Setting: "engine.memtable_size", Values: []string{"4MiB", "8MiB", "16MiB", "64MiB"}, Default: "16MiB",
				Ordered: true},
			{Setting: "engine.bloom_prefix", Values: []string{"region", "collection", "key"}, Default: "key"},
		},
		Objective: tuning.Objective{Figure: "throughput", Better: results.Higher},
		Subjects:  []tuning.Subject{{Text: "p99<10ms", Figure: "p99", Below: true, Limit: 10000}},
		Budget:    10 * time.Minute, Block: 3 * time.Second, Seed: 42,
	}}
	factors := map[string]float64{"engine.memtable_size=4MiB": 0.7, "engine.memtable_size=8MiB": 0.75,
		"engine.memtable_size=64MiB": 1.2, "engine.bloom_prefix=region": 0.9}
	add := func(phase tuning.Phase, round int, load string, again bool, set ...string) {
		t := tuning.StudyTrial{Phase: phase, Round: round, Load: load, Again: again, Set: set, Took: 5 * time.Second}
		factor := 1.0
		for _, x := range set {
			factor *= factors[x]
		}
		if factor == 0 {
			t.Failure = "cannot boot: " + hostile
		} else {
			luck := factor * math.Exp(0.02*random.NormFloat64())
			t.Figures = []results.Figure{
				{Name: "throughput", Unit: "ops/s", Better: results.Higher, Value: 10000 * luck},
				{Name: "p99", Unit: "us", Better: results.Lower, Value: 5000 / luck},
				{Name: tuning.Memory, Unit: "B", Better: results.Lower, Value: factor * (200 << 20)},
			}
		}
		s.Trials = append(s.Trials, t)
	}
	for round := range 4 {
		for _, set := range tuning.Deal(random, [][]string{{"engine.memtable_size=4MiB"}, {"engine.memtable_size=8MiB"},
			{"engine.memtable_size=64MiB"}, {"engine.bloom_prefix=region"}, {"engine.bloom_prefix=collection"}}, nil) {
			add(tuning.Curves, round, "", false, set...)
		}
	}
	for round := range 6 {
		add(tuning.Gain, round, "", false)
		add(tuning.Gain, round, "", false, "engine.memtable_size=64MiB")
	}
	for round := range 7 {
		add(tuning.Confirm, round, "", false)
		add(tuning.Confirm, round, "", false, "engine.memtable_size=64MiB")
		add(tuning.Confirm, round, "", true)
		add(tuning.Around, round, "twice as many clients", false)
		add(tuning.Around, round, "twice as many clients", false, "engine.memtable_size=64MiB")
	}
	o := s.Outcome()
	o.Settings = "engine:\n    memtable_size: 64MiB\n"
	return o
}

func TestTuningPage(t *testing.T) {
	var page bytes.Buffer
	if err := TuningHTML(&page, syntheticTuning()); err != nil {
		t.Fatal(err)
	}
	text := body(t, page.Bytes())
	golden(t, "tuning.html", text)
	if bytes.Count(page.Bytes(), []byte("</script>")) != 3 || bytes.Contains(text, []byte("<img")) {
		t.Error("text of a study is part of the page's code")
	}
	drawn := data[drawnTuning](t, page.Bytes())
	if len(drawn.Knobs) != 2 || len(drawn.Front) == 0 {
		t.Fatalf("drawn: %+v", drawn)
	}
	size := drawn.Knobs[0]
	if len(size.Values) != 4 || size.Default != 2 || size.Ratios[2] != 1 || !(size.Low[0] < 0.7 && size.High[0] > 0.7) {
		t.Errorf("the curve of the memtable: %+v", size)
	}
	chosen := 0
	for _, c := range drawn.Front {
		if c.Chosen {
			chosen++
		}
	}
	if chosen != 1 {
		t.Errorf("%d chosen configurations on the front, want 1: %+v", chosen, drawn.Front)
	}
}

// A study that has hardly begun has a page, too.
func TestTuningPageOfLittle(t *testing.T) {
	o := syntheticTuning()
	for _, n := range []int{0, 1, 2} {
		s := tuning.Study{Plan: o.Plan, Trials: []tuning.StudyTrial{{Phase: tuning.Curves}, {Phase: tuning.Curves,
			Set: []string{"engine.memtable_size=4MiB"}, Failure: "no"}}[:n]}
		var page bytes.Buffer
		if err := TuningHTML(&page, s.Outcome()); err != nil {
			t.Errorf("%d trials: %v", n, err)
		}
	}
}
