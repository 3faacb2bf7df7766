package neokv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/settings"
)

// rawClient sends requests and reads replies as they come.
type rawClient struct {
	t  *testing.T
	nc net.Conn
	r  *bufio.Reader
}

func dialRaw(t *testing.T, c *Cluster) *rawClient {
	t.Helper()
	nc, err := c.Dial(t.Context(), c.ProxyAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	nc.SetDeadline(time.Now().Add(3 * time.Minute))
	return &rawClient{t, nc, bufio.NewReaderSize(nc, 64<<10)}
}

// send sends requests, while replies may be read.
func (c *rawClient) send(requests string) { go io.WriteString(c.nc, requests) }

// lines reads n lines and returns the last one.
func (c *rawClient) lines(n int) string {
	c.t.Helper()
	var line string
	var err error
	for range n {
		if line, err = c.r.ReadString('\n'); err != nil {
			c.t.Fatalf("%v after %q", err, line)
		}
	}
	return strings.TrimSpace(line)
}

// ask sends a request and returns the first line of the reply.
func (c *rawClient) ask(request string) string {
	c.t.Helper()
	c.send(request + "\r\n")
	return c.lines(1)
}

// TestLargeTransactions: transactions that are too large or too long are done as a whole, or not at all. Clients that
// send them hold no more memory than they may, and nothing once they have gone.
func TestLargeTransactions(t *testing.T) {
	if testing.Short() || raceBuild {
		t.Skip("a long test")
	}
	k := settings.Default()
	k.Cluster.Regions = 1
	k.Redis.ClientMemory, k.Redis.LeaderlessWait = 256<<20, time.Minute // a slow day is no failure
	c := start(t, Config{InMemory: true, Settings: &k, NoSockets: true})
	other := dialRaw(t, c)
	other.ask("PING")
	base := c.in.Inside().HeldForClients()
	big := strings.Repeat("v", 20<<20)
	set := func(key string, value string) string {
		return fmt.Sprintf("*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, len(value), value)
	}
	for _, x := range []struct {
		name string
		do   func(t *testing.T, c *rawClient)
	}{
		{"many commands", func(t *testing.T, c *rawClient) {
			const n = manyQueued
			c.send("SET n 0\r\nMULTI\r\n" + strings.Repeat("INCR n\r\n", n) + "EXEC\r\n")
			if got, want := c.lines(2+n+1), fmt.Sprint("*", n); got != want {
				t.Fatalf("EXEC: %q, want %q", got, want)
			}
			if got, want := c.lines(n), fmt.Sprint(":", n); got != want {
				t.Errorf("the last reply is %q, want %q", got, want)
			}
		}},
		{"many watched keys", func(t *testing.T, c *rawClient) {
			var watch strings.Builder
			watch.WriteString("*100001\r\n$5\r\nWATCH\r\n")
			for i := range 100_000 {
				fmt.Fprintf(&watch, "$6\r\nw%05d\r\n", i)
			}
			for _, write := range []string{"", "SET w99999 1"} {
				if got := c.ask(watch.String()[:watch.Len()-2]); got != "+OK" {
					t.Fatalf("WATCH: %q", got)
				}
				want := "*1"
				if write != "" {
					other.ask(write)
					want = "*-1"
				}
				c.send("MULTI\r\nSET w00000 1\r\nEXEC\r\n")
				if got := c.lines(3); got != want {
					t.Errorf("EXEC: %q, want %q", got, want)
				}
				if want == "*1" {
					c.lines(1)
				}
			}
		}},
		{"a key that is watched often", func(t *testing.T, c *rawClient) {
			if got := c.ask("WATCH" + strings.Repeat(" k", 4000)); got != "+OK" {
				t.Fatalf("WATCH: %q", got)
			}
			c.send(strings.Repeat("WATCH k\r\n", 10_000))
			c.lines(10_000)
			other.ask("SET k 1")
			c.send("MULTI\r\nEXEC\r\n")
			if got := c.lines(2); got != "*-1" {
				t.Errorf("EXEC: %q, want nil", got)
			}
		}},
		{"too many watched bytes", func(t *testing.T, c *rawClient) {
			key := strings.Repeat("k", 4<<20)
			refused := ""
			for i := range 40 {
				c.send(fmt.Sprintf("*2\r\n$5\r\nWATCH\r\n$%d\r\n%02d%s\r\n", 2+len(key), i, key))
				if refused = c.lines(1); refused != "+OK" {
					break
				}
			}
			if !strings.Contains(refused, "the watched keys take more than 128 MiB of memory") {
				t.Errorf("WATCH of 160 MiB: %q", refused)
			}
		}},
		{"one large command", func(t *testing.T, c *rawClient) {
			c.send("MULTI\r\n" + set("large", strings.Repeat("v", 60<<20)) + "EXEC\r\n")
			if got := c.lines(3); got != "*1" {
				t.Fatalf("EXEC: %q", got)
			}
			if got := c.lines(1); got != "+OK" {
				t.Errorf("SET: %q", got)
			}
			if got := c.ask("STRLEN large"); got != ":62914560" {
				t.Errorf("STRLEN: %q", got)
			}
		}},
		{"more than an entry may have", func(t *testing.T, c *rawClient) {
			c.send("MULTI\r\nSET first 1\r\n" + strings.Repeat(set("none", big), 4) + "EXEC\r\n")
			if got := c.lines(7); !strings.HasPrefix(got, "-ERR command too large for a raft entry") {
				t.Fatalf("EXEC: %q", got)
			}
			if got := c.ask("EXISTS first none"); got != ":0" {
				t.Errorf("EXISTS: %q", got)
			}
		}},
		{"more than may be queued", func(t *testing.T, c *rawClient) {
			c.send("MULTI\r\nSET first 1\r\n" + strings.Repeat(set("none", big), 8) + "EXEC\r\n")
			if got := c.lines(2 + 8); got != "-ERR the commands of the transaction take more than 128 MiB of memory" {
				t.Fatalf("the eighth SET: %q", got)
			}
			if got := c.lines(1); got != "-EXECABORT Transaction discarded because of previous errors." {
				t.Errorf("EXEC: %q", got)
			}
			if got := c.ask("EXISTS first none"); got != ":0" {
				t.Errorf("EXISTS: %q", got)
			}
		}},
		{"replies that clients may hold", func(t *testing.T, c *rawClient) {
			c.send(set("big", big) + "MULTI\r\n" + strings.Repeat("GET big\r\n", 4) + "EXEC\r\n")
			if got := c.lines(1 + 5 + 1); got != "*4" {
				t.Fatalf("EXEC: %q", got)
			}
			if n, err := io.CopyN(io.Discard, c.r, 4*int64(len("$20971520\r\n")+len(big)+2)); err != nil {
				t.Fatalf("%v after %d bytes", err, n)
			}
			if got := c.ask("PING"); got != "+PONG" {
				t.Errorf("PING: %q", got)
			}
		}},
		{"replies that clients may not hold", func(t *testing.T, c *rawClient) {
			c.send(set("big", big) + "MULTI\r\nINCR done\r\n" + strings.Repeat("GET big\r\n", 15))
			c.lines(1 + 1 + 16)
			c.send("EXEC\r\n")
			if n, err := io.Copy(io.Discard, c.r); n > int64(len(big)) {
				t.Errorf("%d bytes, %v; want the connection closed", n, err)
			}
			if got := other.ask("INCR done"); got != ":2" { // the unit was applied before
				t.Errorf("INCR: %q", got)
			}
		}},
		{"reads whose replies clients may not hold", func(t *testing.T, c *rawClient) {
			c.send("MULTI\r\n" + strings.Repeat("GET big\r\n", 15))
			c.lines(1 + 15)
			c.send("EXEC\r\n")
			if n, err := io.Copy(io.Discard, c.r); n > int64(len(big)) {
				t.Errorf("%d bytes, %v; want the connection closed", n, err)
			}
		}},
		{"a client that ends inside", func(t *testing.T, c *rawClient) {
			c.ask("WATCH a b c")
			c.ask("MULTI")
			c.send(set("none", big))
			c.lines(1)
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			begin := time.Now()
			client := dialRaw(t, c)
			client.t = t
			x.do(t, client)
			client.nc.Close()
			if got := other.ask("PING"); got != "+PONG" {
				t.Errorf("another client: %q", got)
			}
			await(t, "memory given back", func() bool { return c.in.Inside().HeldForClients() <= base+512<<10 })
			t.Logf("%v", time.Since(begin))
		})
	}
}

// TestTransactionsOfManyClients: 512 clients are inside a transaction at once. A third of them ends there.
func TestTransactionsOfManyClients(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	base := c.in.Inside().HeldForClients()
	var all [512]*rawClient
	for i := range all {
		all[i] = dialRaw(t, c)
		all[i].send("WATCH w\r\nMULTI\r\nINCR {w}n\r\nINCR {w}m\r\n")
	}
	for i, x := range all {
		if got := x.lines(4); got != "+QUEUED" {
			t.Fatalf("INCR: %q", got)
		}
		if i%3 == 2 {
			x.nc.Close()
		}
	}
	var done atomic.Int64
	var wg sync.WaitGroup
	for i, x := range all {
		if i%3 != 2 {
			wg.Go(func() {
				if got := x.ask("EXEC"); got == "*2" {
					done.Add(1)
				} else {
					t.Errorf("EXEC: %q", got)
				}
				x.nc.Close()
			})
		}
	}
	wg.Wait()
	x := dialRaw(t, c)
	for _, key := range []string{"{w}n", "{w}m"} {
		x.send("GET " + key + "\r\n")
		if got, want := x.lines(2), fmt.Sprint(done.Load()); got != want {
			t.Errorf("%s is %s after %s transactions", key, got, want)
		}
	}
	await(t, "memory given back", func() bool { return c.in.Inside().HeldForClients() <= base+512<<10 })
}

// TestTransactionsThroughFaults: transactions move money between two accounts, and others count by WATCH, while leaders
// are moved, stores are killed, and regions split and merge. Nobody sees a part of a transaction, and no count is lost.
func TestTransactionsThroughFaults(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var moved, seen, counted, unknown atomic.Int64
	const accounts = 4
	loop := func(do func(r *redis.Client, random *rand.Rand) error) {
		random := rand.New(rand.NewPCG(seed, uint64(rand.Uint32())))
		r := directClient(t, c)
		wg.Go(func() {
			defer r.Close()
			for {
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
				if err := do(r, random); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	outcome := func(err error, n *atomic.Int64) error {
		switch {
		case err == nil:
			n.Add(1)
		case errors.Is(err, redis.TxFailedErr): // another was first, or the leader is another one
		case strings.Contains(err.Error(), "write outcome unknown"):
			unknown.Add(1)
		case strings.HasPrefix(err.Error(), "CLUSTERDOWN"), strings.HasPrefix(err.Error(), "TRYAGAIN"):
		default:
			return err
		}
		return nil
	}
	pair := func(random *rand.Rand) (a, b string) {
		tag := random.IntN(accounts)
		return fmt.Sprintf("{%d}a", tag), fmt.Sprintf("{%d}b", tag)
	}
	for range 2 {
		loop(func(r *redis.Client, random *rand.Rand) error {
			a, b := pair(random)
			n := int64(random.IntN(100))
			_, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.DecrBy(ctx, a, n)
				p.IncrBy(ctx, b, n)
				return nil
			})
			return outcome(err, &moved)
		})
		loop(func(r *redis.Client, random *rand.Rand) error {
			a, b := pair(random)
			var got [2]*redis.StringCmd
			_, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
				got[0], got[1] = p.Get(ctx, a), p.Get(ctx, b)
				return nil
			})
			if err != nil && !errors.Is(err, redis.Nil) {
				return outcome(err, &seen)
			}
			x, _ := got[0].Int64()
			y, _ := got[1].Int64()
			if x+y != 0 {
				return fmt.Errorf("%s is %d and %s is %d", a, x, b, y)
			}
			return outcome(nil, &seen)
		})
		loop(func(r *redis.Client, random *rand.Rand) error {
			return outcome(r.Watch(ctx, func(tx *redis.Tx) error {
				n, err := tx.Get(ctx, "count").Int64()
				if err != nil && !errors.Is(err, redis.Nil) {
					return err
				}
				_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
					p.Set(ctx, "count", n+1, 0)
					return nil
				})
				return err
			}, "count"), &counted)
		})
	}
	random := rand.New(rand.NewPCG(seed, 0))
	for i, fault := range []string{"transfer", "kill 1", "transfer", "kill 2", "kill all"} {
		before := moved.Load() + counted.Load()
		if fault == "transfer" {
			changeRegions(t, c, 2, random, false, func(string) {})
		} else {
			do(t, c, fault, "heal")
		}
		await(t, fmt.Sprintf("transactions after fault %d", i), func() bool {
			return t.Failed() || moved.Load()+counted.Load() > before+20
		})
	}
	close(stop)
	wg.Wait()
	r := directClient(t, c)
	defer r.Close()
	n, err := r.Get(t.Context(), "count").Int64()
	if got := counted.Load(); err != nil || n < got || n > got+unknown.Load() {
		t.Errorf("counted to %d, %v; %d were acknowledged, %d have an unknown outcome", n, err, got, unknown.Load())
	}
	if seen.Load() == 0 {
		t.Error("nobody has read")
	}
	t.Logf("moved %d, read %d, counted %d, unknown %d", moved.Load(), seen.Load(), counted.Load(), unknown.Load())
}

// manyQueued is how many commands one of the transactions of TestLargeTransactions has.
const manyQueued = 100_000

// TestTransactionsOfGoRedis: TxPipelined and Watch of go-redis, on the stores' ports and on the proxy port.
func TestTransactionsOfGoRedis(t *testing.T) {
	c := start(t, Config{InMemory: true})
	direct := directClient(t, c)
	defer direct.Close()
	for name, r := range map[string]redis.UniversalClient{"stores": goRedis(t, c), "proxy": direct} {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			const clients, each = 8, 20
			key := "{" + name + "}count"
			var wg sync.WaitGroup
			for range clients {
				wg.Go(func() {
					for n := 0; n < each; {
						err := r.Watch(ctx, func(tx *redis.Tx) error {
							old, err := tx.Get(ctx, key).Int()
							if err != nil && !errors.Is(err, redis.Nil) {
								return err
							}
							_, err = tx.TxPipelined(ctx, func(p redis.Pipeliner) error {
								p.Set(ctx, key, old+1, 0)
								p.RPush(ctx, key+"s", old+1)
								return nil
							})
							return err
						}, key)
						switch {
						case err == nil:
							n++
						case !errors.Is(err, redis.TxFailedErr):
							t.Error(err)
							return
						}
					}
				})
			}
			wg.Wait()
			cmds, err := r.TxPipelined(ctx, func(p redis.Pipeliner) error {
				p.Get(ctx, key)
				p.LLen(ctx, key+"s")
				p.LPush(ctx, key, "x")
				p.LIndex(ctx, key+"s", -1)
				return nil
			})
			if err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") || len(cmds) != 4 {
				t.Fatalf("%v, %v", cmds, err)
			}
			const want = clients * each
			n, _ := cmds[0].(*redis.StringCmd).Int()
			last, _ := cmds[3].(*redis.StringCmd).Int()
			if l := cmds[1].(*redis.IntCmd).Val(); n != want || l != want || last != want {
				t.Errorf("counted to %d, %d, %d; want %d", n, l, last, want)
			}
		})
	}
}

// WAIT inside of a transaction answers with what there is, as in Redis: it does not wait for ever.
func TestWaitInTransaction(t *testing.T) {
	c := dialRaw(t, start(t, Config{InMemory: true, NoSockets: true}))
	c.nc.SetDeadline(time.Now().Add(20 * time.Second))
	for _, x := range []struct {
		request, want string
	}{{"MULTI", "+OK"}, {"WAIT 9 0", "+QUEUED"}, {"MONITOR", "+QUEUED"}, {"EXEC", "*2"}} {
		if got := c.ask(x.request); got != x.want {
			t.Fatalf("%s: %s, want %s", x.request, got, x.want)
		}
	}
	if got := c.lines(1); got[0] != ':' {
		t.Errorf("WAIT inside: %s", got)
	}
	if got := c.lines(1); got != "-ERR MONITOR isn't allowed for DENY BLOCKING client" {
		t.Errorf("MONITOR inside: %s", got)
	}
}

// reply reads one reply, and returns it as it came.
func (c *rawClient) reply() string {
	c.t.Helper()
	line := c.lines(1) + "\r\n"
	switch n, _ := strconv.Atoi(strings.TrimSpace(line[1:])); {
	case line[0] == '$' && n >= 0:
		text := make([]byte, n+2)
		if _, err := io.ReadFull(c.r, text); err != nil {
			c.t.Fatal(err)
		}
		line += string(text)
	case line[0] == '*':
		for range n {
			line += c.reply()
		}
	}
	return line
}

// TestFoldedTransactions: transactions that stand whole in a pipeline reply what they reply when each command is sent
// by itself, are counted alike, and share entries of the log.
func TestFoldedTransactions(t *testing.T) {
	durations := regexp.MustCompile(`usec=\d+,usec_per_call=[\d.]+,|\$\d+`)
	c := start(t, Config{InMemory: true, NoSockets: true})
	for name, lines := range map[string]string{
		"writes":        "MULTI|SET KEY1 a|INCR KEY2|EXEC|MULTI|INCR KEY2|APPEND KEY1 b|EXEC|MULTI|INCR KEY2|EXEC",
		"among others":  "SET KEY1 a|MULTI|INCR KEY2|EXEC|MULTI|INCR KEY2|EXEC|GET KEY2|MULTI|INCR KEY2|EXEC|INCR KEY2",
		"with reads":    "MULTI|INCR KEY1|EXEC|MULTI|GET KEY1|INCR KEY1|EXEC|MULTI|GET KEY1|EXEC|MULTI|INCR KEY1|EXEC",
		"errors inside": "MULTI|SET KEY1 a|INCR KEY1|SET KEY2 b|EXEC|MULTI|LPUSH KEY1 a|APPEND KEY2 c|EXEC|GET KEY2",
		"aborted":       "MULTI|INCR KEY1|EXEC|MULTI|INCR KEY1|EXEC|MULTI|NOSUCH|INCR KEY1|EXEC|MULTI|INCR KEY1|EXEC",
		"arity":         "MULTI|INCR KEY1|EXEC|MULTI|INCR|EXEC|MULTI|INCR KEY1|EXEC|MULTI|INCR KEY1|EXEC|EXEC",
		"empty, nested": "MULTI|EXEC|MULTI|EXEC|MULTI|MULTI|INCR KEY1|EXEC|MULTI|INCR KEY1|DISCARD",
		"many slots":    "MULTI|INCR KEY1|EXEC|MULTI|INCR KEY1|INCR b|INCR c|INCR d|EXEC|MULTI|INCR KEY1|EXEC",
		"refused":       "MULTI|INCR KEY1|EXEC|MULTI|MSET KEY1 1 b 2 c 3 d 4|EXEC|MULTI|INCR KEY1|EXEC",
		"two regions":   "MULTI|INCR KEY1|EXEC|MULTI|APPEND {foo}KEY x|EXEC|MULTI|APPEND {bar}KEY x|EXEC",
		"own commands":  "MULTI|INCR KEY1|EXEC|MULTI|PING|INCR KEY1|EXEC|MULTI|INCR KEY1|EXEC|MULTI|FLUSHALL|EXEC",
		"watched":       "WATCH KEY1|MULTI|INCR KEY1|EXEC|MULTI|INCR KEY1|EXEC|MULTI|INCR KEY1|EXEC",
		"dirty":         "WATCH KEY1|SET KEY1 5|MULTI|INCR KEY1|EXEC|MULTI|INCR KEY1|EXEC|GET KEY1",
		"not whole":     "MULTI|INCR KEY1|EXEC|MULTI|INCR KEY1|EXEC|MULTI|INCR KEY1",
	} {
		ask := func(key string, together bool) (all string) {
			x := dialRaw(t, c)
			if got := x.ask("CONFIG RESETSTAT"); got != "+OK" {
				t.Fatal(got)
			}
			sent := strings.Split(strings.ReplaceAll(lines, "KEY", strings.ReplaceAll(key, " ", "-")), "|")
			if together {
				x.send(strings.Join(sent, "\r\n") + "\r\n")
			}
			for _, command := range sent {
				if !together {
					x.send(command + "\r\n")
				}
				all += x.reply()
			}
			x.send("INFO commandstats\r\n")
			return all + durations.ReplaceAllString(x.reply(), "")
		}
		if got, want := ask("{a "+name+"}", true), ask("{b "+name+"}", false); got != want {
			t.Errorf("%s: a pipeline is answered\n%q\nwant\n%q", name, got, want)
		}
	}
	entries := func() int {
		text, err := c.Do(t.Context(), "INFO", "neokv")
		_, rest, _ := strings.Cut(text.(string), "\nraft_entries:")
		n, wrong := strconv.Atoi(strings.TrimSpace(rest[:strings.IndexByte(rest, '\n')]))
		if err = errors.Join(err, wrong); err != nil {
			t.Fatal(err)
		}
		return n
	}
	const transactions = 100
	x, before := dialRaw(t, c), entries()
	x.send(strings.Repeat("MULTI\r\nINCR {e}1\r\nINCR {e}2\r\nEXEC\r\n", transactions))
	var last string
	for range 4 * transactions {
		last = x.reply()
	}
	if want := "*2\r\n:100\r\n:100\r\n"; last != want {
		t.Errorf("the last of %d transactions is answered %q, want %q", transactions, last, want)
	}
	if n := entries() - before; n > transactions/2 {
		t.Errorf("%d transactions of one pipeline took %d entries", transactions, n)
	}
}
