package server

import (
	"time"

	"golang.org/x/sys/windows"
)

// CPUTime returns the processor time that the process has used, in user code and in the kernel.
func CPUTime() (user, sys time.Duration) {
	var created, ended, kernel, own windows.Filetime
	if windows.GetProcessTimes(windows.CurrentProcess(), &created, &ended, &kernel, &own) != nil {
		return 0, 0
	}
	span := func(t windows.Filetime) time.Duration { // in units of 100 ns
		return time.Duration(int64(t.HighDateTime)<<32|int64(t.LowDateTime)) * 100
	}
	return span(own), span(kernel)
}

// Windows does not tell these.
func childrenCPUTime() (user, sys time.Duration) { return 0, 0 }
func largestResident() int64                     { return 0 }
