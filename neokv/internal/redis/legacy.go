package redis

import (
	"bytes"
	"errors"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file has legacy strings: the first version of the program stored a string in the data keyspace
// (keys.Space.AppendLegacy). A key has a record in redis_metadata or a legacy string, never both. A read finds the
// string where it is. The first write to the key moves the string, or what replaces it, to redis_metadata. The region
// state says when the last legacy string was written (LegacyAt). If that is 0, no command looks for one.

// findLegacy finds the record of a key for which a first look-up met no record. That look-up may have seen a newer
// state than the view, in which the string had already moved. So findLegacy looks into the view for both the record and
// the legacy string.
func (r *Reader) findLegacy(slot topology.Slot, key []byte) (rec record, err error) {
	r.key = r.Space.AppendLegacy(r.key[:0], slot, key)
	b, ok, err := r.View.Get(r.key)
	if err != nil {
		return rec, err
	}
	parse := keys.ParseLegacyString
	if rec.legacy = ok; !ok {
		parse = keys.ParseMetadata
		r.key = r.Space.AppendMetadata(r.key[:0], slot, key)
		if b, ok, err = r.View.Get(r.key); !ok || err != nil {
			return rec, err
		}
	}
	if rec.Metadata, err = parse(b); err != nil {
		return record{}, err
	}
	return r.judge(rec), nil
}

// findLegacy finds the legacy string of a key that has no record in redis_metadata.
func (w *Writer) findLegacy(slot topology.Slot, key []byte) (rec record, err error) {
	w.key = w.Space.AppendLegacy(w.key[:0], slot, key)
	b, ok, err := w.Batch.Get(w.key)
	if !ok || err != nil {
		return rec, err
	}
	if rec.Metadata, err = keys.ParseLegacyString(b); err != nil {
		return record{}, err
	}
	rec.legacy = true
	return w.judge(rec), nil
}

// removeLegacy deletes a legacy string and takes its key off the count. Then the key is absent, and replace stores its
// new record.
func (w *Writer) removeLegacy(slot topology.Slot, key []byte) error {
	w.count(-1)
	w.key = w.Space.AppendLegacy(w.key[:0], slot, key)
	return w.Batch.Delete(w.key)
}

// legacy returns the record for a user key that the data side of a recordIter has met: that of its legacy string, or
// one that is not stored.
func (s *side) legacy(k keys.RedisKey) (rec record, err error) {
	s.seek = k.Space.AppendLegacy(s.seek[:0], k.Slot, k.User)
	if !s.iter.SeekGE(s.seek) || !bytes.Equal(s.iter.Key(), s.seek) {
		return rec, s.iter.Error()
	}
	value, err := s.iter.ValueAndErr()
	if err == nil {
		rec.Metadata, err = keys.ParseLegacyString(value)
	}
	rec.stored, rec.legacy = true, true
	return rec, err
}

// noLegacy reports whether a region certainly holds no legacy string. That is so if its range of the data keyspace is
// empty. If collections have elements there, noLegacy cannot tell, and returns false.
func noLegacy(v *engine.View, space keys.Space, slots topology.SlotRange) (bool, error) {
	lower, upper := space.Bounds(keys.Data, slots)
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
