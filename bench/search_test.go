package bench

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/results"
)

func TestSLO(t *testing.T) {
	tally := newTally(1)
	for i := range 1000 { // 1 to 1000 ms
		if due := time.Duration(i+1) * time.Millisecond; i == 0 { // it might take a second, too
			tally.fail(0, "ERR", due, due)
		} else {
			tally.add(0, time.Millisecond, due, false)
		}
	}
	tally.drop(0, -1, 2*time.Second)
	for _, c := range []struct{ slo, broken string }{
		{"p50<503ms", ""},
		{"p50 < 500ms", ">= 501 ms, want p50<500ms"},
		{"p99<900ms, max<3s, errors<1%", ">= 991 ms, want p99<900ms; >= 2.00 s, want max<3s"},
		{"p50<503ms,errors<0.1%", "0.2 % without a good answer, want errors<0.1%"},
		{"errors<=0.2%", ""},
		{"errors<=0%", "0.2 % without a good answer, want errors<=0%"},
	} {
		s, err := ParseSLO(c.slo)
		want := c.slo
		if !strings.Contains(want, "errors") {
			want += ", errors<1%"
		}
		if err != nil || s.String() != want {
			t.Fatalf("%s: prints %s, %v", c.slo, s, err)
		}
		if got := s.broken(tally.all()); got != c.broken {
			t.Errorf("%s: %q, want %q", c.slo, got, c.broken)
		}
	}
	if s, _ := ParseSLO("p99<1s"); s.broken(newTally(2).all()) != "no answer, want p99<1s" {
		t.Error("an SLO holds without any answer")
	}
	for _, c := range []struct{ slo, says string }{
		{"", "want pN<TIME"},
		{"p99>5ms", "want pN<TIME"},
		{"p100<5ms", "between p0 and p100"},
		{"p<5ms", "between p0 and p100"},
		{"p99<5", "want a time of more than 0"},
		{"max<-1s", "want a time of more than 0"},
		{"mean<1s", "want pN<TIME"},
		{"errors<5", "want a share"},
		{"errors<200%", "want a share"},
		{"p99<5ms,,max<x", `slo "max<x": "x", want a time`},
		{"p99<5ms,,max<x", `slo "": want pN<TIME`},
	} {
		if _, err := ParseSLO(c.slo); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want an error that says %q", c.slo, err, c.says)
		}
	}
}

// The search ends next to the highest rate that holds, wherever it begins, and after few steps.
func TestBracket(t *testing.T) {
	for _, c := range []struct {
		first, highest float64
		steps          int
	}{
		{1000, 50_000, 13}, {1000, 1000, 8}, {1000, 37, 12}, {1_000_000, 50_000, 11}, {1000, 0, 11},
		{1000, maxRate, 19},
		{7, 7.5, 7},
	} {
		b, steps := bracket{}, 0
		for rate := c.first; rate > 0; rate = b.next() {
			if steps++; steps > c.steps {
				t.Fatalf("from %g to %g: more than %d steps, at %+v", c.first, c.highest, c.steps, b)
			}
			b.add(rate, rate <= c.highest)
		}
		if b.low > c.highest || b.low < c.highest/closeEnough-1 {
			t.Errorf("from %g: %g after %d steps, want %g", c.first, b.low, steps, c.highest)
		}
	}
	r := &run{verdicts: map[float64]rateVerdict{10: {breaks: true}, 20: {}, 30: {breaks: true, lags: true},
		40: {breaks: true, lags: true, saturates: true}}}
	var c results.Curve
	if r.mark(&c); c.Breaks != 30 || c.Lags != 30 || c.Saturates != 40 {
		t.Errorf("marks %+v, want 30, 30 and 40, and nothing of what 10 did by chance", c)
	}
	for in, want := range map[float64]float64{123_456: 123_000, 999.6: 1000, 1: 1, 0.123456: 0.123} {
		if got := threeDigits(in); got != want {
			t.Errorf("threeDigits(%g) = %g, want %g", in, got, want)
		}
	}
}

// queue is a memory server's delay of a server that works on one command at a time, each for so long.
func queue(m *memoryServer, each time.Duration) func(time.Duration) time.Duration {
	var free time.Duration
	return func(at time.Duration) time.Duration {
		m.mu.Lock()
		defer m.mu.Unlock()
		free = max(free, at) + each
		return free - at
	}
}

func slo(text string) SLO {
	s, err := ParseSLO(text)
	if err != nil {
		panic(err)
	}
	return s
}

// A server that takes a millisecond per command has its knee at 1000 per second.
func TestFindMax(t *testing.T) {
	if testing.Short() {
		t.Skip("the goroutines are those of TestCurve")
	}
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(nil)
		m.delay = queue(m, time.Millisecond)
		s, rec, err := inBubble(t, m, t.Context(), Options{
			Groups: []GroupOptions{
				{Workload: "set", Clients: 20, Rate: pace("poisson 100"), Records: 100},
				{Name: "rare", Workload: "set", Clients: 1, Rate: Steady(10), Records: 100},
			},
			Duration: 5 * time.Second, Warmup: time.Second, Search: &RateSearch{SLO: slo("p99<20ms")},
		})
		if err != nil {
			t.Fatal(err)
		}
		adds(t, s, rec)
		c := s.Curve
		// In a queue of random arrivals at a share x of the capacity, response times have a p99 of about 2.3/(1-x) ms
		// (M/D/1), so that 20 ms hold up to 0.88 or so.
		if !c.Confirmed || c.Best < 780 || c.Best > 960 || c.Measured != c.Best || c.Breaks <= c.Best ||
			c.SLO != "p99<20ms, errors<1%" {
			t.Errorf("best %g, confirmed %v, measured at %g, breaks at %g", c.Best, c.Confirmed, c.Measured, c.Breaks)
		}
		if c.Above <= c.Best || c.Above > 1.3*c.Best || !strings.Contains(c.Stopped, "want p99<20ms") {
			t.Errorf("the limit lies between %g and %g, %q", c.Best, c.Above, c.Stopped)
		}
		for _, row := range c.Rows {
			if row.Ledger.Offered < 1000 || row.Seconds < 3 {
				t.Errorf("%d operations in %g s at %g/s, want ten beyond p99", row.Ledger.Offered, row.Seconds,
					row.Rate)
			}
		}
		g := s.Groups[0]
		if off := float64(g.Total.Count)/(5*c.Best) - 1; off < -0.1 || off > 0.1 || g.Total.Response.P99.US >= 20_000 ||
			s.Groups[1].Total.Count != 50 {
			t.Errorf("the run at %g: %+v, p99 %d us", c.Best, g.Ledger, g.Total.Response.P99.US)
		}
		var phases []string
		for _, iv := range rec.Intervals {
			if n := len(phases); n == 0 || phases[n-1] != iv.Phase {
				phases = append(phases, iv.Phase)
			}
		}
		if all := strings.Join(phases, " "); !strings.HasPrefix(all, "warmup step warmup step") ||
			!strings.HasSuffix(all, "warmup run") {
			t.Errorf("phases %s", all)
		}
		var table strings.Builder
		if err := results.PrintTable(&table, rec.Header, s); err != nil || !strings.Contains(table.String(),
			"highest rate that holds p99<20ms, errors<1%: ") ||
			!strings.Contains(table.String(), ", confirmed by the run; the limit lies between") ||
			!strings.Contains(table.String(), " ops/s, Poisson; 100 records") {
			t.Errorf("%v\n%s", err, table.String())
		}
	})
}

// An SLO that no rate holds ends the search, without a run.
func TestFindMaxOfNone(t *testing.T) {
	if testing.Short() {
		t.Skip("the goroutines are those of TestCurve")
	}
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(time.Duration) time.Duration { return 10 * time.Millisecond })
		s, _, err := inBubble(t, m, t.Context(), Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 20, Records: 100}},
			Duration: 5 * time.Second, Search: &RateSearch{SLO: slo("p99<5ms"), Step: time.Second},
		})
		// A step of 1000 operations may last a minute.
		const stopped = "for 10 operations beyond p99 a step at 16/s would have to last 1m4s, and it lasts 1m0s at most"
		if c := s.Curve; err != nil || c.Best != 0 || c.Confirmed || s.Seconds != 0 || len(c.Rows) != 12 ||
			c.Breaks != 31.25 || c.Stopped != stopped {
			t.Errorf("%v: best %g, %d steps, breaks at %g: %s", err, c.Best, len(c.Rows), c.Breaks, c.Stopped)
		}
	})
}

// What holds in a short step and not in a run is not confirmed; a lower rate is tried instead.
func TestFindMaxConfirms(t *testing.T) {
	if testing.Short() {
		t.Skip("the goroutines are those of TestCurve")
	}
	for _, later := range []time.Duration{1200 * time.Microsecond, 100 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(nil)
			fast, slow := queue(m, time.Millisecond), queue(m, later)
			var measured atomic.Bool
			m.delay = func(at time.Duration) time.Duration {
				if measured.Load() {
					return slow(at)
				}
				return fast(at)
			}
			s, rec, err := inBubble(t, m, t.Context(), Options{
				Groups:   []GroupOptions{{Workload: "set", Clients: 20, Rate: Steady(500), Records: 100}},
				Duration: 4 * time.Second, Search: &RateSearch{SLO: slo("p99<50ms"), Step: 2 * time.Second},
				Progress: func(tick Tick) { measured.Store(measured.Load() || tick.Phase == results.PhaseRun) },
			})
			if err != nil {
				t.Fatal(err)
			}
			adds(t, s, rec)
			c := s.Curve
			if recovers := later < 10*time.Millisecond; recovers && (!c.Confirmed || c.Best > 820) ||
				!recovers && (c.Confirmed || c.Best < 900 ||
					!strings.Contains(strings.Join(s.Warnings, " "), "no rate was confirmed")) {
				t.Errorf("best %g, confirmed %v, warnings %q, %d steps", c.Best, c.Confirmed, s.Warnings, len(c.Rows))
			}
		})
	}
}

// The curve of a server with its knee at 1000 per second.
func TestCurve(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(nil)
		m.delay = queue(m, time.Millisecond)
		o := Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 10, Records: 100}},
			Duration: time.Second, Search: &RateSearch{SLO: slo("p99<8ms"), Curve: true, Step: 2 * time.Second},
		}
		s, rec, err := inBubble(t, m, t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		c := s.Curve
		if len(c.Rows) != 13 || c.Rows[0].Rate < 950 || c.Rows[0].Rate > 1001 || c.Best != 0 {
			t.Errorf("%d steps, the closed loop gives %g", len(c.Rows), c.Rows[0].Rate)
		}
		if c.Lags < 1000 || c.Lags > 1100 || c.Saturates < 1000 || c.Saturates > 1100 || c.Breaks < 990 ||
			c.Breaks > 1100 {
			t.Errorf("lags from %g, breaks from %g, saturates from %g; want about 1000", c.Lags, c.Breaks, c.Saturates)
		}
		for _, row := range c.Rows[1:] {
			if held := row.Rate <= 1000; held != (row.Why == "") || row.Ledger.Balance(0) != 0 ||
				row.Total.PerSecond > 1001 {
				t.Errorf("%g: %q, %+v, %g per second", row.Rate, row.Why, row.Ledger, row.Total.PerSecond)
			}
		}
		if len(rec.Summary.Curve.Rows) != len(c.Rows) || s.Seconds != 0 {
			t.Errorf("%d steps in the record, %g s measured", len(rec.Summary.Curve.Rows), s.Seconds)
		}
		var table strings.Builder
		if err := results.PrintTable(&table, rec.Header, s); err != nil || !strings.Contains(table.String(),
			"curve: lags behind its schedule from 1,") || !strings.Contains(table.String(), "not sent in time") {
			t.Errorf("%v\n%s", err, table.String())
		}
		o.Groups[0].Rate = pace("steps 100..300 by 100 every 1s")
		if s, _, err = inBubble(t, m, t.Context(), o); err != nil || len(s.Curve.Rows) != 3 || s.Curve.Lags > 0 {
			t.Errorf("%v: %+v; want three good steps", err, s.Curve)
		}
	})
}

// TestCurveOfClients: a server that answers one call at a time gives no more to more clients, which wait for each
// other.
func TestCurveOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(nil)
		m.delay = queue(m, time.Millisecond)
		o := Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 16, Records: 100}},
			Duration: time.Second,
			Search:   &RateSearch{SLO: slo("p99<6ms"), Curve: true, Clients: []int{1, 4, 8, 16, 2}},
		}
		s, rec, err := inBubble(t, m, t.Context(), o)
		if err != nil {
			t.Fatal(err)
		}
		const search = "5 numbers of clients, each for 3s to 1m0s, SLO p99<6ms, errors<1%"
		if s.Seconds != 0 || len(s.Curve.Rows) != 5 || rec.Header.Search != search {
			t.Errorf("%g s measured, %d steps, search %q", s.Seconds, len(s.Curve.Rows), rec.Header.Search)
		}
		for i, row := range s.Curve.Rows {
			n := o.Search.Clients[i]
			took := time.Duration(row.Total.Latency().P50.US) * time.Microsecond
			if row.Clients != n || row.Rate != row.Total.PerSecond || row.Rate < 990 || row.Rate > 1010 ||
				took < time.Duration(n)*990*time.Microsecond || took > time.Duration(n)*1010*time.Microsecond ||
				(row.Why == "") != (n < 6) {
				t.Errorf("step %d, %d clients: %g/s, p50 %s, %q; want %d ms each at 1000/s", i, row.Clients, row.Rate,
					took, row.Why, n)
			}
		}
		var table strings.Builder
		if err := results.PrintTable(&table, rec.Header, s); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{"\nclients", "several numbers of clients",
			"p99<6ms, errors<1% does not hold from 8 clients on"} {
			if !strings.Contains(table.String(), want) {
				t.Errorf("the table does not say %q:\n%s", want, table.String())
			}
		}
	})
}

func TestParseClients(t *testing.T) {
	for text, want := range map[string][]int{
		"1, 2,4": {1, 2, 4}, "7": {7}, "steps 2..9 by 3": {2, 5, 8}, "steps 9..2 by 3": {9, 6, 3},
		"steps 10000..10000 by 1": {10000},
	} {
		if got, err := ParseClients(text); err != nil || !slices.Equal(got, want) {
			t.Errorf("%q: %v, %v, want %v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "0", "1,,2", "-1", "10001", "1..5", "steps 1..5", "steps 1..5 by 0",
		"steps 1 by 1", "steps 1..2 every 1", "99999999999999999999", "steps 1..10000 by 1"} {
		if got, err := ParseClients(text); err == nil {
			t.Errorf("%q: %d numbers, want an error", text, len(got))
		}
	}
}

// A search that the user ends, or whose target dies, leaves the steps that ran.
func TestSearchCutShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		o := Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 10, Records: 100}},
			Duration: time.Second, Search: &RateSearch{SLO: slo("p99<8ms")}, DeadAfter: 2 * time.Second,
		}
		s, _, err := inBubble(t, m, ctx, o)
		if err != nil || !s.Interrupted || len(s.Curve.Rows) != 3 {
			t.Errorf("%v: interrupted %v, %+v", err, s.Interrupted, s.Curve)
		}
		m.delay = func(at time.Duration) time.Duration {
			if at > 15*time.Second {
				return -1
			}
			return time.Millisecond
		}
		if s, _, err = inBubble(t, m, t.Context(), o); err == nil || s.Failure == "" || len(s.Curve.Rows) == 0 {
			t.Errorf("%v: failure %q, %+v", err, s.Failure, s.Curve)
		}
	})
}

func TestSearchRefused(t *testing.T) {
	for _, c := range []struct {
		search RateSearch
		rate   string
		says   string
	}{
		{RateSearch{}, "0", "slo: none given"},
		{RateSearch{SLO: slo("max<1s"), Step: time.Millisecond}, "0", "step: 1ms, want 100ms"},
		{RateSearch{SLO: slo("max<1s")}, "ramp 1..2 1s", `rate "ramp 1..2 1s"`},
		{RateSearch{SLO: slo("max<1s")}, "steps 1..2 by 1 every 1s", `rate "steps 1..2`},
		{RateSearch{Curve: true}, "ramp 1..2 1s", `rate "ramp 1..2 1s"`},
		{RateSearch{SLO: slo("max<1s"), Step: 2 * time.Second, MaxStep: time.Second}, "0",
			"max step: 1s, want 2s, the step, to"},
		{RateSearch{SLO: slo("p50<1ms,p99.99<1s")}, "0", "slo: for 10 operations beyond p99.99 a step at 1,000/s " +
			"would have to last 1m40s, and it lasts 1m0s at most: give it a higher rate"},
		{RateSearch{SLO: slo("p99<1s"), Curve: true}, "steps 10..20 by 10 every 1s",
			"a step at 10/s would have to last 1m40s"},
		{RateSearch{SLO: slo("p99<1s"), Clients: []int{1}}, "0", "clients: only a curve"},
		{RateSearch{Curve: true, Clients: []int{1}}, "5", `rate "5": a curve of clients is a closed loop`},
		{RateSearch{Curve: true, Clients: []int{1, 10000}}, "0", "clients: [1 10000], want at most 1000 numbers"},
	} {
		o := usual(Options{Groups: []GroupOptions{{Workload: "set", Rate: pace(c.rate)}}, Search: &c.search})
		if err := o.Check(); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%+v: %v, want an error that says %q", c.search, err, c.says)
		}
	}
}
