package report

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// syntheticComparison is a comparison of rounds with most verdicts.
func syntheticComparison() *compare.Delta {
	random := rand.New(rand.NewPCG(1, 1))
	figures := func(factors ...float64) (out []results.Figure) {
		for i, f := range []results.Figure{
			{Name: "throughput", Unit: "ops/s", Better: results.Higher, Value: 12_000},
			{Name: "p99", Unit: "us", Better: results.Lower, Value: 5000},
			{Name: "CPU " + hostile, Unit: "us/op", Better: results.Lower, Value: 40},
			{Name: "WAL bytes", Unit: "B/op", Better: results.Lower, Value: 1000},
			{Name: "row cache answers", Unit: "/op", Value: 0.4},
			{Name: "allocations", Unit: "/op", Better: results.Lower, Value: 30},
			{Name: "read index rounds", Unit: "/op", Better: results.Lower, Value: 1},
		} {
			f.Value *= factors[i] * math.Exp(0.01*random.NormFloat64())
			out = append(out, f)
		}
		return out
	}
	var rounds []compare.Round
	for range 12 {
		rounds = append(rounds, compare.Round{A: figures(1, 1, 1, 1, 1, 1, 0), B: figures(.9, 1, .9, 1.05, 3, 1.1, 1),
			Control: figures(1, 1, 1, 1, 1, 1.1, 0)})
	}
	d := compare.Rounds(rounds, []string{"throughput", "p99"})
	d.A, d.B = "as it is", "engine.memtable_size=4MiB "+hostile
	d.Warnings = []string{"the machine was busy: " + hostile}
	d.Setup = []compare.Condition{{Name: "load", A: "set " + hostile, B: "set " + hostile},
		{Name: "durability", A: "not durable (in memory)", B: "sync always on ext4"},
		{Name: "rounds", A: "12", B: "12"}}
	d.Conditions = []compare.Condition{{Name: "engine.memtable_size", A: "64MiB", B: "4MiB"}}
	return d
}

// body returns what the template has written of a page: all but the style and the scripts.
func body(t *testing.T, page []byte) []byte {
	t.Helper()
	_, rest, ok := bytes.Cut(page, []byte("</style>"))
	text, _, more := bytes.Cut(rest, []byte("<script"))
	if !ok || !more {
		t.Fatal("a page without a style or a script")
	}
	return text
}

// data returns the figures that a page has for its script.
func data[T any](t *testing.T, page []byte) (out T) {
	t.Helper()
	_, rest, _ := bytes.Cut(page, []byte(`id="data">`))
	text, _, _ := bytes.Cut(rest, []byte("</script>"))
	if err := json.Unmarshal(text, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

func TestComparisonPage(t *testing.T) {
	var page bytes.Buffer
	if err := ComparisonHTML(&page, "compare", syntheticComparison()); err != nil {
		t.Fatal(err)
	}
	text := body(t, page.Bytes())
	golden(t, "comparison.html", text)
	if bytes.Count(page.Bytes(), []byte("</script>")) != 3 || bytes.Contains(text, []byte("<img")) {
		t.Error("text of a result is part of the page's code")
	}
	rows := data[drawnComparison](t, page.Bytes()).Rows
	verdicts := ""
	for _, r := range rows {
		verdicts += fmt.Sprintf("%s: %s; ", strings.Fields(r.Name)[0], r.Verdict)
		if len(r.Rounds) != 12 || len(r.Interval) != 2 || r.Center < r.Interval[0] || r.Center > r.Interval[1] {
			t.Errorf("row %+v", r)
		}
	}
	want := "throughput: worse; p99: ~; CPU: better; WAL: worse; row: differs; allocations: worse; "
	if verdicts != want { // read index rounds have no ratio
		t.Errorf("drawn are %s; want %s", verdicts, want)
	}
}

// TestComparisonOfRuns: runs that did not take turns have no dots, and a comparison without ratios has no chart.
func TestComparisonOfRuns(t *testing.T) {
	side := func(values ...float64) (out [][]results.Figure) {
		for _, v := range values {
			out = append(out, []results.Figure{{Name: "syncs", Unit: "/op", Value: v}})
		}
		return out
	}
	for _, c := range []struct {
		a, b  [][]results.Figure
		drawn int
	}{{side(1, 2, 3, 4), side(5, 6, 7, 8), 1}, {side(0), side(1), 0}, {side(1), side(0), 0}, {nil, nil, 0}} {
		var page bytes.Buffer
		if err := ComparisonHTML(&page, "compare", compare.Sides(c.a, c.b, nil)); err != nil {
			t.Fatal(err)
		}
		rows := data[drawnComparison](t, page.Bytes()).Rows
		if len(rows) != c.drawn || bytes.Contains(page.Bytes(), []byte(`id="ratios"`)) != (c.drawn > 0) {
			t.Errorf("%v and %v: drawn %+v, want %d", c.a, c.b, rows, c.drawn)
		}
		if c.drawn > 0 && (rows[0].Rounds != nil || rows[0].Interval == nil) {
			t.Errorf("%+v: want an interval and no rounds", rows[0])
		}
	}
}
