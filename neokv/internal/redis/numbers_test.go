package redis

import (
	"bytes"
	"math"
	"strconv"
	"testing"
)

// FuzzNumbers compares how numbers are read and printed with what the standard library makes of them.
func FuzzNumbers(f *testing.F) {
	for _, text := range []string{"0", "-0", "1", "-9223372036854775808", "9223372036854775808", "01", "+1", "1e3",
		"0x10", "0x1p-1074", "inf", "-Infinity", "nan", "1e400",
		"1e-400", "1_0", ".5", "5.", ".", "1e", "123456789012345678"} {
		f.Add([]byte(text), math.Float64bits(1.5))
	}
	for _, x := range []float64{0, math.Copysign(0, -1), 1 << 53, 1<<53 - 1, -1 << 53, 0.1, 1e17, math.MaxFloat64,
		math.SmallestNonzeroFloat64, math.Inf(1), math.NaN()} {
		f.Add([]byte("1"), math.Float64bits(x))
	}
	f.Fuzz(func(t *testing.T, text []byte, bits uint64) {
		n, ok := ParseInt(text)
		if want, err := strconv.ParseInt(string(text), 10,
			64); ok != (err == nil && strconv.FormatInt(want, 10) == string(text)) || ok && n != want {
			t.Errorf("ParseInt(%q) = %d, %v", text, n, ok)
		}
		if ok && string(appendInt(nil, n)) != string(text) {
			t.Errorf("%q prints as %q", text, appendInt(nil, n))
		}
		x, exact, ok := parseDouble(text)
		want, err := strconv.ParseFloat(string(text), 64)
		if err == nil && !math.IsNaN(want) && bytes.IndexByte(text, '_') < 0 && (!ok || x != want) {
			t.Errorf("parseDouble(%q) = %v, %v; want %v", text, x, ok, want)
		}
		if ok && exact && math.IsInf(x, 0) != (err == nil && math.IsInf(want, 0)) {
			t.Errorf("parseDouble(%q) = %v, exactly", text, x)
		}

		x = math.Float64frombits(bits)
		printed := appendDouble(nil, x)
		switch {
		case math.IsNaN(x):
			return
		case !math.IsInf(x, 0):
			if want := strconv.FormatFloat(x, 'g', 17, 64); string(printed) != want {
				t.Errorf("%v prints as %q, want %q", x, printed, want)
			}
		}
		if back, _, ok := parseDouble(printed); !ok || back != x {
			t.Errorf("%v prints as %q, which is read as %v, %v", x, printed, back, ok)
		}
	})
}
