package bench

import (
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// The truth about latencies is known in these tests: operations that have no answer are in the percentiles.

const endless = 24 * time.Hour // longer than any run

// frozen runs an open loop of 200 per second for two seconds, against a server that answers in a millisecond and stops
// for good after some time. All that it does not answer waits until a second after the end.
func frozen(t *testing.T, at time.Duration, seed uint64) (s results.Summary, rec *results.Result) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(now time.Duration) time.Duration {
			if now >= at {
				return endless
			}
			return time.Millisecond
		})
		var err error
		s, rec, err = inBubble(t, m, t.Context(), Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 4, Rate: Steady(200), Records: 10}},
			Duration: 2 * time.Second, Seed: seed,
		})
		if err != nil {
			t.Fatal(err)
		}
		adds(t, s, rec)
	})
	return s, rec
}

// A target that stops for the last 40 % of a run: of 400 operations 240 take a millisecond, and the others wait for 1
// to 1.8 s, if not longer.
func TestFrozenTarget(t *testing.T) {
	s, rec := frozen(t, 1200*time.Millisecond, 1)
	g := s.Groups[0].Total
	l := g.Response
	if g.Due() != 400 || g.Count < 239 || g.Count > 241 || g.Errors != 0 || l.Censored != g.Unanswered {
		t.Errorf("%d of %d answered, %d errors, %d unanswered; want 240 of 400", g.Count, g.Due(), g.Errors,
			g.Unanswered)
	}
	if l.P50.AtLeast || l.P50.US > 1010 {
		t.Errorf("p50 %s, want 1.00 ms", l.P50)
	}
	for _, c := range []struct {
		got  results.Quantile
		want time.Duration
	}{{l.P95, 1700 * time.Millisecond}, {l.P99, 1780 * time.Millisecond}, {l.Max, 1800 * time.Millisecond}} {
		if off := time.Duration(c.got.US)*time.Microsecond - c.want; !c.got.AtLeast || off.Abs() > 10*time.Millisecond {
			t.Errorf("response time %s, want >= %s", c.got, c.want)
		}
	}
	if q := g.Service.P99; !q.AtLeast || q.US < 1_700_000 || g.Service.Censored != 4 {
		t.Errorf("service time: p99 %s, %d of operations in flight; want >= 1.80 s, 4", q, g.Service.Censored)
	}
	var text strings.Builder
	if err := results.PrintTable(&text, rec.Header, s); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"at memory:1\nwarning: set: 40 % of 400 operations have no good answer: 0 failed, 160 got no answer in time\n",
		"\nrate reached: 60.0 % of what was due\n",
		"\nunanswered: 160 of 400 (40 %); 156 were never sent, and are not in service time\n",
	} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the table does not say %q:\n%s", want, &text)
		}
	}
}

// While a target does not answer, each second shows how long operations have waited by then.
func TestFrozenTargetLive(t *testing.T) {
	for _, rate := range []Pace{Steady(0), Steady(200)} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(func(now time.Duration) time.Duration {
				if now >= 2500*time.Millisecond {
					return endless
				}
				return time.Millisecond
			})
			var shown []string
			_, _, err := inBubble(t, m, t.Context(), Options{
				Groups:   []GroupOptions{{Workload: "set", Clients: 4, Rate: rate, Records: 10}},
				Duration: 5 * time.Second,
				Progress: func(tick Tick) { shown = append(shown, tick.Latencies[0].P99.String()) },
			})
			// In a closed loop it is only known that nobody said a word since the last second.
			want := map[bool]string{true: "1.00 ms, 1.00 ms, >= 470 ms, >= 1.47 s, ",
				false: "1.00 ms, 1.00 ms, 1.00 ms, >= 1.00 s, "}
			if got := strings.Join(shown, ", "); err != nil || !strings.HasPrefix(got, want[rate.Open()]) {
				t.Errorf("rate %s: p99 %s, want %s; %v", rate, got, want[rate.Open()], err)
			}
		})
	}
}

// Runs against a target that stops, beside sound ones: the comparison says what is worse.
func TestFrozenTargetsCompare(t *testing.T) {
	var sound, bad [][]results.Figure
	for seed := range uint64(8) {
		s, rec := frozen(t, endless, seed+1)
		sound = append(sound, s.Figures(&rec.Header))
		s, rec = frozen(t, 1200*time.Millisecond, seed+1)
		bad = append(bad, s.Figures(&rec.Header))
	}
	got := map[string]compare.Verdict{}
	d := compare.Sides(sound, bad, []string{"rate reached", "p50", "p99"})
	for _, row := range d.Rows {
		got[row.Name] = row.Verdict
	}
	for _, name := range []string{"rate reached", "p95", "p99", "p99.9", "unanswered"} {
		if got[name] != compare.Worse {
			t.Errorf("%s is %q, want worse: %v", name, got[name], got)
		}
	}
}

// A server that never answers one command in fifty, and the others in a millisecond: nobody knows more of the p99 than
// that it is as long as the run, and no rate holds an SLO.
func TestMuteServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(nil)
		var n atomic.Int64
		m.delay = func(time.Duration) time.Duration {
			if n.Add(1)%50 == 0 {
				return endless
			}
			return time.Millisecond
		}
		o := Options{Groups: []GroupOptions{{Workload: "set", Clients: 20, Rate: Steady(50), Records: 10}},
			Duration: 10 * time.Second, Timeout: 2 * time.Second}
		s, rec, err := inBubble(t, m, t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		adds(t, s, rec)
		if l := s.Groups[0].Total.Response; !l.P99.AtLeast || l.P99.US < 1_000_000 || l.P50.AtLeast || l.P50.US > 1010 {
			t.Errorf("p50 %s, p99 %s; want 1.00 ms, more than a second", l.P50, l.P99)
		}
		slo, err := ParseSLO("p99<5ms")
		if err != nil {
			t.Fatal(err)
		}
		o.Groups[0].Rate = pace("steps 50..100 by 50 every 1s")
		o.Search = &RateSearch{SLO: slo, Step: 10 * time.Second, Curve: true}
		s, _, err = inBubble(t, m, t.Context(), o)
		if err != nil || s.Curve.Breaks != 50 {
			t.Fatalf("%v: %s breaks from %g/s on", err, slo, s.Curve.Breaks)
		}
		why := s.Curve.Rows[0].Why
		if !strings.Contains(why, ", want p99<5ms; ") || !strings.Contains(why, ", want errors<1%") {
			t.Errorf("the first rate does not hold since %q", why)
		}
	})
}

// oneHangs returns a server that answers in a millisecond, and the hundredth command not before the end of the run.
func oneHangs() *memoryServer {
	var n atomic.Int64
	return newMemory(func(time.Duration) time.Duration {
		if n.Add(1) == 100 {
			return endless
		}
		return time.Millisecond
	})
}

// One command of a closed loop hangs for the whole run.
func TestOneHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := oneHangs()
		s, rec, err := inBubble(t, m, t.Context(), Options{
			Groups: []GroupOptions{{Workload: "set", Clients: 5, Records: 10}}, Duration: 5 * time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		adds(t, s, rec)
		g := s.Groups[0].Total
		l := g.Service
		if !l.Max.AtLeast || l.Max.US < 5_900_000 || l.P999.AtLeast || l.P999.US > 1010 || g.Unanswered != 1 {
			t.Errorf("p99.9 %s, max %s, %d unanswered; want 1.00 ms, the whole run, 1", l.P999, l.Max, g.Unanswered)
		}
		if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "1 operation had no answer 1s after the end") {
			t.Errorf("warnings %q", s.Warnings)
		}
	})
}

// One command of the warm-up hangs for the whole run.
func TestWarmupHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := oneHangs()
		s, rec, err := inBubble(t, m, t.Context(), Options{Warmup: time.Second, Duration: 5 * time.Second,
			Groups: []GroupOptions{{Workload: "set", Clients: 5, Records: 10}}})
		if err != nil {
			t.Fatal(err)
		}
		adds(t, s, rec)
		want := "set: 1 operation of the warm-up had no answer until the end, and is in no figure"
		if len(s.Warnings) != 1 || s.Warnings[0] != want || s.Groups[0].Total.Unanswered > 0 {
			t.Errorf("warnings %q, want %q", s.Warnings, want)
		}
	})
}

// A server that answers in two milliseconds, and one command in ten with an error at once: the errors make no figure
// better than it is.
func TestFastErrors(t *testing.T) {
	for _, rate := range []Pace{Steady(0), Steady(500)} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(nil)
			var n atomic.Int64
			wrong := func() bool { return n.Load()%10 == 0 }
			m.delay = func(time.Duration) time.Duration {
				if n.Add(1); wrong() {
					return 10 * time.Microsecond
				}
				return 2 * time.Millisecond
			}
			m.reply = func(time.Duration) string {
				if wrong() {
					return "-ERR busy\r\n"
				}
				return ""
			}
			s, rec, err := inBubble(t, m, t.Context(), Options{
				Groups:   []GroupOptions{{Workload: "set", Clients: 1, Rate: rate, Records: 10}},
				Duration: 5 * time.Second,
			})
			if err != nil {
				t.Fatal(err)
			}
			adds(t, s, rec)
			g := s.Groups[0].Total
			l := g.Latency()
			if l.P50.US < 2000 || l.P50.AtLeast || !l.P95.AtLeast || !l.P99.AtLeast || !l.Max.AtLeast ||
				l.Censored != g.Errors || g.Errors < g.Due()/10-1 || g.Unanswered > 1 {
				t.Errorf("rate %s: p50 %s, p95 %s, p99 %s, max %s; %+v", rate, l.P50, l.P95, l.P99, l.Max, g)
			}
			if len(s.Warnings) != 1 || !strings.Contains(s.Warnings[0], "have no good answer") {
				t.Errorf("warnings %q", s.Warnings)
			}
		})
	}
}

// A wait of 78 s is shown as it was.
func TestLongWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(at time.Duration) time.Duration {
			if at >= time.Second && at < 2*time.Second {
				return 78 * time.Second
			}
			return time.Millisecond
		})
		s, rec, err := inBubble(t, m, t.Context(), Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 2, Rate: Steady(10), Records: 10}},
			Duration: 90 * time.Second, Timeout: 5 * time.Minute,
		})
		if err != nil {
			t.Fatal(err)
		}
		adds(t, s, rec)
		g := s.Groups[0].Total
		if us := g.Response.Max.US; g.Unanswered > 0 || g.Response.Max.AtLeast || us < 78_000_000 || us > 78_080_000 {
			t.Errorf("response at most %s, %d unanswered; want 78 s, all answered", g.Response.Max, g.Unanswered)
		}
	})
}
