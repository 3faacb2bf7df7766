package tune

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/tuning"
)

// fake is a machine on which throughput and p99 follow from the settings, with noise that drifts. A trial takes as long
// as a real one, in virtual time.
type fake struct {
	random *rand.Rand
	noise  float64
	effect func(set map[string]string) (throughput, p99 float64, err error)
	drift  float64
	luck   func() float64 // of the logarithm of throughput, in place of noise and drift; may be nil
	stop   int            // the trial, from 1, in which the user presses Ctrl-C; 0 for none
	cancel context.CancelFunc
	trials int
}

func (f *fake) Run(ctx context.Context, v Variant, set []string, _ uint64, t *tuning.StudyTrial) error {
	time.Sleep(5 * time.Second)
	if f.trials++; f.trials == f.stop {
		f.cancel()
		return ctx.Err()
	}
	values := map[string]string{}
	for _, x := range set {
		name, value, _ := strings.Cut(x, "=")
		values[name] = value
	}
	throughput, p99, err := f.effect(values)
	if err != nil {
		return err
	}
	if f.luck == nil {
		f.luck = func() float64 {
			f.drift = 0.95*f.drift + 0.02*f.random.NormFloat64()
			return f.drift + f.noise*f.random.NormFloat64()
		}
	}
	luck := math.Exp(f.luck())
	if v.Load.Rate == "" {
		t.Figures = append(t.Figures, results.Figure{Name: "throughput", Unit: "ops/s", Kind: results.Timed,
			Better: results.Higher, Value: throughput * luck})
	}
	t.Figures = append(t.Figures, results.Figure{Name: "p99", Unit: "us", Kind: results.Timed, Better: results.Lower,
		Value: p99 / luck})
	return nil
}

// number returns the value of a setting, or its default.
func number(set map[string]string, name string, otherwise float64) float64 {
	if text, ok := set[name]; ok {
		n, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic(err)
		}
		return n
	}
	return otherwise
}

func testPlan() tuning.StudyPlan {
	return tuning.StudyPlan{
		Format: 1, Profile: "default", Budget: 20 * time.Minute, Block: 3 * time.Second, Warmup: time.Second, Seed: 7,
		Load:      tuning.Load{Workload: "set", Clients: 50, Pipeline: 1, Records: 1000, Elements: 1, ValueSize: 100},
		Objective: tuning.Objective{Figure: "throughput", Better: results.Higher},
		Knobs: []tuning.Knob{
			{Setting: "size", Values: []string{"1", "2", "4", "8", "16", "32"}, Default: "8", Ordered: true},
			{Setting: "bits", Values: []string{"0", "5", "10"}, Default: "5", Ordered: true},
			{Setting: "kind", Values: []string{"red", "green"}, Default: "green"},
		},
	}
}

// largePlan has more combinations than there is time for.
func largePlan() tuning.StudyPlan {
	plan := testPlan()
	plan.Knobs, plan.Budget = nil, time.Hour
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		plan.Knobs = append(plan.Knobs, tuning.Knob{Setting: name, Values: []string{"1", "2", "4", "8", "16", "32"},
			Default: "4", Ordered: true})
	}
	return plan
}

// run runs a study in virtual time.
func run(t *testing.T, f *fake, plan tuning.StudyPlan, recorded []tuning.StudyTrial) (study *tuning.Study, err error) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		f.cancel = cancel
		s := Tuner{Runner: f, Keep: func(*tuning.StudyTrial) error { return nil }, Near: func() ([]Variant, error) {
			return []Variant{{"twice as many clients", plan.Load}}, nil
		}}
		study, err = s.Run(ctx, plan, recorded)
	})
	return study, err
}

// Throughput grows with size up to 16, and only there less bits help. kind does nothing.
func hill(set map[string]string) (throughput, p99 float64, err error) {
	size, bits := number(set, "size", 8), number(set, "bits", 5)
	throughput = 10000 * (1 - 0.06*math.Abs(math.Log2(size)-4))
	if size >= 16 {
		throughput *= 1 + 0.02*(5-bits)
	} else {
		throughput *= 1 - 0.01*(5-bits)
	}
	return throughput, 1000 * size, nil
}

func TestSearchFindsTheBest(t *testing.T) {
	for seed := range uint64(5) {
		plan := testPlan()
		plan.Seed, plan.Around = seed, true
		study, err := run(t, &fake{random: rand.New(rand.NewPCG(seed, 0)), noise: 0.02, effect: hill}, plan, nil)
		if err != nil {
			t.Fatal(err)
		}
		o := study.Outcome()
		if !o.Confirmed || tuning.Name(o.Winner) != "size=16 bits=0" {
			t.Errorf("seed %d: confirmed %v, winner %q; want size=16 bits=0", seed, o.Confirmed, o.Winner)
		}
		for i, want := range []bool{true, true, false} {
			if e := o.Effects[i]; e.Measurable != want {
				t.Errorf("seed %d: %s; measurable %v, want %v", seed, e.Sentence("throughput"), e.Measurable, want)
			}
		}
		if row := o.Confirmation.Row("throughput"); math.Abs(row.Ratio.Center-1/0.94*1.1) > 0.04 {
			t.Errorf("seed %d: confirmed %v, want about %.3f", seed, row.Ratio, 1/0.94*1.1)
		}
		if o.Took > plan.Budget+2*time.Minute {
			t.Errorf("seed %d: took %s of %s", seed, o.Took, plan.Budget)
		}
		if len(o.Holds) != 2 || len(o.Around) != 1 || o.Worst() == nil {
			t.Errorf("seed %d: held %v, around %v", seed, o.Holds, o.Around)
		}
	}
}

// A flat machine has no winner, and no knob with an effect. Of many such studies at most one in twenty may say that a
// winner is confirmed.
func TestNothingBeatsTheDefault(t *testing.T) {
	confirmed, knobs := 0, 0
	const studies = 30
	for seed := range uint64(studies) {
		plan := testPlan()
		plan.Seed, plan.Budget = seed, 9*time.Minute
		flat := func(map[string]string) (float64, float64, error) { return 10000, 1000, nil }
		study, err := run(t, &fake{random: rand.New(rand.NewPCG(seed, 9)), noise: 0.05, effect: flat}, plan, nil)
		if err != nil {
			t.Fatal(err)
		}
		if study.Compare(tuning.Gain, "").Rounds > 0 { // only a winner that is confirmed gets there
			confirmed++
		}
		for _, e := range study.Effects() {
			if e.Measurable {
				knobs++
			}
		}
	}
	if t.Logf("%d of %d studies confirmed a winner, %d of %d knobs had an effect", confirmed, studies, knobs,
		3*studies); confirmed > 2 || knobs > 4 {
		t.Errorf("%d of %d studies confirmed a winner, %d of %d knobs had an effect; want one in twenty at most",
			confirmed, studies, knobs, 3*studies)
	}
}

// The winner holds the subjects, also where a configuration that does not is faster.
func TestSubjects(t *testing.T) {
	plan := testPlan()
	plan.Subjects = []tuning.Subject{{Text: "p99<12ms", Figure: "p99", Below: true, Limit: 12000}}
	study, err := run(t, &fake{random: rand.New(rand.NewPCG(3, 0)), noise: 0.01, effect: hill}, plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := study.Outcome()
	if tuning.Name(o.Winner) != "bits=10" || !o.Confirmed {
		t.Errorf("winner %q, confirmed %v; want bits=10, since size=16 has a p99 of 16 ms", o.Winner, o.Confirmed)
	}
	for _, l := range o.Effects[0].Levels {
		if breaks := number(map[string]string{"v": l.Value}, "v", 0) > 8; breaks != (len(l.Breaks) > 0) {
			t.Errorf("size %s breaks %q", l.Value, l.Breaks)
		}
	}
}

// A setting that cannot boot is a result of its own. It is tried once on its own and does not end the search.
func TestFailures(t *testing.T) {
	plan := testPlan()
	study, err := run(t, &fake{random: rand.New(rand.NewPCG(4, 0)), noise: 0.01,
		effect: func(set map[string]string) (float64, float64, error) {
			if number(set, "size", 8) == 32 {
				return 0, 0, errors.New("cannot boot")
			}
			return hill(set)
		}}, plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := study.Outcome()
	if !o.Confirmed || o.Failed == 0 {
		t.Errorf("confirmed %v, %d failed", o.Confirmed, o.Failed)
	}
	if l := o.Effects[0].Levels[5]; l.Value != "32" || l.Failure != "cannot boot" || l.Ratio != nil {
		t.Errorf("level %+v; want the failure of 32", l)
	}
	study, err = run(t, &fake{random: rand.New(rand.NewPCG(4, 0)),
		effect: func(map[string]string) (float64, float64, error) { return 0, 0, errors.New("cannot boot") }}, plan,
		nil)
	if err == nil || err.Error() != "the default: cannot boot" || len(study.Trials) != 1 {
		t.Errorf("a default that fails: %v after %d trials", err, len(study.Trials))
	}
}

// A study that goes on takes the decisions that it would have taken, and measures nothing twice.
func TestResume(t *testing.T) {
	plan := testPlan()
	for _, stop := range []int{1, 2, 20, 60, 110, 150} {
		random := rand.New(rand.NewPCG(5, 0))
		f := &fake{random: random, noise: 0.02, effect: hill, stop: stop}
		first, err := run(t, f, plan, nil)
		if !errors.Is(err, context.Canceled) || len(first.Trials) != stop-1 {
			t.Fatalf("stopped at %d: %v after %d trials", stop, err, len(first.Trials))
		}
		f.stop = 0
		second, err := run(t, f, plan, first.Trials)
		if err != nil {
			t.Fatalf("stopped at %d: %v", stop, err)
		}
		if stop > 1 && !reflect.DeepEqual(second.Trials[:stop-1], first.Trials) || f.trials != len(second.Trials)+1 {
			t.Errorf("stopped at %d: %d trials measured for %d", stop, f.trials, len(second.Trials))
		}
		if !second.Outcome().Confirmed {
			t.Errorf("stopped at %d: not confirmed", stop)
		}
	}
	done, err := run(t, &fake{random: rand.New(rand.NewPCG(6, 0)), effect: hill}, plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{}
	again, err := run(t, f, plan, done.Trials)
	if err != nil || f.trials != 0 || !reflect.DeepEqual(again.Trials, done.Trials) {
		t.Errorf("a study that is done: %v, %d new trials", err, f.trials)
	}
	other := plan
	other.Seed++
	if _, err := run(t, f, other, done.Trials); err == nil || !strings.Contains(err.Error(), "trial ") {
		t.Errorf("trials of another plan: %v", err)
	}
}

// Where there is no time for all combinations the estimator finds one that is about as good as the best.
func TestLargeSpaces(t *testing.T) {
	plan := largePlan()
	hill := func(set map[string]string) (throughput, p99 float64, err error) {
		throughput = 10000
		for i, k := range plan.Knobs {
			throughput *= 1 - 0.03*math.Abs(math.Log2(number(set, k.Setting, 4))-float64(i+1))
		}
		return throughput, 1000, nil
	}
	study, err := run(t, &fake{random: rand.New(rand.NewPCG(8, 0)), noise: 0.02, effect: hill}, plan, nil)
	if err != nil {
		t.Fatal(err)
	}
	o := study.Outcome()
	values := map[string]string{}
	for _, x := range o.Winner {
		name, value, _ := strings.Cut(x, "=")
		values[name] = value
	}
	best, _, _ := hill(map[string]string{"a": "2", "b": "4", "c": "8", "d": "16", "e": "32"})
	if got, _, _ := hill(values); !o.Confirmed || got < 0.95*best {
		t.Errorf("confirmed %v, %q with %.0f; want one with about %.0f", o.Confirmed, o.Winner, got, best)
	}
}
