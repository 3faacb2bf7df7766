package redistest

import (
	"math/rand/v2"
	"strconv"
	"strings"
)

// Generator makes calls. A family of commands is a Generator in Families.
type Generator struct {
	*rand.Rand
	// Tag stands in front of every key: "{t}" keeps all of them in one slot. Without it one of the keys is the empty one.
	Tag string
}

// Family makes one random call, valid, odd or invalid, and possibly more calls that make its effect the same on every server.
type Family func(g *Generator) [][]string

// Families are all families of commands that calls are drawn from, with their weights.
var Families = []struct {
	Name   string
	Weight int
	Make   Family
}{
	{"strings", 50, stringCall},
	{"generic", 40, genericCall},
	{"unknown", 3, unknownCall},
}

// Calls makes one random call, mostly by itself.
func (g *Generator) Calls() [][]string {
	total := 0
	for _, f := range Families {
		total += f.Weight
	}
	n := g.IntN(total)
	for _, f := range Families {
		if n -= f.Weight; n < 0 {
			return f.Make(g)
		}
	}
	panic("weights do not add up")
}

func (g *Generator) pick(from ...string) string { return from[g.IntN(len(from))] }

// one is true once in n times.
func (g *Generator) one(n int) bool { return g.IntN(n) == 0 }

// Key draws from few keys, so that calls meet.
func (g *Generator) Key() string {
	return g.Tag + g.pick("", "a", "b", "c", "d", "e", "n1", "n2", "n3", "\x00", "k\r\ny", "\xff\xfe*[?", "a b", "{x}y", strings.Repeat("long", 40))
}

// Value draws values: numbers, near-numbers, limits, text and bytes.
func (g *Generator) Value() string {
	switch g.IntN(4) {
	case 0:
		return strconv.Itoa(g.IntN(200) - 100)
	case 1:
		return g.Number()
	case 2:
		return g.pick("", "v", "hello world", "\x00\x01\xff", "line\r\nline", strings.Repeat("x", 300), "$-1\r\n", "-ERR no\r\n")
	}
	b := make([]byte, g.IntN(20))
	for i := range b {
		b[i] = byte(g.IntN(256))
	}
	return string(b)
}

// Number draws what may or may not be an integer.
func (g *Generator) Number() string {
	if g.one(3) {
		return strconv.FormatInt(g.Int64()>>g.IntN(64), 10)
	}
	return g.pick("0", "1", "-1", "2", "10", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
		"-9223372036854775809", "9223372036854775806", "4611686018427387904", "-4611686018427387904", "18446744073709551615",
		"18446744073709551616", "99999999999999999999", "000000000000000000001", "", " 1", "1 ", "01", "+1", "-0", "-", "1.5", "1e3",
		"0x10", "abc", "1\x00", "١")
}

// Time draws an argument of an expire option: far enough away not to pass while calls are compared, and never twice the same, since
// GT and LT would see the time between two calls; or passed long ago; or no time at all.
func (g *Generator) Time(unit string) string {
	switch n := g.IntN(10); {
	case n < 6:
		base, spread := int64(10_000), int64(1_000_000_000) // seconds
		if strings.HasPrefix(unit, "P") {
			base, spread = base*1000, spread*1000
		}
		if strings.HasSuffix(unit, "AT") {
			base *= 1_000_000
			if unit == "EXAT" {
				base = 10_000_000_000
			}
		}
		return strconv.FormatInt(base+g.Int64N(spread), 10)
	case n < 8:
		return g.pick("0", "-1", "-1000", "-9223372036854775808", "-9223372036854775", "-9223372036854776")
	}
	if unit == "PX" { // the other limits are valid here, but for GT and LT they are the same time twice
		return g.pick("9223372036854775807", "9223372036854775000", "x", "", "1.5", "01", "9223372036854775808")
	}
	return g.pick("9223372036854775807", "9223372036854775", "9223372036854776", "9223372036854774", "x", "", "1.5", "01", "9223372036854775808")
}

// call finishes a call: sometimes with a name in another case, an argument too many or too few.
func (g *Generator) call(args ...string) []string {
	switch {
	case g.one(8):
		args[0] = strings.ToUpper(args[0])
	case g.one(20):
		args[0] = strings.ToUpper(args[0][:1]) + args[0][1:]
	}
	switch {
	case g.one(60) && len(args) > 1:
		return args[:1+g.IntN(len(args)-1)]
	case g.one(80):
		return append(args, g.pick("", "nx", "x", g.Key()))
	}
	return args
}

func stringCall(g *Generator) [][]string {
	switch g.IntN(11) {
	case 0, 1:
		return [][]string{g.call("get", g.Key())}
	case 2, 3:
		return g.set()
	case 4:
		return [][]string{g.call("setnx", g.Key(), g.Value())}
	case 5:
		return [][]string{g.call(append([]string{"mget"}, g.keys(5)...)...)}
	case 6:
		args := []string{"mset"}
		for range 1 + g.IntN(4) {
			args = append(args, g.Key(), g.Value())
		}
		return [][]string{g.call(args...)}
	case 7:
		return [][]string{g.call(g.pick("incr", "decr"), g.Key())}
	case 8:
		return [][]string{g.call(g.pick("incrby", "decrby"), g.Key(), g.Number())}
	case 9:
		return [][]string{g.call("append", g.Key(), g.Value())}
	}
	return [][]string{g.call("strlen", g.Key())}
}

func (g *Generator) keys(most int) []string {
	keys := make([]string, 1+g.IntN(most))
	for i := range keys {
		keys[i] = g.Key()
	}
	return keys
}

// set makes a SET with any options. Where the new value may have expired at once, EXISTS follows: Redis counts such keys until
// somebody looks.
func (g *Generator) set() [][]string {
	key := g.Key()
	args := []string{"set", key, g.Value()}
	expires := false
	for g.one(2) {
		option := g.pick("NX", "XX", "GET", "KEEPTTL", "EX", "PX", "EXAT", "PXAT", "EX", "PX", "EXAT", "PXAT", "")
		if option == "" {
			option = g.pick("", "PERSIST", "N", "nxx", "nx\x00y", "ttl", "get\x00", "EX\x00", "1")
		}
		spelled := option
		if g.one(2) {
			spelled = strings.ToLower(option)
		}
		args = append(args, spelled)
		switch option {
		case "EX", "PX", "EXAT", "PXAT":
			expires = true
			value := g.Time(option)
			if strings.HasSuffix(option, "AT") && g.one(3) {
				value = g.pick("1", "1000", "1000000")
			}
			if !g.one(30) {
				args = append(args, value)
			}
		}
	}
	calls := [][]string{g.call(args...)}
	if expires {
		calls = append(calls, []string{"exists", key})
	}
	return calls
}

func genericCall(g *Generator) [][]string {
	switch g.IntN(12) {
	case 0:
		return [][]string{g.call(append([]string{g.pick("del", "unlink")}, g.keys(2)...)...)}
	case 1:
		return [][]string{g.call(append([]string{"exists"}, g.keys(5)...)...)}
	case 2:
		return [][]string{g.call("type", g.Key())}
	case 3, 4, 5:
		name, unit := "expire", "EX"
		if g.one(2) {
			name, unit = "pexpire", "PX"
		}
		args := []string{name, g.Key(), g.Time(unit)}
		for g.one(3) {
			args = append(args, g.pick("NX", "XX", "GT", "LT", "nx", "xx", "gt", "lt", "xX", "GTX", "", "n\r\nx", "nx\x00y", "\x00", "bad\n"))
		}
		return [][]string{g.call(args...)}
	case 6, 7:
		return [][]string{g.call(g.pick("ttl", "pttl"), g.Key())}
	case 8:
		return [][]string{g.call("persist", g.Key())}
	case 9:
		return [][]string{g.call("keys", g.Pattern())}
	case 10:
		return [][]string{g.call("dbsize")}
	}
	if g.one(6) {
		args := []string{g.pick("flushdb", "flushall")}
		if g.one(2) {
			args = append(args, g.pick("sync", "SYNC", "async", "ASYNC", "syn", "", "async\x00"))
		}
		return [][]string{g.call(args...)}
	}
	return [][]string{g.call("exists", g.Key())}
}

// Pattern draws glob patterns, whole and broken ones.
func (g *Generator) Pattern() string {
	if g.one(4) {
		return g.Tag + "*"
	}
	if g.one(5) {
		return g.pick("*", "**", "", "?", "\\")
	}
	var b strings.Builder
	b.WriteString(g.Tag)
	for range g.IntN(6) {
		b.WriteString(g.pick("*", "?", "a", "b", "n", "1", "k", "[", "]", "^", "-", "\\", "\r", "\n", "\x00", "\xff", "[a-c]", "[^a]",
			"[\\a]", "[z-a]", "[\x00-\xff]", "[^", "long", "* "))
	}
	return b.String()
}

func unknownCall(g *Generator) [][]string {
	args := []string{g.pick("nosuch", "", "get2", "no\r\nsuch", "ge", "g\x00t", strings.Repeat("longname", 20), "\xff\xfe", "set get")}
	for range g.IntN(6) {
		args = append(args, g.Value())
	}
	return [][]string{args}
}
