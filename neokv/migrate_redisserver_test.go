//go:build redisserver

package neokv

import (
	"fmt"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/topology"
)

// TestMigrationOfRedis: two real redis-servers, one slot of which migrates, say what migrationTalk has.
func TestMigrationOfRedis(t *testing.T) {
	from := redistest.RedisServer(t, "--cluster-enabled", "yes")
	to := redistest.RedisServer(t, "--cluster-enabled", "yes")
	dial := func(addr string) (net.Conn, error) { return net.Dial("tcp", addr) }
	say := func(addr, text string) string {
		nc, err := dial(addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		return converse(t, nc, text)
	}
	host, port, err := net.SplitHostPort(to)
	if err != nil {
		t.Fatal(err)
	}
	say(from, "CLUSTER ADDSLOTSRANGE 0 16000; CLUSTER MEET "+host+" "+port)
	say(to, "CLUSTER ADDSLOTSRANGE 16001 16383")
	for _, addr := range []string{from, to} {
		await(t, "cluster of two", func() bool {
			info := say(addr, "CLUSTER INFO")
			return strings.Contains(info, "cluster_state:ok") && strings.Contains(info, "cluster_known_nodes:2")
		})
	}
	say(from, "SET {b}1 x; SET {b}2 y")
	say(to, "CLUSTER SETSLOT 3300 IMPORTING "+say(from, "CLUSTER MYID"))
	say(from, "CLUSTER SETSLOT 3300 MIGRATING "+say(to, "CLUSTER MYID"))
	talkThrough(t, from, to, dial)
}

// TestRedisCliThroughMigrations: redis-cli -c rides through a migration, --cluster check sees it while it is open and
// nothing else before and after, and what would move slots one by one is answered with what ctl does.
func TestRedisCliThroughMigrations(t *testing.T) {
	c := start(t, Config{Stores: 3, InMemory: true})
	cli := func(args ...string) string {
		out, _ := exec.CommandContext(t.Context(), "redis-cli", args...).CombinedOutput()
		return string(out)
	}
	host, port, err := net.SplitHostPort(c.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	check := func() string { return cli("--cluster", "check", c.Addrs()[0]) }
	awaitCheck := func(what string, ok func(string) bool) {
		last := ""
		defer func() {
			if t.Failed() {
				t.Log(last)
			}
		}()
		await(t, what, func() bool { last = check(); return ok(last) })
	}
	content := func(s string) bool {
		return strings.Contains(s, "All nodes agree about slots configuration") &&
			strings.Contains(s, "All 16384 slots covered") && !strings.Contains(s, "WARNING")
	}
	awaitCheck("content check", content)
	if got := cli("--cluster", "fix", c.Addrs()[0]); !content(got) {
		t.Errorf("fix outside of a migration:\n%s", got)
	}
	id := func(at int) string { return c.in.Places()[0].Store().Table().Store(topology.StoreID(at)).NodeID }
	for _, args := range [][]string{
		{"--cluster", "reshard", c.Addrs()[0], "--cluster-from", id(1), "--cluster-to", id(2), "--cluster-slots", "3",
			"--cluster-yes"},
		{"--cluster", "rebalance", c.Addrs()[0], "--cluster-weight", id(1) + "=5"},
	} {
		if got := cli(args...); !strings.Contains(got, "neokv ctl migrate") {
			t.Errorf("redis-cli %s does not name the verb of ctl:\n%s", strings.Join(args, " "), got)
		}
	}

	from, to := migrates(t, c, "3300-3303", "24h")
	awaitCheck("open slots", func(s string) bool {
		return strings.Contains(s, "slots in migrating state 3300,3301,3302,3303") &&
			strings.Contains(s, "slots in importing state 3300,3301,3302,3303")
	})
	if got := cli("--cluster", "fix", c.Addrs()[0]); !strings.Contains(got, "neokv ctl migrate") {
		t.Errorf("fix within a migration does not name the verb of ctl:\n%s", got)
	}
	for i := range 20 {
		key, value := fmt.Sprintf("{b}%d", i), fmt.Sprintf("v%d", i)
		if got := cli("-c", "-h", host, "-p", port, "set", key, value); !strings.Contains(got, "OK") {
			t.Errorf("SET within a migration: %s", got)
		}
		if got := cli("-c", "-h", host, "-p", port, "get", key); !strings.Contains(got, value) {
			t.Errorf("GET within a migration: %s", got)
		}
	}
	do(t, c, fmt.Sprintf("migrate %d ok", 3301))
	awaitCheck("content check", content)
	do(t, c, fmt.Sprintf("migrate 3300-3303 %d %d for 1s", from, to))
	for end := time.Now().Add(30 * time.Second); len(c.Status().Migrations) > 0 && time.Now().Before(end); {
		for i := range 20 {
			got, want := cli("-c", "-h", host, "-p", port, "get", fmt.Sprintf("{b}%d", i)), fmt.Sprintf("v%d", i)
			if !strings.Contains(got, want) {
				t.Errorf("GET while keys go: %s", got)
			}
		}
	}
	awaitCheck("content check", content)
}
