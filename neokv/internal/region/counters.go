package region

import (
	"reflect"
	"sync/atomic"
)

// Counters are a region's counters on one store. If another replica takes the place of this one there, it goes on with
// the same counters.
type Counters struct {
	Proposals                       atomic.Uint64 // runs of writes handed over while this replica led
	Entries, EntryBytes, Commands   atomic.Uint64 // proposed here
	AppliedEntries, AppliedCommands atomic.Uint64
	Stages                          atomic.Uint64 // batches that apply has committed
	RefusedEntries                  atomic.Uint64 // not applied, for their term tag, their bounds or their base
	Splits, Merges                  atomic.Uint64 // proposed here, and applied
	ReadSets, ReadSetReads          atomic.Uint64 // read sets proposed here, and the reads in them
	ReadSetsUsed                    atomic.Uint64 // read sets that apply took in place of reads of its own
	ReadIndexRounds                 atomic.Uint64
	LeaseReads, IndexReads          atomic.Uint64 // runs
	KeysFound, KeysMissed           atomic.Uint64 // keys that reads looked up
	FollowerReads                   atomic.Uint64 // runs, by read index, while another replica led
	PassedReads                     atomic.Uint64 // runs left to the leader, while another replica led
	LeaderChanges                   atomic.Uint64 // terms served here
	SnapshotsSent                   atomic.Uint64 // region snapshots streamed to another replica
	SnapshotsReceived               atomic.Uint64 // region snapshots installed
	SnapshotBytes                   atomic.Uint64 // bytes of the snapshots sent and received
	ExpiredKeys                     atomic.Uint64 // deleted by the cleaner of this store
	Orphans                         OrphanCounters
	ReclaimedElements               atomic.Uint64 // deleted elements of orphans
}

// Take adds the counters of a replica that has ended. Its orphans are not its own any more.
func (c *Counters) Take(ended *Counters) {
	to, from := reflect.ValueOf(c).Elem(), reflect.ValueOf(ended).Elem()
	for i := range to.NumField() {
		if sum, ok := to.Field(i).Addr().Interface().(*atomic.Uint64); ok {
			sum.Add(from.Field(i).Addr().Interface().(*atomic.Uint64).Load())
		}
	}
}

// OrphanCounters are how many orphan records a replica has, and how many elements those stand for. The reclaimer
// corrects them when it has nothing left to do; until then they may be a little off.
type OrphanCounters struct{ Collections, Elements atomic.Int64 }

// Set replaces both counts.
func (c *OrphanCounters) Set(collections, elements int64) {
	c.Collections.Store(collections)
	c.Elements.Store(elements)
}

// Add adds to both counts.
func (c *OrphanCounters) Add(collections, elements int64) {
	c.Collections.Add(collections)
	c.Elements.Add(elements)
}
