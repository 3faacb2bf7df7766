package meta

import (
	"strings"
	"testing"

	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

func window(first, last topology.Slot, from, to topology.StoreID, seed uint64) *route.Window {
	slots := topology.SlotRange{First: first, Last: last}
	return &route.Window{Slots: slots, From: from, To: to, Seed: seed, LengthMS: 1000,
		Regions: []route.WindowRegion{{ID: 1, Slots: slots, Version: 1, Term: 1}}}
}

// TestWindows changes the windows of a map one after the other.
func TestWindows(t *testing.T) {
	m := &Map{Version: 10, Stores: []Member{{ID: 1}, {ID: 2}, {ID: 3}}}
	for _, step := range []struct {
		name    string
		c       WindowChange
		want    string // the answer
		version uint64 // of the map
		open    int
	}{
		{"open", WindowChange{Open: window(0, 99, 1, 2, 7)}, `{"id":11}`, 11, 1},
		{"the same again", WindowChange{Open: window(0, 99, 1, 2, 7)}, `{"id":11}`, 11, 1},
		{"the same slots", WindowChange{Open: window(0, 99, 1, 2, 8)},
			"store 1 migrates the slots 0-99 to store 2; want slots that do not migrate", 11, 1},
		{"some of them", WindowChange{Open: window(99, 200, 2, 3, 8)}, "store 1 migrates the slots 0-99", 11, 1},
		{"an unknown store", WindowChange{Open: window(100, 200, 2, 4, 8)}, "there is no store 2 or no store 4", 11, 1},
		{"one store", WindowChange{Open: window(100, 200, 2, 2, 8)}, "want two stores", 11, 1},
		{"beside it", WindowChange{Open: window(100, 200, 2, 3, 8)}, `{"id":12}`, 12, 2},
		{"begin", WindowChange{Begin: &WindowBegin{11, 500}}, `{"id":11}`, 13, 2},
		{"begin later", WindowChange{Begin: &WindowBegin{11, 600}}, `{"id":11}`, 13, 2},
		{"begin what is not there", WindowChange{Begin: &WindowBegin{5, 600}}, "called off", 13, 2},
		{"close", WindowChange{Close: 12}, `{"id":12}`, 14, 1},
		{"close again", WindowChange{Close: 12}, `{"id":12}`, 14, 1},
	} {
		before := *m
		next, data := (&change{Window: &step.c}).apply(m)
		if !strings.Contains(string(data), step.want) || next.Version != step.version || len(next.Windows) != step.open {
			t.Errorf("%s: %s, version %d, %d windows; want %s, %d, %d", step.name, data, next.Version, len(next.Windows),
				step.want, step.version, step.open)
		}
		if m.Version != before.Version || len(m.Windows) != len(before.Windows) {
			t.Errorf("%s: the map itself has changed", step.name)
		}
		if err := next.Check(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		m = next
	}
	if m.Windows[0].BeginMS != 500 {
		t.Errorf("begins at %d ms; want 500", m.Windows[0].BeginMS)
	}
	for i := range 2 * maxWindows {
		slot := topology.Slot(1000 + i)
		m, _ = (&change{Window: &WindowChange{Open: window(slot, slot, 1, 2, 1)}}).apply(m)
	}
	if len(m.Windows) != maxWindows {
		t.Errorf("%d windows; want %d", len(m.Windows), maxWindows)
	}
	m.Windows = append(m.Windows, *window(50, 60, 1, 2, 1))
	if m.Check() == nil {
		t.Error("a map with two windows of one slot is taken")
	}
}
