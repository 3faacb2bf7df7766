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

// This file has the batch and its parts: tasks, their outcomes, and how they are answered. round.go runs a batch.

const (
	maxWrites  = 4096 // in one batch
	firstReads = 16   // in a batch, while the connection does not know how large the replies are
	maxReads   = 4096 // in one batch

	// wantReplies is the size of replies at which a batch of reads ends. The server holds these bytes as long as the
	// client does not read them.
	wantReplies = 128 << 10
)

// batch runs commands that do not depend on each other's replies: writes, or reads. It runs them in rounds. In each
// round the calls for one replica form a part. The batch keeps the order within a part, and hands all parts over before
// it waits for the first. A call that finds no leader, or a replica that does not lead, is tried again in the next
// round, when the slot table has changed, until the batch's deadline.
//
// Order: a connection runs one batch after the other. When a batch hands a part over again, the part begins with the
// first call that was provably not applied. So no later write of the connection to that region can overtake one of
// these calls.
//
// Time: a batch has redis.leaderless_wait, counted from its turn, so a long pipeline may go on as long as it makes
// progress. When one batch has used that time up, the whole pipeline has. The batches after it give up at once on the
// regions that it waited for, and on regions without a leader. They still try the leaders of other regions, but all
// these tries together take no more time than one.
//
// A batch reuses all its memory.
type batch struct {
	c *conn

	tasks  []task
	cuts   bool    // some tasks may be cut anew
	alone  bool    // all tasks are parts of one command
	parts  []*part // of all rounds of this batch: parts[:used]
	used   int
	partOf []int // by index in the slot table's Regions: index of the round's part plus one
	errs   redis.Reply
	more   func(bytes int) int // conn.moreOfReads
	timer  *time.Timer

	readLimit int   // how many reads the next batch may have
	ends      []int // for each command of the batch: the end of its tasks

	slots     []topology.Slot // that tasks refer to
	args      [][]byte        // of commands that were cut
	positions []int           // scratch: where a command's keys are
	order     []int           // for each key of the command that was cut last: its task
	counts    []int           // scratch of cut

	deadline time.Time                  // of this batch, or of the first batch of the pipeline that used its time up
	overdue  map[topology.RegionID]bool // regions that used up the time of a pipeline, the one that arrived at waited
	waited   time.Time
}

// task is one call and what became of it.
type task struct {
	call    redis.Call
	slots   []topology.Slot // the slots of its keys; nil: slot is the only one
	slot    topology.Slot
	follow  bool // a replica that does not lead will do
	ledOnly bool // it is void for slots that this store no longer leads
	scope   scope
	span    topology.SlotRange // wholeSlots, walkedSlots: the slots
	whole   *command           // wholeSlots: the client's command
	outcome outcome
	reply   []byte // valid until the batch is reset
}

// scope says what a task is about, and so what becomes of it when its slots no longer lie in one region: see recut.
type scope byte

const (
	fixedKeys   scope = iota // keys that must lie in one region
	cutKeys                  // some keys of a command that the proxy port cuts
	wholeSlots               // all that is in some slots: FLUSHALL
	walkedSlots              // a step of a walk over some slots
)

// outcome is what became of a task.
type outcome byte

const (
	open      outcome = iota // it has not run yet
	executed                 // the reply is the command's own
	failed                   // the reply is an error of routing or of Raft: the call did not run, or nobody knows
	postponed                // it did not run and has no reply: the batch's replies are large enough already
	gone                     // it has no reply: it is ledOnly, and another store leads now
	scattered                // it did not run: it is a step of a walk, and its slots lie in several regions now
)

// part is the calls that go to one replica in one round.
type part struct {
	region  int // index in the slot table's Regions
	id      topology.RegionID
	slot    topology.Slot // the region's first
	store   topology.StoreID
	replica *region.Replica
	follow  bool // the replica need not lead
	run     redis.Run
	pending region.Pending
	tasks   []int // the task of each call
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

// shed gives the batch's memory up. It is called between two batches.
func (b *batch) shed() {
	b.tasks, b.slots, b.parts, b.used, b.args = nil, nil, nil, 0, nil
	b.positions, b.order, b.counts, b.ends = nil, nil, nil, nil
}

// reset forgets the last batch and its replies.
func (b *batch) reset() {
	clear(b.tasks)
	b.tasks, b.cuts, b.alone = b.tasks[:0], false, false
	b.slots, b.ends = b.slots[:0], b.ends[:0]
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

// full reports whether a reply was left out because clients may hold no more memory.
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

// refuse answers a task with a redirection, or with the reason why there is none.
func (b *batch) refuse(x *task, d route.Decision) {
	start := len(b.errs.Buf)
	b.errs.Buf = append(d.AppendError(append(b.errs.Buf, '-')), '\r', '\n')
	b.failFrom(x, start)
}

// failFrom answers a task with the error that begins at start of errs.
func (b *batch) failFrom(x *task, start int) {
	x.reply, x.outcome = b.errs.Buf[start:len(b.errs.Buf):len(b.errs.Buf)], failed
}
