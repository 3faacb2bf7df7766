package neokv

import (
	"neokv.dev/neokv/internal/topology"
)

// spread asks leaders of regions that another store is to lead to hand over, where that store leads nothing.
func (c *Cluster) spread() {
	leads := make(map[topology.StoreID]int)
	for _, n := range c.nodes {
		if s := n.store.Load(); s != nil {
			leads[n.id] = len(s.Leads())
		}
	}
	for _, n := range c.nodes {
		s := n.store.Load()
		if s == nil || s.Table() == nil {
			continue
		}
		for _, l := range s.Leads() {
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
