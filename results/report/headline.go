package report

import (
	"fmt"
	"slices"
	"strings"

	"neokv.dev/results"
	"neokv.dev/results/compare"
)

// Headline says in a sentence what the results say. One run does not tell a change from noise, and neither do two.
func Headline(subjects []results.ResultFile) string {
	if len(subjects) == 1 {
		return headlineOf(subjects[0].Result)
	}
	var differ []string
	for _, f := range results.Facts(subjects) {
		if f.Differ && f.OfLoad() {
			differ = append(differ, f.Name)
		}
	}
	if differ != nil {
		return "cannot tell: the results are of different loads, so their figures do not compare (" +
			strings.Join(differ, ", ") + ")"
	}
	var said []string
	for i := range subjects[1:] {
		if changes := changesOf(subjects[0].Result, subjects[i+1].Result); changes != nil {
			said = append(said, letter(i+1)+" against A: "+strings.Join(changes, ", "))
		}
	}
	return strings.Join(append(said, "each is one run, so a change may be noise"), "; ")
}

// changesOf returns the changes of a headline.
func changesOf(a, b *results.Result) (out []string) {
	before, now := a.Measured(), b.Measured()
	figures := now.Figures(&b.Header)
	for _, x := range before.Figures(&a.Header) {
		i := slices.IndexFunc(figures, func(f results.Figure) bool { return f.Name == x.Name })
		if i < 0 || !slices.Contains(compare.Primary(&a.Header), x.Name) || x.Value == 0 || x.AtLeast ||
			figures[i].AtLeast {
			continue
		}
		out = append(out, fmt.Sprintf("%s %s of %s", x.Name, compare.Percent(figures[i].Value/x.Value),
			results.FigureText(x.Value, x.Unit)))
	}
	return out
}

func headlineOf(r *results.Result) string {
	s := r.Measured()
	var said []string
	if c := s.Curve; c != nil {
		text := results.Plural(int64(len(c.Rows)), "rate") + " tried"
		if c.OfClients() {
			text = results.Plural(int64(len(c.Rows)), "number") + " of clients tried, " + c.Enough()
		}
		if c.Best > 0 {
			text += fmt.Sprintf(": %s ops/s is the highest that held %s", results.Count(int64(c.Best+0.5)), c.SLO)
			if !c.Confirmed {
				text += ", not confirmed"
			}
		}
		said = append(said, text)
	}
	if s.Seconds > 0 || s.Curve == nil {
		for _, g := range s.Groups {
			said = append(said, headlineOfGroup(&g, len(s.Groups) > 1))
		}
	}
	if said == nil || !s.Measured() {
		said = []string{"nothing was measured"}
	}
	text := strings.Join(said, "; ")
	switch {
	case s.Failure != "":
		return "failed: " + text
	case s.Interrupted:
		return "interrupted: " + text
	}
	return text
}

// headlineOfGroup names the figures of a group of clients.
func headlineOfGroup(g *results.GroupSummary, named bool) string {
	words := []string{results.Count(int64(g.Total.PerSecond+0.5)) + " ops/s"}
	if l := g.Total.Latency(); l.Known() {
		kind := serviceTime
		if g.Total.Response != nil {
			kind = responseTime
		}
		words = append(words, fmt.Sprintf("%s time p50 %s, p99 %s", kind, l.P50, l.P99))
	}
	for _, x := range []struct {
		n    int64
		what string
	}{{g.Total.Errors, "failed"}, {g.Total.Unanswered, "unanswered"}} {
		if x.n > 0 {
			words = append(words, results.Count(x.n)+" "+x.what)
		}
	}
	if named {
		words[0] = g.Name + " " + words[0]
	}
	return strings.Join(words, ", ")
}

// conditions returns the conditions of all results, those in which they differ with the letter of each.
func conditions(subjects []results.ResultFile) (out []results.NamedValue) {
	for i, c := range subjects[0].Header.Conditions() {
		var each []string
		same := true
		for k, s := range subjects {
			value := s.Header.Conditions()[i].Value
			same = same && value == c.Value
			each = append(each, letter(k)+" "+value)
		}
		if !same {
			c.Value = strings.Join(each, "; ")
		}
		if c.Value != "" {
			out = append(out, c)
		}
	}
	return out
}
