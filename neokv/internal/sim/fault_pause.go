package sim

import (
	"math/rand/v2"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// slowDisk says what is wrong with the disk of a store.
type slowDisk struct {
	until atomic.Int64 // it hangs until this instant, Unix ns
	each  atomic.Int64 // each write of the log takes so many ns
}

// slowDisks plants the hook that makes disks hang or slow.
func (s *sim) slowDisks(h *store.Hooks) {
	h.BeforeSave = func(id topology.StoreID) {
		d := &s.disks[id-1]
		time.Sleep(time.Duration(d.each.Load()))
		for left := time.Duration(1); left > 0; { // it may come to its end early
			left = time.Until(time.Unix(0, d.until.Load()))
			time.Sleep(min(left, 10*time.Millisecond))
		}
	}
}

// pausing pauses a store for a while: its disk hangs, and no message reaches or leaves it. Or only its disk hangs, or
// is slow.
func pausing(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(300+random.IntN(4000)) * time.Millisecond) {
		n := s.nodes[random.IntN(len(s.nodes))]
		d := &s.disks[n.ID()-1]
		pause := time.Duration(20+random.IntN(1500)) * time.Millisecond
		switch random.IntN(3) {
		case 0:
			s.h.note("store %d is paused for %s", n.ID(), pause)
			d.until.Store(time.Now().Add(pause).UnixNano())
			s.delay(n, pause)
			s.sleep(pause)
			s.delay(n, 0)
		case 1:
			s.h.note("the disk of store %d hangs for %s", n.ID(), pause)
			d.until.Store(time.Now().Add(pause).UnixNano())
			s.sleep(pause)
		default:
			each := time.Duration(1+random.IntN(100)) * time.Millisecond
			s.h.note("the disk of store %d takes %s", n.ID(), each)
			d.each.Store(int64(each))
			s.sleep(pause)
			d.each.Store(0)
		}
		s.h.note("store %d is as before", n.ID())
	}
}
