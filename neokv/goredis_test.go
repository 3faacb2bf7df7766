package neokv

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/internal/cluster"
	"neokv.dev/neokv/internal/topology"
)

// failedCall is an error that reached a caller of go-redis.
type failedCall struct {
	begin time.Time
	write bool
	err   error
}

// callers read, write and count in all regions, through one go-redis client with default settings.
type callers struct {
	client *redis.ClusterClient
	keys   []string // one per region
	stop   chan struct{}
	wg     sync.WaitGroup

	acknowledged atomic.Int64
	slowest      atomic.Int64 // ns
	counted      []atomic.Int64

	mu     sync.Mutex
	failed []failedCall
}

func startCallers(t *testing.T, c *Cluster, n int) *callers {
	l := &callers{client: redis.NewClusterClient(&redis.ClusterOptions{Addrs: c.Addrs()}), stop: make(chan struct{})}
	for _, slots := range topology.SplitEvenly(c.Shape().Regions) {
		for n := 0; ; n++ {
			if tag := fmt.Sprintf("t%d", n); slots.Contains(topology.SlotOf([]byte(tag))) {
				l.keys = append(l.keys, tag)
				break
			}
		}
	}
	l.counted = make([]atomic.Int64, len(l.keys))
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for i := range n {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		l.wg.Go(func() { l.call(i, random) })
	}
	return l
}

// call does one operation after the other, some hundred a second.
func (l *callers) call(id int, random *rand.Rand) {
	for n := 0; ; n++ {
		select {
		case <-l.stop:
			return
		case <-time.After(time.Duration(random.IntN(4000)) * time.Microsecond):
		}
		ctx := context.Background()
		region, kind := random.IntN(len(l.keys)), random.IntN(4)
		key := fmt.Sprintf("v%d{%s}", id, l.keys[region])
		begin := time.Now()
		var err error
		switch kind {
		case 0:
			err = l.client.Set(ctx, key, n, 0).Err()
		case 1:
			if err = l.client.Incr(ctx, fmt.Sprintf("count{%s}", l.keys[region])).Err(); err == nil {
				l.counted[region].Add(1)
			}
		default:
			if err = l.client.Get(ctx, key).Err(); err == redis.Nil {
				err = nil
			}
		}
		took := int64(time.Since(begin))
		for old := l.slowest.Load(); took > old && !l.slowest.CompareAndSwap(old, took); old = l.slowest.Load() {
		}
		if err == nil {
			l.acknowledged.Add(1)
			continue
		}
		l.mu.Lock()
		l.failed = append(l.failed, failedCall{begin, kind < 2, err})
		l.mu.Unlock()
	}
}

// end stops the callers and checks the counters: each has every acknowledged count, and no count that no caller asked
// for.
func (l *callers) end(t *testing.T) {
	close(l.stop)
	l.wg.Wait()
	unknown := int64(0)
	for _, f := range l.failed {
		if f.write {
			unknown++
		}
	}
	for i := range l.keys {
		n, err := l.client.Get(t.Context(), fmt.Sprintf("count{%s}", l.keys[i])).Int64()
		if got := l.counted[i].Load(); err != nil || n < got || n > got+unknown {
			t.Errorf("region %d: counted to %d, %v; %d were acknowledged, %d writes have an unknown outcome",
				i+1, n, err, got, unknown)
		}
	}
	t.Logf("%d operations acknowledged, the slowest in %v; %d errors",
		l.acknowledged.Load(), time.Duration(l.slowest.Load()), len(l.failed))
	l.client.Close()
}

// progress returns when another n operations have been acknowledged.
func (l *callers) progress(t *testing.T, n int64) {
	t.Helper()
	want := l.acknowledged.Load() + n
	waitFor(t, time.Minute, fmt.Sprintf("%d more operations", n), func() bool { return l.acknowledged.Load() >= want })
}

// waitFor waits for a condition, with a bound.
func waitFor(t testing.TB, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited %v for %s", limit, what)
		}
	}
}

// surelySet sets a key. It does so again where nobody knows whether the key was set, or where the region has no leader:
// a machine that is busy, or a store that is killed, may take a leader away.
func surelySet(t *testing.T, r *redis.Client, key string, value any) {
	t.Helper()
	waitFor(t, 20*time.Second, "SET "+key, func() bool {
		err := r.Set(t.Context(), key, value, 0).Err()
		if err != nil && !fateUnknown(err) && !strings.HasPrefix(err.Error(), "CLUSTERDOWN ") {
			t.Fatalf("SET %s: %v", key, err)
		}
		return err == nil
	})
}

// onBothTransports runs a test with each, at the same time, since the tests mostly wait.
func onBothTransports(t *testing.T, test func(t *testing.T, c *Cluster)) {
	for _, name := range []string{"memory", "tcp"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			k := small()
			k.Raft.Transport = name
			test(t, start(t, Config{InMemory: true, Settings: k}))
		})
	}
}

// TestGoRedisThroughTransfers moves leaders while go-redis works. No error reaches its callers.
func TestGoRedisThroughTransfers(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test")
	}
	onBothTransports(t, func(t *testing.T, c *Cluster) {
		l := startCallers(t, c, 16)
		l.progress(t, 200)
		const transfers = 24
		moved := 0
		for i := range transfers {
			region := topology.RegionID(1 + i%c.Shape().Regions)
			to := c.in.Places()[(i/c.Shape().Regions+i)%len(c.in.Places())]
			leads := func(n *cluster.Place) bool {
				for _, lead := range n.Store().Replicas().Leads() {
					if lead.Region == region {
						return true
					}
				}
				return false
			}
			if leads(to) {
				to = c.in.Places()[int(to.ID())%len(c.in.Places())]
			}
			var again time.Time // Raft may ignore a request
			waitFor(t, 20*time.Second, fmt.Sprintf("store %d to lead region %d", to.ID(), region), func() bool {
				for _, n := range c.in.Places() {
					if n != to && time.Now().After(again) && leads(n) {
						n.Store().Transfer(region, to.ID())
						again = time.Now().Add(500 * time.Millisecond)
					}
				}
				return leads(to)
			})
			moved++
			l.progress(t, 20)
		}
		l.end(t)
		t.Logf("%d leaders moved", moved)
		for _, f := range l.failed {
			t.Errorf("write %v: %v", f.write, f.err)
		}
	})
}

// TestGoRedisThroughACut cuts a store off from the others, but not from its clients. Reads go on without an error. A
// write has an unknown outcome if it was in flight at the store, or reached it before it stepped down. No other error
// reaches a caller.
func TestGoRedisThroughACut(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test")
	}
	onBothTransports(t, func(t *testing.T, c *Cluster) {
		l := startCallers(t, c, 16)
		l.progress(t, 500)
		victim := c.in.Places()[1]
		cut := time.Now()
		do(t, c, "partition 2 all")
		waitFor(t, 20*time.Second, "the store to step down", func() bool {
			return len(victim.Store().Replicas().Leads()) == 0
		})
		stepped := time.Now()
		waitFor(t, 20*time.Second, "the others to lead all regions", func() bool {
			leads := 0
			for _, n := range c.in.Places() {
				leads += len(n.Store().Replicas().Leads())
			}
			return leads == c.Shape().Regions
		})
		elected := time.Now()
		l.progress(t, 2000)
		// By then clients have been told that the store is dead.
		waitFor(t, 20*time.Second, "the pause", func() bool { return time.Since(elected) > 8*time.Second })
		l.progress(t, 500)
		do(t, c, "mend 2 all")
		l.progress(t, 2000)
		l.end(t)
		t.Logf("stepped down after %v, all regions led again after %v", stepped.Sub(cut), elected.Sub(cut))
		before, during := 0, 0
		for _, f := range l.failed {
			switch {
			case !f.write || !strings.HasPrefix(f.err.Error(), "ERR write outcome unknown: "):
				t.Errorf("write %v, begun %v after the cut: %v", f.write, f.begin.Sub(cut), f.err)
			case f.begin.After(stepped):
				t.Errorf("a write begun %v after the store had stepped down: %v", f.begin.Sub(stepped), f.err)
			case f.begin.Before(cut):
				before++
			default:
				during++
			}
		}
		t.Logf("writes of unknown outcome: %d in flight at the cut, %d sent before the store stepped down", before,
			during)
	})
}
