package redis

import (
	"neokv.dev/neokv/internal/keys"
)

// This file has hashes. A field is an element of the collection: its name is the subkey, its value the value.

var hashCommands = []*Command{
	{
		Name: "hset", Arity: -4, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "update"),
		Write: hset, Reads: Reads{Elements: named(2, 2)},
		Doc: Doc{"Gives fields of a hash the values that follow them, and returns how many of them are new.", "2.0.0",
			"hash", "O(N) where N is the number of fields that are set."},
	},
	{
		Name: "hsetnx", Arity: 4, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "insert"),
		Write: hsetnx, Reads: Reads{Elements: named(2, 4)},
		Doc: Doc{"Gives a field of a hash a value unless it has one.", "2.0.0", "hash", "O(1)"},
	},
	{
		Name: "hmset", Arity: -4, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "update"),
		Write: hmset, Reads: Reads{Elements: named(2, 2)},
		Doc: Doc{"Gives fields of a hash the values that follow them.", "2.0.0", "hash",
			"O(N) where N is the number of fields that are set."},
	},
	{
		Name: "hget", Arity: 3, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).element, look{keys.Hash, contents}),
		Doc:  Doc{"Returns the value of a field of a hash, null if there is none.", "2.0.0", "hash", "O(1)"},
	},
	{
		Name: "hmget", Arity: -3, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).eachElement, look{keys.Hash, contents}),
		Doc: Doc{"Returns the values of fields of a hash, null for each that is absent.", "2.0.0", "hash",
			"O(N) where N is the number of fields that are asked for."},
	},
	{
		Name: "hgetall", Arity: 2, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).fields, fieldParts{names: true, values: true}),
		Tips: unordered,
		Doc: Doc{"Returns all fields of a hash with their values.", "2.0.0", "hash",
			"O(N) where N is the size of the hash."},
	},
	{
		Name: "hkeys", Arity: 2, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).fields, fieldParts{names: true}), Tips: unordered,
		Doc: Doc{"Returns the names of all fields of a hash.", "2.0.0", "hash",
			"O(N) where N is the size of the hash."},
	},
	{
		Name: "hvals", Arity: 2, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"),
		Read: with((*Reader).fields, fieldParts{values: true}), Tips: unordered,
		Doc: Doc{"Returns the values of all fields of a hash.", "2.0.0", "hash",
			"O(N) where N is the size of the hash."},
	},
	{
		Name: "hlen", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO"),
		Read: with((*Reader).size, keys.Hash),
		Doc:  Doc{"Counts the fields of a hash.", "2.0.0", "hash", "O(1)"},
	},
	{
		Name: "hstrlen", Arity: 3, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO"),
		Read: with((*Reader).element, look{keys.Hash, extent}),
		Doc: Doc{"Returns the length of the value of a field of a hash, 0 if there is none.", "3.2.0", "hash",
			"O(1), but the value is read."},
	},
	{
		Name: "hexists", Arity: 3, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO"),
		Read: with((*Reader).element, look{keys.Hash, presence}),
		Doc:  Doc{"Says whether a hash has a field.", "2.0.0", "hash", "O(1)"},
	},
	{
		Name: "hdel", Arity: -3, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "delete"),
		Write: with((*Writer).dropElements, keys.Hash),
		Reads: Reads{Elements: named(2, 1)},
		Doc: Doc{"Removes fields of a hash, and returns how many there were.", "2.0.0", "hash",
			"O(N) where N is the number of fields to be removed."},
	},
	{
		Name: "hincrby", Arity: 4, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Keys: oneKey("", "RW", "access", "update"), Write: hincrby,
		Reads: Reads{Elements: named(2, 4), Values: true},
		Doc: Doc{"Adds an integer to the one that a field of a hash holds; an absent field counts as 0.", "2.0.0",
			"hash", "O(1)"},
	},
	{
		Name: "hincrbyfloat", Arity: 4, Flags: FlagWrite | FlagDenyOOM | FlagFast,
		Keys: oneKey("", "RW", "access", "update"), Write: hincrbyfloat,
		Reads: Reads{Elements: named(2, 4), Values: true},
		Doc: Doc{"Adds a number to the one that a field of a hash holds; an absent field counts as 0.", "2.6.0", "hash",
			"O(1)"},
	},
	{
		Name: "hrandfield", Arity: -2, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: hrandfield,
		Tips: []string{"nondeterministic_output"},
		Doc: Doc{"Returns one or several random fields of a hash.", "6.2.0", "hash",
			"O(N) where N is the number of fields returned; O(M) where that is more than a third of the size M."},
	},
	{
		Name: "hscan", Arity: -3, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: hscan,
		Tips: []string{"nondeterministic_output"},
		Doc: Doc{"Lists the fields of a hash with their values part by part, from a cursor.", "2.8.0", "hash",
			"O(1) for every call, O(N) for all calls of one listing, N being the size of the hash; up to 128 " +
				"fields are one part."},
	},
}

// unordered are the tips of a command whose reply has no order.
var unordered = []string{"nondeterministic_output_order"}

func hset(w *Writer, args [][]byte, out *Reply) error {
	added, ok, err := w.setFields(args, out)
	if ok {
		out.Int(added)
	}
	return err
}

func hmset(w *Writer, args [][]byte, out *Reply) error {
	_, ok, err := w.setFields(args, out)
	if ok {
		out.OK()
	}
	return err
}

// setFields sets fields to values, which args has in turn from args[2] on. It returns how many fields are new, or false
// if it has appended an error to out.
func (w *Writer) setFields(args [][]byte, out *Reply) (added int64, ok bool, err error) {
	if len(args)%2 != 0 {
		out.wrongArity(args[0])
		return 0, false, nil
	}
	var c collection
	if ok, err := w.open(&c, args[1], keys.Hash, out); !ok {
		return 0, false, err
	}
	for i := 2; i < len(args); i += 2 {
		isNew, err := w.put(&c, args[i], args[i+1])
		if err != nil {
			return 0, false, err
		}
		if isNew {
			added++
		}
	}
	err = w.close(&c)
	return added, err == nil, err
}

func hsetnx(w *Writer, args [][]byte, out *Reply) error {
	var c collection
	if ok, err := w.open(&c, args[1], keys.Hash, out); !ok {
		return err
	}
	there, err := w.has(&c, args[2])
	if err != nil {
		return err
	}
	if there {
		out.Int(0)
		return nil
	}
	if err := w.insert(&c, args[2], args[3]); err != nil {
		return err
	}
	out.Int(1)
	return w.close(&c)
}

// fieldParts says what a command replies of each field.
type fieldParts struct{ names, values bool }

// fields replies all names of a hash, all values, or a map of both.
func (r *Reader) fields(args [][]byte, parts fieldParts, out *Reply) error {
	var c collection
	if ok, err := r.open(&c, args[1], keys.Hash, out); !ok {
		return err
	}
	if parts.names && parts.values {
		out.Map(int(c.Size))
	} else {
		out.Array(int(c.Size))
	}
	return c.all(out, func(sub, value []byte) {
		if parts.names {
			out.Bulk(sub)
		}
		if parts.values {
			out.Bulk(value)
		}
	})
}

func hincrby(w *Writer, args [][]byte, out *Reply) error {
	n, ok := ParseInt(args[3])
	if !ok {
		out.Error(ErrNotInteger)
		return nil
	}
	var c collection
	if ok, err := w.open(&c, args[1], keys.Hash, out); !ok {
		return err
	}
	value, there, err := c.get(args[2])
	if err != nil {
		return err
	}
	sum, ok := addInt(value, there, n, errHashNotInteger, out)
	if !ok {
		return nil
	}
	var room [maxIntBytes]byte
	return w.setField(&c, args[2], appendInt(room[:0], sum), there)
}

// setField stores the value of a field and closes the hash. there says whether the hash has the field.
func (w *Writer) setField(c *collection, field, value []byte, there bool) (err error) {
	if there {
		err = w.set(c, field, value)
	} else {
		err = w.insert(c, field, value)
	}
	if err != nil {
		return err
	}
	return w.close(c)
}

func hincrbyfloat(w *Writer, args [][]byte, out *Reply) error {
	n, ok := parseLongDouble(args[3])
	switch {
	case !ok:
		out.Error(ErrNotFloat)
		return nil
	case n.inf:
		out.Error(errInfinite)
		return nil
	}
	var c collection
	if ok, err := w.open(&c, args[1], keys.Hash, out); !ok {
		return err
	}
	value, there, err := c.get(args[2])
	if err != nil {
		return err
	}
	text, ok := addLongDouble(value, there, n, errHashNotFloat, out)
	if !ok {
		return nil
	}
	return w.setField(&c, args[2], text, there)
}

func hrandfield(r *Reader, args [][]byte, out *Reply) error {
	return r.randomElements(args, keys.Hash, "withvalues", (*Reply).Bulk, out)
}

func hscan(r *Reader, args [][]byte, out *Reply) error {
	return r.scan(args, keys.Hash, 2, out, func(_ *collection, out *Reply, sub, value []byte) {
		out.Bulk(sub)
		out.Bulk(value)
	})
}
