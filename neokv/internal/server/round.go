package server

import (
	"errors"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file is how a batch runs its tasks, round after round:
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

// exec runs the tasks and returns when each has an outcome.
func (b *batch) exec(m mode) {
	s := b.c.s
	if !b.waited.Equal(b.c.arrived) {
		clear(b.overdue)
	}
	if len(b.overdue) == 0 {
		b.deadline = time.Now().Add(s.o.Settings.Redis.LeaderlessWait)
	}
	for fresh := true; ; fresh = false {
		changed := s.o.Node.Changed()
		t := s.o.Node.Table()
		first := b.used
		b.recut(t)
		waiting := b.decide(t)
		if parts := b.parts[first:b.used]; len(parts) > 0 {
			now := time.Now()
			b.setDeadlines(parts, m, now, fresh)
			if m != writes {
				b.read(parts, m)
			} else if !b.write(parts, now) {
				b.abandon()
				return
			}
			waiting = b.collect(t, parts, m)
		}
		if waiting == 0 {
			return
		}
		b.c.endTurn()
		if m == promptReads || !b.wait(changed, b.deadline) {
			b.giveUp(t)
			return
		}
	}
}

// decide gives every open task its error or its part, and returns how many have neither.
func (b *batch) decide(t *route.Table) (waiting int) {
	s := b.c.s
	first := b.used
	if t != nil && len(b.partOf) < len(t.Regions) {
		b.partOf = make([]int, len(t.Regions)) // all zero between rounds
	}
	var one [1]topology.Slot
	for i := range b.tasks {
		if s.o.Mistakes.RetryBackward && first > 0 {
			i = len(b.tasks) - 1 - i
		}
		x := &b.tasks[i]
		if x.outcome != open {
			continue
		}
		slots := x.slots
		if slots == nil {
			one[0] = x.slot
			slots = one[:]
		}
		d := route.Decide(t, s.self(), slots, x.follow)
		var p *part
		if d.Action == route.Serve {
			p = b.partFor(t, d)
		}
		if d.Follow && p == nil { // the replica does not run here
			x.follow = false
			d = route.Decide(t, s.self(), slots, false)
		}
		switch {
		case d.Action == route.Serve:
			if p == nil {
				waiting++
				continue
			}
			if sampler := p.replica.Sampler(); sampler != nil {
				b.c.tap.Count(sampler, x.slot)
			}
			p.run.Calls = append(p.run.Calls, x.call)
			p.tasks = append(p.tasks, i)
		case d.Action == route.Wait, d.Action == route.Moved && b.outdated(t, d):
			waiting++
		case d.Action == route.Moved && x.ledOnly:
			x.outcome = gone
		default:
			b.refuse(x, d)
		}
	}
	for _, p := range b.parts[first:b.used] {
		b.partOf[p.region] = 0
	}
	return waiting
}

// outdated reports whether the store knows more of a slot than the table. The table says so a moment later. Until then
// a redirection may name a store that already sends clients here: a client goes to and fro until it has used up its
// redirections.
func (b *batch) outdated(t *route.Table, d route.Decision) bool {
	return b.c.s.o.Node.Outdated(d.Slot, &t.Regions[d.Index])
}

// proxy reports whether the server passes commands on instead of redirecting clients.
func (s *Server) proxy() bool { return s.o.Self == 0 || !s.o.Settings.Redis.ClusterEnabled }

// self is the store for which Decide routes, or 0 if the server redirects nobody.
func (s *Server) self() topology.StoreID {
	if s.proxy() {
		return 0
	}
	return s.o.Self
}

// partFor returns this round's part for a region. It returns nil if no store of this process has the region's leader.
func (b *batch) partFor(t *route.Table, d route.Decision) *part {
	if i := b.partOf[d.Index]; i > 0 {
		return b.parts[i-1]
	}
	r := &t.Regions[d.Index]
	at := r.Leader
	if d.Follow {
		at = b.c.s.o.Self
	}
	replica := b.c.s.o.Node.Replica(at, r.ID)
	if replica == nil {
		return nil
	}
	if b.used == len(b.parts) {
		b.parts = append(b.parts, &part{})
	}
	p := b.parts[b.used]
	b.used++
	b.partOf[d.Index] = b.used
	p.region, p.id, p.slot, p.store, p.replica = d.Index, r.ID, r.Slots.First, at, replica
	p.follow, p.tasks = d.Follow, p.tasks[:0]
	p.run.Out.Proto, p.run.Out.More, p.run.Out.Room = b.c.out.Proto, b.c.out.More, freeRoom
	p.run.Work, p.run.Within = &b.c.work, b.alone
	p.run.Version = r.Version // the region refuses the run if it has other bounds than the table says
	p.pending.Index = 0
	return p
}

// setDeadlines gives the parts their time. In a fresh round the batch has waited for nothing yet.
func (b *batch) setDeadlines(parts []*part, m mode, now time.Time, fresh bool) {
	try, last := now.Add(oneTry), b.deadline.Add(oneTry)
	for _, p := range parts {
		p.pending.Deadline = b.deadline
		switch {
		case b.deadline.Before(try):
			if fresh && len(b.overdue) > 0 && !b.overdue[p.id] {
				p.pending.Deadline = last
			}
		case m != writes:
			p.pending.Deadline = try
		}
	}
}

// write proposes the parts and waits for them. Each part's pending.Err then says how that went. It returns false when
// the server closes meanwhile: the parts are lost.
func (b *batch) write(parts []*part, now time.Time) bool {
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

// read runs the parts one after the other. Each part's pending.Err then says how that went.
func (b *batch) read(parts []*part, m mode) {
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
		b.readPart(p)
		left -= len(p.run.Out.Buf)
	}
}

// readPart runs a part's reads. If their replies are large and the connection has no turn, readPart leaves the region,
// waits for a turn, and runs the reads again. The wait does not count as the region's time. If it gets no turn, the
// tasks stay open.
func (b *batch) readPart(p *part) {
	p.run.Out.More = b.more
	if b.c.turns = b.c.s.o.ClientMemory.turns[p.store]; b.c.turn != b.c.turns {
		b.c.endTurn()
	}
	for {
		b.c.began.Store(int64(time.Since(b.c.s.started)))
		b.c.reading.Store(p.replica)
		if p.follow {
			p.pending.Err = p.replica.ReadFollowing(&p.run, p.pending.Deadline)
		} else {
			p.pending.Err = p.replica.Read(&p.run, p.pending.Deadline)
		}
		b.c.reading.Store(nil)
		if !b.c.wantsTurn {
			return
		}
		begin := time.Now()
		got := b.c.awaitTurn()
		p.run.Ends = p.run.Ends[:0]
		p.run.Out.Buf, p.run.Out.Room, p.run.Out.Full = p.run.Out.Buf[:0], freeRoom, false
		if !got {
			p.pending.Err = region.ErrDeadline
			return
		}
		waited := time.Since(begin)
		b.deadline, p.pending.Deadline = b.deadline.Add(waited), p.pending.Deadline.Add(waited)
		b.c.begun = b.c.begun.Add(waited)
	}
}

// collect gives the tasks of the round's parts their replies, and returns how many tasks of the batch are still open.
func (b *batch) collect(t *route.Table, parts []*part, m mode) (waiting int) {
	for n, p := range parts {
		if m == writes && p.pending.Lost {
			b.failAll(p.tasks, "ERR "+p.pending.Err.Error())
			b.late(p.id)
			parts[n] = &part{} // the region keeps the lost part, so the batch needs another
			continue
		}
		if m != writes && p.pending.Err != nil {
			p.run.Ends = p.run.Ends[:0]
		}
		from := 0
		for i, end := range p.run.Ends {
			x := &b.tasks[p.tasks[i]]
			x.reply, x.outcome = p.run.Out.Buf[from:end:end], executed
			from = end
		}
		if rest := p.tasks[len(p.run.Ends):]; len(rest) > 0 {
			b.collectRest(t, p, rest)
		}
	}
	return b.open()
}

// collectRest decides, by the part's error, what becomes of the tasks that were not executed.
func (b *batch) collectRest(t *route.Table, p *part, rest []int) {
	var unknown *region.UnknownOutcome
	switch err := p.pending.Err; {
	case err == nil: // of reads
		for _, i := range rest {
			b.tasks[i].outcome = postponed
		}
	case errors.As(err, &unknown):
		if !b.c.s.o.Mistakes.RetryUnknown {
			b.failAll(rest, "ERR "+unknown.Error())
			b.late(p.id)
		}
	case errors.Is(err, region.ErrAtLeader), p.follow && errors.Is(err, region.ErrStopped):
		b.toLeader(t, rest)
	case errors.Is(err, region.ErrNotLeader), errors.Is(err, region.ErrStopped), errors.Is(err, region.ErrDeadline),
		errors.Is(err, region.ErrBounds):
		// They stay open: the next round tries them again, by the table of then.
	case errors.Is(err, errGone):
		b.failAll(rest, "ERR "+err.Error()) // nobody reads it
		b.c.closing = true
	case errors.Is(err, region.ErrNoSpace):
		b.failAll(rest, redis.ErrNoSpace)
	case errors.Is(err, region.ErrTooLarge):
		b.fail(&b.tasks[rest[0]], "ERR "+err.Error()) // the next round tries the others without it
	default:
		b.failAll(rest, "ERR "+err.Error())
	}
}

// toLeader sends clients to the leader for reads that this store's replica, which follows, cannot answer. If this store
// leads by now, or no store does, the next round tries the reads again.
func (b *batch) toLeader(t *route.Table, tasks []int) {
	for _, i := range tasks {
		x := &b.tasks[i]
		x.follow = false
		d := route.Decide(t, b.c.s.self(), []topology.Slot{x.slot}, false)
		if d.Action == route.Moved && !b.outdated(t, d) {
			b.refuse(x, d)
		}
	}
}

// wait returns true when it is time to look at the slot table again. It returns false when no time is left, when the
// connection has been closed, or when the commands that wait for a leader have too many bytes.
func (b *batch) wait(changed <-chan struct{}, deadline time.Time) bool {
	s := b.c.s
	left := time.Until(deadline)
	if left <= 0 {
		return false
	}
	bytes := int64(len(b.c.rd.buf))
	defer s.waitingBytes.Add(-bytes)
	if s.waitingBytes.Add(bytes) > int64(s.o.Settings.Redis.MaxHeldBytes) {
		return false
	}
	// The batch tries again also if the table does not change: a new leader is known some time before it serves.
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
	case <-b.c.ctx.Done():
		return false
	case <-s.closing:
		return false
	}
	return true
}

// late notes that a region has used up the pipeline's time.
func (b *batch) late(id topology.RegionID) {
	if b.overdue == nil {
		b.overdue = make(map[topology.RegionID]bool)
	}
	b.overdue[id], b.waited = true, b.c.arrived
}

// giveUp answers what is still open.
func (b *batch) giveUp(t *route.Table) {
	turn := uint64(0)
	for i := range b.tasks {
		x := &b.tasks[i]
		if x.outcome != open {
			continue
		}
		if t != nil {
			if r, _ := t.Region(x.slot); r != nil {
				b.late(r.ID)
			}
		}
		if turn == 0 {
			turn = b.c.s.unserved.Add(1)
		}
		if x.ledOnly {
			b.fail(x, redis.ErrClusterDown)
			continue
		}
		b.refuse(x, route.Unserved(t, b.c.s.self(), x.slot, turn-1))
	}
}

// abandon answers the writes that are open when the server closes. Mostly no client is left to read the answers. The
// regions keep the runs that they were handed, so the connection ends and never uses their memory again.
func (b *batch) abandon() {
	for i := range b.tasks {
		if x := &b.tasks[i]; x.outcome == open {
			b.fail(x, "ERR "+(&region.UnknownOutcome{Reason: "store stopped"}).Error())
		}
	}
	b.parts, b.used = nil, 0
	b.c.closing = true
}
