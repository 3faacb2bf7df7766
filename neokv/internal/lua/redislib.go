package lua

import (
	"bytes"
	"math"
	"strconv"
	"strings"

	"neokv.dev/neokv/internal/lua/vm"
)

// What redis.log and redis.set_repl take.
var redisNumbers = []struct {
	name  string
	value float64
}{
	{"LOG_DEBUG", 0}, {"LOG_VERBOSE", 1}, {"LOG_NOTICE", 2}, {"LOG_WARNING", 3},
	{"REPL_NONE", 0}, {"REPL_AOF", 1}, {"REPL_SLAVE", 2}, {"REPL_REPLICA", 2}, {"REPL_ALL", 3},
	{"REDIS_VERSION_NUM", 0x0007000f},
}

func (s *State) openRedis() {
	L := s.L
	t := fill(L, L.NewTable(), []named{
		{"call", func(L *vm.LState) int { return s.call(L, true) }},
		{"pcall", func(L *vm.LState) int { return s.call(L, false) }},
		{"log", s.log}, {"sha1hex", sha1Hex}, {"error_reply", errorReplyOf}, {"status_reply", statusReplyOf},
		{"setresp", s.setProtocol}, {"set_repl", setReplication}, {"replicate_commands", always(vm.LTrue)},
		{"breakpoint", always(vm.LFalse)}, {"debug", func(*vm.LState) int { return 0 }}, {"acl_check_cmd", s.aclCheck},
	})
	for _, n := range redisNumbers {
		t.RawSetString(n.name, vm.Number(n.value))
	}
	t.RawSetString("REDIS_VERSION", vm.LString("7.0.15"))
	L.Env.RawSetString("redis", t)
	s.handler = L.NewFunction(handleError)
	L.Env.RawSetString("__redis__err__handler", s.handler)
}

func always(v vm.LValue) vm.LGFunction {
	return func(L *vm.LState) int {
		L.Push(v)
		return 1
	}
}

// handleError makes a table of an error, with the place where it was raised.
func handleError(L *vm.LState) int {
	t, ok := L.Get(1).(*vm.LTable)
	if !ok {
		v := L.Get(1)
		if fn := L.GetMetaField(v, "__tostring"); fn != vm.LNil {
			L.Push(fn)
			L.Push(v)
			L.Call(1, 1)
			v = L.Get(-1)
		}
		t = L.NewTable()
		message := "ERR " + v.String()
		L.Charge(0, len(message))
		t.RawSetString("err", vm.LString(message))
	}
	source, line, ok := L.Position(1)
	if ok && source == "=[C]" {
		source, line, ok = L.Position(2)
	}
	if ok {
		L.SetField(t, "source", vm.LString(source))
		L.SetField(t, "line", vm.Number(float64(line)))
	}
	L.Push(t)
	return 1
}

// errorTable is Redis's luaPushErrorBuff: "-CODE message" keeps its code, other texts get ERR.
func errorTable(L *vm.LState, message string) *vm.LTable {
	code, rest := "ERR", message
	if m, ok := strings.CutPrefix(message, "-"); ok {
		m = strings.Trim(m, "\r\n")
		if c, r, ok := strings.Cut(m, " "); ok {
			code, rest = c, r
		} else {
			rest = m
		}
	}
	text := code + " " + strings.Trim(rest, "\r\n")
	L.Charge(0, len(text))
	t := L.NewTable()
	t.RawSetString("err", vm.LString(text))
	return t
}

func (s *State) call(L *vm.LState, raise bool) int {
	v, failed := s.callCommand(L)
	if failed && raise {
		L.Throw(v)
	}
	L.Push(v)
	return 1
}

func (s *State) callCommand(L *vm.LState) (v vm.LValue, failed bool) {
	if wrong := s.takeArguments(L); wrong != "" {
		return errorTable(L, wrong), true
	}
	s.outside = true
	s.reply = s.run.Host.Call(s.reply[:0], s.args, s.protocol)
	s.outside = false
	clear(s.args)
	failed = len(s.reply) > 0 && s.reply[0] == '-'
	r := replyReader{L: L, b: s.reply}
	v = r.value(0)
	if cap(s.reply) > 1<<20 {
		s.reply = nil
	}
	return v, failed
}

// takeArguments makes s.args of the arguments of a command. If it cannot, it returns the error.
func (s *State) takeArguments(L *vm.LState) (wrong string) {
	n := L.GetTop()
	if n == 0 {
		return "Please specify at least one argument for this redis lib call"
	}
	s.args, s.numbers = s.args[:0], s.numbers[:0]
	total := 0
	for i := 1; i <= n; i++ {
		switch v := L.Get(i).(type) {
		case vm.LString:
			s.args = append(s.args, vm.Bytes(v))
			total += len(v)
		case vm.LNumber:
			from := len(s.numbers)
			s.numbers = appendArgument(s.numbers, float64(v))
			s.args = append(s.args, s.numbers[from:len(s.numbers):len(s.numbers)])
		default:
			return "Lua redis lib command arguments must be strings or integers"
		}
	}
	L.Charge(callSteps+n+total>>6, 0)
	return ""
}

// callSteps is what a call costs besides what the host charges.
const callSteps = 10

// appendArgument writes a number as C's %.17g.
func appendArgument(b []byte, f float64) []byte {
	if i := int64(f); float64(i) == f && i < 1e15 && i > -1e15 && (i != 0 || !math.Signbit(f)) {
		return strconv.AppendInt(b, i, 10)
	}
	return vm.AppendFloat(b, f, 'g', 17)
}

func (s *State) log(L *vm.LState) int {
	n := L.GetTop()
	if n < 2 {
		L.Throw(errorTable(L, "redis.log() requires two arguments or more."))
	}
	number, ok := vm.ToNumber(L.Get(1))
	if !ok {
		L.Throw(errorTable(L, "First argument must be a number (log level)."))
	}
	l := vm.Int32(number)
	if l < 0 || l > 3 {
		L.Throw(errorTable(L, "Invalid debug level."))
	}
	var parts []string
	for i := 2; i <= n; i++ {
		if v := L.Get(i); vm.LVCanConvToString(v) {
			parts = append(parts, vm.LVAsString(v))
			L.Charge(0, len(parts[len(parts)-1]))
		}
	}
	s.run.Host.Log(l, strings.Join(parts, " "))
	return 0
}

func sha1Hex(L *vm.LState) int {
	if L.GetTop() != 1 {
		L.Throw(errorTable(L, "wrong number of arguments"))
	}
	text := vm.LVAsString(L.Get(1))
	L.Charge(10+len(text)>>3, 0)
	L.PushString(SHA1(text))
	return 1
}

func errorReplyOf(L *vm.LState) int {
	v, ok := L.Get(1).(vm.LString)
	if !ok || L.GetTop() != 1 {
		L.Push(errorTable(L, "wrong number or type of arguments"))
		return 1
	}
	text := cString(string(v))
	if !strings.HasPrefix(text, "-") {
		text = "-" + text
	}
	L.Push(errorTable(L, text))
	return 1
}

// cString is s up to its first zero byte.
func cString(s string) string {
	s, _, _ = strings.Cut(s, "\x00")
	return s
}

func statusReplyOf(L *vm.LState) int {
	v, ok := L.Get(1).(vm.LString)
	if !ok || L.GetTop() != 1 {
		L.Push(errorTable(L, "wrong number or type of arguments"))
		return 1
	}
	t := L.NewTable()
	t.RawSetString("ok", v)
	L.Push(t)
	return 1
}

func (s *State) setProtocol(L *vm.LState) int {
	if L.GetTop() != 1 {
		L.Throw(errorTable(L, "redis.setresp() requires one argument."))
	}
	if p := vm.Int32(vm.LVAsNumber(L.Get(1))); p == 2 || p == 3 {
		s.protocol = p
		return 0
	}
	L.Throw(errorTable(L, "RESP version must be 2 or 3."))
	return 0
}

func setReplication(L *vm.LState) int {
	if L.GetTop() != 1 {
		L.Throw(errorTable(L, "redis.set_repl() requires two arguments."))
	}
	if vm.Int32(vm.LVAsNumber(L.Get(1)))&^3 != 0 {
		L.Throw(errorTable(L, "Invalid replication flags. Use REPL_AOF, REPL_REPLICA, REPL_ALL or REPL_NONE."))
	}
	return 0
}

// aclCheck says that the user may run a command, if there is one of this name: there is one user, who may do all.
func (s *State) aclCheck(L *vm.LState) int {
	if wrong := s.takeArguments(L); wrong != "" {
		L.Throw(errorTable(L, wrong))
	}
	known := s.run.Host.Knows(s.args)
	clear(s.args)
	if !known {
		L.Throw(errorTable(L, "Invalid command passed to redis.acl_check_cmd()"))
	}
	L.Push(vm.LTrue)
	return 1
}

// maxReplyDepth bounds tables within tables: PUC-Rio's stack is at its end there.
const maxReplyDepth = 7993

// errorReply is the reply for an error that ended a script.
func (s *State) errorReply(dst []byte, v vm.LValue) []byte {
	t, ok := v.(*vm.LTable)
	if !ok {
		message := "execution failure"
		if vm.LVCanConvToString(v) {
			message = cString(vm.LVAsString(v))
		}
		message = message[:min(len(message), 100)]
		return appendError(dst, "-ERR Error running script "+s.run.Script.SHA+", "+message)
	}
	message := "-"
	if v := s.L.GetField(t, "err"); vm.LVCanConvToString(v) {
		message += cString(vm.LVAsString(v))
	} else {
		message += "ERR the script raised a table without the text err" // Redis 7.0 ends its process
	}
	source, line := s.L.GetField(t, "source"), s.L.GetField(t, "line")
	if vm.LVCanConvToString(source) && vm.LVCanConvToString(line) {
		message += " script: " + s.run.Script.SHA + ", on " + cString(vm.LVAsString(source)) + ":" +
			cString(vm.LVAsString(line)) + "."
	}
	return appendError(dst, message)
}

// appendError writes an error in one line.
func appendError(dst []byte, message string) []byte {
	return append(appendLine(dst, strings.Trim(message, "\r\n")), "\r\n"...)
}

func appendLine(dst []byte, text string) []byte {
	from := len(dst)
	dst = append(dst, text...)
	for i, c := range dst[from:] {
		if c == '\r' || c == '\n' {
			dst[from+i] = ' '
		}
	}
	return dst
}

func appendBulk(dst []byte, s string) []byte {
	dst = append(dst, '$')
	dst = strconv.AppendInt(dst, int64(len(s)), 10)
	dst = append(dst, "\r\n"...)
	dst = append(dst, s...)
	return append(dst, "\r\n"...)
}

func appendHeader(dst []byte, kind byte, n int) []byte {
	dst = append(dst, kind)
	dst = strconv.AppendInt(dst, int64(n), 10)
	return append(dst, "\r\n"...)
}

func (s *State) null(dst []byte) []byte {
	if s.run.Protocol >= 3 {
		return append(dst, "_\r\n"...)
	}
	return append(dst, "$-1\r\n"...)
}

// replyOf appends a script's result as a reply.
func (s *State) replyOf(dst []byte, v vm.LValue, depth int) []byte {
	s.L.Charge(1, 16)
	if depth > maxReplyDepth {
		return append(dst, "-ERR reached lua stack limit\r\n"...)
	}
	switch v := v.(type) {
	case vm.LString:
		s.L.Charge(len(v)>>6, len(v))
		return appendBulk(dst, string(v))
	case vm.LNumber:
		dst = append(dst, ':')
		dst = strconv.AppendInt(dst, vm.Int64(float64(v)), 10)
		return append(dst, "\r\n"...)
	case vm.LBool:
		switch {
		case s.protocol < 3 && bool(v):
			return append(dst, ":1\r\n"...)
		case s.protocol < 3:
			return s.null(dst)
		case s.run.Protocol >= 3 && bool(v):
			return append(dst, "#t\r\n"...)
		case s.run.Protocol >= 3:
			return append(dst, "#f\r\n"...)
		case bool(v):
			return append(dst, ":1\r\n"...)
		}
		return append(dst, ":0\r\n"...)
	case *vm.LTable:
		return s.replyOfTable(dst, v, depth)
	}
	return s.null(dst)
}

func (s *State) replyOfTable(dst []byte, t *vm.LTable, depth int) []byte {
	if v := t.RawGetString("err"); v.Type() == vm.LTString {
		return appendError(dst, "-"+cString(vm.LVAsString(v)))
	}
	if v, ok := t.RawGetString("ok").(vm.LString); ok {
		return append(appendLine(append(dst, '+'), cString(string(v))), "\r\n"...)
	}
	if v, ok := t.RawGetString("double").(vm.LNumber); ok {
		text := string(appendDouble(nil, float64(v)))
		if s.run.Protocol >= 3 {
			return append(append(append(dst, ','), text...), "\r\n"...)
		}
		return appendBulk(dst, text)
	}
	if m, ok := t.RawGetString("map").(*vm.LTable); ok {
		return s.replyOfEntries(dst, m, depth, true)
	}
	if m, ok := t.RawGetString("set").(*vm.LTable); ok {
		return s.replyOfEntries(dst, m, depth, false)
	}
	if v, ok := t.RawGetString("big_number").(vm.LString); ok {
		if s.run.Protocol >= 3 {
			return append(appendLine(append(dst, '('), string(v)), "\r\n"...)
		}
		return appendBulk(dst, string(appendLine(nil, string(v))))
	}
	if v, ok := t.RawGetString("verbatim_string").(*vm.LTable); ok {
		format, ok := v.RawGetString("format").(vm.LString)
		text, ok2 := v.RawGetString("string").(vm.LString)
		if ok && ok2 {
			return s.verbatim(dst, cString(string(format)), string(text))
		}
	}
	n := 0
	for t.RawGetInt(n+1) != vm.LNil {
		n++
	}
	s.L.Charge(n, 0)
	dst = appendHeader(dst, '*', n)
	for i := 1; i <= n; i++ {
		dst = s.replyOf(dst, t.RawGetInt(i), depth+1)
	}
	return dst
}

func (s *State) verbatim(dst []byte, format, text string) []byte {
	s.L.Charge(len(text)>>6, len(text))
	if s.run.Protocol < 3 {
		return appendBulk(dst, text)
	}
	// The format has three bytes.
	format = (format + "   ")[:3]
	dst = appendHeader(dst, '=', len(text)+4)
	dst = append(dst, format...)
	dst = append(dst, ':')
	return append(append(dst, text...), "\r\n"...)
}

// replyOfEntries appends the keys of a table, and its values if it is a map.
func (s *State) replyOfEntries(dst []byte, t *vm.LTable, depth int, values bool) []byte {
	n := 0
	for k, _, _ := t.Next(vm.LNil); k != vm.LNil; k, _, _ = t.Next(k) {
		n++
	}
	s.L.Charge(n, 0)
	switch {
	case values && s.run.Protocol >= 3:
		dst = appendHeader(dst, '%', n)
	case values:
		dst = appendHeader(dst, '*', 2*n)
	case s.run.Protocol >= 3:
		dst = appendHeader(dst, '~', n)
	default:
		dst = appendHeader(dst, '*', n)
	}
	for k, v, _ := t.Next(vm.LNil); k != vm.LNil; k, v, _ = t.Next(k) {
		dst = s.replyOf(dst, k, depth+1)
		if values {
			dst = s.replyOf(dst, v, depth+1)
		}
	}
	return dst
}

// appendDouble writes a double as Redis 7.0 replies with it: inf, -inf, nan, else %.17g.
func appendDouble(b []byte, f float64) []byte { return vm.AppendFloat(b, f, 'g', 17) }

// replyReader turns a reply into a value.
type replyReader struct {
	L *vm.LState
	b []byte
}

func (r *replyReader) line() []byte {
	i := bytes.IndexByte(r.b, '\r')
	if i < 0 || i+1 >= len(r.b) {
		panic("a reply to a script ends early")
	}
	line := r.b[:i]
	r.b = r.b[i+2:]
	return line
}

func (r *replyReader) bulk(n int) string {
	if n < 0 || len(r.b) < n+2 {
		panic("a reply to a script ends early")
	}
	r.L.Charge(n>>6, n+16)
	s := string(r.b[:n])
	r.b = r.b[n+2:]
	return s
}

func atoi(b []byte) int {
	n, negative := 0, false
	for i, c := range b {
		if i == 0 && c == '-' {
			negative = true
			continue
		}
		n = n*10 + int(c-'0')
	}
	if negative {
		return -n
	}
	return n
}

func (r *replyReader) value(depth int) vm.LValue {
	L := r.L
	L.Charge(1, 0)
	line := r.line()
	kind, rest := line[0], line[1:]
	field := func(name string, v vm.LValue) *vm.LTable {
		t := L.NewTable()
		t.RawSetString(name, v)
		return t
	}
	switch kind {
	case ':':
		return vm.Number(float64(atoi(rest)))
	case '$':
		n := atoi(rest)
		if n < 0 {
			return vm.LFalse
		}
		return vm.LString(r.bulk(n))
	case '+':
		return field("ok", vm.LString(rest))
	case '-':
		t := errorTable(L, "-"+string(rest))
		t.RawSetString("ignore_error_stats_update", vm.LTrue)
		return t
	case '*':
		n := atoi(rest)
		if n < 0 {
			return vm.LFalse
		}
		t := L.NewTable()
		for i := 1; i <= n; i++ {
			t.RawSetInt(i, r.value(depth+1))
		}
		return t
	case '_':
		return vm.LNil
	case '#':
		return vm.LBool(len(rest) > 0 && rest[0] == 't')
	case ',':
		f, _ := vm.ParseNumber(string(rest))
		return field("double", vm.LNumber(f))
	case '(':
		return field("big_number", vm.LString(rest))
	case '=':
		text := r.bulk(atoi(rest))
		t := L.NewTable()
		t.RawSetString("format", vm.LString(text[:3]))
		t.RawSetString("string", vm.LString(text[4:]))
		return field("verbatim_string", t)
	case '%':
		n := atoi(rest)
		t := L.NewTable()
		for range n {
			k := r.value(depth + 1)
			t.RawSet(k, r.value(depth+1))
		}
		return field("map", t)
	case '~':
		n := atoi(rest)
		t := L.NewTable()
		for range n {
			t.RawSet(r.value(depth+1), vm.LTrue)
		}
		return field("set", t)
	}
	panic("a reply to a script begins with " + strconv.QuoteRune(rune(kind)))
}
