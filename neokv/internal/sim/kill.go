package sim

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
)

// A kill takes the writes that a store has not synced, of its log and of its data at the same instant. A store that
// is killed alone leaves its part of the journal, which the other stores go on using. A kill of all stores is one of
// the process: then the journal loses what it has not synced, too, and the next start opens it again.

// cut is the instant of a kill: from now on clients have no answer of the store. It may run in the middle of a sync.
func (s *sim) cut(n seam.StorePlace) *disk.FS {
	if s.alive(n) {
		s.lives[n.ID()-1].Add(1)
	}
	s.forgetBounds(n.ID())
	n.Condemn()
	return n.FS()
}

// alive reports whether a store is between a start and the next kill.
func (s *sim) alive(n seam.StorePlace) bool { return s.lives[n.ID()-1].Load()%2 == 0 }

// remains is what kills leave.
type remains struct {
	victims []seam.StorePlace
	disks   []*disk.FS // of the victims, by their order
	journal *disk.FS   // nil unless the whole process was killed, and had a journal
}

// end kills stores at this instant; percent of their unsynced data stays. It may run in the middle of a sync.
func (s *sim) end(percent int, random *rand.Rand, victims ...seam.StorePlace) remains {
	s.sawKill()
	left := remains{victims: victims}
	for _, n := range victims {
		left.disks = append(left.disks, s.cut(n))
	}
	if fs, _ := s.inside.Journal(); len(victims) == len(s.nodes) && fs != nil {
		left.journal, left.disks = disk.CrashTogether(percent, random, fs, left.disks...)
		return left
	}
	for i, fs := range left.disks {
		left.disks[i] = fs.Crash(percent, random)
	}
	return left
}

// bury ends the goroutines of killed stores and gives their places the disks that they left.
func (s *sim) bury(left remains) {
	installing := false
	for i, n := range left.victims {
		s.tally(n)
		s.fail(n.Stop())
		s.fail(left.disks[i].Lose())
		installing = s.sawLeft(left.disks[i], n.Dir()) || installing
		n.Move(left.disks[i], n.Dir())
	}
	s.stats.Kills += len(left.victims)
	if left.journal != nil {
		s.fail(s.inside.EndJournal(left.journal))
		s.ended = true
		s.stats.Ends++
		if installing {
			s.h.note("the kill came in the middle of a snapshot's installation")
			s.stats.Installing++
		}
	}
}

// openJournal starts the process again if it was killed: with another size of the journal each time, in one of four
// without a journal, and in some the process is killed while it starts.
func (s *sim) openJournal() {
	for s.ended {
		bytes, shared := journalBytes(s.starts), s.starts.IntN(4) > 0
		var x *trap
		if s.starts.IntN(3) == 0 {
			at, _ := s.inside.Journal()
			if s.starts.IntN(2) == 0 {
				at = s.nodes[s.starts.IntN(len(s.nodes))].FS()
			}
			x = s.setTrap(at, int64(1+s.starts.IntN(6)), []int{0, 50, 100}[s.starts.IntN(3)], s.starts, s.nodes...)
		}
		err := s.inside.OpenJournal(bytes, shared)
		var left *remains
		if x != nil {
			left = x.disarm()
		}
		s.h.note("the process starts, shared_sync %v, killed on the way %v: %v", shared, left != nil, err)
		if left != nil {
			s.reach(killedStarting)
			s.bury(*left)
			continue
		}
		s.ended = false
		if err != nil {
			s.fail(fmt.Errorf("restart of the process: %w", err))
		}
	}
}

// restart starts a store that was killed or stopped, or whose disk has failed. It may fail to if the disk still does.
func (s *sim) restart(n seam.StorePlace) {
	if s.alive(n) || n.FS().Failed() != nil {
		s.reach(diskFailed)
		s.bury(s.end(100, s.starts, n)) // what the end of the process would leave
	}
	s.openJournal()
	s.h.note("restart %d", n.ID())
	switch err := n.Start(); {
	case err == nil:
		s.lives[n.ID()-1].Add(1)
	case n.FS().Drive().Fails():
		s.h.note("restart %d: %v", n.ID(), err)
		if strings.Contains(err.Error(), "do not read back") {
			s.reach(refusedLog)
		}
	default:
		s.fail(fmt.Errorf("restart: %w", err))
	}
}

// runs reports whether a store runs: it has been started, and has not failed since.
func (s *sim) runs(n seam.StorePlace) bool {
	return s.alive(n) && n.Store() != nil && n.Failure() == nil
}

// kill kills stores at this instant, which is between the steps of other goroutines.
func (s *sim) kill(percent int, random *rand.Rand, victims ...seam.StorePlace) {
	for _, n := range victims {
		s.h.note("kill %d, %d%% of the unsynced stays", n.ID(), percent)
	}
	s.bury(s.end(percent, random, victims...))
}

// trap kills stores at the k-th sync of a file system, before that sync takes effect.
type trap struct {
	fs    *disk.FS
	k     int64
	count atomic.Int64
	left  chan *remains // receives once
}

// setTrap sets a trap that counts syncs from now on.
func (s *sim) setTrap(at *disk.FS, k int64, percent int, random *rand.Rand, victims ...seam.StorePlace) *trap {
	x := &trap{fs: at, k: k, left: make(chan *remains, 1)}
	x.fs.BeforeSync(func(int64) {
		if x.count.Add(1) == k {
			left := s.end(percent, random, victims...)
			x.left <- &left
		}
	})
	return x
}

// disarm returns what the trap has left of its victims, or nil if it has not sprung; then it never will.
func (x *trap) disarm() *remains {
	x.fs.BeforeSync(nil)
	if x.count.Add(1<<40)-1<<40 < x.k {
		return nil
	}
	return <-x.left
}

// within waits for a trap to spring, for a while, and returns what it has left of its victims. It is nil if the trap
// has not sprung; then it never will.
func (x *trap) within(d time.Duration) *remains {
	timeout := time.NewTimer(d)
	defer timeout.Stop()
	select {
	case left := <-x.left:
		return left
	case <-timeout.C:
		return x.disarm()
	}
}

// killAtSync kills stores at the k-th sync of the first of them or, if they are the whole process, perhaps of its
// journal. It reports false if there were fewer syncs within two seconds.
func (s *sim) killAtSync(k int64, percent int, random *rand.Rand, victims ...seam.StorePlace) bool {
	at, whose := victims[0].FS(), fmt.Sprintf("store %d", victims[0].ID())
	if fs, open := s.inside.Journal(); len(victims) == len(s.nodes) && fs != nil && open &&
		random.IntN(2) == 0 {
		at, whose = fs, "the journal"
	}
	left := s.setTrap(at, k, percent, random, victims...).within(2 * time.Second)
	if left == nil {
		return false
	}
	for _, n := range victims {
		s.h.note("killed %d at sync %d of %s, %d%% of the unsynced stays", n.ID(), k, whose, percent)
	}
	s.bury(*left)
	return true
}

// killRestarting starts a store and kills it at the k-th sync of the start, if there are so many.
func (s *sim) killRestarting(n seam.StorePlace, k int64, percent int, random *rand.Rand) {
	s.openJournal()
	s.lives[n.ID()-1].Add(1) // before the trap, which may spring at any moment
	x := s.setTrap(n.FS(), k, percent, random, n)
	err := n.Start()
	left := x.disarm()
	if left == nil {
		s.h.note("restart %d", n.ID())
		if err != nil {
			s.fail(fmt.Errorf("restart: %w", err))
		}
		return
	}
	s.h.note("killed %d at sync %d of its restart (%v), %d%% of the unsynced stays", n.ID(), k, err, percent)
	s.bury(*left)
}

// killAllCatchingUp starts a store that was away, and kills all stores at the k-th sync of this one from then on: while
// it starts, or while it catches up by snapshots. It reports false if there were fewer syncs within two seconds.
func (s *sim) killAllCatchingUp(n seam.StorePlace, k int64, percent int, random *rand.Rand) bool {
	s.openJournal()
	s.lives[n.ID()-1].Add(1) // before the trap, which may spring at any moment
	x := s.setTrap(n.FS(), k, percent, random, s.nodes...)
	err := n.Start()
	left := x.within(2 * time.Second)
	if left == nil {
		s.h.note("restart %d", n.ID())
		if err != nil {
			s.fail(fmt.Errorf("restart: %w", err))
		}
		return false
	}
	s.h.note("killed all at sync %d behind the restart of %d (%v), %d%% of the unsynced stays", k, n.ID(), err, percent)
	s.bury(*left)
	return true
}
