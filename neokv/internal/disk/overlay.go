package disk

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// overlay is a file system in memory over a base that no longer changes. So a path of the base always names the same
// bytes, and to rename or link a file the overlay only notes where its bytes are.
//
// It does not support what neither library does: renaming a file that is open for writing, writing to a file that has
// two names, or renaming one of these names to the other.
type overlay struct {
	base vfs.FS
	mem  *memoryFS // only its open files are used

	mu      sync.Mutex
	entries map[string]pathOrigin // by clean path; for a path without an entry, its nearest ancestor with one counts
}

// pathOrigin says where the bytes of a path are: at a path of the base, which for a folder holds for all paths beneath
// it, too; or in a node of the overlay. With neither, the path does not exist.
type pathOrigin struct {
	path string
	node *inode
}

func newOverlay(base vfs.FS) *overlay {
	return &overlay{base: base, mem: newMemory(), entries: map[string]pathOrigin{}}
}

// clean is the key of a path. In memory "/a" and "a" are the same.
func (o *overlay) clean(name string) string {
	if _, ok := o.base.(*memoryFS); ok {
		return filepath.Clean("/" + name)
	}
	return filepath.Clean(name)
}

// find returns where a clean path's bytes are. If that is a path of the base, it may not exist there.
func (o *overlay) find(path string) pathOrigin {
	for at := path; ; at = filepath.Dir(at) {
		e, ok := o.entries[at]
		switch {
		case ok && at == path:
			return e
		case ok && e.path != "":
			return pathOrigin{path: filepath.Join(e.path, path[len(at):])}
		case ok:
			return pathOrigin{}
		case at == filepath.Dir(at):
			return pathOrigin{path: path}
		}
	}
}

// lookup is find with an error for what does not exist.
func (o *overlay) lookup(op, name string) (pathOrigin, error) {
	e := o.find(o.clean(name))
	if e.path != "" {
		_, err := o.base.Stat(e.path)
		return e, err
	}
	if e.node == nil {
		return e, notExist(op, name)
	}
	return e, nil
}

// beneath returns what follows dir in path, if path is dir or beneath it.
func beneath(path, dir string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, dir)
	return rest, ok && (rest == "" || rest[0] == filepath.Separator)
}

// take forgets all entries at and beneath a clean path and returns them by what follows it.
func (o *overlay) take(path string) map[string]pathOrigin {
	taken := map[string]pathOrigin{}
	for at, e := range o.entries {
		if rest, ok := beneath(at, path); ok {
			taken[rest] = e
			delete(o.entries, at)
		}
	}
	return taken
}

func (o *overlay) create(name string) vfs.File {
	o.mu.Lock()
	defer o.mu.Unlock()
	n := &inode{}
	o.entries[o.clean(name)] = pathOrigin{node: n}
	return o.mem.file(n, name, true)
}

// adopt enters a copy of a file of the base. The copy lacks bytes that cannot be read, which does not matter, since the
// store has failed already.
func (o *overlay) adopt(name string, from vfs.File) vfs.File {
	f := o.create(name)
	_, _ = io.Copy(f, io.NewSectionReader(from, 0, 1<<62))
	return f
}

func (o *overlay) openReadWrite(name string) (vfs.File, error) {
	o.mu.Lock()
	e, err := o.lookup("open", name)
	o.mu.Unlock()
	switch {
	case err != nil:
		return o.create(name), nil
	case e.node != nil:
		return o.mem.file(e.node, name, true), nil
	}
	from, err := o.base.Open(e.path)
	if err != nil {
		return nil, err
	}
	node := o.adopt(name, from).(*memFile).node
	return o.mem.file(node, name, true), from.Close()
}

func (o *overlay) reuseForWrite(oldname, newname string) (vfs.File, error) {
	_ = o.remove(oldname) // or it is missing because the disk has failed
	return o.create(newname), nil
}

func (o *overlay) open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, err := o.lookup("open", name)
	if err != nil {
		return nil, err
	}
	if e.node != nil {
		return o.mem.file(e.node, name, false), nil
	}
	return o.base.Open(e.path, opts...)
}

// openDir returns a folder for Stat and Sync only.
func (o *overlay) openDir(name string) (vfs.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	info, err := o.info(name)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.ENOTDIR}
	}
	return o.mem.file(newFolder(), name, false), nil
}

func (o *overlay) link(oldname, newname string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, err := o.lookup("link", oldname)
	if err != nil {
		return err
	}
	if _, err := o.lookup("link", newname); err == nil {
		return &os.LinkError{Op: "link", Old: oldname, New: newname, Err: os.ErrExist}
	}
	if _, err := o.lookup("link", filepath.Dir(newname)); err != nil {
		return err
	}
	o.entries[o.clean(newname)] = e
	return nil
}

func (o *overlay) rename(oldname, newname string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, err := o.lookup("rename", oldname)
	if err != nil {
		return err
	}
	if _, err := o.lookup("rename", filepath.Dir(newname)); err != nil {
		return err
	}
	from, to := o.clean(oldname), o.clean(newname)
	if from == to {
		return nil
	}
	moved := o.take(from)
	o.take(to)
	for rest, e := range moved {
		o.entries[to+rest] = e
	}
	o.entries[to] = e
	o.entries[from] = pathOrigin{}
	return nil
}

func (o *overlay) remove(name string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	if _, err := o.lookup("remove", name); err != nil {
		return err
	}
	if names, err := o.names(name); err == nil && len(names) > 0 {
		return &os.PathError{Op: "remove", Path: name, Err: syscall.ENOTEMPTY}
	}
	o.take(o.clean(name))
	o.entries[o.clean(name)] = pathOrigin{}
	return nil
}

func (o *overlay) removeAll(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.take(o.clean(name))
	o.entries[o.clean(name)] = pathOrigin{}
}

func (o *overlay) mkdirAll(dir string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for at := o.clean(dir); ; at = filepath.Dir(at) {
		switch info, err := o.info(at); {
		case err == nil && !info.IsDir():
			return &os.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		case err == nil, at == filepath.Dir(at):
			return nil
		}
		o.entries[at] = pathOrigin{node: newFolder()}
	}
}

func (o *overlay) list(dir string) ([]string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.names(dir)
}

func (o *overlay) names(dir string) ([]string, error) {
	e, err := o.lookup("open", dir)
	if err != nil {
		return nil, err
	}
	var names []string
	if e.path != "" {
		if names, err = o.base.List(e.path); err != nil {
			return nil, err
		}
	} else if !e.node.isDir() {
		return nil, &os.PathError{Op: "list", Path: dir, Err: syscall.ENOTDIR}
	}
	path := o.clean(dir)
	names = slices.DeleteFunc(names, func(name string) bool {
		_, noted := o.entries[filepath.Join(path, name)]
		return noted
	})
	for at, e := range o.entries {
		if at != path && filepath.Dir(at) == path && e != (pathOrigin{}) {
			names = append(names, filepath.Base(at))
		}
	}
	return names, nil
}

func (o *overlay) stat(name string) (vfs.FileInfo, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.info(name)
}

func (o *overlay) info(name string) (vfs.FileInfo, error) {
	e, err := o.lookup("stat", name)
	if err != nil {
		return nil, err
	}
	if e.node != nil {
		return e.node.info(filepath.Base(name)), nil
	}
	info, err := o.base.Stat(e.path)
	if err != nil {
		return nil, err
	}
	return renamed{info, filepath.Base(name)}, nil
}

// renamed is a file's information under another name.
type renamed struct {
	vfs.FileInfo
	name string
}

// Name is part of os.FileInfo.
func (r renamed) Name() string { return r.name }
