package sim

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// TestMergeEndsDurably kills a store that has applied a merge, but not synced it. While the store is down the leader
// moves, and the region is split again, unless the merge is still open. The store must get the child: a merge does not
// end before all stores have it for good.
func TestMergeEndsDurably(t *testing.T) {
	if loseMerge(t, seam.Mistakes{}) {
		t.Error("the store had a replica that the merge had left behind")
	}
}

// TestStoreRepairsItself: a store ends a frozen replica whose region is no more. Merges that end too early leave such
// replicas behind, unless another sync has come in between.
func TestStoreRepairsItself(t *testing.T) {
	var early seam.Mistakes
	early.Store.EarlyEnd = true
	for range 10 {
		if loseMerge(t, early) {
			return
		}
	}
	t.Error("the store had no replica that a merge had left behind")
}

// loseMerge has store 3 apply a merge on a disk that syncs nothing any more, and kills it. It goes on, starts the store
// again, and checks that all comes to rest. It reports whether the store had to repair itself.
func loseMerge(t *testing.T, mistakes seam.Mistakes) (repaired bool) {
	var run atomic.Pointer[sim]
	var ended chan struct{} // made in the bubble
	merged := false
	hooks := seam.Hooks{Mistakes: mistakes}
	hooks.Region.BeforeApply = func(st topology.StoreID, id topology.RegionID, _, _ uint64, payload []byte, _ error) {
		if s := run.Load(); s != nil {
			s.hangUnsynced(st, id, payload)
		}
	}
	hooks.Region.BoundsChanged = func(st topology.StoreID, id topology.RegionID, b region.Bounds,
		how region.BoundsChange) {
		s := run.Load()
		if s == nil {
			return // it boots
		}
		s.observeBounds(st, id, b, how)
		if id == 1 && st == 1 && how == region.ByEntry {
			if merged && b.Change.Kind == keys.NoChange {
				close(ended)
			}
			merged = b.Change.Kind == keys.Merged
		}
	}
	settings := simSettings()
	settings.Engine.SharedSync = false // else the syncs of other stores make the merge durable, too
	inBubbleWith(t, settings, hooks, func(t *testing.T, s *sim, c *caller) {
		ended = make(chan struct{})
		run.Store(s)
		s.do("transfer 1 1")
		s.unsynced.Store(&lostStep{storeRegion{3, 1}, "merge"})
		s.do("merge 1")
		select {
		case <-ended:
		case <-time.After(time.Second): // it waits for the store
		}
		s.do("kill 3")
		s.unsynced.Store(nil)
		s.do("transfer 1 2")
		at := int(topology.SplitEvenly(simRegions)[1].First)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.inject(ctx, fault.Fault{Verb: fault.Split, Region: 1, Slot: at})
		t.Logf("split: %v", err)
		for i := range 300 { // the logs are cut
			_, err := c.do(set, s.key('r', i%2), fmt.Sprint(i))
			s.fail(err)
		}
		s.do("restart 3")
		if err := s.atRest(); err != nil {
			t.Error(err)
		}
		s.compareReplicas()
		if repaired = s.bounds.repairs > 0; repaired {
			s.problem = nil
		}
	})
	return repaired
}
