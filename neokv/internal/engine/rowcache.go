package engine

import (
	"bytes"
	"hash/maphash"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/batchrepr"

	"neokv.dev/neokv/internal/keys"
)

// rowCache keeps rows: copies of single records of the keyspace redis_metadata. A look into Pebble's memtables and
// tables costs ten times as much as a row, and more behind many writes. Leaders put the records there that they write
// and read. All methods may run concurrently.
//
// Invariant: a row is what the engine held when the read that finds it began, or later (see viewpool.go). Two rules
// keep it:
//
//   - A batch takes the rows of its keys away before anybody can see what it writes, and puts the new rows there when
//     everybody can. A read in between asks Pebble.
//   - A reader makes a row of what it found only if no change of the region has begun since it looked. It asks that
//     under the lock under which a later change takes the row away.
//
// A row belongs to a generation of its region's Rows. When a generation ends, all its rows become invisible at once;
// other rows replace them later.
type rowCache struct {
	seed    maphash.Seed
	buckets []bucket
	limit   int64 // bytes of rows, as size counts them; buckets take a sixth to a third of that in addition

	locks [64]sync.Mutex // also keeps the fields above, which all readers read, off the cache lines of those below

	bytes        atomic.Int64  // bytes of all rows now
	swept        atomic.Uint64 // how many buckets were swept, see sweep
	generations  atomic.Uint64
	hits, misses atomic.Uint64
}

// bucket has the rows of some hashes, no two with the same tag. It is one cache line: a writer that drops a row touches
// no other memory.
type bucket struct {
	// tags has tagBits bits of the hash of each row, from the lowest bit on, and above them a count of evicted rows. A
	// reader may see the tag of another row, so it compares keys.
	tags  atomic.Uint64
	sizes [8]uint8 // of the rows, in units of sizeUnit bytes; 0 for no row
	rows  [bucketRows]atomic.Pointer[row]
}

const (
	bucketRows = 6
	tagBits    = 10
	tagMask    = 1<<tagBits - 1
	sizeUnit   = 32 // 255 of them are more than the largest row
	// rowBytes is the row size by which the number of places is chosen. Most rows are larger, so the memory is used up
	// before the buckets are full.
	rowBytes = 64
	// maxRow is the most bytes that a row may have.
	maxRow = 4 << 10
)

// row is the head of a row. Its key and value lie behind it in the same allocation, which never changes.
type row struct {
	generation uint64
	key, value uint32 // bytes
}

const rowHead = int(unsafe.Sizeof(row{}))

func newRow(generation uint64, key, value []byte) *row {
	words := make([]uint64, (rowHead+len(key)+len(value)+7)/8)
	r := (*row)(unsafe.Pointer(unsafe.SliceData(words)))
	*r = row{generation, uint32(len(key)), uint32(len(value))}
	b := r.bytes()
	copy(b[copy(b, key):], value)
	return r
}

// bytes returns the key and, behind it, the value.
func (r *row) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(r), rowHead)), r.key+r.value)
}

// size is the memory that the row takes, in units of sizeUnit bytes.
func (r *row) size() uint8 {
	return uint8((rowHead + int(r.key) + int(r.value) + sizeUnit - 1) / sizeUnit)
}

func (r *row) of(key []byte) bool {
	return int(r.key) == len(key) && bytes.Equal(r.bytes()[:r.key], key)
}

// newRowCache returns a cache for limit bytes of rows, nil if limit is 0.
func newRowCache(limit int64) *rowCache {
	if limit <= 0 {
		return nil
	}
	n := 1
	for int64(n)*bucketRows*rowBytes < limit {
		n *= 2
	}
	return &rowCache{seed: maphash.MakeSeed(), buckets: make([]bucket, n), limit: limit}
}

// find returns the bucket of a hash, its lock, and the tag of the hash there.
func (c *rowCache) find(hash uint64) (b *bucket, lock *sync.Mutex, tag uint64) {
	i := hash % uint64(len(c.buckets))
	return &c.buckets[i], &c.locks[i%uint64(len(c.locks))], hash >> (64 - tagBits)
}

func tagAt(tags uint64, i int) uint64 { return tags >> (tagBits * i) & tagMask }

// get returns the value of a key, if a row of the generation has it.
func (c *rowCache) get(generation uint64, key []byte) (value []byte, ok bool) {
	b, _, tag := c.find(maphash.Bytes(c.seed, key))
	tags := b.tags.Load()
	for i := range b.rows {
		if tagAt(tags, i) != tag {
			continue
		}
		if r := b.rows[i].Load(); r != nil && r.generation == generation && r.of(key) {
			c.hits.Add(1)
			return r.bytes()[r.key:], true
		}
	}
	c.misses.Add(1)
	return nil, false
}

// drop removes the row of a hash, if there is one.
func (c *rowCache) drop(hash uint64) {
	b, lock, tag := c.find(hash)
	lock.Lock()
	if i := b.index(tag); i >= 0 {
		c.set(b, i, tag, nil, 0)
	}
	lock.Unlock()
}

// index is the place of a tag's row in the bucket, -1 for none. The caller holds the lock.
func (b *bucket) index(tag uint64) int {
	tags := b.tags.Load()
	for i := range b.rows {
		if tagAt(tags, i) == tag && b.sizes[i] > 0 {
			return i
		}
	}
	return -1
}

// set puts a row of a size, or nil, into place i. The caller holds the lock.
func (c *rowCache) set(b *bucket, i int, tag uint64, r *row, size uint8) {
	tags := b.tags.Load()
	b.tags.Store(tags&^(tagMask<<(tagBits*i)) | tag<<(tagBits*i))
	b.rows[i].Store(r)
	c.bytes.Add((int64(size) - int64(b.sizes[i])) * sizeUnit)
	b.sizes[i] = size
}

// put puts a row into its bucket. If late is not nil, put calls it under the lock, and drops the row if late returns
// true.
func (c *rowCache) put(hash uint64, r *row, late func() bool) {
	b, lock, tag := c.find(hash)
	lock.Lock()
	if late != nil && late() {
		lock.Unlock()
		return
	}
	i := b.index(tag)
	if i < 0 {
		i = b.room()
	}
	c.set(b, i, tag, r, r.size())
	lock.Unlock()
	for range c.buckets {
		if c.bytes.Load() <= c.limit {
			break
		}
		c.sweep()
	}
}

// sweep empties the next bucket in turn.
func (c *rowCache) sweep() {
	b, lock, _ := c.find(c.swept.Add(1) % uint64(len(c.buckets)))
	lock.Lock()
	for i := range b.rows {
		c.set(b, i, 0, nil, 0)
	}
	lock.Unlock()
}

// room returns an empty place, or else the place of the next row to replace, in turn. The caller holds the lock.
func (b *bucket) room() int {
	for i := range b.rows {
		if b.sizes[i] == 0 {
			return i
		}
	}
	tags := b.tags.Load()
	turn := tags >> (tagBits * bucketRows) % bucketRows
	b.tags.Store(tags&(1<<(tagBits*bucketRows)-1) | (turn+1)<<(tagBits*bucketRows))
	return int(turn)
}

// Rows is a region's part of its store's row cache. It has rows only between Open and Close. Reads find the same with
// it as without it, provided that everything that writes the region's records names it (Batch.Keep, Ingestion.Commit).
// All methods may run concurrently. A nil Rows has no rows.
type Rows struct {
	cache      *rowCache
	generation atomic.Uint64 // 0 while closed
	changes                  // of the region's records
}

// NewRows returns the rows of a region, closed, or nil if the engine has no row cache.
func (e *Engine) NewRows() *Rows {
	if e.rows == nil {
		return nil
	}
	return &Rows{cache: e.rows}
}

// Open lets the region have rows. It begins with none.
func (r *Rows) Open() {
	if r != nil {
		r.generation.Store(r.cache.generations.Add(1))
	}
}

// Close forgets all rows. Until the next Open there are none.
func (r *Rows) Close() {
	if r != nil {
		r.generation.Store(0)
	}
}

// Renew forgets all rows. An open Rows stays open.
func (r *Rows) Renew() {
	for r != nil {
		g := r.generation.Load()
		if g == 0 || r.generation.CompareAndSwap(g, r.cache.generations.Add(1)) {
			return
		}
	}
}

// get returns the record of a key, if there is a row of it.
func (r *Rows) get(key []byte) (value []byte, ok bool) {
	if r == nil {
		return nil, false
	}
	g := r.generation.Load()
	if g == 0 {
		return nil, false
	}
	return r.cache.get(g, key)
}

// asOf returns the number of changes that have ended.
func (r *Rows) asOf() uint64 {
	if r == nil {
		return 0
	}
	return r.ended.Load()
}

// unchanged reports whether no change has begun since asOf, so that what a reader found then still holds.
func (r *Rows) unchanged(asOf uint64) bool { return r.begun.Load() == asOf }

// keep makes a row of what a reader has found since asOf.
func (r *Rows) keep(asOf uint64, key, value []byte) {
	if r == nil || len(key)+len(value) > maxRow {
		return
	}
	if g := r.generation.Load(); g != 0 && r.unchanged(asOf) {
		r.cache.put(maphash.Bytes(r.cache.seed, key), newRow(g, key, value), func() bool { return !r.unchanged(asOf) })
	}
}

// replace runs f, which replaces all records of the region.
func (r *Rows) replace(f func() error) error {
	if r == nil {
		return f()
	}
	return r.change(func() error {
		r.Renew()
		return f()
	})
}

// rowChanges are the rows that a batch drops and makes. The batch reuses their memory.
type rowChanges struct {
	of     *Rows // nil if the batch changes no rows
	hashes []uint64
	made   []*row // by hash, nil if the batch only drops the row
}

// around commits a batch between begin and end.
func (x *rowChanges) around(batch *pebble.Batch, sorted bool, commit func() error) error {
	if x.of == nil {
		return commit()
	}
	return x.of.change(func() error {
		x.begin(batch)
		err := commit()
		if err == nil {
			x.end(sorted)
		}
		return err
	})
}

// begin drops the rows of all records that a batch changes.
func (x *rowChanges) begin(batch *pebble.Batch) {
	g := x.of.generation.Load()
	if g == 0 {
		return
	}
	c := x.of.cache
	repr := batch.Repr()
	for at := batchrepr.HeaderLen; at < len(repr); {
		w, next := readWrite(repr, at)
		at = next
		key := repr[w.key:w.keyEnd]
		switch ks := keys.Keyspace(key[0]); {
		case w.kind == pebble.InternalKeyKindRangeDelete &&
			ks <= keys.RedisMetadata && keys.Keyspace(repr[w.value]) >= keys.RedisMetadata:
			x.of.Renew()
			x.hashes, x.made = x.hashes[:0], x.made[:0]
			return
		case w.kind == pebble.InternalKeyKindRangeDelete || ks != keys.RedisMetadata:
			continue
		}
		hash := maphash.Bytes(c.seed, key)
		c.drop(hash)
		var made *row
		if value := repr[w.value:w.valueEnd]; w.kind == pebble.InternalKeyKindSet && len(key)+len(value) <= maxRow {
			made = newRow(g, key, value)
		}
		x.hashes, x.made = append(x.hashes, hash), append(x.made, made)
	}
}

// end puts the new rows there after the batch has become visible. If the batch writes a record several times, the last
// write counts.
func (x *rowChanges) end(sorted bool) {
	for i, r := range x.made {
		if r != nil && (sorted || len(x.hashes) <= sortMin && !slices.Contains(x.hashes[i+1:], x.hashes[i])) {
			x.of.cache.put(x.hashes[i], r, nil)
		}
	}
}

func (x *rowChanges) reset() {
	if cap(x.made) > maxPoints {
		x.hashes, x.made = nil, nil
	}
	clear(x.made)
	x.of, x.hashes, x.made = nil, x.hashes[:0], x.made[:0]
}
