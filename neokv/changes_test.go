package neokv

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/topology"
)

// changeRegions splits and merges regions at random, n times in all, and calls after each with what it has done. If
// allLead, no merge takes the last region from a store that leads one.
func changeRegions(t *testing.T, c *Cluster, n int, random *rand.Rand, allLead bool, after func(outcome string)) {
	t.Helper()
	for range n {
		regions := c.in.Regions()
		f := fault.Fault{Verb: fault.Split}
		if len(regions) > 2 && random.IntN(14) < len(regions) {
			f.Verb = fault.Merge
		}
		at := random.IntN(len(regions) - 1)
		leader := c.in.Places().LeaderOf(regions[at+1].ID)
		if allLead && (leader == nil || len(leader.Store().Replicas().Leads()) < 2) {
			f.Verb = fault.Split
		}
		f.Region = int(regions[at].ID)
		if slots := regions[at].Slots; f.Verb == fault.Split {
			if slots.Count() == 1 {
				continue
			}
			if random.IntN(2) == 0 {
				f.Slot = int(slots.First) + 1 + random.IntN(slots.Count()-1)
			}
		}
		outcome, err := c.Inject(t.Context(), f)
		if err != nil {
			t.Errorf("%v", err)
			return
		}
		after(outcome)
	}
}

// chores are goroutines that do something over and over, until the test ends them.
type chores struct {
	stop  chan struct{}
	wg    sync.WaitGroup
	names []string
	done  []*atomic.Int64
	late  atomic.Int64 // writes after which a chore began again
}

// start calls do with 1, 2 and so on. An error of do fails the test, and ends the chore.
func (x *chores) start(t *testing.T, name string, do func(n int) error) {
	done := new(atomic.Int64)
	x.names, x.done = append(x.names, name), append(x.done, done)
	x.wg.Go(func() {
		for n := 1; ; n++ {
			select {
			case <-x.stop:
				return
			case <-time.After(5 * time.Millisecond): // the cores are for all
			}
			if err := do(n); err != nil {
				t.Errorf("%s: round %d: %v", name, n, err)
				return
			}
			done.Add(1)
		}
	})
}

// startWrites is start for a chore that writes. It also tells do how its keys begin. If a write has not been answered
// in time, the chore begins again, with 1 and with other keys.
func (x *chores) startWrites(t *testing.T, name string, do func(keys string, n int) error) {
	keys, first := "", 1
	x.start(t, name, func(n int) error {
		err := do(keys, n-first+1)
		if !late(err) {
			return err
		}
		x.late.Add(1)
		keys, first = fmt.Sprint(n, "-"), n+1
		return nil
	})
}

// late reports whether an error says that a write, or a part of it, has an unknown outcome since it was not answered in
// time. No split and no merge is a reason for that, but a machine that gives leaders no time is.
func late(err error) bool {
	return err != nil && strings.Contains(err.Error(), "write outcome unknown: ") &&
		strings.HasSuffix(err.Error(), " in time")
}

// end ends the chores, and fails the test if one has not been done once.
func (x *chores) end(t *testing.T) {
	close(x.stop)
	x.wg.Wait()
	for i, name := range x.names {
		n := x.done[i].Load()
		t.Logf("%s: %d rounds", name, n)
		if n == 0 {
			t.Errorf("%s has not been done once", name)
		}
	}
}

// incrAll increments 512 counters in a pipeline. Each is n then.
func incrAll(ctx context.Context, p redis.Pipeliner, keys string, n int) error {
	for i := range 512 {
		p.Incr(ctx, fmt.Sprint(keys, i))
	}
	replies, first := p.Exec(ctx)
	for i, r := range replies {
		got, err := r.(*redis.IntCmd).Result()
		if err == nil && got != int64(n) {
			return fmt.Errorf("%s%d is %d", keys, i, got)
		}
		if err != nil && !late(err) {
			return err
		}
	}
	return first
}

// TestClientsThroughSplitsAndMerges splits and merges regions 50 times, while clients of all sorts work. None of them
// sees an error, a lost write or a stale read. A few writes may not be answered in time, if the machine is busy.
func TestClientsThroughSplitsAndMerges(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test")
	}
	k := small()
	k.Redis.FollowerRead = true
	c := start(t, Config{InMemory: true, Settings: k, Regions: 4})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx := t.Context()
	proxy := proxyClient(t, c)

	var rides []*ride
	for _, open := range []func(*Cluster) (rider, error){goRedisRider, rueidisRider} {
		client, err := open(c)
		if err != nil {
			t.Fatal(err)
		}
		rides = append(rides, startRide(alone(client, len(rides)), 6, seed+uint64(len(rides))))
	}

	x := &chores{stop: make(chan struct{})}
	cluster := goRedis(t, c)
	x.startWrites(t, "pipeline of 512 INCRs", func(begin string, n int) error {
		return incrAll(ctx, cluster.Pipeline(), begin+"pipe", n)
	})
	x.startWrites(t, "pipeline of 512 INCRs on the proxy port", func(begin string, n int) error {
		return incrAll(ctx, proxy.Pipeline(), begin+"proxied", n)
	})
	x.startWrites(t, "MSET, MGET and DEL on the proxy port", func(begin string, n int) error {
		var keys []string
		var pairs []any
		for i := range 200 {
			keys = append(keys, fmt.Sprint(begin, "many", i))
			pairs = append(pairs, keys[i], n)
		}
		if err := proxy.MSet(ctx, pairs...).Err(); err != nil {
			return err
		}
		got, err := proxy.MGet(ctx, keys...).Result()
		if err != nil {
			return err
		}
		for i, v := range got {
			if v != strconv.Itoa(n) {
				return fmt.Errorf("%s is %v", keys[i], v)
			}
		}
		if gone, err := proxy.Del(ctx, keys[:100]...).Result(); err != nil || gone != 100 {
			return fmt.Errorf("DEL of 100 keys: %d, %v", gone, err)
		}
		if there, err := proxy.Exists(ctx, keys...).Result(); err != nil || there != 100 {
			return fmt.Errorf("EXISTS after DEL: %d, %v; want 100", there, err)
		}
		return nil
	})
	const stable = 3000
	var pairs []any
	for i := range stable {
		pairs = append(pairs, fmt.Sprint("stable", i), i)
	}
	waitFor(t, time.Minute, "the keys that stay", func() bool { return proxy.MSet(ctx, pairs...).Err() == nil })
	x.start(t, "SCAN on the proxy port", func(int) error {
		found := make(map[string]bool)
		it := proxy.Scan(ctx, 0, "stable*", 50).Iterator()
		for it.Next(ctx) {
			found[it.Val()] = true
		}
		if it.Err() != nil || len(found) != stable {
			return fmt.Errorf("%d keys, %v; want %d", len(found), it.Err(), stable)
		}
		return nil
	})
	x.start(t, "KEYS on the proxy port", func(int) error {
		time.Sleep(50 * time.Millisecond) // else it takes a third of all cores
		if found, err := proxy.Keys(ctx, "stable*").Result(); err != nil || len(found) != stable {
			return fmt.Errorf("%d keys, %v; want %d", len(found), err, stable)
		}
		return nil
	})
	var followers []*readOnlyConn
	for _, addr := range c.Addrs() {
		f, err := dialReadOnly(addr)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		followers = append(followers, f)
	}
	moved := 0
	x.startWrites(t, "reads of followers", func(begin string, n int) error {
		key := fmt.Sprint(begin, "fresh", n%100)
		want, err := proxy.Incr(ctx, key).Result()
		if err != nil {
			return err
		}
		for _, f := range followers {
			got, err := f.get(key)
			if strings.HasPrefix(got, "-MOVED ") { // it has not applied the split yet
				moved++
				continue
			}
			if err != nil || got != fmt.Sprint(want) {
				return fmt.Errorf("%s at %s is %q, %v; want %d", key, f.RemoteAddr(), got, err, want)
			}
		}
		return nil
	})
	x.startWrites(t, "WAIT", func(begin string, n int) error {
		one := proxy.Conn()
		defer one.Close()
		if err := one.Set(ctx, fmt.Sprint(begin, "waited", n%100), n, 0).Err(); err != nil {
			return err
		}
		if got, err := one.Wait(ctx, 2, 10*time.Second).Result(); err != nil || got != 2 {
			return fmt.Errorf("%d replicas, %v; want 2", got, err)
		}
		return nil
	})
	stores := make([]*redis.Client, len(c.in.Places()))
	for i, addr := range c.Addrs() {
		stores[i] = redis.NewClient(&redis.Options{Addr: addr})
		defer stores[i].Close()
	}
	x.start(t, "CLUSTER SLOTS, SHARDS and NODES", func(n int) error { return checkTopology(ctx, stores[n%len(stores)]) })

	splits := 0
	changeRegions(t, c, 50, rand.New(rand.NewPCG(seed, 1<<32)), false, func(outcome string) {
		if strings.Contains(outcome, " is split ") {
			splits++
		}
		for _, r := range rides {
			r.progress(t, 50)
		}
	})
	t.Logf("%d splits", splits)
	x.end(t)
	unanswered := int(x.late.Load())
	for _, r := range rides {
		r.end(t)
		for why, writes := range r.unknown {
			if unanswered += writes; !strings.HasSuffix(why, " in time") {
				t.Errorf("%d writes of unknown fate:%s", writes, why)
			}
		}
	}
	// 17 goroutines write, so this is once for each. If it were the changes that leave writes without an answer, there
	// would be more.
	if unanswered > 17 {
		t.Errorf("%d writes were not answered in time", unanswered)
	}
	t.Logf("%d reads of followers were redirected", moved)
	for i := range 100 {
		key := fmt.Sprint("stable", i)
		if got, err := cluster.Get(ctx, key).Int(); err != nil || got != i {
			t.Errorf("%s is %d, %v", key, got, err)
		}
	}
	awaitHealth(t, c)
	awaitEqual(t, proxy)
}

// alone returns a client with keys that no other one has, and with connections that do not break.
func alone(r rider, number int) rider {
	own := func(key string) string { return fmt.Sprint(number, "-", key) }
	return rider{
		set:      func(key string, value int) error { return r.set(own(key), value) },
		incr:     func(key string) (int, error) { return r.incr(own(key)) },
		get:      func(key string) (int, error) { return r.get(own(key)) },
		attempts: 1,
		close:    r.close,
	}
}

// checkTopology checks what a store tells of the cluster: in each of its answers a slot has one owner.
func checkTopology(ctx context.Context, r *redis.Client) error {
	slots, err := r.Do(ctx, "CLUSTER", "SLOTS").Slice()
	if err != nil {
		return err
	}
	ranges := make([][2]int, 0, len(slots))
	for _, s := range slots {
		x := s.([]any)
		ranges = append(ranges, [2]int{int(x[0].(int64)), int(x[1].(int64))})
	}
	err = partition("CLUSTER SLOTS", ranges)
	shards, err2 := r.ClusterShards(ctx).Result()
	ranges = ranges[:0]
	for _, s := range shards {
		for _, x := range s.Slots {
			ranges = append(ranges, [2]int{int(x.Start), int(x.End)})
		}
	}
	err = errors.Join(err, err2, partition("CLUSTER SHARDS", ranges))
	nodes, err2 := r.ClusterNodes(ctx).Result()
	ranges = ranges[:0]
	for line := range strings.Lines(nodes) {
		for _, word := range strings.Fields(line)[8:] {
			first, last, both := strings.Cut(word, "-")
			x := [2]int{}
			x[0], _ = strconv.Atoi(first)
			if x[1] = x[0]; both {
				x[1], _ = strconv.Atoi(last)
			}
			ranges = append(ranges, x)
		}
	}
	err = errors.Join(err, err2, partition("CLUSTER NODES", ranges))
	return errors.Join(err, err2)
}

// partition returns an error if ranges of slots are not all slots, each once.
func partition(what string, ranges [][2]int) error {
	slices.SortFunc(ranges, func(a, b [2]int) int { return a[0] - b[0] })
	next := 0
	for _, r := range ranges {
		if r[0] != next {
			return fmt.Errorf("%s: %v; want slot %d next", what, ranges, next)
		}
		next = r[1] + 1
	}
	if next != topology.SlotCount {
		return fmt.Errorf("%s: %v; want all slots", what, ranges)
	}
	return nil
}

// readOnlyConn is a connection that reads at a follower.
type readOnlyConn struct {
	net.Conn
	r *bufio.Reader
}

func dialReadOnly(addr string) (*readOnlyConn, error) {
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	c := &readOnlyConn{nc, bufio.NewReader(nc)}
	if got, err := c.ask("READONLY"); got != "+OK" {
		return nil, fmt.Errorf("READONLY: %q, %v", got, err)
	}
	return c, nil
}

// ask sends a command and returns the first line of its reply.
func (c *readOnlyConn) ask(command string) (string, error) {
	c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := io.WriteString(c, command+"\r\n"); err != nil {
		return "", err
	}
	line, err := c.r.ReadString('\n')
	return strings.TrimSuffix(line, "\r\n"), err
}

// get returns what a key holds, or the line of an error.
func (c *readOnlyConn) get(key string) (string, error) {
	line, err := c.ask("GET " + key)
	if err != nil || !strings.HasPrefix(line, "$") || line == "$-1" {
		return line, err
	}
	line, err = c.r.ReadString('\n')
	return strings.TrimSuffix(line, "\r\n"), err
}

// unequal compares the replicas of each region. It returns an error unless all of them are known and equal.
func unequal(ctx context.Context, r *redis.Client) error {
	all, err := r.Do(ctx, "NEOKV", "CHECKSUM").Slice()
	if err != nil || len(all) == 0 {
		return fmt.Errorf("NEOKV CHECKSUM: %v, %v", all, err)
	}
	for _, region := range all {
		if text := fmt.Sprint(region); !strings.Contains(text, " replicas equal ") {
			err = errors.Join(err, fmt.Errorf("NEOKV CHECKSUM: %s", text))
		}
	}
	return err
}

// awaitEqual waits until the replicas of each region are known to be equal. If some are different, it does not wait.
func awaitEqual(t *testing.T, r *redis.Client) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		err := unequal(t.Context(), r)
		if err == nil {
			return
		}
		if strings.Contains(err.Error(), " replicas different ") || time.Now().After(end) {
			t.Error(err)
			return
		}
	}
}

// TestChecksumAcrossSplitsAndMerges compares all replicas over and over while regions are split and merged, at the
// proxy port and at a store's.
func TestChecksumAcrossSplitsAndMerges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := start(t, Config{InMemory: true, NoSockets: true, Regions: 4, Seed: 1})
		for i := range 200 {
			if _, err := c.Do(t.Context(), "SET", fmt.Sprint("k", i), i); err != nil {
				t.Fatal(err)
			}
		}
		x := &chores{stop: make(chan struct{})}
		for _, addr := range []string{c.ProxyAddr(), c.Addrs()[0]} {
			dial := func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) }
			r := redis.NewClient(&redis.Options{Addr: addr, Protocol: 2, Dialer: dial})
			defer r.Close()
			x.start(t, "NEOKV CHECKSUM at "+addr, func(int) error { return unequal(t.Context(), r) })
		}
		changeRegions(t, c, 60, rand.New(rand.NewPCG(1, 1)), false, func(string) { time.Sleep(time.Millisecond) })
		x.end(t)
	})
}

// TestCountsAcrossSplitsAndMerges: what nobody writes to has the same keys before and after each change, by every
// command that covers all keys, also while large collections that were deleted are reclaimed.
func TestCountsAcrossSplitsAndMerges(t *testing.T) {
	k := small()
	k.Redis.CountTime = time.Minute // no estimates
	c := start(t, Config{InMemory: true, Regions: 3, Settings: k})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	ctx := t.Context()
	proxy := proxyClient(t, c)
	const keys = 2000
	many := make([]any, 2000)
	for i := range many {
		many[i] = i
	}
	// On a machine that gives leaders no time, the outcome of a write may be unknown. Then all begins again.
	waitFor(t, time.Minute, "the keys", func() bool {
		p := proxy.Pipeline()
		p.FlushAll(ctx)
		for i := range keys / 4 {
			p.Set(ctx, fmt.Sprint("s", i), i, 0)
			p.Set(ctx, fmt.Sprint("e", i), i, time.Hour)
			p.RPush(ctx, fmt.Sprint("l", i), i, i)
			p.ZAdd(ctx, fmt.Sprint("z", i), redis.Z{Member: i}, redis.Z{Member: "m"})
		}
		for i := range 20 {
			p.SAdd(ctx, fmt.Sprint("gone", i), many...)
			p.Del(ctx, fmt.Sprint("gone", i))
		}
		_, err := p.Exec(ctx)
		return err == nil
	})
	check := func(what string) {
		t.Helper()
		if n, err := proxy.DBSize(ctx).Result(); err != nil || n != keys {
			t.Errorf("%s: DBSIZE is %d, %v; want %d", what, n, err, keys)
		}
		for _, addr := range c.Addrs() {
			r := redis.NewClient(&redis.Options{Addr: addr})
			if err := checkTopology(ctx, r); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			// A region that has just been split off has no leader for a moment.
			waitFor(t, 10*time.Second, "CLUSTER INFO of a cluster that is well", func() bool {
				text, err := r.ClusterInfo(ctx).Result()
				return err == nil && strings.Contains(text, "cluster_state:ok\r\n") &&
					strings.Contains(text, "cluster_slots_ok:16384\r\n")
			})
			r.Close()
		}
		// Each store counts what it leads, and the stores are asked one after the other.
		waitFor(t, 10*time.Second, what+": a DBSIZE of all stores that is that of the proxy", func() bool {
			sum := int64(0)
			for _, addr := range c.Addrs() {
				r := redis.NewClient(&redis.Options{Addr: addr})
				n, err := r.DBSize(ctx).Result()
				if err = errors.Join(err, r.Close()); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				sum += n
			}
			return sum == keys
		})
		if all, err := proxy.Keys(ctx, "*").Result(); err != nil || len(all) != keys {
			t.Errorf("%s: KEYS has %d, %v; want %d", what, len(all), err, keys)
		}
		var info string
		// INFO does not wait for leaders. While a region has none, the section is empty.
		waitFor(t, 10*time.Second, what+": INFO keyspace that is not empty", func() bool {
			var err error
			if info, err = proxy.Info(ctx, "keyspace").Result(); err != nil {
				t.Fatalf("%s: INFO keyspace: %v", what, err)
			}
			return strings.Contains(info, "db0:")
		})
		if want := fmt.Sprintf("db0:keys=%d,expires=%d,", keys, keys/4); !strings.Contains(info, want) {
			t.Errorf("%s: INFO keyspace is %q; want %s", what, info, want)
		}
	}
	check("at first")
	splits, merges := 0, 0
	changeRegions(t, c, 16, random, false, func(outcome string) {
		if strings.Contains(outcome, " is split ") {
			splits++
		} else {
			merges++
		}
		check(outcome)
	})
	awaitHealth(t, c)
	awaitEqual(t, proxy)
	waitFor(t, 30*time.Second, "what was deleted to be reclaimed", func() bool {
		got, _ := infoNeokv(t, c, c.ProxyAddr())
		return got["orphans_waiting"] == "0" && got["orphan_elements_waiting"] == "0"
	})
	got, _ := infoNeokv(t, c, c.ProxyAddr())
	if got["splits"] != fmt.Sprint(splits) || got["merges"] != fmt.Sprint(merges) ||
		got["regions"] != fmt.Sprint(3+splits-merges) {
		t.Errorf("INFO neokv has %s splits, %s merges, %s regions; want %d, %d and %d", got["splits"], got["merges"],
			got["regions"], splits, merges, 3+splits-merges)
	}
	if err := proxy.FlushAll(ctx).Err(); err != nil {
		t.Fatal(err)
	}
	if all, err := proxy.Keys(ctx, "*").Result(); err != nil || len(all) != 0 {
		t.Errorf("after FLUSHALL: %d keys, %v", len(all), err)
	}
	if n, err := proxy.DBSize(ctx).Result(); err != nil || n != 0 {
		t.Errorf("after FLUSHALL: DBSIZE is %d, %v", n, err)
	}
}

// TestFlushThroughSplitsAndMerges has one client that writes keys, counts them, removes them all and counts again, over
// and over, while regions split and merge. No key is left out by a count, or by a flush.
func TestFlushThroughSplitsAndMerges(t *testing.T) {
	c := start(t, Config{InMemory: true, Regions: 2})
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	ctx := t.Context()
	proxy := proxyClient(t, c)
	var pairs []any
	for i := range 300 {
		pairs = append(pairs, fmt.Sprint("k", i), i)
	}
	rounds := new(atomic.Int64)
	x := &chores{stop: make(chan struct{})}
	x.start(t, "MSET, DBSIZE, FLUSHALL, DBSIZE", func(n int) error {
		rounds.Add(1)
		for _, want := range []int64{300, 0} {
			var err error
			if want > 0 {
				err = proxy.MSet(ctx, pairs...).Err()
			} else {
				err = proxy.FlushAll(ctx).Err()
			}
			if late(err) {
				time.Sleep(5 * time.Second) // until it is in no log, or applied
				return nil
			}
			if err != nil {
				return err
			}
			if got, err := proxy.DBSize(ctx).Result(); err != nil || got != want {
				return fmt.Errorf("DBSIZE is %d, %v; want %d", got, err, want)
			}
		}
		return nil
	})
	changeRegions(t, c, 20, rand.New(rand.NewPCG(seed, 0)), false, func(string) {
		want := rounds.Load() + 2
		waitFor(t, 20*time.Second, "two rounds", func() bool { return rounds.Load() >= want || t.Failed() })
	})
	x.end(t)
}

// awaitHealth waits for Cluster.WaitHealthy.
func awaitHealth(t *testing.T, c *Cluster) {
	t.Helper()
	waitFor(t, 30*time.Second, "a healthy cluster", func() bool { return c.ailing() == "" })
	if err := c.WaitHealthy(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// proxyClient returns a client of the proxy port, which lives as long as the test.
func proxyClient(t *testing.T, c *Cluster) *redis.Client {
	r := redis.NewClient(&redis.Options{Addr: c.ProxyAddr(), Protocol: 2, ReadTimeout: time.Minute})
	t.Cleanup(func() { r.Close() })
	return r
}
