// Package placement decides on which stores the replicas of regions lie, and which store is a region's home. Plan is a
// pure function from a survey of the cluster to orders and notes; a Planner keeps what it needs to know from earlier
// surveys. Nothing here touches Raft, a clock or a network: meta's leader makes the survey of what stores report, and
// the stores that lead the regions take the orders.
//
// The reasons for an order, the most urgent first:
//
//	gone        a store has been down for longer than cluster.store_down_after
//	draining    a store shall have no replicas
//	replicas    a region has fewer or more than cluster.replicas
//	zones       two replicas of a region are in one zone, and another zone has none
//	neighbours  two regions shall merge, and have their replicas on different stores
//	balance     a store has more bytes and replicas than another one
//	leaders     a store is the home of more regions, or busier ones, than another one
//
// What keeps it stable:
//
//   - A replica moves for balance only if the store that gives it then still has more than the one that takes it, by a
//     fifth of the mean: two sizes, each a tenth wrong, cannot feign that.
//   - Once all is balanced, it takes twice that difference to begin again.
//   - A replica that has moved for balance stays until the set of stores changes.
//   - A region changes in one way at a time. Balance waits until nothing more urgent is to be done.
package placement

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// Policy is what the settings want.
type Policy struct {
	Replicas  int           // of each region
	DownAfter time.Duration // a store that is down for longer is gone; 0: none ever is
	Balance   bool          // false: only the replicas of stores that are gone or draining move
}

const (
	// A store takes one new replica at a time, and sends two: the leader of a region sends it the region's data.
	mostReceived, mostSent = 1, 2
	// slack is the share of the mean by which stores may differ beside the size of what could move. To begin anew takes
	// startSlack more, of the two stores' mean if that is larger: as much as sizes feign that are each a tenth wrong.
	slack, startSlack = 0.2, 0.22
	// replicaBytes is what a replica counts beside its bytes, so that small ones are balanced by their number.
	replicaBytes = 64 << 20
	// quietLoad is the mean of commands per second and region below which commands count less than the number of regions.
	quietLoad = 100
	// mostHomes is how many regions get another home at once.
	mostHomes = 2
)

// Survey is what is known of the cluster at one time.
type Survey struct {
	Now     time.Time
	Policy  Policy
	Stores  []Store  // all of the cluster, by id
	Regions []Region // all of them, by first slot
	Open    []Order  // that have been given and whose regions have not changed since
	// Rests has the regions to leave alone, since an order for them has failed lately.
	Rests map[topology.RegionID]bool
	// Settled says that nothing has been to balance lately.
	Settled bool
	// Moved has the replicas that have moved for balance since the set of stores has changed last.
	Moved map[Place]bool
}

// Place names a replica by where it is.
type Place struct {
	Region topology.RegionID
	Store  topology.StoreID
}

// Store is a store in a survey.
type Store struct {
	ID       topology.StoreID
	Zone     string        // "": the store is a zone of its own
	Joining  bool          // it is not to have replicas yet
	Draining bool          // it is to have no replicas
	Down     time.Duration // for how long it has been silent; 0 while it runs
	Full     bool
	// Free is how many bytes it may still store, math.MaxInt64 if that is not known.
	Free int64
}

// Region is a region in a survey. Nothing in it is changed by this package.
type Region struct {
	ID    topology.RegionID
	Peers []topology.Peer // the first one that stays is on the region's home
	Conf  uint64          // of the peers
	// Leader is the store that leads it, 0 if none is known.
	Leader topology.StoreID
	// Held says why its replicas are not to move, beside an open move: a split, a merge, a migration; "" if they may.
	Held string
	// Pinned says that a user has moved its leader on purpose.
	Pinned bool
	// Bytes is what the tables of a store have of it, Commands how many it serves per second. Measured says that both
	// are known.
	Bytes, Commands float64
	Measured        bool
	// Merges is the right neighbour that shall be merged into it; 0: none.
	Merges topology.RegionID
}

// Note says what the plan would do and cannot.
type Note struct {
	About NoteKind
	// Store or Region is what it is about. Notes of one kind about the same are the same thing, although numbers in the
	// text change.
	Store  topology.StoreID
	Region topology.RegionID
	Text   string
}

func (n Note) String() string { return n.Text }

// NoteKind says what a note is about.
type NoteKind string

// The kinds of notes.
const (
	NoQuorum    NoteKind = "no quorum"    // too few replicas of regions of a store are up to move any
	NoStore     NoteKind = "no store"     // that could take a replica
	InTheWay    NoteKind = "in the way"   // another change of a region
	OrderFailed NoteKind = "order failed" // it is left alone for a while
)

// Plan returns what shall happen next, the most urgent first, and what cannot happen.
func Plan(s Survey) (orders []Order, notes []Note) {
	x := newPlanning(&s)
	for _, st := range x.stores {
		if st.gone {
			x.evacuate(st, Gone, fmt.Sprintf("store %d has been down for %s, longer than cluster.store_down_after %s", st.ID,
				shortTime(st.Down), shortTime(s.Policy.DownAfter)))
		}
	}
	for _, st := range x.stores {
		if st.Draining && !st.gone {
			x.evacuate(st, Draining, fmt.Sprintf("store %d is draining", st.ID))
		}
	}
	if s.Policy.Balance {
		x.count()
		x.spreadZones()
		x.joinNeighbours()
		if !x.busy && len(x.orders) == 0 {
			x.balance()
		}
		if !x.busy && len(x.orders) == 0 && !x.moving {
			x.spreadHomes()
		}
	}
	return x.orders, x.notes
}

// planning is the state of one Plan.
type planning struct {
	s       *Survey
	stores  []*tally                   // by id
	byID    []*tally                   // likewise, nil where there is none
	taken   map[topology.RegionID]bool // regions of orders, open or new
	steady  map[topology.RegionID]bool // regions that balance leaves, since they shall merge
	busy    bool                       // what is more urgent than balance waits for room
	zoned   bool                       // a store has a zone
	moving  bool                       // a region is changing its peers
	unknown bool                       // the size of a region that is led is not known
	mean    float64                    // of the commands of the regions
	orders  []Order
	notes   []Note
}

// tally is a store with what it has once all that is under way is done.
type tally struct {
	Store
	gone            bool
	zone            int // stores of one zone have the same
	bytes           float64
	replicas, homes int
	load            float64 // of the regions whose home it is, as homeWeight
	commands        float64 // of these
	sends, receives int
}

// weight is how much the store has, for balance.
func (t *tally) weight() float64 { return t.bytes + replicaBytes*float64(t.replicas) }

// runs reports whether the store is up and shall have replicas.
func (t *tally) runs() bool { return t.Down == 0 && !t.Joining && !t.Draining }

// takes reports whether the store could take a replica of so many bytes, now or when it has taken another one.
func (t *tally) takes(bytes float64) bool { return t.runs() && !t.Full && float64(t.Free) >= 2*bytes }

func newPlanning(s *Survey) *planning {
	x := &planning{s: s, taken: make(map[topology.RegionID]bool), steady: make(map[topology.RegionID]bool)}
	all, zones := make([]tally, len(s.Stores)), make(map[string]int)
	for i, st := range s.Stores {
		t := &all[i]
		t.Store, t.gone, t.zone = st, s.Policy.DownAfter > 0 && st.Down > s.Policy.DownAfter, -1-i
		if st.Zone != "" {
			if _, ok := zones[st.Zone]; !ok {
				zones[st.Zone] = len(zones)
			}
			t.zone, x.zoned = zones[st.Zone], true
		}
		x.stores = append(x.stores, t)
		x.byID = append(x.byID, make([]*tally, int(st.ID)+1-len(x.byID))...)
		x.byID[st.ID] = t
	}
	for i := range s.Regions {
		x.mean += s.Regions[i].Commands / float64(len(s.Regions))
	}
	for i := range s.Regions {
		r := &s.Regions[i]
		x.unknown = x.unknown || r.Leader != 0 && !r.Measured
		if home := x.store(r.home()); home != nil {
			home.homes++
			home.load += r.homeWeight(x.mean)
			home.commands += r.Commands
		}
		for _, p := range r.Peers {
			t := x.store(p.Store)
			if t == nil {
				continue
			}
			if p.Role != topology.Leaving {
				t.bytes += r.Bytes
				t.replicas++
			}
			if p.Role == topology.Joining {
				t.receives++
				if leader := x.store(r.Leader); leader != nil {
					leader.sends++
				}
			}
			x.moving = x.moving || p.Role != topology.Voter
		}
	}
	for _, o := range s.Open {
		x.moving = true
		if i := s.index(o.Region); i >= 0 && s.Regions[i].Conf == o.Conf {
			x.reckon(o, &s.Regions[i])
		}
		x.taken[o.Region] = true
	}
	return x
}

// store returns the tally of a store, nil if the cluster has no such store.
func (x *planning) store(id topology.StoreID) *tally {
	if int(id) >= len(x.byID) {
		return nil
	}
	return x.byID[id]
}

// home returns the store that is a region's home once an open move is over.
func (r *Region) home() topology.StoreID {
	for _, p := range r.Peers {
		if p.Role != topology.Leaving {
			return p.Store
		}
	}
	return 0
}

// on reports whether a region has a replica on a store.
func (r *Region) on(s topology.StoreID) bool {
	return slices.ContainsFunc(r.Peers, func(p topology.Peer) bool { return p.Store == s })
}

func (r *Region) settled() bool {
	return !slices.ContainsFunc(r.Peers, func(p topology.Peer) bool { return p.Role != topology.Voter })
}

// homeWeight is how much a region is for its home: one for the region, and one more if it serves as many commands as a
// region does in the mean.
func (r *Region) homeWeight(mean float64) float64 { return 1 + r.Commands/max(mean, quietLoad) }

// index returns where a region is in Regions, -1 if it is not.
func (s *Survey) index(id topology.RegionID) int {
	return slices.IndexFunc(s.Regions, func(r Region) bool { return r.ID == id })
}

// movable reports whether an order for a region could be given now.
func (x *planning) movable(r *Region) bool {
	return r.Held == "" && r.Leader != 0 && r.settled() && !x.taken[r.ID] && !x.s.Rests[r.ID]
}

// healthy reports whether all stores of a region run.
func (x *planning) healthy(r *Region) bool {
	return !slices.ContainsFunc(r.Peers, func(p topology.Peer) bool {
		t := x.store(p.Store)
		return t == nil || t.Down > 0
	})
}

// quorum reports whether those that are up are a majority of a region's replicas, and of those that are left without
// the one on a store.
func (x *planning) quorum(r *Region, without topology.StoreID) bool {
	up, stay := 0, 0
	upAll := 0
	for _, p := range r.Peers {
		t := x.store(p.Store)
		lives := t != nil && t.Down == 0
		if lives {
			upAll++
		}
		if p.Store != without {
			stay++
			if lives {
				up++
			}
		}
	}
	return 2*upAll > len(r.Peers) && 2*up > stay
}

// crowd returns how many replicas of a region, that on a store left out, are in a zone.
func (x *planning) crowd(r *Region, zone int, without topology.StoreID) (n int) {
	for _, p := range r.Peers {
		if t := x.store(p.Store); t != nil && p.Store != without && t.zone == zone {
			n++
		}
	}
	return n
}

// sends reports whether the leader of a region has room to send it to another store.
func (x *planning) sends(r *Region) bool {
	leader := x.store(r.Leader)
	return leader != nil && leader.sends < mostSent
}

// target returns the best store for a further replica of a region, or for the one that leaves a store, if that is not
// 0: one in a zone that has few others, and of these one that has little. It returns nil if there is none; waits then
// says that there will be one once a store has taken what is on its way.
func (x *planning) target(r *Region, from topology.StoreID) (to *tally, waits bool) {
	least := 0
	for _, t := range x.stores {
		if r.on(t.ID) || !t.takes(r.Bytes) {
			continue
		}
		if t.receives >= mostReceived {
			waits = true
			continue
		}
		n := x.crowd(r, t.zone, from)
		if to == nil || n < least || n == least && t.weight() < to.weight() {
			to, least = t, n
		}
	}
	return to, waits
}

// give gives an order.
func (x *planning) give(r *Region, o Order) {
	o.Region, o.Conf = r.ID, r.Conf
	x.taken[r.ID] = true
	x.reckon(o, r)
	x.orders = append(x.orders, o)
}

// reckon counts what stores have as if an order were carried out.
func (x *planning) reckon(o Order, r *Region) {
	from, to, leader := x.store(o.From), x.store(o.To), x.store(r.Leader)
	if o.Kind != MoveHome {
		if from != nil {
			from.bytes -= r.Bytes
			from.replicas--
		}
		if to != nil {
			to.bytes += r.Bytes
			to.replicas++
			to.receives++
			if leader != nil {
				leader.sends++
			}
		}
	}
	if r.home() != o.From || o.Kind == RemoveReplica {
		return // the home of a region that loses its first replica is another one, which does not matter for a plan
	}
	w := r.homeWeight(x.mean)
	if from != nil {
		from.homes, from.load, from.commands = from.homes-1, from.load-w, from.commands-r.Commands
	}
	if to != nil {
		to.homes, to.load, to.commands = to.homes+1, to.load+w, to.commands+r.Commands
	}
}

// evacuate orders the replicas of a store to others, of regions with few replicas that are up first.
func (x *planning) evacuate(from *tally, why Why, reason string) {
	var due []*Region
	lost, stuck, unhoused := 0, 0, 0
	for i := range x.s.Regions {
		r := &x.s.Regions[i]
		if p := slices.IndexFunc(r.Peers, func(p topology.Peer) bool { return p.Store == from.ID }); p < 0 ||
			r.Peers[p].Role == topology.Leaving {
			continue
		}
		switch {
		case !x.quorum(r, from.ID):
			lost++
		case x.taken[r.ID]:
			x.busy = true
		case r.Held != "" && r.settled():
			stuck++
		case x.movable(r):
			due = append(due, r)
		}
	}
	slices.SortStableFunc(due, func(a, b *Region) int { return cmp.Compare(x.up(a), x.up(b)) })
	for _, r := range due {
		if x.s.Policy.Balance && len(r.Peers) > x.s.Policy.Replicas {
			x.give(r, Order{Kind: RemoveReplica, From: from.ID, Why: why, Reason: reason})
			continue
		}
		to, waits := x.target(r, from.ID)
		switch {
		case to == nil && !waits:
			unhoused++
		case to == nil || !x.sends(r):
			x.busy = true
		default:
			x.give(r, Order{Kind: MoveReplica, From: from.ID, To: to.ID, Why: why, Reason: reason})
		}
	}
	if lost > 0 {
		x.noteStore(from, NoQuorum, "%s; of %s with a replica there too few others are up, so nothing can move", reason,
			regions(lost))
	}
	if unhoused > 0 {
		x.noteStore(from, NoStore, "%s; no other store can take its replicas of %s", reason, regions(unhoused))
	}
	if stuck > 0 {
		x.noteStore(from, InTheWay, "%s; %s with a replica there cannot move now, since another change is open", reason,
			regions(stuck))
	}
}

// up returns how many replicas of a region are up.
func (x *planning) up(r *Region) (n int) {
	for _, p := range r.Peers {
		if t := x.store(p.Store); t != nil && t.Down == 0 {
			n++
		}
	}
	return n
}

func (x *planning) noteStore(t *tally, about NoteKind, format string, args ...any) {
	x.notes = append(x.notes, Note{About: about, Store: t.ID, Text: fmt.Sprintf(format, args...)})
}

// count orders what regions have too few or too many of.
func (x *planning) count() {
	want, lacking := x.s.Policy.Replicas, 0
	for i := range x.s.Regions {
		r := &x.s.Regions[i]
		has := len(r.Peers)
		if has == want || !x.movable(r) {
			continue
		}
		reason := fmt.Sprintf("it has %d, and cluster.replicas is %d", has, want)
		if has > want {
			if from := x.surplus(r); from != nil {
				x.give(r, Order{Kind: RemoveReplica, From: from.ID, Why: Replicas, Reason: reason})
			}
			continue
		}
		to, waits := x.target(r, 0)
		switch {
		case to == nil && !waits:
			lacking++
		case to == nil || !x.sends(r):
			x.busy = true
		case x.quorum(r, 0):
			x.give(r, Order{Kind: AddReplica, To: to.ID, Why: Replicas, Reason: reason})
		}
	}
	if lacking > 0 {
		x.notes = append(x.notes, Note{About: NoStore,
			Text: fmt.Sprintf("%s with less than cluster.replicas %d, and no store that can take one more", regions(lacking),
				want)})
	}
}

// surplus returns the store whose replica of a region matters least, nil if none may go: one that is down, then one in
// a zone with others, then one on a store that has much.
func (x *planning) surplus(r *Region) (from *tally) {
	better := func(a, b *tally) bool {
		down := func(t *tally) int { return min(1, int(t.Down)) }
		return cmp.Or(cmp.Compare(down(a), down(b)),
			cmp.Compare(x.crowd(r, a.zone, a.ID), x.crowd(r, b.zone, b.ID)), cmp.Compare(a.weight(), b.weight())) > 0
	}
	for _, p := range r.Peers {
		if t := x.store(p.Store); t != nil && x.quorum(r, p.Store) && (from == nil || better(t, from)) {
			from = t
		}
	}
	return from
}

// spreadZones orders replicas of a region that are in one zone to others.
func (x *planning) spreadZones() {
	if !x.zoned {
		return
	}
	for i := range x.s.Regions {
		r := &x.s.Regions[i]
		if !x.movable(r) || !x.healthy(r) {
			continue
		}
		var from *tally
		for _, p := range r.Peers {
			if t := x.store(p.Store); x.crowd(r, t.zone, t.ID) > 0 && (from == nil || t.weight() > from.weight()) {
				from = t
			}
		}
		if from == nil {
			continue
		}
		to, waits := x.target(r, from.ID)
		switch {
		case to != nil && x.crowd(r, to.zone, from.ID) == 0:
			if !x.sends(r) {
				x.busy = true
				continue
			}
			x.give(r, Order{Kind: MoveReplica, From: from.ID, To: to.ID, Why: Zones, Reason: fmt.Sprintf(
				"%d of its replicas are in zone %s, and none is in zone %s", x.crowd(r, from.zone, 0), from.Zone,
				cmp.Or(to.Zone, "of its own"))})
		case waits:
			x.busy = x.busy || slices.ContainsFunc(x.stores, func(t *tally) bool {
				return t.receives >= mostReceived && t.takes(r.Bytes) && x.crowd(r, t.zone, from.ID) == 0
			})
		}
	}
}

// joinNeighbours orders replicas of regions that shall merge to the same stores. Those of the smaller region move.
func (x *planning) joinNeighbours() {
	all := x.s.Regions
	for i := range all[:max(0, len(all)-1)] {
		l, r := &all[i], &all[i+1]
		if l.Merges != r.ID {
			continue
		}
		x.steady[l.ID], x.steady[r.ID] = true, true
		if !x.movable(l) || !x.movable(r) || !x.healthy(l) || !x.healthy(r) || len(l.Peers) != len(r.Peers) {
			continue
		}
		mover, stays := r, l
		if l.Bytes < r.Bytes {
			mover, stays = l, r
		}
		if !x.join(mover, stays) {
			x.join(stays, mover)
		}
	}
}

// join orders a replica of a region to a store that another region alone has. It returns false if that cannot be.
func (x *planning) join(mover, stays *Region) bool {
	var from, to *tally
	apart, waits := false, false
	for _, p := range mover.Peers {
		if t := x.store(p.Store); !stays.on(p.Store) && (from == nil || t.weight() > from.weight()) {
			from = t
		}
	}
	for _, p := range stays.Peers {
		t := x.store(p.Store)
		if mover.on(p.Store) {
			continue
		}
		apart = true
		switch {
		case !t.takes(mover.Bytes):
		case t.receives >= mostReceived:
			waits = true
		case to == nil || t.weight() < to.weight():
			to = t
		}
	}
	switch {
	case !apart:
		return true
	case to == nil && !waits:
		return false
	case to == nil || !x.sends(mover):
		x.busy = true
		return true
	}
	x.give(mover, Order{Kind: MoveReplica, From: from.ID, To: to.ID, Why: Neighbours, Reason: fmt.Sprintf(
		"it shall merge with region %d, which is on stores %s", stays.ID, storesOf(stays))})
	x.taken[stays.ID] = true
	return true
}

// sized is a replica that could move for balance, by its weight.
type sized struct {
	*Region
	weight float64
}

// larger compares such that what weighs more comes first.
func larger(a, b sized) int { return cmp.Or(cmp.Compare(b.weight, a.weight), cmp.Compare(a.ID, b.ID)) }

// balance orders replicas from stores that have much to stores that have little. Of those that may move it takes the
// largest, so that there are few moves.
func (x *planning) balance() {
	if x.unknown {
		return
	}
	var give, take []*tally
	total := 0.0
	for _, t := range x.stores {
		if t.runs() {
			give, total = append(give, t), total+t.weight()
			if !t.Full && t.receives < mostReceived {
				take = append(take, t)
			}
		}
	}
	if len(take) == 0 || len(give) < 2 {
		return
	}
	mean := total / float64(len(give))
	byWeight := func(a, b *tally) int { return cmp.Compare(a.weight(), b.weight()) }
	most, least := slices.MaxFunc(give, byWeight).weight(), slices.MinFunc(take, byWeight).weight()
	if most-least <= 2*replicaBytes+x.rest(mean, most, least) {
		return // no replica weighs less
	}
	have := x.replicasOf()
	for {
		slices.SortStableFunc(give, func(a, b *tally) int { return byWeight(b, a) })
		slices.SortStableFunc(take, byWeight)
		r, from, to := x.pick(give, take, have, mean)
		if r == nil {
			return
		}
		x.give(r, Order{Kind: MoveReplica, From: from.ID, To: to.ID, Why: Balance, Reason: fmt.Sprintf(
			"store %d has %s in %d replicas, and store %d %s in %d", from.ID, about(from.bytes), from.replicas, to.ID,
			about(to.bytes), to.replicas)})
		take = slices.DeleteFunc(take, func(t *tally) bool { return t == to })
	}
}

// rest returns by how much two stores have to differ at least, beside what moves, where stores have mean in the mean.
func (x *planning) rest(mean, from, to float64) float64 {
	rest := slack * mean
	if x.s.Settled && len(x.orders) == 0 {
		rest += startSlack * max(mean, (from+to)/2)
	}
	return rest
}

// replicasOf returns what stores have that may move for balance, the largest first.
func (x *planning) replicasOf() map[topology.StoreID][]sized {
	have := make(map[topology.StoreID][]sized, len(x.stores))
	for i := range x.s.Regions {
		r := &x.s.Regions[i]
		if !x.movable(r) || x.steady[r.ID] || !x.healthy(r) {
			continue
		}
		for _, p := range r.Peers {
			if !x.s.Moved[Place{r.ID, p.Store}] {
				have[p.Store] = append(have[p.Store], sized{r, r.Bytes + replicaBytes})
			}
		}
	}
	for _, all := range have {
		slices.SortFunc(all, larger)
	}
	return have
}

// pick returns the next move for balance, nil if there is none. Givers are sorted from much to little, takers from
// little to much. A replica may move if the difference of the two stores exceeds twice its weight, and rest beside.
func (x *planning) pick(give, take []*tally, have map[topology.StoreID][]sized, mean float64) (
	r *Region, from, to *tally) {
	for _, from := range give {
		all := have[from.ID]
		if len(all) == 0 {
			continue
		}
		for _, to := range take {
			most := (from.weight() - to.weight() - x.rest(mean, from.weight(), to.weight())) / 2
			if all[len(all)-1].weight >= most {
				break // the other takers have more
			}
			first, _ := slices.BinarySearchFunc(all, most, func(a sized, most float64) int {
				if a.weight >= most {
					return -1
				}
				return 1
			})
			for _, z := range all[first:] {
				if !x.taken[z.ID] && !z.on(to.ID) && to.takes(z.Bytes) && x.sends(z.Region) &&
					x.crowd(z.Region, to.zone, from.ID) <= x.crowd(z.Region, from.zone, from.ID) {
					return z.Region, from, to
				}
			}
		}
	}
	return nil, nil, nil
}

// spreadHomes orders regions to other homes, among the stores that have a replica of them.
func (x *planning) spreadHomes() {
	if x.unknown {
		return
	}
	var stores []*tally
	total := 0.0
	for _, t := range x.stores {
		if t.runs() && !t.Full {
			stores, total = append(stores, t), total+t.load
		}
	}
	if len(stores) < 2 {
		return
	}
	mean := total / float64(len(stores))
	byLoad := func(a, b *tally) int { return cmp.Compare(a.load, b.load) }
	most, least := slices.MaxFunc(stores, byLoad).load, slices.MinFunc(stores, byLoad).load
	if most-least <= 2+x.rest(mean, most, least) {
		return // no region weighs less than 1
	}
	homes := make(map[topology.StoreID][]sized)
	for i := range x.s.Regions {
		r := &x.s.Regions[i]
		if x.movable(r) && !r.Pinned && x.healthy(r) {
			homes[r.home()] = append(homes[r.home()], sized{r, r.homeWeight(x.mean)})
		}
	}
	for _, all := range homes {
		slices.SortFunc(all, larger)
	}
	for range mostHomes {
		slices.SortStableFunc(stores, func(a, b *tally) int { return byLoad(b, a) })
		z, from, to := x.pickHome(stores, homes, mean)
		if z.Region == nil {
			return
		}
		x.give(z.Region, Order{Kind: MoveHome, From: from.ID, To: to.ID, Why: Leaders, Reason: fmt.Sprintf(
			"store %d is the home of %s with %s, and store %d of %d with %s", from.ID, regions(from.homes),
			loadText(from.commands), to.ID, to.homes, loadText(to.commands))})
	}
}

// pickHome returns the next region to get another home. stores are sorted from much to little.
func (x *planning) pickHome(stores []*tally, homes map[topology.StoreID][]sized, mean float64) (
	z sized, from, to *tally) {
	for _, from := range stores {
		for _, to := range slices.Backward(stores) {
			for _, z := range homes[from.ID] {
				if from.load-to.load > 2*z.weight+x.rest(mean, from.load, to.load) && !x.taken[z.ID] && z.on(to.ID) {
					return z, from, to
				}
			}
		}
	}
	return sized{}, nil, nil
}

func regions(n int) string {
	if n == 1 {
		return "1 region"
	}
	return fmt.Sprintf("%d regions", n)
}

// storesOf prints the stores of a region: "1, 2 and 3".
func storesOf(r *Region) string {
	var ids []topology.StoreID
	for _, p := range r.Peers {
		ids = append(ids, p.Store)
	}
	slices.Sort(ids)
	text := make([]string, len(ids))
	for i, id := range ids {
		text[i] = strconv.Itoa(int(id))
	}
	if len(text) < 2 {
		return strings.Join(text, "")
	}
	return strings.Join(text[:len(text)-1], ", ") + " and " + text[len(text)-1]
}

func about(bytes float64) string { return settings.Bytes(bytes).About() }

func loadText(commands float64) string { return fmt.Sprintf("%.0f commands/s", commands) }

// shortTime prints a time in whole seconds, without zero parts: 30m, 1h5m, 31s.
func shortTime(d time.Duration) string {
	s := d.Round(time.Second).String()
	if strings.HasSuffix(s, "m0s") {
		s = strings.TrimSuffix(s, "0s")
	}
	if strings.HasSuffix(s, "h0m") {
		s = strings.TrimSuffix(s, "0m")
	}
	return s
}
