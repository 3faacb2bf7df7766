package redistest

import (
	"fmt"
	"strconv"
	"strings"
)

// member draws from few members of sets and sorted sets, so that calls meet.
func (g *CallGenerator) member() string {
	if g.one(3) {
		return strconv.Itoa(g.IntN(12) - 2)
	}
	return g.pick("a", "b", "c", "aa", "ab", "m1", "m2", "m3", "", "\x00", "A", "a\x00", "m\r\n", "\xff\xfe", "\xff",
		"9223372036854775807", "9223372036854775808", "-00", "01",
		strings.Repeat("member", 30))
}

func setCall(g *CallGenerator) [][]string {
	key := g.keyOf("set")
	switch g.IntN(26) {
	case 0, 1, 2, 3, 4, 5:
		return [][]string{g.call(append([]string{"sadd", key}, g.some(8, g.member)...)...)}
	case 6:
		return [][]string{g.call(append([]string{"sadd", g.nearOf("set")}, g.some(8, g.member)...)...)}
	case 7, 8:
		return [][]string{g.call(append([]string{"srem", key}, g.some(6, g.member)...)...)}
	case 9:
		return [][]string{g.call("smembers", key)}
	case 10:
		return [][]string{g.call("sismember", key, g.member())}
	case 11:
		return [][]string{g.call(append([]string{"smismember", key}, g.some(5, g.member)...)...)}
	case 12:
		return [][]string{g.call("scard", key)}
	case 13, 14:
		return [][]string{g.callWith(g.near(), "smove", g.nearOf("set"), g.nearOf("set"), g.member())}
	case 15, 16:
		return [][]string{g.sample("srandmember", key, ""), {"smembers", key}}
	case 17:
		return g.pop(key)
	case 18:
		return [][]string{g.scanOf("sscan", key)}
	case 19, 20:
		return [][]string{g.callWith(g.near(), append([]string{g.pick("sinter", "sunion", "sdiff")}, g.sets(4)...)...)}
	case 21, 22:
		return [][]string{g.callWith(g.near(),
			append([]string{g.pick("sinterstore", "sunionstore", "sdiffstore"), g.nearOf("set")}, g.sets(4)...)...)}
	case 23:
		return [][]string{g.interCard()}
	}
	if !g.one(4) { // a large one once in a while
		return [][]string{g.call("scard", key)}
	}
	args := []string{g.pick("sadd", "sadd", "srem"), g.nearOf("set")}
	for range 20 + g.IntN(200) {
		args = append(args, fmt.Sprint(g.pick("many", "", "-"), g.IntN(500)))
	}
	return [][]string{args}
}

// sets draws keys for a command about several sets, mostly of one region, now and then more than are usual.
func (g *CallGenerator) sets(most int) []string {
	if g.one(20) {
		most = 100
	}
	return g.some(most, func() string { return g.nearOf("set") })
}

// pop makes a SPOP. What it could choose from stands before it; what is left differs from server to server, so it is
// counted, and goes.
func (g *CallGenerator) pop(key string) [][]string {
	args := []string{"spop", key}
	if !g.one(3) {
		args = append(args, g.pick("0", "1", "2", "3", "5", "20", "100", "1000", "9223372036854775807",
			"9223372036854775808", "-1", "-0", "01", "x", "", "1.5"))
	}
	return [][]string{{"smembers", key}, g.call(args...), {"scard", key}, {"del", key}}
}

func (g *CallGenerator) interCard() []string {
	names := g.sets(4)
	args := append([]string{"sintercard", strconv.Itoa(len(names))}, names...)
	if g.one(8) && !g.Spread { // what is no key then might be in another region
		args[1] = g.pick("0", "-1", "x", "", "1.5", "9223372036854775807", "9223372036854775808", "01", " 1", "2", "5",
			"1")
	}
	for g.one(2) {
		args = append(args, g.pick("limit", "LIMIT", "LIMIT", "limits", "", "limit\x00"))
		if !g.one(10) {
			args = append(args, g.pick("0", "1", "2", "5", "-1", "x", "", "9223372036854775807", "9223372036854775808"))
		}
	}
	return g.callWith(g.near(), args...)
}

var setCases = []Case{
	{Name: "sadd srem", Calls: `
		flushall
		sadd {t}s a
		sadd {t}s a b b c
		sadd {t}s
		sadd
		scard {t}s
		scard {t}no
		sismember {t}s a
		sismember {t}s no
		sismember {t}no a
		sismember {t}s
		smismember {t}s a no b a
		smismember {t}no a b
		smismember {t}s
		smembers {t}s
		smembers {t}no
		smembers {t}s x
		sadd {t}s ""
		sadd {t}s "\x00\xff" "line\r\nline"
		smembers {t}s
		sismember {t}s ""
		expire {t}s 10000
		srem {t}s a a no
		ttl {t}s
		srem {t}no a
		srem {t}s
		srem {t}s b c "" "\x00\xff" "line\r\nline"
		exists {t}s
		type {t}s
		dbsize
		sadd {t}s 1 2 3
		ttl {t}s
		type {t}s
		object encoding {t}s
		sadd {t}s a
		object encoding {t}s`},
	{Name: "set wrong type", OneRegion: true, Calls: `
		flushall
		set {t}v x
		hset {t}h f v
		sadd {t}s a b
		sadd {t}v a
		sadd {t}h a
		srem {t}v a
		smembers {t}v
		sismember {t}v a
		smismember {t}v a
		scard {t}v
		srandmember {t}v
		srandmember {t}v 1
		srandmember {t}v 0
		srandmember {t}v x
		spop {t}v
		spop {t}v 0
		spop {t}v 1
		spop {t}v -1
		sscan {t}v 0
		smove {t}v {t}s a
		smove {t}s {t}v a
		smove {t}s {t}v no
		smove {t}no {t}v a
		smove {t}v {t}v a
		sinter {t}s {t}v
		sinter {t}no {t}v
		sinter {t}v {t}no
		sinter {t}v
		sunion {t}s {t}h
		sdiff {t}no {t}v
		sdiff {t}s {t}v
		sintercard 2 {t}no {t}v
		sinterstore {t}d {t}v
		sinterstore {t}d {t}no {t}h
		sunionstore {t}v {t}v
		sdiffstore {t}v {t}s {t}v
		get {t}v
		sunionstore {t}v {t}s
		smembers {t}v
		sinterstore {t}h {t}no
		exists {t}h
		get {t}s
		hget {t}s a
		set {t}s x
		get {t}s`},
	{Name: "smove", OneRegion: true, Calls: `
		flushall
		sadd {t}a 1 2 3
		smove {t}a {t}b 1
		smove {t}a {t}b 1
		smove {t}a {t}b no
		smove {t}a {t}a 2
		smove {t}a {t}a no
		smembers {t}b
		sadd {t}b 2
		expire {t}b 10000
		smove {t}a {t}b 2
		ttl {t}b
		scard {t}b
		smove {t}a {t}b 3
		exists {t}a
		smove {t}no {t}b 3
		smove {t}no {t}no 3
		smembers {t}b
		smove {t}a {t}b
		smove`},
	{Name: "sinter sunion sdiff", OneRegion: true, Calls: `
		flushall
		sadd {t}a a b c d ""
		sadd {t}b c
		sadd {t}c a c e ""
		sadd {t}d "" "\x00" "\x00\x00"
		sinter {t}a {t}b {t}c
		sinter {t}a {t}c
		sinter {t}a
		sinter {t}a {t}a
		sinter {t}a {t}no
		sinter {t}no
		sunion {t}a {t}b {t}c
		sunion {t}a {t}d {t}no {t}a
		sunion {t}no
		sunion {t}no {t}no
		sdiff {t}a {t}b {t}c
		sdiff {t}a {t}no
		sdiff {t}no {t}a
		sdiff {t}a {t}a
		sdiff {t}d {t}c
		sdiff {t}a
		sinter
		sunion
		sdiff
		sintercard 2 {t}a {t}c
		sintercard 2 {t}a {t}c limit 1
		sintercard 2 {t}a {t}c LIMIT 0
		sintercard 2 {t}a {t}c limit 9
		sintercard 2 {t}a {t}c limit 1 limit 2
		sintercard 2 {t}a {t}c limit 1 limit
		sintercard 2 {t}a {t}c limit -1
		sintercard 2 {t}a {t}c limit x
		sintercard 2 {t}a {t}c limit
		sintercard 2 {t}a {t}c nosuch
		sintercard 3 {t}a {t}c
		sintercard 1 {t}a {t}c
		sintercard 0 {t}a
		sintercard -1 {t}a
		sintercard x {t}a
		sintercard 01 {t}a
		sintercard 9223372036854775808 {t}a
		sintercard 2 {t}no {t}a
		sintercard 1
		sintercard 1 {t}no limit x
		sintercard 1 {t}a limit 3
		sinterstore {t}x {t}a {t}c
		smembers {t}x
		expire {t}x 10000
		sunionstore {t}x {t}x {t}b {t}d
		smembers {t}x
		ttl {t}x
		sdiffstore {t}x {t}x {t}a
		smembers {t}x
		sdiffstore {t}x {t}x {t}x
		exists {t}x
		sdiffstore {t}x {t}no
		sunionstore {t}x {t}no {t}no
		sinterstore {t}x {t}x
		sinterstore {t}a {t}a {t}no
		exists {t}a
		dbsize
		sinterstore {t}x
		sunionstore
		set {t}x v
		sinterstore {t}x {t}b
		type {t}x
		set {t}x v
		sdiffstore {t}x {t}b {t}b
		exists {t}x`},
	{Name: "srandmember spop", Calls: `
		flushall
		srandmember {t}no
		srandmember {t}no 3
		srandmember {t}no -3
		srandmember {t}no x
		sadd {t}s v
		srandmember {t}s
		srandmember {t}s 5
		srandmember {t}s -5
		srandmember {t}s 0
		srandmember {t}s x
		srandmember {t}s 1 x
		srandmember {t}s x x
		srandmember {t}s -9223372036854775808
		srandmember {t}s 9223372036854775807
		srandmember
		spop {t}no
		spop {t}no 3
		spop {t}no 0
		spop {t}no x
		spop {t}s 0
		spop {t}s -1
		spop {t}s x
		spop {t}s ""
		spop {t}s 9223372036854775808
		spop {t}s 1 x
		spop {t}s x x
		spop {t}s
		exists {t}s
		sadd {t}s a b c
		smembers {t}s
		spop {t}s 3
		smembers {t}s
		sadd {t}s a b c
		expire {t}s 10000
		smembers {t}s
		spop {t}s 9223372036854775807
		dbsize
		sadd {t}s a
		ttl {t}s
		spop`},
	{Name: "sscan", Calls: `
		flushall
		sscan {t}no 0
		sscan {t}no 0 nosuch
		sscan {t}no x
		sadd {t}s a b ab
		sscan {t}s 0 count 100
		sscan {t}s 0 count 100 match a*
		sscan {t}s 0 match no* count 100
		sscan {t}s 0 match * count 100 match b
		sadd {t}n 1 2 12
		sscan {t}n 0
		sscan {t}n 5
		sscan {t}n 0 count 1
		sscan {t}n 0 match 1*
		sscan {t}n 0 match no*
		sscan {t}n 0 match * count 2 match 2
		sscan {t}n -1
		sscan {t}s 0 count 0
		sscan {t}s 0 count x
		sscan {t}s 0 count
		sscan {t}s 0 match
		sscan {t}s 0 type set
		sscan {t}s`},
}
