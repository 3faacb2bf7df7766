package redis

import (
	"strconv"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file has sweeps. The region state names the slots that may hold something else than short strings
// (keys.RegionState.Unblind). In these slots a SET must look at what it replaces. A write of a collection or a long
// string adds its slot. A sweep goes over the whole region. If it meets none, it clears all slots.

// collected notes that a slot holds a collection or a long string.
func (w *Writer) collected(slot topology.Slot) {
	w.State.CollectedAt = w.Index
	w.State.CollectedIn |= keys.SlotBit(slot)
}

// Unblinding names the kinds of values because of which SETs must look at what they replace.
type Unblinding struct {
	Collections bool // and long strings
	Legacy      bool // legacy strings
}

// Any reports whether u names a kind.
func (u Unblinding) Any() bool { return u != Unblinding{} }

// Sweep takes the next step of a sweep, from a position like that of Step. may has the kinds that the region may hold.
// The last step, after which s.Next is nil, returns those kinds that the whole sweep has not met; earlier steps return
// none. A step that meets a collection ends the sweep and returns none.
func (s *ExpirySearch) Sweep(v *engine.View, from []byte, may Unblinding) (gone Unblinding, err error) {
	s.Once, s.Collections, s.Next = true, 0, nil
	if may.Collections {
		if err = s.Step(v, from, 0); err != nil || s.Collections > 0 || s.Next != nil {
			return gone, err
		}
		gone.Collections = true
	}
	if may.Legacy {
		gone.Legacy, err = noLegacy(v, s.Space, s.Slots)
	}
	return gone, err
}

// swept notes that a sweep, which began at the apply index args[1], has not met the kinds that args[2:] name. So the
// region holds none of these kinds, unless a later entry wrote one. Regions propose it to themselves.
var swept = &Command{Name: "swept", Arity: -2, Flags: FlagWrite, Write: runSwept}

func runSwept(w *Writer, args [][]byte, out *Reply) error {
	index, err := strconv.ParseUint(string(args[1]), 10, 64)
	if err != nil {
		return err
	}
	for _, kind := range args[2:] {
		switch string(kind) {
		case sweptCollections:
			if w.State.CollectedAt <= index {
				w.State.CollectedAt, w.State.CollectedIn = 0, 0
			}
		case sweptLegacy:
			if w.State.LegacyAt <= index {
				w.State.LegacyAt = 0
			}
		}
	}
	out.OK()
	return nil
}

const sweptCollections, sweptLegacy = "collections", "legacy"

// Swept returns the call with which a region notes the result of a sweep: the sweep began at the apply index, and has
// not met the kinds in gone.
func Swept(index uint64, gone Unblinding) Call {
	args := [][]byte{[]byte(swept.Name), strconv.AppendUint(nil, index, 10)}
	if gone.Collections {
		args = append(args, []byte(sweptCollections))
	}
	if gone.Legacy {
		args = append(args, []byte(sweptLegacy))
	}
	return Call{Command: swept, Args: args}
}
