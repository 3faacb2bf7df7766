package results

import (
	"fmt"
	"strings"

	"neokv.dev/neokv/counters"
)

// Work says what the target did in some span of time, by its own account: counters and gauges of `INFO neokv` by their
// names there. Those of a store are added up over the stores; those of a process are added up over the processes. A
// counter is how much it grew in the span, never negative; a gauge is what it was at the end. A Redis gives
// process_cpu_us alone, from `INFO cpu`.
type Work map[string]int64

// Add takes in the work of the span that follows.
func (w Work) Add(next Work) {
	for name, n := range next {
		if line, _ := counters.Find(name); line.Kind == counters.Gauge {
			w[name] = n
		} else {
			w[name] += n
		}
	}
}

// Impaired says what made the target slower than its settings say, by its own account.
func (w Work) Impaired() (out []string) {
	if n := w["alone_syncs"]; n > 0 {
		out = append(out, fmt.Sprintf("the journal that the stores share was broken: %s syncs of a log were made by a "+
			"store for itself, so the figures are of another system", Count(n)))
	}
	if n := w["file_retries"]; n > 0 {
		out = append(out, fmt.Sprintf("file descriptors or memory were short: stores tried %s times again to open, "+
			"make, list or write a file", Count(n)))
	}
	if n := w["regions_without_lease"]; n > 0 {
		out = append(out, fmt.Sprintf("%s regions were read without a lease at the end, by a round to the other stores "+
			"each time", Count(n)))
	}
	return out
}

// operationCosts lists the work that is worth a figure per operation: the counter, its name in comparisons, which way
// it is better, how the table says it, and its unit for benchstat. The table and benchstat have only those with a text.
var operationCosts = []struct {
	counter, name string
	better        Direction
	text, unit    string
}{
	{"sync_calls", "syncs", Lower, "%s syncs", "syncs/op"},
	{"raft_entries", "Raft entries", Lower, "%s entries", "entries/op"},
	{"raft_entry_bytes", "Raft entry bytes", Lower, "", ""},
	{"wal_bytes", "WAL bytes", Lower, "WAL %s B", "wal-B/op"},
	{"memtable_flush_bytes", "flush bytes", Lower, "flush %s B", "flush-B/op"},
	{"compaction_bytes", "compaction bytes", Lower, "compaction %s B", "compaction-B/op"},
	{"read_index_rounds", "read index rounds", Lower, "", ""},
	{"row_cache_hits", "row cache answers", "", "", ""},
	{"bloom_probes", "bloom probes", "", "", ""},
	{"bloom_hits", "bloom answers", "", "", ""},
	{"block_cache_misses", "block reads", Lower, "%s block reads", "block-reads/op"},
	{"process_cpu_us", "CPU", Lower, "CPU %s us", "cpu-ns/op"},
	{"process_allocs", "allocations", Lower, "%s allocations", "allocs/op"},
	{"process_alloc_bytes", "allocated bytes", Lower, "", ""},
}

// lines returns the lines below the table: what an operation cost on average, in all stores together.
func (w Work) lines(h Header, ops int64) (out []string) {
	if len(w) == 0 || ops == 0 {
		return nil
	}
	var parts []string
	for _, cost := range operationCosts {
		if n, known := w[cost.counter]; known && cost.text != "" {
			parts = append(parts, fmt.Sprintf(cost.text, figure(float64(n)/float64(ops))))
		}
	}
	line := "work per operation: " + strings.Join(parts, ", ")
	if h.Cluster.InProcess {
		line += " (CPU and allocations with the load generator's)"
	}
	out = append(out, line)

	parts = nil
	if n := w["raft_entries"]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s commands per entry", figure(float64(w["raft_commands"])/float64(n))))
	}
	if n := w["row_cache_hits"] + w["row_cache_misses"]; n > 0 {
		parts = append(parts, fmt.Sprintf("row cache answered %s of %s record look-ups",
			percent(w["row_cache_hits"], n),
			Count(n)))
	}
	if n := w["bloom_probes"]; n > 0 {
		parts = append(parts, fmt.Sprintf("filters said no to %s of %s look-ups", percent(w["bloom_hits"], n),
			Count(n)))
	}
	if n := w["block_cache_hits"] + w["block_cache_misses"]; n > 0 {
		parts = append(parts, fmt.Sprintf("block cache had %s of %s blocks", percent(w["block_cache_hits"], n),
			Count(n)))
	}
	if n := w["write_stalls"]; n > 0 {
		parts = append(parts, fmt.Sprintf("%s of %s", Plural(n, "write stall"), Micros(w["write_stall_us"])))
	}
	if n := w["leader_changes"]; n > 0 {
		parts = append(parts, Plural(n, "leader change"))
	}
	if n := w["splits"]; n > 0 {
		parts = append(parts, Plural(n, "split"))
	}
	if n := w["merges"]; n > 0 {
		parts = append(parts, Plural(n, "merge"))
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
