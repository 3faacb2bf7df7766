//go:build !race

package main

import (
	"bufio"
	"fmt"
	"math/rand/v2"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"neokv.dev/workloads/forms"
)

// TestStopsDuringLongCalls runs the most expensive calls that chance finds, several at once, on a process of its own.
// `neokv ctl kill` and SIGTERM end soon. TestEveryCallEnds of package neokv goes over the whole table.
func TestStopsDuringLongCalls(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	runtime := t.TempDir()
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	p := startProgram(t, "serve", "--profile", "small", "--mem", "--port", "0", "--set", "redis.client_memory=512MiB",
		"--set", "redis.leaderless_wait=60s") // a busy machine is not what is looked for
	ready := p.fields(t)
	port := func(port string) string { return net.JoinHostPort("127.0.0.1", port) }
	g := &forms.Generator{Rand: rand.New(rand.NewPCG(seed, 0)), Tag: "{t}", Keys: 48, Size: 20_000}
	rows := rowsOf(t, port(ready["port"]))
	for _, row := range rows {
		g.Commands = append(g.Commands, strings.ReplaceAll(row.Name, " ", "|"))
	}
	loader := dialLarge(t, port(ready["proxy"]))
	err := g.Load(func(c forms.Call) error {
		line, err := "", loader.send([]forms.Call{c})
		if err == nil {
			line, err = forms.ReadReply(loader.r)
		}
		if err == nil && line[0] == '-' {
			err = fmt.Errorf("%s: %s", c, line)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	// leader returns the number of the store that leads the calls' region, and its address.
	leader := func() (store int, addr string) {
		for begin := time.Now(); time.Since(begin) < patience; time.Sleep(10 * time.Millisecond) {
			for i, x := range strings.Split(ready["ports"], ",") {
				c := dialLarge(t, port(x))
				if c.send([]forms.Call{forms.Parse("GET {t}s2")}) == nil {
					if line, err := forms.ReadReply(c.r); err == nil && line[0] == '$' {
						return i + 1, port(x)
					}
				}
				c.Close()
			}
		}
		t.Fatal("no store leads the region")
		return 0, ""
	}
	// run has at least three long calls under way at a store, one of which has been a write. Each call's channel is
	// closed when its connection ends.
	run := func(addr string) (ended []chan struct{}) {
		order, wrote, under := g.Perm(len(rows)), false, 0
		for i := 0; !wrote || under < 3; i++ {
			if i == 10*len(order) {
				t.Fatalf("%d long calls under way, a write: %v", under, wrote)
			}
			row := &rows[order[i%len(order)]]
			if row.Container || !row.IsData() && row.Name != "config get" || row.Writes() && wrote {
				continue
			}
			c, call := dialLarge(t, addr), g.Costly(row.Of()[0], 8<<20)
			if err := c.send([]forms.Call{call}); err != nil {
				t.Fatalf("%s: %v", call, err)
			}
			done := make(chan struct{})
			go func() {
				defer close(done)
				defer c.Close()
				forms.ReadReply(c.r)
			}()
			select {
			case <-done:
				continue
			case <-time.After(300 * time.Millisecond):
			}
			t.Logf("%.120s", call)
			wrote = wrote || row.Writes()
			ended, under = append(ended, done), 0
			for _, done := range ended {
				select {
				case <-done:
				default:
					under++
				}
			}
		}
		return ended
	}

	store, addr := leader()
	inject := func(verb string) {
		t.Helper()
		status, _, stderr := ctl(runtime, "--control", ready["control"], verb, fmt.Sprint(store))
		if status != statusDone {
			t.Fatalf("ctl %s: %d, %s", verb, status, stderr)
		}
	}
	under := run(addr)
	begin := time.Now()
	inject("kill")
	t.Logf("ctl kill %d: %s", store, time.Since(begin).Round(time.Millisecond))
	for _, done := range under {
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("a client of the killed store still waits")
		}
	}
	inject("restart")
	_, addr = leader()
	run(addr)
	begin = time.Now()
	p.Process.Signal(syscall.SIGTERM)
	late := time.AfterFunc(patience, func() { p.Process.Kill() })
	if status := p.status(t); status != statusDone || !late.Stop() {
		t.Errorf("SIGTERM: status %d after %s: %s", status, time.Since(begin), p.stderr.String())
	}
	t.Logf("SIGTERM: %s", time.Since(begin).Round(time.Millisecond))
}

func dialLarge(t *testing.T, addr string) *largeClient {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	c := &largeClient{Conn: nc}
	c.r = bufio.NewReader(c)
	return c
}
