package redis

import (
	"neokv.dev/neokv/internal/topology"
)

// This file has effects: what writes have done to keys, for those who watch or wait for them. A key is in the effects
// of a call if Redis would tell its watchers of the key (signalModifiedKey), whether the key's value differs or not:
// SET and HSET of the same value, EXPIRE to the same time. A call that finds nothing to do has none: DEL of an absent
// key, ZADD of the same score, PERSIST of a key that never expires.

// Effects collects what writes do. The zero value is ready for use.
type Effects struct {
	All []Effect // in the order in which it happened; the same key may come again
	// Looks says that even a write that need not look at what it replaces must do so, to tell whether the key was there
	// and had expired.
	Looks bool
	// Misses says that reads tell of keys that they do not find.
	Misses bool
	By     any // of the effects that follow

	bytes []byte // holds the keys
}

// Effect is one thing that a write did.
type Effect struct {
	What EffectKind
	// Event is what subscribers are told of it, if its name is not empty.
	Event Event
	// Slots is the slot of the key, or the slots that were flushed.
	Slots topology.SlotRange
	Key   []byte // nil for Flushed. It is valid until Reset
	By    any    // Run.By of the run that did it, nil for none
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
	// Told: nothing but an event. What it tells of has another effect beside it, or nobody can tell.
	Told
)

// maxEffectBytes is how much memory for keys Reset keeps.
const maxEffectBytes = 64 << 10

// Reset drops all effects.
func (e *Effects) Reset() {
	e.cut(0)
	e.By = nil
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

// add adds what happened to a key. When e.bytes grows, earlier keys stay in its old array.
func (e *Effects) add(what EffectKind, event Event, slot topology.Slot, key []byte) {
	at := len(e.bytes)
	e.bytes = append(e.bytes, key...)
	copied := e.bytes[at:len(e.bytes):len(e.bytes)]
	e.All = append(e.All, Effect{what, event, topology.SlotRange{First: slot, Last: slot}, copied, e.By})
}

// changed is called when a write has changed a key, or does what Redis takes for a change.
func (w *Writer) changed(slot topology.Slot, key []byte) {
	if w.Effects != nil {
		w.Effects.add(Changed, w.event, slot, key)
	}
}

// tell adds an event to what happened to a key.
func (w *Writer) tell(event Event, key []byte) {
	if w.Effects != nil {
		w.Effects.add(Told, event, topology.SlotOf(key), key)
	}
}

// missed is called when a key is not found that is only read.
func (e *Effects) missed(key []byte) {
	if e != nil && e.Misses {
		e.add(Told, EventKeyMiss, topology.SlotOf(key), key)
	}
}

// replaced is called before a write stores a record in place of old.
func (w *Writer) replaced(key []byte, old *record) {
	if w.Effects == nil || old.live {
		return
	}
	if old.stored && !old.empty() {
		w.tell(EventExpired, key)
	}
	if w.event != silentEvent {
		w.tell(EventNew, key)
	}
}

// emptied is called when a write takes the last element of a collection, which is so removed.
func (w *Writer) emptied(slot topology.Slot, key []byte) {
	switch {
	case w.Effects == nil:
	case w.event == silentEvent:
		w.Effects.add(Changed, w.event, slot, key)
	case events[w.event].takes:
		w.Effects.add(Changed, w.event, slot, key)
		w.tell(EventDel, key)
	default:
		w.Effects.add(Changed, EventDel, slot, key)
	}
}

// removed is called when a write removes the record of a key.
func (w *Writer) removed(slot topology.Slot, key []byte, old *record) {
	switch {
	case w.Effects == nil || !old.stored || old.empty():
	case old.live:
		w.emptied(slot, key)
	default:
		w.Effects.add(Expired, EventExpired, slot, key)
	}
}

// flushed is called when a write removes all keys of some slots.
func (w *Writer) flushed(slots topology.SlotRange) {
	if w.Effects != nil {
		w.Effects.All = append(w.Effects.All, Effect{What: Flushed, Slots: slots, By: w.Effects.By})
	}
}
