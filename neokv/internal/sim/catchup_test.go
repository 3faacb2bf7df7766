package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv"
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// verdicts asks by NEOKV CHECKSUM how the replicas compare, and returns the answer for each region, and the whole
// reply. The error is that of the command.
func verdicts(t testing.TB, c *neokv.Cluster, addr string) (said []string, reply any, err error) {
	t.Helper()
	client := redis.NewClient(&redis.Options{
		Addr: addr, ReadTimeout: time.Minute,
		Dialer: func(ctx context.Context, _, addr string) (net.Conn, error) { return c.Dial(ctx, addr) },
	})
	defer client.Close()
	if reply, err = client.Do(t.Context(), "NEOKV", "CHECKSUM").Result(); err != nil {
		return nil, nil, err
	}
	for _, one := range reply.([]any) {
		said = append(said, one.(map[any]any)["replicas"].(string))
	}
	return said, reply, nil
}

// replicaOn returns the replica of a region on a store, nil while there is none.
func replicaOn(n seam.StorePlace, id topology.RegionID) *region.Replica {
	if s := n.Store(); s != nil {
		return s.Replica(id)
	}
	return nil
}

// TestCatchUp keeps a store away, stopped or cut off, until the logs of the others no longer hold the entries that it
// lacks. Then the store catches up by snapshots, while clients go on writing, in real time. Its replicas are equal to
// the others' while all of them change.
func TestCatchUp(t *testing.T) {
	notShort(t)
	const regions = 2
	for _, x := range []struct {
		name         string
		leave, enter fault.Fault
	}{
		{"stopped", fault.Fault{Verb: fault.Stop, Stores: []int{3}}, fault.Fault{Verb: fault.Restart, Stores: []int{3}}},
		{"cut off", fault.Fault{Verb: fault.Partition, Stores: []int{3}}, fault.Fault{Verb: fault.Mend, Stores: []int{3}}},
	} {
		t.Run(x.name, func(t *testing.T) {
			k := settings.Default()
			k.Engine.MemtableSize, k.Engine.BlockCache = 12<<20, 12<<20
			k.Cluster = settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: regions}
			k.Raft.SnapshotEntries, k.Raft.CompactionOverhead = 100, 10
			hooks := new(seam.Hooks)
			c := startWith(t, neokv.Config{Dir: t.TempDir(), Settings: &k}, hooks)
			nodes := hooks.Cluster.Nodes()
			victim := nodes[2]

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
					defer func() { nc.Close() }()
					w, random := newWire(nc), rand.New(rand.NewPCG(3, uint64(i)))
					value := strings.Repeat("v", 100)
					for {
						select {
						case <-over:
							return
						default:
						}
						if _, err := w.call("SET", fmt.Sprint("k", random.IntN(5000)),
							fmt.Sprint(value, random.IntN(1000))); err == nil {
							written.Add(1)
							continue
						}
						// A write that is under way when its leader goes has an unknown outcome, rightly, and its
						// connection is closed.
						nc.Close()
						if nc, err = c.Dial(t.Context(), c.ProxyAddr()); err != nil {
							t.Error(err)
							return
						}
						w = newWire(nc)
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
				at[r], received[r] = replicaOn(victim, r).Applied(), replicaOn(victim,
					r).Counters().SnapshotsReceived.Load()
			}
			if _, err := c.Inject(t.Context(), x.leave); err != nil {
				t.Fatal(err)
			}
			until(t, "progress of the others", func() bool {
				for r := topology.RegionID(1); r <= regions; r++ {
					for _, n := range nodes[:2] {
						if replicaOn(n, r).Applied() < at[r]+400 {
							return false
						}
					}
				}
				return true
			})
			if _, err := c.Inject(t.Context(), x.enter); err != nil {
				t.Fatal(err)
			}
			for r := topology.RegionID(1); r <= regions; r++ {
				until(t, "snapshot", func() bool {
					replica := replicaOn(victim, r)
					// A store that was stopped has counted from 0 since.
					return replica != nil && replica.Applied() > at[r]+400 &&
						replica.Counters().SnapshotsReceived.Load() > 0
				})
			}
			for i, addr := range append(c.Addrs(), c.ProxyAddr()) {
				wrote(200)
				var said []string
				var reply any
				until(t, "equal replicas", func() bool {
					var err error
					if said, reply, err = verdicts(t, c, addr); err != nil {
						// The entry that asks for the checksum may wait for too long behind the clients' writes.
						t.Logf("asked at address %d: %v", i, err)
						return false
					}
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

// TestChecksumTells asks a cluster for checksums, while replicas differ in one record and the leader's is as clients
// left it.
func TestChecksumTells(t *testing.T) {
	notShort(t)
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, c *caller) {
		home, _ := s.leader(1)
		b := s.others(home)[0].Store().Engine().NewBatch()
		held, _ := home.Store().Replica(1).Region()
		key := keys.AppendMetadata(nil, held.Slots.First, []byte("k"))
		if err := b.Set(key, keys.AppendString(nil, 0, []byte("v"))); err != nil {
			t.Fatal(err)
		}
		if err := b.Commit(false); err != nil {
			t.Fatal(err)
		}
		said, reply, err := verdicts(t, s.c, s.c.ProxyAddr())
		if err != nil {
			t.Fatal(err)
		}
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
