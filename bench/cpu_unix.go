//go:build unix

package bench

import (
	"time"

	"golang.org/x/sys/unix"
)

// cpuTime returns the processor time that the process has used, 0 if the system does not tell.
func cpuTime() time.Duration {
	var usage unix.Rusage
	if unix.Getrusage(unix.RUSAGE_SELF, &usage) != nil {
		return 0
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}
