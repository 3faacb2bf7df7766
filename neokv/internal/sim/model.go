package sim

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/anishathalye/porcupine"
)

// overwritten is the string that clients set over collections.
const overwritten = "="

// What a reply is in the history where Redis answers with these errors.
const (
	wrongType = "WRONGTYPE"
	noSuchKey = "no such key"
)

// effect is what an operation does to a key: what the key holds after it, and the reply. A key holds a string, the
// field of a hash, or the elements of a list, set or sorted set as a reply lists them; it is "" while the key is
// absent. SPOP may take any member: it takes the one that got names.
func (o *op) effect(before, got string) (after, want string) {
	if o.changesNothing {
		defer func() { after = before }()
	}
	if o.kind == moveScript && got == limited {
		return before, limited
	}
	if o.ofCells() {
		return o.cellEffect(before)
	}
	if o.ofSets() {
		return o.setEffect(before)
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
	case watchedIncr:
		n, _ := strconv.Atoi(before)
		switch {
		case got == nobody:
			want = nobody
		case strconv.Itoa(n+1) == o.value:
			after, want = o.value, "OK"
		default:
			want = nobody
		}
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

// model is the model of a key that does not expire. An operation without an output, of which no reply is known, has
// the same effect whatever the reply was.
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

// inTurn is the state of another model, with how far each pipeline has come on the key.
type inTurn struct {
	state any
	lines []lineTurn // sorted by line
	ended int        // how many operations with a reply have taken effect
}

type lineTurn struct {
	line uint64
	next int // no operation with a smaller turn may take effect any more
}

// find returns the place of a line among all that have come anywhere.
func (s inTurn) find(line uint64) (i int, there bool) {
	return slices.BinarySearchFunc(s.lines, line, func(l lineTurn, line uint64) int { return cmp.Compare(l.line, line) })
}

// next is how far a line has come.
func (s inTurn) next(line uint64) int {
	if i, there := s.find(line); there {
		return s.lines[i].next
	}
	return 0
}

// waits reports whether an operation cannot take effect yet, or another one of its queue should before it.
func (s inTurn) waits(q *queued) bool {
	return s.next(q.line) < q.from || slices.ContainsFunc(q.ahead, func(a *queued) bool {
		next := s.next(a.line)
		return next >= a.from && next <= a.turn
	})
}

// ordered adds to a model that the operations of a pipeline take effect in turn, and those of a queue in the order of
// their calls. When an operation of a pipeline has taken effect, earlier ones of unknown outcome never will. Porcupine
// wants a place for each operation, so those that never take effect stand at the end, in any order: there all
// operations with a reply, as many as ended says, have taken effect, and no reply shows the state any more.
func ordered(m porcupine.Model, ended int, queues map[*op]*queued) porcupine.Model {
	return porcupine.Model{
		Init: func() any { return inTurn{state: m.Init()} },
		Step: func(state, input, output any) (bool, any) {
			s, o := state.(inTurn), input.(*op)
			line, turn := o.line, o.turn
			switch q := queues[o]; {
			case output.(*string) != nil:
				s.ended++
			case s.ended == ended:
				return true, s
			case q != nil && s.waits(q):
				return false, s
			case q != nil:
				line, turn = q.line, q.turn
			}
			if line != 0 {
				if s.next(line) > turn {
					return false, s
				}
				s.lines = slices.Clone(s.lines)
				i, there := s.find(line)
				if !there {
					s.lines = slices.Insert(s.lines, i, lineTurn{line: line})
				}
				s.lines[i].next = turn + 1
			}
			ok, after := m.Step(s.state, input, output)
			s.state = after
			return ok, s
		},
		Equal: func(a, b any) bool {
			x, y := a.(inTurn), b.(inTurn)
			return x.ended == y.ended && slices.Equal(x.lines, y.lines) && m.Equal(x.state, y.state)
		},
	}
}

// modelOf chooses the model for the operations of a key that porcupine gets.
func modelOf(ops []*op) porcupine.Model {
	ended, lines := 0, false
	for _, o := range ops {
		lines = lines || o.line != 0
		if o.end != 0 {
			ended++
		}
	}
	m, queued := model, map[*op]*queued(nil)
	if slices.ContainsFunc(ops,
		func(o *op) bool { return o.ttl > 0 || o.kind == keep || o.kind == spop && o.end == 0 }) {
		m = expiring
	} else {
		queued = queues(ops)
	}
	if lines || ended < len(ops) {
		m = ordered(m, ended, queued)
	}
	return m
}
