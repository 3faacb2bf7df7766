package meta

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

func TestInitialSpreadsEvenly(t *testing.T) {
	for _, shape := range []settings.ClusterKnobs{
		{Stores: 1, Replicas: 1, Regions: 1}, {Stores: 3, Replicas: 3, Regions: 8},
		{Stores: 5, Replicas: 3, Regions: 7}, {Stores: 9, Replicas: 2, Regions: 128},
	} {
		m := Initial("c", shape)
		next, ids := 0, make(map[topology.ReplicaID]bool)
		leads, held := make(map[topology.StoreID]int), make(map[topology.StoreID]int)
		for i, r := range m.Regions {
			if r.ID != topology.RegionID(i+1) || int(r.Slots.First) != next {
				t.Errorf("%+v: region %d is %d with slots %v; want %d from slot %d", shape, i, r.ID, r.Slots, i+1, next)
			}
			next = int(r.Slots.Last) + 1
			if len(r.Peers) != shape.Replicas {
				t.Errorf("%+v: region %d has %d peers", shape, r.ID, len(r.Peers))
			}
			leads[r.Peers[0].Store]++
			stores := make(map[topology.StoreID]bool)
			for _, p := range r.Peers {
				if ids[p.Replica] || p.Replica == 0 || p.Replica >= m.NextReplica || stores[p.Store] {
					t.Errorf("%+v: region %d: bad peer %+v", shape, r.ID, p)
				}
				ids[p.Replica], stores[p.Store] = true, true
				held[p.Store]++
			}
		}
		if next != topology.SlotCount {
			t.Errorf("%+v: slots end at %d", shape, next)
		}
		for _, n := range []map[topology.StoreID]int{leads, held} {
			least, most := 1<<30, 0
			for _, s := range m.Stores {
				least, most = min(least, n[s.ID]), max(most, n[s.ID])
			}
			if most-least > shape.Replicas {
				t.Errorf("%+v: uneven: %v", shape, n)
			}
		}
		seen := make(map[string]bool)
		for _, s := range m.Stores {
			if len(s.NodeID) != 40 || seen[s.NodeID] {
				t.Errorf("%+v: store %d has node id %q", shape, s.ID, s.NodeID)
			}
			seen[s.NodeID] = true
		}
		if m.NextRegion != topology.RegionID(shape.Regions+1) {
			t.Errorf("%+v: next region %d", shape, m.NextRegion)
		}
	}
}

var start = time.Unix(1000, 0)

func openMachine(t *testing.T, fs vfs.FS) (*metaMachine, uint64, *engine.Engine) {
	t.Helper()
	e, err := engine.Open(engine.Options{Dir: "/e", FS: fs, Knobs: settings.Default().Engine, Stores: 3,
		Fatal: func(err error) {
			t.Error(err)
		}})
	if err != nil {
		t.Fatal(err)
	}
	m := &metaMachine{o: Options{
		Engine: e, Failed: func() error { return nil }, Fence: func(err error) { t.Error(err) }, Changed: func() {},
	}}
	m.current.Store(new(Map))
	index, err := m.Open(nil)
	if err != nil {
		t.Fatal(err)
	}
	return m, index, e
}

// TestFirstBootstrapWins applies two of them, and opens the state machine again.
func TestFirstBootstrapWins(t *testing.T) {
	fs := vfs.NewMem()
	m, index, e := openMachine(t, fs)
	if index != 0 {
		t.Errorf("a new machine is at index %d", index)
	}
	shape := settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 4}
	first, second := Initial("first", shape), Initial("second", shape)
	for i, x := range []*Map{first, second} {
		cmd, err := json.Marshal(change{Bootstrap: x})
		if err != nil {
			t.Fatal(err)
		}
		out, err := m.Update([]multiraft.Entry{{Index: uint64(5 + i), Cmd: cmd}})
		if err != nil || out[0].Result.Value != 1 {
			t.Errorf("update %d = %+v, %v; want map version 1", i, out[0].Result, err)
		}
	}
	want := *first
	want.Version = 1
	if got := m.current.Load(); !reflect.DeepEqual(*got, want) {
		t.Errorf("map = %+v; want %+v", *got, want)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	m, index, e = openMachine(t, fs)
	defer e.Close()
	if got := m.current.Load(); index != 6 || !reflect.DeepEqual(*got, want) {
		t.Errorf("opened again: index %d, map %+v; want 6 and %+v", index, *got, want)
	}
}

// TestSnapshot sends the map to a machine that has another; cut short or damaged it is refused, and nothing has
// changed.
func TestSnapshot(t *testing.T) {
	from, _, e := openMachine(t, vfs.NewMem())
	defer e.Close()
	shape := settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 4}
	cmd, err := json.Marshal(change{Bootstrap: Initial("c", shape)})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := from.Update([]multiraft.Entry{{Index: 7, Cmd: cmd}}); err != nil {
		t.Fatal(err)
	}
	prepared, err := from.PrepareSnapshot()
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	if err := from.SaveSnapshot(prepared, &stream, nil); err != nil {
		t.Fatal(err)
	}

	fs := vfs.NewMem()
	to, _, e2 := openMachine(t, fs)
	update(t, to, 3, change{Bootstrap: Initial("d", settings.ClusterKnobs{Stores: 1, Replicas: 1, Regions: 9})})
	before := to.current.Load()
	var fenced error
	to.o.Fence = func(err error) { fenced = err }
	const seed = 9
	random := rand.New(rand.NewPCG(seed, 0))
	for range 50 {
		damaged := bytes.Clone(stream.Bytes())
		damaged[random.IntN(len(damaged))] ^= 1 << random.IntN(8)
		for _, b := range [][]byte{damaged, stream.Bytes()[:random.IntN(stream.Len())]} {
			fenced = nil
			if err := to.RecoverFromSnapshot(bytes.NewReader(b), nil); err != nil || fenced == nil {
				t.Fatalf("seed %d: a damaged snapshot of %d bytes: %v, fenced with %v", seed, len(b), err, fenced)
			}
		}
	}
	if got := to.current.Load(); got != before {
		t.Errorf("a damaged snapshot got in: %+v", got)
	}
	fenced = nil
	if err := to.RecoverFromSnapshot(bytes.NewReader(stream.Bytes()), nil); err != nil || fenced != nil {
		t.Fatal(err, fenced)
	}
	want := from.current.Load()
	if got := to.current.Load(); !reflect.DeepEqual(got, want) {
		t.Errorf("map = %+v; want %+v", got, want)
	}
	if err := e2.Close(); err != nil {
		t.Fatal(err)
	}
	to, index, e2 := openMachine(t, fs)
	defer e2.Close()
	if got := to.current.Load(); index != 7 || !reflect.DeepEqual(got, want) {
		t.Errorf("opened again: index %d, map %+v; want 7 and %+v", index, got, want)
	}
}

func TestDirectory(t *testing.T) {
	start := time.Unix(1000, 0)
	d := newDirectory(time.Second, time.Time{})
	beat := func(s topology.StoreID, port int, leads ...Lead) Beat {
		return Beat{Store: s, Host: "h", Port: port, Leads: leads}
	}
	for i, x := range []struct {
		at    time.Duration
		beat  Beat
		news  bool
		leads string // region:store@term
	}{
		{0, beat(1, 7001), true, "[]"},
		{0, beat(1, 7001), false, "[]"},
		{1 * time.Second, beat(2, 7002, Lead{1, 2, 5}), true, "[{1 2 5}]"},
		{1 * time.Second, beat(1, 7001, Lead{1, 1, 4}), false, "[{1 2 5}]"}, // an older term says nothing
		{2 * time.Second, beat(1, 7001, Lead{1, 1, 6}, Lead{3, 1, 2}), true, "[{1 1 6} {3 1 2}]"},
		{2 * time.Second, beat(1, 8001, Lead{1, 1, 6}, Lead{3, 1, 2}), true, "[{1 1 6} {3 1 2}]"}, // another port
		{2 * time.Second, beat(1, 8001, Lead{1, 1, 6}), true, "[{1 1 6}]"},                        // it does not lead 3 any more
	} {
		if news := d.Hear(x.beat, new(Map), start.Add(x.at)); news != x.news {
			t.Errorf("beat %d: news %t; want %t", i, news, x.news)
		}
		if got := fmt.Sprint(d.View(new(Map), 0).Leads); got != x.leads {
			t.Errorf("beat %d: leads %s; want %s", i, got, x.leads)
		}
	}
	if d.Expire(nil, start.Add(4*time.Second)) {
		t.Error("a store is dead after 3 s of silence; want more than 3 heartbeats")
	}
	later := start.Add(4*time.Second + time.Millisecond)
	if !d.Expire(nil, later) || d.Expire(nil, later) {
		t.Error("Expire is to tell once that store 2 is dead")
	}
	if got, want := fmt.Sprint(d.View(new(Map), 0).Stores), "[{1 h 8001 0 true false} {2 h 7002 0 false false}]"; got != want {
		t.Errorf("stores %s; want %s", got, want)
	}
	if !d.Hear(beat(2, 7002), new(Map), start.Add(9*time.Second)) {
		t.Error("that a dead store is back is no news")
	}
	m := &Map{Version: 3}
	if d.View(m, 3).Map != nil || d.View(m, 2).Map != m {
		t.Error("the map is to come with a view when it is newer than the asker's, and only then")
	}
}

// FuzzState reads any bytes as the record of the map, and what it takes comes back.
func FuzzState(f *testing.F) {
	text, err := json.Marshal(&Map{Version: 3, Cluster: "ab", Stores: []Member{{ID: 1, NodeID: "c"}},
		Regions: []topology.Region{{ID: 1}}, NextReplica: 4})
	if err != nil {
		f.Fatal(err)
	}
	head := []byte{stateFormat, 0, 0, 0, 0, 0, 0, 0, 7}
	f.Add(slices.Concat(head, text))
	f.Add(slices.Concat(head, []byte("null")))
	f.Add([]byte{stateFormat})
	f.Fuzz(func(t *testing.T, value []byte) {
		s, err := parseState(value)
		if err != nil {
			return
		}
		again, err := encodeState(s.index, s.m)
		if err != nil {
			t.Fatal(err)
		}
		back, err := parseState(again)
		if err != nil || back.index != s.index || back.m.Version != s.m.Version ||
			len(back.m.Regions) != len(s.m.Regions) || len(back.m.Stores) != len(s.m.Stores) {
			t.Errorf("%+v comes back as %+v, %v", s, back, err)
		}
	})
}

// FuzzBeat hears any text that decodes as a heartbeat. The directory then tells of one store and, for each region, of
// the latest term that the heartbeat names; what it tells reads back. Whatever the heartbeat reports, the map stays
// whole.
func FuzzBeat(f *testing.F) {
	text, err := json.Marshal(Beat{Store: 2, Host: "h", Port: 7002, Leads: []Lead{{1, 2, 5}, {3, 2, 1}, {1, 3, 6}}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte(`{"store":1,"full":true,"leads":[{"region":-1}]}`))
	if text, err = json.Marshal(Beat{Store: 2, Regions: []topology.Region{
		{ID: 1, Version: 2, Slots: topology.SlotRange{Last: 99}},
		{ID: 3, Version: 2, Slots: topology.SlotRange{First: 100, Last: 8191}},
	}, Loads: []LedLoad{{Region: 1, RegionLoad: schedule.RegionLoad{Commands: 5}}}}); err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add([]byte("null"))
	f.Fuzz(func(t *testing.T, text []byte) {
		var b Beat
		if json.Unmarshal(text, &b) != nil {
			return
		}
		latest := make(map[topology.RegionID]uint64)
		for _, l := range b.Leads {
			latest[l.Region] = max(latest[l.Region], l.Term)
		}
		d := newDirectory(time.Second, time.Time{})
		m := Initial("c", settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 2})
		m.Version = 1
		d.Hear(b, m, start)
		if news := d.News(m); news != nil {
			after, _ := m.take(news.Regions)
			checkCovers(t, formatRegions(news.Regions), m, after)
		}
		told := d.View(new(Map), 0)
		if len(told.Stores) > 1 || len(told.Leads) != len(latest) {
			t.Errorf("the directory tells %+v of %+v", told, b)
		}
		for _, l := range told.Leads {
			if l.Term != latest[l.Region] {
				t.Errorf("region %d: term %d; want %d", l.Region, l.Term, latest[l.Region])
			}
		}
		again, err := json.Marshal(told)
		if err != nil {
			t.Fatal(err)
		}
		var back ClusterView
		if err := json.Unmarshal(again, &back); err != nil || !reflect.DeepEqual(back, told) {
			t.Errorf("%s comes back as %+v, %v", again, back, err)
		}
	})
}

// TestMapCheck refuses maps that no slot table can be made of.
func TestMapCheck(t *testing.T) {
	for name, change := range map[string]func(*Map){
		"":                                  func(*Map) {},
		"not the id of one store":           func(m *Map) { m.Stores[1].ID = 1 },
		"region 0: not the id":              func(m *Map) { m.Regions[0].ID = 0 },
		"region 1: not the id":              func(m *Map) { m.Regions[1].ID = 1 },
		"region 2: slots 0 to 16383":        func(m *Map) { m.Regions[1].Slots.First = 0 },
		"region 2: slots 8192 to 16384":     func(m *Map) { m.Regions[1].Slots.Last = topology.SlotCount },
		"region 2: slots 8192 to 100; want": func(m *Map) { m.Regions[1].Slots.Last = 100 },
	} {
		m := Initial("c", settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 2})
		change(m)
		if err := m.Check(); (err == nil) != (name == "") || err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("Check = %v; want %q", err, name)
		}
	}
}
