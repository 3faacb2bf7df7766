package results

import (
	"fmt"
	"strings"
)

// Work is what the target did in some span of time by its own account: counters of `INFO neokv` by their names there, added up over
// the stores, those of a process once per process. Of a Redis there is process_cpu_us alone, made of `INFO cpu`. Counters are
// differences over the span and never negative; a gauge is what it was at the end.
type Work map[string]int64

// counters lists the names that are taken from `INFO neokv`, and which of them are gauges.
var counters = map[string]bool{
	"sync_calls": false, "sync_us": false,
	"raft_proposals": false, "raft_entries": false, "raft_entry_bytes": false, "raft_commands": false,
	"wal_bytes": false, "memtable_flushes": false, "memtable_flush_bytes": false, "compactions": false, "compaction_bytes": false,
	"write_stalls": false, "write_stall_us": false,
	"bloom_probes": false, "bloom_hits": false, "block_cache_hits": false, "block_cache_misses": false,
	"read_index_rounds": false, "lease_reads": false, "index_reads": false, "follower_reads": false,
	"elections": false, "leader_changes": false,
	"snapshots_sent": false, "snapshots_received": false, "snapshot_bytes": false, "log_entries_truncated": false,
	"expired_keys": false, "orphans_waiting": true, "orphan_elements_waiting": true, "reclaimed_elements": false,
	"process_cpu_us": false, "process_allocs": false, "process_alloc_bytes": false, "process_goroutines": true, "process_rss_bytes": true,
}

// IsCounter reports whether a record has the value of that name in INFO.
func IsCounter(name string) bool { _, known := counters[name]; return known }

// IsGauge reports whether the value of that name is a state, not a count.
func IsGauge(name string) bool { return counters[name] }

// OfProcess reports whether the value of that name is the process's, the same on all of its ports.
func OfProcess(name string) bool { return strings.HasPrefix(name, "process_") }

// Add takes in the work of the span that follows.
func (w Work) Add(next Work) {
	for name, n := range next {
		if IsGauge(name) {
			w[name] = n
		} else {
			w[name] += n
		}
	}
}

// lines are the lines below the table: what an operation cost on average, all stores together.
func (w Work) lines(h Header, ops int64) (out []string) {
	if len(w) == 0 || ops == 0 {
		return nil
	}
	var parts []string
	per := func(name, format string) {
		if n, known := w[name]; known {
			parts = append(parts, fmt.Sprintf(format, figure(float64(n)/float64(ops))))
		}
	}
	per("sync_calls", "%s syncs")
	per("raft_entries", "%s entries")
	per("wal_bytes", "WAL %s B")
	per("memtable_flush_bytes", "flush %s B")
	per("compaction_bytes", "compaction %s B")
	per("block_cache_misses", "%s block reads")
	per("process_cpu_us", "CPU %s us")
	per("process_allocs", "%s allocations")
	line := "work per operation: " + strings.Join(parts, ", ")
	if h.Cluster.InProcess {
		line += " (CPU and allocations with the load generator's)"
	}
	out = append(out, line)

	parts = nil
	if n := w["raft_entries"]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s commands per entry", figure(float64(w["raft_commands"])/float64(n))))
	}
	if n := w["bloom_probes"]; n > 0 {
		parts = append(parts, fmt.Sprintf("filters said no to %s of %s look-ups", percent(w["bloom_hits"], n), Count(n)))
	}
	if n := w["block_cache_hits"] + w["block_cache_misses"]; n > 0 {
		parts = append(parts, fmt.Sprintf("block cache had %s of %s blocks", percent(w["block_cache_hits"], n), Count(n)))
	}
	if n := w["write_stalls"]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s", plural(n, "write stall"), Micros(w["write_stall_us"])))
	}
	if n := w["leader_changes"]; n > 0 {
		parts = append(parts, plural(n, "leader change"))
	}
	if len(parts) > 0 {
		out = append(out, "work: "+strings.Join(parts, ", "))
	}
	return out
}

// figure prints a number with three digits, more before the point.
func figure(v float64) string {
	switch {
	case v == 0:
		return "0"
	case v < 0.001:
		return fmt.Sprintf("%.1e", v)
	case v < 9.995:
		return fmt.Sprintf("%.3g", v)
	}
	if v < 99.95 {
		return fmt.Sprintf("%.1f", v)
	}
	return Count(int64(v + 0.5))
}

func percent(part, whole int64) string {
	return fmt.Sprintf("%.1f %%", 100*float64(part)/float64(whole))
}
