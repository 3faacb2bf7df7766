package sim

import (
	"fmt"
	"io"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"neokv.dev/neokv"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
)

// TestSyncBeforeAcknowledgement counts syncs in the file systems: before each SET of a single client is acknowledged,
// a majority of stores has completed a sync. Where the log is not synced, the same count finds writes without.
func TestSyncBeforeAcknowledgement(t *testing.T) {
	notShort(t)
	const writes = 100
	if lacking := countUnsynced(t, seam.Hooks{}, writes); lacking > 0 {
		t.Errorf("%d of %d writes were acknowledged without a sync on a majority of stores", lacking, writes)
	}
	var hooks seam.Hooks
	hooks.Mistakes.Store.Log.NoSync = true
	if lacking := countUnsynced(t, hooks, writes); lacking < writes*9/10 {
		t.Errorf("without syncs of the log: only %d of %d writes found to be acknowledged without", lacking, writes)
	}
}

// countUnsynced returns how many writes were acknowledged before two of three stores had completed a sync.
func countUnsynced(t *testing.T, hooks seam.Hooks, writes int) (lacking int) {
	t.Helper()
	c := startWith(t, neokv.Config{Dir: t.TempDir(), Settings: simSettings()}, &hooks)
	user := &caller{h: newHistory(io.Discard), addrs: c.Addrs(), dial: dialTCP, random: rand.New(rand.NewPCG(1, 1))}
	defer user.close()
	var completed [3]atomic.Int64 // by store; a sync of the journal counts for each store that it served
	for i, node := range hooks.Cluster.Nodes() {
		node.FS().Hook(disk.AfterSync, completed[i].Store)
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
