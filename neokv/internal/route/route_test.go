package route

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/topology"
)

// table has three stores and four regions: led by 1, led by 2, led by nobody, led by 3, which is dead. Slots from 16000
// are in none.
func table() *Table {
	peers := []topology.Peer{{Store: 1, Replica: 1}, {Store: 2, Replica: 2}, {Store: 3, Replica: 3}}
	region := func(id topology.RegionID, first, last topology.Slot, leader topology.StoreID) LedRegion {
		return LedRegion{Region: topology.Region{ID: id, Slots: topology.SlotRange{First: first, Last: last},
			Peers: peers}, Leader: leader}
	}
	return NewTable(7,
		[]PublicStore{{ID: 3, Host: "h3", Port: 7003}, {ID: 1, Host: "h1", Port: 7001, Alive: true},
			{ID: 2, Host: "h2", Port: 7002, Alive: true}},
		[]LedRegion{region(2, 4096, 8191, 2), region(1, 0, 4095, 1), region(3, 8192, 12287, 0),
			region(4, 12288, 15999, 3)})
}

func (d Decision) text() string {
	switch d.Action {
	case Serve:
		return "serve"
	case Wait:
		return "wait"
	}
	var to announce.Addr
	if d.To != nil {
		to = announce.Addr{Endpoint: d.To.Host, Port: d.To.Port}
	}
	return string(d.AppendError(nil, to))
}

func TestHome(t *testing.T) {
	x := table()
	for i, want := range []topology.StoreID{1, 2, 1, 1} { // none leads region 3, and the dead store 3 region 4
		if got := x.Home(&x.Regions[i]); got == nil || got.ID != want {
			t.Errorf("home of region %d: %+v, want store %d", x.Regions[i].ID, got, want)
		}
	}
	x.Stores[0].Alive, x.Stores[1].Alive = false, false
	if got := x.Home(&x.Regions[0]); got != nil {
		t.Errorf("home of a region without a store that is alive: %+v", got)
	}
}

func TestDecide(t *testing.T) {
	const cross = "CROSSSLOT Keys in request don't hash to the same slot"
	const down = "CLUSTERDOWN Hash slot not served"
	for _, c := range []struct {
		self  topology.StoreID
		slots []topology.Slot
		want  string
		index int
	}{
		{1, []topology.Slot{0}, "serve", 0},
		{1, []topology.Slot{4095, 4095}, "serve", 0},
		{1, []topology.Slot{4095, 4094}, cross, -1},
		{1, []topology.Slot{4096}, "MOVED 4096 h2:7002", 1},
		{1, []topology.Slot{4096, 4097}, cross, -1},
		{2, []topology.Slot{4095}, "MOVED 4095 h1:7001", 0},
		{1, []topology.Slot{8192}, "wait", 2},
		{1, []topology.Slot{12288}, "wait", 3},
		{3, []topology.Slot{12288}, "serve", 3},
		{1, []topology.Slot{16000}, down, -1},
		{1, []topology.Slot{16383, 0}, cross, -1},
		{0, []topology.Slot{0}, "serve", 0},
		{0, []topology.Slot{0, 4095, 17}, "serve", 0},
		{0, []topology.Slot{4095, 4096}, cross, 0},
		{0, []topology.Slot{4096}, "serve", 1},
		{0, []topology.Slot{8192}, "wait", 2},
		{0, []topology.Slot{12288}, "serve", 3},
		{0, []topology.Slot{16383}, down, -1},
	} {
		d := Decide(table(), Port{Store: c.self}, c.slots, false)
		if d.text() != c.want || d.Index != c.index {
			t.Errorf("Decide(self %d, slots %v) = %s, region index %d; want %s, %d", c.self, c.slots, d.text(), d.Index,
				c.want, c.index)
		}
	}
	if d := Decide(nil, Port{Store: 1}, []topology.Slot{1}, false); d.Action != Wait {
		t.Errorf("Decide without a table = %s, want wait", d.text())
	}
	if d := Decide(nil, Port{Store: 1}, []topology.Slot{1, 2}, false); d.Action != CrossSlot {
		t.Errorf("Decide without a table, two slots = %s, want %s", d.text(), cross)
	}
}

// TestDecideFollowing has readers that any replica of the store may serve. Store 4 has none.
func TestDecideFollowing(t *testing.T) {
	for _, c := range []struct {
		self    topology.StoreID
		replica bool // at its second address
		slots   []topology.Slot
		want    string
		follow  bool
	}{
		{1, false, []topology.Slot{0}, "serve", false},
		{1, false, []topology.Slot{4096}, "serve", true},
		{1, false, []topology.Slot{4096, 4096}, "serve", true},
		{1, false, []topology.Slot{4096, 4097}, "CROSSSLOT Keys in request don't hash to the same slot", false},
		{1, false, []topology.Slot{8192}, "wait", false},
		{1, false, []topology.Slot{12288}, "serve", true},
		{4, false, []topology.Slot{0}, "MOVED 0 h1:7001", false},
		{4, false, []topology.Slot{12288}, "wait", false},
		{1, false, []topology.Slot{16000}, "CLUSTERDOWN Hash slot not served", false},
		{0, false, []topology.Slot{0}, "serve", false},
		{1, true, []topology.Slot{0}, "MOVED 0 h1:7001", false}, // though it leads
		{1, true, []topology.Slot{4096}, "serve", true},
		{1, true, []topology.Slot{4096, 4097}, "CROSSSLOT Keys in request don't hash to the same slot", false},
		{1, true, []topology.Slot{8192}, "wait", false},
		{1, true, []topology.Slot{12288}, "serve", true},
		{3, true, []topology.Slot{12288}, "wait", false}, // it leads, and counts as dead
		{4, true, []topology.Slot{0}, "MOVED 0 h1:7001", false},
		{4, true, []topology.Slot{12288}, "wait", false},
	} {
		if d := Decide(table(), Port{c.self, c.replica}, c.slots, true); d.text() != c.want || d.Follow != c.follow {
			t.Errorf("Decide(self %d, replica %v, slots %v, follow) = %s, follow %v; want %s, %v", c.self, c.replica, c.slots,
				d.text(), d.Follow, c.want, c.follow)
		}
	}
	for _, c := range []struct {
		port Port
		want []topology.RegionID
	}{
		{Port{}, []topology.RegionID{1, 2, 3, 4}},
		{Port{Store: 1}, []topology.RegionID{1}},
		{Port{1, true}, []topology.RegionID{2, 3, 4}},
		{Port{4, true}, nil},
	} {
		var got []topology.RegionID
		for _, r := range table().Regions {
			if c.port.Covers(&r) {
				got = append(got, r.ID)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%+v covers regions %v, want %v", c.port, got, c.want)
		}
	}
}

// TestFollowers: the replicas of a region are the second addresses of the stores that have one and do not serve as its
// home, dead ones too.
func TestFollowers(t *testing.T) {
	x := table()
	for i := range x.Regions {
		if all := x.Followers(&x.Regions[i]); all != nil {
			t.Errorf("region %d has replicas without a second address: %v", i+1, all)
		}
	}
	x.Stores[0].ReplicaPort, x.Stores[1].ReplicaPort, x.Stores[2].ReplicaPort = 7004, 7005, 7006
	for i, want := range [][]topology.StoreID{{2, 3}, {1, 3}, {2, 3}, {2, 3}} {
		var got []topology.StoreID
		for _, s := range x.Followers(&x.Regions[i]) {
			got = append(got, s.ID)
		}
		if !slices.Equal(got, want) {
			t.Errorf("replicas of region %d: %v, want %v", i+1, got, want)
		}
	}
	ids := map[string]bool{}
	for i := range x.Stores {
		x.Stores[i].NodeID = strings.Repeat(fmt.Sprint(i), 40)
		ids[x.Stores[i].NodeID], ids[x.Stores[i].ReplicaID()] = true, true
		if len(x.Stores[i].ReplicaID()) != 40 {
			t.Errorf("node id of a second address: %q, want 40 hex digits", x.Stores[i].ReplicaID())
		}
	}
	if len(ids) != 6 {
		t.Errorf("three stores have %d different ids, want 6", len(ids))
	}
}

func TestUnserved(t *testing.T) {
	const down = "CLUSTERDOWN Hash slot not served"
	for _, c := range []struct {
		name   string
		change func(*Table)
		self   topology.StoreID
		slot   topology.Slot
		want   []string
	}{
		{"a quorum is heard", nil, 1, 8192, []string{down, down, down}},
		{"a quorum is heard, the leader is dead", nil, 1, 12288, []string{down, down}},
		{"the leader answers nothing here", nil, 1, 4096, []string{"MOVED 4096 h2:7002", "MOVED 4096 h2:7002"}},
		{"this store leads and cannot serve", nil, 2, 4096, []string{down, down}},
		{"meta knows a leader", func(t *Table) { t.Regions[2].Told = 2 }, 1, 8192,
			[]string{"MOVED 8192 h2:7002", "MOVED 8192 h2:7002"}},
		{"meta knows a dead leader", func(t *Table) { t.Regions[2].Told = 3 }, 1, 8192, []string{down, down}},
		{"cut off", func(t *Table) { t.Alone = true }, 1, 8192, []string{"MOVED 8192 h2:7002", "MOVED 8192 h2:7002"}},
		{"cut off, the leader is held to be dead", func(t *Table) { t.Alone = true }, 1, 12288,
			[]string{"MOVED 12288 h3:7003", "MOVED 12288 h2:7002", "MOVED 12288 h3:7003"}},
		{"cut off as the leader", func(t *Table) { t.Alone = true }, 2, 4096,
			[]string{"MOVED 4096 h1:7001", "MOVED 4096 h1:7001"}},
		{"cut off, all alive", func(t *Table) { t.Alone = true }, 3, 8192,
			[]string{"MOVED 8192 h1:7001", "MOVED 8192 h2:7002", "MOVED 8192 h1:7001"}},
		{"no quorum is alive", func(t *Table) { t.Stores[1].Alive = false }, 1, 12288,
			[]string{"MOVED 12288 h3:7003", down}},
		{"no quorum is alive, no leader known", func(t *Table) { t.Stores[1].Alive = false }, 1, 8192,
			[]string{down, down}},
		{"the proxy port", func(t *Table) { t.Alone = true }, 0, 8192, []string{down, down}},
		{"no region", func(t *Table) { t.Alone = true }, 1, 16000, []string{down, down}},
	} {
		x := table()
		if c.change != nil {
			c.change(x)
		}
		for turn, want := range c.want {
			if got := Unserved(x, c.self, c.slot, uint64(turn)).text(); got != want {
				t.Errorf("%s: Unserved(self %d, slot %d, turn %d) = %s, want %s", c.name, c.self, c.slot, turn, got,
					want)
			}
		}
	}
	if got := Unserved(nil, 1, 5, 0).text(); got != down {
		t.Errorf("Unserved without a table = %s", got)
	}
}

func TestTable(t *testing.T) {
	x := table()
	if r, i := x.Region(4095); r.ID != 1 || i != 0 {
		t.Errorf("slot 4095 is in region %d at %d", r.ID, i)
	}
	if r, i := x.Region(16383); r != nil || i != -1 {
		t.Errorf("slot 16383 is in a region")
	}
	if x.ByID(4).Leader != 3 || x.ByID(9) != nil {
		t.Error("ByID")
	}
	if x.Store(3).Port != 7003 || x.Store(4) != nil || x.Store(0) != nil {
		t.Error("Store")
	}
	y := NewTable(1, nil, []LedRegion{
		{Region: topology.Region{ID: 1, Slots: topology.SlotRange{First: 0, Last: 9}}, Leader: 1},
		{Region: topology.Region{ID: 2, Slots: topology.SlotRange{First: 10, Last: 19}}, Leader: 1},
		{Region: topology.Region{ID: 3, Slots: topology.SlotRange{First: 20, Last: 29}}},
		{Region: topology.Region{ID: 4, Slots: topology.SlotRange{First: 30, Last: 30}}, Leader: 1},
	})
	if got := y.Led(1); len(got) != 2 || got[0].String() != "0-19" || got[1].String() != "30" {
		t.Errorf("Led(1) = %v", got)
	}
	if got := y.Led(0); got != nil {
		t.Errorf("Led(0) = %v", got)
	}
}

// span is a region of the given version that is led by the store of its id.
func span(id topology.RegionID, version uint64, first, last topology.Slot) LedRegion {
	return LedRegion{Region: topology.Region{ID: id, Version: version,
		Slots: topology.SlotRange{First: first, Last: last}}, Leader: topology.StoreID(id)}
}

// TestTableOverlaps has what a store may know while bounds change.
func TestTableOverlaps(t *testing.T) {
	for _, c := range []struct {
		name    string
		regions []LedRegion
		want    string // region:slots
	}{
		{"the child alone is known", []LedRegion{span(1, 1, 0, 99), span(7, 2, 50, 99)}, "1:0-49 7:50-99"},
		{"the parent alone is known", []LedRegion{span(1, 2, 0, 49), span(2, 1, 100, 199)}, "1:0-49 2:100-199"},
		{"a child in the middle", []LedRegion{span(7, 3, 40, 59), span(1, 1, 0, 99)}, "1:0-39 7:40-59 1:60-99"},
		{"a merge", []LedRegion{span(1, 5, 0, 199), span(2, 4, 100, 199)}, "1:0-199"},
		{"a merge with a part of a region", []LedRegion{span(1, 5, 0, 149), span(2, 4, 100, 199)}, "1:0-149 2:150-199"},
		{"equal versions", []LedRegion{span(2, 1, 5, 9), span(1, 1, 0, 6)}, "1:0-6 2:7-9"},
		{"equal versions and places", []LedRegion{span(2, 1, 0, 9), span(1, 1, 0, 9)}, "1:0-9"},
		{"three on one slot", []LedRegion{span(1, 1, 7, 7), span(2, 3, 7, 7), span(3, 2, 7, 7)}, "2:7"},
		{"all slots and the last", []LedRegion{span(1, 1, 0, 16383), span(2, 2, 16383, 16383)}, "1:0-16382 2:16383"},
		{"none", nil, ""},
	} {
		slices.Reverse(c.regions)
		given := slices.Clone(c.regions)
		x := NewTable(1, nil, c.regions)
		var got []string
		for i := range x.Regions {
			got = append(got, fmt.Sprintf("%d:%s", x.Regions[i].ID, x.Regions[i].Slots))
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: %s; want %s", c.name, s, c.want)
		}
		if !reflect.DeepEqual(given, c.regions) {
			t.Errorf("%s: NewTable has changed what it was given", c.name)
		}
	}
	x := NewTable(1, []PublicStore{{ID: 1, Alive: true, Host: "h", Port: 1}},
		[]LedRegion{span(7, 3, 40, 59), span(1, 1, 0, 99)})
	if got := x.Led(1); len(got) != 2 || got[0].String() != "0-39" || got[1].String() != "60-99" {
		t.Errorf("Led(1) = %v", got)
	}
	if got := x.ByID(1); got == nil || got.Slots.Last != 39 {
		t.Errorf("ByID(1) = %+v; want the first entry", got)
	}
	if d := Decide(x, Port{}, []topology.Slot{10, 70}, false); d.Action != CrossSlot {
		t.Errorf("keys on both sides of a newer region: %s", d.text())
	}
	if d := Decide(x, Port{}, []topology.Slot{70, 80}, false); d.Action != Serve || d.Index != 2 {
		t.Errorf("keys in the second entry: %s, index %d", d.text(), d.Index)
	}
}

// TestTableOverlapsRandom compares tables of random regions with a loop over all regions for each slot.
func TestTableOverlapsRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	for range 300 {
		regions := make([]LedRegion, random.IntN(30))
		width := 1 + random.IntN(topology.SlotCount)
		for i := range regions {
			first := random.IntN(topology.SlotCount)
			last := min(first+random.IntN(width), topology.SlotCount-1)
			regions[i] = span(topology.RegionID(1+random.IntN(20)), uint64(random.IntN(4)), topology.Slot(first),
				topology.Slot(last))
		}
		x := NewTable(1, nil, regions)
		next := 0
		for i := range x.Regions {
			r := &x.Regions[i]
			if int(r.Slots.First) < next || r.Slots.Last < r.Slots.First {
				t.Fatalf("seed %d: entry %d has slots %s; want some from %d", seed, i, r.Slots, next)
			}
			next = int(r.Slots.Last) + 1
		}
		for s := range topology.Slot(topology.SlotCount) {
			var want *LedRegion
			for i := range regions {
				r := &regions[i]
				if r.Slots.Contains(s) && (want == nil || r.Version > want.Version ||
					r.Version == want.Version && r.ID < want.ID) {
					want = r
				}
			}
			got, _ := x.Region(s)
			if (got == nil) != (want == nil) || got != nil && (got.ID != want.ID || got.Version != want.Version ||
				!got.Slots.Contains(s)) {
				t.Fatalf("seed %d: slot %d is in %+v; want %+v", seed, s, got, want)
			}
		}
	}
}

// BenchmarkNewTable makes the table of 1,024 regions, alone and where one of them overlaps its neighbour.
func BenchmarkNewTable(b *testing.B) {
	var regions []LedRegion
	for i, slots := range topology.SplitEvenly(1024) {
		regions = append(regions, span(topology.RegionID(i+1), 1, slots.First, slots.Last))
	}
	overlap := slices.Clone(regions)
	overlap[500].Slots.Last, overlap[500].Version = overlap[501].Slots.First, 2
	for name, regions := range map[string][]LedRegion{"disjoint": regions, "overlapping": overlap} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				NewTable(1, nil, regions)
			}
		})
	}
}

func BenchmarkDecide(b *testing.B) {
	x, slots := table(), []topology.Slot{77}
	for b.Loop() {
		slots[0] = (slots[0] + 1) % 8192
		Decide(x, Port{Store: 1}, slots, false)
	}
}
