package vm

import "math"

// Pow is a to the power of b.
func Pow(a, b float64) float64 { return math.Pow(a, b) }

func Acos(x float64) float64     { return math.Acos(x) }
func Asin(x float64) float64     { return math.Asin(x) }
func Atan(x float64) float64     { return math.Atan(x) }
func Atan2(y, x float64) float64 { return math.Atan2(y, x) }
func Cos(x float64) float64      { return math.Cos(x) }
func Cosh(x float64) float64     { return math.Cosh(x) }
func Exp(x float64) float64      { return math.Exp(x) }
func Fmod(a, b float64) float64 {
	r := math.Mod(a, b)
	if r != r {
		return nan(a, b)
	}
	return r
}
func Log(x float64) float64   { return math.Log(x) }
func Log10(x float64) float64 { return math.Log10(x) }
func Sin(x float64) float64   { return math.Sin(x) }
func Sinh(x float64) float64  { return math.Sinh(x) }
func Sqrt(x float64) float64  { return math.Sqrt(x) }
func Tan(x float64) float64   { return math.Tan(x) }
func Tanh(x float64) float64  { return math.Tanh(x) }
