package sim

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"neokv.dev/neokv/internal/seam"
)

// TestOrderSurvivesHolding pipelines appends to one key through transfers, cuts and elections. The appends of a
// connection take effect in the order sent, each at most once: all that were acknowledged, none that was refused, and
// perhaps those of unknown outcome.
func TestOrderSurvivesHolding(t *testing.T) {
	notShort(t)
	cut := simSettings()
	cut.Raft.BatchMaxOps, cut.Raft.MaxInflight = 4, 2 // so that a pipeline takes several entries
	for seed := uint64(1); seed <= 20; seed++ {
		inBubbleWith(t, cut, seam.Hooks{}, func(t *testing.T, s *sim, _ *caller) {
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
				if n < last && outcome[n] != '?' {
					// One of unknown outcome may come behind those of the next connection.
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

// disturb transfers or cuts off the leader of region 1, or does nothing, while a pipeline is under way.
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
		s.do("partition %d all", leader.ID())
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		s.do("mend %d all", leader.ID())
	case 2:
		if random.IntN(2) == 0 {
			s.do("partition %d %d", leader.ID(), others[random.IntN(2)].ID())
		} else {
			s.do("link %d %d one-way cut", leader.ID(), others[random.IntN(2)].ID())
		}
		s.transfer(1, others[random.IntN(2)])
		time.Sleep(time.Duration(random.IntN(500)) * time.Millisecond)
		s.do("mend %d all", leader.ID())
	}
}
