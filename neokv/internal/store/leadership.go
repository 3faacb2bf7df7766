package store

import (
	"context"
	"fmt"
	"slices"
	"time"

	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/topology"
)

// leadership brings about who leads the regions of which the store has a replica: elections when the cluster starts or
// a region splits, hand-overs, and signs of life while the disk is slow. It has no state of its own; what it watches is
// what Raft and the slot table say. All methods may run concurrently.
type leadership struct {
	*core
	replicas *replicaSet
	cluster  *clusterMap
	meta     *metaMember
	progress *progress
}

// leaderChanged takes the events of multiraft.Options. It must not block.
func (x *leadership) leaderChanged(i multiraft.Leader) {
	switch r := x.replicas.get(i.Region); {
	case r != nil:
		r.LeaderChanged(i)
	case i.Region == topology.MetaRegion:
		x.meta.known.Store(uint64(meta.StoreOf(i.Leader)))
		x.reporting.ring()
	}
}

// campaignForMeta has meta elect the first of its stores when all stores start.
func (x *leadership) campaignForMeta() {
	if !x.o.Booting || x.meta.group.Load() == nil {
		return
	}
	var voters []topology.StoreID
	for _, p := range meta.Members(x.o.Founders) {
		if w := x.cluster.adopted().Wipe(p.Store); w == nil || w.Done { // else it need not be a voter yet
			voters = append(voters, p.Store)
		}
	}
	if voters = x.present(voters); len(voters) > 0 && voters[0] == x.o.ID {
		x.wg.Go(func() { x.campaign(topology.MetaRegion, voters, false) })
	}
}

// present returns the stores that start now, of those that hold a replica which this store has, too.
func (x *leadership) present(stores []topology.StoreID) []topology.StoreID {
	if x.o.Absent == nil {
		return stores
	}
	return slices.DeleteFunc(stores, x.o.Absent)
}

// campaign waits until the region's voters run, and then makes a replica stand for election until the region has a
// leader: this store's or, where another log is newer, that one's, since its store would not vote for this one. For a
// child of a split, whose logs are alike and for which a client waits, a majority that runs is enough. campaign must
// repeat its call: a candidate whose requests were lost waits for its next time-out, and a replica ignores the call
// while it has bootstrap entries to apply. After a while campaign leaves the election to Raft's own time-outs.
func (x *leadership) campaign(id topology.RegionID, voters []topology.StoreID, born bool) {
	ctx, cancel := context.WithTimeout(x.ctx, 2*time.Second)
	defer cancel()
	type voter struct {
		store topology.StoreID
		log   multiraft.End
	}
	running := make(chan voter, len(voters))
	running <- voter{x.o.ID, x.progress.answer(ctx, boundsCall{Region: id}).Log}
	for _, v := range voters {
		if v == x.o.ID {
			continue
		}
		x.wg.Go(func() { // a voter that does not answer holds the others up no longer than they are needed
			for wait := changePause / 4; ; wait = min(2*wait, 50*time.Millisecond) {
				var b boundsAnswer
				if x.askLong(ctx, v, message{Bounds: &boundsCall{Region: id}}, &b) == nil && b.Runs {
					running <- voter{v, b.Log}
					return
				}
				if !pause(ctx, wait) {
					return
				}
			}
		})
	}
	enough := len(voters)
	if born {
		enough = len(voters)/2 + 1
	}
	best := <-running // this store
	for range enough - 1 {
		select {
		case v := <-running:
			if !born && v.log.Compare(best.log) > 0 {
				best = v
			}
		case <-ctx.Done():
			return
		}
	}
	for wait := 200 * time.Microsecond; ; wait = min(2*wait, 50*time.Millisecond) {
		if x.hasLeader(id) {
			return
		}
		if best.store == x.o.ID {
			x.stand(id)
		} else {
			_ = x.ask(ctx, best.store, message{Stand: &id}, nil)
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// hasLeader reports whether the store's replica of a region knows a leader, or is gone.
func (x *leadership) hasLeader(id topology.RegionID) bool {
	leader, _, ok, err := x.raft.Leader(id)
	return err != nil || ok && leader != 0
}

// stand makes the store's replica of a region stand for election, when the store starts with the whole cluster.
func (x *leadership) stand(id topology.RegionID) {
	replica := x.self() // of meta
	if r := x.replicas.get(id); r != nil {
		_, replica = r.Region()
	} else if id != topology.MetaRegion {
		return
	}
	x.endpoint.Campaign(id, replica)
}

// transfer asks Raft to hand the leadership of a region from this store to another: see Store.Transfer.
func (x *leadership) transfer(id topology.RegionID, to topology.StoreID) error {
	r := x.replicas.get(id)
	if r == nil {
		return fmt.Errorf("store %d: no replica of region %d", x.o.ID, id)
	}
	desc, _ := r.Region()
	peer, ok := desc.PeerOn(to)
	if !ok {
		return fmt.Errorf("store %d: region %d has no replica on store %d", x.o.ID, id, to)
	}
	x.endpoint.Stir(id)
	return r.Transfer(peer.Replica)
}

// handOver hands a region over to another store. It returns when that store leads, or when it has not come to lead in
// twice the time after which Raft calls a transfer off.
func (x *leadership) handOver(id topology.RegionID, to topology.StoreID) bool {
	if x.transfer(id, to) != nil {
		return false
	}
	late := time.NewTimer(2 * x.o.Settings.Raft.RTT * time.Duration(x.o.Settings.Raft.ElectionTicks))
	defer late.Stop()
	for {
		changed := x.cluster.Changed()
		r := x.cluster.Table().ByID(id)
		if r == nil {
			return false // another region has taken it over
		}
		if r.Leader == to {
			return true
		}
		select {
		case <-changed:
		case <-late.C:
			return false
		case <-x.ctx.Done():
			return false
		}
	}
}

// bridgeStalls keeps leaders leading and followers following while the store's disk takes long for a sync. Raft handles
// no messages during the sync, but its ticks add up. After the stall these ticks would depose a leader that has lost no
// follower. They would also make a follower campaign, although its leader's heartbeats wait to be read, or its leader
// waits for the same disk. bridgeStalls speaks only for replicas that were heard of when the stall began. So Raft still
// takes a replica for dead that is silent between two stalls, even on a store whose disk is always slow.
func (x *leadership) bridgeStalls() {
	k := x.o.Settings.Raft
	heartbeat := time.Duration(multiraft.HeartbeatTicks(k)) * k.RTT
	election := time.Duration(k.ElectionTicks) * k.RTT
	tick := time.NewTicker(heartbeat)
	defer tick.Stop()
	var last time.Time
	for {
		select {
		case <-x.ctx.Done():
			return
		case <-tick.C:
		}
		began, ok := x.raft.Stalled()
		if !ok || time.Since(last) < election/2 {
			continue
		}
		last = time.Now()
		reassure := func(id topology.RegionID, self topology.ReplicaID, voters []topology.ReplicaID) {
			if leader, term, ok, err := x.raft.Leader(id); err == nil && ok && leader != 0 {
				x.endpoint.Reassure(id, self, leader, term, voters, began.Add(-election/2))
			}
		}
		var voters []topology.ReplicaID
		for _, replica := range x.replicas.all() {
			r, self := replica.Region()
			voters = voters[:0]
			for _, p := range r.Peers {
				voters = append(voters, p.Replica)
			}
			reassure(r.ID, self, voters)
		}
		voters = voters[:0]
		for _, p := range x.cluster.adopted().Peers(x.o.Founders) {
			voters = append(voters, p.Replica)
		}
		reassure(topology.MetaRegion, x.self(), voters)
	}
}
