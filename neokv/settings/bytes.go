package settings

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Bytes is a size in bytes. It is written with a binary unit: 64MiB, 64MB and 64m all mean 64 * 2^20 bytes. It prints
// in the largest unit that divides it.
type Bytes int64

// The units from the largest. A unit is its first letter, alone or followed by "b" or "ib", in any case.
var units = []struct {
	name string
	size Bytes
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"B", 1}}

// ParseBytes reads a size such as 64MiB, 64MB, 64m or 67108864. All units are binary.
func ParseBytes(s string) (Bytes, error) {
	number := strings.TrimRight(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
	size, ok := unit(strings.ToLower(s[len(number):]))
	n, err := strconv.ParseUint(strings.TrimSpace(number), 10, 63)
	if !ok || err != nil || n > math.MaxInt64/uint64(size) {
		return 0, fmt.Errorf("%q is no size: want a whole number and B, KiB, MiB, GiB or TiB", s)
	}
	return Bytes(n) * size, nil
}

func unit(s string) (size Bytes, ok bool) {
	if s == "" {
		return 1, true
	}
	for _, u := range units {
		switch name := strings.ToLower(u.name); s {
		case name, name[:1], name[:1] + "b":
			return u.size, s != "bb"
		}
	}
	return 1, false
}

// String prints the size in the largest unit that divides it: 64MiB, 1000B, 0B.
func (b Bytes) String() string {
	for _, u := range units {
		if b%u.size == 0 && (b != 0 || u.size == 1) {
			return strconv.FormatInt(int64(b/u.size), 10) + u.name
		}
	}
	panic("unreachable: every size is a multiple of one byte")
}

// About prints the size rounded, for people: 64MiB, 1.5GiB, 300B.
func (b Bytes) About() string {
	for _, u := range units {
		if b >= u.size && u.size > 1 {
			text := strconv.FormatFloat(float64(b)/float64(u.size), 'f', 1, 64)
			return strings.TrimSuffix(text, ".0") + u.name
		}
	}
	return strconv.FormatInt(int64(b), 10) + "B"
}

// MarshalText writes the size as String does.
func (b Bytes) MarshalText() ([]byte, error) { return []byte(b.String()), nil }

// UnmarshalText reads the size as ParseBytes does.
func (b *Bytes) UnmarshalText(text []byte) (err error) {
	*b, err = ParseBytes(string(text))
	return err
}
