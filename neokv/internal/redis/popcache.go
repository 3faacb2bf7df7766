package redis

import (
	"bytes"
	"errors"
	"sync/atomic"

	"github.com/tidwall/btree"

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
	// maxRead is how many members are read at once at an end of a sorted set, and maxReadBytes about how many bytes; one
	// member may be longer.
	maxRead      = 128
	maxReadBytes = 64 << 10
	// maxEnd is how many members are cached at an end: those that have been read, and some that have been added since.
	maxEnd = 512
	// memberBytes is what a member takes besides its own bytes: a string of 16 bytes in a node of the B-tree that is
	// half full at least, its share of the nodes, and what the allocator rounds up.
	memberBytes = 48
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
	bytes   int64 // what the entry takes of the memory
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
	x.count(k, len(k.user))
	x.known[c.Version%maxPopEntries] = k
	return k
}

// forget drops what is cached of a version of a key.
func (x *popCache) forget(version uint64, user []byte) {
	if k := x.of(version, user); k != nil {
		x.memory.used.Add(-k.bytes)
		x.known[version%maxPopEntries] = nil
	}
}

// count counts n more bytes of memory.
func (x *popCache) count(k *popEntry, n int) {
	k.bytes += int64(n)
	x.memory.used.Add(int64(n))
}

// insert adds a subkey to a list of an entry.
func (x *popCache) insert(k *popEntry, e *subkeyList, sub []byte) {
	n := e.subs.Len()
	e.subs.Load(string(sub)) // is an Insert, and quick for subkeys in order
	x.count(k, (e.subs.Len()-n)*(len(sub)+memberBytes))
}

// remove drops a subkey if the list has it.
func (x *popCache) remove(k *popEntry, e *subkeyList, sub string) {
	n := e.subs.Len()
	e.subs.Delete(sub)
	x.count(k, (e.subs.Len()-n)*(len(sub)+memberBytes))
}

// limit sets the bound of a list.
func (x *popCache) limit(k *popEntry, e *subkeyList, bound string) {
	x.count(k, len(bound)-len(e.bound))
	e.whole, e.bound = false, bound
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
			x.insert(k, e, sub)
			if c.Type == keys.ZSet && e.subs.Len() > maxEnd {
				x.trim(k, i)
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
				x.remove(k, e, string(sub))
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
	if k.due < int64(c.Size) || !x.memory.room(memberBytes*int64(c.Size)) {
		return nil, nil
	}
	k.due = 0
	fits := true
	all, err := c.elements(keys.Data, nil, nil)
	if err != nil {
		return nil, err
	}
	for ok := all.First(); ok && fits; ok = all.Next() {
		x.insert(k, e, all.sub())
		fits = x.memory.room(0)
	}
	err = all.Close()
	if n := uint64(e.subs.Len()); err == nil && fits && n != c.Size {
		err = c.miscounted(n)
	}
	if !fits || err != nil {
		x.forget(c.Version, c.user)
		x.claim(c).due = -8 * int64(c.Size) // the next attempt comes later
		return nil, err
	}
	e.whole, e.at = true, e.subs.Iter()
	return e, nil
}

// below and above are the ends of a sorted set.
const (
	below = 0
	above = 1
)

// end returns the member at one end of a sorted set that is not empty, after its score. If it must read members, it
// reads at most as many as most says.
func (x *popCache) end(c *collection, at int, most int64) (sub string, err error) {
	k := x.claim(c)
	e := &k.at[at]
	if e.subs.Len() == 0 && !e.whole {
		n := 1
		if x.memory.room(maxReadBytes) {
			n = max(k.take, int(min(most, maxRead)))
			k.take = min(4*n, maxRead)
		}
		if err := x.extend(c, k, at, n); err != nil {
			return "", err
		}
	}
	there := false
	if at == above {
		sub, there = e.subs.Max()
	} else {
		sub, there = e.subs.Min()
	}
	if !there {
		return "", c.miscounted(0)
	}
	return sub, nil
}

// extend reads up to n members into an empty list of a sorted set: from the bound on, or from the end if nothing is
// known.
func (x *popCache) extend(c *collection, k *popEntry, at, n int) error {
	list := &k.at[at]
	from, to, first, next := []byte(list.bound), []byte(nil), elements.First, elements.Next
	if at == above {
		from, first, next = nil, elements.Last, elements.Prev
		if list.bound != "" {
			to = []byte(list.bound)
		}
	}
	e, err := c.elements(keys.ZSetScore, from, to)
	if err != nil {
		return err
	}
	ok := first(e)
	for read := 0; ok && n > 0 && read < maxReadBytes; ok = next(e) {
		score, _, err := e.scored()
		if err != nil {
			return errors.Join(err, e.Close())
		}
		k.signed = k.signed || keys.ScoreSign(score) != nil
		x.insert(k, list, e.sub())
		read += len(e.sub())
		n--
	}
	switch {
	case !ok:
		x.limit(k, list, "")
		list.whole = true
	case at == above:
		low, _ := list.subs.Min()
		x.limit(k, list, low)
	default:
		x.limit(k, list, string(e.sub()))
	}
	return e.Close()
}

// trim drops the member of a list that is farthest from its end.
func (x *popCache) trim(k *popEntry, at int) {
	e := &k.at[at]
	if at == above {
		far, _ := e.subs.Min()
		x.remove(k, e, far)
		low, _ := e.subs.Min()
		x.limit(k, e, low)
	} else {
		far, _ := e.subs.Max()
		x.remove(k, e, far)
		x.limit(k, e, far)
	}
}

// signs reports whether a member with a score of -0 may be among those that end returns.
func (x *popCache) signs(c *collection) bool {
	k := x.of(c.Version, c.user)
	return k == nil || k.signed
}

// tidy is called after members have been taken from an end.
func (x *popCache) tidy(c *collection) {
	if !x.memory.room(0) {
		x.forget(c.Version, c.user)
	}
}

// subkeyList has subkeys of one collection in one keyspace, in order: all before a bound or, for the upper end, all
// from the bound on.
type subkeyList struct {
	subs  btree.Set[string]
	whole bool   // no bound: all of the collection
	bound string // empty: nothing is known, unless whole is set

	at    btree.SetIter[string] // where the list stands as an ordered
	taken []byte                // a copy of the subkey there
}

// covers reports whether a subkey lies on the list's side of the bound: if the collection has it, so has the list.
func (x *subkeyList) covers(sub []byte, above bool) bool {
	return x.whole || x.bound != "" && (string(sub) >= x.bound) == above
}

// The methods of ordered.

func (x *subkeyList) First() bool          { return x.at.First() }
func (x *subkeyList) Last() bool           { return x.at.Last() }
func (x *subkeyList) Next() bool           { return x.at.Next() }
func (x *subkeyList) Prev() bool           { return x.at.Prev() }
func (x *subkeyList) Seek(sub []byte) bool { return x.at.Seek(string(sub)) }

func (x *subkeyList) SeekBefore(sub []byte) bool {
	if x.Seek(sub) {
		return x.Prev()
	}
	return x.Last()
}

func (x *subkeyList) sub() []byte {
	x.taken = append(x.taken[:0], x.at.Key()...)
	return x.taken
}
func (x *subkeyList) ValueAndErr() ([]byte, error) { return nil, nil }
func (x *subkeyList) Error() error                 { return nil }
func (x *subkeyList) Close() error                 { return nil }
