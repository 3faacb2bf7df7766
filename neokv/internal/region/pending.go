package region

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
)

// maxEntryBytes bounds a Raft entry. An entry of this size still fits in every buffer on its way. It also does not
// delay the log so long that followers take the leader for dead.
const maxEntryBytes = 64 << 20

// tooLarge returns an error if a unit is too large for any entry. It takes as many bytes in an entry.
func tooLarge(unit []redis.Call, bytes int) error {
	if entry := entryHeaderBytes + bytes; entry > maxEntryBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, entry, maxEntryBytes)
	}
	writes := writtenBytes(unit, (*redis.Call).Writes)
	if writes > redis.MaxWrittenBytes && len(unit) > 1 {
		writes = writtenBytes(unit, (*redis.Call).WritesAtMost)
	}
	if writes > redis.MaxWrittenBytes {
		return fmt.Errorf("%w: it may write %d bytes at once, at most %d", ErrTooLarge, writes, redis.MaxWrittenBytes)
	}
	if bytes <= redis.MaxNameBytes {
		return nil
	}
	for i := range unit {
		if name := unit[i].LongestName(); name > redis.MaxNameBytes {
			return fmt.Errorf("%w: a key, field or member of %d bytes, at most %d", ErrTooLarge, name, redis.MaxNameBytes)
		}
	}
	return nil
}

// writtenBytes bounds what the calls of a unit write together.
func writtenBytes(unit []redis.Call, of func(c *redis.Call, argBytes int) int) (n int) {
	for i := range unit {
		if c := &unit[i]; c.Command == nil || c.Command.Write != nil {
			n += of(c, callBytes(c)-len(c.ScriptText())) // the text of a script is in the entry alone
		}
	}
	return n
}

// Pending is a run of writes on its way through Raft. The caller fills Run and Deadline, calls Propose, then Wait.
// Until Wait returns, the run belongs to the region. A Pending may be used again afterwards, unless it is Lost.
type Pending struct {
	Run      *redis.Run
	Deadline time.Time
	// Watches are those of a transaction. Its run has one group then, of all calls, which has no effect if a watched
	// key was changed after the watch began. It has none either if the watch is of another replica or an earlier term.
	// The caller closes the watches after Wait.
	Watches []*Watch
	// Err is valid after Wait. It is nil when all calls are applied and their replies are in Run.Out. Otherwise the
	// first len(Run.Ends) calls are applied. If Err is an *UnknownOutcome, nobody knows whether the others are; with
	// any other error they are not.
	Err error
	// Index is the apply index of the last entry that carried a part of the run, 0 if no part was applied.
	Index uint64
	// Lost is valid after Wait. It says that the deadline passed while apply was working on the run. Err is then an
	// *UnknownOutcome for all calls. The caller must not touch the Pending or its Run again, since apply still writes
	// replies into them.
	Lost bool

	// Since, of a run with a blocking pop as its only call, is when the command arrived. Such a run may wait: see
	// Block.
	Since time.Time
	// Parked is valid after the first Wait of a run with Since: its keys have no elements, so it waits. Then, and only
	// then, Wake is called when the second Wait would return. Wake must not block nor call the region.
	Parked bool
	Wake   func()

	waiting waiting
	next    int           // the first call that is in no proposal yet
	alone   bool          // it travels in an entry of its own
	small   bool          // it goes on with a change that has begun, so a full disk does not stop it
	done    chan struct{} // capacity 1, and 2 for a blocking pop
}

// unit returns the calls of the run's next unit, the index of its group, -1 for none, how many marks it has, and an
// upper bound of the bytes that it takes in an entry.
func (p *Pending) unit() (calls []redis.Call, group, marks, bytes int) {
	group = p.Run.GroupAt(p.next)
	if group < 0 {
		calls = p.Run.Calls[p.next : p.next+1]
		return calls, group, 0, callBytes(&calls[0])
	}
	calls, bytes = p.Run.Calls[p.next:p.Run.Groups[group].To], groupHeaderBytes
	for i := range calls {
		bytes += callBytes(&calls[i])
	}
	if group == 0 {
		for _, w := range p.Watches {
			marks += len(w.keys)
			bytes += w.markBytes
		}
	}
	return calls, group, marks, bytes
}

// drop answers a run whose only group has no effect since a watched key was changed.
func (p *Pending) drop() {
	for range p.Run.Calls {
		p.Run.Ends = append(p.Run.Ends, len(p.Run.Out.Buf))
	}
	p.Run.Dropped = append(p.Run.Dropped, redis.Drop{})
	p.finish(nil)
}

// refusable reports whether the run needs space on disks.
func (p *Pending) refusable() bool { return len(p.Run.Calls) > 0 && !p.small }

// Wait returns when the outcome is known, or when it is certain that it will not be known, and at Deadline at the
// latest.
func (p *Pending) Wait() { <-p.done }

// WaitUnless is like Wait, but gives up when gone is closed. It then returns false, and the run belongs to the region
// for good.
func (p *Pending) WaitUnless(gone <-chan struct{}) bool {
	select {
	case <-p.done:
		return true
	case <-gone:
		return false
	}
}

// begin begins the run's way.
func (p *Pending) begin() {
	if p.done == nil {
		values := 1
		if p.blocks() {
			values = 2
		}
		p.done = make(chan struct{}, values)
	}
	p.Err, p.Index, p.Lost, p.Parked, p.next = nil, 0, false, false, 0
	p.Run.Dropped = p.Run.Dropped[:0]
}

func (p *Pending) finish(err error) {
	p.Err = err
	var wake func()
	if p.Parked {
		wake = p.Wake
	}
	p.done <- struct{}{} // the caller may use p again
	if wake != nil {
		wake()
	}
}

// proposal is one Raft entry, from the moment that it gets its sequence until its outcome is known. Fields below
// claimed belong to the goroutine that has claimed it.
type proposal struct {
	buf       []byte // header and units
	parts     []stretch
	commands  int
	deadline  time.Time
	sequence  uint64
	bounds    uint32   // version of the bounds by which all its runs go
	tooLarge  error    // not nil if its only unit is too large for any entry
	alone     bool     // no other proposal was open when it was formed
	exact     bool     // no other proposal may be open: it has marks, or tries of blocking pops
	watches   []*Watch // of its transactions, in their order; their marks make the entry exact, as do those of waiters
	waiters   []stretch
	waiting   []byte          // their marks
	more      bool            // others wait for the keys of some of them
	short     bool            // others wait for keys that its last unit may fill, and it has marks of none of them
	tried     map[string]bool // the keys for which its blocking pops wait
	markBytes int             // a bound of the length of the marks
	markRoom  int             // how long they may be
	scripts   scripts
	term      uint64 // in which it was sent, 0 before that; guarded by the proposer's mutex
	claimed   bool   // a goroutine has undertaken to finish it
	// looks says that one of the commands looks something up in any case; looksUnblind, that one does if its slot may
	// hold a collection.
	looks, looksUnblind bool
	reads               redis.ReadSet
	args                [][]byte // scratch
	// The goroutine that claims the proposal writes these fields. Others may read them after finished.
	applied bool
	index   uint64 // of the entry, once it is applied
	err     error
	left    []string // keys that have elements, and waiters of whom it has no marks, perhaps

	finished chan struct{} // capacity 1: gets a value when the outcome is known and the claimer has done its work
	returned chan struct{} // capacity 1: gets a value when Raft's answer is not worth waiting for
}

func newProposal() *proposal {
	return &proposal{
		buf: make([]byte, entryHeaderBytes, 4096), finished: make(chan struct{}, 1), returned: make(chan struct{}, 1),
	}
}

// stretch is the part of a pending run that travels in one proposal: the calls [from, to).
type stretch struct {
	p        *Pending
	from, to int
	answered bool // at its deadline, before the proposal was finished
}

// stretch returns the i-th of its parts and waiters.
func (b *proposal) stretch(i int) *stretch {
	if i < len(b.parts) {
		return &b.parts[i]
	}
	return &b.waiters[i-len(b.parts)]
}

// recycle keeps a finished proposal for reuse. The caller holds mu.
func (x *proposer) recycle(b *proposal) {
	if cap(b.buf) > 4*int(x.o.Knobs.BatchMaxBytes) {
		return
	}
	select {
	case <-b.returned:
	default:
	}
	clear(b.parts)
	if cap(b.args) > keptArgs {
		b.args = nil
	}
	clear(b.args[:cap(b.args)])
	clear(b.watches)
	clear(b.waiters)
	b.reads.Recycle()
	b.scripts.reset()
	*b = proposal{
		buf: b.buf[:entryHeaderBytes], parts: b.parts[:0], watches: b.watches[:0], waiters: b.waiters[:0],
		waiting: b.waiting[:0], reads: b.reads, args: b.args,
		scripts: b.scripts, finished: b.finished, returned: b.returned,
	}
	x.free = append(x.free, b)
}

// claim makes the caller the one goroutine that finishes a proposal. It returns nil if another has claimed it.
func (x *proposer) claim(sequence uint64) *proposal {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.open[sequence]
	if b == nil || b.claimed {
		return nil
	}
	b.claimed = true
	return b
}

// outrun finishes the proposals of earlier terms when apply meets the first entry of a term: their entries have no
// effect from there on, if they are in the log at all. A leader that was replaced may have lost them, and nobody would
// hear of them again.
func (x *proposer) outrun(term uint64) {
	x.mu.Lock()
	var outrun []uint64
	for s, b := range x.open {
		if b.term != 0 && b.term < term {
			outrun = append(outrun, s)
		}
	}
	x.mu.Unlock()
	for _, s := range outrun {
		if b := x.claim(s); b != nil {
			b.returned <- struct{}{}
			x.finish(b, ErrNotLeader)
		}
	}
}

// finish hands the outcome of a claimed proposal to its runs and waiters. A run that has calls left goes back to the
// front of the queue, so that it is in the next proposal of this place; behind scripts it goes to the end, so that
// others have their turn between scripts that take long. All runs of an exact entry that was applied too late go back
// to the front, in their order: nothing of it has been applied. The caller must not touch the proposal afterwards.
func (x *proposer) finish(b *proposal, err error) {
	b.err = err
	var dropped []*Pending
	x.mu.Lock()
	delete(x.open, b.sequence) // from here on overdue does not find its runs
	switch {
	case unknown(err):
		x.doubt = max(x.doubt, b.sequence)
		if b.more || b.short { // the entry may fill a key later, and nobody would tell those who were left out
			dropped = x.waiters.drop()
		}
	case err == nil && b.sequence > x.doubt:
		x.doubt = 0
	}
	for _, w := range b.waiters {
		if !w.answered {
			w.p.Index = max(w.p.Index, b.index)
			x.settle(w.p, err)
		}
	}
	var again []*Pending
	for _, part := range b.parts {
		p := part.p
		if part.answered {
			continue
		}
		p.Index = max(p.Index, b.index)
		ended := err == nil && p.next == len(p.Run.Calls)
		switch {
		case err == ErrBase:
			p.next = part.from
		case err == errCut: // the calls up to the unit that has filled a key have run
			p.next = min(part.to, len(p.Run.Ends))
			ended = p.next == len(p.Run.Calls)
		}
		switch {
		case ended && p.blocks():
			if len(p.Run.Out.Buf) == 0 {
				x.emptied(p)
			}
			x.settle(p, nil)
		case ended:
			p.finish(nil)
		case err != nil && err != ErrBase && err != errCut:
			p.finish(err)
		default:
			again = append(again, p)
		}
	}
	x.again(again, err != nil || len(b.scripts.bytes) == 0)
	x.fill(b.left)
	if b.exact {
		x.exact = false
	}
	x.mu.Unlock()
	for _, p := range dropped {
		p.finish(ErrNotLeader)
	}
	b.finished <- struct{}{}
}

// again puts runs that have calls left to the front of the queue, or to its end. The caller holds mu.
func (x *proposer) again(all []*Pending, front bool) {
	if len(all) == 0 {
		return
	}
	serving := x.servingTerm.Load() != 0
	kept := all[:0]
	for _, p := range all {
		switch {
		case x.stopped:
			p.finish(ErrStopped)
		case !serving:
			p.finish(ErrNotLeader)
		case p.waiting.canceled:
			p.finish(ErrCanceled)
		default:
			x.expect(p.Deadline)
			kept = append(kept, p)
		}
	}
	if front {
		x.queue = append(kept, x.queue...)
	} else {
		x.queue = append(x.queue, kept...)
	}
}

// unknown reports whether an outcome is an unknown one.
func unknown(err error) bool {
	if err == nil {
		return false
	}
	var u *UnknownOutcome
	return errors.As(err, &u)
}

// outcome turns Raft's answer into an error. It is called for a proposal that apply has not claimed.
func outcome(res multiraft.Answer) error {
	switch multiraft.Outcome(res) {
	case nil:
		return &UnknownOutcome{"applied without an answer"}
	case multiraft.ErrDropped:
		return ErrNotLeader
	case multiraft.ErrClosed:
		return &UnknownOutcome{"store stopped"}
	default:
		return errNoQuorum
	}
}

// What is known of a run at its deadline: while Raft has its entry, and while apply works on it.
var (
	errNoQuorum = &UnknownOutcome{"no answer from a quorum in time"}
	errApplying = &UnknownOutcome{"not applied in time"}
)

// expect sets the timer so that overdue runs at a deadline, if it would not run earlier anyway. The caller holds mu.
func (x *proposer) expect(deadline time.Time) {
	switch {
	case !x.watched.IsZero() && !deadline.Before(x.watched):
		return
	case x.watch == nil:
		x.watch = time.AfterFunc(time.Until(deadline), x.overdue)
	default:
		x.watch.Reset(time.Until(deadline))
	}
	x.watched = deadline
}

// overdue answers the runs whose deadline has passed. If a run is in the queue, its calls that are in no entry are
// certainly not applied. If its entry is under way, overdue takes the run out of the proposal. If apply has claimed the
// proposal, apply may be writing replies into the run, so the run is lost.
func (x *proposer) overdue() {
	var late []*Pending
	var next time.Time
	x.mu.Lock()
	now := time.Now()
	over := func(p *Pending) bool {
		if !p.Deadline.After(now) {
			return true
		}
		if next.IsZero() || p.Deadline.Before(next) {
			next = p.Deadline
		}
		return false
	}
	x.queue = slices.DeleteFunc(x.queue, func(p *Pending) bool {
		if !over(p) {
			return false
		}
		p.Err = ErrDeadline
		late = append(late, p)
		return true
	})
	for _, b := range x.open {
		for i := range len(b.parts) + len(b.waiters) {
			part := b.stretch(i)
			if part.answered || !over(part.p) {
				continue
			}
			late = append(late, part.p)
			part.answered = true
			if b.claimed {
				part.p.Err, part.p.Lost = errApplying, true
			} else {
				part.p.Err = errNoQuorum
				part.p = &Pending{Run: &redis.Run{Out: redis.Reply{More: func(int) int { return 0 }}}} // nobody's
			}
		}
	}
	x.watched = time.Time{}
	if !next.IsZero() {
		x.expect(next)
	}
	x.mu.Unlock()
	for _, p := range late {
		p.finish(p.Err)
	}
}
