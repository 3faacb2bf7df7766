package meta

import (
	"strings"
	"testing"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// TestStoreChanges: stores come, drain and go. A number that was given is never given again, and a store goes only when
// it is drained and holds no replica.
func TestStoreChanges(t *testing.T) {
	m := Initial("c", settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 1})
	m.Version = 10
	for _, x := range []struct {
		what    string
		c       StoreChange
		want    string // in the answer
		version uint64
		stores  int
	}{
		{"join", StoreChange{ID: 4, Join: true}, `{"id":4}`, 11, 4},
		{"join again", StoreChange{ID: 4, Join: true}, `{"id":4}`, 11, 4},
		{"no store", StoreChange{ID: 0, Join: true}, "want a number from 1", 11, 4},
		{"a far one", StoreChange{ID: maxStores + 1, Join: true}, "want a number from 1", 11, 4},
		{"no such state", StoreChange{ID: 4, State: Gone + 1}, "state 3", 11, 4},
		{"an unknown store", StoreChange{ID: 5, State: Draining}, "there is no store 5", 11, 4},
		{"go at once", StoreChange{ID: 4, State: Gone}, "store 4 is not drained", 11, 4},
		{"drain", StoreChange{ID: 4, State: Draining}, `{"id":4}`, 12, 4},
		{"drain again", StoreChange{ID: 4, State: Draining}, `{"id":4}`, 12, 4},
		{"cancel", StoreChange{ID: 4}, `{"id":4}`, 13, 4},
		{"drain once more", StoreChange{ID: 4, State: Draining}, `{"id":4}`, 14, 4},
		{"go", StoreChange{ID: 4, State: Gone}, `{"id":4}`, 15, 4},
		{"go again", StoreChange{ID: 4, State: Gone}, `{"id":4}`, 15, 4},
		{"come back", StoreChange{ID: 4, Join: true}, "store 4 has been removed", 15, 4},
		{"be back", StoreChange{ID: 4}, "store 4 has been removed", 15, 4},
		{"drain one with replicas", StoreChange{ID: 3, State: Draining}, `{"id":3}`, 16, 4},
		{"go with replicas", StoreChange{ID: 3, State: Gone}, "region 1 has a replica on store 3", 16, 4},
	} {
		after, data := (&change{Store: &x.c}).apply(m)
		if !strings.Contains(string(data), x.want) || after.Version != x.version || len(after.Stores) != x.stores {
			t.Errorf("%s: %s, version %d, %d stores; want %s, %d, %d", x.what, data, after.Version, len(after.Stores), x.want,
				x.version, x.stores)
		}
		if err := after.Check(); err != nil {
			t.Errorf("%s: %v", x.what, err)
		}
		m = after
	}
	if got, want := m.Store(4).NodeID, newMember("c", topology.StoreID(4)).NodeID; got != want || m.Store(3).NodeID == got {
		t.Errorf("store 4 has node id %s, want %s", got, want)
	}
	if got, data := (&change{Store: &StoreChange{ID: 1, Join: true}}).apply(new(Map)); got.Version != 0 || data != nil {
		t.Errorf("without a map: version %d, %s", got.Version, data)
	}
}
