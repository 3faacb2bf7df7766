package engine

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"

	"neokv.dev/neokv/internal/keys"
)

// parked returns how many closed views the pool has.
func parked(e *Engine) (n int) {
	for i := range e.viewPool.views {
		if e.viewPool.views[i].Load() != nil {
			n++
		}
	}
	return n
}

func set(t testing.TB, e *Engine, key []byte, value string, sync bool) {
	b := e.NewBatch()
	must(t, b.Set(key, []byte(value)))
	must(t, b.Commit(sync))
}

// TestViewsAreTakenAgain: a read that follows another finds the iterator open.
func TestViewsAreTakenAgain(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	set(t, e, metadataKey(1), "v", false)
	v := e.NewView()
	it, err := v.Iter(nil, nil)
	must(t, err)
	must(t, it.Close())
	v.Close()
	if again := e.NewView(); again != v || again.iter == nil {
		t.Error("a closed view was not taken again")
	}
	if value, ok, err := v.Get(metadataKey(1)); string(value) != "v" || !ok || err != nil {
		t.Errorf("%q, %v, %v from a view that was taken again", value, ok, err)
	}
	if _, ok, err := v.Get(metadataKey(2)); ok || err != nil {
		t.Errorf("a key that is not there: %v, %v", ok, err)
	}
	if it, err = v.Iter(nil, nil); err != nil || !it.First() || string(it.Value()) != "v" {
		t.Errorf("a walk in a view that was taken again: %v", err)
	}
	must(t, it.Close())
	v.Close()

	var all []*View
	for range 3 * len(e.viewPool.views) {
		all = append(all, e.NewView())
	}
	for _, v := range all {
		v.Close()
	}
	if n := parked(e); n != len(e.viewPool.views) {
		t.Errorf("%d views are in the pool, want %d", n, len(e.viewPool.views))
	}
	set(t, e, metadataKey(1), "w", false)
	if value, _ := get(t, e, metadataKey(1)); value != "w" || parked(e) != 1 {
		t.Errorf("%q behind a write, and %d views are parked; want w, and that of this read", value, parked(e))
	}
}

// TestViewsBehindAnyWrite: whichever way a write takes, the next read gets no view from before it.
func TestViewsBehindAnyWrite(t *testing.T) {
	for name, write := range map[string]func(e *Engine, key []byte){
		"batch": func(e *Engine, key []byte) { set(t, e, key, "v", false) },
		"ahead": func(e *Engine, key []byte) {
			b := e.NewBatch()
			defer b.Close()
			must(t, b.Set(metadataKey(2), make([]byte, AheadBytes)))
			must(t, b.SetAhead(key, make([]byte, AheadBytes)))
		},
		"ingestion": func(e *Engine, key []byte) {
			g, err := e.NewIngestion("test")
			must(t, err)
			f, err := g.Create()
			must(t, err)
			must(t, e.WriteTable(f, key, []byte("v")))
			must(t, g.Commit(nil))
		},
	} {
		t.Run(name, func(t *testing.T) {
			e := open(t, testOptions(t, vfs.NewMem()))
			defer func() { must(t, e.Close()) }()
			key := metadataKey(1)
			if _, ok := get(t, e, key); ok || parked(e) == 0 {
				t.Errorf("before the write: there %v, %d views are parked", ok, parked(e))
			}
			write(e, key)
			if _, ok := get(t, e, key); !ok {
				t.Error("what was written is not there")
			}
		})
	}
}

// TestViewOfAWriteUnderWay: a view that was opened before a write could be seen, though after it had begun, is not
// taken again.
func TestViewOfAWriteUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		goOn := make(chan struct{})
		o := testOptions(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpCreate && strings.HasSuffix(op.Path, ".log") && slow.Load() {
				<-goOn
			}
			return nil
		})))
		e := open(t, o)
		defer func() { must(t, e.Close()) }()
		key := metadataKey(1)
		set(t, e, key, "old", false)
		slow.Store(true)
		var wg sync.WaitGroup
		// Needs a new memtable and log.
		wg.Go(func() { set(t, e, key, strings.Repeat("new", int(o.Knobs.MemtableSize)/10), false) })
		synctest.Wait()
		if value, _ := get(t, e, key); value != "old" {
			t.Errorf("%.9q is seen before the write", value)
		}
		close(goOn)
		wg.Wait()
		if value, _ := get(t, e, key); !strings.HasPrefix(value, "new") {
			t.Errorf("%.9q is read behind a write that was answered", value)
		}
	})
}

// TestReadsNeverGoBack: once a read has seen a write, no later one takes a view from before, though the write has not
// been answered.
func TestReadsNeverGoBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var slow atomic.Bool
		goOn := make(chan struct{})
		e := open(t, testOptions(t, errorfs.Wrap(vfs.NewMem(), errorfs.InjectorFunc(func(op errorfs.Op) error {
			if op.Kind == errorfs.OpFileSyncData && slow.Load() {
				<-goOn
			}
			return nil
		}))))
		defer func() { must(t, e.Close()) }()
		key := metadataKey(1)
		set(t, e, key, "old", true)
		before := e.NewView()
		slow.Store(true)
		var wg sync.WaitGroup
		wg.Go(func() { set(t, e, key, "new", true) })
		synctest.Wait() // for the sync
		v := e.NewView()
		if value, _, err := v.Get(key); string(value) != "new" || err != nil {
			t.Errorf("%q, %v; the test needs a write that is seen before it is answered", value, err)
		}
		before.Close()
		if value, _ := get(t, e, key); value != "new" {
			t.Errorf("%q, behind a read of new", value)
		}
		v.Close()
		close(goOn)
		wg.Wait()
	})
}

// TestReadsAndWrites opens views, reuses them and outdates them at any moment. A read finds at least what was
// acknowledged or read before it began.
func TestReadsAndWrites(t *testing.T) {
	writes := 20_000
	if testing.Short() {
		writes /= 10
	}
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	key := metadataKey(1)
	set(t, e, key, "0", false)
	var known atomic.Int64 // answered or read
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for least := known.Load(); least < int64(writes) && !t.Failed(); least = known.Load() {
				v := e.NewView()
				value, _, err := v.Get(key)
				n, _ := strconv.ParseInt(string(value), 10, 64)
				v.Close()
				if err != nil || n < least {
					t.Errorf("read %d behind %d; %v", n, least, err)
				}
				for now := known.Load(); now < n && !known.CompareAndSwap(now, n); now = known.Load() {
				}
			}
		})
	}
	for i := range writes {
		set(t, e, key, fmt.Sprint(i+1), false)
		for now := known.Load(); now <= int64(i) && !known.CompareAndSwap(now, int64(i+1)); now = known.Load() {
		}
	}
	wg.Wait()
}

// TestParkedViewsKeepNoSpace: an engine at rest deletes tables that only views in the pool keep alive, even if a view
// is closed and opened all the time.
func TestParkedViewsKeepNoSpace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, busy := range []bool{false, true} {
			o := testOptions(t, vfs.NewMem())
			e := open(t, o)
			tables := func() (n int) {
				synctest.Wait()
				names, err := o.FS.List(o.Dir)
				must(t, err)
				for _, name := range names {
					if strings.HasSuffix(name, ".sst") {
						n++
					}
				}
				return n
			}
			for i := range 3 {
				set(t, e, metadataKey(i), "v", false)
				must(t, e.db.Flush())
			}
			before := tables()
			v := e.NewView()
			if !busy {
				v.Close()
			}
			compact(t, e)
			if n := tables(); n <= before {
				t.Errorf("%d tables behind the compaction; the view should keep the %d of before", n, before)
			}
			e.IdleUpkeep()
			if busy {
				v.Close()
			}
			if n := tables(); n != 1 || parked(e) != 0 {
				t.Errorf("busy %v: %d tables and %d parked views at rest, want one table", busy, n, parked(e))
			}
			must(t, e.Close())
		}
	})
}

// TestGetNow reads keys of an engine with many sublevels in both ways, and checks which way each read took.
func TestGetNow(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	put := func(value string, keys ...int) {
		b := e.NewBatch()
		for _, i := range keys {
			must(t, b.Set(metadataKey(i), []byte(value)))
		}
		must(t, b.Commit(false))
	}
	put("old", 1, 2, 3)
	must(t, e.db.Flush())
	put("new", 2)
	b := e.NewBatch()
	must(t, b.Delete(metadataKey(3)))
	must(t, b.Commit(false))

	e.depth.Store(deep)
	v := e.NewLazyView(nil)
	want := func(i int, want string, pinned bool) {
		t.Helper()
		value, ok, err := v.GetNow(metadataKey(i))
		must(t, err)
		if string(value) != want || ok != (want != "") {
			t.Errorf("key %d: %q, %v; want %q", i, value, ok, want)
		}
		if (v.iter != nil) != pinned {
			t.Errorf("key %d: pinned %v; want %v", i, v.iter != nil, pinned)
		}
	}
	want(1, "old", false)
	want(2, "new", false)
	put("newest", 2)
	want(2, "newest", false) // it is the latest
	want(3, "", false)
	for range missMemory { // after a missing key, GetNow does the same as Get
		v.Close()
		v = e.NewLazyView(nil)
		want(1, "old", true)
	}
	v.Close()
	v = e.NewLazyView(nil)
	want(1, "old", false)
	if value, ok, err := v.Get(metadataKey(2)); err != nil || !ok || string(value) != "newest" { // pinned now
		t.Errorf("Get = %q, %v, %v", value, ok, err)
	}
	put("last", 2)
	want(2, "newest", true)
	v.Close()
	e.depth.Store(deep - 1)
	v = e.NewLazyView(nil)
	put("in time", 2)
	want(2, "in time", true)
	put("too late", 2)
	want(2, "in time", true)
	v.Close()
}

// BenchmarkGetNow reads keys that most sublevels of L0 hold, one per view.
func BenchmarkGetNow(b *testing.B) {
	for _, depth := range []int{0, 2, 4, 8} {
		o := testOptions(b, vfs.NewMem())
		o.Knobs.MemtableSize, o.Knobs.BlockCache, o.Knobs.L0Compaction, o.Knobs.L0Stop = 128<<20, 256<<20, 100, 1000
		e := open(b, o)
		rng := rand.New(rand.NewPCG(1, 1))
		value := make([]byte, keys.StringLen(64))
		key := func() []byte { return metadataKey(rng.IntN(100_000)) }
		fill := func(writes int) {
			for range writes / 1000 {
				batch := e.NewBatch()
				for range 1000 {
					must(b, batch.Set(key(), value))
				}
				must(b, batch.Commit(false))
			}
			must(b, e.db.Flush())
		}
		fill(500_000)
		compact(b, e)
		for range depth {
			fill(60_000)
		}
		for _, way := range []struct {
			name  string
			depth int32
		}{{"iterator", 0}, {"latest", deep}} {
			b.Run(fmt.Sprintf("sublevels=%d/%s", depth, way.name), func(b *testing.B) {
				e.depth.Store(way.depth)
				e.missed.Store(0)
				all := make([][]byte, 4096)
				for i := range all {
					for ok := false; !ok; _, ok = get(b, e, all[i]) {
						all[i] = key()
					}
				}
				b.ReportAllocs()
				for i := 0; b.Loop(); i++ {
					v := e.NewLazyView(nil)
					if _, ok, err := v.GetNow(all[i%len(all)]); !ok || err != nil {
						b.Fatal(ok, err)
					}
					v.Close()
				}
			})
		}
		must(b, e.Close())
	}
}
