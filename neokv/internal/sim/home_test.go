package sim

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// leaderReturn is raft.leader_return in the tests of this file.
const leaderReturn = 5 * time.Second

// inHomes runs a test on a cluster whose leaders return.
func inHomes(t *testing.T, name string, hooks seam.Hooks, test func(t *testing.T, s *sim)) {
	t.Helper()
	t.Run(name, func(t *testing.T) {
		k := simSettings()
		k.Raft.LeaderReturn = leaderReturn
		k.Raft.SnapshotEntries = 10000 // a store that is behind gets no snapshot
		inBubbleWith(t, k, hooks, func(t *testing.T, s *sim, _ *caller) { test(t, s) })
	})
}

// home is the store that leads a region at the boot.
func (s *sim) home(r topology.RegionID) seam.StorePlace { return s.nodes[int(r-1)%len(s.nodes)] }

// leaders are the stores that lead the regions, 0 for none.
func (s *sim) leaders() (all [simRegions]topology.StoreID) {
	for i := range all {
		if n, _ := s.leader(topology.RegionID(i + 1)); n != nil {
			all[i] = n.ID()
		}
	}
	return all
}

// atHome are the leaders at the boot.
func (s *sim) atHome() (all [simRegions]topology.StoreID) {
	for i := range all {
		all[i] = s.home(topology.RegionID(i + 1)).ID()
	}
	return all
}

// untilElected waits until all regions have leaders, none of which is n.
func (s *sim) untilElected(t *testing.T, n seam.StorePlace) {
	t.Helper()
	until(t, "other leaders", func() bool {
		now := s.leaders()
		return !slices.Contains(now[:], 0) && !slices.Contains(now[:], n.ID())
	})
}

// lose kills a store, waits until the others lead its regions, and starts it again. It returns when the regions that
// elect once more because of that have done so.
func (s *sim) lose(t *testing.T, n seam.StorePlace) {
	t.Helper()
	s.do("kill %d", n.ID())
	s.untilElected(t, n)
	s.do("restart %d", n.ID())
	time.Sleep(time.Second)
	s.untilElected(t, n)
}

// steadyWriters write to all regions, each of them every so often, until stop, which returns how long the longest write
// took. A write that fails is an error of the test.
func (s *sim) steadyWriters(t *testing.T, every time.Duration) (stop func() (longest time.Duration)) {
	over := make(chan struct{})
	var clients sync.WaitGroup
	longest := make([]time.Duration, 2*simRegions)
	for i := range longest {
		clients.Go(func() {
			c := s.newCaller(100 + i)
			defer c.close()
			for n := 0; ; n++ {
				select {
				case <-over:
					return
				case <-time.After(every):
				}
				began := time.Now()
				ok, err := c.do(set, s.key('r', i%simRegions), "v")
				if err != nil || !ok {
					t.Errorf("client %d: write %d to region %d: %v, %v", i, n, 1+i%simRegions, ok, err)
				}
				longest[i] = max(longest[i], time.Since(began))
			}
		})
	}
	return func() time.Duration {
		close(over)
		clients.Wait()
		return slices.Max(longest)
	}
}

// lost is for how long a message is held that shall be lost.
const lost = 24 * time.Hour

// handovers watches the messages by which leaders tell other replicas to campaign.
type handovers struct {
	mu   sync.Mutex
	lost bool // they are lost
	at   map[uint64][]time.Time
}

// handovers begins to watch. A hand-over whose log is not equal on both sides sends no such message.
func (s *sim) handovers() *handovers {
	h := &handovers{at: make(map[uint64][]time.Time)}
	s.hold(lost, func(m *multiraft.Message) bool {
		if m.Type != multiraft.TimeoutNow {
			return false
		}
		h.mu.Lock()
		defer h.mu.Unlock()
		h.at[m.ShardID] = append(h.at[m.ShardID], time.Now())
		return h.lost
	})
	return h
}

// of returns when a region was handed over.
func (h *handovers) of(r topology.RegionID) []time.Time {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.at[uint64(r)])
}

func (h *handovers) lose(lost bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost = lost
}

// electionTime is how long Raft waits for a leader, at least. A transfer is called off after as long.
func (s *sim) electionTime() time.Duration {
	k := s.c.Settings().Raft
	return time.Duration(k.ElectionTicks) * k.RTT
}

// TestLeadersReturn kills each store in turn and starts it again. Its regions stay where they were elected until it has
// been well for raft.leader_return. Then leaders are where they were at the boot, and a client that writes all the time
// sees no error, and no write that takes as long as an election.
func TestLeadersReturn(t *testing.T) {
	inHomes(t, "", seam.Hooks{}, func(t *testing.T, s *sim) {
		if got, want := s.leaders(), s.atHome(); got != want {
			t.Fatalf("leaders at the boot: %d; want %d", got, want)
		}
		for _, n := range s.nodes {
			s.lose(t, n)
			began := time.Now()
			stop := s.steadyWriters(t, 25*time.Millisecond)
			for time.Since(began) < leaderReturn-2*time.Second {
				if now := s.leaders(); slices.Contains(now[:], n.ID()) {
					t.Fatalf("leaders %s after the loss of store %d: %d", time.Since(began), n.ID(), now)
				}
				time.Sleep(10 * time.Millisecond)
			}
			until(t, "leaders as at the boot", func() bool { return s.leaders() == s.atHome() })
			took := time.Since(began)
			time.Sleep(time.Second)
			longest := stop()
			t.Logf("store %d leads again %s after the loss; the longest write took %s", n.ID(), took, longest)
			if took > leaderReturn+2*time.Second {
				t.Errorf("store %d leads again %s after the loss; want less than two seconds more than %s", n.ID(), took,
					leaderReturn)
			}
			if longest >= s.electionTime() {
				t.Errorf("a write took %s; want less than an election, %s", longest, s.electionTime())
			}
			time.Sleep(2 * time.Minute) // a store that loses its regions again sooner has to wait longer
		}
	})
}

// TestLeadersReturnAfterAPause cuts a store off for a moment that meta's leader does not notice. Its regions return.
func TestLeadersReturnAfterAPause(t *testing.T) {
	inHomes(t, "", seam.Hooks{}, func(t *testing.T, s *sim) {
		home := s.home(1)
		s.do("partition %d all", home.ID())
		s.untilElected(t, home)
		s.do("mend %d all", home.ID())
		time.Sleep(leaderReturn + 2*time.Second)
		if got, want := s.leaders(), s.atHome(); got != want {
			t.Errorf("leaders: %d; want %d", got, want)
		}
	})
}

// TestLeadersStay moves leaders, in ways after which they should not return, or not yet.
func TestLeadersStay(t *testing.T) {
	const long = 30 * time.Second

	t.Run("switched off", func(t *testing.T) {
		inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
			s.lose(t, s.home(1))
			before := s.leaders()
			time.Sleep(2 * time.Minute)
			if got := s.leaders(); got != before {
				t.Errorf("leaders: %d, and two minutes later %d; want the same", before, got)
			}
		})
	})

	inHomes(t, "pinned", seam.Hooks{}, func(t *testing.T, s *sim) {
		want := func(when string, leaders ...topology.StoreID) {
			t.Helper()
			if got := s.leaders(); !slices.Equal(got[:], leaders) {
				t.Errorf("leaders %s: %d; want %d", when, got, leaders)
			}
		}
		s.do("transfer 1 2")
		s.do("stepdown 4")
		moved := s.leaders()
		if moved[3] == 1 {
			t.Errorf("store 1 leads region 4 after a step down")
		}
		time.Sleep(long)
		want("long after transfers", moved[:]...)
		s.do("kill 1")
		s.do("restart 1")
		time.Sleep(long)
		want("after a kill of the home", moved[:]...)
		s.do("kill 2") // another store gets region 1, and the pin with it
		until(t, "other leaders", func() bool { now := s.leaders(); return now[0] != 0 && now[0] != 2 && now[1] != 0 })
		if now := s.leaders(); now[0] == 1 {
			s.do("transfer 1 3")
		}
		s.do("restart 2")
		time.Sleep(long)
		if now := s.leaders(); now[0] != 3 || now[1] != 2 {
			t.Errorf("leaders after a kill of store 2: %d; want store 3 for the pinned region 1, and 2 for region 2", now)
		}
		if !s.c.Status().Regions[0].Pinned || s.c.Status().Regions[1].Pinned {
			t.Error("the status does not say that region 1 is pinned, or that region 2 is not")
		}
		s.do("heal")
		time.Sleep(leaderReturn + 2*time.Second)
		home := s.atHome()
		want("after heal", home[:]...)
	})

	for _, busy := range []bool{true, false} {
		inHomes(t, fmt.Sprint("the disk of the home hangs, writes ", busy), seam.Hooks{}, func(t *testing.T, s *sim) {
			home := s.home(1)
			s.lose(t, home)
			stop := func() time.Duration { return 0 }
			if busy {
				stop = s.steadyWriters(t, 25*time.Millisecond)
			}
			watch := s.handovers()
			s.do("disk 1 hang")
			time.Sleep(2 * long)
			s.untilElected(t, home)
			longest := stop()
			// Without writes nobody can know that the disk hangs, until a candidate saves its vote.
			for _, r := range []topology.RegionID{1, 4} {
				if n := len(watch.of(r)); n > 1 || busy && n > 0 {
					t.Errorf("region %d was handed over %d times to a store whose disk hangs", r, n)
				}
			}
			if longest >= s.electionTime() {
				t.Errorf("a write took %s; want less than an election, %s", longest, s.electionTime())
			}
			s.do("disk 1 ok")
			released := time.Now()
			until(t, "leaders as at the boot", func() bool { return s.leaders() == s.atHome() })
			if took := time.Since(released); took < leaderReturn {
				t.Errorf("all leaders have returned %s after the disk works again; want at least %s", took, leaderReturn)
			}
		})
	}

	inHomes(t, "the home is behind", seam.Hooks{}, func(t *testing.T, s *sim) {
		home := s.home(1)
		s.lose(t, home)
		s.hold(lost, func(m *multiraft.Message) bool {
			return m.Type == multiraft.Replicate && len(m.Entries) > 0 && m.To == 1 && m.ShardID == 1
		})
		stop := s.steadyWriters(t, 25*time.Millisecond)
		time.Sleep(long)
		if longest := stop(); longest >= s.electionTime() {
			t.Errorf("a write took %s; want less than an election, %s", longest, s.electionTime())
		}
		if n, _ := s.leader(1); n == home {
			t.Errorf("store %d leads region 1, whose entries it has not got", home.ID())
		}
		if n, _ := s.leader(4); n != home {
			t.Errorf("store %d does not lead region 4, of which it has all", home.ID())
		}
		s.hold(0, nil)
		until(t, "leaders as at the boot", func() bool { return s.leaders() == s.atHome() })
	})

	inHomes(t, "hand-overs fail", seam.Hooks{}, func(t *testing.T, s *sim) {
		watch := s.handovers()
		watch.lose(true)
		s.lose(t, s.home(2)) // it has no other region
		time.Sleep(5 * time.Minute)
		wantWaits(t, watch.of(2), 10, 20, 40, 60, 60, 60)
		watch.lose(false)
		until(t, "leaders as at the boot", func() bool { return s.leaders() == s.atHome() })
	})

	inHomes(t, "the home loses the region again", seam.Hooks{}, func(t *testing.T, s *sim) {
		watch := s.handovers()
		var lost, back []time.Time
		for range 6 {
			s.lose(t, s.home(2))
			lost = append(lost, time.Now())
			for end := time.Now().Add(2 * time.Minute); s.leaders() != s.atHome() && time.Now().Before(end); {
				time.Sleep(10 * time.Millisecond)
			}
			back = append(back, time.Now())
			time.Sleep(3 * time.Second)
		}
		for i, seconds := range []int{5, 10, 20, 40, 60, 60} {
			want := time.Duration(seconds) * time.Second
			if took := back[i].Sub(lost[i]); took < want-time.Second || took > want+3*time.Second {
				t.Errorf("loss %d: the leader returned after %s; want about %s", i+1, took, want)
			}
		}
		if n := len(watch.of(2)); n != len(back) {
			t.Errorf("%d hand-overs; want %d", n, len(back))
		}
		time.Sleep(2 * time.Minute) // the home has kept the region
		s.lose(t, s.home(2))
		began := time.Now()
		until(t, "leaders as at the boot", func() bool { return s.leaders() == s.atHome() })
		if took := time.Since(began); took > leaderReturn+3*time.Second {
			t.Errorf("the leader returned after %s; want about %s, since the last loss is long ago", took, leaderReturn)
		}
	})
}

// wantWaits checks the times between hand-overs, in seconds. Stores look once a second.
func wantWaits(t *testing.T, at []time.Time, seconds ...int) {
	t.Helper()
	if len(at) < len(seconds) {
		t.Fatalf("%d hand-overs; want more than %d", len(at), len(seconds))
	}
	for i, s := range seconds {
		want := time.Duration(s) * time.Second
		if i+1 == len(at) {
			break
		}
		if got := at[i+1].Sub(at[i]); got < want || got > want+3*time.Second {
			t.Errorf("hand-over %d came %s after the one before; want about %s", i+2, got, want)
		}
	}
}

// TestHandOverToABusyReplica hands a region over to a replica that is just applying an entry, and so ignores the
// leader's message. It takes over when it has applied the entry.
func TestHandOverToABusyReplica(t *testing.T) {
	const busyFor = 20 * time.Millisecond
	var armed, busy atomic.Bool
	var hooks seam.Hooks
	hooks.Region.BeforeApply = func(at topology.StoreID, r topology.RegionID, _, _ uint64, _ []byte, _ error) {
		if at == 2 && r == 1 && armed.CompareAndSwap(true, false) {
			busy.Store(true)
			time.Sleep(busyFor)
		}
	}
	inBubble(t, hooks, func(t *testing.T, s *sim, c *caller) {
		s.move(1, s.nodes[0])
		time.Sleep(time.Second)
		armed.Store(true)
		if ok, err := c.do(set, s.key('r', 0), "v"); err != nil || !ok {
			t.Fatalf("%v, %v", ok, err)
		}
		until(t, "apply at the follower", busy.Load)
		began := time.Now()
		s.transfer(1, s.nodes[1])
		for n, _ := s.leader(1); n != s.nodes[1] && time.Since(began) < time.Second; n, _ = s.leader(1) {
			time.Sleep(time.Millisecond)
		}
		if took := time.Since(began); took < busyFor || took > 5*busyFor {
			t.Errorf("the replica took over after %s; want somewhat more than %s", took, busyFor)
		}
	})
}
