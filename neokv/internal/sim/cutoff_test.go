package sim

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/topology"
)

// TestPipelineAcrossACutLeader sends one pipeline to a store that leads two regions, one of which has lost its
// quorum. The store serves the commands of the other region though their turn comes after the deadline, and answers
// all of it within the deadline.
func TestPipelineAcrossACutLeader(t *testing.T) {
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		home := s.nodes[0]
		for r := range simRegions {
			s.move(topology.RegionID(r+1), home)
		}
		stuck, fine := "r{"+regionTags[0]+"}", "r{"+regionTags[1]+"}"
		time.Sleep(time.Second)
		// Messages of region 1 come too late, all others in time.
		s.hold(10*time.Second, func(m *multiraft.Message) bool { return m.ShardID == 1 })
		nc, err := s.c.Dial(t.Context(), home.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		begin := time.Now()
		got := pipeline(t, nc,
			[]string{"SET", stuck, "a"}, []string{"SET", fine, "b"}, []string{"GET", fine}, []string{"GET", stuck},
			[]string{"SET", fine, "c"}, []string{"GET", fine}, []string{"SET", stuck, "d"}, []string{"GET", fine})
		took := time.Since(begin)
		wants := []string{
			"write outcome unknown: ...", "OK", "b", "CLUSTERDOWN ...", "OK", "c", "CLUSTERDOWN ...", "c",
		}
		for i, want := range wants {
			if !like(got[i], want) {
				t.Errorf("reply %d = %q; want %q", i, got[i], want)
			}
		}
		if most := s.c.Settings().Redis.LeaderlessWait + 500*time.Millisecond; took > most {
			t.Errorf("the pipeline took %s of virtual time; want at most %s", took, most)
		}
	})
}

// TestPipelineOnAStuckLeader has a deadline that passes before a leader without a quorum steps down. A pipeline for
// its region waits no longer than the deadline.
func TestPipelineOnAStuckLeader(t *testing.T) {
	const wait = 100 * time.Millisecond
	short := simSettings()
	short.Redis.LeaderlessWait = wait
	inBubbleWith(t, short, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		home, _ := s.leader(1)
		key := "r{" + regionTags[0] + "}"
		time.Sleep(time.Second)
		nc, err := s.c.Dial(t.Context(), home.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		s.do("partition %d all", home.ID())
		begin := time.Now()
		pipeline(t, nc, []string{"SET", key, "a"}, []string{"GET", key}, []string{"SET", key, "b"},
			[]string{"GET", key})
		if d := time.Since(begin); d > wait+50*time.Millisecond {
			t.Errorf("the pipeline took %s of virtual time, with a deadline of %s", d, wait)
		}
		begin = time.Now()
		pipeline(t, nc, []string{"GET", key}, []string{"SET", key, "a"}, []string{"GET", key},
			[]string{"SET", key, "b"})
		if d := time.Since(begin); d > wait+50*time.Millisecond {
			t.Errorf("the pipeline that reads first took %s of virtual time, with a deadline of %s", d, wait)
		}
	})
}

// TestCutOffStore asks a store that is cut off from all others, and then one that is cut off from the leader only.
func TestCutOffStore(t *testing.T) {
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		key := "r{" + regionTags[0] + "}"
		for i := range 3 {
			s.move(1, s.nodes[i])
			home := s.nodes[i]
			s.do("partition %d all", home.ID())
			lonely := s.session(t, home)
			lonely.want("MOVED ...", "GET", key)
			lonely.want("MOVED ...", "GET", key)
			lonely.want("MOVED ...", "GET", key)
			s.do("mend %d all", home.ID())
			time.Sleep(2 * time.Second)

			leader, _ := s.leader(1)
			if leader == nil {
				t.Fatal("no leader")
			}
			deaf := s.others(leader)[i%2]
			s.do("partition %d %d", deaf.ID(), leader.ID())
			time.Sleep(2 * time.Second)
			x := s.session(t, deaf)
			var replies []string
			// Meta's leader may be the leader that is cut off, and then the deaf store is alone; or it may be the
			// deaf store, and then that takes the leader for dead.
			alone, dead := false, false
			for range 3 {
				replies = append(replies, x.ask("GET", key))
				table := deaf.Store().Table()
				alone, dead = alone || table.Alone, dead || !table.Store(leader.ID()).Alive
			}
			now, _ := s.leader(1)
			want := fmt.Sprintf("MOVED %d %s", topology.SlotOf([]byte(key)), now.Addr())
			n := len(slices.DeleteFunc(slices.Clone(replies), func(r string) bool { return r != want }))
			if !dead && (n == 0 || n < 3 && !alone) {
				t.Errorf("store %d, which does not hear store %d: %q; want %q", deaf.ID(), leader.ID(), replies, want)
			}
			s.do("mend %d %d", deaf.ID(), leader.ID())
			time.Sleep(2 * time.Second)
		}
	})
}

// TestDeadLeaderOfMeta kills the store that leads meta: the others take it for dead, although the next leader of meta
// has never heard of it, and for alive when it is back.
func TestDeadLeaderOfMeta(t *testing.T) {
	inBubble(t, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		for _, victim := range s.nodes { // one of them leads meta
			all := func(alive bool) {
				t.Helper()
				until(t, fmt.Sprintf("tables of the others in which store %d has alive %v", victim.ID(), alive), func() bool {
					return !slices.ContainsFunc(s.others(victim), func(n seam.StorePlace) bool {
						got := n.Store().Table().Store(victim.ID())
						return got == nil || got.Alive != alive || got.Port == 0
					})
				})
			}
			all(true)
			s.do("kill %d", victim.ID())
			all(false)
			s.do("restart %d", victim.ID())
			all(true)
		}
	})
}

// oneRound is longer than the time for which a command waits for a replica before it looks whether the server is
// closing.
const oneRound = 500 * time.Millisecond

// TestCloseWithoutQuorum closes a cluster while commands wait for a region that has lost its quorum.
func TestCloseWithoutQuorum(t *testing.T) {
	notShort(t)
	late := simSettings()
	late.Raft.ElectionTicks = 100 // the leader does not step down during the test
	inBubbleWith(t, late, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
		home, _ := s.leader(1)
		key := "r{" + regionTags[0] + "}"
		time.Sleep(3 * time.Second) // leases end
		s.do("partition %d all", home.ID())
		for _, command := range []string{"SET " + key + " v\r\n", "GET " + key + "\r\n", "INCR " + key + "\r\n"} {
			nc, err := s.c.Dial(context.Background(), home.Addr())
			if err != nil {
				t.Fatal(err)
			}
			defer nc.Close()
			if _, err := nc.Write([]byte(command)); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(20 * time.Millisecond)
		begin := time.Now()
		if err := s.c.Close(); err != nil {
			t.Error(err)
		}
		if d := time.Since(begin); d > oneRound {
			t.Errorf("Close took %s of virtual time", d)
		}
	})
}
