package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// inVirtualTime calls f with three stores that serve three regions.
func inVirtualTime(t *testing.T, f func(t *testing.T, c *testStores), change ...func(*testStores)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 3}, change...)
		defer c.close()
		c.untilServing()
		f(t, c)
	})
}

// alter changes a copy of the store's table, and makes it the store's. Time that passes may mend it.
func alter(s *Store, change func(*route.Table)) {
	t := s.Table()
	next := route.NewTable(t.Epoch, t.Stores, t.Regions)
	change(next)
	s.cluster.table.Store(next)
}

// forgetLeader makes the store forget who leads a region.
func forgetLeader(s *Store, id topology.RegionID) {
	alter(s, func(t *route.Table) { t.ByID(id).Leader = 0 })
}

// TestLateMerge has all replicas apply a merge when its driver waits for it no longer. It has happened all the same.
func TestLateMerge(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		right, err := c.leader(1).Merge(t.Context(), 1, "", new(time.Duration))
		if right != 2 || err != nil {
			t.Errorf("Merge = %d, %v; want 2", right, err)
		}
		if r, _ := c.leader(1).Replica(1).Region(); r.Slots.Last != c.initial.Regions[1].Slots.Last {
			t.Errorf("the region has the slots %v", r.Slots)
		}
	}, func(c *testStores) {
		c.hooks.BeforeApply = func(_ topology.StoreID, id topology.RegionID, _, _ uint64, payload []byte, _ error) {
			if id == 1 && bytes.Contains(payload, []byte("merge")) {
				time.Sleep(freezeTime + freezeTime/2)
			}
		}
	})
}

// TestEntriesCloseTheirOwnChanges gives changes of a region the numbers of others. None is closed by an entry about
// another kind of change.
func TestEntriesCloseTheirOwnChanges(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		s := c.leader(2)
		r := s.Replica(2)
		done, ok := s.drivers.drive(2) // settleAll leaves it alone
		if !ok {
			t.Fatal("somebody drives region 2")
		}
		defer done()
		type closing = func(context.Context, time.Time, uint64) error
		check := func(kind keys.ChangeKind, foreign []closing, own closing) {
			t.Helper()
			soon := time.Now().Add(5 * time.Second)
			begun, err := r.Begin(t.Context(), soon, kind, 1, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range foreign {
				if err := f(t.Context(), soon, begun); err != nil {
					t.Fatal(err)
				}
			}
			if got := r.Bounds().Change; got.Kind != kind || got.Begun != begun {
				t.Errorf("a change of kind %v is %+v after entries about others", kind, got)
			}
			if err := own(t.Context(), soon, begun); err != nil {
				t.Fatal(err)
			}
			if got := r.Bounds().Change; got.Kind != keys.NoChange {
				t.Errorf("a change is open that was closed: %+v", got)
			}
		}
		thaw := func(left topology.RegionID) closing {
			return func(ctx context.Context, deadline time.Time, begun uint64) error {
				return r.Thaw(ctx, deadline, left, begun)
			}
		}
		check(keys.Splitting, []closing{r.End, thaw(1)}, r.Abort)
		check(keys.Merging, []closing{r.End, thaw(1)}, r.Abort)
		check(keys.HasSplit, []closing{r.Abort, thaw(1)}, r.End)
		check(keys.Merged, []closing{r.Abort, thaw(1)}, r.End)
		check(keys.Leaving, []closing{r.Abort, r.End, thaw(3)}, thaw(1))
	})
}

// TestFullDisksEndChanges: a change that has begun goes on although no majority has space, and none begins.
func TestFullDisksEndChanges(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		s := c.leader(2)
		r := s.Replica(2)
		done, ok := s.drivers.drive(2) // settleAll would find that nobody merges, and close the change
		if !ok {
			t.Fatal("somebody drives region 2")
		}
		defer done()
		soon := time.Now().Add(time.Minute)
		if _, err := r.Begin(t.Context(), soon, keys.Leaving, 1, 7); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * Heartbeat) // the store looks for changes meanwhile
		if _, err := r.Freeze(t.Context(), soon, 1, 7); err != nil {
			t.Fatal(err)
		}
		r.Refuse(region.ErrNoSpace)
		if err := r.Thaw(t.Context(), soon, 1, 7); err != nil {
			t.Errorf("thaw: %v", err)
		}
		if got := r.Bounds().Phase; got != keys.Serving {
			t.Errorf("the region is %v; want it to serve", got)
		}
		r.Refuse(region.ErrNoSpace)
		if _, err := r.Begin(t.Context(), soon, keys.Splitting, 9, 0); !errors.Is(err, region.ErrNoSpace) {
			t.Errorf("begin: %v; want %v", err, region.ErrNoSpace)
		}
	})
}

// TestMergeOfTheUnknown merges regions of whose stores this one has not heard, or which have no space.
func TestMergeOfTheUnknown(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		s := c.leader(1)
		other := 1 + s.ID()%3
		desc, _ := s.Replica(1).Region()
		alter(s, func(t *route.Table) {
			t.Stores = slices.DeleteFunc(t.Stores, func(st route.PublicStore) bool { return st.ID == other })
		})
		if _, err := s.changes.neighbour(&desc); !errors.Is(err, ErrAgain) {
			t.Errorf("a store of which nothing is known: %v; want ErrAgain", err)
		}
		s.cluster.publish()
		alter(s, func(t *route.Table) { t.Store(other).Full = true })
		if _, err := s.changes.neighbour(&desc); err == nil || errors.Is(err, ErrAgain) {
			t.Errorf("a store without space: %v; want a refusal", err)
		}
	})
}

// TestStepsFindTheLeader calls the leader of a region while the caller knows of none, and a store that does not lead.
func TestStepsFindTheLeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		s, leader := c.leader(1), c.leader(2)
		call := changeCall{Region: 2, Do: doThaw, Begun: 7}
		forgetLeader(s, 2)
		time.AfterFunc(100*time.Millisecond, s.cluster.publish)
		if done, err := s.stepCalls.call(t.Context(), call); !done || err != nil {
			t.Errorf("a call to a region whose leader is known later: %v, %v", done, err)
		}
		for _, other := range c.stores {
			reply, err := other.calls.handle(t.Context(), s.ID(), mustJSON(t, message{Change: &call}))
			var a changeAnswer
			if err == nil {
				err = json.Unmarshal(reply, &a)
			}
			if want := (changeAnswer{Done: other == leader, NotLeading: other != leader}); err != nil || a != want {
				t.Errorf("store %d: %+v, %v; want %+v", other.ID(), a, err, want)
			}
		}
	})
}

// TestAskWhileDriven asks about an attempt at a merge while the left region is driven.
func TestAskWhileDriven(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		s := c.leader(1)
		r := s.Replica(1)
		done, ok := s.drivers.drive(1)
		if !ok {
			t.Fatal("somebody drives region 1")
		}
		defer done()
		soon := time.Now().Add(5 * time.Second)
		begun, err := r.Begin(t.Context(), soon, keys.Merging, 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		ask := func(begun uint64) bool {
			t.Helper()
			over, err := s.stepCalls.answer(t.Context(), changeCall{Region: 1, Do: doAsk, Begun: begun})
			if err != nil {
				t.Error(err)
			}
			return over
		}
		if ask(begun) {
			t.Error("an attempt that goes on is over")
		}
		if err := r.Abort(t.Context(), soon, begun); err != nil {
			t.Fatal(err)
		}
		if !ask(begun) {
			t.Error("an attempt that was called off goes on")
		}
		if ask(r.Applied() + 1) {
			t.Error("an attempt that has not reached this replica is over")
		}
	})
}

// TestChildBesideACutStore splits a region while one of its stores is cut off: a majority is enough. It does so sixty
// times: without nudges, dragonboat leaves one new replica of thirty idle for a second.
func TestChildBesideACutStore(t *testing.T) {
	for range 60 {
		inVirtualTime(t, func(t *testing.T, c *testStores) {
			desc, _ := c.leader(1).Replica(1).Region()
			s := c.stores[desc.Peers[0].Store-1] // the child's home, too
			c.lead(1, s.ID())
			for _, other := range c.stores {
				if other != s && other.ID() != s.meta.target() { // meta's leader hands out ids
					for _, x := range c.stores {
						c.cut(x.ID(), other.ID())
					}
					break
				}
			}
			begin := time.Now()
			child, err := s.Split(t.Context(), 1, 100, 0, "")
			if err != nil {
				t.Fatal(err)
			}
			if d := time.Since(begin); d > 250*time.Millisecond {
				t.Errorf("region %d took its first entry after %v", child.ID, d)
			}
		})
	}
}

// TestNoOldMap: a map that comes while a newer one is adopted does not replace it.
func TestNoOldMap(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		s := c.stores[0]
		older := *s.cluster.current
		newer := older
		newer.Version++
		if err := errors.Join(s.cluster.adopt(&newer), s.cluster.adopt(&older)); err != nil {
			t.Fatal(err)
		}
		s.cluster.mu.Lock()
		defer s.cluster.mu.Unlock()
		if s.cluster.current != &newer {
			t.Errorf("the map is of version %d; want %d", s.cluster.current.Version, newer.Version)
		}
	})
}

// TestReplicatedWithoutALeader: if no leader is known, no store is one beside it.
func TestReplicatedWithoutALeader(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		s := c.leader(1)
		c.until("entry on all stores", func() bool { return s.Replicated(t.Context(), 1, 1) == 2 })
		forgetLeader(s, 1)
		if n := s.Replicated(t.Context(), 1, 1); n != 0 {
			t.Errorf("%d stores beside an unknown leader", n)
		}
	})
}

// alone has nobody but the test drive changes of a region, and returns the region's leader.
func (c *testStores) alone(id topology.RegionID) *Store {
	c.t.Helper()
	for _, s := range c.stores {
		if _, ok := s.drivers.drive(id); !ok { // until the stores close
			c.t.Fatalf("store %d drives region %d", s.ID(), id)
		}
	}
	return c.leader(id)
}

// TestLeaderMovesBeforeFreeze has one leader begin the right region's part in a merge, and another one freeze the
// region.
func TestLeaderMovesBeforeFreeze(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		s := c.alone(2)
		soon := time.Now().Add(5 * time.Second)
		if _, err := s.Replica(2).Begin(t.Context(), soon, keys.Leaving, 1, 7); err != nil {
			t.Fatal(err)
		}
		next := c.stores[s.ID()%3]
		c.lead(2, next.ID())
		done, err := next.stepCalls.answer(t.Context(), changeCall{Region: 2, Do: doFreeze, Left: 1, Begun: 7})
		if !done || err != nil || next.Replica(2).Bounds().Phase != keys.Frozen {
			t.Errorf("freeze at the next leader: %v, %v, %+v", done, err, next.Replica(2).Bounds())
		}
	})
}

// TestLostReplicaProvesNothing: a power cut has taken the left region's replica from the store that leads the right
// one, with the split that made it. The merge goes on all the same, so the right region does not thaw.
func TestLostReplicaProvesNothing(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		soon := time.Now().Add(5 * time.Second)
		left, right := c.alone(1), c.alone(2)
		if left == right {
			right = c.stores[left.ID()%3]
			c.lead(2, right.ID())
		}
		begun, err := left.Replica(1).Begin(t.Context(), soon, keys.Merging, 2, 0)
		if err != nil {
			t.Fatal(err)
		}
		r := right.Replica(2)
		if _, err := r.Begin(t.Context(), soon, keys.Leaving, 1, begun); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Freeze(t.Context(), soon, 1, begun); err != nil {
			t.Fatal(err)
		}
		all := right.replicas.all()
		lost := maps.Clone(all)
		delete(lost, 1)
		right.replicas.now.Store(&lost)
		right.changes.settle(r)
		right.replicas.now.Store(&all)
		if b := r.Bounds(); b.Phase != keys.Frozen {
			t.Errorf("the region has thawed: %+v", b)
		}
	})
}

// TestOutdated splits a region so that the store which leads the child publishes no table: another call is at work, and
// has not come to it. The store knows that its table sends the child's clients to the parent's leader, which sends them
// back.
func TestOutdated(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		parent := c.leader(1)
		desc, _ := parent.Replica(1).Region()
		at := desc.Slots.First + 100
		for _, s := range c.stores {
			if s != parent {
				s.cluster.publishing.Add(1)
			}
		}
		child, err := parent.Split(t.Context(), 1, at, 0, "")
		if err != nil {
			t.Fatal(err)
		}
		other := c.stores[parent.ID()%3]
		c.lead(child.ID, other.ID())
		entry, _ := other.Table().Region(at)
		if entry.ID != 1 || entry.Leader != parent.ID() {
			t.Fatalf("the table is that of after the split: %+v", entry)
		}
		if !other.Outdated(at, entry) {
			t.Errorf("store %d sends clients of slot %d to store %d", other.ID(), at, entry.Leader)
		}
		for _, s := range c.stores {
			if s != parent {
				s.cluster.publishing.Store(0)
				s.cluster.publish()
			}
		}
		if entry, _ := other.Table().Region(at); entry.ID != child.ID || other.Outdated(at, entry) {
			t.Errorf("the table has %+v, and counts as outdated: %v", entry, other.Outdated(at, entry))
		}
	})
}

// TestHeldForMerges has a disk hang for two seconds whenever the right region is frozen. However often the scheduler
// orders the merge, it holds the region's clients for a second a minute at most. A user's command holds them for a
// second.
func TestHeldForMerges(t *testing.T) {
	var stores atomic.Pointer[testStores]
	change := func(st topology.StoreID, id topology.RegionID, b region.Bounds, _ region.BoundsChange) {
		c := stores.Load()
		if c == nil || id != 2 || st != 3 || b.Phase != keys.Frozen {
			return
		}
		set := func(d fault.Drive) { c.fs[2].SetDrive(d, rand.New(rand.NewPCG(1, 1))) }
		set(fault.Drive{Hang: true})
		time.AfterFunc(2*time.Second, func() { set(fault.Drive{}) })
	}
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		c.lead(1, 1)
		c.lead(2, 2)
		stores.Store(c)
		s := c.stores[0]
		var held atomic.Int64
		over := make(chan struct{})
		var watching sync.WaitGroup
		watching.Go(func() {
			for {
				select {
				case <-over:
					return
				case <-time.After(10 * time.Millisecond):
				}
				if l := c.leader(2); l != nil && l.Replica(2).Bounds().Phase == keys.Frozen {
					held.Add(int64(10 * time.Millisecond))
				}
			}
		})
		desc, _ := s.Replica(1).Region()
		next, _ := s.Replica(2).Region()
		order := schedule.Order{Kind: schedule.MergeRegion, Region: 1, Version: desc.Version, Right: 2,
			RightVersion: next.Version, Slot: next.Slots.First}
		for range 90 {
			s.orders.take(order)
			time.Sleep(time.Second)
		}
		scheduled := time.Duration(held.Load())
		if scheduled < 100*time.Millisecond || scheduled > 2*time.Second {
			t.Errorf("the scheduler has held clients for %s in a minute and a half; want two attempts of a second at most",
				scheduled)
		}
		var spent time.Duration
		for end := time.Now().Add(10 * time.Second); time.Now().Before(end); {
			_, err := s.Merge(t.Context(), 1, "", &spent)
			if err == nil {
				t.Fatal("the regions are merged")
			}
			if !errors.Is(err, ErrAgain) {
				break
			}
			time.Sleep(5 * time.Millisecond)
		}
		if by := time.Duration(held.Load()) - scheduled; by < 100*time.Millisecond || by > time.Second {
			t.Errorf("a user's command has held clients for %s; want a second at most", by)
		}
		close(over)
		watching.Wait()
		time.Sleep(2 * time.Second) // until the disk is good
	}, func(c *testStores) { c.hooks.BoundsChanged, c.waitInLog = change, true })
}

// TestMergeBesideASlowDisk: a disk that takes long for a sync is found out before a merge holds anybody.
func TestMergeBesideASlowDisk(t *testing.T) {
	for _, drive := range []fault.Drive{{Latency: 400 * time.Millisecond}, {Hang: true}} {
		inVirtualTime(t, func(t *testing.T, c *testStores) {
			c.lead(1, 1)
			c.lead(2, 2)
			c.fs[2].SetDrive(drive, rand.New(rand.NewPCG(1, 1)))
			var spent time.Duration
			_, err := c.stores[0].Merge(t.Context(), 1, "", &spent)
			if err == nil || errors.Is(err, ErrAgain) || spent > 0 {
				t.Errorf("%+v: %v, clients held for %s; want a refusal that holds nobody", drive, err, spent)
			}
			c.fs[2].SetDrive(fault.Drive{}, rand.New(rand.NewPCG(1, 1)))
		}, func(c *testStores) { c.waitInLog = true })
	}
}

// TestFoldersOfTheGone: a crash between the removal of a replica's log and that of its folder leaves the folder. The
// next start removes it, and no other one.
func TestFoldersOfTheGone(t *testing.T) {
	c := newCluster(t, settings.ClusterKnobs{Stores: 1, Replicas: 1, Regions: 1})
	defer c.close()
	c.untilServing()
	fs := c.fs[0]
	_, replica := c.stores[0].Replica(1).Region()
	folder := func(region topology.RegionID, replica topology.ReplicaID) string {
		path := fmt.Sprintf("/data/raft/host/00000000000000000001/snapshot-part-%d/snapshot-%d-%d", region, region,
			replica)
		if err := fs.MkdirAll(fs.PathJoin(path, "more"), 0o755); err != nil {
			t.Fatal(err)
		}
		return path
	}
	own, older, gone := folder(1, replica), folder(1, replica+1), folder(9, 77)
	if err := c.stores[0].Close(); err != nil {
		t.Fatal(err)
	}
	c.open(0, false)
	for path, kept := range map[string]bool{own: true, older: false, gone: false} {
		if _, err := fs.Stat(path); (err == nil) != kept {
			t.Errorf("folder %s: %v; want it kept: %v", path, err, kept)
		}
	}
	c.untilServing()
}
