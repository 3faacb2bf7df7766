// Package engine is the one Pebble database of a store: its comparer and bloom filters, its options, views to read and
// batches to write, the row cache, and tables that carry regions from one engine to another.
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

// Options are the options of one store's engine.
type Options struct {
	Dir string
	// WALDir is the folder of the write-ahead log; empty means Dir. It must be the same each time that the database is
	// opened.
	WALDir string
	// ReadOnly opens a database to be read alone: nothing is flushed or compacted. FS takes what is written besides, such
	// as locks, and must not let it reach the disk.
	ReadOnly bool
	// MustExist makes Open fail if there is no database in Dir.
	MustExist bool
	FS        vfs.FS
	Knobs     settings.EngineKnobs
	// Stores is how many engines the process has; they share the memory and the compactions of Knobs. Nth is the number
	// of this one, from 0.
	Stores, Nth int
	// Fatal is called from any goroutine when Pebble reports what it considers fatal: a failed write or sync, a
	// corrupted table. It must fence the store and return. The commit that met the error then reports success, so
	// nothing may leave the store after Fatal has been called.
	Fatal func(error)
}

// Engine is a store's database. All methods may run concurrently.
type Engine struct {
	db        *pebble.DB
	options   *pebble.Options // the options with which the database was opened
	fs        *closingFS
	dir       string
	events    events
	deleted   atomic.Uint64
	looks     atomic.Int64 // see Lookups
	flushSoon atomic.Bool  // see IdleUpkeep
	reading   reading
	settling  chan struct{} // holds a value while Settle works, or L0 is being flattened
	viewPool  viewPool
	rows      *rowCache // nil for none

	// For IdleUpkeep.
	walBytes uint64       // written to the log as of the last call
	quiet    int          // calls since the last compaction of L0 that found the engine idle
	looked   int64        // looks as of the last compaction of L0
	backing  uint64       // bytes of files of which tables use a part, as rewrite has left them
	depth    atomic.Int32 // sublevels of L0 as of the last call
	missed   atomic.Int32 // the next so many calls of GetNow do the same as Get

	// The pools belong to the engine and not to the package, since tests run engines in virtual-time bubbles, and
	// nothing may cross from one bubble into another.
	views   sync.Pool
	batches sync.Pool
}

// Open opens or creates the database in o.Dir. It syncs the folder and the folders above that lead to it, so that from
// the first write on all that is synced inside survives a power cut.
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
	fs := &closingFS{FS: o.FS}
	o.FS = fs
	e := &Engine{fs: fs, dir: o.Dir, rows: newRowCache(share.Rows), settling: make(chan struct{}, 1)}
	e.reading.busy = make(chan struct{}, 1)
	e.reading.last.Store(new(Metrics))
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

// Close closes the database. Nobody may use the engine any more when Close is called. It breaks off what goes on in the
// background.
func (e *Engine) Close() error {
	e.fs.closing.Store(true)
	e.viewPool.clear()
	e.reading.busy <- struct{}{} // no goroutine of Metrics reads a closed database
	return e.db.Close()
}

// Sync returns when everything written so far is durable.
func (e *Engine) Sync() error {
	// This syncs an empty record. The WAL is one file, so all records before it are durable, too.
	return e.db.LogData(nil, pebble.Sync)
}

// Deleted returns how many keys batches have deleted one by one since the engine was opened.
func (e *Engine) Deleted() uint64 { return e.deleted.Load() }

// Lookups returns how many look-ups in Pebble closed views have made: a key or an iterator each. The look-ups of a
// batch count too, since a batch reads through a view, which it closes at its end.
func (e *Engine) Lookups() int64 { return e.looks.Load() }

// Flush begins to write the memtables to tables. It does not wait until they are written; but commits wait while it
// opens the next log. Only tables take part in compactions, so a deletion in a memtable gives no space back.
func (e *Engine) Flush() error {
	if _, err := e.db.AsyncFlush(); err != nil {
		return fmt.Errorf("engine: flush: %w", err)
	}
	return nil
}
