package transport

import (
	"context"
	"fmt"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/topology"
)

// memoryWire is the wire of a network in memory: it hands messages over by reference, on the sender's goroutine.
type memoryWire struct{ e *Endpoint }

func (w memoryWire) send(l *linkEnd, b pb.MessageBatch) {
	if to := l.link.to.now.Load(); to != nil {
		to.receive(b)
	}
}

func (w memoryWire) chunk(c *connection, chunk pb.Chunk) error {
	switch to := c.l.link.to.now.Load(); {
	case to == nil:
		return notRunning(c.l.to)
	case to.silent.Load():
		return cutOff(w.e.o.Store, c.l.to)
	default:
		return to.take(chunk)
	}
}

func (w memoryWire) call(ctx context.Context, to topology.StoreID, request []byte) (callAnswer, error) {
	other := w.e.net.place(to).now.Load()
	if other == nil || other.o.Handle == nil || !other.join() {
		return callAnswer{}, notRunning(to)
	}
	defer other.owned.Done()
	if other.silent.Load() {
		return callAnswer{}, errNoAnswer
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(other.ctx, cancel)()
	var a callAnswer
	a.bytes, a.err = other.o.Handle(ctx, w.e.o.Store, request)
	switch {
	case other.ctx.Err() != nil:
		return callAnswer{}, fmt.Errorf("%s: stopped before it answered", to.RaftAddress())
	case other.silent.Load():
		return callAnswer{}, errNoAnswer
	}
	return a, nil
}

func (w memoryWire) close() {}
