package vm

import (
	"fmt"
	"math"
	"unsafe"
)

// Proto is a compiled function. It is never changed after Compile, so any number of states may run it at once.
type Proto struct {
	code      []instruction
	lines     []int32
	constants []LValue
	hashes    []int // of the constants that are strings
	protos    []*Proto
	locals    []localVar
	upvalues  []string
	source    string // as loadstring got it: "@user_script"
	chunk     string // as messages name it: "user_script"

	lineDefined int
	params      int
	vararg      varargs
	stack       int
}

// Bytes is how much memory the Proto takes, without its source.
func (p *Proto) Bytes() int {
	const value = int(unsafe.Sizeof(LValue(nil)))
	n := int(unsafe.Sizeof(*p)) + cap(p.code)*int(unsafe.Sizeof(p.code[0])) + cap(p.lines)*4 +
		cap(p.constants)*value + cap(p.hashes)*8 + cap(p.protos)*8 +
		cap(p.locals)*int(unsafe.Sizeof(localVar{})) + cap(p.upvalues)*int(unsafe.Sizeof(""))
	for _, k := range p.constants {
		n += value
		if s, ok := k.(LString); ok {
			n += len(s)
		}
	}
	for _, inner := range p.protos {
		n += inner.Bytes()
	}
	return n
}

type varargs uint8

const (
	isVararg varargs = 1 << iota
	hasArg           // there is a local "arg", as in Lua 5.0
	needsArg         // nobody wrote "...", so "arg" is filled
)

// localVar is the name of a register from one instruction up to another.
type localVar struct {
	name     string
	from, to int32
}

// Bounds of PUC-Rio's Lua, which its messages name.
const (
	maxLocals   = 200
	maxUpvalues = 60
	maxStack    = 250
	maxNesting  = 200
	maxWork     = 1 << 24 // of our own
)

// Compile compiles a chunk. name is its source: "@user_script". An error is a *SyntaxError.
func Compile(text, name string) (p *Proto, err error) {
	defer func() {
		if r := recover(); r != nil {
			e, ok := r.(*SyntaxError)
			if !ok {
				panic(r)
			}
			p, err = nil, e
		}
	}()
	c := &compiler{lexer: lexer{text: text, chunk: chunkName(name), line: 1, last: 1, ahead: noToken}, source: name}
	c.open(0)
	c.f.p.vararg = isVararg
	c.next()
	c.chunk()
	c.check(tkEOS)
	return c.close(), nil
}

// The compiler is one pass over the text by the method of PUC-Rio's: an expression stays a description until somebody
// says where its value shall be, so that most values are made in place. Nothing grows with the length of a chain of
// operators, and nesting has a bound, so no text can exhaust the stack of Go.
type compiler struct {
	lexer
	f       *function
	source  string
	nesting int
	work    int
}

// function is a function under way.
type function struct {
	p         *Proto
	outer     *function
	block     *block
	pc        int // of the last jump's target
	jumps     int // jumps to the next instruction
	free      int // the first free register
	active    []int
	constants map[any]int
	upvalues  []upvalueAt
}

type upvalueAt struct {
	local bool // of the outer function, else one of its upvalues
	index int
}

type block struct {
	outer     *block
	breaks    int // list of jumps
	active    int // locals outside of it
	upvalue   bool
	breakable bool
}

type kind uint8

const (
	kVoid     kind = iota
	kNil           // constants
	kTrue          //
	kFalse         //
	kConstant      // info: its index
	kNumber        // number
	kLocal         // info: register
	kUpvalue       // info: index
	kGlobal        // info: index of the name among the constants
	kIndexed       // info: register of the table; key: RK
	kJump          // info: the jump, taken if the comparison before it is as its A says
	kPending       // info: the instruction, whose A is not set yet
	kRegister      // info: register
	kCall          // info: the instruction
	kVararg        // info: the instruction
)

// expression describes a value. Jumps in whenTrue and whenFalse leave it early, with a value that is true or false.
type expression struct {
	kind                kind
	info, key           int
	number              float64
	whenTrue, whenFalse int
}

const noJump = -1

func plain(k kind, info int) expression {
	return expression{kind: k, info: info, whenTrue: noJump, whenFalse: noJump}
}

func (e *expression) jumps() bool { return e.whenTrue != e.whenFalse }

func (e *expression) isNumber() bool {
	return e.kind == kNumber && e.whenTrue == noJump && e.whenFalse == noJump
}

func (e *expression) manyResults() bool { return e.kind == kCall || e.kind == kVararg }

// Functions and blocks.

func (c *compiler) open(line int) {
	c.f = &function{
		p:     &Proto{source: c.source, chunk: c.lexer.chunk, lineDefined: line, stack: 2},
		outer: c.f, pc: -1, jumps: noJump, constants: make(map[any]int),
	}
}

func (c *compiler) close() *Proto {
	f := c.f
	c.removeLocals(0)
	c.ret(0, 0)
	p := f.p
	p.hashes = make([]int, len(p.constants))
	for i, v := range p.constants {
		if s, ok := v.(LString); ok {
			p.hashes[i] = int(stringHash(string(s)))
		}
	}
	c.f = f.outer
	return p
}

func (c *compiler) enter(breakable bool) *block {
	b := &block{outer: c.f.block, breaks: noJump, active: len(c.f.active), breakable: breakable}
	c.f.block = b
	return b
}

func (c *compiler) leave() {
	b := c.f.block
	c.f.block = b.outer
	c.removeLocals(b.active)
	if b.upvalue {
		c.emit(makeABC(opClose, b.active, 0, 0))
	}
	c.f.free = len(c.f.active)
	c.patchHere(b.breaks)
}

func (c *compiler) deeper() {
	if c.nesting++; c.nesting > maxNesting {
		c.fail("chunk has too many syntax levels", 0)
	}
}

func (c *compiler) limit(n, most int, what string) {
	if n <= most {
		return
	}
	where := "main function"
	if line := c.f.p.lineDefined; line != 0 {
		where = fmt.Sprintf("function at line %d", line)
	}
	c.fail(fmt.Sprintf("%s has more than %d %s", where, most, what), 0)
}

// Locals.

// declare makes a local that begins to be visible with activate.
func (c *compiler) declare(name string, n int) {
	c.limit(len(c.f.active)+n+1, maxLocals, "local variables")
	c.f.p.locals = append(c.f.p.locals, localVar{name: name})
}

func (c *compiler) activate(n int) {
	locals := c.f.p.locals
	for i := len(locals) - n; i < len(locals); i++ {
		locals[i].from = int32(len(c.f.p.code))
		c.f.active = append(c.f.active, i)
	}
}

func (c *compiler) removeLocals(to int) {
	for _, i := range c.f.active[to:] {
		c.f.p.locals[i].to = int32(len(c.f.p.code))
	}
	c.f.active = c.f.active[:to]
}

// variable finds a name as a local, an upvalue or a global.
func (c *compiler) variable(name string) expression {
	if e, ok := c.lookUp(c.f, name, true); ok {
		return e
	}
	return plain(kGlobal, c.constant(LString(name)))
}

func (c *compiler) lookUp(f *function, name string, base bool) (expression, bool) {
	if f == nil {
		return expression{}, false
	}
	c.spend(len(f.active) + len(f.upvalues))
	for r := len(f.active) - 1; r >= 0; r-- {
		if f.p.locals[f.active[r]].name == name {
			if !base {
				b := f.block
				for b != nil && b.active > r {
					b = b.outer
				}
				if b != nil {
					b.upvalue = true
				}
			}
			return plain(kLocal, r), true
		}
	}
	e, ok := c.lookUp(f.outer, name, false)
	if !ok {
		return e, false
	}
	u := upvalueAt{local: e.kind == kLocal, index: e.info}
	for i, v := range f.upvalues {
		if v == u {
			return plain(kUpvalue, i), true
		}
	}
	inner := c.f
	c.f = f
	c.limit(len(f.upvalues)+1, maxUpvalues, "upvalues")
	c.f = inner
	f.upvalues = append(f.upvalues, u)
	f.p.upvalues = append(f.p.upvalues, name)
	return plain(kUpvalue, len(f.upvalues)-1), true
}

// Code.

func (c *compiler) emit(i instruction) int {
	c.flushJumps()
	return c.emitAt(i, c.last)
}

func (c *compiler) flushJumps() {
	f := c.f
	c.patchTo(f.jumps, len(f.p.code), noRegister, len(f.p.code))
	f.jumps = noJump
}

func (c *compiler) emitAt(i instruction, line int) int {
	p := c.f.p
	p.code, p.lines = append(p.code, i), append(p.lines, int32(line))
	return len(p.code) - 1
}

func (c *compiler) fixLine(line int) { c.f.p.lines[len(c.f.p.lines)-1] = int32(line) }

func (c *compiler) constant(v LValue) int {
	f := c.f
	// As in Lua's table of constants, 0 and -0 are one key, so the first one stands for both.
	var key any = v
	if i, ok := f.constants[key]; ok {
		return i
	}
	i := len(f.p.constants)
	if i > maxBx {
		c.fail("constant table overflow", 0)
	}
	f.p.constants = append(f.p.constants, v)
	f.constants[key] = i
	return i
}

func (c *compiler) reserve(n int) {
	f := c.f
	if f.free+n > f.p.stack {
		if f.free+n >= maxStack {
			c.fail("function or expression too complex", 0)
		}
		f.p.stack = f.free + n
	}
	f.free += n
}

func (c *compiler) release(r int) {
	if r < constantBit && r >= len(c.f.active) {
		c.f.free--
	}
}

func (c *compiler) releaseExpression(e *expression) {
	if e.kind == kRegister {
		c.release(e.info)
	}
}

func (c *compiler) loadNil(from, n int) {
	f := c.f
	code := f.p.code
	if len(code) > f.pc {
		if len(code) == 0 {
			if from >= len(f.active) {
				return // the registers are nil when the function begins
			}
		} else if last := &code[len(code)-1]; last.op() == opLoadNil {
			if a, b := last.a(), last.b(); a <= from && from <= b+1 {
				if from+n-1 > b {
					last.setB(from + n - 1)
				}
				return
			}
		}
	}
	c.emit(makeABC(opLoadNil, from, from+n-1, 0))
}

func (c *compiler) ret(first, n int) { c.emit(makeABC(opReturn, first, n+1, 0)) }

// Jumps. Those with one target are a list: each holds the distance to the next, -1 for none.

func (c *compiler) jump() int {
	pending := c.f.jumps
	c.f.jumps = noJump
	j := c.emit(makeABx(opJmp, 0, noJump+maxSBx))
	c.join(&j, pending)
	return j
}

func (c *compiler) label() int {
	c.f.pc = len(c.f.p.code)
	return c.f.pc
}

func (c *compiler) target(pc int) int {
	if d := c.f.p.code[pc].sbx(); d != noJump {
		return pc + 1 + d
	}
	return noJump
}

func (c *compiler) aim(pc, target int) {
	d := target - (pc + 1)
	if d > maxSBx || d < -maxSBx {
		c.fail("control structure too long", 0)
	}
	c.f.p.code[pc].setSBx(d)
}

func (c *compiler) join(list *int, other int) {
	switch {
	case other == noJump:
	case *list == noJump:
		*list = other
	default:
		// The end of the shorter list is linked to the longer one, so that no chain of operators takes time squared.
		a, b := *list, other
		for {
			nextA, nextB := c.target(a), c.target(b)
			if nextA == noJump {
				c.aim(a, other)
				return
			}
			if nextB == noJump {
				c.aim(b, *list)
				*list = other
				return
			}
			a, b = nextA, nextB
			c.spend(1)
		}
	}
}

// spend bounds what names and jumps cost that a text has many of, within functions within each other.
func (c *compiler) spend(work int) {
	if c.work += work; c.work > maxWork {
		c.fail("chunk is too complex", 0)
	}
}

// control is the instruction that decides whether a jump is taken.
func (c *compiler) control(pc int) *instruction {
	code := c.f.p.code
	if pc >= 1 {
		switch code[pc-1].op() {
		case opEq, opLt, opLe, opTest, opTestSet:
			return &code[pc-1]
		}
	}
	return &code[pc]
}

// needValue says whether a jump of the list leaves no value behind.
func (c *compiler) needValue(list int) bool {
	for ; list != noJump; list = c.target(list) {
		if c.control(list).op() != opTestSet {
			return true
		}
	}
	return false
}

// patchTest makes a jump leave its value in a register, or none.
func (c *compiler) patchTest(pc, reg int) bool {
	i := c.control(pc)
	if i.op() != opTestSet {
		return false
	}
	if reg != noRegister && reg != i.b() {
		i.setA(reg)
	} else {
		*i = makeABC(opTest, i.b(), 0, i.c())
	}
	return true
}

func (c *compiler) patchTo(list, withValue, reg, without int) {
	for list != noJump {
		next := c.target(list)
		if c.patchTest(list, reg) {
			c.aim(list, withValue)
		} else {
			c.aim(list, without)
		}
		list = next
	}
}

func (c *compiler) patch(list, target int) {
	if target == len(c.f.p.code) {
		c.patchHere(list)
	} else {
		c.patchTo(list, target, noRegister, target)
	}
}

func (c *compiler) patchHere(list int) {
	c.label()
	c.join(&c.f.jumps, list)
}

// Values.

// discharge turns a variable into its value.
func (c *compiler) discharge(e *expression) {
	switch e.kind {
	case kLocal:
		e.kind = kRegister
	case kUpvalue:
		e.info = c.emit(makeABC(opGetUpval, 0, e.info, 0))
		e.kind = kPending
	case kGlobal:
		e.info = c.emit(makeABx(opGetGlobal, 0, e.info))
		e.kind = kPending
	case kIndexed:
		c.release(e.key)
		c.release(e.info)
		e.info = c.emit(makeABC(opGetTable, 0, e.info, e.key))
		e.kind = kPending
	case kCall, kVararg:
		c.oneResult(e)
	}
}

func (c *compiler) oneResult(e *expression) {
	switch e.kind {
	case kCall:
		e.kind, e.info = kRegister, c.f.p.code[e.info].a()
	case kVararg:
		c.f.p.code[e.info].setB(2)
		e.kind = kPending
	}
}

// results sets how many values a call or ... gives; -1: all.
func (c *compiler) results(e *expression, n int) {
	switch e.kind {
	case kCall:
		c.f.p.code[e.info].setC(n + 1)
	case kVararg:
		i := &c.f.p.code[e.info]
		i.setB(n + 1)
		i.setA(c.f.free)
		c.reserve(1)
	}
}

func (c *compiler) dischargeTo(e *expression, reg int) {
	c.discharge(e)
	switch e.kind {
	case kNil:
		c.loadNil(reg, 1)
	case kTrue, kFalse:
		b := 0
		if e.kind == kTrue {
			b = 1
		}
		c.emit(makeABC(opLoadBool, reg, b, 0))
	case kConstant:
		c.emit(makeABx(opLoadK, reg, e.info))
	case kNumber:
		c.emit(makeABx(opLoadK, reg, c.constant(LNumber(e.number))))
	case kPending:
		c.f.p.code[e.info].setA(reg)
	case kRegister:
		if reg != e.info {
			c.emit(makeABC(opMove, reg, e.info, 0))
		}
	default:
		return // a jump has no value yet
	}
	e.kind, e.info = kRegister, reg
}

// toRegister makes the value of e, and of all jumps out of it, in a register.
func (c *compiler) toRegister(e *expression, reg int) {
	c.dischargeTo(e, reg)
	if e.kind == kJump {
		c.join(&e.whenTrue, e.info)
	}
	if e.jumps() {
		loadFalse, loadTrue := noJump, noJump
		if c.needValue(e.whenTrue) || c.needValue(e.whenFalse) {
			over := noJump
			if e.kind != kJump {
				over = c.jump()
			}
			c.label()
			loadFalse = c.emit(makeABC(opLoadBool, reg, 0, 1))
			c.label()
			loadTrue = c.emit(makeABC(opLoadBool, reg, 1, 0))
			c.patchHere(over)
		}
		end := c.label()
		c.patchTo(e.whenFalse, end, reg, loadFalse)
		c.patchTo(e.whenTrue, end, reg, loadTrue)
	}
	*e = plain(kRegister, reg)
}

func (c *compiler) toNext(e *expression) {
	c.discharge(e)
	c.releaseExpression(e)
	c.reserve(1)
	c.toRegister(e, c.f.free-1)
}

func (c *compiler) toAny(e *expression) int {
	c.discharge(e)
	if e.kind == kRegister {
		if !e.jumps() {
			return e.info
		}
		if e.info >= len(c.f.active) {
			c.toRegister(e, e.info)
			return e.info
		}
	}
	c.toNext(e)
	return e.info
}

func (c *compiler) toValue(e *expression) {
	if e.jumps() {
		c.toAny(e)
	} else {
		c.discharge(e)
	}
}

// toRK gives what B and C of an instruction can name.
func (c *compiler) toRK(e *expression) int {
	c.toValue(e)
	switch e.kind {
	case kNil, kTrue, kFalse, kNumber:
		if len(c.f.p.constants) <= maxConstantR {
			var v LValue = LNil
			switch e.kind {
			case kTrue:
				v = LTrue
			case kFalse:
				v = LFalse
			case kNumber:
				v = LNumber(e.number)
			}
			e.kind, e.info = kConstant, c.constant(v)
			return e.info | constantBit
		}
	case kConstant:
		if e.info <= maxConstantR {
			return e.info | constantBit
		}
	}
	return c.toAny(e)
}

func (c *compiler) store(variable, e *expression) {
	switch variable.kind {
	case kLocal:
		c.releaseExpression(e)
		c.toRegister(e, variable.info)
		return
	case kUpvalue:
		c.emit(makeABC(opSetUpval, c.toAny(e), variable.info, 0))
	case kGlobal:
		c.emit(makeABx(opSetGlobal, c.toAny(e), variable.info))
	case kIndexed:
		c.emit(makeABC(opSetTable, variable.info, variable.key, c.toRK(e)))
	}
	c.releaseExpression(e)
}

func (c *compiler) self(e *expression, key *expression) {
	c.toAny(e)
	c.releaseExpression(e)
	f := c.f.free
	c.reserve(2)
	c.emit(makeABC(opSelf, f, e.info, c.toRK(key)))
	c.releaseExpression(key)
	*e = plain(kRegister, f)
}

func (c *compiler) index(t, key *expression) {
	t.key = c.toRK(key)
	t.kind = kIndexed
}

// Conditions.

func (c *compiler) invert(e *expression) {
	i := c.control(e.info)
	a := 1
	if i.a() != 0 {
		a = 0
	}
	i.setA(a)
}

func (c *compiler) jumpIf(e *expression, condition int) int {
	if e.kind == kPending {
		if i := c.f.p.code[e.info]; i.op() == opNot {
			// The not goes.
			c.f.p.code, c.f.p.lines = c.f.p.code[:e.info], c.f.p.lines[:e.info]
			return c.conditional(opTest, i.b(), 0, 1-condition)
		}
	}
	if e.kind != kRegister {
		c.reserve(1)
		c.dischargeTo(e, c.f.free-1)
	}
	c.releaseExpression(e)
	return c.conditional(opTestSet, noRegister, e.info, condition)
}

func (c *compiler) conditional(op opcode, a, b, cc int) int {
	c.emit(makeABC(op, a, b, cc))
	return c.jump()
}

// ifTrue goes on behind e if it is true, else jumps.
func (c *compiler) ifTrue(e *expression) {
	c.discharge(e)
	j := noJump
	switch e.kind {
	case kConstant, kNumber, kTrue:
	case kJump:
		c.invert(e)
		j = e.info
	default:
		j = c.jumpIf(e, 0)
	}
	c.join(&e.whenFalse, j)
	c.patchHere(e.whenTrue)
	e.whenTrue = noJump
}

func (c *compiler) ifFalse(e *expression) {
	c.discharge(e)
	j := noJump
	switch e.kind {
	case kNil, kFalse:
	case kJump:
		j = e.info
	default:
		j = c.jumpIf(e, 1)
	}
	c.join(&e.whenTrue, j)
	c.patchHere(e.whenFalse)
	e.whenFalse = noJump
}

func (c *compiler) not(e *expression) {
	c.discharge(e)
	switch e.kind {
	case kNil, kFalse:
		e.kind = kTrue
	case kConstant, kNumber, kTrue:
		e.kind = kFalse
	case kJump:
		c.invert(e)
	case kPending, kRegister:
		if e.kind == kPending {
			c.reserve(1)
			c.dischargeTo(e, c.f.free-1)
		}
		c.releaseExpression(e)
		e.info = c.emit(makeABC(opNot, 0, e.info, 0))
		e.kind = kPending
	}
	e.whenTrue, e.whenFalse = e.whenFalse, e.whenTrue
	c.removeValues(e.whenTrue)
	c.removeValues(e.whenFalse)
}

func (c *compiler) removeValues(list int) {
	for ; list != noJump; list = c.target(list) {
		c.patchTest(list, noRegister)
	}
}

// Operators.

type operator struct {
	op          opcode
	left, right int // how strongly it binds; right < left: it is right-associative
}

const unaryBinds = 8

var operators = map[token]operator{
	'+': {opAdd, 6, 6}, '-': {opSub, 6, 6}, '*': {opMul, 7, 7}, '/': {opDiv, 7, 7}, '%': {opMod, 7, 7},
	'^': {opPow, 10, 9}, tkConcat: {opConcat, 5, 4},
	tkNe: {opEq, 3, 3}, tkEq: {opEq, 3, 3},
	'<': {opLt, 3, 3}, tkLe: {opLe, 3, 3}, '>': {opLt, 3, 3}, tkGe: {opLe, 3, 3},
	tkAnd: {0, 2, 2}, tkOr: {0, 1, 1},
}

// fold computes with constants where no NaN comes of it.
func fold(op opcode, a, b *expression) bool {
	if !a.isNumber() || !b.isNumber() || (op == opDiv || op == opMod) && b.number == 0 {
		return false
	}
	var r float64
	switch op {
	case opUnm:
		r = -a.number
	case opLen:
		return false
	default:
		r = arith(op, a.number, b.number)
	}
	if r != r {
		return false
	}
	a.number = r
	return true
}

func (c *compiler) arithmetic(op opcode, a, b *expression) {
	if fold(op, a, b) {
		return
	}
	right := 0
	if op != opUnm && op != opLen {
		right = c.toRK(b)
	}
	left := c.toRK(a)
	if left > right {
		c.releaseExpression(a)
		c.releaseExpression(b)
	} else {
		c.releaseExpression(b)
		c.releaseExpression(a)
	}
	*a = plain(kPending, c.emit(makeABC(op, 0, left, right)))
}

func (c *compiler) compare(t token, op opcode, a, b *expression) {
	left, right := c.toRK(a), c.toRK(b)
	c.releaseExpression(b)
	c.releaseExpression(a)
	condition := 1
	switch t {
	case tkNe:
		condition = 0
	case '>', tkGe:
		left, right = right, left
	}
	*a = plain(kJump, c.conditional(op, condition, left, right))
}

func (c *compiler) infix(t token, e *expression) {
	switch t {
	case tkAnd:
		c.ifTrue(e)
	case tkOr:
		c.ifFalse(e)
	case tkConcat:
		c.toNext(e) // operands of .. stand side by side
	case '+', '-', '*', '/', '%', '^':
		if !e.isNumber() {
			c.toRK(e)
		}
	default:
		c.toRK(e)
	}
}

func (c *compiler) postfix(t token, op opcode, a, b *expression) {
	switch t {
	case tkAnd:
		c.discharge(b)
		c.join(&b.whenFalse, a.whenFalse)
		*a = *b
	case tkOr:
		c.discharge(b)
		c.join(&b.whenTrue, a.whenTrue)
		*a = *b
	case tkConcat:
		c.toValue(b)
		if b.kind == kPending && c.f.p.code[b.info].op() == opConcat {
			// a .. (b .. c) is one instruction.
			c.releaseExpression(a)
			c.f.p.code[b.info].setB(a.info)
			a.kind, a.info = kPending, b.info
			return
		}
		c.toNext(b)
		c.arithmetic(opConcat, a, b)
	case '+', '-', '*', '/', '%', '^':
		c.arithmetic(op, a, b)
	default:
		c.compare(t, op, a, b)
	}
}

// Grammar.

func (c *compiler) accept(t token) bool {
	if c.token == t {
		c.next()
		return true
	}
	return false
}

func (c *compiler) check(t token) {
	if c.token != t {
		c.fail(fmt.Sprintf("'%s' expected", t), c.token)
	}
}

func (c *compiler) expect(t token) {
	c.check(t)
	c.next()
}

func (c *compiler) expectMatch(what, who token, line int) {
	if c.accept(what) {
		return
	}
	if line == c.line {
		c.fail(fmt.Sprintf("'%s' expected", what), c.token)
	}
	c.fail(fmt.Sprintf("'%s' expected (to close '%s' at line %d)", what, who, line), c.token)
}

func (c *compiler) name() string {
	c.check(tkName)
	s := c.str
	c.next()
	return s
}

func (c *compiler) nameConstant() expression {
	return plain(kConstant, c.constant(LString(c.name())))
}

func (c *compiler) chunk() {
	last := false
	c.deeper()
	for !last && !c.blockFollows() {
		last = c.statement()
		c.accept(';')
		c.f.free = len(c.f.active)
	}
	c.nesting--
}

func (c *compiler) blockFollows() bool {
	switch c.token {
	case tkElse, tkElseif, tkEnd, tkUntil, tkEOS:
		return true
	}
	return false
}

func (c *compiler) blockOf() {
	c.enter(false)
	c.chunk()
	c.leave()
}

// statement says whether no other statement may follow.
func (c *compiler) statement() bool {
	line := c.line
	switch c.token {
	case tkIf:
		c.ifStatement(line)
	case tkWhile:
		c.whileStatement(line)
	case tkDo:
		c.next()
		c.blockOf()
		c.expectMatch(tkEnd, tkDo, line)
	case tkFor:
		c.forStatement(line)
	case tkRepeat:
		c.repeatStatement(line)
	case tkFunction:
		c.functionStatement(line)
	case tkLocal:
		c.next()
		if c.accept(tkFunction) {
			c.localFunction()
		} else {
			c.localStatement()
		}
	case tkReturn:
		c.returnStatement()
		return true
	case tkBreak:
		c.next()
		c.breakStatement()
		return true
	default:
		c.expressionStatement()
	}
	return false
}

func (c *compiler) condition() int {
	e := c.expression()
	if e.kind == kNil {
		e.kind = kFalse
	}
	c.ifTrue(&e)
	return e.whenFalse
}

func (c *compiler) ifStatement(line int) {
	escape := noJump
	c.next()
	other := c.condition()
	c.expect(tkThen)
	c.blockOf()
	for c.token == tkElseif {
		c.join(&escape, c.jump())
		c.patchHere(other)
		c.next()
		other = c.condition()
		c.expect(tkThen)
		c.blockOf()
	}
	if c.token == tkElse {
		c.join(&escape, c.jump())
		c.patchHere(other)
		c.next()
		c.blockOf()
	} else {
		c.join(&escape, other)
	}
	c.patchHere(escape)
	c.expectMatch(tkEnd, tkIf, line)
}

func (c *compiler) whileStatement(line int) {
	c.next()
	start := c.label()
	exit := c.condition()
	c.enter(true)
	c.expect(tkDo)
	c.blockOf()
	c.patch(c.jump(), start)
	c.expectMatch(tkEnd, tkWhile, line)
	c.leave()
	c.patchHere(exit)
}

func (c *compiler) repeatStatement(line int) {
	start := c.label()
	c.enter(true)
	scope := c.enter(false)
	c.next()
	c.chunk()
	c.expectMatch(tkUntil, tkRepeat, line)
	exit := c.condition() // sees the locals of the block
	if !scope.upvalue {
		c.leave()
		c.patch(exit, start)
	} else {
		c.breakStatement()
		c.patchHere(exit)
		c.leave()
		c.patch(c.jump(), start)
	}
	c.leave()
}

func (c *compiler) breakStatement() {
	b, upvalue := c.f.block, false
	for b != nil && !b.breakable {
		upvalue = upvalue || b.upvalue
		b = b.outer
	}
	if b == nil {
		c.fail("no loop to break", c.token)
	}
	if upvalue {
		c.emit(makeABC(opClose, b.active, 0, 0))
	}
	c.join(&b.breaks, c.jump())
}

func (c *compiler) forStatement(line int) {
	c.enter(true)
	c.next()
	name := c.name()
	switch c.token {
	case '=':
		c.numericFor(name, line)
	case ',', tkIn:
		c.genericFor(name)
	default:
		c.fail("'=' or 'in' expected", c.token)
	}
	c.expectMatch(tkEnd, tkFor, line)
	c.leave()
}

func (c *compiler) numericFor(name string, line int) {
	base := c.f.free
	c.declare("(for index)", 0)
	c.declare("(for limit)", 1)
	c.declare("(for step)", 2)
	c.declare(name, 3)
	c.expect('=')
	c.forExpression()
	c.expect(',')
	c.forExpression()
	if c.accept(',') {
		c.forExpression()
	} else {
		c.emit(makeABx(opLoadK, c.f.free, c.constant(LNumber(1))))
		c.reserve(1)
	}
	c.forBody(base, line, 1, true)
}

func (c *compiler) forExpression() {
	e := c.expression()
	c.toNext(&e)
}

func (c *compiler) genericFor(name string) {
	base := c.f.free
	c.declare("(for generator)", 0)
	c.declare("(for state)", 1)
	c.declare("(for control)", 2)
	c.declare(name, 3)
	n := 1
	for c.accept(',') {
		c.declare(c.name(), 3+n)
		n++
	}
	c.expect(tkIn)
	line := c.line
	e, values := c.expressions()
	c.adjust(3, values, &e)
	c.checkStack(3)
	c.forBody(base, line, n, false)
}

func (c *compiler) checkStack(n int) {
	if top := c.f.free + n; top > c.f.p.stack {
		if top >= maxStack {
			c.fail("function or expression too complex", 0)
		}
		c.f.p.stack = top
	}
}

func (c *compiler) forBody(base, line, n int, numeric bool) {
	// The three hidden ones first, then those of the block.
	locals := c.f.p.locals
	hidden := len(locals) - n - 3
	for i := hidden; i < hidden+3; i++ {
		locals[i].from = int32(len(c.f.p.code))
		c.f.active = append(c.f.active, i)
	}
	c.expect(tkDo)
	var prepare int
	if numeric {
		prepare = c.emit(makeABx(opForPrep, base, noJump+maxSBx))
	} else {
		prepare = c.jump()
	}
	c.enter(false)
	c.activate(n)
	c.reserve(n)
	c.blockOf()
	c.leave()
	c.patchHere(prepare)
	if numeric {
		end := c.emit(makeABx(opForLoop, base, noJump+maxSBx))
		c.fixLine(line)
		c.patch(end, prepare+1)
	} else {
		c.emit(makeABC(opTForLoop, base, 0, n))
		c.fixLine(line)
		c.patch(c.jump(), prepare+1)
	}
}

func (c *compiler) functionStatement(line int) {
	c.next()
	v := c.variable(c.name())
	method := false
	for c.token == '.' {
		c.field(&v)
	}
	if c.token == ':' {
		method = true
		c.field(&v)
	}
	b := c.body(method, line)
	c.store(&v, &b)
	c.fixLine(line)
}

func (c *compiler) field(e *expression) {
	c.toAny(e)
	c.next()
	key := c.nameConstant()
	c.index(e, &key)
}

func (c *compiler) localFunction() {
	c.declare(c.name(), 0)
	v := plain(kLocal, c.f.free)
	c.reserve(1)
	c.activate(1)
	b := c.body(false, c.line)
	c.store(&v, &b)
	// The function's name is known from here on.
	c.f.p.locals[c.f.active[len(c.f.active)-1]].from = int32(len(c.f.p.code))
}

func (c *compiler) localStatement() {
	n := 0
	for {
		c.declare(c.name(), n)
		n++
		if !c.accept(',') {
			break
		}
	}
	if c.accept('=') {
		e, values := c.expressions()
		c.adjust(n, values, &e)
	} else {
		e := plain(kVoid, 0)
		c.adjust(n, 0, &e)
	}
	c.activate(n)
}

// adjust makes n values of so many expressions, of which e is the last and not in a register yet.
func (c *compiler) adjust(n, values int, e *expression) {
	extra := n - values
	if e.manyResults() {
		extra = max(extra+1, 0)
		c.results(e, extra)
		if extra > 1 {
			c.reserve(extra - 1)
		}
		return
	}
	if e.kind != kVoid {
		c.toNext(e)
	}
	if extra > 0 {
		reg := c.f.free
		c.reserve(extra)
		c.loadNil(reg, extra)
	}
}

func (c *compiler) returnStatement() {
	c.next()
	f := c.f
	first, n := 0, 0
	if !c.blockFollows() && c.token != ';' {
		e, values := c.expressions()
		switch {
		case e.manyResults():
			c.results(&e, -1)
			if e.kind == kCall && values == 1 {
				f.p.code[e.info].setOp(opTailCall)
			}
			first, n = len(f.active), -1
		case values == 1:
			first, n = c.toAny(&e), 1
		default:
			c.toNext(&e)
			first, n = len(f.active), values
		}
	}
	c.ret(first, n)
}

func (c *compiler) expressionStatement() {
	e := c.primary()
	if e.kind == kCall {
		c.f.p.code[e.info].setC(1)
		return
	}
	c.assignment([]expression{e})
}

func (c *compiler) assignment(left []expression) {
	last := left[len(left)-1]
	if last.kind < kLocal || last.kind > kIndexed {
		c.fail("syntax error", c.token)
	}
	if c.accept(',') {
		next := c.primary()
		if next.kind == kLocal {
			c.resolveConflict(left, &next)
		}
		// PUC-Rio's bounds this by the calls of C that are left.
		if len(left) > maxNesting-c.nesting {
			c.limit(len(left), maxNesting-c.nesting, "variables in assignment")
		}
		c.assignment(append(left, next))
		return
	}
	c.expect('=')
	e, values := c.expressions()
	if n := len(left); values != n {
		c.adjust(n, values, &e)
		if values > n {
			c.f.free -= values - n
		}
	} else {
		c.oneResult(&e)
		c.store(&left[len(left)-1], &e)
		left = left[:len(left)-1]
	}
	for i := len(left) - 1; i >= 0; i-- {
		e := plain(kRegister, c.f.free-1)
		c.store(&left[i], &e)
	}
}

// resolveConflict copies a local that an earlier target uses as its table or key before it is assigned.
func (c *compiler) resolveConflict(left []expression, v *expression) {
	extra, conflict := c.f.free, false
	for i := range left {
		if l := &left[i]; l.kind == kIndexed {
			if l.info == v.info {
				conflict, l.info = true, extra
			}
			if l.key == v.info {
				conflict, l.key = true, extra
			}
		}
	}
	if conflict {
		c.emit(makeABC(opMove, extra, v.info, 0))
		c.reserve(1)
	}
}

// expressions reads a list; all but the last are in registers.
func (c *compiler) expressions() (expression, int) {
	n := 1
	e := c.expression()
	for c.accept(',') {
		c.toNext(&e)
		e = c.expression()
		n++
	}
	return e, n
}

func (c *compiler) expression() expression {
	e, _ := c.binary(0)
	return e
}

// binary reads operators that bind more strongly than limit, and gives the first that does not.
func (c *compiler) binary(limit int) (expression, token) {
	c.deeper()
	var e expression
	switch t := c.token; t {
	case tkNot, '-', '#':
		c.next()
		e, _ = c.binary(unaryBinds)
		c.unary(t, &e)
	default:
		e = c.simple()
	}
	t := c.token
	op, ok := operators[t]
	for ok && op.left > limit {
		c.next()
		c.infix(t, &e)
		right, next := c.binary(op.right)
		c.postfix(t, op.op, &e, &right)
		t = next
		op, ok = operators[t]
	}
	c.nesting--
	return e, t
}

func (c *compiler) unary(t token, e *expression) {
	zero := plain(kNumber, 0)
	switch t {
	case tkNot:
		c.not(e)
	case '-':
		if !e.isNumber() {
			c.toAny(e)
		}
		c.arithmetic(opUnm, e, &zero)
	case '#':
		c.toAny(e)
		c.arithmetic(opLen, e, &zero)
	}
}

func (c *compiler) simple() expression {
	e := plain(kVoid, 0)
	switch c.token {
	case tkNumber:
		e.kind, e.number = kNumber, c.number
	case tkString:
		e = plain(kConstant, c.constant(LString(c.str)))
	case tkNil:
		e.kind = kNil
	case tkTrue:
		e.kind = kTrue
	case tkFalse:
		e.kind = kFalse
	case tkDots:
		p := c.f.p
		if p.vararg&isVararg == 0 {
			c.fail("cannot use '...' outside a vararg function", tkDots)
		}
		p.vararg &^= needsArg
		e = plain(kVararg, c.emit(makeABC(opVararg, 0, 1, 0)))
	case '{':
		return c.constructor()
	case tkFunction:
		c.next()
		return c.body(false, c.line)
	default:
		return c.primary()
	}
	c.next()
	return e
}

func (c *compiler) prefix() expression {
	switch c.token {
	case '(':
		line := c.line
		c.next()
		e := c.expression()
		c.expectMatch(')', '(', line)
		c.discharge(&e)
		return e
	case tkName:
		return c.variable(c.name())
	}
	c.fail("unexpected symbol", c.token)
	panic("unreachable")
}

func (c *compiler) primary() expression {
	e := c.prefix()
	for {
		switch c.token {
		case '.':
			c.field(&e)
		case '[':
			c.toAny(&e)
			key := c.bracket()
			c.index(&e, &key)
		case ':':
			c.next()
			key := c.nameConstant()
			c.self(&e, &key)
			c.arguments(&e)
		case '(', tkString, '{':
			c.toNext(&e)
			c.arguments(&e)
		default:
			return e
		}
	}
}

func (c *compiler) bracket() expression {
	c.next()
	e := c.expression()
	c.toValue(&e)
	c.expect(']')
	return e
}

func (c *compiler) arguments(f *expression) {
	line := c.line
	args := plain(kVoid, 0)
	switch c.token {
	case '(':
		if line != c.last {
			c.fail("ambiguous syntax (function call x new statement)", c.token)
		}
		c.next()
		if c.token != ')' {
			args, _ = c.expressions()
			c.results(&args, -1)
		}
		c.expectMatch(')', '(', line)
	case '{':
		args = c.constructor()
	case tkString:
		args = plain(kConstant, c.constant(LString(c.str)))
		c.next()
	default:
		c.fail("function arguments expected", c.token)
	}
	base, n := f.info, -1
	if !args.manyResults() {
		if args.kind != kVoid {
			c.toNext(&args)
		}
		n = c.f.free - (base + 1)
	}
	*f = plain(kCall, c.emit(makeABC(opCall, base, n+1, 2)))
	c.fixLine(line)
	c.f.free = base + 1 // the call leaves one result, unless told otherwise
}

func (c *compiler) constructor() expression {
	line := c.line
	at := c.emit(makeABC(opNewTable, 0, 0, 0))
	t := plain(kPending, at)
	c.toNext(&t)
	value, waiting, na, nh := plain(kVoid, 0), 0, 0, 0
	c.expect('{')
	for c.token != '}' {
		if value.kind != kVoid {
			c.toNext(&value)
			value.kind = kVoid
			if waiting == fieldsPerSet {
				c.setList(t.info, na, waiting)
				waiting = 0
			}
		}
		switch {
		case c.token == '[', c.token == tkName && c.lookAhead() == '=':
			reg := c.f.free
			var key expression
			if c.token == '[' {
				key = c.bracket()
			} else {
				key = c.nameConstant()
			}
			nh++
			c.expect('=')
			k := c.toRK(&key)
			e := c.expression()
			c.emit(makeABC(opSetTable, t.info, k, c.toRK(&e)))
			c.f.free = reg
		default:
			value = c.expression()
			na++
			waiting++
		}
		if !c.accept(',') && !c.accept(';') {
			break
		}
	}
	c.expectMatch('}', '{', line)
	switch {
	case waiting == 0:
	case value.manyResults():
		c.results(&value, -1)
		c.setList(t.info, na, -1)
		na--
	default:
		if value.kind != kVoid {
			c.toNext(&value)
		}
		c.setList(t.info, na, waiting)
	}
	i := &c.f.p.code[at]
	i.setB(min(encodeSize(na), maxC))
	i.setC(min(encodeSize(nh), maxC))
	return t
}

func (c *compiler) setList(base, elements, n int) {
	batch := (elements-1)/fieldsPerSet + 1
	if batch <= maxC {
		c.emit(makeABC(opSetList, base, max(n, 0), batch))
	} else {
		c.emit(makeABC(opSetList, base, max(n, 0), 0))
		c.emit(instruction(batch))
	}
	c.f.free = base + 1
}

func (c *compiler) body(method bool, line int) expression {
	c.open(line)
	f := c.f
	c.expect('(')
	if method {
		c.declare("self", 0)
		c.activate(1)
	}
	c.parameters()
	c.expect(')')
	c.chunk()
	c.expectMatch(tkEnd, tkFunction, line)
	p := c.close()
	outer := c.f
	if len(outer.p.protos) > maxBx {
		c.fail("constant table overflow", 0)
	}
	outer.p.protos = append(outer.p.protos, p)
	e := plain(kPending, c.emit(makeABx(opClosure, 0, len(outer.p.protos)-1)))
	for _, u := range f.upvalues {
		op := opGetUpval
		if u.local {
			op = opMove
		}
		c.emit(makeABC(op, 0, u.index, 0))
	}
	return e
}

func (c *compiler) parameters() {
	p, n := c.f.p, 0
	if c.token != ')' {
	loop:
		for {
			switch c.token {
			case tkName:
				c.declare(c.name(), n)
				n++
			case tkDots:
				c.next()
				c.declare("arg", n)
				n++
				p.vararg = hasArg | needsArg | isVararg
			default:
				c.fail("<name> or '...' expected", c.token)
			}
			if p.vararg&isVararg != 0 || !c.accept(',') {
				break loop
			}
		}
	}
	c.activate(n)
	p.params = len(c.f.active)
	if p.vararg&hasArg != 0 {
		p.params--
	}
	c.reserve(len(c.f.active))
}

// arith computes on numbers. The result does not depend on the processor: nothing is fused, and a NaN has the sign that
// x86-64 gives it.
func arith(op opcode, a, b float64) float64 {
	var r float64
	switch op {
	case opAdd:
		r = float64(a + b)
	case opSub:
		r = float64(a - b)
	case opMul:
		r = float64(a * b)
	case opDiv:
		r = float64(a / b)
	case opMod:
		r = float64(a - float64(math.Floor(float64(a/b))*b))
	case opPow:
		return Pow(a, b)
	}
	if r != r {
		return nan(a, b)
	}
	return r
}

// nan is what x86-64 makes of an operation without a result.
func nan(a, b float64) float64 {
	switch {
	case a != a:
		return a
	case b != b:
		return b
	}
	return math.Copysign(math.NaN(), -1)
}
