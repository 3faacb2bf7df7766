package sim

import (
	"testing"
	"time"

	"neokv.dev/neokv/internal/seam"
)

// TestServes makes all disks hang after the last fault. In virtual time regions that take no write for five seconds are
// late. In real time a busy machine does that, too, and only a hang is found. A check that is no longer wanted ends.
func TestServes(t *testing.T) {
	for _, x := range []struct {
		name   string
		real   bool
		hangs  time.Duration
		served bool
	}{
		{"virtual", false, 5 * time.Second, false},
		{"real", true, 5 * time.Second, true},
		{"real hang", true, time.Minute, false},
	} {
		t.Run(x.name, func(t *testing.T) {
			inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
				s.real = x.real
				s.hangAll(x.hangs)
				if err := s.serves(); (err == nil) != x.served {
					t.Errorf("%v after a hang of %s; want served %v", err, x.hangs, x.served)
				}
				began := time.Now()
				s.hangAll(x.hangs)
				err := s.servesWhile(func() bool { return time.Since(began) < time.Second })
				if took := time.Since(began); err != nil || took > 2*time.Second+opTime {
					t.Errorf("%v after %s; want the check to end after a second and the last operation", err, took)
				}
			})
		})
	}
}

// hangAll lets all disks hang for a while from now on.
func (s *sim) hangAll(d time.Duration) {
	s.do("disk all hang")
	time.AfterFunc(d, func() { s.do("disk all ok") })
}
