package raftlog

import (
	"sync/atomic"
	"time"
)

// Stalls tells when Raft has waited for a sync of its log for long. All methods may run concurrently.
type Stalls struct {
	least time.Duration
	base  time.Time

	under    atomic.Int64 // syncs under way
	progress atomic.Int64 // when the last sync ended or the first of those under way began, since base
	over     atomic.Int64 // when the last stall ended, since base; 0 before the first
}

// NewStalls returns a Stalls for which a stall begins when a sync is under way and none has ended for least.
func NewStalls(least time.Duration) *Stalls { return &Stalls{least: least, base: time.Now()} }

func (s *Stalls) begin() {
	if s.under.Load() == 0 { // first, or the time without syncs would look like a stall
		s.progress.Store(int64(time.Since(s.base)))
	}
	s.under.Add(1)
}

func (s *Stalls) end() {
	now := int64(time.Since(s.base))
	if time.Duration(now-s.progress.Swap(now)) >= s.least {
		s.over.Store(now)
	}
	s.under.Add(-1)
}

// Now reports whether there is a stall now, and since when.
func (s *Stalls) Now() (since time.Time, ok bool) {
	since = s.base.Add(time.Duration(s.progress.Load()))
	return since, s.under.Load() > 0 && time.Since(since) >= s.least
}

// Over returns when the last stall ended. It returns the present if there is a stall now, and the instant at which the
// Stalls was made if there has been none.
func (s *Stalls) Over() time.Time {
	if _, ok := s.Now(); ok {
		return time.Now()
	}
	return s.base.Add(time.Duration(s.over.Load()))
}
