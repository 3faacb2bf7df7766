package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"neokv.dev/neokv/internal/seam"
)

// killing kills one store, or the whole process, and starts the stores again, sooner or later.
func killing(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(100+random.IntN(2500)) * time.Millisecond) {
		victims := []seam.StorePlace{s.nodes[random.IntN(len(s.nodes))]}
		if random.IntN(4) == 0 { // all of them, in any order
			victims = nil
			for _, i := range random.Perm(len(s.nodes)) {
				victims = append(victims, s.nodes[i])
			}
		}
		percent := []int{0, 0, 50, 100}[random.IntN(4)]
		dead := s.killSomehow(percent, random, victims)
		for _, n := range dead {
			if random.IntN(3) > 0 && !s.sleep(time.Duration(random.IntN(1500))*time.Millisecond) {
				return // heal restarts the stores that are dead
			}
			if random.IntN(4) == 0 {
				s.killRestarting(n, int64(1+random.IntN(8)), percent, random)
			}
			if !s.alive(n) {
				s.restart(n)
			}
		}
	}
}

// killSomehow kills stores in the middle of a sync or between steps, and returns those that it has killed.
func (s *sim) killSomehow(percent int, random *rand.Rand, victims []seam.StorePlace) []seam.StorePlace {
	if random.IntN(4) > 0 {
		if !s.killAtSync(int64(1+random.IntN(30)), percent, random, victims...) {
			return nil
		}
		return victims
	}
	s.kill(percent, random, victims...)
	return victims
}

// blackouts kills all stores at one instant, and starts them again. Nothing that is unsynced stays.
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

// powerCuts kills all stores at one instant, again and again: every other time while a store that was away catches up
// by snapshots.
func powerCuts(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(100+random.IntN(500)) * time.Millisecond) {
		percent := []int{0, 50, 100}[random.IntN(3)]
		if random.IntN(2) == 0 {
			n := s.nodes[random.IntN(len(s.nodes))]
			s.kill(percent, random, n)
			if !s.sleep(time.Duration(1200+random.IntN(800)) * time.Millisecond) {
				return // heal restarts the store
			}
			if !s.killAllCatchingUp(n, int64(10+random.IntN(60)), percent, random) {
				continue
			}
		} else if !s.killAtSync(int64(1+random.IntN(20)), percent, random, s.nodes...) {
			continue
		}
		for _, n := range s.nodes {
			s.restart(n)
		}
	}
}

// tearing increments counters on many connections, so that stores apply much between two syncs. It kills one store
// after the other at a sync, of whose unsynced writes a part stays. A store that applies an entry twice then differs
// from the others.
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

// absentAtTheEnd kills a store, and leaves its start to heal. So it catches up by snapshots when no client writes any
// more.
func absentAtTheEnd(s *sim, random *rand.Rand) {
	if s.sleep(time.Duration(3000+random.IntN(4000)) * time.Millisecond) {
		s.kill(0, random, s.nodes[random.IntN(len(s.nodes))])
		<-s.over
	}
}
