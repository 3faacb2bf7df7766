package children

import (
	"fmt"
	"time"
)

// holdPeriod is how long a stop of Hold and the time until the next one take together. It is long beside what the
// system takes to stop a process, and short beside what is measured.
const holdPeriod = 20 * time.Millisecond

// Hold stops all processes of the target for a share of the time, again and again, from outside, until release is
// called. Then they run on, and release returns for which share of the time they were stopped.
func (r *Running) Hold(share float64) (release func() (held float64, err error), err error) {
	if len(r.children) == 0 {
		return nil, fmt.Errorf("hold %s: this process has not started it", r.what)
	}
	signal := func(how func(*child) error) error {
		for _, c := range r.children {
			if err := how(c); err != nil && !c.hasEnded() {
				return fmt.Errorf("hold %s: %w", c, err)
			}
		}
		return nil
	}
	stop := func(c *child) error { return pauseFamily(c.cmd.Process) }
	resume := func(c *child) error { return resumeFamily(c.cmd.Process) }
	ended, end := make(chan struct{}), make(chan struct{})
	var stopped time.Duration
	var failed error
	began := time.Now()
	go func() {
		defer close(ended)
		for {
			at := time.Now()
			failed = signal(stop)
			wait(end, time.Duration(share*float64(holdPeriod)))
			if err := signal(resume); failed == nil {
				failed = err
			}
			stopped += time.Since(at)
			// Timers are late, so the pause until the next stop makes up for it.
			if !wait(end, time.Duration(float64(stopped)/share)-time.Since(began)) || failed != nil {
				return
			}
		}
	}()
	return func() (float64, error) {
		close(end)
		<-ended
		return stopped.Seconds() / time.Since(began).Seconds(), failed
	}, nil
}

// wait waits for a time, and reports false if it was ended before.
func wait(end <-chan struct{}, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-end:
		return false
	case <-timer.C:
		return true
	}
}
