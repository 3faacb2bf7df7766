//go:build unix

package children

import (
	"os"
	"syscall"
)

// killFamily ends a process and those that it has started. It leads a group of its own.
func killFamily(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }
