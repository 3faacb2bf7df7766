package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// watched runs during while one client reads a register at its leader every few milliseconds, so that the lease stays
// young, and others write the register at the other stores. None of these clients follows redirections.
func (s *sim) watched(random *rand.Rand, during func(region topology.RegionID, leader seam.StorePlace)) {
	region := topology.RegionID(1 + random.IntN(simRegions))
	leader, _ := s.leader(region)
	if leader == nil {
		return
	}
	key := s.key('r', int(region)-1)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	repeat := func(id int, pause time.Duration, at seam.StorePlace, k opName) {
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

// lonelyLeaders cuts a leader off while a client still reads from it.
func lonelyLeaders(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(300+random.IntN(500)) * time.Millisecond) {
		s.watched(random, func(_ topology.RegionID, leader seam.StorePlace) {
			s.sleep(time.Duration(100+random.IntN(200)) * time.Millisecond)
			s.do("partition %d all", leader.ID())
			s.sleep(time.Second)
			s.do("mend %d all", leader.ID())
		})
	}
}

// forgetfulVoters cuts one of two followers off from the leader, so that it stands for election, and the other one,
// which hears the leader, refuses its vote. Then it kills the other one, starts it again, which makes it forget whom
// it follows, and cuts it off from the leader, too.
func forgetfulVoters(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(300+random.IntN(500)) * time.Millisecond) {
		s.watched(random, func(_ topology.RegionID, leader seam.StorePlace) {
			others := s.others(leader)
			i := random.IntN(2)
			eager, forgetful := others[i], others[1-i]
			s.do("partition %d %d", leader.ID(), eager.ID())
			if s.sleep(time.Duration(700+random.IntN(600)) * time.Millisecond) {
				s.do("kill %d keep=100%%", forgetful.ID())
				s.do("partition %d %d", leader.ID(), forgetful.ID())
				s.do("restart %d", forgetful.ID())
				s.sleep(600 * time.Millisecond)
			}
			s.do("mend %d all", leader.ID())
		})
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
func (s *sim) holdWrites(h *region.Hooks) {
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

// holdWrite runs a write to a region. If the gate holds it, holdWrite runs during and lets the write go on.
func (s *sim) holdWrite(region topology.RegionID, term uint64, write func() error, during func()) {
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
		s.holdWrite(region, term, func() error {
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
		s.holdWrite(region, term, func() error { return increment(c) }, func() { s.fail(increment(other)) })
	}
}

// overtakenWatchers holds a watched increment that has looked at its watch, while another client increments the counter.
// That one has to wait, unless a mistake lets it pass.
func overtakenWatchers(s *sim, random *rand.Rand) {
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
		var wg sync.WaitGroup
		s.holdWrite(region, term, func() error {
			_, err := c.do(watchedIncr, key, "")
			return err
		}, func() {
			wg.Go(func() {
				_, err := other.do(incr, key, "")
				s.fail(err)
			})
			s.sleep(20 * time.Millisecond)
		})
		wg.Wait()
	}
}

// movedWatchers watches and reads a counter, moves the leadership of its region away, increments the counter there, moves
// leadership back, and then sets what it has read, plus 1.
func movedWatchers(s *sim, random *rand.Rand) {
	c, other := s.newCaller(300), s.newCaller(301)
	defer c.close()
	defer other.close()
	for s.sleep(time.Duration(50+random.IntN(200)) * time.Millisecond) {
		region := topology.RegionID(1 + random.IntN(simRegions))
		home, _ := s.leader(region)
		if home == nil {
			continue
		}
		key := s.key('c', int(region)-1)
		c.between = func() {
			s.move(region, s.others(home)[random.IntN(2)])
			_, err := other.do(incr, key, "")
			s.fail(err)
			s.move(region, home)
		}
		_, err := c.do(watchedIncr, key, "")
		s.fail(err)
	}
}
