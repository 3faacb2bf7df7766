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
	to   topology.StoreID
	link *link
	held queue // not yet through the filter
	wire queue // through the filter, on its way
	late queue // sent once more, or late; by Disturb
}

func (e *Endpoint) line(to topology.StoreID) *linkEnd {
	e.mu.Lock()
	defer e.mu.Unlock()
	l := e.lines[to]
	if l == nil {
		l = &linkEnd{to: to, link: e.net.link(e.o.Store, to)}
		l.held.forward = func(b pb.MessageBatch) { e.leave(l, b) }
		l.wire.forward = func(b pb.MessageBatch) { e.arrive(l, b) }
		l.late.forward = func(b pb.MessageBatch) { e.arriveAgain(l, b) }
		e.lines[to] = l
	}
	return l
}

// queue forwards batches in order, each when it is due. Its goroutine starts with the first batch and ends with the
// endpoint.
type queue struct {
	forward func(pb.MessageBatch)
	waiting atomic.Int64 // batches put and not yet forwarded

	mu      sync.Mutex
	batches []timed
	wake    chan struct{}
}

type timed struct {
	due   time.Time
	batch pb.MessageBatch
}

// busy reports whether a batch put now would have to wait for others.
func (q *queue) busy() bool { return q.waiting.Load() > 0 }

// put queues a batch. The caller must not use it afterwards.
func (q *queue) put(e *Endpoint, b pb.MessageBatch, d time.Duration) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.wake == nil {
		if !e.join() {
			return
		}
		q.wake = make(chan struct{}, 1)
		go q.run(e)
	}
	q.waiting.Add(1)
	q.batches = append(q.batches, timed{time.Now().Add(d), b})
	select {
	case q.wake <- struct{}{}:
	default:
	}
}

func (q *queue) run(e *Endpoint) {
	defer e.owned.Done()
	for {
		next, ok := q.first()
		if !ok {
			select {
			case <-q.wake:
				continue
			case <-e.ctx.Done():
				return
			}
		}
		// A batch that is due before its predecessor leaves right after it.
		pause(e.ctx, time.Until(next.due))
		if e.ctx.Err() != nil {
			return
		}
		q.forward(next.batch)
		q.waiting.Add(-1)
	}
}

// first removes and returns the first batch.
func (q *queue) first() (timed, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.batches) == 0 {
		return timed{}, false
	}
	next := q.batches[0]
	q.batches[0] = timed{}
	q.batches = q.batches[1:]
	return next, true
}
