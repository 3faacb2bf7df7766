package neokv

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// forward connects every connection to ln with one to target, until the test ends. Those to target come from the IP
// address from, if it is not empty.
func forward(t *testing.T, ln net.Listener, from, target string, passed *atomic.Int64) {
	dialer := new(net.Dialer)
	if from != "" {
		dialer.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	var open []net.Conn
	wg.Go(func() {
		for {
			in, err := ln.Accept()
			if err != nil {
				return
			}
			out, err := dialer.Dial("tcp", target)
			if err != nil {
				in.Close()
				continue
			}
			passed.Add(1)
			mu.Lock()
			open = append(open, in, out)
			mu.Unlock()
			for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
				wg.Go(func() {
					io.Copy(pair[0], pair[1])
					pair[0].Close()
				})
			}
		}
	})
	t.Cleanup(func() {
		ln.Close()
		mu.Lock()
		for _, c := range open {
			c.Close()
		}
		mu.Unlock()
		wg.Wait()
	})
}

// listenInARow listens on n ports in a row, none of which the system gives to clients: beside a test with thousands of
// connections hardly two of those in a row are free.
func listenInARow(t *testing.T, n int) (lns []net.Listener, first int) {
	for range 100 {
		lns, first = nil, 10_000+rand.IntN(20_000)
		for len(lns) < n {
			next, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", first+len(lns)))
			if err != nil {
				break
			}
			lns = append(lns, next)
		}
		if len(lns) == n {
			return lns, first
		}
		for _, ln := range lns {
			ln.Close()
		}
	}
	t.Fatalf("no %d free ports in a row", n)
	return nil, 0
}

// TestAnnounced reaches a cluster with a password through forwarded ports only. The stores listen on other ports,
// which the client refuses to dial.
func TestAnnounced(t *testing.T) {
	const stores = 3
	lns, first := listenInARow(t, stores)
	k := settings.Default()
	k.Redis.ClusterAnnounce, k.Redis.RequirePass = fmt.Sprintf("127.0.0.1:{n+%d}", first-1), "s3cret"
	c := start(t, Config{InMemory: true, Settings: &k})
	var passed [stores]atomic.Int64
	for i, ln := range lns {
		forward(t, ln, "", c.Addrs()[i], &passed[i])
	}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{lns[0].Addr().String()}, Password: "s3cret",
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			for _, direct := range append(c.Addrs(), c.ProxyAddr()) {
				if addr == direct {
					t.Errorf("the client was sent to %s", addr)
				}
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for i := range 300 {
		key := fmt.Sprint("key", i)
		if err := client.Set(ctx, key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := client.Get(ctx, key).Int(); got != i || err != nil {
			t.Fatalf("%s: %d, %v", key, got, err)
		}
	}
	for i := range passed {
		if passed[i].Load() == 0 {
			t.Errorf("nothing went through store %d's forwarded port", i+1)
		}
		for _, question := range []string{"CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES"} {
			text := rawReply(t, c.Addrs()[i], "AUTH s3cret\r\n"+question+"\r\nQUIT\r\n")
			for j, direct := range c.Addrs() {
				// Behind a ':' is a port, of an address or as an integer of RESP. Five digits alone may be in a node's
				// id.
				_, port, _ := net.SplitHostPort(direct)
				if strings.Contains(text, ":"+port) || !strings.Contains(text, fmt.Sprint(":", first+j)) {
					t.Errorf("%s of store %d: %q, want port %d in the place of %s", question, i+1, text, first+j, port)
				}
			}
		}
		other := c.Addrs()[i]
		moved := false
		for n := 0; n < 100 && !moved; n++ {
			reply := rawReply(t, other, fmt.Sprintf("AUTH s3cret\r\nGET none%d\r\nQUIT\r\n", n))
			if _, to, found := strings.Cut(reply, "MOVED "); found {
				var slot, port int
				fmt.Sscanf(to, "%d 127.0.0.1:%d", &slot, &port)
				if moved = true; port < first || port >= first+stores {
					t.Errorf("MOVED to port %d, want one from %d on", port, first)
				}
			}
		}
		if !moved {
			t.Errorf("store %d redirects nothing", i+1)
		}
	}
	if got := rawReply(t, c.Addrs()[1], "GET a\r\nQUIT\r\n"); got != "-NOAUTH Authentication required.\r\n+OK\r\n" {
		t.Errorf("without the password: %q", got)
	}
}

// rawReply sends requests that end with QUIT, and returns all that comes back.
func rawReply(t *testing.T, addr, requests string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(nc, requests); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(nc)
	if err != nil {
		t.Fatal(err)
	}
	return string(got)
}

func TestBindBeyondLoopback(t *testing.T) {
	password := settings.Default()
	password.Redis.RequirePass = "x"
	for _, x := range []struct {
		addr string
		k    settings.Settings
		want string
	}{
		{"127.0.0.1", settings.Default(), ""},
		{"::1", settings.Default(), ""},
		{"10.1.2.3", settings.Default(),
			"want a loopback address such as 127.0.0.1 or ::1, or a password in redis.requirepass"},
		{"10.1.2.3", password, ""},
		{"0.0.0.0", password, ""},
		{"::", password, ""},
		{"localhost", password, "want an IP address such as 127.0.0.1 or ::1"},
	} {
		got := ""
		if err := CheckBind(x.addr, x.k.Redis); err != nil {
			got = err.Error()
		}
		if got != x.want {
			t.Errorf("bind %s: %q, want %q", x.addr, got, x.want)
		}
	}
}

// TestWaitForReplicas writes and WAITs for all replicas, on a store's port and on the proxy's. While a store is cut
// off, WAIT returns the number of the others.
func TestWaitForReplicas(t *testing.T) {
	c := start(t, Config{InMemory: true})
	reply := rawReply(t, c.ProxyAddr(), "SET a 1\r\nWAIT 2 30000\r\nMSET b 1 c 1 d 1 e 1\r\nWAIT 2 30000\r\nQUIT\r\n")
	if want := "+OK\r\n:2\r\n+OK\r\n:2\r\n+OK\r\n"; reply != want {
		t.Errorf("on the proxy port: %q, want %q", reply, want)
	}
	var served bool
	for i := 0; i < 100 && !served; i++ {
		reply = rawReply(t, c.Addrs()[0], fmt.Sprintf("SET k%d 1\r\nWAIT 2 30000\r\nQUIT\r\n", i))
		served = reply == "+OK\r\n:2\r\n+OK\r\n"
	}
	if !served {
		t.Errorf("on a store's port: %q", reply)
	}
	do(t, c, "stop 3")
	nc, err := net.Dial("tcp", c.ProxyAddr())
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	nc.SetDeadline(time.Now().Add(60 * time.Second))
	r := bufio.NewReader(nc)
	for end := time.Now().Add(30 * time.Second); ; { // until its regions have other leaders
		fmt.Fprint(nc, "SET a 2\r\n")
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "+OK\r\n" {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("a store is gone, and SET still answers %q", line)
		}
	}
	fmt.Fprint(nc, "WAIT 1 30000\r\nWAIT 2 300\r\n")
	for range 2 {
		if line, err := r.ReadString('\n'); line != ":1\r\n" || err != nil {
			t.Errorf("with one of three stores gone: %q, %v", line, err)
		}
	}
}

// TestLargeRepliesNobodyReads: many clients ask for large values, in pipelines and in one command, and read no reply.
// The server stays within the bound of what it holds for them, and serves others all the time.
func TestLargeRepliesNobodyReads(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test")
	}
	k := settings.Default()
	k.Redis.ClientMemory = 64 << 20
	c := start(t, Config{InMemory: true, Settings: &k, NoSockets: true})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dial := func() net.Conn {
		nc, err := c.Dial(ctx, c.ProxyAddr())
		if err != nil {
			t.Fatal(err)
		}
		return nc
	}
	good := redis.NewClient(&redis.Options{
		Addr:   c.ProxyAddr(),
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) },
	})
	defer good.Close()
	value := strings.Repeat("v", 1<<20)
	for i := range 8 {
		surelySet(t, good, fmt.Sprint("big", i), value)
	}
	pipeline := strings.Repeat("GET big0\r\nGET big1\r\nGET big2\r\nGET big3\r\n", 20)
	all := "MGET" + strings.Repeat(" big0 big1 big2 big3 big4 big5 big6 big7", 2) + "\r\n"
	// Alone more than the bound.
	greedy := "MGET" + strings.Repeat(" big0 big1 big2 big3 big4 big5 big6 big7", 20) + "\r\n"
	var most int64
	var idle []net.Conn
	for i := range 200 {
		nc := dial()
		idle = append(idle, nc)
		io.WriteString(nc, [...]string{pipeline, all, greedy}[i%3])
		surelySet(t, good, "small", i)
		if got, err := good.Get(ctx, "small").Int(); got != i || err != nil {
			t.Fatalf("behind %d clients: %d, %v", i, got, err)
		}
		most = max(most, c.in.Inside().HeldForClients())
	}
	if most > 72<<20 {
		t.Errorf("clients held %d bytes, want about 64 MiB at most", most)
	}
	waitFor(t, 30*time.Second, "a client to be closed", func() bool {
		info, err := good.Info(ctx, "stats").Result()
		return err == nil && !strings.Contains(info, "evicted_clients:0\r\n")
	})
	t.Logf("at most %d MiB held", most>>20)

	for _, nc := range idle {
		nc.Close()
	}
	for end := time.Now().Add(30 * time.Second); c.in.Inside().HeldForClients() > 8<<20; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d bytes are held for clients that have gone", c.in.Inside().HeldForClients())
		}
	}
	// A client that reads its replies gets all of a pipeline, in order.
	nc := dial()
	defer nc.Close()
	go io.WriteString(nc, strings.Repeat("GET big0\r\nSET x 1\r\nGET big1\r\nGET small\r\nGET big2\r\n", 10)+"QUIT\r\n")
	big, small := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value), "$3\r\n199\r\n"
	want := strings.Repeat(big+"+OK\r\n"+big+small+big, 10) + "+OK\r\n"
	if got, err := io.ReadAll(nc); string(got) != want || err != nil {
		t.Errorf("a pipeline of large reads: %d bytes and %v, want %d", len(got), err, len(want))
	}
}

// TestPipelinesNobodyReads: clients send pipelines that ask for large values, and read no reply. For each the server
// holds little more than the replies of one batch, no leader changes, and another client is served.
func TestPipelinesNobodyReads(t *testing.T) {
	const clients, most = 100, 512 << 10
	c := start(t, Config{InMemory: true, NoSockets: true})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	good := redis.NewClient(&redis.Options{
		Addr:   c.ProxyAddr(),
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) },
	})
	defer good.Close()
	var pipeline strings.Builder
	for i := range 50 {
		if err := good.Set(ctx, fmt.Sprint("big", i), strings.Repeat("v", 100_000), 0).Err(); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&pipeline, "GET big%d\r\n", i)
	}
	changes := func() (n uint64) {
		for _, node := range c.in.Places() {
			for r := range c.Settings().Cluster.Regions {
				if replica := node.Store().Replica(topology.RegionID(r + 1)); replica != nil {
					n += replica.Counters().LeaderChanges.Load()
				}
			}
		}
		return n
	}
	before, held, highest := changes(), c.in.Inside().HeldForClients(), int64(0)
	for i := range clients {
		nc, err := c.Dial(ctx, c.ProxyAddr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		io.WriteString(nc, pipeline.String())
		if err := good.Set(ctx, "small", i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		highest = max(highest, c.in.Inside().HeldForClients()-held)
	}
	for range 100 { // the server serves the last of them, too
		if err := good.Get(ctx, "big0").Err(); err != nil {
			t.Fatal(err)
		}
		highest = max(highest, c.in.Inside().HeldForClients()-held)
	}
	if highest > clients*most {
		t.Errorf("%d clients hold %d bytes, want at most %d each", clients, highest, most)
	}
	if after := changes(); after != before && !testing.Short() { // under the race detector all of it takes long
		t.Errorf("%d changes of leader", after-before)
	}
}

// TestLargeRepliesInTurn has many clients read large replies at the same time, so that most of them wait for a turn and
// read again. Each gets its own replies, whole and in order.
func TestLargeRepliesInTurn(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	dialer := func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) }
	good := redis.NewClient(&redis.Options{Addr: c.ProxyAddr(), Dialer: dialer})
	defer good.Close()
	const values = 8
	mget, sent, want, all := "MGET", "", "", fmt.Sprintf("*%d\r\n", values)
	for i := range values {
		value := strings.Repeat(string(rune('a'+i)), 100_000+i)
		if err := good.Set(ctx, fmt.Sprint("{t}big", i), value, 0).Err(); err != nil {
			t.Fatal(err)
		}
		bulk := fmt.Sprintf("$%d\r\n%s\r\n", len(value), value)
		mget, all = mget+fmt.Sprint(" {t}big", i), all+bulk
		sent, want = sent+fmt.Sprintf("GET {t}big%d\r\n", i), want+bulk
	}
	sent, want = sent+mget+"\r\nPING\r\nQUIT\r\n", want+all+"+PONG\r\n+OK\r\n"
	var clients sync.WaitGroup
	for range 30 {
		clients.Go(func() {
			nc, err := c.Dial(ctx, c.ProxyAddr())
			if err != nil {
				t.Error(err)
				return
			}
			defer nc.Close()
			go io.WriteString(nc, sent)
			if got, err := io.ReadAll(nc); string(got) != want || err != nil {
				t.Errorf("%d bytes and %v, want %d bytes, perhaps others", len(got), err, len(want))
			}
		})
	}
	clients.Wait()
}
