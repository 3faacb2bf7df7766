package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/redis/go-redis/v9"
)

// programEnv makes the test binary the program: neokv itself, or a child that ends in a way that neokv should never.
const programEnv = "_NEOKV_TEST_PROGRAM"

func program() {
	end := map[string]func() int{
		"panic": func() int {
			go panic("on another goroutine")
			select {}
		},
		"status": func() int {
			n, _ := strconv.Atoi(os.Args[2])
			return n
		},
		"hold": func() int { // does not stop when it is asked to
			signal.Ignore(syscall.SIGTERM)
			fmt.Println(os.Getpid())
			select {}
		},
	}[os.Args[1]]
	switch {
	case end == nil:
		main()
	case isChild():
		os.Exit(childStatus(end()))
	default:
		os.Exit(supervise(os.Stderr, os.Args[1:]))
	}
}

// started is the program, and the first line that it printed.
type started struct {
	*exec.Cmd
	line   string
	stderr strings.Builder
}

func startProgram(t *testing.T, args ...string) *started {
	t.Helper()
	p := &started{Cmd: exec.Command(os.Args[0], args...)}
	p.Env = append(os.Environ(), programEnv+"=1")
	p.Stderr = &p.stderr
	p.WaitDelay = patience
	out, err := p.StdoutPipe()
	if err == nil {
		err = p.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() })
	if p.line, err = bufio.NewReader(out).ReadString('\n'); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return p
}

// status waits for the end and returns the exit status, -1 for a signal.
func (p *started) status(t *testing.T) int {
	t.Helper()
	if err := p.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

func TestStatusOfTheChild(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		stderr string
	}{
		{"panic", statusFailed, "panic: on another goroutine"},
		{"status 0", statusDone, ""},
		{"status 1", statusFailed, ""},
		{"status 2", statusInvalid, ""},
		{"status 3", statusFailed, ""},
		{"serve --stores 0", statusInvalid, "cluster.stores: 0"},
		{"bench --target 127.0.0.1:1", statusFailed, "127.0.0.1:1"},
		{"version --no-such-flag", statusInvalid, "no-such-flag"},
	} {
		p := startProgram(t, strings.Fields(c.args)...)
		if got := p.status(t); got != c.status || !strings.Contains(p.stderr.String(), c.stderr) {
			t.Errorf("neokv %s = %d, %q; want %d, %q", c.args, got, p.stderr.String(), c.status, c.stderr)
		}
	}
}

func TestSignalsToTheParent(t *testing.T) {
	for _, s := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		p := startProgram(t, "serve", "--profile", "small", "--mem", "--port", "0")
		if !strings.HasPrefix(p.line, "NEOKV_READY ") {
			t.Fatalf("serve printed %q: %s", p.line, p.stderr.String())
		}
		p.Process.Signal(s)
		if got := p.status(t); got != statusDone {
			t.Errorf("%v: %d, %q; want 0", s, got, p.stderr.String())
		}
	}

	p := startProgram(t, "hold")
	p.Process.Signal(os.Interrupt)
	p.Process.Signal(syscall.SIGTERM)
	if got := p.status(t); got != statusFailed || !strings.Contains(p.stderr.String(), "ended by signal: killed") {
		t.Errorf("two signals: %d, %q; want 1, ended by signal", got, p.stderr.String())
	}

	p = startProgram(t, "hold")
	child, err := strconv.Atoi(strings.TrimSpace(p.line))
	if err != nil {
		t.Fatal(err)
	}
	syscall.Kill(child, syscall.SIGKILL)
	if got := p.status(t); got != statusFailed || !strings.Contains(p.stderr.String(), "ended by signal: killed") {
		t.Errorf("child killed: %d, %q; want 1, ended by signal", got, p.stderr.String())
	}
}

// kill -9 of the process that was started is the end of both, and its folder and ports can be used again at once.
func TestKillNineOfTheParent(t *testing.T) {
	args := []string{"serve", "--port", "0", "--stores", "2", "--regions", "2", "--dir", t.TempDir()}
	var key string
	for round := range 3 {
		p := startProgram(t, args...)
		if !strings.HasPrefix(p.line, "NEOKV_READY ") {
			t.Fatalf("round %d: serve printed %q: %s", round, p.line, p.stderr.String())
		}
		ready := make(map[string]string)
		for _, field := range strings.Fields(p.line)[1:] {
			name, value, _ := strings.Cut(field, "=")
			ready[name] = value
		}
		c := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + ready["proxy"]})
		defer c.Close()
		if key != "" {
			if got, err := c.Get(t.Context(), key).Result(); err != nil || got != "kept" {
				t.Fatalf("round %d: GET %s = %q, %v; want kept", round, key, got, err)
			}
		}
		key = fmt.Sprint("key", round)
		if err := c.Set(t.Context(), key, "kept", 0).Err(); err != nil {
			t.Fatal(err)
		}
		p.Process.Kill()
		p.Process.Wait()
	}
}
