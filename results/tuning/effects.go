package tuning

import (
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/aclements/go-moremath/stats"

	"neokv.dev/results/compare"
)

// Effect is what one knob does to the objective while the others have their defaults.
type Effect struct {
	Knob   Knob        `json:"knob"`
	Levels []KnobValue `json:"levels"` // of its values, in their order
	// Measurable reports whether some value differs from the default by more than noise.
	Measurable bool `json:"measurable"`
	// Visible is the smallest change, as a share, that nine of ten such studies find at each value; 0 if there are too
	// few trials.
	Visible float64 `json:"visible,omitempty"`
	// Cliff is the place between two neighbouring values where the objective changes most, nil if it changes nowhere by
	// more than noise, or the values have no order.
	Cliff *Cliff `json:"cliff,omitempty"`
}

// KnobValue is one value of a knob.
type KnobValue struct {
	Value   string `json:"value"`
	Default bool   `json:"default,omitempty"`
	// Ratio is the objective against that of the default, 1 for the default itself. It is nil without trials.
	Ratio *compare.Estimate `json:"ratio,omitempty"`
	// Failure says why the value gave no figures.
	Failure string `json:"failure,omitempty"`
	// Breaks are the subjects that the median of its trials does not hold.
	Breaks []string `json:"breaks,omitempty"`
	// Medians are those of Figures, in that order; NaN is none.
	Medians []Median `json:"medians,omitempty"`
}

// Median is the median of a figure.
type Median struct {
	Figure string  `json:"figure"`
	Unit   string  `json:"unit"`
	Value  float64 `json:"value"`
	// AtLeast says that the median depends on trials of which only a lower bound is known.
	AtLeast bool `json:"at_least,omitempty"`
}

// Cliff is a large change between two neighbouring values.
type Cliff struct {
	From   string  `json:"from"`
	To     string  `json:"to"`
	Change float64 `json:"change"` // of the objective, as a share
}

// The figures that trials have beside those of a summary.
const (
	WriteAmplification = "write-amplification"
	Memory             = "memory"
	Drain              = "drain"
)

// Shown are the figures of tables and of the front, beside the objective.
var Shown = []string{"throughput", "p99", "CPU", WriteAmplification, Memory}

// lost are figures that tables show where they are not those of a sound run. Of trials they have the mean, since a
// median would hide a trial that lost operations.
var lost = map[string]float64{"rate reached": 100, "errors": 0, "unanswered": 0}

// observation is the objective of a trial against that of the defaults next to it.
type observation struct {
	trial *StudyTrial
	log   float64 // of the ratio
}

// observations returns what trials of some phases say of the load of the plan, in their order. A trial is compared with
// the last trial of the default before it and the first one behind it in its phase.
func (s *Study) observations(phases ...Phase) (out []observation) {
	for i := range s.Trials {
		t := &s.Trials[i]
		value, ok := t.Figure(s.Plan.Objective.Figure)
		if !ok || t.Default() || t.Load != "" || !slices.Contains(phases, t.Phase) {
			continue
		}
		sum, n := 0.0, 0
		for _, way := range []int{-1, 1} {
			for k := i + way; k >= 0 && k < len(s.Trials) && s.Trials[k].Phase == t.Phase; k += way {
				base, ok := s.Trials[k].Figure(s.Plan.Objective.Figure)
				if ok && s.Trials[k].Default() && base > 0 {
					sum, n = sum+math.Log(base), n+1
					break
				}
			}
		}
		if n > 0 && value > 0 {
			out = append(out, observation{t, math.Log(value) - sum/float64(n)})
		}
	}
	return out
}

// group is what several observations of the same configuration say together.
type group struct {
	logs   []float64
	trials []*StudyTrial
}

func (g *group) mean() float64 { return stats.Mean(g.logs) }

// grouped puts observations of the same configuration together.
func grouped(all []observation) map[string]*group {
	out := map[string]*group{}
	for _, o := range all {
		name := Name(o.trial.Set)
		if out[name] == nil {
			out[name] = &group{}
		}
		out[name].logs = append(out[name].logs, o.log)
		out[name].trials = append(out[name].trials, o.trial)
	}
	return out
}

// Name is the name of a configuration.
func Name(set []string) string {
	if len(set) == 0 {
		return "default"
	}
	return strings.Join(set, " ")
}

// spread returns the standard deviation within the groups, pooled over all of them, with its degrees of freedom.
// Repetitions of one configuration are few, but the machine disturbs all of them alike.
func spread(groups map[string]*group) (sd float64, freedom int) {
	sum := 0.0
	for _, g := range groups {
		mean := g.mean()
		for _, x := range g.logs {
			sum += (x - mean) * (x - mean)
		}
		freedom += len(g.logs) - 1
	}
	if freedom == 0 {
		return 0, 0
	}
	return math.Sqrt(sum / float64(freedom)), freedom
}

// halfWidth returns half the width of the interval of a mean of n observations, of which one of `among` intervals is
// all too narrow in one of twenty cases (Student's t, Bonferroni's bound). It is +Inf without repetitions.
func halfWidth(sd float64, freedom, n, among int) float64 {
	if freedom == 0 {
		return math.Inf(1)
	}
	t := stats.InvCDF(stats.TDist{V: float64(freedom)})(1 - (1-compare.Level)/2/float64(max(1, among)))
	return t * sd / math.Sqrt(float64(n))
}

// short is by how much the mean of n observations falls short of the truth in one of ten cases, measured by intervals
// of half that width, which vary from study to study as the standard deviation does.
func short(sd, half float64, freedom, n int) float64 {
	return stats.InvCDF(stats.TDist{V: float64(freedom)})(compare.Found) *
		math.Sqrt(sd*sd/float64(n)+half*half/float64(freedom))
}

// Effects returns what each knob does on its own.
func (s *Study) Effects() (out []Effect) {
	groups := grouped(s.observations(Curves))
	sd, freedom := spread(groups)
	for _, k := range s.Plan.Knobs {
		e := Effect{Knob: k}
		among := len(k.Values) - 1
		var before *group // of the value before, nil for the default
		var beforeLog float64
		for i, value := range k.Values {
			l := KnobValue{Value: value, Default: value == k.Default}
			var g *group
			log := 0.0
			if l.Default {
				l.Ratio = &compare.Estimate{Center: 1}
				l.Medians = s.medians(s.of(nil, Curves))
			} else {
				set := []string{k.Setting + "=" + value}
				trials := s.of(set, Curves)
				for _, t := range trials {
					if t.Failure != "" {
						l.Failure = t.Failure
					}
				}
				if g = groups[Name(set)]; g != nil {
					log = g.mean()
					half := halfWidth(sd, freedom, len(g.logs), among)
					l.Ratio = &compare.Estimate{Center: math.Exp(log), N: len(g.logs)}
					if !math.IsInf(half, 1) {
						l.Ratio.Interval = []float64{math.Exp(log - half), math.Exp(log + half)}
						e.Measurable = e.Measurable || l.Ratio.ExcludesOne()
						e.Visible = max(e.Visible, math.Expm1(half+short(sd, half, freedom, len(g.logs))))
					}
					l.Medians = s.medians(trials)
				}
			}
			l.Breaks = s.breaks(l.Medians)
			if i > 0 && k.Ordered && e.Levels[i-1].Ratio != nil && l.Ratio != nil {
				e.cliff(e.Levels[i-1].Value, value, log-beforeLog, sd, freedom, before, g)
			}
			before, beforeLog = g, log
			e.Levels = append(e.Levels, l)
		}
		out = append(out, e)
	}
	return out
}

// cliff keeps a change between neighbouring values if it is more than noise and the largest so far. A group is nil for
// the default, whose log is 0 by definition.
func (e *Effect) cliff(from, to string, change, sd float64, freedom int, a, b *group) {
	inverse := 0.0
	for _, g := range []*group{a, b} {
		if g != nil {
			inverse += 1 / float64(len(g.logs))
		}
	}
	noise := halfWidth(sd, freedom, 1, len(e.Knob.Values)-1) * math.Sqrt(inverse)
	if math.Abs(change) > noise && (e.Cliff == nil || math.Abs(change) > math.Abs(math.Log1p(e.Cliff.Change))) {
		e.Cliff = &Cliff{from, to, math.Expm1(change)}
	}
}

// of returns the trials of a configuration in some phases, on the load of the plan.
func (s *Study) of(set []string, phases ...Phase) (out []*StudyTrial) {
	for i := range s.Trials {
		t := &s.Trials[i]
		if t.Load == "" && Name(t.Set) == Name(set) && slices.Contains(phases, t.Phase) {
			out = append(out, t)
		}
	}
	return out
}

// medians returns the medians of the figures that are shown or are the objective or in a subject, of those that the
// trials have.
func (s *Study) medians(trials []*StudyTrial) (out []Median) {
	names := slices.Concat(Shown, slices.Sorted(maps.Keys(lost)))
	for _, name := range append([]string{s.Plan.Objective.Figure}, s.subjectFigures()...) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		var values, most []float64
		unit, sum := "", 0.0
		for _, t := range trials {
			for _, f := range t.Figures {
				if f.Name != name {
					continue
				}
				values, unit, sum = append(values, f.Value), f.Unit, sum+f.Value
				if most = append(most, f.Value); f.AtLeast {
					most[len(most)-1] = math.MaxFloat64
				}
			}
		}
		if len(values) == 0 {
			continue
		}
		m := Median{Figure: name, Unit: unit, Value: compare.NewEstimate(values).Center}
		m.AtLeast = compare.NewEstimate(most).Center != m.Value
		if _, is := lost[name]; is {
			m.Value, m.AtLeast = sum/float64(len(values)), false
		}
		out = append(out, m)
	}
	return out
}

func (s *Study) subjectFigures() (out []string) {
	for _, c := range s.Plan.Subjects {
		out = append(out, c.Figure)
	}
	return out
}

// breaks returns the subjects that medians do not hold.
func (s *Study) breaks(medians []Median) (out []string) {
	for _, c := range s.Plan.Subjects {
		for _, m := range medians {
			if m.Figure == c.Figure && (!c.Holds(m.Value) || c.Below && m.AtLeast) {
				out = append(out, c.Text)
			}
		}
	}
	return out
}
