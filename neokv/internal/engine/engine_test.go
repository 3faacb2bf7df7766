package engine

import (
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/settings"
)

// testOptions are of one store with small buffers on a file system in memory; every fatal error fails the test.
func testOptions(t testing.TB, fs vfs.FS) Options {
	k := settings.Default().Engine
	k.MemtableSize, k.BlockCache = 8<<20, 8<<20
	return Options{Dir: "store/engine", FS: fs, Knobs: k, Stores: 1, Fatal: func(err error) { t.Errorf("fatal: %v", err) }}
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

var space = keys.Space{Region: 3, Index: 1}

func metadataKey(i int) []byte { return space.AppendMetadataOf(nil, fmt.Appendf(nil, "user:%08d", i)) }

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
