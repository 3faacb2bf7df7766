package tuning

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/results"
)

var update = flag.Bool("update", false, "write the golden files anew")

// synthetic is a study of three knobs: a memtable with a cliff below 16 MiB, bloom bits that do nothing, and a prefix
// of which one value cannot boot.
func synthetic(noise float64) *Study {
	random := rand.New(rand.NewPCG(1, 1))
	s := &Study{Curved: true, Done: true, Plan: StudyPlan{
		Format: FileFormat, Started: time.Date(2026, 11, 23, 12, 0, 0, 0, time.UTC), Profile: "default",
		Load: Load{Workload: "write-heavy", Clients: 50, Pipeline: 1, Records: 1000, Elements: 1, ValueSize: 100},
		Knobs: []Knob{
			{Setting: "engine.memtable_size", Values: []string{"4MiB", "8MiB", "16MiB", "64MiB"}, Default: "16MiB",
				Ordered: true},
			{Setting: "engine.bloom_bits", Values: []string{"0", "10"}, Default: "10", Ordered: true, Shapes: true},
			{Setting: "engine.bloom_prefix", Values: []string{"region", "key"}, Default: "key", Shapes: true},
		},
		Objective: Objective{"throughput", results.Higher},
		Subjects:  []Subject{{Text: "memory<300MiB", Figure: Memory, Below: true, Limit: 300 << 20}},
		Budget:    10 * time.Minute, Block: 3 * time.Second, Warmup: time.Second, Seed: 42,
	}}
	factor := func(set []string) (throughput, memory float64) {
		throughput, memory = 1, 200
		for _, x := range set {
			switch x {
			case "engine.memtable_size=4MiB":
				throughput, memory = throughput*0.7, memory-20
			case "engine.memtable_size=8MiB":
				throughput, memory = throughput*0.75, memory-10
			case "engine.memtable_size=64MiB":
				throughput, memory = throughput*1.1, memory+150
			}
		}
		return throughput, memory
	}
	drift := 0.0
	add := func(phase Phase, round int, load string, again bool, set ...string) {
		drift = 0.9*drift + 0.02*random.NormFloat64()
		t := StudyTrial{Phase: phase, Round: round, Load: load, Set: set, Again: again, Seed: uint64(round),
			Took:         5 * time.Second,
			MissedBlocks: 2000}
		throughput, memory := factor(set)
		luck := math.Exp(drift + noise*random.NormFloat64())
		if set != nil && set[0] == "engine.bloom_prefix=region" {
			t.Failure = "cannot boot\nsecond line"
		} else {
			t.Figures = []results.Figure{
				{Name: "throughput", Unit: "ops/s", Better: results.Higher, Value: 10000 * throughput * luck},
				{Name: "p99", Unit: "us", Better: results.Lower, Value: 5000 / throughput / luck},
				{Name: "CPU", Unit: "us/op", Better: results.Lower, Value: 40 / throughput},
				{Name: WriteAmplification, Better: results.Lower, Value: 3 / throughput},
				{Name: Memory, Unit: "B", Better: results.Lower, Value: memory * (1 << 20)},
			}
		}
		s.Trials = append(s.Trials, t)
	}
	for round := range 4 {
		sets := [][]string{{"engine.memtable_size=4MiB"}, {"engine.memtable_size=8MiB"}, {"engine.memtable_size=64MiB"},
			{"engine.bloom_bits=0"}}
		if round == 0 {
			sets = append(sets, []string{"engine.bloom_prefix=region"})
		}
		for _, set := range Deal(random, sets, nil) {
			add(Curves, round, "", false, set...)
		}
	}
	for round := range 7 {
		add(Confirm, round, "", false)
		add(Confirm, round, "", false, "engine.memtable_size=64MiB")
		add(Confirm, round, "", true)
	}
	for round := range 6 {
		add(Gain, round, "", false)
		add(Gain, round, "", false, "engine.memtable_size=64MiB")
	}
	for round := range 6 {
		for _, phase := range []Phase{Hold, Around} {
			load := map[Phase]string{Hold: "four times the records", Around: "twice as many clients"}[phase]
			add(phase, round, load, false)
			add(phase, round, load, false, "engine.memtable_size=64MiB")
		}
	}
	return s
}

func TestEffects(t *testing.T) {
	effects := synthetic(0.01).Effects()
	size, bits, prefix := effects[0], effects[1], effects[2]
	if !size.Measurable || size.Cliff == nil || size.Cliff.From != "8MiB" || size.Cliff.To != "16MiB" ||
		math.Abs(size.Cliff.Change-1/0.75+1) > 0.05 {
		t.Errorf("memtable: %s; want the cliff between 8MiB and 16MiB, +33 %%", size.Sentence("throughput"))
	}
	for i, want := range []float64{0.7, 0.75, 1, 1.1} {
		l := size.Levels[i]
		if l.Ratio == nil || math.Abs(l.Ratio.Center-want) > 0.03 {
			t.Errorf("%s: %+v, want %g", l.Value, l.Ratio, want)
			continue
		}
		if !l.Default && (l.Ratio.N != 4 || l.Ratio.Interval[0] > want || l.Ratio.Interval[1] < want) {
			t.Errorf("%s: %+v, want four trials and an interval with %g", l.Value, l.Ratio, want)
		}
		if breaks := l.Value == "64MiB"; breaks != (len(l.Breaks) == 1) {
			t.Errorf("%s breaks %q", l.Value, l.Breaks)
		}
	}
	if bits.Measurable || bits.Cliff != nil || bits.Visible <= 0 || bits.Visible > 0.1 {
		t.Errorf("bits: %s", bits.Sentence("throughput"))
	}
	if l := prefix.Levels[0]; l.Ratio != nil || !strings.HasPrefix(l.Failure, "cannot boot") || prefix.Measurable {
		t.Errorf("prefix: %+v", l)
	}
}

// shuffled is the curves of one knob with four values, of which one changes the objective, in rounds of normal noise.
func shuffled(random *rand.Rand, rounds int, change float64) *Study {
	s := &Study{Curved: true, Plan: StudyPlan{Objective: Objective{"x", results.Higher}, Seed: random.Uint64(),
		Knobs: []Knob{{Setting: "k", Default: "d", Values: []string{"a", "b", "c", "d", "e"}}}}}
	for round := range rounds {
		for _, set := range Deal(random, [][]string{{"k=a"}, {"k=b"}, {"k=c"}, {"k=e"}}, nil) {
			log := 0.03 * random.NormFloat64()
			if Name(set) == "k=a" {
				log += change
			}
			s.Trials = append(s.Trials, StudyTrial{Phase: Curves, Round: round, Set: set,
				Figures: []results.Figure{{Name: "x", Value: math.Exp(log)}}})
		}
	}
	return s
}

// TestVisible: nine of ten studies find a change as large as studies say that they would.
func TestVisible(t *testing.T) {
	for _, rounds := range []int{4, 8} {
		random := rand.New(rand.NewPCG(1, uint64(rounds)))
		found := 0
		const studies = 200
		for range studies {
			visible := shuffled(random, rounds, 0).Effects()[0].Visible
			if shuffled(random, rounds, math.Log1p(visible)).Effects()[0].Levels[0].Ratio.ExcludesOne() {
				found++
			}
		}
		t.Logf("%d of %d found in %d rounds", found, studies, rounds)
		if share := float64(found) / studies; share < .85 || share > .95 {
			t.Errorf("%d rounds: %.3f of the changes were found that nine of ten studies were said to find", rounds, share)
		}
	}
}

// TestIntervals: those of all values together hold the truth, also where one value has a large effect.
func TestIntervals(t *testing.T) {
	const studies, change = 400, 0.2
	random := rand.New(rand.NewPCG(2, 2))
	missed := 0
	for range studies {
		for i, l := range shuffled(random, 5, change).Effects()[0].Levels {
			truth := 1.0
			if i == 0 {
				truth = math.Exp(change)
			}
			if !l.Default && (l.Ratio.Interval[0] > truth || l.Ratio.Interval[1] < truth) {
				missed++
				break
			}
		}
	}
	if t.Logf("%d of %d studies have an interval without the truth", missed, studies); missed > studies/20 {
		t.Errorf("%d of %d studies have an interval without the truth", missed, studies)
	}
}

// TestUnfinishedCurves: before all rounds are there no knob is measurable, so that nobody stops a study at the moment
// at which chance makes one so.
func TestUnfinishedCurves(t *testing.T) {
	s := synthetic(0.01)
	s.Curved, s.Done, s.Trials = false, false, s.Trials[:20]
	for _, e := range s.Effects() {
		if e.Measurable || e.Cliff != nil || !strings.Contains(e.Sentence("throughput"), "too few trials") {
			t.Errorf("%+v: %s", e, e.Sentence("throughput"))
		}
	}
}

// TestGaps: a trial counts against the defaults next to it, one that failed against none.
func TestGaps(t *testing.T) {
	none := math.NaN()
	for _, x := range []struct {
		logs     []float64
		defaults []int
		want     []float64
	}{
		{[]float64{1, 5, 7, 3, 9}, []int{0, 3}, []float64{none, 3, 5, none, 6}},
		{[]float64{5, 1, 7}, []int{1}, []float64{4, none, 6}},
		{[]float64{5, none, 7, 3}, []int{1, 3}, []float64{2, none, 4, none}},
		{[]float64{5, none, 7}, nil, []float64{none, none, none}},
		{[]float64{1, none, 7}, []int{0}, []float64{none, none, 6}},
	} {
		got := gaps(x.logs, func(i int) bool { return slices.Contains(x.defaults, i) })
		if fmt.Sprint(got) != fmt.Sprint(x.want) {
			t.Errorf("gaps(%v, %v) = %v; want %v", x.logs, x.defaults, got, x.want)
		}
	}
}

// TestDeal: each order of two values and the default comes as often as any other.
func TestDeal(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	const rounds = 6000
	orders := map[string]int{}
	for range rounds {
		orders[fmt.Sprint(Deal(random, []int{1, 2}, 0))]++
	}
	for order, n := range orders {
		if n < rounds/6*9/10 || n > rounds/6*11/10 {
			t.Errorf("%s: %d of %d", order, n, rounds)
		}
	}
	order := Deal(random, []int{1, 2, 3, 4, 5}, 0)
	if len(orders) != 6 || len(order) != 7 || !slices.Contains(order[:4], 0) || !slices.Contains(order[4:], 0) {
		t.Errorf("%v, %v", orders, order)
	}
}

func TestFront(t *testing.T) {
	var names []string
	for _, c := range synthetic(0).Front() {
		names = append(names, Name(c.Set))
	}
	// 8MiB is worse than 16MiB but needs less memory, 4MiB even less. Bloom bits change nothing here, so one of the
	// equal two does not beat the other.
	for _, want := range []string{"engine.memtable_size=64MiB", "engine.memtable_size=4MiB",
		"engine.memtable_size=8MiB", "default"} {
		found := false
		for _, name := range names {
			found = found || name == want
		}
		if !found {
			t.Errorf("front %q lacks %s", names, want)
		}
	}
	beaten := Contender{Medians: []Median{{Figure: "throughput", Value: 100}, {Figure: "p99", Value: 10}}}
	better := Contender{Medians: []Median{{Figure: "throughput", Value: 110}, {Figure: "p99", Value: 10}}}
	if !better.beats(&beaten) || beaten.beats(&better) || better.beats(&better) {
		t.Error("a configuration beats another one that is worse in one figure and equal in the others, and no other")
	}
}

func TestOutcome(t *testing.T) {
	s := synthetic(0.01)
	o := s.Outcome()
	if o.Confirmed || len(o.Breaks) != 1 || !strings.Contains(o.Conclusion()[0], "does not hold memory<300MiB") {
		t.Errorf("confirmed %v: %q; want a winner that breaks memory<300MiB", o.Confirmed, o.Conclusion())
	}
	s.Plan.Subjects = nil
	o = s.Outcome()
	if !o.Confirmed || o.Gain == nil || o.Worst() == nil || o.Worst().Load != "twice as many clients" ||
		!strings.HasPrefix(o.Conclusion()[0], "confirmed: engine.memtable_size=64MiB: throughput +") {
		t.Errorf("confirmed %v, %q", o.Confirmed, o.Conclusion())
	}
	if o.Failed != 1 || o.Trials != len(s.Trials) {
		t.Errorf("%d trials, %d failed", o.Trials, o.Failed)
	}
	if len(o.Notes) != 1 || !strings.Contains(o.Notes[0], "page cache") {
		t.Errorf("notes %q, want one about the page cache", o.Notes)
	}
	for i := range s.Trials {
		s.Trials[i].RowCache = 0.8
	}
	if notes := s.Notes(); len(notes) != 2 || !strings.Contains(notes[0], "the row cache answered 80.0 %") {
		t.Errorf("notes %q, want one about the row cache", notes)
	}
	begun := &Study{Plan: s.Plan, Trials: s.Trials[:1]}
	if got := begun.Outcome().Conclusion(); got[0] != "not finished: nothing has been confirmed" {
		t.Errorf("a study that has begun says %q", got)
	}
	flat := &Study{Plan: s.Plan, Trials: s.Trials[:1], Done: true}
	got := flat.Outcome().Conclusion()
	if !strings.HasPrefix(got[0], "the default wins: nothing that was tried beats it") {
		t.Errorf("a study without effects says %q", got)
	}
}

func TestTable(t *testing.T) {
	o := synthetic(0.01).Outcome()
	o.Settings = "engine:\n    memtable_size: 64MiB\n"
	var text, wrote bytes.Buffer
	if err := o.PrintTable(&text); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", "table.txt")
	if *update {
		if err := os.WriteFile(path, text.Bytes(), 0o666); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(text.Bytes(), want) {
		t.Errorf("%v: the table is\n%s", err, text.Bytes())
	}
	if err := results.PrintJSON(&wrote, o); err != nil {
		t.Error(err)
	}
}

func TestFile(t *testing.T) {
	s := synthetic(0.01)
	var file bytes.Buffer
	keep := func(line any) error { return results.WriteLine(&file, "file of trials", line) }
	if err := keep(s.Plan); err != nil {
		t.Fatal(err)
	}
	for i := range s.Trials {
		if err := keep(&s.Trials[i]); err != nil {
			t.Fatal(err)
		}
	}
	whole := file.Bytes()
	got, size, err := Read(bytes.NewReader(whole))
	if err != nil || size != int64(len(whole)) || !reflect.DeepEqual(got.Plan, s.Plan) ||
		!reflect.DeepEqual(got.Trials, s.Trials) {
		t.Errorf("read %d of %d bytes, %v", size, len(whole), err)
	}
	for _, cut := range []int{1, 10, 100, 1000} {
		got, size, err := Read(bytes.NewReader(whole[:len(whole)-cut]))
		if err != nil || int(size) > len(whole)-cut || whole[size-1] != '\n' || len(got.Trials) >= len(s.Trials) {
			t.Errorf("%d bytes short: read %d bytes with %d trials, %v", cut, size, len(got.Trials), err)
		}
	}
	for text, want := range map[string]string{
		"":                                    "not a file of neokv tune",
		"{}\n":                                "not a file of neokv tune",
		"hello\n":                             "not a file of neokv tune",
		`{"tuning_format":1}`:                 "not a file of neokv tune", // the line is cut off
		`{"tuning_format":1,"set":0}` + "\n":  "line 1: tuning format 1, this program reads 3",
		`{"tuning_format":99,"set":0}` + "\n": "line 1: tuning format 99, this program reads 3",
		`{"tuning_format":3,"set":0}` + "\n":  "line 1: json: ",
		string(whole) + "nonsense\n":          "line ",
		strings.Repeat("x", 64<<20+1):         "line 1: more than 67108864 bytes",
	} {
		if _, _, err := Read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.40q: %v; want %s", text, err, want)
		}
	}
}

// TestLosses: tables tell of trials that lost operations, and a median that depends on lower bounds is one, and does
// not hold an upper limit.
func TestLosses(t *testing.T) {
	s := &Study{Plan: StudyPlan{Objective: Objective{"p50", results.Lower},
		Knobs:    []Knob{{Setting: "k", Values: []string{"a", "b"}, Default: "a"}},
		Subjects: []Subject{{Text: "p99<20ms", Figure: "p99", Below: true, Limit: 20_000}}}}
	for round := range 4 {
		for _, set := range [][]string{nil, {"k=b"}} {
			bad := set != nil && round > 0
			lost := map[bool]float64{true: 0.02}[bad]
			s.Trials = append(s.Trials, StudyTrial{Phase: Curves, Round: round, Set: set, Figures: []results.Figure{
				{Name: "rate reached", Unit: "%", Better: results.Higher, Value: 100 - 100*lost},
				{Name: "p50", Unit: "us", Better: results.Lower, Value: 100},
				{Name: "p99", Unit: "us", Better: results.Lower, Value: 10_000, AtLeast: bad},
				{Name: "errors", Unit: "/op", Better: results.Lower},
				{Name: "unanswered", Unit: "/op", Better: results.Lower, Value: lost},
			}})
		}
	}
	o := s.Outcome()
	var out strings.Builder
	if err := o.PrintTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`setting +value +p50 +p99 +rate reached +unanswered +p50 against default`,
		`k +a +100 us +10\.0 ms +100 % +0 .*default`,
		`k +b +100 us +>= 10\.0 ms +98\.5 % +0\.015 .*breaks p99<20ms`,
	} {
		if !regexp.MustCompile(want).MatchString(out.String()) {
			t.Errorf("no %s in\n%s", want, &out)
		}
	}
}
