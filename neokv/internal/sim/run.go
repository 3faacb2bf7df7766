package sim

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/pprof"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
)

// sim is a cluster, of three stores mostly, in virtual time, with clients, under faults. A seed fixes the schedule of faults and operations, not
// the interleaving: equal seeds give nearly equal runs.
type sim struct {
	seed    uint64
	config  neokv.Config
	c       *neokv.Cluster
	inside  seam.Cluster
	h       *history
	epoch   string // names the keys in use; a new one keeps histories of a key short
	epochs  []string
	nodes   []seam.Node
	network *transport.Network

	lives  []atomic.Uint64 // by store: odd while it is dead
	over   chan struct{}   // closed when the schedule ends
	starts *rand.Rand      // how the process starts again
	ended  bool            // the whole process has, and no store has started since
	keep   bool            // the history, though nothing was found

	mu      sync.Mutex
	problem error      // the first
	kinds   []evidence // of all problems, each once
	entries map[topology.RegionID]map[uint64]entry
	stats   simStats
	gate    *writeGate // of the plan that needs one
	disks   [maxStores]slowDisk
	skews   [maxStores]atomic.Int64 // by store: how far its clock is ahead, ns, where the plan has clocks that disagree
}

// simStats is what a run consisted of.
type simStats struct {
	Acknowledged, Unknown, Kills, Cuts, Transfers int
	Ends                                          int // of the whole process, its journal included
	Compared                                      int // times that two replicas and more were compared while the plan ran
	Snapshots, Reclaimed                          int // region snapshots installed, elements of orphans deleted
}

// record runs a plan and checks its history, which is written to a file; it is removed if all went well.
func (s *sim) record(p plan, planted bool, d time.Duration, inside func(run func())) error {
	out, err := os.Create(filepath.Join(os.TempDir(), fmt.Sprintf("neokv-%s-%d-%d.history", cmp.Or(p.name, "scenario"), s.seed, os.Getpid())))
	if err != nil {
		return err
	}
	defer out.Close()
	// Virtual time stands still for ever when somebody waits where it does not count as waiting.
	patience := d + 10*time.Minute // a race build on a busy machine takes minutes
	watchdog := time.AfterFunc(patience, func() {
		fmt.Fprintf(os.Stderr, "plan %s, seed %d: still running after %s of real time\n", p.flag(), s.seed, patience)
		pprof.Lookup("goroutine").WriteTo(os.Stderr, 2)
		os.Exit(3)
	})
	defer watchdog.Stop()
	s.lives = make([]atomic.Uint64, maxStores)
	s.entries = make(map[topology.RegionID]map[uint64]entry)
	inside(func() {
		s.over = make(chan struct{})
		s.h = newHistory(out)
		s.run(p, planted, d)
	})
	for _, err := range s.h.problems(8) {
		s.fail(err)
	}
	s.fail(s.checkEntries())
	s.stats.Acknowledged, s.stats.Unknown = s.h.count()
	if s.problem != nil {
		return fmt.Errorf("%w\nhistory: %s", s.problem, out.Name())
	}
	if s.keep {
		return nil
	}
	return os.Remove(out.Name())
}

// fail keeps the first problem, and the kinds of all.
func (s *sim) fail(err error) {
	if err == nil {
		return
	}
	s.h.note("PROBLEM: %v", err)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.keepLocked(err)
}

func (s *sim) keepLocked(err error) {
	if s.problem == nil {
		s.problem = err
	}
	if kind := evidenceOf(err); kind != "" && !slices.Contains(s.kinds, kind) {
		s.kinds = append(s.kinds, kind)
	}
}

// random returns a source of its own for each purpose, so that one does not shift the other's choices.
func (s *sim) random(purpose uint64) *rand.Rand { return rand.New(rand.NewPCG(s.seed, purpose)) }

// run is a whole run, from boot to Close.
func (s *sim) run(p plan, planted bool, d time.Duration) {
	s.h.note("scenario:\n%s", p.scenario)
	hooks := new(seam.Hooks)
	if planted {
		p.mistake.plant(hooks)
	}
	if p.skewed {
		s.skewClocks(&hooks.Store)
	}
	for _, f := range p.faults {
		if f.hook != nil {
			f.hook(s, &hooks.Store)
		}
	}
	hooks.Store.Region.Observe = s.observe
	s.nextEpoch(0)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	s.config.Seed, s.config.Settings, s.config.Hooks = s.seed, simSettings(), hooks
	if p.tcp {
		s.config.Settings.Raft.Transport = "tcp"
	}
	s.starts = s.random(8)
	hooks.JournalBytes = journalBytes(s.starts)
	if p.anyShape {
		s.vary(s.config.Settings)
	}
	if err := p.set(s.config.Settings); err != nil {
		s.fail(err)
		return
	}
	c, err := neokv.Start(ctx, s.config)
	if err != nil {
		s.fail(fmt.Errorf("boot: %w", err))
		return
	}
	s.attach(c, hooks)
	s.h.note("up after %s", c.BootTime())
	var clients, lanes sync.WaitGroup
	end := time.AfterFunc(d, func() { close(s.over) })
	defer end.Stop()
	every := p.every
	if every == 0 {
		every = time.Duration(5+s.random(1).IntN(46)) * time.Millisecond // 20 to 200 operations a second
	}
	for i := range p.clients {
		clients.Go(func() { s.client(i, p.scenario, time.Duration(p.clients)*every) })
	}
	lanes.Go(func() {
		for i := 1; s.sleep(5 * time.Second); i++ {
			s.nextEpoch(i)
		}
	})
	lanes.Go(func() { s.comparing(s.random(10)) })
	for i, f := range p.faults {
		lanes.Go(func() { f.run(s, s.random(uint64(100+i))) })
	}
	lanes.Wait()
	s.heal()
	clients.Wait()
	s.h.note("the end: all keys are read")
	s.finalReads()
	s.compareReplicas()
	for _, n := range s.nodes {
		s.tally(n)
	}
	s.fail(c.Close())
}

// attach gives the run its cluster, and its hold of the inside.
func (s *sim) attach(c *neokv.Cluster, hooks *seam.Hooks) {
	s.c, s.inside, s.nodes, s.network = c, hooks.Cluster, hooks.Cluster.Nodes(), hooks.Cluster.Network()
}

// sleep reports false when the schedule is over.
func (s *sim) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.over:
		return false
	}
}

// tally takes down what a store has counted in its life.
func (s *sim) tally(n seam.Node) {
	st := n.Store()
	if st == nil {
		return
	}
	for _, r := range st.Counters().Regions {
		s.stats.Snapshots += int(r.SnapshotsReceived.Load())
		s.stats.Reclaimed += int(r.ReclaimedElements.Load())
	}
}
