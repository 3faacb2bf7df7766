package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/fault"
	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/seam"
	"neokv.dev/neokv/settings"
)

// Image is the disks of a cluster, frozen at one instant: see neokv.Image. It does not change.
type Image struct {
	cluster  [16]byte
	copy     string // see disk.StoreRecord.Copy
	settings settings.Settings
	roster   roster
	advanced time.Duration
	dirs     []string // the folder of each store on its disk
	disks    []*disk.FS
}

// OpenImage reads a folder that no cluster uses into memory.
func OpenImage(fsys vfs.FS, dir string) (image *Image, err error) {
	defer func() {
		if err != nil {
			image, err = nil, fmt.Errorf("image: %w", err)
		}
	}()
	r, err := readRecord(fsys, dir)
	switch {
	case err != nil:
		return nil, err
	case r == nil:
		return nil, fmt.Errorf("folder %s has no %s", dir, RecordName)
	case r.WALDir != "":
		return nil, fmt.Errorf("folder %s has its write-ahead logs in %s: back the cluster up", dir, r.WALDir)
	}
	lock, err := fsys.Lock(fsys.PathJoin(dir, lockName))
	if err != nil {
		return nil, fmt.Errorf("folder %s is in use: %w", dir, err)
	}
	defer func() { err = errors.Join(err, lock.Close()) }()
	f := &folder{fs: fsys, dir: dir}
	if err := errors.Join(f.checkFinished(), f.checkClean(false), f.take(r, settings.ClusterKnobs{}, "")); err != nil {
		return nil, err
	}
	if f.journaled != 0 {
		return nil, fmt.Errorf("folder %s was not closed cleanly: start and stop it once", dir)
	}
	image = &Image{cluster: f.cluster, copy: f.copy, settings: settings.Default()}
	image.settings.Cluster = f.shape
	image.roster = f.roster
	for _, id := range f.roster.all(f.shape.Stores) {
		name := id.RaftAddress()
		to := disk.Mem()
		if err := copyFolder(fsys, fsys.PathJoin(dir, name), to, "/"+name); err != nil {
			return nil, err
		}
		image.disks, image.dirs = append(image.disks, to), append(image.dirs, "/"+name)
	}
	return image, nil
}

// copyFolder copies a folder, with all in it, from one file system to another.
func copyFolder(from vfs.FS, dir string, to vfs.FS, as string) error {
	names, err := from.List(dir)
	if err == nil {
		err = to.MkdirAll(as, 0o755)
	}
	for _, name := range names {
		if err != nil {
			return err
		}
		name, as := from.PathJoin(dir, name), to.PathJoin(as, name)
		var info vfs.FileInfo
		if info, err = from.Stat(name); err != nil {
			return err
		}
		if info.IsDir() {
			err = copyFolder(from, name, to, as)
		} else {
			err = copyFile(from, name, to, as)
		}
	}
	return err
}

func copyFile(from vfs.FS, name string, to vfs.FS, as string) error {
	r, err := from.Open(name)
	if err != nil {
		return err
	}
	w, err := to.Create(as, vfs.WriteCategoryUnspecified)
	if err == nil {
		_, err = io.Copy(w, r)
		err = errors.Join(err, w.Close())
	}
	return errors.Join(err, r.Close())
}

// Settings returns the settings of the cluster of which the image was taken.
func (i *Image) Settings() settings.Settings { return i.settings }

// snapshot is Cluster.Snapshot.
func (a *backups) snapshot(ctx context.Context) (image *Image, err error) {
	switch {
	case a.folder != nil:
		return nil, errors.New("snapshot: the cluster is not in memory; Backup copies it to a folder, which OpenImage reads")
	case a.hooks.JournalBytes != nil:
		return nil, errors.New("snapshot: the stores share a journal")
	}
	err = a.power.change(ctx, func() error {
		all := a.places.all()
		errs := make([]error, len(all))
		var wg sync.WaitGroup
		for i, n := range all {
			if s := n.store.Load(); s != nil && n.diskIsGood() {
				wg.Go(func() { errs[i] = s.Flush(ctx, false) })
			}
		}
		wg.Wait()
		image = &Image{cluster: a.identity, copy: a.copy, settings: a.settings, roster: a.places.roster(a.founders()),
			advanced: time.Duration(a.advanced.Load())}
		image.settings.Cluster.Stores = len(all)
		disks := make([]*disk.FS, len(all))
		for i, n := range all {
			disks[i], image.dirs = n.FS(), append(image.dirs, n.dir)
		}
		image.disks = disk.Freeze(disks)
		return errors.Join(errs...)
	})
	if err != nil {
		return nil, fmt.Errorf("snapshot: %w", err)
	}
	return image, nil
}

// diskIsGood reports whether a store runs here whose disk does what it is asked: a flush may neither hang nor fail.
func (n *Place) diskIsGood() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.down && n.failure == nil && n.faults.process == "" && n.faults.drive == (fault.Drive{})
}

// checkFrom returns the settings for a cluster that starts from an image, or an error if it cannot start so.
func (config *Config) checkFrom(hooks *seam.Hooks) (settings.Settings, error) {
	from := config.From
	s := from.settings
	if config.Settings != nil {
		s = *config.Settings
		s.Cluster = from.settings.Cluster
	}
	asked, have := shape(settings.ClusterKnobs{
		Stores: config.Stores, Replicas: config.Replicas, Regions: config.Regions,
	}, from.settings.Cluster), from.settings.Cluster
	switch {
	case config.Dir != "":
		return s, fmt.Errorf("folder %s: a cluster that starts from an image is in memory", config.Dir)
	case hooks.JournalBytes != nil:
		return s, errors.New("a cluster that starts from an image has no journal")
	case asked != have:
		return s, fmt.Errorf("%d stores, %d replicas, %d regions: the image has %d, %d and %d",
			asked.Stores, asked.Replicas, asked.Regions, have.Stores, have.Replicas, have.Regions)
	}
	return s, nil
}
