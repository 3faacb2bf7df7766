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

const (
	maxWrites   = 4096      // in one batch
	firstReads  = 16        // in one batch, until it is known how large the replies are
	maxReads    = 4096      // in one batch
	wantReplies = 128 << 10 // bytes of replies that a batch of reads should not exceed by much: a client that does not read holds them
)

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
