package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// programEnv makes the test binary the program: neokv itself, or the one that hold is.
const programEnv = "_NEOKV_TEST_PROGRAM"

// program runs in place of the tests. "hold" is a neokv that takes its signals and does not stop, "client" what tests
// of --exec run.
func program() {
	switch os.Args[1] {
	case "hold":
	case "client":
		os.Exit(execClient())
	default:
		main()
	}
	ctx := stopSignals(context.Background())
	fmt.Println("holding")
	<-ctx.Done()
	fmt.Println("asked to stop")
	select {}
}

// execClient uses the cluster that its environment names, in both ways, and copies its standard input to its output.
// Its argument is a key.
func execClient() int {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	one, err := redis.ParseURL(os.Getenv("REDIS_URL"))
	if err != nil {
		fmt.Println(err)
		return statusInvalid
	}
	proxy := redis.NewClient(one)
	defer proxy.Close()
	cluster := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: strings.Split(os.Getenv("REDIS_CLUSTER_NODES"), ","), Password: os.Getenv("REDIS_PASSWORD"),
	})
	defer cluster.Close()
	key := os.Args[2]
	all := cluster.Pipeline() // to every store
	for i := range 20 {
		all.Set(ctx, fmt.Sprint(key, i), "there", 0)
	}
	all.Set(ctx, key, "there", 0)
	_, err = all.Exec(ctx)
	if err == nil {
		var got string
		if got, err = proxy.Get(ctx, key).Result(); got != "there" {
			err = fmt.Errorf("GET %s = %q, %w", key, got, err)
		}
	}
	if err != nil {
		fmt.Println(err)
		return statusFailed
	}
	fmt.Println(len(cluster.Options().Addrs), "stores")
	io.Copy(os.Stdout, os.Stdin)
	return statusDone
}

// started is the program, and the first line that it printed.
type started struct {
	*exec.Cmd
	stdout *bufio.Reader
	line   string
	stderr strings.Builder
}

func startProgram(t *testing.T, args ...string) *started {
	t.Helper()
	return startCommand(t, exec.Command(os.Args[0], args...), (*exec.Cmd).Start)
}

// startCommand starts a command that becomes the program, by a function.
func startCommand(t *testing.T, c *exec.Cmd, start func(*exec.Cmd) error) *started {
	t.Helper()
	p := &started{Cmd: c}
	p.Env = append(os.Environ(), programEnv+"=1")
	p.Stderr = &p.stderr
	p.WaitDelay = patience
	out, err := p.StdoutPipe()
	if err == nil {
		err = start(c)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Process.Kill() })
	p.stdout = bufio.NewReader(out)
	if p.line, err = p.stdout.ReadString('\n'); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return p
}

// fields returns the fields of the ready line of serve.
func (p *started) fields(t *testing.T) map[string]string {
	t.Helper()
	if !strings.HasPrefix(p.line, "NEOKV_READY ") {
		t.Fatalf("serve printed %q: %s", p.line, p.stderr.String())
	}
	ready := make(map[string]string)
	for _, field := range strings.Fields(p.line)[1:] {
		name, value, _ := strings.Cut(field, "=")
		ready[name] = value
	}
	return ready
}

// status waits for the end and returns the exit status, -1 for a signal.
func (p *started) status(t *testing.T) int {
	t.Helper()
	if err := p.Wait(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		t.Fatal(err)
	}
	return p.ProcessState.ExitCode()
}

func TestExitStatus(t *testing.T) {
	for _, c := range []struct {
		args   string
		status int
		stderr string
	}{
		{"version", statusDone, ""},
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

func TestSignals(t *testing.T) {
	if signal.Ignored(syscall.SIGHUP) {
		t.Skip("SIGHUP is ignored here, as below nohup; the programs that the test starts ignore it, too")
	}
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

	// The first asks, a second SIGHUP means nothing, and any other second one ends the process at once.
	p := startProgram(t, "hold")
	p.Process.Signal(syscall.SIGHUP)
	if line, err := p.stdout.ReadString('\n'); line != "asked to stop\n" {
		t.Fatalf("behind SIGHUP: %q, %v", line, err)
	}
	p.Process.Signal(syscall.SIGHUP)
	again := time.NewTicker(10 * time.Millisecond) // those of the first moments count as the first
	defer again.Stop()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range again.C {
			if p.Process.Signal(os.Interrupt) != nil {
				return
			}
		}
	}()
	p.status(t)
	<-ended
	if got := p.ProcessState.Sys().(syscall.WaitStatus).Signal(); got != syscall.SIGINT {
		t.Errorf("a second signal: ended by %v, want SIGINT", got)
	}
}

// TestKillNine: behind kill -9 the folder and the ports can be used again at once.
func TestKillNine(t *testing.T) {
	args := []string{"serve", "--port", "0", "--stores", "2", "--regions", "2", "--dir", t.TempDir()}
	var key string
	for round := range 3 {
		p := startProgram(t, args...)
		ready := p.fields(t)
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
