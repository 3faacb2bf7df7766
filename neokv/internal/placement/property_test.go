package placement

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// modelCluster is a cluster in which orders are carried out. Each round is a heartbeat: all sizes are read with noise,
// the planner plans, and what it orders is so at the next round.
type modelCluster struct {
	random  *rand.Rand
	planner Planner
	s       Survey
	sizes   []float64 // of the regions
	noise   float64   // of each reading: 0.1 is evenly -10 % to +10 %
	nextID  topology.ReplicaID
	moved   map[topology.ReplicaID]bool // replicas that have come by balance
	moves   map[Why]int
	doing   []Order
}

// newModel has stores of which the first ones have all replicas, spread at random.
func newModel(seed uint64, stores, full, regions int) *modelCluster {
	m := &modelCluster{random: rand.New(rand.NewPCG(seed, 1)), noise: 0.1, nextID: 1,
		moved: map[topology.ReplicaID]bool{}, moves: map[Why]int{}}
	m.s = Survey{Now: noon, Policy: Policy{Replicas: 3, DownAfter: 30 * time.Minute, Balance: true}}
	for i := range stores {
		m.s.Stores = append(m.s.Stores, Store{ID: topology.StoreID(i + 1), Free: math.MaxInt64})
	}
	for i := range regions {
		r := Region{ID: topology.RegionID(i + 1), Conf: 1, Measured: true}
		for _, st := range m.random.Perm(full)[:3] {
			r.Peers = append(r.Peers, topology.Peer{Store: topology.StoreID(st + 1), Replica: m.nextID})
			m.nextID++
		}
		m.s.Regions = append(m.s.Regions, r)
		m.sizes = append(m.sizes, math.Exp(m.random.Float64()*math.Log(4096))*(1<<20)) // 1 MiB to 4 GiB
	}
	return m
}

// survey reads the cluster.
func (m *modelCluster) survey() Survey {
	m.s.Now = m.s.Now.Add(time.Second)
	s := m.s
	s.Regions = slices.Clone(m.s.Regions)
	for i := range s.Regions {
		r := &s.Regions[i]
		r.Leader = m.leader(r)
		r.Bytes = m.sizes[i] * (1 + m.noise*(2*m.random.Float64()-1))
	}
	return s
}

// leader returns the first store of a region that runs, 0 if those that do are no majority.
func (m *modelCluster) leader(r *Region) (leader topology.StoreID) {
	up := 0
	for _, p := range r.Peers {
		if m.s.Stores[p.Store-1].Down == 0 {
			if up++; leader == 0 {
				leader = p.Store
			}
		}
	}
	if 2*up <= len(r.Peers) {
		return 0
	}
	return leader
}

// round carries out what was ordered before, and plans anew.
func (m *modelCluster) round() ([]Order, error) {
	sent, received := map[topology.StoreID]int{}, map[topology.StoreID]int{}
	for _, o := range m.doing {
		if err := m.apply(o); err != nil {
			return nil, fmt.Errorf("%s: %w", o, err)
		}
	}
	s, stores := m.survey(), m.planner.stores
	orders, _ := m.planner.Plan(s)
	if !slices.Equal(stores, m.planner.stores) {
		clear(m.moved)
	}
	for _, o := range orders {
		if o.Kind == MoveHome {
			continue
		}
		leader := s.Regions[o.Region-1].Leader
		if sent[leader]++; sent[leader] > mostSent {
			return nil, fmt.Errorf("%s: store %d sends %d", o, leader, sent[leader])
		}
		if received[o.To]++; received[o.To] > mostReceived {
			return nil, fmt.Errorf("%s: store %d receives %d", o, o.To, received[o.To])
		}
	}
	m.doing = orders
	return orders, nil
}

// apply carries out an order that moves a replica or a home.
func (m *modelCluster) apply(o Order) error {
	r := &m.s.Regions[o.Region-1]
	at := slices.IndexFunc(r.Peers, func(p topology.Peer) bool { return p.Store == o.From })
	there := slices.IndexFunc(r.Peers, func(p topology.Peer) bool { return p.Store == o.To })
	r.Peers, r.Conf = slices.Clone(r.Peers), r.Conf+1
	m.moves[o.Why]++
	switch {
	case o.Kind == MoveHome && at == 0 && there > 0:
		r.Peers[0], r.Peers[there] = r.Peers[there], r.Peers[0]
	case o.Kind == MoveReplica && at >= 0 && there < 0:
		if o.Why == Balance && m.moved[r.Peers[at].Replica] {
			return fmt.Errorf("the replica has moved before")
		}
		r.Peers[at] = topology.Peer{Store: o.To, Replica: m.nextID}
		m.moved[m.nextID] = o.Why == Balance
		m.nextID++
	default:
		return fmt.Errorf("the region has %v", r.Peers)
	}
	return nil
}

// run runs rounds until there have been no orders for a while.
func (m *modelCluster) run() (rounds int, err error) {
	for last := 0; rounds-last < 20; rounds++ {
		orders, err := m.round()
		if err != nil {
			return 0, err
		}
		if len(orders) > 0 {
			last = rounds
		}
		if rounds > 5000 {
			return 0, fmt.Errorf("orders do not end")
		}
	}
	return rounds - 20, nil
}

// weights returns what each of the stores has that have replicas, without noise, and the mean.
func (m *modelCluster) weights() (weights []float64, mean float64) {
	weights = make([]float64, len(m.s.Stores))
	for i, r := range m.s.Regions {
		for _, p := range r.Peers {
			weights[p.Store-1] += m.sizes[i] + replicaBytes
			mean += (m.sizes[i] + replicaBytes) / float64(len(weights))
		}
	}
	return weights, mean
}

// fewest returns a bound of how many moves it takes at least to bring all stores from what they have to what is between
// least and most: as many of the largest replicas as fill what is lacking, or as have what is too much.
func (m *modelCluster) fewest(weights []float64, least, most float64) int {
	var all []float64
	for i := range m.s.Regions {
		for range m.s.Regions[i].Peers {
			all = append(all, m.sizes[i]+replicaBytes)
		}
	}
	slices.SortFunc(all, func(a, b float64) int { return cmp.Compare(b, a) })
	lacking, excess := 0.0, 0.0
	for _, w := range weights {
		lacking, excess = lacking+max(0, least-w), excess+max(0, w-most)
	}
	n := 0
	for sum := 0.0; sum < max(lacking, excess) && n < len(all); n++ {
		sum += all[n]
	}
	return n
}

// TestBalance has clusters of random sizes become balanced, with few moves, and then stay as they are, whatever the
// noise.
func TestBalance(t *testing.T) {
	for seed, c := range []struct{ stores, full, regions int }{
		{100, 80, 10_000}, {100, 99, 10_000}, {20, 20, 2000}, {20, 10, 2000}, {9, 8, 500}, {5, 3, 100},
	} {
		if testing.Short() && c.stores == 100 {
			continue
		}
		t.Run(fmt.Sprintf("%d of %d stores are empty", c.stores-c.full, c.stores), func(t *testing.T) {
			m := newModel(uint64(seed), c.stores, c.full, c.regions)
			before, mean := m.weights()
			rounds, err := m.run()
			if err != nil {
				t.Fatal(err)
			}
			after, _ := m.weights()
			least, most := slices.Min(after), slices.Max(after)
			moves := m.moves[Balance]
			fewest := m.fewest(before, least, most)
			t.Logf("seed %d: %d moves in %d rounds, at least %d; %d homes; the stores have %.2f to %.2f of the mean", seed,
				moves, rounds, fewest, m.moves[Leaders], least/mean, most/mean)
			if most-least > 0.25*mean {
				t.Errorf("stores have %.2f to %.2f of the mean; want a difference of 0.2, and some noise", least/mean, most/mean)
			}
			if moves > 3*fewest {
				t.Errorf("%d moves, and %d are possible; want three times as many at most", moves, fewest)
			}
			for i := range 300 {
				if orders, err := m.round(); err != nil || len(orders) > 0 {
					t.Fatalf("%d rounds later: %v, %v; want no orders", i, orders, err)
				}
			}
		})
	}
}

// TestSmallClusters has small clusters with zones, in which stores come, drain, die and come back. Each time orders
// end, and then there are no more of them, whatever the noise.
func TestSmallClusters(t *testing.T) {
	seeds := uint64(100)
	if testing.Short() {
		seeds = 30
	}
	for seed := range seeds {
		random := rand.New(rand.NewPCG(seed, 2))
		n := 4 + random.IntN(6)
		m := newModel(seed, n, 3+random.IntN(n-2), 1+random.IntN(60))
		if random.IntN(2) == 0 {
			for i := range m.s.Stores {
				m.s.Stores[i].Zone = string(rune('a' + random.IntN(4)))
			}
		}
		for i := range m.s.Regions {
			m.s.Regions[i].Commands = 1000 * random.ExpFloat64()
		}
		for step := range 6 {
			st, what := &m.s.Stores[random.IntN(n)], ""
			switch *st = (Store{ID: st.ID, Zone: st.Zone, Free: math.MaxInt64}); random.IntN(5) {
			case 0:
				what, st.Draining = "drains", true
			case 1:
				what, st.Down = "is gone", time.Hour
			case 2:
				what, st.Down = "is down", time.Minute
			case 3:
				what, st.Full = "is full", true
			default:
				what = "is well"
			}
			if _, err := m.run(); err != nil {
				t.Fatalf("seed %d, step %d, store %d %s: %v", seed, step, st.ID, what, err)
			}
			for range 100 {
				if orders, err := m.round(); err != nil || len(orders) > 0 {
					t.Fatalf("seed %d, step %d, store %d %s: %v, %v; want no orders", seed, step, st.ID, what, orders, err)
				}
			}
			if err := m.check(); err != nil {
				t.Fatalf("seed %d, step %d, store %d %s: %v", seed, step, st.ID, what, err)
			}
		}
	}
}

// check returns an error if there is something left to do for stores that are gone or draining, or for zones.
func (m *modelCluster) check() error {
	able := func(s Store) bool { return s.Down == 0 && !s.Full && !s.Draining }
	for i := range m.s.Regions {
		r := &m.s.Regions[i]
		up, zones := 0, map[string]int{}
		for _, p := range r.Peers {
			st := m.s.Stores[p.Store-1]
			if st.Down == 0 {
				up++
			}
			if st.Zone != "" {
				zones[st.Zone]++
			}
		}
		for _, to := range m.s.Stores {
			if !able(to) || r.on(to.ID) || up < 3 && (len(r.Peers) != 3 || up < 2) {
				continue
			}
			for _, p := range r.Peers {
				st := m.s.Stores[p.Store-1]
				switch {
				case up == 3 && st.Draining, up == 2 && st.Down > m.s.Policy.DownAfter:
					return fmt.Errorf("region %d has a replica on store %d, and store %d none", r.ID, p.Store, to.ID)
				case up == 3 && zones[st.Zone] > 1 && zones[to.Zone] == 0:
					return fmt.Errorf("region %d has two replicas in zone %s, and none in zone %s", r.ID, st.Zone, to.Zone)
				}
			}
		}
	}
	return nil
}

// BenchmarkPlan plans for 100 stores and 10,000 regions: when all is balanced, and when 20 stores are empty.
func BenchmarkPlan(b *testing.B) {
	for _, full := range []int{100, 80} {
		b.Run(fmt.Sprintf("%d stores empty", 100-full), func(b *testing.B) {
			m := newModel(1, 100, full, 10_000)
			if full == 100 {
				if _, err := m.run(); err != nil {
					b.Fatal(err)
				}
			}
			s := m.survey()
			b.ResetTimer()
			for b.Loop() {
				m.planner.Preview(s)
			}
		})
	}
}
