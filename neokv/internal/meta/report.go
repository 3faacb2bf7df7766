package meta

import (
	"cmp"
	"fmt"
	"slices"

	"neokv.dev/neokv/internal/topology"
)

// This file has how regions get on the map. Their bounds and peers change by their own logs; meta only learns of it,
// from their leaders, some time later, perhaps in another order, twice, or from a store that has slept through what
// came since.
//
// Each descriptor that is reported was true once, and versions order them: a split gives both halves a larger version
// than the parent had, and a merge gives the widened region a larger one than both had. So of two regions that have
// had the same slot, the one with the larger version had it later. A report therefore need not say what was split or
// merged, and that a region is gone shows from the version of who has its slots.
//
// The map takes a reported region if its version is larger than that of every other region on the map that has one of
// its slots; of the same region, a larger configuration version does, too. What overlaps a region that is taken goes.
// So the version of each slot never falls, and a late report changes nothing.
//
// No slot is given up: where a report has a part alone of what takes the place of a region, such as a parent without
// its child, the map takes no such part. It waits until the others are reported in the same report. For this meta's
// leader puts together what it has heard from all stores.

// RegionReport is what the leaders of regions know and the map may not. Each region in it is as it was at some time; it
// may have more regions than needed. Of several versions of one the last counts.
type RegionReport struct {
	Regions []topology.Region `json:"regions"`
}

// News returns the part of a report that changes the map, nil if none does.
func (m *Map) News(regions []topology.Region) *RegionReport {
	if _, taken := m.take(regions); len(taken) > 0 {
		return &RegionReport{Regions: taken}
	}
	return nil
}

// checkRegion returns an error unless r may be on a map.
func checkRegion(r *topology.Region) error {
	if r.ID <= topology.MetaRegion || r.ID >= maxID {
		return fmt.Errorf("region %d: no id of a region", r.ID)
	}
	if r.Slots.Last < r.Slots.First || r.Slots.Last >= topology.SlotCount {
		return fmt.Errorf("region %d: slots %d to %d", r.ID, r.Slots.First, r.Slots.Last)
	}
	if len(r.Peers) == 0 {
		return fmt.Errorf("region %d: no replicas", r.ID)
	}
	for _, p := range r.Peers {
		if p.Store == 0 || p.Replica == 0 || p.Replica >= maxID {
			return fmt.Errorf("region %d: replica %d on store %d", r.ID, p.Replica, p.Store)
		}
	}
	return nil
}

// newer reports whether the descriptor a is later than b, of the same region.
func newer(a, b *topology.Region) bool {
	return a.Version > b.Version || a.Version == b.Version && a.ConfVersion > b.ConfVersion
}

// lacks reports whether the map knows nothing that is later than r, nor r itself.
func (m *Map) lacks(r *topology.Region) bool {
	if m.Version == 0 || checkRegion(r) != nil {
		return false
	}
	if known := m.Region(r.ID); known != nil && !newer(r, known) {
		return false
	}
	i, _ := slices.BinarySearchFunc(m.Regions, r.Slots.First,
		func(have topology.Region, first topology.Slot) int { return cmp.Compare(have.Slots.Last, first) })
	for ; i < len(m.Regions) && m.Regions[i].Slots.First <= r.Slots.Last; i++ {
		if have := &m.Regions[i]; have.ID != r.ID && have.Version >= r.Version {
			return false
		}
	}
	return true
}

// take returns the map that m and the reported regions make together, and those that it has taken. It returns m itself
// if there are none. The order of the regions does not matter.
func (m *Map) take(reported []topology.Region) (after *Map, taken []topology.Region) {
	latest := make(map[topology.RegionID]int) // what the map lacks: region to its place in reported
	for i := range reported {
		r := &reported[i]
		if !m.lacks(r) {
			continue
		}
		if at, ok := latest[r.ID]; !ok || newer(r, &reported[at]) {
			latest[r.ID] = i
		}
	}
	var news []topology.Region
	for i := range reported {
		if at, ok := latest[reported[i].ID]; ok && at == i {
			news = append(news, reported[i])
		}
	}
	for len(news) > 0 {
		regions, early := m.join(news)
		if len(early) == 0 {
			return m.with(regions, news)
		}
		news = slices.DeleteFunc(news, func(r topology.Region) bool { return early[r.ID] })
	}
	return m, nil
}

// join lays the regions of the map and the news over each other. If all slots that the map covers are then covered,
// join returns what is to be seen of them. Otherwise early are the news which are to wait: they hide a part of a
// region but not all of it.
func (m *Map) join(news []topology.Region) (regions []topology.Region, early map[topology.RegionID]bool) {
	all := slices.Concat(m.Regions, news)
	slices.SortFunc(all, func(a, b topology.Region) int {
		return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(a.ID, b.ID), cmp.Compare(b.ConfVersion, a.ConfVersion))
	})
	ranges := make([]topology.SlotRange, len(all))
	latest := make(map[topology.RegionID]int, len(all)) // descriptor of each region
	for i := range all {
		ranges[i] = all[i].Slots
		if _, ok := latest[all[i].ID]; !ok {
			latest[all[i].ID] = i
		}
	}
	owner := topology.Cover(ranges)
	seen := make([]int, len(all)) // of how many slots each descriptor is the latest
	for _, o := range owner {
		if o >= 0 {
			seen[o]++
		}
	}
	early = make(map[topology.RegionID]bool)
	for i := range all {
		r := &all[i]
		switch {
		case seen[i] == 0:
		case seen[i] == r.Slots.Count() && latest[r.ID] == i:
			regions = append(regions, *r)
		default:
			// What hides a part of r is news: regions of the map do not overlap, and the map lacks none of what overlaps
			// a later region of it. The same holds for a later descriptor of r that does not hide all of r.
			if latest[r.ID] != i {
				early[r.ID] = true
			}
			for s := int(r.Slots.First); s <= int(r.Slots.Last); s++ {
				if o := owner[s]; o != int32(i) {
					early[all[o].ID] = true
				}
			}
		}
	}
	return regions, early
}

// with returns the map with these regions, and those of the news that are among them.
func (m *Map) with(regions, news []topology.Region) (after *Map, taken []topology.Region) {
	slices.SortFunc(regions, func(a, b topology.Region) int { return cmp.Compare(a.Slots.First, b.Slots.First) })
	next := *m
	next.Version++
	next.Regions = regions
	for i := range news {
		r := &news[i]
		if !slices.ContainsFunc(regions, func(x topology.Region) bool { return x.ID == r.ID && same(&x, r) }) {
			continue
		}
		taken = append(taken, *r)
		next.NextRegion = max(next.NextRegion, r.ID+1)
		for _, p := range r.Peers {
			next.NextReplica = max(next.NextReplica, p.Replica+1)
		}
	}
	return &next, taken
}
