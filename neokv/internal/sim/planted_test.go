package sim

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// plantedPlans are schedules each made to find one planted mistake, which it does within bound seeds: so many that by the share of seeds that
// were seen to find it, one search in thousands does not. Without the mistake the very
// same schedules find nothing.
var plantedPlans = []plan{
	{
		name: "log-unsynced", mistake: "the log is not synced",
		shows: []evidence{lostWrite}, bound: 6,
		plant: func(f *store.Faults) { f.Log.NoSync = true },
		lanes: []func(*sim, *rand.Rand){blackouts}, clients: 6, each: 10 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "apply-index-apart", mistake: "the apply index is committed in a batch of its own",
		shows: []evidence{replicasDiffer, doubled}, bound: 25,
		plant: func(f *store.Faults) { f.Region.SplitApply = true },
		// An increment with a read set that holds is the same when it is applied again; of entries in flight together only the first has one.
		settings: func(k *settings.Settings) { k.Raft.MaxInflight, k.Raft.BatchMaxOps = 16, 2 },
		lanes:    []func(*sim, *rand.Rand){tearing}, clients: 2, each: 50 * time.Millisecond, mix: "+#",
	},
	{
		name: "lease-unchecked", mistake: "a lease is never checked",
		shows: []evidence{staleRead}, bound: 10,
		plant: func(f *store.Faults) { f.Region.TrustLease = true },
		lanes: []func(*sim, *rand.Rand){lonelyLeaders}, clients: 2, each: 50 * time.Millisecond, mix: "R",
	},
	{
		name: "lease-promise", mistake: "the voters' promise is not held",
		shows: []evidence{staleRead}, bound: 12,
		plant: func(f *store.Faults) { f.Transport.NoPromise = true },
		lanes: []func(*sim, *rand.Rand){forgetfulVoters}, clients: 2, each: 50 * time.Millisecond, mix: "R",
	},
	{
		name: "snapshot-dropped", mistake: "a received snapshot's file is dropped before it is in the engine",
		shows: []evidence{lags}, bound: 5,
		plant: func(f *store.Faults) { f.Region.LazyInstall = true },
		lanes: []func(*sim, *rand.Rand){absentAtTheEnd}, clients: 4, each: 5 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "term-tag", mistake: "the term tag is ignored",
		shows: []evidence{logsDiffer}, bound: 5,
		plant: func(f *store.Faults) { f.Region.NoTermTag = true },
		seams: (*sim).holdWrites,
		lanes: []func(*sim, *rand.Rand){lateWrites}, clients: 2, each: 50 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "read-set-stale", mistake: "a read set is taken for good whatever has been applied since",
		shows: []evidence{lostWrite, replicasDiffer}, bound: 5,
		plant:    func(f *store.Faults) { f.Region.AnyBase = true },
		seams:    (*sim).holdWrites,
		settings: func(s *settings.Settings) { s.Raft.MaxInflight = 8 },
		lanes:    []func(*sim, *rand.Rand){overtaken}, clients: 2, each: 50 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "unknown-retried", mistake: "the server tries a write of unknown outcome again",
		shows: []evidence{doubled}, bound: 30,
		serve: server.Faults{RetryUnknown: true},
		lanes: []func(*sim, *rand.Rand){killing}, clients: 6, proxied: true, each: 5 * time.Millisecond, mix: "+++#",
	},
	{
		name: "rows-kept", mistake: "rows of an earlier term are taken for the present records",
		shows: []evidence{staleRead}, bound: 5,
		plant: func(f *store.Faults) { f.Region.KeptRows = true },
		lanes: []func(*sim, *rand.Rand){returning}, clients: 2, each: 50 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "follower-read", mistake: "a follower reads without an index",
		shows: []evidence{staleRead}, bound: 5,
		plant: func(f *store.Faults) { f.Region.NoReadIndex = true },
		lanes: []func(*sim, *rand.Rand){slowFollowers}, clients: 6, each: 10 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "expiry-clock", mistake: "expiry is judged by the local clock alone",
		shows: []evidence{wrongEffect, replicasDiffer, staleRead}, bound: 12,
		plant: func(f *store.Faults) { f.Region.LocalClock = true },
		seams: (*sim).skewClocks,
		lanes: []func(*sim, *rand.Rand){wandering}, clients: 4, each: 20 * time.Millisecond, mix: "XEEEE",
	},
	{
		name: "version-repeated", mistake: "behind a change of leader a new collection gets a version that has been in use",
		shows: []evidence{lostWrite, wrongEffect, unreadable}, bound: 30,
		plant:    func(f *store.Faults) { f.Region.SameVersions = true },
		settings: reclaimSteps,
		lanes:    []func(*sim, *rand.Rand){wandering}, clients: 4, each: 20 * time.Millisecond, mix: "HHhhG",
	},
	{
		name: "live-reclaimed", mistake: "the reclaimer takes what a key holds for what it held",
		shows: []evidence{lostWrite}, bound: 6,
		plant:    func(f *store.Faults) { f.Region.AnyVersion = true },
		settings: reclaimMembers,
		lanes:    []func(*sim, *rand.Rand){wandering}, clients: 4, each: 20 * time.Millisecond, mix: "HHHHhhG",
	},
	{
		name: "map-order", mistake: "which member SPOP takes follows from the order of a Go map",
		shows: []evidence{replicasDiffer}, bound: 6,
		plant:    func(f *store.Faults) { f.Region.MapOrder = true },
		settings: func(k *settings.Settings) { k.Raft.ReadSets = false }, // likewise
		lanes:    []func(*sim, *rand.Rand){wandering}, clients: 4, each: 20 * time.Millisecond, mix: "ssssdm",
	},
	{
		name: "journal-unsynced", mistake: "the journal's groups are not synced",
		shows: []evidence{lostWrite}, bound: 5,
		plant: func(f *store.Faults) { f.Journal.NoSync = true },
		lanes: []func(*sim, *rand.Rand){blackouts}, clients: 6, each: 10 * time.Millisecond, mix: "RW+#",
	},
	{
		name: "journal-not-replayed", mistake: "what the journal holds is thrown away when the process starts again",
		shows: []evidence{lostWrite}, bound: 5,
		plant: func(f *store.Faults) { f.Journal.NoReplay = true },
		lanes: []func(*sim, *rand.Rand){blackouts}, clients: 6, each: 10 * time.Millisecond, mix: "RW+#",
	},
}

// plantedInGeneral are mistakes that a general plan finds, whose schedule is made for none.
var plantedInGeneral = []plan{
	chaos.with("log-unsynced", plan{
		mistake: "the log is not synced", shows: []evidence{lostWrite}, bound: 40,
		plant: func(f *store.Faults) { f.Log.NoSync = true },
	}),
	chaos.with("log-late", plan{
		mistake: "every other round of the log is synced with the next", shows: []evidence{lostWrite}, bound: 120,
		plant: func(f *store.Faults) { f.Log.LateSync = true },
	}),
	chaos.with("early-reply", plan{
		mistake: "a SET is answered when it is proposed", shows: []evidence{lostWrite, staleRead, outOfOrder}, bound: 12,
		plant: func(f *store.Faults) { f.Region.EarlyReply = true },
	}),
	chaos.with("lease-unchecked", plan{
		mistake: "a lease is never checked", shows: []evidence{staleRead}, bound: 120,
		plant: func(f *store.Faults) { f.Region.TrustLease = true },
	}),
	chaos.with("follower-read", plan{
		mistake: "a follower reads without an index", shows: []evidence{staleRead}, bound: 60,
		plant: func(f *store.Faults) { f.Region.NoReadIndex = true },
	}),
	chaos.with("rows-kept", plan{
		mistake: "rows of an earlier term are taken for the present records", shows: []evidence{staleRead, lostWrite}, bound: 40,
		plant: func(f *store.Faults) { f.Region.KeptRows = true },
	}),
	chaos.with("retried-backward", plan{
		mistake: "what the server tries again goes in the reverse order", shows: []evidence{outOfOrder}, bound: 120,
		serve: server.Faults{RetryBackward: true},
	}),
	overTCP.with("log-unsynced", plan{
		mistake: "the log is not synced", shows: []evidence{lostWrite}, bound: 40,
		plant: func(f *store.Faults) { f.Log.NoSync = true },
	}),
	overTCP.with("lease-unchecked", plan{
		mistake: "a lease is never checked", shows: []evidence{staleRead}, bound: 120,
		plant: func(f *store.Faults) { f.Region.TrustLease = true },
	}),
	expiries.with("expiry-clock", plan{
		mistake: "expiry is judged by the local clock alone", shows: []evidence{replicasDiffer, staleRead, lostWrite}, bound: 30,
		plant: func(f *store.Faults) { f.Region.LocalClock = true },
	}),
	collections.with("live-reclaimed", plan{
		mistake: "the reclaimer takes what a key holds for what it held", shows: []evidence{lostWrite, replicasDiffer}, bound: 40,
		plant: func(f *store.Faults) { f.Region.AnyVersion = true },
	}),
	members.with("live-reclaimed", plan{
		mistake: "the reclaimer takes what a key holds for what it held", shows: []evidence{lostWrite, replicasDiffer}, bound: 60,
		plant: func(f *store.Faults) { f.Region.AnyVersion = true },
	}),
	members.with("map-order", plan{
		mistake: "which member SPOP takes follows from the order of a Go map", shows: []evidence{replicasDiffer}, bound: 30,
		plant: func(f *store.Faults) { f.Region.MapOrder = true },
	}),
}

// with is a general plan with a mistake planted.
func (p plan) with(name string, m plan) plan {
	p.name += "-" + name
	p.mistake, p.plant, p.serve, p.shows, p.bound = m.mistake, m.plant, m.serve, m.shows, m.bound
	return p
}

// TestPlanted plants each mistake and counts the seeds until it is found; then it runs the same seeds without it.
func TestPlanted(t *testing.T) {
	if testing.Short() {
		t.Skip("a search for planted mistakes has no shorter form")
	}
	const virtual = 10 * time.Second
	for _, p := range slices.Concat(plantedPlans, plantedInGeneral) {
		t.Run(p.name, func(t *testing.T) {
			b := newBatch(t, p, true, virtual)
			b.run(1, p.bound, true)
			if b.shown == nil {
				t.Errorf("%s: %q not found in %d seeds", p.mistake, p.shows, p.bound)
				for _, r := range b.failed {
					t.Errorf("which is not what it should show: seed %d: %q: %.300s", r.Seed, r.Kinds, r.Problem)
				}
			} else {
				t.Logf("%s: found by seed %d: %q: %.300s", p.mistake, b.shown.Seed, b.shown.Kinds, b.shown.Problem)
			}
			if p.general { // without it more seeds of the plan run elsewhere
				return
			}
			b = newBatch(t, p, false, virtual)
			b.run(1, min(p.bound, 8), false)
			for _, r := range b.failed {
				t.Errorf("without a mistake: seed %d: %s\nagain: %s", r.Seed, r.Problem, b.again(r.Seed))
			}
			t.Logf("%s", b)
		})
	}
}

// blackouts kills all stores at one instant, with nothing unsynced left.
func blackouts(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(500+random.IntN(1000)) * time.Millisecond) {
		if random.IntN(2) > 0 || !s.killAtSync(int64(1+random.IntN(20)), 0, random, s.nodes...) {
			s.kill(0, random, s.nodes...)
		}
		for _, n := range s.nodes {
			s.restart(n)
		}
	}
}

// tearing counts in many connections at once, so that much is applied between two syncs, and kills one store after the other at a sync, so
// that a part of the unsynced stays. What is applied twice then shows up as replicas that differ.
func tearing(s *sim, random *rand.Rand) {
	var counters sync.WaitGroup
	for i := range 16 {
		counters.Go(func() {
			c := s.newCaller(100 + i)
			defer c.close()
			for n := 0; s.sleep(10 * time.Millisecond); n++ {
				_, err := c.do(incr, fmt.Sprintf("x%d-%d{%s}", i, n/8, regionTags[i%simRegions]), "")
				s.fail(err)
			}
		})
	}
	for s.sleep(time.Duration(20+random.IntN(50)) * time.Millisecond) {
		n := s.nodes[random.IntN(3)]
		if s.killAtSync(int64(1+random.IntN(12)), 60, random, n) {
			s.restart(n)
		}
	}
	counters.Wait()
}

// absentAtTheEnd kills a store of which the others need no more, so that it has to catch up by snapshots when nothing is written any more.
func absentAtTheEnd(s *sim, random *rand.Rand) {
	if s.sleep(time.Duration(3000+random.IntN(4000)) * time.Millisecond) {
		s.kill(0, random, s.nodes[random.IntN(len(s.nodes))])
		<-s.over
	}
}

// watched runs during while clients read a register from its leader, every few milliseconds, so that its lease stays young, and write
// it at the other stores. None of them follows redirections.
func (s *sim) watched(random *rand.Rand, during func(region topology.RegionID, leader seam.Node)) {
	region := topology.RegionID(1 + random.IntN(simRegions))
	leader, _ := s.leader(region)
	if leader == nil {
		return
	}
	key := s.key('r', int(region)-1)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	repeat := func(id int, pause time.Duration, at seam.Node, k kind) {
		wg.Go(func() {
			c := s.newCaller(id)
			defer c.close()
			for n := 0; ; n++ {
				value := ""
				if k == set {
					value = fmt.Sprintf("%d-%d", id, n)
				}
				_, err := c.at(at.Addr(), k, key, value)
				s.fail(err)
				select {
				case <-stop:
					return
				case <-time.After(pause):
				}
			}
		})
	}
	repeat(200, 7*time.Millisecond, leader, get)
	for i, n := range s.others(leader) {
		repeat(201+i, 20*time.Millisecond, n, set)
	}
	during(region, leader)
	close(stop)
	wg.Wait()
}

// lonelyLeaders cuts a leader off while clients still read from it.
func lonelyLeaders(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(300+random.IntN(500)) * time.Millisecond) {
		s.watched(random, func(_ topology.RegionID, leader seam.Node) {
			s.sleep(time.Duration(100+random.IntN(200)) * time.Millisecond)
			s.link(false, true, true, leader, s.others(leader)...)
			s.sleep(time.Second)
			s.link(true, true, true, leader, s.others(leader)...)
		})
	}
}

// forgetfulVoters cuts one follower off from the leader, so that it wants to be elected and is refused by the other, which hears the
// leader; then it restarts that other one, which has forgotten whom it follows, and cuts it off from the leader, too.
func forgetfulVoters(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(300+random.IntN(500)) * time.Millisecond) {
		s.watched(random, func(_ topology.RegionID, leader seam.Node) {
			others := s.others(leader)
			i := random.IntN(2)
			eager, forgetful := others[i], others[1-i]
			s.link(false, true, true, leader, eager)
			if s.sleep(time.Duration(700+random.IntN(600)) * time.Millisecond) {
				s.kill(100, random, forgetful)
				s.link(false, true, true, leader, forgetful)
				s.restart(forgetful)
				s.sleep(600 * time.Millisecond)
			}
			s.link(true, true, true, leader, others...)
		})
	}
}

// writeGate holds one write of a term between the reading of the term and the proposal.
type writeGate struct {
	mu      sync.Mutex
	region  topology.RegionID
	term    uint64 // 0: nothing is to be held
	held    chan struct{}
	release chan struct{}
}

// holdWrites plants the gate's seam.
func (s *sim) holdWrites(f *store.Faults) {
	g := &writeGate{}
	s.gate = g
	f.Region.BeforeWrite = func(region topology.RegionID, term uint64) {
		g.mu.Lock()
		mine := g.term != 0 && region == g.region && term == g.term
		if mine {
			g.term = 0
		}
		held, release := g.held, g.release
		g.mu.Unlock()
		if mine {
			close(held)
			<-release
		}
	}
}

// arm makes the gate hold the next write of a region in a term.
func (g *writeGate) arm(region topology.RegionID, term uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.region, g.term = region, term
	g.held, g.release = make(chan struct{}), make(chan struct{})
}

// disarm reports whether a write is held.
func (g *writeGate) disarm() (held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	held = g.term == 0
	g.term = 0
	return held
}

// lateWrites holds a write that has read its term, moves leadership away and back, and lets it go on.
func lateWrites(s *sim, random *rand.Rand) {
	c, between := s.newCaller(300), s.newCaller(301)
	defer c.close()
	defer between.close()
	for n := 0; s.sleep(time.Duration(50+random.IntN(200)) * time.Millisecond); n++ {
		region := topology.RegionID(1 + random.IntN(simRegions))
		home, term := s.leader(region)
		if home == nil {
			continue
		}
		key := s.key('r', int(region)-1)
		s.hold(region, term, func() error {
			_, err := c.do(set, key, fmt.Sprintf("late-%d", n))
			return err
		}, func() {
			away := s.others(home)[random.IntN(2)]
			s.move(region, away)
			_, err := between.do(set, key, fmt.Sprintf("away-%d", n))
			s.fail(err)
			s.move(region, home)
			if random.IntN(2) == 0 {
				_, err = between.do(set, key, fmt.Sprintf("back-%d", n))
				s.fail(err)
			}
		})
	}
}

// returning reads a register, moves its leadership away, writes it there, moves leadership back, and reads again.
func returning(s *sim, random *rand.Rand) {
	c := s.newCaller(300)
	defer c.close()
	for n := 0; s.sleep(time.Duration(50+random.IntN(200)) * time.Millisecond); n++ {
		region := topology.RegionID(1 + random.IntN(simRegions))
		home, _ := s.leader(region)
		if home == nil {
			continue
		}
		key := s.key('r', int(region)-1)
		do := func(k kind, value string) {
			_, err := c.do(k, key, value)
			s.fail(err)
		}
		do(get, "")
		s.move(region, s.others(home)[random.IntN(2)])
		do(set, fmt.Sprintf("away-%d", n))
		s.move(region, home)
		do(get, "")
	}
}

// hold runs a write to a region which the gate holds, if it comes there, while during runs.
func (s *sim) hold(region topology.RegionID, term uint64, write func() error, during func()) {
	s.gate.arm(region, term)
	var wg sync.WaitGroup
	wg.Go(func() { s.fail(write()) })
	timeout := time.NewTimer(time.Second)
	select {
	case <-s.gate.held:
	case <-timeout.C:
	}
	timeout.Stop()
	if s.gate.disarm() {
		during()
		close(s.gate.release)
	}
	wg.Wait()
}

// overtaken holds an increment that has looked its counter up, and has another one overtake it.
func overtaken(s *sim, random *rand.Rand) {
	c, other := s.newCaller(300), s.newCaller(301)
	defer c.close()
	defer other.close()
	for s.sleep(time.Duration(50+random.IntN(200)) * time.Millisecond) {
		region := topology.RegionID(1 + random.IntN(simRegions))
		home, term := s.leader(region)
		if home == nil {
			continue
		}
		key := s.key('c', int(region)-1)
		increment := func(c *caller) error {
			_, err := c.do(incr, key, "")
			return err
		}
		s.hold(region, term, func() error { return increment(c) }, func() { s.fail(increment(other)) })
	}
}

// move brings a region's leadership to a store; Raft may ignore to be asked.
func (s *sim) move(r topology.RegionID, to seam.Node) {
	for range 100 {
		if leader, _ := s.leader(r); leader == to {
			return
		}
		s.transfer(r, to)
		for range 10 {
			if leader, _ := s.leader(r); leader == to {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	s.fail(fmt.Errorf("region %d does not move to store %d", r, to.ID()))
}
