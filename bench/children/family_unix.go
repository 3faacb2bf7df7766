//go:build unix

package children

import (
	"os"
	"syscall"
)

// A process that is started here leads a group of its own, its family: with it are those that it has started.

func killFamily(p *os.Process) { _ = syscall.Kill(-p.Pid, syscall.SIGKILL) }

func pauseFamily(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGSTOP) }

func resumeFamily(p *os.Process) error { return syscall.Kill(-p.Pid, syscall.SIGCONT) }
