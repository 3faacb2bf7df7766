package disk

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// overlay is a file system in memory over a base that no longer changes: since nothing reaches the base any more, a path in
// it names the same bytes for ever, and a rename or a link is a note of where they are.
type overlay struct {
	base vfs.FS
	mem  *vfs.MemFS // contents of the files made here, flat, by number

	mu      sync.Mutex
	made    int               // files made so far
	entries map[string]origin // by clean path; a path without an entry is where its nearest ancestor with one says
}

// origin says where the bytes of a path are. For a folder in the base it speaks for all paths beneath, too.
type origin struct {
	kind kind
	path string // inBase: a path of the base. inMemory: the file's name in mem
}

type kind byte

const (
	inBase   kind = iota
	inMem         // a file made or changed here
	emptyDir      // a folder made here: only entries are in it
	gone
)

func newOverlay(base vfs.FS) *overlay {
	return &overlay{base: base, mem: vfs.NewMem(), entries: map[string]origin{}}
}

// clean is the key of a path. MemFS takes "/a" and "a" for the same.
func (o *overlay) clean(name string) string {
	if _, ok := o.base.(*vfs.MemFS); ok {
		return filepath.Clean("/" + name)
	}
	return filepath.Clean(name)
}

// find returns where the clean path's bytes are. What it says of the base's paths may not exist there.
func (o *overlay) find(path string) origin {
	for at := path; ; at = filepath.Dir(at) {
		e, ok := o.entries[at]
		switch {
		case !ok && at == filepath.Dir(at):
			return origin{inBase, path}
		case !ok:
		case at == path:
			return e
		case e.kind == inBase:
			return origin{inBase, filepath.Join(e.path, path[len(at):])}
		default:
			return origin{kind: gone}
		}
	}
}

// lookup is find with an error for what does not exist.
func (o *overlay) lookup(op, name string) (origin, error) {
	e := o.find(o.clean(name))
	switch e.kind {
	case gone:
		return e, &os.PathError{Op: op, Path: name, Err: os.ErrNotExist}
	case inBase:
		_, err := o.base.Stat(e.path)
		return e, err
	}
	return e, nil
}

// drop forgets all entries at and beneath a clean path.
func (o *overlay) drop(path string) {
	for at := range o.entries {
		if _, ok := beneath(at, path); ok {
			delete(o.entries, at)
		}
	}
}

// beneath returns what follows dir in path, if path is dir or beneath it.
func beneath(path, dir string) (rest string, ok bool) {
	rest, ok = strings.CutPrefix(path, dir)
	return rest, ok && (rest == "" || rest[0] == filepath.Separator || strings.HasSuffix(dir, string(filepath.Separator)))
}

// newFile enters an empty file at a clean path.
func (o *overlay) newFile(path string) (vfs.File, error) {
	o.made++
	number := strconv.Itoa(o.made)
	f, err := o.mem.Create(number, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	o.entries[path] = origin{inMem, number}
	return &memFile{f, filepath.Base(path)}, nil
}

func (o *overlay) create(name string) (vfs.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.newFile(o.clean(name))
}

// adopt enters a copy of a file of the base. What cannot be read is missing in it: the store has failed already.
func (o *overlay) adopt(name string, from vfs.File) vfs.File {
	o.mu.Lock()
	defer o.mu.Unlock()
	f, err := o.newFile(o.clean(name))
	if err != nil {
		panic(err) // a new file in a folder in memory
	}
	_, _ = io.Copy(f, contents(from))
	return f
}

func (o *overlay) openReadWrite(name string) (vfs.File, error) {
	o.mu.Lock()
	e, err := o.lookup("open", name)
	o.mu.Unlock()
	switch {
	case err != nil:
		return o.create(name)
	case e.kind == inMem:
		f, err := o.mem.OpenReadWrite(e.path, vfs.WriteCategoryUnspecified)
		return &memFile{f, filepath.Base(name)}, err
	case e.kind == emptyDir:
		return nil, &os.PathError{Op: "open", Path: name, Err: syscall.EISDIR}
	}
	from, err := o.base.Open(e.path)
	if err != nil {
		return nil, err
	}
	o.adopt(name, from).Close()
	if err := from.Close(); err != nil {
		return nil, err
	}
	return o.openReadWrite(name)
}

func (o *overlay) open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, err := o.lookup("open", name)
	switch {
	case err != nil:
		return nil, err
	case e.kind == inBase:
		f, err := o.base.Open(e.path, opts...)
		return &quiet{f}, err
	case e.kind == emptyDir:
		return o.dir(name)
	}
	f, err := o.mem.Open(e.path)
	return &memFile{f, filepath.Base(name)}, err
}

func (o *overlay) openDir(name string) (vfs.File, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	e, err := o.lookup("open", name)
	switch {
	case err != nil:
		return nil, err
	case e.kind == inBase:
		f, err := o.base.OpenDir(e.path)
		return &quiet{f}, err
	}
	return o.dir(name)
}

func (o *overlay) dir(name string) (vfs.File, error) {
	f, err := o.mem.OpenDir("/")
	return &memFile{f, filepath.Base(name)}, err
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
	from, to := o.clean(oldname), o.clean(newname)
	if from == to {
		return nil
	}
	o.drop(to)
	moved := map[string]origin{to: e}
	for at, e := range o.entries {
		if rest, ok := beneath(at, from); ok && rest != "" {
			moved[to+rest] = e
		}
	}
	o.drop(from)
	o.entries[from] = origin{kind: gone}
	for at, e := range moved {
		o.entries[at] = e
	}
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
	o.entries[o.clean(name)] = origin{kind: gone}
	return nil
}

func (o *overlay) removeAll(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.drop(o.clean(name))
	o.entries[o.clean(name)] = origin{kind: gone}
}

func (o *overlay) mkdirAll(dir string) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for at := o.clean(dir); ; at = filepath.Dir(at) {
		info, err := o.info(at)
		switch {
		case err == nil && info.IsDir():
			return nil
		case err == nil:
			return &os.PathError{Op: "mkdir", Path: dir, Err: syscall.ENOTDIR}
		case at == filepath.Dir(at):
			return nil
		}
		o.entries[at] = origin{kind: emptyDir}
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
	switch e.kind {
	case inMem:
		return nil, &os.PathError{Op: "readdirent", Path: dir, Err: syscall.ENOTDIR}
	case inBase:
		if names, err = o.base.List(e.path); err != nil {
			return nil, err
		}
	}
	path := o.clean(dir)
	names = slices.DeleteFunc(names, func(name string) bool {
		_, ours := o.entries[filepath.Join(path, name)]
		return ours
	})
	for at, e := range o.entries {
		if at != path && filepath.Dir(at) == path && e.kind != gone {
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
	var info vfs.FileInfo
	switch e.kind {
	case inBase:
		info, err = o.base.Stat(e.path)
	case inMem:
		info, err = o.mem.Stat(e.path)
	default:
		info, err = o.mem.Stat("/")
	}
	return named{info, filepath.Base(name)}, err
}

// memFile is a file of mem under the name it was opened by.
type memFile struct {
	vfs.File
	name string
}

// Stat is part of vfs.File.
func (m *memFile) Stat() (vfs.FileInfo, error) {
	info, err := m.File.Stat()
	return named{info, m.name}, err
}

// named is a file's information under another name.
type named struct {
	vfs.FileInfo
	name string
}

// Name is part of os.FileInfo.
func (n named) Name() string { return n.name }

// quiet is a file of the base that was opened behind the fence, for reading: its syncs stay here.
type quiet struct{ vfs.File }

// Sync is part of vfs.File.
func (q *quiet) Sync() error { return nil }

// SyncData is part of vfs.File.
func (q *quiet) SyncData() error { return nil }

// SyncTo is part of vfs.File.
func (q *quiet) SyncTo(int64) (fullSync bool, err error) { return true, nil }
