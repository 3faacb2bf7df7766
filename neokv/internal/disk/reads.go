package disk

import (
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// reads are the reads that are under way. A read takes a slot and writes down when it began. If all slots are taken,
// it goes on without one, so a read that hangs may be missing here only where as many others are under way.
type reads struct {
	base  time.Time
	slots [64]atomic.Int64 // ns since base, 0 for none
}

// begin returns the slot of a read, nil if it has none.
func (r *reads) begin() *atomic.Int64 {
	now, first := int64(time.Since(r.base)), rand.Uint32()
	for i := range uint32(len(r.slots)) {
		if slot := &r.slots[(first+i)%uint32(len(r.slots))]; slot.CompareAndSwap(0, max(now, 1)) {
			return slot
		}
	}
	return nil
}

func (r *reads) end(slot *atomic.Int64) {
	if slot != nil {
		slot.Store(0)
	}
}

// oldest returns how long the oldest read under way has taken so far, 0 if none is under way.
func (r *reads) oldest() (took time.Duration) {
	now := time.Since(r.base)
	for i := range r.slots {
		if began := time.Duration(r.slots[i].Load()); began > 0 {
			took = max(took, now-began)
		}
	}
	return took
}

// OldestRead returns how long the oldest read of a file that is under way has taken so far, 0 if none is under way.
func (f *FS) OldestRead() time.Duration { return f.reads.oldest() }
