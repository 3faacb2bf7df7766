package disk

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/fault"
)

// shortOps open, make, list and write files, each in one call of the file system.
var shortOps = map[string]func(fs *FS, f *file) error{
	"create":    func(fs *FS, _ *file) error { _, err := fs.Create("/g", category); return err },
	"reuse":     func(fs *FS, _ *file) error { _, err := fs.ReuseForWrite("/f", "/g", category); return err },
	"rewrite":   func(fs *FS, _ *file) error { _, err := fs.OpenReadWrite("/f", category); return err },
	"open":      func(fs *FS, _ *file) error { _, err := fs.Open("/f"); return err },
	"open dir":  func(fs *FS, _ *file) error { _, err := fs.OpenDir("/"); return err },
	"list":      func(fs *FS, _ *file) error { _, err := fs.List("/"); return err },
	"stat":      func(fs *FS, _ *file) error { _, err := fs.Stat("/f"); return err },
	"mkdir":     func(fs *FS, _ *file) error { return fs.MkdirAll("/d", 0o755) },
	"link":      func(fs *FS, _ *file) error { return fs.Link("/f", "/g") },
	"write":     func(_ *FS, f *file) error { _, err := f.Write([]byte("ab")); return err },
	"write at":  func(_ *FS, f *file) error { _, err := f.WriteAt([]byte("ab"), 10); return err },
	"lock":      func(fs *FS, _ *file) error { _, err := fs.Lock("/lock"); return err },
	"make file": func(fs *FS, _ *file) error { return WriteFile(fs, "/", "h", []byte("x")) },
}

// TestShort has each operation meet a want of descriptors or memory that ends before its tries do.
func TestShort(t *testing.T) {
	for what, do := range shortOps {
		fs, f := bad(t, fault.Drive{Short: fault.ShortTries - 1})
		fs.WaitInLog(true)
		if err := errors.Join(do(fs, f), fs.Failed()); err != nil {
			t.Errorf("%s: %v; want it to wait and go on", what, err)
		}
		if err := fs.lacks(); err != nil {
			t.Errorf("%s met fewer than %d errors", what, fault.ShortTries-1)
		}
	}
}

// TestShortForGood has a want that outlasts the tries: what changes the disk fences the store, what looks at it tells.
func TestShortForGood(t *testing.T) {
	for what, do := range shortOps {
		fs, f := bad(t, fault.Drive{Short: 1_000_000})
		fs.WaitInLog(true)
		err := do(fs, f)
		looks := what == "open" || what == "open dir" || what == "list" || what == "stat" || what == "lock"
		if short(err) != looks || short(fs.Failed()) == looks {
			t.Errorf("%s: %v, failed %v", what, err, fs.Failed())
		}
	}
}

// TestShortPauses says how long a want is waited out, and that a kill ends the wait.
func TestShortPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fs, f := bad(t, fault.Drive{Short: 1_000_000})
		if d := took(func() { f.Write([]byte("x")) }); d < 9*time.Second || d > 11*time.Second {
			t.Errorf("a write has failed after %s; want about 10 s", d)
		}
		fs, f = bad(t, fault.Drive{Short: 1_000_000})
		time.AfterFunc(time.Second, func() { fs.Crash(0, rand.New(rand.NewPCG(1, 1))) })
		if d := took(func() { f.Write([]byte("x")) }); d != time.Second {
			t.Errorf("a write of a store that was killed after 1 s has ended after %s", d)
		}
	})
}

// TestShortErrors tells the errors that are waited out from those that fence at once.
func TestShortErrors(t *testing.T) {
	for _, c := range []struct {
		op    FileOp
		err   error
		waits bool
	}{
		{OpCreate, syscall.EMFILE, true}, {OpCreate, syscall.ENFILE, true}, {OpCreate, syscall.ENOMEM, true},
		{OpCreate, syscall.EINTR, true}, {OpCreate, syscall.ENOSPC, false}, {OpCreate, syscall.EDQUOT, false},
		{OpCreate, syscall.EIO, false},
		{OpSync, syscall.EMFILE, false}, {OpSync, syscall.ENFILE, false}, {OpSync, syscall.ENOMEM, false},
		{OpSync, syscall.EINTR, false}, {OpSync, syscall.EIO, false},
		{OpWrite, syscall.ENOMEM, false}, // it has put half of the bytes down
		{OpWrite, syscall.EINTR, false}, {OpWrite, syscall.EDQUOT, false},
	} {
		t.Run(fmt.Sprintf("%s %v", c.op, c.err), func(t *testing.T) {
			fs, base := canFail(Mem())
			fs.WaitInLog(true)
			f := put(t, fs, "/f", "x")
			base.begin(failingOp{Op: c.op, Err: c.err})
			switch c.op {
			case OpCreate:
				fs.Create("/g", category)
			case OpSync:
				f.Sync()
			case OpWrite:
				f.Write([]byte("1234"))
			}
			if !errors.Is(fs.Failed(), c.err) {
				t.Errorf("failed: %v; want %v", fs.Failed(), c.err)
			}
			if tries := base.seen.Load(); c.waits != (tries == fault.ShortTries) || !c.waits && tries != 1 {
				t.Errorf("%d tries", tries)
			}
		})
	}
}

// halfReused is a base that renames a file to be reused, and then cannot open it.
type halfReused struct {
	vfs.FS
	tries atomic.Int64
}

func (b *halfReused) ReuseForWrite(from, to string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	b.tries.Add(1)
	if err := b.Rename(from, to); err != nil {
		return nil, err
	}
	return nil, syscall.EMFILE
}

// TestShortReuse reuses a file whose name has changed already when descriptors are short.
func TestShortReuse(t *testing.T) {
	fs := Mem()
	must(t, put(t, fs, "/f", "old").Close())
	base := &halfReused{FS: fs.base}
	fs.base = base
	f, err := fs.ReuseForWrite("/f", "/g", category)
	must(t, errors.Join(err, fs.Failed()))
	_, err = f.Write([]byte("new"))
	must(t, errors.Join(err, f.Close()))
	if got := read(t, fs, "/g"); got != "new" || base.tries.Load() != 1 {
		t.Errorf("the file has %q after %d tries; want new after 1", got, base.tries.Load())
	}
}
