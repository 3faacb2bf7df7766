package redistest

import (
	"bytes"
	"slices"
)

// sortCall makes a SORT or a SORT_RO, or something to sort. What is sorted by patterns, and what these lead to, is in
// one slot; where the server that is right is a cluster, it refuses them.
//
// In front of each stand calls that have Redis forget the last error of a number, which it takes for one of the sort
// (see forgetError), and one that tells the type of the key; behind it one that tells what each element is sorted by
// (see sorted).
func sortCall(g *CallGenerator) [][]string {
	near := g.Tag
	if near == "" {
		near = "{s}"
	}
	switch g.IntN(10) {
	case 0, 1:
		return [][]string{g.sortable(near)}
	case 2:
		args := []string{"mset"}
		for range 1 + g.IntN(6) {
			args = append(args, near+"w:"+g.sortElement(), g.weight())
		}
		return [][]string{args}
	case 3:
		return [][]string{{"hset", near + "h:" + g.sortElement(), "f", g.weight(), g.pick("g", "->", "*", "f"),
			g.weight()}}
	}
	return g.sort(near)
}

// sortElement draws what is sorted, most of it numbers.
func (g *CallGenerator) sortElement() string {
	if g.one(60) {
		return g.pick("abc", "1 ", "nan", "1e400", "5e-324", "1e-310", "0x", "x\x00y", "x\x00z", "x", "\xff", "--")
	}
	return g.pick("0", "1", "2", "3", "5", "10", "-1", "-7", "2.5", "1e3", "1e2", "100", "0x10", " 4", "", "inf",
		"-inf", "-0", "1\x00", "1\x00b", "9223372036854775807", "007",
		"2.2250738585072014e-308")
}

// weight draws what elements are sorted by.
func (g *CallGenerator) weight() string {
	if g.one(30) {
		return g.Value()
	}
	if g.one(3) {
		return g.pick("1", "2", "-1", "same", "", "b\x00x", "b\x00y", "B")
	}
	return g.sortElement()
}

// sortable makes a call that adds elements to a key of a type, or takes it away.
func (g *CallGenerator) sortable(near string) []string {
	var args []string
	kind := g.pick("sort:list", "sort:set", "sort:zset")
	if g.one(12) {
		return []string{"del", near + kind}
	}
	switch kind {
	case "sort:list":
		args = []string{g.pick("rpush", "lpush"), near + kind}
	case "sort:set":
		args = []string{"sadd", near + kind}
	default:
		args = []string{"zadd", near + kind}
	}
	n := 1 + g.IntN(5)
	if g.one(20) {
		n = 200 // more than are in one piece in Redis
	}
	for range n {
		if kind == "sort:zset" {
			args = append(args, g.pick("1", "2", "3", "-1", "0.5", "7"))
		}
		args = append(args, g.sortElement())
	}
	return args
}

// anyOrder is a constant pattern for BY: what is sorted so may come in any order.
const anyOrder = "anyorder"

func (g *CallGenerator) sort(near string) [][]string {
	key, list := near+g.pick("sort:list", "sort:list", "sort:set", "sort:zset"), false
	patterns := []string{near + "w:*", near + "w:*", near + "h:*->f", near + "h:*->f", near + "h:*->g",
		near + "h:*->nosuch", near + "w:*->f", near + "h:*", near + "*", near + "h:*->",
		near + "w:*:*", near + "h:*->->", near + "h:*->*", near + "w:*\x00", near + "h:*->f\x00x"}
	constants := []string{"nosort", "nosort", "x->f", "", "#", "x\x00*", near}
	switch {
	case g.Cluster:
		patterns = []string{"w:*", "*", "{*}", "{}" + near + "*", "x*->f", "*" + near, "{no slot of these}*"}
		if key = g.nearOf(g.pick(types...)); g.one(2) {
			key = near + g.pick("sort:list", "sort:set", "sort:zset")
		}
	case g.one(4):
		key = near + g.pick(types...)
	default:
		list = key == near+"sort:list"
	}
	name := g.pick("sort", "sort", "sort", "sort_ro")
	var by, get, rest []string
	if g.one(2) {
		by = append(by, g.pick("by", "BY", "By"))
		if g.one(4) {
			by = append(by, g.pick(constants...))
		} else {
			by = append(by, g.pick(patterns...))
		}
	}
	if g.one(3) {
		rest = append(rest, "limit", g.pick("0", "0", "1", "2", "-1", "5", "1000", "9223372036854775807",
			"-9223372036854775808"), g.pick("0", "1", "2", "3", "10", "-1", "-5", "9223372036854775807"))
	}
	for g.one(2) {
		rest = append(rest, g.pick("asc", "desc", "DESC", "alpha", "ALPHA", "desc"))
	}
	if len(rest) > 0 && g.one(40) {
		if rest = append(rest, g.pick("limit", "get", "by", "nosuch", "", "limit x 1")); g.Cluster &&
			rest[len(rest)-1] == "get" {
			rest = append(rest, g.pick(patterns...)) // whatever follows, the cluster refuses it
		}
	}
	alpha := slices.ContainsFunc(rest, func(s string) bool { return s == "alpha" || s == "ALPHA" })
	if g.one(3) && (!g.Cluster || g.one(5)) {
		if g.Cluster {
			get = []string{"get", g.pick(patterns...)}
		} else {
			get = []string{"get", "#"} // first, to know what the others belong to
			for g.one(2) {
				get = append(get, g.pick("get", "GET"), g.pick(g.pick(patterns...), g.pick(constants...)))
			}
		}
	}
	args := slices.Concat([]string{name, key}, by, rest, get)
	if g.one(2) {
		args = slices.Concat([]string{name, key}, get, rest, by)
	}
	// What Redis stores of elements that have the same text to be sorted by, and are of no list, is in no order.
	if store := near + g.pick("sort:list", "sort:stored", "sort:stored", "list"); !alpha || by == nil ||
		list && !slices.Contains(rest, "limit") {
		if g.one(3) {
			args = append(args, g.pick("store", "STORE"), store)
			if g.one(20) {
				args = append(args, g.pick("store", "asc", "x", "desc"))
			}
			return append(forgetError(near, key), args, []string{"type", store}, []string{"lrange", store, "0", "-1"},
				packAgain(key))
		}
	}
	told := []string{"sort_ro", key, "by", anyOrder}
	if !g.Cluster {
		told = append(told, "get", "#", "get", "#")
		if by != nil {
			told[len(told)-1] = by[1]
		}
	}
	return append(forgetError(near, key), []string{"type", key}, g.callWith(g.pick("x", "store"), args...), told,
		packAgain(key))
}

// packAgain makes a sorted set anew: Redis makes a skiplist of one that it sorts, as NeoKV does not.
func packAgain(key string) []string { return []string{"zrangestore", key, key, "0", "-1"} }

// forgetError are calls without effect, but that Redis unpacks the scores of a sorted set for the first sort, and so
// parses them; and that it parses a number that is none too large or small.
func forgetError(near, key string) [][]string {
	return [][]string{{"sort_ro", key, "by", "nosort", "limit", "0", "0"}, {"zadd", near + "sort:none", "xx", "1", "a"}}
}

// sorted reports whether both answers are of a sort whose order leaves something open: the elements of a set without
// sorting, and elements with the same text to be sorted by, unless they are of a list of which all is asked for. Ours
// must be elements there are, each as often as it is there at most, and the same as the other answer in all that is not
// open.
func (d *Difference) sorted() bool {
	told, kind := d.Behind, d.Before
	if d.name() != "sort" && d.name() != "sort_ro" || told == nil || kind == nil || d.Want.Kind != '*' ||
		d.Got.Kind != '*' || len(d.Want.Items) != len(d.Got.Items) {
		return false
	}
	if !isCall(kind.Call, "type", string(d.Call[1])) ||
		!isCall(told.Call, "sort_ro", string(d.Call[1]), "by", anyOrder) {
		return false
	}
	says := func(option string) int {
		return slices.IndexFunc(d.Call, func(arg []byte) bool { return bytes.EqualFold(arg, []byte(option)) })
	}
	by, alpha := says("by"), says("alpha") >= 0
	sorts := by < 0 || by+1 < len(d.Call) && bytes.IndexByte(cutText(d.Call[by+1]), '*') >= 0
	switch t := string(kind.Got.Text); {
	case t == "set" && !sorts:
	case sorts && alpha && (t == "set" || t == "zset" || by >= 0 && says("limit") >= 0):
	default:
		return false
	}
	piece := 0
	for _, arg := range d.Call {
		if bytes.EqualFold(arg, []byte("get")) {
			piece++
		}
	}
	piece = max(piece, 1)
	weights, left := make(map[string]ReplyValue), make(map[string]int)
	step := min(len(told.Call)-3, 2) // with two GETs, or without
	for row := range slices.Chunk(told.Got.Items, step) {
		weight := row[len(row)-1]
		if weight.Text = cutText(weight.Text); !sorts {
			weight = ReplyValue{}
		}
		weights[string(row[0].Text)] = weight
		left[string(row[0].Text)]++
	}
	rows := make(map[string][]ReplyValue)
	for row := range slices.Chunk(d.Want.Items, piece) {
		rows[string(row[0].Text)] = row
	}
	if len(d.Got.Items)%piece != 0 {
		return false
	}
	for i := 0; i < len(d.Got.Items); i += piece {
		row, element := d.Got.Items[i:i+piece], string(d.Got.Items[i].Text)
		if left[element]--; left[element] < 0 || !weights[element].Equal(weights[string(d.Want.Items[i].Text)]) {
			return false
		}
		if same := rows[element]; same != nil && !slices.EqualFunc(row, same, ReplyValue.Equal) {
			return false
		}
	}
	return true
}

func cutText(b []byte) []byte {
	if at := bytes.IndexByte(b, 0); at >= 0 {
		return b[:at]
	}
	return b
}

var sortCases = []Case{
	{Name: "sort", OneRegion: true, Calls: `
		flushall
		rpush {t}l 3 10 1 2 1
		sort {t}l
		sort_ro {t}l
		sort {t}l desc
		sort {t}l asc
		sort {t}l desc asc
		sort {t}l alpha
		sort {t}l ALPHA DESC
		sort {t}l limit 1 2
		sort {t}l limit 1 -1
		sort {t}l limit -5 2
		sort {t}l limit 9 2
		sort {t}l limit 0 0
		sort {t}l limit 9223372036854775807 9223372036854775807
		sort {t}l limit 2 -9223372036854775808
		sort {t}l limit 1
		sort {t}l limit
		sort {t}l limit x 1
		sort {t}l limit 1 x bad
		sort {t}l limit 0 1 limit 1 1
		sort {t}l by nosort
		sort {t}l by nosort desc
		sort {t}l by nosort desc limit 1 2
		sort {t}l by nosort limit 4 5
		sort {t}l by nosort limit 5 5
		sort {t}l by "#" desc
		sort {t}l by "x\x00*"
		sort {t}l by
		sort {t}l bad
		sort {t}l ""
		sort {t}l "alpha\x00x"
		sort {t}l store
		sort_ro {t}l store {t}d
		sort_ro {t}l store
		sort
		sort_ro
		sort {t}l store {t}d
		type {t}d
		lrange {t}d 0 -1
		sort {t}l desc limit 0 2 store {t}d
		lrange {t}d 0 -1
		sort {t}l by nosort desc store {t}d
		lrange {t}d 0 -1
		sort {t}l store {t}x store {t}d
		exists {t}x
		expire {t}d 10000
		sort {t}d store {t}d
		ttl {t}d
		lrange {t}d 0 -1
		sort {t}l limit 9 9 store {t}d
		exists {t}d
		set {t}d v
		sort {t}no store {t}d
		exists {t}d
		sort {t}no
		sort_ro {t}no desc
		sort {t}no by nosort limit 0 1
		set {t}s v
		hset {t}h f v
		sort {t}s
		sort {t}h
		sort_ro {t}h by nosort
		sort {t}s bad
		sort {t}s store {t}l
		llen {t}l
		sadd {t}n 3 1 2 -5
		sort {t}n
		sort {t}n desc limit 0 2
		sort {t}n by nosort desc store {t}d
		lrange {t}d 0 -1
		sort {t}n by nosort limit 1 2 store {t}d
		lrange {t}d 0 -1
		zadd {t}z 1 30 2 20 3 10
		sort {t}z
		sort {t}z by nosort
		sort {t}z by nosort desc
		sort {t}z by nosort desc limit 1 1
		sort {t}z by nosort limit 3 1
		sort {t}z by nosort limit 1 9 store {t}d
		lrange {t}d 0 -1
		object encoding {t}d`},
	{Name: "numbers and texts to sort", OneRegion: true, Calls: `
		flushall
		rpush {t}l 1.5 0x10 " 7" "" -inf inf 1e3 "2\x00x" -0 0 007 7 2.2250738585072014e-308
		sort {t}l
		sort {t}l desc
		sort {t}l alpha
		sort {t}l alpha desc
		rpush {t}l "2\x00y" "2\x00" 2
		sort {t}l alpha
		sort {t}l alpha store {t}d
		lrange {t}d 0 -1
		sort {t}l alpha desc store {t}d
		lrange {t}d 0 -1
		rpush {t}b a
		zadd {t}none xx 1 a
		sort {t}b
		sort {t}b limit 0 0
		sort {t}b store {t}d
		llen {t}d
		sort {t}b by nosort
		lset {t}b 0 "1 "
		sort {t}b
		lset {t}b 0 " "
		sort {t}b
		lset {t}b 0 nan
		sort {t}b
		lset {t}b 0 1e400
		sort {t}b
		lset {t}b 0 1e-400
		sort {t}b
		lset {t}b 0 5e-324
		sort {t}b
		zadd {t}none xx 1 a
		lset {t}b 0 0x1p-1074
		sort {t}b
		lset {t}b 0 0x1p-1075
		sort {t}b
		zadd {t}none xx 1 a
		lset {t}b 0 2.2250738585072011e-308
		sort {t}b
		zadd {t}none xx 1 a
		lset {t}b 0 0x
		sort {t}b
		lset {t}b 0 infinity
		sort {t}b
		lset {t}b 0 "1_0"
		sort {t}b`},
	{Name: "sort by and get", Plain: true, Calls: `
		flushall
		rpush {s}l a b c d
		mset {s}w:a 3 {s}w:b 1 {s}w:c 2 {s}name:a A {s}name:b B {s}name:c "" {s}name* star
		hset {s}h:a f 30 t x g gg
		hset {s}h:b f 4 t y "" empty
		hset {s}h:c f 5 "->" arrow
		set {s}h:d string
		sort {s}l by {s}w:*
		sort {s}l by {s}w:* desc
		sort {s}l by {s}w:* limit 1 2
		sort {s}l by {s}h:*->f
		sort {s}l by {s}h:*->f alpha
		sort {s}l by {s}h:*->t alpha desc
		sort {s}l by {s}h:*->nosuch
		sort {s}l by {s}h:*->nosuch desc
		sort {s}l by {s}h:*->t
		sort {s}l by {s}name:* alpha
		sort {s}l by {s}name:* alpha desc
		sort {s}l by {s}h:*
		sort {s}l by {s}h:* alpha
		sort {s}l by nosort get #
		sort {s}l by nosort get # get {s}name:* get {s}h:*->g get {s}h:*->
		sort {s}l by nosort get {s}name:*->f get x get "" get {s}name:a
		sort {s}l by nosort get {s}h:*->->
		sort {s}l by nosort get "{s}name:*\x00" get "#\x00x" get "{s}h:*->f\x00"
		sort {s}l by nosort get {s}*
		sort {s}l by {s}w:* get # get {s}w:* limit 0 2
		sort_ro {s}l by {s}w:* get # get {s}name:*
		sort {s}l by {s}w:* by nosort
		sort {s}l by nosort by {s}w:*
		sort {s}l get
		sort {s}l by {s}w:* get {s}name:* store {s}d
		lrange {s}d 0 -1
		sort {s}l by {s}w:* get # get {s}h:*->f store {s}l
		lrange {s}l 0 -1
		sort {s}d by {s}w:* get nosuch store {s}d
		lrange {s}d 0 -1
		sort {s}no by {s}w:* get # store {s}d
		exists {s}d
		sadd {s}s 1 2 3
		mset {s}w:1 30 {s}w:2 20 {s}w:3 10
		sort {s}s by {s}w:* get # get {s}w:*
		sort {s}s by nosort by {s}w:* store {s}d
		lrange {s}d 0 -1
		zadd {s}z 1 x 2 y 3 z
		mset {s}w:x 2 {s}w:y 2 {s}w:z 1 {s}p*q 5
		sort {s}z by {s}w:*
		sort {s}z by {s}w:* desc limit 0 2
		sort {s}z by nosort get {s}w:* desc
		rpush {s}star *
		sort {s}star by nosort get {s}p*q
		set {s}big 1e400
		rpush {s}bigs big
		sort {s}bigs by {s}*
		sort {s}bigs by {s}* alpha
		pexpire {s}w:a 0
		sort {s}bigs by {s}*->f get #`},
	{Name: "sort in a cluster", Cluster: true, Calls: `
		flushall
		rpush {t}l 3 1 2
		sort {t}l by w*
		sort {t}l by *
		sort {t}l by x*->f
		sort {t}l by *{t}
		sort {t}l by {}{t}*
		sort {t}l by {*}
		sort {t}l by {no_such}*
		sort {t}l by nosort
		sort {t}l get w*
		sort {t}l get *
		sort {t}l get {*}->f
		sort_ro {t}l by w*
		sort_ro {t}l get w*
		sort {t}l bad get w*
		sort {t}l get w* bad
		sort {t}l limit x 1 by w*
		sort {t}no by w*
		sort {t}l by w* store {t}l
		lrange {t}l 0 -1`},
}
