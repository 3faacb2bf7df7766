package cluster

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"

	"neokv.dev/neokv/counters"
	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
)

// This file makes INFO's section neokv: it has a function for the value of each line of counters.All.

// info makes the section.
type info struct {
	*core
	journal *journal
	places  *placeSet
	regions *regions
}

// impaired says what is worse than it should be, though every store runs and every region is served.
func (x *info) impaired() (all []string) {
	if j := x.journal.now.Load(); j != nil {
		if err := j.Broken(); err != nil {
			all = append(all, aloneText(err))
		}
	}
	for _, n := range x.places.all() {
		if s := n.store.Load(); s != nil && s.Failed() == nil {
			if ids := s.Replicas().Leaseless(); len(ids) > 0 {
				all = append(all, fmt.Sprintf("store %d has no lease in %d of the regions that it leads, the first is "+
					"region %d: each read takes a round to the other stores until there is another leader",
					n.id, len(ids), ids[0]))
			}
		}
	}
	return all
}

// asked is the port on which a client asks for INFO: a store's port, or the proxy port, where node and store are nil.
type asked struct {
	i     *info
	node  *Place
	store *store.Store
}

// factOf has a function for the value of each fact. A nil value leaves the line out.
var factOf = map[string]func(asked) any{
	"neokv_version": func(a asked) any { return a.i.config.Version },
	"store":         func(a asked) any { return a.ofStore(func() any { return a.node.id }) },
	"store_state": func(a asked) any {
		return a.ofStore(func() any { return state(a.store.Failed(), false) })
	},
	"region_time_ahead_ms": func(a asked) any {
		return a.ofStore(func() any { return a.store.Replicas().TimeAhead().Milliseconds() })
	},
	storeNState: func(asked) any { return nil }, // section prints a line per store
	"stores":    func(a asked) any { return len(a.i.places.all()) },
	"replicas":  func(a asked) any { return a.i.settings.Cluster.Replicas },
	"regions":   func(a asked) any { return len(a.i.regions.all()) },
	"in_memory": func(a asked) any {
		if a.i.config.InMemory {
			return 1
		}
		return 0
	},
	"wal_sync":       func(a asked) any { return a.i.settings.Engine.WALSync },
	"raft_transport": func(a asked) any { return a.i.settings.Raft.Transport },
	"journal":        func(a asked) any { return a.i.journal.state() },
	"lease_ms":       func(a asked) any { return a.i.settings.Raft.Lease().Milliseconds() },
	"row_cache":      func(a asked) any { return int64(a.i.settings.Engine.RowCache) },
}

// storeNState is the name of the line that INFO on the proxy port has for each store, with the store's number in place
// of N.
const storeNState = "store_N_state"

func (a asked) ofStore(value func() any) any {
	if a.store == nil {
		return nil
	}
	return value()
}

func state(failure error, stopped bool) string {
	switch {
	case failure != nil:
		return "failed: " + oneLine(failure)
	case stopped:
		return "stopped"
	}
	return "ok"
}

// oneLine returns the text of an error without line ends.
func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

// storeValue reads each counter and gauge of one store.
var storeValue = map[string]func(*store.Counters) int64{
	"sync_calls": func(c *store.Counters) int64 { return c.Disk.Syncs },
	"sync_us":    func(c *store.Counters) int64 { return c.Disk.SyncNanos / 1000 },

	"alone_syncs":  func(c *store.Counters) int64 { return c.Disk.AloneSyncs },
	"file_retries": func(c *store.Counters) int64 { return c.Disk.Retries },

	"raft_proposals":      ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.Proposals }),
	"raft_entries":        ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.Entries }),
	"raft_entry_bytes":    ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.EntryBytes }),
	"raft_commands":       ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.Commands }),
	"raft_read_sets":      ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.ReadSets }),
	"raft_read_set_reads": ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.ReadSetReads }),
	"read_sets_applied":   ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.ReadSetsUsed }),

	"wal_bytes":            func(c *store.Counters) int64 { return c.Engine.WALBytesWritten },
	"memtable_flushes":     func(c *store.Counters) int64 { return c.Engine.Flushes },
	"memtable_flush_bytes": func(c *store.Counters) int64 { return c.Engine.FlushBytes },
	"compactions":          func(c *store.Counters) int64 { return c.Engine.Compactions },
	"compaction_bytes":     func(c *store.Counters) int64 { return c.Engine.CompactionBytes },
	"write_stalls":         func(c *store.Counters) int64 { return c.Engine.WriteStalls },
	"write_stall_us":       func(c *store.Counters) int64 { return c.Engine.WriteStallTime.Microseconds() },

	"bloom_probes":       func(c *store.Counters) int64 { return c.Engine.FilterHits + c.Engine.FilterMisses },
	"bloom_hits":         func(c *store.Counters) int64 { return c.Engine.FilterHits },
	"row_cache_hits":     func(c *store.Counters) int64 { return c.Engine.RowCacheHits },
	"row_cache_misses":   func(c *store.Counters) int64 { return c.Engine.RowCacheMisses },
	"row_cache_bytes":    func(c *store.Counters) int64 { return c.Engine.RowCacheBytes },
	"block_cache_hits":   func(c *store.Counters) int64 { return c.Engine.BlockCacheHits },
	"block_cache_misses": func(c *store.Counters) int64 { return c.Engine.BlockCacheMisses },

	"read_index_rounds": ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.ReadIndexRounds }),
	"lease_reads":       ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.LeaseReads }),
	"index_reads":       ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.IndexReads }),
	"follower_reads":    ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.FollowerReads }),

	"follower_reads_passed": ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.PassedReads }),
	"regions_without_lease": func(c *store.Counters) int64 { return int64(c.Leaseless) },

	"keyspace_hits":   ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.KeysFound }),
	"keyspace_misses": ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.KeysMissed }),

	"elections":      func(c *store.Counters) int64 { return c.Transport.Campaigns },
	"leader_changes": ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.LeaderChanges }),

	"splits": ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.Splits }),
	"merges": ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.Merges }),

	"snapshots_sent":        ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.SnapshotsSent }),
	"snapshots_received":    ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.SnapshotsReceived }),
	"snapshot_bytes":        ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.SnapshotBytes }),
	"log_entries_truncated": func(c *store.Counters) int64 { return c.Log.Truncated },

	"lane_messages_sent": func(c *store.Counters) int64 { return c.Bus.Sent.Load() },
	"lane_messages_lost": func(c *store.Counters) int64 { return c.Bus.Lost.Load() },
	"lane_messages_late": func(c *store.Counters) int64 { return c.Bus.Late.Load() },

	"expired_keys":            ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.ExpiredKeys }),
	"orphans_waiting":         orphans(func(o *region.OrphanCounters) *atomic.Int64 { return &o.Collections }),
	"orphan_elements_waiting": orphans(func(o *region.OrphanCounters) *atomic.Int64 { return &o.Elements }),
	"reclaimed_elements":      ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.ReclaimedElements }),
}

// ofRegions sums one counter over the regions of a store.
func ofRegions(of func(*region.Counters) *atomic.Uint64) func(*store.Counters) int64 {
	return func(c *store.Counters) int64 {
		sum := uint64(0)
		for _, r := range c.Regions {
			sum += of(r).Load()
		}
		return int64(sum)
	}
}

// orphans sums a count of orphans over the regions of a store.
func orphans(of func(*region.OrphanCounters) *atomic.Int64) func(*store.Counters) int64 {
	return func(c *store.Counters) int64 {
		sum := int64(0)
		for _, r := range c.Regions {
			sum += max(0, of(&r.Orphans).Load()) // a count may be below 0 for a moment: see OrphanCounters
		}
		return sum
	}
}

// processValue reads each counter and gauge of the process, which may run more than this cluster.
var processValue = map[string]func() int64{
	"process_cpu_us": cpuMicros,
	"process_allocs": func() int64 {
		return runtimeMetric("/gc/heap/allocs:objects") + runtimeMetric("/gc/heap/tiny/allocs:objects")
	},
	"process_alloc_bytes": func() int64 { return runtimeMetric("/gc/heap/allocs:bytes") },
	"process_procs":       func() int64 { return int64(runtime.GOMAXPROCS(0)) },
	"process_goroutines":  func() int64 { return int64(runtime.NumGoroutine()) },
	"process_rss_bytes":   server.ResidentBytes,
}

func runtimeMetric(name string) int64 {
	sample := []metrics.Sample{{Name: name}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
}

func cpuMicros() int64 {
	user, sys := server.CPUTime()
	return (user + sys).Microseconds()
}

// ofStore returns the section as a store's port shows it.
func (x *info) ofStore(n *Place, s *store.Store) []server.Section {
	now := s.Counters()
	return asked{x, n, s}.section(values(&now))
}

// all returns the section as the proxy port shows it. The counts of a store that has stopped stay in the sums.
func (x *info) all() []server.Section {
	sum := make([]int64, len(counters.All))
	for _, n := range x.places.all() {
		for i, v := range n.counted() {
			sum[i] += v
		}
	}
	return asked{i: x}.section(sum)
}

// values reads the counters and gauges of a store, in the order of counters.All. The places of all other lines hold 0.
func values(c *store.Counters) []int64 {
	out := make([]int64, len(counters.All))
	for i, l := range counters.All {
		if value, ok := storeValue[l.Name]; ok {
			out[i] = value(c)
		}
	}
	return out
}

// section prints the lines. counted has the values of the stores' counters and gauges, in the order of counters.All.
func (a asked) section(counted []int64) []server.Section {
	var lines []string
	var stats []server.Count
	line := func(name string, value any) { lines = append(lines, fmt.Sprintf("%s:%v", name, value)) }
	for i, l := range counters.All {
		switch {
		case l.Name == storeNState && a.store == nil:
			for _, n := range a.i.places.all() {
				n.mu.Lock()
				s := state(n.failure, n.down)
				n.mu.Unlock()
				line(strings.Replace(l.Name, "N", fmt.Sprint(n.id), 1), s)
			}
		case l.Kind == counters.Fact:
			if v := factOf[l.Name](a); v != nil {
				line(l.Name, v)
			}
		case l.Scope == counters.Process:
			line(l.Name, processValue[l.Name]())
		default:
			line(l.Name, counted[i])
		}
		switch l.Name {
		case "expired_keys", "keyspace_hits", "keyspace_misses": // Redis shows them in its section Stats
			stats = append(stats, server.Count{Name: l.Name, Value: counted[i]})
		}
	}
	return []server.Section{{Name: "Stats", Counts: stats}, {Name: "Neokv", Lines: lines}}
}

// counted returns what the stores of this place have counted so far: the one that runs and those that ran before it.
func (n *Place) counted() []int64 {
	n.countMu.Lock()
	defer n.countMu.Unlock()
	return n.count()
}

// count is counted for a caller that holds countMu.
func (n *Place) count() []int64 {
	sum := make([]int64, len(counters.All))
	copy(sum, n.past)
	if s := n.store.Load(); s != nil {
		now := s.Counters()
		for i, v := range values(&now) {
			sum[i] += v
		}
	}
	return sum
}

// retire takes the store out of its place, keeps what the store has counted, and returns the store, or nil if there is
// none. Nobody reads the store's counters from then on, so the caller may close it.
func (n *Place) retire() *store.Store {
	n.countMu.Lock()
	defer n.countMu.Unlock()
	n.past = n.count()
	for i, l := range counters.All {
		if l.Kind == counters.Gauge {
			n.past[i] = 0
		}
	}
	return n.store.Swap(nil)
}
