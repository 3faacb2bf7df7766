package server

import (
	"errors"
	"time"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// oneTry is how long a replica that is known to lead is given at least for commands that wait for no other reason, and at most
// before a batch of reads looks at its other regions. It is longer than two read index rounds of which the first gets no answer.
const oneTry = 400 * time.Millisecond

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
