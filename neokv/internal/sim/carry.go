package sim

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// carrier carries faults out in a run. The cluster does so itself, with exceptions. The run counts the lives of stores,
// so that it knows which answers count: it ends stores and starts them by its own means. A transfer is asked for once.
// In virtual time a disk that is slow or hangs does so before a write of the log, since a sync that waits under a lock
// would make time stand still.
type carrier struct {
	s      *sim
	random *rand.Rand
}

// errNothing is why a fault is left out.
var errNothing = errors.New("there is nothing to do it to")

// do carries out a fault. The error says why it is left out.
func (x *carrier) do(f fault.Fault, lasts time.Duration) error {
	if err := f.Check(len(x.s.nodes)); err != nil {
		return err
	}
	x.s.sawBegin(f, x.running(f.Stores))
	switch f.Verb {
	case fault.Stop:
		return x.stop(f)
	case fault.Kill:
		return x.kill(f)
	case fault.Restart:
		return x.restart(f)
	case fault.Transfer, fault.StepDown:
		f.Region = int(x.s.regionOf(f.Region))
		return x.transfer(f)
	case fault.Split, fault.Merge:
		return x.change(f)
	case fault.Heal:
		x.s.heal()
		return nil
	case fault.Pause:
		if x.s.real {
			break
		}
		return x.pause(f, lasts)
	case fault.Resume:
		if x.s.real {
			break
		}
		return x.resume(f)
	case fault.Disk:
		if x.s.real {
			break
		}
		if d := f.Disk; d.Hang || d.Latency+d.Jitter > 0 || d.Bandwidth > 0 || d == (fault.Drive{}) {
			x.slow(f, lasts)
			f.Disk.Hang, f.Disk.Latency, f.Disk.Jitter, f.Disk.Bandwidth = false, 0, 0, 0
		}
	case fault.Partition:
		x.s.mu.Lock()
		x.s.stats.Cuts++
		x.s.mu.Unlock()
	}
	_, err := x.s.c.Inject(context.Background(), f)
	return err
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

func (x *carrier) stop(f fault.Fault) error {
	victims := x.running(f.Stores)
	if len(victims) == 0 {
		return errNothing
	}
	f.Stores = nil
	for _, n := range victims {
		f.Stores = append(f.Stores, int(n.ID()))
		x.s.lives[n.ID()-1].Add(1)
		x.s.tally(n)
	}
	_, err := x.s.c.Inject(context.Background(), f)
	for _, n := range victims {
		if n.Store() != nil { // not stopped, since its disk hangs
			x.s.lives[n.ID()-1].Add(1)
		}
	}
	return err
}

func (x *carrier) kill(f fault.Fault) error {
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

func (x *carrier) restart(f fault.Fault) error {
	for _, n := range x.places(f.Stores) {
		if x.s.runs(n) {
			if err := x.stop(fault.Fault{Verb: fault.Stop, Stores: []int{int(n.ID())}}); err != nil {
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
	if len(victims) == 0 {
		return errNothing
	}
	return nil
}

func (x *carrier) resume(f fault.Fault) error {
	for _, n := range x.places(f.Stores) {
		x.s.disks[n.ID()-1].until.Store(0)
		x.s.network.Resume(n.ID())
	}
	return nil
}

// slow makes disks slow, or hang for some time. A disk with a bandwidth takes the time of 4 KiB for each write.
func (x *carrier) slow(f fault.Fault, lasts time.Duration) {
	d := f.Disk
	each := d.Latency + d.Jitter/2
	if d.Bandwidth > 0 {
		each += time.Duration(float64(4<<10) / float64(d.Bandwidth) * float64(time.Second))
	}
	for _, n := range x.places(f.Stores) {
		until := int64(0)
		if d.Hang {
			until = time.Now().Add(lasts).UnixNano()
		}
		x.s.disks[n.ID()-1].until.Store(until)
		x.s.disks[n.ID()-1].each.Store(int64(each))
	}
}

// transfer asks once. The cluster itself would ask again, for seconds.
func (x *carrier) transfer(f fault.Fault) error {
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

// change splits or merges regions, until the schedule is over. Who has drawn it did not know which regions there would
// be. So a slot is split off from whichever region has it, and if there is no region of the number, another one takes
// its right neighbour over.
func (x *carrier) change(f fault.Fault) error {
	all := x.s.regions()
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
		f.Region = int(x.s.regionOf(f.Region))
	}
	return x.s.change(f)
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
