package meta

import (
	"context"
	"fmt"
	"slices"
	"time"

	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/topology"
)

// This file has the wipes of the map, and the replicas of meta itself, of which a wipe gives a store a new one.

// WipeChange is a change of a wipe. Exactly one field is set.
type WipeChange struct {
	Order *WipeOrder `json:"order,omitempty"`
	Begin *WipeBegin `json:"begin,omitempty"`
	Close *WipeClose `json:"close,omitempty"`
}

// WipeOrder orders a wipe of a store, which was wiped After times before: a wipe that is not known to have been ordered
// may be ordered again.
type WipeOrder struct {
	Store topology.StoreID `json:"store"`
	After uint64           `json:"after"`
	MS    int64            `json:"ms"` // now, in Unix ms
}

// WipeBegin says that a store's folder is empty, as of a wipe, and has this number. It may be said again.
type WipeBegin struct {
	Store topology.StoreID `json:"store"`
	Nth   uint64           `json:"nth"`
	Nonce uint64           `json:"nonce"`
}

// WipeClose says that all replicas of a wiped store are back.
type WipeClose struct {
	Store topology.StoreID `json:"store"`
	Nth   uint64           `json:"nth"`
}

// apply returns the wipes of a map after the change, and what has come of it. changed says that they are others now.
func (c *WipeChange) apply(m *Map) (after []topology.Wipe, changed bool, got Changed) {
	refuse := func(format string, args ...any) ([]topology.Wipe, bool, Changed) {
		return m.Wipes, false, Changed{Refused: fmt.Sprintf(format, args...)}
	}
	set := func(w topology.Wipe) ([]topology.Wipe, bool, Changed) {
		all := slices.DeleteFunc(slices.Clone(m.Wipes), func(o topology.Wipe) bool { return o.Store == w.Store })
		return append(all, w), true, Changed{ID: w.Nth}
	}
	switch {
	case c.Order != nil:
		o := c.Order
		if !m.has(o.Store) {
			return refuse("there is no store %d", o.Store)
		}
		if open := m.OpenWipe(); open != nil && open.Store != o.Store {
			return refuse("store %d is wiped, and its replicas are not back yet; one store is wiped at a time", open.Store)
		}
		w := topology.Wipe{Store: o.Store}
		if last := m.Wipe(o.Store); last != nil {
			w = *last
		}
		if w.Nth > o.After || w.Nth > 0 && w.Begun == 0 {
			return m.Wipes, false, Changed{ID: w.Nth} // it has been ordered
		}
		return set(topology.Wipe{Store: o.Store, Nth: w.Nth + 1, Floor: m.NextReplica, MS: o.MS})
	case c.Begin != nil:
		b, w := c.Begin, m.Wipe(c.Begin.Store)
		switch {
		case w == nil || w.Nth != b.Nth || b.Nonce == 0:
			return refuse("wipe %d of store %d is not the last one that was ordered", b.Nth, b.Store)
		case w.Begun == b.Nonce:
			return m.Wipes, false, Changed{ID: w.Nth}
		case w.Begun != 0:
			return refuse("since wipe %d store %d has begun with another folder, which is gone: wipe it again", b.Nth, b.Store)
		}
		begun := *w
		begun.Begun = b.Nonce
		return set(begun)
	case c.Close != nil:
		w := m.Wipe(c.Close.Store)
		if w == nil || w.Nth != c.Close.Nth || w.Begun == 0 || w.Done {
			return m.Wipes, false, Changed{}
		}
		done := *w
		done.Done = true
		return set(done)
	}
	return refuse("nothing known is asked")
}

// Wipe returns the last wipe of a store, nil if it was never wiped.
func (m *Map) Wipe(s topology.StoreID) *topology.Wipe {
	for i := range m.Wipes {
		if m.Wipes[i].Store == s {
			return &m.Wipes[i]
		}
	}
	return nil
}

// OpenWipe returns the wipe that is not done, nil if there is none.
func (m *Map) OpenWipe() *topology.Wipe {
	for i := range m.Wipes {
		if !m.Wipes[i].Done {
			return &m.Wipes[i]
		}
	}
	return nil
}

// checkWipes is Check of the wipes.
func (m *Map) checkWipes() error {
	for i, w := range m.Wipes {
		if w.Nth == 0 || !m.has(w.Store) || slices.ContainsFunc(m.Wipes[:i], func(o topology.Wipe) bool {
			return o.Store == w.Store
		}) {
			return fmt.Errorf("wipe %d of store %d", w.Nth, w.Store)
		}
	}
	return nil
}

// Lacks returns how many replicas of regions are not back since a wipe. That of meta is not on the map.
func (m *Map) Lacks(w *topology.Wipe) (n int) {
	for i := range m.Regions {
		if w.Lacks(&m.Regions[i]) {
			n++
		}
	}
	return n
}

// storeBits are the bits of the id of a replica of meta that are the store's number. The others count the wipes of the
// store. So the replicas of meta need no records: their ids say where they are.
const storeBits = 16

// ReplicaOn returns the id of a store's replica of meta, after so many wipes.
func ReplicaOn(s topology.StoreID, wipes uint64) topology.ReplicaID {
	return topology.ReplicaID(wipes<<storeBits) | topology.ReplicaID(s)
}

// StoreOf returns the store of a replica of meta.
func StoreOf(id topology.ReplicaID) topology.StoreID {
	return topology.StoreID(id & (1<<storeBits - 1))
}

// Peers returns the replicas that meta shall have in a cluster of n stores: all are voters, unless wipes are open.
func (m *Map) Peers(n int) []topology.Peer {
	all := Members(n)
	for i, p := range all {
		if w := m.Wipe(p.Store); w != nil {
			wipes := w.Nth
			if w.Begun == 0 {
				wipes--
			}
			all[i].Replica = ReplicaOn(p.Store, wipes)
		}
	}
	return all
}

// Members returns the members of meta's Raft group, behind all changes of them that were asked for before. This store
// must lead meta.
func (g *Group) Members(ctx context.Context) (multiraft.Members, error) {
	if _, err := g.propose(ctx, &change{}); err != nil {
		return multiraft.Members{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, proposalTimeout)
	defer cancel()
	return g.raft.Members(ctx)
}

// ChangeMember changes a member of meta's Raft group: see multiraft.Replica.Change.
func (g *Group) ChangeMember(ctx context.Context, timeout time.Duration, what multiraft.MemberChange, p topology.Peer,
	latest uint64) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return g.raft.Change(ctx, what, p, latest)
}
