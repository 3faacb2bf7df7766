package store

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
)

// replicaSet has the store's replicas, those that run and those that are about to. Its map is replaced whole, so that
// readers take no lock.
type replicaSet struct {
	now atomic.Pointer[Replicas]
	mu  sync.Mutex // held to replace now
}

// get returns the store's replica of a region, nil if it has none.
func (x *replicaSet) get(id topology.RegionID) *region.Replica { return (*x.now.Load())[id] }

// all returns the replicas of this moment.
func (x *replicaSet) all() Replicas { return *x.now.Load() }

// change replaces the replicas by what f makes of a copy of them, unless f returns false. It returns those of then.
func (x *replicaSet) change(f func(next Replicas) bool) Replicas {
	x.mu.Lock()
	defer x.mu.Unlock()
	next := maps.Clone(x.all())
	if f(next) {
		x.now.Store(&next)
	}
	return next
}

// revoke is called by the endpoint before it lets out what ends a lease: see transport.Options.
func (x *replicaSet) revoke(id topology.RegionID, term uint64) {
	if r := x.get(id); r != nil {
		r.Revoke(term)
	}
}

// forwarded is called by the endpoint with proposals that it has dropped: see transport.Options.
func (x *replicaSet) forwarded(id topology.RegionID, entries []multiraft.LogEntry) {
	if r := x.get(id); r != nil {
		r.Dropped(entries)
	}
}

// Replicas are the replicas of a store at one moment, by region. Its methods tell of the state of each replica when
// they come to it.
type Replicas map[topology.RegionID]*region.Replica

// Regions returns the regions, as the replicas have applied them, without those that others have absorbed; in no order.
func (x Replicas) Regions() (all []topology.Region) {
	for _, r := range x {
		if r.Bounds().Phase != keys.Absorbed {
			region, _ := r.Region()
			all = append(all, region)
		}
	}
	return all
}

// Leads returns the regions that the replicas serve, in no order.
func (x Replicas) Leads() (leads []meta.Lead) {
	for id, r := range x {
		if _, term, serving := r.Leading(); serving {
			region, self := r.Region()
			leads = append(leads, meta.Lead{Region: id, Store: region.StoreOf(self), Term: term})
		}
	}
	return leads
}

// Leaseless returns the regions that the replicas lead and read without a lease, as long as the present terms last, in
// order.
func (x Replicas) Leaseless() (all []topology.RegionID) {
	for id, r := range x {
		if r.Leaseless() {
			all = append(all, id)
		}
	}
	slices.Sort(all)
	return all
}

// TimeAhead returns how far the region time of any region is ahead of the store's clock, at most; 0 if none is ahead.
func (x Replicas) TimeAhead() (ahead time.Duration) {
	now := uint64(time.Now().UnixMilli())
	for _, r := range x {
		if t := r.TimeMS(); t > now {
			ahead = max(ahead, time.Duration(t-now)*time.Millisecond)
		}
	}
	return ahead
}
