package server

import (
	"runtime"

	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// This file is HELP of the containers of data commands, and the rest of MEMORY: what Redis tells about its allocator, told about Go's.

func runHelp(c *conn, args [][]byte) { commands.Lookup(args[0]).WriteHelp(&c.out) }

func runMemoryDoctor(c *conn, args [][]byte) {
	c.out.Verbatim("txt", "Memory is looked after by the Go runtime, whose limits are the process's. INFO memory and MEMORY STATS have the figures.")
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
		{"total.allocated", m.HeapAlloc}, {"allocator.allocated", m.HeapAlloc}, {"allocator.active", m.HeapInuse}, {"allocator.resident", m.Sys - m.HeapReleased},
	}
	c.out.Map(len(stats))
	for _, s := range stats {
		c.out.BulkString(s.name)
		c.out.Int(int64(s.bytes))
	}
}

const (
	lolwutColumns = 64
	lolwutRows    = 8
)

// runLolwut draws the slots in rows, each place with the number of the store that leads the first of its slots.
func runLolwut(c *conn, args [][]byte) {
	if len(args) > 2 && redis.IsOption(args[1], "version") {
		if _, ok := redis.ParseInt(args[2]); !ok {
			c.out.Error(redis.ErrNotInteger)
			return
		}
	}
	var picture []byte
	t := c.s.o.Table()
	for i := range lolwutRows * lolwutColumns {
		place := byte('.')
		if t != nil {
			if r, _ := t.Region(topology.Slot(i * topology.SlotCount / (lolwutRows * lolwutColumns))); r != nil && r.Leader != 0 {
				place = "0123456789"[r.Leader%10]
			}
		}
		if picture = append(picture, place); (i+1)%lolwutColumns == 0 {
			picture = append(picture, '\n')
		}
	}
	c.out.Verbatim("txt", string(picture)+"\nNeoKV ver. "+c.s.o.Version+"\n")
}
