//go:build !race

package main

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// largeForms are the commands about data, with what they may have for arguments: s h e l z are keys that mostly hold a
// string, a hash, a set, a list, a sorted set, and k is any of them; v is a value, m a field or member, i an index, o
// an offset, n a count, c a score, b a bound of scores, x a bound of names. Commas join what belongs together, [] is
// there or not, + comes again and again, # counts what follows it.
var largeForms = []string{
	"APPEND s v", "DECR s", "DECRBY s n", "GET s", "GETDEL s", "GETEX s [EX,n]", "GETRANGE s i i", "GETSET s v",
	"INCR s", "INCRBY s n", "INCRBYFLOAT s c", "LCS s s [LEN] [IDX,MINMATCHLEN,n,WITHMATCHLEN]", "MGET s+",
	"MSET s,v+", "MSETNX s,v+", "PSETEX s n v", "SET s v [EX,1000] [GET]", "SETEX s n v", "SETNX s v",
	"SETRANGE s o v", "STRLEN s", "SUBSTR s i i", "HDEL h m+", "HEXISTS h m", "HGET h m", "HGETALL h", "HINCRBY h m n",
	"HINCRBYFLOAT h m c", "HKEYS h", "HLEN h", "HMGET h m+", "HMSET h m,v+", "HRANDFIELD h n [WITHVALUES]",
	"HSCAN h 0 [COUNT,n]", "HSET h m,v+", "HSETNX h m v", "HSTRLEN h m", "HVALS h", "SADD e m+", "SCARD e", "SDIFF e+",
	"SDIFFSTORE e e+", "SINTER e+", "SINTERCARD #e+ [LIMIT,n]", "SINTERSTORE e e+", "SISMEMBER e m", "SMEMBERS e",
	"SMISMEMBER e m+", "SMOVE e e m", "SPOP e [n]", "SRANDMEMBER e n", "SREM e m+", "SSCAN e 0 [COUNT,n]", "SUNION e+",
	"SUNIONSTORE e e+", "LINDEX l i", "LINSERT l BEFORE m v", "LLEN l", "LMOVE l l LEFT RIGHT",
	"LMPOP #l+ RIGHT [COUNT,n]", "LPOP l n", "LPOS l m [COUNT,n]", "LPUSH l v+", "LPUSH l m+", "LPUSHX l v+",
	"LRANGE l i i", "LREM l n m", "LSET l i v", "LTRIM l i i", "RPOP l n", "RPOPLPUSH l l", "RPUSH l v+", "RPUSH l m+",
	"RPUSHX l v+", "ZADD z c,m+", "ZCARD z", "ZCOUNT z b b", "ZDIFF #z+ [WITHSCORES]", "ZDIFFSTORE z #z+",
	"ZINCRBY z c m", "ZINTER #z+", "ZINTERCARD #z+", "ZINTERSTORE z #z+", "ZLEXCOUNT z x x", "ZMPOP #z+ MIN [COUNT,n]",
	"ZMSCORE z m+", "ZPOPMAX z n", "ZPOPMIN z n", "ZRANDMEMBER z n [WITHSCORES]", "ZRANGE z i i [WITHSCORES]",
	"ZRANGEBYLEX z x x", "ZRANGEBYSCORE z b b [LIMIT,i,n]", "ZRANGESTORE z z i i", "ZRANK z m", "ZREM z m+",
	"ZREMRANGEBYLEX z x x", "ZREMRANGEBYRANK z i i", "ZREMRANGEBYSCORE z b b", "ZREVRANGE z i i",
	"ZREVRANGEBYLEX z x x", "ZREVRANGEBYSCORE z b b", "ZREVRANK z m", "ZSCAN z 0 [COUNT,n]", "ZSCORE z m",
	"ZUNION #z+", "ZUNIONSTORE z #z+", "COPY k k [REPLACE]", "DEL k+", "EXISTS k+", "EXPIRE k 1000", "EXPIREAT k n",
	"EXPIRETIME k", "KEYS *", "OBJECT ENCODING k", "PERSIST k", "PEXPIRE k n", "PEXPIREAT k n", "PEXPIRETIME k",
	"PTTL k", "RANDOMKEY", "RENAME k k", "RENAMENX k k", "SCAN 0 [COUNT,n]",
	"SORT k [BY,nosort] [ALPHA] [LIMIT,i,n] [STORE,l]", "SORT_RO k [ALPHA]", "TOUCH k+", "TTL k", "TYPE k",
	"UNLINK k+", "MEMORY USAGE k [SAMPLES,0]", "DBSIZE", "FLUSHALL", "FLUSHDB", "LOLWUT",
}

// largeCalls makes large calls.
type largeCalls struct {
	*rand.Rand
	tag  string
	room int // bytes of the present call's next argument
}

// upTo is of any order of magnitude up to most, and often most.
func (g *largeCalls) upTo(most int) int {
	if g.IntN(4) == 0 {
		return most
	}
	return int(math.Exp(g.Float64()*math.Log(float64(most)+1))) - 1
}

func (g *largeCalls) pick(from ...string) string { return from[g.IntN(len(from))] }

// pipeline makes one call that comes again and again, or several. All of them together have bytes enough for one that
// is refused.
func (g *largeCalls) pipeline() (calls []largeCall) {
	n, same, bytes := 1+g.upTo(511), g.IntN(2) == 0, entryLimit+entryLimit/8
	g.tag = g.pick("{a}", "{b}")
	for range n {
		if len(calls) == 0 || !same {
			calls = append(calls, g.call(bytes))
		} else {
			calls = append(calls, calls[0])
		}
		for _, a := range calls[len(calls)-1] {
			bytes -= a.size()
		}
		if bytes <= 0 {
			break
		}
	}
	return calls
}

func (g *largeCalls) call(most int) (c largeCall) {
	form := g.pick(largeForms...)
	g.room = g.upTo(most)
	for i, word := range strings.Fields(form) {
		inner, optional := strings.CutPrefix(word, "[")
		group, many := strings.CutSuffix(word, "+")
		switch {
		case i == 0:
			c = append(c, argument{text: word})
		case optional:
			if g.IntN(2) == 0 {
				c = g.group(c, strings.TrimSuffix(inner, "]"))
			}
		case many:
			group, counted := strings.CutPrefix(group, "#")
			n := 1 + g.upTo(1000)
			if strings.ContainsAny(group, "mv") {
				n = 1 + g.upTo(min(100_000, g.room/10))
			}
			if counted {
				c = append(c, argument{text: strconv.Itoa(n)})
			}
			g.room /= n
			for range n {
				c = g.group(c, group)
			}
		default:
			c = g.group(c, word)
		}
	}
	return c
}

func (g *largeCalls) group(c largeCall, words string) largeCall {
	for word := range strings.SplitSeq(words, ",") {
		c = append(c, g.argument(word))
	}
	return c
}

func (g *largeCalls) argument(word string) argument {
	number := func(most int) argument { return argument{text: strconv.Itoa(g.upTo(most))} }
	switch word {
	case "s", "h", "e", "l", "z", "k":
		if word == "k" || g.IntN(20) == 0 {
			word = g.pick("s", "h", "e", "l", "z")
		}
		return argument{text: g.tag + word + g.pick("1", "2", "3")}
	case "v":
		return argument{fill: g.upTo(g.room)}
	case "m":
		m := number(200_000)
		if g.IntN(4) == 0 {
			m.text, m.fill = m.text+".", g.upTo(g.room)
		}
		return m
	case "i":
		if g.IntN(2) == 0 {
			return argument{text: g.pick("0", "-1", "-1")}
		}
		return number(1_000_000)
	case "o":
		return argument{text: g.pick("0", strconv.Itoa(g.upTo(512<<20)), strconv.Itoa(512<<20-1-g.upTo(1<<20)))}
	case "n":
		return argument{text: g.pick("1", "1000", "1000000", "-1000000", "2147483648", "4611686018427387904", strconv.Itoa(g.upTo(1000)))}
	case "c":
		return argument{text: g.pick("0", "1", "-1.5", "inf", strconv.Itoa(g.IntN(1_000_000)))}
	case "b":
		return argument{text: g.pick("-inf", "+inf", "(0", strconv.Itoa(g.IntN(1_000_000)))}
	case "x":
		return argument{text: g.pick("-", "+", "(1", "["+strconv.Itoa(g.IntN(200_000)))}
	}
	return argument{text: word}
}

// TestLargeFormsAreAll: every command that reads or writes data has a form.
func TestLargeFormsAreAll(t *testing.T) {
	s := startServe(t, "--mem", "--port", "0", "--stores", "1", "--regions", "1")
	defer s.stop(t)
	table, err := redis.NewClient(&redis.Options{Addr: "127.0.0.1:" + s.ready[2]}).Command(t.Context()).Result()
	if err != nil || len(table) < 100 {
		t.Fatal(len(table), err)
	}
	forms := map[string]bool{}
	for _, f := range largeForms {
		name, _, _ := strings.Cut(strings.ToLower(f), " ")
		forms[name] = true
		if table[name] == nil {
			t.Errorf("%s is no command", f)
		}
	}
	for name, c := range table {
		if data := strings.Join(c.Flags, " "); !forms[name] && (strings.Contains(data, "write") || strings.Contains(data, "readonly")) {
			t.Errorf("%s (%s) has no form", name, data)
		}
	}
}
