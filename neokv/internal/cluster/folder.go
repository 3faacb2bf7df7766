package cluster

import (
	"cmp"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// folder is the data folder of a cluster:
//
//	cluster.json    the record: format, cluster id, shape, engine.wal_dir; and what the last start left: see boots.go
//	LOCK            held by the process that runs the cluster
//	UNSYNCED        there while a cluster runs with engine.wal_sync none: its data may be torn
//	store-N/        the files of store N
//	journal-0, -1   what the stores have written to their logs, and not synced there yet
//	backups/        what BGSAVE and SAVE have made: see save.go
//	backup-links/   while a backup is made: see backup.go
//	UNFINISHED      there while the folder itself is made, as a backup
//
// With engine.wal_dir the write-ahead logs are in another folder, named after the cluster's id:
//
//	OWNER           the path of the data folder that the logs belong to
//	store-N/        the log of store N
//	journal-0, -1   as above
type folder struct {
	fs        vfs.FS
	dir       string
	temporary bool
	cluster   [16]byte
	copy      string // see disk.StoreRecord.Copy
	shape     settings.ClusterKnobs
	roster    roster
	coming    int // so many stores more were asked for than the record has: see grow
	lock      io.Closer
	unsynced  bool
	walDir    string // engine.wal_dir as recorded, absolute; empty for none

	mu        sync.Mutex // held while the record is written
	boot      uint64     // the last boot, 0 before the first
	boots     map[uint16]uint64
	journaled uint64 // the boot whose journal is needed, 0 for none
}

// folderRecord is the content of cluster.json.
type folderRecord struct {
	Format  int    `json:"format"` // keys.FormatVersion
	Cluster string `json:"cluster"`
	Copy    string `json:"copy,omitempty"` // see disk.StoreRecord
	Stores  int    `json:"stores"`
	roster
	Replicas int    `json:"replicas"`
	Regions  int    `json:"regions"`
	WALDir   string `json:"wal_dir,omitempty"`

	Boot  uint64            `json:"boot"`  // the last start of the cluster, counted from 1
	Boots map[uint16]uint64 `json:"boots"` // the last one in which each store has taken part
	// Journal is the start whose journal the stores need, 0 for none: after a clean stop the logs have all.
	Journal uint64 `json:"journal"`
	Sum     uint32 `json:"sum"` // disk.Checksum of the record, with a sum of 0
}

// roster is which stores a cluster has, in a record and beside the number of stores. Numbers count from 1, and none is
// given twice.
type roster struct {
	Founders int                `json:"founders,omitempty"` // with how many stores the cluster began; 0 for all
	Gone     []topology.StoreID `json:"gone,omitempty"`     // the numbers of those that were removed, ascending
}

// last returns the largest number of a store of a cluster that has so many now.
func (r *roster) last(stores int) topology.StoreID { return topology.StoreID(stores + len(r.Gone)) }

// all returns the numbers of the stores of a cluster that has so many now.
func (r *roster) all(stores int) (ids []topology.StoreID) {
	for id := topology.StoreID(1); id <= r.last(stores); id++ {
		if !slices.Contains(r.Gone, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// founders returns with how many stores a cluster began that has so many now.
func (r *roster) founders(stores int) int { return cmp.Or(r.Founders, stores) }

const (
	RecordName   = "cluster.json"
	lockName     = "LOCK"
	unsyncedName = "UNSYNCED"
	ownerName    = "OWNER"
)

// openFolder locks dir, or a new temporary folder if dir is empty, and reads its record. A new folder gets a record,
// which is synced when openFolder returns. fsys is the machine's file system, except in tests.
func openFolder(
	fsys vfs.FS, dir string, asked settings.ClusterKnobs, s settings.Settings, discard bool, identity func() [16]byte,
) (f *folder, err error) {
	f = &folder{fs: fsys, dir: dir}
	if dir == "" {
		f.dir, err = os.MkdirTemp("", "neokv-")
		f.temporary = err == nil
	} else if f.dir, err = filepath.Abs(dir); err == nil {
		err = disk.MakeDir(fsys, f.dir)
	}
	if err != nil {
		return nil, fmt.Errorf("data folder: %w", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close(false))
		}
	}()
	f.lock, err = insist(func() (io.Closer, error) { return fsys.Lock(filepath.Join(f.dir, lockName)) },
		func(err error) bool { return !errors.As(err, new(*fs.PathError)) })
	if err != nil {
		f.temporary = false
		if path := new(fs.PathError); errors.As(err, &path) {
			return f, fmt.Errorf("folder %s: %w", f.dir, err)
		}
		return f, fmt.Errorf("folder %s is in use by another process", f.dir)
	}
	if err := f.checkClean(discard); err != nil {
		return f, err
	}
	if err := f.checkFinished(); err != nil {
		return f, err
	}
	if wal := s.Engine.WALDir; wal != "" {
		if s.Engine.WALDir, err = filepath.Abs(wal); err != nil {
			return f, err
		}
	}
	have, err := readRecord(f.fs, f.dir)
	switch {
	case err != nil:
	case have == nil:
		err = f.create(asked, s, identity())
	default:
		err = f.take(have, asked, s.Engine.WALDir)
	}
	if err == nil {
		err = errors.Join(f.sweepBackups(), f.sweepGone())
	}
	if err == nil && s.Engine.WALSync == "none" { // last: a folder that was refused must not stay marked
		f.unsynced = true
		err = disk.WriteFile(f.fs, f.dir, unsyncedName, nil)
	}
	return f, err
}

// create gives a new folder its record.
func (f *folder) create(asked settings.ClusterKnobs, s settings.Settings, identity [16]byte) error {
	f.shape = shape(asked, s.Cluster)
	s.Cluster = f.shape
	if err := s.Validate(); err != nil {
		return err
	}
	f.cluster, f.walDir = identity, s.Engine.WALDir
	if f.walDir != "" {
		if err := f.ownLogs(); err != nil {
			return err
		}
	}
	return f.write()
}

// insist calls get for up to a second, because a process that was killed a moment ago may still hold what get wants. It
// tries again only after an error for which held returns true.
func insist[T any](get func() (T, error), held func(error) bool) (T, error) {
	for deadline := time.Now().Add(time.Second); ; time.Sleep(10 * time.Millisecond) {
		got, err := get()
		if err == nil || !held(err) || time.Now().After(deadline) {
			return got, err
		}
	}
}

// checkFinished refuses a folder that is half a backup.
func (f *folder) checkFinished() error {
	_, err := f.fs.Stat(filepath.Join(f.dir, unfinishedName))
	if err == nil || strings.HasSuffix(f.dir, unfinished) { // the name is there before the mark
		return fmt.Errorf("folder %s is a backup that did not end: remove it, and make another one", f.dir)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// sweepBackups removes what the end of the process has left of a backup.
func (f *folder) sweepBackups() error {
	left := f.links()
	names, err := f.fs.List(f.backups())
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, name := range names {
		if strings.HasSuffix(name, unfinished) {
			left = append(left, filepath.Join(f.backups(), name))
		}
	}
	return removeAll(f.fs, left)
}

// checkClean refuses a folder that was not closed cleanly under engine.wal_sync none, or empties it if discard is set.
func (f *folder) checkClean(discard bool) error {
	marker := filepath.Join(f.dir, unsyncedName)
	_, err := f.fs.Stat(marker)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case !discard:
		return fmt.Errorf("folder %s was not closed cleanly under engine.wal_sync none, its data may be torn: "+
			"--discard starts it empty", f.dir)
	}
	if err := f.empty(); err != nil {
		return err
	}
	return f.fs.Remove(marker)
}

// empty removes the data, and at last the record. It removes write-ahead logs in another folder only if the OWNER file
// there names this folder: if this one is a copy, those logs belong to the original. The next record has a new cluster
// id, and so names new logs.
func (f *folder) empty() error {
	stale, err := storeFolders(f.fs, f.dir)
	if err != nil {
		return err
	}
	stale = append(stale, "journal-0", "journal-1")
	for i, name := range stale {
		stale[i] = filepath.Join(f.dir, name)
	}
	if r, err := readRecord(f.fs, f.dir); err == nil && r != nil && r.WALDir != "" {
		logs := filepath.Join(r.WALDir, r.Cluster)
		switch owner, err := readOwner(f.fs, logs); {
		case err != nil && !errors.Is(err, fs.ErrNotExist):
			return fmt.Errorf("folder %s: owner of the write-ahead logs in %s: %w", f.dir, logs, err)
		case err == nil && owner == f.dir:
			stale = append(stale, logs)
		}
	}
	for _, name := range stale {
		if err := f.fs.RemoveAll(name); err != nil {
			return err
		}
	}
	if err := f.fs.Remove(filepath.Join(f.dir, RecordName)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// storeFolders returns the names of the stores' folders in dir.
func storeFolders(fsys vfs.FS, dir string) ([]string, error) {
	names, err := fsys.List(dir)
	slices.Sort(names)
	return slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, "store-") }), err
}

// readRecord returns the folder's record, nil if it has none.
func readRecord(fsys vfs.FS, dir string) (*folderRecord, error) {
	path := filepath.Join(dir, RecordName)
	text, err := disk.ReadFile(fsys, path)
	if errors.Is(err, fs.ErrNotExist) {
		names, err := storeFolders(fsys, dir)
		if err == nil && len(names) > 0 {
			err = fmt.Errorf("folder %s has no %s but %s: its record was removed", dir, RecordName, names[0])
		}
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	r := new(folderRecord)
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return r, nil
}

// take gives f the shape that the record r has, and finds the folder's logs. It returns an error if the folder has
// another format than keys.FormatVersion, or if the caller asked for another shape or other logs.
func (f *folder) take(r *folderRecord, asked settings.ClusterKnobs, walDir string) error {
	if r.Format != keys.FormatVersion {
		return fmt.Errorf("folder %s has format %d; this program reads format %d", f.dir, r.Format, keys.FormatVersion)
	}
	id, err := hex.DecodeString(r.Cluster)
	if err != nil || len(id) != len(f.cluster) {
		return fmt.Errorf("%s: cluster id %q: want %d hex digits",
			filepath.Join(f.dir, RecordName), r.Cluster, 2*len(f.cluster))
	}
	copy(f.cluster[:], id)
	f.shape, f.walDir = settings.ClusterKnobs{Stores: r.Stores, Replicas: r.Replicas, Regions: r.Regions}, r.WALDir
	f.roster, f.coming = r.roster, max(0, asked.Stores-r.Stores)
	var errs []error
	check := func(name string, asked, have int) {
		if asked != 0 && asked != have {
			errs = append(errs, fmt.Errorf("folder %s was made with %d %s, asked for %d", f.dir, have, name, asked))
		}
	}
	if asked.Stores != 0 && asked.Stores < r.Stores {
		errs = append(errs, fmt.Errorf("folder %s has %d stores, asked for %d: neokv ctl drain and neokv ctl remove take "+
			"stores away while the cluster runs", f.dir, r.Stores, asked.Stores))
	}
	check("replicas", asked.Replicas, r.Replicas)
	check("regions", asked.Regions, r.Regions)
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	have := *r
	if have.Sum = 0; disk.Checksum(have) != r.Sum {
		return fmt.Errorf("%s: damaged: its checksum does not fit", filepath.Join(f.dir, RecordName))
	}
	f.boot, f.boots, f.journaled, f.copy = r.Boot, r.Boots, r.Journal, r.Copy
	return f.takeLogs(walDir)
}

// takeLogs finds the write-ahead logs of a folder that was used before. asked is the setting engine.wal_dir; if it is
// empty, the folder in the record holds.
func (f *folder) takeLogs(asked string) error {
	if asked != "" && asked != f.walDir {
		return fmt.Errorf("folder %s keeps its write-ahead logs in %s, asked for engine.wal_dir %s",
			f.dir, cmp.Or(f.walDir, "itself"), asked)
	}
	if f.walDir == "" {
		return nil
	}
	switch owner, err := readOwner(f.fs, f.logs()); {
	case err != nil:
		return fmt.Errorf("folder %s keeps its write-ahead logs elsewhere: %w", f.dir, err)
	case owner == f.dir:
		return nil
	default:
		if r, err := readRecord(f.fs, owner); err == nil && r != nil && r.Cluster == hex.EncodeToString(f.cluster[:]) {
			return fmt.Errorf("folder %s is a copy of %s, which keeps its write-ahead logs in %s: "+
				"they belong to one of them only", f.dir, owner, f.logs())
		}
		return f.ownLogs() // the folder was moved
	}
}

// readOwner returns the data folder that write-ahead logs in another folder belong to.
func readOwner(fsys vfs.FS, logs string) (dir string, err error) {
	text, err := disk.ReadFile(fsys, filepath.Join(logs, ownerName))
	return strings.TrimSuffix(string(text), "\n"), err
}

// ownLogs makes the folder of the write-ahead logs, if it is missing, and names the data folder as its owner.
func (f *folder) ownLogs() error {
	if err := disk.MakeDir(f.fs, f.logs()); err != nil {
		return fmt.Errorf("engine.wal_dir: %w", err)
	}
	return disk.WriteFile(f.fs, f.logs(), ownerName, []byte(f.dir+"\n"))
}

// logs is the folder of the cluster's write-ahead logs under engine.wal_dir.
func (f *folder) logs() string { return filepath.Join(f.walDir, hex.EncodeToString(f.cluster[:])) }

// wal is the folder of a store's write-ahead log, empty if the log is beside the data.
func (f *folder) wal(id topology.StoreID) string {
	if f.walDir == "" {
		return ""
	}
	return filepath.Join(f.logs(), id.RaftAddress())
}

// journal is the folder of the journal that the stores share, beside their logs.
func (f *folder) journal() string {
	if f.walDir == "" {
		return f.dir
	}
	return f.logs()
}

// write writes the folder's record.
func (f *folder) write() error {
	r := folderRecord{
		Format: keys.FormatVersion, Cluster: hex.EncodeToString(f.cluster[:]), Copy: f.copy,
		Stores: f.shape.Stores, roster: f.roster, Replicas: f.shape.Replicas, Regions: f.shape.Regions, WALDir: f.walDir,
		Boot: f.boot, Boots: f.boots, Journal: f.journaled,
	}
	r.Sum = disk.Checksum(r)
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	return disk.WriteFile(f.fs, f.dir, RecordName, append(text, '\n'))
}

// grow records that the cluster has one more store, and returns its number. From here on each start opens it.
func (f *folder) grow() (topology.StoreID, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was, roster := f.shape, f.roster
	f.roster.Founders = f.roster.founders(f.shape.Stores)
	f.shape.Stores++
	if err := f.write(); err != nil {
		f.shape, f.roster = was, roster
		return 0, err
	}
	return f.roster.last(f.shape.Stores), nil
}

// drop records that a store has been removed, and then removes what is left of its folder. If that fails, the next start
// does it.
func (f *folder) drop(id topology.StoreID) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.roster.Gone, id) {
		was, roster := f.shape, f.roster
		f.roster.Founders = f.roster.founders(f.shape.Stores)
		f.roster.Gone = append(slices.Clone(f.roster.Gone), id)
		slices.Sort(f.roster.Gone)
		f.shape.Stores--
		if err := f.write(); err != nil {
			f.shape, f.roster = was, roster
			return err
		}
	}
	return f.sweepGone()
}

// sweepGone removes the folders of stores that were removed.
func (f *folder) sweepGone() error {
	var left []string
	for _, id := range f.roster.Gone {
		left = append(left, f.store(id))
		if wal := f.wal(id); wal != "" {
			left = append(left, wal)
		}
	}
	return removeAll(f.fs, left)
}

// store is the folder of a store.
func (f *folder) store(id topology.StoreID) string { return filepath.Join(f.dir, id.RaftAddress()) }

// close unlocks the folder, and removes a temporary one. clean says that every store has closed without an error.
func (f *folder) close(clean bool) error {
	var errs []error
	if f.unsynced && clean {
		errs = append(errs, f.fs.Remove(filepath.Join(f.dir, unsyncedName)))
	}
	if f.lock != nil {
		errs = append(errs, f.lock.Close())
	}
	if f.temporary {
		errs = append(errs, os.RemoveAll(f.dir))
	}
	return errors.Join(errs...)
}
