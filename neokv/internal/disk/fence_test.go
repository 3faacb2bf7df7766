package disk

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/fault"
)

func openPebble(t *testing.T, fs vfs.FS, dir string) *pebble.DB {
	t.Helper()
	db, err := pebble.Open(dir, &pebble.Options{
		FS: fs, MemTableSize: 64 << 10, FormatMajorVersion: pebble.FormatNewest, Logger: quietLogger{},
	})
	must(t, err)
	return db
}

// loader writes to a database and knows what was acknowledged.
type loader struct {
	db    *pebble.DB
	fs    *FS
	mu    sync.Mutex
	acked map[string]string // acknowledged while the file system had not failed
	wrote atomic.Int64
}

// write sets keys of its own until n are written or stop returns true.
func (l *loader) write(t *testing.T, writer, n int, rng *rand.Rand, stop func() bool) {
	for i := 0; i < n && !stop(); i++ {
		key := fmt.Sprintf("writer %d key %d", writer, i)
		value := fmt.Sprintf("%s %0*d", key, 1+rng.IntN(2000), i)
		if err := l.db.Set([]byte(key), []byte(value), pebble.Sync); err != nil {
			t.Errorf("%s: %v", key, err)
			return
		}
		l.wrote.Add(1)
		if l.fs.Failed() == nil {
			l.mu.Lock()
			l.acked[key] = value
			l.mu.Unlock()
		}
	}
}

// verify reads everything in a database and compares it with what was acknowledged.
func verify(t *testing.T, db *pebble.DB, acked map[string]string) {
	t.Helper()
	iter, err := db.NewIter(nil)
	must(t, err)
	found := map[string]string{}
	for valid := iter.First(); valid; valid = iter.Next() {
		found[string(iter.Key())] = string(iter.Value())
	}
	must(t, iter.Close())
	must(t, db.CheckLevels(nil))
	for _, key := range slices.Sorted(maps.Keys(acked)) {
		if found[key] != acked[key] {
			t.Fatalf("%s = %.40q; want %.40q (%d acknowledged, %d found)", key, found[key], acked[key], len(acked),
				len(found))
		}
	}
}

// Whichever operation fails under a busy Pebble, Pebble goes on, flushes, reads its writes and closes. The disk has
// everything that was acknowledged.
func TestPebbleNeverSeesAFailure(t *testing.T) {
	faults := []failingOp{
		{Op: OpSync, Path: "*.log", Skip: 200, Err: syscall.EIO},
		{Op: OpWrite, Path: "*.log", Skip: 200, Err: syscall.ENOSPC},
		{Op: OpWrite, Path: "*.sst", Skip: 10, Err: syscall.ENOSPC},
		{Op: OpSync, Path: "*.sst", Skip: 2, Err: syscall.EIO},
		{Op: OpCreate, Path: "*.sst", Skip: 2, Err: syscall.EMFILE},
		{Op: OpCreate, Path: "*.log", Skip: 2, Err: syscall.ENOSPC},
		{Op: OpWrite, Path: "MANIFEST-*", Skip: 3, Err: syscall.ENOSPC},
		{Op: OpSync, Path: "MANIFEST-*", Skip: 3, Err: syscall.EIO},
		{Op: OpSync, Path: "db", Skip: 2, Err: syscall.EIO},
		{Op: OpRemove, Path: "*.sst", Skip: 1, Err: syscall.EROFS},
	}
	for _, fault := range faults {
		for _, where := range []string{"disk", "memory"} {
			t.Run(fmt.Sprintf("%s/%s %s", where, fault.Op, fault.Path), func(t *testing.T) {
				rng := randomSource(t)
				fs, dir := Mem(), "/db"
				if where == "disk" {
					fs, dir = OS(), t.TempDir()+"/db"
				}
				fs, base := canFail(fs)
				fs.WaitInLog(true) // it tries EMFILE again without pauses
				var fences atomic.Int64
				fs.OnFence(func(err error) {
					if !errors.Is(err, fault.Err) {
						t.Errorf("fenced because of %v; want %v", err, fault.Err)
					}
					fences.Add(1)
				})
				l := &loader{db: openPebble(t, fs, dir), fs: fs, acked: map[string]string{}}
				base.begin(fault)
				t.Log(fault)
				var writers sync.WaitGroup
				var after atomic.Int64 // writes behind the fence: enough for several flushes
				for w := range 4 {
					rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
					writers.Go(func() {
						l.write(t, w, 3000, rng, func() bool { return fs.Failed() != nil && after.Add(1) > 300 })
					})
				}
				writers.Wait()
				if fences.Load() != 1 {
					t.Errorf("fenced %d times; want once", fences.Load())
				}
				stats := fs.Stats()
				for { // until syncs that began before the fence have ended
					time.Sleep(50 * time.Millisecond)
					now := fs.Stats()
					if now == stats {
						break
					}
					stats = now
				}
				must(t, l.db.Flush())
				verify(t, l.db, l.acked)
				must(t, l.db.Compact(t.Context(), []byte("a"), []byte("z"), false))
				verify(t, l.db, l.acked)
				must(t, l.db.Close())
				if now := fs.Stats(); now != stats {
					t.Errorf("work went on behind the fence: %+v, then %+v", stats, now)
				}

				again := []*FS{OS()}
				if where == "memory" {
					again = []*FS{fs.Crash(100, nil), fs.Crash(0, nil), fs.Crash(50, rng)}
				}
				for _, fs := range again {
					db := openPebble(t, fs, dir)
					verify(t, db, l.acked)
					must(t, db.Set([]byte("alive"), nil, pebble.Sync))
					must(t, db.Close())
					must(t, fs.Failed())
				}
				t.Logf("%d acknowledged of %d written", len(l.acked), l.wrote.Load())
			})
		}
	}
}

// While OnFence's function runs, no call that failed returns.
func TestFailingCallsWaitForTheFence(t *testing.T) {
	fs, base := canFail(Mem())
	const callers = 8
	var returned, seen atomic.Int64
	entered := make(chan struct{})
	release := make(chan struct{})
	fs.OnFence(func(error) {
		close(entered)
		<-release
		seen.Store(returned.Load())
	})
	base.begin(failingOp{Op: OpSync, Err: syscall.EIO})
	var files [callers]vfs.File
	for i := range files {
		files[i] = put(t, fs, fmt.Sprint(i), "x")
	}
	var wg sync.WaitGroup
	for _, f := range files {
		wg.Go(func() {
			if err := f.Sync(); err != nil {
				t.Error(err)
			}
			returned.Add(1)
		})
	}
	<-entered
	if fs.Failed() == nil {
		t.Error("not failed while the fence goes up")
	}
	must(t, put(t, fs, "other", "y").Close()) // calls that do not fail are not held up
	close(release)
	wg.Wait()
	if seen.Load() != 0 {
		t.Errorf("%d failing calls returned before the fence was up", seen.Load())
	}
	if got := read(t, fs.Crash(100, nil), "other"); got != "y" {
		t.Errorf("written while the fence went up = %q; want %q", got, "y")
	}
}

func TestAnswersAreNoTrouble(t *testing.T) {
	for _, c := range []struct {
		fs  *FS
		dir string
	}{{OS(), t.TempDir()}, {Mem(), "/dir"}} {
		fs := c.fs
		at := func(name string) string { return fs.PathJoin(c.dir, name) }
		must(t, fs.MkdirAll(at("full/x"), 0o755))
		must(t, put(t, fs, at("a"), "a").Close())
		must(t, put(t, fs, at("b"), "b").Close())
		lock, err := fs.Lock(at("LOCK"))
		must(t, err)
		for name, do := range map[string]func() error{
			"open":             func() error { _, err := fs.Open(at("none")); return err },
			"stat":             func() error { _, err := fs.Stat(at("none")); return err },
			"list":             func() error { _, err := fs.List(at("none")); return err },
			"remove":           func() error { return fs.Remove(at("none")) },
			"remove full":      func() error { return fs.Remove(at("full")) },
			"rename":           func() error { return fs.Rename(at("none"), at("c")) },
			"link":             func() error { return fs.Link(at("none"), at("c")) },
			"link to existing": func() error { return fs.Link(at("a"), at("b")) },
			"lock twice":       func() error { _, err := fs.Lock(at("LOCK")); return err },
		} {
			if do() == nil {
				t.Errorf("%s: no error", name)
			}
			if err := fs.Failed(); err != nil {
				t.Fatalf("%s: fenced: %v", name, err)
			}
		}
		must(t, lock.Close())
		lock, err = fs.Lock(at("LOCK"))
		must(t, err)
		must(t, lock.Close())

		if _, err := fs.Create(at("none/file"), category); err != nil || fs.Failed() == nil {
			t.Errorf("create in a folder that is gone: %v, fenced: %v; want success behind the fence", err, fs.Failed())
		}
	}
}

// The hook crashes the file system at its k-th sync, from within the sync: nothing acknowledged is lost, and time can
// stand still.
func TestCrashAtEverySync(t *testing.T) {
	rng := randomSource(t)
	step := int64(1)
	if testing.Short() {
		step = 4
	}
	for k := int64(1); k <= 60; k += step {
		seed := rng.Uint64()
		percent := []int{0, 50, 100}[k%3]
		synctest.Test(t, func(t *testing.T) { crashAtSync(t, Mem(), "/db", k, percent, seed) })
		if k%3 == 1 { // real time, since real files know of no other
			crashAtSync(t, OS(), filepath.Join(t.TempDir(), "db"), k, percent, seed)
		}
	}
}

func crashAtSync(t *testing.T, fs *FS, dir string, k int64, percent int, seed uint64) {
	left := make(chan *FS, 1)
	rng := rand.New(rand.NewPCG(seed, 1))
	fs.Hook(BeforeSync, func(n int64) {
		if n == k+10 { // opening takes some
			left <- fs.Crash(percent, rng)
		}
	})
	l := &loader{db: openPebble(t, fs, dir), fs: fs, acked: map[string]string{}}
	var writers sync.WaitGroup
	for w := range 3 {
		rng := rand.New(rand.NewPCG(seed, uint64(w)))
		writers.Go(func() { l.write(t, w, 1000, rng, func() bool { return fs.Failed() != nil }) })
	}
	writers.Wait()
	must(t, l.db.Close())
	db := openPebble(t, <-left, dir)
	verify(t, db, l.acked)
	must(t, db.Close())
}

// Crashes from outside, in the middle of a load with flushes and compactions, again and again on what is left.
func TestCrashUnderLoad(t *testing.T) {
	t.Run("memory", func(t *testing.T) { crashUnderLoad(t, Mem(), "/db", 20) })
	t.Run("disk", func(t *testing.T) { crashUnderLoad(t, OS(), filepath.Join(t.TempDir(), "db"), 8) })
}

func crashUnderLoad(t *testing.T, fs *FS, dir string, lives int) {
	rng := randomSource(t)
	acked := map[string]string{}
	total := 0
	if testing.Short() {
		lives /= 4
	}
	for range lives {
		l := &loader{db: openPebble(t, fs, dir), fs: fs, acked: map[string]string{}}
		verify(t, l.db, acked)
		at := fs.Stats().Syncs + 1 + rng.Int64N(800)
		enough := make(chan struct{})
		var once sync.Once
		fs.Hook(AfterSync, func(n int64) {
			if n >= at {
				once.Do(func() { close(enough) })
			}
		})
		var writers sync.WaitGroup
		for w := range 4 {
			rng := rand.New(rand.NewPCG(rng.Uint64(), 0))
			writers.Go(func() { l.write(t, w, 10_000, rng, func() bool { return fs.Failed() != nil }) })
		}
		<-enough
		left := fs.Crash(rng.IntN(101), rng)
		writers.Wait()
		must(t, l.db.Close())
		maps.Copy(acked, l.acked)
		// A write in flight at the crash may have taken effect, so it is read back here, for the verify after the next
		// crash.
		db := openPebble(t, left, dir)
		verify(t, db, l.acked)
		for key := range acked {
			value, closer, err := db.Get([]byte(key))
			must(t, err)
			acked[key] = string(value)
			must(t, closer.Close())
		}
		total += len(l.acked)
		must(t, db.Close())
		fs = left.Crash(0, nil)
	}
	t.Logf("%d writes acknowledged", total)
}

// Every acknowledged write has a completed sync before it, and the counters say what was done.
func TestSyncsAreCounted(t *testing.T) {
	for name, fs := range map[string]*FS{"disk": OS(), "memory": Mem()} {
		db := openPebble(t, fs, t.TempDir())
		var begun, done atomic.Int64
		fs.Hook(BeforeSync, func(n int64) { begun.Store(n) })
		fs.Hook(AfterSync, func(n int64) { done.Store(n) })
		bytes := 0
		start := fs.Stats()
		for i := range 300 {
			before := done.Load()
			value := make([]byte, 500)
			bytes += len(value)
			must(t, db.Set(fmt.Appendf(nil, "%d", i), value, pebble.Sync))
			if done.Load() == before {
				t.Fatalf("%s: write %d was acknowledged without a sync", name, i)
			}
		}
		must(t, db.Close())
		stats := fs.Stats()
		if begun.Load() != done.Load() || done.Load() != stats.Syncs {
			t.Errorf("%s: %d syncs begun, %d completed, %d counted", name, begun.Load(), done.Load(), stats.Syncs)
		}
		if wrote := stats.BytesWritten - start.BytesWritten; wrote < int64(bytes) {
			t.Errorf("%s: %d bytes counted; want at least %d", name, wrote, bytes)
		}
		if stats.SyncNanos <= start.SyncNanos {
			t.Errorf("%s: no time in syncs", name)
		}
	}
}

func TestFree(t *testing.T) {
	if free, total, ok := OS().Free(t.TempDir()); !ok || free <= 0 || total < free {
		t.Errorf("free space on disk: %d of %d, %v", free, total, ok)
	}
	if _, _, ok := Mem().Free("/"); ok {
		t.Error("memory knows its free space")
	}
}

// TestFailedReads times reads that fail, and those with a wrong bit. Pebble tries a compaction that cannot read again
// at once and for ever, so on a failed file system they take a while.
func TestFailedReads(t *testing.T) {
	for _, drive := range []fault.Drive{{ReadErrors: true}, {FlippedBit: true}} {
		synctest.Test(t, func(t *testing.T) {
			fs := Mem()
			f, err := fs.Create("f", "")
			must(t, err)
			_, err = f.Write([]byte{0})
			must(t, err)
			fs.SetDrive(drive, rand.New(rand.NewPCG(1, 1)))
			took := func() time.Duration {
				t.Helper()
				begin, p := time.Now(), make([]byte, 1)
				_, err := f.ReadAt(p, 0)
				if drive.ReadErrors != errors.Is(err, syscall.EIO) || drive.FlippedBit != (p[0] != 0) {
					t.Errorf("%+v: read %v, %v", drive, p, err)
				}
				return time.Since(begin)
			}
			if d := took(); d != 0 {
				t.Errorf("%+v: a read takes %v", drive, d)
			}
			fs.Fence(errors.New("planted"))
			if d := took(); d != failedPause {
				t.Errorf("%+v: a read on a failed file system takes %v, want %v", drive, d, failedPause)
			}
		})
	}
}
