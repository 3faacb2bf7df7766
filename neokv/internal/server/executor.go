package server

import (
	"slices"
	"sync/atomic"
	"time"
	"unsafe"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// This file has the executor: what it runs commands on, and its batch, which is tasks and their outcomes. round.go runs
// a batch.

const (
	maxWrites  = 4096 // in one batch
	firstReads = 16   // in a batch, while the connection does not know how large the replies are
	maxReads   = 4096 // in one batch

	// wantReplies is the size of replies at which a batch of reads ends. The server holds these bytes as long as the
	// client does not read them.
	wantReplies = 128 << 10
)

// backend is what the executors of a server have in common.
type backend struct {
	node     node
	self     topology.StoreID // the store whose ports these are; 0 if the server redirects nobody
	standIn  bool             // see Options
	knobs    *settings.RedisKnobs
	mistakes Mistakes
	turns    []*turns        // by place: see placeOf
	places   []chan struct{} // for scripts, by store: see beginScript
	scans    *Scans
	started  time.Time
	closing  chan struct{} // closed when the server closes

	keyCounts    keyCounts
	keyMaps      keyMaps
	waitingBytes atomic.Int64  // bytes of commands that wait for a leader
	unserved     atomic.Uint64 // how many batches gave up tasks; route.Unserved takes stores in turn by it
}

// proxy reports whether the server passes commands on instead of redirecting clients.
func (b *backend) proxy() bool { return b.self == 0 }

// node is what an executor asks of a Node.
type node interface {
	Table() *route.Table
	Changed() <-chan struct{}
	Outdated(topology.Slot, *route.LedRegion) bool
	Replica(topology.StoreID, topology.RegionID) replica
	Scripts() *lua.Scripts
	LoadScript(x *lua.Script, stay bool)
	FindScript(sha string) *lua.Script
	LogScript(level int, text string)
}

// replica is what an executor does with a region.Replica. Await waits for what was proposed: see Pending.WaitUnless.
type replica interface {
	Propose(*region.Pending)
	Await(p *region.Pending, gone <-chan struct{}) bool
	Read(run *redis.Run, deadline time.Time) error
	ReadFollowing(run *redis.Run, deadline time.Time) error
	Block(*region.Pending)
	Cancel(*region.Pending)
	ID() topology.RegionID
	Watch(keys [][]byte, version uint64, deadline time.Time) (*region.Watch, error)
	Prepare()
	Sampler() *schedule.SlotSampler
	KeyChanges() uint64
	OldestRead() time.Duration
}

// nodeOf is a Node for executors.
type nodeOf struct{ Node }

func (n nodeOf) Replica(s topology.StoreID, r topology.RegionID) replica {
	if found := n.Node.Replica(s, r); found != nil {
		return runningReplica{found}
	}
	return nil
}

type runningReplica struct{ *region.Replica }

func (runningReplica) Await(p *region.Pending, gone <-chan struct{}) bool { return p.WaitUnless(gone) }

// executor runs the commands of one connection in the regions that have their keys, and appends the replies to out. It
// knows no connection, socket or session, but what a caller tells.
//
// It runs batches: commands that do not depend on each other's replies, all writes or all reads. It runs a batch in
// rounds. In each round the calls for one replica form a part. The batch keeps the order within a part, and hands all
// parts over before it waits for the first. A call that finds no leader, or a replica that does not lead, is tried
// again in the next round, when the slot table has changed, until the batch's deadline.
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
// An executor reuses all its memory.
type executor struct {
	*backend
	caller  caller
	port    route.Port      // what the caller has asked
	gone    <-chan struct{} // closed when the caller is gone
	out     *redis.Reply    // the caller's
	arrived time.Time       // when the caller's commands arrived

	// work counts what reads do, so that look can end them: see look.go.
	work   engine.Work
	timed  int       // work.Calls as of the last look
	begun  time.Time // when the first look at the present call was
	peeked time.Time // when look last looked at the client

	turn      *turns // the turns of which it has one, so that it may make large replies; else nil
	wanted    *turns // those of the store that it reads from
	wantsTurn bool   // a reply ended because the executor has no turn

	readStore  atomic.Uint32 // the store that it reads from at this moment, 0 for none
	readRegion atomic.Int64  // the region that it reads, or read last
	began      atomic.Int64  // since when, since the server started

	scripting scripting
	ahead     aheadScripts
	pop       *pop // a blocking pop that waits; else nil

	tap   schedule.SlotTap
	timer *time.Timer

	tasks  []task
	cuts   bool                // some tasks may be cut anew
	except *topology.SlotRange // commands over all keys leave out the region that has these slots
	alone  bool                // all tasks are parts of one command
	breaks bool                // a command of unknown outcome ends the caller, in place of the error: see breaksOff
	parts  []*part             // of all rounds of this batch: parts[:used]
	used   int
	partOf []int // by index in the slot table's Regions: index of the round's part plus one
	errs   redis.Reply
	more   func(bytes int) int                          // moreOfReads, made once
	by     any                                          // redis.Run.By: the client that tracks what it reads, or nil
	seen   func(script *redis.Call, x *redis.InnerCall) // is told of the calls of scripts
	// published is told of what a script publishes, whose call, or command if it touches no key, has these arguments.
	published func(args [][]byte, p redis.Publication)
	ofCalls   func(script *redis.Call, p redis.Publication) // published, for calls

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

// init makes an executor that appends replies to out.
func (e *executor) init(b *backend, c caller, gone <-chan struct{}, out *redis.Reply) {
	e.backend, e.caller, e.gone, e.out = b, c, gone, out
	e.port.Store = b.self
	e.more, e.readLimit = e.moreOfReads, firstReads
	e.work.Look = e.look
	e.ofCalls = func(script *redis.Call, p redis.Publication) {
		if e.published != nil {
			e.published(script.Args, p)
		}
	}
}

// task is one call, or the calls of a transaction, and what became of it.
type task struct {
	call    redis.Call
	unit    *unit           // a transaction, in place of call
	slots   []topology.Slot // the slots of its keys; nil: slot is the only one
	slot    topology.Slot
	follow  bool // a replica that does not lead will do
	ledOnly bool // it is void for slots that this port no longer covers
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
	failed                   // the reply is an error of routing or of Raft: the call did not run
	unknown                  // the reply is an error: nobody knows whether the call ran, or will
	postponed                // it did not run and has no reply: the batch's replies are large enough already
	gone                     // it has no reply: it is ledOnly, and this port does not cover its slots any more
	scattered                // it did not run: it is a step of a walk, and its slots lie in several regions now
)

// part is the calls that go to one replica in one round.
type part struct {
	region  int // index in the slot table's Regions
	id      topology.RegionID
	slot    topology.Slot // the region's first
	store   topology.StoreID
	replica replica
	follow  bool // the replica need not lead
	run     redis.Run
	pending region.Pending
	tasks   []int // the task of each call
}

// bytes is how much memory the executor keeps.
func (e *executor) bytes() int {
	const intBytes = int(unsafe.Sizeof(0))
	n := cap(e.tasks)*int(unsafe.Sizeof(task{})) + cap(e.slots)*int(unsafe.Sizeof(topology.Slot(0))) +
		cap(e.args)*int(argBytes) + (cap(e.positions)+cap(e.order)+cap(e.counts)+cap(e.ends))*intBytes
	for _, p := range e.parts {
		n += cap(p.run.Out.Buf) + cap(p.run.Calls)*int(unsafe.Sizeof(redis.Call{})) +
			(cap(p.run.Ends)+cap(p.tasks))*intBytes
	}
	return n
}

// shed gives the executor's memory up. It is called between two batches.
func (e *executor) shed() {
	e.tasks, e.slots, e.parts, e.used, e.args = nil, nil, nil, 0, nil
	e.positions, e.order, e.counts, e.ends = nil, nil, nil, nil
}

// reset forgets the last batch and its replies.
func (e *executor) reset() {
	clear(e.tasks)
	e.tasks, e.cuts, e.alone = e.tasks[:0], false, false
	e.slots, e.ends = e.slots[:0], e.ends[:0]
	clear(e.args)
	e.args = e.args[:0]
	kept := 0
	for _, p := range e.parts[:e.used] {
		p.run.Reset()
		if kept += cap(p.run.Out.Buf); kept > keepBytes {
			p.run.Out.Buf = nil
		}
	}
	e.used = 0
	e.errs.Buf = e.errs.Buf[:0]
}

// close ends the executor's timer.
func (e *executor) close() {
	if e.timer != nil {
		e.timer.Stop()
	}
}

// open is how many tasks have no outcome yet.
func (e *executor) open() (n int) {
	for i := range e.tasks {
		if e.tasks[i].outcome == open {
			n++
		}
	}
	return n
}

// full reports whether a reply was left out because clients may hold no more memory.
func (e *executor) full() bool {
	return slices.ContainsFunc(e.parts[:e.used], func(p *part) bool { return p.run.Out.Full })
}

// fail answers a task with an error of Raft or of the engine.
func (e *executor) fail(x *task, line string) {
	start := len(e.errs.Buf)
	e.errs.Error(line)
	e.failFrom(x, start)
}

func (e *executor) failAll(tasks []int, line string) {
	for _, i := range tasks {
		e.fail(&e.tasks[i], line)
	}
}

// lose answers a task of which nobody knows whether it was applied, or will be.
func (e *executor) lose(x *task, err error) {
	e.fail(x, "ERR "+err.Error())
	x.outcome = unknown
}

func (e *executor) loseAll(tasks []int, err error) {
	for _, i := range tasks {
		e.lose(&e.tasks[i], err)
	}
}

// breaksOff ends the caller in place of the reply to a command, if the outcome of one of the command's tasks is unknown
// and the settings say so, and reports whether it has. Nothing may be answered any more then. Clients have a way for a
// connection that breaks, which a dying Redis leaves them with; an error that no Redis knows ends some of them.
func (e *executor) breaksOff(tasks []task) bool {
	if !e.breaks {
		return false
	}
	i := slices.IndexFunc(tasks, func(x task) bool { return x.outcome == unknown })
	if i >= 0 {
		reply := tasks[i].reply
		e.caller.undecided(string(reply[len("-ERR ") : len(reply)-len("\r\n")]))
	}
	return i >= 0
}

// deny appends the error of a decision that is none to serve the command here.
func (e *executor) deny(out *redis.Reply, d route.Decision) {
	var to announce.Addr
	if d.To != nil {
		to = e.caller.told(d.To)
	}
	out.Buf = append(d.AppendError(append(out.Buf, '-'), to), "\r\n"...)
}

// refuse answers a task with a redirection, or with the reason why there is none.
func (e *executor) refuse(x *task, d route.Decision) {
	start := len(e.errs.Buf)
	e.deny(&e.errs, d)
	e.failFrom(x, start)
}

// failFrom answers a task with the error that begins at start of errs.
func (e *executor) failFrom(x *task, start int) {
	x.reply, x.outcome = e.errs.Buf[start:len(e.errs.Buf):len(e.errs.Buf)], failed
}
