package main

import (
	"io"
	"runtime"
	"runtime/debug"

	"neokv.dev/neokv"
)

// Settings of the whole process. Only this binary touches them; the library leaves its host process as it is.
const (
	// minProcs is the least GOMAXPROCS: a thread blocked in fdatasync keeps its P until the scheduler takes notice, and when it returns it
	// needs one that no flush or long apply holds, for up to 10 ms each. On two cores 2 -> 4 tripled the writes of 16 regions; 4 -> 8 took the
	// p99 of pipelined writes from 27 to 23 ms and that of pipelined reads from 13 to 7, and 16 adds nothing.
	minProcs = 8
	// gcPercent trades memory, of which the process has little on the Go heap but rows, for fewer collections; see limitHeap.
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

// limitHeap keeps gcPercent from multiplying what caches and clients hold when they hold all that they may: from twice that and
// 1 GiB on, collections come as often as it takes. Data in memory is on the heap too, and has no bound.
func limitHeap(getenv func(string) string, c neokv.Config) {
	if getenv("GOMEMLIMIT") == "" && !c.InMemory {
		held := c.Settings.Engine.BlockCache + c.Settings.Engine.RowCache + c.Settings.Engine.MemtableSize + c.Settings.Redis.ClientMemory
		debug.SetMemoryLimit(1<<30 + 2*int64(held))
	}
}
