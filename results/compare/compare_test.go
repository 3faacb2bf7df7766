package compare

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"neokv.dev/results"
)

func figures(throughput, cpu float64) []results.Figure {
	return []results.Figure{
		{Name: "throughput", Unit: "ops/s", Kind: results.Timed, Better: results.Higher, Value: throughput},
		{Name: "CPU", Unit: "us/op", Kind: results.CPUTime, Better: results.Lower, Value: cpu},
	}
}

// noisy makes rounds in which B is faster and cheaper than A by factors, on a machine whose speed varies from round to
// round and from block to block.
func noisy(random *rand.Rand, n int, faster, cheaper, again float64) (rounds []Round) {
	for range n {
		round := math.Exp(0.2 * random.NormFloat64())
		block := func() float64 { return round * math.Exp(0.03*random.NormFloat64()) }
		rounds = append(rounds, Round{
			A: figures(1000*block(), 50*block()), B: figures(1000*faster*block(), 50*cheaper*block()),
			Control: figures(1000*again*block(), 50*block()),
		})
	}
	return rounds
}

func TestRounds(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, x := range []struct {
		name                    string
		rounds                  int
		faster, cheaper, again  float64
		throughput, cpu         Verdict
		atLeast, atMost, seenTo float64 // of the ratio of throughput, and of what it could have seen
		says                    string
	}{
		{"nothing", 20, 1, 1, 1, Same, Same, .97, 1.03, .06,
			`^no difference larger than [1-5]\.. % in throughput and CPU$`},
		{"faster and cheaper", 20, 1.2, .8, 1, Better, Better, 1.15, 1.25, .06,
			`^B is better in throughput \(\+[12].\.. % of [0-9,]+ ops/s\) and CPU \(-[12].\.. % of .* us\)$`},
		{"slower and dearer", 20, .8, 1.2, 1, Worse, Worse, .77, .83, .06, "^B is worse in throughput .* and CPU"},
		{"faster and dearer", 20, 1.2, 1.2, 1, Better, Worse, 1.15, 1.25, .06,
			"^B is better in throughput .*, worse in CPU"},
		{"faster", 20, 1.2, 1, 1, Better, Same, 1.15, 1.25, .06,
			"^B is better in throughput .*; no difference larger than .* % in CPU$"},
		{"something else", 20, 1.1, 1, 1.1, Same, Same, 1, 1.1, .12,
			"^cannot tell: A and its copy differ, throughput by"},
		{"a little of something else", 20, 2, 1, 1.1, Better, Same, 1.8, 2, .12, "^B is better in throughput"},
		{"five rounds", 5, 2, 1, 1, TooFew, TooFew, 1.8, 2.2, 0,
			"^cannot tell: 5 rounds, and a conclusion about 2 figures takes 6$"},
	} {
		d := Rounds(noisy(random, x.rounds, x.faster, x.cheaper, x.again), []string{"throughput", "CPU"})
		rows := d.Rows
		if len(rows) != 2 || rows[0].Name != "throughput" || rows[1].Name != "CPU" {
			t.Fatalf("%s: rows %+v", x.name, rows)
		}
		r := rows[0]
		if r.Verdict != x.throughput || rows[1].Verdict != x.cpu {
			t.Errorf("%s: throughput %s, CPU %s; want %s, %s", x.name, r.Verdict, rows[1].Verdict, x.throughput, x.cpu)
		}
		if r.Ratio.Center < x.atLeast || r.Ratio.Center > x.atMost || r.Visible > x.seenTo {
			t.Errorf("%s: %+v, it could see %g; want %g to %g, %g", x.name, r.Ratio, r.Visible, x.atLeast, x.atMost,
				x.seenTo)
		}
		if !regexp.MustCompile(x.says).MatchString(d.Conclusion.Text) {
			t.Errorf("%s: %q, want %s", x.name, d.Conclusion.Text, x.says)
		}
	}
}

// TestDiscreteCounts: a count that never varies differs if it does so in every round, and a count that only one side
// has has no ratio.
func TestDiscreteCounts(t *testing.T) {
	count := func(v float64) []results.Figure {
		return []results.Figure{{Name: "syncs", Kind: results.Counted, Better: results.Lower, Value: v}}
	}
	for _, x := range []struct {
		a, b float64
		want Verdict
	}{{2, 2, Same}, {2, 3, Worse}, {3, 2, Better}, {0, 1, Worse}, {1, 0, Better}} {
		var rounds []Round
		for range 6 {
			rounds = append(rounds, Round{A: count(x.a), B: count(x.b), Control: count(x.a)})
		}
		rows := Rounds(rounds, nil).Rows
		if len(rows) != 1 || rows[0].Verdict != x.want {
			t.Errorf("%g and %g: %+v, want %s", x.a, x.b, rows, x.want)
		}
		if text, err := json.Marshal(rows); err != nil {
			t.Errorf("%g and %g: %v %s", x.a, x.b, err, text)
		}
	}
	if rows := Rounds([]Round{{A: count(0), B: count(0)}}, nil).Rows; rows != nil {
		t.Errorf("a figure that is 0 on both sides has a row: %+v", rows)
	}
}

func TestSides(t *testing.T) {
	var a, b [][]results.Figure
	for i := range 5 {
		a, b = append(a, figures(100+float64(i), 10)), append(b, figures(200+float64(i), 10))
	}
	rows := Sides(a, b, nil).Rows
	// Two samples of five of which one lies above the other: the least p-value there is, 2 of 252 ways.
	if r := rows[0]; r.Verdict != Better || math.Abs(r.P-2./252) > 1e-9 || r.Ratio.Center < 1.9 || r.Ratio.Center > 2 {
		t.Errorf("%+v", r)
	}
	if r := rows[1]; r.Verdict != Same {
		t.Errorf("%+v", r)
	}
	if r := Sides(a[:3], b[:3], nil).Rows[0]; r.Verdict != TooFew {
		t.Errorf("three of each: %+v", r)
	}
}

// TestShift: the ratio and its interval are those of all pairs, and the interval holds the truth as often as it should.
func TestShift(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	held := 0
	const runs = 1000
	for range runs {
		n, m := 1+random.IntN(12), 1+random.IntN(12)
		var x, y, ratios []float64
		for range n {
			x = append(x, math.Exp(random.NormFloat64()))
		}
		for range m {
			y = append(y, 3*math.Exp(random.NormFloat64()))
			for _, a := range x {
				ratios = append(ratios, y[len(y)-1]/a)
			}
		}
		slices.Sort(ratios)
		for at, want := range ratios {
			if got := place(slices.Sorted(slices.Values(x)), slices.Sorted(slices.Values(y)), at); got != want {
				t.Fatalf("place %d of %v / %v: %g, want %g", at, y, x, got, want)
			}
		}
		e := shift(x, y, 1-Level)
		if (e.Interval != nil) != (min(n, m) >= FewestRuns) {
			t.Fatalf("%d and %d values: interval %v", n, m, e.Interval)
		}
		if e.Interval == nil || e.Interval[0] <= 3 && 3 <= e.Interval[1] {
			held++
		}
	}
	if held < runs*95/100 {
		t.Errorf("%d of %d intervals hold the ratio, want 95 %%", held, runs)
	}
	for _, c := range []struct {
		x, y []float64
		want *Estimate
	}{
		{[]float64{0, 0, 0, 0}, []float64{1, 1, 1, 1}, nil},
		{[]float64{0, 0, 0, 0}, []float64{0, 0, 0, 0}, &Estimate{Center: 1, Interval: []float64{1, 1}, N: 4}},
		{[]float64{0, 2, 2, 2}, []float64{2, 2, 2, 2}, &Estimate{Center: 1, N: 4}}, // no interval: some ratios are none
		{[]float64{2, 2, 2, 2}, []float64{0, 1, 1, 1}, &Estimate{Center: .5, Interval: []float64{0, .5}, N: 4}},
	} {
		if got := shift(c.x, c.y, 1-Level); !reflect.DeepEqual(got, c.want) {
			t.Errorf("shift(%v, %v) = %+v; want %+v", c.x, c.y, got, c.want)
		}
	}
}

func TestRunFile(t *testing.T) {
	var file bytes.Buffer
	keep := func(line any) error { return results.WriteLine(&file, "file of blocks", line) }
	err := keep(TurnsHeader{Format: FileFormat, A: "as it is", B: "x.y=1", Control: true, Seed: 7})
	if err != nil {
		t.Fatal(err)
	}
	summary := func(perSecond float64) results.Summary {
		return results.Summary{
			Warnings: []string{results.Count(int64(9.95*perSecond)) + " times"},
			Groups: []results.GroupSummary{{
				GroupStats: results.GroupStats{Name: "set", Total: results.OpStats{Count: 10, PerSecond: perSecond}},
			}},
		}
	}
	for round := range 7 {
		for i, side := range []Side{SideA, SideB, SideAgain} {
			if round == 6 && side == SideAgain {
				break // the last round is cut short
			}
			err = errors.Join(err, keep(Block{Round: round, Side: side, Summary: summary(float64(100 + i))}))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	whole := file.String()
	for name, text := range map[string]string{"whole": whole, "cut off": whole + `{"round":7,"si`} {
		run, err := ReadTurns(strings.NewReader(text))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		c := run.Compare()
		if r := c.Row("throughput"); c.Rounds != 6 || r == nil || r.A.Center != 101 || r.B.Center != 101 ||
			r.A.N != 12 {
			t.Errorf("%s: %+v", name, c)
		}
		if len(c.Warnings) != 1 || !strings.HasPrefix(c.Warnings[0], "20 of 20 blocks, the first: 994 times") {
			t.Errorf("%s: warnings %q", name, c.Warnings)
		}
	}
	if _, err := ReadTurns(strings.NewReader(`{"header":{"format":3}}`)); !errors.Is(err, results.ErrOtherFile) {
		t.Errorf("a result file: %v", err)
	}
	lines := slices.Collect(strings.Lines(whole))
	lines[3] = "{\n"
	_, err = ReadTurns(strings.NewReader(strings.Join(lines, "")))
	if err == nil || !strings.Contains(err.Error(), "line 4") {
		t.Errorf("a broken line in the middle: %v", err)
	}
	other := strings.Replace(whole, `"blocks_format":2`, `"blocks_format":1,"seed":"of another type"`, 1)
	if _, err := ReadTurns(strings.NewReader(other)); err == nil ||
		err.Error() != "line 1: blocks format 1, this program reads 2" {
		t.Errorf("another format: %v", err)
	}
}

// TestComparable: whatever makes a load another one keeps results from being compared.
func TestComparable(t *testing.T) {
	h := func() *results.Header {
		return &results.Header{Groups: []results.ClientGroup{{Name: "w.yaml", Workload: "w.yaml", Clients: 2,
			Pipeline: 4, Content: results.ContentOf([]byte("a"))}}, Seed: 1}
	}
	for want, change := range map[string]func(*results.Header){
		"": func(h *results.Header) {
			h.Seed, h.Duration, h.Command, h.Settings = 2, 3, []string{"x"}, map[string]string{"a": "b"}
		},
		"contents: sha256 ": func(h *results.Header) { h.Groups[0].Content = results.ContentOf([]byte("b")) },
		"a pipeline goes to: wherever its keys are and one node": func(h *results.Header) {
			h.Groups[0].OneNode = true
		},
		"a pipeline goes to: wherever its keys are and one slot": func(h *results.Header) {
			h.Groups[0].OneSlot = true
		},
		"schedule: (none) and 1 event, 1 fault among them: 1s kill 2": func(h *results.Header) {
			h.Schedule = results.NewSchedule([]string{"1s kill 2"}, 1)
		},
		"reads back: no and yes":          func(h *results.Header) { h.Verify = true },
		"search: (none) and many rates":   func(h *results.Header) { h.Search = "many rates" },
		"records loaded: by the run and ": func(h *results.Header) { h.LoadedBefore = true },
		"clients: 2 and 3":                func(h *results.Header) { h.Groups[0].Clients = 3 },
		"rate: closed loop and 5 op":      func(h *results.Header) { h.Groups[0].Rate = "5" },
	} {
		x := h()
		change(x)
		if err := Comparable(h(), x); (err == nil) != (want == "") ||
			err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
}

// TestMarkdown: what a user named cannot break out of its place.
func TestMarkdown(t *testing.T) {
	c := Rounds(noisy(rand.New(rand.NewPCG(1, 1)), 6, 1, 1, 1), nil)
	c.A, c.B = "a`b|c", "<b>"
	var out bytes.Buffer
	if err := c.PrintMarkdown(&out); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(out.String()) {
		if strings.HasPrefix(line, "|") && strings.Count(line, "|") != 9 {
			t.Errorf("a row of %d cells: %s", strings.Count(line, "|")-1, line)
		}
	}
	if !strings.Contains(out.String(), "A: `a'b|c`") {
		t.Errorf("got %s", out.String())
	}
}

// TestOneRound: one round is no rounds, and one run is no runs.
func TestOneRound(t *testing.T) {
	side := []results.Figure{{Name: "p99", Unit: "us", Better: results.Lower, Value: 100}}
	sides := [][]results.Figure{side}
	for d, want := range map[*Delta]string{
		Rounds([]Round{{A: side, B: side}}, []string{"p99"}):                "1 round",
		Rounds([]Round{{A: side, B: side, Control: side}}, []string{"p99"}): "1 round",
		Sides(sides, sides, []string{"p99"}):                                "1 and 1 run",
	} {
		if c := d.Conclusion.Text; !strings.HasPrefix(c, "cannot tell: "+want+", and a conclusion about 1 figure ") {
			t.Errorf("the conclusion %q, want %q in it", c, want)
		}
		note := d.Notes()[0]
		if !strings.HasPrefix(note, want+" of A") && !strings.HasPrefix(note, want+", which") {
			t.Errorf("the note %q, want %q in it", note, want)
		}
	}
}
