package compare

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"neokv.dev/results"
)

// Wrong is the share of comparisons of sides that do not differ in which the conclusion may say that they do. The
// primary figures share it by Holm's method (Scandinavian Journal of Statistics 1979).
const Wrong = 0.01

// FalseDiscoveries is the share that may be false of the exploratory figures which are said to differ, by the method of
// Benjamini and Hochberg (Journal of the Royal Statistical Society B 1995).
const FalseDiscoveries = 0.05

// vague is a change, as a share: where a larger one may be hidden, nobody can tell.
const vague = 0.25

// Found is how often a change of Visible is found.
const Found = 0.9

// Conclusion is what the primary figures say together.
type Conclusion struct {
	// Verdict is Better, Worse or Differs; Same; Contaminated or Unknown.
	Verdict Verdict `json:"verdict"`
	// Text is a sentence for people.
	Text string `json:"text"`
	// Power says which changes would have been found; empty if that is not known.
	Power string `json:"power,omitempty"`
}

// Primary returns the figures that make the conclusion about a load, unless a user names others.
func Primary(h *results.Header) (out []string) {
	for _, g := range h.Groups {
		prefix := ""
		if len(h.Groups) > 1 {
			prefix = g.Name + " "
		}
		for _, name := range []string{"throughput", "rate reached", "p50", "p99"} {
			out = append(out, prefix+name)
		}
	}
	return append(out, "CPU")
}

// losses are shares of operations that have no good answer. They are primary wherever there are some.
var losses = []string{"errors", "unanswered"}

// Loss reports whether a row is of operations that have no good answer.
func (row *Row) Loss() bool {
	return slices.ContainsFunc(losses, func(name string) bool {
		return row.Name == name || strings.HasSuffix(row.Name, " "+name)
	})
}

// muchLost is the share of operations that an arm may lose more than the other without being said to lose some.
const muchLost = 0.001

// losing returns the row in which an arm loses more operations than the other, nil if none does.
func (d *Delta) losing(arm func(*Row) (lost, other float64)) *Row {
	for i := range d.Rows {
		row := &d.Rows[i]
		lost, other := arm(row)
		if row.Loss() && lost > other && (lost-other > muchLost || row.P <= 1-Level) {
			return row
		}
	}
	return nil
}

// conclude gives each row its verdict, and all of them a conclusion. have says what there is to judge by; enough
// returns how many rounds or runs a p-value needs at least.
func (d *Delta) conclude(have string, enough func(p float64) int) {
	slices.SortStableFunc(d.Rows, func(a, b Row) int { return cmp.Compare(d.rank(a), d.rank(b)) })
	first := slices.IndexFunc(d.Rows, func(r Row) bool { return !r.Primary })
	if first < 0 {
		first = len(d.Rows)
	}
	primary, others := d.Rows[:first], d.Rows[first:]
	holm(primary)
	benjaminiHochberg(others)
	each := Wrong / float64(max(1, len(primary)))
	for i := range d.Rows {
		row := &d.Rows[i]
		level, least := FalseDiscoveries, FalseDiscoveries
		if row.Primary {
			level, least = Wrong, each
		}
		switch {
		case row.least > least:
			row.Verdict = TooFew
		case row.Adjusted <= level && (row.sign > 0 && row.A.AtLeast || row.sign < 0 && row.B.AtLeast):
			row.Verdict = Unknown // the smaller side may truly be the larger one
		case row.Adjusted <= level:
			row.Verdict = Direction(row.Better, row.sign)
		default:
			row.Verdict = Same
		}
		if row.Primary && row.Ratio != nil && row.Ratio.Interval != nil {
			row.bound(each)
		}
	}
	d.Conclusion = d.judge(primary, have, enough(each))
	d.Conclusion.Power = Power(primary)
}

func (d *Delta) rank(r Row) int {
	if r.Primary {
		return 0
	}
	return 1
}

// bound works out what the level of the conclusion leaves possible and would have found.
func (row *Row) bound(wrong float64) {
	sure := row.interval(wrong)
	if sure == nil || sure.Interval == nil || sure.Interval[0] <= 0 {
		return
	}
	row.Within, row.bounded = math.Expm1(farthest(sure, 0)), true
	row.Visible = row.VisibleAt(wrong)
}

// VisibleAt is Visible of a test that finds with a probability of wrong what is not there. It is 0 if that is not
// known.
func (row *Row) VisibleAt(wrong float64) float64 {
	if row.visible == nil {
		return 0
	}
	return math.Expm1(row.visible(wrong))
}

// farthest returns how far the logarithms of the ends of an interval lie from that of a ratio.
func farthest(e *Estimate, from float64) float64 {
	return max(math.Abs(math.Log(e.Interval[0])-from), math.Abs(math.Log(e.Interval[1])-from))
}

// holm adjusts p-values such that of figures of which none differs one is below a level with that probability at most.
func holm(rows []Row) {
	worst := 0.0
	for i, k := range byP(rows) {
		worst = max(worst, min(1, float64(len(rows)-i)*rows[k].P))
		rows[k].Adjusted = worst
	}
}

// benjaminiHochberg adjusts p-values such that of those below a level that share is false.
func benjaminiHochberg(rows []Row) {
	least := 1.0
	for i, k := range slices.Backward(byP(rows)) {
		least = min(least, float64(len(rows))/float64(i+1)*rows[k].P)
		rows[k].Adjusted = least
	}
}

// byP returns the places of rows in the order of their p-values.
func byP(rows []Row) []int {
	order := make([]int, len(rows))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(i, k int) int { return cmp.Compare(rows[i].P, rows[k].P) })
	return order
}

// judge puts the primary rows together.
func (d *Delta) judge(primary []Row, have string, enough int) Conclusion {
	cannot := func(v Verdict, format string, args ...any) Conclusion {
		return Conclusion{Verdict: v, Text: "cannot tell: " + fmt.Sprintf(format, args...)}
	}
	if len(primary) == 0 {
		return cannot(Unknown, "no primary figure was measured on both sides")
	}
	if slices.ContainsFunc(primary, func(r Row) bool { return r.Verdict == TooFew }) {
		return cannot(Unknown, "%s, and a conclusion about %s takes %d", have,
			results.Plural(int64(len(primary)), "figure"), enough)
	}
	if row := contaminated(primary); row != nil {
		for i := range d.Rows {
			if r := &d.Rows[i]; r.Verdict != Same && r.Verdict != TooFew {
				r.Verdict = Contaminated
			}
		}
		return cannot(Contaminated, "A and its copy differ, %s by %s, so something else has changed, too", row.Name,
			Percent(row.Control.Center))
	}
	for _, arm := range []struct {
		name, other string
		ahead       Verdict
		of          func(*Row) (lost, other float64)
	}{
		{"B", "A", Better, func(r *Row) (float64, float64) { return r.B.Center, r.A.Center }},
		{"A", "B", Worse, func(r *Row) (float64, float64) { return r.A.Center, r.B.Center }},
	} {
		lost := d.losing(arm.of)
		if lost == nil {
			continue
		}
		vetoed := slices.ContainsFunc(primary, func(r Row) bool { return r.Verdict == Unknown })
		for i := range d.Rows {
			if r := &d.Rows[i]; r.Verdict == arm.ahead && !r.Loss() {
				r.Verdict, vetoed = Unknown, vetoed || r.Primary
			}
		}
		if vetoed && lost.Verdict == Same {
			mine, theirs := arm.of(lost)
			return cannot(Unknown, "%s has %.2g %s/op, %s %.2g, and an arm that loses operations is not better",
				arm.name, mine, lost.Name, arm.other, theirs)
		}
	}
	return concluded(primary)
}

// contaminated returns a primary row in which the copy of A differs from A, by more than half of what B does.
func contaminated(primary []Row) *Row {
	copies := slices.Clone(primary)
	for i := range copies {
		copies[i].P = copies[i].controlP
	}
	holm(copies)
	for i := range copies {
		r := &copies[i]
		if r.control == nil || r.Adjusted > Wrong {
			continue
		}
		if r.estimate(); 2*math.Abs(math.Log(r.Control.Center)) > math.Abs(math.Log(r.Ratio.Center)) {
			return r
		}
	}
	return nil
}

// concluded says what primary rows have found.
func concluded(primary []Row) Conclusion {
	var claims [3][]string // better, worse, differs
	var same, bounds []string
	within, where := 0.0, ""
	verdicts, words := []Verdict{Better, Worse, Differs}, []string{"better", "worse", "different"}
	for i := range primary {
		r := &primary[i]
		if k := slices.Index(verdicts, r.Verdict); k >= 0 {
			claims[k] = append(claims[k], r.claim())
			continue
		}
		if r.Verdict == Unknown {
			bounds = append(bounds, r.Name)
		}
		if r.Verdict != Same || r.Means {
			continue
		}
		same = append(same, r.Name)
		most := r.Within
		if !r.bounded {
			most = math.Inf(1)
		}
		if most > within {
			within, where = most, r.Name
		}
	}
	rest := fmt.Sprintf("no difference larger than %s in %s", share(within), list(same))
	switch {
	case math.IsInf(within, 1):
		rest = fmt.Sprintf("cannot tell: too few values to say how much of a change %s may hide", where)
	case within > vague:
		rest = fmt.Sprintf("cannot tell: %s may hide a change of %s", where, share(within))
	}
	c := Conclusion{Verdict: Same, Text: rest}
	var said []string
	for k, claims := range claims {
		if claims == nil {
			continue
		}
		said = append(said, words[k]+" in "+list(claims))
		if c.Verdict = verdicts[k]; len(said) > 1 {
			c.Verdict = Differs
		}
	}
	switch {
	case said != nil:
		c.Text = "B is " + strings.Join(said, ", ")
		if same != nil {
			c.Text += "; " + rest
		}
	case bounds != nil:
		c = Conclusion{Verdict: Unknown,
			Text: fmt.Sprintf("cannot tell: of the lesser %s only a lower bound is known", list(bounds))}
	case same == nil:
		c = Conclusion{Verdict: Unknown, Text: "cannot tell: the noise is larger than any difference"}
	case within > vague:
		c.Verdict = Unknown
	}
	return c
}

// claim says by how much B differs, and from what.
func (row *Row) claim() string {
	from := results.FigureText(row.A.Center, row.Unit)
	if row.Means || row.Ratio == nil {
		return fmt.Sprintf("%s (%s in place of %s)", row.Name, results.FigureText(row.B.Center, row.Unit), from)
	}
	return fmt.Sprintf("%s (%s of %s)", row.Name, Percent(row.Ratio.Center), from)
}

// Power says which changes runs find like that of the rows; "" if that is not known.
func Power(rows []Row) string {
	var seen []string
	for _, r := range rows {
		if r.Visible > 0 {
			seen = append(seen, fmt.Sprintf("%s in %s", share(r.Visible), r.Name))
		}
	}
	if seen == nil {
		return ""
	}
	return "nine of ten such runs find a change of " + list(seen)
}

// share prints a share as a percentage, or as a factor if it is large.
func share(s float64) string {
	if s >= 1 {
		return Percent(1 + s)
	}
	return fmt.Sprintf("%.1f %%", 100*s)
}

// list joins words as a sentence has them.
func list(words []string) string {
	if n := len(words); n > 1 {
		return strings.Join(words[:n-1], ", ") + " and " + words[n-1]
	}
	return strings.Join(words, "")
}
