package bench

import (
	"bytes"
	"context"
	"errors"
	"math"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"neokv.dev/results"
	"neokv.dev/workloads"
)

// worker is one client. It has one batch of operations under way at a time, and one connection per node that it needs.
// It groups a batch by node, sends to all of them, then reads the replies node by node. The time of a reply is when the
// client reads it. In a batch over several nodes that can be a little after its arrival, as for any client that does
// one thing at a time.
type worker struct {
	run    *run
	group  *loadGroup
	number int // within the group
	gen    *workloads.Generator
	req    workloads.Request
	rec    recorder
	home   nodeID // the node of all requests if the target is no cluster

	ops   []workloads.Op // the operations of the phase
	keep  kept           // which texts of replies to keep
	conns []*loadConn    // by nodeID, nil where none was needed
	timer *time.Timer
	pause bool // pause before the next round: the cluster redirects back and forth

	batch  []sentOp
	steps  []sentStep   // the commands of the batch
	aside  []asideBatch // by nodeID if pipelines keep to one node; at most one if they keep to one slot
	slot   int32        // of the batch if pipelines keep to one slot, anySlot if nothing says which
	arena  []byte       // the encoded requests of the batch
	todo   []int32      // operations of the batch still to send
	active []*loadConn  // connections that the current round uses, in the order of their first operation
	kinds  map[string]string

	published int64           // messages sent so far
	popped    []time.Duration // how long those took that the batch has popped

	segment *phaseSegment // in which it takes operations up
	held    int64         // operations of the segment that it has taken up and that have not ended
	// The collector's own: held when it last asked, and when the worker last told it something.
	seen  int64
	heard time.Duration

	// Of an open loop: the start that the worker has taken and for which it waits, since the beginning of the segment;
	// when the batch before had ended; and when this one began.
	start      time.Duration
	taken      bool
	free, woke time.Duration
}

// sentOp is one operation of a batch.
type sentOp struct {
	op uint8 // index into the worker's ops
	// steps[first:last] of the worker are its commands, and step is the one under way.
	first, step, last int
	// redirect is the node that a redirection names, or noNode if the slot table decides. asking is set if the
	// redirection was an ASK.
	redirect  nodeID
	asking    bool
	node      nodeID // to which it was sent last
	redirects uint8
	watching  bool     // the server watches keys for the next transaction of the operation
	miss      bool     // a reply was null or empty
	text      []byte   // the last reply, if that was a string and keep is set
	texts     [][]byte // the last reply, if that was an array and keep is set; nil for null
	failure   string   // kind of error, empty if answered
	// Instants since the run's epoch. planned is the intended start, negative in a closed loop. sent is zero until the
	// operation is sent. done is when its last reply came, or when it failed.
	planned, sent, done time.Duration
}

// sentStep is one command of an operation.
type sentStep struct {
	workloads.Effect
	from, to int   // arena[from:to] is the request
	slot     int32 // or anySlot, homeSlot
	together int   // see workloads.RequestStep
	watches  bool
	script   []byte // see workloads.RequestStep; nil if the request has it
	message  int    // arena[message:] is a message without its stamp; 0 for none
	channel  int    // of the message, among those that have subscribers; -1 for another one
	pops     bool   // the reply may have messages that were pushed
	// How it was answered: when, with which number, and whether by null or an empty array. void is set if it had no
	// effect, though its transaction was answered.
	done       time.Duration
	number     int64
	miss, void bool
}

const (
	anySlot  = -1 // of a command without a key
	homeSlot = -2 // of a command without a key that only the worker's home understands: a SCAN that goes on
)

const (
	// maxInFlight bounds the bytes of a batch, requests and expected replies together. So client and server can never
	// both wait for the other to read. A longer pipeline of large values is cut into several batches.
	maxInFlight = 256 << 10
	// maxRedirects is how many redirections of a request the worker follows before the request counts as failed, as in
	// cluster clients. From the third on it pauses first, since the cluster redirects back and forth.
	maxRedirects  = 5
	redirectPause = 10 * time.Millisecond
	// loadPipeline is the size of a batch in the load phase, whose latency does not matter.
	loadPipeline = 128
	// firstBackoff doubles with each failed attempt to connect, up to lastBackoff.
	firstBackoff = 10 * time.Millisecond
	lastBackoff  = time.Second
	// dialsAtOnce bounds the connections that are being made before a phase, since a server has a queue for them.
	dialsAtOnce = 100
)

// Kinds of errors that are not the first word of an error reply.
const (
	kindConnect    = "connect"         // no connection could be made
	kindConnection = "connection"      // it broke
	kindTimeout    = "timeout"         // no answer in time
	kindProtocol   = "protocol"        // the answer is not RESP2
	kindRedirects  = "redirects"       // redirected too often
	kindUnknown    = "unknown outcome" // the server does not know whether the write took effect
	kindOther      = "other"           // an error reply that does not begin with a code
	kindVoid       = "void"            // of a command: EXEC answered null, or an error in its place

	// These are no errors. The run stopped before the operation was sent, or closed the connection of one that had no
	// answer yet.
	cutOff   = "cut off"
	leftOpen = "left open"
)

// maybeDone reports whether a request that failed in this way may still take effect, now or later. After any other
// error reply, and after a failure before the send, it does not.
func maybeDone(kind string) bool {
	return kind == kindConnection || kind == kindTimeout || kind == kindProtocol || kind == kindUnknown ||
		kind == leftOpen
}

// load inserts records, chunk by chunk as the run hands them out. It sends each until the target has answered it.
func (w *worker) load() {
	w.enter()
	for !w.run.stopped() {
		from, to := w.group.nextRecords(w.batchSize(loadPipeline, w.group.src.LoadBytes()))
		if from == to {
			return
		}
		w.reset()
		for n := from; n < to; n++ {
			w.gen.Load(&w.req, n)
			w.append(-1)
		}
		w.insist(func(p *sentOp) bool { return p.failure == "" })
	}
}

// insist sends the batch until all of it has ended or the run stops. An operation has ended if done says so, which is
// asked after every try.
func (w *worker) insist(done func(*sentOp) bool) {
	for len(w.batch) > 0 && !w.run.stopped() {
		w.exchange()
		w.count()
		w.keepOpen(done)
		if len(w.batch) > 0 {
			w.rec.begin().resent += int64(len(w.batch))
			w.rec.end()
			w.sleep(firstBackoff)
		}
	}
}

// keepOpen leaves in the batch the operations to be sent again.
func (w *worker) keepOpen(done func(*sentOp) bool) {
	left := w.batch[:0]
	for _, p := range w.batch {
		if !done(&p) {
			p.failure, p.redirect, p.asking, p.redirects, p.sent, p.step = "", noNode, false, 0, 0, p.first
			p.watching = false
			left = append(left, p)
		}
	}
	w.batch = left
}

// send does the work of the group, in a closed or an open loop.
func (w *worker) send() {
	w.enter()
	switch {
	case w.group.feed != nil:
		w.replay()
	case w.segment.loads[w.group.number].table == nil:
		w.closed()
	default:
		w.opened()
	}
}

// closed sends batch after batch, the next one when the last one is answered.
func (w *worker) closed() {
	left, size := math.MaxInt, w.batchSize(w.group.o.Pipeline, w.group.src.RequestBytes())
	if n := w.group.o.Operations; n > 0 {
		left, size = n/w.group.o.Clients, w.group.o.Pipeline
		if w.number < n%w.group.o.Clients {
			left++
		}
	}
	for left > 0 && !w.run.stopped() && !w.run.ending.Load() {
		w.enter()
		size = min(size, left)
		for full := w.begin(size); !full; {
			full = w.draw(-1, size)
		}
		w.settle()
		left -= len(w.batch)
		w.exchange()
		w.count()
	}
	w.abandon(nil)
}

// opened sends operations when they are due: each time the next one that no other worker of the group has taken. So an
// operation waits only while all workers are busy. Operations that have become due meanwhile go with it, up to the
// length of a pipeline.
func (w *worker) opened() {
	size := w.batchSize(w.group.o.Pipeline, w.group.src.RequestBytes())
	for w.free = w.run.now(); ; {
		seg := w.enter()
		now := w.run.now()
		if w.run.stopped() { // looked at behind the clock: see halted
			w.giveUp(seg)
			return
		}
		full := w.begin(size)
		// A worker with operations to send takes no start that it would have to wait for: another one may be free then.
		for !full && w.due(seg, now, len(w.batch) == 0 && !w.waiting()) {
			full = w.draw(seg.start+w.start, size)
			w.taken = false
		}
		if len(w.batch) == 0 && !w.waiting() {
			wait := seg.start + w.start - now
			switch {
			case w.start < seg.length:
			case seg.next == nil:
				return
			default:
				wait = never
			}
			w.rest(seg, wait)
			continue
		}
		w.woke = now
		w.settle()
		w.exchange()
		w.count()
		w.free = w.run.now()
	}
}

// due reports whether the worker has taken a start that is due. If it has none it takes the next one; unless early is
// set, only if that is due.
func (w *worker) due(seg *phaseSegment, now time.Duration, early bool) bool {
	switch shared := seg.loads[w.group.number].shared; {
	case w.taken:
	case early:
		w.start, w.taken = shared.take(), true
	default:
		w.start, w.taken = shared.takeDue(min(now-seg.start, seg.length-1))
	}
	return w.taken && w.start < seg.length && seg.start+w.start <= now
}

// giveUp drops the operations that were due when the run stopped and that no worker has taken up.
func (w *worker) giveUp(seg *phaseSegment) {
	<-w.run.stop
	t := w.rec.begin()
	drop := func(op uint8, due time.Duration) {
		if t.segment == seg {
			t.drop(op, -1, w.run.halted-due)
		}
	}
	w.abandon(drop)
	for w.due(seg, w.run.halted, true) {
		w.taken = false
		drop(uint8(w.gen.Pick()), seg.start+w.start)
	}
	w.rec.end()
}

// enter makes the worker follow the segment for which it counts, and returns that.
func (w *worker) enter() *phaseSegment {
	if w.run.current.Load() != w.segment {
		seg := w.rec.begin().segment
		w.rec.end()
		if seg != w.segment {
			w.abandon(nil)
			w.segment, w.held, w.taken = seg, 0, false
		}
	}
	return w.segment
}

// take counts the operations of the batch as taken up. They belong to the segment that the worker had entered before.
// If another one has begun since, they do not count.
func (w *worker) take() {
	t := w.rec.begin()
	if t.segment == w.segment {
		w.held += int64(len(w.batch))
		t.begun += int64(len(w.batch))
		t.held = w.held
		for i := range w.batch {
			switch p := &w.batch[i]; {
			case p.planned >= w.free:
				t.late.Answer(w.woke - p.planned)
			case p.planned >= 0:
				t.waited.Answer(w.free - p.planned)
			}
		}
	}
	w.rec.end()
}

// batchSize returns how many operations of so many bytes make a batch.
func (w *worker) batchSize(pipeline, opBytes int) int {
	return max(1, min(pipeline, maxInFlight/opBytes))
}

func (w *worker) reset() {
	w.batch, w.steps, w.arena = w.batch[:0], w.steps[:0], w.arena[:0]
}

// append adds the request just generated to the batch.
func (w *worker) append(planned time.Duration) {
	p := sentOp{op: uint8(w.req.Op), first: len(w.steps), redirect: noNode, planned: planned}
	for i := range w.req.Steps {
		x, from, slot := &w.req.Steps[i], len(w.arena), int32(anySlot)
		w.arena = appendRequest(w.arena, x.Args...)
		switch {
		case x.Key != nil && (w.run.target.table.Load() != nil || w.group.o.Slots == OneSlot):
			slot = int32(slotOf(x.Key))
		case x.Key == nil && x.Scan:
			slot = homeSlot
		}
		w.steps = slices.Grow(w.steps, 1)[:len(w.steps)+1] // in place: a step is large
		s := &w.steps[len(w.steps)-1]
		s.Effect, s.from, s.to, s.slot, s.together, s.watches = x.Effect, from, len(w.arena), slot, x.Together, x.Watches
		s.script, s.done, s.number, s.miss, s.void, s.message, s.pops = x.Script, 0, 0, false, false, 0, x.Pops
		if x.Message {
			n := len(x.Args)
			s.message, s.channel = len(w.arena)-len("\r\n")-len(x.Args[n-1]), -1
			if subs := w.group.subscribers; subs != nil {
				if channel, ok := subs.channels[string(x.Args[n-2])]; ok {
					s.channel = channel
				}
			}
		}
	}
	p.step, p.last = p.first, len(w.steps)
	w.batch = append(w.batch, p)
}

// exchange sends the batch and reads the replies. An operation that watches keys has the connections for itself, since
// the next EXEC on a connection ends what is watched there.
func (w *worker) exchange() {
	w.take()
	w.todo = w.todo[:0]
	watching := false
	for i := range w.batch {
		if w.steps[w.batch[i].first].watches {
			watching = true
		} else {
			w.todo = append(w.todo, int32(i))
		}
	}
	w.finish()
	for i := 0; watching && i < len(w.batch); i++ {
		if w.steps[w.batch[i].first].watches {
			w.todo = append(w.todo, int32(i))
			w.finish()
		}
	}
}

// finish follows redirections and sends second requests until every operation of todo is answered or has failed.
func (w *worker) finish() {
	for len(w.todo) > 0 {
		if w.pause {
			w.pause = false
			w.sleep(redirectPause)
		}
		w.flush()
		w.todo = w.todo[:0]
		for _, c := range w.active {
			w.receive(c)
		}
	}
}

// flush puts the requests on the connections of their nodes and flushes these.
func (w *worker) flush() {
	w.active = w.active[:0]
	for _, i := range w.todo {
		p := &w.batch[i]
		c, failure := w.connect(p)
		if c == nil {
			p.failure, p.done = failure, w.run.now()
			continue
		}
		if p.node = c.node; len(c.queue) == 0 {
			w.active = append(w.active, c)
		}
		for i := p.step; i < w.behind(p.step); i++ {
			if from := w.steps[i].message; from > 0 {
				at := p.planned
				switch {
				case w.segment.name != results.PhaseRun:
					at = 0 // it counts neither as published nor as received
				case at < 0 && p.sent > 0: // it is sent again
					at = p.sent
				case at < 0:
					at = w.run.now()
				}
				w.published++
				stamp(w.arena[from:], at, w.run.sender(w.number), w.published)
			}
		}
		if p.asking {
			c.out = append(c.out, "*1\r\n$6\r\nASKING\r\n"...)
			c.queue = append(c.queue, askingReply)
		}
		if x := w.steps[p.step:w.behind(p.step)]; x[0].together > 0 {
			c.out = append(c.out, "*1\r\n$5\r\nMULTI\r\n"...)
			c.out = append(c.out, w.arena[x[0].from:x[len(x)-1].to]...)
			c.out = append(c.out, "*1\r\n$4\r\nEXEC\r\n"...)
		} else {
			c.out = append(c.out, w.arena[x[0].from:x[0].to]...)
		}
		c.queue = append(c.queue, i)
	}
	for _, c := range w.active {
		now := w.run.now()
		for _, i := range c.queue {
			if i != askingReply && w.batch[i].sent == 0 {
				w.batch[i].sent = now
			}
		}
		if err := c.flush(now); err != nil {
			w.broken(c, 0, err)
		}
	}
}

// behind returns the step behind those that are sent with one.
func (w *worker) behind(step int) int { return step + max(1, w.steps[step].together) }

// receive reads the replies that a connection still has to deliver.
func (w *worker) receive(c *loadConn) {
	for k, i := range c.queue {
		keep := w.keep
		if i != askingReply && w.steps[w.batch[i].step].Scan {
			keep = keepFirst
		} else if i != askingReply && w.steps[w.batch[i].step].pops {
			keep = keepAll
		}
		var rep reply
		var err error
		var failed []byte // the first error within the answer of a transaction
		if p := &w.batch[max(0, i)]; i != askingReply && w.steps[p.step].together > 0 {
			rep, failed, err = c.readTransaction(w.steps[p.step:w.behind(p.step)])
		} else {
			rep, err = c.read(maxDepth, keep)
		}
		if err != nil {
			w.broken(c, k, err)
			return
		}
		if i == askingReply {
			continue
		}
		p := &w.batch[i]
		p.done = c.readAt
		if rep.kind == '-' {
			w.refused(p, i, rep.text)
			continue
		}
		if c.failures = 0; c.readAt != c.heard {
			c.heard = c.readAt
			w.run.silence.hear(c.readAt)
			c.silence.hear(c.readAt)
		}
		x := &w.steps[p.step]
		switch rep.kind {
		case ':':
			x.number, _ = strconv.ParseInt(string(rep.text), 10, 64)
		case '$':
			p.text = rep.text
		case '*':
			p.texts = c.texts
		}
		if x.pops && x.together == 0 {
			w.pop(rep.text, c.readAt)
			for i := 0; rep.kind == '*' && i < len(c.texts); i++ {
				w.pop(c.texts[i], c.readAt)
			}
		}
		if x.Scan && rep.kind == '*' && len(c.texts) > 0 && w.gen.Scanned(&x.Effect, c.texts[0]) || x.GoesOn {
			rep.null = false // a part of an iteration may be empty
		}
		if x.together == 0 {
			x.miss = rep.null
		}
		p.miss = p.miss || rep.null
		p.watching = x.watches || p.watching && x.together == 0
		from := p.step
		p.step = w.behind(from)
		for i := range w.steps[from:p.step] {
			w.steps[from+i].done = p.done
		}
		switch {
		case failed != nil:
			code, _, _ := bytes.Cut(failed, []byte(" "))
			p.failure = w.kindOf(code, failed)
		case p.step < p.last:
			if p.asking, p.redirects = false, 0; !p.watching {
				p.redirect = noNode
			} else {
				p.redirect = p.node
			}
			w.todo = append(w.todo, i)
		}
	}
	c.queue = c.queue[:0]
}

// pop notes how long a message took that was pushed in the measured part, if the text is one.
func (w *worker) pop(text []byte, at time.Duration) {
	if len(text) < workloads.StampBytes {
		return
	}
	sent, sender, _ := readStamp(text)
	if sent > 0 && sender>>32 == w.run.sender(0)>>32 {
		w.popped = append(w.popped, at-sent)
	}
}

// refused handles an error reply: a redirection to follow, or a failure.
func (w *worker) refused(p *sentOp, i int32, text []byte) {
	code, rest, _ := bytes.Cut(text, []byte(" "))
	moved, ask := string(code) == "MOVED", string(code) == "ASK"
	if t := w.run.target; (moved || ask) && t.table.Load() != nil {
		if _, addr, ok := bytes.Cut(rest, []byte(" ")); ok && len(addr) > 1 {
			p.redirect, p.asking = t.redirectID(string(addr)), ask
			w.redirected(moved)
			if p.redirects++; p.redirects > maxRedirects {
				p.failure = kindRedirects
				return
			}
			w.pause = w.pause || p.redirects > 2
			if p.watching { // what is watched there says nothing of the transaction elsewhere
				p.step, p.watching = p.first, false
			}
			w.todo = append(w.todo, i)
			return
		}
	}
	if x := &w.steps[p.step]; string(code) == "NOSCRIPT" && x.script != nil {
		w.bring(x)
		w.todo = append(w.todo, i)
		return
	}
	if string(code) == "CLUSTERDOWN" || moved {
		w.run.target.markStale()
	}
	p.failure = w.kindOf(code, text)
}

// bring makes a request by EVALSHA one by EVAL, which brings the script that the server does not have.
func (w *worker) bring(x *sentStep) {
	request, from := w.arena[x.from:x.to], len(w.arena)
	next := func() []byte {
		line, rest, _ := bytes.Cut(request, []byte("\r\n"))
		request = rest
		return line
	}
	count := next()
	next() // the length of the name
	name := next()
	next() // and that of the SHA1
	next()
	w.arena = append(append(w.arena, count...), "\r\n"...)
	for _, word := range [][]byte{slices.Concat(name[:len("EVAL")], name[len("EVALSHA"):]), x.script} {
		w.arena = append(append(appendLength(w.arena, '$', len(word)), word...), "\r\n"...)
	}
	w.arena = append(w.arena, request...)
	x.from, x.to, x.script = from, len(w.arena), nil
	w.rec.begin().resent++
	w.rec.end()
}

func (w *worker) redirected(moved bool) {
	t := w.rec.begin()
	if moved {
		t.moved++
	} else {
		t.asked++
	}
	w.rec.end()
	if moved {
		w.run.target.markStale()
	}
}

// kindOf returns the kind of an error reply. It allocates only for the first reply of a kind.
func (w *worker) kindOf(code, text []byte) string {
	if bytes.HasPrefix(text, []byte("ERR write outcome unknown")) {
		code = []byte(kindUnknown)
	}
	if kind, ok := w.kinds[string(code)]; ok {
		return kind
	}
	kind := string(code)
	if kind != kindUnknown && (len(kind) > 32 || len(kind) == 0 || strings.ToUpper(kind) != kind) {
		kind = kindOther
	}
	if len(w.kinds) < 64 {
		w.kinds[string(code)] = kind
	}
	w.run.firstError(kind, string(text))
	return kind
}

// broken closes a connection. The operations from place k of its queue on have failed.
func (w *worker) broken(c *loadConn, k int, err error) {
	kind := kindConnection
	switch {
	case w.run.aborted.Load():
		kind = leftOpen
	case errors.Is(err, os.ErrDeadlineExceeded):
		kind = kindTimeout
	case errors.Is(err, errProtocol):
		kind = kindProtocol
	}
	now := w.run.now()
	for _, i := range c.queue[k:] {
		if i != askingReply {
			w.batch[i].failure, w.batch[i].done = kind, now
		}
	}
	w.run.forget(c.nc)
	c.nc, c.queue = nil, c.queue[:0]
	w.backOff(c, kind, err)
}

// backOff notes that a connection failed, or could not be made.
func (w *worker) backOff(c *loadConn, kind string, err error) {
	w.run.firstError(kind, err.Error())
	c.retryAt = w.run.now() + min(lastBackoff, firstBackoff<<min(c.failures, 10))
	c.failures++
	w.run.target.markStale()
}

// route returns the node to which an operation goes now.
func (w *worker) route(p *sentOp) nodeID {
	if p.redirect != noNode {
		return p.redirect
	}
	table := w.run.target.table.Load()
	slot := w.steps[p.step].slot
	if table == nil || slot < 0 {
		return w.home
	}
	if id := table[slot]; id != noNode {
		return id
	}
	return 0 // any node will do: it answers MOVED or CLUSTERDOWN
}

// connect returns a connection for an operation, after the pause that the last failure of the node asks for; or nil and
// the kind of error with which the operation fails.
func (w *worker) connect(p *sentOp) (*loadConn, string) {
	for {
		id := w.route(p)
		c := w.conn(id)
		if c.nc != nil {
			return c, ""
		}
		if wait := c.retryAt - w.run.now(); wait > 0 && c.failures > 0 {
			if w.sleep(wait); w.run.stopped() {
				return nil, cutOff
			}
			if w.route(p) != id {
				continue // another node serves the slot by now
			}
		}
		nc, err := w.run.connect(w.run.dialing, w.run.target.addr(id))
		if err != nil {
			w.backOff(c, kindConnect, err)
			if w.run.aborted.Load() {
				return nil, cutOff
			}
			return nil, kindConnect
		}
		c.attach(nc)
		return c, ""
	}
}

// conn returns the worker's connection to a node, which may not be made yet.
func (w *worker) conn(id nodeID) *loadConn {
	for int(id) >= len(w.conns) {
		w.conns = append(w.conns, nil)
	}
	if w.conns[id] == nil {
		w.conns[id] = &loadConn{epoch: w.run.epoch, timeout: w.run.o.Timeout, node: id, silence: w.run.silenceOf(id)}
	}
	return w.conns[id]
}

// renew makes the connections that the worker needs when a phase begins, and has not: those that it had before, and the
// one to a plain server. If one cannot be made, that is for the operation to find out that needs it.
func (w *worker) renew(ctx context.Context) {
	if w.run.target.table.Load() == nil {
		w.conn(w.home)
	}
	for id, c := range w.conns {
		if c == nil || c.nc != nil {
			continue
		}
		c.failures = 0
		if nc, err := w.run.connect(ctx, w.run.target.addr(nodeID(id))); err == nil {
			c.attach(nc)
		}
	}
}

// count records the batch.
func (w *worker) count() {
	t := w.rec.begin()
	own := t.segment == w.segment // else the operations were taken up in the segment before
	for i := range w.batch {
		p := &w.batch[i]
		w.ended(p)
		if !own {
			if p.failure == leftOpen {
				t.stuck++
			}
			continue
		}
		if p.sent > 0 && w.run.target.table.Load() != nil {
			t.countNode(p)
		}
		service, response := time.Duration(-1), time.Duration(-1)
		if p.sent > 0 || p.failure == "" {
			service = p.done - p.sent
		}
		if p.planned >= 0 {
			response = p.done - p.planned
		}
		switch p.failure {
		case "":
			t.add(p.op, service, response, p.miss)
			for i := p.first; i < p.last; i++ {
				if x := &w.steps[i]; x.message > 0 && x.channel >= 0 && !x.void && w.segment.name == results.PhaseRun {
					w.group.subscribers.published[x.channel].Add(1)
				}
			}
		case leftOpen:
			t.leave(p.op, service, response)
			continue // still held
		case cutOff:
			t.drop(p.op, service, response)
		default:
			t.fail(p.op, p.failure, service, response)
		}
		w.held--
	}
	if own {
		t.held = w.held
		for _, took := range w.popped {
			t.popped.Answer(took)
		}
	}
	w.popped = w.popped[:0]
	w.rec.end()
}

// ended tells the histories and the inserts how the commands of an operation ended. Those behind one that failed were
// not sent.
func (w *worker) ended(p *sentOp) {
	sent := p.step
	if sent < p.last {
		sent = w.behind(sent)
	}
	for i := p.first; i < sent; i++ {
		x := &w.steps[i]
		failure := ""
		switch {
		case i >= p.step:
			failure = p.failure
		case x.void:
			failure = kindVoid
		}
		if x.Insert {
			w.group.src.Inserted(x.Kind, x.Record, failure == "")
		}
		if w.group.histories != nil && x.Does > workloads.Untracked && x.Kind >= 0 {
			w.group.histories.note(p, x, failure)
		}
	}
}

// sleep waits for a time, or until the run stops.
func (w *worker) sleep(d time.Duration) {
	w.timer.Reset(d)
	select {
	case <-w.timer.C:
	case <-w.run.stop:
		w.timer.Stop()
	}
}

// rest waits for a time, or until the segment ends or the run stops.
func (w *worker) rest(seg *phaseSegment, d time.Duration) {
	w.timer.Reset(d)
	select {
	case <-w.timer.C:
		return
	case <-w.run.stop:
	case <-seg.ctx.Done():
	}
	w.timer.Stop()
}

// drop closes the worker's connections, or lets go of those that are closed.
func (w *worker) drop() {
	for _, c := range w.conns {
		if c != nil && c.nc != nil {
			w.run.forget(c.nc)
			c.nc = nil
		}
	}
}

// renew gives the workers of a segment their connections before it begins.
func (r *run) renew(ctx context.Context, seg *phaseSegment) {
	ctx, cancel := context.WithTimeout(ctx, min(r.o.Timeout, askTimeout)) // a node may be gone
	defer cancel()
	var dials errgroup.Group
	dials.SetLimit(dialsAtOnce)
	for i, g := range r.groups {
		for _, w := range g.workers {
			if seg.loads[i].ops != nil {
				dials.Go(func() error {
					w.renew(ctx)
					return nil
				})
			}
		}
	}
	_ = dials.Wait() // of what fails the first operation hears
}

// connect dials, as long as ctx lasts.
func (r *run) connect(ctx context.Context, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, r.o.Timeout)
	defer cancel()
	nc, err := r.target.dial(ctx, addr)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.aborted.Load() {
		nc.Close()
		return nil, context.Canceled
	}
	r.conns[nc] = struct{}{}
	return nc, nil
}

// forget closes a connection.
func (r *run) forget(nc net.Conn) {
	r.mu.Lock()
	delete(r.conns, nc)
	r.mu.Unlock()
	nc.Close()
}
