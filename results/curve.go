package results

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// OfClients reports whether the curve has numbers of clients in place of rates.
func (c *Curve) OfClients() bool { return len(c.Rows) > 0 && c.Rows[0].Clients > 0 }

// lines prints a curve: a row for each rate or number of clients that was tried, and what they say together.
func (c *Curve) lines() []string {
	rows := [][]string{{"rate", "ops/s", "errors", "unanswered", "p50", "p95", "p99", "p99.9", "max"}}
	if c.OfClients() {
		rows[0][0] = "clients"
	}
	complete := true
	for _, s := range c.Rows {
		complete = complete && s.Total.Unanswered == 0
		tried := int64(s.Rate + 0.5)
		if c.OfClients() {
			tried = int64(s.Clients)
		}
		rows = append(rows, append([]string{Count(tried), Count(int64(s.Total.PerSecond + 0.5)),
			Count(s.Total.Errors), Count(s.Total.Unanswered)}, latencies(s.Total.Latency())...))
	}
	for i := range rows {
		if complete {
			rows[i] = slices.Delete(rows[i], 3, 4) // a column of zeros, for which a terminal has no room
		}
	}
	out := Align(rows, 1)
	for i, s := range c.Rows {
		if s.Why != "" {
			out[i+1] += "  " + s.Why
		}
	}
	if c.OfClients() {
		return append(out, "", c.Enough())
	}
	var below, marks []string
	for _, m := range []struct {
		what string
		rate float64
	}{{"lags behind its schedule", c.Lags}, {"breaks " + c.SLO, c.Breaks}, {"saturates", c.Saturates}} {
		if m.rate > 0 {
			marks = append(marks, fmt.Sprintf("%s from %s/s", m.what, Count(int64(m.rate+0.5))))
		}
	}
	if marks != nil {
		below = append(below, "curve: "+strings.Join(marks, ", "))
	}
	below = append(below, c.found()...)
	if below != nil {
		out = append(append(out, ""), below...)
	}
	return out
}

// Enough says which number of clients had the most operations per second, and how many are enough for nearly as many.
func (c *Curve) Enough() string {
	most := slices.MaxFunc(c.Rows, func(a, b Step) int { return cmp.Compare(a.Total.PerSecond, b.Total.PerSecond) })
	enough := most
	for _, s := range c.Rows {
		if s.Clients < enough.Clients && s.Total.PerSecond >= 0.95*most.Total.PerSecond {
			enough = s
		}
	}
	text := fmt.Sprintf("most: %s/s with %s", Count(int64(most.Total.PerSecond+0.5)),
		Plural(int64(most.Clients), "client"))
	if enough.Clients < most.Clients {
		text += fmt.Sprintf("; %d are enough for 95 %% of that", enough.Clients)
	}
	broken := 0 // from which number on the SLO does not hold
	for _, s := range slices.SortedFunc(slices.Values(c.Rows), func(a, b Step) int {
		return cmp.Compare(a.Clients, b.Clients)
	}) {
		switch {
		case s.Why == "":
			broken = 0
		case broken == 0:
			broken = s.Clients
		}
	}
	if broken > 0 {
		text += fmt.Sprintf("; %s does not hold from %s on", c.SLO, Plural(int64(broken), "client"))
	}
	return text
}

// found says what a search for the highest rate has found.
func (c *Curve) found() (lines []string) {
	perSecond := func(rate float64) string { return Count(int64(rate+0.5)) + "/s" }
	if c.Best > 0 {
		text := fmt.Sprintf("highest rate that holds %s: %s", c.SLO, perSecond(c.Best))
		if c.Confirmed {
			text += ", confirmed by the run"
		} else {
			text += ", not confirmed"
		}
		if c.Above > 0 {
			text += fmt.Sprintf("; the limit lies between %s and %s", perSecond(c.Best), perSecond(c.Above))
		}
		lines = append(lines, text)
	} else if c.Stopped != "" {
		lines = append(lines, "no rate that was tried holds "+c.SLO)
	}
	switch {
	case c.Stopped == "":
	case c.Above > 0:
		lines = append(lines, fmt.Sprintf("what does not hold at %s: %s", perSecond(c.Above), c.Stopped))
	default:
		lines = append(lines, "what ended the search: "+c.Stopped)
	}
	return lines
}
