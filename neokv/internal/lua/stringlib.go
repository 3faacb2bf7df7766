package lua

import (
	"bytes"
	"strings"

	"neokv.dev/neokv/internal/lua/vm"
)

var stringFunctions = []named{
	{"byte", stringByte}, {"char", stringChar}, {"dump", stringDump}, {"find", stringFind}, {"format", stringFormat},
	{"gfind", stringGmatch}, {"gmatch", stringGmatch}, {"gsub", stringGsub}, {"len", stringLen},
	{"lower", stringLower}, {"match", stringMatch}, {"rep", stringRep}, {"reverse", stringReverse},
	{"sub", stringSub}, {"upper", stringUpper},
}

// position turns a position that may count from the end into one that counts from 1.
func position(at int64, n int) int64 {
	if at < 0 {
		at += int64(n) + 1
	}
	return max(at, 0)
}

func stringLen(L *vm.LState) int {
	L.PushNumber(float64(len(L.CheckString(1))))
	return 1
}

func stringSub(L *vm.LState) int {
	s := L.CheckString(1)
	from, to := position(L.CheckInt64(2), len(s)), position(L.OptInt64(3, -1), len(s))
	from, to = max(from, 1), min(to, int64(len(s)))
	if from > to {
		L.PushString("")
	} else {
		L.PushString(s[from-1 : to])
	}
	return 1
}

func stringReverse(L *vm.LState) int {
	s := L.CheckString(1)
	L.Charge(len(s)>>4, len(s))
	b := make([]byte, len(s))
	for i := range b {
		b[i] = s[len(s)-1-i]
	}
	L.Push(vm.LString(b))
	return 1
}

func mapBytes(L *vm.LState, from, to byte, delta int) int {
	s := L.CheckString(1)
	L.Charge(len(s)>>4, len(s))
	b := []byte(s)
	for i, c := range b {
		if c >= from && c <= to {
			b[i] = byte(int(c) + delta)
		}
	}
	L.Push(vm.LString(b))
	return 1
}

func stringLower(L *vm.LState) int { return mapBytes(L, 'A', 'Z', 'a'-'A') }
func stringUpper(L *vm.LState) int { return mapBytes(L, 'a', 'z', 'A'-'a') }

func stringRep(L *vm.LState) int {
	s, n := L.CheckString(1), L.CheckInt(2)
	if n <= 0 || s == "" {
		L.PushString("")
		return 1
	}
	L.Charge(len(s)*n>>6, len(s)*n)
	L.Push(vm.LString(strings.Repeat(s, n)))
	return 1
}

func stringByte(L *vm.LState) int {
	s := L.CheckString(1)
	from := position(L.OptInt64(2, 1), len(s))
	to := min(position(L.OptInt64(3, from), len(s)), int64(len(s)))
	from = max(from, 1)
	if from > to {
		return 0
	}
	n := int(to - from + 1)
	L.CheckStack(n, "string slice too long")
	L.Charge(n/4, 0)
	for _, c := range []byte(s[from-1 : to]) {
		L.PushNumber(float64(c))
	}
	return n
}

func stringChar(L *vm.LState) int {
	n := L.GetTop()
	L.Charge(n/4, 0)
	b := make([]byte, n)
	for i := range b {
		c := L.CheckInt(i + 1)
		if c < 0 || c > 255 {
			L.ArgError(i+1, "invalid value")
		}
		b[i] = byte(c)
	}
	L.PushString(string(b))
	return 1
}

// stringDump fails: no bytecode leaves or enters a script here.
func stringDump(L *vm.LState) int {
	L.CheckFunction(1)
	L.RaiseError("unable to dump given function")
	return 0
}

// A matcher runs a pattern over a string. Each step is counted: patterns can take exponential time.
type matcher struct {
	L        *vm.LState
	s, p     string
	steps    int
	depth    int
	level    int
	captures [maxCaptures]capture
}

type capture struct{ at, size int }

const (
	maxCaptures = 32
	unfinished  = -1
	isPosition  = -2
	// Nothing in PUC-Rio's Lua bounds this but the stack of C.
	maxMatchDepth = 10000
)

// newMatcher cuts the pattern at its first zero byte, as C does.
func newMatcher(L *vm.LState, s, p string) *matcher {
	if i := strings.IndexByte(p, 0); i >= 0 {
		p = p[:i]
	}
	return &matcher{L: L, s: s, p: p}
}

// at is the pattern's byte, 0 at its end.
func (m *matcher) at(p int) byte {
	if p < len(m.p) {
		return m.p[p]
	}
	return 0
}

func (m *matcher) classEnd(p int) int {
	c := m.at(p)
	p++
	switch c {
	case '%':
		if m.at(p) == 0 {
			m.L.RaiseError("malformed pattern (ends with '%%')")
		}
		return p + 1
	case '[':
		if m.at(p) == '^' {
			p++
		}
		for {
			if m.at(p) == 0 {
				m.L.RaiseError("malformed pattern (missing ']')")
			}
			p++
			if m.p[p-1] == '%' && m.at(p) != 0 {
				p++
			}
			if m.at(p) == ']' {
				return p + 1
			}
		}
	}
	return p
}

func inClass(c, class byte) bool {
	var in bool
	letter := c|0x20 >= 'a' && c|0x20 <= 'z'
	digit := c >= '0' && c <= '9'
	switch class | 0x20 {
	case 'a':
		in = letter
	case 'c':
		in = c < 32 || c == 127
	case 'd':
		in = digit
	case 'l':
		in = c >= 'a' && c <= 'z'
	case 'p':
		in = c > 32 && c < 127 && !letter && !digit
	case 's':
		in = vm.IsSpace(c)
	case 'u':
		in = c >= 'A' && c <= 'Z'
	case 'w':
		in = letter || digit
	case 'x':
		in = digit || c|0x20 >= 'a' && c|0x20 <= 'f'
	case 'z':
		in = c == 0
	default:
		return c == class
	}
	if class >= 'a' && class <= 'z' {
		return in
	}
	if class >= 'A' && class <= 'Z' {
		return !in
	}
	return c == class // a byte that only looks like a letter with its bit set
}

// inSet says whether c is in the set from p, a bracket, to end, its closing one.
func (m *matcher) inSet(c byte, p, end int) bool {
	in := true
	if m.at(p+1) == '^' {
		in = false
		p++
	}
	for p++; p < end; p++ {
		m.count()
		switch {
		case m.p[p] == '%':
			p++
			if inClass(c, m.at(p)) {
				return in
			}
		case m.at(p+1) == '-' && p+2 < end:
			p += 2
			if m.p[p-2] <= c && c <= m.p[p] {
				return in
			}
		case m.p[p] == c:
			return in
		}
	}
	return !in
}

func (m *matcher) single(c byte, p, end int) bool {
	switch m.p[p] {
	case '.':
		return true
	case '%':
		return inClass(c, m.at(p+1))
	case '[':
		return m.inSet(c, p, end-1)
	}
	return m.p[p] == c
}

// count charges a step of the machine for each four of the matcher.
func (m *matcher) count() {
	if m.steps++; m.steps&3 == 0 {
		m.L.Charge(1, 0)
	}
}

// match is where the match of the pattern from p on ends that begins at s, or -1.
func (m *matcher) match(s, p int) int {
	if m.depth++; m.depth > maxMatchDepth {
		m.L.RaiseError("pattern too complex")
	}
	end := m.matchHere(s, p)
	m.depth--
	return end
}

func (m *matcher) matchHere(s, p int) int {
	for {
		m.count()
		switch m.at(p) {
		case 0:
			return s
		case '(':
			if m.at(p+1) == ')' {
				return m.open(s, p+2, isPosition)
			}
			return m.open(s, p+1, unfinished)
		case ')':
			return m.close(s, p+1)
		case '$':
			if p+1 == len(m.p) {
				if s == len(m.s) {
					return s
				}
				return -1
			}
		case '%':
			switch c := m.at(p + 1); {
			case c == 'b':
				if s = m.balance(s, p+2); s < 0 {
					return -1
				}
				p += 4
				continue
			case c == 'f':
				p += 2
				if m.at(p) != '[' {
					m.L.RaiseError("missing '[' after '%%f' in pattern")
				}
				end := m.classEnd(p)
				var before, here byte
				if s > 0 {
					before = m.s[s-1]
				}
				if s < len(m.s) {
					here = m.s[s]
				}
				if m.inSet(before, p, end-1) || !m.inSet(here, p, end-1) {
					return -1
				}
				p = end
				continue
			case c >= '0' && c <= '9':
				if s = m.again(s, c); s < 0 {
					return -1
				}
				p += 2
				continue
			}
		}
		end := m.classEnd(p)
		found := s < len(m.s) && m.single(m.s[s], p, end)
		switch m.at(end) {
		case '?':
			if found {
				if e := m.match(s+1, end+1); e >= 0 {
					return e
				}
			}
			p = end + 1
		case '*':
			return m.longest(s, p, end)
		case '+':
			if !found {
				return -1
			}
			return m.longest(s+1, p, end)
		case '-':
			return m.shortest(s, p, end)
		default:
			if !found {
				return -1
			}
			s, p = s+1, end
		}
	}
}

func (m *matcher) longest(s, p, end int) int {
	n := 0
	for s+n < len(m.s) && m.single(m.s[s+n], p, end) {
		m.count()
		n++
	}
	for ; n >= 0; n-- {
		if e := m.match(s+n, end+1); e >= 0 {
			return e
		}
	}
	return -1
}

func (m *matcher) shortest(s, p, end int) int {
	for {
		if e := m.match(s, end+1); e >= 0 {
			return e
		}
		if s >= len(m.s) || !m.single(m.s[s], p, end) {
			return -1
		}
		s++
	}
}

func (m *matcher) open(s, p, what int) int {
	if m.level >= maxCaptures {
		m.L.RaiseError("too many captures")
	}
	m.captures[m.level] = capture{s, what}
	m.level++
	e := m.match(s, p)
	if e < 0 {
		m.level--
	}
	return e
}

func (m *matcher) close(s, p int) int {
	i := m.level - 1
	for i >= 0 && m.captures[i].size != unfinished {
		i--
	}
	if i < 0 {
		m.L.RaiseError("invalid pattern capture")
	}
	m.captures[i].size = s - m.captures[i].at
	e := m.match(s, p)
	if e < 0 {
		m.captures[i].size = unfinished
	}
	return e
}

func (m *matcher) balance(s, p int) int {
	if m.at(p) == 0 || m.at(p+1) == 0 {
		m.L.RaiseError("unbalanced pattern")
	}
	if s >= len(m.s) || m.s[s] != m.p[p] {
		return -1
	}
	open, shut, depth := m.p[p], m.p[p+1], 1
	for s++; s < len(m.s); s++ {
		m.count()
		switch m.s[s] {
		case shut:
			if depth--; depth == 0 {
				return s + 1
			}
		case open:
			depth++
		}
	}
	return -1
}

// again matches what capture c, a digit, has matched.
func (m *matcher) again(s int, c byte) int {
	i := int(c) - '1'
	if i < 0 || i >= m.level || m.captures[i].size == unfinished {
		m.L.RaiseError("invalid capture index")
	}
	// The size of a position is huge for C, so it never fits.
	at, n := m.captures[i].at, m.captures[i].size
	if n < 0 || n > len(m.s)-s {
		return -1
	}
	m.L.Charge(n>>6, 0)
	if m.s[at:at+n] != m.s[s:s+n] {
		return -1
	}
	return s + n
}

// capture is capture i of a match from s to e; without captures the first is the whole match.
func (m *matcher) capture(i, s, e int) vm.LValue {
	if i >= m.level {
		if i != 0 {
			m.L.RaiseError("invalid capture index")
		}
		return m.text(s, e)
	}
	switch c := m.captures[i]; c.size {
	case unfinished:
		m.L.RaiseError("unfinished capture")
		return nil
	case isPosition:
		return vm.Number(float64(c.at + 1))
	default:
		return m.text(c.at, c.at+c.size)
	}
}

func (m *matcher) text(s, e int) vm.LValue {
	m.L.Charge(1, e-s+16)
	return vm.LString(m.s[s:e])
}

// push pushes all captures, or the whole match if it has none and whole is set.
func (m *matcher) push(s, e int, whole bool) int {
	n := m.level
	if n == 0 && whole {
		n = 1
	}
	for i := range n {
		m.L.Push(m.capture(i, s, e))
	}
	return n
}

func stringFind(L *vm.LState) int  { return find(L, true) }
func stringMatch(L *vm.LState) int { return find(L, false) }

func find(L *vm.LState, positions bool) int {
	s, p := L.CheckString(1), L.CheckString(2)
	s0 := int(min(max(position(L.OptInt64(3, 1), len(s))-1, 0), int64(len(s))))
	pattern := p
	if i := strings.IndexByte(p, 0); i >= 0 {
		pattern = p[:i]
	}
	if positions && (vm.LVAsBool(L.Get(4)) || !strings.ContainsAny(pattern, "^$*+?.([%-")) {
		// A search compares at most so often, and mostly goes by words.
		L.Charge((len(s)-s0)>>5+len(p)>>5, 0)
		if i := strings.Index(s[s0:], p); i >= 0 {
			L.PushNumber(float64(s0 + i + 1))
			L.PushNumber(float64(s0 + i + len(p)))
			return 2
		}
		L.Push(vm.LNil)
		return 1
	}
	m := newMatcher(L, s, p)
	anchor := 0
	if m.at(0) == '^' {
		anchor = 1
	}
	for {
		m.level = 0
		if e := m.match(s0, anchor); e >= 0 {
			if !positions {
				return m.push(s0, e, true)
			}
			L.PushNumber(float64(s0 + 1))
			L.PushNumber(float64(e))
			return m.push(s0, e, false) + 2
		}
		if s0++; s0 > len(s) || anchor > 0 {
			break
		}
	}
	L.Push(vm.LNil)
	return 1
}

func stringGmatch(L *vm.LState) int {
	s, p := L.CheckString(1), L.CheckString(2)
	from := 0
	L.Push(L.NewFunction(func(L *vm.LState) int {
		m := newMatcher(L, s, p)
		for ; from <= len(s); from++ {
			m.level = 0
			if e := m.match(from, 0); e >= 0 {
				start := from
				if from = e; e == start {
					from++
				}
				return m.push(start, e, true)
			}
		}
		return 0
	}))
	return 1
}

func stringGsub(L *vm.LState) int {
	s, p := L.CheckString(1), L.CheckString(2)
	most := L.OptInt(4, len(s)+1)
	with := L.Get(3)
	switch with.(type) {
	case vm.LString, vm.LNumber, *vm.LFunction, *vm.LTable:
	default:
		L.ArgError(3, "string/function/table expected")
	}
	m := newMatcher(L, s, p)
	anchor := 0
	if m.at(0) == '^' {
		anchor = 1
	}
	var b bytes.Buffer
	add := func(t string) {
		L.Charge(len(t)>>6, len(t))
		b.WriteString(t)
	}
	at, n := 0, 0
	for n < most {
		m.level = 0
		e := m.match(at, anchor)
		if e >= 0 {
			n++
			m.replace(at, e, with, add)
		}
		if e > at {
			at = e
		} else if at < len(s) {
			add(s[at : at+1])
			at++
		} else {
			break
		}
		if anchor > 0 {
			break
		}
	}
	add(s[min(at, len(s)):])
	L.Push(vm.LString(b.String()))
	L.PushNumber(float64(n))
	return 2
}

// replace adds what stands in place of a match.
func (m *matcher) replace(s, e int, with vm.LValue, add func(string)) {
	L := m.L
	var v vm.LValue
	switch w := with.(type) {
	case *vm.LFunction:
		L.Push(w)
		L.Call(m.push(s, e, true), 1)
		v = L.Get(-1)
		L.Pop(1)
	case *vm.LTable:
		v = L.GetTable(w, m.capture(0, s, e))
	default:
		m.expand(vm.LVAsString(w), s, e, add)
		return
	}
	switch {
	case vm.LVIsFalse(v):
		add(m.s[s:e])
	case vm.LVCanConvToString(v):
		add(vm.LVAsString(v))
	default:
		L.RaiseError("invalid replacement value (a %s)", v.Type())
	}
}

// expand adds a replacement, in which %1 is a capture.
func (m *matcher) expand(with string, s, e int, add func(string)) {
	for {
		i := strings.IndexByte(with, '%')
		if i < 0 {
			add(with)
			return
		}
		add(with[:i])
		if with = with[i+1:]; with == "" {
			add("\x00") // the byte that ends a string of C
			return
		}
		switch c := with[0]; {
		case c == '0':
			add(m.s[s:e])
		case c >= '1' && c <= '9':
			add(vm.LVAsString(m.capture(int(c-'1'), s, e)))
		default:
			add(with[:1])
		}
		with = with[1:]
	}
}
