package meta

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"

	"neokv.dev/neokv/internal/topology"
)

// This file has the stores of the map: which there are, and what each is to the cluster.
//
//	(not on the map) --its first heartbeat--> Up --drain--> Draining --remove--> Gone
//	                                           ^--cancel-------'
//
// A store that is not on the map joins: nothing depends on it yet, so nothing has to be undone if it never comes. A
// store that has gone stays on the map, so that its number is never given again, and a late heartbeat of it changes
// nothing.

// Member is a store that belongs to the cluster, or did.
type Member struct {
	ID     topology.StoreID `json:"id"`
	NodeID string           `json:"node_id"` // 40 hex characters, by which Redis clients know the store
	State  StoreState       `json:"state,omitempty"`
}

// StoreState is what a store is to the cluster. Whether it runs is another matter.
type StoreState uint8

const (
	Up       StoreState = iota // replicas may be placed there
	Draining                   // its replicas move away, and none comes
	Gone                       // it was removed, for good
)

// maxStores bounds the numbers of stores.
const maxStores = 1 << 15

// newMember returns a store that has just come.
func newMember(cluster string, id topology.StoreID) Member {
	sum := sha1.Sum(fmt.Appendf(nil, "%s store %d", cluster, id))
	return Member{ID: id, NodeID: hex.EncodeToString(sum[:])}
}

// Store returns a store of the map, nil if it has not come yet. One that has gone is returned, too.
func (m *Map) Store(id topology.StoreID) *Member {
	for i := range m.Stores {
		if m.Stores[i].ID == id {
			return &m.Stores[i]
		}
	}
	return nil
}

// has reports whether the cluster has a store now.
func (m *Map) has(id topology.StoreID) bool {
	s := m.Store(id)
	return s != nil && s.State != Gone
}

// StoreChange is a change of a store: it joins, or its state is to be another one.
type StoreChange struct {
	ID    topology.StoreID `json:"id"`
	Join  bool             `json:"join,omitempty"`
	State StoreState       `json:"state,omitempty"` // unless it joins
}

// Join puts a store on the map. This store must lead meta. While another store joins, Join returns nil at once: the
// next heartbeat asks again.
func (g *Group) Join(ctx context.Context, id topology.StoreID) error {
	if !g.work.joining.CompareAndSwap(false, true) {
		return nil
	}
	defer g.work.joining.Store(false)
	_, err := g.Change(ctx, MapChange{Store: &StoreChange{ID: id, Join: true}})
	return err
}

// apply returns the stores of a map after the change, and what has come of it. changed says that they are others now.
func (c *StoreChange) apply(m *Map) (after []Member, changed bool, got Changed) {
	all := m.Stores
	refuse := func(format string, args ...any) ([]Member, bool, Changed) {
		return all, false, Changed{Refused: fmt.Sprintf(format, args...)}
	}
	at := slices.IndexFunc(all, func(s Member) bool { return s.ID == c.ID })
	switch {
	case c.Join && at >= 0 && all[at].State == Gone:
		return refuse("store %d has been removed", c.ID)
	case c.Join && at >= 0:
		return all, false, Changed{ID: uint64(c.ID)}
	case c.Join && (c.ID < 1 || c.ID > maxStores):
		return refuse("store %d: want a number from 1 to %d", c.ID, maxStores)
	case c.Join:
		all = append(slices.Clone(all), newMember(m.Cluster, c.ID))
		slices.SortFunc(all, func(a, b Member) int { return int(a.ID) - int(b.ID) })
		return all, true, Changed{ID: uint64(c.ID)}
	case at < 0:
		return refuse("there is no store %d", c.ID)
	case c.State > Gone:
		return refuse("store %d: state %d", c.ID, c.State)
	case all[at].State == c.State:
		return all, false, Changed{ID: uint64(c.ID)}
	case all[at].State == Gone:
		return refuse("store %d has been removed", c.ID)
	case c.State == Gone && all[at].State != Draining:
		return refuse("store %d is not drained", c.ID)
	case c.State == Gone:
		for i := range m.Regions {
			if _, there := m.Regions[i].PeerOn(c.ID); there {
				return refuse("region %d has a replica on store %d", m.Regions[i].ID, c.ID)
			}
		}
	}
	all = slices.Clone(all)
	all[at].State = c.State
	return all, true, Changed{ID: uint64(c.ID)}
}
