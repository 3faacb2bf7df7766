//go:build redisserver && linux

package neokv

import (
	"context"
	"fmt"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/redis/redistest"
)

// TestEndpointsLikeRedis asks a Redis Cluster of two and a NeoKV of two, with the same halves of the slots, for all that
// tells of addresses: with and without host names, for each preferred type, in RESP2 and RESP3.
func TestEndpointsLikeRedis(t *testing.T) {
	real := redisPair(t)
	for _, hostname := range []string{"", "store-{n}.example.org"} {
		for _, preferred := range []string{announce.IP, announce.Hostname, announce.UnknownEndpoint} {
			if hostname == "" && preferred == announce.Hostname {
				continue // Redis tells ?, NeoKV refuses to start
			}
			k := *small()
			k.Redis.ClusterAnnounceHostname, k.Redis.ClusterPreferredEndpointType = hostname, preferred
			c := start(t, Config{InMemory: true, Stores: 2, Regions: 2, Settings: &k})
			for i, addr := range real {
				name := strings.ReplaceAll(hostname, "{n}", fmt.Sprint(i+1))
				got := rawReply(t, addr, fmt.Sprintf("CONFIG SET cluster-announce-hostname \"%s\" "+
					"cluster-preferred-endpoint-type %s\r\nQUIT\r\n", name, preferred))
				if got != "+OK\r\n+OK\r\n" {
					t.Fatalf("CONFIG SET of redis-server: %q", got)
				}
			}
			// A node tells the other one its name with the next message of the cluster's bus.
			await(t, "names of redis-server", func() bool {
				return !slices.ContainsFunc(real, func(addr string) bool {
					nodes := rawReply(t, addr, "CLUSTER NODES\r\nQUIT\r\n")
					return strings.Contains(nodes, ",store-1.example.org ") != (hostname != "") ||
						strings.Contains(nodes, ",store-2.example.org ") != (hostname != "")
				})
			})
			for i := range real {
				for _, question := range []string{"CLUSTER SLOTS", "CLUSTER SHARDS", "CLUSTER NODES", "GET foo", "GET hello",
					"CONFIG GET cluster-preferred-endpoint-type", "CONFIG GET cluster-announce-hostname"} {
					for _, proto := range []string{"2", "3"} {
						want := told(t, real, i, proto, question)
						if got := told(t, c.Addrs(), i, proto, question); got != want {
							t.Errorf("host name %q, %s preferred: %s of node %d in RESP%s:\n%q, redis-server\n%q",
								hostname, preferred, question, i+1, proto, got, want)
						}
					}
				}
			}
		}
	}
}

// redisPair starts a Redis Cluster of two masters, each with half of the slots.
func redisPair(t *testing.T) (addrs []string) {
	for i, slots := range []string{"0 8191", "8192 16383"} {
		addr := redistest.RedisServer(t, "--cluster-enabled", "yes", "--cluster-node-timeout", "60000")
		addrs = append(addrs, addr)
		if got := rawReply(t, addr, fmt.Sprintf("CLUSTER ADDSLOTSRANGE %s\r\nCLUSTER SET-CONFIG-EPOCH %d\r\nQUIT\r\n",
			slots, i+1)); got != "+OK\r\n+OK\r\n+OK\r\n" {
			t.Fatalf("redis-server: %q", got)
		}
	}
	host, port, _ := net.SplitHostPort(addrs[1])
	if got := rawReply(t, addrs[0], fmt.Sprintf("CLUSTER MEET %s %s\r\nQUIT\r\n", host, port)); got != "+OK\r\n+OK\r\n" {
		t.Fatalf("CLUSTER MEET: %q", got)
	}
	await(t, "cluster of redis-server", func() bool {
		return !slices.ContainsFunc(addrs, func(addr string) bool {
			return !strings.Contains(rawReply(t, addr, "CLUSTER INFO\r\nQUIT\r\n"), "cluster_state:ok")
		})
	})
	return addrs
}

var (
	offset   = regexp.MustCompile(`(replication-offset\r\n):\d+`)
	nodeLine = regexp.MustCompile(`(?m)^(?:txt:)?(\w+ \S+)@\d+(,\S+)? (\S+) - \d+ \d+ \d+ connected`)
	length   = regexp.MustCompile(`^[$=]\d+\r\n`)
)

// told returns what a node of a cluster of two answers, in which ids and ports are those of the node's number. The order
// of nodes is that of their slots.
func told(t *testing.T, addrs []string, i int, proto, question string) string {
	text := rawReply(t, addrs[i], "HELLO "+proto+"\r\n"+question+"\r\nQUIT\r\n")
	_, text, _ = strings.Cut(text, "modules\r\n*0\r\n") // the end of HELLO's reply
	text = strings.TrimSuffix(text, "+OK\r\n")
	for j, addr := range addrs {
		_, port, _ := net.SplitHostPort(addr)
		id := strings.Split(rawReply(t, addr, "CLUSTER MYID\r\nQUIT\r\n"), "\r\n")[1]
		text = strings.NewReplacer(id, fmt.Sprint("ID", j+1), ":"+port, fmt.Sprint(":PORT", j+1)).Replace(text)
	}
	text = offset.ReplaceAllString(text, "$1:0")
	switch question {
	case "CLUSTER NODES":
		lines := strings.Split(nodeLine.ReplaceAllString(length.ReplaceAllString(text, ""), "$1$2 $3"), "\n")
		slices.Sort(lines)
		text = strings.Join(lines, "\n")
	case "CLUSTER SHARDS":
		shards := regexp.MustCompile(`(?:\*4|%2)\r\n\$5\r\nslots\r\n`).Split(text, -1)
		slices.Sort(shards)
		text = strings.Join(shards, "\n")
	}
	return text
}

var redirected = regexp.MustCompile(`(?m)^-> Redirected to slot .*\n`)

// TestRedisCliAnywhere writes and reads keys of all stores by redis-cli -c, through mapped ports, also when all leaders
// have moved, and by IPv6.
func TestRedisCliAnywhere(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	try := func(addr, value string) {
		var calls, want strings.Builder
		for i := range 100 {
			fmt.Fprintf(&calls, "SET key%d %s\nGET key%d\n", i, value, i)
			fmt.Fprintf(&want, "OK\n%s\n", value)
		}
		host, port, _ := net.SplitHostPort(addr)
		cli := exec.CommandContext(ctx, "redis-cli", "-c", "-h", host, "-p", port)
		cli.Stdin = strings.NewReader(calls.String())
		out, err := cli.CombinedOutput()
		if got := redirected.ReplaceAllString(string(out), ""); err != nil || got != want.String() {
			t.Errorf("redis-cli -c -h %s -p %s: %v\n%s", host, port, err, out)
		}
	}
	m := startMapped(t)
	through := func(want bool) {
		for i := range 3 {
			if got := m.passed[i].Swap(0) > 0; got != want {
				t.Errorf("redis-cli went through the mapped port of store %d: %v, want %v", i+1, got, want)
			}
		}
	}
	try(m.outside[0], "a")
	through(true)
	m.shift(t)
	try(m.outside[1], "b")
	through(true)
	try(m.Addrs()[2], "c")
	through(false)
	try(startIPv6(t).Addrs()[0], "d")
}
