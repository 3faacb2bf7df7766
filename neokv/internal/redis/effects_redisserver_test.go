//go:build redisserver

package redis

import (
	"bufio"
	"flag"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/redis/redistest"
)

var (
	effectCalls = flag.Int("effects.calls", 4_000, "random calls of TestEffectsAreRedis, at least")
	effectSeed  = flag.Uint64("effects.seed", 0, "seed of its calls; 0 for any")
)

// client is a connection to a redis-server.
type client struct {
	testing.TB
	net.Conn
	in *bufio.Reader
}

func newClient(t testing.TB, addr string) *client {
	conn, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &client{t, conn, bufio.NewReader(conn)}
}

func (c *client) send(args ...[]byte) {
	c.Helper()
	if err := c.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		c.Fatal(err)
	}
	if _, err := c.Write(redistest.AppendCall(nil, args...)); err != nil {
		c.Fatal(err)
	}
}

func (c *client) reply() redistest.ReplyValue {
	c.Helper()
	v, err := redistest.Read(c.in)
	if err != nil {
		c.Fatal(err)
	}
	return v
}

// watches are connections to a redis-server that watch a key each.
type watches struct {
	all  []*client
	keys [][]byte
}

func (w *watches) begin(keys [][]byte) {
	if w.keys = keys; len(keys) > len(w.all) {
		w.keys = keys[:len(w.all)]
	}
	for i, key := range w.keys {
		w.all[i].send([]byte("watch"), key)
	}
	for i := range w.keys {
		w.all[i].reply()
	}
}

// dirty reports of each key whether a call since begin has touched it.
func (w *watches) dirty() (dirty []bool) {
	for i := range w.keys {
		w.all[i].send([]byte("multi"))
		w.all[i].send([]byte("exec"))
	}
	for i := range w.keys {
		w.all[i].reply()
		v := w.all[i].reply()
		dirty = append(dirty, v.String() != "[]")
	}
	return dirty
}

// told returns what a subscriber has got of keyspace notifications, as "event key", but for what has expired: Redis
// tells that when it notices.
func (c *client) told() (all []string) {
	for c.send([]byte("ping")); ; {
		v := c.reply()
		if len(v.Items) < 4 {
			return all
		}
		event, key := string(v.Items[3].Text), strings.TrimPrefix(string(v.Items[2].Text), "__keyspace@0__:")
		if event != "expired" {
			all = append(all, event+" "+key)
		}
	}
}

// lookups asks how many keys have been looked up, those that existed and those that did not.
func (c *client) lookups() (hits, misses int) {
	c.send([]byte("info"), []byte("stats"))
	for line := range strings.Lines(string(c.reply().Text)) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), ":"); name {
		case "keyspace_hits":
			hits, _ = strconv.Atoi(value)
		case "keyspace_misses":
			misses, _ = strconv.Atoi(value)
		}
	}
	return hits, misses
}

// takeLookups returns how many keys the calls since the last takeLookups have looked up.
func (d *region) takeLookups() (hits, misses int) {
	hits, misses = d.w.TakeLookups()
	hits, misses = hits+d.r.Hits, misses+d.r.Misses
	d.r.Hits, d.r.Misses = 0, 0
	return hits, misses
}

// told returns what subscribers are told, as the other told does.
func (e *Effects) told() (all []string) {
	for _, x := range e.All {
		if x.Event.String() != "" && x.Event != EventExpired {
			all = append(all, x.Event.String()+" "+string(x.Key))
		}
	}
	return all
}

// TestEffectsAreRedis makes random calls of all rows on a region and on a redis-server, where other connections watch
// the keys that a call names: what the region calls an effect is what they see. A subscriber to keyspace notifications
// is told the same events of the same keys, in the same order. Both count the same look-ups of keys.
func TestEffectsAreRedis(t *testing.T) {
	addr := redistest.RedisServer(t, "--databases", "1", "--notify-keyspace-events", "KAnm")
	seed := *effectSeed
	if seed == 0 {
		seed = 1 + uint64(rand.Uint32())
	}
	t.Logf("seed %d", seed)
	calls := *effectCalls
	if testing.Short() {
		calls /= 20
	}
	limit(t, 4<<10) // ranges and moves of a few elements go by new versions
	d := newRegion(t)
	d.now = realTime
	d.w.Effects = &Effects{Looks: true, Misses: true}
	main := newClient(t, addr)
	var w watches
	for range 8 {
		w.all = append(w.all, newClient(t, addr))
	}
	main.send([]byte("flushall"))
	main.reply()
	subscriber := newClient(t, addr)
	subscriber.send([]byte("psubscribe"), []byte("__keyspace@0__:*"))
	subscriber.reply()
	seenEvents := map[string]int{}
	g := &redistest.CallGenerator{Rand: rand.New(rand.NewPCG(seed, 0)), Tag: "{t}", Piece: pieceBytes}
	seen := map[string]*[2]int{} // of each row: how often a key was clean and dirty
	fixed := [][]string{         // what chance hardly makes
		{"setrange", "{t}a", "200000", "x"}, {"append", "{t}a", ""}, {"append", "{t}a", "x"},
		{"setrange", "{t}a", "3", ""},
		{"expire", "{t}a", "1000"}, {"getex", "{t}a", "persist"}, {"getex", "{t}a", "persist"},
		{"sort", "{t}nobody", "store", "{t}a"}, {"append", "{t}a", ""},
		{"zadd", "{t}both", "1", "x"}, {"zinterstore", "{t}zset1", "1", "{t}both"},
		{"rpush", "{t}list1", "x"}, {"lmove", "{t}list1", "{t}list1", "left", "left"},
	}
	unseen := func() (rest []string) {
		for _, row := range Rows() {
			if n := seen[row.Name]; row.Write != nil && (n == nil || n[0] == 0 || n[1] == 0) {
				rest = append(rest, row.Name)
			}
		}
		return rest
	}
	untold := func() (rest []string) {
		for _, x := range events {
			if seenEvents[x.name] == 0 && x.name != "" && x.name != "expired" && !testing.Short() {
				rest = append(rest, x.name)
			}
		}
		return rest
	}
	// pop makes a blocking pop, which may wait for 100 ms at the redis-server if there is nothing.
	pop := func(name string) []string {
		list := []string{"{t}list1", "{t}list2", "{t}nobody"}[g.IntN(3)]
		zset := []string{"{t}zset1", "{t}zset2", "{t}nobody"}[g.IntN(3)]
		switch name {
		case "blmove":
			return []string{name, list, "{t}list2", "left", "right", "0.001"}
		case "brpoplpush":
			return []string{name, list, "{t}list2", "0.001"}
		case "blmpop":
			return []string{name, "0.001", "1", list, "left"}
		case "bzmpop":
			return []string{name, "0.001", "1", zset, "min"}
		case "bzpopmin", "bzpopmax":
			return []string{name, zset, "0.001"}
		}
		return []string{name, list, "0.001"}
	}
	for i := 0; i < calls || i < 60*calls && len(unseen())+len(untold()) > 0; i++ {
		all := fixed
		if i > 0 {
			all = g.Calls(true)
		}
		if i%20 == 10 {
			rest := slices.DeleteFunc(unseen(), func(name string) bool { return Lookup([]byte(name)).Blocks == nil })
			if len(rest) > 0 {
				all = append(all, pop(rest[g.IntN(len(rest))]))
			}
		}
		for _, words := range all {
			var args [][]byte
			for _, word := range words {
				args = append(args, []byte(word))
			}
			var refused Reply
			row := withOwn.Find(args, &refused)
			var keys [][]byte
			if row != nil && row.CheckArity(len(args)) {
				for _, at := range row.AppendKeys(nil, args) {
					if !slices.ContainsFunc(keys, func(k []byte) bool { return string(k) == string(args[at]) }) {
						keys = append(keys, args[at])
					}
				}
				if row.How == HowEverywhere {
					keys = toArgs("{t}a", "{t}b", "{t}hash1", "{t}zset2", "{t}nobody")
				}
			}
			there := make([]bool, len(keys))
			for i, key := range keys {
				n, _ := d.must(2, "exists", string(key)).Int()
				there[i] = n > 0
			}
			w.begin(keys)
			hits, misses := main.lookups()
			main.send(args...)
			want := main.reply()
			d.w.Effects.Reset()
			d.takeLookups()
			var out Reply
			if err := d.call(args, &out); err != nil {
				t.Fatalf("%q: %v", args, err)
			}
			hitsAfter, missesAfter := main.lookups()
			h, m := d.takeLookups()
			isSort := row != nil && strings.HasPrefix(row.Name, "sort") // the order of elements that are equal is Redis's own
			// Behind a NUL, redis-server finds a subcommand or not as its hash table has it.
			if row != nil && (h+m != hitsAfter+missesAfter-hits-misses || h != hitsAfter-hits && !isSort) {
				t.Errorf("%.200q, replies %.200s and %.200q: %d keys found and %d missed; redis-server counts %d and %d",
					args, want, out.Buf, h, m, hitsAfter-hits, missesAfter-misses)
			}
			told, got := subscriber.told(), d.w.Effects.told()
			if isSort {
				isMiss := func(line string) bool { return strings.HasPrefix(line, "keymiss ") }
				told, got = slices.DeleteFunc(told, isMiss), slices.DeleteFunc(got, isMiss)
			}
			if !slices.Equal(got, told) {
				t.Errorf("%.200q, replies %.200s and %.200q: events %q, redis-server has %q", args, want, out.Buf, got, told)
			}
			for _, line := range told {
				event, _, _ := strings.Cut(line, " ")
				seenEvents[event]++
			}
			for i, dirty := range w.dirty() {
				touched := false
				for _, e := range d.w.Effects.All {
					switch e.What {
					case Changed:
						touched = touched || string(e.Key) == string(keys[i])
					case Flushed:
						touched = touched || there[i]
					}
				}
				if row.Write != nil {
					n := seen[row.Name]
					if n == nil {
						n = new([2]int)
						seen[row.Name] = n
					}
					if dirty {
						n[1]++
					} else {
						n[0]++
					}
				}
				if touched != dirty {
					t.Errorf("%.200q, key %q, replies %.200s and %.200q: watched it is dirty: %v; effects %.300q", args,
						keys[i], want, out.Buf, dirty, d.w.Effects.All)
				}
			}
			if t.Failed() {
				t.Fatalf("again: -effects.seed=%d", seed)
			}
		}
	}
	if rest := untold(); len(rest) > 0 {
		t.Errorf("no call told %v", rest)
	}
	if rest := unseen(); len(rest) > 0 && !testing.Short() {
		t.Errorf("not seen both with an effect and without one: %q", rest)
	}
}
