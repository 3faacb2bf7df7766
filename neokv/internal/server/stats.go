package server

import (
	"sync"
	"sync/atomic"
	"time"
)

// stats are INFO's counters.
type stats struct {
	connections, rejected, commands    atomic.Uint64
	bytesIn, bytesOut                  atomic.Uint64
	evicted, queryClosed, outputClosed atomic.Uint64 // clients closed for what they held
	errors                             errorCounts
	rates                              rates
}

func (s *stats) reset() {
	s.connections.Store(0)
	s.rejected.Store(0)
	s.commands.Store(0)
	s.errors.byWord.Store(nil)
	s.bytesIn.Store(0)
	s.bytesOut.Store(0)
	s.evicted.Store(0)
	s.queryClosed.Store(0)
	s.outputClosed.Store(0)
}

// INFO shows rates over the last rateSamples*sampleEvery, or since the last pipeline before that.
const (
	rateSamples = 16
	sampleEvery = 100 * time.Millisecond
)

// rates remembers earlier values of the counters. Pipelines take the samples when they arrive, so that no timer runs.
type rates struct {
	next atomic.Int64 // Unix ns from which on a sample is due

	mu      sync.Mutex
	samples [rateSamples]rateSample // the oldest at first
}

type rateSample struct {
	at                time.Time
	commands, in, out float64
}

func (s *stats) sample(at time.Time) rateSample {
	return rateSample{at, float64(s.commands.Load()), float64(s.bytesIn.Load()), float64(s.bytesOut.Load())}
}

// note takes a sample if one is due. nowNS is now in Unix nanoseconds.
func (r *rates) note(s *stats, now time.Time, nowNS int64) {
	next := r.next.Load()
	if nowNS < next || !r.next.CompareAndSwap(next, nowNS+int64(sampleEvery)) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	copy(r.samples[:], r.samples[1:])
	r.samples[rateSamples-1] = s.sample(now)
}

// since returns the rates per second now.
func (r *rates) since(s *stats, now time.Time) rateSample {
	r.mu.Lock()
	defer r.mu.Unlock()
	from := r.samples[rateSamples-1]
	for _, x := range r.samples {
		if now.Sub(x.at) <= rateSamples*sampleEvery {
			from = x
			break
		}
	}
	to, seconds := s.sample(now), now.Sub(from.at).Seconds()
	if from.at.IsZero() || seconds <= 0 || to.commands < from.commands {
		return rateSample{} // nothing yet, or CONFIG RESETSTAT has come between
	}
	return rateSample{now, (to.commands - from.commands) / seconds, (to.in - from.in) / seconds,
		(to.out - from.out) / seconds}
}
