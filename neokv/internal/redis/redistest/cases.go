package redistest

import (
	"fmt"
	"strconv"
	"strings"
)

// Case is a sequence of calls whose replies are the same at any time of day. Each case begins on an empty server by its first call.
type Case struct {
	Name string
	// Calls is one call per line; arguments are separated by spaces, or quoted as in Go. {t} stands for the tag.
	Calls string
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

// Cases are the written cases, by command.
var Cases = []Case{
	{"get", `
		flushall
		get {t}k
		set {t}k v
		get {t}k
		GeT {t}k
		get
		get {t}k {t}k
		set {t}k ""
		get {t}k`},
	{"set", `
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
	{"setnx", `
		flushall
		setnx {t}k v
		setnx {t}k w
		get {t}k
		setnx {t}k
		set {t}k v pxat 1
		setnx {t}k new
		get {t}k
		ttl {t}k`},
	{"mget mset", `
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
	{"incr decr", `
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
	{"append strlen", `
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
	{"del unlink exists type", `
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
	{"expire persist ttl", `
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
	{"keys dbsize flush", `
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
	{"unknown commands", `
		nosuch
		nosuch a b c
		"no\r\nsuch" "a\r\nb"
		"" x
		nosuch "a\x00b"`},
}
