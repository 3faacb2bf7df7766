package multiraft

import (
	"io"

	sm "github.com/lni/dragonboat/v4/statemachine"
)

type (
	// Entry is a committed entry for a machine: Index, Cmd and the Result that the proposer gets.
	Entry = sm.Entry
	// Result is what a machine answers to the proposer.
	Result = sm.Result
)

// Machine is the state machine of a region on the store's engine. The library calls the methods of one machine one at a
// time, but for SaveSnapshot and Lookup, which run beside Update. An error ends the process, unless it is one of the
// three below, so a machine fences its store instead and returns nil.
type Machine interface {
	// Open returns the apply index that the engine has. Entries up to it do not come again.
	Open(stop <-chan struct{}) (uint64, error)
	// Update applies entries, sets their results, and returns them. It owns the slice until it returns. What it writes
	// need not be synced: log and state share one WAL, so a crash takes applied entries from the end alone.
	Update([]Entry) ([]Entry, error)
	// Lookup is the library's way to read; NeoKV does not use it.
	Lookup(any) (any, error)
	// Sync makes durable what has been applied. The log is cut and a received snapshot's file is removed after it.
	Sync() error
	// PrepareSnapshot pins the state between two Updates; SaveSnapshot sends what was pinned.
	PrepareSnapshot() (any, error)
	SaveSnapshot(pinned any, w io.Writer, stop <-chan struct{}) error
	// RecoverFromSnapshot replaces the state with a received one.
	RecoverFromSnapshot(r io.Reader, stop <-chan struct{}) error
	Close() error
}

// Errors with which a machine calls a snapshot off. The library tells them from others by identity.
var (
	ErrSnapshotStopped   = sm.ErrSnapshotStopped   // the replica stops
	ErrSnapshotAborted   = sm.ErrSnapshotAborted   // the machine does not send it
	ErrSnapshotStreaming = sm.ErrSnapshotStreaming // the writer's error: the receiver is gone
)
