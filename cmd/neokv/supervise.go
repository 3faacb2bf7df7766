package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"slices"
	"syscall"
)

// A panic on any goroutine ends a Go process with the status 2, which means invalid input here, and no code inside can change
// that. So the verbs that run a cluster do it in a child process, whose end the first process translates:
//
//	child                                   status of neokv
//	0, 1                                    the same
//	usageOfChild                            2
//	a panic (2), a signal, anything else    1
//
// The child lives no longer than its parent: it holds the read end of a pipe of which the parent holds the other, and when that end
// closes it kills itself, so that kill -9 of the parent is kill -9 of both.
const (
	// childEnv marks the child. It is no setting, so its name must not begin as those do.
	childEnv     = "_NEOKV_CHILD"
	lifelineFD   = 3
	usageOfChild = 64
)

// supervised are the verbs that run other goroutines than main's.
var supervised = []string{"serve", "bench"}

func needsChild(args []string) bool { return len(args) > 0 && slices.Contains(supervised, args[0]) }

// supervise runs this program again as a child with the same arguments and returns its status, translated. The first of the signals
// stops the child as SIGTERM does, a second ends it at once. (The child ignores SIGINT and SIGHUP, which a terminal sends to both; when one is closed SIGHUP may come
// twice and counts once.)
func supervise(stderr io.Writer, args []string) int {
	status, err := runChild(stderr, args)
	if err != nil {
		fmt.Fprintln(stderr, "neokv:", err)
		return statusFailed
	}
	return status
}

func runChild(stderr io.Writer, args []string) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	lifeline, end, err := os.Pipe()
	if err != nil {
		return 0, err
	}
	defer end.Close()
	child := exec.Command(self, args...)
	child.Env = append(os.Environ(), childEnv+"=1")
	child.Stdin, child.Stdout, child.Stderr = os.Stdin, os.Stdout, os.Stderr
	child.ExtraFiles = []*os.File{lifeline}
	signals := make(chan os.Signal, 4)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM, syscall.SIGQUIT)
	if !signal.Ignored(syscall.SIGHUP) { // as nohup does
		signal.Notify(signals, syscall.SIGHUP)
	}
	err = child.Start()
	lifeline.Close()
	if err != nil {
		return 0, err
	}
	ended := make(chan error, 1)
	go func() { ended <- child.Wait() }()
	for asked := false; ; {
		select {
		case s := <-signals:
			switch {
			case s == syscall.SIGQUIT:
				child.Process.Signal(s) // it prints its stacks
			case asked && s == syscall.SIGHUP:
			case asked:
				child.Process.Kill()
			default:
				asked = true
				child.Process.Signal(syscall.SIGTERM)
			}
		case err := <-ended:
			if err != nil && !errors.As(err, new(*exec.ExitError)) {
				return 0, err
			}
			return translate(stderr, child.ProcessState.Sys().(syscall.WaitStatus)), nil
		}
	}
}

func translate(stderr io.Writer, child syscall.WaitStatus) int {
	switch {
	case child.Signaled():
		fmt.Fprintln(stderr, "neokv: ended by signal:", child.Signal())
		return statusFailed
	case child.ExitStatus() == statusDone:
		return statusDone
	case child.ExitStatus() == usageOfChild:
		return statusInvalid
	}
	return statusFailed
}

// isChild reports whether this process was started by runChild, and if so ties its life to its parent's.
func isChild() bool {
	if os.Getenv(childEnv) == "" {
		return false
	}
	os.Unsetenv(childEnv)
	lifeline := os.NewFile(lifelineFD, "lifeline")
	if info, err := lifeline.Stat(); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return false // somebody else's variable
	}
	signal.Ignore(os.Interrupt, syscall.SIGHUP)
	go func() {
		io.Copy(io.Discard, lifeline) // nothing is ever written; it ends with the parent
		syscall.Kill(os.Getpid(), syscall.SIGKILL)
	}()
	return true
}

// childStatus is the status that a child ends with to say status.
func childStatus(status int) int {
	if status == statusInvalid {
		return usageOfChild
	}
	return status
}
