package cluster

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"sync/atomic"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// placeSet has the places of the cluster's stores. It replaces its slice whole, so that readers take no lock and each sees
// the stores of one moment. Whoever replaces it has the turn of power.
type placeSet struct {
	now  atomic.Pointer[Places]
	last topology.StoreID // the largest number that a store has had; whoever has the turn uses it
}

// all returns the places of this moment.
func (x *placeSet) all() Places {
	if now := x.now.Load(); now != nil {
		return *now
	}
	return nil
}

func (x *placeSet) set(p Places) { x.now.Store(&p) }

// roster returns which stores there are, for a record. The caller has the turn of power.
func (x *placeSet) roster(founders int) (r roster) {
	all := x.all()
	for id := topology.StoreID(1); id <= x.last; id++ {
		if all.At(id) == nil {
			r.Gone = append(r.Gone, id)
		}
	}
	if founders != len(all) || r.Gone != nil {
		r.Founders = founders
	}
	return r
}

// Places are the places of all stores, or of some, by store number. Numbers of stores that were removed are missing.
type Places []*Place

// At returns the place of a store, nil if there is none.
func (p Places) At(id topology.StoreID) *Place {
	if i := int(id) - 1; i >= 0 && i < len(p) && p[i].id == id {
		return p[i]
	}
	for _, n := range p {
		if n.id == id {
			return n
		}
	}
	return nil
}

// of returns the places of some stores, nil for all of them.
func (p Places) of(stores []int) (out Places) {
	for _, n := range p {
		if stores == nil || slices.Contains(stores, int(n.id)) {
			out = append(out, n)
		}
	}
	return out
}

// Replica returns the replica of a region on a store, nil if there is none.
func (p Places) Replica(id topology.StoreID, r topology.RegionID) *region.Replica {
	if n := p.At(id); n != nil {
		if s := n.store.Load(); s != nil {
			return s.Replica(r)
		}
	}
	return nil
}

// Running yields the stores that run.
func (p Places) Running() iter.Seq[*store.Store] {
	return func(yield func(*store.Store) bool) {
		for _, n := range p {
			if s := n.store.Load(); s != nil && s.Failed() == nil && !yield(s) {
				return
			}
		}
	}
}

// LeaderOf returns the place of the store that serves a region in the latest term, nil if none does.
func (p Places) LeaderOf(id topology.RegionID) (leader *Place) {
	latest := uint64(0)
	for _, n := range p {
		s := n.store.Load()
		if s == nil || s.Failed() != nil {
			continue
		}
		if r := s.Replica(id); r != nil {
			if _, term, serving := r.Leading(); serving && term >= latest && r.Bounds().Phase != keys.Absorbed {
				leader, latest = n, term
			}
		}
	}
	return leader
}

// absent reports whether a store has not taken part in this boot yet.
func (p Places) absent(id topology.StoreID) bool {
	n := p.At(id)
	return n == nil || !n.entered.Load()
}

// allRun returns an error that names the stores which do not run.
func (p Places) allRun() error {
	var errs []error
	for _, n := range p {
		if !n.running() {
			errs = append(errs, fmt.Errorf("store %d does not run", n.id))
		}
	}
	return errors.Join(errs...)
}

// noneHangs returns an error that names the stores which cannot end cleanly, since the syncs of their disks do not
// return.
func (p Places) noneHangs() error {
	var errs []error
	for _, n := range p {
		n.mu.Lock()
		if n.faults.drive.Hang && !n.down && n.failure == nil {
			errs = append(errs, fmt.Errorf("the disk of store %d hangs; kill the store, or make its disk good first", n.id))
		}
		n.mu.Unlock()
	}
	return errors.Join(errs...)
}

// onAll calls f with all of them side by side, and returns their errors.
func (p Places) onAll(f func(*Place) error) error {
	errs := make([]error, len(p))
	var wg sync.WaitGroup
	for i, n := range p {
		wg.Go(func() { errs[i] = f(n) })
	}
	wg.Wait()
	return errors.Join(errs...)
}

// ids returns the numbers of the stores.
func (p Places) ids() (ids []topology.StoreID) {
	for _, n := range p {
		ids = append(ids, n.id)
	}
	return ids
}

// newest returns the newest slot table of a store that runs and knows the cluster map, nil if there is none.
func (p Places) newest() (newest *route.Table) {
	for s := range p.Running() {
		if t := s.Table(); t != nil && t.Version > 0 && (newest == nil || t.Version > newest.Version) {
			newest = t
		}
	}
	return newest
}

// unplaced says what of the replicas of stores that drain or are gone cannot move, if a store here leads meta.
func (p Places) unplaced() (all []string) {
	for s := range p.Running() {
		all = append(all, s.Meta().Unplaced()...)
	}
	return all
}

// changeMap has a store that runs change the cluster map.
func (p Places) changeMap(ctx context.Context, x meta.MapChange) (id uint64, err error) {
	err = errNoStore
	for s := range p.Running() {
		if id, err = s.Meta().ChangeMap(ctx, x); err == nil || ctx.Err() != nil {
			break
		}
	}
	return id, err
}
