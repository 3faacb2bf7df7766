package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
	"neokv.dev/neokv/settings"
)

// testOptions are of one store with small buffers on a file system in memory; every fatal error fails the test.
func testOptions(t testing.TB, fs vfs.FS) Options {
	k := settings.Default().Engine
	k.MemtableSize, k.BlockCache = 8<<20, 8<<20
	return Options{Dir: "store/engine", FS: fs, Knobs: k, Stores: 1,
		Fatal: func(err error) { t.Errorf("fatal: %v", err) }}
}

func open(t testing.TB, o Options) *Engine {
	t.Helper()
	e, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// metadataOf returns the key of the record of a user key.
func metadataOf(user []byte) []byte { return keys.AppendMetadata(nil, topology.SlotOf(user), user) }

// elsewhere moves a key of Redis data, or of an orphan record, to another space.
func elsewhere(space byte, key []byte) []byte {
	at := keys.PrefixLen - 9
	if key[0] == byte(keys.MetaInfo) {
		at++
	}
	key[at] = space
	return key
}

func metadataKey(i int) []byte { return metadataOf(fmt.Appendf(nil, "user:%08d", i)) }

// get reads a key through a view of its own.
func get(t testing.TB, e *Engine, key []byte) (string, bool) {
	t.Helper()
	v := e.NewView()
	defer v.Close()
	value, ok, err := v.Get(key)
	must(t, err)
	return string(value), ok
}

func TestViewIsPinned(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	put := func(i int, value string) {
		b := e.NewBatch()
		must(t, b.Set(metadataKey(i), []byte(value)))
		must(t, b.Commit(false))
	}
	put(1, "old")
	v := e.NewView()
	put(1, "new")
	put(2, "new")

	if value, ok, err := v.Get(metadataKey(1)); err != nil || !ok || string(value) != "old" {
		t.Errorf("pinned view: %q, %v, %v; want old", value, ok, err)
	}
	if _, ok, err := v.Get(metadataKey(2)); err != nil || ok {
		t.Errorf("pinned view sees a later key: %v, %v", ok, err)
	}
	lower, upper := keys.RedisMetadata.Bounds()
	it, err := v.Iter(lower, upper)
	must(t, err)
	n := 0
	for it.First(); it.Valid(); it.Next() {
		n++
	}
	must(t, it.Close())
	if n != 1 {
		t.Errorf("iterator of the pinned view saw %d keys, want 1", n)
	}
	v.Close()
	if value, _ := get(t, e, metadataKey(1)); value != "new" {
		t.Errorf("new view: %q, want new", value)
	}
}

// TestGetWhereKeysShareAPrefix: in these keyspaces the seek of a Get may end on another key.
func TestGetWhereKeysShareAPrefix(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	score := func(f float64) []byte {
		return scoreKeyOf(1, []byte("z"), 1, f, []byte("m"))
	}
	b := e.NewBatch()
	for _, key := range [][]byte{keys.AppendLogEntry(nil, 1, 2), keys.AppendLogEntry(nil, 1, 4), score(2), score(4)} {
		must(t, b.Set(key, key))
	}
	must(t, b.Commit(false))
	for i := range 6 {
		for _, key := range [][]byte{keys.AppendLogEntry(nil, 1, uint64(i)), score(float64(i))} {
			if value, ok := get(t, e, key); ok != (i == 2 || i == 4) || ok && value != string(key) {
				t.Errorf("Get(%x) = %x, %v", key, value, ok)
			}
		}
	}
}

// TestOnDisk opens the same folder again on real files, by an absolute and by a relative path.
func TestOnDisk(t *testing.T) {
	t.Chdir(t.TempDir())
	o := testOptions(t, vfs.Default)
	e := open(t, o)
	b := e.NewBatch()
	must(t, b.Set(metadataKey(1), []byte("x")))
	must(t, b.Commit(true))
	must(t, e.Close())
	wd, err := os.Getwd()
	must(t, err)
	o.Dir = filepath.Join(wd, o.Dir)
	e = open(t, o)
	if _, ok := get(t, e, metadataKey(1)); !ok {
		t.Error("a key is gone")
	}
	must(t, e.Close())
}

func TestCrashKeepsWhatIsSynced(t *testing.T) {
	mem := vfs.NewCrashableMem()
	e := open(t, testOptions(t, mem))
	set := func(i int, sync bool) {
		b := e.NewBatch()
		must(t, b.Set(metadataKey(i), []byte("x")))
		must(t, b.Commit(sync))
	}
	set(1, true)
	set(2, false)
	must(t, e.Sync())
	set(3, false)
	after := mem.CrashClone(vfs.CrashCloneCfg{})
	must(t, e.Close())

	e = open(t, testOptions(t, after))
	defer func() { must(t, e.Close()) }()
	for i, want := range map[int]bool{1: true, 2: true, 3: false} {
		if _, ok := get(t, e, metadataKey(i)); ok != want {
			t.Errorf("key %d after the crash: %v, want %v", i, ok, want)
		}
	}
}

// TestFoldersAreDurable: a power cut leaves a database that opens, however deep its folder and whatever was there
// before.
func TestFoldersAreDurable(t *testing.T) {
	for _, dir := range []string{"a", "a/b/c", "/a/b/c", "/"} {
		mem := vfs.NewCrashableMem()
		o := testOptions(t, mem)
		o.Dir = dir
		e := open(t, o)
		b := e.NewBatch()
		must(t, b.Set(metadataKey(1), []byte("x")))
		must(t, b.Commit(true))
		o.FS = mem.CrashClone(vfs.CrashCloneCfg{})
		must(t, e.Close())
		e = open(t, o)
		if _, ok := get(t, e, metadataKey(1)); !ok {
			t.Errorf("%s: a synced key is gone after the crash", dir)
		}
		must(t, e.Close())
	}
}

// TestFailedSyncIsFatal: Pebble's log writer fails, Fatal hears of it before the commit returns, and the engine still
// closes.
func TestFailedSyncIsFatal(t *testing.T) {
	var failing, fatal atomic.Bool
	broken := errors.New("broken disk")
	fs := errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		switch op.Kind {
		case errorfs.OpFileSync, errorfs.OpFileSyncData, errorfs.OpFileSyncTo:
			if failing.Load() {
				return broken
			}
		}
		return nil
	}))
	o := testOptions(t, fs)
	o.Fatal = func(err error) {
		if !strings.Contains(err.Error(), broken.Error()) {
			t.Errorf("Fatal(%v); want it to name the broken disk", err)
		}
		fatal.Store(true)
		failing.Store(false) // as behind a fence: what follows succeeds
	}
	e := open(t, o)
	b := e.NewBatch()
	must(t, b.Set(metadataKey(1), []byte("x")))
	failing.Store(true)
	_ = b.Commit(true) // says nothing: Pebble does not expect Fatalf to return
	if !fatal.Load() {
		t.Error("the commit has returned and Fatal was not called")
	}
	_ = e.Close()
}

// TestUnreadableTableIsFatal: a compaction that cannot read a table is fatal. Pebble would try it again for ever,
// without a pause.
func TestUnreadableTableIsFatal(t *testing.T) {
	var failing atomic.Bool
	fatal := make(chan error, 1)
	broken := errors.New("broken disk")
	o := testOptions(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
		if failing.Load() && op.Kind == errorfs.OpFileReadAt && strings.HasSuffix(op.Path, ".sst") {
			return broken
		}
		return nil
	})))
	o.Fatal = func(err error) {
		failing.Store(false)
		select {
		case fatal <- err:
		default:
		}
	}
	e := open(t, o)
	defer func() { must(t, e.Close()) }()
	for range 2 { // the tables overlap, so a compaction has to read them
		b := e.NewBatch()
		for i := range 2 {
			must(t, b.Set(metadataKey(i), []byte("some value")))
		}
		must(t, b.Commit(true))
		must(t, e.FlushAll(t.Context()))
	}
	failing.Store(true)
	_ = e.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false)
	select {
	case err := <-fatal:
		if !strings.Contains(err.Error(), broken.Error()) {
			t.Errorf("Fatal(%v); want it to name the broken disk", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("Fatal was not called")
	}
}

// TestCorruptedTable: a checksum mismatch is an error to the reader and fatal to the store, but not to the process.
func TestCorruptedTable(t *testing.T) {
	mem := vfs.NewMem()
	o := testOptions(t, mem)
	// Small blocks: Pebble searches a block with a wrong checksum for the bit that flipped, in quadratic time.
	o.Knobs.Compression, o.Knobs.BlockSize = "none", 1<<10
	e := open(t, o)
	b := e.NewBatch()
	for i := range 1000 {
		must(t, b.Set(metadataKey(i), []byte("some value")))
	}
	must(t, b.Commit(true))
	compact(t, e)
	must(t, e.Close())

	names, err := mem.List(o.Dir)
	must(t, err)
	spoiled := 0
	for _, name := range names {
		if strings.HasSuffix(name, ".sst") {
			f, err := mem.OpenReadWrite(mem.PathJoin(o.Dir, name), vfs.WriteCategoryUnspecified)
			must(t, err)
			_, err = f.WriteAt([]byte("not what was written"), 100)
			must(t, errors.Join(err, f.Close()))
			spoiled++
		}
	}
	if spoiled != 1 {
		t.Fatalf("%d tables; want 1", spoiled)
	}

	var fatal atomic.Bool
	o.Fatal = func(err error) {
		if !strings.Contains(err.Error(), "corrupted file") || !strings.Contains(err.Error(), ".sst") {
			t.Errorf("Fatal(%v); want it to name the file", err)
		}
		fatal.Store(true)
	}
	e = open(t, o)
	defer func() { _ = e.Close() }()
	v := e.NewView()
	defer func() {
		if v.Close(); parked(e) > 0 {
			t.Error("a view that has met an error is kept for the next read")
		}
	}()
	for i := range 1000 {
		value, ok, err := v.Get(metadataKey(i))
		if err != nil { // the key lies in the spoiled block
			if !fatal.Load() {
				t.Errorf("Get(%d): %v, and Fatal was not called", i, err)
			}
			return
		}
		if !ok || string(value) != "some value" {
			t.Fatalf("Get(%d) = %q, %v", i, value, ok)
		}
	}
	t.Error("no read met the spoiled block")
}

// TestVirtualTime opens engines in one bubble after the other: nothing crosses over, and Close leaves no goroutine
// behind, not even the one that waits to flush a range deletion.
func TestVirtualTime(t *testing.T) {
	for range 3 {
		synctest.Test(t, func(t *testing.T) {
			e := open(t, testOptions(t, vfs.NewMem()))
			b := e.NewBatch()
			must(t, b.Set(metadataKey(1), []byte("x")))
			must(t, b.DeleteSlots(topology.SplitEvenly(1)[0]))
			if _, ok, err := b.Get(metadataKey(1)); ok || err != nil {
				t.Errorf("Get of a deleted key = %v, %v", ok, err)
			}
			must(t, b.Commit(true))
			time.Sleep(deleteRangeDelay + time.Second) // virtual: until the flush that the range deletion asks for
			synctest.Wait()
			if m := e.Metrics(); m.Flushes != 1 {
				t.Errorf("%d flushes after a range deletion; want 1", m.Flushes)
			}
			b = e.NewBatch()
			must(t, b.DeleteSlots(topology.SplitEvenly(1)[0]))
			must(t, b.Commit(true))
			must(t, e.Close())
		})
	}
}

func TestMetrics(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	value := make([]byte, 10_000)
	for range 2 {
		b := e.NewBatch()
		must(t, b.Set(metadataKey(1), value))
		must(t, b.Commit(true))
		must(t, e.db.Flush())
	}
	compact(t, e)
	get(t, e, metadataKey(1))
	get(t, e, metadataKey(1))
	m := e.Metrics()
	for name, v := range map[string]int64{
		"WALBytesIn": m.WALBytesIn, "WALBytesWritten": m.WALBytesWritten, "Flushes": m.Flushes,
		"FlushBytes": m.FlushBytes, "Compactions": m.Compactions, "CompactionBytes": m.CompactionBytes,
		"BlockCacheHits": m.BlockCacheHits, "BlockCacheMisses": m.BlockCacheMisses,
		"BlockCacheBytes": m.BlockCacheBytes, "FilterMisses": m.FilterMisses, "DiskBytes": m.DiskBytes,
		"TableBytes": m.TableBytes, "Tables": m.Tables, "ReadAmp": m.ReadAmp, "MemtableBytes": m.MemtableBytes,
		"Memtables": m.Memtables,
	} {
		if v <= 0 {
			t.Errorf("%s = %d; want more than 0", name, v)
		}
	}
	if m.WALBytesIn < 20_000 || m.Flushes < 2 || m.L0Sublevels != 0 || m.WriteStalls != 0 || m.BackgroundErrors != 0 {
		t.Errorf("metrics %+v", m)
	}
}

// TestFlushGivesSpaceBack: keys deleted in the memtable keep their space in tables. After a flush they do not, without
// any call for a compaction.
func TestFlushGivesSpaceBack(t *testing.T) {
	n := 20_000
	if testing.Short() {
		n /= 5
	}
	o := testOptions(t, vfs.NewMem())
	e := open(t, o)
	defer e.Close()
	random := rand.New(rand.NewPCG(1, 1))
	value := make([]byte, 200)
	for from := 0; from < n; from += 100 {
		b := e.NewBatch()
		for i := range 100 {
			for j := range value {
				value[j] = byte(random.Uint32())
			}
			must(t, b.Set(metadataKey(from+i), value))
		}
		must(t, b.Commit(false))
	}
	tables := func(good func(bytes int64) bool) int64 {
		must(t, e.Flush())
		deadline := time.Now().Add(30 * time.Second)
		for !good(e.Metrics().TableBytes) && time.Now().Before(deadline) {
			time.Sleep(time.Millisecond)
		}
		return e.Metrics().TableBytes
	}
	full := tables(func(bytes int64) bool { return bytes > int64(n*len(value)) })
	for i := range n {
		b := e.NewBatch()
		must(t, b.Delete(metadataKey(i)))
		must(t, b.Commit(false))
	}
	if got := e.Deleted(); got != uint64(n) {
		t.Errorf("%d deleted, want %d", got, n)
	}
	if got := e.Metrics().TableBytes; got < full {
		t.Fatalf("tables shrank from %d to %d bytes by themselves", full, got)
	}
	if got := tables(func(bytes int64) bool { return bytes < full/20 }); got > full/20 {
		t.Errorf("%d of %d bytes stay in tables of which every key is deleted", got, full)
	}
}

// TestRestGivesLogsBack: a large log is flushed when the engine is at rest, and removed after the flush.
func TestRestGivesLogsBack(t *testing.T) {
	synctest.Test(t, testRest)
}

func testRest(t *testing.T) {
	o := testOptions(t, vfs.NewMem())
	e := open(t, o)
	defer func() { must(t, e.Close()) }()
	write := func(bytes int) {
		b := e.NewBatch()
		must(t, b.Set(metadataKey(bytes), make([]byte, bytes)))
		must(t, b.Commit(false))
	}
	logs := func() (n int, bytes int64) {
		synctest.Wait()
		names, err := o.FS.List(o.Dir)
		must(t, err)
		for _, name := range names {
			if strings.HasSuffix(name, ".log") {
				info, err := o.FS.Stat(o.FS.PathJoin(o.Dir, name))
				must(t, err)
				n, bytes = n+1, bytes+info.Size()
			}
		}
		return n, bytes
	}
	for range 3 {
		write(idleLog / 2)
		must(t, e.Flush())
	}
	if n, bytes := logs(); n != 1 || bytes > idleWrites {
		t.Errorf("%d logs of %d bytes behind a flush; want one", n, bytes)
	}
	write(2 * idleLog)
	e.IdleUpkeep() // it has just been written
	write(2 * idleWrites)
	e.IdleUpkeep()
	if _, bytes := logs(); bytes < 2*idleLog {
		t.Errorf("%d bytes of logs while the engine is written to", bytes)
	}
	write(idleWrites / 2)
	e.IdleUpkeep()
	if n, bytes := logs(); n != 1 || bytes > idleWrites {
		t.Errorf("%d logs of %d bytes at rest; want a small one", n, bytes)
	}
	e.IdleUpkeep() // L0 is compacted, for which the memtable is flushed
	synctest.Wait()
	before := e.Metrics().Flushes
	write(idleWrites / 2)
	e.IdleUpkeep()
	if synctest.Wait(); e.Metrics().Flushes != before {
		t.Error("a small log was flushed")
	}
}

// TestRestFlattens: an engine at rest compacts the sublevels of L0, at once if there are reads and after a while if
// there are none. It does not touch levels below the first one under L0.
func TestRestFlattens(t *testing.T) {
	for _, reads := range []int{0, idleLooks} {
		if testing.Short() && reads > 0 {
			continue
		}
		synctest.Test(t, func(t *testing.T) {
			testFlattens(t, func(e *Engine) {
				for range reads {
					get(t, e, metadataKey(1))
				}
				e.IdleUpkeep()
				synctest.Wait()
				if n := e.db.Metrics().Levels[0].Sublevels; n != 3 && reads == 0 {
					t.Errorf("%d sublevels, and nobody reads", n)
				}
				for n := 1; n < idleCalls && reads == 0; n++ {
					set(t, e, metadataKey(1), strings.Repeat("x", idleWrites), false)
					e.IdleUpkeep() // written a moment ago, as happens now and then
					e.IdleUpkeep()
					synctest.Wait()
				}
			})
		})
	}
}

// TestSettleFlattens: Settle compacts the sublevels of L0, too, and returns behind that.
func TestSettleFlattens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		testFlattens(t, func(e *Engine) {
			set(t, e, metadataKey(1), "in a memtable", false)
			must(t, e.Settle(t.Context()))
		})
	})
}

func testFlattens(t *testing.T, flatten func(*Engine)) {
	o := testOptions(t, vfs.NewMem())
	o.Knobs.LevelBase = 512 << 10
	e := open(t, o)
	defer func() { must(t, e.Close()) }()
	write := func(valueBytes int) {
		for i := range 64 {
			b := e.NewBatch()
			value := make([]byte, valueBytes)
			rand.NewChaCha8([32]byte{byte(i)}).Read(value)
			must(t, b.Set(metadataKey(i), value))
			must(t, b.Commit(false))
		}
		must(t, e.Flush())
		synctest.Wait()
	}
	write(64 << 10)
	must(t, e.db.Compact(t.Context(), []byte{0}, []byte{0xff}, false))
	for range 3 {
		write(1 << 10)
	}
	e.IdleUpkeep() // it has just been written
	before := e.db.Metrics()
	if before.Levels[0].Sublevels != 3 || before.Levels[6].TablesCount == 0 {
		t.Fatalf("%d sublevels behind three flushes, %d tables in the last level", before.Levels[0].Sublevels,
			before.Levels[6].TablesCount)
	}
	flatten(e)
	after := e.db.Metrics()
	if after.Levels[0].Sublevels != 0 || after.Compact.NumInProgress != 0 {
		t.Errorf("%d sublevels, %d compactions under way", after.Levels[0].Sublevels, after.Compact.NumInProgress)
	}
	if n := after.Levels[6].TablesCompacted - before.Levels[6].TablesCompacted; n > 0 {
		t.Errorf("%d tables of the last level were written", n)
	}
}

// TestMetricsOfAHungDisk: while the sync of the manifest hangs, Metrics returns what it read last, the first call after
// metricsWait, the others at once.
func TestMetricsOfAHungDisk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var hangs atomic.Bool
		goOn := make(chan struct{})
		e := open(t, testOptions(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSync && strings.Contains(op.Path, "MANIFEST") && hangs.Load() {
				<-goOn
			}
			return nil
		}))))
		defer func() { must(t, e.Close()) }()
		b := e.NewBatch()
		must(t, b.Set(metadataKey(1), []byte("v")))
		must(t, b.Commit(true))
		before := e.Metrics()
		hangs.Store(true)
		must(t, e.Flush())
		synctest.Wait()
		for i, want := range []time.Duration{metricsWait, 0, 0} {
			begin := time.Now()
			if m := e.Metrics(); m.WALBytesIn != before.WALBytesIn || m.Flushes != 0 {
				t.Errorf("call %d: %d bytes and %d flushes, want %d and none", i, m.WALBytesIn, m.Flushes, before.WALBytesIn)
			}
			if took := time.Since(begin); took != want {
				t.Errorf("call %d took %v, want %v", i, took, want)
			}
		}
		close(goOn)
		synctest.Wait()
		if m := e.Metrics(); m.Flushes != 1 {
			t.Errorf("%d flushes when the disk goes on, want one", m.Flushes)
		}
	})
}

// TestOneFlushAtATime: while a flush is under way neither rest nor reads begin another, which would end in a stall.
func TestOneFlushAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		goOn := make(chan struct{})
		e := open(t, testOptions(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".sst") && slow.Load() {
				<-goOn
			}
			return nil
		}))))
		defer func() { must(t, e.Close()) }()
		b := e.NewBatch()
		must(t, b.Set(metadataKey(1), make([]byte, 2*idleLog)))
		must(t, b.Commit(false))
		e.IdleUpkeep() // it has just been written
		slow.Store(true)
		e.IdleUpkeep()
		queued := e.Metrics().Memtables
		if e.IdleUpkeep(); e.Metrics().Memtables != queued {
			t.Error("rest began a flush behind the one that is under way")
		}
		e.flushSoon.Store(true) // as a read does
		if e.IdleUpkeep(); e.Metrics().Memtables != queued {
			t.Error("a read began a flush behind the one that is under way")
		}
		close(goOn)
		synctest.Wait()
		if m := e.Metrics(); m.Flushes != 1 || m.Memtables != 1 {
			t.Errorf("%d flushes and %d memtables behind it, want one", m.Flushes, m.Memtables)
		}
	})
}

// TestDeletedKeyWithManyVersions: a view steps over the versions of a deleted key once, and then they are written out.
func TestDeletedKeyWithManyVersions(t *testing.T) {
	synctest.Test(t, testDeletedKey)
}

func testDeletedKey(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	key, other := []byte{byte(keys.RedisMetadata), 'k'}, []byte{byte(keys.RedisMetadata), 'o'}
	const versions = 3 * manySteps
	for range versions {
		b := e.NewBatch()
		must(t, b.Set(key, []byte("v")))
		must(t, b.Set(other, []byte("v")))
		must(t, b.Commit(false))
	}
	b := e.NewBatch()
	must(t, b.Delete(key))
	must(t, b.Commit(false))
	steps := func(v *View) int {
		t.Helper()
		before := v.iter.Stats()
		if _, ok, err := v.Get(key); ok || err != nil {
			t.Fatalf("the key is there %v, error %v", ok, err)
		}
		if value, ok, err := v.Get(other); string(value) != "v" || !ok || err != nil {
			t.Fatalf("the other key is %q, there %v, error %v", value, ok, err)
		}
		after := v.iter.Stats()
		return after.ForwardStepCount[pebble.InternalIterCall] - before.ForwardStepCount[pebble.InternalIterCall]
	}
	v := e.NewView()
	first, second := steps(v), steps(v)
	v.Close()
	if first < versions || second != 0 {
		t.Errorf("a view took %d steps, then %d; want %d at least, then none", first, second, versions)
	}
	e.IdleUpkeep() // it flushes, and leaves no view from before
	synctest.Wait()
	if n := e.Metrics().Flushes; n != 1 {
		t.Errorf("%d flushes, want one", n)
	}
	v = e.NewView()
	if n := steps(v); n > 10 {
		t.Errorf("%d steps after the flush, want hardly any", n)
	}
	v.Close()
}

func TestStallsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := open(t, testOptions(t, vfs.NewMem()))
		defer func() { must(t, e.Close()) }()
		l := e.events.listener(func(error) {})
		l.WriteStallBegin(pebble.WriteStallBeginInfo{})
		time.Sleep(3 * time.Second)
		l.WriteStallEnd()
		time.Sleep(time.Second)
		l.WriteStallBegin(pebble.WriteStallBeginInfo{})
		time.Sleep(time.Second)
		if m := e.Metrics(); m.WriteStalls != 2 || m.WriteStallTime != 4*time.Second {
			t.Errorf("%d stalls, %v; want 2, 4s", m.WriteStalls, m.WriteStallTime)
		}
		l.BackgroundError(errors.New("no space"))
		if m := e.Metrics(); m.BackgroundErrors != 1 {
			t.Errorf("%d background errors; want 1", m.BackgroundErrors)
		}
	})
}

func TestStaggered(t *testing.T) {
	for _, c := range []struct {
		memtable    int64
		nth, stores int
		want        int64
	}{
		{16 << 20, 0, 1, 16 << 20},
		{16 << 20, 0, 3, 16 << 20},
		{16 << 20, 1, 3, 14 << 20},
		{16 << 20, 2, 3, 12 << 20},
		{36 << 20, 8, 9, 24 << 20},
		{minMemtable, 2, 3, minMemtable},
	} {
		if got := staggered(c.memtable, c.nth, c.stores); got != c.want {
			t.Errorf("staggered(%d, %d, %d) = %d; want %d", c.memtable, c.nth, c.stores, got, c.want)
		}
	}
}

func TestShareOf(t *testing.T) {
	k := settings.Default().Engine
	k.MemtableSize, k.BlockCache, k.RowCache, k.CompactionConcurrency = 90<<20, 300<<20, 30<<20, 7
	for _, c := range []struct {
		stores int
		want   Share
	}{
		{1, Share{Memtable: 90 << 20, Cache: 300<<20 + 180<<20, Rows: 30 << 20, Compactions: 7, OpenFiles: 1024}},
		{3, Share{Memtable: 30 << 20, Cache: 100<<20 + 60<<20, Rows: 10 << 20, Compactions: 2, OpenFiles: 341}},
		{9, Share{Memtable: 10 << 20, Cache: (300<<20)/9 + 20<<20, Rows: (30 << 20) / 9, Compactions: 1,
			OpenFiles: 128}},
	} {
		if got, err := ShareOf(k, c.stores); err != nil || got != c.want {
			t.Errorf("ShareOf(%d stores) = %+v, %v; want %+v", c.stores, got, err, c.want)
		}
	}
	if _, err := ShareOf(k, 0); err == nil || err.Error() != "engine: stores (0) must be >= 1" {
		t.Errorf("ShareOf(0 stores): %v", err)
	}

	bad := settings.EngineKnobs{MemtableSize: 1 << 20, MemtableCount: 1, L0Compaction: 4, L0Stop: 4, Compression: "lz4",
		BloomPrefix: "slot"}
	_, err := ShareOf(bad, 9)
	for _, want := range []string{
		"engine.memtable_size (1048576 bytes) is 116508 bytes for each of 9 stores; allowed 262144 to 4294967294",
		"engine.memtable_count (1) must be >= 2", "engine.block_cache (0 bytes) must be >= 1",
		"engine.l0_stop (4) must be > engine.l0_compaction (4)", `engine.compression ("lz4")`,
		`engine.bloom_prefix ("slot")`,
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("ShareOf of bad knobs: %v; want it to say %q", err, want)
		}
	}
	o := testOptions(t, vfs.NewMem())
	o.Knobs = bad
	if _, err := Open(o); err == nil {
		t.Error("Open takes bad knobs")
	}
}

// TestOpenTwice: the folder's lock keeps a second engine out and harms nothing.
func TestOpenTwice(t *testing.T) {
	o := testOptions(t, vfs.NewMem())
	e := open(t, o)
	if _, err := Open(o); err == nil {
		t.Error("a second engine opened the folder")
	}
	b := e.NewBatch()
	must(t, b.Set(metadataKey(1), []byte("x")))
	must(t, b.Commit(true))
	must(t, e.Close())
	e = open(t, o)
	if _, ok := get(t, e, metadataKey(1)); !ok {
		t.Error("a key is gone")
	}
	must(t, e.Close())
}

// subkeyOf returns the key of a field of a hash, or of a member of a set or a sorted set.
func subkeyOf(slot topology.Slot, user []byte, version uint64, sub []byte) []byte {
	return append(keys.AppendCollection(nil, keys.Data, slot, user, version), sub...)
}

// scoreKeyOf returns the key of an entry of a sorted set in the score index.
func scoreKeyOf(slot topology.Slot, user []byte, version uint64, score float64, member []byte) []byte {
	return keys.AppendPlace(keys.AppendCollection(nil, keys.ZSetScore, slot, user, version), score, member)
}
