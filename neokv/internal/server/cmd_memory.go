package server

import (
	"runtime"
)

// This file is the part of MEMORY in which Redis tells about its allocator. Here it tells about Go's.

func runMemoryDoctor(c *conn, args [][]byte) {
	c.out.Verbatim("txt", "Memory is looked after by the Go runtime, whose limits are the process's. "+
		"INFO memory and MEMORY STATS have the figures.")
}

func runMallocStats(c *conn, args [][]byte) {
	c.out.Verbatim("txt", "Stats not supported for the current allocator")
}

func runMemoryPurge(c *conn, args [][]byte) { c.out.OK() }

// runMemoryStats answers with those of Redis's figures that the Go runtime has, for the whole process.
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
