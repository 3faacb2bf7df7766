package redis

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"neokv.dev/neokv/internal/keys"
)

// This file chooses random elements of collections, for HRANDFIELD, SRANDMEMBER, ZRANDMEMBER and SPOP.

// choice draws random elements.
type choice struct {
	*rand.Rand
	// first and last are the first and the last subkey that a version had; guess goes by them. They may have been
	// removed meanwhile, but no subkey has been added before first or after last. They may also be of another key with
	// the same version (see popcache.go): then guesses are bad, which costs time and nothing else.
	version     uint64 // 0: not known
	first, last []byte
}

// release gives up first and last if they are too large to be kept. It goes by their lengths, not their capacities:
// capacities differ between replicas, and guesses must not.
func (by *choice) release() {
	if len(by.first)+len(by.last) > keptBufferBytes {
		by.version, by.first, by.last = 0, nil, nil
	}
}

// random returns the source of a read's random choices.
func (r *Reader) random() *choice {
	if r.choice.Rand == nil {
		r.choice.Rand = rand.New(rand.NewPCG(rand.Uint64(), rand.Uint64()))
	}
	return &r.choice
}

// random returns the source of a write's random choices. It is seeded from the log entry, so that all replicas choose
// the same.
func (w *Writer) random() *choice {
	if w.choice.Rand == nil {
		w.choice.Rand = rand.New(&w.numbers)
	}
	if w.seeded != w.Index {
		w.seeded, w.choice.version = w.Index, 0
		w.numbers.Seed(w.VersionBase, w.Index)
	}
	if w.MapOrder {
		for n := range map[uint64]bool{1: true, 2: true, 3: true, 4: true} {
			w.numbers.Seed(n, w.Index)
		}
	}
	return &w.choice
}

// AppendChoice appends the state from which, together with the entry, the next random choice of the present entry
// follows. It appends nothing if the entry has made no choice.
//
//	[state of the generator 20 bytes][version u64][first subkey length uvarint][first subkey][last subkey]
func (w *Writer) AppendChoice(dst []byte) []byte {
	if w.seeded != w.Index {
		return dst
	}
	dst, _ = w.numbers.AppendBinary(dst) // it has no errors
	dst = binary.BigEndian.AppendUint64(dst, w.choice.version)
	dst = binary.AppendUvarint(dst, uint64(len(w.choice.first)))
	return append(append(dst, w.choice.first...), w.choice.last...)
}

// RestoreChoice restores the state that AppendChoice appended after some calls of the present entry. It copies choice.
func (w *Writer) RestoreChoice(choice []byte) error {
	if len(choice) == 0 {
		return nil
	}
	const fixed = pcgBytes + 8
	if len(choice) <= fixed {
		return fmt.Errorf("random choice: %d bytes, want more than %d", len(choice), fixed)
	}
	if err := w.numbers.UnmarshalBinary(choice[:pcgBytes]); err != nil {
		return fmt.Errorf("random choice: %w", err)
	}
	n, size := binary.Uvarint(choice[fixed:])
	subkeys := choice[fixed+max(size, 0):]
	if size <= 0 || n > uint64(len(subkeys)) {
		return fmt.Errorf("random choice: it is cut short")
	}
	w.seeded, w.choice.version = w.Index, binary.BigEndian.Uint64(choice[pcgBytes:])
	w.choice.first = append(w.choice.first[:0], subkeys[:n]...)
	w.choice.last = append(w.choice.last[:0], subkeys[n:]...)
	return nil
}

// pcgBytes is the length of the generator's state, in the generator's own encoding.
const pcgBytes = 20

const (
	// pickFew is the number of elements up to which pick steps through all of them to draw one.
	pickFew = 64
	// pickTries is how often branch tries a random byte, and pick a random guess, before they look at what is there.
	pickTries = 6
	// pickNear is how many elements may begin with a guess.
	pickNear = 8
	// pickSure makes pick go without a guess once in so many cases.
	pickSure = 32
)

// pick returns a random subkey of the data keyspace, of a collection that has some. It is valid until the next call on
// c or e.
//
// Subkeys are the leaves of a tree. In a large collection, pick goes down that tree, and at each fork draws one of the
// ways, all equally likely. So it can meet every element, and it meets elements about equally often if their subkeys
// are like numbers or hashes. It costs some seeks, however many elements there are. Mostly pick guesses several ways at
// once, by the bytes that the first and the last subkey let it expect. One seek finds what begins with the guess, or,
// if nothing does, how much of the guess is right. An element that no guess leads to is met when pick goes down from
// the root without one.
func (c *collection) pick(e ordered, by *choice) (sub []byte, err error) {
	if c.Size <= pickFew {
		if !e.First() {
			return nil, errors.Join(e.Error(), c.miscounted(0))
		}
		for n := by.Uint64N(c.Size); n > 0; n-- {
			if !e.Next() {
				return nil, errors.Join(e.Error(), c.miscounted(c.Size-n))
			}
		}
		return e.sub(), nil
	}
	root := c.front
	if by.IntN(pickSure) > 0 {
		if by.version != c.Version {
			if !e.First() {
				return nil, errors.Join(e.Error(), c.miscounted(0))
			}
			by.first = append(by.first[:0], e.sub()...)
			if !e.Last() {
				return nil, errors.Join(e.Error(), c.miscounted(0))
			}
			by.last, by.version = append(by.last[:0], e.sub()...), c.Version
		}
		for range pickTries {
			c.key = by.guess(c.key[:root], c.front, c.Size)
			if !e.SeekGE(c.key) {
				continue
			}
			shared := commonBytes(e.Key(), c.key)
			if root = max(root, shared); shared == len(c.key) {
				if sub = c.among(e, by); sub != nil {
					return sub, e.Error()
				}
				break
			}
		}
	}
	return c.descend(e, by, root)
}

// guess draws a prefix with which a few of size subkeys should begin. The bytes of key after front are drawn already,
// and some subkeys begin with them.
func (by *choice) guess(key []byte, front int, size uint64) []byte {
	n := commonBytes(by.first, by.last)
	if len(key)-front < n {
		key = append(key[:front], by.first[:n]...)
	}
	if n == len(by.last) {
		return key
	}
	high := by.last[n]
	low := lowest(high)
	if n < len(by.first) {
		low = by.first[n]
	}
	// guess expects the bytes after n to be like the byte at n, or like those of the first or the last subkey. If it
	// expects one digit, it expects all digits.
	for i, met := n, uint64(1); met*pickNear < size && i < max(len(by.first), len(by.last)); i++ {
		if i > n {
			for _, sub := range [...][]byte{by.first, by.last} {
				if i < len(sub) {
					low, high = min(low, sub[i]), max(high, sub[i])
				}
			}
			if low = min(low, lowest(low)); high >= '0' && high <= '9' {
				high = '9'
			}
		}
		gap := 0 // between the digits and the letters of hexadecimal numbers
		if lowest(low) == '0' && high >= 'a' && high <= 'f' {
			gap = 'a' - '9' - 1
		}
		ways := int(high) - int(low) + 1 - gap
		met *= uint64(ways)
		if front+i < len(key) {
			continue
		}
		b := int(low) + by.IntN(ways)
		if gap > 0 && b > '9' {
			b += gap
		}
		key = append(key, byte(b))
	}
	return key
}

// lowest returns '0' if b is a digit, else b.
func lowest(b byte) byte {
	if b >= '0' && b <= '9' {
		return '0'
	}
	return b
}

func commonBytes(a, b []byte) (n int) {
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}

// among draws one of the elements that begin with c.key. The iterator stands on the first of them. If there are too
// many, among returns nil.
func (c *collection) among(e ordered, by *choice) (sub []byte) {
	sub = append(c.bound[:0], e.sub()...)
	c.bound = sub
	for n := 2; e.Next() && bytes.HasPrefix(e.Key(), c.key); n++ {
		if n > pickFew {
			return nil
		}
		if by.IntN(n) == 0 {
			sub = append(sub[:0], e.sub()...)
			c.bound = sub
		}
	}
	return sub
}

// descend does what pick does, from the fork of the tree on to which the first root bytes of c.key lead.
func (c *collection) descend(e ordered, by *choice, root int) (sub []byte, err error) {
	c.key = c.key[:root]
	if !e.SeekGE(c.key) {
		return nil, errors.Join(e.Error(), c.miscounted(0))
	}
	first := append(c.bound[:0], e.Key()...) // the first of the elements that are left
	c.key = keys.Successor(c.key)
	more := e.SeekLT(c.key)
	for more {
		last := e.Key()
		n := commonBytes(first, last)
		if n == len(last) { // first and last are the same
			break
		}
		low := -1 // the first element is the one that ends here
		if n < len(first) {
			low = int(first[n])
		}
		c.key = append(c.key[:0], first[:n]...)
		drawn := c.branch(e, by, low, int(last[n]))
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
		return nil, errors.Join(e.Error(), fmt.Errorf("%v %q: elements are gone while one is picked", c.Type, c.user))
	}
	return e.sub(), nil
}

// branch draws one of the bytes that follow c.key in subkeys, all equally likely, and moves the iterator to the first
// element with it. low is the smallest of these bytes, or -1 if a subkey ends there, and high the largest.
func (c *collection) branch(e ordered, by *choice, low, high int) (drawn int) {
	n := len(c.key)
	seek := func(b int) bool {
		c.key = append(c.key[:n], byte(b))
		return e.SeekGE(c.key)
	}
	for range pickTries {
		if drawn = low + by.IntN(high-low+1); drawn < 0 || seek(drawn) && int(e.Key()[n]) == drawn {
			return drawn
		}
	}
	drawn = low // most bytes do not occur: seek each one that does
	for b, ways := low, 1; b < high; {
		if !seek(b + 1) {
			break
		}
		b = int(e.Key()[n])
		if ways++; by.IntN(ways) == 0 {
			drawn = b
		}
	}
	if drawn >= 0 {
		seek(drawn)
	}
	return drawn
}

// sampleWhole is the size of a collection up to which sample reads all elements to choose several.
const sampleWhole = 1024

// sample calls f with random elements, for a reply that has announced them (openSample). A negative n means -n
// elements, which may repeat. Otherwise sample chooses n different ones, or all where there are fewer. It ends early
// where the reply is full. The value that f gets means nothing unless values is set.
func (c *collection) sample(n int64, values bool, by *choice, out *Reply, f func(sub, value []byte)) error {
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
func (c *collection) sampleOf(n uint64, by *choice, out *Reply, f func(sub, value []byte)) error {
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
			f(e.sub(), value)
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

// picks does what sample does, by picking one element at a time.
func (c *collection) picks(e ordered, n int64, values bool, by *choice, out *Reply, f func(sub, value []byte)) error {
	var taken map[string]bool
	if n > 1 {
		taken = make(map[string]bool)
	}
	for left := max(n, -n); left > 0 && !out.Full; left-- {
		sub, err := c.pick(e, by)
		if err != nil {
			return err
		}
		for steps := 0; taken[string(sub)]; steps++ { // on to the next one that is not taken
			if steps == 0 {
				e.SeekGE(c.at(sub))
			}
			if steps > len(taken) || !e.Next() && !e.First() {
				return errors.Join(e.Error(), c.miscounted(uint64(len(taken))))
			}
			sub = e.sub()
		}
		if taken != nil {
			taken[string(sub)] = true
		}
		var value []byte
		if values {
			if !e.SeekGE(c.at(sub)) {
				return errors.Join(e.Error(), c.miscounted(0))
			}
			if value, err = e.ValueAndErr(); err != nil {
				return err
			}
			sub = e.sub()
		}
		f(sub, value)
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
	return c.sample(n, pairs, r.random(), out, func(sub, held []byte) {
		if pairs && out.Proto == 3 {
			out.Array(2)
		}
		out.Bulk(sub)
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
