package store

import (
	"maps"
	"slices"
	"sync"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/engine"
	"neokv.dev/neokv/internal/multiraft"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/internal/transport"
)

// Counters has a store's counters since it was opened. Counters never fall, whichever replicas come and go.
type Counters struct {
	Regions   []*region.Counters // of every region that has had a replica here, in no order; they are live, not copies
	Engine    engine.Metrics
	Log       multiraft.Stats
	Disk      disk.Stats
	Transport transport.Stats
	Bus       *BusStats // live
	Leaseless int       // regions, as of now: see Replicas.Leaseless
}

// Counters reads the counters. It must not be called after Close has begun. engine.Metrics says what it costs.
func (s *Store) Counters() Counters {
	d, before := s.o.FS.Stats(), s.counters.disk
	return Counters{
		Regions: s.counters.list(), Engine: s.engine.Metrics(), Log: s.raft.LogStats(), Transport: s.endpoint.Stats(),
		Disk: disk.Stats{
			Syncs: d.Syncs - before.Syncs, SyncNanos: d.SyncNanos - before.SyncNanos,
			BytesWritten: d.BytesWritten - before.BytesWritten, AloneSyncs: d.AloneSyncs - before.AloneSyncs,
			Retries: d.Retries - before.Retries,
		},
		Bus: &s.bus.stats, Leaseless: len(s.replicas.all().Leaseless()),
	}
}

// Commands returns how many writing commands the store has proposed.
func (s *Store) Commands() (n int64) {
	for _, c := range s.counters.list() {
		n += int64(c.Commands.Load())
	}
	return n
}

// regionCounters has what the store keeps for Counters.
type regionCounters struct {
	disk disk.Stats // as of when the store was opened, since its file system may be older

	mu      sync.Mutex
	regions map[topology.RegionID]*region.Counters
	ended   region.Counters // of regions that others have absorbed
}

// of returns the counters of a region, the same for each replica that it has here.
func (c *regionCounters) of(id topology.RegionID) *region.Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := c.regions[id]
	if r == nil {
		r = new(region.Counters)
		c.regions[id] = r
	}
	return r
}

// end adds up the counters of a region whose replica here has ended for good.
func (c *regionCounters) end(id topology.RegionID) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r := c.regions[id]; r != nil {
		c.ended.Take(r)
		delete(c.regions, id)
	}
}

func (c *regionCounters) list() []*region.Counters {
	c.mu.Lock()
	defer c.mu.Unlock()
	return append(slices.Collect(maps.Values(c.regions)), &c.ended)
}
