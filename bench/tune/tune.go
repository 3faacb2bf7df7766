// Package tune searches settings that make a load run better, and says how sure it is. Every trial starts from the same
// loaded data with processes of its own, and takes turns with trials of the default, since the machine changes with
// time.
//
// A study has phases. First each knob changes on its own, over all its values, in a number of rounds that the plan
// fixes: these curves say what a knob does. Then a Tree-structured Parzen Estimator (Bergstra et al., NIPS 2011) varies
// those with a measurable effect together. The best few run again, and the worst of them drops out twice (successive
// halving, Jamieson and Talwalkar, AISTATS 2016). The winner is compared with the default on seeds that nothing has
// used before. If it is better, further rounds say by how much, and others how it does under other circumstances.
//
// No phase ends because of what it has found, only because of the plan and the clock. All chance comes from the seed of
// the plan, so the same measurements make the same study.
package tune

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/compare"
	"neokv.dev/results/tuning"
)

// Runner makes a trial. An error that ctx did not cause becomes the failure of the trial.
type Runner interface {
	Run(ctx context.Context, load Variant, set []string, seed uint64, t *tuning.StudyTrial) error
}

// Variant is a load that differs from that of the plan in some way.
type Variant struct {
	Name string // empty for the load of the plan
	Load tuning.Load
}

// Tuner runs a plan.
type Tuner struct {
	Runner Runner
	// Keep gets each new trial. Its error ends the study.
	Keep func(*tuning.StudyTrial) error
	// Progress says what comes next, and how much of the budget is left. It may be nil.
	Progress func(what string, left time.Duration)
	// Near returns loads near that of the plan, for tuning.Around.
	Near func() ([]Variant, error)

	study    tuning.Study
	recorded []tuning.StudyTrial // trials of an earlier sitting, to be taken in place of new ones
	spent    time.Duration
	random   *rand.Rand
	rounds   uint64 // so many seeds have been used
}

// The phases, with the shares of the budget that they have used up when they end, without and with tuning.Around.
var (
	phases = []tuning.Phase{tuning.Curves, tuning.Search, tuning.Race, tuning.Confirm, tuning.Gain, tuning.Hold,
		tuning.Around}
	shares = [][2]float64{{0.45, 0.36}, {0.57, 0.46}, {0.64, 0.52}, {0.77, 0.63}, {0.87, 0.72}, {1, 0.83}, {1, 1}}
)

const (
	fewestCurveRounds  = 3
	fewestSearchTrials = tuning.DefaultEvery
	finalists          = 3
	fewestConfirms     = compare.FewestRounds
	mostConfirms       = 20
	fewestHolds        = 3
	mostHolds          = 8
	// prepareTime is about what a trial takes beside its warm-up and its measured part.
	prepareTime = 1500 * time.Millisecond
)

// FewestTrials returns how many trials a study of a plan has at least, if it gets through all phases but tuning.Around,
// and how long they take.
func FewestTrials(p *tuning.StudyPlan) (trials int, took time.Duration) {
	for _, n := range fewestTrials(p) {
		trials += n
	}
	return trials, usualTime(p) * time.Duration(trials)
}

// fewestTrials returns how many trials each phase has at least.
func fewestTrials(p *tuning.StudyPlan) map[tuning.Phase]int {
	values := values(p)
	out := map[tuning.Phase]int{tuning.Curves: fewestRounds(values) * withDefaults(values),
		tuning.Confirm: 3 * fewestConfirms, tuning.Gain: 2 * fewestConfirms, tuning.Hold: 2 * 2 * fewestHolds}
	if len(p.Knobs) > 1 {
		out[tuning.Search] = withDefaults(fewestSearchTrials) + 1
	}
	for n := min(values, finalists); n > 1; n-- {
		out[tuning.Race] += 2 * withDefaults(n)
	}
	return out
}

// CurveRounds returns how many rounds the curves of a plan have: as many as its budget has time for, by the usual time
// of a trial. Neither what trials measure nor how long they take changes it.
func CurveRounds(p *tuning.StudyPlan) int {
	values := values(p)
	return max(fewestRounds(values), int(end(p, tuning.Curves, usualTime(p))/usualTime(p))/withDefaults(values))
}

// fewestRounds returns how many rounds it takes to find an effect. Chance puts one of so many values into the place
// where the machine is fastest, or slowest, in each of n rounds with a probability of 2 * values * place^n.
func fewestRounds(values int) int {
	hand := float64(min(values, tuning.DefaultEvery))
	place := hand / (hand + 1) / float64(values)
	n := math.Log((1-tuning.Level)/float64(2*values)) / math.Log(place)
	return max(fewestCurveRounds, int(math.Ceil(n)))
}

// values returns how many values the knobs of a plan have beside their defaults.
func values(p *tuning.StudyPlan) (n int) {
	for _, k := range p.Knobs {
		n += len(k.Values) - 1
	}
	return n
}

// withDefaults returns how many trials a round of n configurations has.
func withDefaults(n int) int { return n + (n+tuning.DefaultEvery-1)/tuning.DefaultEvery }

// usualTime returns how long a trial takes, as a rule.
func usualTime(p *tuning.StudyPlan) time.Duration { return p.Block + p.Warmup + prepareTime }

// end returns how much of the budget may have been used when a phase ends: its share, and so much that later phases can
// have the trials that they have at least, each of which takes some time.
func end(p *tuning.StudyPlan, phase tuning.Phase, perTrial time.Duration) time.Duration {
	at := slices.Index(phases, phase)
	share := shares[at][0]
	if p.Around {
		share = shares[at][1]
	}
	later, fewest := 0, fewestTrials(p)
	for _, phase := range phases[at+1:] {
		later += fewest[phase]
	}
	return min(time.Duration(share*float64(p.Budget)), p.Budget-perTrial*time.Duration(later))
}

// Run makes the trials of a plan. It first takes those of an earlier sitting: the same plan takes the same decisions,
// so they are the first ones. The study is worth showing also if Run returns an error.
func (s *Tuner) Run(ctx context.Context, plan tuning.StudyPlan, recorded []tuning.StudyTrial) (*tuning.Study, error) {
	s.study, s.recorded = tuning.Study{Plan: plan}, recorded
	s.random = rand.New(rand.NewPCG(plan.Seed, 1))
	err := s.phases(ctx)
	if s.study.Done = err == nil; err == nil && len(s.recorded) > 0 {
		err = fmt.Errorf("the file has %d trials too many for its plan", len(s.recorded))
	}
	return &s.study, err
}

func (s *Tuner) phases(ctx context.Context) error {
	if err := s.curves(ctx); err != nil {
		return err
	}
	var active []tuning.Knob
	effects := s.study.Effects()
	for _, e := range effects {
		if e.Measurable {
			active = append(active, e.Knob)
		}
	}
	if len(active) > 1 {
		if err := s.search(ctx, active); err != nil {
			return err
		}
	}
	// Where no knob has a measurable effect the best value may still be better: the confirmation asks about one
	// configuration, where the curves ask about all values at once.
	winner, err := s.race(ctx, s.candidates(effects))
	if err != nil || winner == nil {
		return err
	}
	if err := s.duel(ctx, tuning.Confirm, Variant{Load: s.study.Plan.Load}, winner, fewestConfirms, mostConfirms,
		true); err != nil {
		return err
	}
	if !s.study.Confirmed() {
		return nil
	}
	if err := s.duel(ctx, tuning.Gain, Variant{Load: s.study.Plan.Load}, winner, fewestConfirms, mostConfirms,
		false); err != nil {
		return err
	}
	return s.elsewhere(ctx, winner)
}

// left returns how much of the budget is left, estimated for what a phase may use.
func (s *Tuner) left(phase tuning.Phase) time.Duration {
	return end(&s.study.Plan, phase, s.perTrial()) - s.spent
}

// perTrial returns how long a trial has taken so far.
func (s *Tuner) perTrial() time.Duration {
	if n := len(s.study.Trials); n > 0 {
		return s.spent / time.Duration(n)
	}
	return usualTime(&s.study.Plan)
}

// seed returns a seed that has not been used before.
func (s *Tuner) seed() uint64 {
	s.rounds++
	return s.study.Plan.Seed + s.rounds
}

// try makes a trial, or takes a recorded one. The failure of a configuration is no error, but that of the default is.
func (s *Tuner) try(ctx context.Context, t tuning.StudyTrial, v Variant) (*tuning.StudyTrial, error) {
	t.Load = v.Name
	if len(s.recorded) > 0 {
		old := s.recorded[0]
		if old.Phase != t.Phase || old.Round != t.Round || old.Load != t.Load || !slices.Equal(old.Set, t.Set) ||
			old.Again != t.Again || old.Seed != t.Seed {
			return nil, fmt.Errorf("trial %d of the file is %s of %q in round %d; its plan has %s of %q in round %d there",
				len(s.study.Trials)+1, old.Phase, tuning.Name(old.Set), old.Round, t.Phase, tuning.Name(t.Set), t.Round)
		}
		s.recorded = s.recorded[1:]
		t = old
	} else {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if s.Progress != nil {
			what := fmt.Sprintf("%s, round %d", t.Phase, t.Round+1)
			if t.Phase == tuning.Curves {
				what += fmt.Sprintf(" of %d", CurveRounds(&s.study.Plan))
			}
			what += ", " + tuning.Name(t.Set)
			if v.Name != "" {
				what += ", " + v.Name
			}
			s.Progress(what, max(0, s.study.Plan.Budget-s.spent))
		}
		t.Started = time.Now()
		err := s.Runner.Run(ctx, v, t.Set, t.Seed, &t)
		t.Took = time.Since(t.Started)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if err != nil {
			t.Figures, t.Failure = nil, err.Error()
		}
		if err := s.Keep(&t); err != nil {
			return nil, err
		}
	}
	s.spent += t.Took
	s.study.Trials = append(s.study.Trials, t)
	if t.Failure != "" && t.Default() && t.Load == "" {
		return nil, fmt.Errorf("the default: %s", t.Failure)
	}
	return &s.study.Trials[len(s.study.Trials)-1], nil
}

// round makes a trial of each configuration, in a random order, with the same operations and with trials of the default
// between them.
func (s *Tuner) round(ctx context.Context, phase tuning.Phase, number int, sets [][]string) error {
	seed := s.seed()
	for _, set := range tuning.Deal(s.random, sets, nil) {
		if err := s.one(ctx, phase, number, set, seed); err != nil {
			return err
		}
	}
	return nil
}

func (s *Tuner) one(ctx context.Context, phase tuning.Phase, number int, set []string, seed uint64) error {
	_, err := s.try(ctx, tuning.StudyTrial{Phase: phase, Round: number, Set: set, Seed: seed},
		Variant{Load: s.study.Plan.Load})
	return err
}

// curves tries every value of every knob on its own, round after round. A value that fails is not tried again.
func (s *Tuner) curves(ctx context.Context) error {
	for number := range CurveRounds(&s.study.Plan) {
		var sets [][]string
		for _, k := range s.study.Plan.Knobs {
			for _, value := range k.Values {
				if set := []string{k.Setting + "=" + value}; value != k.Default && !s.failed(set) {
					sets = append(sets, set)
				}
			}
		}
		if err := s.round(ctx, tuning.Curves, number, sets); err != nil {
			return err
		}
	}
	s.study.Curved = true
	return nil
}

func (s *Tuner) failed(set []string) bool {
	return slices.ContainsFunc(s.study.Trials, func(t tuning.StudyTrial) bool {
		return t.Failure != "" && slices.Equal(t.Set, set)
	})
}

// search varies some knobs together. What the curves have found counts as its first trials.
func (s *Tuner) search(ctx context.Context, knobs []tuning.Knob) error {
	e := estimator{knobs: knobs, random: s.random}
	for i := range s.study.Trials {
		if t := &s.study.Trials[i]; !t.Default() && e.knows(t.Set) {
			e.tell(t.Set, s.worth(t, s.base()))
		}
	}
	all := 1
	for _, k := range knobs {
		all *= len(k.Values)
	}
	// Where there is time for all combinations, each has a trial before the estimator says which to repeat.
	var grid [][]string
	available := int(s.left(tuning.Search) / s.perTrial() * tuning.DefaultEvery / (tuning.DefaultEvery + 1))
	if all <= available {
		grid = combinations(knobs)
		s.random.Shuffle(len(grid), func(i, k int) { grid[i], grid[k] = grid[k], grid[i] })
	}
	tried := map[string]int{}
	seed := s.seed()
	const withNeighbours = 3 // a trial with the defaults before it and behind
	for number := 0; number < fewestSearchTrials ||
		number < 2*all && s.left(tuning.Search) > withNeighbours*s.perTrial(); number++ {
		if number%tuning.DefaultEvery == 0 {
			if err := s.one(ctx, tuning.Search, number, nil, seed); err != nil {
				return err
			}
			seed = s.seed()
		}
		var set []string
		if len(grid) > 0 {
			set, grid = grid[0], grid[1:]
		} else if set = e.ask(); len(set) == 0 || tried[tuning.Name(set)] >= 2 && len(tried) < all/2 {
			set = s.anySet(knobs) // it insists on what is known
		}
		tried[tuning.Name(set)]++
		t, err := s.try(ctx, tuning.StudyTrial{Phase: tuning.Search, Round: number, Set: set, Seed: seed},
			Variant{Load: s.study.Plan.Load})
		if err != nil {
			return err
		}
		e.tell(set, s.worth(t, s.base()))
	}
	return s.one(ctx, tuning.Search, 0, nil, seed)
}

// combinations returns all configurations in which two knobs or more differ from the default. The curves have the
// others.
func combinations(knobs []tuning.Knob) (out [][]string) {
	all := [][]string{nil}
	for _, k := range knobs {
		for _, set := range all {
			for _, value := range k.Values {
				if value != k.Default {
					all = append(all, append(slices.Clone(set), k.Setting+"="+value))
				}
			}
		}
	}
	for _, set := range all {
		if len(set) > 1 {
			out = append(out, set)
		}
	}
	return out
}

// anySet returns a random configuration other than the default.
func (s *Tuner) anySet(knobs []tuning.Knob) []string {
	for {
		var set []string
		for _, k := range knobs {
			if value := k.Values[s.random.IntN(len(k.Values))]; value != k.Default {
				set = append(set, k.Setting+"="+value)
			}
		}
		if set != nil {
			return set
		}
	}
}

// base returns the objective of the last trial of the default.
func (s *Tuner) base() float64 {
	for _, t := range slices.Backward(s.study.Trials) {
		if value, ok := t.Figure(s.study.Plan.Objective.Figure); ok && t.Default() && t.Load == "" {
			return value
		}
	}
	return 0
}

// worth returns what the estimator is to make as large as possible: the logarithm of how much better a trial is than
// the default. A trial that failed, or breaks a subject, is worth less than any that does not.
func (s *Tuner) worth(t *tuning.StudyTrial, base float64) float64 {
	const failed, broken = -20, -5
	value, ok := t.Figure(s.study.Plan.Objective.Figure)
	if !ok || value <= 0 || base <= 0 {
		return failed
	}
	worth := s.study.Plan.Objective.Gain(math.Log(value / base))
	for _, c := range s.study.Plan.Subjects {
		if x, ok := t.Figure(c.Figure); ok && !c.Holds(x) {
			beyond := math.Abs(math.Log(max(x, 1e-9) / max(c.Limit, 1e-9)))
			worth = min(worth, 0) + broken - min(beyond, 5)
		}
	}
	return worth
}

// candidates returns what the race begins with: the best value of each knob together, and the best of all trials, of
// those that look better than the default.
func (s *Tuner) candidates(effects []tuning.Effect) (sets [][]string) {
	add := func(set []string) {
		known := slices.ContainsFunc(sets, func(x []string) bool { return slices.Equal(x, set) })
		if len(set) > 0 && !known && len(sets) < finalists && !s.failed(set) {
			sets = append(sets, set)
		}
	}
	var together []string
	for _, e := range effects {
		best, gain := "", 0.0
		for _, l := range e.Levels {
			if l.Ratio == nil || l.Default || len(l.Breaks) > 0 || !l.Ratio.ExcludesOne() {
				continue
			}
			if g := s.study.Plan.Objective.Gain(math.Log(l.Ratio.Center)); g > gain {
				best, gain = l.Value, g
			}
		}
		if best != "" {
			together = append(together, e.Knob.Setting+"="+best)
		}
	}
	add(together)
	for _, c := range s.study.Ranking(tuning.Curves, tuning.Search) {
		if len(c.Breaks) == 0 && s.study.Plan.Objective.Gain(math.Log(c.Ratio)) > 0 {
			add(c.Set)
		}
	}
	return sets
}

// race runs the candidates again, and drops the worst after each two rounds. It returns the one that is left.
func (s *Tuner) race(ctx context.Context, sets [][]string) ([]string, error) {
	for number := 0; len(sets) > 1; number++ {
		if err := s.round(ctx, tuning.Race, number, sets); err != nil {
			return nil, err
		}
		if number%2 == 0 && s.left(tuning.Race) > 0 {
			continue
		}
		// The trials that made them candidates were their lucky ones, so those of the race alone count here.
		ranking := s.study.Ranking(tuning.Race)
		place := func(set []string) int {
			i := slices.IndexFunc(ranking, func(c tuning.Contender) bool { return slices.Equal(c.Set, set) })
			if i < 0 {
				return len(ranking)
			}
			return i
		}
		slices.SortStableFunc(sets, func(a, b []string) int { return place(a) - place(b) })
		sets = sets[:len(sets)-1]
	}
	if len(sets) == 0 {
		return nil, nil
	}
	return sets[0], nil
}

// duel runs the winner and the default in turn, each round with a seed of its own. again adds a second trial of the
// default to each round.
func (s *Tuner) duel(ctx context.Context, phase tuning.Phase, v Variant, winner []string, fewest, most int,
	again bool) error {
	for number := range most {
		arms := []tuning.StudyTrial{{}, {Set: winner}}
		if again {
			arms = append(arms, tuning.StudyTrial{Again: true})
		}
		if number >= fewest && s.left(phase) < s.perTrial()*time.Duration(len(arms)) {
			return nil
		}
		seed := s.seed()
		s.random.Shuffle(len(arms), func(i, k int) { arms[i], arms[k] = arms[k], arms[i] })
		for _, arm := range arms {
			arm.Phase, arm.Round, arm.Seed = phase, number, seed
			t, err := s.try(ctx, arm, v)
			if err != nil {
				return err
			}
			if t.Failure != "" {
				return nil // the study says so; other loads may go well
			}
		}
	}
	return nil
}

// elsewhere compares the winner with the default on more data, at a lower rate, and on loads near that of the plan.
func (s *Tuner) elsewhere(ctx context.Context, winner []string) error {
	load := s.study.Plan.Load
	more := load
	more.Records *= 4
	variants := []Variant{{"four times the records", more}}
	if slower, name, ok := s.slower(); ok {
		variants = append(variants, Variant{name, slower})
	}
	for i, v := range variants {
		half := mostHolds
		if i == 0 && len(variants) > 1 { // leave half of the time to the other
			half = int(min(mostHolds, max(fewestHolds, s.left(tuning.Hold)/2/(2*s.perTrial()))))
		}
		if err := s.duel(ctx, tuning.Hold, v, winner, fewestHolds, half, false); err != nil {
			return err
		}
	}
	if !s.study.Plan.Around || s.Near == nil {
		return nil
	}
	near, err := s.Near()
	if err != nil {
		return err
	}
	for i, v := range near {
		most := int(min(mostHolds, max(fewestHolds, s.left(tuning.Around)/time.Duration(len(near)-i)/(2*s.perTrial()))))
		if err := s.duel(ctx, tuning.Around, v, winner, fewestHolds, most, false); err != nil {
			return err
		}
	}
	return nil
}

// slower returns the load at four fifths of its rate. Of a closed loop that is the rate that the default reached.
func (s *Tuner) slower() (load tuning.Load, name string, ok bool) {
	load = s.study.Plan.Load
	var rates []float64
	for _, t := range s.study.Trials {
		if x, ok := t.Figure("throughput"); ok && t.Phase == tuning.Confirm && t.Default() {
			rates = append(rates, x)
		}
	}
	rate := 0.0
	if load.Rate == "" && len(rates) > 0 {
		rate = compare.NewEstimate(rates).Center
	} else if _, err := fmt.Sscanf(load.Rate, "%g", &rate); err != nil {
		return load, "", false // a ramp has no one rate
	}
	rate = math.Round(0.8 * rate)
	if rate < 1 {
		return load, "", false
	}
	load.Rate = fmt.Sprintf("%.0f", rate)
	return load, fmt.Sprintf("80 %% of the rate, %s/s", results.Count(int64(rate))), true
}
