package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// phaseSegment is a part of a phase that has its own name in the result file. Warm-up and run are two segments of one
// phase, since the load does not pause between them.
type phaseSegment struct {
	name   string
	length time.Duration // 0: until the work is done
	items  uint64        // if length is 0: how many operations the work has
	ops    []workloads.Op
}

const (
	interval = time.Second
	// drain is how long an open loop may go on after its end to send operations that were due before. Operations that
	// are left then count as unsent.
	drain = time.Second
	// patience is how long an interrupted run waits for answers before it closes the connections.
	patience = time.Second
	// lateAfter is how late an operation of an open loop must be to count as behind.
	lateAfter = 100 * time.Millisecond
)

func (r *run) now() time.Duration { return time.Since(r.epoch) }

func (r *run) stopped() bool { return r.stopping.Load() }

// halt stops the workers from starting new operations.
func (r *run) halt() {
	if !r.stopping.Swap(true) {
		close(r.stop)
	}
}

// resume lets the workers start again after a halt, when all of them have ended.
func (r *run) resume() {
	r.stop = make(chan struct{})
	r.stopping.Store(false)
}

// abort closes all connections, even if workers use them.
func (r *run) abort() {
	r.cancel()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.aborted.Store(true)
	for nc := range r.conns {
		nc.Close()
	}
}

// phase makes all workers do the work of some segments, which have the same operations, and reports an interval each
// second. When all workers have ended it returns the tally of the last segment, and how long that segment took. The
// workers end before the last interval is reported, so that it has every operation.
func (r *run) phase(ctx context.Context, work func(*worker), segments ...phaseSegment) (*tally, time.Duration, error) {
	start := r.now()
	r.plan(start, segments)
	r.answered, r.failing, r.reached = start, false, 0
	done := r.start(work)

	total := newTally(max(1, len(r.workload.Ops)))
	timer := time.NewTimer(interval)
	defer timer.Stop()
	for i, seg := range segments {
		last := i == len(segments)-1
		var finished <-chan struct{} // ends a segment that has no length
		if seg.length == 0 {
			finished = done
		}
		for from := start; ; {
			to := from + interval
			if seg.length > 0 {
				to = min(to, start+seg.length)
			}
			timer.Reset(to - r.now())
			over := false
			select {
			case <-timer.C:
				over = seg.length > 0 && to >= start+seg.length
			case <-finished:
				over = true
			case <-ctx.Done():
				r.halt()
			}
			if over && last {
				r.finish(ctx, done)
			} else if r.stopped() {
				r.await(done, patience)
			}
			now := r.now()
			merged := r.collect()
			if last {
				total.merge(merged)
			}
			err := r.report(seg, merged, start, from, now)
			if r.stopped() || (over && last) {
				return total, r.tookOf(last, start, now), err
			}
			if err != nil {
				r.halt()
				r.await(done, patience)
				if last {
					total.merge(r.collect())
				}
				return total, r.tookOf(last, start, r.now()), err
			}
			from = to
			if over {
				start = to
				break
			}
		}
	}
	panic("a phase without segments")
}

// tookOf returns how long the last segment took: 0 if the phase did not reach it.
func (r *run) tookOf(last bool, start, now time.Duration) time.Duration {
	if !last {
		return 0
	}
	return now - start
}

// plan gives each worker its place in the schedule.
func (r *run) plan(start time.Duration, segments []phaseSegment) {
	var length time.Duration
	for _, s := range segments {
		length += s.length
	}
	for i, w := range r.workers {
		p := &w.place
		p.plan, p.start, p.n, p.step = schedule{r.o.Rate, length}, start, int64(i), int64(len(r.workers))
		w.ops = segments[0].ops
	}
	if r.o.Rate > 0 && length > 0 && r.sockets {
		r.helpers.Go(func() { keepAwake(r.ctx, schedule{r.o.Rate, length}, start, r.now) })
	}
}

// start starts every worker. The channel is closed when all have ended.
func (r *run) start(work func(*worker)) <-chan struct{} {
	done := make(chan struct{})
	var wg sync.WaitGroup
	for _, w := range r.workers {
		wg.Go(func() { work(w) })
	}
	go func() {
		wg.Wait()
		close(done)
	}()
	return done
}

// finish waits for the workers to end. Those of an open loop may catch up a little first.
func (r *run) finish(ctx context.Context, done <-chan struct{}) {
	if r.o.Rate > 0 {
		timer := time.NewTimer(drain)
		defer timer.Stop()
		select {
		case <-done:
		case <-ctx.Done():
		case <-timer.C:
		}
	}
	select {
	case <-done: // a load phase: the next phase needs the workers
	default:
		r.halt()
		r.await(done, r.o.Timeout)
	}
}

// await waits until all workers have ended, and aborts them after a time.
func (r *run) await(done <-chan struct{}, limit time.Duration) {
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
		r.abort()
		<-done
	}
}

// collect takes the workers' counts since the last call.
func (r *run) collect() *tally {
	merged := newTally(len(r.workload.Ops))
	for _, w := range r.workers {
		full := w.rec.exchange(r.spare)
		merged.merge(full)
		full.reset()
		r.spare = full
	}
	return merged
}

// report writes an interval and reports the progress. It returns an error if the target is dead.
func (r *run) report(seg phaseSegment, t *tally, start, from, now time.Duration) error {
	iv := results.Interval{
		Phase: seg.name, At: r.epoch.Add(now).UTC(), Since: (from - start).Seconds(), Seconds: (now - from).Seconds(),
	}
	if iv.Work = r.sampler.sample(r.ctx); seg.name == results.PhaseRun && iv.Work != nil {
		if r.work == nil {
			r.work = results.Work{}
		}
		r.work.Add(iv.Work)
	}
	g := t.stats(seg.ops, iv.Seconds)
	g.Name = r.workload.Name
	if r.o.Rate > 0 && seg.length > 0 {
		g.Ledger.Behind = max(0, r.due(now-lateAfter)-r.sent())
	}
	iv.Groups = []results.GroupStats{g}
	if err := r.out.Interval(iv); err != nil {
		return err
	}
	if r.o.Progress != nil {
		l := g.Total.Service
		if g.Total.Response != nil {
			l = *g.Total.Response
		}
		tick := Tick{
			Phase: seg.name, Elapsed: now - start, Total: seg.length, PerSecond: g.Total.PerSecond,
			Errors: g.Total.Errors, P50: time.Duration(l.P50) * time.Microsecond,
			P99: time.Duration(l.P99) * time.Microsecond, Behind: g.Ledger.Behind,
			Interval: iv, Nodes: r.nodes(),
		}
		if seg.length == 0 {
			r.reached += uint64(g.Total.Count)
			tick.Items, tick.Reached = seg.items, r.reached
		}
		r.o.Progress(tick)
	}
	if g.Total.Count > 0 {
		r.answered, r.failing = now, false
	}
	r.failing = r.failing || g.Total.Errors > 0
	if silent := now - r.answered; r.failing && silent >= r.o.DeadAfter {
		return fmt.Errorf("target dead: nothing but errors for %.0f s, the first of each kind: %v", silent.Seconds(),
			r.firstErrors())
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

// due returns how many operations of the open loop had their intended start before an instant.
func (r *run) due(now time.Duration) int64 {
	p := &r.workers[0].place
	return p.plan.due(now - p.start)
}

// sent returns how many operations of the open loop the workers have taken.
func (r *run) sent() (n int64) {
	for _, w := range r.workers {
		n += w.place.sent.Load()
	}
	return n
}

// nextRecords returns the next chunk [from, to) of records to insert. The chunk is empty when there are none left.
func (r *run) nextRecords(n int) (from, to uint64) {
	to = r.handed.Add(uint64(n))
	return min(r.src.Loaded(), to-uint64(n)), min(r.src.Loaded(), to)
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
