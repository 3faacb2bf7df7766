package neokv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// withReplicas are settings with second addresses.
func withReplicas() *settings.Settings {
	k := small()
	k.Redis.FollowerRead = true
	return k
}

// TestReplicaAddrs: the second addresses have the ports behind those of the stores, and node ids that survive a restart
// on other ports. There are none where nothing follows, or no client is redirected.
func TestReplicaAddrs(t *testing.T) {
	nodes := func(c *Cluster, addr string) string {
		nc, err := c.Dial(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		r := redis.NewClient(&redis.Options{Dialer: func(context.Context, string, string) (net.Conn, error) { return nc, nil }})
		defer r.Close()
		return r.ClusterNodes(t.Context()).Val()
	}
	var ids [2][]string
	dir := t.TempDir()
	for i, port := range []int{0, 21} {
		c := start(t, Config{Dir: dir, NoSockets: true, Port: port, Settings: withReplicas()})
		want := []string{"255.255.255.255:4", "255.255.255.255:5", "255.255.255.255:6"}
		if port > 0 {
			want = []string{"255.255.255.255:24", "255.255.255.255:25", "255.255.255.255:26"}
		}
		if got := c.ReplicaAddrs(); !slices.Equal(got, want) {
			t.Errorf("second addresses from port %d on: %q; want %q", port, got, want)
		}
		for k, addr := range want {
			if got := c.Status().Stores[k].ReplicaAddr; got != addr {
				t.Errorf("status has the second address %q of store %d; want %q", got, k+1, addr)
			}
			for line := range strings.Lines(nodes(c, addr)) {
				if id, rest, _ := strings.Cut(line, " "); strings.HasPrefix(rest, addr+"@0 myself,slave ") {
					ids[i] = append(ids[i], id)
				}
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if len(ids[0]) != 3 || !slices.Equal(ids[0], ids[1]) {
		t.Errorf("node ids %q, and after a restart %q; want three, the same", ids[0], ids[1])
	}
	for what, change := range map[string]func(*settings.Settings){
		"without the setting":   func(k *settings.Settings) { k.Redis.FollowerRead = false },
		"with one replica":      func(k *settings.Settings) { k.Cluster.Replicas = 1 },
		"without a redirection": func(k *settings.Settings) { k.Redis.ClusterEnabled = false },
	} {
		k := withReplicas()
		change(k)
		c := start(t, Config{InMemory: true, NoSockets: true, Settings: k})
		if got := c.ReplicaAddrs(); got != nil {
			t.Errorf("%s there are second addresses: %q", what, got)
		}
		if what == "without the setting" {
			if got := nodes(c, c.Addrs()[0]); strings.Contains(got, "slave") {
				t.Errorf("%s CLUSTER NODES has %q", what, got)
			}
		}
	}
}

func TestCheckPorts(t *testing.T) {
	k := withReplicas()
	for _, x := range []struct {
		port, proxy int
		want        string
	}{
		{7001, 7100, ""}, {7001, 7007, ""}, {7001, 7000, ""}, {0, 0, ""}, {65530, 0, ""},
		{7001, 7003, "proxy port 7003: it is the port of store 3 (ports 7001 to 7006)"},
		{7001, 7005, "proxy port 7005: it is the port of store 2 as a replica (ports 7001 to 7006)"},
		{65531, 0, "port 65531: 3 stores, with a second address each (redis.follower_read), need the ports 65531 to 65536, " +
			"want 1 to 65535, or 0 for free ones"},
	} {
		got := ""
		if err := CheckPorts(x.port, x.proxy, *k); err != nil {
			got = err.Error()
		}
		if got != x.want {
			t.Errorf("port %d, proxy %d: %q; want %q", x.port, x.proxy, got, x.want)
		}
	}
}

// slowConn delays what a client sends.
type slowConn struct{ net.Conn }

func (c slowConn) Write(b []byte) (int, error) {
	time.Sleep(2 * time.Millisecond)
	return c.Conn.Write(b)
}

// goRedisReader returns a rider of go-redis that reads as the options say.
func goRedisReader(options func(*redis.ClusterOptions)) func(*testing.T, *Cluster) (rider, error) {
	return func(_ *testing.T, c *Cluster) (rider, error) {
		o := redis.ClusterOptions{Addrs: c.Addrs()}
		options(&o)
		if o.RouteByLatency {
			// The masters are far away. So more connections are open to them, each of which breaks with a kill, and costs
			// one of the attempts at a command.
			o.MaxRedirects = 10
			o.Dialer = func(ctx context.Context, network, addr string) (net.Conn, error) {
				nc, err := new(net.Dialer).DialContext(ctx, network, addr)
				if err == nil && slices.Contains(c.Addrs(), addr) {
					nc = slowConn{nc}
				}
				return nc, err
			}
		}
		return goRedisRiderOf(redis.NewClusterClient(&o)), nil
	}
}

// rueidisReader has the cache on, so each of its connections tracks keys, by OPTIN.
func rueidisReader(_ *testing.T, c *Cluster) (rider, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.Addrs(),
		SendToReplicas: func(cmd rueidis.Completed) bool { return cmd.IsReadOnly() }})
	if err != nil {
		return rider{}, err
	}
	return rueidisRiderOf(client), nil
}

// TestClientsReadReplicas has clients read as their own options for replicas say, while stores are killed, leaders are
// transferred, and a region is split. They read at followers all the time, no reply is wrong, and no error reaches them
// but for writes whose fate is unknown.
func TestClientsReadReplicas(t *testing.T) {
	for name, open := range map[string]func(*testing.T, *Cluster) (rider, error){
		"go-redis ReadOnly":       goRedisReader(func(o *redis.ClusterOptions) { o.ReadOnly = true }),
		"go-redis RouteByLatency": goRedisReader(func(o *redis.ClusterOptions) { o.RouteByLatency = true }),
		"go-redis RouteRandomly":  goRedisReader(func(o *redis.ClusterOptions) { o.RouteRandomly = true }),
		"rueidis SendToReplicas":  rueidisReader,

		"ioredis scaleReads slave":    nodeRider("ioredis slave"),
		"ioredis scaleReads all":      nodeRider("ioredis all"),
		"node-redis useReplicas":      nodeRider("node-redis replicas"),
		"redis-py read_from_replicas": redisPyRider,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time goes into elections
			c := start(t, Config{InMemory: true, Settings: withReplicas()})
			client, err := open(t, c)
			if err != nil {
				t.Fatal(err)
			}
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 1<<32))
			l := startRide(client, 8, seed)
			read := func() (n uint64) {
				for s := range c.in.Places().Running() {
					for _, r := range s.Replicas() {
						n += r.Counters().FollowerReads.Load()
					}
				}
				return n
			}
			goesOn := func(after string) {
				t.Helper()
				l.progress(t, 200)
				before := read()
				waitFor(t, time.Minute, "reads at followers after "+after, func() bool { return read() >= before+50 })
			}
			goesOn("the start")
			for range 2 {
				victim := killLeader(t, c, random)
				awaitLeaders(t, c)
				goesOn("a kill")
				do(t, c, fmt.Sprint("restart ", victim.ID()))
				for _, n := range c.in.Places() {
					if err := n.Store().AwaitReplicas(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				goesOn("a restart")
			}
			for r := 1; r <= c.Shape().Regions; r++ {
				leader := c.in.Places().LeaderOf(topology.RegionID(r))
				if leader == nil {
					continue
				}
				// A transfer may find the leader gone or the other store behind.
				if err := doText(t.Context(), c, fmt.Sprintf("transfer %d %d", r, int(leader.ID())%len(c.in.Places())+1)); err != nil {
					t.Log(err)
				}
			}
			goesOn("transfers")
			if err := doText(t.Context(), c, "split 1"); err != nil {
				t.Error(err)
			}
			goesOn("a split")
			l.end(t)
		})
	}
}
