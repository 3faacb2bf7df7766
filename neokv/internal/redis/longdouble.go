package redis

import (
	"bytes"
	"math/big"
)

// longDouble is the x87 extended precision number with which Redis's INCRBYFLOAT counts: 64 bits of precision, 15 bits
// of exponent, rounded to nearest, ties to even. Replicas agree on it whatever their processors. The zero value is 0.
type longDouble struct {
	f   *big.Float // nil for 0 and infinity
	inf bool       // of either sign, since no sum is infinite
}

const (
	extendedPrec   = 64
	extendedMaxExp = 16384      // a number is below 2 to the power of this
	extendedMinExp = -16445     // the smallest number above 0 is 2 to the power of this
	maxFloatBytes  = 5*1024 - 1 // how long a text may be: Redis's buffer

	// Beyond these exponents every number is infinity or 0, whatever its digits.
	maxDecimalExp = 5000
	minDecimalExp = -maxDecimalExp - maxFloatBytes
	maxBinaryExp  = extendedMaxExp
	minBinaryExp  = extendedMinExp - 1 - 4*maxFloatBytes
)

// parseLongDouble reads what C's strtold reads, but the whole of b, without leading space, and no NaN. It refuses a
// number that is too large, or that is too small and not 0.
func parseLongDouble(b []byte) (longDouble, bool) {
	var none longDouble
	if len(b) == 0 || len(b) > maxFloatBytes {
		return none, false
	}
	negative := b[0] == '-'
	if negative || b[0] == '+' {
		b = b[1:]
	}
	if bytes.EqualFold(b, []byte("inf")) || bytes.EqualFold(b, []byte("infinity")) {
		return longDouble{inf: true}, true
	}
	base, mark := 10, byte('e')
	if len(b) > 2 && b[0] == '0' && b[1]|0x20 == 'x' {
		base, mark, b = 16, 'p', b[2:]
	}
	digits := make([]byte, 0, len(b))
	point, seen := 0, false // digits behind the point
scan:
	for ; len(b) > 0; b = b[1:] {
		c := b[0]
		switch {
		case c == '.' && !seen:
			seen = true
			continue
		case '0' <= c && c <= '9', base == 16 && 'a' <= c|0x20 && c|0x20 <= 'f':
		default:
			break scan
		}
		digits = append(digits, c)
		if seen {
			point++
		}
	}
	if len(digits) == 0 {
		return none, false
	}
	exp := 0
	if len(b) > 0 {
		if b[0]|0x20 != mark {
			return none, false
		}
		var ok bool
		if exp, ok = parseExponent(b[1:]); !ok {
			return none, false
		}
	}
	mantissa, ok := new(big.Int).SetString(string(digits), base)
	if !ok {
		panic("digits that are none: " + string(digits))
	}
	if mantissa.Sign() == 0 {
		return none, true
	}
	if negative {
		mantissa.Neg(mantissa)
	}
	value := new(big.Rat)
	if base == 16 {
		if exp -= 4 * point; exp > maxBinaryExp || exp < minBinaryExp {
			return none, false
		}
		scale(value, mantissa, 2, exp)
	} else {
		if exp -= point; exp > maxDecimalExp || exp < minDecimalExp {
			return none, false
		}
		scale(value, mantissa, 10, exp)
	}
	return roundExtended(value)
}

// parseExponent reads a sign and digits. All large exponents give the same number.
func parseExponent(b []byte) (n int, ok bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative || len(b) > 0 && b[0] == '+' {
		b = b[1:]
	}
	if len(b) == 0 {
		return 0, false
	}
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = min(n*10+int(c-'0'), 1<<30)
	}
	if negative {
		n = -n
	}
	return n, true
}

// scale sets z to mantissa times base to the power of exp.
func scale(z *big.Rat, mantissa *big.Int, base int64, exp int) {
	power := new(big.Int).Exp(big.NewInt(base), big.NewInt(int64(max(exp, -exp))), nil)
	if exp < 0 {
		z.SetFrac(mantissa, power)
		return
	}
	z.SetInt(power.Mul(power, mantissa))
}

// roundExtended rounds a number that is not 0. It returns false where the result would be infinity or 0.
func roundExtended(x *big.Rat) (longDouble, bool) {
	f := new(big.Float).SetPrec(extendedPrec).SetRat(x)
	exp := f.MantExp(nil) // the number is below 2 to this, and at least half of that
	if exp > extendedMaxExp {
		return longDouble{}, false
	}
	if prec := exp - extendedMinExp; prec < extendedPrec { // subnormal: fewer bits are left
		if prec < 0 {
			return longDouble{}, false
		}
		if prec == 0 { // up to half of the smallest number is 0
			half, _ := new(big.Float).SetMantExp(big.NewFloat(1), extendedMinExp-1).Rat(nil)
			if new(big.Rat).Abs(x).Cmp(half) <= 0 {
				return longDouble{}, false
			}
			f.SetMantExp(big.NewFloat(float64(f.Sign())), extendedMinExp)
		} else {
			f = new(big.Float).SetPrec(uint(prec)).SetRat(x)
		}
		f.SetPrec(extendedPrec)
	}
	return longDouble{f: f}, true
}

// add returns the rounded sum, and false where that is not a finite number.
func (x longDouble) add(y longDouble) (longDouble, bool) {
	switch {
	case x.inf || y.inf:
		return longDouble{}, false
	case x.f == nil:
		return y, true
	case y.f == nil:
		return x, true
	}
	// A sum of numbers near the smallest one is exact, so it needs no second rounding.
	sum := new(big.Float).SetPrec(extendedPrec).Add(x.f, y.f)
	if sum.Sign() == 0 {
		return longDouble{}, true
	}
	return longDouble{f: sum}, sum.MantExp(nil) <= extendedMaxExp
}

// addLongDouble adds n to the number that a value spells, or to 0 where there is no value, and replies the text of the
// sum. Instead it appends an error where the value is no number (notFloat) or the sum is not finite.
func addLongDouble(value []byte, there bool, n longDouble, notFloat string, out *Reply) (text []byte, ok bool) {
	var present longDouble
	if there {
		if present, ok = parseLongDouble(value); !ok {
			out.Error(notFloat)
			return nil, false
		}
	}
	sum, ok := present.add(n)
	if !ok {
		out.Error(errNotFinite)
		return nil, false
	}
	text = sum.appendTo(nil)
	out.Bulk(text)
	return text, true
}

// appendTo appends the number with up to 17 digits behind the point, without zeros at the end: what C's "%.17Lf"
// prints, trimmed.
func (x longDouble) appendTo(dst []byte) []byte {
	if x.f == nil {
		return append(dst, '0')
	}
	start := len(dst)
	dst = x.f.Append(dst, 'f', 17)
	dst = bytes.TrimRight(dst, "0")
	if dst[len(dst)-1] == '.' {
		dst = dst[:len(dst)-1]
	}
	if string(dst[start:]) == "-0" {
		return append(dst[:start], '0')
	}
	return dst
}
