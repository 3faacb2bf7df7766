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
	// AtLeast says that the true value is not known, and no less: see Quantile.
	AtLeast bool `json:"at_least,omitempty"`
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
// response times, with service times below them, which have nothing of the generator's lateness and of waits for a
// client. In place of the throughput, which the plan says, stands the share of it that was reached.
func (s *Summary) Figures(h *Header) (out []Figure) {
	ops := int64(0)
	for i, g := range s.Groups {
		ops += g.Total.Count
		prefix := ""
		if len(s.Groups) > 1 {
			prefix = g.Name + " "
		}
		add := func(name, unit string, kind FigureKind, better Direction, value float64) {
			out = append(out, Figure{Name: prefix + name, Unit: unit, Kind: kind, Better: better, Value: value})
		}
		due := g.Total.Due()
		if i >= len(h.Groups) || !h.Groups[i].OpenLoop() {
			add("throughput", "ops/s", Timed, Higher, g.Total.PerSecond)
		} else if due > 0 {
			add("rate reached", "%", Timed, Higher, 100*float64(g.Total.Count)/float64(due))
		}
		tail := func(name string, q Quantile) {
			add(name, "us", Timed, Lower, float64(q.US))
			out[len(out)-1].AtLeast = q.AtLeast
		}
		if l := g.Total.Latency(); l.Known() {
			tail("p50", l.P50)
			tail("p95", l.P95)
			tail("p99", l.P99)
			tail("p99.9", l.P999)
		}
		if l := &g.Total.Service; g.Total.Response != nil && l.Known() {
			tail("service p50", l.P50)
			tail("service p99", l.P99)
		}
		if len(g.Ops) > 1 && len(g.Ops) <= maxOpFigures {
			for _, op := range g.Ops {
				if l := op.Latency(); l.Known() {
					tail(op.Name+" p50", l.P50)
					tail(op.Name+" p99", l.P99)
				}
			}
		}
		if due > 0 {
			add("errors", "/op", Counted, Lower, float64(g.Total.Errors)/float64(due))
			add("unanswered", "/op", Counted, Lower, float64(g.Total.Unanswered)/float64(due))
		}
	}
	if s.NoAnswer > 0 {
		out = append(out, Figure{Name: "no answer for", Unit: "us", Kind: Timed, Better: Lower,
			Value: float64(s.NoAnswer)})
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
	case "%":
		return fmt.Sprintf("%.4g %%", value)
	case "us/op":
		return figure(value) + " us"
	case "B/op":
		return figure(value) + " B"
	case "B":
		return fmt.Sprintf("%.0f MiB", value/(1<<20))
	}
	return figure(value)
}
