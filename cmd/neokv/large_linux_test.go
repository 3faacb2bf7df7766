//go:build !race

package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"neokv.dev/workloads/forms"
)

// Large calls against a process with little memory:
//
//	go test ./cmd/neokv -run TestLargeCalls -large.time=30s                           fresh seed; make explore does it
//	go test ./cmd/neokv -run TestLargeCalls -large.seed=7 -large.time=1h -timeout=2h  a seed, for long
//	go test ./cmd/neokv -run TestLargeCases -large.scale=10 -timeout=2h -parallel=1   collections of millions
//
// Linux tells how much memory a process holds; a race build holds several times as much.
var (
	largeTime  = flag.Duration("large.time", 0, "length of TestLargeCalls, at least; 0: it does not run")
	largeScale = flag.Int("large.scale", 1, "how many times larger collections TestLargeCases has")
	largeSeed  = flag.Uint64("large.seed", 0, "seed of its calls; 0 takes a fresh one")
)

const (
	residentLimit = 4 << 30  // bytes of memory that the process may hold
	addressLimit  = 16 << 30 // bytes of addresses
	// silence is the longest that a client with calls under way hears nothing.
	silence = 5 * time.Minute
	// entryLimit is about what a call that writes may have.
	entryLimit = 64 << 20
)

// limited is a neokv serve on a folder, held to the limits.
type limited struct {
	testing.TB
	dir    string
	flags  []string // of serve
	cmd    *exec.Cmd
	proxy  string
	ports  []string // of the stores
	stderr *output
	most   int64         // bytes of memory that it may hold
	peak   atomic.Int64  // bytes held, at most, over all starts
	ended  chan struct{} // closed when the process has ended
	killed bool          // by the test, as it should
}

func startLimited(t testing.TB, flags ...string) *limited {
	t.Helper()
	return startLimitedTo(t, residentLimit, flags...)
}

func startLimitedTo(t testing.TB, most int64, flags ...string) *limited {
	t.Helper()
	l := &limited{TB: t, dir: t.TempDir(), flags: flags, most: most}
	t.Cleanup(func() { l.end(syscall.SIGKILL) })
	l.start()
	return l
}

func (l *limited) start() {
	l.Helper()
	limit := fmt.Sprintf(`ulimit -v %d; exec "$0" "$@"`, addressLimit>>10)
	serve := []string{"-c", limit, os.Args[0], "serve", "--port", "0"}
	if !slices.Contains(l.flags, "--mem") {
		serve = append(serve, "--dir", l.dir)
	}
	l.cmd = exec.Command("sh", append(serve, l.flags...)...)
	l.cmd.Env = append(os.Environ(), programEnv+"=1")
	l.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // it does not outlive a test that is killed
	stdout := newOutput()
	l.stderr = newOutput()
	l.cmd.Stdout, l.cmd.Stderr = stdout, l.stderr
	l.ended, l.killed = make(chan struct{}), false
	begin := time.Now()
	if err := l.cmd.Start(); err != nil {
		l.Fatal(err)
	}
	go func() {
		defer close(l.ended)
		l.cmd.Wait()
	}()
	go l.watch(l.cmd.Process.Pid, l.ended)
	ctx, cancel := context.WithTimeout(l.Context(), silence)
	defer cancel()
	go func() {
		select {
		case <-l.ended:
			cancel()
		case <-ctx.Done():
		}
	}()
	if !stdout.waitFor(ctx, "\n") {
		l.check()
		l.Fatalf("not ready after %s, memory %d MiB: %s", time.Since(begin), l.peak.Load()>>20, l.lastWords())
	}
	ready := readyForm.FindStringSubmatch(stdout.String())
	if ready == nil {
		l.Fatalf("ready line %q", stdout)
	}
	l.proxy, l.ports = net.JoinHostPort("127.0.0.1", ready[3]), strings.Split(ready[2], ",")
}

// watch kills the process as soon as it holds too much, before the machine suffers.
func (l *limited) watch(pid int, ended <-chan struct{}) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ended:
			return
		case <-tick.C:
		}
		held, alive := memoryOf(pid, "VmHWM")
		if !alive {
			continue
		}
		l.peak.Store(max(l.peak.Load(), held))
		if held > l.most {
			syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// memoryOf is one of the sizes in the status that Linux gives of a process, in bytes; false when the process has ended.
func memoryOf(pid int, name string) (held int64, alive bool) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, false
	}
	_, after, _ := bytes.Cut(status, []byte(name+":"))
	line, _, _ := bytes.Cut(after, []byte(" kB"))
	held, err = strconv.ParseInt(string(bytes.TrimSpace(line)), 10, 64)
	return held << 10, err == nil
}

// check fails the test if the process has ended by itself or has held too much, and reports whether it goes on.
func (l *limited) check() bool {
	l.Helper()
	over := l.peak.Load() > l.most
	if over {
		l.Errorf("the process held %d MiB of memory, and may hold %d", l.peak.Load()>>20, l.most>>20)
	}
	select {
	case <-l.ended:
		if !over && !l.killed {
			l.Errorf("the process ended: %v: %s", l.cmd.ProcessState, l.lastWords())
		}
		return false
	default:
		return !over
	}
}

// lastWords are the beginning of what the process has said: a panic stands there.
func (l *limited) lastWords() string {
	text := l.stderr.String()
	return text[:min(2000, len(text))]
}

// end sends a signal and waits for the process to end.
func (l *limited) end(s syscall.Signal) {
	l.killed = true
	l.cmd.Process.Signal(s)
	select {
	case <-l.ended:
	case <-time.After(silence):
		l.Errorf("the process did not end at %v", s)
		l.cmd.Process.Kill()
		<-l.ended
	}
}

// killDuring is kill -9 as soon as some calls have been sent.
func (l *limited) killDuring(calls []forms.Call) {
	l.Helper()
	c, err := l.dial()
	if err != nil {
		l.Fatal(err)
	}
	defer c.Close()
	if err := c.send(calls); err != nil {
		l.Fatal(err)
	}
	if !l.check() {
		l.FailNow()
	}
	l.end(syscall.SIGKILL)
}

// sameReplicas wants the replicas of all regions to be equal.
func (l *limited) sameReplicas() {
	l.Helper()
	c := client(l.proxy)
	defer c.Close()
	for end := time.Now().Add(silence); ; {
		got, err := c.Do(l.Context(), "NEOKV", "CHECKSUM").Result()
		text := fmt.Sprint(got, err)
		switch {
		case !l.check():
			return
		case err == nil && strings.Contains(text, " different ") || time.Now().After(end):
			l.Errorf("NEOKV CHECKSUM: %s", text)
			return
		case err == nil && strings.Contains(text, " equal ") && !strings.Contains(text, " incomplete "):
			return
		}
	}
}

// largeClient sends calls and throws replies away as they come.
type largeClient struct {
	net.Conn
	r    *bufio.Reader
	read int // bytes
}

func (l *limited) dial() (*largeClient, error) {
	nc, err := net.Dial("tcp", l.proxy)
	if err != nil {
		return nil, err
	}
	c := &largeClient{Conn: nc}
	c.r = bufio.NewReader(c)
	return c, nil
}

// Read waits for silence to end.
func (c *largeClient) Read(b []byte) (int, error) {
	if err := c.SetReadDeadline(time.Now().Add(silence)); err != nil {
		return 0, err
	}
	n, err := c.Conn.Read(b)
	c.read += n
	return n, err
}

func (c *largeClient) send(calls []forms.Call) error {
	w := bufio.NewWriterSize(c, 1<<16)
	for _, call := range calls {
		if err := call.Write(w); err != nil {
			return err
		}
	}
	return w.Flush()
}

// exchange sends a pipeline and hands each reply's first line on, until all have come or each says that it is enough.
func (c *largeClient) exchange(calls []forms.Call, each func(i int, line string) (enough bool)) error {
	sent := make(chan error, 1)
	go func() { sent <- c.send(calls) }()
	for i := range calls {
		line, err := forms.ReadReply(c.r)
		if err != nil {
			c.Close()
			return fmt.Errorf("reply %d of %d, to %s: %w", i, len(calls), calls[i], errors.Join(err, <-sent))
		}
		if each(i, line) && i+1 < len(calls) {
			c.Close()
			<-sent
			return nil
		}
	}
	return <-sent
}

func repeated(n int, lines ...string) (calls []forms.Call) {
	for range n {
		for _, line := range lines {
			calls = append(calls, forms.Parse(line))
		}
	}
	return calls
}

// numbered are calls that each have a number of arguments made of the call's and their own number.
func numbered(calls, arguments int, begin string, argument func(call, i int) string) (all []forms.Call) {
	for i := range calls {
		line := begin
		for j := range arguments {
			line += " " + argument(i, j)
		}
		all = append(all, forms.Parse(line))
	}
	return all
}

// TestLargeCases has calls that once made the process die, and its folder unusable: small ones about large values, most
// of them. It has half as many as took a process with twice the memory.
func TestLargeCases(t *testing.T) {
	most := int64(residentLimit)
	if *largeScale == 1 {
		most /= 2
	}
	members := func(key string, calls int, number func(call, i int) string) []forms.Call {
		return numbered(calls, 1000, key, number)
	}
	scored := members("ZADD z", 150**largeScale,
		func(call, i int) string { return fmt.Sprintf("%d m%d", call*1000+i, call*1000+i) })
	var named, sets []forms.Call
	named = members("ZADD z", 150**largeScale, func(call, i int) string { return fmt.Sprintf("0 m%08d", call*1000+i) })
	union := "SUNIONSTORE d"
	for set := range 20 {
		key := fmt.Sprintf("d{d}%d", set)
		sets = append(sets, members("SADD "+key, 10**largeScale, func(call, i int) string {
			return fmt.Sprintf("m%d.%d.%d~80", set, call, i)
		})...)
		union += " " + key
	}
	elements := numbered(100**largeScale, 10, "RPUSH l",
		func(call, i int) string { return fmt.Sprintf("e%d~65000", call*10+i) })
	large := repeated(1, "SET k ~8388608")
	for _, c := range []struct {
		name          string
		before, calls []forms.Call
		want          string // of each reply, if it has to be so
	}{
		{"EXPIRE", large, repeated(256, "EXPIRE k 1000"), ":1"},
		{"PERSIST", large, repeated(64, "EXPIRE k 1000", "PERSIST k"), ":1"},
		{"APPEND", large, repeated(256, "APPEND k x"), ""},
		{"SETRANGE at the start", large, repeated(256, "SETRANGE k 0 x"), ":8388608"},
		{"COPY", large, repeated(24, "COPY k {k}2 REPLACE"), ""},
		{"SETRANGE at the end", nil, repeated(4, "SETRANGE k 536870000 x"), ""},
		{"LINSERT", elements, repeated(12, "LINSERT l BEFORE e500~65000 x"), ""},
		{"LREM", elements, numbered(12, 1, "LREM l 0", func(call, _ int) string {
			return fmt.Sprintf("e%d~65000", 450+call)
		}), ""},
		{"ZREMRANGEBYRANK", scored, repeated(1, "ZREMRANGEBYRANK z 1 -2"), ""},
		{"ZREMRANGEBYSCORE", scored, repeated(1, "ZREMRANGEBYSCORE z (0 inf"), ""},
		{"ZREMRANGEBYLEX", named, repeated(1, "ZREMRANGEBYLEX z (m00000000 +"), ""},
		{"SUNIONSTORE", sets, repeated(4, strings.ReplaceAll(union, " d", " {d}")), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel() // a process waits for its disk a third of the time
			// A busy machine is not what is looked for.
			l := startLimitedTo(t, most, "--set", "redis.leaderless_wait=60s")
			begin := time.Now()
			run := func(calls []forms.Call, want string) {
				t.Helper()
				client, err := l.dial()
				if err != nil {
					t.Fatal(err)
				}
				defer client.Close()
				failures, first := 0, ""
				err = client.exchange(calls, func(i int, line string) bool {
					if want != "" && line != want && (want != "no error" || line[0] == '-') {
						t.Errorf("%s: %s, want %s", calls[i], line, want)
						return true
					}
					if line[0] == '-' {
						if failures++; first == "" {
							first = line
						}
					}
					return false
				})
				if !l.check() || err != nil {
					t.Fatalf("%v; memory %d MiB", err, l.peak.Load()>>20)
				}
				if failures > 0 {
					t.Logf("%d errors, the first: %s", failures, first)
				}
			}
			run(c.before, "no error")
			run(c.calls, c.want)
			l.sameReplicas()
			l.killDuring(c.calls)
			l.start()
			run(c.calls[:1], "")
			l.sameReplicas()
			t.Logf("%s, memory %d MiB", time.Since(begin).Round(10*time.Millisecond), l.peak.Load()>>20)
		})
	}
}

// TestLargeCalls has several clients send large calls, most of them in pipelines. The process is killed meanwhile, and
// starts again.
func TestLargeCalls(t *testing.T) {
	if *largeTime == 0 {
		t.Skip("-large.time says for how long; a pipeline of large calls may take minutes")
	}
	seed := *largeSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	again := fmt.Sprintf("go test ./cmd/neokv -run TestLargeCalls -large.seed=%d -large.time=%s", seed, *largeTime)
	t.Log(again)
	defer func() {
		if t.Failed() {
			t.Log("again:", again)
		}
	}()
	l := startLimited(t)
	var replies, failures, closed atomic.Int64
	written, derived := formsOf(t, l.proxy)
	clients := make([]largeCalls, 3)
	for i := range clients {
		clients[i].Forms = slices.Concat(written, derived)
		clients[i].Rand = rand.New(rand.NewPCG(seed, uint64(i)))
	}
	const rounds = 3
	for range rounds {
		end := time.Now().Add(*largeTime / rounds)
		var under [3]atomic.Value // what each has under way
		var wg sync.WaitGroup
		for i := range clients {
			g := &clients[i]
			wg.Go(func() {
				var c *largeClient
				defer func() {
					if c != nil {
						c.Close()
					}
				}()
				for time.Now().Before(end) {
					if c == nil {
						var err error
						if c, err = l.dial(); err != nil {
							return // the process has ended
						}
					}
					calls := g.pipeline()
					under[i].Store(calls)
					last := time.Now().Add(5 * time.Second)
					c.read = 0
					gone := false
					err := c.exchange(calls, func(_ int, line string) bool {
						replies.Add(1)
						if line[0] == '-' {
							failures.Add(1)
						}
						gone = c.read > 1<<30 || time.Now().After(last) || time.Now().After(end)
						return gone
					})
					if errors.Is(err, os.ErrDeadlineExceeded) {
						t.Errorf("nothing for %s: %v", silence, err)
					}
					if err != nil && !gone {
						closed.Add(1)
					}
					if err != nil || gone {
						c.Close()
						c = nil
					}
				}
			})
		}
		time.Sleep(time.Until(end)) // the kill comes in the midst of what is under way
		if !l.check() {
			for i := range under {
				if calls, ok := under[i].Load().([]forms.Call); ok {
					t.Logf("under way: %d calls: %s; %s", len(calls), calls[0], calls[len(calls)-1])
				}
			}
			wg.Wait()
			return
		}
		l.end(syscall.SIGKILL)
		wg.Wait()
		l.start()
	}
	l.sameReplicas()
	t.Logf("%d replies, %d of them errors, %d connections closed; memory %d MiB",
		replies.Load(), failures.Load(), closed.Load(), l.peak.Load()>>20)
	if n := replies.Load(); n < 100 || failures.Load() > n*9/10 {
		t.Errorf("%d replies, %d of them errors", n, failures.Load())
	}
}
