package tune

import (
	"flag"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aclements/go-moremath/stats"

	"neokv.dev/results/compare"
	"neokv.dev/results/tuning"
)

// studies is how many studies each simulation has; 0 takes its usual number.
var studies = flag.Int("studies", 0, "how many studies each simulation has")

func count(usual int) int {
	if *studies > 0 {
		return *studies
	}
	return usual
}

// noises are what machines do to the logarithm of throughput, as a source of their random numbers draws it.
var noises = map[string]func(*rand.Rand) func() float64{
	"normal": func(r *rand.Rand) func() float64 { return func() float64 { return 0.05 * r.NormFloat64() } },
	"skewed": func(r *rand.Rand) func() float64 { return func() float64 { return -0.05 * r.ExpFloat64() } },
	"bimodal": func(r *rand.Rand) func() float64 { // one trial in seven meets a neighbour
		return func() float64 { return 0.02*r.NormFloat64() - 0.3*math.Floor(r.Float64()*7/6) }
	},
	"drifting": func(r *rand.Rand) func() float64 { // and changes for good now and then
		at := 0.0
		return func() float64 {
			at += 0.02 * r.NormFloat64()
			if r.IntN(50) == 0 {
				at += 0.2 * r.NormFloat64()
			}
			return at + 0.02*r.NormFloat64()
		}
	},
}

// curves returns the curves of a study in virtual time.
func curves(t *testing.T, f *fake, plan tuning.StudyPlan) *tuning.Study {
	s := Tuner{Runner: f, Keep: func(*tuning.StudyTrial) error { return nil }}
	s.study, s.random = tuning.Study{Plan: plan}, rand.New(rand.NewPCG(plan.Seed, 1))
	synctest.Test(t, func(t *testing.T) {
		if err := s.curves(t.Context()); err != nil {
			t.Fatal(err)
		}
	})
	return &s.study
}

// planted is a machine on which some values of testPlan's knobs change throughput by a factor.
func planted(seed uint64, noise func(*rand.Rand) func() float64, factors map[string]float64) *fake {
	random := rand.New(rand.NewPCG(seed, 7))
	return &fake{luck: noise(random), effect: func(set map[string]string) (throughput, p99 float64, err error) {
		throughput = 10000
		for name, value := range set {
			if f, ok := factors[name+"="+value]; ok {
				throughput *= f
			}
		}
		return throughput, 1000, nil
	}}
}

// TestNullStudies: where nothing has an effect, at most one study in 20 calls a knob measurable, whatever the noise is
// like. So it is with the values without an effect beside one that has a large one.
func TestNullStudies(t *testing.T) {
	for name, noise := range noises {
		for _, x := range []struct {
			what    string
			factors map[string]float64
			studies int
		}{{"nothing", nil, 100}, {"a cliff", map[string]float64{"size=1": 0.5}, 25}} {
			wrong, found, n := 0, 0, count(x.studies)
			for seed := range uint64(n) {
				plan := testPlan()
				plan.Seed, plan.Budget = seed, 9*time.Minute
				anything := false
				for _, e := range curves(t, planted(seed, noise, x.factors), plan).Effects() {
					for _, l := range e.Levels {
						switch {
						case l.Default || !l.Ratio.ExcludesOne():
						case x.factors[e.Knob.Setting+"="+l.Value] != 0:
							found++
						default:
							anything = true
						}
					}
				}
				if anything {
					wrong++
				}
			}
			t.Logf("%s noise, %s to find: %d of %d studies call a value measurable that is not (at most %.1f %%)", name,
				x.what, wrong, n, 100*compare.AtMost(wrong, n))
			if wrong > n/20 || found < n*len(x.factors)*9/10 {
				t.Errorf("%s noise, %s to find: %d of %d wrong, %d found", name, x.what, wrong, n, found)
			}
		}
	}
}

// TestPower: a gain of 10 % is found and confirmed, by four of five studies over all noises (docs/tuning.md).
func TestPower(t *testing.T) {
	all, n := 0, count(5)
	for name, noise := range noises {
		confirmed, measurable, printed := 0, 0, 0.0
		for seed := range uint64(n) {
			plan := testPlan()
			plan.Seed, plan.Budget = seed, 9*time.Minute
			study, err := run(t, planted(seed, noise, map[string]float64{"size=16": 1.1}), plan, nil)
			if err != nil {
				t.Fatal(err)
			}
			if study.Effects()[0].Levels[4].Ratio.ExcludesOne() {
				measurable++
			}
			if d := study.Compare(tuning.Gain, ""); d.Rounds > 0 && tuning.Name(study.Winner()) == "size=16" {
				confirmed++
				printed += d.Row("throughput").Ratio.Center
			}
		}
		t.Logf("%s noise: of %d studies %d confirm a gain of 10 %%, printed as %+.1f %% on average; the knob is measurable "+
			"in %d", name, n, confirmed, 100*(printed/float64(confirmed)-1), measurable)
		all += confirmed
	}
	if all < len(noises)*n*6/10 {
		t.Errorf("%d of %d studies confirm a gain of 10 %%", all, len(noises)*n)
	}
}

// TestGainWithoutLuck: the gain that is printed is the true one on average, also of those studies alone that confirm
// it. The rounds that confirm it show more, since without luck they would not.
func TestGainWithoutLuck(t *testing.T) {
	const gain, sd = 0.03, 0.02
	noise := func(r *rand.Rand) func() float64 { return func() float64 { return sd * r.NormFloat64() } }
	var confirming, printed []float64
	n := count(100)
	for seed := range uint64(n) {
		f := planted(seed, noise, map[string]float64{"size=16": 1 + gain})
		s := Tuner{Runner: f, Keep: func(*tuning.StudyTrial) error { return nil }}
		s.study.Plan, s.random = testPlan(), rand.New(rand.NewPCG(seed, 1))
		synctest.Test(t, func(t *testing.T) {
			for _, phase := range []tuning.Phase{tuning.Confirm, tuning.Gain} {
				err := s.duel(t.Context(), phase, Variant{}, []string{"size=16"}, fewestConfirms, fewestConfirms,
					phase == tuning.Confirm)
				if err != nil {
					t.Fatal(err)
				}
			}
		})
		if s.study.Confirmed() {
			ratio := func(phase tuning.Phase) float64 { return s.study.Compare(phase, "").Row("throughput").Ratio.Center - 1 }
			confirming, printed = append(confirming, ratio(tuning.Confirm)), append(printed, ratio(tuning.Gain))
		}
	}
	lucky, mean := stats.Mean(confirming), stats.Mean(printed)
	off := 3 * stats.StdDev(printed) / math.Sqrt(float64(len(printed)))
	t.Logf("%d of %d studies confirm %.1f %%: it shows %.2f %% in the rounds that confirm it, and is printed as %.2f %%",
		len(printed), n, 100*gain, 100*lucky, 100*mean)
	if math.Abs(mean-gain) > off || lucky < gain+off {
		t.Errorf("printed as %.4f, want %.4f within %.4f; %.4f in the rounds that confirm it", mean, gain, off, lucky)
	}
}

// TestSameSeed: the same seed and the same measurements make the same study, also where the estimator chooses.
func TestSameSeed(t *testing.T) {
	plan := largePlan()
	var first *tuning.Study
	for range 3 {
		study, err := run(t, planted(1, noises["normal"], map[string]float64{"a=8": 1.2, "b=16": 1.2, "c=1": 1.2}), plan, nil)
		if err != nil {
			t.Fatal(err)
		}
		if first == nil {
			first = study
			continue
		}
		for i := range study.Trials {
			if a, b := first.Trials[i], study.Trials[i]; tuning.Name(a.Set) != tuning.Name(b.Set) {
				t.Fatalf("trial %d of %s is of %s, and of %s in the second study", i, a.Phase, tuning.Name(a.Set),
					tuning.Name(b.Set))
			}
		}
		if !reflect.DeepEqual(study, first) {
			t.Error("two studies differ in their figures")
		}
	}
	if !slices.ContainsFunc(first.Trials, func(t tuning.StudyTrial) bool { return t.Phase == tuning.Search }) {
		t.Error("the estimator had nothing to choose")
	}
}

// TestRoundsAreFixed: how many rounds the curves have follows from the plan, not from what they find; and a study with
// the least budget stays within it.
func TestRoundsAreFixed(t *testing.T) {
	for name, factors := range map[string]map[string]float64{"nothing": nil, "much": {"size=16": 2, "bits=0": 1.5}} {
		for _, spare := range []time.Duration{0, 10 * time.Minute} {
			plan := testPlan()
			_, least := FewestTrials(&plan)
			plan.Budget = least + spare
			study, err := run(t, planted(1, noises["normal"], factors), plan, nil)
			if err != nil {
				t.Fatal(err)
			}
			rounds := 0
			for _, x := range study.Trials {
				if x.Phase == tuning.Curves {
					rounds = max(rounds, x.Round+1)
				}
			}
			if want := CurveRounds(&plan); rounds != want || spare > 0 == (want == fewestRounds(8)) {
				t.Errorf("%s to find in %s: %d rounds, want %d", name, plan.Budget, rounds, want)
			}
			if took := study.Outcome().Took; took > plan.Budget {
				t.Errorf("%s to find: %s of %s", name, took, plan.Budget)
			}
		}
	}
	for values, want := range map[int]int{1: 7, 2: 5, 3: 4, 5: 4, 8: 3, 40: 3} {
		if got := fewestRounds(values); got != want {
			t.Errorf("fewestRounds(%d) = %d; want %d", values, got, want)
		}
	}
}
