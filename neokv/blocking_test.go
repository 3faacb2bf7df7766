package neokv

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/settings"
)

var manyWaiters = flag.Int("blocking.waiters", 2000, "how many clients wait in TestManyWaiters")

// blockedClient is a client that may wait.
type blockedClient struct {
	t  *testing.T
	nc net.Conn
	in *bufio.Reader
}

func dialBlocked(t *testing.T, c *Cluster, addr string) *blockedClient {
	t.Helper()
	nc, err := c.Dial(t.Context(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return &blockedClient{t, nc, bufio.NewReaderSize(nc, 256)}
}

func (x *blockedClient) send(commands string) { fmt.Fprintf(x.nc, "%s\r\n", commands) }

func (x *blockedClient) get() string {
	x.t.Helper()
	v, err := redistest.Read(x.in)
	if err != nil {
		x.t.Fatal(err)
	}
	return v.String()
}

func (x *blockedClient) ask(command string) string {
	x.t.Helper()
	x.send(command)
	return x.get()
}

// blocked is how many clients of a port INFO shows as blocked.
func (x *blockedClient) blocked() string {
	_, n, _ := strings.Cut(x.ask("info clients"), "blocked_clients:")
	n, _, _ = strings.Cut(n, `\r`)
	return n
}

// blockingSettings are those of a cluster in virtual time.
func blockingSettings() *settings.Settings {
	k := settings.Default()
	k.Cluster = settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 1}
	k.Engine.MemtableSize, k.Engine.BlockCache = 5<<20, 1<<20
	return &k
}

// TestWaitersKeepTheirOrder has clients wait at the proxy port while leaders change. They are served in the order in
// which their commands have arrived. If a command counted as new at the next leader, they would not be.
func TestWaitersKeepTheirOrder(t *testing.T) {
	inOrder := func(hooks *seam.Hooks) (wrong string) {
		synctest.Test(t, func(t *testing.T) {
			c := startWith(t, Config{InMemory: true, NoSockets: true, Settings: blockingSettings()}, hooks)
			var all []*blockedClient
			for range 20 {
				x := dialBlocked(t, c, c.ProxyAddr())
				x.send("blpop k 0")
				time.Sleep(time.Millisecond)
				all = append(all, x)
			}
			push := dialBlocked(t, c, c.ProxyAddr())
			for _, store := range []string{"2", "3", "1"} {
				if _, err := c.Inject(t.Context(), fault.MustParse("transfer 1 "+store)); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
			}
			if n := push.blocked(); n != "20" {
				t.Fatalf("%s clients are blocked", n)
			}
			for i := range all {
				if got := push.ask(fmt.Sprint("rpush k ", i)); got != "1" {
					t.Fatal(got)
				}
			}
			for i, x := range all {
				if got := x.get(); got != fmt.Sprintf(`["k" "%d"]`, i) && wrong == "" {
					wrong = fmt.Sprintf("client %d gets %s", i, got)
				}
			}
		})
		return wrong
	}
	if wrong := inOrder(new(seam.Hooks)); wrong != "" {
		t.Error(wrong)
	}
	hooks := new(seam.Hooks)
	hooks.Mistakes.Server.NewSince = true
	if inOrder(hooks) == "" {
		t.Error("all come in order though their commands count as new at each leader")
	}
}

// TestManyWaiters has many clients wait for one key. Each push serves one, in their order, also a push of all that is
// left at once. A client that waits for hundreds of keys, and hundreds of pops in one pipeline, do no harm beside.
func TestManyWaiters(t *testing.T) {
	k := small()
	k.Redis.MaxClients = 2*(*manyWaiters) + 100
	k.Redis.ClientMemory = 0
	c := start(t, Config{InMemory: true, NoSockets: true, Settings: k})
	addr := ""
	boss := dialBlocked(t, c, c.ProxyAddr())
	for _, a := range c.Addrs() {
		if x := dialBlocked(t, c, a); x.ask("exists {k}") == "0" {
			addr, boss = a, x
		}
	}
	const together = 100
	begin := time.Now()
	all := make([]*blockedClient, *manyWaiters)
	for i := range all {
		all[i] = dialBlocked(t, c, addr)
		all[i].send("blpop {k} 0")
		if i%together == together-1 || i == len(all)-1 {
			want := fmt.Sprint(i + 1)
			waitFor(t, time.Minute, want+" blocked clients", func() bool { return boss.blocked() == want })
		}
	}
	wide, piped := dialBlocked(t, c, addr), dialBlocked(t, c, addr)
	command := "blpop"
	for i := range 500 {
		command += fmt.Sprint(" {k}", i)
	}
	wide.send(command + " 0")
	piped.send(strings.TrimSuffix(strings.Repeat("blpop {k}piped 0\r\n", 512), "\r\n"))
	want := fmt.Sprint(len(all) + 2)
	waitFor(t, time.Minute, "all clients blocked", func() bool { return boss.blocked() == want })
	t.Logf("%d clients wait after %v", len(all), time.Since(begin))
	begin = time.Now()
	served := func(from int) { // the clients that have begun to wait together get the elements of the same places
		t.Helper()
		for i, x := range all[from:min(from+together, len(all))] {
			var n int
			got := x.get()
			if _, err := fmt.Sscanf(got, `["{k}" "%d"]`, &n); err != nil || n/together != from/together {
				t.Fatalf("client %d gets %s", from+i, got)
			}
		}
	}
	half := len(all) / 2 / together * together
	for i := range half {
		if got := boss.ask(fmt.Sprint("rpush {k} ", i)); got != "1" {
			t.Fatal(got)
		}
		if i%together == together-1 {
			served(i - together + 1)
		}
	}
	t.Logf("half of them are served one by one after %v", time.Since(begin))
	begin = time.Now()
	push := [][]byte{[]byte("rpush"), []byte("{k}")}
	for i := half; i < len(all); i++ {
		push = append(push, []byte(fmt.Sprint(i)))
	}
	boss.nc.Write(redistest.AppendCall(nil, append(push, []byte("left"))...))
	if got := boss.get(); got != fmt.Sprint(len(all)-half+1) {
		t.Fatal(got)
	}
	if got := boss.ask("lpop {k}"); got != `"left"` {
		t.Errorf("the next command pops %s", got)
	}
	for from := half; from < len(all); from += together {
		served(from)
	}
	t.Logf("the others are served by one push after %v", time.Since(begin))
	if got := boss.ask("rpush {k}499 x"); got != "1" || wide.get() != `["{k}499" "x"]` {
		t.Error("the client of 500 keys is not served")
	}
	for i := range 512 {
		if i%2 == 0 {
			boss.ask(fmt.Sprintf("rpush {k}piped %d %d", i, i+1))
		}
		if got := piped.get(); got != fmt.Sprintf(`["{k}piped" "%d"]`, i) {
			t.Fatalf("pop %d of the pipeline: %s", i, got)
		}
	}
	runtime.KeepAlive(all)
}

// TestCrowdsEnd has many clients wait, for one key or for ten each, and ends that for all of them at one instant: by
// their time-outs, by CLIENT UNBLOCK, by another leader, where they wait on, and by the end of their connections. Nobody
// is forgotten, and nothing is left of them. The longest PING of another client meanwhile is in the log.
func TestCrowdsEnd(t *testing.T) {
	k := small()
	k.Cluster.Regions = 1
	k.Redis.MaxClients = *manyWaiters + 100
	k.Redis.ClientMemory = 0
	c := start(t, Config{InMemory: true, NoSockets: true, Settings: k})
	boss, ping := dialBlocked(t, c, c.ProxyAddr()), dialBlocked(t, c, c.ProxyAddr())
	all, ids := make([]*blockedClient, *manyWaiters), make([]string, *manyWaiters)
	for i := range all {
		all[i] = dialBlocked(t, c, c.ProxyAddr())
		ids[i] = all[i].ask("client id")
	}
	blocked := func(n int) {
		t.Helper()
		want := fmt.Sprint(n)
		waitFor(t, 2*time.Minute, want+" blocked clients", func() bool { return boss.blocked() == want })
	}
	during := func(what string, f func()) {
		t.Helper()
		over := make(chan struct{})
		longest := time.Duration(0)
		var pings sync.WaitGroup
		pings.Go(func() {
			for {
				begin := time.Now()
				ping.ask("ping")
				longest = max(longest, time.Since(begin))
				select {
				case <-over:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
		begin := time.Now()
		f()
		close(over)
		pings.Wait()
		t.Logf("%s: %d clients in %v, PING %v at most", what, len(all), time.Since(begin).Round(time.Millisecond), longest)
	}
	at := time.Now().Add(300*time.Millisecond + time.Duration(len(all))*100*time.Microsecond)
	during("time-outs", func() {
		for _, x := range all {
			x.send(fmt.Sprintf("blpop {k} %.3f", max(0.001, time.Until(at).Seconds())))
		}
		for i, x := range all {
			if got := x.get(); got != "(nil)" {
				t.Fatalf("client %d gets %s behind its time-out", i, got)
			}
		}
	})
	during("begin to wait for ten keys each", func() {
		for i, x := range all {
			x.send("blpop {k}" + strings.Join(strings.Split("0123456789", ""), fmt.Sprint(" {k}", i, ".")) + " 0")
		}
		blocked(len(all))
	})
	during("CLIENT UNBLOCK", func() {
		go func() {
			for _, id := range ids {
				boss.send("client unblock " + id)
			}
		}()
		for i := range ids {
			if got := boss.get(); got != "1" {
				t.Fatalf("CLIENT UNBLOCK of client %d: %s", i, got)
			}
		}
		for i, x := range all {
			if got := x.get(); got != "(nil)" {
				t.Fatalf("client %d gets %s behind CLIENT UNBLOCK", i, got)
			}
		}
	})
	during("begin to wait for one key", func() {
		for _, x := range all {
			x.send("blpop {k} 0")
		}
		blocked(len(all))
	})
	during("another leader", func() {
		leader := c.in.Table().Regions[0].Leader
		if _, err := c.Inject(t.Context(), fault.MustParse(fmt.Sprint("transfer 1 ", leader%3+1))); err != nil {
			t.Fatal(err)
		}
		boss.ask("rpush {k} first")
		waitFor(t, time.Minute, fmt.Sprint("one is served, and all others wait on: ", boss.blocked()), func() bool {
			return boss.blocked() == fmt.Sprint(len(all)-1)
		})
	})
	during("the end of their connections", func() {
		for _, x := range all {
			x.nc.Close()
		}
		waitFor(t, 2*time.Minute, "the end of all connections", func() bool {
			return strings.Contains(boss.ask("info clients"), `connected_clients:2\r`)
		})
	})
	if got := boss.ask("rpush {k} left"); got != "1" || boss.ask("lpop {k}") != `"left"` {
		t.Errorf("somebody waits on: %s", got)
	}
}

// TestUnblock: CLIENT UNBLOCK ends WAIT as it ends a blocking pop, and a change of timeout leaves both alone.
func TestUnblock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{InMemory: true, NoSockets: true, Settings: blockingSettings()})
		boss, x := dialBlocked(t, c, c.ProxyAddr()), dialBlocked(t, c, c.ProxyAddr())
		id := x.ask("client id")
		for _, y := range []struct{ command, reason, want string }{
			{"wait 99 0", "timeout", "2"}, {"wait 99 0", "error", errUnblockedText}, {"blpop k 0", "error", errUnblockedText},
			{"blpop k 0", "timeout", "(nil)"}, {"wait 99 5000", "", "2"}, {"blpop k 5", "", "(nil)"},
		} {
			x.send(y.command)
			time.Sleep(10 * time.Millisecond)
			if n := boss.blocked(); n != "1" {
				t.Errorf("%s: %s clients are blocked", y.command, n)
			}
			for i := range 10 {
				if got := boss.ask(fmt.Sprint("config set timeout ", (i+1)%2)); got != "OK" {
					t.Fatal(got)
				}
				time.Sleep(500 * time.Millisecond)
			}
			if y.reason != "" {
				if got := boss.ask(fmt.Sprintf("client unblock %s %s", id, y.reason)); got != "1" {
					t.Errorf("%s, CLIENT UNBLOCK %s: %s", y.command, y.reason, got)
				}
			}
			if got := x.get(); got != y.want {
				t.Errorf("%s, unblocked by %q: %s; want %s", y.command, y.reason, got, y.want)
			}
			if got := boss.ask(fmt.Sprint("client unblock ", id)); got != "0" {
				t.Errorf("CLIENT UNBLOCK of a client that does not wait: %s", got)
			}
		}
	})
}

const errUnblockedText = "UNBLOCKED client unblocked via CLIENT UNBLOCK"

// TestPopOfUnknownFate: where nobody knows whether a pop has happened, its client's connection ends, also at the proxy
// port, which the kill of a store leaves alone. An element is lost with its connection only, as in Redis.
func TestPopOfUnknownFate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{InMemory: true, NoSockets: true, Settings: blockingSettings()})
		inject := func(text string) {
			if _, err := c.Inject(t.Context(), fault.MustParse(text)); err != nil {
				t.Fatal(err)
			}
		}
		x := dialBlocked(t, c, c.ProxyAddr())
		x.ask("rpush jobs a b")
		x.ask("llen jobs") // the leader has a lease now
		inject("link 1 2,3 delay=50ms")
		x.send("blpop jobs 0")
		time.Sleep(20 * time.Millisecond) // its entry is under way
		inject("kill 1")
		x.nc.SetReadDeadline(time.Now().Add(time.Minute))
		if v, err := redistest.Read(x.in); err != io.EOF {
			t.Errorf("got %v, %v; want the end of the connection", v, err)
		}
		inject("heal")
		awaitHealth(t, c)
		if got := dialBlocked(t, c, c.ProxyAddr()).ask("blpop jobs 0"); !strings.HasPrefix(got, `["jobs" `) {
			t.Errorf("then %s", got)
		}
	})
}
