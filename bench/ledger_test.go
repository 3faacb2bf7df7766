package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/results"
)

// trouble is a memory server's delay of a second without trouble, a second of broken connections, one in which some
// answers take very long or never come, and then again none; from dies on it closes every connection.
func trouble(seed uint64, dies time.Duration) func(time.Duration) time.Duration {
	rng := rand.New(rand.NewPCG(seed, 0))
	return func(at time.Duration) time.Duration {
		n := rng.IntN(20)
		if at > dies {
			return -1
		}
		switch at % (3 * time.Second) / time.Second {
		case 1:
			if n == 0 {
				return -1
			}
		case 2:
			switch {
			case n == 0:
				return 24 * time.Hour
			case n < 4:
				return 700 * time.Millisecond
			}
		}
		return time.Duration(1+n) * time.Millisecond
	}
}

// adds checks that the ledgers of a record add up: those of the intervals each and together, and the summary's. Read
// has checked the balance of each.
func adds(t *testing.T, s results.Summary, rec *results.Result) {
	t.Helper()
	for i, g := range s.Groups {
		var sum results.Ledger
		var errors, unanswered, count int64
		for _, iv := range rec.Intervals {
			if iv.Phase != results.PhaseRun {
				continue
			}
			if iv.Since == 0 { // of several runs the last one counts
				sum, errors, unanswered, count = results.Ledger{}, 0, 0, 0
			}
			x := iv.Groups[i]
			if missing := x.Ledger.Balance(sum.InFlight); missing != 0 {
				t.Errorf("%s: %g s: off by %d: %+v", g.Name, iv.Since, missing, x.Ledger)
			}
			if x.Ledger.InFlight < 0 || x.Ledger.Offered < 0 || x.Ledger.Dropped < 0 ||
				x.Ledger.Behind > x.Ledger.InFlight {
				t.Errorf("%s: %g s: %+v", g.Name, iv.Since, x.Ledger)
			}
			sum.Add(x.Ledger)
			errors, count = errors+x.Total.Errors, count+x.Total.Count
			unanswered += x.Total.Unanswered
		}
		l := g.Ledger
		left := l.Unknown + l.InFlight // an answer
		if g.Total.Response != nil {
			left += l.Dropped
		}
		if l != sum || l.Balance(0) != 0 || l.OK != count || l.Errors != errors || g.Total.Count != count ||
			g.Total.Errors != errors || g.Total.Unanswered != unanswered || unanswered != left {
			t.Errorf("%s: %+v of %d answers, %d errors and %d unanswered of %d, the intervals add up to %+v", g.Name, l,
				count, errors, unanswered, left, sum)
		}
	}
}

// Where operations went adds up, in every interval and at the end: in closed and open loops, beside each other, through
// connections that break, answers that never come, a target that dies, a warm-up that leaves a backlog, and an end at
// any time. What each loop offered is known beforehand.
func TestLedgerAddsUp(t *testing.T) {
	seed := rand.Uint64()
	cases := []struct {
		name      string
		dies      time.Duration
		interrupt time.Duration
		warmup    time.Duration
	}{
		{name: "dead", dies: 3 * time.Second, interrupt: time.Hour},
		{name: "interrupted", dies: time.Hour, interrupt: 5432 * time.Millisecond},
		{name: "in trouble at the end", dies: 6 * time.Second, interrupt: time.Hour},
		{name: "to the end", dies: time.Hour, interrupt: time.Hour},
		{name: "after a warm-up", dies: time.Hour, interrupt: time.Hour, warmup: 2700 * time.Millisecond},
	}
	if testing.Short() {
		cases = cases[:2]
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(nil)
				delay := trouble(seed, c.dies)
				m.delay = func(at time.Duration) time.Duration {
					m.mu.Lock()
					defer m.mu.Unlock()
					return delay(at)
				}
				ctx, cancel := context.WithTimeout(t.Context(), c.interrupt)
				defer cancel()
				const length = 8 * time.Second
				deadAfter := 2 * time.Second
				if c.dies == 6*time.Second {
					deadAfter = time.Minute
				}
				s, rec, err := inBubble(t, m, ctx, Options{
					Groups: []GroupOptions{
						{Workload: "set", Clients: 5, Pipeline: 3, Records: 100},
						{Name: "even", Workload: "set", Clients: 4, Rate: Steady(300), Records: 100},
						{Name: "random", Workload: "ycsb-d", Clients: 4, Pipeline: 5, Rate: pace("poisson 200"),
							Records: 10},
						{Name: "ramp", Workload: "incr", Clients: 2, Rate: pace("ramp 0..40 8s"), Records: 100},
						{Name: "too much", Workload: "set", Clients: 1, Rate: Steady(1000), Records: 100},
					},
					Duration: length, Warmup: c.warmup, Timeout: 3 * time.Second, DeadAfter: deadAfter,
					Seed: seed >> 11,
				})
				if (err != nil) != (c.name == "dead") || s.Interrupted != (c.name == "interrupted") {
					t.Fatalf("seed %d: error %v, interrupted %v", seed, err, s.Interrupted)
				}
				adds(t, s, rec)
				var all results.Ledger
				for _, g := range s.Groups {
					l := g.Ledger
					all.Errors, all.Unknown, all.InFlight = all.Errors+l.Errors, all.Unknown+l.Unknown,
						all.InFlight+l.InFlight
					t.Logf("%s: %+v %v", g.Name, l, g.Kinds)
				}
				if all.Unknown == 0 {
					t.Errorf("seed %d: no outcome is unknown", seed)
				}
				even, over := s.Groups[1].Ledger, s.Groups[4].Ledger
				if want := int64(300 * length.Seconds()); c.name == "to the end" && even.Offered != want ||
					over.Dropped == 0 {
					t.Errorf("seed %d: %d offered, want %d; too much: %+v", seed, even.Offered, want, over)
				}
				if t.Failed() {
					t.Logf("seed %d", seed)
				}
			})
		})
	}
}

// The backlog of a warm-up stays there: the measured part begins with a fresh schedule, and what was sent before does
// not count in it.
func TestWarmupBacklogStays(t *testing.T) {
	for _, rate := range []Pace{Steady(0), Steady(500), pace("poisson 500")} {
		t.Run(fmt.Sprint("rate ", rate), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(func(at time.Duration) time.Duration {
					if at > 100*time.Millisecond && at < 1900*time.Millisecond {
						return 1950*time.Millisecond - at
					}
					return time.Millisecond
				})
				s, rec, err := inBubble(t, m, t.Context(), Options{
					Groups:   []GroupOptions{{Workload: "set", Clients: 3, Rate: rate, Records: 10}},
					Warmup:   2 * time.Second,
					Duration: 2 * time.Second,
				})
				if err != nil {
					t.Fatal(err)
				}
				adds(t, s, rec)
				g := s.Groups[0]
				if g.Total.Service.Max.US > 1100 || g.Total.Count < 900 ||
					rate.Open() && g.Total.Response.Max.US > 20_000 {
					t.Errorf("%d operations, service at most %d us, response %+v; want nothing of the warm-up",
						g.Total.Count, g.Total.Service.Max.US, g.Total.Response)
				}
				if rate.String() == "500" && (g.Ledger.Offered != 1000 || g.Total.Count != 1000) {
					t.Errorf("%+v, want 1000 offered and answered", g.Ledger)
				}
				warm := rec.Intervals[1]
				if warm.Phase != results.PhaseWarmup || rate.Open() && warm.Groups[0].Ledger.InFlight < 500 {
					t.Errorf("warm-up ends with %+v, want a backlog", warm.Groups[0].Ledger)
				}
			})
		})
	}
}
