package engine

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"slices"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"

	"neokv.dev/neokv/internal/keys"
)

// sortMin and sortMax are the least and the largest number of writes with which a batch is sorted.
const sortMin, sortMax = 128, 1 << 16

// sortBytes is the largest batch that is sorted. Sorting copies the batch, and with large values the copy costs more
// than it saves.
const sortBytes = 4 << 20

// sorter sorts the writes of a batch by key before the batch is committed, and leaves out writes that a later one of
// the same key replaces. Most of the time of a small write goes into the search for its key's place in the memtable,
// which reads memory that is not in the processor's caches. If the key before was a near one, its search has just
// brought that memory there. So sorting saves the more, the denser the batch's keys are among those of the memtable
// (BenchmarkCommit).
type sorter struct {
	writes []writeSpan
	// order has a number for each write, made of, from the top: its keyspace's tag, five bytes of its key, and its
	// index. The five bytes are those after the prefix that all keys of the batch in this keyspace share. They nearly
	// always decide the order.
	order  []uint64
	groups [keys.ZSetRank + 1]prefixGroup // by keyspace; unknown keyspaces share the last one
}

// prefixGroup is the prefix that the keys of a batch in one keyspace share.
type prefixGroup struct {
	first  []byte // key
	common int    // how much of it the others begin with, too
}

// sort sorts the batch, if that pays. No iterator of the batch may be open.
func (b *Batch) sort() error {
	if n := b.batch.Count(); n < sortMin || n > sortMax || b.batch.Len() > sortBytes || b.indexed || b.ranges > 0 {
		return nil // a range deletion must stay before later writes and after earlier ones
	}
	repr := b.batch.Repr()
	b.sorter.read(repr)
	b.sorter.sort(repr)
	sorted := b.engine.db.NewBatchWithSize(len(repr))
	err := b.sorter.write(sorted, repr)
	b.sorter.reset()
	_ = b.batch.Close()
	b.batch, b.sorted = sorted, true
	return err
}

func (s *sorter) reset() {
	if cap(s.writes) > maxPoints {
		s.writes, s.order = nil, nil
	}
	s.writes, s.order = s.writes[:0], s.order[:0]
	clear(s.groups[:])
}

func (s *sorter) group(key []byte) *prefixGroup { return &s.groups[min(int(key[0]), len(s.groups)-1)] }

// read reads a batch's writes.
func (s *sorter) read(repr []byte) {
	for at := batchrepr.HeaderLen; at < len(repr); {
		w, next := readWrite(repr, at)
		at = next
		s.writes = append(s.writes, w)
		key := repr[w.key:w.keyEnd]
		if g := s.group(key); g.first == nil {
			g.first, g.common = key, len(key)
		} else {
			g.common = common(g.first[:g.common], key)
		}
	}
	for i, w := range s.writes {
		key := repr[w.key:w.keyEnd]
		lead := [8]byte{key[0]}
		copy(lead[1:6], key[s.group(key).common:])
		s.order = append(s.order, binary.BigEndian.Uint64(lead[:])|uint64(i))
	}
}

// at returns the write to which an element of order belongs.
func (s *sorter) at(order uint64) *writeSpan { return &s.writes[order%sortMax] }

// sort sorts order. Writes of the same key keep the order in which they were made.
func (s *sorter) sort(repr []byte) {
	slices.Sort(s.order)
	for from, to := 0, 0; from < len(s.order); from = to {
		for to = from + 1; to < len(s.order) && s.order[to]/sortMax == s.order[from]/sortMax; to++ {
		}
		if to == from+1 {
			continue
		}
		slices.SortFunc(s.order[from:to], func(x, y uint64) int {
			a, b := s.at(x), s.at(y)
			return cmp.Or(bytes.Compare(repr[a.key:a.keyEnd], repr[b.key:b.keyEnd]), cmp.Compare(x, y))
		})
	}
}

// write writes the sorted writes into a batch.
func (s *sorter) write(to *pebble.Batch, repr []byte) (err error) {
	for i, order := range s.order {
		w := s.at(order)
		key := repr[w.key:w.keyEnd]
		if i+1 < len(s.order) && s.order[i+1]/sortMax == order/sortMax {
			if next := s.at(s.order[i+1]); bytes.Equal(repr[next.key:next.keyEnd], key) {
				continue
			}
		}
		if w.kind == pebble.InternalKeyKindDelete {
			err = to.Delete(key, nil)
		} else {
			err = to.Set(key, repr[w.value:w.valueEnd], nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// common returns the length of the prefix that two keys share.
func common(x, y []byte) (n int) {
	most := min(len(x), len(y))
	for n+8 <= most && binary.LittleEndian.Uint64(x[n:]) == binary.LittleEndian.Uint64(y[n:]) {
		n += 8
	}
	for n < most && x[n] == y[n] {
		n++
	}
	return n
}
