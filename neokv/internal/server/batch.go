package server

import (
	"errors"
	"slices"
	"time"
	"unsafe"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

const (
	maxWrites   = 4096      // in one batch
	firstReads  = 16        // in one batch, until it is known how large the replies are
	maxReads    = 4096      // in one batch
	wantReplies = 128 << 10 // bytes of replies that a batch of reads should not exceed by much: a client that does not read holds them
)

// oneTry is how long a replica that is known to lead is given at least for commands that wait for no other reason, and at most
// before a batch of reads looks at its other regions. It is longer than two read index rounds of which the first gets no answer.
const oneTry = 400 * time.Millisecond

// batch runs commands that do not depend on each other's replies: writes, or reads. It groups them by region, keeps the order within a
// region, and hands all groups over before it waits for the first. Commands of regions without a known leader, or whose
// replica turns out not to lead, are tried again as the slot table changes, until the pipeline's deadline.
//
// Order: a connection runs one batch after the other, and within a batch what is handed over again is the rest of a group from its
// first call on that was provably not applied; so no later write of the connection for that region can be ahead of it.
//
// Time: a batch has redis.leaderless_wait, from its turn on: a pipeline may take long as long as it goes on. When a batch has used that up, the
// whole pipeline has: the batches behind it give up at once on the regions that it waited for, and on those that have no leader.
// Another region's leader has a try, but all of these tries together no more time than one.
//
// All its memory is reused.
type batch struct {
	c         *conn
	tasks     []task
	parts     []*part // of all rounds of this batch; parts[:used]
	used      int
	partOf    []int // by index in Table.Regions: index of the round's part plus one
	errs      redis.Reply
	slots     []topology.Slot
	positions []int
	args      [][]byte // of commands that were cut
	order     []int    // of the command that was cut last, by key: its task
	counts    []int    // scratch of cut
	ends      []int    // by command that runs together with others: the end of its tasks
	timer     *time.Timer
	readLimit int
	more      func(bytes int) int // moreOfReads
	impatient bool                // nothing is tried again
	bounded   bool                // reads may be left for later
	follow    bool                // reads with keys are served by followers, too

	overdue  map[topology.RegionID]bool // regions that used up the time of the pipeline that arrived at waited
	waited   time.Time
	deadline time.Time // of the batch, or of the pipeline's first batch that has used its time up
}

// task is one call and what became of it.
type task struct {
	call  redis.Call
	slots []topology.Slot // of its keys; nil: slot alone
	slot  topology.Slot
	led   bool // it concerns only what this store leads: where it does not lead, there is nothing to do

	follow bool // a replica that does not lead will do

	done  bool
	later bool   // done, and not run: the batch's replies are large enough
	gone  bool   // done, and without a reply: it was led, and another store leads now
	err   bool   // the reply is an error of routing or of Raft: the call did not run, or nobody knows
	reply []byte // valid until the batch is reset
}

// part is what goes to one replica in one round.
type part struct {
	region  int // index in Table.Regions
	id      topology.RegionID
	store   topology.StoreID
	replica *region.Replica
	follow  bool
	run     redis.Run
	pending region.Pending
	tasks   []int // by call
}

// limit is how many commands of a kind make a batch.
func (b *batch) limit(k kind) int {
	if k == read {
		return b.readLimit
	}
	return maxWrites
}

// runTogether runs reads or writes of the pipeline and appends their replies in order; writes that concern several regions are cut. It
// returns how many it has run: of reads with large replies not all, but one at least.
func (b *batch) runTogether(cmds []command, k kind) (ran int) {
	b.reset()
	b.follow = k == read && b.c.s.o.Settings.Redis.FollowerRead && b.c.info.Load().readOnly
	b.ends = b.ends[:0]
	for i := range cmds {
		switch cmd := &cmds[i]; {
		case !cmd.cut:
			b.add(cmd)
		default:
			if t := b.c.awaitTable(); t != nil {
				b.addCut(t, cmd)
			} else {
				b.tasks = append(b.tasks, task{})
				b.fail(&b.tasks[len(b.tasks)-1], redis.ErrClusterDown)
			}
		}
		b.ends = append(b.ends, len(b.tasks))
	}
	b.follow = false
	b.bounded = k == read
	b.exec(k == write)
	b.bounded = false
	before := len(b.c.out.Buf)
	if b.full() { // the connection ends
		b.c.out.Full = true
		return len(cmds)
	}
	if b.takeReply() {
		b.c.answered(&cmds[0], 0, true)
		b.readLimit = 1
		return 1
	}
	size := 0
	for i := range b.tasks {
		size += len(b.tasks[i].reply)
	}
	b.c.out.Buf = slices.Grow(b.c.out.Buf, size) // else large replies are copied several times while it grows
	from := 0
	for ; ran < len(b.ends) && !b.tasks[from].later; ran++ {
		tasks, start := b.tasks[from:b.ends[ran]], len(b.c.out.Buf)
		b.answer(&cmds[ran], tasks, nil, &b.c.out)
		b.c.answered(&cmds[ran], start, len(tasks) > 1 || !tasks[0].err)
		from = b.ends[ran]
	}
	if k == read {
		perRead := (len(b.c.out.Buf)-before)/ran + 1
		b.readLimit = max(1, min(maxReads, wantReplies/perRead, 4*b.readLimit))
	} else {
		b.note()
	}
	kept := 0
	for _, p := range b.parts[:b.used] { // the replies have been copied
		if kept += cap(p.run.Out.Buf); kept > wantReplies {
			p.run.Out.Buf = nil
		}
	}
	return ran
}

// takeReply makes a single large reply of a read the connection's without a copy, and reports whether it did.
func (b *batch) takeReply() bool {
	if b.c.turn == nil || len(b.tasks) != 1 || b.tasks[0].err || b.tasks[0].gone || b.used != 1 || len(b.c.out.Buf) > 0 {
		return false
	}
	b.c.out.Buf = b.parts[0].run.Out.Buf
	b.parts[0].run.Out.Buf = nil
	return true
}

// note remembers where the writes of the batch went, for WAIT.
func (b *batch) note() {
	for _, p := range b.parts[:b.used] {
		if p.pending.Index == 0 {
			continue
		}
		if b.c.wrote == nil {
			b.c.wrote = make(map[topology.RegionID]uint64)
		}
		b.c.wrote[p.id] = max(b.c.wrote[p.id], p.pending.Index)
	}
}

// bytes is how much memory the batch keeps.
func (b *batch) bytes() int {
	n := cap(b.tasks)*int(unsafe.Sizeof(task{})) + cap(b.slots)*int(unsafe.Sizeof(topology.Slot(0))) + cap(b.args)*int(argBytes) +
		(cap(b.positions)+cap(b.order)+cap(b.counts)+cap(b.ends))*int(unsafe.Sizeof(0))
	for _, p := range b.parts {
		n += cap(p.run.Out.Buf) + cap(p.run.Calls)*int(unsafe.Sizeof(redis.Call{})) + (cap(p.run.Ends)+cap(p.tasks))*int(unsafe.Sizeof(0))
	}
	return n
}

// shed gives that memory up between two batches.
func (b *batch) shed() {
	b.tasks, b.slots, b.parts, b.used, b.args = nil, nil, nil, 0, nil
	b.positions, b.order, b.counts, b.ends = nil, nil, nil, nil
}

// full reports whether replies were left out for want of memory.
func (b *batch) full() bool {
	return slices.ContainsFunc(b.parts[:b.used], func(p *part) bool { return p.run.Out.Full })
}

// reset forgets the last batch and its replies.
func (b *batch) reset() {
	clear(b.tasks)
	b.tasks = b.tasks[:0]
	b.slots = b.slots[:0]
	clear(b.args)
	b.args = b.args[:0]
	kept := 0
	for _, p := range b.parts[:b.used] {
		p.run.Reset()
		if kept += cap(p.run.Out.Buf); kept > keepBytes {
			p.run.Out.Buf = nil
		}
	}
	b.used = 0
	b.errs.Buf = b.errs.Buf[:0]
}

// close ends the batch's timer.
func (b *batch) close() {
	if b.timer != nil {
		b.timer.Stop()
	}
}

// add adds a command of the pipeline as one task.
func (b *batch) add(cmd *command) {
	t := task{call: redis.Call{Command: cmd.row, Args: cmd.args}}
	b.positions = cmd.row.AppendKeys(b.positions[:0], cmd.args)
	t.follow = b.follow && len(b.positions) > 0
	switch len(b.positions) {
	case 0: // a wrong number of keys: every store tells
		t.slot = b.anySlot()
	case 1:
		t.slot = topology.SlotOf(cmd.args[b.positions[0]])
	default:
		n := len(b.slots)
		for _, p := range b.positions {
			b.slots = append(b.slots, topology.SlotOf(cmd.args[p]))
		}
		t.slots = b.slots[n:len(b.slots):len(b.slots)]
		t.slot = t.slots[0]
	}
	b.tasks = append(b.tasks, t)
}

// anySlot is a slot that this store serves, 0 where it leads none.
func (b *batch) anySlot() topology.Slot {
	if t := b.c.s.o.Table(); t != nil {
		if led := t.Led(b.c.s.self()); len(led) > 0 {
			return led[0].First
		}
	}
	return 0
}

// exec runs the tasks, all of them writes or all reads, and returns when each is done.
func (b *batch) exec(writes bool) {
	s := b.c.s
	if !b.waited.Equal(b.c.arrived) {
		clear(b.overdue)
	}
	if len(b.overdue) == 0 {
		b.deadline = time.Now().Add(s.o.Settings.Redis.LeaderlessWait)
	}
	for fresh := true; ; fresh = false {
		var changed <-chan struct{}
		if s.o.Changed != nil {
			changed = s.o.Changed()
		}
		t := s.o.Table()
		first := b.used
		open := b.decide(t)
		if first < b.used {
			if !b.handOver(b.parts[first:b.used], writes, fresh) {
				b.abandon()
				return
			}
			open = b.collect(t, first, writes)
		}
		if open == 0 {
			return
		}
		b.c.endTurn()
		if b.impatient || !b.wait(changed, b.deadline) {
			b.giveUp(t)
			return
		}
	}
}

// late notes that a region has used up the pipeline's time.
func (b *batch) late(id topology.RegionID) {
	if b.overdue == nil {
		b.overdue = make(map[topology.RegionID]bool)
	}
	b.overdue[id], b.waited = true, b.c.arrived
}

// abandon answers the writes that are open when the server closes, mostly to nobody. Runs that were handed over belong to their
// regions for good: the connection ends, and none of its memory is used again.
func (b *batch) abandon() {
	for i := range b.tasks {
		if x := &b.tasks[i]; !x.done {
			b.fail(x, "ERR "+(&region.UnknownOutcome{Reason: "store stopped"}).Error())
		}
	}
	b.parts, b.used = nil, 0
	b.c.closing = true
}

// decide gives every open task its answer or its part, and returns how many have neither.
func (b *batch) decide(t *route.Table) (open int) {
	s := b.c.s
	first := b.used
	if t != nil && len(b.partOf) < len(t.Regions) {
		b.partOf = make([]int, len(t.Regions)) // all zero between rounds
	}
	var one [1]topology.Slot
	for i := range b.tasks {
		if s.o.Faults.RetryBackward && first > 0 {
			i = len(b.tasks) - 1 - i
		}
		x := &b.tasks[i]
		if x.done {
			continue
		}
		slots := x.slots
		if slots == nil {
			one[0] = x.slot
			slots = one[:]
		}
		d := route.Decide(t, s.self(), slots, x.follow)
		switch {
		case d.Action == route.Serve:
			p := b.partFor(t, d)
			if p == nil {
				open++
				continue
			}
			p.run.Calls = append(p.run.Calls, x.call)
			p.tasks = append(p.tasks, i)
		case d.Action == route.Wait:
			open++
		case d.Action == route.Moved && x.led:
			x.done, x.gone = true, true
		default:
			b.refuse(x, d)
		}
	}
	for _, p := range b.parts[first:b.used] {
		b.partOf[p.region] = 0
	}
	return open
}

// partFor returns this round's part for a region, nil if its leader is not to be found in this process.
func (b *batch) partFor(t *route.Table, d route.Decision) *part {
	if i := b.partOf[d.Index]; i > 0 {
		return b.parts[i-1]
	}
	r := &t.Regions[d.Index]
	at := r.Leader
	if d.Follow {
		at = b.c.s.o.Self
	}
	replica := b.c.s.o.Replica(at, r.ID)
	if replica == nil {
		return nil
	}
	if b.used == len(b.parts) {
		b.parts = append(b.parts, &part{})
	}
	p := b.parts[b.used]
	b.used++
	b.partOf[d.Index] = b.used
	p.region, p.id, p.store, p.replica, p.follow, p.tasks = d.Index, r.ID, at, replica, d.Follow, p.tasks[:0]
	p.run.Out.Proto, p.run.Out.More, p.run.Out.Room = b.c.out.Proto, b.c.out.More, freeRoom
	p.pending.Index = 0
	return p
}

// handOver runs the parts; each part's Err says how that went. Fresh parts have waited for nothing yet. It reports false when the server
// closes meanwhile: the parts are lost.
func (b *batch) handOver(parts []*part, writes, fresh bool) bool {
	now := time.Now()
	try, last := now.Add(oneTry), b.deadline.Add(oneTry)
	for _, p := range parts {
		p.pending.Deadline = b.deadline
		switch {
		case b.deadline.Before(try):
			if fresh && len(b.overdue) > 0 && !b.overdue[p.id] {
				p.pending.Deadline = last
			}
		case !writes:
			p.pending.Deadline = try
		}
		if !writes && len(parts) > 1 {
			p.replica.Prepare()
		}
	}
	if !writes {
		left := wantReplies
		for _, p := range parts {
			if b.bounded {
				if left <= 0 {
					p.pending.Err = nil
					continue
				}
				p.run.Limit = left
			}
			b.read(p)
			left -= len(p.run.Out.Buf)
		}
		return true
	}
	for _, p := range parts {
		if p.pending.Run = &p.run; p.pending.Deadline.After(now) {
			p.replica.Propose(&p.pending)
		}
	}
	for _, p := range parts {
		switch {
		case !p.pending.Deadline.After(now):
			p.pending.Err, p.pending.Lost = region.ErrDeadline, false
		case !p.pending.WaitUnless(b.c.s.closing):
			return false
		}
	}
	return true
}

// read runs a part's reads. Where their replies are large and the connection has no turn it waits for one, outside of the region, and
// runs them again. That time is not the region's.
func (b *batch) read(p *part) {
	p.run.Out.More = b.more
	if b.c.turns = b.c.s.o.Memory.turns[p.store]; b.c.turn != b.c.turns {
		b.c.endTurn()
	}
	for {
		if p.follow {
			p.pending.Err = p.replica.ReadFollowing(&p.run, p.pending.Deadline)
		} else {
			p.pending.Err = p.replica.Read(&p.run, p.pending.Deadline)
		}
		if !b.c.wantsTurn {
			return
		}
		begin := time.Now()
		if !b.c.awaitTurn() {
			return // as full as it is: the connection ends
		}
		waited := time.Since(begin)
		b.deadline, p.pending.Deadline = b.deadline.Add(waited), p.pending.Deadline.Add(waited)
		p.run.Ends = p.run.Ends[:0]
		p.run.Out.Buf, p.run.Out.Room, p.run.Out.Full = p.run.Out.Buf[:0], freeRoom, false
	}
}

// collect gives the tasks of the parts from first on their replies, and returns how many tasks of the batch are still open.
func (b *batch) collect(t *route.Table, first int, writes bool) (open int) {
	for n, p := range b.parts[first:b.used] {
		if writes && p.pending.Lost {
			b.failAll(p.tasks, "ERR "+p.pending.Err.Error())
			b.late(p.id)
			b.parts[first+n] = &part{} // that one is the region's
			continue
		}
		if p.pending.Err != nil && !writes {
			p.run.Ends = p.run.Ends[:0]
		}
		from := 0
		for i, end := range p.run.Ends {
			x := &b.tasks[p.tasks[i]]
			x.reply, x.done = p.run.Out.Buf[from:end:end], true
			from = end
		}
		rest := p.tasks[len(p.run.Ends):]
		if p.pending.Err == nil {
			for _, i := range rest { // of reads
				b.tasks[i].done, b.tasks[i].later = true, true
			}
		}
		if p.pending.Err == nil || len(rest) == 0 {
			continue
		}
		var unknown *region.UnknownOutcome
		switch err := p.pending.Err; {
		case errors.As(err, &unknown) && b.c.s.o.Faults.RetryUnknown:
		case errors.As(err, &unknown):
			b.failAll(rest, "ERR "+unknown.Error())
			b.late(p.id)
		case errors.Is(err, region.ErrAtLeader):
			b.toLeader(t, rest)
		case errors.Is(err, region.ErrNotLeader), errors.Is(err, region.ErrStopped), errors.Is(err, region.ErrDeadline):
		case errors.Is(err, region.ErrTooLarge):
			b.fail(&b.tasks[rest[0]], "ERR "+err.Error()) // the others are tried again, without it
		default:
			b.failAll(rest, "ERR "+err.Error())
		}
	}
	for i := range b.tasks {
		if !b.tasks[i].done {
			open++
		}
	}
	return open
}

// toLeader sends reads that only the leader can answer there. Where that is this store by now, or nobody, they are tried again.
func (b *batch) toLeader(t *route.Table, tasks []int) {
	for _, i := range tasks {
		x := &b.tasks[i]
		x.follow = false
		if d := route.Decide(t, b.c.s.self(), []topology.Slot{x.slot}, false); d.Action == route.Moved {
			b.refuse(x, d)
		}
	}
}

func (b *batch) failAll(tasks []int, line string) {
	for _, i := range tasks {
		b.fail(&b.tasks[i], line)
	}
}

// fail answers a task with an error of Raft or of the engine.
func (b *batch) fail(x *task, line string) {
	start := len(b.errs.Buf)
	b.errs.Error(line)
	b.failed(x, start)
}

// refuse answers a task with a redirection, or with why there is none.
func (b *batch) refuse(x *task, d route.Decision) {
	start := len(b.errs.Buf)
	b.errs.Buf = append(d.AppendError(append(b.errs.Buf, '-')), '\r', '\n')
	b.failed(x, start)
}

func (b *batch) failed(x *task, start int) {
	x.reply, x.done, x.err = b.errs.Buf[start:len(b.errs.Buf):len(b.errs.Buf)], true, true
}

// wait returns when it is time to look at the slot table again, or false when there is no time left.
func (b *batch) wait(changed <-chan struct{}, deadline time.Time) bool {
	s := b.c.s
	left := time.Until(deadline)
	if left <= 0 {
		return false
	}
	bytes := int64(len(b.c.rd.buf))
	defer s.held.Add(-bytes)
	if s.held.Add(bytes) > int64(s.o.Settings.Redis.MaxHeldBytes) {
		return false
	}
	// Also without a change: a leader serves some time after it is known.
	again := 5 * time.Millisecond
	if changed != nil {
		again = 20 * time.Millisecond
	}
	if b.timer == nil {
		b.timer = time.NewTimer(min(left, again))
	} else {
		b.timer.Reset(min(left, again))
	}
	select {
	case <-changed:
	case <-b.timer.C:
	case <-s.closing:
		return false
	}
	return true
}

// giveUp answers what is still open.
func (b *batch) giveUp(t *route.Table) {
	turn := uint64(0)
	for i := range b.tasks {
		x := &b.tasks[i]
		if x.done {
			continue
		}
		if t != nil {
			if r, _ := t.Region(x.slot); r != nil {
				b.late(r.ID)
			}
		}
		if turn == 0 {
			turn = b.c.s.turn.Add(1)
		}
		if x.led {
			b.fail(x, redis.ErrClusterDown)
			continue
		}
		b.refuse(x, route.Unserved(t, b.c.s.self(), x.slot, turn-1))
	}
}
