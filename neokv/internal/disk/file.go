package disk

import (
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// file is a file of the base. After a write to it behind the fence, it is its copy in the overlay.
type file struct {
	fs       *FS
	base     vfs.File
	log      *walFile // set if a journal makes the file durable
	name     string
	writable bool
	extent   *extent // nil unless the file is on the machine's disk, and writable
	prefix   *prefix // nil unless the file is a new log or manifest
	off      int64   // where Read and Write go on
	wanted   int64   // how long Preallocate wants the file to be
	extended int64   // how long it is because of that
	copied   atomic.Pointer[vfs.File]
}

var _ vfs.File = (*file)(nil)

func (f *FS) opened(base vfs.File, name string, writable bool) *file {
	return &file{fs: f, base: base, name: name, writable: writable}
}

// Write is part of vfs.File. The bytes that a failed write has left go to the overlay.
func (x *file) Write(p []byte) (int, error) {
	n := 0
	if x.fs.fenced.Load() == nil {
		if end := x.off + int64(len(p)); end > x.extended && x.extended < x.wanted {
			x.extended, _ = extend(x.base, x.extended, end)
		}
		var err error
		if n, err = x.pass(p, x.off, x.base.Write); err == nil || !x.writable {
			x.off += int64(n)
			return n, err
		}
		x.off += int64(n)
	}
	m, err := x.copy().WriteAt(p[n:], x.off)
	x.off += int64(m)
	return n + m, err
}

// WriteAt is part of vfs.File.
func (x *file) WriteAt(p []byte, off int64) (int, error) {
	n := 0
	if x.fs.fenced.Load() == nil {
		if x.prefix != nil { // neither library writes to these files so
			x.fs.prefixes.removed(x.name)
		}
		var err error
		n, err = x.pass(p, off, func(p []byte) (int, error) { return x.base.WriteAt(p, off) })
		if err == nil || !x.writable {
			return n, err
		}
	}
	m, err := x.copy().WriteAt(p[n:], off+int64(n))
	return n + m, err
}

// pass hands a write on to the base, and fences the file system if it fails.
func (x *file) pass(p []byte, off int64, write func([]byte) (int, error)) (n int, err error) {
	x.fs.busy(len(p))
	x.fs.retried(func() error {
		x.fs.still.RLock()
		n, err = x.put(p, write)
		x.fs.unsynced.wrote(x.extent, off+int64(n))
		x.fs.still.RUnlock()
		if n > 0 {
			return nil // another write would put the same bytes twice
		}
		return err
	})
	if x.fs.bytes.Add(int64(n)) >= x.fs.noticeAt.Load() {
		select {
		case x.fs.notice <- struct{}{}:
		default:
		}
	}
	if x.log != nil {
		x.log.wrote(off, p[:n])
	}
	x.fs.prefixes.wrote(x.prefix, p[:n])
	if err != nil && x.writable {
		x.fs.fail(fmt.Errorf("%s %s: %w", OpWrite, x.name, err))
	}
	return n, err
}

// put writes to the base. A drive with a fault fails after half of the bytes, as a full disk does, or before the first
// one where something is short.
func (x *file) put(p []byte, write func([]byte) (int, error)) (int, error) {
	refused := x.fs.refused(OpWrite, len(p))
	switch {
	case short(refused):
		return 0, refused
	case refused != nil:
		p = p[:len(p)/2]
	}
	n, err := write(p)
	if err == nil {
		err = refused
	}
	return n, err
}

// copy returns the file's copy in the overlay, made at the first call.
func (x *file) copy() vfs.File {
	if c := x.copied.Load(); c != nil {
		return *c
	}
	c := x.fs.fenced.Load().adopt(x.name, x.base)
	x.copied.Store(&c)
	return c
}

// Read is part of vfs.File.
func (x *file) Read(p []byte) (n int, err error) {
	if c := x.copied.Load(); c != nil {
		if n, err = (*c).ReadAt(p, x.off); n > 0 {
			err = nil
		}
	} else {
		n, err = x.read(p, x.base.Read)
	}
	x.off += int64(n)
	return n, err
}

// ReadAt is part of vfs.File.
func (x *file) ReadAt(p []byte, off int64) (int, error) {
	if c := x.copied.Load(); c != nil {
		return (*c).ReadAt(p, off)
	}
	slot := x.fs.reads.begin()
	defer x.fs.reads.end(slot)
	x.fs.reached(BeforeRead, 0)
	return x.read(p, func(p []byte) (int, error) { return x.base.ReadAt(p, off) })
}

// Stat is part of vfs.File.
func (x *file) Stat() (vfs.FileInfo, error) {
	if c := x.copied.Load(); c != nil {
		return (*c).Stat()
	}
	return x.base.Stat()
}

// Sync is part of vfs.File.
func (x *file) Sync() error { return x.sync(false) }

// SyncData is part of vfs.File.
func (x *file) SyncData() error { return x.sync(true) }

func (x *file) sync(dataOnly bool) error {
	fs := x.fs
	if fs.fenced.Load() != nil {
		return nil
	}
	fs.reached(BeforeSync, fs.begun.Add(1))
	if fs.fenced.Load() == nil && fs.drive.Load() != nil && !fs.waitInLog {
		fs.hang()
		fs.delay(0)
	}
	if fs.fenced.Load() != nil {
		return nil
	}
	length, prefix := fs.unsynced.length(x.extent), fs.prefixes.written(x.prefix)
	fresh := fs.freshIn(x.name)
	err := fs.refused(OpSync, 0)
	if err == nil {
		err = x.reach(dataOnly)
	}
	if err != nil {
		fs.fail(fmt.Errorf("%s %s: %w", OpSync, x.name, err))
		return nil
	}
	if x.extent != nil {
		fs.unsynced.synced(x.extent, length)
	} else {
		fs.unsynced.syncedDir(x.name)
	}
	if x.log == nil || !x.fs.share.j.planted {
		fs.prefixes.synced(x.prefix, prefix)
	}
	fs.settled(fresh)
	fs.reached(AfterSync, fs.completed.Add(1))
	return nil
}

// reach syncs the file, or the journal in its place.
func (x *file) reach(dataOnly bool) error {
	if x.log == nil {
		return x.reachDisk(dataOnly)
	}
	took, led, err := x.fs.share.j.sync(x.log)
	if led {
		x.fs.count(took)
	}
	if err == nil {
		return nil
	}
	x.fs.alone.Add(1)
	return x.log.syncItself(func() error { return x.reachDisk(dataOnly) })
}

func (x *file) reachDisk(dataOnly bool) (err error) {
	start := time.Now()
	if dataOnly {
		err = x.base.SyncData()
	} else {
		err = x.base.Sync()
	}
	if err == nil {
		x.fs.count(time.Since(start))
	}
	return err
}

// count counts a sync that the disk has made.
func (f *FS) count(took time.Duration) {
	f.syncs.Add(1)
	f.syncNanos.Add(int64(took))
}

// SyncTo is part of vfs.File. It counts as a sync only if the base makes a full sync of it. The hook of BeforeSync does
// not run, since no caller may rely on SyncTo.
func (x *file) SyncTo(length int64) (fullSync bool, err error) {
	if x.fs.fenced.Load() != nil {
		return true, nil
	}
	start := time.Now()
	if fullSync, err = x.base.SyncTo(length); err != nil {
		x.fs.fail(fmt.Errorf("%s %s: %w", OpSync, x.name, err))
		return true, nil
	}
	if fullSync {
		x.fs.begun.Add(1)
		x.fs.count(time.Since(start))
		x.fs.reached(AfterSync, x.fs.completed.Add(1))
	}
	return fullSync, nil
}

// Preallocate is part of vfs.File. It is advice. Write follows it in steps, so that a file stays small if little is
// written to it, and not at all if a journal syncs in the file's place.
func (x *file) Preallocate(offset, length int64) error {
	if x.log == nil {
		x.wanted = offset + length
	}
	return nil
}

// extendBytes is by how much extend makes a file longer at once.
const extendBytes = 1 << 20

// extend makes a file longer than end, where the next write will end, by appending zeros. It returns the new length,
// and whether the disk has allocated the space. Then a sync of the written bytes need not sync the file's length as
// well, which costs the disk another write. extend ignores errors: if the disk is full, the write itself fails. It is
// only for files whose reader stops at zeros.
func extend(f vfs.File, length, end int64) (to int64, made bool) {
	to = (end + extendBytes) / extendBytes * extendBytes
	if fd := f.Fd(); fd != vfs.InvalidFd && allocate(fd, length, to) == nil {
		return to, true
	}
	_ = f.Preallocate(length, to-length)
	return to, false
}

// Prefetch is part of vfs.File.
func (x *file) Prefetch(offset, length int64) error { return x.base.Prefetch(offset, length) }

// Fd is part of vfs.File.
func (x *file) Fd() uintptr { return x.base.Fd() }

// Close is part of vfs.File. Some file systems report only here that a write has failed.
func (x *file) Close() error {
	x.fs.unsynced.closed(x.extent)
	var copied error
	if c := x.copied.Load(); c != nil {
		copied = (*c).Close()
	}
	shut := x.base.Close
	if x.log != nil {
		shut = x.log.close
	}
	err := shut()
	if err != nil && x.writable && !errors.Is(err, os.ErrClosed) {
		x.fs.fail(fmt.Errorf("close %s: %w", x.name, err))
		err = nil
	}
	return errors.Join(err, copied)
}
