package cluster

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/lua"
	"neokv.dev/neokv/internal/memconn"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/route"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// This file has the two kinds of server.Node: a store, for the server at its port, and the whole cluster, for the
// server at the proxy port.

// servers are the servers of all ports but those of the stores that run, which belong to the places.
type servers struct {
	*core
	notices *notices
	shared  *shared
	places  *placeSet
	regions *regions
	leaders *leaders
	backups *backups
	table   *proxyTable
	info    *info

	proxy     atomic.Pointer[server.Server] // nil until the stores have opened
	proxyAddr string
	proxyPipe *memconn.Listener
	inside    *memconn.Listener // where calls of this process arrive; nil until the proxy serves
	scripts   lua.Scripts       // that the proxy port knows
}

var (
	_ server.Node = (*storePort)(nil)
	_ server.Node = (*proxyPort)(nil)
)

// storePort is the server.Node at a store's port.
type storePort struct {
	*store.Store
	n *Place
	v *servers
}

// newServer returns the server of a store that has opened.
func (v *servers) newServer(n *Place, s *store.Store) *server.Server {
	return server.New(server.Options{
		Node: &storePort{s, n, v}, Self: n.id, Settings: v.settings, ClientMemory: v.shared.memory,
		Sockets: &v.shared.sockets, Scans: &v.shared.scans, Hub: &v.shared.hub, Exposed: v.exposed(),
		Announce: v.announce, Version: v.config.Version, OnUnknown: v.notices.onUnknown, OnKept: v.notices.onKept,
		OnUndecided: v.notices.onUndecided(fmt.Sprint("store ", n.id)), Seed: v.config.Seed + uint64(n.id),
		Mistakes: v.hooks.Mistakes.Server,
	})
}

// Replica also returns replicas of other stores: where redis.cluster_enabled is false the server passes commands on.
func (p *storePort) Replica(id topology.StoreID, r topology.RegionID) *region.Replica {
	if id == p.n.id {
		return p.Store.Replica(r)
	}
	return p.v.places.all().Replica(id, r)
}

func (p *storePort) Info() []server.Section { return p.v.info.ofStore(p.n, p.Store) }

func (p *storePort) Save() (func(context.Context) error, error) { return p.v.backups.save() }
func (p *storePort) SaveState() server.SaveState                { return p.v.backups.state() }

// LoadScript loads a script at this store.
func (p *storePort) LoadScript(x *lua.Script, stay bool) { p.Scripts().Add(x, stay) }

// FlushScripts forgets the scripts of this store, not those of others.
func (p *storePort) FlushScripts() { p.Scripts().Flush() }

func (p *storePort) LogScript(level int, text string) { p.n.logScript(level, text) }

// Settle settles this store alone.
func (p *storePort) Settle(ctx context.Context) error {
	return errors.Join(p.AwaitReplicas(ctx), p.Store.Flush(ctx, true))
}

// TakeOver moves the leaders of the regions that the store follows to it, as the fault transfer does, so they stay.
func (p *storePort) TakeOver(ctx context.Context) error {
	var moves []fault.Fault
	led := 0
	for _, r := range p.v.regions.all() {
		if _, here := r.PeerOn(p.n.id); !here {
			continue
		}
		if p.v.places.all().LeaderOf(r.ID) == p.n {
			led++
		}
		moves = append(moves, fault.Fault{Verb: fault.Transfer, Region: int(r.ID), To: int(p.n.id)})
	}
	if led == len(moves) {
		return fmt.Errorf("store %d follows no region: it leads all %d of which it has a replica", p.n.id, led)
	}
	errs := make([]error, len(moves))
	var wg sync.WaitGroup
	for i, move := range moves { // those that it leads, too: they are to stay
		wg.Go(func() {
			if _, err := p.v.leaders.transfer(ctx, move); err != nil {
				errs[i] = fmt.Errorf("region %d: %w", move.Region, err)
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

// Publish sends a message to the other stores, over the network, and to the ports that belong to no store.
func (p *storePort) Publish(from *server.Server, shard bool, channel, payload []byte) {
	p.Store.Publish(shard, channel, payload)
	p.v.passOn(from, false, shard, channel, payload)
}

// passOn hands a message to the servers of this process but the one that it comes from: to those of stores if stores is
// set, and to those of no store, the proxy's and the stand-ins'.
func (v *servers) passOn(from *server.Server, stores, shard bool, channel, payload []byte) {
	to := []*server.Server{v.proxy.Load()}
	for _, n := range v.places.all() {
		n.mu.Lock()
		if n.standIn != nil {
			to = append(to, n.standIn)
		}
		if stores && n.server != nil {
			to = append(to, n.server)
		}
		n.mu.Unlock()
	}
	for _, s := range to {
		if s != nil && s != from {
			s.Deliver(shard, channel, payload)
		}
	}
}

// proxyPort is the server.Node at the proxy port. It never fails.
type proxyPort struct{ v *servers }

func (p *proxyPort) Table() *route.Table { return p.v.table.get() }

// Changed returns nil, since Table makes the proxy's table of the stores' tables when it is called.
func (p *proxyPort) Changed() <-chan struct{} { return nil }

func (p *proxyPort) Replica(id topology.StoreID, r topology.RegionID) *region.Replica {
	return p.v.places.all().Replica(id, r)
}

// Outdated is not asked: the proxy port redirects nobody, and a stand-in is no store to which another one sends
// clients.
func (p *proxyPort) Outdated(topology.Slot, *route.LedRegion) bool { return false }

func (p *proxyPort) Failed() error           { return nil }
func (p *proxyPort) Info() []server.Section  { return p.v.info.all() }
func (p *proxyPort) SetActiveExpire(on bool) { p.v.setActiveExpire(on) }

// TakeOver is not asked of the proxy port, which has no CLUSTER. A stand-in's store is down.
func (p *proxyPort) TakeOver(context.Context) error             { return errors.New("the store is down") }
func (p *proxyPort) Save() (func(context.Context) error, error) { return p.v.backups.save() }
func (p *proxyPort) SaveState() server.SaveState                { return p.v.backups.state() }

func (p *proxyPort) Settle(ctx context.Context) error { return p.v.settle(ctx) }

func (p *proxyPort) Replicated(ctx context.Context, r topology.RegionID, index uint64) int {
	return p.v.replicated(ctx, r, index)
}

func (p *proxyPort) Scripts() *lua.Scripts { return &p.v.scripts }

// LoadScript loads a script at the proxy port and at all stores that run.
func (p *proxyPort) LoadScript(x *lua.Script, stay bool) {
	p.v.scripts.Add(x, stay)
	for s := range p.v.places.all().Running() {
		s.Scripts().Add(x, stay)
	}
}

func (p *proxyPort) LogScript(level int, text string) {
	p.v.notices.logScript("proxy port", level, text)
}

// FlushScripts forgets the scripts of the proxy port and of all stores that run.
func (p *proxyPort) FlushScripts() {
	p.v.scripts.Flush()
	for s := range p.v.places.all().Running() {
		s.Scripts().Flush()
	}
}

// FindScript looks for a script at the stores that run.
func (p *proxyPort) FindScript(sha string) *lua.Script {
	for s := range p.v.places.all().Running() {
		if x := s.Scripts().Get(sha); x != nil {
			p.v.scripts.Add(x, false)
			return x
		}
	}
	return nil
}

// Publish sends a message to the clients of all other ports. The proxy port and stand-ins reach the stores without the
// network, as they do for commands.
func (p *proxyPort) Publish(from *server.Server, shard bool, channel, payload []byte) {
	p.v.passOn(from, true, shard, channel, payload)
}

func (p *proxyPort) Compare(ctx context.Context, r topology.RegionID) (region.Comparison, error) {
	return p.v.compare(ctx, r)
}
