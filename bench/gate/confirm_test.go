package gate

import (
	"bytes"
	"strings"
	"testing"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// TestConfirm: rounds of two machines are enough together where those of one are not; a count fails if it is worse on
// both machines.
func TestConfirm(t *testing.T) {
	there := &Outcome{Verdict: Inconclusive, Rounds: taken(.2, 0, 6), Subject: Subject{
		Baseline: results.Build{Commit: "a"}, Build: results.Build{Commit: "b"}},
		Counts: []Finding{{Case: "x", Figure: "syncs", Verdict: compare.Worse}}}
	var file bytes.Buffer
	if err := results.PrintJSON(&file, there); err != nil {
		t.Fatal(err)
	}
	there, err := ReadOutcome(&file)
	if err != nil {
		t.Fatal(err)
	}
	timed := Timed{Most: .03, Cases: []TimedCase{timedCase}}
	alone := timed.judge(taken(.2, 0, 6), 0)[0].Verdict
	timed.Joined = there.Rounds
	joined := timed.judge(taken(.2, 0, 6), 0)[0]
	if alone != NotSure || joined.Verdict != compare.Worse || joined.Runs != 12 {
		t.Errorf("alone %s, joined %+v", alone, joined)
	}
	for verdict, want := range map[compare.Verdict]compare.Verdict{compare.Worse: compare.Worse, AsBefore: NotSure,
		compare.Better: NotSure} {
		o := Outcome{Counts: []Finding{{Case: "x", Figure: "syncs", Gates: true, Verdict: verdict},
			{Case: "x", Figure: "entries", Gates: true, Verdict: AsBefore}}}
		o.JoinCounts(there)
		if o.Counts[0].Verdict != want || o.Counts[1].Verdict != AsBefore {
			t.Errorf("%s here: %+v, want %s", verdict, o.Counts, want)
		}
	}
	mine := there.Subject
	if err := there.Joins(&mine, true, true); err != nil {
		t.Error(err)
	}
	mine.Build.Commit, mine.Baseline.Modified = "c", true
	err = there.Joins(&mine, true, false)
	for _, want := range []string{"build: ", "baseline: ", "other parts"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: no %q", err, want)
		}
	}
	for _, text := range []string{"", "{}", `{"verdict":"pass"}`} {
		if _, err := ReadOutcome(strings.NewReader(text)); err == nil {
			t.Errorf("%q is read", text)
		}
	}
}
