package disk

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// StoreRecordName is the name of a store's record in the store's folder.
const StoreRecordName = "store.json"

// StoreRecord is what a store's folder must have. The file holds it as JSON and is always written whole. It lists the
// write-ahead logs and manifests, since the engine's manifest names no log that was made after it was written, and
// nothing names the manifest but a marker that may be old, too. All other files Pebble finds missing by itself.
type StoreRecord struct {
	Cluster string `json:"cluster"` // its id, hex
	// Copy names the backup in which this folder was made, hex; empty in a folder that is the original. A backup has what
	// a store had promised at some time, and the start numbers of that time tell nobody that it has promised more since.
	Copy  string `json:"copy,omitempty"`
	Store uint16 `json:"store"`
	// Boot is the last boot of the cluster in which the store has taken part: a start of the process, counted from 1.
	Boot uint64 `json:"boot"`
	// Boots has the same of each store, as this one knows it. Boots only grow, so none of these numbers is ever too large.
	Boots map[uint16]uint64 `json:"boots"`
	Files []ListedFile      `json:"files"`
	// Wiped says which wipe of the store the folder is of, nil if the store was never wiped.
	Wiped *Wiped `json:"wiped,omitempty"`
	Sum   uint32 `json:"sum"` // CRC-32C of the JSON text without indents, with a sum of 0
}

// Wiped is what a store's folder has of the wipe with which it began: see topology.Wipe.
type Wiped struct {
	Nth   uint64 `json:"nth"`
	Floor uint64 `json:"floor"`
	Nonce uint64 `json:"nonce"` // drawn when the folder was emptied
	// Empty: the store has not taken part in anything with this folder. All else in it is to be deleted.
	Empty bool `json:"empty,omitempty"`
}

// ListedFile is a log in the folder of the logs, or a manifest in the folder of the engine.
type ListedFile struct {
	Name  string `json:"name"`
	Bytes int64  `json:"bytes"` // so many bytes at its beginning were synced when the record was written
	Sum   uint32 `json:"sum"`   // their CRC-32C
}

// Places are the folders of a store.
type Places struct{ Store, Engine, Logs string }

// of returns the folder of a listed file.
func (p Places) of(name string) string {
	if strings.HasSuffix(name, ".log") {
		return p.Logs
	}
	return p.Engine
}

// lists reports whether a path is that of a file for the record.
func (p Places) lists(dir, base string) bool {
	return dir == p.Logs && strings.HasSuffix(base, ".log") || dir == p.Engine && strings.HasPrefix(base, "MANIFEST-")
}

// Sum goes on with the CRC-32C of a file, 0 at first, by its next bytes.
func Sum(sum uint32, next []byte) uint32 { return crc32.Update(sum, castagnoli, next) }

// Checksum returns the CRC-32C of a value as JSON. A record of a folder has one of itself, so that no flipped bit is
// taken for another number.
func Checksum(v any) uint32 {
	text, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return crc32.Checksum(text, castagnoli)
}

// ReadStoreRecord reads the record in a store's folder. The error is os.ErrNotExist if there is none.
func ReadStoreRecord(fs vfs.FS, dir string) (i StoreRecord, err error) {
	path := fs.PathJoin(dir, StoreRecordName)
	text, err := ReadFile(fs, path)
	if err != nil {
		return StoreRecord{}, err
	}
	if err := json.Unmarshal(text, &i); err != nil {
		return StoreRecord{}, fmt.Errorf("%s: damaged: %w", path, err)
	}
	have := i.Sum
	if i.Sum = 0; Checksum(i) != have {
		return StoreRecord{}, fmt.Errorf("%s: damaged: its checksum does not fit", path)
	}
	return i, nil
}

// WriteStoreRecord writes the record of a store that nobody uses, with its checksum.
func WriteStoreRecord(fs vfs.FS, dir string, r StoreRecord) error {
	r.Sum = 0
	r.Sum = Checksum(r)
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return WriteFile(fs, dir, StoreRecordName, append(text, '\n'))
}

// Missing returns an error that names a listed file which is not there.
func (i *StoreRecord) Missing(fs vfs.FS, at Places) error {
	for _, l := range i.Files {
		path := fs.PathJoin(at.of(l.Name), l.Name)
		if _, err := fs.Stat(path); errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("%s is missing", path)
		} else if err != nil {
			return err
		}
	}
	return nil
}

// keptRecord is the record of a store whose file system is in use.
//
// Pebble syncs the folder of a log or manifest that it has made before it relies on it. The record is written then,
// before that sync returns. So no write is acknowledged that is in a log which the record does not list; and it lists
// no name that a power cut takes back. It is written without a file before that file is removed. A new log costs two
// syncs, and so does the removal of one; a write in a log costs none.
type keptRecord struct {
	at Places

	mu      sync.Mutex  // held while it is written
	now     StoreRecord // but for its files
	files   map[string]bool
	fresh   map[string]bool // of which the folder has not been synced yet
	opening bool            // the store opens, so nobody relies on its new files yet
	dirty   bool
}

// Keep makes the file system keep the record of a store: of the folders at, as it was. The caller calls it before it
// opens any file. The store opens from now until Enter is called.
func (f *FS) Keep(at Places, was StoreRecord) {
	at = Places{f.PathJoin(at.Store), f.PathJoin(at.Engine), f.PathJoin(at.Logs)}
	v := &keptRecord{at: at, now: was, files: make(map[string]bool), fresh: make(map[string]bool), opening: true}
	v.now.Boots = maps.Clone(was.Boots)
	for _, l := range was.Files {
		v.files[l.Name] = true
		f.prefixes.known(f.PathJoin(at.of(l.Name), l.Name), summed{l.Bytes, l.Sum})
	}
	f.record = v
}

// Enter notes that the store takes part in a boot, unless boot is 0, and in which boots others have taken part. A store
// that takes part is not empty any more. Enter returns when the record is synced.
func (f *FS) Enter(boot uint64, others map[uint16]uint64) error {
	v := f.record
	v.mu.Lock()
	defer v.mu.Unlock()
	v.opening = false
	v.now.Boot = max(v.now.Boot, boot)
	if w := v.now.Wiped; w != nil && boot > 0 {
		begun := *w
		begun.Empty = false
		v.now.Wiped = &begun
	}
	boots := map[uint16]uint64{v.now.Store: v.now.Boot}
	for _, m := range []map[uint16]uint64{v.now.Boots, others} {
		for id, b := range m {
			boots[id] = max(boots[id], b)
		}
	}
	v.now.Boots = boots
	return f.writeRecord()
}

// Empty deletes all that a store has in its folders, of which nobody uses anything, but for the store's record, which
// becomes r. That is written first: so what a crash leaves is of a store that is empty. Empty returns when all of it is
// durable.
func (f *FS) Empty(at Places, r StoreRecord) error {
	if err := MakeDir(f, at.Store); err != nil {
		return err
	}
	if err := WriteStoreRecord(f, at.Store, r); err != nil {
		return err
	}
	f.Keep(at, r)
	folders := []string{at.Engine, at.Logs, at.Store}
	for i, dir := range folders {
		names, err := f.List(dir)
		if errors.Is(err, os.ErrNotExist) || err == nil && i > 0 && dir == folders[i-1] {
			continue
		}
		for _, name := range names {
			if dir == at.Store && name == StoreRecordName {
				continue
			}
			path := f.PathJoin(dir, name)
			info, statErr := f.Stat(path)
			if statErr == nil && info.IsDir() {
				err = errors.Join(err, f.RemoveAll(path))
			} else {
				err = errors.Join(err, f.Remove(path)) // which forgets what is known of the file
			}
		}
		if err != nil {
			return err
		}
		if err := SyncDir(f, dir); err != nil {
			return err
		}
	}
	return nil
}

// Seal writes the record of a store that has closed: what is synced of its files is all that they have.
func (f *FS) Seal() error {
	v := f.record
	if v == nil {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	return f.writeRecord()
}

// writeRecord writes the file, durably. An error fences the file system. The caller holds the record's mutex.
func (f *FS) writeRecord() error { return f.writeRecordWithout("") }

// writeRecordWithout is writeRecord for a record that does not list a file.
func (f *FS) writeRecordWithout(left string) error {
	v := f.record
	if err := f.Failed(); err != nil {
		return err
	}
	now := v.now
	now.Files = nil
	for _, name := range slices.Sorted(maps.Keys(v.files)) {
		if name == left {
			continue
		}
		synced := f.prefixes.of(f.PathJoin(v.at.of(name), name))
		now.Files = append(now.Files, ListedFile{Name: name, Bytes: synced.length, Sum: synced.sum})
	}
	err := WriteStoreRecord(f, v.at.Store, now)
	if err == nil {
		err = f.Failed() // then nothing of it may have reached the disk
	}
	if err == nil {
		v.dirty = false
		return nil
	}
	f.fail(err)
	return err
}

// madeFile notes a new file.
func (f *FS) madeFile(path string) {
	v := f.record
	if v == nil || !v.at.lists(f.PathDir(path), f.PathBase(path)) {
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.fresh[f.PathBase(path)] = true
}

// freshIn returns the new files of a folder that is about to be synced.
func (f *FS) freshIn(dir string) (names []string) {
	v := f.record
	if v == nil || dir != v.at.Logs && dir != v.at.Engine {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	for name := range v.fresh {
		if v.at.of(name) == dir {
			names = append(names, name)
		}
	}
	return names
}

// settled lists files whose folder has been synced.
func (f *FS) settled(names []string) {
	if len(names) == 0 {
		return
	}
	v := f.record
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, name := range names {
		if v.fresh[name] {
			delete(v.fresh, name)
			v.files[name], v.dirty = true, true
		}
	}
	if v.dirty && !v.opening {
		_ = f.writeRecord() // or the file system is fenced
	}
}

// unlist takes a file off the record, before it is removed. If the record cannot be written, since the file system has
// failed, unlist returns the overlay: there the caller removes the file, which the record on the disk still lists.
func (f *FS) unlist(path string) *overlay {
	v := f.record
	if v == nil || !v.at.lists(f.PathDir(path), f.PathBase(path)) {
		return nil
	}
	v.mu.Lock()
	name := f.PathBase(path)
	delete(v.fresh, name)
	var err error
	if v.files[name] {
		if err = f.writeRecordWithout(name); err == nil {
			delete(v.files, name)
		}
	}
	v.mu.Unlock()
	if err != nil {
		return f.fail(err)
	}
	return nil
}
