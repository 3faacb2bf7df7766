package main

import (
	"os"
	"os/exec"
	"os/signal"
)

// notifyAll keeps Ctrl-C from ending this process.
func notifyAll(to chan<- os.Signal) { signal.Notify(to, os.Interrupt) }

// startChild starts a command and returns what sends it a signal: nothing for Ctrl-C, which the console sends to the
// command, too, and else its end.
func startChild(c *exec.Cmd) (send func(os.Signal), err error) {
	if err := c.Start(); err != nil {
		return nil, err
	}
	return func(s os.Signal) {
		if s != os.Interrupt {
			_ = c.Process.Kill() // it may have ended
		}
	}, nil
}

func exitStatusOf(s *os.ProcessState) int { return s.ExitCode() }
