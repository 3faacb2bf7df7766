//go:build redisserver

package neokv

import (
	"bufio"
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// redisServer starts a real redis-server, alone or as a cluster of one, and returns how to reach it.
func redisServer(t *testing.T, cluster bool) func() (net.Conn, error) {
	t.Helper()
	args := []string{"--databases", "1"}
	if cluster {
		args = append(args, "--cluster-enabled", "yes")
	}
	addr := redistest.RedisServer(t, args...)
	dial := func() (net.Conn, error) { return net.Dial("tcp", addr) }
	if cluster {
		c, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		serveAllSlots(t, c)
	}
	return dial
}

// serveAllSlots makes a redis-server a cluster of one, and waits until it serves all slots.
func serveAllSlots(t *testing.T, c net.Conn) {
	r := bufio.NewReader(c)
	ask := func(command string) string {
		if _, err := fmt.Fprintf(c, "%s\r\n", command); err != nil {
			t.Fatal(err)
		}
		line, err := r.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		return line
	}
	if got := ask("CLUSTER ADDSLOTSRANGE 0 16383"); got != "+OK\r\n" {
		t.Fatalf("CLUSTER ADDSLOTSRANGE: %q", got)
	}
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		got := ask("GET a")
		if !strings.HasPrefix(got, "-CLUSTERDOWN") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("a cluster of one does not serve: %q", got)
		}
	}
}

var (
	compareCalls = flag.Int("compare.calls", 6000, "random calls of each comparison with redis-server")
	compareSeed  = flag.Uint64("compare.seed", 1, "seed of the random calls, 0 for a fresh one")
)

// skipInRaceBuild skips a test that takes the cluster in real time. The race detector, and the checks that Pebble makes
// in race builds, make the process so slow that leaders are lost. The packages redis and server compare the same
// replies under the race detector.
func skipInRaceBuild(t *testing.T) {
	if raceBuild {
		t.Skip("a race build is too slow for leaders to be heard in time")
	}
}

// TestRepliesOfTheCluster compares replies with those of a real redis-server, through sockets, Raft and apply: on the
// proxy port with keys of all regions, on the proxy port of a cluster of one region, and on a store's port with keys of
// one slot that the store leads.
//
//	go test -tags redisserver ./neokv -run TestRepliesOfTheCluster -compare.calls=50000 -compare.seed=7 -v
func TestRepliesOfTheCluster(t *testing.T) {
	skipInRaceBuild(t)
	seed := cmp.Or(*compareSeed, 1+uint64(rand.Uint32()))
	defer func() {
		if t.Failed() {
			t.Logf("again: go test -tags redisserver ./neokv -run TestRepliesOfTheCluster -compare.calls=%d "+
				"-compare.seed=%d",
				*compareCalls, seed)
		}
	}()
	calls := *compareCalls
	if testing.Short() {
		calls /= 10
	}
	// The test accepts no error that redis-server does not return. So leaders stay: no region goes back to the store
	// that led it at first, and no store looks for another leader before it has heard nothing for 0.8 s. That leaves
	// time for an election within redis.leaderless_wait.
	many, one := small(), settings.Default()
	one.Cluster.Regions = 1
	for _, k := range []*settings.Settings{many, &one} {
		k.Raft.LeaderReturn, k.Raft.RTT = 0, 80*time.Millisecond
	}
	c := start(t, Config{InMemory: true, Settings: many})
	whole := start(t, Config{InMemory: true, Settings: &one})
	table := c.in.Places()[0].Store().Table()
	first, _ := table.Region(0)
	var tag string
	var store topology.StoreID // not the leader of slot 0, which serves calls without a key
	for i := 0; tag == ""; i++ {
		if r, _ := table.Region(topology.SlotOf(fmt.Append(nil, i))); r.Leader != first.Leader {
			tag, store = fmt.Sprintf("{%d}", i), r.Leader
		}
	}
	for _, x := range []struct {
		name, addr, tag string
		spread, cluster bool
	}{
		// The store is first: if it came to lead other slots, its answers would have keys that were written through
		// the proxy.
		{"store", c.Addrs()[store-1], tag, false, true},
		{"proxy", c.ProxyAddr(), "", true, false},
		{"one region", whole.ProxyAddr(), "", false, false},
	} {
		want := redisServer(t, x.cluster)
		for _, proto := range []int{2, 3} {
			t.Run(fmt.Sprintf("%s/RESP%d", x.name, proto), func(t *testing.T) {
				report, err := redistest.Run(redistest.Options{
					Want: want, Got: func() (net.Conn, error) { return net.Dial("tcp", x.addr) },
					Seed: seed + uint64(proto), Calls: calls, Proto: proto, Tag: x.tag, Spread: x.spread,
					Cluster: x.cluster,
				})
				if report != nil {
					for _, d := range report.Differences {
						t.Error(d)
					}
				}
				if err != nil {
					t.Fatal(err)
				}
				t.Logf("seed %d: %d calls, %d of them answered with the same error, excepted %v",
					seed, report.Calls, report.Errors, report.Excepted)
			})
		}
	}
}

// TestCallsAreCountedLikeRedis compares what redis-server and a cluster have counted of the same calls, by command, and
// which command CLIENT LIST shows of a connection. A call counts under the name that the client used.
func TestCallsAreCountedLikeRedis(t *testing.T) {
	skipInRaceBuild(t)
	one := settings.Default()
	one.Cluster.Regions = 1
	cluster := start(t, Config{InMemory: true, Settings: &one})
	counted := func(dial func() (net.Conn, error)) []string {
		connect := func() (ask func(call string) redistest.ReplyValue, ended func() bool) {
			c, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(c)
			return func(call string) redistest.ReplyValue {
					if _, err := fmt.Fprintf(c, "%s\r\n", call); err != nil {
						t.Fatal(err)
					}
					v, err := redistest.Read(r)
					if err != nil {
						t.Fatalf("%s: %v", call, err)
					}
					return v
				}, func() bool {
					_, err := r.ReadByte()
					return err == io.EOF
				}
		}
		ask, _ := connect()
		other, _ := connect()
		for _, call := range []string{
			"CONFIG RESETSTAT", "RPUSH l 2 1", "SET x 1", "SORT l", "sort l LIMIT 0 1", "SORT l STORE d", "SORT_RO l",
			"SORT", "SORT_RO", "SORT l STORE", "SORT x", "SORT x STORE d", "SORT_RO x", "GETEX x", "GETEX x EX 100",
			"GETEX l", "GETEX", "PING", "PING a b", "NOPE", "OBJECT ENCODING x", "OBJECT NOPE x", "CLIENT GETNAME",
		} {
			ask(call)
		}
		for _, call := range []string{"QUIT", "QUIT a b"} {
			quit, ended := connect()
			if quit(call); !ended() {
				t.Errorf("%s leaves the connection open", call)
			}
		}
		ask("SORT l")
		var all []string
		for _, field := range strings.Fields(string(other("CLIENT LIST").Text)) {
			if strings.HasPrefix(field, "cmd=") {
				all = append(all, field)
			}
		}
		for line := range strings.Lines(string(ask("INFO commandstats").Text)) {
			name, stats, ok := strings.Cut(strings.TrimSpace(line), ":")
			if !ok {
				continue
			}
			for _, stat := range strings.Split(stats, ",") {
				if !strings.HasPrefix(stat, "usec") {
					name += " " + stat
				}
			}
			all = append(all, name)
		}
		for line := range strings.Lines(string(ask("INFO latencystats").Text)) {
			if name, _, ok := strings.Cut(line, ":"); ok {
				all = append(all, name)
			}
		}
		slices.Sort(all)
		return all
	}
	want := counted(redisServer(t, false))
	got := counted(func() (net.Conn, error) { return net.Dial("tcp", cluster.ProxyAddr()) })
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("Redis has no %s", line)
		}
	}
}

// TestShownLikeRedis compares what MONITOR, SLOWLOG and INFO tell of transactions and scripts.
func TestShownLikeRedis(t *testing.T) {
	skipInRaceBuild(t)
	one := settings.Default()
	one.Cluster.Regions = 1
	cluster := start(t, Config{InMemory: true, Settings: &one})
	varies := regexp.MustCompile(`^\d+\.\d{6} (\[0 [\d.:]+\] )?`)
	shown := func(dial func() (net.Conn, error)) (all []string) {
		connect := func() (ask func(call string) redistest.ReplyValue, next func() redistest.ReplyValue) {
			c, err := dial()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { c.Close() })
			if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
				t.Fatal(err)
			}
			r := bufio.NewReader(c)
			next = func() redistest.ReplyValue {
				v, err := redistest.Read(r)
				if err != nil {
					t.Fatal(err)
				}
				return v
			}
			return func(call string) redistest.ReplyValue {
				if _, err := fmt.Fprintf(c, "%s\r\n", call); err != nil {
					t.Fatal(err)
				}
				return next()
			}, next
		}
		admin, _ := connect()
		watch, line := connect()
		admin("CONFIG SET slowlog-log-slower-than 0")
		watch("MONITOR")
		for _, session := range [][]string{
			{"MULTI", "SET a 1", "GET a", "EXEC"},
			{"MULTI", "SET a 1", "DISCARD"},
			{"WATCH a", "UNWATCH", "EXEC", "DISCARD"},
			{"MULTI", "NOPE", "SET a 1", "EXEC"},
			{"MULTI", "MULTI", "WATCH a", "EXEC"},
			{"WATCH a", "SET a 2", "MULTI", "GET a", "EXEC"},
			{"SET s x", "MULTI", "INCR s", "LPUSH s y", "PING", "EXEC"},
			{"MULTI", "GET", "EXEC", "EXEC"},
			{"EXEC a", "MULTI", "EXEC a", "EXEC"},
			{"MULTI a", "WATCH", "DISCARD a", "UNWATCH a"},
			{"MULTI", "AUTH default x", "CONFIG GET save", "CLIENT SETNAME me", "EXEC"},
			{"MULTI", "DEBUG x", "GET a", "EXEC"},
			{"MULTI", "EXEC"},
			{"MULTI", "GET a", "RESET", "EXEC"},
			{`EVAL "redis.call('SET', KEYS[1], ARGV[1]) return redis.pcall('GET')" 1 a v`},
			{`EVAL "redis.call('INCR', KEYS[1]) return redis.call('GET', KEYS[1])" 1 n`,
				`EVAL_RO "return redis.call('GET', KEYS[1])" 1 n`},
			{"MULTI", `EVAL "return redis.call('SET', KEYS[1], ARGV[1])" 1 a 2`, "GET a",
				`EVAL_RO "return redis.call('STRLEN', KEYS[1])" 1 a`, "EXEC"},
			{`EVAL "return redis.call('LPUSH', KEYS[1], 'x')" 1 a`, `EVAL "return redis.pcall('NOPE')" 1 a`},
			{`EVAL "redis.call('PING') redis.call('ZADD', KEYS[1], 1, 'a') return redis.call('ECHO', 'x')" 1 z`},
			{`EVAL "return redis.call('WATCH', KEYS[1])" 1 z`, `EVAL "return redis.pcall('MULTI')" 1 z`},
			{`EVAL "redis.pcall('INCR', KEYS[1]) return 1" 1 s`, `EVAL "return redis.error_reply('MY own')" 0`,
				`EVAL "error('text')" 1 a`},
		} {
			admin("SLOWLOG RESET")
			admin("CONFIG RESETSTAT")
			ask, _ := connect()
			for _, call := range session {
				ask(call)
			}
			ask("ECHO that-end")
			name := strings.Join(session, "; ")
			for text := ""; !strings.Contains(text, "that-end"); {
				text = varies.ReplaceAllString(string(line().Text), "")
				all = append(all, name+": MONITOR "+text)
			}
			for _, call := range admin("SLOWLOG GET").Items {
				text := name + ": SLOWLOG"
				for _, arg := range call.Items[3].Items {
					text += " " + string(arg.Text)
				}
				all = append(all, text)
			}
			for stat := range strings.Lines(string(admin("INFO commandstats").Text)) {
				what, stats, _ := strings.Cut(strings.TrimSpace(stat), ":")
				for _, n := range strings.Split(stats, ",") {
					if !strings.HasPrefix(n, "usec") {
						what += " " + n
					}
				}
				all = append(all, name+": INFO "+what)
			}
			for stat := range strings.Lines(string(admin("INFO errorstats").Text)) {
				all = append(all, name+": INFO "+strings.TrimSpace(stat))
			}
		}
		slices.Sort(all)
		return all
	}
	want := shown(redisServer(t, false))
	got := shown(func() (net.Conn, error) { return net.Dial("tcp", cluster.ProxyAddr()) })
	for _, line := range want {
		if !slices.Contains(got, line) {
			t.Errorf("missing: %s", line)
		}
	}
	for _, line := range got {
		if !slices.Contains(want, line) {
			t.Errorf("Redis has no %s", line)
		}
	}
	if len(want) != len(got) {
		t.Errorf("%d lines, want %d", len(got), len(want))
	}
}

// TestRedisTools runs the cluster check of redis-cli, and all tests of redis-benchmark, of which MSET is the last,
// against the cluster and its proxy port.
func TestRedisTools(t *testing.T) {
	skipInRaceBuild(t)
	c := start(t, Config{InMemory: true})
	host, port, err := net.SplitHostPort(c.Addrs()[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		want string
		args []string
	}{
		{"All 16384 slots covered", []string{"redis-cli", "--cluster", "check", net.JoinHostPort(host, port)}},
		{"bar", []string{
			"sh", "-c", fmt.Sprintf("redis-cli -c -p %s set foo bar && redis-cli -c -p %s get foo", port, port),
		}},
		{"MSET (10 keys)", []string{"redis-benchmark", "--cluster", "-p", port, "-n", "2000", "-q", "-P", "4"}},
		{"MSET (10 keys)", []string{
			"redis-benchmark", "-p", strings.TrimPrefix(c.ProxyAddr(), host+":"), "-n", "2000", "-q",
		}},
	} {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		out, err := exec.CommandContext(ctx, x.args[0], x.args[1:]...).CombinedOutput()
		cancel()
		if err != nil || !strings.Contains(string(out), x.want) || strings.Contains(string(out), "rror") {
			t.Errorf("%q: %v\n%s", x.args, err, out)
		}
	}
}

// TestLookupsAreRedis: a store's port counts keys that commands look up, found or missed, as a redis-server does, also
// those that writes only read, and those of transactions and scripts.
func TestLookupsAreRedis(t *testing.T) {
	theirs := redisServer(t, false)
	c := start(t, Config{Stores: 1, Regions: 2, InMemory: true, NoSockets: true})
	dials := []func() (net.Conn, error){theirs, func() (net.Conn, error) { return c.Dial(t.Context(), c.Addrs()[0]) }}
	var conns [2]net.Conn
	var ins [2]*bufio.Reader
	for i, dial := range dials {
		conn, err := dial()
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		conns[i], ins[i] = conn, bufio.NewReader(conn)
	}
	ask := func(i int, call string) string {
		if _, err := fmt.Fprintf(conns[i], "%s\r\n", call); err != nil {
			t.Fatal(err)
		}
		v, err := redistest.Read(ins[i])
		if err != nil {
			t.Fatal(err)
		}
		return string(v.Text)
	}
	counted := regexp.MustCompile(`keyspace_(hits|misses):\d+`)
	before := [2]string{}
	for _, calls := range []string{"set {t}k 1", "get {t}k", "get {t}no", "getset {t}k 2", "getset {t}new 1",
		"getex {t}k ex 100", "getex {t}no persist", "copy {t}k {t}k2", "copy {t}no {t}k2", "set {t}k 3 get",
		"set {t}absent 3 xx get", "getdel {t}k2", "getdel {t}k2", "sadd {t}s a b c", "sinterstore {t}d {t}s {t}no",
		"spop {t}s 9", "zadd {t}z 1 a", "zrangestore {t}d {t}z 0 -1", "zrangestore {t}d {t}k 0 -1", "incr {t}k",
		"multi;get {t}k;get {t}no;set {t}k 1;getset {t}k 4;exec", "multi;get {t}k;get {t}no;exec",
		`eval "redis.call('get', KEYS[1]) redis.call('get', KEYS[2]) return redis.call('set', KEYS[1], 5)" 2 {t}k {t}no`,
		`eval_ro "return redis.call('get', KEYS[1])" 1 {t}k`, "object encoding {t}no", "memory usage {t}k", "del {t}k"} {
		var got [2]string
		for i := range conns {
			for call := range strings.SplitSeq(calls, ";") {
				ask(i, call)
			}
			got[i] = strings.Join(counted.FindAllString(ask(i, "info stats"), -1), " ")
		}
		if got[1] != got[0] {
			t.Errorf("after %q: %s; want %s, from %s", calls, got[1], got[0], before[0])
		}
		before = got
	}
}
