package lua

import (
	"math"

	"neokv.dev/neokv/internal/lua/vm"
)

var tableFunctions = []named{
	{"concat", tableConcat}, {"foreach", tableForeach}, {"foreachi", tableForeachi}, {"getn", tableGetn},
	{"insert", tableInsert}, {"maxn", tableMaxn}, {"remove", tableRemove}, {"setn", tableSetn}, {"sort", tableSort},
}

func tableConcat(L *vm.LState) int {
	separator := L.OptString(2, "")
	t := L.CheckTable(1)
	from, to := L.OptInt(3, 1), 0
	if L.Get(4) == vm.LNil {
		to = t.Len()
	} else {
		to = L.CheckInt(4)
	}
	var b []byte
	add := func(s string) {
		L.Charge(1+len(s)>>6, len(s))
		b = append(b, s...)
	}
	for i := from; i <= to; i++ {
		v := t.RawGetInt(i)
		if !vm.LVCanConvToString(v) {
			L.RaiseError("invalid value (%s) at index %d in table for 'concat'", v.Type(), i)
		}
		add(vm.LVAsString(v))
		if i < to {
			add(separator)
		}
	}
	L.Push(vm.LString(b))
	return 1
}

func tableForeach(L *vm.LState) int {
	t, fn := L.CheckTable(1), L.CheckFunction(2)
	k, v := L.Next(t, vm.LNil)
	for ; k != vm.LNil; k, v = L.Next(t, k) {
		L.Push(fn)
		L.Push(k)
		L.Push(v)
		L.Call(2, 1)
		if L.Get(-1) != vm.LNil {
			return 1
		}
		L.Pop(1)
	}
	return 0
}

func tableForeachi(L *vm.LState) int {
	t := L.CheckTable(1)
	n, fn := t.Len(), L.CheckFunction(2)
	for i := 1; i <= n; i++ {
		L.Push(fn)
		L.PushNumber(float64(i))
		L.Push(t.RawGetInt(i))
		L.Call(2, 1)
		if L.Get(-1) != vm.LNil {
			return 1
		}
		L.Pop(1)
	}
	return 0
}

func tableGetn(L *vm.LState) int {
	L.PushNumber(float64(L.CheckTable(1).Len()))
	return 1
}

func tableMaxn(L *vm.LState) int {
	L.PushNumber(L.CheckTable(1).MaxN())
	return 1
}

func tableSetn(L *vm.LState) int {
	L.CheckTable(1)
	L.RaiseError("'setn' is obsolete")
	return 0
}

func tableInsert(L *vm.LState) int {
	t := L.CheckTable(1)
	end := t.Len() + 1
	at := end
	switch L.GetTop() {
	case 2:
	case 3:
		if at = L.CheckInt(2); at > end {
			end = at
		}
		L.Charge(max(0, end-at), 0)
		for i := end; i > at; i-- {
			L.RawSetInt(t, i, t.RawGetInt(i-1))
		}
	default:
		L.RaiseError("wrong number of arguments to 'insert'")
	}
	L.RawSetInt(t, at, L.Get(-1))
	return 0
}

func tableRemove(L *vm.LState) int {
	t := L.CheckTable(1)
	end := t.Len()
	at := L.OptInt(2, end)
	if at < 1 || at > end {
		return 0
	}
	L.Push(t.RawGetInt(at))
	L.Charge(end-at, 0)
	for ; at < end; at++ {
		L.RawSetInt(t, at, t.RawGetInt(at+1))
	}
	L.RawSetInt(t, end, vm.LNil)
	return 1
}

func tableSort(L *vm.LState) int {
	t := L.CheckTable(1)
	n := t.Len()
	s := &sorter{L: L, t: t}
	if L.Get(2) != vm.LNil {
		s.less = L.CheckFunction(2)
	}
	s.sort(1, n)
	return 0
}

// sorter is the quicksort of PUC-Rio's Lua: what a comparison that contradicts itself does is part of the result.
type sorter struct {
	L    *vm.LState
	t    *vm.LTable
	less *vm.LFunction
}

func (s *sorter) get(i int) vm.LValue {
	s.L.Charge(1, 0)
	return s.t.RawGetInt(i)
}

func (s *sorter) set(i int, v vm.LValue) { s.L.RawSetInt(s.t, i, v) }

func (s *sorter) before(a, b vm.LValue) bool {
	if s.less == nil {
		return s.L.LessThan(a, b)
	}
	s.L.Push(s.less)
	s.L.Push(a)
	s.L.Push(b)
	s.L.Call(2, 1)
	r := vm.LVAsBool(s.L.Get(-1))
	s.L.Pop(1)
	return r
}

func (s *sorter) swapIf(lower, upper int) {
	if a, b := s.get(lower), s.get(upper); s.before(b, a) {
		s.set(lower, b)
		s.set(upper, a)
	}
}

func (s *sorter) sort(lower, upper int) {
	for lower < upper {
		s.swapIf(lower, upper)
		if upper-lower == 1 {
			return
		}
		middle := (lower + upper) / 2
		if m, l := s.get(middle), s.get(lower); s.before(m, l) {
			s.set(middle, l)
			s.set(lower, m)
		} else if u := s.get(upper); s.before(u, m) {
			s.set(middle, u)
			s.set(upper, m)
		}
		if upper-lower == 2 {
			return
		}
		pivot := s.get(middle)
		s.set(middle, s.get(upper-1))
		s.set(upper-1, pivot)
		i, j := lower, upper-1
		for {
			var a, b vm.LValue
			for i++; ; i++ {
				if a = s.get(i); !s.before(a, pivot) {
					break
				}
				if i > upper {
					s.L.RaiseError("invalid order function for sorting")
				}
			}
			for j--; ; j-- {
				if b = s.get(j); !s.before(pivot, b) {
					break
				}
				if j < lower {
					s.L.RaiseError("invalid order function for sorting")
				}
			}
			if j < i {
				break
			}
			s.set(i, b)
			s.set(j, a)
		}
		a, b := s.get(upper-1), s.get(i)
		s.set(upper-1, b)
		s.set(i, a)
		// The smaller half first, so that the recursion is never deep.
		if i-lower < upper-i {
			s.sort(lower, i-1)
			lower = i + 1
		} else {
			s.sort(i+1, upper)
			upper = i - 1
		}
	}
}

var mathFunctions = []named{
	{"abs", math1(math.Abs)}, {"acos", math1(vm.Acos)}, {"asin", math1(vm.Asin)}, {"atan", math1(vm.Atan)},
	{"atan2", math2(vm.Atan2)}, {"ceil", math1(math.Ceil)}, {"cos", math1(vm.Cos)}, {"cosh", math1(vm.Cosh)},
	{"deg", math1(func(x float64) float64 { return x / (math.Pi / 180) })}, {"exp", math1(vm.Exp)},
	{"floor", math1(math.Floor)}, {"fmod", math2(vm.Fmod)}, {"frexp", mathFrexp}, {"ldexp", mathLdexp},
	{"log", math1(vm.Log)}, {"log10", math1(vm.Log10)}, {"max", mathMax}, {"min", mathMin}, {"mod", math2(vm.Fmod)},
	{"modf", mathModf}, {"pow", math2(vm.Pow)}, {"rad", math1(func(x float64) float64 { return x * (math.Pi / 180) })},
	{"sin", math1(vm.Sin)}, {"sinh", math1(vm.Sinh)}, {"sqrt", math1(vm.Sqrt)}, {"tan", math1(vm.Tan)},
	{"tanh", math1(vm.Tanh)},
}

// mathSteps is charged for a function that the processor does not have.
const mathSteps = 20

func math1(f func(float64) float64) vm.LGFunction {
	return func(L *vm.LState) int {
		L.Charge(mathSteps, 0)
		L.PushNumber(f(float64(L.CheckNumber(1))))
		return 1
	}
}

func math2(f func(a, b float64) float64) vm.LGFunction {
	return func(L *vm.LState) int {
		L.Charge(mathSteps, 0)
		L.PushNumber(f(float64(L.CheckNumber(1)), float64(L.CheckNumber(2))))
		return 1
	}
}

func mathFrexp(L *vm.LState) int {
	f, e := math.Frexp(float64(L.CheckNumber(1)))
	L.PushNumber(f)
	L.PushNumber(float64(e))
	return 2
}

func mathLdexp(L *vm.LState) int {
	L.PushNumber(math.Ldexp(float64(L.CheckNumber(1)), L.CheckInt(2)))
	return 1
}

func mathModf(L *vm.LState) int {
	f := float64(L.CheckNumber(1))
	whole := math.Trunc(f)
	rest := f - whole
	if math.IsInf(f, 0) {
		rest = 0
	}
	L.PushNumber(whole)
	L.PushNumber(math.Copysign(rest, f))
	return 2
}

func mathMin(L *vm.LState) int {
	n := L.CheckNumber(1)
	for i := 2; i <= L.GetTop(); i++ {
		if m := L.CheckNumber(i); m < n {
			n = m
		}
	}
	L.PushNumber(float64(n))
	return 1
}

func mathMax(L *vm.LState) int {
	n := L.CheckNumber(1)
	for i := 2; i <= L.GetTop(); i++ {
		if m := L.CheckNumber(i); m > n {
			n = m
		}
	}
	L.PushNumber(float64(n))
	return 1
}

// drand is the generator of drand48, as Redis has its own. A run begins with a seed that its caller gives.
type drand struct{ x uint64 }

func (d *drand) seed(n int32) { d.x = uint64(uint32(n))<<16 | 0x330e }

func (d *drand) next() int32 {
	d.x = (d.x*0x5deece66d + 0xb) & (1<<48 - 1)
	return int32(d.x >> 17)
}

func (d *drand) random(L *vm.LState) int {
	r := float64(d.next()%math.MaxInt32) / math.MaxInt32
	switch L.GetTop() {
	case 0:
		L.PushNumber(r)
	case 1:
		to := L.CheckInt(1)
		if to < 1 {
			L.ArgError(1, "interval is empty")
		}
		L.PushNumber(math.Floor(float64(r*float64(to))) + 1)
	case 2:
		from, to := L.CheckInt(1), L.CheckInt(2)
		if from > to {
			L.ArgError(2, "interval is empty")
		}
		// The sum is one of C's ints.
		n := float64(int32(to - from + 1))
		L.PushNumber(math.Floor(float64(r*n)) + float64(from))
	default:
		L.RaiseError("wrong number of arguments")
	}
	return 1
}

func (d *drand) randomSeed(L *vm.LState) int {
	d.seed(int32(L.CheckInt(1)))
	return 0
}
