package neokv

import (
	"math/rand/v2"
	"testing"
	"time"

	"neokv.dev/neokv/settings"
)

// collections is everything that happens, to hashes that are filled, copied, deleted and made again while the reclaimers work. At the end of
// a run all replicas hold the same, and nothing that cannot be read.
var collections = plan{
	name: "collections", seams: (*sim).skewClocks, settings: reclaimSteps,
	lanes: []func(*sim, *rand.Rand){killing, partitioning}, clients: 6, mix: "HHHHhhhFGGOOOCUUV",
}

// reclaimSteps has the reclaimer take small steps, and delete both by range and one by one.
func reclaimSteps(k *settings.Settings) { k.Redis.ReclaimKeys, k.Redis.ReclaimRange = 10, 15 }

// TestCollectionsVirtual runs seeds of the plan.
func TestCollectionsVirtual(t *testing.T) {
	b := newBatch(t, collections, false, 15*time.Second)
	b.run(1, 40, false)
	for _, r := range b.failed {
		t.Errorf("seed %d: %s\nagain: %s", r.Seed, r.Problem, b.again(r.Seed))
	}
	t.Logf("%s", b)
}
