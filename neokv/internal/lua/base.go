package lua

import (
	"math"

	"neokv.dev/neokv/internal/lua/vm"
)

// named is a function of a library and its name there.
type named struct {
	name string
	fn   vm.LGFunction
}

func fill(L *vm.LState, t *vm.LTable, functions []named) *vm.LTable {
	for _, f := range functions {
		t.RawSetString(f.name, L.NewFunction(f.fn))
	}
	return t
}

var baseFunctions = []named{
	{"assert", baseAssert}, {"collectgarbage", baseCollectGarbage}, {"error", baseError}, {"gcinfo", baseGCInfo},
	{"getmetatable", baseGetMetatable}, {"load", baseLoad}, {"loadstring", baseLoadString}, {"next", baseNext},
	{"pcall", basePCall}, {"rawequal", baseRawEqual}, {"rawget", baseRawGet}, {"rawset", baseRawSet},
	{"select", baseSelect}, {"setmetatable", baseSetMetatable}, {"tonumber", baseToNumber}, {"tostring", baseToString},
	{"type", baseType}, {"unpack", baseUnpack}, {"xpcall", baseXPCall},
}

// openBase fills the globals. What is not here, Redis hides: print, dofile, getfenv, setfenv, newproxy and others.
func openBase(L *vm.LState) {
	G := L.Env
	G.RawSetString("_G", G)
	G.RawSetString("_VERSION", vm.LString("Lua 5.1"))
	fill(L, G, baseFunctions)
	next := L.NewFunction(baseNext)
	G.RawSetString("pairs", L.NewFunction(func(L *vm.LState) int {
		t := L.CheckTable(1)
		L.Push(next)
		L.Push(t)
		L.Push(vm.LNil)
		return 3
	}))
	step := L.NewFunction(ipairsStep)
	G.RawSetString("ipairs", L.NewFunction(func(L *vm.LState) int {
		t := L.CheckTable(1)
		L.Push(step)
		L.Push(t)
		L.PushNumber(0)
		return 3
	}))
}

func ipairsStep(L *vm.LState) int {
	i := L.CheckInt(2) + 1
	v := L.CheckTable(1).RawGetInt(i)
	if v == vm.LNil {
		return 0
	}
	L.PushNumber(float64(i))
	L.Push(v)
	return 2
}

func baseAssert(L *vm.LState) int {
	if vm.LVIsFalse(L.CheckAny(1)) {
		L.RaiseError("%s", L.OptString(2, "assertion failed!"))
	}
	return L.GetTop()
}

// memory is what collectgarbage says is in use, in KiB: always the same, since Go's memory is no replica's business.
const memory = 64

func baseCollectGarbage(L *vm.LState) int {
	switch option := L.OptString(1, "collect"); option {
	case "count":
		L.PushNumber(memory)
	case "step":
		L.Push(vm.LTrue)
	case "collect", "stop", "restart":
		L.PushNumber(0)
	case "setpause", "setstepmul":
		L.PushNumber(200)
	default:
		L.ArgError(1, "invalid option '"+option+"'")
	}
	return 1
}

func baseGCInfo(L *vm.LState) int {
	L.PushNumber(memory)
	return 1
}

func baseError(L *vm.LState) int {
	level := L.OptInt(2, 1)
	v := L.Get(1)
	if level > 0 && vm.LVCanConvToString(v) {
		v = vm.LString(L.Where(level) + vm.LVAsString(v))
	}
	L.Throw(v)
	return 0
}

func baseGetMetatable(L *vm.LState) int {
	m := L.Metatable(L.CheckAny(1))
	if m == nil {
		L.Push(vm.LNil)
	} else if hidden := m.RawGetString("__metatable"); hidden != vm.LNil {
		L.Push(hidden)
	} else {
		L.Push(m)
	}
	return 1
}

func baseSetMetatable(L *vm.LState) int {
	t := L.CheckTable(1)
	m, ok := L.Get(2).(*vm.LTable)
	if !ok && (L.Get(2) != vm.LNil || L.GetTop() < 2) {
		L.ArgError(2, "nil or table expected")
	}
	if L.GetMetaField(t, "__metatable") != vm.LNil {
		L.RaiseError("cannot change a protected metatable")
	}
	L.SetMetatable(t, m)
	L.SetTop(1)
	return 1
}

func baseLoadString(L *vm.LState) int {
	text := L.CheckString(1)
	return load(L, text, L.OptString(2, text))
}

func baseLoad(L *vm.LState) int {
	name := L.OptString(2, "=(load)")
	reader := L.CheckFunction(1)
	var text []byte
	for {
		L.Push(reader)
		L.Call(0, 1)
		v := L.Get(-1)
		L.Pop(1)
		if v == vm.LNil || v == vm.LString("") {
			break
		}
		if !vm.LVCanConvToString(v) {
			L.Push(vm.LNil)
			L.Push(v) // not the message that Lua has for it
			return 2
		}
		s := vm.LVAsString(v)
		L.Charge(len(s)>>6, len(s))
		text = append(text, s...)
	}
	return load(L, string(text), name)
}

func load(L *vm.LState, text, name string) int {
	fn, err := L.CompileChunk(text, name)
	if err != nil {
		L.Push(vm.LNil)
		L.PushString(err.Error())
		return 2
	}
	L.Push(fn)
	return 1
}

func baseNext(L *vm.LState) int {
	t := L.CheckTable(1)
	k, v := L.Next(t, L.Get(2))
	L.Push(k)
	if k == vm.LNil {
		return 1
	}
	L.Push(v)
	return 2
}

// basePCall is Redis's: of an error that is a table with the text err, scripts get the text.
func basePCall(L *vm.LState) int {
	if L.GetTop() == 0 {
		L.Push(vm.LTrue) // Redis calls what it has put there for the result
	}
	if err := L.PCall(L.GetTop()-1, -1, nil); err != nil {
		v := err.Value
		if t, ok := v.(*vm.LTable); ok {
			if s := L.GetField(t, "err"); vm.LVCanConvToString(s) {
				v = s
			}
		}
		L.Push(vm.LFalse)
		L.Push(v)
		return 2
	}
	L.Insert(vm.LTrue, 1)
	return L.GetTop()
}

func baseXPCall(L *vm.LState) int {
	L.CheckAny(2)
	handler := L.Get(2)
	L.SetTop(1)
	h, ok := handler.(*vm.LFunction)
	if !ok {
		h = L.NewFunction(func(L *vm.LState) int {
			L.Throw(vm.LNil)
			return 0
		})
	}
	if err := L.PCall(0, -1, h); err != nil {
		L.Push(vm.LFalse)
		L.Push(err.Value)
		return 2
	}
	L.Insert(vm.LTrue, 1)
	return L.GetTop()
}

func baseRawEqual(L *vm.LState) int {
	L.CheckAny(1)
	L.CheckAny(2)
	L.Push(vm.LBool(L.RawEqual(L.Get(1), L.Get(2))))
	return 1
}

func baseRawGet(L *vm.LState) int {
	t := L.CheckTable(1)
	L.Push(t.RawGet(L.CheckAny(2)))
	return 1
}

func baseRawSet(L *vm.LState) int {
	t := L.CheckTable(1)
	L.RawSet(t, L.CheckAny(2), L.CheckAny(3))
	L.SetTop(1)
	return 1
}

func baseSelect(L *vm.LState) int {
	n := L.GetTop()
	if s, ok := L.Get(1).(vm.LString); ok && len(s) > 0 && s[0] == '#' {
		L.PushNumber(float64(n - 1))
		return 1
	}
	i := L.CheckInt(1)
	switch {
	case i < 0:
		i += n
	case i > n:
		i = n
	}
	if i < 1 {
		L.ArgError(1, "index out of range")
	}
	L.Charge((n-i)/4, 0)
	return n - i
}

func baseToNumber(L *vm.LState) int {
	base := L.OptInt(2, 10)
	if base == 10 {
		switch v := L.CheckAny(1).(type) {
		case vm.LNumber:
			L.Push(v)
			return 1
		case vm.LString:
			L.Charge(len(v)>>6, 0)
			if f, ok := vm.ParseNumber(string(v)); ok {
				L.PushNumber(f)
				return 1
			}
		}
		L.Push(vm.LNil)
		return 1
	}
	s := L.CheckString(1)
	if base < 2 || base > 36 {
		L.ArgError(2, "base out of range")
	}
	L.Charge(len(s)>>6, 0)
	if f, ok := parseBase(s, uint64(base)); ok {
		L.PushNumber(f)
	} else {
		L.Push(vm.LNil)
	}
	return 1
}

// parseBase is C's strtoul, with space after the number, too: a sign negates modulo 2^64, and too much is all ones.
func parseBase(s string, base uint64) (float64, bool) {
	i, negative := 0, false
	for i < len(s) && vm.IsSpace(s[i]) {
		i++
	}
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		negative = s[i] == '-'
		i++
	}
	digit := func(i int) uint64 {
		if i >= len(s) {
			return base
		}
		switch c := s[i] | 0x20; {
		case s[i] >= '0' && s[i] <= '9':
			return uint64(s[i] - '0')
		case c >= 'a' && c <= 'z' && s[i] >= 'A':
			return uint64(c-'a') + 10
		}
		return base
	}
	if base == 16 && i+1 < len(s) && s[i] == '0' && s[i+1]|0x20 == 'x' && digit(i+2) < 16 {
		i += 2
	}
	from, n, over := i, uint64(0), false
	for ; digit(i) < base; i++ {
		d := digit(i)
		if n > (math.MaxUint64-d)/base {
			over = true
		}
		n = n*base + d
	}
	if i == from {
		return 0, false
	}
	for i < len(s) && vm.IsSpace(s[i]) {
		i++
	}
	switch {
	case i < len(s):
		return 0, false
	case over:
		n = math.MaxUint64
	case negative:
		n = -n
	}
	return float64(n), true
}

func baseToString(L *vm.LState) int {
	v := L.CheckAny(1)
	if fn := L.GetMetaField(v, "__tostring"); fn != vm.LNil {
		L.Push(fn)
		L.Push(v)
		L.Call(1, 1)
		return 1
	}
	if s, ok := v.(vm.LString); ok {
		L.Push(s)
	} else {
		L.PushString(v.String())
	}
	return 1
}

func baseType(L *vm.LState) int {
	L.Push(typeNames[L.CheckAny(1).Type()])
	return 1
}

var typeNames = func() (names [vm.LTTable + 1]vm.LValue) {
	for t := range names {
		names[t] = vm.LString(vm.LValueType(t).String())
	}
	return names
}()

func baseUnpack(L *vm.LState) int {
	t := L.CheckTable(1)
	from := L.OptInt(2, 1)
	to := 0
	if L.Get(3) == vm.LNil {
		to = t.Len()
	} else {
		to = L.CheckInt(3)
	}
	if from > to {
		return 0
	}
	n := to - from + 1
	if n > math.MaxInt32 || !L.StackRoom(n) {
		L.RaiseError("too many results to unpack")
	}
	L.Charge(n/4, 0)
	for i := from; i <= to; i++ {
		L.Push(t.RawGetInt(i))
	}
	return n
}

var coroutineFunctions = []named{
	{"create", coroutineCreate}, {"resume", coroutineResume}, {"running", coroutineRunning},
	{"status", coroutineStatus}, {"wrap", coroutineWrap}, {"yield", coroutineYield},
}

func newCoroutine(L *vm.LState) *vm.LState {
	fn, ok := L.Get(1).(*vm.LFunction)
	if !ok || fn.IsGo() {
		L.ArgError(1, "Lua function expected")
	}
	return L.NewThread(fn)
}

func coroutineCreate(L *vm.LState) int {
	L.Push(newCoroutine(L))
	return 1
}

func checkThread(L *vm.LState) *vm.LState {
	co, ok := L.Get(1).(*vm.LState)
	if !ok {
		L.ArgError(1, "coroutine expected")
	}
	return co
}

func coroutineResume(L *vm.LState) int {
	co := checkThread(L)
	n, ok := L.Resume(co, L.GetTop()-1)
	L.Insert(vm.LBool(ok), -n)
	return n + 1
}

func coroutineWrap(L *vm.LState) int {
	co := newCoroutine(L)
	L.Push(L.NewFunction(func(L *vm.LState) int {
		n, ok := L.Resume(co, L.GetTop())
		if !ok {
			v := L.Get(-1)
			if vm.LVCanConvToString(v) {
				v = vm.LString(L.Where(1) + vm.LVAsString(v))
			}
			L.Throw(v)
		}
		return n
	}))
	return 1
}

func coroutineRunning(L *vm.LState) int {
	if L.IsMain() {
		L.Push(vm.LNil)
	} else {
		L.Push(L)
	}
	return 1
}

func coroutineStatus(L *vm.LState) int {
	L.PushString(checkThread(L).Status())
	return 1
}

func coroutineYield(L *vm.LState) int { return L.Yield() }
