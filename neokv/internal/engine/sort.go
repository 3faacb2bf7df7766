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

// sortMin and sortMax are how many writes a batch must and may have to be sorted.
const sortMin, sortMax = 128, 1 << 16

// sortBytes is how large a batch may be to be sorted: it is copied for that, and with large values the copy costs more
// than is saved.
const sortBytes = 4 << 20

// sorter puts the writes of a batch into the order of their keys before it is committed, and leaves out those that a
// later one of the same key replaces. The search for a key's place in a memtable is a walk through memory that is not
// in the processor's caches, and takes most of the time of a small write; what the search for the key before has
// touched is there. So the denser a batch's keys are among those of the memtable, the more it saves (BenchmarkCommit).
type sorter struct {
	writes []writeSpan
	// order has for each write, from the top: its keyspace's tag, the five bytes of its key behind those that all keys
	// of the batch in this keyspace begin with, and its number. The bytes decide nearly always.
	order  []uint64
	groups [keys.ZSetRank + 1]prefixGroup // by keyspace, those of an unknown one in the last
}

// prefixGroup is what the keys of a batch in one keyspace begin with.
type prefixGroup struct {
	first  []byte // key
	common int    // how much of it the others begin with, too
}

// sort sorts the batch, if that pays. Nothing may have been read from it by an iterator that is still open.
func (b *Batch) sort() error {
	if n := b.batch.Count(); n < sortMin || n > sortMax || b.batch.Len() > sortBytes || b.indexed || b.ranges > 0 {
		return nil // of a range deletion and a write, the later one counts
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

// read takes in a batch's writes.
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

// at is the write of a place in the order.
func (s *sorter) at(order uint64) *writeSpan { return &s.writes[order%sortMax] }

// sort puts order in order. Writes of the same key stay as they were made.
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

// common is how many bytes two keys have in common at their beginning.
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
