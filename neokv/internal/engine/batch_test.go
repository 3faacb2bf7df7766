package engine

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// TestBatchAgainstModel runs random writes and reads of one batch after the other on few keys, beside a map.
func TestBatchAgainstModel(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	rng := random(t)
	const names = 24
	key := func(i int) []byte { return fmt.Appendf([]byte{byte(keys.RedisMetadata)}, "%02d", i) }
	committed := map[int]string{}

	batches := 400
	if testing.Short() {
		batches /= 4
	}
	for n := range batches {
		b := e.NewBatch()
		model := make(map[int]string)
		for i, v := range committed {
			model[i] = v
		}
		check := func(i int) {
			t.Helper()
			value, ok, err := b.Get(key(i))
			must(t, err)
			if want, exists := model[i]; ok != exists || string(value) != want {
				t.Fatalf("batch %d: Get(%d) = %q, %v; want %q, %v", n, i, value, ok, want, exists)
			}
		}
		// walk compares [i, j) as an iterator of the batch shows it, from the end if back.
		walk := func(i, j int, back bool) {
			t.Helper()
			it, err := b.Iter(key(i), key(j))
			must(t, err)
			var got, want []string
			for x := i; x < j; x++ {
				if v, ok := model[x]; ok {
					want = append(want, string(key(x))+" "+v)
				}
			}
			if back {
				slices.Reverse(want)
			}
			first, next := it.First, it.Next
			if back {
				first, next = it.Last, it.Prev
			}
			for ok := first(); ok; ok = next() {
				got = append(got, string(it.Key())+" "+string(it.Value()))
				if rng.IntN(8) == 0 { // another walk meanwhile does not matter, either
					other, err := b.Iter(key(0), key(names))
					must(t, err)
					other.Last()
					must(t, other.Close())
				}
				if rng.IntN(4) == 0 { // does not show
					x := i + rng.IntN(min(j, names)-i)
					model[x] = fmt.Sprint("while walking ", n)
					must(t, b.Set(key(x), []byte(model[x])))
				}
			}
			must(t, it.Close())
			if !slices.Equal(got, want) {
				t.Fatalf("batch %d: Iter(%d, %d), back %v = %q; want %q", n, i, j, back, got, want)
			}
		}
		steps, actions := rng.IntN(60), 10
		if rng.IntN(4) == 0 { // enough writes to be sorted, and nothing that prevents sorting
			steps, actions = 4*sortMin, 4
		}
		for step := range steps {
			i := rng.IntN(names)
			switch rng.IntN(actions) {
			case 0, 1:
				model[i] = fmt.Sprint("value ", n, ".", step, string(make([]byte, rng.IntN(200))))
				must(t, b.Set(key(i), []byte(model[i])))
			case 2:
				model[i] = fmt.Sprint("deferred ", n, ".", step)
				op := b.SetDeferred(len(key(i)), len(model[i]))
				copy(op.Key, key(i))
				copy(op.Value, model[i])
				must(t, op.Finish())
			case 3:
				delete(model, i)
				must(t, b.Delete(key(i)))
			case 4:
				j := i + rng.IntN(names/3)
				for x := i; x < j; x++ {
					delete(model, x)
				}
				must(t, b.DeleteRange(key(i), key(j)))
			case 5:
				if rng.IntN(4) == 0 {
					walk(i, i+1+rng.IntN(names), rng.IntN(2) == 0)
				}
			default:
				check(i)
			}
		}
		if rng.IntN(2) == 0 {
			walk(0, names, false)
			for i := range names {
				check(i)
			}
		}
		if rng.IntN(5) == 0 {
			b.Close()
			continue
		}
		must(t, b.Commit(rng.IntN(2) == 0))
		committed = model
	}
	for i := range names {
		want, exists := committed[i]
		if value, ok := get(t, e, key(i)); ok != exists || value != want {
			t.Errorf("engine: key %d is %q, %v; want %q, %v", i, value, ok, want, exists)
		}
	}
}

// TestSetAhead: what is written ahead of a large batch is read by it, stays where the batch deletes a range, and takes
// little memory.
func TestSetAhead(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	key := func(i int) []byte { return fmt.Appendf([]byte{byte(keys.RedisMetadata)}, "%05d", i) }
	value := bytes.Repeat([]byte("v"), 10_000)
	for _, ranges := range []bool{false, true} {
		b := e.NewBatch()
		must(t, b.Set(key(0), []byte("own")))
		if ranges {
			must(t, b.DeleteRange(key(1000), key(2000)))
		}
		first := 1000
		if !ranges {
			first = 3000
		}
		for i := range 1000 {
			must(t, b.SetAhead(key(first+i), value))
			if i == 500 {
				if _, ok, err := b.Get(key(first + i)); err != nil || !ok {
					t.Fatalf("ranges %v: the batch does not read what it wrote ahead: %v", ranges, err)
				}
			}
		}
		if small := b.Len() < 2*AheadBytes; small == ranges {
			t.Errorf("ranges %v: the batch has %d bytes", ranges, b.Len())
		}
		it, err := b.Iter(key(first), key(first+1000))
		must(t, err)
		n := 0
		for ok := it.First(); ok; ok = it.Next() {
			n++
		}
		must(t, it.Close())
		if n != 1000 {
			t.Errorf("ranges %v: the batch walks over %d keys, want 1000", ranges, n)
		}
		if _, ok := get(t, e, key(0)); ok {
			t.Errorf("ranges %v: the batch is visible before it is committed", ranges)
		}
		must(t, b.Delete(key(0)))
		must(t, b.Commit(false))
		for i := range 1000 {
			if _, ok := get(t, e, key(first+i)); !ok {
				t.Fatalf("ranges %v: key %d is gone", ranges, i)
			}
		}
	}
}

// TestExpect tells a batch of values that the engine does not have. So each read shows which source answered it: the
// batch, Expect or the engine.
func TestExpect(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	key := metadataKey
	b := e.NewBatch()
	for i := range 4 {
		must(t, b.Set(key(i), []byte("engine")))
	}
	must(t, b.Commit(false))

	b = e.NewBatch()
	want := func(i int, want string) {
		t.Helper()
		value, ok, err := b.Get(key(i))
		must(t, err)
		got := string(value) // valid until the next call
		has, err := b.Has(key(i))
		must(t, err)
		if got != want || ok != (want != "") || has != ok {
			t.Errorf("key %d: %q, %v, has %v; want %q", i, got, ok, has, want)
		}
	}
	tell := func() {
		b.Expect([]Known{
			{Key: key(0), Value: []byte("told"), There: true}, {Key: key(1)},
			{Key: key(9), There: true, Value: []byte("told")}, {Key: key(8), There: true, Cut: true},
		})
	}
	tell()
	for range 2 { // in any order, and more than once
		want(9, "told")
		want(1, "")
		want(0, "told")
		want(2, "engine")
	}
	if has, err := b.Has(key(8)); err != nil || !has {
		t.Errorf("key 8: has %v, %v; want what has been told", has, err)
	}
	if _, ok, err := b.Get(key(8)); err != nil || ok {
		t.Errorf("key 8: %v, %v; its value has not been told", ok, err)
	}
	must(t, b.Set(key(1), []byte("batch")))
	must(t, b.Delete(key(9)))
	want(1, "batch")
	want(9, "")
	must(t, b.DeleteRange(key(0), append(key(0), 0)))
	want(0, "")
	must(t, b.Commit(false))

	b = e.NewBatch()
	want(9, "") // nothing is left of what Expect told the batch before
	must(t, b.Set(key(5), make([]byte, AheadBytes)))
	must(t, b.SetAhead(key(1), []byte("ahead")))
	tell()
	want(1, "ahead")
	want(9, "")
	b.Close()
	b = e.NewBatch()
	tell()
	want(9, "told")
	b.Close()
}

// TestBatchOfEqualHashes puts all keys on one chain of the writeIndex.
func TestBatchOfEqualHashes(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	b := e.NewBatch()
	defer b.Close()
	b.over.hash = func([]byte) uint64 { return 7 }
	for i := range 20 {
		must(t, b.Set(metadataKey(i%10), fmt.Append(nil, i)))
	}
	must(t, b.Delete(metadataKey(3)))
	for i := range 11 {
		value, ok, err := b.Get(metadataKey(i))
		must(t, err)
		if want := fmt.Sprint(10 + i); ok != (i < 10 && i != 3) || ok && string(value) != want {
			t.Errorf("Get(%d) = %q, %v; want %q", i, value, ok, want)
		}
	}
}

func TestBatchReadsBelowOnce(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	first := e.NewBatch()
	if !first.Empty() {
		t.Error("a new batch is not empty")
	}
	must(t, first.Set(metadataKey(1), []byte("a")))
	if first.Empty() || first.Len() < len(metadataKey(1)) {
		t.Errorf("Empty() = %v, Len() = %d after a write", first.Empty(), first.Len())
	}
	b := e.NewBatch()
	defer b.Close()
	if b.view != nil {
		t.Error("a batch without reads holds a view")
	}
	if _, ok, err := b.Get(metadataKey(1)); ok || err != nil {
		t.Errorf("Get before the commit = %v, %v", ok, err)
	}
	must(t, first.Commit(false))
	if _, ok, err := b.Get(metadataKey(1)); ok || err != nil {
		t.Errorf("Get after the first read sees a later commit: %v, %v", ok, err)
	}
}

func TestDeleteSlots(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	user := []byte("key")
	cleared := topology.SlotRange{First: 100, Last: 199}
	record := func(space byte, slot topology.Slot) (all [][]byte) {
		orphan := keys.Orphan{Slot: slot, User: user, Version: 4}
		for _, key := range [][]byte{
			keys.AppendMetadata(nil, slot, user), keys.AppendLegacy(nil, slot, user),
			append(keys.AppendCollection(nil, keys.Data, slot, user, 4), 'f'),
			scoreKeyOf(slot, user, 4, 1, []byte("m")),
			orphan.AppendKey(nil),
		} {
			all = append(all, elsewhere(space, key))
		}
		return all
	}
	b := e.NewBatch()
	const own, neighbour = 1, 2
	for _, s := range []byte{own, neighbour} {
		for _, slot := range []topology.Slot{99, 100, 199, 200, 16383} {
			for _, key := range record(s, slot) {
				must(t, b.Set(key, []byte("v")))
			}
		}
		must(t, b.Set(keys.AppendRegionState(nil, topology.RegionID(s)), []byte("v")))
	}
	must(t, b.Commit(false))

	check := func(s byte, slots topology.SlotRange) {
		t.Helper()
		for _, slot := range []topology.Slot{99, 100, 199, 200, 16383} {
			for _, key := range record(s, slot) {
				if _, ok := get(t, e, key); ok == slots.Contains(slot) {
					t.Errorf("slot %d of region %d: key %x there: %v", slot, s, key, ok)
				}
			}
		}
		if _, ok := get(t, e, keys.AppendRegionState(nil, topology.RegionID(s))); !ok {
			t.Errorf("region %d lost its state", s)
		}
	}
	none := topology.SlotRange{First: 1, Last: 0}
	b = e.NewBatch()
	must(t, b.DeleteSlots(cleared))
	must(t, b.Commit(false))
	check(own, cleared)
	check(neighbour, none)

	all := topology.SplitEvenly(1)[0]
	b = e.NewBatch()
	must(t, b.DeleteSlots(all))
	must(t, b.Commit(false))
	check(own, all)
	check(neighbour, none)
}

// loaded is an engine with n keys in the last level and a cache that holds them.
func loaded(b *testing.B, n int) *Engine {
	o := testOptions(b, vfs.NewMem())
	o.Knobs.BlockCache, o.Knobs.MemtableSize = 256<<20, 32<<20
	e := open(b, o)
	b.Cleanup(func() { must(b, e.Close()) })
	value := bytes.Repeat([]byte("v"), 64)
	for i := 0; i < n; {
		batch := e.NewBatch()
		for range 1000 {
			must(b, batch.Set(metadataKey(2*i), value))
			i++
		}
		must(b, batch.Commit(false))
	}
	compact(b, e)
	return e
}

const benchKeys = 100_000

func benchmarkGet(b *testing.B, e *Engine, odd int, newView bool) {
	rng := rand.New(rand.NewPCG(1, 2))
	all := make([][]byte, 4096)
	for i := range all {
		all[i] = metadataKey(2*rng.IntN(benchKeys) + odd)
	}
	v := e.NewView()
	defer func() { v.Close() }()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		if newView {
			v.Close()
			v = e.NewView()
		}
		if _, ok, err := v.Get(all[i%len(all)]); err != nil || ok != (odd == 0) {
			b.Fatal(ok, err)
		}
	}
}

func BenchmarkGet(b *testing.B) {
	e := loaded(b, benchKeys)
	b.Run("hit", func(b *testing.B) { benchmarkGet(b, e, 0, false) })
	b.Run("miss", func(b *testing.B) { benchmarkGet(b, e, 1, false) })
	b.Run("hit-new-view", func(b *testing.B) { benchmarkGet(b, e, 0, true) })
	b.Run("miss-new-view", func(b *testing.B) { benchmarkGet(b, e, 1, true) })
}

// BenchmarkBatch counts operations; 64 of them make a batch, committed without sync.
func BenchmarkBatch(b *testing.B) {
	const size = 64
	all := make([][]byte, 4096)
	for i := range all {
		all[i] = metadataKey(2 * i)
	}
	value := bytes.Repeat([]byte("v"), 64)
	for _, c := range []struct {
		name string
		run  func(batch *Batch, key []byte) error
	}{
		{"set", func(batch *Batch, key []byte) error { return batch.Set(key, value) }},
		{"get-set", func(batch *Batch, key []byte) error {
			if _, _, err := batch.Get(key); err != nil {
				return err
			}
			return batch.Set(key, value)
		}},
		{"set-get-own", func(batch *Batch, key []byte) error {
			if err := batch.Set(key, value); err != nil {
				return err
			}
			_, _, err := batch.Get(key)
			return err
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			e := loaded(b, 10_000)
			batch := e.NewBatch()
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				must(b, c.run(batch, all[i%len(all)]))
				if i%size == size-1 {
					must(b, batch.Commit(false))
					batch = e.NewBatch()
				}
			}
			batch.Close()
		})
	}
}

// BenchmarkIter counts walks over one key, 64 of them in a view or in a batch, which writes a key before each.
func BenchmarkIter(b *testing.B) {
	const size = 64
	value := bytes.Repeat([]byte("v"), 64)
	walk := func(it *Iter, err error) {
		must(b, err)
		it.First()
		must(b, it.Close())
	}
	b.Run("view", func(b *testing.B) {
		e := loaded(b, 10_000)
		v := e.NewView()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			key := metadataKey(2 * (i % 10_000))
			walk(v.Iter(key, append(bytes.Clone(key), 0)))
			if i%size == size-1 {
				v.Close()
				v = e.NewView()
			}
		}
		v.Close()
	})
	b.Run("batch", func(b *testing.B) {
		e := loaded(b, 10_000)
		batch := e.NewBatch()
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			key := metadataKey(2 * (i % 10_000))
			must(b, batch.Set(key, value))
			walk(batch.Iter(key, append(bytes.Clone(key), 0)))
			if i%size == size-1 {
				must(b, batch.Commit(false))
				batch = e.NewBatch()
			}
		}
		batch.Close()
	})
}
