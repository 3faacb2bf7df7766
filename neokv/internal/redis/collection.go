package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file is what hashes, sets, lists and sorted sets share. A collection is its record in redis_metadata, which names a version, and
// its elements, which are one contiguous range of the data keyspace under that version (and one of redis_zset_score, of a sorted set):
//
//	[data key ...][version u64] [subkey]  ->  value
//
// Reading:
//
//	var c collection
//	if ok, err := r.open(&c, key, keys.Hash, out); !ok {
//		return err // or the key holds something else, and the reply says so
//	}
//	... c.Size, c.get, c.each, c.elements, c.pick ...
//
// An absent key is a collection of size 0. Writing is the same with w.open, or w.renew for what replaces whatever the key holds, then
// w.put, w.insert, w.set, w.drop, w.erase and at last w.close, which writes the record. A command opens a key once at a time.

// source is what elements are read from: a reader's view, or a writer's batch as the writes so far leave it.
type source interface {
	// Get's value is valid until the next call of Get.
	Get(key []byte) (value []byte, ok bool, err error)
	Iter(lower, upper []byte) (*pebble.Iterator, error)
}

var (
	_ source = (*engine.View)(nil)
	_ source = (*engine.Batch)(nil)
)

// collection is what one key holds, of one type. Its slices are the call's scratch memory, but for user.
type collection struct {
	// Metadata is that of the version that is there, or has been begun; only type and sizes of 0 while there is none.
	keys.Metadata
	user []byte
	slot topology.Slot
	from source

	key   []byte // of an element: the front that all share, and the subkey asked for last
	front int    // bytes of the front: up to and including the version
	bound []byte // scratch for an upper bound

	// Of a writer.
	old     record // what the key held
	renewed bool   // it goes, whatever becomes of the collection
	begun   bool   // the version is a new one
	changed bool
}

// scratch is memory for the collections of one call, kept for the next.
type scratch struct {
	bufs [][]byte
	used int
}

// take returns an empty buffer for n bytes and a subkey.
func (s *scratch) take(n int) []byte {
	const subkey = 128
	if s.used == len(s.bufs) {
		s.bufs = append(s.bufs, nil)
	}
	b := &s.bufs[s.used]
	s.used++
	if cap(*b) < n || cap(*b) > maxScratchBytes {
		*b = make([]byte, 0, n+subkey)
	}
	return (*b)[:0]
}

// open reads what a key holds of a type. It reports false, with Redis's error in out, where it holds another type.
func (r *Reader) open(c *collection, key []byte, t keys.Type, out *Reply) (ok bool, err error) {
	slot := topology.SlotOf(key)
	rec, err := r.loadIn(slot, key)
	if err != nil || rec.isNot(t, out) {
		return false, err
	}
	c.start(r.Space, slot, key, t, &rec, &r.opened)
	c.from = r.View
	return true, nil
}

// begin is open where the key's record has been loaded, and is a live one of a collection.
func (r *Reader) begin(c *collection, slot topology.Slot, key []byte, rec *record) {
	c.start(r.Space, slot, key, rec.Type, rec, &r.opened)
	c.from = r.View
}

// open reads what a key holds of a type, to change it. It reports false, with Redis's error in out, where it holds another type.
func (w *Writer) open(c *collection, key []byte, t keys.Type, out *Reply) (ok bool, err error) {
	slot := topology.SlotOf(key)
	rec, err := w.loadIn(slot, key)
	if err != nil || rec.isNot(t, out) {
		return false, err
	}
	c.start(w.Space, slot, key, t, &rec, &w.opened)
	c.from, c.old = w.Batch, rec
	return true, nil
}

// renew begins an empty collection that takes the place of whatever the key holds when it is closed; closed empty, it leaves the key
// absent. What the key holds may be read meanwhile.
func (w *Writer) renew(c *collection, key []byte, t keys.Type) error {
	old, err := w.load(key)
	if err != nil {
		return err
	}
	w.renewOver(c, key, t, &old)
	return nil
}

// renewOver is renew where the key's record has been loaded.
func (w *Writer) renewOver(c *collection, key []byte, t keys.Type, old *record) {
	c.start(w.Space, topology.SlotOf(key), key, t, &record{}, &w.opened)
	c.from, c.old, c.renewed = w.Batch, *old, true
	c.old.Value = nil // not valid for long
}

// start makes c the collection of a record, empty if that is not live.
func (c *collection) start(space keys.Space, slot topology.Slot, user []byte, t keys.Type, rec *record, s *scratch) {
	*c = collection{user: user, slot: slot}
	c.Type = t
	if t == keys.List {
		c.Head, c.Tail = keys.ListStart, keys.ListStart
	}
	if rec.live {
		c.Metadata = rec.Metadata
	}
	c.front = keys.UserKeyOffset + len(user) + keys.VersionLen
	c.key = space.AppendCollection(s.take(c.front), keys.Data, slot, user, c.Version)
	c.bound = s.take(c.front)
}

// isNot reports whether the key exists and is of another type, and appends Redis's error then.
func (rec *record) isNot(t keys.Type, out *Reply) bool {
	if rec.live && rec.Type != t {
		out.Error(ErrWrongType)
		return true
	}
	return false
}

// at returns the storage key of an element in the data keyspace; it is valid until the next call on c.
func (c *collection) at(sub []byte) []byte { return c.in(keys.Data, sub) }

// in returns the storage key of an element in the data keyspace or in redis_zset_score; it is valid until the next call on c.
func (c *collection) in(ks keys.Keyspace, sub []byte) []byte {
	c.key = append(c.key[:c.front], sub...)
	c.key[0] = byte(ks)
	return c.key
}

// get reads one element. The value is valid until the next read.
func (c *collection) get(sub []byte) (value []byte, ok bool, err error) {
	if c.Size == 0 {
		return nil, false, nil
	}
	return c.from.Get(c.at(sub))
}

// elements goes over elements in the order of their subkeys. It has to be closed before the call ends.
type elements struct {
	*pebble.Iterator
	front int
}

// sub is the subkey of the element that the iterator stands on, valid until it moves.
func (e *elements) sub() []byte { return e.Key()[e.front:] }

// elements returns an iterator over the elements with subkeys in [from, to), nil for no bound, in the data keyspace or in
// redis_zset_score. It shows the elements as they are now.
func (c *collection) elements(ks keys.Keyspace, from, to []byte) (elements, error) {
	c.bound = append(c.bound[:0], c.key[:c.front]...)
	if to == nil {
		c.bound = keys.Successor(c.bound)
	} else {
		c.bound = append(c.bound, to...)
	}
	c.bound[0] = byte(ks)
	it, err := c.from.Iter(c.in(ks, from), c.bound)
	return elements{it, c.front}, err
}

// each calls f with the elements of the data keyspace whose subkeys are not below from, in order, until f reports false. What it
// is called with is valid during the call.
func (c *collection) each(from []byte, f func(sub, value []byte) bool) (err error) {
	e, err := c.elements(keys.Data, from, nil)
	if err != nil {
		return err
	}
	for ok := e.First(); ok; ok = e.Next() {
		value, err := e.ValueAndErr()
		if err != nil {
			return errors.Join(err, e.Close())
		}
		if !f(e.sub(), value) {
			break
		}
	}
	return e.Close()
}

// put stores an element, whether it is there or not, and reports whether it is new.
func (w *Writer) put(c *collection, sub, value []byte) (added bool, err error) {
	_, there, err := c.get(sub)
	switch {
	case err != nil:
		return false, err
	case there:
		return false, w.set(c, sub, value)
	}
	return true, w.insert(c, sub, value)
}

// insert stores an element that is known not to be there.
func (w *Writer) insert(c *collection, sub, value []byte) error {
	w.grow(c, 1)
	return w.set(c, sub, value)
}

// grow counts n new elements, and gives a collection that is not there yet its version.
func (w *Writer) grow(c *collection, n uint64) {
	if c.Version == 0 {
		c.Version = max(w.VersionBase, w.State.LastVersion) + 1
		w.State.LastVersion = c.Version
		binary.BigEndian.PutUint64(c.key[c.front-keys.VersionLen:c.front], c.Version)
		c.begun = true
	}
	c.Size += n
	c.changed = true
}

// set stores an element that is known to be there, or has been counted by grow.
func (w *Writer) set(c *collection, sub, value []byte) error {
	c.changed = true
	return w.Batch.Set(c.at(sub), value)
}

// drop deletes an element, if it is there, and reports whether it was.
func (w *Writer) drop(c *collection, sub []byte) (there bool, err error) {
	if _, there, err = c.get(sub); err != nil || !there {
		return false, err
	}
	return true, w.erase(c, sub)
}

// erase deletes an element that is known to be there.
func (w *Writer) erase(c *collection, sub []byte) error {
	c.Size--
	c.changed = true
	return w.Batch.Delete(c.at(sub))
}

// close writes the record of what has become of a collection. One without elements is absent, and leaves nothing behind: they have
// been deleted one by one.
func (w *Writer) close(c *collection) error {
	own := c.old.live && !c.renewed // the record names this version already
	switch {
	case !c.changed && !c.renewed:
		return nil
	case c.Size == 0 && c.renewed:
		return w.remove(c.user, &c.old)
	case c.Size == 0 && !own:
		return nil
	}
	w.State.CollectedAt = w.Index
	if own {
		w.key = w.Space.AppendMetadata(w.key[:0], c.slot, c.user)
		if c.Size == 0 {
			w.count(-1)
			return w.Batch.Delete(w.key)
		}
		w.value = c.Metadata.Append(w.value[:0])
		return w.Batch.Set(w.key, w.value)
	}
	w.notice(c.ExpireMS)
	w.value = c.Metadata.Append(w.value[:0])
	return w.replace(c.user, &c.old, w.value)
}

// duplicate makes a key hold the same as another one, in the place of what old says that it holds: the elements are copied under a
// version of its own.
func (w *Writer) duplicate(user []byte, source *record, key []byte, old *record) error {
	var from, to collection
	from.start(w.Space, topology.SlotOf(user), user, source.Type, source, &w.opened)
	from.from = w.Batch
	w.renewOver(&to, key, source.Type, old)
	w.grow(&to, source.Size)
	to.ExpireMS, to.Head, to.Tail = source.ExpireMS, source.Head, source.Tail
	for _, ks := range ElementSpaces(source.Type) {
		e, err := from.elements(ks, nil, nil)
		if err != nil {
			return err
		}
		for ok := e.First(); ok; ok = e.Next() {
			value, err := e.ValueAndErr()
			if err == nil {
				err = w.Batch.SetAhead(to.in(ks, e.sub()), value)
			}
			if err != nil {
				return errors.Join(err, e.Close())
			}
		}
		if err := e.Close(); err != nil {
			return err
		}
	}
	return w.close(&to)
}

// ElementSpaces are the keyspaces in which the elements of a collection are.
func ElementSpaces(t keys.Type) []keys.Keyspace {
	if t == keys.ZSet {
		return zsetSpaces
	}
	return zsetSpaces[:1]
}

var zsetSpaces = []keys.Keyspace{keys.Data, keys.ZSetScore}

// random is what a read chooses by.
func (r *Reader) random() *rand.Rand {
	if r.rand == nil {
		r.rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return r.rand
}

// random is what a write chooses by: numbers that follow from the log entry, so that replicas choose the same.
func (w *Writer) random() *rand.Rand {
	if w.rand == nil {
		w.rand = rand.New(&w.numbers)
	}
	if w.seeded != w.Index {
		w.seeded = w.Index
		w.numbers.Seed(w.VersionBase, w.Index)
	}
	return w.rand
}

const (
	// pickWalk is among up to how many elements pick draws by walking.
	pickWalk = 64
	// pickTries is how often it draws a byte, where the elements have some, before it looks which.
	pickTries = 6
)

// pick moves an iterator over all elements of the data keyspace, of which there are some, to a random one. Where they are many it goes
// down the tree of the subkeys, and at each place where they part it draws one of the ways: so every element can be met, those of
// subkeys like numbers or hashes about equally often, and it costs some seeks however many elements there are.
func (c *collection) pick(e *elements, rng *rand.Rand) error {
	if !e.First() {
		return errors.Join(e.Error(), c.miscounted(0))
	}
	if c.Size <= pickWalk {
		for n := rng.Uint64N(c.Size); n > 0; n-- {
			if !e.Next() {
				return errors.Join(e.Error(), c.miscounted(c.Size-n))
			}
		}
		return nil
	}
	first := append(c.bound[:0], e.Key()...) // of the elements that are left
	more := e.Last()
	for n := c.front; more; n++ {
		last := e.Key()
		for n < len(first) && n < len(last) && first[n] == last[n] {
			n++
		}
		if n == len(last) { // as first is
			break
		}
		low := -1 // the first element is the one that ends here
		if n < len(first) {
			low = int(first[n])
		}
		c.key = append(c.key[:0], first[:n]...)
		drawn := c.branch(e, rng, low, int(last[n]))
		if drawn < 0 {
			e.SeekGE(first)
			break
		}
		if !e.Valid() {
			break
		}
		first = append(first[:0], e.Key()...)
		c.key = keys.Successor(append(c.key[:0], first[:n+1]...))
		more = e.SeekLT(c.key)
	}
	c.bound, c.key = first, append(c.key[:0], first[:c.front]...)
	if !e.Valid() {
		return errors.Join(e.Error(), fmt.Errorf("%v %q: elements are gone while one is picked", c.Type, c.user))
	}
	return nil
}

// branch draws one of the bytes that follow c.key in subkeys, all equally likely, and moves the iterator to the first element with it; low is
// the smallest, -1 for an end there, and high the largest.
func (c *collection) branch(e *elements, rng *rand.Rand, low, high int) (drawn int) {
	n := len(c.key)
	seek := func(b int) bool {
		c.key = append(c.key[:n], byte(b))
		return e.SeekGE(c.key)
	}
	for range pickTries {
		if drawn = low + rng.IntN(high-low+1); drawn < 0 || seek(drawn) && int(e.Key()[n]) == drawn {
			return drawn
		}
	}
	drawn = low // there are gaps: go through all
	for b, ways := low, 1; b < high; {
		if !seek(b + 1) {
			break
		}
		b = int(e.Key()[n])
		if ways++; rng.IntN(ways) == 0 {
			drawn = b
		}
	}
	if drawn >= 0 {
		seek(drawn)
	}
	return drawn
}

// sampleWhole is up to how many elements are read as a whole to choose among them.
const sampleWhole = 1024

// sample calls f with random elements, for a reply that has announced them (openSample): -n where n is negative, which may repeat, else n
// different ones, or all where there are less. It ends early where the reply is full.
func (c *collection) sample(n int64, rng *rand.Rand, out *Reply, f func(sub, value []byte)) error {
	switch {
	case n == 0 || c.Size == 0:
		return nil
	case n > 0 && uint64(n) >= c.Size:
		return c.all(out, f)
	case n > 0 && (uint64(n) > c.Size/3 || c.Size <= sampleWhole && n > 1):
		return c.sampleOf(uint64(n), rng, out, f)
	}
	e, err := c.elements(keys.Data, nil, nil)
	if err != nil {
		return err
	}
	err = c.picks(&e, n, rng, out, f)
	return errors.Join(err, e.Close())
}

// sampleOf is sample by looking at all elements, each of which is taken with the chance that keeps all choices equally likely.
func (c *collection) sampleOf(n uint64, rng *rand.Rand, out *Reply, f func(sub, value []byte)) error {
	left := c.Size
	return c.each(nil, func(sub, value []byte) bool {
		if left == 0 || rng.Uint64N(left) < n {
			f(sub, value)
			n--
		}
		left--
		return n > 0 && !out.Full
	})
}

// picks is sample one by one.
func (c *collection) picks(e *elements, n int64, rng *rand.Rand, out *Reply, f func(sub, value []byte)) error {
	var taken map[string]bool
	if n > 1 {
		taken = make(map[string]bool)
	}
	for left := max(n, -n); left > 0 && !out.Full; {
		if err := c.pick(e, rng); err != nil {
			return err
		}
		for ok := true; taken[string(e.sub())]; { // the next one that is not, and there is one
			if ok = ok && e.Next(); !ok {
				ok = e.First()
			}
			if !ok {
				return errors.Join(e.Error(), c.miscounted(uint64(len(taken))))
			}
		}
		if taken != nil {
			taken[string(e.sub())] = true
		}
		value, err := e.ValueAndErr()
		if err != nil {
			return err
		}
		f(e.sub(), value)
		left--
	}
	return nil
}

// parseSample parses what may follow the key of HRANDFIELD, SRANDMEMBER and ZRANDMEMBER: a count and, where it is not empty, an option.
func parseSample(args [][]byte, name string, out *Reply) (n int64, option, ok bool) {
	if len(args) == 2 {
		return 1, false, true
	}
	n, ok = parseInt(args[2])
	switch {
	case !ok:
		out.Error(ErrNotInteger)
	case n == math.MinInt64:
		out.Error(errSampleRange)
	case len(args) > 4 || len(args) == 4 && (name == "" || !IsOption(args[3], name)):
		out.Error(ErrSyntax)
	case len(args) == 4 && (n < -math.MaxInt64/2 || n > math.MaxInt64/2):
		out.Error(ErrOutOfRange)
	default:
		return n, len(args) == 4, true
	}
	return 0, false, false
}

// openSample opens the array of a sample of so many elements, of two values each if pairs.
func (c *collection) openSample(n int64, pairs bool, out *Reply) {
	switch {
	case c.Size == 0:
		n = 0
	case n < 0:
		n = -n
	default:
		n = min(n, int64(c.Size))
	}
	if pairs && out.Proto != 3 {
		n *= 2
	}
	out.Array(int(n))
}

// What commands of several types are.

// size replies how many elements the key has.
func (r *Reader) size(key []byte, t keys.Type, out *Reply) error {
	var c collection
	if ok, err := r.open(&c, key, t, out); !ok {
		return err
	}
	out.Int(int64(c.Size))
	return nil
}

// hasElement replies 1 if the key has an element, else 0.
func (r *Reader) hasElement(key []byte, t keys.Type, sub []byte, out *Reply) error {
	var c collection
	if ok, err := r.open(&c, key, t, out); !ok {
		return err
	}
	_, there, err := c.get(sub)
	n := int64(0)
	if there {
		n = 1
	}
	out.Int(n)
	return err
}

// dropElements deletes elements, and replies how many of them were there.
func (w *Writer) dropElements(key []byte, t keys.Type, subs [][]byte, out *Reply) error {
	var c collection
	if ok, err := w.open(&c, key, t, out); !ok {
		return err
	}
	n := int64(0)
	for _, sub := range subs {
		there, err := w.drop(&c, sub)
		if err != nil {
			return err
		}
		if there {
			n++
		}
	}
	out.Int(n)
	return w.close(&c)
}

// all calls f with all elements in order, for a reply that has announced c.Size of them; it ends early where the reply is full.
func (c *collection) all(out *Reply, f func(sub, value []byte)) error {
	if c.Size == 0 {
		return nil
	}
	n := uint64(0)
	err := c.each(nil, func(sub, value []byte) bool {
		f(sub, value)
		n++
		return !out.Full
	})
	if err == nil && n != c.Size && !out.Full {
		err = c.miscounted(n)
	}
	return err
}

// miscounted is the error of a collection whose record is wrong.
func (c *collection) miscounted(n uint64) error {
	return fmt.Errorf("%v %q: %d elements, its record counts %d", c.Type, c.user, n, c.Size)
}
