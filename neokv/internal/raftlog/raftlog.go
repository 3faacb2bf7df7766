// Package raftlog is dragonboat's log store (raftio.ILogDB) on the store's shared engine, keyspace raft_log.
package raftlog

import (
	"github.com/lni/dragonboat/v4/config"

	"neokv.dev/neokv/internal/engine"
)

// Options of a log store.
type Options struct {
	// Sync is false where engine.wal_sync is none.
	Sync bool
	// Failed reports whether the store is fenced: errors are then answered with placeholders.
	Failed func() error
	// Fence is told of a read error or a checksum mismatch.
	Fence func(error)
}

// Factory returns what dragonboat is configured with (Expert.LogDBFactory). The engine stays the caller's.
func Factory(e *engine.Engine, o Options) config.LogDBFactory { panic("skeleton") }
