package schedule

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// History has the regions that are beyond a limit, or that rest.
type History map[topology.RegionID]Since

// Since says how long a region has been beyond limits without a break. Zero times say that it is not.
type Since struct {
	Version      uint64    // of its bounds; with others everything begins anew
	Large        time.Time // more bytes than the limit
	Busy         time.Time // more commands than the limit
	Small        time.Time // small and quiet together with its right neighbour
	Right        topology.RegionID
	RightVersion uint64 // of the neighbour of Small
	// Rests is until when the region is left alone, after an order for it that did not happen.
	Rests time.Time
}

// Next returns the history with the survey's view of things added. It changes nothing of h. Its values count only for
// the regions whose load the survey has.
func (h History) Next(s *Survey) History {
	next := History{}
	p := &s.Policy
	keep := func(before time.Time, holds bool) time.Time {
		switch {
		case !holds:
			return time.Time{}
		case before.IsZero():
			return s.Now
		}
		return before
	}
	for i := range s.Regions {
		r := &s.Regions[i]
		was := h[r.ID]
		if was.Version != r.Version {
			was = Since{Rests: was.Rests}
		}
		now := Since{Version: r.Version}
		if was.Rests.After(s.Now) {
			now.Rests = was.Rests
		}
		if r.measured() {
			now.Large = keep(was.Large, p.MaxBytes > 0 && r.Load.Bytes > float64(p.MaxBytes))
			now.Busy = keep(was.Busy, p.SplitLoad > 0 && r.Load.Commands > p.SplitLoad)
		}
		if i+1 < len(s.Regions) && p.small(r, &s.Regions[i+1]) {
			right := &s.Regions[i+1]
			now.Right, now.RightVersion = right.ID, right.Version
			if was.Right != now.Right || was.RightVersion != now.RightVersion {
				was.Small = time.Time{}
			}
			now.Small = keep(was.Small, true)
		}
		if !now.Large.IsZero() || !now.Busy.IsZero() || !now.Small.IsZero() || !now.Rests.IsZero() {
			next[r.ID] = now
		}
	}
	return next
}

// How long an order may take until it counts as failed, and how long its regions are then left alone.
const (
	patience = 30 * time.Second
	rest     = 2 * time.Minute
)

// Planner keeps what Plan needs from one survey to the next. What it keeps may be lost: a new one plans the same after
// Policy.Sustain. It must not be used concurrently.
type Planner struct {
	history History
	open    []openOrder
	failed  map[topology.RegionID]Note
}

// openOrder is an order that has been given and is not done.
type openOrder struct {
	Order
	given time.Time
}

// Plan returns the orders that are new, after it has dropped those that are done, stale or late. Its caller leaves
// History and Open of the survey empty.
func (p *Planner) Plan(s Survey) ([]Order, []Note) {
	p.open = slices.DeleteFunc(p.open, func(o openOrder) bool {
		if o.Done(&s) || o.Stale(&s) {
			delete(p.failed, o.Region)
			return true
		}
		// Once it has begun, its driver ends it.
		i := s.index(o.Region)
		if s.Now.Sub(o.given) < patience || s.Regions[i].Changing {
			return false
		}
		p.history = maps.Clone(p.history)
		if p.history == nil {
			p.history = History{}
		}
		if p.failed == nil {
			p.failed = map[topology.RegionID]Note{}
		}
		since := p.history[o.Region]
		since.Version, since.Rests = s.Regions[i].Version, s.Now.Add(rest)
		p.history[o.Region] = since
		p.failed[o.Region] = Note{o.Region, OrderFailed,
			fmt.Sprintf("%q has not happened within %s; it is left alone for %s", o.Head(), patience, rest)}
		return true
	})
	p.history = p.history.Next(&s)
	s.History, s.Open = p.history, p.Open()
	orders, notes := Plan(s)
	for _, o := range orders {
		p.open = append(p.open, openOrder{o, s.Now})
	}
	for _, id := range slices.Sorted(maps.Keys(p.failed)) {
		if p.history[id].Rests.IsZero() {
			delete(p.failed, id)
			continue
		}
		notes = append(notes, p.failed[id])
	}
	return orders, notes
}

// Open returns the orders that have been given and are not done: those to send again, and to show.
func (p *Planner) Open() []Order {
	out := make([]Order, len(p.open))
	for i, o := range p.open {
		out[i] = o.Order
	}
	return out
}
