package sim

import (
	"strings"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// state is one that a cluster gets into seldom. A sweep of torture counts the times, and fails if it misses one: it
// proves nothing about a state in which no cluster has been.
type state string

// The states. Each constant stands in the one place that counts it.
const (
	killedAtSync      state = "a kill in the middle of a sync"
	killedInstalling  state = "a kill in the middle of a snapshot's installation"
	killedStarting    state = "a kill of the process while it starts"
	killedLeader      state = "a kill of a leader"
	killedMajority    state = "no majority of the stores runs"
	pausedLeader      state = "a leader is paused"
	cutLeader         state = "a leader is cut off from all others"
	clockOfLeader     state = "the clock of a leader is set"
	diskFailed        state = "a store starts again whose disk has failed"
	electedHung       state = "an election while a disk hangs"
	electedPaused     state = "an election while a store is paused"
	electedCut        state = "an election while links are cut"
	movedFull         state = "leaders move while a disk has less space than the reserve"
	refusedFull       state = "a write is refused since the disks of a majority are full"
	refusedLog        state = "a store refuses a log that does not read back as it was synced"
	heldAnswered      state = "a held command is answered by a new leader"
	entryRefused      state = "an entry of an earlier term takes no effect"
	behindLog         state = "a follower behind the cut of the log gets a snapshot"
	outcomeUnknown    state = "a write has an unknown outcome"
	chatUnknown       state = "a commit of a chat has an unknown outcome"
	subscriptionEnded state = "a store ends a subscription to a shard channel, since another one leads its slot"
	reclaimed         state = "elements of a deleted collection are reclaimed"
	readAtReplica     state = "a follower answers a read at its store's second address"
	compared          state = "replicas are compared while clients write"
	servedAfterFaults state = "all regions take writes soon after faults, during a run"

	// Of moves of replicas.
	replicaAdded   state = "a region gets a replica on another store"
	replicaRemoved state = "a region has a replica less"
	killedMoving   state = "a kill while a replica of a region moves"
	sentOn         state = "a client follows ASK to the store to which slots are shown to migrate"

	// Of splits and merges; see bounds.go.
	hasSplit        state = "a replica of a region applies a split"
	hasMerged       state = "a replica of a region takes another one over"
	splitCalledOff  state = "a split is called off"
	thawed          state = "a merge is called off, and its right region thaws"
	splitReplayed   state = "a replica applies a split again after a crash"
	mergeReplayed   state = "a replica applies a merge again after a crash"
	splitEndedLater state = "a split ends in a later term"
	mergeEndedLater state = "a merge ends in a later term"
	splitMissed     state = "a store misses a split, since it gets the narrower region as a snapshot"
	mergeMissed     state = "a store misses a merge, since it gets the wider region as a snapshot"
	frozenCovered   state = "a snapshot of the wider region ends a frozen replica"
	joined          state = "a store that has missed a split gets the child as a snapshot"
	killedUnborn    state = "a kill after a split, before the child has a leader"
	killedFrozen    state = "a kill while a region is frozen"
	refusedBounds   state = "an entry takes no effect, since the bounds have changed"
)

// states are all of them.
var states = []state{
	killedAtSync, killedInstalling, killedStarting, killedLeader, killedMajority, pausedLeader, cutLeader, clockOfLeader,
	diskFailed, electedHung, electedPaused, electedCut, movedFull, refusedFull, refusedLog, heldAnswered, entryRefused,
	behindLog, outcomeUnknown, chatUnknown, subscriptionEnded, reclaimed, readAtReplica, compared,
	servedAfterFaults, replicaAdded, replicaRemoved, killedMoving, sentOn,
	hasSplit, hasMerged, splitCalledOff, thawed, splitReplayed, mergeReplayed, splitEndedLater, mergeEndedLater,
	splitMissed, joined, mergeMissed, frozenCovered, killedUnborn, killedFrozen, refusedBounds,
}

// reach counts a state.
func (s *sim) reach(x state) { s.reachTimes(x, 1) }

func (s *sim) reachTimes(x state, n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.reachLocked(x, n)
}

// reachLocked is reachTimes for a caller that holds mu.
func (s *sim) reachLocked(x state, n int) {
	if n == 0 {
		return
	}
	if s.stats.States == nil {
		s.stats.States = make(map[state]int)
	}
	s.stats.States[x] += n
}

// reachCounted counts the states that the statistics of a run show.
func (s *sim) reachCounted() {
	s.reachTimes(behindLog, s.stats.Snapshots)
	s.reachTimes(outcomeUnknown, s.stats.Unknown)
	s.reachTimes(reclaimed, s.stats.Reclaimed)
	s.reachTimes(compared, s.stats.Compared)
	s.reachTimes(sentOn, s.stats.SentOn)
}

// sawBegin counts the states that a fault makes, which is about to hit stores that run.
func (s *sim) sawBegin(f fault.Fault, victims []seam.StorePlace) {
	leads := func() bool {
		for _, n := range victims {
			if st := n.Store(); st != nil && len(st.Replicas().Leads()) > 0 {
				return true
			}
		}
		return false
	}
	moves := func() bool {
		for _, n := range victims {
			if st := n.Store(); st != nil {
				for _, r := range st.Replicas() {
					if desc, _ := r.Region(); !desc.Settled() {
						return true
					}
				}
			}
		}
		return false
	}
	if f.Verb == fault.Kill && moves() {
		s.reach(killedMoving)
	}
	switch {
	case f.Verb == fault.Kill && leads():
		s.reach(killedLeader)
	case f.Verb == fault.Pause && leads():
		s.reach(pausedLeader)
	case f.Verb == fault.Clock && leads():
		s.reach(clockOfLeader)
	case f.Verb == fault.Partition && f.Others == nil && len(s.nodes) > 1 && leads():
		s.reach(cutLeader)
	}
}

// sawDead counts a majority of dead stores.
func (s *sim) sawDead() {
	alive := 0
	for _, n := range s.nodes {
		if s.runs(n) {
			alive++
		}
	}
	if 2*alive <= len(s.nodes) {
		s.reach(killedMajority)
	}
}

// sawEnd counts elections while a fault was in force.
func (s *sim) sawEnd(e *scheduled) {
	if !s.elected(e.terms) {
		return
	}
	switch {
	case e.Fault.Verb == fault.Disk && e.Fault.Disk.Free > 0:
		s.reach(movedFull)
	case e.Fault.Verb == fault.Disk && e.Fault.Disk.Hang:
		s.reach(electedHung)
	case e.Fault.Verb == fault.Pause:
		s.reach(electedPaused)
	case e.Fault.Verb == fault.Partition, e.Fault.Verb == fault.Link && e.Fault.Link.Cut:
		s.reach(electedCut)
	}
}

// sawLeft looks at the disks that a kill has left, and counts one in the middle of an installation.
func (s *sim) sawLeft(dead []seam.StorePlace) {
	found := map[string]bool{}
	for _, n := range dead {
		stages(n.FS(), n.Dir(), found)
	}
	if !found["chunks written"] && !found["half recovered"] { // the other stages look like what is at rest
		return
	}
	s.reach(killedInstalling)
	if len(dead) == len(s.nodes) {
		s.h.note("the kill came in the middle of a snapshot's installation")
		s.count(&s.stats.Installing)
	}
}

// stages adds to found how far installations of snapshots had come on a disk that a kill left.
func stages(fs *disk.FS, path string, found map[string]bool) {
	list, err := fs.List(path)
	if err != nil {
		return
	}
	for _, name := range list {
		full := fs.PathJoin(path, name)
		info, err := fs.Stat(full)
		switch {
		case err != nil:
		case strings.HasSuffix(name, ".receiving"):
			found["chunks written"] = true
		case name == "dragonboat.snapshot.message":
			found["complete, not recorded"] = true
		case strings.Contains(full, "/incoming/"):
			found["half recovered"] = true
		case strings.HasSuffix(name, ".gbsnap") && info.Size() > 4096:
			// Dragonboat shrinks it once the recovery is synced.
			found["received and kept"] = true
		}
		if err == nil && info.IsDir() {
			stages(fs, full, found)
		}
	}
}

// leaderless reports whether no store serves the region of a slot.
func (s *sim) leaderless(slot topology.Slot) bool {
	for _, st := range s.stores() {
		for _, l := range st.Replicas().Leads() {
			if r := st.Replica(l.Region); r != nil && r.Bounds().Slots.Contains(slot) {
				return false
			}
		}
	}
	return true
}
