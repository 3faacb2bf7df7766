package results

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/perf/benchfmt"
)

// ResultFile is a result with the name of its file.
type ResultFile struct {
	Name string
	*Result
}

// Measured returns the summary. Of a file that was cut short it returns what the intervals of the measured part add up
// to. An operation has no latency there if an interval has no histogram of it.
func (r *Result) Measured() Summary {
	if r.Summary != nil {
		return *r.Summary
	}
	s := Summary{Interrupted: true}
	for _, g := range r.Header.Groups {
		s.Groups = append(s.Groups, GroupSummary{GroupStats: GroupStats{Name: g.Name}})
	}
	sums := make([][]operationSum, len(s.Groups))
	for _, iv := range r.Intervals {
		if iv.Phase != PhaseRun {
			continue
		}
		s.Seconds += iv.Seconds
		if iv.Work != nil {
			if s.Work == nil {
				s.Work = Work{}
			}
			s.Work.Add(iv.Work)
		}
		for i := range min(len(s.Groups), len(iv.Groups)) {
			from, g := iv.Groups[i], &s.Groups[i]
			g.Ledger.Add(from.Ledger)
			g.Incidents.Add(from.Incidents)
			for _, op := range from.Ops {
				j := slices.IndexFunc(sums[i], func(sum operationSum) bool { return sum.Name == op.Name })
				if j < 0 {
					j = len(sums[i])
					sums[i] = append(sums[i], operationSum{OpStats: OpStats{Name: op.Name, Reads: op.Reads}})
				}
				sums[i][j].add(op)
			}
		}
	}
	for i := range s.Groups {
		g, total := &s.Groups[i], operationSum{OpStats: OpStats{Name: "total"}}
		for _, sum := range sums[i] {
			g.Ops = append(g.Ops, sum.stats(s.Seconds))
			total.add(g.Ops[len(g.Ops)-1])
		}
		g.Total = total.stats(s.Seconds)
	}
	return s
}

// Add takes in the incidents of the span that follows.
func (in *Incidents) Add(next Incidents) {
	for kind, n := range next.Kinds {
		if in.Kinds == nil {
			in.Kinds = map[string]int64{}
		}
		in.Kinds[kind] += n
	}
	in.Moved += next.Moved
	in.Asked += next.Asked
	in.Retried += next.Retried
}

// operationSum adds up the figures of an operation.
type operationSum struct {
	OpStats
	service, response Distribution
}

func (sum *operationSum) add(op OpStats) {
	sum.Count += op.Count
	sum.Errors += op.Errors
	sum.Unanswered += op.Unanswered
	sum.Misses += op.Misses
	sum.Service.Censored += op.Service.Censored
	for _, c := range op.clocks() {
		into := &sum.service
		if c.name == clockResponse {
			into = &sum.response
		}
		if d, err := c.Distribution(); err == nil {
			into.Merge(d)
		}
	}
}

// stats returns the sum. A distribution that lacks values is left out.
func (sum *operationSum) stats(seconds float64) OpStats {
	op := sum.OpStats
	if seconds > 0 {
		op.PerSecond = float64(op.Count) / seconds
	}
	service := op.Service.Censored
	op.Service = Latency{}
	if answered, censored := sum.service.Count(); answered == op.Count && censored == service {
		op.Service = sum.service.Latency(true)
	}
	if answered, censored := sum.response.Count(); answered == op.Count && answered+censored == op.Due() {
		if l := sum.response.Latency(true); l.Known() {
			op.Response = &l
		}
	}
	return op
}

// The two clocks of a latency.
const (
	clockResponse = "response"
	clockService  = "service"
)

type clockedLatency struct {
	name string
	*Latency
}

// clocks returns the latencies of an operation, the one to look at first.
func (op *OpStats) clocks() (out []clockedLatency) {
	if op.Response.Known() {
		out = append(out, clockedLatency{clockResponse, op.Response})
	}
	if op.Service.Known() {
		out = append(out, clockedLatency{clockService, &op.Service})
	}
	return out
}

// withTotal returns the operations of a group and, if they are several, their total with its histograms.
func (g *GroupStats) withTotal() []OpStats {
	if len(g.Ops) < 2 {
		return g.Ops
	}
	sum := operationSum{OpStats: OpStats{Name: g.Total.Name}}
	for _, op := range g.Ops {
		sum.add(op)
	}
	total := g.Total
	merged := sum.stats(0)
	total.Service.HDR, total.Service.CensoredHDR = merged.Service.HDR, merged.Service.CensoredHDR
	if total.Response != nil && merged.Response != nil {
		response := *total.Response
		response.HDR, response.CensoredHDR = merged.Response.HDR, merged.Response.CensoredHDR
		total.Response = &response
	}
	return append(slices.Clone(g.Ops), total)
}

// OpHistogram is the distribution of an operation over the measured part, by one clock.
type OpHistogram struct {
	Group, Operation, Clock string
	Distribution
}

// Histograms returns all histograms of a result: per group those of each operation and of all together.
func (r *Result) Histograms() (out []OpHistogram) {
	s := r.Measured()
	for i := range s.Groups {
		for _, op := range s.Groups[i].withTotal() {
			for _, c := range op.clocks() {
				if d, err := c.Distribution(); err == nil {
					out = append(out, OpHistogram{s.Groups[i].Name, op.Name, c.name, d})
				}
			}
		}
	}
	return out
}

// WriteHGRM writes the distribution as HdrHistogram's outputPercentileDistribution of Java and C does, in milliseconds,
// with five lines per half of the distance to 100 %. Operations without a good answer are in it with the time that they
// had waited; a line says how many they are.
func (d OpHistogram) WriteHGRM(w io.Writer) error {
	const perMilli, ticks = 1000, 5
	h := d.Waited()
	var b strings.Builder
	fmt.Fprintf(&b, "%12s %14s %10s %14s\n\n", "Value", "Percentile", "TotalCount", "1/(1-Percentile)")
	for _, p := range h.CumulativeDistributionWithTicks(ticks) {
		part := p.Quantile / 100
		fmt.Fprintf(&b, "%12.3f %2.12f %10d", float64(p.ValueAt)/perMilli, part, p.Count)
		if p.Quantile < 100 {
			fmt.Fprintf(&b, " %14.2f", 1/(1-part))
		}
		b.WriteByte('\n')
	}
	buckets, subBuckets := layout(h)
	fmt.Fprintf(&b, "#[Mean    = %12.3f, StdDeviation   = %12.3f]\n", h.Mean()/perMilli, h.StdDev()/perMilli)
	fmt.Fprintf(&b, "#[Max     = %12.3f, Total count    = %12d]\n", float64(h.Max())/perMilli, h.TotalCount())
	fmt.Fprintf(&b, "#[Buckets = %12d, SubBuckets     = %12d]\n", buckets, subBuckets)
	if _, n := d.Count(); n > 0 {
		fmt.Fprintf(&b, "#[At least: %d of %d values are lower bounds]\n", n, h.TotalCount())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// layout returns how many buckets a histogram has, as the constructor of AbstractHistogram in Java counts them.
func layout(h *hdrhistogram.Histogram) (buckets, subBuckets int64) {
	units := 2 * int64(math.Pow10(int(h.SignificantFigures()))) // values up to here have a bucket each
	subBuckets = 1 << bits.Len64(uint64(units-1))
	beyond := subBuckets << (bits.Len64(uint64(max(1, h.LowestTrackableValue()))) - 1)
	for buckets = 1; beyond <= h.HighestTrackableValue(); buckets++ {
		if beyond > math.MaxInt64/2 {
			return buckets + 1, subBuckets
		}
		beyond *= 2
	}
	return buckets, subBuckets
}

// WriteHLog writes the measured part as an interval log of HdrHistogram, version 2: a line per interval, operation and
// clock, with the tag group.operation.clock. Values are nanoseconds, as the tools expect that read such logs, at three
// digits and never below what was measured. Operations without a good answer are in it with the time that they had
// waited; the tag then has a name behind it, in all intervals.
func WriteHLog(w io.Writer, r *Result) error {
	spans := slices.DeleteFunc(slices.Clone(r.Intervals), func(iv Interval) bool { return iv.Phase != PhaseRun })
	start := r.Header.Started
	if len(spans) > 0 {
		start = spans[0].At.Add(-seconds(spans[0].Seconds))
	}
	log := hdrhistogram.NewHistogramLogWriter(w)
	base := start.Truncate(time.Second).UnixMilli() // the writer prints whole seconds
	log.SetBaseTime(base)
	for _, err := range []error{
		log.OutputComment("[Logged with neokv results, values in nanoseconds]"), log.OutputLogFormatVersion(),
		log.OutputStartTime(base), log.OutputBaseTime(base), log.OutputLegend(),
	} {
		if err != nil {
			return err
		}
	}
	bounded := map[string]bool{} // tags
	for write := range 2 {
		for _, iv := range spans {
			for _, g := range iv.Groups {
				for _, op := range g.Ops {
					for _, c := range op.clocks() {
						tag := tagOf(g.Name, op.Name, c.name)
						if bounded[tag] = bounded[tag] || c.Censored > 0; write == 0 {
							continue
						}
						if bounded[tag] {
							tag += atLeast
						}
						if err := c.logInterval(log, &iv, tag); err != nil {
							return err
						}
					}
				}
			}
		}
	}
	return nil
}

// logInterval writes the histogram of an interval, if it has one.
func (c clockedLatency) logInterval(log *hdrhistogram.HistogramLogWriter, iv *Interval, tag string) error {
	d, err := c.Distribution()
	if err != nil {
		return nil
	}
	h := d.Waited()
	nanos := hdrhistogram.New(1, 2000*min(max(h.Max(), 1), forever), digits)
	for _, bar := range h.Distribution() {
		if bar.Count > 0 {
			if err := nanos.RecordValues(min(bar.To, 2*forever)*1000, bar.Count); err != nil {
				return err
			}
		}
	}
	nanos.SetStartTimeMs(iv.At.Add(-seconds(iv.Seconds)).UnixMilli())
	nanos.SetEndTimeMs(iv.At.UnixMilli())
	nanos.SetTag(tag)
	return log.OutputIntervalHistogram(nanos)
}

// atLeast stands behind the name of a distribution of which some values are lower bounds.
const atLeast = ".at-least"

func tagOf(group, op, clock string) string { return word(group) + "." + word(op) + "." + clock }

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }

// word returns a name as one word: letters, digits, points, dashes and underscores.
func word(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '.', r == '-', r == '_':
			return r
		}
		return '_'
	}, name)
}

// FileName returns the name of a file for the distribution, without an extension.
func (d OpHistogram) FileName() string {
	name := tagOf(d.Group, d.Operation, d.Clock)
	if _, n := d.Count(); n > 0 {
		name += atLeast
	}
	return name
}

// A statistic is one figure of a line of benchfmt.
type statistic struct {
	value float64
	unit  string
}

// WriteBenchfmt writes results as benchstat reads them. A run is one sample: a group, operation and clock of a run have
// one line. The intervals of a run are no samples, since they depend on each other through caches, compactions and what
// was written before; a comparison needs several runs.
func WriteBenchfmt(w io.Writer, files []ResultFile) error {
	out := benchfmt.NewWriter(w)
	var wrong error
	units := map[string]bool{}
	line := func(h *Header, load ClientGroup, name string, n int64, stats []statistic) {
		res := &benchfmt.Result{Name: benchfmt.Name(name), Iters: int(n)}
		for _, c := range configuration(h, load) {
			res.Config = append(res.Config, benchfmt.Config{Key: c[0], Value: []byte(c[1]), File: true})
		}
		for _, s := range stats {
			if !units[s.unit] {
				units[s.unit] = true
				better := "lower"
				if s.unit == "ops/s" {
					better = "higher"
				}
				meta := &benchfmt.UnitMetadata{OrigUnit: s.unit, Value: better}
				meta.Key = "better"
				if err := out.Write(meta); wrong == nil {
					wrong = err
				}
			}
			res.Values = append(res.Values, benchfmt.Value{Value: s.value, Unit: s.unit})
		}
		if err := out.Write(res); wrong == nil {
			wrong = err
		}
	}
	for _, f := range files {
		s := f.Measured()
		var answered int64
		for i, g := range s.Groups {
			answered += g.Total.Count
			load := ClientGroup{Workload: g.Name}
			if i < len(f.Header.Groups) {
				load = f.Header.Groups[i]
			}
			lines := func(g GroupStats, rate string) {
				for _, op := range g.withTotal() {
					for j, c := range op.clocks() {
						name := benchName(g.Name) + "/op=" + word(op.Name) + rate + "/clock=" + c.name
						line(&f.Header, load, name, op.Due(), figures(op, c, j == 0))
					}
				}
			}
			lines(g.GroupStats, "")
			if s.Curve != nil && i == 0 {
				for _, step := range s.Curve.Rows {
					tried := "/rate=" + strconv.FormatFloat(step.Rate, 'f', -1, 64)
					if step.Clients > 0 {
						tried = "/clients=" + strconv.Itoa(step.Clients)
					}
					lines(step.GroupStats, tried)
				}
			}
		}
		if stats := s.Work.perOperation(answered); len(stats) > 0 {
			var names []string
			for _, g := range f.Header.Groups {
				names = append(names, g.Workload)
			}
			load := ClientGroup{Workload: strings.Join(names, "+")}
			if len(f.Header.Groups) == 1 {
				load = f.Header.Groups[0]
			}
			line(&f.Header, load, "Work", answered, stats)
		}
	}
	return wrong
}

// benchName returns the name of a group as a benchmark has it: one word that begins with no small letter.
func benchName(name string) string {
	name = word(name)
	if name == "" {
		return "_"
	}
	return strings.ToUpper(name[:1]) + name[1:]
}

// configuration returns keys and values that are the same for all lines of a load.
func configuration(h *Header, load ClientGroup) (out [][2]string) {
	add := func(key, value string) {
		if value = strings.Join(strings.Fields(value), " "); value != "" {
			out = append(out, [2]string{key, value})
		}
	}
	add("profile", h.Profile)
	add("workload", load.Workload)
	if load.Clients > 0 {
		add("load", strings.TrimPrefix(load.Describe(), load.Workload+": "))
	}
	add("contents", load.Content.name())
	add("beside", strings.Join(h.beside(), ", "))
	commit := h.Build.Commit
	if commit != "" && h.Build.Modified {
		commit += "-modified"
	}
	add("commit", commit)
	m := h.Machine
	add("machine", fmt.Sprintf("%s, %s, %s %s %s", m.CPU, Plural(int64(m.Cores), "core"), m.OS, m.Kernel, m.Arch))
	return out
}

// figures returns what a line of benchfmt says of an operation. Only the first line of an operation has what does not
// depend on the clock. A lower bound has a unit of its own, so that benchstat takes it for no value.
func figures(op OpStats, c clockedLatency, first bool) (out []statistic) {
	if first {
		due := float64(op.Due())
		out = append(out, statistic{op.PerSecond, "ops/s"}, statistic{float64(op.Errors) / due, "errors/op"},
			statistic{float64(op.Unanswered) / due, "unanswered/op"})
		if op.Reads {
			out = append(out, statistic{float64(op.Misses) / float64(max(1, op.Count)), "misses/op"})
		}
	}
	if c.Censored == 0 {
		out = append(out, statistic{c.Mean * 1000, "ns/op"})
	}
	for i, q := range c.quantiles() {
		unit := []string{"p50", "p95", "p99", "p99.9", "max"}[i]
		if q.AtLeast {
			unit += "-at-least"
		}
		out = append(out, statistic{float64(q.US) * 1000, unit + "-ns"})
	}
	return out
}

// perOperation returns the work that an operation cost.
func (w Work) perOperation(ops int64) (out []statistic) {
	if ops == 0 {
		return nil
	}
	for _, cost := range operationCosts {
		if n, known := w[cost.counter]; known && cost.unit != "" {
			value := float64(n) / float64(ops)
			if strings.HasSuffix(cost.unit, "ns/op") {
				value *= 1000
			}
			out = append(out, statistic{value, cost.unit})
		}
	}
	return out
}

// csvColumns are the columns of WriteCSV. New ones go to the end.
var csvColumns = []string{
	"file", "phase", "at", "since_s", "seconds", "group", "operation", "count", "errors", "misses", "per_second",
	"service_mean_us", "service_p50_us", "service_p95_us", "service_p99_us", "service_p999_us", "service_max_us",
	"response_mean_us", "response_p50_us", "response_p95_us", "response_p99_us", "response_p999_us", "response_max_us",
	"offered", "unknown", "dropped", "in_flight", "behind", "moved", "asked", "retried", "unanswered",
	"service_censored", "service_p50_at_least", "service_p95_at_least", "service_p99_at_least",
	"service_p999_at_least", "service_max_at_least",
	"response_censored", "response_p50_at_least", "response_p95_at_least", "response_p99_at_least",
	"response_p999_at_least", "response_max_at_least",
}

// WriteCSV writes a row per interval, group and operation, and one for all operations of the group, `total`. Only the
// total has the ledger and the redirections, which are the group's. A latency that was not measured is empty.
func WriteCSV(w io.Writer, files []ResultFile) error {
	out := csv.NewWriter(w)
	if err := out.Write(csvColumns); err != nil {
		return err
	}
	for _, f := range files {
		for _, iv := range f.Intervals {
			for _, g := range iv.Groups {
				for _, op := range append(slices.Clone(g.Ops), g.Total) {
					row := []string{f.Name, iv.Phase, iv.At.UTC().Format(time.RFC3339Nano), decimal(iv.Since),
						decimal(iv.Seconds), g.Name, op.Name, whole(op.Count), whole(op.Errors), whole(op.Misses),
						decimal(op.PerSecond)}
					service, serviceBounds := op.Service.cells()
					response, responseBounds := op.Response.cells()
					row = slices.Concat(row, service, response)
					if l := g.Ledger; op.Name == g.Total.Name {
						row = append(row, whole(l.Offered), whole(l.Unknown), whole(l.Dropped), whole(l.InFlight),
							whole(l.Behind), whole(g.Moved), whole(g.Asked), whole(g.Retried))
					} else {
						row = append(row, make([]string, 8)...)
					}
					row = slices.Concat(row, []string{whole(op.Unanswered)}, serviceBounds, responseBounds)
					if err := out.Write(row); err != nil {
						return err
					}
				}
			}
		}
	}
	out.Flush()
	return out.Error()
}

// cells returns the columns of a latency: its figures, and how many operations are in them with lower bounds, with a
// flag for each percentile that is one.
func (l *Latency) cells() (figures, bounds []string) {
	if !l.Known() {
		return make([]string, 6), make([]string, 6)
	}
	figures, bounds = []string{decimal(l.Mean)}, []string{whole(l.Censored)}
	for _, q := range l.quantiles() {
		figures, bounds = append(figures, whole(q.US)), append(bounds, strconv.FormatBool(q.AtLeast))
	}
	return figures, bounds
}

func whole(n int64) string { return strconv.FormatInt(n, 10) }

// decimal prints a number rounded to a millionth.
func decimal(v float64) string { return strconv.FormatFloat(math.Round(v*1e6)/1e6, 'f', -1, 64) }
