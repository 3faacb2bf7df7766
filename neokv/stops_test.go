package neokv

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/cluster"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// soon is how long these tests wait for what takes a second at most, on a slow day as on any other.
const soon = time.Minute

// patient returns settings for calls that may take long on a slow day.
func patient() *settings.Settings {
	s := small()
	s.Redis.LeaderlessWait = time.Minute
	return s
}

// ended fails the test unless f returns soon.
func ended(t *testing.T, what string, f func()) {
	t.Helper()
	begin, done := time.Now(), make(chan struct{})
	go func() {
		defer close(done)
		f()
	}()
	select {
	case <-done:
		t.Logf("%s: %s", what, time.Since(begin).Round(time.Millisecond))
	case <-time.After(soon):
		t.Fatalf("%s has not ended after %s", what, soon)
	}
}

// longReads are reads that go on for hours, unless they are ended. crowdFor stores what they read.
func longReads() map[string][]any {
	const n = 1 << 20
	union := []any{"sunion"}
	for range 1 << 19 {
		union = append(union, "{t}set")
	}
	return map[string][]any{
		"KEYS":   {"keys", "*" + strings.Repeat("a", n) + "b"},
		"SCAN":   {"scan", "0", "match", "*" + strings.Repeat("a", n) + "b", "count", "1000"},
		"SUNION": union,
		"SSCAN":  {"sscan", "{t}long", "0", "match", "*" + strings.Repeat("a", n) + "b"},
	}
}

// crowdFor stores what longReads reads.
func crowdFor(t *testing.T, c *Cluster) {
	t.Helper()
	long := strings.Repeat("a", 2<<20)
	set := []any{"sadd", "{t}set"}
	for i := range 20_000 {
		set = append(set, i)
	}
	for _, call := range [][]any{{"set", long, "v"}, {"sadd", "{t}long", long}, set} {
		if _, err := c.Do(t.Context(), call...); err != nil {
			t.Fatal(err)
		}
	}
}

// connect dials a server and sends a call.
func connect(t *testing.T, c *Cluster, addr string, call []any) (conn net.Conn, replies *bufio.Reader) {
	t.Helper()
	conn, err := c.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "*%d\r\n", len(call))
	for _, arg := range call {
		text := fmt.Sprint(arg)
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(text), text)
	}
	if _, err := conn.Write([]byte(b.String())); err != nil {
		t.Fatal(err)
	}
	return conn, bufio.NewReader(conn)
}

// others returns the command of each client that a server has beside the one that asks.
func others(t *testing.T, c *Cluster, addr string) (commands []string) {
	conn, replies := connect(t, c, addr, []any{"client", "list"})
	defer conn.Close()
	header, err := replies.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	fmt.Sscanf(header, "$%d", &n)
	list := make([]byte, n)
	if _, err := io.ReadFull(replies, list); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(list)) {
		_, after, _ := strings.Cut(line, " cmd=")
		if command, _, _ := strings.Cut(after, " "); command != "client|list" {
			commands = append(commands, command)
		}
	}
	return commands
}

// awaitLook waits until a server looks at the client of a call, which it does only while the call runs: it reads ahead.
func awaitLook(t *testing.T, c *Cluster, addr string, client net.Conn, command string) {
	t.Helper()
	begin := time.Now()
	wait := func() {
		if time.Sleep(time.Millisecond); time.Since(begin) > soon {
			t.Fatalf("the call has not looked at its client after %s", soon)
		}
	}
	for !slices.Equal(others(t, c, addr), []string{command}) { // the server has not read the call yet
		wait()
	}
	conn, err := c.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	replies, asked := bufio.NewReader(conn), 0
	input := func() (n int) { // what the server has read of others
		const request = "INFO stats\r\n"
		if _, err := conn.Write([]byte(request)); err != nil {
			t.Fatal(err)
		}
		asked += len(request)
		for line := ""; line != "\r\n"; {
			if line, err = replies.ReadString('\n'); err != nil {
				t.Fatal(err)
			}
			fmt.Sscanf(line, "total_net_input_bytes:%d", &n)
		}
		return n - asked
	}
	before := input()
	const more = "PING\r\n"
	if _, err := client.Write([]byte(more)); err != nil {
		t.Fatal(err)
	}
	for input() < before+len(more) {
		wait()
	}
}

// TestLongReadsEnd: a read that goes on for hours ends when its client is gone, whatever the client has sent behind it,
// at redis.command_time, and with its store, however that ends.
func TestLongReadsEnd(t *testing.T) {
	for name, call := range longReads() {
		hows := []string{"gone", "gone behind more", "kill", "stop", "close", "time"}
		if strings.HasPrefix(name, "S") { // the store serves the read to the proxy
			hows = append(hows, "kill behind the proxy", "stop behind the proxy")
		}
		for _, how := range hows {
			t.Run(name+"/"+how, func(t *testing.T) {
				t.Parallel()
				config := Config{InMemory: true, NoSockets: true, Stores: 1, Replicas: 1, Regions: 1, Settings: patient()}
				if how == "time" {
					config.Settings.Redis.CommandTime = 100 * time.Millisecond
				}
				c := start(t, config)
				crowdFor(t, c)
				addr := c.Addrs()[0]
				verb, behind, _ := strings.Cut(how, " ")
				if behind == "behind the proxy" {
					addr = c.ProxyAddr()
				}
				conn, replies := connect(t, c, addr, call)
				defer conn.Close()
				if how == "time" {
					ended(t, "the read", func() {
						line, err := replies.ReadString('\n')
						if err != nil || !strings.HasPrefix(line, "-ERR ") || !strings.Contains(line, "redis.command_time") {
							t.Errorf("reply %q, %v", line, err)
						}
						fmt.Fprintf(conn, "PING\r\n")
						if line, err := replies.ReadString('\n'); err != nil || line != "+PONG\r\n" {
							t.Errorf("then %q, %v", line, err)
						}
					})
					return
				}
				awaitLook(t, c, addr, conn, strings.ToLower(name))
				if how == "gone behind more" {
					// More than the server reads ahead, and less than that and what the connection holds.
					if _, err := conn.Write(bytes.Repeat([]byte("PING\r\n"), 320<<10/6)); err != nil {
						t.Fatal(err)
					}
				}
				ended(t, how, func() {
					switch how {
					case "gone", "gone behind more":
						conn.Close()
						for !t.Failed() && len(others(t, c, addr)) > 0 {
							time.Sleep(time.Millisecond)
						}
					case "close":
						if err := c.Close(); err != nil {
							t.Error(err)
						}
					default:
						if _, err := c.Inject(context.Background(), fault.MustParse(verb+" 1")); err != nil {
							t.Error(err)
						}
					}
				})
			})
		}
	}
}

// TestRestartAllSideBySide: the stores start side by side, so that their waits for disks do not add up.
func TestRestartAllSideBySide(t *testing.T) {
	var missing sync.WaitGroup
	missing.Add(3)
	all := make(chan struct{})
	go func() {
		missing.Wait()
		close(all)
	}()
	hooks := &seam.Hooks{Starting: func(topology.StoreID) {
		missing.Done()
		select {
		case <-all:
		case <-time.After(soon):
			t.Error("a store waits for the one before it")
		}
	}}
	c := startWith(t, Config{InMemory: true, NoSockets: true, Settings: patient()}, hooks)
	if _, err := c.Inject(t.Context(), fault.MustParse("restart all")); err != nil {
		t.Fatal(err)
	}
	if _, err := c.Do(t.Context(), "set", "k", "v"); err != nil {
		t.Error(err)
	}
}

// TestAllEndSideBySide: no store waits for another one's end before its own work is broken off.
func TestAllEndSideBySide(t *testing.T) {
	for _, how := range []string{"kill all", "stop all", "close"} {
		t.Run(how, func(t *testing.T) {
			var c *Cluster
			var held sync.WaitGroup // stores that apply, until all end
			held.Add(3)
			var holds [3]sync.Once
			config := Config{InMemory: true, NoSockets: true, Settings: patient()}
			hooks := &seam.Hooks{Region: region.Hooks{BeforeApply: func(id topology.StoreID, _ topology.RegionID,
				_, _ uint64, entry []byte, _ error) {
				if !bytes.Contains(entry, []byte("side by side")) {
					return
				}
				holds[id-1].Do(func() {
					held.Done()
					runs := func(n *cluster.Place) bool { return n.Store() != nil }
					for begin := time.Now(); slices.ContainsFunc(c.in.Places(), runs); time.Sleep(time.Millisecond) {
						if time.Since(begin) > soon {
							t.Error("a store waits for the one before it")
							return
						}
					}
				})
			}}}
			c = startWith(t, config, hooks)
			conn, _ := connect(t, c, c.Addrs()[max(1, c.Leader("k"))-1], []any{"set", "k", "side by side"})
			defer conn.Close()
			held.Wait()
			if how == "close" {
				if err := c.Close(); err != nil {
					t.Error(err)
				}
			} else if _, err := c.Inject(t.Context(), fault.MustParse(how)); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestEndsWhileProposing ends clusters while the Raft library copies a large proposal. It must not find itself closed
// then, which would end the process.
func TestEndsWhileProposing(t *testing.T) {
	for range 3 {
		proposing := make(chan struct{}, 1000)
		config := Config{InMemory: true, NoSockets: true, Stores: 1, Replicas: 1, Regions: 1, Settings: patient()}
		hooks := &seam.Hooks{Region: region.Hooks{BeforePropose: func(topology.RegionID, uint64) {
			proposing <- struct{}{}
		}}}
		c := startWith(t, config, hooks)
		for len(proposing) > 0 {
			<-proposing
		}
		conn, _ := connect(t, c, c.Addrs()[0], []any{"set", "k", strings.Repeat("x", 60<<20)})
		<-proposing
		if err := c.Close(); err != nil {
			t.Error(err)
		}
		conn.Close()
	}
}

// TestLongWritesEnd: a write that goes on for some seconds is broken off where its store ends, and takes effect when
// the store has started again.
func TestLongWritesEnd(t *testing.T) {
	members := 4000 // 4000 times
	if raceBuild {
		members = 1500 // which takes as long then
	}
	union := []any{"sunionstore", "{t}to"}
	for range members {
		union = append(union, "{t}set")
	}
	for _, how := range []string{"kill", "stop"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			applying := make(chan struct{})
			var begun atomic.Int64 // how often the write has begun
			config := Config{InMemory: true, NoSockets: true, Stores: 1, Replicas: 1, Regions: 1, Settings: patient()}
			hooks := &seam.Hooks{Region: region.Hooks{BeforeApply: func(_ topology.StoreID, _ topology.RegionID,
				_, _ uint64, entry []byte, _ error) {
				if bytes.Contains(entry, []byte("sunionstore")) && begun.Add(1) == 1 {
					close(applying)
				}
			}}}
			c := startWith(t, config, hooks)
			set := []any{"sadd", "{t}set"}
			for i := range members {
				set = append(set, i)
			}
			if _, err := c.Do(t.Context(), set...); err != nil {
				t.Fatal(err)
			}
			conn, _ := connect(t, c, c.Addrs()[0], union)
			defer conn.Close()
			<-applying
			ended(t, how, func() {
				if _, err := c.Inject(t.Context(), fault.MustParse(how+" 1")); err != nil {
					t.Error(err)
				}
			})
			if _, err := c.Inject(t.Context(), fault.MustParse("restart 1")); err != nil {
				t.Fatal(err)
			}
			for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
				n, err := c.Do(t.Context(), "scard", "{t}to")
				if err == nil && fmt.Sprint(n) == fmt.Sprint(members) {
					if begun.Load() < 2 {
						t.Error("the write has come to its end, and was not broken off")
					}
					return
				}
				if time.Since(begin) > 2*soon {
					t.Fatalf("the write has not taken effect: %v, %v", n, err)
				}
			}
		})
	}
}
