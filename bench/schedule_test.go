package bench

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

func TestSchedule(t *testing.T) {
	for _, c := range []struct {
		rate   float64
		length time.Duration
		n      int64
		at     time.Duration
	}{
		{1, time.Minute, 0, 0},
		{1, time.Minute, 59, 59 * time.Second},
		{1000, time.Second, 1, time.Millisecond},
		{3, time.Second, 1, 333333333},
		{0.1, time.Hour, 7, 70 * time.Second},
		{1e6, time.Hour, 3_599_999_999, time.Hour - time.Microsecond},
	} {
		if got := (schedule{c.rate, c.length}).at(c.n); got != c.at {
			t.Errorf("rate %g: operation %d at %s, want %s", c.rate, c.n, got, c.at)
		}
	}
	for _, c := range []struct {
		rate   float64
		length time.Duration
		t      time.Duration
		want   int64
	}{
		{10, time.Second, 0, 0},
		{10, time.Second, 1, 1},
		{10, time.Second, 100 * time.Millisecond, 1},
		{10, time.Second, 100*time.Millisecond + 1, 2},
		{10, time.Second, time.Second, 10},
		{10, time.Second, time.Minute, 10},
		{10, time.Second, -time.Second, 0},
		{3, time.Second, time.Minute, 3},
		{0.5, time.Second, time.Minute, 1},
		{100_000, 30 * time.Second, time.Minute, 3_000_000},
	} {
		if got := (schedule{c.rate, c.length}).due(c.t); got != c.want {
			t.Errorf("rate %g for %s: %d due after %s, want %d", c.rate, c.length, got, c.t, c.want)
		}
	}
}

// At any rate, due counts exactly the operations that at puts before an instant, and clients together send each
// operation once.
func TestScheduleAgreesWithItself(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 1000 {
		s := schedule{rate: rng.Float64() * []float64{1, 1000, 1e6}[rng.IntN(3)], length: time.Hour}
		at := time.Duration(rng.Int64N(int64(time.Hour)))
		n := s.due(at)
		if n > 0 && s.at(n-1) >= at || s.at(n) < at {
			t.Fatalf("seed %d: rate %g: %d due before %d, at %d %d", seed, s.rate, n, at, s.at(n-1), s.at(n))
		}
	}
	s := schedule{rate: 977, length: 3 * time.Second}
	seen := map[time.Duration]bool{}
	const clients = 7
	for i := range int64(clients) {
		p := schedulePlace{plan: s, n: i, step: clients}
		last := time.Duration(-1)
		for at, ok := p.next(); ok; at, ok = p.next() {
			if at <= last || seen[at] {
				t.Fatalf("client %d: %s again or not after %s", i, at, last)
			}
			seen[at], last = true, at
			p.advance()
		}
	}
	if got, want := fmt.Sprint(len(seen)), fmt.Sprint(s.due(s.length)); got != want {
		t.Errorf("clients send %s operations, want %s", got, want)
	}
}
