package meta

import (
	"fmt"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// TestWipes changes the wipes of a map one after the other.
func TestWipes(t *testing.T) {
	m := Initial("c", settings.ClusterKnobs{Stores: 3, Replicas: 3, Regions: 2})
	m.Version = 1
	order := func(s topology.StoreID, after uint64) WipeChange {
		return WipeChange{Order: &WipeOrder{Store: s, After: after, MS: 9}}
	}
	begin := func(nth, nonce uint64) WipeChange {
		return WipeChange{Begin: &WipeBegin{Store: 2, Nth: nth, Nonce: nonce}}
	}
	for _, step := range []struct {
		name    string
		c       WipeChange
		want    string // the answer
		version uint64 // of the map
		peers   string // of meta
	}{
		{"an unknown store", order(4, 0), "there is no store 4", 1, "[1 2 3]"},
		{"begin what is not ordered", begin(1, 5), "is not the last one that was ordered", 1, "[1 2 3]"},
		{"order", order(2, 0), `{"id":1}`, 2, "[1 2 3]"},
		{"order again", order(2, 0), `{"id":1}`, 2, "[1 2 3]"},
		{"another store", order(3, 0), "store 2 is wiped, and its replicas are not back yet", 2, "[1 2 3]"},
		{"begin without a number", begin(1, 0), "is not the last one", 2, "[1 2 3]"},
		{"begin another", begin(2, 5), "is not the last one", 2, "[1 2 3]"},
		{"begin", begin(1, 5), `{"id":1}`, 3, "[1 65538 3]"},
		{"begin again", begin(1, 5), `{"id":1}`, 3, "[1 65538 3]"},
		{"begin with another folder", begin(1, 6), "wipe it again", 3, "[1 65538 3]"},
		{"order what has begun", order(2, 0), `{"id":1}`, 3, "[1 65538 3]"},
		{"once more", order(2, 1), `{"id":2}`, 4, "[1 65538 3]"},
		{"close what has not begun", WipeChange{Close: &WipeClose{Store: 2, Nth: 2}}, `{}`, 4, "[1 65538 3]"},
		{"begin once more", begin(2, 7), `{"id":2}`, 5, "[1 131074 3]"},
		{"close an earlier one", WipeChange{Close: &WipeClose{Store: 2, Nth: 1}}, `{}`, 5, "[1 131074 3]"},
		{"close", WipeChange{Close: &WipeClose{Store: 2, Nth: 2}}, `{"id":2}`, 6, "[1 131074 3]"},
		{"another store at last", order(3, 0), `{"id":1}`, 7, "[1 131074 3]"},
		{"nothing", WipeChange{}, "nothing known", 7, "[1 131074 3]"},
	} {
		before := *m
		next, data := (&change{Wipe: &step.c}).apply(m)
		var peers []topology.ReplicaID
		for i, p := range next.Peers(3) {
			if peers = append(peers, p.Replica); StoreOf(p.Replica) != p.Store || p.Store != topology.StoreID(i+1) {
				t.Errorf("%s: peer %+v", step.name, p)
			}
		}
		if !strings.Contains(string(data), step.want) || next.Version != step.version || fmt.Sprint(peers) != step.peers {
			t.Errorf("%s: %s, version %d, peers %d; want %s, %d, %s", step.name, data, next.Version, peers, step.want,
				step.version, step.peers)
		}
		if m.Version != before.Version || len(m.Wipes) != len(before.Wipes) {
			t.Errorf("%s: the map itself has changed", step.name)
		}
		if err := next.Check(); err != nil {
			t.Errorf("%s: %v", step.name, err)
		}
		m = next
	}
	if got := fmt.Sprint(m.Wipes); got != "[{2 2 7 9 7 true} {3 1 7 9 0 false}]" {
		t.Errorf("wipes %s", got)
	}
	if n := m.Lacks(&topology.Wipe{Store: 2, Floor: 7}); n != 2 {
		t.Errorf("%d regions lack a replica; want both", n)
	}
	if n := m.Lacks(&topology.Wipe{Store: 2, Floor: 1}); n != 0 {
		t.Errorf("%d regions lack a replica; want none", n)
	}
}
