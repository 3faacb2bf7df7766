package neokv

import (
	"bufio"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"neokv.dev/neokv/internal/redis/redistest"
)

var cachesTime = flag.Duration("caches.time", 4*time.Second, "how long TestRueidisCaches lets each kind of client run")

// TestRueidisCaches has clients of rueidis cache keys, while others write these, stores are killed and started again,
// and regions are split. After each write that is acknowledged the clients come to see its value, though they may keep
// what they have for an hour.
func TestRueidisCaches(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test")
	}
	for name, option := range map[string]func(*Cluster) rueidis.ClientOption{
		"stores": func(c *Cluster) rueidis.ClientOption { return rueidis.ClientOption{InitAddress: c.Addrs()} },
		"proxy": func(c *Cluster) rueidis.ClientOption {
			return rueidis.ClientOption{InitAddress: []string{c.ProxyAddr()}, ForceSingleClient: true}
		},
		"broadcast at the proxy": func(c *Cluster) rueidis.ClientOption {
			return rueidis.ClientOption{InitAddress: []string{c.ProxyAddr()}, ForceSingleClient: true,
				ClientTrackingOptions: []string{"PREFIX", "cached", "BCAST"}}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time goes into elections
			c := start(t, Config{InMemory: true, Regions: 4})
			client, err := rueidis.NewClient(option(c))
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			writer := redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})
			defer writer.Close()
			const keys, writers = 60, 3
			var hits, checks atomic.Int64
			read := func(key string) (int, bool) {
				got := client.DoCache(t.Context(), client.B().Get().Key(key).Cache(), time.Hour)
				n, err := got.AsInt64()
				if err != nil && !rueidis.IsRedisNil(err) {
					return 0, false
				}
				if got.IsCacheHit() {
					hits.Add(1)
				}
				return int(n), true
			}
			stop := make(chan struct{})
			over := func() bool {
				select {
				case <-stop:
					return true
				default:
					return false
				}
			}
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			var wg sync.WaitGroup
			end := sync.OnceFunc(func() {
				close(stop)
				wg.Wait()
			})
			defer end()
			for w := range writers {
				random := rand.New(rand.NewPCG(seed, uint64(w)))
				wg.Go(func() {
					for n := 1; !over(); n++ {
						key := fmt.Sprint("cached", w+writers*random.IntN(keys/writers))
						if writer.Set(t.Context(), key, strconv.Itoa(n), 0).Err() != nil {
							continue
						}
						for begin := time.Now(); ; time.Sleep(time.Millisecond) {
							got, ok := read(key)
							if ok && got >= n {
								break
							}
							if time.Since(begin) < 20*time.Second {
								continue
							}
							// Perhaps an earlier write, whose outcome is unknown, came behind this one.
							if now, err := writer.Get(t.Context(), key).Int(); err != nil || !ok || got != now {
								t.Errorf("%s is %d for the client (%v), 20 s after %d was written; it is %d, %v", key, got, ok, n,
									now, err)
								return
							}
							break
						}
						checks.Add(1)
					}
				})
			}
			wg.Go(func() {
				random := rand.New(rand.NewPCG(seed, writers))
				for !over() {
					read(fmt.Sprint("cached", random.IntN(keys)))
					time.Sleep(100 * time.Microsecond)
				}
			})
			random := rand.New(rand.NewPCG(seed, writers+1))
			begin := time.Now()
			for i := 0; i < 2 || time.Since(begin) < *cachesTime; i++ {
				seen := func(more int64) {
					want := checks.Load() + more
					waitFor(t, time.Minute, "writes that the client has seen", func() bool {
						return t.Failed() || checks.Load() > want
					})
				}
				victim := killLeader(t, c, random)
				seen(50)
				do(t, c, fmt.Sprint("restart ", victim.ID()))
				for _, n := range c.in.Places() {
					if err := n.Store().AwaitReplicas(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
				_ = doText(t.Context(), c, fmt.Sprint("split ", 1+random.IntN(c.Shape().Regions)))
				_ = doText(t.Context(), c, fmt.Sprint("merge ", 1+random.IntN(c.Shape().Regions)))
				seen(200)
			}
			end()
			t.Logf("%d writes came to be seen, %d hits in the cache", checks.Load(), hits.Load())
			for i := range keys { // nobody writes, so all of them come to be cached
				key := fmt.Sprint("cached", i)
				waitFor(t, time.Minute, "a hit for "+key, func() bool {
					before := hits.Load()
					read(key)
					return hits.Load() > before
				})
			}
		})
	}
}

// TestManyTrackedKeys: one client reads 100,000 keys. The table has no more of them than it may, by number and by
// memory, and the client is told of those that are given up. When it has gone, nothing is left.
func TestManyTrackedKeys(t *testing.T) {
	const keys = 100_000
	for _, most := range []int{20_000, 0} {
		s := small()
		s.Redis.TrackingTableMaxKeys, s.Redis.ClientMemory = most, 64<<20
		if most == 0 {
			s.Redis.ClientMemory = 8 << 20
		}
		c := start(t, Config{InMemory: true, NoSockets: true, Settings: s})
		waitFor(t, 20*time.Second, "no memory of clients", func() bool { return c.in.Inside().HeldForClients() < 64<<10 })
		nc, err := c.Dial(t.Context(), c.ProxyAddr())
		if err != nil {
			t.Fatal(err)
		}
		nc.SetDeadline(time.Now().Add(time.Minute))
		in := bufio.NewReader(nc)
		given := 0
		ask := func(call string) redistest.ReplyValue {
			t.Helper()
			io.WriteString(nc, call+"\r\n")
			for {
				v, err := redistest.Read(in)
				if err != nil {
					t.Fatal(err)
				}
				if v.Kind != '>' {
					return v
				}
				given += len(v.Items[1].Items)
			}
		}
		ask("HELLO 3")
		ask("CLIENT TRACKING ON")
		peak := int64(0)
		for n := 0; n < keys; n += 1000 {
			var call strings.Builder
			call.WriteString("MGET")
			for i := range 1000 {
				fmt.Fprintf(&call, " key:%d", n+i)
			}
			ask(call.String())
			peak = max(peak, c.in.Inside().HeldForClients())
		}
		ask("PING")
		left := c.in.Inside().Proxy().Tracked().Keys
		t.Logf("at most %d keys: the table has %d, the client is told that %d have changed; clients held %d KiB at most",
			most, left, given, peak>>10)
		if left+given < keys || most > 0 && left != most || most == 0 && left > keys/2 || left < keys/20 {
			t.Errorf("at most %d keys: the table has %d, the client is told of %d", most, left, given)
		}
		if peak > int64(s.Redis.ClientMemory)*3/4 {
			t.Errorf("clients held %d KiB", peak>>10)
		}
		nc.Close()
		waitFor(t, 20*time.Second, "the memory of the table", func() bool { return c.in.Inside().HeldForClients() < 64<<10 })
	}
}

// TestTrackerThatNeverReads: a client that caches and reads nothing is closed when too much waits for it, whatever the
// limit of clients without subscriptions is. Nothing is left of it.
func TestTrackerThatNeverReads(t *testing.T) {
	s := small()
	s.Redis.PubsubBufferLimit = 256 << 10
	c := start(t, Config{InMemory: true, NoSockets: true, Settings: s})
	deaf, writer := c.listener(t, c.ProxyAddr()), c.listener(t, c.ProxyAddr())
	for _, call := range []string{"HELLO 3", "CLIENT TRACKING ON BCAST"} {
		io.WriteString(deaf, call+"\r\n")
	}
	clients := func() int { return c.in.Inside().Proxy().Tracked().Clients }
	waitFor(t, 20*time.Second, "the client to track", func() bool { return clients() == 1 })
	long := strings.Repeat("k", 1000)
	for i := 0; clients() > 0; i++ {
		if got := writer.ask(t, fmt.Sprint("SET ", long, i, " 1")); got != "+OK" {
			t.Fatal(got)
		}
		if i > 100_000 {
			t.Fatal("the client is still there")
		}
	}
	waitFor(t, 20*time.Second, "the memory of the client", func() bool { return c.in.Inside().HeldForClients() < 64<<10 })
}

// TestToldWhileWaiting: a client that waits in WAIT is told of changes meanwhile.
func TestToldWhileWaiting(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	waits, writer := c.listener(t, c.ProxyAddr()), c.listener(t, c.ProxyAddr())
	fmt.Fprint(waits, "HELLO 3\r\n")
	for line := ""; line != "modules\r\n"; { // the last of its map
		var err error
		if line, err = waits.in.ReadString('\n'); err != nil {
			t.Fatalf("HELLO: %q, %v", line, err)
		}
	}
	waits.next(t)
	for _, call := range []struct{ text, want string }{
		{"CLIENT TRACKING ON", "+OK"}, {"SET own 1", "+OK"}, {"GET k", "_"},
	} {
		if got := waits.ask(t, call.text); got != call.want {
			t.Fatalf("%s: %s", call.text, got)
		}
	}
	fmt.Fprint(waits, "WAIT 9 0\r\n")
	if got := writer.ask(t, "SET k 1"); got != "+OK" {
		t.Fatal(got)
	}
	if got := waits.next(t); got != "> invalidate * k" {
		t.Errorf("told %q", got)
	}
}
