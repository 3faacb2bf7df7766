package neokv

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/settings"
)

// A folder whose write-ahead logs are apart finds them again, also when it was moved, and is refused where they are not its own.
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
	c = write(Config{Dir: dir}, 2) // as recorded, without the setting
	if got := c.Settings().Engine.WALDir; got != wal {
		t.Errorf("engine.wal_dir in effect: %q; want %q", got, wal)
	}

	other := small()
	other.Engine.WALDir = base
	startRefused(t, Config{Dir: dir, Settings: other}, "folder "+dir+" keeps its write-ahead logs in "+wal+", asked for engine.wal_dir "+base)
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

// --discard empties the logs apart too: they would be replayed into the new data.
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

// TestNewFolderIsDurable cuts the power when a new folder has been opened: it is there, and so are the folders of its logs and their owner, with
// all the folders that had to be made for them.
func TestNewFolderIsDurable(t *testing.T) {
	for _, wal := range []string{"", "/fast/a/b/wal"} {
		fs, s, id := disk.Mem(), *small(), [16]byte{1, 2, 3}
		s.Engine.WALDir = wal
		open := func(fs *disk.FS, id [16]byte) (*folder, error) {
			return openFolder(fs, "/srv/a/b/data", settings.Cluster{}, s, false, func() [16]byte { return id })
		}
		if _, err := open(fs, id); err != nil {
			t.Fatal(err)
		}
		f, err := open(fs.Crash(0, nil), [16]byte{9})
		if err != nil || f.cluster != id || f.walDir != wal {
			t.Errorf("engine.wal_dir %q: behind a power cut: cluster %x, logs in %q, %v; want %x", wal, f.cluster, f.walDir, err, id)
		}
	}
}

// A folder of an older format keeps its data, and is of the present format from its first start on: a program that knows the older ones
// alone then refuses it.
func TestOlderFolder(t *testing.T) {
	dir := t.TempDir()
	c := start(t, Config{Stores: 2, Regions: 1, Dir: dir})
	if err := goRedis(t, c).Set(t.Context(), "kept", "yes", 0).Err(); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, recordName)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{`"format": 1`, `"format": 2`, `"format": 3`} {
		older := bytes.Replace(text, []byte(`"format": 4`), []byte(format), 1)
		if err := os.WriteFile(name, older, 0o600); err != nil || bytes.Equal(older, text) {
			t.Fatalf("record %s, error %v; want format 4", text, err)
		}
		c = start(t, Config{Dir: dir})
		if v, err := goRedis(t, c).Get(t.Context(), "kept").Result(); err != nil || v != "yes" {
			t.Errorf("%s: GET = %q, %v", format, v, err)
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, text) {
			t.Errorf("%s: record %s, error %v; want %s", format, got, err, text)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
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
	startRefused(t, Config{Stores: 1, Settings: s, Dir: t.TempDir()}, "engine.wal_sync: none: want always with engine.durable")
}
