package vm

import (
	"math"
	"strconv"
	"strings"
)

// AppendNumber appends f as C's %.14g prints it.
func AppendNumber(b []byte, f float64) []byte {
	if i := int64(f); float64(i) == f && i < 1e14 && i > -1e14 && (i != 0 || !math.Signbit(f)) {
		return strconv.AppendInt(b, i, 10)
	}
	return AppendFloat(b, f, 'g', 14)
}

// AppendFloat appends f as C's printf does with the verb e, f or g. A NaN has a sign there.
func AppendFloat(b []byte, f float64, verb byte, precision int) []byte {
	switch {
	case f != f && math.Signbit(f):
		return append(b, "-nan"...)
	case f != f:
		return append(b, "nan"...)
	case math.IsInf(f, 1):
		return append(b, "inf"...)
	case math.IsInf(f, -1):
		return append(b, "-inf"...)
	}
	if verb == 'g' && precision == 0 {
		precision = 1
	}
	return strconv.AppendFloat(b, f, verb, precision, 64)
}

// IsSpace is C's isspace.
func IsSpace(c byte) bool { return c == ' ' || c >= '\t' && c <= '\r' }

func isDigit(c byte) bool { return c >= '0' && c <= '9' }
func isAlpha(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }
func isHex(c byte) bool   { return isDigit(c) || c|0x20 >= 'a' && c|0x20 <= 'f' }

// ParseNumber reads all of s as C's strtod does, with space around it: decimal and hexadecimal numbers, inf and nan.
func ParseNumber(s string) (float64, bool) {
	for len(s) > 0 && IsSpace(s[0]) {
		s = s[1:]
	}
	for len(s) > 0 && IsSpace(s[len(s)-1]) {
		s = s[:len(s)-1]
	}
	if n := len(s); n > 0 && n <= 15 {
		// Most are short integers.
		i := int64(0)
		for j := 0; j < n; j++ {
			if !isDigit(s[j]) {
				return parseFloat(s)
			}
			i = i*10 + int64(s[j]-'0')
		}
		return float64(i), true
	}
	return parseFloat(s)
}

func parseFloat(s string) (float64, bool) {
	t, sign := s, 1.0
	if t != "" && (t[0] == '+' || t[0] == '-') {
		if t[0] == '-' {
			sign = -1
		}
		t = t[1:]
	}
	digit, exponent, hex := isDigit, byte('e'), false
	if len(t) > 2 && t[0] == '0' && t[1]|0x20 == 'x' {
		digit, exponent, hex, t = isHex, 'p', true, t[2:]
	}
	i, digits, hasExponent := 0, 0, false
	for ; i < len(t) && digit(t[i]); i++ {
		digits++
	}
	if i < len(t) && t[i] == '.' {
		for i++; i < len(t) && digit(t[i]); i++ {
			digits++
		}
	}
	if digits == 0 {
		return parseSpecial(t, sign, hex)
	}
	if i < len(t) && t[i]|0x20 == exponent {
		i++
		if i < len(t) && (t[i] == '+' || t[i] == '-') {
			i++
		}
		from := i
		for ; i < len(t) && isDigit(t[i]); i++ {
		}
		if i == from {
			return 0, false
		}
		hasExponent = true
	}
	if i != len(t) {
		return 0, false
	}
	if hex {
		t = "0x" + t
		if !hasExponent {
			t += "p0"
		}
	}
	// Beyond the range the result is infinite or zero, and an error that C ignores.
	f, _ := strconv.ParseFloat(t, 64)
	return math.Copysign(f, sign), true
}

func parseSpecial(t string, sign float64, hex bool) (float64, bool) {
	switch l := strings.ToLower(t); {
	case hex:
		return 0, false
	case l == "inf" || l == "infinity":
		return math.Inf(int(sign)), true
	case l == "nan" || strings.HasPrefix(l, "nan(") && strings.HasSuffix(l, ")") && isWord(l[4:len(l)-1]):
		return math.Copysign(math.NaN(), sign), true
	}
	return 0, false
}

func isWord(s string) bool {
	for i := 0; i < len(s); i++ {
		if !isDigit(s[i]) && !isAlpha(s[i]) && s[i] != '_' {
			return false
		}
	}
	return true
}
