package settings

import (
	"cmp"
	"fmt"
	"math"
	"reflect"
	"time"
)

// mostSteps is how many steps Levels takes at most.
const mostSteps = 6

// Levels returns values of a numeric setting from one to another. Each is the same power of two times as large as the
// one before, but for the last. The error says what is wrong with the range.
func (f *Field) Levels(from, to string) ([]string, error) {
	if f.Kind != KindInt && f.Kind != KindBytes && f.Kind != KindDuration {
		return nil, fmt.Errorf("%s: %s..%s: only numbers have ranges; name the values, with commas between", f.Name, from, to)
	}
	low, err := f.number(from)
	if err != nil {
		return nil, err
	}
	high, err := f.number(to)
	switch {
	case err != nil:
		return nil, err
	case low <= 0:
		return nil, fmt.Errorf("%s: %s..%s: a range begins above 0; name the values, with commas between", f.Name, from, to)
	case high <= low:
		return nil, fmt.Errorf("%s: %s..%s: the range is empty", f.Name, from, to)
	}
	doublings := int(math.Ceil(math.Log2(float64(high) / float64(low))))
	step := (doublings + mostSteps - 1) / mostSteps
	out := []string{f.print(low)}
	for i := 1; i < mostSteps && float64(low<<(i*step))*math.Sqrt2 < float64(high); i++ {
		out = append(out, f.print(low<<(i*step)))
	}
	return append(out, f.print(high)), nil
}

// number reads a value as a number, if it is allowed.
func (f *Field) number(text string) (int64, error) {
	v, err := f.parse(text)
	if err != nil {
		return 0, err
	}
	one := *f
	one.value = v
	if p := one.Problem(); p != nil {
		return 0, p
	}
	if v.CanUint() {
		return int64(min(v.Uint(), math.MaxInt64)), nil
	}
	return v.Int(), nil
}

// print returns a number as Get does.
func (f *Field) print(n int64) string {
	v := reflect.New(f.value.Type()).Elem()
	switch {
	case v.CanUint():
		v.SetUint(uint64(n))
	case f.Kind == KindDuration && n >= int64(time.Millisecond):
		v.SetInt(n / int64(time.Millisecond) * int64(time.Millisecond)) // Raft's ticks are whole milliseconds
	default:
		v.SetInt(n)
	}
	one := *f
	one.value = v
	return one.Get()
}

// Compare orders two values of a numeric setting that Normal has returned.
func (f *Field) Compare(a, b string) int {
	x, errX := f.number(a)
	y, errY := f.number(b)
	if errX != nil || errY != nil {
		panic(fmt.Sprintf("setting %s: %q and %q are no numbers that it allows", f.Name, a, b))
	}
	return cmp.Compare(x, y)
}

// Normal returns a value as Get prints it, if it is allowed.
func (f *Field) Normal(text string) (string, error) {
	v, err := f.parse(text)
	if err != nil {
		return "", err
	}
	one := *f
	if one.value = v; one.Problem() != nil {
		return "", one.Problem()
	}
	return one.Get(), nil
}
