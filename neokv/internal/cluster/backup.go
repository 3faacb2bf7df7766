package cluster

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/store"
	"neokv.dev/neokv/settings"
)

// A backup is a data folder: what the end of the process at one instant would have left of this one's, with all stores,
// and with the bytes that the journal holds in the logs. So whatever holds after kill -9 holds for it. It is made in
// these steps; an end of the process between two of them leaves a folder that no start takes.
//
//  1. DIR.unfinished, or DIR if it exists and is empty, gets the mark UNFINISHED.
//  2. disk.Catch links the files of all stores at one instant, into backup-links of the data folder.
//  3. Logs, manifests and what else is still written to are copied up to their lengths of that instant. Nobody starts
//     or kills a store meanwhile.
//  4. Tables are linked again, or copied if the folder is on another file system.
//  5. Each store's record gets the lengths and checksums of the copied logs and manifests; all folders are synced; the
//     folder gets its record, cluster.json.
//  6. DIR.unfinished becomes DIR, and loses the mark.

const (
	unfinishedName = "UNFINISHED"
	unfinished     = ".unfinished" // how the name of a folder ends in which a backup is made
	linksName      = "backup-links"
)

// Backup says what a backup has made: see neokv.Backup, whose fields it has.
type Backup struct {
	Dir   string        `json:"dir"`
	Time  time.Time     `json:"time"`     // the instant as of which it is
	Pause time.Duration `json:"pause_ns"` // how long the stores could not write to their disks
	Took  time.Duration `json:"took_ns"`  // all of it
	Files int           `json:"files"`    // of all stores
	Bytes int64         `json:"bytes"`    // their size
	// Copied has the bytes of those that are copies. The others are links to the cluster's tables.
	Copied int64 `json:"copied"`
	// Down lists the stores that did not run. The backup has what they left on their disks.
	Down []int `json:"down"`
	// Swept is the folder of an earlier backup that did not end, and is removed; empty for none.
	Swept string `json:"swept,omitempty"`
}

// ErrBackup is in the error of a backup that cannot begin because another one of the cluster goes on.
var ErrBackup = errors.New("a backup is under way")

// errDead is of a cluster in memory whose process was killed: its journal has what the logs lack. Clusters in memory
// have a journal in tests alone.
var errDead = errors.New("all stores were killed, and none has started since")

// backup is Cluster.Backup.
func (a *backups) backup(ctx context.Context, dir string) (Backup, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Backup{}, fmt.Errorf("backup: %w", err)
	}
	if a.folder != nil {
		if in, err := filepath.Rel(resolved(a.folder.dir), resolved(dir)); err == nil && filepath.IsLocal(in) {
			return Backup{}, fmt.Errorf("backup: %s is in the data folder %s; want another place", dir, a.folder.dir)
		}
	}
	return a.backupTo(ctx, vfs.Default, dir)
}

// resolved is a path without symbolic links, as far as the path exists.
func resolved(path string) string {
	if real, err := filepath.EvalSymlinks(path); err == nil {
		return real
	}
	if parent := filepath.Dir(path); parent != path {
		return filepath.Join(resolved(parent), filepath.Base(path))
	}
	return path
}

// backupTo is backup onto another file system.
func (a *backups) backupTo(ctx context.Context, to vfs.FS, dir string) (Backup, error) {
	s, err := a.begin(dir, false)
	if err != nil {
		return Backup{}, err
	}
	return a.make(ctx, s, to)
}

// make makes the backup s, and ends it.
func (a *backups) make(ctx context.Context, s *saving, to vfs.FS) (b Backup, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	done := make(chan struct{})
	go func() {
		select {
		case <-a.closing:
			cancel(ErrClosed)
		case <-done:
		}
	}()
	defer func() {
		close(done)
		cancel(nil)
		b.Took = time.Since(s.begun)
		if err != nil {
			b, err = Backup{}, fmt.Errorf("backup: %w", err)
			a.event(eventCluster, "backup to %s: %v", s.dir, err)
		} else {
			a.event(eventCluster, "backup to %s: %s, %s of them copied, in %s; the stores waited %s", s.dir,
				settings.Bytes(b.Bytes).About(), settings.Bytes(b.Copied).About(), b.Took.Round(time.Millisecond),
				b.Pause.Round(10*time.Microsecond))
		}
		a.end(s, b, err)
	}()
	x := &backupFolder{a: a, places: a.places.all(), saving: s, fs: to, dir: s.dir, buf: make([]byte, copyBytes)}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.remove())
		}
		if x.lock != nil {
			x.lock.Close()
		}
	}()
	if err := x.open(); err != nil {
		return b, err
	}
	return x.fill(ctx)
}

// fill does steps 2 to 6.
func (x *backupFolder) fill(ctx context.Context) (b Backup, err error) {
	a := x.a
	b.Dir, b.Swept, b.Down = x.dir, x.swept, []int{}
	links, err := a.makeLinks(x.places)
	if err != nil {
		return b, err
	}
	defer func() { err = errors.Join(err, removeAll(vfs.Default, links)) }()
	var files [][]disk.Caught
	err = a.power.change(ctx, func() (err error) {
		if a.journal.dead {
			return errDead
		}
		if !slices.Equal(x.places, a.places.all()) {
			return errors.New("a store has come or gone meanwhile: begin again")
		}
		x.roster = a.places.roster(a.founders())
		var folders []disk.CatchFolder
		for _, n := range x.places {
			f := disk.CatchFolder{FS: n.FS(), At: n.At()}
			if len(links) > 0 {
				f.Links = filepath.Join(links[0], n.id.RaftAddress())
				f.LogLinks = filepath.Join(links[len(links)-1], n.id.RaftAddress())
			}
			folders = append(folders, f)
			if !n.running() {
				b.Down = append(b.Down, int(n.id))
			}
		}
		catch := disk.Catch
		if a.hooks.Mistakes.BackupApart {
			catch = catchApart
		}
		if files, b.Pause, err = catch(ctx, folders); err != nil {
			return err
		}
		b.Time = time.Now()
		x.links = len(links) > 0 && x.canLink(links[0])
		for _, of := range files {
			for i := range of {
				b.Files++
				b.Bytes += of[i].Bytes
				if !of[i].Fixed || !x.links {
					x.total += of[i].Bytes
				}
			}
		}
		b.Copied = x.total
		x.saving.total.Store(x.total)
		if err := x.room(); err != nil {
			return err
		}
		return x.take(ctx, files, false)
	})
	if err == nil {
		err = x.take(ctx, files, true)
	}
	if err == nil {
		err = x.finish()
	}
	return b, err
}

// catchApart is a mistake that a test plants in the place of disk.Catch: each store has an instant of its own.
func catchApart(
	ctx context.Context, folders []disk.CatchFolder,
) (files [][]disk.Caught, pause time.Duration, err error) {
	for i := range folders {
		of, p, err := disk.Catch(ctx, folders[i:i+1])
		if err != nil {
			return nil, 0, err
		}
		files, pause = append(files, of...), pause+p
		time.Sleep(20 * time.Millisecond)
	}
	return files, pause, nil
}

// makeLinks makes empty folders, with one for each store inside, for links to the files of the data folder and, if they
// are elsewhere, of the write-ahead logs.
func (a *backups) makeLinks(places Places) (links []string, err error) {
	if a.folder == nil {
		return nil, nil
	}
	links = a.folder.links()
	err = removeAll(vfs.Default, links)
	for _, dir := range links {
		for _, n := range places {
			if err == nil {
				err = os.MkdirAll(filepath.Join(dir, n.id.RaftAddress()), 0o700)
			}
		}
	}
	return links, err
}

// links are the folders for the links to files that a backup is about to copy.
func (f *folder) links() []string {
	links := []string{filepath.Join(f.dir, linksName)}
	if f.walDir != "" {
		links = append(links, filepath.Join(f.logs(), linksName))
	}
	return links
}

func removeAll(fsys vfs.FS, paths []string) error {
	var errs []error
	for _, path := range paths {
		errs = append(errs, fsys.RemoveAll(path))
	}
	return errors.Join(errs...)
}

// backupFolder is the folder of a backup that is being made.
type backupFolder struct {
	a      *backups
	places Places // whose stores are in it
	roster roster
	saving *saving
	fs     vfs.FS
	dir    string
	work   string // where it is made: dir, or another name
	made   bool   // work is ours
	swept  string
	lock   io.Closer // nil once it is given back
	links  bool      // tables are linked
	total  int64     // bytes to copy
	dirs   []string
	sums   map[string]disk.ListedFile // by path: what was copied
	buf    []byte
}

// open makes the folder, after what an earlier backup has left there is removed.
func (x *backupFolder) open() (err error) {
	names, err := x.fs.List(x.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.work = x.dir + unfinished
	case err != nil:
		return err
	case len(names) > 0 && !slices.Contains(names, unfinishedName):
		return fmt.Errorf("folder %s is not empty", x.dir)
	default: // it may be a mount, which cannot be replaced
		x.work = x.dir
	}
	if err = disk.MakeDir(x.fs, x.work); err != nil {
		return err
	}
	if x.lock, err = x.fs.Lock(x.fs.PathJoin(x.work, lockName)); err != nil {
		return fmt.Errorf("folder %s is in use: %w", x.work, err)
	}
	names, err = x.fs.List(x.work)
	names = slices.DeleteFunc(names, func(name string) bool { return name == lockName })
	if err != nil {
		return err
	}
	if len(names) > 0 && !slices.Contains(names, unfinishedName) {
		return fmt.Errorf("folder %s is not empty", x.work)
	}
	x.made = true
	if len(names) > 0 {
		x.swept = x.work
		x.a.event(eventCluster, "backup: %s was left by a backup that did not end; it is removed", x.work)
		if err := x.sweep(unfinishedName); err != nil {
			return err
		}
	}
	mode := fs.FileMode(0o700)
	if x.a.folder != nil {
		if info, err := os.Stat(x.a.folder.dir); err == nil {
			mode = info.Mode().Perm()
		}
	}
	if x.fs == vfs.Default && x.work != x.dir {
		if err := os.Chmod(x.work, mode); err != nil {
			return err
		}
	}
	return disk.WriteFile(x.fs, x.work, unfinishedName, nil)
}

// sweep removes what is in the folder but for its lock and what has the name kept.
func (x *backupFolder) sweep(kept string) error {
	names, err := x.fs.List(x.work)
	for _, name := range names {
		if err == nil && name != lockName && name != kept {
			err = x.fs.RemoveAll(x.fs.PathJoin(x.work, name))
		}
	}
	return err
}

// remove removes the folder, or what is in it if it was there before: the mark last.
func (x *backupFolder) remove() error {
	if !x.made {
		return nil
	}
	err := x.sweep(unfinishedName)
	if err == nil {
		err = x.sweep("")
	}
	if x.lock != nil { // finish may have given it back
		x.lock.Close()
		x.lock = nil
	}
	if err == nil {
		err = x.fs.Remove(x.fs.PathJoin(x.work, lockName))
	}
	if err == nil && x.work != x.dir {
		err = x.fs.Remove(x.work)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", x.work, err)
	}
	return nil
}

// canLink reports whether files of the data folder can have links in the backup.
func (x *backupFolder) canLink(links string) bool {
	if x.fs != vfs.Default {
		return false
	}
	probe, link := filepath.Join(links, "probe"), filepath.Join(x.work, "probe")
	err := os.WriteFile(probe, nil, 0o600)
	if err == nil {
		err = os.Link(probe, link)
	}
	return errors.Join(err, os.Remove(link), os.Remove(probe)) == nil
}

// room returns an error if the rest of what is to be copied does not fit beside the reserve.
func (x *backupFolder) room() error {
	usage, err := x.fs.GetDiskUsage(x.work)
	if err != nil {
		return nil // nobody knows, as in memory
	}
	rest := x.total - x.saving.copied.Load()
	kept := store.Reserve(&x.a.settings.Engine, int64(usage.TotalBytes))
	if left := int64(usage.AvailBytes); left-rest < kept {
		return fmt.Errorf("%s more have to be copied to %s: its disk has %s left, and engine.disk_reserve keeps %s",
			settings.Bytes(rest).About(), x.work, settings.Bytes(left).About(), settings.Bytes(kept))
	}
	return nil
}

const (
	copyBytes = 256 << 10
	// copySync is how much is written before a sync: the stores' own syncs wait for no more of it.
	copySync = 4 << 20
)

// take copies the files that are fixed, or those that are not. Fixed ones are linked if that is possible.
func (x *backupFolder) take(ctx context.Context, files [][]disk.Caught, fixed bool) error {
	for i, of := range files {
		root := x.fs.PathJoin(x.work, x.places[i].id.RaftAddress())
		for k := range of {
			f := &of[k]
			if f.Fixed != fixed {
				continue
			}
			if err := context.Cause(ctx); err != nil {
				return err
			}
			path := x.fs.PathJoin(root, filepath.ToSlash(f.Name))
			if dir := x.fs.PathDir(path); !slices.Contains(x.dirs, dir) {
				if err := x.fs.MkdirAll(dir, 0o755); err != nil {
					return err
				}
				for at := dir; at != x.work && !slices.Contains(x.dirs, at); at = x.fs.PathDir(at) {
					x.dirs = append(x.dirs, at)
				}
			}
			var err error
			if fixed && x.links {
				err = x.fs.Link(f.Path, path)
			} else {
				err = x.copy(ctx, f, path)
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// copy copies a file as it was, and syncs it.
func (x *backupFolder) copy(ctx context.Context, f *disk.Caught, path string) (err error) {
	from, err := f.FS.Open(f.Path)
	if err != nil {
		return err
	}
	defer from.Close()
	to, err := x.fs.Create(path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, to.Close()) }()
	sum := uint32(0)
	for at, unsynced := int64(0), 0; at < f.Bytes; {
		n, err := from.ReadAt(x.buf[:min(int64(len(x.buf)), f.Bytes-at)], at)
		if n == 0 {
			return fmt.Errorf("%s has %d bytes and had %d: %w", f.Name, at, f.Bytes, err)
		}
		sum = disk.Sum(sum, x.buf[:n])
		if _, err := to.Write(x.buf[:n]); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		x.saving.copied.Add(int64(n))
		at += int64(n)
		if unsynced += n; unsynced >= copySync {
			unsynced = 0
			if err := errors.Join(context.Cause(ctx), to.Sync(), x.room()); err != nil {
				return err
			}
		}
	}
	if x.sums == nil {
		x.sums = make(map[string]disk.ListedFile)
	}
	x.sums[path] = disk.ListedFile{Name: x.fs.PathBase(path), Bytes: f.Bytes, Sum: sum}
	return to.Sync()
}

// finish makes a data folder of what was copied.
func (x *backupFolder) finish() error {
	a := x.a
	id := a.random128()
	own := hex.EncodeToString(id[:])
	for _, n := range x.places {
		dir := x.fs.PathJoin(x.work, n.id.RaftAddress())
		if n.walDir != "" {
			if err := x.forgetWALDir(dir); err != nil {
				return err
			}
		}
		r, err := disk.ReadStoreRecord(x.fs, dir)
		if err != nil {
			continue // the store's folder was not whole, and no start will take it for one that is
		}
		at := store.Places(dir, "")
		for i, l := range r.Files {
			if f, ok := x.sums[x.fs.PathJoin(at.Engine, l.Name)]; ok {
				r.Files[i] = f
			}
		}
		r.Copy = own
		if err := disk.WriteStoreRecord(x.fs, dir, r); err != nil {
			return err
		}
	}
	for _, dir := range x.dirs {
		if err := disk.SyncDir(x.fs, dir); err != nil {
			return err
		}
	}
	shape := a.settings.Cluster
	shape.Stores = len(x.places)
	f := &folder{fs: x.fs, dir: x.work, cluster: a.identity, shape: shape, roster: x.roster, copy: own,
		boot: a.boots.current(), boots: a.boots.all()}
	if err := f.write(); err != nil {
		return err
	}
	err := x.lock.Close()
	x.lock = nil
	if err != nil {
		return err
	}
	if x.work != x.dir {
		if err := x.fs.Rename(x.work, x.dir); err != nil {
			return err
		}
		x.work = x.dir
		if err := disk.SyncDir(x.fs, x.fs.PathDir(x.dir)); err != nil {
			return err
		}
	}
	if err := x.fs.Remove(x.fs.PathJoin(x.dir, unfinishedName)); err != nil {
		return err
	}
	return disk.SyncDir(x.fs, x.dir)
}

// forgetWALDir takes the folder of the write-ahead logs out of the options that Pebble has saved, since a backup has
// the logs beside the data.
func (x *backupFolder) forgetWALDir(dir string) error {
	engine := store.Places(dir, "").Engine
	names, err := x.fs.List(engine)
	for _, name := range names {
		if err != nil || !strings.HasPrefix(name, "OPTIONS-") {
			continue
		}
		var text []byte
		if text, err = disk.ReadFile(x.fs, x.fs.PathJoin(engine, name)); err != nil {
			break
		}
		lines := strings.SplitAfter(string(text), "\n")
		for i, line := range lines {
			if strings.HasPrefix(strings.TrimSpace(line), "wal_dir=") {
				lines[i] = "  wal_dir=\n"
			}
		}
		err = disk.WriteFile(x.fs, engine, name, []byte(strings.Join(lines, "")))
	}
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	return err
}
