package redis

import (
	"encoding/binary"
	"errors"
	"fmt"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file has the code that hashes, sets, lists and sorted sets share. A collection is a record in redis_metadata,
// which names a version, and elements, which are one contiguous range of the data keyspace under that version. A sorted
// set also has a range of redis_zset_score.
//
//	[data key ...][version u64] [subkey]  ->  value
//
// The subkey of an element with a name, a field or a member, begins with the name's hash, so such elements are in the
// order of their hashes (keys.AppendElement).
//
// A read command:
//
//	var c collection
//	if ok, err := r.open(&c, key, keys.Hash, out); !ok {
//		return err // or the key holds something else, and the reply says so
//	}
//	... c.Size, c.get, c.each, c.elements, c.sample ...
//
// An absent key is a collection of size 0. A write command begins with w.open, or with w.renew if it replaces whatever
// the key holds. Then it calls w.put, w.insert, w.set, w.drop and w.erase, and at last w.close, which writes the
// record. Code that only reads elements takes a *collection, so it serves both kinds of commands. A command must close
// a key before it opens the same key again to write it.

// source is where elements are read: a Reader's view, or a Writer's batch with the writes so far.
type source interface {
	// Get's value is valid until the next call of Get.
	Get(key []byte) (value []byte, ok bool, err error)
	Iter(lower, upper []byte) (*engine.Iter, error)
}

var (
	_ source = (*engine.View)(nil)
	_ source = (*writtenSource)(nil)
)

// writtenSource is a Writer as a source. Before a caller goes over records or the counts of sorted sets, it writes
// those that the Writer has kept back to the batch.
type writtenSource Writer

func (x *writtenSource) Get(key []byte) (value []byte, ok bool, err error) {
	if keys.Keyspace(key[0]) == keys.ZSetRank {
		if err := (*Writer)(x).settleCounts(); err != nil {
			return nil, false, err
		}
	}
	return x.Batch.Get(key)
}

func (x *writtenSource) Iter(lower, upper []byte) (*engine.Iter, error) {
	var err error
	switch w := (*Writer)(x); keys.Keyspace(lower[0]) {
	case keys.RedisMetadata:
		err = w.settleAll()
	case keys.ZSetRank:
		err = w.settleCounts()
	}
	if err != nil {
		return nil, err
	}
	return x.Batch.Iter(lower, upper)
}

// collection is the hash, set, list or sorted set of one key, while one call works on it. All its slices but user are
// scratch memory of the call.
type collection struct {
	// Metadata describes the version that the key's record names, or a new one that this command has begun. While there
	// is no version it has only the type, and sizes of 0.
	keys.Metadata
	user []byte
	slot topology.Slot
	from source

	key   []byte      // an element's storage key: the front, which all elements share, and the subkey used last
	front int         // length of the front, which ends with the version
	hash  int         // length of the hash in a subkey: keys.HashLen, or 0 for a list or a long string
	bound []byte      // scratch for upper bounds
	kept  *subkeyList // all elements, if they are kept in memory

	// For a Writer.
	old     record // the record that the key had
	renewed bool   // the key's old value goes, whatever becomes of the collection
	changed bool
}

// touchedBytes bounds the elements that one call writes into the batch, or keeps in memory, though its arguments do not
// name them: elements that it moves, or removes by range or by number. A call that must touch more makes a new version
// of the collection and writes its elements ahead of the batch (engine.Batch.SetAhead). The bound counts stored bytes,
// never what a replica happens to have buffered, since all replicas must do the same. It is a variable for tests alone.
var touchedBytes = 8 << 20

// touch returns how much of that bound an element takes.
func (c *collection) touch(name, value []byte) int { return c.front + c.hash + len(name) + len(value) }

// open opens a key's collection of type t to read it. If the key holds another type, open returns false and appends
// Redis's error to out.
func (r *Reader) open(c *collection, key []byte, t keys.Type, out *Reply) (ok bool, err error) {
	slot := topology.SlotOf(key)
	rec, err := r.loadIn(slot, key)
	if err != nil || rec.isNot(t, out) {
		return false, err
	}
	c.start(slot, key, t, &rec, &r.opened)
	c.from = r.source()
	return true, nil
}

// begin opens the collection of a record that has been loaded and is live. The memory comes from s.
func (r *Reader) begin(c *collection, slot topology.Slot, key []byte, rec *record, s *scratch) {
	c.start(slot, key, rec.Type, rec, s)
	c.from = r.source()
}

// begin opens the collection of a loaded record, with the writes so far, only to read it.
func (w *Writer) begin(c *collection, slot topology.Slot, key []byte, rec *record, s *scratch) {
	c.start(slot, key, rec.Type, rec, s)
	c.from = (*writtenSource)(w)
}

// open opens a key's collection of type t to change it. If the key holds another type, open returns false and appends
// Redis's error to out.
func (w *Writer) open(c *collection, key []byte, t keys.Type, out *Reply) (ok bool, err error) {
	slot := topology.SlotOf(key)
	rec, err := w.loadIn(slot, key)
	if err != nil || rec.isNot(t, out) {
		return false, err
	}
	w.change(c, slot, key, t, &rec)
	return true, nil
}

// change is like open, for a record that has been loaded and is of no other type.
func (w *Writer) change(c *collection, slot topology.Slot, key []byte, t keys.Type, rec *record) {
	c.start(slot, key, t, rec, &w.opened)
	c.from, c.old = (*writtenSource)(w), *rec
}

// renew begins an empty collection. When it is closed, it takes the place of whatever the key holds; if it has no
// elements, the key is absent then. Until it is closed, the command may read what the key holds.
func (w *Writer) renew(c *collection, key []byte, t keys.Type) error {
	old, err := w.load(key)
	if err != nil {
		return err
	}
	w.renewOver(c, key, t, &old)
	return nil
}

// renewOver is like renew, for a record that has been loaded.
func (w *Writer) renewOver(c *collection, key []byte, t keys.Type, old *record) {
	c.start(topology.SlotOf(key), key, t, &record{}, &w.opened)
	c.from, c.old, c.renewed = (*writtenSource)(w), *old, true
	c.old.Value = nil // not valid for long
}

// start makes c the collection of a record, or an empty one if the record is not live.
func (c *collection) start(slot topology.Slot, user []byte, t keys.Type, rec *record, s *scratch) {
	*c = collection{user: user, slot: slot}
	c.Type = t
	if t == keys.List {
		c.Head, c.Tail = keys.ListStart, keys.ListStart
	}
	if rec.live {
		c.Metadata = rec.Metadata
	}
	if t != keys.List && t != keys.String {
		c.hash = keys.HashLen
	}
	c.front = keys.UserKeyOffset + len(user) + keys.VersionLen
	c.key = keys.AppendCollection(s.take(c.front), keys.Data, slot, user, c.Version)
	c.bound = s.take(c.front)
}

// at returns the storage key of an element in the data keyspace, by its name, or by its index in a list or a long
// string. It is valid until the next call on c.
func (c *collection) at(name []byte) []byte {
	if c.hash == 0 {
		return c.in(keys.Data, name)
	}
	c.key = keys.AppendElement(c.key[:c.front], name)
	c.key[0] = byte(keys.Data)
	return c.key
}

// in returns the storage key of a subkey in the data keyspace, or of a place in redis_zset_score. It is valid until the
// next call on c.
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

// elements is an iterator over elements in the order of their subkeys, or of their places. The caller must close it
// before the call ends.
type elements struct {
	*engine.Iter
	front, hash int
}

// sub is the subkey of the element that the iterator stands on, or its place. It is valid until the iterator moves.
func (e elements) sub() []byte { return e.Key()[e.front:] }

// name is the name of the element that the iterator stands on, or its index: the subkey without the hash. It is valid
// until the iterator moves.
func (e elements) name() []byte { return e.Key()[min(e.front+e.hash, len(e.Key())):] }

// elements returns an iterator over the elements with subkeys in [from, to), in the data keyspace or in
// redis_zset_score. A nil bound is none. The iterator shows the elements as they are now.
func (c *collection) elements(ks keys.Keyspace, from, to []byte) (_ elements, err error) {
	// The engine's tables still hold elements that were popped from the head. The iterator begins after them.
	if c.Type == keys.List && from == nil {
		head := subkey(c.Head)
		from = head[:]
	}
	c.bound = append(c.bound[:0], c.key[:c.front]...)
	if to == nil {
		c.bound = keys.Successor(c.bound)
	} else {
		c.bound = append(c.bound, to...)
	}
	c.bound[0] = byte(ks)
	e := elements{front: c.front}
	if ks == keys.Data {
		e.hash = c.hash
	}
	e.Iter, err = c.from.Iter(c.in(ks, from), c.bound)
	return e, err
}

// each calls f with the elements of the data keyspace whose subkeys are not below from, in order, until f returns
// false. The arguments of f are valid during the call.
func (c *collection) each(from []byte, f func(name, value []byte) bool) (err error) {
	e, err := c.elements(keys.Data, from, nil)
	if err != nil {
		return err
	}
	for ok := e.First(); ok; ok = e.Next() {
		value, err := e.ValueAndErr()
		if err != nil {
			return errors.Join(err, e.Close())
		}
		if !f(e.name(), value) {
			break
		}
	}
	return e.Close()
}

// has reports whether the collection has an element.
func (w *Writer) has(c *collection, sub []byte) (bool, error) {
	if c.Size == 0 {
		return false, nil
	}
	return w.Batch.Has(c.at(sub))
}

// put stores an element, which may exist, and reports whether it is new.
func (w *Writer) put(c *collection, sub, value []byte) (added bool, err error) {
	there, err := w.has(c, sub)
	switch {
	case err != nil:
		return false, err
	case there:
		return false, w.set(c, sub, value)
	}
	return true, w.insert(c, sub, value)
}

// insert stores an element that certainly does not exist.
func (w *Writer) insert(c *collection, sub, value []byte) error {
	w.grow(c, 1)
	key := c.at(sub)
	if c.Type == keys.Set {
		w.pops.inserted(c, key[c.front:], false)
	}
	return w.Batch.Set(key, value)
}

// grow counts n new elements. With the first element a collection gets its version.
func (w *Writer) grow(c *collection, n uint64) {
	if c.Version == 0 {
		c.Version = max(w.VersionBase, w.State.LastVersion) + 1
		w.State.LastVersion = c.Version
		binary.BigEndian.PutUint64(c.key[c.front-keys.VersionLen:c.front], c.Version)
	}
	c.Size += n
	if c.renewed {
		w.unborn = unborn{c.user, c.slot, c.Type, c.Version, c.Size}
		if w.saved {
			w.note(&w.unborn)
		}
	}
	c.changed = true
}

// set stores an element that certainly exists, or that grow has counted.
func (w *Writer) set(c *collection, sub, value []byte) error {
	c.changed = true
	return w.Batch.Set(c.at(sub), value)
}

// drop deletes an element if it exists, and reports whether it did.
func (w *Writer) drop(c *collection, sub []byte) (there bool, err error) {
	if there, err = w.has(c, sub); err != nil || !there {
		return false, err
	}
	return true, w.erase(c, sub)
}

// erase deletes an element that certainly exists.
func (w *Writer) erase(c *collection, sub []byte) error {
	c.Size--
	c.changed = true
	key := c.at(sub)
	if c.Type == keys.Set {
		w.pops.removed(c, key[c.front:])
	}
	return w.Batch.Delete(key)
}

// close keeps the collection's record as it is now; the batch gets it with Finish at the latest. A collection without
// elements becomes absent and leaves nothing behind, since its elements have been deleted one by one.
func (w *Writer) close(c *collection) error {
	if c.renewed {
		w.unborn = unborn{}
	}
	own := c.old.live && !c.renewed // the record names this version already
	switch {
	case !c.changed && !c.renewed:
		return nil
	case c.Size == 0 && c.renewed:
		return w.remove(c.user, &c.old)
	case c.Size == 0 && !own:
		return nil
	}
	w.collected(c.slot)
	if c.Type == keys.ZSet {
		if err := w.closeCounts(c); err != nil {
			return err
		}
	}
	if own {
		if c.Size == 0 {
			w.emptied(c.slot, c.user)
			w.forget(c.slot, c.user)
			w.pops.forget(c.Version, c.user)
			w.count(-1)
			w.key = keys.AppendMetadata(w.key[:0], c.slot, c.user)
			return w.Batch.Delete(w.key)
		}
		w.changed(c.slot, c.user)
		// The same size and head, and so the same tail: elements were only replaced.
		if c.Size == c.old.Size && c.Head == c.old.Head && c.Skiplist == c.old.Skiplist {
			return nil
		}
		return w.keep(c.slot, c.user, &c.Metadata, true)
	}
	w.notice(c.ExpireMS)
	w.value = c.Metadata.Append(w.value[:0])
	if err := w.replace(c.user, &c.old, w.value); err != nil {
		return err
	}
	return w.keep(c.slot, c.user, &c.Metadata, false)
}

// duplicate makes a key hold a copy of what another key holds, in place of old. It copies the elements under a version
// of its own.
func (w *Writer) duplicate(user []byte, source *record, key []byte, old *record) error {
	var from, to collection
	from.start(topology.SlotOf(user), user, source.Type, source, &w.opened)
	from.from = (*writtenSource)(w)
	w.renewOver(&to, key, source.Type, old)
	w.grow(&to, source.Size)
	to.ExpireMS, to.Head, to.Tail, to.Skiplist = source.ExpireMS, source.Head, source.Tail, source.Skiplist
	for _, ks := range ElementSpaces(source.Type) {
		e, err := from.elements(ks, nil, nil)
		if err != nil {
			return err
		}
		for ok := e.First(); ok; ok = e.Next() {
			value, err := e.ValueAndErr()
			if err == nil {
				err = w.spend(cost(len(value)))
			}
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

// Spaces returns the keyspaces that may hold something of a collection with this many elements: the elements, and the
// counts of large sorted sets.
func Spaces(t keys.Type, size uint64) []keys.Keyspace {
	if t == keys.ZSet && size >= countUntil {
		return zsetSpaces
	}
	return ElementSpaces(t)
}

// ElementSpaces returns the keyspaces that hold the elements of a collection.
func ElementSpaces(t keys.Type) []keys.Keyspace {
	if t == keys.ZSet {
		return zsetSpaces[:2]
	}
	return zsetSpaces[:1]
}

var zsetSpaces = []keys.Keyspace{keys.Data, keys.ZSetScore, keys.ZSetRank}

// Functions that commands of several types share.

// size replies how many elements the key has.
func (r *Reader) size(args [][]byte, t keys.Type, out *Reply) error {
	var c collection
	if ok, err := r.open(&c, args[1], t, out); !ok {
		return err
	}
	out.Int(int64(c.Size))
	return nil
}

// look says what a command replies of an element, in a collection of which type.
type look struct {
	in   keys.Type
	what aspect
}

// aspect is a part of what there is to tell of an element.
type aspect byte

const (
	contents aspect = iota // its value, or its score; null if there is none
	presence               // 1 if there is one, else 0
	extent                 // the length of its value, 0 if there is none
)

// element replies of the element args[2].
func (r *Reader) element(args [][]byte, l look, out *Reply) error {
	var c collection
	if ok, err := r.open(&c, args[1], l.in, out); !ok {
		return err
	}
	return c.reply(args[2], l.what, out)
}

// eachElement replies of each of the elements args[2:].
func (r *Reader) eachElement(args [][]byte, l look, out *Reply) error {
	var c collection
	if ok, err := r.open(&c, args[1], l.in, out); !ok {
		return err
	}
	out.Array(len(args) - 2)
	for _, sub := range args[2:] {
		if err := c.reply(sub, l.what, out); err != nil {
			return err
		}
	}
	return nil
}

// reply appends what there is to tell of an element.
func (c *collection) reply(sub []byte, what aspect, out *Reply) error {
	value, there, err := c.get(sub)
	switch {
	case err != nil:
		return err
	case what == extent:
		out.Int(int64(len(value)))
	case what == presence && there:
		out.Int(1)
	case what == presence:
		out.Int(0)
	case !there:
		out.Null()
	case c.Type == keys.ZSet:
		score, err := c.scoreOf(value)
		if err != nil {
			return err
		}
		out.Double(score)
	default:
		out.Bulk(value)
	}
	return nil
}

// dropElements deletes elements, and replies how many of them there were.
func (w *Writer) dropElements(args [][]byte, t keys.Type, out *Reply) error {
	var c collection
	if ok, err := w.open(&c, args[1], t, out); !ok {
		return err
	}
	n := int64(0)
	for _, sub := range args[2:] {
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

// parseNames splits arguments that begin with a number of keys into those keys and the others, of which there must be
// at least rest. If it cannot, it appends Redis's error, which is tooMany for a number that is too large.
func parseNames(args [][]byte, rest int, tooMany string, out *Reply) (names, others [][]byte, ok bool) {
	n, ok := ParseInt(args[0])
	switch {
	case !ok || n < 1:
		out.Error(errNumKeys)
		return nil, nil, false
	case n > int64(len(args)-1-rest):
		out.Error(tooMany)
		return nil, nil, false
	}
	return args[1 : 1+n], args[1+n:], true
}

// parsePopCount reads the count that may follow the key of a command that pops. Without one the count is 1. It appends
// Redis's error where it cannot.
func parsePopCount(args [][]byte, out *Reply) (n int64, ok bool) {
	if len(args) == 2 {
		return 1, true
	}
	if n, ok = ParseInt(args[2]); !ok || n < 0 {
		out.Error(ErrOutOfRangePos)
		return 0, false
	}
	return n, true
}

// popFirst runs LMPOP and ZMPOP, BLMPOP and BZMPOP: of several keys it takes the first that has elements, and pops from
// it. first and last are the words for the two ends. pop replies n elements from an end, removes them and closes the
// collection.
func (w *Writer) popFirst(args [][]byte, t keys.Type, first, last string, out *Reply,
	pop func(c *collection, atFirst bool, n uint64) error) error {
	names, atFirst, count, ok := parsePops(args, first, last, out)
	if !ok {
		return nil
	}
	var c collection
	used := w.opened.used
	for _, name := range names {
		w.opened.used = used
		if ok, err := w.open(&c, name, t, out); !ok {
			return err
		}
		if c.Size == 0 {
			continue
		}
		n := min(uint64(count), c.Size)
		out.Array(2)
		out.Bulk(name)
		out.Array(int(n))
		return pop(&c, atFirst, n)
	}
	w.Nothing = true
	out.NullArray()
	return nil
}

// parsePops reads the arguments of a command that popFirst runs. It replies an error where they are wrong.
func parsePops(args [][]byte, first, last string, out *Reply) (names [][]byte, atFirst bool, count int64, ok bool) {
	timeout := []byte(nil)
	if IsOption(args[0][:1], "b") {
		timeout, args = args[1], args[1:]
	}
	names, options, ok := parseNames(args[1:], 1, ErrSyntax, out)
	if !ok {
		return nil, false, 0, false
	}
	atFirst = IsOption(options[0], first)
	if !atFirst && !IsOption(options[0], last) {
		out.Error(ErrSyntax)
		return nil, false, 0, false
	}
	count = 1
	if options = options[1:]; len(options) > 0 {
		if len(options) < 2 || !IsOption(options[0], "count") {
			out.Error(ErrSyntax)
			return nil, false, 0, false
		}
		if count, ok = ParseInt(options[1]); !ok || count < 1 {
			out.Error(errCountPositive)
			return nil, false, 0, false
		}
		if len(options) > 2 {
			out.Error(ErrSyntax)
			return nil, false, 0, false
		}
	}
	if timeout != nil {
		if _, ok := parseTimeout(timeout, out); !ok {
			return nil, false, 0, false
		}
	}
	return names, atFirst, count, true
}

// all calls f with all elements in order, for a reply that has announced c.Size elements. It ends early if the reply is
// full.
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

// miscounted returns the error of a collection that does not have as many elements as its record says.
func (c *collection) miscounted(n uint64) error {
	return fmt.Errorf("%v %q: %d elements, its record counts %d", c.Type, c.user, n, c.Size)
}
