package vm

import (
	"strings"
)

// execute runs the last frame, and those that it calls, until it returns or yields.
func (L *LState) execute() {
	g := L.g
newFrame:
	f := &L.frames[len(L.frames)-1]
	fn := f.fn
	p := fn.proto
	code, k := p.code, p.constants
	base := f.base
	top := base + p.stack
	r := L.stack[base:top:top]
	pc := f.pc
	for {
		i := code[pc]
		pc++
		f.pc = pc
		if g.steps--; g.steps < 0 {
			g.exceeded()
		}
		a := int(i >> 6 & 255)
		switch opcode(i & 63) {
		case opMove:
			r[a] = r[i>>23]
		case opLoadK:
			r[a] = k[i>>14]
		case opLoadBool:
			if i.b() != 0 {
				r[a] = LTrue
			} else {
				r[a] = LFalse
			}
			if i.c() != 0 {
				pc++
			}
		case opLoadNil:
			for b := i.b(); a <= b; a++ {
				r[a] = LNil
			}
		case opGetUpval:
			r[a] = *fn.upvalues[i>>23].at
		case opSetUpval:
			*fn.upvalues[i>>23].at = r[a]
		case opGetGlobal:
			n := i >> 14
			if v := fn.Env.constantString(k[n], p.hashes[n]); v != LNil {
				r[a] = v
				continue
			}
			v := L.getIndex(fn.Env, k[n], -1)
			f, r = L.reload(base, top)
			r[a] = v
		case opSetGlobal:
			L.setIndex(fn.Env, k[i>>14], r[a], -1)
			f, r = L.reload(base, top)
		case opGetTable:
			b, c := i.b(), i.c()
			if t, ok := r[b].(*LTable); ok {
				if c >= constantBit {
					c &= maxConstantR
					var v LValue
					if h := p.hashes[c]; h != 0 {
						v = t.constantString(k[c], h)
					} else {
						v = t.RawGet(k[c])
					}
					if v != LNil || t.meta == nil {
						r[a] = v
						continue
					}
				} else if v := t.RawGet(r[c]); v != LNil || t.meta == nil {
					r[a] = v
					continue
				}
			}
			v := L.getIndex(r[b], rk(r, k, i.c()), b)
			f, r = L.reload(base, top)
			r[a] = v
		case opSetTable:
			b, c := i.b(), i.c()
			key, v := rk(r, k, b), rk(r, k, c)
			if t, ok := r[a].(*LTable); ok && t.meta == nil && !t.readonly {
				if n, ok := key.(LNumber); ok {
					if j := int64(n); j > 0 && j <= int64(len(t.array)) && LNumber(j) == n {
						t.array[j-1] = v
						continue
					}
				}
			}
			L.setIndex(r[a], key, v, a)
			f, r = L.reload(base, top)
		case opNewTable:
			r[a] = g.newTable(decodeSize(i.b()), decodeSize(i.c()))
		case opSelf:
			b, c := i.b(), i.c()
			o := r[b]
			r[a+1] = o
			v := L.getIndex(o, rk(r, k, c), b)
			f, r = L.reload(base, top)
			r[a] = v
		case opAdd, opSub, opMul, opDiv, opMod, opPow:
			b, c := rk(r, k, i.b()), rk(r, k, i.c())
			if x, ok := b.(LNumber); ok {
				if y, ok := c.(LNumber); ok {
					var n LNumber
					switch opcode(i & 63) {
					case opAdd:
						n = x + y
					case opSub:
						n = x - y
					case opMul:
						n = x * y
					case opDiv:
						n = x / y
					case opPow: // its NaNs have signs of their own
						g.charge(20, 0)
						r[a] = Number(Pow(float64(x), float64(y)))
						continue
					default:
						n = LNumber(arith(i.op(), float64(x), float64(y)))
					}
					if n != n {
						n = LNumber(nan(float64(x), float64(y)))
					}
					r[a] = Number(float64(n))
					continue
				}
			}
			v := L.arithmetic(i.op(), b, c, i.b(), i.c())
			f, r = L.reload(base, top)
			r[a] = v
		case opUnm:
			b := i.b()
			v := r[b]
			if x, ok := v.(LNumber); ok {
				r[a] = Number(-float64(x))
				continue
			}
			v = L.arithmetic(opUnm, v, v, b, b)
			f, r = L.reload(base, top)
			r[a] = v
		case opNot:
			r[a] = LBool(LVIsFalse(r[i.b()]))
		case opLen:
			b := i.b()
			switch v := r[b].(type) {
			case *LTable:
				r[a] = Number(float64(v.Len()))
			case LString:
				r[a] = Number(float64(len(v)))
			default:
				v = L.length(v, b)
				f, r = L.reload(base, top)
				r[a] = v
			}
		case opConcat:
			b, c := i.b(), i.c()
			v := L.concat(base+b, base+c, b)
			f, r = L.reload(base, top)
			r[a] = v
		case opJmp:
			pc += i.sbx()
		case opEq:
			b, c := rk(r, k, i.b()), rk(r, k, i.c())
			equal := L.equal(b, c)
			f, r = L.reload(base, top)
			if equal != (a != 0) {
				pc++
			}
		case opLt, opLe:
			b, c := rk(r, k, i.b()), rk(r, k, i.c())
			var less bool
			x, ok := b.(LNumber)
			y, ok2 := c.(LNumber)
			switch {
			case ok && ok2 && opcode(i&63) == opLt:
				less = x < y
			case ok && ok2:
				less = x <= y
			case opcode(i&63) == opLt:
				less = L.lessThan(b, c)
				f, r = L.reload(base, top)
			default:
				less = L.lessEqual(b, c)
				f, r = L.reload(base, top)
			}
			if less != (a != 0) {
				pc++
			}
		case opTest:
			if LVIsFalse(r[a]) == (i.c() != 0) {
				pc++
			}
		case opTestSet:
			if v := r[i.b()]; LVIsFalse(v) == (i.c() != 0) {
				pc++
			} else {
				r[a] = v
			}
		case opCall:
			at, want := base+a, i.c()-1
			if b := i.b(); b != 0 {
				L.top = at + b
			}
			callee, ok := r[a].(*LFunction)
			if !ok {
				callee = L.function(at)
			}
			if callee.Go == nil {
				L.enter(callee, at, want, 0, false)
				goto newFrame
			}
			L.callGo(callee, at, want)
			if L.yielding {
				return
			}
			f, r = L.reload(base, top)
			if want >= 0 {
				L.top = top
			}
		case opTailCall:
			at := base + a
			if b := i.b(); b != 0 {
				L.top = at + b
			}
			callee, ok := r[a].(*LFunction)
			if !ok {
				callee = L.function(at)
			}
			if callee.Go != nil {
				// The return that follows hands all results on.
				L.callGo(callee, at, -1)
				if L.yielding {
					return
				}
				f, r = L.reload(base, top)
				continue
			}
			L.closeUpvalues(base)
			ret, want, tail, entry := f.ret, f.want, f.tail, f.entry
			n := copy(L.stack[ret:], L.stack[at:L.top])
			L.top = ret + n
			f.fn = nil
			L.frames = L.frames[:len(L.frames)-1]
			L.enter(callee, ret, want, tail+1, entry)
			goto newFrame
		case opReturn:
			first := base + a
			n := i.b() - 1
			if n < 0 {
				n = L.top - first
			}
			if len(L.open) > 0 {
				L.closeUpvalues(base)
			}
			entry, want := f.entry, f.want
			L.leave(first, n)
			if entry {
				return
			}
			if want >= 0 {
				f = &L.frames[len(L.frames)-1]
				L.top = f.base + f.fn.proto.stack
			}
			goto newFrame
		case opForLoop:
			// opForPrep made these numbers.
			step, limit := r[a+2].(LNumber), r[a+1].(LNumber)
			n := r[a].(LNumber) + step
			if step > 0 && n <= limit || step <= 0 && limit <= n {
				pc += i.sbx()
				v := Number(float64(n))
				r[a], r[a+3] = v, v
			}
		case opForPrep:
			for j, what := range [...]string{"initial value", "limit", "step"} {
				n, ok := ToNumber(r[a+j])
				if !ok {
					L.runtimeError("'for' %s must be a number", what)
				}
				r[a+j] = Number(n)
			}
			r[a] = Number(arith(opSub, float64(r[a].(LNumber)), float64(r[a+2].(LNumber))))
			pc += i.sbx()
		case opTForLoop:
			at := base + a + 3
			c := i.c()
			if at+3+minStack > L.high {
				L.grow(at + 3 + minStack)
			}
			copy(L.stack[at:at+3], L.stack[base+a:at])
			L.top = at + 3
			if callee, ok := L.stack[at].(*LFunction); ok && callee.Go != nil {
				L.nested++
				L.callGo(callee, at, c)
				L.nested--
			} else {
				L.Call(2, c)
			}
			L.top = top
			f, r = L.reload(base, top)
			if v := r[a+3]; v != LNil {
				r[a+2] = v
			} else {
				pc++
			}
		case opSetList:
			n, c := i.b(), i.c()
			if n == 0 {
				n = L.top - base - a - 1
				L.top = top
			}
			if c == 0 {
				c = int(code[pc])
				pc++
			}
			t := r[a].(*LTable)
			last := (c-1)*fieldsPerSet + n
			g.charge(n/4, 0)
			if last > len(t.array) {
				t.resizeArray(last)
			}
			for j := n; j > 0; j-- {
				t.RawSetInt(last, L.stack[base+a+j])
				last--
			}
		case opClose:
			L.closeUpvalues(base + a)
		case opClosure:
			inner := p.protos[i>>14]
			c := L.closure(inner, fn.Env, len(inner.upvalues))
			for j := range c.upvalues {
				if u := code[pc]; u.op() == opGetUpval {
					c.upvalues[j] = fn.upvalues[u.b()]
				} else {
					c.upvalues[j] = L.findUpvalue(base + u.b())
				}
				pc++
			}
			r[a] = c
		case opVararg:
			n := i.b() - 1
			// The arguments lie between the function and the frame.
			from := f.ret + 1 + p.params
			have := max(0, base-from)
			g.charge(have/4, 0)
			if n < 0 {
				n = have
				L.top = base + a
				L.grow(base + a + n + minStack)
				L.top = base + a + n
			}
			for j := 0; j < n; j++ {
				if j < have {
					L.stack[base+a+j] = L.stack[from+j]
				} else {
					L.stack[base+a+j] = LNil
				}
			}
			f, r = L.reload(base, top)
		}
	}
}

// reload finds the frame and its registers again after what may have moved them.
func (L *LState) reload(base, top int) (*frame, []LValue) {
	return &L.frames[len(L.frames)-1], L.stack[base:top:top]
}

func rk(r, k []LValue, x int) LValue {
	if x >= constantBit {
		return k[x&maxConstantR]
	}
	return r[x]
}

// constantString is the value at a constant, whose hash is known.
func (t *LTable) constantString(key LValue, hash int) LValue {
	if n := t.findString(string(key.(LString)), hash); n != nil {
		return n.value
	}
	return LNil
}

// resizeArray makes room for the elements of a constructor, as Lua does.
func (t *LTable) resizeArray(na int) {
	nh := 0
	if len(t.nodes) > 0 {
		nh = len(t.nodes)
	}
	t.resize(na, nh)
}

// Metamethods.

// metamethod is the function for an event, or LNil.
func (L *LState) metamethod(v LValue, e event) LValue { return L.metaOf(L.Metatable(v), e) }

func (L *LState) metaOf(m *LTable, e event) LValue {
	if m == nil || e <= evCall && m.absent&(1<<e) != 0 {
		return LNil
	}
	if n := m.findString(eventNames[e], eventHashes[e]); n != nil && n.value != LNil {
		return n.value
	}
	if e <= evCall {
		m.absent |= 1 << e
	}
	return LNil
}

// callMeta calls a metamethod with arguments; its result is adjusted to one.
func (L *LState) callMeta(fn LValue, args ...LValue) LValue {
	// The registers of the frame, and what is being passed on behind them, stay as they are.
	top := L.top
	L.Push(fn)
	for _, v := range args {
		L.Push(v)
	}
	L.Call(len(args), 1)
	v := L.stack[L.top-1]
	L.top = top
	return v
}

// getIndex is o[key]. reg is the register of o, or -1.
func (L *LState) getIndex(o, key LValue, reg int) LValue {
	for range maxLoop {
		var fn LValue
		if t, ok := o.(*LTable); ok {
			v := t.RawGet(key)
			if v != LNil || t.meta == nil {
				return v
			}
			if fn = L.metaOf(t.meta, evIndex); fn == LNil {
				return LNil
			}
		} else if fn = L.metamethod(o, evIndex); fn == LNil {
			L.typeError(reg, o, "index")
		}
		if _, ok := fn.(*LFunction); ok {
			return L.callMeta(fn, o, key)
		}
		o, reg = fn, -1
	}
	L.runtimeError("loop in gettable")
	return nil
}

// setIndex is o[key] = v.
func (L *LState) setIndex(o, key, v LValue, reg int) {
	for range maxLoop {
		var fn LValue
		if t, ok := o.(*LTable); ok {
			if t.meta == nil {
				L.RawSet(t, key, v)
				return
			}
			if fn = L.metaOf(t.meta, evNewIndex); fn == LNil || t.RawGet(key) != LNil {
				L.RawSet(t, key, v)
				return
			}
		} else if fn = L.metamethod(o, evNewIndex); fn == LNil {
			L.typeError(reg, o, "index")
		}
		if _, ok := fn.(*LFunction); ok {
			L.callMeta(fn, o, key, v)
			return
		}
		o, reg = fn, -1
	}
	L.runtimeError("loop in settable")
}

func (L *LState) arithmetic(op opcode, a, b LValue, ra, rb int) LValue {
	x, ok := ToNumber(a)
	y, ok2 := ToNumber(b)
	if ok && ok2 {
		if op == opUnm {
			return Number(-x)
		}
		return Number(arith(op, x, y))
	}
	e := evAdd + event(op-opAdd)
	if op == opUnm {
		e = evUnm
	}
	fn := L.metamethod(a, e)
	if fn == LNil {
		fn = L.metamethod(b, e)
	}
	if fn == LNil {
		if !ok {
			L.typeError(ra, a, "perform arithmetic on")
		}
		L.typeError(rb, b, "perform arithmetic on")
	}
	return L.callMeta(fn, a, b)
}

func (L *LState) length(v LValue, reg int) LValue {
	fn := L.metamethod(v, evLen)
	if fn == LNil {
		L.typeError(reg, v, "get length of")
	}
	return L.callMeta(fn, v, LNil)
}

// concat joins the values of the stack from one to another; reg is the register of the first.
func (L *LState) concat(first, last, reg int) LValue {
	v := L.stack[last]
	for at := last; at > first; {
		left := L.stack[at-1]
		if !LVCanConvToString(left) || !LVCanConvToString(v) {
			fn := L.metamethod(left, evConcat)
			if fn == LNil {
				fn = L.metamethod(v, evConcat)
			}
			if fn == LNil {
				if LVCanConvToString(left) {
					L.typeError(at-first+reg, v, "concatenate")
				}
				L.typeError(at-1-first+reg, left, "concatenate")
			}
			v = L.callMeta(fn, left, v)
			at--
			L.stack[at] = v
			continue
		}
		from := at - 1
		for from > first && LVCanConvToString(L.stack[from-1]) {
			from--
		}
		v = L.join(from, at, v)
		at = from
		L.stack[at] = v
	}
	return v
}

// join concatenates strings and numbers: those of the stack from one up to another, and the last one.
func (L *LState) join(from, to int, last LValue) LValue {
	var numbers [32]byte
	size := func(v LValue) int {
		if s, ok := v.(LString); ok {
			return len(s)
		}
		return len(AppendNumber(numbers[:0], float64(v.(LNumber))))
	}
	n := size(last)
	for _, v := range L.stack[from:to] {
		n += size(v)
	}
	L.g.charge(n>>6, n+valueBytes)
	var b strings.Builder
	b.Grow(n)
	add := func(v LValue) {
		if s, ok := v.(LString); ok {
			b.WriteString(string(s))
		} else {
			b.Write(AppendNumber(numbers[:0], float64(v.(LNumber))))
		}
	}
	for _, v := range L.stack[from:to] {
		add(v)
	}
	add(last)
	return LString(b.String())
}

// equalCharged is ==, without metamethods.
func (L *LState) equalCharged(a, b LValue) bool {
	if s, ok := a.(LString); ok {
		t, ok := b.(LString)
		if !ok || len(s) != len(t) {
			return false
		}
		if len(s) > 256 {
			L.g.charge(len(s)>>6, 0)
		}
		return s == t
	}
	return a == b
}

func (L *LState) equal(a, b LValue) bool {
	x, ok := a.(*LTable)
	if !ok {
		return L.equalCharged(a, b)
	}
	y, ok := b.(*LTable)
	if !ok || x == y {
		return ok
	}
	fn := L.metaOf(x.meta, evEq)
	if fn == LNil {
		return false
	}
	if x.meta != y.meta && L.metaOf(y.meta, evEq) != fn {
		return false
	}
	return !LVIsFalse(L.callMeta(fn, a, b))
}

// order calls a metamethod that both values have.
func (L *LState) order(a, b LValue, e event) (result, ok bool) {
	fn := L.metamethod(a, e)
	if fn == LNil || L.metamethod(b, e) != fn {
		return false, false
	}
	return !LVIsFalse(L.callMeta(fn, a, b)), true
}

func (L *LState) compareStrings(a, b LString) int {
	if n := min(len(a), len(b)); n > 256 {
		L.g.charge(n>>6, 0)
	}
	return strings.Compare(string(a), string(b))
}

func (L *LState) lessThan(a, b LValue) bool {
	switch x := a.(type) {
	case LNumber:
		if y, ok := b.(LNumber); ok {
			return x < y
		}
	case LString:
		if y, ok := b.(LString); ok {
			return L.compareStrings(x, y) < 0
		}
	}
	if a.Type() == b.Type() {
		if r, ok := L.order(a, b, evLt); ok {
			return r
		}
	}
	L.orderError(a, b)
	return false
}

func (L *LState) lessEqual(a, b LValue) bool {
	switch x := a.(type) {
	case LNumber:
		if y, ok := b.(LNumber); ok {
			return x <= y
		}
	case LString:
		if y, ok := b.(LString); ok {
			return L.compareStrings(x, y) <= 0
		}
	}
	if a.Type() == b.Type() {
		if r, ok := L.order(a, b, evLe); ok {
			return r
		}
		if r, ok := L.order(b, a, evLt); ok {
			return !r
		}
	}
	L.orderError(a, b)
	return false
}
