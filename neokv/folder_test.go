package neokv

import (
	"os"
	"path/filepath"
	"testing"
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
		logs, err := filepath.Glob(filepath.Join(c.in.Places()[store-1].At().Logs, "*.log"))
		beside, _ := filepath.Glob(filepath.Join(c.in.Places()[store-1].Dir(), "engine", "*.log"))
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
	logs := filepath.Dir(c.in.Places()[0].At().Logs)
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, unsyncedName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	startRefused(t, Config{Dir: dir, Settings: s}, "--discard")
	c = start(t, Config{Stores: 1, Regions: 1, Dir: dir, Settings: s, Discard: true})
	if _, err := os.Stat(logs); !os.IsNotExist(err) || filepath.Dir(c.in.Places()[0].At().Logs) == logs {
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

// TestRefusedWithoutSync: a start under engine.wal_sync none that is refused does not mark a folder that was closed
// cleanly.
func TestRefusedWithoutSync(t *testing.T) {
	dir, unsynced := t.TempDir(), small()
	unsynced.Engine.WALSync = "none"
	c := start(t, Config{Stores: 1, Regions: 1, Dir: dir})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	startRefused(t, Config{Regions: 2, Dir: dir, Settings: unsynced}, "was made with 1 regions, asked for 2")
	startRefused(t, Config{Dir: dir, Settings: unsynced, ProxyPort: 99999}, "proxy port 99999")
	start(t, Config{Dir: dir})
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
