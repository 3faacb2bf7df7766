package engine

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/objstorage"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// This file carries a range of keys from one engine to another, as tables. Each table begins with the deletion of the
// range that it covers, and goes on with the keys there. The tables of one Ingestion become visible and durable
// together or not at all, and with the same step the old keys of their ranges disappear.

// Span is the range of keys [Lower, Upper).
type Span struct{ Lower, Upper []byte }

// Snapshot is a state of the engine that stays readable until Close, for minutes if need be. Unlike a View it does not
// keep memtables and tables alive, only keys that compactions would drop. One goroutine may use it at a time.
type Snapshot struct {
	engine *Engine
	pinned *pebble.Snapshot
}

// NewSnapshot returns the present state of the engine.
func (e *Engine) NewSnapshot() *Snapshot { return &Snapshot{engine: e, pinned: e.db.NewSnapshot()} }

// Close gives the snapshot up.
func (s *Snapshot) Close() error { return s.pinned.Close() }

// Iter returns an iterator over [lower, upper) of the snapshot's state. The iterator keeps memtables and tables alive
// until it is closed.
func (s *Snapshot) Iter(lower, upper []byte) (*pebble.Iterator, error) {
	return s.pinned.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
}

// WriteTables writes the keys of a span, and the deletion of everything else in it, as tables of about tableBytes. next
// opens each table. The range deletions of the tables abut. An empty span also makes one table. WriteTables calls stop
// now and then, and ends with its error.
//
// Memory: the index and filter of one table.
func (s *Snapshot) WriteTables(
	span Span, tableBytes uint64, next func() (io.WriteCloser, error), stop func() error,
) (err error) {
	at := span.Lower
	for more := true; more && err == nil; {
		at, more, err = s.writeTable(at, span.Upper, tableBytes, next, stop)
	}
	return err
}

// writeTable writes the table that begins at lower and returns where it ends. It opens an iterator of its own, so that
// a long transfer does not keep old tables alive.
func (s *Snapshot) writeTable(
	lower, upper []byte, tableBytes uint64, next func() (io.WriteCloser, error), stop func() error,
) (end []byte, more bool, err error) {
	it, err := s.Iter(lower, upper)
	if err != nil {
		return nil, false, err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	out, err := next()
	if err != nil {
		return nil, false, err
	}
	w := s.engine.newTable(out)
	defer func() {
		if cerr := w.Close(); err == nil {
			err = cerr
		}
	}()
	const often = 256
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if n%often == 0 {
			if err := stop(); err != nil {
				return nil, false, err
			}
		}
		n++
		if n > 1 && w.Raw().EstimatedSize() >= tableBytes {
			end = append([]byte(nil), it.Key()...)
			return end, true, w.DeleteRange(lower, end)
		}
		value, err := it.ValueAndErr()
		if err == nil {
			err = w.Set(it.Key(), value)
		}
		if err != nil {
			return nil, false, err
		}
	}
	if err := it.Error(); err != nil {
		return nil, false, err
	}
	return upper, false, w.DeleteRange(lower, upper)
}

// WriteTable writes one table of a single key.
func (e *Engine) WriteTable(out io.WriteCloser, key, value []byte) error {
	w := e.newTable(out)
	return errors.Join(w.Set(key, value), w.Close())
}

func (e *Engine) newTable(out io.WriteCloser) *sstable.Writer {
	o := e.options.MakeWriterOptions(bottom, e.db.TableFormat())
	o.DisableValueBlocks = true // see spanPolicy; besides, the writer holds value blocks in memory until the end
	return sstable.NewWriter(&tableFile{out}, o)
}

// bottom is the level with whose options tables are written.
const bottom = 6

// tableFile is where a table's writer writes to.
type tableFile struct{ out io.WriteCloser }

var _ objstorage.Writable = (*tableFile)(nil)

// Write is part of objstorage.Writable.
func (f *tableFile) Write(p []byte) error {
	_, err := f.out.Write(p)
	return err
}

// Finish is part of objstorage.Writable.
func (f *tableFile) Finish() error { return f.out.Close() }

// Abort is part of objstorage.Writable. It does nothing: the caller that opened the file learns of the failure from the
// error.
func (f *tableFile) Abort() {}

// Ingestion collects tables that an engine with the same comparer wrote, and puts them into this engine at once.
type Ingestion struct {
	engine *Engine
	prefix string // of the paths
	paths  []string
}

// incoming is the folder, inside the engine's, of tables that are not ingested yet. When an engine opens, it deletes
// what it finds there.
const incoming = "incoming"

// NewIngestion begins an ingestion. No two may have the same name at the same time.
func (e *Engine) NewIngestion(name string) (*Ingestion, error) {
	dir := e.fs.PathJoin(e.dir, incoming)
	if err := e.fs.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("engine: ingest %s: %w", name, err)
	}
	return &Ingestion{engine: e, prefix: e.fs.PathJoin(dir, name)}, nil
}

// Create opens the file of the next table. Closing the file makes it durable. All must be closed before Commit.
func (g *Ingestion) Create() (io.WriteCloser, error) {
	path := fmt.Sprintf("%s-%d.sst", g.prefix, len(g.paths))
	f, err := g.engine.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("engine: ingest: %w", err)
	}
	g.paths = append(g.paths, path)
	return &syncedFile{f}, nil
}

// syncedFile syncs when it is closed.
type syncedFile struct{ vfs.File }

// Close is part of io.Closer.
func (f *syncedFile) Close() error { return errors.Join(f.File.Sync(), f.File.Close()) }

// Commit puts the tables into the engine. When it returns nil, all of them are visible and durable; when it returns an
// error, nothing has changed. The tables' ranges must not overlap. If the tables replace a region's records, rows must
// be the region's Rows, else nil.
func (g *Ingestion) Commit(rows *Rows) error {
	e := g.engine
	ingest := func() error { return e.db.Ingest(context.Background(), g.paths) }
	if err := rows.replace(func() error { return e.viewPool.change(ingest) }); err != nil {
		return fmt.Errorf("engine: ingest %d tables: %w", len(g.paths), err)
	}
	g.paths = nil
	return nil
}

// Abort removes the tables' files. After Commit it does nothing. The caller may close files that are still open after
// Abort.
func (g *Ingestion) Abort() {
	for _, path := range g.paths {
		_ = g.engine.fs.Remove(path) // the next start removes files that remain
	}
	g.paths = nil
}

// clearIncoming removes the tables of ingestions that a crash interrupted.
func (e *Engine) clearIncoming() error {
	dir := e.fs.PathJoin(e.dir, incoming)
	if _, err := e.fs.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return e.fs.RemoveAll(dir)
}
