package schedule

import (
	"errors"
	"fmt"

	"neokv.dev/neokv/internal/topology"
)

// OrderKind says what an order does.
type OrderKind string

// The kinds of orders.
const (
	SplitRegion OrderKind = "split"
	MergeRegion OrderKind = "merge" // the region takes over its right neighbour
)

// Order is one split or merge that shall happen. It is safe to repeat: a store that gets it when Done or Stale holds
// does nothing.
type Order struct {
	Kind   OrderKind         `json:"kind"`
	Region topology.RegionID `json:"region"`
	// Slot is the bound that comes or goes: the first slot of the split's child, or of the merge's right neighbour.
	Slot topology.Slot `json:"slot"`
	// Version is that of the region's bounds when the order was made, RightVersion that of the right neighbour in a
	// merge. An order with a Version of 0 is that of a user: see Resolve.
	Version      uint64            `json:"version,omitempty"`
	Right        topology.RegionID `json:"right,omitempty"`
	RightVersion uint64            `json:"right_version,omitempty"`
	Reason       string            `json:"reason,omitempty"`
}

// Head returns the order as a user types it: "split 3 8192", "merge 3".
func (o Order) Head() string {
	if o.Kind == MergeRegion {
		return fmt.Sprintf("merge %d", o.Region)
	}
	return fmt.Sprintf("split %d %d", o.Region, o.Slot)
}

// String returns the order with its reason, for people.
func (o Order) String() string {
	s := fmt.Sprintf("split region %d at slot %d", o.Region, o.Slot)
	if o.Kind == MergeRegion {
		s = fmt.Sprintf("merge region %d into region %d", o.Right, o.Region)
	}
	if o.Reason != "" {
		s += ": " + o.Reason
	}
	return s
}

// Done reports whether what the order wants is so: a region begins at the split's slot, or none at the merge's. It is
// meant for orders that Plan or Resolve made.
func (o Order) Done(s *Survey) bool { return s.begins(o.Slot) == (o.Kind == SplitRegion) }

// Stale reports whether the order can no longer be carried out as it was meant, since its regions have other bounds
// now. An order that is done is stale, too.
func (o Order) Stale(s *Survey) bool {
	i := s.index(o.Region)
	if i < 0 || s.Regions[i].Version != o.Version {
		return true
	}
	if o.Kind == SplitRegion {
		return false
	}
	j := s.index(o.Right)
	return j < 0 || s.Regions[j].Version != o.RightVersion
}

// Resolve completes an order of a user: it chooses the slot of a split that names none, as Plan would, and finds the
// right neighbour of a merge. The error says why the order cannot be carried out. Limits, cool-downs and pins do not
// count, since a user may do what the policy would not.
func (s *Survey) Resolve(o Order) (Order, error) {
	i := s.index(o.Region)
	if i < 0 {
		return o, fmt.Errorf("no region %d", o.Region)
	}
	r := &s.Regions[i]
	o.Version = r.Version
	if why := s.obstacle(r); why != "" {
		return o, fmt.Errorf("region %d: %s", r.ID, why)
	}
	if o.Kind == SplitRegion {
		switch {
		case r.Slots.Count() == 1:
			return o, fmt.Errorf("region %d: it has one slot, %s: a slot is never split", r.ID, r.Slots)
		case o.Slot == 0:
			weights := r.Load.Sizes
			if !r.measured() || len(weights) == 0 {
				weights = r.Load.Slots
			}
			if !r.measured() {
				weights = nil
			}
			o.Slot = bestCut(r.Slots, weights).slot
		case o.Slot <= r.Slots.First || o.Slot > r.Slots.Last:
			return o, fmt.Errorf("region %d: slot %d: want %d to %d", r.ID, o.Slot, r.Slots.First+1, r.Slots.Last)
		}
		if len(s.Regions) >= s.Policy.Most {
			return o, fmt.Errorf("region %d: there are %d regions, and there may be no more", r.ID, len(s.Regions))
		}
		return o, nil
	}
	if i+1 == len(s.Regions) {
		return o, fmt.Errorf("region %d: it has no right neighbour", r.ID)
	}
	right := &s.Regions[i+1]
	o.Right, o.RightVersion, o.Slot = right.ID, right.Version, right.Slots.First
	if why := s.obstacle(right); why != "" {
		return o, fmt.Errorf("region %d: %s", right.ID, why)
	}
	if why := apart(r, right); why != "" {
		return o, errors.New(why)
	}
	return o, nil
}
