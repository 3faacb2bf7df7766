package redistest

import (
	"bytes"
	"slices"
	"strings"
	"time"
)

// This file has the differences that two correct servers may show: orders, times, random choices, and the differences
// from Redis that we want.

// Exception is a difference from Redis that we want.
type Exception struct {
	Reason  string
	Matches func(call [][]byte, want, got ReplyValue) bool
}

// Exceptions lists all of them. Each allows as little as it can: errors and nulls are always compared.
var Exceptions = []Exception{
	{"the encoding of a string is told by its value, not by the commands that changed it",
		func(call [][]byte, want, got ReplyValue) bool {
			return isCall(call, "object", "encoding") && slices.Contains(stringEncodings, string(want.Text)) &&
				slices.Contains(stringEncodings, string(got.Text))
		}},
	{"so is that of a hash or set", func(call [][]byte, want, got ReplyValue) bool {
		return isCall(call, "object", "encoding") && slices.ContainsFunc(collectionEncodings, func(like []string) bool {
			return slices.Contains(like, string(want.Text)) && slices.Contains(like, string(got.Text))
		})
	}},
	{"so is the number of references: small integers are shared", func(call [][]byte, want, got ReplyValue) bool {
		return isCall(call, "object", "refcount") && want.Kind == ':' && got.Kind == ':'
	}},
	{"times of access are not kept", func(call [][]byte, want, got ReplyValue) bool {
		return isCall(call, "object", "idletime") && want.Kind == ':' && string(got.Text) == "0"
	}},
	{"a record is not an object of Redis's: it has another size", func(call [][]byte, want, got ReplyValue) bool {
		return isCall(call, "memory", "usage") && want.Kind == ':' && got.Kind == ':'
	}},
	{"HELLO names the connection's number", func(call [][]byte, want, got ReplyValue) bool {
		return isCall(call, "hello") && want.Kind == got.Kind && want.Kind != '-' && len(want.Items) == len(got.Items)
	}},
	{"help and texts about memory are our own", func(call [][]byte, want, got ReplyValue) bool {
		return len(call) == 2 && (isCall(call, "memory") || isCall(call, string(call[0]), "help")) &&
			want.Kind == got.Kind && want.Kind != '-'
	}},
	{"Redis finds a subcommand whose name goes on behind a zero byte where its hash happens to collide",
		func(call [][]byte, want, got ReplyValue) bool {
			return len(call) > 1 && bytes.IndexByte(call[1], 0) > 0 &&
				(strings.HasPrefix(string(got.Text), "ERR unknown subcommand") ||
					strings.HasPrefix(string(got.Text), "ERR Unknown Redis command called from script"))
		}},
	{"a Redis alone has no replicas for WAIT to count", func(call [][]byte, want, got ReplyValue) bool {
		return isCall(call, "wait") && want.Kind == ':' && got.Kind == ':'
	}},
	{"LOLWUT is our own", func(call [][]byte, want, got ReplyValue) bool {
		return isCall(call, "lolwut") && want.Kind == got.Kind && want.Kind != '-'
	}},
}

var (
	stringEncodings = []string{"int", "embstr", "raw"}
	// Of one type each, but for hashtable.
	collectionEncodings = [][]string{{"listpack", "hashtable"}, {"intset", "hashtable"}}
)

// isCall reports whether a call begins with these words, in any case.
func isCall(call [][]byte, words ...string) bool {
	if len(call) < len(words) {
		return false
	}
	for i, w := range words {
		if !strings.EqualFold(string(call[i]), w) {
			return false
		}
	}
	return true
}

// unordered says which replies have no order: of what size the pieces are that may come in any. The reply of a scan, a
// cursor and an array, has them in the array.
var unordered = map[string]struct {
	piece int
	scan  bool
}{
	"keys": {1, false}, "hkeys": {1, false}, "hvals": {1, false}, "hgetall": {2, false},
	"smembers": {1, false}, "sinter": {1, false}, "sunion": {1, false}, "sdiff": {1, false},
	"scan": {1, true}, "hscan": {2, true}, "sscan": {1, true}, "zscan": {2, true},
}

// order sorts the parts of both replies that have no order.
func (d *Difference) order() {
	how, ok := unordered[d.name()]
	if len(d.Call) > 3 && isCall(d.Call, "sort_ro", string(d.Call[1]), "by", anyOrder) {
		how.piece, ok = max((len(d.Call)-4)/2, 1), true
	}
	if !ok {
		return
	}
	for _, v := range []*ReplyValue{&d.Want, &d.Got} {
		if how.scan {
			if len(v.Items) != 2 {
				continue
			}
			v = &v.Items[1]
		}
		v.sort(how.piece)
	}
}

// name is the name of the command in lower case.
func (d *Difference) name() string {
	if len(d.Call) == 0 {
		return ""
	}
	return strings.ToLower(string(d.Call[0]))
}

// sort sorts the elements, so many at a time.
func (v *ReplyValue) sort(piece int) {
	if len(v.Items)%piece != 0 {
		return
	}
	pieces := slices.Collect(slices.Chunk(v.Items, piece))
	slices.SortFunc(pieces, func(a, b []ReplyValue) int {
		return slices.CompareFunc(a, b, func(a, b ReplyValue) int { return bytes.Compare(a.Text, b.Text) })
	})
	v.Items = slices.Concat(pieces...)
}

// samples are the commands that choose at random: the call behind them, or before those that remove what they choose,
// returns all that they could choose from, as names or, where that is what the option asks for, as names with values.
var samples = map[string]struct {
	option, all string
	removes     bool
}{
	"hrandfield":  {"withvalues", "hgetall", false},
	"srandmember": {"", "smembers", false},
	"spop":        {"", "smembers", true},
	"zrandmember": {"withscores", "zrange", false}, // from 0 to -1 withscores
}

// chosen reports whether both replies are random choices of the same kind and ours, which may differ, is a valid one.
// The reply of the neighbouring call lists the elements (for RANDOMKEY that call is KEYS): our choice must be among
// them, of the right number, and without repetition if the call asks for that.
func (d *Difference) chosen() bool {
	if d.name() == "randomkey" {
		all := d.Behind
		return all != nil && isCall(all.Call, "keys", "*") && sameShape(d.Want, d.Got) && d.Got.among(all.Got.Items)
	}
	how, ok := samples[d.name()]
	beside := d.Behind
	if how.removes {
		beside = d.Before
	}
	if !ok || beside == nil || len(beside.Call) < 2 || !isCall(beside.Call, how.all) || len(d.Call) < 2 ||
		!bytes.Equal(beside.Call[1], d.Call[1]) {
		return false
	}
	if !sameShape(d.Want, d.Got) {
		return false
	}
	with := len(d.Call) == 4
	names := 1 // values for each name in the reply of all
	if how.option != "" {
		names = 2
	}
	members := make(map[string]string)
	for piece := range slices.Chunk(beside.Got.leaves(), names) {
		members[string(piece[0].Text)] = string(piece[len(piece)-1].Text)
	}
	different := len(d.Call) > 2 && !bytes.HasPrefix(d.Call[2], []byte("-"))
	seen := make(map[string]bool)
	step := 1
	if with {
		step = 2
	}
	for piece := range slices.Chunk(d.Got.leaves(), step) {
		name := string(piece[0].Text)
		value, ok := members[name]
		if !ok || different && seen[name] || with && (len(piece) != 2 || string(piece[1].Text) != value) {
			return false
		}
		seen[name] = true
	}
	return true
}

// sameShape reports whether two values are of the same kinds, with as many elements.
func sameShape(a, b ReplyValue) bool {
	return a.Kind == b.Kind && a.Null == b.Null && a.Kind != '-' && slices.EqualFunc(a.Items, b.Items, sameShape)
}

// leaves returns the values that are no aggregates, in order.
func (v ReplyValue) leaves() (all []ReplyValue) {
	switch v.Kind {
	case '*', '%', '~', '>':
		for _, item := range v.Items {
			all = append(all, item.leaves()...)
		}
		return all
	}
	return []ReplyValue{v}
}

// clockTolerance is how much later one side may be asked what the time is, or told to count from it.
const clockTolerance = 10 * time.Second

// absoluteFrom is an instant so late that a key can only expire after it if a call named that time. No call gives a key
// so many seconds to live.
var absoluteFrom = time.Date(2200, 1, 1, 0, 0, 0, 0, time.UTC)

// onlyTime reports whether both replies are times of keys that expire, and differ by no more than the time between the
// two calls. If a call set the expiry to an instant, and not to a number of seconds from now, both must be equal.
func (d *Difference) onlyTime() bool {
	unit, absolute := time.Second, false
	switch {
	case isCall(d.Call, "ttl"):
	case isCall(d.Call, "expiretime"):
		absolute = true
	case isCall(d.Call, "pttl"):
		unit = time.Millisecond
	case isCall(d.Call, "pexpiretime"):
		unit, absolute = time.Millisecond, true
	default:
		return false
	}
	a, ok := d.Want.Int()
	b, ok2 := d.Got.Int()
	if absolute && max(a, b) >= absoluteFrom.UnixNano()/int64(unit) {
		return false
	}
	return ok && ok2 && a > 0 && b > 0 && max(a-b, b-a) <= int64(clockTolerance/unit)
}

// adding are the commands that add elements to a collection, or make one.
var adding = []string{"hset", "hmset", "sadd", "zadd", "rpush", "lpush"}

// plain reports whether a call asks for the encoding, or the reference count, of a key whose value depends on no
// history: a string that was written as a whole, or a collection that the calls before it removed and made anew by
// adding to it. Then Redis's reply follows from the value alone.
func (d *Difference) plain(past []Difference) bool {
	refcount := isCall(d.Call, "object", "refcount")
	if len(d.Call) != 3 || !refcount && !isCall(d.Call, "object", "encoding") || len(past) == 0 {
		return false
	}
	if d.Inside && refcount { // the queued calls refer to their arguments, too
		return false
	}
	wrote := func(p Difference, names ...string) bool {
		return len(p.Call) > 1 && slices.Contains(names, p.name()) && bytes.Equal(p.Call[1], d.Call[2]) &&
			(p.Want.Kind == '+' || p.Want.Kind == ':')
	}
	if wrote(past[len(past)-1], "set", "setex", "psetex", "mset", "incr") {
		return true
	}
	for i := len(past) - 1; i > 0 && wrote(past[i], adding...); i-- {
		if wrote(past[i-1], "del") {
			return true
		}
	}
	return false
}
