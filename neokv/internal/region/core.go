package region

import (
	"sync"
	"sync/atomic"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis"
)

// core is what the parts of a replica share. Each field that changes is atomic and says who writes it; all parts load
// it without a lock.
type core struct {
	o        Options
	shard    uint64 // the region's number in Raft
	space    keys.Space
	gate     *gate
	rows     *engine.Rows // nil for none; open while the replica serves
	counters *Counters
	stop     chan struct{} // closed by Replica.Stop
	cut      chan uint64   // requests to cut the log, see askCut
	wg       sync.WaitGroup

	// servingTerm is the term whose barrier has been applied here, 0 while this replica may not serve. Only
	// Replica.lead writes it.
	servingTerm atomic.Uint64
	clock       atomic.Pointer[clockBase]

	// Apply publishes these when it has committed a batch.
	regionTime   atomic.Uint64 // ms
	legacyAt     atomic.Uint64 // RegionState.LegacyAt
	collectedAt  atomic.Uint64 // RegionState.CollectedAt
	unblind      atomic.Uint64 // RegionState.Unblind
	applied      atomic.Uint64 // the apply index
	expiry       ExpiryBound
	orphanWrites atomic.Uint64

	// epoch rises, by any step, in two cases. When something other than an entry has replaced the region's data, it
	// rises behind what is published above. Before readers can see an entry's first legacy string, it rises behind
	// legacyAt. A read that sees the epoch move is thrown away and begins anew.
	epoch atomic.Uint64
}

func (c *core) init(o Options) {
	c.o, c.shard, c.space = o, uint64(o.Region.ID), keys.Space{Region: o.Region.ID, Index: o.Index}
	c.gate, c.stop, c.cut = newGate(), make(chan struct{}), make(chan uint64, 1)
	if o.Engine != nil {
		c.rows = o.Engine.NewRows()
	}
	if c.counters = o.Counters; c.counters == nil {
		c.counters = new(Counters)
	}
}

// orphaned counts the orphan records of a committed batch. flushed says that the batch has removed all earlier ones.
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
