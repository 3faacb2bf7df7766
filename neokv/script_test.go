package neokv

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// clientAt is a client of one address of the cluster.
func clientAt(t *testing.T, c *Cluster, addr string) *redis.Client {
	r := redis.NewClient(&redis.Options{
		Addr: addr, Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) },
		MaxRetries: -1,
	})
	t.Cleanup(func() { r.Close() })
	return r
}

// keyAt returns a key whose slot a store leads.
func keyAt(t *testing.T, c *Cluster, id topology.StoreID) string {
	t.Helper()
	table := c.in.Places()[id-1].Store().Table()
	for i := range 10_000 {
		key := fmt.Sprint("k", i)
		if r, _ := table.Region(topology.SlotOf([]byte(key))); r != nil && r.Leader == id {
			return key
		}
	}
	t.Fatalf("store %d leads nothing", id)
	return ""
}

// calls returns how often commands were called at an address.
func calls(t *testing.T, r *redis.Client, name string) (n int) {
	t.Helper()
	text, err := r.Info(t.Context(), "commandstats").Result()
	if err != nil {
		t.Fatal(err)
	}
	_, line, _ := strings.Cut(text, "cmdstat_"+name+":calls=")
	fmt.Sscan(line, &n)
	return n
}

// TestGoRedisScripts runs a script by go-redis' Script, for keys of all slots: at the stores' ports and at the proxy port.
// One EVAL is enough for the whole cluster, since a store asks the others for a script that it lacks.
func TestGoRedisScripts(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	cluster := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs(),
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) }})
	defer cluster.Close()
	proxy := clientAt(t, c, c.ProxyAddr())
	for _, x := range []struct {
		name   string
		client interface {
			redis.Scripter
			Get(context.Context, string) *redis.StringCmd
		}
		at []string
	}{{"stores", cluster, c.Addrs()}, {"proxy", proxy, []string{c.ProxyAddr()}}} {
		t.Run(x.name, func(t *testing.T) {
			add := redis.NewScript(fmt.Sprintf(`-- %s
local n = redis.call("INCRBY", KEYS[1], ARGV[1])
redis.call("SET", KEYS[2], n)
return {n, ARGV[1], redis.call("EXISTS", KEYS[1], KEYS[2])}`, x.name))
			before := 0
			for _, addr := range x.at {
				before += calls(t, clientAt(t, c, addr), "eval")
			}
			for i := range 100 {
				key := fmt.Sprintf("{%s%d}", x.name, i%50)
				got, err := add.Run(t.Context(), x.client, []string{key, key + "copy"}, i).Slice()
				want := fmt.Sprint([]any{int64(i/50*(2*i-50) + (1-i/50)*i), fmt.Sprint(i), int64(2)})
				if err != nil || fmt.Sprint(got) != want {
					t.Fatalf("%s: %v, %v; want %s", key, got, err, want)
				}
				if got, err := x.client.Get(t.Context(), key+"copy").Int(); err != nil || got != i/50*(i-50)+i {
					t.Fatalf("the copy of %s is %d, %v", key, got, err)
				}
			}
			n := 0
			for _, addr := range x.at {
				n += calls(t, clientAt(t, c, addr), "eval")
			}
			if n-before != 1 {
				t.Errorf("EVAL was called %d times, want once", n-before)
			}
			all, err := x.client.ScriptExists(t.Context(), add.Hash(), strings.Repeat("0", 40)).Result()
			if err != nil || fmt.Sprint(all) != "[true false]" {
				t.Errorf("SCRIPT EXISTS: %v, %v", all, err)
			}
		})
	}
}

// TestScriptsLog: what scripts log is an event, once for each time they ran, and no more than people can read.
func TestScriptsLog(t *testing.T) {
	var mu sync.Mutex
	var lines []string
	c := start(t, Config{InMemory: true, NoSockets: true, OnEvent: func(e ClusterEvent) {
		if e.Kind == EventScript {
			mu.Lock()
			lines = append(lines, e.Text)
			mu.Unlock()
		}
	}})
	key := keyAt(t, c, 2)
	for addr, text := range map[string]string{
		c.ProxyAddr(): "redis.log(redis.LOG_NOTICE, 'no', 'key')",
		c.Addrs()[1]: "redis.log(redis.LOG_WARNING, 'a\\nb') redis.log(redis.LOG_VERBOSE, 'nobody reads this') " +
			"redis.call('set', KEYS[1], 1)",
	} {
		if err := clientAt(t, c, addr).Eval(t.Context(), text, []string{key}).Err(); err != nil && err != redis.Nil {
			t.Fatal(err)
		}
	}
	r := clientAt(t, c, c.Addrs()[1])
	if err := r.EvalRO(t.Context(), "redis.log(redis.LOG_NOTICE, 'read')", []string{key}).Err(); err != redis.Nil {
		t.Fatal(err)
	}
	want := []string{"store 2: a script logs: a b", "store 2: a script logs: no key", "store 2: a script logs: read"}
	mu.Lock()
	slices.Sort(lines)
	if !slices.Equal(lines, want) {
		t.Errorf("%q, want %q", lines, want)
	}
	lines = nil
	mu.Unlock()
	r.Eval(t.Context(), "for i = 1, 1000 do redis.log(redis.LOG_WARNING, ('x'):rep(10000)) end", []string{key})
	mu.Lock()
	defer mu.Unlock()
	if n := len(lines); n < 2 || n > 100 || len(lines[0]) > 1100 {
		t.Errorf("%d lines of %d bytes", n, len(lines[0]))
	}
}

// TestScriptsOnFollowers: a store that follows runs scripts that only read for connections that allow it, and sends
// others to the leader.
func TestScriptsOnFollowers(t *testing.T) {
	k := settings.Default()
	k.Redis.FollowerRead = true
	c := start(t, Config{InMemory: true, NoSockets: true, Settings: &k})
	key := keyAt(t, c, 2)
	if err := clientAt(t, c, c.Addrs()[1]).Set(t.Context(), key, "v", 0).Err(); err != nil {
		t.Fatal(err)
	}
	r := clientAt(t, c, c.Addrs()[0]).Conn()
	defer r.Close()
	if err := r.ReadOnly(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	const get = "return redis.call('get', KEYS[1])"
	for _, text := range []string{get, "#!lua flags=no-writes\n" + get, "return redis.call('get', '" + key + "')"} {
		keys := []any{1, key}
		if strings.Contains(text, key) {
			keys = []any{0}
		}
		got, err := r.Do(t.Context(), append([]any{"EVAL_RO", text}, keys...)...).Text()
		if err != nil || got != "v" {
			t.Errorf("EVAL_RO %s: %q, %v", text, got, err)
		}
		_, err = r.Do(t.Context(), append([]any{"EVAL", text}, keys...)...).Text()
		if moved := err != nil && strings.HasPrefix(err.Error(), "MOVED "); moved == strings.HasPrefix(text, "#!") {
			t.Errorf("EVAL %s: %v", text, err)
		}
	}
}

// TestScriptsAreFoundElsewhere: a store finds the scripts of those that it can ask, of the proxy port, and no others.
func TestScriptsAreFoundElsewhere(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	var at []*redis.Client
	for _, addr := range c.Addrs() {
		at = append(at, clientAt(t, c, addr))
	}
	proxy := clientAt(t, c, c.ProxyAddr())
	key := keyAt(t, c, 2)
	ask := func(r *redis.Client, sha, want string) {
		t.Helper()
		got, err := r.EvalSha(t.Context(), sha, []string{key}).Result()
		if err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("EVALSHA: %v, want %s", got, want)
		}
	}
	load := func(r *redis.Client, text string) string {
		t.Helper()
		sha, err := r.ScriptLoad(t.Context(), text).Result()
		if err != nil {
			t.Fatal(err)
		}
		return sha
	}
	do := func(text string) {
		t.Helper()
		f, err := fault.Parse(text)
		if err == nil {
			_, err = c.Inject(t.Context(), f)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	const none = "NOSCRIPT No matching script. Please use EVAL."
	ask(at[1], load(at[0], "return 'first'"), "first")
	ask(at[1], load(proxy, "return 'proxy'"), "proxy")
	ask(proxy, load(at[2], "return 'third'"), "third")
	cut := load(at[0], "return 'cut'")
	do("partition 1 2")
	ask(at[1], cut, none)
	do("mend 1 2")
	ask(at[1], cut, "cut")
	dead := load(at[2], "return 'dead'")
	do("kill 3")
	ask(at[1], dead, none)
	do("restart 3")
	ask(at[1], dead, none) // a store begins with none
	if err := proxy.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	ask(at[1], cut, none)
	again := load(at[0], "return 'again'")
	ask(at[1], again, "again")
	if err := at[0].ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	ask(at[1], again, "again") // FLUSH is for its own store
}
