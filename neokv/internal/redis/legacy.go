package redis

import (
	"errors"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file has legacy strings, which lie in the data keyspace (keys.AppendLegacy). A key has a record in
// redis_metadata or a legacy string, never both. A read finds the string where it is. The first write to the key
// deletes it, and stores what it writes in redis_metadata. The region state says whether the region may hold any
// (keys.RegionState.Legacy). Only then a look-up that has found no record calls legacyRecord, and a walk over keys goes
// over the data keyspace, too.

// legacyRecord finds what a key holds that has no record as far as the caller has seen: its legacy string or, since the
// caller may have seen a newer state than that of get, its record. key is the storage key of the record, and
// legacyRecord's to overwrite.
func legacyRecord(key []byte, get func(key []byte) ([]byte, bool, error)) (rec record, err error) {
	parse := keys.ParseMetadata
	b, ok, err := get(key)
	if !ok && err == nil {
		parse = keys.ParseLegacyString
		b, ok, err = get(keys.LegacyKey(key))
		rec.legacy = ok
	}
	if !ok || err != nil {
		return record{}, err
	}
	rec.stored = true
	rec.Metadata, err = parse(b)
	return rec, err
}

// noLegacy reports whether a region certainly holds no legacy string. That is so if its range of the data keyspace is
// empty. If collections have elements there, noLegacy cannot tell, and returns false.
func noLegacy(v *engine.View, slots topology.SlotRange) (bool, error) {
	lower, upper := keys.SlotBounds(keys.Data, slots)
	it, err := v.Iter(lower, upper)
	if err != nil {
		return false, err
	}
	there := it.First()
	return !there, errors.Join(it.Error(), it.Close())
}

// LegacySet is the subcommand of NEOKV with which tests make legacy strings, whatever the key held before.
var LegacySet = &Command{
	Name: "legacyset", Arity: -4, Flags: FlagWrite | FlagDenyOOM | FlagAdmin, Write: legacySet,
	Keys: []KeySpec{{First: 2, Last: 0, Step: 1, Flags: []string{"OW", "update"}}},
	Doc: Doc{"Stores a string in the format of before, for tests of what is done with those; " +
		"PX gives it a time to live in milliseconds.", "0.1.0", "server", "O(1)"},
}

func legacySet(w *Writer, args [][]byte, out *Reply) error {
	key, expireMS := args[2], uint64(0)
	if len(args) > 4 {
		if len(args) != 6 || !IsOption(args[4], "px") {
			out.Error(ErrSyntax)
			return nil
		}
		var ok bool
		if expireMS, ok = w.expireTime([]byte("neokv|legacyset"), args[5], milliseconds, out); !ok {
			return nil
		}
	}
	old, err := w.load(key)
	if err != nil {
		return err
	}
	w.event = silentEvent
	if err := w.remove(key, &old); err != nil {
		return err
	}
	slot := topology.SlotOf(key)
	w.count(+1)
	w.collected(slot)
	w.changed(slot, key)
	w.tell(EventSet, key)
	w.State.Legacy = true
	w.key = keys.AppendLegacy(w.key[:0], slot, key)
	w.value = keys.AppendLegacyString(w.value[:0], expireMS, args[3])
	out.OK()
	return w.Batch.Set(w.key, w.value)
}
