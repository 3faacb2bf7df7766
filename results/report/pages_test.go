package report

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// pagesOfEachKind write a page of each kind, with what its first sentence says and conditions that it names.
var pagesOfEachKind = map[string]struct {
	write      func(io.Writer) error
	conclusion string
	conditions []string
}{
	"comparison": {func(w io.Writer) error { return ComparisonHTML(w, "compare", syntheticComparison()) },
		"B is worse in throughput (-10.1 % of 11,967 ops/s)",
		[]string{"load", "durability of A", "durability of B", "rounds"}},
	"history": {func(w io.Writer) error {
		trends := syntheticHistory()
		return HistoryHTML(w, "history.jsonl", trends[:1])
	}, "2 changes in 40 runs: on 2026-05-24 throughput worse", []string{"load", "target", "machine", "runs"}},
	"report": {func(w io.Writer) error { return HTML(w, twoSubjects()[:1]) }, "main 500 ops/s, response time p50 ",
		[]string{"load", "measured", "target", "durability", "machine", "date", "seed"}},
	"report of two": {func(w io.Writer) error { return HTML(w, twoSubjects()) }, "B against A: ",
		[]string{"load", "measured", "target", "durability", "machine", "date", "seed"}},
	"tuning": {
		func(w io.Writer) error { return TuningHTML(w, syntheticTuning()) },
		"confirmed: engine.memtable_size=64MiB",
		[]string{"load", "target", "measured", "machine", "date", "seed"},
	},
	"check": {func(w io.Writer) error {
		return CheckHTML(w, CheckPage{Headline: "pass: nothing",
			Conditions: []results.NamedValue{{Name: "load", Value: "set"}},
			Cases:      []CheckedCase{{Rows: []CheckedFigure{{Figure: "syncs", Verdict: compare.Same}}}}})
	}, "pass: nothing", []string{"load"}},
}

// TestPagesBeginWithTheConclusion: what was found stands first, then the conditions, then tables and charts.
func TestPagesBeginWithTheConclusion(t *testing.T) {
	if testing.Short() {
		t.Skip("it makes results of many operations")
	}
	for name, c := range pagesOfEachKind {
		var page bytes.Buffer
		if err := c.write(&page); err != nil {
			t.Fatal(err)
		}
		_, text, _ := strings.Cut(page.String(), "<body>")
		text, _, _ = strings.Cut(text, "<script")
		at := -1
		for _, part := range []string{`<p class="conclusion">`, `<dl class="conditions">`} {
			i := strings.Index(text, part)
			if i < at || i < 0 {
				t.Errorf("%s: %s stands at %d, behind %d", name, part, i, at)
			}
			at = i
		}
		for _, part := range []string{"<table", "<div id="} {
			if i := strings.Index(text, part); i >= 0 && i < at {
				t.Errorf("%s: %s stands before the conditions", name, part)
			}
		}
		_, sentence, _ := strings.Cut(text, `<p class="conclusion">`)
		sentence, _, _ = strings.Cut(strings.ReplaceAll(sentence, "\u00a0", " "), "</p>")
		if !strings.Contains(sentence, c.conclusion) {
			t.Errorf("%s: the conclusion is %q, want %q", name, sentence, c.conclusion)
		}
		for _, condition := range c.conditions {
			if !strings.Contains(text, "<dt>"+condition+"</dt><dd>") {
				t.Errorf("%s: does not name the %s", name, condition)
			}
		}
	}
}

// TestHeadline: results of different loads are not compared, and a lower bound has no change.
func TestHeadline(t *testing.T) {
	two := func(change func(*results.Result)) string {
		run := func() *results.Result {
			service := results.Latency{P50: results.Quantile{US: 100}, P99: results.Quantile{US: 900},
				Max: results.Quantile{US: 1000}}
			g := results.GroupSummary{GroupStats: results.GroupStats{Name: "set",
				Total: results.OpStats{Count: 10, PerSecond: 1000, Service: service}}}
			groups := []results.ClientGroup{{Name: "set", Workload: "set"}}
			return &results.Result{Header: results.Header{Groups: groups},
				Summary: &results.Summary{Seconds: 1, Groups: []results.GroupSummary{g}}}
		}
		a, b := run(), run()
		change(b)
		return Headline([]results.ResultFile{{Name: "a", Result: a}, {Name: "b", Result: b}})
	}
	total := func(r *results.Result) *results.OpStats { return &r.Summary.Groups[0].Total }
	for want, change := range map[string]func(*results.Result){
		"B against A: throughput x190 of 1,000 ops/s, p50 -50.0 % of 100 us, p99 +0.0 % of 900 us; each is one run, " +
			"so a change may be noise": func(r *results.Result) {
			total(r).PerSecond, total(r).Service.P50.US = 190_000, 50
		},
		"B against A: throughput +0.0 % of 1,000 ops/s, p50 +0.0 % of 100 us; each is one run, so a change may be " +
			"noise": func(r *results.Result) {
			total(r).Service.P99.AtLeast = true
		},
		"cannot tell: the results are of different loads, so their figures do not compare (reads back)": func(
			r *results.Result) {
			r.Header.Verify = true
		},
	} {
		if got := two(change); got != want {
			t.Errorf("%q; want %q", got, want)
		}
	}
}
