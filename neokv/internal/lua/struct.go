package lua

import (
	"math"
	"slices"
	"strings"

	"neokv.dev/neokv/internal/lua/vm"
)

// structFunctions are those of Lua's struct library 0.2 as redis-server 7.0 has it on a 64-bit little-endian machine.
var structFunctions = []named{{"pack", structPack}, {"unpack", structUnpack}, {"size", structSize}}

func openStruct(L *vm.LState) *vm.LTable {
	return fill(L, L.CreateTable(0, len(structFunctions)), structFunctions)
}

// maxStructInteger bounds the n of in and In, in bytes.
const maxStructInteger = 32

// format reads a format option by option:
//
//	> <      big or little endian from here on; little at first
//	![n]     alignment of what follows, a power of two; 1 at first, 8 without n
//	x        a byte of padding
//	b B      8 bits, signed or unsigned; h H 16, l L T 64, i I 32; i[n] I[n] n bytes
//	f d      float of 32 or 64 bits
//	cn       n bytes; without n one; c0: the whole string, or when unpacking as many as the number before it says
//	s        bytes up to a zero
//	' '      nothing
type format struct {
	L     *vm.LState
	rest  string
	big   bool
	align int
}

func newFormat(L *vm.LState) format {
	text, _, _ := strings.Cut(L.CheckString(1), "\x00")
	L.Charge(len(text)/8, 0)
	return format{L: L, rest: text, align: 1}
}

// next returns the next option, its size, and the padding before it if pos bytes precede it. ok is false at the end.
func (f *format) next(pos uint64) (option byte, size uint64, padding uint64, ok bool) {
	if f.rest == "" {
		return 0, 0, 0, false
	}
	option, f.rest = f.rest[0], f.rest[1:]
	switch option {
	case 'b', 'B', 'x':
		size = 1
	case 'h', 'H':
		size = 2
	case 'l', 'L', 'T', 'd':
		size = 8
	case 'f':
		size = 4
	case 'c':
		size = uint64(f.number(1))
	case 'i', 'I':
		n := f.number(4)
		if n > maxStructInteger {
			f.L.RaiseError("integral size %d is larger than limit of %d", n, maxStructInteger)
		}
		size = uint64(n)
	}
	if size != 0 && option != 'c' {
		unit := min(size, uint64(f.align)) // the formula is C's, also for sizes that are no power of two
		padding = (unit - pos&(unit-1)) & (unit - 1)
	}
	return option, size, padding, true
}

// control carries out an option that stands for no data.
func (f *format) control(option byte) {
	switch option {
	case ' ':
	case '>':
		f.big = true
	case '<':
		f.big = false
	case '!':
		n := f.number(8)
		if n <= 0 || n&(n-1) != 0 {
			f.L.RaiseError("alignment %d is not a power of 2", n)
		}
		f.align = n
	default:
		f.L.ArgError(1, "invalid format option '"+string([]byte{option})+"'")
	}
}

// number reads the number after an option.
func (f *format) number(otherwise int) int {
	if f.rest == "" || f.rest[0] < '0' || f.rest[0] > '9' {
		return otherwise
	}
	n := 0
	for f.rest != "" && f.rest[0] >= '0' && f.rest[0] <= '9' {
		n = n*10 + int(f.rest[0]-'0')
		if n > math.MaxInt32 {
			f.L.RaiseError("integral size overflow")
		}
		f.rest = f.rest[1:]
	}
	return n
}

// structNumber and structString check an argument of pack. C has a nil behind the last argument, and says so.
func structNumber(L *vm.LState, n int) float64 {
	if n > L.GetTop() {
		L.ArgError(n, "number expected, got nil")
	}
	return float64(L.CheckNumber(n))
}

func structString(L *vm.LState, n int) string {
	if n > L.GetTop() {
		L.ArgError(n, "string expected, got nil")
	}
	return L.CheckString(n)
}

func structPack(L *vm.LState) int {
	f := newFormat(L)
	var out []byte
	for arg := 2; ; {
		option, size, padding, ok := f.next(uint64(len(out)))
		if !ok {
			break
		}
		L.Charge(1, int(padding))
		out = append(out, make([]byte, padding)...)
		switch option {
		case 'b', 'B', 'h', 'H', 'l', 'L', 'T', 'i', 'I':
			x := structNumber(L, arg)
			arg++
			value := toUint64(x)
			if x < 0 {
				value = uint64(vm.Int64(x))
			}
			out = f.append(out, value, size)
		case 'x':
			L.Charge(0, 1)
			out = append(out, 0)
		case 'f':
			x := math.Float32bits(float32(structNumber(L, arg)))
			arg++
			out = f.append(out, uint64(x), size)
		case 'd':
			x := float64Bits(structNumber(L, arg))
			arg++
			out = f.append(out, x, size)
		case 'c', 's':
			s := structString(L, arg)
			arg++
			if size != 0 {
				if uint64(len(s)) < size {
					L.ArgError(arg, "string too short")
				}
				s = s[:size]
			}
			L.Charge(len(s)/64, len(s)+1)
			out = append(out, s...)
			if option == 's' {
				out = append(out, 0)
			}
		default:
			f.control(option)
		}
	}
	L.Push(vm.LString(out)) // charged while it grew
	return 1
}

// append appends the low bytes of n.
func (f *format) append(out []byte, n, size uint64) []byte {
	f.L.Charge(0, int(size))
	begin := len(out)
	for range size {
		out = append(out, byte(n))
		n >>= 8
	}
	if f.big {
		slices.Reverse(out[begin:])
	}
	return out
}

func structUnpack(L *vm.LState) int {
	f := newFormat(L)
	data := L.CheckString(2)
	pos := uint64(L.OptInt64(3, 1)) - 1
	if pos == math.MaxUint64 {
		L.ArgError(3, "offset must be 1 or greater")
	}
	need := func(size uint64) {
		if size > uint64(len(data)) || pos > uint64(len(data))-size {
			L.ArgError(2, "data string too short")
		}
	}
	args, results := L.GetTop(), 0
	for {
		option, size, padding, ok := f.next(pos)
		if !ok {
			break
		}
		pos += padding
		need(size)
		checkStack(L, args+results+2, "too many results")
		L.Charge(1, 0)
		var result vm.LValue
		switch option {
		case 'b', 'B', 'h', 'H', 'l', 'L', 'T', 'i', 'I':
			result = vm.Number(structInteger(data[pos:pos+size], f.big, option >= 'a'))
		case 'x':
		case 'f':
			result = vm.LNumber(math.Float32frombits(uint32(structUint(data[pos:pos+4], f.big))))
		case 'd':
			result = vm.LNumber(math.Float64frombits(structUint(data[pos:pos+8], f.big)))
		case 'c':
			if size == 0 {
				var n float64
				ok := results > 0
				if ok {
					n, ok = toNumber(L.Get(-1))
				}
				if !ok {
					L.RaiseError("format 'c0' needs a previous size")
				}
				size = toUint64(n)
				L.Pop(1)
				results--
				need(size)
			}
			L.Charge(int(size/64), int(size)+valueBytes)
			result = vm.LString(data[pos : pos+size])
		case 's':
			n := strings.IndexByte(data[pos:], 0)
			if n < 0 {
				L.Charge((len(data)-int(pos))/64, 0)
				L.RaiseError("unfinished string in data")
			}
			L.Charge(n/64, n+valueBytes)
			size = uint64(n) + 1
			result = vm.LString(data[pos : pos+uint64(n)])
		default:
			f.control(option)
		}
		if result != nil {
			L.Push(result)
			results++
		}
		pos += size
	}
	L.PushNumber(float64(int64(pos + 1)))
	return results + 1
}

// structUint returns the low 64 bits of an integer.
func structUint(data string, big bool) (n uint64) {
	for i := range len(data) {
		if !big {
			i = len(data) - 1 - i
		}
		n = n<<8 | uint64(data[i])
	}
	return n
}

// structInteger reads an integer of up to 32 bytes. The sign of one with more than eight is where x86-64 shifts the
// mask to: modulo 64.
func structInteger(data string, big, signed bool) float64 {
	n := structUint(data, big)
	if !signed {
		return float64(n)
	}
	mask := ^uint64(0) << (uint(len(data)*8-1) & 63)
	if n&mask != 0 {
		n |= mask
	}
	return float64(int64(n))
}

func structSize(L *vm.LState) int {
	f := newFormat(L)
	pos := uint64(0)
	for {
		option, size, padding, ok := f.next(pos)
		if !ok {
			break
		}
		L.Charge(1, 0)
		switch {
		case option == 's':
			L.ArgError(1, "option 's' has no fixed size")
		case option == 'c' && size == 0:
			L.ArgError(1, "option 'c0' has no fixed size")
		case option < '0', option > '9' && option < 'A', option > 'Z' && option < 'a', option > 'z':
			f.control(option) // a letter or digit that is no option counts as nothing
		}
		pos += padding + size
	}
	L.PushNumber(float64(int64(pos)))
	return 1
}

// toNumber is lua_tonumber: a number, or that which a string reads as.
func toNumber(v vm.LValue) (float64, bool) {
	switch v := v.(type) {
	case vm.LNumber:
		return float64(v), true
	case vm.LString:
		return vm.ParseNumber(string(v))
	}
	return 0, false
}
