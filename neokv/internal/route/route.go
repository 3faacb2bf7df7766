// Package route decides where a command is served. The slot table is immutable and swapped atomically; Decide is a pure
// function of it.
package route

import (
	"cmp"
	"fmt"
	"slices"

	"neokv.dev/neokv/internal/topology"
)

// PublicStore is one store as clients and other stores see it.
type PublicStore struct {
	ID     topology.StoreID `json:"id"`
	NodeID string           `json:"node_id"` // 40 hex characters, survives restarts
	Host   string           `json:"host"`    // as advertised to clients
	Port   int              `json:"port"`
	Alive  bool             `json:"alive"`
}

// LedRegion is a region with who leads it as far as is known.
type LedRegion struct {
	topology.Region
	Leader topology.StoreID `json:"leader"` // 0 while none is known
	Term   uint64           `json:"term"`
	// Told is who leads according to meta's leader, where Leader is what the store's own replica knows; 0 if nobody.
	Told topology.StoreID `json:"told,omitempty"`
}

// Table maps slots to regions, leaders and stores. It is never changed once published.
type Table struct {
	Epoch   uint64        // grows with every change of the map or of a leader
	Stores  []PublicStore // by id
	Regions []LedRegion   // by first slot
	Alone   bool          // the store that made the table got no answer when it last reported: who is alive it does not know

	slots [topology.SlotCount]uint16 // index in Regions plus one, 0 where no region covers the slot
}

// NewTable returns the table of the given stores and regions, in any order; it copies both. Regions that overlap are a
// broken invariant of the cluster map, and it panics.
func NewTable(epoch uint64, stores []PublicStore, regions []LedRegion) *Table {
	t := &Table{Epoch: epoch, Stores: slices.Clone(stores), Regions: slices.Clone(regions)}
	slices.SortFunc(t.Stores, func(a, b PublicStore) int { return cmp.Compare(a.ID, b.ID) })
	slices.SortFunc(t.Regions, func(a, b LedRegion) int { return cmp.Compare(a.Slots.First, b.Slots.First) })
	for i, r := range t.Regions {
		for s := int(r.Slots.First); s <= int(r.Slots.Last); s++ {
			if other := t.slots[s]; other != 0 {
				panic(fmt.Sprintf("slot %d is in region %d and in region %d", s, t.Regions[other-1].ID, r.ID))
			}
			t.slots[s] = uint16(i + 1)
		}
	}
	return t
}

// Region returns the region that covers a slot and its index in Regions; nil and -1 if there is none.
func (t *Table) Region(s topology.Slot) (*LedRegion, int) {
	i := int(t.slots[s]) - 1
	if i < 0 {
		return nil, -1
	}
	return &t.Regions[i], i
}

// ByID returns the region with the given id, nil if there is none.
func (t *Table) ByID(id topology.RegionID) *LedRegion {
	i := slices.IndexFunc(t.Regions, func(r LedRegion) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &t.Regions[i]
}

// Store returns the store with the given id, nil if there is none.
func (t *Table) Store(id topology.StoreID) *PublicStore {
	i, ok := slices.BinarySearchFunc(t.Stores, id, func(s PublicStore, id topology.StoreID) int { return cmp.Compare(s.ID, id) })
	if !ok {
		return nil
	}
	return &t.Stores[i]
}

// Led returns the slot ranges that a store leads, ascending, neighbours joined.
func (t *Table) Led(id topology.StoreID) []topology.SlotRange {
	var out []topology.SlotRange
	for i := range t.Regions {
		r := &t.Regions[i]
		if r.Leader != id || id == 0 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Last+1 == r.Slots.First {
			out[n-1].Last = r.Slots.Last
		} else {
			out = append(out, r.Slots)
		}
	}
	return out
}
