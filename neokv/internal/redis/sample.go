package redis

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"neokv.dev/neokv/internal/keys"
)

// This file is random elements of collections: what HRANDFIELD, SRANDMEMBER, ZRANDMEMBER and SPOP choose.

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
	if w.MapOrder {
		for n := range map[uint64]bool{1: true, 2: true, 3: true, 4: true} {
			w.numbers.Seed(n, w.Index)
		}
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
	err := c.each(nil, func(sub, value []byte) bool {
		if rng.Uint64N(left) < n {
			f(sub, value)
			n--
		}
		left--
		return n > 0 && left > 0 && !out.Full
	})
	if err == nil && n > 0 && !out.Full {
		err = c.miscounted(c.Size - left)
	}
	return err
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
		for steps := 0; taken[string(e.sub())]; steps++ { // on to the next one that is not, and there is one
			if steps > len(taken) || !e.Next() && !e.First() {
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
