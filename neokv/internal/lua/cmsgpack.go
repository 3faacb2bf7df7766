package lua

import (
	"encoding/binary"
	"math"

	"neokv.dev/neokv/internal/lua/vm"
)

// openCMsgpack makes lua-cmsgpack 0.4.0.
func openCMsgpack(L *vm.LState) *vm.LTable {
	t := fill(L, L.NewTable(), []named{{"pack", cmsgpackPack}, {"unpack", cmsgpackUnpack},
		{"unpack_one", cmsgpackUnpackOne}, {"unpack_limit", cmsgpackUnpackLimit}})
	t.RawSetString("_NAME", vm.LString("cmsgpack"))
	t.RawSetString("_VERSION", vm.LString("lua-cmsgpack 0.4.0"))
	t.RawSetString("_COPYRIGHT", vm.LString("Copyright (C) 2012, Salvatore Sanfilippo"))
	t.RawSetString("_DESCRIPTION", vm.LString("MessagePack C implementation for Lua"))
	return t
}

// cmsgpackNesting is how many tables may lie in each other; one that lies deeper is packed as nil.
const cmsgpackNesting = 16

func cmsgpackPack(L *vm.LState) int {
	args := L.GetTop()
	if args == 0 {
		L.ArgError(0, "MessagePack pack needs input.")
	}
	if 2*args > stackSlots {
		L.ArgError(0, "Too many arguments for MessagePack pack.")
	}
	p := packer{L: L}
	for i := 1; i <= args; i++ {
		p.value(L.Get(i), 0)
	}
	L.Push(vm.LString(p.out)) // charged while it grew
	return 1
}

// packer appends values to out. What it appends has been charged before.
type packer struct {
	L   *vm.LState
	out []byte
}

func (p *packer) value(v vm.LValue, level int) {
	switch v := v.(type) {
	case vm.LString:
		p.L.Charge(1+len(v)/64, 5+len(v))
		p.header(len(v), 0xa0, 31, 0xd9, 0xda)
		p.out = append(p.out, v...)
		return
	case vm.LNumber:
		p.L.Charge(1, 9)
		p.number(float64(v))
		return
	case *vm.LTable:
		if level < cmsgpackNesting {
			p.L.Charge(1, 5)
			p.table(v, level+1)
			return
		}
	}
	p.L.Charge(1, 1)
	switch v {
	case vm.LTrue:
		p.out = append(p.out, 0xc3)
	case vm.LFalse:
		p.out = append(p.out, 0xc2)
	default:
		p.out = append(p.out, 0xc0)
	}
}

// header appends a type and the length n: both in one byte, fixed|n, if n is at most fixedMax; otherwise the type code8
// (zero: there is none), code16 or the one that follows it, and n in 8, 16 or 32 bits.
func (p *packer) header(n int, fixed byte, fixedMax int, code8, code16 byte) {
	switch {
	case n <= fixedMax:
		p.out = append(p.out, fixed|byte(n))
	case n <= math.MaxUint8 && code8 != 0:
		p.out = append(p.out, code8, byte(n))
	case n <= math.MaxUint16:
		p.out = binary.BigEndian.AppendUint16(append(p.out, code16), uint16(n))
	default:
		p.out = binary.BigEndian.AppendUint32(append(p.out, code16+1), uint32(n))
	}
}

// number appends an integer if f is one of 64 bits; otherwise a float of 32 bits if it has the same value, or of 64.
func (p *packer) number(f float64) {
	n := vm.Int64(f)
	switch {
	case f != float64(n) || f >= 1<<63:
		if float64(float32(f)) == f {
			p.out = binary.BigEndian.AppendUint32(append(p.out, 0xca), math.Float32bits(float32(f)))
		} else {
			p.out = binary.BigEndian.AppendUint64(append(p.out, 0xcb), float64Bits(f))
		}
	case n >= -32 && n <= math.MaxInt8:
		p.out = append(p.out, byte(n))
	case n >= 0 && n <= math.MaxUint8:
		p.out = append(p.out, 0xcc, byte(n))
	case n >= 0 && n <= math.MaxUint16:
		p.out = binary.BigEndian.AppendUint16(append(p.out, 0xcd), uint16(n))
	case n >= 0 && n <= math.MaxUint32:
		p.out = binary.BigEndian.AppendUint32(append(p.out, 0xce), uint32(n))
	case n >= 0:
		p.out = binary.BigEndian.AppendUint64(append(p.out, 0xcf), uint64(n))
	case n >= math.MinInt8:
		p.out = append(p.out, 0xd0, byte(n))
	case n >= math.MinInt16:
		p.out = binary.BigEndian.AppendUint16(append(p.out, 0xd1), uint16(n))
	case n >= math.MinInt32:
		p.out = binary.BigEndian.AppendUint32(append(p.out, 0xd2), uint32(n))
	default:
		p.out = binary.BigEndian.AppendUint64(append(p.out, 0xd3), uint64(n))
	}
}

// table appends an array if the keys are the integers from one to their number, otherwise a map in the order of pairs.
func (p *packer) table(t *vm.LTable, level int) {
	count, largest, array := 0, int32(0), true
	for k, v := next(p.L, t, vm.LNil); v != vm.LNil; k, v = next(p.L, t, k) {
		count++
		if n, ok := k.(vm.LNumber); array && ok && n > 0 && n == vm.LNumber(int32(vm.Int64(float64(n)))) {
			largest = max(largest, int32(n))
		} else {
			array = false
		}
	}
	if array && int(largest) == count {
		p.header(count, 0x90, 15, 0, 0xdc)
		for i := 1; i <= count; i++ {
			p.value(t.RawGetInt(i), level)
		}
		return
	}
	p.header(count, 0x80, 15, 0, 0xde)
	for k, v := next(p.L, t, vm.LNil); v != vm.LNil; k, v = next(p.L, t, k) {
		p.value(k, level)
		p.value(v, level)
	}
}

func cmsgpackUnpack(L *vm.LState) int { return unpackValues(L, 0, 0) }

func cmsgpackUnpackOne(L *vm.LState) int {
	offset := L.OptInt64(2, 0)
	L.SetTop(min(1, L.GetTop()))
	return unpackValues(L, 1, offset)
}

func cmsgpackUnpackLimit(L *vm.LState) int {
	limit, offset := L.CheckInt64(2), L.OptInt64(3, 0)
	L.SetTop(min(1, L.GetTop()))
	return unpackValues(L, limit, offset)
}

// unpackValues pushes up to limit values of the first argument from offset on, and before them the offset behind them,
// -1 at the end. Without limit and offset it pushes all values alone.
func unpackValues(L *vm.LState, limit, offset int64) int {
	data := L.CheckString(1)
	switch {
	case offset < 0 || limit < 0:
		L.RaiseError("Invalid request to unpack with offset of %d and limit of %d.", int32(offset), len(data))
	case offset > int64(len(data)):
		L.RaiseError("Start offset %d greater than input length %d.", int32(offset), len(data))
	}
	all := limit == 0 && offset == 0
	if all {
		limit = math.MaxInt32
	}
	u := unpacker{L: L, rest: data[offset:]}
	args := L.GetTop()
	if !all {
		L.Push(vm.LNil) // the offset's place
	}
	n := int64(0)
	for ; u.rest != "" && n < limit; n++ {
		L.Push(u.value(args + int(n)))
	}
	if all {
		return int(n)
	}
	checkStack(L, args+int(n)+1, "in function mp_unpack_full")
	end := len(data) - len(u.rest)
	if u.rest == "" {
		end = -1
	}
	L.Replace(args+1, vm.Number(float64(end)))
	return int(n) + 1
}

// unpacker reads values from the front of rest.
type unpacker struct {
	L    *vm.LState
	rest string
}

// take returns the next n bytes. Where the C library finds no end of its input, or bytes that begin no value, it leaves
// the function at once, whatever it has read before; so does RaiseError.
func (u *unpacker) take(n uint64) string {
	if uint64(len(u.rest)) < n {
		u.L.RaiseError("Missing bytes in input.")
	}
	s := u.rest[:n]
	u.rest = u.rest[n:]
	return s
}

func (u *unpacker) uint(bytes uint64) (n uint64) {
	s := u.take(bytes)
	for i := range len(s) {
		n = n<<8 | uint64(s[i])
	}
	return n
}

// value reads one value. slots is how many values C has on its stack by now.
func (u *unpacker) value(slots int) vm.LValue {
	code := u.take(1)[0]
	checkStack(u.L, slots+1, "too many return values at once; use unpack_one or unpack_limit instead.")
	u.L.Charge(1, 0)
	switch code {
	case 0xc0:
		return vm.LNil
	case 0xc2:
		return vm.LFalse
	case 0xc3:
		return vm.LTrue
	case 0xca:
		return vm.LNumber(math.Float32frombits(uint32(u.uint(4))))
	case 0xcb:
		return vm.LNumber(math.Float64frombits(u.uint(8)))
	case 0xcc, 0xcd, 0xce, 0xcf: // of 64 bits C makes a signed integer
		return vm.Number(float64(int64(u.uint(1 << (code - 0xcc)))))
	case 0xd0:
		return vm.Number(float64(int8(u.uint(1))))
	case 0xd1:
		return vm.Number(float64(int16(u.uint(2))))
	case 0xd2:
		return vm.Number(float64(int32(u.uint(4))))
	case 0xd3:
		return vm.Number(float64(int64(u.uint(8))))
	case 0xd9, 0xda, 0xdb:
		return u.string(u.uint(1 << (code - 0xd9)))
	case 0xdc, 0xdd:
		return u.array(u.uint(2<<(code-0xdc)), slots)
	case 0xde, 0xdf:
		return u.dict(u.uint(2<<(code-0xde)), slots)
	}
	switch {
	case code < 0x80 || code >= 0xe0:
		return vm.Number(float64(int8(code)))
	case code < 0x90:
		return u.dict(uint64(code&15), slots)
	case code < 0xa0:
		return u.array(uint64(code&15), slots)
	case code < 0xc0:
		return u.string(uint64(code & 31))
	}
	u.L.RaiseError("Bad data format in input.")
	return nil
}

func (u *unpacker) string(n uint64) vm.LValue {
	s := u.take(n)
	u.L.Charge(len(s)/64, len(s)+valueBytes)
	return vm.LString(s)
}

func (u *unpacker) array(n uint64, slots int) vm.LValue {
	t := u.L.NewTable()
	checkStack(u.L, slots+2, "in function mp_decode_to_lua_array")
	for i := range n {
		v := u.value(slots + 2)
		u.L.Charge(1, 0)
		t.RawSetInt(int(i+1), v)
	}
	return t
}

func (u *unpacker) dict(n uint64, slots int) vm.LValue {
	t := u.L.NewTable()
	for range n {
		k := u.value(slots + 1)
		v := u.value(slots + 2)
		if k == vm.LNil {
			u.L.Throw(vm.LString("table index is nil"))
		}
		if f, ok := k.(vm.LNumber); ok && f != f {
			u.L.Throw(vm.LString("table index is NaN"))
		}
		u.L.Charge(1, 0)
		t.RawSet(k, v)
	}
	return t
}
