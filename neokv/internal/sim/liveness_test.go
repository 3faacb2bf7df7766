package sim

import (
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
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
			var until atomic.Int64 // Unix ns
			var hooks seam.Hooks
			hooks.Store.BeforeSave = func(topology.StoreID) { time.Sleep(time.Until(time.Unix(0, until.Load()))) }
			inBubble(t, hooks, func(t *testing.T, s *sim, _ *caller) {
				s.real = x.real
				until.Store(time.Now().Add(x.hangs).UnixNano())
				if err := s.serves(); (err == nil) != x.served {
					t.Errorf("%v after a hang of %s; want served %v", err, x.hangs, x.served)
				}
				began := time.Now()
				until.Store(began.Add(x.hangs).UnixNano())
				err := s.servesWhile(func() bool { return time.Since(began) < time.Second })
				if took := time.Since(began); err != nil || took > 2*time.Second+opTime {
					t.Errorf("%v after %s; want the check to end after a second and the last operation", err, took)
				}
			})
		})
	}
}
