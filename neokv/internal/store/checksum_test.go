package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// TestCompare compares the replicas of regions that are equal, that differ in one byte, and of which one is away.
func TestCompare(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, settings.ClusterKnobs{Stores: 4, Replicas: 3, Regions: 4})
		defer c.close()
		c.untilServing()
		for i := range 40 {
			c.want("+OK\r\n", "SET", fmt.Sprint("k", i), "v")
		}
		for _, s := range c.stores { // also from a store that holds no replica of the region
			got, err := s.Compare(context.Background(), 1)
			if err != nil || got.Verdict() != "equal" || got.Region != 1 || got.Index == 0 || len(got.Replicas) != 3 {
				t.Errorf("store %d: %+v, %v; want 3 equal ones", s.ID(), got, err)
			}
		}
		victim := c.stores[1]
		held, _ := victim.Replica(2).Region()
		b := victim.Engine().NewBatch()
		if err := b.Set(keys.AppendMetadata(nil, held.Slots.First, []byte("k")),
			keys.AppendString(nil, 0, []byte("v"))); err != nil {
			t.Fatal(err)
		}
		if err := b.Commit(false); err != nil {
			t.Fatal(err)
		}
		got, err := c.stores[0].Compare(context.Background(), 2)
		if err != nil || got.Verdict() != "different" {
			t.Errorf("one replica has a record more: %+v, %v", got, err)
		}
		sums := map[string]int{}
		for _, r := range got.Replicas {
			sums[r.Sum]++
		}
		if len(sums) != 2 {
			t.Errorf("checksums %+v; want two that agree and one that does not", got.Replicas)
		}

		if err := victim.Close(); err != nil {
			t.Error(err)
		}
		c.stores[1] = nil
		got, err = c.stores[0].Compare(context.Background(), 1)
		if err != nil || got.Verdict() != "incomplete" {
			t.Errorf("one store is away: %+v, %v", got, err)
		}
		for _, r := range got.Replicas {
			if (r.Sum == "") != (r.Store == 2) || (r.Missing == "") != (r.Sum != "") {
				t.Errorf("one store is away: %+v", r)
			}
		}
		if _, err := c.stores[0].Compare(context.Background(), 9); err == nil ||
			!strings.Contains(err.Error(), "region 9: there is none") {
			t.Errorf("of region 9: %v", err)
		}
	})
}

// TestCompareAcrossChanges merges a region away while a store waits for the checksum of a replica of which it does not
// hear. That region is not compared, and the one that has taken it over has the slots of both.
func TestCompareAcrossChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, leader, other := newAngle(t)
		defer c.close()
		want := func(id topology.RegionID, slots topology.SlotRange) {
			t.Helper()
			got, err := leader.Compare(t.Context(), id)
			if err != nil || got.Verdict() != "equal" || got.Slots != slots {
				t.Errorf("%+v, %v; want equal replicas of slots %v", got, err, slots)
			}
		}
		left, right := c.initial.Regions[0].Slots, c.initial.Regions[1].Slots
		want(1, left)
		want(2, right)
		compared := make(chan error, 1)
		go func() {
			_, err := other.Compare(t.Context(), 2)
			compared <- err
		}()
		synctest.Wait()
		c.merge(1)
		if err := <-compared; !errors.Is(err, region.ErrNone) {
			t.Errorf("Compare of the region that is merged away: %v; want %v", err, region.ErrNone)
		}
		want(1, topology.SlotRange{First: left.First, Last: right.Last})
	})
}
