package redis

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"
)

var scriptCosts = flag.Bool("script.costs", false, "TestScriptCosts prints how long an instruction takes")

// TestScriptCosts runs scripts that do the same until they are ended, and prints how long they take per instruction.
func TestScriptCosts(t *testing.T) {
	if !*scriptCosts {
		t.Skip("it measures: -script.costs")
	}
	many := strings.Repeat("x ", 1000)
	for _, x := range []struct{ name, before, text string }{
		{"loop", "", "local x = 0 while true do x = x + 1 end"},
		{"calls of functions", "", "local f = function(a) return a end while true do f(1) end"},
		{"concat", "", "while true do local s = '' for i = 1, 100 do s = s .. 'xxxxxxxxxx' end end"},
		{"tables", "", "while true do local t = {} for i = 1, 100 do t[i] = i end end"},
		{"table of strings", "", "while true do local t = {} for i = 1, 100 do t['k' .. i] = i end end"},
		{"sort", "", "while true do local t = {} for i = 1, 100 do t[i] = (i * 7919) % 101 end table.sort(t) end"},
		{"patterns", "", "local s = ('ab'):rep(100) while true do s:gsub('(a)(b)', '%2%1') end"},
		{"format", "", "while true do string.format('%d %s %5.2f', 1, 'abc', 0.5) end"},
		{"cjson", "", "local s = '[1,2,{\"a\":\"b\"},3.5,null]' while true do cjson.encode(cjson.decode(s)) end"},
		{"cmsgpack", "", "while true do cmsgpack.unpack(cmsgpack.pack({1, 2, 3, 'abc', {a = 1}})) end"},
		{"pcall error", "", "while true do pcall(error, 'x') end"},
		{"coroutines", "", "while true do local c = coroutine.wrap(function() coroutine.yield(1) end) c() c() end"},
		{"ping", "", "while true do redis.call('ping') end"},
		{"get", "set a 1", "while true do redis.call('get', 'a') end"},
		{"get of 60 KiB", "setrange a 60000 x", "while true do redis.call('get', 'a') end"},
		{"get of many", "", "local i = 0 while true do i = i + 1 redis.call('get', 'k' .. i) end"},
		{"set", "", "while true do redis.call('set', 'a', 'value') end"},
		{"set of many", "", "local i = 0 while true do i = i + 1 redis.call('set', 'k' .. i, 'value') end"},
		{"set of 1 KiB", "", "local v = ('x'):rep(1024) local i = 0 while true do i = i + 1 redis.call('set', 'k' .. i, v) end"},
		{"set of 60 KiB", "", "local v = ('x'):rep(60000) local i = 0 while true do i = i + 1 redis.call('set', 'k' .. i, v) end"},
		{"incr", "", "while true do redis.call('incr', 'a') end"},
		{"hset", "", "local i = 0 while true do i = i + 1 redis.call('hset', 'h', i, 'value') end"},
		{"hset of 100", "", "local i = 0 local a = {} for n = 1, 200 do a[n] = n end while true do i = i + 1 redis.call('hset', 'h' .. i, unpack(a)) end"},
		{"hgetall of 100", "hset h " + strings.Join(numbers(200), " "), "while true do redis.call('hgetall', 'h') end"},
		{"sadd of 1000", "", "local a = {} for n = 1, 1000 do a[n] = n end while true do redis.call('sadd', 's', unpack(a)) end"},
		{"zadd and zrange", "", "local i = 0 while true do i = i + 1 redis.call('zadd', 'z', i, i) redis.call('zremrangebyscore', 'z', 0, i - 100) redis.call('zcard', 'z') end"},
		{"zrange of 100", "zadd z " + strings.Join(numbers(200), " "), "while true do redis.call('zrange', 'z', 0, -1) end"},
		{"lpush and rpop", "", "while true do redis.call('lpush', 'l', 'x') redis.call('rpop', 'l') end"},
		{"lrange of 1000", "rpush l " + strings.TrimSpace(many), "while true do redis.call('lrange', 'l', 0, -1) end"},
		{"linsert", "rpush l " + strings.TrimSpace(many), "while true do redis.call('linsert', 'l', 'before', 'y', 'z') end"},
		{"copy of a hash", "hset h " + strings.Join(numbers(200), " "), "while true do redis.call('copy', 'h', 'g', 'replace') end"},
		{"sinter", "sadd s " + strings.Join(numbers(200), " "), "while true do redis.call('sinter', 's', 's') end"},
		{"sinterstore", "sadd s " + strings.Join(numbers(200), " "), "while true do redis.call('sinterstore', 'd', 's', 's') end"},
		{"spop", "sadd s " + strings.Join(numbers(2000), " "), "while true do redis.call('sadd', 's', redis.call('spop', 's')) end"},
		{"append", "", "while true do redis.call('append', 'a', 'xxxxxxxxxx') end"},
		{"setrange of a long one", "setrange a 1000000 x", "while true do redis.call('setrange', 'a', 500000, 'xxxxxxxxxx') end"},
		{"del and set", "", "while true do redis.call('set', 'a', 'v') redis.call('del', 'a') end"},
		{"flushall", "", "while true do redis.call('flushall') end"},
		{"expire", "set a 1", "while true do redis.call('expire', 'a', 1000) end"},
		{"dbsize", "set a 1", "while true do redis.call('dbsize') end"},
		{"sort", "rpush l " + strings.Join(numbers(200), " "), "while true do redis.call('sort', 'l') end"},
	} {
		d := newRegion(t)
		d.limits = ScriptLimits{Steps: 500_000, Bytes: 1 << 30, Calls: 1 << 30}
		if x.before != "" {
			d.must(2, strings.Fields(x.before)...)
		}
		began := time.Now()
		v := d.must(2, "eval", x.text, "1", "a")
		took := time.Since(began)
		if !strings.Contains(v.String(), "redis.script_") {
			t.Errorf("%s: %v", x.name, v)
		}
		t.Logf("%-25s %6.1f ns per instruction", x.name, float64(took)/float64(d.limits.Steps))
	}
}

// numbers returns the numbers below n.
func numbers(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint(i))
	}
	return all
}
