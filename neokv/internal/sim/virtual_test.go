package sim

import (
	"flag"
	"runtime"
	"testing"
	"time"
)

// The flags of runs; doc.go has examples.
var (
	simSeed    = flag.Uint64("sim.seed", 0, "run this seed alone, in this process")
	simSeeds   = flag.Int("sim.seeds", 30, "how many seeds a batch runs")
	simFirst   = flag.Uint64("sim.first", 1, "first seed of a batch")
	simVirtual = flag.Duration("sim.virtual", 20*time.Second, "length of a run in virtual time")
	simPlan    = flag.String("sim.plan", general, "name of a plan (see plans.txt), or the text of a scenario")
	simKeep    = flag.Bool("sim.keep", false, "keep the history of runs in which nothing was found, too")
	simPlanted = flag.Bool("sim.planted", false, "plant the mistake that the plan is made to find")
)

// Behind the fixed seeds of these batches CI runs fresh ones for 15 s, of TestExplore.

// TestVirtual runs seeds of one plan: a batch in child processes, or the seed of -sim.seed in this one.
func TestVirtual(t *testing.T) {
	if *simSeed == 0 && !*simPlanted {
		runBatch(t, *simPlan, *simFirst, *simSeeds, *simVirtual)
		return
	}
	j := job{Plan: *simPlan, First: *simSeed, Length: *simVirtual, Keep: *simKeep}
	p, err := j.parse()
	if err != nil {
		t.Fatalf("-sim.plan: %v", err)
	}
	if *simPlanted {
		j.Mistake = p.mistake.name
	}
	if *simSeed == 0 {
		findPlanted(t, runtime.NumCPU(), *simPlan, *simVirtual)
		return
	}
	r := j.simulate(t, p, 0)
	if r.Problem != "" {
		t.Errorf("seed %d: %q: %s\nscenario:\n%s", *simSeed, r.Kinds, r.Problem, p.scenario)
	}
	t.Logf("seed %d: %+v in %.2fs", *simSeed, r.simStats, r.Seconds)
}

// TestVirtualTCP runs some seeds of the general plan in which stores send messages on connections.
func TestVirtualTCP(t *testing.T) { runBatch(t, "tcp", 1, 12, *simVirtual) }

// TestExpiriesVirtual runs seeds with keys that expire.
func TestExpiriesVirtual(t *testing.T) { runBatch(t, "expiries", 1, 12, 15*time.Second) }

// TestMigrationsVirtual shows clients migrations that begin, end and are called off beside splits, merges, transfers
// and kills.
func TestMigrationsVirtual(t *testing.T) { runBatch(t, "migrations", 1, 6, 10*time.Second) }

// TestMovesVirtual moves replicas between stores beside splits, merges and all sorts of faults.
func TestMovesVirtual(t *testing.T) { runBatch(t, "moves", 1, 6, 15*time.Second) }

// TestQueuesVirtual runs seeds with queues of jobs.
func TestQueuesVirtual(t *testing.T) { runBatch(t, "queues", 1, 6, 10*time.Second) }

// TestChatVirtual runs seeds with a chat.
func TestChatVirtual(t *testing.T) { runBatch(t, "chat", 1, 12, *simVirtual) }

// TestMessagesVirtual runs seeds with publishers and subscribers.
func TestMessagesVirtual(t *testing.T) { runBatch(t, "messages", 1, 12, *simVirtual) }

// TestCachesVirtual runs seeds with clients that cache.
func TestCachesVirtual(t *testing.T) { runBatch(t, "caches", 1, 6, *simVirtual) }

// TestBackupsVirtual runs seeds with backups, from each of which a cluster is started.
func TestBackupsVirtual(t *testing.T) { runBatch(t, "backups", 1, 2, 10*time.Second) }

// TestTransactionsVirtual runs seeds with transactions.
func TestTransactionsVirtual(t *testing.T) { runBatch(t, "transactions", 1, 12, *simVirtual) }

// TestMembersVirtual runs seeds with lists, sets and sorted sets.
func TestMembersVirtual(t *testing.T) { reclaimedVirtually(t, "members") }

// TestCollectionsVirtual runs seeds with large hashes.
func TestCollectionsVirtual(t *testing.T) { reclaimedVirtually(t, "collections") }

// reclaimedVirtually runs seeds of a plan that gives the reclaimers work.
func reclaimedVirtually(t *testing.T, name string) {
	b := runBatch(t, name, 1, 12, 15*time.Second)
	// With -short there is one seed, and its cluster may have a single store.
	if !testing.Short() && (b.stats.Snapshots == 0 || b.stats.Reclaimed == 0) {
		t.Error("no snapshot has been installed, or nothing has been reclaimed")
	}
}
