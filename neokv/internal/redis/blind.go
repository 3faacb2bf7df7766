package redis

import (
	"strconv"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// collected notes that a slot holds a collection, or a long string.
func (w *Writer) collected(slot topology.Slot) {
	w.State.CollectedAt = w.Index
	if w.Rules >= RulesOfSlots {
		w.State.CollectedIn = keys.AllSlots
	} else {
		w.State.CollectedIn |= keys.SlotBit(slot)
	}
}

// mayBeBlind reports whether a short string may be stored in a slot without a look at what it replaces: no collection, no long string and no
// legacy string can be there.
func (w *Writer) mayBeBlind(slot topology.Slot) bool {
	return w.State.CollectedIn&keys.SlotBit(slot) == 0 && w.State.LegacyAt == 0
}

// setBlind stores a short string over whatever the key holds, where mayBeBlind. It writes into the batch's memory directly.
func (w *Writer) setBlind(slot topology.Slot, key []byte, expireMS uint64, value []byte) error {
	w.State.KeysExact = false // it is not known whether the key is new
	w.notice(expireMS)
	op := w.Batch.SetDeferred(keys.UserKeyOffset+len(key), keys.StringLen(len(value)))
	w.Space.AppendMetadata(op.Key[:0], slot, key)
	keys.AppendString(op.Value[:0], expireMS, value)
	return op.Finish()
}

// swept says that a walk over the region, which began when the apply index was args[1], has met no collection and no long string, or no legacy
// string, as args[2:] say. So there is none, unless one has been written behind that index: where there is neither, strings may be stored blindly
// again. Regions propose it to themselves.
var swept = &Command{Name: "swept", Arity: -2, Flags: FlagWrite, Write: func(w *Writer, args [][]byte, out *Reply) error {
	index, err := strconv.ParseUint(string(args[1]), 10, 64)
	if err != nil {
		return err
	}
	for _, what := range args[2:] {
		switch string(what) {
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
}}

const sweptCollections, sweptLegacy = "collections", "legacy"

// Swept is the call that ends a sweep which began at an apply index, and has met no collection and no long string, or no legacy string.
func Swept(index uint64, collections, legacy bool) Call {
	args := [][]byte{[]byte(swept.Name), strconv.AppendUint(nil, index, 10)}
	if collections {
		args = append(args, []byte(sweptCollections))
	}
	if legacy {
		args = append(args, []byte(sweptLegacy))
	}
	return Call{Command: swept, Args: args}
}
