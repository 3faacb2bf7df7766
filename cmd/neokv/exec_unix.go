//go:build !windows

package main

import (
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// notifyAll sends the signals that serve --exec hands on, but for those that this process ignores.
func notifyAll(to chan<- os.Signal) {
	for _, s := range []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGUSR1,
		syscall.SIGUSR2} {
		if !signal.Ignored(s) {
			signal.Notify(to, s)
		}
	}
}

// startChild starts a command and returns what sends it a signal.
//
// In the foreground of a terminal the command stays in the process group of this process, so that it may read from the
// terminal and Ctrl-Z stops both. The terminal then sends it Ctrl-C itself. Elsewhere the command gets a group of its
// own, and signals go to all of that: a signal to our group, such as that of timeout(1), does not reach it twice, and
// what a shell runs gets it, too.
func startChild(c *exec.Cmd) (send func(os.Signal), err error) {
	own := !inForeground()
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: own}
	if err := c.Start(); err != nil {
		return nil, err
	}
	return func(s os.Signal) {
		switch {
		case own:
			_ = syscall.Kill(-c.Process.Pid, s.(syscall.Signal)) // it may have ended
		case s != syscall.SIGINT && s != syscall.SIGQUIT:
			_ = c.Process.Signal(s)
		}
	}, nil
}

// inForeground reports whether this process belongs to the foreground of a terminal.
func inForeground() bool {
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer tty.Close()
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}

// exitStatusOf returns the exit status that a shell gives for a process.
func exitStatusOf(s *os.ProcessState) int {
	if w, ok := s.Sys().(syscall.WaitStatus); ok && w.Signaled() {
		return statusSignal + int(w.Signal())
	}
	return s.ExitCode()
}
