package sim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// hook sets the hooks of every run.
func (s *sim) hook(h *seam.Hooks) {
	h.JournalBytes, h.VirtualTime, h.Killed, h.Starting = s.journalBytes, s.config.NoSockets, s.killed, s.starting
}

// journalBytes draws the length of a segment of the journal, between 64 and 512 KiB: segments change some times in a
// run, or many times. After one kill of the process in four there is no journal.
func (s *sim) journalBytes() (bytes int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.c == nil || s.starts.IntN(4) > 0 {
		bytes = 64 << 10 << s.starts.IntN(4)
	}
	s.journal = bytes > 0
	return bytes
}

// killed is the instant of a kill: from now on clients have no answer of the stores.
func (s *sim) killed(stores []topology.StoreID, inSync bool) {
	s.sawKill()
	for _, id := range stores {
		if s.lives[id-1].Load()%2 == 0 {
			s.lives[id-1].Add(1)
		}
		s.forgetBounds(id)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stats.Kills += len(stores)
	if len(stores) == len(s.nodes) && s.journal {
		s.stats.Ends++
	}
	if inSync {
		s.reachLocked(killedAtSync, 1)
	}
}

// starting is the instant from which on answers of a store count again.
func (s *sim) starting(id topology.StoreID) {
	if s.lives[id-1].Load()%2 == 1 {
		s.lives[id-1].Add(1)
	}
}

// runs reports whether a store runs: it has been started, and has neither been killed nor failed since.
func (s *sim) runs(n seam.StorePlace) bool {
	return s.lives[n.ID()-1].Load()%2 == 0 && n.Store() != nil && n.Failure() == nil
}

// places are the stores of a list from a fault.
func (s *sim) places(numbers []int) (all []seam.StorePlace) {
	if numbers == nil {
		return slices.Clone(s.nodes)
	}
	for _, n := range numbers {
		all = append(all, s.nodes[n-1])
	}
	return all
}

// do carries out a fault by its text. It must not fail.
func (s *sim) do(format string, args ...any) {
	f, err := fault.Parse(fmt.Sprintf(format, args...))
	if err == nil {
		err = s.inject(context.Background(), f)
	}
	s.fail(err)
}

// inject carries out a fault.
func (s *sim) inject(ctx context.Context, f fault.Fault) error {
	s.h.note("%s: begins", f)
	s.sawFault(f)
	_, err := s.c.Inject(ctx, f)
	s.h.note("%s: %v", f, err)
	switch {
	case err != nil:
	case f.Verb == fault.Partition, f.Link.Cut:
		s.count(&s.stats.Cuts)
	case f.Verb == fault.Transfer, f.Verb == fault.StepDown:
		s.count(&s.stats.Transfers)
	case f.Verb == fault.Kill, f.Kill.Sync > 0:
		s.sawLeft(s.places(f.Stores))
	}
	return err
}

// count adds one to a statistic.
func (s *sim) count(n *int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*n++
}

// errNothing is why a fault is left out.
var errNothing = errors.New("there is nothing to do it to")

// perform carries out a fault of a schedule, as far as there is something to do it to. The error says why it is left
// out.
func (s *sim) perform(f fault.Fault) error {
	if err := f.Check(len(s.nodes)); err != nil {
		return err
	}
	running := slices.DeleteFunc(s.places(f.Stores), func(n seam.StorePlace) bool { return !s.runs(n) })
	s.sawBegin(f, running)
	switch f.Verb {
	case fault.Transfer, fault.StepDown:
		f.Region = int(s.regionOf(f.Region))
		return s.change(f)
	case fault.Split, fault.Merge:
		return s.changeSome(f)
	case fault.Migrate:
		return s.migrate(f)
	case fault.MoveReplica, fault.AddReplica, fault.RemoveReplica:
		return s.moveReplica(f)
	case fault.Restart:
		return s.restart(f, len(running) == 0)
	case fault.Stop, fault.Kill, fault.Pause:
		if len(running) == 0 {
			return errNothing
		}
		if f.Verb != fault.Kill || f.Stores != nil { // a kill of all is one of the process, with stores that are dead
			f.Stores = nil
			for _, n := range running {
				f.Stores = append(f.Stores, int(n.ID()))
			}
		}
	}
	err := s.inject(context.Background(), f)
	if f.Verb == fault.Kill {
		s.sawDead()
	}
	return err
}

// restart starts stores. One in four that are down is killed first while it starts.
func (s *sim) restart(f fault.Fault, down bool) error {
	stores := s.places(f.Stores)
	if slices.ContainsFunc(stores, func(n seam.StorePlace) bool { return n.FS().Failed() != nil }) {
		s.reach(diskFailed)
	}
	s.mu.Lock()
	killed := down && s.starts.IntN(4) == 0
	power := fault.Power{Keep: []fault.Portion{0, 0.5, 1}[s.starts.IntN(3)], Sync: 1 + s.starts.IntN(8)}
	s.mu.Unlock()
	if killed {
		again := f
		again.Kill = power
		if s.inject(context.Background(), again) == nil && len(stores) == len(s.nodes) {
			s.reach(killedStarting)
		}
	}
	err := s.inject(context.Background(), f)
	switch {
	case err == nil, strings.Contains(err.Error(), " hangs; "):
	case !slices.ContainsFunc(stores, func(n seam.StorePlace) bool { return n.FS().Drive().Fails() }):
		s.fail(err)
	case strings.Contains(err.Error(), "do not read back"):
		s.reach(refusedLog)
	}
	return err
}

// changeSome splits or merges regions. Who has drawn the fault did not know which regions there would be. So a slot is
// split off from whichever region has it, and if there is no region of the number, another one takes its right
// neighbour over.
func (s *sim) changeSome(f fault.Fault) error {
	all := s.regions()
	if f.Verb == fault.Merge && !slices.ContainsFunc(all, func(r topology.Region) bool { return int(r.ID) == f.Region }) {
		all = neighbours(all)
		if len(all) == 0 {
			return errNothing
		}
		f.Region = int(all[(f.Region-1)%len(all)].ID)
	}
	for _, r := range all {
		if f.Verb == fault.Split && f.Slot > 0 && r.Slots.Contains(topology.Slot(f.Slot)) {
			f.Region = int(r.ID)
		}
	}
	if f.Slot == 0 {
		f.Region = int(s.regionOf(f.Region))
	}
	return s.change(f)
}

// migrate shows clients a migration of those slots that lie in one region, or now and then of all of them, from the
// store that leads it. Who has drawn the fault did not know which region and store these would be.
func (s *sim) migrate(f fault.Fault) error {
	m := &f.Move
	if m.From > 0 {
		r := s.ownerOf(topology.Slot(m.First))
		if m.Last = min(m.Last, int(r.Slots.Last)); m.First%4 > 0 {
			m.First, m.Last = int(r.Slots.First), int(r.Slots.Last)
		}
		home, _ := s.leader(r.ID)
		if home == nil {
			return errNothing
		}
		if m.From = int(home.ID()); m.From == m.To {
			m.To = 1 + m.To%len(s.nodes)
		}
		if m.From == m.To {
			return errNothing
		}
	}
	return s.change(f)
}

// moveReplica moves a replica of a region to a store that has none, or adds one there, or takes one from a region that
// has several. Who has drawn the fault did not know which region there would be, and where its replicas are: stores are
// counted on from those of the fault.
func (s *sim) moveReplica(f fault.Fault) error {
	f.Region = int(s.regionOf(f.Region))
	var with, without []int
	for _, r := range s.regions() {
		for _, n := range s.nodes {
			if _, held := r.PeerOn(n.ID()); int(r.ID) == f.Region && held {
				with = append(with, int(n.ID()))
			} else if int(r.ID) == f.Region {
				without = append(without, int(n.ID()))
			}
		}
	}
	added, removed := f.Verb != fault.RemoveReplica, f.Verb != fault.AddReplica
	if added && len(without) == 0 || removed && len(with) == 0 || !added && len(with) == 1 {
		return errNothing
	}
	if removed {
		f.From = with[f.From%len(with)]
	}
	if added {
		f.To = without[f.To%len(without)]
	}
	err := s.change(f)
	switch {
	case err != nil:
		return err
	case added:
		s.count(&s.stats.Moved)
		s.reach(replicaAdded)
	default:
		s.reach(replicaRemoved)
	}
	return nil
}

// neighbours are the regions whose right neighbours have replicas on the same stores.
func neighbours(all []topology.Region) (left []topology.Region) {
	for i := 1; i < len(all); i++ {
		same := len(all[i-1].Peers) == len(all[i].Peers)
		for _, p := range all[i-1].Peers {
			_, held := all[i].PeerOn(p.Store)
			same = same && held
		}
		if same {
			left = append(left, all[i-1])
		}
	}
	return left
}

// clocksOf returns how far a schedule sets a clock ahead or behind, at most.
func clocksOf(x fault.Schedule) (most time.Duration) {
	for _, e := range x {
		if e.Fault.Verb == fault.Clock {
			most = max(most, e.Fault.Ahead.Abs())
		}
	}
	return most
}
