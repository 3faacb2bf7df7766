package neokv

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"runtime/metrics"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

var catchUpMB = flag.Int("catchup.mb", 100, "how large the region is in BenchmarkCatchUp")

// verdicts asks by NEOKV CHECKSUM how a cluster's replicas compare, and returns what is said of each region.
func verdicts(t testing.TB, c *Cluster, addr string) (said []string, reply any) {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: addr, ReadTimeout: time.Minute,
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) },
	})
	defer client.Close()
	reply, err := client.Do(t.Context(), "NEOKV", "CHECKSUM").Result()
	if err != nil {
		t.Fatal(err)
	}
	for _, one := range reply.([]any) {
		said = append(said, one.(map[any]any)["replicas"].(string))
	}
	return said, reply
}

// until waits for a condition, with a bound.
func until(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("no %s in a minute", what)
		}
	}
}

// replicaOn returns a store's replica of a region, nil while there is none.
func (n *node) replicaOn(id topology.RegionID) *region.Replica {
	if s := n.store.Load(); s != nil {
		return s.Replica(id)
	}
	return nil
}

// TestCatchUp has a store away, stopped or cut off, until the others' logs no longer hold what it lacks. It comes back under load, which goes
// on, and catches up by snapshots, in real time: its replicas are equal to the others' while they go on changing.
func TestCatchUp(t *testing.T) {
	const regions = 2
	for _, x := range []struct {
		name         string
		leave, enter func(t *testing.T, c *Cluster, n *node)
	}{
		{"stopped", func(t *testing.T, _ *Cluster, n *node) {
			if err := n.stop(); err != nil {
				t.Fatal(err)
			}
		}, func(t *testing.T, _ *Cluster, n *node) {
			if err := n.restart(); err != nil {
				t.Fatal(err)
			}
		}},
		{"cut off", func(_ *testing.T, c *Cluster, n *node) {
			for _, o := range c.nodes[:2] {
				c.network.Cut(n.id, o.id)
				c.network.Cut(o.id, n.id)
			}
		}, func(_ *testing.T, c *Cluster, n *node) {
			for _, o := range c.nodes[:2] {
				c.network.Heal(n.id, o.id)
				c.network.Heal(o.id, n.id)
			}
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			k := small()
			k.Cluster = settings.Cluster{Stores: 3, Replicas: 3, Regions: regions}
			k.Raft.SnapshotEntries, k.Raft.CompactionOverhead = 100, 10
			c := start(t, Config{Dir: t.TempDir(), Settings: k})
			victim := c.nodes[2]

			over := make(chan struct{})
			var clients sync.WaitGroup
			var written atomic.Int64
			for i := range 4 {
				clients.Go(func() {
					nc, err := c.Dial(t.Context(), c.ProxyAddr())
					if err != nil {
						t.Error(err)
						return
					}
					defer nc.Close()
					w, random := newWire(nc), rand.New(rand.NewPCG(3, uint64(i)))
					value := strings.Repeat("v", 100)
					for {
						select {
						case <-over:
							return
						default:
						}
						// A write under way when its leader goes away has an unknown outcome, which is as it should be.
						if _, err := w.call("SET", fmt.Sprint("k", random.IntN(5000)), fmt.Sprint(value, random.IntN(1000))); err == nil {
							written.Add(1)
						}
					}
				})
			}
			stop := sync.OnceFunc(func() {
				close(over)
				clients.Wait()
			})
			defer stop()
			wrote := func(n int64) {
				from := written.Load()
				until(t, "load", func() bool { return written.Load() >= from+n })
			}
			wrote(2000)
			var at, received [regions + 1]uint64
			for r := topology.RegionID(1); r <= regions; r++ {
				at[r], received[r] = victim.replicaOn(r).Applied(), victim.replicaOn(r).Counters().SnapshotsReceived.Load()
			}
			x.leave(t, c, victim)
			until(t, "progress of the others", func() bool {
				for r := topology.RegionID(1); r <= regions; r++ {
					for _, n := range c.nodes[:2] {
						if n.replicaOn(r).Applied() < at[r]+400 {
							return false
						}
					}
				}
				return true
			})
			x.enter(t, c, victim)
			for r := topology.RegionID(1); r <= regions; r++ {
				until(t, "snapshot", func() bool {
					replica := victim.replicaOn(r)
					// A store that was stopped counts from nothing.
					return replica != nil && replica.Applied() > at[r]+400 && replica.Counters().SnapshotsReceived.Load() > 0
				})
			}
			for i, addr := range append(c.Addrs(), c.ProxyAddr()) {
				wrote(200)
				var said []string
				var reply any
				until(t, "equal replicas", func() bool {
					said, reply = verdicts(t, c, addr)
					return slices.Contains(said, "different") || !slices.Contains(said, "incomplete")
				})
				if slices.Contains(said, "different") || len(said) != regions {
					t.Errorf("asked at address %d: %v", i, reply)
				}
			}
			stop()
			t.Logf("%d writes", written.Load())
		})
	}
}

// TestChecksumTells asks a running cluster whose replicas differ in one record, of which commands read the same at the leader.
func TestChecksumTells(t *testing.T) {
	inBubble(t, store.Faults{}, func(t *testing.T, s *sim, c *caller) {
		home, _ := s.leader(1)
		b := s.others(home)[0].store.Load().Engine().NewBatch()
		held, _ := home.store.Load().Replica(1).Region()
		space := keys.Space{Region: 1, Index: 1}
		if err := b.Set(space.AppendMetadata(nil, held.Slots.First, []byte("k")), keys.AppendString(nil, 0, []byte("v"))); err != nil {
			t.Fatal(err)
		}
		if err := b.Commit(false); err != nil {
			t.Fatal(err)
		}
		said, reply := verdicts(t, s.c, s.c.ProxyAddr())
		if want := []string{"different", "equal", "equal", "equal"}; !slices.Equal(said, want) {
			t.Errorf("replicas are %v; want %v\n%v", said, want, reply)
		}
		sums := map[any]int{}
		for _, sum := range reply.([]any)[0].(map[any]any)["checksums"].(map[any]any) {
			sums[sum]++
		}
		if len(sums) != 2 {
			t.Errorf("checksums %v; want that of one store to stand out", sums)
		}
	})
}

// BenchmarkCatchUp measures how long a store that was away takes until it has a region back, by snapshot, while clients read and write, on disk, and the
// most memory that the process has in objects meanwhile:
//
//	go test ./neokv -run '^$' -bench CatchUp -benchtime 1x
//
// Memory is that of three stores and their clients. What the transfer adds is bounded, whatever the region's size: by a few
// blocks of 2 MiB on each side, the index and the filter of a table of 32 MiB on each side, and the garbage that the runtime allows.
func BenchmarkCatchUp(b *testing.B) {
	for b.Loop() {
		b.StopTimer()
		k := settings.Default()
		k.Cluster = settings.Cluster{Stores: 3, Replicas: 3, Regions: 1}
		k.Raft.SnapshotBytes = 8 << 20 // the log behind the last two records stays: by default, about as much as there is here
		c, err := Start(b.Context(), Config{Dir: b.TempDir(), Settings: &k})
		if err != nil {
			b.Fatal(err)
		}
		away := c.nodes[2]
		if err := away.stop(); err != nil {
			b.Fatal(err)
		}
		fill(b, c, *catchUpMB<<20)
		stop := clients(b, c, func(time.Duration) {})
		runtime.GC()
		before := heap()
		peak, sampled := watchHeap()
		leader := c.nodes[0].replicaOn(1)
		goal := leader.Applied()
		b.StartTimer()
		begin := time.Now()
		if err := away.restart(); err != nil {
			b.Fatal(err)
		}
		until(b, "catching up", func() bool {
			r := away.replicaOn(1)
			return r != nil && r.Applied() >= goal && r.Counters().SnapshotsReceived.Load() > 0
		})
		took := time.Since(begin)
		b.StopTimer()
		most := peak()
		bytes := away.replicaOn(1).Counters().SnapshotBytes.Load()
		stop()
		got, err := c.nodes[0].store.Load().Compare(b.Context(), 1)
		if err != nil || got.Verdict() != "equal" {
			b.Errorf("%+v, %v", got, err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
		b.ReportMetric(took.Seconds(), "s/catch-up")
		b.ReportMetric(float64(bytes)/1e6/took.Seconds(), "MB/s")
		b.ReportMetric(float64(bytes)/1e6, "snapshot-MB")
		b.ReportMetric(float64(most), "peak-heap-B")
		b.ReportMetric(float64(before), "heap-before-B")
		b.Logf("%d samples of the heap", *sampled)
		b.StartTimer()
	}
}

// fill writes random values of 1 KiB.
func fill(b *testing.B, c *Cluster, total int) {
	const size, loaders = 1 << 10, 4
	var random [loaders]*rand.ChaCha8
	var value [loaders][size]byte
	for i := range random {
		random[i] = rand.NewChaCha8([32]byte{byte(i)})
	}
	load(b, c, total/size, loaders, 64, func(out []byte, loader, k int) []byte {
		random[loader].Read(value[loader][:])
		key := fmt.Sprintf("big-%d", k)
		return fmt.Appendf(out, "*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, size, value[loader][:])
	})
}

// heap is what the process has in objects, garbage included.
func heap() uint64 {
	s := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}

// watchHeap samples heap until peak is called, which returns the largest sample.
func watchHeap() (peak func() uint64, samples *int) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	samples = new(int)
	var most uint64
	go func() {
		defer close(done)
		for tick := time.NewTicker(5 * time.Millisecond); ctx.Err() == nil; <-tick.C {
			most = max(most, heap())
			*samples++
		}
	}()
	return func() uint64 {
		cancel()
		<-done
		return most
	}, samples
}
