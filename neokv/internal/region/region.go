// Package region is one replica of one region: it proposes writes, applies the log, and serves linearizable reads by
// lease or read index.
//
// A write goes propose -> Raft -> apply; the replica that proposed the entry encodes the replies while it applies it. A
// read goes gate -> lease or read index -> engine, on the caller's goroutine.
package region

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// Reasons why a run was not served. With each of them it is certain that the run has changed nothing.
var (
	ErrNotLeader = errors.New("not leader")    // this replica does not lead: see the slot table
	ErrStopped   = errors.New("store stopped") // the store is closing or has failed
	ErrDeadline  = errors.New("no leader in time")
	ErrAtLeader  = errors.New("only the leader can tell") // a follower met a record that may have expired
	ErrTooLarge  = errors.New("command too large for a raft entry")
	ErrNoSpace   = errors.New("no space left on the disks of a majority") // Refuse says so
	// ErrBounds: the bounds of the region are not those by which the run was routed, or the region is frozen.
	ErrBounds = errors.New("the region has other bounds")
	// ErrNone: no region has this id, as far as the store knows. A merge may have ended the region, or a split have
	// made it a moment ago.
	ErrNone = errors.New("there is none")
	// ErrBase: an exact entry was not applied right behind its base. No caller sees it, since the runs are proposed
	// again.
	ErrBase = errors.New("other entries came before an exact one")
	// errCut: an entry ended behind a unit that has filled a key, since clients wait for it of whom it had no marks.
	errCut = errors.New("the entry ended before its last unit")
)

// UnknownOutcome is the error of a write that may or may not be applied, now or later.
type UnknownOutcome struct{ Reason string }

func (e *UnknownOutcome) Error() string { return "write outcome unknown: " + e.Reason }

// Options of a replica.
type Options struct {
	Region  topology.Region
	Store   topology.StoreID
	Replica topology.ReplicaID
	Born    uint64 // see keys.ReplicaRecord, also for After
	After   uint64
	Engine  *engine.Engine
	Host    *multiraft.Host
	Knobs   settings.RaftKnobs
	// Incarnation tells this start of the store from all others. Nobody waits for entries that an earlier start
	// proposed.
	Incarnation uint64
	Seed        uint64 // of the random choices of reads
	// Failed returns why the store has failed, or nil while it has not. Fence makes it fail.
	Failed func() error
	Fence  func(error)
	// ClockAhead returns how far the store's clock is ahead of the machine's, negative if behind. nil: they agree.
	ClockAhead func() time.Duration
	// OldestRead returns how long the oldest read of the store's disk that is under way has taken so far.
	OldestRead func() time.Duration
	// Changed is called whenever the answer of Leading may have changed. The replica holds no lock then.
	Changed func()
	// OnServe is called just before the replica begins to serve as the leader of a term. nil: not called.
	OnServe func(id topology.RegionID, term uint64)
	// OnBounds is called when apply has changed the region's bounds, its phase or its peers, after readers can see that,
	// and when the replica begins to lead while a change of them is open. It must not block. nil: not called.
	OnBounds func(topology.RegionID)
	// Beside is what a split or a merge needs of the store. A replica that takes part in neither may leave it nil.
	Beside Beside
	// Counters are the counters that the replica adds to. If nil, the replica makes its own.
	Counters *Counters
	// Sampler is where the server counts the slots of the commands that the replica serves, nil for nowhere.
	Sampler *schedule.SlotSampler
	// PopMemory bounds the pop caches of all regions of the store. If nil, the replica has a bound of its own.
	PopMemory *redis.PopMemory
	// Listener, if it is not nil, hears what the replica does to keys while it serves.
	Listener Listener
	// ScriptLog gets what scripts log that run for clients of this replica, at a level from debug, 0, to warning, 3.
	// nil: nobody.
	ScriptLog func(level int, text string)
	// ScriptTurn bounds how many regions of the store run scripts at apply at one time: an entry with scripts has a
	// place there while it runs. Scripts that use much memory would otherwise leave Raft no time beside the garbage
	// collector. nil: no bound.
	ScriptTurn chan struct{}
	Mistakes   Mistakes
	Hooks      Hooks
}

// Mistakes are errors in the logic of a replica that a test plants, to see that a checker finds them. None by default.
type Mistakes struct {
	EarlyReply   bool // answers a SET when it has been proposed, not applied
	SplitApply   bool // the apply index is committed in a batch of its own
	TrustLease   bool // never checks a lease again once it holds
	NoReadIndex  bool // a follower reads without asking the leader
	LostRounds   bool // read index rounds get no answer, as when dragonboat closes
	NoTermTag    bool // apply accepts entries of every term
	LazyInstall  bool // installs a snapshot with the next entry, when its file is gone
	SameVersions bool // a new leader counts versions from the same base as the last
	AnyBase      bool // apply accepts a read set whatever was applied since it was made
	KeptRows     bool // keeps rows beyond a term, and when others' entries change them
	NoHold       bool // keeps no log for a joiner
	AnyBeginning bool // a joiner takes entries and snapshots of before it became a peer
	AnyBounds    bool // apply accepts entries that were made under other bounds
	KeptLease    bool // keeps its lease while it splits
	EmptyChild   bool // a split leaves the child's data to nobody
	FlushSpace   bool // a flush deletes the data of neighbours
	AnyCut       bool // cuts its log while it splits
	AnySweep     bool // apply accepts a sweep under other bounds, and of both sides of a merge
	MapOrder     bool // a write makes its random choice by the order of a Go map
	LocalClock   bool // readers and apply judge expiry by their store's own clock alone
	SplitGroups  bool // the calls of a transaction travel in two entries
	CutGroups    bool // a stage may end inside a group
	LostMarks    bool // a replica that starts inside an entry does not know which marks were touched
	DeadMarks    bool // apply does not look whether a watched key has expired
	AnyExact     bool // apply accepts an exact entry whatever was applied since, and others are proposed beside it
	LateBase     bool // the base of an exact entry is read after the watches
	KeptWatches  bool // watches outlive the term
	Scripts      redis.ScriptMistakes
	AllTell      bool // replicas that do not serve tell the Listener what they apply
	LateTelling  bool // the Listener hears what has happened when the answers have left
	DeafTracking bool // a tracked read does not wait for the Update under way, which tells nobody what it does
	KeptTracking bool // the Listener is not told that the replica tells nothing more
	KeptWaiters  bool // waiters outlive the bounds
	LateParking  bool // a waiter comes into the table whatever was proposed since its keys were seen to be empty
	LostServed   bool // as LostMarks, of the waiters alone
	DeafWatch    bool // a watch does not wait for the Update under way, which tells nobody what it does
}

// Hooks are functions of tests that a replica calls. nil: not called.
type Hooks struct {
	// BeforePropose is called when a proposal has been made for a term, just before it is stamped and proposed. It may
	// block.
	BeforePropose func(region topology.RegionID, term uint64)
	// BeforeApply is called with every entry that is about to be applied, and with why the entry has no effect, nil if
	// it has one. payload is valid until BeforeApply returns. It may block.
	BeforeApply func(store topology.StoreID, region topology.RegionID, index, tag uint64, payload []byte, refusal error)
	// BoundsChanged is called when the bounds or the phase have changed, and when a replica starts.
	BoundsChanged func(store topology.StoreID, region topology.RegionID, b Bounds, how BoundsChange)
}

// BoundsChange says how a replica has come to its bounds.
type BoundsChange byte

const (
	ByStart    BoundsChange = iota // it has opened its state, which is not that of a joining replica
	ByJoin                         // it has opened its state, and is to be sent everything
	ByEntry                        // an entry has changed them, or another region has absorbed the replica
	BySnapshot                     // they came with a snapshot
	ByRepair                       // the store has ended a replica that a merge had left behind
	ByRemoval                      // the store has ended a replica that has left its region
)

// Beside is the store's side of a split or a merge: what a replica's machine does to other regions of the store. Apply
// calls it, from the goroutine of one region at a time for each pair of neighbours.
type Beside interface {
	// Child adds the records with which the store's replica of a new region begins: see keys.ReplicaRecord and the Raft
	// log. The batch also gets the child's region state. Child does nothing if the store is not among the region's
	// peers.
	Child(b *engine.Batch, child topology.Region) error
	// Absorb calls f while the store's replica of the region to the right applies nothing, and no other change of
	// bounds is under way on the store. f adds the end of that replica to its batch and commits it. right is nil if the
	// store has no replica of the region. When f succeeds the replica has ended for good.
	Absorb(right topology.RegionID, f func() error) error
	// Cover ends the store's frozen replicas of other regions that have some of the slots, and then calls install,
	// which brings a region with these slots. Meanwhile these replicas apply nothing, and no other change of bounds is
	// under way on the store. Cover returns an error, and does not call install, if one of them is not frozen.
	Cover(by topology.RegionID, slots topology.SlotRange, install func() error) error
}

// Replica is a region's replica on this store. All methods may run concurrently. It has three parts that share a core.
// The proposer turns runs of writes into entries, the machine applies the entries of the log, and the reader serves
// reads. The machine and the reader call the proposer, which knows neither of them. The Replica itself watches which
// replica leads.
type Replica struct {
	core
	proposer proposer
	sums     sums
	machine  *machine
	reader   reader

	told    atomic.Pointer[multiraft.Leader] // the latest event
	running atomic.Bool                      // Start has succeeded
	nudge   chan struct{}
}

// New returns a replica that does not run yet.
func New(o Options) *Replica {
	r := &Replica{nudge: make(chan struct{}, 1)}
	r.core.init(o)
	r.proposer.init(&r.core)
	r.sums.core = &r.core
	r.machine = newMachine(&r.core, &r.proposer, &r.sums)
	r.reader.init(&r.core, &r.proposer)
	return r
}

// Start starts the replica under its host; see multiraft.Beginning, of which Start sets OwnCuts. A test that never
// calls Start may leave Host out of the Options.
func (r *Replica) Start(b multiraft.Beginning) error {
	b.OwnCuts = true // see machine.count
	if err := r.raft.Start(r.machine, b); err != nil {
		return fmt.Errorf("region %d: start replica %d: %w", r.o.Region.ID, r.o.Replica, err)
	}
	r.running.Store(true)
	r.wg.Go(r.lead)
	return nil
}

// Running reports whether Start has succeeded.
func (r *Replica) Running() bool { return r.running.Load() }

// Refuse makes the replica refuse writes from now on, also those that wait to be proposed, with one of the errors
// above; nil ends that. Runs without calls go on.
func (r *Replica) Refuse(why error) { r.proposer.refuse(why) }

// Stop ends serving. When it returns, all waiting runs are answered and all readers have left: a long read ends early,
// and a write that apply works on is broken off soon. The caller then closes the host, and calls Join to wait for
// the replica's goroutines.
func (r *Replica) Stop() {
	r.proposer.abandon(ErrStopped) // first, since await leaves open proposals to abandon
	r.reader.mu.Lock()             // no round begins from here on
	close(r.stop)
	r.reader.mu.Unlock()
	r.gate.shut()
	r.lost(r.bounds.Load().Slots)
	r.halted.Store(true)
	r.hosted.shut() // dragonboat copies a large proposal, and then uses what Close takes away
}

// Join returns when all goroutines of the replica have ended. The host must be closed before.
func (r *Replica) Join() { r.wg.Wait() }

// Release answers every waiting run after the store has failed. Runs in flight get an unknown outcome.
func (r *Replica) Release() {
	r.reader.revoke(^uint64(0))
	r.proposer.abandon(ErrStopped)
	r.lost(r.bounds.Load().Slots)
}

// Region returns the region as of the entries that this replica has applied, and this replica's id.
func (r *Replica) Region() (topology.Region, topology.ReplicaID) {
	desc, b, p := r.o.Region, r.bounds.Load(), r.peers.Load()
	desc.Slots, desc.Version = b.Slots, b.Version
	desc.Peers, desc.ConfVersion = p.Peers, p.Conf
	return desc, r.o.Replica
}

// Bounds are the slots of a region as its log has set them. Nobody may change them.
type Bounds struct {
	Slots   topology.SlotRange
	Version uint64
	Phase   keys.RegionPhase
	Change  keys.RegionChange
}

// Bounds returns the region's bounds as of the entries that this replica has applied. It takes no lock.
func (r *Replica) Bounds() *Bounds {
	return r.bounds.Load()
}

// Thawed returns when the replica has last seen the region thaw, zero if it has not: the clients of the region were
// held for a merge that did not happen.
func (r *Replica) Thawed() (at time.Time) {
	if t := r.thawed.Load(); t != nil {
		at = *t
	}
	return at
}

// Sampler returns the sampler of its Options.
func (r *Replica) Sampler() *schedule.SlotSampler { return r.o.Sampler }

// ID returns the region's id.
func (r *Replica) ID() topology.RegionID { return r.o.Region.ID }

// Counters returns the counters that the replica adds to.
func (r *Replica) Counters() *Counters { return r.counters }

// Applied returns the apply index: the engine has the effects of all entries up to it.
func (r *Replica) Applied() uint64 { return r.applied.Load() }

// KeyChanges rises with each key that has come or gone here, or may have come, since the replica began; by
// redis.AllChanged where any number of keys may have.
func (r *Replica) KeyChanges() uint64 { return r.keyChanges.Load() }

// TimeMS returns the region time, in ms.
func (r *Replica) TimeMS() uint64 { return r.regionTime.Load() }

// Read executes a run of reads, linearizably, on this replica, which must lead. On an error, which is one of those
// above or the one with which run.Work has ended, it leaves run as it was.
func (r *Replica) Read(run *redis.Run, deadline time.Time) error {
	return r.reader.read(run, deadline, false)
}

// ReadFollowing is like Read, but the replica need not lead. A follower reads after a read index round. It returns
// ErrAtLeader if it meets a record of which only the leader can tell whether it has expired.
//
// A record that has not expired by this store's clock exists for the reader, though the leader's clock may be ahead.
// That is linearizable: before a leader tells any client that the record is gone, it applies an entry that moves the
// region time past the expiry. This replica then applies that entry before the read.
func (r *Replica) ReadFollowing(run *redis.Run, deadline time.Time) error {
	return r.reader.read(run, deadline, true)
}

// OldestRead returns how long the oldest read of the store's disk that is under way has taken so far, 0 if none is.
func (r *Replica) OldestRead() time.Duration { return r.o.OldestRead() }

// Prepare begins a read index round in the background if a Read now would have to wait for one. A caller that reads
// from several regions prepares all of them first, so that their rounds run side by side.
func (r *Replica) Prepare() {
	if r.servingTerm.Load() != 0 && r.reader.validLease(time.Now()) == nil {
		r.reader.renew()
	}
}

// Leaseless reports whether this replica leads and may hold no lease in its term, so that each read takes a round.
func (r *Replica) Leaseless() bool {
	term := r.servingTerm.Load()
	return term != 0 && r.reader.leaseless(term)
}

// Revoke ends the lease for all terms up to term. The transport calls it before a message that makes the lease unsafe
// leaves the store.
func (r *Replica) Revoke(term uint64) {
	if !r.o.Mistakes.TrustLease {
		r.reader.revoke(term)
	}
}
