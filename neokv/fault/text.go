package fault

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"neokv.dev/neokv/settings"
)

// arg is one argument of a verb: how it is read into a fault, and how it is printed.
type arg struct {
	name     string
	form     string // in a usage
	rest     bool   // it takes all words that are left
	optional bool
	parse    func(f *Fault, words []string) error
	print    func(f *Fault) string
	// properties returns the struct of which the argument sets properties; nil for another sort of argument.
	properties func(f *Fault) any
}

// The arguments of verbs.
var (
	stores = storesArg("stores", "STORES", func(f *Fault) *[]int { return &f.Stores })
	others = storesArg("other stores", "OTHERS", func(f *Fault) *[]int { return &f.Others })
	region = numberArg("region", "REGION", func(f *Fault) *int { return &f.Region })
	target = numberArg("store", "STORE", func(f *Fault) *int { return &f.To })
	slot   = arg{
		name: "slot", form: "[SLOT]", optional: true, rest: true,
		parse: func(f *Fault, words []string) (err error) {
			if len(words) == 0 {
				return nil
			}
			if f.Slot, err = number(words[0]); err != nil || f.Slot > maxSlot || len(words) > 1 {
				err = fmt.Errorf("%q is no slot from 1 to %d", strings.Join(words, " "), maxSlot)
			}
			return err
		},
		print: func(f *Fault) string {
			if f.Slot == 0 {
				return ""
			}
			return strconv.Itoa(f.Slot)
		},
	}
	power  = propertiesArg(true, func(f *Fault) any { return &f.Kill })
	net    = oneWay(propertiesArg(false, func(f *Fault) any { return &f.Link }))
	drive  = propertiesArg(false, func(f *Fault) any { return &f.Disk })
	client = propertiesArg(false, func(f *Fault) any { return &f.Client })

	matrix = arg{
		name: "name of a matrix", form: "MATRIX|ok", rest: true,
		parse: func(f *Fault, words []string) error {
			if f.Matrix = strings.Join(words, " "); f.Matrix == ok {
				f.Matrix = ""
			}
			_, err := MatrixDelay(f.Matrix, 1, 2)
			return err
		},
		print: func(f *Fault) string {
			if f.Matrix == "" {
				return ok
			}
			return f.Matrix
		},
	}
	offset = arg{
		name: "time", form: "TIME|ok",
		parse: func(f *Fault, words []string) (err error) {
			if words[0] == ok {
				return nil
			}
			f.Ahead, err = time.ParseDuration(strings.TrimPrefix(words[0], "+"))
			if err != nil || f.Ahead.Abs() > maxTime {
				err = fmt.Errorf("%q is no time from -%s to %s, such as 500ms", words[0], maxTime, maxTime)
			}
			return err
		},
		print: func(f *Fault) string {
			if f.Ahead == 0 {
				return ok
			}
			return f.Ahead.String()
		},
	}
)

const (
	ok     = "ok"      // stands for no trouble
	all    = "all"     // stands for every store
	oneway = "one-way" // stands for links in one direction

	maxTime = 24 * time.Hour // the longest delay
	maxSlot = 1<<14 - 1      // the last slot of a Redis Cluster
)

// storesArg is an argument that names stores: "all", or numbers between commas.
func storesArg(name, form string, of func(*Fault) *[]int) arg {
	return arg{
		name: name, form: form,
		parse: func(f *Fault, words []string) error {
			if words[0] == all {
				return nil
			}
			set := of(f)
			for text := range strings.SplitSeq(words[0], ",") {
				n, err := number(text)
				if err != nil {
					return fmt.Errorf("%s %q: %w, or all", name, words[0], err)
				}
				*set = append(*set, n)
			}
			slices.Sort(*set)
			*set = slices.Compact(*set)
			if len(f.Stores) > 0 && slices.ContainsFunc(f.Others, func(n int) bool { return slices.Contains(f.Stores, n) }) {
				return fmt.Errorf("%s %q: a store stands on both sides", name, words[0])
			}
			return nil
		},
		print: func(f *Fault) string {
			if *of(f) == nil {
				return all
			}
			var numbers []string
			for _, n := range *of(f) {
				numbers = append(numbers, strconv.Itoa(n))
			}
			return strings.Join(numbers, ",")
		},
	}
}

// number reads the number of a store or of a region.
func number(text string) (int, error) {
	n, err := strconv.ParseInt(text, 10, 32)
	if err != nil || n < 1 {
		return 0, errors.New("want numbers from 1 on")
	}
	return int(n), nil
}

// numberArg is an argument that names one store or one region.
func numberArg(name, form string, of func(*Fault) *int) arg {
	return arg{
		name: name, form: form,
		parse: func(f *Fault, words []string) (err error) {
			if *of(f), err = number(words[0]); err != nil {
				err = fmt.Errorf("%s %q: %w", name, words[0], err)
			}
			return err
		},
		print: func(f *Fault) string { return strconv.Itoa(*of(f)) },
	}
}

// propertiesArg is an argument that sets fields of a struct: words for those of type bool, key=value for others, "ok"
// for none.
func propertiesArg(optional bool, of func(*Fault) any) arg {
	a := arg{name: "properties", rest: true, optional: optional, properties: of}
	var forms []string
	for _, p := range propertiesOf(of(new(Fault))) {
		forms = append(forms, p.form)
	}
	a.form = "PROPERTIES|ok"
	if optional {
		a.form = "[" + strings.Join(forms, "] [") + "]"
	}
	a.parse = func(f *Fault, words []string) error {
		if len(words) == 1 && words[0] == ok && !optional {
			return nil
		}
		var problems []error
		seen := make(map[string]bool)
		for _, word := range words {
			key, value, valued := strings.Cut(word, "=")
			all := propertiesOf(of(f))
			i := slices.IndexFunc(all, func(p property) bool { return p.key == key })
			switch {
			case i < 0:
				problems = append(problems, fmt.Errorf("unknown property %q: want %s", word, strings.Join(forms, ", ")))
			case seen[key]:
				problems = append(problems, fmt.Errorf("%s stands there twice", key))
			default:
				seen[key] = true
				if err := all[i].set(value, valued); err != nil {
					problems = append(problems, fmt.Errorf("%q: %w", word, err))
				}
			}
		}
		if whole, ok := of(f).(interface{ check() error }); ok {
			problems = append(problems, whole.check())
		}
		return errors.Join(problems...)
	}
	a.print = func(f *Fault) string {
		var words []string
		for _, p := range propertiesOf(of(f)) {
			if word := p.print(); word != "" {
				words = append(words, word)
			}
		}
		if len(words) == 0 && !optional {
			return ok
		}
		return strings.Join(words, " ")
	}
	return a
}

// oneWay lets the word "one-way" stand before the properties.
func oneWay(a arg) arg {
	parse, print := a.parse, a.print
	a.form = "[" + oneway + "] " + a.form
	a.parse = func(f *Fault, words []string) error {
		if len(words) > 0 && words[0] == oneway {
			f.OneWay, words = true, words[1:]
		}
		if len(words) == 0 {
			return errors.New("no properties")
		}
		return parse(f, words)
	}
	a.print = func(f *Fault) string {
		if f.OneWay {
			return oneway + " " + print(f)
		}
		return print(f)
	}
	return a
}

// property is a field of Power, Net, Drive or Client.
type property struct {
	key, form, help string
	max             string
	value           reflect.Value
}

func propertiesOf(of any) (all []property) {
	v := reflect.ValueOf(of).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		p := property{key: tag.Get("key"), help: tag.Get("help"), max: tag.Get("max"), value: v.Field(i)}
		switch p.form = p.key; v.Field(i).Interface().(type) {
		case time.Duration:
			p.form += "=TIME"
		case Portion:
			p.form += "=SHARE"
		case settings.Bytes:
			p.form += "=BYTES"
		case int:
			p.form += "=N"
		}
		all = append(all, p)
	}
	return all
}

// set reads a value into the field. valued says whether one was given.
func (p property) set(text string, valued bool) error {
	if p.value.Kind() == reflect.Bool {
		if valued {
			return errors.New("want no value")
		}
		p.value.SetBool(true)
		return nil
	}
	if !valued {
		return fmt.Errorf("want %s", p.form)
	}
	switch p.value.Interface().(type) {
	case time.Duration:
		d, err := time.ParseDuration(text)
		if err != nil || d < 0 || d > maxTime {
			return fmt.Errorf("want a time from 0s to %s", maxTime)
		}
		p.value.SetInt(int64(d))
	case Portion:
		s, err := ParsePortion(text)
		if err != nil {
			return err
		}
		p.value.SetFloat(float64(s))
	case settings.Bytes:
		b, err := settings.ParseBytes(text)
		if err != nil {
			return err
		}
		p.value.SetInt(int64(b))
	case int:
		most, err := strconv.Atoi(p.max)
		if err != nil {
			panic(err)
		}
		n, err := strconv.Atoi(text)
		if err != nil || n < 0 || n > most {
			return fmt.Errorf("want a number from 0 to %d", most)
		}
		p.value.SetInt(int64(n))
	}
	return nil
}

// print returns the word that set reads, "" for a zero value.
func (p property) print() string {
	switch x := p.value.Interface().(type) {
	case bool:
		if x {
			return p.key
		}
		return ""
	default:
		if p.value.IsZero() {
			return ""
		}
		return fmt.Sprintf("%s=%v", p.key, x)
	}
}

// Portion is a part of something, from 0 to 1. It prints as percent: 2.5%.
type Portion float64

// ParsePortion reads a share such as 2.5%.
func ParsePortion(text string) (Portion, error) {
	number, percent := strings.CutSuffix(text, "%")
	x, err := strconv.ParseFloat(number, 64)
	if err != nil || !percent || math.IsNaN(x) || x < 0 || x > 100 {
		return 0, fmt.Errorf("want a share from 0%% to 100%%")
	}
	return Portion(math.Round(x*1e6) / 1e8), nil
}

// String prints the share as percent, to a millionth of one.
func (s Portion) String() string {
	return strconv.FormatFloat(math.Round(float64(s)*1e8)/1e6, 'f', -1, 64) + "%"
}
