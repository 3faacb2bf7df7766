package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
)

// link heals the links between a and others, or cuts them: those towards a if to is set, and those from a if from is
// set.
func (s *sim) link(heal, to, from bool, a seam.StorePlace, others ...seam.StorePlace) {
	f, what := s.network.Cut, "cut"
	if heal {
		f, what = s.network.Heal, "heal"
	} else {
		s.mu.Lock()
		s.stats.Cuts++
		s.mu.Unlock()
	}
	for _, b := range others {
		if to {
			s.h.note("%s %d -> %d", what, b.ID(), a.ID())
			f(b.ID(), a.ID())
		}
		if from {
			s.h.note("%s %d -> %d", what, a.ID(), b.ID())
			f(a.ID(), b.ID())
		}
	}
}

// fate lets of decide, for each message on each link, whether it is lost or comes again; nil for good links.
func (s *sim) fate(of func(*pb.Message) transport.Fate) {
	for _, a := range s.nodes {
		for _, b := range s.nodes {
			s.network.Disturb(a.ID(), b.ID(), of)
		}
	}
}

// delay delays all messages to a store and from it; 0 ends that.
func (s *sim) delay(n seam.StorePlace, d time.Duration) {
	for _, o := range s.others(n) {
		s.network.Delay(n.ID(), o.ID(), d)
		s.network.Delay(o.ID(), n.ID(), d)
	}
}

// partitioning cuts or delays the links of a store and heals them again, or moves leaders.
func partitioning(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(50+random.IntN(1500)) * time.Millisecond) {
		a := s.nodes[random.IntN(len(s.nodes))]
		others := s.others(a)
		if random.IntN(2) == 0 && len(others) > 0 {
			others = others[random.IntN(len(others)):][:1]
		}
		pause := time.Duration(20+random.IntN(1500)) * time.Millisecond
		switch random.IntN(6) {
		case 0: // both ways
			s.link(false, true, true, a, others...)
		case 1: // one way
			s.link(false, true, false, a, others...)
		case 2:
			s.link(false, false, true, a, others...)
		case 3: // slow, for all messages or for the answers that confirm leases alone
			d := time.Duration(1+random.IntN(60)) * time.Millisecond
			late := random.IntN(2) == 0
			for _, b := range others {
				s.h.note("delay %d -> %d by %s, only confirmations %v", a.ID(), b.ID(), d, late)
				if late {
					s.network.Hold(a.ID(), b.ID(), d, func(m *pb.Message) bool { return m.Type == pb.HeartbeatResp })
				} else {
					s.network.Delay(a.ID(), b.ID(), d)
				}
			}
		default:
			for _, r := range random.Perm(simRegions)[:1+random.IntN(simRegions)] {
				s.transfer(topology.RegionID(1+r), s.nodes[random.IntN(len(s.nodes))])
			}
			continue
		}
		s.sleep(pause)
		s.link(true, true, true, a, others...)
		for _, b := range others {
			s.network.Delay(a.ID(), b.ID(), 0)
			s.network.Hold(a.ID(), b.ID(), 0, nil)
		}
	}
}

// losing makes all links lose some messages, and deliver some once more, later.
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

// slowFollowers delays the messages of one store after the other, so that it applies late what the others have
// acknowledged.
func slowFollowers(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(20+random.IntN(200)) * time.Millisecond) {
		a := s.nodes[random.IntN(3)]
		d := time.Duration(5+random.IntN(60)) * time.Millisecond
		s.h.note("delay all messages of store %d by %s", a.ID(), d)
		s.delay(a, d)
		s.sleep(time.Duration(100+random.IntN(500)) * time.Millisecond)
		s.delay(a, 0)
	}
}

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
			s.link(false, true, true, leader, s.others(leader)...)
			s.sleep(time.Second)
			s.link(true, true, true, leader, s.others(leader)...)
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
