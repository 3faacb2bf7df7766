package workloads

import (
	"fmt"
	"strconv"
	"strings"
)

// sizes is a distribution of whole numbers: of bytes, elements or seconds. It has no state: the number that a draw
// stands for, such as the size of a value, can be found again.
type sizes interface {
	at(u float64) int // the number at a quantile, 0 <= u < 1
	max() int
	String() string // as it was typed
}

type fixedSize int

func (s fixedSize) at(float64) int { return int(s) }
func (s fixedSize) max() int       { return int(s) }
func (s fixedSize) String() string { return strconv.Itoa(int(s)) }

// spans is a list of ranges, each with the quantile at which it ends. Within a range all numbers are as likely.
type spans struct {
	list []sizeSpan
	text string
}

type sizeSpan struct {
	low, high int
	upTo      float64
}

func (s *spans) at(u float64) int {
	from := 0.0
	for _, x := range s.list {
		if u < x.upTo || x.upTo == 1 {
			n := float64(x.high-x.low) + 1
			return min(x.high, x.low+int((u-from)/(x.upTo-from)*n))
		}
		from = x.upTo
	}
	return s.list[len(s.list)-1].high
}

func (s *spans) max() int {
	most := 0
	for _, x := range s.list {
		most = max(most, x.high)
	}
	return most
}

func (s *spans) String() string { return s.text }

// zipfianSizes has small numbers more often: low+i with a chance proportional to 1/(i+1)^theta.
type zipfianSizes struct {
	low, high int
	zipf      *Zipfian
	text      string
}

func (s *zipfianSizes) at(u float64) int { return s.low + int(s.zipf.at(u)) }
func (s *zipfianSizes) max() int         { return s.high }
func (s *zipfianSizes) String() string   { return s.text }

const sizesForms = "want N, `uniform A-B`, `zipfian A-B [THETA]`, `list A:WEIGHT B:WEIGHT ...` or " +
	"`histogram A-B:WEIGHT C-D:WEIGHT ...`"

// parseSizes parses a distribution of numbers from low to high.
func parseSizes(text string, low, high int) (sizes, error) {
	words := strings.Fields(text)
	bad := func(format string, args ...any) (sizes, error) {
		return nil, fmt.Errorf("%q: "+format, append([]any{text}, args...)...)
	}
	number := func(s string) (int, bool) {
		n, ok := parseSize(s)
		return n, ok && n >= low && n <= high
	}
	span := func(s string) (a, b int, ok bool) {
		from, to, two := strings.Cut(s, "-")
		a, ok1 := number(from)
		b, ok2 := number(to)
		return a, b, two && ok1 && ok2 && a <= b
	}
	if len(words) == 0 {
		return bad(sizesForms)
	}
	switch kind, words := words[0], words[1:]; kind {
	case "uniform", "zipfian":
		if len(words) == 0 || len(words) > 2 || len(words) == 2 && kind == "uniform" {
			return bad(sizesForms)
		}
		a, b, ok := span(words[0])
		if !ok {
			return bad("range %s, want A-B with %d <= A <= B <= %d", words[0], low, high)
		}
		if kind == "uniform" {
			return &spans{[]sizeSpan{{a, b, 1}}, text}, nil
		}
		theta := Theta
		if len(words) == 2 {
			var err error
			if theta, err = strconv.ParseFloat(words[1], 64); err != nil || !(theta > 0 && theta < 1) {
				return bad("exponent %s, want more than 0 and less than 1", words[1])
			}
		}
		return &zipfianSizes{a, b, NewZipfian(uint64(b-a)+1, theta), text}, nil
	case "list", "histogram":
		s := &spans{text: text}
		sum := 0.0
		for _, w := range words {
			item, weight, two := strings.Cut(w, ":")
			x, err := strconv.ParseFloat(weight, 64)
			if !two || err != nil || !(x > 0 && x <= 1e12) {
				return bad("%s: want a number or a range, a colon, and a weight above 0", w)
			}
			a, b, ok := span(item)
			if kind == "list" {
				a, ok = number(item)
				b = a
			}
			if !ok {
				return bad("%s: want numbers from %d to %d", item, low, high)
			}
			sum += x
			s.list = append(s.list, sizeSpan{a, b, sum})
		}
		if len(s.list) == 0 || len(s.list) > 1000 {
			return bad("%d items, want 1 to 1000", len(s.list))
		}
		for i := range s.list {
			s.list[i].upTo /= sum
		}
		s.list[len(s.list)-1].upTo = 1
		return s, nil
	}
	if n, ok := number(words[0]); ok && len(words) == 1 {
		return fixedSize(n), nil
	}
	if _, err := strconv.ParseFloat(words[0], 64); err == nil && len(words) == 1 {
		return bad("want %d to %d", low, high)
	}
	return bad(sizesForms)
}

// parseSize parses a whole number, which may have the unit B, KiB or MiB.
func parseSize(s string) (int, bool) {
	unit := 1
	for _, u := range []struct {
		name  string
		bytes int
	}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"B", 1}} {
		if text, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = text, u.bytes
			break
		}
	}
	n, err := strconv.ParseInt(s, 10, 40)
	return int(n) * unit, err == nil && n >= 0
}
