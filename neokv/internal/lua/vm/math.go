package vm

import (
	"math"
	"math/big"
	"sync"
)

// The functions of Go's package math differ in their last bit from one kind of processor to another: some are written
// in assembly, and the compiler may fuse a product and a sum. Here they are computed to some 100 bits as sums of two
// doubles and rounded once, so they are the same everywhere, and nearly always those of glibc, which rounds almost as
// well. T. J. Dekker, "A floating-point technique for extending the available precision", 1971.

// double is hi + lo, where lo is less than half of a unit in the last place of hi.
type double struct{ hi, lo float64 }

func twoSum(a, b float64) double {
	s := a + b
	bb := s - a
	return double{s, (a - (s - bb)) + (b - bb)}
}

func quickSum(a, b float64) double {
	s := a + b
	return double{s, b - (s - a)}
}

func twoProduct(a, b float64) double {
	p := float64(a * b)
	return double{p, math.FMA(a, b, -p)}
}

func (a double) add(b double) double {
	s, t := twoSum(a.hi, b.hi), twoSum(a.lo, b.lo)
	s = quickSum(s.hi, s.lo+t.hi)
	return quickSum(s.hi, s.lo+t.lo)
}

func (a double) neg() double         { return double{-a.hi, -a.lo} }
func (a double) sub(b double) double { return a.add(b.neg()) }

func (a double) mul(b double) double {
	p := twoProduct(a.hi, b.hi)
	return quickSum(p.hi, p.lo+(float64(a.hi*b.lo)+float64(a.lo*b.hi)))
}

func (a double) scale(f float64) double { return double{float64(a.hi * f), float64(a.lo * f)} } // f: a power of two

func (a double) div(b double) double {
	q := a.hi / b.hi
	r := a.sub(b.mul(double{q, 0}))
	q2 := r.hi / b.hi
	r = r.sub(b.mul(double{q2, 0}))
	s := quickSum(q, q2)
	return s.add(double{r.hi / b.hi, 0})
}

func (a double) sqrt() double {
	if a.hi <= 0 {
		return double{}
	}
	r := math.Sqrt(a.hi)
	d := a.sub(twoProduct(r, r))
	return quickSum(r, d.hi/(2*r))
}

func (a double) float() float64 { return a.hi + a.lo }

var (
	ln2  = double{0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56}
	ln10 = double{0x1.26bb1bbb55516p+1, -0x1.f48ad494ea3e9p-53}
	pi2  = double{0x1.921fb54442d18p+0, 0x1.1a62633145c07p-54} // a quarter of a turn
	one  = double{1, 0}
)

// inverse are 1/n.
var inverse = func() (v [64]double) {
	for n := 1; n < len(v); n++ {
		v[n] = one.div(double{float64(n), 0})
	}
	return v
}()

// logOf is the logarithm of a positive, finite number.
func logOf(x float64) double {
	m, e := math.Frexp(x)
	if m < math.Sqrt2/2 {
		m, e = m*2, e-1
	}
	// log m = 2 atanh (m-1)/(m+1)
	s := twoSum(m, -1).div(twoSum(m, 1))
	s2 := s.mul(s)
	sum := inverse[45]
	for n := 43; n >= 1; n -= 2 {
		sum = sum.mul(s2).add(inverse[n])
	}
	return sum.mul(s).scale(2).add(ln2.mul(double{float64(e), 0}))
}

// expOf is e to the power of y.
func expOf(y double) float64 {
	switch {
	case y.hi > 710:
		return math.Inf(1)
	case y.hi < -746:
		return 0
	}
	r, k := expParts(y)
	return math.Ldexp(r.float(), k)
}

// expParts is e to the power of y as r times 2^k.
func expParts(y double) (r double, k int) {
	k = int(math.Round(y.hi / ln2.hi))
	const halvings = 8
	x := y.sub(ln2.mul(double{float64(k), 0})).scale(1.0 / (1 << halvings))
	// expm1, which squaring keeps exact: (1+a)^2 - 1 = 2a + a^2.
	a := inverse[12]
	for n := 11; n >= 1; n-- {
		a = a.mul(x).add(one).mul(inverse[n])
	}
	a = a.mul(x)
	for range halvings {
		a = a.scale(2).add(a.mul(a))
	}
	return a.add(one), k
}

// Pow is a to the power of b.
func Pow(a, b float64) float64 {
	switch {
	case a != a && b == b && b != 0:
		// As in glibc, an odd power takes the sign away.
		if !math.IsInf(b, 0) && math.Abs(math.Mod(b, 2)) == 1 {
			return math.Copysign(a, 1)
		}
		return a
	case b != b && a != 1:
		return nan(a, b)
	case b == 1 || a == 1 || a == 0 || b == 0 || a != a || b != b || math.IsInf(a, 0) || math.IsInf(b, 0):
		return math.Pow(a, b) // Go has cases for these, and computes nothing
	case b == 2:
		return float64(a * a)
	case b == -1:
		return 1 / a
	case b == 0.5:
		return math.Sqrt(a)
	}
	sign := 1.0
	if a < 0 {
		if math.Trunc(b) != b {
			return nan(0, 0)
		}
		if math.Mod(b, 2) != 0 {
			sign = -1
		}
	}
	l := logOf(math.Abs(a))
	if p := l.hi * b; p > 800 || p < -800 {
		return sign * math.Exp(math.Copysign(1e5, p)) // infinite or zero
	}
	return sign * expOf(l.mul(double{b, 0}))
}

// Exp is e to the power of x.
func Exp(x float64) float64 {
	if x != x || math.IsInf(x, 0) {
		return math.Exp(x)
	}
	return expOf(double{x, 0})
}

// Log is the natural logarithm.
func Log(x float64) float64 { return logarithm(x, one) }

// Log10 is the decimal logarithm.
func Log10(x float64) float64 {
	if x < 0 {
		return math.NaN() // glibc's has no sign here
	}
	return logarithm(x, ln10)
}

func logarithm(x float64, base double) float64 {
	switch {
	case x != x || math.IsInf(x, 1):
		return x
	case x < 0:
		return nan(0, 0)
	case x == 0:
		return math.Inf(-1)
	}
	return logOf(x).div(base).float()
}

// Sqrt is the square root.
func Sqrt(x float64) float64 {
	if x < 0 {
		return nan(0, 0)
	}
	return math.Sqrt(x)
}

// Fmod is the rest of a division that rounds towards zero.
func Fmod(a, b float64) float64 {
	r := math.Mod(a, b)
	if r != r {
		return nan(a, b)
	}
	return r
}

// bigPi2 is a quarter of a turn with enough bits for all doubles.
var bigPi2 = sync.OnceValue(func() *big.Float {
	const bits = 1400
	// Machin: pi/4 = 4 atan 1/5 - atan 1/239
	atan := func(n int64) *big.Int {
		x := new(big.Int).Div(new(big.Int).Lsh(big.NewInt(1), bits), big.NewInt(n))
		sum, term := new(big.Int).Set(x), new(big.Int)
		for k := int64(1); x.Sign() != 0; k++ {
			x.Div(x, big.NewInt(n*n))
			term.Div(x, big.NewInt(2*k+1))
			if k%2 == 1 {
				sum.Sub(sum, term)
			} else {
				sum.Add(sum, term)
			}
		}
		return sum
	}
	quarter := new(big.Int).Sub(new(big.Int).Mul(atan(5), big.NewInt(4)), atan(239))
	f := new(big.Float).SetPrec(bits).SetInt(quarter)
	return f.SetMantExp(f, 1-bits)
})

// reduce gives x as a number of quarters of a turn, modulo 4, and what remains, at most an eighth.
func reduce(x float64) (double, int) {
	if math.Abs(x) <= math.Pi/4 {
		return double{x, 0}, 0
	}
	q := bigPi2()
	bx := new(big.Float).SetPrec(1400).SetFloat64(x)
	n, _ := new(big.Float).SetPrec(1400).Add(new(big.Float).Quo(bx, q), big.NewFloat(math.Copysign(0.5, x))).Int(nil)
	bx.Sub(bx, new(big.Float).SetPrec(1400).Mul(q, new(big.Float).SetPrec(1400).SetInt(n)))
	hi, _ := bx.Float64()
	lo, _ := bx.Sub(bx, new(big.Float).SetFloat64(hi)).Float64()
	return double{hi, lo}, int(new(big.Int).And(n, big.NewInt(3)).Int64())
}

// sinCos computes both for at most an eighth of a turn.
func sinCos(r double) (s, c double) {
	x2 := r.mul(r).neg()
	s, c = one, one
	for n := 27; n >= 3; n -= 2 {
		s = s.mul(x2).mul(inverse[n]).mul(inverse[n-1]).add(one)
	}
	for n := 28; n >= 2; n -= 2 {
		c = c.mul(x2).mul(inverse[n]).mul(inverse[n-1]).add(one)
	}
	return s.mul(r), c
}

func turned(x float64) (s, c double) {
	r, n := reduce(x)
	s, c = sinCos(r)
	switch n {
	case 1:
		return c, s.neg()
	case 2:
		return s.neg(), c.neg()
	case 3:
		return c.neg(), s
	}
	return s, c
}

// circle says that x has no sine: the result is a NaN.
func circle(x float64) bool { return x != x || math.IsInf(x, 0) }

// Sin is the sine.
func Sin(x float64) float64 {
	if circle(x) {
		return nan(x, x)
	}
	if x == 0 {
		return x
	}
	s, _ := turned(x)
	return s.float()
}

// Cos is the cosine.
func Cos(x float64) float64 {
	if circle(x) {
		return nan(x, x)
	}
	_, c := turned(x)
	return c.float()
}

// Tan is the tangent.
func Tan(x float64) float64 {
	if circle(x) {
		return nan(x, x)
	}
	if x == 0 {
		return x
	}
	s, c := turned(x)
	return s.div(c).float()
}

// atanOf is the arc tangent of a number from 0 to 1.
func atanOf(x double) double {
	const halvings = 3
	for range halvings {
		x = x.div(one.add(x.mul(x).add(one).sqrt()))
	}
	x2 := x.mul(x).neg()
	sum := inverse[39]
	for n := 37; n >= 1; n -= 2 {
		sum = sum.mul(x2).add(inverse[n])
	}
	return sum.mul(x).scale(1 << halvings)
}

// angle is that of a point.
func angle(y, x double) double {
	ay, ax := y, x
	if ay.hi < 0 {
		ay = ay.neg()
	}
	if ax.hi < 0 {
		ax = ax.neg()
	}
	var a double
	if ay.hi <= ax.hi {
		a = atanOf(ay.div(ax))
	} else {
		a = pi2.sub(atanOf(ax.div(ay)))
	}
	if x.hi < 0 {
		a = pi2.scale(2).sub(a)
	}
	if y.hi < 0 {
		a = a.neg()
	}
	return a
}

// Atan is the arc tangent.
func Atan(x float64) float64 {
	if x == 0 || circle(x) {
		return math.Atan(x)
	}
	return angle(double{x, 0}, one).float()
}

// Atan2 is the angle of a point.
func Atan2(y, x float64) float64 {
	if x == 0 || y == 0 || circle(x) || circle(y) {
		return math.Atan2(y, x)
	}
	// Very different sizes would leave the range.
	_, ey := math.Frexp(y)
	_, ex := math.Frexp(x)
	if d := ey - ex; d > 200 || d < -200 {
		return math.Atan2(y, x)
	}
	e := -max(ex, ey)
	return angle(double{math.Ldexp(y, e), 0}, double{math.Ldexp(x, e), 0}).float()
}

// Asin is the arc sine.
func Asin(x float64) float64 {
	if x == 0 {
		return x
	}
	return arc(x, func(d double) double { return angle(double{x, 0}, d) })
}

// Acos is the arc cosine.
func Acos(x float64) float64 {
	return arc(x, func(d double) double { return angle(d, double{x, 0}) })
}

// arc hands on the other side of the triangle.
func arc(x float64, f func(double) double) float64 {
	switch {
	case x != x:
		return x
	case math.Abs(x) > 1:
		return math.NaN() // glibc's has no sign here
	}
	return f(one.sub(double{x, 0}).mul(one.add(double{x, 0})).sqrt()).float()
}

// sinhCosh computes both for a number whose power of e is finite.
func sinhCosh(x float64) (s, c double) {
	r, k := expParts(double{x, 0})
	r = double{math.Ldexp(r.hi, k), math.Ldexp(r.lo, k)}
	i := one.div(r)
	s, c = r.sub(i).scale(0.5), r.add(i).scale(0.5)
	if math.Abs(x) < 0.5 {
		// The difference would lose bits.
		x1 := double{x, 0}
		x2 := x1.mul(x1)
		s = one
		for n := 27; n >= 3; n -= 2 {
			s = s.mul(x2).mul(inverse[n]).mul(inverse[n-1]).add(one)
		}
		s = s.mul(x1)
	}
	return s, c
}

// Sinh is the hyperbolic sine.
func Sinh(x float64) float64 {
	switch {
	case x == 0 || circle(x):
		return x
	case math.Abs(x) > 300:
		return math.Copysign(expOf(double{math.Abs(x), 0}.sub(ln2)), x)
	}
	s, _ := sinhCosh(x)
	return s.float()
}

// Cosh is the hyperbolic cosine.
func Cosh(x float64) float64 {
	switch {
	case circle(x):
		return math.Abs(x)
	case math.Abs(x) > 300:
		return expOf(double{math.Abs(x), 0}.sub(ln2))
	}
	_, c := sinhCosh(x)
	return c.float()
}

// Tanh is the hyperbolic tangent.
func Tanh(x float64) float64 {
	switch {
	case x == 0 || x != x:
		return x
	case math.Abs(x) > 40:
		return math.Copysign(1, x)
	}
	s, c := sinhCosh(x)
	return s.div(c).float()
}
