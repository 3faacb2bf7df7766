package redistest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Case is a sequence of calls whose replies are the same at any time of day. Each case begins on an empty server by its
// first call.
type Case struct {
	Name string
	// Calls is one call per line; arguments are separated by spaces, or quoted as in Go. {t} stands for the tag,
	// {p} for the version of the protocol. A line that begins with @ is sent by another connection, when the calls before
	// it have been answered.
	Calls string
	// Scans are calls of HSCAN, SSCAN or ZSCAN that are sent after Calls. Each is followed from its cursor to the end.
	// Cursors differ between servers, so Run compares the elements of all replies together.
	Scans []string
	// Server marks a case that needs a whole server, not only commands about data.
	Server bool
	// OneRegion marks a case whose keys have to be in one region.
	OneRegion bool
	// Plain marks a case for a reference server that is no cluster, Cluster one for a Redis Cluster. Other cases are
	// for both.
	Plain, Cluster bool
}

// parseCalls splits a case's text. It panics on text that it cannot read, since cases are written in this package.
func parseCalls(text, tag string) (calls [][][]byte) {
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" {
			continue
		}
		args, err := ParseCall(line)
		if err != nil {
			panic(err)
		}
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "{t}", tag)
		}
		calls = append(calls, toBytes(args))
	}
	return calls
}

// ParseCall splits a line into arguments: words, or strings quoted as in Go.
func ParseCall(line string) (args []string, err error) {
	for line = strings.TrimLeft(line, " \t"); line != ""; line = strings.TrimLeft(line, " \t") {
		if line[0] != '"' {
			word, rest, _ := strings.Cut(line, " ")
			args, line = append(args, word), rest
			continue
		}
		quoted, err := strconv.QuotedPrefix(line)
		if err != nil {
			return nil, fmt.Errorf("call %q: %w", line, err)
		}
		arg, err := strconv.Unquote(quoted)
		if err != nil {
			return nil, fmt.Errorf("call %q: %w", line, err)
		}
		args, line = append(args, arg), line[len(quoted):]
	}
	return args, nil
}

// Cases returns the written cases, by command. It makes the large ones afresh: each process whose program has this
// package would make them at its start otherwise, and the simulation's tests start hundreds.
func Cases() []Case {
	return slices.Concat(stringCases, hashCases, setCases, listCases, zsetCases, sortCases, largeCases(), longCases(),
		scriptCases, transactionCases)
}

// stringCases are the cases of strings, of keys, and of commands without a file of their own.
var stringCases = []Case{
	{Name: "get", Calls: `
		flushall
		get {t}k
		set {t}k v
		get {t}k
		GeT {t}k
		get
		get {t}k {t}k
		set {t}k ""
		get {t}k`},
	{Name: "set", Calls: `
		flushall
		set {t}k v
		set {t}k "line\r\nline\x00\xff"
		get {t}k
		set
		set {t}k
		set {t}k v nx
		set {t}k v xx
		set {t}no v xx
		set {t}new v nx
		set {t}k w get
		set {t}no2 w get
		set {t}no2 x nx get
		set {t}no3 x nx get
		get {t}no3
		set {t}no4 x xx get
		get {t}no4
		set {t}k v nx xx
		set {t}k v xx nx
		set {t}k v nx nx
		set {t}k v bad
		set {t}k v ""
		set {t}k v "nx\x00tail"
		set {t}k v ex
		set {t}k v ex 0
		set {t}k v ex -1
		set {t}k v px 0
		set {t}k v exat 0
		set {t}k v pxat -5
		set {t}k v ex abc
		set {t}k v ex 1.5
		set {t}k v ex 9223372036854775807
		set {t}k v ex 9223372036854775
		set {t}k v ex 9223372036854776
		set {t}k v px 9223372036854775807
		set {t}k v pxat 9223372036854775807
		pttl {t}k
		set {t}k v exat 9223372036854775
		set {t}k v exat 9223372036854776
		set {t}k v ex 10000 px 10000
		set {t}k v ex 10000 keepttl
		set {t}k v keepttl ex 10000
		set {t}k v ex 10000 ex 20000
		ttl {t}k
		set {t}k v keepttl
		ttl {t}k
		set {t}k v keepttl keepttl get
		set {t}k v
		ttl {t}k
		set {t}k v pxat 1
		get {t}k
		exists {t}k
		set {t}k v exat 1 get
		get {t}k
		set {t}k v ex bad nx
		set {t}k v ex bad syntax
		set {t}k v nx ex`},
	{Name: "setnx", Calls: `
		flushall
		setnx {t}k v
		setnx {t}k w
		get {t}k
		setnx {t}k
		set {t}k v pxat 1
		setnx {t}k new
		get {t}k
		ttl {t}k`},
	{Name: "mget mset", Calls: `
		flushall
		mset {t}a 1 {t}b 2 {t}a 3
		mget {t}a {t}b {t}c {t}a
		mset {t}a
		mset {t}a 1 {t}b
		mset
		mget
		expire {t}a 10000
		mset {t}a x
		ttl {t}a`},
	{Name: "incr decr", Calls: `
		flushall
		incr {t}n
		incr {t}n
		decr {t}n
		incrby {t}n 40
		decrby {t}n 2
		get {t}n
		incrby {t}n abc
		incrby {t}n ""
		incrby {t}n 1.0
		decrby {t}n -9223372036854775808
		decrby {t}n 9223372036854775808
		set {t}n 9223372036854775807
		incr {t}n
		get {t}n
		decrby {t}n -1
		set {t}n -9223372036854775808
		decr {t}n
		incrby {t}n -1
		decrby {t}n 1
		incrby {t}n 9223372036854775807
		set {t}n " 1"
		incr {t}n
		set {t}n "1 "
		incr {t}n
		set {t}n 01
		incr {t}n
		set {t}n -0
		incr {t}n
		set {t}n ""
		incr {t}n
		set {t}n 99999999999999999999
		incr {t}n
		incrby {t}new -5
		set {t}t 5 ex 10000
		incr {t}t
		ttl {t}t
		incr
		incrby {t}n
		decr {t}n 1`},
	{Name: "append strlen", Calls: `
		flushall
		append {t}k hello
		append {t}k " world"
		get {t}k
		strlen {t}k
		strlen {t}no
		append {t}k ""
		append {t}empty ""
		exists {t}empty
		strlen {t}empty
		set {t}n 10 ex 10000
		append {t}n 5
		incr {t}n
		ttl {t}n
		append {t}k
		strlen`},
	{Name: "setex psetex", Calls: `
		flushall
		setex {t}k 10000 v
		ttl {t}k
		setex {t}k 0 v
		setex {t}k -1 v
		setex {t}k x v
		setex {t}k 9223372036854775807 v
		setex {t}k 9223372036854775 v
		psetex {t}k 10000000 w
		get {t}k
		pttl {t}k
		psetex {t}k 0 v
		psetex {t}k 9223372036854775807 v
		psetex {t}k 1.5 v
		setex {t}k 10
		psetex {t}k 10 v x`},
	{Name: "msetnx", OneRegion: true, Calls: `
		flushall
		msetnx {t}a 1 {t}b 2
		msetnx {t}b 3 {t}c 4
		exists {t}c
		msetnx {t}c 1 {t}c 2
		get {t}c
		msetnx {t}x 1 {t}y
		msetnx {t}x
		msetnx
		set {t}old v pxat 1
		msetnx {t}old new
		mget {t}old {t}a`},
	{Name: "getset getdel getex", Calls: `
		flushall
		getset {t}k v
		expire {t}k 10000
		getset {t}k w
		ttl {t}k
		getset {t}k
		getdel {t}k
		getdel {t}k
		getdel {t}k x
		set {t}k v
		getex {t}k
		getex {t}k ex 10000
		ttl {t}k
		getex {t}k persist
		ttl {t}k
		getex {t}k px 10000000
		getex {t}k
		ttl {t}k
		getex {t}k exat 99999999999
		expiretime {t}k
		getex {t}k pxat 99999999999999
		pexpiretime {t}k
		getex {t}k ex 0
		getex {t}k ex -1
		getex {t}k ex x
		getex {t}k ex
		getex {t}k ex 1 px 1
		getex {t}k ex 1 persist
		getex {t}k persist ex 1
		getex {t}k persist persist
		getex {t}k keepttl
		getex {t}k nx
		getex {t}k get
		getex {t}no ex 0
		getex {t}no ex 0 bad
		getex {t}k exat 9223372036854775807
		getex {t}k pxat 9223372036854775807
		getex {t}k exat 1
		getex {t}k
		getex`},
	{Name: "getrange substr setrange", Calls: `
		flushall
		set {t}k "Hello World"
		getrange {t}k 0 -1
		getrange {t}k 0 4
		getrange {t}k -5 -1
		getrange {t}k -5 -7
		getrange {t}k 5 2
		getrange {t}k 20 30
		getrange {t}k 3 100
		getrange {t}k -100 2
		getrange {t}k -100 -50
		getrange {t}k 0 -9223372036854775808
		getrange {t}k -9223372036854775808 9223372036854775807
		getrange {t}k 9223372036854775808 0
		getrange {t}k a 0
		getrange {t}no 0 -1
		getrange {t}k 0
		substr {t}k 1 2
		substr {t}k 1
		setrange {t}k 6 Redis
		get {t}k
		setrange {t}k 20 x
		get {t}k
		setrange {t}k 0 ""
		setrange {t}no 5 ""
		exists {t}no
		setrange {t}no 2 "a\x00"
		get {t}no
		setrange {t}k -1 x
		setrange {t}k x x
		setrange {t}no2 -1 ""
		setrange {t}k 536870912 x
		setrange {t}k 536870912 ""
		setrange {t}k 9223372036854775807 x
		setrange {t}k 1
		expire {t}k 10000
		setrange {t}k 1 x
		ttl {t}k`},
	{Name: "incrbyfloat", Calls: `
		flushall
		incrbyfloat {t}f 0.1
		incrbyfloat {t}f 0.2
		get {t}f
		incrbyfloat {t}f -0.3
		set {t}f 10.50
		incrbyfloat {t}f 0.1
		incrbyfloat {t}f -5
		set {t}f 5.0e3
		incrbyfloat {t}f 2.0e2
		set {t}f 3
		incrbyfloat {t}f 1.000000000000000005
		set {t}f 0
		incrbyfloat {t}f -0
		incrbyfloat {t}f 1e-17
		incrbyfloat {t}f -1e-17
		incrbyfloat {t}f 1e-18
		incrbyfloat {t}f -2e-18
		incrbyfloat {t}f 5e-18
		incrbyfloat {t}f 1e17
		incrbyfloat {t}f 18446744073709551615
		incrbyfloat {t}f 1
		incrbyfloat {t}f 1
		set {t}f 1e4932
		incrbyfloat {t}f 1e4931
		incrbyfloat {t}f 1e4932
		incrbyfloat {t}f -1e4932
		set {t}f 0
		incrbyfloat {t}f 1.18973149535723176502e4932
		incrbyfloat {t}f 1e4913
		incrbyfloat {t}f 1e5000
		incrbyfloat {t}f inf
		incrbyfloat {t}f -Infinity
		incrbyfloat {t}f nan
		set {t}f inf
		incrbyfloat {t}f -inf
		incrbyfloat {t}f 1
		set {t}f 0
		incrbyfloat {t}f 0x1.8p3
		incrbyfloat {t}f 0X.8P1
		incrbyfloat {t}f 0x
		incrbyfloat {t}f 0x1p-16446
		incrbyfloat {t}f 0x1p-16445
		incrbyfloat {t}f 0x1.8p-16446
		incrbyfloat {t}f 1e-4950
		incrbyfloat {t}f 1e-5000
		incrbyfloat {t}f ""
		incrbyfloat {t}f " 1"
		incrbyfloat {t}f "1 "
		incrbyfloat {t}f 1e
		incrbyfloat {t}f .
		incrbyfloat {t}f "1\x00"
		set {t}f abc
		incrbyfloat {t}f 1
		incrbyfloat {t}f x
		set {t}t 1 ex 10000
		incrbyfloat {t}t 1.5
		ttl {t}t
		incrbyfloat {t}f`},
	{Name: "lcs", OneRegion: true, Calls: `
		flushall
		mset {t}a ohmytext {t}b mynewtext {t}empty ""
		lcs {t}a {t}b
		lcs {t}a {t}b len
		lcs {t}a {t}b idx
		lcs {t}a {t}b idx minmatchlen 4
		lcs {t}a {t}b idx minmatchlen 4 withmatchlen
		lcs {t}a {t}b idx minmatchlen -1
		lcs {t}a {t}b withmatchlen
		lcs {t}a {t}b len minmatchlen 3
		lcs {t}a {t}b idx len
		lcs {t}a {t}b minmatchlen x
		lcs {t}a {t}b minmatchlen
		lcs {t}a {t}b bad
		lcs {t}a {t}no
		lcs {t}no {t}no idx
		lcs {t}a {t}empty idx
		lcs {t}a {t}a idx withmatchlen
		mset {t}a "abcbdab" {t}b "bdcaba"
		lcs {t}a {t}b
		lcs {t}b {t}a
		lcs {t}a {t}b idx withmatchlen
		lcs {t}b {t}a idx withmatchlen
		lcs {t}a
		setrange {t}large 11600 x
		lcs {t}large {t}large len
		lcs {t}large {t}a
		lcs {t}large {t}large idx len`},
	{Name: "rename renamenx copy", OneRegion: true, Calls: `
		flushall
		rename {t}no {t}b
		rename {t}no {t}no
		renamenx {t}no {t}no
		set {t}a 1 ex 10000
		rename {t}a {t}a
		renamenx {t}a {t}a
		rename {t}a {t}b
		ttl {t}b
		exists {t}a
		set {t}a 2
		renamenx {t}a {t}b
		rename {t}a {t}b
		ttl {t}b
		renamenx {t}b {t}c
		get {t}c
		set {t}old v pxat 1
		renamenx {t}c {t}old
		rename {t}c {t}old
		copy {t}no {t}x
		copy {t}no {t}no
		copy {t}old {t}old
		set {t}a 1 ex 10000
		copy {t}a {t}b
		copy {t}a {t}b
		copy {t}old {t}b replace
		ttl {t}b
		copy {t}a {t}b db 0 replace
		ttl {t}b
		copy {t}a {t}b db 16
		copy {t}a {t}b db 99
		copy {t}a {t}b db -1
		copy {t}a {t}b db x
		copy {t}a {t}b db 2147483648
		copy {t}a {t}b db
		copy {t}a {t}b replace db 16
		copy {t}a {t}b bad
		copy {t}a
		rename {t}a
		renamenx {t}a`},
	{Name: "expireat expiretime touch", Calls: `
		flushall
		set {t}k v
		expiretime {t}k
		pexpiretime {t}no
		expireat {t}k 99999999999
		expiretime {t}k
		pexpiretime {t}k
		expireat {t}k 99999999999 gt
		expireat {t}k 99999999999 lt
		expireat {t}k 99999999998 lt
		expireat {t}k 99999999998 nx
		pexpireat {t}k 99999999999999 xx
		pexpireat {t}k 1 nx lt
		pexpireat {t}k 99999999999499
		expiretime {t}k
		pexpireat {t}k 99999999999500
		expiretime {t}k
		pexpireat {t}k 9223372036854775807
		expiretime {t}k
		pexpiretime {t}k
		expireat {t}k 9223372036854775
		expireat {t}k 9223372036854776
		expireat {t}k x
		expireat {t}k 1 bad
		expireat {t}k 1 gt
		expireat {t}k 0
		exists {t}k
		set {t}k v
		pexpireat {t}k -9223372036854775808
		exists {t}k
		expireat {t}no 1
		expiretime
		pexpiretime {t}k x
		mset {t}a 1 {t}b 2
		touch {t}a {t}b {t}no {t}a
		touch`},
	{Name: "object memory usage", Calls: `
		flushall
		mset {t}i 12345 {t}s hello {t}r aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa {t}e aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa {t}z 9999 {t}l 9223372036854775808
		object encoding {t}i
		object encoding {t}s
		object encoding {t}r
		object encoding {t}e
		object encoding {t}l
		object encoding {t}no
		object refcount {t}i
		object refcount {t}z
		object refcount {t}s
		object refcount {t}no
		object idletime {t}no
		object freq {t}no
		object freq {t}s
		object freq
		object
		object nosuch {t}s
		object encoding {t}s x
		memory usage {t}no
		memory usage {t}s samples
		memory usage {t}s samples x
		memory usage {t}s samples -1
		memory usage {t}s bad
		memory usage
		memory
		memory nosuch`},
	{Name: "scan randomkey", Server: true, Calls: `
		flushall
		scan 0
		randomkey
		set {t}a 1
		randomkey
		keys *
		mset {t}b 2 {t}ab 3 {t}old 4
		pexpireat {t}old 1
		scan 0 count 1000
		scan 0 count 1000 match {t}a*
		scan 0 count 1000 match nosuch
		scan 0 count 1000 type string
		scan 0 count 1000 type String match {t}b
		scan 0 count 1000 type hash
		scan 0 count 1000 type nosuch
		hset {t}h f v
		rpush {t}l a
		sadd {t}s a
		zadd {t}z 1 a
		scan 0 count 1000 type hash
		scan 0 count 1000 type list
		scan 0 count 1000 type set
		scan 0 count 1000 type ZSET
		scan 0 count 1000 type string
		scan "" count 1000
		scan x
		scan 0 count
		scan 0 count 0
		scan 0 count x
		scan 0 "count\x00" 1000
		scan 0 bad 1
		scan
		randomkey x`},
	{Name: "del unlink exists type", Calls: `
		flushall
		mset {t}a 1 {t}b 2 {t}c 3
		exists {t}a {t}a {t}b {t}x
		del {t}a {t}a {t}x
		unlink {t}b {t}b
		exists {t}a {t}b {t}c
		type {t}c
		type {t}a
		del
		unlink
		exists
		type
		type {t}a {t}b`},
	{Name: "expire persist ttl", Calls: `
		flushall
		set {t}k v
		ttl {t}k
		pttl {t}k
		ttl {t}no
		pttl {t}no
		persist {t}k
		persist {t}no
		expire {t}no 100
		expire {t}k 10000
		ttl {t}k
		expire {t}k 20000 nx
		expire {t}k 20000 xx
		expire {t}k 30000 gt
		expire {t}k 20000 gt
		expire {t}k 40000 lt
		expire {t}k 25000 lt
		ttl {t}k
		persist {t}k
		expire {t}k 100 gt
		expire {t}k 100000 lt
		persist {t}k
		expire {t}k 100000 xx
		expire {t}k 100000 nx
		expire {t}k 100000 nx xx
		expire {t}k 100000 nx gt
		expire {t}k 100000 nx lt
		expire {t}k 100000 gt lt
		expire {t}k 100000 nx gt lt
		expire {t}k 200000 xx gt
		expire {t}k 1 nx nx
		expire {t}k 100 bad
		expire {t}k 100 nx "bad\r\nline\n"
		expire {t}k abc bad
		expire {t}k abc
		expire {t}no abc
		expire {t}k 9223372036854775807
		expire {t}k -9223372036854775808
		expire {t}k 9223372036854775
		expire {t}k -9223372036854775
		exists {t}k
		set {t}k v
		pexpire {t}k 9223372036854775807
		pexpire {t}k -9223372036854775808
		exists {t}k
		set {t}k v
		expire {t}k 0
		exists {t}k
		set {t}k v
		expire {t}k -1 gt
		exists {t}k
		expire {t}k -1 lt
		exists {t}k
		expire {t}k
		pexpire {t}k
		expire {t}k 1 2
		persist
		ttl
		pttl {t}k 1`},
	{Name: "keys dbsize flush", Calls: `
		flushall
		dbsize
		mset {t}hello 1 {t}hallo 2 {t}hxllo 3 {t}hllo 4 {t}heeeello 5 "{t}a*b" 6 "{t}[x" 7 "{t}\xff" 8 "{t}\\" 9
		dbsize
		keys *
		keys {t}*
		keys {t}h?llo
		keys {t}h*llo
		keys {t}h[ae]llo
		keys {t}h[^e]llo
		keys {t}h[a-b]llo
		keys {t}h[b-a]llo
		keys {t}a\*b
		keys {t}a[*]b
		keys {t}[[]x
		keys {t}[
		keys {t}[^
		keys {t}[^x
		keys {t}[a-
		keys {t}[a-]
		keys {t}[a-]x
		keys "{t}[\x00-\xff]"
		keys "{t}[\x01-\x7f]"
		keys {t}\
		keys {t}\\
		keys ""
		keys {t}**llo
		keys {t}*l*l*o*
		keys {t}hello?
		keys {t}hello*?
		keys
		keys a b
		dbsize 1
		flushdb bad
		flushdb sync async
		flushdb sync
		dbsize
		keys *
		mset {t}a 1 {t}b 2
		flushall async
		dbsize
		flushall ""
		flushdb`},
	{Name: "unknown commands", Calls: `
		nosuch
		nosuch a b c
		"no\r\nsuch" "a\r\nb"
		"" x
		nosuch "a\x00b"`},
}
