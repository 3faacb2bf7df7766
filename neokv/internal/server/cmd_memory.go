package server

import (
	"runtime"
)

// This file has the subcommands of MEMORY that tell about the allocator: here that is Go's.

func runMemoryDoctor(c *conn, args [][]byte) {
	c.out.Verbatim("txt", "Memory is looked after by the Go runtime, whose limits are the process's. "+
		"INFO memory and MEMORY STATS have the figures.")
}

func runMallocStats(c *conn, args [][]byte) {
	c.out.Verbatim("txt", "Stats not supported for the current allocator")
}

func runMemoryPurge(c *conn, args [][]byte) { c.out.OK() }

// runMemoryStats answers with those of Redis's figures that the Go runtime knows. They are about the whole process.
func runMemoryStats(c *conn, args [][]byte) {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	stats := [...]struct {
		name  string
		bytes uint64
	}{
		{"total.allocated", m.HeapAlloc}, {"allocator.allocated", m.HeapAlloc},
		{"allocator.active", m.HeapInuse}, {"allocator.resident", m.Sys - m.HeapReleased},
	}
	c.out.Map(len(stats))
	for _, s := range stats {
		c.out.BulkString(s.name)
		c.out.Int(int64(s.bytes))
	}
}
