package neokv

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/settings"
)

// remains are a data folder that no cluster uses, as a start reads it before it opens a store.
type remains struct {
	format  int
	cluster string // its id
	copy    string
	start   uint64
	closed  bool
	refused []error // why no start takes the folder as it is
	damaged error   // what is wrong with the record
	shape   settings.ClusterKnobs
	nodes   places

	folder *folder
}

// readRemains reads a folder. It changes nothing there. The error says that it is no folder that this program reads.
func readRemains(fsys *disk.FS, dir string) (*remains, error) {
	f := &folder{fs: fsys, dir: dir}
	r, err := readRecord(fsys, dir)
	half := f.checkFinished()
	switch {
	case r == nil && half != nil: // which tells more than that the record is missing
		err = half
	case err == nil && r == nil:
		err = fmt.Errorf("folder %s has no %s: it is no data folder", dir, recordName)
	}
	if err != nil {
		return nil, err
	}
	x := &remains{format: r.Format, cluster: r.Cluster, copy: r.Copy, start: r.Boot, closed: r.Journal == 0, folder: f}
	for _, err := range []error{half, f.checkClean(false)} {
		if err != nil {
			x.refused = append(x.refused, err)
		}
	}
	x.damaged = f.take(r, settings.ClusterKnobs{}, "")
	if x.damaged != nil && (r.Format != keys.FormatVersion || f.shape.Stores < 1 || f.shape.Stores > 1<<10) {
		return nil, x.damaged
	}
	c := &core{folder: f, settings: settings.Default(), identity: f.cluster, copy: f.copy}
	x.shape, c.settings.Cluster = f.shape, f.shape
	b := &boots{core: c}
	x.nodes = makePlaces(&placeParts{core: c, boots: b})
	for _, n := range x.nodes {
		n.fs = fsys
	}
	b.survey(x.nodes)
	return x, nil
}

// replayJournal completes the logs, in memory, with what only the journal has.
func (x *remains) replayJournal() error {
	o := disk.JournalOptions{FS: x.folder.fs, Dir: x.folder.journal(), Needed: x.folder.journaled,
		Logs: make(map[uint16]string), Lost: func(uint16) {}}
	for _, n := range x.nodes {
		o.Logs[uint16(n.id)] = n.at().Logs
	}
	return disk.ReplayJournal(o)
}

// inspect opens the database of a store that does not run. note gets what is found damaged later.
func (n *storePlace) inspect(note func(error)) (db *store.Inspection, wrong []error, err error) {
	return store.OpenInspection(store.Options{
		ID: n.id, FS: n.fs, Dir: n.dir, WALDir: n.walDir, Cluster: n.identity, Settings: n.settings,
	}, note)
}

// lockToRead locks a folder, unless nobody can have locked it.
func lockToRead(dir string) (io.Closer, error) {
	info, err := os.Stat(dir)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is no folder", dir)
	}
	name := filepath.Join(dir, lockName)
	if _, err := os.Stat(name); errors.Is(err, fs.ErrNotExist) {
		return io.NopCloser(nil), nil
	}
	lock, err := vfs.Default.Lock(name)
	switch {
	case err == nil:
		return lock, nil
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return io.NopCloser(nil), nil // who cannot write cannot run a cluster here either, and may look
	case !errors.As(err, new(*fs.PathError)):
		return nil, fmt.Errorf("folder %s is in use by another process", dir)
	}
	return nil, err
}
