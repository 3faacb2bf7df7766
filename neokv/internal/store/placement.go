package store

import (
	"context"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"

	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/placement"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
)

// The store that leads meta also plans where replicas lie, and which stores are homes: package placement. It makes the
// survey of the map, of what stores have reported, and of what package schedule would merge.

// placing makes the plan of meta's leader for replicas and homes. The goroutine that reports plans; the other methods
// may run concurrently.
type placing struct {
	*core
	meta    *metaMember
	cluster *clusterMap
	orders  *orders

	mu sync.Mutex // guards all that follows
	placements
}

// placements is what the leader of meta remembers of its plans.
type placements struct {
	planner placement.Planner
	survey  placement.Survey // the last one
	began   time.Time        // the first plan of this leader
	noted   map[string]bool
	lacks   []placement.Note // of the last plan
}

// placementWait is how long a new leader of meta listens before it gives orders. By then it has heard of all stores
// that run, and of the loads of regions.
const placementWait = 2 * measureEvery

// forget forgets all plans, when another store leads meta.
func (x *placing) forget() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.placements = placements{}
}

// plan gives out orders. It runs on the store that leads meta, once per heartbeat.
func (x *placing) plan(group *meta.Group, m *meta.Map, loads map[topology.RegionID]meta.HeardLoad,
	open []schedule.Order, notes []schedule.Note, now time.Time) {
	s := x.look(group, m, loads, open, notes, now)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.survey = s; x.began.IsZero() {
		x.began = now
	}
	if now.Sub(x.began) < placementWait {
		return
	}
	_, lacks := x.planner.Plan(s)
	told := make(map[string]bool)
	for _, n := range lacks {
		key := fmt.Sprintf("%s %d %d", n.About, n.Store, n.Region)
		if told[key] = true; !x.noted[key] {
			x.tell("%s", n)
		}
	}
	x.noted, x.lacks = told, lacks
	for _, o := range x.planner.Open(&s) {
		i := slices.IndexFunc(s.Regions, func(r placement.Region) bool { return r.ID == o.Region })
		x.orders.place(o, s.Regions[i].Leader)
	}
}

// unplaced is AtMeta.Unplaced.
func (x *placing) unplaced() (all []string) {
	if !x.meta.leading() {
		return nil
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, n := range x.lacks {
		if n.Store > 0 {
			all = append(all, n.Text)
		}
	}
	return all
}

// look makes the survey.
func (x *placing) look(group *meta.Group, m *meta.Map, loads map[topology.RegionID]meta.HeardLoad,
	open []schedule.Order, notes []schedule.Note, now time.Time) placement.Survey {
	k := &x.o.Settings
	s := placement.Survey{Now: now, Policy: placement.Policy{Replicas: k.Cluster.Replicas,
		DownAfter: k.Members.StoreDownAfter, Balance: k.Balance.Replicas}}
	silent, wiped := make(map[topology.StoreID]bool), make(map[topology.StoreID]bool)
	for _, w := range m.Wipes {
		wiped[w.Store] = !w.Done
	}
	for _, h := range group.Heard(now) {
		st := placement.Store{ID: h.ID, Draining: h.Draining, Down: h.Silent, Full: h.Full, Free: h.Free,
			Joining: wiped[h.ID]} // it has its own replicas to get back
		if st.Free == 0 {
			st.Free = math.MaxInt64
		}
		silent[h.ID] = h.Silent > 0
		s.Stores = append(s.Stores, st)
	}
	changing, merges := make(map[topology.RegionID]bool), make(map[topology.RegionID]bool)
	for _, o := range open {
		changing[o.Region], changing[o.Right] = true, true
	}
	for _, n := range notes {
		merges[n.Region] = n.About == schedule.NoMerge || merges[n.Region]
	}
	leaders := make(map[topology.RegionID]topology.StoreID)
	if t := x.cluster.Table(); t != nil {
		for i := range t.Regions {
			if r := &t.Regions[i]; !silent[r.Leader] {
				leaders[r.ID] = r.Leader
			}
		}
	}
	for i := range m.Regions {
		r := &m.Regions[i]
		next := placement.Region{ID: r.ID, Peers: r.Peers, Conf: r.ConfVersion, Leader: leaders[r.ID],
			Pinned: x.o.Pinned != nil && x.o.Pinned(r.ID)}
		l, ok := loads[r.ID]
		next.Bytes, next.Commands, next.Measured = l.Bytes, l.Commands, ok
		switch {
		case x.cluster.migrates(r.ID):
			next.Held = "clients are shown a migration of it"
		case slices.ContainsFunc(m.Wipes, func(w topology.Wipe) bool { return !w.Done && w.Lacks(r) }):
			next.Held = "a store that was wiped gets its replica anew"
		case l.Changing || changing[r.ID]:
			next.Held = "another change of it is open"
		}
		if merges[r.ID] && i+1 < len(m.Regions) {
			next.Merges = m.Regions[i+1].ID
		}
		s.Regions = append(s.Regions, next)
	}
	return s
}

// PlacementPlan is what meta's leader would do with replicas and homes.
type PlacementPlan struct {
	// Given are the orders that are not done yet, Next those that come now.
	Given []placement.Order `json:"given,omitempty"`
	Next  []placement.Order `json:"next,omitempty"`
	Notes []string          `json:"notes,omitempty"` // what it would do and cannot
}

// answer returns the plan, on meta's leader.
func (x *placing) answer() (p PlacementPlan, err error) {
	if x.meta.group.Load() == nil || !x.meta.leading() {
		return p, errNotLeading
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.began.IsZero() {
		return p, errNotLeading
	}
	s := x.survey
	s.Policy.Balance = true
	next, notes := x.planner.Preview(s)
	p.Given, p.Next = x.planner.Given(), next
	for _, n := range notes {
		p.Notes = append(p.Notes, n.Text)
	}
	return p, nil
}

// ask is AtMeta.Plan.
func (x *placing) ask(ctx context.Context) (p PlacementPlan, err error) {
	ctx, end, ok := x.enter(ctx)
	if !ok {
		return p, errClosing
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, 2*stepTime)
	defer cancel()
	if !retry(ctx, 10*changePause, func() bool {
		p = PlacementPlan{}
		if at := x.meta.target(); at == x.o.ID {
			p, err = x.answer()
		} else {
			err = x.core.ask(ctx, at, message{Plan: true}, &p)
		}
		return err == nil
	}) {
		return p, fmt.Errorf("no answer of the leader of meta: %w", err)
	}
	return p, nil
}
