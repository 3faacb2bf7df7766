package redis

import (
	"bytes"
	"errors"
	"slices"
	"sort"
	"sync/atomic"

	"neokv.dev/neokv/internal/keys"
)

// This file has the pop cache: a Writer keeps in memory the subkeys of a few collections from which commands pop. The
// engine keeps popped elements for a while, as deleted ones, and a step over a deleted element costs as much as any
// other. So the more elements are popped, the longer it takes to find the next one in the engine. The cache has all
// members of a set, and the members at the two ends of a sorted set. It changes nothing but the speed, since it always
// says what the engine would say. So replicas may have different things in it.
//
// All changes to a region come through its Writer, except a region snapshot and a change of the region's bounds. So
// when an entry is missing in the sequence that the Writer sees, it forgets everything, and so it does when it is told
// to (Writer.Forget). A key never has the same version again. Two keys may have the same one: each region numbers its
// collections by itself, and a region may have been merged into another.

// PopMemory counts the memory that the pop caches of all regions of a store use. The zero value is ready for use.
type PopMemory struct{ used atomic.Int64 }

// popMemoryBytes is how much they may use.
const popMemoryBytes = 16 << 20

func (m *PopMemory) room(n int64) bool { return m.used.Load()+n <= popMemoryBytes }

const (
	// maxPopEntries is how many collections are cached: one for each remainder of a version divided by it.
	maxPopEntries = 64
	// maxEnd is about how many members are cached at an end of a sorted set.
	maxEnd = 128
	// maxEndBytes is about how many bytes of them are read at once; one member may be longer.
	maxEndBytes = maxEnd * maxBound
	// maxBound is how long a bound may be to be remembered.
	maxBound = 512
	// pickSteps is about how many members could be read in the time that it takes to pick one.
	pickSteps = 32
)

// popCache is the pop cache of one Writer.
type popCache struct {
	index  uint64 // apply index of the last entry
	memory *PopMemory
	taken  []byte // scratch: a member that is being popped, with its score
	known  [maxPopEntries]*popEntry
}

// popEntry is the cache of one version of one key. For a set, the first list has all members. For a sorted set, there
// is a list for each end.
type popEntry struct {
	version uint64
	user    []byte
	at      [2]subkeyList
	due     int64 // how many members could have been read in the time that earlier picks took
	take    int   // how many members to read at an end next time
	// signed says that a member with a score of -0 has been in the lists. They do not tell -0 from 0.
	signed bool
}

// follow is called with the apply index of each entry.
func (x *popCache) follow(index uint64, shared *PopMemory) {
	if x.memory == nil {
		if x.memory = shared; shared == nil {
			x.memory = new(PopMemory)
		}
	}
	if index != x.index && index != x.index+1 {
		x.forgetAll()
	}
	x.index = index
}

func (x *popCache) forgetAll() {
	for _, k := range x.known {
		if k != nil {
			x.forget(k.version, k.user)
		}
	}
}

// of returns the entry of a version of a key, nil if there is none.
func (x *popCache) of(version uint64, user []byte) *popEntry {
	if k := x.known[version%maxPopEntries]; k != nil && k.version == version && bytes.Equal(k.user, user) {
		return k
	}
	return nil
}

// claim returns the entry of a collection, and makes one if there is none.
func (x *popCache) claim(c *collection) *popEntry {
	if k := x.of(c.Version, c.user); k != nil {
		return k
	}
	if k := x.known[c.Version%maxPopEntries]; k != nil {
		x.forget(k.version, k.user)
	}
	k := &popEntry{version: c.Version, user: bytes.Clone(c.user), take: 1}
	x.memory.used.Add(int64(len(k.user)))
	x.known[c.Version%maxPopEntries] = k
	return k
}

// forget drops what is cached of a version of a key.
func (x *popCache) forget(version uint64, user []byte) {
	if k := x.of(version, user); k != nil {
		for i := range k.at {
			x.memory.used.Add(k.at[i].reset())
		}
		x.memory.used.Add(-int64(len(k.user)))
		x.known[version%maxPopEntries] = nil
	}
}

// inserted is called with each subkey that a set, or the score index of a sorted set, gets. signed says that it has a
// score of -0.
func (x *popCache) inserted(c *collection, sub []byte, signed bool) {
	k := x.of(c.Version, c.user)
	if k == nil {
		return
	}
	k.signed = k.signed || signed
	for i := range k.at {
		if e := &k.at[i]; e.covers(sub, i == above) {
			x.memory.used.Add(e.insert(sub))
			if c.Type == keys.ZSet {
				x.memory.used.Add(e.trim(i == above))
			}
		}
	}
	if !x.memory.room(0) {
		x.forget(c.Version, c.user)
	}
}

// removed is called with each subkey that a set, or the score index of a sorted set, loses.
func (x *popCache) removed(c *collection, sub []byte) {
	if k := x.of(c.Version, c.user); k != nil {
		for i := range k.at {
			if e := &k.at[i]; e.covers(sub, i == above) {
				x.memory.used.Add(e.remove(sub))
			}
		}
	}
}

// whole returns all members of a set from which a command picks n. It returns nil until the commands so far have spent
// as much time on picks as it takes to read all members: only then does reading them pay.
func (x *popCache) whole(c *collection, n uint64) (*subkeyList, error) {
	k := x.claim(c)
	e := &k.at[0]
	if e.whole {
		return e, nil
	}
	k.due += pickSteps * int64(min(n, c.Size))
	if k.due < int64(c.Size) || !x.memory.room(int64(c.Size)) {
		return nil, nil
	}
	k.due = 0
	fits := true
	err := c.each(nil, func(sub, _ []byte) bool {
		x.memory.used.Add(e.insert(sub))
		fits = x.memory.room(0)
		return fits
	})
	if err == nil && fits && e.n != c.Size {
		err = c.miscounted(e.n)
	}
	if !fits || err != nil {
		x.memory.used.Add(e.reset())
		k.due = -8 * int64(c.Size) // the next attempt comes later
		return nil, err
	}
	e.whole = true
	return e, nil
}

// below and above are the ends of a sorted set.
const (
	below = 0
	above = 1
)

// end returns some members at one end of a sorted set that is not empty, with their scores. If it must read them, it
// reads at most as many as most says.
func (x *popCache) end(c *collection, at int, most int64) (*subkeyList, error) {
	k := x.claim(c)
	e := &k.at[at]
	if e.n > 0 {
		return e, nil
	}
	if e.whole {
		return nil, c.miscounted(0)
	}
	n := 1
	if x.memory.room(maxEnd * maxBound) {
		n = max(k.take, int(min(most, maxEnd)))
		k.take = min(4*n, maxEnd)
	}
	signed, err := e.extend(c, at == above, n)
	if err != nil {
		return nil, err
	}
	k.signed = k.signed || signed
	x.memory.used.Add(e.cost())
	if e.n == 0 {
		return nil, c.miscounted(0)
	}
	return e, nil
}

// signs reports whether a member with a score of -0 may be among those that end returns.
func (x *popCache) signs(c *collection) bool {
	k := x.of(c.Version, c.user)
	return k == nil || k.signed
}

// tidy is called after members have been taken from an end.
func (x *popCache) tidy(c *collection) {
	k := x.of(c.Version, c.user)
	if k == nil {
		return
	}
	if len(k.at[below].bound) > maxBound || len(k.at[above].bound) > maxBound || !x.memory.room(0) {
		x.forget(c.Version, c.user)
	}
}

// subkeyList has subkeys of one collection in one keyspace, in order: all before a bound or, for the upper end, all
// from the bound on.
type subkeyList struct {
	whole  bool   // no bound: all of the collection
	bound  []byte // nil: nothing is known
	leaves []leaf // none is empty
	n      uint64

	// at and in are where the list stands as an ordered: a leaf, and a subkey in it.
	at, in int
	key    []byte
	front  int
}

// leaf is some subkeys, one after the other in one buffer.
type leaf struct {
	bytes []byte
	ends  []uint32
}

const (
	// leafMost is how many subkeys a leaf has at most.
	leafMost = 256
	// leafLeast is how many subkeys a leaf has on average, at least, in a list of many leaves.
	leafLeast = 32
)

func (l *leaf) sub(i int) []byte {
	start := uint32(0)
	if i > 0 {
		start = l.ends[i-1]
	}
	return l.bytes[start:l.ends[i]:l.ends[i]]
}

func (l *leaf) cost() int64 { return int64(cap(l.bytes) + 4*cap(l.ends) + 64) }

func (l *leaf) insert(i int, sub []byte) {
	start := uint32(0)
	if i > 0 {
		start = l.ends[i-1]
	}
	l.bytes = slices.Insert(l.bytes, int(start), sub...)
	l.ends = slices.Insert(l.ends, i, start)
	for ; i < len(l.ends); i++ {
		l.ends[i] += uint32(len(sub))
	}
}

func (l *leaf) remove(i int) {
	sub := l.sub(i)
	n := uint32(len(sub))
	l.bytes = slices.Delete(l.bytes, int(l.ends[i]-n), int(l.ends[i]))
	for l.ends = slices.Delete(l.ends, i, i+1); i < len(l.ends); i++ {
		l.ends[i] -= n
	}
}

// split cuts the leaf before a subkey, and returns the rest.
func (l *leaf) split(i int) (behind leaf) {
	for k := i; k < len(l.ends); k++ {
		behind.insert(k-i, l.sub(k))
	}
	l.bytes, l.ends = slices.Clone(l.bytes[:l.ends[i-1]]), slices.Clone(l.ends[:i])
	return behind
}

// covers reports whether a subkey lies on the list's side of the bound: if the collection has it, so has the list.
func (x *subkeyList) covers(sub []byte, above bool) bool {
	return x.whole || x.bound != nil && (bytes.Compare(sub, x.bound) >= 0) == above
}

// reset forgets everything. Like every method that changes a list, it returns by how many bytes the list's memory has
// grown.
func (x *subkeyList) reset() int64 {
	cost := x.cost()
	*x = subkeyList{}
	return -cost
}

func (x *subkeyList) cost() (n int64) {
	for i := range x.leaves {
		n += x.leaves[i].cost()
	}
	return n
}

// find returns the place of the first subkey that is not below sub, and whether it equals sub. There may be none.
func (x *subkeyList) find(sub []byte) (at, in int, there bool) {
	at = sort.Search(len(x.leaves), func(i int) bool {
		l := &x.leaves[i]
		return bytes.Compare(l.sub(len(l.ends)-1), sub) >= 0
	})
	if at == len(x.leaves) {
		return at, 0, false
	}
	l := &x.leaves[at]
	in = sort.Search(len(l.ends), func(i int) bool { return bytes.Compare(l.sub(i), sub) >= 0 })
	return at, in, bytes.Equal(l.sub(in), sub)
}

// insert adds a subkey unless the list has it.
func (x *subkeyList) insert(sub []byte) (cost int64) {
	at, in, there := x.find(sub)
	if there {
		return 0
	}
	x.n++
	if at == len(x.leaves) { // behind all
		if at == 0 || len(x.leaves[at-1].ends) >= leafMost {
			x.leaves = append(x.leaves, leaf{})
		}
		at = len(x.leaves) - 1
		in = len(x.leaves[at].ends)
	}
	l := &x.leaves[at]
	if in > 0 || len(l.ends) > 0 {
		cost = -l.cost()
	}
	if l.insert(in, sub); len(l.ends) > leafMost {
		behind := l.split(len(l.ends) / 2)
		cost += l.cost() + behind.cost()
		x.leaves = slices.Insert(x.leaves, at+1, behind)
		return cost
	}
	return cost + l.cost()
}

// remove drops a subkey if the list has it.
func (x *subkeyList) remove(sub []byte) (cost int64) {
	at, in, there := x.find(sub)
	if !there {
		return 0
	}
	x.n--
	l := &x.leaves[at]
	if len(l.ends) == 1 {
		cost = -l.cost()
		x.leaves = slices.Delete(x.leaves, at, at+1)
		return cost
	}
	l.remove(in)
	if len(x.leaves) > 8 && x.n < leafLeast*uint64(len(x.leaves)) {
		return x.pack()
	}
	return 0
}

// pack fills the leaves up.
func (x *subkeyList) pack() (cost int64) {
	cost = -x.cost()
	old := x.leaves
	x.leaves, x.n = nil, 0
	for i := range old {
		for k := range old[i].ends {
			x.insert(old[i].sub(k))
		}
	}
	return cost + x.cost()
}

// trim drops a leaf that is farther from the end than maxEnd asks for.
func (x *subkeyList) trim(above bool) (cost int64) {
	if x.n <= 2*leafMost || len(x.leaves) < 2 {
		return 0
	}
	var gone leaf
	if above {
		gone = x.leaves[0]
		x.leaves = slices.Delete(x.leaves, 0, 1)
		x.bound = bytes.Clone(x.leaves[0].sub(0))
	} else {
		last := len(x.leaves) - 1
		gone = x.leaves[last]
		x.leaves = slices.Delete(x.leaves, last, last+1)
		x.bound = bytes.Clone(gone.sub(0))
	}
	x.n -= uint64(len(gone.ends))
	x.whole = false
	return -gone.cost()
}

// extend reads up to n members into an empty list: from the bound on, or from the end if nothing is known. It reports
// whether one of them has a score of -0.
func (x *subkeyList) extend(c *collection, above bool, n int) (signed bool, err error) {
	from, to := x.bound, []byte(nil)
	if above {
		from, to = nil, x.bound
	}
	e, err := c.elements(keys.ZSetScore, from, to)
	if err != nil {
		return false, err
	}
	first, next := e.First, e.Next
	if above {
		first, next = e.Last, e.Prev
	}
	ok := first()
	for read := 0; ok && n > 0 && read < maxEndBytes; ok = next() {
		score, _, err := e.scored()
		if err != nil {
			return false, errors.Join(err, e.Close())
		}
		signed = signed || keys.ScoreSign(score) != nil
		x.insert(e.sub())
		read += len(e.sub())
		n--
	}
	switch {
	case !ok:
		x.whole, x.bound = true, nil
	case above:
		x.bound = bytes.Clone(x.leaves[0].sub(0))
	default:
		x.bound = bytes.Clone(e.sub())
	}
	return signed, e.Close()
}

// over returns the list of all elements as an ordered, which makes their storage keys with c.
func (x *subkeyList) over(c *collection) ordered {
	x.front = c.front
	x.key = append(x.key[:0], c.key[:c.front]...)
	return x
}

// stand moves to a subkey, if there is one.
func (x *subkeyList) stand(at, in int) bool {
	x.at, x.in = at, in
	return x.Valid()
}

// The methods of ordered.

func (x *subkeyList) Valid() bool { return x.at >= 0 && x.at < len(x.leaves) }

func (x *subkeyList) First() bool { return x.stand(0, 0) }

func (x *subkeyList) Last() bool {
	last := len(x.leaves) - 1
	if last < 0 {
		return x.stand(-1, 0)
	}
	return x.stand(last, len(x.leaves[last].ends)-1)
}

func (x *subkeyList) Next() bool {
	if x.in+1 < len(x.leaves[x.at].ends) {
		x.in++
		return true
	}
	return x.stand(x.at+1, 0)
}

func (x *subkeyList) SeekGE(key []byte) bool {
	front := x.key[:x.front]
	if !bytes.HasPrefix(key, front) {
		if bytes.Compare(key, front) < 0 {
			return x.First()
		}
		return x.stand(len(x.leaves), 0)
	}
	at, in, _ := x.find(key[x.front:])
	return x.stand(at, in)
}

func (x *subkeyList) SeekLT(key []byte) bool {
	switch {
	case !x.SeekGE(key):
		return x.Last()
	case x.in > 0:
		x.in--
		return true
	case x.at == 0:
		return x.stand(-1, 0)
	}
	return x.stand(x.at-1, len(x.leaves[x.at-1].ends)-1)
}

func (x *subkeyList) Key() []byte {
	x.key = append(x.key[:x.front], x.sub()...)
	return x.key
}

func (x *subkeyList) sub() []byte                  { return x.leaves[x.at].sub(x.in) }
func (x *subkeyList) ValueAndErr() ([]byte, error) { return nil, nil }
func (x *subkeyList) Error() error                 { return nil }
func (x *subkeyList) Close() error                 { return nil }
