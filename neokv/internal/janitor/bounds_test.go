package janitor

import (
	"context"
	"fmt"
	"maps"
	"math/rand/v2"
	"testing"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// This file tests regions side by side in one engine, and bounds that change.

// populate stores an orphan with its elements, and an expired string, under some keys of all slots. It returns what of
// that is not in the test region.
func populate(t *testing.T, e *engine.Engine) (outside map[string]string) {
	t.Helper()
	outside = map[string]string{}
	b := e.NewBatch()
	inside := 0
	for i := range 200 {
		user := []byte(fmt.Sprint("k", i))
		slot := topology.SlotOf(user)
		o := keys.Orphan{Slot: slot, User: user, Version: 7, Type: keys.Set, Size: uint64(i%40 + 1)}
		of := map[string]string{
			string(o.AppendKey(nil)):                     string(o.Append(nil)),
			string(keys.AppendMetadata(nil, slot, user)): string(keys.AppendString(nil, 1, []byte("v"))),
		}
		for n := range o.Size {
			of[string(append(keys.AppendCollection(nil, keys.Data, slot, user, 7), []byte{byte(n)}...))] = ""
		}
		for key, value := range of {
			if err := b.Set([]byte(key), []byte(value)); err != nil {
				t.Fatal(err)
			}
		}
		if testRegion.Slots.Contains(slot) {
			inside++
		} else {
			maps.Copy(outside, of)
		}
	}
	if inside == 0 || len(outside) == 0 {
		t.Fatal("all keys are on one side")
	}
	if err := b.Commit(false); err != nil {
		t.Fatal(err)
	}
	return outside
}

// newBounded returns a replica of the test region over a new engine.
func newBounded(t *testing.T) *reclaimed {
	r := openReclaimed(t, disk.Mem())
	t.Cleanup(func() { r.close(t) })
	return r
}

// TestReclaimKeepsToBounds: the reclaimer deletes the orphans of its region alone, also if it has begun a pass within
// other bounds.
func TestReclaimKeepsToBounds(t *testing.T) {
	for _, stale := range []bool{false, true} {
		r := newBounded(t)
		want := populate(t, r.engine)
		if stale {
			all := region.Bounds{Slots: topology.SlotRange{Last: topology.SlotCount - 1}, Version: 99}
			r.s.bounds, r.s.counted, r.s.epoch = &all, true, r.Epoch()
			r.s.place, _ = keys.OrphanBounds(all.Slots)
		}
		r.run(t)
		got := r.content(t)
		for key := range got {
			if k, err := keys.ParseRedis([]byte(key)); err == nil && k.Keyspace == keys.RedisMetadata &&
				testRegion.Slots.Contains(k.Slot) {
				delete(got, key) // no orphan
			}
		}
		if !maps.Equal(got, want) {
			t.Errorf("stale %v: %d records are left, want %d, or they differ", stale, len(got), len(want))
		}
		if c := &r.Counters().Orphans; c.Collections.Load() != 0 || c.Elements.Load() != 0 {
			t.Errorf("stale %v: %d orphans with %d elements are counted, want none", stale, c.Collections.Load(),
				c.Elements.Load())
		}
	}
}

// TestCleanerKeepsToBounds: what the cleaner proposes lies within the bounds by which it has searched, and carries
// their version. The replica refuses it, since it does not lead.
func TestCleanerKeepsToBounds(t *testing.T) {
	r := newBounded(t)
	populate(t, r.engine)
	c := newCleaner(Options{Knobs: settings.Default().Redis, Engine: r.engine, Rand: rand.New(rand.NewPCG(1, 2)),
		Failed: r.fs.Failed, Fence: r.fs.Fence})
	s := &cleaning{replica: r.Replica, bounds: &region.Bounds{
		Slots: topology.SlotRange{First: 4096, Last: 8191}, Version: 41,
	}}
	for _, from := range [][]byte{nil, keys.AppendSlot(nil, keys.RedisMetadata, 0),
		keys.AppendSlot(nil, keys.RedisMetadata, 12000)} {
		if c.look(s, from, 1000, 1000, 1000) {
			t.Error("a replica that does not lead has applied a proposal")
		}
		run := c.pending.Run
		if run.Version != 41 || len(run.Calls) != 1 || len(run.Calls[0].Args) < 10 {
			t.Fatalf("proposed %d calls of version %d, want one of 41", len(run.Calls), run.Version)
		}
		for _, key := range run.Calls[0].Args[1:] {
			if slot := topology.SlotOf(key); !s.bounds.Slots.Contains(slot) {
				t.Errorf("key %q of slot %d is to be deleted", key, slot)
			}
		}
	}
}

// TestRegionsThatVanish: the cleaner and the reclaimer keep nothing of regions that the store no longer has.
func TestRegionsThatVanish(t *testing.T) {
	r := newBounded(t)
	there := map[topology.RegionID]*region.Replica{testRegion.ID: r.Replica}
	o := Options{Knobs: settings.Default().Redis, Engine: r.engine, Rand: rand.New(rand.NewPCG(1, 2)),
		Failed: r.fs.Failed, Fence: r.fs.Fence,
		Replicas: func() map[topology.RegionID]*region.Replica { return there }}
	c, x := newCleaner(o), newReclaimer(o)
	for id := topology.RegionID(1); id < 9; id++ {
		c.regions[id] = &cleaning{replica: r.Replica, bounds: r.Bounds()}
		x.progress(id, r.Replica)
	}
	x.pass(context.Background())
	if len(x.regions) != 1 || x.regions[testRegion.ID] == nil {
		t.Errorf("the reclaimer keeps %d regions, want the one there is", len(x.regions))
	}
	delete(there, testRegion.ID)
	c.pass(context.Background())
	x.pass(context.Background())
	if len(c.regions)+len(x.regions) != 0 {
		t.Errorf("the cleaner keeps %d regions, the reclaimer %d, and there is none", len(c.regions), len(x.regions))
	}
}
