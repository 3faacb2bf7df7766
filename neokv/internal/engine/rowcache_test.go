package engine

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/topology"
)

// latest reads a key as a GET does, and says whether that took a look into Pebble.
func latest(t testing.TB, e *Engine, rows *Rows, key []byte) (value string, ok, looked bool) {
	t.Helper()
	v := e.NewLazyView(rows)
	defer v.Close()
	b, ok, err := v.GetNow(key)
	must(t, err)
	return string(b), ok, v.looks > 0
}

// TestRows goes through everything that makes or drops rows.
func TestRows(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	rows := e.NewRows()
	commit := func(fill func(*Batch)) {
		b := e.NewBatch()
		b.Keep(rows)
		fill(b)
		must(t, b.Commit(false))
	}
	put := func(i int, value string) {
		commit(func(b *Batch) { must(t, b.Set(metadataKey(i), []byte(value))) })
	}
	want := func(what string, i int, value string, looks bool) {
		t.Helper()
		got, ok, looked := latest(t, e, rows, metadataKey(i))
		if got != value || ok != (value != "") || looked != looks {
			t.Errorf("%s: key %d: %q, %v, looked into Pebble %v; want %q, %v", what, i, got, ok, looked, value, looks)
		}
	}

	put(1, "before")
	want("closed", 1, "before", true)
	want("closed", 1, "before", true)
	rows.Open()
	want("open", 1, "before", true)
	want("read before", 1, "before", false)
	put(1, "a")
	want("written", 1, "a", false)
	put(1, "b")
	want("written again", 1, "b", false)
	commit(func(b *Batch) { must(t, b.Delete(metadataKey(1))) })
	want("deleted", 1, "", true)
	commit(func(b *Batch) {
		must(t, b.Set(metadataKey(1), []byte("c")))
		must(t, b.Set(metadataKey(2), []byte("c")))
		must(t, b.Set(metadataKey(1), []byte("d")))
		must(t, b.Delete(metadataKey(2)))
	})
	want("written twice", 1, "d", false)
	want("written and deleted", 2, "", true)
	commit(func(b *Batch) { // enough to be sorted
		for i := range 2 * sortMin {
			must(t, b.Set(metadataKey(100+i%sortMin), []byte(strconv.Itoa(i))))
		}
	})
	for i := range sortMin {
		want("sorted", 100+i, strconv.Itoa(sortMin+i), false)
	}
	large := strings.Repeat("x", maxRow)
	put(1, large)
	want("large", 1, large, true)
	want("large, read before", 1, large, true)
	put(1, "small")
	want("small again", 1, "small", false)

	// What is found while something is written is no row.
	v := e.NewLazyView(rows)
	v.pin()
	rows.Renew()
	put(1, "new")
	rows.Renew()
	if value, ok, err := v.GetNow(metadataKey(1)); string(value) != "small" || !ok || err != nil {
		t.Errorf("a view from before the write: %q, %v, %v", value, ok, err)
	}
	v.Close()
	want("written meanwhile", 1, "new", true)

	// A view that has been pinned looks at rows as long as nothing has been written behind it.
	v = e.NewLazyView(rows)
	if _, ok, err := v.GetNow(metadataKey(1000)); ok || err != nil || v.looks != 1 {
		t.Errorf("a key that is not there: %v, %v, %d looks", ok, err, v.looks)
	}
	for _, looks := range []int64{1, 2} {
		if value, ok, err := v.GetNow(metadataKey(1)); string(value) != "new" || !ok || err != nil || v.looks != looks {
			t.Errorf("a pinned view: %q, %v, %v, %d looks; want %d", value, ok, err, v.looks, looks)
		}
		put(1, "newer")
	}
	v.Close()
	want("written behind a view", 1, "newer", false)

	put(1, "row")
	e.depth.Store(deep) // read level by level
	rows.Renew()
	e.missed.Store(0)
	want("deep", 1, "row", true)
	want("deep, read before", 1, "row", false)

	commit(func(b *Batch) {
		must(t, b.DeleteSlots(topology.SlotRange{Last: topology.SlotCount - 1}))
		must(t, b.Set(metadataKey(3), []byte("behind")))
	})
	want("range deleted", 1, "", true)
	want("written behind a range deletion", 3, "behind", true)

	put(1, "row")
	rows.Close()
	want("closed again", 1, "row", true)
	set(t, e, metadataKey(1), "another leader's", false)
	rows.Open()
	want("open again", 1, "another leader's", true)

	if m := e.Metrics(); m.RowCacheHits == 0 || m.RowCacheMisses == 0 || m.RowCacheBytes <= 0 {
		t.Errorf("metrics %+v", m)
	}
	var none *Rows
	none.Open()
	none.Close()
	if value, ok, looked := latest(t, e, none, metadataKey(1)); value != "another leader's" || !ok || !looked {
		t.Errorf("without rows: %q, %v, looked %v", value, ok, looked)
	}
}

// TestRowsAreBounded: rows take no more memory than they may, and small ones find places for nearly all of it.
func TestRowsAreBounded(t *testing.T) {
	for _, c := range []struct {
		limit     int64
		valueSize int
		least     float64 // part of the limit that is in use
	}{{1, 64, 0}, {1 << 10, 64, 0}, {1 << 20, 64, 0.9}, {1 << 20, 1000, 0.9}, {1 << 20, maxRow - 100, 0.9}} {
		x := newRowCache(c.limit)
		value := make([]byte, c.valueSize)
		for i := range int(4*c.limit)/c.valueSize + 100 {
			key := metadataKey(i)
			x.put(uint64(i)*0x9e3779b97f4a7c15, newRow(1, key, value), nil)
			if n := x.bytes.Load(); n > c.limit {
				t.Fatalf("limit %d, values of %d bytes: %d bytes in memory", c.limit, c.valueSize, n)
			}
		}
		counted := int64(0)
		for i := range x.buckets {
			for j := range x.buckets[i].rows {
				if r := x.buckets[i].rows[j].Load(); r != nil {
					counted += int64(r.size()) * sizeUnit
				}
			}
		}
		if n := x.bytes.Load(); n != counted || float64(n) < c.least*float64(c.limit) {
			t.Errorf("limit %d, values of %d bytes: %d bytes in memory, %d counted", c.limit, c.valueSize, n, counted)
		}
	}
}

// TestRowsBesideWrites writes registers in batches, one version after the other, every other one a deletion, while many
// goroutines read them, with rows and without. No read returns a version older than one that was acknowledged, or read
// by any goroutine, before the read began.
func TestRowsBesideWrites(t *testing.T) {
	const registers = 40
	batches := 1500
	if testing.Short() {
		batches /= 5
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	for _, limit := range []int64{1 << 10, 1 << 20} {
		e := open(t, testOptions(t, vfs.NewMem()))
		e.rows = newRowCache(limit)
		// Versions whose write has begun; the oldest versions that a later read may return.
		var begun, known [2][registers]atomic.Int64
		var wg, writers sync.WaitGroup
		done := make(chan struct{})
		key := func(region, i int) []byte { return metadataKey(region*registers + i) }
		regions := [2]*Rows{e.NewRows(), e.NewRows()}
		for region, rows := range regions {
			write := func(random *rand.Rand, n int) {
				b := e.NewBatch()
				b.Keep(rows)
				last := map[int]int64{}
				for range n {
					i := random.IntN(registers)
					last[i] = begun[region][i].Add(1)
					if last[i]%2 == 0 {
						must(t, b.Delete(key(region, i)))
					} else {
						must(t, b.Set(key(region, i), strconv.AppendInt(nil, last[i], 10)))
					}
				}
				must(t, b.Commit(false))
				for i, version := range last {
					raise(&known[region][i], version)
				}
			}
			random := rand.New(rand.NewPCG(seed, uint64(region)))
			for i := range registers {
				begun[region][i].Add(1)
				set(t, e, key(region, i), "1", false)
			}
			rows.Open()
			writers.Go(func() {
				for n := range batches {
					write(random, 1+random.IntN(8))
					switch {
					case n%100 == 50:
						write(random, 2*sortMin)
					case n%200 == 199:
						rows.Open()
					}
				}
			})
		}
		for reader := range 6 {
			random := rand.New(rand.NewPCG(seed, 100+uint64(reader)))
			wg.Go(func() {
				for {
					select {
					case <-done:
						return
					default:
					}
					region, i := random.IntN(2), random.IntN(registers)
					e.depth.Store(random.Int32N(2) * deep)
					rows := regions[region]
					if random.IntN(3) == 0 {
						rows = nil
					}
					least := known[region][i].Load()
					v := e.NewLazyView(rows)
					pinned := random.IntN(2) == 0
					if pinned {
						v.pin()
					}
					found, ok, err := v.GetNow(key(region, i))
					must(t, err)
					value := string(found)
					if pinned {
						if again, _, err := v.GetNow(key(region, i)); string(again) != value || err != nil {
							t.Errorf("limit %d: region %d: register %d: %q and then %q, %v from a pinned view", limit,
								region, i, value, again, err)
						}
					}
					v.Close()
					most := begun[region][i].Load()
					version, err := least+least%2, error(nil) // the first deletion that it may have seen
					if ok {
						version, err = strconv.ParseInt(value, 10, 64)
					}
					if err != nil || version < least || version > most {
						t.Errorf("limit %d: region %d: register %d: %q, %v; want %d to %d", limit, region, i, value, ok,
							least, most)
						return
					}
					raise(&known[region][i], version)
				}
			})
		}
		writers.Wait()
		close(done)
		wg.Wait()
		if hits := e.rows.hits.Load(); hits == 0 {
			t.Errorf("limit %d: no row was found", limit)
		}
		must(t, e.Close())
	}
}

// raise makes a number at least n.
func raise(x *atomic.Int64, n int64) {
	for old := x.Load(); old < n && !x.CompareAndSwap(old, n); old = x.Load() {
	}
}

// BenchmarkRows is a GET's look-up with a row and without, and what rows cost a batch of 100 records.
func BenchmarkRows(b *testing.B) {
	all := make([][]byte, 100_000)
	for i := range all {
		all[i] = metadataKey(i)
	}
	for _, limit := range []int64{0, 64 << 20} {
		o := testOptions(b, vfs.NewMem())
		o.Knobs.MemtableSize, o.Knobs.BlockCache = 64<<20, 256<<20
		e := open(b, o)
		e.rows = newRowCache(limit)
		rows := e.NewRows()
		rows.Open()
		random := rand.New(rand.NewPCG(1, 1))
		value := make([]byte, 64)
		write := func() {
			batch := e.NewBatch()
			batch.Keep(rows)
			for range 100 {
				must(b, batch.Set(all[random.IntN(len(all))], value))
			}
			must(b, batch.Commit(false))
		}
		b.Run(fmt.Sprintf("cache=%d/write", limit), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				write()
			}
		})
		for range 10 * len(all) / 100 {
			write()
		}
		compact(b, e)
		b.Run(fmt.Sprintf("cache=%d/read", limit), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				latest(b, e, rows, all[random.IntN(len(all))])
			}
		})
		must(b, e.Close())
	}
}
