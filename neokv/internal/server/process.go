package server

import (
	"bytes"
	"os"
	"sync"
	"syscall"
	"time"

	"neokv.dev/neokv/internal/redis"
)

// CPUTime returns the processor time that the process has used, in user code and in the kernel.
func CPUTime() (user, sys time.Duration) {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0, 0
	}
	return timeval(u.Utime), timeval(u.Stime)
}

func timeval(t syscall.Timeval) time.Duration {
	return time.Duration(t.Sec)*time.Second + time.Duration(t.Usec)*time.Microsecond
}

// ResidentBytes returns the process's memory as the operating system counts it (RSS). On macOS it returns the largest
// value so far.
func ResidentBytes() int64 {
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := bytes.Fields(text); len(fields) > 1 {
			pages, _ := redis.ParseInt(fields[1])
			return pages * int64(os.Getpagesize())
		}
	}
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return int64(u.Maxrss)
}

// systemMemory returns how much memory the machine has, or 0 on a system without /proc.
var systemMemory = sync.OnceValue(func() int64 {
	text, _ := os.ReadFile("/proc/meminfo")
	for line := range bytes.Lines(text) {
		if fields := bytes.Fields(line); len(fields) > 1 && string(fields[0]) == "MemTotal:" {
			kb, _ := redis.ParseInt(fields[1])
			return kb << 10
		}
	}
	return 0
})
