package disk

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
)

// FailingOp makes an operation that changes the disk fail, and so fences the file system. A write that fails has
// written half of its bytes.
type FailingOp struct {
	Op   FileOp // which operations
	Path string // whose file's name, without the folder, matches this pattern of filepath.Match; empty means all
	Skip int64  // after so many that still succeed
	Err  error  // what they fail with

	seen atomic.Int64
}

// String prints the fault: "sync *.log fails after 3: input/output error".
func (t *FailingOp) String() string {
	path := t.Path
	if path == "" {
		path = "*"
	}
	return fmt.Sprintf("%s %s fails after %d: %v", t.Op, path, t.Skip, t.Err)
}

// Inject sets the fault; nil takes it away. One fault at a time: the file system is fenced by the first.
func (f *FS) Inject(t *FailingOp) { f.fault.Store(t) }

func (f *FS) injected(op FileOp, name string, n int) error {
	if d := f.drive.Load(); d != nil {
		if err := d.fails(op, n); err != nil {
			return err
		}
	}
	t := f.fault.Load()
	if t == nil || t.Op != op {
		return nil
	}
	if t.Path != "" {
		if ok, err := filepath.Match(t.Path, filepath.Base(name)); err != nil || !ok {
			return err
		}
	}
	if t.seen.Add(1) <= t.Skip {
		return nil
	}
	return t.Err
}
