package disk

import (
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// TestEmpty cuts the power at each sync while a store's folders are emptied. What is left is the store as it was, or
// one whose record says that it is empty; in the end there is the record alone.
func TestEmpty(t *testing.T) {
	at := Places{Store: "/s", Engine: "/s/engine", Logs: "/wal/s"}
	r := StoreRecord{Store: 2, Boot: 7, Wiped: &Wiped{Nth: 1, Floor: 9, Nonce: 4, Empty: true}}
	for cut := int64(1); ; cut++ {
		fs := Mem()
		must(t, MakeDir(fs, at.Engine))
		must(t, MakeDir(fs, at.Logs))
		must(t, MakeDir(fs, "/s/raft/snapshots"))
		fs.Keep(at, StoreRecord{Store: 2})
		for _, name := range []string{"/wal/s/000004.log", "/s/engine/MANIFEST-000001", "/s/engine/000002.sst"} {
			file, err := fs.Create(name, vfs.WriteCategoryUnspecified)
			must(t, err)
			must(t, file.Close())
			syncDir(t, fs, fs.PathDir(name))
		}
		must(t, fs.Enter(6, nil))
		var left *FS
		first := fs.begun.Load()
		fs.Hook(BeforeSync, func(n int64) {
			if n == first+cut {
				left = fs.Crash(0, nil)
			}
		})
		err := fs.Empty(at, r)
		fs.Hook(BeforeSync, nil)
		if left == nil {
			must(t, err)
			left = fs
		}
		have, err := ReadStoreRecord(left, at.Store)
		must(t, err)
		if have.Wiped == nil {
			if err := have.Missing(left, at); err != nil || have.Boot != 6 {
				t.Errorf("cut %d: the store is as before, but %v; boot %d", cut, err, have.Boot)
			}
			continue
		}
		must(t, left.Empty(at, *cloned(&have)))
		if list(t, left, at.Store) != "store.json" || list(t, left, at.Logs) != "" {
			t.Errorf("cut %d: there is %q, and logs %q", cut, list(t, left, at.Store), list(t, left, at.Logs))
		}
		must(t, left.Enter(8, nil))
		if have, err = ReadStoreRecord(left, at.Store); err != nil || have.Boot != 8 || *have.Wiped !=
			(Wiped{Nth: 1, Floor: 9, Nonce: 4}) {
			t.Errorf("cut %d: the record of a store that has begun: %+v, %v", cut, have, err)
		}
		if left == fs {
			if cut < 5 {
				t.Errorf("%d syncs; want more", cut)
			}
			return
		}
	}
}

func cloned(r *StoreRecord) *StoreRecord { c := *r; return &c }

// list returns the names in a folder, with spaces.
func list(t *testing.T, fs vfs.FS, dir string) (names string) {
	t.Helper()
	all, err := fs.List(dir)
	must(t, err)
	for i, name := range all {
		if i > 0 {
			names += " "
		}
		names += name
	}
	return names
}

// TestJournalForgets: what the journal has of a store whose logs are gone does not come back in later logs of the same
// names.
func TestJournalForgets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		shared, fs := Mem(), Mem()
		o := JournalOptions{FS: shared, Dir: "/j", Bytes: 1 << 20, Boot: 1, Logs: map[uint16]string{2: "/s/engine"},
			Disks: map[uint16]vfs.FS{2: fs}}
		must(t, MakeDir(shared, "/j"))
		must(t, MakeDir(fs, "/s/engine"))
		j, err := OpenJournal(o)
		must(t, err)
		must(t, fs.Share(j, 2, "/s/engine"))
		log, err := fs.Create("/s/engine/000004.log", vfs.WriteCategoryUnspecified)
		must(t, err)
		_, err = log.Write([]byte("of before"))
		must(t, err)
		must(t, log.Sync())
		must(t, log.Close())
		must(t, fs.Empty(Places{Store: "/s", Engine: "/s/engine", Logs: "/s/engine"}, StoreRecord{Store: 2}))
		must(t, j.Forget(2))
		// The process is killed when the store has begun, before it shares the journal.
		must(t, MakeDir(fs, "/s/engine"))
		must(t, WriteFile(fs, "/s/engine", "000004.log", []byte("of now, and longer")))
		o.FS = shared.Crash(100, nil)
		o.Boot = 2
		again, err := OpenJournal(o)
		must(t, err)
		got, err := ReadFile(fs, "/s/engine/000004.log")
		must(t, err)
		if string(got) != "of now, and longer" {
			t.Errorf("the log is %q", got)
		}
		must(t, again.Close())
		j.Close() // its disk is dead
	})
}
