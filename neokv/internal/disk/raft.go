package disk

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	lvfs "github.com/lni/vfs"
)

// raftHost stands for the machine's name in the paths of dragonboat.
const raftHost = "host"

// raftFS is dragonboat's view of an FS. A folder written by it can be opened on another machine under another name:
//
//	<dir>/dragonboat.ds, NODEHOST.ID, LOCK                   in memory: they would bind the folder to its machine
//	<dir>/<host name>/00000000000000000001/snapshot-part-0/  on disk, with raftHost for the host name
//
// Each replica has a folder for its snapshots, in a folder for its part of the regions. Such a folder is in memory until
// something is made in it, and only then on disk, durably: most replicas of a store with many regions never write a
// snapshot, and dragonboat syncs two folders for each of them before it starts.
//
// dragonboat ends the process when it cannot look into its folder. So an error of Open, OpenDir, Stat or List fences
// the file system, unless it says that something is not there, and dragonboat is told that: what it does then has no
// effect.
//
// Nobody else is kept out of the folder: Pebble's own lock does that.
type raftFS struct {
	fs    *FS
	host  string
	flags *lvfs.MemFS // the files in memory
	spare func(region, index uint64) bool

	mu    sync.Mutex      // held while a folder is made, too
	empty map[string]bool // the folders in memory
}

var _ lvfs.FS = (*raftFS)(nil)

// Raft returns the file system in the form that dragonboat takes. It keeps a NodeHost's files dragonboat.ds,
// NODEHOST.ID and LOCK in memory, and replaces the host name in paths with a fixed one.
//
// If the file of a received snapshot is damaged, Raft calls spare, which reports whether the region already has all
// that the snapshot holds. If not, or if spare is nil, the file system is fenced.
func (f *FS) Raft(spare func(region, index uint64) bool) lvfs.FS {
	host, _ := os.Hostname() // dragonboat calls it, too, and does not start if it fails
	r := f.raft(host)
	r.spare = spare
	return r
}

func (f *FS) raft(host string) *raftFS {
	return &raftFS{fs: f, host: host, flags: lvfs.NewMem(), empty: make(map[string]bool)}
}

// path replaces the host name in a path with raftHost. The host name is the component before a deployment id, which has
// 20 digits. At the end of a path it counts as the host name unless a folder of that name exists, since a data folder
// may lie beneath one.
func (r *raftFS) path(name string) string {
	parts := strings.Split(filepath.ToSlash(name), "/")
	for i, part := range parts {
		if part != r.host || part == "" {
			continue
		}
		if i+1 < len(parts) {
			if !isDeploymentID(parts[i+1]) {
				continue
			}
		} else if _, err := r.fs.Stat(name); err == nil {
			continue
		}
		parts[i] = raftHost
		return filepath.FromSlash(strings.Join(parts, "/"))
	}
	return name
}

func isDeploymentID(s string) bool {
	return len(s) == 20 && strings.Trim(s, "0123456789") == ""
}

// flag returns the name in r.flags of a file that is kept in memory.
func (r *raftFS) flag(name string) (string, bool) {
	switch filepath.Base(name) {
	case "dragonboat.ds", "NODEHOST.ID", "LOCK":
		return strings.ReplaceAll(filepath.Clean(name), string(filepath.Separator), "|"), true
	}
	return "", false
}

// snapshotDir reports whether a path is that of a folder for the snapshots of a replica, or of a part of the regions.
func snapshotDir(path string) bool {
	digits := func(s string) bool { return s != "" && strings.Trim(s, "0123456789") == "" }
	rest, ok := strings.CutPrefix(filepath.Base(path), "snapshot-")
	region, replica, two := strings.Cut(rest, "-")
	return ok && two && (region == "part" || digits(region)) && digits(replica)
}

// isEmpty reports whether a path is that of a folder in memory.
func (r *raftFS) isEmpty(path string) bool {
	if !snapshotDir(path) {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.empty[path]
}

// absent returns nil, or an error that says that the path does not exist. Any other error has fenced the file system.
func (r *raftFS) absent(path string, err error) error {
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return err
	}
	r.fs.Fence(err)
	return notExist("open", path)
}

// within makes the folder of a file on disk, durably, if it is in memory, or the folder of a snapshot if somebody has
// removed it. It is called before the file is made.
func (r *raftFS) within(path string) error {
	dir := filepath.Dir(path)
	if !snapshotDir(dir) && snapshotDir(filepath.Dir(dir)) {
		if _, err := r.fs.Stat(dir); errors.Is(err, os.ErrNotExist) {
			return r.makeDir(dir)
		}
	}
	if !snapshotDir(dir) {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.empty[dir] {
		return nil
	}
	if err := r.makeDir(dir); err != nil {
		return err
	}
	delete(r.empty, dir)
	delete(r.empty, filepath.Dir(dir))
	return nil
}

// makeDir makes a folder durably. Any error fences the file system, and then the folder is made in what that shows: the
// Raft library ends the process where it cannot mark the folder of a replica that it removes.
func (r *raftFS) makeDir(dir string) error {
	err := MakeDir(r.fs, dir)
	if err != nil {
		r.fs.Fence(err)
		err = MakeDir(r.fs, dir)
	}
	return err
}

// Create is part of lvfs.FS.
func (r *raftFS) Create(name string) (lvfs.File, error) {
	if flag, ok := r.flag(name); ok {
		return r.flags.Create(flag)
	}
	name = r.path(name)
	if err := r.within(name); err != nil {
		return nil, err
	}
	return raftOpened(r.fs.Create(name, vfs.WriteCategoryUnspecified))
}

// Link is part of lvfs.FS.
func (r *raftFS) Link(oldname, newname string) error {
	newname = r.path(newname)
	if err := r.within(newname); err != nil {
		return err
	}
	return r.fs.Link(r.path(oldname), newname)
}

// Open is part of lvfs.FS.
func (r *raftFS) Open(name string, opts ...lvfs.OpenOption) (lvfs.File, error) {
	if flag, ok := r.flag(name); ok {
		return r.flags.Open(flag)
	}
	if strings.HasSuffix(name, ".gbsnap") {
		return r.openSnapshot(name)
	}
	if filepath.Base(name) == snapshotFlag {
		return r.openFlag(name)
	}
	f, err := raftOpened(r.fs.Open(r.path(name)))
	if err != nil {
		return nil, r.absent(name, err)
	}
	for _, opt := range opts {
		opt.Apply(f)
	}
	return f, nil
}

// OpenDir is part of lvfs.FS.
func (r *raftFS) OpenDir(name string) (lvfs.File, error) {
	name = r.path(name)
	if r.isEmpty(name) {
		return emptyDir{name: filepath.Base(name)}, nil
	}
	f, err := raftOpened(r.fs.OpenDir(name))
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return f, err
	}
	r.fs.Fence(err)
	return emptyDir{name: filepath.Base(name)}, nil
}

// OpenForAppend is part of lvfs.FS.
func (r *raftFS) OpenForAppend(name string) (lvfs.File, error) {
	if flag, ok := r.flag(name); ok {
		return r.flags.OpenForAppend(flag)
	}
	info, err := r.Stat(name)
	if err != nil {
		return nil, err // since OpenReadWrite would create the file
	}
	name = r.path(name)
	f, err := r.fs.OpenReadWrite(name, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	return &raftFile{File: f, off: info.Size()}, nil
}

// Remove is part of lvfs.FS.
func (r *raftFS) Remove(name string) error {
	if flag, ok := r.flag(name); ok {
		return r.flags.Remove(flag)
	}
	return r.fs.Remove(r.path(name))
}

// RemoveAll is part of lvfs.FS.
func (r *raftFS) RemoveAll(name string) error { return r.fs.RemoveAll(r.path(name)) }

// Rename is part of lvfs.FS.
func (r *raftFS) Rename(oldname, newname string) error {
	newname = r.path(newname)
	if err := r.within(newname); err != nil {
		return err
	}
	return r.fs.Rename(r.path(oldname), newname)
}

// ReuseForWrite is part of lvfs.FS.
func (r *raftFS) ReuseForWrite(oldname, newname string) (lvfs.File, error) {
	newname = r.path(newname)
	if err := r.within(newname); err != nil {
		return nil, err
	}
	return raftOpened(r.fs.ReuseForWrite(r.path(oldname), newname, vfs.WriteCategoryUnspecified))
}

// MkdirAll is part of lvfs.FS.
func (r *raftFS) MkdirAll(dir string, perm os.FileMode) error {
	dir = r.path(dir)
	if !snapshotDir(dir) {
		if err := r.within(dir); err != nil {
			return err
		}
		return r.fs.MkdirAll(dir, perm)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err := r.fs.Stat(dir); r.absent(dir, err) == nil {
		return nil
	}
	r.empty[dir] = true
	return nil
}

// Lock is part of lvfs.FS.
func (r *raftFS) Lock(name string) (io.Closer, error) {
	if flag, ok := r.flag(name); ok {
		return r.flags.Lock(flag)
	}
	return r.fs.Lock(r.path(name))
}

// List is part of lvfs.FS. Files and folders in memory are not listed.
func (r *raftFS) List(dir string) ([]string, error) {
	dir = r.path(dir)
	if r.isEmpty(dir) {
		return nil, nil
	}
	names, err := r.fs.List(dir)
	if err == nil || errors.Is(err, os.ErrNotExist) {
		return names, err
	}
	r.fs.Fence(err)
	return nil, nil
}

// Stat is part of lvfs.FS.
func (r *raftFS) Stat(name string) (os.FileInfo, error) {
	if flag, ok := r.flag(name); ok {
		return r.flags.Stat(flag)
	}
	name = r.path(name)
	if r.isEmpty(name) {
		return emptyDir{name: filepath.Base(name)}.Stat()
	}
	info, err := r.fs.Stat(name)
	return info, r.absent(name, err)
}

// PathBase is part of lvfs.FS.
func (r *raftFS) PathBase(path string) string { return r.fs.PathBase(path) }

// PathJoin is part of lvfs.FS.
func (r *raftFS) PathJoin(elem ...string) string { return r.fs.PathJoin(elem...) }

// PathDir is part of lvfs.FS.
func (r *raftFS) PathDir(path string) string { return r.fs.PathDir(path) }

// GetDiskUsage is part of lvfs.FS.
func (r *raftFS) GetDiskUsage(path string) (lvfs.DiskUsage, error) {
	usage, err := r.fs.GetDiskUsage(r.path(path))
	return lvfs.DiskUsage(usage), err
}

// emptyDir is a folder in memory, opened.
type emptyDir struct {
	lvfs.File // nil: nobody reads a folder
	name      string
}

// Stat is part of lvfs.File.
func (d emptyDir) Stat() (os.FileInfo, error) { return memInfo{name: d.name, dir: true}, nil }

// Sync is part of lvfs.File.
func (d emptyDir) Sync() error { return nil }

// Close is part of lvfs.File.
func (d emptyDir) Close() error { return nil }

// raftFile adds Seek to a file, and so keeps the offset itself.
type raftFile struct {
	vfs.File
	off  int64
	head []byte // the file's beginning, where it has been read already
}

func raftOpened(f vfs.File, err error) (lvfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &raftFile{File: f}, nil
}

// Read is part of lvfs.File.
func (f *raftFile) Read(p []byte) (int, error) {
	if f.off < int64(len(f.head)) {
		n := copy(p, f.head[f.off:])
		f.off += int64(n)
		return n, nil
	}
	n, err := f.File.ReadAt(p, f.off)
	f.off += int64(n)
	if n > 0 && errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// Write is part of lvfs.File.
func (f *raftFile) Write(p []byte) (int, error) {
	n, err := f.File.WriteAt(p, f.off)
	f.off += int64(n)
	return n, err
}

// Seek is part of lvfs.File.
func (f *raftFile) Seek(offset int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		offset += f.off
	case io.SeekEnd:
		info, err := f.File.Stat()
		if err != nil {
			return 0, err
		}
		offset += info.Size()
	}
	if offset < 0 {
		return 0, os.ErrInvalid
	}
	f.off = offset
	return offset, nil
}

// Stat is part of lvfs.File.
func (f *raftFile) Stat() (os.FileInfo, error) { return f.File.Stat() }
