package settings

import (
	"cmp"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// ValueKind says what sort of value a setting takes, in the words of an error message.
type ValueKind string

const (
	KindInt      ValueKind = "a whole number"
	KindText     ValueKind = "text"
	KindBool     ValueKind = "true or false"
	KindBytes    ValueKind = "a size such as 64MiB"
	KindDuration ValueKind = "a duration such as 10ms"
)

// Field is one setting of a struct: what its tags say of it, and methods that get and set its value.
type Field struct {
	Name  string // the keys down the struct, joined with dots
	Help  string
	Kind  ValueKind
	Range string // what is allowed, in the words of a message: "0 to 32", "one of key, region"
	// Secret marks a value that must not be shown to anybody: see Shown.
	Secret bool
	// Shapes says that data keeps the form that the setting gave it when it was written.
	Shapes bool

	value    reflect.Value
	min, max string
	oneOf    []string
	check    func(text string) error
}

var (
	bytesType    = reflect.TypeFor[Bytes]()
	durationType = reflect.TypeFor[time.Duration]()
)

// Fields lists the settings of the struct that s points to, in the order of declaration. A struct field is a setting if
// it has a `key` tag. A nested struct puts its own key in front of the names of its fields; an embedded one adds
// nothing. The Fields stay bound to s: Set changes it. Fields panics if a tag does not fit its field.
func Fields(s any) []Field {
	return appendFields(nil, "", reflect.ValueOf(s).Elem())
}

func appendFields(out []Field, prefix string, s reflect.Value) []Field {
	for i := range s.NumField() {
		f, key := s.Type().Field(i), s.Type().Field(i).Tag.Get("key")
		switch {
		case f.Anonymous && f.Type.Kind() == reflect.Struct:
			out = appendFields(out, prefix, s.Field(i))
		case key == "":
		case f.Type.Kind() == reflect.Struct:
			out = appendFields(out, prefix+key+".", s.Field(i))
		default:
			out = append(out, newField(prefix+key, f, s.Field(i)))
		}
	}
	return out
}

func newField(name string, f reflect.StructField, v reflect.Value) Field {
	out := Field{Name: name, Help: f.Tag.Get("help"), value: v, min: f.Tag.Get("min"), max: f.Tag.Get("max")}
	switch {
	case f.Type == bytesType:
		out.Kind = KindBytes
	case f.Type == durationType:
		out.Kind = KindDuration
	case f.Type.Kind() == reflect.Bool:
		out.Kind = KindBool
	case f.Type.Kind() == reflect.String:
		out.Kind = KindText
	case v.CanInt(), v.CanUint():
		out.Kind = KindInt
	default:
		panic(fmt.Sprintf("setting %s: no settings of type %s", name, f.Type))
	}
	out.Secret, out.Shapes = f.Tag.Get("secret") != "", f.Tag.Get("shapes") != ""
	if list := f.Tag.Get("oneof"); list != "" {
		out.oneOf = strings.Split(list, ",")
	}
	for _, limit := range []string{out.min, out.max} {
		if _, err := out.parse(limit); limit != "" && err != nil {
			panic(fmt.Sprintf("setting %s: limit %q: want %s", name, limit, out.Kind))
		}
	}
	out.Range = out.rangeText()
	return out
}

func (f *Field) rangeText() string {
	switch {
	case len(f.oneOf) == 1:
		return f.oneOf[0]
	case f.oneOf != nil:
		return "one of " + strings.Join(f.oneOf, ", ")
	case f.min != "" && f.max != "":
		return f.min + " to " + f.max
	case f.min != "":
		return f.min + " or more"
	case f.max != "":
		return "at most " + f.max
	}
	return string(f.Kind)
}

// Get returns the value as text that Set accepts.
func (f *Field) Get() string {
	switch v := f.value.Interface().(type) {
	case time.Duration:
		return printDuration(v)
	default:
		return fmt.Sprint(v)
	}
}

// Describe says which values a text setting takes, where a tag cannot list them. Whoever uses the setting checks it.
func (f *Field) Describe(values string) { f.Range = values }

// Check limits a text setting to what check accepts. want says what that is, in the words of a message.
func (f *Field) Check(want string, check func(text string) error) { f.Range, f.check = want, check }

// Shown returns the value as people and files may see it: like Get, but of a secret only whether there is one.
func (f *Field) Shown() string {
	if value := f.Get(); !f.Secret || value == "" {
		return value
	}
	return "(set)"
}

// printDuration leaves out the zero parts that time.Duration prints behind minutes and hours: 5m, not 5m0s.
func printDuration(d time.Duration) string {
	s := d.String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}

// Set parses a value and stores it. It checks the form but not the range; Problem checks that.
func (f *Field) Set(value string) error {
	v, err := f.parse(value)
	if err != nil {
		return err
	}
	f.value.Set(v)
	return nil
}

// parse reads a value of the field's type; its error is a Problem.
func (f *Field) parse(text string) (reflect.Value, error) {
	v := reflect.New(f.value.Type()).Elem()
	var err error
	switch f.Kind {
	case KindBytes:
		var n Bytes
		n, err = ParseBytes(text)
		v.SetInt(int64(n))
	case KindDuration:
		var d time.Duration
		d, err = time.ParseDuration(text)
		v.SetInt(int64(d))
	case KindBool:
		var b bool
		b, err = strconv.ParseBool(text)
		v.SetBool(b)
	case KindText:
		v.SetString(text)
	case KindInt:
		if v.CanUint() {
			var n uint64
			n, err = strconv.ParseUint(text, 10, v.Type().Bits())
			v.SetUint(n)
		} else {
			var n int64
			n, err = strconv.ParseInt(text, 10, v.Type().Bits())
			v.SetInt(n)
		}
	}
	if err != nil {
		want := string(f.Kind)
		if f.Range != want {
			want += ", " + f.Range
		}
		return v, f.problem(strconv.Quote(text), want)
	}
	return v, nil
}

// Problem returns what is wrong with the present value, regardless of other settings, or nil if it is allowed.
func (f *Field) Problem() *Problem {
	ok := true
	switch {
	case f.check != nil:
		ok = f.check(f.value.String()) == nil
	case f.oneOf != nil:
		ok = false
		for _, allowed := range f.oneOf {
			ok = ok || allowed == f.value.String()
		}
	default:
		ok = (f.min == "" || f.compare(f.min) >= 0) && (f.max == "" || f.compare(f.max) <= 0)
	}
	if ok {
		return nil
	}
	return f.problem(cmp.Or(f.Get(), `""`), f.Range)
}

func (f *Field) problem(value, want string) *Problem {
	return &Problem{Name: f.Name, Text: fmt.Sprintf("%s: %s: want %s", f.Name, value, want)}
}

// compare orders the present value against a limit.
func (f *Field) compare(limit string) int {
	l, err := f.parse(limit)
	if err != nil {
		panic(err)
	}
	switch {
	case l.CanUint():
		return cmp.Compare(f.value.Uint(), l.Uint())
	case l.CanInt():
		return cmp.Compare(f.value.Int(), l.Int())
	}
	return strings.Compare(f.value.String(), l.String())
}
