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
	// Measurable reports whether some value differs from the default by more than noise, with regard to all values of
	// all knobs (see Level).
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
	// Ratio is the objective against that of the default, 1 for the default itself. It is nil without trials. The
	// intervals hold for all values of all knobs together at Level, so for the best of them, too.
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

// observations returns what trials of some phases say of the load of the plan, in their order.
func (s *Study) observations(phases ...Phase) (out []observation) {
	for _, phase := range phases {
		var trials []*StudyTrial
		var logs []float64
		for i := range s.Trials {
			if t := &s.Trials[i]; t.Phase == phase && t.Load == "" {
				trials, logs = append(trials, t), append(logs, s.log(t))
			}
		}
		for i, gap := range gaps(logs, func(i int) bool { return trials[i].Default() }) {
			if !math.IsNaN(gap) {
				out = append(out, observation{trials[i], gap})
			}
		}
	}
	return out
}

// group is what several observations of the same configuration say together.
type group struct {
	name   string
	logs   []float64
	trials []*StudyTrial
}

func (g *group) mean() float64 { return stats.Mean(g.logs) }

// grouped puts observations of the same configuration together.
func grouped(all []observation) (out []*group) {
	for _, o := range all {
		name := Name(o.trial.Set)
		g := named(out, name)
		if g == nil {
			g = &group{name: name}
			out = append(out, g)
		}
		g.logs, g.trials = append(g.logs, o.log), append(g.trials, o.trial)
	}
	return out
}

// named returns the group of a configuration, nil if there is none.
func named(groups []*group, name string) *group {
	for _, g := range groups {
		if g.name == name {
			return g
		}
	}
	return nil
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
func spread(groups []*group) (sd float64, freedom int) {
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

// shortShare is more than compare.Found, since an effect widens the intervals with which it is found: of changes at
// that share, some nine of ten are found.
const shortShare = 0.95

// short is by how much the mean of n observations falls short of the truth in a share of 1 - shortShare of all cases,
// measured by intervals of half that width, which vary from study to study as the standard deviation does.
func short(sd, half float64, freedom, n int) float64 {
	return stats.InvCDF(stats.TDist{V: float64(freedom)})(shortShare) *
		math.Sqrt(sd*sd/float64(n)+half*half/float64(freedom))
}

// Effects returns what each knob does on its own.
func (s *Study) Effects() (out []Effect) {
	groups := grouped(s.observations(Curves))
	sd, freedom := spread(groups)
	unit := math.Inf(1) // half the width of the interval of one observation
	if s.Curved && freedom > 0 {
		unit = s.limit() * sd
	}
	for _, k := range s.Plan.Knobs {
		e := Effect{Knob: k}
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
				if g = named(groups, Name(set)); g != nil {
					log = g.mean()
					half := unit / math.Sqrt(float64(len(g.logs)))
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
				e.cliff(e.Levels[i-1].Value, value, log-beforeLog, unit, before, g)
			}
			before, beforeLog = g, log
			e.Levels = append(e.Levels, l)
		}
		out = append(out, e)
	}
	return out
}

// cliff keeps a change between neighbouring values if it is more than noise and the largest so far. unit is half the
// width of the interval of one observation. A group is nil for the default, whose log is 0 by definition.
func (e *Effect) cliff(from, to string, change, unit float64, a, b *group) {
	inverse := 0.0
	for _, g := range []*group{a, b} {
		if g != nil {
			inverse += 1 / float64(len(g.logs))
		}
	}
	if math.Abs(change) > unit*math.Sqrt(inverse) &&
		(e.Cliff == nil || math.Abs(change) > math.Abs(math.Log1p(e.Cliff.Change))) {
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
