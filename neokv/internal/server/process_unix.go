//go:build unix

package server

import (
	"syscall"
	"time"
)

// CPUTime returns the processor time that the process has used, in user code and in the kernel.
func CPUTime() (user, sys time.Duration) { return cpuTime(syscall.RUSAGE_SELF) }

// childrenCPUTime is CPUTime for the processes that this one has started, and that have ended.
func childrenCPUTime() (user, sys time.Duration) { return cpuTime(syscall.RUSAGE_CHILDREN) }

func cpuTime(who int) (user, sys time.Duration) {
	var u syscall.Rusage
	if syscall.Getrusage(who, &u) != nil {
		return 0, 0
	}
	return time.Duration(u.Utime.Nano()), time.Duration(u.Stime.Nano())
}

// largestResident returns the largest size of the process's memory so far, in the system's unit.
func largestResident() int64 {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return int64(u.Maxrss)
}
