package neokv

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"net"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/topology"
)

// listener is a client that reads lines.
type listener struct {
	net.Conn
	in *bufio.Reader
}

func (c *Cluster) listener(t *testing.T, addr string) *listener {
	t.Helper()
	nc, err := c.Dial(context.Background(), addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(time.Minute))
	return &listener{nc, bufio.NewReader(nc)}
}

// ask sends a call and returns the next reply or message, in one line.
func (l *listener) ask(t *testing.T, call string) string {
	t.Helper()
	fmt.Fprintf(l, "%s\r\n", call)
	return l.next(t)
}

// next returns the next reply or message, in one line.
func (l *listener) next(t *testing.T) string {
	t.Helper()
	line, err := l.in.ReadString('\n')
	if err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	line = strings.TrimRight(line, "\r\n")
	n := 0
	switch line[0] {
	case '*', '>':
		fmt.Sscan(line[1:], &n)
		line = line[:1]
	case '$':
		if line == "$-1" {
			return line
		}
		text, err := l.in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return strings.TrimRight(text, "\r\n")
	}
	for range n {
		line += " " + l.next(t)
	}
	return line
}

// TestMessagesReachAllPorts: what is published at any port reaches the subscribers of all, once.
func TestMessagesReachAllPorts(t *testing.T) {
	for _, transport := range []string{"memory", "tcp"} {
		s := small()
		s.Raft.Transport = transport
		c := start(t, Config{InMemory: true, NoSockets: true, Settings: s})
		ports := append(slices.Clone(c.Addrs()), c.ProxyAddr())
		var all []*listener
		for _, addr := range ports {
			l := c.listener(t, addr)
			if got := l.ask(t, "SUBSCRIBE news"); got != "* subscribe news :1" {
				t.Fatal(got)
			}
			if got := l.ask(t, "PSUBSCRIBE n*"); got != "* psubscribe n* :2" {
				t.Fatal(got)
			}
			all = append(all, l)
		}
		for i, addr := range ports {
			p := c.listener(t, addr)
			for n := range 50 {
				if got := p.ask(t, fmt.Sprintf("PUBLISH news %d-%d", i, n)); got != ":2" {
					t.Fatalf("PUBLISH: %s", got)
				}
			}
			for at, l := range all {
				for n := range 50 {
					want := fmt.Sprintf("* message news %d-%d * pmessage n* news %d-%d", i, n, i, n)
					if got := l.next(t) + " " + l.next(t); got != want {
						t.Fatalf("%s: the client of port %d got %s, want %s", transport, at, got, want)
					}
				}
			}
		}
	}
}

// TestMessagesOfUnits: what EXEC and scripts publish comes once at each port, when what they write is there.
func TestMessagesOfUnits(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	key := keyAt(t, c, 2)
	ports := append(slices.Clone(c.Addrs()), c.ProxyAddr())
	var all []*listener
	for _, addr := range ports {
		l := c.listener(t, addr)
		l.ask(t, "SUBSCRIBE news")
		all = append(all, l)
	}
	for _, addr := range []string{c.Addrs()[1], c.ProxyAddr()} {
		p, r := c.listener(t, addr), c.listener(t, addr)
		want := []string{"exec 1", "exec 2", "script 1", "script 2", "both", "last"}
		p.ask(t, "MULTI")
		p.ask(t, "PUBLISH news \"exec 1\"")
		p.ask(t, "SET "+key+" 1")
		p.ask(t, "PUBLISH news \"exec 2\"")
		if got := p.ask(t, "EXEC"); !strings.HasPrefix(got, "* :") {
			t.Fatal(got)
		}
		script := `EVAL "redis.call('PUBLISH','news','script 1') redis.call('SET',KEYS[1],2) ` +
			`return redis.call('PUBLISH','news','script 2')" 1 ` + key
		if got := p.ask(t, script); got != ":0" {
			t.Fatal(got)
		}
		p.ask(t, "MULTI")
		p.ask(t, "SET "+key+" 3")
		p.ask(t, `EVAL "redis.call('PUBLISH','news','both') return 'ok'" 1 `+key)
		if got := p.ask(t, "EXEC"); got != "* +OK ok" {
			t.Fatal(got)
		}
		// What does not take effect publishes nothing.
		p.ask(t, "WATCH "+key)
		r.ask(t, "SET "+key+" 4")
		p.ask(t, "MULTI")
		p.ask(t, "PUBLISH news never")
		p.ask(t, `EVAL "redis.call('PUBLISH','news','never') return 'ok'" 1 `+key)
		p.ask(t, `EVAL "redis.call('PUBLISH','news','never') return 'ok'" 0`)
		if got := p.ask(t, "EXEC"); got != "*" {
			t.Fatal(got)
		}
		if got := p.ask(t, `EVAL "redis.call('PUBLISH','news','never') while true do end" 1 `+key); got[0] != '-' {
			t.Fatal(got)
		}
		p.ask(t, "PUBLISH news last")
		for at, l := range all {
			for _, text := range want {
				if got := l.next(t); got != "* message news "+text {
					t.Fatalf("the client of port %d got %s, want %s", at, got, text)
				}
			}
		}
	}
}

// TestShardMessages: SSUBSCRIBE and SPUBLISH are routed by slot. When another store leads the slot, the store tells its
// subscribers, who have nothing more to expect from it. A subscriber at the proxy port stays.
func TestShardMessages(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	channel := keyAt(t, c, 1)
	table := c.in.Places()[0].Store().Table()
	region, _ := table.Region(topology.SlotOf([]byte(channel)))
	one, two, proxy := c.Addrs()[0], c.Addrs()[1], c.ProxyAddr()
	l, p := c.listener(t, one), c.listener(t, proxy)
	if got := l.ask(t, "SSUBSCRIBE "+channel); got != "* ssubscribe "+channel+" :1" {
		t.Fatal(got)
	}
	p.ask(t, "SSUBSCRIBE "+channel)
	for _, call := range []string{"SSUBSCRIBE ", "SUNSUBSCRIBE "} {
		if got := c.listener(t, two).ask(t, call+channel); !strings.HasPrefix(got, "-MOVED ") {
			t.Errorf("%sat another store: %s", call, got)
		}
	}
	if got := c.listener(t, two).ask(t, "SPUBLISH "+channel+" x"); !strings.HasPrefix(got, "-MOVED ") {
		t.Errorf("SPUBLISH at another store: %s", got)
	}
	if got := c.listener(t, one).ask(t, "SSUBSCRIBE a b"); !strings.HasPrefix(got, "-CROSSSLOT ") {
		t.Errorf("SSUBSCRIBE of two slots: %s", got)
	}
	if got := c.listener(t, one).ask(t, "SPUBLISH "+channel+" 1"); got != ":1" {
		t.Errorf("SPUBLISH at the store: %s", got)
	}
	if got := c.listener(t, proxy).ask(t, "SPUBLISH "+channel+" 2"); got != ":1" {
		t.Errorf("SPUBLISH at the proxy port: %s", got)
	}
	for _, x := range []*listener{l, p} {
		for _, text := range []string{"1", "2"} {
			if got := x.next(t); got != "* smessage "+channel+" "+text {
				t.Fatal(got)
			}
		}
	}
	if _, err := c.Inject(t.Context(), fault.Fault{Verb: fault.Transfer, Region: int(region.ID), To: 2}); err != nil {
		t.Fatal(err)
	}
	if got := l.next(t); got != "* sunsubscribe "+channel+" :0" {
		t.Fatalf("when another store leads: %s", got)
	}
	if got := l.ask(t, "PING"); got != "+PONG" {
		t.Errorf("a client without subscriptions: %s", got)
	}
	if got := l.ask(t, "SSUBSCRIBE "+channel); !strings.HasPrefix(got, "-MOVED ") {
		t.Error(got)
	}
	n := c.listener(t, two)
	n.ask(t, "SSUBSCRIBE "+channel)
	if got := c.listener(t, two).ask(t, "SPUBLISH "+channel+" 3"); got != ":1" {
		t.Error(got)
	}
	for _, x := range []*listener{n, p} {
		if got := x.next(t); got != "* smessage "+channel+" 3" {
			t.Error(got)
		}
	}
}

// TestMessagesAtStandIn: the address of a store that is down takes subscribers and publishers, too.
func TestMessagesAtStandIn(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	if _, err := c.Inject(t.Context(), fault.Fault{Verb: fault.Kill, Stores: []int{1}}); err != nil {
		t.Fatal(err)
	}
	ports := append(slices.Clone(c.Addrs()), c.ProxyAddr())
	var all []*listener
	for _, addr := range ports {
		l := c.listener(t, addr)
		l.ask(t, "SUBSCRIBE news")
		all = append(all, l)
	}
	for i, addr := range ports {
		if got := c.listener(t, addr).ask(t, fmt.Sprint("PUBLISH news ", i)); got != ":1" {
			t.Fatal(got)
		}
		for at, l := range all {
			if got := l.next(t); got != fmt.Sprint("* message news ", i) {
				t.Errorf("port %d got %s", at, got)
			}
		}
	}
}

var largeMessages = flag.Int("pubsub.bytes", 1<<20, "bytes of a message in TestLargeMessages")

// TestLargeMessages: 512 large messages in one pipeline, and subscribers at all ports who read nothing. The publisher
// goes on, the subscribers are closed by their limits, and the memory stays bounded all the time.
func TestLargeMessages(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	ports := append(slices.Clone(c.Addrs()), c.ProxyAddr())
	for _, addr := range ports {
		c.listener(t, addr).ask(t, "SUBSCRIBE news")
	}
	p := c.listener(t, ports[0])
	var sending sync.Mutex // held while a message is sent, and while the heap is measured: garbage does not count
	live := func() int64 {
		sending.Lock()
		defer sending.Unlock()
		m := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
		runtime.GC()
		metrics.Read(m)
		return int64(m[0].Value.Uint64())
	}
	message := []byte(fmt.Sprintf("*3\r\n$7\r\nPUBLISH\r\n$4\r\nnews\r\n$%d\r\n%s\r\n", *largeMessages,
		strings.Repeat("x", *largeMessages)))
	before, most, counted := live(), int64(0), int64(0)
	go func() {
		for range 512 {
			sending.Lock()
			_, err := p.Write(message)
			sending.Unlock()
			if err != nil {
				return
			}
		}
	}()
	for i := range 512 {
		if got := p.next(t); got != ":1" && got != ":0" {
			t.Fatal(got)
		}
		counted = max(counted, c.in.Inside().HeldForClients())
		if i%16 == 0 {
			most = max(most, live()-before)
		}
	}
	t.Logf("at most %d MiB in use, %d before; at most %d counted", most>>20, before>>20, counted>>20)
	// 32 MiB and a message for each lane and for each subscriber, some messages under way
	if bound := int64(6*32<<20 + 12**largeMessages); max(most, counted) > bound {
		t.Errorf("%d bytes are in use for 512 messages, %d are counted, want at most %d", most, counted, bound)
	}
	admin := make([]*listener, len(ports))
	for i, addr := range ports {
		admin[i] = c.listener(t, addr)
		for admin[i].ask(t, "CLIENT LIST TYPE pubsub") != "" {
			admin[i].in.ReadString('\n') // the end of the list
			time.Sleep(time.Millisecond)
		}
	}
	if info := admin[0].ask(t, "PUBLISH news last"); info != ":0" {
		t.Error(info)
	}
}

// TestNothingFromBefore: who subscribes at a store that has just started again hears nothing that was published before,
// which it may have heard at another store, and then all that follows.
func TestNothingFromBefore(t *testing.T) {
	for _, verb := range []string{"kill", "stop"} {
		synctest.Test(t, func(t *testing.T) {
			c := start(t, Config{InMemory: true, NoSockets: true})
			p := c.listener(t, c.Addrs()[0])
			n := 0
			publish := func(d time.Duration) {
				for end := time.Now().Add(d); time.Now().Before(end); n++ {
					p.ask(t, fmt.Sprint("PUBLISH news ", n))
					time.Sleep(10 * time.Millisecond)
				}
			}
			// Messages that are under way when the store ends have no answer, and others wait behind them.
			for _, text := range []string{"partition 1 2", verb + " 2", "mend 1 2", "restart 2"} {
				publish(50 * time.Millisecond)
				if _, err := c.Inject(t.Context(), fault.MustParse(text)); err != nil {
					t.Fatal(err)
				}
			}
			l := c.listener(t, c.Addrs()[1])
			l.ask(t, "SUBSCRIBE news")
			before := n
			publish(3 * time.Second)
			last := -1
			for last < n-1 {
				var got int
				text := l.next(t)
				n, err := fmt.Sscanf(text, "* message news %d", &got)
				if n < 1 || err != nil || got < before || last >= 0 && got != last+1 {
					t.Fatalf("%s: who subscribed when %d was the next message got %q behind %d", verb, before, text, last)
				}
				last = got
			}
		})
	}
}
