package disk

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
)

// unsynced is what a power cut would take from the machine's disk: of each file the bytes, of each folder the names,
// that no sync has covered. Crash takes it. The disk itself has everything that was written, since this process and its
// page cache live on, so only what is to go is noted here: a file that is synced takes no memory.
//
// A disk could lose more than Crash takes. The removal of a file and a new name of an old file count as durable at once,
// and so do the names that were entered before, since file systems journal names in order. Pebble relies on that: it
// removes the old marker of a manifest before it syncs the folder in which it has entered the new one. Bytes that were written over synced ones stay. Pebble and dragonboat write so
// only behind the end of what counts.
//
// A nil *unsynced, of a file system in memory, notes nothing.
type unsynced struct {
	mu    sync.Mutex
	files map[string]*extent // by path: files that have bytes beyond the last sync, or that are open for writing
	names []string           // the paths entered since the last syncs of their folders, oldest first
}

// extent is how much of a file is written and how much of that is synced.
type extent struct {
	path            string
	synced, written int64
	open            int // handles that may write
}

// opened notes a file that may be written from now on, and returns its extent. length is how long it is; all of that
// counts as synced unless the file is known here.
func (u *unsynced) opened(path string, length int64) *extent {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	e := u.files[path]
	if e == nil {
		e = &extent{path: path, synced: length, written: length}
		u.files[path] = e
	}
	e.open++
	return e
}

// created notes a new, empty file. It returns its extent.
func (u *unsynced) created(path string) *extent {
	if u == nil {
		return nil
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	e := &extent{path: path, open: 1}
	u.files[path] = e
	u.enterLocked(path)
	return e
}

// entered notes a new name.
func (u *unsynced) entered(path string) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.enterLocked(path)
}

func (u *unsynced) enterLocked(path string) {
	if !slices.Contains(u.names, path) {
		u.names = append(u.names, path)
	}
}

// wrote notes that a file has been written up to an offset.
func (u *unsynced) wrote(e *extent, end int64) {
	if u == nil || e == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	e.written = max(e.written, end)
}

// length returns how much of a file is written. What is passed to synced must have been read before the sync began.
func (u *unsynced) length(e *extent) int64 {
	if u == nil || e == nil {
		return 0
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	return e.written
}

// synced notes that a file is synced up to a length.
func (u *unsynced) synced(e *extent, length int64) {
	if u == nil || e == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	e.synced = max(e.synced, length)
	u.dropLocked(e)
}

// closed notes that a handle cannot write any more.
func (u *unsynced) closed(e *extent) {
	if u == nil || e == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	e.open--
	u.dropLocked(e)
}

// dropLocked forgets a file that nobody writes and that has lost nothing.
func (u *unsynced) dropLocked(e *extent) {
	if e.open == 0 && e.synced >= e.written && u.files[e.path] == e {
		delete(u.files, e.path)
	}
}

// syncedDir notes that the names in a folder are synced.
func (u *unsynced) syncedDir(dir string) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names = slices.DeleteFunc(u.names, func(path string) bool { return filepath.Dir(path) == filepath.Clean(dir) })
}

// removed notes that a name is gone, and those below it if it was a folder's, which is durable at once.
func (u *unsynced) removed(path string) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names = u.names[:0]
	for p := range u.files {
		if rest, err := filepath.Rel(path, p); err == nil && (rest == "." || filepath.IsLocal(rest)) {
			delete(u.files, p)
		}
	}
}

// renamed notes that a file has another name, which is durable at once.
func (u *unsynced) renamed(from, to string) {
	if u == nil {
		return
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	u.names = u.names[:0]
	delete(u.files, to)
	if e := u.files[from]; e != nil {
		delete(u.files, from)
		e.path = to
		u.files[to] = e
	}
}

// take takes from the disk what is not synced, but for what survives with a chance of percent: of a file the bytes up
// to some length, of the new names those up to one of them. It decides by random in an order that depends on nothing
// else.
func (u *unsynced) take(percent int, random *rand.Rand) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	var errs []error
	survives := func() bool { return percent >= 100 || percent > 0 && random.IntN(100) < percent }
	kept := 0
	for kept < len(u.names) && survives() {
		kept++
	}
	for _, gone := range u.names[kept:] {
		if err := os.RemoveAll(gone); err != nil {
			errs = append(errs, err)
		}
		delete(u.files, gone)
	}
	paths := make([]string, 0, len(u.files))
	for path := range u.files {
		paths = append(paths, path)
	}
	slices.Sort(paths)
	for _, path := range paths {
		e := u.files[path]
		keep := e.synced
		if e.written > e.synced && survives() {
			keep += random.Int64N(e.written-e.synced) + 1
			if percent >= 100 {
				keep = e.written
			}
		}
		if keep >= e.written {
			continue
		}
		if err := os.Truncate(path, keep); err != nil && !errors.Is(err, os.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
