package redistest

import (
	"fmt"
	"strconv"
	"strings"
)

// longPiece is where NeoKV begins to store strings in pieces, and how long those are.
const longPiece = 64 << 10

// longText is a text of so many bytes, none of whose parts is like another near it.
func longText(from, n int) string {
	b := make([]byte, 0, n+8)
	for i := from; len(b) < n; i++ {
		b = append(strconv.AppendInt(b, int64(i), 36), '.')
	}
	return string(b[:n])
}

// longCases returns those of strings around the ends of pieces.
func longCases() []Case {
	return []Case{
		{Name: "long strings", OneRegion: true, Calls: longLengths() + fmt.Sprintf(`
		set {t}k %[1]s ex 100000
		type {t}k
		object encoding {t}k
		incr {t}k
		decrby {t}k 3
		incrbyfloat {t}k 1.5
		lpush {t}k a
		hget {t}k f
		sadd {t}k a
		zscore {t}k m
		exists {t}k {t}k
		persist {t}k
		ttl {t}k
		pexpireat {t}k 99999999999999
		pexpiretime {t}k
		set {t}k %[2]s keepttl
		pexpiretime {t}k
		getex {t}k persist
		ttl {t}k
		setnx {t}k no
		msetnx {t}no 1 {t}k 2
		set {t}k no nx
		set {t}k %[1]s xx get
		getset {t}k %[2]s
		mget {t}k {t}no {t}k {t}s
		append {t}k %[1]s
		strlen {t}k
		getrange {t}k 131000 131200
		getrange {t}k -65600 -65530
		copy {t}k {t}l
		setrange {t}l 65530 0123456789
		getrange {t}l 65500 65600
		getrange {t}k 65500 65600
		copy {t}k {t}l
		copy {t}k {t}l replace
		get {t}l
		rename {t}l {t}m
		exists {t}l {t}m
		renamenx {t}k {t}m
		get {t}m
		set {t}m short
		get {t}m
		set {t}m %[1]s
		getdel {t}m
		get {t}m
		append {t}k ""
		setrange {t}k 999999 ""
		setrange {t}no 70000 ""
		setrange {t}h 70000 end
		get {t}h
		setrange {t}h 3 start
		getrange {t}h 0 10
		setrange {t}h 200000 end
		getrange {t}h 69990 70010
		getrange {t}h 131060 131080
		getrange {t}h 199990 -1
		strlen {t}h
		lcs {t}h {t}no
		lcs {t}k {t}h
		lcs {t}k {t}no len
		set {t}few abc
		lcs {t}k {t}few
		lcs {t}few {t}h len
		expire {t}k -1
		exists {t}k
		del {t}h
		dbsize`, longText(7, longPiece+1), longText(5000, 2*longPiece))},
		{Name: "sort by long strings", Plain: true, Calls: fmt.Sprintf(`flushall
		sadd {s}ids 1 2 3 4
		set {s}w:1 %[1]s
		set {s}w:2 %[2]s
		set {s}w:3 short
		sort {s}ids by {s}w:* alpha get # get {s}w:*
		sort {s}ids by {s}w:* alpha desc get {s}w:*
		sort {s}ids by {s}w:*
		sort {s}ids get {s}w:* store {s}list
		lrange {s}list 0 -1
		set {s}w:1 %[3]s
		set {s}w:2 7
		set {s}w:3 8
		sort {s}ids by {s}w:*`, longText(7, longPiece+1), longText(5000, 2*longPiece), strings.Repeat("0", longPiece)+"7.5")},
	}
}

// longLengths stores strings of all lengths around the ends of pieces, and changes each.
func longLengths() string {
	var b strings.Builder
	b.WriteString("flushall\n")
	for _, n := range []int{longPiece - 1, longPiece, longPiece + 1, 2*longPiece - 1, 2 * longPiece, 2*longPiece + 1} {
		text := longText(n, n)
		fmt.Fprintf(&b, `
			set {t}a %[1]s
			get {t}a
			strlen {t}a
			getrange {t}a %[2]d %[3]d
			getrange {t}a -3 -1
			getrange {t}a %[3]d -1
			append {t}a b
			append {t}a c
			getrange {t}a -5 -1
			setrange {t}a %[2]d XYZ
			get {t}a
			setrange {t}a %[3]d %[4]s
			get {t}a
			expire {t}a 100000
			get {t}a
			getset {t}a %[1]s
			setrange {t}a 0 Z
			get {t}a
			del {t}a
		`, text, n-2, n+3, longText(0, longPiece+2))
	}
	return b.String()
}

// longCall makes a call about a string that is mostly long.
func longCall(g *CallGenerator) [][]string {
	key := g.Tag + g.pick("long1", "long2", "{s}long")
	if g.Spread {
		key = "{s}long"
	}
	switch g.IntN(12) {
	case 0, 1:
		return [][]string{g.call("set", key, g.long())}
	case 2:
		return [][]string{g.call("append", key, g.pick(g.long(), g.Value(), g.Value()))}
	case 3, 4:
		return [][]string{g.call("setrange", key, strconv.Itoa(g.longLength()),
			g.pick(g.long(), g.Value(), g.Value(), g.Value()))}
	case 5, 6:
		indexes := [2]string{}
		for i := range indexes {
			indexes[i] = strconv.Itoa(g.longLength())
			if g.one(2) {
				indexes[i] = "-" + indexes[i]
			}
		}
		return [][]string{g.call(g.pick("getrange", "substr"), key, indexes[0], indexes[1])}
	case 7:
		return [][]string{g.call(g.pick("get", "strlen", "getdel", "persist", "type", "pexpiretime"), key)}
	case 8:
		return [][]string{g.call("expire", key, g.Time("EX"))}
	case 9:
		return [][]string{g.call(g.pick("copy", "rename", "renamenx"), key, g.pick(key, g.near()))}
	case 10:
		return [][]string{g.call("getset", key, g.pick(g.long(), g.Value()))}
	}
	return [][]string{g.call("mget", key, key)}
}

// long draws a long string.
func (g *CallGenerator) long() string { return longText(g.IntN(1000), g.longLength()) }

// longLength draws a length of up to some pieces, mostly near the end of one.
func (g *CallGenerator) longLength() int {
	piece := g.Piece
	if piece == 0 {
		piece = longPiece
	}
	if g.one(3) {
		return g.IntN(3 * piece)
	}
	return max(0, (1+g.IntN(3))*piece+g.IntN(5)-2)
}
