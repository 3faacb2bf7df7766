package store

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// TestReclaimWaitsForASnapshot has the store look for slots that belong to nobody while a snapshot brings a region that
// has taken over another: the slots of the replica that ends belong to nobody until the snapshot is installed.
func TestReclaimWaitsForASnapshot(t *testing.T) {
	c := newCluster(t, settings.ClusterKnobs{Stores: 1, Replicas: 1, Regions: 2})
	defer c.close()
	c.untilServing()
	s, left, right := c.stores[0], c.initial.Regions[0], c.initial.Regions[1]
	key := "k"
	for !right.Slots.Contains(topology.SlotOf([]byte(key))) {
		key += "k"
	}
	c.want("+OK\r\n", "SET", key, "v")
	held := func() bool {
		empty, err := s.records.empty(right.Slots)
		if err != nil {
			t.Fatal(err)
		}
		return !empty
	}
	if !held() {
		t.Fatal("the store does not hold the key")
	}
	reclaimed := make(chan error, 1)
	install := func() error {
		go func() { reclaimed <- s.slots.reclaimAll() }() // reclaim may find that the store has begun by itself
		select {
		case err := <-reclaimed:
			reclaimed <- err
			t.Errorf("the store has reclaimed slots (error %v) while a snapshot brings them", err)
		case <-time.After(50 * time.Millisecond): // reclaim waits
		}
		if !held() {
			t.Error("the key is gone before the snapshot has been installed")
		}
		return nil
	}
	c.until("frozen replica that ends", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		deadline := time.Now().Add(5 * time.Second)
		if _, err := s.Replica(right.ID).Begin(ctx, deadline, keys.Leaving, left.ID, 1); err != nil {
			return false
		}
		if _, err := s.Replica(right.ID).Freeze(ctx, deadline, left.ID, 1); err != nil {
			return false
		}
		all := topology.SlotRange{First: left.Slots.First, Last: right.Slots.Last}
		return s.slots.Cover(left.ID, all, install) == nil // not if the store has thawed the region again
	})
	if err := <-reclaimed; err != nil {
		t.Error(err)
	}
}

// TestJoinerIsSentAnOldState: a store was away while a region was split twice, so it joins what has come of that. One
// of the two others has got the last split and does not know yet that it is committed. It leads that region when the
// third one fails, and sends the joining replica what it has: the state from before the split, whose slots are those of
// both halves. The replica of the other half must not be there yet. Both halves serve again without the third store.
func TestJoinerIsSentAnOldState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newPair(t, 1)
		defer c.close()
		c.awaitLeader(1)
		split := func(id topology.RegionID, at topology.Slot) (child topology.Region) {
			c.until("split", func() (done bool) {
				var err error
				child, err = c.awaitLeader(id).Split(t.Context(), id, at, 0, "")
				if err != nil && !errors.Is(err, ErrAgain) {
					t.Fatal(err)
				}
				return err == nil
			})
			return child
		}
		write := func(id topology.RegionID) {
			s := c.awaitLeader(id)
			r, key := s.Replica(id), "k"
			for !r.Bounds().Slots.Contains(topology.SlotOf([]byte(key))) {
				key += "k"
			}
			p := region.Pending{Run: run("SET", key, "v"), Deadline: time.Now().Add(2 * time.Second)}
			r.Propose(&p)
			if p.Wait(); p.Err != nil {
				t.Fatal(p.Err)
			}
		}
		second := split(1, 4000).ID
		c.lead(second, 2)
		for range 60 { // the logs are cut
			write(1)
			write(second)
		}
		begun := c.leader(second).Replica(second).Applied() + 1 // the split is the next entry
		c.network.Hold(2, 1, time.Hour, func(m *multiraft.Message) bool {
			return m.ShardID == uint64(second) && m.Commit > begun
		})
		ctx, leave := context.WithCancel(t.Context())
		left := make(chan struct{})
		go func() {
			defer close(left)
			c.stores[1].Split(ctx, second, 8000, 0, "") // it does not return before the third region has a leader
		}()
		first := c.stores[0]
		var third topology.RegionID
		c.until("map of both halves", func() bool {
			r, _ := first.Table().Region(8000)
			third = r.ID
			return third != second
		})
		leave()
		<-left
		if b := first.Replica(second).Bounds(); b.Slots.Last != topology.SlotCount-1 {
			t.Fatalf("store 1 has applied the split: %+v", b)
		}
		c.cut(1, 2)
		c.cut(2, 3)
		c.network.Hold(1, 3, time.Hour, func(m *multiraft.Message) bool { return m.ShardID == uint64(second) })
		c.open(2, false)
		time.Sleep(2 * time.Second) // the third store has the map, and joins what it may
		c.network.Hold(1, 3, 0, nil)
		for _, id := range []topology.RegionID{1, second, third} {
			c.until("half that serves", func() bool {
				s := c.leader(id)
				return s != nil && s.ID() != 2
			})
			write(id)
		}
		if err := c.stores[2].Failed(); err != nil {
			t.Error(err)
		}
	})
}

// TestAncestors: of regions that are missing side by side those join at once that no other one may be an ancestor of.
func TestAncestors(t *testing.T) {
	const here, elsewhere, joins, gap = 0, 1, 2, 3
	type piece struct {
		id    topology.RegionID
		where int
	}
	for _, c := range []struct {
		all  []piece // from the left
		want []topology.RegionID
	}{
		{all: []piece{{5, here}, {6, here}}},
		{all: []piece{{5, here}, {6, -1}}, want: []topology.RegionID{6}},
		{all: []piece{{5, -1}, {6, -1}, {7, -1}}, want: []topology.RegionID{5}},
		{all: []piece{{5, joins}, {7, -1}, {6, -1}}},
		{all: []piece{{7, -1}, {6, -1}, {5, -1}}, want: []topology.RegionID{7, 6, 5}},
		{all: []piece{{1, here}, {4, -1}, {2, -1}, {3, -1}}, want: []topology.RegionID{4, 2}},
		{all: []piece{{2, -1}, {1, here}, {3, -1}}, want: []topology.RegionID{2, 3}},
		{all: []piece{{2, -1}, {1, elsewhere}, {3, -1}}, want: []topology.RegionID{2, 3}},
		{all: []piece{{1, here}, {0, gap}, {3, -1}}},
	} {
		m := &meta.Map{Version: 1}
		var owned []ownedRegion
		var got []topology.RegionID
		for i, slots := range topology.SplitEvenly(len(c.all)) {
			p := c.all[i]
			r := topology.Region{ID: p.id, Slots: slots, Peers: []topology.Peer{{Store: 1, Replica: 1}}}
			switch p.where {
			case here, joins:
				o := ownedRegion{id: p.id, state: keys.RegionState{Slots: slots}}
				if p.where == joins {
					o.record.Begins = keys.JoinsVoting
				}
				owned = append(owned, o)
			case elsewhere:
				r.Peers[0].Store = 2
			}
			if p.where != gap {
				m.Regions = append(m.Regions, r)
			}
		}
		a := ancestorsOn(1, m, owned)
		for i, p := range c.all {
			if p.where == -1 && !a.of(&topology.Region{ID: p.id, Slots: topology.SplitEvenly(len(c.all))[i]}) {
				got = append(got, p.id)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("of %v %v may join; want %v", c.all, got, c.want)
		}
	}
}
