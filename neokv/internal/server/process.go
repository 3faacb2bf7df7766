package server

import (
	"bytes"
	"os"
	"sync"

	"neokv.dev/neokv/internal/redis"
)

// ResidentBytes returns the process's memory as the operating system counts it (RSS). On macOS it returns the largest
// value so far, on Windows 0.
func ResidentBytes() int64 {
	if text, err := os.ReadFile("/proc/self/statm"); err == nil {
		if fields := bytes.Fields(text); len(fields) > 1 {
			pages, _ := redis.ParseInt(fields[1])
			return pages * int64(os.Getpagesize())
		}
	}
	return largestResident()
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
