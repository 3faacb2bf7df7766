// Package vm is an interpreter of Lua 5.1 whose runs are the same on every machine: it counts what a script does and
// ends it at a limit, iterates over tables in the order of PUC-Rio's Lua, and depends on no clock, address or
// processor. It has no library; package lua has those.
//
// Compile turns text into a Proto. NewState makes a state, into which libraries put functions of type LGFunction. A
// function finds its arguments at 1 to GetTop, pushes its results and returns their number; it raises an error by
// RaiseError, and tells by Charge what work it does. A state and what it made belong to one goroutine at a time.
package vm

import (
	"fmt"
	"math"
	"unsafe"
)

// LValueType is the type of a value as scripts see it.
type LValueType uint8

const (
	LTNil LValueType = iota
	LTBool
	LTNumber
	LTString
	LTFunction
	LTUserData
	LTThread
	LTTable
)

var typeNames = [...]string{"nil", "boolean", "number", "string", "function", "userdata", "thread", "table"}

func (t LValueType) String() string { return typeNames[t] }

// LValue is a value of Lua. It is never Go's nil.
type LValue interface {
	Type() LValueType
	String() string
}

type nilType struct{ _ byte }

// LBool is true or false.
type LBool bool

// LNumber is a number: all are doubles.
type LNumber float64

// LString is a string of bytes.
type LString string

// LGFunction is a function of a library. It returns the number of its results, which it has pushed.
type LGFunction func(L *LState) int

// LFunction is a closure over a Proto or a function of a library.
type LFunction struct {
	proto    *Proto
	upvalues []*upvalue
	Env      *LTable
	Go       LGFunction // nil: proto is set
	id       uint64
}

// LUserData is a value that only libraries understand.
type LUserData struct {
	Value any
	id    uint64
}

// LNil, LTrue and LFalse are the values without content.
var (
	LNil   LValue = &nilType{}
	LTrue  LValue = LBool(true)
	LFalse LValue = LBool(false)
)

func (*nilType) Type() LValueType   { return LTNil }
func (LBool) Type() LValueType      { return LTBool }
func (LNumber) Type() LValueType    { return LTNumber }
func (LString) Type() LValueType    { return LTString }
func (*LFunction) Type() LValueType { return LTFunction }
func (*LUserData) Type() LValueType { return LTUserData }
func (*LState) Type() LValueType    { return LTThread }
func (*LTable) Type() LValueType    { return LTTable }

func (*nilType) String() string  { return "nil" }
func (n LNumber) String() string { return string(AppendNumber(nil, float64(n))) }
func (s LString) String() string { return string(s) }
func (b LBool) String() string {
	if b {
		return "true"
	}
	return "false"
}

// Redis prints an address. Here it is a number that counts up from the beginning of a run, alike on all replicas.
func (f *LFunction) String() string   { return named("function", f.id) }
func (L *LState) String() string      { return named("thread", L.id) }
func (t *LTable) String() string      { return named("table", t.id) }
func named(t string, n uint64) string { return fmt.Sprintf("%s: 0x%012x", t, n) }

// String of one that no state made is that of C's NULL.
func (u *LUserData) String() string {
	if u.id == 0 {
		return "userdata: (nil)"
	}
	return named("userdata", u.id)
}

// IsGo says that the function belongs to a library.
func (f *LFunction) IsGo() bool { return f.Go != nil }

// LVIsFalse says whether a condition takes v as false.
func LVIsFalse(v LValue) bool {
	if b, ok := v.(LBool); ok {
		return !bool(b)
	}
	return v == LNil
}

// LVAsBool is the opposite of LVIsFalse.
func LVAsBool(v LValue) bool { return !LVIsFalse(v) }

// LVCanConvToString says whether v is a string or a number.
func LVCanConvToString(v LValue) bool {
	switch v.(type) {
	case LString, LNumber:
		return true
	}
	return false
}

// LVAsString is the text of a string or a number, else an empty string.
func LVAsString(v LValue) string {
	switch v := v.(type) {
	case LString:
		return string(v)
	case LNumber:
		return v.String()
	}
	return ""
}

// LVAsNumber is a number, or that which a string holds, else 0.
func LVAsNumber(v LValue) float64 {
	f, _ := ToNumber(v)
	return f
}

// ToNumber converts as arithmetic does: numbers, and strings that hold one.
func ToNumber(v LValue) (float64, bool) {
	switch v := v.(type) {
	case LNumber:
		return float64(v), true
	case LString:
		return ParseNumber(string(v))
	}
	return 0, false
}

// Int64 converts as a C compiler for x86-64 does, on every processor: towards zero, and the least integer for NaN and
// for what is out of range.
func Int64(f float64) int64 {
	if f >= -(1<<63) && f < 1<<63 {
		return int64(f)
	}
	return math.MinInt64
}

// Int32 is what Int64 keeps in a C int.
func Int32(f float64) int { return int(int32(Int64(f))) }

// Small numbers need no allocation.
var smallNumbers = func() (s [1024]LValue) {
	for i := range s {
		s[i] = LNumber(i)
	}
	return s
}()

// Number is f as a value.
func Number(f float64) LValue {
	if i := uint64(int64(f)); i < uint64(len(smallNumbers)) && float64(i) == f && (i != 0 || !math.Signbit(f)) {
		return smallNumbers[i]
	}
	return LNumber(f)
}

// Bytes are those of a string, which nobody may change.
func Bytes(s LString) []byte { return unsafe.Slice(unsafe.StringData(string(s)), len(s)) }
