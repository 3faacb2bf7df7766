package engine

import (
	"context"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// heldFS holds the first table up that is created while it is armed, until release is closed. It counts how many tables
// are created and how often one is read.
type heldFS struct {
	vfs.FS
	armed         atomic.Bool
	tables, reads atomic.Int64
	held, release chan struct{}
}

func (f *heldFS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	file, err := f.FS.Open(name, opts...)
	return &heldFile{file, f}, err
}

type heldFile struct {
	vfs.File
	fs *heldFS
}

func (f *heldFile) ReadAt(p []byte, off int64) (int, error) {
	f.fs.reads.Add(1)
	return f.File.ReadAt(p, off)
}

func (f *heldFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if isTable(name) {
		f.tables.Add(1)
		if f.armed.CompareAndSwap(true, false) {
			close(f.held)
			<-f.release
		}
	}
	return f.FS.Create(name, category)
}

// TestCloseBreaksOff closes an engine in the middle of a flush and of a compaction of many tables. Neither goes on, no
// failure is told, and nothing is lost.
func TestCloseBreaksOff(t *testing.T) {
	const writes, valueBytes = 2000, 1000 // 2 MB, in tables of 64 KiB
	for _, kind := range []string{"flush", "compaction"} {
		t.Run(kind, func(t *testing.T) {
			fs := &heldFS{FS: vfs.NewMem(), held: make(chan struct{}), release: make(chan struct{})}
			o := testOptions(t, fs)
			o.Knobs.TargetFileSize, o.Knobs.L0Compaction, o.Knobs.Compression = 64<<10, 2, "none"
			e := open(t, o)
			random := rand.NewChaCha8([32]byte{})
			value := make([]byte, valueBytes)
			fill := func() {
				b := e.NewBatch()
				for i := range writes {
					random.Read(value)
					must(t, b.Set(metadataKey(i), value))
				}
				must(t, b.Commit(false))
				must(t, e.Flush())
			}
			if kind == "compaction" {
				fill()
				for e.db.Metrics().Flush.Count == 0 {
					time.Sleep(time.Millisecond)
				}
				arm := context.CancelFunc(func() { fs.armed.Store(true) })
				e.events.flattening.Store(&arm)
			} else {
				fs.armed.Store(true)
			}
			fill()
			<-fs.held
			tables, reads, closed := fs.tables.Load(), fs.reads.Load(), make(chan error)
			go func() { closed <- e.Close() }()
			for !e.fs.closing.Load() {
				time.Sleep(time.Millisecond)
			}
			close(fs.release)
			must(t, <-closed)
			if n, m := fs.tables.Load()-tables, fs.reads.Load()-reads; n > 0 || m > 0 {
				t.Errorf("%d tables begun and %d blocks read since the engine closes", n, m)
			}
			e = open(t, o)
			defer func() { must(t, e.Close()) }()
			if got, ok := get(t, e, metadataKey(writes-1)); !ok || got != string(value) {
				t.Errorf("after the next start: %d bytes, %v", len(got), ok)
			}
		})
	}
}
