package bench

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"neokv.dev/results"
)

// nodeTally counts what became of operations of which a node was the last that they were sent to.
type nodeTally struct {
	answers, errors, unanswered int64
	sum, max                    time.Duration // service times of the answers
}

func (n *nodeTally) merge(from *nodeTally) {
	n.answers += from.answers
	n.errors += from.errors
	n.unanswered += from.unanswered
	n.sum, n.max = n.sum+from.sum, max(n.max, from.max)
}

// node returns the counts of a node.
func (t *tally) node(id nodeID) *nodeTally {
	for int(id) >= len(t.nodes) {
		t.nodes = append(t.nodes, nodeTally{})
	}
	return &t.nodes[id]
}

// countNode counts an operation of a batch for the node that it was sent to.
func (t *tally) countNode(p *sentOp) {
	n := t.node(p.node)
	switch {
	case p.failure == "":
		took := p.done - p.sent
		n.answers, n.sum, n.max = n.answers+1, n.sum+took, max(n.max, took)
	case p.failure == leftOpen || maybeDone(p.failure):
		n.unanswered++
	case p.failure != cutOff:
		n.errors++
	}
}

// silence measures the longest time without a good answer. All workers use it.
type silence struct {
	last, longest atomic.Int64 // since the run's epoch
}

// hearEvery is how much later than the last one an answer must be to be noted, so that workers seldom write to memory
// that they share. No time without an answer is shorter in the figures than it was, nor longer by more than that.
const hearEvery = 100 * time.Microsecond

// begin forgets what was before an instant.
func (s *silence) begin(now time.Duration) {
	s.last.Store(int64(now))
	s.longest.Store(0)
}

// hear notes a good answer.
func (s *silence) hear(now time.Duration) {
	last := s.last.Load()
	if int64(now)-last < int64(hearEvery) || !s.last.CompareAndSwap(last, int64(now)) {
		return
	}
	s.lasted(int64(now) - last)
}

func (s *silence) lasted(took int64) {
	for longest := s.longest.Load(); took > longest; longest = s.longest.Load() {
		if s.longest.CompareAndSwap(longest, took) {
			return
		}
	}
}

// end returns the longest time without a good answer, up to an instant.
func (s *silence) end(now time.Duration) time.Duration {
	s.lasted(int64(now) - s.last.Load())
	return time.Duration(s.longest.Load())
}

// silenceOf returns what measures the silence of a node.
func (r *run) silenceOf(id nodeID) *silence {
	r.mu.Lock()
	defer r.mu.Unlock()
	for int(id) >= len(r.silences) {
		s := new(silence)
		s.begin(r.heardSince)
		r.silences = append(r.silences, s)
	}
	return r.silences[id]
}

// listen begins to measure silences.
func (r *run) listen(now time.Duration) {
	r.silence.begin(now)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.heardSince = now
	for _, s := range r.silences {
		s.begin(now)
	}
}

// nodeStats returns the figures of each node of a cluster over a segment that has just ended, and took some time.
func (r *run) nodeStats(seg *phaseSegment, took time.Duration) (out []results.NodeStats) {
	table := r.target.table.Load()
	if table == nil {
		return nil
	}
	slots := map[nodeID]int{}
	for _, id := range table {
		slots[id]++
	}
	total := newTally(0)
	for _, g := range r.groups {
		for id := range g.total.nodes {
			total.node(nodeID(id)).merge(&g.total.nodes[id])
		}
	}
	for id, addr := range r.target.nodes() {
		n := total.node(nodeID(id))
		if *n == (nodeTally{}) && slots[nodeID(id)] == 0 {
			continue // an address that nobody asked
		}
		s := results.NodeStats{Addr: addr, Slots: slots[nodeID(id)], Count: n.answers, Errors: n.errors,
			Unanswered: n.unanswered, Max: n.max.Microseconds(),
			NoAnswer: r.silenceOf(nodeID(id)).end(seg.start + took).Microseconds()}
		if n.answers > 0 {
			s.PerSecond, s.Mean = float64(n.answers)/took.Seconds(), float64(n.sum.Microseconds())/float64(n.answers)
		}
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b results.NodeStats) int {
		return cmp.Or(cmp.Compare(len(a.Addr), len(b.Addr)), cmp.Compare(a.Addr, b.Addr))
	})
	return out
}
