package report

import (
	"math"
	"slices"
	"time"

	"neokv.dev/results"
)

// timeColumn is a span of time that the charts show as one: an interval, or some of one phase that follow each other.
type timeColumn struct {
	from, to  float64 // seconds from the start of the measured part
	seconds   float64 // the lengths of its intervals, but for the time in which the run only waited for its end
	last      bool    // of its phase
	intervals []results.Interval
	work      results.Work         // what the target did; nil if no interval says so
	groups    []results.GroupStats // ledger and incidents of each group
}

// A page has at most this many points per line, and so many columns of latencies, over all its groups and operations.
// Together they bound its size to some megabytes, however long the runs were.
const (
	maxColumns        = 1_000
	maxLatencyColumns = 20_000
	minColumns        = 60
)

var phases = []string{results.PhaseLoad, results.PhaseWarmup, results.PhaseRun, results.PhaseVerify}

// columnsOf puts the intervals of a run into at most so many columns, and a few more where a phase ends. A column has
// intervals of one phase. length is that of the measured part, 0 if it has none: afterwards nothing is due, and the run
// only waits for answers.
func columnsOf(intervals []results.Interval, most int, length time.Duration) []timeColumn {
	intervals = slices.Clone(intervals)
	slices.SortStableFunc(intervals, func(a, b results.Interval) int {
		return slices.Index(phases, a.Phase) - slices.Index(phases, b.Phase)
	})
	origin := measuredFrom(intervals)
	apart(intervals)
	each := (len(intervals) + most - 1) / most
	var out []timeColumn
	for len(intervals) > 0 {
		n := 1
		for n < min(each, len(intervals)) && intervals[n].Phase == intervals[0].Phase {
			n++
		}
		ends := func() bool { return n == len(intervals) || intervals[n].Phase != intervals[0].Phase }
		if !ends() && intervals[n].Seconds < intervals[n-1].Seconds/2 {
			if n++; !ends() {
				n--
			} // else the phase ends with a moment that has too few operations for a rate of its own
		}
		c := timeColumn{intervals: intervals[:n], last: ends()}
		c.from, c.to = begin(intervals[0]).Sub(origin).Seconds(), intervals[n-1].At.Sub(origin).Seconds()
		c.sum()
		if late := c.to - length.Seconds(); length > 0 && late > 0 && intervals[0].Phase == results.PhaseRun {
			c.seconds = max(0, c.seconds-late)
		}
		out, intervals = append(out, c), intervals[n:]
	}
	return out
}

// apart lets an interval begin when the one before has ended, at the earliest. A generator that came late to the end of
// an interval may have counted that time twice.
func apart(intervals []results.Interval) {
	for i := 1; i < len(intervals); i++ {
		iv, free := &intervals[i], intervals[i].At.Sub(intervals[i-1].At)
		iv.Seconds = max(min(iv.Seconds, free.Seconds()), 0)
	}
}

func begin(iv results.Interval) time.Time {
	return iv.At.Add(-time.Duration(iv.Seconds * float64(time.Second)))
}

// measuredFrom returns when the measured part began. In a run that did not get there it is when the run itself began.
func measuredFrom(intervals []results.Interval) time.Time {
	for _, iv := range intervals {
		if iv.Phase == results.PhaseRun {
			return begin(iv).Add(-time.Duration(iv.Since * float64(time.Second)))
		}
	}
	if len(intervals) > 0 {
		return begin(intervals[0])
	}
	return time.Time{}
}

// sum adds up the intervals, apart from latencies.
func (c *timeColumn) sum() {
	for _, iv := range c.intervals {
		c.seconds += iv.Seconds
		if iv.Work != nil && c.work == nil {
			c.work = results.Work{}
		}
		c.work.Add(iv.Work)
		for at, g := range iv.Groups {
			if at == len(c.groups) {
				c.groups = append(c.groups, results.GroupStats{})
			}
			to := &c.groups[at]
			to.Ledger.Add(g.Ledger)
			to.Incidents.Add(g.Incidents)
		}
	}
}

// allOperations is the name under which the operations of a group stand together.
const allOperations = "all operations"

// columnLatency is the distribution of the latencies of an operation in a column.
type columnLatency struct {
	results.Latency
	heat []int64 // see heatOf
}

// latencies returns the distribution of each operation, and after them that of all operations. timeKind is one of the
// constants below.
func (c *timeColumn) latencies(at int, ops []string, timeKind string) []columnLatency {
	var out []columnLatency
	var all results.Distribution
	for _, op := range ops {
		var one results.Distribution
		for _, iv := range c.intervals {
			if s := operation(iv.Groups, at, op); s != nil {
				merge(&one, latency(s, timeKind))
			}
		}
		out = append(out, latencyOf(one))
		all.Merge(one)
	}
	return append(out, latencyOf(all))
}

func operation(groups []results.GroupStats, at int, op string) *results.OpStats {
	if at < len(groups) {
		for i := range groups[at].Ops {
			if groups[at].Ops[i].Name == op {
				return &groups[at].Ops[i]
			}
		}
	}
	return nil
}

func latencyOf(d results.Distribution) columnLatency {
	return columnLatency{d.Latency(false), heatOf(d)}
}

// heatRows is how many rows of a heat map make a factor of ten in latency. Row r begins at 10^(r/heatRows) us.
const heatRows = 10

// heatOf returns the number of the first row that has operations, and the counts of it and of the rows above it.
func heatOf(d results.Distribution) (out []int64) {
	h := d.Waited()
	if h == nil {
		return nil
	}
	for _, bar := range h.Distribution() {
		if bar.Count == 0 {
			continue
		}
		row := int64(math.Floor(heatRows * math.Log10(float64(max(bar.To, 1)))))
		if out == nil {
			out = []int64{row}
		}
		for int64(len(out)-1) <= row-out[0] {
			out = append(out, 0)
		}
		out[1+row-out[0]] += bar.Count
	}
	return out
}

// Latency has two kinds: see results.OpStats.
const (
	responseTime = "response"
	serviceTime  = "service"
)

func latency(op *results.OpStats, timeKind string) *results.Latency {
	if timeKind == responseTime {
		return op.Response
	}
	return &op.Service
}

// merge adds the distribution of a latency, if there is one.
func merge(into *results.Distribution, l *results.Latency) {
	if l == nil {
		return
	}
	if d, err := l.Distribution(); err == nil {
		into.Merge(d)
	}
}
