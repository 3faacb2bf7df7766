package store

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"neokv.dev/neokv/internal/meta"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/topology"
)

// metaMember is the store as a member of the region that keeps the cluster map, if it is one, and what the store knows
// of where that region's leader is. All methods may run concurrently.
type metaMember struct {
	*core
	group atomic.Pointer[meta.Group] // nil if the store has no replica of meta
	known atomic.Uint64              // the store that leads meta as this store's replica of meta knows, 0 if it knows none

	mu   sync.Mutex
	last topology.StoreID // the store that led meta last
}

// start starts the store's replica of meta if it is to have one.
func (x *metaMember) start() error {
	if !meta.IsMember(x.o.Founders, x.o.ID) {
		return nil
	}
	wiped := x.o.Wiped.Nth > 0
	b := multiraft.Beginning{NonVoter: wiped}
	switch {
	case x.raft.Ran(topology.MetaRegion, x.self()):
	case wiped:
		b.Joins = true
	default:
		x.endpoint.Fresh(topology.MetaRegion)
		b.Members = meta.Members(x.o.Founders)
	}
	group, err := meta.Start(meta.Options{
		Store: x.o.ID, Wipes: x.o.Wiped.Nth, Engine: x.engine, Host: x.raft, Knobs: x.o.Settings.Raft,
		Failed: x.o.FS.Failed, Fence: x.o.FS.Fence, Initial: x.o.Initial, Members: len(meta.Members(x.o.Founders)),
		Interval: Heartbeat, Changed: x.reporting.ring,
	}, b)
	if err != nil {
		return err
	}
	x.group.Store(group)
	x.reporting.ring()
	return nil
}

// leader returns the store that leads meta as far as this store knows, 0 if it knows none. It is a hint: meta's log
// decides.
func (x *metaMember) leader() topology.StoreID {
	if x.group.Load() == nil {
		return 0
	}
	return topology.StoreID(x.known.Load())
}

// leading reports whether this store leads meta: Raft says so, and others follow.
func (x *metaMember) leading() bool {
	return x.leader() == x.o.ID && x.group.Load().Followed(time.Now())
}

// next returns the store to ask after id, of those that have a replica of meta.
func (x *metaMember) next(id topology.StoreID) topology.StoreID {
	return 1 + id%topology.StoreID(min(x.o.Founders, meta.MaxReplicas))
}

// follow notes the store to which reports go from now on.
func (x *metaMember) follow(store topology.StoreID) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last = store
}

// target returns the store that leads meta, as far as this one knows. It is this one only if others follow it.
func (x *metaMember) target() topology.StoreID {
	if l := x.leader(); l != 0 && (l != x.o.ID || x.leading()) {
		return l
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last == x.o.ID {
		x.last = x.next(x.last)
	}
	return x.last
}

// allocate gets a region id, and the first of n consecutive replica ids, from meta's leader.
func (x *metaMember) allocate(ctx context.Context, n int) (topology.RegionID, topology.ReplicaID, error) {
	ctx, cancel := context.WithTimeout(ctx, stepTime)
	defer cancel()
	var a meta.Allocated
	var err error
	if !retry(ctx, 10*changePause, func() bool {
		a = meta.Allocated{}
		if at := x.target(); at == x.o.ID {
			a, err = x.allocateHere(ctx, n)
		} else {
			err = x.ask(ctx, at, message{Allocate: n}, &a)
		}
		return err == nil && a.Region > 0 && a.Replica > 0
	}) {
		err = errors.Join(err, ctx.Err())
		return 0, 0, notYet{fmt.Errorf("no ids for a new region from the leader of meta: %w", err)}
	}
	return a.Region, a.Replica, nil
}

// allocateHere is allocate at meta's leader.
func (x *metaMember) allocateHere(ctx context.Context, n int) (a meta.Allocated, err error) {
	group := x.group.Load()
	if group == nil || !x.leading() {
		return a, errNotLeading
	}
	return group.Allocate(ctx, 1, n)
}

// change is AtMeta.ChangeMap.
func (x *metaMember) change(ctx context.Context, c meta.MapChange) (id uint64, err error) {
	ctx, end, ok := x.enter(ctx)
	if !ok {
		return 0, errClosing
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, 2*stepTime)
	defer cancel()
	var got meta.Changed
	if !retry(ctx, 10*changePause, func() bool {
		got = meta.Changed{}
		if at := x.target(); at == x.o.ID {
			got, err = x.changeHere(ctx, c)
		} else {
			err = x.ask(ctx, at, message{Map: &c}, &got)
		}
		return err == nil && (got.ID > 0 || got.Refused != "")
	}) {
		return 0, fmt.Errorf("no answer of the leader of meta: %w", errors.Join(err, ctx.Err()))
	}
	if got.Refused != "" {
		return 0, errors.New(got.Refused)
	}
	return got.ID, nil
}

// changeHere is change at meta's leader.
func (x *metaMember) changeHere(ctx context.Context, c meta.MapChange) (got meta.Changed, err error) {
	group := x.group.Load()
	if group == nil || !x.leading() {
		return got, errNotLeading
	}
	if s := c.Store; s != nil && s.State != meta.Up && meta.IsMember(x.o.Founders, s.ID) {
		return meta.Changed{Refused: fmt.Sprintf("store %d has a replica of the cluster map, which does not move yet",
			s.ID)}, nil
	}
	return group.Change(ctx, c)
}
