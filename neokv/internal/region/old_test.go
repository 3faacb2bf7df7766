package region

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
	"testing"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/keys"
)

// TestOldEntries applies a log that begins with entries of the old format to a replica that has it all to apply, and to
// others that have applied less or more of that beginning by a program of that time, which has left a region state of
// the old format. They are equal throughout.
func TestOldEntries(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	const old, all = 150, 300
	var calls [][]string
	add := func(words ...any) { calls = append(calls, strings.Fields(fmt.Sprintln(words...))) }
	for len(calls) < all {
		key := func() string { return fmt.Sprint("k", random.IntN(12)) }
		switch random.IntN(12) {
		case 0, 1, 2:
			add("hset", key(), "f", random.IntN(100))
		case 3, 4, 5:
			add("set", key(), "v")
		case 6:
			add("mset", key(), "v", key(), "w")
		case 7:
			add("setnx", key(), "v")
		case 8:
			add("rename", key(), key())
		case 9:
			add("pexpireat", key(), 1_000_000)
		case 10:
			add("del", key())
		case 11:
			if random.IntN(3) == 0 {
				add("flushall")
				continue
			}
			for i := range 12 {
				add("del", fmt.Sprint("k", i))
			}
			add("swept", len(calls), "collections")
		}
	}
	log := entries(1, calls...)
	for i := range log {
		if i < old {
			log[i].Cmd[0] = 1
		}
	}
	states := make([]keys.RegionState, len(log)+1) // the model's, behind each entry
	apply := func(r still, to int) {
		t.Helper()
		for from := int(r.machine.state.ApplyIndex); from < to; from = int(r.machine.state.ApplyIndex) {
			n := min(to-from, 1+random.IntN(20))
			if _, err := r.machine.Update(append([]sm.Entry{}, log[from:from+n]...)); err != nil || r.fs.Failed() != nil {
				t.Fatal(err, r.fs.Failed())
			}
			if got, want := r.machine.state, states[from+n]; want.ApplyIndex != 0 && got != want {
				t.Fatalf("state %+v; want %+v", got, want)
			}
		}
	}

	model := openStill(t, disk.Mem())
	defer model.close(t)
	any, partly := false, false
	for i := 1; i <= len(log); i++ {
		apply(model, i)
		states[i] = model.machine.state
		s := &states[i]
		if in := s.CollectedIn; i <= old {
			any = any || in != 0
			if in != 0 && in != keys.AllSlots || in != 0 != (s.CollectedAt != 0) {
				t.Fatalf("behind %q at %d, of the old format: last write of a collection at index %d, in %#x", calls[i-1], i, s.CollectedAt, in)
			}
		} else {
			partly = partly || in != 0 && in != keys.AllSlots
		}
	}
	if !any || !partly {
		t.Errorf("collections in the first part %v, in some slots alone in the second %v", any, partly)
	}
	want := model.content(t)
	for range 20 {
		r := openStill(t, disk.Mem())
		cut := random.IntN(old + 1)
		apply(r, cut)
		if cut > 0 {
			key := keys.AppendRegionState(nil, snapshotRegion.ID)
			state := r.machine.state.Append(nil)[:58]
			state[0] = 1
			b := r.o.Engine.NewBatch()
			if err := b.Set(key, state); err != nil {
				t.Fatal(err)
			}
			if err := b.Commit(false); err != nil {
				t.Fatal(err)
			}
			r.machine = newMachine(&r.core, &r.proposer, &r.sums)
			if _, err := r.machine.Open(nil); err != nil || r.machine.state != states[cut] {
				t.Fatalf("opened with state %+v, %v; want %+v", r.machine.state, err, states[cut])
			}
		}
		apply(r, len(log))
		if got := r.content(t); !maps.Equal(got, want) {
			t.Errorf("upgraded at %d: %d records, want %d, or they differ", cut, len(got), len(want))
		}
		r.close(t)
	}
}
