package schedule

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

func TestPolicyOf(t *testing.T) {
	s := settings.Default()
	s.Region = settings.RegionKnobs{MaxBytes: 1 << 30, MergeBytes: 1 << 20, SplitLoad: 500}
	p := PolicyOf(&s)
	if p.MaxBytes != 1<<30 || p.MergeBytes != 1<<20 || p.SplitLoad != 500 || p.Fewest != s.Cluster.Regions {
		t.Errorf("PolicyOf = %+v", p)
	}
	s.Cluster.Regions = p.Most
	if err := s.Validate(); err != nil {
		t.Error(err)
	}
	if s.Cluster.Regions++; s.Validate() == nil {
		t.Errorf("cluster.regions may be more than %d, Policy.Most", p.Most)
	}
	for _, c := range []struct {
		load         RegionLoad
		sizes, slots bool
	}{
		{RegionLoad{Bytes: 700 << 20, Commands: 300}, false, false},
		{RegionLoad{Bytes: 800 << 20, Commands: 400}, true, true},
	} {
		if sizes, slots := p.Wants(&c.load); sizes != c.sizes || slots != c.slots {
			t.Errorf("Wants(%+v) = %v, %v; want %v, %v", c.load, sizes, slots, c.sizes, c.slots)
		}
	}
}

// TestDone has orders before and after they were carried out, and where something else has happened.
func TestDone(t *testing.T) {
	survey := func(lines ...string) *Survey {
		s := &Survey{}
		for _, l := range lines {
			if err := addRegion(s, strings.Fields(l)); err != nil {
				t.Fatal(err)
			}
		}
		return s
	}
	split := Order{Kind: SplitRegion, Region: 1, Slot: 8192, Version: 1}
	merge := Order{Kind: MergeRegion, Region: 1, Slot: 8192, Version: 1, Right: 2, RightVersion: 1}
	one, two := survey("1 0-16383"), survey("1 0-8191", "2 8192-16383")
	oneAfter, twoAfter := survey("1 0-16383"), survey("1 0-8191", "2 8192-16383")
	oneAfter.Regions[0].Version = 2
	twoAfter.Regions[0].Version, twoAfter.Regions[1].Version = 2, 2
	other := survey("1 0-99", "3 100-16383")
	other.Regions[0].Version, other.Regions[1].Version = 2, 2
	for _, c := range []struct {
		what        string
		order       Order
		survey      *Survey
		done, stale bool
	}{
		{"a split to come", split, one, false, false},
		{"a split that was made", split, twoAfter, true, true},
		{"a split at another slot", split, other, false, true},
		{"a split of a region that is gone", split, survey("2 0-16383"), false, true},
		{"a merge to come", merge, two, false, false},
		{"a merge that was made", merge, oneAfter, true, true},
		{"a merge of regions that were split", merge, twoAfter, false, true},
	} {
		if done, stale := c.order.Done(c.survey), c.order.Stale(c.survey); done != c.done || stale != c.stale {
			t.Errorf("%s: done %v, stale %v; want %v, %v", c.what, done, stale, c.done, c.stale)
		}
	}
}

// TestPlannerGivesUp has an order that never begins: its region rests, with a note, and then has another order.
func TestPlannerGivesUp(t *testing.T) {
	m := newModel(1, 1, testPolicy())
	m.noise, m.lose = 0, 1
	m.spread(topology.SlotRange{Last: topology.SlotCount - 1}, 2<<30, 0)
	var at []time.Duration
	for m.now.Sub(noon) < 5*time.Minute {
		orders, err := m.round()
		if err != nil {
			t.Fatal(err)
		}
		if len(orders) > 0 {
			at = append(at, m.now.Sub(noon))
		}
	}
	gap := patience + rest
	if len(at) != 2 || at[1]-at[0] < gap || at[1]-at[0] > gap+m.policy.Sustain {
		t.Errorf("orders after %v; want two, %s apart", at, gap)
	}
	if !m.notes["region 1: order failed"] {
		t.Errorf("notes %v; want one of the order that failed", m.notes)
	}
}

// TestPlannerForgets: a new planner, as after a change of meta's leader, plans the same, only later.
func TestPlannerForgets(t *testing.T) {
	m := newModel(1, 1, testPolicy())
	m.noise = 0
	m.spread(topology.SlotRange{Last: topology.SlotCount - 1}, 2<<30, 0)
	for i := range 20 {
		if i == 8 {
			m.planner = Planner{}
		}
		orders, err := m.round()
		if err != nil {
			t.Fatal(err)
		}
		if want := i == 18; (len(orders) == 1) != want {
			t.Errorf("round %d: orders %v", i, orders)
		}
	}
}

func TestPlanChangesNothing(t *testing.T) {
	m := newModel(1, 4, testPolicy())
	m.spread(topology.SlotRange{First: 100, Last: 5000}, 4<<30, 0)
	for range 15 {
		if _, err := m.round(); err != nil {
			t.Fatal(err)
		}
	}
	s := m.measure()
	s.History = m.planner.history
	a, notes := Plan(s)
	b, again := Plan(s)
	if len(a) != len(b) || len(notes) != len(again) {
		t.Errorf("two plans of one survey: %v and %v", a, b)
	}
}

func TestBisectSize(t *testing.T) {
	bytes := func(at map[topology.Slot]uint64) (func(topology.SlotRange) uint64, *int) {
		calls := 0
		return func(r topology.SlotRange) (sum uint64) {
			calls++
			for s, n := range at {
				if r.Contains(s) {
					sum += n
				}
			}
			return sum
		}, &calls
	}
	all := topology.SlotRange{Last: topology.SlotCount - 1}
	if got := BisectSize(all, func(topology.SlotRange) uint64 { return 0 }, 32); len(got) != 0 {
		t.Errorf("nothing: %v", got)
	}
	// A hot slot is found alone.
	size, calls := bytes(map[topology.Slot]uint64{77: 900, 500: 20, 12000: 80})
	hot, share := heaviest(all, BisectSize(all, size, 32))
	if hot.Slots != (topology.SlotRange{First: 77, Last: 77}) || math.Abs(share-0.9) > 1e-9 || *calls > 65 {
		t.Errorf("%v has %.2f after %d calls; want slot 77, 0.9, 65 calls at most", hot, share, *calls)
	}
	// Even data is known in parts of equal size.
	calls = new(int)
	even := BisectSize(all, func(r topology.SlotRange) uint64 { *calls++; return 100 * uint64(r.Count()) }, 31)
	if len(even) != 32 || *calls != 63 {
		t.Errorf("even: %d parts after %d calls; want 32 and 63", len(even), *calls)
	}
	// Bytes that are seen in the whole only: the parts are below what estimates can tell.
	odd := BisectSize(all, func(r topology.SlotRange) uint64 {
		if r.Count() > 4096 {
			return 10
		}
		return 0
	}, 32)
	if c := bestCut(all, odd); len(odd) != 2 || c.slot != 8192 {
		t.Errorf("coarse: %v, cut %v", odd, c)
	}
}

// TestBestCut compares with all cuts, where every weight is a single slot.
func TestBestCut(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for range 2000 {
		first := topology.Slot(random.IntN(100))
		r := topology.SlotRange{First: first, Last: first + topology.Slot(1+random.IntN(40))}
		var weights []Weight
		at := map[topology.Slot]float64{}
		sum := 0.0
		for s := r.First; s <= r.Last; s++ {
			if random.IntN(3) == 0 {
				at[s] = float64(1 + random.IntN(9))
				sum += at[s]
				weights = append(weights, Weight{topology.SlotRange{First: s, Last: s}, at[s]})
			}
		}
		weights = append(weights, Weight{topology.SlotRange{First: 200, Last: 300}, 1e6}) // not of this region
		best, left := 0.0, 0.0
		for s := r.First + 1; s <= r.Last; s++ {
			left += at[s-1]
			best = max(best, min(left, sum-left))
		}
		c := bestCut(r, weights)
		if c.slot <= r.First || c.slot > r.Last {
			t.Fatalf("%v of %v: cut at %d", weights, r, c.slot)
		}
		if sum > 0 && math.Abs(c.lesser()*sum-best) > 1e-9 {
			t.Fatalf("%v of %v: cut at %d leaves %.2f on a side; want %.2f", weights, r, c.slot, c.lesser()*sum, best)
		}
	}
}

func TestSmooth(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	s := Smooth{Over: 30 * time.Second}
	if s.Value() != 0 {
		t.Errorf("Value() = %g before readings", s.Value())
	}
	now := noon
	most := 0.0
	for i := range 10000 {
		now = now.Add(time.Second)
		s.Add(now, 100*(0.9+0.2*random.Float64()))
		if i > 60 {
			most = max(most, math.Abs(s.Value()-100))
		}
	}
	if most > 4 {
		t.Errorf("noise of 10 %% becomes %.1f %%; want 4 at most", most)
	}
	s.Add(now, 1e9)
	if s.Value() > 200 {
		t.Error("a reading of the same time counted")
	}
	// After Over what was before counts 1/e.
	for range 30 {
		now = now.Add(time.Second)
		s.Add(now, 0)
	}
	if v := s.Value(); math.Abs(v-100/math.E) > 3 {
		t.Errorf("%.1f after 30 s of 0; want %.1f", v, 100/math.E)
	}
	// The first reading is one of many.
	s = Smooth{Over: 30 * time.Second}
	for i, x := range []float64{200, 100, 100, 100} {
		s.Add(now.Add(time.Duration(i)*time.Second), x)
	}
	if v := s.Value(); v > 125 {
		t.Errorf("%.1f after 200, 100, 100, 100; want less than their mean", v)
	}
	// A counter that begins anew has no rate.
	c := Smooth{Over: time.Minute}
	for i, x := range []uint64{1000, 1100, 1200, 0, 100, 200} {
		c.AddTotal(now.Add(time.Duration(i)*time.Second), x)
	}
	if v := c.Value(); math.Abs(v-100) > 1e-9 {
		t.Errorf("rate %g; want 100", v)
	}
}

// TestSlotSampler has connections that send a pattern as long as the mean gap: its parts are sampled alike.
func TestSlotSampler(t *testing.T) {
	var s SlotSampler
	const n = 200_000
	for range 4 {
		var tap SlotTap
		for i := range n {
			tap.Count(&s, topology.Slot(i%sampleEvery*100))
		}
	}
	s.Fold(1)
	weights := s.Weights(topology.SlotRange{Last: topology.SlotCount - 1}, sampleEvery)
	sum := 0.0
	for _, w := range weights {
		sum += w.Amount
	}
	if want := 4.0 * n / sampleEvery; math.Abs(sum/want-1) > 0.05 {
		t.Errorf("%.0f samples; want about %.0f", sum, want)
	}
	if len(weights) != sampleEvery {
		t.Fatalf("%d slots; want %d", len(weights), sampleEvery)
	}
	for _, w := range weights {
		if share := w.Amount / sum * sampleEvery; share < 0.6 || share > 1.5 {
			t.Errorf("slot %s has %.2f of its share", w.Slots, share)
		}
	}
	s.Fold(0.5)
	half := 0.0
	for _, w := range s.Weights(topology.SlotRange{Last: topology.SlotCount - 1}, sampleEvery) {
		half += w.Amount
	}
	if math.Abs(half-sum/2) > 1 {
		t.Errorf("%.0f of %.0f samples are left; want one half", half, sum)
	}
}

// TestSampledWeights: not more weights than asked for, nothing lost, and hot slots by themselves.
func TestSampledWeights(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 1))
	for range 200 {
		var s SlotSampler
		sum := 0.0
		r := topology.SlotRange{First: topology.Slot(random.IntN(8000)), Last: topology.Slot(8000 + random.IntN(8384))}
		for range random.IntN(3000) {
			slot := topology.Slot(random.IntN(topology.SlotCount))
			n := random.ExpFloat64() * 100
			s.heat[slot] += float32(n)
		}
		for i := r.First; i <= r.Last; i++ {
			sum += float64(s.heat[i])
		}
		most := 1 + random.IntN(64)
		weights, got := s.Weights(r, most), 0.0
		single := map[topology.Slot]bool{}
		for _, w := range weights {
			got += w.Amount
			single[w.Slots.First] = w.Slots.Count() == 1
		}
		if len(weights) > most || math.Abs(got-sum) > 1e-6*sum || len(within(r, weights)) != len(weights) {
			t.Fatalf("%d weights with %.3f of %.3f; want %d at most, sorted, inside %s", len(weights), got, sum, most, r)
		}
		for i := r.First; i <= r.Last; i++ {
			if float64(s.heat[i]) > 2.001*sum/float64(most) && !single[i] {
				t.Fatalf("slot %d has %g of %g and no weight of its own among %d", i, s.heat[i], sum, most)
			}
		}
	}
}

func TestSamplerAllocatesNothing(t *testing.T) {
	var s SlotSampler
	var tap SlotTap
	if n := testing.AllocsPerRun(1000, func() { tap.Count(&s, 7) }); n != 0 {
		t.Errorf("%g allocations", n)
	}
}

func BenchmarkSlotTap(b *testing.B) {
	var s SlotSampler
	b.RunParallel(func(pb *testing.PB) {
		var tap SlotTap
		for slot := topology.Slot(0); pb.Next(); slot++ {
			tap.Count(&s, slot%topology.SlotCount)
		}
	})
}

// BenchmarkSlotTapHot has all connections in one slot.
func BenchmarkSlotTapHot(b *testing.B) {
	var s SlotSampler
	b.RunParallel(func(pb *testing.PB) {
		var tap SlotTap
		for pb.Next() {
			tap.Count(&s, 77)
		}
	})
}

func BenchmarkFold(b *testing.B) {
	var s SlotSampler
	random := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		for range 1000 {
			s.fresh[random.IntN(topology.SlotCount)].Add(1)
		}
		s.Fold(0.97)
	}
}

// BenchmarkPlan has 1,024 regions of which none is due.
func BenchmarkPlan(b *testing.B) {
	p := testPolicy()
	p.Fewest = 1024
	m := newModel(1, 1024, p)
	m.spread(topology.SlotRange{Last: topology.SlotCount - 1}, 1<<30, 1000)
	s := m.measure()
	var planner Planner
	b.ReportAllocs()
	for b.Loop() {
		s.Now = s.Now.Add(time.Second)
		planner.Plan(s)
	}
}
