package vm

import "fmt"

// Where is the place of a call as messages begin with it: "user_script:1: ". Level 0 is the function that runs, 1 its
// caller. It is empty for functions of libraries and for callers that a tail call replaced.
func (L *LState) Where(level int) string {
	chunk, line := L.place(level)
	if line <= 0 {
		return ""
	}
	return fmt.Sprintf("%s:%d: ", chunk, line)
}

// Level is the place of a call.
func (L *LState) place(level int) (chunk string, line int) {
	f := L.level(level)
	if f == nil || f.fn.proto == nil {
		return "", -1
	}
	return f.fn.proto.chunk, f.line()
}

func (f *frame) line() int {
	if f.pc == 0 {
		return f.fn.proto.lineDefined
	}
	return int(f.fn.proto.lines[f.pc-1])
}

// level is the frame so far from the last one; nil if there is none, or if a tail call replaced it.
func (L *LState) level(n int) *frame {
	i := len(L.frames) - 1
	for ; n > 0 && i >= 0; i-- {
		n--
		n -= L.frames[i].tail
	}
	if n == 0 && i >= 0 {
		return &L.frames[i]
	}
	return nil
}

// Caller is the function at a level; nil if there is none.
func (L *LState) Caller(level int) *LFunction {
	if f := L.level(level); f != nil {
		return f.fn
	}
	return nil
}

// Levels says whether there is a function at a level, be it one that a tail call replaced.
func (L *LState) Levels(level int) bool {
	n := 0
	for i := range L.frames {
		n += 1 + L.frames[i].tail
	}
	return level < n
}

// Position is the source and the line of the function at a level, as debug.getinfo gives them: "=[C]" and -1 for one
// of a library. It is false if there is no such level.
func (L *LState) Position(level int) (source string, line int, ok bool) {
	f := L.level(level)
	switch {
	case f == nil && !L.Levels(level):
		return "", 0, false
	case f == nil:
		return "=(tail call)", -1, true
	case f.fn.proto == nil:
		return "=[C]", -1, true
	}
	return f.fn.proto.source, f.line(), true
}

// typeError raises that an operation does not work on a value, which it names if it is in a register.
func (L *LState) typeError(reg int, v LValue, operation string) {
	n := len(L.frames) - 1
	if n >= 0 && reg >= 0 && L.frames[n].fn.proto != nil {
		f := &L.frames[n]
		if operation == "call" {
			reg -= f.base
		}
		if reg >= 0 && reg < constantBit {
			L.g.charge(f.pc>>4, 0)
			if kind, name := f.fn.proto.nameOf(reg, f.pc-1); kind != "" {
				L.runtimeError("attempt to %s %s '%s' (a %s value)", operation, kind, name, v.Type())
			}
		}
	}
	L.runtimeError("attempt to %s a %s value", operation, v.Type())
}

func (L *LState) orderError(a, b LValue) {
	x, y := a.Type().String(), b.Type().String()
	if x[2] == y[2] { // as PUC-Rio's compares them
		L.runtimeError("attempt to compare two %s values", x)
	}
	L.runtimeError("attempt to compare %s with %s", x, y)
}

// functionName is what the caller calls the function of frame i, and what kind of name that is.
func (L *LState) functionName(i int) (kind, name string) {
	if i == 0 || L.frames[i].fn.proto != nil && L.frames[i].tail > 0 {
		return "", ""
	}
	caller := &L.frames[i-1]
	p := caller.fn.proto
	if p == nil {
		return "", ""
	}
	switch in := p.code[caller.pc-1]; in.op() {
	case opCall, opTailCall, opTForLoop:
		L.g.charge(caller.pc>>4, 0)
		return p.nameOf(in.a(), caller.pc-1)
	}
	return "", ""
}

// localName is the name of the local in a register at an instruction.
func (p *Proto) localName(reg, pc int) string {
	for i := range p.locals {
		v := &p.locals[i]
		if int(v.from) > pc {
			break
		}
		if pc < int(v.to) {
			if reg == 0 {
				return v.name
			}
			reg--
		}
	}
	return ""
}

// nameOf is the name of the value that a register holds when an instruction runs.
func (p *Proto) nameOf(reg, pc int) (kind, name string) {
	if s := p.localName(reg, pc); s != "" {
		return "local", s
	}
	at := p.setter(reg, pc)
	if at < 0 {
		return "", ""
	}
	switch i := p.code[at]; i.op() {
	case opGetGlobal:
		return "global", p.constantName(i.bx() | constantBit<<20)
	case opMove:
		if i.b() < i.a() {
			return p.nameOf(i.b(), at)
		}
	case opGetTable:
		return "field", p.constantName(i.c())
	case opGetUpval:
		if b := i.b(); b < len(p.upvalues) {
			return "upvalue", p.upvalues[b]
		}
		return "upvalue", "?"
	case opSelf:
		return "method", p.constantName(i.c())
	}
	return "", ""
}

func (p *Proto) constantName(rk int) string {
	if rk >= constantBit {
		if rk >= constantBit<<20 {
			rk -= constantBit << 20
		} else {
			rk &= maxConstantR
		}
		if s, ok := p.constants[rk].(LString); ok {
			return string(s)
		}
	}
	return "?"
}

// setter is the last instruction before another that sets a register, going along all jumps forward; -1 for none.
func (p *Proto) setter(reg, until int) int {
	last := -1
	for pc := 0; pc < until; pc++ {
		i := p.code[pc]
		switch op := i.op(); op {
		case opLoadNil:
			if i.a() <= reg && reg <= i.b() {
				last = pc
			}
		case opTForLoop:
			if reg >= i.a()+2 {
				last = pc
			}
		case opCall, opTailCall:
			if reg >= i.a() {
				last = pc
			}
		case opJmp, opForLoop, opForPrep:
			if op != opJmp && i.a() == reg {
				last = pc
			}
			if to := pc + 1 + i.sbx(); pc < to && to <= until {
				pc = to - 1
			}
		case opClosure:
			if i.a() == reg {
				last = pc
			}
			pc += len(p.protos[i.bx()].upvalues)
		case opSetList:
			if i.c() == 0 {
				pc++
			}
		case opSelf:
			if reg == i.a() || reg == i.a()+1 {
				last = pc
			}
		case opSetGlobal, opSetUpval, opSetTable, opEq, opLt, opLe, opReturn, opClose:
		default:
			if i.a() == reg {
				last = pc
			}
		}
	}
	return last
}
