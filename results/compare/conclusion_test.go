package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"strings"
	"testing"

	"neokv.dev/results"
)

// table makes the rows of a table of figures, each with a noise of its own kind, of which some are primary. Of the
// first B has a change.
func table(r *rand.Rand, rounds, primary, others int, change float64) (rows []Row) {
	for i := range primary + others {
		n := noises[i%len(noises)]
		turns := n.rounds(r, rounds, 3, change)
		low, high := alignedRanks(turns, 0).tails(quick)
		rows = append(rows, Row{Name: fmt.Sprint(i), Better: results.Lower, Primary: i < primary, P: min(1, 2*min(low, high)),
			sign: low - high})
		change = 0
	}
	return rows
}

// TestFalseConclusions: of tables in which nothing differs, the conclusion claims a difference in one of a hundred at
// most, and any of the other rows in one of twenty.
func TestFalseConclusions(t *testing.T) {
	t.Logf("seed %d, %d tables of 4 primary figures and 16 others", *seed, *trials)
	random := rand.New(rand.NewPCG(*seed, 4))
	for _, rounds := range []int{7, 12} {
		concluded, explored, single := 0, 0, 0
		for range *trials {
			d := &Delta{Rows: table(random, rounds, 4, 16, 0)}
			d.conclude("", func(float64) int { return 0 })
			claims := func(r Row) bool { return r.Verdict == Better || r.Verdict == Worse }
			count := func(n *int, any bool) {
				if any {
					*n++
				}
			}
			count(&concluded, d.Conclusion.Verdict == Better || d.Conclusion.Verdict == Worse || d.Conclusion.Verdict == Differs)
			alone, other := false, false
			for _, r := range d.Rows {
				alone = alone || r.P <= 1-Level
				other = other || !r.Primary && claims(r)
			}
			count(&single, alone)
			count(&explored, other)
		}
		t.Logf("%d rounds: %d conclusions, %d tables with an exploratory claim, %d with a row that differs by itself", rounds,
			concluded, explored, single)
		if concluded > most(Wrong) || explored > most(FalseDiscoveries) {
			t.Errorf("%d rounds: of %d tables without a difference %d conclude that there is one, %d explore one", rounds,
				*trials, concluded, explored)
		}
	}
}

// TestVisible: nine of ten runs find a change as large as runs say that they would.
func TestVisible(t *testing.T) {
	random := rand.New(rand.NewPCG(*seed, 5))
	const figures, estimates = 4, 60
	for _, n := range noises[:2] {
		for _, rounds := range []int{10, 30} {
			finds, all := 0, 0
			for range estimates {
				turns := n.rounds(random, rounds, 3, 0)
				row := Row{interval: func(wrong float64) *Estimate { return newShift(turns, wrong) }}
				row.Ratio = row.interval(1 - Level)
				row.bound(Wrong / figures)
				for range max(1, *trials/10) {
					low, high := alignedRanks(n.rounds(random, rounds, 3, math.Log1p(row.Visible)), 0).tails(quick)
					if all++; 2*min(low, high) <= Wrong/figures {
						finds++
					}
				}
			}
			share := float64(finds) / float64(all)
			t.Logf("%s, %d rounds: %.3f of changes found that nine of ten runs were said to find", n.name, rounds, share)
			if share < .75 || share > .97 {
				t.Errorf("%s, %d rounds: %.3f, want about 0.9", n.name, rounds, share)
			}
		}
	}
}

// TestLosses: an arm that loses operations is not better, and a figure that is mostly zero has a verdict.
func TestLosses(t *testing.T) {
	for _, x := range []struct {
		name     string
		lost     func(round int) (a, b, again float64)
		faster   float64
		latency  Verdict
		want     Verdict
		says     string
		rounds   int
		warnings string
	}{
		{"none", func(int) (a, b, again float64) { return 0, 0, 0 }, 1.5, Better, Better, "^B is better in p99", 12, ""},
		{"B loses some", func(int) (a, b, again float64) { return 0, .02, 0 }, 1.5, Unknown, Worse,
			`^B is worse in errors \(0.02`, 12, ""},
		{"B loses some in one round", func(i int) (a, b, again float64) {
			if i == 3 {
				return 0, .3, 0
			}
			return 0, 0, 0
		}, 1.5, Unknown, Unknown, `^cannot tell: B has 0.025 errors/op, A 0, and an arm that loses operations is not better$`, 12, ""},
		{"A loses some", func(int) (a, b, again float64) { return .02, 0, .02 }, 1 / 1.5, Unknown, Better,
			`^B is better in errors`, 12, ""},
		{"both lose as much", func(int) (a, b, again float64) { return .02, .02, .02 }, 1.5, Better, Better, "^B is better in p99",
			12, ""},
		{"B answers nothing", func(int) (a, b, again float64) { return 0, 1, 0 }, 0, "", Worse, "^B is worse in errors", 12,
			"12 of 12 rounds lack p99 of an arm and are left out there"},
	} {
		random := rand.New(rand.NewPCG(1, 6))
		var rounds []Round
		for i := range x.rounds {
			a, b, again := x.lost(i)
			side := func(lost, speed float64) []results.Figure {
				out := []results.Figure{{Name: "errors", Unit: "/op", Better: results.Lower, Value: lost}}
				if speed > 0 {
					out = append(out, results.Figure{Name: "p99", Unit: "us", Better: results.Lower,
						Value: (1000 + 10*random.Float64()) / speed})
				}
				return out
			}
			rounds = append(rounds, Round{A: side(a, 1), B: side(b, x.faster), Control: side(again, 1)})
		}
		d := Rounds(rounds, []string{"p99"})
		var latency Verdict
		if r := d.Row("p99"); r != nil {
			latency = r.Verdict
		}
		if latency != x.latency || d.Conclusion.Verdict != x.want ||
			!regexp.MustCompile(x.says).MatchString(d.Conclusion.Text) ||
			strings.Join(d.Warnings, "; ") != x.warnings {
			t.Errorf("%s: p99 %q, %+v, warnings %q; want %q, %q %s", x.name, latency, d.Conclusion, d.Warnings, x.latency,
				x.want, x.says)
		}
	}
}

// TestLowerBounds: a percentile of which only a lower bound is known is not less than another one.
func TestLowerBounds(t *testing.T) {
	for _, x := range []struct {
		a, b       float64
		inA, inB   bool
		want       Verdict
		says, cell string
	}{
		{100, 50, false, false, Better, "^B is better in p99", "50 us"},
		{100, 50, false, true, Unknown, "^cannot tell: of the lesser p99 only a lower bound is known$", ">= 50 us"},
		{50, 100, false, true, Worse, "^B is worse in p99", ">= 100 us"},
		{50, 100, true, true, Unknown, "^cannot tell", ">= 100 us"},
		{100, 50, true, false, Better, "^B is better in p99", "50 us"},
	} {
		var rounds []Round
		var a, b [][]results.Figure
		for i := range 12 {
			p99 := func(v float64, atLeast bool) []results.Figure {
				return []results.Figure{{Name: "p99", Unit: "us", Better: results.Lower, Value: v, AtLeast: atLeast && i == 5}}
			}
			rounds = append(rounds, Round{A: p99(x.a, x.inA), B: p99(x.b, x.inB), Control: p99(x.a, false)})
			a, b = append(a, rounds[i].A), append(b, rounds[i].B)
		}
		for _, d := range []*Delta{Rounds(rounds, []string{"p99"}), Sides(a, b, []string{"p99"})} {
			if r := &d.Rows[0]; r.Verdict != x.want || !regexp.MustCompile(x.says).MatchString(d.Conclusion.Text) ||
				d.Cells(r)[2] != x.cell {
				t.Errorf("%+v: %q, %q in the cell", x, d.Conclusion.Text, d.Cells(r))
			}
		}
	}
}

// TestPercent: changes read as times where they are large.
func TestPercent(t *testing.T) {
	for ratio, want := range map[float64]string{
		1: "+0.0 %", 1.03: "+3.0 %", 0.318: "-68.2 %", 1.0001: "+0.010 %", 1.99: "+99.0 %", 2: "x2.00", 12.34: "x12.3",
		190.81: "x191", 18981: "x18,981", .05: "x0.05", 0: "-100.0 %",
	} {
		if got := Percent(ratio); got != want {
			t.Errorf("Percent(%g) = %s; want %s", ratio, got, want)
		}
	}
	if got := (&Estimate{Interval: []float64{1.5, 2.5}}).Span(); got != "x1.50 to x2.50" {
		t.Errorf("an interval with a large end: %s", got)
	}
}

// TestTable: the first line is the conclusion, and what makes none stands apart.
func TestTable(t *testing.T) {
	d := Rounds(noisy(rand.New(rand.NewPCG(1, 1)), 20, 1, .8, 1), []string{"CPU"})
	d.A, d.B = "as it is", "x=1"
	var out, md strings.Builder
	if err := d.PrintTable(&out); err != nil {
		t.Fatal(err)
	}
	if err := d.PrintMarkdown(&md); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out.String(), "\n")
	for i, want := range []string{`^B is better in CPU \(-[12]\d\.\d % of \d\d\.\d us\)$`, `^nine of ten such runs find a change of \d\.\d % in CPU$`,
		"^$", "^A: as it is$", "^B: x=1$", "^$", "^figure .* adjusted p", "^CPU .*<0.001  better", "^exploratory: .* one in 20 ",
		"^throughput .* ~"} {
		if !regexp.MustCompile(want).MatchString(lines[i]) {
			t.Errorf("line %d is %q, want %s", i+1, lines[i], want)
		}
	}
	if !strings.HasPrefix(md.String(), "**B is better in CPU (-") || strings.Count(md.String(), "\n| figure ") != 2 {
		t.Errorf("Markdown:\n%s", md.String())
	}
	d.CannotTell("they did not take turns")
	if d.Conclusion.Text != "cannot tell: they did not take turns" || d.Row("CPU").Verdict != Unknown {
		t.Errorf("%+v", d)
	}
}
