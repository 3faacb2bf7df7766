package server

import (
	"slices"
	"time"
	"unsafe"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// This file is what a batch consists of: its tasks and their outcomes. round.go runs them.

const (
	maxWrites  = 4096 // in one batch
	firstReads = 16   // in one batch, until the connection knows how large the replies are
	maxReads   = 4096 // in one batch

	// wantReplies is how many bytes of replies a batch of reads should not exceed by much: for a client that does not
	// read them the server holds them.
	wantReplies = 128 << 10
)

// batch runs commands that do not depend on each other's replies: writes, or reads. It runs them in rounds. In each
// round the calls for one replica are a part. The batch keeps the order within a part, and hands all parts over before
// it waits for the first. What found no leader, or a replica that does not lead, is tried again in the next round, as
// the slot table changes, until the batch's deadline.
//
// Order: a connection runs one batch after the other. Within a batch, the calls of a part that are handed over again
// begin with the first that was provably not applied. So no later write of the connection for that region can be ahead
// of one of these.
//
// Time: a batch has redis.leaderless_wait from its turn on, so that a pipeline may take long as long as it goes on.
// When one batch has used that time up, the whole pipeline has. The batches behind it then give up at once on the
// regions that it waited for, and on those that have no leader. They still try the leader of another region, but all
// these tries together take no more time than one.
//
// A batch reuses all its memory.
type batch struct {
	c *conn

	tasks  []task
	parts  []*part // of all rounds of this batch: parts[:used]
	used   int
	partOf []int // by index in the slot table's Regions: index of the round's part plus one
	errs   redis.Reply
	more   func(bytes int) int // conn.moreOfReads
	timer  *time.Timer

	readLimit int   // how many reads the next batch may have
	ends      []int // by command that runs together with others: the end of its tasks

	slots     []topology.Slot // that tasks refer to
	args      [][]byte        // of commands that were cut
	positions []int           // scratch: where a command's keys are
	order     []int           // of the command that was cut last, by key: its task
	counts    []int           // scratch of cut

	deadline time.Time                  // of the batch, or of the pipeline's first batch that has used its time up
	overdue  map[topology.RegionID]bool // regions that used up the time of the pipeline that arrived at waited
	waited   time.Time
}

// task is one call and what became of it.
type task struct {
	call    redis.Call
	slots   []topology.Slot // of its keys; nil: slot alone
	slot    topology.Slot
	follow  bool // a replica that does not lead will do
	ledOnly bool // it concerns slots only as long as this store leads them
	outcome outcome
	reply   []byte // valid until the batch is reset
}

// outcome is what became of a task.
type outcome byte

const (
	open      outcome = iota // nothing yet
	executed                 // the reply is the command's own
	failed                   // the reply is an error of routing or of Raft: the call did not run, or nobody knows
	postponed                // it did not run and has no reply: those of the batch are large enough
	gone                     // it has no reply: it is ledOnly, and another store leads now
)

// part is what goes to one replica in one round.
type part struct {
	region  int // index in the slot table's Regions
	id      topology.RegionID
	store   topology.StoreID
	replica *region.Replica
	follow  bool // the replica need not lead
	run     redis.Run
	pending region.Pending
	tasks   []int // by call
}

// bytes is how much memory the batch keeps.
func (b *batch) bytes() int {
	const intBytes = int(unsafe.Sizeof(0))
	n := cap(b.tasks)*int(unsafe.Sizeof(task{})) + cap(b.slots)*int(unsafe.Sizeof(topology.Slot(0))) +
		cap(b.args)*int(argBytes) + (cap(b.positions)+cap(b.order)+cap(b.counts)+cap(b.ends))*intBytes
	for _, p := range b.parts {
		n += cap(p.run.Out.Buf) + cap(p.run.Calls)*int(unsafe.Sizeof(redis.Call{})) +
			(cap(p.run.Ends)+cap(p.tasks))*intBytes
	}
	return n
}

// shed gives that memory up between two batches.
func (b *batch) shed() {
	b.tasks, b.slots, b.parts, b.used, b.args = nil, nil, nil, 0, nil
	b.positions, b.order, b.counts, b.ends = nil, nil, nil, nil
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

// open is how many tasks have no outcome yet.
func (b *batch) open() (n int) {
	for i := range b.tasks {
		if b.tasks[i].outcome == open {
			n++
		}
	}
	return n
}

// full reports whether replies were left out for want of memory.
func (b *batch) full() bool {
	return slices.ContainsFunc(b.parts[:b.used], func(p *part) bool { return p.run.Out.Full })
}

// fail answers a task with an error of Raft or of the engine.
func (b *batch) fail(x *task, line string) {
	start := len(b.errs.Buf)
	b.errs.Error(line)
	b.failFrom(x, start)
}

func (b *batch) failAll(tasks []int, line string) {
	for _, i := range tasks {
		b.fail(&b.tasks[i], line)
	}
}

// refuse answers a task with a redirection, or with why there is none.
func (b *batch) refuse(x *task, d route.Decision) {
	start := len(b.errs.Buf)
	b.errs.Buf = append(d.AppendError(append(b.errs.Buf, '-')), '\r', '\n')
	b.failFrom(x, start)
}

// failFrom answers a task with the error that begins at start of errs.
func (b *batch) failFrom(x *task, start int) {
	x.reply, x.outcome = b.errs.Buf[start:len(b.errs.Buf):len(b.errs.Buf)], failed
}
