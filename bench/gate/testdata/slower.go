package main

import (
	"os"
	"runtime"
	"time"

	"golang.org/x/sys/unix"
)

// A cluster wastes 5 % of its CPU time: whenever the process has worked for a while, a thread wastes that share of what
// the work took. Linux alone has the clock of a thread.
func init() {
	if len(os.Args) < 2 || os.Args[1] != "serve" {
		return
	}
	go func() {
		runtime.LockOSThread()
		for ; ; time.Sleep(20 * time.Millisecond) {
			worked := cpuTime(unix.RUSAGE_SELF) - cpuTime(unix.RUSAGE_THREAD)
			for cpuTime(unix.RUSAGE_THREAD) < worked/20 {
				// what a thread does between two looks at its clock is the waste
			}
		}
	}()
}

// cpuTime returns what getrusage says of the process or of this thread.
func cpuTime(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
