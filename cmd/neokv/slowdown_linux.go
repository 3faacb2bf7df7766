package main

import (
	"fmt"
	"io"
	"runtime"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"neokv.dev/bench/gate"
)

// slowDown wastes CPU time, if the environment asks for it, to try `neokv check`: whenever the process has worked for a
// while, it wastes that share of what the work took.
func slowDown(getenv func(string) string, stderr io.Writer) {
	share, err := strconv.ParseFloat(getenv(gate.SlowdownEnv), 64)
	if err != nil || share <= 0 {
		return
	}
	fmt.Fprintf(stderr, "neokv: %s wastes %g %% of the CPU time\n", gate.SlowdownEnv, 100*share)
	go func() {
		runtime.LockOSThread()
		for ; ; time.Sleep(20 * time.Millisecond) {
			worked := cpuTime(unix.RUSAGE_SELF) - cpuTime(unix.RUSAGE_THREAD)
			for cpuTime(unix.RUSAGE_THREAD) < time.Duration(share*float64(worked)) {
				// what a thread does between two looks at its clock is the waste
			}
		}
	}()
}

// cpuTime returns what getrusage says of the process or of this thread.
func cpuTime(who int) time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(who, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
