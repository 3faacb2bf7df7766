package region

import (
	"fmt"
	"testing"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/keys"
)

// TestStepsNameTheLeftNeighbour: an attempt of one left neighbour is not frozen, thawed or merged by the entries of
// another one whose attempt has the same number. A begin that comes twice finds the change open.
func TestStepsNameTheLeftNeighbour(t *testing.T) {
	r := openStill(t, disk.Mem())
	defer r.close(t)
	state := &r.machine.state
	leaving := keys.RegionChange{Kind: keys.Leaving, Other: 6, Begun: 7}
	want := func(when string, phase keys.RegionPhase, change keys.RegionChange) {
		t.Helper()
		if state.Phase != phase || state.Change != change {
			t.Errorf("%s: phase %d, %+v; want %d, %+v", when, state.Phase, state.Change, phase, change)
		}
	}
	begin := func(left string) { r.applyNext(t, "bounds", "begin", fmt.Sprint(int(keys.Leaving)), left, "7") }
	begin("6")
	begin("6")
	begin("5")
	want("begun by two regions", keys.Serving, leaving)
	r.applyNext(t, "bounds", "freeze", "5", "7")
	want("frozen for another region", keys.Serving, leaving)
	r.applyNext(t, "bounds", "freeze", "6", "7")
	begin("6")
	want("frozen, and begun again", keys.Frozen, leaving)
	r.applyNext(t, "bounds", "thaw", "5", "7")
	want("thawed by another region", keys.Frozen, leaving)
	r.applyNext(t, "bounds", "thaw", "6", "7")
	want("thawed", keys.Serving, keys.RegionChange{})

	r.applyNext(t, "bounds", "begin", fmt.Sprint(int(keys.Merging)), "99", "0")
	begun := state.Change
	right := keys.RegionState{Phase: keys.Frozen, Version: 1, Slots: state.Slots,
		Change: keys.RegionChange{Kind: keys.Leaving, Other: r.ID() + 1, Begun: begun.Begun}}
	right.Slots.First = state.Slots.Last + 1
	right.Slots.Last = right.Slots.First
	merge := func() {
		r.applyNext(t, "bounds", "merge", fmt.Sprint(begun.Begun), fmt.Sprint(state.Version), string(right.Append(nil)))
	}
	merge()
	want("a merge of what leaves for another region", keys.Serving, begun)
	right.Change.Other = r.ID()
	merge()
	if state.Change.Kind != keys.Merged || state.Slots.Last != right.Slots.Last {
		t.Errorf("after the merge: %+v", state)
	}
}
