package neokv

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

// startProxy serves the clients of the proxy port: those that Dial through memory, and those of ln unless it is nil.
func (c *Cluster) startProxy(ln net.Listener) {
	proxy := server.New(server.Options{
		Node: &proxyPort{c}, Settings: c.settings, ClientMemory: c.shared.memory, Sockets: &c.shared.sockets, Scans: &c.shared.scans, Hub: &c.shared.hub,
		Exposed: c.exposed(), Version: Version, OnUnknown: c.notices.onUnknown, OnKept: c.notices.onKept, Seed: c.config.Seed,
		OnUndecided: c.notices.onUndecided("proxy port"), Mistakes: c.hooks.Mistakes.Server,
	})
	c.proxy.Store(proxy)
	c.proxyPipe = memconn.Listen(memoryAddr(c.proxyAddr))
	c.serve(proxy, c.proxyPipe, ln)
}

// replicated asks the store that leads a region how many others have applied an entry. It is 0 if none leads.
func (c *Cluster) replicated(ctx context.Context, r topology.RegionID, index uint64) int {
	if n := c.nodes.leaderOf(r); n != nil {
		if s := n.store.Load(); s != nil {
			return s.Replicated(ctx, r, index)
		}
	}
	return 0
}

// compare asks the stores in turn for the checksums of a region's replicas, until one of them finds the leader. The
// error is region.ErrNone only if no store that runs knows the region.
func (c *Cluster) compare(ctx context.Context, r topology.RegionID) (region.Comparison, error) {
	failure := errNoStore
	for s := range c.nodes.running() {
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
func (c *Cluster) setActiveExpire(on bool) {
	for _, n := range c.nodes {
		if s := n.store.Load(); s != nil {
			s.SetActiveExpire(on)
		}
	}
}

// settle settles all stores that run: first every replica applies what its leader has, then each store writes its
// memtables and ends its compactions.
func (c *Cluster) settle(ctx context.Context) error {
	running := slices.Collect(c.nodes.running())
	for _, step := range []func(*store.Store, context.Context) error{
		(*store.Store).AwaitReplicas, (*store.Store).Settle,
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
