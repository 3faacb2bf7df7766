package redis

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"unsafe"

	"neokv.dev/neokv/internal/keys"
)

// This file has the combinations of sorted sets and sets: ZUNION, ZINTER, ZDIFF, their STORE forms and ZINTERCARD.

// combine is one call of such a command.
type combine struct {
	how        combination
	unweighted bool // its options have no weights
	store      bool
	count      bool // ZINTERCARD
	inputs     *inputs
	withScores bool
	limit      int64 // of count, 0 for none
}

// scored is a member of the result.
type scored struct {
	member []byte
	score  float64
}

// membersType is the type that an input must have: a set may stand for a sorted set.
func membersType(rec *record) keys.Type {
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

// lower returns the smaller number, and a if b is NaN.
func lower(a, b float64) float64 {
	if b < a {
		return b
	}
	return a
}

// higher returns the larger number, and a if b is NaN.
func higher(a, b float64) float64 {
	if b > a {
		return b
	}
	return a
}

// weighted returns the product of a score and a weight, with 0 in place of NaN.
func weighted(score, weight float64) float64 {
	if p := score * weight; !math.IsNaN(p) {
		return p
	}
	return 0
}

// parse opens the inputs and reads the options of the named command. args begin with the number of keys. It appends
// Redis's error where it cannot.
func (x *combine) parse(from opener, name []byte, args [][]byte, out *Reply) (ok bool, err error) {
	n, ok := ParseInt(args[0])
	switch {
	case !ok:
		out.Error(ErrNotInteger)
		return false, nil
	case n < 1:
		out.noInputKeys(name)
		return false, nil
	case n > int64(len(args)-1):
		out.Error(ErrSyntax)
		return false, nil
	}
	if x.inputs, ok, err = openInputs(from, args[1:1+n], membersType, out); !ok {
		return false, err
	}
	for args = args[1+n:]; len(args) > 0; {
		switch a := args[0]; {
		case !x.unweighted && len(args) > int(n) && IsOption(a, "weights"):
			for i := range x.inputs.all {
				if x.inputs.all[i].weight, ok = parseScore(args[1+i]); !ok {
					out.Error(errWeight)
					return false, nil
				}
			}
			args = args[1+n:]
		case !x.unweighted && len(args) >= 2 && IsOption(a, "aggregate"):
			switch how := args[1]; {
			case IsOption(how, "sum"):
				x.inputs.aggregate = sum
			case IsOption(how, "min"):
				x.inputs.aggregate = lower
			case IsOption(how, "max"):
				x.inputs.aggregate = higher
			default:
				out.Error(ErrSyntax)
				return false, nil
			}
			args = args[2:]
		case !x.store && !x.count && IsOption(a, "withscores"):
			x.withScores = true
			args = args[1:]
		case x.count && len(args) >= 2 && IsOption(a, "limit"):
			if x.limit, ok = ParseInt(args[1]); !ok || x.limit < 0 {
				out.Error(errNegativeLimit)
				return false, nil
			}
			args = args[2:]
		default:
			out.Error(ErrSyntax)
			return false, nil
		}
	}
	return true, nil
}

func (r *Reader) combineScored(args [][]byte, x combine, out *Reply) error {
	if ok, err := x.parse(r, args[0], args[1:], out); !ok {
		return err
	}
	if x.count {
		n := int64(0)
		err := x.how(x.inputs, func([]byte, float64) (bool, error) {
			n++
			return n != x.limit, nil
		})
		out.Int(n)
		return err
	}
	// The reply has the members in the order of their scores. Until that order is known they take of the reply's room.
	var found []scored
	var memory arena
	room := 0
	err := x.how(x.inputs, func(member []byte, score float64) (bool, error) {
		if room += int(unsafe.Sizeof(scored{})) + len(member); out.has(room) {
			found = append(found, scored{memory.clone(member), score})
		}
		return !out.Full, nil
	})
	if err != nil {
		return err
	}
	slices.SortFunc(found, watched(r.work, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.score, b.score), bytes.Compare(a.member, b.member))
	}))
	out.Room -= room
	defer func() { out.Room += room }()
	out.members(len(found), x.withScores)
	for i := range found {
		if out.Full {
			break
		}
		out.member(found[i].member, found[i].score, x.withScores)
	}
	return nil
}

func (w *Writer) combineScored(args [][]byte, x combine, out *Reply) error {
	x.store = true
	if ok, err := x.parse(w, args[0], args[2:], out); !ok {
		return err
	}
	var to collection
	if err := w.renew(&to, args[1], keys.ZSet); err != nil {
		return err
	}
	// Whether the result is a listpack, which loses the sign of -0, shows when there is too much for one, or no more. The
	// members are held back until then.
	var few []scored
	var memory arena
	held := true
	release := func() error {
		held = false
		for i := range few {
			if err := w.storeMember(&to, few[i].member, few[i].score); err != nil {
				return err
			}
		}
		return nil
	}
	err := x.how(x.inputs, func(member []byte, score float64) (bool, error) {
		if held && len(few) < maxPackedMembers && len(member) <= maxPackedBytes {
			few = append(few, scored{memory.clone(member), score})
			return true, nil
		}
		if held {
			to.Skiplist = true
			if err := release(); err != nil {
				return false, err
			}
		}
		return true, w.storeMember(&to, member, score)
	})
	if err == nil && held {
		err = release()
	}
	if err != nil {
		return err
	}
	out.Int(int64(to.Size))
	return w.close(&to)
}
