package disk

import (
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// memoryFS is a file system in memory that knows what a power cut would leave: of each file the bytes, of each folder
// the names, as of its last sync. A sync is cheap whatever the file's size. Pebble's own crashable file system copies
// the whole file at each sync.
type memoryFS struct {
	mu     sync.RWMutex // locked while names change and while crash copies; read-locked while bytes change
	root   *inode
	locked map[string]bool
}

// inode is a file or a folder.
type inode struct {
	children map[string]*inode // a folder's names; nil in a file
	synced   map[string]*inode // the names as of the last sync
	entered  []string          // the names entered since then, oldest first

	mu      sync.RWMutex
	data    []byte    // a file's bytes
	shared  int       // the first so many bytes may be those of a copy, too: write them nowhere but in a new slice
	durable int       // how many of them the last sync covers
	undo    []replace // what has been overwritten below durable since then, oldest first
	modTime time.Time
}

// replace is old bytes and where they were.
type replace struct {
	off int
	old []byte
}

var _ vfs.FS = (*memoryFS)(nil)

func newMemory() *memoryFS { return &memoryFS{root: newFolder(), locked: map[string]bool{}} }

func newFolder() *inode { return &inode{children: map[string]*inode{}, modTime: time.Now()} }

func (n *inode) isDir() bool { return n.children != nil }

// enter enters a name into a folder.
func (n *inode) enter(name string, child *inode) {
	n.children[name] = child
	n.entered = append(n.entered, name)
}

// crash returns what a power cut at this instant leaves. What was not synced survives with the given percentage,
// decided by rng, in an order that depends on nothing else: each of a file's sectors, and each of a folder's new names
// as long as those before it do. File systems journal a folder's names in order, and Pebble relies on that: a manifest
// and the marker that names it become durable with the same sync. With 100 nothing is lost. The names in the root
// always count as synced.
//
// The removal of a name that was not synced is undone, unless unsyncedPercent is 100. If only some removals were
// undone, a renamed file could lose both its names, which happens on no file system.
func (m *memoryFS) crash(unsyncedPercent int, rng *rand.Rand) *memoryFS {
	m.mu.Lock()
	defer m.mu.Unlock()
	survives := func() bool {
		return unsyncedPercent >= 100 || unsyncedPercent > 0 && rng.IntN(100) < unsyncedPercent
	}
	m.root.synced = maps.Clone(m.root.children)
	left := newMemory()
	left.root = m.root.crash(unsyncedPercent >= 100, survives, map[*inode]*inode{})
	return left
}

func (n *inode) crash(all bool, survives func() bool, done map[*inode]*inode) *inode {
	if left := done[n]; left != nil { // another name of the same file
		return left
	}
	left := &inode{modTime: n.modTime}
	done[n] = left
	if !n.isDir() {
		left.data = n.lost(survives)
		left.durable = len(left.data)
		return left
	}
	names := map[string]*inode{}
	if all {
		maps.Copy(names, n.children)
	} else {
		maps.Copy(names, n.synced)
		for _, name := range n.entered {
			child := n.children[name]
			if child == nil || child == names[name] { // gone again, or there anyway
				continue
			}
			if !survives() {
				break
			}
			names[name] = child
		}
	}
	left.children = map[string]*inode{}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		left.children[name] = names[name].crash(all, survives, done)
	}
	left.synced = maps.Clone(left.children)
	return left
}

// sectorBytes is what a disk writes whole or not at all.
const sectorBytes = 512

// lost returns a file's bytes as of its last sync, with those later blocks that survive.
func (n *inode) lost(survives func() bool) []byte {
	left := slices.Clone(n.data[:n.durable])
	for _, r := range slices.Backward(n.undo) {
		copy(left[r.off:], r.old)
	}
	for at := 0; at < len(n.data); at += sectorBytes {
		now := n.data[at:min(at+sectorBytes, len(n.data))]
		if at+len(now) <= n.durable && len(n.undo) == 0 || !survives() {
			continue
		}
		if grow := at + len(now) - len(left); grow > 0 {
			left = append(left, make([]byte, grow)...)
		}
		copy(left[at:], now)
	}
	return left
}

// freeze returns copies of several file systems as they are at one instant. In the copies everything counts as synced.
// A copy shares its files' bytes with the original until one of the two overwrites them, so it costs the same however
// long the files are.
func freeze(all []*memoryFS) (copies []*memoryFS) {
	for _, m := range all {
		m.mu.Lock()
		defer m.mu.Unlock()
	}
	for _, m := range all {
		left := newMemory()
		left.root = m.root.freeze(map[*inode]*inode{})
		copies = append(copies, left)
	}
	return copies
}

func (n *inode) freeze(done map[*inode]*inode) *inode {
	if left := done[n]; left != nil { // another name of the same file
		return left
	}
	left := &inode{modTime: n.modTime}
	done[n] = left
	if !n.isDir() {
		n.shared = len(n.data)
		left.data, left.shared, left.durable = slices.Clip(n.data), n.shared, n.shared
		return left
	}
	left.children = make(map[string]*inode, len(n.children))
	for name, child := range n.children {
		left.children[name] = child.freeze(done)
	}
	left.synced = maps.Clone(left.children)
	return left
}

// split returns a path's components; "/a" and "a" are the same.
func split(name string) []string {
	name = strings.Trim(path.Clean("/"+name), "/")
	if name == "" {
		return nil
	}
	return strings.Split(name, "/")
}

// find returns the node of a path, nil if there is none.
func (m *memoryFS) find(name string) *inode {
	n := m.root
	for _, part := range split(name) {
		if n = n.children[part]; n == nil {
			return nil
		}
	}
	return n
}

// folder returns the folder that a path is or would be in, and its name there.
func (m *memoryFS) folder(op, name string) (dir *inode, base string, err error) {
	parts := split(name)
	if len(parts) == 0 {
		return nil, "", &os.PathError{Op: op, Path: name, Err: os.ErrInvalid}
	}
	dir = m.root
	for _, part := range parts[:len(parts)-1] {
		if dir = dir.children[part]; dir == nil {
			return nil, "", notExist(op, name)
		}
	}
	if !dir.isDir() {
		return nil, "", &os.PathError{Op: op, Path: name, Err: syscall.ENOTDIR}
	}
	return dir, parts[len(parts)-1], nil
}

func notExist(op, name string) error { return &os.PathError{Op: op, Path: name, Err: os.ErrNotExist} }

// Create is part of vfs.FS.
func (m *memoryFS) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.create(name)
}

func (m *memoryFS) create(name string) (vfs.File, error) {
	dir, base, err := m.folder("create", name)
	if err != nil {
		return nil, err
	}
	if old := dir.children[base]; old != nil && old.isDir() {
		return nil, &os.PathError{Op: "create", Path: name, Err: syscall.EISDIR}
	}
	n := &inode{modTime: time.Now()}
	dir.enter(base, n)
	return m.file(n, name, true), nil
}

// file returns an open file of the node.
func (m *memoryFS) file(n *inode, name string, writable bool) *memFile {
	return &memFile{fs: m, node: n, name: path.Base(name), writable: writable}
}

// Open is part of vfs.FS.
func (m *memoryFS) Open(name string, _ ...vfs.OpenOption) (vfs.File, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := m.find(name)
	if n == nil {
		return nil, notExist("open", name)
	}
	return m.file(n, name, false), nil
}

// OpenReadWrite is part of vfs.FS.
func (m *memoryFS) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(name)
	switch {
	case n == nil:
		return m.create(name)
	case n.isDir():
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	return m.file(n, name, true), nil
}

// OpenDir is part of vfs.FS.
func (m *memoryFS) OpenDir(name string) (vfs.File, error) { return m.Open(name) }

// ReuseForWrite is part of vfs.FS. It removes the old file and makes a new one, so that a crash never leaves bytes of
// the old file in the new one.
func (m *memoryFS) ReuseForWrite(oldname, newname string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if err := m.remove(oldname); err != nil {
		return nil, err
	}
	return m.create(newname)
}

// Link is part of vfs.FS.
func (m *memoryFS) Link(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := m.find(oldname)
	dir, base, err := m.folder("link", newname)
	switch {
	case err != nil:
		return err
	case n == nil:
		err = os.ErrNotExist
	case n.isDir():
		err = os.ErrPermission
	case dir.children[base] != nil:
		err = os.ErrExist
	default:
		dir.enter(base, n)
		return nil
	}
	return &os.LinkError{Op: "link", Old: oldname, New: newname, Err: err}
}

// Remove is part of vfs.FS.
func (m *memoryFS) Remove(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.remove(name)
}

func (m *memoryFS) remove(name string) error {
	dir, base, err := m.folder("remove", name)
	if err != nil {
		return err
	}
	switch n := dir.children[base]; {
	case n == nil:
		return notExist("remove", name)
	case len(n.children) > 0:
		return &os.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	delete(dir.children, base)
	return nil
}

// RemoveAll is part of vfs.FS.
func (m *memoryFS) RemoveAll(name string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir, base, err := m.folder("remove", name)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err == nil {
		delete(dir.children, base)
	}
	return err
}

// Rename is part of vfs.FS.
func (m *memoryFS) Rename(oldname, newname string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	from, oldbase, err := m.folder("rename", oldname)
	if err != nil {
		return err
	}
	to, newbase, err := m.folder("rename", newname)
	if err != nil {
		return err
	}
	n, over := from.children[oldbase], to.children[newbase]
	switch {
	case n == nil:
		err = os.ErrNotExist
	case over == n:
		return nil
	case over != nil && (over.isDir() != n.isDir() || len(over.children) > 0):
		err = os.ErrExist
	default:
		delete(from.children, oldbase)
		to.enter(newbase, n)
		return nil
	}
	return &os.LinkError{Op: "rename", Old: oldname, New: newname, Err: err}
}

// MkdirAll is part of vfs.FS.
func (m *memoryFS) MkdirAll(name string, _ os.FileMode) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	dir := m.root
	for _, part := range split(name) {
		next := dir.children[part]
		if next == nil {
			next = newFolder()
			dir.enter(part, next)
		}
		if dir = next; !dir.isDir() {
			return &os.PathError{Op: "mkdir", Path: name, Err: syscall.ENOTDIR}
		}
	}
	return nil
}

// Lock is part of vfs.FS.
func (m *memoryFS) Lock(name string) (io.Closer, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.locked[name] {
		return nil, &os.PathError{Op: "lock", Path: name, Err: syscall.EAGAIN}
	}
	if _, err := m.create(name); err != nil {
		return nil, err
	}
	m.locked[name] = true
	return &memLock{m, name}, nil
}

type memLock struct {
	fs   *memoryFS
	name string
}

// Close gives the lock back.
func (l *memLock) Close() error {
	l.fs.mu.Lock()
	defer l.fs.mu.Unlock()
	delete(l.fs.locked, l.name)
	return nil
}

// List is part of vfs.FS.
func (m *memoryFS) List(dir string) ([]string, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	switch n := m.find(dir); {
	case n == nil:
		return nil, notExist("open", dir)
	case !n.isDir():
		return nil, &os.PathError{Op: "list", Path: dir, Err: syscall.ENOTDIR}
	default:
		return slices.Sorted(maps.Keys(n.children)), nil
	}
}

// Stat is part of vfs.FS.
func (m *memoryFS) Stat(name string) (vfs.FileInfo, error) {
	m.mu.RLock()
	defer m.mu.RUnlock()
	n := m.find(name)
	if n == nil {
		return nil, notExist("stat", name)
	}
	return n.info(path.Base(name)), nil
}

// PathBase is part of vfs.FS.
func (m *memoryFS) PathBase(p string) string { return path.Base(p) }

// PathJoin is part of vfs.FS.
func (m *memoryFS) PathJoin(elem ...string) string { return path.Join(elem...) }

// PathDir is part of vfs.FS.
func (m *memoryFS) PathDir(p string) string { return path.Dir(p) }

// GetDiskUsage is part of vfs.FS.
func (m *memoryFS) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{}, vfs.ErrUnsupported
}

// Unwrap is part of vfs.FS.
func (m *memoryFS) Unwrap() vfs.FS { return nil }

// memFile is an open file or folder of a memoryFS.
type memFile struct {
	fs       *memoryFS
	node     *inode
	name     string
	writable bool
	closed   bool
	pos      int
}

var _ vfs.File = (*memFile)(nil)

// Write is part of vfs.File.
func (f *memFile) Write(p []byte) (int, error) {
	n, err := f.WriteAt(p, int64(f.pos))
	f.pos += n
	return n, err
}

// WriteAt is part of vfs.File.
func (f *memFile) WriteAt(p []byte, off int64) (int, error) {
	if !f.writable {
		return 0, &os.PathError{Op: "write", Path: f.name, Err: os.ErrPermission}
	}
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	f.node.write(p, int(off))
	return len(p), nil
}

func (n *inode) write(p []byte, off int) {
	if old := min(off+len(p), n.durable); off < old {
		n.undo = append(n.undo, replace{off, slices.Clone(n.data[off:old])})
	}
	if off < n.shared {
		n.data, n.shared = slices.Clone(n.data), 0
	}
	if gap := off - len(n.data); gap > 0 {
		n.data = append(n.data, make([]byte, gap)...)
	}
	k := copy(n.data[off:], p)
	n.data = append(n.data, p[k:]...)
	n.modTime = time.Now()
}

// Read is part of vfs.File.
func (f *memFile) Read(p []byte) (int, error) {
	n, err := f.ReadAt(p, int64(f.pos))
	f.pos += n
	if n > 0 {
		err = nil
	}
	return n, err
}

// ReadAt is part of vfs.File.
func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	if f.node.isDir() {
		return 0, &os.PathError{Op: "read", Path: f.name, Err: syscall.EISDIR}
	}
	f.node.mu.RLock()
	defer f.node.mu.RUnlock()
	n := 0
	if off < int64(len(f.node.data)) {
		n = copy(p, f.node.data[off:])
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// Sync is part of vfs.File.
func (f *memFile) Sync() error {
	if f.node.isDir() {
		f.fs.mu.Lock()
		defer f.fs.mu.Unlock()
		f.node.synced, f.node.entered = maps.Clone(f.node.children), nil
		return nil
	}
	f.fs.mu.RLock()
	defer f.fs.mu.RUnlock()
	f.node.mu.Lock()
	defer f.node.mu.Unlock()
	f.node.durable = len(f.node.data)
	f.node.undo = nil
	return nil
}

// SyncData is part of vfs.File.
func (f *memFile) SyncData() error { return f.Sync() }

// SyncTo is part of vfs.File.
func (f *memFile) SyncTo(int64) (fullSync bool, err error) { return false, nil }

// Preallocate is part of vfs.File.
func (f *memFile) Preallocate(offset, length int64) error { return nil }

// Prefetch is part of vfs.File.
func (f *memFile) Prefetch(offset, length int64) error { return nil }

// Fd is part of vfs.File.
func (f *memFile) Fd() uintptr { return vfs.InvalidFd }

// Stat is part of vfs.File.
func (f *memFile) Stat() (vfs.FileInfo, error) { return f.node.info(f.name), nil }

// Close is part of vfs.File.
func (f *memFile) Close() error {
	if f.closed {
		return &os.PathError{Op: "close", Path: f.name, Err: os.ErrClosed}
	}
	f.closed = true
	return nil
}

func (n *inode) info(name string) memInfo {
	n.mu.RLock()
	defer n.mu.RUnlock()
	return memInfo{name: name, size: int64(len(n.data)), modTime: n.modTime, dir: n.isDir()}
}

// memInfo is the os.FileInfo that Stat returns.
type memInfo struct {
	name    string
	size    int64
	modTime time.Time
	dir     bool
}

func (i memInfo) Name() string           { return i.name }
func (i memInfo) Size() int64            { return i.size }
func (i memInfo) ModTime() time.Time     { return i.modTime }
func (i memInfo) IsDir() bool            { return i.dir }
func (i memInfo) Sys() any               { return nil }
func (i memInfo) DeviceID() vfs.DeviceID { return vfs.DeviceID{} }

func (i memInfo) Mode() os.FileMode {
	if i.dir {
		return os.ModeDir | 0o755
	}
	return 0o644
}
