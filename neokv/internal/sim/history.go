package sim

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// opName is what an operation does, by the name of the command.
type opName string

const (
	get   opName = "GET"
	set   opName = "SET"
	setNX opName = "SETNX"
	incr  opName = "INCR"
	del   opName = "DEL"
	keep  opName = "PERSIST"

	// On a field of a hash, always the same one.
	hincr opName = "HINCRBY"
	hget  opName = "HGET"
	hdel  opName = "HDEL"

	// On lists, sets and sorted sets. Their elements are words.
	lpush    opName = "LPUSH"
	rpush    opName = "RPUSH"
	lpop     opName = "LPOP"
	rpop     opName = "RPOP"
	lrange   opName = "LRANGE" // all of it
	sadd     opName = "SADD"
	spop     opName = "SPOP"
	smembers opName = "SMEMBERS"
	zadd     opName = "ZADD" // value: a score of one digit, and a member
	zpopmin  opName = "ZPOPMIN"
	zrange   opName = "ZRANGE" // all of it, with scores

	fade opName = "PEXPIRE" // value, or ttl: in so many ms

	// Transactions, by the names of their last commands; see transactions.go.
	watchedIncr opName = "WATCHED SET"       // value: the number that it sets, once the client has read the key
	move        opName = "DECRBY and INCRBY" // value: cell cell amount
	moveScript  opName = "EVAL"              // value: cell cell amount rounds

	// On hashes whose histories are not checked.
	hfill  opName = "HSET" // value: so many fields
	copyTo opName = "COPY" // value: the key that it replaces
)

// reads reports whether operations of this kind change nothing.
func (k opName) reads() bool {
	return k == get || k == mget || k == hmget || k == hget || k == lrange || k == smembers || k == sunion || k == zrange
}

// unchecked reports whether clients use a key for the work that it makes, and not for the replies.
func unchecked(key string) bool { return key[0] == 'o' || key[0] == 'p' || key[0] == 'w' }

// op is one command as its client saw it.
type op struct {
	client int
	kind   opName
	key    string
	value  string // what the client writes; see kind
	// call and end are instants of the history's clock, which counts: in virtual time many things happen at the same
	// time. end is 0 as long as the outcome is unknown, which may be for ever.
	call, end int64
	reply     string // "" for null
	// Operations with the same line, unless it is 0, are of one pipeline. Those on one key take effect in the order
	// of their turns; see inTurn.
	line uint64
	turn int
	// changesNothing makes the models judge the reply and leave out the effect; see past.
	changesNothing bool
	expiry
}

// args are the words of the command.
func (o *op) args() []string {
	if o.ofCells() {
		return o.cellArgs()
	}
	if o.ofSets() {
		return o.setArgs()
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

// history is what all clients of a cluster did. It writes each line to out at once, so that it survives a panic of
// the process.
type history struct {
	start time.Time
	skew  time.Duration // no store's clock is ever further off than this, ahead or behind

	mu    sync.Mutex
	out   io.Writer
	clock int64
	lines uint64 // how many pipelines there were
	ops   []*op

	backup backup // of the history of a copy; see asOf
}

func newHistory(out io.Writer) *history { return &history{out: out, start: time.Now()} }

// note writes a line that is no operation, such as a fault.
func (h *history) note(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line(fmt.Sprintf(format, args...))
}

// line writes a line with the time since the start.
func (h *history) line(s string) { fmt.Fprintf(h.out, "%12s %s\n", time.Since(h.start), s) }

// begin enters an operation that a client is about to send.
func (h *history) begin(client int, k opName, key, value string) *op {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	o := &op{client: client, kind: k, key: key, value: value, call: h.clock, expiry: begun(time.Since(h.start))}
	h.ops = append(h.ops, o)
	return o
}

// pipeline enters operations that a client is about to send together.
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

// done enters the reply to an operation.
func (h *history) done(o *op, reply string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.clock++
	if o.kind == smembers || o.kind == sunion { // whose reply has any order
		members := strings.Fields(reply)
		slices.Sort(members)
		reply = strings.Join(members, " ")
	}
	o.end, o.reply = h.clock, reply
	o.done(time.Since(h.start), h.skew)
	h.line(o.String())
}

// lost writes down that the outcome of an operation stays unknown.
func (h *history) lost(o *op, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.line(fmt.Sprintf("%s (%v)", o, why))
}

// drop takes an operation out which, provably, never took effect and never will.
func (h *history) drop(o *op, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.ops = slices.DeleteFunc(h.ops, func(x *op) bool { return x == o })
	h.line(fmt.Sprintf("%s: not applied (%v)", o, why))
}

// count returns how many operations have a reply, and how many an unknown outcome.
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
