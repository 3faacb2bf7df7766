package lua

import (
	"math"
	"math/bits"

	"neokv.dev/neokv/internal/lua/vm"
)

// bitFunctions are those of Lua BitOp 1.0.2.
var bitFunctions = []named{
	{"tobit", bitMap(func(a uint32) uint32 { return a })},
	{"bnot", bitMap(func(a uint32) uint32 { return ^a })},
	{"band", bitFold(func(a, b uint32) uint32 { return a & b })},
	{"bor", bitFold(func(a, b uint32) uint32 { return a | b })},
	{"bxor", bitFold(func(a, b uint32) uint32 { return a ^ b })},
	{"lshift", bitShift(func(a uint32, n int) uint32 { return a << n })},
	{"rshift", bitShift(func(a uint32, n int) uint32 { return a >> n })},
	{"arshift", bitShift(func(a uint32, n int) uint32 { return uint32(int32(a) >> n) })},
	{"rol", bitShift(bits.RotateLeft32)},
	{"ror", bitShift(func(a uint32, n int) uint32 { return bits.RotateLeft32(a, -n) })},
	{"bswap", bitMap(bits.ReverseBytes32)},
	{"tohex", bitToHex},
}

func openBit(L *vm.LState) *vm.LTable {
	return fill(L, L.CreateTable(0, len(bitFunctions)), bitFunctions)
}

// bitArg returns argument n rounded to the nearest integer, halves to the even one, modulo 2^32. The sum has the
// integer in the low bits of its fraction: beyond 2^51, where they no longer are the integer's, the result is that of
// the C library all the same.
func bitArg(L *vm.LState, n int) uint32 {
	x := float64(L.CheckNumber(n))
	if x != x {
		return uint32(float64Bits(x))
	}
	return uint32(math.Float64bits(x + (1<<52 + 1<<51)))
}

func pushBits(L *vm.LState, b uint32) int {
	L.PushNumber(float64(int32(b)))
	return 1
}

func bitMap(f func(uint32) uint32) vm.LGFunction {
	return func(L *vm.LState) int { return pushBits(L, f(bitArg(L, 1))) }
}

// bitFold takes the arguments after the first from the last one on, so of two bad ones the later is named.
func bitFold(f func(a, b uint32) uint32) vm.LGFunction {
	return func(L *vm.LState) int {
		b := bitArg(L, 1)
		L.Charge(L.GetTop()/8, 0)
		for i := L.GetTop(); i > 1; i-- {
			b = f(b, bitArg(L, i))
		}
		return pushBits(L, b)
	}
}

func bitShift(f func(a uint32, n int) uint32) vm.LGFunction {
	return func(L *vm.LState) int {
		b := bitArg(L, 1)
		return pushBits(L, f(b, int(bitArg(L, 2)&31)))
	}
}

// bitToHex writes the last n digits, 8 at most; upper-case ones if n is negative.
func bitToHex(L *vm.LState) int {
	b, n := bitArg(L, 1), int64(8)
	if L.GetTop() >= 2 {
		n = int64(int32(bitArg(L, 2)))
	}
	digits := "0123456789abcdef"
	if n < 0 {
		n, digits = -n, "0123456789ABCDEF"
	}
	var buf [8]byte
	n = min(n, 8)
	for i := n - 1; i >= 0; i-- {
		buf[i] = digits[b&15]
		b >>= 4
	}
	L.PushString(string(buf[:n]))
	return 1
}
