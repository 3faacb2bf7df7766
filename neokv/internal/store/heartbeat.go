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

// heartbeat is the goroutine that reports to meta's leader, and that meta's leader gives its orders on. It has no state
// of its own. answer may run concurrently.
type heartbeat struct {
	*core
	replicas *replicaSet
	space    *space
	cluster  *clusterMap
	meta     *metaMember
	loads    *loads
	plans    *plans
}

// run sends a heartbeat to meta's leader every second and whenever something has changed here, and adopts the maps that
// arrive.
func (x *heartbeat) run() {
	tick := time.NewTicker(Heartbeat)
	defer tick.Stop()
	for {
		if x.failed() == nil {
			x.report()
		}
		if m := x.cluster.arrived(); m != nil {
			if err := x.cluster.adopt(m); err != nil && x.failed() == nil {
				x.o.FS.Fence(err)
			}
			x.reporting.ring() // tell meta's leader what this store leads now
		}
		select {
		case <-x.ctx.Done():
			return
		case <-tick.C:
		case <-x.reporting:
		}
	}
}

// report sends one heartbeat to meta's leader, or takes it itself if this store leads meta.
func (x *heartbeat) report() {
	b := meta.Beat{Store: x.o.ID, Host: x.o.Host, Port: x.o.Port, Replica: x.o.ReplicaPort, Full: x.space.full.Load(),
		Leads: x.replicas.all().leads(x.o.ID)}
	b.Loads = x.loads.measure(b.Leads, time.Now())
	b.MapVersion, b.Regions = x.cluster.reported()
	if x.meta.leading() {
		x.cluster.setAlone(false)
		x.serveMeta(b)
		return
	}
	if group := x.meta.group.Load(); group != nil && x.meta.leader() != x.o.ID {
		group.Resign()
		x.plans.forget()
	}
	target := x.meta.target()
	for range meta.MaxReplicas {
		var a heartbeatAnswer
		err := x.ask(x.ctx, target, message{Beat: &b}, &a)
		if err == nil {
			err = checkView(a.View)
		}
		if x.ctx.Err() != nil {
			return
		}
		x.cluster.setAlone(err != nil)
		switch {
		case err == nil && a.View != nil:
			x.meta.follow(target)
			x.cluster.learn(a.View)
			return
		case err == nil && a.Leader != 0 && a.Leader != target && a.Leader != x.o.ID:
			target = a.Leader
		default:
			x.meta.follow(x.meta.next(target))
			return // the next heartbeat asks another store
		}
	}
}

// serveMeta takes the heartbeat of meta's leader to itself, and sends the other stores the new view of the cluster.
func (x *heartbeat) serveMeta(b meta.Beat) {
	group := x.meta.group.Load()
	if group.EnsureMap(x.ctx) != nil {
		return // the next heartbeat tries again
	}
	mine, all, tell, report := group.Serve(b, time.Now())
	x.cluster.learn(&mine)
	if report != nil {
		x.wg.Go(func() { group.Propose(x.ctx, report) }) // the next heartbeat tries again what fails
	}
	x.plans.plan(group, time.Now())
	if len(tell) == 0 {
		return
	}
	request := encode(message{View: &all})
	for _, peer := range tell {
		x.wg.Go(func() {
			ctx, cancel := context.WithTimeout(x.ctx, callTimeout)
			defer cancel()
			x.endpoint.Call(ctx, peer, request) // a store that misses it asks within a second
		})
	}
}

// answer answers the heartbeat of another store.
func (x *heartbeat) answer(b *meta.Beat) heartbeatAnswer {
	a := heartbeatAnswer{Leader: x.meta.leader()}
	if a.Leader == x.o.ID {
		told, report, news := x.meta.group.Load().Hear(*b, time.Now())
		if news || report != nil {
			x.reporting.ring()
		}
		if a.View = &told; !x.meta.leading() {
			a = heartbeatAnswer{Leader: x.meta.target()}
		}
	}
	return a
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
		s.orders.take(*m.Order)
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
		return json.Marshal(s.heartbeat.answer(m.Beat))
	}
	return nil, fmt.Errorf("call of store %d: nothing known is asked", from)
}
