package lua

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/lua/vm"
)

// quiet answers +OK to all calls.
type quiet struct{}

func (quiet) Call(reply []byte, args [][]byte, protocol int) []byte {
	return append(reply, "+OK\r\n"...)
}
func (quiet) Knows([][]byte) bool { return true }
func (quiet) Log(int, string)     {}

func compile(t testing.TB, text string) *Script {
	s, err := Compile(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func runText(t testing.TB, s *State, text string, l Limits) (string, error) {
	reply, err := s.Run(nil, Run{Script: compile(t, text), Limits: l, Protocol: 2, Host: quiet{},
		Keys: [][]byte{[]byte("k")}, Argv: [][]byte{[]byte("v")}})
	return string(reply), err
}

// heavy are scripts without end, or with more work or memory than a script may have, each by other means.
var heavy = []string{
	"while true do end",
	"repeat until false",
	"for i = 1, 1e18 do end",
	"local function f() return f() end return f()",
	"local function f() return pcall(f) or f() end while true do f() end",
	"while true do pcall(function() while true do end end) end",
	"while true do pcall(error) end",
	"while true do xpcall(function() while true do end end, function() while true do end end) end",
	"local co = coroutine.wrap(function() while true do end end) while true do pcall(co) end",
	"while true do coroutine.wrap(function() while true do coroutine.yield() end end)() end",
	"local function f() coroutine.wrap(f)() end while true do pcall(f) end",
	"local t = {} while true do t[#t + 1] = coroutine.create(function() end) end",
	"local t = setmetatable({}, {__index = function(t, k) while true do end end}) return t.x",
	"local s = 'x' while true do s = s .. s end",
	"local s = ('x'):rep(1000) local t = {} while true do t[#t + 1] = s .. #t end",
	"return ('x'):rep(1e9)",
	"return ('x'):rep(2^31 - 1)",
	"local t = {} for i = 1, 1e9 do t[i] = i end",
	"local t = {} for i = 1, 1e9 do t['k' .. i] = i end",
	"local t = {} for i = 1, 1e9 do t[-i] = true t[-i] = nil end",
	"local t = {} while true do t = {t} end",
	"local t = {} while true do t[#t + 1] = {} end",
	"local t = {} while true do t[#t + 1] = function() return t end end",
	"while true do local t = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10} end",
	"return ('x'):rep(200):find(('.-'):rep(20) .. 'b')",
	"return ('x'):rep(1e6):find('.-.-.-b')",
	"return ('x'):rep(1e6):match(('x?'):rep(1000) .. ('x'):rep(1000) .. 'y')",
	"return ('x'):rep(1e5):gsub('', ('y'):rep(1e4))",
	"return ('x'):rep(1e6):gsub('x', '%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0%0')",
	"return ('('):rep(1e6):find(('%b()'):rep(3))",
	"local t = {} for i = 1, 1e6 do t[i] = i end while true do table.sort(t, function() return true end) end",
	"local t = {} for i = 1, 1e4 do t[i] = i end while true do table.sort(t) end",
	"local t = {} for i = 1, 1e5 do t[i] = ('x'):rep(1000) end return table.concat(t)",
	"local t = {} for i = 1, 1e4 do t[i] = i end while true do table.insert(t, 1, 1) table.remove(t, 1) end",
	"local t = {} for i = 1, 1e4 do t[i] = i end while true do local x = table.concat(t) end",
	"local t = {} for i = 1, 1e5 do t['k' .. i] = i end while true do local k = next(t) if not k then " +
		"break end t[k] = nil end",
	"local t = {} for i = 1, 7000 do t[i] = i end while true do local x = {unpack(t)} end",
	"local t = {} for i = 1, 7000 do t[i] = i end local function f(...) return select('#', ...) end " +
		"while true do f(unpack(t)) end",
	"local a, b = ('x'):rep(1e6), ('x'):rep(1e6) while true do local x = a == b end",
	"local a, b = ('x'):rep(1e6), ('x'):rep(1e6) while true do local x = a < b end",
	"local a = ('x'):rep(1e6) local t = {[a] = 1} while true do local x = t[('x'):rep(1e6)] end",
	"local s = ('x'):rep(1e6) while true do local x = s:upper() end",
	"local s = ('x'):rep(1e6) while true do local x = s:find('y', 1, true) end",
	"local s = ('x'):rep(1e6) while true do local x = redis.sha1hex(s) end",
	"local s = ('x'):rep(1e6) while true do local x = tonumber(s) end",
	"while true do local x = string.format('%99.99f', 1e300) end",
	"local s = ('x'):rep(1e6) while true do local x = ('%s%q'):format(s, s) end",
	"local s = 'return ' .. ('1 + '):rep(1e5) .. '1' while true do loadstring(s) end",
	"local s = ('x = 1 '):rep(1e5) while true do loadstring(s) end",
	"load(function() return 'x = 1 ' end)",
	"while true do redis.call('set', KEYS[1], 'v') end",
	"while true do redis.pcall('set', KEYS[1], ('v'):rep(1e5)) end",
	"local t = {} for i = 1, 1e4 do t[i] = t end return t",
	"local t = {} t.map = {} t.map[t] = t return t",
	"local function f(...) return f(1, ...) end return f()",
	"local function f(a) return f(a .. 'x') end return f('x')",
	"local function f() local x = {f()} end while true do pcall(f) end",
	"local t = setmetatable({}, {__concat = function(a, b) return a end}) while true do local x = t .. t end",
	"local n = 0 for w in ('x '):rep(1e6):gmatch('%a') do n = n + #('y'):rep(1000) end",
	"while true do local f = loadstring('return 1') f() end",
	"local t = {} t[2^22] = 1 for i = 1, 2^22 do t[i] = 1 end return #t",
	"while true do pcall(error, ('x'):rep(1e5)) end",
	"local s = ('a'):rep(1e6) while true do s:byte(1, 7000) end",
	"local t = {} for i = 1, 200 do t[i] = 'x' end while true do string.char(unpack({}, 1, 0)) " +
		"table.concat(t, ('y'):rep(1000)) end",
}

// TestLimitsHold: every heavy script ends at a limit, alike in each run, with memory of the order of its bytes.
func TestLimitsHold(t *testing.T) {
	s, other := NewState(), NewState()
	limits := Limits{Steps: 3e5, Bytes: 4 << 20}
	for _, text := range heavy {
		if _, err := Compile(text); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, err := runText(t, s, text, limits)
		runtime.ReadMemStats(&after)
		var limit *LimitError
		if !errors.As(err, &limit) {
			reply, _ := runText(t, s, text, limits)
			t.Errorf("%s: %.100q, %v", text, reply, err)
			continue
		}
		if used := after.TotalAlloc - before.TotalAlloc; used > 24<<20 {
			t.Errorf("%s: %d MiB for a limit of %d", text, used>>20, limits.Bytes>>20)
		}
		// The state served a script before, and the other one is new.
		left := s.Left()
		_, again := runText(t, other, text, limits)
		if again == nil || again.Error() != err.Error() || other.Left() != left {
			t.Errorf("%s: %v with %+v left, then %v with %+v", text, err, left, again, other.Left())
		}
		if reply, err := runText(t, s, "return 1", limits); reply != ":1\r\n" || err != nil {
			t.Errorf("%s: the next script replies %q, %v", text, reply, err)
		}
	}
}

// TestDeepTexts: no text, however deep, ends the process.
func TestDeepTexts(t *testing.T) {
	const n, long = 3_000_000, 40_000
	for _, c := range []struct{ text, want string }{
		{"return " + strings.Repeat("(", n), "chunk has too many syntax levels"},
		{"return " + strings.Repeat("not ", n), "chunk has too many syntax levels"},
		{"return " + strings.Repeat("-", 1) + strings.Repeat(" -", n), "chunk has too many syntax levels"},
		{"return " + strings.Repeat("#", n), "chunk has too many syntax levels"},
		{"return " + strings.Repeat("{", n), "chunk has too many syntax levels"},
		{"return " + strings.Repeat("'a' .. ", n) + "'a'", "chunk has too many syntax levels"},
		{"return " + strings.Repeat("2 ^ ", n) + "2", "chunk has too many syntax levels"},
		{"return " + strings.Repeat("f(", n), "chunk has too many syntax levels"},
		{"return " + strings.Repeat("a[", n), "chunk has too many syntax levels"},
		{strings.Repeat("do ", n), "chunk has too many syntax levels"},
		{strings.Repeat("while 1 do ", n), "chunk has too many syntax levels"},
		{strings.Repeat("if 1 then ", n), "chunk has too many syntax levels"},
		{strings.Repeat("f = function() ", n), "chunk has too many syntax levels"},
		{strings.Repeat("local x ", n), "more than 200 local variables"},
		{"local " + strings.Repeat("x, ", n) + "x", "more than 200 local variables"},
		{strings.Repeat("x, ", n) + "x = 1", "variables in assignment"},
		{"return " + strings.Repeat("1 + ", long) + "1", ""},
		{"return " + strings.Repeat("a.", long) + "a", ""},
		{"return f" + strings.Repeat("()", long), ""},
		{"return " + strings.Repeat("a and ", long) + "a", ""},
		{"return " + strings.Repeat("a or ", long) + "a", ""},
		{"return " + strings.Repeat("a == ", long) + "a", ""},
		{"return f(" + strings.Repeat("1,", long) + "1)", "function or expression too complex"},
		{"return {" + strings.Repeat("1,", long) + "1}", ""},
		{strings.Repeat("x = 1 ", long), ""},
		{"if a then " + strings.Repeat("elseif a then ", 5*long) + " end", "control structure too long"},
		{"while a do " + strings.Repeat("x = 1 ", 5*long) + " end", "control structure too long"},
		{"return " + strings.Repeat("'a' 'b'", long), "'<eof>' expected"},
		{strings.Repeat("\n", n) + "x", "user_script:3000001: '=' expected"},
	} {
		_, err := Compile(c.text)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.30s...: %.200v, want %s", c.text, err, c.want)
		}
	}
	var b strings.Builder
	for i := range 300_000 {
		fmt.Fprintf(&b, "x = %d ", i)
	}
	if _, err := Compile(b.String()); err == nil || !strings.Contains(err.Error(), "constant table overflow") {
		t.Errorf("300,000 constants: %v", err)
	}
}

// TestNothingLeaks: a script sees nothing of the one before.
func TestNothingLeaks(t *testing.T) {
	s := NewState()
	probe := "local t = {} for k, v in pairs(_G) do t[#t + 1] = k .. type(v) if type(v) == 'table' and v ~= _G then " +
		"for a, b in pairs(v) do t[#t + 1] = tostring(a) .. tostring(b) end end end " +
		"return {table.concat(t, ' '), tostring({}), tostring(function() end), math.random(1e9), #KEYS, #ARGV, " +
		"redis.call('x')}"
	want, err := runText(t, s, probe, testLimits)
	if err != nil {
		t.Fatal(err)
	}
	for _, text := range append([]string{
		"KEYS.x = 1 ARGV.y = 2 KEYS[5] = 1", "math.randomseed(5) return math.random()", "redis.setresp(3)",
		"return coroutine.wrap(function() coroutine.yield(1) end)()", "error('x')", "error({})",
		"local t = {} for i = 1, 1000 do t[i] = {} end return tostring(t)", "coroutine.wrap(error)()",
		"return pcall(string.rep)", "x = 1", "return string.rep('x', 1e5)",
	}, heavy...) {
		_, _ = runText(t, s, text, Limits{Steps: 1e4, Bytes: 1 << 20})
		if got, err := runText(t, s, probe, testLimits); got != want || err != nil {
			t.Fatalf("after %s: %q, %v\nwant %q", text, got, err, want)
		}
	}
}

var testLimits = Limits{Steps: 1e9, Bytes: 1 << 30}

// TestSameCounts: two states count alike for random scripts, whatever they served before.
func TestSameCounts(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	a := NewState()
	for range 300 {
		text := randomScript(r)
		l := Limits{Steps: r.Int64N(5000), Bytes: r.Int64N(1 << 16)}
		script, err := Compile(text)
		if err != nil {
			t.Fatalf("seed %d: %s: %v", seed, text, err)
		}
		run := Run{Script: script, Seed: seed, Limits: l, Protocol: 3, Host: quiet{}}
		first, err1 := a.Run(nil, run)
		b := NewState()
		second, err2 := b.Run(nil, run)
		if string(first) != string(second) || fmt.Sprint(err1) != fmt.Sprint(err2) || a.Left() != b.Left() {
			t.Fatalf("seed %d: %s: %q %v %+v, then %q %v %+v", seed, text, first, err1, a.Left(), second, err2,
				b.Left())
		}
		var internal *InternalError
		if errors.As(err1, &internal) {
			t.Fatalf("seed %d: %s: %v", seed, text, err1)
		}
	}
}

// randomScript joins statements that compile.
func randomScript(r *rand.Rand) string {
	var b strings.Builder
	b.WriteString("local a, b, t, s, f = 1, 2, {}, 'x', function(...) return ... end\n")
	for range 1 + r.IntN(8) {
		e := func() string { return randomExpression(r, 3) }
		switch r.IntN(9) {
		case 0:
			fmt.Fprintf(&b, "a = %s\n", e())
		case 1:
			fmt.Fprintf(&b, "t[%s] = %s\n", e(), e())
		case 2:
			fmt.Fprintf(&b, "for i = 1, %d do t[i] = %s end\n", r.IntN(50), e())
		case 3:
			fmt.Fprintf(&b, "for k, v in pairs(t) do s = s .. tostring(v) t[k] = %s end\n", e())
		case 4:
			fmt.Fprintf(&b, "if %s then a = %s else b = %s end\n", e(), e(), e())
		case 5:
			fmt.Fprintf(&b, "local ok, e = pcall(function() return %s end) a = e\n", e())
		case 6:
			fmt.Fprintf(&b, "local c = coroutine.wrap(function(x) for i = 1, 3 do coroutine.yield(%s) end end) ", e())
			b.WriteString("a = c() b = c()\n")
		case 7:
			fmt.Fprintf(&b, "f = function(x, ...) local y = x return %s, ... end\n", e())
		case 8:
			fmt.Fprintf(&b, "while #t < %d do t[#t + 1] = %s if %s then break end end\n", r.IntN(20), e(), e())
		}
	}
	return b.String() + "return {a, b, t, s}"
}

func randomExpression(r *rand.Rand, depth int) string {
	if depth == 0 || r.IntN(4) == 0 {
		return []string{"1", "2.5", "-3", "'str'", "'10'", "nil", "true", "false", "a", "b", "t", "s", "f", "{}", "0/0",
			"1e300", "KEYS", "''"}[r.IntN(18)]
	}
	e := func() string { return randomExpression(r, depth-1) }
	switch r.IntN(16) {
	case 0, 1, 2:
		op := []string{"+", "-", "*", "/", "%", "^", "..", "==", "~=", "<", "<=", ">", ">=", "and", "or"}[r.IntN(15)]
		return fmt.Sprintf("(%s %s %s)", e(), op, e())
	case 3:
		return fmt.Sprintf("(%s%s)", []string{"- ", "not ", "#"}[r.IntN(3)], e())
	case 4:
		return fmt.Sprintf("t[%s]", e())
	case 5:
		return "t.x"
	case 6:
		return fmt.Sprintf("{%s, %s, x = %s, [%s or 1] = %s, f(%s)}", e(), e(), e(), e(), e(), e())
	case 7:
		return fmt.Sprintf("f(%s, %s)", e(), e())
	case 8:
		return fmt.Sprintf("tostring(%s)", e())
	case 9:
		return fmt.Sprintf("(function(...) local x, y = ... return %s end)(%s)", e(), e())
	case 10:
		return fmt.Sprintf("select('#', %s, %s)", e(), e())
	case 11:
		return fmt.Sprintf("type(%s)", e())
	case 12:
		return fmt.Sprintf("string.format('%%s %%5.2f', tostring(%s), %s)", e(), e())
	case 13:
		return fmt.Sprintf("(pcall(f, %s))", e())
	case 14:
		return fmt.Sprintf("('abcabc'):gsub('b', %s)", e())
	}
	return fmt.Sprintf("#tostring(%s)", e())
}

func FuzzCompile(f *testing.F) {
	for _, text := range heavy {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if p, err := vm.Compile(text, "@user_script"); (p == nil) == (err == nil) {
			t.Fatalf("%v, %v", p, err)
		}
	})
}

func FuzzRun(f *testing.F) {
	for _, text := range heavy {
		f.Add(text)
	}
	r := rand.New(rand.NewPCG(1, 1))
	for range 30 {
		f.Add(randomScript(r))
	}
	s := NewState()
	f.Fuzz(func(t *testing.T, text string) {
		script, err := Compile(text)
		if err != nil {
			return
		}
		run := Run{Script: script, Limits: Limits{Steps: 1e5, Bytes: 1 << 20}, Protocol: 2, Host: quiet{}}
		first, err := s.Run(nil, run)
		left := s.Left()
		var internal *InternalError
		if errors.As(err, &internal) {
			t.Fatal(err)
		}
		second, again := s.Run(nil, run)
		if string(first) != string(second) || fmt.Sprint(err) != fmt.Sprint(again) || s.Left() != left {
			t.Fatalf("%q %v %+v, then %q %v %+v", first, err, left, second, again, s.Left())
		}
	})
}

func BenchmarkRunOfOneCall(b *testing.B) {
	s := NewState()
	run := Run{Script: compile(b, "return redis.call('set', KEYS[1], ARGV[1])"), Protocol: 2, Host: quiet{},
		Keys: [][]byte{[]byte("key:000000000001")}, Argv: [][]byte{[]byte("value")}, Limits: testLimits}
	var reply []byte
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if reply, err = s.Run(reply[:0], run); err != nil || string(reply) != "+OK\r\n" {
			b.Fatalf("%q, %v", reply, err)
		}
	}
}

func BenchmarkCompile(b *testing.B) {
	const lock = "if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end"
	b.ReportAllocs()
	for b.Loop() {
		compile(b, lock)
	}
}

func BenchmarkNewState(b *testing.B) {
	b.ReportAllocs()
	for b.Loop() {
		NewState()
	}
}

func BenchmarkInstructions(b *testing.B) {
	for _, c := range []struct{ name, text string }{
		{"loop", "local n = 0 for i = 1, 1e6 do n = n + i % 7 end return n"},
		{"table", "local t = {} for i = 1, 1e5 do t[i] = i end local n = 0 " +
			"for r = 1, 10 do for i = 1, 1e5 do n = n + t[i] end end return n"},
		{"fields", "local t = {a = 1, b = 2} for i = 1, 3e5 do t.a = t.b + 1 t.b = t.a - 1 end return t.a"},
		{"calls", "local function f(x) return x end local n = 0 for i = 1, 5e5 do n = n + f(1) end return n"},
		{"library", "local n = 0 for i = 1, 3e5 do n = n + math.floor(1.5) end return n"},
		{"fib", "local function fib(n) if n < 2 then return n end return fib(n - 1) + fib(n - 2) end return fib(22)"},
		{"strings", "local n = 0 for i = 1, 1e5 do local s = 'k' .. i n = n + #s end return n"},
	} {
		b.Run(c.name, func(b *testing.B) {
			s := NewState()
			run := Run{Script: compile(b, c.text), Protocol: 2, Host: quiet{}, Limits: testLimits}
			steps := int64(0)
			for b.Loop() {
				if _, err := s.Run(nil, run); err != nil {
					b.Fatal(err)
				}
				steps += testLimits.Steps - s.Left().Steps
			}
			b.ReportMetric(float64(steps)/b.Elapsed().Seconds()/1e6, "Msteps/s")
		})
	}
}

// broken panics in a call, as an engine may whose disk is broken.
type broken struct{ quiet }

func (broken) Call([]byte, [][]byte, int) []byte { panic("the disk is broken") }

// TestPanicOfHost: only a fault of the interpreter itself is the same on all replicas. If a run took the panic of what
// surrounds it for such a fault, one replica alone would undo the script.
func TestPanicOfHost(t *testing.T) {
	s := NewState()
	var got any
	func() {
		defer func() { got = recover() }()
		_, err := s.Run(nil, Run{Script: compile(t, "return pcall(redis.call, 'get', 'k')"), Protocol: 2, Host: broken{},
			Limits: Limits{Steps: 1e5, Bytes: 1 << 20}})
		t.Errorf("the run ended with the error %v", err)
	}()
	if got != "the disk is broken" {
		t.Errorf("Run panicked with %v", got)
	}
	if reply, err := runText(t, s, "return redis.call('get', 'k')", Limits{Steps: 1e5, Bytes: 1 << 20}); err != nil ||
		reply != "+OK\r\n" {
		t.Errorf("the next run: %q, %v", reply, err)
	}
}
