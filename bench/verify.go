package bench

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// Verifying: while the load runs, histories note for every record which values it may hold; afterwards all are read
// back.
//
// A write takes effect at some instant between its start and its answer. So of several writes to one record that
// overlap, any can be the last. An acknowledged write cannot be the last once another write, which began after its
// answer, is acknowledged too. A write of unknown outcome may take effect at any time, or never: it stays in question
// to the end, and rules nothing out. In the end a record must hold the value of a write in question, to the last byte.
// If it has several keys, all of them must hold that write, or all must be absent. That is checked of every such
// record, also of those that the histories do not follow.
//
// Of a collection whose elements stay, each element is such a record. Where elements come and go only their number is
// compared: as many as were loaded and pushed, less those popped, give or take pushes and pops of unknown outcome.
// Where such collections are removed, too, each belongs to one client, so that nothing overlaps.
//
// A counter must hold at least its highest answer, and at most that and the increments of unknown outcome. All answers
// are different, so the acknowledged increments fit between the lowest answer and what the counter holds in the end.
//
// All this is true only if nobody else writes to these keys.

const (
	// maxFollowed bounds the memory of the histories, at about a hundred bytes each: they are of the first records,
	// elements and counters that are written.
	maxFollowed = 4 << 20
	// maxInQuestion bounds the writes in question of one record; with more bench gives the record up. Few writes
	// overlap, but in a long outage each try leaves an unknown outcome behind.
	maxInQuestion = 64
	// maxExamples is how many lost writes are described.
	maxExamples = 5
)

// histories say what records may hold. Workers write to it concurrently.
type histories struct {
	src      *workloads.Source
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
	kind    int
	record  uint64
	element int
}

// recordHistory is what is known of one record.
type recordHistory struct {
	acknowledged bool
	open         bool          // too many in question
	faded        time.Duration // when the last EXPIRE was answered, never if one was not
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

// counter is what is known of one counter.
type counter struct {
	lowest, highest int64 // answers
	acknowledged    int64
	unknown         int64
	open            bool // an attempt to load it failed, and may still take effect
}

// size is what is known of the number of elements of one record.
type size struct {
	acknowledged bool  // it was loaded
	open         bool  // an earlier attempt to load it failed, and may still take effect
	fades        bool  // it may be removed at any time
	low, high    int64 // elements
}

func newHistories(src *workloads.Source) *histories {
	l := &histories{src: src}
	for i := range l.shards {
		l.shards[i] = shard{records: map[cell]*recordHistory{}, counters: map[cell]*counter{}, sizes: map[cell]*size{}}
	}
	return l
}

// what returns the word for the things that the histories follow.
func (l *histories) what() string {
	words := map[string]bool{}
	for kind := range l.src.KindCount() {
		switch {
		case !l.src.Follows(kind):
		case l.src.Counts(kind):
			words["size"] = true
		case l.src.Collection(kind):
			words["element"] = true
		default:
			words["record"] = true
		}
	}
	if len(words) == 1 {
		for w := range words {
			return w
		}
	}
	return "record"
}

// note tells the histories how a command ended. They take p.sent, when the operation was sent for the first time,
// as the start of all its commands. That may be too early, which only rules out less.
func (l *histories) note(p *sentOp, x *sentStep, failure string) {
	if failure != "" && !maybeDone(failure) || !l.src.Follows(x.Kind) {
		return // it did not take effect, or nobody asks what it did
	}
	s := l.shardOf(x.Record)
	s.mu.Lock()
	defer s.mu.Unlock()
	at := cell{x.Kind, x.Record, x.Element}
	done := x.done
	if failure != "" {
		done = never
	}
	switch {
	case l.src.Counter(x.Kind):
		if c := follow(l, s.counters, at, done); c != nil {
			c.add(x, done != never)
		}
		return
	case l.src.Counts(x.Kind):
		if x.Does == workloads.Write { // it changes an element, not their number
			return
		}
		if n := follow(l, s.sizes, at, done); n != nil {
			n.add(x, done != never, int64(l.src.ElementsOf(x.Kind, x.Record)))
		}
		return
	}
	w := openWrite{value: x.Value, done: done}
	elements := 1
	switch x.Does {
	case workloads.Fill, workloads.Delete, workloads.Fade:
		if l.src.Collection(x.Kind) {
			elements = l.src.ElementsOf(x.Kind, x.Record)
		}
	}
	for e := range elements {
		switch x.Does {
		case workloads.Fill:
			at.element, w.value = e, workloads.ElementValue(x.Value, e)
		case workloads.Delete:
			w.absent = true
		case workloads.WriteFading:
			w.fades = true
		}
		if elements > 1 {
			at.element = e
		}
		if h := follow(l, s.records, at, done); h == nil {
			continue
		} else if x.Does == workloads.Fade {
			if l.src.Collection(x.Kind) {
				h.fade(never) // what is written to an element later fades with the others
			} else {
				h.fade(done)
			}
		} else {
			h.add(w, p.sent)
		}
	}
}

func (l *histories) shardOf(record uint64) *shard { return &l.shards[record%uint64(len(l.shards))] }

// follow returns the history of a cell that a command changes, nil if there are too many.
func follow[T any](l *histories, entries map[cell]*T, at cell, done time.Duration) *T {
	if e, ok := entries[at]; ok {
		return e
	}
	if l.followed.Load() >= maxFollowed {
		if done != never {
			l.ignored.Add(1)
		}
		return nil
	}
	l.followed.Add(1)
	e := new(T)
	entries[at] = e
	return e
}

// fade notes that what the record holds may expire, by an EXPIRE that was answered at an instant, or never. So may what
// a write that overlaps leaves behind.
func (h *recordHistory) fade(done time.Duration) {
	h.faded = max(h.faded, done)
	for i := range h.writes {
		h.writes[i].fades = true
	}
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
	w.fades = w.fades || sent < h.faded
	if len(h.writes) == maxInQuestion {
		h.open, h.writes = true, nil
		return
	}
	h.writes = append(h.writes, w)
}

func (c *counter) add(x *sentStep, known bool) {
	switch {
	case x.Does != workloads.Increment:
		c.open = c.open || !known
	case !known:
		c.unknown++
	default:
		if c.acknowledged++; c.acknowledged == 1 {
			c.lowest = x.number
		}
		c.lowest, c.highest = min(c.lowest, x.number), max(c.highest, x.number)
	}
}

func (n *size) add(x *sentStep, known bool, elements int64) {
	switch x.Does {
	case workloads.Fill:
		if !known {
			n.open = true
			return
		}
		n.acknowledged, n.low, n.high = true, elements, elements
	case workloads.Push:
		if n.high += int64(x.Added); known {
			n.low += int64(x.Added)
		}
	case workloads.Pop:
		if x.miss {
			return
		}
		if n.low--; known {
			n.high--
		}
	case workloads.Delete:
		if n.low = 0; known {
			n.acknowledged, n.high = true, 0
		} else {
			n.fades = true
		}
	case workloads.Fade, workloads.WriteFading:
		n.fades = true
	}
}

// check says what is wrong with a record that holds texts; nil stands for an absent one.
func (h *recordHistory) check(texts [][]byte, src *workloads.Source, at cell) (wrong string) {
	there := present(texts)
	if there > 0 && there < len(texts) {
		return half(texts)
	}
	for _, w := range h.writes {
		if there == 0 && (w.absent || w.fades) || there > 0 && !w.absent && src.Is(at.kind, at.record, texts, w.value) {
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
	if there > 0 {
		holds = fmt.Sprintf("holds %.20q, %d bytes", texts[0], len(texts[0]))
	}
	return fmt.Sprintf("%s, which is none of the %d writes that can be the last; one was acknowledged after %.3f s",
		holds, len(h.writes), last.Seconds())
}

// present counts the strings that are there.
func present(texts [][]byte) (n int) {
	for _, t := range texts {
		if t != nil {
			n++
		}
	}
	return n
}

// half says that some keys of a record are missing.
func half(texts [][]byte) string {
	return fmt.Sprintf("%d of its %d keys are there; one command writes and removes all of them", present(texts),
		len(texts))
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
	low := max(0, n.low)
	if n.fades {
		low = 0
	}
	if answer < low || answer > n.high {
		return fmt.Sprintf("has %d elements, want %d to %d", answer, low, n.high)
	}
	return ""
}

// toRead is one thing to read back: a history, a counter, the size of a record, or nothing but whether all keys of the
// record are there.
type toRead struct {
	cell
	history *recordHistory
	counter *counter
	size    *size
}

// entries lists what can be judged. unjudged counts the records with acknowledged writes that have too many writes in
// question.
func (l *histories) entries() (list []toRead, unjudged int64) {
	judge := func(acknowledged, open bool, e toRead) {
		switch {
		case acknowledged && open:
			unjudged++
		case acknowledged:
			list = append(list, e)
		}
	}
	for i := range l.shards {
		for at, h := range l.shards[i].records {
			judge(h.acknowledged, h.open, toRead{cell: at, history: h})
		}
		for at, c := range l.shards[i].counters {
			judge(c.acknowledged > 0, c.open, toRead{cell: at, counter: c})
		}
		for at, n := range l.shards[i].sizes {
			judge(n.acknowledged, n.open, toRead{cell: at, size: n})
		}
	}
	for kind := range l.src.KindCount() {
		if !l.src.Follows(kind) {
			continue
		}
		for n := range min(l.src.Joint(kind), maxFollowed) {
			at := cell{kind: kind, record: n}
			if h := l.shards[n%uint64(len(l.shards))].records[at]; h == nil || !h.acknowledged || h.open {
				list = append(list, toRead{cell: at})
			}
		}
	}
	return list, unjudged
}

// readBack is the phase that reads everything back and compares.
type readBack struct {
	entries []toRead
	next    atomic.Int64
	judged  atomic.Int64

	mu       sync.Mutex
	lost     int64
	examples []string
}

// verifying is the operation of that phase.
var verifying = workloads.Op{Name: "verify"}

// verify reads back everything that the histories have, and returns an error if something is lost.
func (g *loadGroup) verify(ctx context.Context) (*results.Verified, error) {
	entries, unjudged := g.histories.entries()
	b := &readBack{entries: entries}
	seg := g.alone(results.PhaseVerify, verifying, uint64(len(entries)))
	took, err := g.run.phase(ctx, func(w *worker) { w.verify(b) }, seg)
	v := &results.Verified{
		Seconds: took.Seconds(), What: g.histories.what(), Checked: b.judged.Load(), Lost: b.lost, Examples: b.examples,
		Unjudged: unjudged, Ignored: g.histories.ignored.Load(),
		Complete: b.judged.Load() == int64(len(entries)), NotFollowed: g.workload.NotFollowed(),
	}
	if err == nil && b.lost > 0 {
		err = fmt.Errorf("verify: %s of %s %ss do not hold what was acknowledged, the first: %s",
			results.Count(b.lost), results.Count(v.Checked), v.What, b.examples[0])
	}
	return v, err
}

// verify reads chunk after chunk of the entries back, each until the target has answered it.
func (w *worker) verify(b *readBack) {
	size := w.batchSize(loadPipeline, w.group.src.LoadBytes())
	w.enter()
	defer func() { w.keep = keepNone }()
	for w.keep = keepAll; !w.run.stopped(); {
		to := b.next.Add(int64(size))
		from := min(to-int64(size), int64(len(b.entries)))
		to = min(to, int64(len(b.entries)))
		if from == to {
			return
		}
		w.reset()
		for i := from; i < to; i++ {
			e := b.entries[i]
			w.gen.Look(&w.req, e.kind, e.record, e.element)
			w.req.Steps[0].Record = uint64(i)
			w.append(-1)
		}
		w.insist(func(p *sentOp) bool {
			if p.failure != "" && p.failure != otherType {
				return false
			}
			b.judge(w.group.histories.src, p, &w.steps[p.first])
			return true
		})
	}
}

// otherType is the kind of error by which a server says that a key holds another type of value.
const otherType = "WRONGTYPE"

// judge compares an answer with what is known of an entry.
func (b *readBack) judge(src *workloads.Source, p *sentOp, x *sentStep) {
	e := b.entries[x.Record]
	var wrong string
	texts := p.texts
	if len(texts) == 0 {
		texts = [][]byte{p.text}
		if p.miss {
			texts[0] = nil
		}
	}
	b.judged.Add(1)
	switch {
	case p.failure == otherType:
		wrong = "holds another type of value"
	case e.counter != nil:
		wrong = e.counter.check(texts[0])
	case e.size != nil:
		wrong = e.size.check(x.number)
	case e.history != nil:
		wrong = e.history.check(texts, src, e.cell)
	default:
		if n := present(texts); n > 0 && n < len(texts) {
			wrong = half(texts)
		}
	}
	if wrong == "" {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.lost++
	if len(b.examples) < maxExamples {
		b.examples = append(b.examples, fmt.Sprintf("%s: %s", src.Place(e.kind, e.record, e.element), wrong))
	}
}
