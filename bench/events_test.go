package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
)

func event(text string) ScheduledEvent {
	e, err := ParseEvent(text)
	if err != nil {
		panic(err)
	}
	return e
}

func TestParseEvent(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"10s FLUSHALL", "10s [FLUSHALL]  0"},
		{" 500ms  CONFIG SET maxmemory 1 ", "500ms [CONFIG SET maxmemory 1]  0"},
		{`0s SET key "two words\n"`, "0s [SET key two words\n]  0"},
		{"1m rate 20000", "1m0s []  20000"},
		{"1m rate poisson ramp 1..5 10s", "1m0s []  poisson ramp 1..5 10s"},
		{"1m rate of info 5", "1m0s [] info 5"},
		{"10s kill 2 keep=50%", "10s []  0"},
	} {
		e := event(c.text)
		if got := fmt.Sprintf("%s %s %s %s", e.At, e.command, e.group, e.rate); got != c.want {
			t.Errorf("%q: %s, want %s", c.text, got, c.want)
		}
	}
	for _, c := range []struct{ text, says string }{
		{"FLUSHALL", `time "FLUSHALL"`},
		{"10s", "nothing to do, want rate PLAN"},
		{"-1s FLUSHALL", `time "-1s"`},
		{"10s rate fast", `"fast" is no number`},
		{"10s rate 0", "does not become a closed loop"},
		{"10s rate", `rate ""`},
		{`10s SET key "open`, "a quote has no end"},
		{"x kill", `time "x"`},
	} {
		if _, err := ParseEvent(c.text); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q: %v, want an error that says %q", c.text, err, c.says)
		}
	}
}

func TestReadSchedule(t *testing.T) {
	const good = "# what goes wrong\n- at: 10s\n  do: FLUSHALL\n- {do: rate 5, at: 1m}\n"
	events, err := ReadSchedule("good.yaml", []byte(good))
	if err != nil || len(events) != 2 || events[0].At != 10*time.Second || events[1].Do != "rate 5" {
		t.Errorf("%+v, %v", events, err)
	}
	_, err = ReadSchedule("bad.yaml", []byte(`- at: 10s
  do: kill store 1
- at: soon
  do: kill
  for: 3s
- FLUSHALL
- do: [a]
  do: x
`))
	for _, want := range []string{
		`bad.yaml:3: time "soon"`,
		"bad.yaml:5: for: unknown, want at, do", "bad.yaml:6: want an event", "bad.yaml:7: do: want text",
		"bad.yaml:8: do is there twice", `bad.yaml:7: time ""`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	for _, text := range []string{"", "at: 10s\ndo: x\n", "- at: [\n"} {
		if _, err := ReadSchedule("bad.yaml", []byte(text)); err == nil || !strings.HasPrefix(err.Error(), "bad.yaml:") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A run does what its schedule says, when it says so.
func TestEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
		s, rec, err := inBubble(t, m, t.Context(), Options{
			Groups: []GroupOptions{
				{Workload: "get", Clients: 4, Rate: Steady(100), Records: 100},
				{Name: "other", Workload: "get", Clients: 4, Rate: pace("poisson 10"), Records: 100},
			},
			Duration: 6 * time.Second, Warmup: time.Second, Events: []ScheduledEvent{
				event("4s FLUSHALL"), event("2s rate 300"), event("3s rate of other 500"), event("4500ms NONSENSE of mine"),
			},
		})
		if err != nil {
			t.Fatal(err)
		}
		adds(t, s, rec)
		const want = "[{2 rate 300  } {3 rate of other 500  } {4 FLUSHALL  } " +
			"{4.5 NONSENSE of mine  ERR unknown command 'NONSENSE'}]"
		if got := fmt.Sprint(s.Events); got != want {
			t.Errorf("events %s, want %s", got, want)
		}
		var offered, missed []int64
		happened := 0
		for _, iv := range rec.Intervals {
			if iv.Phase != "run" {
				continue
			}
			offered = append(offered, iv.Groups[0].Ledger.Offered)
			missed = append(missed, iv.Groups[0].Total.Misses)
			happened += len(iv.Events)
		}
		// An operation that is due at the very end of a second is in that second.
		if fmt.Sprint(offered) != "[101 100 300 300 300 299]" || missed[3] != 0 || missed[4] < 295 || happened != 4 {
			t.Errorf("offered %v, missed %v, %d events", offered, missed, happened)
		}
		if n := s.Groups[1].Ledger.Offered; n < 1300 || n > 1750 {
			t.Errorf("the other group: %d offered, want about 1530", n)
		}
		if s.Groups[0].Ledger.Offered != 1400 || rec.Header.Groups[0].Rate != "100" {
			t.Errorf("%+v, rate %s", s.Groups[0].Ledger, rec.Header.Groups[0].Rate)
		}
	})
}

// recordedFaults takes faults, and notes when they came.
type recordedFaults struct {
	begin time.Time
	came  []string
}

func (r *recordedFaults) inject(_ context.Context, f fault.Fault) (outcome string, err error) {
	r.came = append(r.came, fmt.Sprint(time.Since(r.begin).Round(time.Second), " ", f))
	switch f.String() {
	case "kill 3":
		err = errors.New("store 3 does not run")
	case "split 4":
		outcome = "region 4 is split"
	}
	return outcome, err
}

// The faults of a schedule come when it says so, and the result tells what came of them.
func TestEventsOfFaults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
		faults := &recordedFaults{begin: time.Now()}
		s, _, err := inBubble(t, m, t.Context(), Options{
			Groups:   []GroupOptions{{Workload: "get", Clients: 2, Rate: Steady(10), Records: 10}},
			Duration: 6 * time.Second, Inject: faults.inject,
			Events: []ScheduledEvent{event("3s kill 2"), event("4s kill 3"), event("5s split 4")},
		})
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprint(faults.came), "[3s kill 2 4s kill 3 5s split 4]"; got != want {
			t.Errorf("faults %s, want %s", got, want)
		}
		const want = "[{3 kill 2  } {4 kill 3  store 3 does not run} {5 split 4 region 4 is split }]"
		if got := fmt.Sprint(s.Events); got != want {
			t.Errorf("events %s, want %s", got, want)
		}
	})
}

// slowly takes as long for the setting of a clock as the clock is ahead.
func slowly(ctx context.Context, f fault.Fault) (outcome string, err error) {
	select {
	case <-time.After(f.Ahead):
		return "done", nil
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// An event that was due before the end of the load is carried out, and is in the result, also if it ends later; but
// not if the user interrupts the run, or the event hangs. The measured time is what it was to be.
func TestEventsAtTheEnd(t *testing.T) {
	for _, c := range []struct {
		what        string
		events      []string
		interrupted time.Duration
		want        string
		took        time.Duration
	}{
		{"an event that goes on", []string{"5s clock 1 2s"}, 0, "[{5 clock 1 2s done }]", 7 * time.Second},
		{"an event that waits", []string{"4s clock 1 3s", "5500ms FLUSHALL", "5900ms clock 2 1s"}, 0,
			"[{4 clock 1 3s done } {7 FLUSHALL  } {7.001 clock 2 1s done }]", 8 * time.Second},
		{"an event that hangs", []string{"5s clock 1 1h", "5500ms FLUSHALL"}, 0, "[{5 clock 1 1h  context canceled}]",
			6*time.Second + eventGrace},
		{"interrupted during the load", []string{"3s clock 1 1h", "3500ms FLUSHALL"}, 4 * time.Second,
			"[{3 clock 1 1h  context canceled}]", 4 * time.Second},
		{"interrupted after the load", []string{"5s clock 1 1h", "5500ms FLUSHALL"}, 7 * time.Second,
			"[{5 clock 1 1h  context canceled}]", 7 * time.Second},
	} {
		t.Run(c.what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				if c.interrupted > 0 {
					time.AfterFunc(c.interrupted, cancel)
				}
				o := Options{
					Groups:   []GroupOptions{{Workload: "get", Clients: 2, Rate: Steady(10), Records: 10}},
					Duration: 6 * time.Second, Inject: slowly, Load: LoadedBefore,
				}
				for _, text := range c.events {
					o.Events = append(o.Events, event(text))
				}
				start := time.Now()
				m := newMemory(func(time.Duration) time.Duration { return time.Millisecond })
				s, rec, err := inBubble(t, m, ctx, o)
				if err != nil {
					t.Fatal(err)
				}
				if took := time.Since(start).Round(time.Second); took != c.took {
					t.Errorf("the run took %s, want %s", took, c.took)
				}
				last := rec.Intervals[len(rec.Intervals)-1]
				if got := fmt.Sprint(s.Events); got != c.want || len(last.Events) == 0 {
					t.Errorf("events %s, want %s; %d in the last interval", got, c.want, len(last.Events))
				}
				if measured := min(c.took, o.Duration).Seconds(); math.Abs(s.Seconds-measured) > .1 || last.Seconds > 1.1 {
					t.Errorf("%.1f s, the last interval %.1f s, want %.0f and 1", s.Seconds, last.Seconds, measured)
				}
			})
		})
	}
}

// A run whose target dies at the very end of the warm-up does not wait for its schedule.
func TestEventsOfDeadRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newMemory(func(at time.Duration) time.Duration {
			if at > 900*time.Millisecond {
				return -1
			}
			return time.Millisecond
		})
		start := time.Now()
		s, _, err := inBubble(t, m, t.Context(), Options{
			Groups: []GroupOptions{{Workload: "set", Clients: 2, Records: 10}}, Warmup: 3 * time.Second,
			Duration: 2 * time.Hour, DeadAfter: 2 * time.Second, Events: []ScheduledEvent{event("1h FLUSHALL")},
		})
		if took := time.Since(start); err == nil || took > 10*time.Second || len(s.Events) > 0 {
			t.Errorf("after %s: error %v, events %v", took, err, s.Events)
		}
	})
}

func TestEventsRefused(t *testing.T) {
	o := usual(Options{
		Groups: []GroupOptions{{Workload: "set", Rate: Steady(5)}, {Name: "b", Workload: "set"}}, Duration: time.Minute,
		Events: []ScheduledEvent{event("1m FLUSHALL"), event("1s rate of b 5"), event("1s rate of c 5"),
			event("1s rate poisson 5"), event("2s kill nobody"), event("3s kill 4")},
		Inject: new(recordedFaults).inject, Stores: 3,
	})
	err := o.Check()
	for _, want := range []string{"at 1m0s FLUSHALL: the measured part ends after 1m0s", "group b is a closed loop",
		"there is no group c", "the starts of group set are even", `at 2s fault "kill nobody": stores`,
		`at 3s fault "kill 4": there is no store 4`} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v\nwant %s", err, want)
		}
	}
	o.Inject = nil
	if err := o.Check(); !strings.Contains(err.Error(), "at 2s kill nobody: the target takes no faults") {
		t.Errorf("%v", err)
	}
	o.Search = &RateSearch{Curve: true}
	if err := o.Check(); !strings.Contains(err.Error(), "a search has no schedule") {
		t.Errorf("%v", err)
	}
}

// TestEventsHaveNoPassword refuses commands with a password, in words that do not repeat it.
func TestEventsHaveNoPassword(t *testing.T) {
	for _, command := range []string{"AUTH pw", "auth u pw", "HELLO 3 AUTH u pw", "CONFIG SET maxmemory 0 RequirePass pw",
		"CONFIG SET masterauth pw", "MIGRATE a 1 k 0 9 AUTH pw", "MIGRATE a 1 k 0 9 AUTH2 u pw", "ACL SETUSER u >pw"} {
		_, err := ParseEvent("5s " + command)
		_, read := ReadSchedule("events.yaml", []byte("- {at: 5s, do: '"+command+"'}"))
		for _, err := range []error{err, read} {
			if err == nil || !strings.Contains(err.Error(), "has a password") || strings.Contains(err.Error(), "pw") {
				t.Errorf("%s: %v", command, err)
			}
		}
	}
	for _, command := range []string{"HELLO 3", "CONFIG SET appendfsync no", "MIGRATE a 1 k 0 9", "ACL WHOAMI"} {
		if _, err := ParseEvent("5s " + command); err != nil {
			t.Errorf("%s: %v", command, err)
		}
	}
}
