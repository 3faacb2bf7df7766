package region

import (
	"encoding/binary"
	"fmt"
	"testing"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
)

// applyNext applies an entry with one command.
func (r still) applyNext(t *testing.T, args ...string) {
	t.Helper()
	var words [][]byte
	for _, a := range args {
		words = append(words, []byte(a))
	}
	entry := entryOf(r.machine.state.ApplyIndex+1, words)
	binary.BigEndian.PutUint32(entry.Cmd[45:], uint32(r.machine.state.Version))
	if _, err := r.machine.Update([]multiraft.Entry{entry}); err != nil || r.fs.Failed() != nil {
		t.Fatalf("%q: %v, %v", args, err, r.fs.Failed())
	}
}

// TestLegacyThroughChanges: the child of a region that may hold legacy strings may hold some, and so may a region that
// takes over a neighbour that may. Where neither may, no reader looks for any.
func TestLegacyThroughChanges(t *testing.T) {
	for _, legacy := range []bool{false, true} {
		r := openStill(t, disk.Mem())
		apply := func(args ...string) {
			t.Helper()
			r.applyNext(t, args...)
		}
		if legacy {
			apply("neokv", "legacyset", "k", "v")
		} else {
			apply("set", "k", "v")
		}
		apply("bounds", "begin", "1", "0", "0")
		apply("bounds", "split", "2", "8192", "4", "1:1")
		apply("bounds", "end", "2")
		child, ok, err := readState(r.o.Engine, 4)
		if err != nil || !ok || child.Legacy != legacy || r.machine.state.Legacy != legacy ||
			child.CollectedAt != 0 != legacy {
			t.Fatalf("behind a split: %+v and %+v, %v; legacy strings: %v", r.machine.state, child, err, legacy)
		}

		apply("swept", "1")
		epoch := r.epoch.Load()
		apply("bounds", "begin", "3", "4", "0")
		begun := r.machine.state.Change.Begun
		child.Phase, child.Change = keys.Frozen, keys.RegionChange{Kind: keys.Leaving, Other: 3, Begun: begun}
		version := fmt.Sprint(r.machine.state.Version)
		apply("bounds", "merge", fmt.Sprint(begun), version, string(child.Append(nil)))
		if s := r.machine.state; s.Change.Kind != keys.Merged || s.Legacy != legacy ||
			s.CollectedAt != 0 != legacy {
			t.Fatalf("behind a merge: %+v; legacy strings: %v", s, legacy)
		}
		if r.MayHoldLegacy() != legacy || r.epoch.Load() == epoch {
			t.Errorf("behind a merge readers look for legacy strings: %v; want %v, and a new epoch", !legacy, legacy)
		}
		r.close(t)
	}
}
