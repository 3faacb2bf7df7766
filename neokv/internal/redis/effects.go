package redis

import (
	"bytes"

	"neokv.dev/neokv/internal/topology"
)

// This file has effects: what writes have done to keys, for those who watch or wait for them. A key is in the effects
// of a call if Redis would tell its watchers of the key (signalModifiedKey), whether the key's value differs or not:
// SET and HSET of the same value, EXPIRE to the same time. A call that finds nothing to do has none: DEL of an absent
// key, ZADD of the same score, PERSIST of a key that never expires.

// Effects collects what writes do. The zero value is ready for use.
type Effects struct {
	All []Effect // in the order in which it happened; the same key may come again

	bytes []byte // holds the keys
}

// Effect is one thing that a write did.
type Effect struct {
	What EffectKind
	// Slots is the slot of the key, or the slots that were flushed.
	Slots topology.SlotRange
	Key   []byte // nil for Flushed. It is valid until Reset
}

// EffectKind says what a write did.
type EffectKind byte

const (
	// Changed: the key has another value or expire time, or has come or gone.
	Changed EffectKind = iota
	// Expired: a record is gone that had expired before. So nobody who reads can tell; only a watcher to whom the key
	// was still there can.
	Expired
	// Flushed: all keys of the slots that were there are gone.
	Flushed
)

// maxEffectBytes is how much memory for keys Reset keeps.
const maxEffectBytes = 64 << 10

// Reset drops all effects.
func (e *Effects) Reset() {
	e.cut(0)
	if cap(e.All) > maxEffectBytes/32 {
		e.All = nil
	}
	e.bytes = kept(e.bytes, maxEffectBytes)[:0]
}

// cut drops all effects but the first n.
func (e *Effects) cut(n int) {
	clear(e.All[n:])
	e.All = e.All[:n]
}

// add adds what happened to a key, unless that is the last effect already. When e.bytes grows, earlier keys stay in its
// old array.
func (e *Effects) add(what EffectKind, slot topology.Slot, key []byte) {
	if n := len(e.All); n > 0 && e.All[n-1].What == what && bytes.Equal(e.All[n-1].Key, key) {
		return
	}
	at := len(e.bytes)
	e.bytes = append(e.bytes, key...)
	copied := e.bytes[at:len(e.bytes):len(e.bytes)]
	e.All = append(e.All, Effect{what, topology.SlotRange{First: slot, Last: slot}, copied})
}

// changed is called when a write has changed a key, or does what Redis takes for a change.
func (w *Writer) changed(slot topology.Slot, key []byte) {
	if w.Effects != nil {
		w.Effects.add(Changed, slot, key)
	}
}

// removed is called when a write removes the record of a key.
func (w *Writer) removed(slot topology.Slot, key []byte, old *record) {
	switch {
	case w.Effects == nil || !old.stored || old.empty():
	case old.live:
		w.Effects.add(Changed, slot, key)
	default:
		w.Effects.add(Expired, slot, key)
	}
}

// flushed is called when a write removes all keys of some slots.
func (w *Writer) flushed(slots topology.SlotRange) {
	if w.Effects != nil {
		w.Effects.All = append(w.Effects.All, Effect{What: Flushed, Slots: slots})
	}
}
