package redis

import (
	"strings"
	"testing"
)

// TestLongDouble has the limits of the x87 format: 2^16384 is too large, half of 2^-16445 is 0, 64 bits of precision,
// ties to even.
func TestLongDouble(t *testing.T) {
	for _, c := range []struct{ x, y, sum string }{
		{"0.1", "0.2", "0.3"},
		{"18446744073709551615", "1", "18446744073709551616"},
		{"18446744073709551616", "1", "18446744073709551616"},
		{"18446744073709551617", "0", "18446744073709551616"}, // between two neighbours: to the even one
		{"18446744073709551619", "0", "18446744073709551620"},
		{"-1e-18", "-4e-18", "0"},
		{"-1e-18", "-5e-18", "-0.00000000000000001"},
		{"3", "1.000000000000000005", "4.00000000000000001"},
		{"0x1.8p3", "-0X.8P1", "11"},
		{"0x1p-16445", "1", "1"},
		{"0x1p-16446", "0", ""},
		{"0x1.8p-16446", "0", "0"},
		{"0x1p16384", "0", ""},
		{"0x0.8p16384", "0x0.8p16384", "infinite"},
		{"1e4932", "-1e4932", "0"},
		{"1e4932", "1e4932", "infinite"},
		{"inf", "1", "infinite"},
		{"-infinity", "inf", "infinite"},
		{"1e-99999999999999999999", "0", ""},
		{"0e99999999999999999999", "0", "0"},
		{strings.Repeat("0", maxFloatBytes-1) + "1", "0", "1"},
		{strings.Repeat("0", maxFloatBytes) + "1", "0", ""},
		{strings.Repeat("9", maxFloatBytes), "0", ""},
		{"0." + strings.Repeat("0", 4000) + "1", "0", "0"},
	} {
		got := ""
		x, ok := parseLongDouble([]byte(c.x))
		y, ok2 := parseLongDouble([]byte(c.y))
		if ok && ok2 {
			if sum, ok := x.add(y); ok {
				got = string(sum.appendTo(nil))
			} else {
				got = "infinite"
			}
		}
		if got != c.sum {
			t.Errorf("%.60s + %s = %q, want %q", c.x, c.y, got, c.sum)
		}
	}
	for _, s := range []string{"", " 1", "1 ", "nan", "0x", "0xp1", "1e", "1e+", ".", "-", "--1", "1_0", "1e1.5",
		"infinit", "1\x00", "1p3"} {
		if x, ok := parseLongDouble([]byte(s)); ok {
			t.Errorf("%q is taken for %s", s, x.appendTo(nil))
		}
	}
}

func FuzzLongDouble(f *testing.F) {
	f.Add([]byte("-0x1.8p-3"))
	f.Add([]byte("123.45e-6"))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, ok := parseLongDouble(b)
		if !ok || x.inf {
			return
		}
		text := x.appendTo(nil) // is read again, and then printed alike
		if y, ok := parseLongDouble(text); !ok || string(y.appendTo(nil)) != string(text) {
			t.Errorf("%q prints as %q, which is read otherwise", b, text)
		}
	})
}
