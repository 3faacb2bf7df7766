package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/disk"
)

// TestStoreRecord cuts the power at each of an engine's syncs, at first boot and later. What the record lists then is
// there. All that was acknowledged is in the listed logs: it is there also if those that are not listed are taken away.
func TestStoreRecord(t *testing.T) {
	places := disk.Places{Store: "/store", Engine: "/store/engine", Logs: "/store/engine"}
	for _, apart := range []bool{false, true} {
		if apart {
			places.Logs = "/logs"
		}
		sprung := 0
		for at := int64(1); at < 90; at += 1 + at/30 {
			rng := rand.New(rand.NewPCG(uint64(at), 1))
			fs, acknowledged := disk.Mem(), 0
			for life := 0; life < 3; life++ {
				was, err := disk.ReadStoreRecord(fs, "/store")
				if err != nil {
					was = disk.StoreRecord{Store: 1}
				}
				must(t, was.Missing(fs, places))
				for _, name := range unlisted(fs, places.Logs, was) {
					must(t, fs.Remove(fs.PathJoin(places.Logs, name)))
				}
				fs.Keep(places, was)
				left := make(chan *disk.FS, 1)
				fs.Hook(disk.BeforeSync, func(n int64) {
					if n == at {
						left <- fs.Crash(int(at%3)*50, rng)
					}
				})
				o := testOptions(t, fs)
				o.Dir, o.WALDir, o.MustExist, o.Fatal = places.Engine, places.Logs, was.Boot > 0, fs.Fence
				if e, err := Open(o); err == nil {
					for i := range acknowledged {
						if value, ok := get(t, e, metadataKey(i)); fs.Failed() == nil && (!ok || value != fmt.Sprint(i)) {
							t.Fatalf("sync %d, life %d: %d of %d keys is %q, %v", at, life, i, acknowledged, value, ok)
						}
					}
					if fs.Enter(uint64(life)+1, nil) == nil {
						acknowledged = writeAndFlush(t, e, fs, acknowledged)
					}
					if err := errors.Join(e.Close(), fs.Seal()); fs.Failed() == nil {
						must(t, err)
					}
				} else if fs.Failed() == nil {
					t.Fatalf("sync %d, life %d: %v", at, life, err)
				}
				if fs.Failed() != nil {
					sprung++
					fs = <-left
				} else {
					fs = fs.Crash(0, rng) // nothing that counts is unsynced
				}
			}
		}
		if sprung < 60 {
			t.Errorf("logs apart %v: %d power cuts; want some 100", apart, sprung)
		}
	}
}

// writeAndFlush writes numbered keys, with syncs, and returns how many are acknowledged.
func writeAndFlush(t *testing.T, e *Engine, fs *disk.FS, n int) int {
	for round := range 12 {
		b := e.NewBatch()
		must(t, b.Set(metadataKey(n), fmt.Append(nil, n)))
		if err := b.Commit(true); err != nil || fs.Failed() != nil {
			return n
		}
		n++
		if round%3 == 0 {
			if err := e.FlushAll(t.Context()); err != nil {
				return n
			}
		}
	}
	return n
}

// unlisted returns the logs in a folder that are not in the record.
func unlisted(fs *disk.FS, dir string, i disk.StoreRecord) (names []string) {
	all, err := fs.List(dir)
	if err != nil {
		return nil
	}
	return slices.DeleteFunc(all, func(name string) bool {
		return path.Ext(name) != ".log" || strings.HasPrefix(name, ".") ||
			slices.ContainsFunc(i.Files, func(l disk.ListedFile) bool { return l.Name == name })
	})
}
