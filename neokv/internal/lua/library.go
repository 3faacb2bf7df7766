package lua

import (
	"math"

	"neokv.dev/neokv/internal/lua/vm"
)

// openLibraries makes the libraries that Redis adds to those of Lua. A script begins with the defaults of cjson's
// options.
func (s *State) openLibraries() {
	var c cjson
	s.fresh = append(s.fresh, c.reset)
	s.L.SetGlobal("cjson", c.open(s.L))
	s.L.SetGlobal("cmsgpack", openCMsgpack(s.L))
	s.L.SetGlobal("struct", openStruct(s.L))
	s.L.SetGlobal("bit", openBit(s.L))
}

// stackSlots is LUAI_MAXCSTACK of Lua 5.1: the values that a C function of the original libraries may have on its
// stack. Where they would have more, they fail, and so do the libraries here: at the same depth, by the same text.
const stackSlots = 8000

// valueBytes is what a string costs besides its bytes.
const valueBytes = 16

func checkStack(L *vm.LState, slots int, what string) {
	if slots > stackSlots {
		L.RaiseError("stack overflow (%s)", what)
	}
}

// toUint64 is what gcc on x86-64 makes of a cast to an unsigned integer of 64 bits.
func toUint64(f float64) uint64 {
	if f >= 1<<63 {
		return uint64(vm.Int64(f-1<<63)) ^ 1<<63
	}
	return uint64(vm.Int64(f))
}

// float64Bits is a number as data. The NaN that Go makes has a bit that C's has not.
func float64Bits(f float64) uint64 {
	bits := math.Float64bits(f)
	if bits&^(1<<63) == math.Float64bits(math.NaN()) {
		bits &^= 1
	}
	return bits
}

// next is the pair after key in the order of pairs; the value behind the last one is nil.
func next(L *vm.LState, t *vm.LTable, key vm.LValue) (k, v vm.LValue) {
	L.Charge(1, 0)
	k, v, _ = t.Next(key)
	return k, v
}
