package redis

import (
	"errors"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file is strings of phase 1 as such: how tests make some, and how a region finds out that it has none left. What else there is to
// them, the fall-back of reads and the migration by writes, is in record.go.

// LegacySet is a subcommand of NEOKV, the only one that writes: a key holds a string as phase 1 stored it, whatever it held before.
var LegacySet = &Command{
	Name: "legacyset", Arity: -4, Flags: FlagWrite | FlagDenyOOM | FlagAdmin, Write: legacySet,
	Keys: []KeySpec{{First: 2, Last: 0, Step: 1, Flags: []string{"OW", "update"}}},
	Doc: Doc{"Stores a string in the format of before, for tests of what is done with those; PX gives it a time to live in milliseconds.",
		"0.1.0", "server", "O(1)"},
}

func legacySet(w *Writer, args [][]byte, out *Reply) error {
	key, expireMS := args[2], uint64(0)
	if len(args) > 4 {
		if len(args) != 6 || !IsOption(args[4], "px") {
			out.Error(ErrSyntax)
			return nil
		}
		var ok bool
		if expireMS, ok = w.expireTime("neokv|legacyset", args[5], milliseconds, out); !ok {
			return nil
		}
	}
	old, err := w.load(key)
	if err != nil {
		return err
	}
	if err := w.remove(key, &old); err != nil {
		return err
	}
	w.count(+1)
	w.State.LegacyAt = w.Index
	w.key = w.Space.AppendLegacy(w.key[:0], topology.SlotOf(key), key)
	w.value = keys.AppendLegacyString(w.value[:0], expireMS, args[3])
	out.OK()
	return w.Batch.Set(w.key, w.value)
}

// NoLegacy reports whether there is certainly no legacy string in a region: there is nothing at all in its range of the data keyspace,
// which takes no longer to see than the first key there. Where there are elements of collections it is not certain.
func NoLegacy(v *engine.View, space keys.Space, slots topology.SlotRange) (bool, error) {
	lower, upper := space.Bounds(keys.Data, slots)
	it, err := v.Iter(lower, upper)
	if err != nil {
		return false, err
	}
	there := it.First()
	return !there, errors.Join(it.Error(), it.Close())
}
