package cluster

import (
	"slices"
	"sync/atomic"

	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// proxyTable is the slot table of the proxy port, which the proxy makes of the tables of all stores.
type proxyTable struct {
	places *placeSet
	now    atomic.Pointer[proxied]
}

// proxied is a slot table, and the stores' tables that it was made of.
type proxied struct {
	places Places
	from   []*route.Table
	table  *route.Table
}

// get returns the proxy's slot table. It joins what each store says of itself: the leader of a region is the
// store that serves it in the latest term, and its bounds are the newest that a store knows. Who is alive it takes from
// a store that is not alone, if there is one; a store that does not run is not alive. It makes a new table only
// when a store has published one or has ended.
func (x *proxyTable) get() *route.Table {
	old := x.now.Load()
	all := x.places.all()
	fresh := old != nil && slices.Equal(old.places, all)
	for i, n := range all {
		var t *route.Table
		if s := n.store.Load(); s != nil && s.Failed() == nil {
			t = s.Table()
		}
		if fresh && old.from[i] != t {
			fresh = false
		}
	}
	if fresh {
		return old.table
	}
	next := &proxied{from: make([]*route.Table, len(all)), places: all}
	var best *route.Table
	leaders := make(map[topology.RegionID]route.LedRegion)
	newest := make(map[topology.RegionID]route.LedRegion)
	for i, n := range all {
		s := n.store.Load()
		if s == nil || s.Failed() != nil {
			continue
		}
		t := s.Table()
		if next.from[i] = t; t == nil {
			continue
		}
		if best == nil || best.Alone && !t.Alone || best.Alone == t.Alone && len(t.Stores) > len(best.Stores) {
			best = t
		}
		for _, r := range t.Regions {
			if r.Leader == n.id && r.Term >= leaders[r.ID].Term {
				leaders[r.ID] = r
			}
			if known, ok := newest[r.ID]; !ok || r.Version > known.Version {
				newest[r.ID] = r
			}
		}
	}
	if best == nil {
		return nil
	}
	regions := make([]route.LedRegion, 0, len(newest))
	for id, r := range newest {
		r.Leader, r.Term = leaders[id].Leader, leaders[id].Term
		regions = append(regions, r)
	}
	epoch := uint64(1)
	if old != nil && old.table != nil {
		epoch = old.table.Epoch + 1
	}
	stores := slices.Clone(best.Stores)
	for i := range stores { // a store that is down is so at once, though the others wait for its heartbeats
		at := slices.IndexFunc(all, func(n *Place) bool { return n.id == stores[i].ID })
		stores[i].Alive = stores[i].Alive && at >= 0 && next.from[at] != nil
	}
	next.table = route.NewTable(epoch, stores, regions)
	next.table.Gone = best.Gone
	x.now.Store(next)
	return next.table
}
