package schedule

import (
	"math"
	"time"
)

// Smooth is an average of readings in which older ones count less: one from Over ago counts 1/e of a present one. The
// average is the plain mean at first, so a single bad reading at the start is not believed for long. With readings each
// second and Over = 30 s, noise of +-10 % becomes a standard deviation of 0.8 %. The zero value with Over set is ready.
type Smooth struct {
	Over time.Duration

	sum, weight float64 // of the readings until at, decayed
	at          time.Time

	total   uint64 // of the counter, when AddTotal saw it last
	totalAt time.Time
}

// Add takes a reading. One that is not later than the one before is dropped.
func (s *Smooth) Add(now time.Time, reading float64) {
	past := now.Sub(s.at)
	if s.weight > 0 && past <= 0 {
		return
	}
	keep := math.Exp(-float64(past) / float64(s.Over))
	s.sum, s.weight, s.at = s.sum*keep+reading, s.weight*keep+1, now
}

// AddTotal takes the state of a counter and adds its rate per second since the call before. A counter that has become
// less has begun anew, as after a restart; then there is no rate.
func (s *Smooth) AddTotal(now time.Time, total uint64) {
	past, before := now.Sub(s.totalAt), s.totalAt
	if !before.IsZero() && past <= 0 {
		return
	}
	if !before.IsZero() && total >= s.total {
		s.Add(now, float64(total-s.total)/past.Seconds())
	}
	s.total, s.totalAt = total, now
}

// Value returns the average, 0 if there was no reading.
func (s *Smooth) Value() float64 {
	if s.weight == 0 {
		return 0
	}
	return s.sum / s.weight
}
