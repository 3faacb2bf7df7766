package redis

import (
	"bytes"
	"cmp"
	"math"
	"math/big"
	"slices"
	"unsafe"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file has SORT and SORT_RO. BY and GET take values from other keys. A pattern and each element make the names of
// these keys:
//
//	SORT {shop}:ids BY {shop}:item:*->price GET # GET {shop}:item:*->name
//
// These keys are not known before the elements have been read. So a pattern must keep all of them in the slot of the
// sorted key, by a hash tag before its star. NeoKV refuses other patterns with the words with which Redis Cluster
// refuses all patterns.
//
// Elements with equal weights come in the order of their bytes. With ALPHA they stay in the order in which they are
// stored.

var sortCommands = []*Command{
	{
		Name: "sort", Arity: -2, Flags: FlagWrite | FlagDenyOOM | FlagMovableKeys, Categories: sortCategories,
		Keys:     []KeySpec{sortedKey, sortPatterns, sortStored},
		FindKeys: appendSortKeys, Write: sortWrite,
		ReadBy: func(args [][]byte) *Command {
			if storeOption(args) != 0 {
				return nil
			}
			return sortRead
		},
		Doc: Doc{"Sorts a list, a set or a sorted set, by itself or by other keys, and returns or stores the " +
			"elements or values of other keys.", "1.0.0", "generic", sortCost},
	},
	sortRead,
}

var sortRead = &Command{
	Name: "sort_ro", Arity: -2, Flags: FlagReadonly | FlagMovableKeys, Categories: sortCategories,
	Keys: []KeySpec{sortedKey, sortPatterns},
	Read: sortOnly,
	Doc:  Doc{"Does the same as SORT, without STORE.", "7.0.0", "generic", sortCost},
}

const sortCost = "O(N*log(N)+M) where N is the number of elements to be sorted and M that of elements returned; " +
	"one look-up more for each BY and GET and each of these. Without sorting O(M)."

var (
	sortCategories = []string{"set", "sortedset", "list", "dangerous"}
	sortedKey      = KeySpec{First: 1, Step: 1, Flags: []string{"RO", "access"}}
	sortPatterns   = KeySpec{Unknown: true, Flags: []string{"RO", "access"},
		Notes: "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the " +
			"content of the key we sort"}
	sortStored = KeySpec{Unknown: true, Flags: []string{"OW", "update"},
		Notes: "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in " +
			"the argument array"}
)

// storeOption returns the position of the key to which a SORT stores its result, 0 if there is none.
func storeOption(args [][]byte) (at int) {
	for i := 2; i < len(args); i++ {
		switch a := args[i]; {
		case IsOption(a, "limit"):
			i += 2
		case IsOption(a, "by"), IsOption(a, "get"):
			i++
		case IsOption(a, "store") && i+1 < len(args):
			i++
			at = i
		}
	}
	return at
}

func appendSortKeys(dst []int, args [][]byte) []int {
	dst = append(dst, 1)
	if at := storeOption(args); at != 0 {
		dst = append(dst, at)
	}
	return dst
}

// sorting is one call of SORT or SORT_RO.
type sorting struct {
	from opener
	key  []byte
	slot topology.Slot

	desc, alpha   bool
	offset, count int64 // which elements the client asks for; a count below 0 means all
	by            *pattern
	unsorted      bool // the elements keep their own order
	get           []pattern
	store         []byte // nil for none

	elements []sortable
	memory   arena
	used     int // bytes of memory for elements and for values of other keys
	// room is the reply of a read: until the reply begins, that memory counts against its room. It is nil for a write.
	room *Reply

	name  []byte     // scratch: a key made of a pattern
	rec   record     // of that key
	apart collection // its value, if that is a hash or a long string
	inner scratch    // of apart
	whole []byte     // scratch: a long string
}

// sortable is an element and the value that it is sorted by.
type sortable struct {
	element []byte
	score   float64
	text    []byte // for ALPHA; nil where BY finds nothing, which comes first
}

// found is a string that a pattern has found. It is valid until the next read.
type found struct {
	short []byte
	long  *collection // a long string, not read yet; nil for none
}

func (f found) length() int {
	if f.long != nil {
		return int(f.long.Size)
	}
	return len(f.short)
}

// reply appends the string.
func (f found) reply(out *Reply) error {
	if f.long != nil {
		return f.long.replyRange(0, f.length(), out)
	}
	out.Bulk(f.short)
	return nil
}

// keep copies the string. The copy is never nil.
func (x *sorting) keep(f found) ([]byte, error) {
	if f.long != nil {
		return f.long.appendRange([]byte{}, 0, f.length())
	}
	return x.memory.clone(f.short), nil
}

// read returns the string, which is valid until the next read.
func (x *sorting) read(f found) (_ []byte, err error) {
	if f.long == nil {
		return f.short, nil
	}
	x.whole, err = f.long.appendRange(x.whole[:0], 0, f.length())
	return x.whole, err
}

// maxSortBytes bounds the memory of a SORT, for elements and for values of other keys. Values need a bound, since many
// elements may lead to the same large value. The bound is enough for some 1.5 million short elements. errSortMemory
// names it.
const maxSortBytes = 128 << 20

// elementBytes is how much memory an element takes beside its bytes.
const elementBytes = int(unsafe.Sizeof(sortable{}))

// pattern is an argument of BY or GET.
type pattern struct {
	self          bool // "#": the element itself
	star          bool // else the pattern finds nothing
	before, after []byte
	field         []byte // of a hash; nil: the key is a string
}

// parsePattern reads a pattern. As in Redis, a NUL ends each part except the last one.
func parsePattern(arg []byte) (p pattern) {
	text := cString(arg, len(arg))
	star := bytes.IndexByte(text, '*')
	if star < 0 {
		p.self = string(text) == "#"
		return p
	}
	p.star, p.before, p.after = true, arg[:star], arg[star+1:]
	if at := bytes.Index(text[star+1:], []byte("->")); at >= 0 && star+1+at+2 < len(text) {
		p.after, p.field = p.after[:at], p.after[at+2:]
	}
	return p
}

// within reports whether all keys that the pattern can make are in a slot.
func (p *pattern) within(slot topology.Slot) bool {
	s, ok := topology.SlotOfAll(p.before)
	return !p.star || ok && s == slot
}

// parse reads the call. It appends Redis's error where it cannot.
func (x *sorting) parse(args [][]byte, readonly bool, out *Reply) (ok bool) {
	x.key, x.slot, x.count = args[1], topology.SlotOf(args[1]), -1
	for i := 2; i < len(args); i++ {
		left := len(args) - i - 1
		switch a := args[i]; {
		case IsOption(a, "asc"):
			x.desc = false
		case IsOption(a, "desc"):
			x.desc = true
		case IsOption(a, "alpha"):
			x.alpha = true
		case IsOption(a, "limit") && left >= 2:
			if x.offset, x.count, ok = parseInts(args[i+1], args[i+2], out); !ok {
				return false
			}
			i += 2
		case !readonly && IsOption(a, "store") && left >= 1:
			i++
			x.store = args[i]
		case IsOption(a, "by") && left >= 1:
			i++
			p := parsePattern(args[i])
			if !p.within(x.slot) {
				out.Error(errSortBy)
				return false
			}
			x.by = &p
			x.unsorted = x.unsorted || !p.star
		case IsOption(a, "get") && left >= 1:
			i++
			p := parsePattern(args[i])
			if !p.within(x.slot) {
				out.Error(errSortGet)
				return false
			}
			x.get = append(x.get, p)
		default:
			out.Error(ErrSyntax)
			return false
		}
	}
	return true
}

// run reads the key and puts the elements in order for which the client asks. If it cannot, it appends Redis's error.
func (x *sorting) run(out *Reply) (ok bool, err error) {
	rec, err := x.from.readIn(x.slot, x.key)
	if err != nil || !rec.live {
		return err == nil, err
	}
	if rec.Type == keys.String || rec.Type == keys.Hash {
		out.Error(ErrWrongType)
		return false, nil
	}
	if x.unsorted && rec.Type == keys.Set && x.store != nil { // a list has an order, so Redis sorts what it stores
		x.unsorted, x.alpha, x.by = false, true, nil
	}
	var c collection
	var room scratch
	x.from.begin(&c, x.slot, x.key, &rec, &room)
	wanted := c.Size
	if x.unsorted {
		_, n := x.window(int(c.Size))
		wanted = uint64(n)
	}
	if err := x.from.spend(int(wanted)); err != nil {
		return false, err
	}
	if wanted > uint64(maxSortBytes/elementBytes) {
		out.Error(errSortMemory)
		return false, nil
	}
	x.elements = make([]sortable, 0, wanted)
	if x.unsorted {
		err = x.loadRange(&c)
	} else {
		err = c.each(nil, func(sub, value []byte) bool {
			if c.Type == keys.List {
				sub = value
			}
			return x.add(sub)
		})
	}
	switch {
	case err != nil:
		return false, err
	case x.full():
		out.Error(errSortMemory)
		return false, nil
	case uint64(len(x.elements)) != wanted:
		return false, c.miscounted(uint64(len(x.elements)))
	case x.unsorted:
		return true, nil
	}
	if ok, err := x.weigh(out); !ok {
		return false, err
	}
	compare := watched(x.from.watch(), x.compare())
	if x.alpha {
		slices.SortStableFunc(x.elements, compare)
	} else { // elements that compare equal are equal
		slices.SortFunc(x.elements, compare)
	}
	from, n := x.window(len(x.elements))
	x.elements = x.elements[from : from+n]
	return true, nil
}

// window returns which of this many elements the client asks for.
func (x *sorting) window(size int) (from, n int) {
	from = int(max(0, min(x.offset, int64(size))))
	n = size - from
	if x.count >= 0 {
		n = int(min(x.count, int64(n)))
	}
	return from, n
}

// loadRange reads the elements for which the client asks, in their own order, when nothing is to be sorted. DESC
// reverses the order of lists and sorted sets.
func (x *sorting) loadRange(c *collection) error {
	from, n := x.window(int(c.Size))
	if n == 0 {
		return nil
	}
	switch c.Type {
	case keys.List:
		first := c.Head + uint64(from)
		if x.desc {
			first = c.Tail - uint64(from+n)
		}
		return c.items(first, first+uint64(n), x.desc, func(_ uint64, value []byte) (bool, error) {
			return x.add(value), nil
		})
	case keys.ZSet:
		z := zspan{by: byRank, rev: x.desc, first: int64(from), last: int64(from + n - 1)}
		return c.eachIn(&z, func(_ float64, member []byte) error {
			if !x.add(member) {
				return errStop
			}
			return nil
		})
	}
	return c.each(nil, func(member, _ []byte) bool {
		if from--; from < 0 {
			n--
			return x.add(member) && n > 0
		}
		return true
	})
}

// add takes an element, and reports whether there is room for another one.
func (x *sorting) add(element []byte) (more bool) {
	if x.used += elementBytes + len(element); !x.full() {
		x.elements = append(x.elements, sortable{element: x.memory.clone(element)})
	}
	return !x.full()
}

func (x *sorting) full() bool { return x.used > maxSortBytes || x.room != nil && !x.room.has(x.used) }

// weigh finds the value that each element is sorted by. It appends Redis's error where it cannot.
func (x *sorting) weigh(out *Reply) (ok bool, err error) {
	ok = true
	for i := range x.elements {
		e := &x.elements[i]
		value, there := found{short: e.element}, true
		if x.by != nil {
			if value, there, err = x.lookUp(x.by, e.element); err != nil {
				return false, err
			}
		}
		switch {
		case !there:
		case !x.alpha:
			if value.length() > maxSortBytes-x.used {
				out.Error(errSortMemory)
				return false, nil
			}
			text, err := x.read(value)
			if err != nil {
				return false, err
			}
			var number bool
			if e.score, number = parseWeight(text); !number {
				ok = false // every other error comes first
			}
		case x.by == nil:
			e.text = e.element
		case !x.borrow(value, out):
			return false, nil
		default:
			if e.text, err = x.keep(value); err != nil {
				return false, err
			}
		}
	}
	if !ok {
		out.Error(errSortNumber)
	}
	return ok, nil
}

// parseWeight reads a number as C's strtod does: with leading space, and up to a NUL. An empty text is 0. It refuses a
// number that is too large for a double, or so near to 0 that it loses digits.
func parseWeight(b []byte) (f float64, ok bool) {
	if b = cString(b, len(b)); len(b) == 0 {
		return 0, true
	}
	b = bytes.TrimLeft(b, " \t\n\v\f\r")
	f, exact, ok := parseDouble(b)
	const normal = 0x1p-1022 // the smallest number that has all digits
	if exact && f != 0 && math.Abs(f) < normal {
		x, ok := parseLongDouble(b)
		if !ok {
			return 0, false
		}
		_, accuracy := x.f.Float64()
		exact = accuracy == big.Exact
	}
	return f, ok && exact
}

// lookUp returns what a pattern finds for an element. It is valid until the next read.
func (x *sorting) lookUp(p *pattern, element []byte) (value found, there bool, err error) {
	if value, there, err = x.find(p, element); err == nil {
		err = x.from.spend(cost(value.length()))
	}
	return value, there, err
}

// find is lookUp without counting.
func (x *sorting) find(p *pattern, element []byte) (value found, there bool, err error) {
	switch {
	case p.self:
		return found{short: element}, true, nil
	case !p.star:
		return value, false, nil
	}
	x.name = append(append(append(x.name[:0], p.before...), element...), p.after...)
	x.rec, err = x.from.readIn(x.slot, x.name)
	switch {
	case err != nil || !x.rec.live:
		return value, false, err
	case p.field == nil && !x.rec.Long():
		return found{short: x.rec.Value}, x.rec.Type == keys.String, nil
	case p.field != nil && x.rec.Type != keys.Hash:
		return value, false, nil
	}
	x.inner.used = 0
	x.from.begin(&x.apart, x.slot, x.name, &x.rec, &x.inner)
	if p.field == nil {
		return found{long: &x.apart}, true, nil
	}
	value.short, there, err = x.apart.get(p.field)
	return value, there, err
}

// borrow counts the memory of another key's value that the caller will keep. If that is too much, it appends an error.
func (x *sorting) borrow(value found, out *Reply) (ok bool) {
	if x.used += value.length(); x.full() {
		out.Error(errSortMemory)
		return false
	}
	return true
}

// compare returns the order of the elements. It compares texts as C does, up to a NUL, or whole texts if the result
// will be stored.
func (x *sorting) compare() func(a, b sortable) int {
	sign := 1
	if x.desc {
		sign = -1
	}
	whole := x.store != nil
	switch {
	case !x.alpha:
		return func(a, b sortable) int {
			return sign * cmp.Or(cmp.Compare(a.score, b.score), bytes.Compare(a.element, b.element))
		}
	case whole:
		return func(a, b sortable) int { return sign * compareText(a.text, b.text) }
	}
	return func(a, b sortable) int { return sign * compareText(cutText(a.text), cutText(b.text)) }
}

// watched returns an order that counts its comparisons as work. When the work is over, all compare equal, so that
// sorting ends soon.
func watched[T any](w *engine.Work, compare func(a, b T) int) func(a, b T) int {
	return func(a, b T) int {
		if !w.Spend(1) {
			return 0
		}
		return compare(a, b)
	}
}

// compareText compares bytes. nil comes before everything.
func compareText(a, b []byte) int {
	switch {
	case (a == nil) == (b == nil):
		return bytes.Compare(a, b)
	case a == nil:
		return -1
	}
	return 1
}

func cutText(b []byte) []byte { return cString(b, len(b)) }

func sortOnly(r *Reader, args [][]byte, out *Reply) error {
	x := sorting{from: r, room: out}
	if !x.parse(args, true, out) {
		return nil
	}
	if ok, err := x.run(out); !ok {
		return err
	}
	out.Room -= x.used
	defer func() { out.Room += x.used }()
	return x.reply(out)
}

func (x *sorting) reply(out *Reply) error {
	out.Array(len(x.elements) * max(len(x.get), 1))
	for i := range x.elements {
		e := x.elements[i].element
		if len(x.get) == 0 {
			out.Bulk(e)
		}
		for j := range x.get {
			value, there, err := x.lookUp(&x.get[j], e)
			if err != nil {
				return err
			}
			switch {
			case there:
				if err := value.reply(out); err != nil {
					return err
				}
			case out.has(smallBytes):
				out.Null()
			}
		}
		if out.Full {
			break
		}
	}
	return nil
}

func sortWrite(w *Writer, args [][]byte, out *Reply) error {
	x := sorting{from: w}
	if !x.parse(args, false, out) {
		return nil
	}
	if ok, err := x.run(out); !ok {
		return err
	}
	if x.store == nil {
		return x.reply(out)
	}
	const valueBytes = int(unsafe.Sizeof([]byte(nil)))
	if len(x.elements) > (maxSortBytes-x.used)/(valueBytes*max(len(x.get), 1)) {
		out.Error(errSortMemory)
		return nil
	}
	x.used += len(x.elements) * valueBytes * max(len(x.get), 1)
	values := make([][]byte, 0, len(x.elements)*max(len(x.get), 1))
	for i := range x.elements {
		e := x.elements[i].element
		if len(x.get) == 0 {
			values = append(values, e)
		}
		for j := range x.get { // a missing value is stored as an empty one
			value, _, err := x.lookUp(&x.get[j], e)
			if err != nil {
				return err
			}
			if !x.borrow(value, out) {
				return nil
			}
			text, err := x.keep(value)
			if err != nil {
				return err
			}
			values = append(values, text)
		}
	}
	var to collection
	if err := w.renew(&to, x.store, keys.List); err != nil {
		return err
	}
	if len(values) > 0 {
		w.grow(&to, uint64(len(values)))
	}
	for _, value := range values {
		sub := subkey(to.Tail)
		to.Tail++
		if err := w.Batch.SetAhead(to.at(sub[:]), value); err != nil {
			return err
		}
	}
	out.Int(int64(len(values)))
	return w.close(&to)
}

// arena is memory for many small copies.
type arena struct{ free []byte }

// An arena takes its memory in pieces, each twice as large as the last one, up to this many bytes.
const (
	firstArenaBytes = 1 << 10
	maxArenaBytes   = 64 << 10
)

// clone copies b. The copy is never nil.
func (a *arena) clone(b []byte) []byte {
	if len(b) > maxArenaBytes/8 {
		return bytes.Clone(b)
	}
	if cap(a.free)-len(a.free) < len(b) || a.free == nil {
		a.free = make([]byte, 0, max(firstArenaBytes, min(2*cap(a.free), maxArenaBytes), len(b)))
	}
	n := len(a.free)
	a.free = append(a.free, b...)
	return a.free[n:len(a.free):len(a.free)]
}
