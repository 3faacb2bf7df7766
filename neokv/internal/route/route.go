// Package route decides which store serves a command. The slot table is immutable; a store swaps in new ones
// atomically. Decide is a pure function of a table.
package route

import (
	"cmp"
	"crypto/sha1"
	"encoding/hex"
	"slices"
	"strconv"

	"neokv.dev/neokv/internal/announce"
	"neokv.dev/neokv/internal/topology"
)

// PublicStore is one store as clients and other stores see it.
type PublicStore struct {
	ID     topology.StoreID `json:"id"`
	NodeID string           `json:"node_id"` // 40 hex characters, survives restarts
	Host   string           `json:"host"`    // that it listens on; clients are told what announce.Rules say
	Port   int              `json:"port"`
	Alive  bool             `json:"alive"`
	Full   bool             `json:"full,omitempty"` // its disk has less space left than the reserve: it takes no writes
	// ReplicaPort is that of the store's second address, on the same host, at which it is only a replica of the regions
	// that it follows; 0 if there is none.
	ReplicaPort int  `json:"replica_port,omitempty"`
	Draining    bool `json:"draining,omitempty"` // its replicas move away, and none comes
}

// ReplicaID is the node id of the store's second address. It follows from NodeID, so it survives restarts, too.
func (s *PublicStore) ReplicaID() string {
	sum := sha1.Sum([]byte(s.NodeID + " replica"))
	return hex.EncodeToString(sum[:])
}

// LedRegion is a region and its leader, as far as the store that made the table knows.
type LedRegion struct {
	topology.Region
	Leader topology.StoreID `json:"leader"` // 0 while none is known
	Term   uint64           `json:"term"`
	// Told is the leader according to meta's leader, if the store that made the table has a replica of the region; 0 if
	// meta's leader knows none.
	Told topology.StoreID `json:"told,omitempty"`
}

// Table maps slots to regions, leaders and stores. It is never changed once published.
//
// Its entries are ascending and disjoint, while what a store knows of regions need not be: when bounds have changed, it
// learns so region by region. Of two regions that overlap, the one with the larger version has taken the slots over. So
// the other is clipped to what is left of it: an entry's Slots may be fewer than the region had at that Version, and a
// region of which several stretches are left has as many entries. Two keys in different entries are in different
// regions as far as the store knows, also if the entries have the same id: a newer region lies between them.
type Table struct {
	Epoch   uint64        // grows with every change of the map or of a leader
	Stores  []PublicStore // by id
	Regions []LedRegion   // by first slot, disjoint
	// Alone: the store that made the table got no answer to its last report. It does not know which stores are alive.
	Alone bool
	// Windows are those of the cluster map of some Version, in force or not; newer maps that the store has adopted have
	// the same. The table of the proxy port has none.
	Windows []Window
	Version uint64
	Gone    []topology.StoreID // the stores that were removed
	// Wipes are those of the cluster map. The table of the proxy port has none.
	Wipes []topology.Wipe

	slots [topology.SlotCount]uint16 // index in Regions plus one, 0 where no region covers the slot
}

// NewTable returns the table of the given stores and regions, in any order. It copies both. Where regions overlap, the
// one with the larger version has the slots; of equal versions, which the cluster map never has, the one with the
// smaller id. A region that has none left is not in the table. It takes O(SlotCount + r log r) for r regions.
func NewTable(epoch uint64, stores []PublicStore, regions []LedRegion) *Table {
	t := &Table{Epoch: epoch, Stores: slices.Clone(stores), Regions: Disjoint(slices.Clone(regions))}
	slices.SortFunc(t.Stores, func(a, b PublicStore) int { return cmp.Compare(a.ID, b.ID) })
	for i := range t.Regions {
		for s := int(t.Regions[i].Slots.First); s <= int(t.Regions[i].Slots.Last); s++ {
			t.slots[s] = uint16(i + 1)
		}
	}
	return t
}

// Disjoint returns the entries of regions that may overlap, ascending: a slot belongs to the newest region that has it.
// It sorts regions, and may return them.
func Disjoint(regions []LedRegion) []LedRegion {
	slices.SortFunc(regions, func(a, b LedRegion) int { return cmp.Compare(a.Slots.First, b.Slots.First) })
	for i := 1; i < len(regions); i++ {
		if regions[i].Slots.First <= regions[i-1].Slots.Last {
			return clip(regions)
		}
	}
	return regions
}

// clip returns the entries of regions that may overlap. It sorts regions.
func clip(regions []LedRegion) []LedRegion {
	slices.SortFunc(regions, func(a, b LedRegion) int {
		return cmp.Or(cmp.Compare(b.Version, a.Version), cmp.Compare(a.ID, b.ID), cmp.Compare(b.ConfVersion, a.ConfVersion),
			cmp.Compare(a.Slots.First, b.Slots.First), cmp.Compare(b.Slots.Last, a.Slots.Last))
	})
	ranges := make([]topology.SlotRange, len(regions))
	for i := range regions {
		ranges[i] = regions[i].Slots
	}
	var out []LedRegion
	last := int32(-1)
	for s, owner := range topology.Cover(ranges) {
		switch {
		case owner < 0:
		case owner == last:
			out[len(out)-1].Slots.Last = topology.Slot(s)
		default:
			out = append(out, regions[owner])
			out[len(out)-1].Slots = topology.SlotRange{First: topology.Slot(s), Last: topology.Slot(s)}
		}
		last = owner
	}
	return out
}

// Region returns the region that covers a slot and its index in Regions; nil and -1 if there is none.
func (t *Table) Region(s topology.Slot) (*LedRegion, int) {
	i := int(t.slots[s]) - 1
	if i < 0 {
		return nil, -1
	}
	return &t.Regions[i], i
}

// ByID returns the first entry of the region with the given id, nil if there is none.
func (t *Table) ByID(id topology.RegionID) *LedRegion {
	i := slices.IndexFunc(t.Regions, func(r LedRegion) bool { return r.ID == id })
	if i < 0 {
		return nil
	}
	return &t.Regions[i]
}

// Store returns the store with the given id, nil if there is none.
func (t *Table) Store(id topology.StoreID) *PublicStore {
	i, ok := slices.BinarySearchFunc(t.Stores, id,
		func(s PublicStore, id topology.StoreID) int { return cmp.Compare(s.ID, id) })
	if !ok {
		return nil
	}
	return &t.Stores[i]
}

// Led returns the slot ranges that a store leads, ascending, neighbours joined.
func (t *Table) Led(id topology.StoreID) []topology.SlotRange {
	var out []topology.SlotRange
	for i := range t.Regions {
		r := &t.Regions[i]
		if r.Leader != id || id == 0 {
			continue
		}
		if n := len(out); n > 0 && out[n-1].Last+1 == r.Slots.First {
			out[n-1].Last = r.Slots.Last
		} else {
			out = append(out, r.Slots)
		}
	}
	return out
}

// Home returns the store at which clients look for a region's keys: its leader or, while there is none that is alive,
// the first of its replicas' stores that is. It is nil if none is. Redis Cluster names the old master until there is a
// new one; some clients fail at once for a slot that nobody has.
func (t *Table) Home(r *LedRegion) *PublicStore {
	if s := t.Store(r.Leader); s != nil && s.Alive {
		return s
	}
	for _, p := range r.Peers {
		if s := t.Store(p.Store); s != nil && s.Alive {
			return s
		}
	}
	return nil
}

// Followers returns the stores that have a second address and a replica of a region, but for the region's home.
func (t *Table) Followers(r *LedRegion) (all []*PublicStore) {
	home := t.Home(r)
	for i := range t.Stores {
		if s := &t.Stores[i]; s.ReplicaPort != 0 && s != home && holds(r, s.ID) {
			all = append(all, s)
		}
	}
	return all
}

// Port is what a client has asked.
type Port struct {
	Store topology.StoreID // 0: the proxy port, or a store that does not redirect
	// Replica says that it is the store's second address. There the store is a replica of the regions that it follows,
	// and serves nothing of those that it leads.
	Replica bool
}

// Covers reports whether a command about all keys covers a region at a port.
func (p Port) Covers(r *LedRegion) bool {
	switch {
	case p.Store == 0:
		return true
	case p.Replica:
		return r.Leader != p.Store && holds(r, p.Store)
	}
	return r.Leader == p.Store
}

// Action says what to do with a command.
type Action byte

const (
	Serve       Action = iota // serve it here; on the proxy port, by the leader's replica
	Moved                     // redirect the client to the store that serves the slot
	CrossSlot                 // refuse it: the keys lie in several slots or regions
	ClusterDown               // refuse it: no store serves the slot
	Wait                      // no leader is known: decide again when the table has changed
	Ask                       // redirect this one command: the store shows a migration, and the keys are gone
	TryAgain                  // refuse it for now: the store shows a migration, and some of the keys are gone
)

// Decision is an Action and the values that it needs.
type Decision struct {
	Action Action
	Slot   topology.Slot // the slot of the first key
	Index  int           // Serve, Moved, Wait: the index of the region in Table.Regions, if it is known
	Follow bool          // Serve: here, by a replica that need not lead
	To     *PublicStore  // Moved, Ask
}

// Decide says where a command is served. slots are the slots of its keys, at least one. A store serves commands whose
// keys are all in one slot of a region that it leads, but not at its second address. Port.Store 0 serves every region,
// and the keys need only be in one region. With follow, a store also serves regions of which it has a replica that does
// not lead.
func Decide(t *Table, port Port, slots []topology.Slot, follow bool) Decision {
	d := Decision{Slot: slots[0], Index: -1}
	if port.Store != 0 {
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
	leads := region.Leader == port.Store
	switch {
	case region.Leader == 0:
		d.Action = Wait
	case port.Store == 0 || leads && !port.Replica:
		d.Action = Serve
	case follow && !leads && holds(region, port.Store):
		// Also where the leader counts as dead: Raft, which named the leader, may know better.
		d.Action, d.Follow = Serve, true
	default:
		leader := t.Store(region.Leader)
		if leader == nil || !leader.Alive {
			// An election is near: no client is sent to a dead store while there is time to wait.
			d.Action = Wait
			return d
		}
		d.Action, d.To = Moved, leader
	}
	return d
}

// holds reports whether a store has a replica of a region, other than one that joins, which may have no data yet.
func holds(r *LedRegion, s topology.StoreID) bool {
	p, ok := r.PeerOn(s)
	return ok && p.Role != topology.Joining
}

// Unserved says what to answer when the time for waiting is over. If the table knows another store as the leader, the
// client is sent there. Otherwise, if self hears a quorum of the region, it knows that no store serves the slot. If
// not, self may be the one that is cut off. It then sends clients to the region's other voters, one after the other as
// turn counts up, beginning with a leader, even one that counts as dead. If self hears meta's leader, by which too few
// voters are alive, once in each round it says that no store serves the slot, so that a client of a region without a
// quorum learns of it. If self hears nobody, it never says so, since the client would then try the same store again.
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
		d.Action, d.To = Moved, s
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
		d.Action, d.To = Moved, others[i]
	}
	return d
}

// AppendError appends the error line of a redirection or refusal, without the leading '-' and the line's end. to is
// what the client is told of the store d.To. It panics for Serve and Wait, which are no answers.
func (d Decision) AppendError(b []byte, to announce.Addr) []byte {
	switch d.Action {
	case Moved, Ask:
		if d.Action == Moved {
			b = append(b, "MOVED "...)
		} else {
			b = append(b, "ASK "...)
		}
		b = strconv.AppendUint(b, uint64(d.Slot), 10)
		b = append(b, ' ')
		b = append(b, to.Endpoint...) // an IPv6 address without brackets, as Redis does
		b = append(b, ':')
		return strconv.AppendInt(b, int64(to.Port), 10)
	case CrossSlot:
		return append(b, "CROSSSLOT Keys in request don't hash to the same slot"...)
	case TryAgain:
		return append(b, "TRYAGAIN Multiple keys request during rehashing of slot"...)
	case ClusterDown:
		return append(b, "CLUSTERDOWN Hash slot not served"...)
	}
	panic("decision " + strconv.Itoa(int(d.Action)) + " is no answer")
}
