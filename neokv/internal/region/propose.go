package region

import (
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
)

// proposer turns runs of writes into Raft entries. It has raft.max_inflight places. A place holds one proposal, and one
// goroutine drives it. A proposal leaves as soon as a place is free. The runs that arrive meanwhile share the next one.
//
// When a proposal of several runs is finished, its place stays empty for a moment (gather). The callers that were just
// answered are about to send again, and one entry for all of them costs less than two entries with half of them each. A
// single client, or a few, never wait for that.
//
// Invariants:
//
//   - A Pending is in queue, in exactly one open proposal, or answered.
//   - A proposal is open until it is finished. One goroutine claims it, and that one finishes it: apply, at the
//     entry or at a later term's first one, the transport that has dropped the entry, the end of the replica, or the
//     goroutine that drives its place.
//   - A place is given up, and a proposal used again, only after it is finished.
//
// Raft checks its deadlines in the goroutine that also waits for the disk, and apply has no deadlines. So a timer of
// the proposer's own answers every run at its deadline, whatever hangs (overdue). The place of the proposal stays
// taken, so the proposer hands no more to what hangs.
type proposer struct {
	*core

	mu       sync.Mutex
	queue    []*Pending
	inflight int
	open     map[uint64]*proposal // by sequence; those that are not finished
	sequence uint64
	free     []*proposal
	stopped  bool
	exact    bool // an exact proposal is open: no other is formed
	waiters  waiters
	doubt    uint64 // sequence of the last proposal that may be applied later, though it is not open; 0 for none
	places   []int  // scratch of fills

	// wanted is how many runs must wait for the present gathering to end, 0 if there is none or it has ended. The
	// goroutine that ends a gathering sends to gathered. The next gathering may begin before the waiter of the last one
	// has received that value, so gathered has room for one value per place.
	wanted   int
	gathered chan struct{} // capacity max_inflight

	// watch calls overdue at the instant watched, which is zero while the timer is not set. No run has an earlier
	// deadline. When runs finish, nobody moves the timer, so a run that is answered in time does not touch it.
	watch   *time.Timer
	watched time.Time

	refusal error // see Replica.Refuse
}

func (x *proposer) init(c *core) {
	x.core, x.open, x.gathered = c, make(map[uint64]*proposal), make(chan struct{}, c.o.Knobs.MaxInflight)
}

// Propose hands a run of writes to the region and does not wait. The run travels in one Raft entry, or in several, one
// after the other, if it is larger than raft.batch_max_ops or raft.batch_max_bytes allow.
func (r *Replica) Propose(p *Pending) { r.proposer.propose(p) }

// propose is Replica.Propose.
func (x *proposer) propose(p *Pending) {
	p.begin()
	if p.blocks() {
		p.waiting = waiting{patience: time.Until(p.Deadline)}
	}
	if x.o.Mistakes.SplitGroups {
		p.splitGroups()
	}
	x.mu.Lock()
	if x.stopped {
		x.mu.Unlock()
		p.finish(ErrStopped)
		return
	}
	if x.servingTerm.Load() == 0 {
		x.mu.Unlock()
		p.finish(ErrNotLeader)
		return
	}
	if x.bounds.Load().stale(p.Run) {
		x.mu.Unlock()
		p.finish(ErrBounds)
		return
	}
	if x.refusal != nil && p.refusable() {
		why := x.refusal
		x.mu.Unlock()
		p.finish(why)
		return
	}
	x.queue = append(x.queue, p)
	x.expect(p.Deadline)
	if x.wanted > 0 && len(x.queue) >= x.wanted {
		x.wanted = 0
		x.gathered <- struct{}{}
	}
	x.counters.Proposals.Add(1)
	if x.inflight >= x.o.Knobs.MaxInflight {
		x.mu.Unlock()
		return
	}
	b := x.form()
	if b == nil {
		x.mu.Unlock()
		return
	}
	x.inflight++
	x.wg.Add(1)
	x.mu.Unlock()
	go x.drive(b) // a goroutine sends it too, since making a read set may wait for the disk
}

// splitGroups is the mistake that Mistakes.SplitGroups plants: each group becomes two, behind its first call.
func (p *Pending) splitGroups() {
	var all []redis.Group
	for _, g := range p.Run.Groups {
		if all = append(all, redis.Group{From: g.From, To: g.From + 1, Kind: g.Kind}); g.To > g.From+1 {
			all = append(all, redis.Group{From: g.From + 1, To: g.To, Kind: g.Kind})
		}
	}
	p.Run.Groups = all
}

// register gives a proposal its sequence. From then on it can be claimed. The caller holds mu.
func (x *proposer) register(b *proposal) {
	x.sequence++
	b.sequence = x.sequence
	x.open[b.sequence] = b
	b.alone = len(x.open) == 1
}

// form makes the next proposal from the runs in the queue, all of which go by the present bounds. It refuses the runs
// that go by others, and answers transactions whose watches are dirty. It returns nil if no run is left that may travel
// now. The caller holds mu.
//
// A proposal with watches, with tries of blocking pops or with waiters is formed while no other proposal is open, and
// no other is formed while it is.
func (x *proposer) form() *proposal {
	if x.exact && !x.o.Mistakes.AnyExact {
		return nil // and whoever is called for each run of a long queue does not go through all of it
	}
	bounds, term := x.bounds.Load(), x.servingTerm.Load()
	x.queue = slices.DeleteFunc(x.queue, func(p *Pending) bool {
		switch {
		case bounds.stale(p.Run):
			p.finish(ErrBounds)
		case slices.ContainsFunc(p.Watches, func(w *Watch) bool { return w.dirtyIn(x.core, term) }):
			p.drop()
		default:
			return false
		}
		return true
	})
	x.retry()
	if len(x.queue) == 0 || x.mustWait(x.queue[0]) {
		return nil
	}
	var b *proposal
	if n := len(x.free); n > 0 {
		b, x.free = x.free[n-1], x.free[:n-1]
	} else {
		b = newProposal()
	}
	b.bounds = uint32(bounds.Version)
	limit := entryHeaderBytes + int(x.o.Knobs.BatchMaxBytes)
	taken := 0
	for _, p := range x.queue {
		if len(b.buf)+len(b.scripts.bytes) > limit || b.tooLarge != nil { // a single large unit: no other run shares its fate
			break
		}
		if taken > 0 && (p.alone || b.parts[0].p.alone || x.mustWait(p) || b.short) {
			break
		}
		if len(x.waiters.filled) > 0 && !p.waiting.retried {
			break
		}
		from := p.next
		for p.next < len(p.Run.Calls) {
			calls, group, marks, bytes := p.unit()
			// An empty run before a large unit travels without it: its readers must not share the unit's fate.
			full := b.commands+len(calls) > x.o.Knobs.BatchMaxOps
			texts, textBytes := len(b.scripts.texts), len(b.scripts.bytes)
			steps := 0 // of the unit's scripts
			if hasScript(calls) {
				if b.scripts.allow(p.Run.ScriptLimits) {
					b.scripts.limit(p.Run.ScriptLimits)
					inCalls := 0
					inCalls, steps = b.scripts.addAll(calls)
					bytes -= inCalls
					full = full || b.scripts.steps+steps > maxScripts*b.scripts.limits.Steps
				} else {
					full = true
				}
			}
			full = full || len(b.buf)+b.markBytes+bytes+len(b.scripts.bytes) > limit
			full = full || b.short || x.o.Mistakes.SplitGroups && p.next > 0 || x.fillsTried(b, calls) ||
				len(x.open) > 0 && !x.o.Mistakes.AnyExact && x.touchesWaiters(calls)
			if full && (b.commands > 0 || len(b.parts) > 0) {
				b.scripts.cut(texts, textBytes)
				break
			}
			if b.tooLarge = tooLarge(calls, bytes+len(b.scripts.bytes)-textBytes); b.tooLarge == nil {
				b.markRoom = maxEntryBytes - len(b.buf) - bytes - len(b.scripts.bytes) - maxWaiterBytes
				x.fills(calls, func(l *line, n int) bool {
					x.take(b, l, n)
					return !b.short
				})
				if group < 0 {
					b.buf = b.scripts.appendCall(b.buf, &calls[0])
				} else {
					b.buf = b.scripts.appendGroup(b.buf, p.Run.Groups[group].Kind, marks, calls)
				}
				for i := range calls {
					b.looks = b.looks || calls[i].LooksUp(0)
					b.looksUnblind = b.looksUnblind || calls[i].LooksUp(keys.AllSlots)
				}
			}
			b.scripts.steps += steps
			b.commands += len(calls)
			p.next += len(calls)
			if b.tooLarge != nil {
				break
			}
		}
		if from == p.next && len(p.Run.Calls) > 0 {
			break
		}
		if b.parts = append(b.parts, stretch{p: p, from: from, to: p.next}); b.tooLarge == nil && from == 0 {
			for _, w := range p.Watches {
				b.watches = append(b.watches, w)
				b.markBytes += w.markBytes
			}
		}
		if p.blocks() {
			x.try(b, p, term)
		}
		if p.Deadline.After(b.deadline) {
			b.deadline = p.Deadline
		}
		taken++
		if p.next < len(p.Run.Calls) {
			break
		}
	}
	n := copy(x.queue, x.queue[taken:])
	clear(x.queue[n:])
	x.queue = x.queue[:n]
	x.register(b)
	slices.SortFunc(b.waiters, func(a, b stretch) int { return a.p.compare(b.p) }) // one may wait for several keys
	for i := range b.waiters {
		p := b.waiters[i].p
		p.Deadline, p.waiting.term = b.deadline, term
		more := x.more(p)
		b.more = b.more || more
		b.waiting = appendWaiter(b.waiting, p.pop(), more)
	}
	b.exact = b.exact || len(b.watches)+len(b.waiters) > 0
	x.exact = x.exact || b.exact
	return b
}

// mustWait reports whether a run cannot be in the next proposal: that has to be exact, and another one is open.
func (x *proposer) mustWait(p *Pending) bool {
	if len(x.open) == 0 || x.o.Mistakes.AnyExact {
		return false
	}
	if len(p.Watches) > 0 || p.blocks() {
		return true
	}
	if x.waiters.count == 0 || p.next == len(p.Run.Calls) {
		return false
	}
	calls, _, _, _ := p.unit()
	return x.touchesWaiters(calls)
}

// send stamps a proposal and hands it to Raft. If it returns an error, the entry is in no log and never will be.
func (x *proposer) send(b *proposal, term uint64, timeout time.Duration) (multiraft.Request, error) {
	if term == 0 {
		return multiraft.Request{}, ErrNotLeader
	}
	if b.tooLarge != nil {
		return multiraft.Request{}, b.tooLarge
	}
	if timeout < x.o.Knobs.RTT {
		return multiraft.Request{}, ErrDeadline
	}
	x.mu.Lock()
	b.term = term
	x.mu.Unlock()
	ahead := x.seal(b, term)
	if !x.hosted.enter() {
		return multiraft.Request{}, ErrStopped
	}
	rs, err := x.raft.Propose(b.buf, timeout)
	x.hosted.leave()
	if err != nil {
		if errors.Is(err, multiraft.ErrClosed) {
			return multiraft.Request{}, ErrStopped
		}
		return multiraft.Request{}, ErrNotLeader // busy or not ready: it may be tried again
	}
	if ahead {
		x.counters.ReadSets.Add(1)
		x.counters.ReadSetReads.Add(uint64(b.reads.Reads))
	}
	x.counters.Entries.Add(1)
	x.counters.EntryBytes.Add(uint64(len(b.buf)))
	x.counters.Commands.Add(uint64(b.commands))
	return rs, nil
}

// seal puts the header and, if the entry needs one, the trailer to a proposal's units. It reports whether a read set
// is sent along.
//
// It reads the apply index, base, before it looks at the watches and opens the view. The entries up to base have made
// the watches dirty. If a later entry is missing there, or is visible in the view, it has the index after base, and the
// trailer does not hold.
func (x *proposer) seal(b *proposal, term uint64) (ahead bool) {
	base := x.applied.Load()
	ahead = x.readAhead(b)
	b.buf = append(b.buf, b.scripts.bytes...)
	units := len(b.buf)
	for _, w := range b.watches {
		b.buf = w.appendMarks(b.buf, w.dirtyIn(x.core, term))
	}
	b.buf = append(b.buf, b.waiting...)
	marks := len(b.buf) - units
	if f := x.o.Hooks.BeforePropose; f != nil {
		f(x.o.Region.ID, term)
	}
	if x.o.Mistakes.LateBase {
		base = x.applied.Load()
	}
	now := time.Now()
	h := entryHeader{
		term: term, timeMS: x.LeaderTimeMS(now), version: keys.Version(uint64(now.UnixMicro()), b.sequence),
		store: x.o.Store, incarnation: x.o.Incarnation, sequence: b.sequence, bounds: b.bounds,
	}
	h.put(b.buf)
	switch scripts := len(b.scripts.bytes); {
	case ahead:
		b.buf = appendTrailer(b.buf, scripts, marks, len(b.waiting) > 0, b.reads.Bytes, base)
	case marks > 0 || scripts > 0:
		b.buf = appendTrailer(b.buf, scripts, marks, len(b.waiting) > 0, nil, base)
	}
	return ahead
}

// readAhead makes the proposal's read set, b.reads: it looks up what the commands will look up, so that the replicas
// need not. ok is false if there is nothing to send along, or if another proposal is open, since its entry would be
// applied in between.
//
// The commands are read from the entry rather than from the runs: if the proposal has been claimed meanwhile, the
// callers may have their runs back.
func (x *proposer) readAhead(b *proposal) (ok bool) {
	unblind := x.unblind.Load()
	if !b.looks && (!b.looksUnblind || unblind == 0) || !x.o.Knobs.ReadSets || !b.alone ||
		len(b.buf) > entryHeaderBytes+int(x.o.Knobs.BatchMaxBytes) {
		return false
	}
	view := x.o.Engine.NewLazyView(x.rows)
	defer view.Close()
	b.reads.Begin(view, unblind)
	err := x.addReads(b, b.buf[entryHeaderBytes:], false)
	return err == nil && b.reads.Reads > 0 // on an error apply meets the same, and fences the store
}

// addReads adds what some units look up, or the calls of a group.
func (x *proposer) addReads(b *proposal, units []byte, grouped bool) error {
	for len(units) > 0 {
		var u unit
		var err error
		if u, b.args, units, err = parseUnit(units, b.args[:0]); err != nil {
			return err
		}
		if u.kind != 0 {
			if err := x.addReads(b, u.calls, true); err != nil {
				return err
			}
			continue
		}
		if err := b.reads.Add(&redis.Call{Command: find(b.args, grouped), Args: b.args}); err != nil {
			return err
		}
	}
	return nil
}

// find finds the row of a call of an entry. It returns nil for what is the machine's own.
func find(args [][]byte, grouped bool) *redis.Command {
	if grouped {
		return redis.LookupInUnit(args)
	}
	row := redis.Lookup(args[0])
	if row == nil {
		row = redis.LookupInternal(args)
	}
	return row
}

// drive drives one place: it sends the proposal, waits until it is finished, and goes on with the next one as long as
// runs wait.
func (x *proposer) drive(b *proposal) {
	defer x.wg.Done()
	for {
		rs, err := x.send(b, x.servingTerm.Load(), time.Until(b.deadline))
		sent := time.Now()
		x.await(b, rs, err)
		x.mu.Lock()
		answered := len(b.parts)
		x.recycle(b)
		x.gather(answered, time.Since(sent))
		if b = x.form(); b == nil {
			x.inflight--
			x.mu.Unlock()
			return
		}
		x.mu.Unlock()
	}
}

// minToGather is how many runs a proposal must have had for its place to wait until their callers send again.
const minToGather = 4

// gather waits, after a proposal of several runs, until about as many runs wait as there were before. It does not wait
// for all of them, since some callers do not send again. It waits no longer than the proposal took, and no longer than
// raft.batch_max_delay. The caller holds mu; gather releases it while it waits.
func (x *proposer) gather(answered int, took time.Duration) {
	most := min(took, x.o.Knobs.BatchMaxDelay)
	wanted := (len(x.queue) + answered) * 7 / 8
	if answered < minToGather || wanted <= len(x.queue) || x.wanted > 0 || x.stopped || most <= 0 {
		return
	}
	x.wanted = wanted
	x.mu.Unlock()
	t := time.NewTimer(most)
	select {
	case <-x.gathered:
		t.Stop()
		x.mu.Lock()
	case <-t.C:
		x.mu.Lock()
		if x.wanted == 0 {
			<-x.gathered
		}
		x.wanted = 0
	}
}

// await returns when a proposal is finished. It finishes the proposal if no other goroutine does. err is the error of
// send.
func (x *proposer) await(b *proposal, rs multiraft.Request, err error) {
	var res multiraft.Answer
	if err == nil && x.o.Mistakes.EarlyReply {
		x.replyEarly(b)
	}
	if err == nil {
		select {
		case res = <-rs.Answer():
			rs.Release()
			x.awaitDeadline(b, res)
		case <-b.returned: // another goroutine has claimed it: Raft's answer does not matter
		case <-x.stop: // likewise, unless it is a barrier that was proposed after Stop
		}
	}
	if x.claim(b.sequence) != nil {
		if err == nil {
			err = outcome(res)
		}
		x.finish(b, err)
	}
	<-b.finished
}

// awaitDeadline waits, where Raft has given up a proposal before its deadline, until the deadline has passed or the
// proposal is claimed. Raft counts ticks, and there is one from time to time that makes it count too many: see
// multiraft.HostTick. The entry may be applied all the same, a moment later.
func (x *proposer) awaitDeadline(b *proposal, res multiraft.Answer) {
	left := time.Until(b.deadline)
	if multiraft.Outcome(res) != multiraft.ErrTimeout || left <= 0 {
		return
	}
	late := time.NewTimer(left)
	defer late.Stop()
	select {
	case <-late.C:
	case <-b.returned:
	case <-b.finished:
		b.finished <- struct{}{} // for await
	case <-x.stop:
	}
}

// replyEarly is the mistake that Mistakes.EarlyReply plants: it answers a proposal that consists of SETs before it is
// applied.
func (x *proposer) replyEarly(b *proposal) {
	x.mu.Lock()
	early := x.open[b.sequence] == b && !b.claimed && len(b.parts) > 0
	for i := 0; early && i < len(b.parts); i++ {
		early = b.parts[i].to > b.parts[i].from // a reader that moves the region time would propose it without end
		for _, c := range b.parts[i].p.Run.Calls[b.parts[i].from:b.parts[i].to] {
			early = early && c.Command != nil && c.Command.Name == "set" && len(c.Args) == 3
		}
	}
	b.claimed = b.claimed || early
	x.mu.Unlock()
	if !early {
		return
	}
	for _, part := range b.parts {
		run := part.p.Run
		for range part.to - part.from {
			run.Out.OK()
			run.Ends = append(run.Ends, len(run.Out.Buf))
		}
	}
	x.finish(b, nil)
}

// rejectQueue answers the runs that are in no proposal, and the waiters.
func (x *proposer) rejectQueue(err error) {
	x.mu.Lock()
	queue := append(x.queue, x.waiters.drop()...)
	x.queue = nil
	x.mu.Unlock()
	for _, p := range queue {
		p.finish(err)
	}
}

// refuse is Replica.Refuse.
func (x *proposer) refuse(why error) {
	x.mu.Lock()
	x.refusal = why
	var refused []*Pending
	if why != nil {
		x.queue = slices.DeleteFunc(x.queue, func(p *Pending) bool {
			writes := p.refusable() && p.next == 0 // else a part of it is applied
			if writes {
				refused = append(refused, p)
			}
			return writes
		})
	}
	x.mu.Unlock()
	for _, p := range refused {
		p.finish(why)
	}
}

// abandon stops the proposer. Waiting runs get err, and runs in flight get an unknown outcome.
func (x *proposer) abandon(err error) {
	x.watches.drop()
	x.mu.Lock()
	x.stopped = true
	open := make([]uint64, 0, len(x.open))
	for s := range x.open {
		open = append(open, s)
	}
	x.mu.Unlock()
	x.rejectQueue(err)
	for _, s := range open {
		if b := x.claim(s); b != nil {
			x.finish(b, &UnknownOutcome{err.Error()})
		}
	}
}

// rejectAll stops the proposer. It answers all runs with an error that says that they are not applied.
func (x *proposer) rejectAll(err error) {
	x.mu.Lock()
	x.stopped = true
	open := slices.Collect(maps.Keys(x.open))
	x.mu.Unlock()
	x.rejectQueue(err)
	for _, s := range open {
		if b := x.claim(s); b != nil {
			b.returned <- struct{}{}
			x.finish(b, err)
		}
	}
}

// Dropped is told of entries that dragonboat wanted to forward to another leader and that the transport dropped. They
// are in no log and never will be, since this replica did not lead when they reached Raft.
func (r *Replica) Dropped(entries []multiraft.LogEntry) { r.proposer.dropped(entries) }

// dropped is Replica.Dropped.
func (x *proposer) dropped(entries []multiraft.LogEntry) {
	for i := range entries {
		payload, ok := multiraft.Payload(&entries[i])
		if !ok {
			continue
		}
		h, _, err := parseEntry(payload)
		if err != nil || h.store != x.o.Store || h.incarnation != x.o.Incarnation {
			continue
		}
		if b := x.claim(h.sequence); b != nil {
			b.returned <- struct{}{}
			x.finish(b, ErrNotLeader)
		}
	}
}

// disown finishes the proposals that apply has not seen, after a snapshot was installed: apply never sees an entry that
// the snapshot contains.
func (x *proposer) disown() {
	x.mu.Lock()
	open := make([]uint64, 0, len(x.open))
	for s := range x.open {
		open = append(open, s)
	}
	x.mu.Unlock()
	for _, s := range open {
		if b := x.claim(s); b != nil {
			b.returned <- struct{}{}
			x.finish(b, &UnknownOutcome{"the region was replaced by a snapshot"})
		}
	}
}
