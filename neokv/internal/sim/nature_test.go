package sim

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
	"neokv.dev/neokv/settings"
)

// maxStores is the most that a run has.
const maxStores = 5

// shapes are the clusters of general plans. Most runs are of the first.
var shapes = []settings.Cluster{
	{Stores: 3, Replicas: 3, Regions: simRegions},
	{Stores: 5, Replicas: 3, Regions: simRegions},
	{Stores: 5, Replicas: 5, Regions: simRegions},
	{Stores: 1, Replicas: 1, Regions: simRegions},
	{Stores: 3, Replicas: 1, Regions: simRegions},
}

// vary makes of the settings what the seed says: the shape, how many entries of a region may be in flight, and how much one takes.
func (s *sim) vary(k *settings.Settings) {
	random := s.random(9)
	if n := random.IntN(8); n < len(shapes) {
		k.Cluster = shapes[n]
	}
	k.Raft.MaxInflight = []int{1, 2, 4, 16}[random.IntN(4)]
	if random.IntN(3) == 0 {
		k.Raft.BatchMaxOps = 1 + random.IntN(4) // pipelines travel in several entries
	}
	s.h.note("%+v, %d entries in flight, of %d commands at most", k.Cluster, k.Raft.MaxInflight, k.Raft.BatchMaxOps)
}

// slowDisk is what is wrong with a store's disk.
type slowDisk struct {
	until atomic.Int64 // it hangs until then, Unix ns
	each  atomic.Int64 // what each write of the log takes, ns
}

// slowDisks plants the seam by which disks are slow.
func (s *sim) slowDisks(f *store.Faults) {
	f.BeforeSave = func(id topology.StoreID) {
		d := &s.disks[id-1]
		time.Sleep(max(time.Until(time.Unix(0, d.until.Load())), time.Duration(d.each.Load())))
	}
}

// everyNature is the seams of the general plans: clocks that disagree, and slow disks.
func (s *sim) everyNature(f *store.Faults) {
	s.skewClocks(f)
	s.slowDisks(f)
}

// losing has links lose messages, and deliver some of them once more, late.
func losing(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(200+random.IntN(3000)) * time.Millisecond) {
		lost, again := random.IntN(30), random.IntN(50)
		late := time.Duration(1+random.IntN(400)) * time.Millisecond
		s.h.note("links lose %d%% and repeat %d%% within %s", lost, again, late)
		var mu sync.Mutex
		chance := rand.New(rand.NewPCG(random.Uint64(), 1))
		s.fate(func(*pb.Message) (f transport.Fate) {
			mu.Lock()
			defer mu.Unlock()
			f.Lost = chance.IntN(100) < lost
			if chance.IntN(100) < again {
				f.Again = 1 + time.Duration(chance.Int64N(int64(late)))
			}
			return f
		})
		s.sleep(time.Duration(100+random.IntN(2000)) * time.Millisecond)
		s.h.note("links are good")
		s.fate(nil)
	}
	s.fate(nil)
}

// fate gives messages on all links a fate.
func (s *sim) fate(of func(*pb.Message) transport.Fate) {
	for _, a := range s.nodes {
		for _, b := range s.nodes {
			s.network.Disturb(a.ID(), b.ID(), of)
		}
	}
}

// pausing stops stores for a while, of which nothing arrives or leaves meanwhile and whose disks hang; or has a disk hang alone, or be slow.
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

// delay delays what goes to a store and what comes from it.
func (s *sim) delay(n seam.Node, d time.Duration) {
	for _, o := range s.others(n) {
		s.network.Delay(n.ID(), o.ID(), d)
		s.network.Delay(o.ID(), n.ID(), d)
	}
}
