package route

import (
	"fmt"
	"math"
	"testing"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// windowed is a table with a region of slots 0-99 that store 1 leads in term 3, and a window to store 2.
func windowed() *Table {
	t := NewTable(1, []PublicStore{{ID: 1, Host: "h1", Port: 7001, Alive: true},
		{ID: 2, Host: "h2", Port: 7002, Alive: true}, {ID: 3, Host: "h3", Port: 7003, Alive: true}},
		[]LedRegion{{Region: topology.Region{ID: 1, Slots: topology.SlotRange{Last: 99}, Version: 5}, Leader: 1, Term: 3}})
	t.Windows = []Window{{ID: 9, Slots: topology.SlotRange{Last: 99}, From: 1, To: 2, Seed: 7, BeginMS: 1000,
		LengthMS: 500, Regions: []WindowRegion{{1, topology.SlotRange{Last: 99}, 5, 3}}}}
	return t
}

func TestWindowShare(t *testing.T) {
	w := &windowed().Windows[0]
	for ms, want := range map[int64]float64{0: 0, 1000: 0, 1250: 0.5, 1500: 1, 9000: 1} {
		if got := w.Share(time.UnixMilli(ms)); got != want {
			t.Errorf("share at %d ms = %v; want %v", ms, got, want)
		}
	}
	const keys = 10_000
	moved := make(map[int]bool)
	for ms := int64(1000); ms <= 1500; ms += 50 {
		now := time.UnixMilli(ms)
		for i := range keys {
			was := moved[i]
			if moved[i] = w.Moved(fmt.Append(nil, i), now); was && !moved[i] {
				t.Fatalf("key %d is back at %d ms", i, ms)
			}
		}
		n := 0
		for _, is := range moved {
			if is {
				n++
			}
		}
		if want := w.Share(now) * keys; math.Abs(float64(n)-want) > keys/50 {
			t.Errorf("%d of %d keys have moved at %d ms; want about %.0f", n, keys, ms, want)
		}
	}
	other := *w
	other.Seed++
	differ := 0
	for i := range keys {
		if key := fmt.Append(nil, i); w.Moved(key, time.UnixMilli(1250)) != other.Moved(key, time.UnixMilli(1250)) {
			differ++
		}
	}
	if differ < keys/3 {
		t.Errorf("another seed moves %d of %d keys at another time; want about half", differ, keys)
	}
	if w.BeginMS = 0; w.Share(time.UnixMilli(1500)) != 0 {
		t.Error("a window that has not begun has a share")
	}
}

// TestWindowInForce: a window is in force while the source leads the region as it did, and is over once it cannot come
// back.
func TestWindowInForce(t *testing.T) {
	for _, c := range []struct {
		name    string
		change  func(*LedRegion)
		inForce bool
		over    int
	}{
		{"as it was", func(*LedRegion) {}, true, 0},
		{"no leader is known", func(r *LedRegion) { r.Leader = 0 }, false, 0},
		{"another leader", func(r *LedRegion) { r.Leader, r.Term = 2, 4 }, false, 1},
		{"the same leader again", func(r *LedRegion) { r.Term = 4 }, false, 1},
		{"an earlier term is known", func(r *LedRegion) { r.Leader, r.Term = 3, 2 }, false, 0},
		{"it has split", func(r *LedRegion) { r.Slots.Last, r.Version = 49, 6 }, false, 1},
		{"another one has it", func(r *LedRegion) { r.ID, r.Version, r.Term = 8, 6, 1 }, false, 1},
		{"older bounds are known", func(r *LedRegion) { r.ID, r.Version, r.Term = 8, 4, 9 }, false, 0},
	} {
		x := windowed()
		c.change(&x.Regions[0])
		y := NewTable(1, x.Stores, x.Regions)
		y.Windows = x.Windows
		for self := range topology.StoreID(4) {
			if got, want := y.Window(Port{Store: self}, 7) != nil, c.inForce && (self == 1 || self == 2); got != want {
				t.Errorf("%s: port of store %d shows it: %v", c.name, self, got)
			}
		}
		if y.Window(Port{Store: 1, Replica: true}, 7) != nil {
			t.Errorf("%s: a second address shows it", c.name)
		}
		if got := y.Over(&y.Windows[0]); got != c.over {
			t.Errorf("%s: over for %d regions; want %d", c.name, got, c.over)
		}
	}
	x := windowed()
	x.Stores[1].Alive = false
	if x.Window(Port{Store: 1}, 7) != nil {
		t.Error("a window is in force while its target is down")
	}
}

func TestShow(t *testing.T) {
	const ask, again, moved = "ASK 7 h2:7002", "TRYAGAIN Multiple keys request during rehashing of slot", "MOVED 7 h1:7001"
	for _, c := range []struct {
		self   topology.StoreID
		asking bool
		keys   Keys
		want   string
	}{
		{1, false, Keys{Has: 1}, "serve"},
		{1, false, Keys{Has: 2, Several: true}, "serve"},
		{1, false, Keys{Lacks: 1}, ask},
		{1, true, Keys{Lacks: 1}, ask},
		{1, false, Keys{Lacks: 2, Several: true}, ask},
		{1, false, Keys{Has: 1, Lacks: 1, Several: true}, again},
		{2, false, Keys{Has: 1}, moved},
		{2, true, Keys{Has: 1}, "serve"},
		{2, true, Keys{Lacks: 1}, "serve"},
		{2, true, Keys{Has: 2, Several: true}, "serve"},
		{2, true, Keys{Lacks: 2}, "serve"}, // the same one twice
		{2, true, Keys{Has: 1, Lacks: 1, Several: true}, again},
		{3, true, Keys{Has: 1}, moved},
	} {
		x, port := windowed(), Port{Store: c.self}
		d := Decide(x, port, []topology.Slot{7}, false)
		if w := x.Window(port, 7); w != nil && d.Shows(w, port, c.asking) {
			d = d.Show(x, w, port, c.keys)
		}
		if d.text() != c.want {
			t.Errorf("store %d, asking %v, %+v: %s; want %s", c.self, c.asking, c.keys, d.text(), c.want)
		}
	}
	x, port := windowed(), Port{Store: 1}
	x.Windows[0].BeginMS = 0
	if d := Decide(x, port, []topology.Slot{7}, false); d.Shows(&x.Windows[0], port, false) {
		t.Error("the source shows a window that has not begun")
	}
}

func TestCheckWindow(t *testing.T) {
	if err := windowed().Windows[0].Check(); err != nil {
		t.Error(err)
	}
	for name, change := range map[string]func(*Window){
		"no region":         func(w *Window) { w.Regions = nil },
		"a part":            func(w *Window) { w.Regions[0].Slots.Last = 98 },
		"more":              func(w *Window) { w.Slots.Last = 98 },
		"slots upside down": func(w *Window) { w.Slots.First, w.Regions = 100, nil },
		"one store":         func(w *Window) { w.To = 1 },
		"no store":          func(w *Window) { w.From = 0 },
		"no time":           func(w *Window) { w.LengthMS = 0 },
		"before time":       func(w *Window) { w.BeginMS = -1 },
	} {
		w := windowed().Windows[0]
		change(&w)
		if w.Check() == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
