// Package disk is a store's file system, for Pebble and for dragonboat's own files. It counts syncs, and fences the
// store on the first failed write. A file system in memory can be crashed: then it loses what was not synced.
//
// The fence. Both libraries end the process when a write fails, so neither may ever see a write error:
//
//	live ──first failed change, Fence or Crash──▶ failing ──OnFence's function has returned──▶ fenced
//
// While the file system is failing, the call that failed waits for OnFence's function; other calls go on to the disk,
// and their answers are true. Once it is fenced, everything that would change the disk happens in an overlay in memory.
// So a caller that is told of a success which did not reach the disk is told so after the store was marked failed. And
// nothing on the disk follows from an operation that was lost.
package disk

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrKilled is the error that Failed returns after Crash.
var ErrKilled = errors.New("disk: killed")

// FS is the file system of one store. It implements Pebble's vfs.FS; Raft gives dragonboat's view of it. All methods
// may run concurrently.
//
// Once it is fenced, reading finds what was written through it, before and after, but the disk no longer changes: open
// a new FS to see what is really there.
type FS struct {
	base vfs.FS
	mem  *memoryFS // base, where it is in memory

	fence  sync.Once
	failed atomic.Pointer[error]   // set when failing
	fenced atomic.Pointer[overlay] // set when fenced

	still     sync.RWMutex // read-locked while the base changes; Catch locks it
	onFence   atomic.Pointer[func(error)]
	hooks     [hookCount]atomic.Pointer[func(int64)]
	drive     atomic.Pointer[drive] // nil while the disk is good
	waitInLog bool
	ended     chan struct{} // closed when failing
	unsynced  *unsynced     // of the machine's disk; nil in memory
	usages    *usages       // likewise
	lost      func() error  // see Lose; nil for none
	prefixes  *prefixes

	reads reads

	share  *share      // the store's part in a journal; nil without one
	record *keptRecord // nil unless the store keeps its record

	begun, completed        atomic.Int64 // syncs of files and folders
	syncs, syncNanos, bytes atomic.Int64 // of what reached the disk
	alone, retries          atomic.Int64 // see Stats
	noticeAt                atomic.Int64 // the value of bytes from which on notice is signalled
	notice                  chan struct{}
}

var _ vfs.FS = (*FS)(nil)

// OS returns a file system on the machine's disk.
func OS() *FS {
	f := newFS(vfs.Default, nil)
	f.unsynced = &unsynced{files: make(map[string]*extent)}
	f.usages = &usages{folders: make(map[string]*usage)}
	return f
}

// ReadOnly returns the machine's disk as it is: what is written stays in memory, in an overlay. Failed returns why.
func ReadOnly() *FS {
	f := OS()
	f.Fence(errors.New("disk: read only"))
	return f
}

// Mem returns an empty file system in memory that can be crashed.
func Mem() *FS { return inMemory(newMemory()) }

func inMemory(mem *memoryFS) *FS { return newFS(mem, mem) }

func newFS(base vfs.FS, mem *memoryFS) *FS {
	return &FS{
		base: base, mem: mem, prefixes: &prefixes{files: make(map[string]*prefix)},
		reads: reads{base: time.Now()}, ended: make(chan struct{}), notice: make(chan struct{}, 1),
	}
}

// OnFence sets a function that is called once: when the first write or sync fails, before that call returns, or when
// Fence is called. Any goroutine may call it, even one that holds Pebble's locks. So it must return soon, and must
// neither use the file system nor call Fence.
func (f *FS) OnFence(fn func(error)) { f.onFence.Store(&fn) }

// Fence marks the file system failed: from now on writes succeed into memory only and nothing reaches the disk. It
// returns when OnFence's function has returned, even if another call caused the fence. Only the first cause counts.
func (f *FS) Fence(cause error) { f.fail(cause) }

// Failed returns why the file system is failing or fenced, nil while it is not. It is one atomic load. A caller that
// opens a database here must check Failed afterwards: nothing else shows that the folder cannot be written.
func (f *FS) Failed() error {
	if err := f.failed.Load(); err != nil {
		return *err
	}
	return nil
}

// fail fences the file system, or waits until the call that does so is done, and returns the overlay.
func (f *FS) fail(cause error) *overlay {
	f.fence.Do(func() {
		f.failed.Store(&cause)
		close(f.ended)
		if fn := f.onFence.Load(); fn != nil {
			(*fn)(cause)
		}
		f.fenced.Store(newOverlay(f.base))
	})
	return f.fenced.Load()
}

// HookPoint is a moment at which a hook runs.
type HookPoint int

const (
	BeforeSync  HookPoint = iota // n syncs have begun; the hook may call Crash or Fence: then this one is not passed on
	AfterSync                    // n syncs are completed; the caller does not know of this one yet
	BeforeRead                   // a read of a file at an offset is about to be passed on
	BeforeUsage                  // the machine's disk is about to be asked how much space it has
	hookCount
)

// Hook sets the function that runs at a point. n counts from 1 for syncs, and is 0 for the others. nil takes the hook
// away.
func (f *FS) Hook(at HookPoint, fn func(n int64)) {
	if fn == nil {
		f.hooks[at].Store(nil)
		return
	}
	f.hooks[at].Store(&fn)
}

// reached runs the hook of a point.
func (f *FS) reached(at HookPoint, n int64) {
	if hook := f.hooks[at].Load(); hook != nil {
		(*hook)(n)
	}
}

// Crash returns a new file system with what a power cut at this instant would leave, and fences this one. rng decides
// which unsynced data survives, with a chance of unsyncedPercent. With 100 the new file system has what the end of the
// process would leave. On the machine's disk the caller closes whatever it has open here, and then calls Lose of the
// new file system.
//
// A file system that is fenced already may be crashed too: the new one starts from what reached it before the fence.
func (f *FS) Crash(unsyncedPercent int, rng *rand.Rand) *FS {
	f.fail(ErrKilled)              // first the fence, then the clones: what is acknowledged is in the clones
	prefixes := f.prefixes.clone() // before the files: what they know as synced is in the files
	if f.mem == nil {
		left := OS().with(prefixes)
		left.usages = f.usages // a disk that hangs still owes the answer to a question from before the crash
		left.lost = func() error { return f.unsynced.take(unsyncedPercent, rng) }
		return left
	}
	if f.share == nil {
		return inMemory(f.mem.crash(unsyncedPercent, rng)).with(prefixes)
	}
	records := f.share.synced() // before the clone: what leaves the journal later was synced before the clone
	left := f.mem.crash(unsyncedPercent, rng)
	each := func(fn func(journalRecord) error) (err error) {
		for i := 0; i < len(records) && err == nil; i++ {
			err = fn(records[i])
		}
		return err
	}
	if err := replay(each, &JournalOptions{FS: left, Logs: map[uint16]string{f.share.store: f.share.dir}}); err != nil {
		panic(err)
	}
	return inMemory(left).with(prefixes)
}

// Lose takes from the files and folders of the machine's disk what the crash has lost that made this file system. It
// does nothing in memory, or for a file system that no crash has made.
func (f *FS) Lose() error {
	if f.lost == nil {
		return nil
	}
	lose := f.lost
	f.lost = nil
	if err := lose(); err != nil {
		return fmt.Errorf("disk: crash: %w", err)
	}
	return nil
}

func (f *FS) with(p *prefixes) *FS {
	f.prefixes = p
	return f
}

// CrashTogether crashes several stores and the journal that they share at the same instant, each on a file system of
// its own in memory. It returns what is left of each, the journal's first. Unlike after Crash, the logs lack the bytes
// that only the journal has: OpenJournal completes them.
func CrashTogether(unsyncedPercent int, rng *rand.Rand, journal *FS,
	stores ...*FS) (journalLeft *FS, storesLeft []*FS) {
	known := make([]*prefixes, len(stores))
	for i, f := range stores {
		f.fail(ErrKilled) // before the journal's clone: what is acknowledged is in it, or was synced in a log
		known[i] = f.prefixes.clone()
	}
	journal.fail(ErrKilled)
	journalLeft = inMemory(journal.mem.crash(unsyncedPercent, rng))
	for i, f := range stores {
		storesLeft = append(storesLeft, inMemory(f.mem.crash(unsyncedPercent, rng)).with(known[i]))
	}
	return journalLeft, storesLeft
}

// Freeze returns copies of the file systems of several stores in memory, all as of one instant, with everything that
// has been written, synced or not. The originals go on. The copies may be frozen again.
func Freeze(stores []*FS) []*FS {
	all, known := make([]*memoryFS, len(stores)), make([]*prefixes, len(stores))
	for i, f := range stores {
		all[i], known[i] = f.mem, f.prefixes.clone() // before the files: what is known as synced is in the copies
	}
	copies := make([]*FS, len(stores))
	for i, m := range freeze(all) {
		copies[i] = inMemory(m).with(known[i])
	}
	return copies
}

// Stats are counters since the file system was made.
type Stats struct {
	// Syncs counts syncs of files and folders. One of a journal counts at the store that asked for it first.
	Syncs        int64
	SyncNanos    int64 // time spent in them
	BytesWritten int64
	// AloneSyncs counts syncs of a log that its store made for itself, because the journal that it shares was broken.
	AloneSyncs int64
	// Retries counts tries to open, make, list or write a file after one that failed for want of descriptors or memory.
	Retries int64
}

// Stats returns the counters so far. Operations in the overlay do not count.
func (f *FS) Stats() Stats {
	return Stats{Syncs: f.syncs.Load(), SyncNanos: f.syncNanos.Load(), BytesWritten: f.bytes.Load(),
		AloneSyncs: f.alone.Load(), Retries: f.retries.Load()}
}

// Free returns how many bytes can still be written in the folder dir, and how many its disk has in all. ok is false if
// that is not known, as in memory. total is math.MaxInt64 for a drive with a fault that limits its space. While the
// machine's disk does not answer, Free returns what it returned last.
func (f *FS) Free(dir string) (bytes, total int64, ok bool) {
	if d := f.drive.Load(); d != nil && (d.Full || d.Drive.Free > 0) {
		return d.space(), math.MaxInt64, true
	}
	usage, err := f.GetDiskUsage(dir)
	return int64(usage.AvailBytes), int64(usage.TotalBytes), err == nil
}

// Notice returns a channel that gets a value once so many more bytes have been written. It is the same channel each
// time, and the last call counts.
func (f *FS) Notice(bytes int64) <-chan struct{} {
	f.noticeAt.Store(f.bytes.Load() + bytes)
	return f.notice
}

// FreeFiles returns how many files can still be made on the disk of the folder dir, and how many it has room for in
// all. ok is false if that is not known. While the machine's disk does not answer, it returns what it returned last.
func (f *FS) FreeFiles(dir string) (files, total int64, ok bool) {
	s, err := f.spaceIn(dir)
	return s.files, s.allFiles, err == nil && s.allFiles > 0
}

// FileOp is a kind of operation that changes the disk.
type FileOp string

const (
	OpCreate FileOp = "create" // also opening for writing, and reusing
	OpWrite  FileOp = "write"
	OpSync   FileOp = "sync"
	OpLink   FileOp = "link"
	OpRename FileOp = "rename"
	OpRemove FileOp = "remove"
	OpMkdir  FileOp = "mkdir"
)

// change runs an operation on the names of the base, and notes what has become of them in f.unsynced, with do: Catch must
// not see the one without the other. If the file system is fenced already, or because do has failed,
// change returns the overlay, and the caller runs the operation there.
func (f *FS) change(op FileOp, name string, do func() error) (*overlay, error) {
	if over := f.fenced.Load(); over != nil {
		return over, nil
	}
	f.busy(0)
	err := f.retried(func() error {
		if err := f.refused(op, 0); err != nil {
			return err
		}
		f.still.RLock()
		defer f.still.RUnlock()
		return do()
	})
	if err == nil || isAnswer(op, err) {
		return nil, err
	}
	return f.fail(fmt.Errorf("%s %s: %w", op, name, err)), nil
}

// isAnswer reports whether an error is an answer, such as that a file does not exist, and not a failure of the disk.
// Creating a file in a folder that is gone counts as a failure, since neither library goes on after it.
func isAnswer(op FileOp, err error) bool {
	switch op {
	case OpRemove:
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ENOTEMPTY)
	case OpRename:
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist)
	case OpLink: // Pebble copies where links are not possible
		return errors.Is(err, os.ErrNotExist) || errors.Is(err, os.ErrExist) ||
			errors.Is(err, syscall.EXDEV) || errors.Is(err, syscall.EPERM) || errors.Is(err, errors.ErrUnsupported)
	}
	return false
}

// Create is part of vfs.FS.
func (f *FS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	var file vfs.File
	var extent *extent
	over, err := f.change(OpCreate, name, func() (err error) {
		if file, err = f.base.Create(name, category); err == nil {
			extent = f.unsynced.created(name)
		}
		return err
	})
	if over != nil {
		return over.create(name), nil
	}
	if err != nil {
		return nil, err
	}
	x := f.opened(file, name, true)
	x.extent = extent
	x.prefix = f.prefixes.created(name, f.PathBase(name))
	x.log = f.log(file, name)
	f.madeFile(name)
	return x, nil
}

// OpenReadWrite is part of vfs.FS.
func (f *FS) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	var file vfs.File
	var extent *extent
	over, err := f.change(OpCreate, name, func() (err error) {
		if file, err = f.base.OpenReadWrite(name, category, opts...); err != nil || f.unsynced == nil {
			return err
		}
		info, err := file.Stat()
		if err != nil {
			return errors.Join(err, file.Close())
		}
		extent = f.unsynced.opened(name, info.Size())
		return nil
	})
	if over != nil {
		return over.openReadWrite(name)
	}
	if err != nil {
		return nil, err
	}
	x := f.opened(file, name, true)
	f.prefixes.removed(name) // it may be written over
	x.extent = extent
	return x, nil
}

// ReuseForWrite is part of vfs.FS. In memory the old file is removed and a new one made.
func (f *FS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	var file vfs.File
	var extent *extent
	renamed := false
	if over := f.unlist(oldname); over != nil {
		return over.reuseForWrite(oldname, newname)
	}
	over, err := f.change(OpCreate, newname, func() (err error) {
		if renamed {
			file, err = f.base.OpenReadWrite(newname, category)
		} else if file, err = f.base.ReuseForWrite(oldname, newname, category); short(err) {
			_, gone := f.base.Stat(oldname) // it may have been renamed, and not opened
			renamed = errors.Is(gone, os.ErrNotExist)
		}
		if err == nil {
			f.unsynced.removed(oldname)
			extent = f.unsynced.created(newname)
		}
		return err
	})
	if over != nil {
		return over.reuseForWrite(oldname, newname)
	}
	if err != nil {
		return nil, err
	}
	f.forget(oldname)
	x := f.opened(file, newname, true)
	x.extent = extent
	f.prefixes.removed(oldname)
	x.prefix = f.prefixes.created(newname, f.PathBase(newname))
	x.log = f.log(file, newname)
	f.madeFile(newname)
	return x, nil
}

// Open is part of vfs.FS.
func (f *FS) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if over := f.fenced.Load(); over != nil {
		return over.open(name, opts...)
	}
	if err := f.unreadable("open", name); err != nil {
		return nil, err
	}
	var file vfs.File
	err := f.look(func() (err error) {
		file, err = f.base.Open(name, opts...)
		return err
	})
	if err != nil {
		return nil, err
	}
	x := f.opened(file, name, false)
	if synced := f.prefixes.of(name); synced.length > 0 {
		return verified(x, synced)
	}
	return x, nil
}

// OpenDir is part of vfs.FS.
func (f *FS) OpenDir(name string) (vfs.File, error) {
	if over := f.fenced.Load(); over != nil {
		return over.openDir(name)
	}
	if err := f.unreadable("open", name); err != nil {
		return nil, err
	}
	var file vfs.File
	err := f.look(func() (err error) {
		file, err = f.base.OpenDir(name)
		return err
	})
	if err != nil {
		return nil, err
	}
	return f.opened(file, name, false), nil
}

// Link is part of vfs.FS.
func (f *FS) Link(oldname, newname string) error {
	over, err := f.change(OpLink, newname, func() error {
		err := f.base.Link(oldname, newname)
		if err == nil {
			f.unsynced.entered(newname)
		}
		return err
	})
	if over != nil {
		return over.link(oldname, newname)
	}
	return err
}

// Remove is part of vfs.FS.
func (f *FS) Remove(name string) error {
	if over := f.unlist(name); over != nil {
		return over.remove(name)
	}
	over, err := f.change(OpRemove, name, func() error { return f.base.Remove(name) })
	if over != nil {
		return over.remove(name)
	}
	if err == nil {
		f.forget(name)
		f.unsynced.removed(name)
		f.prefixes.removed(name)
	}
	return err
}

// RemoveAll is part of vfs.FS.
func (f *FS) RemoveAll(name string) error {
	over, err := f.change(OpRemove, name, func() error { return f.base.RemoveAll(name) })
	if over != nil {
		over.removeAll(name)
	} else if err == nil {
		f.unsynced.removed(name)
	}
	return err
}

// Rename is part of vfs.FS.
func (f *FS) Rename(oldname, newname string) error {
	over, err := f.change(OpRename, newname, func() error {
		err := f.base.Rename(oldname, newname)
		if err == nil {
			f.unsynced.renamed(oldname, newname)
		}
		return err
	})
	if over != nil {
		return over.rename(oldname, newname)
	}
	if err == nil {
		f.prefixes.removed(oldname)
		f.prefixes.removed(newname)
	}
	return err
}

// MkdirAll is part of vfs.FS.
func (f *FS) MkdirAll(dir string, perm os.FileMode) error {
	over, err := f.change(OpMkdir, dir, func() error { return f.base.MkdirAll(dir, perm) })
	if over != nil {
		return over.mkdirAll(dir)
	}
	return err
}

// Lock is part of vfs.FS. Its errors are the caller's: a lock that somebody else holds says nothing about the disk.
func (f *FS) Lock(name string) (lock io.Closer, err error) {
	if f.fenced.Load() != nil {
		return io.NopCloser(nil), nil
	}
	err = f.look(func() (err error) {
		lock, err = f.base.Lock(name)
		return err
	})
	return lock, err
}

// List is part of vfs.FS.
func (f *FS) List(dir string) (names []string, err error) {
	if over := f.fenced.Load(); over != nil {
		return over.list(dir)
	}
	if err := f.unreadable("list", dir); err != nil {
		return nil, err
	}
	err = f.look(func() (err error) {
		names, err = f.base.List(dir)
		return err
	})
	return names, err
}

// Stat is part of vfs.FS.
func (f *FS) Stat(name string) (info vfs.FileInfo, err error) {
	if over := f.fenced.Load(); over != nil {
		return over.stat(name)
	}
	if err := f.unreadable("stat", name); err != nil {
		return nil, err
	}
	err = f.look(func() (err error) {
		info, err = f.base.Stat(name)
		return err
	})
	return info, err
}

// PathBase is part of vfs.FS.
func (f *FS) PathBase(path string) string { return f.base.PathBase(path) }

// PathJoin is part of vfs.FS.
func (f *FS) PathJoin(elem ...string) string { return f.base.PathJoin(elem...) }

// PathDir is part of vfs.FS.
func (f *FS) PathDir(path string) string { return f.base.PathDir(path) }

// Unwrap is part of vfs.FS.
func (f *FS) Unwrap() vfs.FS { return f.base }
