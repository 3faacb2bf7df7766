package bench

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"neokv.dev/results"
)

// SLO is what response times and errors must hold for a rate to be good. It prints as it was typed, with the bound of
// errors that it has if none was.
type SLO struct {
	text  string
	terms []sloTerm
}

// sloTerm is one condition. It is about errors, operations without an answer among them, or about a percentile of
// response times; 100 is the maximum.
type sloTerm struct {
	text       string
	errors     bool
	percentile float64
	time       time.Duration
	share      float64 // of operations
	orEqual    bool
}

// SLOForms says which texts ParseSLO takes.
const SLOForms = "pN<TIME, max<TIME or errors<N%, also with <=, several joined by commas; " + usualErrors +
	" if errors are not named"

// usualErrors holds unless an SLO says something else of errors.
const usualErrors = "errors<1%"

// ParseSLO reads conditions such as `p99<5ms, max<1s, errors<0.1%`.
func ParseSLO(text string) (SLO, error) {
	s := SLO{text: strings.TrimSpace(text)}
	var wrong []error
	for part := range strings.SplitSeq(text, ",") {
		t, err := parseTerm(strings.ReplaceAll(part, " ", ""))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("slo %q: %w", strings.TrimSpace(part), err))
		}
		s.terms = append(s.terms, t)
	}
	if wrong != nil {
		return SLO{}, errors.Join(wrong...)
	}
	if !slices.ContainsFunc(s.terms, func(t sloTerm) bool { return t.errors }) {
		s.text += ", " + usualErrors
		t, err := parseTerm(usualErrors)
		if err != nil {
			panic(err)
		}
		s.terms = append(s.terms, t)
	}
	return s, nil
}

func parseTerm(text string) (t sloTerm, err error) {
	what, limit, ok := strings.Cut(text, "<")
	if !ok {
		return t, errors.New("want " + SLOForms)
	}
	t.text = text
	limit, t.orEqual = strings.CutPrefix(limit, "=")
	digits, isPercentile := strings.CutPrefix(what, "p")
	switch {
	case what == "errors":
		t.errors = true
		percent, ok := strings.CutSuffix(limit, "%")
		if t.share, err = strconv.ParseFloat(percent, 64); !ok || err != nil || !(t.share >= 0 && t.share <= 100) {
			return t, fmt.Errorf("%q, want a share of all operations, 0%% to 100%%", limit)
		}
		t.share /= 100
		return t, nil
	case what == "max":
		t.percentile = 100
	case isPercentile:
		if t.percentile, err = strconv.ParseFloat(digits, 64); err != nil || !(t.percentile > 0 && t.percentile < 100) {
			return t, fmt.Errorf("%q, want a percentile between p0 and p100, or max", what)
		}
	default:
		return t, errors.New("want " + SLOForms)
	}
	if t.time, err = time.ParseDuration(limit); err != nil || t.time <= 0 {
		return t, fmt.Errorf("%q, want a time of more than 0, such as 5ms", limit)
	}
	return t, nil
}

// String returns the text from which the SLO was read.
func (s SLO) String() string { return s.text }

// Shortest returns the shortest time that the SLO has, 0 if it has none.
func (s SLO) Shortest() (d time.Duration) {
	for _, t := range s.terms {
		if t.time > 0 && (d == 0 || t.time < d) {
			d = t.time
		}
	}
	return d
}

// broken says which conditions do not hold, "" if all do.
func (s SLO) broken(all *opTally) string {
	var out []string
	for _, t := range s.terms {
		if got, holds := t.check(all); !holds {
			out = append(out, fmt.Sprintf("%s, want %s", got, t.text))
		}
	}
	return strings.Join(out, "; ")
}

func (t sloTerm) check(all *opTally) (got string, holds bool) {
	order := 0
	if t.errors {
		answered, _ := all.service.Count()
		bad := all.errors + all.unanswered
		share := float64(bad) / float64(max(1, answered+bad))
		got, order = fmt.Sprintf("%.3g %% without a good answer", 100*share), cmp.Compare(share, t.share)
	} else {
		times := all.times()
		if times.Waited() == nil {
			return "no answer", false
		}
		got = times.Quantiles(t.percentile)[0].String()
		order = cmp.Compare(times.AtMost(t.percentile), t.time)
	}
	return got, order < 0 || order == 0 && t.orEqual
}

// held says whether the groups have held the SLO of the run in the segment that has just ended.
func (r *run) held() *results.SLO {
	var broken []string
	for _, g := range r.groups {
		if why := r.o.SLO.broken(g.total.all()); why != "" {
			broken = append(broken, r.named(g)+why)
		}
	}
	return &results.SLO{Text: r.o.SLO.String(), Broken: strings.Join(broken, "; ")}
}

// scarce warns of percentiles of the SLO that rest on a few operations.
func (r *run) scarce() (out []string) {
	name, want := r.o.SLO.needs()
	for _, g := range r.groups {
		answered, censored := g.total.all().times().Count()
		if due := answered + censored; due < int64(want) {
			out = append(out, fmt.Sprintf("%s%s of the SLO is that of %s; %d beyond it take %s", r.named(g), name,
				results.Plural(due, "operation"), beyond, results.Count(int64(want))))
		}
	}
	return out
}

// named returns the name of a group for the front of a line, "" if there is only one.
func (r *run) named(g *loadGroup) string {
	if len(r.groups) == 1 {
		return ""
	}
	return "group " + g.o.Name + ": "
}
