package store

import (
	"context"
	"time"

	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/topology"
)

// heartbeatAnswer is the answer to a heartbeat.
type heartbeatAnswer struct {
	Leader topology.StoreID  `json:"leader"` // the store that leads meta, as far as the asked store knows
	View   *meta.ClusterView `json:"view,omitempty"`
}

// heartbeat is the goroutine that reports to meta's leader or, on the store that leads meta, tells the others what it
// has heard and plans. It has no state of its own. answer may run concurrently.
type heartbeat struct {
	*core
	replicas *replicaSet
	space    *space
	cluster  *clusterMap
	meta     *metaMember
	loads    *loads
	plans    *plans
	windows  *windows
	wipes    *wipes
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
		Free: x.space.free.Load(), Leads: x.replicas.all().Leads()}
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
	x.join(group, x.o.ID)
	x.plans.plan(group, time.Now())
	x.windows.close(group)
	x.wipes.tend(group)
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
		group := x.meta.group.Load()
		told, report, news := group.Hear(*b, time.Now())
		x.join(group, b.Store)
		if news || report != nil {
			x.reporting.ring()
		}
		if a.View = &told; !x.meta.leading() {
			a = heartbeatAnswer{Leader: x.meta.target()}
		}
	}
	return a
}

// join has a store that is not on the map put there. It runs on the store that leads meta. The store's next heartbeat
// asks again if that fails.
func (x *heartbeat) join(group *meta.Group, id topology.StoreID) {
	m := group.Map()
	if m.Version == 0 || m.Store(id) != nil || !x.meta.leading() {
		return
	}
	x.wg.Go(func() { group.Join(x.ctx, id) })
}
