package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// openTerminal makes a terminal of 80 x 24: what a person has, and what a program has.
func openTerminal(t *testing.T) (person, program *os.File) {
	t.Helper()
	person, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { person.Close() })
	fd := int(person.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	program, err = os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { program.Close() })
	if err := unix.IoctlSetWinsize(fd, unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 80}); err != nil {
		t.Fatal(err)
	}
	return person, program
}

// On a terminal the run shows the live view. Whatever ends it, the terminal is as it was; Ctrl-C and SIGTERM keep what
// was measured.
func TestLiveOnATerminal(t *testing.T) {
	for _, c := range []struct {
		what   string
		end    func(person *os.File, p *os.Process) error
		status int // -1: ended by a signal
	}{
		{"Ctrl-C", func(person *os.File, _ *os.Process) error {
			_, err := person.Write([]byte{3})
			return err
		}, statusFailed},
		{"SIGTERM", func(_ *os.File, p *os.Process) error { return p.Signal(syscall.SIGTERM) }, statusFailed},
		{"a crash", func(_ *os.File, p *os.Process) error { return p.Signal(syscall.SIGQUIT) }, statusInvalid},
		{"SIGKILL", func(_ *os.File, p *os.Process) error { return p.Kill() }, -1},
	} {
		person, program := openTerminal(t)
		before, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "cut.jsonl")
		cmd := exec.Command(os.Args[0], "bench", "--profile", "small", "--mem", "--workload", "set", "--duration", "1h",
			"--warmup", "0s", "--out", out)
		cmd.Env = append(os.Environ(), programEnv+"=1", "TERM=xterm-256color")
		var stdout bytes.Buffer
		cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = program, &stdout, program, patience
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { cmd.Process.Kill() })
		seen := newOutput()
		drained := make(chan struct{})
		go func() { // until nobody has the program's end of the terminal
			io.Copy(seen, person)
			close(drained)
		}()
		bound, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		if !seen.waitFor(bound, "entries/s") {
			t.Fatalf("%s: no table of stores in %q", c.what, seen)
		}
		if err := c.end(person, cmd.Process); err != nil {
			t.Fatal(err)
		}
		cmd.Wait()
		after, err := unix.IoctlGetTermios(int(program.Fd()), unix.TCGETS)
		if err != nil {
			t.Fatal(err)
		}
		program.Close()
		select {
		case <-drained:
		case <-bound.Done():
			t.Fatalf("%s: somebody still writes to the terminal: %q", c.what, seen)
		}
		// Go's own report of a crash may fail if the signal comes while the race detector's code, which is not Go, runs.
		again := strings.Contains(seen.String(), "panic during panic")
		if got := cmd.ProcessState.ExitCode(); got != c.status && !again {
			t.Errorf("%s: status %d, want %d; %q", c.what, got, c.status, seen)
		}
		if c.status == statusFailed {
			if !strings.HasSuffix(seen.String(), "neokv: interrupted\r\n") || !strings.Contains(seen.String(), "cut short") ||
				!strings.Contains(stdout.String(), "interrupted: ") {
				t.Errorf("%s: stdout\n%s\nterminal %q", c.what, stdout.String(), seen)
			}
			if r := readResult(t, stdout.String()); r.Summary == nil || !r.Summary.Interrupted {
				t.Errorf("%s: summary %+v: want one marked interrupted", c.what, r.Summary)
			}
		}
		if *after != *before {
			t.Errorf("%s: the terminal's settings are %+v, were %+v", c.what, after, before)
		}
		for _, mode := range modes.FindAllString(seen.String(), -1) {
			if mode != "\x1b[?25l" && mode != "\x1b[?25h" {
				t.Errorf("%s: %q changes the terminal", c.what, mode)
			}
		}
		if s := seen.String(); strings.LastIndex(s, "\x1b[?25l") > strings.LastIndex(s, "\x1b[?25h") {
			t.Errorf("%s: the cursor stays hidden: %q", c.what, s)
		}
	}
}
