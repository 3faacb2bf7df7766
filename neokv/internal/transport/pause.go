package transport

import (
	"context"

	"neokv.dev/neokv/internal/topology"
)

// Pause stops a store's traffic as if the store's process were stopped by a signal: no message leaves the store or
// arrives at it. Its messages wait at the store and those of others on their links, up to 32 MiB on each link. Calls
// from and to the store wait until their contexts end. Resume lets everything go on in order. What had left the store
// before goes on, and what is just being handed over may still arrive.
//
// A pause belongs to the store's present endpoint. It ends when that endpoint is isolated or closed, or another one
// takes its place, as a stopped process ends when it is killed. What the store has not sent is lost then. What waited
// for the store goes on, and is lost while the store is down. The next endpoint is not paused. Pause does nothing if
// the store has no endpoint.
func (n *Network) Pause(store topology.StoreID) {
	if e := n.place(store).now.Load(); e != nil {
		resumed := make(chan struct{})
		e.paused.CompareAndSwap(nil, &resumed)
	}
}

// Resume ends a Pause.
func (n *Network) Resume(store topology.StoreID) {
	if e := n.place(store).now.Load(); e != nil {
		if resumed := e.paused.Swap(nil); resumed != nil {
			close(*resumed)
		}
	}
}

// paused reports whether the store that is here now is paused.
func (p *location) paused() bool {
	e := p.now.Load()
	return e != nil && e.paused.Load() != nil
}

// awake waits while the store is paused, or until ctx ends.
func (p *location) awake(ctx context.Context) {
	for {
		e := p.now.Load()
		if e == nil {
			return
		}
		resumed := e.paused.Load()
		if resumed == nil {
			return
		}
		select {
		case <-*resumed: // and perhaps paused again
		case <-e.alive.Done():
			return
		case <-ctx.Done():
			return
		}
	}
}
