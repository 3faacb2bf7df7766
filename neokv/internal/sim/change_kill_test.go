package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/seam"
)

// TestChangeKills splits a region, or merges it with a neighbour, and kills a store at each of its syncs from the
// beginning on until the change is over, or all stores at every third of theirs, one run each. Each time the stores
// start again. Then the change must come to an end, the regions be a partition of the slots, no acknowledged write be
// lost, and the replicas hold the same.
func TestChangeKills(t *testing.T) {
	for _, change := range []string{"split 1", "merge 1"} {
		for _, who := range []struct {
			name    string
			journal bool // the stores share their syncs; the kill may come in one of the journal's
			step    int64
			atLeast int // kills
		}{
			{"leader", false, 1, 25}, {"follower", false, 1, 25}, {"all", false, 3, 25}, {"all", true, 3, 25},
		} {
			name := fmt.Sprintf("%s/%s", change, who.name)
			if who.journal {
				name += " at the journal"
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				kills, most := 0, int64(1000)
				step := who.step
				if testing.Short() {
					step *= 7
				}
				for k := int64(1); k < most && !t.Failed(); k += step {
					sprung := false
					settings := simSettings()
					settings.Engine.SharedSync = who.journal
					inBubbleWith(t, settings, seam.Hooks{}, func(t *testing.T, s *sim, c *caller) {
						sprung = s.killChanging(t, change, who.name, k)
					})
					if !sprung {
						break
					}
					kills++
				}
				t.Logf("%d kills", kills)
				if kills < who.atLeast && !testing.Short() {
					t.Errorf("%d kills; want %d", kills, who.atLeast)
				}
			})
		}
	}
}

// killChanging carries out a change while a client writes, and kills stores at the k-th sync. It reports false if there
// were fewer.
func (s *sim) killChanging(t *testing.T, change, who string, k int64) (sprung bool) {
	s.epochs = []string{""}
	random := rand.New(rand.NewPCG(uint64(k), 6))
	do := func(text string) error {
		f, err := fault.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 3*time.Second)
		defer cancel()
		_, err = s.c.Inject(ctx, f)
		return err
	}
	if change == "merge 1" {
		if err := do("split 1"); err != nil {
			t.Fatal(err)
		}
		s.fail(s.atRest())
	}
	stop := make(chan struct{})
	var clients sync.WaitGroup
	written := map[byte]opName{'r': set, 'c': incr, 'e': set, 'h': hincr, 'l': rpush, 'z': zadd}
	for i, sorts := range []string{"rch", "zle"} {
		clients.Go(func() {
			c := s.newCaller(10 + i)
			defer c.close()
			for n := 0; ; n++ {
				sort := sorts[n%len(sorts)]
				kind, value := written[sort], fmt.Sprintf("%d-%d", i, n)
				switch kind {
				case incr:
					value = ""
				case hincr:
					value = "1"
				case zadd:
					value = fmt.Sprintf("%d %s", n%10, value)
				}
				_, err := c.do(kind, s.key(sort, 0), value)
				s.fail(err)
				select {
				case <-stop:
					return
				case <-time.After(10 * time.Millisecond):
				}
			}
		})
	}
	time.Sleep(80 * time.Millisecond)
	leader := s.leads(t)
	victims := "all"
	switch who {
	case "leader":
		victims = fmt.Sprint(leader.ID())
	case "follower":
		victims = fmt.Sprint(s.others(leader)[0].ID())
	}
	killed := make(chan error, 1)
	until, enough := context.WithCancel(context.Background())
	defer enough()
	go func() {
		f, err := fault.Parse(fmt.Sprintf("kill %s keep=%d%% sync=%d", victims, []int{0, 100, 50}[random.IntN(3)], k))
		if err == nil {
			err = s.inject(until, f)
		}
		killed <- err
	}()
	synctest.Wait() // until it counts syncs
	over := make(chan error, 1)
	go func() { over <- do(change) }()
	var err error
	ended := false
	select {
	case kill := <-killed:
		sprung = kill == nil
	case err = <-over:
		ended = true
		time.AfterFunc(50*time.Millisecond, enough) // when what has become of it is cleaned up
		sprung = <-killed == nil
	}
	if sprung {
		time.Sleep(time.Duration(random.IntN(2)) * 400 * time.Millisecond)
		s.do("restart %s", victims)
	} else if err != nil {
		t.Fatalf("%s: %v", change, err)
	}
	if !ended {
		err = <-over
	}
	time.Sleep(200 * time.Millisecond)
	close(stop)
	clients.Wait()
	s.fail(s.serves())
	s.fail(s.atRest())
	regions := s.regions()
	c := s.newCaller(99)
	defer c.close()
	for _, r := range lastReads {
		if written[r.sort] == "" {
			continue
		}
		ok, err := c.do(r.kind, s.key(r.sort, 0), r.value)
		s.fail(err)
		if !ok {
			s.fail(found(noAnswer, "key %s: no answer", s.key(r.sort, 0)))
		}
	}
	s.compareReplicas()
	s.fail(s.h.check())
	switch n := len(regions); {
	case sprung && n != simRegions && n != simRegions+1,
		!sprung && change == "merge 1" && n != simRegions,
		!sprung && change != "merge 1" && n != simRegions+1:
		t.Errorf("%s: there are %d regions in the end: %v", change, n, regions)
	}
	if s.problem != nil {
		t.Errorf("%s, %s killed at sync %d, the change: %v: %v", change, who, k, err, s.problem)
	}
	return sprung
}
