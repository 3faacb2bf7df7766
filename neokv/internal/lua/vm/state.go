package vm

import (
	"fmt"
)

// Limits bound a run. They are counted, so that a run ends at the same instruction wherever it runs.
type Limits struct {
	Steps int64 // instructions, and the work of libraries in like units
	Bytes int64 // of strings, tables, closures and stacks made, also of those that are garbage by now
}

// LimitError ends a run at a limit. Scripts cannot catch it.
type LimitError struct{ What string }

func (e *LimitError) Error() string { return "script exceeds its limit of " + e.What }

// What a LimitError names.
const (
	LimitSteps = "instructions"
	LimitBytes = "bytes"
)

// LuaError is an error that a script or a library raised. Scripts catch it with pcall.
type LuaError struct{ Value LValue }

func (e *LuaError) Error() string { return e.Value.String() }

// Bounds of depth, as in PUC-Rio's Lua.
const (
	maxFrames  = 19999 // calls within each other
	maxGoCalls = 199   // calls of Lua from libraries and metamethods within each other
	maxResults = 8000  // values that a library may push
	minStack   = 20    // values that a library may push without asking
	maxLoop    = 100   // tables that __index goes through
)

// global is what the threads of a state share.
type global struct {
	steps, bytes int64
	later        int64       // instructions that a run may use besides steps, when look allows them
	look         func() bool // nil: later is 0
	ids          uint64
	goCalls      int
	stringMeta   *LTable
	main         *LState
	current      *LState
}

// bytesPerStep is how many bytes of memory cost as much as an instruction: to allocate, clear and collect them.
const bytesPerStep = 32

func (g *global) charge(steps, bytes int) {
	before := g.bytes / bytesPerStep
	g.bytes -= int64(bytes)
	g.steps -= int64(steps) + before - g.bytes/bytesPerStep
	if g.steps < 0 || g.bytes < 0 {
		g.exceeded()
	}
}

// lookEvery is after how many instructions a run asks whether it may go on.
const lookEvery = 10_000

// exceeded ends the run, unless only steps are used up and look allows more.
func (g *global) exceeded() {
	for g.steps < 0 && g.bytes >= 0 && g.later > 0 {
		if !g.look() {
			panic(&LimitError{})
		}
		more := min(g.later, lookEvery)
		g.steps, g.later = g.steps+more, g.later-more
	}
	if g.steps >= 0 && g.bytes >= 0 {
		return
	}
	what := LimitSteps
	if g.steps >= 0 {
		what = LimitBytes
	}
	panic(&LimitError{What: what})
}

type status uint8

const (
	suspended status = iota
	running
	normal // it resumed another one
	dead
)

// LState is a thread of Lua: the main one, which NewState makes, or a coroutine.
type LState struct {
	g      *global
	Env    *LTable // the globals
	stack  []LValue
	top    int // the first free value
	frames []frame
	open   []*upvalue // by index, those that still lie in the stack

	id       uint64
	high     int // what the stack was charged for
	highCall int // and the frames
	status   status
	resumer  *LState
	nested   int // calls of Lua from Go since the thread was resumed: no yield goes through them
	yielding bool
	handling bool // an error
}

type frame struct {
	fn    *LFunction
	base  int // the first register or argument
	ret   int // where the function stood, and its results go
	pc    int // of the next instruction
	want  int // results; -1: all
	tail  int // frames that tail calls replaced
	entry bool
}

// upvalue is a variable that closures share. It points into a stack until the variable's block ends.
type upvalue struct {
	at    *LValue
	index int
	value LValue
}

// Events for which a metatable may have a function.
type event uint8

const (
	evIndex event = iota
	evNewIndex
	evEq
	evCall // the ones before are cached in LTable.absent, and this one
	evLen
	evLt
	evLe
	evConcat
	evUnm
	evAdd
	evSub
	evMul
	evDiv
	evMod
	evPow
	eventCount
)

var eventNames = [eventCount]string{
	"__index", "__newindex", "__eq", "__call", "__len", "__lt", "__le", "__concat", "__unm", "__add", "__sub", "__mul",
	"__div", "__mod", "__pow",
}

var eventHashes = func() (h [eventCount]int) {
	for i, name := range eventNames {
		h[i] = int(stringHash(name))
	}
	return h
}()

// NewState makes a state without a library.
func NewState() *LState {
	g := &global{steps: 1 << 62, bytes: 1 << 62}
	L := &LState{g: g, status: running, stack: make([]LValue, 256)}
	g.main, g.current = L, L
	L.Env = g.newTable(0, 32)
	return L
}

// Begin starts the counts of a run. IDs of what the run makes follow those of what was made before Mark. look, if it is
// not nil, is asked now and then whether the run may go on.
func (L *LState) Begin(limits Limits, look func() bool) {
	L.g.steps, L.g.bytes, L.g.later, L.g.look = limits.Steps, limits.Bytes, 0, look
	if look != nil {
		L.g.steps = min(limits.Steps, lookEvery)
		L.g.later = limits.Steps - L.g.steps
	}
}

// Left is what the run may still use.
func (L *LState) Left() Limits { return Limits{Steps: L.g.steps + L.g.later, Bytes: L.g.bytes} }

// Mark and Reset make all runs of a kept state begin alike: Reset forgets what the stack holds, and numbers new tables
// and functions from mark on.
func (L *LState) Mark() uint64 { return L.g.ids }

// Reset is for the main thread outside of a run.
func (L *LState) Reset(mark uint64) {
	L.g.ids, L.g.goCalls, L.g.current = mark, 0, L
	clear(L.stack[:min(len(L.stack), L.high)])
	if len(L.stack) > 1<<12 {
		L.stack = make([]LValue, 256)
	}
	if cap(L.frames) > 1<<8 {
		L.frames = nil
	}
	clear(L.frames[:cap(L.frames)])
	clear(L.open[:cap(L.open)])
	L.frames, L.open = L.frames[:0], L.open[:0]
	L.top, L.high, L.highCall, L.nested = 0, 0, 0, 0
	L.status, L.yielding, L.handling = running, false, false
}

// Charge tells what a library does: steps are instructions or like work, bytes what it makes for the script. At a limit
// it does not return. Charge before the work, so that no script makes a library do more than its limit.
func (L *LState) Charge(steps, bytes int) { L.g.charge(steps, bytes) }

// The stack.

func (L *LState) grow(to int) {
	if to > len(L.stack) {
		stack := make([]LValue, max(to, 2*len(L.stack)))
		copy(stack, L.stack)
		L.stack = stack
		for _, u := range L.open {
			u.at = &stack[u.index]
		}
	}
	if to > L.high {
		L.g.charge(0, valueBytes*(to-L.high))
		L.high = to
	}
}

// GetTop is the number of arguments, and of what was pushed since.
func (L *LState) GetTop() int { return L.top - L.base() }

func (L *LState) base() int {
	if n := len(L.frames); n > 0 {
		return L.frames[n-1].base
	}
	return 0
}

// SetTop drops values, or adds nils.
func (L *LState) SetTop(n int) {
	to := L.base() + n
	if to > L.top {
		L.grow(to)
		for i := L.top; i < to; i++ {
			L.stack[i] = LNil
		}
	}
	L.top = to
}

func (L *LState) index(n int) int {
	if n > 0 {
		return L.base() + n - 1
	}
	return L.top + n
}

// Get is argument n, from 1 on, or the nth value from the top for -n. It is LNil if there is none.
func (L *LState) Get(n int) LValue {
	if i := L.index(n); i >= L.base() && i < L.top {
		return L.stack[i]
	}
	return LNil
}

// Push adds a value.
func (L *LState) Push(v LValue) {
	if L.top >= L.high {
		L.grow(L.top + 1)
	}
	L.stack[L.top] = v
	L.top++
}

// PushString adds a string and charges its length.
func (L *LState) PushString(s string) {
	L.g.charge(len(s)>>6, len(s)+valueBytes)
	L.Push(LString(s))
}

// PushNumber adds a number.
func (L *LState) PushNumber(f float64) { L.Push(Number(f)) }

// Pop drops n values.
func (L *LState) Pop(n int) { L.top -= n }

// Insert puts v at n and moves what is there up.
func (L *LState) Insert(v LValue, n int) {
	i := L.index(n)
	L.Push(LNil)
	copy(L.stack[i+1:L.top], L.stack[i:L.top-1])
	L.stack[i] = v
}

// Replace sets the value at n.
func (L *LState) Replace(n int, v LValue) { L.stack[L.index(n)] = v }

// Remove takes the value at n out.
func (L *LState) Remove(n int) {
	i := L.index(n)
	copy(L.stack[i:], L.stack[i+1:L.top])
	L.top--
}

// CheckStack raises an error if a library may not push n values.
func (L *LState) CheckStack(n int, message string) {
	if n > maxResults || L.GetTop()+n > maxResults {
		L.RaiseError("stack overflow (%s)", message)
	}
	L.grow(L.top + n)
}

// StackRoom says whether a library may push n values.
func (L *LState) StackRoom(n int) bool { return n <= maxResults && L.GetTop()+n <= maxResults }

// Functions.

// NewFunction makes a function of a library.
func (L *LState) NewFunction(fn LGFunction) *LFunction {
	L.g.charge(0, tableBytes)
	L.g.ids++
	return &LFunction{Go: fn, Env: L.Env, id: L.g.ids}
}

// NewUserData makes a value that only libraries understand.
func (L *LState) NewUserData(v any) *LUserData {
	L.g.charge(0, tableBytes)
	L.g.ids++
	return &LUserData{Value: v, id: L.g.ids}
}

// Load makes a function of a compiled chunk.
func (L *LState) Load(p *Proto) *LFunction { return L.closure(p, L.Env, 0) }

// CompileChunk compiles for a script, which pays for it.
func (L *LState) CompileChunk(text, name string) (*LFunction, error) {
	// A constant or an instruction takes less than 64 bytes of text's one or two.
	L.g.charge(len(text), 64*len(text)+1024)
	p, err := Compile(text, name)
	if err != nil {
		return nil, err
	}
	return L.Load(p), nil
}

func (L *LState) closure(p *Proto, env *LTable, upvalues int) *LFunction {
	L.g.charge(0, tableBytes+8*upvalues)
	L.g.ids++
	f := &LFunction{proto: p, Env: env, id: L.g.ids}
	if upvalues > 0 {
		f.upvalues = make([]*upvalue, upvalues)
	}
	return f
}

func (L *LState) findUpvalue(index int) *upvalue {
	i := len(L.open)
	for i > 0 && L.open[i-1].index > index {
		i--
	}
	if i > 0 && L.open[i-1].index == index {
		return L.open[i-1]
	}
	L.g.charge(len(L.open)-i, 64)
	u := &upvalue{at: &L.stack[index], index: index}
	L.open = append(L.open, nil)
	copy(L.open[i+1:], L.open[i:])
	L.open[i] = u
	return u
}

func (L *LState) closeUpvalues(from int) {
	n := len(L.open)
	for n > 0 && L.open[n-1].index >= from {
		n--
		u := L.open[n]
		u.value = *u.at
		u.at = &u.value
		L.open[n] = nil
	}
	L.open = L.open[:n]
}

// Calls.

// push opens a frame.
func (L *LState) push(f frame) {
	n := len(L.frames)
	if n >= L.highCall {
		if n >= maxFrames {
			// A handler of the error has some room beyond.
			if n >= maxFrames+maxFrames/8 {
				panic(&LuaError{Value: LString("error in error handling")})
			}
			if !L.handling {
				L.runtimeError("stack overflow")
			}
		}
		L.g.charge(0, 64)
		L.highCall = n + 1
	}
	L.frames = append(L.frames, f)
}

// callGo runs a function of a library whose arguments lie behind it, up to the top.
func (L *LState) callGo(fn *LFunction, at, want int) {
	L.push(frame{fn: fn, base: at + 1, ret: at, want: want})
	if L.top+minStack > L.high {
		L.grow(L.top + minStack)
	}
	n := fn.Go(L)
	if !L.yielding {
		L.leave(L.top-n, n)
	}
}

// leave closes the last frame, whose n results begin at first.
func (L *LState) leave(first, n int) {
	f := &L.frames[len(L.frames)-1]
	ret, want := f.ret, f.want
	f.fn = nil
	L.frames = L.frames[:len(L.frames)-1]
	if want < 0 {
		copy(L.stack[ret:], L.stack[first:first+n])
		L.top = ret + n
		return
	}
	if n > want {
		n = want
	}
	copy(L.stack[ret:], L.stack[first:first+n])
	for i := ret + n; i < ret+want; i++ {
		L.stack[i] = LNil
	}
	L.top = ret + want
}

// enter opens a frame of Lua.
func (L *LState) enter(fn *LFunction, at, want, tail int, entry bool) {
	p := fn.proto
	base, n := at+1, L.top-at-1
	if p.vararg == 0 {
		if need := base + p.stack; need > L.high {
			L.grow(need)
		}
		for i := base + n; i < base+p.params; i++ {
			L.stack[i] = LNil
		}
	} else {
		base = L.varargs(p, base, n)
	}
	// Registers begin as nil, but for the parameters.
	for i, end := base+p.params, base+p.stack; i < end; i++ {
		L.stack[i] = LNil
	}
	if p.vararg&hasArg != 0 && p.vararg&needsArg != 0 {
		L.stack[base+p.params] = L.argTable(at+1+p.params, max(0, n-p.params))
	}
	L.top = base + p.stack
	L.push(frame{fn: fn, base: base, ret: at, want: want, tail: tail, entry: entry})
}

// varargs moves the parameters behind all arguments, so that the others stay below the frame.
func (L *LState) varargs(p *Proto, base, n int) int {
	n = max(n, p.params)
	L.grow(base + n + p.stack)
	for i := L.top; i < base+n; i++ {
		L.stack[i] = LNil
	}
	for i := 0; i < p.params; i++ {
		L.stack[base+n+i] = L.stack[base+i]
		L.stack[base+i] = LNil
	}
	return base + n
}

func (L *LState) argTable(from, n int) LValue {
	t := L.g.newTable(n, 1)
	for i := 0; i < n; i++ {
		t.RawSetInt(i+1, L.stack[from+i])
	}
	t.RawSetString("n", Number(float64(n)))
	return t
}

// function is what a call of the value at a place calls; a metamethod gets the value as its first argument.
func (L *LState) function(at int) *LFunction {
	v := L.stack[at]
	if f, ok := v.(*LFunction); ok {
		return f
	}
	f, ok := L.metamethod(v, evCall).(*LFunction)
	if !ok {
		L.typeError(at, v, "call")
	}
	L.Push(LNil)
	copy(L.stack[at+1:L.top], L.stack[at:L.top-1])
	L.stack[at] = f
	return f
}

// Call calls the function that was pushed before its nargs arguments. Its results take their place: nret, or all for
// -1.
func (L *LState) Call(nargs, nret int) {
	at := L.top - nargs - 1
	g := L.g
	if g.goCalls >= maxGoCalls {
		if g.goCalls >= maxGoCalls+maxGoCalls/8 {
			panic(&LuaError{Value: LString("error in error handling")})
		}
		if g.goCalls == maxGoCalls {
			g.goCalls++
			L.runtimeError("C stack overflow")
		}
	}
	g.goCalls++
	L.nested++
	g.charge(1, 0)
	if fn := L.function(at); fn.Go != nil {
		L.callGo(fn, at, nret)
	} else {
		L.enter(fn, at, nret, 0, true)
		L.execute()
	}
	L.nested--
	g.goCalls--
}

// PCall is Call whose error it returns; the stack is then as before the function was pushed. A handler gets the error
// where it was raised, and its result is the error.
func (L *LState) PCall(nargs, nret int, handler *LFunction) (err *LuaError) {
	at, frames, nested, goCalls := L.top-nargs-1, len(L.frames), L.nested, L.g.goCalls
	defer func() {
		r := recover()
		if r == nil {
			return
		}
		e, ok := r.(*LuaError)
		if !ok {
			panic(r)
		}
		if handler != nil {
			e = L.handle(handler, e)
		}
		L.unwind(frames, at)
		L.nested, L.g.goCalls = nested, goCalls
		err = e
	}()
	L.Call(nargs, nret)
	return nil
}

func (L *LState) unwind(frames, top int) {
	L.closeUpvalues(top)
	clear(L.frames[frames:])
	L.frames = L.frames[:frames]
	L.top = top
}

// handle runs a handler above the frames of the error.
func (L *LState) handle(handler *LFunction, e *LuaError) (result *LuaError) {
	defer func() {
		if r := recover(); r != nil {
			if _, ok := r.(*LuaError); !ok {
				panic(r)
			}
			result = &LuaError{Value: LString("error in error handling")}
		}
	}()
	defer func(was bool) { L.handling = was }(L.handling)
	L.handling = true
	L.Push(handler)
	L.Push(e.Value)
	L.Call(1, 1)
	L.top--
	return &LuaError{Value: L.stack[L.top]}
}

// Coroutines.

// NewThread makes a coroutine that will run fn.
func (L *LState) NewThread(fn *LFunction) *LState {
	L.g.charge(0, 1024)
	L.g.ids++
	co := &LState{g: L.g, Env: L.Env, id: L.g.ids, stack: make([]LValue, 32)}
	co.Push(fn)
	return co
}

// Current is the thread that runs.
func (L *LState) Current() *LState { return L.g.current }

// IsMain says whether L is the main thread.
func (L *LState) IsMain() bool { return L.g.main == L }

// Status is what coroutine.status says.
func (L *LState) Status() string {
	return [...]string{"suspended", "running", "normal", "dead"}[L.status]
}

// Resume goes on with co, handing it the top n values of L, and puts what it yields or returns in their place. Without
// success that is one value, the error.
func (L *LState) Resume(co *LState, n int) (results int, ok bool) {
	if co.status != suspended {
		L.top -= n
		L.PushString("cannot resume " + co.Status() + " coroutine")
		return 1, false
	}
	g := L.g
	if g.goCalls >= maxGoCalls {
		L.top -= n
		L.PushString("C stack overflow")
		return 1, false
	}
	co.grow(co.top + n + minStack)
	copy(co.stack[co.top:], L.stack[L.top-n:L.top])
	co.top += n
	L.top -= n
	goCalls := g.goCalls
	g.goCalls++
	L.status, co.status, co.resumer, g.current = normal, running, L, co
	err := co.run(n)
	L.status, co.resumer, g.current, g.goCalls = running, nil, L, goCalls
	if err != nil {
		co.status = dead
		co.closeUpvalues(0)
		L.Push(err.Value)
		return 1, false
	}
	from := 0
	if co.yielding {
		co.yielding = false
		co.status = suspended
		from = co.frames[len(co.frames)-1].base
	} else {
		co.status = dead
	}
	n = co.top - from
	L.grow(L.top + n + minStack)
	copy(L.stack[L.top:], co.stack[from:co.top])
	L.top += n
	co.top = from
	return n, true
}

func (L *LState) run(args int) (err *LuaError) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*LuaError)
			if !ok {
				panic(r)
			}
			err = e
		}
	}()
	L.nested = 0
	if len(L.frames) == 0 {
		if fn := L.stack[0].(*LFunction); fn.Go != nil {
			L.callGo(fn, 0, -1)
		} else {
			L.enter(fn, 0, -1, 0, true)
			L.execute()
		}
		return nil
	}
	// The frame of the yield is the last one.
	L.leave(L.top-args, args)
	if n := len(L.frames); n > 0 {
		if f := &L.frames[n-1]; L.returnedTo(f) {
			L.top = f.base + f.fn.proto.stack
		}
		L.execute()
	}
	return nil
}

// returnedTo says whether the call under way in a frame of Lua has a fixed number of results.
func (L *LState) returnedTo(f *frame) bool {
	i := f.fn.proto.code[f.pc-1]
	return i.op() != opTailCall && i.c() != 0
}

// Yield suspends L. What lies on the stack is what Resume gets. A library returns its result.
func (L *LState) Yield() int {
	if L.resumer == nil || L.nested > 0 {
		L.runtimeError("attempt to yield across metamethod/C-call boundary")
	}
	L.yielding = true
	return L.GetTop()
}

// Errors.

// RaiseError raises a message, with the place of the call of the library before it.
func (L *LState) RaiseError(format string, args ...any) {
	L.Throw(LString(L.Where(1) + fmt.Sprintf(format, args...)))
}

// errorSteps is what it takes to raise an error and to catch it.
const errorSteps = 50

// Throw raises a value.
func (L *LState) Throw(v LValue) {
	size := 0
	if s, ok := v.(LString); ok {
		size = len(s)
	}
	L.g.charge(errorSteps, size)
	panic(&LuaError{Value: v})
}

// runtimeError raises a message with the place of the instruction under way.
func (L *LState) runtimeError(format string, args ...any) {
	L.Throw(LString(L.Where(0) + fmt.Sprintf(format, args...)))
}

// ArgError raises a message about argument n.
func (L *LState) ArgError(n int, message string) {
	name := "?"
	if len(L.frames) > 0 {
		kind, s := L.functionName(len(L.frames) - 1)
		if kind == "method" {
			if n--; n == 0 {
				L.RaiseError("calling '%s' on bad self (%s)", s, message)
			}
		}
		if kind != "" {
			name = s
		}
	}
	L.RaiseError("bad argument #%d to '%s' (%s)", n, name, message)
}

// TypeError raises that argument n is not what it should be.
func (L *LState) TypeError(n int, want string) {
	L.ArgError(n, want+" expected, got "+L.typeNameAt(n))
}

func (L *LState) typeNameAt(n int) string {
	if n > L.GetTop() {
		return "no value"
	}
	return L.Get(n).Type().String()
}

// Arguments.

// CheckAny is an argument that must be there.
func (L *LState) CheckAny(n int) LValue {
	if n > L.GetTop() {
		L.ArgError(n, "value expected")
	}
	return L.Get(n)
}

// CheckType raises an error unless argument n has a type.
func (L *LState) CheckType(n int, t LValueType) {
	if n > L.GetTop() || L.Get(n).Type() != t {
		L.TypeError(n, t.String())
	}
}

// CheckNumber is a number, or a string that holds one.
func (L *LState) CheckNumber(n int) LNumber {
	f, ok := ToNumber(L.Get(n))
	if !ok {
		L.TypeError(n, "number")
	}
	return LNumber(f)
}

// CheckInt is a number as a C int, as lua_Integer would become one.
func (L *LState) CheckInt(n int) int { return Int32(float64(L.CheckNumber(n))) }

// CheckInt64 is a number as an integer of C.
func (L *LState) CheckInt64(n int) int64 { return Int64(float64(L.CheckNumber(n))) }

// OptNumber is CheckNumber, or d for none and nil.
func (L *LState) OptNumber(n int, d LNumber) LNumber {
	if L.Get(n) == LNil {
		return d
	}
	return L.CheckNumber(n)
}

// OptInt is CheckInt, or d for none and nil.
func (L *LState) OptInt(n int, d int) int {
	if L.Get(n) == LNil {
		return d
	}
	return L.CheckInt(n)
}

// OptInt64 is CheckInt64, or d for none and nil.
func (L *LState) OptInt64(n int, d int64) int64 {
	if L.Get(n) == LNil {
		return d
	}
	return L.CheckInt64(n)
}

// CheckString is a string, or the text of a number.
func (L *LState) CheckString(n int) string {
	v := L.Get(n)
	switch v := v.(type) {
	case LString:
		return string(v)
	case LNumber:
		return v.String()
	}
	L.TypeError(n, "string")
	return ""
}

// OptString is CheckString, or d for none and nil.
func (L *LState) OptString(n int, d string) string {
	if L.Get(n) == LNil {
		return d
	}
	return L.CheckString(n)
}

// CheckTable is a table.
func (L *LState) CheckTable(n int) *LTable {
	t, ok := L.Get(n).(*LTable)
	if !ok {
		L.TypeError(n, "table")
	}
	return t
}

// CheckFunction is a function.
func (L *LState) CheckFunction(n int) *LFunction {
	f, ok := L.Get(n).(*LFunction)
	if !ok {
		L.TypeError(n, "function")
	}
	return f
}

// Tables, with metamethods.

// GetTable is t[key].
func (L *LState) GetTable(t, key LValue) LValue { return L.getIndex(t, key, -1) }

// GetField is t[key].
func (L *LState) GetField(t LValue, key string) LValue { return L.getIndex(t, LString(key), -1) }

// SetTable is t[key] = v.
func (L *LState) SetTable(t, key, v LValue) { L.setIndex(t, key, v, -1) }

// SetField is t[key] = v.
func (L *LState) SetField(t LValue, key string, v LValue) { L.setIndex(t, LString(key), v, -1) }

// GetGlobal is a global.
func (L *LState) GetGlobal(name string) LValue { return L.Env.RawGetString(name) }

// SetGlobal sets a global.
func (L *LState) SetGlobal(name string, v LValue) { L.Env.RawSetString(name, v) }

// RawSet is t[key] = v without metamethods, for scripts: it raises an error for a key that is nil or NaN, and for a
// table that is readonly.
func (L *LState) RawSet(t *LTable, key, v LValue) {
	if t.readonly {
		L.runtimeError("Attempt to modify a readonly table")
	}
	switch k := key.(type) {
	case *nilType:
		L.runtimeError("table index is nil")
	case LNumber:
		if k != k {
			L.runtimeError("table index is NaN")
		}
	}
	t.RawSet(key, v)
}

// RawSetInt is t[i] = v without metamethods, for scripts.
func (L *LState) RawSetInt(t *LTable, i int, v LValue) {
	if t.readonly {
		L.runtimeError("Attempt to modify a readonly table")
	}
	t.RawSetInt(i, v)
}

// Next is the entry behind key, or LNil at the end. It raises an error if t has no such key.
func (L *LState) Next(t *LTable, key LValue) (k, v LValue) {
	k, v, ok := t.Next(key)
	if !ok {
		L.runtimeError("invalid key to 'next'")
	}
	return k, v
}

// Metatable is that of a value, or nil.
func (L *LState) Metatable(v LValue) *LTable {
	switch v := v.(type) {
	case *LTable:
		return v.meta
	case LString:
		return L.g.stringMeta
	}
	return nil
}

// SetMetatable sets the metatable of a table, which may not be readonly.
func (L *LState) SetMetatable(t, meta *LTable) {
	if t.readonly {
		L.runtimeError("Attempt to modify a readonly table")
	}
	t.meta = meta
}

// SetStringMetatable sets the metatable of all strings.
func (L *LState) SetStringMetatable(meta *LTable) { L.g.stringMeta = meta }

// GetMetaField is a field of the metatable of v, or LNil.
func (L *LState) GetMetaField(v LValue, name string) LValue {
	if m := L.Metatable(v); m != nil {
		return m.RawGetString(name)
	}
	return LNil
}

// Compare and Equal are < and ==.

// LessThan is a < b.
func (L *LState) LessThan(a, b LValue) bool { return L.lessThan(a, b) }

// RawEqual is a == b without metamethods.
func (L *LState) RawEqual(a, b LValue) bool { return L.equalCharged(a, b) }
