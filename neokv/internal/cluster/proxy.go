package cluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"

	"neokv.dev/neokv/internal/memconn"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/internal/topology"
)

// startProxy serves the clients of the proxy port: those that Dial through memory, those of ln
// unless it is nil, and those of this process.
func (v *servers) startProxy(ln net.Listener) {
	proxy := server.New(server.Options{
		Node: &proxyPort{v}, Settings: v.settings, ClientMemory: v.shared.memory, Sockets: &v.shared.sockets,
		Scans: &v.shared.scans, Hub: &v.shared.hub, Exposed: v.exposed(), Version: v.config.Version,
		OnUnknown: v.notices.onUnknown, OnKept: v.notices.onKept, OnUndecided: v.notices.onUndecided("proxy port"),
		Seed: v.config.Seed, Mistakes: v.hooks.Mistakes.Server,
	})
	v.proxy.Store(proxy)
	v.proxyPipe = memconn.Listen(memoryAddr(v.proxyAddr))
	v.serve(proxy, v.proxyPipe, ln)
	v.inside = memconn.Listen(memoryAddr("inside"))
	v.wg.Go(func() { server.Accept(v.inside, nil, proxy.TakeTrusted) })
}

// replicated asks the store that leads a region how many others have applied an entry. It is 0 if none leads.
func (v *servers) replicated(ctx context.Context, r topology.RegionID, index uint64) int {
	if n := v.places.all().LeaderOf(r); n != nil {
		if s := n.store.Load(); s != nil {
			return s.Replicated(ctx, r, index)
		}
	}
	return 0
}

// compare asks the stores in turn for the checksums of a region's replicas, until one of them finds the leader. The
// error is region.ErrNone only if no store that runs knows the region.
func (v *servers) compare(ctx context.Context, r topology.RegionID) (region.Comparison, error) {
	failure := errNoStore
	for s := range v.places.all().Running() {
		got, err := s.Compare(ctx, r)
		if err == nil {
			return got, nil
		}
		if failure == errNoStore || !errors.Is(err, region.ErrNone) {
			failure = err
		}
	}
	return region.Comparison{}, failure
}

// setActiveExpire switches the background deletion of expired keys on or off, on every store that runs.
func (v *servers) setActiveExpire(on bool) {
	for _, n := range v.places.all() {
		if s := n.store.Load(); s != nil {
			s.SetActiveExpire(on)
		}
	}
}

// settle settles all stores that run: first every replica applies what its leader has, then each store writes its
// memtables and ends its compactions.
func (v *servers) settle(ctx context.Context) error {
	running := slices.Collect(v.places.all().Running())
	for _, step := range []func(*store.Store, context.Context) error{
		(*store.Store).AwaitReplicas, func(s *store.Store, ctx context.Context) error { return s.Flush(ctx, true) },
	} {
		var wg sync.WaitGroup
		failed := make([]error, len(running))
		for i, s := range running {
			wg.Go(func() {
				if err := step(s, ctx); err != nil {
					failed[i] = fmt.Errorf("store %d: %w", s.ID(), err)
				}
			})
		}
		wg.Wait()
		if err := errors.Join(failed...); err != nil {
			return err
		}
	}
	return nil
}
