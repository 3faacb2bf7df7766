package redis

import (
	"bytes"
	"cmp"
	"errors"
	"math"
	"slices"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file is sets. A member is an element of the collection: the subkey, with an empty value. Members are stored in order, so unions,
// intersections and differences are made by going through the sets side by side, and nothing has to be remembered.

var setCommands = []*Command{
	{
		Name: "sadd", Arity: -3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "insert"), Write: sadd, Reads: Reads{Records: true, Elements: named(1)},
		Doc: Doc{"Adds members to a set, and returns how many of them are new.", "1.0.0", "set", "O(N) where N is the number of members that are added."},
	},
	{
		Name: "srem", Arity: -3, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "delete"), Write: srem, Reads: Reads{Records: true, Elements: named(1)},
		Doc: Doc{"Removes members of a set, and returns how many there were.", "1.0.0", "set", "O(N) where N is the number of members to be removed."},
	},
	{
		Name: "smembers", Arity: 2, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: smembers, Tips: unordered,
		Doc: Doc{"Returns all members of a set.", "1.0.0", "set", "O(N) where N is the size of the set."},
	},
	{
		Name: "sismember", Arity: 3, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO"), Read: sismember,
		Doc: Doc{"Says whether a set has a member.", "1.0.0", "set", "O(1)"},
	},
	{
		Name: "smismember", Arity: -3, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"), Read: smismember,
		Doc: Doc{"Says of each of several members whether a set has it.", "6.2.0", "set", "O(N) where N is the number of members that are asked for."},
	},
	{
		Name: "scard", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO"), Read: scard,
		Doc: Doc{"Counts the members of a set.", "1.0.0", "set", "O(1)"},
	},
	{
		Name: "srandmember", Arity: -2, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: srandmember, Tips: []string{"nondeterministic_output"},
		Doc: Doc{"Returns one or several random members of a set.", "1.0.0", "set", "O(N) where N is the number of members returned; O(M) where that is more than a third of the size M."},
	},
	{
		Name: "spop", Arity: -2, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "access", "delete"), Write: spop, Reads: Reads{Records: true}, Tips: []string{"nondeterministic_output"},
		Doc: Doc{"Removes one or several random members of a set, and returns them.", "1.0.0", "set", "O(N) where N is the number of members removed; O(M) where that is more than a third of the size M."},
	},
	{
		Name: "smove", Arity: 4, Flags: FlagWrite | FlagFast, Keys: fromTo([]string{"RW", "access", "delete"}, []string{"RW", "insert"}), Write: smove,
		Doc: Doc{"Moves a member from one set to another.", "1.0.0", "set", "O(1)"},
	},
	{
		Name: "sscan", Arity: -3, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: sscan, Tips: []string{"nondeterministic_output"},
		Doc: Doc{"Lists the members of a set part by part, from a cursor.", "2.8.0", "set", "O(1) for every call, O(N) for all calls of one listing, N being the size of the set; up to 1024 members are one part."},
	},
	{
		Name: "sinter", Arity: -2, Flags: FlagReadonly, Keys: allKeys(1, "RO", "access"), Read: sinter, Tips: unordered,
		Doc: Doc{"Returns the members that all of several sets have.", "1.0.0", "set", "O(N*M) where N is the size of the smallest of M sets."},
	},
	{
		Name: "sintercard", Arity: -3, Flags: FlagReadonly | FlagMovableKeys, Keys: []KeySpec{{First: 1, Step: 1, Counted: true, Flags: []string{"RO", "access"}}}, Read: sintercard,
		Doc: Doc{"Counts the members that all of several sets have, up to a limit.", "7.0.0", "set", "O(N*M) where N is the size of the smallest of M sets."},
	},
	{
		Name: "sinterstore", Arity: -3, Flags: FlagWrite | FlagDenyOOM, Keys: toFrom("RW"), Write: sinterstore,
		Doc: Doc{"Makes a key hold the members that all of several sets have, whatever it held, and returns how many they are.", "1.0.0", "set", "O(N*M) where N is the size of the smallest of M sets."},
	},
	{
		Name: "sunion", Arity: -2, Flags: FlagReadonly, Keys: allKeys(1, "RO", "access"), Read: sunion, Tips: unordered,
		Doc: Doc{"Returns the members that any of several sets has.", "1.0.0", "set", "O(N*log(M)) where N is the size of all M sets together."},
	},
	{
		Name: "sunionstore", Arity: -3, Flags: FlagWrite | FlagDenyOOM, Keys: toFrom("OW"), Write: sunionstore,
		Doc: Doc{"Makes a key hold the members that any of several sets has, whatever it held, and returns how many they are.", "1.0.0", "set", "O(N*log(M)) where N is the size of all M sets together."},
	},
	{
		Name: "sdiff", Arity: -2, Flags: FlagReadonly, Keys: allKeys(1, "RO", "access"), Read: sdiff, Tips: unordered,
		Doc: Doc{"Returns the members of the first of several sets that no other has.", "1.0.0", "set", "O(N*M) where N is the size of the first of M sets, but of a smaller one no more than its size is looked at."},
	},
	{
		Name: "sdiffstore", Arity: -3, Flags: FlagWrite | FlagDenyOOM, Keys: toFrom("OW"), Write: sdiffstore,
		Doc: Doc{"Makes a key hold the members of the first of several sets that no other has, whatever it held, and returns how many they are.", "1.0.0", "set", "O(N*M) where N is the size of the first of M sets, but of a smaller one no more than its size is looked at."},
	},
}

// toFrom is the key specification of a command that makes its first key of what all others hold; access is that to the first.
func toFrom(access string) []KeySpec {
	return []KeySpec{{First: 1, Last: 0, Step: 1, Flags: []string{access, "update"}}, {First: 2, Last: -1, Step: 1, Flags: []string{"RO", "access"}}}
}

func sadd(w *Writer, args [][]byte, out *Reply) error {
	var c collection
	if ok, err := w.open(&c, args[1], keys.Set, out); !ok {
		return err
	}
	before := c.Size
	for _, member := range args[2:] {
		if err := w.include(&c, member); err != nil {
			return err
		}
	}
	out.Int(int64(c.Size - before))
	return w.close(&c)
}

// include gives a set a member, unless it has it.
func (w *Writer) include(c *collection, member []byte) error {
	there, err := w.has(c, member)
	if err != nil || there {
		return err
	}
	return w.insert(c, member, nil)
}

func srem(w *Writer, args [][]byte, out *Reply) error {
	return w.dropElements(args[1], keys.Set, args[2:], out)
}

func smembers(r *Reader, args [][]byte, out *Reply) error {
	var c collection
	if ok, err := r.open(&c, args[1], keys.Set, out); !ok {
		return err
	}
	out.Set(int(c.Size))
	return c.all(out, func(sub, _ []byte) { out.Bulk(sub) })
}

func sismember(r *Reader, args [][]byte, out *Reply) error {
	return r.hasElement(args[1], keys.Set, args[2], out)
}

func smismember(r *Reader, args [][]byte, out *Reply) error {
	var c collection
	if ok, err := r.open(&c, args[1], keys.Set, out); !ok {
		return err
	}
	out.Array(len(args) - 2)
	for _, member := range args[2:] {
		_, there, err := c.get(member)
		if err != nil {
			return err
		}
		n := int64(0)
		if there {
			n = 1
		}
		out.Int(n)
	}
	return nil
}

func scard(r *Reader, args [][]byte, out *Reply) error { return r.size(args[1], keys.Set, out) }

func srandmember(r *Reader, args [][]byte, out *Reply) error {
	if len(args) > 3 {
		out.Error(ErrSyntax)
		return nil
	}
	n, _, ok := parseSample(args, "", out)
	if !ok {
		return nil
	}
	var c collection
	if ok, err := r.open(&c, args[1], keys.Set, out); !ok {
		return err
	}
	switch {
	case len(args) == 3:
		c.openSample(n, false, out)
	case c.Size == 0:
		out.Null()
	}
	return c.sample(n, false, r.random(), out, func(sub, _ []byte) { out.Bulk(sub) })
}

func spop(w *Writer, args [][]byte, out *Reply) error {
	if len(args) > 3 {
		out.Error(ErrSyntax)
		return nil
	}
	n := int64(1)
	if len(args) == 3 {
		var ok bool
		if n, ok = parseInt(args[2]); !ok || n < 0 {
			out.Error(ErrOutOfRangePos)
			return nil
		}
	}
	var c collection
	if ok, err := w.open(&c, args[1], keys.Set, out); !ok {
		return err
	}
	switch {
	case len(args) == 3:
		out.Set(int(min(uint64(n), c.Size)))
	case c.Size == 0:
		out.Null()
	}
	if n == 0 || c.Size == 0 {
		return nil
	}
	if len(args) == 3 && uint64(n) >= c.Size { // all of them go like those of a key that is deleted
		if err := c.all(out, func(sub, _ []byte) { out.Bulk(sub) }); err != nil {
			return err
		}
		return w.remove(args[1], &c.old)
	}
	// The choice is made among all members, so none goes before it is made; and what goes does not depend on the room for replies.
	var err error
	if c.kept, err = w.popped.whole(&c, uint64(n)); err != nil {
		return err
	}
	var room [4][]byte
	popped, touched := room[:0], 0
	var enough Reply
	w.value = w.value[:0]
	err = c.sample(n, false, w.random(), &enough, func(sub, _ []byte) {
		touched += c.touch(sub, nil)
		if enough.Full = touched > touchedBytes && len(popped) > 0; enough.Full {
			return
		}
		start := len(w.value)
		w.value = append(w.value, sub...)
		popped = append(popped, w.value[start:])
	})
	switch {
	case err != nil:
		return err
	case enough.Full:
		return w.popMany(&c, uint64(n), out)
	}
	for _, member := range popped {
		out.Bulk(member)
		if err := w.erase(&c, member); err != nil {
			return err
		}
	}
	return w.close(&c)
}

// popMany is SPOP of so many members, fewer than there are, that the others are written anew.
func (w *Writer) popMany(c *collection, n uint64, out *Reply) error {
	var to collection
	w.renewOver(&to, c.user, keys.Set, &c.old)
	to.ExpireMS = c.ExpireMS
	by, left := w.random(), c.Size
	var failed error
	err := c.each(nil, func(sub, _ []byte) bool {
		if by.Uint64N(left) < n {
			out.Bulk(sub)
			n--
		} else {
			w.grow(&to, 1)
			failed = w.Batch.SetAhead(to.at(sub), nil)
		}
		left--
		return left > 0 && failed == nil
	})
	if err = errors.Join(err, failed); err == nil && left > 0 {
		err = c.miscounted(c.Size - left)
	}
	if err != nil {
		return err
	}
	return w.close(&to)
}

func smove(w *Writer, args [][]byte, out *Reply) error {
	var from, to collection
	if ok, err := w.open(&from, args[1], keys.Set, out); !ok {
		return err
	}
	if from.Size == 0 { // whatever the other key holds
		out.Int(0)
		return nil
	}
	_, there, err := from.get(args[3])
	if err != nil {
		return err
	}
	same := bytes.Equal(args[1], args[2])
	if !same {
		if ok, err := w.open(&to, args[2], keys.Set, out); !ok {
			return err
		}
	}
	switch {
	case !there:
		out.Int(0)
		return nil
	case same:
		out.Int(1)
		return nil
	}
	out.Int(1)
	if err := w.erase(&from, args[3]); err != nil {
		return err
	}
	if err := w.close(&from); err != nil {
		return err
	}
	if err := w.include(&to, args[3]); err != nil {
		return err
	}
	return w.close(&to)
}

func sscan(r *Reader, args [][]byte, out *Reply) error {
	return r.scan(args, keys.Set, 1, out, func(out *Reply, sub, _ []byte) { out.Bulk(sub) })
}

func sinter(r *Reader, args [][]byte, out *Reply) error { return r.combine(intersect, args[1:], out) }
func sunion(r *Reader, args [][]byte, out *Reply) error { return r.combine(unite, args[1:], out) }
func sdiff(r *Reader, args [][]byte, out *Reply) error  { return r.combine(subtract, args[1:], out) }

func sinterstore(w *Writer, args [][]byte, out *Reply) error {
	return w.combine(intersect, args[1], args[2:], out)
}

func sunionstore(w *Writer, args [][]byte, out *Reply) error {
	return w.combine(unite, args[1], args[2:], out)
}

func sdiffstore(w *Writer, args [][]byte, out *Reply) error {
	return w.combine(subtract, args[1], args[2:], out)
}

func sintercard(r *Reader, args [][]byte, out *Reply) error {
	n, ok := parseInt(args[1])
	if !ok || n < 1 {
		out.Error(errNumKeys)
		return nil
	}
	if n > int64(len(args)-2) {
		out.Error(errNumKeysArgs)
		return nil
	}
	names, options := args[2:2+n], args[2+n:]
	limit := int64(0)
	for ; len(options) > 0; options = options[2:] {
		if len(options) == 1 || !IsOption(options[0], "limit") {
			out.Error(ErrSyntax)
			return nil
		}
		if limit, ok = parseInt(options[1]); !ok || limit < 0 {
			out.Error(errNegativeLimit)
			return nil
		}
	}
	if limit == 0 {
		limit = math.MaxInt64
	}
	sets, ok, err := openSets(r, names, out)
	if !ok {
		return err
	}
	met := int64(0)
	err = intersect(sets, func([]byte) bool {
		met++
		return met < limit
	})
	out.Int(met)
	return err
}

// combination calls f with the members of what is made of some sets, in order, until f reports false. What it is called with is
// valid during the call. (A union of more than maxSideBySide sets is in no order.)
type combination func(sets []collection, f func(member []byte) bool) error

// opener is what opens collections: a Reader or a Writer.
type opener interface {
	open(c *collection, key []byte, t keys.Type, out *Reply) (ok bool, err error)
	openMembers(c *collection, key []byte, out *Reply) (ok bool, err error)
	loadIn(slot topology.Slot, key []byte) (record, error)
	begin(c *collection, slot topology.Slot, key []byte, rec *record, s *scratch)
}

// openSets opens several sets. It is not ok where one of the keys holds something else, and the reply says so.
func openSets(o opener, names [][]byte, out *Reply) (sets []collection, ok bool, err error) {
	sets = make([]collection, len(names))
	for i, name := range names {
		if ok, err := o.open(&sets[i], name, keys.Set, out); !ok {
			return nil, false, err
		}
	}
	return sets, true, nil
}

// combine replies what is made of sets.
func (r *Reader) combine(how combination, names [][]byte, out *Reply) error {
	sets, ok, err := openSets(r, names, out)
	if !ok {
		return err
	}
	start, n := len(out.Buf), 0
	err = how(sets, func(member []byte) bool {
		out.Bulk(member)
		n++
		return !out.Full
	})
	out.setFrom(start, n)
	return err
}

// combine makes a key hold what is made of sets, and replies how many members that are. It may be larger than a batch should be.
func (w *Writer) combine(how combination, name []byte, names [][]byte, out *Reply) error {
	sets, ok, err := openSets(w, names, out)
	if !ok {
		return err
	}
	var to collection
	if err := w.renew(&to, name, keys.Set); err != nil {
		return err
	}
	store := w.Batch.SetAhead
	if len(sets) > maxSideBySide { // some are looked into one member at a time, and each time would commit what is ahead
		store = w.Batch.Set
	}
	var failed error
	err = how(sets, func(member []byte) bool {
		w.grow(&to, 1)
		failed = store(to.at(member), nil)
		return failed == nil
	})
	if err := errors.Join(err, failed); err != nil {
		return err
	}
	out.Int(int64(to.Size))
	return w.close(&to)
}

// setFrom opens a set of n elements in front of those that have been appended since the reply was start bytes long.
func (r *Reply) setFrom(start, n int) {
	end := len(r.Buf)
	r.Set(n)
	r.toFront(start, end)
}

// maxSideBySide is how many sets are gone through at once: each of them takes an iterator.
const maxSideBySide = 64

// intersect is the combination of members that all sets have. It changes the order of the sets.
func intersect(sets []collection, f func(member []byte) bool) error {
	slices.SortFunc(sets, func(a, b collection) int { return cmp.Compare(a.Size, b.Size) })
	if sets[0].Size == 0 {
		return nil
	}
	return filter(&sets[0], sets[1:], true, f)
}

// subtract is the combination of the members of the first set that no other set has.
func subtract(sets []collection, f func(member []byte) bool) error {
	if sets[0].Size == 0 {
		return nil
	}
	return filter(&sets[0], slices.DeleteFunc(sets[1:], func(c collection) bool { return c.Size == 0 }), false, f)
}

// filter calls f with the members of a set that all others have, or that none of them has.
func filter(set *collection, others []collection, have bool, f func(member []byte) bool) (err error) {
	probes := make([]probe, len(others))
	for i := range others {
		probes[i].set = &others[i]
		if i >= maxSideBySide {
			continue
		}
		if probes[i].elements, err = others[i].elements(keys.Data, nil, nil); err != nil {
			break
		}
	}
	if err == nil {
		var failed error
		err = set.each(nil, func(sub, _ []byte) bool {
			for i := range probes {
				var there bool
				if there, failed = probes[i].has(sub); failed != nil || have && probes[i].ended {
					return false
				}
				if there != have {
					return true
				}
			}
			return f(sub)
		})
		err = errors.Join(err, failed)
	}
	for i := range probes {
		if probes[i].Iter != nil {
			err = errors.Join(err, probes[i].Close())
		}
	}
	return err
}

// probe tells which members a set has, in ascending order of those that are asked for. So it goes through the set at most once, and seeks
// at most as often as it is asked.
type probe struct {
	set      *collection
	elements      // on the first member that is not below the last one asked for; without Iter the set is asked for each
	begun    bool // elements stands somewhere
	ended    bool // there is nothing from the last one asked for on
}

func (p *probe) has(member []byte) (there bool, err error) {
	if p.Iter == nil {
		_, there, err = p.set.get(member)
		return there, err
	}
	switch {
	case p.ended:
		return false, nil
	case !p.begun:
		p.begun, p.ended = true, !p.SeekGE(p.set.at(member))
	case bytes.Compare(p.sub(), member) < 0: // often the next one is it
		p.ended = !p.Next() || bytes.Compare(p.sub(), member) < 0 && !p.SeekGE(p.set.at(member))
	}
	if p.ended {
		return false, p.Error()
	}
	return bytes.Equal(p.sub(), member), nil
}

// unite is the combination of the members that any set has.
func unite(sets []collection, f func(member []byte) bool) error {
	sets = slices.DeleteFunc(sets, func(c collection) bool { return c.Size == 0 })
	if len(sets) <= maxSideBySide {
		_, err := merge(sets, f)
		return err
	}
	seen := make(map[string]bool)
	for some := range slices.Chunk(sets, maxSideBySide) {
		whole, err := merge(some, func(member []byte) bool {
			if seen[string(member)] {
				return true
			}
			seen[string(member)] = true
			return f(member)
		})
		if err != nil || !whole {
			return err
		}
	}
	return nil
}

// merge calls f with the members that any set has, in order, until f reports false; it is whole if f never does.
func merge(sets []collection, f func(member []byte) bool) (whole bool, err error) {
	var opened []elements
	var h heads
	for i := range sets {
		e, openErr := sets[i].elements(keys.Data, nil, nil)
		if err = openErr; err != nil {
			break
		}
		opened = append(opened, e)
		if e.First() {
			h = append(h, e)
		}
	}
	if err == nil {
		whole = h.merge(f)
	}
	for _, e := range opened {
		err = errors.Join(err, e.Close())
	}
	return whole, err
}

// heads are iterators as a heap: each stands on a member, and none on a smaller one than the one at half its place, rounded down.
type heads []elements

func (h heads) merge(f func(member []byte) bool) (whole bool) {
	for i := len(h) - 1; i >= 0; i-- {
		h.sink(i)
	}
	var last []byte
	for begun := false; len(h) > 0; begun = true {
		if sub := h[0].sub(); !begun || !bytes.Equal(sub, last) {
			last = append(last[:0], sub...)
			if !f(sub) {
				return false
			}
		}
		if !h[0].Next() {
			h[0] = h[len(h)-1]
			h = h[:len(h)-1]
		}
		h.sink(0)
	}
	return true
}

// sink moves iterator i to where it belongs among those behind it.
func (h heads) sink(i int) {
	for {
		least := i
		for j := 2*i + 1; j <= 2*i+2 && j < len(h); j++ {
			if bytes.Compare(h[j].sub(), h[least].sub()) < 0 {
				least = j
			}
		}
		if least == i {
			return
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
}
