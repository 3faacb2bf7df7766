package server

import (
	"bytes"
	"os"
	"sync"
	"syscall"
	"time"

	"neokv.dev/neokv/internal/redis"
)

// CPUTime is how long the process has used processors: its own code, and the system for it.
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

// ResidentBytes is how much memory the process uses as the system sees it, or on macOS the most that it has used.
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

// systemMemory is how much memory the machine has, or 0 where no /proc tells.
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
