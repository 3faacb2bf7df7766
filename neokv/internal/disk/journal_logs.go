package disk

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// This file has what a journal knows of the stores' logs, whose bytes it takes: how they come and go, and how they are
// synced themselves.

// walFile is a log that is journalled. The journal's mutex protects it.
type walFile struct {
	fs      *FS
	base    vfs.File // nil when closed
	name    string
	epoch   uint64 // epoch of the last segment that has bytes of it
	refs    int    // how many segments, and the pending group, have bytes of it
	pending bool   // the pending group has bytes of it
	end     int64  // where its last write ended
	written uint64 // the journal's handed at its last write
	settled uint64 // written as of its last sync
	syncing int    // how many callers sync it now
	missed  uint64 // writes since its last own sync that the journal has not; 0 for none
	lost    error  // a sync of it has failed: what the disk has of it is not known
	closed  bool   // Pebble has closed it; base stays open as long as it may need a sync
	gone    bool   // removed or recycled: nobody needs its bytes any more

	// own is held while the log itself is synced and, if that fails, until its store is fenced. The system reports an
	// error to one caller only: another one would take the next sync for a good one. It is locked before the journal's
	// mutex.
	own sync.Mutex
}

// partBytes is how many bytes of a log are synced at once.
const partBytes = 1 << 20

// share is a store's part in a journal.
type share struct {
	j     *Journal
	store uint16
	dir   string
	logs  map[string]*walFile // by name, the existing ones; protected by the journal's mutex
}

// Share makes the journal responsible for the logs of this store: the files *.log directly in dir that are created or
// reused from now on. The caller calls it before it opens any file for writing. If the store has shared the journal
// before, through another FS, that FS must have been closed or crashed.
func (f *FS) Share(j *Journal, store uint16, dir string) error {
	j.mu.Lock()
	former := j.stores[store]
	var err error
	var unused []vfs.File
	if former != nil {
		if former.base == f.base { // else a crash has left this file system, with the journal's bytes
			err = j.complete(former, dir)
		}
		if err == nil { // else only the journal may have what its logs lack, and a crash of all stores needs that
			j.append(recordForget, store, "", 0, nil)
			unused = j.leave(former)
		}
	}
	if err == nil {
		j.stores[store] = f
		f.share = &share{j, store, f.base.PathJoin(dir), make(map[string]*walFile)}
	}
	j.mu.Unlock()
	for _, base := range unused {
		_ = base.Close() // it is synced, or of a disk that a crash has replaced
	}
	if err != nil {
		return fmt.Errorf("journal: store %d, as it was before: %w", store, err)
	}
	// This sync lets no later crash find anything of the store's former life that the store itself does not. If the
	// journal is broken, complete has seen to that.
	_, _, _ = j.sync(nil)
	return nil
}

// Forget drops what the journal has of a store whose logs are gone for good, durably: later logs of the store may have
// the same names. A broken journal cannot: it is to be asked again when it is mended.
func (j *Journal) Forget(store uint16) error {
	j.mu.Lock()
	if j.err != nil {
		defer j.mu.Unlock()
		return j.err
	}
	var unused []vfs.File
	if former := j.stores[store]; former != nil {
		unused = j.leave(former)
		delete(j.stores, store)
	}
	j.append(recordForget, store, "", 0, nil)
	j.mu.Unlock()
	for _, base := range unused {
		_ = base.Close() // its file is gone
	}
	_, _, err := j.sync(nil)
	return err
}

// complete makes durable in a store's logs what the journal has of them, when the store starts again. former is the
// file system through which it wrote them.
func (j *Journal) complete(former *FS, dir string) error {
	logs := slices.DeleteFunc(j.logs(), func(w *walFile) bool { return w.fs != former || w.gone })
	if j.err == nil && !slices.ContainsFunc(logs, func(w *walFile) bool { return w.lost != nil }) {
		// A store that has failed or was killed left in its logs all that was acknowledged, or less than its disk said it
		// has: then this sync fails.
		return j.syncLogs(logs)
	}
	// A broken journal can't be told to forget what else it has of the logs, and of one log the disk may not have all.
	for j.leading {
		j.changed.Wait()
	}
	store := former.share.store
	own := func(fn func(journalRecord) error) error {
		return j.each(func(r journalRecord) error {
			if r.store != store {
				return nil
			}
			return fn(r)
		})
	}
	return replay(own, &JournalOptions{FS: former.base, Logs: map[uint16]string{store: dir}})
}

// leave forgets the logs of a file system that nobody uses any more and whose bytes nobody needs from the journal. It
// returns their files for the caller to close. Without it they, and all that the file system refers to, would stay
// until both segments have been used again.
func (j *Journal) leave(former *FS) (unused []vfs.File) {
	for _, w := range j.logs() {
		if w.fs != former {
			continue
		}
		w.gone = true
		if base := w.unused(); base != nil {
			unused = append(unused, base)
		}
	}
	// settle goes over a segment's list without the mutex. What it syncs at this moment is closed when it frees the
	// segment.
	left := func(w *walFile) bool { return w.fs == former && w.syncing == 0 }
	for i := range j.segments {
		j.segments[i].logs = slices.DeleteFunc(slices.Clone(j.segments[i].logs), left)
	}
	j.touched = slices.DeleteFunc(j.touched, left)
	return unused
}

// logs returns all logs with bytes in the journal.
func (j *Journal) logs() []*walFile {
	return slices.Concat(j.segments[0].logs, j.segments[1].logs, j.touched)
}

// journals reports whether a file name is that of one of the store's logs.
func (f *FS) journals(name string) bool {
	return f.share != nil && strings.HasSuffix(name, ".log") && f.base.PathDir(name) == f.share.dir
}

// log returns the walFile of a file that was just made, nil if the file is no log.
func (f *FS) log(base vfs.File, name string) *walFile {
	if !f.journals(name) {
		return nil
	}
	f.forget(name) // an earlier file of this name
	j := f.share.j
	j.mu.Lock()
	defer j.mu.Unlock()
	w := &walFile{fs: f, base: base, name: f.base.PathBase(name)}
	j.append(recordForget, f.share.store, w.name, 0, nil)
	f.share.logs[w.name] = w
	return w
}

// forget notes that the file of this name was removed.
func (f *FS) forget(name string) {
	if !f.journals(name) {
		return
	}
	name = f.base.PathBase(name)
	j := f.share.j
	j.mu.Lock()
	var base vfs.File
	if w := f.share.logs[name]; w != nil {
		delete(f.share.logs, name)
		w.gone = true
		base = w.unused()
	}
	j.mu.Unlock()
	if base != nil {
		_ = base.Close()
	}
}

// synced returns the records that the journal, which is in memory, has of the store's logs.
func (s *share) synced() (records []journalRecord) {
	s.j.mu.Lock()
	defer s.j.mu.Unlock()
	err := s.j.each(func(r journalRecord) error {
		if r.store == s.store {
			r.data = slices.Clone(r.data)
			records = append(records, r)
		}
		return nil
	})
	if err != nil {
		panic(err)
	}
	return records
}

// wrote hands over bytes that were written to a log. It waits only if far more is pending than stores write between two
// syncs.
func (w *walFile) wrote(off int64, p []byte) {
	j := w.fs.share.j
	for len(p) > 0 {
		part := p[:min(int64(len(p)), j.group/8)] // so that a group fits into a segment
		j.mu.Lock()
		if j.err != nil || w.missed > 0 {
			w.missed++
			j.mu.Unlock()
			return
		}
		if !w.pending {
			w.pending = true
			w.refs++
			j.touched = append(j.touched, w)
		}
		if j.last == w && j.endsAt() == off {
			j.handed++
			j.pending = append(j.pending, part...)
			size := j.pending[j.lastAt+4:]
			binary.BigEndian.PutUint32(size, binary.BigEndian.Uint32(size)+uint32(len(part)))
		} else {
			j.append(recordBytes, w.fs.share.store, w.name, off, part)
			j.last = w
		}
		w.written, w.end = j.handed, off+int64(len(part))
		full := int64(len(j.pending)) >= j.group
		j.mu.Unlock()
		if full {
			if took, led, _ := j.sync(nil); led {
				w.fs.count(took)
			}
		}
		p, off = p[len(part):], off+int64(len(part))
	}
}

// unused returns the log's file for the caller to close, if nobody needs it open, else nil.
func (w *walFile) unused() (base vfs.File) {
	if w.closed && w.syncing == 0 && (w.gone || w.refs == 0) {
		base, w.base = w.base, nil
	}
	return base
}

// close closes the log's file. If the journal may still have to sync it, the journal closes it later.
func (w *walFile) close() error {
	j := w.fs.share.j
	j.mu.Lock()
	if w.closed {
		j.mu.Unlock()
		return os.ErrClosed
	}
	w.closed = true
	base := w.unused()
	j.mu.Unlock()
	if base == nil {
		return nil
	}
	return base.Close()
}

// syncLogs syncs logs. One that cannot be synced fences its store.
func (j *Journal) syncLogs(logs []*walFile) error {
	var errs []error
	for _, w := range logs {
		if err := j.syncLog(w); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", OpSync, w.name, err))
		}
	}
	return errors.Join(errs...)
}

// syncLog syncs a log, unless it is gone or nothing was written to it since the last time.
func (j *Journal) syncLog(w *walFile) error {
	if w.gone || w.lost == nil && w.settled >= w.written && w.missed == 0 {
		return nil
	}
	end := w.end
	w.syncing++
	j.mu.Unlock()
	err := w.syncItself(func() error {
		if w.fs.Failed() == nil {
			if err := w.fs.refused(OpSync, 0); err != nil {
				return err
			}
		}
		start := time.Now()
		defer func() { w.fs.count(time.Since(start)) }()
		return j.syncParts(w, end)
	})
	j.mu.Lock()
	w.syncing--
	return err
}

// syncItself syncs the log by a function, which runs unless a sync of the log has failed before. If it fails, the store
// is fenced before anybody else may sync the log.
func (w *walFile) syncItself(sync func() error) error {
	j := w.fs.share.j
	w.own.Lock()
	defer w.own.Unlock()
	j.mu.Lock()
	err, written, missed := w.lost, w.written, w.missed
	j.mu.Unlock()
	if err != nil {
		return err
	}
	if err = sync(); err != nil {
		w.fs.fail(fmt.Errorf("%s %s: %w", OpSync, w.name, err))
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	switch {
	case err != nil:
		w.lost = err
	default:
		w.settled = max(w.settled, written)
		if w.missed == missed { // else there are writes that the sync may not cover
			w.missed = 0
		}
	}
	return err
}

// syncParts syncs a log of the given length, unless it is removed meanwhile. If the operating system can sync a range,
// it first does so part by part, because a group's sync waits for all that the disk has been told to write by then. The
// system reports an error only once, so an error of a part is an error of the log.
func (j *Journal) syncParts(w *walFile, length int64) error {
	for at := int64(partBytes); at < length; at += partBytes {
		j.mu.Lock()
		gone := w.gone
		j.mu.Unlock()
		if gone {
			return nil
		}
		if whole, err := w.base.SyncTo(at); whole || err != nil {
			return err
		}
	}
	return w.base.SyncData()
}
