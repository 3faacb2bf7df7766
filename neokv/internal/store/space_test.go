package store

import (
	"math/rand/v2"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/settings"
)

// TestSpaceFromTheBeginning: a store that has just started finds out that it is full as soon as it has written what it
// may, not only at its first tick.
func TestSpaceFromTheBeginning(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, settings.ClusterKnobs{Stores: 1, Replicas: 1, Regions: 1})
		defer c.close()
		c.untilServing()
		if err := c.stores[0].Close(); err != nil {
			t.Fatal(err)
		}
		free := settings.Default().Engine.DiskReserve + 4<<20
		c.fs[0].SetDrive(fault.Drive{Free: free}, rand.New(rand.NewPCG(1, 1)))
		begin := time.Now()
		c.open(0, true)
		c.untilServing()
		c.do("set", "k", strings.Repeat("v", 6<<20))
		synctest.Wait()
		if took := time.Since(begin); took >= spaceEvery {
			t.Fatalf("%s have passed, too much to tell", took)
		}
		if c.stores[0].Full() == "" {
			t.Error("the store is not full")
		}
	})
}
