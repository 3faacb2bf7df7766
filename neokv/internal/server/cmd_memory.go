package server

// This file has the subcommands of MEMORY that tell about the allocator: here that is Go's.

func runMemoryDoctor(c *conn, args [][]byte) {
	c.out.Verbatim("txt", "Memory is looked after by the Go runtime, whose limits are the process's. "+
		"INFO memory and MEMORY STATS have the figures.")
}

func runMallocStats(c *conn, args [][]byte) {
	c.out.Verbatim("txt", "Stats not supported for the current allocator")
}

func runMemoryPurge(c *conn, args [][]byte) { c.out.OK() }

// runMemoryStats answers with those of Redis's figures that are true here. They are about the whole process, but for the
// scripts that are loaded here.
func runMemoryStats(c *conn, args [][]byte) {
	m := memoryNow()
	_, scripts := c.s.o.Node.Scripts().Size()
	c.out.MapOf("peak.allocated", m.peak, "total.allocated", m.used, "startup.allocated", heapAtStart(),
		"replication.backlog", 0, "clients.slaves", 0, "clients.normal", c.s.o.ClientMemory.Used(), "cluster.links", 0,
		"aof.buffer", 0, "lua.caches", int64(scripts), "functions.caches", 0,
		"peak.percentage", 100*ratio(m.used, m.peak),
		"allocator.allocated", m.used, "allocator.active", m.active, "allocator.resident", m.resident,
		"allocator-fragmentation.ratio", ratio(m.active, m.used), "allocator-fragmentation.bytes", m.active-m.used,
		"allocator-rss.ratio", ratio(m.resident, m.active), "allocator-rss.bytes", m.resident-m.active,
		"rss-overhead.ratio", ratio(m.rss, m.resident), "rss-overhead.bytes", m.rss-m.resident,
		"fragmentation", ratio(m.rss, m.used), "fragmentation.bytes", m.rss-m.used)
}
