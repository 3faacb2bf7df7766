package redis

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/lua"
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
		{"zadd and zpopmin", "", "local i = 0 while true do i = i + 1 redis.call('zadd', 'z', i, i) redis.call('zpopmin', 'z') end"},
		{"sadd and smembers", "", "local i = 0 while true do i = i + 1 redis.call('sadd', 's', i) redis.call('srem', 's', i) redis.call('smembers', 's') end"},
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

// TestEndedScripts: a script that a limit ends has written nothing, whatever it did before, alone and behind other calls
// of its batch. The reply names the setting.
func TestEndedScripts(t *testing.T) {
	limit(t, 20<<10)
	normal := engine.AheadBytes
	defer func() { engine.AheadBytes = normal }()
	engine.AheadBytes = 2000
	before := `set s v; set long ` + strings.Repeat("x", 100_000) + `; rpush l a b c; hset h f v g w; sadd m 1 2 3; zadd z 1 a 2 b
		set gone v px 1000; sadd many ` + strings.Join(numbers(1500), " ") + `; neokv legacyset old v`
	writes := []string{
		"redis.call('set', 's', 'other')", "redis.call('del', 's', 'l', 'h', 'm', 'z', 'old')", "redis.call('rpush', 'l', 'd')",
		"redis.call('lrem', 'l', 0, 'b')", "redis.call('hset', 'h', 'f', 'x', 'i', 'y')", "redis.call('spop', 'm', 2)",
		"redis.call('zadd', 'z', 5, 'c', 6, 'a')", "redis.call('expire', 's', 5)", "redis.call('persist', 'gone')",
		"redis.call('sunionstore', 'm', 'many', 'm')", "redis.call('sunionstore', 'new', 'many', 'many')",
		"redis.call('setrange', 'long', 50000, 'yyy')", "redis.call('append', 'long', ('z'):rep(70000))",
		"redis.call('rename', 'many', 'few')", "redis.call('copy', 'many', 'z', 'replace')", "redis.call('flushall')",
		"redis.call('set', 'old', 'new')", "redis.pcall('incr', 'l')", "redis.call('zadd', 'fresh', 1, 'a')",
		"redis.call('sort', 'many', 'alpha', 'store', 'l')", "redis.call('getdel', 's')", "redis.call('mset', 'p', 1, 'q', 2)",
	}
	ends := map[string]string{
		"while true do end":                                                                      scriptSteps,
		"while true do pcall(error, 'x') end":                                                    scriptSteps,
		"while true do redis.pcall('get') end":                                                   scriptSteps + " " + scriptCalls,
		"local s = 'x' while true do s = s .. s end":                                             scriptSteps + " " + scriptBytes,
		"while true do redis.call('lrange', 'k', 0, -1) end":                                     scriptSteps + " " + scriptCalls,
		"redis.call('setrange', 'big', 2000000, 'x') while true do redis.call('get', 'big') end": scriptSteps + " " + scriptBytes,
		"local f f = function() return f() end f()":                                              scriptSteps,
		"coroutine.wrap(function() while true do end end)()":                                     scriptSteps,
		"local t = {} while true do t[#t + 1] = {} end":                                          scriptSteps + " " + scriptBytes,
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	by := rand.New(rand.NewPCG(seed, 0))
	for end, setting := range ends {
		for _, long := range []int{0, 40} {
			d := newRegion(t)
			d.long, d.limits = long, ScriptLimits{Steps: 300_000, Bytes: 20 << 20, Calls: 1000}
			d.w.Effects = new(Effects)
			for _, line := range strings.FieldsFunc(before, func(r rune) bool { return r == ';' || r == '\n' }) {
				d.must(2, strings.Fields(line)...)
			}
			for range 3 {
				text := ""
				for range 1 + by.IntN(6) {
					text += writes[by.IntN(len(writes))] + " "
				}
				if err := d.endUnits(); err != nil {
					t.Fatal(err)
				}
				d.reclaim()
				want, effects, state := d.stored(), len(d.w.Effects.All), d.state
				if long > 0 { // something of its batch comes before
					d.must(2, "set", "k2", "v")
					d.must(2, "hset", "h2", "f", "v")
				}
				got := d.must(2, "eval", text+end, "1", "s").String()
				found := false
				for _, s := range strings.Fields(setting) {
					found = found || strings.Contains(got, s)
				}
				if !found && !strings.Contains(got, " script: ") {
					t.Fatalf("%s%s: %s; want %s", text, end, got, setting)
				}
				if long > 0 {
					d.must(2, "del", "k2", "h2")
				}
				if !found { // the script's own error, which undoes nothing
					continue
				}
				if long == 0 && len(d.w.Effects.All) != effects {
					t.Errorf("%s%s: effects %v", text, end, d.w.Effects.All[effects:])
				}
				if err := d.endUnits(); err != nil {
					t.Fatal(err)
				}
				d.reclaim()
				for key, value := range d.stored() {
					if want[key] != value {
						t.Errorf("%s%s leaves %.100q = %.100q, want %.100q", text, end, key, value, want[key])
					}
					delete(want, key)
				}
				if len(want) > 0 {
					t.Errorf("%s%s has removed %d records", text, end, len(want))
				}
				if d.state.KeyCount != state.KeyCount || d.state.Legacy != state.Legacy {
					t.Errorf("%s%s: region state %+v, before %+v", text, end, d.state, state)
				}
			}
		}
	}
}

// TestScriptsThatEmptyQueues: what a script costs grows with what it does, and not with what it has deleted before.
func TestScriptsThatEmptyQueues(t *testing.T) {
	const jobs = 4000
	d := newRegion(t)
	for i := range jobs {
		d.must(2, "hset", fmt.Sprint("job", i), "data", strings.Repeat("x", 500), "status", "queued")
		d.must(2, "rpush", "queue", fmt.Sprint(i))
	}
	got := d.must(2, "eval", `local count = 0 while true do local id = redis.call('lpop', KEYS[1])
		if not id then return count end redis.call('del', 'job' .. id) redis.call('del', 'job' .. id .. ':dependents')
		count = count + 1 end`, "1", "queue")
	if got.String() != fmt.Sprint(jobs) {
		t.Errorf("a queue of %d jobs is emptied: %v", jobs, got)
	}
	text := "local v = ('x'):rep(1024) for i = 1, ARGV[1] do redis.call('set', KEYS[1] .. i, v) end return 'done'"
	if got := d.must(2, "eval", text, "1", "k", fmt.Sprint(jobs)).String(); !strings.Contains(got, "done") {
		t.Errorf("%d strings are set: %s", jobs, got)
	}
}

// TestVersionsOfEndedScripts: what an ended script has written ahead of its batch does not come back in a collection
// that is made later.
func TestVersionsOfEndedScripts(t *testing.T) {
	normal := engine.AheadBytes
	defer func() { engine.AheadBytes = normal }()
	engine.AheadBytes = 1000
	for _, planted := range []bool{false, true} {
		d := newRegion(t)
		d.limits.Steps = 100_000
		d.w.ScriptMistakes.OldVersion = planted
		d.must(2, append([]string{"sadd", "s"}, numbers(2000)...)...)
		d.must(2, "eval", "redis.call('sunionstore', 'd', 's') while true do end", "1", "s")
		d.must(2, "sadd", "d", "alone")
		var out Reply
		err := d.call([][]byte{[]byte("smembers"), []byte("d")}, &out)
		if (err == nil && string(out.Buf) == "*1\r\n$5\r\nalone\r\n") == planted {
			t.Errorf("planted %v: the set has %.200q, %v", planted, out.Buf, err)
		}
	}
}

// TestScriptRepliesCountAlike: a run uses as many steps and bytes whatever protocol its client speaks.
func TestScriptRepliesCountAlike(t *testing.T) {
	for _, text := range []string{
		"return {1, 'two', {3}, true, false, 1.5}", "return {ok = 'x'}", "return {err = 'E x'}", "error('x')", "error({err = 'E x'})",
		"redis.setresp(3) return redis.call('hgetall', 'h')", "redis.setresp(3) return {redis.call('get', 'absent'), true}",
		"return {double = 0.1}", "return {map = {a = 1, b = {map = {c = 2}}}}", "return {set = {a = true, b = true}}",
		"return {big_number = '123'}", "return {verbatim_string = {format = 'txt', string = ('x'):rep(1000)}}",
		"return ('x'):rep(100000)", "return nil", "return redis.call('incr', 's')",
	} {
		var left [2]lua.Limits
		for proto := range left {
			d := newRegion(t)
			d.must(2, "hset", "h", "f", "1", "g", "2")
			script, err := lua.Compile(text)
			if err != nil {
				t.Fatal(err)
			}
			if err := d.write(func(w *Writer) error {
				h := takeHost()
				defer h.release()
				h.w, h.limits, h.flags = w, d.limits, ScriptCrossSlots
				h.run(script, nil, nil, 7, 2+proto)
				left[proto] = h.state.Left()
				return h.err
			}); err != nil {
				t.Fatal(err)
			}
		}
		if left[0] != left[1] {
			t.Errorf("%s: %+v left in RESP2, %+v in RESP3", text, left[0], left[1])
		}
	}
}

// TestCompiledScriptsAreBounded: what compiled scripts take counts, and not their texts; the same script counts once.
func TestCompiledScriptsAreBounded(t *testing.T) {
	var c compiledScripts
	text := func(i int) []byte {
		return fmt.Appendf(nil, "local x = %d%s", i, strings.Repeat(" f(function()end)", 8<<10))
	}
	for i := range 20 {
		if _, err := c.script(text(i)); err != nil {
			t.Fatal(err)
		}
		sum := 0
		for _, s := range c.all {
			sum += s.Bytes()
		}
		if sum != c.bytes || sum > keptScriptBytes {
			t.Fatalf("%d scripts of %d bytes are kept, %d bytes are counted, and %d are allowed", len(c.all), sum, c.bytes,
				keptScriptBytes)
		}
	}
}
