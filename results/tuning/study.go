package tuning

import (
	"cmp"
	"math"
	"slices"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// Contender is a configuration with what its trials say.
type Contender struct {
	Set    []string `json:"set,omitempty"` // empty for the default
	Trials int      `json:"trials"`
	// Ratio is the objective against that of the default. The best of many ratios is best by luck, too, so it is for
	// choosing, and nothing prints it.
	Ratio  float64  `json:"-"`
	Breaks []string `json:"breaks,omitempty"` // subjects that it does not hold
	// Medians are those of its own trials.
	Medians []Median `json:"medians"`

	score float64
}

// Ranking returns all configurations with trials in some phases, without the default: those that hold the subjects
// first, the better ones before the others. One with few trials stands behind what its trials say, since the best of
// many is best by luck, too.
func (s *Study) Ranking(phases ...Phase) (out []Contender) {
	groups := grouped(s.observations(phases...))
	sd, _ := spread(groups)
	for _, g := range groups {
		mean := g.mean()
		medians := s.medians(g.trials)
		out = append(out, Contender{
			Set: g.trials[0].Set, Trials: len(g.logs), Ratio: math.Exp(mean), Medians: medians,
			Breaks: s.breaks(medians),
			score:  s.Plan.Objective.Gain(mean) - sd/math.Sqrt(float64(len(g.logs))),
		})
	}
	slices.SortFunc(out, func(a, b Contender) int {
		return cmp.Or(cmp.Compare(min(1, len(a.Breaks)), min(1, len(b.Breaks))), cmp.Compare(b.score, a.score),
			cmp.Compare(Name(a.Set), Name(b.Set)))
	})
	return out
}

// measuredPhases are those with the load of the plan.
var measuredPhases = []Phase{Curves, Search, Race, Confirm, Gain}

// goals are the figures of the front, and which way they are better.
var goals = []struct {
	figure string
	higher bool
}{{"throughput", true}, {"p99", false}, {WriteAmplification, false}, {Memory, false}}

// Front returns the configurations that no other one beats in throughput, p99, write amplification and memory at the
// same time, the default included if it is one of them. Configurations with a single trial are left out, unless there
// are no others.
func (s *Study) Front() (out []Contender) {
	all := s.Ranking(measuredPhases...)
	if defaults := s.of(nil, measuredPhases...); len(defaults) > 0 {
		all = append(all, Contender{Trials: len(defaults), Ratio: 1, Medians: s.medians(defaults)})
	}
	if several := slices.DeleteFunc(slices.Clone(all),
		func(c Contender) bool { return c.Trials < 2 }); len(several) > 1 {
		all = several
	}
	for i := range all {
		if !slices.ContainsFunc(all, func(other Contender) bool { return other.beats(&all[i]) }) {
			out = append(out, all[i])
		}
	}
	return out
}

// Median returns the median of a figure.
func (c *Contender) Median(figure string) (m Median, ok bool) {
	i := slices.IndexFunc(c.Medians, func(m Median) bool { return m.Figure == figure })
	if i < 0 {
		return m, false
	}
	return c.Medians[i], true
}

// beats reports whether c is at least as good in every goal, and better in one. Less than a hundredth is no difference.
func (c *Contender) beats(other *Contender) bool {
	better := false
	for _, goal := range goals {
		a, ok := c.Median(goal.figure)
		b, has := other.Median(goal.figure)
		if !ok || !has {
			continue
		}
		x, y := a.Value, b.Value
		if goal.higher {
			x, y = y, x
		}
		switch {
		case x > y*1.01:
			return false
		case x < y/1.01:
			better = true
		}
	}
	return better
}

// Winner returns the configuration that was compared with the default in the end, nil if there is none yet.
func (s *Study) Winner() []string {
	for _, t := range s.Trials {
		if t.Phase == Confirm && !t.Default() {
			return t.Set
		}
	}
	return nil
}

// Loads returns the loads, other than that of the plan, on which a phase tried the winner.
func (s *Study) Loads(phase Phase) (out []string) {
	for _, t := range s.Trials {
		if t.Phase == phase && !slices.Contains(out, t.Load) {
			out = append(out, t.Load)
		}
	}
	return out
}

// Compare compares the winner (B) with the default (A) in a phase, on one load.
func (s *Study) Compare(phase Phase, load string) *compare.Delta {
	rounds := map[int]*compare.Round{}
	again := false
	for i := range s.Trials {
		t := &s.Trials[i]
		if t.Phase != phase || t.Load != load {
			continue
		}
		r := rounds[t.Round]
		if r == nil {
			r = &compare.Round{}
			rounds[t.Round] = r
		}
		switch {
		case t.Again:
			r.Control, again = t.Figures, true
		case t.Default():
			r.A = t.Figures
		default:
			r.B = t.Figures
		}
	}
	var whole []compare.Round
	for i := range len(rounds) {
		if r := rounds[i]; r != nil && r.A != nil && r.B != nil && (r.Control != nil || !again) {
			whole = append(whole, *r)
		}
	}
	var primary []string // elsewhere there are too few rounds for a conclusion
	if phase == Confirm {
		primary = []string{s.Plan.Objective.Figure}
	}
	d := compare.Rounds(whole, primary)
	d.A, d.B = Name(nil), Name(s.Winner())
	return d
}

// Confirmed reports whether the winner is better than the default on fresh seeds by more than noise, and holds the
// subjects.
func (s *Study) Confirmed() bool { return s.confirmedBy(s.Compare(Confirm, "")) }

func (s *Study) confirmedBy(d *compare.Delta) bool {
	row := d.Row(s.Plan.Objective.Figure)
	return row != nil && row.Verdict == compare.Better && len(s.confirmedBreaks()) == 0
}

// confirmedBreaks returns the subjects that the winner did not hold when it was confirmed.
func (s *Study) confirmedBreaks() []string { return s.breaks(s.medians(s.of(s.Winner(), Confirm))) }

// Notes says what a reader must know before believing the figures.
func (s *Study) Notes() (out []string) {
	var cache []float64
	missed, disk := int64(0), int64(0)
	for _, t := range s.Trials {
		if t.Failure == "" {
			cache = append(cache, t.RowCache)
			missed, disk = missed+t.MissedBlocks, disk+t.DiskBytes
		}
	}
	if len(cache) == 0 {
		return nil
	}
	if share := compare.NewEstimate(cache).Center; share >= 0.3 {
		out = append(out, "the row cache answered "+percent(share)+" of the look-ups of records, so bloom filters, "+
			"blocks and their cache had little to say; --set engine.row_cache=0 leaves it out")
	}
	const fewestBytes = 512 // of a block that comes from a disk
	if missed > 1000 && disk < missed*fewestBytes && !s.Plan.Cold {
		out = append(out, "blocks that the block cache did not have came from the system's page cache, not from the "+
			"disk; --cold drops those pages before each trial")
	}
	if s.Plan.Objective.Better == results.Higher && slices.ContainsFunc(s.Plan.Knobs, func(k Knob) bool {
		return k.Setting == "engine.wal_sync"
	}) {
		out = append(out, "engine.wal_sync none loses acknowledged writes when the machine loses power")
	}
	return out
}
