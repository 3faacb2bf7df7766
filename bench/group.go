package bench

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// loadGroup is a group of clients under way: its workers, and the figures of the segment that they are in.
type loadGroup struct {
	run      *run
	number   int // its place in the run
	o        GroupOptions
	workload *workloads.Workload
	src      *workloads.Source
	ledger   *ledger // nil without Verify
	workers  []*worker
	spare    *tally        // empty, to be exchanged for that of a worker
	handed   atomic.Uint64 // records of the load phase given to workers

	// What the collector knows. second has what came since the last tick, span since the last interval, and total since
	// the beginning of the segment. sum is the ledger of total.
	second, span, total *tally
	shown               *tally // the second before
	sum                 results.Ledger
	starts              *dueCounter // of an open loop, else nil
	counted             time.Duration
	due, begun          int64 // so far in the segment
	offered             int64 // due at the last interval
	behind              int64 // due for some time, and not begun
	backlog             int64 // due and not begun when the schedule ended
}

// addGroup makes a group with its workers, and describes it for the header.
func (r *run) addGroup(o GroupOptions) results.ClientGroup {
	g := &loadGroup{run: r, number: len(r.groups), o: o}
	var errFind, errSource error
	g.workload, errFind = workloads.Find(o.Workload)
	g.src, errSource = o.source(g.workload, r.o.Seed+g.salt())
	if err := errors.Join(errFind, errSource); err != nil {
		panic(err) // complete has found no problem
	}
	g.spare, g.second, g.shown = g.newTally(), g.newTally(), g.newTally()
	if r.o.Verify {
		g.ledger = newLedger(g.src)
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
		Name: o.Name, Workload: g.workload.Name, Keys: g.src.Kinds(), Clients: o.Clients, Pipeline: o.Pipeline,
		Records: o.Records, Elements: g.src.Elements(), ValueBytes: g.src.ValueSizes(), OneNode: o.OneNode,
	}
	if o.Rate.Open() {
		h.Rate = o.Rate.String()
	}
	return h
}

// salt makes the random choices of the group other ones than those of the groups before it.
func (g *loadGroup) salt() uint64 { return uint64(g.number) << 32 }

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
	return s
}

// enter begins to count for a segment.
func (g *loadGroup) enter(seg *phaseSegment) {
	g.second.reset()
	g.span, g.total, g.sum = g.newTally(), g.newTally(), results.Ledger{}
	g.starts, g.counted, g.due, g.begun, g.offered, g.behind, g.backlog = nil, 0, 0, 0, 0, 0, 0
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
			w.seen = full.held
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

// tick ends a second: it brings the schedule's count up to an instant of the segment, and adds the second's figures to
// the interval's. What it returns is valid until the next tick.
func (g *loadGroup) tick(now time.Duration) *tally {
	done := g.second
	g.begun += done.begun
	g.behind = 0
	if g.starts != nil {
		late := g.starts.upTo(max(g.counted, now-lateAfter))
		g.due, g.counted = g.starts.upTo(now), now
		g.behind = max(0, late-g.begun)
	}
	g.span.merge(done)
	g.second, g.shown = g.shown, done
	g.second.reset()
	return done
}

// interval ends an interval. waiting says that operations which are due and not begun may still begin.
func (g *loadGroup) interval(seg *phaseSegment, seconds float64, waiting bool) results.GroupStats {
	s := results.GroupStats{Total: results.OpStats{Name: "total"}}
	if ops := seg.loads[g.number].ops; ops != nil {
		s = g.span.stats(ops, seconds)
		l := &s.Ledger
		for _, w := range g.workers {
			l.InFlight += w.seen
		}
		if g.starts != nil {
			l.Offered, g.offered = g.due-g.offered, g.due
			if waiting {
				l.InFlight += g.due - g.begun
				l.Behind = g.behind
			}
		}
		g.sum.Add(*l)
		g.total.merge(g.span)
		g.span.reset()
	}
	s.Name = g.o.Name
	return s
}
