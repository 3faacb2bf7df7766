package workloads

import (
	"sync"
	"sync/atomic"
)

// Inserts numbers the records that clients insert concurrently. It knows up to which number all insertions are
// acknowledged, so that nobody reads a record that may not be there yet (YCSB's AcknowledgedCounterGenerator). It gives
// the number of a failed insertion out again, so that no gap stays.
type Inserts struct {
	acknowledged atomic.Uint64

	mu     sync.Mutex
	next   uint64
	failed []uint64
	ahead  []uint64 // a bit for each number from base on: acknowledged
	base   uint64   // a multiple of 64, at most acknowledged
}

// NewInserts returns the numbers behind those of the records that are there.
func NewInserts(records uint64) *Inserts {
	n := &Inserts{next: records, base: records &^ 63}
	n.acknowledged.Store(records)
	n.ahead = []uint64{1<<(records&63) - 1}
	return n
}

// Acknowledged returns the number up to which all records are there, so that they can be read. It takes no lock.
func (n *Inserts) Acknowledged() uint64 { return n.acknowledged.Load() }

// Numbered returns the number up to which records may be there: all that were there and all that were begun.
func (n *Inserts) Numbered() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.next
}

// Next returns the number of the next record to insert.
func (n *Inserts) Next() uint64 {
	n.mu.Lock()
	defer n.mu.Unlock()
	if last := len(n.failed) - 1; last >= 0 {
		record := n.failed[last]
		n.failed = n.failed[:last]
		return record
	}
	n.next++
	return n.next - 1
}

// Done ends the insertion of a record that Next returned.
func (n *Inserts) Done(record uint64, acknowledged bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !acknowledged {
		n.failed = append(n.failed, record)
		return
	}
	for at := (record - n.base) / 64; at >= uint64(len(n.ahead)); {
		n.ahead = append(n.ahead, 0)
	}
	n.ahead[(record-n.base)/64] |= 1 << (record & 63)
	upTo := n.acknowledged.Load()
	for (upTo-n.base)/64 < uint64(len(n.ahead)) && n.ahead[(upTo-n.base)/64]>>(upTo&63)&1 == 1 {
		upTo++
	}
	n.acknowledged.Store(upTo)
	if whole := (upTo - n.base) / 64; whole > 0 {
		n.ahead = n.ahead[:copy(n.ahead, n.ahead[whole:])]
		n.base += whole * 64
	}
}
