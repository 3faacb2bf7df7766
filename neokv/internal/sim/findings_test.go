package sim

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestClasses: problems that differ in their values alone are of one class, others are not.
func TestClasses(t *testing.T) {
	ended := func(out string) string { return classOfEnd(errors.New("exit status 2"), []byte(out)) }
	for _, x := range []struct{ got, want string }{
		{classOf(found(lostWrite, "key %s: not linearizable: %s: %s\n%s", "r1{t3}", "x", "GET", "y\nz")),
			"lost write: key #: not linearizable: #: #"},
		{classOf(fmt.Errorf("the copy: %w", found(oddReply, "%s: %w", "GET", errors.New(`ERR "k" at 7`)))),
			"odd reply: #: ERR # at #"},
		{classOf(&lagging{errors.New("region 1: store 2 is at apply index 496, store 1 at 143")}),
			"lags: region #: store # is at apply index #, store # at #"},
		{classOf(errors.New("restart: store 4: /store-4/engine: its first 5809 bytes\nmore")),
			"restart: store #: #: its first # bytes"},
		{ended("out\npanic: region 7: boom\n\ngoroutine 1"), "process ended: panic: region #: boom"},
		{ended("nothing"), "process ended: exit status #"},
	} {
		if x.got != x.want {
			t.Errorf("class %q; want %q", x.got, x.want)
		}
	}
}

// TestFindingStates: what a sitting sees makes findings new, ongoing, resolved and returned.
func TestFindingStates(t *testing.T) {
	day := func(n int) Sight {
		return Sight{Date: time.Date(2026, 1, n, 0, 0, 0, 0, time.UTC), Commit: fmt.Sprint(n)}
	}
	var all []TortureFinding
	for n, x := range []struct {
		sees  string // classes
		state FindingState
		known bool
	}{
		{"a", FindingNew, false}, {"b a", FindingOngoing, true}, {"a", FindingOngoing, true}, {"", FindingResolved, false},
		{"b", FindingResolved, false}, {"a", FindingReturned, false}, {"a", FindingOngoing, true},
	} {
		s := findings{all: all, now: day(n + 1), time: virtualTime, tries: 3}
		for i := range s.all {
			s.all[i].Now = false
		}
		r := simReport{Seed: uint64(n), Problem: "p", Classes: strings.Fields(x.sees)}
		if s.explains(r) != x.known {
			t.Errorf("day %d: %q is known: %v", n+1, x.sees, !x.known)
		}
		if s.again([]simReport{r}); !x.known && x.sees != "" {
			s.add(&TortureFailure{Seed: r.Seed, Problem: r.Problem, Class: r.Classes[0], Length: time.Second})
		}
		s.end()
		all = s.all
		i := slices.IndexFunc(all, func(f TortureFinding) bool { return f.Class == "a" })
		f := all[i]
		if f.State != x.state || f.First.Commit != "1" || f.Validate() != nil {
			t.Errorf("day %d: %+v, %v; want %s", n+1, f, f.Validate(), x.state)
		}
		if strings.Contains(x.sees, "a") != (f.Last.Commit == fmt.Sprint(n+1)) {
			t.Errorf("day %d: last seen with %s", n+1, f.Last.Commit)
		}
	}
	if f := all[0]; f.Seed != 5 || f.Resolved == nil || f.Resolved.Commit != "4" {
		t.Errorf("%+v; want the seed that showed it again, and when it was resolved", f)
	}

	s := findings{now: day(9), tries: 1}
	for i := range mostFindings + 2 {
		f := TortureFinding{Class: fmt.Sprint(i), State: FindingResolved, Last: day(8)}
		if i == 5 || i == 6 {
			f.Last = day(7)
		}
		s.all = append(s.all, f)
	}
	if s.end(); len(s.all) != mostFindings || s.of([]string{"5", "6"}, func(*TortureFinding) bool { return true }) != nil {
		t.Errorf("%d findings are left; want %d, without those seen longest ago", len(s.all), mostFindings)
	}
}

// TestFindings: a finding is seen again, resolved by a build without its mistake, and returns with it. What is of real
// time is not tried, nor what this build cannot read.
func TestFindings(t *testing.T) {
	o := TortureOptions{Seed: 1, Seeds: 1, Length: 2 * time.Second, Planted: "log-unsynced", Dir: t.TempDir(), Tries: 12,
		Commit: "c", Scenario: "6 clients, an operation every 5ms\nreads 1, writes 3, increments 1, counter reads 1\n" +
			"at 1300ms for 10ms: kill all"}
	sit := func() (TortureSitting, TortureFinding) {
		t.Helper()
		s, _, err := Torture(t.Context(), o)
		if err != nil || len(s.Findings) == 0 {
			t.Fatalf("%+v, %v; want findings", s, err)
		}
		t.Logf("%s: %+v", s.Verdict, s.Findings)
		o.Findings = s.Findings
		return s, s.Findings[0]
	}
	s, first := sit()
	if first.State != FindingNew || s.Verdict != ProblemFound || first.First.Planted != "log-unsynced" {
		t.Errorf("%s, %+v; want a new finding", s.Verdict, first)
	}
	other := first
	other.Class, other.Time = "other", realTime
	odd := first
	odd.Class, odd.Scenario = "odd", "kil all"
	o.Findings = append(o.Findings, other, odd)
	o.Seeds = 0
	if s, f := sit(); s.Seeds != 0 || f.State != FindingOngoing || f.Tries < 1 {
		t.Errorf("%d seeds, %+v; want an ongoing finding", s.Seeds, f)
	}
	o.Planted = ""
	s, f := sit()
	if f.State != FindingResolved || f.Tries != o.Tries || s.Verdict != NothingFound {
		t.Errorf("%s, %+v; want a resolved finding", s.Verdict, f)
	}
	for _, f := range s.Findings[1:3] {
		if f.State != FindingNew || f.Last.Date != first.Last.Date {
			t.Errorf("%+v; want it as it was", f)
		}
	}
}
