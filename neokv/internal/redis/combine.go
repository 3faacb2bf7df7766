package redis

import (
	"bytes"
	"cmp"
	"errors"
	"slices"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file has unions, intersections and differences of sets and sorted sets. All keep their members in the same
// order, that of subkeys, so a union goes through its inputs side by side. At most maxSideBySide inputs are open at a
// time. If there are more, or if members of one input must be looked up in the others, the result is made window by
// window. A window has the next members of the result, or candidates for it, up to a bound of memory. The code goes
// through all inputs for a window, some inputs at a time, hands the window on, and begins the next one. So memory stays
// bounded, however many inputs there are and however large they are.

// maxSideBySide is how many inputs are open at once; each takes an iterator. It is a variable for tests alone, as
// windowBytes is.
var maxSideBySide = 64

// windowBytes has the sizes of the first and of the largest window. Each window is twice as large as the one before it.
// A window may exceed its size by one member.
var windowBytes = struct{ first, most int }{16 << 10, 1 << 20}

// opener loads records and opens collections: a Reader or a Writer.
type opener interface {
	readIn(slot topology.Slot, key []byte) (record, error)
	begin(c *collection, slot topology.Slot, key []byte, rec *record, s *scratch)
	scratch() *scratch
	watch() *engine.Work // counts what the call does
	spend(n int) error   // see writeLimit
}

func (r *Reader) scratch() *scratch { return &r.opened }
func (w *Writer) scratch() *scratch { return &w.opened }

func (r *Reader) watch() *engine.Work { return r.work }
func (w *Writer) watch() *engine.Work { return w.Work }

// inputs are the sets and sorted sets that a result is made of.
type inputs struct {
	from      opener
	all       []input
	aggregate func(a, b float64) float64 // of the scores of a member

	opened []collection // scratch
	used   int          // how many of the call's scratch buffers others use
}

// input is one of them. It is opened only when it is gone through, since a command may name any number of inputs.
type input struct {
	user          []byte
	of            keys.Type
	version, size uint64 // 0 if the key is absent
	weight        float64
}

// combination makes a result of inputs: it calls f with the members of the result, in the order of their subkeys, until
// f returns false. The arguments of f are valid during the call.
type combination func(x *inputs, f func(member []byte, score float64) (more bool, err error)) error

// openInputs loads the records of some keys. If one of them is not of the type that t says, it returns false, and
// appends Redis's error to out.
func openInputs(o opener, names [][]byte, t func(*record) keys.Type, out *Reply) (x *inputs, ok bool, err error) {
	x = &inputs{from: o, all: make([]input, len(names)), aggregate: sum}
	for i, name := range names {
		rec, err := o.readIn(topology.SlotOf(name), name)
		if err != nil || rec.isNot(t(&rec), out) {
			return nil, false, err
		}
		if x.all[i] = (input{user: name, of: t(&rec), weight: 1}); rec.live {
			x.all[i].version, x.all[i].size = rec.Version, rec.Size
		}
	}
	return x, true, nil
}

// open opens up to maxSideBySide inputs. They are valid until the next call.
func (x *inputs) open(some []input) []collection {
	s := x.from.scratch()
	if x.opened != nil {
		s.used = x.used
	}
	x.used, x.opened = s.used, slices.Grow(x.opened[:0], len(some))[:len(some)]
	for i := range some {
		in := &some[i]
		rec := record{stored: true, live: true}
		rec.Type, rec.Version, rec.Size = in.of, in.version, in.size
		x.from.begin(&x.opened[i], topology.SlotOf(in.user), in.user, &rec, s)
	}
	return x.opened
}

// window is some members in order, by their subkeys, with their scores.
type window struct {
	subs   []byte
	ends   []int
	scores []float64
	most   int  // bytes
	cut    bool // there may be more members behind
}

func (w *window) reset(most int) {
	w.subs, w.ends, w.scores, w.most, w.cut = w.subs[:0], w.ends[:0], w.scores[:0], most, false
}

func (w *window) at(i int) []byte {
	start := 0
	if i > 0 {
		start = w.ends[i-1]
	}
	return w.subs[start:w.ends[i]]
}

// add adds the next member, unless the window is full.
func (w *window) add(sub []byte, score float64) (more bool) {
	const beside = 16
	if len(w.subs)+beside*len(w.ends) >= w.most {
		w.cut = true
		return false
	}
	w.subs = append(w.subs, sub...)
	w.ends, w.scores = append(w.ends, len(w.subs)), append(w.scores, score)
	return true
}

// each calls f with the members until f returns false.
func (w *window) each(f func(member []byte, score float64) (bool, error)) (more bool, err error) {
	for i, score := range w.scores {
		if more, err := f(nameIn(w.at(i)), score); err != nil || !more {
			return false, err
		}
	}
	return true, nil
}

// behind returns the smallest subkey that is larger than another.
func behind(dst, sub []byte) []byte { return append(append(dst[:0], sub...), 0) }

// nameIn returns the member in its subkey.
func nameIn(sub []byte) []byte { return sub[min(keys.HashLen, len(sub)):] }

// union is the combination of all members that any input has.
func (x *inputs) union(f func(member []byte, score float64) (bool, error)) error {
	x.all = slices.DeleteFunc(x.all, func(in input) bool { return in.size == 0 })
	x.sort()
	if len(x.all) <= maxSideBySide {
		return x.unionOfFew(f)
	}
	var found, next window
	var from []byte
	for most := windowBytes.first; ; most = min(2*most, windowBytes.most) {
		found.reset(most)
		for some := range slices.Chunk(x.all, maxSideBySide) {
			if err := x.unite(&next, &found, some, from); err != nil {
				return err
			}
			found, next = next, found
		}
		if more, err := found.each(f); err != nil || !more || !found.cut {
			return err
		}
		from = behind(from, found.at(len(found.ends)-1))
	}
}

// sort puts the inputs in the order in which scores are added up: the smallest input first.
func (x *inputs) sort() {
	slices.SortStableFunc(x.all, watched(x.from.watch(), func(a, b input) int { return cmp.Compare(a.size, b.size) }))
}

func (x *inputs) unionOfFew(f func(member []byte, score float64) (bool, error)) error {
	var last []byte
	var total float64
	begun, more := false, true
	err := merge(x.open(x.all), nil, func(i int, sub []byte, score float64) (_ bool, err error) {
		if err := x.from.spend(cost(len(sub))); err != nil {
			return false, err
		}
		score = weighted(score, x.all[i].weight)
		if begun && bytes.Equal(sub, last) {
			total = x.aggregate(total, score)
			return true, nil
		}
		if begun {
			if more, err = f(nameIn(last), total); err != nil || !more {
				return false, err
			}
		}
		begun, last, total = true, append(last[:0], sub...), score
		return true, nil
	})
	if err == nil && begun && more {
		_, err = f(nameIn(last), total)
	}
	return err
}

// unite sets next to the union of the window found and of the members that some inputs have from the subkey from on.
func (x *inputs) unite(next, found *window, some []input, from []byte) error {
	if err := x.from.spend(openUnits * len(some)); err != nil {
		return err
	}
	next.reset(found.most)
	i := 0 // how many members of found next has
	take := func() bool {
		i++
		return next.add(found.at(i-1), found.scores[i-1])
	}
	err := merge(x.open(some), from, func(k int, sub []byte, score float64) (bool, error) {
		if err := x.from.spend(cost(len(sub))); err != nil {
			return false, err
		}
		for i < len(found.ends) && bytes.Compare(found.at(i), sub) <= 0 {
			if !take() {
				return false, nil
			}
		}
		score = weighted(score, some[k].weight)
		if last := len(next.ends) - 1; last >= 0 && bytes.Equal(next.at(last), sub) {
			next.scores[last] = x.aggregate(next.scores[last], score)
			return true, nil
		}
		return next.add(sub, score), nil
	})
	for err == nil && !next.cut && i < len(found.ends) {
		take()
	}
	next.cut = next.cut || found.cut
	return err
}

// inter is the combination of the members that every input has.
func (x *inputs) inter(f func(member []byte, score float64) (bool, error)) error {
	x.sort()
	return x.filter(x.all[1:], true, f)
}

// diff is the combination of the members of the first input that no other input has.
func (x *inputs) diff(f func(member []byte, score float64) (bool, error)) error {
	return x.filter(slices.DeleteFunc(x.all[1:], func(in input) bool { return in.size == 0 }), false, f)
}

// filter calls f with the members of the first input that every other input has, or that none of them has.
func (x *inputs) filter(others []input, have bool, f func(member []byte, score float64) (bool, error)) error {
	first := x.all[:1]
	if first[0].size == 0 {
		return nil
	}
	var found window
	var from []byte
	for most := windowBytes.first; ; most = min(2*most, windowBytes.most) {
		found.reset(most)
		err := merge(x.open(first), from, func(_ int, sub []byte, score float64) (bool, error) {
			if err := x.from.spend(cost(len(sub))); err != nil {
				return false, err
			}
			if have {
				score = weighted(score, first[0].weight)
			}
			return found.add(sub, score), nil
		})
		if err != nil {
			return err
		}
		if found.cut {
			from = behind(from, found.at(len(found.ends)-1))
		}
		for some := range slices.Chunk(others, maxSideBySide) {
			if err := x.sift(&found, some, have); err != nil {
				return err
			}
		}
		if more, err := found.each(f); err != nil || !more || !found.cut {
			return err
		}
	}
}

// sift removes members from a window: with have, those that one of the inputs lacks; without, those that one of them
// has.
func (x *inputs) sift(found *window, some []input, have bool) (err error) {
	if len(found.ends) == 0 {
		return nil
	}
	if err := x.from.spend(openUnits * len(some)); err != nil {
		return err
	}
	sets := x.open(some)
	probes := make([]probe, 0, len(sets))
	for i := range sets {
		p := probe{set: &sets[i]}
		if p.elements, err = sets[i].elements(keys.Data, found.at(0), nil); err != nil {
			break
		}
		probes = append(probes, p)
	}
	n, end := 0, 0 // how many members stay, and the bytes of their subkeys
	for i := 0; err == nil && i < len(found.ends); i++ {
		sub, score, stays := found.at(i), found.scores[i], true
		for k := range probes {
			var there bool
			var other float64
			if err = x.from.spend(cost(len(sub))); err != nil {
				break
			}
			if there, other, err = probes[k].score(sub); err != nil || there != have {
				if stays = false; have && probes[k].ended { // the input has none of the following members either
					found.cut, i = false, len(found.ends)
				}
				break
			}
			if have {
				score = x.aggregate(score, other*some[k].weight)
			}
		}
		if stays {
			end += copy(found.subs[end:], sub)
			found.ends[n], found.scores[n] = end, score
			n++
		}
	}
	found.subs, found.ends, found.scores = found.subs[:end], found.ends[:n], found.scores[:n]
	for i := range probes {
		err = errors.Join(err, probes[i].Close())
	}
	return err
}

// probe tells whether an input has a member. Callers ask for members in the order of subkeys, so a probe goes through
// its input at most once, and seeks at most once for each question.
type probe struct {
	set      *collection
	elements // stands on the first member that is not below the last one asked for
	begun    bool
	ended    bool // the input has nothing from the last one asked for on
}

func (p *probe) score(sub []byte) (there bool, score float64, err error) {
	switch {
	case p.ended:
		return false, 0, nil
	case !p.begun:
		p.begun, p.ended = true, !p.SeekGE(p.set.in(keys.Data, sub))
	case bytes.Compare(p.sub(), sub) < 0: // often the next one is the member
		p.ended = !p.Next() || bytes.Compare(p.sub(), sub) < 0 && !p.SeekGE(p.set.in(keys.Data, sub))
	}
	if p.ended {
		return false, 0, p.Error()
	}
	if !bytes.Equal(p.sub(), sub) {
		return false, 0, nil
	}
	value, err := p.ValueAndErr()
	if err == nil {
		score, err = p.set.scoreOf(value)
	}
	return err == nil, score, err
}

// merge calls f with the subkeys of some inputs, in order, from one on or from the first if from is nil, until f
// returns false. It calls f with a member of several inputs once for each, in the order of the inputs.
func merge(sets []collection, from []byte,
	f func(i int, sub []byte, score float64) (more bool, err error)) (err error) {
	var h heads
	var opened []elements
	for i := range sets {
		e, openErr := sets[i].elements(keys.Data, from, nil)
		if err = openErr; err != nil {
			break
		}
		opened = append(opened, e)
		if e.First() {
			h = append(h, head{e, i})
		}
	}
	if err == nil {
		err = h.merge(sets, f)
	}
	for _, e := range opened {
		err = errors.Join(err, e.Close())
	}
	return err
}

// head is an input and the member that it has come to.
type head struct {
	elements
	of int
}

// heads are a binary heap: the parent of the head at i is at (i-1)/2, and comes before it.
type heads []head

func (h heads) merge(sets []collection, f func(i int, sub []byte, score float64) (bool, error)) error {
	for i := len(h) - 1; i >= 0; i-- {
		h.sink(i)
	}
	for len(h) > 0 {
		value, err := h[0].ValueAndErr()
		if err != nil {
			return err
		}
		score, err := sets[h[0].of].scoreOf(value)
		if err != nil {
			return err
		}
		if more, err := f(h[0].of, h[0].sub(), score); err != nil || !more {
			return err
		}
		if !h[0].Next() {
			h[0] = h[len(h)-1]
			h = h[:len(h)-1]
		}
		h.sink(0)
	}
	return nil
}

func (h heads) before(i, j int) bool {
	order := bytes.Compare(h[i].sub(), h[j].sub())
	return order < 0 || order == 0 && h[i].of < h[j].of
}

// sink moves a head down the heap to where it belongs.
func (h heads) sink(i int) {
	for {
		least := i
		for j := 2*i + 1; j <= 2*i+2 && j < len(h); j++ {
			if h.before(j, least) {
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
