// Package compare says how results of two sides differ, and whether that is more than noise. Medians and intervals are
// those of golang.org/x/perf/benchmath, which assumes nothing of how figures are distributed.
package compare

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"golang.org/x/perf/benchmath"

	"neokv.dev/results"
)

// Level is the confidence of all intervals. A difference counts if the interval of the ratio does not contain 1.
const Level = 0.95

// FewestRounds is how many rounds an interval of Level needs.
const FewestRounds = 6

// FewestRuns is how many runs of each side a Mann-Whitney U test needs.
const FewestRuns = 4

// Delta is how side B differs from side A.
type Delta struct {
	A string `json:"a"` // what the sides are
	B string `json:"b"`
	// Conclusion says what the rows say together, in a sentence; "" if they speak for themselves.
	Conclusion string `json:"conclusion,omitempty"`
	// Rounds counts the rounds of a run in which the sides took turns; 0 if the results come from runs of their own.
	Rounds  int  `json:"rounds,omitempty"`
	Control bool `json:"control,omitempty"` // a copy of A took part in each round
	// Setup says what the sides were and what was sent to them, also where they do not differ.
	Setup []Condition `json:"setup,omitempty"`
	// Next says what would give a verdict where these runs give none; "" if nothing is known.
	Next string `json:"next,omitempty"`
	// Marks names the runs that are compared although they are unsound, and the setups that a side mixes.
	Marks []string `json:"marks,omitempty"`
	// Conditions are the conditions in which the sides differ, beside what A and B name.
	Conditions []Condition `json:"conditions,omitempty"`
	Rows       []Row       `json:"rows"`
	Warnings   []string    `json:"warnings,omitempty"`
}

// Condition is a condition of the results of both sides, such as a setting.
type Condition struct {
	Name string `json:"name"`
	A    string `json:"a"`
	B    string `json:"b"`
}

// Row is how one figure differs.
type Row struct {
	Name   string             `json:"name"`
	Unit   string             `json:"unit"`
	Kind   results.FigureKind `json:"kind"`
	Better results.Direction  `json:"better,omitempty"`
	A      Estimate           `json:"a"`
	B      Estimate           `json:"b"`
	// Ratio is B / A, nil if A is 0. In rounds with a control, A stands for the geometric mean of A and its copy. Of
	// runs that did not take turns it is the median of the ratios of every B to every A.
	Ratio *Estimate `json:"ratio,omitempty"`
	// Ratios are those of the rounds, in their order, if each round has one.
	Ratios []float64 `json:"ratios,omitempty"`
	// Control is the copy of A over A.
	Control *Estimate `json:"control,omitempty"`
	// P is the p-value of a Mann-Whitney U test; 0 where the sides took turns, since the interval of Ratio decides then.
	P       float64 `json:"p,omitempty"`
	Verdict Verdict `json:"verdict"`
	// Visible is the smallest change that the interval could have told from none, as a share: 0.02 is 2 %. It is 0 if
	// there is no interval.
	Visible float64 `json:"visible,omitempty"`
}

// Estimate is a median with its interval, which is nil if there are too few values.
type Estimate struct {
	Center   float64   `json:"center"`
	Interval []float64 `json:"interval,omitempty"` // lowest and highest
	N        int       `json:"n"`
}

// Verdict says what a row means.
type Verdict string

const (
	Better  Verdict = "better"
	Worse   Verdict = "worse"
	Differs Verdict = "differs" // no direction of this figure is better
	Same    Verdict = "~"       // no difference that is more than noise
	TooFew  Verdict = "too few" // values to tell
	Unknown Verdict = "cannot tell"
	// Contaminated: the copy of A differs from A, by more than half of what B does. Something else has changed, too.
	Contaminated Verdict = "contaminated"
)

// Round has the figures of each side in one round. Control is nil without a copy of A.
type Round struct{ A, B, Control []results.Figure }

// Rounds compares sides that took turns.
func Rounds(rounds []Round) (rows []Row) {
	for _, f := range named(rounds) {
		var a, b, ratios, controls []float64
		for _, r := range rounds {
			x, hasA := find(r.A, f.Name)
			y, hasB := find(r.B, f.Name)
			z, hasControl := find(r.Control, f.Name)
			if !hasA || !hasB || r.Control != nil && !hasControl {
				continue
			}
			a, b = append(a, x), append(b, y)
			base := x
			if r.Control != nil {
				base = math.Sqrt(x * z)
				controls = append(controls, ratio(z, x))
			}
			ratios = append(ratios, ratio(y, base))
		}
		if row, ok := newRow(f, a, b); ok {
			row.judge(ratios, controls)
			rows = append(rows, row)
		}
	}
	return rows
}

// Sides compares results that come from runs of their own.
func Sides(a, b [][]results.Figure) (rows []Row) {
	var both []Round
	for i := range max(len(a), len(b)) {
		var r Round
		if i < len(a) {
			r.A = a[i]
		}
		if i < len(b) {
			r.B = b[i]
		}
		both = append(both, r)
	}
	for _, f := range named(both) {
		row, ok := newRow(f, values(a, f.Name), values(b, f.Name))
		if !ok {
			continue
		}
		row.Verdict = TooFew
		x, y := values(a, f.Name), values(b, f.Name)
		test := benchmath.AssumeNothing.Compare(sample(x), sample(y))
		row.Ratio = shift(x, y)
		if row.P = test.P; min(len(x), len(y)) >= FewestRuns {
			row.Verdict = Same
			if test.P < test.Alpha {
				row.Verdict = direction(row.Better, row.B.Center-row.A.Center)
			}
		}
		rows = append(rows, row)
	}
	return rows
}

// named returns the figures that any round has, in the order in which they are met.
func named(rounds []Round) (out []results.Figure) {
	for _, r := range rounds {
		for _, f := range slices.Concat(r.A, r.B) {
			if !slices.ContainsFunc(out, func(x results.Figure) bool { return x.Name == f.Name }) {
				out = append(out, f)
			}
		}
	}
	return out
}

func find(figures []results.Figure, name string) (value float64, ok bool) {
	i := slices.IndexFunc(figures, func(f results.Figure) bool { return f.Name == name })
	if i < 0 {
		return 0, false
	}
	return figures[i].Value, true
}

func values(side [][]results.Figure, name string) (out []float64) {
	for _, figures := range side {
		if v, ok := find(figures, name); ok {
			out = append(out, v)
		}
	}
	return out
}

// newRow returns a row without a verdict. It is not ok if a side does not have the figure, or both have nothing of it.
func newRow(f results.Figure, a, b []float64) (row Row, ok bool) {
	if len(a) == 0 || len(b) == 0 || slices.Max(a) == 0 && slices.Max(b) == 0 {
		return row, false
	}
	return Row{Name: f.Name, Unit: f.Unit, Kind: f.Kind, Better: f.Better, A: NewEstimate(a), B: NewEstimate(b)}, true
}

// ratio returns x / y; 1 if both are 0.
func ratio(x, y float64) float64 {
	if x == y {
		return 1
	}
	return x / y
}

// sample copies values, since benchmath sorts them.
func sample(values []float64) *benchmath.Sample {
	return benchmath.NewSample(slices.Clone(values), &benchmath.DefaultThresholds)
}

// NewEstimate returns the median of values, of which there is at least one.
func NewEstimate(values []float64) Estimate {
	s := benchmath.AssumeNothing.Summary(sample(values), Level)
	e := Estimate{Center: s.Center, N: len(values)}
	if !math.IsInf(s.Lo, 0) && !math.IsInf(s.Hi, 0) {
		e.Interval = []float64{s.Lo, s.Hi}
	}
	return e
}

// NewPairMedian returns the median of the geometric means of all pairs of ratios, each with itself among them, and the
// interval with which a signed-rank test of Wilcoxon sees no difference (Hollander and Wolfe, Nonparametric Statistical
// Methods, sections 3.2 and 3.3, by the normal approximation). It takes the logarithms of the ratios to be symmetric.
// With fourteen rounds the interval is a quarter narrower than that of a median, and a round that is far off hardly
// widens it.
func NewPairMedian(ratios []float64) Estimate {
	var means []float64
	for i, r := range ratios {
		for _, s := range ratios[i:] {
			means = append(means, math.Sqrt(r*s))
		}
	}
	slices.Sort(means)
	n, pairs := float64(len(ratios)), len(means)
	e := Estimate{Center: (means[(pairs-1)/2] + means[pairs/2]) / 2, N: len(ratios)}
	if e.N >= FewestRounds {
		outside := int(n*(n+1)/4 - normal95*math.Sqrt(n*(n+1)*(2*n+1)/24)) // so many lie below the interval, and above it
		e.Interval = []float64{means[outside-1], means[pairs-outside]}
	}
	return e
}

// shift returns how many times as large values of y are as those of x, by Hodges and Lehmann: the median of the ratios
// of each y to each x. Its interval has the ratios with which a Mann-Whitney U test sees no difference (Hollander and
// Wolfe, Nonparametric Statistical Methods, section 4.3, by the normal approximation). It is nil if x has too many
// values of 0.
func shift(x, y []float64) *Estimate {
	x, y = slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y))
	pairs := len(x) * len(y)
	e := &Estimate{Center: (place(x, y, (pairs-1)/2) + place(x, y, pairs/2)) / 2, N: min(len(x), len(y))}
	if math.IsInf(e.Center, 0) {
		return nil
	}
	n, m := float64(len(x)), float64(len(y))
	outside := int(n*m/2 - normal95*math.Sqrt(n*m*(n+m+1)/12)) // so many ratios lie below the interval, and above it
	if e.N >= FewestRuns && outside > 0 {
		low, high := place(x, y, outside-1), place(x, y, pairs-outside)
		if !math.IsInf(high, 0) {
			e.Interval = []float64{low, high}
		}
	}
	return e
}

// normal95 is how many standard deviations from the mean 95 % of a normal distribution are within.
const normal95 = 1.96

// place returns the ratio of a value of y to one of x that stands at a place in the order of all such ratios, from 0.
// It looks for it by bisection, since long series have too many pairs to keep. x and y are sorted and have nothing
// below 0.
func place(x, y []float64, at int) float64 {
	bits := sort.Search(int(math.Float64bits(math.Inf(1))), func(bits int) bool {
		most, count, i := math.Float64frombits(uint64(bits)), 0, 0
		for _, b := range y {
			for i < len(x) && ratio(b, x[i]) > most {
				i++
			}
			count += len(x) - i
		}
		return count > at
	})
	return math.Float64frombits(uint64(bits))
}

// judge gives a row its verdict, by the ratios of all rounds.
func (row *Row) judge(ratios, controls []float64) {
	if slices.ContainsFunc(ratios, func(r float64) bool { return math.IsInf(r, 0) }) {
		row.Verdict = TooFew // the figure is 0 in rounds of A: there is no ratio
		if len(ratios) >= FewestRounds && row.A.Center == 0 && row.B.Interval[0] > 0 {
			row.Verdict = direction(row.Better, 1)
		}
		return
	}
	e := NewEstimate(ratios)
	row.Ratio, row.Ratios = &e, ratios
	if e.Interval == nil {
		row.Verdict = TooFew
		return
	}
	if e.Center > 0 {
		row.Visible = max(e.Interval[1]/e.Center-1, 1-e.Interval[0]/e.Center)
	}
	row.Verdict = Same
	if e.ExcludesOne() {
		row.Verdict = direction(row.Better, e.Center-1)
	}
	if len(controls) > 0 && !slices.ContainsFunc(controls, func(r float64) bool { return math.IsInf(r, 0) }) {
		c := NewEstimate(controls)
		row.Control = &c
		if c.ExcludesOne() && 2*math.Abs(math.Log(c.Center)) > math.Abs(math.Log(e.Center)) {
			row.Verdict = Contaminated
		}
	}
}

// ExcludesOne reports whether a ratio differs from 1 by more than noise.
func (e *Estimate) ExcludesOne() bool {
	return e.Interval != nil && (e.Interval[0] > 1 || e.Interval[1] < 1)
}

func direction(better results.Direction, change float64) Verdict {
	switch {
	case better == "":
		return Differs
	case change > 0 == (better == results.Higher):
		return Better
	}
	return Worse
}

// Row returns the row of a figure, nil if there is none.
func (c *Delta) Row(name string) *Row {
	i := slices.IndexFunc(c.Rows, func(r Row) bool { return r.Name == name })
	if i < 0 {
		return nil
	}
	return &c.Rows[i]
}

// CannotTell takes all verdicts back, and says why there are none.
func (c *Delta) CannotTell(why string) {
	c.Conclusion = "cannot tell: " + why
	for i := range c.Rows {
		r := &c.Rows[i]
		r.P, r.Verdict = 0, Unknown
		if r.Ratio != nil {
			r.Ratio.Interval = nil // it rests on the same as the verdict
		}
	}
}

// Comparable says why figures of two results may not be compared, nil if they may: they must come from the same load.
func Comparable(a, b *results.Header) error {
	var wrong []error
	for _, f := range results.Facts([]results.ResultFile{{Result: &results.Result{Header: *a}},
		{Result: &results.Result{Header: *b}}}) {
		if f.Differ && f.OfLoad() {
			wrong = append(wrong, fmt.Errorf("%s: %s and %s", f.Name, cmp.Or(f.Values[0], "(none)"),
				cmp.Or(f.Values[1], "(none)")))
		}
	}
	return errors.Join(wrong...)
}
