// Package disk is a store's file system: one door for Pebble and for dragonboat's own files. It counts syncs, fences the
// store on the first failed write, and, in memory, can be crashed: what was not synced is gone.
package disk

import (
	"math/rand/v2"

	"github.com/cockroachdb/pebble/v2/vfs"
	lvfs "github.com/lni/vfs"
)

// FS is the file system of one store. It implements Pebble's vfs.FS; Raft gives dragonboat's view of it.
type FS struct{ vfs.FS }

// OS returns a file system on the machine's disk.
func OS() *FS { panic("skeleton") }

// Mem returns an empty file system in memory that can be crashed.
func Mem() *FS { panic("skeleton") }

// Raft is the same file system as dragonboat wants it. dragonboat.ds, NODEHOST.ID and LOCK of a NodeHost are kept in memory, and
// the host name in paths is a fixed one.
func (f *FS) Raft() lvfs.FS { panic("skeleton") }

// OnFence sets what is called once, before the failing call returns, when the first write or sync fails or Fence is called.
func (f *FS) OnFence(func(error)) { panic("skeleton") }

// Fence marks the file system failed: from now on writes succeed into memory only and nothing reaches the disk.
func (f *FS) Fence(cause error) { panic("skeleton") }

// Failed returns why the file system is fenced, nil while it is not. One atomic load.
func (f *FS) Failed() error { panic("skeleton") }

// BeforeSync sets a hook that runs before every sync is passed on, with the number of syncs begun so far, from 1. It may call Crash.
func (f *FS) BeforeSync(func(n int64)) { panic("skeleton") }

// Crash returns a new file system that holds what a power cut at this instant leaves, and fences this one. Memory only.
// Unsynced data survives with the given percentage, decided by rng.
func (f *FS) Crash(unsyncedPercent int, rng *rand.Rand) *FS { panic("skeleton") }

// Stats counts since the file system was made.
type Stats struct {
	Syncs        int64 // syncs completed
	SyncNanos    int64 // time spent in them
	BytesWritten int64
}

// Stats returns the counters so far.
func (f *FS) Stats() Stats { panic("skeleton") }
