// Package region is one replica of one region: proposals, apply, and linearizable reads by lease or read index.
//
// A write takes the way propose -> Raft -> apply and comes back from there: the proposing replica encodes the reply
// while it applies the entry. A read takes the way gate -> lease (or read index) -> engine, on the caller's goroutine.
package region

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lni/dragonboat/v4"
	"github.com/lni/dragonboat/v4/raftio"
	sm "github.com/lni/dragonboat/v4/statemachine"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/raftlog"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// Why a run was not served. All of them leave the region's data untouched, provably.
var (
	ErrNotLeader = errors.New("not leader")    // this replica does not lead, or no longer: look at the slot table again
	ErrStopped   = errors.New("store stopped") // the store is closing or has failed
	ErrDeadline  = errors.New("no leader in time")
	ErrAtLeader  = errors.New("only the leader can tell") // a follower read met a record that may have expired
	ErrTooLarge  = errors.New("command too large for a raft entry")
)

// UnknownOutcome is the error of a write that may or may not be applied, now or later.
type UnknownOutcome struct{ Reason string }

func (e *UnknownOutcome) Error() string { return "write outcome unknown: " + e.Reason }

// Options of a replica.
type Options struct {
	Region  topology.Region
	Index   topology.IndexID
	Store   topology.StoreID
	Replica topology.ReplicaID
	Engine  *engine.Engine
	Host    *dragonboat.NodeHost
	Knobs   settings.RaftKnobs
	// Incarnation tells this start of the store from all others; entries of an earlier one find no waiters.
	Incarnation uint64
	// Failed returns why the store has failed, nil while it has not; Fence makes it fail.
	Failed func() error
	Fence  func(error)
	// Changed is called, without a lock, whenever Leading may answer otherwise than before.
	Changed func()
	// Counters are what the replica counts into; nil for counters of its own.
	Counters *Counters
	// PopMemory is what the store's regions share for elements that are popped; nil for memory of its own.
	PopMemory *redis.PopMemory
	Faults    Faults
}

// Faults are planted mistakes, for tests that must catch them; the zero value plants none.
type Faults struct {
	EarlyReply   bool                            // a SET is answered when it has been proposed
	SplitApply   bool                            // the apply index is committed in a batch of its own
	TrustLease   bool                            // a lease, once held, is never checked again
	NoReadIndex  bool                            // a follower reads what it has, without asking the leader
	LostRounds   bool                            // read index rounds get no answer, as when the library is closed
	NoTermTag    bool                            // apply takes entries of every term
	LazyInstall  bool                            // a snapshot is put in with the next entry, when its file is gone
	SameVersions bool                            // a new leader counts versions from the same one as the last
	AnyBase      bool                            // apply takes a read set whatever was applied since it was made
	KeptRows     bool                            // rows outlast a term; entries of other leaders leave them alone
	MapOrder     bool                            // what a write chooses at random follows from the order of a Go map
	LocalClock   bool                            // readers and apply judge expiry by their store's own clock alone
	BeforeWrite  func(topology.RegionID, uint64) // runs between the reading of the term and the proposal
	// Skew is how far a store's clock is ahead; nil for clocks that agree.
	Skew func(topology.StoreID) time.Duration
	// Observe is no mistake but a witness: it is told of every entry that reaches apply, and whether it takes effect.
	// payload is valid until it returns.
	Observe func(store topology.StoreID, region topology.RegionID, index, tag uint64, payload []byte, applied bool)
}

// Replica is a region's replica on this store. All methods may run concurrently. It consists of parts that share a
// core. The proposer turns runs of writes into entries, the machine applies the entries of the log, the reader serves
// reads. The machine and the reader use the proposer, which knows neither. The replica itself watches who leads.
type Replica struct {
	core
	proposer proposer
	sums     sums
	machine  *machine
	reader   reader

	told    atomic.Pointer[raftio.LeaderInfo] // dragonboat's latest event
	running atomic.Bool                       // Raft has it
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

// Start starts the replica under its NodeHost. members is empty when the replica has run before. A test that never
// calls Start may leave Host out of the Options.
func (r *Replica) Start(members map[uint64]dragonboat.Target) error {
	r.proposer.session = r.o.Host.GetNoOPSession(r.shard)
	err := r.o.Host.StartOnDiskReplica(members, false, func(uint64, uint64) sm.IOnDiskStateMachine { return r.machine },
		raftlog.GroupConfig(r.o.Region.ID, r.o.Replica, r.o.Knobs))
	if err != nil {
		return fmt.Errorf("region %d: start replica %d: %w", r.o.Region.ID, r.o.Replica, err)
	}
	r.running.Store(true)
	r.wg.Go(r.lead)
	return nil
}

// Running reports whether Start has succeeded.
func (r *Replica) Running() bool { return r.running.Load() }

// Stop makes the replica serve nobody any more. When it returns, all waiting runs are answered and all readers are out.
// The caller then closes the NodeHost, and calls Join to wait for the rest.
func (r *Replica) Stop() {
	r.proposer.abandon(ErrStopped) // first: await leaves open proposals to it
	r.reader.mu.Lock()             // no round begins from here on
	close(r.stop)
	r.reader.mu.Unlock()
	r.gate.shut()
}

// Join returns when all goroutines of the replica have ended. The NodeHost must be closed before.
func (r *Replica) Join() { r.wg.Wait() }

// Release answers every waiting run after the store has failed. Runs in flight get an unknown outcome.
func (r *Replica) Release() {
	r.reader.revoke(^uint64(0))
	r.proposer.abandon(ErrStopped)
}

// Region returns the region as this replica knows it, and the replica's id.
func (r *Replica) Region() (topology.Region, topology.ReplicaID) { return r.o.Region, r.o.Replica }

// Counters returns what the replica counts into.
func (r *Replica) Counters() *Counters { return r.counters }

// Applied is the apply index: the effect of all entries up to it is in the engine.
func (r *Replica) Applied() uint64 { return r.applied.Load() }

// TimeMS is the region time.
func (r *Replica) TimeMS() uint64 { return r.regionTime.Load() }

// Read runs a run of reads linearizably on this replica, which must lead. It returns nil, or one of the errors above
// and leaves run as it was.
func (r *Replica) Read(run *redis.Run, deadline time.Time) error {
	return r.reader.read(run, deadline, false)
}

// ReadFollowing is Read on a replica that need not lead. A follower reads behind a read index. It returns ErrAtLeader
// if it meets a record of which only the leader can tell whether it has expired.
//
// A record that has not expired by this store's clock is there for the reader, though the leader's clock may be ahead.
// If the leader has told another client that the record is gone, it has done so behind an entry that moved the region
// time, and that entry is applied here before this read.
func (r *Replica) ReadFollowing(run *redis.Run, deadline time.Time) error {
	return r.reader.read(run, deadline, true)
}

// Prepare begins a read index round in the background if a Read would have to wait for one. A caller that reads from
// several regions prepares all of them first, so that their rounds run side by side.
func (r *Replica) Prepare() {
	if r.servingTerm.Load() != 0 && r.reader.validLease(time.Now()) == nil {
		r.reader.renew()
	}
}

// Revoke ends the lease for all terms up to term. The transport calls it before a message that makes the lease unsafe
// leaves the store.
func (r *Replica) Revoke(term uint64) {
	if !r.o.Faults.TrustLease {
		r.reader.revoke(term)
	}
}
