package redis

import (
	"slices"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file has long strings. The record of a string of more than pieceBytes does not hold the string. Such a string is
// stored as a collection is: the record names a version and a size, which is the length in bytes, and the elements are
// pieces of pieceBytes each:
//
//	[data key ...][version u64] [index u64]  ->  the bytes from index * pieceBytes on
//
// Bytes that are not stored read as zero: pieces may be missing, and each may end early. So a call costs the pieces
// that it reads or writes, and not the length of the string. A long string never gets shorter; only another string in
// its place may be shorter.
//
// A legacy string is whole, however long it is. The first write that keeps it cuts it into pieces.

// length is how many bytes a string has, 0 for an absent key.
func (rec *record) length() int {
	switch {
	case !rec.live:
		return 0
	case rec.Long():
		return int(rec.Size)
	}
	return len(rec.Value)
}

// elementsOf returns how many elements the version of a record has. For a long string it returns how many there may be
// at most.
func elementsOf(m *keys.Metadata) uint64 {
	if m.Type == keys.String {
		return (m.Size + uint64(pieceBytes) - 1) / uint64(pieceBytes)
	}
	return m.Size
}

// loadText is like loadOnly, for a command that then reads the string. It takes the record of a long string from r's
// view, where the pieces will be read.
func (r *Reader) loadText(key []byte) (rec record, err error) {
	rec, err = r.loadOnly(key)
	if err == nil && rec.live && rec.Long() && r.unit == nil {
		rec, err = r.find(topology.SlotOf(key), key, r.View.Get)
	}
	return rec, err
}

// reply appends the string of a record, or null if the key is absent. If the string is long, the record must be from
// r's view.
func (r *Reader) reply(key []byte, rec *record, out *Reply) error {
	if rec.live && rec.Long() {
		return r.replyRange(key, rec, 0, rec.length(), out)
	}
	rec.reply(out)
	return nil
}

// replyRange appends the bytes [from, to) of a long string as a bulk string. The record must be from r's view.
func (r *Reader) replyRange(key []byte, rec *record, from, to int, out *Reply) error {
	var c collection
	r.begin(&c, topology.SlotOf(key), key, rec, &r.opened)
	return c.replyRange(from, to, out)
}

// reply appends the string of a record, or null if the key is absent.
func (w *Writer) reply(key []byte, rec *record, out *Reply) error {
	if rec.live && rec.Long() {
		var c collection
		w.begin(&c, topology.SlotOf(key), key, rec, &w.opened)
		return c.replyRange(0, rec.length(), out)
	}
	rec.reply(out)
	return nil
}

// reply appends the short string of a record, or null if the key is absent.
func (rec *record) reply(out *Reply) {
	if !rec.live {
		out.Null()
		return
	}
	out.Bulk(rec.Value)
}

// replyRange appends the bytes [from, to) as a bulk string. If the reply has no room for them, it reads nothing.
func (c *collection) replyRange(from, to int, out *Reply) (err error) {
	if !out.open(to - from) {
		return nil
	}
	out.Buf = slices.Grow(out.Buf, to-from+len("\r\n"))
	out.Buf, err = c.appendRange(out.Buf, from, to)
	out.Buf = append(out.Buf, '\r', '\n')
	return err
}

// appendRange appends the bytes [from, to).
func (c *collection) appendRange(dst []byte, from, to int) ([]byte, error) {
	dst = slices.Grow(dst, to-from)
	for from < to {
		at, end := from%pieceBytes, min(to, from-from%pieceBytes+pieceBytes)
		sub := subkey(uint64(from / pieceBytes))
		piece, _, err := c.get(sub[:])
		if err != nil {
			return dst, err
		}
		n := len(dst) + end - from
		if at < len(piece) {
			dst = append(dst, piece[at:min(len(piece), at+end-from)]...)
		}
		zeros := dst[len(dst):n]
		clear(zeros)
		dst, from = dst[:n], end
	}
	return dst, nil
}

// setLong stores a long string in place of old, which load returned for the key. The batch must not own the value's
// memory.
func (w *Writer) setLong(key []byte, old *record, expireMS uint64, value []byte) error {
	var c collection
	if err := w.lay(&c, key, old, expireMS, value); err != nil {
		return err
	}
	return w.close(&c)
}

// lay begins a long string. When it is closed, it takes the place of what the key holds.
func (w *Writer) lay(c *collection, key []byte, old *record, expireMS uint64, value []byte) error {
	w.renewOver(c, key, keys.String, old)
	c.ExpireMS = expireMS
	w.grow(c, uint64(len(value)))
	index := uint64(0)
	for piece := range slices.Chunk(value, pieceBytes) {
		sub := subkey(index)
		if err := w.Batch.SetAhead(c.at(sub[:]), piece); err != nil {
			return err
		}
		index++
	}
	return nil
}

// patch overwrites the bytes of a key's string from an index on. old is the key's record. If the index is behind the
// string's end, zero bytes fill the gap.
func (w *Writer) patch(key []byte, old *record, from int, patch []byte) error {
	var present []byte
	var expireMS uint64
	var c collection
	switch {
	case old.live && old.Long():
		w.change(&c, topology.SlotOf(key), key, keys.String, old)
		return w.patchPieces(&c, from, patch)
	case old.live:
		present, expireMS = old.Value, old.ExpireMS
	}
	if n := max(len(present), from+len(patch)); !isLong(n) {
		w.notice(expireMS)
		w.value = keys.AppendString(slices.Grow(w.value[:0], keys.StringLen(n)), expireMS, nil)
		w.value = appendPatched(w.value, present, from, patch)
		return w.replace(key, old, w.value)
	}
	w.value = append(w.value[:0], present...)
	if err := w.lay(&c, key, old, expireMS, w.value); err != nil {
		return err
	}
	return w.patchPieces(&c, from, patch)
}

// patchPieces is patch for a long string, and closes it. Readers see these pieces under the present version, so the
// pieces must not be written ahead of the batch.
func (w *Writer) patchPieces(c *collection, from int, patch []byte) error {
	if len(patch) == 0 { // of APPEND
		w.changed(c.slot, c.user)
		return w.close(c)
	}
	w.grow(c, max(c.Size, uint64(from+len(patch)))-c.Size)
	for len(patch) > 0 {
		at := from % pieceBytes
		piece := patch[:min(len(patch), pieceBytes-at)]
		from, patch = from+len(piece), patch[len(piece):]
		sub := subkey(uint64((from - 1) / pieceBytes))
		if len(piece) < pieceBytes {
			present, _, err := c.get(sub[:])
			if err != nil {
				return err
			}
			w.value = appendPatched(w.value[:0], present, at, piece)
			piece = w.value
		}
		if err := w.set(c, sub[:], piece); err != nil {
			return err
		}
	}
	return w.close(c)
}

// appendPatched appends present with patch written over the bytes from an index on. Where that is behind the end of
// present, zero bytes fill the gap.
func appendPatched(dst, present []byte, from int, patch []byte) []byte {
	dst = append(dst, present[:min(from, len(present))]...)
	gap := len(dst)
	dst = slices.Grow(dst, max(0, from-len(present))+len(patch))
	dst = dst[:gap+max(0, from-len(present))]
	clear(dst[gap:])
	dst = append(dst, patch...)
	return append(dst, present[min(from+len(patch), len(present)):]...)
}
