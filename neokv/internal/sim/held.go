package sim

import (
	"maps"
	"slices"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// mostHeld is how long a command that merges regions may hold the clients of the right one.
const mostHeld = time.Second

// heldTimes are how long clients were held for merges.
type heldTimes struct {
	commands map[topology.RegionID]int           // that were to widen a region
	held     map[topology.RegionID]time.Duration // of the clients of the right neighbours
	worst    time.Duration                       // of held by commands
	paused   map[int]bool                        // stores
}

func newHeldTimes() heldTimes {
	return heldTimes{
		commands: make(map[topology.RegionID]int), held: make(map[topology.RegionID]time.Duration),
		paused: make(map[int]bool),
	}
}

// watchHeld looks again and again for regions that are frozen at their leaders, where clients wait. It counts no time
// in which something other than the merge may hold the clients: see hurt.
func (s *sim) watchHeld() {
	const step = 10 * time.Millisecond
	for s.sleep(step) {
		for _, n := range s.nodes {
			st := n.Store()
			if st == nil || st.Failed() != nil {
				continue
			}
			for id, r := range st.Replicas() {
				b := r.Bounds()
				if b.Phase != keys.Frozen {
					continue
				}
				left := b.Change.Other
				first, _ := s.leader(left)
				if second, _ := s.leader(id); second != n || first == nil || s.hurt(first, n) {
					continue
				}
				s.mu.Lock()
				x := &s.holds
				x.held[left] += step
				by := x.held[left] / time.Duration(max(x.commands[left], 1))
				if x.worst = max(x.worst, by); by > mostHeld+5*step {
					s.keepLocked(found(heldLong,
						"the clients of region %d have been held for %s, by %d commands to merge it into region %d", id,
						x.held[left], x.commands[left], left))
				}
				s.mu.Unlock()
			}
		}
	}
}

// hurt reports whether a fault may hold up what the leaders of two regions do: a store is down or paused, a link or one
// of the two disks is bad, or a majority of the disks is.
func (s *sim) hurt(leaders ...seam.StorePlace) bool {
	s.mu.Lock()
	paused := len(s.holds.paused) > 0
	s.mu.Unlock()
	bad := 0
	for _, n := range s.nodes {
		if paused || !s.runs(n) {
			return true
		}
		if n.FS().Drive() != (fault.Drive{}) {
			if bad++; slices.Contains(leaders, n) || 2*bad >= len(s.nodes) {
				return true
			}
		}
		for _, other := range s.nodes {
			if s.inside.Network().Link(n.ID(), other.ID()) != (fault.Net{}) {
				return true
			}
		}
	}
	return false
}

// sawFault notes the commands that merge regions, and which stores are paused.
func (s *sim) sawFault(f fault.Fault) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch x := &s.holds; f.Verb {
	case fault.Merge:
		x.commands[topology.RegionID(f.Region)]++
	case fault.Pause:
		for _, n := range f.Stores {
			x.paused[n] = true
		}
	case fault.Resume, fault.Kill, fault.Stop, fault.Restart:
		maps.DeleteFunc(x.paused, func(n int, _ bool) bool { return f.Stores == nil || slices.Contains(f.Stores, n) })
	case fault.Heal:
		clear(x.paused)
	}
}
