package neokv

import (
	"fmt"
	"runtime"
	"runtime/metrics"
	"strings"
	"sync/atomic"

	"neokv.dev/neokv/internal/region"
	"neokv.dev/neokv/internal/server"
	"neokv.dev/neokv/internal/store"
)

// This file is INFO's section neokv. Its lines stand in three tables, which docs/counters.md is made of too.

// InfoLine describes a line of INFO's section neokv, which has the form name:value.
type InfoLine struct {
	Name string
	Kind InfoKind
	Help string
}

// InfoKind says what the value of a line is.
type InfoKind string

const (
	InfoFact           InfoKind = "fact"            // no count
	InfoCounter        InfoKind = "counter"         // a whole number that never falls while the store runs; on the proxy port the sum
	InfoGauge          InfoKind = "gauge"           // a whole number as of now; on the proxy port the sum
	InfoProcessCounter InfoKind = "process counter" // as a counter, of the whole process and the same on every port
	InfoProcessGauge   InfoKind = "process gauge"
)

// InfoLines lists the lines of INFO's section neokv in their order.
func InfoLines() (out []InfoLine) {
	for _, f := range facts {
		out = append(out, InfoLine{f.name, InfoFact, f.help})
	}
	for _, c := range counters {
		out = append(out, InfoLine{c.name, c.kind, c.help})
	}
	for _, p := range processLines {
		out = append(out, InfoLine{p.name, p.kind, p.help})
	}
	return out
}

// asked is where INFO is asked: a store's port, or the proxy port, where node and store are nil.
type asked struct {
	c     *Cluster
	node  *node
	store *store.Store
}

// facts are lines that are not counted. A line whose value is nil is left out.
var facts = []struct {
	name, help string
	value      func(asked) any
}{
	{"neokv_version", "version of NeoKV", func(asked) any { return Version }},
	{"store", "number of the store; on its port only", func(a asked) any { return a.ofStore(func() any { return a.node.id }) }},
	{"store_state", "`ok`, or `failed:` and why; on the store's port only", func(a asked) any {
		return a.ofStore(func() any { return state(a.store.Failed(), false) })
	}},
	{"region_time_ahead_ms", "how far the region time of a region is ahead of the clock; on a store's port only", func(a asked) any {
		return a.ofStore(func() any { return a.store.TimeAhead().Milliseconds() })
	}},
	{"store_N_state", "`ok`, `stopped`, or `failed:` and why, of each store N; on the proxy port only", nil},
	{"stores", "stores of the cluster", func(a asked) any { return a.c.settings.Cluster.Stores }},
	{"replicas", "replicas of a region", func(a asked) any { return a.c.settings.Cluster.Replicas }},
	{"regions", "regions of the cluster", func(a asked) any { return a.c.settings.Cluster.Regions }},
	{"in_memory", "1 where the data is in memory, else 0", func(a asked) any {
		if a.c.config.InMemory {
			return 1
		}
		return 0
	}},
	{"wal_sync", "the setting `engine.wal_sync`", func(a asked) any { return a.c.settings.Engine.WALSync }},
	{"raft_transport", "the setting `raft.transport`", func(a asked) any { return a.c.settings.Raft.Transport }},
}

func (a asked) ofStore(value func() any) any {
	if a.store == nil {
		return nil
	}
	return value()
}

func state(failure error, stopped bool) string {
	switch {
	case failure != nil:
		return "failed: " + strings.Join(strings.Fields(failure.Error()), " ") // one line
	case stopped:
		return "stopped"
	}
	return "ok"
}

// counters are the lines of one store, summed on the proxy port.
var counters = []struct {
	name  string
	kind  InfoKind
	help  string
	value func(*store.Counters) int64
}{
	{"sync_calls", InfoCounter, "syncs of files and folders that the disk has made; one that made the logs of several stores durable counts at one of them",
		func(c *store.Counters) int64 { return c.Disk.Syncs }},
	{"sync_us", InfoCounter, "time that they took, in microseconds; syncs of one time add up",
		func(c *store.Counters) int64 { return c.Disk.SyncNanos / 1000 }},

	{"raft_proposals", InfoCounter, "runs of writes that were handed to the regions which this store led; a pipeline's writes to one region are a run",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.Proposals })},
	{"raft_entries", InfoCounter, "Raft entries proposed here",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.Entries })},
	{"raft_entry_bytes", InfoCounter, "their bytes",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.EntryBytes })},
	{"raft_commands", InfoCounter, "commands in them; `raft_commands` / `raft_entries` is how well writes share entries",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.Commands })},
	{"raft_read_sets", InfoCounter, "those of the entries that carried what their commands look up, see `raft.read_sets`",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.ReadSets })},
	{"raft_read_set_reads", InfoCounter, "the reads that they carried",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.ReadSetReads })},
	{"read_sets_applied", InfoCounter, "entries applied here, by leader or follower, whose reads still held, so that they were not made again",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.ReadSetsUsed })},

	{"wal_bytes", InfoCounter, "bytes written to Pebble's write-ahead log: Raft's log, and the data that follows it",
		func(c *store.Counters) int64 { return c.Engine.WALBytesWritten }},
	{"memtable_flushes", InfoCounter, "flushes of memtables to tables",
		func(c *store.Counters) int64 { return c.Engine.Flushes }},
	{"memtable_flush_bytes", InfoCounter, "bytes that they wrote",
		func(c *store.Counters) int64 { return c.Engine.FlushBytes }},
	{"compactions", InfoCounter, "compactions, moves and deletions of whole tables included",
		func(c *store.Counters) int64 { return c.Engine.Compactions }},
	{"compaction_bytes", InfoCounter, "bytes that they wrote",
		func(c *store.Counters) int64 { return c.Engine.CompactionBytes }},
	{"write_stalls", InfoCounter, "times that writes had to wait for flushes or compactions",
		func(c *store.Counters) int64 { return c.Engine.WriteStalls }},
	{"write_stall_us", InfoCounter, "how long they had to, in microseconds",
		func(c *store.Counters) int64 { return c.Engine.WriteStallTime.Microseconds() }},

	{"bloom_probes", InfoCounter, "look-ups in the bloom filter of a table",
		func(c *store.Counters) int64 { return c.Engine.FilterHits + c.Engine.FilterMisses }},
	{"bloom_hits", InfoCounter, "those that said that the key is not there, so that no block was read",
		func(c *store.Counters) int64 { return c.Engine.FilterHits }},
	{"row_cache_hits", InfoCounter, "records found in the row cache",
		func(c *store.Counters) int64 { return c.Engine.RowCacheHits }},
	{"row_cache_misses", InfoCounter, "records looked for there in vain",
		func(c *store.Counters) int64 { return c.Engine.RowCacheMisses }},
	{"row_cache_bytes", InfoGauge, "bytes of the records there now",
		func(c *store.Counters) int64 { return c.Engine.RowCacheBytes }},
	{"block_cache_hits", InfoCounter, "blocks found in the block cache",
		func(c *store.Counters) int64 { return c.Engine.BlockCacheHits }},
	{"block_cache_misses", InfoCounter, "blocks read from files",
		func(c *store.Counters) int64 { return c.Engine.BlockCacheMisses }},

	{"read_index_rounds", InfoCounter, "rounds to a quorum that reads have waited for or leases were renewed by",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.ReadIndexRounds })},
	{"lease_reads", InfoCounter, "runs of reads served under a leader's lease, without a round",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.LeaseReads })},
	{"index_reads", InfoCounter, "runs of reads served by a leader after a round",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.IndexReads })},
	{"follower_reads", InfoCounter, "runs of reads served by a replica that did not lead, after a round",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.FollowerReads })},

	{"keyspace_hits", InfoCounter, "keys that reads looked up and found",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.KeysFound })},
	{"keyspace_misses", InfoCounter, "keys that reads looked up and that were not there",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.KeysMissed })},

	{"elections", InfoCounter, "terms in which a replica of this store has asked others for their votes, the meta group's included",
		func(c *store.Counters) int64 { return c.Transport.Campaigns }},
	{"leader_changes", InfoCounter, "terms in which a replica of this store began to serve its region",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.LeaderChanges })},

	{"snapshots_sent", InfoCounter, "region snapshots sent to other stores",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.SnapshotsSent })},
	{"snapshots_received", InfoCounter, "region snapshots installed",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.SnapshotsReceived })},
	{"snapshot_bytes", InfoCounter, "bytes of the snapshots sent and received",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.SnapshotBytes })},
	{"log_entries_truncated", InfoCounter, "entries cut off at the front of Raft's log",
		func(c *store.Counters) int64 { return c.Log.Truncated }},

	{"expired_keys", InfoCounter, "keys deleted by the background passes of expiry; counted where the deletion was proposed",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.ExpiredKeys })},
	{"orphans_waiting", InfoGauge, "deleted collections whose space is still to be given back",
		orphans(func(o *region.OrphanCounters) *atomic.Int64 { return &o.Collections })},
	{"orphan_elements_waiting", InfoGauge, "the elements that they had",
		orphans(func(o *region.OrphanCounters) *atomic.Int64 { return &o.Elements })},
	{"reclaimed_elements", InfoCounter, "elements of deleted collections that were deleted in the background",
		ofRegions(func(r *region.Counters) *atomic.Uint64 { return &r.ReclaimedElements })},
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
			sum += max(0, of(&r.Orphans).Load()) // below 0 for a moment, see there
		}
		return sum
	}
}

// processLines are those of the whole process, whatever else runs in it.
var processLines = []struct {
	name  string
	kind  InfoKind
	help  string
	value func() int64
}{
	{"process_cpu_us", InfoProcessCounter, "CPU time used, in microseconds", cpuMicros},
	{"process_allocs", InfoProcessCounter, "objects allocated on the Go heap", func() int64 {
		return runtimeMetric("/gc/heap/allocs:objects") + runtimeMetric("/gc/heap/tiny/allocs:objects")
	}},
	{"process_alloc_bytes", InfoProcessCounter, "their bytes", func() int64 { return runtimeMetric("/gc/heap/allocs:bytes") }},
	{"process_procs", InfoProcessGauge, "threads that may run Go code at the same time, GOMAXPROCS", func() int64 { return int64(runtime.GOMAXPROCS(0)) }},
	{"process_goroutines", InfoProcessGauge, "goroutines", func() int64 { return int64(runtime.NumGoroutine()) }},
	{"process_rss_bytes", InfoProcessGauge, "memory in use as the system sees it; on macOS the most so far", server.ResidentBytes},
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

// info is the section at a store's port.
func (n *node) info(s *store.Store) []server.Section {
	now := s.Counters()
	return asked{n.c, n, s}.section(values(&now))
}

// info is the section on the proxy port. What a store has counted stays in the sum when it has stopped.
func (c *Cluster) info() []server.Section {
	sum := make([]int64, len(counters))
	for _, n := range c.nodes {
		for i, v := range n.counted() {
			sum[i] += v
		}
	}
	return asked{c: c}.section(sum)
}

func values(c *store.Counters) []int64 {
	out := make([]int64, len(counters))
	for i := range counters {
		out[i] = counters[i].value(c)
	}
	return out
}

func (a asked) section(counted []int64) []server.Section {
	var lines, stats []string
	line := func(name string, value any) { lines = append(lines, fmt.Sprintf("%s:%v", name, value)) }
	for _, f := range facts {
		switch {
		case f.value != nil:
			if v := f.value(a); v != nil {
				line(f.name, v)
			}
		case a.store == nil:
			for _, n := range a.c.nodes {
				n.mu.Lock()
				s := state(n.failure, n.down)
				n.mu.Unlock()
				line(strings.Replace(f.name, "N", fmt.Sprint(n.id), 1), s)
			}
		}
	}
	for i, c := range counters {
		line(c.name, counted[i])
		switch c.name {
		case "expired_keys", "keyspace_hits", "keyspace_misses": // Redis's own place for them
			stats = append(stats, fmt.Sprintf("%s:%d", c.name, counted[i]))
		}
	}
	for _, p := range processLines {
		line(p.name, p.value())
	}
	return []server.Section{{Name: "Stats", Lines: stats}, {Name: "Neokv", Lines: lines}}
}

// counted is what the node's stores have counted so far, the one that runs and those before it.
func (n *node) counted() []int64 {
	n.countMu.Lock()
	defer n.countMu.Unlock()
	return n.count()
}

// count is counted under countMu.
func (n *node) count() []int64 {
	sum := make([]int64, len(counters))
	copy(sum, n.past)
	if s := n.store.Load(); s != nil {
		now := s.Counters()
		for i, v := range values(&now) {
			sum[i] += v
		}
	}
	return sum
}

// retire takes the node's store out of service and keeps what it has counted; it is nil if there is none. Nobody reads the
// store's counters any more, so it may be closed.
func (n *node) retire() *store.Store {
	n.countMu.Lock()
	defer n.countMu.Unlock()
	n.past = n.count()
	for i, c := range counters {
		if c.kind == InfoGauge {
			n.past[i] = 0
		}
	}
	return n.store.Swap(nil)
}
