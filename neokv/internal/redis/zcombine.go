package redis

import (
	"bytes"
	"cmp"
	"math"
	"slices"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file is what is made of several sorted sets and sets: ZUNION, ZINTER, ZDIFF, their STORE forms and ZINTERCARD. The result is put
// together in memory.

type scoredCombination byte

const (
	union scoredCombination = iota
	inter
	diff
)

// combine is one such call.
type combine struct {
	how        scoredCombination
	name       string // of the command
	store      bool
	count      bool // only that is asked for
	inputs     []input
	aggregate  func(a, b float64) float64
	withScores bool
	limit      int64 // of count, 0 for none
}

type input struct {
	collection
	weight float64
}

// scored is a member of the result.
type scored struct {
	member []byte
	score  float64
}

// openMembers is open for a key that holds a sorted set or a set.
func (r *Reader) openMembers(c *collection, key []byte, out *Reply) (ok bool, err error) {
	slot := topology.SlotOf(key)
	rec, err := r.loadIn(slot, key)
	t := rec.membersType()
	if err != nil || rec.isNot(t, out) {
		return false, err
	}
	c.start(r.Space, slot, key, t, &rec, &r.opened)
	c.from = r.View
	return true, nil
}

// openMembers is open for a key that holds a sorted set or a set, to read it.
func (w *Writer) openMembers(c *collection, key []byte, out *Reply) (ok bool, err error) {
	slot := topology.SlotOf(key)
	rec, err := w.loadIn(slot, key)
	t := rec.membersType()
	if err != nil || rec.isNot(t, out) {
		return false, err
	}
	c.start(w.Space, slot, key, t, &rec, &w.opened)
	c.from = (*written)(w)
	return true, nil
}

// membersType is the type as which a record is read as an input.
func (rec *record) membersType() keys.Type {
	if rec.live && rec.Type == keys.Set {
		return keys.Set
	}
	return keys.ZSet
}

func sum(a, b float64) float64 {
	if s := a + b; !math.IsNaN(s) {
		return s
	}
	return 0
}

// lower is the smaller one, and a where b is NaN.
func lower(a, b float64) float64 {
	if b < a {
		return b
	}
	return a
}

// higher is the larger one, and a where b is NaN.
func higher(a, b float64) float64 {
	if b > a {
		return b
	}
	return a
}

// weighted is a product that is never NaN.
func weighted(score, weight float64) float64 {
	if p := score * weight; !math.IsNaN(p) {
		return p
	}
	return 0
}

// parse opens the inputs and reads the options; args begin with the number of keys. It appends Redis's error if it cannot.
func (x *combine) parse(from opener, args [][]byte, out *Reply) (ok bool, err error) {
	n, ok := parseInt(args[0])
	switch {
	case !ok:
		out.Error(ErrNotInteger)
		return false, nil
	case n < 1:
		out.noInputKeys(x.name)
		return false, nil
	case n > int64(len(args)-1):
		out.Error(ErrSyntax)
		return false, nil
	}
	x.aggregate = sum
	x.inputs = make([]input, n)
	for i := range x.inputs {
		if ok, err := from.openMembers(&x.inputs[i].collection, args[1+i], out); !ok {
			return false, err
		}
		x.inputs[i].weight = 1
	}
	weighs := x.how != diff && !x.count
	for args = args[1+n:]; len(args) > 0; {
		switch a := args[0]; {
		case weighs && len(args) > int(n) && IsOption(a, "weights"):
			for i := range x.inputs {
				if x.inputs[i].weight, ok = parseScore(args[1+i]); !ok {
					out.Error(errWeight)
					return false, nil
				}
			}
			args = args[1+n:]
		case weighs && len(args) >= 2 && IsOption(a, "aggregate"):
			switch how := args[1]; {
			case IsOption(how, "sum"):
				x.aggregate = sum
			case IsOption(how, "min"):
				x.aggregate = lower
			case IsOption(how, "max"):
				x.aggregate = higher
			default:
				out.Error(ErrSyntax)
				return false, nil
			}
			args = args[2:]
		case !x.store && !x.count && IsOption(a, "withscores"):
			x.withScores = true
			args = args[1:]
		case x.count && len(args) >= 2 && IsOption(a, "limit"):
			if x.limit, ok = parseInt(args[1]); !ok || x.limit < 0 {
				out.Error(errNegativeLimit)
				return false, nil
			}
			args = args[2:]
		default:
			out.Error(ErrSyntax)
			return false, nil
		}
	}
	if x.how != diff { // what is added up, is so in this order
		slices.SortStableFunc(x.inputs, func(a, b input) int { return cmp.Compare(a.Size, b.Size) })
	}
	return true, nil
}

// result puts the members of the result together, in no order.
func (x *combine) result() (found []scored, err error) {
	if x.how == union {
		return x.union()
	}
	first := &x.inputs[0]
	if first.Size == 0 {
		return nil, nil
	}
	err = first.members(func(member []byte, score float64) (more bool, err error) {
		if x.how == inter {
			score = weighted(score, first.weight)
		}
		for i := range x.inputs[1:] {
			other := &x.inputs[1+i]
			value, there, err := other.score(member)
			if err != nil || there == (x.how == diff) {
				return true, err
			}
			if x.how == inter {
				score = x.aggregate(score, value*other.weight)
			}
		}
		s := scored{score: score}
		if !x.count {
			s.member = bytes.Clone(member)
		}
		found = append(found, s)
		return !x.count || x.limit == 0 || int64(len(found)) < x.limit, nil
	})
	return found, err
}

func (x *combine) union() (found []scored, err error) {
	at := make(map[string]int)
	for i := range x.inputs {
		in := &x.inputs[i]
		if in.Size == 0 {
			continue
		}
		err := in.members(func(member []byte, score float64) (bool, error) {
			score = weighted(score, in.weight)
			if n, ok := at[string(member)]; ok {
				found[n].score = x.aggregate(found[n].score, score)
				return true, nil
			}
			at[string(member)] = len(found)
			found = append(found, scored{bytes.Clone(member), score})
			return true, nil
		})
		if err != nil {
			return nil, err
		}
	}
	return found, nil
}

// members calls f with the members of an input and their scores until f reports that there is no need of more.
func (c *collection) members(f func(member []byte, score float64) (more bool, err error)) error {
	var failed error
	err := c.each(nil, func(sub, value []byte) bool {
		score, err := c.scoreOf(value)
		more := false
		if err == nil {
			more, err = f(sub, score)
		}
		failed = err
		return more && err == nil
	})
	if failed != nil {
		return failed
	}
	return err
}

func zunion(r *Reader, args [][]byte, out *Reply) error {
	return r.combineScored(&combine{how: union, name: "zunion"}, args, out)
}

func zinter(r *Reader, args [][]byte, out *Reply) error {
	return r.combineScored(&combine{how: inter, name: "zinter"}, args, out)
}

func zdiff(r *Reader, args [][]byte, out *Reply) error {
	return r.combineScored(&combine{how: diff, name: "zdiff"}, args, out)
}

func zintercard(r *Reader, args [][]byte, out *Reply) error {
	return r.combineScored(&combine{how: inter, name: "zintercard", count: true}, args, out)
}

func (r *Reader) combineScored(x *combine, args [][]byte, out *Reply) error {
	if ok, err := x.parse(r, args[1:], out); !ok {
		return err
	}
	found, err := x.result()
	if err != nil {
		return err
	}
	if x.count {
		out.Int(int64(len(found)))
		return nil
	}
	slices.SortFunc(found, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.score, b.score), bytes.Compare(a.member, b.member))
	})
	out.members(len(found), x.withScores)
	for i := range found {
		if out.Full {
			break
		}
		out.member(found[i].member, found[i].score, x.withScores)
	}
	return nil
}

func zunionstore(w *Writer, args [][]byte, out *Reply) error {
	return w.combineScored(&combine{how: union, name: "zunionstore"}, args, out)
}

func zinterstore(w *Writer, args [][]byte, out *Reply) error {
	return w.combineScored(&combine{how: inter, name: "zinterstore"}, args, out)
}

func zdiffstore(w *Writer, args [][]byte, out *Reply) error {
	return w.combineScored(&combine{how: diff, name: "zdiffstore"}, args, out)
}

func (w *Writer) combineScored(x *combine, args [][]byte, out *Reply) error {
	x.store = true
	if ok, err := x.parse(w, args[2:], out); !ok {
		return err
	}
	found, err := x.result()
	if err != nil {
		return err
	}
	var to collection
	if err := w.renew(&to, args[1], keys.ZSet); err != nil {
		return err
	}
	for i := range found {
		if err := w.storeMember(&to, found[i].member, found[i].score); err != nil {
			return err
		}
	}
	out.Int(int64(to.Size))
	return w.close(&to)
}
