package cluster

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// regions are the regions by all that the stores know.
type regions struct {
	*core
	places *placeSet

	mu   sync.Mutex
	last []topology.Region // those that all returned last
}

// all returns the regions by all that the stores know, ascending. While a store has no map they are those that were
// known last, too: the others may have been down when there was a change.
func (x *regions) all() []topology.Region {
	x.mu.Lock()
	defer x.mu.Unlock()
	newest := make(map[topology.RegionID]route.LedRegion)
	learn := func(r route.LedRegion) {
		old, ok := newest[r.ID]
		if !ok || old.Version < r.Version || old.Version == r.Version && old.ConfVersion < r.ConfVersion {
			newest[r.ID] = r
		}
	}
	known := 0
	for _, n := range x.places.all() {
		if s := n.store.Load(); s != nil {
			if t := s.Table(); t != nil {
				known++
				for _, r := range t.Regions {
					learn(r)
				}
			}
		}
	}
	if known < len(x.places.all()) {
		for _, r := range x.last {
			learn(route.LedRegion{Region: r})
		}
	}
	if len(newest) == 0 {
		return x.initial.Regions
	}
	x.last = nil
	for _, r := range route.Disjoint(slices.Collect(maps.Values(newest))) {
		x.last = append(x.last, r.Region)
	}
	return x.last
}

// ErrNoRegion is in the error of a fault that names a region which the cluster does not have.
var ErrNoRegion = errors.New("there is no region")

// check returns an error, which is ErrNoRegion and names the regions that there are, if none has this id. Between
// the start of the stores and their first map, the regions are those that were known last.
func (x *regions) check(id topology.RegionID) error {
	var known []topology.RegionID
	for _, r := range x.all() {
		if r.ID == id {
			return nil
		}
		known = append(known, r.ID)
	}
	return fmt.Errorf("%w %d; want one of %s", ErrNoRegion, id, regionList(known))
}

// regionList prints region ids in ascending order, those in a row as a range: "1-8, 12".
func regionList(ids []topology.RegionID) string {
	ids = slices.Sorted(slices.Values(ids))
	var out []string
	for i, j := 0, 0; i < len(ids); i = j {
		for j = i + 1; j < len(ids) && ids[j] == ids[j-1]+1; j++ {
		}
		if text := fmt.Sprint(ids[i]); j-i == 1 {
			out = append(out, text)
		} else {
			out = append(out, fmt.Sprintf("%s-%d", text, ids[j-1]))
		}
	}
	return strings.Join(out, ", ")
}
