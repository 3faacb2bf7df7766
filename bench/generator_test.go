package bench

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

func TestMachineTicks(t *testing.T) {
	const stat = "cpu  100 1 20 300 40 5 6 7 50 0\ncpu0 100 1 20 300 40 5 6 7 50 0\n"
	if busy, all := machineTicks(stat); busy != 139 || all != 479 {
		t.Errorf("%d of %d ticks, want 139 of 479", busy, all)
	}
	for _, bad := range []string{"", "intr 5\n", "cpu 1 x\n"} {
		if busy, all := machineTicks(bad); busy != 0 || all != 0 {
			t.Errorf("%q: %d of %d ticks, want none", bad, busy, all)
		}
	}
	before := generatorClock{at: time.Second, process: time.Second, busy: 100, all: 1000}
	after := generatorClock{at: 3 * time.Second, process: 4 * time.Second, busy: 400, all: 1400}
	if l := after.since(before); l.Cores != 1.5 || l.Busy != 0.75 {
		t.Errorf("%+v, want 1.5 cores, 0.75 busy", l)
	}
	if l := before.since(before); l != (results.GeneratorLoad{}) {
		t.Errorf("%+v in no time", l)
	}
}

// The generator's own process is seen to work.
func TestGeneratorReadsItself(t *testing.T) {
	r := &run{sockets: true, epoch: time.Now()}
	before := r.readGenerator()
	var l results.GeneratorLoad
	for deadline := time.Now().Add(10 * time.Second); l.Cores == 0 && time.Now().Before(deadline); {
		l = r.readGenerator().since(before)
	}
	if l.Cores == 0 {
		t.Error("ten seconds of work, and no CPU time")
	}
}

// Who was the bottleneck, and what else makes figures doubtful.
func TestWarnings(t *testing.T) {
	late := func(p99 int64) *results.Latency { return &results.Latency{P99: results.Quantile{US: p99}} }
	for _, c := range []struct {
		name      string
		load      results.GeneratorLoad
		inProcess bool
		want      string
	}{
		{"idle", results.GeneratorLoad{Cores: 0.5, Busy: 0.3, Late: late(60)}, false, ""},
		{"unknown", results.GeneratorLoad{}, false, ""},
		{"generator", results.GeneratorLoad{Cores: 1.9, Busy: 0.6}, false, "saturated, it used 1.90 of 2 cores"},
		{"with its cluster", results.GeneratorLoad{Cores: 1.9, Busy: 0.9}, true, ""},
		{"machine", results.GeneratorLoad{Cores: 1, Busy: 0.97}, true,
			"the machine was saturated, its cores 97 % busy"},
		{"late", results.GeneratorLoad{Cores: 1, Late: late(2500)}, true, "left 2.50 ms or more after"},
	} {
		got := strings.Join(saturation(c.load, c.inProcess, 2), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	get, _ := workloads.Find("get")
	absent, _ := workloads.Find("read-missing")
	for _, c := range []struct {
		name     string
		workload *workloads.Workload
		ledger   results.Ledger
		misses   int64
		waited   int64
		want     string
	}{
		{"good", get, results.Ledger{Offered: 1000, OK: 1000}, 400, 9, ""},
		{"few errors", get, results.Ledger{Offered: 1000, OK: 990, Errors: 10}, 400, 0, ""},
		{"one hangs", get, results.Ledger{Offered: 1000, OK: 999, InFlight: 1}, 0, 0,
			"get: 1 operation had no answer 1s after the end"},
		{"too fast", get, results.Ledger{Offered: 1000, OK: 980, Dropped: 20}, 0, 900,
			"get: 2 % of 1,000 operations have no good answer: 0 failed, 20 got no answer in time"},
		{"errors", get, results.Ledger{Offered: 1000, OK: 500, Errors: 500}, 0, 0,
			"get: 50 % of 1,000 operations have no good answer: 500 failed, 0 got no answer in time"},
		{"misses", get, results.Ledger{Offered: 1000, OK: 1000}, 600, 0, "get: 60 % of the reads found nothing"},
		{"few clients", get, results.Ledger{Offered: 1000, OK: 1000}, 0, 120,
			"get: 12 % of the operations were due while all clients were busy"},
		{"meant to miss", absent, results.Ledger{Offered: 1000, OK: 1000}, 1000, 0, ""},
	} {
		op := results.OpStats{Name: "get", Count: c.ledger.OK, Errors: c.ledger.Errors, Misses: c.misses,
			Unanswered: c.ledger.Dropped + c.ledger.InFlight}
		g := results.GroupStats{Name: "get", Ledger: c.ledger, Waited: c.waited, Ops: []results.OpStats{op}, Total: op}
		got := strings.Join(doubts(true, c.workload.Ops, g), "\n")
		if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// A rate is kept to one percent, of every kind of plan, as long as the target can; operations leave when they should.
func TestRateIsKept(t *testing.T) {
	for _, c := range []struct {
		pace string
		want float64
		off  float64
	}{
		{"500", 5000, 0.01}, {"ramp 100..900 10s", 5000, 0.01}, {"steps 200..1000 by 200 every 2s", 6000, 0.01},
		{"poisson 1000", 10_000, 0.04}, // four standard deviations
	} {
		t.Run(c.pace, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
				s, rec, err := inBubble(t, m, t.Context(), Options{
					Groups:   []GroupOptions{{Workload: "set", Clients: 8, Rate: pace(c.pace), Records: 100}},
					Duration: 10 * time.Second, Seed: 3,
				})
				if err != nil {
					t.Fatal(err)
				}
				adds(t, s, rec)
				g := s.Groups[0]
				if off := float64(g.Total.Count)/c.want - 1; math.Abs(off) > c.off || len(s.Warnings) > 0 ||
					g.Ledger.Offered != g.Total.Count || s.Seconds < 10 || s.Seconds > 10.01 {
					t.Errorf("%+v in %g s, want %g; %v", g.Ledger, s.Seconds, c.want, s.Warnings)
				}
				if l := s.Generator.Late; l == nil || l.Max.US > 1 {
					t.Errorf("late by %+v, want 1 us, to which times are rounded up", l)
				}
			})
		})
	}
}

// A rate beyond the target is said not to be reached.
func TestWarnsOfRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(time.Duration) time.Duration { return 100 * time.Millisecond })
		s, _, err := inBubble(t, m, t.Context(), Options{
			Groups:   []GroupOptions{{Workload: "get", Clients: 1, Rate: Steady(100), Records: 10}},
			Duration: 5 * time.Second,
		})
		if err != nil || len(s.Warnings) != 1 ||
			!strings.Contains(s.Warnings[0], "of 500 operations have no good answer") {
			t.Errorf("warnings %q, %v", s.Warnings, err)
		}
	})
}
