// Package compare says how results of two sides differ, and whether that is more than noise. Medians and the test of
// runs that did not take turns are those of golang.org/x/perf/benchmath, which assumes nothing of how figures are
// distributed; the test of sides that took turns assumes nothing either (see places).
package compare

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"sort"

	"github.com/aclements/go-moremath/mathx"
	"github.com/aclements/go-moremath/stats"
	"golang.org/x/perf/benchmath"

	"neokv.dev/results"
)

// Level is the confidence of the intervals of rows, each by itself.
const Level = 0.95

// FewestRounds is how many values an interval of a median needs.
const FewestRounds = 6

// FewestRuns is how many runs of each side a Mann-Whitney U test at Level needs.
const FewestRuns = 4

// Delta is how side B differs from side A.
type Delta struct {
	A string `json:"a"` // what the sides are
	B string `json:"b"`
	// Conclusion is what the rows say together.
	Conclusion Conclusion `json:"conclusion"`
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
	Rows       []Row       `json:"rows"` // the primary ones first
	Warnings   []string    `json:"warnings,omitempty"`
	// Proof says how often conclusions of this setup are false, and what they find.
	Proof []string `json:"proof,omitempty"`
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
	// Primary figures make the conclusion. The others are exploratory.
	Primary bool     `json:"primary,omitempty"`
	A       Estimate `json:"a"` // with its copy, if there is one
	B       Estimate `json:"b"`
	// Means says that some block has nothing of the figure: A and B are means, and Ratio is theirs.
	Means bool `json:"means,omitempty"`
	// Ratio is how many times as much B has as A, nil if there is none. Of runs that did not take turns it is the
	// median of the ratios of every B to every A.
	Ratio *Estimate `json:"ratio,omitempty"`
	// Ratios are those of the rounds, in their order, if each round has one: B to the geometric mean of A and its copy.
	Ratios []float64 `json:"ratios,omitempty"`
	// Control is the copy of A over A.
	Control *Estimate `json:"control,omitempty"`
	// P is how likely so large a difference, either way, is if nothing differs. Adjusted is the same with regard to the
	// other rows: by Holm's method for primary ones, by that of Benjamini and Hochberg for the others.
	P        float64 `json:"p"`
	Adjusted float64 `json:"adjusted_p"`
	Verdict  Verdict `json:"verdict"`
	// Within is the largest change, as a share, that the level of the conclusion leaves possible. Visible is the
	// smallest change that it would have found in nine of ten such runs. Both are 0 if that is not known, or not
	// primary.
	Within  float64 `json:"within,omitempty"`
	Visible float64 `json:"visible,omitempty"`

	sign     float64 // above 0 if B has more
	bounded  bool    // Within and Visible are known
	least    float64 // P can be no less with so few rounds
	controlP float64 // P of the copy of A against A
	// interval returns the ratio, with the interval that leaves out the true one with a probability of wrong at most.
	// It is nil if there is none. control returns that of the copy of A.
	interval func(wrong float64) *Estimate
	control  func() *Estimate
	// visible returns the logarithm of the smallest change that is found in nine of ten cases, 0 if it is not known.
	visible func(wrong float64) float64
}

// Estimate is a median with its interval, which is nil if there are too few values.
type Estimate struct {
	Center   float64   `json:"center"`
	Interval []float64 `json:"interval,omitempty"` // lowest and highest
	N        int       `json:"n"`
	// AtLeast says that some values are lower bounds of what nobody knows.
	AtLeast bool `json:"at_least,omitempty"`
}

// Verdict says what a row, or a conclusion, means.
type Verdict string

const (
	Better  Verdict = "better"
	Worse   Verdict = "worse"
	Differs Verdict = "differs" // no direction is better, or some figures are better and some are worse
	Same    Verdict = "~"       // no difference that is more than noise
	TooFew  Verdict = "too few" // values to tell
	// Contaminated: the copy of A differs from A. Something else has changed, too.
	Contaminated Verdict = "contaminated"
	Unknown      Verdict = "cannot tell"
)

// Round has the figures of each side in one round. Control is nil without a copy of A.
type Round struct{ A, B, Control []results.Figure }

// Rounds compares sides that took turns in an order that was drawn at random, by the figures that are primary.
func Rounds(rounds []Round, primary []string) *Delta {
	d := newTable(rounds, primary, thorough)
	for i := range d.Rows {
		d.Rows[i].estimate()
	}
	d.finish()
	return d
}

// Tested is Rounds without ratios and their intervals, which take a hundred times as long as the tests.
func Tested(rounds []Round, primary []string) *Delta {
	d := newTable(rounds, primary, thorough)
	d.finish()
	return d
}

func (d *Delta) finish() {
	d.conclude(results.Plural(int64(d.Rounds), "round"), func(p float64) int { return fewest(d.arms(), p/2) })
}

func (d *Delta) arms() int {
	if d.Control {
		return 3
	}
	return 2
}

// newTable makes the rows of sides that took turns, without verdicts and without estimates of ratios. steps bounds how
// long each test takes.
func newTable(rounds []Round, primary []string, steps int) *Delta {
	d := &Delta{Rounds: len(rounds), Control: len(rounds) > 0 && rounds[0].Control != nil}
	for _, f := range named(rounds) {
		var turns []turn
		for _, r := range rounds {
			t := turn(values([][]results.Figure{r.B, r.A, r.Control}, f.Name))
			if len(t) == d.arms() {
				turns = append(turns, t)
			}
		}
		isPrimary := slices.Contains(primary, f.Name)
		if n := len(rounds) - len(turns); n > 0 && isPrimary {
			d.Warnings = append(d.Warnings, fmt.Sprintf("%d of %d rounds lack %s of an arm and are left out there", n,
				len(rounds), f.Name))
		}
		if row, ok := takeTurns(f, turns, steps); ok {
			row.Primary = isPrimary || row.Loss()
			for _, r := range rounds {
				row.A.AtLeast = row.A.AtLeast || atLeast([][]results.Figure{r.A, r.Control}, f.Name)
				row.B.AtLeast = row.B.AtLeast || atLeast([][]results.Figure{r.B}, f.Name)
			}
			d.Rows = append(d.Rows, row)
		}
	}
	return d
}

// takeTurns compares a figure of sides that took turns.
func takeTurns(f results.Figure, turns []turn, steps int) (row Row, ok bool) {
	var a, b []float64
	for _, t := range turns {
		a, b = append(a, t[1:]...), append(b, t[0])
	}
	if row, ok = newRow(f, a, b); !ok {
		return row, false
	}
	n, arms := len(turns), len(turns[0])
	row.least = min(1, 2*math.Pow(float64(arms), -float64(n)))
	row.controlP = 1
	if min(slices.Min(a), slices.Min(b)) <= 0 { // there are no logarithms
		row.P, row.sign = placesInRounds(turns).p(steps)
		row.means(a, b)
		return row, true
	}
	var logs, controls []turn
	for _, t := range turns {
		var l turn
		for _, v := range t {
			l = append(l, math.Log(v))
		}
		logs = append(logs, l)
		row.Ratios = append(row.Ratios, math.Exp(l[0]-stats.Mean(l[1:])))
		if arms > 2 {
			controls = append(controls, turn{l[2], l[1]})
		}
	}
	row.P, row.sign = alignedRanks(logs, 0).p(steps)
	row.interval = func(wrong float64) *Estimate { return newShift(logs, wrong) }
	row.visible = func(wrong float64) float64 { return visible(logs, wrong/2) }
	if controls != nil {
		row.controlP, _ = alignedRanks(controls, 0).p(steps)
		row.control = func() *Estimate { return newShift(controls, 1-Level) }
	}
	return row, true
}

// More reports whether the values of B are rather higher than those of A.
func (row *Row) More() bool { return row.sign > 0 }

// estimate works out the ratios, which takes a hundred times as long as the tests.
func (row *Row) estimate() {
	if row.interval != nil && row.Ratio == nil {
		row.Ratio = row.interval(1 - Level)
	}
	if row.control != nil && row.Control == nil {
		row.Control = row.control()
	}
}

// means compares the means of values of which some are 0.
func (row *Row) means(a, b []float64) {
	x, y := stats.Mean(a), stats.Mean(b)
	row.Means, row.A, row.B = true, Estimate{Center: x, N: len(a)}, Estimate{Center: y, N: len(b)}
	if x > 0 && y >= 0 {
		row.Ratio = &Estimate{Center: y / x, N: min(len(a), len(b))}
	}
}

// newShift returns how many times as much B has, of whose figures and those of the other arms turns has logarithms.
func newShift(turns []turn, wrong float64) *Estimate {
	center, interval := shifts(turns, wrong/2)
	e := &Estimate{Center: math.Exp(center), N: len(turns)}
	if interval != nil {
		e.Interval = []float64{math.Exp(interval[0]), math.Exp(interval[1])}
	}
	return e
}

// Sides compares results that come from runs of their own, by the figures that are primary.
func Sides(a, b [][]results.Figure, primary []string) *Delta {
	d := &Delta{}
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
		x, y := values(a, f.Name), values(b, f.Name)
		row, ok := newRow(f, x, y)
		if !ok {
			continue
		}
		row.Primary = slices.Contains(primary, f.Name) || row.Loss()
		row.P = benchmath.AssumeNothing.Compare(sample(x), sample(y)).P
		row.least = min(1, 2/mathx.Choose(len(x)+len(y), len(x)))
		row.interval = func(wrong float64) *Estimate { return shift(x, y, wrong) }
		row.visible = func(wrong float64) float64 { return visibleBeside(row.interval, wrong) }
		if row.Ratio = row.interval(1 - Level); row.Ratio == nil {
			row.means(x, y)
		}
		row.sign = row.B.Center - row.A.Center
		row.A.AtLeast, row.B.AtLeast = atLeast(a, f.Name), atLeast(b, f.Name)
		d.Rows = append(d.Rows, row)
	}
	d.conclude(fmt.Sprintf("%d and %s", len(a), results.Plural(int64(len(b)), "run")), func(p float64) int {
		n := 1
		for 2/mathx.Choose(2*n, n) > p {
			n++
		}
		return n
	})
	return d
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

func values(side [][]results.Figure, name string) (out []float64) {
	for _, figures := range side {
		for _, f := range figures {
			if f.Name == name {
				out = append(out, f.Value)
			}
		}
	}
	return out
}

// atLeast reports whether some value of a figure is a lower bound.
func atLeast(side [][]results.Figure, name string) bool {
	return slices.ContainsFunc(slices.Concat(side...), func(f results.Figure) bool {
		return f.Name == name && f.AtLeast
	})
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

// shift returns how many times as large values of y are as those of x, by Hodges and Lehmann: the median of the ratios
// of each y to each x. Its interval has the ratios with which a Mann-Whitney U test sees no difference (Hollander and
// Wolfe, Nonparametric Statistical Methods, section 4.3, by the normal approximation), where that is wrong with a
// probability of wrong. It is nil if x has too many values of 0.
func shift(x, y []float64, wrong float64) *Estimate {
	x, y = slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y))
	pairs := len(x) * len(y)
	e := &Estimate{Center: (place(x, y, (pairs-1)/2) + place(x, y, pairs/2)) / 2, N: min(len(x), len(y))}
	if math.IsInf(e.Center, 0) {
		return nil
	}
	n, m := float64(len(x)), float64(len(y))
	// So many ratios lie below the interval, and above.
	outside := int(n*m/2 - deviations(wrong/2)*math.Sqrt(n*m*(n+m+1)/12))
	if e.N >= FewestRuns && outside > 0 {
		low, high := place(x, y, outside-1), place(x, y, pairs-outside)
		if !math.IsInf(high, 0) {
			e.Interval = []float64{low, high}
		}
	}
	return e
}

// visibleBeside is Row.visible of sides that did not take turns. A change is found if the interval does not have 1 in
// it. Its end lies half its width from the estimate, which in nine of ten cases is short of the truth by no more than
// its standard error allows.
func visibleBeside(interval func(wrong float64) *Estimate, wrong float64) float64 {
	sure, usual := interval(wrong), interval(1-Level)
	if sure == nil || sure.Interval == nil || sure.Interval[0] <= 0 || usual.Interval == nil {
		return 0
	}
	center := math.Log(sure.Center)
	return farthest(sure, center) + deviations(1-Found)*farthest(usual, center)/deviations((1-Level)/2)
}

// deviations returns how many standard deviations above the mean so large a share of a normal distribution begins.
func deviations(share float64) float64 { return -stats.InvCDF(stats.StdNormal)(share) }

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

// ExcludesOne reports whether a ratio differs from 1 by more than noise.
func (e *Estimate) ExcludesOne() bool {
	return e.Interval != nil && (e.Interval[0] > 1 || e.Interval[1] < 1)
}

// Direction says what a change of a figure means, given which direction is better.
func Direction(better results.Direction, change float64) Verdict {
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
	c.Conclusion = Conclusion{Verdict: Unknown, Text: "cannot tell: " + why}
	for i := range c.Rows {
		r := &c.Rows[i]
		r.P, r.Adjusted, r.Within, r.Visible, r.Verdict = 1, 1, 0, 0, Unknown
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
