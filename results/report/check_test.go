package report

import (
	"bytes"
	"strings"
	"testing"

	"neokv.dev/results/compare"
)

// TestCheckPage: the page of a gate has all figures, lets only those that gate stand out, and runs nothing.
func TestCheckPage(t *testing.T) {
	row := func(v compare.Verdict, gates bool) CheckedFigure {
		return CheckedFigure{Figure: "syncs " + hostile, Now: "1", Verdict: v, Gates: gates}
	}
	var page bytes.Buffer
	err := CheckHTML(&page, CheckPage{
		Verdict: "regression", Headline: "one " + hostile, Power: []string{"sees 2 % " + hostile},
		Warnings: []string{"a warning"}, Next: []string{"a command"},
		Cases: []CheckedCase{{Name: "set " + hostile, Rows: []CheckedFigure{row(compare.Worse, true),
			row(compare.Better, true), row(compare.Worse, false), row("as before", true)}}},
	})
	text := page.String()
	if err != nil || strings.Contains(text, hostile) || strings.Contains(text, "<script") {
		t.Errorf("%v: text of a check is part of the page's code, or it runs a script:\n%s", err, text)
	}
	for want, n := range map[string]int{`<td class="worse">worse</td>`: 1, `<td class="better">better</td>`: 1,
		`<td class="even">worse</td>`: 1, `<td class="even">as before</td>`: 1, "script-src 'none'": 1, "sees 2 %": 1,
		`<ul class="problems"><li>a warning</li></ul>`: 1, "<li>a command</li>": 1, "<h1>Check: regression</h1>": 1} {
		if got := strings.Count(strings.ReplaceAll(text, "&#39;", "'"), want); got != n {
			t.Errorf("%d times %q, want %d, in:\n%s", got, want, n, text)
		}
	}
}
