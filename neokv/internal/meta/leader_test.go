package meta

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// TestLeaderTells: the leader tells the other stores what is new once, and all of it.
func TestLeaderTells(t *testing.T) {
	g := &Group{machine: &metaMachine{o: Options{Members: 3, Interval: time.Second}}}
	g.machine.current.Store(&Map{Version: 2, Stores: []Member{{ID: 1}, {ID: 2}, {ID: 3}}})
	start := time.Unix(1000, 0)
	serve := func(second int, version uint64, wantTell string, wantMap bool, wantAll string) {
		t.Helper()
		own := Beat{Store: 1, Host: "h", MapVersion: version}
		mine, all, tell, _ := g.Serve(own, start.Add(time.Duration(second)*time.Second))
		if got := fmt.Sprint(tell); got != wantTell {
			t.Errorf("second %d: tells stores %s, want %s", second, got, wantTell)
		}
		if (mine.Map != nil) != wantMap {
			t.Errorf("second %d: its own store is told the map %v, want %v", second, mine.Map != nil, wantMap)
		}
		if got := fmt.Sprint(all.Stores); got != wantAll || len(tell) > 0 && all.Map == nil {
			t.Errorf("second %d: tells of stores %s with map %v, want %s and the map", second, got, all.Map, wantAll)
		}
	}
	hear := func(second int, store topology.StoreID, version uint64, wantNews, wantMap bool) {
		t.Helper()
		told, _, news := g.Hear(Beat{Store: store, Host: "h", MapVersion: version},
			start.Add(time.Duration(second)*time.Second))
		if news != wantNews || (told.Map != nil) != wantMap {
			t.Errorf("second %d: news %v, map %v; want %v, %v", second, news, told.Map != nil, wantNews, wantMap)
		}
	}
	serve(0, 2, "[2 3]", false, "[{1 h 0 0 true false}]")
	serve(1, 2, "[]", false, "[]")
	hear(1, 2, 1, true, true)
	hear(2, 2, 2, false, false) // the news of second 1 is still untold
	serve(2, 2, "[2 3]", false, "[{1 h 0 0 true false} {2 h 0 0 true false}]")
	serve(3, 2, "[]", false, "[]")
	serve(3, 1, "[2 3]", true, "[{1 h 0 0 true false} {2 h 0 0 true false}]") // the map is newer than what the leader's own store has

	// Store 3 has never been heard.
	serve(6, 2, "[2 3]", false, "[{1 h 0 0 true false} {2 h 0 0 false false} {3  0 0 false false}]")
	g.Resign()
	serve(7, 2, "[2 3]", false, "[{1 h 0 0 true false}]")
}

// TestFollowed: stores send heartbeats at different times of each second. When all others with a replica of meta send
// no more, the leader has no followers any more before it would take the first of them for dead. When they come back,
// one after the other, it takes none for dead either.
func TestFollowed(t *testing.T) {
	const silent, back = 4000, 12000 // milliseconds
	for _, stores := range []int{1, 2, 3, 5} {
		g := &Group{machine: &metaMachine{o: Options{Store: 1, Members: min(stores, MaxReplicas), Interval: time.Second}}}
		m := &Map{Version: 1}
		for i := range stores {
			m.Stores = append(m.Stores, Member{ID: topology.StoreID(i + 1)})
		}
		g.machine.current.Store(m)
		for ms := range back + 4000 {
			now := time.Unix(1000, 0).Add(time.Duration(ms) * time.Millisecond)
			followed := g.Followed(now)
			want := ms < silent || ms > back+1000 || stores == 1
			if followed != want && (want || ms > silent+3000 && ms < back) {
				t.Fatalf("%d stores, %d ms: followed %v", stores, ms, followed)
			}
			for i := range stores {
				beat := Beat{Store: topology.StoreID(i + 1), Host: "h", MapVersion: 1}
				switch {
				case i > 0 && ms%1000 == 150*i && (i >= MaxReplicas || ms < silent || ms >= back):
					g.Hear(beat, now)
				case i == 0 && ms%50 == 0 && followed:
					if _, all, _, _ := g.Serve(beat, now); slices.ContainsFunc(all.Stores, func(s Status) bool { return !s.Alive }) {
						t.Errorf("%d stores, %d ms: the leader tells of dead stores: %v", stores, ms, all.Stores)
					}
				}
			}
		}
	}
}

// TestHeard: a store is silent from its last heartbeat on, once it is dead, and from the first call of Expire on if this
// leader has never heard of it.
func TestHeard(t *testing.T) {
	g := &Group{machine: &metaMachine{o: Options{Interval: time.Second}}}
	g.machine.current.Store(&Map{Version: 1, Stores: []Member{{ID: 1}, {ID: 2}, {ID: 3}, {ID: 4, State: Gone}}})
	start := time.Unix(1000, 0)
	at := func(second int) time.Time { return start.Add(time.Duration(second) * time.Second) }
	heard := func(second int, want string) {
		t.Helper()
		g.Serve(Beat{Store: 1, Host: "h", MapVersion: 1}, at(second))
		if got := fmt.Sprint(g.Heard(at(second))); got != want {
			t.Errorf("second %d: %s; want %s", second, got, want)
		}
	}
	heard(0, "[{1 false false 0 0s} {2 false false 0 1ns} {3 false false 0 1ns}]")
	g.Hear(Beat{Store: 2, Host: "h", MapVersion: 1, Free: 5}, at(1))
	heard(2, "[{1 false false 0 0s} {2 false false 5 0s} {3 false false 0 2s}]")
	heard(4, "[{1 false false 0 0s} {2 false false 5 0s} {3 false false 0 4s}]")
	heard(9, "[{1 false false 0 0s} {2 false false 5 8s} {3 false false 0 9s}]")
	g.Hear(Beat{Store: 2, Host: "h", MapVersion: 1, Full: true}, at(10))
	heard(10, "[{1 false false 0 0s} {2 false true 0 0s} {3 false false 0 10s}]")
}
