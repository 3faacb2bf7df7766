package redistest

import (
	"fmt"
	"strconv"
	"strings"
)

// field draws from few names of fields, so that calls meet.
func (g *CallGenerator) field() string {
	if g.one(6) {
		return strconv.Itoa(g.IntN(12))
	}
	return g.pick("f", "g", "h", "f1", "f2", "f3", "", "\x00", "F", "f\r\n", "\xff\xfe", "n",
		strings.Repeat("field", 30))
}

func hashCall(g *CallGenerator) [][]string {
	key := g.keyOf("hash")
	switch g.IntN(24) {
	case 0, 1, 2, 3, 4:
		args := []string{g.pick("hset", "hset", "hset", "hmset"), key}
		for range 1 + g.IntN(5) {
			args = append(args, g.field(), g.Value())
		}
		if g.one(20) {
			args = args[:len(args)-1]
		}
		return [][]string{g.call(args...)}
	case 5:
		return [][]string{g.call("hsetnx", key, g.field(), g.Value())}
	case 6, 7:
		return [][]string{g.call("hget", key, g.field())}
	case 8:
		return [][]string{g.call(append([]string{"hmget", key}, g.some(5, g.field)...)...)}
	case 9, 10:
		return [][]string{g.call("hgetall", key)}
	case 11:
		return [][]string{g.call(g.pick("hkeys", "hvals"), key)}
	case 12:
		return [][]string{g.call("hlen", key)}
	case 13:
		return [][]string{g.call("hstrlen", key, g.field())}
	case 14:
		return [][]string{g.call("hexists", key, g.field())}
	case 15, 16:
		return [][]string{g.call(append([]string{"hdel", key}, g.some(8, g.field)...)...)}
	case 17, 18:
		return [][]string{g.call("hincrby", key, g.field(), g.Number())}
	case 19:
		return [][]string{g.call("hincrbyfloat", key, g.field(), g.float())}
	case 20, 21:
		return [][]string{g.sample("hrandfield", key, "withvalues"), {"hgetall", key}}
	case 22:
		return [][]string{g.scanOf("hscan", key)}
	}
	if !g.one(4) { // a large one once in a while
		return [][]string{g.call("hlen", key)}
	}
	args := []string{"hset", key}
	for range 20 + g.IntN(200) {
		args = append(args, fmt.Sprint("many", g.IntN(500)), strconv.Itoa(g.IntN(100)))
	}
	return [][]string{args}
}

// sample makes a HRANDFIELD, SRANDMEMBER or ZRANDMEMBER; option is what may follow the count, empty for nothing. The
// call that follows has to return all elements: see Difference.chosen. No count makes a huge reply.
func (g *CallGenerator) sample(name, key, option string) []string {
	args := []string{name, key}
	switch g.IntN(6) {
	case 0:
		return args
	case 1: // which may not lose its last argument
		if option != "" {
			return append(args, g.pick("4611686018427387903", "4611686018427387904", "-4611686018427387904",
				"-4611686018427387905"), strings.ToUpper(option))
		}
	}
	args = append(args, g.pick("0", "1", "-1", "2", "3", "-3", "5", "-20", "20", "100", "-150", "1000",
		"9223372036854775807", "-9223372036854775808",
		"9223372036854775808", "x", "", "1.5", "-0", "01"))
	if option != "" && g.one(2) {
		args = append(args, g.pick(option, option, option, strings.ToUpper(option), "", option+"\x00x", option+"x"))
	}
	return g.call(args...)
}

// scanOf makes a HSCAN, SSCAN or ZSCAN that returns everything at once, or nothing.
func (g *CallGenerator) scanOf(name, key string) []string {
	args := []string{name, key, g.pick("0", "0", "0", "0", "0", "00", "-0", "+0", "", "x", "0x", "1a", " 0", "-",
		"18446744073709551616", "0\x00")}
	counted := false
	for g.one(2) {
		option := g.pick("match", "MATCH", "count", "count", "type", "novalues", "")
		args = append(args, option)
		if g.one(20) {
			continue
		}
		switch option {
		case "match", "MATCH":
			args = append(args, g.pick("*", "f*", "?", "[a-z]*", "many1*", "", "\xff*", "nosuch", "[^f]*"))
		default:
			counted = counted || option == "count"
			args = append(args, g.pick("1000", "2000", "0", "-1", "x", "", "9223372036854775808"))
		}
	}
	if !counted || !g.one(20) {
		args = append(args, "count", "1000")
	}
	return args
}

var hashCases = []Case{
	{Name: "hset hget", Calls: `
		flushall
		hset {t}h f v
		hset {t}h f w g x
		hget {t}h f
		hget {t}h g
		hget {t}h no
		hget {t}no f
		hset {t}h f
		hset {t}h f v g
		hmset {t}h f v g
		hset
		hget {t}h
		hget {t}h f g
		hmset {t}h f 1 f 2 h 3
		hget {t}h f
		hset {t}h f a f b new 1 new 2
		hget {t}h new
		hset {t}h "" ""
		hget {t}h ""
		hset {t}h "\x00\xff" "a\r\nb"
		hget {t}h "\x00\xff"
		hlen {t}h
		hmget {t}h f no g f
		hmget {t}no a b
		hmget {t}h
		hgetall {t}h
		hkeys {t}h
		hvals {t}h
		hgetall {t}no
		hkeys {t}no
		hvals {t}no
		hlen {t}no
		hstrlen {t}h f
		hstrlen {t}h no
		hstrlen {t}no f
		hexists {t}h f
		hexists {t}h no
		hexists {t}no f
		hsetnx {t}h f z
		hsetnx {t}h fresh z
		hsetnx {t}other f z
		hget {t}other f
		type {t}other
		object encoding {t}other
		hgetall {t}h x`},
	{Name: "hdel", Calls: `
		flushall
		hset {t}h a 1 b 2 c 3
		expire {t}h 10000
		hdel {t}h a a no
		ttl {t}h
		hlen {t}h
		hdel {t}h b c
		exists {t}h
		type {t}h
		ttl {t}h
		dbsize
		hdel {t}h a
		hdel {t}h
		hset {t}h a 1
		ttl {t}h
		hgetall {t}h`},
	{Name: "hincrby", Calls: `
		flushall
		hincrby {t}h n 5
		hincrby {t}h n -7
		hincrby {t}h n 1.5
		hincrby {t}h n x
		hincrby {t}h n
		hset {t}h s abc
		hincrby {t}h s 1
		hset {t}h s " 1"
		hincrby {t}h s 1
		hset {t}h s 9223372036854775807
		hincrby {t}h s 1
		hincrby {t}h s -1
		hset {t}h s -9223372036854775808
		hincrby {t}h s -1
		hset {t}h s 1.5
		hincrby {t}h s 1
		hincrbyfloat {t}h s 1.25
		hincrbyfloat {t}h n 0.1
		hincrbyfloat {t}h new 3.0e3
		hincrbyfloat {t}h new x
		hincrbyfloat {t}h new inf
		hincrbyfloat {t}no new inf
		exists {t}no
		hincrbyfloat {t}h new nan
		hset {t}h s abc
		hincrbyfloat {t}h s 1
		hset {t}h s inf
		hincrbyfloat {t}h s 1
		hset {t}h s 1.18973149535723176502e4932
		hincrbyfloat {t}h s 1.18973149535723176502e4932
		hgetall {t}h`},
	{Name: "hash wrong type", OneRegion: true, Calls: `
		flushall
		set {t}s v
		hset {t}s f v
		hset {t}s f
		hmset {t}s f v
		hsetnx {t}s f v
		hget {t}s f
		hmget {t}s f
		hgetall {t}s
		hkeys {t}s
		hvals {t}s
		hlen {t}s
		hstrlen {t}s f
		hexists {t}s f
		hdel {t}s f
		hincrby {t}s f 1
		hincrby {t}s f x
		hincrbyfloat {t}s f 1
		hincrbyfloat {t}s f inf
		hincrbyfloat {t}s f x
		hrandfield {t}s
		hrandfield {t}s 0
		hrandfield {t}s x
		hscan {t}s 0
		hscan {t}s x
		hscan {t}s 0 count
		hset {t}h f v
		get {t}h
		append {t}h v
		set {t}h v nx
		getset {t}h v
		mget {t}h {t}s
		rename {t}h {t}g
		hgetall {t}g
		copy {t}g {t}s
		copy {t}g {t}s replace
		hgetall {t}s
		hset {t}s x y
		hgetall {t}g
		renamenx {t}g {t}s
		renamenx {t}g {t}h
		expire {t}h 10000
		copy {t}h {t}g
		ttl {t}g
		rename {t}h {t}h
		hgetall {t}h
		persist {t}h
		ttl {t}h
		set {t}h v
		get {t}h
		dbsize`},
	{Name: "hrandfield", Calls: `
		flushall
		hrandfield {t}no
		hrandfield {t}no 3
		hrandfield {t}no -3
		hrandfield {t}no 3 withvalues
		hset {t}h f v
		hrandfield {t}h
		hrandfield {t}h 5
		hrandfield {t}h -5
		hrandfield {t}h 5 withvalues
		hrandfield {t}h -2 WITHVALUES
		hrandfield {t}h 0
		hrandfield {t}h 0 withvalues
		hrandfield {t}h x
		hrandfield {t}h 1 nosuch
		hrandfield {t}h 1 withvalues x
		hrandfield {t}h x nosuch
		hrandfield {t}h 4611686018427387904
		hrandfield {t}h 4611686018427387904 withvalues
		hrandfield {t}h 4611686018427387903 withvalues
		hrandfield {t}h -4611686018427387904 withvalues
		hrandfield {t}h -9223372036854775808
		hrandfield {t}h 9223372036854775807
		hrandfield`},
	{Name: "hscan", Calls: `
		flushall
		hscan {t}no 0
		hscan {t}no 0 nosuch
		hscan {t}no x
		hset {t}h a 1 b 2 ab 3
		hscan {t}h 0
		hscan {t}h 5
		hscan {t}h 0 count 1
		hscan {t}h 0 match a*
		hscan {t}h 0 match no*
		hscan {t}h 0 match * count 2 match b
		hscan {t}h 0 count 0
		hscan {t}h 0 count -1
		hscan {t}h 0 count x
		hscan {t}h 0 count
		hscan {t}h 0 match
		hscan {t}h 0 type hash
		hscan {t}h 0 novalues
		hscan {t}h
		hscan {t}h -1`},
}
