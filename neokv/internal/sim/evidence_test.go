package sim

import (
	"testing"
)

// TestEvidence gives the checker histories that are not linearizable and whose kind is plain.
func TestEvidence(t *testing.T) {
	o := func(k opName, value string, call, end int64, reply string) *op {
		return &op{kind: k, key: "k", value: value, call: call, end: end, reply: reply, expiry: expiry{ended: forever}}
	}
	in := func(line uint64, turn int, o *op) *op {
		o.line, o.turn = line, turn
		return o
	}
	for _, x := range []struct {
		name string
		ops  []*op
		want evidence
	}{
		{"an old value, then the new one", []*op{
			o(set, "a", 1, 2, "OK"), o(set, "b", 3, 4, "OK"), o(get, "", 5, 6, "a"), o(get, "", 7, 8, "b"),
		}, staleRead},
		{"old values, then the new one", []*op{
			o(set, "a", 1, 2, "OK"), o(set, "b", 3, 4, "OK"), o(get, "", 5, 6, "a"), o(get, "", 6, 7, ""),
			o(get, "", 7, 8, "b"),
		}, staleRead},
		{"an old value, for good", []*op{
			o(set, "a", 1, 2, "OK"), o(set, "b", 3, 4, "OK"), o(get, "", 5, 6, "b"), o(get, "", 7, 8, "a"),
			o(get, "", 9, 10, "a"),
		}, lostWrite},
		{"nothing, for good", []*op{o(set, "a", 1, 2, "OK"), o(get, "", 3, 4, "")}, lostWrite},
		{"a count that is given twice", []*op{
			o(incr, "", 1, 2, "1"), o(incr, "", 3, 4, "2"), o(incr, "", 5, 6, "2"), o(get, "", 7, 8, "2"),
		}, lostWrite},
		{"two winners", []*op{o(setNX, "a", 1, 2, "1"), o(setNX, "b", 3, 4, "1")}, lostWrite},
		{"a count that is left out", []*op{o(incr, "", 1, 2, "1"), o(incr, "", 3, 4, "3")}, doubled},
		{"a count of unknown outcome that counts twice", []*op{
			o(incr, "", 1, 0, ""), o(get, "", 2, 3, "1"), o(get, "", 4, 5, "2"),
		}, doubled},
		{"a value out of nowhere", []*op{o(set, "a", 1, 2, "OK"), o(get, "", 3, 4, "b")}, wrongEffect},
		{"the first of two remains", []*op{
			in(7, 0, o(set, "a", 1, 3, "OK")), in(7, 1, o(set, "b", 2, 4, "OK")), o(get, "", 5, 6, "a"),
		}, outOfOrder},
		{"the second comes first", []*op{
			in(7, 0, o(incr, "", 1, 3, "2")), in(7, 1, o(incr, "", 2, 4, "1")),
		}, outOfOrder},
	} {
		h := &history{ops: x.ops}
		if got := evidenceOf(h.check()); got != x.want {
			t.Errorf("%s: %q; want %q", x.name, got, x.want)
		}
	}
}
