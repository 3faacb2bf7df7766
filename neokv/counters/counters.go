// Package counters lists the lines of INFO's section neokv: name, kind, scope and meaning. The server prints the lines
// in this order, `neokv bench` samples them, a results file names those that it holds, and docs/counters.md is
// generated from the list. Package neokv reads the values; a test there keeps it and the list together.
package counters

// Line describes one line of the section. The line reads name:value, and the name ends with the unit, if there is one.
type Line struct {
	Name  string
	Kind  MetricKind
	Scope Scope
	Help  string
}

// MetricKind says what may happen to the value of a line over time.
type MetricKind string

const (
	Fact    MetricKind = "fact"    // text, or a number whose sums mean nothing
	Counter MetricKind = "counter" // a whole number that never falls
	Gauge   MetricKind = "gauge"   // a whole number as of now
)

// Scope says what a line is about: a store, the cluster or the process.
type Scope string

const (
	// Store lines on a store's port are about that store. On the proxy port, counters and gauges are sums over the
	// stores.
	Store Scope = "store"
	// Cluster lines are about the cluster. They are the same on every port that has them.
	Cluster Scope = "cluster"
	// Process lines are about the whole process. They are the same on every port.
	Process Scope = "process"
)

// Find returns the line with this name.
func Find(name string) (Line, bool) {
	i, ok := places[name]
	if !ok {
		return Line{}, false
	}
	return All[i], true
}

// places has the index of each line in All, by name.
var places = func() map[string]int {
	m := make(map[string]int, len(All))
	for i, l := range All {
		m[l.Name] = i
	}
	return m
}()

// All lists the lines in the order in which INFO prints them.
var All = []Line{
	{"neokv_version", Fact, Process, "version of NeoKV"},
	{"store", Fact, Store, "number of the store; on its port only"},
	{"store_state", Fact, Store, "`ok`, or `failed:` and why; on the store's port only"},
	{"region_time_ahead_ms", Fact, Store,
		"how far the region time of a region is ahead of the clock; on a store's port only"},
	{"store_N_state", Fact, Cluster, "`ok`, `stopped`, or `failed:` and why, of each store N; on the proxy port only"},
	{"stores", Fact, Cluster, "stores of the cluster"},
	{"replicas", Fact, Cluster, "replicas of a region"},
	{"regions", Fact, Cluster, "regions of the cluster at present"},
	{"in_memory", Fact, Cluster, "1 where the data is in memory, else 0"},
	{"wal_sync", Fact, Cluster, "the setting `engine.wal_sync`"},
	{"raft_transport", Fact, Cluster, "the setting `raft.transport`"},
	{"journal", Fact, Cluster,
		"`shared`: one sync makes the logs of all stores durable; `none`: each store syncs its own, by the settings; " +
			"`broken:` and why: each store does so until the journal is mended"},
	{"lease_ms", Fact, Cluster, "how long a leader may read without a round after one; 0: each read takes a round"},
	{"row_cache", Fact, Cluster, "bytes that the row cache may take, 0 for none"},

	{"sync_calls", Counter, Store,
		"syncs of files and folders; a sync that covers the logs of several stores counts at one of them"},
	{"sync_us", Counter, Store, "time that these syncs took; the times of syncs that overlap add up"},
	{"alone_syncs", Counter, Store,
		"syncs of a log that this store made for itself, because the journal that it shares was broken"},
	{"file_retries", Counter, Store,
		"tries to open, make, list or write a file after one that failed for want of descriptors or memory"},

	{"raft_proposals", Counter, Store,
		"runs of writes handed to regions that this store led; a run is the writes of one pipeline to one region"},
	{"raft_entries", Counter, Store, "Raft entries proposed by this store"},
	{"raft_entry_bytes", Counter, Store, "bytes of these entries"},
	{"raft_commands", Counter, Store,
		"commands in these entries; `raft_commands` / `raft_entries` says how well writes share entries"},
	{"raft_read_sets", Counter, Store,
		"Raft entries proposed by this store that carried what their commands look up, see `raft.read_sets`"},
	{"raft_read_set_reads", Counter, Store, "reads that these entries carried"},
	{"read_sets_applied", Counter, Store,
		"entries that this store applied, as leader or follower, with the reads that they carried in place of its own"},

	{"wal_bytes", Counter, Store,
		"bytes written to Pebble's write-ahead log: Raft's log, and the data that follows it"},
	{"memtable_flushes", Counter, Store, "flushes of memtables to tables"},
	{"memtable_flush_bytes", Counter, Store, "bytes that flushes wrote"},
	{"compactions", Counter, Store, "compactions, including moves and deletions of whole tables"},
	{"compaction_bytes", Counter, Store, "bytes that compactions wrote"},
	{"write_stalls", Counter, Store, "times that writes had to wait for flushes or compactions"},
	{"write_stall_us", Counter, Store, "time that writes had to wait for them"},

	{"bloom_probes", Counter, Store, "look-ups in the bloom filter of a table"},
	{"bloom_hits", Counter, Store, "look-ups in which the filter said that the key is not there, so no block was read"},
	{"row_cache_hits", Counter, Store, "look-ups of a record that the row cache answered, so Pebble was not asked"},
	{"row_cache_misses", Counter, Store, "look-ups of a record that the row cache could not answer"},
	{"row_cache_bytes", Gauge, Store, "bytes of the records in the row cache"},
	{"block_cache_hits", Counter, Store, "blocks found in the block cache"},
	{"block_cache_misses", Counter, Store, "blocks read from files"},

	{"read_index_rounds", Counter, Store, "rounds to a quorum that let reads be served or renewed a lease"},
	{"lease_reads", Counter, Store, "runs of reads that a leader served under its lease, without a round"},
	{"index_reads", Counter, Store, "runs of reads that a leader served after a round"},
	{"follower_reads", Counter, Store, "runs of reads that a follower served after a round"},
	{"follower_reads_passed", Counter, Store,
		"runs of reads that a follower left to the leader, since only that can tell whether a record has expired"},
	{"regions_without_lease", Gauge, Store,
		"regions that this store leads, and in its term without a lease, as after a transfer that came to nothing"},

	{"keyspace_hits", Counter, Store, "keys that reads looked up and found"},
	{"keyspace_misses", Counter, Store, "keys that reads looked up and did not find"},

	{"elections", Counter, Store,
		"terms in which a replica of this store asked others for their votes, including those of the meta group"},
	{"leader_changes", Counter, Store, "terms in which a replica of this store began to serve its region"},

	{"splits", Counter, Store, "splits of regions that this store led"},
	{"merges", Counter, Store, "merges in which a region that this store led took its right neighbour over"},

	{"snapshots_sent", Counter, Store, "region snapshots sent to other stores"},
	{"snapshots_received", Counter, Store, "region snapshots installed"},
	{"snapshot_bytes", Counter, Store, "bytes of the snapshots sent and received"},
	{"log_entries_truncated", Counter, Store, "entries cut off at the front of Raft's log"},

	{"lane_messages_sent", Counter, Store,
		"published messages that other stores have taken from this one, counted for each of these stores"},
	{"lane_messages_lost", Counter, Store,
		"published messages that found no room on the way to another store, or that it did not confirm"},
	{"lane_messages_late", Counter, Store,
		"published messages of another store that came behind later ones, and were dropped; the sender counts them as lost"},

	{"expired_keys", Counter, Store,
		"keys deleted by the background passes of expiry; the store that proposed the deletion counts it"},
	{"orphans_waiting", Gauge, Store, "deleted collections whose space is not free yet"},
	{"orphan_elements_waiting", Gauge, Store, "elements that these collections had"},
	{"reclaimed_elements", Counter, Store, "elements of deleted collections that were deleted in the background"},

	{"process_cpu_us", Counter, Process, "CPU time"},
	{"process_allocs", Counter, Process, "objects allocated on the Go heap"},
	{"process_alloc_bytes", Counter, Process, "bytes of these objects"},
	{"process_procs", Gauge, Process, "threads that may run Go code at the same time, GOMAXPROCS"},
	{"process_goroutines", Gauge, Process, "goroutines"},
	{"process_rss_bytes", Gauge, Process, "memory in use as the operating system sees it; on macOS the largest so far"},
}
