package sim

import (
	"math/rand/v2"
	"slices"
	"time"

	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/settings"
)

// plan is a schedule of faults, and perhaps a mistake that it is made to find.
type plan struct {
	name     string
	lanes    []func(*sim, *rand.Rand) // they run side by side until the schedule is over
	clients  int
	also     []operation               // what clients do besides the mix
	general  bool                      // some clients use the proxy port; how the cluster is made follows from the seed
	proxied  bool                      // all clients use the proxy port
	mix      string                    // see sim.client
	each     time.Duration             // the clients together do one operation in this time; 0: the seed says
	tcp      bool                      // stores reach each other over connections, which are in memory in virtual time
	seams    func(*sim, *store.Faults) // what the plan needs to look at or to hold, planted or not
	settings func(*settings.Settings)  // that differ from simSettings

	mistake string // what is planted, in words
	plant   func(*store.Faults)
	serve   server.Faults
	shows   []evidence // by which alone it counts as found
	bound   int        // the mistake is found within so many seeds
}

// chaos is the general plan: everything happens.
var chaos = plan{name: "chaos", lanes: []func(*sim, *rand.Rand){killing, partitioning, losing, pausing}, clients: 6, mix: "RRRWWW++++#NNDLXXEEE", also: everyday, general: true, seams: (*sim).everyNature}

// overTCP is the general plan with messages between stores on connections.
var overTCP = func() plan {
	p := chaos
	p.name, p.tcp = "tcp", true
	return p
}()

// expiries is everything that happens, to keys that expire, while clocks are set.
var expiries = plan{
	name: "expiries", seams: (*sim).everyNature,
	lanes: []func(*sim, *rand.Rand){killing, partitioning, losing, pausing, setting}, clients: 6, mix: "XXXEEEEEZPR", also: everyday, general: true,
}

// collections is everything that happens, to hashes that are filled, copied, deleted and made again while the reclaimers work. At the end of
// a run all replicas hold the same, and nothing that cannot be read.
var collections = plan{
	name: "collections", seams: (*sim).everyNature, settings: reclaimSteps,
	lanes: []func(*sim, *rand.Rand){killing, partitioning, losing, pausing}, clients: 6, mix: "HHHHhhhFGGOOOOCUUVS", also: everyday, general: true,
}

// members is everything that happens, to lists, sets and sorted sets whose elements are known one by one: they are pushed and popped, deleted,
// expire, are overwritten and made again, while the reclaimers delete beside them what has been there before.
var members = plan{
	name: "members", seams: (*sim).everyNature, settings: reclaimMembers,
	lanes: []func(*sim, *rand.Rand){killing, partitioning, losing, pausing}, clients: 6, mix: "lllrrrpqiissssssddmmzzzzzxxyykkkfaw", also: everyday, general: true,
}

// reclaimSteps has the reclaimer take small steps, and delete both by range and one by one.
func reclaimSteps(k *settings.Settings) { k.Redis.ReclaimKeys, k.Redis.ReclaimRange = 10, 15 }

// reclaimMembers is reclaimSteps for collections that are small.
func reclaimMembers(k *settings.Settings) { k.Redis.ReclaimKeys, k.Redis.ReclaimRange = 5, 3 }

// everyNature is the seams of the general plans: clocks that disagree, and slow disks.
func (s *sim) everyNature(f *store.Faults) {
	s.skewClocks(f)
	s.slowDisks(f)
}

func plans() []plan {
	return slices.Concat([]plan{chaos, overTCP, expiries, collections, members}, plantedPlans, plantedInGeneral)
}

// with is a general plan with a mistake planted.
func (p plan) with(name string, m plan) plan {
	p.name += "-" + name
	p.mistake, p.plant, p.serve, p.shows, p.bound = m.mistake, m.plant, m.serve, m.shows, m.bound
	return p
}
