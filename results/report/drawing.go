package report

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"strconv"

	"neokv.dev/results"
)

// drawing is what the script of the page draws, as JSON. Times are seconds from the start of the measured part, and
// latencies are microseconds; 0 is no latency, and what is below 0 is a lower bound. Runs are numbered from 0.
type drawing struct {
	HeatRows int          `json:"heat_rows"`
	Runs     []drawnRun   `json:"runs"`
	Groups   []drawnGroup `json:"groups"`
	Target   []panel      `json:"target"` // what the target did
	Quiet    []string     `json:"-"`      // counters that stayed 0
	Curves   []drawnCurve `json:"curves"`
}

type drawnRun struct {
	Letter string      `json:"letter"`
	Name   string      `json:"name"`
	From   []figure    `json:"from"` // of each column
	To     []figure    `json:"to"`
	Phases []phaseSpan `json:"phases"`
	Events []mark      `json:"events"`
}

type phaseSpan struct {
	Name string `json:"name"`
	From figure `json:"from"`
	To   figure `json:"to"`
}

type mark struct {
	At   figure `json:"at"`
	Name string `json:"name"`
}

// drawnGroup is a group of clients in all runs that have it.
type drawnGroup struct {
	Name      string         `json:"name"`
	Latencies []drawnLatency `json:"latencies"`
	Panels    []panel        `json:"panels"`
}

// drawnLatency is the latency of an operation in a run.
type drawnLatency struct {
	Run  int    `json:"run"`
	Op   string `json:"op"`
	Time string `json:"time"` // responseTime or serviceTime
	// Percentiles is the percentile curve of the measured part: 1/(1-q) and the latency at the quantile q, in turn.
	Percentiles []figure `json:"percentiles"`
	// Of each column.
	P50  []int64   `json:"p50"`
	P99  []int64   `json:"p99"`
	P999 []int64   `json:"p999"`
	Max  []int64   `json:"max"`
	Heat [][]int64 `json:"heat,omitempty"` // see heatOf
}

// panel is a chart of lines over time, of all runs.
type panel struct {
	Title  string  `json:"title"`
	About  string  `json:"about"`
	Unit   string  `json:"unit"`
	Traces []trace `json:"traces"`
}

type trace struct {
	Run    int      `json:"run"`
	Name   string   `json:"name"`
	Values []figure `json:"values"` // of each column
}

// drawnCurve is latency against rate, which is what so many clients reached in a closed loop.
type drawnCurve struct {
	Run   int         `json:"run"`
	Group string      `json:"group"`
	SLO   string      `json:"slo,omitempty"`
	Steps []drawnStep `json:"steps"` // by number of clients, then by rate
	Marks []mark      `json:"marks"` // at rates
}

type drawnStep struct {
	Rate    figure `json:"rate"`
	Clients int    `json:"clients,omitempty"` // of a closed loop
	Reached figure `json:"reached"`
	P50     int64  `json:"p50"`
	P99     int64  `json:"p99"`
	P999    int64  `json:"p999"`
	Max     int64  `json:"max"`
	Why     string `json:"why,omitempty"`
}

// figure is a number with the four digits that a chart can show; NaN is none.
type figure float64

func (f figure) MarshalJSON() ([]byte, error) {
	if math.IsNaN(float64(f)) || math.IsInf(float64(f), 0) {
		return []byte("null"), nil
	}
	short, err := strconv.ParseFloat(strconv.FormatFloat(float64(f), 'g', 4, 64), 64)
	if err != nil {
		return nil, err
	}
	return strconv.AppendFloat(nil, short, 'f', -1, 64), nil
}

func newDrawing(subjects []results.ResultFile) *drawing {
	d := &drawing{HeatRows: heatRows, Curves: []drawnCurve{}, Groups: []drawnGroup{}}
	groups := matchGroups(subjects)
	lines := 0 // of latencies over time
	for i, s := range subjects {
		for _, m := range groups {
			lines += len(timeKinds(s.Result, m.at[i])) * (1 + len(operations(s.Result, m.at[i])))
		}
	}
	most := min(maxColumns, max(minColumns, maxLatencyColumns/max(lines, 1)))
	var columns [][]timeColumn
	for i, s := range subjects {
		columns = append(columns, columnsOf(s.Result.Intervals, most, s.Result.Header.Duration))
		d.Runs = append(d.Runs, newRun(i, s, columns[i]))
	}
	for _, m := range groups {
		g := drawnGroup{Name: m.name, Latencies: []drawnLatency{}}
		for i, s := range subjects {
			g.Latencies = append(g.Latencies, latenciesOf(i, s.Result, m, columns[i])...)
		}
		g.Panels, _ = panelsOf(groupPanels(subjects, m), subjects, columns)
		d.Groups = append(d.Groups, g)
	}
	d.Target, d.Quiet = panelsOf(targetPanels(subjects), subjects, columns)
	for i, s := range subjects {
		d.Curves = append(d.Curves, curvesOf(i, s.Result)...)
	}
	return d
}

func newRun(i int, s results.ResultFile, columns []timeColumn) drawnRun {
	r := drawnRun{Letter: letter(i), Name: s.Name, Phases: []phaseSpan{}, Events: []mark{}}
	for k, c := range columns {
		r.From, r.To = append(r.From, seconds(c.from)), append(r.To, seconds(c.to))
		phase := c.intervals[0].Phase
		if k == 0 || phase != r.Phases[len(r.Phases)-1].Name {
			r.Phases = append(r.Phases, phaseSpan{Name: phase, From: seconds(c.from)})
		}
		r.Phases[len(r.Phases)-1].To = seconds(c.to)
	}
	for _, e := range events(s.Result) {
		name := e.Do
		if e.Error != "" {
			name += " (failed)"
		}
		r.Events = append(r.Events, mark{seconds(e.At), name})
	}
	return r
}

// operations returns the names of the operations of a group, in the order in which they come up.
func operations(r *results.Result, at int) []string {
	var out []string
	add := func(g *results.GroupStats) {
		for _, op := range g.Ops {
			if !slices.Contains(out, op.Name) {
				out = append(out, op.Name)
			}
		}
	}
	if at < 0 {
		return nil
	}
	if r.Summary != nil && at < len(r.Summary.Groups) {
		add(&r.Summary.Groups[at].GroupStats)
	}
	for i := range r.Intervals {
		if at < len(r.Intervals[i].Groups) {
			add(&r.Intervals[i].Groups[at])
		}
	}
	return out
}

// timeKinds returns the kinds of latency that a group has, the one that counts first.
func timeKinds(r *results.Result, at int) []string {
	switch {
	case at < 0:
		return nil
	case r.Header.Groups[at].OpenLoop():
		return []string{responseTime, serviceTime}
	}
	return []string{serviceTime}
}

func latenciesOf(run int, r *results.Result, m matched, columns []timeColumn) []drawnLatency {
	at := m.at[run]
	ops := operations(r, at)
	var out []drawnLatency
	for _, kind := range timeKinds(r, at) {
		lines := make([]drawnLatency, len(ops)+1)
		curves := percentileCurves(r, at, ops, kind)
		for i := range lines {
			lines[i] = drawnLatency{Run: run, Op: allOperations, Time: kind, Percentiles: curves[i]}
			if i < len(ops) {
				lines[i].Op = ops[i]
			}
		}
		for _, c := range columns {
			for i, l := range c.latencies(at, ops, kind) {
				d := &lines[i]
				d.P50, d.P99 = append(d.P50, drawn(l.P50)), append(d.P99, drawn(l.P99))
				d.P999, d.Max = append(d.P999, drawn(l.P999)), append(d.Max, drawn(l.Max))
				d.Heat = append(d.Heat, l.heat)
			}
		}
		for i := range lines {
			if !slices.ContainsFunc(lines[i].Heat, func(h []int64) bool { return h != nil }) {
				lines[i].Heat = nil
			}
		}
		if len(ops) == 1 {
			lines = lines[:1] // all operations are this one
		}
		out = append(out, lines...)
	}
	return out
}

// percentileCurves returns the curve of each operation in the measured part, and after them that of all operations.
func percentileCurves(r *results.Result, at int, ops []string, timeKind string) [][]figure {
	var all results.Distribution
	measured := r.Measured()
	var groups []results.GroupStats
	for _, g := range measured.Groups {
		groups = append(groups, g.GroupStats)
	}
	var out [][]figure
	for _, op := range ops {
		var one results.Distribution
		if s := operation(groups, at, op); s != nil {
			merge(&one, latency(s, timeKind))
		}
		all.Merge(one)
		out = append(out, percentileCurve(one))
	}
	return append(out, percentileCurve(all))
}

// percentileCurve takes a histogram at twenty quantiles for each factor of ten in 1/(1-q), as far as the count says
// anything: the last point is the highest value, at 1/(1-q) = count.
func percentileCurve(d results.Distribution) []figure {
	out := []figure{}
	answered, censored := d.Count()
	n := float64(answered + censored)
	if n == 0 {
		return out
	}
	var x, percentiles []float64
	for at := 1.; at < n; at = math.Pow(10, float64(len(x))/20) {
		x, percentiles = append(x, at), append(percentiles, 100-100/at)
	}
	x, percentiles = append(x, n), append(percentiles, 100)
	for i, q := range d.Quantiles(percentiles...) {
		out = append(out, figure(x[i]), figure(drawn(q)))
	}
	return out
}

// drawn returns a latency as the script takes it.
func drawn(q results.Quantile) int64 {
	if q.AtLeast {
		return -q.US
	}
	return q.US
}

// curvesOf returns the curves of latency against rate of a run: one for each group that its steps name.
func curvesOf(run int, r *results.Result) []drawnCurve {
	if r.Summary == nil || r.Summary.Curve == nil {
		return nil
	}
	c := r.Summary.Curve
	byGroup := map[string][]drawnStep{}
	for i := range c.Rows {
		s := &c.Rows[i]
		l := s.Total.Latency()
		byGroup[s.Name] = append(byGroup[s.Name], drawnStep{figure(s.Rate), s.Clients, figure(s.Total.PerSecond),
			drawn(l.P50), drawn(l.P99), drawn(l.P999), drawn(l.Max), s.Why})
	}
	var out []drawnCurve
	for _, name := range slices.Sorted(maps.Keys(byGroup)) {
		d := drawnCurve{Run: run, Group: name, SLO: c.SLO, Steps: byGroup[name], Marks: []mark{}}
		slices.SortStableFunc(d.Steps, func(a, b drawnStep) int {
			return cmp.Or(cmp.Compare(a.Clients, b.Clients), compareFigures(a.Rate, b.Rate))
		})
		best := "best"
		if c.Confirmed {
			best = "best, confirmed"
		}
		for _, m := range []mark{
			{figure(c.Lags), "lags"}, {figure(c.Breaks), "breaks the SLO"}, {figure(c.Saturates), "saturates"},
			{figure(c.Best), best},
		} {
			if m.At > 0 {
				d.Marks = append(d.Marks, m)
			}
		}
		out = append(out, d)
	}
	return out
}

func compareFigures(a, b figure) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// seconds rounds a time to a millisecond. It keeps all digits before the point, unlike other figures.
func seconds(s float64) figure { return figure(math.Round(s*1000) / 1000) }
