package redis

import (
	"math"
	"strconv"
)

// maxIntBytes is the length of the longest integer, "-9223372036854775808".
const maxIntBytes = 20

// ParseInt reads a 64-bit integer in the one form that Redis takes: no plus sign, no leading zeros, no "-0", no spaces.
func ParseInt(b []byte) (int64, bool) {
	if len(b) == 0 || len(b) > maxIntBytes {
		return 0, false
	}
	if len(b) == 1 && b[0] == '0' {
		return 0, true
	}
	negative := b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 || b[0] < '1' || b[0] > '9' {
		return 0, false
	}
	var n uint64
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 || n > (math.MaxUint64-d)/10 {
			return 0, false
		}
		n = n*10 + d
	}
	switch {
	case negative && n <= 1<<63:
		return -int64(n), true
	case !negative && n <= math.MaxInt64:
		return int64(n), true
	}
	return 0, false
}

// parseInts reads two integers. It appends Redis's error if one of them is no integer.
func parseInts(a, b []byte, out *Reply) (x, y int64, ok bool) {
	if x, ok = ParseInt(a); ok {
		y, ok = ParseInt(b)
	}
	if !ok {
		out.Error(ErrNotInteger)
	}
	return x, y, ok
}

// addInt adds n to the integer that a value spells, or to 0 where there is no value, and replies the sum. Instead it
// appends an error where the value is no integer (notInteger) or the sum would overflow.
func addInt(value []byte, there bool, n int64, notInteger string, out *Reply) (sum int64, ok bool) {
	if there {
		if sum, ok = ParseInt(value); !ok {
			out.Error(notInteger)
			return 0, false
		}
	}
	if n < 0 && sum < math.MinInt64-n || n > 0 && sum > math.MaxInt64-n {
		out.Error(ErrOverflow)
		return 0, false
	}
	sum += n
	out.Int(sum)
	return sum, true
}

func appendInt(dst []byte, n int64) []byte { return strconv.AppendInt(dst, n, 10) }
