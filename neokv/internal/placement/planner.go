package placement

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"neokv.dev/neokv/internal/topology"
)

const (
	// patience is how long an order may take to begin. Then it has failed, as if the move were called off.
	patience = 30 * time.Second
	// recovery is how long a region is left alone after an order for it that has failed.
	recovery = 2 * time.Minute
	// settles is after how many surveys in which nothing was to do all counts as balanced.
	settles = 10
)

// Planner keeps what Plan needs from one survey to the next. All of it may be lost: a new Planner goes on with what is
// to balance, and may move a replica once more. It must not be used concurrently.
type Planner struct {
	stores  []topology.StoreID // that shall have replicas, at the last survey
	running []running          // those of them that run
	quiet   int                // surveys in which nothing was to do
	moved   map[Place]bool
	open    []openOrder
	failed  map[topology.RegionID]failure
}

// running is a store that runs.
type running struct {
	id   topology.StoreID
	full bool
}

// openOrder is an order whose outcome is not known yet.
type openOrder struct {
	Order
	given time.Time
}

// failure is of an order that has failed.
type failure struct {
	Note
	until time.Time
}

// Plan returns the orders that are new, and the notes. Its caller leaves Open, Rests, Settled and Moved of the survey
// empty.
func (p *Planner) Plan(s Survey) ([]Order, []Note) {
	p.look(&s)
	p.complete(&s)
	orders, notes := Plan(s)
	busy := len(orders) > 0 || len(p.open) > 0
	for i := range s.Regions {
		r := &s.Regions[i]
		busy = busy || !r.settled() || r.Leader != 0 && !r.Measured
	}
	if p.quiet++; busy {
		p.quiet = 0
	}
	for _, o := range orders {
		p.open = append(p.open, openOrder{o, s.Now})
		if o.Why == Balance {
			p.moved[Place{o.Region, o.To}] = true
		}
	}
	return orders, append(notes, p.failures()...)
}

// Preview returns what Plan would, and changes nothing.
func (p *Planner) Preview(s Survey) ([]Order, []Note) {
	now := *p
	now.moved, now.open, now.failed = maps.Clone(p.moved), slices.Clone(p.open), maps.Clone(p.failed)
	return now.Plan(s)
}

// Open returns the orders that have been given and whose regions have not changed since: those to send again.
func (p *Planner) Open(s *Survey) (open []Order) {
	for _, o := range p.open {
		if i := s.index(o.Region); i >= 0 && s.Regions[i].Conf == o.Conf {
			open = append(open, o.Order)
		}
	}
	return open
}

// Given returns the orders that have been given and are not done, those whose regions are changing included.
func (p *Planner) Given() (given []Order) {
	for _, o := range p.open {
		given = append(given, o.Order)
	}
	return given
}

// complete sets what the survey has of the planner.
func (p *Planner) complete(s *Survey) {
	s.Open, s.Settled, s.Moved = p.Open(s), p.quiet >= settles, p.moved
	s.Rests = make(map[topology.RegionID]bool, len(p.failed))
	for id := range p.failed {
		s.Rests[id] = true
	}
}

// look drops orders that are done, and notes which have failed.
func (p *Planner) look(s *Survey) {
	if p.moved == nil {
		p.moved, p.failed = make(map[Place]bool), make(map[topology.RegionID]failure)
	}
	var stores []topology.StoreID
	var run []running
	for _, st := range s.Stores {
		if st.Joining || st.Draining || s.Policy.DownAfter > 0 && st.Down > s.Policy.DownAfter {
			continue
		}
		stores = append(stores, st.ID)
		if st.Down == 0 {
			run = append(run, running{st.ID, st.Full})
		}
	}
	if !slices.Equal(stores, p.stores) {
		clear(p.moved)
	}
	if !slices.Equal(run, p.running) {
		p.quiet = 0
	}
	p.stores, p.running = stores, run
	maps.DeleteFunc(p.failed, func(_ topology.RegionID, f failure) bool { return !s.Now.Before(f.until) })
	p.open = slices.DeleteFunc(p.open, func(o openOrder) bool {
		i := s.index(o.Region)
		switch {
		case i < 0 || o.placed(&s.Regions[i]) && s.Regions[i].settled():
			return true
		case s.Regions[i].Conf == o.Conf && s.Now.Sub(o.given) < patience, !s.Regions[i].settled():
			return false
		}
		text := "has been called off"
		if s.Regions[i].Conf == o.Conf {
			text = fmt.Sprintf("has not begun within %s", patience)
		}
		p.failed[o.Region] = failure{Note{About: OrderFailed, Region: o.Region,
			Text: fmt.Sprintf("region %d: %q %s; it is left alone for %s", o.Region, o.Head(), text, shortTime(recovery))},
			s.Now.Add(recovery)}
		return true
	})
}

// failures returns a note for each order that has failed lately.
func (p *Planner) failures() (notes []Note) {
	for _, id := range slices.Sorted(maps.Keys(p.failed)) {
		notes = append(notes, p.failed[id].Note)
	}
	return notes
}
