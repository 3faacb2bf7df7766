package report

import (
	"slices"

	"neokv.dev/results"
	"neokv.dev/results/compare"
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

func (s *sideBySide) heading() []string { return append([]string{"operation", "figure"}, s.Letters...) }

func (s *sideBySide) rows() (out [][]string) {
	for _, r := range s.Rows {
		out = append(out, append([]string{r.Op, r.What}, r.Values...))
	}
	return out
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
	// A row has a value of each result, and its text, which is empty where it is not known. Of a lower bound there is
	// no change.
	row := func(op, what string, of func(*results.OpStats) (v float64, bound bool, text string)) {
		r := comparedRow{Op: op, What: what}
		first, told, nonzero := 0., 0, false
		for _, g := range in {
			s := &g.Total
			if op != allOperations {
				s = operation([]results.GroupStats{g.GroupStats}, 0, op)
			}
			v, bound, text := 0., false, ""
			if s != nil {
				v, bound, text = of(s)
			}
			switch {
			case text == "":
				text = "-"
			case first != 0 && !bound:
				text += " (" + compare.Percent(v/first) + ")"
				told++
			default:
				if told++; told == 1 && !bound {
					first = v
				}
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
		count := func(what string, of func(*results.OpStats) float64) {
			row(op, what, func(s *results.OpStats) (float64, bool, string) {
				return of(s), false, results.Count(int64(of(s) + 0.5))
			})
		}
		count("ops/s", func(s *results.OpStats) float64 { return s.PerSecond })
		count("errors", func(s *results.OpStats) float64 { return float64(s.Errors) })
		count("unanswered", func(s *results.OpStats) float64 { return float64(s.Unanswered) })
		row(op, "rate reached", func(s *results.OpStats) (float64, bool, string) {
			if s.Response == nil || s.Due() == 0 {
				return 0, false, ""
			}
			share := 100 * float64(s.Count) / float64(s.Due())
			return share, false, results.FigureText(share, "%")
		})
		for _, kind := range []string{responseTime, serviceTime} {
			for _, p := range []struct {
				name string
				of   func(*results.Latency) results.Quantile
			}{
				{"p50", func(l *results.Latency) results.Quantile { return l.P50 }},
				{"p99", func(l *results.Latency) results.Quantile { return l.P99 }},
				{"p99.9", func(l *results.Latency) results.Quantile { return l.P999 }},
				{"max", func(l *results.Latency) results.Quantile { return l.Max }},
			} {
				row(op, kind+" "+p.name, func(s *results.OpStats) (float64, bool, string) {
					l := latency(s, kind)
					if !l.Known() {
						return 0, false, ""
					}
					return float64(p.of(l).US), p.of(l).AtLeast, p.of(l).String()
				})
			}
		}
		for i := begin + 1; i < len(out.Rows); i++ { // only the first row of an operation names it
			out.Rows[i].Op = ""
		}
	}
	return out
}
