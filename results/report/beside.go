package report

import (
	"fmt"
	"slices"

	"neokv.dev/results"
)

// sideBySide compares the figures of a group in several results. It has those that at least two of them have.
type sideBySide struct {
	Letters []string
	Rows    []comparedRow
}

type comparedRow struct {
	Op, What string   // Op is empty where it is that of the row above
	Values   []string // with the change against the first of them
}

// beside returns the figures of a group side by side, nil for less than two results.
func beside(subjects []results.ResultFile, m matched) *sideBySide {
	var in []*results.GroupSummary
	out := &sideBySide{}
	var ops []string
	for i, s := range subjects {
		_, g := m.of(i, s.Result)
		if g == nil {
			continue
		}
		in = append(in, g)
		out.Letters = append(out.Letters, letter(i))
		for _, op := range g.Ops {
			if !slices.Contains(ops, op.Name) {
				ops = append(ops, op.Name)
			}
		}
	}
	if len(in) < 2 {
		return nil
	}
	row := func(op, what string, of func(*results.OpStats) (v float64, known bool), print func(float64) string) {
		r := comparedRow{Op: op, What: what}
		first, told, nonzero := 0., 0, false
		for _, g := range in {
			s := &g.Total
			if op != allOperations {
				s = operation([]results.GroupStats{g.GroupStats}, 0, op)
			}
			v, known := 0., false
			if s != nil {
				v, known = of(s)
			}
			text := "-"
			if known {
				text = print(v)
				told++
			}
			if known && first != 0 {
				text += fmt.Sprintf(" (%+.1f %%)", 100*(v/first-1))
			} else if known {
				first = v
			}
			nonzero = nonzero || v != 0
			r.Values = append(r.Values, text)
		}
		if told > 1 && nonzero {
			out.Rows = append(out.Rows, r)
		}
	}
	if len(ops) > 1 {
		ops = append(ops, allOperations)
	}
	for _, op := range ops {
		begin := len(out.Rows)
		count := func(v float64) string { return results.Count(int64(v + 0.5)) }
		micros := func(v float64) string { return results.Micros(int64(v)) }
		row(op, "ops/s", func(s *results.OpStats) (float64, bool) { return s.PerSecond, true }, count)
		row(op, "errors", func(s *results.OpStats) (float64, bool) { return float64(s.Errors), true }, count)
		for _, kind := range []string{responseTime, serviceTime} {
			for _, p := range []struct {
				name string
				of   func(*results.Latency) int64
			}{
				{"p50", func(l *results.Latency) int64 { return l.P50 }},
				{"p99", func(l *results.Latency) int64 { return l.P99 }},
				{"p99.9", func(l *results.Latency) int64 { return l.P999 }},
				{"max", func(l *results.Latency) int64 { return l.Max }},
			} {
				row(op, kind+" "+p.name, func(s *results.OpStats) (float64, bool) {
					l := latency(s, kind)
					if l == nil || l.Max == 0 {
						return 0, false
					}
					return float64(p.of(l)), true
				}, micros)
			}
		}
		for i := begin + 1; i < len(out.Rows); i++ { // only the first row of an operation names it
			out.Rows[i].Op = ""
		}
	}
	return out
}
