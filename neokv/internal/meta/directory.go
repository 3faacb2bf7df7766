package meta

import (
	"cmp"
	"slices"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// directory has the last heartbeat of each store, in the memory of meta's leader. It is empty when a leader begins, and
// filled one heartbeat later. The caller passes in the time and the map, and does the locking.
type directory struct {
	interval time.Duration
	began    time.Time
	stores   map[topology.StoreID]*heard
	leads    map[topology.RegionID]Lead
	loads    map[topology.RegionID]HeardLoad
	// reported has the latest descriptors that the map lacks, of all stores: the regions that take the place of others
	// may be led by different stores, and the map takes them together only.
	reported map[topology.RegionID]topology.Region
}

type heard struct {
	status Status
	free   int64 // Beat.Free
	at     time.Time
}

// newDirectory returns the directory of a leader that begins to listen; stores send a heartbeat every interval.
func newDirectory(interval time.Duration, now time.Time) *directory {
	return &directory{
		interval: interval, began: now, stores: make(map[topology.StoreID]*heard), leads: make(map[topology.RegionID]Lead),
		loads: make(map[topology.RegionID]HeardLoad), reported: make(map[topology.RegionID]topology.Region),
	}
}

// Hear takes a heartbeat and reports whether anything has changed that other stores want to know.
func (d *directory) Hear(b Beat, m *Map, now time.Time) (changed bool) {
	h := d.stores[b.Store]
	if h == nil {
		h = &heard{status: Status{ID: b.Store}}
		d.stores[b.Store] = h
	}
	next := Status{ID: b.Store, Host: b.Host, Port: b.Port, Replica: b.Replica, Alive: true, Full: b.Full}
	changed = h.status != next
	h.status, h.free, h.at = next, b.Free, now
	leads := make(map[topology.RegionID]bool, len(b.Leads))
	for _, l := range b.Leads {
		leads[l.Region] = true
		if old, ok := d.leads[l.Region]; !ok || l.Term > old.Term || l.Term == old.Term && l.Store != old.Store {
			d.leads[l.Region] = l
			changed = true
		}
	}
	for id, l := range d.leads {
		// The store does not lead the region any more. Who does will say so, unless the region is gone.
		if l.Store == b.Store && !leads[id] && m.Region(id) == nil {
			delete(d.leads, id)
			changed = true
		}
	}
	for _, l := range b.Loads {
		d.loads[l.Region] = HeardLoad{LedLoad: l, Store: b.Store}
	}
	for _, r := range b.Regions {
		if old, ok := d.reported[r.ID]; m.lacks(&r) && (!ok || newer(&r, &old)) {
			d.reported[r.ID] = r
		}
	}
	return changed
}

// News returns what the map lacks of what stores have reported, nil if it lacks nothing that it could take.
func (d *directory) News(m *Map) *RegionReport {
	if len(d.reported) == 0 {
		return nil
	}
	var regions []topology.Region
	for id, r := range d.reported {
		if m.lacks(&r) {
			regions = append(regions, r)
		} else {
			delete(d.reported, id)
		}
	}
	slices.SortFunc(regions, func(a, b topology.Region) int { return cmp.Compare(a.ID, b.ID) })
	return m.News(regions)
}

// Loads returns the last load that was sent of each region of the map, by region, and forgets the others.
func (d *directory) Loads(m *Map) []HeardLoad {
	var out []HeardLoad
	old := d.loads
	d.loads = make(map[topology.RegionID]HeardLoad)
	for i := range m.Regions {
		if l, ok := old[m.Regions[i].ID]; ok {
			d.loads[l.Region] = l
			out = append(out, l)
		}
	}
	slices.SortFunc(out, func(a, b HeardLoad) int { return cmp.Compare(a.Region, b.Region) })
	return out
}

// Heard returns how the stores are that the cluster has now, in the order of the map.
func (d *directory) Heard(m *Map, now time.Time) (all []HeardStore) {
	for _, st := range m.Stores {
		if st.State == Gone {
			continue
		}
		at, next := d.began, HeardStore{ID: st.ID, Draining: st.State == Draining}
		if h := d.stores[st.ID]; h != nil {
			at, next.Full, next.Free = h.at, h.status.Full, h.free
			if h.status.Alive && h.status.Host != "" {
				all = append(all, next)
				continue
			}
		}
		next.Silent = max(1, now.Sub(at))
		all = append(all, next)
	}
	return all
}

// Expire marks stores as dead that have been silent for too long: since their last heartbeat or, if this leader has had
// none, since its first call of Expire. Nobody has told this leader the address of the latter; a View of them has none.
// Expire reports whether there is a new dead store.
func (d *directory) Expire(members []Member, now time.Time) (changed bool) {
	for _, m := range members {
		if m.State == Gone {
			delete(d.stores, m.ID)
			continue
		}
		if d.stores[m.ID] == nil {
			d.stores[m.ID] = &heard{status: Status{ID: m.ID, Alive: true}, at: now}
		}
	}
	for _, h := range d.stores {
		if h.status.Alive && now.Sub(h.at) > deadAfter*d.interval {
			h.status.Alive = false
			changed = true
		}
	}
	return changed
}

// Followed reports whether most of the stores with a replica of meta, which are stores 1 to members, have sent self a
// heartbeat lately, or this leader has just begun. If they all turn to another leader, that ends before the first of
// them counts as dead.
func (d *directory) Followed(self topology.StoreID, members int, now time.Time) bool {
	n := 0
	for id := range topology.StoreID(members) {
		at := d.began
		if h := d.stores[id+1]; h != nil {
			at = h.at
		}
		if id+1 == self || now.Sub(at) <= (deadAfter-1)*d.interval {
			n++
		}
	}
	return 2*n > members
}

// View returns the view for a store that has this version of the map.
func (d *directory) View(m *Map, version uint64) ClusterView {
	var v ClusterView
	if m.Version > version {
		v.Map = m
	}
	for _, h := range d.stores {
		if h.status.Host != "" || !h.status.Alive { // else this leader has not heard of it yet
			v.Stores = append(v.Stores, h.status)
		}
	}
	slices.SortFunc(v.Stores, func(a, b Status) int { return cmp.Compare(a.ID, b.ID) })
	for _, l := range d.leads {
		v.Leads = append(v.Leads, l)
	}
	slices.SortFunc(v.Leads, func(a, b Lead) int { return cmp.Compare(a.Region, b.Region) })
	return v
}
