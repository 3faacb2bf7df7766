package redistest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// largeSize is how many elements the collections of largeCases have: more than NeoKV returns by one HSCAN, SSCAN or
// ZSCAN, samples at once, keeps without counts of their ranks, or takes from a list one by one. Redis keeps none of
// them as a listpack or an intset.
const largeSize = 3000

// perCall is how many elements a call adds to a large collection.
const perCall = 1000

// shuffled is the i-th of largeSize numbers in an order that is nearly none; each of 0 to largeSize-1 is one of them.
func shuffled(i int) int { return i * 1543 % largeSize }

// many is calls that begin alike and end with the elements from one number to another.
func many(call string, from, to int, element func(i int) string) string {
	var b strings.Builder
	for i := from; i < to; i++ {
		if (i-from)%perCall == 0 {
			b.WriteString("\n" + call)
		}
		b.WriteString(" " + element(i))
	}
	return b.String() + "\n"
}

// largeField is a field and its value: a number, or now and then a long text.
func largeField(i int) string {
	i = shuffled(i)
	if i%97 == 0 {
		return fmt.Sprintf("f%d %s", i, strings.Repeat(strconv.Itoa(i), 50))
	}
	return fmt.Sprintf("f%d %d", i, i*i)
}

func largeFieldName(i int) string { return fmt.Sprint("f", i) }

func largeMember(i int) string { return fmt.Sprint("m", shuffled(i)) }

// largeInteger is an integer on either side of 0.
func largeInteger(i int) string { return strconv.Itoa((shuffled(i) - largeSize/2) * 1001) }

// largeElement is one of a list: one of 50 is an x, one of 700 a y, the others are different.
func largeElement(i int) string {
	switch {
	case i%700 == 350:
		return "y"
	case i%50 == 7:
		return "x"
	}
	return fmt.Sprint("e", i)
}

// largeScored is a score and a member. Three members each have the same score.
func largeScored(i int) string {
	i = shuffled(i)
	return fmt.Sprintf("%g m%d", float64(i/3)/2-100, i)
}

// largeNamed is a member of score 0.
func largeNamed(i int) string { return fmt.Sprintf("0 n%04d", shuffled(i)) }

// largeRanks ask a large sorted set about places all over it.
const largeRanks = `
	zcard {t}z
	zrank {t}z m0
	zrank {t}z m1499
	zrank {t}z m1502
	zrank {t}z m2999
	zrevrank {t}z m2
	zrevrank {t}z m1500
	zrevrank {t}z m2998
	zrank {t}z no
	zscore {t}z m1700
	zcount {t}z -inf +inf
	zcount {t}z -50 250.5
	zcount {t}z (-50 (250.5
	zcount {t}z 400 399
	zcount {t}z (300 +inf
	zrange {t}z 0 4 withscores
	zrange {t}z 1020 1030
	zrange {t}z 1498 1502 rev withscores
	zrange {t}z -3 -1
	zrange {t}z 2990 9999
	zrevrange {t}z 2040 2055
	zrange {t}z 100 +inf byscore limit 700 9 withscores
	zrange {t}z 390 (120 byscore rev limit 333 7
	zrangebyscore {t}z (-20 -18 withscores
	zrangebyscore {t}z -inf +inf limit 2000 5
	zrevrangebyscore {t}z +inf -inf limit 1990 5 withscores
	zrevrangebyscore {t}z 300 299`

// largeCases returns those of collections of largeSize elements.
func largeCases() []Case {
	return []Case{
		{Name: "large hash", OneRegion: true, Calls: "flushall" + many("hset {t}h", 0, largeSize, largeField) + `
		hlen {t}h
		object encoding {t}h
		hmget {t}h f0 f1 f97 f1500 f2999 f3000
		hstrlen {t}h f970
		hstrlen {t}h f2998
		hstrlen {t}h no
		hexists {t}h f1234
		hset {t}h f5 new f6 new f3000 new
		hsetnx {t}h f7 no
		hsetnx {t}h f3001 new
		hincrby {t}h f8 100
		hincrby {t}h f97 1
		hincrbyfloat {t}h f9 0.5
		hincrby {t}h f3002 -1
		hlen {t}h
		hgetall {t}h
		hkeys {t}h
		hvals {t}h
		hdel {t}h f1 f1499 f1500 f2999 no f1
		hmget {t}h f0 f1 f1498 f1500
		hrandfield {t}h 5
		hgetall {t}h
		hrandfield {t}h 1025 withvalues
		hgetall {t}h
		hrandfield {t}h -2000
		hgetall {t}h
		hrandfield {t}h 2990
		hgetall {t}h
		hrandfield {t}h 4000 withvalues
		hgetall {t}h
		copy {t}h {t}g
		hset {t}g f0 other
		hget {t}h f0
		rename {t}h {t}k
		exists {t}h
		hlen {t}k
		hgetall {t}k` + many("hdel {t}k", 0, 2200, largeFieldName) + `
		hlen {t}k
		hgetall {t}k
		copy {t}g {t}k
		copy {t}g {t}k replace
		hgetall {t}k
		del {t}k
		hgetall {t}k` + many("hset {t}k", 0, 1100, largeField) + `
		hlen {t}k
		hgetall {t}k
		hget {t}k f2998
		del {t}k
		sadd {t}k m
		smembers {t}k
		set {t}g v
		hlen {t}g
		dbsize`},
		{Name: "large hash scan", Calls: "flushall" + many("hset {t}h", 0, largeSize, largeField) + "hdel {t}h f3 f2998",
			Scans: scansOf("hscan {t}h", "f1*", "*7*")},

		{Name: "large set", OneRegion: true, Calls: "flushall" + many("sadd {t}s", 0, largeSize, largeMember) +
			many("sadd {t}i", 0, largeSize, largeInteger) +
			many("sadd {t}t", 1000, largeSize, largeMember) + many("sadd {t}t", 2000, largeSize, largeInteger) + `
		scard {t}s
		scard {t}i
		scard {t}t
		object encoding {t}s
		object encoding {t}i
		sadd {t}s m5 new new m6
		smismember {t}s m0 m1500 m2999 m3000 new
		smismember {t}i 0 1001 -1001 1 -1501500 1500499 1501500
		sismember {t}i 01001
		srem {t}s m0 m1 m1500 no m2999
		srem {t}i -1501500 0 1 1001
		smembers {t}s
		smembers {t}i
		sinter {t}s {t}t
		sinter {t}t {t}i {t}t
		sinter {t}s {t}i
		sintercard 2 {t}s {t}t
		sintercard 2 {t}t {t}s limit 1
		sintercard 2 {t}s {t}t limit 1025
		sintercard 2 {t}i {t}t limit 5000
		sdiff {t}s {t}t
		sdiff {t}t {t}s {t}i
		sdiff {t}t {t}s
		sunion {t}s {t}i {t}t
		sunionstore {t}u {t}s {t}i {t}t
		smembers {t}u
		sinterstore {t}d {t}s {t}t
		smembers {t}d
		sdiffstore {t}d {t}u {t}t
		smembers {t}d
		sdiffstore {t}u {t}u {t}s
		scard {t}u
		sort {t}i limit 1400 20
		sort {t}i desc limit 2985 50
		smove {t}s {t}i m77
		smove {t}i {t}s 2002
		smismember {t}i m77 2002
		smembers {t}s
		srandmember {t}s 7
		smembers {t}s
		srandmember {t}i 1024
		smembers {t}i
		srandmember {t}s -3000
		smembers {t}s
		srandmember {t}s 2900
		smembers {t}s
		srandmember {t}i 5000
		smembers {t}i
		sort {t}s alpha limit 2000 11
		sort {t}s alpha desc limit 1 1500 store {t}l
		lrange {t}l 0 -1
		copy {t}s {t}c
		sadd {t}c more
		srem {t}c m10 m11
		scard {t}s
		rename {t}c {t}i
		smembers {t}i
		exists {t}c
		spop {t}i 0
		smembers {t}i
		spop {t}i 2000
		scard {t}i
		del {t}i
		smembers {t}t
		spop {t}t
		scard {t}t
		del {t}t
		smembers {t}s
		spop {t}s 4000
		exists {t}s
		zadd {t}s 1 m
		zrange {t}s 0 -1 withscores` + many("sadd {t}t", 0, 1100, largeInteger) + `
		scard {t}t
		smembers {t}t
		dbsize`},
		{Name: "large set scan", Calls: "flushall" + many("sadd {t}s", 0, largeSize, largeMember) +
			many("sadd {t}i", 0, largeSize, largeInteger) + "srem {t}s m3 m2998",
			Scans: slices.Concat(scansOf("sscan {t}s", "m[0-4]*", "*7*"), scansOf("sscan {t}i", "-*", "*7*"))},

		{Name: "large list", OneRegion: true, Calls: "flushall" +
			many("rpush {t}l", largeSize/2, largeSize, largeElement) +
			many("lpush {t}l", largeSize/2, largeSize, func(i int) string { return largeElement(largeSize - 1 - i) }) + `
		llen {t}l
		object encoding {t}l
		lrange {t}l 0 -1
		lindex {t}l 0
		lindex {t}l 1023
		lindex {t}l 1500
		lindex {t}l 2999
		lindex {t}l 3000
		lindex {t}l -1
		lindex {t}l -1500
		lindex {t}l -3000
		lindex {t}l -3001
		lrange {t}l 1490 1510
		lrange {t}l -5 5000
		lrange {t}l 1024 1023
		lrange {t}l -2000 1200
		lpos {t}l e1499
		lpos {t}l e2999 maxlen 100
		lpos {t}l e2999 rank -1 maxlen 100
		lpos {t}l x rank 30
		lpos {t}l x rank -30
		lpos {t}l x rank 61
		lpos {t}l x count 0
		lpos {t}l x rank -3 count 4
		lpos {t}l x rank 2 count 0 maxlen 1800
		lpos {t}l y rank -2 count 2 maxlen 2000
		lset {t}l 1500 set
		lset {t}l -1000 set
		lset {t}l 3000 no
		lpos {t}l set count 0
		linsert {t}l before e1501 new
		linsert {t}l after e10 new
		linsert {t}l before e2990 new
		linsert {t}l after e2999 new
		linsert {t}l before e0 new
		linsert {t}l before no new
		llen {t}l
		lrange {t}l 0 -1
		lrem {t}l 3 x
		lrem {t}l -4 x
		lrem {t}l 1 e1600
		lrem {t}l -1 e700
		lrem {t}l 2 no
		lrange {t}l 0 -1
		lpos {t}l x count 0
		lrem {t}l 0 x
		lrem {t}l 0 y
		lrem {t}l -2 new
		llen {t}l
		lrange {t}l 0 -1
		lmove {t}l {t}l left right
		lmove {t}l {t}l right left
		lmove {t}l {t}m right right
		lmove {t}l {t}m left left
		rpoplpush {t}l {t}m
		lrange {t}m 0 -1
		sort {t}l alpha limit 1500 20
		sort {t}l by nosort limit 1490 20
		sort {t}l by nosort desc limit 1490 20
		sort {t}l limit 0 5
		copy {t}l {t}c
		ltrim {t}c 1200 -500
		llen {t}c
		lrange {t}c 0 -1
		ltrim {t}c 0 999
		lindex {t}c -1
		ltrim {t}c 998 -1
		lrange {t}c 0 -1
		copy {t}l {t}c replace
		ltrim {t}c 999 -1
		ltrim {t}c 0 -1000
		lrange {t}c 0 -1
		lpop {t}l 999
		rpop {t}l 1000
		lpush {t}l a b
		rpush {t}l c d
		lindex {t}l 2
		lindex {t}l -3
		lrange {t}l 0 -1
		rename {t}l {t}c
		lrange {t}c 0 -1
		exists {t}l
		ltrim {t}c 5 4
		exists {t}c` + many("rpush {t}c", 0, 1500, largeElement) + `
		lmpop 2 {t}no {t}c right count 1100
		lmpop 2 {t}c {t}m left count 300
		lrange {t}c 0 -1
		del {t}c
		hset {t}c f v
		hgetall {t}c` + many("rpush {t}l", 0, 1100, largeElement) + `
		lrange {t}l 0 -1
		lpop {t}l 5000
		dbsize`},

		{Name: "large zset", OneRegion: true, Calls: "flushall" + many("zadd {t}z", 0, largeSize, largeScored) + `
		object encoding {t}z
		zrange {t}z 0 -1 withscores` + largeRanks + `
		zadd {t}z ch 1000 m0 -1000 m2999 0.25 m1500 1 m606
		zadd {t}z gt ch 5000 m1 -5000 m2 7 new
		zadd {t}z nx 1 m3 1 newer
		zincrby {t}z 300.25 m100
		zincrby {t}z -500 m2500
		zmscore {t}z m0 m1 m2 m100 m2500 no
		zrem {t}z m1400 m1401 m1402 no new
		zrange {t}z 0 -1 withscores` + largeRanks + `
		zremrangebyrank {t}z 1400 1600
		zremrangebyscore {t}z (10 12
		zremrangebyscore {t}z 600 700
		zrange {t}z 0 -1 withscores` + largeRanks + `
		zrandmember {t}z 5
		zrange {t}z 0 -1 withscores
		zrandmember {t}z 1025 withscores
		zrange {t}z 0 -1 withscores
		zrandmember {t}z -2000
		zrange {t}z 0 -1 withscores
		zrangestore {t}d {t}z 1000 2500
		zrange {t}d 0 -1 withscores
		zrangestore {t}d {t}z -10 300 byscore limit 100 1200
		zrange {t}d 0 -1 withscores
		zrangestore {t}d {t}z 300 (-10 byscore rev limit 5 900
		zrange {t}d 0 -1 withscores
		sort {t}z alpha limit 1000 15
		sort {t}z by nosort limit 1000 15
		sort {t}z by nosort desc limit 1000 15
		copy {t}z {t}c
		zadd {t}c 1 more
		zpopmin {t}z 3
		zpopmax {t}z 3
		zpopmin {t}z 1000
		zpopmax {t}z 600` + largeRanks + `
		zrange {t}z 0 -1 withscores
		zcard {t}c
		rename {t}c {t}z` + largeRanks + `
		exists {t}c
		zmpop 2 {t}no {t}z max count 1100
		zmpop 1 {t}z min count 1` + largeRanks + `
		zremrangebyrank {t}z 300 -300` + largeRanks + `
		zrange {t}z 0 -1 withscores
		del {t}z
		zcard {t}z` + many("zadd {t}z", 0, 1500, largeScored) + largeRanks + `
		zrange {t}z 0 -1 withscores
		del {t}z
		rpush {t}z a
		lrange {t}z 0 -1
		set {t}d v
		zcard {t}d
		dbsize`},
		{Name: "large zset by name", OneRegion: true, Calls: "flushall" + many("zadd {t}n", 0, largeSize, largeNamed) + `
		zlexcount {t}n - +
		zlexcount {t}n [n0500 (n2500
		zlexcount {t}n (n1499 [n1500
		zlexcount {t}n [n2 [n1
		zrank {t}n n1777
		zrange {t}n [n1000 + bylex limit 1100 5
		zrange {t}n (n2000 [n1000 bylex rev limit 700 5
		zrangebylex {t}n - + limit 2995 10
		zrangebylex {t}n [n1498 (n1503
		zrevrangebylex {t}n + - limit 2000 4
		zrevrangebylex {t}n [n12 (n1198
		zrangestore {t}d {t}n [n05 [n25 bylex limit 10 1500
		zrange {t}d 0 -1
		zrangestore {t}d {t}n [n25 [n05 bylex rev limit 0 1400
		zrange {t}d 0 -1 withscores
		zremrangebylex {t}n [n1200 (n1700
		zlexcount {t}n - +
		zlexcount {t}n [n1100 [n1800
		zrank {t}n n1777
		zrevrank {t}n n0123
		zrange {t}n 0 -1 withscores
		zadd {t}n 1 n0000 -1 n2999
		zlexcount {t}n - +
		zrange {t}n 0 -1 withscores
		sort {t}n alpha desc limit 2000 10`},
		{Name: "large zset unions", OneRegion: true, Calls: "flushall" + many("zadd {t}z", 0, largeSize, largeScored) +
			many("zadd {t}y", 1200, largeSize, largeScored) +
			many("zadd {t}n", 0, largeSize, largeNamed) + many("sadd {t}s", 700, largeSize, largeMember) + `
		zunionstore {t}d 3 {t}z {t}y {t}n
		zrange {t}d 0 -1 withscores
		zrank {t}d m1500
		zunionstore {t}d 3 {t}z {t}y {t}s weights 2 -0.5 3 aggregate max
		zrange {t}d 0 -1 withscores
		zcount {t}d 0 100
		zinterstore {t}d 2 {t}z {t}y aggregate min
		zrange {t}d 0 -1 withscores
		zrevrank {t}d m1500
		zinterstore {t}d 3 {t}z {t}s {t}y weights 1 10 2
		zrange {t}d 0 -1 withscores
		zinter 2 {t}z {t}n
		zinter 2 {t}z {t}s withscores
		zintercard 2 {t}z {t}y
		zintercard 3 {t}z {t}y {t}s limit 0
		zintercard 2 {t}z {t}s limit 1030
		zintercard 2 {t}z {t}n
		zunion 2 {t}y {t}n withscores
		zdiff 2 {t}z {t}y withscores
		zdiff 3 {t}z {t}y {t}s
		zdiffstore {t}d 2 {t}z {t}s
		zrange {t}d 0 -1 withscores
		zunionstore {t}z 2 {t}z {t}n` + largeRanks + `
		zdiffstore {t}z 2 {t}z {t}z
		exists {t}z`},
		{Name: "large zset scan", Calls: "flushall" + many("zadd {t}z", 0, largeSize, largeScored) + "zrem {t}z m3 m2998",
			Scans: scansOf("zscan {t}z", "m[0-4]*", "*7*")},
	}
}

// scansOf are scans of one collection, in parts of several sizes.
func scansOf(scan string, patterns ...string) []string {
	all := []string{scan + " 0 count 131", scan + " 0 count 5000", scan + " 0 match no* count 500"}
	for i, p := range patterns {
		all = append(all, fmt.Sprintf("%s 0 count %d match %s", scan, 400+i*700, p))
	}
	return all
}
