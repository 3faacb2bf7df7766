package bench

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// generatorClock is a reading of what the generator's process and its machine have done so far.
type generatorClock struct {
	at, process time.Duration
	busy, all   int64 // ticks of all cores, 0 where the system does not tell
}

// readGenerator reads the clocks. In virtual time they would mean nothing.
func (r *run) readGenerator() generatorClock {
	c := generatorClock{at: r.now()}
	if !r.sockets {
		return c
	}
	c.process = cpuTime()
	if text, err := os.ReadFile("/proc/stat"); err == nil {
		c.busy, c.all = machineTicks(string(text))
	}
	return c
}

// machineTicks reads the first line of /proc/stat: the time of all cores by what they did. The fourth and fifth figure
// are idle time, the last two are in the first two already.
func machineTicks(stat string) (busy, all int64) {
	line, _, _ := strings.Cut(stat, "\n")
	for i, word := range strings.Fields(line) {
		n, err := strconv.ParseInt(word, 10, 64)
		if i == 0 && word != "cpu" || i > 0 && err != nil {
			return 0, 0
		}
		if i > 0 && i <= 8 {
			if all += n; i != 4 && i != 5 {
				busy += n
			}
		}
	}
	return busy, all
}

// since returns the load of the generator between two readings.
func (c generatorClock) since(before generatorClock) (l results.GeneratorLoad) {
	if took := c.at - before.at; took > 0 {
		l.Cores = float64(c.process-before.process) / float64(took)
	}
	if all := c.all - before.all; all > 0 {
		l.Busy = float64(c.busy-before.busy) / float64(all)
	}
	return l
}

// latencyOf returns the figures of a distribution, nil if that is empty.
func latencyOf(d results.Distribution) *results.Latency {
	if l := d.Latency(false); l.Known() {
		return &l
	}
	return nil
}

// Bounds from which on a run says that its figures are not those of the target alone.
const (
	busyMachine   = 0.95 // share of the machine's cores
	busyGenerator = 0.9  // share of the cores that the generator may use
	lateGenerator = time.Millisecond
	fewErrors     = 0.01 // share of the operations that were due
	manyWaited    = 0.01 // share of the operations that waited for a free client
	mostlyMisses  = 0.5
)

// saturation says if the generator, or the machine, was the bottleneck.
func saturation(l results.GeneratorLoad, inProcess bool, cores int) (warnings []string) {
	warn := func(format string, args ...any) { warnings = append(warnings, fmt.Sprintf(format, args...)) }
	if l.Busy >= busyMachine {
		warn("the machine was saturated, its cores %.0f %% busy: the figures are its own as much as the target's",
			100*l.Busy)
	}
	if !inProcess && l.Cores >= busyGenerator*float64(cores) {
		warn("the load generator was saturated, it used %.2f of %d cores: the target may give more", l.Cores, cores)
	}
	if l.Late != nil && l.Late.P99.US >= lateGenerator.Microseconds() {
		warn("the load generator was late: of operations whose client was free one in a hundred left %s or more after "+
			"its intended start, which is in its response time", l.Late.P99)
	}
	return warnings
}

// doubts says what of a group's figures may not be what the user wanted.
func doubts(open bool, ops []workloads.Op, g results.GroupStats) (warnings []string) {
	warn := func(format string, args ...any) {
		warnings = append(warnings, g.Name+": "+fmt.Sprintf(format, args...))
	}
	due, t := float64(g.Total.Due()), g.Total
	waited := float64(g.Waited) / float64(max(1, g.Ledger.Offered))
	switch bad, n := float64(t.Errors+t.Unanswered), g.Ledger.InFlight; {
	case bad > fewErrors*due:
		warn("%.3g %% of %s have no good answer: %s failed, %s got no answer in time", 100*bad/due,
			results.Plural(t.Due(), "operation"), results.Count(t.Errors), results.Count(t.Unanswered))
	case n > 0:
		warn("%s had no answer %s after the end", results.Plural(n, "operation"), grace)
	case open && waited >= manyWaited:
		warn("%.0f %% of the operations were due while all clients were busy, and waited until one was free: with "+
			"more clients response times may be lower", 100*waited)
	}
	var reads, misses int64
	meant := 0.0 // to miss
	for _, x := range g.Ops {
		if i := slices.IndexFunc(ops, func(op workloads.Op) bool { return op.Name == x.Name }); i >= 0 && ops[i].Reads {
			reads, misses = reads+x.Count, misses+x.Misses
			meant += ops[i].Absent() * float64(x.Count)
		}
	}
	if reads > 0 && float64(misses)-meant > mostlyMisses*(float64(reads)-meant) {
		warn("%.0f %% of the reads found nothing", 100*float64(misses)/float64(reads))
	}
	return warnings
}

// saturation says if the generator, or the machine, was the bottleneck of this run.
func (r *run) saturation(l results.GeneratorLoad) []string {
	return saturation(l, r.o.Header.Cluster.InProcess, min(runtime.NumCPU(), runtime.GOMAXPROCS(0)))
}

// warnings says what a reader must know before believing the figures.
func (r *run) warnings(s *results.Summary, seg *phaseSegment) []string {
	var out []string
	for i, g := range r.groups {
		if n := g.total.stuck; n > 0 {
			out = append(out, fmt.Sprintf("%s: %s of the warm-up had no answer until the end, and is in no figure",
				g.o.Name, results.Plural(n, "operation")))
		}
		out = append(out, doubts(seg.loads[i].table != nil, g.workload.Ops, s.Groups[i].GroupStats)...)
	}
	return slices.Concat(out, r.saturation(s.Generator), s.Work.Impaired())
}
