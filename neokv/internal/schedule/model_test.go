package schedule

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// modelCluster is a cluster in which bytes and load belong to slots and do not change. Each round is a heartbeat: every
// region is measured, with noise, and the planner's orders begin. An order takes two rounds, and some are lost.
type modelCluster struct {
	random  *rand.Rand
	planner Planner
	policy  Policy
	noise   float64 // of each reading: 0.1 is evenly -10 % to +10 %
	lose    float64 // the share of orders that never begin
	now     time.Time
	beat    time.Duration

	bytes, load [topology.SlotCount]float64
	loadUpTo    [topology.SlotCount + 1]float64
	sampler     SlotSampler

	regions []modelRegion
	nextID  topology.RegionID
	doing   []modelChange
	notes   map[string]bool

	// check hears of each order before it is taken, and of the survey that it was made from.
	check func(Survey, Order) error
}

type modelRegion struct {
	Surveyed
	bytes, commands Smooth
}

// modelChange is an order that is being carried out.
type modelChange struct {
	Order
	until time.Time
}

// newModel has n regions of equal size.
func newModel(seed uint64, n int, p Policy) *modelCluster {
	m := &modelCluster{random: rand.New(rand.NewPCG(seed, 1)), policy: p, now: noon, beat: time.Second, noise: 0.1,
		notes: map[string]bool{}}
	for _, r := range topology.SplitEvenly(n) {
		m.nextID++
		m.regions = append(m.regions, modelRegion{Surveyed: Surveyed{ID: m.nextID, Slots: r, Version: 1,
			Stores: []topology.StoreID{1, 2, 3}}})
	}
	return m
}

// spread adds bytes and load, evenly over slots.
func (m *modelCluster) spread(r topology.SlotRange, bytes, load float64) {
	for s := int(r.First); s <= int(r.Last); s++ {
		m.bytes[s] += bytes / float64(r.Count())
		m.load[s] += load / float64(r.Count())
	}
	for s, x := range m.load {
		m.loadUpTo[s+1] = m.loadUpTo[s] + x
	}
}

// trueLoad is what a region has without noise.
func (m *modelCluster) trueLoad(r topology.SlotRange) (bytes, load float64) {
	for s := int(r.First); s <= int(r.Last); s++ {
		bytes, load = bytes+m.bytes[s], load+m.load[s]
	}
	return bytes, load
}

func (m *modelCluster) noisy(x float64) float64 { return x * (1 + m.noise*(2*m.random.Float64()-1)) }

// measure reads all regions, as stores do.
func (m *modelCluster) measure() Survey {
	// What the clients send is sampled as the servers do it, but for no more than a few hundred samples a round.
	total := m.loadUpTo[topology.SlotCount]
	for range min(int(total*m.beat.Seconds()/sampleEvery), 300) {
		x := m.random.Float64() * total
		i, _ := slices.BinarySearch(m.loadUpTo[1:], x)
		m.sampler.fresh[min(i, topology.SlotCount-1)].Add(1)
	}
	m.sampler.Fold(1 - m.beat.Seconds()/30)
	s := Survey{Now: m.now, Policy: m.policy, Alive: map[topology.StoreID]bool{1: true, 2: true, 3: true}}
	for i := range m.regions {
		r := &m.regions[i]
		if r.Load.Version != r.Version {
			r.Load, r.bytes, r.commands = RegionLoad{Version: r.Version}, Smooth{Over: 30 * time.Second},
				Smooth{Over: 30 * time.Second}
		}
		bytes, load := m.trueLoad(r.Slots)
		r.bytes.Add(m.now, m.noisy(bytes))
		r.commands.Add(m.now, m.noisy(load))
		r.Load.Bytes, r.Load.Commands = r.bytes.Value(), r.commands.Value()
		r.Load.Sizes, r.Load.Slots = nil, nil
		sizes, slots := m.policy.Wants(&r.Load)
		if sizes {
			r.Load.Sizes = BisectSize(r.Slots, func(part topology.SlotRange) uint64 {
				bytes, _ := m.trueLoad(part)
				return uint64(m.noisy(bytes))
			}, 32)
		}
		if slots {
			r.Load.Slots = m.sampler.Weights(r.Slots, 64)
		}
		s.Regions = append(s.Regions, r.Surveyed)
	}
	return s
}

// round is a heartbeat. It returns the new orders.
func (m *modelCluster) round() ([]Order, error) {
	m.now = m.now.Add(m.beat)
	for len(m.doing) > 0 && !m.doing[0].until.After(m.now) {
		if err := m.apply(m.doing[0].Order); err != nil {
			return nil, err
		}
		m.doing = m.doing[1:]
	}
	s := m.measure()
	orders, notes := m.planner.Plan(s)
	for _, n := range notes {
		m.notes[fmt.Sprintf("region %d: %s", n.Region, n.About)] = true
	}
	if open := len(m.planner.Open()); open > m.policy.AtOnce {
		return nil, fmt.Errorf("%d orders are open; want %d at most", open, m.policy.AtOnce)
	}
	for _, o := range orders {
		if m.check != nil {
			if err := m.check(s, o); err != nil {
				return nil, fmt.Errorf("%s: %w", o, err)
			}
		}
		if m.random.Float64() < m.lose {
			continue
		}
		for _, id := range []topology.RegionID{o.Region, o.Right} {
			if r := m.region(id); r != nil {
				if r.Changing {
					return nil, fmt.Errorf("%s: region %d is changing already", o, id)
				}
				r.Changing = true
			}
		}
		m.doing = append(m.doing, modelChange{o, m.now.Add(2 * m.beat)})
	}
	return orders, m.partition()
}

func (m *modelCluster) region(id topology.RegionID) *modelRegion {
	i := slices.IndexFunc(m.regions, func(r modelRegion) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &m.regions[i]
}

// apply ends an order as the regions' logs would.
func (m *modelCluster) apply(o Order) error {
	i := slices.IndexFunc(m.regions, func(r modelRegion) bool { return r.ID == o.Region })
	if i < 0 || m.regions[i].Version != o.Version {
		return fmt.Errorf("%s: version %d: not that of the region", o, o.Version)
	}
	r := &m.regions[i]
	r.Changing, r.ChangedAt = false, m.now
	if o.Kind == SplitRegion {
		if o.Slot <= r.Slots.First || o.Slot > r.Slots.Last {
			return fmt.Errorf("%s: the region has the slots %s", o, r.Slots)
		}
		r.Version++
		child := *r
		m.nextID++
		child.ID, child.Slots.First, child.Load = m.nextID, o.Slot, RegionLoad{}
		r.Slots.Last = o.Slot - 1
		m.regions = slices.Insert(m.regions, i+1, child)
		return nil
	}
	if i+1 == len(m.regions) || m.regions[i+1].ID != o.Right {
		return fmt.Errorf("%s: region %d is not its right neighbour", o, o.Right)
	}
	right := m.regions[i+1]
	r.Slots.Last, r.Version = right.Slots.Last, max(r.Version, right.Version)+1
	m.regions = slices.Delete(m.regions, i+1, i+2)
	return nil
}

// partition checks that the regions are a partition of the slots.
func (m *modelCluster) partition() error {
	next := 0
	for _, r := range m.regions {
		if int(r.Slots.First) != next || r.Slots.Last < r.Slots.First {
			return fmt.Errorf("region %d has the slots %s; want them to begin at %d", r.ID, r.Slots, next)
		}
		next = int(r.Slots.Last) + 1
	}
	if next != topology.SlotCount {
		return fmt.Errorf("the regions end at slot %d", next)
	}
	return nil
}

// settle runs rounds until there have been no orders for a time, which is longer than any cool-down.
func (m *modelCluster) settle(hear func(Order)) error {
	quiet := m.policy.Cooldown + m.policy.Calm + rest + 5*time.Minute
	last := m.now
	for m.now.Sub(last) < quiet {
		orders, err := m.round()
		if err != nil {
			return err
		}
		for _, o := range orders {
			hear(o)
			last = m.now
		}
		if m.now.Sub(noon) > 48*time.Hour {
			return errors.New("orders do not end")
		}
	}
	return nil
}

// runRounds runs a model of a cluster. See rounds.txt.
func runRounds(lines []string) (string, error) {
	p := testPolicy()
	var m *modelCluster
	var out strings.Builder
	start := noon
	hear := func(o Order) {
		head, _, _ := strings.Cut(o.String(), "; ")
		fmt.Fprintf(&out, "%7s %s\n", m.now.Sub(start), head)
	}
	for _, line := range lines {
		words := strings.Fields(line)
		var err error
		switch rest := words[1:]; words[0] {
		case "policy":
			err = setPolicy(&p, rest)
		case "cluster":
			seed, _ := strconv.Atoi(rest[1])
			n, _ := strconv.Atoi(rest[0])
			m = newModel(uint64(seed), n, p)
		case "lose":
			m.lose, err = strconv.ParseFloat(rest[0], 64)
		case "load":
			var r topology.SlotRange
			var bytes, load float64
			if r, err = parseSlots(rest[0]); err == nil {
				if bytes, err = parseSize(rest[1]); err == nil {
					load, err = strconv.ParseFloat(strings.TrimSuffix(rest[2], "/s"), 64)
				}
			}
			m.spread(r, bytes, load)
		case "empty":
			m.bytes, m.load = [topology.SlotCount]float64{}, [topology.SlotCount]float64{}
			m.spread(topology.SlotRange{Last: topology.SlotCount - 1}, 0, 0)
		case "settle":
			start = m.now
			if err = m.settle(hear); err == nil {
				err = m.summary(&out)
			}
		default:
			err = errors.New("unknown line")
		}
		if err != nil {
			return out.String(), fmt.Errorf("%s: %w", line, err)
		}
	}
	return out.String(), nil
}

// summary prints what has come of it, and runs 1,000 rounds more, in which nothing must happen.
func (m *modelCluster) summary(out *strings.Builder) error {
	m.notes = map[string]bool{}
	for range 1000 {
		orders, err := m.round()
		if err != nil {
			return err
		}
		for _, o := range orders {
			return fmt.Errorf("an order after convergence: %s", o)
		}
	}
	mostBytes, mostLoad := 0.0, 0.0
	for _, r := range m.regions {
		bytes, load := m.trueLoad(r.Slots)
		mostBytes, mostLoad = max(mostBytes, bytes), max(mostLoad, load)
	}
	fmt.Fprintf(out, "settled, and 1000 rounds without an order: %d regions, the largest with %s, the busiest with %s\n",
		len(m.regions), sizeText(mostBytes), loadText(mostLoad))
	var notes []string
	for n := range m.notes {
		notes = append(notes, n)
	}
	slices.Sort(notes)
	for _, n := range notes {
		fmt.Fprintf(out, "note %s\n", n)
	}
	return nil
}
