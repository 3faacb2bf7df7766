package disk

import (
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// failingOp makes an operation that changes the disk fail. A write that fails has written half of its bytes.
type failingOp struct {
	Op   FileOp // which operations
	Path string // whose file's name, without the folder, matches this pattern of filepath.Match; empty means all
	Skip int64  // after so many that still succeed
	Err  error  // what they fail with
}

// String prints the fault: "sync *.log fails after 3: input/output error".
func (t failingOp) String() string {
	path := t.Path
	if path == "" {
		path = "*"
	}
	return fmt.Sprintf("%s %s fails after %d: %v", t.Op, path, t.Skip, t.Err)
}

// failing is a base whose operations can be made to fail.
type failing struct {
	vfs.FS
	op   atomic.Pointer[failingOp]
	seen atomic.Int64
}

// canFail puts a failing base under a new file system.
func canFail(fs *FS) (*FS, *failing) {
	b := &failing{FS: fs.base}
	fs.base = b
	return fs, b
}

// begin makes an operation fail from now on.
func (b *failing) begin(t failingOp) { b.op.Store(&t) }

func (b *failing) fails(op FileOp, name string) error {
	t := b.op.Load()
	if t == nil || t.Op != op {
		return nil
	}
	if ok, err := filepath.Match(t.Path, filepath.Base(name)); t.Path != "" && (err != nil || !ok) {
		return err
	}
	if b.seen.Add(1) <= t.Skip {
		return nil
	}
	return t.Err
}

// opened returns a file that can fail.
func (b *failing) opened(f vfs.File, err error, name string) (vfs.File, error) {
	if err != nil {
		return nil, err
	}
	return &failingFile{f, b, name}, nil
}

func (b *failing) Create(name string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := b.fails(OpCreate, name); err != nil {
		return nil, err
	}
	f, err := b.FS.Create(name, c)
	return b.opened(f, err, name)
}

func (b *failing) ReuseForWrite(from, to string, c vfs.DiskWriteCategory) (vfs.File, error) {
	if err := b.fails(OpCreate, to); err != nil {
		return nil, err
	}
	f, err := b.FS.ReuseForWrite(from, to, c)
	return b.opened(f, err, to)
}

func (b *failing) OpenDir(name string) (vfs.File, error) {
	f, err := b.FS.OpenDir(name)
	return b.opened(f, err, name)
}

func (b *failing) Remove(name string) error {
	if err := b.fails(OpRemove, name); err != nil {
		return err
	}
	return b.FS.Remove(name)
}

func (b *failing) Rename(from, to string) error {
	if err := b.fails(OpRename, to); err != nil {
		return err
	}
	return b.FS.Rename(from, to)
}

func (b *failing) MkdirAll(dir string, perm os.FileMode) error {
	if err := b.fails(OpMkdir, dir); err != nil {
		return err
	}
	return b.FS.MkdirAll(dir, perm)
}

// failingFile is a file of a failing base.
type failingFile struct {
	vfs.File
	b    *failing
	name string
}

func (f *failingFile) Write(p []byte) (int, error) { return f.write(p, f.File.Write) }

func (f *failingFile) WriteAt(p []byte, off int64) (int, error) {
	return f.write(p, func(p []byte) (int, error) { return f.File.WriteAt(p, off) })
}

func (f *failingFile) write(p []byte, write func([]byte) (int, error)) (int, error) {
	failure := f.b.fails(OpWrite, f.name)
	if failure != nil {
		p = p[:len(p)/2]
	}
	n, err := write(p)
	if err == nil {
		err = failure
	}
	return n, err
}

func (f *failingFile) Sync() error { return f.sync(f.File.Sync) }

func (f *failingFile) SyncData() error { return f.sync(f.File.SyncData) }

func (f *failingFile) sync(sync func() error) error {
	if err := f.b.fails(OpSync, f.name); err != nil {
		return err
	}
	return sync()
}
