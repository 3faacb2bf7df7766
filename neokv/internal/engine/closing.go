package engine

import (
	"errors"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// errClosing breaks off what Pebble does in the background when the engine closes.
var errClosing = errors.New("the engine closes")

// closingFS breaks off flushes and compactions when the engine closes. Pebble's Close waits for those under way and
// offers no way to end them, and one can take seconds of CPU time. None is needed, since the write-ahead log and the
// tables that are there have all data. A flush ends before its next table. A compaction ends with its next read, too.
type closingFS struct {
	vfs.FS
	closing atomic.Bool
}

func isTable(name string) bool { return strings.HasSuffix(name, ".sst") }

// Create is part of vfs.FS.
func (f *closingFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if f.closing.Load() && isTable(name) {
		return nil, errClosing
	}
	return f.FS.Create(name, category)
}

// Open is part of vfs.FS.
func (f *closingFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	if err == nil && isTable(name) {
		file = &closingTable{file, f}
	}
	return file, err
}

// closingTable is a table that is read.
type closingTable struct {
	vfs.File
	fs *closingFS
}

// ReadAt is part of vfs.File.
func (t *closingTable) ReadAt(p []byte, off int64) (int, error) {
	if t.fs.closing.Load() {
		return 0, errClosing
	}
	return t.File.ReadAt(p, off)
}
