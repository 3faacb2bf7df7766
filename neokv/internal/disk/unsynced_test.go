package disk

import (
	"path/filepath"
	"slices"
	"testing"
)

// TestCrashOfTheMachinesDisk crashes real files: what was synced stays, and what was not goes.
func TestCrashOfTheMachinesDisk(t *testing.T) {
	for _, c := range []struct {
		percent int
		want    []string
	}{
		{0, []string{"0123456789", "-", "", "0123456789", "old", "-", "r", "-", "-", "0123456789", "reused"}},
		{100, []string{"0123456789lost", "0123456789lost", "data", "0123456789more", "oldnew", "-", "r", "-", "x",
			"0123456789", "reused+"}},
	} {
		dir := t.TempDir()
		at := func(name string) string { return filepath.Join(dir, name) }
		must(t, put(t, OS(), at("old"), "old").Close()) // before this process, as far as the file system knows
		must(t, put(t, OS(), at("recycled"), "an old log").Close())

		fs := OS()
		synced := put(t, fs, at("synced"), "0123456789")
		must(t, synced.Sync())
		_, err := synced.Write([]byte("lost"))
		must(t, err)
		must(t, synced.Close())
		put(t, fs, at("unsynced"), "data")
		apart := put(t, fs, at("two handles"), "0123456789")
		must(t, apart.Sync())
		must(t, apart.Close())
		again, err := fs.OpenReadWrite(at("two handles"), category)
		must(t, err)
		_, err = again.WriteAt([]byte("more"), 10)
		must(t, err)
		old, err := fs.OpenReadWrite(at("old"), category)
		must(t, err)
		_, err = old.WriteAt([]byte("new"), 3)
		must(t, err)
		must(t, put(t, fs, at("renamed"), "r").Sync())
		must(t, put(t, fs, at("removed"), "r").Sync())
		must(t, put(t, fs, at("quiet"), "0123456789").Sync())
		reused, err := fs.ReuseForWrite(at("recycled"), at("log"), category)
		must(t, err)
		_, err = reused.Write([]byte("reused"))
		must(t, err)
		must(t, reused.Sync())
		_, err = reused.Write([]byte("+"))
		must(t, err)
		syncDir(t, fs, dir)
		must(t, fs.Rename(at("renamed"), at("new name")))
		must(t, fs.Remove(at("removed")))
		must(t, fs.Link(at("synced"), at("link")))
		must(t, put(t, fs, at("no name"), "x").Sync())

		left := fs.Crash(c.percent, randomSource(t))
		if got := read(t, fs, at("synced")) + read(t, fs, at("no name")); got != "0123456789lostx" {
			t.Errorf("who still uses the crashed file system reads %q", got)
		}
		must(t, left.Lose())
		must(t, left.Lose())
		files := []string{"synced", "link", "unsynced", "two handles", "old", "renamed", "new name", "removed", "no name",
			"quiet", "log"}
		var got []string
		for _, name := range files {
			text := read(t, left, at(name))
			if name == "log" { // beyond what was written the old log is still there
				text = text[:min(len(text), len(c.want[10]))]
			}
			got = append(got, text)
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("crash with %d %%: %q; want %q", c.percent, got, c.want)
		}
		if _, err := fs.Create(at("behind the fence"), category); err != nil {
			t.Error(err)
		}
		if got := read(t, left, at("behind the fence")); got != "-" {
			t.Errorf("a file made behind the fence is on the disk: %q", got)
		}
	}
}

// TestUnsyncedNames removes a file after another was made, as Pebble does with the markers of its manifests: a crash that
// leaves neither would leave no database. What is made after that may be lost.
func TestUnsyncedNames(t *testing.T) {
	for what, change := range map[string]func(fs *FS, old string) error{
		"removed": func(fs *FS, old string) error { return fs.Remove(old) },
		"renamed": func(fs *FS, old string) error { return fs.Rename(old, old+"er") },
	} {
		dir, fs := t.TempDir(), OS()
		at := func(name string) string { return filepath.Join(dir, name) }
		must(t, put(t, fs, at("old"), "old").Sync())
		syncDir(t, fs, dir)
		must(t, put(t, fs, at("new"), "new").Sync())
		must(t, change(fs, at("old")))
		must(t, put(t, fs, at("newer"), "newer").Sync())
		left := fs.Crash(0, randomSource(t))
		must(t, left.Lose())
		for name, want := range map[string]string{"old": "-", "new": "new", "newer": "-"} {
			if got := read(t, left, at(name)); got != want {
				t.Errorf("%s: %s has %q; want %q", what, name, got, want)
			}
		}
	}
}

// TestUnsyncedForgets writes, syncs, renames and removes files: nothing is noted of what a crash cannot take.
func TestUnsyncedForgets(t *testing.T) {
	dir := t.TempDir()
	fs := OS()
	for range 100 {
		for _, name := range []string{"a", "b", "c"} {
			f := put(t, fs, filepath.Join(dir, name), "data")
			if name != "c" {
				must(t, f.Sync())
			}
			must(t, f.Close())
		}
		must(t, fs.Rename(filepath.Join(dir, "a"), filepath.Join(dir, "d")))
		must(t, fs.Remove(filepath.Join(dir, "c")))
		syncDir(t, fs, dir)
	}
	if u := fs.unsynced; len(u.files) > 0 || len(u.names) > 0 {
		t.Errorf("noted: files %v, names %v; want none", u.files, u.names)
	}
}
