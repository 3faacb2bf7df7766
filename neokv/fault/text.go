package fault

import (
	"cmp"
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
	optional bool
	word     string // the only one that it takes; "" for any
	rest     bool   // it takes all words that are left
	parse    func(f *Fault, words []string) error
	print    func(f *Fault) string // "" for none

	choices string   // what there is to choose from, in a help
	among   []string // the choices, a line each
}

// The arguments of verbs.
var (
	stores = storesArg("stores", "STORES", func(f *Fault) *[]int { return &f.Stores })
	others = storesArg("other stores", "OTHERS", func(f *Fault) *[]int { return &f.Others })
	region = numberArg("region", "REGION", func(f *Fault) *int { return &f.Region })
	target = numberArg("store", "STORE", func(f *Fault) *int { return &f.To })
	goal   = numberArg("store", "TO", func(f *Fault) *int { return &f.To })
	source = numberArg("store", "FROM", func(f *Fault) *int { return &f.From })
	loser  = numberArg("store", "STORE", func(f *Fault) *int { return &f.From })
	slot   = arg{
		form: "[SLOT]", optional: true, rest: true,
		parse: func(f *Fault, words []string) (err error) {
			text := strings.Join(words, " ")
			if f.Slot, err = number(text); err != nil || f.Slot > maxSlot {
				err = fmt.Errorf("%q is no slot from 1 to %d", text, maxSlot)
			}
			return err
		},
		print: func(f *Fault) string { return strings.TrimPrefix(strconv.Itoa(f.Slot), "0") },
	}
	slots = arg{
		name: "slots", form: "SLOTS",
		parse: func(f *Fault, words []string) (err error) {
			first, last, isRange := strings.Cut(words[0], "-")
			if !isRange {
				last = first
			}
			m := &f.Move
			var wrong error
			m.First, err = strconv.Atoi(first)
			m.Last, wrong = strconv.Atoi(last)
			if err = errors.Join(err, wrong); err != nil || m.First < 0 || m.Last < m.First || m.Last > maxSlot {
				err = fmt.Errorf("slots %q: want a slot from 0 to %d, or two as in 100-199", words[0], maxSlot)
				m.First, m.Last = 0, 0 // so that nobody complains again
			}
			return err
		},
		print: func(f *Fault) string {
			if f.Move.First == f.Move.Last {
				return strconv.Itoa(f.Move.First)
			}
			return fmt.Sprintf("%d-%d", f.Move.First, f.Move.Last)
		},
	}
	migration = arg{
		name: "stores", form: "FROM TO [for TIME]|ok", rest: true,
		parse: func(f *Fault, words []string) (err error) {
			m := &f.Move
			switch {
			case len(words) == 1 && words[0] == ok:
				return nil
			case len(words) != 2 && len(words) != 4 || len(words) == 4 && words[2] != "for":
				return fmt.Errorf("%q: want FROM TO, FROM TO for TIME, or ok", strings.Join(words, " "))
			}
			var wrong [3]error
			m.From, wrong[0] = number(words[0])
			m.To, wrong[1] = number(words[1])
			if len(words) == 4 {
				m.For, err = time.ParseDuration(words[3])
				if err != nil || m.For < time.Millisecond {
					wrong[2] = fmt.Errorf("%q: want whole milliseconds from 1ms to %s, such as 10s", words[3], maxTime)
				}
			}
			if err = errors.Join(wrong[:]...); err == nil && len(words) > 1 {
				err = m.check()
			}
			return err
		},
		print: func(f *Fault) string {
			m := &f.Move
			switch {
			case m.From == 0:
				return ok
			case m.For == 0:
				return fmt.Sprintf("%d %d", m.From, m.To)
			}
			return fmt.Sprintf("%d %d for %s", m.From, m.To, m.For)
		},
	}
	oneWay = arg{
		form: "[one-way]", optional: true, word: "one-way",
		parse: func(f *Fault, _ []string) error { f.OneWay = true; return nil },
		print: func(f *Fault) string {
			if f.OneWay {
				return "one-way"
			}
			return ""
		},
	}
	cancel = arg{
		form: "[cancel]", optional: true, word: "cancel",
		parse: func(f *Fault, _ []string) error { f.Cancel = true; return nil },
		print: func(f *Fault) string {
			if f.Cancel {
				return "cancel"
			}
			return ""
		},
	}
	power  = propertiesArg(true, func(f *Fault) any { return &f.Kill })
	net    = propertiesArg(false, func(f *Fault) any { return &f.Link })
	drive  = propertiesArg(false, func(f *Fault) any { return &f.Disk })
	client = propertiesArg(false, func(f *Fault) any { return &f.Client })
	matrix = arg{
		name: "matrix and no places", form: "MATRIX|PLACES|ok", rest: true, choices: "Matrices and cloud regions",
		among: matrixChoices(),
		parse: func(f *Fault, words []string) error {
			if f.Matrix = strings.Join(words, " "); f.Matrix == ok {
				f.Matrix = ""
			}
			_, err := MatrixDelay(f.Matrix, 1, 2)
			return err
		},
		print: func(f *Fault) string { return cmp.Or(f.Matrix, ok) },
	}
	command = arg{
		name: "command", form: "COMMAND|all",
		parse: func(f *Fault, words []string) error {
			if f.Refuse.Command = strings.ToUpper(words[0]); words[0] == all {
				f.Refuse.Command = ""
			}
			return nil
		},
		print: func(f *Fault) string { return cmp.Or(f.Refuse.Command, all) },
	}
	refusal = arg{
		name: "share and error", form: "SHARE ERROR|ok", rest: true,
		parse: func(f *Fault, words []string) (err error) {
			if len(words) == 1 && words[0] == ok {
				return nil
			}
			f.Refuse.Share, err = ParsePortion(words[0])
			if err == nil && f.Refuse.Share == 0 {
				err = errors.New("want a share above 0%, or ok")
			}
			if err != nil {
				return fmt.Errorf("%q: %w", words[0], err)
			}
			f.Refuse.Error = strings.Join(words[1:], " ")
			return f.Refuse.check()
		},
		print: func(f *Fault) string {
			if f.Refuse.Share == 0 {
				return ok
			}
			return f.Refuse.Share.String() + " " + f.Refuse.Error
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
	ok  = "ok"  // stands for no trouble
	all = "all" // stands for every store

	maxTime   = 24 * time.Hour // the longest delay
	maxSlot   = 1<<14 - 1      // the last slot of a Redis Cluster
	maxNumber = 1_000_000      // of a property
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
			return strings.Trim(strings.ReplaceAll(fmt.Sprint(*of(f)), " ", ","), "[]")
		},
	}
}

// number reads the number of a store, a region or a slot.
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
	a := arg{name: "properties", form: "PROPERTIES|ok", rest: true, optional: optional, choices: "Properties"}
	var forms []string
	for _, p := range propertiesOf(of(new(Fault))) {
		forms = append(forms, p.form)
		a.among = append(a.among, fmt.Sprintf("%-20s %s", p.form, p.help))
	}
	if optional {
		a.form = "[" + strings.Join(forms, "] [") + "]"
	}
	a.parse = func(f *Fault, words []string) error {
		if len(words) == 1 && words[0] == ok && !optional {
			return nil
		}
		var problems []error
		known := propertiesOf(of(f))
		for _, word := range words {
			key, value, valued := strings.Cut(word, "=")
			i := slices.IndexFunc(known, func(p property) bool { return p.key == key })
			switch {
			case i < 0:
				problems = append(problems, fmt.Errorf("unknown property %q: want %s", word, strings.Join(forms, ", ")))
			case known[i].given:
				problems = append(problems, fmt.Errorf("%s stands there twice", key))
			default:
				known[i].given = true
				if err := known[i].set(value, valued); err != nil {
					problems = append(problems, fmt.Errorf("%q: %w", word, err))
				}
			}
		}
		if n, ok := of(f).(*Net); ok {
			problems = append(problems, n.check())
		}
		return errors.Join(problems...)
	}
	a.print = func(f *Fault) string {
		var words []string
		for _, p := range propertiesOf(of(f)) {
			switch {
			case p.value.IsZero():
			case p.value.Kind() == reflect.Bool:
				words = append(words, p.key)
			default:
				words = append(words, fmt.Sprintf("%s=%v", p.key, p.value))
			}
		}
		if len(words) == 0 && !optional {
			return ok
		}
		return strings.Join(words, " ")
	}
	return a
}

// property is a field of Power, Net, Drive or Client. Its form is the key, or the key and what it takes: "loss=SHARE".
type property struct {
	key, form, help string
	value           reflect.Value
	given           bool // it stands in the text
}

func propertiesOf(of any) (all []property) {
	v := reflect.ValueOf(of).Elem()
	for i := range v.NumField() {
		tag := v.Type().Field(i).Tag
		key, _, _ := strings.Cut(tag.Get("form"), "=")
		all = append(all, property{key: key, form: tag.Get("form"), help: tag.Get("help"), value: v.Field(i)})
	}
	return all
}

// set reads a value into the field. valued says whether one was given.
func (p property) set(text string, valued bool) (err error) {
	switch wants := p.form != p.key; {
	case valued && !wants:
		return errors.New("want no value")
	case wants && !valued:
		return fmt.Errorf("want %s", p.form)
	}
	switch x := p.value.Addr().Interface().(type) {
	case *bool:
		*x = true
	case *time.Duration:
		*x, err = span(text)
	case *Portion:
		*x, err = ParsePortion(text)
	case *settings.Bytes:
		*x, err = settings.ParseBytes(text)
	case *int:
		if *x, err = strconv.Atoi(text); err != nil || *x < 0 || *x > maxNumber {
			err = fmt.Errorf("want a number from 0 to %d", maxNumber)
		}
	}
	return err
}

// span reads how long something takes or lasts.
func span(text string) (time.Duration, error) {
	d, err := time.ParseDuration(text)
	if err != nil || d < 0 || d > maxTime {
		err = fmt.Errorf("want a time from 0s to %s", maxTime)
	}
	return d, err
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
