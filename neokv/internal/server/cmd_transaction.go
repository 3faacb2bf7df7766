package server

import (
	"bytes"
	"errors"
	"slices"
	"time"
	"unsafe"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/session"
	"neokv.dev/neokv/internal/topology"
)

// This file has transactions: MULTI, EXEC, DISCARD, WATCH, UNWATCH. The session holds the queued commands. At EXEC
// those that are about data become one unit, which the region applies at one instant; the server runs its own commands
// then, each at its place in the reply.

// maxQueueBytes bounds the memory of queued commands. Those of 64 MiB, as sent, can't be executed anyway: see
// region.ErrTooLarge.
const maxQueueBytes = 128 << 20

const (
	errNested      = "ERR MULTI calls can not be nested"
	errWatchInside = "ERR WATCH inside MULTI is not allowed"
	errNoExec      = "ERR EXEC without MULTI"
	errNoDiscard   = "ERR DISCARD without MULTI"
	errAborted     = "EXECABORT Transaction discarded because of previous errors."
	errExecArity   = "EXECABORT Transaction discarded because of: wrong number of arguments for 'exec' command"
	errQueueFull   = "ERR the commands of the transaction take more than 128 MiB of memory"
)

func runMulti(c *conn, args [][]byte) {
	if c.session.Inside() {
		c.out.Error(errNested)
		return
	}
	c.session.Begin()
	c.multi.Store(1)
	c.out.OK()
}

// runExec answers EXEC where no transaction has begun. Else Step says Exec.
func runExec(c *conn, args [][]byte) { c.out.Error(errNoExec) }

func runDiscard(c *conn, args [][]byte) {
	if !c.session.Inside() {
		c.out.Error(errNoDiscard)
		return
	}
	c.endTransaction()
	c.out.OK()
}

func runUnwatch(c *conn, args [][]byte) {
	c.unwatch()
	c.out.OK()
}

func runWatch(c *conn, args [][]byte) {
	if c.session.Inside() {
		// Redis looks first where the keys are: an error about that makes EXEC fail, this one does not.
		if cmd := c.classify(args); c.exec.serves(&cmd) {
			c.out.Error(errWatchInside)
		} else {
			c.session.Break()
		}
		return
	}
	size := region.WatchBytes(args[1:])
	if c.watched.bytes+size > maxQueueBytes {
		c.out.Error("ERR the watched keys take more than 128 MiB of memory")
		return
	}
	if !c.hold(int64(size)) {
		c.closing = true
		return
	}
	if w := c.exec.watch(args[1:], &c.out.Reply); w != nil {
		c.watched.add(w, args[1:])
		c.out.OK()
	}
}

// watched is what a connection watches.
type watched struct {
	all   []*region.Watch
	key   []byte          // one of the keys
	slots []topology.Slot // of the keys, some of them more than once
	bytes int
}

func (x *watched) add(w *region.Watch, names [][]byte) {
	x.all, x.bytes = append(x.all, w), x.bytes+w.Bytes()
	if x.key == nil {
		x.key = bytes.Clone(names[0])
	}
	for _, k := range names {
		if slot, n := topology.SlotOf(k), len(x.slots); n == 0 || x.slots[n-1] != slot {
			x.slots = append(x.slots, slot)
		}
	}
}

func (c *conn) unwatch() {
	for _, w := range c.watched.all {
		w.Close()
	}
	c.watched = watched{}
}

// endTransaction ends the transaction, and with it the watching of keys.
func (c *conn) endTransaction() {
	c.session.End()
	c.multi.Store(0)
	c.queues.Store(0)
	c.unwatch()
}

// enqueue puts a command into the transaction. A command that cannot run, since nobody here serves its keys, is
// answered with the error; EXEC will fail then.
func (c *conn) enqueue(cmd *command) {
	start := len(c.out.Buf)
	switch {
	case !c.exec.serves(cmd):
	case cmd.row.Name == "debug" && !debugAllowed(cmd.args):
		c.out.Error(errDebug)
	case c.session.Queued().Bytes > maxQueueBytes:
		c.out.Error(errQueueFull)
	default:
		c.session.Queue(session.Command{Row: cmd.row, Args: cmd.args, Valid: true})
		c.out.Status("QUEUED")
		if n := len(c.session.Queued().Commands); n > 0 { // none in a transaction that EXEC will refuse
			c.multi.Store(int64(n) + 1)
			c.queues.Store(int64(c.session.Queued().Bytes))
		}
		cmd.rejected = true // it has not run yet
		return
	}
	c.session.Break()
	c.answered(cmd, start, false)
}

// executeBytes is how much memory a queued command takes besides, while EXEC runs it.
const executeBytes = cmdBytes + 3*int64(unsafe.Sizeof(redis.Call{}))

// execute runs the queued commands: EXEC.
func (c *conn) execute(exec *command) {
	start := len(c.out.Buf)
	queued := c.session.Queued().Commands
	defer c.endTransaction()
	if c.session.Broken() {
		c.out.Error(errAborted)
		c.answered(exec, start, true)
		return
	}
	if n := int64(len(queued)) * executeBytes; n > freeRoom && !c.hold(n) {
		c.closing = true
		return
	}
	cmds := make([]command, len(queued))
	for i := range queued {
		if cmds[i] = c.classify(queued[i].Args); cmds[i].is("hello") {
			// It runs behind the unit. So a password that the transaction sets does not count here.
			if version, wrong := c.hello(cmds[i].args, false); wrong == "" {
				cmds[i].proto = version
			}
		}
	}
	if !c.readyInside(cmds) {
		c.closing = true
		return
	}
	u, ran := c.exec.transact(cmds, &c.watched)
	if !ran {
		c.answered(exec, start, false)
		return
	}
	if u.dropped {
		c.out.NullArray()
		return
	}
	alone := len(u.calls) == len(cmds) && !u.wide
	if !alone || len(u.buf) > freeRoom {
		u.take() // the other commands use the executor, too, and what is large shall not stay with it
	}
	exec.executed = true // from here on, each element looks for itself whether replies are kept back
	c.out.within = true
	defer func() { c.out.within = false }()
	if !c.session.Off() {
		c.out.Array(len(cmds))
		if alone && len(u.buf) > freeRoom {
			c.closing = !c.out.flush()
			c.out.Buf = u.buf   // without copying it
			from, moved := 0, 0 // messages to the client itself move the replies behind them
			for i, end := range u.ends {
				size := len(c.out.Buf)
				c.answered(&cmds[i], from, true)
				c.loaded(&cmds[i])
				moved += len(c.out.Buf) - size
				from = end + moved
			}
			c.ran(cmds)
			return
		}
	}
	if len(u.buf) > freeRoom && !c.hold(int64(len(u.buf))) { // for the copy
		c.closing = true
		return
	}
	c.out.Buf = slices.Grow(c.out.Buf, len(u.buf))
	for i := range cmds {
		at := len(c.out.Buf)
		switch cmd := &cmds[i]; {
		case cmd.how == redis.HowEverywhere:
			c.exec.widen(cmd, u.next(), u.slots)
			if c.closing { // its outcome is unknown
				c.out.Buf = c.out.Buf[:min(start, len(c.out.Buf))]
				return
			}
			c.answered(cmd, at, true)
		case cmd.reply != nil:
			c.out.Buf = append(c.out.Buf, cmd.reply...)
			c.answered(cmd, at, true)
		case cmd.inUnit():
			c.out.Buf = append(c.out.Buf, u.next()...)
			c.answered(cmd, at, true)
		default:
			c.runNext(cmds[i : i+1])
		}
		c.loaded(&cmds[i])
		if c.session.Off() {
			c.out.hush(at)
		}
	}
	c.ran(cmds)
}

// loaded loads the script that a command of a transaction has run by its text.
func (c *conn) loaded(cmd *command) {
	if cmd.loads != nil {
		c.exec.node.LoadScript(cmd.loads, false)
	}
}

// inUnit reports whether a queued command is a call of the unit.
func (cmd *command) inUnit() bool {
	return cmd.how == redis.HowRead || cmd.how == redis.HowWrite || cmd.how == redis.HowEverywhere ||
		cmd.how == redis.HowBlocking
}

// unit is the calls of a transaction, as a task of the executor.
type unit struct {
	calls   []redis.Call
	writes  bool
	wide    bool // some calls go over all keys
	watches []*region.Watch
	protos  []redis.Protocol // that HELLO changes to, by calls of the unit

	// What became of it.
	slots   topology.SlotRange // of its region
	dropped bool               // a watched key has changed
	refused string
	part    *part
	group   int    // its index among the groups of the part
	ends    []int  // of the calls' replies in buf; valid until the executor is reset, but for take
	buf     []byte // of the part
	at      int    // of next
	given   int
}

// next returns the reply of the next call.
func (u *unit) next() []byte {
	end := u.ends[u.given]
	reply := u.buf[u.at:end:end]
	u.at, u.given = end, u.given+1
	return reply
}

// join makes a part of the unit, which is the task of the given index.
func (u *unit) join(p *part, task int, slots topology.SlotRange) {
	u.slots, u.group = slots, len(p.run.Groups)
	from := len(p.run.Calls)
	p.run.Calls = append(p.run.Calls, u.calls...)
	for range u.calls {
		p.tasks = append(p.tasks, task)
	}
	if len(u.protos) > 0 {
		p.run.Protocols = append(p.run.Protocols, redis.Protocol{From: from, Version: p.run.Out.Proto})
		for _, change := range u.protos {
			p.run.Protocols = append(p.run.Protocols, redis.Protocol{From: from + change.From, Version: change.Version})
		}
	}
	p.run.Groups = append(p.run.Groups, redis.Group{From: from, To: len(p.run.Calls), Kind: redis.GroupExec})
	p.pending.Watches = u.watches
}

// collect takes the unit's replies from the part, in which it begins with a call whose reply begins at from. It returns
// how many there are: of reads fewer than calls, if there was no room for a reply.
func (u *unit) collect(p *part, call, from int) (n int) {
	n = min(len(u.calls), len(p.run.Ends)-call)
	u.part, u.ends, u.buf, u.at = p, p.run.Ends[call:call+n], p.run.Out.Buf, from
	for _, d := range p.run.Dropped {
		if d.Group == u.group {
			u.dropped, u.refused = d.Error == "", d.Error
		}
	}
	return n
}

// take takes the replies from the executor.
func (u *unit) take() {
	if u.part != nil {
		u.part.run.Ends, u.part.run.Out.Buf = nil, nil
	}
}

// transact runs those of the queued commands that are calls of the unit. If the transaction cannot run, ran is not set,
// and the reply says why.
func (e *executor) transact(cmds []command, w *watched) (u *unit, ran bool) {
	u = &unit{watches: w.all}
	e.reset()
	e.alone = true // for what is counted of a command's work
	e.work.Begin()
	t := task{unit: u, follow: e.mayFollow() && len(w.all) == 0}
	for i := range cmds {
		cmd := &cmds[i]
		if cmd.proto > 0 {
			u.protos = append(u.protos, redis.Protocol{From: len(u.calls), Version: cmd.proto})
		}
		if !cmd.inUnit() {
			continue
		}
		call := cmd.call()
		u.calls = append(u.calls, call)
		u.wide = u.wide || cmd.how == redis.HowEverywhere
		u.writes = u.writes || cmd.how != redis.HowRead // what goes over all keys has no function for a view
		e.addSlots(call.Command, call.Args)
	}
	e.slots = append(e.slots, w.slots...)
	switch {
	case len(u.calls) > 0:
	case len(w.all) == 0:
		return u, true
	default: // whether a watched key has changed is to be found out all the same
		args := [][]byte{[]byte("exists"), w.key}
		u.calls = append(u.calls, redis.Call{Command: redis.Lookup(args[0]), Args: args})
	}
	if t.slots = e.slots; len(t.slots) > 0 {
		t.slot = t.slots[0]
	} else {
		t.slot = e.anySlot()
		t.slots = nil
	}
	if u.writes || len(w.all) > 0 {
		t.follow = false
	}
	e.tasks = append(e.tasks, t)
	how := redis.HowRead
	if u.writes {
		how = redis.HowWrite
	}
	e.scripting.begin(cmds, how)
	defer e.scripting.end()
	if u.writes || len(w.all) > 0 {
		e.exec(writes)
	} else {
		e.exec(reads)
	}
	if e.note(); e.full() {
		e.out.Full = true
		return u, false
	}
	x := &e.tasks[0]
	switch {
	case e.breaksOff(e.tasks):
		return u, false
	case x.outcome != executed:
		e.out.Buf = append(e.out.Buf, x.reply...)
		return u, false
	case u.refused != "":
		e.out.Error(u.refused)
		return u, false
	}
	return u, true
}

// fold runs transactions that stand whole in the pipeline, one behind the other, as one batch, so that they share
// entries of the log. It returns how many commands they have, 0 if there are fewer than two such transactions.
func (c *conn) fold(cmds []command) (n int) {
	if len(c.watched.all) > 0 || c.s.pause.Load() != nil {
		return 0
	}
	units := 0
	for {
		size := c.whole(cmds[n:])
		if size == 0 || n+size > maxWrites {
			break
		}
		n, units = n+size, units+1
	}
	if units < 2 {
		return 0
	}
	e := &c.exec
	e.reset()
	e.work.Begin()
	var u *unit
	first := 0 // of the unit's slots
	for i := range cmds[:n] {
		switch cmd := &cmds[i]; {
		case cmd.is("multi"):
			u, first = &unit{writes: true}, len(e.slots)
		case cmd.is("exec"):
			t := task{unit: u, slots: e.slots[first:len(e.slots):len(e.slots)]}
			t.slot = t.slots[0]
			e.tasks = append(e.tasks, t)
		default:
			u.calls = append(u.calls, cmd.call())
			e.addSlots(cmd.row, cmd.args)
		}
	}
	e.exec(writes)
	if e.note(); e.full() {
		e.out.Full = true
		return n
	}
	at := 0
	for i := range e.tasks {
		t := &e.tasks[i]
		inside := cmds[at+1 : at+1+len(t.unit.calls)]
		at += len(inside) + 2
		c.out.OK()
		for range inside {
			c.out.Status("QUEUED")
		}
		start := len(c.out.Buf)
		if t.outcome == executed && t.unit.refused == "" {
			c.out.Array(len(inside))
			for k := range inside {
				from := len(c.out.Buf)
				c.out.Buf = append(c.out.Buf, t.unit.next()...)
				c.answered(&inside[k], from, true)
			}
			continue
		}
		for k := range inside {
			inside[k].rejected = true // they have not run, or nobody knows
		}
		if e.breaksOff(e.tasks[i : i+1]) {
			return at - 1
		}
		if t.outcome == executed {
			c.out.Error(t.unit.refused)
		} else {
			c.out.Buf = append(c.out.Buf, t.reply...)
		}
		c.answered(&cmds[at-1], start, false)
	}
	return n
}

// whole returns how many commands the transaction has with which the pipeline goes on, MULTI and EXEC included. It is 0
// if there is none that can be folded: one of writes alone, each of which would be queued.
func (c *conn) whole(cmds []command) int {
	for i := range cmds {
		switch cmd := &cmds[i]; {
		case i == 0 && cmd.is("multi"):
		case i > 1 && cmd.is("exec"):
			return i + 1
		case i == 0 || cmd.how != redis.HowWrite:
			return 0
		default:
			start := len(c.out.Buf)
			if !c.exec.serves(cmd) || len(c.exec.slots) == 0 {
				c.out.Buf = c.out.Buf[:start]
				return 0
			}
		}
	}
	return 0
}

// addSlots appends the slots of a call's keys to e.slots.
func (e *executor) addSlots(row *redis.Command, args [][]byte) {
	e.positions = row.AppendKeys(e.positions[:0], args)
	for _, p := range e.positions {
		e.slots = append(e.slots, topology.SlotOf(args[p]))
	}
}

// serves reports whether a command that is queued may run here, as far as the slot table says now: whether its keys lie
// together, and not on another store. If not, the reply says so.
func (e *executor) serves(cmd *command) bool {
	switch {
	case cmd.how == redis.HowEverywhere:
		return !e.writesToReplica(cmd)
	case len(cmd.row.Keys) == 0 && cmd.row.FindKeys == nil:
		return true
	}
	e.reset()
	e.addSlots(cmd.runs(), cmd.args)
	t := e.node.Table()
	if len(e.slots) == 0 || t == nil {
		return true
	}
	follow := cmd.row.Flags&redis.FlagReadonly != 0 && e.mayFollow()
	d := route.Decide(t, e.port, e.slots, follow)
	if len(t.Windows) > 0 {
		known := false
		if d, known = e.show(t, d, []redis.Call{{Command: cmd.runs(), Args: cmd.args}}); !known {
			return true
		}
	}
	if d.Action == route.Serve || d.Action == route.Wait || d.Action == route.Moved && e.outdated(t, d) {
		return true
	}
	e.deny(e.out, d)
	return false
}

// awaitServed waits until a store serves a slot of shard channels, and reports whether this port does. If not, the
// reply says why. Nobody lacks a channel, so where clients are shown a migration of the slot both sides serve it.
func (e *executor) awaitServed(slot topology.Slot) bool {
	slots := []topology.Slot{slot}
	deadline := time.Now().Add(e.knobs.LeaderlessWait)
	for {
		changed, t := e.node.Changed(), e.node.Table()
		d := route.Decide(t, e.port, slots, false)
		switch {
		case d.Action == route.Serve, d.Action == route.Moved && e.caller.asking() && t.Window(e.port, slot) != nil:
			return true
		case d.Action == route.Wait, d.Action == route.Moved && e.outdated(t, d):
			if e.wait(changed, deadline) {
				continue
			}
			d = route.Unserved(t, e.port.Store, slot, e.unserved.Add(1)-1)
		}
		e.deny(e.out, d)
		return false
	}
}

// watch begins to watch keys in the region that has them. It returns nil if it cannot; the reply says why.
func (e *executor) watch(names [][]byte, out *redis.Reply) *region.Watch {
	e.reset()
	for _, k := range names {
		e.slots = append(e.slots, topology.SlotOf(k))
	}
	deadline := time.Now().Add(e.knobs.LeaderlessWait)
	for {
		changed, t := e.node.Changed(), e.node.Table()
		d := route.Decide(t, e.port, e.slots, false)
		known := true
		if t != nil && len(t.Windows) > 0 {
			args := slices.Concat([][]byte{[]byte("watch")}, names)
			d, known = e.show(t, d, []redis.Call{{Command: commands.Lookup(args[0]), Args: args}})
		}
		switch {
		case !known:
		case d.Action == route.Serve:
			r := &t.Regions[d.Index]
			replica := e.node.Replica(r.Leader, r.ID)
			if replica == nil {
				break
			}
			w, err := replica.Watch(names, r.Version, deadline)
			switch {
			case err == nil:
				return w
			case errors.Is(err, region.ErrNotLeader), errors.Is(err, region.ErrStopped),
				errors.Is(err, region.ErrDeadline), errors.Is(err, region.ErrBounds):
			default:
				out.Error("ERR " + err.Error())
				return nil
			}
		case d.Action == route.Wait, d.Action == route.Moved && e.outdated(t, d):
		default:
			e.deny(out, d)
			return nil
		}
		if !e.wait(changed, deadline) {
			d := route.Unserved(t, e.port.Store, e.slots[0], e.unserved.Add(1)-1)
			e.deny(out, d)
			return nil
		}
	}
}
