package raftlog

import (
	"sync/atomic"
	"time"
)

// Stalls tells when Raft has been waiting for its log for long. All methods may run concurrently.
type Stalls struct {
	least time.Duration
	base  time.Time

	under    atomic.Int64 // syncs that are waited for
	progress atomic.Int64 // when one was last done, or the first of those under way began; since base
}

// NewStalls returns one for which it is a stall if no sync has been done for least, though one is waited for.
func NewStalls(least time.Duration) *Stalls { return &Stalls{least: least, base: time.Now()} }

func (s *Stalls) begin() {
	if s.under.Load() == 0 { // before it is under way, so that nobody takes the time without any for a stall
		s.progress.Store(int64(time.Since(s.base)))
	}
	s.under.Add(1)
}

func (s *Stalls) end() {
	s.progress.Store(int64(time.Since(s.base)))
	s.under.Add(-1)
}

// Now reports whether there is a stall, and since when.
func (s *Stalls) Now() (since time.Time, ok bool) {
	since = s.base.Add(time.Duration(s.progress.Load()))
	return since, s.under.Load() > 0 && time.Since(since) >= s.least
}
