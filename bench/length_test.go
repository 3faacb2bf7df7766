package bench

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/results"
)

// TestOperations: all clients together send exactly as many operations as asked for, to the end or for a time.
func TestOperations(t *testing.T) {
	for _, x := range []struct {
		pipeline, operations int
		duration             time.Duration
		want                 int64
	}{{1, 1001, 0, 1001}, {16, 1001, 0, 1001}, {1, 2, 0, 2}, {1, 1_000_000, time.Second, 3000}} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
			s, rec, err := inBubble(t, m, t.Context(), Options{
				Groups: []GroupOptions{{Workload: "set", Clients: 3, Pipeline: x.pipeline, Operations: x.operations,
					Records: 10}},
				Duration: x.duration, Warmup: 3 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			adds(t, s, rec)
			if got := s.Groups[0].Ledger.Offered; got < x.want-3 || got > x.want+3 || x.duration == 0 && got != x.want {
				t.Errorf("%+v: %d operations", x, got)
			}
			if rec.Header.Warmup != 0 {
				t.Errorf("a warm-up of %s", rec.Header.Warmup)
			}
		})
	}
	o := usual(Options{Targets: []string{"a:1"}, Duration: time.Second, Groups: []GroupOptions{
		{Workload: "set", Clients: 1, Operations: 5, Rate: Steady(10)}, {Workload: "get", Clients: 1, Operations: -1}}})
	_, err := o.complete()
	for _, want := range []string{"operations: 5 are for a closed loop", "operations: -1, want 1 or more"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v; want %q", err, want)
		}
	}
	o = usual(Options{Targets: []string{"a:1"}, Groups: []GroupOptions{
		{Name: "a", Workload: "set", Clients: 1, Operations: 5}, {Workload: "get", Clients: 1}}})
	o.Duration = 0
	if _, err := o.complete(); err == nil || !strings.Contains(err.Error(), "want a duration, or a number for each") {
		t.Errorf("a group without an end: %v", err)
	}
}

// TestShortIntervals: a record has intervals as short as asked for, which hold all of the run; progress comes once a
// second all the same.
func TestShortIntervals(t *testing.T) {
	for _, interval := range []time.Duration{100 * time.Millisecond, 300 * time.Millisecond, 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(func(at time.Duration) time.Duration {
				if at > 2*time.Second && at < 2200*time.Millisecond {
					return 2200*time.Millisecond - at
				}
				return time.Millisecond
			})
			ticks := 0
			s, rec, err := inBubble(t, m, t.Context(), Options{
				Groups:   []GroupOptions{{Workload: "set", Clients: 1, Records: 10}},
				Duration: 6 * time.Second, Interval: interval,
				Progress: func(tick Tick) {
					if tick.Phase == results.PhaseRun {
						ticks++
					}
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			adds(t, s, rec)
			var longest float64
			count, quiet := 0, 0
			for _, iv := range rec.Intervals {
				if iv.Phase != results.PhaseRun {
					continue
				}
				count++
				longest = max(longest, iv.Seconds)
				if iv.Groups[0].Total.Count == 0 {
					quiet++
				}
			}
			if want := int(6 * time.Second / interval); count != want || longest > interval.Seconds()+.21 {
				t.Errorf("%s: %d intervals, the longest %.3f s; want %d", interval, count, longest, want)
			}
			if interval == 100*time.Millisecond && quiet == 0 {
				t.Error("no interval shows the stall of 200 ms")
			}
			if ticks < 3 || ticks > 7 {
				t.Errorf("%s: %d ticks in 6 s", interval, ticks)
			}
		})
	}
	for interval, want := range map[time.Duration]string{
		time.Millisecond: "want 10ms to 1h", 1500 * time.Millisecond: "want whole seconds, or less than one",
		10 * time.Millisecond: "want 100ms or more",
	} {
		o := usual(Options{Targets: []string{"a:1"}, Duration: time.Hour, Interval: interval})
		if _, err := o.complete(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %q", interval, err, want)
		}
	}
}

// TestSLOOfARun: a run says whether it has held an SLO, and which percentiles rest on too few operations.
func TestSLOOfARun(t *testing.T) {
	for _, x := range []struct{ slo, broken, warning string }{
		{"p50<5ms", "", ""},
		{"p50<900us", "1.00 ms, want p50<900us", ""},
		{"p99.9<2s", "", "p99.9 of the SLO is that of 200 operations; 10 beyond it take 10,000"},
		{"max<100ms, errors<=0%", "200 ms, want max<100ms", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(func(at time.Duration) time.Duration {
				if at > 1500*time.Millisecond && at < 1700*time.Millisecond { // the load phase takes a second
					return 200 * time.Millisecond
				}
				return time.Millisecond
			})
			slo, err := ParseSLO(x.slo)
			if err != nil {
				t.Fatal(err)
			}
			s, rec, err := inBubble(t, m, t.Context(), Options{SLO: slo, Duration: 2 * time.Second,
				Groups: []GroupOptions{{Workload: "set", Clients: 4, Rate: Steady(100), Records: 10}}})
			if err != nil {
				t.Fatal(err)
			}
			adds(t, s, rec)
			if s.SLO == nil || (s.SLO.Broken != "") != (x.broken != "") || !strings.HasPrefix(s.SLO.Broken, x.broken) ||
				s.SLO.Text != slo.String() {
				t.Errorf("%s: %+v", x.slo, s.SLO)
			}
			var text strings.Builder
			if err := results.PrintTable(&text, rec.Header, s); err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(text.String(), s.SLO.String()+"\n") || !strings.Contains(text.String(), x.warning) {
				t.Errorf("%s:\n%s", x.slo, &text)
			}
		})
	}
}
