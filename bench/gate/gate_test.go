package gate

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

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
		o := Outcome{Counts: c.judge([][]results.Figure{counts(x.syncs, x.bytes, x.probes)}, false)}
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

// TestJudgeElsewhere: on another machine a count that follows from the program alone gates, and no other one does.
func TestJudgeElsewhere(t *testing.T) {
	c := CountedCase{CountCase{Name: "x"}, summarize([][]results.Figure{counts(2, 1000, 1), counts(2, 1001, 1),
		counts(2, 1000, 1)})}
	got := Outcome{Counts: c.judge([][]results.Figure{counts(3, 2000, 1)}, true)}
	if s, b := got.Counts[0], got.Counts[1]; !s.Gates || s.Verdict != compare.Worse || b.Gates ||
		b.Verdict != NotCompared {
		t.Errorf("%+v", got.Counts)
	}
	if left := got.NotCompared(); left != "WAL bytes (x)" {
		t.Errorf("left out: %q", left)
	}
	b := Baseline{Build: results.Build{Go: "go1"},
		Machine: results.Machine{CPU: "x", Cores: 2, OS: "linux", Arch: "amd64"}}
	same := b.Machine
	for want, change := range map[string]func(*results.Build, *results.Machine){
		"":                     func(*results.Build, *results.Machine) {},
		"this build of go2":    func(b *results.Build, _ *results.Machine) { b.Go = "go2" },
		"this machine has 4":   func(_ *results.Build, m *results.Machine) { m.Cores = 4 },
		`this machine has "y"`: func(_ *results.Build, m *results.Machine) { m.CPU = "y" },
		"linux arm64":          func(_ *results.Build, m *results.Machine) { m.Arch = "arm64" },
	} {
		build, machine := b.Build, same
		change(&build, &machine)
		if got := b.Elsewhere(build, machine); !strings.HasSuffix(got, want) || (want == "") != (got == "") {
			t.Errorf("%q, want %q at its end", got, want)
		}
	}
}

// TestJudgeAgrees: a change counts if all runs show it, in the same direction.
func TestJudgeAgrees(t *testing.T) {
	c := CountedCase{CountCase{Name: "x"}, summarize([][]results.Figure{counts(2, 1000, 1)})}
	for _, x := range []struct {
		syncs []float64
		want  compare.Verdict
	}{
		{[]float64{3}, compare.Worse}, {[]float64{3, 3, 3}, compare.Worse}, {[]float64{3, 3, 2}, AsBefore},
		{[]float64{3, 1}, AsBefore}, {[]float64{1, 1, 1.9}, compare.Better},
	} {
		var runs [][]results.Figure
		for _, s := range x.syncs {
			runs = append(runs, counts(s, 1000, 1))
		}
		if got := c.judge(runs, false)[0]; got.Verdict != x.want || got.Runs != len(x.syncs) {
			t.Errorf("%v: %+v, want %s", x.syncs, got, x.want)
		}
	}
	for _, f := range c.judge([][]results.Figure{{}}, false) {
		if f.Gates || f.Verdict != NotCompared {
			t.Errorf("a count that this build does not tell: %+v", f)
		}
	}
}

// TestCountsFromNothing: a count of which the baseline has nothing gates by a bound of its own.
func TestCountsFromNothing(t *testing.T) {
	flushed := func(v float64) []results.Figure {
		return []results.Figure{
			{Name: "flush bytes", Unit: "B/op", Kind: results.Counted, Better: results.Lower, Value: v},
			{Name: "read index rounds", Unit: "/op", Kind: results.Counted, Better: results.Lower, Value: v},
		}
	}
	c := CountedCase{CountCase{Name: "x"}, summarize([][]results.Figure{flushed(0), flushed(0)})}
	for v, want := range map[float64]compare.Verdict{1: AsBefore, 25: AsBefore, 26: compare.Worse} {
		found := c.judge([][]results.Figure{flushed(v)}, true)
		if found[0].Verdict != want || !found[0].Gates || found[1].Gates {
			t.Errorf("%g: %+v, want %s, and no bound for read index rounds", v, found, want)
		}
	}
	found := c.judge([][]results.Figure{flushed(300)}, false)[0]
	if got, want := found.text(), "0 B, now 300 B (new, threshold 25 B): worse"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	once := summarize([][]results.Figure{flushed(0), flushed(9), flushed(0)})[0]
	if !once.Exact() {
		t.Error("a count that a run of the baseline has a little of does not gate everywhere")
	}
}

// TestAllocationsGate: allocations, which are not exact, gate on every machine by bounds that noise does not reach.
func TestAllocationsGate(t *testing.T) {
	allocated := func(v float64) []results.Figure {
		return []results.Figure{{Name: "allocations", Unit: "/op", Kind: results.Counted, Better: results.Lower, Value: v}}
	}
	for _, x := range []struct {
		before, now float64
		want        compare.Verdict
	}{
		{3.6, 4.1, AsBefore}, {3.6, 5.6, compare.Worse}, {3.6, 1.6, compare.Better}, {0.38, 0.8, AsBefore},
		{0.38, 2.38, compare.Worse}, {18, 20, AsBefore}, {18, 21, compare.Worse},
	} {
		c := CountedCase{CountCase{Name: "x"}, summarize([][]results.Figure{allocated(x.before), allocated(x.before * 1.03),
			allocated(x.before * 0.97)})}
		found := c.judge([][]results.Figure{allocated(x.now)}, true)[0]
		if found.Verdict != x.want || !found.Gates {
			t.Errorf("%g, then %g: %+v, want %s", x.before, x.now, found, x.want)
		}
	}
}

// timedCase is a case of the tests.
var timedCase = TimedCase{Name: "x"}

// taken makes rounds in which B takes so much more CPU time, and the copy of A so much.
func taken(more, again float64, rounds int) (all []compare.Round) {
	cpu := func(v float64) []results.Figure {
		return []results.Figure{{Name: "x: CPU", Unit: "us/op", Kind: results.CPUTime, Better: results.Lower, Value: v}}
	}
	random := rand.New(rand.NewPCG(1, 2))
	noise := func() float64 { return 1 + 0.02*(2*random.Float64()-1) }
	for range rounds {
		all = append(all, compare.Round{A: cpu(100 * noise()), B: cpu(100 * (1 + more) * noise()),
			Control: cpu(100 * (1 + again) * noise())})
	}
	return all
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
		{"something else changed", .12, .12, 12, .05, compare.Contaminated},
		{"too few rounds", .2, 0, 3, .05, NotSure},
	} {
		timed := Timed{Most: x.most, Cases: []TimedCase{timedCase}}
		o := Outcome{Timed: timed.judge(taken(x.more, x.again, x.rounds), 1)}
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

// TestBudget: a budget that is too small is refused with the one that six rounds take.
func TestBudget(t *testing.T) {
	timed := Timed{Cases: TimedCases()}
	if got := timed.Needs(); got < 30*time.Second || got > time.Minute {
		t.Errorf("the least budget is %s, want no more than a minute", got)
	}
	want := "--budget 1m0s: a verdict takes 6 rounds, and so 1m50s on this machine"
	if got := (&BudgetError{time.Minute, 101 * time.Second}).Error(); got != want {
		t.Errorf("%q, want %q", got, want)
	}
}

// TestFirstLookSpendsLess: six rounds with a difference in each are enough for the last look, and not for the first.
func TestFirstLookSpendsLess(t *testing.T) {
	timed := Timed{Most: .03, Cases: []TimedCase{timedCase}}
	for look, want := range []compare.Verdict{NotSure, compare.Worse} {
		if got := timed.judge(taken(.2, 0, 6), look)[0]; got.Verdict != want {
			t.Errorf("look %d: %+v, want %s", look, got, want)
		}
	}
}

// TestLossesGate: a build that loses operations does not pass, and rows say how many. One that takes less CPU time so
// is not better.
func TestLossesGate(t *testing.T) {
	for _, x := range []struct {
		before, now float64
		once        bool // in one round alone
		want        compare.Verdict
		cpu         compare.Verdict
		rows        int
		conclusion  Conclusion
	}{
		{0, 0, false, "", compare.Better, 1, Pass},
		{0, .02, false, compare.Worse, NotSure, 2, Regression},
		{0, .3, true, AsBefore, NotSure, 2, Inconclusive},
		{.02, 0, false, compare.Better, compare.Better, 2, Pass},
	} {
		lost := func(v float64) results.Figure {
			return results.Figure{Name: "x: unanswered", Unit: "/op", Kind: results.Counted, Better: results.Lower,
				Value: v}
		}
		cpu := func(v float64) results.Figure {
			return results.Figure{Name: "x: CPU", Unit: "us/op", Kind: results.CPUTime, Better: results.Lower,
				Value: v}
		}
		random := rand.New(rand.NewPCG(1, 3))
		var all []compare.Round
		for round := range 12 {
			now := x.now
			if x.once && round > 0 {
				now = x.before
			}
			noise := func() float64 { return 1 + .01*random.Float64() }
			all = append(all, compare.Round{A: []results.Figure{cpu(100 * noise()), lost(x.before)},
				B:       []results.Figure{cpu(80 * noise()), lost(now)},
				Control: []results.Figure{cpu(100 * noise()), lost(x.before)}})
		}
		timed := Timed{Most: .05, Cases: []TimedCase{timedCase}}
		o := Outcome{Timed: timed.judge(all, 1)}
		o.Conclude()
		if len(o.Timed) != x.rows || o.Verdict != x.conclusion {
			t.Errorf("%g and %g: %s, rows %+v; want %s", x.before, x.now, o.Verdict, o.Timed, x.conclusion)
		}
		for _, f := range o.Timed {
			want := x.cpu
			if f.Figure == "unanswered" {
				want = x.want
			}
			if f.Verdict != want || !f.Gates {
				t.Errorf("%g and %g: %s is %s, gates %v; want %s", x.before, x.now, f.Figure, f.Verdict, f.Gates, want)
			}
		}
		var out bytes.Buffer
		if err := errors.Join(o.PrintTable(&out), o.PrintHTML(io.Discard), o.PrintJUnit(io.Discard)); err != nil {
			t.Error(err)
		}
		if x.rows > 1 && !strings.Contains(out.String(), "  x: unanswered  ") {
			t.Errorf("no row for what is unanswered:\n%s", out.String())
		}
	}
}

func TestOutcomePrints(t *testing.T) {
	timed := Timed{Most: .05, Cases: []TimedCase{timedCase}}
	o := Outcome{Timed: timed.judge(taken(.2, 0, 12), 1), Warnings: []string{"a <b> | c"}}
	o.Counts = []Finding{
		{Case: "x", Figure: "syncs", Unit: "/op", Kind: results.Counted, Before: 2, Now: 3, Change: .5,
			Gates: true, Verdict: compare.Worse,
			Threshold: .002},
		{Case: "x", Figure: "WAL bytes", Unit: "B/op", Before: 2, Now: 2, Gates: true, Verdict: AsBefore},
	}
	o.Conclude()
	o.Next = []string{"what to do"}
	var table, md, junit, page, text bytes.Buffer
	for _, err := range []error{o.PrintTable(&table), o.PrintMarkdown(&md), o.PrintJUnit(&junit), o.PrintHTML(&page),
		results.PrintJSON(&text, &o)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	var note bytes.Buffer
	o.Annotate(&note)
	(&Outcome{Verdict: Pass}).Annotate(&note)
	if want := "::error title=neokv check::regression: of 3 figures that gate, 2 worse\n"; note.String() != want {
		t.Errorf("annotations %q, want %q", note.String(), want)
	}
	for name, out := range map[string]string{"table": table.String(), "Markdown": md.String(), "JUnit": junit.String(),
		"page": page.String(), "JSON": text.String()} {
		for _, want := range append(o.Power, o.Next...) {
			if !strings.Contains(out, want) {
				t.Errorf("%s: no %q in:\n%s", name, want, out)
			}
		}
	}
	for _, want := range []string{"regression: of 3 figures that gate, 2 worse\n", "x: syncs",
		"2, now 3 (+50.00 %, threshold 0.20 %): worse", "counts: 2 gate",
		"timed: 12 rounds of 3 arms; nine of ten such runs find a change of ", "warning: a <b> | c"} {
		if !strings.Contains(table.String(), want) {
			t.Errorf("no %q in:\n%s", want, table.String())
		}
	}
	if !strings.Contains(md.String(), "**regression") || !strings.Contains(md.String(), `warning: a \<b\> \| c`) {
		t.Errorf("Markdown:\n%s", md.String())
	}
	var suite junitSuite
	err := xml.Unmarshal(junit.Bytes(), &suite)
	if err != nil || suite.Tests != 3 || suite.Failures != 2 || len(suite.Cases) != 3 {
		t.Errorf("%v: %s", err, junit.String())
	}
}

// TestOutcomeReads: one figure is no figures, and a change that is large reads as times.
func TestOutcomeReads(t *testing.T) {
	o := Outcome{Verdict: Regression, Counts: []Finding{{Figure: "syncs", Kind: results.Counted, Before: 1, Now: 190,
		Change: 189, Threshold: .002, Gates: true, Verdict: compare.Worse}}, Timed: []Finding{{Figure: "p99",
		Unit: "us", Before: 100, Now: 250, Change: 1.5, Interval: []float64{-.25, 200.1}, Verdict: compare.Same}}}
	for got, want := range map[string]string{
		o.headline():       "regression: of 1 figure that gates, 1 worse",
		o.Counts[0].text(): "1, now 190 (x190, threshold 0.20 %): worse",
		o.Timed[0].text():  "100 us, now 250 us (x2.50, x0.75 to x201): ~, for information",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}

func TestReadBaseline(t *testing.T) {
	good := Baseline{Format: BaselineFormat, Runs: 6, Cases: []CountedCase{{}}}
	var text bytes.Buffer
	if err := results.PrintJSON(&text, good); err != nil {
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

// TestCommittedBaseline: the baseline of this project is of a commit alone and has the cases of this build. What should
// follow from the program alone did so in its runs, so that it gates on every machine.
func TestCommittedBaseline(t *testing.T) {
	text, err := os.ReadFile("baseline.json")
	if err != nil {
		t.Fatal(err)
	}
	b, err := ReadBaseline(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if b.Build.Commit == "" || b.Build.Modified || b.Runs < 10 {
		t.Errorf("%d runs of commit %q, modified %v: want 10 of a commit alone", b.Runs, b.Build.Commit,
			b.Build.Modified)
	}
	var cases []CountCase
	for _, c := range b.Cases {
		cases = append(cases, c.CountCase)
		want := []string{"Raft entries", "Raft entry bytes", "flush bytes", "compaction bytes"}
		if c.Load.Tables {
			want = []string{"bloom answers", "block reads", "flush bytes", "compaction bytes"}
		}
		want = append(want, "allocations", "allocated bytes")
		if strings.HasSuffix(c.Name, "stores=1") && !c.Load.Tables {
			want = append(want, "WAL bytes", "row cache answers")
		}
		if strings.HasSuffix(c.Name, "P=1 stores=1") {
			want = append(want, "syncs")
		}
		for _, name := range want {
			if !slices.ContainsFunc(c.Figures, func(f CountedFigure) bool { return f.Name == name && f.Exact() }) {
				t.Errorf("%s: %s is not exact: renew the baseline on a quieter machine", c.Name, name)
			}
		}
	}
	if !reflect.DeepEqual(cases, CountCases()) {
		t.Error("the cases of the baseline are not those of this build: make baseline")
	}
}

// TestProof: sixty trials without a mistake bound the share of mistakes by 4.9 %.
func TestProof(t *testing.T) {
	for _, x := range []struct {
		k, n int
		want float64
	}{{0, 60, .0487}, {0, 300, .00994}, {1, 60, .0766}, {3, 30, .2386}, {2, 2, 1}} {
		if got := compare.AtMost(x.k, x.n); got < x.want-.0001 || got > x.want+.0001 {
			t.Errorf("%d of %d: %.4f, want %.4f", x.k, x.n, got, x.want)
		}
	}
	var file bytes.Buffer
	for _, x := range []struct {
		only    string
		budget  time.Duration
		verdict Conclusion
	}{
		{"timed", time.Minute, Pass}, {"timed", time.Minute, Regression}, {"timed", time.Minute, Inconclusive},
		{"timed", time.Hour, Regression}, {"counts", time.Minute, Regression}, {"", time.Minute, Pass},
	} {
		o := &Outcome{Verdict: x.verdict, Counts: []Finding{
			{Figure: "syncs", Kind: results.Counted, Gates: true, Verdict: AsBefore},
			{Figure: "WAL bytes", Kind: results.Counted, Gates: true, Verdict: compare.Better},
			{Figure: "p99", Verdict: compare.Worse},
		}, Timed: []Finding{{Figure: "CPU", Gates: true, Verdict: AsBefore}}}
		if err := json.NewEncoder(&file).Encode(NewTrial(x.only, x.budget, o)); err != nil {
			t.Fatal(err)
		}
	}
	trials, err := ReadOwnTrials(&file)
	if err != nil || len(trials) != 6 {
		t.Fatalf("%d trials, %v", len(trials), err)
	}
	if found := trials[0].Findings; len(found) != 2 || found[0].Figure != "WAL bytes" || found[1].Figure != "CPU" {
		t.Errorf("%+v: want a count that differs, and CPU", found)
	}
	if says := FalseAlarms(trials, "timed", time.Minute); !strings.HasPrefix(says,
		"1 false alarm in 3 trials of the same build, 1 inconclusive: ") ||
		!strings.HasSuffix(says, "86.5 % of cases") {
		t.Error(says)
	}
	many := slices.Repeat([]Trial{{Verdict: Pass}}, 59)
	for verdict, want := range map[Conclusion]string{Pass: "fail is advised here, since it would fail 0",
		Inconclusive: "fail is advised here, since it would fail 1"} {
		if says := FalseAlarms(append(many, Trial{Verdict: verdict}), "", 0); !strings.HasSuffix(says, want) {
			t.Errorf("%q, want %q at its end", says, want)
		}
	}
	two := append(many[:58:58], Trial{Verdict: Inconclusive}, Trial{Verdict: Regression})
	if says := FalseAlarms(two, "", 0); !strings.Contains(says, "not advised here") {
		t.Errorf("%q, although two of sixty would fail", says)
	}
	whole := `{"build":{"go":"go1"},"verdict":"pass"}`
	if trials, err := ReadOwnTrials(strings.NewReader(whole)); err != nil || len(trials) != 1 {
		t.Errorf("%s: %v, %v", whole, trials, err)
	}
	for _, text := range []string{"{}", `{"verdict":`, whole + `{"verdict":`, `{"kind":"same","verdict":"pass"}`} {
		if _, err := ReadOwnTrials(strings.NewReader(text)); err == nil {
			t.Errorf("a file of something else is read: %s", text)
		}
	}
	if trials, err := ReadOwnTrials(strings.NewReader("")); err != nil || trials != nil {
		t.Errorf("a new file: %v, %v", trials, err)
	}
}

// TestPower: every outcome says what it could have seen.
func TestPower(t *testing.T) {
	count := Finding{Figure: "syncs", Gates: true, Verdict: AsBefore, Threshold: .01}
	timed := Finding{Case: "x", Figure: "CPU", Gates: true, Verdict: AsBefore, Runs: 9, Interval: []float64{-.02, .01},
		Visible: .03}
	some := Finding{Figure: "CPU", Gates: true, Verdict: NotSure, Runs: 5, Interval: []float64{-.02, .01}}
	for _, x := range []struct {
		o    Outcome
		want string
	}{
		{Outcome{Counts: []Finding{count}},
			"counts: 1 gate; the smallest change seen is 0.2 %, 1.0 % of the count that varies most"},
		{Outcome{Timed: []Finding{timed}},
			"timed: 9 rounds of 3 arms; nine of ten such runs find a change of 3.0 % in x CPU"},
		{Outcome{Timed: []Finding{some}}, "timed: 5 rounds of 3 arms; too few to say"},
	} {
		if x.o.Conclude(); len(x.o.Power) != 1 || !strings.Contains(x.o.Power[0], x.want) {
			t.Errorf("%q, want %q", x.o.Power, x.want)
		}
	}
}

// TestNothingCompared: a check that could not compare anything does not say that the build is as good.
func TestNothingCompared(t *testing.T) {
	o := Outcome{Counts: []Finding{{Figure: "syncs", Verdict: NotCompared}}}
	if o.Conclude(); o.Verdict != Inconclusive {
		t.Errorf("%s, want %s", o.Verdict, Inconclusive)
	}
}
