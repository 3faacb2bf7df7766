package sim

import (
	"testing"
)

// TestHistoryIsChecked gives the checker histories whose verdict is plain.
func TestHistoryIsChecked(t *testing.T) {
	o := func(k opName, value string, call, end int64, reply string) *op {
		return &op{kind: k, key: "k", value: value, call: call, end: end, reply: reply}
	}
	in := func(turn int, o *op) *op {
		o.line, o.turn = 1, turn
		return o
	}
	cell := func(k opName, value string, call, end int64, reply string) *op {
		return &op{kind: k, key: "g", value: value, call: call, end: end, reply: reply}
	}
	inSets := func(k opName, value string, call, end int64, reply string) *op {
		return &op{kind: k, key: "t", value: value, call: call, end: end, reply: reply}
	}
	field := func(k opName, value string, call, end int64, reply string) *op {
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
		{"a read beside the write", []*op{
			o(set, "a", 1, 2, "OK"), o(set, "b", 3, 6, "OK"), o(get, "", 4, 5, "a"),
		}, true},
		{"an unknown write shows up late", []*op{
			o(set, "a", 1, 0, ""), o(get, "", 2, 3, ""), o(get, "", 4, 5, "a"),
		}, true},
		{"an unknown write shows up and goes", []*op{
			o(set, "a", 1, 0, ""), o(get, "", 2, 3, "a"), o(get, "", 4, 5, ""),
		}, false},
		{"an unknown write never shows up", []*op{o(set, "a", 1, 0, ""), o(get, "", 2, 3, "")}, true},
		{"a value out of nowhere", []*op{o(get, "", 1, 2, "a")}, false},
		{"counted once", []*op{o(incr, "", 1, 2, "1"), o(incr, "", 3, 4, "2"), o(get, "", 5, 6, "2")}, true},
		{"counted twice", []*op{o(incr, "", 1, 2, "1"), o(incr, "", 3, 4, "3")}, false},
		{"an unknown count in between", []*op{
			o(incr, "", 1, 2, "1"), o(incr, "", 3, 0, ""), o(incr, "", 4, 5, "3"),
		}, true},
		{"two winners", []*op{o(setNX, "a", 1, 2, "1"), o(setNX, "b", 3, 4, "1")}, false},
		{"a winner after the deletion", []*op{
			o(setNX, "a", 1, 2, "1"), o(del, "", 3, 4, "1"), o(setNX, "b", 5, 6, "1"),
		}, true},
		{"deleted by nobody", []*op{o(setNX, "a", 1, 2, "1"), o(setNX, "b", 3, 4, "0"), o(get, "", 5, 6, "")}, false},
		{"pushed at both ends", []*op{
			o(rpush, "a", 1, 2, "1"), o(lpush, "b", 3, 4, "2"), o(rpush, "c", 5, 6, "3"), o(lrange, "", 7, 8, "b a c"),
			o(rpop, "", 9, 10, "c"), o(lpop, "", 11, 12, "b"),
		}, true},
		{"popped twice", []*op{
			o(rpush, "a", 1, 2, "1"), o(rpush, "b", 3, 4, "2"), o(lpop, "", 5, 6, "a"), o(lpop, "", 7, 8, "a"),
		}, false},
		{"an unknown pop", []*op{
			o(rpush, "a", 1, 2, "1"), o(lpop, "", 3, 0, ""), o(rpush, "b", 4, 5, "2"), o(lrange, "", 6, 7, "b"),
		}, true},
		{"a push is lost", []*op{o(rpush, "a", 1, 2, "1"), o(lpush, "b", 3, 4, "2"), o(lrange, "", 5, 6, "a")}, false},
		{"any member", []*op{
			o(sadd, "b", 1, 2, "1"), o(sadd, "a", 3, 4, "1"), o(sadd, "b", 5, 6, "0"), o(smembers, "", 7, 8, "a b"),
			o(spop, "", 9, 10, "b"), o(smembers, "", 11, 12, "a"),
		}, true},
		{"no member", []*op{o(sadd, "a", 1, 2, "1"), o(spop, "", 3, 4, "b")}, false},
		{"none of members", []*op{o(sadd, "a", 1, 2, "1"), o(spop, "", 3, 4, "")}, false},
		{"an unknown one of members", []*op{
			o(sadd, "a", 1, 2, "1"), o(sadd, "b", 3, 4, "1"), o(spop, "", 5, 0, ""), o(spop, "", 6, 7, "a"),
			o(spop, "", 8, 9, ""),
		}, true},
		{"two of members by one", []*op{
			o(sadd, "a", 1, 2, "1"), o(sadd, "b", 3, 4, "1"), o(spop, "", 5, 0, ""), o(smembers, "", 6, 7, ""),
		}, false},
		{"an unknown one comes back", []*op{
			o(sadd, "a", 1, 2, "1"), o(spop, "", 3, 0, ""), o(smembers, "", 4, 5, ""), o(smembers, "", 6, 7, "a"),
		}, false},
		{"in order", []*op{
			o(zadd, "2 a", 1, 2, "1"), o(zadd, "1 c", 3, 4, "1"), o(zadd, "1 b", 5, 6, "1"), o(zadd, "0 a", 7, 8, "0"),
			o(zadd, "3 a", 9, 10, "0"), o(zrange, "", 11, 12, "b 1 c 1 a 3"), o(zpopmin, "", 13, 14, "b 1"),
			o(zpopmin, "", 15, 0, ""), o(zpopmin, "", 16, 17, "a 3"),
		}, true},
		{"an old score", []*op{
			o(zadd, "2 a", 1, 2, "1"), o(zadd, "3 a", 3, 4, "0"), o(zpopmin, "", 5, 6, "a 2"),
		}, false},
		{"not the least", []*op{
			o(zadd, "2 a", 1, 2, "1"), o(zadd, "3 b", 3, 4, "1"), o(zpopmin, "", 5, 6, "b 3"),
		}, false},
		{"of another type", []*op{
			o(set, "=", 1, 2, "OK"), o(lpop, "", 3, 4, wrongType), o(del, "", 5, 6, "1"), o(lpop, "", 7, 8, ""),
		}, true},
		{"in turn", []*op{
			in(0, o(incr, "", 1, 5, "1")), in(1, o(incr, "", 2, 6, "2")), in(2, o(get, "", 3, 7, "3")),
			o(incr, "", 4, 8, "3"),
		}, true},
		{"not in turn", []*op{in(0, o(incr, "", 1, 5, "2")), in(1, o(incr, "", 2, 6, "1"))}, false},
		{"a read ahead of its turn", []*op{in(0, o(set, "a", 1, 5, "OK")), in(1, o(get, "", 2, 6, ""))}, false},
		{"an unknown one before its turn ends", []*op{
			in(0, o(incr, "", 1, 0, "")), in(1, o(incr, "", 2, 5, "2")),
		}, true},
		{"an unknown one that never comes", []*op{
			in(0, o(incr, "", 1, 0, "")), in(1, o(incr, "", 2, 5, "1")), o(get, "", 6, 7, "1"),
		}, true},
		{"an unknown one behind its turn", []*op{
			in(0, o(incr, "", 1, 0, "")), in(1, o(incr, "", 2, 5, "1")), o(get, "", 6, 7, "2"),
		}, false},
		{"an unknown one beside a pipeline of others", []*op{
			in(0, o(del, "", 1, 0, "")), in(1, o(incr, "", 2, 0, "")), o(incr, "", 3, 0, ""), o(set, "5", 4, 5, "OK"),
			o(incr, "", 6, 7, "7"), o(incr, "", 8, 9, "1"), o(incr, "", 10, 11, "3"),
		}, true},
		{"cells", []*op{
			cell(mset, "a 1 b 2", 1, 2, "OK"), cell(mget, "", 3, 4, "1 2 "), cell(rename, "a c", 5, 6, "OK"),
			cell(mget, "", 7, 8, " 2 1"), cell(rename, "a c", 9, 10, noSuchKey), cell(copyTo, "b a", 11, 12, "1"),
			cell(get, "a", 13, 14, "2"), cell(msetNX, "a 5", 15, 16, "0"), cell(del, "c a", 17, 18, "2"),
			cell(msetNX, "a 5", 19, 20, "1"), cell(mget, "", 21, 22, "5 2 "), cell(del, "a b c", 23, 24, "2"),
			cell(mget, "", 25, 26, "  "),
		}, true},
		{"half of the cells", []*op{cell(mset, "a 1 b 2", 1, 6, "OK"), cell(mget, "", 2, 5, "1  ")}, false},
		{"all of the cells", []*op{
			cell(mset, "a 1 b 2", 1, 6, "OK"), cell(mget, "", 2, 3, "  "), cell(mget, "", 4, 5, "1 2 "),
		}, true},
		{"a renamed cell is in both", []*op{
			cell(mset, "a 1", 1, 2, "OK"), cell(rename, "a b", 3, 6, "OK"), cell(mget, "", 4, 5, "1 1 "),
		}, false},
		{"fields", []*op{
			field(hfill, "a 1 b 2", 1, 2, "2"), field(hfill, "a 3 c 2", 3, 4, "1"), field(hmget, "", 5, 6, "3 2 2"),
			field(hdel, "b c", 7, 8, "2"), field(hmget, "", 9, 10, "3  "),
		}, true},
		{"a member moves", []*op{
			inSets(sadd, "a x", 1, 2, "1"), inSets(sadd, "a y", 3, 4, "1"), inSets(smove, "a b x", 5, 6, "1"),
			inSets(smove, "a b x", 7, 8, "0"), inSets(smembers, "a", 9, 10, "y"), inSets(smembers, "b", 11, 12, "x"),
			inSets(sadd, "c y", 13, 14, "1"), inSets(sunion, "", 15, 16, "x y"), inSets(smove, "a c y", 17, 18, "1"),
			inSets(smembers, "c", 19, 20, "y"), inSets(sunion, "", 21, 22, "x y"),
		}, true},
		{"a member is lost between sets", []*op{
			inSets(sadd, "a x", 1, 2, "1"), inSets(smove, "a b x", 3, 6, "1"), inSets(sunion, "", 4, 5, ""),
		}, false},
		{"a member has moved and is still there", []*op{
			inSets(sadd, "a x", 1, 2, "1"), inSets(smove, "a b x", 3, 4, "1"), inSets(smembers, "a", 5, 6, "x"),
		}, false},
		{"a member moves or does not", []*op{
			inSets(sadd, "a x", 1, 2, "1"), inSets(smove, "a b x", 3, 0, ""), inSets(smembers, "b", 4, 5, ""),
			inSets(smembers, "a", 6, 7, ""),
		}, true},
		{"a member is in neither set in the end", []*op{
			inSets(sadd, "a x", 1, 2, "1"), inSets(smove, "a b x", 3, 0, ""), inSets(smembers, "a", 4, 5, ""),
			inSets(smembers, "b", 6, 7, ""),
		}, false},
		{"half of the fields", []*op{field(hfill, "a 1 b 2", 1, 6, "2"), field(hmget, "", 2, 5, " 2 ")}, false},
	} {
		h := &history{ops: x.ops}
		if err := h.check(); (err == nil) != x.ok {
			t.Errorf("%s: check = %v; want linearizable %v", x.name, err, x.ok)
		}
	}
}
