package redis

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"neokv.dev/neokv/internal/keys"
)

// This file chooses random elements of collections, for HRANDFIELD, SRANDMEMBER, ZRANDMEMBER and SPOP.

// random returns the source of a read's random choices.
func (r *Reader) random() *rand.Rand {
	if r.chance == nil {
		r.chance = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
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
	// pickExact is the number of elements up to which pick steps through all of them, so that each is exactly as likely
	// as any other.
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

// inHashes is the elements of a set or a hash in the engine.
type inHashes struct {
	elements
	key []byte // scratch, with what all keys begin with
}

func (e *inHashes) at(sub []byte) []byte {
	e.key = append(e.key[:e.front], sub...)
	return e.key
}

func (e *inHashes) Seek(sub []byte) bool       { return e.SeekGE(e.at(sub)) }
func (e *inHashes) SeekBefore(sub []byte) bool { return e.SeekLT(e.at(sub)) }

// inRanks is the members of a sorted set in the order of their ranks, with their scores as values.
type inRanks struct {
	inHashes
	score []byte
}

func (e *inRanks) name() []byte {
	place := e.sub()
	return place[min(scoreBytes, len(place)):]
}

func (e *inRanks) ValueAndErr() ([]byte, error) {
	score, _, err := e.scored()
	e.score = keys.AppendScore(e.score[:0], score)
	return e.score, err
}

// ordered returns all elements.
func (c *collection) ordered() (ordered, error) {
	if c.kept != nil {
		return c.kept, nil
	}
	ks := keys.Data
	if c.Type == keys.ZSet {
		ks = keys.ZSetScore
	}
	e, err := c.elements(ks, nil, nil)
	all := inHashes{e, c.key[:c.front]}
	if c.Type == keys.ZSet {
		return &inRanks{inHashes: all}, err
	}
	return &all, err
}

// pick returns the name of a random element of a collection that has some, and leaves e there. It is valid until e
// moves.
//
// In a sorted set all members are equally likely, by their ranks. In a larger set or hash, pick takes a random hash,
// and chooses one of the pickSpread elements around it; the first element follows the last. So how likely an element is
// depends on how far apart the hashes of the pickSpread elements around it are. That is the sum of as many almost
// independent, exponentially distributed gaps, whatever the names are like: of ten million elements none is twice as
// likely as the mean, or less than 0.45 times, but for one case in a hundred thousand.
func (c *collection) pick(e ordered, by *rand.Rand) (name []byte, err error) {
	var ok, back bool
	var steps uint64
	switch s, ranked := e.(*inRanks); {
	case ranked:
		ok, err = c.toRank(&s.elements, by.Uint64N(c.Size))
	case c.Size <= pickExact:
		if steps = by.Uint64N(c.Size); steps < c.Size/2 {
			ok = e.First()
		} else {
			ok, back, steps = e.Last(), true, c.Size-1-steps
		}
	default:
		var hash [keys.HashLen]byte
		binary.BigEndian.PutUint32(hash[:], by.Uint32())
		if steps = by.Uint64N(pickSpread); steps < pickSpread/2 {
			ok = e.Seek(hash[:]) || e.First()
		} else {
			ok, back, steps = e.SeekBefore(hash[:]) || e.Last(), true, pickSpread-1-steps
		}
	}
	for ; ok && steps > 0; steps-- {
		if back {
			ok = e.Prev() || e.Last()
		} else {
			ok = e.Next() || e.First()
		}
	}
	if err = errors.Join(err, e.Error()); err == nil && !ok {
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
	e, err := c.ordered()
	if err != nil {
		return err
	}
	err = c.picks(e, n, values, by, out, f)
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
