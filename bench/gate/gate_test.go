package gate

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"math/rand/v2"
	"strings"
	"testing"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

func counts(syncs, bytes, probes float64) []results.Figure {
	return []results.Figure{
		{Name: "syncs", Unit: "/op", Kind: results.Counted, Better: results.Lower, Value: syncs},
		{Name: "WAL bytes", Unit: "B/op", Kind: results.Counted, Better: results.Lower, Value: bytes},
		{Name: "bloom probes", Unit: "/op", Kind: results.Counted, Value: probes},
	}
}

// TestJudgeCounts: a gain is seen as surely as a loss, and what varies by itself fails nothing.
func TestJudgeCounts(t *testing.T) {
	c := CountedCase{CountCase{Name: "x"}, summarize([][]results.Figure{
		counts(2, 1000, 1), counts(2, 1001, 1), counts(2, 999, 1), counts(2, 1000, 1), counts(2, 1000, 1),
	})}
	for _, x := range []struct {
		name                 string
		syncs, bytes, probes float64
		want                 [3]compare.Verdict
		regression           bool
	}{
		{"the same", 2, 1000, 1, [3]compare.Verdict{AsBefore, AsBefore, AsBefore}, false},
		{"inside the thresholds", 2.003, 1003.9, 1.001, [3]compare.Verdict{AsBefore, AsBefore, AsBefore}, false},
		{"one sync more", 3, 1000, 1, [3]compare.Verdict{compare.Worse, AsBefore, AsBefore}, true},
		{"one sync less", 1, 1000, 1, [3]compare.Verdict{compare.Better, AsBefore, AsBefore}, false},
		{"2 % more bytes", 2, 1020, 1, [3]compare.Verdict{AsBefore, compare.Worse, AsBefore}, true},
		{"2 % less bytes", 2, 980, 1, [3]compare.Verdict{AsBefore, compare.Better, AsBefore}, false},
		{"other probes", 2, 1000, 2, [3]compare.Verdict{AsBefore, AsBefore, More}, false},
		{"no syncs", 0, 1000, .5, [3]compare.Verdict{compare.Better, AsBefore, Less}, false},
	} {
		o := Outcome{Counts: c.judge([][]results.Figure{counts(x.syncs, x.bytes, x.probes)})}
		for i, f := range o.Counts {
			if f.Verdict != x.want[i] {
				t.Errorf("%s: %s %s, want %s", x.name, f.Figure, f.Verdict, x.want[i])
			}
		}
		o.Conclude()
		if (o.Verdict == Regression) != x.regression || o.Verdict == Inconclusive {
			t.Errorf("%s: %s", x.name, o.Verdict)
		}
		if _, err := json.Marshal(o); err != nil {
			t.Errorf("%s: %v", x.name, err)
		}
	}
	wide := summarize([][]results.Figure{counts(2, 1000, 1), counts(2, 1006, 1), counts(2, 1000, 1)})
	if wide[1].Gates() || !wide[0].Gates() || wide[2].Gates() {
		t.Errorf("a count that spreads, one that does not, and one without a better direction gate: %v %v %v",
			wide[1].Gates(), wide[0].Gates(), wide[2].Gates())
	}
}

// delta makes the comparison of rounds in which B takes so much more CPU time, and the copy of A so much.
func delta(more, again float64, rounds int) *compare.Delta {
	cpu := func(v float64) []results.Figure {
		return []results.Figure{{Name: "CPU", Unit: "us/op", Kind: results.CPUTime, Better: results.Lower, Value: v}}
	}
	random := rand.New(rand.NewPCG(1, 2))
	noise := func() float64 { return 1 + 0.02*(2*random.Float64()-1) }
	var all []compare.Round
	for range rounds {
		all = append(all, compare.Round{A: cpu(100 * noise()), B: cpu(100 * (1 + more) * noise()),
			Control: cpu(100 * (1 + again) * noise())})
	}
	return &compare.Delta{Rounds: rounds, Control: true, Rows: compare.Rounds(all)}
}

func TestJudgeTimed(t *testing.T) {
	for _, x := range []struct {
		name        string
		more, again float64
		rounds      int
		most        float64
		want        compare.Verdict
	}{
		{"nothing", 0, 0, 12, .05, AsBefore},
		{"5 %", .05, 0, 12, .05, compare.Worse},
		{"20 %", .2, 0, 12, .05, compare.Worse},
		{"20 % less", -.2, 0, 12, .05, compare.Better},
		{"2 %, which may pass", .02, 0, 12, .05, AsBefore},
		{"nothing, but it must not be 1 %", 0, 0, 12, .005, NotSure},
		{"something else changed", .08, .08, 12, .05, compare.Contaminated},
		{"too few rounds", .2, 0, 5, .05, NotSure},
	} {
		timed := Timed{Most: x.most}
		o := Outcome{Timed: timed.judge(delta(x.more, x.again, x.rounds))}
		if len(o.Timed) != 1 || o.Timed[0].Verdict != x.want {
			t.Errorf("%s: %+v, want %s", x.name, o.Timed, x.want)
		}
		o.Conclude()
		want := Pass
		switch x.want {
		case compare.Worse:
			want = Regression
		case NotSure, compare.Contaminated:
			want = Inconclusive
		}
		if o.Verdict != want {
			t.Errorf("%s: %s, want %s", x.name, o.Verdict, want)
		}
	}
}

func TestOutcomePrints(t *testing.T) {
	timed := Timed{Most: .05}
	o := Outcome{Timed: timed.judge(delta(.2, 0, 12)), Warnings: []string{"a <b> | c"}}
	o.Counts = []Finding{
		{Case: "x", Figure: "syncs", Unit: "/op", Before: 2, Now: 3, Change: .5, Gates: true, Verdict: compare.Worse,
			Threshold: .002},
		{Case: "x", Figure: "WAL bytes", Unit: "B/op", Before: 2, Now: 2, Gates: true, Verdict: AsBefore},
	}
	o.Conclude()
	var table, md, junit bytes.Buffer
	for _, err := range []error{o.PrintTable(&table), o.PrintMarkdown(&md), o.PrintJUnit(&junit)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, want := range []string{"regression: of 3 figures that gate 2 have", "x: syncs",
		"2, now 3 (+50.00 %, threshold 0.20 %): worse", "2 counts gate", "CPU: 12 rounds; a change of less than",
		"warning: a <b> | c"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in:\n%s", want, table.String())
		}
	}
	if !strings.Contains(md.String(), "**regression") || !strings.Contains(md.String(), `warning: a &lt;b> \| c`) {
		t.Errorf("Markdown:\n%s", md.String())
	}
	var suite junitSuite
	err := xml.Unmarshal(junit.Bytes(), &suite)
	if err != nil || suite.Tests != 3 || suite.Failures != 2 || len(suite.Cases) != 3 {
		t.Errorf("%v: %s", err, junit.String())
	}
}

func TestReadBaseline(t *testing.T) {
	good := Baseline{Format: BaselineFormat, Runs: 6, Cases: []CountedCase{{}}}
	var text bytes.Buffer
	if err := good.Write(&text); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadBaseline(&text); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"":                                   "not a baseline",
		`{"header":{"format":3}}`:            "not a baseline",
		`{"baseline_format":2}`:              "baseline of format 2",
		`{"baseline_format":1,"runs":6}`:     "0 cases of 6 runs",
		`{"baseline_format":1,"cases":[{}]}`: "1 cases of 0 runs",
	} {
		if _, err := ReadBaseline(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q in it", text, err, want)
		}
	}
}

// TestProof: sixty trials without a mistake bound the share of mistakes by 4.9 %.
func TestProof(t *testing.T) {
	for _, x := range []struct {
		k, n int
		want float64
	}{{0, 60, .0487}, {0, 300, .00994}, {1, 60, .0766}, {3, 30, .2386}, {2, 2, 1}} {
		if got := upperBound(x.k, x.n); got < x.want-.0001 || got > x.want+.0001 {
			t.Errorf("%d of %d: %.4f, want %.4f", x.k, x.n, got, x.want)
		}
	}
	var file bytes.Buffer
	for _, verdict := range []Conclusion{Pass, Regression, Inconclusive} {
		for _, kind := range []TrialKind{TimedSame, TimedSlower} {
			if err := json.NewEncoder(&file).Encode(NewTrial(kind, &Outcome{Verdict: verdict})); err != nil {
				t.Fatal(err)
			}
		}
	}
	trials, err := ReadTrials(strings.NewReader(file.String() + `{"kind":`))
	if err != nil || len(trials) != 6 {
		t.Fatalf("%d trials, %v", len(trials), err)
	}
	lines := Proof(trials)
	const odd = "; 1 said something else, 1 could not tell. "
	if len(lines) != 2 || !strings.HasPrefix(lines[0], "timed-same: all of 3 trials should say pass"+odd) ||
		!strings.HasPrefix(lines[1], "timed-slower: all of 3 trials should say regression"+odd) {
		t.Errorf("%q", lines)
	}
	if _, err := ReadTrials(strings.NewReader("{}\n{}\n")); err == nil {
		t.Error("a file of something else is read")
	}
}
