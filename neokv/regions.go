package neokv

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// changeWait bounds a split or a merge, with all tries.
const changeWait = 10 * time.Second

// split splits a region before a slot or, if that is 0, where that halves what it has.
func (c *Cluster) split(ctx context.Context, f fault.Fault) (outcome string, err error) {
	id := topology.RegionID(f.Region)
	err = c.atLeader(ctx, id, func(ctx context.Context, s *store.Store) error {
		child, err := s.Split(ctx, id, topology.Slot(f.Slot), 0, "")
		if err == nil {
			outcome = fmt.Sprintf("region %d is split at slot %d: region %d has slots %s", id, child.Slots.First, child.ID,
				child.Slots)
		}
		return err
	})
	return outcome, err
}

// merge merges the right neighbour of a region into it.
func (c *Cluster) merge(ctx context.Context, f fault.Fault) (outcome string, err error) {
	id := topology.RegionID(f.Region)
	var held time.Duration
	err = c.atLeader(ctx, id, func(ctx context.Context, s *store.Store) error {
		right, err := s.Merge(ctx, id, "", &held)
		if err == nil {
			outcome = fmt.Sprintf("region %d has taken region %d over", id, right)
			if r := s.Replica(id); r != nil {
				desc, _ := r.Region()
				outcome += fmt.Sprintf(": it has slots %s", desc.Slots)
			}
		}
		return err
	})
	return outcome, err
}

// atLeader calls f with the store that leads a region. It calls f again, with whichever store leads then, as long as f
// returns store.ErrAgain, for changeWait. Then it returns what f has returned last.
func (c *Cluster) atLeader(ctx context.Context, id topology.RegionID,
	f func(context.Context, *store.Store) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, changeWait, fmt.Errorf("no store has led the region for %s", changeWait))
	defer cancel()
	var last error
	for {
		if n := c.nodes.leaderOf(id); n != nil {
			if s := n.store.Load(); s != nil {
				if last = f(ctx, s); !errors.Is(last, store.ErrAgain) {
					c.regions() // they are known from here on, also when these stores are down
					return last
				}
			}
		} else if err := c.checkRegion(id); err != nil {
			return err
		}
		if err := c.moment(ctx); err != nil {
			if ctx.Err() != nil && last != nil {
				return last
			}
			return err
		}
	}
}

// ErrNoRegion is in the error of a fault that names a region which the cluster does not have.
var ErrNoRegion = errors.New("there is no region")

// checkRegion returns an error, which is ErrNoRegion and names the regions that there are, if none has this id. Between
// the start of the stores and their first map, the regions are those that were known last.
func (c *Cluster) checkRegion(id topology.RegionID) error {
	var known []topology.RegionID
	for _, r := range c.regions() {
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

// regions returns the regions by all that the stores know, ascending. While a store has no map they are those that were
// known last, too: the others may have been down when there was a change.
func (c *Cluster) regions() []topology.Region {
	c.regionMu.Lock()
	defer c.regionMu.Unlock()
	newest := make(map[topology.RegionID]route.LedRegion)
	learn := func(r route.LedRegion) {
		if old, ok := newest[r.ID]; !ok || old.Version < r.Version {
			newest[r.ID] = r
		}
	}
	known := 0
	for _, n := range c.nodes {
		if s := n.store.Load(); s != nil {
			if t := s.Table(); t != nil {
				known++
				for _, r := range t.Regions {
					learn(r)
				}
			}
		}
	}
	if known < len(c.nodes) {
		for _, r := range c.lastRegions {
			learn(route.LedRegion{Region: r})
		}
	}
	if len(newest) == 0 {
		return c.initial.Regions
	}
	c.lastRegions = nil
	for _, r := range route.Disjoint(slices.Collect(maps.Values(newest))) {
		c.lastRegions = append(c.lastRegions, r.Region)
	}
	return c.lastRegions
}

// changeText says what part a region has in a change.
func changeText(x keys.RegionChange) string {
	switch x.Kind {
	case keys.Splitting:
		return "splits"
	case keys.HasSplit:
		return fmt.Sprintf("has split off region %d", x.Other)
	case keys.Merging:
		return fmt.Sprintf("takes region %d over", x.Other)
	case keys.Merged:
		return fmt.Sprintf("has taken region %d over", x.Other)
	case keys.Leaving:
		return fmt.Sprintf("goes to region %d", x.Other)
	}
	return ""
}
