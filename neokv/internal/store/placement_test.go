package store

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// placedOn returns how many replicas of settled regions each store has, and of how many it is the home. ok is false
// while a region has no leader, or a change of its peers is open.
func (c *testStores) placedOn() (replicas, homes []int, ok bool) {
	replicas, homes = make([]int, len(c.stores)), make([]int, len(c.stores))
	for id := range topology.RegionID(c.shape.Regions) {
		s := c.leader(id + 1)
		if s == nil {
			return nil, nil, false
		}
		r, _ := s.Replica(id + 1).Region()
		if !r.Settled() {
			return nil, nil, false
		}
		homes[r.Peers[0].Store-1]++
		for _, p := range r.Peers {
			replicas[p.Store-1]++
		}
	}
	return replicas, homes, true
}

// write sets some keys in all regions, and tries as often as it takes, since a leader may just move.
func (c *testStores) write(value int) {
	for i := range 60 {
		c.until("write", func() bool { return c.do("SET", fmt.Sprint("n", i), fmt.Sprint(value)) == "+OK\r\n" })
	}
	time.Sleep(time.Second / 4)
}

// has checks what write has written last, and that all is well.
func (c *testStores) has(value int) {
	for i := range 60 {
		text := fmt.Sprint(value)
		c.want(fmt.Sprintf("$%d\r\n%s\r\n", len(text), text), "GET", fmt.Sprint("n", i))
	}
	for id := range topology.RegionID(c.shape.Regions) {
		c.intact(id+1, fmt.Sprint(c.storesOf(id+1)))
	}
}

// TestBalances: four stores, three of which have all replicas, get equally many by themselves, and each is the home of
// some regions. Then nothing moves any more.
func TestBalances(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, settings.ClusterKnobs{Stores: 4, Replicas: 3, Regions: 8}, func(c *testStores) {
			c.knobs = func(s *settings.Settings) { s.Balance.Replicas = true }
			for i := range c.initial.Regions {
				for j := range c.initial.Regions[i].Peers {
					c.initial.Regions[i].Peers[j].Store = topology.StoreID((i+j)%3 + 1)
				}
			}
		})
		defer c.close()
		c.untilServing()
		for i := range 60 {
			c.want("+OK\r\n", "SET", fmt.Sprint("k", i), fmt.Sprint(i))
		}
		value := 0
		balanced := func() bool {
			value++
			c.write(value)
			replicas, homes, ok := c.placedOn()
			return ok && slices.Max(replicas)-slices.Min(replicas) <= 3 && slices.Max(homes)-slices.Min(homes) <= 2
		}
		c.untilWithin(5*time.Minute, "balanced cluster", balanced)
		time.Sleep(time.Minute)
		replicas, homes, _ := c.placedOn()
		t.Log("replicas", replicas, "homes", homes)
		time.Sleep(10 * time.Minute)
		if again, homesAgain, ok := c.placedOn(); !ok || !slices.Equal(again, replicas) || !slices.Equal(homesAgain, homes) {
			t.Errorf("replicas %v, homes %v, and later %v, %v", replicas, homes, again, homesAgain)
		}
		c.has(value)
	})
}

// TestGoneStore: the replicas of a store that is down for longer than cluster.store_down_after are made anew on others.
// When it comes back it is used again.
func TestGoneStore(t *testing.T) {
	link := func(c *testStores, cut bool) {
		for _, other := range []topology.StoreID{1, 2, 4, 5} {
			c.network.SetLink(3, other, fault.Net{Cut: cut}, nil)
			c.network.SetLink(other, 3, fault.Net{Cut: cut}, nil)
		}
	}
	for _, x := range []struct {
		what       string
		goes, back func(*testStores)
	}{
		{"closed", func(c *testStores) {
			if err := c.stores[2].Close(); err != nil {
				c.t.Fatal(err)
			}
			c.stores[2] = nil
		}, func(c *testStores) { c.open(2, false) }},
		{"cut off", func(c *testStores) { link(c, true) }, func(c *testStores) { link(c, false) }},
	} {
		t.Run(x.what, func(t *testing.T) {
			fiveStores(t, func(t *testing.T, c *testStores) {
				before, _, _ := c.placedOn()
				if before[2] == 0 {
					t.Fatalf("replicas %v; want some on store 3", before)
				}
				x.goes(c)
				time.Sleep(50 * time.Second)
				if now, _, ok := c.placedOn(); !ok || !slices.Equal(now, before) {
					t.Errorf("replicas %v after 50 s, %v before", now, before)
				}
				c.untilWithin(2*time.Minute, "full replication", func() bool {
					c.write(1)
					now, _, ok := c.placedOn()
					return ok && now[2] == 0 && now[0]+now[1]+now[3]+now[4] == 3*c.shape.Regions
				})
				x.back(c)
				c.untilWithin(10*time.Minute, "use of the store that is back", func() bool {
					c.write(2)
					now, _, ok := c.placedOn()
					return ok && now[2] > 0
				})
				c.has(2)
			}, func(c *testStores) {
				c.knobs = func(s *settings.Settings) {
					s.Members.StoreDownAfter, s.Balance.Replicas = time.Minute, true
				}
			})
		})
	}
}
