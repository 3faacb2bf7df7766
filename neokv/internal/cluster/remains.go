package cluster

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

// Remains are a data folder that no cluster uses, as a start reads it before it opens a store.
type Remains struct {
	Format  int
	Cluster string // its id
	Copy    string
	Start   uint64
	Closed  bool
	Refused []error // why no start takes the folder as it is
	Damaged error   // what is wrong with the record
	Shape   settings.ClusterKnobs
	Places  Places

	folder *folder
}

// ReadRemains reads a folder. It changes nothing there. The error says that it is no folder that this program reads.
func ReadRemains(fsys *disk.FS, dir string) (*Remains, error) {
	f := &folder{fs: fsys, dir: dir}
	r, err := readRecord(fsys, dir)
	half := f.checkFinished()
	switch {
	case r == nil && half != nil: // which tells more than that the record is missing
		err = half
	case err == nil && r == nil:
		err = fmt.Errorf("folder %s has no %s: it is no data folder", dir, RecordName)
	}
	if err != nil {
		return nil, err
	}
	x := &Remains{Format: r.Format, Cluster: r.Cluster, Copy: r.Copy, Start: r.Boot, Closed: r.Journal == 0, folder: f}
	for _, err := range []error{half, f.checkClean(false)} {
		if err != nil {
			x.Refused = append(x.Refused, err)
		}
	}
	x.Damaged = f.take(r, settings.ClusterKnobs{}, "")
	if x.Damaged != nil && (r.Format != keys.FormatVersion || f.shape.Stores < 1 || f.shape.Stores > 1<<10) {
		return nil, x.Damaged
	}
	c := &core{folder: f, settings: settings.Default(), identity: f.cluster, copy: f.copy,
		roster: f.roster}
	x.Shape, c.settings.Cluster = f.shape, f.shape
	b := &boots{core: c}
	places := new(placeSet)
	makePlaces(&placeParts{core: c, boots: b, places: places})
	x.Places = places.all()
	for _, n := range x.Places {
		n.fs = fsys
	}
	b.survey(x.Places)
	return x, nil
}

// ReplayJournal completes the logs, in memory, with what only the journal has.
func (x *Remains) ReplayJournal() error {
	o := disk.JournalOptions{FS: x.folder.fs, Dir: x.folder.journal(), Needed: x.folder.journaled,
		Logs: make(map[uint16]string), Lost: func(uint16) {}}
	for _, n := range x.Places {
		o.Logs[uint16(n.id)] = n.At().Logs
	}
	return disk.ReplayJournal(o)
}

// Inspect opens the database of a store that does not run. note gets what is found damaged later.
func (n *Place) Inspect(note func(error)) (db *store.Inspection, wrong []error, err error) {
	return store.OpenInspection(store.Options{
		ID: n.id, FS: n.fs, Dir: n.dir, WALDir: n.walDir, Cluster: n.identity, Founders: n.founders(),
		Settings: n.settings, Wiped: n.wiped,
	}, note)
}

// LockToRead locks a folder, unless nobody can have locked it.
func LockToRead(dir string) (io.Closer, error) {
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
