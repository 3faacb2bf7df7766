package main

import (
	"io"
	"runtime"
	"runtime/debug"

	"neokv.dev/neokv"
)

// Settings of the whole process. Only this binary touches them; the library leaves its host process as it is.
const (
	// minProcs is the least GOMAXPROCS: a thread blocked in fdatasync keeps its P until the scheduler takes notice, and with two
	// of them the others wait. 2 -> 4 on two cores tripled the writes of 16 regions; more adds nothing.
	minProcs = 4
	// gcPercent trades memory, of which the process has little on the Go heap, for fewer collections.
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
