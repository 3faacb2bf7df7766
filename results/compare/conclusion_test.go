package compare

import (
	"fmt"
	"math"
	"math/rand/v2"
	"regexp"
	"slices"
	"sort"
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
		rows = append(rows, Row{Name: fmt.Sprint(i), Better: results.Lower, Primary: i < primary,
			P: min(1, 2*min(low, high)), sign: low - high})
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
			count(&concluded, d.Conclusion.Verdict == Better || d.Conclusion.Verdict == Worse ||
				d.Conclusion.Verdict == Differs)
			alone, other := false, false
			for _, r := range d.Rows {
				alone = alone || r.P <= 1-Level
				other = other || !r.Primary && claims(r)
			}
			count(&single, alone)
			count(&explored, other)
		}
		t.Logf("%d rounds: %d conclusions, %d tables with an exploratory claim, %d with a row that differs by itself",
			rounds, concluded, explored, single)
		if concluded > most(Wrong) || explored > most(FalseDiscoveries) {
			t.Errorf("%d rounds: of %d tables without a difference %d conclude that there is one, %d explore one",
				rounds, *trials, concluded, explored)
		}
	}
}

// TestVisible: about nine of ten runs find a change as large as runs say that they would, at the level of a conclusion
// and at that of a single test.
func TestVisible(t *testing.T) {
	t.Logf("seed %d", *seed)
	random := rand.New(rand.NewPCG(*seed, 5))
	fresh, estimates := *trials/2, max(20, *trials/20)
	for _, c := range []struct {
		wrong  float64
		arms   int
		rounds []int
	}{
		{Wrong / 4, 3, []int{6, 7, 8, 10, 12, 24, 60}}, {Wrong / 4, 2, []int{9, 10, 11, 14, 24, 60}},
		{1 - Level, 3, []int{3, 4, 6, 10, 24}}, {1 - Level, 2, []int{5, 6, 8, 12, 24}},
	} {
		for _, n := range noises {
			for i, rounds := range c.rounds {
				draw := func() []turn { return n.rounds(random, rounds, c.arms, 0) }
				if v := visible(draw(), c.wrong/2); (i == 0) != (v == 0) {
					t.Errorf("level %g: %d rounds of %d arms say that they find a change of %g", c.wrong, rounds,
						c.arms, v)
				}
				if i == 0 || *trials < 1000 && (i > 1 || c.wrong > Wrong) { // the rest takes minutes
					continue
				}
				var need []float64 // in other runs
				for range fresh {
					need = append(need, least(draw(), c.wrong/2))
				}
				slices.Sort(need)
				share, sizes := 0.0, []float64{}
				for range estimates {
					v := visible(draw(), c.wrong/2)
					at, _ := slices.BinarySearch(need, v)
					share += float64(at) / float64(len(need)*estimates)
					sizes = append(sizes, v)
				}
				slices.Sort(sizes)
				truth, median := need[int(Found*float64(len(need)))], sizes[len(sizes)/2]
				t.Logf("level %g, %d arms, %-11s %2d rounds: %.3f found; the median says %.2f times the truth", c.wrong,
					c.arms, n.name, rounds, share, median/truth)
				if share < .8 || share > .995 {
					t.Errorf("level %g, %d arms, %s, %d rounds: %.3f of changes found that nine of ten runs were said "+
						"to find", c.wrong, c.arms, n.name, rounds, share)
				}
			}
		}
	}
}

// TestLevel: whatever the blocks of a table are, dealing them anew makes a false conclusion in at most 1 % of cases.
// This is no simulation: the share follows from the scores of the table.
func TestLevel(t *testing.T) {
	random := rand.New(rand.NewPCG(*seed, 7))
	// share returns how likely a test of one side is to find something.
	share := func(p places, level float64) float64 {
		varied, _, step := p.varied()
		most := 0
		for _, scores := range varied {
			most += slices.Max(scores) / max(step, 1)
		}
		k := sort.Search(most, func(k int) bool { return varied.exact(k*step, step) <= level })
		if x := varied.exact(k*step, step); x <= level {
			return x
		}
		return 0
	}
	for _, rounds := range []int{7, 8, 10, 12, 24} {
		sum, most := 0.0, 0.0
		tables := max(5, *trials/30)
		for range tables {
			wrong := 0.0
			for _, n := range noises {
				turns := n.rounds(random, rounds, 3, 0)
				if random.IntN(4) == 0 { // equal values
					for _, x := range turns {
						for i := range x {
							x[i] = math.Round(40 * x[i])
						}
					}
				}
				mirrored := make([]turn, len(turns))
				for i, x := range turns {
					for _, v := range x {
						mirrored[i] = append(mirrored[i], -v)
					}
				}
				for _, side := range [][]turn{turns, mirrored} {
					wrong += share(alignedRanks(side, 0), Wrong/float64(len(noises))/2)
				}
			}
			sum, most = sum+wrong, max(most, wrong)
		}
		t.Logf("%d rounds, %d tables: a false conclusion in %.3f %% of deals, %.3f %% of those of one table at most",
			rounds, tables, 100*sum/float64(tables), 100*most)
		if most > Wrong {
			t.Errorf("%d rounds: a table concludes falsely in %g of deals, want %g at most", rounds, most, Wrong)
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
		{"none", func(int) (a, b, again float64) { return 0, 0, 0 }, 1.5, Better, Better, "^B is better in p99", 12,
			""},
		{"B loses some", func(int) (a, b, again float64) { return 0, .02, 0 }, 1.5, Unknown, Worse,
			`^B is worse in errors \(0.02`, 12, ""},
		{"B loses some in one round", func(i int) (a, b, again float64) {
			if i == 3 {
				return 0, .3, 0
			}
			return 0, 0, 0
		}, 1.5, Unknown, Unknown,
			`^cannot tell: B has 0.025 errors/op, A 0, and an arm that loses operations is not better$`, 12, ""},
		{"A loses some", func(int) (a, b, again float64) { return .02, 0, .02 }, 1 / 1.5, Unknown, Better,
			`^B is better in errors`, 12, ""},
		{"both lose as much", func(int) (a, b, again float64) { return .02, .02, .02 }, 1.5, Better, Better,
			"^B is better in p99", 12, ""},
		{"B answers nothing", func(int) (a, b, again float64) { return 0, 1, 0 }, 0, "", Worse, "^B is worse in errors",
			12, "12 of 12 rounds lack p99 of an arm and are left out there"},
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
			t.Errorf("%s: p99 %q, %+v, warnings %q; want %q, %q %s", x.name, latency, d.Conclusion, d.Warnings,
				x.latency, x.want, x.says)
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
				return []results.Figure{{Name: "p99", Unit: "us", Better: results.Lower, Value: v,
					AtLeast: atLeast && i == 5}}
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
	for i, want := range []string{`^B is better in CPU \(-[12]\d\.\d % of \d\d\.\d us\)$`,
		`^nine of ten such runs find a change of \d\.\d % in CPU$`, "^$", "^A: as it is$", "^B: x=1$", "^$",
		"^figure .* adjusted p", "^CPU .*<0.001  better", "^exploratory: .* one in 20 ", "^throughput .* ~"} {
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
