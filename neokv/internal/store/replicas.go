package store

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/schedule"
	"neokv.dev/neokv/internal/topology"
)

// keeper starts and ends the store's replicas, on a goroutine of its own. The store has a record of each
// (keys.ReplicaRecord), beside the replica's region state. The keeper starts the replicas that have records, whatever
// the cluster map says. A record is made
//
//   - when the store is opened for the first time, for the regions of a new cluster;
//   - by the split of a region, for the child, in the batch that splits the parent;
//   - for a region that the map gives to this store, if no replica here has any of its slots: the store missed the
//     split, since it got the parent as a snapshot. Such a replica joins: it begins empty, and is sent everything. A
//     region joins after its ancestors: see ancestors.
//   - when a move brings the region here, on request of the store that leads it: see slots.reserve.
//
// A record goes when another region has absorbed the region. The region state stays then, as Absorbed, so that a map
// that is older does not bring the region back. It also goes when the replica has left the region, on the evidence
// that slots.leave names; then another record stays that says so.
type keeper struct {
	*core
	records    *records
	replicas   *replicaSet
	cluster    *clusterMap
	leadership *leadership
	changes    *changes
	moves      *moves
	slots      *slots
	sampler    *schedule.SlotSampler // nil if no region is split for its load
	counters   *regionCounters

	popped     redis.PopMemory // of all replicas together
	scriptTurn chan struct{}   // likewise: see region.Options
	randMu     sync.Mutex      // held to draw from Options.Rand
}

// newReplica makes the store's replica of a region; start starts it.
func (x *keeper) newReplica(o *ownedRegion) *region.Replica {
	return region.New(region.Options{
		Region: o.region(), Store: x.o.ID, Replica: o.record.ID, Born: o.record.Born, After: o.record.After,
		Engine: x.engine, Host: x.raft, Knobs: x.o.Settings.Raft, Incarnation: x.incarnation(), Failed: x.o.FS.Failed,
		Seed:  rand.NewPCG(x.o.Seed^uint64(x.o.ID)<<48, uint64(o.id)).Uint64(),
		Fence: x.o.FS.Fence, ClockAhead: x.o.ClockAhead, OldestRead: x.o.FS.OldestRead, Changed: x.leadingChanged,
		OnServe: x.o.OnServe, ScriptLog: x.o.OnScriptLog, OnBounds: x.boundsChanged, Listener: x.o.Listener, Beside: x.slots,
		Counters: x.counters.of(o.id), Sampler: x.sampler, PopMemory: &x.popped, ScriptTurn: x.scriptTurn,
		Mistakes: x.o.Mistakes.Region, Hooks: x.o.Hooks,
	})
}

func (x *keeper) incarnation() uint64 {
	x.randMu.Lock()
	defer x.randMu.Unlock()
	return x.o.Rand.Uint64() ^ uint64(time.Now().UnixNano())
}

// startParallel is how many replicas a store starts at once. the Raft library starts one after the other; the rest is
// reading.
const startParallel = 4

// checkLogs checks the logs of the replicas of a store that opens, meta's too.
func (x *keeper) checkLogs(all []ownedRegion) error {
	errs := make([]error, startParallel)
	var wg sync.WaitGroup
	for w := range startParallel {
		wg.Go(func() {
			for i := w; i < len(all) && errs[w] == nil; i += startParallel {
				errs[w] = x.raft.Check(all[i].id, all[i].record.ID)
			}
		})
	}
	wg.Wait()
	if meta.IsMember(x.o.Founders, x.o.ID) {
		errs = append(errs, x.raft.Check(topology.MetaRegion, x.self()))
	}
	return errors.Join(errs...)
}

// startAll starts the replicas that have records and do not run. They are all known before the first one runs, so that
// no slot table lacks a child whose parent it has.
func (x *keeper) startAll(all []ownedRegion) error {
	var fresh []int
	next := x.replicas.change(func(next Replicas) bool {
		for i := range all {
			if next[all[i].id] == nil {
				next[all[i].id] = x.newReplica(&all[i])
				fresh = append(fresh, i)
			}
		}
		return len(fresh) > 0
	})
	if len(fresh) == 0 {
		return nil
	}
	x.cluster.publish()
	errs := make([]error, len(fresh))
	var wg sync.WaitGroup
	for w := range min(startParallel, len(fresh)) {
		wg.Go(func() {
			for i := w; i < len(fresh) && x.failed() == nil; i += startParallel {
				errs[i] = x.start(next[all[fresh[i]].id], &all[fresh[i]])
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// start starts a replica and, if this store is to lead its region first, an election.
func (x *keeper) start(replica *region.Replica, o *ownedRegion) error {
	b := multiraft.Beginning{NonVoter: o.record.Begins == keys.JoinsNonVoting}
	switch {
	case x.raft.Ran(o.id, o.record.ID):
	case o.record.Begins != keys.Founding:
		b.Joins = true // and not Fresh: the region may have been here before, and promises belong to the store
	default:
		x.endpoint.Fresh(o.id)
		b.Members = o.record.Peers
	}
	born := x.cluster.runs(o.id)
	if born {
		x.endpoint.Fresh(o.id)
	}
	if err := replica.Start(b); err != nil {
		return err
	}
	var voters []topology.StoreID
	for _, p := range o.record.Peers {
		if p.Role == topology.Voter && !x.cluster.ended(p) {
			voters = append(voters, p.Store)
		}
	}
	if !born {
		voters = x.leadership.present(voters)
	}
	if len(voters) == 0 || voters[0] != x.o.ID || !x.o.Booting && !born {
		return nil
	}
	x.wg.Go(func() { x.leadership.campaign(o.id, voters, born) })
	return nil
}

// boundsChanged is called by a replica whose bounds have changed. It does not block.
func (x *keeper) boundsChanged(topology.RegionID) {
	x.cluster.publish()
	x.tending.ring()
	x.reporting.ring()
}

// leadingChanged is called by replicas: see region.Options.Changed.
func (x *keeper) leadingChanged() {
	x.cluster.publish()
	x.reporting.ring()
}

// run brings the replicas that run in line with the records, whenever bounds have changed and once per heartbeat.
func (x *keeper) run() {
	tick := time.NewTicker(Heartbeat)
	defer tick.Stop()
	for {
		if x.failed() == nil {
			if err := x.tend(); err != nil && x.failed() == nil && x.ctx.Err() == nil {
				x.o.FS.Fence(err)
			}
		}
		select {
		case <-x.ctx.Done():
			return
		case <-tick.C:
		case <-x.tending:
		}
	}
}

// tend does all that run does, once.
func (x *keeper) tend() error {
	if err := x.slots.join(); err != nil {
		return err
	}
	all, err := x.records.owned()
	if err != nil {
		return err
	}
	if err := x.startAll(all); err != nil {
		return err
	}
	if err := x.slots.retireLeft(); err != nil {
		return err
	}
	if err := x.slots.leave(); err != nil {
		return err
	}
	for id, r := range x.replicas.all() {
		if r.Bounds().Phase == keys.Absorbed {
			x.remove(id, r)
		}
	}
	if err := x.slots.reclaim(); err != nil {
		return err
	}
	x.changes.settleAll()
	x.moves.settleAll()
	x.moves.renew()
	return nil
}

// remove ends a replica whose region was absorbed, or which has left it. Its log goes in the background: Raft may take
// long to let go of a replica that sends a snapshot, and children of splits must not wait for that to start.
func (x *keeper) remove(id topology.RegionID, r *region.Replica) {
	x.replicas.change(func(next Replicas) bool {
		delete(next, id)
		return true
	})
	x.cluster.publish()
	x.wg.Go(func() {
		if err := x.end(id, r); err != nil && x.failed() == nil {
			x.o.FS.Fence(fmt.Errorf("region %d: remove its replica: %w", id, err))
		}
	})
}

// end stops a replica and removes its log. If the store closes meanwhile, the next start removes the log.
func (x *keeper) end(id topology.RegionID, r *region.Replica) error {
	r.Stop()
	_, replica := r.Region()
	if err := x.raft.Stop(id, replica); err != nil {
		return err
	}
	r.Join()
	r.Counters().Orphans.Set(0, 0) // the region that has its slots now counts them
	for {
		removed, err := x.raft.RemoveLog(id, replica)
		if err != nil {
			return err
		}
		if removed {
			break
		}
		if !pause(x.ctx, removePause) {
			return nil
		}
	}
	x.endpoint.Forget(id)
	x.counters.end(id)
	x.slots.ended(id)
	return nil
}

// removePause is how long end waits for Raft before it asks again.
const removePause = 5 * time.Millisecond

// removeLogs removes the logs of replicas that have no record, which a crash has left behind, and what received
// snapshots have left of them.
func (x *keeper) removeLogs(all []ownedRegion) error {
	return x.raft.RemoveOthers(func(region topology.RegionID, replica topology.ReplicaID) bool {
		return region == topology.MetaRegion || slices.ContainsFunc(all, func(o ownedRegion) bool {
			return o.id == region && o.record.ID == replica
		})
	})
}

// fenced runs when the store's file system has failed or been killed, before the failing call returns. It lets nothing
// leave the store any more, and answers everybody who waits for the store.
func (x *keeper) fenced(cause error) {
	x.endpoint.Isolate()
	for _, r := range x.replicas.all() {
		r.Release()
	}
	if x.o.OnFail != nil {
		x.o.OnFail(fmt.Errorf("store %d: %w", x.o.ID, cause))
	}
}
