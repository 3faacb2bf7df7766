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
	if r.unit != nil {
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
	// pickExact is the number of elements up to which sample numbers them all, so that each is exactly as likely as any
	// other. It does so in sorted sets of any size.
	pickExact = 128
	// pickSpread is how many elements pick chooses from in a larger set or hash.
	pickSpread = 100
	// pickAgain is how often picks draws an element anew that it has already.
	pickAgain = 16
)

// ordered goes over all elements of a collection: those in the engine or, for SPOP, the subkeys in the pop cache, which
// come in the same order and have no values.
type ordered interface {
	First() bool
	Last() bool
	Next() bool
	Prev() bool
	Seek(sub []byte) bool       // to the first element whose subkey is not smaller
	SeekBefore(sub []byte) bool // to the last element whose subkey is smaller
	name() []byte               // valid until the next move
	ValueAndErr() ([]byte, error)
	Error() error
	Close() error
}

// inEngine is the elements in the engine: in the order of their hashes or, of a sorted set with counts, of their ranks.
type inEngine struct {
	elements
	ks    keys.Keyspace
	key   []byte // scratch, with what all keys begin with
	score []byte // scratch
}

func (e *inEngine) at(sub []byte) []byte {
	e.key = append(e.key[:e.front], sub...)
	e.key[0] = byte(e.ks)
	return e.key
}

func (e *inEngine) Seek(sub []byte) bool       { return e.SeekGE(e.at(sub)) }
func (e *inEngine) SeekBefore(sub []byte) bool { return e.SeekLT(e.at(sub)) }

// ValueAndErr returns the value of an element. That of a member of a sorted set is its score.
func (e *inEngine) ValueAndErr() ([]byte, error) {
	if e.ks == keys.Data {
		return e.elements.ValueAndErr()
	}
	score, _, err := e.scored()
	e.score = keys.AppendScore(e.score[:0], score)
	return e.score, err
}

// ordered returns all elements, in the order of their hashes or, from redis_zset_score, of their ranks.
func (c *collection) ordered(ks keys.Keyspace) (ordered, error) {
	if c.kept != nil {
		return c.kept, nil
	}
	e, err := c.elements(ks, nil, nil)
	if ks != keys.Data {
		e.hash = scoreBytes // comes before the name in its place
	}
	return &inEngine{elements: e, ks: ks, key: c.key[:c.front]}, err
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
	return e.name(), nil
}

// sampleWhole is the size of a collection up to which sample reads all elements to choose several.
const sampleWhole = 1024

// sample calls f with random elements, for a reply that has announced them (openSample). A negative n means -n
// elements, which may repeat. Otherwise sample chooses n different ones, or all where there are fewer. It ends early
// where the reply is full. The value that f gets means nothing unless values is set.
func (c *collection) sample(n int64, values bool, by *rand.Rand, out *Reply, f func(name, value []byte)) error {
	switch {
	case n == 0 || c.Size == 0:
		return nil
	case n > 0 && uint64(n) >= c.Size:
		return c.all(out, f)
	case n > 0 && (uint64(n) > c.Size/3 || c.Size <= sampleWhole && n > 1):
		return c.sampleOf(uint64(n), by, out, f)
	}
	ks := keys.Data
	if c.ranked() {
		ks = keys.ZSetScore
	}
	e, err := c.ordered(ks)
	if err != nil {
		return err
	}
	if c.Type == keys.ZSet || c.Size <= pickExact {
		x := numbered{c: c, e: e, walk: blockWalk{c: c}}
		err = errors.Join(x.sample(n, values, by, out, f), x.walk.close())
	} else {
		err = c.picks(e, n, values, by, out, f)
	}
	return errors.Join(err, e.Close())
}

// sampleOf does what sample does, by going over all elements. It takes each with the probability that makes all choices
// equally likely.
func (c *collection) sampleOf(n uint64, by *rand.Rand, out *Reply, f func(name, value []byte)) error {
	e, err := c.ordered(keys.Data)
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
			f(e.name(), value)
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
				if name = e.name(); tries > pickAgain+len(taken) {
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

// numbered goes to elements by their numbers in the order of e, which begin with 0.
type numbered struct {
	c     *collection
	e     ordered
	on    bool // e stands on the element of number at
	at    uint64
	block span // the last one; n is 0 if there is none
	walk  blockWalk
	hash  [2][keys.HashLen]byte
}

// span is a range of elements, from the one that is not smaller than a subkey to the last one below another. A nil
// subkey is none.
type span struct {
	first, end []byte
	at, n      uint64 // number of the first element, and how many there are
}

// draw is an element that sample has drawn: where its name and its value are in the memory for them.
type draw struct {
	number           uint64
	turn             int // of the draws of this time
	name, value, end int // end is 0 if they are not there
}

const (
	// sampleOnce is how many draws sample sorts at once.
	sampleOnce = 1024
	// sampleBytes is about how much memory it takes for their names and values.
	sampleBytes = 1 << 20
)

// sample does what collection.sample does. All elements are equally likely. It draws many numbers, then goes to their
// elements in order, and replies them in the order in which they were drawn.
func (x *numbered) sample(n int64, values bool, by *rand.Rand, out *Reply, f func(name, value []byte)) error {
	var taken map[uint64]bool
	if n > 1 {
		taken = make(map[uint64]bool)
	}
	var draws []draw
	var held []byte
	for left := max(n, -n); left > 0 && !out.Full; left -= int64(len(draws)) {
		draws, held = draws[:0], held[:0]
		for turn := range int(min(left, sampleOnce)) {
			number := by.Uint64N(x.c.Size)
			for taken[number] { // of at most a third
				number = by.Uint64N(x.c.Size)
			}
			if taken != nil {
				taken[number] = true
			}
			draws = append(draws, draw{number: number, turn: turn})
		}
		if len(draws) > 1 {
			slices.SortFunc(draws, func(a, b draw) int { return cmp.Compare(a.number, b.number) })
			for i := range draws {
				d := &draws[i]
				switch before := &draws[max(i, 1)-1]; {
				case i > 0 && before.number == d.number:
					d.name, d.value, d.end = before.name, before.value, before.end
				case len(held) < sampleBytes:
					name, value, err := x.to(d.number, values)
					if err != nil {
						return err
					}
					d.name = len(held)
					held = append(held, name...)
					d.value = len(held)
					held = append(held, value...)
					d.end = len(held)
				}
			}
			slices.SortFunc(draws, func(a, b draw) int { return cmp.Compare(a.turn, b.turn) })
		}
		for i := 0; i < len(draws) && !out.Full; i++ {
			d := &draws[i]
			if d.end > 0 {
				f(held[d.name:d.value], held[d.value:d.end])
				continue
			}
			name, value, err := x.to(d.number, values)
			if err != nil {
				return err
			}
			f(name, value)
		}
	}
	return nil
}

// to returns name and value of the element of a number. They are valid until the next move.
func (x *numbered) to(number uint64, values bool) (name, value []byte, err error) {
	ok := false
	s, err := x.around(number)
	if err != nil {
		return nil, nil, err
	}
	steps, back := number-s.at, s.at+s.n-1-number
	move := x.e.Next
	switch near := min(steps, back); {
	case x.on && number >= x.at && number-x.at <= near+seekSteps:
		ok, steps = true, number-x.at
	case near == steps && s.first == nil:
		ok = x.e.First()
	case near == steps:
		ok = x.e.Seek(s.first)
	case s.end == nil:
		ok, move, steps = x.e.Last(), x.e.Prev, back
	default:
		ok, move, steps = x.e.SeekBefore(s.end), x.e.Prev, back
	}
	for ; ok && steps > 0; steps-- {
		ok = move()
	}
	if err := x.e.Error(); err != nil {
		return nil, nil, err
	}
	if !ok {
		return nil, nil, x.c.miscounted(number)
	}
	x.on, x.at = true, number
	if values {
		if value, err = x.e.ValueAndErr(); err != nil {
			return nil, nil, err
		}
	}
	return x.e.name(), value, nil
}

// around returns a range of elements that has that of a number, as small as is known. It is valid until the next call.
func (x *numbered) around(number uint64) (*span, error) {
	c, s := x.c, &x.block
	if s.n > 0 && number >= s.at && number-s.at < s.n {
		return s, nil
	}
	switch {
	case c.ranked():
		var counted bool
		var err error
		if *s, counted, err = x.walk.to(number); err == nil && !counted {
			err = c.miscounts(nil)
		}
		return s, err
	case !c.spread():
		*s = span{n: c.Size}
		return s, nil
	}
	*s = span{}
	for part, n := range c.Spread {
		if s.n = uint64(n); number-s.at < s.n {
			if part > 0 {
				s.first = binary.BigEndian.AppendUint32(x.hash[0][:0], c.Spread.Hash(part))
			}
			if part++; part < len(c.Spread) {
				s.end = binary.BigEndian.AppendUint32(x.hash[1][:0], c.Spread.Hash(part))
			}
			return s, nil
		}
		s.at += s.n
	}
	return nil, c.miscounted(s.at)
}

// seekSteps is how many steps cost as much as a seek.
const seekSteps = 8

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
