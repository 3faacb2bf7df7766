package lua

import (
	"math"
	"strconv"
	"strings"

	"neokv.dev/neokv/internal/lua/vm"
)

// verb is a conversion of C's printf.
type verb struct {
	minus, plus, space, alternate, zero bool

	width, precision int // precision -1: none
}

func stringFormat(L *vm.LState) int {
	f := L.CheckString(1)
	top, arg := L.GetTop(), 1
	var b []byte
	add := func(s []byte) {
		L.Charge(1+len(s)>>6, len(s))
		b = append(b, s...)
	}
	for i := 0; i < len(f); {
		n := strings.IndexByte(f[i:], '%')
		if n < 0 {
			n = len(f) - i
		}
		add([]byte(f[i : i+n]))
		if i += n; i == len(f) {
			break
		}
		if i++; i < len(f) && f[i] == '%' {
			add([]byte("%"))
			i++
			continue
		}
		if arg++; arg > top {
			L.ArgError(arg, "no value")
		}
		v, next := parseVerb(L, f, i)
		c := byte(0)
		if next < len(f) {
			c = f[next]
		}
		i = next + 1
		switch c {
		case 'c':
			s := v.pad([]byte{charC(float64(L.CheckNumber(arg)))}, false)
			// C adds what it printed up to a zero byte.
			add(upToZero(s))
		case 'd', 'i':
			add(v.integer(L.CheckInt64(arg)))
		case 'o', 'u', 'x', 'X':
			add(v.unsigned(uint64C(float64(L.CheckNumber(arg))), c))
		case 'e', 'E', 'f', 'g', 'G':
			add(v.float(float64(L.CheckNumber(arg)), c))
		case 'q':
			add(quote(L, L.CheckString(arg)))
		case 's':
			s := L.CheckString(arg)
			if v.precision < 0 && len(s) >= 100 {
				// Too long to be formatted: it stays as it is, with its zero bytes.
				add([]byte(s))
				continue
			}
			t := upToZero([]byte(s[:min(len(s), 512)]))
			if v.precision >= 0 {
				t = t[:min(len(t), v.precision)]
			}
			add(v.pad(t, false))
		default:
			name := ""
			if c != 0 {
				name = string([]byte{c})
			}
			L.RaiseError("invalid option '%%%s' to 'format'", name)
		}
	}
	L.Push(vm.LString(b))
	return 1
}

func upToZero(s []byte) []byte {
	for i, c := range s {
		if c == 0 {
			return s[:i]
		}
	}
	return s
}

// charC converts as gcc does on x86-64: to an int of 32 bits, the least one for what is out of range, whose low byte
// is 0.
func charC(f float64) byte {
	if f > math.MinInt32-1 && f < math.MaxInt32+1 {
		return byte(int32(f))
	}
	return 0
}

// uint64C converts as gcc does on x86-64: what is negative wraps.
func uint64C(f float64) uint64 {
	if f >= 1<<63 {
		return uint64(vm.Int64(f-1<<63)) ^ 1<<63
	}
	return uint64(vm.Int64(f))
}

func parseVerb(L *vm.LState, f string, i int) (verb, int) {
	v := verb{precision: -1}
	from := i
flags:
	for ; i < len(f); i++ {
		switch f[i] {
		case '-':
			v.minus = true
		case '+':
			v.plus = true
		case ' ':
			v.space = true
		case '#':
			v.alternate = true
		case '0':
			v.zero = true
		default:
			break flags
		}
	}
	if i-from >= 6 {
		L.RaiseError("invalid format (repeated flags)")
	}
	digits := func() int {
		n := 0
		for j := 0; j < 2 && i < len(f) && f[i] >= '0' && f[i] <= '9'; j++ {
			n = n*10 + int(f[i]-'0')
			i++
		}
		return n
	}
	v.width = digits()
	if i < len(f) && f[i] == '.' {
		i++
		v.precision = digits()
	}
	if i < len(f) && f[i] >= '0' && f[i] <= '9' {
		L.RaiseError("invalid format (width or precision too long)")
	}
	return v, i
}

// pad makes s as wide as it should be. Zeros go behind a sign and 0x.
func (v *verb) pad(s []byte, zeros bool) []byte {
	n := v.width - len(s)
	if n <= 0 {
		return s
	}
	switch {
	case v.minus:
		return append(s, strings.Repeat(" ", n)...)
	case !zeros:
		return append([]byte(strings.Repeat(" ", n)), s...)
	}
	at := 0
	if len(s) > 0 && (s[0] == '-' || s[0] == '+' || s[0] == ' ') {
		at = 1
	}
	if len(s) > at+1 && s[at] == '0' && s[at+1]|0x20 == 'x' {
		at += 2
	}
	out := append([]byte(nil), s[:at]...)
	out = append(out, strings.Repeat("0", n)...)
	return append(out, s[at:]...)
}

func (v *verb) sign(negative bool) string {
	switch {
	case negative:
		return "-"
	case v.plus:
		return "+"
	case v.space:
		return " "
	}
	return ""
}

func (v *verb) integer(n int64) []byte {
	magnitude := uint64(n)
	if n < 0 {
		magnitude = -magnitude
	}
	return v.pad([]byte(v.sign(n < 0)+v.digits(strconv.FormatUint(magnitude, 10))), v.zero && v.precision < 0)
}

// digits gives a number at least as many digits as the precision says; 0 has none for a precision of 0.
func (v *verb) digits(s string) string {
	if v.precision == 0 && s == "0" {
		return ""
	}
	if n := v.precision - len(s); n > 0 {
		return strings.Repeat("0", n) + s
	}
	return s
}

func (v *verb) unsigned(n uint64, c byte) []byte {
	base := 10
	switch c {
	case 'o':
		base = 8
	case 'x', 'X':
		base = 16
	}
	s := v.digits(strconv.FormatUint(n, base))
	if v.alternate {
		switch {
		case c == 'o' && (s == "" || s[0] != '0'):
			s = "0" + s
		case base == 16 && n != 0:
			s = "0x" + s
		}
	}
	if c == 'X' {
		s = strings.ToUpper(s)
	}
	return v.pad([]byte(s), v.zero && v.precision < 0)
}

func (v *verb) float(f float64, c byte) []byte {
	precision := v.precision
	if precision < 0 {
		precision = 6
	}
	lower := c | 0x20
	b := vm.AppendFloat([]byte(v.sign(math.Signbit(f))), math.Abs(f), lower, precision)
	finite := !math.IsInf(f, 0) && f == f
	if finite && v.alternate {
		b = withPoint(b, lower, max(precision, 1))
	}
	if c < 'a' {
		b = []byte(strings.ToUpper(string(b)))
	}
	return v.pad(b, v.zero && finite)
}

// withPoint keeps the point, and for g the zeros behind it.
func withPoint(b []byte, c byte, precision int) []byte {
	mantissa, exponent := string(b), ""
	if i := strings.IndexByte(mantissa, 'e'); i >= 0 {
		mantissa, exponent = mantissa[:i], mantissa[i:]
	}
	if !strings.Contains(mantissa, ".") {
		mantissa += "."
	}
	if c == 'g' {
		digits, leading := 0, true
		for _, d := range mantissa {
			if d >= '0' && d <= '9' && !(leading && d == '0') {
				leading = false
				digits++
			}
		}
		if leading { // zero
			digits = 1
		}
		if n := precision - digits; n > 0 {
			mantissa += strings.Repeat("0", n)
		}
	}
	return []byte(mantissa + exponent)
}

// quote writes a string so that Lua reads it again.
func quote(L *vm.LState, s string) []byte {
	L.Charge(len(s)>>6, len(s))
	b := []byte{'"'}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; c {
		case '"', '\\', '\n':
			b = append(b, '\\', c)
		case '\r':
			b = append(b, `\r`...)
		case 0:
			b = append(b, `\000`...)
		default:
			b = append(b, c)
		}
	}
	return append(b, '"')
}
