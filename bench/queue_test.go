package bench

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/results"
)

// An open loop against a target that answers everything after exactly a millisecond is the queue M/D/k of its k
// clients: an operation waits only while all of them are busy. Operation n is answered a millisecond after its start,
// or after the answer to operation n-k if that is later. So each response time is known beforehand, to the microsecond.
func TestOpenLoopIsOneQueue(t *testing.T) {
	const service, length, seed = time.Millisecond, 20 * time.Second, 5
	for _, c := range []struct {
		clients int
		pace    string
	}{
		{1, "poisson 700"}, {2, "poisson 900"}, {20, "poisson 900"}, {3, "poisson 2700"}, {2, "jitter 1900"},
		{7, "5000"},
	} {
		t.Run(fmt.Sprintf("%s by %d", c.pace, c.clients), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := newMemory(func(time.Duration) time.Duration { return service })
				s, rec, err := inBubble(t, m, t.Context(), Options{
					Groups:   []GroupOptions{{Workload: "set", Clients: c.clients, Rate: pace(c.pace), Records: 100}},
					Duration: length, Seed: seed,
				})
				if err != nil {
					t.Fatal(err)
				}
				adds(t, s, rec)
				table := timetable{Pace: pace(c.pace), length: length, seed: seed}
				var response, wait results.Distribution
				free := make([]time.Duration, c.clients) // when the last operations ended, by number modulo clients
				n := 0
				for x := table.starts(); x.at < length; x.advance() {
					if f := free[n%c.clients]; f > x.at {
						wait.Answer(f - x.at)
					}
					free[n%c.clients] = max(x.at, free[n%c.clients]) + service
					response.Answer(free[n%c.clients] - x.at)
					n++
				}
				g := s.Groups[0]
				if got, want := *g.Total.Response, response.Latency(true); got != want {
					got.HDR, want.HDR = "", ""
					t.Errorf("response %+v\nwant     %+v", got, want)
				}
				all, _ := response.Count()
				waited, _ := wait.Count()
				if want := latencyOf(wait); g.Waited != waited || (g.Wait == nil) != (want == nil) ||
					want != nil && *g.Wait != *want {
					t.Errorf("%d waited, %+v; want %d, %+v", g.Waited, g.Wait, waited, want)
				}
				warned := strings.Contains(strings.Join(s.Warnings, "\n"), "while all clients were busy")
				if want := float64(waited) >= manyWaited*float64(all); warned != want {
					t.Errorf("warnings %q, of %d operations %d waited", s.Warnings, all, waited)
				}
			})
		})
	}
}

// One client at a share of 0.7 is the queue M/D/1, whose mean is by Pollaczek and Khinchin and whose distribution is by
// Erlang (1909).
func TestOpenLoopIsMD1(t *testing.T) {
	const share = 0.7
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
		s, _, err := inBubble(t, m, t.Context(), Options{
			Groups:   []GroupOptions{{Workload: "set", Clients: 1, Rate: pace("poisson 700"), Records: 100}},
			Duration: 100 * time.Second, Seed: 1,
		})
		if err != nil {
			t.Fatal(err)
		}
		// atMost is the probability of a wait of at most so many milliseconds.
		atMost := func(ms float64) (p float64) {
			term := func(x float64, i int) float64 { // (-x)^i/i! e^x
				v := math.Exp(x)
				for k := 1; k <= i; k++ {
					v *= -x / float64(k)
				}
				return v
			}
			for i := 0; float64(i) <= ms; i++ {
				p += (1 - share) * term(share*(ms-float64(i)), i)
			}
			return p
		}
		p99 := 0.0
		for ; atMost(p99) < 0.99; p99 += 0.001 {
		}
		r := s.Groups[0].Total.Response
		mean := 1000 * (1 + share/(2*(1-share)))
		if off := r.Mean/mean - 1; math.Abs(off) > 0.04 {
			t.Errorf("mean %.0f us, want %.0f", r.Mean, mean)
		}
		if off := float64(r.P99.US)/(1000*(1+p99)) - 1; math.Abs(off) > 0.04 {
			t.Errorf("p99 %d us, want %.0f", r.P99.US, 1000*(1+p99))
		}
	})
}

// TestPushToPop: where an operation pushes an element and pops it, the time from push to pop is the operation's: in an
// open loop from when it was due.
func TestPushToPop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "passing.yaml")
	text := `records: [{type: list, key: "q<n>", load: false}]
mix: [{op: pass, do: [LPUSH <key> <message 60>, BRPOP <key> 1]}]`
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, rate := range []Pace{{}, pace("poisson 300")} {
		synctest.Test(t, func(t *testing.T) {
			m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
			s, rec, err := inBubble(t, m, t.Context(), Options{
				Groups:   []GroupOptions{{Workload: path, Clients: 1, Rate: rate, Records: 10}},
				Duration: 10 * time.Second, Warmup: time.Second, Seed: 5,
			})
			if err != nil {
				t.Fatal(err)
			}
			adds(t, s, rec)
			g := s.Groups[0]
			want := g.Total.Service
			if g.Total.Response != nil {
				want = *g.Total.Response
			}
			if p := g.PushToPop; p == nil || p.Elements != g.Total.Count || p.Time != want {
				t.Errorf("rate %s: from push to pop %+v; want %d elements, %+v", rate, p, g.Total.Count, want)
			}
			if notes := strings.Join(g.Notes(rate.Open()), "\n"); !strings.Contains(notes, "from push to pop: ") {
				t.Errorf("notes %q", notes)
			}
		})
	}
}
