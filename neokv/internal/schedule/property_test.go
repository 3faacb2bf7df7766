package schedule

import (
	"errors"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "run this seed of the random clusters alone")
	seedsFlag = flag.Int("seeds", 25, "how many random clusters to run")
)

// TestRandomClusters runs random clusters, whose bytes and load stay where they are, until nothing happens any more.
// All the time the regions are a partition, no slot is split, no bound that has come goes again or the other way round, and
// each order is for what is really so, noise apart. Then nothing happens for 1,000 rounds more.
func TestRandomClusters(t *testing.T) {
	first, n := uint64(1), *seedsFlag
	if *seedFlag > 0 {
		first, n = *seedFlag, 1
	}
	if testing.Short() { // it has one goroutine: the race detector only makes it slow
		n = min(n, 2)
	}
	for seed := first; seed < first+uint64(n); seed++ {
		if err := runRandom(t, seed); err != nil {
			t.Errorf("%v\nagain: go test ./neokv/internal/schedule -run TestRandomClusters -seed %d", err, seed)
		}
	}
}

func runRandom(t *testing.T, seed uint64) error {
	random := rand.New(rand.NewPCG(seed, 2))
	p := testPolicy()
	p.MaxBytes = settings.Bytes(1+random.IntN(64)) << 24
	p.MergeBytes = []settings.Bytes{0, p.MaxBytes / 4, p.MaxBytes / 100}[random.IntN(3)]
	p.SplitLoad = []float64{0, 20000, 2000}[random.IntN(3)]
	p.MergeLoad = []float64{quiet, 1e9}[random.IntN(2)]
	p.AtOnce = 1 + random.IntN(4)
	p.Fewest, p.Most = 1+random.IntN(4), 20+random.IntN(40)
	m := newModel(seed, 1+random.IntN(12), p)
	m.lose = []float64{0, 0, 0.2}[random.IntN(3)]
	m.beat = time.Second * time.Duration(1+random.IntN(3))
	for range 1 + random.IntN(8) {
		a := random.IntN(topology.SlotCount)
		b := a
		if random.IntN(3) > 0 {
			b = min(topology.SlotCount-1, a+int(math.Exp(random.Float64()*math.Log(topology.SlotCount))))
		}
		m.spread(topology.SlotRange{First: topology.Slot(a), Last: topology.Slot(b)},
			float64(p.MaxBytes)*4*random.ExpFloat64(), 30000*random.ExpFloat64())
	}
	came, went := map[topology.Slot]bool{}, map[topology.Slot]bool{}
	m.check = func(s Survey, o Order) error {
		r := s.Regions[s.index(o.Region)]
		bytes, load := m.trueLoad(r.Slots)
		if len(m.planner.open) > p.AtOnce {
			return errors.New("more orders than may be")
		}
		if o.Kind == SplitRegion {
			if went[o.Slot] {
				return errors.New("it undoes a merge")
			}
			came[o.Slot] = true
			large := bytes > 0.95*float64(p.MaxBytes)
			busy := p.SplitLoad > 0 && load > 0.95*p.SplitLoad
			if !large && !busy {
				return fmt.Errorf("it has %s and %s", sizeText(bytes), loadText(load))
			}
			if len(m.regions) >= p.Most {
				return errors.New("there are too many regions")
			}
			return nil
		}
		if came[o.Slot] {
			return errors.New("it undoes a split")
		}
		went[o.Slot] = true
		more, busier := m.trueLoad(s.Regions[s.index(o.Right)].Slots)
		if bytes+more > 1.05*p.mergeBytes() || load+busier > 1.05*p.mergeLoad() {
			return fmt.Errorf("together they have %s and %s", sizeText(bytes+more), loadText(load+busier))
		}
		if len(m.regions) <= p.Fewest {
			return errors.New("there are too few regions")
		}
		return nil
	}
	count := 0
	if err := m.settle(func(Order) { count++ }); err != nil {
		return fmt.Errorf("seed %d: %w", seed, err)
	}
	// What lies within 5 % of a limit may still cross it by noise, once: then it counts as what it looks like.
	near := func(x, limit float64) bool { return limit > 0 && math.Abs(x/limit-1) < 0.05 }
	for range 1000 {
		orders, err := m.round()
		if err != nil {
			return fmt.Errorf("seed %d: %w", seed, err)
		}
		for _, o := range orders {
			bytes, load := 0.0, 0.0
			for _, id := range []topology.RegionID{o.Region, o.Right} {
				if r := m.region(id); r != nil {
					b, l := m.trueLoad(r.Slots)
					bytes, load = bytes+b, load+l
				}
			}
			if !near(bytes, float64(p.MaxBytes)) && !near(load, p.SplitLoad) && !near(bytes, p.mergeBytes()) &&
				!near(load, p.mergeLoad()) {
				return fmt.Errorf("seed %d: an order after convergence: %s", seed, o)
			}
		}
	}
	// What is still over a limit has a note that says why.
	for _, r := range m.regions {
		bytes, load := m.trueLoad(r.Slots)
		over := bytes > 1.03*float64(p.MaxBytes) || p.SplitLoad > 0 && load > 1.03*p.SplitLoad
		told := false
		for _, kind := range []NoteKind{HotSlot, LargeSlot, NoRoom, NoSamples} {
			told = told || m.notes[fmt.Sprintf("region %d: %s", r.ID, kind)]
		}
		if over && !told {
			return fmt.Errorf("seed %d: region %d %s has %s and %s, and no note", seed, r.ID, r.Slots, sizeText(bytes),
				loadText(load))
		}
	}
	t.Logf("seed %d: %d orders, %d regions, %d notes", seed, count, len(m.regions), len(m.notes))
	return nil
}
