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

// How a range of keys travels from one engine to another: as tables, each of which begins with the deletion of the
// range that it covers and goes on with the keys there. Tables put in by one Ingestion become visible, and durable,
// together or not at all; what their ranges held before is gone with the same step.

// Span is the range of keys [Lower, Upper).
type Span struct{ Lower, Upper []byte }

// Snapshot is a state of the engine that stays readable until Close, for minutes if need be: unlike a View it keeps
// neither memtables nor tables alive, only keys that compactions would drop. It may be used by one goroutine at a time.
type Snapshot struct {
	engine *Engine
	pinned *pebble.Snapshot
}

// NewSnapshot returns the present state of the engine.
func (e *Engine) NewSnapshot() *Snapshot { return &Snapshot{engine: e, pinned: e.db.NewSnapshot()} }

// Close gives the snapshot up.
func (s *Snapshot) Close() error { return s.pinned.Close() }

// Iter walks [lower, upper) of the snapshot's state. It keeps memtables and tables alive until it is closed.
func (s *Snapshot) Iter(lower, upper []byte) (*pebble.Iterator, error) {
	return s.pinned.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
}

// WriteTables writes the keys of a span, and the deletion of everything else in it, as tables of about tableBytes; next
// opens each. The range deletions of the tables abut. An empty span is one table, too. stop is asked now and then
// whether to go on; its error is returned.
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

// writeTable writes the table that begins at lower and returns where it ends. The iterator is its own, so that a long
// transfer does not keep the tables of its beginning.
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
	o.DisableValueBlocks = true // see spanPolicy; and they are held in memory until the end
	return sstable.NewWriter(&tableFile{out}, o)
}

// bottom is the level whose options tables are written with.
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

// Abort is part of objstorage.Writable: whoever opened the file knows from the error.
func (f *tableFile) Abort() {}

// Ingestion collects tables, which were written by an engine of the same comparer, and puts them in at once.
type Ingestion struct {
	engine *Engine
	prefix string // of the paths
	paths  []string
}

// incoming is the folder of tables on their way in, inside the engine's: what it holds when an engine opens is rubbish.
const incoming = "incoming"

// NewIngestion begins an ingestion; at most one at a time goes by a name.
func (e *Engine) NewIngestion(name string) (*Ingestion, error) {
	dir := e.fs.PathJoin(e.dir, incoming)
	if err := e.fs.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("engine: ingest %s: %w", name, err)
	}
	return &Ingestion{engine: e, prefix: e.fs.PathJoin(dir, name)}, nil
}

// Create opens the file of the next table. Closing it makes it durable; all must be closed before Commit.
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

// Commit puts the tables in. When it has returned nil they are visible and durable, all of them; with an error nothing
// has changed. The tables' ranges must not overlap. If they replace a region's records, rows are those of the region,
// else nil.
func (g *Ingestion) Commit(rows *Rows) error {
	e := g.engine
	ingest := func() error { return e.db.Ingest(context.Background(), g.paths) }
	if err := rows.replace(func() error { return e.viewPool.change(ingest) }); err != nil {
		return fmt.Errorf("engine: ingest %d tables: %w", len(g.paths), err)
	}
	g.paths = nil
	return nil
}

// Abort removes the tables' files; behind a Commit it does nothing. Files still open may be closed afterwards.
func (g *Ingestion) Abort() {
	for _, path := range g.paths {
		_ = g.engine.fs.Remove(path) // what stays is removed at the next start
	}
	g.paths = nil
}

// clearIncoming removes the tables of ingestions that did not come to an end.
func (e *Engine) clearIncoming() error {
	dir := e.fs.PathJoin(e.dir, incoming)
	if _, err := e.fs.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return e.fs.RemoveAll(dir)
}
