package disk

import (
	"errors"
	"math/rand/v2"
	"strings"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/fault"
)

// TestSyncedPrefix damages logs and manifests where a reader would take the damage for the end of the file.
func TestSyncedPrefix(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 1))
	for _, name := range []string{"/000002.log", "/MANIFEST-000001", "/000003.sst"} {
		checked := name != "/000003.sst"
		damage := func(fs *FS, at int64) {
			t.Helper()
			f, err := fs.base.OpenReadWrite(name, category)
			must(t, err)
			_, err = f.WriteAt([]byte("!"), at)
			must(t, err)
			must(t, f.Close())
		}
		refused := func(what string, fs *FS, want bool) {
			t.Helper()
			f, err := fs.Open(name)
			if err == nil {
				must(t, f.Close())
			}
			if got := err != nil && strings.Contains(err.Error(), "do not read back"); got != (want && checked) {
				t.Errorf("%s, %s: open = %v; want an error: %v", name, what, err, want && checked)
			}
		}
		fs := Mem()
		f := put(t, fs, name, "synced")
		must(t, f.Sync())
		_, err := f.Write([]byte(" not"))
		must(t, err)
		refused("whole", fs, false)
		if got := read(t, fs, name); got != "synced not" {
			t.Errorf("%s has %q", name, got)
		}
		damage(fs, 6)
		refused("damaged behind the sync", fs, false)
		must(t, f.Close())
		syncDir(t, fs, "/")
		fs = fs.Crash(0, random).Crash(0, random)
		refused("crashed twice", fs, false)
		fs.SetDrive(fault.Drive{FlippedBit: true}, random)
		refused("a bit reads wrong", fs, true)
		fs.SetDrive(fault.Drive{}, random)
		refused("no bit reads wrong", fs, false)
		damage(fs, 5)
		refused("damaged", fs, true)

		must(t, fs.Remove(name))
		must(t, put(t, fs, name, "SYNCED").Sync())
		refused("made anew", fs, false)
		f, err = fs.OpenReadWrite(name, category)
		must(t, err)
		_, err = f.WriteAt([]byte("x"), 0)
		must(t, err)
		refused("written over", fs, false)
	}
}

// TestSyncedPrefixOnDisk does so on the machine's disk, where a crash cuts files, and where the sync is a journal's.
func TestSyncedPrefixOnDisk(t *testing.T) {
	dir, fs := t.TempDir(), OS()
	j, err := OpenJournal(JournalOptions{Dir: dir, Logs: map[uint16]string{1: dir}})
	must(t, err)
	must(t, fs.Share(j, 1, dir))
	name := fs.PathJoin(dir, "000002.log")
	f := put(t, fs, name, strings.Repeat("synced", 1000))
	must(t, f.Sync())
	syncDir(t, fs, dir)
	_, err = f.Write([]byte("not"))
	must(t, err)
	must(t, f.Close())
	left := fs.Crash(0, rand.New(rand.NewPCG(1, 1)))
	must(t, left.Lose())
	if got := read(t, left, name); got != strings.Repeat("synced", 1000) {
		t.Errorf("%d bytes; want the 6000 that were synced", len(got))
	}
	g, err := vfs.Default.OpenReadWrite(name, category)
	must(t, err)
	_, err = g.WriteAt([]byte("x"), 5999)
	must(t, err)
	must(t, g.Close())
	if _, err := left.Open(name); err == nil {
		t.Error("damage in the last synced byte was not noticed")
	}
	must(t, j.Close())
}

// noStat is a file of which nothing is known.
type noStat struct{ vfs.File }

func (noStat) Stat() (vfs.FileInfo, error) { return nil, syscall.EIO }

// TestVerifiedWithoutStat opens a log again whose length the disk does not tell.
func TestVerifiedWithoutStat(t *testing.T) {
	fs := Mem()
	f := put(t, fs, "/1.log", "synced")
	must(t, f.Sync())
	if _, err := verified(noStat{f}, fs.prefixes.of("/1.log")); !errors.Is(err, syscall.EIO) {
		t.Errorf("opened with %v; want %v", err, syscall.EIO)
	}
}
