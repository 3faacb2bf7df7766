package disk

import (
	"errors"
	"syscall"
	"testing"
)

// TestMakeDir cuts the power when a folder has been made, where a process that was killed has left one of its parents,
// or the folder itself, unsynced.
func TestMakeDir(t *testing.T) {
	const dir = "/top/a/b/c"
	for _, left := range []string{"/top", "/top/a", "/top/a/b", dir} {
		fs := Mem()
		must(t, MakeDir(fs, fs.PathDir(left)))
		must(t, fs.MkdirAll(left, 0o755))
		must(t, MakeDir(fs, dir))
		if _, err := fs.Crash(0, nil).Stat(dir); err != nil {
			t.Errorf("with %s left: %v", left, err)
		}
	}
	fs := Mem()
	must(t, put(t, fs, "/file", "x").Sync())
	if err := MakeDir(fs, "/file/a"); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a folder below a file: %v; want %v", err, syscall.ENOTDIR)
	}
}

// TestWriteFile cuts the power behind the first sync, where the file is what it was, and at the end.
func TestWriteFile(t *testing.T) {
	fs := Mem()
	must(t, MakeDir(fs, "/top/dir"))
	must(t, WriteFile(fs, "/top/dir", "name", []byte("old")))
	fs = fs.Crash(0, nil)
	var between *FS
	fs.Hook(AfterSync, func(n int64) {
		if n == 1 {
			between = fs.Crash(0, nil)
		}
	})
	must(t, WriteFile(fs, "/top/dir", "name", []byte("new")))
	if got := read(t, between, "/top/dir/name"); got != "old" {
		t.Errorf("on the way: %q; want old", got)
	}
	must(t, WriteFile(between, "/top/dir", "name", []byte("new")))
	if got := read(t, between.Crash(0, nil), "/top/dir/name"); got != "new" {
		t.Errorf("at the end: %q; want new", got)
	}
}
