package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"neokv.dev/neokv/internal/meta"
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
		if m := s.cluster.arrived(); m != nil {
			if err := s.cluster.adopt(m); err != nil && s.failed() == nil {
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
	b.MapVersion, b.Regions = s.cluster.reported()
	if s.meta.leading() {
		s.cluster.setAlone(false)
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
		s.cluster.setAlone(err != nil)
		switch {
		case err == nil && a.View != nil:
			s.meta.follow(target)
			s.cluster.learn(a.View)
			return
		case err == nil && a.Leader != 0 && a.Leader != target && a.Leader != s.o.ID:
			target = a.Leader
		default:
			s.meta.follow(s.meta.next(target))
			return // the next heartbeat asks another store
		}
	}
}

// serveMeta takes the heartbeat of meta's leader to itself, and sends the other stores the new view of the cluster.
func (s *Store) serveMeta(b meta.Beat) {
	group := s.meta.group.Load()
	if group.EnsureMap(s.ctx) != nil {
		return // the next heartbeat tries again
	}
	mine, all, tell, report := group.Serve(b, time.Now())
	s.cluster.learn(&mine)
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
		return nil, s.bus.take(from, request)
	}
	m, err := parseMessage(from, request)
	if err != nil {
		return nil, err
	}
	switch {
	case m.View != nil:
		s.cluster.learn(m.View)
		return nil, nil
	case m.Fit != nil:
		return json.Marshal(s.homes.fitness(m.Fit))
	case m.Bounds != nil:
		return json.Marshal(s.progress.answer(ctx, *m.Bounds))
	case m.Change != nil:
		done, err := s.stepCalls.answer(ctx, *m.Change)
		notLeading := errors.Is(err, errNotLeading)
		if err != nil && !notLeading {
			return nil, err
		}
		return json.Marshal(changeAnswer{Done: done, NotLeading: notLeading})
	case m.Stand != nil:
		if s.o.Booting && s.progress.runs(*m.Stand) && !s.leadership.hasLeader(*m.Stand) {
			s.leadership.stand(*m.Stand)
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
		return s.audit.answer(ctx, *m.Checksum)
	case m.Script != "":
		return json.Marshal(s.scripts.answer(m.Script))
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
