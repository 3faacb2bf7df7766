package sim

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/store"
)

const dirVariable = "NEOKV_TEST_DIR"

// serveRole runs a cluster on the folder that the environment names, and prints its addresses.
func serveRole() {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	c, err := neokv.Start(ctx, neokv.Config{Dir: os.Getenv(dirVariable), Settings: simSettings()})
	if err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	fmt.Println(strings.Join(c.Addrs(), ","))
	untilOrphaned()
}

// TestKillNine kills the process of a cluster at random moments and starts it again on the same folder. No
// acknowledged write is lost, and the history of all lives together is linearizable.
func TestKillNine(t *testing.T) {
	notShort(t)
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 1))
	dir, lives := t.TempDir(), 4
	out, err := os.CreateTemp("", "neokv-kill-*.history")
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		out.Close()
		if !t.Failed() {
			os.Remove(out.Name())
		}
	}()
	h := newHistory(out)
	id := 0
	during := func(life int, work func(c *caller)) {
		p := startRole(t, "serve", dirVariable+"="+dir)
		addrs := strings.Split(p.line, ",")
		if len(addrs) != 3 {
			t.Fatalf("life %d: %s", life, p.line)
		}
		h.note("life %d: %s", life, p.line)
		dead := make(chan struct{})
		var wg sync.WaitGroup
		if life <= lives {
			wg.Go(func() {
				time.Sleep(time.Duration(100+random.IntN(700)) * time.Millisecond)
				p.kill()
				close(dead)
			})
		}
		clients := 4
		if life > lives {
			clients = 1
		}
		for range clients {
			id++
			c := &caller{id: id, h: h, addrs: addrs, dial: dialTCP, over: dead}
			c.random = rand.New(rand.NewPCG(seed, uint64(100+id)))
			c.life = func(string) uint64 { // a caller may read an answer after the kill, but sends nothing then
				select {
				case <-dead:
					return 1
				default:
					return 0
				}
			}
			wg.Go(func() {
				defer c.close()
				work(c)
			})
		}
		wg.Wait()
		p.kill()
	}
	key := func(sort byte, life, region int) string { return simKey(sort, fmt.Sprint(life), region) }
	for life := 1; life <= lives; life++ {
		during(life, func(c *caller) {
			for n := 0; c.life("")%2 == 0; n++ {
				region := c.random.IntN(simRegions)
				var err error
				switch c.random.IntN(4) {
				case 0:
					_, err = c.do(get, key('r', life, region), "")
				case 1:
					_, err = c.do(set, key('r', life, region), fmt.Sprintf("%d-%d", c.id, n))
				case 2:
					_, err = c.do(incr, key('c', life, region), "")
				case 3: // a key that no other operation writes
					_, err = c.do(set, fmt.Sprintf("k%d-%d", c.id, n), "there")
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	written := map[string]bool{}
	for _, o := range h.ops {
		written[o.key] = true
	}
	during(lives+1, func(c *caller) {
		for key := range written {
			if ok, err := c.do(get, key, ""); !ok {
				t.Errorf("key %s: no answer: %v", key, err)
				return
			}
		}
	})
	if err := h.check(); err != nil {
		t.Errorf("seed %d: %v\nhistory: %s", seed, err, out.Name())
	}
	acknowledged, unknown := h.count()
	t.Logf("seed %d: %d kills, %d operations acknowledged, %d unknown, %d keys",
		seed, lives, acknowledged, unknown, len(written))
	if acknowledged < 100 {
		t.Errorf("only %d operations acknowledged", acknowledged)
	}
}

// TestSyncBeforeAcknowledgement counts syncs in the file systems: before each SET of a single client is acknowledged,
// a majority of stores has completed a sync. Where the log is not synced, the same count finds writes without.
func TestSyncBeforeAcknowledgement(t *testing.T) {
	notShort(t)
	const writes = 100
	if lacking := countUnsynced(t, store.Faults{}, writes); lacking > 0 {
		t.Errorf("%d of %d writes were acknowledged without a sync on a majority of stores", lacking, writes)
	}
	var f store.Faults
	f.Log.NoSync = true
	if lacking := countUnsynced(t, f, writes); lacking < writes*9/10 {
		t.Errorf("without syncs of the log: only %d of %d writes found to be acknowledged without", lacking, writes)
	}
}

// countUnsynced returns how many writes were acknowledged before two of three stores had completed a sync.
func countUnsynced(t *testing.T, f store.Faults, writes int) (lacking int) {
	t.Helper()
	hooks := &seam.Hooks{Store: f}
	c := start(t, neokv.Config{Dir: t.TempDir(), Settings: simSettings(), Hooks: hooks})
	user := &caller{h: newHistory(io.Discard), addrs: c.Addrs(), dial: dialTCP, random: rand.New(rand.NewPCG(1, 1))}
	defer user.close()
	var completed [3]atomic.Int64 // by store; a sync of the journal counts for each store that it served
	for i, node := range hooks.Cluster.Nodes() {
		node.FS().AfterSync(completed[i].Store)
	}
	syncs := func() (n [3]int64) {
		for i := range completed {
			n[i] = completed[i].Load()
		}
		return n
	}
	for i := range writes {
		before := syncs()
		ok, err := user.do(set, fmt.Sprintf("k%d", i), "v")
		after := syncs()
		if !ok {
			t.Fatalf("SET %d: not acknowledged: %v", i, err)
		}
		synced := 0
		for s := range before {
			if after[s] > before[s] {
				synced++
			}
		}
		if synced < 2 {
			lacking++
		}
	}
	return lacking
}
