package redistest

import (
	"strconv"
	"strings"
)

// element draws from few elements of lists, so that some are equal.
func (g *CallGenerator) element() string {
	switch {
	case g.one(12):
		return g.Value()
	case g.one(4):
		return strconv.Itoa(g.IntN(5))
	}
	return g.pick("a", "b", "c", "a", "b", "", "\x00", "A", "a\x00", "a\r\n", "\xff\xfe", "01", "-0", "1",
		strings.Repeat("element", 20))
}

func (g *CallGenerator) end() string {
	if g.one(20) {
		return g.pick("", "lef", "left\x00x", "before", "0", "leftt")
	}
	return g.pick("left", "right", "LEFT", "RIGHT", "Left")
}

// count draws a number of elements, mostly a small one.
func (g *CallGenerator) count() string {
	if g.one(8) {
		return g.Number()
	}
	return g.pick("0", "1", "1", "2", "3", "5", "12", "-1", "-2", "-3", "100", "1000000", "-1000000")
}

// position draws a position in a list of some tens, from either end, or an odd one.
func (g *CallGenerator) position() string {
	if g.one(3) {
		return strconv.Itoa(g.IntN(90) - 45)
	}
	return g.index()
}

func listCall(g *CallGenerator) [][]string {
	key := g.keyOf("list")
	switch g.IntN(28) {
	case 0, 1, 2, 3, 4:
		return [][]string{g.call(append([]string{g.pick("lpush", "rpush"), key}, g.some(5, g.element)...)...)}
	case 5:
		return [][]string{g.call(append([]string{g.pick("lpushx", "rpushx"), key}, g.some(3, g.element)...)...)}
	case 6, 7:
		args := []string{g.pick("lpop", "rpop"), key}
		if g.one(2) {
			args = append(args, g.count())
		}
		return [][]string{g.call(args...)}
	case 8:
		return [][]string{g.call("llen", key)}
	case 9, 10:
		return [][]string{g.call("lindex", key, g.position())}
	case 11, 12:
		return [][]string{g.call("lset", key, g.position(), g.element())}
	case 13, 14:
		return [][]string{g.call("lrange", key, g.position(), g.position())}
	case 15, 16:
		return [][]string{g.call("linsert", key, g.pick("before", "after", "BEFORE", "After", "before", "after", "",
			"befor", "after\x00"), g.element(), g.element()),
			{"lrange", key, "0", "-1"}}
	case 17, 18:
		return [][]string{g.call("lrem", key, g.count(), g.element()), {"lrange", key, "0", "-1"}}
	case 19:
		if g.one(3) {
			return [][]string{g.call("ltrim", key, g.position(), g.position())}
		}
		return [][]string{g.call("ltrim", key, g.pick("0", "1", "2", "-30", "-20"),
			g.pick("-1", "-2", "-3", "20", "40"))}
	case 20, 21:
		args := []string{"lpos", key, g.element()}
		for g.one(2) {
			args = append(args, g.pick("rank", "RANK", "count", "COUNT", "maxlen", "MaxLen", "rank\x00", "len", ""))
			if !g.one(30) {
				args = append(args, g.count())
			}
		}
		return [][]string{g.call(args...)}
	case 22, 23:
		if g.one(3) {
			return [][]string{g.callWith(g.nearOf("list"), "rpoplpush", g.nearOf("list"), g.nearOf("list"))}
		}
		return [][]string{g.callWith(g.end(), "lmove", g.nearOf("list"), g.nearOf("list"), g.end(), g.end())}
	case 24, 25:
		return [][]string{g.lmpop()}
	case 26:
		return [][]string{{"lrange", key, "0", "-1"}}
	}
	args := []string{g.pick("lpush", "rpush"), key} // a longer one once in a while
	for range 20 + g.IntN(40) {
		args = append(args, g.element())
	}
	if g.one(20) { // or one that is cut by a range
		for range 1100 {
			args = append(args, g.pick("a", "b", "x"))
		}
		return [][]string{args, {"ltrim", key, g.pick("0", "1030", "0", "5"), g.pick("30", "-1", "-1040", "4")},
			{"lrange", key, "0", "-1"}}
	}
	return [][]string{args}
}

// lmpop makes a LMPOP. No count of its keys is so large that Redis's own sums overflow.
func (g *CallGenerator) lmpop() []string {
	n := 1 + g.IntN(3)
	count := strconv.Itoa(n)
	if g.one(10) {
		count = g.pick("0", "-1", "1", "2", "100", "x", "", "01", "1.5", "2147483648", "9223372036854775808")
	}
	if g.Spread && count == strconv.Itoa(n+1) { // the end would be a key, of another region
		count = "100"
	}
	args := []string{"lmpop", count}
	for range n {
		args = append(args, g.nearOf("list"))
	}
	args = append(args, g.end())
	for g.one(2) {
		args = append(args, g.pick("count", "COUNT", "count", "count\x00", "counts", ""))
		if !g.one(20) {
			args = append(args, g.count())
		}
	}
	return g.callWith(g.end(), args...)
}

var listCases = []Case{
	{Name: "lpush lpop", Calls: `
		flushall
		lpushx {t}l a
		rpushx {t}l a
		exists {t}l
		lpush {t}l a b c
		rpush {t}l d
		lpushx {t}l e f
		rpushx {t}l g ""
		llen {t}l
		llen {t}no
		lrange {t}l 0 -1
		type {t}l
		object encoding {t}l
		lpop {t}l
		rpop {t}l
		lpop {t}l 2
		rpop {t}l 2
		lpop {t}l 0
		lpop {t}no 0
		lpop {t}no 2
		lpop {t}no
		rpop {t}no
		rpop {t}no 1
		lpop {t}l -1
		lpop {t}l x
		lpop {t}l 1.5
		lpop {t}l 9223372036854775808
		lpop {t}l 1 2
		rpop {t}l 1 2
		lpop {t}no -1
		expire {t}l 10000
		ttl {t}l
		rpop {t}l 9223372036854775807
		exists {t}l
		dbsize
		rpush {t}l "\x00\xff" "a\r\nb"
		ttl {t}l
		lrange {t}l 0 0
		lrange {t}l 1 1
		lpush
		lpush {t}l
		lpop
		llen {t}l x`},
	{Name: "lindex lset lrange", Calls: `
		flushall
		rpush {t}l a b c d e
		lindex {t}l 0
		lindex {t}l 4
		lindex {t}l 5
		lindex {t}l -1
		lindex {t}l -5
		lindex {t}l -6
		lindex {t}l x
		lindex {t}no x
		lindex {t}no 0
		lindex {t}l -9223372036854775808
		lindex {t}l 9223372036854775807
		lset {t}l 0 A
		lset {t}l -1 E
		lset {t}l 2 ""
		lset {t}l 5 x
		lset {t}l -6 x
		lset {t}l x x
		lset {t}no x x
		lset {t}no 0 x
		lset {t}l -9223372036854775808 x
		lrange {t}l 0 -1
		lrange {t}l 1 3
		lrange {t}l -2 -1
		lrange {t}l 3 1
		lrange {t}l -100 100
		lrange {t}l 5 10
		lrange {t}l -9223372036854775808 9223372036854775807
		lrange {t}l 9223372036854775807 -9223372036854775808
		lrange {t}l 0 -6
		lrange {t}l x 0
		lrange {t}l 0 x
		lrange {t}no x 0
		lrange {t}no 0 -1
		rpush {t}l f g h i j k l m
		lrange {t}l 1 -2
		lrange {t}l 0 -1`},
	{Name: "linsert lrem ltrim", Calls: `
		flushall
		rpush {t}l a b c b d
		linsert {t}l before b 1
		linsert {t}l AFTER b 2
		linsert {t}l before a 3
		linsert {t}l after d 4
		linsert {t}l before no 5
		linsert {t}no before no 5
		linsert {t}l nosuch b 5
		linsert {t}no nosuch b 5
		lrange {t}l 0 -1
		lrem {t}l 1 b
		lrem {t}l 0 no
		lrem {t}no 0 a
		lrem {t}l x a
		lrem {t}l -9223372036854775808 a
		lrem {t}l -9223372036854775807 a
		lrem {t}l 9223372036854775807 b
		lrange {t}l 0 -1
		del {t}l
		rpush {t}l x a x b x x c d e f g h x i x
		lrem {t}l -2 x
		lrange {t}l 0 -1
		lrem {t}l 2 x
		lrange {t}l 0 -1
		lrem {t}l 0 x
		lrange {t}l 0 -1
		linsert {t}l after a y
		linsert {t}l before i y
		lrange {t}l 0 -1
		ltrim {t}l 1 -2
		lrange {t}l 0 -1
		ltrim {t}l x 1
		ltrim {t}l 1 x
		ltrim {t}no x 1
		ltrim {t}no 1 2
		ltrim {t}l -100 100
		ltrim {t}l -3 -1
		lrange {t}l 0 -1
		expire {t}l 10000
		ltrim {t}l 0 0
		ttl {t}l
		ltrim {t}l 1 0
		exists {t}l
		rpush {t}l x x x
		lrem {t}l 0 x
		exists {t}l
		dbsize`},
	{Name: "lpos", Calls: `
		flushall
		rpush {t}l a b c 1 2 3 c c
		lpos {t}l c
		lpos {t}l c rank 2
		lpos {t}l c rank -1
		lpos {t}l c rank -4
		lpos {t}l c rank 4 count 0
		lpos {t}l c count 2
		lpos {t}l c count 0
		lpos {t}l c rank -1 count 2
		lpos {t}l c rank 2 count 0 maxlen 7
		lpos {t}l c rank -2 count 0 maxlen 2
		lpos {t}l c maxlen 2
		lpos {t}l c maxlen 0 count 100
		lpos {t}l no
		lpos {t}l no count 1
		lpos {t}no c
		lpos {t}no c count 1
		lpos {t}l c rank 0
		lpos {t}no c rank 0
		lpos {t}l c rank x
		lpos {t}l c rank -9223372036854775808
		lpos {t}l c rank -9223372036854775807
		lpos {t}l c count -1
		lpos {t}l c count x
		lpos {t}l c maxlen -1
		lpos {t}l c maxlen x
		lpos {t}l c rank
		lpos {t}l c nosuch 1
		lpos {t}l c rank 2 rank 1
		lpos {t}l`},
	{Name: "lmove", OneRegion: true, Calls: `
		flushall
		rpush {t}l a b c
		lmove {t}l {t}m left right
		lmove {t}l {t}m RIGHT Left
		lrange {t}m 0 -1
		lmove {t}m {t}m left right
		lmove {t}m {t}m left left
		lrange {t}m 0 -1
		expire {t}l 10000
		lmove {t}l {t}l left right
		ttl {t}l
		rpoplpush {t}l {t}m
		exists {t}l
		rpoplpush {t}m {t}m
		rpoplpush {t}no {t}m
		lrange {t}m 0 -1
		lmove {t}no {t}m left right
		lmove {t}no {t}m left x
		lmove {t}no {t}m x left
		set {t}s v
		lmove {t}m {t}s left left
		lmove {t}s {t}m left left
		lmove {t}no {t}s left left
		rpoplpush {t}m {t}s
		rpoplpush {t}s {t}s
		rpoplpush {t}m
		lmove {t}m {t}m left
		lrange {t}m 0 -1
		dbsize`},
	{Name: "lmpop", OneRegion: true, Calls: `
		flushall
		lmpop 1 {t}l left
		lmpop 2 {t}no {t}l right count 2
		rpush {t}l a b c d e
		lmpop 2 {t}no {t}l left
		lmpop 2 {t}no {t}l RIGHT count 2
		lmpop 1 {t}l left count 100
		exists {t}l
		rpush {t}l a b c
		set {t}s v
		lmpop 2 {t}s {t}l left
		lmpop 2 {t}l {t}s left
		lmpop 0 {t}l left
		lmpop -1 {t}l left
		lmpop x {t}l left
		lmpop 1 {t}l nosuch
		lmpop 2 {t}l {t}left
		lmpop 3 {t}l left
		lmpop 1 {t}l left count
		lmpop 1 {t}l left count 0
		lmpop 1 {t}l left count -1
		lmpop 1 {t}l left count x
		lmpop 1 {t}l left nosuch 1
		lmpop 1 {t}l left count 1 count 2
		lmpop 1 {t}l left count x nosuch
		lmpop 1 {t}l left 1
		lmpop 1 {t}l
		lrange {t}l 0 -1`},
	{Name: "list wrong type", OneRegion: true, Calls: `
		flushall
		set {t}s v
		lpush {t}s a
		rpush {t}s a
		lpushx {t}s a
		rpushx {t}s a
		lpop {t}s
		lpop {t}s 1
		lpop {t}s -1
		lpop {t}s 1 2
		rpop {t}s
		llen {t}s
		lindex {t}s 0
		lindex {t}s x
		lset {t}s 0 x
		lset {t}s x x
		lrange {t}s 0 -1
		lrange {t}s x -1
		linsert {t}s before a b
		linsert {t}s x a b
		lrem {t}s 0 a
		lrem {t}s x a
		ltrim {t}s 0 0
		ltrim {t}s x 0
		lpos {t}s a
		lpos {t}s a rank 0
		hset {t}h f v
		lpush {t}h a
		rpush {t}l a b
		hset {t}l f v
		get {t}l
		set {t}l v nx
		rename {t}l {t}m
		lrange {t}m 0 -1
		copy {t}m {t}h replace
		lpush {t}h c
		lrange {t}h 0 -1
		lrange {t}m 0 -1
		set {t}m v
		get {t}m
		del {t}h
		dbsize`},
}
