package neokv

import (
	"neokv.dev/neokv/internal/topology"
)

// balanceLeaders gives a region to each store that leads none. It picks a region of which that store has a replica, and
// asks the region's leader, a store that leads several, to hand it over.
func (c *Cluster) balanceLeaders() {
	leads := make(map[topology.StoreID]int)
	for _, n := range c.nodes {
		if s := n.store.Load(); s != nil {
			leads[n.id] = len(s.Replicas().Leads())
		}
	}
	for _, n := range c.nodes {
		s := n.store.Load()
		if s == nil || s.Table() == nil {
			continue
		}
		for _, l := range s.Replicas().Leads() {
			r := s.Table().ByID(l.Region)
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
