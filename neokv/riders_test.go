package neokv

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"

	"neokv.dev/neokv/internal/cluster"
)

// rider is a client library. A key that does not exist holds 0.
type rider struct {
	set  func(key string, value int) error
	incr func(key string) (int, error)
	get  func(key string) (int, error)
	// attempts is how often the library may send a write again by itself, if the connection breaks before the reply.
	attempts int
	close    func()
}

func goRedisRider(c *Cluster) (rider, error) {
	return goRedisRiderOf(redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()})), nil
}

func goRedisRiderOf(client *redis.ClusterClient) rider {
	ctx := context.Background()
	return rider{
		set: func(key string, value int) error { return client.Set(ctx, key, value, 0).Err() },
		incr: func(key string) (int, error) {
			n, err := client.Incr(ctx, key).Result()
			return int(n), err
		},
		get: func(key string) (int, error) {
			n, err := client.Get(ctx, key).Int()
			if err == redis.Nil {
				err = nil
			}
			return n, err
		},
		attempts: 1 + client.Options().MaxRedirects,
		close:    func() { client.Close() },
	}
}

func rueidisRider(c *Cluster) (rider, error) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: c.Addrs(), DisableCache: true})
	if err != nil {
		return rider{}, err
	}
	return rueidisRiderOf(client), nil
}

func rueidisRiderOf(client rueidis.Client) rider {
	ctx := context.Background()
	return rider{
		set: func(key string, value int) error {
			return client.Do(ctx, client.B().Set().Key(key).Value(fmt.Sprint(value)).Build()).Error()
		},
		incr: func(key string) (int, error) {
			n, err := client.Do(ctx, client.B().Incr().Key(key).Build()).AsInt64()
			return int(n), err
		},
		get: func(key string) (int, error) {
			n, err := client.Do(ctx, client.B().Get().Key(key).Build()).AsInt64()
			if rueidis.IsRedisNil(err) {
				err = nil
			}
			return int(n), err
		},
		attempts: 1,
		close:    client.Close,
	}
}

// fateUnknown reports whether an error leaves it open whether a write was applied: the connection broke, or the time
// was over, after the command was sent. What was not sent, since the client could not connect, was not applied.
func fateUnknown(err error) bool {
	if op := (*net.OpError)(nil); errors.As(err, &op) && op.Op == "dial" {
		return false
	}
	timeout := net.Error(nil)
	return errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET) || errors.Is(err, syscall.EPIPE) ||
		errors.As(err, &timeout) && timeout.Timeout() || strings.HasPrefix(err.Error(), "ERR write outcome unknown: ")
}

// ride is what the goroutines of one client have seen.
type ride struct {
	rider
	stop chan struct{}
	wg   sync.WaitGroup
	done atomic.Int64 // operations without an error

	mu       sync.Mutex
	longest  time.Duration
	unknown  map[string]int // writes of unknown fate, by their errors
	failures []string       // all else that is wrong
}

func startRide(client rider, goroutines int, seed uint64) *ride {
	l := &ride{rider: client, stop: make(chan struct{}), unknown: make(map[string]int)}
	for i := range goroutines {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		l.wg.Go(func() { l.run(i, random) })
	}
	return l
}

// run does one operation after the other on keys of its own, all over the slots, and checks each reply.
func (l *ride) run(id int, random *rand.Rand) {
	const keys = 300
	var (
		values [keys][]int  // what a key may hold: the value of the last write with a reply, and those without one since
		counts [keys][2]int // between which two numbers a counter is
	)
	for i := range values {
		values[i] = []int{0}
	}
	for n := 1; ; n++ {
		select {
		case <-l.stop:
			return
		case <-time.After(time.Duration(random.IntN(4000)) * time.Microsecond):
		}
		i := random.IntN(keys)
		key, counter := fmt.Sprintf("value-%d-%d", id, i), fmt.Sprintf("count-%d-%d", id, i)
		begin := time.Now()
		switch random.IntN(4) {
		case 0:
			err := l.set(key, n)
			if l.note(begin, true, key, err) {
				values[i] = values[i][:0]
			}
			values[i] = append(values[i], n)
		case 1:
			got, err := l.incr(counter)
			least, most := counts[i][0]+1, counts[i][1]+l.attempts
			switch {
			case !l.note(begin, true, counter, err):
				counts[i][1] = most
			case got < least || got > most:
				l.fail("INCR %s is %d; want %d to %d", counter, got, least, most)
				fallthrough
			default:
				counts[i] = [2]int{got, got}
			}
		case 2:
			got, err := l.get(counter)
			if l.note(begin, false, counter, err) {
				if got < counts[i][0] || got > counts[i][1] {
					l.fail("%s is %d; want %d to %d", counter, got, counts[i][0], counts[i][1])
				}
				counts[i] = [2]int{got, got}
			}
		default:
			got, err := l.get(key)
			if !l.note(begin, false, key, err) {
				continue
			}
			held := false
			for _, v := range values[i] {
				held = held || v == got
			}
			if !held {
				l.fail("%s is %d; want one of %d", key, got, values[i])
			}
			values[i] = append(values[i][:0], got)
		}
	}
}

// note reports whether an operation has succeeded. Of the errors it keeps those that no caller may see.
func (l *ride) note(begin time.Time, write bool, key string, err error) bool {
	took := time.Since(begin)
	l.mu.Lock()
	l.longest = max(l.longest, took)
	if err != nil && write && fateUnknown(err) {
		text := err.Error()
		l.unknown[text[strings.LastIndex(text, ": ")+1:]]++
	}
	l.mu.Unlock()
	switch {
	case err == nil:
		l.done.Add(1)
		return true
	case !write:
		l.fail("read of %s, for %v: %v", key, took, err)
	case !fateUnknown(err):
		l.fail("write of %s, for %v: %v", key, took, err)
	}
	return false
}

func (l *ride) fail(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.failures = append(l.failures, fmt.Sprintf(format, args...))
}

// progress returns when another n operations have succeeded.
func (l *ride) progress(t *testing.T, n int64) {
	t.Helper()
	want := l.done.Load() + n
	waitFor(t, time.Minute, fmt.Sprintf("%d more operations", n), func() bool { return l.done.Load() >= want })
}

// end stops the goroutines and reports.
func (l *ride) end(t *testing.T) {
	close(l.stop)
	l.wg.Wait()
	l.close()
	t.Logf("%d operations, the longest in %v; writes of unknown fate: %v", l.done.Load(), l.longest, l.unknown)
	for i, f := range l.failures {
		if i == 20 {
			t.Errorf("and %d more", len(l.failures)-i)
			break
		}
		t.Error(f)
	}
}

// killLeader kills the store that leads most regions, and returns its place.
func killLeader(t *testing.T, c *Cluster, random *rand.Rand) *cluster.Place {
	t.Helper()
	victim := c.in.Places()[0]
	for _, n := range c.in.Places() {
		if len(n.Store().Replicas().Leads()) > len(victim.Store().Replicas().Leads()) {
			victim = n
		}
	}
	do(t, c, fmt.Sprintf("kill %d keep=%d%%", victim.ID(), random.IntN(101)))
	return victim
}

// awaitLeaders returns when every region has a leader on a store that runs.
func awaitLeaders(t *testing.T, c *Cluster) {
	t.Helper()
	waitFor(t, 20*time.Second, "leaders of all regions", func() bool {
		leads := 0
		for _, n := range c.in.Places() {
			if s := n.Store(); s != nil {
				leads += len(s.Replicas().Leads())
			}
		}
		return leads == c.Shape().Regions
	})
}

// TestClientsRideThroughKills kills stores and starts them again while a client library with its own defaults reads and
// writes. No error reaches its callers but for writes whose fate is unknown, and no reply is wrong.
func TestClientsRideThroughKills(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test")
	}
	const kills = 8
	for name, open := range map[string]func(*Cluster) (rider, error){"go-redis": goRedisRider, "rueidis": rueidisRider} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // most of the time goes into elections
			c := start(t, Config{InMemory: true})
			client, err := open(c)
			if err != nil {
				t.Fatal(err)
			}
			seed := rand.Uint64()
			t.Logf("seed %d", seed)
			random := rand.New(rand.NewPCG(seed, 1<<32))
			l := startRide(client, 16, seed)
			for i := range kills {
				l.progress(t, 500)
				begin := time.Now()
				victim := killLeader(t, c, random)
				awaitLeaders(t, c)
				t.Logf("killed store %d, all regions are led again after %v", victim.ID(), time.Since(begin))
				if i == 0 {
					waitFor(t, 20*time.Second, "the others to count the store as dead", func() bool {
						return !c.in.Table().Store(victim.ID()).Alive
					})
				}
				l.progress(t, int64(random.IntN(5000)))
				do(t, c, fmt.Sprint("restart ", victim.ID()))
				for _, n := range c.in.Places() {
					if err := n.Store().AwaitReplicas(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			l.progress(t, 500)
			l.end(t)
		})
	}
}

// TestAddressOfADownStore connects to a store that is down: the stand-in redirects, or the address refuses. Then the
// store starts again, and serves there.
func TestAddressOfADownStore(t *testing.T) {
	for _, sockets := range []bool{true, false} {
		for _, standIn := range []bool{true, false} {
			t.Run(fmt.Sprintf("sockets %v, stand-in %v", sockets, standIn), func(t *testing.T) {
				k := small()
				k.Redis.StandIn = standIn
				c := start(t, Config{InMemory: true, NoSockets: !sockets, Settings: k})
				dial := c.Dial
				if sockets {
					dial = func(ctx context.Context, addr string) (net.Conn, error) {
						return new(net.Dialer).DialContext(ctx, "tcp", addr)
					}
				}
				ask := func(n *cluster.Place, request string) (reply string, err error) {
					nc, err := dial(t.Context(), n.Addr())
					if err != nil {
						return "", err
					}
					defer nc.Close()
					nc.SetDeadline(time.Now().Add(time.Minute))
					fmt.Fprintf(nc, "%s\r\nQUIT\r\n", request)
					all, err := io.ReadAll(nc)
					reply, _, _ = strings.Cut(string(all), "\r\n")
					return reply, err
				}
				n := c.in.Places()[1]
				own := ""
				for i := 0; own == ""; i++ {
					key := fmt.Sprint("key", i)
					if got, err := ask(n, "SET "+key+" 1"); err != nil {
						t.Fatal(err)
					} else if got == "+OK" {
						own = key
					}
				}
				do(t, c, "stop 2")
				got, err := ask(n, "GET "+own)
				switch {
				case standIn && (err != nil || !strings.HasPrefix(got, "-MOVED ")):
					t.Errorf("the stand-in answers %q, %v", got, err)
				case !standIn && !errors.Is(err, syscall.ECONNREFUSED):
					t.Errorf("the address answers %q, %v; want that it refuses", got, err)
				}
				do(t, c, "restart 2")
				waitFor(t, 20*time.Second, "an answer of the store itself", func() bool {
					got, err = ask(n, "DBSIZE")
					return err == nil && strings.HasPrefix(got, ":")
				})
			})
		}
	}
}
