package store

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
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
	s.table.Store(next)
}

// forgetLeader makes the store forget who leads a region.
func forgetLeader(s *Store, id topology.RegionID) {
	alter(s, func(t *route.Table) { t.ByID(id).Leader = 0 })
}

// TestLateMerge has all replicas apply a merge when its driver waits for it no longer. It has happened all the same.
func TestLateMerge(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		right, err := c.leader(1).Merge(t.Context(), 1, "")
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
		done, ok := s.drivers.drive(2) // settleChanges leaves it alone
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
		check(keys.Splitting, []closing{r.End, r.Thaw}, r.Abort)
		check(keys.Merging, []closing{r.End, r.Thaw}, r.Abort)
		check(keys.HasSplit, []closing{r.Abort, r.Thaw}, r.End)
		check(keys.Merged, []closing{r.Abort, r.Thaw}, r.End)
		check(keys.Leaving, []closing{r.Abort, r.End}, r.Thaw)
	})
}

// TestFullDisksEndChanges: a change that has begun goes on although no majority has space, and none begins.
func TestFullDisksEndChanges(t *testing.T) {
	inVirtualTime(t, func(t *testing.T, c *testStores) {
		r := c.leader(2).Replica(2)
		soon := time.Now().Add(5 * time.Second)
		if _, err := r.Begin(t.Context(), soon, keys.Leaving, 1, 7); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Freeze(t.Context(), soon, 7); err != nil {
			t.Fatal(err)
		}
		r.Refuse(region.ErrNoSpace)
		if err := r.Thaw(t.Context(), soon, 7); err != nil {
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
	for args, writes := range map[[3]string]bool{{"bounds", "thaw", "7"}: false, {"SET", "k", "v"}: true} {
		var call redis.Call
		for _, a := range args {
			call.Args = append(call.Args, []byte(a))
		}
		if got := region.Writes(&pb.Entry{Cmd: region.EncodeEntry(1, 1, 1, 1, call)}); got != writes {
			t.Errorf("Writes(%q) = %v", args, got)
		}
	}
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
		if _, err := s.neighbour(&desc); !errors.Is(err, ErrAgain) {
			t.Errorf("a store of which nothing is known: %v; want ErrAgain", err)
		}
		s.publish()
		alter(s, func(t *route.Table) { t.Store(other).Full = true })
		if _, err := s.neighbour(&desc); err == nil || errors.Is(err, ErrAgain) {
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
		time.AfterFunc(100*time.Millisecond, s.publish)
		if done, err := s.callLeader(t.Context(), call); !done || err != nil {
			t.Errorf("a call to a region whose leader is known later: %v, %v", done, err)
		}
		for _, other := range c.stores {
			reply, err := other.handle(t.Context(), s.ID(), mustJSON(t, message{Change: &call}))
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
			over, err := s.answerChange(t.Context(), changeCall{Region: 1, Do: doAsk, Begun: begun})
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
				if other != s && other.ID() != s.metaStoreNow() { // meta's leader hands out ids
					for _, x := range c.stores {
						c.cut(x.ID(), other.ID())
					}
					break
				}
			}
			begin := time.Now()
			child, err := s.Split(t.Context(), 1, 100, "")
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
		older := *s.current
		newer := older
		newer.Version++
		if err := errors.Join(s.adopt(&newer), s.adopt(&older)); err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.current != &newer {
			t.Errorf("the map is of version %d; want %d", s.current.Version, newer.Version)
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
