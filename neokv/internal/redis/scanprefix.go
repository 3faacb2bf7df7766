package redis

import (
	"bytes"
	"container/heap"
	"encoding/binary"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file has NEOKV SCANPREFIX: the keys of a slot that begin with a prefix, in the order of their bytes. The engine
// has the keys of a slot in another order, by length first:
//
//	[slot][1] b         the heads at prefix "a":
//	[slot][2] aa  <-      aa   of length 2
//	[slot][2] ab          aaa  of length 3
//	[slot][3] aaa <-
//	[slot][3] abc
//
// So a scan merges the keys of each length. It has one head for each length, the next key of that length, and returns
// the least of the heads. All heads of a keyspace share one iterator, since an iterator for each would keep a block of
// every level in memory. The iterator seeks wherever the next key has another length than the last.

// ScanPrefix is the subcommand of NEOKV that lists keys in the order of their bytes.
var ScanPrefix = &Command{
	Name: "scanprefix", Arity: -5, Flags: FlagReadonly, Read: scanPrefix,
	Keys: []KeySpec{{First: 2, Last: 0, Step: 1, Flags: []string{"RO", "access"},
		Notes: "It names the slot, and need not exist"}},
	Doc: Doc{"Returns keys of a slot that begin with a prefix, in the order of their bytes, and the strings that " +
		"they hold: tag prefix count [AFTER key].", "0.1.0", "server",
		"O(N+L) where N is the number of keys returned and L that of different lengths of the slot's keys."},
}

// scanLimits bound one call. Tests make them smaller.
var scanLimits = struct {
	lengths    int // different lengths of keys with the prefix
	seeks      int // to find these lengths, among the lengths of all keys of the slot
	headBytes  int // of all heads
	replyBytes int // no pair but the first makes a reply longer
}{1000, 20_000, 16 << 20, 1 << 20}

func scanPrefix(r *Reader, args [][]byte, out *Reply) error {
	tag, prefix := args[2], args[3]
	if len(args) != 5 && (len(args) != 7 || !IsOption(args[5], "after")) {
		out.Error(ErrSyntax)
		return nil
	}
	count, ok := ParseInt(args[4])
	switch {
	case !ok:
		out.Error(ErrNotInteger)
		return nil
	case count < 1 || count > MaxWalk:
		out.Error(errScanCount)
		return nil
	}
	s := prefixScan{recordIter: recordIter{r: r}, prefix: prefix, from: prefix}
	s.slot = topology.SlotOf(tag)
	if len(args) == 7 && bytes.Compare(args[6], prefix) >= 0 {
		s.from = append(bytes.Clone(args[6]), 0) // the least string above
	}
	refusal, err := s.open()
	if err == nil && refusal == "" {
		err = s.reply(int(count), out)
	}
	if e := s.close(); err == nil {
		err = e
	}
	if err == nil && refusal != "" {
		out.Error(refusal)
	}
	return err
}

// prefixScan goes over the keys of one slot that begin with a prefix. It finds legacy strings as recordIter does.
type prefixScan struct {
	recordIter
	prefix []byte
	from   []byte // the least key that counts; not below prefix

	heads lengthHeads
	held  int    // bytes of the heads
	seeks int    // so far
	user  []byte // the key that next has returned
	taken bool   // next has returned user, and the heads have not moved on
}

// lengthHead is the next key of one length in one keyspace.
type lengthHead struct {
	user []byte // a copy, made once for all keys of this length
	of   *side
	data bool // of is the side of the data keyspace
}

// lengthHeads are a heap. Of equal keys that in redis_metadata comes first.
type lengthHeads []lengthHead

func (h lengthHeads) Len() int { return len(h) }
func (h lengthHeads) Less(i, j int) bool {
	order := bytes.Compare(h[i].user, h[j].user)
	return order < 0 || order == 0 && !h[i].data
}
func (h lengthHeads) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *lengthHeads) Push(x any)   { *h = append(*h, x.(lengthHead)) }
func (h *lengthHeads) Pop() any {
	n := len(*h) - 1
	x := (*h)[n]
	*h = (*h)[:n]
	return x
}

// open finds the heads. If they are too many, it returns the error that says so.
func (s *prefixScan) open() (refusal string, err error) {
	refusal, err = s.addHeads(&s.metadata, keys.RedisMetadata)
	if err == nil && refusal == "" && s.r.Legacy {
		refusal, err = s.addHeads(&s.data, keys.Data)
	}
	heap.Init(&s.heads)
	return refusal, err
}

// addHeads adds the heads of one keyspace: it goes from each length that keys of the slot have to the next.
func (s *prefixScan) addHeads(d *side, ks keys.Keyspace) (refusal string, err error) {
	lower, upper := keys.SlotBounds(ks, topology.SlotRange{First: s.slot, Last: s.slot})
	if d.iter, err = s.r.source().Iter(lower, upper); err != nil {
		return "", err
	}
	before := len(s.heads)
	for length := len(s.prefix); s.seeks < scanLimits.seeks; {
		user, ok, err := s.seek(d, ks, length, s.from)
		if !ok || err != nil {
			return "", err
		}
		length = len(user)
		if bytes.Compare(user, s.from) < 0 { // it is longer than the seek asked for
			continue
		}
		if bytes.HasPrefix(user, s.prefix) {
			s.held += length
			s.heads = append(s.heads, lengthHead{user: bytes.Clone(user), of: d, data: ks == keys.Data})
		}
		if len(s.heads)-before > scanLimits.lengths {
			return errScanLengths, nil
		}
		if s.held > scanLimits.headBytes {
			return errScanMemory, nil
		}
		length++
	}
	return errScanSlot, nil
}

// seek moves a side to the first key of at least a length that, if it has this length, is not below from.
func (s *prefixScan) seek(d *side, ks keys.Keyspace, length int, from []byte) (user []byte, ok bool, err error) {
	s.seeks++
	d.seek = keys.AppendSlot(d.seek[:0], ks, s.slot)
	d.seek = binary.BigEndian.AppendUint32(d.seek, uint32(length))
	if len(from) <= length {
		d.seek = append(d.seek, from...)
	} else { // only keys above its beginning are above from; in the data keyspace subkeys follow each key
		d.seek = keys.Successor(append(d.seek, from[:length]...))
	}
	err = d.place(d.iter.SeekGE(d.seek))
	user, ok = d.user()
	return user, ok, err
}

// user returns the user key that the iterator stands on. It returns false at the end.
func (s *side) user() (user []byte, ok bool) {
	if len(s.key) < keys.UserKeyOffset {
		return nil, false
	}
	return s.key[keys.UserKeyOffset:], true
}

// next returns the key of the first head, which is valid until the following call, and its record, which is valid until
// the following call on the view, too. As with recordIter, the record may not be stored. The caller has called more.
func (s *prefixScan) next() (user []byte, rec record, err error) {
	h := &s.heads[0]
	s.user, s.taken = append(s.user[:0], h.user...), true
	if h.data {
		h.of.seek = keys.AppendMetadata(h.of.seek[:0], s.slot, s.user)
		rec, err = legacyRecord(h.of.seek, s.r.source().Get)
	} else {
		if u, ok := h.of.user(); !ok || !bytes.Equal(u, h.user) {
			if _, _, err = s.seek(h.of, keys.RedisMetadata, len(h.user), h.user); err != nil {
				return nil, rec, err
			}
		}
		var value []byte
		if value, err = h.of.iter.ValueAndErr(); err == nil {
			rec.Metadata, err = keys.ParseMetadata(value)
		}
		rec.stored = true
	}
	return s.user, s.r.judge(rec), err
}

// more moves on behind the key that next has returned, and reports whether there is another one.
func (s *prefixScan) more() (bool, error) {
	for s.taken && len(s.heads) > 0 && bytes.Equal(s.heads[0].user, s.user) {
		if err := s.advance(); err != nil {
			return false, err
		}
	}
	s.taken = false
	return len(s.heads) > 0, nil
}

// advance moves the first head to the next key of its length, or drops it if there is none with the prefix.
func (s *prefixScan) advance() (err error) {
	h := &s.heads[0]
	d := h.of
	if u, ok := d.user(); ok && !h.data && bytes.Equal(u, h.user) {
		err = d.place(d.iter.Next())
	} else {
		ks := keys.RedisMetadata
		if h.data {
			ks = keys.Data
		}
		d.seek = keys.Successor(keys.AppendUserKey(d.seek[:0], ks, s.slot, h.user))
		err = d.place(d.iter.SeekGE(d.seek))
	}
	if err != nil {
		return err
	}
	if u, ok := d.user(); ok && len(u) == len(h.user) && bytes.HasPrefix(u, s.prefix) {
		copy(h.user, u)
		heap.Fix(&s.heads, 0)
		return nil
	}
	heap.Pop(&s.heads)
	return nil
}

// reply appends up to count keys and what they hold, and before these the key after which to go on. It appends that key
// last, and moves it, since only the keys behind tell whether there is one.
func (s *prefixScan) reply(count int, out *Reply) error {
	start, pairs := len(out.Buf), 0
	var last []byte // what the call has looked at
	more, err := s.more()
	for looked := 0; more && err == nil && looked < MaxWalk && pairs < count; looked++ {
		var user []byte
		var rec record
		if user, rec, err = s.next(); err != nil {
			return err
		}
		if rec.live {
			rec.live = rec.Type == keys.String
			if pairs > 0 && len(out.Buf)-start+len(user)+rec.length() > scanLimits.replyBytes {
				break // the next call begins with this key
			}
			out.Bulk(user)
			if err := s.r.reply(user, &rec, out); err != nil || out.Full {
				return err
			}
			pairs++
		}
		last = append(last[:0], user...)
		more, err = s.more()
	}
	if err != nil {
		return err
	}
	end := len(out.Buf)
	out.Array(2)
	if more {
		out.Bulk(last)
	} else {
		out.Null()
	}
	out.Array(2 * pairs)
	out.toFront(start, end)
	return nil
}
