package bench

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// phaseSegment is a part of a phase that has its own name in the result file. Warm-up and run are two segments of one
// phase, since the load does not pause between them. A segment has schedules of its own, and its ledger begins at zero:
// what the segment before has left undone does not count.
type phaseSegment struct {
	name   string
	length time.Duration // 0: until the work is done
	items  uint64        // if length is 0: how many operations the work has
	loads  []segmentLoad // of each group
	steady *warmupEnd    // finds the end of the segment before its length is over; nil if that is not asked for

	next *phaseSegment // follows in the same phase; nil for the last

	// Set when it begins.
	start time.Duration
	ctx   context.Context // ends with the segment
	end   context.CancelFunc
	over  chan struct{} // closed when the load of the last segment is over: an event that is not due by then never is
}

// segmentLoad is what a group does in a segment.
type segmentLoad struct {
	ops     []workloads.Op // nil: nothing
	clients int            // how many of the group's clients; 0 is all
	table   *timetable     // of an open loop, else nil
	// shared hands the starts of the table to the clients.
	shared *sharedStarts
}

const (
	// maxIntervals is about how many intervals a part of a run has in its record at most, unless a user wants shorter
	// ones, at least leastInterval long and about mostIntervals at most.
	maxIntervals  = 3600
	leastInterval = 10 * time.Millisecond
	mostIntervals = 10 * maxIntervals
	// grace is how long operations that are under way at the end of a run may take. Until then an open loop also sends
	// what was due before the end. Then the connections are closed; what had no answer stays in flight.
	grace = time.Second
	// lateAfter is how late an operation of an open loop must be to count as behind.
	lateAfter = 100 * time.Millisecond
)

// timed returns a segment of some length in which every group does its workload.
func (r *run) timed(name string, length time.Duration, pace func(*loadGroup) Pace) *phaseSegment {
	seg := &phaseSegment{name: name, length: length}
	for _, g := range r.groups {
		l := segmentLoad{ops: g.workload.Ops}
		if p := pace(g); p.Open() {
			l.table = &timetable{Pace: p, length: length, seed: r.o.Seed + salt(g.number)}
			l.shared = newSharedStarts(l.table)
		}
		seg.loads = append(seg.loads, l)
	}
	return seg
}

// alone returns a segment in which this group alone does something, for so many items.
func (g *loadGroup) alone(name string, op workloads.Op, items uint64) *phaseSegment {
	seg := &phaseSegment{name: name, items: items, loads: make([]segmentLoad, len(g.run.groups))}
	seg.loads[g.number].ops = []workloads.Op{op}
	return seg
}

// intervalOf returns how long the intervals of a segment are: as the user has said, or a second, or longer in a long
// run, so that result files stay bounded.
func (r *run) intervalOf(seg *phaseSegment) time.Duration {
	if r.o.Interval > 0 && seg.steady == nil {
		return r.o.Interval
	}
	n := (seg.length + maxIntervals*time.Second - 1) / (maxIntervals * time.Second)
	return max(1, n) * time.Second
}

func (r *run) now() time.Duration { return time.Since(r.epoch) }

func (r *run) stopped() bool { return r.stopping.Load() }

// halt stops the workers from starting new operations.
func (r *run) halt() {
	if !r.stopping.Swap(true) {
		r.halted = r.now()
		close(r.stop)
	}
}

// resume lets workers start, when those of the phase before have ended. If that was with an operation in flight, all
// connections are closed: the workers must not take that for an error of the target.
func (r *run) resume() {
	if r.aborted.Load() {
		for _, g := range r.groups {
			for _, w := range g.workers {
				w.drop()
			}
		}
	}
	r.stop = make(chan struct{})
	r.stopping.Store(false)
	r.ending.Store(false)
	r.aborted.Store(false)
	r.dialing, r.hangUp = context.WithCancel(r.ctx)
}

// abort closes all connections, even if workers use them.
func (r *run) abort() {
	r.aborted.Store(true) // before anything breaks by it
	r.hangUp()
	r.mu.Lock()
	defer r.mu.Unlock()
	for nc := range r.conns {
		nc.Close()
	}
}

// phase makes all workers do the work of some segments and reports their intervals. When all workers have ended it
// returns how long the last segment took; each group then has the figures of that segment. The workers end before the
// last interval is reported, so that it has every operation.
func (r *run) phase(ctx context.Context, work func(*worker), segments ...*phaseSegment) (time.Duration, error) {
	for i, seg := range segments[1:] {
		segments[i].next = seg
	}
	r.resume()
	defer r.hangUp()
	r.renew(ctx, segments[0])
	r.begin(segments[0])
	r.collect(segments[0]) // nobody has counted anything yet
	r.answered, r.failing, r.reached = r.now(), false, 0
	done := r.start(work, segments[0])
	for seg := segments[0]; ; seg = seg.next {
		took, err := r.segment(ctx, seg, done)
		switch {
		case seg.next == nil:
			return took, err
		case r.stopped():
			for _, g := range r.groups { // the last segment has no figures
				g.enter(segments[len(segments)-1])
			}
			return 0, err
		}
	}
}

// begin starts the clock of a segment. Workers enter it when their counts have been collected.
func (r *run) begin(seg *phaseSegment) {
	seg.start = r.now()
	r.began = r.readGenerator()
	seg.ctx, seg.end = context.WithCancel(r.ctx)
	seg.over = make(chan struct{})
	r.current.Store(seg)
	if seg.name == results.PhaseRun {
		for _, g := range r.groups {
			if g.subscribers != nil {
				g.subscribers.from.Store(int64(seg.start))
			}
		}
		r.listen(seg.start)
		r.following.Go(func() { r.follow(seg) })
		if feed := r.groups[0].feed; feed != nil {
			r.helpers.Go(func() { feed.read(seg.ctx) })
		}
	}
	for _, l := range seg.loads {
		if l.table != nil && r.sockets {
			r.helpers.Go(func() { keepAwake(seg.ctx, newDueCounter(l.table), seg.start, r.now) })
		}
	}
}

// collect takes the counts of all workers, which from then on count for a segment.
func (r *run) collect(seg *phaseSegment) {
	for _, g := range r.groups {
		g.collect(seg)
	}
}

// start starts the workers of every group that has something to do. The channel is closed when all have ended.
func (r *run) start(work func(*worker), seg *phaseSegment) <-chan struct{} {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for i, g := range r.groups {
		clients := g.workers
		if n := seg.loads[i].clients; n > 0 {
			clients = clients[:n]
		}
		for _, w := range clients {
			if w.ops = seg.loads[i].ops; w.ops != nil {
				wg.Go(func() { work(w) })
			}
		}
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	return done
}

// segment watches over a segment until it ends: until the next one has begun or, without a next one, all workers have
// ended. It reports its intervals, and returns how long the segment took.
func (r *run) segment(ctx context.Context, seg *phaseSegment, done <-chan struct{}) (time.Duration, error) {
	defer seg.end()
	for _, g := range r.groups {
		g.enter(seg)
	}
	var finished <-chan struct{} // ends a segment that has no length
	if seg.length == 0 || seg.name == results.PhaseRun && (r.groups[0].feed != nil || counted(r.o.Groups)) {
		finished = done // before the time is over
	}
	timer := time.NewTimer(time.Second)
	defer timer.Stop()
	var failed error
	// When the interval began, its present second, and the slice of that after which counts are collected. Each begins
	// when the counts of the one before were collected, which may be late, and ends on a whole second or slice.
	from, tick, slice := seg.start, seg.start, seg.start
	progress := seg.start // when Progress was called last
	for n, interval := 1, r.intervalOf(seg); ; {
		second := min(time.Second, interval)
		step, over := second, false
		if seg.steady != nil {
			step = seg.steady.slice
		}
		to := seg.start + ((slice-seg.start)/step+1)*step
		if seg.length > 0 {
			to = min(to, seg.start+seg.length)
		}
		timer.Reset(to - r.now())
		select {
		case <-timer.C:
			over = seg.length > 0 && to >= seg.start+seg.length || seg.steady != nil && seg.steady.found
		case <-finished:
			over = true
		case <-r.stop: // failed
		case <-ctx.Done():
			r.halt()
		}
		last := r.stopped() || over && seg.next == nil
		if last && !r.stopped() {
			r.collect(seg)
			for _, g := range r.groups {
				g.atEnd(r.now() - seg.start)
			}
		}
		if last {
			r.finish(ctx, done)
		}
		following := seg
		if over && !last {
			following = seg.next
			r.begin(following)
		}
		before, answersBefore := r.served()
		r.collect(following)
		now := r.now()
		if sum, answers := r.served(); seg.steady != nil && !over {
			seg.steady.add(float64(sum-before) / float64(max(1, answers-answersBefore)))
		}
		if slice = now; !last && !over && (to-seg.start)%second != 0 {
			continue
		}
		clock := r.readGenerator()
		if last {
			r.finishEvents(ctx, seg, over && failed == nil)
		}
		shown := r.second(seg, tick, now, clock, last)
		if last || over || to-from > interval-second/2 {
			if err := r.report(seg, from, tick, now, shown.Interval); failed == nil {
				failed = err
			}
			if from = now; n%maxIntervals == 0 && seg.length == 0 {
				interval *= 2
			}
			n++
		}
		if r.o.Progress != nil && (last || over || to-progress > time.Second-second/2) {
			r.o.Progress(shown)
			progress = to
		}
		if failed == nil {
			failed = r.dead(now, shown)
		}
		if last || over {
			if failed != nil && !last {
				r.halt()
				r.finish(ctx, done)
				seg.next.end()
			}
			return now - seg.start, failed
		}
		if tick = now; failed != nil {
			r.halt()
		}
	}
}

// served returns the service times of the answers since the last second, and their number.
func (r *run) served() (sum time.Duration, answers int64) {
	for _, g := range r.groups {
		sum, answers = sum+g.second.serviceSum, answers+g.second.answers
	}
	return sum, answers
}

// finish waits for the workers to end. Those of an open loop may catch up with what was due, unless the run stops
// early.
func (r *run) finish(ctx context.Context, done <-chan struct{}) {
	r.ending.Store(true)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	interrupted := ctx.Done()
	for {
		select {
		case <-done:
			r.halt()
			return
		case <-interrupted:
			interrupted = nil
			r.halt()
		case <-timer.C:
			r.halt()
			r.abort()
			<-done
			return
		}
	}
}

// second ends a second of a segment, or what there was of it, and returns what to show. The generator's clock was read
// when the second ended.
func (r *run) second(seg *phaseSegment, from, now time.Duration, clock generatorClock, last bool) Tick {
	iv := r.newInterval(seg, from, now)
	t := Tick{Phase: seg.name, Elapsed: now - seg.start, Total: seg.length}
	due := now
	if last {
		due = r.halted
	}
	var late results.Distribution
	for i, g := range r.groups {
		late.Merge(g.second.late)
		s := g.tick(seg, due-seg.start, iv.Seconds, !last)
		iv.Groups = append(iv.Groups, s)
		t.Latencies = append(t.Latencies, g.shown)
		if seg.loads[i].ops == nil {
			continue
		}
		t.PerSecond += s.Total.PerSecond
		t.Errors += s.Total.Errors + s.Total.Unanswered
		t.Behind += g.behind
		t.answers += s.Total.Count
	}
	timeout := sampleTimeout
	if last {
		timeout = patientTimeout
	}
	iv.Work = r.sampler.sample(r.ctx, timeout)
	iv.Events = r.events(r.reported)
	r.reported += len(iv.Events)
	iv.Generator = clock.since(r.clock)
	iv.Generator.Late, r.clock = latencyOf(late), clock
	r.span.add(iv.Work, iv.Events)
	if seg.name == results.PhaseRun {
		r.measured.add(iv.Work, nil)
	}
	if seg.length == 0 {
		r.reached += uint64(t.answers)
		t.Items, t.Reached = seg.items, r.reached
	}
	t.Interval, t.Nodes = iv, r.nodes()
	return t
}

func (r *run) newInterval(seg *phaseSegment, from, now time.Duration) results.Interval {
	return results.Interval{
		Phase: seg.name, At: r.epoch.Add(now).UTC(), Since: (from - seg.start).Seconds(),
		Seconds: (now - from).Seconds(),
	}
}

// observed is what bench has seen beside the answers in a span of time.
type observed struct {
	work   results.Work // of the target, nil if that does not tell
	events []results.Event
}

func (o *observed) add(work results.Work, events []results.Event) {
	if work != nil {
		if o.work == nil {
			o.work = results.Work{}
		}
		o.work.Add(work)
	}
	o.events = append(o.events, events...)
}

// report writes an interval. Its last second is the one that begins at tick.
func (r *run) report(seg *phaseSegment, from, tick, now time.Duration, lastSecond results.Interval) error {
	iv := lastSecond
	if from != tick {
		iv = r.newInterval(seg, from, now)
		var late results.Distribution
		for _, g := range r.groups {
			late.Merge(g.span.late)
			iv.Groups = append(iv.Groups, g.interval(seg, iv.Seconds))
		}
		iv.Work, iv.Events = r.span.work, r.span.events
		iv.Generator = r.clock.since(r.spanClock)
		iv.Generator.Late = latencyOf(late)
	}
	for _, g := range r.groups {
		g.beginInterval()
	}
	r.span, r.spanClock = observed{}, r.clock
	return r.out.Interval(iv)
}

// dead returns an error if the target has given nothing but errors for too long.
func (r *run) dead(now time.Duration, t Tick) error {
	if t.answers > 0 {
		r.answered, r.failing = now, false
	}
	r.failing = r.failing || t.Errors > 0
	if silent := now - r.answered; r.failing && silent >= r.o.DeadAfter {
		return fmt.Errorf("target dead: nothing but errors for %.0f s, the first of each kind: %s", silent.Seconds(),
			strings.Join(r.firstErrors(), "; "))
	}
	return nil
}

// nodes returns what the last sample and the slot table say of each node.
func (r *run) nodes() []NodeTick {
	served := map[string]int{}
	if table := r.target.table.Load(); table != nil {
		byID := map[nodeID]int{}
		for _, id := range table {
			byID[id]++
		}
		for id, n := range byID {
			if id != noNode {
				served[r.target.addr(id)] = n
			}
		}
	}
	var out []NodeTick
	for _, n := range r.sampler.nodes {
		out = append(out, NodeTick{Addr: n.addr, Slots: served[n.addr], Work: n.work})
	}
	return out
}

// firstError keeps the first message of each kind of error.
func (r *run) firstError(kind, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, known := r.firsts[kind]; !known && !r.aborted.Load() {
		r.firsts[kind] = message
	}
}

func (r *run) firstErrors() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for kind, message := range r.firsts {
		out = append(out, kind+": "+message)
	}
	slices.Sort(out)
	return out
}
