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

// The flags of runs; doc.go has examples.
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

// TestVirtual runs seeds of one plan: a batch in child processes, or the seed of -sim.seed in this one.
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

// TestVirtualTCP runs some seeds of the general plan in which stores send messages on connections.
func TestVirtualTCP(t *testing.T) {
	b := newBatch(t, named(t, "tcp"), false, *simVirtual)
	b.run(1, 40, false)
	b.report()
}

// TestExpiriesVirtual runs seeds with keys that expire.
func TestExpiriesVirtual(t *testing.T) {
	b := newBatch(t, named(t, "expiries"), false, 15*time.Second)
	b.run(1, 40, false)
	b.report()
}

// TestMembersVirtual runs seeds with lists, sets and sorted sets.
func TestMembersVirtual(t *testing.T) { reclaimedVirtually(t, "members") }

// TestCollectionsVirtual runs seeds with large hashes.
func TestCollectionsVirtual(t *testing.T) { reclaimedVirtually(t, "collections") }

// reclaimedVirtually runs seeds of a plan that gives the reclaimers work.
func reclaimedVirtually(t *testing.T, name string) {
	b := newBatch(t, named(t, name), false, 15*time.Second)
	b.run(1, 40, false)
	b.report()
	// With -short there is one seed, and its cluster may have a single store.
	if !testing.Short() && (b.stats.Snapshots == 0 || b.stats.Reclaimed == 0) {
		t.Error("no snapshot has been installed, or nothing has been reclaimed")
	}
}

// simulate runs a seed of a plan in virtual time, with the mistake of the plan if planted is set. It returns what
// went wrong.
func simulate(t *testing.T, p plan, planted bool, seed uint64, virtual time.Duration) (simStats, []evidence, error) {
	s := &sim{seed: seed, keep: *simKeep, config: neokv.Config{InMemory: true, NoSockets: true}}
	err := s.record(p, planted, virtual, func(run func()) { synctest.Test(t, func(*testing.T) { run() }) })
	return s.stats, s.kinds, err
}
