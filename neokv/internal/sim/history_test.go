package sim

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/anishathalye/porcupine"
)

// kind is what an operation does; its name is the command's.
type kind string

const (
	get   kind = "GET"
	set   kind = "SET"
	setNX kind = "SETNX"
	incr  kind = "INCR"
	del   kind = "DEL"
	keep  kind = "PERSIST"

	// On a field of a hash, always the same.
	hincr kind = "HINCRBY"
	hget  kind = "HGET"
	hdel  kind = "HDEL"

	// On lists, sets and sorted sets, whose elements are words.
	lpush    kind = "LPUSH"
	rpush    kind = "RPUSH"
	lpop     kind = "LPOP"
	rpop     kind = "RPOP"
	lrange   kind = "LRANGE" // all of it
	sadd     kind = "SADD"
	spop     kind = "SPOP"
	smembers kind = "SMEMBERS"
	zadd     kind = "ZADD" // value: score, of one digit, and member
	zpopmin  kind = "ZPOPMIN"
	zrange   kind = "ZRANGE" // all of it, with scores

	fade kind = "PEXPIRE" // in so many ms

	// On hashes that are not checked key by key.
	hfill  kind = "HSET" // so many fields
	copyTo kind = "COPY" // over another one
)

// reads reports whether it changes nothing.
func (k kind) reads() bool {
	return k == get || k == mget || k == hmget || k == hget || k == lrange || k == smembers || k == zrange
}

// unchecked reports whether operations on a key are there for the work that they make, not for their replies.
func unchecked(key string) bool { return key[0] == 'o' || key[0] == 'p' }

// op is one command as its client saw it.
type op struct {
	client int
	kind   kind
	key    string
	value  string // that is written
	// call and end are instants of the history's clock, a counter: in virtual time much happens in no time at all. end is 0
	// while the outcome is unknown, which may be for ever.
	call, end int64
	reply     string // "" for null
	// Operations on a key with the same line, unless that is 0, are of one pipeline, and took effect in the order of their turns; see inTurn.
	line uint64
	turn int
	// changesNothing says that its reply is looked at, and its effect is left out; see past.
	changesNothing bool
	expiry
}

// args is the command.
func (o *op) args() []string {
	if o.ofCells() {
		return o.cellArgs()
	}
	args := []string{string(o.kind), o.key}
	switch o.kind {
	case hincr, hget, hdel:
		args = append(args, "field")
	case lrange:
		return append(args, "0", "-1")
	case zrange:
		return append(args, "0", "-1", "WITHSCORES")
	case zadd:
		return append(args, strings.Fields(o.value)...)
	case fade:
		if o.ttl > 0 {
			return append(args, strconv.FormatInt(o.ttl.Milliseconds(), 10))
		}
	case hfill:
		n, _ := strconv.Atoi(o.value)
		for i := range n {
			args = append(args, fmt.Sprint("f", i), o.value)
		}
		return args
	case copyTo:
		return append(args, o.value, "REPLACE")
	}
	if o.value != "" {
		args = append(args, o.value)
	}
	if o.ttl > 0 {
		args = append(args, "PX", strconv.FormatInt(o.ttl.Milliseconds(), 10))
	}
	return args
}

func (o *op) String() string {
	s := fmt.Sprintf("[%d %d] client %d: %s %s", o.call, o.end, o.client, o.kind, o.key)
	if o.value != "" {
		s += " " + o.value
	}
	if o.ttl > 0 {
		s += " PX " + strconv.FormatInt(o.ttl.Milliseconds(), 10)
	}
	if o.line != 0 {
		s += fmt.Sprintf(" (turn %d of pipeline %d)", o.turn, o.line)
	}
	if o.end == 0 {
		return s + " = ?"
	}
	return s + fmt.Sprintf(" = %q", o.reply)
}

// history is what all clients of a cluster did. It writes itself down as it grows, so that it survives a panic of the process.
type history struct {
	start time.Time
	skew  time.Duration // no store's clock is ever further off than this

	mu    sync.Mutex
	out   io.Writer
	clock int64
	lines uint64 // pipelines
	ops   []*op
}

func newHistory(out io.Writer) *history { return &history{out: out, start: time.Now()} }

// note writes a line beside the operations: a fault, mostly.
func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line(fmt.Sprintf(format, args...))
}

func (h *history) line(s string) { fmt.Fprintf(h.out, "%12s %s\n", time.Since(h.start), s) }

// begin enters an operation whose outcome is not known yet.
func (h *history) begin(client int, k kind, key, value string) *op {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	o := &op{client: client, kind: k, key: key, value: value, call: h.clock, expiry: begun(time.Since(h.start))}
	h.ops = append(h.ops, o)
	return o
}

// pipeline enters operations that are sent together.
func (h *history) pipeline(client int, requests []request) (ops []*op) {
	h.mu.Lock()
	h.lines++
	line := h.lines
	h.mu.Unlock()
	for i, r := range requests {
		o := h.begin(client, r.kind, r.key, r.value)
		o.line, o.turn = line, i
		ops = append(ops, o)
	}
	return ops
}

// done enters an operation's reply.
func (h *history) done(o *op, reply string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	if o.kind == smembers { // in any order
		members := strings.Fields(reply)
		slices.Sort(members)
		reply = strings.Join(members, " ")
	}
	o.end, o.reply = h.clock, reply
	o.done(time.Since(h.start), h.skew)
	h.line(o.String())
}

// lost notes that an operation's outcome stays unknown.
func (h *history) lost(o *op, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line(fmt.Sprintf("%s (%v)", o, why))
}

// drop takes an operation out that provably never happens.
func (h *history) drop(o *op, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = slices.DeleteFunc(h.ops, func(x *op) bool { return x == o })
	h.line(fmt.Sprintf("%s: not applied (%v)", o, why))
}

// count returns how many operations were acknowledged and how many have an unknown outcome.
func (h *history) count() (acknowledged, unknown int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.ops {
		if o.end != 0 {
			acknowledged++
		} else {
			unknown++
		}
	}
	return acknowledged, unknown
}

// checkTime bounds the search for one key, in real time. Call check outside of a bubble.
const checkTime = 30 * time.Second

// check returns what is wrong with the history, nil if it is linearizable key by key.
func (h *history) check() error {
	if all := h.problems(1); len(all) > 0 {
		return all[0]
	}
	return nil
}

// problems returns what is wrong with the first most keys of which something is.
func (h *history) problems(most int) (all []error) {
	byKey := map[string][]*op{}
	for _, o := range h.ops {
		if !unchecked(o.key) {
			byKey[o.key] = append(byKey[o.key], o)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		ops := byKey[key]
		switch verdict := porcupine.CheckOperationsTimeout(modelOf(ops), operations(ops), checkTime); verdict {
		case porcupine.Ok:
		case porcupine.Illegal:
			what, first := explain(ops)
			all = append(all, found(what, "key %s: not linearizable: %s: %s\n%s", key, what, first, upTo(ops, first)))
		default:
			all = append(all, fmt.Errorf("key %s: %d operations, verdict %s after %s", key, len(ops), verdict, checkTime))
		}
		if len(all) == most {
			break
		}
	}
	return all
}

// upTo prints the last lines of a key's history up to the end of an operation.
func upTo(ops []*op, last *op) string {
	ops = slices.DeleteFunc(slices.Clone(ops), func(o *op) bool { return o.call > last.end })
	slices.SortFunc(ops, func(a, b *op) int { return int(a.call - b.call) })
	var b strings.Builder
	for _, o := range ops[max(0, len(ops)-30):] {
		fmt.Fprintln(&b, o)
	}
	return b.String()
}

// operations turns one key's history into porcupine's. Unknown outcomes stay open to the end. Two sorts of them say nothing and
// are left out: reads; and, where a key is only set and read, values that nobody has read.
func operations(ops []*op) []porcupine.Operation {
	register := true
	read := map[string]bool{}
	end := int64(0)
	for _, o := range ops {
		register = register && (o.kind == set && o.ttl == 0 || o.kind == get)
		read[o.reply] = read[o.reply] || o.kind == get && o.end != 0
		end = max(end, o.call, o.end)
	}
	var out []porcupine.Operation
	for _, o := range ops {
		p := porcupine.Operation{ClientId: o.client, Input: o, Output: &o.reply, Call: o.call, Return: o.end}
		if o.end == 0 {
			if o.kind.reads() || register && !read[o.value] {
				continue
			}
			p.Output, p.Return = (*string)(nil), end+1
		}
		out = append(out, p)
	}
	return out
}

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

// TestHistoryIsChecked gives the checker histories of which the verdict is plain.
func TestHistoryIsChecked(t *testing.T) {
	o := func(k kind, value string, call, end int64, reply string) *op {
		return &op{kind: k, key: "k", value: value, call: call, end: end, reply: reply}
	}
	in := func(turn int, o *op) *op {
		o.line, o.turn = 1, turn
		return o
	}
	cell := func(k kind, value string, call, end int64, reply string) *op {
		return &op{kind: k, key: "g", value: value, call: call, end: end, reply: reply}
	}
	field := func(k kind, value string, call, end int64, reply string) *op {
		return &op{kind: k, key: "j", value: value, call: call, end: end, reply: reply}
	}
	for _, x := range []struct {
		name string
		ops  []*op
		ok   bool
	}{
		{"a write is read", []*op{o(set, "a", 1, 2, "OK"), o(get, "", 3, 4, "a")}, true},
		{"a write is lost", []*op{o(set, "a", 1, 2, "OK"), o(get, "", 3, 4, "")}, false},
		{"a stale read", []*op{o(set, "a", 1, 2, "OK"), o(set, "b", 3, 4, "OK"), o(get, "", 5, 6, "a")}, false},
		{"a read beside the write", []*op{o(set, "a", 1, 2, "OK"), o(set, "b", 3, 6, "OK"), o(get, "", 4, 5, "a")}, true},
		{"an unknown write shows up late", []*op{o(set, "a", 1, 0, ""), o(get, "", 2, 3, ""), o(get, "", 4, 5, "a")}, true},
		{"an unknown write shows up and goes", []*op{o(set, "a", 1, 0, ""), o(get, "", 2, 3, "a"), o(get, "", 4, 5, "")}, false},
		{"an unknown write never shows up", []*op{o(set, "a", 1, 0, ""), o(get, "", 2, 3, "")}, true},
		{"a value out of nowhere", []*op{o(get, "", 1, 2, "a")}, false},
		{"counted once", []*op{o(incr, "", 1, 2, "1"), o(incr, "", 3, 4, "2"), o(get, "", 5, 6, "2")}, true},
		{"counted twice", []*op{o(incr, "", 1, 2, "1"), o(incr, "", 3, 4, "3")}, false},
		{"an unknown count in between", []*op{o(incr, "", 1, 2, "1"), o(incr, "", 3, 0, ""), o(incr, "", 4, 5, "3")}, true},
		{"two winners", []*op{o(setNX, "a", 1, 2, "1"), o(setNX, "b", 3, 4, "1")}, false},
		{"a winner after the deletion", []*op{o(setNX, "a", 1, 2, "1"), o(del, "", 3, 4, "1"), o(setNX, "b", 5, 6, "1")}, true},
		{"deleted by nobody", []*op{o(setNX, "a", 1, 2, "1"), o(setNX, "b", 3, 4, "0"), o(get, "", 5, 6, "")}, false},
		{"pushed at both ends", []*op{o(rpush, "a", 1, 2, "1"), o(lpush, "b", 3, 4, "2"), o(rpush, "c", 5, 6, "3"), o(lrange, "", 7, 8, "b a c"), o(rpop, "", 9, 10, "c"), o(lpop, "", 11, 12, "b")}, true},
		{"popped twice", []*op{o(rpush, "a", 1, 2, "1"), o(rpush, "b", 3, 4, "2"), o(lpop, "", 5, 6, "a"), o(lpop, "", 7, 8, "a")}, false},
		{"an unknown pop", []*op{o(rpush, "a", 1, 2, "1"), o(lpop, "", 3, 0, ""), o(rpush, "b", 4, 5, "2"), o(lrange, "", 6, 7, "b")}, true},
		{"a push is lost", []*op{o(rpush, "a", 1, 2, "1"), o(lpush, "b", 3, 4, "2"), o(lrange, "", 5, 6, "a")}, false},
		{"any member", []*op{o(sadd, "b", 1, 2, "1"), o(sadd, "a", 3, 4, "1"), o(sadd, "b", 5, 6, "0"), o(smembers, "", 7, 8, "a b"), o(spop, "", 9, 10, "b"), o(smembers, "", 11, 12, "a")}, true},
		{"no member", []*op{o(sadd, "a", 1, 2, "1"), o(spop, "", 3, 4, "b")}, false},
		{"none of members", []*op{o(sadd, "a", 1, 2, "1"), o(spop, "", 3, 4, "")}, false},
		{"an unknown one of members", []*op{o(sadd, "a", 1, 2, "1"), o(sadd, "b", 3, 4, "1"), o(spop, "", 5, 0, ""), o(spop, "", 6, 7, "a"), o(spop, "", 8, 9, "")}, true},
		{"two of members by one", []*op{o(sadd, "a", 1, 2, "1"), o(sadd, "b", 3, 4, "1"), o(spop, "", 5, 0, ""), o(smembers, "", 6, 7, "")}, false},
		{"an unknown one comes back", []*op{o(sadd, "a", 1, 2, "1"), o(spop, "", 3, 0, ""), o(smembers, "", 4, 5, ""), o(smembers, "", 6, 7, "a")}, false},
		{"in order", []*op{o(zadd, "2 a", 1, 2, "1"), o(zadd, "1 c", 3, 4, "1"), o(zadd, "1 b", 5, 6, "1"), o(zadd, "0 a", 7, 8, "0"), o(zadd, "3 a", 9, 10, "0"),
			o(zrange, "", 11, 12, "b 1 c 1 a 3"), o(zpopmin, "", 13, 14, "b 1"), o(zpopmin, "", 15, 0, ""), o(zpopmin, "", 16, 17, "a 3")}, true},
		{"an old score", []*op{o(zadd, "2 a", 1, 2, "1"), o(zadd, "3 a", 3, 4, "0"), o(zpopmin, "", 5, 6, "a 2")}, false},
		{"not the least", []*op{o(zadd, "2 a", 1, 2, "1"), o(zadd, "3 b", 3, 4, "1"), o(zpopmin, "", 5, 6, "b 3")}, false},
		{"of another type", []*op{o(set, "=", 1, 2, "OK"), o(lpop, "", 3, 4, wrongType), o(del, "", 5, 6, "1"), o(lpop, "", 7, 8, "")}, true},
		{"in turn", []*op{in(0, o(incr, "", 1, 5, "1")), in(1, o(incr, "", 2, 6, "2")), in(2, o(get, "", 3, 7, "3")), o(incr, "", 4, 8, "3")}, true},
		{"not in turn", []*op{in(0, o(incr, "", 1, 5, "2")), in(1, o(incr, "", 2, 6, "1"))}, false},
		{"a read ahead of its turn", []*op{in(0, o(set, "a", 1, 5, "OK")), in(1, o(get, "", 2, 6, ""))}, false},
		{"an unknown one before its turn ends", []*op{in(0, o(incr, "", 1, 0, "")), in(1, o(incr, "", 2, 5, "2"))}, true},
		{"an unknown one that never comes", []*op{in(0, o(incr, "", 1, 0, "")), in(1, o(incr, "", 2, 5, "1")), o(get, "", 6, 7, "1")}, true},
		{"an unknown one behind its turn", []*op{in(0, o(incr, "", 1, 0, "")), in(1, o(incr, "", 2, 5, "1")), o(get, "", 6, 7, "2")}, false},
		{"cells", []*op{cell(mset, "a 1 b 2", 1, 2, "OK"), cell(mget, "", 3, 4, "1 2 "), cell(rename, "a c", 5, 6, "OK"), cell(mget, "", 7, 8, " 2 1"), cell(rename, "a c", 9, 10, noSuchKey),
			cell(copyTo, "b a", 11, 12, "1"), cell(get, "a", 13, 14, "2"), cell(msetNX, "a 5", 15, 16, "0"), cell(del, "c a", 17, 18, "2"), cell(msetNX, "a 5", 19, 20, "1"), cell(mget, "", 21, 22, "5 2 "),
			cell(del, "a b c", 23, 24, "2"), cell(mget, "", 25, 26, "  ")}, true},
		{"half of the cells", []*op{cell(mset, "a 1 b 2", 1, 6, "OK"), cell(mget, "", 2, 5, "1  ")}, false},
		{"all of the cells", []*op{cell(mset, "a 1 b 2", 1, 6, "OK"), cell(mget, "", 2, 3, "  "), cell(mget, "", 4, 5, "1 2 ")}, true},
		{"a renamed cell is in both", []*op{cell(mset, "a 1", 1, 2, "OK"), cell(rename, "a b", 3, 6, "OK"), cell(mget, "", 4, 5, "1 1 ")}, false},
		{"fields", []*op{field(hfill, "a 1 b 2", 1, 2, "2"), field(hfill, "a 3 c 2", 3, 4, "1"), field(hmget, "", 5, 6, "3 2 2"), field(hdel, "b c", 7, 8, "2"), field(hmget, "", 9, 10, "3  ")}, true},
		{"half of the fields", []*op{field(hfill, "a 1 b 2", 1, 6, "2"), field(hmget, "", 2, 5, " 2 ")}, false},
	} {
		h := &history{ops: x.ops}
		if err := h.check(); (err == nil) != x.ok {
			t.Errorf("%s: check = %v; want linearizable %v", x.name, err, x.ok)
		}
	}
}
