package cluster

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/settings"
)

// TestDiscardLooksAtTheOwner: --discard removes logs elsewhere only if their OWNER names the folder. It refuses if
// OWNER cannot be read.
func TestDiscardLooksAtTheOwner(t *testing.T) {
	const dir, wal = "/srv/data", "/fast/wal"
	id := [16]byte{1, 2, 3}
	logs := filepath.Join(wal, hex.EncodeToString(id[:]))
	for _, x := range []struct {
		name        string
		change      func(fs vfs.FS) error
		stay, fails bool
	}{
		{"its own", func(vfs.FS) error { return nil }, false, false},
		{"of a folder that is not there, as of one that was moved", func(fs vfs.FS) error {
			return disk.WriteFile(fs, logs, ownerName, []byte("/srv/before\n"))
		}, true, false},
		{"of another one", func(fs vfs.FS) error {
			return errors.Join(fs.MkdirAll("/srv/other", 0o755),
				disk.WriteFile(fs, logs, ownerName, []byte("/srv/other\n")))
		}, true, false},
		{"of nobody", func(fs vfs.FS) error { return fs.Remove(filepath.Join(logs, ownerName)) }, true, false},
		{"of an owner that cannot be read", func(fs vfs.FS) error {
			return errors.Join(fs.Remove(filepath.Join(logs, ownerName)),
				fs.MkdirAll(filepath.Join(logs, ownerName), 0o755))
		}, true, true},
		{"that the record does not name", func(fs vfs.FS) error {
			return disk.WriteFile(fs, dir, RecordName, []byte(`{"format": 6, "cluster": "", "wal_dir": "/fast/wal"}`))
		}, true, false},
	} {
		fs, s, ids := disk.Mem(), *small(), byte(0)
		s.Engine.WALDir = wal
		open := func(dir string, discard bool) error {
			f, err := openFolder(fs, dir, settings.ClusterKnobs{}, s, discard,
				func() [16]byte { ids++; return [16]byte{ids, 2, 3} })
			if err == nil {
				err = f.close(true)
			}
			return err
		}
		log := filepath.Join(logs, "store-1", "000001.log")
		err := errors.Join(open(dir, false), fs.MkdirAll(filepath.Dir(log), 0o755),
			disk.WriteFile(fs, filepath.Dir(log), filepath.Base(log), nil),
			open("/srv/neighbour", false), x.change(fs), disk.WriteFile(fs, dir, unsyncedName, nil))
		if err != nil {
			t.Fatal(err)
		}
		before, err := disk.ReadFile(fs, filepath.Join(dir, RecordName))
		if err != nil {
			t.Fatal(err)
		}
		if err := open(dir, true); (err != nil) != x.fails {
			t.Errorf("logs %s: %v; want an error %v", x.name, err, x.fails)
		}
		if _, err := fs.Stat(log); (err == nil) != x.stay {
			t.Errorf("logs %s: %v; want them to stay %v", x.name, err, x.stay)
		}
		after, err := disk.ReadFile(fs, filepath.Join(dir, RecordName))
		if err != nil || bytes.Equal(before, after) != x.fails {
			t.Errorf("logs %s: record %s behind %s, %v", x.name, after, before, err)
		}
		if err := open("/srv/neighbour", false); err != nil {
			t.Errorf("logs %s: the other cluster that has its logs there: %v", x.name, err)
		}
	}
}

// TestNewFolderIsDurable cuts the power after openFolder has made a new folder, and folders above it and above its
// logs. The folder, its logs and their owner are there.
func TestNewFolderIsDurable(t *testing.T) {
	for _, wal := range []string{"", "/fast/a/b/wal"} {
		fs, s, id := disk.Mem(), *small(), [16]byte{1, 2, 3}
		s.Engine.WALDir = wal
		open := func(fs *disk.FS, id [16]byte) (*folder, error) {
			return openFolder(fs, "/srv/a/b/data", settings.ClusterKnobs{}, s, false, func() [16]byte { return id })
		}
		if _, err := open(fs, id); err != nil {
			t.Fatal(err)
		}
		f, err := open(fs.Crash(0, nil), [16]byte{9})
		if err != nil || f.cluster != id || f.walDir != wal {
			t.Errorf("engine.wal_dir %q: after a power cut: cluster %x, logs in %q, %v; want %x",
				wal, f.cluster, f.walDir, err, id)
		}
	}
}

// TestUnsyncedMarkerSurvivesAFailure makes a disk fail under engine.wal_sync none, while the store serves and while it
// stops. The folder is not clean, whatever Close returns.
func TestUnsyncedMarkerSurvivesAFailure(t *testing.T) {
	for _, stops := range []bool{false, true} {
		dir := t.TempDir()
		s := small()
		s.Engine.WALSync = "none"
		c := start(t, Config{Dir: dir, Settings: s})
		if stops {
			c.places.all()[1].hangUp() // so stop begins
		}
		c.places.all()[1].fs.Fence(errors.New("planted"))
		if !stops {
			select {
			case <-c.Failed():
			case <-time.After(10 * time.Second):
				t.Fatal("Failed told nothing")
			}
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, unsyncedName)); err != nil {
			t.Errorf("the store stops: %v; the marker is gone: %v", stops, err)
		}
	}
}
