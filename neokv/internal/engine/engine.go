// Package engine is a store's one Pebble: keyspaces, comparer and bloom prefixes, options made from knobs, views to read and batches to write.
package engine

import (
	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/settings"
)

// Options of one store's engine.
type Options struct {
	Dir   string
	FS    vfs.FS
	Knobs settings.Engine
	// Stores is how many engines share the process; memory and compaction slots are divided by it.
	Stores int
	// Fatal is called, from any goroutine, when Pebble reports what it considers fatal. It must fence the store; it returns.
	Fatal func(error)
}

// Engine is a store's database. All methods may run concurrently.
type Engine struct{ db *pebble.DB }

// Open opens or creates the database in o.Dir.
func Open(o Options) (*Engine, error) { panic("skeleton") }

// Close closes the database. Nothing may use the engine afterwards: callers keep readers out first.
func (e *Engine) Close() error { panic("skeleton") }

// Sync returns when everything written so far is durable.
func (e *Engine) Sync() error { panic("skeleton") }

// View reads the engine as of the call that made it. It is not safe for concurrent use.
type View struct{}

// NewView pins the present state of the engine.
func (e *Engine) NewView() *View { panic("skeleton") }

// Get reads one key through the bloom filters of all levels. The value is valid until the next call on the view.
func (v *View) Get(key []byte) (value []byte, ok bool, err error) { panic("skeleton") }

// Iter walks [lower, upper) of the view's state. The iterator must be closed before the view.
func (v *View) Iter(lower, upper []byte) (*pebble.Iterator, error) { panic("skeleton") }

// Close gives the view back.
func (v *View) Close() { panic("skeleton") }

// Batch collects writes that become visible and durable together, and reads what it has written. It is not safe for concurrent use.
type Batch struct{}

// NewBatch returns an empty batch. Its reads see the batch's own writes over the engine as of the first read.
func (e *Engine) NewBatch() *Batch { panic("skeleton") }

// Set, Delete and DeleteRange record a write; keys and values are copied.
func (b *Batch) Set(key, value []byte) error                                  { panic("skeleton") }
func (b *Batch) Delete(key []byte) error                                      { panic("skeleton") }
func (b *Batch) DeleteRange(start, end []byte) error                          { panic("skeleton") }
func (b *Batch) SetDeferred(keyBytes, valueBytes int) *pebble.DeferredBatchOp { panic("skeleton") } // the caller fills key and value, then calls Finish; such a key is not seen by Get of this batch
func (b *Batch) Get(key []byte) (value []byte, ok bool, err error)            { panic("skeleton") } // valid until the next call on the batch
func (b *Batch) Len() int                                                     { panic("skeleton") } // bytes
func (b *Batch) Empty() bool                                                  { panic("skeleton") }

// Commit writes the batch, with sync when it must be durable on return, and gives it back; it may not be used afterwards.
func (b *Batch) Commit(sync bool) error { panic("skeleton") }

// Close drops the batch unwritten.
func (b *Batch) Close() { panic("skeleton") }
