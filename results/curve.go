package results

import (
	"fmt"
	"strings"
)

// lines prints a curve: a row for each rate that was tried, and what they say together.
func (c *Curve) lines() []string {
	rows := [][]string{{"rate", "ops/s", "errors", "p50", "p95", "p99", "p99.9", "max"}}
	for _, s := range c.Rows {
		rows = append(rows, append([]string{Count(int64(s.Rate + 0.5)), Count(int64(s.Total.PerSecond + 0.5)),
			Count(s.Total.Errors)}, latencies(s.Total.Latency())...))
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
	best := "highest rate that holds " + c.SLO + ": "
	switch {
	case c.Best > 0 && c.Confirmed:
		below = append(below, fmt.Sprintf("%s%s/s, confirmed by the run", best, Count(int64(c.Best+0.5))))
	case c.Best > 0:
		below = append(below, fmt.Sprintf("%s%s/s, not confirmed", best, Count(int64(c.Best+0.5))))
	}
	if below != nil {
		out = append(append(out, ""), below...)
	}
	return out
}
