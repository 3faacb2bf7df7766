package sim

import (
	"errors"
	"math/rand/v2"
	"slices"
	"syscall"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// carrier carries faults out in a run, each verb by a function of its own.
type carrier struct {
	s      *sim
	random *rand.Rand
}

// carried are the verbs that a run can carry out. Those about latency matrices and about clients are left out, and so
// are disks that errNotYet is returned for: they need a cluster that carries faults out itself.
var carried = map[fault.Verb]func(x *carrier, f fault.Fault, lasts time.Duration) error{
	fault.Stop:      (*carrier).stop,
	fault.Kill:      (*carrier).kill,
	fault.Restart:   (*carrier).restart,
	fault.Pause:     (*carrier).pause,
	fault.Resume:    (*carrier).resume,
	fault.Transfer:  (*carrier).transfer,
	fault.StepDown:  (*carrier).transfer,
	fault.Partition: (*carrier).partition,
	fault.Mend:      (*carrier).partition,
	fault.Link:      (*carrier).link,
	fault.Disk:      (*carrier).disk,
	fault.Clock:     (*carrier).clock,
	fault.Heal:      (*carrier).heal,
}

// Why a fault is left out.
var (
	errNotYet  = errors.New("this is not possible here yet")
	errNothing = errors.New("there is nothing to do it to")
)

// do carries out a fault, which lasts for some time. The error says why it is left out.
func (x *carrier) do(f fault.Fault, lasts time.Duration) error {
	if err := f.Check(len(x.s.nodes), simRegions); err != nil {
		return err
	}
	x.s.sawBegin(f, x.running(f.Stores))
	if do := carried[f.Verb]; do != nil {
		return do(x, f, lasts)
	}
	return errNotYet
}

// places are the stores of a list from a fault.
func (x *carrier) places(numbers []int) (all []seam.StorePlace) {
	if numbers == nil {
		return slices.Clone(x.s.nodes)
	}
	for _, n := range numbers {
		all = append(all, x.s.nodes[n-1])
	}
	return all
}

// running are those of the stores that run.
func (x *carrier) running(numbers []int) []seam.StorePlace {
	return slices.DeleteFunc(x.places(numbers), func(n seam.StorePlace) bool { return !x.s.runs(n) })
}

// pairs are the links between the stores of a fault and others, in both directions unless the fault is one-way.
func (x *carrier) pairs(f fault.Fault, each func(from, to topology.StoreID)) {
	for _, a := range x.places(f.Stores) {
		for _, b := range x.places(f.Others) {
			if a == b || f.Others == nil && f.Stores != nil && slices.Contains(f.Stores, int(b.ID())) {
				continue
			}
			each(a.ID(), b.ID())
			if !f.OneWay {
				each(b.ID(), a.ID())
			}
		}
	}
}

func (x *carrier) stop(f fault.Fault, _ time.Duration) error {
	victims := x.running(f.Stores)
	for _, n := range victims {
		x.s.lives[n.ID()-1].Add(1)
		x.s.tally(n)
		x.s.fail(n.Stop())
	}
	return unless(len(victims) > 0)
}

func unless(something bool) error {
	if !something {
		return errNothing
	}
	return nil
}

func (x *carrier) kill(f fault.Fault, _ time.Duration) error {
	victims := x.running(f.Stores)
	if len(victims) == 0 {
		return errNothing
	}
	if f.Stores == nil { // the whole process, with the disks of stores that are dead
		for _, n := range x.s.nodes {
			if !slices.Contains(victims, n) {
				victims = append(victims, n)
			}
		}
	}
	percent := int(100 * f.Kill.Keep)
	if f.Kill.Sync == 0 {
		x.s.kill(percent, x.random, victims...)
		x.s.sawDead()
		return nil
	}
	if !x.s.killAtSync(int64(f.Kill.Sync), percent, x.random, victims...) {
		return errors.New("there were fewer syncs")
	}
	x.s.reach(killedAtSync)
	x.s.sawDead()
	return nil
}

func (x *carrier) restart(f fault.Fault, lasts time.Duration) error {
	for _, n := range x.places(f.Stores) {
		if x.s.runs(n) {
			if err := x.stop(fault.Fault{Stores: []int{int(n.ID())}}, lasts); err != nil {
				return err
			}
		}
		x.s.restart(n)
	}
	return nil
}

func (x *carrier) pause(f fault.Fault, lasts time.Duration) error {
	victims := x.running(f.Stores)
	for _, n := range victims {
		x.s.disks[n.ID()-1].until.Store(time.Now().Add(lasts).UnixNano())
		x.s.network.Pause(n.ID())
	}
	return unless(len(victims) > 0)
}

func (x *carrier) resume(f fault.Fault, _ time.Duration) error {
	for _, n := range x.places(f.Stores) {
		x.s.disks[n.ID()-1].until.Store(0)
		x.s.network.Resume(n.ID())
	}
	return nil
}

func (x *carrier) transfer(f fault.Fault, _ time.Duration) error {
	from, _ := x.s.leader(topology.RegionID(f.Region))
	if from == nil {
		return errors.New("no store leads the region")
	}
	others := x.s.others(from)
	if f.To > 0 {
		others = []seam.StorePlace{x.s.nodes[f.To-1]}
	}
	if len(others) == 0 || others[0] == from {
		return errNothing
	}
	x.s.transfer(topology.RegionID(f.Region), others[x.random.IntN(len(others))])
	return nil
}

// partition cuts links, or mends them.
func (x *carrier) partition(f fault.Fault, _ time.Duration) error {
	cut, links := x.s.network.Heal, 0
	if f.Verb == fault.Partition {
		cut = x.s.network.Cut
	}
	x.pairs(f, func(from, to topology.StoreID) { cut(from, to); links++ })
	if f.Verb == fault.Partition {
		x.s.mu.Lock()
		x.s.stats.Cuts += links
		x.s.mu.Unlock()
	}
	return unless(links > 0)
}

func (x *carrier) link(f fault.Fault, _ time.Duration) error {
	links := 0
	x.pairs(f, func(from, to topology.StoreID) {
		x.s.network.SetLink(from, to, f.Link, x.random)
		links++
	})
	return unless(links > 0)
}

func (x *carrier) disk(f fault.Fault, lasts time.Duration) error {
	d := f.Disk
	var failing *disk.FailingOp
	switch {
	case d.Full:
		failing = &disk.FailingOp{Op: disk.OpWrite, Err: syscall.ENOSPC}
	case d.WriteErrors:
		failing = &disk.FailingOp{Op: disk.OpWrite, Err: syscall.EIO}
	case d.SyncErrors:
		failing = &disk.FailingOp{Op: disk.OpSync, Err: syscall.EIO}
	case d.ReadErrors, d.FlippedBit, d.Bandwidth > 0:
		return errNotYet
	}
	victims := x.places(f.Stores)
	if d != (fault.Drive{}) {
		victims = x.running(f.Stores)
	}
	for _, n := range victims {
		until := int64(0)
		if d.Hang {
			until = time.Now().Add(lasts).UnixNano()
		}
		x.s.disks[n.ID()-1].until.Store(until)
		x.s.disks[n.ID()-1].each.Store(int64(d.Latency + d.Jitter/2))
		x.s.disks[n.ID()-1].fails.Store(failing != nil)
		n.FS().Inject(failing)
	}
	return unless(len(victims) > 0)
}

func (x *carrier) clock(f fault.Fault, _ time.Duration) error {
	for _, n := range x.places(f.Stores) {
		x.s.skews[n.ID()-1].Store(int64(f.Ahead))
	}
	return nil
}

// heal ends all faults, and starts the stores that do not run.
func (x *carrier) heal(fault.Fault, time.Duration) error {
	x.s.heal()
	return nil
}

// carryingHooks plants what a schedule needs in the stores: clocks that can be set, and disks that hang.
func (s *sim) carryingHooks(x fault.Schedule, f *store.Faults) {
	s.slowDisks(f)
	for _, e := range x {
		if e.Fault.Verb == fault.Clock {
			s.h.skew = max(s.h.skew, e.Fault.Ahead.Abs())
			f.Region.Skew = func(id topology.StoreID) time.Duration { return time.Duration(s.skews[id-1].Load()) }
		}
	}
}
