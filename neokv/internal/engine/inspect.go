package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/keys"
)

// Table is a table of a database.
type Table struct {
	File              string // its name in the folder; tables may share a file
	Bytes             uint64
	Smallest, Largest []byte // keys
}

// Tables returns the tables that the engine uses.
func (e *Engine) Tables() (all []Table, err error) {
	levels, err := e.db.SSTables()
	for _, level := range levels {
		for _, t := range level {
			all = append(all, Table{File: fmt.Sprintf("%06d.sst", t.BackingSSTNum), Bytes: t.Size,
				Smallest: t.Smallest.UserKey, Largest: t.Largest.UserKey})
		}
	}
	return all, err
}

// DiskUsage estimates how many bytes of tables a keyspace takes.
func (e *Engine) DiskUsage(ks keys.Keyspace) (uint64, error) {
	lower, upper := ks.Bounds()
	return e.db.EstimateDiskUsage(lower, upper)
}

// CheckTable reads a table's file and compares all checksums in it.
func CheckTable(fs vfs.FS, path string) error {
	file, err := fs.Open(path)
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		file.Close()
		return err
	}
	opts := &pebble.Options{Comparer: comparer, Filters: filters()}
	opts.EnsureDefaults()
	r, err := sstable.NewReader(context.Background(), readable, opts.MakeReaderOptions())
	if err != nil {
		return firstLine(err) // NewReader has closed the file
	}
	err = r.ValidateBlockChecksums()
	if closeErr := r.Close(); err == nil {
		err = closeErr
	}
	return firstLine(err)
}

// firstLine cuts the stack that errors of Pebble may carry.
func firstLine(err error) error {
	if err == nil {
		return nil
	}
	text, _, _ := strings.Cut(err.Error(), "\n")
	return fmt.Errorf("%s", text)
}
