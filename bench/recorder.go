package bench

import (
	"maps"
	"runtime"
	"sync/atomic"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// tally counts what happened in a span of time.
type tally struct {
	segment              *phaseSegment // in which it was counted
	ops                  []opTally     // by operation
	errors               map[string]int64
	moved, asked, resent int64
	begun                int64         // operations that the worker took up
	dropped              int64         // operations that it gave up before it sent them
	stuck                int64         // operations of the segment before that were in flight when the run ended
	answers              int64         // without errors
	serviceSum           time.Duration // of the answers
	// Of an open loop: how long operations waited until a worker was free, if none was when they were due; and how late
	// the others left.
	waited, late results.Distribution
	popped       results.Distribution // from push to pop
	nodes        []nodeTally          // by nodeID, if the target is a cluster
	// held is how many operations the worker had taken up that had not ended, at its last word; -1 without one.
	held int64
}

type opTally struct {
	errors, unanswered, misses int64
	service, response          results.Distribution
}

func newTally(ops int) *tally {
	return &tally{ops: make([]opTally, ops), errors: map[string]int64{}, held: -1}
}

// add counts an answered operation. In a closed loop response is negative.
func (t *tally) add(op uint8, service, response time.Duration, miss bool) {
	t.answers++
	t.serviceSum += service
	o := &t.ops[op]
	o.service.Answer(service)
	if response >= 0 {
		o.response.Answer(response)
	}
	if miss {
		o.misses++
	}
}

// fail counts a failed operation. The times are those that it had waited: service is negative if it was not sent, and
// response in a closed loop.
func (t *tally) fail(op uint8, kind string, service, response time.Duration) {
	t.errors[kind]++
	o := &t.ops[op]
	if maybeDone(kind) {
		o.unanswered++
	} else {
		o.errors++
	}
	o.censor(service, response)
}

// leave counts an operation that was in flight when the run closed its connection.
func (t *tally) leave(op uint8, service, response time.Duration) {
	t.ops[op].unanswered++
	t.ops[op].censor(service, response)
}

// drop counts an operation that was given up before it was sent. In a closed loop it was not due.
func (t *tally) drop(op uint8, service, response time.Duration) {
	t.dropped++
	if response >= 0 {
		t.leave(op, service, response)
	}
}

func (o *opTally) censor(service, response time.Duration) {
	if service >= 0 {
		o.service.Censor(service)
	}
	if response >= 0 {
		o.response.Censor(response)
	}
}

// times returns what percentiles are those of: response times in an open loop, else service times.
func (o *opTally) times() results.Distribution {
	if o.response == (results.Distribution{}) {
		return o.service
	}
	return o.response
}

// merge adds another tally's figures to this one, without held.
func (t *tally) merge(from *tally) {
	for i := range from.ops {
		t.ops[i].merge(&from.ops[i])
	}
	for k, n := range from.errors {
		t.errors[k] += n
	}
	t.moved += from.moved
	t.asked += from.asked
	t.resent += from.resent
	t.begun += from.begun
	t.answers += from.answers
	t.serviceSum += from.serviceSum
	t.late.Merge(from.late)
	t.waited.Merge(from.waited)
	t.popped.Merge(from.popped)
	t.dropped += from.dropped
	for id := range from.nodes {
		t.node(nodeID(id)).merge(&from.nodes[id])
	}
	t.stuck += from.stuck
}

func (o *opTally) merge(from *opTally) {
	o.errors += from.errors
	o.unanswered += from.unanswered
	o.misses += from.misses
	o.service.Merge(from.service)
	o.response.Merge(from.response)
}

// reset empties the tally and keeps its memory.
func (t *tally) reset() {
	for i := range t.ops {
		o := &t.ops[i]
		o.errors, o.unanswered, o.misses = 0, 0, 0
		o.service.Reset()
		o.response.Reset()
	}
	t.late.Reset()
	t.waited.Reset()
	t.popped.Reset()
	clear(t.errors)
	clear(t.nodes)
	t.answers, t.serviceSum, t.stuck = 0, 0, 0
	t.moved, t.asked, t.resent, t.begun, t.dropped, t.held = 0, 0, 0, 0, 0, -1
}

// all returns the figures of all operations together.
func (t *tally) all() *opTally {
	if len(t.ops) == 1 {
		return &t.ops[0]
	}
	var all opTally
	for i := range t.ops {
		all.merge(&t.ops[i])
	}
	return &all
}

// stats returns the figures of the tally over a number of seconds. Of its ledger, operations in flight are for the
// caller to add, and what a schedule offered.
func (t *tally) stats(ops []workloads.Op, seconds float64) results.GroupStats {
	var g results.GroupStats
	for i, op := range ops {
		s := t.ops[i].stats(op.Name, seconds, true)
		s.Reads = op.Reads
		g.Ops = append(g.Ops, s)
	}
	g.Total = t.all().stats("total", seconds, len(ops) == 1)
	g.Incidents = results.Incidents{Kinds: maps.Clone(t.errors), Moved: t.moved, Asked: t.asked, Retried: t.resent}
	for kind, n := range t.errors {
		if maybeDone(kind) {
			g.Ledger.Unknown += n
		} else {
			g.Ledger.Errors += n
		}
	}
	g.Ledger.OK, g.Ledger.Offered, g.Ledger.Dropped = g.Total.Count, t.begun, t.dropped
	g.Waited, _ = t.waited.Count()
	g.Wait = latencyOf(t.waited)
	if n, _ := t.popped.Count(); n > 0 {
		g.PushToPop = &results.PushToPop{Elements: n, Time: t.popped.Latency(true)}
	}
	return g
}

func (o *opTally) stats(name string, seconds float64, encode bool) results.OpStats {
	s := results.OpStats{Name: name, Errors: o.errors, Unanswered: o.unanswered, Misses: o.misses,
		Service: o.service.Latency(encode)}
	s.Count, _ = o.service.Count()
	if seconds > 0 {
		s.PerSecond = float64(s.Count) / seconds
	}
	if l := o.response.Latency(encode); l.Known() {
		s.Response = &l
	}
	return s
}

// recorder holds the counts of one worker. A collector takes the counts without making the worker wait. The worker
// marks the stretch during which it writes. The collector exchanges the tally, and then waits for the end of a stretch
// that may still write to the old one. (This is the writer-reader phaser of HdrHistogram, for a single writer.) A
// stretch is the counting of one batch; nothing in it blocks.
type recorder struct {
	stretch atomic.Uint64 // odd while the worker writes
	current atomic.Pointer[tally]
}

func (r *recorder) begin() *tally {
	r.stretch.Add(1)
	return r.current.Load()
}

func (r *recorder) end() { r.stretch.Add(1) }

// exchange installs an empty tally and returns the old one, to which nobody writes any more.
func (r *recorder) exchange(empty *tally) *tally {
	old := r.current.Swap(empty)
	if s := r.stretch.Load(); s&1 == 1 {
		for r.stretch.Load() == s {
			runtime.Gosched()
		}
	}
	return old
}
