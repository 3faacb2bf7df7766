package redis

import (
	"strconv"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file has sweeps. The region state names the slots that may hold something else than short strings in
// redis_metadata (keys.RegionState.CollectedIn). In these slots a SET must look at what it replaces. A write of a
// collection, a long string or a legacy string adds its slot. A sweep goes over the whole region. If it meets none, it
// clears all slots.

// collected notes that a slot holds a collection, a long string or a legacy string.
func (w *Writer) collected(slot topology.Slot) {
	w.State.CollectedAt = w.Index
	w.State.CollectedIn |= keys.SlotBit(slot)
}

// Sweep takes the next step of a sweep, from a position like that of Step. legacy says that the region may hold legacy
// strings. The last step, after which s.Next is nil, returns whether the whole sweep has met nothing but short strings
// in redis_metadata; earlier steps return false. A step that meets a collection or a long string ends the sweep.
func (s *ExpirySearch) Sweep(v *engine.View, from []byte, legacy bool) (none bool, err error) {
	s.Once, s.Collections, s.Next = true, 0, nil
	if err = s.Step(v, from, 0); err != nil || s.Collections > 0 || s.Next != nil {
		return false, err
	}
	if legacy {
		return noLegacy(v, s.Slots)
	}
	return true, nil
}

// swept notes that a sweep, which began at the apply index args[1], has met nothing but short strings in
// redis_metadata. So the region holds nothing else, unless a later entry wrote it. Regions propose it to themselves.
var swept = &Command{Name: "swept", Arity: 2, Flags: FlagWrite, Write: runSwept}

func runSwept(w *Writer, args [][]byte, out *Reply) error {
	index, err := strconv.ParseUint(string(args[1]), 10, 64)
	if err != nil {
		return err
	}
	if w.State.CollectedAt <= index {
		w.State.Legacy, w.State.CollectedAt, w.State.CollectedIn = false, 0, 0
	}
	out.OK()
	return nil
}

// Swept returns the call with which a region notes that a sweep, which began at the apply index, has met nothing but
// short strings in redis_metadata.
func Swept(index uint64) Call {
	return Call{Command: swept, Args: [][]byte{[]byte(swept.Name), strconv.AppendUint(nil, index, 10)}}
}
