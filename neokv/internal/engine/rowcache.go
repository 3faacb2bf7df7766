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

// rowCache keeps records of the keyspace redis_metadata in memory, one by one, for those who read a single key: a look into Pebble's
// memtables and tables costs ten times as much, and more behind many writes. It has what leaders write and read. All may run concurrently.
//
// A row is what the engine holds, or was when the read began that finds it: a batch takes the rows of its keys away before anybody can see
// what it writes, and puts the new ones there when everybody can. Who reads in between asks Pebble. A reader puts there what it has found
// only if no change of the region has begun since it looked, which it asks under the lock under which a change that begins later takes the
// row away.
//
// Rows are of a generation of their region's Rows. Ending it makes all its rows invisible at once; others take their places in time.
type rowCache struct {
	seed    maphash.Seed
	buckets []bucket
	limit   int64 // bytes of rows, as size counts them; buckets, a sixth of it to a third, are not in it

	locks [64]sync.Mutex // between what everybody reads and what changes all the time

	bytes        atomic.Int64  // of rows now
	swept        atomic.Uint64 // buckets, see sweep
	generations  atomic.Uint64
	hits, misses atomic.Uint64
}

// bucket is where rows of some hashes are, no two of one tag: a cache line, so that who writes touches no other, and no row.
type bucket struct {
	// tags has tagBits of the hash for each row, from the lowest on, and above them counts what was thrown out. Readers may see a tag beside a row
	// that it does not belong to: they compare keys.
	tags  atomic.Uint64
	sizes [8]uint8 // of the rows, in units of sizeUnit bytes; 0 for no row
	rows  [bucketRows]atomic.Pointer[row]
}

const (
	bucketRows = 6
	tagBits    = 10
	tagMask    = 1<<tagBits - 1
	sizeUnit   = 32 // 255 of them are more than the largest row
	// rowBytes is how large rows are of which so many have places as memory allows. Most are larger, so that buckets are seldom full.
	rowBytes = 64
	// maxRow is how large a row may be.
	maxRow = 4 << 10
)

// row is the head of a record in memory; key and value lie behind it in the same piece of memory, which never changes.
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

// bytes are the key and, behind it, the value.
func (r *row) bytes() []byte {
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(r), rowHead)), r.key+r.value)
}

// size is how much memory the row takes, in units of sizeUnit bytes.
func (r *row) size() uint8 {
	return uint8((rowHead + int(r.key) + int(r.value) + sizeUnit - 1) / sizeUnit)
}

func (r *row) of(key []byte) bool {
	return int(r.key) == len(key) && bytes.Equal(r.bytes()[:r.key], key)
}

// newRowCache returns a cache for so many bytes of rows, nil for none.
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

// find returns where the row of a hash is, and its tag there.
func (c *rowCache) find(hash uint64) (b *bucket, lock *sync.Mutex, tag uint64) {
	i := hash % uint64(len(c.buckets))
	return &c.buckets[i], &c.locks[i%uint64(len(c.locks))], hash >> (64 - tagBits)
}

func tagAt(tags uint64, i int) uint64 { return tags >> (tagBits * i) & tagMask }

// get returns what the rows of a generation hold under a key.
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

// drop takes the row of a hash away, if there is one.
func (c *rowCache) drop(hash uint64) {
	b, lock, tag := c.find(hash)
	lock.Lock()
	if i := b.index(tag); i >= 0 {
		c.set(b, i, tag, nil, 0)
	}
	lock.Unlock()
}

// index is where a bucket has the row of a tag, -1 for nowhere. The lock is held.
func (b *bucket) index(tag uint64) int {
	tags := b.tags.Load()
	for i := range b.rows {
		if tagAt(tags, i) == tag && b.sizes[i] > 0 {
			return i
		}
	}
	return -1
}

// set puts a row of a size, or nil, into a place. The lock is held.
func (c *rowCache) set(b *bucket, i int, tag uint64, r *row, size uint8) {
	tags := b.tags.Load()
	b.tags.Store(tags&^(tagMask<<(tagBits*i)) | tag<<(tagBits*i))
	b.rows[i].Store(r)
	c.bytes.Add((int64(size) - int64(b.sizes[i])) * sizeUnit)
	b.sizes[i] = size
}

// put puts a row in its place. If late is not nil, it is asked under the lock, and the row is dropped where it is true.
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

// sweep empties one bucket after the other, where there is too much in memory.
func (c *rowCache) sweep() {
	b, lock, _ := c.find(c.swept.Add(1) % uint64(len(c.buckets)))
	lock.Lock()
	for i := range b.rows {
		c.set(b, i, 0, nil, 0)
	}
	lock.Unlock()
}

// room returns an empty place, or that of a row to be replaced: one after the other. The lock is held.
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

// Rows are the rows of one region in its store's row cache. They are there between Open and Close; nothing here changes what anybody reads, as
// long as all that writes the region's records is told of them: Batch.Keep, Ingestion.Commit. All methods may run concurrently; nil has no rows.
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

// Open begins anew, without rows.
func (r *Rows) Open() {
	if r != nil {
		r.generation.Store(r.cache.generations.Add(1))
	}
}

// Close ends that.
func (r *Rows) Close() {
	if r != nil {
		r.generation.Store(0)
	}
}

// renew forgets all rows, and goes on if they are open.
func (r *Rows) renew() {
	for g := r.generation.Load(); g != 0 && !r.generation.CompareAndSwap(g, r.cache.generations.Add(1)); g = r.generation.Load() {
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

// asOf is how many changes have ended.
func (r *Rows) asOf() uint64 {
	if r == nil {
		return 0
	}
	return r.ended.Load()
}

// unchanged reports whether no change has begun since asOf was asked: a row that was found before is that of the state of then.
func (r *Rows) unchanged(asOf uint64) bool { return r.begun.Load() == asOf }

// keep makes a row of what a reader has found after it had asked asOf.
func (r *Rows) keep(asOf uint64, key, value []byte) {
	if r == nil || len(key)+len(value) > maxRow {
		return
	}
	if g := r.generation.Load(); g != 0 && r.unchanged(asOf) {
		r.cache.put(maphash.Bytes(r.cache.seed, key), newRow(g, key, value), func() bool { return !r.unchanged(asOf) })
	}
}

// replace runs what replaces all records of the region.
func (r *Rows) replace(f func() error) error {
	if r == nil {
		return f()
	}
	return r.change(func() error {
		r.renew()
		return f()
	})
}

// rowChanges are what a batch does to the rows of its region. The memory is reused.
type rowChanges struct {
	of     *Rows // nil for none: nothing
	hashes []uint64
	made   []*row // by hash, nil where the row only goes
}

// around runs the commit of a batch.
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

// begin takes away the rows of all records that a batch changes.
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
		case w.kind == pebble.InternalKeyKindRangeDelete && ks <= keys.RedisMetadata && keys.Keyspace(repr[w.value]) >= keys.RedisMetadata:
			x.of.renew()
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

// end puts the new rows there, when the batch is visible: of a record that it writes several times the last.
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
