package server

import (
	"errors"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file has the blocking pops, BLPOP and its kin, and CLIENT UNBLOCK. A pop runs alone. Where there is nothing to
// pop, the region keeps it (region.Replica.Block), and the executor returns with its pop set. Server.serve then has a
// new goroutine linger, whose stack is small: it reads from its client, so that it notices the client's end, and keeps
// what the client sends. The region wakes it by a read deadline in the past. Whatever else ends the waiting, the
// executor cancels the pop, and then does what the region says: an entry under way may have served it.

const errUnblocked = "UNBLOCKED client unblocked via CLIENT UNBLOCK"

// pop is a blocking pop that is not answered yet.
type pop struct {
	cmd      *command
	slots    []topology.Slot
	since    time.Time // when it arrived
	until    time.Time // when its client waits no longer
	deadline time.Time // until when the executor looks for a leader
	waited   bool      // it has waited at a region, so its client is told nothing where the next region is busy
	replica  replica   // that has the present try
	try      *region.Pending
}

// runBlocking begins a blocking pop of a connection that is in no transaction.
func (e *executor) runBlocking(cmd *command) {
	e.reset()
	cmd.args = cloneArgs(cmd.args) // the region keeps them
	call := cmd.call()
	e.addSlots(call.Command, call.Args)
	if len(e.slots) == 0 { // a wrong number of keys: any region says so
		e.slots = append(e.slots, e.anySlot())
	}
	now := time.Now()
	e.pop = &pop{cmd: cmd, slots: slices.Clone(e.slots), since: now, until: after(math.MaxInt64),
		deadline: now.Add(e.knobs.LeaderlessWait)}
	if ms, ok := call.Command.TimeoutMS(call.Args); ok && ms > 0 {
		e.pop.until = after(ms)
	}
	e.tryPop()
}

// tryPop hands the pop to the region that serves its keys. It returns when the pop waits there, or is answered, which
// ends it.
func (e *executor) tryPop() {
	x := e.pop
	for {
		changed, t := e.node.Changed(), e.node.Table()
		d := route.Decide(t, e.port, x.slots, false)
		known := true
		if t != nil && len(t.Windows) > 0 {
			call := x.cmd.call()
			d, known = e.show(t, d, []redis.Call{call})
		}
		switch {
		case !known:
		case d.Action == route.Serve:
			r := &t.Regions[d.Index]
			if x.replica = e.node.Replica(r.Leader, r.ID); x.replica == nil {
				break
			}
			x.try = &region.Pending{Run: &redis.Run{Version: r.Version, Calls: []redis.Call{x.cmd.call()}, By: e.by},
				Since: x.since, Deadline: x.deadline, Wake: e.caller.wake}
			if e.mistakes.NewSince {
				x.try.Since = time.Now()
			}
			out := &x.try.Run.Out
			out.Proto, out.More, out.Room = e.out.Proto, e.out.More, freeRoom
			x.replica.Block(x.try)
			if !x.replica.Await(x.try, e.closing) {
				x.replica.Cancel(x.try)
				e.caller.stop()
				e.pop = nil
				return
			}
			if x.try.Parked || e.popped(byRegion) {
				return
			}
			if now := time.Now(); x.waited && errors.Is(x.try.Err, region.ErrDeadline) && now.Before(x.until) {
				x.deadline = now.Add(e.knobs.LeaderlessWait) // behind very many others who have come with it
				continue
			}
		case d.Action == route.Wait, d.Action == route.Moved && e.outdated(t, d):
		default:
			e.endPop(false, func() { e.deny(e.out, d) })
			return
		}
		if e.wait(changed, minTime(x.deadline, x.until)) {
			continue
		}
		if !time.Now().Before(x.until) {
			e.endPop(true, e.out.NullArray)
			return
		}
		d = route.Unserved(t, e.port.Store, x.slots[0], e.unserved.Add(1)-1)
		e.endPop(false, func() { e.deny(e.out, d) })
		return
	}
}

// resume goes on with a pop that has waited until something has ended that. It reports whether that has ended the pop,
// too.
func (e *executor) resume(end ending) bool {
	x := e.pop
	if end != byRegion {
		x.replica.Cancel(x.try)
		if !x.replica.Await(x.try, e.closing) {
			e.caller.stop()
			e.pop = nil
			return false
		}
	}
	canceled := x.try.Err != nil
	if !e.popped(end) {
		x.deadline, x.waited = time.Now().Add(e.knobs.LeaderlessWait), true
		e.tryPop()
		return false
	}
	return canceled
}

// popped answers the pop by the outcome of its try. It returns false if another try has to be made, since nothing was
// popped, and the region serves the keys no longer.
func (e *executor) popped(end ending) bool {
	x := e.pop
	p := x.try
	err := p.Err
	again := errors.Is(err, region.ErrNotLeader) || errors.Is(err, region.ErrStopped) ||
		errors.Is(err, region.ErrDeadline) || errors.Is(err, region.ErrBounds)
	switch {
	case err == nil:
		e.caller.wrote(x.replica.ID(), lastWrite{p.Index, x.slots[0]})
		e.endPop(true, func() { e.out.Buf, e.out.Full = append(e.out.Buf, p.Run.Out.Buf...), p.Run.Out.Full })
	case again && end == byRegion:
		return false
	case end == byDisconnect:
		e.caller.stop()
		e.pop = nil
	case errors.As(err, new(*region.UnknownOutcome)):
		// What the client may have been given is lost with its connection, and with nothing else.
		e.caller.undecided(err.Error())
		e.pop = nil
	case again || errors.Is(err, region.ErrCanceled):
		e.endPop(true, func() {
			if end == byUnblock {
				e.out.Error(errUnblocked)
			} else {
				e.out.NullArray()
			}
		})
	case errors.Is(err, region.ErrNoSpace):
		e.endPop(true, func() { e.out.Error(redis.ErrNoSpace) })
	default:
		e.endPop(false, func() { e.out.Error("ERR " + err.Error()) })
	}
	return true
}

// endPop answers the pop by f.
func (e *executor) endPop(made bool, f func()) {
	start, cmd := len(e.out.Buf), e.pop.cmd
	e.pop = nil
	f()
	e.caller.answered(cmd, start, made)
}

func minTime(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// ending says what has ended a wait.
type ending byte

const (
	byRegion ending = iota
	byTimeout
	byUnblock
	byDisconnect // or the end of the server
)

// blocking is what other goroutines need of a connection whose client waits: in a pop, or in WAIT.
type blocking struct {
	mu    sync.Mutex    // a leaf: regions wake connections
	reads bool          // linger reads, and the read deadline is its own
	may   bool          // CLIENT UNBLOCK may end the wait
	asked *unblock      // since may was set
	woken chan struct{} // gets a value from wake; nil unless linger cannot read
}

// unblock is a request to unblock a client.
type unblock struct {
	byError bool
	done    chan bool // gets whether that has ended the wait; capacity 1
}

// enter lets CLIENT UNBLOCK end what follows, until leave.
func (b *blocking) enter() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.may = true
}

// leave says whether the request to unblock, if there is one, has ended the wait.
func (b *blocking) leave(ended bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asked != nil {
		b.asked.done <- ended
	}
	b.may, b.asked = false, nil
}

// request returns the request to unblock, nil if there is none.
func (b *blocking) request() *unblock {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.asked
}

// begin begins linger, end ends it.
func (b *blocking) begin() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads = true
}

func (b *blocking) end() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.reads, b.woken = false, nil
}

// wakes returns a channel that gets a value from wake from now on.
func (b *blocking) wakes() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.woken == nil {
		b.woken = make(chan struct{}, 1)
	}
	return b.woken
}

// wake has linger look what has happened. It takes no lock but one that is a leaf.
func (c *conn) wake() {
	b := &c.blocking
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.reads {
		c.nc.SetReadDeadline(past)
	}
	if b.woken != nil {
		select {
		case b.woken <- struct{}{}:
		default:
		}
	}
}

// linger waits until the given time, until done has a value, which it takes, or until CLIENT UNBLOCK asks, where it
// may. The reader keeps the bytes that the client sends meanwhile. The caller has sent all replies.
func (c *conn) linger(until time.Time, done <-chan struct{}) ending {
	c.limited, c.flushed = true, true
	c.blocking.begin()
	defer c.blocking.end()
	for {
		c.nc.SetReadDeadline(until)
		select {
		case <-done:
			return byRegion
		default:
		}
		switch {
		case c.blocking.request() != nil:
			return byUnblock
		case !time.Now().Before(until):
			return byTimeout
		case !c.rd.room():
			return c.lingerDeaf(until, done)
		}
		n, err := c.rd.read()
		c.s.stats.received(n, c.rd.takeReads())
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) || n > 0 && !c.account() {
			return byDisconnect
		}
	}
}

// lingerDeaf is linger where the reader has no room: the client sends on and on.
func (c *conn) lingerDeaf(until time.Time, done <-chan struct{}) ending {
	woken := c.blocking.wakes()
	if c.blocking.request() != nil {
		return byUnblock
	}
	late := time.NewTimer(time.Until(until))
	defer late.Stop()
	for {
		select {
		case <-done:
			return byRegion
		case <-late.C:
			return byTimeout
		case <-c.ctx.Done():
			return byDisconnect
		case <-woken:
			if c.blocking.request() != nil {
				return byUnblock
			}
		}
	}
}

// waitBytes is what a region and the connection hold for each argument of a blocking pop, besides the argument.
const waitBytes = 300

// slimBuffer is how many bytes the reader of a blocked connection has room for.
const slimBuffer = 64

// await waits for the end of the executor's pop, or for what ends the wait. It is called where the stack is small.
func (c *conn) await() {
	if c.ended = byDisconnect; c.park() {
		c.ended = c.linger(c.exec.pop.until, c.exec.pop.try.Done())
	}
}

// park prepares the connection to wait for the executor's pop. It returns false if the connection is over.
func (c *conn) park() bool {
	cmd := c.exec.pop.cmd
	c.parked = time.Now()
	if all := c.s.monitors.all.Load(); all != nil && !cmd.shown {
		c.show(*all, c.cmds[c.at:c.at+1], c.parked)
		cmd.shown = true
	}
	if !c.out.flush() {
		return false
	}
	c.parkTracked()
	c.block(true)
	c.blocking.enter()
	for _, a := range cmd.args {
		c.waits.Add(int64(len(a) + waitBytes))
	}
	if c.at == len(c.cmds)-1 && c.rd.start == c.rd.end {
		c.slim()
	}
	return c.account()
}

// block notes whether the connection waits.
func (c *conn) block(waits bool) {
	switch was := c.blocked.Swap(waits); {
	case c.trusted:
	case waits && !was:
		c.s.blocked.Add(1)
	case was && !waits:
		c.s.blocked.Add(-1)
	}
}

// slim gives up the memory that a connection does not need while its client is blocked by the last command that it has
// sent.
func (c *conn) slim() {
	c.cmds, c.at = []command{*c.exec.pop.cmd}, 0
	c.exec.pop.cmd = &c.cmds[0]
	c.argv = nil
	c.out.Buf = nil
	c.exec.shed()
	c.rd.slim()
}

// resume goes on with the executor's pop behind await.
func (c *conn) resume() {
	c.block(false)
	c.rd.widen()
	c.since = c.since.Add(time.Since(c.parked)) // the time spent waiting counts for no command
	c.waits.Store(0)
	c.out.begin()
	end := c.ended
	if end == byUnblock && !c.blocking.request().byError {
		end = byTimeout
	}
	ended := c.exec.resume(end)
	c.blocking.leave(ended && c.ended == byUnblock)
}

// cloneArgs copies arguments, which are in few pieces of memory then.
func cloneArgs(args [][]byte) [][]byte {
	size := 0
	for _, a := range args {
		size += len(a)
	}
	all, room := make([][]byte, len(args)), make([]byte, 0, size)
	for i, a := range args {
		n := len(room)
		room = append(room, a...)
		all[i] = room[n:len(room):len(room)]
	}
	return all
}

// runClientUnblock has a client go on that waits in a blocking pop or in WAIT.
func runClientUnblock(c *conn, args [][]byte) {
	byError := len(args) == 4 && redis.IsOption(args[3], "error")
	switch {
	case len(args) > 4:
		c.unknownUse(args)
		return
	case len(args) == 4 && !byError && !redis.IsOption(args[3], "timeout"):
		c.out.Error("ERR CLIENT UNBLOCK reason should be TIMEOUT or ERROR")
		return
	}
	id, ok := redis.ParseInt(args[2])
	if !ok {
		c.out.Error(redis.ErrNotInteger)
		return
	}
	c.s.mu.Lock()
	x := c.s.clients[uint64(id)]
	c.s.mu.Unlock()
	if x != nil && x.unblock(byError) {
		c.out.Int(1)
	} else {
		c.out.Int(0)
	}
}

// unblock ends what the client waits for, where CLIENT UNBLOCK may, and reports whether it has.
func (c *conn) unblock(byError bool) bool {
	asked := &unblock{byError, make(chan bool, 1)}
	c.blocking.mu.Lock()
	may := c.blocking.may && c.blocking.asked == nil
	if may {
		c.blocking.asked = asked
	}
	c.blocking.mu.Unlock()
	if !may {
		return false
	}
	c.wake()
	select {
	case done := <-asked.done:
		return done
	case <-c.ctx.Done():
		return false
	}
}
