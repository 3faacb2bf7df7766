package region

import (
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// core is the state that the parts of a replica share. Fields that change are atomic: one part writes them, all parts
// load them without a lock.
type core struct {
	o        Options
	raft     multiraft.Replica
	gate     *gate
	rows     *engine.Rows // the replica's rows in the row cache, open while it serves; nil without an engine
	counters *Counters
	stop     chan struct{} // closed by Replica.Stop
	halted   atomic.Bool   // no reader is left, and none comes: apply may break off what it does
	hosted   *gate         // around calls of Raft that crash if it closes meanwhile
	cut      chan uint64   // requests to cut the log, see CutLog
	wg       sync.WaitGroup

	// servingTerm is the term whose barrier has been applied here, 0 while this replica may not serve. Only
	// Replica.lead writes it.
	servingTerm atomic.Uint64
	clock       atomic.Pointer[clockBase]

	// Apply stores these after it has committed a batch.
	regionTime   atomic.Uint64 // ms
	legacy       atomic.Bool   // RegionState.Legacy
	unblind      atomic.Uint64 // RegionState.CollectedIn
	applied      atomic.Uint64 // the apply index
	keyChanges   atomic.Uint64 // see Replica.KeyChanges
	bounds       atomic.Pointer[Bounds]
	peers        atomic.Pointer[keys.PeerSet]
	opened       atomic.Bool               // the machine has told Raft its apply index
	logged       atomic.Uint64             // bytes of entries applied here
	thawed       atomic.Pointer[time.Time] // when a freeze was last seen to end
	expiry       ExpiryBound
	orphanWrites atomic.Uint64

	watches watches
	hold    atomic.Uint64                        // from which index on the log is kept for a joiner, 0 if for none
	removed atomic.Pointer[[]topology.ReplicaID] // replicas that this one has seen to leave the region

	// epoch rises, by any step, in three cases: after something other than an entry has replaced the region's data, after
	// the bounds have changed, and before readers can see the first legacy string. In all cases apply stores the fields
	// above first. A read throws its replies away and begins anew if the epoch has changed meanwhile.
	epoch atomic.Uint64
}

func (c *core) init(o Options) {
	c.o, c.raft = o, o.Host.Replica(o.Region.ID, o.Replica)
	c.gate, c.hosted, c.stop, c.cut = newGate(), newGate(), make(chan struct{}), make(chan uint64, 1)
	c.bounds.Store(&Bounds{Slots: o.Region.Slots, Version: o.Region.Version})
	c.peers.Store(&keys.PeerSet{Conf: max(1, o.Region.ConfVersion), Peers: o.Region.Peers})
	if o.Engine != nil {
		c.rows = o.Engine.NewRows()
	}
	if c.counters = o.Counters; c.counters == nil {
		c.counters = new(Counters)
	}
}

// stale reports whether a run was routed by other bounds than the present ones. Only apply knows for certain.
func (b *Bounds) stale(run *redis.Run) bool {
	return run.Version != 0 && (run.Version != b.Version || b.Phase != keys.Serving)
}

// orphaned counts the orphan records that a committed batch has written. flushed says that the batch removed all
// earlier ones.
func (c *core) orphaned(o redis.Orphans, flushed bool) {
	if o.Collections == 0 && !flushed {
		return
	}
	counts := &c.counters.Orphans
	if flushed {
		counts.Set(0, 0)
	}
	counts.Add(int64(o.Collections), int64(o.Elements))
	c.orphanWrites.Add(1)
}

// clockBase is the beginning of a leader's clock: the region time at an instant of the monotonic clock.
type clockBase struct {
	term uint64
	ms   uint64
	at   time.Time
}

// localTime returns the time by the store's own clock, in ms.
func (c *core) localTime(now time.Time) uint64 {
	if f := c.o.ClockAhead; f != nil {
		now = now.Add(f())
	}
	return uint64(now.UnixMilli())
}

// LeaderTimeMS returns the instant by which a leader judges expiry at now, in ms: the larger of its clock and the
// region time carried on by the monotonic clock. It never stands still and never goes back.
func (c *core) LeaderTimeMS(now time.Time) uint64 {
	ms := c.localTime(now)
	if b := c.clock.Load(); b != nil {
		ms = max(ms, b.ms+uint64(now.Sub(b.at).Milliseconds()))
	}
	return max(ms, c.regionTime.Load())
}

// ExpiryBound is an instant, in ms of the region time, before which no record of a replica expires. The zero value says
// that nothing is known. Apply lowers the bound when it commits a record that expires earlier. A caller that searches
// the region calls Forget before it opens a view, so that it misses nothing that apply writes meanwhile. After the
// search it calls Notice with the earliest expiry that it has found.
type ExpiryBound struct{ ms atomic.Uint64 }

// Passed reports whether a record may have expired by an instant.
func (b *ExpiryBound) Passed(instantMS uint64) bool { return b.ms.Load() <= instantMS }

// Forget sets the bound to never.
func (b *ExpiryBound) Forget() { b.ms.Store(redis.NoExpiry) }

// Notice lowers the bound to the instant at which a record expires.
func (b *ExpiryBound) Notice(expireMS uint64) {
	for {
		known := b.ms.Load()
		if expireMS >= known || b.ms.CompareAndSwap(known, expireMS) {
			return
		}
	}
}
