package store

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/placement"
	"neokv.dev/neokv/internal/region"
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
	// Place is an order of meta's leader about a replica or a home, not answered.
	Place *placement.Order `json:"place,omitempty"`
	// Allocate asks meta's leader for a region id and so many replica ids; the answer is a meta.Allocated.
	Allocate int `json:"allocate,omitempty"`
	// Checksum asks for a replica's checksum, or for an entry that has all replicas make one.
	Checksum *checksumCall `json:"checksum,omitempty"`
	// Script asks for the script of this SHA1; the answer is a scriptAnswer.
	Script string `json:"script,omitempty"`
	// Map asks meta's leader to change a window, a store or a wipe of the map; the answer is a meta.Changed.
	Map *meta.MapChange `json:"map,omitempty"`
	// Plan asks meta's leader for the plan of replicas and homes; the answer is a PlacementPlan.
	Plan bool `json:"plan,omitempty"`
	// Reserve asks the store to begin a replica that joins a region; the answer is a reserveAnswer.
	Reserve *reserveCall `json:"reserve,omitempty"`
}

// calls lets in what other stores send: it answers their calls, and drops messages of Raft for which there is no space.
// It has no state. The endpoint calls its methods concurrently, also before the store's database is open.
type calls struct {
	*core
	space      *space
	meta       *metaMember
	cluster    *clusterMap
	progress   *progress
	leadership *leadership
	homes      *homes
	bus        *bus
	scripts    *scripts
	audit      *audit
	stepCalls  *stepCalls
	orders     *orders
	placement  *placing
	heartbeat  *heartbeat
	slots      *slots
	replicas   *replicaSet
}

// handle answers the calls of other stores.
func (x *calls) handle(ctx context.Context, from topology.StoreID, request []byte) ([]byte, error) {
	if len(request) > 0 && request[0] == busMark {
		return nil, x.bus.take(from, request)
	}
	m, err := parseMessage(from, request)
	if err != nil {
		return nil, err
	}
	switch {
	case m.View != nil:
		x.cluster.learn(m.View)
		return nil, nil
	case m.Fit != nil:
		return json.Marshal(x.homes.fitness(m.Fit))
	case m.Bounds != nil:
		return json.Marshal(x.progress.answer(ctx, *m.Bounds))
	case m.Change != nil:
		done, err := x.stepCalls.answer(ctx, *m.Change)
		notLeading := errors.Is(err, errNotLeading)
		if err != nil && !notLeading {
			return nil, err
		}
		return json.Marshal(changeAnswer{Done: done, NotLeading: notLeading})
	case m.Stand != nil:
		if x.o.Booting && x.progress.runs(*m.Stand) && !x.leadership.hasLeader(*m.Stand) {
			x.leadership.stand(*m.Stand)
		}
		return nil, nil
	case m.Order != nil:
		x.orders.take(*m.Order)
		return nil, nil
	case m.Place != nil:
		x.orders.takePlace(*m.Place)
		return nil, nil
	case m.Allocate > 0:
		a, err := x.meta.allocateHere(ctx, min(m.Allocate, maxPeers))
		if err != nil {
			return nil, err
		}
		return json.Marshal(a)
	case m.Checksum != nil:
		return x.audit.answer(ctx, *m.Checksum)
	case m.Script != "":
		return json.Marshal(x.scripts.answer(m.Script))
	case m.Map != nil:
		got, err := x.meta.changeHere(ctx, *m.Map)
		if err != nil {
			return nil, err
		}
		return json.Marshal(got)
	case m.Plan:
		plan, err := x.placement.answer()
		if err != nil {
			return nil, err
		}
		return json.Marshal(plan)
	case m.Reserve != nil:
		a, err := x.slots.reserve(*m.Reserve)
		if err != nil {
			return nil, err
		}
		return json.Marshal(a)
	case m.Beat != nil:
		return json.Marshal(x.heartbeat.answer(m.Beat))
	}
	return nil, fmt.Errorf("call of store %d: nothing known is asked", from)
}

// drops reports whether a message of Raft is dropped: one that a replica must not have, as it has just joined, and at
// a full store one with entries that write, or the begin of a snapshot. Meta's are few and small.
func (x *calls) drops(m *multiraft.Message) bool {
	if r := x.replicas.get(topology.RegionID(m.ShardID)); r != nil && !r.Takes(m) {
		return true
	}
	if m.Type == multiraft.InstallSnapshot && !x.progress.runs(topology.RegionID(m.ShardID)) {
		return true // the Raft library ends the process if a snapshot comes for a replica that has never run here
	}
	if !x.space.full.Load() || topology.RegionID(m.ShardID) == topology.MetaRegion {
		return false
	}
	if m.Type == multiraft.InstallSnapshot {
		return true
	}
	if m.Type == multiraft.Replicate {
		for i := range m.Entries {
			if region.Writes(&m.Entries[i]) {
				return true
			}
		}
	}
	return false
}

// encode returns the bytes of a call.
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
