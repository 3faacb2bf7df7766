package meta

import (
	"slices"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// directory has the last heartbeat of each store, in the memory of meta's leader. It is empty when a leader begins, and
// filled one heartbeat later. The caller passes in the time and does the locking.
type directory struct {
	interval time.Duration
	stores   map[topology.StoreID]*heard
	leads    map[topology.RegionID]Lead
}

type heard struct {
	status Status
	at     time.Time
}

// newDirectory returns the directory of a leader that begins to listen; stores send a heartbeat every interval.
func newDirectory(interval time.Duration) *directory {
	return &directory{
		interval: interval, stores: make(map[topology.StoreID]*heard), leads: make(map[topology.RegionID]Lead),
	}
}

// Hear takes a heartbeat and reports whether anything has changed that other stores want to know.
func (d *directory) Hear(b Beat, now time.Time) (changed bool) {
	h := d.stores[b.Store]
	if h == nil {
		h = &heard{status: Status{ID: b.Store}}
		d.stores[b.Store] = h
	}
	next := Status{ID: b.Store, Host: b.Host, Port: b.Port, Alive: true, Full: b.Full}
	changed = h.status != next
	h.status, h.at = next, now
	for _, l := range b.Leads {
		if old, ok := d.leads[l.Region]; !ok || l.Term > old.Term || l.Term == old.Term && l.Store != old.Store {
			d.leads[l.Region] = l
			changed = true
		}
	}
	return changed
}

// Expire marks stores as dead that have been silent for too long: since their last heartbeat or, if this leader has had
// none, since its first call of Expire. Nobody has told this leader the address of the latter; a View of them has none.
// Expire reports whether there is a new dead store.
func (d *directory) Expire(members []Member, now time.Time) (changed bool) {
	for _, m := range members {
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
	slices.SortFunc(v.Stores, func(a, b Status) int { return int(a.ID) - int(b.ID) })
	for _, l := range d.leads {
		v.Leads = append(v.Leads, l)
	}
	slices.SortFunc(v.Leads, func(a, b Lead) int { return int(a.Region) - int(b.Region) })
	return v
}
