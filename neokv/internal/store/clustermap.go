package store

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/topology"
)

// clusterMap is what the store knows of the cluster: the map that it has adopted, what meta's leader says, the children
// that are to run here, and the slot table that it makes of all that and of what its own replicas have applied. Readers
// of the table take no lock. All other methods may run concurrently, too, but for adopt.
type clusterMap struct {
	*core
	records  *records
	replicas *replicaSet
	space    *space

	table      atomic.Pointer[route.Table]
	changed    atomic.Pointer[chan struct{}]      // closed when there is a newer table; replaced after the table
	members    atomic.Pointer[[]topology.StoreID] // the stores of the map; those of the start before there is one
	publishing atomic.Int64                       // calls of publish that the one at work has not served

	mu       sync.Mutex                            // guards all that follows
	current  *meta.Map                             // the map that the store has adopted last
	newer    *meta.Map                             // a map that has arrived and is not adopted yet
	statuses map[topology.StoreID]meta.Status      // as meta's leader said last
	leads    map[topology.RegionID]meta.Lead       // likewise
	born     map[topology.RegionID]topology.Region // children that do not run here yet
	alone    bool                                  // the last report got no answer
	heard    time.Time                             // since when reports get answers
}

// init makes the map of a store that knows nothing yet.
func (x *clusterMap) init(c *core, records *records, replicas *replicaSet, space *space) {
	x.core, x.records, x.replicas, x.space = c, records, replicas, space
	x.current, x.heard = new(meta.Map), time.Now()
	x.statuses, x.leads = make(map[topology.StoreID]meta.Status), make(map[topology.RegionID]meta.Lead)
	x.born = make(map[topology.RegionID]topology.Region)
	changed := make(chan struct{})
	x.changed.Store(&changed)
	first := make([]topology.StoreID, x.o.Settings.Cluster.Stores)
	for i := range first {
		first[i] = topology.StoreID(i + 1)
	}
	x.members.Store(&first)
}

// Table returns the present slot table, nil before there is one. It takes no lock.
func (x *clusterMap) Table() *route.Table { return x.table.Load() }

// Changed returns a channel that closes when there is a newer table: see Store.Changed.
func (x *clusterMap) Changed() <-chan struct{} { return *x.changed.Load() }

// begin makes the map that the store has kept its map. Other stores may have sent newer ones already.
func (x *clusterMap) begin(kept *meta.Map) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.setCurrent(kept)
	if x.newer != nil && x.newer.Version <= kept.Version {
		x.newer = nil
	}
}

// setCurrent makes m the store's map. The caller holds mu.
func (x *clusterMap) setCurrent(m *meta.Map) {
	x.current = m
	members := make([]topology.StoreID, 0, len(m.Stores))
	for _, s := range m.Stores {
		if s.State != meta.Gone {
			members = append(members, s.ID)
		}
	}
	if !slices.Equal(*x.members.Load(), members) {
		x.members.Store(&members)
	}
}

// adopted returns the map that the store has adopted last.
func (x *clusterMap) adopted() *meta.Map {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.current
}

// arrived returns the map that has arrived and that the caller is to adopt, nil if there is none.
func (x *clusterMap) arrived() *meta.Map {
	x.mu.Lock()
	defer x.mu.Unlock()
	m := x.newer
	x.newer = nil
	return m
}

// learn takes the view that meta's leader sends. It leaves a newer map to the goroutine that reports, since to adopt it
// takes a while.
func (x *clusterMap) learn(v *meta.ClusterView) {
	x.mu.Lock()
	news := false
	if v.Map != nil && v.Map.Version > x.current.Version && (x.newer == nil || v.Map.Version > x.newer.Version) {
		x.newer = v.Map
		x.reporting.ring()
	}
	for _, st := range v.Stores {
		if st.Host == "" { // it died before this leader of meta could hear its address
			known, ok := x.statuses[st.ID]
			if !ok {
				continue
			}
			st.Host, st.Port, st.Replica = known.Host, known.Port, known.Replica
		}
		news = news || x.statuses[st.ID] != st
		x.statuses[st.ID] = st
	}
	for _, l := range v.Leads {
		if old := x.leads[l.Region]; l != old && l.Term >= old.Term {
			x.leads[l.Region] = l
			news = true
		}
	}
	x.mu.Unlock()
	if news {
		x.publish()
	}
}

// adopt makes m the store's map unless it has a newer one, and saves m for the next start. One call runs at a time.
func (x *clusterMap) adopt(m *meta.Map) error {
	x.mu.Lock()
	old := m.Version <= x.current.Version // it came while the newer one was being adopted
	x.mu.Unlock()
	if old {
		return nil
	}
	if err := x.records.keepMap(m); err != nil {
		return err
	}
	x.mu.Lock()
	x.setCurrent(m)
	x.mu.Unlock()
	x.publish()
	x.tending.ring() // m may give this store a replica that it lacks
	return nil
}

// setAlone notes whether the last report got no answer.
func (x *clusterMap) setAlone(alone bool) {
	x.mu.Lock()
	changed := x.alone != alone
	x.alone = alone
	if changed && !alone {
		x.heard = time.Now()
	}
	x.mu.Unlock()
	if changed {
		x.publish()
	}
}

// bear has the slot table show a child of a split until its replica runs here.
func (x *clusterMap) bear(child topology.Region) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.born[child.ID] = child
}

// runs has the slot table take a region's bounds from its replica here from now on. It reports whether the region was a
// child that did not run.
func (x *clusterMap) runs(id topology.RegionID) (born bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	_, born = x.born[id]
	delete(x.born, id)
	return born
}

// well returns since when reports have got answers; ok is false if the last one got none.
func (x *clusterMap) well() (since time.Time, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.heard, !x.alone
}

// alive returns the store's map, and which stores run and have space, as meta's leader said last.
func (x *clusterMap) alive() (*meta.Map, map[topology.StoreID]bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	alive := make(map[topology.StoreID]bool)
	for id, st := range x.statuses {
		alive[id] = st.Alive && !st.Full
	}
	alive[x.o.ID] = !x.space.full.Load()
	return x.current, alive
}

// reported returns the version of the store's map, and the regions that have changed here and that the map does not
// know so yet.
func (x *clusterMap) reported() (version uint64, news []topology.Region) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.current.Version == 0 {
		return 0, nil
	}
	onMap := x.current.ByID()
	for id, replica := range x.replicas.all() {
		r, _ := replica.Region()
		known := onMap[id]
		if replica.Bounds().Phase != keys.Absorbed && max(r.Version, r.ConfVersion) > 1 && replica.Running() &&
			(known == nil || known.Version < r.Version || known.Version == r.Version && known.ConfVersion < r.ConfVersion) {
			news = append(news, r)
		}
	}
	slices.SortFunc(news, func(a, b topology.Region) int { return int(a.ID - b.ID) })
	return x.current.Version, news
}

// publish publishes what the store knows by now as a slot table. If another call is at work, that one does so once
// more, and this one returns at once: when a store boots or dies, the leaders of many regions change together, and a
// table for each change would cost a time that is quadratic in the number of regions.
func (x *clusterMap) publish() {
	if x.publishing.Add(1) > 1 {
		return
	}
	for calls := int64(1); calls > 0; {
		calls = x.publishing.Load()
		x.makeTable()
		calls = x.publishing.Add(-calls)
	}
}

// makeTable makes a slot table of what the store knows, and swaps it in if it differs from the present one. A region's
// bounds are those that its replica here has applied or those on the map, whichever are newer. The leader of a region
// with a replica here is the one that Raft knows, unless meta's leader tells of one of a later term; the others come
// from meta's leader.
func (x *clusterMap) makeTable() {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.current.Version == 0 {
		return
	}
	stores := make([]route.PublicStore, 0, len(x.current.Stores))
	var gone []topology.StoreID
	for _, st := range x.current.Stores {
		if st.State == meta.Gone {
			gone = append(gone, st.ID)
			continue
		}
		known, ok := x.statuses[st.ID]
		if st.ID == x.o.ID {
			known, ok = meta.Status{
				Host: x.o.Host, Port: x.o.Port, Replica: x.o.ReplicaPort, Alive: true, Full: x.space.full.Load(),
			}, true
		}
		if ok {
			stores = append(stores, route.PublicStore{ID: st.ID, NodeID: st.NodeID, Host: known.Host, Port: known.Port,
				ReplicaPort: known.Replica, Alive: known.Alive, Full: known.Full, Draining: st.State == meta.Draining})
		}
	}
	replicas := x.replicas.all()
	regions := make([]route.LedRegion, 0, len(x.current.Regions))
	add := func(r topology.Region) {
		regions = append(regions, route.LedRegion{Region: r, Leader: x.leads[r.ID].Store, Term: x.leads[r.ID].Term})
	}
	// The replicas come last: what one of them applies meanwhile is not older than what is known of the others.
	for _, r := range x.current.Regions {
		if replicas[r.ID] == nil {
			add(r)
		}
	}
	for _, r := range x.born {
		if replicas[r.ID] == nil {
			add(r)
		}
	}
	// Which regions are absorbed comes first: a replica that takes one over publishes its slots before that one ends.
	var present []*region.Replica
	for _, replica := range replicas {
		if replica.Bounds().Phase != keys.Absorbed {
			present = append(present, replica)
		}
	}
	onMap := x.current.ByID()
	synced := x.o.Settings.Engine.WALSync == "always"
	for _, replica := range present {
		r, _ := replica.Region()
		lead := func(r topology.Region) {
			add(r)
			entry := &regions[len(regions)-1]
			entry.Told = entry.Leader
			// While the disk hangs, Raft here does not learn of later terms. If meta's leader names this store, Raft
			// knows whether it leads yet. Logs that are not synced may lose terms.
			leader, term, _ := replica.Leading()
			at := r.StoreOf(leader) // 0 also if it is not known here yet that this one is a peer
			if (term >= entry.Term || entry.Told == x.o.ID || !synced) && (at != 0 || leader == 0) {
				entry.Leader, entry.Term = at, term
			}
		}
		if known := onMap[r.ID]; known != nil && known.Version > r.Version {
			r = *known
		} else if known != nil && known.Version < r.Version {
			lead(*known) // a snapshot may have brought the split before the map has the child: some region has its slots
		} else if known != nil && known.ConfVersion > r.ConfVersion {
			r.Peers, r.ConfVersion = known.Peers, known.ConfVersion
		}
		lead(r)
	}
	slices.SortFunc(regions, func(a, b route.LedRegion) int { return int(a.Slots.First) - int(b.Slots.First) })
	epoch := uint64(1)
	if old := x.table.Load(); old != nil {
		if slices.Equal(old.Stores, stores) && slices.EqualFunc(old.Regions, regions, sameLed) && old.Alone == x.alone &&
			slices.Equal(old.Gone, gone) && slices.Equal(old.Wipes, x.current.Wipes) &&
			slices.EqualFunc(old.Windows, x.current.Windows, sameWindow) {
			return
		}
		epoch = old.Epoch + 1
	}
	table := route.NewTable(epoch, stores, regions)
	table.Alone, table.Version, table.Windows, table.Gone = x.alone, x.current.Version, x.current.Windows, gone
	table.Wipes = x.current.Wipes
	x.table.Store(table)
	next := make(chan struct{})
	close(*x.changed.Swap(&next))
}

// outdated reports whether the store knows more of a slot than an entry of its slot table says. A redirection by that
// entry might name a store that already sends clients here:
//
//   - A replica here knows of a later term, or it has the slot under newer bounds. The table is about to say so, since
//     publish leaves the work to the call that is under way. Until then this store may send the clients of a child that
//     it leads to the leader of the parent.
//   - The region is frozen here. Then the merge may be applied at the region's leader, and not yet at that of the left
//     neighbour, which is to serve the slots. No replica applies the merge before all are frozen, so of the stores that
//     do not know of the merge none redirects.
func (x *clusterMap) outdated(slot topology.Slot, r *route.LedRegion) bool {
	for id, replica := range x.replicas.all() {
		switch b := replica.Bounds(); {
		case b.Phase == keys.Absorbed:
		case b.Version > r.Version && b.Slots.Contains(slot):
			return true
		case id != r.ID:
		case b.Phase == keys.Frozen:
			return true
		default:
			if _, term, _ := replica.Leading(); term > r.Term {
				return true
			}
		}
	}
	return false
}

// ended reports whether a peer has ended by a wipe of its store.
func (x *clusterMap) ended(p topology.Peer) bool {
	w := x.adopted().Wipe(p.Store)
	return w != nil && w.Ends(p)
}

// endedOf returns the first voter of a region that has ended by a wipe of its store.
func (x *clusterMap) endedOf(r *topology.Region) (topology.Peer, bool) {
	i := slices.IndexFunc(r.Peers, func(p topology.Peer) bool { return p.Role == topology.Voter && x.ended(p) })
	if i < 0 {
		return topology.Peer{}, false
	}
	return r.Peers[i], true
}

// migrates reports whether a region is part of a window.
func (x *clusterMap) migrates(id topology.RegionID) bool {
	t := x.Table()
	return t != nil && slices.ContainsFunc(t.Windows, func(w route.Window) bool {
		return slices.ContainsFunc(w.Regions, func(r route.WindowRegion) bool { return r.ID == id })
	})
}

// sameWindow reports whether two windows of maps are the same. All that can change of a window is when it begins.
func sameWindow(a, b route.Window) bool { return a.ID == b.ID && a.BeginMS == b.BeginMS }

// sameLed reports whether two entries of slot tables say the same.
func sameLed(a, b route.LedRegion) bool {
	return a.Leader == b.Leader && a.Term == b.Term && a.Told == b.Told && a.ID == b.ID && a.Slots == b.Slots &&
		a.Version == b.Version && a.ConfVersion == b.ConfVersion && slices.Equal(a.Peers, b.Peers)
}
