package redistest

import (
	"fmt"
	"strconv"
	"strings"
)

// score draws a number, mostly of few and simple ones, so that scores meet.
func (g *CallGenerator) score() string {
	switch g.IntN(12) {
	case 0:
		return g.float()
	case 1:
		return g.pick("inf", "-inf", "+inf", "-0", "0", "-0.0", "1e308", "-1e308", "1.7976931348623157e308", "1e309",
			"5e-324", "1e-400", "4503599627370496",
			"9007199254740993", "nan", "-nan", "0x10", "0x.8", "0x1p-1080", "1_0", "1e", ".5", "5.", "infinity",
			"1\x00", " 1", "")
	}
	return g.pick("0", "1", "2", "3", "-1", "-2", "1.5", "0.1", "-2.5", "10", "100", "1e3")
}

// scoreLimit draws an end of a range of scores.
func (g *CallGenerator) scoreLimit() string {
	if g.one(12) {
		return g.pick("", "(", "((1", "(-inf", "(+inf", " 1", "( 1", " ", "1\x00x", "x", "(x", "(nan", "[1", "-", "+",
			"(-0", "-0", "1e400", "-1e400")
	}
	if g.one(4) {
		return g.pick("-inf", "+inf", "inf")
	}
	return g.pick("", "", "(") + g.score()
}

// nameLimit draws an end of a range of names.
func (g *CallGenerator) nameLimit() string {
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

func (g *CallGenerator) limitOption() []string {
	if !g.one(3) {
		return nil
	}
	args := []string{g.pick("limit", "limit", "LIMIT", "limit\x00"),
		g.pick("0", "0", "1", "2", "-1", "100", "9223372036854775807", "x"),
		g.pick("0", "1", "2", "3", "-1", "-5", "100", "9223372036854775807", "", "1.5")}
	if g.one(30) {
		return args[:1+g.IntN(2)]
	}
	return args
}

// zrangeOf makes the arguments of a ZRANGE or a ZRANGESTORE behind the key, and says whether they are a range of names.
func (g *CallGenerator) zrangeOf(scores bool) (args []string, names bool) {
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
func (g *CallGenerator) combination() []string {
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
		args = append(args, g.nearOf(g.pick("zset", "zset", "zset", "set")))
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

func zsetCall(g *CallGenerator) [][]string {
	key := g.keyOf("zset")
	named := func(calls ...[]string) [][]string { return append([][]string{oneScore(key)}, calls...) }
	switch g.IntN(32) {
	case 0, 1, 2, 3, 4, 5:
		args := []string{"zadd", key}
		if g.one(2) {
			for g.one(2) {
				args = append(args, g.pick("nx", "xx", "gt", "lt", "ch", "incr", "NX", "XX", "GT", "LT", "CH", "INCR",
					"ch\x00"))
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
		return [][]string{g.call(append([]string{"zrem", key}, g.some(4, g.member)...)...)}
	case 9:
		return [][]string{g.call("zscore", key, g.member()),
			g.call(append([]string{"zmscore", key}, g.some(5, g.member)...)...)}
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
			args = append(args, g.pick("0", "1", "2", "3", "100", "-1", "x", "", "9223372036854775807",
				"9223372036854775808"))
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

func (g *CallGenerator) zmpop() []string {
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

var zsetCases = []Case{
	{Name: "zadd", Calls: `
		flushall
		zadd {t}z 1 a 2 b
		zadd {t}z 3 a 1 c
		zadd {t}z ch 4 a 1 c 5 d
		zadd {t}z nx 9 a 9 e
		zadd {t}z xx 9 a 9 no
		zadd {t}z xx ch 8 a 9 no
		zadd {t}z gt 7 a 7 f
		zadd {t}z gt ch 10 a
		zadd {t}z lt ch 1 a 1 g
		zadd {t}z xx gt ch 2 a
		zadd {t}z incr 5 a
		zadd {t}z nx incr 5 a
		zadd {t}z xx incr 5 no
		zadd {t}z gt incr -5 a
		zadd {t}z lt incr -5 a
		zadd {t}z nx incr 5 new
		zadd {t}z nx xx 1 a
		zadd {t}z nx gt 1 a
		zadd {t}z gt lt 1 a
		zadd {t}z nx gt lt xx 1 a
		zadd {t}z incr 1 a 2 b
		zadd {t}z incr 1
		zadd {t}z 1
		zadd {t}z nx ch
		zadd {t}z x a
		zadd {t}z 1 a nan b
		zadd {t}z inf a -inf b +inf c
		zadd {t}z incr -inf a
		zadd {t}z nx incr -inf a
		zadd {t}z gt incr -inf a
		zincrby {t}z inf b
		zincrby {t}z -inf a
		zincrby {t}z nx a
		zincrby {t}z gt lt
		zincrby {t}z x a
		zincrby {t}z 1.1 e
		zincrby {t}z 1e400 e
		zincrby {t}z 1e-400 e
		zincrby {t}z 0x1p3 e
		zincrby {t}new 3 x
		zadd {t}none xx 1 a
		exists {t}none
		zadd {t}z -0 zero 0 zerotoo
		zscore {t}z zero
		zincrby {t}z -0 zerothree
		zrange {t}z 0 -1 withscores
		zmscore {t}z a no zero b
		zmscore {t}no a b
		zscore {t}no a
		zscore {t}z no
		zcard {t}z
		zcard {t}no
		zrem {t}z a a no
		zrem {t}z b c d e f g
		expire {t}z 10000
		zadd {t}z 1 z
		ttl {t}z
		zrem {t}z new zero zerotoo zerothree z
		exists {t}z
		ttl {t}z
		type {t}new
		object encoding {t}new`},
	{Name: "zrange", Calls: `
		flushall
		zadd {t}z 1 a 2 b 2 c 3 d 10 e inf f -inf g
		zrange {t}z 0 -1
		zrange {t}z 0 -1 withscores
		zrange {t}z 0 -1 rev
		zrange {t}z 1 2 rev withscores
		zrange {t}z -3 -2
		zrange {t}z 5 2
		zrange {t}z 100 200
		zrange {t}z -100 100
		zrange {t}z -9223372036854775808 9223372036854775807
		zrange {t}z 9223372036854775807 -9223372036854775808
		zrange {t}z 0 x
		zrange {t}z 0 1 limit 0 1
		zrange {t}z 0 1 limit 0 -1
		zrange {t}z 0 1 limit 0
		zrange {t}z 0 1 limit x 1
		zrange {t}z 1 3 byscore
		zrange {t}z (1 (3 byscore withscores
		zrange {t}z 3 1 byscore rev
		zrange {t}z 1 3 byscore rev
		zrange {t}z -inf +inf byscore limit 1 2
		zrange {t}z +inf -inf byscore rev limit 1 2
		zrange {t}z -inf +inf byscore limit -1 2
		zrange {t}z -inf +inf byscore limit 2 -1
		zrange {t}z -inf +inf byscore limit 2 0
		zrange {t}z (inf +inf byscore
		zrange {t}z (-inf (inf byscore
		zrange {t}z "" 3 byscore
		zrange {t}z x 3 byscore
		zrange {t}z 1 3 byscore bylex
		zrange {t}z 1 3 rev rev
		zrange {t}z [a [c bylex withscores
		zrange {t}z a [c bylex
		zrange {t}z [a [c bylex
		zrange {t}z - + bylex
		zrange {t}z + - bylex rev
		zrange {t}z (b + bylex
		zrange {t}z + (b bylex rev
		zrange {t}z - [b bylex limit 1 2
		zrevrange {t}z 0 2 withscores
		zrevrange {t}z 0 2 rev
		zrevrange {t}z 0 2 bylex
		zrangebyscore {t}z 1 2 withscores limit 1 5
		zrangebyscore {t}z 1 2 rev
		zrevrangebyscore {t}z 2 1
		zrangebylex {t}z - +
		zrevrangebylex {t}z + -
		zrangebylex {t}z - + withscores
		zcount {t}z 1 3
		zcount {t}z (1 (3
		zcount {t}z x 3
		zcount {t}no 1 3
		zlexcount {t}z - +
		zlexcount {t}z [b (d
		zlexcount {t}z x y
		zrank {t}z a
		zrank {t}z no
		zrevrank {t}z a
		zrevrank {t}no a
		zrank {t}z f
		zrank {t}z a withscore
		zrange {t}no 0 -1
		zrange {t}no x -1`},
	{Name: "ranges of names", Calls: `
		flushall
		zadd {t}z 0 a 0 aa 0 ab 0 b 0 c 0 "" 0 "\xff" 0 "a\x00"
		zrange {t}z - + bylex
		zrange {t}z [ + bylex
		zrange {t}z ( + bylex
		zrange {t}z [a (b bylex
		zrange {t}z (a [b bylex
		zrange {t}z (b [a bylex rev
		zrange {t}z [b (a bylex rev
		zrange {t}z + [a bylex rev limit 1 2
		zrange {t}z [a [a bylex
		zrange {t}z (a [a bylex
		zrange {t}z - - bylex
		zrange {t}z + + bylex
		zrange {t}z + - bylex
		zrange {t}z [zz [zzz bylex
		zrange {t}z [zzz [zz bylex rev
		zrange {t}z "-\x00x" "+\x00x" bylex
		zrange {t}z -x + bylex
		zrange {t}z "[\xff" + bylex
		zrange {t}z "[\xff\xff" + bylex
		zlexcount {t}z [a (c
		zlexcount {t}z - (
		zremrangebylex {t}z [a (b
		zrange {t}z 0 -1
		zremrangebylex {t}z a b
		zremrangebylex {t}z - +
		exists {t}z
		zremrangebylex {t}z - +`},
	{Name: "zpop zmpop zremrange", OneRegion: true, Calls: `
		flushall
		zadd {t}z 1 a 2 b 3 c 4 d 5 e 6 f 7 g
		zpopmin {t}z
		zpopmax {t}z
		zpopmin {t}z 2
		zpopmax {t}z 0
		zpopmax {t}z -1
		zpopmax {t}z x
		zpopmax {t}z 1 2
		zpopmin {t}no
		zpopmin {t}no 2
		zpopmin {t}no x
		zmpop 1 {t}no min
		zmpop 2 {t}no {t}z max
		zmpop 2 {t}no {t}z MIN count 5
		zmpop 2 {t}no {t}z min
		exists {t}z
		zmpop 0 {t}z min
		zmpop x {t}z min
		zmpop 2 {t}z {t}x
		zmpop 1 {t}z mid
		zmpop 1 {t}z min count
		zmpop 1 {t}z min count 0
		zmpop 1 {t}z min count 1 count 2
		zmpop 1 {t}z min count x count 2
		zmpop 1 {t}z min 1
		zadd {t}z 1 a 2 b 3 c 4 d 5 e 6 f 7 g
		zremrangebyrank {t}z 0 1
		zremrangebyrank {t}z -1 -1
		zremrangebyrank {t}z 5 1
		zremrangebyrank {t}z x 1
		zremrangebyscore {t}z (3 4
		zremrangebyscore {t}z x 4
		zrange {t}z 0 -1 withscores
		zremrangebyscore {t}z -inf inf
		exists {t}z
		zremrangebyrank {t}z 0 -1`},
	{Name: "zunion zinter zdiff", OneRegion: true, Calls: `
		flushall
		zadd {t}a 1 x 2 y 3 z
		zadd {t}b 10 y 20 z 30 w
		zadd {t}c 100 z 200 v
		zunion 2 {t}a {t}b
		zunion 3 {t}a {t}b {t}c withscores
		zunion 2 {t}a {t}b weights 2 0.5 withscores
		zunion 2 {t}a {t}b aggregate min withscores
		zunion 2 {t}a {t}b weights -1 -2 aggregate max withscores
		zinter 3 {t}a {t}b {t}c withscores
		zinter 2 {t}a {t}b withscores weights 1 10 aggregate sum
		zinter 2 {t}a {t}a withscores
		zinter 2 {t}a {t}no
		zdiff 2 {t}a {t}c withscores
		zdiff 2 {t}a {t}a
		zdiff 2 {t}no {t}a
		zdiff 1 {t}a weights 1
		zdiff 1 {t}a withscores aggregate sum
		zintercard 2 {t}a {t}b
		zintercard 2 {t}a {t}b limit 1
		zintercard 2 {t}a {t}b limit 0
		zintercard 2 {t}a {t}b limit -1
		zintercard 2 {t}a {t}b limit x
		zintercard 2 {t}a {t}b withscores
		zunion 0 {t}a
		zunion -1 {t}a
		zunion x {t}a
		zunion 3 {t}a {t}b
		zunion 1 {t}a weights
		zunion 1 {t}a weights x
		zunion 1 {t}a aggregate
		zunion 1 {t}a aggregate avg
		zunion 1 {t}a withscores withscores
		zunion 1 {t}a limit 1
		zunionstore {t}d 2 {t}a {t}b
		zrange {t}d 0 -1 withscores
		zunionstore {t}d 2 {t}a {t}d weights 1 2
		zrange {t}d 0 -1 withscores
		zinterstore {t}d 2 {t}a {t}c
		zrange {t}d 0 -1 withscores
		zdiffstore {t}d 2 {t}a {t}c
		zrange {t}d 0 -1 withscores
		zdiffstore {t}d 2 {t}a {t}a
		exists {t}d
		zunionstore {t}d 1 {t}a withscores
		zunionstore {t}d 0 {t}a
		zinterstore {t}d 0 {t}a
		zdiffstore {t}d 0 {t}a
		set {t}d v
		zunionstore {t}d 1 {t}d
		zunionstore {t}d 1 {t}a
		type {t}d
		expire {t}d 10000
		zunionstore {t}d 1 {t}a
		ttl {t}d
		zadd {t}i inf x
		zadd {t}j -inf x
		zunion 2 {t}i {t}j withscores
		zinter 2 {t}i {t}j withscores
		zunion 1 {t}i weights 0 withscores
		zinter 2 {t}i {t}i weights 1 0 aggregate min withscores
		zinter 2 {t}i {t}i weights 0 1 aggregate max withscores
		zunion 1 {t}a weights nan
		zrangestore {t}e {t}a 0 -1
		zrangestore {t}e {t}a 2 3 byscore
		zrange {t}e 0 -1 withscores
		zrangestore {t}e {t}a 1 1 rev
		zrange {t}e 0 -1 withscores
		zrangestore {t}a {t}a (1 +inf byscore limit 0 1
		zrange {t}a 0 -1 withscores
		zrangestore {t}e {t}a 0 -1 withscores
		zrangestore {t}e {t}a 5 6
		exists {t}e
		set {t}s v
		zrangestore {t}s {t}no 0 -1
		exists {t}s
		zrangestore {t}s {t}a x -1`},
	{Name: "zset wrong type", OneRegion: true, Calls: `
		flushall
		set {t}s v
		zadd {t}s 1 a
		zadd {t}s x a
		zadd {t}s nx xx 1 a
		zincrby {t}s 1 a
		zrem {t}s a
		zscore {t}s a
		zmscore {t}s a
		zcard {t}s
		zcount {t}s 1 2
		zcount {t}s x 2
		zlexcount {t}s - +
		zrank {t}s a
		zrevrank {t}s a
		zrange {t}s 0 -1
		zrange {t}s x -1
		zrangestore {t}d {t}s 0 -1
		zremrangebyrank {t}s 0 -1
		zremrangebyscore {t}s 0 1
		zremrangebylex {t}s - +
		zpopmin {t}s
		zpopmin {t}s 0
		zpopmin {t}s -1
		zmpop 1 {t}s min
		zmpop 2 {t}no {t}s min
		zrandmember {t}s
		zrandmember {t}s 0
		zscan {t}s 0
		zunion 1 {t}s
		zunion 1 {t}s bad
		zunion 2 {t}s
		zinter 2 {t}no {t}s
		zintercard 1 {t}s
		zdiffstore {t}d 1 {t}s
		zadd {t}z 1 a 2 b
		hget {t}z a
		get {t}z
		rename {t}z {t}y
		zrange {t}y 0 -1 withscores
		copy {t}y {t}s replace
		zrange {t}s 0 -1 withscores
		zadd {t}s 3 c
		zrange {t}y 0 -1 withscores
		zrank {t}s c
		set {t}s v
		get {t}s
		dbsize`},
	{Name: "zrandmember zscan", Calls: `
		flushall
		zrandmember {t}no
		zrandmember {t}no 3
		zrandmember {t}no -3 withscores
		zadd {t}z 1.5 m
		zrandmember {t}z
		zrandmember {t}z 5
		zrandmember {t}z -3 WITHSCORES
		zrandmember {t}z 2 withscores
		zrandmember {t}z 0 withscores
		zrandmember {t}z x
		zrandmember {t}z 1 withvalues
		zrandmember {t}z 1 withscores x
		zrandmember {t}z 4611686018427387904 withscores
		zrandmember {t}z -9223372036854775808
		zscan {t}no 0
		zscan {t}z 0
		zadd {t}z 1e300 a -inf b 7 c 0.1 ab
		zscan {t}z 0
		zadd {t}z 1538664195546265856 large 4611686018427387904 limit 9e18 larger -1e17 low
		zscan {t}z 0
		zscan {t}z 0 match a*
		zscan {t}z 0 count 1
		zscan {t}z 0 count 0
		zscan {t}z x
		zscan {t}z 0 withscores
		zscan {t}z`},
}
