package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// writers are clients that set keys of their own by the proxy port, all the time. No command may fail.
type writers struct {
	c     *neokv.Cluster
	over  chan struct{}
	ended chan struct{}
	set   []atomic.Int64 // by writer, the last number that was acknowledged
}

func startWriters(t *testing.T, c *neokv.Cluster, n int) *writers {
	w := &writers{c: c, over: make(chan struct{}), ended: make(chan struct{}), set: make([]atomic.Int64, n)}
	for i := range n {
		go func() {
			defer func() { w.ended <- struct{}{} }()
			for x := int64(1); ; x++ {
				select {
				case <-w.over:
					return
				case <-time.After(3 * time.Millisecond):
				}
				if _, err := c.Do(t.Context(), "SET", fmt.Sprint("w", i), x); err != nil {
					t.Errorf("writer %d: %v", i, err)
				}
				w.set[i].Store(x)
			}
		}()
	}
	return w
}

// end ends the writers and compares what is stored with what was acknowledged.
func (w *writers) end(t *testing.T) {
	t.Helper()
	close(w.over)
	for range w.set {
		<-w.ended
	}
	w.check(t)
}

func (w *writers) check(t *testing.T) {
	t.Helper()
	for i := range w.set {
		got, err := w.c.Do(t.Context(), "GET", fmt.Sprint("w", i))
		if want := fmt.Sprint(w.set[i].Load()); err != nil || fmt.Sprintf("%s", got) != want {
			t.Errorf("writer %d: %s, %v; want %s", i, got, err, want)
		}
	}
}

// inject carries out faults, which must not fail.
func inject(t *testing.T, c *neokv.Cluster, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if _, err := c.Inject(t.Context(), fault.MustParse(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// membersConfig is a cluster of three stores in virtual time.
func membersConfig() neokv.Config {
	return neokv.Config{InMemory: true, NoSockets: true, Seed: 1, Settings: simSettings()}
}

// TestAddStoreUnderLoad: a store comes while clients write, gets replicas and leaders, and has them after a power cut of
// the whole process.
func TestAddStoreUnderLoad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startWith(t, membersConfig(), &seam.Hooks{VirtualTime: true, JournalBytes: func() int64 { return 256 << 10 }})
		w := startWriters(t, c, 6)
		time.Sleep(time.Second)
		if id, err := c.AddStore(t.Context()); id != 4 || err != nil {
			t.Fatalf("store %d, %v", id, err)
		}
		inject(t, c, "move-replica 1 1 4", "move-replica 2 3 4", "transfer 1 4")
		w.end(t)
		inject(t, c, "kill all", "restart all")
		w.check(t)
		if s := c.Status().Stores[3]; s.State != neokv.StateOK || s.Replicas != 2 {
			t.Errorf("store 4: %+v", s)
		}
		for r := 1; r <= simRegions; r++ {
			got, err := c.Do(t.Context(), "NEOKV", "CHECKSUM", r)
			if err != nil || !strings.Contains(fmt.Sprint(got), "equal") {
				t.Errorf("region %d: %v, %v", r, got, err)
			}
		}
	})
}

// TestAddStoreCut cuts the power of a store that comes at each of its first syncs. The cluster goes on; the store is
// there when it is started again, and takes a replica.
func TestAddStoreCut(t *testing.T) {
	cut := 0
	for at := int64(1); at <= 24; at++ {
		synctest.Test(t, func(t *testing.T) {
			hooks := &seam.Hooks{VirtualTime: true}
			var left atomic.Pointer[disk.FS]
			hooks.Starting = func(id topology.StoreID) {
				nodes := hooks.Cluster.Nodes()
				if fs := nodes[len(nodes)-1].FS(); id == 4 && left.Load() == nil {
					var syncs atomic.Int64
					fs.Hook(disk.BeforeSync, func(int64) {
						if syncs.Add(1) == at {
							left.Store(fs.Crash(50, rand.New(rand.NewPCG(1, uint64(at)))))
						}
					})
				}
			}
			c := startWith(t, membersConfig(), hooks)
			w := startWriters(t, c, 2)
			_, err := c.AddStore(t.Context())
			for range 200 { // a store that was added makes some more syncs
				if left.Load() != nil {
					break
				}
				time.Sleep(10 * time.Millisecond)
			}
			n := hooks.Cluster.Nodes()[3]
			if left.Load() == nil {
				if err != nil {
					t.Error(err)
				}
				n.FS().Hook(disk.BeforeSync, nil)
			} else {
				cut++
				inject(t, c, "partition 4 1,2,3")
				_, _ = c.Inject(t.Context(), fault.MustParse("stop 4"))
				n.Move(left.Load(), n.Dir())
				inject(t, c, "mend 4 1,2,3")
			}
			inject(t, c, "restart 4", "move-replica 1 3 4")
			if s := c.Status().Stores[3]; s.State != neokv.StateOK || s.Replicas != 1 || s.Member != "" {
				t.Errorf("power cut at sync %d: store 4: %+v", at, s)
			}
			w.end(t)
		})
	}
	if cut < 10 {
		t.Errorf("%d power cuts; want at least 10", cut)
	}
}

// TestDrainUnderLoad drains each store that has no replica of meta, while clients write: no command fails, also where
// the power of the whole process is cut in the middle. Then it removes one of them.
func TestDrainUnderLoad(t *testing.T) {
	for _, store := range []int{4, 5} {
		synctest.Test(t, func(t *testing.T) {
			config := membersConfig()
			config.Settings.Cluster.Stores = 5
			config.Settings.Cluster.Regions = 5
			c := startWith(t, config, &seam.Hooks{VirtualTime: true, JournalBytes: func() int64 { return 256 << 10 }})
			w := startWriters(t, c, 6)
			time.Sleep(time.Second)
			if err := c.DrainStore(t.Context(), store); err != nil {
				t.Fatal(err)
			}
			w.end(t)
			inject(t, c, fmt.Sprintf("drain %d cancel", store), fmt.Sprintf("move-replica 1 3 %d", store))
			ended := make(chan error, 1)
			go func() { ended <- c.DrainStore(t.Context(), store) }()
			time.Sleep(50 * time.Millisecond)
			inject(t, c, "kill all", "restart all")
			if err := <-ended; err != nil {
				t.Error(err)
			}
			w.check(t)
			inject(t, c, fmt.Sprint("remove ", store))
			if n := len(c.Status().Stores); n != 4 {
				t.Errorf("%d stores; want 4", n)
			}
			inject(t, c, "kill all", "restart all")
			w.check(t)
			if id, err := c.AddStore(t.Context()); id != 6 || err != nil {
				t.Errorf("store %d, %v; want 6", id, err)
			}
		})
	}
}
