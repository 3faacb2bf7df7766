package server

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"runtime"
	"runtime/metrics"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// This file has the command INFO, except its section keyspace (cmd_keys.go) and its sections about commands (stats.go).
// It has those lines of redis-server 7.0 that mean something here, and those whose value can truly say that there is
// nothing: no replica, no snapshot, no function.

// infoSections are INFO's sections in their order.
var infoSections = []struct {
	name, second string // second is another name of the section
	asked        bool   // INFO without arguments, or with "default", leaves it out
	lines        func(c *conn) []string
}{
	{name: "Server", lines: infoServer},
	{name: "Clients", lines: infoClients},
	{name: "Memory", lines: infoMemory},
	{name: "Persistence", lines: infoPersistence},
	{name: "Stats", lines: infoStats},
	{name: "Replication", lines: infoReplication},
	{name: "CPU", lines: infoCPU},
	{name: "Modules", second: "module_list", lines: func(*conn) []string { return nil }},
	{name: "Commandstats", asked: true, lines: func(c *conn) []string { return c.s.calls.stats() }},
	{name: "Errorstats", lines: func(c *conn) []string { return c.s.stats.errors.stats() }},
	{name: "Latencystats", asked: true, lines: func(c *conn) []string { return c.s.calls.latencies() }},
	{name: "Cluster", lines: func(c *conn) []string {
		return lines("cluster_enabled", map[bool]int{true: 0, false: 1}[c.s.proxy()])
	}},
	{name: "Keyspace", lines: func(c *conn) []string { return c.exec.keyspace() }},
}

func newRunID() string {
	b := make([]byte, 20)
	rand.Read(b)
	return hex.EncodeToString(b)
}

func runInfo(c *conn, args [][]byte) {
	usual, all, named := len(args) == 1, false, map[string]bool{}
	for _, a := range args[1:] {
		if !c.exec.work.Spend(2) {
			return
		}
		switch name := strings.ToLower(string(a)); name {
		case "default":
			usual = true
		case "all", "everything":
			all = true
		default:
			named[name] = true
		}
	}
	own := c.s.o.Node.Info()
	var b strings.Builder
	write := func(name string, lines []string) {
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString("# " + name + "\r\n")
		for _, line := range lines {
			b.WriteString(line + "\r\n")
		}
	}
	for _, s := range infoSections {
		at := slices.IndexFunc(own, func(x Section) bool { return x.Name == s.name })
		var more []string
		if at >= 0 {
			more = append(own[at].Lines, c.s.stats.since(own[at].Counts)...)
			own = slices.Delete(own, at, at+1)
		}
		if all || usual && !s.asked || named[strings.ToLower(s.name)] || named[s.second] {
			write(s.name, append(s.lines(c), more...))
		}
	}
	for _, x := range own {
		if all || usual || named[strings.ToLower(x.Name)] {
			write(x.Name, x.Lines)
		}
	}
	c.out.Verbatim("txt", b.String())
}

// lines makes lines of names and values in turn.
func lines(pairs ...any) (out []string) {
	for i := 0; i < len(pairs); i += 2 {
		out = append(out, fmt.Sprintf("%v:%v", pairs[i], pairs[i+1]))
	}
	return out
}

func infoServer(c *conn) []string {
	s := c.s
	up := int64(time.Since(s.started).Seconds())
	executable, _ := os.Executable() // empty where the system does not tell
	return lines("redis_version", redisVersion, "redis_git_sha1", "00000000", "redis_git_dirty", 0,
		"neokv_version", s.o.Version,
		"redis_mode", s.mode(), "os", runtime.GOOS+" "+runtime.GOARCH, "arch_bits", strconv.IntSize,
		"go_version", runtime.Version(),
		"process_id", os.Getpid(), "process_supervised", "no", "run_id", s.runID, "tcp_port", c.port(),
		"store_id", s.o.Self,
		"server_time_usec", time.Now().UnixMicro(), "uptime_in_seconds", up, "uptime_in_days", up/86400,
		"executable", executable, "config_file", "", "io_threads_active", 0)
}

// port returns the port at which the client has asked.
func (c *conn) port() int {
	if c.replica() {
		if x := c.clusterTable().Store(c.s.o.Self); x != nil {
			return x.ReplicaPort
		}
	}
	return c.s.port()
}

func infoClients(c *conn) []string {
	in, out := int64(0), int64(0)
	c.s.mu.Lock()
	n := len(c.s.clients)
	for _, x := range c.s.clients {
		in = max(in, x.unread.Load()+x.room.Load())
		out = max(out, x.out.waiting.Load()+x.out.queued.Load())
	}
	c.s.mu.Unlock()
	return lines("connected_clients", n, "cluster_connections", 0, "maxclients", c.s.limits.clients.Load(),
		"client_recent_max_input_buffer", in, "client_recent_max_output_buffer", out,
		"blocked_clients", c.s.blocked.Load(), "tracking_clients", c.s.tracked.Counts().Clients, "clients_in_timeout_table", 0)
}

// heapAtStart is what was allocated on the heap when the process made its first server.
var heapAtStart = sync.OnceValue(func() int64 {
	sample := []metrics.Sample{{Name: "/memory/classes/heap/objects:bytes"}}
	metrics.Read(sample)
	return int64(sample[0].Value.Uint64())
})

// memory has the figures of the process's memory for INFO memory and MEMORY STATS. What Redis calls used, or allocated,
// is what is allocated on the Go heap; active are the spans of the heap that have objects, resident is what the runtime
// has of the system. Caches of Pebble may lie beside the heap, so how much of it is data, or overhead, nobody knows.
type memory struct{ used, peak, active, resident, rss int64 }

func memoryNow() memory {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return memory{int64(m.HeapAlloc), int64(m.HeapSys), int64(m.HeapInuse), int64(m.Sys - m.HeapReleased),
		ResidentBytes()}
}

func ratio(a, b int64) float64 { return float64(a) / float64(max(1, b)) }

// infoMemory is about the whole process, but for the scripts that are loaded here. The peak is the heap's largest size.
// Interpreters are a part of the memory that nobody counts.
func infoMemory(c *conn) []string {
	m := memoryNow()
	two := func(f float64) string { return fmt.Sprintf("%.2f", f) }
	out := lines("used_memory", m.used, "used_memory_human", humanBytes(m.used), "used_memory_rss", m.rss,
		"used_memory_rss_human", humanBytes(m.rss),
		"used_memory_peak", m.peak, "used_memory_peak_human", humanBytes(m.peak),
		"used_memory_peak_perc", two(100*ratio(m.used, m.peak))+"%", "used_memory_startup", heapAtStart(),
		"allocator_allocated", m.used, "allocator_active", m.active, "allocator_resident", m.resident,
		"allocator_frag_ratio", two(ratio(m.active, m.used)), "allocator_frag_bytes", m.active-m.used,
		"allocator_rss_ratio", two(ratio(m.resident, m.active)), "allocator_rss_bytes", m.resident-m.active,
		"rss_overhead_ratio", two(ratio(m.rss, m.resident)), "rss_overhead_bytes", m.rss-m.resident)
	if total := systemMemory(); total > 0 {
		out = append(out, lines("total_system_memory", total, "total_system_memory_human", humanBytes(total))...)
	}
	scripts, size := c.s.o.Node.Scripts().Size()
	return append(out, lines("used_memory_lua", 0, "used_memory_vm_eval", 0, "used_memory_lua_human", humanBytes(0),
		"used_memory_scripts_eval", size, "number_of_cached_scripts", scripts,
		"number_of_functions", 0, "number_of_libraries", 0, "used_memory_vm_functions", 0,
		"used_memory_vm_total", 0, "used_memory_vm_total_human", humanBytes(0), "used_memory_functions", 0,
		"used_memory_scripts", size, "used_memory_scripts_human", humanBytes(int64(size)),
		"maxmemory", 0, "maxmemory_human", humanBytes(0), "maxmemory_policy", "noeviction",
		"mem_fragmentation_ratio", two(ratio(m.rss, m.used)), "mem_fragmentation_bytes", m.rss-m.used,
		"mem_not_counted_for_evict", 0, "mem_replication_backlog", 0, "mem_total_replication_buffers", 0,
		"mem_clients_slaves", 0, "mem_clients_normal", c.s.o.ClientMemory.Used(),
		"mem_cluster_links", 0, "mem_aof_buffer", 0, "mem_allocator", "go", "active_defrag_running", 0,
		"lazyfree_pending_objects", 0, "lazyfreed_objects", 0)...)
}

func infoStats(c *conn) []string {
	x, subs, tracked := &c.s.stats, &c.s.channels, c.s.tracked.Counts()
	subs.mu.RLock()
	channels, patterns, shards := len(subs.of[namedChannel]), len(subs.patterns), len(subs.of[shardChannel])
	subs.mu.RUnlock()
	now := x.rates.since(x, time.Now())
	return lines("total_connections_received", x.connections.Load(), "total_commands_processed", x.commands.Load(),
		"instantaneous_ops_per_sec", fmt.Sprintf("%.0f", now.commands),
		"total_net_input_bytes", x.bytesIn.Load(), "total_net_output_bytes", x.bytesOut.Load(),
		"total_net_repl_input_bytes", 0, "total_net_repl_output_bytes", 0,
		"instantaneous_input_kbps", fmt.Sprintf("%.2f", now.in/1024),
		"instantaneous_output_kbps", fmt.Sprintf("%.2f", now.out/1024),
		"instantaneous_input_repl_kbps", "0.00", "instantaneous_output_repl_kbps", "0.00",
		"rejected_connections", x.rejected.Load(), "sync_full", 0, "sync_partial_ok", 0, "sync_partial_err", 0,
		"evicted_keys", 0, "total_eviction_exceeded_time", 0, "current_eviction_exceeded_time", 0,
		"active_defrag_hits", 0, "active_defrag_misses", 0, "active_defrag_key_hits", 0, "active_defrag_key_misses", 0,
		"total_active_defrag_time", 0, "current_active_defrag_time", 0, "dump_payload_sanitizations", 0,
		"total_reads_processed", x.reads.Load(), "total_writes_processed", x.writes.Load(),
		"io_threaded_reads_processed", 0, "io_threaded_writes_processed", 0,
		"evicted_clients", x.evicted.Load(), "pubsub_channels", channels, "pubsub_patterns", patterns,
		"pubsubshard_channels", shards,
		"latest_fork_usec", 0, "total_forks", 0, "migrate_cached_sockets", 0, "slave_expires_tracked_keys", 0,
		"tracking_total_keys", tracked.Keys, "tracking_total_items", tracked.Items,
		"tracking_total_prefixes", tracked.Prefixes, "unexpected_error_replies", 0, "total_error_replies", x.errors.total(),
		"client_query_buffer_limit_disconnections", x.queryClosed.Load(),
		"client_output_buffer_limit_disconnections", x.outputClosed.Load(),
		"client_hung_disk_disconnections", x.hungClosed.Load(),
		"client_unknown_outcome_disconnections", x.unknownClosed.Load())
}

// infoReplication answers as a master without connections to replicas, since Raft replicates. At a store's second
// address it answers as a replica.
func infoReplication(c *conn) []string {
	out := lines("role", "master")
	if c.replica() {
		host, port, link := "", 0, "down"
		if m := c.master(); m != nil {
			a := c.told(m)
			host, port, link = a.IP, a.Port, "up"
		}
		out = lines("role", "slave", "master_host", host, "master_port", port, "master_link_status", link,
			"master_last_io_seconds_ago", 0, "master_sync_in_progress", 0, "slave_read_repl_offset", 0,
			"slave_repl_offset", 0, "slave_priority", 100, "slave_read_only", 1, "replica_announced", 1)
	}
	return append(out, lines("connected_slaves", 0, "master_failover_state", "no-failover",
		"master_replid", c.s.runID,
		"master_replid2", strings.Repeat("0", len(c.s.runID)), "master_repl_offset", 0, "second_repl_offset", -1,
		"repl_backlog_active", 0, "repl_backlog_size", 0, "repl_backlog_first_byte_offset", 0,
		"repl_backlog_histlen", 0)...)
}

// infoCPU is about the whole process.
func infoCPU(*conn) []string {
	user, sys := CPUTime()
	childrenUser, childrenSys := childrenCPUTime()
	seconds := func(d time.Duration) string { return fmt.Sprintf("%.6f", d.Seconds()) }
	return lines("used_cpu_sys", seconds(sys), "used_cpu_user", seconds(user),
		"used_cpu_sys_children", seconds(childrenSys),
		"used_cpu_user_children", seconds(childrenUser))
}

// humanBytes prints a size as Redis's bytesToHuman does.
func humanBytes(n int64) string {
	if n < 1024 {
		return strconv.FormatInt(n, 10) + "B"
	}
	size, unit := float64(n)/1024, 0
	for size >= 1024 && unit < len("KMGTP")-1 {
		size, unit = size/1024, unit+1
	}
	return fmt.Sprintf("%.2f%c", size, "KMGTP"[unit])
}
