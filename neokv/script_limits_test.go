package neokv

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/settings"
)

// TestBadScripts: scripts that loop, allocate, nest, recurse, or do what they may not, are answered with an error that
// says so. They leave nothing behind, in the data or in memory.
func TestBadScripts(t *testing.T) {
	k := settings.Default()
	k.Cluster.Regions, k.Redis.LeaderlessWait = 4, time.Minute // a slow day is no failure
	c := start(t, Config{InMemory: true, NoSockets: true, Settings: &k})
	store := clientAt(t, c, c.Addrs()[0])
	proxy := clientAt(t, c, c.ProxyAddr())
	key := keyAt(t, c, 1)
	foreign := keyAt(t, c, 2)
	const (
		steps = "ERR script ended by redis.script_steps, "
		ended = "ERR script ended by redis.script_" // which limit comes first is a matter of their values
		never = "ERR This Redis command is not allowed from script"
		deep  = "ERR Error compiling script (new function): user_script:1: chunk has too many syntax levels"
	)
	cases := []struct{ text, want string }{
		{"while true do end", steps},
		{"redis.call('set', KEYS[1], 'bad') while true do end", steps},
		{"local function f() return f() end return f()", steps},
		{"local function f() return 1 + f() end return f()", "ERR user_script:1: stack overflow"},
		{"local function f() pcall(f) f() end f()", ended},
		{"while true do pcall(function() while true do end end) end", steps},
		{"coroutine.wrap(function() while true do end end)()", steps},
		{"local s = 'x' while true do s = s .. s end", ended},
		{"redis.call('set', KEYS[1], 'bad') local t = {} for i = 1, 1e9 do t[i] = ('x'):rep(1000) .. i end", ended},
		{"return ('x'):rep(1e9)", ended},
		{"local t = {} while true do t = {t} end", ended},
		{"while true do redis.call('get', KEYS[1]) end", ended},
		{"for i = 1, 1e9 do redis.call('set', KEYS[1], 'bad') end", ended},
		{"for i = 1, 1e9 do redis.pcall('nosuch') end", ended},
		{"return string.find(string.rep('a', 100000), string.rep('a?', 1000) .. string.rep('a', 1000))", ""},
		{"return " + strings.Repeat("(", 500_000), deep},
		{"return " + strings.Repeat("{", 1_000_000), deep},
		{"return " + strings.Repeat("not ", 250_000) + "1", deep},
		{strings.Repeat("do ", 300_000), deep},
		{"return " + strings.Repeat("x", lua.MaxText), "ERR the script is longer than 1 MiB"},
		{"return redis.call('config', 'set', 'requirepass', 'x')", never},
		{"return redis.call('auth', 'x')", never}, {"return redis.call('multi')", never},
		{"return redis.call('watch', KEYS[1])", never}, {"return redis.call('client', 'kill', 'x')", never},
		{"return redis.call('debug', 'sleep', 100)", never}, {"return redis.call('eval', 'return 1', 0)", never},
		{"return redis.call('neokv', 'script', '0', 'return 1', '', '0')", "ERR Unknown Redis command called from script"},
		{"return redis.call('nosuch')", "ERR Unknown Redis command called from script"},
		{"return redis.call('get', '" + foreign + "')", "ERR Script attempted to access a non local key in a cluster node"},
		{"return redis.call('mget', KEYS[1], '" + foreign + "')",
			"ERR Script attempted to access a non local key in a cluster node"},
		{"os.exit()", "ERR user_script:1: Script attempted to access nonexistent global variable 'os'"},
		{"return io.open('/etc/passwd')", "ERR user_script:1: Script attempted to access nonexistent global variable 'io'"},
		{"return loadstring('\\27Lua')", ""}, {"return require('x')", "ERR user_script:1: Script attempted to access"},
		{"x = 1", "ERR user_script:1: Attempt to modify a readonly table"},
		{"string.rep = nil", "ERR user_script:1: Attempt to modify a readonly table"},
		{"error({})", "ERR "}, {"error(nil)", "ERR "},
	}
	for _, r := range []*redis.Client{store, proxy} {
		if err := r.Set(t.Context(), key, "good", 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	held := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	base := held()
	for _, x := range cases {
		for _, name := range []string{"EVAL", "EVAL_RO"} {
			got := "no error"
			if err := store.Do(t.Context(), name, x.text, 1, key).Err(); err != nil {
				got = err.Error()
			}
			if name == "EVAL_RO" && strings.Contains(x.text, "'bad'") {
				if got == "no error" {
					t.Errorf("EVAL_RO %.80q writes", x.text)
				}
				continue
			}
			if x.want != "" && !strings.HasPrefix(got, x.want) {
				t.Errorf("%s %.80q: %.200s, want %s...", name, x.text, got, x.want)
			}
			if strings.Contains(got, "unknown") || strings.Contains(got, "CLUSTERDOWN") {
				t.Errorf("%s %.80q: %.200s", name, x.text, got)
			}
			if name == "EVAL" && x.want == "" {
				t.Logf("%.80q: %.120s", x.text, got)
			}
		}
	}
	if got, err := store.Get(t.Context(), key).Result(); got != "good" {
		t.Errorf("scripts that were ended have left %q, %v", got, err)
	}
	if err := proxy.ScriptFlush(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	if now := held(); now > base+128<<20 {
		t.Errorf("%d MiB are held, %d before", now>>20, base>>20)
	}
}

// TestLongScriptsLetOthersIn: other connections' writes come between the scripts of a pipeline that take long.
func TestLongScriptsLetOthersIn(t *testing.T) {
	k := settings.Default()
	k.Redis.ScriptSteps, k.Redis.LeaderlessWait = 200_000, time.Minute
	c := start(t, Config{InMemory: true, NoSockets: true, Settings: &k})
	r, other := clientAt(t, c, c.Addrs()[0]), clientAt(t, c, c.Addrs()[0])
	key := keyAt(t, c, 1)
	const scripts = 64
	sha, err := r.ScriptLoad(t.Context(), // three quarters of the limit
		"redis.call('rpush', KEYS[1], ARGV[1]) for i = 1, 70000 do local x = i end").Result()
	if err != nil {
		t.Fatal(err)
	}
	if err := r.EvalSha(t.Context(), sha, []string{key}, "long").Err(); err != redis.Nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := r.Pipelined(t.Context(), func(p redis.Pipeliner) error {
			for range scripts {
				p.EvalSha(t.Context(), sha, []string{key}, "long")
			}
			return nil
		})
		if err == redis.Nil {
			err = nil
		}
		done <- err
	}()
	for ended := false; !ended; {
		select {
		case err := <-done:
			if err != nil {
				t.Fatal(err)
			}
			ended = true
		default:
			if err := other.RPush(t.Context(), key, "short").Err(); err != nil {
				t.Fatal(err)
			}
		}
	}
	all, err := r.LRange(t.Context(), key, 1, -1).Result()
	if err != nil {
		t.Fatal(err)
	}
	first, last := slices.Index(all, "long"), len(all)
	for last > 0 && all[last-1] == "short" {
		last--
	}
	between := 0
	for _, x := range all[first:last] {
		if x == "short" {
			between++
		}
	}
	if n := last - first - between; n != scripts || between < 4 {
		t.Errorf("%d writes of another connection are between %d scripts, want some between %d", between, n, scripts)
	}
}

// TestLongScriptInTransaction: a transaction holds the text of a script once, however many of its commands run it.
func TestLongScriptInTransaction(t *testing.T) {
	c := start(t, Config{InMemory: true, NoSockets: true})
	r := clientAt(t, c, c.Addrs()[0])
	key := keyAt(t, c, 1)
	text := "return redis.call('incr', KEYS[1]) --" + strings.Repeat("x", 1<<20-100)
	sha, err := r.ScriptLoad(t.Context(), text).Result()
	if err != nil {
		t.Fatal(err)
	}
	const calls = 600
	var last *redis.Cmd
	_, err = r.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
		for range calls {
			last = p.EvalSha(t.Context(), sha, []string{key})
		}
		return nil
	})
	if n, _ := last.Int(); n != calls || err != nil {
		t.Errorf("%d calls of a script of 1 MiB in a transaction: %v, %v", calls, last.Val(), err)
	}
}

// TestScriptKill ends a script that only reads, and not one that writes.
func TestScriptKill(t *testing.T) {
	k := settings.Default()
	k.Redis.ScriptSteps, k.Redis.ScriptCalls, k.Redis.LeaderlessWait = 1_000_000_000, 10_000_000, time.Minute
	c := start(t, Config{InMemory: true, NoSockets: true, Settings: &k})
	r, other := clientAt(t, c, c.Addrs()[0]), clientAt(t, c, c.Addrs()[0])
	key := keyAt(t, c, 1)
	kill := func() string {
		if err := other.ScriptKill(t.Context()).Err(); err != nil {
			return err.Error()
		}
		return "OK"
	}
	const idle = "NOTBUSY No scripts in execution right now."
	if got := kill(); got != idle {
		t.Errorf("SCRIPT KILL with no script: %s", got)
	}
	calls := "while true do redis.pcall('get', KEYS[1]) end"
	for _, call := range [][]any{
		{"EVAL_RO", calls, 1, key},
		{"EVALSHA_RO", r.ScriptLoad(t.Context(), calls).Val(), 1, key},
		{"EVAL_RO", "while true do end", 1, key},
		{"EVAL_RO", "while true do pcall(function() while true do end end) end", 1, key},
		{"EVAL", "while true do end", 0}, // it has touched no key yet
	} {
		done := make(chan error, 1)
		go func() { done <- r.Do(t.Context(), call...).Err() }()
		waitFor(t, time.Minute, "the script to be killed", func() bool { return kill() == "OK" })
		if err := <-done; err == nil || !strings.HasPrefix(err.Error(), "ERR Script killed by user with SCRIPT KILL...") {
			t.Errorf("%s: %v", call, err)
		}
		waitFor(t, time.Minute, "no script to run", func() bool { return kill() == idle })
	}
	var over atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 1000 {
			text := fmt.Sprintf("for i = 1, 20000 do redis.call('set', KEYS[1], %d) end", i)
			if err := r.Eval(t.Context(), text, []string{key}).Err(); err != nil && err != redis.Nil {
				if !over.Load() {
					t.Error(err)
				}
				return
			}
		}
	}()
	waitFor(t, time.Minute, "a script that writes", func() bool { return strings.HasPrefix(kill(), "UNKILLABLE ") })
	over.Store(true)
	r.Close()
	<-done
}
