package bench

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestNoAnswer: the longest time without an answer is in the summary, also if it reaches to the end or if errors come
// meanwhile.
func TestNoAnswer(t *testing.T) {
	for _, x := range []struct {
		name     string
		from, to time.Duration // since the beginning of the run
		errors   bool
		want     time.Duration
	}{
		{"none", 0, 0, false, 11 * time.Millisecond},
		{"a stall", 1500 * time.Millisecond, 1720 * time.Millisecond, false, 220 * time.Millisecond},
		{"to the end", 1500 * time.Millisecond, endless, false, 1500 * time.Millisecond}, // a second of it is the grace
		{"errors", 1500 * time.Millisecond, 1720 * time.Millisecond, true, 220 * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			begin := time.Duration(0) // of the measured part
			m := newMemory(nil)
			stalled := func(at time.Duration) bool { return x.to > 0 && at >= begin+x.from && at < begin+x.to }
			m.delay = func(at time.Duration) time.Duration {
				if stalled(at) && !x.errors {
					return begin + x.to - at
				}
				return time.Millisecond
			}
			if x.errors {
				m.reply = func(at time.Duration) string {
					if stalled(at) {
						return "-ERR no\r\n"
					}
					return ""
				}
			}
			begin = 10 * time.Millisecond // the load phase has ten records, one client each
			s, rec, err := inBubble(t, m, t.Context(), Options{Duration: 2 * time.Second,
				Groups: []GroupOptions{{Workload: "set", Clients: 10, Rate: Steady(100), Records: 10}}})
			if err != nil {
				t.Fatal(err)
			}
			adds(t, s, rec)
			if got := time.Duration(s.NoAnswer) * time.Microsecond; (got - x.want).Abs() > 25*time.Millisecond {
				t.Errorf("%s: no answer for %s, want %s", x.name, got, x.want)
			}
		})
	}
}
