package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// fiveStores calls f with five stores that serve three regions of three replicas, which have some keys.
func fiveStores(t *testing.T, f func(t *testing.T, c *testStores), change ...func(*testStores)) {
	synctest.Test(t, func(t *testing.T) {
		c := newCluster(t, settings.ClusterKnobs{Stores: 5, Replicas: 3, Regions: 3}, change...)
		defer c.close()
		c.untilServing()
		for i := range 60 {
			c.want("+OK\r\n", "SET", fmt.Sprint("k", i), fmt.Sprint(i))
		}
		f(t, c)
	})
}

// stores returns where a region's replicas are, in order.
func (c *testStores) storesOf(id topology.RegionID) (all []topology.StoreID) {
	desc, _ := c.leader(id).Replica(id).Region()
	for _, p := range desc.Peers {
		all = append(all, p.Store)
	}
	return all
}

// TestMove moves a replica to a store that has none and back, adds one, and removes one that leads.
func TestMove(t *testing.T) {
	fiveStores(t, func(t *testing.T, c *testStores) {
		for _, step := range []struct {
			from, to topology.StoreID
			want     string
		}{
			{3, 4, "[1 2 4]"}, {4, 3, "[1 2 3]"}, {3, 4, "[1 2 4]"}, {0, 5, "[1 2 4 5]"}, {1, 0, "[2 4 5]"}, {2, 0, "[4 5]"},
			{4, 1, "[1 5]"}, {5, 0, "[1]"}, {1, 2, "[2]"}, {0, 3, "[2 3]"},
		} {
			var err error
			c.until("move", func() bool {
				s := c.leader(1)
				if s == nil {
					return false
				}
				err = s.Move(t.Context(), 1, step.from, step.to)
				return !errors.Is(err, ErrAgain)
			})
			if err != nil {
				t.Fatalf("from %d to %d: %v", step.from, step.to, err)
			}
			c.intact(1, step.want)
		}
	})
}

// TestMoveRefused asks for moves that cannot be.
func TestMoveRefused(t *testing.T) {
	fiveStores(t, func(t *testing.T, c *testStores) {
		c.lead(1, 1)
		refused := func(from, to topology.StoreID, want string) {
			t.Helper()
			if err := c.stores[0].Move(t.Context(), 1, from, to); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("from %d to %d: %v; want %q", from, to, err, want)
			}
		}
		refused(4, 5, "no replica on store 4")
		refused(3, 2, "a replica on store 2 already")
		refused(3, 7, "store 7 is not known")
		alter(c.stores[0], func(t *route.Table) { t.Store(4).Alive = false })
		refused(3, 4, "store 4 is down")
		c.stores[0].cluster.publish()
		alter(c.stores[0], func(t *route.Table) { t.Store(2).Alive = false })
		refused(3, 4, "1 of 2 are up")
		refused(3, 0, "1 of 2 are up")
		c.stores[0].cluster.publish()
		c.intact(1, "[1 2 3]")
	})
}

// TestMoveExcludes: while a replica moves its region is not split or merged, nor does another one move, and the other
// way round.
func TestMoveExcludes(t *testing.T) {
	fiveStores(t, func(t *testing.T, c *testStores) {
		c.lead(1, 1)
		s := c.stores[0]
		r := s.Replica(1)
		reached, goOn := make(chan struct{}), make(chan struct{})
		var once sync.Once
		s.drivers.onMember = func(_ topology.RegionID, x memberStep) {
			if x == memberAdd {
				once.Do(func() { close(reached); <-goOn })
			}
		}
		moved := make(chan error)
		go func() { moved <- s.Move(t.Context(), 1, 3, 4) }()
		<-reached
		var refusal region.Refusal
		for _, kind := range []keys.ChangeKind{keys.Splitting, keys.Merging, keys.Leaving} {
			_, err := r.Begin(t.Context(), time.Now().Add(stepTime), kind, 2, 0)
			if !errors.As(err, &refusal) {
				t.Errorf("a change of kind %d begins beside a move: %v", kind, err)
			}
		}
		if err := s.Move(t.Context(), 1, 2, 5); !errors.Is(err, errMoving) {
			t.Errorf("another move: %v; want %v", err, errMoving)
		}
		if err := s.moves.begin(t.Context(), r, 2, 5); !errors.Is(err, errMoving) {
			t.Errorf("another move begins, whose caller has looked before: %v; want %v", err, errMoving)
		}
		close(goOn)
		if err := <-moved; err != nil {
			t.Fatal(err)
		}
		done, ok := s.drivers.drive(1) // settleAll leaves the change alone
		if !ok {
			t.Fatal("somebody drives region 1")
		}
		begun, err := r.Begin(t.Context(), time.Now().Add(stepTime), keys.Splitting, 9, 0)
		if err != nil {
			t.Fatal(err)
		}
		now := r.Peers()
		if err := r.ChangePeers(t.Context(), time.Now().Add(stepTime), now.Conf, now.Peers); !errors.As(err, &refusal) {
			t.Errorf("a move begins beside a split: %v", err)
		}
		if err := r.Abort(t.Context(), time.Now().Add(stepTime), begun); err != nil {
			t.Fatal(err)
		}
		done()
		if err := r.ChangePeers(t.Context(), time.Now().Add(stepTime), now.Conf-1, now.Peers); !errors.As(err, &refusal) {
			t.Errorf("peers of an older conf are replaced: %v", err)
		}
		c.intact(1, "[1 2 4]")
	})
}

// TestReserve asks stores to begin replicas that they must not begin.
func TestReserve(t *testing.T) {
	fiveStores(t, func(t *testing.T, c *testStores) {
		desc, _ := c.leader(1).Replica(1).Region()
		refused := func(on topology.StoreID, r topology.Region, as topology.ReplicaID, want string) {
			t.Helper()
			a, err := c.stores[on-1].slots.reserve(reserveCall{Region: r, Since: 1, As: as})
			if err != nil || !strings.Contains(a.Refused, want) || a.Refused == "" != (want == "") {
				t.Errorf("store %d, replica %d: %q, %v; want %q", on, as, a.Refused, err, want)
			}
		}
		refused(2, desc, 100, "has replica 2 of the region yet")
		wide := desc
		wide.Slots.Last = topology.SlotCount - 1
		refused(4, wide, 100, "region 2 has slots")
		c.lead(1, 1)
		if err := c.stores[0].Move(t.Context(), 1, 3, 4); err != nil {
			t.Fatal(err)
		}
		c.intact(1, "[1 2 4]")
		refused(3, desc, 3, "replica 3 has ended there")
		refused(4, desc, 10, "") // it has it
		// A map of before the move brings the old replica back neither.
		c.stores[2].cluster.current = c.initial
		if err := c.stores[2].slots.join(); err != nil {
			t.Fatal(err)
		}
		all, err := c.stores[2].records.owned()
		if err != nil || slices.ContainsFunc(all, func(o ownedRegion) bool { return o.id == 1 }) {
			t.Errorf("an older map has brought the replica back: %v", err)
		}
	})
}

// TestJoinerBegins has the joiner's store know only a map of before the move, and the region's log have all entries
// from the first one on, those of before a split, too. The joiner stays, and begins behind the split.
func TestJoinerBegins(t *testing.T) {
	begin := func(t *testing.T, m Mistakes) (well bool) {
		fiveStores(t, func(t *testing.T, c *testStores) {
			c.lead(1, 1)
			child, err := c.stores[0].Split(t.Context(), 1, 2000, 0, "")
			if err != nil {
				t.Fatal(err)
			}
			c.until("leader of the child", func() bool { return c.leader(child.ID) != nil })
			s := c.stores[0]
			old := c.stores[3].cluster.adopted()
			frozen := *old
			frozen.Version = 1 << 40 // no map that comes replaces it
			c.stores[3].cluster.current = &frozen
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			if err := s.Move(ctx, 1, 3, 4); err != nil || c.stores[3].Failed() != nil {
				t.Logf("move: %v, store 4: %v", err, c.stores[3].Failed())
				return
			}
			if sums, err := s.Compare(t.Context(), 1); err != nil || sums.Verdict() != "equal" {
				t.Logf("replicas: %+v, %v", sums, err)
				return
			}
			c.intact(1, "[1 2 4]")
			well = true
		}, func(c *testStores) { c.mistakes = m })
		return well
	}
	if !begin(t, Mistakes{}) {
		t.Error("the move has not succeeded")
	}
	if begin(t, Mistakes{StaleRemoval: true}) {
		t.Error("nothing shows that a replica goes by a map that is older than it")
	}
	if begin(t, Mistakes{Region: region.Mistakes{AnyBeginning: true}}) {
		t.Error("nothing shows that a joiner takes entries of before a split")
	}
}

// intact checks that all keys are there, that a region's replicas are on these stores, are what its Raft group has as
// members, and are equal, and that no other store has anything of it.
func (c *testStores) intact(id topology.RegionID, want string) {
	c.t.Helper()
	c.untilServing()
	var s *Store
	var desc topology.Region
	c.until("end of the move", func() bool {
		if s = c.leader(id); s == nil {
			return false
		}
		desc, _ = s.Replica(id).Region()
		return desc.Settled()
	})
	if got := fmt.Sprint(c.storesOf(id)); got != want {
		c.t.Errorf("the replicas are on %s; want %s", got, want)
	}
	m, err := s.Replica(id).Members(c.t.Context(), time.Now().Add(5*time.Second))
	if err != nil {
		c.t.Fatal(err)
	}
	sorted := slices.SortedFunc(slices.Values(desc.Peers), func(a, b topology.Peer) int {
		return int(a.Replica) - int(b.Replica)
	})
	if !slices.Equal(sorted, m.Voters) || len(m.NonVoters) > 0 {
		c.t.Errorf("the members are %v and %v, the peers %v", m.Voters, m.NonVoters, desc.Peers)
	}
	for _, st := range c.stores {
		if _, held := desc.PeerOn(st.ID()); held || st == nil {
			continue
		}
		c.until(fmt.Sprintf("end of what store %d had", st.ID()), func() bool {
			empty, err := st.records.empty(desc.Slots)
			return st.Replica(id) == nil && empty && err == nil
		})
	}
	var sums region.Comparison
	c.until("comparison", func() bool {
		sums, err = c.leader(id).Compare(c.t.Context(), id)
		return err == nil && sums.Verdict() != "incomplete"
	})
	if sums.Verdict() != "equal" || len(sums.Replicas) != len(desc.Peers) {
		c.t.Errorf("replicas: %+v", sums)
	}
	for i := range 60 {
		c.want(fmt.Sprintf("$%d\r\n%d\r\n", len(fmt.Sprint(i)), i), "GET", fmt.Sprint("k", i))
	}
}

// TestCrashInMoves cuts the power of a store when a move comes to a step: of the store that drives it, of the one that
// is to have the replica, or of the one that has it. It comes back three seconds later. The move goes on, or is called
// off, and nothing is lost.
func TestCrashInMoves(t *testing.T) {
	for _, of := range []string{"driver", "joiner", "leaver", "leader that leaves"} {
		for x := memberReserve; x <= memberEnd; x++ {
			if x == memberHandOver && of != "leader that leaves" {
				continue
			}
			t.Run(of+"/"+x.String(), func(t *testing.T) { crashInMove(t, of, x) })
		}
	}
}

func crashInMove(t *testing.T, of string, at memberStep) {
	fiveStores(t, func(t *testing.T, c *testStores) {
		from, to := topology.StoreID(3), topology.StoreID(4)
		if of == "leader that leaves" {
			from = c.leader(1).ID()
		} else {
			c.lead(1, 1)
		}
		victim := map[string]topology.StoreID{"driver": 1, "joiner": to, "leaver": from, "leader that leaves": from}[of]
		reached := make(chan struct{})
		var once sync.Once
		for _, s := range c.stores {
			s.drivers.onMember = func(id topology.RegionID, x memberStep) {
				if id == 1 && x == at {
					once.Do(func() {
						close(reached)
						if s.ID() == victim {
							<-s.ctx.Done()
						} else {
							time.Sleep(100 * time.Millisecond) // the power goes before the step
						}
					})
				}
			}
		}
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			if err := c.leader(1).Move(t.Context(), 1, from, to); err != nil {
				t.Logf("move: %v", err)
			}
		}()
		select {
		case <-reached:
		case <-time.After(20 * time.Second):
			t.Fatalf("the move has not come to the step %s", at)
		}
		i := int(victim) - 1
		left := c.fs[i].Crash(50, rand.New(rand.NewPCG(uint64(at), 1)))
		if err := c.stores[i].Close(); err != nil {
			t.Errorf("close the store that crashed: %v", err)
		}
		c.stores[i], c.fs[i] = nil, left
		time.Sleep(3 * Heartbeat)
		c.open(i, false)
		<-ended
		want := "[1 2 4]"
		if of == "leader that leaves" {
			want = map[topology.StoreID]string{1: "[4 2 3]", 2: "[1 4 3]", 3: "[1 2 4]"}[from]
		}
		c.intact(1, want)
	})
}

// TestRemovedAsksInVain: no vote is given to a replica that has been removed, also where its store has not heard of
// that. New members get votes, and so do ids of which nobody knows anything.
func TestRemovedAsksInVain(t *testing.T) {
	fiveStores(t, func(t *testing.T, c *testStores) {
		c.lead(1, 1)
		c.part([]topology.StoreID{3}, []topology.StoreID{1, 2, 4, 5})
		if err := c.stores[0].Move(t.Context(), 1, 3, 4); err != nil {
			t.Fatal(err)
		}
		joined, _ := c.stores[0].Replica(1).Region()
		peer, _ := joined.PeerOn(4)
		c.until("end of the move on store 2", func() bool {
			return c.stores[1].Replica(1).Peers().Conf == joined.ConfVersion
		})
		for _, on := range c.stores[:2] {
			for from, want := range map[topology.ReplicaID]bool{1: false, 2: false, 3: true, peer.Replica: false, 99: false} {
				for _, kind := range []multiraft.Message{{Type: multiraft.RequestVote}, {Type: multiraft.RequestPreVote}} {
					m := kind
					m.ShardID, m.From = 1, uint64(from)
					if got := on.calls.drops(&m); got != want {
						t.Errorf("store %d drops %v from replica %d: %v; want %v", on.ID(), m.Type, from, got, want)
					}
				}
			}
		}
		c.mend()
		c.intact(1, "[1 2 4]")
	})
}

// part cuts the links between two groups of stores. mend makes all links good again.
func (c *testStores) part(some, others []topology.StoreID) {
	for _, a := range some {
		for _, b := range others {
			c.network.SetLink(a, b, fault.Net{Cut: true}, nil)
			c.network.SetLink(b, a, fault.Net{Cut: true}, nil)
		}
	}
}

func (c *testStores) mend() {
	for _, a := range c.stores {
		for _, b := range c.stores {
			c.network.SetLink(a.ID(), b.ID(), fault.Net{}, nil)
		}
	}
}

// TestRemovedNeverVotes has a store that has destroyed its replica of a region know only a map of before. It does not
// begin the replica again. That one would vote without all that it had promised: with a voter that has heard of no
// change it would be a quorum of the members of before, beside that of the present members.
func TestRemovedNeverVotes(t *testing.T) {
	leaders := func(t *testing.T, m Mistakes) (all []topology.StoreID) {
		fiveStores(t, func(t *testing.T, c *testStores) {
			c.lead(1, 2)
			c.part([]topology.StoreID{1}, []topology.StoreID{2, 3, 4, 5})
			if err := c.stores[1].Move(t.Context(), 1, 3, 4); err != nil {
				t.Fatal(err)
			}
			c.until("end of the replica", func() bool {
				c.stores[2].slots.mu.Lock()
				defer c.stores[2].slots.mu.Unlock()
				return c.stores[2].Replica(1) == nil && !c.stores[2].slots.ending[1]
			})
			c.part([]topology.StoreID{3}, []topology.StoreID{2, 4, 5})
			c.network.SetLink(1, 3, fault.Net{}, nil)
			c.network.SetLink(3, 1, fault.Net{}, nil)
			// A start removes the folder in which the Raft library has marked the replica as removed.
			if err := c.stores[2].Close(); err != nil {
				t.Error(err)
			}
			c.open(2, false)
			old := *c.initial
			old.Version = 1 << 40 // no map that comes replaces it
			c.stores[2].cluster.mu.Lock()
			c.stores[2].cluster.current = &old
			c.stores[2].cluster.mu.Unlock()
			c.stores[2].tending.ring()
			time.Sleep(5 * time.Second)
			for _, s := range c.stores {
				if r := s.Replica(1); r != nil {
					p := region.Pending{Run: run("SET", "k2", fmt.Sprint(s.ID())), Deadline: time.Now().Add(time.Second)}
					r.Propose(&p)
					if p.Wait(); p.Err == nil {
						all = append(all, s.ID())
					}
				}
			}
		}, func(c *testStores) { c.mistakes = m })
		return all
	}
	if got := fmt.Sprint(leaders(t, Mistakes{})); got != "[2]" {
		t.Errorf("stores %s take writes; want store 2 alone", got)
	}
	if got := fmt.Sprint(leaders(t, Mistakes{AnyReturn: true})); got != "[1 2]" {
		t.Errorf("stores %s take writes, where a removed replica comes back; want two entries of one index", got)
	}
}

// TestLogIsHeld moves a replica to a store far away while clients write. The log is cut every few entries, but for the
// joiner. If it were not held, the end of each snapshot would find the log cut behind it, and another one would begin.
func TestLogIsHeld(t *testing.T) {
	ends := func(t *testing.T, m Mistakes) (well bool) {
		fiveStores(t, func(t *testing.T, c *testStores) {
			c.lead(1, 1)
			random := rand.New(rand.NewPCG(1, 1))
			value := make([]byte, 100<<10)
			for i := range 8 {
				for j := range value {
					value[j] = byte(random.Uint32())
				}
				c.want("+OK\r\n", "SET", fmt.Sprint("{k2}", i), string(value))
			}
			c.network.SetLink(1, 4, fault.Net{Bandwidth: 300 << 10}, random)
			stop := make(chan struct{})
			var writers sync.WaitGroup
			for i := range 1 {
				writers.Go(func() {
					for n := 0; ; n++ {
						p := region.Pending{Run: run("SET", fmt.Sprint("{k2}w", i), fmt.Sprint(n)),
							Deadline: time.Now().Add(time.Second)}
						c.stores[0].Replica(1).Propose(&p)
						p.Wait()
						select {
						case <-stop:
							return
						case <-time.After(time.Millisecond):
						}
					}
				})
			}
			ctx, cancel := context.WithTimeout(t.Context(), 9*time.Second)
			err := c.stores[0].Move(ctx, 1, 3, 4)
			cancel()
			close(stop)
			writers.Wait()
			c.network.SetLink(1, 4, fault.Net{}, nil)
			far := c.stores[3].Replica(1)
			t.Logf("%v after %d entries, %d of them at store 4", err, c.stores[0].Replica(1).Applied(), far.Applied())
			well = err == nil
		}, func(c *testStores) {
			c.mistakes = m
			c.raft = func(k *settings.RaftKnobs) { k.SnapshotEntries, k.CompactionOverhead = 20, 5 }
		})
		return well
	}
	if !ends(t, Mistakes{}) {
		t.Error("the move does not end")
	}
	if ends(t, Mistakes{Region: region.Mistakes{NoHold: true}}) {
		t.Error("nothing shows that the log is not held")
	}
}
