package engine

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// Batch collects writes that become visible and durable together. Its reads see its own writes. It is not safe for
// concurrent use.
//
// Under its own writes it reads the engine, through one view, as of its first read or its last write ahead. That is
// right if nobody else writes the keys that it reads. So it is at apply: only a region's replica writes the region's
// data, one batch after the other.
type Batch struct {
	engine *Engine
	batch  *pebble.Batch
	view   *View // opened by the first read that the batch's own writes do not answer
	over   writeIndex
	sorter sorter

	indexed bool // batch indexes its writes, for Iter
	iters   iters
	options pebble.IterOptions // of the last iterator

	ahead  *pebble.Batch // see SetAhead; nil for none
	ranges int           // range deletions

	known     []Known // see Expect
	nextKnown int
	deaf      bool // Expect has no effect

	work *Work // see Watch; nil for none

	deleted uint64 // how many keys the batch deletes one by one
	held    uint64 // see Held
	sorted  bool   // the batch is sorted and no two writes have the same key
	rows    rowChanges
}

func newBatch(e *Engine) *Batch {
	seed := maphash.MakeSeed()
	hash := func(key []byte) uint64 { return maphash.Bytes(seed, key) }
	return &Batch{engine: e, over: writeIndex{heads: make(map[uint64]int32), hash: hash}}
}

// NewBatch returns an empty batch. Its reads see the batch's own writes over the engine as of the first read.
func (e *Engine) NewBatch() *Batch {
	b := e.batches.Get().(*Batch)
	b.batch = e.db.NewBatch()
	return b
}

// Keep makes Commit bring a region's rows up to date with the records that the batch writes. rows may be nil.
func (b *Batch) Keep(rows *Rows) { b.rows.of = rows }

// Watch makes the batch's reads and writes, and its sort, count as work, until it is closed or committed.
func (b *Batch) Watch(w *Work) {
	b.work, b.iters.work = w, w
	if b.view != nil {
		b.view.Watch(w)
	}
}

// WatchIters makes the moves of the batch's iterators count as work of their own, until the next call of Watch.
func (b *Batch) WatchIters(w *Work) { b.iters.work = w }

// spend counts a write of so many bytes, and returns why the work is over, nil if it goes on.
func (b *Batch) spend(bytes int) error {
	if !b.work.Spend(writeUnits + bytes/writtenBytes) {
		return b.work.Ended()
	}
	return nil
}

// Set adds a write. It copies key and value.
func (b *Batch) Set(key, value []byte) error {
	if err := b.spend(len(value)); err != nil {
		return err
	}
	b.count(key, len(value))
	return b.batch.Set(key, value, nil)
}

// Held returns how many bytes of elements, pieces and strings the batch has been told to hold. What was written ahead
// does not count, nor do records of collections and counts of sorted sets, which a Writer may keep back for long. So
// what a call adds is the same on all replicas, whatever else their batches hold.
func (b *Batch) Held() uint64 { return b.held }

// count adds a write to Held. A record that is longer than longRecord is a string's.
func (b *Batch) count(key []byte, valueBytes int) {
	const longRecord = 128
	switch keys.Keyspace(key[0]) {
	case keys.Data, keys.ZSetScore:
	case keys.RedisMetadata:
		if valueBytes <= longRecord {
			return
		}
	default:
		return
	}
	b.held += uint64(len(key) + valueBytes)
}

// Delete adds a deletion. It copies the key, which need not exist.
func (b *Batch) Delete(key []byte) error {
	if err := b.spend(0); err != nil {
		return err
	}
	b.deleted++
	b.count(key, 0)
	return b.batch.Delete(key, nil)
}

// DeleteRange adds the deletion of all keys in [start, end). Later writes of the batch to the range stay. Use few range
// deletions, and only for large ranges: each one slows down the reads of its memtable.
func (b *Batch) DeleteRange(start, end []byte) error {
	b.ranges++
	return b.batch.DeleteRange(start, end, nil)
}

// SetDeferred adds a write, which does not count as work. The caller fills all of op.Key and op.Value, and calls
// op.Finish before the next call on the batch.
func (b *Batch) SetDeferred(keyBytes, valueBytes int) *pebble.DeferredBatchOp {
	return b.batch.SetDeferred(keyBytes, valueBytes)
}

// AheadBytes is the size of a batch up to which SetAhead does the same as Set. It is also how much SetAhead commits at
// a time. It is a variable for tests alone.
var AheadBytes = 1 << 20

// SetAhead adds a write to a key that nobody reads before the batch is committed, since the record that refers to the
// key is in the batch. Such a write need not wait for the batch. So only the first of them are in it; the others are
// committed ahead of it, in steps, and memory stays bounded. If the batch is never committed, these writes are left
// behind, and a caller that makes the same batch again writes over them. Reads of the batch see them. Keep does not, so
// the key must not be in redis_metadata.
func (b *Batch) SetAhead(key, value []byte) error {
	if b.ahead == nil {
		// A range deletion in the batch would delete writes that were committed ahead of it.
		if b.ranges > 0 {
			return b.Set(key, value)
		}
		if b.batch.Len() < AheadBytes {
			if err := b.spend(len(value)); err != nil {
				return err
			}
			return b.batch.Set(key, value, nil)
		}
		b.ahead = b.engine.db.NewBatch()
	}
	if err := b.spend(len(value)); err != nil {
		return err
	}
	if err := b.ahead.Set(key, value, nil); err != nil {
		return err
	}
	if b.ahead.Len() < AheadBytes {
		return nil
	}
	return b.commitAhead()
}

// commitAhead commits the writes that SetAhead has collected. Reads of the batch see them from then on.
func (b *Batch) commitAhead() error {
	if b.ahead == nil {
		return nil
	}
	ahead := b.ahead
	b.ahead = nil
	if err := b.engine.apply(ahead, pebble.NoSync); err != nil {
		return fmt.Errorf("engine: commit ahead: %w", err)
	}
	b.iters.drop()
	b.deaf = true // what Expect says may be older than these writes, which are not in the batch
	if b.view != nil {
		b.view.Close()
		b.view = nil
	}
	return ahead.Close()
}

// DeleteSlots adds the deletion of a region's data in the given slots: one range deletion per keyspace, and one for the
// orphan records.
func (b *Batch) DeleteSlots(slots topology.SlotRange) error {
	for _, ks := range keys.RegionKeyspaces {
		if err := b.DeleteRange(keys.SlotBounds(ks, slots)); err != nil {
			return err
		}
	}
	return b.DeleteRange(keys.OrphanBounds(slots))
}

// Known is what the engine holds under a key, as the leader found it for a read set.
type Known struct {
	Key, Value []byte
	There      bool // the key exists
	Cut        bool // Value is only the beginning of the value, or empty
}

// Expect tells the batch what its reads would find in the engine, until Expect is called again. Reads look up keys that
// are not in known. The batch's own writes take precedence. The batch keeps known without copying it. A batch with
// writes ahead ignores it, since these may be newer.
func (b *Batch) Expect(known []Known) { b.known, b.nextKnown = known, 0 }

// expected returns what is known of a key, nil if nothing is. Mostly reads come in the order of known, so it searches
// from the last one found.
func (b *Batch) expected(key []byte) *Known {
	if b.deaf {
		return nil
	}
	for range b.known {
		k := &b.known[b.nextKnown]
		if b.nextKnown++; b.nextKnown == len(b.known) {
			b.nextKnown = 0
		}
		if bytes.Equal(k.Key, key) {
			return k
		}
	}
	return nil
}

// Get reads a key, with the batch's writes. The value is valid until the next call on the batch.
func (b *Batch) Get(key []byte) (value []byte, ok bool, err error) {
	value, ok, known, err := b.written(key)
	if known || err != nil {
		return value, ok, err
	}
	if k := b.expected(key); k != nil && !k.Cut {
		return k.Value, k.There, nil
	}
	return b.stored(key)
}

// Has is like Get, for a caller that only needs to know whether the key exists.
func (b *Batch) Has(key []byte) (ok bool, err error) {
	_, ok, err = b.Head(key)
	return ok, err
}

// Head is like Get, for a caller that only needs the beginning of the value: it may return a value that is cut
// (Known.Cut).
func (b *Batch) Head(key []byte) (value []byte, ok bool, err error) {
	value, ok, known, err := b.written(key)
	if known || err != nil {
		return value, ok, err
	}
	if k := b.expected(key); k != nil {
		return k.Value, k.There, nil
	}
	return b.stored(key)
}

// written returns what the batch has written under a key. known is false if it has written nothing.
func (b *Batch) written(key []byte) (value []byte, ok, known bool, err error) {
	if err := b.commitAhead(); err != nil {
		return nil, false, false, err
	}
	if b.batch.Empty() {
		return nil, false, false, nil
	}
	if !b.work.Spend(stepUnits) {
		return nil, false, false, b.work.Ended()
	}
	repr := b.batch.Repr()
	b.over.read(repr)
	value, ok, known = b.over.get(repr, key)
	return value, ok, known, nil
}

// stored reads a key below the batch's writes.
func (b *Batch) stored(key []byte) (value []byte, ok bool, err error) {
	if b.view == nil {
		b.view = b.engine.NewView()
		b.view.Watch(b.work)
	}
	return b.view.Get(key)
}

// Iter returns an iterator over [lower, upper), with the batch's writes so far and without later ones. The caller must
// close it before it commits or closes the batch. From the first call on the batch indexes its writes, which costs as
// much as writing them.
func (b *Batch) Iter(lower, upper []byte) (*Iter, error) {
	if err := b.commitAhead(); err != nil {
		return nil, err
	}
	if !b.indexed && !b.batch.Empty() {
		ordered := b.engine.db.NewIndexedBatch()
		if err := ordered.Apply(b.batch, nil); err != nil {
			return nil, errors.Join(fmt.Errorf("engine: index batch: %w", err), ordered.Close())
		}
		_ = b.batch.Close()
		b.batch, b.indexed = ordered, true
		b.iters.drop()
	}
	b.options = pebble.IterOptions{LowerBound: lower, UpperBound: upper, UseL6Filters: true}
	if it := b.iters.take(); it != nil {
		it.SetOptions(&b.options) // makes writes since the last use visible
		return it, nil
	}
	if !b.indexed {
		return b.iters.opened(b.engine.db.NewIter(&b.options))
	}
	return b.iters.opened(b.batch.NewIter(&b.options))
}

// Mark is what a batch held at some moment.
type Mark struct {
	bytes  int
	count  uint32
	ranges int
	keys   uint64 // deleted one by one
}

// Mark returns what the batch holds now.
func (b *Batch) Mark() (Mark, error) {
	err := b.commitAhead()
	return Mark{b.batch.Len(), b.batch.Count(), b.ranges, b.deleted}, err
}

// Cut takes back all writes since Mark, but for those that have been committed ahead. The caller has closed all
// iterators. It takes time proportional to what is left.
func (b *Batch) Cut(m Mark) error {
	if b.ahead != nil {
		_ = b.ahead.Close()
		b.ahead = nil
	}
	if b.batch.Count() == m.count {
		return nil
	}
	b.iters.drop()
	b.over.reset()
	b.ranges, b.deleted = m.ranges, m.keys
	repr := b.batch.Repr()[:m.bytes]
	batchrepr.SetCount(repr, m.count)
	if b.indexed { // the index keeps all writes, so another batch takes its place
		repr = bytes.Clone(repr)
		_ = b.batch.Close()
		b.batch, b.indexed = b.engine.db.NewBatch(), false
	}
	if err := b.batch.SetRepr(repr); err != nil {
		return fmt.Errorf("engine: cut batch: %w", err)
	}
	return nil
}

// Len returns the size of the batch in bytes.
func (b *Batch) Len() int { return b.batch.Len() }

// HasRanges reports whether the batch has range deletions. Then all writes ahead go into the batch, however many they
// are.
func (b *Batch) HasRanges() bool { return b.ranges > 0 }

// Empty reports whether the batch holds no writes.
func (b *Batch) Empty() bool { return b.batch.Empty() }

// Commit commits the batch. With sync it is durable on return. The batch must not be used afterwards. If the work is
// over before the batch is sorted, Commit returns the reason and commits nothing but the writes ahead.
func (b *Batch) Commit(sync bool) error {
	opts := pebble.NoSync
	if sync {
		opts = pebble.Sync
	}
	err := b.commitAhead()
	b.iters.drop()
	if err == nil {
		err = b.sort()
	}
	if err == nil {
		err = b.rows.around(b.batch, b.sorted, func() error { return b.engine.apply(b.batch, opts) })
	}
	if err != nil {
		b.batch = nil // Pebble may still hold it
		err = fmt.Errorf("engine: commit: %w", err)
	}
	b.engine.deleted.Add(b.deleted)
	b.Close()
	return err
}

func (e *Engine) apply(b *pebble.Batch, opts *pebble.WriteOptions) error {
	return e.viewPool.change(func() error { return e.db.Apply(b, opts) })
}

// Close drops the batch without committing it.
func (b *Batch) Close() {
	b.Watch(nil)
	b.iters.drop()
	if b.view != nil {
		b.view.Close()
		b.view = nil
	}
	if b.batch != nil {
		_ = b.batch.Close()
		b.batch = nil
	}
	if b.ahead != nil {
		_ = b.ahead.Close()
		b.ahead = nil
	}
	b.over.reset()
	b.known, b.deaf = nil, false
	b.rows.reset()
	b.held, b.deleted, b.ranges, b.indexed, b.sorted = 0, 0, 0, false, false
	b.engine.batches.Put(b)
}

// writeIndex finds a batch's own writes by key. A read brings it up to date from the batch's bytes; writes do not, so
// batches without reads do not pay for it. It holds offsets into these bytes, since they move when the batch grows.
type writeIndex struct {
	done   int                     // bytes of the batch that are indexed
	order  int32                   // writes that are indexed
	hash   func(key []byte) uint64 // its seed is random; no answer depends on it
	heads  map[uint64]int32        // hash of a key -> the last of the points that share it
	points []writePoint
	ranges []span
}

type writePoint struct {
	writeSpan       // the last write of the key
	order     int32 // its
	next      int32 // another key of the same hash, or -1
}

type span struct {
	writeSpan
	order int32
}

// maxPoints is how many points of an index keep their memory for the next batch.
const maxPoints = 1 << 14

func (o *writeIndex) reset() {
	if o.done == 0 {
		return
	}
	if len(o.points) > maxPoints {
		o.heads, o.points = make(map[uint64]int32), nil
	}
	clear(o.heads)
	o.done, o.order, o.points, o.ranges = 0, 0, o.points[:0], o.ranges[:0]
}

// read indexes the writes that have come to repr since the last call.
func (o *writeIndex) read(repr []byte) {
	if o.done == 0 {
		o.done = batchrepr.HeaderLen
	}
	for o.done < len(repr) {
		w, next := readWrite(repr, o.done)
		o.done = next
		o.order++
		switch w.kind {
		case pebble.InternalKeyKindDelete, pebble.InternalKeyKindSet:
			o.put(repr, writePoint{writeSpan: w, order: o.order})
		case pebble.InternalKeyKindRangeDelete:
			o.ranges = append(o.ranges, span{w, o.order})
		default:
			panic(fmt.Sprintf("engine: batch holds a write of kind %v", w.kind))
		}
	}
}

// writeSpan says where the key and the value of one of a batch's writes lie in its bytes. The value of a range deletion
// is its end; that of a deletion is empty.
type writeSpan struct {
	key, keyEnd, value, valueEnd uint32
	kind                         pebble.InternalKeyKind
}

// readWrite reads the write at an offset into a batch's bytes, and returns where the next one begins.
func readWrite(repr []byte, at int) (w writeSpan, next int) {
	r := batchrepr.Reader(repr[at:])
	kind, key, value, ok, err := r.Next()
	if err != nil || !ok {
		panic(fmt.Sprintf("engine: batch of %d bytes: at %d: %v", len(repr), at, err))
	}
	end := uint32(len(repr) - len(r))
	w = writeSpan{kind: kind, value: end - uint32(len(value)), valueEnd: end, keyEnd: end}
	if kind != pebble.InternalKeyKindDelete {
		w.keyEnd = w.value - uvarintLen(uint32(len(value)))
	}
	w.key = w.keyEnd - uint32(len(key))
	return w, int(end)
}

func uvarintLen(n uint32) uint32 { return uint32(bits.Len32(n|1)+6) / 7 }

func (o *writeIndex) put(repr []byte, p writePoint) {
	key := repr[p.key:p.keyEnd]
	h := o.hash(key)
	head, ok := o.heads[h]
	if !ok {
		head = -1
	}
	for i := head; i >= 0; i = o.points[i].next {
		if q := &o.points[i]; bytes.Equal(repr[q.key:q.keyEnd], key) {
			p.next = q.next
			*q = p
			return
		}
	}
	p.next = head
	o.heads[h] = int32(len(o.points))
	o.points = append(o.points, p)
}

// get returns what the batch has written under key. known is false if it has written nothing.
func (o *writeIndex) get(repr, key []byte) (value []byte, ok, known bool) {
	var last *writePoint
	if i, found := o.heads[o.hash(key)]; found {
		for ; i >= 0; i = o.points[i].next {
			if p := &o.points[i]; bytes.Equal(repr[p.key:p.keyEnd], key) {
				last = p
				break
			}
		}
	}
	for i := len(o.ranges) - 1; i >= 0; i-- {
		r := &o.ranges[i]
		if last != nil && r.order < last.order {
			break
		}
		if bytes.Compare(repr[r.key:r.keyEnd], key) <= 0 && bytes.Compare(key, repr[r.value:r.valueEnd]) < 0 {
			return nil, false, true
		}
	}
	if last == nil {
		return nil, false, false
	}
	if last.kind == pebble.InternalKeyKindDelete {
		return nil, false, true
	}
	return repr[last.value:last.valueEnd:last.valueEnd], true, true
}
