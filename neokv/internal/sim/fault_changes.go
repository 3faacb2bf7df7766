package sim

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

const killMergedPhrase = "kill stores that have merged"

// killMerged kills stores that have applied a merge and synced nothing since.
func killMerged(s *sim, random *rand.Rand) { s.killInMerges(random, "merge") }

// killFrozen kills stores that have applied the freeze of a region that a merge takes over, and synced nothing since.
func killFrozen(s *sim, random *rand.Rand) { s.killInMerges(random, "freeze") }

// killInMerges kills stores that have applied a step of a merge and synced nothing since. While such a store is down
// the leader moves, the wider region is split again where it was merged, and the logs are cut, so that the store gets
// the region as a snapshot.
func (s *sim) killInMerges(random *rand.Rand, step string) {
	for s.sleep(time.Duration(50+random.IntN(200)) * time.Millisecond) {
		slots := topology.SplitEvenly(simRegions)[random.IntN(simRegions)]
		at := slots.First + topology.Slot(slots.Count()/2)
		s.splitAt(at)
		left := s.ownerOf(at - 1)
		home, _ := s.leader(left.ID)
		others := s.others(home)
		if home == nil || len(others) == 0 || left.Slots.Last != at-1 {
			continue
		}
		victim := others[random.IntN(len(others))]
		lost := &lostStep{storeRegion{victim.ID(), left.ID}, step}
		if step == "freeze" {
			lost.region = s.ownerOf(at).ID
		}
		s.unsynced.Store(lost)
		merged := make(chan struct{})
		go func() {
			defer close(merged)
			s.change(fault.Fault{Verb: fault.Merge, Region: int(left.ID)})
		}()
		select {
		case <-merged:
		case <-time.After(time.Duration(random.IntN(100)) * time.Millisecond):
		}
		killed := s.perform(fault.Fault{Verb: fault.Kill, Stores: []int{int(victim.ID())}}) == nil
		s.unsynced.Store(nil)
		<-merged
		if to := s.others(victim); random.IntN(2) == 0 {
			s.change(fault.Fault{Verb: fault.Transfer, Region: int(left.ID), To: int(to[random.IntN(len(to))].ID())})
		}
		s.splitAt(at)
		s.sleep(time.Duration(random.IntN(400)) * time.Millisecond)
		for _, n := range s.others(victim) {
			cutLog(n, left.ID, uint64(random.IntN(10)))
		}
		s.sleep(20 * time.Millisecond)
		switch {
		case !killed:
			victim.FS().SetDrive(fault.Drive{}, random)
		case !s.isOver(): // else it starts again when all faults end
			s.perform(fault.Fault{Verb: fault.Restart, Stores: []int{int(victim.ID())}})
		}
	}
}

// lostStep is a step of a merge that a kill shall take from a store: the "freeze" of the right region, or the "merge"
// in the left one.
type lostStep struct {
	storeRegion
	step string
}

// hangUnsynced makes the disk of a store hang, until it is killed, when the store is about to apply a step of a merge
// that is to be lost.
func (s *sim) hangUnsynced(st topology.StoreID, r topology.RegionID, payload []byte) {
	if x := s.unsynced.Load(); x != nil && x.storeRegion == (storeRegion{st, r}) &&
		bytes.Contains(payload, fmt.Appendf(nil, "\x06bounds%c%s", len(x.step), x.step)) {
		s.nodes[st-1].FS().SetDrive(fault.Drive{Hang: true}, rand.New(rand.NewPCG(1, 1)))
	}
}

// cutLog cuts the log of a region on a store, but for its last entries.
func cutLog(n seam.StorePlace, id topology.RegionID, entries uint64) {
	if st := n.Store(); st != nil {
		if r := st.Replica(id); r != nil {
			r.CutLog(entries)
		}
	}
}

// waitingChildren splits regions while one store of three is down, and kills another one before it learns that what it
// has in its log is committed. No child begins, since its messages wait. The logs are cut wherever that is allowed.
// Then the two stores must serve the child without the first.
func waitingChildren(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(20+random.IntN(200)) * time.Millisecond) {
		i := random.IntN(simRegions)
		s.mergeAll(i)
		slots := topology.SplitEvenly(simRegions)[i]
		parent := s.ownerOf(slots.First)
		if first, _ := s.leader(parent.ID); first != nil && parent.Slots == slots {
			others := s.others(first)
			s.waitingChild(parent, first, others[0], others[1])
		}
	}
}

func (s *sim) waitingChild(parent topology.Region, first, second, absent seam.StorePlace) {
	at := parent.Slots.First + topology.Slot(parent.Slots.Count()/2)
	left := topology.SlotRange{First: parent.Slots.First, Last: at - 1}
	right := topology.SlotRange{First: at, Last: parent.Slots.Last}
	version := func(n seam.StorePlace) (v uint64) {
		if st := n.Store(); st != nil && st.Replica(parent.ID) != nil {
			v = st.Replica(parent.ID).Bounds().Version
		}
		return v
	}
	within := func(d time.Duration, ok func() bool) bool {
		for end := time.Now().Add(d); !ok(); time.Sleep(5 * time.Millisecond) {
			if time.Now().After(end) {
				return false
			}
		}
		return true
	}
	write := func(id int, slots topology.SlotRange) (ok bool) {
		c := s.newCaller(id)
		defer c.close()
		ok, err := c.do(set, s.keyIn(slots), "v")
		s.fail(err)
		return ok
	}
	largest := topology.RegionID(0)
	for _, r := range s.regions() {
		largest = max(largest, r.ID)
	}
	s.hold(time.Hour, func(m *multiraft.Message) bool { return topology.RegionID(m.ShardID) > largest })
	defer s.hold(0, nil)
	s.do("kill %d", absent.ID())
	s.do("link %d %d delay=5ms", first.ID(), second.ID()) // entries follow the split before it is committed
	var wg sync.WaitGroup
	stop := make(chan struct{})
	for i := range 12 {
		wg.Go(func() {
			for {
				write(300+i, left)
				select {
				case <-stop:
					return
				case <-time.After(time.Millisecond):
				}
			}
		})
	}
	killed := make(chan struct{})
	s.behind.Store(&behindSplit{at: storeRegion{first.ID(), parent.ID}, f: func() {
		s.do("kill %d", second.ID())
		close(killed)
	}})
	wg.Go(func() { s.change(fault.Fault{Verb: fault.Split, Region: int(parent.ID), Slot: int(at)}) })
	within(time.Second, func() bool {
		select {
		case <-killed:
			return true
		default:
			return false
		}
	})
	came := s.behind.Swap(nil) == nil
	if came {
		<-killed
	}
	close(stop)
	s.do("link %d %d ok", first.ID(), second.ID())
	cutLog(first, parent.ID, 1)
	time.Sleep(20 * time.Millisecond)
	s.do("restart %d", absent.ID())
	if !came { // the region had no leader, say
		wg.Wait()
		return
	}
	within(3*time.Second, func() bool { return version(absent) == version(first) })
	for range 20 {
		write(320, left)
	}
	cutLog(first, parent.ID, 1)
	cutLog(absent, parent.ID, 1)
	time.Sleep(20 * time.Millisecond)
	s.do("kill %d", first.ID())
	s.do("restart %d", second.ID())
	within(3*time.Second, func() bool { return version(second) == version(absent) })
	s.hold(0, nil)
	for _, slots := range []topology.SlotRange{left, right} {
		if !within(s.soon(), func() bool { return write(320, slots) }) {
			s.fail(found(noAnswer, "slots %v of a region that was split took no write with two of three stores", slots))
		}
	}
	s.do("restart %d", first.ID())
	wg.Wait()
}

// behindSplit calls f when a replica is about to apply the first entry behind a split.
type behindSplit struct {
	at    storeRegion
	split bool // it has applied the split
	f     func()
}

// sawBehind looks for the entry of a behindSplit. One goroutine applies the entries of a replica.
func (s *sim) sawBehind(st topology.StoreID, r topology.RegionID, payload []byte) {
	x := s.behind.Load()
	switch {
	case x == nil || x.at != (storeRegion{st, r}):
	case bytes.Contains(payload, []byte("\x06bounds\x05split")):
		x.split = true
	case x.split && s.behind.CompareAndSwap(x, nil):
		go x.f()
	}
}

// hold lets match choose Raft messages that wait at their senders for d; d = 0 ends that.
func (s *sim) hold(d time.Duration, match func(*multiraft.Message) bool) {
	for _, a := range s.nodes {
		for _, b := range s.others(a) {
			s.inside.Network().Hold(a.ID(), b.ID(), d, match)
		}
	}
}
