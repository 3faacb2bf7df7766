package bench

import (
	"math"
	"sync/atomic"
	"time"
)

// schedule is the plan of an open loop: operation n of all clients together has its intended start at n/rate, whatever
// the target does. Client c of k sends the operations c, c+k, c+2k and so on, in order, and skips none. A client that
// falls behind sends late; response time shows it, as it counts from the intended start.
type schedule struct {
	rate   float64 // operations per second
	length time.Duration
}

// at returns the intended start of operation n, counted from the start of the phase.
func (s schedule) at(n int64) time.Duration {
	return time.Duration(float64(n) / s.rate * float64(time.Second))
}

// due returns how many operations have an intended start before t.
func (s schedule) due(t time.Duration) int64 {
	t = min(t, s.length)
	n := max(0, int64(math.Ceil(t.Seconds()*s.rate)))
	// The product above and the quotient in at are each rounded, so they may disagree by one.
	for n > 0 && s.at(n-1) >= t {
		n--
	}
	for s.at(n) < t {
		n++
	}
	return n
}

// schedulePlace is how far one client of an open loop is in the schedule.
type schedulePlace struct {
	plan  schedule
	start time.Duration // when the plan begins, since the run's epoch
	n     int64         // the client's next operation
	step  int64         // the number of clients
	sent  atomic.Int64  // how many it has taken; others may read it
}

// next returns the intended start of the next operation, since the run's epoch, and whether there is one.
func (p *schedulePlace) next() (time.Duration, bool) {
	at := p.plan.at(p.n)
	return p.start + at, at < p.plan.length
}

func (p *schedulePlace) advance() {
	p.n += p.step
	p.sent.Add(1)
}
