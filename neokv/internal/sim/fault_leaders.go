package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// wandering moves leaders from store to store, and sets clocks now and then, where they disagree.
func wandering(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(50+random.IntN(400)) * time.Millisecond) {
		s.transfer(topology.RegionID(1+random.IntN(simRegions)), s.nodes[random.IntN(len(s.nodes))])
		if random.IntN(4) == 0 {
			s.skew(random.IntN(len(s.nodes)), random)
		}
	}
}

// returning reads a register, moves the leadership of its region away, writes the register there, moves leadership
// back, and reads again.
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
		do := func(k opName, value string) {
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

// writeGate holds one write after it has read its term, and before it is proposed.
type writeGate struct {
	mu      sync.Mutex
	region  topology.RegionID
	term    uint64        // 0 unless the gate waits for a write
	held    chan struct{} // closed when the write has come
	release chan struct{} // closed to let it go on
}

// holdWrites plants the hook of the gate.
func (s *sim) holdWrites(h *store.Hooks) {
	g := &writeGate{}
	s.gate = g
	h.BeforePropose = func(region topology.RegionID, term uint64) {
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

// disarm makes the gate wait no longer, and reports whether it holds a write.
func (g *writeGate) disarm() (held bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	held = g.term == 0
	g.term = 0
	return held
}

// hold runs a write to a region. If the gate holds it, hold runs during and lets the write go on.
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

// lateWrites holds a write that has read its term, moves leadership away and back, and lets the write go on.
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

// overtaken holds an increment that has looked its counter up, while another one overtakes it.
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
