package region

import (
	"sync"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/client"
	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis"
)

// proposer turns runs into entries. A batch leaves as soon as one of max_inflight places is free; what arrives meanwhile shares
// the next one.
//
// A place that an entry of several runs has given up stays empty for a moment (gather): whoever was just answered is about to send
// again, and entries that all of them share cost less than two halves that take turns. A lone client never waits for that, nor do few.
//
// Invariants: a Pending is in queue, in exactly one batch of open, or answered. Who claims a batch, and that is one alone, finishes
// it: apply, the transport that has dropped it, the replica's end, or the goroutine that sees its place through. A batch is open until it is
// finished. A place is given up, and a batch reused, only behind finished.
//
// Raft's own deadlines pass in the goroutine that also waits for the disk, and apply has none. So a timer of the proposer's own answers every
// run at its deadline (overdue), whatever hangs; the place in flight stays taken, so that no more is handed to what hangs.
type proposer struct {
	*core
	session *client.Session // set before the first entry

	mu       sync.Mutex
	queue    []*Pending
	inflight int
	open     map[uint64]*batch // by sequence
	sequence uint64
	free     []*batch
	stopped  bool

	// wanted is how many waiting runs end the gathering under way, 0: there is none, or it has ended; gathered is told then. Another gathering may begin
	// before who waits in the one that has ended has received that, as many as there are places.
	wanted   int
	gathered chan struct{} // capacity max_inflight

	// watch calls overdue at the instant watched, the earliest deadline of all runs or before it; zero: it is not set. It is not set anew when runs
	// are finished, so that runs which are answered in time cost no timer.
	watch   *time.Timer
	watched time.Time
}

func (x *proposer) init(c *core) {
	x.core, x.open, x.gathered = c, make(map[uint64]*batch), make(chan struct{}, c.o.Knobs.MaxInflight)
}

// Propose hands a run of writes to the region. It does not wait. The run travels in one Raft entry, or, when it is larger than
// raft.batch_max_ops or raft.batch_max_bytes allow, in several, one after the other.
func (x *proposer) propose(p *Pending) {
	if p.done == nil {
		p.done = make(chan struct{}, 1)
	}
	p.Err, p.Index, p.Lost, p.next = nil, 0, false, 0
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
	go x.drive(b) // also to send it: that looks things up, and nobody knows how long the disk takes for them
}

// register gives a batch its sequence; from now on it can be claimed. mu is held.
func (x *proposer) register(b *batch) {
	x.sequence++
	b.sequence = x.sequence
	x.open[b.sequence] = b
	b.alone = len(x.open) == 1
}

// form takes the next batch from the queue, nil if there is nothing to take. mu is held.
func (x *proposer) form() *batch {
	if len(x.queue) == 0 {
		return nil
	}
	var b *batch
	if n := len(x.free); n > 0 {
		b, x.free = x.free[n-1], x.free[:n-1]
	} else {
		b = newBatch()
	}
	limit := entryHeaderBytes + int(x.o.Knobs.BatchMaxBytes)
	taken := 0
	for _, p := range x.queue {
		if len(b.buf) > limit || b.tooLarge != nil { // a single large command: nobody shares its fate
			break
		}
		from := p.next
		for p.next < len(p.Run.Calls) {
			c := &p.Run.Calls[p.next]
			full := b.commands >= x.o.Knobs.BatchMaxOps || len(b.buf)+callBytes(c) > limit
			if full && (b.commands > 0 || len(b.parts) > 0) { // also behind an empty run, whose readers have nothing to do with it
				break
			}
			if b.tooLarge = tooLarge(c); b.tooLarge == nil {
				b.buf = appendCall(b.buf, c)
				b.looks = b.looks || c.LooksUp(0)
				b.looksUnblind = b.looksUnblind || c.LooksUp(keys.AllSlots)
			}
			b.commands++
			p.next++
			if b.tooLarge != nil {
				break
			}
		}
		if from == p.next && len(p.Run.Calls) > 0 {
			break
		}
		b.parts = append(b.parts, part{p: p, from: from, to: p.next})
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
	return b
}

// send stamps the batch and proposes it. On an error it is certain that the entry is in no log.
func (x *proposer) send(b *batch, term uint64, timeout time.Duration) (*dragonboat.RequestState, error) {
	if term == 0 {
		return nil, ErrNotLeader
	}
	if b.tooLarge != nil {
		return nil, b.tooLarge
	}
	if timeout < x.o.Knobs.RTT {
		return nil, ErrDeadline
	}
	base, ahead := x.readAhead(b)
	if f := x.o.Faults.BeforeWrite; f != nil {
		f(x.o.Region.ID, term)
	}
	now := time.Now()
	h := entryHeader{
		term: term, timeMS: x.leaderTime(now), version: keys.Version(uint64(now.UnixMicro()), b.sequence),
		store: x.o.Store, incarnation: x.o.Incarnation, sequence: b.sequence,
	}
	h.put(b.buf)
	if ahead {
		b.buf = appendReads(b.buf, b.reads.Bytes, base)
	}
	rs, err := x.o.Host.Propose(x.session, b.buf, timeout)
	if err != nil {
		if err == dragonboat.ErrClosed || err == dragonboat.ErrShardClosed || err == dragonboat.ErrShardNotFound {
			return nil, ErrStopped
		}
		return nil, ErrNotLeader // busy or not ready: it may be tried again
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

// readAhead looks up what the batch's commands will, so that the replicas need not, into b.reads, and returns the apply index that it holds
// behind. It is not ok where there is nothing to send along; so where another batch is open, which comes between. The commands are read from the
// entry: the runs may be back with their owners, if the batch has been claimed meanwhile.
func (x *proposer) readAhead(b *batch) (base uint64, ok bool) {
	unblind := x.unblind.Load()
	if !b.looks && (!b.looksUnblind || unblind == 0) || !x.o.Knobs.ReadSets || !b.alone ||
		len(b.buf) > entryHeaderBytes+int(x.o.Knobs.BatchMaxBytes) {
		return 0, false
	}
	base = x.applied.Load() // before the view: should that show more, another entry is the one behind base
	view := x.o.Engine.NewLazyView(x.rows)
	defer view.Close()
	b.reads.Begin(view, x.space, unblind)
	for rest := b.buf[entryHeaderBytes:]; len(rest) > 0; {
		var err error
		if b.args, rest, err = parseCall(rest, b.args[:0]); err == nil {
			err = b.reads.Add(&redis.Call{Command: redis.Lookup(b.args[0]), Args: b.args})
		}
		if err != nil {
			return 0, false // apply meets the same, and fences the store
		}
	}
	return base, b.reads.Reads > 0
}

// drive drives one place in flight: its batch, and then batch after batch as long as runs wait.
func (x *proposer) drive(b *batch) {
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

// minToGather is how many runs an entry must have had for the next one to wait for theirs.
const minToGather = 4

// gather waits, after an entry of some runs, until about as many are waiting as there were in all: those that do not come back are why it
// does not ask for every one. It waits no longer than the entry took, nor than raft.batch_max_delay. mu is held, but given up meanwhile.
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

// await returns when a batch that was sent is finished, and finishes it if nobody else does. err is that of sending it.
func (x *proposer) await(b *batch, rs *dragonboat.RequestState, err error) {
	var res dragonboat.RequestResult
	if err == nil && x.o.Faults.EarlyReply {
		x.replyEarly(b)
	}
	if err == nil {
		select {
		case res = <-rs.AppliedC():
			rs.Release()
		case <-b.returned: // claimed; what Raft says in the end nobody waits for
		case <-x.stop: // as well, unless a barrier has come in behind Stop
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

// replyEarly is what Faults.EarlyReply plants: it answers a batch of nothing but SETs.
func (x *proposer) replyEarly(b *batch) {
	x.mu.Lock()
	early := x.open[b.sequence] == b && !b.claimed && len(b.parts) > 0
	for i := 0; early && i < len(b.parts); i++ {
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

// rejectQueue answers the runs that are in no batch.
func (x *proposer) rejectQueue(err error) {
	x.mu.Lock()
	queue := x.queue
	x.queue = nil
	x.mu.Unlock()
	for _, p := range queue {
		p.finish(err)
	}
}

// abandon stops the proposer: waiting runs are answered with err, runs in flight with an unknown outcome.
func (x *proposer) abandon(err error) {
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

// Dropped is told of entries that dragonboat wanted to forward and the transport has dropped: they are in no log and never will
// be, since this replica was not the leader when they reached Raft.
func (x *proposer) dropped(entries []pb.Entry) {
	for i := range entries {
		cmd := entries[i].Cmd
		if entries[i].Type == pb.EncodedEntry && len(cmd) > 0 {
			cmd = cmd[1:] // dragonboat's one-byte payload header, uncompressed
		}
		h, _, err := parseEntry(cmd)
		if err != nil || h.store != x.o.Store || h.incarnation != x.o.Incarnation {
			continue
		}
		if b := x.claim(h.sequence); b != nil {
			b.returned <- struct{}{}
			x.finish(b, ErrNotLeader)
		}
	}
}

// disown ends the wait of the batches that were proposed here and that apply has not seen: what the snapshot stands for
// apply never sees.
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
