package redistest

import (
	"bytes"
	"slices"
	"strings"
	"time"
)

// This file is what two servers that are equal may answer differently: orders, times, and the differences that are meant.

// Exception is a difference that is meant.
type Exception struct {
	Reason  string
	Matches func(call [][]byte, want, got Value) bool
}

// Exceptions are all of them. Each lets through as little as it can: errors and nulls are compared everywhere.
var Exceptions = []Exception{
	{"the encoding of a string is told by its value, not by the commands that made it", func(call [][]byte, want, got Value) bool {
		return isCall(call, "object", "encoding") && slices.Contains(stringEncodings, string(want.Text)) && slices.Contains(stringEncodings, string(got.Text))
	}},
	{"so is the number of references: small integers are shared", func(call [][]byte, want, got Value) bool {
		return isCall(call, "object", "refcount") && want.Kind == ':' && got.Kind == ':'
	}},
	{"times of access are not kept", func(call [][]byte, want, got Value) bool {
		return isCall(call, "object", "idletime") && want.Kind == ':' && string(got.Text) == "0"
	}},
	{"a record is not an object of Redis's: it has another size", func(call [][]byte, want, got Value) bool {
		return isCall(call, "memory", "usage") && want.Kind == ':' && got.Kind == ':'
	}},
	{"RANDOMKEY is random", func(call [][]byte, want, got Value) bool {
		return isCall(call, "randomkey") && want.Kind == '$' && got.Kind == '$' && !want.Null && !got.Null
	}},
	{"HELLO names the connection's number", func(call [][]byte, want, got Value) bool {
		return isCall(call, "hello") && want.Kind == got.Kind && want.Kind != '-' && len(want.Items) == len(got.Items)
	}},
	{"help and texts about memory are our own", func(call [][]byte, want, got Value) bool {
		return len(call) == 2 && (isCall(call, "memory") || isCall(call, string(call[0]), "help")) && want.Kind == got.Kind && want.Kind != '-'
	}},
	{"Redis finds a subcommand whose name goes on behind a zero byte where its hash happens to collide", func(call [][]byte, want, got Value) bool {
		return len(call) > 1 && bytes.IndexByte(call[1], 0) > 0 && strings.HasPrefix(string(got.Text), "ERR unknown subcommand")
	}},
	{"a Redis alone has no replicas for WAIT to count", func(call [][]byte, want, got Value) bool {
		return isCall(call, "wait") && want.Kind == ':' && got.Kind == ':'
	}},
	{"LOLWUT is our own", func(call [][]byte, want, got Value) bool {
		return isCall(call, "lolwut") && want.Kind == got.Kind && want.Kind != '-'
	}},
}

var stringEncodings = []string{"int", "embstr", "raw"}

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

// order sorts what has no order.
func (d *Difference) order() {
	for _, v := range []Value{d.Want, d.Got} {
		switch {
		case isCall(d.Call, "keys"):
			sortItems(v)
		case isCall(d.Call, "scan") && len(v.Items) == 2:
			sortItems(v.Items[1])
		}
	}
}

func sortItems(v Value) {
	slices.SortFunc(v.Items, func(a, b Value) int { return bytes.Compare(a.Text, b.Text) })
}

// clockTolerance is how much later one side may be asked what the time is, or told to count from it.
const clockTolerance = 10 * time.Second

// onlyTime reports whether both answers are times, of keys that both expire, and the same but for the time between the calls.
func (d *Difference) onlyTime() bool {
	unit := time.Second
	switch {
	case isCall(d.Call, "ttl"), isCall(d.Call, "expiretime"):
	case isCall(d.Call, "pttl"), isCall(d.Call, "pexpiretime"):
		unit = time.Millisecond
	default:
		return false
	}
	a, ok := d.Want.Int()
	b, ok2 := d.Got.Int()
	return ok && ok2 && a > 0 && b > 0 && max(a-b, b-a) <= int64(clockTolerance/unit)
}
