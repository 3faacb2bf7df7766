package results

import (
	"fmt"
	"strings"
)

// Figure is one figure of a result, to compare with that of another result.
type Figure struct {
	Name   string     `json:"name"`
	Unit   string     `json:"unit"`
	Kind   FigureKind `json:"kind"`
	Better Direction  `json:"better,omitempty"`
	Value  float64    `json:"value"`
}

// FigureKind says what a figure depends on.
type FigureKind string

const (
	Timed   FigureKind = "timed"   // by a clock: of this machine at this time
	CPUTime FigureKind = "cpu"     // CPU time per operation: of this machine, less so of the time
	Counted FigureKind = "counted" // work per operation by the target's own account, whatever the machine
)

// Direction says which way a figure is better.
type Direction string

const (
	Higher Direction = "higher"
	Lower  Direction = "lower"
)

// Figures returns the figures of a summary, in the order in which a table has them. Of an open loop latencies are
// response times, and there is no throughput, since the plan says what it is.
func (s *Summary) Figures(h *Header) (out []Figure) {
	add := func(name, unit string, kind FigureKind, better Direction, value float64) {
		out = append(out, Figure{name, unit, kind, better, value})
	}
	ops := int64(0)
	for i, g := range s.Groups {
		ops += g.Total.Count
		prefix := ""
		if len(s.Groups) > 1 {
			prefix = g.Name + " "
		}
		open := i < len(h.Groups) && h.Groups[i].OpenLoop()
		if !open {
			add(prefix+"throughput", "ops/s", Timed, Higher, g.Total.PerSecond)
		}
		tails := func(name string, op *OpStats) {
			l := &op.Service
			if open && op.Response != nil {
				l = op.Response
			}
			if l.Max == 0 {
				return
			}
			add(prefix+name+"p50", "us", Timed, Lower, float64(l.P50))
			if name == "" {
				add(prefix+name+"p95", "us", Timed, Lower, float64(l.P95))
			}
			add(prefix+name+"p99", "us", Timed, Lower, float64(l.P99))
			if name == "" {
				add(prefix+name+"p99.9", "us", Timed, Lower, float64(l.P999))
			}
		}
		tails("", &g.Total)
		if len(g.Ops) > 1 && len(g.Ops) <= maxOpFigures {
			for _, op := range g.Ops {
				tails(op.Name+" ", &op)
			}
		}
		if all := g.Total.Count + g.Total.Errors; all > 0 {
			add(prefix+"errors", "/op", Counted, Lower, float64(g.Total.Errors)/float64(all))
		}
	}
	return append(out, s.Work.Figures(ops)...)
}

// maxOpFigures is how many operations of a group may have latencies of their own beside those of the group.
const maxOpFigures = 6

// Figures returns the work per operation.
func (w Work) Figures(ops int64) (out []Figure) {
	if ops == 0 {
		return nil
	}
	for _, cost := range operationCosts {
		n, known := w[cost.counter]
		if !known {
			continue
		}
		f := Figure{Name: cost.name, Unit: "/op", Kind: Counted, Better: cost.better, Value: float64(n) / float64(ops)}
		switch {
		case cost.counter == "process_cpu_us":
			f.Unit, f.Kind = "us/op", CPUTime
		case strings.HasSuffix(cost.counter, "_bytes"):
			f.Unit = "B/op"
		}
		out = append(out, f)
	}
	return out
}

// FigureText prints a value in a unit of figures, with three digits.
func FigureText(value float64, unit string) string {
	switch unit {
	case "ops/s":
		return Count(int64(value+0.5)) + " ops/s"
	case "us":
		return Micros(int64(value + 0.5))
	case "us/op":
		return figure(value) + " us"
	case "B/op":
		return figure(value) + " B"
	case "B":
		return fmt.Sprintf("%.0f MiB", value/(1<<20))
	}
	return figure(value)
}
