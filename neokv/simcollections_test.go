package neokv

import (
	"math/rand/v2"
	"testing"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/settings"
)

// collections is everything that happens, to hashes that are filled, copied, deleted and made again while the reclaimers work. At the end of
// a run all replicas hold the same, and nothing that cannot be read.
var collections = plan{
	name: "collections", seams: (*sim).skewClocks, settings: reclaimSteps,
	lanes: []func(*sim, *rand.Rand){killing, partitioning}, clients: 6, mix: "HHHHhhhFGGOOOOCUUVS",
}

// members is everything that happens, to lists, sets and sorted sets whose elements are known one by one: they are pushed and popped, deleted,
// expire, are overwritten and made again, while the reclaimers delete beside them what has been there before.
var members = plan{
	name: "members", seams: (*sim).skewClocks, settings: reclaimMembers,
	lanes: []func(*sim, *rand.Rand){killing, partitioning}, clients: 6, mix: "lllrrrpqiissssssddmmzzzzzxxyykkkfaw",
}

// reclaimMembers is reclaimSteps for collections that are small.
func reclaimMembers(k *settings.Settings) { k.Redis.ReclaimKeys, k.Redis.ReclaimRange = 5, 3 }

// TestMembersVirtual runs seeds of the plan.
func TestMembersVirtual(t *testing.T) {
	b := newBatch(t, members, false, 15*time.Second)
	b.run(1, 40, false)
	for _, r := range b.failed {
		t.Errorf("seed %d: %s\nagain: %s", r.Seed, r.Problem, b.again(r.Seed))
	}
	t.Logf("%s", b)
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

// TestSweeps: a region that has held collections knows it as long as it holds any, whether they are deleted or expire, and forgets it soon
// after the last.
func TestSweeps(t *testing.T) {
	inBubble(t, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
		at := s.session(t, s.leads(t))
		const strings = 3000 // more than a step looks at
		for i := range strings {
			at.w.call("SET", s.nearby(i), "v")
		}
		held := func(want bool, when string) {
			t.Helper()
			for _, n := range s.c.nodes {
				content, err := regionContent(n.store.Load(), 1)
				if err != nil {
					t.Fatal(err)
				}
				state, err := keys.ParseRegionState(content[0])
				if err != nil {
					t.Fatal(err)
				}
				if state.CollectedAt != 0 != want {
					t.Errorf("store %d, %s: last write of a collection at index %d; want any %v", n.id, when, state.CollectedAt, want)
				}
			}
		}
		first, second := s.nearby(strings), s.nearby(strings+1)
		at.ask("HSET", first, "f", "v")
		at.ask("HSET", second, "f", "v")
		at.ask("PEXPIRE", second, "200000")
		time.Sleep(3 * time.Minute)
		held(true, "with two hashes")
		if got := at.ask("DEL", first); got != "1" {
			t.Errorf("DEL = %s", got)
		}
		time.Sleep(10 * time.Second)
		held(true, "with one that expires soon")
		time.Sleep(5 * time.Minute)
		held(false, "with none")
		at.ask("SET", first, "v") // blindly
		at.ask("HSET", second, "f", "v")
		time.Sleep(10 * time.Second) // until the followers have applied it, too
		held(true, "with one again")
		if got := at.ask("HGET", second, "f"); got != "v" {
			t.Errorf("HGET = %s", got)
		}
	})
}
