package redis

import (
	"bytes"
	"slices"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// record is what a region stores for one key. The zero record is that of an absent key.
type record struct {
	// Metadata aliases the engine's memory: it is valid until the next call on the view or batch.
	keys.Metadata
	stored bool // the region has a record of the key, expired or not
	live   bool // the key exists: the record is stored, has not expired, and is no empty collection
	legacy bool // the record is a legacy string: see legacy.go
}

// keptExpiry returns the expire time for a write that keeps the key's present one. It is 0, for never, if the key is
// absent.
func (rec *record) keptExpiry() uint64 {
	if !rec.live {
		return 0
	}
	return rec.ExpireMS
}

// empty reports whether the record is of a collection without elements, which counts as absent.
func (rec *record) empty() bool { return rec.Apart() && rec.Size == 0 }

// wrongType reports whether the key exists and is no string. It then appends Redis's error.
func (rec *record) wrongType(out *Reply) bool { return rec.isNot(keys.String, out) }

// isNot reports whether the key exists and is of another type. It then appends Redis's error.
func (rec *record) isNot(t keys.Type, out *Reply) bool {
	if rec.live && rec.Type != t {
		out.Error(ErrWrongType)
		return true
	}
	return false
}

// load reads the record of a key as a reader sees it, and counts a hit or a miss. It sets r.Ahead if the record expires
// between region time and instant.
func (r *Reader) load(key []byte) (rec record, err error) { return r.loadIn(topology.SlotOf(key), key) }

// readIn is loadIn.
func (r *Reader) readIn(slot topology.Slot, key []byte) (record, error) { return r.loadIn(slot, key) }

// loadOnly is like load, for a command that reads nothing else. It may find a newer state than the view's.
func (r *Reader) loadOnly(key []byte) (rec record, err error) {
	if r.unit != nil {
		return r.load(key)
	}
	rec, err = r.find(topology.SlotOf(key), key, r.View.GetNow)
	r.count(key, &rec)
	return rec, err
}

// loadIn is load for a caller that knows the slot.
func (r *Reader) loadIn(slot topology.Slot, key []byte) (rec record, err error) {
	if r.unit != nil {
		rec, err = r.unit.loadIn(slot, key)
	} else {
		rec, err = r.find(slot, key, r.View.Get)
	}
	r.count(key, &rec)
	return rec, err
}

// count counts a hit or a miss.
func (r *Reader) count(key []byte, rec *record) {
	if rec.live {
		r.Hits++
		return
	}
	r.Misses++
	r.Effects.missed(key)
}

func (r *Reader) find(slot topology.Slot, key []byte, get func([]byte) ([]byte, bool, error)) (rec record, err error) {
	if r.key == nil {
		r.key = r.room[:0]
	}
	r.key = keys.AppendMetadata(r.key[:0], slot, key)
	b, ok, err := get(r.key)
	switch {
	case err != nil:
	case ok:
		rec.stored = true
		rec.Metadata, err = keys.ParseMetadata(b)
	case r.Legacy:
		rec, err = legacyRecord(r.key, r.View.Get)
	}
	if err != nil {
		return record{}, err
	}
	return r.judge(rec), nil
}

// judge completes a record.
func (r *Reader) judge(rec record) record {
	rec.live = rec.stored && !rec.empty() && r.live(rec.ExpireMS)
	return rec
}

// live reports whether a record with this expire time has not expired for this reader.
func (r *Reader) live(expireMS uint64) bool {
	if expireMS == 0 || expireMS > r.InstantMS {
		return true
	}
	if expireMS > r.RegionTimeMS {
		r.Ahead = true
	}
	return false
}

// load reads the record of a key as of this entry.
func (w *Writer) load(key []byte) (rec record, err error) { return w.loadIn(topology.SlotOf(key), key) }

// loadIn is load for a caller that knows the slot.
func (w *Writer) loadIn(slot topology.Slot, key []byte) (record, error) {
	return w.find(slot, key, w.Batch.Get)
}

// readIn is like loadIn, for a key that the command only reads: it counts a hit or a miss.
func (w *Writer) readIn(slot topology.Slot, key []byte) (record, error) {
	rec, err := w.loadIn(slot, key)
	if err == nil {
		w.looked(key, rec.live)
	}
	return rec, err
}

// looked counts the look-up of a key that a write only reads, as a reader counts its own.
func (w *Writer) looked(key []byte, found bool) {
	if found {
		w.hits++
		return
	}
	w.misses++
	w.Effects.missed(key)
}

// TakeLookups returns how many keys the calls since the last TakeLookups have looked up to read them, those that exist
// and those that do not. Keys that a write changes do not count, as in Redis.
func (w *Writer) TakeLookups() (hits, misses int) {
	hits, misses = w.hits, w.misses
	w.hits, w.misses = 0, 0
	if r := w.reader; r != nil {
		hits, misses = hits+r.Hits, misses+r.Misses
		r.Hits, r.Misses = 0, 0
	}
	return hits, misses
}

// loadHead is like loadIn, for a caller that does not need the value of a string: rec.Value may be anything.
func (w *Writer) loadHead(slot topology.Slot, key []byte) (record, error) {
	return w.find(slot, key, w.Batch.Head)
}

func (w *Writer) find(slot topology.Slot, key []byte, get func([]byte) ([]byte, bool, error)) (rec record, err error) {
	if k := w.keptFor(slot); k.of(slot, key) {
		if !w.Work.Spend(1) {
			return record{}, w.Work.Ended()
		}
		rec.Metadata, rec.stored = k.Metadata, true
		return w.judge(rec), nil
	}
	w.key = keys.AppendMetadata(w.key[:0], slot, key)
	b, ok, err := get(w.key)
	switch {
	case err != nil:
	case ok:
		rec.stored = true
		if rec.Metadata, err = keys.ParseMetadata(b); err == nil && rec.Apart() {
			err = w.keep(slot, key, &rec.Metadata, false)
		}
	case w.State.Legacy:
		rec, err = legacyRecord(w.key, w.Batch.Get)
	}
	if err != nil {
		return record{}, err
	}
	return w.judge(rec), nil
}

// judge completes a record.
func (w *Writer) judge(rec record) record {
	rec.live = rec.stored && !rec.empty() && !w.Expired(rec.ExpireMS)
	return rec
}

// keptRecord is the record of a collection or of a long string, as the writes so far leave it. So if many commands in a
// row change the same collection, the first reads its record and the last writes it.
type keptRecord struct {
	keys.Metadata
	slot   topology.Slot
	user   []byte
	there  bool // a record is kept here
	behind bool // the batch does not have this record yet
}

const (
	// keptRecords is how many records are kept at most: one for each remainder of the slot.
	keptRecords = 16
	// maxKeptKey is how long a key may be for its record to be kept.
	maxKeptKey = 512
)

// keptFor returns the place where a record of the slot is kept.
func (w *Writer) keptFor(slot topology.Slot) *keptRecord { return &w.records[slot%keptRecords] }

// of reports whether the record of this key is kept here.
func (k *keptRecord) of(slot topology.Slot, key []byte) bool {
	return k.there && k.slot == slot && bytes.Equal(k.user, key)
}

// keep keeps the record of a collection or of a long string. behind says that the batch does not have the record yet.
func (w *Writer) keep(slot topology.Slot, key []byte, m *keys.Metadata, behind bool) error {
	if len(key) > maxKeptKey {
		if !behind {
			return nil
		}
		return w.writeRecord(slot, key, m)
	}
	k := w.keptFor(slot)
	if !k.of(slot, key) {
		if err := w.settle(k); err != nil {
			return err
		}
		k.slot, k.user, k.there = slot, append(k.user[:0], key...), true
	}
	k.Metadata, k.behind = *m, k.behind || behind
	k.Value = nil // it is valid only until the next read
	return nil
}

// forget drops the kept record of a key. A caller that writes a record straight to the batch calls it first, so that no
// older one is kept.
func (w *Writer) forget(slot topology.Slot, key []byte) {
	if k := w.keptFor(slot); k.of(slot, key) {
		k.there, k.behind = false, false
	}
}

// settle writes a kept record to the batch, unless the batch has it, and stops keeping it.
func (w *Writer) settle(k *keptRecord) (err error) {
	if k.there && k.behind {
		err = w.writeRecord(k.slot, k.user, &k.Metadata)
	}
	k.there, k.behind = false, false
	return err
}

func (w *Writer) writeRecord(slot topology.Slot, key []byte, m *keys.Metadata) error {
	w.key = keys.AppendMetadata(w.key[:0], slot, key)
	w.value = m.Append(w.value[:0])
	return w.Batch.Set(w.key, w.value)
}

// Finish writes to the batch what the Writer has kept back. The caller must call it before it commits the batch.
func (w *Writer) Finish() error {
	w.saved = false
	return w.settleAll()
}

func (w *Writer) settleAll() error {
	for i := range w.records {
		if err := w.settle(&w.records[i]); err != nil {
			return err
		}
	}
	return w.settleCounts()
}

// setString stores a string in place of old, which load returned for the key. The batch must not own the value's
// memory.
func (w *Writer) setString(key []byte, old *record, expireMS uint64, value []byte) error {
	if isLong(len(value)) {
		return w.setLong(key, old, expireMS, value)
	}
	return w.setShort(key, old, expireMS, value)
}

// pieceBytes is the length of a piece, and the longest string that a record holds. Tests make it shorter.
var pieceBytes = 64 << 10

// isLong reports whether a string of this many bytes is stored in pieces.
func isLong(bytes int) bool { return bytes > pieceBytes }

// setShort is setString for a value that is not long. The batch may own the value's memory.
func (w *Writer) setShort(key []byte, old *record, expireMS uint64, value []byte) error {
	w.notice(expireMS)
	w.value = keys.AppendString(slices.Grow(w.value[:0], keys.StringLen(len(value))), expireMS, value)
	return w.replace(key, old, w.value)
}

// restore is like setString, for a value that aliases the batch's memory.
func (w *Writer) restore(key []byte, old *record, expireMS uint64, value []byte) error {
	if !isLong(len(value)) {
		return w.setShort(key, old, expireMS, value)
	}
	w.value = append(w.value[:0], value...)
	return w.setLong(key, old, expireMS, w.value)
}

// setExpire sets the time at which the key expires, in Unix ms, or 0 for never. It leaves the key's value as it is.
func (w *Writer) setExpire(key []byte, old *record, expireMS uint64) error {
	if !old.Apart() {
		return w.restore(key, old, expireMS, old.Value)
	}
	w.notice(expireMS)
	m := old.Metadata
	m.ExpireMS = expireMS
	slot := topology.SlotOf(key)
	w.collected(slot)
	w.changed(slot, key)
	return w.keep(slot, key, &m, true)
}

// remove deletes a key. old is its record.
func (w *Writer) remove(key []byte, old *record) error { return w.replace(key, old, nil) }

// replace stores value, a record of redis_metadata, in place of old, or deletes the key if value is nil. If old is a
// collection or a long string, replace writes its orphan record. It also counts keys. Every write that replaces or
// removes a record goes through here, except setBlind, which replaces only short strings, and changes to a collection
// or long string that keeps its version.
func (w *Writer) replace(key []byte, old *record, value []byte) error {
	slot := topology.SlotOf(key)
	w.forget(slot, key)
	if old.legacy {
		w.key = keys.AppendLegacy(w.key[:0], slot, key)
		if err := w.Batch.Delete(w.key); err != nil {
			return err
		}
	}
	if old.stored && old.Apart() {
		o := keys.Orphan{
			Slot: slot, User: key,
			Version: old.Version, Type: old.Type, Size: elementsOf(&old.Metadata),
		}
		w.key = o.AppendKey(w.key[:0])
		var room [16]byte
		if err := w.Batch.Set(w.key, o.Append(room[:0])); err != nil {
			return err
		}
		w.counts.forget(old.Version, key)
		w.pops.forget(old.Version, key)
		w.Orphans.Collections++
		w.Orphans.Elements += o.Size
	}
	w.key = keys.AppendMetadata(w.key[:0], slot, key)
	if value == nil {
		if !old.stored {
			return nil
		}
		w.count(-1)
		w.removed(slot, key, old)
		return w.Batch.Delete(w.key)
	}
	if !old.stored {
		w.count(+1)
	}
	w.replaced(key, old)
	w.changed(slot, key)
	return w.Batch.Set(w.key, value)
}

// notice lowers SoonestMS to the expire time of a record that is written, 0 for none.
func (w *Writer) notice(expireMS uint64) {
	if expireMS != 0 && expireMS < w.SoonestMS {
		w.SoonestMS = expireMS
	}
}

// count adds 1 to the number of the region's stored keys, expired ones included, or takes 1 away, if that number is
// exact.
func (w *Writer) count(n int) {
	w.Changes++
	if w.State.KeysExact {
		w.State.KeyCount += uint64(n)
	}
}

// maxScratchBytes is how large a buffer for keys or values may be to be kept for the next call.
const maxScratchBytes = 1 << 20
