// Package engine is a store's one Pebble: keyspaces, comparer and bloom prefixes, options made from knobs, views to read and batches to write.
package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

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
	Knobs  settings.Engine
	// Stores is how many engines share the process; memory and compaction slots are divided by it. Nth is which of them this one is, from 0.
	Stores, Nth int
	// Fatal is called, from any goroutine, when Pebble reports what it considers fatal: a failed write or sync, a corrupted
	// table. It must fence the store, and it returns: the commit that met the error then reports success, so nothing may leave the
	// store any more once Fatal has been called.
	Fatal func(error)
}

// Engine is a store's database. All methods may run concurrently.
type Engine struct {
	db      *pebble.DB
	options *pebble.Options // as the database was opened with
	fs      vfs.FS
	dir     string
	events  events
	deleted atomic.Uint64
	settled atomic.Int64 // Unix ms of the last flush by settle
	rested  uint64       // bytes of batches as of the last Rest
	quiet   int          // calls of Rest at rest since L0 was compacted
	backing uint64       // bytes of files that tables are a part of, as rewrite has left them

	parking parking
	rows    *rowCache    // nil for none
	depth   atomic.Int32 // sublevels of L0 as of the last Rest
	missed  atomic.Int32 // see Latest: so many reads more go through Get
	looks   atomic.Int64 // of views that are closed, into Pebble, since L0 was compacted at rest

	// The pools belong to the engine, not to the package, so that nothing crosses from one virtual-time bubble into the next.
	views   sync.Pool
	batches sync.Pool
}

// Open opens or creates the database in o.Dir. The folder and the entries that lead to it are synced, so that what is synced
// inside survives a power cut from the first write on.
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
	e.parking.clear()
	return e.db.Close()
}

// Sync returns when everything written so far is durable.
func (e *Engine) Sync() error {
	// An empty record, synced: the WAL is one file, so all before it is durable too.
	return e.db.LogData(nil, pebble.Sync)
}

// Deleted is how many keys batches have deleted one by one since the engine was opened.
func (e *Engine) Deleted() uint64 { return e.deleted.Load() }

// Flush begins to write what is in memtables to tables. It does not wait for that, but holds commits up while it opens the next log.
//
// Only what is in tables takes part in compactions: a deletion that stays in the memtable gives no space back.
func (e *Engine) Flush() error {
	if _, err := e.db.AsyncFlush(); err != nil {
		return fmt.Errorf("engine: flush: %w", err)
	}
	return nil
}

const (
	// RestPause is how often Rest is to be called.
	RestPause = 500 * time.Millisecond
	// restWrites is how many bytes of batches, between two calls of Rest, an engine at rest may still get.
	restWrites = 16 << 10
	// restLog is how large a write-ahead log stays in an engine at rest.
	restLog = 1 << 20
	// restLooks is how many reads of an engine, or restCalls how many calls of Rest at rest, make it worth while to compact L0. That takes about
	// as long as the reads could save.
	restLooks = 20_000
	restCalls = 10
)

// Rest is to be called every RestPause, by one goroutine. Views that wait for reads give up what they keep alive. Where hardly anything was
// written since the last time, and the write-ahead log is large, it begins a flush. That lets the log's space go, which would stay until as
// much again is written; and who reads what was loaded finds it in tables, at half the cost of a large memtable. What is in L0 then it
// begins to compact, sooner for those who read there: engine.l0_compaction is for those who write, each
// sublevel costs every read a look, and a deletion that waits there gives no space back.
func (e *Engine) Rest() {
	e.parking.clear()
	m := e.db.Metrics()
	written := m.WAL.BytesIn - e.rested
	e.rested = m.WAL.BytesIn
	e.depth.Store(m.Levels[0].Sublevels)
	switch {
	case written >= restWrites:
	case m.WAL.Size > restLog:
		e.flushNext(m)
	case m.Levels[0].TablesCount > 0 && m.Compact.NumInProgress == 0:
		if e.quiet++; e.quiet >= restCalls || e.looks.Load() >= restLooks {
			e.quiet = 0
			e.looks.Store(0)
			e.flatten()
		}
	default:
		e.rewrite(m)
	}
}

// flatten begins to compact L0 into the level below. Pebble would go on with the levels below that one, each into the next, unless it is
// told not to before the first compaction has ended.
func (e *Engine) flatten() {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	e.events.flattening.Store(&cancel)
	_ = e.db.Compact(ctx, []byte{0}, []byte{0xff}, false) // an error is ctx's, or one of the disk, which Pebble's own compactions meet, too
	e.events.flattening.Store(nil)
}

// flushNext is Flush, unless one is under way: another memtable in the queue behind it, each time that somebody asks, would make the
// queue so long that writes stall. An error is one of the disk, which the next commit meets, too.
func (e *Engine) flushNext(m *pebble.Metrics) {
	if m.Flush.NumInProgress == 0 {
		_ = e.Flush()
	}
}

// restWaste is how much of its tables' files an engine at rest leaves unused.
const restWaste = 4 << 20

// rewrite compacts the tables that are a part of a file, where those files are mostly something else. Deletions that cut a table leave such
// parts, and the file stays as long as one of them does.
func (e *Engine) rewrite(m *pebble.Metrics) {
	backing := m.Table.BackingTableSize
	if backing == e.backing || backing < restWaste || backing-restWaste < 2*m.VirtualSize() {
		return
	}
	levels, err := e.db.SSTables()
	if err != nil {
		return
	}
	for _, tables := range levels {
		for _, t := range tables {
			if end := append(slices.Clip(t.Largest.UserKey), 0); t.Virtual {
				_ = e.db.Compact(context.Background(), t.Smallest.UserKey, end, false)
			}
		}
	}
	e.backing = e.db.Metrics().Table.BackingTableSize
}

// settlePause is how much time there is at least between two flushes by settle.
const settlePause = time.Second

// settle is Flush for the sake of those who read, now and then.
func (e *Engine) settle() {
	last, now := e.settled.Load(), time.Now().UnixMilli()
	if now-last >= settlePause.Milliseconds() && e.settled.CompareAndSwap(last, now) {
		e.flushNext(e.db.Metrics())
	}
}
