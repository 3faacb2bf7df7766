package cluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// changes splits and merges regions, and moves their replicas.
type changes struct {
	*core
	places  *placeSet
	regions *regions
}

// changeWait bounds a split or a merge, with all tries.
const changeWait = 10 * time.Second

// split splits a region before a slot or, if that is 0, where that halves what it has.
func (x *changes) split(ctx context.Context, f fault.Fault) (outcome string, err error) {
	id := topology.RegionID(f.Region)
	err = x.atLeader(ctx, id, func(ctx context.Context, s *store.Store) error {
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
func (x *changes) merge(ctx context.Context, f fault.Fault) (outcome string, err error) {
	id := topology.RegionID(f.Region)
	var held time.Duration
	err = x.atLeader(ctx, id, func(ctx context.Context, s *store.Store) error {
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

// moveReplica moves a region's replica from one store to another, or adds one, or removes one. It returns when that is
// done, or is called off. If ctx ends before, the move goes on.
func (x *changes) moveReplica(ctx context.Context, f fault.Fault) (outcome string, err error) {
	id := topology.RegionID(f.Region)
	err = x.atLeaders(ctx, id, func(ctx context.Context, s *store.Store) error {
		err := s.Move(ctx, id, topology.StoreID(f.From), topology.StoreID(f.To))
		if r := s.Replica(id); err == nil && r != nil {
			desc, _ := r.Region()
			var on []int
			for _, p := range desc.Peers {
				on = append(on, int(p.Store))
			}
			outcome = fmt.Sprintf("region %d has replicas on stores %v", id, on)
		}
		return err
	})
	return outcome, err
}

// plan asks meta's leader for its plan, through any store that runs.
func (x *changes) plan(ctx context.Context) (p store.PlacementPlan, err error) {
	err = errNoStore
	for s := range x.places.all().Running() {
		if p, err = s.Meta().Plan(ctx); err == nil || ctx.Err() != nil {
			break
		}
	}
	return p, err
}

// atLeader calls f with the store that leads a region. It calls f again, with whichever store leads then, as long as f
// returns store.ErrAgain, for changeWait. Then it returns what f has returned last.
func (x *changes) atLeader(
	ctx context.Context, id topology.RegionID, f func(context.Context, *store.Store) error,
) error {
	ctx, cancel := context.WithTimeoutCause(ctx, changeWait, fmt.Errorf("no store has led the region for %s", changeWait))
	defer cancel()
	return x.atLeaders(ctx, id, f)
}

// atLeaders is atLeader with no bound but ctx.
func (x *changes) atLeaders(
	ctx context.Context, id topology.RegionID, f func(context.Context, *store.Store) error,
) error {
	var last error
	for {
		if n := x.places.all().LeaderOf(id); n != nil {
			if s := n.store.Load(); s != nil {
				if last = f(ctx, s); !errors.Is(last, store.ErrAgain) {
					x.regions.all() // they are known from here on, also when these stores are down
					return last
				}
			}
		} else if err := x.regions.check(id); err != nil {
			return err
		}
		if err := x.moment(ctx); err != nil {
			if ctx.Err() != nil && last != nil {
				return last
			}
			return err
		}
	}
}
