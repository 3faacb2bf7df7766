package route

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/cespare/xxhash/v2"

	"neokv.dev/neokv/internal/topology"
)

// Window is a migration of slots from a store to another, as clients of a Redis Cluster see one. It changes what
// clients are told, not where data is: From leads the regions of the slots all the time, and a command that is sent to
// To with ASKING runs at From, too. So whatever a client is told, what it gets is linearizable.
//
// From pretends that it no longer has some of its keys: those whose hash is below a share that grows with time, and To
// pretends to have these. A key that does not exist neither store has, as in Redis.
//
// A window is in force, region by region, while From leads the region in the term and with the bounds that it had when
// the window was opened. What is behind that is never undone, so stores that know different things of it agree in the
// end.
type Window struct {
	ID      uint64             `json:"id"` // meta gives it: grows from window to window
	Slots   topology.SlotRange `json:"slots"`
	From    topology.StoreID   `json:"from"`
	To      topology.StoreID   `json:"to"`
	Regions []WindowRegion     `json:"regions"` // ascending; together they have the slots and no others
	Seed    uint64             `json:"seed"`    // of the hash
	// BeginMS is when the share begins to grow, in Unix ms by the clock of the machine. Until it is set, To takes commands
	// with ASKING, and From sends it none: so To knows of the window before the first client comes.
	BeginMS  int64 `json:"begin_ms,omitempty"`
	LengthMS int64 `json:"length_ms"` // until the share is all
}

// WindowRegion is a region as its leader had it when the window was opened.
type WindowRegion struct {
	ID      topology.RegionID  `json:"id"`
	Slots   topology.SlotRange `json:"slots"`
	Version uint64             `json:"version"`
	Term    uint64             `json:"term"`
}

// Check returns an error unless clients can be shown the window.
func (w *Window) Check() error {
	next := int(w.Slots.First)
	for i := range w.Regions {
		r := &w.Regions[i]
		if int(r.Slots.First) != next || r.Slots.Last < r.Slots.First {
			return fmt.Errorf("window of slots %s: region %d has slots %s; want some from %d on", w.Slots, r.ID, r.Slots, next)
		}
		next = int(r.Slots.Last) + 1
	}
	switch {
	case w.Slots.Last < w.Slots.First || next != int(w.Slots.Last)+1 || w.Slots.Last >= topology.SlotCount:
		return fmt.Errorf("window of slots %d to %d: regions up to slot %d", w.Slots.First, w.Slots.Last, next-1)
	case w.From == 0 || w.To == 0 || w.From == w.To:
		return fmt.Errorf("window of slots %s: from store %d to store %d; want two stores", w.Slots, w.From, w.To)
	case w.LengthMS <= 0 || w.BeginMS < 0:
		return fmt.Errorf("window of slots %s: begins at %d ms, lasts for %d ms; want positive ones", w.Slots, w.BeginMS,
			w.LengthMS)
	}
	return nil
}

// Length is how long the share grows.
func (w *Window) Length() time.Duration { return time.Duration(w.LengthMS) * time.Millisecond }

// End is when the share is all, for a window that has begun.
func (w *Window) End() time.Time { return time.UnixMilli(w.BeginMS + w.LengthMS) }

// Share is the share of the keys that To has, from 0 to 1.
func (w *Window) Share(now time.Time) float64 {
	if w.BeginMS == 0 {
		return 0
	}
	return min(max(float64(now.UnixMilli()-w.BeginMS)/float64(w.LengthMS), 0), 1)
}

// Moved reports whether To has a key, if it exists. Once it has it keeps it.
func (w *Window) Moved(key []byte, now time.Time) bool {
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], w.Seed)
	var d xxhash.Digest
	d.Reset()
	d.Write(seed[:])
	d.Write(key)
	return float64(d.Sum64())/math.MaxUint64 < w.Share(now)
}

// region returns the region that has a slot of the window.
func (w *Window) region(s topology.Slot) *WindowRegion {
	i := slices.IndexFunc(w.Regions, func(r WindowRegion) bool { return r.Slots.Contains(s) })
	return &w.Regions[i]
}

// inForce reports whether a window is in force for a slot of it, as far as the table knows: From leads the slot's
// region as it did when the window was opened, and To is alive.
func (t *Table) inForce(w *Window, s topology.Slot) bool {
	r, _ := t.Region(s)
	was := w.region(s)
	to := t.Store(w.To)
	return r != nil && r.ID == was.ID && r.Version == was.Version && r.Slots == was.Slots && r.Leader == w.From &&
		r.Term == was.Term && to != nil && to.Alive
}

// Over returns how many regions of a window it can never be in force for again: From has lost the lead of them, or
// their bounds have changed.
func (t *Table) Over(w *Window) (n int) {
	for _, was := range w.Regions {
		if slices.ContainsFunc(t.Regions, func(r LedRegion) bool {
			return r.Slots.Overlaps(was.Slots) && (r.Version > was.Version || r.ID == was.ID && r.Term > was.Term)
		}) {
			n++
		}
	}
	return n
}

// Window returns the window that a port shows its clients for a slot, nil if there is none. Only From and To show one,
// and not at their second addresses, as in Redis Cluster.
func (t *Table) Window(port Port, s topology.Slot) *Window {
	for i := range t.Windows {
		w := &t.Windows[i]
		if w.Slots.Contains(s) && (w.From == port.Store || w.To == port.Store) && port.Store != 0 && !port.Replica &&
			t.inForce(w, s) {
			return w
		}
	}
	return nil
}

// Shows reports whether a window changes a decision: at From, of what it serves as the leader, once the window has
// begun; at To, of what a client sends after ASKING.
func (d Decision) Shows(w *Window, port Port, asking bool) bool {
	if w.From == port.Store {
		return d.Action == Serve && !d.Follow && w.BeginMS > 0
	}
	return asking && (d.Action == Moved || d.Follow)
}

// Keys is what a store that shows a window pretends of the keys of a command: how many it has and lacks. Several says
// that they are not all the same.
type Keys struct {
	Has, Lacks int
	Several    bool
}

// Show returns what a decision becomes that a window changes. The rules are those of getNodeByQuery of Redis 7.0: From
// sends on what it has no key of, To serves what is sent on, and a command whose keys are on both sides is to be tried
// again. To lacks what nobody has: so it tells a client that names several new keys to try again, until the end.
func (d Decision) Show(t *Table, w *Window, port Port, k Keys) Decision {
	switch {
	case w.From == port.Store && k.Lacks == 0:
	case w.From == port.Store && k.Has > 0:
		d.Action = TryAgain
	case w.From == port.Store:
		d.Action, d.To = Ask, t.Store(w.To)
	case k.Several && k.Lacks > 0:
		d.Action = TryAgain
	default:
		d.Action, d.Follow, d.To = Serve, false, nil
	}
	return d
}
