package redis

import (
	"bytes"
	"errors"
	"math"

	"neokv.dev/neokv/internal/keys"
)

// This file has sets. A member is an element of the collection: the subkey, with an empty value. Unions, intersections
// and differences are in combine.go.

var setCommands = []*Command{
	{
		Name: "sadd", Arity: -3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "insert"),
		Write: sadd, Reads: Reads{Elements: named(2, 1)},
		Doc: Doc{"Adds members to a set, and returns how many of them are new.", "1.0.0", "set",
			"O(N) where N is the number of members that are added."},
	},
	{
		Name: "srem", Arity: -3, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "delete"),
		Write: with((*Writer).dropElements, keys.Set),
		Reads: Reads{Elements: named(2, 1)},
		Doc: Doc{"Removes members of a set, and returns how many there were.", "1.0.0", "set",
			"O(N) where N is the number of members to be removed."},
	},
	{
		Name: "smembers", Arity: 2, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: smembers,
		Tips: unordered,
		Doc:  Doc{"Returns all members of a set.", "1.0.0", "set", "O(N) where N is the size of the set."},
	},
	{
		Name: "sismember", Arity: 3, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO"),
		Read: with((*Reader).element, look{keys.Set, presence}),
		Doc:  Doc{"Says whether a set has a member.", "1.0.0", "set", "O(1)"},
	},
	{
		Name: "smismember", Arity: -3, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).eachElement, look{keys.Set, presence}),
		Doc: Doc{"Says of each of several members whether a set has it.", "6.2.0", "set",
			"O(N) where N is the number of members that are asked for."},
	},
	{
		Name: "scard", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO"),
		Read: with((*Reader).size, keys.Set),
		Doc:  Doc{"Counts the members of a set.", "1.0.0", "set", "O(1)"},
	},
	{
		Name: "srandmember", Arity: -2, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: srandmember,
		Tips: []string{"nondeterministic_output"},
		Doc: Doc{"Returns one or several random members of a set.", "1.0.0", "set",
			"O(N) where N is the number of members returned; O(M) where that is more than a third of the size M."},
	},
	{
		Name: "spop", Arity: -2, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "access", "delete"), Write: spop,
		Tips: []string{"nondeterministic_output"},
		Doc: Doc{"Removes one or several random members of a set, and returns them.", "1.0.0", "set",
			"O(N) where N is the number of members removed; O(M) where that is more than a third of the size M."},
	},
	{
		Name: "smove", Arity: 4, Flags: FlagWrite | FlagFast,
		Keys: fromTo([]string{"RW", "access", "delete"}, []string{"RW", "insert"}), Write: smove,
		Reads: Reads{Elements: named(3, 1)},
		Doc:   Doc{"Moves a member from one set to another.", "1.0.0", "set", "O(1)"},
	},
	{
		Name: "sscan", Arity: -3, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: sscan,
		Tips: []string{"nondeterministic_output"},
		Doc: Doc{"Lists the members of a set part by part, from a cursor.", "2.8.0", "set",
			"O(1) for every call, O(N) for all calls of one listing, N being the size of the set; up to 128 " +
				"members are one part."},
	},
	{
		Name: "sinter", Arity: -2, Flags: FlagReadonly, Keys: allKeys(1, "RO", "access"),
		Read: with((*Reader).combine, (*inputs).inter), Tips: unordered,
		Doc: Doc{"Returns the members that all of several sets have.", "1.0.0", "set",
			"O(N*M) where N is the size of the smallest of M sets."},
	},
	{
		Name: "sintercard", Arity: -3, Flags: FlagReadonly | FlagMovableKeys, Keys: countedKeys(1, "RO", "access"),
		Read: sintercard,
		Doc: Doc{"Counts the members that all of several sets have, up to a limit.", "7.0.0", "set",
			"O(N*M) where N is the size of the smallest of M sets."},
	},
	{
		Name: "sinterstore", Arity: -3, Flags: FlagWrite | FlagDenyOOM, Keys: toFrom("RW"),
		Write: with((*Writer).combine, (*inputs).inter),
		Doc: Doc{"Makes a key hold the members that all of several sets have, whatever it held, and returns how " +
			"many they are.", "1.0.0", "set", "O(N*M) where N is the size of the smallest of M sets."},
	},
	{
		Name: "sunion", Arity: -2, Flags: FlagReadonly, Keys: allKeys(1, "RO", "access"),
		Read: with((*Reader).combine, (*inputs).union), Tips: unordered,
		Doc: Doc{"Returns the members that any of several sets has.", "1.0.0", "set",
			"O(N*log(M)) where N is the size of all M sets together."},
	},
	{
		Name: "sunionstore", Arity: -3, Flags: FlagWrite | FlagDenyOOM, Keys: toFrom("OW"),
		Write: with((*Writer).combine, (*inputs).union),
		Doc: Doc{"Makes a key hold the members that any of several sets has, whatever it held, and returns how " +
			"many they are.", "1.0.0", "set", "O(N*log(M)) where N is the size of all M sets together."},
	},
	{
		Name: "sdiff", Arity: -2, Flags: FlagReadonly, Keys: allKeys(1, "RO", "access"),
		Read: with((*Reader).combine, (*inputs).diff), Tips: unordered,
		Doc: Doc{"Returns the members of the first of several sets that no other has.", "1.0.0", "set",
			"O(N*M) where N is the size of the first of M sets, but of a smaller one no more than its size is " +
				"looked at."},
	},
	{
		Name: "sdiffstore", Arity: -3, Flags: FlagWrite | FlagDenyOOM, Keys: toFrom("OW"),
		Write: with((*Writer).combine, (*inputs).diff),
		Doc: Doc{"Makes a key hold the members of the first of several sets that no other has, whatever it held, " +
			"and returns how many they are.", "1.0.0", "set",
			"O(N*M) where N is the size of the first of M sets, but of a smaller one no more than its size is " +
				"looked at."},
	},
}

// toFrom returns the key specification of a command that computes its first key from all others. access says how it
// accesses the first key.
func toFrom(access string) []KeySpec {
	return []KeySpec{
		{First: 1, Last: 0, Step: 1, Flags: []string{access, "update"}},
		{First: 2, Last: -1, Step: 1, Flags: []string{"RO", "access"}},
	}
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

// include adds a member to a set, unless the set has it.
func (w *Writer) include(c *collection, member []byte) error {
	there, err := w.has(c, member)
	if err != nil || there {
		return err
	}
	return w.insert(c, member, nil)
}

func smembers(r *Reader, args [][]byte, out *Reply) error {
	var c collection
	if ok, err := r.open(&c, args[1], keys.Set, out); !ok {
		return err
	}
	out.Set(int(c.Size))
	return c.all(out, func(sub, _ []byte) { out.Bulk(sub) })
}

func srandmember(r *Reader, args [][]byte, out *Reply) error {
	if len(args) > 3 {
		out.Error(ErrSyntax)
		return nil
	}
	return r.randomElements(args, keys.Set, "", nil, out)
}

func spop(w *Writer, args [][]byte, out *Reply) error {
	if len(args) > 3 {
		out.Error(ErrSyntax)
		return nil
	}
	n, ok := parsePopCount(args, out)
	if !ok {
		return nil
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
	if err := w.spend(int(min(uint64(n), c.Size))); err != nil {
		return err
	}
	if len(args) == 3 && uint64(n) >= c.Size { // all members: this deletes the key
		w.looked(args[1], true) // Redis answers with the reply of SUNION
		if err := c.all(out, func(sub, _ []byte) { out.Bulk(sub) }); err != nil {
			return err
		}
		return w.remove(args[1], &c.old)
	}
	// The command chooses among all members, so it removes none before it has chosen all. The room for replies must not
	// change the choice, so the choice gets a reply of its own.
	var err error
	if c.kept, err = w.pops.whole(&c, uint64(n)); err != nil {
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

// popMany runs an SPOP of many members, but not of all: it writes the remaining members as a new version.
func (w *Writer) popMany(c *collection, n uint64, out *Reply) error {
	if err := w.spend(int(c.Size)); err != nil {
		return err
	}
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
	if from.Size == 0 { // even if the other key holds another type
		out.Int(0)
		return nil
	}
	there, err := w.has(&from, args[3])
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
	w.event = EventSAdd
	if err := w.include(&to, args[3]); err != nil {
		return err
	}
	return w.close(&to)
}

func sscan(r *Reader, args [][]byte, out *Reply) error {
	return r.scan(args, keys.Set, 1, out, func(_ *collection, out *Reply, sub, _ []byte) { out.Bulk(sub) })
}

func sintercard(r *Reader, args [][]byte, out *Reply) error {
	names, options, ok := parseNames(args[1:], 0, errNumKeysArgs, out)
	if !ok {
		return nil
	}
	limit := int64(0)
	for ; len(options) > 0; options = options[2:] {
		if len(options) == 1 || !IsOption(options[0], "limit") {
			out.Error(ErrSyntax)
			return nil
		}
		if limit, ok = ParseInt(options[1]); !ok || limit < 0 {
			out.Error(errNegativeLimit)
			return nil
		}
	}
	if limit == 0 {
		limit = math.MaxInt64
	}
	sets, ok, err := openInputs(r, names, isSet, out)
	if !ok {
		return err
	}
	met := int64(0)
	err = sets.inter(func([]byte, float64) (bool, error) {
		met++
		return met < limit, nil
	})
	out.Int(met)
	return err
}

func isSet(*record) keys.Type { return keys.Set }

// combine replies a combination of sets.
func (r *Reader) combine(args [][]byte, how combination, out *Reply) error {
	sets, ok, err := openInputs(r, args[1:], isSet, out)
	if !ok {
		return err
	}
	start, n := len(out.Buf), 0
	err = how(sets, func(member []byte, _ float64) (bool, error) {
		out.Bulk(member)
		n++
		return !out.Full, nil
	})
	out.setFrom(start, n)
	return err
}

// combine stores a combination of sets under a key, and replies how many members it has. The result may be larger than
// a batch may be.
func (w *Writer) combine(args [][]byte, how combination, out *Reply) error {
	sets, ok, err := openInputs(w, args[2:], isSet, out)
	if !ok {
		return err
	}
	var to collection
	if err := w.renew(&to, args[1], keys.Set); err != nil {
		return err
	}
	err = how(sets, func(member []byte, _ float64) (bool, error) {
		w.grow(&to, 1)
		return true, w.Batch.SetAhead(to.at(member), nil)
	})
	if err != nil {
		return err
	}
	out.Int(int64(to.Size))
	return w.close(&to)
}

// setFrom puts the header of a set of n elements before the elements, which begin at start.
func (r *Reply) setFrom(start, n int) {
	end := len(r.Buf)
	r.Set(n)
	r.toFront(start, end)
}
