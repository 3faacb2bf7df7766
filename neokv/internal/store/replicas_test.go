package store

import (
	"context"
	"testing"
	"time"

	"neokv.dev/neokv/internal/keys"
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
		empty, err := s.emptyRange(right.Slots)
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
		go func() { reclaimed <- s.reclaimAll() }() // reclaim may find that the store has begun by itself
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
		return beside{s}.Cover(left.ID, all, install) == nil // not if the store has thawed the region again
	})
	if err := <-reclaimed; err != nil {
		t.Error(err)
	}
}
