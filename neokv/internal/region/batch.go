package region

import (
	"fmt"
	"time"

	"neokv.dev/neokv/internal/redis"
)

// maxEntryBytes bounds a Raft entry: an entry of this size still fits in every buffer on its way, and does not hold up the log so long
// that the leader is taken for dead.
const maxEntryBytes = 64 << 20

// maxWrittenBytes bounds what one command may write into the batches of its region's replicas, all of it at once.
const maxWrittenBytes = 256 << 20

// tooLarge says why no entry has room for a command, nil where one has.
func tooLarge(c *redis.Call) error {
	n := callBytes(c)
	if entry := entryHeaderBytes + n; entry > maxEntryBytes {
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, entry, maxEntryBytes)
	}
	if writes := c.Writes(n); writes > maxWrittenBytes {
		return fmt.Errorf("%w: it may write %d bytes at once, at most %d", ErrTooLarge, writes, maxWrittenBytes)
	}
	return nil
}

// Pending is a run of writes on its way through Raft. The caller fills Run and Deadline, calls Propose, then Wait; until Wait
// returns the run belongs to the region. A Pending may be reused afterwards, unless it is Lost.
type Pending struct {
	Run      *redis.Run
	Deadline time.Time
	// Err is valid after Wait: nil when all calls are applied, their replies in Run.Out. Else the calls before len(Run.Ends)
	// are applied, and the others are not (one of the errors above) or nobody knows (an *UnknownOutcome).
	Err error
	// Index is the apply index of the last entry that a part of the run travelled in, 0 if nothing of it was applied.
	Index uint64
	// Lost is valid after Wait: the deadline has passed while the run was being applied. Err is then an *UnknownOutcome for all of its calls,
	// and neither the Pending nor its Run may be touched again: apply still writes replies into them.
	Lost bool

	next int           // first call that is in no batch yet
	done chan struct{} // capacity 1; made once
}

// Wait returns when the outcome is known, or unknown for good, at Deadline at the latest.
func (p *Pending) Wait() { <-p.done }

// WaitUnless is Wait that gives up when a channel is closed, and then reports false: the run belongs to the region for good.
func (p *Pending) WaitUnless(gone <-chan struct{}) bool {
	select {
	case <-p.done:
		return true
	case <-gone:
		return false
	}
}

func (p *Pending) finish(err error) {
	p.Err = err
	p.done <- struct{}{}
}

// batch is one Raft entry, from the moment that its sequence is given out until its outcome is known.
type batch struct {
	buf      []byte // header and commands
	parts    []part
	commands int
	deadline time.Time
	sequence uint64
	tooLarge error // of its only command, which no entry has room for; nil: there is none in it
	alone    bool  // no other one was open when it was formed
	claimed  bool  // somebody finishes it, or has
	// Whether there are commands in it that look something up, and such that do where their slot may hold a collection.
	looks, looksUnblind bool
	reads               redis.ReadSet
	args                [][]byte // scratch
	// applied and err are written by whoever claims the batch, and may be read after finished.
	applied bool
	index   uint64 // of the entry, once it is applied
	err     error

	finished chan struct{} // capacity 1: the outcome is known, and whoever claimed the batch is through with it
	returned chan struct{} // capacity 1: the transport has dropped it, so no answer of Raft is worth waiting for
}

func newBatch() *batch {
	return &batch{
		buf: make([]byte, entryHeaderBytes, 4096), finished: make(chan struct{}, 1), returned: make(chan struct{}, 1),
	}
}

// part is the stretch of a pending run that travels in a batch: calls [from, to).
type part struct {
	p        *Pending
	from, to int
	answered bool // at its deadline, before the batch was finished
}

// recycle keeps a finished batch for reuse. mu is held.
func (x *proposer) recycle(b *batch) {
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
	b.reads.Recycle()
	*b = batch{buf: b.buf[:entryHeaderBytes], parts: b.parts[:0], reads: b.reads, args: b.args, finished: b.finished, returned: b.returned}
	x.free = append(x.free, b)
}

// claim makes the caller the one who finishes a batch; nil if another one is.
func (x *proposer) claim(sequence uint64) *batch {
	x.mu.Lock()
	defer x.mu.Unlock()
	b := x.open[sequence]
	if b == nil || b.claimed {
		return nil
	}
	b.claimed = true
	return b
}

// finish hands a claimed batch's outcome to its runs. A run of which calls are left goes back to the front of the queue, from
// where this batch's place takes it next. The batch is not the caller's any more afterwards.
func (x *proposer) finish(b *batch, err error) {
	b.err = err
	x.mu.Lock()
	delete(x.open, b.sequence) // its runs are not overdue any more
	x.mu.Unlock()
	for _, part := range b.parts {
		p := part.p
		if part.answered {
			continue
		}
		p.Index = max(p.Index, b.index)
		if err != nil || p.next == len(p.Run.Calls) {
			p.finish(err)
			continue
		}
		x.mu.Lock()
		serving, stopped := x.servingTerm.Load() != 0, x.stopped
		if serving && !stopped {
			x.queue = append(x.queue, nil)
			copy(x.queue[1:], x.queue)
			x.queue[0] = p
			x.expect(p.Deadline)
		}
		x.mu.Unlock()
		switch {
		case stopped:
			p.finish(ErrStopped)
		case !serving:
			p.finish(ErrNotLeader)
		}
	}
	b.finished <- struct{}{}
}
