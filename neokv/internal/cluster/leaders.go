package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/topology"
)

// leaders moves the leadership of regions between stores.
type leaders struct {
	*core
	pins    *pins
	places  *placeSet
	regions *regions
}

// pins are the regions whose leaders were moved on purpose. Such a region stays with the leader that it has, until
// heal.
type pins struct{ regions sync.Map } // of RegionIDs

func (p *pins) has(id topology.RegionID) bool {
	_, pinned := p.regions.Load(id)
	return pinned
}

// transferWait is how long a transfer may take before it is called off.
const transferWait = 5 * time.Second

// transferAgain is how long a leader has for one attempt.
const transferAgain = 100 * time.Millisecond

// transfer moves the leadership of a region to a store, or to any other one if that is 0, and pins the region there.
func (l *leaders) transfer(ctx context.Context, f fault.Fault) (outcome string, err error) {
	id := topology.RegionID(f.Region)
	at, err := l.lead(ctx, id, topology.StoreID(f.To))
	if err != nil {
		return "", err
	}
	l.pins.regions.Store(id, true) // nobody has moved it on: a leader hands over only after raft.leader_return
	return fmt.Sprintf("store %d leads region %d", at, id), nil
}

// lead moves the leadership of a region to a store, or to any other one if that is 0, and returns which one leads it
// now. Raft may ignore a request or, while a sync lasts, not take it, and the leader may change. So lead asks again.
func (l *leaders) lead(ctx context.Context, id topology.RegionID, to topology.StoreID) (topology.StoreID, error) {
	if err := l.regions.check(id); err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, transferWait,
		fmt.Errorf("the leader has not moved in %s", transferWait))
	defer cancel()
	var first *Place
	var refusal error // why Raft has not taken the last request, nil if it has
	for {
		from := l.places.all().LeaderOf(id)
		if first == nil {
			first = from
		}
		if from != nil {
			if from.id == to || to == 0 && from != first {
				return from.id, nil
			}
			next, err := l.successor(id, from, to)
			if err != nil {
				return 0, err
			}
			if s := from.store.Load(); s != nil {
				refusal = s.Transfer(id, next)
			}
		}
		for end := time.Now().Add(transferAgain); time.Now().Before(end) && l.places.all().LeaderOf(id) == from; {
			if err := l.moment(ctx); err != nil && ctx.Err() != nil && refusal != nil {
				return 0, fmt.Errorf("%w: %w", err, refusal)
			} else if err != nil {
				return 0, err
			}
		}
	}
}

// successor returns the store that a region's leader should hand over to: to or, if that is 0, the one whose replica
// has applied most. The error says what the cluster lacks for that.
func (l *leaders) successor(id topology.RegionID, from *Place, to topology.StoreID) (topology.StoreID, error) {
	if to == 0 {
		most := uint64(0)
		for _, n := range l.places.all() {
			if r := l.places.all().Replica(n.id, id); n != from && n.running() && r != nil && (to == 0 || r.Applied() > most) {
				to, most = n.id, r.Applied()
			}
		}
		if to == 0 {
			return 0, errors.New("no other store that runs has a replica of the region")
		}
		return to, nil
	}
	if !l.places.all().At(to).running() {
		return 0, fmt.Errorf("store %d does not run", to)
	}
	if r := l.places.all().Replica(from.id, id); r != nil { // nil if the leader has just stopped
		desc, _ := r.Region()
		if _, ok := desc.PeerOn(to); !ok {
			return 0, fmt.Errorf("region %d has no replica on store %d", id, to)
		}
	}
	return to, nil
}

// balance gives a region to each store that leads none. It picks a region of which that store has a replica, and
// asks the region's leader, a store that leads several, to hand it over.
func (l *leaders) balance() {
	leads := make(map[topology.StoreID]int)
	for _, n := range l.places.all() {
		if s := n.store.Load(); s != nil {
			leads[n.id] = len(s.Replicas().Leads())
		}
	}
	for _, n := range l.places.all() {
		s := n.store.Load()
		if s == nil || s.Table() == nil {
			continue
		}
		for _, led := range s.Replicas().Leads() {
			r := s.Table().ByID(led.Region)
			if r == nil || leads[n.id] < 2 {
				continue
			}
			for _, p := range r.Peers {
				if leads[p.Store] == 0 && s.Transfer(r.ID, p.Store) == nil {
					leads[p.Store]++
					leads[n.id]--
					break
				}
			}
		}
	}
}
