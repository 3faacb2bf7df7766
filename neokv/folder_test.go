package neokv

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/settings"
)

// TestLogsApart: a folder with its write-ahead logs elsewhere finds them again, also after it was moved. It is
// refused if the logs belong to another folder.
func TestLogsApart(t *testing.T) {
	base := t.TempDir()
	dir, wal, moved := filepath.Join(base, "data"), filepath.Join(base, "fast", "wal"), filepath.Join(base, "moved")
	with := small()
	with.Engine.WALDir = wal
	write := func(config Config, n int64) *Cluster {
		t.Helper()
		c := start(t, config)
		if got, err := goRedis(t, c).Incr(t.Context(), "n").Result(); err != nil || got != n {
			t.Fatalf("INCR = %d, %v; want %d", got, err, n)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	c := write(Config{Stores: 2, Regions: 2, Dir: dir, Settings: with}, 1)
	for store := 1; store <= 2; store++ {
		logs, err := filepath.Glob(filepath.Join(c.nodes[store-1].walDir, "*.log"))
		beside, _ := filepath.Glob(filepath.Join(c.nodes[store-1].dir, "engine", "*.log"))
		if err != nil || len(logs) == 0 || len(beside) != 0 {
			t.Errorf("store %d: logs %v, %v, beside the data %v; want all of them apart", store, logs, err, beside)
		}
	}
	c = write(Config{Dir: dir}, 2) // where the record says, without the setting
	if got := c.Settings().Engine.WALDir; got != wal {
		t.Errorf("engine.wal_dir in effect: %q; want %q", got, wal)
	}

	other := small()
	other.Engine.WALDir = base
	startRefused(t, Config{Dir: dir, Settings: other},
		"folder "+dir+" keeps its write-ahead logs in "+wal+", asked for engine.wal_dir "+base)
	startRefused(t, Config{Stores: 1, Settings: with}, "need a data folder that stays")
	startRefused(t, Config{Stores: 1, Settings: with, InMemory: true}, "need a data folder that stays")
	plain := t.TempDir()
	write(Config{Stores: 1, Regions: 1, Dir: plain}, 1)
	startRefused(t, Config{Dir: plain, Settings: with}, "folder "+plain+" keeps its write-ahead logs in itself")

	if err := os.CopyFS(moved, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	startRefused(t, Config{Dir: moved}, "folder "+moved+" is a copy of "+dir)
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	write(Config{Dir: moved}, 3)
	write(Config{Dir: moved}, 4)
	if err := os.Rename(wal, wal+"2"); err != nil {
		t.Fatal(err)
	}
	startRefused(t, Config{Dir: moved}, "folder "+moved+" keeps its write-ahead logs elsewhere: open ")
}

// TestDiscardLogsApart: --discard empties logs elsewhere, too. Otherwise a start would replay them into the new data.
func TestDiscardLogsApart(t *testing.T) {
	dir, s := t.TempDir(), small()
	s.Engine.WALDir, s.Engine.WALSync = t.TempDir(), "none"
	c := start(t, Config{Stores: 1, Regions: 1, Dir: dir, Settings: s})
	logs := c.folder.logs()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, unsyncedName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	startRefused(t, Config{Dir: dir, Settings: s}, "--discard")
	c = start(t, Config{Stores: 1, Regions: 1, Dir: dir, Settings: s, Discard: true})
	if _, err := os.Stat(logs); !os.IsNotExist(err) || c.folder.logs() == logs {
		t.Errorf("logs of the discarded data in %s: %v; want none", logs, err)
	}
}

// TestDiscardOfACopy: --discard of a copy leaves the original its logs.
func TestDiscardOfACopy(t *testing.T) {
	base := t.TempDir()
	dir, twin, s := filepath.Join(base, "data"), filepath.Join(base, "copy"), small()
	s.Engine.WALDir = filepath.Join(base, "wal")
	c := start(t, Config{Stores: 1, Regions: 1, Dir: dir, Settings: s})
	if err := goRedis(t, c).Set(t.Context(), "kept", "yes", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.CopyFS(twin, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(twin, unsyncedName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	start(t, Config{Stores: 1, Regions: 1, Dir: twin, Settings: s, Discard: true})
	c = start(t, Config{Dir: dir})
	if v, err := goRedis(t, c).Get(t.Context(), "kept").Result(); err != nil || v != "yes" {
		t.Errorf("GET = %q, %v; want what was there before the copy was discarded", v, err)
	}
}

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
			return disk.WriteFile(fs, dir, recordName, []byte(`{"format": 6, "cluster": "", "wal_dir": "/fast/wal"}`))
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
		before, err := disk.ReadFile(fs, filepath.Join(dir, recordName))
		if err != nil {
			t.Fatal(err)
		}
		if err := open(dir, true); (err != nil) != x.fails {
			t.Errorf("logs %s: %v; want an error %v", x.name, err, x.fails)
		}
		if _, err := fs.Stat(log); (err == nil) != x.stay {
			t.Errorf("logs %s: %v; want them to stay %v", x.name, err, x.stay)
		}
		after, err := disk.ReadFile(fs, filepath.Join(dir, recordName))
		if err != nil || bytes.Equal(before, after) != x.fails {
			t.Errorf("logs %s: record %s behind %s, %v", x.name, after, before, err)
		}
		if err := open("/srv/neighbour", false); err != nil {
			t.Errorf("logs %s: the other cluster that has its logs there: %v", x.name, err)
		}
	}
}

// TestRefusedWithoutSync: a start under engine.wal_sync none that is refused does not mark a folder that was closed
// cleanly.
func TestRefusedWithoutSync(t *testing.T) {
	dir, unsynced := t.TempDir(), small()
	unsynced.Engine.WALSync = "none"
	c := start(t, Config{Stores: 1, Regions: 1, Dir: dir})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	startRefused(t, Config{Stores: 2, Dir: dir, Settings: unsynced}, "was made with 1 stores, asked for 2")
	startRefused(t, Config{Dir: dir, Settings: unsynced, ProxyPort: 99999}, "proxy port 99999")
	start(t, Config{Dir: dir})
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

func TestDurableWantsAFolder(t *testing.T) {
	s := small()
	s.Engine.Durable = true
	startRefused(t, Config{Stores: 1, Settings: s}, "engine.durable true")
	startRefused(t, Config{Stores: 1, Settings: s, InMemory: true}, "engine.durable true")
	start(t, Config{Stores: 1, Regions: 1, Settings: s, Dir: t.TempDir()})
	s.Engine.WALSync = "none"
	startRefused(t, Config{Stores: 1, Settings: s, Dir: t.TempDir()},
		"engine.wal_sync: none: want always with engine.durable")
}
