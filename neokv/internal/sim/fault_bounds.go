package sim

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// changeTime bounds a split, a merge or a transfer that a run asks for.
const changeTime = 3 * time.Second

// change splits or merges regions, or moves a leader, until the schedule is over. An error is normal.
func (s *sim) change(f fault.Fault) error {
	ctx, cancel := context.WithTimeout(context.Background(), changeTime)
	defer cancel()
	go func() {
		select {
		case <-s.over:
			cancel()
		case <-ctx.Done():
		}
	}()
	return s.inject(ctx, f)
}

// splitAt splits the region that has a slot, so that a new region begins there, unless one does already. It returns the
// new region, 0 if there is none.
func (s *sim) splitAt(at topology.Slot) topology.RegionID {
	owner := s.ownerOf(at)
	if owner.ID != 0 && owner.Slots.First < at {
		s.change(fault.Fault{Verb: fault.Split, Region: int(owner.ID), Slot: int(at)})
		owner = s.ownerOf(at)
	}
	if owner.Slots.First != at {
		return 0
	}
	return owner.ID
}

// ownerOf returns the region that has a slot.
func (s *sim) ownerOf(at topology.Slot) (owner topology.Region) {
	for _, r := range s.regions() {
		if r.Slots.Contains(at) {
			owner = r
		}
	}
	return owner
}

// mergeAll merges the regions in the slots of one of the first ones, until the schedule is over or one is left.
func (s *sim) mergeAll(region int) {
	slots := topology.SplitEvenly(simRegions)[region]
	for !s.isOver() {
		left := s.ownerOf(slots.First)
		if left.ID == 0 || left.Slots.Last == slots.Last {
			return
		}
		if s.change(fault.Fault{Verb: fault.Merge, Region: int(left.ID)}) != nil {
			s.sleep(50 * time.Millisecond)
		}
	}
}

// latePushes holds a push that has been made under the bounds of its region, splits the list's slot off, pushes there,
// and lets the first push go on, which then stands behind the split in the log of the region that has lost the slot.
func latePushes(s *sim, random *rand.Rand) {
	late := s.newCaller(300)
	defer late.close()
	for n := 0; s.sleep(time.Duration(50+random.IntN(100)) * time.Millisecond); n++ {
		i := random.IntN(simRegions)
		s.mergeAll(i)
		key := s.key('l', i)
		slot := topology.SlotOf([]byte(key))
		owner := s.ownerOf(slot)
		home, term := s.leader(owner.ID)
		if home == nil {
			continue
		}
		s.holdWrite(owner.ID, term, func() error {
			_, err := late.do(rpush, key, fmt.Sprintf("late-%d", n))
			return err
		}, func() {
			if s.splitAt(slot) == 0 {
				return
			}
			for j := range 3 { // beside the late one
				go func() {
					c := s.newCaller(301 + j)
					defer c.close()
					for m := range 8 {
						_, err := c.do(rpush, key, fmt.Sprintf("%d-%d-%d", n, j, m))
						s.fail(err)
					}
				}()
			}
			time.Sleep(time.Duration(random.IntN(10)) * time.Millisecond)
		})
	}
}

// slowSplits splits the slot of a register off, which clients read where the region is led, while the leader takes long
// to apply the split.
func slowSplits(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(50+random.IntN(200)) * time.Millisecond) {
		s.watched(random, func(r topology.RegionID, leader seam.StorePlace) {
			slot := topology.SlotOf([]byte(s.key('r', int(r)-1)))
			s.sleep(50 * time.Millisecond)
			s.slow.Store(&slowApply{leader.ID(), r})
			s.splitAt(slot)
			s.sleep(300 * time.Millisecond)
			s.slow.Store(nil)
			s.mergeAll(int(r) - 1)
		})
	}
}

// slowApply says that a store's replica of a region takes long to apply a split.
type slowApply struct {
	store  topology.StoreID
	region topology.RegionID
}

// slowTime is shorter than a lease.
const slowTime = 150 * time.Millisecond

// slowDown lets apply wait before a split, if it is to.
func (s *sim) slowDown(st topology.StoreID, r topology.RegionID, payload []byte) {
	if x := s.slow.Load(); x != nil && *x == (slowApply{st, r}) && bytes.Contains(payload, []byte("\x06bounds\x05split")) {
		s.h.note("store %d is slow to apply the split of region %d", st, r)
		time.Sleep(slowTime)
	}
}

// flushing splits slots without keys off and flushes the region that has them.
func flushing(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(50+random.IntN(300)) * time.Millisecond) {
		i := random.IntN(simRegions)
		last := topology.SlotOf([]byte(sortTags[i][3]))
		if last == topology.SplitEvenly(simRegions)[i].Last {
			continue
		}
		if id := s.splitAt(last + 1); id != 0 {
			s.h.note("flush region %d: %v", id, s.flush(id))
		}
		s.mergeAll(i)
	}
}

// flush removes all keys of a region.
func (s *sim) flush(id topology.RegionID) error {
	leader, _ := s.leader(id)
	if leader == nil {
		return errNothing
	}
	st := leader.Store()
	if st == nil || st.Replica(id) == nil {
		return errNothing
	}
	r := st.Replica(id)
	p := &region.Pending{Deadline: time.Now().Add(time.Second), Run: &redis.Run{
		Version: r.Bounds().Version,
		Calls:   []redis.Call{{Command: redis.Lookup([]byte("flushdb")), Args: [][]byte{[]byte("flushdb")}}},
	}}
	r.Propose(p)
	p.Wait()
	return p.Err
}

// lateSweeps makes a region without keys, whose state says that it may hold collections, and holds the entry that says
// that it does not. Then the region takes its neighbour over, which has collections.
func lateSweeps(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(20+random.IntN(100)) * time.Millisecond) {
		i := random.IntN(simRegions)
		empty, full := topology.SlotOf([]byte(sortTags[i][0]))+1, topology.SlotOf([]byte(sortTags[i][1]))
		s.splitAt(empty)
		s.splitAt(full)
		left := s.ownerOf(empty)
		home, term := s.leader(left.ID)
		if home != nil && left.Slots == (topology.SlotRange{First: empty, Last: full - 1}) {
			s.holdWrite(left.ID, term, func() error { return nil }, func() {
				s.change(fault.Fault{Verb: fault.Merge, Region: int(left.ID)})
			})
		}
		s.mergeAll(i)
	}
}
