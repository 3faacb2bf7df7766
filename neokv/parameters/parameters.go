// Package parameters lists the parameters that CONFIG GET and CONFIG SET of redis-server 7.0.15 know: names, values,
// defaults, and what each does here. Package server reads the list and gives those that work their functions;
// docs/parameters.md is generated from it. A test compares it with a real redis-server.
package parameters

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Parameter is one parameter, which may have two names.
type Parameter struct {
	Name, Also string
	Values     Values
	Default    string // redis-server's
	Here       string // the value here, where that is never the default
	Effect     Effect
	// Note says more about the effect: of a parameter that works the setting behind it, of one that is refused why.
	Note   string
	Secret bool // only who asks for it by CONFIG GET may see the value
}

// Effect says what CONFIG SET does.
type Effect string

const (
	Works     Effect = "works"     // as in Redis
	Kept      Effect = "kept"      // CONFIG GET gives the value back, and nothing else changes
	Refused   Effect = "refused"   // any value but the one that holds here: nobody shall believe that another one did
	Immutable Effect = "immutable" // as in Redis
	Protected Effect = "protected" // as in Redis with its default settings
)

// Find returns the parameter that has a name in lower case, nil if none has.
func Find(name string) *Parameter {
	for i := range All {
		if p := &All[i]; p.Name == name || p.Also == name && name != "" {
			return p
		}
	}
	return nil
}

// Value returns the value that holds as long as nobody sets another one.
func (p *Parameter) Value() string {
	if p.Here != "" {
		return p.Here
	}
	return p.Default
}

// Values says which values a parameter may have, as redis-server checks them. The zero value is that of parameters that
// cannot be set.
type Values struct {
	kind      valueKind
	low, high int64
	// least and most are the nearest values that Redis takes in place of those beyond; most is 0 where it takes all.
	least, most int64
	words       []string
	check       func(text string) (value, problem string)
}

type valueKind byte

const (
	isNone valueKind = iota
	isYesNo
	isOneOf
	isSomeOf // words, apart by spaces; the first is that of none
	isNumber
	isSize
	isAnySize // up to 64 bits
	isSizeOrPercent
	isText
)

var (
	yesNo         = Values{kind: isYesNo}
	anySize       = Values{kind: isAnySize}
	sizeOrPercent = Values{kind: isSizeOrPercent}
	text          = Values{kind: isText}
)

func oneOf(words string) Values  { return Values{kind: isOneOf, words: strings.Fields(words)} }
func someOf(words string) Values { return Values{kind: isSomeOf, words: strings.Fields(words)} }

func number(low, high int64) Values { return Values{kind: isNumber, low: low, high: high} }
func size(low, high int64) Values   { return Values{kind: isSize, low: low, high: high} }

func checked(check func(text string) (value, problem string)) Values {
	return Values{kind: isText, check: check}
}

func (v Values) capped(least, most int64) Values {
	v.least, v.most = least, most
	return v
}

// Parse returns a value in the form in which CONFIG GET gives it back, or else what is wrong with it, in Redis's words.
func (v *Values) Parse(text string) (value, problem string) {
	switch v.kind {
	case isYesNo:
		if value = strings.ToLower(text); value != "yes" && value != "no" {
			return "", "argument must be 'yes' or 'no'"
		}
		return value, ""
	case isOneOf, isSomeOf:
		return v.parseWords(text)
	case isNumber:
		n, ok := parseInt(text)
		return v.bounded(n, ok, "argument couldn't be parsed into an integer")
	case isSize:
		n, ok := ParseSize(text)
		return v.bounded(n, ok, notSize)
	case isAnySize:
		n, ok := ParseSize(text)
		if !ok {
			return "", notSize
		}
		return strconv.FormatUint(uint64(n), 10), ""
	case isSizeOrPercent:
		n, percent, problem := ParseSizeOrPercent(text)
		if percent > 0 {
			return strconv.FormatInt(percent, 10) + "%", problem
		}
		return strconv.FormatInt(n, 10), problem
	}
	if v.check != nil {
		return v.check(text)
	}
	return text, ""
}

func (v *Values) parseWords(text string) (value, problem string) {
	given := []string{text}
	if v.kind == isSomeOf {
		given = strings.Fields(text)
	}
	set := map[string]bool{}
	for _, g := range given {
		i := slices.IndexFunc(v.words, func(w string) bool { return strings.EqualFold(w, g) })
		if i < 0 {
			given = nil
			break
		}
		set[v.words[i]] = true
	}
	if len(given) == 0 {
		return "", "argument(s) must be one of the following: " + strings.Join(v.words, ", ")
	}
	if len(set) > 1 {
		delete(set, v.words[0])
	}
	var kept []string
	for _, w := range v.words {
		if set[w] {
			kept = append(kept, w)
		}
	}
	return strings.Join(kept, " "), ""
}

func (v *Values) bounded(n int64, ok bool, none string) (value, problem string) {
	if problem := OutOfRange(n, v.low, v.high, ok, none); problem != "" {
		return "", problem
	}
	if v.most != 0 {
		n = min(max(n, v.least), v.most)
	}
	return strconv.FormatInt(n, 10), ""
}

// OutOfRange returns what is wrong with a number, none if ok is false.
func OutOfRange(n, low, high int64, ok bool, none string) (problem string) {
	switch {
	case !ok:
		return none
	case n < low || n > high:
		return fmt.Sprintf("argument must be between %d and %d inclusive", low, high)
	}
	return ""
}

// parseInt parses a number as Redis's string2ll does: no sign that is not needed, no zero in front.
func parseInt(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

const notSize = "argument must be a memory value"

// ParseSize parses a size as Redis's memtoull does: kb is 1024, k is 1000, and so on. A size that is too large for any
// is -1, which all bounds exclude.
func ParseSize(text string) (bytes int64, ok bool) {
	digits := strings.TrimRight(strings.ToLower(text), "bkmg")
	unit, ok := map[string]int64{
		"": 1, "b": 1,
		"k": 1000, "m": 1000 * 1000, "g": 1000 * 1000 * 1000,
		"kb": 1 << 10, "mb": 1 << 20, "gb": 1 << 30,
	}[strings.ToLower(text)[len(digits):]]
	if digits == "" { // Redis reads a unit without digits so
		digits = "0"
	}
	n, err := strconv.ParseUint(digits, 10, 64)
	switch {
	case !ok || err != nil && !errors.Is(err, strconv.ErrRange):
		return 0, false
	case n > math.MaxInt64/uint64(unit):
		return -1, true
	}
	return int64(n) * unit, true
}

// ParseSizeOrPercent parses a size, or a percentage.
func ParseSizeOrPercent(text string) (bytes, percent int64, problem string) {
	const neither = "argument must be a memory or percent value"
	if digits, ok := strings.CutSuffix(text, "%"); ok {
		percent, ok = parseInt(digits)
		switch {
		case !ok || percent < 0:
			return 0, 0, neither
		case percent > 100:
			return 0, 0, "percentage argument must be less or equal to 100"
		}
		return 0, percent, ""
	}
	bytes, ok := ParseSize(text)
	return bytes, 0, OutOfRange(bytes, 0, math.MaxInt64, ok, neither)
}

// oomScores checks oom-score-adj-values.
func oomScores(text string) (value, problem string) {
	words := strings.Fields(text)
	if len(words) != 3 {
		return "", "wrong number of arguments"
	}
	for _, w := range words {
		if n, err := strconv.Atoi(w); err != nil || n < -2000 || n > 2000 {
			return "", "Invalid oom-score-adj-values, elements must be between -2000 and 2000."
		}
	}
	return strings.Join(words, " "), ""
}

// titleTemplate checks proc-title-template.
func titleTemplate(text string) (value, problem string) {
	rest := strings.ReplaceAll(text, "{title}", "")
	for _, name := range strings.Fields("listen-addr server-mode port tls-port unixsocket config-file") {
		rest = strings.ReplaceAll(rest, "{"+name+"}", "x")
	}
	if strings.TrimSpace(rest) == "" || strings.ContainsAny(rest, "{}") {
		return "", "template format is invalid or contains unknown variables"
	}
	return text, ""
}

// hostname checks cluster-announce-hostname.
func hostname(text string) (value, problem string) {
	if len(text) >= 256 {
		return "", "Hostnames must be less than 256 characters"
	}
	for _, r := range text {
		if r != '-' && r != '.' && (r < '0' || r > '9') && (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') {
			return "", "Hostnames may only contain alphanumeric characters, hyphens or dots"
		}
	}
	return text, ""
}

// savePoints checks save: seconds and changes in turn.
func savePoints(text string) (value, problem string) {
	words := strings.Fields(text)
	for i, w := range words {
		n, ok := parseInt(w)
		if len(words)%2 != 0 || !ok || n < 0 || n == 0 && i%2 == 0 {
			return "", "Invalid save parameters"
		}
	}
	return strings.Join(words, " "), ""
}

// percentiles checks latency-tracking-info-percentiles.
func percentiles(text string) (value, problem string) {
	words := strings.Fields(text)
	for _, w := range words {
		f, err := strconv.ParseFloat(w, 64)
		switch {
		case err != nil:
			return "", "Invalid latency-tracking-info-percentiles parameters"
		case !(f >= 0 && f <= 100):
			return "", "latency-tracking-info-percentiles parameters should sit between [0.0,100.0]"
		}
	}
	return strings.Join(words, " "), ""
}

// String says which values there are, for documents.
func (v *Values) String() string {
	high := func(what string) string {
		if v.high == math.MaxInt64 {
			return fmt.Sprintf("%s from %d", what, v.low)
		}
		return fmt.Sprintf("%s from %d to %d", what, v.low, v.high)
	}
	switch v.kind {
	case isNone:
		return ""
	case isYesNo:
		return "yes, no"
	case isOneOf:
		return strings.Join(v.words, ", ")
	case isSomeOf:
		return "some of " + strings.Join(v.words, ", ")
	case isNumber:
		return high("number")
	case isSize:
		return high("size")
	case isAnySize:
		return "size"
	case isSizeOrPercent:
		return "size or percentage"
	}
	return "text"
}
