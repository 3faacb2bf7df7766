package redistest

import (
	"slices"
	"strconv"
	"strings"
)

// transactionCases are the cases of MULTI, EXEC, DISCARD, WATCH and UNWATCH.
var transactionCases = []Case{
	{Name: "multi", Server: true, OneRegion: true, Calls: `
		flushall
		exec
		discard
		multi
		set {t}k 1
		incr {t}k
		get {t}k
		del {t}k
		get {t}k
		exec
		exec
		multi
		exec
		multi
		set {t}k 2
		discard
		get {t}k
		discard
		multi
		discard
		multi x
		exec x
		discard x
		unwatch x
		unwatch
		watch
		MULTI
		SeT {t}k 3
		EXEC
		get {t}k`},
	{Name: "multi every type", Server: true, OneRegion: true, Calls: `
		flushall
		set {t}s a
		multi
		append {t}s b
		getrange {t}s 0 -1
		setrange {t}s 5 x
		hset {t}h f 1 g 2
		hincrby {t}h f 5
		hgetall {t}h
		hget {t}h nosuch
		hmget {t}h f nosuch
		rpush {t}l a b c
		linsert {t}l before b x
		lrange {t}l 0 -1
		lpop {t}l 2
		llen {t}l
		sadd {t}set a b c
		srem {t}set b
		smembers {t}set
		sismember {t}set b
		smove {t}set {t}set2 a
		sunionstore {t}set3 {t}set {t}set2
		scard {t}set3
		zadd {t}z 1 a 2 b
		zincrby {t}z 0.5 a
		zrange {t}z 0 -1 withscores
		zscore {t}z a
		zscore {t}z nosuch
		zunionstore {t}z2 2 {t}z {t}set
		zpopmin {t}z2
		sort {t}l alpha
		sort {t}l alpha store {t}l2
		lrange {t}l2 0 -1
		rename {t}l2 {t}l3
		copy {t}l3 {t}l4
		type {t}l4
		exists {t}l2 {t}l3 {t}l4
		expire {t}l4 10000
		persist {t}l4
		ttl {t}l4
		object encoding {t}l4
		getex {t}s persist
		getdel {t}s
		exists {t}s
		exec
		smembers {t}set3
		lrange {t}l 0 -1
		zrange {t}z2 0 -1 withscores`},
	{Name: "the server's own commands in exec", Server: true, OneRegion: true, Calls: `
		flushall
		multi
		set {t}a 1
		scan 0 count 1000 match nosuch
		get {t}a
		ping
		set {t}b 2
		echo x
		mget {t}a {t}b
		keys nosuch
		config get nosuch
		get {t}a
		exec
		multi
		get {t}a
		keys *
		get {t}b
		dbsize
		mget {t}a {t}b
		exec`},
	{Name: "errors in exec", Server: true, OneRegion: true, Calls: `
		flushall
		set {t}k v
		multi
		incr {t}k
		lpush {t}k a
		set {t}a 1
		hset {t}a f v
		incr {t}a
		setrange {t}a -1 x
		expire {t}a x
		set {t}a 2 ex 0
		rename {t}nosuch {t}b
		object encoding
		incr {t}a
		exec
		multi
		incr {t}k
		lpush {t}k a
		set {t}a 1
		hset {t}a f v
		incr {t}a
		setrange {t}a -1 x
		expire {t}a x
		set {t}a 2 ex 0
		rename {t}nosuch {t}b
		object nosuch
		exec
		multi
		incr {t}k
		lpush {t}k a
		set {t}a 1
		hset {t}a f v
		incr {t}a
		setrange {t}a -1 x
		expire {t}a x
		set {t}a 2 ex 0
		rename {t}nosuch {t}b
		getrange {t}a x y
		incr {t}a
		exec
		get {t}a
		get {t}k`},
	{Name: "what breaks multi", Server: true, OneRegion: true, Calls: `
		flushall
		multi
		nosuch {t}a
		set {t}a 1
		exec
		get {t}a
		multi
		get
		exec
		multi
		set {t}a
		discard
		multi
		client nosuch
		exec
		multi
		client
		exec
		multi
		get {t}a
		nosuch
		multi
		exec
		exec
		multi
		set {t}a 1
		exec x
		exec
		get {t}a`},
	{Name: "what does not break multi", Server: true, OneRegion: true, Calls: `
		flushall
		multi
		multi
		watch {t}a
		multi
		set {t}a 1
		exec
		get {t}a
		multi
		unwatch
		ping
		echo x
		select 0
		client getname
		client no-evict off
		config get nosuch
		auth x
		get {t}a
		command count x
		exec
		multi
		set {t}a 2
		reset
		hello {p}
		exec
		get {t}a
		multi
		multi x
		exec
		multi
		discard x
		exec
		discard
		multi
		unwatch x
		exec
		multi
		watch
		exec
		discard
		client getname`},
	{Name: "hello in multi", Server: true, OneRegion: true, Calls: `
		flushall
		hset {t}h f v
		zadd {t}z 1.5 a
		sadd {t}s a
		multi
		hgetall {t}h
		get {t}nosuch
		hello 3
		hgetall {t}h
		zrange {t}z 0 -1 withscores
		smembers {t}s
		get {t}nosuch
		set {t}a 1
		eval "return redis.call('hgetall', KEYS[1])" 1 {t}h
		eval "redis.setresp(3) return redis.call('hgetall', KEYS[1])" 1 {t}h
		eval "return {double = 1.5}" 0
		dbsize
		keys *
		config get maxmemory
		hello 2
		hgetall {t}h
		zrange {t}z 0 -1 withscores
		config get maxmemory
		eval "return {double = 1.5}" 0
		hello
		hello 3
		set {t}a 2
		zscore {t}z a
		exec
		zscore {t}z a
		hello {p}
		multi
		hgetall {t}h
		hello 2
		hgetall {t}h
		hello 3
		zscore {t}z a
		hello 4
		zscore {t}z a
		hello 2 nosuch
		zscore {t}z a
		hello x
		hello 2 setname "a b"
		hello 2 auth nobody x
		hello 2 auth default x setname me nosuch
		client getname
		zscore {t}z a
		hello 2 auth default x setname you
		client getname
		zscore {t}z a
		exec
		zscore {t}z a
		client getname
		hello {p} setname ""
		watch {t}a
		@ set {t}a 3
		multi
		hello 2
		hello 3 setname me
		get {t}a
		exec
		client getname
		zscore {t}z a
		multi
		hello 3
		hello 2
		exec
		zscore {t}z a
		hello {p}
		multi
		hello 3
		set {t}a 4
		exec
		zscore {t}z a
		multi
		hello 2
		set {t}a 5
		exec
		multi
		set {t}a 6
		incr {t}a
		exec
		multi
		set {t}a 6
		incr {t}a
		exec
		hello {p}`},
	{Name: "keys in exec", Server: true, OneRegion: true, Calls: `
		flushall
		set {t}old 1
		multi
		del {t}old
		set {t}a 1
		set {t}b 2
		keys *
		exec
		multi
		dbsize
		exec
		multi
		scan 0 count 1000
		exec
		multi
		del {t}b
		randomkey
		keys *
		exec
		multi
		get {t}a
		flushall
		exec
		keys *
		multi
		flushdb
		dbsize
		exec`},
	{Name: "watch", Server: true, OneRegion: true, Calls: `
		flushall
		watch {t}a
		multi
		set {t}a 1
		exec
		watch {t}a
		set {t}a 2
		multi
		set {t}a 3
		exec
		get {t}a
		watch {t}a {t}b
		@ set {t}b 1
		multi
		get {t}a
		exec
		multi
		get {t}a
		exec
		watch {t}a
		@ set {t}c 1
		multi
		get {t}a
		exec
		watch {t}a
		watch {t}b {t}b
		@ incr {t}b
		watch {t}c
		multi
		get {t}a
		exec
		watch {t}a
		multi
		get {t}a
		@ set {t}a 9
		exec
		watch {t}a
		@ set {t}a 9
		unwatch
		multi
		get {t}a
		exec
		watch {t}a
		@ set {t}a 9
		multi
		discard
		multi
		get {t}a
		exec
		watch {t}a
		@ set {t}a 9
		multi
		exec
		multi
		exec
		watch {t}a
		multi
		exec
		watch {t}a
		multi
		ping
		exec
		watch {t}a
		@ set {t}a 9
		multi
		ping
		exec
		watch {t}a
		@ set {t}a 9
		multi
		nosuch
		exec
		multi
		get {t}a
		exec
		watch {t}a
		@ set {t}a 9
		exec x
		multi
		get {t}a
		exec
		watch {t}a
		@ set {t}a 9
		multi
		exec x
		multi
		get {t}a
		exec
		watch {t}a
		@ set {t}a 9
		exec
		multi
		get {t}a
		exec
		watch {t}a
		@ set {t}a 9
		discard
		multi
		get {t}a
		exec
		watch {t}a
		@ set {t}a 9
		multi
		unwatch
		get {t}a
		exec
		watch {t}a
		@ set {t}a 9
		reset
		hello {p}
		multi
		get {t}a
		exec
		watch {t}a {t}a {t}a {t}b {t}a
		unwatch
		@ multi
		@ set {t}a 10
		@ exec
		get {t}a`},
	{Name: "what watch sees", Server: true, OneRegion: true, Calls: `
		flushall
		set {t}k 1
		watch {t}k
		@ expire {t}k 10000
		multi
		exec
		watch {t}k
		@ persist {t}k
		multi
		exec
		watch {t}k
		@ persist {t}k
		multi
		exec
		watch {t}k
		@ set {t}k 1
		multi
		exec
		watch {t}k
		@ get {t}k
		@ touch {t}k
		@ lpush {t}k a
		@ incr {t}nosuch
		multi
		exec
		watch {t}nosuch2
		@ del {t}nosuch2
		@ lpushx {t}nosuch2 a
		multi
		exec
		watch {t}nosuch2
		@ set {t}nosuch2 1
		@ del {t}nosuch2
		multi
		exec
		zadd {t}z 1 a
		watch {t}z
		@ zadd {t}z 1 a
		multi
		exec
		watch {t}z
		@ zadd {t}z 2 a
		multi
		exec
		hset {t}h f v
		watch {t}h
		@ hset {t}h f v
		multi
		exec
		watch {t}h
		@ hdel {t}h nosuch
		@ hsetnx {t}h f w
		multi
		exec
		sadd {t}s a
		watch {t}s
		@ sadd {t}s a
		@ srem {t}s b
		multi
		exec
		watch {t}s {t}d
		@ sinterstore {t}d {t}s {t}nosuch
		multi
		exec
		watch {t}s {t}d
		@ smove {t}s {t}d a
		multi
		exec
		watch {t}k
		@ flushall
		multi
		exec
		watch {t}k
		@ flushall
		multi
		exec
		set {t}k 1
		watch {t}k
		@ rename {t}k {t}m
		multi
		exec
		watch {t}n
		@ rename {t}m {t}n
		multi
		exec
		watch {t}n
		@ copy {t}n {t}o
		multi
		exec
		watch {t}o
		@ copy {t}n {t}o replace
		multi
		exec
		watch {t}o
		@ pexpireat {t}o 1
		multi
		exec
		rpush {t}l a b
		watch {t}l {t}l2
		@ lmove {t}l {t}l2 left right
		multi
		exec
		watch {t}l
		@ ltrim {t}l 0 -1
		multi
		exec
		watch {t}l
		@ lrem {t}l 0 nosuch
		multi
		exec
		watch {t}l {t}l3
		@ sort {t}l alpha store {t}l3
		multi
		exec
		watch {t}q
		@ setrange {t}q 0 ""
		@ append {t}q ""
		multi
		exec
		set {t}q v
		watch {t}q
		@ append {t}q ""
		multi
		exec
		watch {t}q
		@ getset {t}q v
		multi
		exec
		watch {t}q
		@ getex {t}q
		multi
		exec
		watch {t}q
		@ getex {t}q ex 10000
		multi
		exec
		watch {t}q
		@ multi
		@ set {t}q w
		@ discard
		multi
		exec
		watch {t}q
		@ multi
		@ set {t}q w
		@ exec
		multi
		exec`},
	{Name: "silence in multi", Server: true, OneRegion: true, Calls: `
		multi
		client reply off
		set {t}k 1
		exec
		ping`},
	{Name: "one silent reply in multi", Server: true, OneRegion: true, Calls: `
		multi
		client reply skip
		set {t}k 1
		get {t}k
		exec
		ping`},
	{Name: "silent replies behind a write in multi", Server: true, OneRegion: true, Calls: `
		multi
		set {t}k 1
		client reply skip
		ping
		get {t}k
		exec
		ping`},
	{Name: "silence before multi", Server: true, OneRegion: true, Calls: `
		set {t}k 1
		client reply skip
		multi
		incr {t}k
		exec
		client reply off
		multi
		incr {t}k
		exec
		client reply on
		get {t}k`},
	{Name: "silence is over in multi", Server: true, OneRegion: true, Calls: `
		set {t}k 1
		client reply off
		multi
		incr {t}k
		client reply on
		incr {t}k
		exec
		get {t}k`},
	{Name: "silence ends and begins in exec", Server: true, OneRegion: true, Calls: `
		set {t}k 1
		client reply off
		multi
		incr {t}k
		client reply on
		incr {t}k
		client reply off
		incr {t}k
		exec
		get {t}k`},
	{Name: "silent refusal", Server: true, OneRegion: true, Calls: `
		client reply off
		multi
		nosuch
		exec
		watch {t}k
		set {t}k 1
		multi
		exec
		exec
		client reply on
		get {t}k`},
	{Name: "silent exec", Server: true, OneRegion: true, Calls: `
		multi
		set {t}k 1
		ping
		client reply skip
		exec
		ping`},
	{Name: "slots of a transaction", Server: true, Cluster: true, Calls: `
		flushall
		multi
		set {t}a 1
		mget {t}a {other}b
		exec
		multi
		mset {t}a 1 {other}b 1
		discard
		watch {t}a {other}b
		multi
		get {t}a
		exec`},
}

// transactionOdds: one in so many random calls is a transaction, of some five calls.
const transactionOdds = 20

// transactionCall makes a transaction. Mostly all its keys are in one slot.
func transactionCall(g *CallGenerator) [][]string {
	g = g.inOneSlot()
	var calls [][]string
	watches := g.one(2)
	if watches {
		calls = append(calls, append([]string{g.pick("watch", "WATCH")}, g.some(3, g.Key)...))
		if g.one(4) {
			calls = append(calls, append([]string{"watch"}, g.some(3, g.Key)...))
		}
		if g.one(8) {
			calls = append(calls, []string{"unwatch"})
		}
		calls = append(calls, g.interfere()...)
	}
	calls = append(calls, []string{g.pick("multi", "MULTI")})
	for range g.IntN(8) {
		switch {
		case g.one(30):
			calls = append(calls, [][]string{{"multi"}, {"watch", g.Key()}, {"unwatch"}, {"nosuch"}, {"discard"},
				{"exec"}, {"exec", "x"}, {"watch"}, {"multi", "x"}, {"discard", "x"}}[g.IntN(10)])
		case watches && g.one(12):
			calls = append(calls, g.interfere()...)
		case g.one(8):
			calls = append(calls, scriptCall(g)...)
		default:
			calls = append(calls, g.queued()...)
		}
	}
	if g.one(8) {
		return append(calls, []string{"discard"})
	}
	return append(calls, []string{g.pick("exec", "EXEC")})
}

// inOneSlot returns a generator whose keys are in one slot, mostly.
func (g *CallGenerator) inOneSlot() *CallGenerator {
	inner := *g
	if g.Spread {
		inner.Tag, inner.Spread, inner.oneSlot = "{s}", false, true
	}
	return &inner
}

// interfere makes up to one call of the other connection, or of this one, sometimes with others that belong to it.
func (g *CallGenerator) interfere() (calls [][]string) {
	if g.one(2) {
		return nil
	}
	other := !g.one(4)
	for _, call := range g.queued() {
		if other {
			call = append([]string{otherConnection}, call...)
		}
		calls = append(calls, call)
	}
	return calls
}

// countsKeys are commands whose first argument, or whose second, is a number of keys.
var countsKeys = []string{"sintercard", "zintercard", "zunion", "zinter", "zdiff", "zunionstore", "zinterstore",
	"zdiffstore", "lmpop", "zmpop"}

// takesOptionForKey reports whether a call counts more keys than it has, so that an option is one, in another slot.
func (g *CallGenerator) takesOptionForKey(call []string) bool {
	if !slices.Contains(countsKeys, strings.ToLower(call[0])) {
		return false
	}
	for i := 1; i < min(3, len(call)); i++ {
		if n, err := strconv.Atoi(call[i]); err == nil && n <= len(call)-i-1 {
			return slices.ContainsFunc(call[i+1:i+1+max(n, 0)], func(key string) bool {
				return !strings.HasPrefix(key, g.Tag)
			})
		}
	}
	return false
}

// behindUnit are the commands of which NeoKV runs the parts of other regions behind the unit of a transaction. Random
// transactions do not have them.
var behindUnit = []string{"keys", "dbsize", "scan", "randomkey", "flushall", "flushdb"}

// queued makes a call that may stand anywhere in a transaction, sometimes with others that belong to it.
func (g *CallGenerator) queued() [][]string {
	for {
		calls := g.Calls(true)
		ok := true
		for _, call := range calls {
			for _, name := range behindUnit {
				ok = ok && !strings.EqualFold(call[0], name)
			}
			// Redis finds a subcommand behind whose name a zero byte stands where its hash happens to collide.
			ok = ok && (len(call) < 2 || strings.IndexByte(call[1], 0) <= 0)
			ok = ok && !(g.oneSlot && g.takesOptionForKey(call))
		}
		if ok {
			return calls
		}
	}
}
