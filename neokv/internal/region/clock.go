package region

import (
	"time"
)

// clockBase is where the clock of a leader begins: the region time at an instant of the monotonic clock.
type clockBase struct {
	term uint64
	ms   uint64
	at   time.Time
}

// localTime returns the time by the store's own clock, in ms.
func (c *core) localTime(now time.Time) uint64 {
	if f := c.o.Faults.Skew; f != nil {
		now = now.Add(f(c.o.Store))
	}
	return uint64(now.UnixMilli())
}

// leaderTime is the larger of the wall clock and the region time carried on by the monotonic clock, in ms. It never
// stands still and never goes back.
func (c *core) leaderTime(now time.Time) uint64 {
	ms := c.localTime(now)
	if b := c.clock.Load(); b != nil {
		ms = max(ms, b.ms+uint64(now.Sub(b.at).Milliseconds()))
	}
	return max(ms, c.regionTime.Load())
}
