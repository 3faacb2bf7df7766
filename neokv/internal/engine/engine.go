// Package engine is a store's one Pebble: keyspaces, comparer and bloom prefixes, options made from knobs, views to
// read and batches to write.
package engine

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/settings"
)

// Options of one store's engine.
type Options struct {
	Dir string
	// WALDir is where the write-ahead log is, empty for Dir. It must stay what it was when the database was made.
	WALDir string
	FS     vfs.FS
	Knobs  settings.EngineKnobs
	// Stores is how many engines share the process; memory and compaction slots are divided by it. Nth says which of
	// them this one is, from 0.
	Stores, Nth int
	// Fatal is called from any goroutine when Pebble reports what it considers fatal: a failed write or sync, a
	// corrupted table. It must fence the store and return. The commit that met the error then reports success, so
	// nothing may leave the store once Fatal has been called.
	Fatal func(error)
}

// Engine is a store's database. All methods may run concurrently.
type Engine struct {
	db       *pebble.DB
	options  *pebble.Options // as the database was opened with
	fs       vfs.FS
	dir      string
	events   events
	deleted  atomic.Uint64
	looks    atomic.Int64 // see Lookups
	settled  atomic.Int64 // Unix ms of the last flush by settle
	viewPool viewPool
	rows     *rowCache // nil for none

	// For IdleUpkeep.
	walBytes uint64       // written to the log as of the last call
	quiet    int          // calls that found the engine idle, since it compacted L0
	looked   int64        // looks when it compacted L0
	backing  uint64       // bytes of files that tables are a part of, as rewrite has left them
	depth    atomic.Int32 // sublevels of L0 as of the last call
	missed   atomic.Int32 // so many calls of GetNow more are Get

	// The pools belong to the engine, not to the package, so that nothing crosses from one virtual-time bubble into the
	// next.
	views   sync.Pool
	batches sync.Pool
}

// Open opens or creates the database in o.Dir. The folder and the entries that lead to it are synced, so that what is
// synced inside survives a power cut from the first write on.
func Open(o Options) (*Engine, error) {
	share, err := ShareOf(o.Knobs, o.Stores)
	if err != nil {
		return nil, err
	}
	for _, dir := range []string{o.Dir, o.WALDir} {
		if dir == "" {
			continue
		}
		if err := disk.MakeDir(o.FS, dir); err != nil {
			return nil, fmt.Errorf("engine %s: %w", dir, err)
		}
	}
	e := &Engine{fs: o.FS, dir: o.Dir, rows: newRowCache(share.Rows)}
	e.views.New = func() any { return &View{engine: e} }
	e.batches.New = func() any { return newBatch(e) }

	cache := pebble.NewCache(share.Cache)
	defer cache.Unref() // the database holds its own reference
	opts := pebbleOptions(o, share, &e.events)
	opts.Cache = cache
	if e.db, err = pebble.Open(o.Dir, opts); err != nil {
		return nil, fmt.Errorf("engine %s: %w", o.Dir, err)
	}
	if err := e.clearIncoming(); err != nil {
		return nil, fmt.Errorf("engine %s: %w", o.Dir, errors.Join(err, e.db.Close()))
	}
	e.options = pebbleOptions(o, share, &e.events)
	e.options.EnsureDefaults()
	return e, nil
}

// Close closes the database. Nothing may use the engine afterwards: callers keep readers out first.
func (e *Engine) Close() error {
	e.viewPool.clear()
	return e.db.Close()
}

// Sync returns when everything written so far is durable.
func (e *Engine) Sync() error {
	// An empty record, synced: the WAL is one file, so all before it is durable too.
	return e.db.LogData(nil, pebble.Sync)
}

// Deleted is how many keys batches have deleted one by one since the engine was opened.
func (e *Engine) Deleted() uint64 { return e.deleted.Load() }

// Lookups counts the looks into Pebble of views that are closed: each a key, or a range that a view walks. A batch
// looks at keys through a view, which closes with the batch.
func (e *Engine) Lookups() int64 { return e.looks.Load() }

// Flush begins to write what is in memtables to tables. It does not wait for the end, but commits wait while it opens
// the next log. Only tables take part in compactions: a deletion that stays in the memtable gives no space back.
func (e *Engine) Flush() error {
	if _, err := e.db.AsyncFlush(); err != nil {
		return fmt.Errorf("engine: flush: %w", err)
	}
	return nil
}
