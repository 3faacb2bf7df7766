package redis

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"neokv.dev/neokv/internal/keys"
)

// This file has lists. The subkey of an element is its index, a u64. The indexes of all elements are [head, tail) of
// the record, without a gap, so the size is tail - head:
//
//	LPUSH ->  head-1 [ head ... tail-1 ] tail  <- RPUSH
//
// To insert or remove an element between others, a command moves the elements on one side of it, whichever are fewer.
// If these have more than touchedBytes, it writes the whole list anew under another version. In this file a position is
// what clients count, from 0, or from the end with -1; an index is a subkey.

var listCommands = []*Command{
	{
		Name: "lpush", Arity: -3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "insert"),
		Write: with((*Writer).push, pushing{left: true}),
		Doc: Doc{"Puts elements one after the other before the first of a list, and returns its length.", "1.0.0",
			"list", "O(N) where N is the number of elements that are added."},
	},
	{
		Name: "rpush", Arity: -3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "insert"),
		Write: with((*Writer).push, pushing{}),
		Doc: Doc{"Puts elements behind the last of a list, and returns its length.", "1.0.0", "list",
			"O(N) where N is the number of elements that are added."},
	},
	{
		Name: "lpushx", Arity: -3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "insert"),
		Write: with((*Writer).push, pushing{left: true, present: true}),
		Doc: Doc{"Puts elements before the first of a list that exists, and returns its length.", "2.2.0", "list",
			"O(N) where N is the number of elements that are added."},
	},
	{
		Name: "rpushx", Arity: -3, Flags: FlagWrite | FlagDenyOOM | FlagFast, Keys: oneKey("", "RW", "insert"),
		Write: with((*Writer).push, pushing{present: true}),
		Doc: Doc{"Puts elements behind the last of a list that exists, and returns its length.", "2.2.0", "list",
			"O(N) where N is the number of elements that are added."},
	},
	{
		Name: "lpop", Arity: -2, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "access", "delete"),
		Write: with((*Writer).popEnd, true),
		Doc: Doc{"Removes the first element of a list, or several, and returns them.", "1.0.0", "list",
			"O(N) where N is the number of elements returned."},
	},
	{
		Name: "rpop", Arity: -2, Flags: FlagWrite | FlagFast, Keys: oneKey("", "RW", "access", "delete"),
		Write: with((*Writer).popEnd, false),
		Doc: Doc{"Removes the last element of a list, or several, and returns them.", "1.0.0", "list",
			"O(N) where N is the number of elements returned."},
	},
	{
		Name: "llen", Arity: 2, Flags: FlagReadonly | FlagFast, Keys: oneKey("", "RO"),
		Read: with((*Reader).size, keys.List),
		Doc:  Doc{"Counts the elements of a list.", "1.0.0", "list", "O(1)"},
	},
	{
		Name: "lindex", Arity: 3, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: lindex,
		Doc: Doc{"Returns the element at a position of a list, null if there is none.", "1.0.0", "list", "O(1)"},
	},
	{
		Name: "lset", Arity: 4, Flags: FlagWrite | FlagDenyOOM, Keys: oneKey("", "RW", "update"), Write: lset,
		Doc: Doc{"Replaces the element at a position of a list.", "1.0.0", "list", "O(1)"},
	},
	{
		Name: "lrange", Arity: 4, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: lrange,
		Doc: Doc{"Returns the elements of a list from one position to another.", "1.0.0", "list",
			"O(N) where N is the number of elements returned, wherever they are."},
	},
	{
		Name: "linsert", Arity: 5, Flags: FlagWrite | FlagDenyOOM, Keys: oneKey("", "RW", "insert"), Write: linsert,
		Doc: Doc{"Puts an element before or behind the first one of a list that is equal to another, and returns the " +
			"length.", "2.2.0", "list",
			"O(N+M) where N is the number of elements up to the one that is looked for and M the number on the " +
				"shorter side of it, which are written anew."},
	},
	{
		Name: "lrem", Arity: 4, Flags: FlagWrite, Keys: oneKey("", "RW", "delete"), Write: lrem,
		Doc: Doc{"Removes elements of a list that are equal to one, so many from either end or all, and returns how " +
			"many there were.", "1.0.0", "list",
			"O(N) where N is the length of the list. All that stay are written anew, but for the longest run of them " +
				"between those that go."},
	},
	{
		Name: "ltrim", Arity: 4, Flags: FlagWrite, Keys: oneKey("", "RW", "delete"), Write: ltrim,
		Doc: Doc{"Removes the elements of a list that are not between two positions.", "1.0.0", "list",
			"O(N) where N is the number of elements removed; O(1) from 1000 at one end on."},
	},
	{
		Name: "lpos", Arity: -3, Flags: FlagReadonly, Keys: oneKey("", "RO", "access"), Read: lpos,
		Doc: Doc{"Returns the positions of elements of a list that are equal to one.", "6.0.6", "list",
			"O(N) where N is the number of elements that are looked at."},
	},
	{
		Name: "lmove", Arity: 5, Flags: FlagWrite | FlagDenyOOM,
		Keys: fromTo([]string{"RW", "access", "delete"}, []string{"RW", "insert"}), Write: lmove,
		Doc: Doc{"Moves an element from an end of a list to an end of another, or of the same, and returns it.",
			"6.2.0", "list", "O(1)"},
	},
	{
		Name: "rpoplpush", Arity: 3, Flags: FlagWrite | FlagDenyOOM,
		Keys: fromTo([]string{"RW", "access", "delete"}, []string{"RW", "insert"}), Write: rpoplpush,
		Doc: Doc{"Moves the last element of a list before the first of another, or of the same, and returns it.",
			"1.2.0", "list", "O(1)"},
	},
	{
		Name: "lmpop", Arity: -4, Flags: FlagWrite | FlagMovableKeys, Keys: countedKeys(1, "RW", "access", "delete"),
		Write: lmpop,
		Doc: Doc{"Removes elements from an end of the first of some lists that is not empty, and returns them.",
			"7.0.0", "list", "O(N+M) where N is the number of keys and M the number of elements returned."},
	},
}

// subkey is the subkey of the element at an index.
func subkey(index uint64) (sub [8]byte) {
	binary.BigEndian.PutUint64(sub[:], index)
	return sub
}

// index returns the index of a position.
func (c *collection) index(position int64) (index uint64, ok bool) {
	size := int64(c.Size)
	if position < 0 {
		position += size
	}
	if position < 0 || position >= size {
		return 0, false
	}
	return c.Head + uint64(position), true
}

// between returns the indexes [from, to) of the elements from position first to position last, both included.
func (c *collection) between(first, last int64) (from, to uint64) {
	size := int64(c.Size)
	if first < 0 {
		first = max(first+size, 0)
	}
	if last < 0 {
		last += size
	}
	last = min(last, size-1)
	if first > last {
		return c.Head, c.Head
	}
	return c.Head + uint64(first), c.Head + uint64(last) + 1
}

// item reads the element at an index in [head, tail). The value is valid until the next read.
func (c *collection) item(index uint64) ([]byte, error) {
	sub := subkey(index)
	value, there, err := c.get(sub[:])
	if err == nil && !there {
		err = c.gap(index)
	}
	return value, err
}

// gap is the error of a list that has no element at an index between head and tail.
func (c *collection) gap(index uint64) error {
	return fmt.Errorf("list %q: no element at index %d, its record says %d to %d", c.user, index, c.Head, c.Tail)
}

// oneByOne is the number of elements up to which items reads them one by one. For so few that costs less than an
// iterator, before which a batch must sort its writes.
const oneByOne = 8

// items calls f with the elements at the indexes [from, to), in order or backwards, until f returns false. f may write
// to elements that it has been called with, and to indexes outside. The value is valid until f writes or returns.
func (c *collection) items(from, to uint64, backwards bool,
	f func(index uint64, value []byte) (more bool, err error)) error {
	at := func(n uint64) uint64 {
		if backwards {
			return to - 1 - n
		}
		return from + n
	}
	if to-from <= oneByOne {
		for n := range to - from {
			i := at(n)
			value, err := c.item(i)
			if err != nil {
				return err
			}
			if more, err := f(i, value); err != nil || !more {
				return err
			}
		}
		return nil
	}
	lower, upper := subkey(from), subkey(to)
	e, err := c.elements(keys.Data, lower[:], upper[:])
	if err != nil {
		return err
	}
	first, next := elements.First, elements.Next
	if backwards {
		first, next = elements.Last, elements.Prev
	}
	ok := first(e)
	for n, more := uint64(0), true; more && n < to-from; n++ {
		i := at(n)
		if want := subkey(i); !ok || !bytes.Equal(e.sub(), want[:]) {
			if err := e.Close(); err != nil {
				return err
			}
			return c.gap(i)
		}
		value, err := e.ValueAndErr()
		if err == nil {
			more, err = f(i, value)
		}
		if err != nil {
			return errors.Join(err, e.Close())
		}
		ok = next(e)
	}
	return e.Close()
}

// extend puts an element at an end of a list.
func (w *Writer) extend(c *collection, left bool, value []byte) error {
	i := c.Tail
	if left {
		c.Head--
		i = c.Head
	} else {
		c.Tail++
	}
	sub := subkey(i)
	return w.insert(c, sub[:], value)
}

// cutRange is the number of elements from which on cut uses a range deletion. A range deletion costs the same for any
// number of elements, but it slows reads down.
const cutRange = 1000

// cut removes n elements from an end of a list.
func (w *Writer) cut(c *collection, left bool, n uint64) error {
	var from uint64
	if left {
		from = c.Head
		c.Head += n
	} else {
		c.Tail -= n
		from = c.Tail
	}
	if n < cutRange && n*uint64(c.front) <= uint64(touchedBytes) {
		for i := range n {
			sub := subkey(from + i)
			if err := w.erase(c, sub[:]); err != nil {
				return err
			}
		}
		return nil
	}
	c.Size -= n
	c.changed = true
	sub := subkey(from + n)
	c.bound = append(c.bound[:0], c.at(sub[:])...)
	sub = subkey(from)
	return w.Batch.DeleteRange(c.at(sub[:]), c.bound)
}

// moves are elements on their way to other indexes of a list.
type moves struct {
	to     []uint64
	values [][]byte
	memory arena // of values
	bytes  int   // how much of touchedBytes the elements take
}

// shift moves the elements at the indexes [from, to) up or down by one place, and by one place more after each gap.
// gaps has the indexes in [from, to), in order, of elements that are removed. shift returns false if it would move more
// than touchedBytes. It writes nothing: write does.
func (m *moves) shift(c *collection, from, to uint64, up bool, gaps []uint64) (fits bool, err error) {
	met := 0 // how many of the gaps
	err = c.items(from, to, up, func(i uint64, value []byte) (bool, error) {
		gap, by := met, -uint64(met+1)
		if up {
			gap, by = len(gaps)-1-met, uint64(met+1)
		}
		if met < len(gaps) && gaps[gap] == i {
			met++
			return true, nil
		}
		i += by
		sub := subkey(i)
		if m.bytes += c.touch(sub[:], value); !m.fit() {
			return false, nil
		}
		m.to, m.values = append(m.to, i), append(m.values, m.memory.clone(value))
		return true, nil
	})
	return m.fit(), err
}

func (m *moves) fit() bool { return m.bytes <= touchedBytes }

// write puts the elements at their new indexes. It does not remove what is left at the old ones.
func (m *moves) write(w *Writer, c *collection) error {
	for i, value := range m.values {
		sub := subkey(m.to[i])
		if err := w.set(c, sub[:], value); err != nil {
			return err
		}
	}
	return nil
}

// rewrite makes a new version of a list, with size elements, and closes it. It calls f with each element of the old
// version; f calls put with the elements of the new version.
func (w *Writer) rewrite(c *collection, size uint64,
	f func(index uint64, value []byte, put func(value []byte) error) error) error {
	var to collection
	w.renewOver(&to, c.user, keys.List, &c.old)
	if size > 0 {
		w.grow(&to, size)
	}
	to.ExpireMS, to.Head, to.Tail = c.ExpireMS, c.Head, c.Head
	put := func(value []byte) error {
		sub := subkey(to.Tail)
		to.Tail++
		return w.Batch.SetAhead(to.at(sub[:]), value)
	}
	err := c.items(c.Head, c.Tail, false, func(i uint64, value []byte) (bool, error) {
		if err := w.spend(cost(len(value))); err != nil {
			return false, err
		}
		return true, f(i, value, put)
	})
	if err != nil {
		return err
	}
	return w.close(&to)
}

// without writes the list anew without the n elements that equal value between two indexes, both included, and closes
// it.
func (w *Writer) without(c *collection, first, last uint64, value []byte, n uint64) error {
	return w.rewrite(c, c.Size-n, func(i uint64, present []byte, put func([]byte) error) error {
		if first <= i && i <= last && bytes.Equal(present, value) {
			return nil
		}
		return put(present)
	})
}

// take removes the elements at the indexes in gone, at least one and in order, and closes the list. The longest run of
// remaining elements stays where it is, and the other elements close up to it. If these are too many to be moved, take
// does nothing and returns false.
func (w *Writer) take(c *collection, gone []uint64) (fits bool, err error) {
	before, longest := 0, gone[0]-c.Head // before counts the indexes in gone before the longest run
	for j, at := range gone {
		end := c.Tail
		if j+1 < len(gone) {
			end = gone[j+1]
		}
		if end-at-1 > longest {
			before, longest = j+1, end-at-1
		}
	}
	var m moves
	left, right := gone[:before], gone[before:]
	if n := len(left); n > 0 {
		if fits, err := m.shift(c, c.Head, left[n-1], true, left[:n-1]); !fits || err != nil {
			return false, err
		}
	}
	if len(right) > 0 {
		if fits, err := m.shift(c, right[0]+1, c.Tail, false, right[1:]); !fits || err != nil {
			return false, err
		}
	}
	if err := m.write(w, c); err != nil {
		return true, err
	}
	if err := w.cut(c, true, uint64(len(left))); err != nil {
		return true, err
	}
	if err := w.cut(c, false, uint64(len(right))); err != nil {
		return true, err
	}
	return true, w.close(c)
}

// pop replies n elements from an end of a list, the outermost first, and removes them.
func (w *Writer) pop(c *collection, left bool, n uint64, out *Reply) error {
	if err := w.spend(int(n)); err != nil {
		return err
	}
	from, to := c.Tail-n, c.Tail
	if left {
		from, to = c.Head, c.Head+n
	}
	err := c.items(from, to, !left, func(_ uint64, value []byte) (bool, error) {
		out.Bulk(value)
		return !out.Full, nil
	})
	if err != nil {
		return err
	}
	return w.cut(c, left, n)
}

// pushing says where a command puts elements, and whether the list must exist.
type pushing struct{ left, present bool }

func (w *Writer) push(args [][]byte, p pushing, out *Reply) error {
	var c collection
	if ok, err := w.open(&c, args[1], keys.List, out); !ok {
		return err
	}
	if p.present && c.Size == 0 {
		out.Int(0)
		return nil
	}
	for _, value := range args[2:] {
		if err := w.extend(&c, p.left, value); err != nil {
			return err
		}
	}
	out.Int(int64(c.Size))
	return w.close(&c)
}

// popEnd runs LPOP, for which left is true, and RPOP: it replies one element, or with a count an array.
func (w *Writer) popEnd(args [][]byte, left bool, out *Reply) error {
	if len(args) > 3 {
		out.wrongArity(args[0])
		return nil
	}
	counted := len(args) == 3
	n, ok := parsePopCount(args, out)
	if !ok {
		return nil
	}
	var c collection
	if ok, err := w.open(&c, args[1], keys.List, out); !ok {
		return err
	}
	switch {
	case c.Size == 0 && counted:
		out.NullArray()
		return nil
	case c.Size == 0:
		out.Null()
		return nil
	}
	most := min(uint64(n), c.Size)
	if counted {
		out.Array(int(most))
	}
	if err := w.pop(&c, left, most, out); err != nil {
		return err
	}
	return w.close(&c)
}

func lindex(r *Reader, args [][]byte, out *Reply) error {
	var c collection
	if ok, err := r.open(&c, args[1], keys.List, out); !ok {
		return err
	}
	if c.Size == 0 {
		out.Null()
		return nil
	}
	position, ok := ParseInt(args[2])
	if !ok {
		out.Error(ErrNotInteger)
		return nil
	}
	i, ok := c.index(position)
	if !ok {
		out.Null()
		return nil
	}
	value, err := c.item(i)
	if err == nil {
		out.Bulk(value)
	}
	return err
}

func lset(w *Writer, args [][]byte, out *Reply) error {
	var c collection
	if ok, err := w.open(&c, args[1], keys.List, out); !ok {
		return err
	}
	if c.Size == 0 {
		out.Error(ErrNoSuchKey)
		return nil
	}
	position, ok := ParseInt(args[2])
	if !ok {
		out.Error(ErrNotInteger)
		return nil
	}
	i, ok := c.index(position)
	if !ok {
		out.Error(errIndexRange)
		return nil
	}
	out.OK()
	sub := subkey(i)
	if err := w.set(&c, sub[:], args[3]); err != nil {
		return err
	}
	return w.close(&c)
}

func lrange(r *Reader, args [][]byte, out *Reply) error {
	first, last, ok := parseInts(args[2], args[3], out)
	if !ok {
		return nil
	}
	var c collection
	if ok, err := r.open(&c, args[1], keys.List, out); !ok {
		return err
	}
	from, to := c.between(first, last)
	out.Array(int(to - from))
	return c.items(from, to, false, func(_ uint64, value []byte) (bool, error) {
		out.Bulk(value)
		return !out.Full, nil
	})
}

func ltrim(w *Writer, args [][]byte, out *Reply) error {
	first, last, ok := parseInts(args[2], args[3], out)
	if !ok {
		return nil
	}
	var c collection
	if ok, err := w.open(&c, args[1], keys.List, out); !ok {
		return err
	}
	out.OK()
	c.changed = c.Size > 0 // even if all elements stay
	from, to := c.between(first, last)
	if from == to { // all elements go, by one cut
		to = c.Head
	}
	if err := w.cut(&c, false, c.Tail-to); err != nil {
		return err
	}
	if err := w.cut(&c, true, from-c.Head); err != nil {
		return err
	}
	return w.close(&c)
}

func linsert(w *Writer, args [][]byte, out *Reply) error {
	before := IsOption(args[2], "before")
	if !before && !IsOption(args[2], "after") {
		out.Error(ErrSyntax)
		return nil
	}
	var c collection
	if ok, err := w.open(&c, args[1], keys.List, out); !ok {
		return err
	}
	if c.Size == 0 {
		out.Int(0)
		return nil
	}
	at, found := uint64(0), false
	err := c.items(c.Head, c.Tail, false, func(i uint64, value []byte) (bool, error) {
		at, found = i, bytes.Equal(value, args[3])
		return !found, w.spend(cost(len(value)))
	})
	if err != nil {
		return err
	}
	if !found {
		out.Int(-1)
		return nil
	}
	if !before {
		at++
	}
	out.Int(int64(c.Size) + 1)
	var m moves
	left, fits := at-c.Head < c.Tail-at, false
	if left {
		fits, err = m.shift(&c, c.Head, at, false, nil)
	} else {
		fits, err = m.shift(&c, at, c.Tail, true, nil)
	}
	switch {
	case err != nil:
		return err
	case !fits:
		return w.rewrite(&c, c.Size+1, func(i uint64, value []byte, put func([]byte) error) error {
			if i == at {
				if err := put(args[4]); err != nil {
					return err
				}
			}
			return put(value)
		})
	case left:
		c.Head--
		at--
	default:
		c.Tail++
	}
	if err := m.write(w, &c); err != nil {
		return err
	}
	sub := subkey(at)
	if err := w.insert(&c, sub[:], args[4]); err != nil {
		return err
	}
	return w.close(&c)
}

func lrem(w *Writer, args [][]byte, out *Reply) error {
	n, ok := ParseInt(args[2])
	if !ok {
		out.Error(ErrNotInteger)
		return nil
	}
	var c collection
	if ok, err := w.open(&c, args[1], keys.List, out); !ok {
		return err
	}
	backwards := n < 0
	if backwards {
		n = max(-n, 0) // the least integer means all, as 0 does
	}
	var gone []uint64 // the matches, as many as fit
	met, nearest, farthest := uint64(0), uint64(0), uint64(0)
	err := c.items(c.Head, c.Tail, backwards, func(i uint64, value []byte) (bool, error) {
		if bytes.Equal(value, args[3]) {
			if met++; met == 1 {
				nearest = i
			}
			if farthest = i; len(gone) <= touchedBytes/goneBytes {
				gone = append(gone, i)
			}
		}
		return n == 0 || met < uint64(n), w.spend(cost(len(value)))
	})
	if err != nil {
		return err
	}
	out.Int(int64(met))
	if met == 0 {
		return nil
	}
	if backwards {
		slices.Reverse(gone)
	}
	if uint64(len(gone)) == met {
		if fits, err := w.take(&c, gone); fits || err != nil {
			return err
		}
	}
	return w.without(&c, min(nearest, farthest), max(nearest, farthest), args[3], met)
}

// goneBytes is how much of touchedBytes LREM counts for each element that it remembers.
const goneBytes = 64

// lpos runs LPOS. It replies the position of the match with the given rank, or with COUNT an array of positions from
// that match on.
func lpos(r *Reader, args [][]byte, out *Reply) error {
	rank, count, most := int64(1), int64(-1), int64(0)
	for i := 3; i < len(args); i += 2 {
		var ok bool
		switch a := args[i]; {
		case i+1 == len(args):
			out.Error(ErrSyntax)
			return nil
		case IsOption(a, "rank"):
			if rank, ok = ParseInt(args[i+1]); !ok {
				out.Error(ErrNotInteger)
				return nil
			}
			if rank == 0 {
				out.Error(errRankZero)
				return nil
			}
		case IsOption(a, "count"):
			if count, ok = ParseInt(args[i+1]); !ok || count < 0 {
				out.Error(errCountNegative)
				return nil
			}
		case IsOption(a, "maxlen"):
			if most, ok = ParseInt(args[i+1]); !ok || most < 0 {
				out.Error(errMaxLenNegative)
				return nil
			}
		default:
			out.Error(ErrSyntax)
			return nil
		}
	}
	var c collection
	if ok, err := r.open(&c, args[1], keys.List, out); !ok {
		return err
	}
	backwards := rank < 0
	switch {
	case rank == math.MinInt64:
		// In Redis this rank overflows, so every match has it, and only without COUNT does a match end the search.
		rank, count = 1, min(count, 0)
	case backwards:
		rank = -rank
	}
	from, to := c.Head, c.Tail
	if most > 0 && uint64(most) < c.Size {
		if backwards {
			from = to - uint64(most)
		} else {
			to = from + uint64(most)
		}
	}
	wanted := max(count, 0) // 0 for all
	if count < 0 {
		wanted = 1
	}
	start, found, position := len(out.Buf), int64(0), uint64(0)
	err := c.items(from, to, backwards, func(i uint64, value []byte) (bool, error) {
		if !bytes.Equal(value, args[2]) {
			return true, nil
		}
		if rank > 1 {
			rank--
			return true, nil
		}
		position = i - c.Head
		if found++; count >= 0 && out.has(smallBytes) {
			out.Int(int64(position))
		}
		return !out.Full && (wanted == 0 || found < wanted), nil
	})
	switch {
	case err != nil:
		return err
	case count >= 0:
		end := len(out.Buf)
		out.Array(int(found))
		out.toFront(start, end)
	case found == 0:
		out.Null()
	default:
		out.Int(int64(position))
	}
	return nil
}

// parseEnd reads LEFT or RIGHT.
func parseEnd(arg []byte, out *Reply) (left, ok bool) {
	left = IsOption(arg, "left")
	if !left && !IsOption(arg, "right") {
		out.Error(ErrSyntax)
		return false, false
	}
	return left, true
}

func rpoplpush(w *Writer, args [][]byte, out *Reply) error { return w.moveItem(args, false, true, out) }

func lmove(w *Writer, args [][]byte, out *Reply) error {
	fromLeft, ok := parseEnd(args[3], out)
	if !ok {
		return nil
	}
	toLeft, ok := parseEnd(args[4], out)
	if !ok {
		return nil
	}
	return w.moveItem(args, fromLeft, toLeft, out)
}

// moveItem moves an element from an end of the list at args[1] to an end of the list at args[2].
func (w *Writer) moveItem(args [][]byte, fromLeft, toLeft bool, out *Reply) error {
	var from, other collection
	if ok, err := w.open(&from, args[1], keys.List, out); !ok {
		return err
	}
	if from.Size == 0 {
		out.Null()
		return nil
	}
	to := &from
	if !bytes.Equal(args[1], args[2]) {
		to = &other
		if ok, err := w.open(to, args[2], keys.List, out); !ok {
			return err
		}
	}
	i := from.Tail - 1
	if fromLeft {
		i = from.Head
	}
	value, err := from.item(i)
	if err != nil {
		return err
	}
	out.Bulk(value)
	w.value = append(w.value[:0], value...)
	if err := w.cut(&from, fromLeft, 1); err != nil {
		return err
	}
	if err := w.extend(to, toLeft, w.value); err != nil {
		return err
	}
	pushed, popped := EventRPush, EventRPop
	if toLeft {
		pushed = EventLPush
	}
	if fromLeft {
		popped = EventLPop
	}
	if to == &from {
		w.event = silentEvent
		err = w.close(to)
		w.tell(pushed, args[1])
		w.tell(popped, args[1])
		return err
	}
	w.event = pushed
	if err := w.close(to); err != nil {
		return err
	}
	w.event = popped
	return w.close(&from)
}

func lmpop(w *Writer, args [][]byte, out *Reply) error {
	return w.popFirst(args, keys.List, "left", "right", out, func(c *collection, left bool, n uint64) error {
		if err := w.pop(c, left, n, out); err != nil {
			return err
		}
		if w.event = EventRPop; left {
			w.event = EventLPop
		}
		return w.close(c)
	})
}
