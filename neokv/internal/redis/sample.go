package redis

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"sync/atomic"

	"neokv.dev/neokv/internal/keys"
)

// This file chooses random elements of collections, for HRANDFIELD, SRANDMEMBER, ZRANDMEMBER and SPOP.

// Choices seeds the random choices of reads: all that they choose follows from its seed and their order.
type Choices struct {
	Seed uint64
	n    atomic.Uint64
}

// Choose makes the random choices of the next read follow from c; without it they follow from nothing.
func (r *Reader) Choose(c *Choices) { r.choices, r.seeded = c, false }

// random returns the source of a read's random choices.
func (r *Reader) random() *rand.Rand {
	if r.chance == nil {
		r.chance = rand.New(&r.numbers)
	}
	if r.unit != nil && r.choices == nil {
		return r.chanceInUnit()
	}
	if r.choices == nil {
		r.choices = &Choices{Seed: rand.Uint64()}
	}
	if !r.seeded {
		r.numbers.Seed(r.choices.Seed, r.choices.n.Add(1))
		r.seeded = true
	}
	return r.chance
}

// random returns the source of a write's random choices. It is seeded from the log entry, so that all replicas choose
// the same.
func (w *Writer) random() *rand.Rand {
	if w.chance == nil {
		w.chance = rand.New(&w.numbers)
	}
	if w.seeded != w.Index {
		w.seeded = w.Index
		w.numbers.Seed(w.VersionBase, w.Index)
	}
	if w.MapOrder {
		for n := range map[uint64]bool{1: true, 2: true, 3: true, 4: true} {
			w.numbers.Seed(n, w.Index)
		}
	}
	return w.chance
}

// AppendChoice appends the state from which, together with the entry, the next random choice of the present entry
// follows: that of the generator, in the generator's own encoding. It appends nothing if the entry has made no choice.
func (w *Writer) AppendChoice(dst []byte) []byte {
	if w.seeded == w.Index {
		dst, _ = w.numbers.AppendBinary(dst) // it has no errors
	}
	return dst
}

// RestoreChoice restores the state that AppendChoice appended after some calls of the present entry.
func (w *Writer) RestoreChoice(choice []byte) error {
	if len(choice) == 0 {
		return nil
	}
	if err := w.numbers.UnmarshalBinary(choice); err != nil {
		return fmt.Errorf("random choice: %w", err)
	}
	w.seeded = w.Index
	return nil
}

const (
	// pickExact is the number of elements up to which all elements of a collection are exactly as likely as each other,
	// and up to which sample reads all of them to choose several. In sorted sets of any size they are as likely.
	pickExact = 1024
	// pickSpread is how many elements pick chooses from in a larger set or hash.
	pickSpread = 100
	// pickAgain is how often picks draws an element anew that it has already.
	pickAgain = 16
)

// ordered goes over all elements of a collection, in the order of their hashes: those in the engine or, for SPOP, the
// subkeys in the pop cache, which have no values.
type ordered interface {
	First() bool
	Last() bool
	Next() bool
	Prev() bool
	Seek(sub []byte) bool       // to the first element whose subkey is not smaller
	SeekBefore(sub []byte) bool // to the last element whose subkey is smaller
	sub() []byte                // hash and name, valid until the next move
	ValueAndErr() ([]byte, error)
	Error() error
	Close() error
}

// inEngine is the elements in the engine.
type inEngine struct {
	elements
	key []byte // scratch, with what all keys begin with
}

func (e *inEngine) at(sub []byte) []byte {
	e.key = append(e.key[:e.front], sub...)
	return e.key
}

func (e *inEngine) Seek(sub []byte) bool       { return e.SeekGE(e.at(sub)) }
func (e *inEngine) SeekBefore(sub []byte) bool { return e.SeekLT(e.at(sub)) }

// ordered returns all elements.
func (c *collection) ordered() (ordered, error) {
	if c.kept != nil {
		return c.kept, nil
	}
	e, err := c.elements(keys.Data, nil, nil)
	return &inEngine{elements: e, key: c.key}, err
}

// pick returns the name of a random element of a large set or hash, and leaves e there. It is valid until e moves.
//
// pick takes a random hash, and chooses one of the pickSpread elements around it; the first element follows the last.
// So how likely an element is depends on how far apart the hashes of the pickSpread elements around it are. That is the
// sum of as many almost independent, exponentially distributed gaps, whatever the names are like: of ten million
// elements none is twice as likely as the mean, or less than 0.45 times, but for one case in a hundred thousand.
func (c *collection) pick(e ordered, by *rand.Rand) (name []byte, err error) {
	var hash [keys.HashLen]byte
	binary.BigEndian.PutUint32(hash[:], by.Uint32())
	var ok, back bool
	steps := by.Uint64N(pickSpread)
	if steps < pickSpread/2 {
		ok = e.Seek(hash[:]) || e.First()
	} else {
		ok, back, steps = e.SeekBefore(hash[:]) || e.Last(), true, pickSpread-1-steps
	}
	for ; ok && steps > 0; steps-- {
		if back {
			ok = e.Prev() || e.Last()
		} else {
			ok = e.Next() || e.First()
		}
	}
	if err = e.Error(); err == nil && !ok {
		err = c.miscounted(0)
	}
	if err != nil {
		return nil, err
	}
	return e.sub()[keys.HashLen:], nil
}

// sample calls f with random elements, for a reply that has announced them (openSample). A negative n means -n
// elements, which may repeat. Otherwise sample chooses n different ones, or all where there are fewer. It ends early
// where the reply is full. The value that f gets means nothing unless values is set.
func (c *collection) sample(n int64, values bool, by *rand.Rand, out *Reply, f func(name, value []byte)) error {
	switch {
	case n == 0 || c.Size == 0:
		return nil
	case n > 0 && uint64(n) >= c.Size:
		return c.all(out, f)
	case n > 0 && (uint64(n) > c.Size/3 || c.Size <= pickExact && n > 1):
		return c.sampleOf(uint64(n), by, out, f)
	}
	e, err := c.ordered()
	if err != nil {
		return err
	}
	if c.Type == keys.ZSet || c.Size <= pickExact {
		x := draws{c: c, e: e, values: values}
		if err = x.begin(); err == nil {
			err = x.sample(n, by, out, f)
		}
	} else {
		err = c.picks(e, n, values, by, out, f)
	}
	return errors.Join(err, e.Close())
}

// sampleOf does what sample does, by going over all elements. It takes each with the probability that makes all choices
// equally likely.
func (c *collection) sampleOf(n uint64, by *rand.Rand, out *Reply, f func(name, value []byte)) error {
	e, err := c.ordered()
	if err != nil {
		return err
	}
	left := c.Size
	for ok := e.First(); ok && n > 0 && left > 0 && !out.Full; ok = e.Next() {
		if by.Uint64N(left) < n {
			value, err := e.ValueAndErr()
			if err != nil {
				break // e.Error returns it, too
			}
			f(e.sub()[keys.HashLen:], value)
			n--
		}
		left--
	}
	err = errors.Join(e.Error(), e.Close())
	if err == nil && n > 0 && !out.Full {
		err = c.miscounted(c.Size - left)
	}
	return err
}

// picks does what sample does, by picking one element at a time. It draws anew what it has already.
func (c *collection) picks(e ordered, n int64, values bool, by *rand.Rand, out *Reply,
	f func(name, value []byte)) error {
	var taken map[string]bool
	if n > 1 {
		taken = make(map[string]bool)
	}
	for left := max(n, -n); left > 0 && !out.Full; left-- {
		name, err := c.pick(e, by)
		for tries := 1; err == nil && taken[string(name)]; tries++ {
			switch {
			case tries < pickAgain:
				name, err = c.pick(e, by)
			case e.Next() || e.First(): // on to the next one that is not taken
				if name = e.sub()[keys.HashLen:]; tries > pickAgain+len(taken) {
					err = c.miscounted(uint64(len(taken)))
				}
			default:
				err = errors.Join(e.Error(), c.miscounted(0))
			}
		}
		if err != nil {
			return err
		}
		if taken != nil {
			taken[string(name)] = true
		}
		var value []byte
		if values {
			if value, err = e.ValueAndErr(); err != nil {
				return err
			}
		}
		f(name, value)
	}
	return nil
}

// draws finds the elements of random numbers such that all are exactly equally likely, whatever their hashes are. It
// steps over few elements and need not know how many come before one.
//
// The hashes of a collection are an arc, or several where it counts its elements by their hashes. An arc of n elements
// and W hashes has W*n points, n at each hash, and each element takes W of them: the W points nearest before it that no
// element in between takes. Behind the end of the arc comes its beginning. So elements and points match like brackets:
// a point is the opening one, an element is W closing ones at the first point of its hash. Each of the n elements has
// exactly W of the W*n points, so a random point has a random element. The element is found from the point on: it is
// the first one up to which the elements take as many points as there are. With hashes like random ones it is about
// 0.63 times the square root of n elements away, the mean height of a Brownian excursion. If many elements have the same
// hash, it may be as far away as they are many.
type draws struct {
	c      *collection
	e      ordered
	values bool
	parts  []uint64 // elements by their hashes, if the collection counts them
	open   []opened // draws whose points are passed and whose elements are not found, the highest one last
	held   []byte   // names and values of elements found
	hash   [keys.HashLen]byte
}

// arc is a range of hashes and the number of elements in it.
type arc struct {
	first uint32
	width int64 // in hashes
	n     int64
}

// draw is one that has been drawn: a point of an arc, and where its element's name and value are in the memory for them.
type draw struct {
	arc              arc
	point            int64
	turn             int // of the draws of this time
	name, value, end int // end is 0 if they are not there
}

// opened is a draw that waits for its element.
type opened struct {
	draw   *draw
	height int64 // its point, less the points that the elements passed before it take
}

const (
	// sampleOnce is how many draws sample sorts at once.
	sampleOnce = 1024
	// sampleBytes is about how much memory it takes for their names and values.
	sampleBytes = 1 << 20
	// seekSteps is how many steps cost as much as a seek.
	seekSteps = 16
)

// begin prepares for draws.
func (x *draws) begin() (err error) {
	if x.c.Size > countFrom {
		if x.parts, err = x.c.parts(make([]uint64, 0, keys.HashParts)); err == nil && x.parts == nil {
			err = x.c.miscounts(nil)
		}
	}
	return err
}

// sample does what collection.sample does. It draws many points, then finds their elements in order, and replies them
// in the order in which they were drawn.
func (x *draws) sample(n int64, by *rand.Rand, out *Reply, f func(name, value []byte)) error {
	if n == 1 || n == -1 {
		var one [1]draw
		if err := x.draw(&one[0], by); err != nil {
			return err
		}
		return x.find(one[:], f)
	}
	var taken map[string]bool
	if n > 1 {
		taken = make(map[string]bool)
	}
	var list []draw
	for left := max(n, -n); left > 0 && !out.Full; {
		list, x.held = list[:0], x.held[:0]
		for turn := range int(min(left, sampleOnce)) {
			list = append(list, draw{turn: turn})
			if err := x.draw(&list[turn], by); err != nil {
				return err
			}
		}
		slices.SortFunc(list, func(a, b draw) int {
			return cmp.Or(cmp.Compare(a.arc.first, b.arc.first), cmp.Compare(a.point, b.point))
		})
		for some := list; len(some) > 0; {
			n := 1
			for n < len(some) && some[n].arc.first == some[0].arc.first {
				n++
			}
			if err := x.find(some[:n], nil); err != nil {
				return err
			}
			some = some[n:]
		}
		slices.SortFunc(list, func(a, b draw) int { return cmp.Compare(a.turn, b.turn) })
		reply := func(name, value []byte) {
			if taken[string(name)] {
				return
			}
			if taken != nil {
				taken[string(name)] = true
			}
			f(name, value)
			left--
		}
		for i := 0; i < len(list) && !out.Full; i++ {
			if d := &list[i]; d.end > 0 {
				reply(x.held[d.name:d.value], x.held[d.value:d.end])
			} else if err := x.find(list[i:i+1], reply); err != nil {
				return err
			}
		}
	}
	return nil
}

// draw draws a point. All points of all arcs are equally likely.
func (x *draws) draw(d *draw, by *rand.Rand) error {
	number := int64(by.Uint64N(x.c.Size))
	d.arc = arc{width: 1 << 32, n: int64(x.c.Size)}
	if x.parts != nil {
		d.arc = arc{width: keys.PartHashes}
		for part, n := range x.parts {
			if d.arc.first, d.arc.n = uint32(part)*keys.PartHashes, int64(n); number < d.arc.n {
				break
			}
			number -= d.arc.n
		}
	}
	if number >= d.arc.n {
		return x.c.miscounted(x.c.Size - uint64(number))
	}
	d.point = number*d.arc.width + by.Int64N(d.arc.width)
	return nil
}

// find finds the elements of some draws of one arc, which are in the order of their points. It calls f with name and
// value. If f is nil, it keeps them in memory, while there is room.
func (x *draws) find(list []draw, f func(name, value []byte)) error {
	a, passed, from := list[0].arc, int64(0), list[0].point/list[0].arc.n+1
	opens := func(to int64) {
		for len(list) > 0 && list[0].point < to*a.n {
			x.open = append(x.open, opened{&list[0], list[0].point - passed*a.width})
			list = list[1:]
		}
	}
	for turn := range int64(2) {
		for ok := x.seek(a, from); ok; {
			at := int64(binary.BigEndian.Uint32(x.e.sub())) - int64(a.first)
			if at >= a.width {
				break
			}
			at += turn * a.width
			opens(at)
			passed++
			if err := x.close(at*a.n-passed*a.width, f); err != nil {
				return err
			}
			if len(x.open) == 0 {
				if len(list) == 0 {
					return nil
				}
				if from = list[0].point/a.n + 1; from-at > a.width/a.n*seekSteps {
					ok = x.seek(a, from)
					continue
				}
			}
			ok = x.e.Next()
		}
		if err := x.e.Error(); err != nil {
			return err
		}
		opens(a.width)
		from = 0
	}
	return x.c.miscounted(uint64(passed))
}

// seek moves to the first element from a hash of an arc on, or returns false if there is none in the arc.
func (x *draws) seek(a arc, hash int64) bool {
	if hash >= a.width {
		return false
	}
	binary.BigEndian.PutUint32(x.hash[:], a.first+uint32(hash))
	return x.e.Seek(x.hash[:])
}

// close finds the draws whose points the present element takes: those that are not lower than a height.
func (x *draws) close(height int64, f func(name, value []byte)) (err error) {
	var first *draw
	for n := len(x.open); n > 0 && x.open[n-1].height >= height; n-- {
		d := x.open[n-1].draw
		x.open = x.open[:n-1]
		if first != nil {
			d.name, d.value, d.end = first.name, first.value, first.end
			continue
		}
		first = d
		var value []byte
		if x.values {
			if value, err = x.e.ValueAndErr(); err != nil {
				return err
			}
		}
		switch name := x.e.sub()[keys.HashLen:]; {
		case f != nil:
			f(name, value)
		case len(x.held) < sampleBytes:
			d.name = len(x.held)
			x.held = append(x.held, name...)
			d.value = len(x.held)
			x.held = append(x.held, value...)
			d.end = len(x.held)
		}
	}
	return nil
}

// randomElements runs HRANDFIELD, SRANDMEMBER and ZRANDMEMBER. option is the word with which a client asks for values,
// empty for a set. value replies the value of an element.
func (r *Reader) randomElements(args [][]byte, t keys.Type, option string, value func(*Reply, []byte),
	out *Reply) error {
	n, pairs, ok := parseSample(args, option, out)
	if !ok {
		return nil
	}
	var c collection
	if ok, err := r.open(&c, args[1], t, out); !ok {
		return err
	}
	switch {
	case len(args) > 2:
		c.openSample(n, pairs, out)
	case c.Size == 0:
		out.Null()
	}
	return c.sample(n, pairs, r.random(), out, func(name, held []byte) {
		if pairs && out.Proto == 3 {
			out.Array(2)
		}
		out.Bulk(name)
		if pairs {
			value(out, held)
		}
	})
}

// parseSample reads what follows the key of such a command: a count, and the option if name is not empty.
func parseSample(args [][]byte, name string, out *Reply) (n int64, option, ok bool) {
	if len(args) == 2 {
		return 1, false, true
	}
	n, ok = ParseInt(args[2])
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

// openSample opens the array of a sample of n elements, as sample counts them; each takes two places if pairs is set.
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
