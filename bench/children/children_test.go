package children

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"neokv.dev/bench"
)

// holdEnv makes the test binary a program that starts a NeoKV by the program that the variable names, prints the number
// of its process and its folder, and waits.
const holdEnv = "_NEOKV_CHILDREN_HOLD"

func TestMain(m *testing.M) {
	if program := os.Getenv(holdEnv); program != "" {
		r, err := Start(context.Background(), "", NeoKV{Program: program, Profile: "small", InMemory: true})
		if err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		fmt.Println(r.children[0].cmd.Process.Pid, r.Dir())
		select {}
	}
	status := m.Run()
	if built.dir != "" {
		os.RemoveAll(built.dir)
	}
	os.Exit(status)
}

var built struct {
	sync.Once
	dir string
	err error
}

// neokv returns the path of the program, built from this tree.
func neokv(t *testing.T) string {
	t.Helper()
	built.Do(func() {
		if built.dir, built.err = os.MkdirTemp("", "neokv-built-"); built.err != nil {
			return
		}
		out, err := exec.Command("go", "build", "-o", built.dir, "neokv.dev/cmd/neokv").CombinedOutput()
		if err != nil {
			built.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return filepath.Join(built.dir, "neokv")
}

// script returns the path of a program that runs a shell script.
func script(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "script")
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// begin starts a target and ends it with the test.
func begin(t *testing.T, dir string, what Startable) *Running {
	t.Helper()
	r, err := Start(t.Context(), dir, what)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.Kill() })
	return r
}

// patience bounds every wait of these tests.
const patience = time.Minute

// eventually waits for a condition.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %s: %s", patience, what)
		}
		<-time.After(5 * time.Millisecond)
	}
}

// until returns a context that ends with a cause when a file exists.
func until(t *testing.T, path string, cause error) context.Context {
	ctx, cancel := context.WithCancelCause(t.Context())
	var watching sync.WaitGroup
	watching.Go(func() {
		for ctx.Err() == nil {
			if _, err := os.Stat(path); err == nil {
				cancel(cause)
			}
			<-time.After(5 * time.Millisecond)
		}
	})
	t.Cleanup(func() {
		cancel(nil)
		watching.Wait()
	})
	return ctx
}

func ask(t *testing.T, r *Running, addr string, args ...string) any {
	t.Helper()
	v, err := bench.Ask(t.Context(), addr, r.Password(), args...)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func isEmpty(t *testing.T, dir string) bool {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return len(entries) == 0
}

// A NeoKV on a folder with data serves it again behind a stop, with other settings, a password and free ports.
func TestNeoKV(t *testing.T) {
	dir, data := t.TempDir(), t.TempDir()
	what := NeoKV{Program: neokv(t), Profile: "small", Data: data, Set: []string{"cluster.regions=4"},
		Secrets: []string{"redis.requirepass=secret"}, Password: "secret"}
	for round := range 2 {
		r := begin(t, dir, what)
		if got := ask(t, r, r.Proxy(), "GET", "key"); round == 1 && got != "kept" {
			t.Errorf("after a restart GET = %v, want kept", got)
		}
		ask(t, r, r.Proxy(), "SET", "key", "kept")
		fields, err := bench.Fields(t.Context(), r.Addrs()[0], "secret", "INFO")
		if err != nil || fields["cluster_enabled"] != "1" || fields["regions"] != "4" {
			t.Errorf("INFO of %s: cluster_enabled %q, regions %q, %v", r.Addrs()[0], fields["cluster_enabled"],
				fields["regions"], err)
		}
		if r.Err() != nil {
			t.Error(r.Err())
		}
		use, err := r.Use()
		if linux := runtime.GOOS == "linux"; (err == nil) != linux || linux && (use.CPU <= 0 || use.Memory < 1<<20) {
			t.Errorf("uses %+v, %v", use, err)
		}
		existing := begin(t, dir, Existing{Addrs: r.Addrs(), Password: "secret"})
		if _, err := existing.Use(); err == nil || !strings.Contains(err.Error(), "has not started") {
			t.Errorf("use of an existing target: %v", err)
		}
		if err := existing.Stop(); err != nil {
			t.Error(err)
		}
		select {
		case <-r.Alive().Done():
			t.Fatalf("ended: %v", r.Err())
		default:
		}
		if err := r.Stop(); err != nil || r.Err() != nil {
			t.Errorf("stopped with %v, %v", err, r.Err())
		}
		<-r.Alive().Done()
		// Its ports may be those of another process by now.
		if ends := ended(r.children[0].cmd.Process.Pid); !isEmpty(t, dir) || isEmpty(t, data) || !ends {
			t.Errorf("after a stop: folder empty %v, data empty %v, process ended %v", isEmpty(t, dir),
				isEmpty(t, data), ends)
		}
	}
}

// A process that ends while its target is used says so.
func TestEnds(t *testing.T) {
	dir := t.TempDir()
	r := begin(t, dir, NeoKV{Program: neokv(t), Profile: "small", InMemory: true})
	if err := r.children[0].cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-r.Alive().Done():
	case <-time.After(patience):
		t.Fatal("Alive has not ended")
	}
	for _, err := range []error{r.Err(), r.Stop()} {
		if err == nil || !strings.Contains(err.Error(), "signal: killed") {
			t.Errorf("error %v, want that it was killed", err)
		}
	}
	if !isEmpty(t, dir) {
		t.Error("the folder is left")
	}
}

// A start that fails says why in the words of the program, and leaves nothing behind.
func TestStartFails(t *testing.T) {
	echoed := filepath.Join(t.TempDir(), "echoed")
	for _, c := range []struct {
		what Startable
		ctx  context.Context
		want []string
	}{
		{NeoKV{Program: neokv(t), Set: []string{"cluster.stores=0"}}, nil,
			[]string{"start " + neokv(t) + " cluster.stores=0", "exit status 2", "cluster.stores: 0"}},
		{NeoKV{Program: "no-such-neokv"}, nil, []string{"start no-such-neokv: ", "not found"}},
		{NeoKV{Program: script(t, "echo one; echo NEOKV_READY port=1; sleep 60")}, nil,
			[]string{`"NEOKV_READY port=1", want ports= and proxy=`}},
		{NeoKV{Program: script(t, "echo all is well; exit 0")}, nil, []string{"exit status 0: all is well"}},
		{NeoKV{Program: script(t, "echo still busy; : > "+echoed+"; sleep 60")},
			until(t, echoed, context.DeadlineExceeded), []string{"deadline exceeded", "said: still busy"}},
		{Redis{Program: "/nowhere/redis-server", Durability: None}, nil,
			[]string{"redis-server is missing: apt-get install redis-server"}},
		{Redis{Program: script(t, "echo bad config; exit 1"), Durability: Always, Cluster: true}, nil,
			[]string{"start Redis Cluster, appendonly yes, appendfsync always: ", "exit status 1: bad config"}},
		{Existing{Addrs: []string{"127.0.0.1:1"}}, nil, []string{"start 127.0.0.1:1: ", "refused"}},
		{Existing{}, nil, []string{"no address"}},
	} {
		dir, ctx := t.TempDir(), t.Context()
		if c.ctx != nil {
			ctx = c.ctx
		}
		r, err := Start(ctx, dir, c.what)
		if err == nil {
			t.Errorf("%s: started", c.what)
			r.Kill()
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: error %q, want %q in it", c.what, err, want)
			}
		}
		if !isEmpty(t, dir) {
			t.Errorf("%s: the folder is left", c.what)
		}
	}
	if _, err := Start(t.Context(), filepath.Join(t.TempDir(), "absent"), Existing{}); err == nil {
		t.Error("started below a folder that is not there")
	}
}

// The end of the context ends a start, with the process, its own children, and the folder.
func TestStartIsCancelled(t *testing.T) {
	dir, pids := t.TempDir(), filepath.Join(t.TempDir(), "pids")
	program := script(t, "sleep 60 &\necho $$ $! > "+pids+".new\nmv "+pids+".new "+pids+"\nwait\n")
	ctx := until(t, pids, context.Canceled)
	_, err := Start(ctx, dir, NeoKV{Program: program})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, want %v", err, context.Canceled)
	}
	text, err := os.ReadFile(pids)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range strings.Fields(string(text)) {
		pid, err := strconv.Atoi(word)
		if err != nil {
			t.Fatal(err)
		}
		eventually(t, "process "+word+" has ended", func() bool { return ended(pid) })
	}
	if !isEmpty(t, dir) {
		t.Error("the folder is left")
	}
	if _, err := Start(ctx, dir, NeoKV{Program: program}); !errors.Is(err, context.Canceled) || !isEmpty(t, dir) {
		t.Errorf("a context that has ended: %v", err)
	}
}

// ended reports whether a process has ended, also if nobody has waited for it.
func ended(pid int) bool {
	out, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
	return errors.As(err, new(*exec.ExitError)) || strings.HasPrefix(string(out), "Z")
}

// A child ends with this process, also if that is killed.
func TestNoChildOutlivesThisProcess(t *testing.T) {
	c := exec.Command(os.Args[0])
	c.Env = append(os.Environ(), holdEnv+"="+neokv(t))
	out, err := c.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var dir string
	_, err = fmt.Fscan(out, &pid, &dir)
	c.Process.Kill()
	c.Wait()
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	eventually(t, fmt.Sprintf("process %d has ended", pid), func() bool { return ended(pid) })
}

// TestLine: a line counts from its beginning, and when it is whole.
func TestLine(t *testing.T) {
	for written, want := range map[string]string{
		"READY a=1\n": "READY a=1",
		"hello\nREADY a=1\nREADY again\nREADY again\n": "READY a=1",
		"NOT READY\nREADY": "",
		strings.Repeat("x", 128<<10) + "\nREADY b=2\n": "READY b=2",
	} {
		log, err := os.Create(filepath.Join(t.TempDir(), "log"))
		if err != nil {
			t.Fatal(err)
		}
		defer log.Close()
		if _, err := log.WriteString(written); err != nil {
			t.Fatal(err)
		}
		c := child{log: log}
		if got, err := c.line("READY"); got != want || (err == nil) != (want != "") {
			t.Errorf("found %q, %v; want %q", got, err, want)
		}
	}
}
