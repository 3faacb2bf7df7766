package bench

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// Where MSER cuts.
func TestMSER(t *testing.T) {
	for _, c := range []struct {
		name   string
		values []float64
		cut    int
	}{
		{"steady", []float64{5, 5, 5, 5, 5, 5, 5, 5, 5, 5}, 0},
		{"three too high", []float64{50, 30, 20, 5, 6, 5, 6, 5, 6, 5, 6, 5}, 3},
		{"one too low", []float64{0, 5, 6, 5, 6, 5, 6, 5, 6, 5, 6}, 1},
		{"falls to the end", []float64{100, 90, 80, 70, 60, 50, 40, 30, 20, 10}, 5}, // as much as it may
	} {
		if got := mser(c.values); got != c.cut {
			t.Errorf("%s: mser(%v) = %d; want %d", c.name, c.values, got, c.cut)
		}
	}
	if got := batchMeans([]float64{1, 2, 3, 4, 5, 10, 10, 10, 10, 10, 99}); len(got) != 2 ||
		math.Abs(got[0]-3) > 1e-9 || got[1] != 10 {
		t.Errorf("means %v, want 3 and 10 without what is left over", got)
	}
}

// The finder waits while values fall and ends soon afterwards, whatever the noise.
func TestWarmupEnd(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		e := newWarmupEnd(1)
		n := 0
		for ; !e.found && n < 600; n++ {
			value := 1000 + 50*rng.NormFloat64()
			if n < 100 {
				value += 200 * float64(100-n)
			}
			e.add(value)
		}
		if n < 100 || n > 400 {
			t.Errorf("seed %d: found the end after %d values, want it soon after 100", seed, n)
		}
	}
}

// With --warmup auto a run measures from when service times no longer change; without an end to that it says so.
func TestWarmupAuto(t *testing.T) {
	for _, c := range []struct {
		name            string
		settles         bool
		rate            Pace
		atLeast, atMost time.Duration
	}{
		{"closed", true, Pace{}, 5 * time.Second, 20 * time.Second},
		{"open", true, Steady(200), 5 * time.Second, 20 * time.Second},
		{"never", false, Pace{}, time.Minute, time.Minute},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(func(at time.Duration) time.Duration {
					switch settled := 5 * time.Second; {
					case !c.settles: // ever slower
						return time.Millisecond + at/1000
					case at < settled:
						return time.Millisecond + (settled-at)/200
					}
					return time.Millisecond
				})
				s, rec, err := inBubble(t, m, t.Context(), Options{
					Groups:   []GroupOptions{{Workload: "set", Clients: 2, Rate: c.rate, Records: 100}},
					Duration: 3 * time.Second, WarmupAuto: true,
				})
				if err != nil {
					t.Fatal(err)
				}
				adds(t, s, rec)
				warmup := time.Duration(s.Warmup * float64(time.Second))
				warned := strings.Contains(strings.Join(s.Warnings, " "), "the warm-up took all of 1m0s")
				if warmup < c.atLeast || warmup > c.atMost || warned == c.settles {
					t.Errorf("warm-up of %s, warnings %q; want %s to %s", warmup, s.Warnings, c.atLeast, c.atMost)
				}
				if g := s.Groups[0].Total; c.settles && g.Service.Max.US > 1100 || s.Seconds < 3 || s.Seconds > 3.1 {
					t.Errorf("measured %g s, service time at most %d us", s.Seconds, g.Service.Max.US)
				}
			})
		})
	}
}
