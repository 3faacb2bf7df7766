package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
)

// message is a call of one store to another. Exactly one field is set. Its JSON is the wire format.
type message struct {
	Beat *meta.Beat        `json:"beat,omitempty"` // to meta's leader, answered with an answer
	View *meta.ClusterView `json:"view,omitempty"` // from meta's leader, not answered
	// Fit asks how fit the store is to lead these regions again, whose home it is; the answer is a fitness.
	Fit []topology.RegionID `json:"fit,omitempty"`
	// Bounds asks for what the store's replica of a region has applied; the answer is a boundsAnswer.
	Bounds *boundsCall `json:"bounds,omitempty"`
	// Change asks the leader of a region for a step of a split or merge; the answer is a changeAnswer.
	Change *changeCall `json:"change,omitempty"`
	// Stand asks the store's replica of a region, whose log is the newest, to stand for the first election of a cluster
	// that starts; not answered.
	Stand *topology.RegionID `json:"stand,omitempty"`
	// Order is an order of meta's leader, not answered.
	Order *schedule.Order `json:"order,omitempty"`
	// Allocate asks meta's leader for a region id and so many replica ids; the answer is a meta.Allocated.
	Allocate int `json:"allocate,omitempty"`
	// Checksum asks for a replica's checksum, or for an entry that has all replicas make one.
	Checksum *checksumCall `json:"checksum,omitempty"`
	// Script asks for the script of this SHA1; the answer is a scriptAnswer.
	Script string `json:"script,omitempty"`
}

// heartbeatAnswer is the answer to a heartbeat.
type heartbeatAnswer struct {
	Leader topology.StoreID  `json:"leader"` // the store that leads meta, as far as the asked store knows
	View   *meta.ClusterView `json:"view,omitempty"`
}

// run sends a heartbeat to meta's leader every second and whenever something has changed here, and adopts the maps that
// arrive.
func (s *Store) run() {
	tick := time.NewTicker(Heartbeat)
	defer tick.Stop()
	for {
		if s.failed() == nil {
			s.report()
		}
		s.mu.Lock()
		m := s.newer
		s.newer = nil
		s.mu.Unlock()
		if m != nil {
			if err := s.adopt(m); err != nil && s.failed() == nil {
				s.o.FS.Fence(err)
			}
			s.reporting.ring() // tell meta's leader what this store leads now
		}
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
		case <-s.reporting:
		}
	}
}

// report sends one heartbeat to meta's leader, or takes it itself if this store leads meta.
func (s *Store) report() {
	b := meta.Beat{Store: s.o.ID, Host: s.o.Host, Port: s.o.Port, Replica: s.o.ReplicaPort, Leads: s.replicas.all().leads(s.o.ID),
		Full: s.space.full.Load()}
	b.Loads = s.measure(b.Leads, time.Now())
	s.mu.Lock()
	b.MapVersion = s.current.Version
	b.Regions = s.reported()
	s.mu.Unlock()
	if s.meta.leading() {
		s.setAlone(false)
		s.serveMeta(b)
		return
	}
	if group := s.meta.group.Load(); group != nil && s.meta.leader() != s.o.ID {
		group.Resign()
		s.planner, s.boundsSince, s.noted = schedule.Planner{}, nil, nil
	}
	target := s.meta.target()
	for range meta.MaxReplicas {
		var a heartbeatAnswer
		err := s.ask(s.ctx, target, message{Beat: &b}, &a)
		if err == nil {
			err = checkView(a.View)
		}
		if s.ctx.Err() != nil {
			return
		}
		s.setAlone(err != nil)
		switch {
		case err == nil && a.View != nil:
			s.meta.follow(target)
			s.learn(a.View)
			return
		case err == nil && a.Leader != 0 && a.Leader != target && a.Leader != s.o.ID:
			target = a.Leader
		default:
			s.meta.follow(s.meta.next(target))
			return // the next heartbeat asks another store
		}
	}
}

// reported returns the regions that have changed here and that the map does not know so yet. The caller holds mu.
func (s *Store) reported() (news []topology.Region) {
	if s.current.Version == 0 {
		return nil
	}
	onMap := s.current.ByID()
	for id, replica := range s.replicas.all() {
		r, _ := replica.Region()
		known := onMap[id]
		if replica.Bounds().Phase != keys.Absorbed && r.Version > 1 && replica.Running() &&
			(known == nil || known.Version < r.Version) {
			news = append(news, r)
		}
	}
	slices.SortFunc(news, func(a, b topology.Region) int { return int(a.ID - b.ID) })
	return news
}

// setAlone notes whether the last report got no answer.
func (s *Store) setAlone(alone bool) {
	s.mu.Lock()
	changed := s.alone != alone
	s.alone = alone
	if changed && !alone {
		s.heard = time.Now()
	}
	s.mu.Unlock()
	if changed {
		s.publish()
	}
}

// serveMeta takes the heartbeat of meta's leader to itself, and sends the other stores the new view of the cluster.
func (s *Store) serveMeta(b meta.Beat) {
	group := s.meta.group.Load()
	if group.EnsureMap(s.ctx) != nil {
		return // the next heartbeat tries again
	}
	mine, all, tell, report := group.Serve(b, time.Now())
	s.learn(&mine)
	if report != nil {
		s.wg.Go(func() { group.Propose(s.ctx, report) }) // the next heartbeat tries again what fails
	}
	s.plan(group, time.Now())
	if len(tell) == 0 {
		return
	}
	request := encode(message{View: &all})
	for _, peer := range tell {
		s.wg.Go(func() {
			ctx, cancel := context.WithTimeout(s.ctx, callTimeout)
			defer cancel()
			s.endpoint.Call(ctx, peer, request) // a store that misses it asks within a second
		})
	}
}

func encode(m message) []byte {
	b, err := json.Marshal(m)
	if err != nil {
		panic(err)
	}
	return b
}

// parseMessage decodes a call of another store.
func parseMessage(from topology.StoreID, request []byte) (m message, err error) {
	err = json.Unmarshal(request, &m)
	switch {
	case err != nil:
	case m.View != nil:
		err = checkView(m.View)
	case m.Beat != nil && m.Beat.Store != from: // meta's leader remembers each store of which it hears
		err = fmt.Errorf("a heartbeat of store %d", m.Beat.Store)
	}
	if err != nil {
		return message{}, fmt.Errorf("decode call of store %d: %w", from, err)
	}
	return m, nil
}

// checkView returns an error unless the map of a view, if there is one, can be routed by.
func checkView(v *meta.ClusterView) error {
	if v == nil || v.Map == nil {
		return nil
	}
	return v.Map.Check()
}

// handle answers the calls of other stores.
func (s *Store) handle(ctx context.Context, from topology.StoreID, request []byte) ([]byte, error) {
	if len(request) > 0 && request[0] == busMark {
		return nil, s.takeBatch(from, request)
	}
	m, err := parseMessage(from, request)
	if err != nil {
		return nil, err
	}
	switch {
	case m.View != nil:
		s.learn(m.View)
		return nil, nil
	case m.Fit != nil:
		return json.Marshal(s.fitness(m.Fit))
	case m.Bounds != nil:
		return json.Marshal(s.answerBounds(ctx, *m.Bounds))
	case m.Change != nil:
		done, err := s.answerChange(ctx, *m.Change)
		notLeading := errors.Is(err, errNotLeading)
		if err != nil && !notLeading {
			return nil, err
		}
		return json.Marshal(changeAnswer{Done: done, NotLeading: notLeading})
	case m.Stand != nil:
		if s.o.Booting && s.running(*m.Stand) && !s.hasLeader(*m.Stand) {
			s.stand(*m.Stand)
		}
		return nil, nil
	case m.Order != nil:
		s.takeOrder(*m.Order)
		return nil, nil
	case m.Allocate > 0:
		a, err := s.meta.allocateHere(ctx, min(m.Allocate, maxPeers))
		if err != nil {
			return nil, err
		}
		return json.Marshal(a)
	case m.Checksum != nil:
		return s.answerChecksum(ctx, *m.Checksum)
	case m.Script != "":
		return json.Marshal(s.answerScript(m.Script))
	case m.Beat != nil:
		a := heartbeatAnswer{Leader: s.meta.leader()}
		if a.Leader == s.o.ID {
			told, report, news := s.meta.group.Load().Hear(*m.Beat, time.Now())
			if news || report != nil {
				s.reporting.ring()
			}
			if a.View = &told; !s.meta.leading() {
				a = heartbeatAnswer{Leader: s.meta.target()}
			}
		}
		return json.Marshal(a)
	}
	return nil, fmt.Errorf("call of store %d: nothing known is asked", from)
}

// Replicated returns how many stores beside a region's leader have applied the entry at index, 0 if this store knows of
// no leader. It counts those that answer before ctx ends.
func (s *Store) Replicated(ctx context.Context, id topology.RegionID, index uint64) int {
	t := s.Table()
	if t == nil || t.ByID(id) == nil || t.ByID(id).Leader == 0 {
		return 0
	}
	var have atomic.Int64
	var wg sync.WaitGroup
	for _, p := range t.ByID(id).Peers {
		if p.Store == t.ByID(id).Leader {
			continue
		}
		wg.Go(func() {
			if b, err := s.boundsOn(ctx, p.Store, boundsCall{Region: id}); err == nil && b.Applied >= index {
				have.Add(1)
			}
		})
	}
	wg.Wait()
	return int(have.Load())
}

// running reports whether this store's replica of a region has been started.
func (s *Store) running(id topology.RegionID) bool {
	if id == topology.MetaRegion {
		return s.meta.group.Load() != nil
	}
	r := s.replicas.get(id)
	return r != nil && r.Running()
}

// learn takes the view that meta's leader sends. It leaves a newer map to run, since starting replicas takes a while.
func (s *Store) learn(v *meta.ClusterView) {
	s.mu.Lock()
	news := false
	if v.Map != nil && v.Map.Version > s.current.Version && (s.newer == nil || v.Map.Version > s.newer.Version) {
		s.newer = v.Map
		s.reporting.ring()
	}
	for _, st := range v.Stores {
		if st.Host == "" { // it died before this leader of meta could hear its address
			known, ok := s.statuses[st.ID]
			if !ok {
				continue
			}
			st.Host, st.Port, st.Replica = known.Host, known.Port, known.Replica
		}
		news = news || s.statuses[st.ID] != st
		s.statuses[st.ID] = st
	}
	for _, l := range v.Leads {
		if old := s.leads[l.Region]; l != old && l.Term >= old.Term {
			s.leads[l.Region] = l
			news = true
		}
	}
	s.mu.Unlock()
	if news {
		s.publish()
	}
}

// adopt makes m the store's map unless it has a newer one, and saves m for the next start. One call runs at a time.
func (s *Store) adopt(m *meta.Map) error {
	s.mu.Lock()
	old := m.Version <= s.current.Version // it came while the newer one was being adopted
	s.mu.Unlock()
	if old {
		return nil
	}
	if err := s.records.keepMap(m); err != nil {
		return err
	}
	s.mu.Lock()
	s.current = m
	s.mu.Unlock()
	s.publish()
	s.tending.ring() // m may give this store a replica that it lacks
	return nil
}

// publish publishes what the store knows by now as a slot table. If another call is at work, that one does so once
// more, and this one returns at once: when a store boots or dies, the leaders of many regions change together, and a
// table for each change would cost a time that is quadratic in the number of regions.
func (s *Store) publish() {
	if s.publishing.Add(1) > 1 {
		return
	}
	for calls := int64(1); calls > 0; {
		calls = s.publishing.Load()
		s.makeTable()
		calls = s.publishing.Add(-calls)
	}
}

// makeTable makes a slot table of what the store knows, and swaps it in if it differs from the present one. A region's
// bounds are those that its replica here has applied or those on the map, whichever are newer. The leader of a region
// with a replica here is the one that Raft knows, unless meta's leader tells of one of a later term; the others come
// from meta's leader.
func (s *Store) makeTable() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.current.Version == 0 {
		return
	}
	stores := make([]route.PublicStore, 0, len(s.current.Stores))
	for _, st := range s.current.Stores {
		known, ok := s.statuses[st.ID]
		if st.ID == s.o.ID {
			known, ok = meta.Status{
				Host: s.o.Host, Port: s.o.Port, Replica: s.o.ReplicaPort, Alive: true, Full: s.space.full.Load(),
			}, true
		}
		if ok {
			stores = append(stores, route.PublicStore{ID: st.ID, NodeID: st.NodeID, Host: known.Host, Port: known.Port,
				ReplicaPort: known.Replica, Alive: known.Alive, Full: known.Full})
		}
	}
	replicas := s.replicas.all()
	regions := make([]route.LedRegion, 0, len(s.current.Regions))
	add := func(r topology.Region) {
		regions = append(regions, route.LedRegion{Region: r, Leader: s.leads[r.ID].Store, Term: s.leads[r.ID].Term})
	}
	// The replicas come last: what one of them applies meanwhile is not older than what is known of the others.
	for _, r := range s.current.Regions {
		if replicas[r.ID] == nil {
			add(r)
		}
	}
	for _, r := range s.born {
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
	onMap := s.current.ByID()
	synced := s.o.Settings.Engine.WALSync == "always"
	for _, replica := range present {
		r, _ := replica.Region()
		lead := func(r topology.Region) {
			add(r)
			entry := &regions[len(regions)-1]
			entry.Told = entry.Leader
			// While the disk hangs, Raft here does not learn of later terms. If meta's leader names this store, Raft
			// knows whether it leads yet. Logs that are not synced may lose terms.
			if leader, term, _ := replica.Leading(); term >= entry.Term || entry.Told == s.o.ID || !synced {
				entry.Leader, entry.Term = r.StoreOf(leader), term
			}
		}
		if known := onMap[r.ID]; known != nil && known.Version > r.Version {
			r = *known
		} else if known != nil && known.Version < r.Version {
			lead(*known) // a snapshot may have brought the split before the map has the child: some region has its slots
		}
		lead(r)
	}
	slices.SortFunc(regions, func(a, b route.LedRegion) int { return int(a.Slots.First) - int(b.Slots.First) })
	epoch := uint64(1)
	if old := s.table.Load(); old != nil {
		if slices.Equal(old.Stores, stores) && slices.EqualFunc(old.Regions, regions, sameLed) && old.Alone == s.alone {
			return
		}
		epoch = old.Epoch + 1
	}
	table := route.NewTable(epoch, stores, regions)
	table.Alone = s.alone
	s.table.Store(table)
	next := make(chan struct{})
	close(*s.changed.Swap(&next))
}

// Outdated reports whether the store knows more of a slot than an entry of its slot table says. A redirection by that
// entry might name a store that already sends clients here:
//
//   - A replica here knows of a later term, or it has the slot under newer bounds. The table is about to say so, since
//     publish leaves the work to the call that is under way. Until then this store may send the clients of a child that
//     it leads to the leader of the parent.
//   - The region is frozen here. Then the merge may be applied at the region's leader, and not yet at that of the left
//     neighbour, which is to serve the slots. No replica applies the merge before all are frozen, so of the stores that
//     do not know of the merge none redirects.
func (s *Store) Outdated(slot topology.Slot, r *route.LedRegion) bool {
	for id, replica := range s.replicas.all() {
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

// sameLed reports whether two entries of slot tables say the same.
func sameLed(a, b route.LedRegion) bool {
	return a.Leader == b.Leader && a.Term == b.Term && a.Told == b.Told && a.ID == b.ID && a.Slots == b.Slots &&
		a.Version == b.Version && a.ConfVersion == b.ConfVersion && slices.Equal(a.Peers, b.Peers)
}
