package region

import (
	"sync"
	"sync/atomic"
)

// gate counts the readers inside a replica, so that the store closes the engine only after the last one has left. To
// enter or to leave takes one atomic addition. Nobody waits for anything while inside.
type gate struct {
	n       atomic.Int64 // readers inside, plus gateShut once shut
	drained chan struct{}
	once    sync.Once
}

const gateShut = 1 << 62

func newGate() *gate { return &gate{drained: make(chan struct{})} }

// enter reports whether the caller is inside. If so, the caller must leave.
func (g *gate) enter() bool {
	if g.n.Add(1) >= gateShut {
		g.leave()
		return false
	}
	return true
}

func (g *gate) leave() {
	if g.n.Add(-1) == gateShut {
		g.once.Do(func() { close(g.drained) })
	}
}

// shut closes the gate and returns when the last reader has left. It may be called once.
func (g *gate) shut() {
	if g.n.Add(gateShut) == gateShut {
		g.once.Do(func() { close(g.drained) })
	}
	<-g.drained
}
