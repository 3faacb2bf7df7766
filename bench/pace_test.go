package bench

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// pace reads a plan that is known to be right.
func pace(text string) Pace {
	p, err := ParsePace(text)
	if err != nil {
		panic(err)
	}
	return p
}

// When operations start, and how many are due.
func TestPaceTimes(t *testing.T) {
	for _, c := range []struct {
		pace string
		due  float64
		at   time.Duration
	}{
		{"1", 0, 0},
		{"1", 59, 59 * time.Second},
		{"1000", 1, time.Millisecond},
		{"3", 1, 333333333},
		{"0.1", 7, 70 * time.Second},
		{"1e6", 3_599_999_999, time.Hour - time.Microsecond},
		// The first 10 s of a ramp from 0 to 100 in 10 s have 500 operations, the first 5 s a quarter of them.
		{"ramp 0..100 10s", 0, 0},
		{"ramp 0..100 10s", 125, 5 * time.Second},
		{"ramp 0..100 10s", 500, 10 * time.Second},
		{"ramp 0..100 10s", 700, 12 * time.Second},
		{"ramp 100..0 10s", 375, 5 * time.Second},
		{"ramp 100..0 10s", 501, never},
		{"ramp 100..300 10s", 2000, 10 * time.Second},
		{"ramp 100..300 10s", 2300, 11 * time.Second},
		{"steps 10..30 by 10 every 1s", 10, time.Second},
		{"steps 10..30 by 10 every 1s", 20, 1500 * time.Millisecond},
		{"steps 10..30 by 10 every 1s", 60, 3 * time.Second},
		{"steps 10..30 by 10 every 1s", 90, 4 * time.Second},
		{"steps 30..10 by 10 every 1s", 60, 3 * time.Second},
		{"steps 10..35 by 10 every 1s", 120, 5 * time.Second}, // never faster than 35
	} {
		p := pace(c.pace)
		if got := p.at(c.due); got != c.at {
			t.Errorf("%s: operation %g at %s, want %s", c.pace, c.due, got, c.at)
		}
	}
	for _, c := range []struct {
		pace   string
		length time.Duration
		t      time.Duration
		want   int64
	}{
		{"10", time.Second, -1, 0},
		{"10", time.Second, 0, 1},
		{"10", time.Second, 100*time.Millisecond - 1, 1},
		{"10", time.Second, 100 * time.Millisecond, 2},
		{"10", time.Second, time.Second, 10},
		{"10", time.Second, time.Minute, 10},
		{"3", time.Second, time.Minute, 3},
		{"0.5", time.Second, time.Minute, 1},
		{"100000", 30 * time.Second, time.Minute, 3_000_000},
		{"ramp 0..100 10s", time.Minute, 10*time.Second - 1, 500},
		{"steps 10..30 by 10 every 1s", time.Minute, 3*time.Second - 1, 60},
	} {
		if got := newDueCounter(&timetable{Pace: pace(c.pace), length: c.length}).upTo(c.t); got != c.want {
			t.Errorf("%s for %s: %d due after %s, want %d", c.pace, c.length, got, c.t, c.want)
		}
	}
}

func TestPaceText(t *testing.T) {
	for _, text := range []string{"0", "20000", "0.5", "2e4", "poisson 20000", "ramp 1000..20000 60s",
		"poisson ramp 0..20000 1m30s", "steps 1000..20000 by 1000 every 10s", "poisson steps 20..1 by 1 every 100ms",
		"jitter 500"} {
		p, err := ParsePace(text)
		if err != nil || p.String() != text || p.Open() != (text != "0") {
			t.Errorf("%q: prints %q, open loop %v, %v", text, p, p.Open(), err)
		}
		if again := pace(p.String()); fmt.Sprint(again) != fmt.Sprint(p) || len(again.parts) != len(p.parts) {
			t.Errorf("%q: read again %+v, want %+v", text, again, p)
		}
	}
	for _, c := range []struct{ text, says string }{
		{"", "want N per second, ramp"},
		{"fast", `"fast" is no number`},
		{"-1", "want 0 to 1e+08"},
		{"NaN", "want 0 to 1e+08"},
		{"2e8", "want 0 to 1e+08"},
		{"poisson", "want N per second"},
		{"poisson 0", "no arrivals"},
		{"jitter 0", "no arrivals"},
		{"poisson jitter 5", "want N per second"},
		{"ramp 1..2", "want N per second"},
		{"ramp 1 10s", "two rates A..B"},
		{"ramp 5..5 10s", "two different rates"},
		{"ramp 1..2 10", "a duration from 1ms"},
		{"ramp 1..2 -1s", "a duration from 1ms"},
		{"ramp x..2 now", `"x" is no number`},
		{"ramp x..2 now", `"now", want a duration`},
		{"steps 1..20 by 1", "want N per second"},
		{"steps 1..20 by 0 every 1s", "at most 10000 steps"},
		{"steps 0..20 by 1 every 1s", "the first of more than 0"},
		{"steps 1..1e8 by 1 every 1s", "at most 10000 steps"},
		{"steps 1..20 by 1 each 1s", "want N per second"},
	} {
		if p, err := ParsePace(c.text); err == nil || !strings.Contains(err.Error(), c.says) ||
			!strings.Contains(err.Error(), fmt.Sprintf("rate %q", c.text)) {
			t.Errorf("%q: %v, %v; want an error that says %q", c.text, p, err, c.says)
		}
	}
}

// A plan goes over to another one at an instant, and no operation is lost or doubled there.
func TestPaceChanges(t *testing.T) {
	p := pace("100").then(2*time.Second, pace("ramp 0..10 10s")).then(7*time.Second, Steady(1000))
	for _, c := range []struct {
		at  time.Duration
		due float64
	}{
		{time.Second, 100}, {2 * time.Second, 200}, {7 * time.Second, 212.5}, {8 * time.Second, 1212.5},
	} {
		if got := p.dueBy(c.at.Seconds()); math.Abs(got-c.due) > 1e-9 {
			t.Errorf("%g due by %s, want %g", got, c.at, c.due)
		}
		if got := p.at(c.due); (got - c.at).Abs() > 1 {
			t.Errorf("%g due at %s, want %s", c.due, got, c.at)
		}
	}
	if f := pace("ramp 30..10 10s").first(); f.dueBy(100) != 3000 {
		t.Errorf("the first rate: %g due by 100 s, want 3000", f.dueBy(100))
	}
	if p := pace("100"); p.String() != p.then(time.Second, Steady(5)).String() {
		t.Error("the plan no longer prints as it was typed")
	}
}

// Whatever the plan, the counter counts exactly the starts, and no two evenly spaced starts coincide.
func TestPaceAgreesWithItself(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		rate := func() float64 { return rng.Float64() * []float64{1, 1000, 20_000}[rng.IntN(3)] }
		p := pace([]string{"", "poisson ", "jitter "}[rng.IntN(3)] + []string{
			fmt.Sprint(rate()),
			fmt.Sprintf("ramp %g..%g %dms", rate(), rate(), 1+rng.IntN(4000)),
			fmt.Sprintf("steps %g..%g by %g every %dms", rate(), rate(), 10+rate(), 1+rng.IntN(1000)),
		}[rng.IntN(3)])
		if rng.IntN(2) == 0 {
			p = p.then(time.Duration(rng.Int64N(int64(2*time.Second))), Steady(rate()))
		}
		table := &timetable{Pace: p, length: 2 * time.Second, seed: seed}
		var list []time.Duration
		for s := table.starts(); s.at < table.length; s.advance() {
			if n := len(list); n > 0 && (s.at < list[n-1] || s.at == list[n-1] && p.spread == even) {
				t.Fatalf("seed %d: %s: %s after %s", seed, p, s.at, list[n-1])
			}
			list = append(list, s.at)
		}
		counter := newDueCounter(table)
		for at := time.Duration(0); at < 3*time.Second; at += time.Duration(rng.Int64N(int64(500 * time.Millisecond))) {
			want, _ := slices.BinarySearch(list, at+1)
			if n := counter.upTo(at); n != int64(want) {
				t.Fatalf("seed %d: %s: %d due by %s, want %d", seed, p, n, at, want)
			}
			if next := counter.next(); want < len(list) && next != list[want] {
				t.Fatalf("seed %d: %s: after %s the next start is %s, want %s", seed, p, at, next, list[want])
			}
		}
	}
}

// Each start goes to one client, whichever asks, and in order.
func TestSharedStarts(t *testing.T) {
	table := &timetable{Pace: pace("poisson 10000"), length: time.Second, seed: 1}
	var want []time.Duration
	for s := table.starts(); s.at < table.length; s.advance() {
		want = append(want, s.at)
	}
	shared := newSharedStarts(table)
	taken := make([][]time.Duration, 8)
	var all sync.WaitGroup
	for i := range taken {
		all.Go(func() {
			for at, ok := time.Duration(0), true; at < table.length; {
				if i%2 == 0 {
					at, ok = shared.take(), true
				} else if at, ok = shared.takeDue(table.length - 1); !ok {
					return
				}
				if at < table.length {
					taken[i] = append(taken[i], at)
				}
			}
		})
	}
	all.Wait()
	for i, list := range taken {
		if !slices.IsSorted(list) {
			t.Errorf("client %d takes starts out of order", i)
		}
	}
	got := slices.Concat(taken...)
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%d starts were taken, want each of %d once", len(got), len(want))
	}
	shared = newSharedStarts(table)
	if at, ok := shared.takeDue(want[0] - 1); ok {
		t.Errorf("took the start of %s before it was due", at)
	}
}

// Starts with jitter lie each in a gap of its own, anywhere.
func TestJitter(t *testing.T) {
	table := &timetable{Pace: pace("jitter 1000"), length: 10 * time.Second, seed: 1}
	n, sum, least, most := 0, 0.0, 1.0, 0.0
	for s := table.starts(); s.at < table.length; s.advance() {
		part := s.at.Seconds()*1000 - float64(n)
		n, sum, least, most = n+1, sum+part, min(least, part), max(most, part)
	}
	if mean := sum / float64(n); n != 10_000 || least < -1e-5 || least > 0.001 || most > 1 || most < 0.999 ||
		math.Abs(mean-0.5) > 0.0116 { // four standard deviations
		t.Errorf("%d starts, from %g to %g of their gap, on average at %g", n, least, most, mean)
	}
}

// gaps returns the times between the starts of all clients, in units of their mean.
func gaps(table *timetable) []float64 {
	counter := newDueCounter(table)
	var starts []float64
	for at := time.Duration(0); ; {
		counter.upTo(at)
		if at = counter.next(); at >= table.length {
			break
		}
		starts = append(starts, table.dueBy(at.Seconds()))
	}
	out := make([]float64, len(starts)-1)
	for i := range out {
		out[i] = starts[i+1] - starts[i]
	}
	return out
}

// kolmogorov returns the statistic of Kolmogorov and Smirnov against the exponential distribution of mean 1, times the
// root of the number of values. Of exponential values it is more than 1.628 once in a hundred times.
func kolmogorov(values []float64) float64 {
	slices.Sort(values)
	n, d := float64(len(values)), 0.0
	for i, v := range values {
		p := 1 - math.Exp(-v)
		d = max(d, p-float64(i)/n, float64(i+1)/n-p)
	}
	return d * math.Sqrt(n)
}

// Random starts are a Poisson process: the gaps are exponential, however the rate changes. Even starts would not pass,
// nor would those with jitter.
func TestPoissonArrivals(t *testing.T) {
	const critical = 1.628
	for i, text := range []string{"poisson 1000", "poisson ramp 100..2000 10s",
		"poisson steps 500..1500 by 500 every 3s"} {
		table := &timetable{Pace: pace(text), length: 10 * time.Second, seed: uint64(i)}
		g := gaps(table)
		if want := table.dueBy(10); math.Abs(float64(len(g))-want) > 4*math.Sqrt(want) {
			t.Errorf("%s: %d operations, want about %g", text, len(g), want)
		}
		if d := kolmogorov(g); d > critical {
			t.Errorf("%s: the gaps are not exponential: %.2f, want at most %g", text, d, critical)
		}
	}
	for _, text := range []string{"1000", "jitter 1000"} {
		if d := kolmogorov(gaps(&timetable{Pace: pace(text), length: 10 * time.Second})); d < 5*critical {
			t.Errorf("starts of %s pass for random ones: %.2f", text, d)
		}
	}
	for _, text := range []string{"poisson 1000", "jitter 1000"} {
		table := timetable{Pace: pace(text), length: time.Second, seed: 1}
		other := table
		if other.seed = 2; table.starts().at == other.starts().at {
			t.Errorf("%s: another seed begins with the same start, %s", text, table.starts().at)
		}
	}
}

// The next start is found without allocating, but for a chunk now and then.
func TestStartsDoNotAllocate(t *testing.T) {
	for _, text := range []string{"1e6", "jitter 1e6", "poisson ramp 1..1e6 1s",
		"poisson steps 1..1e6 by 1000 every 1ms"} {
		table := &timetable{Pace: pace(text), length: time.Hour}
		s := table.starts()
		if n := testing.AllocsPerRun(100, s.advance); n > 0 {
			t.Errorf("%s: %g allocations for a start", text, n)
		}
		shared := newSharedStarts(table)
		if n := testing.AllocsPerRun(10*startsAhead, func() { shared.take() }); n > 0 {
			t.Errorf("%s: a client allocates %g times for a start", text, n)
		}
	}
}

// BenchmarkSharedStarts is what clients on all cores pay for a start.
func BenchmarkSharedStarts(b *testing.B) {
	for _, text := range []string{"1e6", "poisson 1e6"} {
		b.Run(text, func(b *testing.B) {
			shared := newSharedStarts(&timetable{Pace: pace(text), length: time.Hour})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					shared.take()
				}
			})
		})
	}
}

// Whatever the text, reading it does not panic, and what is accepted prints as a text that means the same.
func FuzzForms(f *testing.F) {
	for _, text := range []string{"0", "20000", "poisson ramp 1..5 10s", "steps 9..1 by 2 every 1s",
		"p99.9<5ms,errors<=1%", "10s rate of b poisson 5", `1h SET "a b" c`, "- at: 1s\n  do: FLUSHALL\n"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := ParsePace(text); err == nil {
			again, err := ParsePace(p.String())
			if err != nil || !slices.Equal(again.parts, p.parts) || again.spread != p.spread {
				t.Errorf("%q prints %q, which is %+v, %v", text, p, again, err)
			}
			if p.Open() {
				if at := newDueCounter(&timetable{Pace: p, length: time.Second}).next(); at < 0 {
					t.Errorf("%q: the first start is %s", text, at)
				}
			}
		}
		if s, err := ParseSLO(text); err == nil {
			again, err := ParseSLO(s.String())
			if err != nil || !slices.Equal(again.terms, s.terms) {
				t.Errorf("%q prints %q, which is %+v, %v", text, s, again, err)
			}
		}
		if e, err := ParseEvent(text); err == nil {
			again, err := ParseEvent(e.At.String() + " " + e.Do)
			if err != nil || again.At != e.At || !slices.Equal(again.command, e.command) || again.group != e.group {
				t.Errorf("%q prints %s %s, which is %+v, %v", text, e.At, e.Do, again, err)
			}
		}
		_, _ = ReadSchedule("some.yaml", []byte(text))
	})
}
