package route

import (
	"strconv"

	"neokv.dev/neokv/internal/topology"
)

// Action is what to do with a command.
type Action byte

const (
	Serve       Action = iota // here, or on the proxy port: by the leader's replica
	Moved                     // redirect to the store that serves the slot
	CrossSlot                 // the keys lie too far apart
	ClusterDown               // nobody serves the slot
	Wait                      // no leader is known: look again when the table has changed
)

// Decision is an Action and what it needs.
type Decision struct {
	Action Action
	Slot   topology.Slot // the first key's
	Index  int           // the region in Table.Regions, where it is known: Serve, Moved, Wait
	Follow bool          // Serve: here, by a replica that does not lead
	Host   string        // Moved
	Port   int           // Moved
}

// Decide says where a command is served whose keys have the given slots, at least one. Self is the store that was
// asked: it takes commands whose keys are all in one slot of a region that it leads. Self 0 is the proxy port, or a
// store that does not redirect: it serves every region, and needs the keys in one region only. With follow any replica
// on self will do.
func Decide(t *Table, self topology.StoreID, slots []topology.Slot, follow bool) Decision {
	d := Decision{Slot: slots[0], Index: -1}
	if self != 0 {
		for _, s := range slots[1:] {
			if s != d.Slot {
				d.Action = CrossSlot
				return d
			}
		}
	}
	if t == nil {
		d.Action = Wait
		return d
	}
	region, index := t.Region(d.Slot)
	if region == nil {
		d.Action = ClusterDown
		return d
	}
	d.Index = index
	for _, s := range slots[1:] {
		if !region.Slots.Contains(s) {
			d.Action = CrossSlot
			return d
		}
	}
	switch {
	case region.Leader == 0:
		d.Action = Wait
	case self == 0 || region.Leader == self:
		d.Action = Serve
	case follow && holds(region, self): // also where its leader is held to be dead: Raft, which told the leader, may know better
		d.Action, d.Follow = Serve, true
	default:
		leader := t.Store(region.Leader)
		if leader == nil || !leader.Alive { // an election is near: nobody is sent to a dead store while there is time to wait
			d.Action = Wait
			return d
		}
		d.Action, d.Host, d.Port = Moved, leader.Host, leader.Port
	}
	return d
}

func holds(r *LedRegion, s topology.StoreID) bool {
	_, ok := r.PeerOn(s)
	return ok
}

// Unserved says what to answer when the time for waiting is over. Where another store leads by all that is known the
// client is sent there. A store that otherwise hears a quorum of the region knows that nobody serves the slot. One that
// does not may be the one that is cut off: it sends clients to the region's other voters, a leader first even if it is
// held to be dead, one after the other as turn counts up. Where it hears meta, which counts too few alive, it sends
// them to nobody once in each round, so that a client of a region without a quorum is told; where it hears nobody it
// does not, since a client that is told tries the same store again.
func Unserved(t *Table, self topology.StoreID, slot topology.Slot, turn uint64) Decision {
	d := Decision{Action: ClusterDown, Slot: slot, Index: -1}
	if t == nil || self == 0 {
		return d
	}
	region, index := t.Region(slot)
	if region == nil {
		return d
	}
	d.Index = index
	leader := region.Leader
	if leader == 0 {
		leader = region.Told
	}
	if s := t.Store(leader); s != nil && s.ID != self && s.Alive && !t.Alone {
		d.Action, d.Host, d.Port = Moved, s.Host, s.Port
		return d
	}
	var others []*PublicStore
	heard := 0
	for _, p := range region.Peers {
		s := t.Store(p.Store)
		if s != nil && (s.ID == self || s.Alive) {
			heard++
		}
		switch {
		case s == nil || s.ID == self:
		case s.ID == leader:
			others = append([]*PublicStore{s}, others...)
		case s.Alive:
			others = append(others, s)
		}
	}
	if !t.Alone && heard > len(region.Peers)/2 {
		return d
	}
	round := uint64(len(others))
	if !t.Alone || round == 0 {
		round++
	}
	if i := turn % round; i < uint64(len(others)) {
		d.Action, d.Host, d.Port = Moved, others[i].Host, others[i].Port
	}
	return d
}

// AppendError appends the text of a redirection or refusal as it goes on the wire, without the leading '-' and the
// line's end. It panics for Serve and Wait, which are no answers.
func (d Decision) AppendError(b []byte) []byte {
	switch d.Action {
	case Moved:
		b = append(b, "MOVED "...)
		b = strconv.AppendUint(b, uint64(d.Slot), 10)
		b = append(b, ' ')
		b = append(b, d.Host...)
		b = append(b, ':')
		return strconv.AppendInt(b, int64(d.Port), 10)
	case CrossSlot:
		return append(b, "CROSSSLOT Keys in request don't hash to the same slot"...)
	case ClusterDown:
		return append(b, "CLUSTERDOWN Hash slot not served"...)
	}
	panic("decision " + strconv.Itoa(int(d.Action)) + " is no answer")
}
