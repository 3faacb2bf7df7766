package transport

import (
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
)

// linkEnd is the sending end of a link at one endpoint: messages that were sent and have not arrived. It ends with the
// endpoint.
type linkEnd struct {
	e    *Endpoint
	to   topology.StoreID
	link *link

	bytes  atomic.Int64 // in all queues
	unsent queue        // of a paused store: not yet judged by the filter
	held   queue        // by Hold: not yet judged
	wire   queue        // judged, on its way or before a paused store
	late   queue        // sent once more, or late

	reliable sync.Once // see neverTrip
}

func (e *Endpoint) line(to topology.StoreID) *linkEnd {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lines[to]
	if l == nil {
		l = &linkEnd{e: e, to: to, link: e.net.link(e.o.Store, to)}
		l.unsent.forward = func(w waiting) {
			e.place.awake(e.alive)
			e.release(l, w.batch)
		}
		l.held.forward = func(w waiting) {
			e.place.awake(e.alive)
			e.leave(l, w.batch)
		}
		l.wire.forward = func(w waiting) {
			l.link.carry(e.alive, w.size, w.due)
			l.link.to.awake(e.alive)
			e.arrive(l, w.batch)
		}
		l.late.forward = func(w waiting) {
			l.link.to.awake(e.alive)
			e.arriveAgain(l, w.batch)
		}
		e.lines[to] = l
	}
	return l
}

// queue forwards batches in order, none before it is due. Its goroutine starts with the first batch and ends when the
// endpoint falls silent.
type queue struct {
	forward func(waiting) // may wait, until the endpoint falls silent
	count   atomic.Int64  // batches put and not yet forwarded

	mu      sync.Mutex
	batches []waiting
	wake    chan struct{}
}

// waiting is a batch in a queue.
type waiting struct {
	due   time.Time
	size  int // bytes, encoded
	batch pb.MessageBatch
}

// messageMemory is what a waiting message takes in memory beside the bytes of its encoding, about.
const messageMemory = 256

// memory is how much the batch counts towards what may wait on a link.
func (w waiting) memory() int64 { return int64(w.size + messageMemory*len(w.batch.Requests)) }

// busy reports whether a batch put now would have to wait for others.
func (q *queue) busy() bool { return q.count.Load() > 0 }

// put queues a batch, which the caller must not use afterwards. A batch that finds maxQueued bytes waiting on the link
// is lost.
func (q *queue) put(l *linkEnd, b pb.MessageBatch, d time.Duration) {
	if l.e.silent.Load() { // nobody empties the queues any more
		return
	}
	w := waiting{due: time.Now().Add(d), batch: b}
	for i := range b.Requests {
		w.size += b.Requests[i].Size()
	}
	if n := w.memory(); l.bytes.Add(n)-n >= maxQueued {
		l.bytes.Add(-n)
		l.e.lost.Add(int64(len(b.Requests)))
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wake == nil {
		if !l.e.join() {
			return
		}
		q.wake = make(chan struct{}, 1)
		go q.run(l)
	}
	q.count.Add(1)
	q.batches = append(q.batches, w)
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) run(l *linkEnd) {
	defer l.e.owned.Done()
	ctx := l.e.alive
	for {
		next, ok := q.first()
		if !ok {
			select {
			case <-q.wake:
				continue
			case <-ctx.Done():
				return
			}
		}
		// A batch that is due before its predecessor leaves right after it.
		sleep(ctx, time.Until(next.due))
		if ctx.Err() != nil {
			return
		}
		q.forward(next)
		q.count.Add(-1)
		l.bytes.Add(-next.memory())
	}
}

// first removes and returns the first batch.
func (q *queue) first() (waiting, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.batches) == 0 {
		return waiting{}, false
	}
	next := q.batches[0]
	q.batches[0] = waiting{}
	q.batches = q.batches[1:]
	return next, true
}
