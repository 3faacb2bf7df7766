package bench

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// Verifying: while the load runs, a ledger notes for every record which values it may hold; afterwards all are read
// back.
//
// A write takes effect at some instant between its start and its answer. So of several writes to one record that
// overlap, any can be the last. An acknowledged write cannot be the last once another write, which began after its
// answer, is acknowledged too. A write of unknown outcome may take effect at any time, or never: it stays in question
// to the end, and rules nothing out. In the end a record must hold the value of a write in question, to the last byte.
//
// Of a collection whose elements stay, each element is such a record. Where elements come and go only their number is
// compared: as many as were loaded and pushed, less those popped, give or take pushes and pops of unknown outcome.
//
// A counter must hold at least its highest answer, and at most that and the increments of unknown outcome. All answers
// are different, so the acknowledged increments fit between the lowest answer and what the counter holds in the end.
//
// All this is true only if nobody else writes to these keys.

const (
	// maxFollowed bounds the memory of the ledger, at about a hundred bytes each: it follows the first records,
	// elements and counters that are written.
	maxFollowed = 4 << 20
	// maxInQuestion bounds the writes in question of one record; with more the ledger gives the record up. Few writes
	// overlap, but in a long outage each try leaves an unknown outcome behind.
	maxInQuestion = 64
	// maxExamples is how many lost writes are described.
	maxExamples = 5
)

// ledger says what records may hold. Workers write to it concurrently.
type ledger struct {
	counts   bool // records are collections, and only their sizes are followed
	elements int  // elements of a collection that is loaded
	shards   [256]shard
	followed atomic.Int64
	ignored  atomic.Int64 // acknowledged writes to records beyond maxFollowed
}

type shard struct {
	mu       sync.Mutex
	records  map[cell]*recordHistory
	counters map[cell]*counter
	sizes    map[cell]*size
}

// cell is what has a history of its own: an element of a record, or a record that is followed as a whole.
type cell struct {
	record  uint64
	element int
}

// recordHistory is what the ledger knows of one record.
type recordHistory struct {
	acknowledged bool
	open         bool          // too many in question
	since        time.Duration // the latest start of an acknowledged write
	writes       []openWrite   // in question
}

// openWrite is a write in question.
type openWrite struct {
	done   time.Duration // when it was acknowledged, never if it was not
	value  workloads.ValueID
	absent bool // it removed the record
	fades  bool // it may have expired
}

const never = time.Duration(math.MaxInt64)

// counter is what the ledger knows of one counter.
type counter struct {
	lowest, highest int64 // answers
	acknowledged    int64
	unknown         int64
}

// size is what the ledger knows of the number of elements of one record.
type size struct {
	acknowledged bool  // it was loaded
	open         bool  // an earlier attempt to load it failed, and may still take effect
	low, high    int64 // elements
}

func newLedger(w *workloads.Workload, elements int) *ledger {
	l := &ledger{counts: w.Counts(), elements: elements}
	for i := range l.shards {
		l.shards[i] = shard{records: map[cell]*recordHistory{}, counters: map[cell]*counter{}, sizes: map[cell]*size{}}
	}
	return l
}

// what returns the word for the things that the ledger follows.
func (l *ledger) what() string {
	switch {
	case l.counts:
		return "size"
	case l.elements > 0:
		return "element"
	}
	return "record"
}

// note tells the ledger how an operation ended. The ledger counts p.sent, when the operation was sent for the first
// time, as its start. That may be too early, which only rules out less.
func (l *ledger) note(p *sentOp, op workloads.Op) {
	if p.failure != "" && (!maybeDone(p.failure) || op.Kind == workloads.Write && op.Then != "" && !p.second) {
		return // it did not take effect
	}
	s := &l.shards[p.record%uint64(len(l.shards))]
	s.mu.Lock()
	defer s.mu.Unlock()
	at := cell{p.record, p.element}
	switch op.Kind {
	case workloads.Increment:
		if c := follow(l, s.counters, at, p); c != nil {
			c.add(p)
		}
	case workloads.Write, workloads.WriteFading, workloads.Insert, workloads.Delete:
		s.note(l, at, p, openWrite{value: p.value, absent: op.Kind == workloads.Delete,
			fades: op.Kind == workloads.WriteFading})
	case workloads.Fill:
		if l.counts {
			s.resized(l, at, p, op.Kind)
			return
		}
		for at.element = range l.elements {
			if p.failure != "" { // it removes all elements first
				s.note(l, at, p, openWrite{absent: true})
			}
			s.note(l, at, p, openWrite{value: workloads.ElementValue(p.value, at.element)})
		}
	case workloads.Push, workloads.Pop:
		s.resized(l, at, p, op.Kind)
	}
}

// note adds the end of a write to its history.
func (s *shard) note(l *ledger, at cell, p *sentOp, w openWrite) {
	if h := follow(l, s.records, at, p); h != nil {
		if w.done = p.done; p.failure != "" {
			w.done = never
		}
		h.add(w, p.sent)
	}
}

// resized adds the end of an operation that changes the number of elements.
func (s *shard) resized(l *ledger, at cell, p *sentOp, kind workloads.OpKind) {
	if n := follow(l, s.sizes, at, p); n != nil {
		n.add(p, kind, int64(l.elements))
	}
}

// follow returns the history of a cell that an operation changes, nil if there are too many.
func follow[T any](l *ledger, entries map[cell]*T, at cell, p *sentOp) *T {
	if e, ok := entries[at]; ok {
		return e
	}
	if l.followed.Load() >= maxFollowed {
		if p.failure == "" {
			l.ignored.Add(1)
		}
		return nil
	}
	l.followed.Add(1)
	e := new(T)
	entries[at] = e
	return e
}

func (h *recordHistory) add(w openWrite, sent time.Duration) {
	if w.done != never {
		h.acknowledged = true
		if sent > h.since {
			h.since = sent
			left := h.writes[:0]
			for _, x := range h.writes {
				if x.done >= sent {
					left = append(left, x)
				}
			}
			h.writes = left
		}
	}
	if w.done < h.since || h.open {
		return
	}
	if len(h.writes) == maxInQuestion {
		h.open, h.writes = true, nil
		return
	}
	h.writes = append(h.writes, w)
}

func (c *counter) add(p *sentOp) {
	if p.failure != "" {
		c.unknown++
		return
	}
	if c.acknowledged++; c.acknowledged == 1 {
		c.lowest = p.number
	}
	c.lowest, c.highest = min(c.lowest, p.number), max(c.highest, p.number)
}

func (n *size) add(p *sentOp, kind workloads.OpKind, elements int64) {
	known := p.failure == ""
	switch {
	case kind == workloads.Fill && !known:
		n.open = true
	case kind == workloads.Fill:
		n.acknowledged, n.low, n.high = true, elements, elements
	case kind == workloads.Push:
		if n.high++; known {
			n.low++
		}
	case !p.miss: // a pop
		if n.low--; known {
			n.high--
		}
	}
}

// check says what is wrong with a record that holds text; nil stands for an absent one.
func (h *recordHistory) check(text []byte, src *workloads.Source) (wrong string) {
	for _, w := range h.writes {
		if text == nil && (w.absent || w.fades) || text != nil && !w.absent && src.Is(text, w.value) {
			return ""
		}
	}
	last := time.Duration(0)
	for _, w := range h.writes {
		if w.done != never {
			last = max(last, w.done)
		}
	}
	holds := "absent"
	if text != nil {
		holds = fmt.Sprintf("holds %.20q, %d bytes", text, len(text))
	}
	return fmt.Sprintf("%s, which is none of the %d writes that can be the last; one was acknowledged after %.3f s",
		holds,
		len(h.writes), last.Seconds())
}

func (c *counter) check(text []byte) (wrong string) {
	n, err := strconv.ParseInt(string(text), 10, 64)
	switch {
	case text == nil:
		return fmt.Sprintf("absent, after the answer %d", c.highest)
	case err != nil:
		return fmt.Sprintf("holds %.20q, no number", text)
	case n < c.highest:
		return fmt.Sprintf("holds %d, after the answer %d", n, c.highest)
	case n > c.highest+c.unknown:
		return fmt.Sprintf("holds %d, more than the answer %d and %d increments of unknown outcome", n, c.highest,
			c.unknown)
	case n-c.lowest+1 < c.acknowledged:
		return fmt.Sprintf("holds %d, after %d acknowledged increments of which the first answered %d", n,
			c.acknowledged,
			c.lowest)
	}
	return ""
}

func (n *size) check(answer int64) (wrong string) {
	if answer < n.low || answer > n.high {
		return fmt.Sprintf("has %d elements, want %d to %d", answer, max(0, n.low), n.high)
	}
	return ""
}

// toRead is one thing to read back: a history, a counter, or the size of a record.
type toRead struct {
	cell
	history *recordHistory
	counter *counter
	size    *size
}

// entries lists what can be judged. unjudged counts the records with acknowledged writes that have too many writes in
// question.
func (l *ledger) entries() (list []toRead, unjudged int64) {
	for i := range l.shards {
		for at, h := range l.shards[i].records {
			switch {
			case h.open && h.acknowledged:
				unjudged++
			case h.acknowledged:
				list = append(list, toRead{cell: at, history: h})
			}
		}
		for at, c := range l.shards[i].counters {
			if c.acknowledged > 0 {
				list = append(list, toRead{cell: at, counter: c})
			}
		}
		for at, n := range l.shards[i].sizes {
			switch {
			case n.open && n.acknowledged:
				unjudged++
			case n.acknowledged:
				list = append(list, toRead{cell: at, size: n})
			}
		}
	}
	return list, unjudged
}

// readBack is the phase that reads everything back and compares.
type readBack struct {
	entries []toRead
	next    atomic.Int64

	mu       sync.Mutex
	lost     int64
	examples []string
}

// verifying is the operation of that phase.
var verifying = workloads.Op{Name: "verify"}

// verify reads back everything that the ledger has, and returns an error if something is lost.
func (r *run) verify(ctx context.Context) (*results.Verified, error) {
	entries, unjudged := r.ledger.entries()
	if r.aborted.Load() {
		return nil, errors.New("verify: not done, the target stopped answering")
	}
	b := &readBack{entries: entries}
	r.resume()
	total, took, err := r.phase(ctx, func(w *worker) { w.verify(b) },
		phaseSegment{name: results.PhaseVerify, ops: []workloads.Op{verifying}, items: uint64(len(entries))})
	ops := total.stats([]workloads.Op{verifying}, took.Seconds()).Ops
	v := &results.Verified{
		Seconds: took.Seconds(), What: r.ledger.what(), Checked: ops[0].Count, Lost: b.lost, Examples: b.examples,
		Unjudged: unjudged, Ignored: r.ledger.ignored.Load(),
		Complete: ops[0].Count == int64(len(entries)),
	}
	if err == nil && b.lost > 0 {
		err = fmt.Errorf("verify: %s of %s %ss do not hold what was acknowledged, the first: %s",
			results.Count(b.lost), results.Count(v.Checked), v.What, b.examples[0])
	}
	return v, err
}

// verify reads chunk after chunk of the entries back, each until the target has answered it.
func (w *worker) verify(b *readBack) {
	size := w.batchSize(loadPipeline)
	for w.keep = true; !w.run.stopped(); {
		to := b.next.Add(int64(size))
		from := min(to-int64(size), int64(len(b.entries)))
		to = min(to, int64(len(b.entries)))
		if from == to {
			return
		}
		w.reset()
		for i := from; i < to; i++ {
			e := b.entries[i]
			w.gen.Look(&w.req, e.record, e.element, e.counter != nil)
			w.req.Record = uint64(i)
			w.append(-1)
		}
		w.insist(func(p *sentOp) { b.judge(w.run.src, p) })
	}
}

// judge compares an answer with what the ledger knows.
func (b *readBack) judge(src *workloads.Source, p *sentOp) {
	e := b.entries[p.record]
	var wrong string
	text := p.text
	if p.miss {
		text = nil
	}
	switch {
	case e.counter != nil:
		wrong = e.counter.check(text)
	case e.size != nil:
		wrong = e.size.check(p.number)
	default:
		wrong = e.history.check(text, src)
	}
	if wrong == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost++
	if len(b.examples) < maxExamples {
		b.examples = append(b.examples, fmt.Sprintf("%s: %s", src.Place(e.record, e.element, e.counter != nil), wrong))
	}
}
