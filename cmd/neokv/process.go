package main

import (
	"io"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"

	"neokv.dev/neokv"
)

// Settings of the whole process. Only this binary touches them; the library leaves its host process as it is.
const (
	// minProcs is the least GOMAXPROCS: a thread blocked in fdatasync keeps its P until the scheduler takes notice, and
	// when it returns it needs one that no flush or long apply holds, for up to 10 ms each. On two cores 2 -> 4 tripled
	// the writes of 16 regions; 4 -> 8 took the p99 of pipelined writes from 27 to 23 ms and that of pipelined reads
	// from 13 to 7, and 16 adds nothing. Where nothing is synced they cost, for threads that look for work: 50 clients
	// that only read get 68,000 GETs a second with 2, 63,000 with 3, 58,000 with 4 and 52,000 with 8.
	minProcs = 8
	// gcPercent trades memory, of which the process has little on the Go heap but rows, for fewer collections; see
	// limitHeap.
	gcPercent = 400
)

// tuneProcess sets them, except for what the environment sets, and lets the Raft library log errors only.
func tuneProcess(getenv func(string) string, stderr io.Writer) {
	if getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(max(minProcs, runtime.NumCPU()))
	}
	if getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	neokv.LogRaft(stderr)
}

const (
	syncsTick  = 50 * time.Millisecond
	manySyncs  = 4 // in a tick
	quietTicks = 6 // without, before Ps are given up
)

// syncsSeen decides, tick by tick, from how many syncs there have been, and whether one is waited for, whether to have
// Ps for threads that are blocked in one.
type syncsSeen struct {
	last  int64
	quiet int // ticks without many
}

func (s *syncsSeen) busy(syncs int64, waiting bool) bool {
	s.quiet++
	if d := syncs - s.last; waiting || d >= manySyncs || d < 0 { // less than before: a store has gone
		s.quiet = 0
	}
	s.last = syncs
	return s.quiet < quietTicks
}

// followSyncs gives the process a P per core where stores sync next to nothing, and minProcs where they do, until stop
// is called, unless the environment says how many, or there are as many cores.
func followSyncs(getenv func(string) string, syncs func() (made int64, waiting bool)) (stop func()) {
	few := runtime.NumCPU()
	if getenv("GOMAXPROCS") != "" || few >= minProcs {
		return func() {}
	}
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		var seen syncsSeen
		tick := time.NewTicker(syncsTick)
		defer tick.Stop()
		for now := minProcs; ; {
			select {
			case <-done:
				runtime.GOMAXPROCS(minProcs)
				return
			case <-tick.C:
			}
			n := few
			if seen.busy(syncs()) {
				n = minProcs
			}
			if n != now { // it stops the world
				runtime.GOMAXPROCS(n)
				now = n
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}

// heapTick is how often limitHeap looks at the heap.
const heapTick = 100 * time.Millisecond

// limitHeap keeps gcPercent from multiplying data in memory and what clients and caches hold, until stop is called:
// from the live heap of the last collection on, the heap grows by no more than clients may hold before there is
// another. So the process has what is live, clients' buffers among it, and at most as much again as those may be,
// however much data there is.
func limitHeap(getenv func(string) string, c neokv.Config) (stop func()) {
	if getenv("GOMEMLIMIT") != "" {
		return func() {}
	}
	room := int64(c.Settings.Redis.ClientMemory)
	if room == 0 { // no limit
		room = int64(c.Settings.Engine.BlockCache + c.Settings.Engine.RowCache + c.Settings.Engine.MemtableSize)
	}
	live := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	before, last := debug.SetMemoryLimit(-1), int64(0)
	follow := func() {
		metrics.Read(live)
		if limit := int64(live[0].Value.Uint64()) + room; limit != last { // it stops the world
			debug.SetMemoryLimit(limit)
			last = limit
		}
	}
	follow()
	done := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		tick := time.NewTicker(heapTick)
		defer tick.Stop()
		for {
			select {
			case <-done:
				debug.SetMemoryLimit(before)
				return
			case <-tick.C:
				follow()
			}
		}
	})
	return func() {
		close(done)
		wg.Wait()
	}
}
