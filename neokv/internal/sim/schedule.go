package sim

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// scheduleStep is the begin of an event of a schedule, or its end.
type scheduleStep struct {
	at    time.Duration
	event *scheduled
	ends  bool
}

// scheduled is an event and what has become of it.
type scheduled struct {
	fault.FaultEvent
	left  bool                         // left out: there is nothing to end
	terms map[topology.RegionID]uint64 // in which the regions were led when it began
}

// stepsOf are the begins and ends of a schedule, in order.
func stepsOf(x fault.Schedule) (all []scheduleStep) {
	for _, e := range x {
		event := &scheduled{FaultEvent: e}
		all = append(all, scheduleStep{at: e.At, event: event})
		if e.For > 0 {
			all = append(all, scheduleStep{e.At + e.For, event, true})
		}
	}
	slices.SortStableFunc(all, func(a, b scheduleStep) int { return cmp.Compare(a.at, b.at) })
	return all
}

// scheduleRun is a schedule that is carried out. A step that waits for a store, such as a start, is taken in a line of
// its own, and a change of a region or of its leader by itself, so that the others come in time.
type scheduleRun struct {
	s       *sim
	inForce atomic.Int64  // events that have begun, or stand in the line, and have not ended
	taken   atomic.Uint64 // steps that have begun, or stand in the line
	probes  sync.WaitGroup
}

// follow carries out a schedule until the time of the run is over.
func (s *sim) follow(x fault.Schedule) {
	began := time.Now()
	f := &scheduleRun{s: s}
	all := stepsOf(x)
	line := make(chan scheduleStep, len(all))
	var wg, changes sync.WaitGroup
	wg.Go(func() {
		for e := range line {
			if !s.isOver() {
				f.take(e)
			}
		}
	})
	for _, e := range all {
		if !s.sleep(e.at - time.Since(began)) {
			break
		}
		f.taken.Add(1)
		if !e.ends {
			f.inForce.Add(1)
		}
		switch e.event.Fault.Verb {
		case fault.Stop, fault.Kill, fault.Restart, fault.Heal:
			line <- e
		case fault.Split, fault.Merge, fault.Transfer, fault.StepDown, fault.Migrate, fault.MoveReplica, fault.AddReplica,
			fault.RemoveReplica: // side by side
			changes.Go(func() { f.take(e) })
		default:
			f.take(e)
		}
	}
	<-s.over
	changes.Wait()
	s.heal() // now, since a store that starts may wait for a disk that hangs
	close(line)
	wg.Wait()
	f.probes.Wait()
}

// take takes a step, and begins a probe if no fault is left.
func (f *scheduleRun) take(e scheduleStep) {
	what := e.event.Fault
	switch {
	case !e.ends:
		e.event.terms = f.s.terms()
	case e.event.left:
		what = fault.Fault{}
	default:
		what = what.End()
	}
	if what.Verb != "" {
		err := f.s.perform(what)
		if !e.ends {
			e.event.left = err != nil
		} else {
			f.s.sawEnd(e.event)
		}
	}
	if e.ends || e.event.For == 0 {
		f.inForce.Add(-1)
	}
	if taken := f.taken.Load(); f.quiet() {
		f.probes.Go(func() { f.probe(taken) })
	}
}

// quiet reports whether no fault is in force.
func (f *scheduleRun) quiet() bool {
	return f.inForce.Load() == 0 && !slices.ContainsFunc(f.s.nodes, func(n seam.StorePlace) bool { return !f.s.runs(n) })
}

// probe checks that all regions take writes soon after the last fault has ended, unless another step was taken since.
func (f *scheduleRun) probe(taken uint64) {
	last := func() bool { return f.taken.Load() == taken }
	late := f.s.servesWhile(last)
	switch {
	case !last() || !f.quiet():
	case late != nil:
		f.s.fail(late)
	default:
		f.s.reach(servedAfterFaults)
	}
}

// terms are the terms in which regions are led.
func (s *sim) terms() map[topology.RegionID]uint64 {
	all := make(map[topology.RegionID]uint64)
	for _, st := range s.stores() {
		for _, l := range st.Replicas().Leads() {
			all[l.Region] = max(all[l.Region], l.Term)
		}
	}
	return all
}

// elected reports whether a region has another leader than when the terms were taken.
func (s *sim) elected(since map[topology.RegionID]uint64) bool {
	now := s.terms()
	for r := range maps.Keys(since) {
		if now[r] > since[r] && since[r] > 0 {
			return true
		}
	}
	return false
}
