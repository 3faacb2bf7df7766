package neokv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"neokv.dev/neokv/internal/redis/redistest"
	"neokv.dev/neokv/internal/topology"
)

// migrationTalk is what clients of the two stores of a migration say, each pipeline on a connection of its own, and
// what redis-server 7.0.15 replies. The slot has the keys {b}1 and {b}2, which have not gone, and no others. FROM and
// TO stand for addresses.
var migrationTalk = []struct{ at, say, want string }{
	{"from", "GET {b}1", "x"},
	{"from", "GET {b}9", "-ASK 3300 TO"},
	{"from", "GET 50", "nil"}, // of another slot
	{"from", "MGET {b}1 {b}2", "[x y]"},
	{"from", "MGET {b}1 {b}9", "-TRYAGAIN Multiple keys request during rehashing of slot"},
	{"from", "MGET {b}8 {b}9", "-ASK 3300 TO"},
	{"from", "MGET {b}9 {b}9", "-ASK 3300 TO"},
	{"from", "MSET {b}1 x {b}2 y", "+OK"},
	{"from", "EXISTS {b}1", ":1"},
	{"from", "MULTI; GET {b}1; GET {b}2; EXEC", "+OK | +QUEUED | +QUEUED | [x y]"},
	{"from", "MULTI; SET {b}9 1; EXEC",
		"+OK | -ASK 3300 TO | -EXECABORT Transaction discarded because of previous errors."},
	{"from", "MULTI; GET {b}1; GET {b}9; EXEC",
		"+OK | +QUEUED | -ASK 3300 TO | -EXECABORT Transaction discarded because of previous errors."},
	{"from", "EVAL \"return redis.call('get',KEYS[1])\" 1 {b}1", "x"},
	{"from", "EVAL \"return 1\" 1 {b}9", "-ASK 3300 TO"},
	{"from", "EVAL \"return 1\" 2 {b}1 {b}9", "-TRYAGAIN Multiple keys request during rehashing of slot"},
	{"from", "WATCH {b}9", "-ASK 3300 TO"},
	{"from", "WATCH {b}1 {b}9", "-TRYAGAIN Multiple keys request during rehashing of slot"},
	{"from", "WATCH {b}1; MULTI; GET {b}1; EXEC", "+OK | +OK | +QUEUED | [x]"},
	{"from", "BLPOP {b}9 1", "-ASK 3300 TO"},
	{"from", "SPUBLISH {b}9 hi", ":0"},
	{"from", "SSUBSCRIBE {b}9", "[ssubscribe {b}9 :1]"},
	{"from", "PING", "+PONG"},
	{"from", "ASKING; GET {b}9", "+OK | -ASK 3300 TO"},
	{"from", "READONLY; GET {b}9", "+OK | -ASK 3300 TO"},

	{"to", "GET {b}1", "-MOVED 3300 FROM"},
	{"to", "GET {b}9", "-MOVED 3300 FROM"},
	{"to", "ASKING; GET {b}9; GET {b}9", "+OK | nil | -MOVED 3300 FROM"},
	{"to", "ASKING; PING; GET {b}9", "+OK | +PONG | -MOVED 3300 FROM"},
	{"to", "ASKING; ASKING; GET {b}9", "+OK | +OK | nil"},
	{"to", "ASKING; SET a; GET {b}9",
		"+OK | -ERR wrong number of arguments for 'set' command | -MOVED 3300 FROM"},
	{"to", "ASKING; MGET {b}8 {b}9", "+OK | -TRYAGAIN Multiple keys request during rehashing of slot"},
	{"to", "ASKING; MGET {b}9 {b}9", "+OK | [nil nil]"},
	{"to", "ASKING; MSET {b}8 1 {b}9 1", "+OK | -TRYAGAIN Multiple keys request during rehashing of slot"},
	{"to", "ASKING; MULTI; GET {b}9; GET {b}9; EXEC; GET {b}9",
		"+OK | +OK | +QUEUED | +QUEUED | [nil nil] | -MOVED 3300 FROM"},
	{"to", "ASKING; MULTI; GET {b}8; GET {b}9; EXEC; GET {b}9",
		"+OK | +OK | +QUEUED | +QUEUED | -TRYAGAIN Multiple keys request during rehashing of slot | -MOVED 3300 FROM"},
	{"to", "MULTI; ASKING; GET {b}9; EXEC", "+OK | +QUEUED | -MOVED 3300 FROM | " +
		"-EXECABORT Transaction discarded because of previous errors."},
	{"to", "ASKING; WATCH {b}9; MULTI; GET {b}9; EXEC", "+OK | +OK | +OK | -MOVED 3300 FROM | " +
		"-EXECABORT Transaction discarded because of previous errors."},
	{"to", "ASKING; EVAL \"return redis.call('exists',KEYS[1])\" 1 {b}9", "+OK | :0"},
	{"to", "ASKING; EVAL \"return 1\" 2 {b}8 {b}9", "+OK | -TRYAGAIN Multiple keys request during rehashing of slot"},
	{"to", "ASKING; BLPOP {b}9 0.01", "+OK | nil"},
	{"to", "BLPOP {b}9 0.01", "-MOVED 3300 FROM"},
	{"to", "SPUBLISH {b}9 hi", "-MOVED 3300 FROM"},
	{"to", "ASKING; SPUBLISH {b}9 hi", "+OK | :0"},
	{"to", "ASKING; SSUBSCRIBE {b}9", "+OK | [ssubscribe {b}9 :1]"},
	{"to", "ASKING; SET {b}5 v", "+OK | +OK"},
	{"to", "ASKING; GET {b}5", "+OK | v"},
}

// shown is a reply in one line.
func shown(v redistest.ReplyValue) string {
	switch {
	case v.Null:
		return "nil"
	case v.Kind == '*' || v.Kind == '>':
		var items []string
		for _, x := range v.Items {
			items = append(items, shown(x))
		}
		return "[" + strings.Join(items, " ") + "]"
	case v.Kind == '$':
		return string(v.Text)
	}
	return string(v.Kind) + string(v.Text)
}

// converse sends the commands of a pipeline, with semicolons between, and returns the replies.
func converse(t *testing.T, nc net.Conn, say string) string {
	t.Helper()
	var b []byte
	calls := strings.Split(say, "; ")
	for _, text := range calls {
		words, err := redistest.ParseCall(text)
		if err != nil {
			t.Fatal(err)
		}
		var args [][]byte
		for _, w := range words {
			args = append(args, []byte(w))
		}
		b = redistest.AppendCall(b, args...)
	}
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	if _, err := nc.Write(b); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(nc)
	var out []string
	for range calls {
		v, err := redistest.Read(in)
		if err != nil {
			t.Fatalf("%s: %v", say, err)
		}
		out = append(out, shown(v))
	}
	return strings.Join(out, " | ")
}

// talkThrough holds migrationTalk with two nodes, and compares the replies.
func talkThrough(t *testing.T, from, to string, dial func(addr string) (net.Conn, error)) {
	names := strings.NewReplacer(from, "FROM", to, "TO")
	say := func(addr, text string) string {
		nc, err := dial(addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		return names.Replace(converse(t, nc, text))
	}
	for _, x := range migrationTalk {
		addr := from
		if x.at == "to" {
			addr = to
		}
		if got := say(addr, x.say); got != x.want {
			t.Errorf("at %s: %s\ngot:  %s\nwant: %s", x.at, x.say, got, x.want)
		}
	}
}

// migrates begins a migration of slots from whichever store leads them to the one behind it. It returns both. It tries
// again while the slots have no leader, or lose it.
func migrates(t *testing.T, c *Cluster, slots, form string) (from, to int) {
	t.Helper()
	var first int
	fmt.Sscanf(slots, "%d", &first)
	for end := time.Now().Add(30 * time.Second); ; time.Sleep(time.Millisecond) {
		for _, r := range c.Status().Regions {
			var a, b int
			if n, _ := fmt.Sscanf(r.Slots, "%d-%d", &a, &b); n == 1 {
				b = a
			}
			if a <= first && first <= b {
				from = r.Leader
			}
		}
		to = 1 + from%len(c.in.Places())
		err := doText(t.Context(), c, fmt.Sprintf("migrate %s %d %d for %s", slots, from, to, form))
		if err == nil {
			return from, to
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// TestMigrationReplies: what clients are told while they are shown a migration is what a real redis-server tells them.
func TestMigrationReplies(t *testing.T) {
	c := start(t, Config{Stores: 3, InMemory: true, NoSockets: true})
	from, to := migrates(t, c, "3300", "24h")
	dial := func(addr string) (net.Conn, error) { return c.Dial(t.Context(), addr) }
	nc, err := dial(c.Addrs()[to-1])
	if err != nil {
		t.Fatal(err)
	}
	converse(t, nc, "ASKING; SET {b}1 x; ASKING; SET {b}2 y") // they stay for hours
	id := func(at int) string {
		s := c.in.Places()[0].Store().Table().Store(topology.StoreID(at))
		return s.NodeID
	}
	for at, want := range map[int]string{
		from: fmt.Sprintf(" [3300->-%s]", id(to)), to: fmt.Sprintf(" [3300-<-%s]", id(from)), 6 - from - to: "",
	} {
		nc, err := dial(c.Addrs()[at-1])
		if err != nil {
			t.Fatal(err)
		}
		nodes := converse(t, nc, "CLUSTER NODES")
		if want == "" && strings.Contains(nodes, "[") || strings.Count(nodes, want) < 1 || strings.Count(nodes, "[") > 1 {
			t.Errorf("CLUSTER NODES at store %d lacks %q, or has more:\n%s", at, want, nodes)
		}
	}
	talkThrough(t, c.Addrs()[from-1], c.Addrs()[to-1], dial)
}

// TestMigrationEnds: at the end the target leads the slots and keeps them; a migration that is called off, or that
// loses the leader, leaves nothing behind.
func TestMigrationEnds(t *testing.T) {
	c := start(t, Config{Stores: 3, InMemory: true, NoSockets: true})
	get := func(store int, key string) string {
		nc, err := c.Dial(t.Context(), c.Addrs()[store-1])
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		return converse(t, nc, "GET "+key)
	}
	over := func() bool { return len(c.Status().Migrations) == 0 }
	// It goes over the border of two regions that one store leads.
	do(t, c, "transfer 1 1", "transfer 2 1")
	await(t, "leader of both", func() bool {
		return c.in.Places().LeaderOf(1) == c.in.Places()[0] && c.in.Places().LeaderOf(2) == c.in.Places()[0]
	})
	do(t, c, "migrate 2000-3300 1 3 for 100ms")
	for _, slots := range []string{"3300", "0-2000", "2500-2600"} {
		err := doText(t.Context(), c, fmt.Sprintf("migrate %s 1 2", slots))
		if err == nil || !strings.Contains(err.Error(), "store 1 migrates the slots 2000-3300 to store 3 already") {
			t.Errorf("a migration beside the open one of 2000-3300: %v", err)
		}
	}
	await(t, "end", over)
	if got, want := get(1, "b"), fmt.Sprintf("-MOVED 3300 %s", c.Addrs()[2]); got != want {
		t.Errorf("at the source after the end: %s; want %s", got, want)
	}
	if got := get(3, "b"); got != "nil" {
		t.Errorf("at the target after the end: %s; want nil", got)
	}
	for _, r := range c.Status().Regions {
		if strings.HasPrefix(r.Slots, "2000-") && (r.Leader != 3 || !r.Pinned) {
			t.Errorf("%+v; want leader 3, pinned", r)
		}
	}

	do(t, c, "migrate 3300 3 1")
	if got := get(3, "b"); !strings.HasPrefix(got, "-ASK 3300 ") {
		t.Errorf("at the source: %s; want ASK", got)
	}
	do(t, c, "migrate 3000-3500 ok")
	await(t, "call off", over)
	await(t, "answer of the source", func() bool { return get(3, "b") == "nil" })

	region := 0
	do(t, c, "migrate 3300 3 1 for 1h")
	for _, r := range c.Status().Regions {
		if r.Slots == "3300" {
			region = r.Region
		}
	}
	do(t, c, fmt.Sprintf("transfer %d 2", region))
	await(t, "end with the lead", over)
	if got, want := get(3, "b"), fmt.Sprintf("-MOVED 3300 %s", c.Addrs()[1]); got != want {
		t.Errorf("where the lead was lost: %s; want %s", got, want)
	}

	do(t, c, "migrate 3300 2 1 for 1h", "kill 2")
	await(t, "end with the store", over)
	do(t, c, "heal")
	do(t, c, fmt.Sprintf("transfer %d 2", region), "migrate 3300 2 1 for 1h", "heal")
	await(t, "end by heal", over)
}

// TestMigrationsRefused: each error says what there is, or what is wanted.
func TestMigrationsRefused(t *testing.T) {
	k := small()
	k.Cluster.Replicas = 3
	c := start(t, Config{Stores: 4, InMemory: true, NoSockets: true, Settings: k})
	await(t, "leaders at home", func() bool { return c.in.Places().LeaderOf(1) == c.in.Places()[0] })
	for text, want := range map[string]string{
		"migrate 0-16384 1 2":         `slots "0-16384": want a slot from 0 to 16383, or two as in 100-199`,
		"migrate 9-3 1 2":             `slots "9-3": want a slot from 0 to 16383`,
		"migrate x 1 2":               `slots "x": want a slot from 0 to 16383`,
		"migrate 0-9 1 1":             "store 1 is both FROM and TO; want two stores",
		"migrate 0-9 1 5":             "there is no store 5; want 1 to 4",
		"migrate 0-9 7 1":             "there is no store 7; want 1 to 4",
		"migrate 0-9 1 2 for -1s":     `"-1s": want whole milliseconds from 1ms to 24h0m0s, such as 10s`,
		"migrate 0-9 1 2 for 1.5ms":   "want whole milliseconds",
		"migrate 0-9 1 2 for 25h":     "want whole milliseconds from 1ms to 24h0m0s",
		"migrate 0-9 1":               "want FROM TO, FROM TO for TIME, or ok",
		"migrate 0-9 2 1":             "store 2 does not lead region 1, which has the slots 0-2047: store 1 does",
		"migrate 0-9 1 4":             "store 4 has no replica of region 1, which has the slots 0-2047, and replicas do not",
		"migrate 0-9 1 2 for 1ms now": "want FROM TO",
	} {
		if err := doText(t.Context(), c, text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v; want %s", text, err, want)
		}
	}
	if n := len(c.Status().Regions); n != k.Cluster.Regions {
		t.Errorf("%d regions; want %d: what is refused splits none", n, k.Cluster.Regions)
	}
	do(t, c, "stop 2")
	err := doText(t.Context(), c, "migrate 0-9 1 2")
	if err == nil || !strings.Contains(err.Error(), "store 2 does not run") {
		t.Errorf("to a store that does not run: %v", err)
	}
}

// errorsSent returns how many errors of a kind the stores have answered.
func errorsSent(t *testing.T, c *Cluster, kind string) (all int) {
	t.Helper()
	for _, addr := range c.Addrs() {
		nc, err := c.Dial(t.Context(), addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		if _, count, ok := strings.Cut(converse(t, nc, "INFO errorstats"), "errorstat_"+kind+":count="); ok {
			n := 0
			fmt.Sscan(count, &n)
			all += n
		}
	}
	return all
}

// migrationRider is a client library, for keys with one owner each.
type migrationRider struct {
	set      func(key string, value int) error
	get      func(key string) (string, error) // "" for none
	del      func(key string) error
	incr     func(key string) (int64, error)
	mget     func(keys ...string) ([]string, error)
	mset     func(value int, keys ...string) error
	transact func(value int, key string) (string, error) // SET and GET in MULTI
	script   func(value int, key string) (string, error) // the same
	close    func()
}

const setAndGet = "redis.call('set', KEYS[1], ARGV[1]) return redis.call('get', KEYS[1])"

func goRedisMigrant(_ *testing.T, c *Cluster) (migrationRider, error) {
	ctx := context.Background()
	client := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
	text := func(s string, err error) (string, error) {
		if errors.Is(err, redis.Nil) {
			err = nil
		}
		return s, err
	}
	return migrationRider{
		set:  func(key string, value int) error { return client.Set(ctx, key, value, 0).Err() },
		get:  func(key string) (string, error) { return text(client.Get(ctx, key).Result()) },
		del:  func(key string) error { return client.Del(ctx, key).Err() },
		incr: func(key string) (int64, error) { return client.Incr(ctx, key).Result() },
		mget: func(keys ...string) (all []string, err error) {
			values, err := client.MGet(ctx, keys...).Result()
			for _, v := range values {
				s, _ := v.(string)
				all = append(all, s)
			}
			return all, err
		},
		mset: func(value int, keys ...string) error {
			var pairs []any
			for _, k := range keys {
				pairs = append(pairs, k, value)
			}
			return client.MSet(ctx, pairs...).Err()
		},
		transact: func(value int, key string) (string, error) {
			var got *redis.StringCmd
			_, err := client.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Set(ctx, key, value, 0)
				got = p.Get(ctx, key)
				return nil
			})
			return got.Val(), err
		},
		script: func(value int, key string) (string, error) {
			return text(client.Eval(ctx, setAndGet, []string{key}, value).Text())
		},
		close: func() { client.Close() },
	}, nil
}

func rueidisMigrant(_ *testing.T, c *Cluster) (migrationRider, error) {
	ctx := context.Background()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.Addrs(), DisableCache: true})
	if err != nil {
		return migrationRider{}, err
	}
	text := func(r rueidis.RedisResult) (string, error) {
		s, err := r.ToString()
		if rueidis.IsRedisNil(err) {
			err = nil
		}
		return s, err
	}
	do := func(args ...string) rueidis.RedisResult {
		return client.Do(ctx, client.B().Arbitrary(args[0]).Keys(args[1]).Args(args[2:]...).Build())
	}
	return migrationRider{
		set:  func(key string, value int) error { return do("SET", key, fmt.Sprint(value)).Error() },
		get:  func(key string) (string, error) { return text(do("GET", key)) },
		del:  func(key string) error { return do("DEL", key).Error() },
		incr: func(key string) (int64, error) { return do("INCR", key).AsInt64() },
		mget: func(keys ...string) ([]string, error) {
			return client.Do(ctx, client.B().Mget().Key(keys...).Build()).AsStrSlice()
		},
		mset: func(value int, keys ...string) error {
			b := client.B().Mset().KeyValue()
			for _, k := range keys {
				b = b.KeyValue(k, fmt.Sprint(value))
			}
			return client.Do(ctx, b.Build()).Error()
		},
		transact: func(value int, key string) (string, error) {
			var got string
			err := client.Dedicated(func(d rueidis.DedicatedClient) error {
				all := d.DoMulti(ctx, d.B().Multi().Build(), d.B().Set().Key(key).Value(fmt.Sprint(value)).Build(),
					d.B().Get().Key(key).Build(), d.B().Exec().Build())
				items, err := all[3].ToArray()
				if err != nil {
					return err
				}
				got, err = items[1].ToString()
				return err
			})
			return got, err
		},
		script: func(value int, key string) (string, error) {
			return text(client.Do(ctx, client.B().Eval().Script(setAndGet).Numkeys(1).Key(key).Arg(fmt.Sprint(value)).Build()))
		},
		close: client.Close,
	}, nil
}

// nodeMigrant returns a client in JavaScript, by its name in testdata/rider.js.
func nodeMigrant(client string) func(*testing.T, *Cluster) (migrationRider, error) {
	return func(t *testing.T, c *Cluster) (migrationRider, error) {
		ask, end, err := startProgram(t, nodeProgram(t, c, client))
		if err != nil {
			return migrationRider{}, err
		}
		return migrationRider{
			set: func(key string, value int) error { _, err := ask("set", key, value); return err },
			get: func(key string) (string, error) { return ask("get", key) },
			del: func(key string) error { _, err := ask("del", key); return err },
			incr: func(key string) (n int64, err error) {
				reply, err := ask("incr", key)
				if err == nil {
					n, err = strconv.ParseInt(reply, 10, 64)
				}
				return n, err
			},
			mget: func(keys ...string) ([]string, error) {
				reply, err := ask("mget", strings.Join(keys, " "))
				return strings.Split(reply, ","), err
			},
			mset: func(value int, keys ...string) error {
				request := []any{"mset"}
				for _, k := range keys {
					request = append(request, k, value)
				}
				_, err := ask(request...)
				return err
			},
			transact: func(value int, key string) (string, error) { return ask("transact", key, value) },
			script:   func(value int, key string) (string, error) { return ask("script", key, value) },
			close:    end,
		}, nil
	}
}

// migrating reports whether an error says that the command did not run, in the words of a cluster that migrates slots.
func migrating(err error) bool {
	return err != nil && (strings.Contains(err.Error(), "TRYAGAIN") || strings.Contains(err.Error(), "ASK ") ||
		strings.Contains(err.Error(), "EXECABORT") || strings.Contains(err.Error(), "MOVED "))
}

// The kinds of calls of rideMigration.
const (
	oneKey   = 7 // with one key each
	allKinds = 9 // and with two
)

// rideMigration uses keys of its own until stop is closed, by calls of some kinds, and checks each reply. It returns
// how many commands ran, and how many were refused, which only those with two keys and transactions may be.
func rideMigration(x migrationRider, id string, kinds int, tags []string, random *rand.Rand,
	stop <-chan struct{}) (ran, refused int, err error) {
	model := make(map[string]string)
	counts := make(map[string]int64)
	behind := 0 // writes that a busy machine did not answer in time
	for n := 1; ; n++ {
		select {
		case <-stop:
			return ran, refused, nil
		case <-time.After(time.Duration(random.IntN(2000)) * time.Microsecond):
		}
		tag := tags[random.IntN(len(tags))]
		key := func() string { return fmt.Sprintf("{%s}%s-%d", tag, id, random.IntN(30)) }
		a, b, value := key(), key(), fmt.Sprint(n)
		var got, want string
		err := error(nil)
		what := random.IntN(kinds)
		mayFail := what >= oneKey
		switch what {
		case 0, 1:
			if err = x.set(a, n); err == nil {
				model[a] = value
			}
		case 2, 3:
			got, err = x.get(a)
			want = model[a]
		case 4:
			if err = x.del(a); err == nil {
				delete(model, a)
			}
		case 5:
			c := "n" + a
			var is int64
			if is, err = x.incr(c); err == nil {
				counts[c]++
				got, want = fmt.Sprint(is), fmt.Sprint(counts[c])
			}
		case 6:
			do := x.script
			if random.IntN(2) == 0 {
				do, mayFail = x.transact, true
			}
			if got, err = do(n, a); err == nil {
				model[a], want = value, value
			}
		case 7:
			var all []string
			if all, err = x.mget(a, b); err == nil {
				got, want = fmt.Sprintf("%q", all), fmt.Sprintf("%q", []string{model[a], model[b]})
			}
		case 8:
			if err = x.mset(n, a, b); err == nil {
				model[a], model[b] = value, value
			}
		}
		switch {
		case migrating(err) && mayFail:
			refused++
		case late(err) && behind < 2: // what these keys hold nobody knows, so others follow
			behind++
			id += "-"
			clear(model)
			clear(counts)
		case err != nil:
			return ran, refused, fmt.Errorf("keys %s, %s: %w", a, b, err)
		case got != want:
			return ran, refused, fmt.Errorf("keys %s, %s: got %s; want %s", a, b, got, want)
		default:
			ran++
		}
	}
}

// TestRidersThroughMigrations has client libraries with their own defaults use slots that migrate, from store to store.
func TestRidersThroughMigrations(t *testing.T) {
	c := start(t, Config{Stores: 3, InMemory: true})
	var tags []string
	for n := 0; len(tags) < 5; n++ {
		if tag := fmt.Sprint(n); topology.SlotOf([]byte(tag)) >= 3000 && topology.SlotOf([]byte(tag)) < 4000 {
			tags = append(tags, tag)
		}
	}
	seed := rand.Uint64()
	for _, lib := range []struct {
		name    string
		open    func(*testing.T, *Cluster) (migrationRider, error)
		givesUp bool // at the first TRYAGAIN
	}{
		{name: "go-redis", open: goRedisMigrant},
		{name: "rueidis", open: rueidisMigrant},
		{name: "ioredis", open: nodeMigrant("ioredis")},
		{name: "node-redis", open: nodeMigrant("node-redis"), givesUp: true},
	} {
		t.Run(lib.name, func(t *testing.T) {
			askBefore, tryAgainBefore := errorsSent(t, c, "ASK"), errorsSent(t, c, "TRYAGAIN")
			client, err := lib.open(t, c)
			if err != nil {
				t.Fatal(err)
			}
			defer client.close()
			var wg sync.WaitGroup
			stop := make(chan struct{})
			var ran, refused atomic.Int64
			for id := range 4 {
				wg.Go(func() {
					kinds := oneKey // those with two keys hold a client up for most of the time
					if id%2 == 0 {
						kinds = allKinds
					}
					random := rand.New(rand.NewPCG(seed, uint64(id)))
					n, no, err := rideMigration(client, fmt.Sprint(lib.name, id), kinds, tags, random, stop)
					ran.Add(int64(n))
					refused.Add(int64(no))
					if err != nil {
						t.Errorf("seed %d, client %d: %v", seed, id, err)
					}
				})
			}
			for range 4 {
				migrates(t, c, "3000-3999", "400ms")
				await(t, "end of the migration", func() bool { return len(c.Status().Migrations) == 0 })
			}
			close(stop)
			wg.Wait()
			ask, tryAgain := errorsSent(t, c, "ASK")-askBefore, errorsSent(t, c, "TRYAGAIN")-tryAgainBefore
			t.Logf("%d commands, %d refused; %d ASK, %d TRYAGAIN", ran.Load(), refused.Load(), ask, tryAgain)
			if ask == 0 || tryAgain == 0 || ran.Load() == 0 {
				t.Error("the client has met no ASK, or no TRYAGAIN")
			}
			if lib.givesUp && refused.Load() < int64(tryAgain) {
				t.Error("the client does not give up at the first TRYAGAIN")
			}
		})
	}
}

// TestMigrationAndRestart: a migration ends with the process.
func TestMigrationAndRestart(t *testing.T) {
	dir := t.TempDir()
	c, err := Start(t.Context(), Config{Stores: 3, Dir: dir, NoSockets: true, Settings: small()})
	if err != nil {
		t.Fatal(err)
	}
	migrates(t, c, "3300", "24h")
	if all := c.Status().Migrations; len(all) != 1 || all[0].Slots != "3300" || all[0].Share > 0.01 || all[0].Left == 0 {
		t.Errorf("migrations: %+v; want that of slot 3300, which has begun", all)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	again := start(t, Config{Stores: 3, Dir: dir, NoSockets: true})
	await(t, "end of the migration", func() bool {
		open, _, known := again.in.UnderWay()
		return known && len(open) == 0
	})
}
