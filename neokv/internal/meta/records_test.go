package meta

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// update applies changes as one run of entries that ends at index, and returns the data of the last result.
func update(t *testing.T, m *metaMachine, index uint64, changes ...change) []byte {
	t.Helper()
	var entries []multiraft.Entry
	for i, c := range changes {
		cmd, err := json.Marshal(c)
		if err != nil {
			t.Fatal(err)
		}
		entries = append(entries, multiraft.Entry{Index: index - uint64(len(changes)-1-i), Cmd: cmd})
	}
	out, err := m.Update(entries)
	if err != nil {
		t.Fatal(err)
	}
	return out[len(out)-1].Result.Data
}

// recordsOf lists the records: "map", and ID@VERSION of each region.
func recordsOf(t *testing.T, e *engine.Engine) string {
	t.Helper()
	view := e.NewView()
	defer view.Close()
	var words []string
	value, ok, err := view.Get(stateKey())
	if err != nil {
		t.Fatal(err)
	}
	if ok {
		words = append(words, fmt.Sprintf("map/%d", value[0]))
	}
	m := new(Map)
	if err := readRegions(view, m); err != nil {
		t.Fatal(err)
	}
	for i := range m.Regions {
		words = append(words, fmt.Sprintf("%d@%d", m.Regions[i].ID, m.Regions[i].Version))
	}
	return strings.Join(words, " ")
}

// TestRecords makes changes, and looks at the records and at what is read back.
func TestRecords(t *testing.T) {
	fs := vfs.NewMem()
	m, _, e := openMachine(t, fs)
	initial := Initial("c", settings.ClusterKnobs{Stores: 1, Replicas: 1, Regions: 2})
	split := RegionReport{Regions: parseRegions(t, "1@2:0-99 300@2:100-8191")}
	merge := RegionReport{Regions: parseRegions(t, "300@3:100-16383")}
	for i, step := range []struct {
		changes []change
		want    string
		version uint64
	}{
		{[]change{{}}, "map/2", 0},
		{[]change{{Report: &split}}, "map/2", 0}, // there is no map
		{[]change{{Bootstrap: initial}}, "map/2 1@1 2@1", 1},
		{[]change{{Allocate: &allocate{Regions: 1}}}, "map/2 1@1 2@1", 1},
		{[]change{{Report: &split}}, "map/2 1@2 300@2 2@1", 2},
		{[]change{{Report: &split}, {Report: &merge}}, "map/2 1@2 300@3", 3},
		{[]change{{Report: &split}}, "map/2 1@2 300@3", 3},
	} {
		update(t, m, uint64(10+10*i), step.changes...)
		if got := recordsOf(t, e); got != step.want || m.current.Load().Version != step.version {
			t.Errorf("step %d: records %s, version %d; want %s, %d", i, got, m.current.Load().Version, step.want,
				step.version)
		}
		want := m.current.Load()
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
		var index uint64
		m, index, e = openMachine(t, fs)
		if got := m.current.Load(); index != uint64(10+10*i) || !reflect.DeepEqual(got, want) {
			t.Errorf("step %d: opened again: index %d, %+v; want %+v", i, index, got, want)
		}
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestOtherFormat: a record of another format is refused by its number.
func TestOtherFormat(t *testing.T) {
	value, err := encodeState(7, new(Map))
	if err != nil {
		t.Fatal(err)
	}
	value[0] = 1
	if _, err := parseState(value); err == nil || err.Error() != "decode state: format 1, want 2" {
		t.Errorf("parseState: %v", err)
	}
}

// TestAllocate: no id is given twice, nor one that a reported region has.
func TestAllocate(t *testing.T) {
	m := new(Map)
	next := func(a allocate, want string) {
		t.Helper()
		after, data := (&change{Allocate: &a}).apply(m)
		if string(data) != want || (after == m) != (want == "") {
			t.Errorf("%+v: %s; want %s", a, data, want)
		}
		m = after
	}
	next(allocate{Regions: 1}, "")
	m, _ = (&change{Bootstrap: Initial("c", settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 4})}).apply(m)
	next(allocate{Regions: 2, Replicas: 3}, `{"region":5,"replica":13}`)
	next(allocate{Regions: 1}, `{"region":7,"replica":16}`)
	next(allocate{Replicas: 1}, `{"region":8,"replica":16}`)
	next(allocate{Regions: -1}, "")
	next(allocate{Regions: 1, Replicas: maxAllocate + 1}, "")
	m, _ = (&change{Report: &RegionReport{Regions: parseRegions(t, "1@2:0-99 20@2:100-4095")}}).apply(m)
	next(allocate{Regions: 1, Replicas: 1}, `{"region":21,"replica":21}`)
	m, _ = (&change{Report: &RegionReport{Regions: parseRegions(t,
		fmt.Sprintf("1@3:0-49 %d@3:50-99", topology.RegionID(maxID-1)))}}).apply(m)
	next(allocate{Regions: 1}, "")
}

// TestLoads keeps the last load of each region on the map, and who has sent it.
func TestLoads(t *testing.T) {
	g := &Group{machine: &metaMachine{}}
	m := Initial("c", settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 2})
	m.Version = 1
	g.machine.current.Store(m)
	if got := g.Loads(); got != nil {
		t.Errorf("loads of a replica that does not lead: %v", got)
	}
	load := func(of topology.RegionID, commands float64) LedLoad {
		return LedLoad{Region: of, RegionLoad: schedule.RegionLoad{Version: 1, Commands: commands}}
	}
	g.Hear(Beat{Store: 1, Loads: []LedLoad{load(2, 5), load(1, 6), load(9, 0)}}, start)
	g.Hear(Beat{Store: 2, Loads: []LedLoad{load(2, 7)}}, start)
	want := []HeardLoad{{load(1, 6), 1}, {load(2, 7), 2}}
	if got := g.Loads(); !reflect.DeepEqual(got, want) {
		t.Errorf("loads %v; want %v", got, want)
	}
}

// TestLeaderReports: what two stores report is proposed together, again and again until the map has it.
func TestLeaderReports(t *testing.T) {
	g := &Group{machine: &metaMachine{}}
	m := &Map{Version: 1, Regions: parseRegions(t, "1@1:0-99"), NextReplica: 2}
	g.machine.current.Store(m)
	if _, report, _ := g.Hear(Beat{Store: 2, Regions: parseRegions(t, "7@2:50-99")}, start); report != nil {
		t.Errorf("a part alone is to be proposed: %+v", report)
	}
	own := Beat{Store: 1, Regions: parseRegions(t, "1@2:0-49")}
	for range 2 {
		_, _, _, report := g.Serve(own, start)
		if report == nil || formatRegions(report.Regions) != "1@2:0-49 7@2:50-99" {
			t.Fatalf("report %+v", report)
		}
		m, _ = (&change{Report: report}).apply(m)
	}
	g.machine.current.Store(m)
	if _, _, _, report := g.Serve(own, start); report != nil {
		t.Errorf("the map has it, and the leader would propose %+v", report)
	}
}
