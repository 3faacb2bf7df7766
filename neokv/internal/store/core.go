package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
)

// core is what the parts of a store share: its options, its disk, its Raft host, its way to the other stores, and how
// long it runs. It knows none of the parts. Open sets the fields before a goroutine of the store starts, but for those
// that the endpoint's calls start: they need a slot table, or a replica that runs, before they touch the engine.
type core struct {
	o        Options
	engine   *engine.Engine
	raft     *multiraft.Host
	endpoint *transport.Endpoint

	reporting bell // has the store report to meta's leader now
	tending   bell // has the store compare the replicas that run with the records

	ctx    context.Context // ends when the store closes
	cancel context.CancelFunc
	wg     sync.WaitGroup // of all goroutines of the store
	ending sync.Mutex     // guards closing
	// closing: nobody from outside begins anything any more, so that wg is not raised while Close waits for it.
	closing bool
}

// bell is a signal to one goroutine. It holds one ring.
type bell chan struct{}

func newBell() bell { return make(bell, 1) }

// ring leaves a signal unless there is one already. It does not block.
func (b bell) ring() {
	select {
	case b <- struct{}{}:
	default:
	}
}

// failed returns why the store has failed, nil while it has not.
func (c *core) failed() error { return c.o.FS.Failed() }

// self returns the id of the store's replica of meta, if it has one.
func (c *core) self() topology.ReplicaID { return meta.ReplicaOn(c.o.ID, c.o.Wiped.Nth) }

// tell tells the cluster's log of an event.
func (c *core) tell(format string, args ...any) {
	if f := c.o.OnChange; f != nil {
		f(fmt.Sprintf(format, args...))
	}
}

// errClosing is the error of what the end of the store cuts short.
var errClosing = errors.New("the store closes")

// errNotLeading is the error of a change that another store has to drive.
var errNotLeading error = notYet{errors.New("the store does not lead the region")}

// enter returns a context for what a caller from outside asks for: it ends with ctx, and when the store closes, which
// waits until the caller calls end. ok is false if the store closes already.
func (c *core) enter(ctx context.Context) (own context.Context, end func(), ok bool) {
	c.ending.Lock()
	defer c.ending.Unlock()
	if c.closing {
		return nil, nil, false
	}
	c.wg.Add(1)
	own, cancel := context.WithCancel(ctx)
	unbind := context.AfterFunc(c.ctx, cancel)
	return own, func() {
		unbind()
		cancel()
		c.wg.Done()
	}, true
}

// leave lets nobody enter from here on, ends the store's context, and returns when all goroutines have ended.
func (c *core) leave() {
	c.ending.Lock()
	c.closing = true
	c.ending.Unlock()
	c.cancel()
	c.wg.Wait()
}

// whileOpen calls f with a context that ends with ctx, and when the store closes. Close waits until f has returned, so
// f may use the engine. If the store has begun to close, whileOpen does not call f.
func (c *core) whileOpen(ctx context.Context, f func(context.Context) error) error {
	own, end, ok := c.enter(ctx)
	if !ok {
		return errClosing
	}
	defer end()
	err := f(own)
	if err != nil && c.ctx.Err() != nil {
		return errClosing
	}
	return err
}

// callTimeout bounds one call to another store.
const callTimeout = Heartbeat / 2

// ask makes a call to another store, bounded by callTimeout, and decodes the reply into answer unless that is nil.
func (c *core) ask(ctx context.Context, to topology.StoreID, m message, answer any) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.askLong(ctx, to, m, answer)
}

// askLong is ask with no bound but ctx.
func (c *core) askLong(ctx context.Context, to topology.StoreID, m message, answer any) error {
	reply, err := c.endpoint.Call(ctx, to, encode(m))
	if err == nil && answer != nil {
		err = json.Unmarshal(reply, answer)
	}
	return err
}

// pause waits for d, and returns false if ctx ends.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// retry calls f until it returns true, and pauses in between, longer and longer up to a limit. It returns false if ctx
// ends first.
func retry(ctx context.Context, longest time.Duration, f func() bool) bool {
	for wait := changePause; !f(); wait = min(2*wait, longest) {
		if !pause(ctx, wait) {
			return false
		}
	}
	return true
}
