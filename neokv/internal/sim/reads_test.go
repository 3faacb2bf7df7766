package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	pb "github.com/lni/dragonboat/v4/raftpb"

	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// slowFollowers delays what goes to and from one store after the other, so that it applies late what the others have acknowledged.
func slowFollowers(s *sim, random *rand.Rand) {
	for s.sleep(time.Duration(20+random.IntN(200)) * time.Millisecond) {
		a := s.nodes[random.IntN(3)]
		d := time.Duration(5+random.IntN(60)) * time.Millisecond
		for _, b := range s.others(a) {
			s.h.note("delay %d <-> %d by %s", a.ID(), b.ID(), d)
			s.network.Delay(a.ID(), b.ID(), d)
			s.network.Delay(b.ID(), a.ID(), d)
		}
		s.sleep(time.Duration(100+random.IntN(500)) * time.Millisecond)
		for _, b := range s.others(a) {
			s.network.Delay(a.ID(), b.ID(), 0)
			s.network.Delay(b.ID(), a.ID(), 0)
		}
	}
}

// session is one connection that is used for one command after the other.
type session struct {
	t *testing.T
	w *wire
}

func (s *sim) session(t *testing.T, at seam.Node) *session {
	t.Helper()
	nc, err := s.c.Dial(t.Context(), at.Addr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return &session{t, newWire(nc)}
}

// ask returns a command's reply, or its error as text.
func (x *session) ask(args ...string) string {
	reply, err := x.w.call(args...)
	if err != nil {
		return err.Error()
	}
	return reply
}

// want runs a command and compares its reply; of one that ends with "..." a part is wanted.
func (x *session) want(want string, args ...string) {
	x.t.Helper()
	if got := x.ask(args...); !like(got, want) {
		x.t.Errorf("%s = %q; want %q", args, got, want)
	}
}

func like(got, want string) bool {
	part, open := strings.CutSuffix(want, "...")
	return got == want || open && strings.Contains(got, part)
}

// TestFollowerReads reads from followers what the leader has just acknowledged, with and without READONLY.
func TestFollowerReads(t *testing.T) {
	inBubble(t, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
		const region = topology.RegionID(1)
		key := "r{" + regionTags[0] + "}"
		home, _ := s.leader(region)
		leader := s.session(t, home)
		moved := fmt.Sprintf("MOVED %d %s", topology.SlotOf([]byte(key)), home.Addr())
		for _, at := range s.others(home) {
			n := at.Store().Replica(region).Counters()
			reader := s.session(t, at)
			reader.want(moved, "GET", key)
			reader.want("OK", "READONLY")
			// The follower hears of a commit later than the client does.
			s.network.Delay(home.ID(), at.ID(), 30*time.Millisecond)
			before := n.FollowerReads.Load()
			for i := range 20 {
				value := fmt.Sprintf("%d-%02d", at.ID(), i)
				leader.want("OK", "SET", key, value)
				reader.want(value, "GET", key)
			}
			s.network.Delay(home.ID(), at.ID(), 0)
			if got := n.FollowerReads.Load() - before; got != 20 {
				t.Errorf("store %d counts %d follower reads of 20", at.ID(), got)
			}
			begin := time.Now()
			reader.want(moved, "SET", key, "v")
			if d := time.Since(begin); d > 0 {
				t.Errorf("store %d held a write for %s", at.ID(), d)
			}
			reader.want("1", "EXISTS", key)
			reader.want("CROSSSLOT ...", "EXISTS", key, "other")
			reader.want("4", "STRLEN", key)
			reader.want("OK", "READWRITE")
			reader.want(moved, "GET", key)
			if led := at.Store().Leads(); len(led) == 0 {
				t.Errorf("store %d leads nothing", at.ID())
			}
		}
		// The keys that a store counts are those that it leads.
		sum := 0
		for _, at := range s.nodes {
			x := s.session(t, at)
			x.want("OK", "READONLY")
			var n int
			fmt.Sscan(x.ask("DBSIZE"), &n)
			sum += n
		}
		if sum != 1 {
			t.Errorf("the stores together count %d keys, want 1", sum)
		}
	})
}

// TestFollowerReadsAndExpiry has followers answer for what has expired in the log, and send to the leader for what has only by the clock.
func TestFollowerReadsAndExpiry(t *testing.T) {
	k := simSettings()
	k.Redis.ExpireInterval, k.Redis.ExpireSample = 0, 0 // nothing but readers moves the region time
	inBubbleWith(t, k, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
		key := func(name string) string { return name + "{" + regionTags[0] + "}" }
		home, _ := s.leader(1)
		leader := s.session(t, home)
		follower := s.session(t, s.others(home)[0])
		follower.want("OK", "READONLY")
		leader.want("OK", "SET", key("a"), "v", "PX", "1000")
		leader.want("OK", "SET", key("b"), "v")
		follower.want("v", "GET", key("a"))
		time.Sleep(1100 * time.Millisecond)
		follower.want("MOVED ...", "GET", key("a"))
		follower.want("MOVED ...", "EXISTS", key("b"), key("a"))
		follower.want("v", "GET", key("b"))
		follower.want("MOVED ...", "GET", key("a")) // nobody has asked the leader
		leader.want("", "GET", key("a"))
		follower.want("", "GET", key("a"))
		follower.want("1", "EXISTS", key("b"), key("a"))
	})
}

// TestFollowerReadsAtALeaderChange reads at followers while leadership moves and while the leader is cut off: held, then answered.
func TestFollowerReadsAtALeaderChange(t *testing.T) {
	inBubble(t, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
		const region = topology.RegionID(1)
		key := "r{" + regionTags[0] + "}"
		home, _ := s.leader(region)
		s.session(t, home).want("OK", "SET", key, "v")
		for i := range 6 {
			home, _ = s.leader(region)
			if home == nil {
				t.Fatal("no leader")
			}
			others := s.others(home)
			x := s.session(t, others[i%2])
			x.want("OK", "READONLY")
			if i < 3 {
				s.move(region, others[(i+1)%2])
				x.want("v", "GET", key)
				continue
			}
			s.link(false, true, true, home, others...)
			x.want("v", "GET", key)
			s.link(true, true, true, home, others...)
			time.Sleep(time.Second)
		}
	})
}

// pipeline sends commands at once and returns their replies.
func pipeline(t *testing.T, nc net.Conn, commands ...[]string) (replies []string) {
	t.Helper()
	var b []byte
	for _, args := range commands {
		b = fmt.Appendf(b, "*%d\r\n", len(args))
		for _, a := range args {
			b = fmt.Appendf(b, "$%d\r\n%s\r\n", len(a), a)
		}
	}
	if _, err := nc.Write(b); err != nil {
		t.Fatal(err)
	}
	w := newWire(nc)
	for range commands {
		reply, err := w.read()
		if err != nil {
			reply = err.Error()
		}
		replies = append(replies, reply)
	}
	return replies
}

// TestPipelineAcrossACutLeader sends one pipeline to a store that leads two regions of which one has lost its quorum: the other's commands
// are served though their turn comes after the deadline, and all of it takes no longer than the deadline.
func TestPipelineAcrossACutLeader(t *testing.T) {
	inBubble(t, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
		home := s.nodes[0]
		for r := range simRegions {
			s.move(topology.RegionID(r+1), home)
		}
		stuck, fine := "r{"+regionTags[0]+"}", "r{"+regionTags[1]+"}"
		time.Sleep(time.Second)
		for _, a := range s.nodes { // nothing of region 1 arrives in time, all else does
			for _, b := range s.others(a) {
				s.network.Hold(a.ID(), b.ID(), 10*time.Second, func(m *pb.Message) bool { return m.ShardID == 1 })
			}
		}
		nc, err := s.c.Dial(t.Context(), home.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		begin := time.Now()
		got := pipeline(t, nc, []string{"SET", stuck, "a"}, []string{"SET", fine, "b"}, []string{"GET", fine}, []string{"GET", stuck},
			[]string{"SET", fine, "c"}, []string{"GET", fine}, []string{"SET", stuck, "d"}, []string{"GET", fine})
		took := time.Since(begin)
		for i, want := range []string{"write outcome unknown: ...", "OK", "b", "CLUSTERDOWN ...", "OK", "c", "CLUSTERDOWN ...", "c"} {
			if !like(got[i], want) {
				t.Errorf("reply %d = %q; want %q", i, got[i], want)
			}
		}
		if most := s.c.Settings().Redis.LeaderlessWait + 500*time.Millisecond; took > most {
			t.Errorf("the pipeline took %s of virtual time; want at most %s", took, most)
		}
	})
}

// TestPipelineOnAStuckLeader has a deadline that passes before a leader without a quorum steps down: a pipeline for its region does not
// wait longer than that.
func TestPipelineOnAStuckLeader(t *testing.T) {
	const wait = 100 * time.Millisecond
	short := simSettings()
	short.Redis.LeaderlessWait = wait
	inBubbleWith(t, short, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
		home, _ := s.leader(1)
		key := "r{" + regionTags[0] + "}"
		time.Sleep(time.Second)
		nc, err := s.c.Dial(t.Context(), home.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		s.link(false, true, true, home, s.others(home)...)
		begin := time.Now()
		pipeline(t, nc, []string{"SET", key, "a"}, []string{"GET", key}, []string{"SET", key, "b"}, []string{"GET", key})
		if d := time.Since(begin); d > wait+50*time.Millisecond {
			t.Errorf("the pipeline took %s of virtual time, with a deadline of %s", d, wait)
		}
		begin = time.Now()
		pipeline(t, nc, []string{"GET", key}, []string{"SET", key, "a"}, []string{"GET", key}, []string{"SET", key, "b"})
		if d := time.Since(begin); d > wait+50*time.Millisecond {
			t.Errorf("the pipeline that reads first took %s of virtual time, with a deadline of %s", d, wait)
		}
	})
}

// TestCutOffStore asks a store that hears nobody, and then one that does not hear the leader alone.
func TestCutOffStore(t *testing.T) {
	inBubble(t, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
		key := "r{" + regionTags[0] + "}"
		for i := range 3 {
			s.move(1, s.nodes[i])
			home := s.nodes[i]
			others := s.others(home)
			s.link(false, true, true, home, others...)
			lonely := s.session(t, home)
			lonely.want("MOVED ...", "GET", key)
			lonely.want("MOVED ...", "GET", key)
			lonely.want("MOVED ...", "GET", key)
			s.link(true, true, true, home, others...)
			time.Sleep(2 * time.Second)

			leader, _ := s.leader(1)
			if leader == nil {
				t.Fatal("no leader")
			}
			deaf := s.others(leader)[i%2]
			s.link(false, true, true, deaf, leader)
			time.Sleep(2 * time.Second)
			x := s.session(t, deaf)
			var replies []string
			alone, dead := false, false // meta's leader is the store that is not heard, or the one that does not hear it
			for range 3 {
				replies = append(replies, x.ask("GET", key))
				table := deaf.Store().Table()
				alone, dead = alone || table.Alone, dead || !table.Store(leader.ID()).Alive
			}
			now, _ := s.leader(1)
			want := fmt.Sprintf("MOVED %d %s", topology.SlotOf([]byte(key)), now.Addr())
			if n := len(slices.DeleteFunc(slices.Clone(replies), func(r string) bool { return r != want })); !dead && (n == 0 || n < 3 && !alone) {
				t.Errorf("store %d, which does not hear store %d: %q; want %q", deaf.ID(), leader.ID(), replies, want)
			}
			s.link(true, true, true, deaf, leader)
			time.Sleep(2 * time.Second)
		}
	})
}

// TestOrderSurvivesHolding pipelines appends to one key through transfers, cuts and elections. What a connection has sent takes effect in the
// order sent, each at most once: all that were acknowledged, none that was refused, perhaps those of unknown outcome.
func TestOrderSurvivesHolding(t *testing.T) {
	cut := simSettings()
	cut.Raft.BatchMaxOps, cut.Raft.MaxInflight = 4, 2 // runs take several entries
	for seed := uint64(1); seed <= 20; seed++ {
		inBubbleWith(t, cut, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
			s.seed = seed
			random := s.random(7)
			key := "r{" + regionTags[0] + "}"
			outcome := map[int]byte{} // + acknowledged, - refused, ? unknown
			next := 0
			for range 30 {
				at := s.nodes[random.IntN(3)]
				nc, err := s.c.Dial(t.Context(), at.Addr())
				if err != nil {
					t.Fatal(err)
				}
				var fault sync.WaitGroup
				seed := random.Uint64()
				fault.Go(func() { s.disturb(rand.New(rand.NewPCG(seed, 0))) })
				var commands [][]string
				first := next
				for range 1 + random.IntN(40) {
					commands = append(commands, []string{"APPEND", key, fmt.Sprintf("%d,", next)})
					next++
				}
				for i, reply := range pipeline(t, nc, commands...) {
					switch _, err := strconv.Atoi(reply); {
					case err == nil:
						outcome[first+i] = '+'
					case strings.HasPrefix(reply, "write outcome unknown: "):
						outcome[first+i] = '?'
					case strings.HasPrefix(reply, "MOVED "), strings.HasPrefix(reply, "CLUSTERDOWN "):
						outcome[first+i] = '-'
					default:
						t.Errorf("seed %d: reply %q", seed, reply)
					}
				}
				fault.Wait()
				nc.Close()
			}
			s.heal()
			time.Sleep(5 * time.Second)
			leader, _ := s.leader(1)
			if leader == nil {
				t.Fatalf("seed %d: no leader", seed)
			}
			last, seen := -1, map[int]bool{}
			for _, word := range strings.Split(strings.TrimSuffix(s.session(t, leader).ask("GET", key), ","), ",") {
				n, err := strconv.Atoi(word)
				if err != nil {
					t.Fatalf("seed %d: %q", seed, word)
				}
				if n < last && outcome[n] != '?' { // an unknown one may come late, behind what another connection sent
					t.Errorf("seed %d: %d stands behind %d", seed, n, last)
				}
				if seen[n] || outcome[n] == '-' {
					t.Errorf("seed %d: %d, of outcome %c, is there; before it: %v", seed, n, outcome[n], seen[n])
				}
				last, seen[n] = max(n, last), true
			}
			for n, o := range outcome {
				if o == '+' && !seen[n] {
					t.Errorf("seed %d: %d was acknowledged and is lost", seed, n)
				}
			}
		})
	}
}

// disturb does something to region 1 while a pipeline is under way.
func (s *sim) disturb(random *rand.Rand) {
	time.Sleep(time.Duration(random.IntN(3000)) * time.Microsecond)
	leader, _ := s.leader(1)
	if leader == nil {
		return
	}
	switch others := s.others(leader); random.IntN(4) {
	case 0:
		s.transfer(1, others[random.IntN(2)])
		time.Sleep(time.Duration(random.IntN(20)) * time.Millisecond)
	case 1:
		s.link(false, true, true, leader, others...)
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		s.link(true, true, true, leader, others...)
	case 2:
		s.link(false, random.IntN(2) == 0, true, leader, others[random.IntN(2)])
		s.transfer(1, others[random.IntN(2)])
		time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
		s.link(true, true, true, leader, others...)
	}
}

// oneRound is longer than a command waits for a replica that leads before it looks whether the server closes.
const oneRound = 500 * time.Millisecond

// TestCloseWithoutQuorum closes a cluster while commands wait for a region that has lost its quorum.
func TestCloseWithoutQuorum(t *testing.T) {
	late := simSettings()
	late.Raft.ElectionTicks = 100 // the leader does not step down meanwhile
	inBubbleWith(t, late, store.Faults{}, func(t *testing.T, s *sim, _ *caller) {
		home, _ := s.leader(1)
		key := "r{" + regionTags[0] + "}"
		time.Sleep(3 * time.Second) // no lease is left
		s.link(false, true, true, home, s.others(home)...)
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
