package sim

import (
	"testing"
	"time"
)

// TestExpiryIsChecked gives the checker histories of keys that expire and whose verdict is plain. Each operation
// takes a second, and clocks are off by up to a second.
func TestExpiryIsChecked(t *testing.T) {
	const second = time.Second
	write := func(value string, at, ttl time.Duration, known bool) *op {
		o := &op{kind: set, key: "k", value: value, call: int64(at), expiry: begun(at)}
		o.lives(ttl, second)
		if known {
			o.end, o.reply = int64(at+second), "OK"
			o.done(at+second, second)
		}
		return o
	}
	ask := func(k opName, at time.Duration, reply string) *op {
		o := &op{kind: k, key: "k", call: int64(at), end: int64(at + second), reply: reply, expiry: begun(at)}
		o.done(at+second, second)
		return o
	}
	push := func(value string, at time.Duration) *op {
		o := ask(rpush, at, "1")
		o.value = value
		return o
	}
	fades := func(at, ttl time.Duration) *op {
		o := ask(fade, at, "1")
		o.lives(ttl, second)
		o.done(at+second, second)
		return o
	}
	for _, x := range []struct {
		name string
		ops  []*op
		ok   bool
	}{
		{"read before it may go", []*op{write("a", 0, 10*second, true), ask(get, 6*second, "a")}, true},
		{"gone too early", []*op{write("a", 0, 10*second, true), ask(get, 6*second, "")}, false},
		{"gone when it may", []*op{write("a", 0, 10*second, true), ask(get, 7*second, "")}, true},
		{"there as long as it may", []*op{write("a", 0, 10*second, true), ask(get, 13*second, "a")}, true},
		{"there too long", []*op{write("a", 0, 10*second, true), ask(get, 14*second, "a")}, false},
		{"it comes back", []*op{
			write("a", 0, 10*second, true), ask(get, 8*second, ""), ask(get, 10*second, "a"),
		}, false},
		{"a write of unknown outcome stays", []*op{write("a", 0, 10*second, false), ask(get, 50*second, "a")}, true},
		{"a write of unknown outcome goes early", []*op{
			write("a", 0, 10*second, false), ask(get, second, "a"), ask(get, 6*second, ""),
		}, false},
		{"an unread write of unknown outcome takes another away", []*op{
			write("a", 0, 100*second, true), write("b", second, 10*second, false), ask(get, 12*second, ""),
		}, true},
		{"deleted early", []*op{write("a", 0, 10*second, true), ask(del, 6*second, "0")}, false},
		{"persisted and gone", []*op{
			write("a", 0, 10*second, true), ask(keep, 3*second, "1"), ask(get, 30*second, ""),
		}, false},
		{"persisted", []*op{write("a", 0, 10*second, true), ask(keep, 3*second, "1"), ask(get, 30*second, "a")}, true},
		{"a list is gone too early", []*op{
			push("a", 0), fades(second, 10*second), ask(lrange, 6*second, "a"), ask(lpop, 6*second, ""),
		}, false},
		{"a list is gone when it may", []*op{
			push("a", 0), fades(second, 10*second), ask(lrange, 6*second, "a"), ask(lpop, 9*second, ""),
			push("1", 14*second), ask(lrange, 30*second, "1"),
		}, true},
		{"a time to live goes with the last element", []*op{
			push("a", 0), fades(second, 10*second), ask(lpop, 3*second, "a"), push("b", 4*second),
			ask(lrange, 30*second, ""),
		}, false},
		{"a list that was emptied stays", []*op{
			push("a", 0), fades(second, 10*second), ask(lpop, 3*second, "a"), push("b", 4*second),
			ask(lrange, 30*second, "b"),
		}, true},
		{"nothing to persist", []*op{
			write("a", 0, 10*second, true), ask(keep, 8*second, "0"), ask(get, 10*second, "a"),
		}, false},
	} {
		h := &history{ops: x.ops, skew: second}
		if err := h.check(); (err == nil) != x.ok {
			t.Errorf("%s: check = %v; want right %v", x.name, err, x.ok)
		}
	}
}
