//go:build !race

package main

import (
	"cmp"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"
)

// A form says what arguments a call of a command may have: s h e l z are keys that mostly hold a string, a hash, a set,
// a list, a sorted set, and k is any of them; v is a value, m a field or member, i an index, o an offset, n a count, c
// a score, b a bound of scores, x a bound of names, a any of v m i n c k. Commas join what belongs together, [] is
// there or not, + comes again and again, # counts what follows it.
//
// largeForms are the forms of commands with options, or whose arguments chance would seldom get right. The forms of the
// other commands follow from the command table, see formOf.
var largeForms = []string{
	"APPEND s v", "DECRBY s n", "GETEX s [EX,n]", "GETRANGE s i i", "GETSET s v", "INCRBY s n", "INCRBYFLOAT s c",
	"LCS s s [LEN] [IDX,MINMATCHLEN,n,WITHMATCHLEN]", "MSET s,v+", "MSETNX s,v+", "PSETEX s n v",
	"SET s v [EX,1000] [GET]", "SETEX s n v", "SETNX s v", "SETRANGE s o v", "SUBSTR s i i", "HDEL h m+",
	"HEXISTS h m", "HGET h m", "HINCRBY h m n", "HINCRBYFLOAT h m c", "HMGET h m+", "HMSET h m,v+",
	"HRANDFIELD h n [WITHVALUES]", "HSCAN h 0 [COUNT,n]", "HSET h m,v+", "HSETNX h m v", "HSTRLEN h m", "SADD e m+",
	"SINTERCARD #e+ [LIMIT,n]", "SISMEMBER e m", "SMISMEMBER e m+", "SMOVE e e m", "SPOP e [n]", "SRANDMEMBER e n",
	"SREM e m+", "SSCAN e 0 [COUNT,n]", "LINDEX l i", "LINSERT l BEFORE m v", "LMOVE l l LEFT RIGHT",
	"LMPOP #l+ RIGHT [COUNT,n]", "LPOP l n", "LPOS l m [COUNT,n]", "LPUSH l v+", "LPUSH l m+", "LPUSHX l v+",
	"LRANGE l i i", "LREM l n m", "LSET l i v", "LTRIM l i i", "RPOP l n", "RPUSH l v+", "RPUSH l m+", "RPUSHX l v+",
	"ZADD z c,m+", "ZCOUNT z b b", "ZDIFF #z+ [WITHSCORES]", "ZDIFFSTORE z #z+", "ZINCRBY z c m", "ZINTER #z+",
	"ZINTERCARD #z+", "ZINTERSTORE z #z+", "ZLEXCOUNT z x x", "ZMPOP #z+ MIN [COUNT,n]", "ZMSCORE z m+",
	"ZPOPMAX z n", "ZPOPMIN z n", "ZRANDMEMBER z n [WITHSCORES]", "ZRANGE z i i [WITHSCORES]", "ZRANGEBYLEX z x x",
	"ZRANGEBYSCORE z b b [LIMIT,i,n]", "ZRANGESTORE z z i i", "ZRANK z m", "ZREM z m+", "ZREMRANGEBYLEX z x x",
	"ZREMRANGEBYRANK z i i", "ZREMRANGEBYSCORE z b b", "ZREVRANGE z i i", "ZREVRANGEBYLEX z x x",
	"ZREVRANGEBYSCORE z b b", "ZREVRANK z m", "ZSCAN z 0 [COUNT,n]", "ZSCORE z m", "ZUNION #z+", "ZUNIONSTORE z #z+",
	"COPY k k [REPLACE]", "EXPIRE k 1000", "EXPIREAT k n", "KEYS *", "OBJECT ENCODING k", "PEXPIRE k n",
	"PEXPIREAT k n", "SCAN 0 [COUNT,n]", "SORT k [BY,nosort] [ALPHA] [LIMIT,i,n] [STORE,l]", "SORT_RO k [ALPHA]",
	"MEMORY USAGE k [SAMPLES,0]", "FLUSHALL", "FLUSHDB", "LOLWUT",
	"NEOKV BATCH SET,k,v+ DEL,k+ [PSETEX,k,n,v]", "NEOKV BATCH PEXPIRE,k,1000+ PERSIST,k+ SET,m,v",
	"NEOKV SCANPREFIX k k 1000",
}

// largeTypes are the letters of keys by the ACL category of the commands about their type.
var largeTypes = map[string]string{
	"@string": "s", "@bitmap": "s", "@hyperloglog": "s", "@hash": "h", "@set": "e", "@list": "l", "@sortedset": "z",
	"@geo": "z",
}

// formOf makes a form of what COMMAND says about a command: its keys where they are, any arguments in the other places.
func formOf(c *redis.CommandInfo) string {
	key := ""
	for _, category := range c.ACLFlags {
		if letter := largeTypes[category]; letter != "" {
			if key != "" && key != letter { // of several types
				letter = "k"
			}
			key = letter
		}
	}
	form, least := strings.ToUpper(c.Name), int(max(c.Arity, -c.Arity))
	first, last, step := int(c.FirstKeyPos), int(c.LastKeyPos), int(c.StepCount)
	for i := 1; i < least; i++ {
		argument := "a"
		if first > 0 && i >= first && (last < 0 || i <= last) && (i-first)%step == 0 {
			argument = cmp.Or(key, "k")
		}
		if i == least-1 && c.Arity < 0 {
			argument += "+"
		}
		form += " " + argument
	}
	return form
}

// formsOf are forms of all commands of a server that read or write data: those of largeForms, and derived ones. A
// container, such as OBJECT, has none but in largeForms.
func formsOf(t testing.TB, addr string) (written, derived []string) {
	t.Helper()
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	table, err := c.Command(t.Context()).Result()
	if err != nil || len(table) < 100 {
		t.Fatalf("%d commands: %v", len(table), err)
	}
	has := map[string]bool{}
	for _, form := range largeForms {
		name, _, _ := strings.Cut(strings.ToLower(form), " ")
		if has[name] = true; table[name] == nil {
			t.Errorf("%s is no command", form)
		}
	}
	for name, c := range table {
		if !has[name] && (slices.Contains(c.Flags, "write") || slices.Contains(c.Flags, "readonly")) {
			derived = append(derived, formOf(c))
		}
	}
	slices.Sort(derived) // a seed names the same calls every time
	return largeForms, derived
}

// largeCalls makes large calls.
type largeCalls struct {
	*rand.Rand
	forms []string
	tag   string
	room  int // bytes of the present call's next argument
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
	form := g.pick(g.forms...)
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
	if word == "a" {
		word = g.pick("v", "m", "i", "n", "c", "k")
	}
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
		return argument{text: g.pick("1", "1000", "1000000", "-1000000", "2147483648", "4611686018427387904",
			strconv.Itoa(g.upTo(1000)))}
	case "c":
		return argument{text: g.pick("0", "1", "-1.5", "inf", strconv.Itoa(g.IntN(1_000_000)))}
	case "b":
		return argument{text: g.pick("-inf", "+inf", "(0", strconv.Itoa(g.IntN(1_000_000)))}
	case "x":
		return argument{text: g.pick("-", "+", "(1", "["+strconv.Itoa(g.IntN(200_000)))}
	}
	return argument{text: word}
}

// TestDerivedForms: calls of every form that is derived run, at least now and then.
func TestDerivedForms(t *testing.T) {
	s := startServe(t, "--mem", "--port", "0", "--stores", "1", "--regions", "1")
	defer s.stop(t)
	addr := "127.0.0.1:" + s.ready[2]
	_, derived := formsOf(t, addr)
	if len(derived) < 10 {
		t.Fatalf("%d forms", len(derived))
	}
	c := redis.NewClient(&redis.Options{Addr: addr})
	defer c.Close()
	for _, form := range derived {
		g := &largeCalls{Rand: rand.New(rand.NewPCG(1, 2)), forms: []string{form}, tag: "{a}"}
		var err error
		for try := 0; try == 0 || err != nil && err != redis.Nil; try++ {
			if try == 1000 {
				t.Errorf("%s: no call runs, the last says %v: write a form in largeForms", form, err)
				break
			}
			for _, n := range []string{"1", "2", "3"} { // an earlier call may have replaced them
				for _, line := range []string{"SET s 5", "HSET h 1 1", "SADD e 1", "RPUSH l 1", "ZADD z 1 1"} {
					args := strings.Fields(line)
					key := g.tag + args[1] + n
					if err := c.Del(t.Context(), key).Err(); err != nil {
						t.Fatal(err)
					}
					seed := []any{args[0], key}
					for _, a := range args[2:] {
						seed = append(seed, a)
					}
					if err := c.Do(t.Context(), seed...).Err(); err != nil {
						t.Fatal(err)
					}
				}
			}
			var args []any
			for _, a := range g.call(1000) {
				args = append(args, a.text+strings.Repeat("x", a.fill))
			}
			err = c.Do(t.Context(), args...).Err()
		}
	}
}
