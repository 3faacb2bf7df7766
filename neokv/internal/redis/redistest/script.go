package redistest

import (
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
)

// scriptCases are the cases of EVAL and its kind, as clients call them.
var scriptCases = []Case{
	{Name: "eval", Server: true, OneRegion: true, Calls: `
		flushall
		eval "return redis.call('set', KEYS[1], ARGV[1])" 1 {t}a v
		get {t}a
		eval "return {redis.call('get', KEYS[1]), redis.call('get', KEYS[2]), ARGV[1], #KEYS, #ARGV}" 2 {t}a {t}b x y
		eval "return redis.call('get', '{t}a')" 0
		eval "return redis.call('set', '{t}a', 'w')" 0
		eval "return redis.call('mget', KEYS[1], '{t}nosuch', '{t}a')" 1 {t}a
		eval_ro "return redis.call('get', KEYS[1])" 1 {t}a
		eval_ro "return redis.call('set', KEYS[1], 'x')" 1 {t}a
		eval_ro "redis.pcall('set', KEYS[1], 'x') return redis.call('get', KEYS[1])" 1 {t}a
		eval "#!lua flags=no-writes\nreturn redis.call('get', KEYS[1])" 1 {t}a
		eval "#!lua flags=no-writes\n\nreturn redis.call('del', KEYS[1])" 1 {t}a
		eval "#!lua\nreturn redis.call('append', KEYS[1], 'z')" 1 {t}a
		eval_ro "#!lua\nreturn redis.call('get', KEYS[1])" 1 {t}a
		evalsha_ro 0000000000000000000000000000000000000000 1 {t}a
		evalsha 0000000000000000000000000000000000000000 1 {t}a
		evalsha x 1 {t}a
		evalsha 0000000000000000000000000000000000000000 2 {t}a
		script load "return redis.call('incr', KEYS[1])"
		evalsha 49a4bc6d4b8b3e4d0a7dcd1b6d0b5f3a3b6f7f5b 1 {t}n
		evalsha ` + shaOf("return redis.call('incr', KEYS[1])") + ` 1 {t}n
		evalsha ` + strings.ToUpper(shaOf("return redis.call('incr', KEYS[1])")) + ` 1 {t}n
		evalsha_ro ` + shaOf("return redis.call('incr', KEYS[1])") + ` 1 {t}n
		get {t}n
		eval "return 1" 3 {t}a {t}b
		eval "return 1" -1 {t}a
		eval "return 1" x {t}a
		eval "retur 1" 1 {t}a
		eval "return 1"
		script exists x y
		script nosuch
		flushall`},
	{Name: "errors in scripts", Server: true, OneRegion: true, Calls: `
		flushall
		set {t}s v
		eval "redis.call('set', KEYS[1], 1) redis.call('lpush', KEYS[1], 2) redis.call('set', KEYS[1], 3)" 1 {t}a
		get {t}a
		eval "redis.call('incr', KEYS[1]) error('mine')" 1 {t}a
		get {t}a
		eval "local e = redis.pcall('incr', KEYS[1]) return {e.err, redis.call('get', KEYS[1])}" 1 {t}s
		eval "redis.call('set', KEYS[1], 1) return nosuch" 1 {t}b
		get {t}b
		eval "redis.call('set', KEYS[1], 1)\nlocal t = nil\nreturn t.x" 1 {t}c
		get {t}c
		eval "return redis.call('nosuch', KEYS[1])" 1 {t}a
		eval "return redis.call('get')" 1 {t}a
		eval "return redis.call('watch', KEYS[1])" 1 {t}a
		eval "return redis.call('multi')" 1 {t}a
		eval "return redis.call('eval', 'return 1', 0)" 1 {t}a
		eval "return redis.pcall('config', 'get', 'save')" 1 {t}a
		eval "return redis.call('object', 'nosuch', KEYS[1])" 1 {t}a
		eval "return redis.error_reply('MINE x')" 1 {t}a
		eval "return redis.call('set', KEYS[1], 'v', 'ex', 0)" 1 {t}a
		eval "return {1, redis.pcall('incr', KEYS[1]), 2}" 1 {t}s
		eval "return {1, nil, 2}" 1 {t}s
		eval "for i = 1, 100 do redis.call('rpush', KEYS[1], i) end return redis.call('llen', KEYS[1])" 1 {t}l
		lrange {t}l 98 -1`},
	{Name: "acl_check_cmd", Server: true, OneRegion: true, Calls: `
		flushall
		eval "return redis.acl_check_cmd('nosuch')" 0
		eval "return tostring(redis.acl_check_cmd('get')) .. tostring(redis.acl_check_cmd('GET', KEYS[1], 2, 3))" 1 {t}a
		eval "return tostring(redis.acl_check_cmd('config', 'get', 'x'))" 0
		eval "return tostring(redis.acl_check_cmd('Config'))" 0
		eval "return tostring(redis.acl_check_cmd('multi')) .. tostring(redis.acl_check_cmd('eval'))" 0
		eval "return redis.acl_check_cmd('config', 'nosuch')" 0
		eval "redis.call('set', KEYS[1], 1)\nredis.acl_check_cmd('nosuch', KEYS[1])" 1 {t}a
		eval_ro "return redis.acl_check_cmd('set', KEYS[1])" 1 {t}a
		eval_ro "return {redis.call('get', KEYS[1]), pcall(redis.acl_check_cmd, 'nosuch')}" 1 {t}a
		eval "return select(2, pcall(redis.acl_check_cmd, 7)).err" 0
		eval "return redis.acl_check_cmd()" 0
		eval "return redis.acl_check_cmd('get', {})" 0`},
	{Name: "scripts in multi", Server: true, OneRegion: true, Calls: `
		flushall
		multi
		set {t}a 1
		eval "return redis.call('incrby', KEYS[1], ARGV[1])" 1 {t}a 5
		get {t}a
		eval "redis.call('incr', KEYS[1]) error('mine')" 1 {t}a
		incr {t}a
		eval "retur" 1 {t}a
		evalsha 0000000000000000000000000000000000000000 1 {t}a
		eval "return 1" x {t}a
		eval_ro "return redis.call('get', KEYS[1])" 1 {t}a
		eval_ro "return redis.call('del', KEYS[1])" 1 {t}a
		eval "return {1, 'x'}" 0
		eval "return redis.call('get', '{t}a')" 0
		script load "return redis.call('get', KEYS[1])"
		evalsha ` + shaOf("return redis.call('get', KEYS[1])") + ` 1 {t}a
		script exists 0000000000000000000000000000000000000000
		ping
		exec
		multi
		eval "return 1"
		exec
		multi
		eval_ro "return redis.call('get', KEYS[1])" 1 {t}a
		get {t}a
		exec
		multi
		eval "return 1" 0
		exec
		multi
		eval "redis.call('set', KEYS[1], 9)" 1 {t}a
		discard
		get {t}a`},
	{Name: "script flush in multi", Server: true, OneRegion: true, Calls: strings.ReplaceAll(strings.ReplaceAll(`
		flushall
		script load "return 'flushed one'"
		multi
		evalsha ONE 1 {t}a
		script exists ONE
		script flush
		script exists ONE
		evalsha ONE 1 {t}a
		eval "return 'flushed one'" 1 {t}a
		script exists ONE
		evalsha ONE 1 {t}a
		script flush nosuch
		evalsha ONE 1 {t}a
		script flush async
		evalsha ONE 1 {t}a
		eval "return 'flushed two'" 0
		script exists ONE TWO
		evalsha TWO 0
		exec
		script exists ONE TWO
		evalsha TWO 1 {t}a
		multi
		script flush
		script load "return 'flushed one'"
		evalsha ONE 1 {t}a
		exec
		script exists ONE TWO
		watch {t}a
		@ set {t}a 1
		multi
		script flush sync
		script load "return 'flushed two'"
		exec
		script exists ONE TWO
		evalsha ONE 1 {t}a
		watch {t}a
		@ set {t}a 1
		multi
		eval "return 'flushed two'" 1 {t}a
		exec
		script exists ONE TWO
		multi
		script flush
		discard
		evalsha ONE 1 {t}a
		multi
		eval "return 'flushed two'" 1 {t}a
		exec
		evalsha TWO 1 {t}a
		multi
		evalsha_ro ONE 1 {t}a
		evalsha_ro TWO 0
		script flush
		evalsha_ro TWO 1 {t}a
		eval_ro "return 'flushed one'" 1 {t}a
		evalsha ONE 0
		exec
		script exists ONE TWO
		script flush`, "ONE", shaOf("return 'flushed one'")), "TWO", shaOf("return 'flushed two'"))},
	{Name: "what watch sees of scripts", Server: true, OneRegion: true, Calls: `
		flushall
		watch {t}a
		@ eval "redis.call('set', KEYS[1], 1)" 1 {t}a
		multi
		get {t}a
		exec
		watch {t}a
		@ eval "redis.call('set', KEYS[1], 1)" 1 {t}b
		@ eval_ro "return redis.call('get', KEYS[1])" 1 {t}a
		multi
		get {t}a
		exec
		watch {t}a
		eval "redis.call('incr', KEYS[1]) error('x')" 1 {t}a
		multi
		get {t}a
		exec
		watch {t}a
		multi
		eval "redis.call('incr', KEYS[1])" 1 {t}a
		exec
		get {t}a
		watch {t}a
		@ eval "redis.call('incr', '{t}a')" 0
		multi
		eval "redis.call('incr', KEYS[1])" 1 {t}a
		exec
		get {t}a`},
	{Name: "slots of a script", Server: true, Cluster: true, Calls: `
		eval "return 1" 2 {t}a {other}b
		evalsha x 2 {t}a {other}b
		multi
		eval "return 1" 2 {t}a {other}b
		exec`},
}

func shaOf(text string) string {
	sum := sha1.Sum([]byte(text))
	return hex.EncodeToString(sum[:])
}

// byScript stands before a call that a script makes. What is compared is the call.
const byScript = "script:"

// scriptOdds: one in so many random calls is made by a script.
const scriptOdds = 12

// scriptCall makes a call of a script, whose keys lie in one slot.
func scriptCall(g *CallGenerator) [][]string {
	calls := g.inOneSlot().queued()
	if last := len(calls) - 1; !strings.HasPrefix(strings.ToLower(calls[last][0]), "sort") { // a null ends a table
		calls[last] = append([]string{byScript}, calls[last]...)
	}
	return calls
}

// scriptTexts are the scripts that make a call.
var scriptTexts = func() (all []string) {
	for _, how := range []string{"call", "pcall"} {
		for resp := 2; resp <= 3; resp++ {
			all = append(all, fmt.Sprintf("redis.setresp(%d)\nreturn redis.%s(unpack(ARGV))", resp, how))
		}
	}
	return all
}()

// loads makes the calls that load the scripts.
func loads() (calls [][][]byte) {
	for _, text := range scriptTexts {
		calls = append(calls, toBytes([]string{"script", "load", text}))
	}
	return calls
}

// evalOf returns the call of a script that makes a call: one of several, the same for both servers.
func evalOf(call [][]byte, proto int) [][]byte {
	n := int(crc32.ChecksumIEEE(slices.Concat(call...)))
	text := scriptTexts[n/4%2*2+n/8%(max(proto, 2)-1)]
	if n%2 == 0 {
		return append(toBytes([]string{"evalsha", shaOf(text), "0"}), call...)
	}
	return append(toBytes([]string{"eval", text, "0"}), call...)
}
