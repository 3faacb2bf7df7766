package lua

import (
	"math"
	"strconv"
	"strings"

	"neokv.dev/neokv/internal/lua/vm"
)

// cjsonNull is cjson.null, a light userdata of C's NULL. It has no state, so all interpreters share it.
var cjsonNull = &vm.LUserData{}

// cjson is what a table of lua-cjson 2.1.0 knows: the one called cjson, or one that cjson.new has made. In redis-server
// the options of the one called cjson live on from script to script. Here a script begins with the defaults: whether an
// earlier one ran in the same interpreter differs between replicas.
type cjson struct {
	sparseConvert int32 // 0: an excessively sparse array is an error; 1: it is written as an object
	sparseRatio   int32 // an array is excessively sparse if its largest index is more than the number of its elements
	sparseSafe    int32 // times sparseRatio, and more than sparseSafe; a ratio of 0: none is
	encodeDepth   int32
	decodeDepth   int32
	encodeInvalid int32 // what encode makes of NaN and infinity: 0 an error, 1 nan and inf, 2 null
	decodeInvalid int32 // 1: decode takes hexadecimal numbers, NaN, infinity and leading zeros and pluses
	precision     int32
	keepBuffer    int32 // without effect: buffers are kept
	buffer        []byte
}

// reset sets the defaults.
func (c *cjson) reset() {
	*c = cjson{sparseRatio: 2, sparseSafe: 10, encodeDepth: 1000, decodeDepth: 1000, decodeInvalid: 1, precision: 14,
		keepBuffer: 1, buffer: c.buffer}
}

// open makes the table of c.
func (c *cjson) open(L *vm.LState) *vm.LTable {
	c.reset()
	onOff := []string{"off", "on"}
	t := fill(L, L.NewTable(), []named{
		{"encode", c.encode},
		{"decode", c.decode},
		{"encode_sparse_array", options(enumOption(&c.sparseConvert, onOff),
			intOption(&c.sparseRatio, 0, math.MaxInt32), intOption(&c.sparseSafe, 0, math.MaxInt32))},
		{"encode_max_depth", options(intOption(&c.encodeDepth, 1, math.MaxInt32))},
		{"decode_max_depth", options(intOption(&c.decodeDepth, 1, math.MaxInt32))},
		{"encode_number_precision", options(intOption(&c.precision, 1, 14))},
		{"encode_keep_buffer", options(enumOption(&c.keepBuffer, onOff))},
		{"encode_invalid_numbers", options(enumOption(&c.encodeInvalid, []string{"off", "on", "null"}))},
		{"decode_invalid_numbers", options(enumOption(&c.decodeInvalid, onOff))},
		{"new", cjsonNew},
	})
	t.RawSetString("null", cjsonNull)
	t.RawSetString("_NAME", vm.LString("cjson"))
	t.RawSetString("_VERSION", vm.LString("2.1.0"))
	return t
}

// cjsonNew makes another table, which has options of its own, and which scripts may change.
func cjsonNew(L *vm.LState) int {
	L.Charge(20, 1024)
	L.Push(new(cjson).open(L))
	return 1
}

// option sets an option by argument n, unless that is nil, and returns its value.
type option func(L *vm.LState, n int) vm.LValue

// options is a function with an argument and a result for each option.
func options(list ...option) vm.LGFunction {
	return func(L *vm.LState) int {
		if L.GetTop() > len(list) {
			L.ArgError(len(list)+1, "found too many arguments")
		}
		L.SetTop(len(list))
		for i, o := range list {
			L.Push(o(L, i+1))
		}
		return len(list)
	}
}

func intOption(setting *int32, least, most int32) option {
	return func(L *vm.LState, n int) vm.LValue {
		if L.Get(n) != vm.LNil {
			v := int32(L.CheckInt(n))
			if v < least || v > most { // C names the first argument whichever it is
				L.ArgError(1, "expected integer between "+strconv.Itoa(int(least))+" and "+strconv.Itoa(int(most)))
			}
			*setting = v
		}
		return vm.Number(float64(*setting))
	}
}

// enumOption takes a name, or false and true for the first two.
func enumOption(setting *int32, names []string) option {
	return func(L *vm.LState, n int) vm.LValue {
		switch v := L.Get(n); v {
		case vm.LNil:
		case vm.LFalse:
			*setting = 0
		case vm.LTrue:
			*setting = 1
		default:
			*setting = checkName(L, n, names)
		}
		if *setting <= 1 {
			return vm.LBool(*setting == 1)
		}
		return vm.LString(names[*setting])
	}
}

// checkName is luaL_checkoption: the place of argument n in names.
func checkName(L *vm.LState, n int, names []string) int32 {
	name, _, _ := strings.Cut(L.CheckString(n), "\x00")
	for i := range names {
		if names[i] == name {
			return int32(i)
		}
	}
	L.ArgError(n, "invalid option '"+name+"'")
	return 0
}

func (c *cjson) encode(L *vm.LState) int {
	if L.GetTop() != 1 {
		L.ArgError(1, "expected 1 argument")
	}
	e := encoder{cjson: c, L: L, out: c.buffer[:0]}
	e.value(L.Get(1), 0, 1)
	L.Push(vm.LString(e.out)) // charged while it grew
	if cap(e.out) <= keptBuffer {
		c.buffer = e.out
	}
	return 1
}

// keptBuffer is how large a buffer encode keeps for the next call.
const keptBuffer = 64 << 10

// encoder appends values to out. What it appends has been charged before.
type encoder struct {
	*cjson
	L   *vm.LState
	out []byte
}

// fail raises the error about a value.
func (e *encoder) fail(v vm.LValue, reason string) {
	e.L.RaiseError("Cannot serialise %s: %s", v.Type().String(), reason)
}

// value appends v. depth is the number of tables around it; slots is how many values C has on its stack by now.
func (e *encoder) value(v vm.LValue, depth int32, slots int) {
	switch v := v.(type) {
	case vm.LString:
		e.string(string(v))
	case vm.LNumber:
		e.number(v)
	case vm.LBool:
		if v {
			e.word("true")
		} else {
			e.word("false")
		}
	case *vm.LTable:
		e.table(v, depth+1, slots)
	default:
		if v != vm.LNil && v != cjsonNull {
			e.fail(v, "type not supported")
		}
		e.word("null")
	}
}

func (e *encoder) word(s string) {
	e.L.Charge(1, len(s)+1)
	e.out = append(e.out, s...)
}

// escapes are the bytes that are not written as they are.
var escapes = func() (t [256]string) {
	for b := range 32 {
		t[b] = `\u00` + string("0123456789abcdef"[b>>4]) + string("0123456789abcdef"[b&15])
	}
	t['\b'], t['\t'], t['\n'], t['\f'], t['\r'] = `\b`, `\t`, `\n`, `\f`, `\r`
	t['"'], t['\\'], t['/'], t[127] = `\"`, `\\`, `\/`, `\u007f`
	return t
}()

func (e *encoder) string(s string) {
	e.L.Charge(1+len(s)/16, len(s)+3)
	e.out = append(e.out, '"')
	begin := 0
	for i := range len(s) {
		if escape := escapes[s[i]]; escape != "" {
			e.L.Charge(0, len(escape)-1)
			e.out = append(append(e.out, s[begin:i]...), escape...)
			begin = i + 1
		}
	}
	e.out = append(append(e.out, s[begin:]...), '"')
}

func (e *encoder) number(n vm.LNumber) {
	e.L.Charge(2, 20)
	f := float64(n)
	infinite, nan := math.IsInf(f, 0), f != f
	switch {
	case (infinite || nan) && e.encodeInvalid == 0:
		e.fail(n, "must not be NaN or Inf")
	case (infinite || nan) && e.encodeInvalid == 2:
		e.out = append(e.out, "null"...)
	case nan:
		e.out = append(e.out, "nan"...)
	case f == math.Inf(1):
		e.out = append(e.out, "inf"...)
	case f == math.Inf(-1):
		e.out = append(e.out, "-inf"...)
	default:
		e.out = strconv.AppendFloat(e.out, f, 'g', int(e.precision), 64) // as C's %g, for these precisions
	}
}

func (e *encoder) table(t *vm.LTable, depth int32, slots int) {
	if depth > e.encodeDepth || slots+3 > stackSlots {
		e.L.RaiseError("Cannot serialise, excessive nesting (%d)", depth)
	}
	e.L.Charge(1, 3)
	if n := e.arrayLength(t); n > 0 {
		e.out = append(e.out, '[')
		for i := range int(n) {
			if i > 0 {
				e.out = append(e.out, ',')
			}
			e.value(t.RawGetInt(i+1), depth, slots+1)
		}
		e.out = append(e.out, ']')
		return
	}
	e.out = append(e.out, '{')
	first := true
	for k, v := next(e.L, t, vm.LNil); v != vm.LNil; k, v = next(e.L, t, k) {
		if !first {
			e.out = append(e.out, ',')
		}
		first = false
		switch k := k.(type) {
		case vm.LString:
			e.string(string(k))
		case vm.LNumber:
			e.out = append(e.out, '"')
			e.number(k)
			e.out = append(e.out, '"')
		default:
			e.fail(k, "table key must be a number or string")
		}
		e.out = append(e.out, ':')
		e.value(v, depth, slots+2)
	}
	e.out = append(e.out, '}')
}

// arrayLength returns the largest key if all keys are positive integers; otherwise, or if the array is excessively
// sparse, zero or less. An index beyond 32 bits is C's smallest integer, so that it counts as one of an object, unless
// a smaller one comes after it.
func (e *encoder) arrayLength(t *vm.LTable) int32 {
	largest, items := int32(0), int32(0)
	for k, v := next(e.L, t, vm.LNil); v != vm.LNil; k, v = next(e.L, t, k) {
		n, ok := k.(vm.LNumber)
		if !ok || n < 1 || n != vm.LNumber(math.Floor(float64(n))) {
			return -1
		}
		if n > vm.LNumber(largest) {
			if largest = math.MinInt32; n <= math.MaxInt32 {
				largest = int32(n)
			}
		}
		items++
	}
	if e.sparseRatio > 0 && largest > items*e.sparseRatio && largest > e.sparseSafe {
		if e.sparseConvert == 0 {
			e.fail(t, "excessively sparse array")
		}
		return -1
	}
	return largest
}

func (c *cjson) decode(L *vm.LState) int {
	if L.GetTop() != 1 {
		L.ArgError(1, "expected 1 argument")
	}
	d := decoder{cjson: c, L: L, text: L.CheckString(1)}
	if len(d.text) >= 2 && (d.text[0] == 0 || d.text[1] == 0) {
		L.RaiseError("JSON parser does not support UTF-16 or UTF-32")
	}
	L.Charge(1+len(d.text)/16, 0)
	d.next()
	v := d.value(0, 1)
	d.next()
	if d.token != tokenEnd {
		d.unexpected("the end")
	}
	L.Push(v)
	return 1
}

// token is a kind of token, by the name that it has in errors. A string that is none of these is an error of its own.
type token string

const (
	tokenObjectBegin token = "T_OBJ_BEGIN"
	tokenObjectEnd   token = "T_OBJ_END"
	tokenArrayBegin  token = "T_ARR_BEGIN"
	tokenArrayEnd    token = "T_ARR_END"
	tokenString      token = "T_STRING"
	tokenNumber      token = "T_NUMBER"
	tokenBoolean     token = "T_BOOLEAN"
	tokenNull        token = "T_NULL"
	tokenColon       token = "T_COLON"
	tokenComma       token = "T_COMMA"
	tokenEnd         token = "T_END"
)

// decoder reads tokens of text. A zero byte is the end of the text.
type decoder struct {
	*cjson
	L    *vm.LState
	text string
	pos  int

	token     token
	tokenPos  int       // where the token begins, or where its error is
	tokenText string    // of a string
	tokenVal  vm.LValue // of a string, number, boolean or null
}

// at returns the byte at position i, zero behind the end.
func (d *decoder) at(i int) byte {
	if i < len(d.text) {
		return d.text[i]
	}
	return 0
}

// unexpected raises the error about the token at hand.
func (d *decoder) unexpected(expected string) {
	d.L.RaiseError("Expected %s but found %s at character %d", expected, string(d.token), d.tokenPos+1)
}

// bad makes the token an error at the position at hand.
func (d *decoder) bad(what token) { d.token, d.tokenPos = what, d.pos }

// next reads a token.
func (d *decoder) next() {
	b := d.at(d.pos)
	for b == ' ' || b == '\t' || b == '\n' || b == '\r' {
		d.pos++
		b = d.at(d.pos)
	}
	d.tokenPos = d.pos
	single := func(t token) {
		d.token = t
		d.pos++
	}
	word := func(s string, t token, v vm.LValue) bool {
		if !strings.HasPrefix(d.text[d.pos:], s) {
			return false
		}
		d.token, d.tokenVal = t, v
		d.pos += len(s)
		return true
	}
	switch b {
	case 0:
		d.token = tokenEnd
	case '{':
		single(tokenObjectBegin)
	case '}':
		single(tokenObjectEnd)
	case '[':
		single(tokenArrayBegin)
	case ']':
		single(tokenArrayEnd)
	case ',':
		single(tokenComma)
	case ':':
		single(tokenColon)
	case '"':
		d.string()
	case '-', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9':
		d.number()
	case '+', 'f', 'i', 'I', 'n', 'N', 't':
		switch {
		case word("true", tokenBoolean, vm.LTrue), word("false", tokenBoolean, vm.LFalse),
			word("null", tokenNull, cjsonNull):
		case d.decodeInvalid != 0 && invalidNumber(d.text[d.pos:]):
			d.number()
		default:
			d.bad("invalid token")
		}
	default:
		d.bad("invalid token")
	}
}

// string reads a string. Bytes that are no UTF-8 stay as they are.
func (d *decoder) string() {
	d.pos++
	begin := d.pos
	var out []byte // what stands before begin, if that is not as in the text
	for {
		switch b := d.at(d.pos); {
		case b == '"':
			s := d.text[begin:d.pos]
			d.pos++
			d.L.Charge(0, len(out)+len(s)+valueBytes)
			if out != nil {
				s = string(append(out, s...))
			}
			d.token, d.tokenVal, d.tokenText = tokenString, vm.LString(s), s
			return
		case b == 0:
			d.bad("unexpected end of string")
			return
		case b == '\\':
			d.L.Charge(0, d.pos-begin+4)
			out = append(out, d.text[begin:d.pos]...)
			var what token
			if out, what = d.escape(out); what != "" {
				d.bad(what)
				return
			}
			begin = d.pos
		default:
			d.pos++
		}
	}
}

// escape reads the escape at hand and appends what it stands for; or it returns what is wrong.
func (d *decoder) escape(out []byte) ([]byte, token) {
	const names, bytes = `"\/btnfr`, "\"\\/\b\t\n\f\r"
	name := d.at(d.pos + 1)
	if i := strings.IndexByte(names, name); i >= 0 {
		d.pos += 2
		return append(out, bytes[i]), ""
	}
	if name != 'u' {
		return out, "invalid escape code"
	}
	r, size := d.hex4(d.pos+2), 6
	if r&^0x7ff == 0xd800 { // a surrogate: the high one, then the low one
		low := rune(-1)
		if d.at(d.pos+6) == '\\' && d.at(d.pos+7) == 'u' {
			low = d.hex4(d.pos + 8)
		}
		if r >= 0xdc00 || low&^0x3ff != 0xdc00 {
			r = -1
		} else {
			r, size = (r&0x3ff)<<10|low&0x3ff+0x10000, 12
		}
	}
	if r < 0 {
		return out, "invalid unicode escape code"
	}
	d.pos += size
	return append(out, string(r)...), ""
}

// hex4 returns the value of four hexadecimal digits, or -1.
func (d *decoder) hex4(pos int) rune {
	if pos+4 > len(d.text) {
		return -1
	}
	n := rune(0)
	for _, b := range []byte(d.text[pos : pos+4]) {
		v := hexDigit(b)
		if v < 0 {
			return -1
		}
		n = n<<4 | rune(v)
	}
	return n
}

// hexDigit returns a digit's value, or -1.
func hexDigit(b byte) int {
	switch {
	case b >= '0' && b <= '9':
		return int(b - '0')
	case b|0x20 >= 'a' && b|0x20 <= 'f':
		return int(b|0x20-'a') + 10
	}
	return -1
}

// number reads what C's strtod takes for a number.
func (d *decoder) number() {
	rest := d.text[d.pos:]
	if d.decodeInvalid == 0 && invalidNumber(rest) {
		d.bad("invalid number")
		return
	}
	f, size := strtod(rest)
	if size == 0 {
		d.bad("invalid number")
		return
	}
	d.L.Charge(1+size/16, 0)
	d.pos += size
	d.token, d.tokenVal = tokenNumber, vm.Number(f)
}

// invalidNumber tells that s begins as a number does that JSON forbids and strtod takes.
func invalidNumber(s string) bool {
	if strings.HasPrefix(s, "+") {
		return true
	}
	s = strings.TrimPrefix(s, "-")
	if strings.HasPrefix(s, "0") {
		return len(s) > 1 && (s[1]|0x20 == 'x' || s[1] >= '0' && s[1] <= '9')
	}
	return hasPrefixFold(s, "inf") || hasPrefixFold(s, "nan")
}

// hasPrefixFold tells whether s begins with prefix, which has lower-case letters alone, whatever the case of s.
func hasPrefixFold(s, prefix string) bool {
	if len(s) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if s[i]|0x20 != prefix[i] {
			return false
		}
	}
	return true
}

// strtod is C's: the value of the longest number at the start of s, and its length; zero if there is none. It takes
// no leading space.
func strtod(s string) (f float64, size int) {
	i := 0
	if i < len(s) && (s[i] == '-' || s[i] == '+') {
		i++
	}
	sign := 1.0
	if i > 0 && s[0] == '-' {
		sign = -1
	}
	switch {
	case hasPrefixFold(s[i:], "infinity"):
		return math.Inf(int(sign)), i + 8
	case hasPrefixFold(s[i:], "inf"):
		return math.Inf(int(sign)), i + 3
	case hasPrefixFold(s[i:], "nan"):
		i += 3
		if i < len(s) && s[i] == '(' {
			j := i + 1
			for j < len(s) && (s[j] == '_' || s[j] >= '0' && s[j] <= '9' || s[j]|0x20 >= 'a' && s[j]|0x20 <= 'z') {
				j++
			}
			if j < len(s) && s[j] == ')' {
				i = j + 1
			}
		}
		return math.Copysign(math.NaN(), sign), i
	}
	hex := i+1 < len(s) && s[i] == '0' && s[i+1]|0x20 == 'x'
	isDigit := func(i int) bool {
		return i < len(s) && (s[i] >= '0' && s[i] <= '9' || hex && hexDigit(s[i]) >= 0)
	}
	digits := func() (n int) {
		for ; isDigit(i); i++ {
			n++
		}
		return n
	}
	if hex && !isDigit(i+2) && !(i+2 < len(s) && s[i+2] == '.' && isDigit(i+3)) {
		return math.Copysign(0, sign), i + 1 // the zero before the x
	}
	exponent := byte('e')
	if hex {
		exponent = 'p'
		i += 2
	}
	n := digits()
	if i < len(s) && s[i] == '.' && (n > 0 || isDigit(i+1)) {
		i++
		n += digits()
	}
	if n == 0 {
		return 0, 0
	}
	end := i
	if i < len(s) && s[i]|0x20 == exponent {
		i++
		if i < len(s) && (s[i] == '-' || s[i] == '+') {
			i++
		}
		hex = false // exponents are decimal
		if digits() > 0 {
			end = i
		}
	}
	text := s[:end]
	if exponent == 'p' && !strings.ContainsAny(text, "pP") {
		text += "p0"
	}
	f, _ = strconv.ParseFloat(text, 64) // beyond the range it is infinite, as in C
	return f, end
}

// value returns the value that begins with the token at hand. depth is the number of tables around it; slots is how
// many values C has on its stack by now.
func (d *decoder) value(depth int32, slots int) vm.LValue {
	d.L.Charge(1, 0)
	switch d.token {
	case tokenString, tokenNumber, tokenBoolean, tokenNull:
		return d.tokenVal
	case tokenObjectBegin:
		return d.object(depth+1, slots)
	case tokenArrayBegin:
		return d.array(depth+1, slots)
	}
	d.unexpected("value")
	return nil
}

func (d *decoder) newTable(depth int32, slots int) *vm.LTable {
	if depth > d.decodeDepth || slots > stackSlots {
		d.L.RaiseError("Found too many nested data structures (%d) at character %d", depth, d.pos)
	}
	return d.L.NewTable()
}

func (d *decoder) object(depth int32, slots int) vm.LValue {
	t := d.newTable(depth, slots+3)
	d.next()
	if d.token == tokenObjectEnd {
		return t
	}
	for {
		if d.token != tokenString {
			d.unexpected("object key string")
		}
		key := d.tokenText
		d.next()
		if d.token != tokenColon {
			d.unexpected("colon")
		}
		d.next()
		v := d.value(depth, slots+2)
		t.RawSetString(key, v)
		d.next()
		if d.token == tokenObjectEnd {
			return t
		}
		if d.token != tokenComma {
			d.unexpected("comma or object end")
		}
		d.next()
	}
}

func (d *decoder) array(depth int32, slots int) vm.LValue {
	t := d.newTable(depth, slots+2)
	d.next()
	if d.token == tokenArrayEnd {
		return t
	}
	for i := 1; ; i++ {
		v := d.value(depth, slots+1)
		t.RawSetInt(i, v)
		d.next()
		if d.token == tokenArrayEnd {
			return t
		}
		if d.token != tokenComma {
			d.unexpected("comma or array end")
		}
		d.next()
	}
}
