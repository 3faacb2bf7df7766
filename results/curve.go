package results

import (
	"fmt"
	"slices"
	"strings"
)

// lines prints a curve: a row for each rate that was tried, and what they say together.
func (c *Curve) lines() []string {
	rows := [][]string{{"rate", "ops/s", "errors", "unanswered", "p50", "p95", "p99", "p99.9", "max"}}
	complete := true
	for _, s := range c.Rows {
		complete = complete && s.Total.Unanswered == 0
		rows = append(rows, append([]string{Count(int64(s.Rate + 0.5)), Count(int64(s.Total.PerSecond + 0.5)),
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
