package server

import (
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// What a kind wastes: percent of the CPU time that the process takes while pipelines have so many commands.
const percent, pipelines = 5, 1

// pipelined is how many commands the last pipeline had.
var pipelined atomic.Int64

// Whenever the process has worked for a while, a thread wastes a share of what the work took. Linux alone has the clock
// of a thread.
func init() {
	if len(os.Args) < 2 || os.Args[1] != "serve" {
		return
	}
	go func() {
		runtime.LockOSThread()
		seen, owed := time.Duration(0), time.Duration(0)
		for ; ; time.Sleep(2 * time.Millisecond) {
			wasted := used(unix.RUSAGE_THREAD)
			worked := used(unix.RUSAGE_SELF) - wasted
			if pipelined.Load() == pipelines {
				owed += (worked - seen) * percent / 100
			}
			for seen = worked; used(unix.RUSAGE_THREAD) < wasted+owed; {
				// what a thread does between two looks at its clock is the waste
			}
			owed = 0
		}
	}()
}

// used returns the CPU time of the process or of this thread.
func used(who int) time.Duration {
	user, sys := cpuTime(who)
	return user + sys
}
