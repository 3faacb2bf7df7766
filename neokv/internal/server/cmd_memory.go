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
	c.out.MapOf("total.allocated", int64(m.HeapAlloc), "allocator.allocated", int64(m.HeapAlloc),
		"allocator.active", int64(m.HeapInuse), "allocator.resident", int64(m.Sys-m.HeapReleased))
}
