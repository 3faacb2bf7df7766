package neokv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/internal/announce"
)

// mapped is a cluster whose ports are mapped to others, as those of a container are: what comes to an address of
// outside comes to the store from another address than its neighbours have.
type mapped struct {
	*Cluster
	outside []string // of the stores, and then of the proxy
	passed  []atomic.Int64
}

// startMapped starts a cluster whose ports are mapped to some that have nothing to do with them.
func startMapped(t *testing.T) *mapped {
	const gateway = "127.0.0.9" // Linux has all of 127.0.0.0/8
	m := &mapped{passed: make([]atomic.Int64, 4)}
	var lns []net.Listener
	for range m.passed {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		lns, m.outside = append(lns, ln), append(m.outside, ln.Addr().String())
	}
	k := *small()
	k.Redis.ClusterAnnounce = gateway + "=" + strings.Join(m.outside[:3], ",")
	m.Cluster = start(t, Config{InMemory: true, Settings: &k})
	for i, addr := range append(m.Addrs(), m.ProxyAddr()) {
		forward(t, lns[i], gateway, addr, &m.passed[i])
	}
	return m
}

// client returns a client of the cluster that begins with the first of some addresses and may dial these only.
func (m *mapped) client(t *testing.T, addrs []string) *redis.ClusterClient {
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: []string{addrs[0]}, // go-redis appends to it
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if !slices.Contains(addrs, addr) {
				t.Errorf("a client of %s was sent to %s", addrs, addr)
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	t.Cleanup(func() { client.Close() })
	return client
}

// shift hands each region to the next store.
func (m *mapped) shift(t *testing.T) {
	for _, r := range m.Status().Regions {
		do(t, m.Cluster, fmt.Sprintf("transfer %d %d", r.Region, r.Leader%len(m.in.Places())+1))
	}
}

// TestPortMapping has a client beside the cluster and one beyond the mapped ports, which write and read the same keys
// while leaders move, and while a store is down.
func TestPortMapping(t *testing.T) {
	m := startMapped(t)
	outside, inside := m.client(t, m.outside[:3]), m.client(t, m.Addrs())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	check := func(when string) {
		for i := range 100 {
			key, value := fmt.Sprint("key", i), fmt.Sprint(when, i)
			writer, reader := outside, inside
			if i%2 == 1 {
				writer, reader = inside, outside
			}
			if err := writer.Set(ctx, key, value, 0).Err(); err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			if got, err := reader.Get(ctx, key).Result(); got != value || err != nil {
				t.Fatalf("%s: %s is %q, %v; want %q", when, key, got, err, value)
			}
		}
	}
	check("at first")
	for i := range 3 {
		if m.passed[i].Load() == 0 {
			t.Errorf("nothing went through the mapped port of store %d", i+1)
		}
	}
	m.shift(t)
	check("when all leaders have moved")
	do(t, m.Cluster, "heal", "kill 2")
	check("without store 2")
	do(t, m.Cluster, "restart 2")
	check("with store 2 again")
	proxy := redis.NewClient(&redis.Options{Addr: m.outside[3], Protocol: 2})
	defer proxy.Close()
	if got, err := proxy.MGet(ctx, "key0", "key1", "key2").Result(); err != nil || got[2] != "with store 2 again2" {
		t.Errorf("through the mapped proxy port: %v, %v", got, err)
	}
}

// TestComingIn asks a cluster that listens on all addresses, at several of them: it tells the address asked. Nobody on
// this machine is outside.
func TestComingIn(t *testing.T) {
	k := *small()
	k.Redis.RequirePass, k.Redis.ClusterAnnounce = "s3cret", "outside=example.org:{port}"
	for _, x := range []struct {
		bind  string
		hosts []string
	}{
		{"0.0.0.0", []string{"127.0.0.1", "127.0.0.9"}},
		{"::", []string{"127.0.0.1", "127.0.0.9", "::1"}},
	} {
		if ln, err := net.Listen("tcp", net.JoinHostPort(x.bind, "0")); err != nil {
			t.Logf("this machine has no %s: %v", x.bind, err)
			continue
		} else {
			ln.Close()
		}
		c := start(t, Config{InMemory: true, Settings: &k, Bind: x.bind})
		_, port, _ := net.SplitHostPort(c.Addrs()[0])
		_, other, _ := net.SplitHostPort(c.Addrs()[1])
		for _, host := range x.hosts {
			asked := net.JoinHostPort(host, port)
			for question, want := range map[string]string{
				"CLUSTER SLOTS":  fmt.Sprintf("*4\r\n$%d\r\n%s\r\n:%s\r\n$40\r\n", len(host), host, other),
				"CLUSTER SHARDS": fmt.Sprintf("endpoint\r\n$%d\r\n%s\r\n", len(host), host),
				"CLUSTER NODES":  fmt.Sprintf(" %s:%s@0 ", host, other),
			} {
				if got := rawReply(t, asked, "AUTH s3cret\r\n"+question+"\r\nQUIT\r\n"); !strings.Contains(got, want) {
					t.Errorf("bound to %s: %s at %s has no %q: %q", x.bind, question, asked, want, got)
				}
			}
			if to := movedTo(t, asked, "AUTH s3cret\r\n"); !strings.HasPrefix(to, host+":") {
				t.Errorf("bound to %s: MOVED at %s to %s", x.bind, asked, to)
			}
		}
	}
}

// movedTo returns the address of a redirection by the store at an address.
func movedTo(t *testing.T, asked, before string) string {
	for n := range 100 {
		_, line, found := strings.Cut(rawReply(t, asked, fmt.Sprintf("%sGET none%d\r\nQUIT\r\n", before, n)), "MOVED ")
		if found {
			line, _, _ = strings.Cut(line, "\r\n")
			_, to, _ := strings.Cut(line, " ")
			return to
		}
	}
	t.Errorf("%s redirects nothing", asked)
	return ""
}

// TestIPv6 writes and reads all keys of a cluster on ::1 by go-redis.
func TestIPv6(t *testing.T) {
	c := startIPv6(t)
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()[:1:1]})
	defer client.Close()
	for i := range 100 {
		key := fmt.Sprint("key", i)
		if err := client.Set(t.Context(), key, i, 0).Err(); err != nil {
			t.Fatal(err)
		}
		if got, err := client.Get(t.Context(), key).Int(); got != i || err != nil {
			t.Fatalf("%s: %d, %v", key, got, err)
		}
	}
	if to, want := movedTo(t, c.Addrs()[0], ""), "::1:"; !strings.HasPrefix(to, want) {
		t.Errorf("MOVED to %s; want %s, as Redis writes it", to, want)
	}
}

func startIPv6(t *testing.T) *Cluster {
	if ln, err := net.Listen("tcp", "[::1]:0"); err != nil {
		t.Skipf("this machine has no IPv6: %v", err)
	} else {
		ln.Close()
	}
	return start(t, Config{InMemory: true, Bind: "::1"})
}

// TestAnnounceRefused boots clusters whose stores could not be told: the list is short for the stores asked for, or a
// port follows from a port listened on that is none.
func TestAnnounceRefused(t *testing.T) {
	for _, x := range []struct {
		announce string
		stores   int
		want     string
	}{
		{"a:1,b:2,c:3", 5, `redis.cluster_announce: "a:1,b:2,c:3": want one for each of cluster.stores (5), or a single ` +
			"one with {n} or {port}"},
		{"a:1,b:2,c:3", 3, ""},
		{"a:1{port}", 3, "which listens on"},
	} {
		k := *small()
		k.Redis.ClusterAnnounce = x.announce
		var told []string
		c, err := Start(t.Context(), Config{InMemory: true, Stores: x.stores, Settings: &k,
			Progress: func(line string) { told = append(told, line) }})
		if err == nil {
			err = errors.Join(errors.New(""), c.Close())
		}
		if got := err.Error(); x.want == "" && strings.TrimSpace(got) != "" || !strings.Contains(got, x.want) {
			t.Errorf("%s, %d stores: %v; want %q", x.announce, x.stores, err, x.want)
		}
		if lines := strings.Join(told, "\n"); x.want == "" && !strings.Contains(lines, "all clients are told a:1, b:2, c:3") {
			t.Errorf("%s: the boot says %q", x.announce, lines)
		}
	}
}

// TestAnnounceOfFolder opens a folder of two stores by settings for three, with a list for two.
func TestAnnounceOfFolder(t *testing.T) {
	k := *small()
	config := Config{Dir: t.TempDir(), Stores: 2, Settings: &k}
	for range 2 {
		c, err := Start(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		config.Stores, k.Redis.ClusterAnnounce = 0, "a:1,b:2"
	}
	k.Redis.ClusterAnnounce = "a:1"
	const want = `redis.cluster_announce: "a:1": want one for each of cluster.stores (2), or a single one with {n} or {port}`
	if _, err := Start(t.Context(), config); err == nil || err.Error() != want {
		t.Errorf("%v; want %s", err, want)
	}
}

// TestAnnounceKept kills and starts a store, and starts the cluster anew on other ports: clients are told the same.
func TestAnnounceKept(t *testing.T) {
	k := *small()
	k.Redis.ClusterAnnounce, k.Redis.ClusterAnnounceHostname = "10.1.2.3:3000{n}", "store-{n}"
	config := Config{Dir: t.TempDir(), Settings: &k}
	ask := func(c *Cluster, i int) string {
		reply := rawReply(t, c.Addrs()[i], "CLUSTER NODES\r\nQUIT\r\n")
		var told []string
		for scan := bufio.NewScanner(strings.NewReader(reply)); scan.Scan(); {
			if words := strings.Fields(scan.Text()); len(words) > 2 {
				told = append(told, words[1])
			}
		}
		return strings.Join(told, " ")
	}
	const want = "10.1.2.3:30001@0,store-1 10.1.2.3:30002@0,store-2 10.1.2.3:30003@0,store-3"
	for round := range 2 {
		c, err := Start(t.Context(), config)
		if err != nil {
			t.Fatal(err)
		}
		for _, step := range []string{"", "kill 1", "restart 1"} {
			if step != "" {
				do(t, c, step)
			}
			for i := range 3 { // the stand-in of store 1, too
				await(t, fmt.Sprintf("%s of store %d, round %d, after %q", want, i+1, round, step), func() bool {
					return ask(c, i) == want // a store that starts has yet to hear of the others
				})
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPreferredHostname has go-redis follow host names.
func TestPreferredHostname(t *testing.T) {
	k := *small()
	k.Redis.ClusterPreferredEndpointType, k.Redis.ClusterAnnounceHostname = announce.Hostname, "localhost"
	c := start(t, Config{InMemory: true, Settings: &k})
	var mu sync.Mutex
	dialled := map[string]bool{}
	client := redis.NewClusterClient(&redis.ClusterOptions{
		Addrs: c.Addrs()[:1:1],
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			mu.Lock()
			dialled[addr] = true
			mu.Unlock()
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	})
	defer client.Close()
	for i := range 100 {
		if err := client.Set(t.Context(), fmt.Sprint("key", i), i, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	for _, addr := range c.Addrs() {
		if _, port, _ := net.SplitHostPort(addr); !dialled["localhost:"+port] {
			t.Errorf("go-redis has dialled %v, and not localhost:%s", dialled, port)
		}
	}
}
