package bench

import (
	"context"
	"slices"
	"sync/atomic"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// loadGroup is a group of clients under way: its workers, and the figures of the segment that they are in.
type loadGroup struct {
	run       *run
	number    int // its place in the run
	o         GroupOptions
	workload  *workloads.Workload
	src       *workloads.Source
	histories *histories  // nil without Verify
	feed      *replayFeed // nil unless the group sends a recording

	subscribers *subscribers // nil unless somebody receives what the group publishes
	workers     []*worker
	spare       *tally        // empty, to be exchanged for that of a worker
	handed      atomic.Uint64 // records of the load phase given to workers

	// What the collector knows. second has what came since the last tick, span since the last interval, and total since
	// the beginning of the segment; these have ledgers, too.
	second, span, total *tally
	spanSum, sum        results.Ledger
	starts              *dueCounter // of an open loop, else nil
	counted             time.Duration
	due, begun          int64           // so far in the segment
	behind              int64           // due for some time, and not begun
	shown               results.Latency // of the last second, with the operations that wait at its end
	backlog             int64           // due and not begun when the schedule ended
}

// addGroup makes a group with its workers, and describes it for the header.
func (r *run) addGroup(o GroupOptions) results.ClientGroup {
	g := &loadGroup{run: r, number: len(r.groups), o: o, workload: o.workload, src: o.src}
	if o.Replay != nil {
		g.feed = newReplayFeed(o.Replay, o.Clients)
	}
	g.spare, g.second = g.newTally(), g.newTally()
	if r.o.Verify {
		g.histories = newHistories(g.src)
	}
	for i := range o.Clients {
		w := &worker{
			run: r, group: g, number: i, gen: g.src.Generator(i),
			home: nodeID(i % max(1, len(r.target.addrs))), timer: time.NewTimer(0), kinds: map[string]string{},
		}
		w.rec.current.Store(g.newTally())
		g.workers = append(g.workers, w)
	}
	r.groups = append(r.groups, g)
	h := results.ClientGroup{
		Name: o.Name, Workload: g.workload.Name, Content: results.ContentOf(g.workload.Text), Keys: g.src.Kinds(),
		Clients: o.Clients, Pipeline: o.Pipeline, Operations: o.Operations, Records: o.Records,
		Elements:   g.src.Elements(),
		ValueBytes: g.src.ValueSizes(), OneNode: o.Slots == OneNode, OneSlot: o.Slots == OneSlot,
	}
	if o.Commands != nil {
		h.Records = 0 // Keys has the number of each kind
	}
	switch {
	case o.Replay != nil:
		h.Rate, h.Records, h.Content = o.Replay.String(), 0, o.Replay.content
	case o.Rate.Open():
		h.Rate = o.Rate.String()
	}
	return h
}

// salt makes the random choices of a group other ones than those of the groups before it.
func salt(group int) uint64 { return uint64(group) << 32 }

func (g *loadGroup) newTally() *tally { return newTally(max(1, len(g.workload.Ops))) }

// clients returns how many clients there are.
func (r *run) clients() (n int) {
	for _, g := range r.groups {
		n += len(g.workers)
	}
	return n
}

// load inserts the records.
func (g *loadGroup) load(ctx context.Context) (*results.Inserted, error) {
	seg := g.alone(results.PhaseLoad, workloads.Op{Name: "insert"}, g.src.Loaded())
	took, err := g.run.phase(ctx, (*worker).load, seg)
	loaded := g.stats(seg, took.Seconds())
	return &results.Inserted{Seconds: took.Seconds(), Incidents: loaded.Incidents, Insert: loaded.Ops[0]}, err
}

// nextRecords returns the next chunk [from, to) of records to insert. The chunk is empty when there are none left.
func (g *loadGroup) nextRecords(n int) (from, to uint64) {
	to = g.handed.Add(uint64(n))
	return min(g.src.Loaded(), to-uint64(n)), min(g.src.Loaded(), to)
}

// stats returns the figures of the whole segment, which took so many seconds.
func (g *loadGroup) stats(seg *phaseSegment, seconds float64) results.GroupStats {
	s := g.total.stats(seg.loads[g.number].ops, seconds)
	s.Name, s.Ledger = g.o.Name, g.sum
	if g.leaveOut(&s); g.subscribers != nil {
		s.Messages, g.subscribers = g.subscribers.received(), nil
	}
	return s
}

// leaveOut removes the commands that a recording does not have.
func (g *loadGroup) leaveOut(s *results.GroupStats) {
	if g.feed != nil {
		s.Ops = slices.DeleteFunc(s.Ops, func(op results.OpStats) bool { return op.Due() == 0 })
	}
}

// enter begins to count for a segment.
func (g *loadGroup) enter(seg *phaseSegment) {
	g.second.reset()
	g.span, g.total, g.spanSum, g.sum = g.newTally(), g.newTally(), results.Ledger{}, results.Ledger{}
	g.starts, g.counted, g.due, g.begun, g.behind, g.backlog = nil, 0, 0, 0, 0, 0
	if table := seg.loads[g.number].table; table != nil {
		g.starts = newDueCounter(table)
	}
	for _, w := range g.workers {
		w.seen = 0
	}
}

// collect takes the workers' counts since the last call. From then on the workers count for the segment next.
func (g *loadGroup) collect(next *phaseSegment) {
	for _, w := range g.workers {
		g.spare.segment = next
		full := w.rec.exchange(g.spare)
		if full.held >= 0 {
			w.seen, w.heard = full.held, g.run.now()
		}
		g.second.merge(full)
		full.reset()
		g.spare = full
	}
}

// atEnd looks at what is left to do when the schedule is over.
func (g *loadGroup) atEnd(now time.Duration) {
	if g.starts != nil {
		g.counted = now
		g.backlog = g.starts.upTo(now) - g.begun - g.second.begun
	}
}

// tick ends a second, at an instant of the segment, and returns its figures. waiting says that operations which are due
// and not begun may still begin.
func (g *loadGroup) tick(seg *phaseSegment, now time.Duration, seconds float64, waiting bool) results.GroupStats {
	ops := seg.loads[g.number].ops
	g.shown = results.Latency{}
	if ops == nil {
		return results.GroupStats{Name: g.o.Name, Total: results.OpStats{Name: "total"}}
	}
	s := g.second.stats(ops, seconds)
	s.Name = g.o.Name
	g.shown = *s.Total.Latency()
	l := &s.Ledger
	for _, w := range g.workers {
		l.InFlight += w.seen
	}
	g.begun += g.second.begun
	if g.starts != nil {
		late := g.starts.upTo(max(g.counted, now-lateAfter))
		due := g.starts.upTo(now)
		l.Offered, g.due, g.counted = due-g.due, due, now
		g.behind = max(0, late-g.begun)
		if waiting {
			l.InFlight += g.due - g.begun
			l.Behind = g.behind
		}
	}
	if waits := g.waits(seg, now); waiting && waits.Censored != nil {
		all := g.second.all()
		waits.Merge(all.response)
		if g.starts == nil {
			waits.Merge(all.service)
		}
		g.shown = waits.Latency(false)
	}
	g.span.merge(g.second)
	g.total.merge(g.second)
	g.second.reset()
	g.spanSum.Add(*l)
	g.sum.Add(*l)
	return s
}

// manyBehind is of how many operations that are behind each one is looked at.
const manyBehind = 10_000

// waits returns how long operations have waited at an instant of the segment, for those that are in flight since the
// last tick or behind. Of what is in flight it knows no more than when its worker last told something.
func (g *loadGroup) waits(seg *phaseSegment, now time.Duration) (d results.Distribution) {
	for _, w := range g.workers {
		if waited := seg.start + now - max(seg.start, w.heard); w.seen > 0 && waited >= lateAfter {
			d.CensorAll(waited, w.seen)
		}
	}
	each := max(1, g.behind/manyBehind)
	for i := int64(0); i+each <= g.behind; i += each {
		d.CensorAll(now-g.starts.table.at(float64(g.begun+i+each-1)), each)
	}
	return d
}

// interval returns the figures of the seconds since beginInterval.
func (g *loadGroup) interval(seg *phaseSegment, seconds float64) results.GroupStats {
	s := results.GroupStats{Total: results.OpStats{Name: "total"}}
	if ops := seg.loads[g.number].ops; ops != nil {
		s = g.span.stats(ops, seconds)
		g.leaveOut(&s)
	}
	s.Name, s.Ledger = g.o.Name, g.spanSum
	return s
}

func (g *loadGroup) beginInterval() {
	g.span.reset()
	g.spanSum = results.Ledger{}
}
