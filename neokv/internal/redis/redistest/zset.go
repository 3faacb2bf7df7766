package redistest

import (
	"fmt"
	"strconv"
	"strings"
)

// score draws a number, mostly of few and simple ones, so that scores meet.
func (g *Generator) score() string {
	switch g.IntN(12) {
	case 0:
		return g.float()
	case 1:
		return g.pick("inf", "-inf", "+inf", "-0", "0", "-0.0", "1e308", "-1e308", "1.7976931348623157e308", "1e309", "5e-324", "1e-400", "4503599627370496",
			"9007199254740993", "nan", "-nan", "0x10", "0x.8", "0x1p-1080", "1_0", "1e", ".5", "5.", "infinity", "1\x00", " 1", "")
	}
	return g.pick("0", "1", "2", "3", "-1", "-2", "1.5", "0.1", "-2.5", "10", "100", "1e3")
}

// scoreLimit draws an end of a range of scores.
func (g *Generator) scoreLimit() string {
	if g.one(12) {
		return g.pick("", "(", "((1", "(-inf", "(+inf", " 1", "( 1", " ", "1\x00x", "x", "(x", "(nan", "[1", "-", "+", "(-0", "-0", "1e400", "-1e400")
	}
	if g.one(4) {
		return g.pick("-inf", "+inf", "inf")
	}
	return g.pick("", "", "(") + g.score()
}

// nameLimit draws an end of a range of names.
func (g *Generator) nameLimit() string {
	if g.one(4) {
		return g.pick("-", "+")
	}
	if g.one(12) {
		return g.pick("", "a", "-a", "+a", "-\x00a", "+\x00", "{a", "(", "[")
	}
	return g.pick("[", "(") + g.member()
}

// oneScore makes a call that gives all members of a sorted set one score: ranges of names are for such ones.
func oneScore(key string) []string {
	return []string{"zunionstore", key, "1", key, "weights", "0"}
}

func (g *Generator) limitOption() []string {
	if !g.one(3) {
		return nil
	}
	args := []string{g.pick("limit", "limit", "LIMIT", "limit\x00"), g.pick("0", "0", "1", "2", "-1", "100", "9223372036854775807", "x"),
		g.pick("0", "1", "2", "3", "-1", "-5", "100", "9223372036854775807", "", "1.5")}
	if g.one(30) {
		return args[:1+g.IntN(2)]
	}
	return args
}

// zrangeOf makes the arguments of a ZRANGE or a ZRANGESTORE behind the key, and says whether they are a range of names.
func (g *Generator) zrangeOf(scores bool) (args []string, names bool) {
	switch g.IntN(3) {
	case 0:
		args = append(args, g.index(), g.index())
	case 1:
		args = append(args, g.scoreLimit(), g.scoreLimit(), g.pick("byscore", "BYSCORE"))
	default:
		names = true
		args = append(args, g.nameLimit(), g.nameLimit(), g.pick("bylex", "BYLEX"))
	}
	if g.one(2) {
		args = append(args, g.pick("rev", "REV"))
	}
	if names && !g.one(20) {
		scores = false
	}
	if scores && g.one(2) || g.one(30) {
		args = append(args, g.pick("withscores", "WITHSCORES", "withscores\x00x"))
	}
	if len(args) > 2 && !g.one(10) || g.one(20) {
		args = append(args, g.limitOption()...)
	}
	if g.one(30) {
		args = append(args, g.pick("rev", "bylex", "byscore", "", "nx"))
	}
	return args, names
}

// combination makes a ZUNION, ZINTER, ZDIFF, one of their STORE forms or a ZINTERCARD.
func (g *Generator) combination() []string {
	name := g.pick("zunion", "zinter", "zdiff", "zintercard", "zunionstore", "zinterstore", "zdiffstore")
	store := strings.HasSuffix(name, "store")
	args := []string{name}
	if store {
		args = append(args, g.nearOf("zset"))
	}
	n := 1 + g.IntN(4)
	counted := strconv.Itoa(n)
	if g.one(25) && !g.Spread { // what is no key then might be in another region
		counted = g.pick("0", "-1", "5", "1", "x", "", "9223372036854775807", "9223372036854775808", "1.5")
	}
	args = append(args, counted)
	for range n {
		args = append(args, g.nearOf("zset"))
	}
	for g.one(2) {
		switch g.IntN(4) {
		case 0:
			args = append(args, g.pick("weights", "WEIGHTS"))
			if g.one(15) {
				n--
			}
			for range n {
				args = append(args, g.score())
			}
		case 1:
			args = append(args, g.pick("aggregate", "AGGREGATE"))
			if !g.one(20) {
				args = append(args, g.pick("sum", "min", "max", "MAX", "Min", "avg", ""))
			}
		case 2:
			if !store || g.one(10) {
				args = append(args, g.pick("withscores", "WITHSCORES"))
			}
		case 3:
			if name == "zintercard" || g.one(10) {
				args = append(args, g.pick("limit", "LIMIT"), g.pick("0", "1", "2", "100", "-1", "x"))
			}
		}
	}
	if g.Spread {
		return args
	}
	return g.call(args...)
}

func zsetCall(g *Generator) [][]string {
	key := g.keyOf("zset")
	named := func(calls ...[]string) [][]string { return append([][]string{oneScore(key)}, calls...) }
	switch g.IntN(32) {
	case 0, 1, 2, 3, 4, 5:
		args := []string{"zadd", key}
		if g.one(2) {
			for g.one(2) {
				args = append(args, g.pick("nx", "xx", "gt", "lt", "ch", "incr", "NX", "XX", "GT", "LT", "CH", "INCR", "ch\x00"))
			}
		}
		for range 1 + g.IntN(5) {
			args = append(args, g.score(), g.member())
			if g.one(3) {
				break
			}
		}
		if g.one(20) {
			args = args[:len(args)-1]
		}
		return [][]string{g.call(args...)}
	case 6, 7:
		return [][]string{g.call("zincrby", key, g.score(), g.member())}
	case 8:
		return [][]string{g.call(append([]string{"zrem", key}, g.members(4)...)...)}
	case 9:
		return [][]string{g.call("zscore", key, g.member()), g.call(append([]string{"zmscore", key}, g.members(5)...)...)}
	case 10:
		return [][]string{g.call("zcard", key)}
	case 11:
		return [][]string{g.call(g.pick("zrank", "zrevrank"), key, g.member())}
	case 12:
		return [][]string{g.call("zcount", key, g.scoreLimit(), g.scoreLimit())}
	case 13:
		return named(g.call("zlexcount", key, g.nameLimit(), g.nameLimit()))
	case 14, 15, 16:
		args, names := g.zrangeOf(true)
		call := g.call(append([]string{"zrange", key}, args...)...)
		if names {
			return named(call)
		}
		return [][]string{call}
	case 17:
		args := []string{g.pick("zrange", "zrevrange"), key, g.index(), g.index()}
		if g.one(2) {
			args = append(args, "withscores")
		}
		return [][]string{g.call(args...)}
	case 18, 19:
		args := []string{g.pick("zrangebyscore", "zrevrangebyscore"), key, g.scoreLimit(), g.scoreLimit()}
		if g.one(2) {
			args = append(args, "withscores")
		}
		return [][]string{g.call(append(args, g.limitOption()...)...)}
	case 20:
		args := []string{g.pick("zrangebylex", "zrevrangebylex"), key, g.nameLimit(), g.nameLimit()}
		return named(g.call(append(args, g.limitOption()...)...))
	case 21:
		source := g.nearOf("zset")
		args, names := g.zrangeOf(false)
		to := g.nearOf("zset")
		call := append([]string{"zrangestore", to, source}, args...)
		if !g.Spread {
			call = g.call(call...)
		}
		calls := [][]string{call, {"zrange", to, "0", "-1", "withscores"}}
		if names {
			return append([][]string{oneScore(source)}, calls...)
		}
		return calls
	case 22:
		switch g.IntN(3) {
		case 0:
			return [][]string{g.call("zremrangebyrank", key, g.index(), g.index())}
		case 1:
			return [][]string{g.call("zremrangebyscore", key, g.scoreLimit(), g.scoreLimit())}
		}
		return named(g.call("zremrangebylex", key, g.nameLimit(), g.nameLimit()))
	case 23, 24:
		args := []string{g.pick("zpopmin", "zpopmax"), key}
		if g.one(2) {
			args = append(args, g.pick("0", "1", "2", "3", "100", "-1", "x", "", "9223372036854775807", "9223372036854775808"))
		}
		return [][]string{g.call(args...)}
	case 25:
		return [][]string{g.zmpop()}
	case 26:
		return [][]string{g.sample("zrandmember", key, "withscores"), {"zrange", key, "0", "-1", "withscores"}}
	case 27:
		return [][]string{g.scanOf("zscan", key)}
	case 28, 29, 30:
		return [][]string{g.combination()}
	}
	if !g.one(4) { // a large one once in a while
		return [][]string{g.call("zrange", key, "0", "-1", "withscores")}
	}
	args := []string{"zadd", key}
	for range 20 + g.IntN(200) {
		args = append(args, strconv.Itoa(g.IntN(100)), fmt.Sprint("many", g.IntN(500)))
	}
	return [][]string{args}
}

func (g *Generator) zmpop() []string {
	n := 1 + g.IntN(3)
	counted := strconv.Itoa(n)
	if g.one(20) && !g.Spread {
		counted = g.pick("0", "-1", "4", "1", "x", "", "1000000")
	}
	args := []string{"zmpop", counted}
	for range n {
		args = append(args, g.nearOf("zset"))
	}
	args = append(args, g.pick("min", "max", "MIN", "MAX", "min", "max", "mid", ""))
	for g.one(2) {
		args = append(args, g.pick("count", "COUNT", "count", "limit"))
		if !g.one(15) {
			args = append(args, g.pick("1", "2", "3", "100", "0", "-1", "x", "9223372036854775807"))
		}
	}
	if g.Spread {
		return args
	}
	return g.call(args...)
}
