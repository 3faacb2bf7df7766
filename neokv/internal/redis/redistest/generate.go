package redistest

import (
	"math"
	"math/rand/v2"
	"strconv"
	"strings"
)

// CallGenerator makes random calls. Each group of commands has a Family in Families.
type CallGenerator struct {
	*rand.Rand
	// Tag stands in front of every key: "{t}" keeps all of them in one slot. Without a tag, one of the keys is empty.
	Tag string
	// Spread says that keys may lie in several regions. Commands whose keys must be in one region draw them with near.
	Spread bool
	// Cluster says that the reference server is a Redis Cluster: NeoKV must refuse what it refuses.
	Cluster bool
	// Proto is the protocol version of the connection, for calls that change it and have to change it back.
	Proto int
	// Piece is how long the pieces of long strings are, 64 KiB if it is 0.
	Piece int

	oneSlot bool // an argument too many, too, is a key with the tag
}

// Family makes one random call: valid, odd or invalid. It may add calls that make the outcome the same on every server.
type Family func(g *CallGenerator) [][]string

// Families are all families of commands that calls are drawn from, with their weights.
var Families = []struct {
	Name   string
	Weight int
	Make   Family
	Server bool // it needs a whole server, not only commands about data
}{
	{"strings", 60, stringCall, false},
	{"long strings", 4, longCall, false},
	{"hash", 60, hashCall, false},
	{"set", 60, setCall, false},
	{"list", 60, listCall, false},
	{"zset", 60, zsetCall, false},
	{"sort", 40, sortCall, false},
	{"generic", 50, genericCall, false},
	{"object", 10, objectCall, false},
	{"unknown", 3, unknownCall, false},
	{"server", 8, serverCall, true},
	{"connection", 4, connectionCall, true},
	{"pubsub", 4, pubsubCall, true},
}

// Calls makes one random call, sometimes with others that belong to it. With dataOnly it uses only families that need
// no whole server. Else some are transactions of such calls, and some are made by scripts.
func (g *CallGenerator) Calls(dataOnly bool) [][]string {
	if !dataOnly && g.one(transactionOdds) {
		return transactionCall(g)
	}
	if !dataOnly && g.one(scriptOdds) {
		return scriptCall(g)
	}
	total := 0
	for _, f := range Families {
		if !f.Server || !dataOnly {
			total += f.Weight
		}
	}
	n := g.IntN(total)
	for _, f := range Families {
		if f.Server && dataOnly {
			continue
		}
		if n -= f.Weight; n < 0 {
			return f.Make(g)
		}
	}
	panic("weights do not add up")
}

func (g *CallGenerator) pick(from ...string) string { return from[g.IntN(len(from))] }

// one is true once in n times.
func (g *CallGenerator) one(n int) bool { return g.IntN(n) == 0 }

// Key draws from few keys, so that calls meet. Often it is a key that mostly holds one type.
func (g *CallGenerator) Key() string {
	if g.one(4) {
		return g.typed(g.pick(types...))
	}
	return g.Tag + g.pick("", "a", "b", "c", "d", "e", "n1", "n2", "n3", "\x00", "k\r\ny", "\xff\xfe*[?", "a b", "{x}y",
		strings.Repeat("long", 40),
		"{s}a", "{s}b", "{s}\x00")
}

// types are in the names of the keys that mostly hold a type.
var types = []string{"hash", "set", "list", "zset"}

// keyOf draws a key for a command about a type: mostly one that holds it.
func (g *CallGenerator) keyOf(kind string) string {
	if g.one(4) {
		return g.Key()
	}
	return g.typed(kind)
}

func (g *CallGenerator) typed(kind string) string {
	return g.Tag + g.pick(kind+"1", kind+"2", kind+"3", "{s}"+kind)
}

// near draws a key for a command whose keys have to be in one region.
func (g *CallGenerator) near() string {
	if g.one(4) {
		return g.nearOf(g.pick(types...))
	}
	if g.Spread {
		return g.pick("{s}a", "{s}b", "{s}\x00", "{s}", "{s}a b", "{s}n")
	}
	return g.Key()
}

// nearOf is near for a command about a type.
func (g *CallGenerator) nearOf(kind string) string {
	if g.Spread {
		return g.pick("{s}"+kind, "{s}"+kind+"2")
	}
	return g.keyOf(kind)
}

// Value draws values: numbers, near-numbers, limits, text and bytes.
func (g *CallGenerator) Value() string {
	switch g.IntN(4) {
	case 0:
		return strconv.Itoa(g.IntN(200) - 100)
	case 1:
		return g.Number()
	case 2:
		return g.pick("", "v", "hello world", "\x00\x01\xff", "line\r\nline", strings.Repeat("x", 300), "$-1\r\n",
			"-ERR no\r\n")
	}
	b := make([]byte, g.IntN(20))
	for i := range b {
		b[i] = byte(g.IntN(256))
	}
	return string(b)
}

// Number draws what may or may not be an integer.
func (g *CallGenerator) Number() string {
	if g.one(3) {
		return strconv.FormatInt(g.Int64()>>g.IntN(64), 10)
	}
	return g.pick("0", "1", "-1", "2", "10", "9223372036854775807", "-9223372036854775808", "9223372036854775808",
		"-9223372036854775809", "9223372036854775806", "4611686018427387904", "-4611686018427387904",
		"18446744073709551615", "18446744073709551616", "99999999999999999999", "000000000000000000001", "", " 1", "1 ",
		"01", "+1", "-0", "-", "1.5", "1e3", "0x10", "abc", "1\x00", "١")
}

// Time draws an argument of an expire option. It is so far away that it does not pass while calls are compared, or long
// past, or no time at all. It is never the same twice, since GT and LT would see the time between two calls.
func (g *CallGenerator) Time(unit string) string {
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
	return g.pick("9223372036854775807", "9223372036854775", "9223372036854776", "9223372036854774", "x", "", "1.5",
		"01", "9223372036854775808")
}

// call returns a call, sometimes with the name in another case, or with an argument too many or too few.
func (g *CallGenerator) call(args ...string) []string {
	extra := g.near()
	if !g.oneSlot {
		extra = g.pick("", "nx", "x", extra)
	}
	return g.callWith(extra, args...)
}

// callWith is like call, but the additional argument is extra.
func (g *CallGenerator) callWith(extra string, args ...string) []string {
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
		return append(args, extra)
	}
	return args
}

func stringCall(g *CallGenerator) [][]string {
	switch g.IntN(22) {
	case 0, 1:
		return [][]string{g.call("get", g.Key())}
	case 2, 3:
		return g.set()
	case 4:
		return [][]string{g.call("setnx", g.Key(), g.Value())}
	case 5:
		return [][]string{g.call(append([]string{"mget"}, g.some(5, g.Key)...)...)}
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
	case 10:
		return [][]string{g.call("strlen", g.Key())}
	case 11:
		if g.one(2) {
			return [][]string{g.call("setex", g.Key(), g.Time("EX"), g.Value())}
		}
		return [][]string{g.call("psetex", g.Key(), g.Time("PX"), g.Value())}
	case 12:
		args := []string{"msetnx"}
		for range 1 + g.IntN(3) {
			args = append(args, g.near(), g.Value())
		}
		return [][]string{g.callWith(g.near(), args...)}
	case 13:
		return [][]string{g.call("getset", g.Key(), g.Value())}
	case 14:
		return [][]string{g.call("getdel", g.Key())}
	case 15:
		return g.getex()
	case 16, 17:
		return [][]string{g.call(g.pick("getrange", "getrange", "substr"), g.Key(), g.index(), g.index())}
	case 18:
		// No offset makes a string of hundreds of megabytes.
		offset := g.pick("0", "1", "3", "10", "300", "-1", "536870912", "536870913", "9223372036854775807",
			"-9223372036854775808", "x", "", "1.5", "01")
		return [][]string{g.call("setrange", g.Key(), offset, g.Value())}
	case 19, 20:
		return [][]string{g.call("incrbyfloat", g.Key(), g.float())}
	}
	args := []string{"lcs", g.near(), g.near()}
	for g.one(2) {
		switch option := g.pick("idx", "IDX", "len", "WithMatchLen", "minmatchlen", "minmatchlen", "", "idx\x00",
			"lens"); option {
		case "minmatchlen":
			args = append(args, option)
			if !g.one(20) {
				args = append(args, g.pick("0", "1", "2", "3", "-1", "9223372036854775807", "x", ""))
			}
		default:
			args = append(args, option)
		}
	}
	return [][]string{g.call(args...)}
}

// index draws an index into a string.
func (g *CallGenerator) index() string {
	if g.one(4) {
		return g.Number()
	}
	return strconv.Itoa(g.IntN(24) - 12)
}

// float draws what may or may not be a number with a fraction.
func (g *CallGenerator) float() string {
	switch g.IntN(5) {
	case 0:
		return g.Number()
	case 1:
		return strconv.FormatFloat(g.NormFloat64()*math.Pow(10, float64(g.IntN(40)-20)), byte(g.pick("e", "f", "g")[0]),
			-1, 64)
	case 2: // as many digits as it likes
		b := []byte(g.pick("", "-", "+"))
		for range 1 + g.IntN(30) {
			b = append(b, byte('0'+g.IntN(10)))
		}
		b[len(b)-1-g.IntN(min(5, len(b)))] = '.'
		return string(b) + g.pick("", "", "e3", "e-10", "E+5", "e-30")
	}
	return g.pick("0.1", "-0.1", "0.5", "1e10", "3.0e3", "1e-17", "5e-18", "-5e-18", "1.5e-17", "0.3", "1e20", "-1e20",
		"18446744073709551616.5",
		"9007199254740993", "123456789012345678901234567890", "1e400", "-1e4932", "1.18973149535723176502e4932",
		"1.2e4932", "1e5000", "1e-4950", "1e-5000", "3.6e-4951", "1e99999999999", "0e99999999999", "inf", "-INF",
		"infinity", "infinit", "nan", "nan(1)", "0x1.8p3", "0X10", "0x", "0x.8", "0xp1", "0x1p16384", "0x1p-16445",
		"0x1p-16446", "0x1.fffffffffffffffffp0", "1e", "1e+", "1ee2", "e5", "+5", "++5", "+-5", "1 ", "\t1", "1,5",
		".5", "5.", ".", "-.", "-0", "-.0", "1\x00", "1_000", "1.5.5", strings.Repeat("9", 5119),
		strings.Repeat("0", 5120))
}

// getex makes a GETEX with any options.
func (g *CallGenerator) getex() [][]string {
	args := []string{"getex", g.Key()}
	for g.one(2) || len(args) == 2 && g.one(2) {
		switch option := g.pick("EX", "PX", "EXAT", "PXAT", "persist", "PERSIST", "keepttl", "nx", "get", "",
			"persist\x00", "exx"); option {
		case "EX", "PX", "EXAT", "PXAT":
			spelled := option
			if g.one(2) {
				spelled = strings.ToLower(option)
			}
			value := g.Time(option)
			if strings.HasSuffix(option, "AT") && g.one(5) {
				value = g.pick("1", "1000", "1000000")
			}
			if args = append(args, spelled); !g.one(30) {
				args = append(args, value)
			}
		default:
			args = append(args, option)
		}
	}
	return [][]string{g.call(args...)}
}

// some draws 1 to most texts.
func (g *CallGenerator) some(most int, draw func() string) []string {
	all := make([]string, 1+g.IntN(most))
	for i := range all {
		all[i] = draw()
	}
	return all
}

// set makes a SET with any options. Where the new value may have expired at once, EXISTS follows: Redis counts such
// keys until somebody looks. A number in the place of an option is a time of every unit, for it may follow an option
// whose value is left out.
func (g *CallGenerator) set() [][]string {
	key := g.Key()
	args := []string{"set", key, g.Value()}
	expires := false
	for g.one(2) {
		option := g.pick("NX", "XX", "GET", "KEEPTTL", "EX", "PX", "EXAT", "PXAT", "EX", "PX", "EXAT", "PXAT", "")
		if option == "" {
			option = g.pick("", "PERSIST", "N", "nxx", "nx\x00y", "ttl", "get\x00", "EX\x00", g.Time("PXAT"))
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

func genericCall(g *CallGenerator) [][]string {
	switch g.IntN(17) {
	case 0:
		return [][]string{g.call(append([]string{g.pick("del", "unlink")}, g.some(2, g.Key)...)...)}
	case 1:
		return [][]string{g.call(append([]string{g.pick("exists", "touch")}, g.some(5, g.Key)...)...)}
	case 2:
		return [][]string{g.call("type", g.Key())}
	case 3, 4, 5:
		name, unit := "expire", "EX"
		switch g.IntN(4) {
		case 0:
			name, unit = "pexpire", "PX"
		case 1:
			name, unit = "expireat", "EXAT"
		case 2:
			name, unit = "pexpireat", "PXAT"
		}
		key, at := g.Key(), g.Time(unit)
		if strings.HasSuffix(unit, "AT") && g.one(10) {
			at = g.pick("1", "1000", "1000000") // passed, and yet valid
		}
		args := []string{name, key, at}
		for g.one(3) {
			args = append(args, g.pick("NX", "XX", "GT", "LT", "nx", "xx", "gt", "lt", "xX", "GTX", "", "n\r\nx",
				"nx\x00y", "\x00", "bad\n"))
		}
		return [][]string{g.call(args...)}
	case 12, 13:
		return [][]string{g.call(g.pick("rename", "renamenx"), g.near(), g.near())}
	case 14, 15:
		args := []string{"copy", g.near(), g.near()}
		for g.one(2) {
			switch option := g.pick("replace", "REPLACE", "db", "DB", "replace\x00", "", "rep"); option {
			case "db", "DB":
				args = append(args, option)
				if !g.one(10) {
					args = append(args, g.pick("0", "0", "0", "99", "-1", "2147483648", "9223372036854775808", "x",
						""))
				}
			default:
				args = append(args, option)
			}
		}
		return [][]string{g.call(args...)}
	case 16:
		return [][]string{g.call(g.pick("expiretime", "pexpiretime"), g.Key())}
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
func (g *CallGenerator) Pattern() string {
	if g.one(4) {
		return g.Tag + "*"
	}
	if g.one(5) {
		return g.pick("*", "**", "", "?", "\\")
	}
	var b strings.Builder
	b.WriteString(g.Tag)
	for range g.IntN(6) {
		b.WriteString(g.pick("*", "?", "a", "b", "n", "1", "k", "[", "]", "^", "-", "\\", "\r", "\n", "\x00", "\xff",
			"[a-c]", "[^a]",
			"[\\a]", "[z-a]", "[\x00-\xff]", "[^", "long", "* "))
	}
	return b.String()
}

func unknownCall(g *CallGenerator) [][]string {
	args := []string{g.pick("nosuch", "", "get2", "no\r\nsuch", "ge", "g\x00t", strings.Repeat("longname", 20),
		"\xff\xfe", "set get")}
	for range g.IntN(6) {
		args = append(args, g.Value())
	}
	return [][]string{args}
}

func objectCall(g *CallGenerator) [][]string {
	if g.one(4) { // Redis looks for the key itself, expired or not: EXISTS drops it
		key := g.Key()
		args := []string{"memory", "usage", key}
		for g.one(3) {
			args = append(args, g.pick("samples", "SAMPLES", "sample", ""))
			if !g.one(5) {
				args = append(args, g.pick("0", "5", "-1", "x", "9223372036854775807", "9223372036854775808"))
			}
		}
		return [][]string{{"exists", key}, g.call(args...)}
	}
	if g.one(3) {
		return g.written()
	}
	return [][]string{g.call("object",
		g.pick("encoding", "ENCODING", "refcount", "idletime", "freq", "nosuch", "", "encoding\x00"), g.Key())}
}

// written writes a string, or makes a collection around the limits of its encodings, and asks how it is kept.
func (g *CallGenerator) written() [][]string {
	key := g.Key()
	ask := []string{"object", g.pick("encoding", "ENCODING", "refcount"), key}
	if g.one(2) {
		value := g.pick(g.Value(), g.Number(), strings.Repeat("x", 43+g.IntN(3)), "9999", "10000", "-1")
		return [][]string{g.pickCall([]string{"set", key, value}, []string{"mset", key, value},
			[]string{"setex", key, "100000", value}), ask}
	}
	element := func(i int) string { return strconv.Itoa(i) }
	switch g.IntN(4) {
	case 0:
		element = func(i int) string { return "e" + strconv.Itoa(i) }
	case 1:
		element = func(i int) string { return strings.Repeat("e", 63+g.IntN(3)) + strconv.Itoa(i%7) }
	}
	limit := g.IntN(5)
	if g.one(4) {
		limit = []int{126, 510}[g.IntN(2)] + g.IntN(5)
	}
	name := g.pick(adding...)
	calls := [][]string{{"del", key}}
	for i := 0; i == 0 || i < limit; {
		args := []string{name, key}
		for n := i + 1 + g.IntN(limit+1); i < n; i++ {
			switch name {
			case "hset", "hmset":
				args = append(args, element(i), g.pick("v", "1", element(i)))
			case "zadd":
				args = append(args, strconv.Itoa(g.IntN(5)), element(i))
			default:
				args = append(args, element(i))
			}
		}
		calls = append(calls, args)
	}
	return append(calls, ask)
}

func (g *CallGenerator) pickCall(from ...[]string) []string { return from[g.IntN(len(from))] }

// serverCall makes calls that look at all keys, or at none.
func serverCall(g *CallGenerator) [][]string {
	switch g.IntN(8) {
	case 0, 1, 2, 3:
		return [][]string{g.scan()}
	case 4:
		return [][]string{g.call("randomkey"), {"keys", "*"}}
	case 5:
		if g.one(5) { // never without an argument: COMMAND alone lists what a server has
			return [][]string{{"command", g.pick("help", "HELP")}}
		}
		return [][]string{g.call(g.pick("object", "client", "config", "cluster"), g.pick("help", "HELP"))}
	case 6:
		return [][]string{g.call("memory", g.pick("help", "doctor", "purge", "nosuch", "malloc-stats", "stats"))}
	}
	return [][]string{g.call(append([]string{"lolwut"},
		[][]string{{}, {}, {"version", "7"}, {"VERSION", "x"}, {"version"}, {"version", ""}}[g.IntN(6)]...)...)}
}

// scan makes a SCAN that returns everything at once, or nothing.
func (g *CallGenerator) scan() []string {
	args := []string{"scan", g.pick("0", "0", "0", "0", "0", "0", "00", "-0", "+0", "", "x", "0x", "1a", " 0", "-",
		"18446744073709551616", "0\x00")}
	counted := false
	for g.one(2) {
		option := g.pick("match", "MATCH", "type", "TYPE", "count", "matches", "")
		args = append(args, option)
		if g.one(20) {
			continue
		}
		switch option {
		case "match", "MATCH":
			args = append(args, g.Pattern())
		case "type", "TYPE":
			args = append(args, g.pick("string", "STRING", "hash", "set", "list", "zset", "List", "ZSET", "stream",
				"nosuch", "", "set\x00", "zse"))
		default:
			value := g.pick("1000", "2000", "0", "-1", "x", "", "9223372036854775808")
			counted = counted || option == "count"
			args = append(args, value)
		}
	}
	if !counted || !g.one(20) {
		args = append(args, "count", "1000")
	}
	return args
}
