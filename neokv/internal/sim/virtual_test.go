package sim

import (
	"errors"
	"flag"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv"
)

// The cluster in virtual time:
//
//	go test ./neokv/internal/sim -run 'TestVirtual$'                                a fixed batch of seeds
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.seeds=1000 -timeout=2h    more of them, from -sim.first on
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.seed=123 -v               one seed; -count=20 runs it again and again
//	go test ./neokv/internal/sim -run TestExplore -sim.explore=1h -timeout=2h -v    fresh seeds of all plans, for so long
//	go test ./neokv/internal/sim -run 'TestVirtual$' -sim.plan=lease-promise -sim.planted -sim.seed=2 -v
//
// Seeds run in child processes, one per core: a panic on any goroutine ends a process.
var (
	simSeed    = flag.Uint64("sim.seed", 0, "run this seed alone, in this process")
	simSeeds   = flag.Int("sim.seeds", 60, "how many seeds a batch runs")
	simFirst   = flag.Uint64("sim.first", 1, "first seed of a batch")
	simVirtual = flag.Duration("sim.virtual", 20*time.Second, "length of a run in virtual time")
	simPlan    = flag.String("sim.plan", general, "name of a plan (see plans.txt), or the text of a scenario")
	simKeep    = flag.Bool("sim.keep", false, "keep the history of runs in which nothing was found, too")
	simPlanted = flag.Bool("sim.planted", false, "plant the mistake that the plan is made to find")
)

// general is the plan in which everything happens.
const general = "chaos"

// named returns a plan of plans.txt.
func named(t *testing.T, name string) plan {
	t.Helper()
	p, err := planOf(name)
	if err != nil || p.name == "" {
		t.Fatalf("plan %s: %v", name, err)
	}
	return p
}

// TestVirtual runs seeds of a plan; see above.
func TestVirtual(t *testing.T) {
	p, err := planOf(*simPlan)
	if err == nil && *simPlanted && p.mistake.plant == nil {
		err = errors.New("there is no mistake to plant")
	}
	if err != nil {
		t.Fatalf("-sim.plan: %v", err)
	}
	switch {
	case os.Getenv(simWorker) != "":
		for i := range *simSeeds {
			r := simReport{Seed: *simFirst + uint64(i)}
			r.print()
			start := time.Now()
			var err error
			r.simStats, r.Kinds, err = simulate(t, p, *simPlanted, r.Seed, *simVirtual)
			if err != nil {
				r.Problem = err.Error()
			}
			r.Ended, r.Seconds = true, time.Since(start).Seconds()
			r.print()
		}
	case *simSeed != 0:
		start := time.Now()
		stats, kinds, err := simulate(t, p, *simPlanted, *simSeed, *simVirtual)
		if err != nil {
			t.Errorf("seed %d: %q: %v\nscenario:\n%s", *simSeed, kinds, err, p.scenario)
		}
		t.Logf("seed %d: %+v in %.2fs", *simSeed, stats, time.Since(start).Seconds())
	default:
		b := newBatch(t, p, *simPlanted, *simVirtual)
		b.run(*simFirst, *simSeeds, false)
		b.report()
	}
}

// TestVirtualTCP runs some seeds of the general plan with messages between stores on connections.
func TestVirtualTCP(t *testing.T) {
	b := newBatch(t, named(t, "tcp"), false, *simVirtual)
	b.run(1, 40, false)
	b.report()
}

// TestExpiriesVirtual runs seeds of the plan.
func TestExpiriesVirtual(t *testing.T) {
	b := newBatch(t, named(t, "expiries"), false, 15*time.Second)
	b.run(1, 40, false)
	b.report()
}

// TestMembersVirtual runs seeds of the plan.
func TestMembersVirtual(t *testing.T) { reclaimedVirtually(t, "members") }

// TestCollectionsVirtual runs seeds of the plan.
func TestCollectionsVirtual(t *testing.T) { reclaimedVirtually(t, "collections") }

// reclaimedVirtually runs seeds of a plan in which the reclaimers have work.
func reclaimedVirtually(t *testing.T, name string) {
	b := newBatch(t, named(t, name), false, 15*time.Second)
	b.run(1, 40, false)
	b.report()
	// With -short there is one seed, and its cluster may have a single store.
	if !testing.Short() && (b.stats.Snapshots == 0 || b.stats.Reclaimed == 0) {
		t.Error("no snapshot has been installed, or nothing has been reclaimed")
	}
}

// simulate runs a plan with a seed in a bubble and returns what went wrong. The plan's mistake is planted if planted
// is set.
func simulate(t *testing.T, p plan, planted bool, seed uint64, virtual time.Duration) (simStats, []evidence, error) {
	s := &sim{seed: seed, keep: *simKeep, config: neokv.Config{InMemory: true, NoSockets: true}}
	err := s.record(p, planted, virtual, func(run func()) { synctest.Test(t, func(*testing.T) { run() }) })
	return s.stats, s.kinds, err
}
