package redis

import (
	"strconv"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file is about sweeps. The region state names the slots in which a SET has to look at what it replaces, since
// they may hold something else than short strings (keys.RegionState.Unblind). A write of such a thing adds its slot. A
// sweep goes over the whole region; if it meets no such thing, it clears all slots.

// collected notes that a slot holds a collection or a long string.
func (w *Writer) collected(slot topology.Slot) {
	w.State.CollectedAt = w.Index
	if w.Rules >= RulesOfSlots {
		w.State.CollectedIn = keys.AllSlots
	} else {
		w.State.CollectedIn |= keys.SlotBit(slot)
	}
}

// Unblinding names the kinds of things that keep SETs from being blind.
type Unblinding struct {
	Collections bool // and long strings
	Legacy      bool // legacy strings
}

// Any reports whether it names any kind.
func (u Unblinding) Any() bool { return u != Unblinding{} }

// Sweep takes the next step of a sweep over a region that may hold things of some kinds, from a position like that of
// Step. It returns the kinds that the whole sweep has not met. Before the last step, after which s.Next is nil, it
// returns none. A step that meets a collection ends the sweep, and also returns none.
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

// swept says that a sweep has not met the kinds that args[2:] name. The sweep began when the apply index was args[1].
// So the region holds none of these, unless a later entry wrote one. Regions propose it to themselves.
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

// Swept is the call that ends a sweep. The sweep began at an apply index, and has not met some kinds.
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
