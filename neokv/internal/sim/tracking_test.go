package sim

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"neokv.dev/neokv/internal/seam"
)

// cachingGame lets clients cache, in each mode, at the proxy port and at each store, while keys change and faults come.
func cachingGame(t *testing.T, seed uint64, mistakes seam.Mistakes) (problem string, checks, told int) {
	k := simSettings()
	k.Raft.RTT, k.Raft.ElectionTicks = 10*time.Millisecond, 5 // hardly any lease: there is time between two reads
	inBubbleWith(t, k, seam.Hooks{Mistakes: mistakes}, func(t *testing.T, s *sim, _ *caller) {
		random := rand.New(rand.NewPCG(seed, 0))
		var wg sync.WaitGroup
		x := s.newCaching(&wg)
		s.do("link all all delay=3ms")
		clients := []*cachingClient{
			x.add(&wg, "proxy", s.c.ProxyAddr(), "", 2*time.Millisecond),
			x.add(&wg, "proxy, broadcast", s.c.ProxyAddr(), "BCAST PREFIX k", 2*time.Millisecond),
		}
		for _, n := range s.nodes {
			clients = append(clients, x.add(&wg, fmt.Sprint("store ", n.ID()), n.Addr(), "NOLOOP", 5*time.Second))
		}
		for step := range 10 {
			time.Sleep(time.Duration(200+random.IntN(300)) * time.Millisecond)
			if x.over() {
				break
			}
			store := 1 + random.IntN(3)
			switch step % 5 {
			case 0:
				s.do("transfer %d %d", 1+random.IntN(simRegions), store)
			case 1:
				s.do("partition %d all", store)
				time.Sleep(time.Duration(random.IntN(3000)) * time.Millisecond)
				s.do("mend %d all", store)
			case 2:
				s.do("kill %d", store)
				time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
				s.do("restart %d", store)
			case 3:
				s.do("transfer %d %d", 1+random.IntN(simRegions), store)
			case 4:
				time.Sleep(3 * time.Second) // all replicas are there again
				if step < 5 {
					s.do("split %d", 1+random.IntN(simRegions))
				} else {
					s.do("merge %d", 1+random.IntN(simRegions-1))
				}
			}
		}
		time.Sleep(6 * time.Second)
		for _, c := range clients {
			c.look(10 * time.Millisecond) // no fault is left: everybody has been told
		}
		x.mu.Lock()
		x.stopping = true
		x.mu.Unlock()
		wg.Wait()
		problem, checks, told = x.problem, x.checks, x.told
	})
	return problem, checks, told
}

// TestCachingClients: no client has a value cached that was changed before, under transfers, cuts, kills, splits and
// merges. A client of a store that is cut off learns of changes when its store stops to lead. Each mistake is found.
func TestCachingClients(t *testing.T) {
	for seed := range uint64(2) {
		problem, checks, told := cachingGame(t, seed, seam.Mistakes{})
		t.Logf("seed %d: %d looks at what was cached, %d messages", seed, checks, told)
		if problem != "" {
			t.Fatalf("seed %d: %s", seed, problem)
		}
		if checks < 1000 || told < 100 {
			t.Errorf("seed %d: %d looks at what was cached, %d messages: too few", seed, checks, told)
		}
	}
	notShort(t)
	for _, m := range []struct {
		name  string
		plant func(*seam.Mistakes)
	}{
		{"LateTelling", func(m *seam.Mistakes) { m.Store.Region.LateTelling = true }},
		{"KeptTracking", func(m *seam.Mistakes) { m.Store.Region.KeptTracking = true }},
		{"EarlyTelling", func(m *seam.Mistakes) { m.Server.EarlyTelling = true }},
		{"LateInterest", func(m *seam.Mistakes) { m.Server.LateInterest = true }},
	} {
		var mistakes seam.Mistakes
		m.plant(&mistakes)
		problem := ""
		seed := uint64(0)
		for ; problem == "" && seed < 10; seed++ {
			problem, _, _ = cachingGame(t, seed, mistakes)
		}
		t.Logf("%s: after %d games: %s", m.name, seed, problem)
		if problem == "" {
			t.Errorf("%s is not found", m.name)
		}
	}
}
