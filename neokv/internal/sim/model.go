package sim

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// overwritten is the string that is set over collections.
const overwritten = "="

// What callers make of Redis's errors.
const (
	wrongType = "WRONGTYPE"
	noSuchKey = "no such key"
)

// effect is what an operation does to a key: what it holds then, and the reply. A key holds a string, a hash of one field, or the elements of a
// list, set or sorted set as a reply has them; it is "" while it is absent. SPOP takes the member that it is given as the reply.
func (o *op) effect(before, got string) (after, want string) {
	if o.changesNothing {
		defer func() { after = before }()
	}
	if o.ofCells() {
		return o.cellEffect(before)
	}
	elements := strings.Fields(before)
	after = before
	switch o.kind {
	case lpush, rpush, lpop, rpop, lrange, sadd, spop, smembers, zadd, zpopmin, zrange:
		if before == overwritten {
			return before, wrongType
		}
	}
	switch o.kind {
	case get, hget, lrange, smembers, zrange:
		want = before
	case set:
		after, want = o.value, "OK"
	case setNX:
		want = "0"
		if before == "" {
			after, want = o.value, "1"
		}
	case incr, hincr:
		n, _ := strconv.Atoi(before)
		after = strconv.Itoa(n + 1)
		want = after
	case del, hdel:
		after, want = "", "0"
		if before != "" {
			want = "1"
		}
	case fade:
		want = "0"
		if before != "" {
			want = "1"
		}
	case lpush:
		after, want = strings.TrimSpace(o.value+" "+before), strconv.Itoa(len(elements)+1)
	case rpush:
		after, want = strings.TrimSpace(before+" "+o.value), strconv.Itoa(len(elements)+1)
	case lpop:
		want, after, _ = strings.Cut(before, " ")
	case rpop:
		if n := len(elements); n > 0 {
			after, want = strings.Join(elements[:n-1], " "), elements[n-1]
		}
	case sadd:
		want = "0"
		if i, there := slices.BinarySearch(elements, o.value); !there {
			after, want = strings.Join(slices.Insert(elements, i, o.value), " "), "1"
		}
	case spop:
		if i, there := slices.BinarySearch(elements, got); there {
			after, want = strings.Join(slices.Delete(elements, i, i+1), " "), got
		} else if before != "" {
			want = "one of " + before
		}
	case zadd:
		score, member, _ := strings.Cut(o.value, " ")
		want = "1"
		i := 0
		for n := 0; n < len(elements); n += 2 {
			if elements[n] == member {
				elements, want = slices.Delete(elements, n, n+2), "0"
			}
			if n < len(elements) && (elements[n+1] < score || elements[n+1] == score && elements[n] < member) {
				i = n + 2
			}
		}
		after = strings.Join(slices.Insert(elements, i, member, score), " ")
	case zpopmin:
		if len(elements) > 0 {
			want, after = strings.Join(elements[:2], " "), strings.Join(elements[2:], " ")
		}
	}
	return after, want
}

// model is a key of which operations without an output, which may have had any, have one effect, and which does not expire.
var model = porcupine.Model{
	Init: func() any { return "" },
	Step: func(state, input, output any) (bool, any) {
		got := output.(*string)
		if got == nil {
			after, _ := input.(*op).effect(state.(string), "")
			return true, after
		}
		after, want := input.(*op).effect(state.(string), *got)
		return *got == want, after
	},
	Equal: func(a, b any) bool { return a == b },
}

// inTurn is a model's state, and how far each pipeline has come on the key.
type inTurn struct {
	state any
	lines []lineTurn // by line
}

type lineTurn struct {
	line uint64
	next int // the least turn that may still take effect
}

// ordered is a model in which the operations of a pipeline take effect in turn. One of unknown outcome has had its last chance when a
// later one has taken effect.
func ordered(m porcupine.Model) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return inTurn{state: m.Init()} },
		Step: func(state, input, output any) (bool, any) {
			s, o := state.(inTurn), input.(*op)
			if o.line != 0 {
				i, there := slices.BinarySearchFunc(s.lines, o.line, func(l lineTurn, line uint64) int { return cmp.Compare(l.line, line) })
				switch {
				case !there:
					s.lines = slices.Insert(slices.Clone(s.lines), i, lineTurn{o.line, o.turn + 1})
				case s.lines[i].next > o.turn:
					return output.(*string) == nil, s
				default:
					s.lines = slices.Clone(s.lines)
					s.lines[i].next = o.turn + 1
				}
			}
			ok, after := m.Step(s.state, input, output)
			s.state = after
			return ok, s
		},
		Equal: func(a, b any) bool {
			x, y := a.(inTurn), b.(inTurn)
			return slices.Equal(x.lines, y.lines) && m.Equal(x.state, y.state)
		},
	}
}

// modelOf is the model of a key's history.
func modelOf(ops []*op) porcupine.Model {
	m := model
	if slices.ContainsFunc(ops, func(o *op) bool { return o.ttl > 0 || o.kind == keep || o.kind == spop && o.end == 0 }) {
		m = expiring
	}
	if slices.ContainsFunc(ops, func(o *op) bool { return o.line != 0 }) {
		m = ordered(m)
	}
	return m
}
