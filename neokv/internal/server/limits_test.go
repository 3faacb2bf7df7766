package server

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/memconn"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// serve is like start, for tests inside a bubble: stop ends everything that it started.
func serve(t *testing.T, o Options) (s *Server, dial func() net.Conn, stop func()) {
	o.Self = 1
	if o.Node == nil {
		o.Node = &fakeNode{}
	}
	s = New(o)
	p := memconn.Listen(testAddr{})
	go s.Serve(p)
	return s, func() net.Conn {
		c, err := p.Dial(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		return c
	}, func() { s.Close() }
}

// send writes in the background, as far as the server takes it.
func send(c net.Conn, request string) { go io.WriteString(c, request) }

// echo is a call whose reply has n bytes, and a little more.
func echo(n int) string {
	return fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", n, strings.Repeat("x", n))
}

// closed reports how a connection ended: what came, and whether it ended rather than fell silent.
func closed(c net.Conn) (got int64, over bool) {
	c.SetReadDeadline(time.Now().Add(time.Hour))
	got, err := io.Copy(io.Discard, c)
	return got, err == nil
}

// TestClientsThatNeverRead lets 1,000 clients ask for more than they take. Memory stays within its bound, the server
// closes the largest of them for it, and it serves another client.
func TestClientsThatNeverRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Settings: settings.Default()}
		const bound = 64 << 20
		o.ClientMemory = NewClientMemory(bound, 3)
		s, dial, stop := serve(t, o)
		defer stop()
		spared := dial()
		ask(t, spared, "client no-evict on")
		request := strings.Repeat(echo(1<<20), 3)
		send(spared, request)
		synctest.Wait()
		alone := o.ClientMemory.Used()
		if alone < 1<<20 || alone > 8<<20 {
			t.Errorf("a client that does not read 3 MiB holds %d bytes", alone)
		}
		other := dial()
		clients := 1000
		if testing.Short() {
			clients = 200
		}
		for i := range clients {
			send(dial(), request)
			if i%50 == 0 {
				if got := ask(t, other, "ping"); got != "+PONG\r\n" {
					t.Fatalf("another client behind %d: %q", i, got)
				}
				synctest.Wait()
				if used := o.ClientMemory.Used(); used > bound {
					t.Fatalf("%d clients hold %d bytes, want at most %d", i+1, used, bound)
				}
			}
		}
		synctest.Wait()
		if n := s.stats.evicted.Load(); int(n) < clients-100 || int(n) >= clients {
			t.Errorf("%d of %d clients were closed", n, clients)
		}
		if used := o.ClientMemory.Used(); used > bound || used < bound/2 {
			t.Errorf("clients hold %d bytes, want up to %d", used, bound)
		}
		go func() { // the one that was spared gets everything
			time.Sleep(time.Second)
			spared.Close()
		}()
		if n, _ := io.Copy(io.Discard, spared); n < 3<<20 {
			t.Errorf("the client with NO-EVICT got %d bytes of 3 MiB", n)
		}
		stop()
		if used := o.ClientMemory.Used(); used != 0 {
			t.Errorf("after all have gone %d bytes are counted", used)
		}
	})
}

// TestHalfCommands lets clients send the beginnings of large commands: each costs about as much as it has sent, all
// together no more than the bound.
func TestHalfCommands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Settings: settings.Default()}
		o.ClientMemory = NewClientMemory(32<<20, 3)
		s, dial, stop := serve(t, o)
		defer stop()
		const half = "*1000000\r\n$4\r\nMSET\r\n$500000000\r\n"
		for i := range 200 {
			send(dial(), half+strings.Repeat("x", 1000))
			synctest.Wait()
			if used := o.ClientMemory.Used(); used > int64(i+1)*8<<10 {
				t.Fatalf("%d clients that sent 1 kB each hold %d bytes", i+1, used)
			}
		}
		for range 100 {
			send(dial(), half+strings.Repeat("x", 1<<20))
			synctest.Wait()
			if used := o.ClientMemory.Used(); used > 32<<20 {
				t.Fatalf("clients hold %d bytes, want at most 32 MiB", used)
			}
		}
		if s.stats.evicted.Load() == 0 {
			t.Error("nobody was closed")
		}
		if got := ask(t, dial(), "ping"); got != "+PONG\r\n" {
			t.Errorf("another client: %q", got)
		}
	})
}

// TestShortArguments sends what is small on the wire and large in memory: a command of a million empty arguments, and a
// pipeline of the shortest commands from a client that does not read.
func TestShortArguments(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Settings: settings.Default()}
		o.ClientMemory = NewClientMemory(16<<20, 3)
		s, dial, stop := serve(t, o)
		defer stop()
		c := dial()
		send(c, "*1000000\r\n"+strings.Repeat("$0\r\n\r\n", 1_000_000))
		if got, over := closed(c); got != 0 || !over || s.stats.evicted.Load() != 1 {
			t.Errorf("a command whose arguments take 24 MB of 16 MiB: %d bytes of reply, ended: %v, %d clients evicted",
				got, over, s.stats.evicted.Load())
		}
		c = dial()
		synctest.Wait()
		idle := o.ClientMemory.Used()
		send(c, strings.Repeat("a\n", 1<<20))
		synctest.Wait()
		if used := o.ClientMemory.Used() - idle; used < maxCommands*(cmdBytes+argBytes) || used > 2<<20 {
			t.Errorf("a client with a flood of commands of two bytes holds %d bytes, want what %d commands take, and "+
				"not much more", used, maxCommands)
		}
		done := make(chan int64)
		go func() {
			n, _ := io.Copy(io.Discard, c)
			done <- n
		}()
		time.Sleep(time.Minute)
		c.Close()
		want := int64(len("-ERR unknown command 'a', with args beginning with: \r\n")) << 20
		if n := <-done; n != want {
			t.Errorf("when it reads it gets %d bytes, want %d", n, want)
		}
	})
}

func TestLimitsOfOneClient(t *testing.T) {
	for _, x := range []struct {
		name, config, request string
		after                 time.Duration // until it is closed
		atMost                int64         // bytes that it got; what its pipe holds, and more where there is an error
		queries, outputs      uint64
	}{
		{"hard output limit", `client-output-buffer-limit "normal 1mb 0 0"`, echo(1 << 20), 0, 0, 0, 1},
		{"below the hard output limit", `client-output-buffer-limit "normal 1mb 0 0"`, echo(1<<20 - 100), time.Hour,
			1 << 20, 0, 0},
		{"soft output limit", `client-output-buffer-limit "normal 0 500kb 7"`, echo(1 << 20), 7 * time.Second,
			memconn.BufferBytes, 0, 1},
		{"soft output limit, caught up in time", `client-output-buffer-limit "normal 0 900kb 7"`, echo(1 << 20),
			time.Hour, 1 << 21, 0, 0},
		{"time-out of a client that does not read", "timeout 9", echo(1 << 20), 9 * time.Second, memconn.BufferBytes, 0,
			0},
		{"time-out of half a command", "timeout 9", "*2\r\n$4\r\nECHO\r\n$10\r\nabc", 9 * time.Second, 0, 0, 0},
		{"query buffer", "client-query-buffer-limit 1mb", echo(2 << 20), 0, 0, 1, 0},
		{"within the query buffer", "client-query-buffer-limit 1mb", echo(1<<20-100) + "QUIT\r\n", time.Hour, 1 << 21,
			0, 0},
		{"argument", "proto-max-bulk-len 1mb", "*2\r\n$4\r\nECHO\r\n$1048577\r\n", 0, 100, 0, 0},
		{"inline", "timeout 0", strings.Repeat("x", maxLine+1), 0, 100, 0, 0},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, dial, stop := serve(t, Options{Settings: settings.Default()})
				defer stop()
				c := dial()
				if got := ask(t, dial(), "config set "+x.config); got != "+OK\r\n" {
					t.Fatalf("config set %s: %q", x.config, got)
				}
				begin := time.Now()
				send(c, x.request)
				var ended time.Duration
				for synctest.Wait(); s.has(1) && ended < time.Hour; synctest.Wait() {
					time.Sleep(time.Second)
					ended = time.Since(begin)
				}
				if ended != x.after {
					t.Errorf("closed after %v, want %v", ended, x.after)
				}
				if got, over := closed(c); ended < time.Hour && !over || got > x.atMost {
					t.Errorf("got %d bytes, want at most %d; ended: %v", got, x.atMost, over)
				}
				if q, o := s.stats.queryClosed.Load(), s.stats.outputClosed.Load(); q != x.queries || o != x.outputs {
					t.Errorf("counted %d query and %d output limits, want %d and %d", q, o, x.queries, x.outputs)
				}
			})
		})
	}
}

func (s *Server) has(id uint64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.clients[id] != nil
}

func (s *Server) count() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.clients)
}

// TestPassword sends pipelines to a server with a password.
func TestPassword(t *testing.T) {
	const (
		no     = "-NOAUTH Authentication required.\r\n"
		wrong  = "-WRONGPASS invalid username-password pair or user is disabled.\r\n"
		eleven = "*11\r\n$4\r\nMGET\r\n" +
			"$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n$1\r\na\r\n"
		strange = "-ERR Protocol error: unauthenticated "
	)
	o := Options{Self: 1, Settings: settings.Default()}
	o.Settings.Redis.RequirePass = "s3cret"
	s, dial := start(t, o)
	for _, x := range []struct{ request, want string }{
		{"PING\r\nGET a\r\nDBSIZE\r\nGET\r\nQUIT\r\n",
			no + no + no + "-ERR wrong number of arguments for 'get' command\r\n+OK\r\n"},
		{"AUTH x\r\nAUTH a s3cret\r\nPING\r\nAUTH s3cret\r\nPING\r\nQUIT\r\n",
			wrong + wrong + no + "+OK\r\n+PONG\r\n+OK\r\n"},
		{"AUTH default s3cret\r\nRESET\r\nPING\r\nQUIT\r\n", "+OK\r\n+RESET\r\n" + no + "+OK\r\n"},
		{"HELLO 3\r\nHELLO 3 AUTH default x\r\nPING\r\nQUIT\r\n", "-" + errHelloAuth + "\r\n" + wrong + no + "+OK\r\n"},
		{eleven + "PING\r\n", strange + "multibulk length\r\n"},
		{"*2\r\n$4\r\nAUTH\r\n$16385\r\n", strange + "bulk length\r\n"},
		{"AUTH s3cret\r\n" + strings.Replace(eleven, "MGET", "NOPE", 1) + "QUIT\r\n",
			"+OK\r\n-ERR unknown command 'NOPE', with args beginning with: " +
				strings.Repeat("'a' ", 10) + "\r\n+OK\r\n"},
		{"AUTH s3cret\r\nCONFIG GET redis.require*\r\nQUIT\r\n", "+OK\r\n*0\r\n+OK\r\n"},
	} {
		c := dial()
		send(c, x.request)
		if got, err := io.ReadAll(c); string(got) != x.want || err != nil {
			t.Errorf("%q: got %q, %v; want %q", x.request, got, err, x.want)
		}
	}
	// Clients that were there before a password is set stay; new ones need it. When it is removed all are let in again.
	old := dial()
	ask(t, old, "auth s3cret")
	if got := ask(t, old, "config set requirepass other"); got != "+OK\r\n" {
		t.Errorf("config set requirepass: %q", got)
	}
	if got := ask(t, old, "ping"); got != "+PONG\r\n" {
		t.Errorf("the one who set a password: %q", got)
	}
	c := dial()
	if got := ask(t, c, "auth s3cret"); got != wrong {
		t.Errorf("auth with the password of before: %q", got)
	}
	ask(t, old, "config set requirepass ''")
	if got := ask(t, c, "ping"); got != "+PONG\r\n" {
		t.Errorf("without a password: %q", got)
	}
	s.o.Exposed = true
	if got := ask(t, old, "config set requirepass ''"); !strings.HasPrefix(got, "-ERR CONFIG SET failed") {
		t.Errorf("a server beyond loopback gave up its password: %q", got)
	}
}

func TestClientReply(t *testing.T) {
	_, dial := start(t, Options{Self: 1, Settings: settings.Default()})
	for request, want := range map[string]string{
		"CLIENT REPLY OFF\r\nPING\r\nGET\r\nCLIENT REPLY x\r\n" +
			"CLIENT REPLY ON\r\nPING\r\nQUIT\r\n": "+OK\r\n+PONG\r\n+OK\r\n",
		"CLIENT REPLY SKIP\r\nPING\r\nECHO a\r\nQUIT\r\n":                      "$1\r\na\r\n+OK\r\n",
		"CLIENT REPLY SKIP\r\nCLIENT REPLY SKIP\r\nPING\r\nECHO a\r\nQUIT\r\n": "$1\r\na\r\n+OK\r\n",
		"CLIENT REPLY OFF\r\nCLIENT REPLY SKIP\r\nRESET\r\nQUIT\r\n":           "+RESET\r\n+OK\r\n",
		"CLIENT REPLY OFF\r\nPING\r\nQUIT\r\n":                                 "",
		"PING\r\nCLIENT REPLY OFF\r\n*a\r\n":                                   "+PONG\r\n",
		fmt.Sprintf("CLIENT REPLY SKIP\r\nSET %[1]s 1\r\nSET %[1]s 2\r\nQUIT\r\n",
			key(1)): fmt.Sprintf("-MOVED %d 127.0.0.1:7002\r\n+OK\r\n", topology.SlotOf([]byte(key(1)))),
		fmt.Sprintf("CLIENT REPLY OFF\r\nGET %[1]s\r\nGET %[1]s\r\nCLIENT REPLY ON\r\nECHO a\r\nQUIT\r\n",
			key(1)): "+OK\r\n$1\r\na\r\n+OK\r\n",
	} {
		c := dial()
		send(c, request)
		if got, err := io.ReadAll(c); string(got) != want || err != nil {
			t.Errorf("%q: got %q, %v; want %q", request, got, err, want)
		}
	}
}

func TestClientKill(t *testing.T) {
	_, dial := start(t, Options{Self: 1, Settings: settings.Default()})
	a, b, c := dial(), dial(), dial()
	id := func(c net.Conn) string { return strings.Trim(ask(t, c, "client id"), ":\r\n") }
	idA, idB := id(a), id(b)
	id(c)
	for _, x := range []struct{ request, want string }{
		{"client kill type pubsub", ":0\r\n"},
		{"client kill id " + idA + " addr nowhere", ":0\r\n"},
		{"client kill id " + idA + " laddr pipe:0 user default type normal", ":1\r\n"},
		{"client kill id " + idA, ":0\r\n"},
		{"client list id " + idA, "$0\r\n\r\n"},
		{"client kill id " + id(c), ":0\r\n"},
		{"client kill skipme yes", ":1\r\n"},
		{"client kill addr pipe:0 skipme no", ":1\r\n"},
	} {
		if got := ask(t, c, x.request); got != x.want {
			t.Errorf("%s: got %q, want %q", x.request, got, x.want)
		}
	}
	for _, x := range []net.Conn{a, b, c} {
		if got, over := closed(x); got > 0 || !over {
			t.Errorf("a killed client got %d bytes, ended %v", got, over)
		}
	}
	old := dial()
	if got := ask(t, old, "client kill pipe:0"); got != "+OK\r\n" {
		t.Errorf("the old form: %q", got)
	}
	if got, over := closed(old); got > 0 || !over {
		t.Errorf("the old form did not close: %d bytes, %v", got, over)
	}
	_ = idB
}

// TestPause holds commands back in virtual time.
func TestPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, dial, stop := serve(t, Options{Settings: settings.Default()})
		defer stop()
		boss, c := dial(), dial()
		moved := fmt.Sprintf("-MOVED %d 127.0.0.1:7002\r\n", topology.SlotOf([]byte(key(1))))
		check := func(request, want string, after time.Duration) {
			t.Helper()
			begin := time.Now()
			if got := ask(t, c, request); got != want || time.Since(begin) != after {
				t.Errorf("%s: %q after %v, want %q after %v", request, got, time.Since(begin), want, after)
			}
		}
		blocked := func(want int) {
			t.Helper()
			synctest.Wait()
			if got := ask(t, boss, "info clients"); !strings.Contains(got, fmt.Sprintf("\r\nblocked_clients:%d\r\n", want)) {
				t.Errorf("%q, want %d blocked", got, want)
			}
			if got := strings.Count(ask(t, boss, "client list"), " flags=b "); got != want {
				t.Errorf("CLIENT LIST has %d blocked, want %d", got, want)
			}
		}
		ask(t, boss, "client pause 5000 write")
		check("get "+key(1), moved, 0)
		blocked(0)
		time.AfterFunc(time.Second, func() { blocked(1) })
		check("set "+key(1)+" x", moved, 5*time.Second)
		blocked(0)
		check("set "+key(1)+" x", moved, 0)
		ask(t, boss, "client pause 5000 write")
		check("sort_ro "+key(1), moved, 0)
		check("sort "+key(1), moved, 5*time.Second) // which redis-server counts among the writes
		ask(t, boss, "client pause 5000")
		ask(t, boss, "client reply on") // waits itself
		check("ping", "+PONG\r\n", 0)
		ask(t, boss, "client pause 60000 write")
		ask(t, boss, "client pause 1000 write") // does not shorten
		time.AfterFunc(3*time.Second, func() { send(boss, "client unpause\r\n") })
		check("set "+key(1)+" x", moved, 3*time.Second)
		readReply(t, bufio.NewReader(boss))
		ask(t, boss, "client pause 100000 all")
		check("nope", "-ERR unknown command 'nope', with args beginning with: \r\n", 0)
		check("ping", "+PONG\r\n", 100*time.Second)
	})
}

// TestWait counts replicas that come one by one, and ends with its time, with its client or with the server.
func TestWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var have atomic.Int64
		var asked atomic.Uint64
		var lags atomic.Bool
		lags.Store(true)
		const lagging = topology.RegionID(5)
		s, dial, stop := serve(t, Options{Settings: settings.Default(), Node: &fakeNode{
			replicated: func(_ context.Context, r topology.RegionID, index uint64) int {
				if r == lagging && lags.Load() {
					return 0
				}
				asked.Store(uint64(r)<<32 | index)
				return int(have.Load())
			},
		}})
		defer stop()
		c := dial()
		check := func(request, want string, after time.Duration) {
			t.Helper()
			begin := time.Now()
			if got := ask(t, c, request); got != want || time.Since(begin) < after ||
				time.Since(begin) > after+maxWaitPause {
				t.Errorf("%s: %q after %v, want %q after %v", request, got, time.Since(begin), want, after)
			}
		}
		check("wait 0 0", ":0\r\n", 0)
		check("wait 1 700", ":0\r\n", 700*time.Millisecond)
		other := dial()
		time.AfterFunc(time.Second, func() {
			if got := ask(t, other, "info clients"); !strings.Contains(got, "\r\nblocked_clients:1\r\n") {
				t.Errorf("during WAIT: %q, want 1 blocked", got)
			}
		})
		time.AfterFunc(2*time.Second, func() { have.Store(2) })
		check("wait 1 0", ":2\r\n", 2*time.Second)
		check("wait 2 0", ":2\r\n", 0)
		if asked.Load() != 1<<32 {
			t.Errorf("asked for region and index %#x, want region 1 and no index: nothing was written", asked.Load())
		}
		for _, x := range s.clients {
			x.written = map[topology.RegionID]lastWrite{3: {77, 9000}}
		}
		// What is sent meanwhile is answered behind it.
		begin := time.Now()
		send(c, "wait 3 5000\r\n"+echo(100))
		r := bufio.NewReader(c)
		time.Sleep(time.Second)
		send(c, strings.Repeat("echo b\r\n", 10000))
		for i, want := range append([]string{":2\r\n", "$100\r\n" + strings.Repeat("x", 100) + "\r\n"},
			strings.Split(strings.Repeat("$1\r\nb\r\n|", 9999)+"$1\r\nb\r\n", "|")...) {
			if got := readReply(t, r); got != want {
				t.Fatalf("reply %d: %q, want %q", i, got, want)
			}
		}
		if d := time.Since(begin); d != 5*time.Second {
			t.Errorf("WAIT of 5 s took %v", d)
		}
		if asked.Load() != 3<<32|77 {
			t.Errorf("asked for %#x, want the place of the last write", asked.Load())
		}
		// Of several regions the one counts that the fewest replicas have.
		for _, x := range s.clients {
			x.written[lagging] = lastWrite{5, 5000}
		}
		check("wait 1 700", ":0\r\n", 700*time.Millisecond)
		time.AfterFunc(2*time.Second, func() { lags.Store(false) })
		check("wait 2 0", ":2\r\n", 2*time.Second)
		for _, request := range []string{"wait 9 0\r\n", "debug sleep 1000\r\n"} { // the client hangs up
			gone := dial()
			send(gone, request)
			synctest.Wait()
			before := s.count()
			gone.Close()
			time.Sleep(maxWaitPause)
			synctest.Wait()
			if n := s.count(); n != before-1 {
				t.Errorf("%q: %d connections after the client has hung up, want %d", request, n, before-1)
			}
		}
		check("debug sleep 1.5", "+OK\r\n", 1500*time.Millisecond)
		waiting := dial()
		send(waiting, "wait 9 0\r\n")
		synctest.Wait()
		stop()
		if got, err := io.ReadAll(waiting); len(got) > 0 || err != nil && !errors.Is(err, net.ErrClosed) {
			t.Errorf("a server that closed answered WAIT with %q, %v", got, err)
		}
	})
}

func TestConfigOfLimits(t *testing.T) {
	_, dial := start(t, Options{Self: 1, Settings: settings.Default()})
	c := dial()
	for _, x := range []struct{ request, want string }{
		{"config get maxmemory-clients", "*2\r\n$17\r\nmaxmemory-clients\r\n$9\r\n536870912\r\n"},
		{"config set maxmemory-clients 1gb", "+OK\r\n"},
		{"config get maxmemory-clients", "*2\r\n$17\r\nmaxmemory-clients\r\n$10\r\n1073741824\r\n"},
		{"config get redis.client_memory", "*2\r\n$19\r\nredis.client_memory\r\n$4\r\n1GiB\r\n"},
		{"config set maxclients 77", "+OK\r\n"},
		{"config get redis.max_clients", "*2\r\n$17\r\nredis.max_clients\r\n$2\r\n77\r\n"},
		{"config set timeout 5", "+OK\r\n"},
		{"config get redis.timeout", "*2\r\n$13\r\nredis.timeout\r\n$2\r\n5s\r\n"},
		{"config set proto-max-bulk-len 1gb",
			"-ERR CONFIG SET failed (possibly related to argument 'proto-max-bulk-len') - argument must be between " +
				"1048576 and 536870912 inclusive\r\n"},
		{"debug object a", "-" + errDebug + "\r\n"},
		{"debug set-active-expire 0", "+OK\r\n"},
		{"shutdown nosave", "-" + refused["shutdown"] + "\r\n"},
	} {
		if got := ask(t, c, x.request); got != x.want {
			t.Errorf("%s: got %q, want %q", x.request, got, x.want)
		}
	}
}

// TestTurnsOfHungStore: a connection waits for a turn as long as turns end. Where none does for redis.leaderless_wait,
// it gives up.
func TestTurnsOfHungStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := settings.Default()
		k.Redis.LeaderlessWait = 3 * time.Second
		s, _ := start(t, Options{Settings: k, ClientMemory: NewClientMemory(0, 1)})
		of := s.o.ClientMemory.turns[1]
		var hung []*conn
		for range cap(of.taken) {
			c := newConn(s, nil, 1, plainConn)
			if c.exec.wanted = of; c.exec.moreOfReads(1) == 0 {
				t.Fatal("no turn, though there are some left")
			}
			hung = append(hung, c)
		}
		c := newConn(s, nil, 2, plainConn)
		if c.exec.wanted = of; c.exec.awaitTurn() {
			t.Fatal("a turn more than there are")
		}
		hasty := settings.Default() // a turn that lasts a moment is no hung disk
		hasty.Redis.LeaderlessWait = 0
		another, _ := start(t, Options{Settings: hasty, ClientMemory: s.o.ClientMemory})
		time.AfterFunc(time.Second, func() { of.ended.Add(1) })
		h := newConn(another, nil, 3, plainConn)
		h.exec.wanted = of
		if begin := time.Now(); h.exec.awaitTurn() || time.Since(begin) <= time.Second {
			t.Errorf("without redis.leaderless_wait it gave up after %s, before a turn ended", time.Since(begin))
		}
		if c.exec.wanted = of; c.exec.moreOfReads(1) != 0 || !c.exec.wantsTurn {
			t.Fatal("a turn more than there are")
		}
		for i := range 5 { // other connections have turns, one every two seconds
			time.AfterFunc(time.Duration(i+1)*2*time.Second, func() { of.ended.Add(1) })
		}
		begin := time.Now()
		if c.exec.awaitTurn() {
			t.Error("a turn more than there are")
		}
		most := 10*time.Second + 2*max(k.Redis.LeaderlessWait, leastPatience)
		if got := time.Since(begin); got <= 10*time.Second || got > most {
			t.Errorf("turns ended for 10 s, and the connection gave up after %s", got)
		}
		time.AfterFunc(time.Second, hung[0].exec.endTurn)
		if !c.exec.awaitTurn() {
			t.Error("no turn, though one has ended")
		}
	})
}

// TestTrusted: a connection of the process itself is no client. It is served beyond the limit on clients, however long
// it idles and whatever memory clients hold; no client sees it or ends it.
func TestTrusted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := Options{Settings: settings.Default()}
		o.Settings.Redis.MaxClients = 1
		o.ClientMemory = NewClientMemory(1<<20, 3)
		s, dial, stop := serve(t, o)
		defer stop()
		client := dial()
		ask(t, client, "client setname client")
		p := memconn.Listen(testAddr{})
		go Accept(p, nil, s.TakeTrusted)
		defer p.Close()
		own, err := p.Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer own.Close()
		check := func(when string) {
			t.Helper()
			if got := ask(t, own, "ping"); got != "+PONG\r\n" {
				t.Errorf("%s: %q", when, got)
			}
		}
		check("beyond redis.max_clients")
		if got := ask(t, client, "client list"); strings.Count(got, "id=") != 1 {
			t.Errorf("CLIENT LIST: %q", got)
		}
		if got := ask(t, client, "client kill type normal"); got != ":0\r\n" {
			t.Errorf("CLIENT KILL: %q", got)
		}
		check("after CLIENT KILL")
		ask(t, client, "config set timeout 1")
		ask(t, client, "config set timeout 0")
		time.Sleep(time.Minute)
		check("after CONFIG SET timeout")
		go io.WriteString(own, echo(2<<20))
		if got := readReply(t, bufio.NewReader(own)); !strings.HasPrefix(got, "$2097152\r\n") {
			t.Errorf("with more than clients may hold: %.40q", got)
		}
		check("after that")
		stop()
		if _, over := closed(own); !over {
			t.Error("the end of the server left it open")
		}
	})
}
