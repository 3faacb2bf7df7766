package server

import (
	"errors"
	"slices"
	"strings"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file is how an executor makes tasks of commands, runs them, and answers. It runs them round after round:
//
//	recut   tasks whose slots no longer lie in one region are cut anew
//	decide  every open task gets a part, an error that is its reply, or has to wait
//	write   the parts go to their regions all at once; or read: one after the other
//	collect the tasks get their replies, or stay open
//	wait    until the slot table changes, or for a moment
//
// A batch runs in one mode, which says what its tasks are and how long they are tried.
type mode byte

const (
	writes      mode = iota // all tasks are writes
	reads                   // all tasks are reads
	someReads               // reads, until their replies have wantReplies bytes; the others are postponed
	promptReads             // reads that get one round: a read that finds no leader in it fails
)

// oneTry is the least time that a batch gives a replica that leads, for commands that have not waited before. It is
// also the longest time that a batch of reads waits for one region before it goes on to the next. It is longer than two
// read index rounds of which the first gets no answer.
const oneTry = 400 * time.Millisecond

// limit returns how many reads or writes a batch may have.
func (e *executor) limit(how redis.How) int {
	if how == redis.HowRead {
		return e.readLimit
	}
	return maxWrites
}

// runTogether runs reads or writes of the pipeline and appends their replies in order. Writes that concern several
// regions are cut. It returns how many commands it has answered: of reads with large replies not all, but at least one;
// of writes those before the first of unknown outcome, if that ends the caller.
func (e *executor) runTogether(cmds []command, how redis.How) (ran int) {
	e.scripting.begin(cmds, how)
	defer e.scripting.end()
	e.prepare(cmds, how)
	if how == redis.HowRead {
		e.exec(someReads)
	} else {
		e.exec(writes)
	}
	before := len(e.out.Buf)
	if e.full() { // the connection ends
		e.out.Full = true
		return len(cmds)
	}
	if e.takeReply() {
		e.caller.answered(&cmds[0], 0, true)
		e.readLimit = 1
		return 1
	}
	ran = e.answerAll(cmds)
	if how == redis.HowRead {
		perRead := (len(e.out.Buf)-before)/ran + 1
		e.readLimit = max(1, min(maxReads, wantReplies/perRead, 4*e.readLimit))
	} else {
		e.note()
	}
	kept := 0
	for _, p := range e.parts[:e.used] { // the replies have been copied
		if kept += cap(p.run.Out.Buf); kept > wantReplies {
			p.run.Out.Buf = nil
		}
	}
	return ran
}

// prepare makes tasks of commands that run together.
func (e *executor) prepare(cmds []command, how redis.How) {
	e.reset()
	follow := how == redis.HowRead && e.mayFollow()
	for i := range cmds {
		if cmd := &cmds[i]; !cmd.cut {
			e.add(cmd, follow)
		} else if t := e.awaitTable(writes); t != nil {
			e.addCut(t, cmd)
		} else {
			e.tasks = append(e.tasks, task{})
			e.fail(&e.tasks[len(e.tasks)-1], redis.ErrClusterDown)
		}
		e.ends = append(e.ends, len(e.tasks))
	}
}

// mayFollow reports whether replicas that do not lead may read for the caller.
func (e *executor) mayFollow() bool { return e.knobs.FollowerRead && !e.standIn && e.caller.readOnly() }

// add adds a command of the pipeline as one task. Where follow is set, a replica that does not lead may read its keys.
func (e *executor) add(cmd *command, follow bool) {
	t := task{call: cmd.call()}
	e.positions = t.call.Command.AppendKeys(e.positions[:0], t.call.Args)
	t.follow = follow && len(e.positions) > 0
	switch len(e.positions) {
	case 0: // a wrong number of keys: the command fails in any region. Or a script without keys
		t.slot = e.anySlot()
	case 1:
		t.slot = topology.SlotOf(t.call.Args[e.positions[0]])
	default:
		n := len(e.slots)
		for _, p := range e.positions {
			e.slots = append(e.slots, topology.SlotOf(t.call.Args[p]))
		}
		t.slots = e.slots[n:len(e.slots):len(e.slots)]
		t.slot = t.slots[0]
	}
	e.tasks = append(e.tasks, t)
}

// anySlot returns a slot that this port covers, or 0 if it covers none.
func (e *executor) anySlot() topology.Slot {
	if t := e.node.Table(); t != nil {
		for i := range t.Regions {
			if r := &t.Regions[i]; e.port.Covers(r) {
				return r.Slots.First
			}
		}
	}
	return 0
}

// answerAll appends the replies of commands that ran together, up to the first that was postponed or breaks off, and
// counts them.
func (e *executor) answerAll(cmds []command) (ran int) {
	size := 0
	for i := range e.tasks {
		size += len(e.tasks[i].reply)
	}
	e.out.Buf = slices.Grow(e.out.Buf, size) // once: growing step by step copies large replies several times
	from := 0
	for ; ran < len(e.ends) && e.tasks[from].outcome != postponed; ran++ {
		tasks, start := e.tasks[from:e.ends[ran]], len(e.out.Buf)
		if e.breaksOff(tasks) {
			break
		}
		e.answer(&cmds[ran], tasks, nil, e.out)
		e.caller.answered(&cmds[ran], start, len(tasks) > 1 || tasks[0].outcome == executed)
		from = e.ends[ran]
	}
	return ran
}

// answer appends the reply of a command, made of the replies of the command's tasks.
func (e *executor) answer(cmd *command, tasks []task, order []int, out *redis.Reply) {
	if len(tasks) == 1 && tasks[0].outcome != gone {
		out.Buf = append(out.Buf, tasks[0].reply...)
		return
	}
	failure, succeeded := []byte(nil), 0
	for i := range tasks {
		switch x := &tasks[i]; {
		case x.outcome == gone:
		case x.reply[0] != '-':
			succeeded++
		case failure == nil:
			failure = x.reply
		}
	}
	switch {
	case failure != nil && succeeded > 0 && cmd.how != redis.HowRead:
		reason := strings.TrimPrefix(string(failure[1:len(failure)-2]), "ERR ")
		out.Error("ERR partly applied: " + reason)
	case failure != nil:
		out.Buf = append(out.Buf, failure...)
	default:
		join(cmd.row.Split, tasks, order, out)
	}
}

// takeReply hands a single large reply of a read to the connection without copying it, and reports whether it did.
func (e *executor) takeReply() bool {
	if e.turn == nil || len(e.tasks) != 1 || e.tasks[0].outcome != executed || e.used != 1 || len(e.out.Buf) > 0 {
		return false
	}
	e.out.Buf = e.parts[0].run.Out.Buf
	e.parts[0].run.Out.Buf = nil
	return true
}

// note remembers where the writes of the batch went, for WAIT.
func (e *executor) note() {
	for _, p := range e.parts[:e.used] {
		if p.pending.Index > 0 {
			e.caller.wrote(p.id, lastWrite{p.pending.Index, p.slot})
		}
	}
}

// exec runs the tasks and returns when each has an outcome.
func (e *executor) exec(m mode) {
	if !e.waited.Equal(e.arrived) {
		clear(e.overdue)
	}
	if len(e.overdue) == 0 {
		e.deadline = time.Now().Add(e.knobs.LeaderlessWait)
	}
	for fresh := true; ; fresh = false {
		changed := e.node.Changed()
		t := e.node.Table()
		first := e.used
		e.recut(t)
		waiting := e.decide(t)
		if parts := e.parts[first:e.used]; len(parts) > 0 {
			now := time.Now()
			e.setDeadlines(parts, m, now, fresh)
			if m != writes {
				e.read(parts, m)
			} else if !e.write(parts, now) {
				e.abandon()
				return
			}
			waiting = e.collect(t, parts, m)
		}
		if waiting == 0 {
			return
		}
		e.endTurn()
		if m == promptReads || !e.wait(changed, e.deadline) {
			e.giveUp(t)
			return
		}
	}
}

// decide gives every open task its error or its part, and returns how many have neither.
func (e *executor) decide(t *route.Table) (waiting int) {
	first := e.used
	if t != nil && len(e.partOf) < len(t.Regions) {
		e.partOf = make([]int, len(t.Regions)) // all zero between rounds
	}
	var one [1]topology.Slot
	var unsure []int // regions that do not say which keys they have: see show
	for i := range e.tasks {
		if e.mistakes.RetryBackward && first > 0 {
			i = len(e.tasks) - 1 - i
		}
		x := &e.tasks[i]
		if x.outcome != open {
			continue
		}
		slots := x.slots
		if slots == nil {
			one[0] = x.slot
			slots = one[:]
		}
		d := route.Decide(t, e.port, slots, x.follow)
		if t != nil && len(t.Windows) > 0 && x.scope == fixedKeys {
			known := false
			if !slices.Contains(unsure, d.Index) {
				d, known = e.show(t, d, x.keys())
			}
			if !known { // nor may what follows for the region overtake it
				unsure = append(unsure, d.Index)
				waiting++
				continue
			}
		}
		var p *part
		if d.Action == route.Serve {
			p = e.partFor(t, d)
		}
		if d.Follow && p == nil && !x.ledOnly { // the replica does not run here
			x.follow = false
			d = route.Decide(t, e.port, slots, false)
		}
		switch {
		case d.Action == route.Serve:
			if p == nil {
				waiting++
				continue
			}
			if sampler := p.replica.Sampler(); sampler != nil {
				e.tap.Count(sampler, x.slot)
			}
			if x.unit != nil {
				x.unit.join(p, i, t.Regions[d.Index].Slots)
				continue
			}
			p.run.ByRegionTime = d.Follow && x.scope == walkedSlots
			p.run.Calls = append(p.run.Calls, x.call)
			p.tasks = append(p.tasks, i)
		case d.Action == route.Wait, d.Action == route.Moved && e.outdated(t, d):
			waiting++
		case d.Action == route.Moved && x.ledOnly:
			x.outcome = gone
		default:
			e.refuse(x, d)
		}
	}
	for _, p := range e.parts[first:e.used] {
		e.partOf[p.region] = 0
	}
	return waiting
}

// outdated reports whether the store knows more of a slot than the table. The table says so a moment later. Until then
// a redirection may name a store that already sends clients here: a client goes to and fro until it has used up its
// redirections.
func (e *executor) outdated(t *route.Table, d route.Decision) bool {
	return e.node.Outdated(d.Slot, &t.Regions[d.Index])
}

// partFor returns this round's part for a region. It returns nil if no store of this process has the region's leader.
func (e *executor) partFor(t *route.Table, d route.Decision) *part {
	if i := e.partOf[d.Index]; i > 0 {
		return e.parts[i-1]
	}
	r := &t.Regions[d.Index]
	at := r.Leader
	if d.Follow {
		at = e.port.Store
	}
	replica := e.node.Replica(at, r.ID)
	if replica == nil {
		return nil
	}
	if e.used == len(e.parts) {
		e.parts = append(e.parts, &part{})
	}
	p := e.parts[e.used]
	e.used++
	e.partOf[d.Index] = e.used
	p.region, p.id, p.slot, p.store, p.replica = d.Index, r.ID, r.Slots.First, at, replica
	p.follow, p.tasks = d.Follow, p.tasks[:0]
	p.run.Out.Proto, p.run.Out.More, p.run.Out.Room = e.out.Proto, e.out.More, freeRoom
	p.run.Work, p.run.Within, p.run.ScriptLimits, p.run.Seen = &e.work, e.alone, e.scriptLimits(), e.seen
	p.run.Published = e.ofCalls
	p.run.Version = r.Version // the region refuses the run if it has other bounds than the table says
	if p.run.By = e.by; d.Follow {
		p.run.By = nil // it tracks none of the keys: see conn.readOnly
	}
	p.pending.Index, p.pending.Watches = 0, nil
	return p
}

// setDeadlines gives the parts their time. In a fresh round the batch has waited for nothing yet.
func (e *executor) setDeadlines(parts []*part, m mode, now time.Time, fresh bool) {
	try, last := now.Add(oneTry), e.deadline.Add(oneTry)
	for _, p := range parts {
		p.pending.Deadline = e.deadline
		switch {
		case e.deadline.Before(try):
			if fresh && len(e.overdue) > 0 && !e.overdue[p.id] {
				p.pending.Deadline = last
			}
		case m != writes:
			p.pending.Deadline = try
		}
	}
}

// write proposes the parts and waits for them. Each part's pending.Err then says how that went. It returns false when
// the server closes meanwhile: the parts are lost.
func (e *executor) write(parts []*part, now time.Time) bool {
	for _, p := range parts {
		if p.pending.Run = &p.run; p.pending.Deadline.After(now) {
			p.replica.Propose(&p.pending)
		}
	}
	for _, p := range parts {
		switch {
		case !p.pending.Deadline.After(now):
			p.pending.Err, p.pending.Lost = region.ErrDeadline, false
		case !p.replica.Await(&p.pending, e.closing):
			return false
		}
	}
	return true
}

// read runs the parts one after the other. Each part's pending.Err then says how that went.
func (e *executor) read(parts []*part, m mode) {
	if len(parts) > 1 {
		for _, p := range parts {
			p.replica.Prepare()
		}
	}
	left := wantReplies
	for _, p := range parts {
		if m == someReads {
			if left <= 0 {
				p.pending.Err = nil
				continue
			}
			p.run.Limit = left
		}
		e.readPart(p)
		left -= len(p.run.Out.Buf)
	}
}

// beginReading notes which replica is read, for readsFrom.
func (e *executor) beginReading(p *part) {
	e.began.Store(int64(time.Since(e.started)))
	e.readRegion.Store(int64(p.id))
	e.readStore.Store(uint32(p.store))
}

// readsFrom returns the replica that is being read, nil if none is. Any goroutine may call it.
func (e *executor) readsFrom() replica {
	store := topology.StoreID(e.readStore.Load())
	if store == 0 {
		return nil
	}
	return e.node.Replica(store, topology.RegionID(e.readRegion.Load()))
}

// readPart runs a part's reads. If their replies are large and the connection has no turn, readPart leaves the region,
// waits for a turn, and runs the reads again. The wait does not count as the region's time. If it gets no turn, the
// tasks stay open.
func (e *executor) readPart(p *part) {
	p.run.Out.More = e.more
	if e.wanted = e.turns[placeOf(p.store)]; e.turn != e.wanted {
		e.endTurn()
	}
	if e.scripting.now.Load() != noScripts {
		if !e.beginScript(p.store, p.pending.Deadline) {
			p.pending.Err = region.ErrDeadline
			return
		}
		defer e.endScript(p.store)
	}
	for {
		e.beginReading(p)
		if p.follow {
			p.pending.Err = p.replica.ReadFollowing(&p.run, p.pending.Deadline)
		} else {
			p.pending.Err = p.replica.Read(&p.run, p.pending.Deadline)
		}
		e.readStore.Store(0)
		if !e.wantsTurn {
			return
		}
		begin := time.Now()
		got := e.awaitTurn()
		p.run.Ends = p.run.Ends[:0]
		p.run.Out.Buf, p.run.Out.Room, p.run.Out.Full = p.run.Out.Buf[:0], freeRoom, false
		if !got {
			p.pending.Err = region.ErrDeadline
			return
		}
		waited := time.Since(begin)
		e.deadline, p.pending.Deadline = e.deadline.Add(waited), p.pending.Deadline.Add(waited)
		e.begun = e.begun.Add(waited)
	}
}

// collect gives the tasks of the round's parts their replies, and returns how many tasks of the batch are still open.
func (e *executor) collect(t *route.Table, parts []*part, m mode) (waiting int) {
	for n, p := range parts {
		if m == writes && p.pending.Lost {
			e.loseAll(p.tasks, p.pending.Err)
			e.late(p.id)
			parts[n] = &part{} // the region keeps the lost part, so the batch needs another
			continue
		}
		if m != writes && p.pending.Err != nil {
			p.run.Ends = p.run.Ends[:0]
		}
		from := 0
		for i := 0; i < len(p.run.Ends); i++ {
			x := &e.tasks[p.tasks[i]]
			if x.outcome = executed; x.unit != nil {
				i += x.unit.collect(p, i, from) - 1
				from = p.run.Ends[i]
				continue
			}
			end := p.run.Ends[i]
			x.reply = p.run.Out.Buf[from:end:end]
			from = end
		}
		if rest := p.tasks[len(p.run.Ends):]; len(rest) > 0 {
			e.collectRest(t, p, rest)
		}
	}
	return e.open()
}

// collectRest decides, by the part's error, what becomes of the tasks that were not executed.
func (e *executor) collectRest(t *route.Table, p *part, rest []int) {
	switch err := p.pending.Err; {
	case err == nil: // of reads
		for _, i := range rest {
			e.tasks[i].outcome = postponed
		}
	case errors.As(err, new(*region.UnknownOutcome)):
		if !e.mistakes.RetryUnknown {
			e.loseAll(rest, err)
			e.late(p.id)
		}
	case errors.Is(err, region.ErrAtLeader), p.follow && errors.Is(err, region.ErrStopped):
		e.toLeader(t, rest)
	case errors.Is(err, region.ErrNotLeader), errors.Is(err, region.ErrStopped), errors.Is(err, region.ErrDeadline),
		errors.Is(err, region.ErrBounds):
		// They stay open: the next round tries them again, by the table of then.
	case errors.Is(err, errGone):
		e.failAll(rest, "ERR "+err.Error()) // nobody reads it
		e.caller.stop()
	case errors.Is(err, region.ErrNoSpace):
		e.failAll(rest, redis.ErrNoSpace)
	case errors.Is(err, region.ErrTooLarge):
		e.fail(&e.tasks[rest[0]], "ERR "+err.Error()) // the next round tries the others without it
	default:
		e.failAll(rest, "ERR "+err.Error())
	}
}

// toLeader sends clients to the leader for reads that this store's replica, which follows, cannot answer. If this store
// leads by now, or no store does, the next round tries the reads again.
func (e *executor) toLeader(t *route.Table, tasks []int) {
	for _, i := range tasks {
		x := &e.tasks[i]
		if x.ledOnly {
			continue
		}
		x.follow = false
		d := route.Decide(t, e.port, []topology.Slot{x.slot}, false)
		if d.Action == route.Moved && !e.outdated(t, d) {
			e.refuse(x, d)
		}
	}
}

// wait returns true when it is time to look at the slot table again. It returns false when no time is left, when the
// connection has been closed, or when the commands that wait for a leader have too many bytes.
func (e *executor) wait(changed <-chan struct{}, deadline time.Time) bool {
	left := time.Until(deadline)
	if left <= 0 {
		return false
	}
	bytes := int64(e.caller.received())
	defer e.waitingBytes.Add(-bytes)
	if e.waitingBytes.Add(bytes) > int64(e.knobs.MaxHeldBytes) {
		return false
	}
	// The batch tries again also if the table does not change: a new leader is known some time before it serves.
	again := 5 * time.Millisecond
	if changed != nil {
		again = 20 * time.Millisecond
	}
	if e.timer == nil {
		e.timer = time.NewTimer(min(left, again))
	} else {
		e.timer.Reset(min(left, again))
	}
	select {
	case <-changed:
	case <-e.timer.C:
	case <-e.gone:
		return false
	case <-e.closing:
		return false
	}
	return true
}

// late notes that a region has used up the pipeline's time.
func (e *executor) late(id topology.RegionID) {
	if e.overdue == nil {
		e.overdue = make(map[topology.RegionID]bool)
	}
	e.overdue[id], e.waited = true, e.arrived
}

// giveUp answers what is still open.
func (e *executor) giveUp(t *route.Table) {
	turn := uint64(0)
	for i := range e.tasks {
		x := &e.tasks[i]
		if x.outcome != open {
			continue
		}
		if t != nil {
			if r, _ := t.Region(x.slot); r != nil {
				e.late(r.ID)
			}
		}
		if turn == 0 {
			turn = e.unserved.Add(1)
		}
		if x.ledOnly {
			e.fail(x, redis.ErrClusterDown)
			continue
		}
		e.refuse(x, route.Unserved(t, e.port.Store, x.slot, turn-1))
	}
}

// abandon answers the writes that are open when the server closes. Mostly no client is left to read the answers. The
// regions keep the runs that they were handed, so the connection ends and never uses their memory again.
func (e *executor) abandon() {
	for i := range e.tasks {
		if x := &e.tasks[i]; x.outcome == open {
			e.lose(x, &region.UnknownOutcome{Reason: "store stopped"})
		}
	}
	e.parts, e.used = nil, 0
	e.caller.stop()
}
