package engine

import (
	"context"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/settings"
)

// compact brings everything to the last level.
func compact(t testing.TB, e *Engine) {
	t.Helper()
	must(t, e.db.Flush())
	must(t, e.db.Compact(context.Background(), []byte{0}, []byte{0xff}, false))
	levels := e.db.Metrics().Levels
	for i := range levels[:6] {
		if levels[i].TablesCount != 0 {
			t.Fatalf("level %d still has %d tables", i, levels[i].TablesCount)
		}
	}
}

// lookups gets the keys and returns what that cost.
func lookups(t *testing.T, e *Engine, want bool, all ...[]byte) (filterHits, blockReads int64) {
	t.Helper()
	before := e.Metrics()
	v := e.NewView()
	for _, key := range all {
		if _, ok, err := v.Get(key); err != nil || ok != want {
			t.Fatalf("Get(%x) = %v, %v; want %v", key, ok, err, want)
		}
	}
	v.Close()
	after := e.Metrics()
	return after.FilterHits - before.FilterHits, after.BlockCacheMisses - before.BlockCacheMisses
}

// TestBloomBits is about what the knob is for: with 10 bits per key absent keys cost next to no reads of blocks, over
// data ten times the block cache and in the last level too, where Pebble's Get would not ask the filters. With only the
// region in the filters they cost as much as without any, and the filters next to no space.
func TestBloomBits(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	n, probes, long := 100_000, 4_000, 1
	if testing.Short() { // as many bytes in fewer keys
		n, probes, long = n/8, probes/4, 8
	}
	type cost struct{ hits, reads, bytes int64 }
	costs := map[string]cost{}
	for _, c := range []struct {
		prefix string
		bits   int
	}{{"key", 0}, {"key", 10}, {"region", 10}} {
		name := fmt.Sprint(c.prefix, " ", c.bits)
		o := testOptions(t, vfs.NewMem())
		o.Knobs.BloomBits, o.Knobs.BloomPrefix, o.Knobs.BlockSize, o.Knobs.TargetFileSize = c.bits, c.prefix, 4<<10,
			settings.Bytes(long)*64<<10
		o.Knobs.MemtableSize, o.Knobs.BlockCache, o.Knobs.Compression = minMemtable, 512<<10, "none"
		e := open(t, o)
		value := make([]byte, long*100)
		for i := 0; i < n; {
			b := e.NewBatch()
			for range 500 {
				must(t, b.Set(metadataKey(2*i), value))
				i++
			}
			must(t, b.Commit(false))
		}
		compact(t, e)
		share, err := ShareOf(o.Knobs, o.Stores)
		must(t, err)
		bytes := e.Metrics().TableBytes
		if bytes < 10*share.Cache {
			t.Fatalf("%d bytes of data for %d of cache; want ten times as much", bytes, share.Cache)
		}

		rng := random(t)
		var absent, present [][]byte
		for range probes {
			i := rng.IntN(n)
			absent, present = append(absent, metadataKey(2*i+1)), append(present, metadataKey(2*i))
		}
		lookups(t, e, true, present...)
		hits, reads := lookups(t, e, false, absent...)
		t.Logf("%s bits: %d absent keys: %d filter hits, %d block reads, %d bytes", name, probes, hits, reads, bytes)
		costs[name] = cost{hits, reads, bytes}
		must(t, e.Close())
	}
	none, key, region := costs["key 0"], costs["key 10"], costs["region 10"]
	if none.hits != 0 || none.reads < int64(probes/2) {
		t.Errorf("without filters %d filter hits, %d block reads; want 0 and at least %d", none.hits, none.reads,
			probes/2)
	}
	if key.hits < int64(probes*95/100) || key.reads*10 > none.reads*3 {
		t.Errorf("10 bits per key: %d filter hits, %d block reads; want at least %d, at most 0.3 of %d", key.hits,
			key.reads, probes*95/100, none.reads)
	}
	if region.hits != 0 || region.reads < none.reads*95/100 {
		t.Errorf("10 bits per region: %d filter hits, %d block reads; want no use, as the %d without filters",
			region.hits, region.reads, none.reads)
	}
	if over, most := key.bytes-none.bytes, int64(n*12/8); over < int64(n*10/8) || over > most ||
		(region.bytes-none.bytes)*4 > over {
		t.Errorf("filters of keys take %d bytes, of regions %d; want %d to %d, and less than a quarter of that", over,
			region.bytes-none.bytes, n*10/8, most)
	}
}

// TestBloomPrefix opens one folder with one value of the knob after the other. Tables keep the filters they were made
// with; those made anew follow the knob.
func TestBloomPrefix(t *testing.T) {
	fs := vfs.NewMem()
	region := func(i int) byte { return byte(10 + i) } // a space
	user := func(i int) []byte { return fmt.Appendf(nil, "{tag}%02d", i) }
	sub := func(space byte, i, field int) []byte {
		key := keys.AppendCollection(nil, keys.Data, 5, user(i), 1)
		return elsewhere(space, fmt.Appendf(key, "field%02d", field))
	}

	// Regions 0 and 2, collections 0 and 2 of each, fields 0 and 2 of each are there; what is numbered 1 lies between
	// them.
	fill := func(e *Engine) {
		b := e.NewBatch()
		for _, r := range []int{0, 2} {
			for _, i := range []int{0, 2} {
				for _, field := range []int{0, 2} {
					must(t, b.Set(sub(region(r), i, field), []byte("v")))
				}
			}
		}
		must(t, b.Commit(false))
		compact(t, e)
	}
	type filtered struct{ field, collection, region bool }
	check := func(e *Engine, want filtered) {
		t.Helper()
		for _, c := range []struct {
			name string
			key  []byte
			want bool
		}{
			{"absent field", sub(region(0), 0, 1), want.field},
			{"absent collection", sub(region(0), 1, 0), want.collection},
			{"absent region", sub(region(1), 0, 0), want.region},
		} {
			if hits, _ := lookups(t, e, false, c.key); (hits == 1) != c.want {
				t.Errorf("%s: %d filter hits; want any: %v", c.name, hits, c.want)
			}
		}
		lookups(t, e, true, sub(region(0), 0, 0), sub(region(2), 2, 2))
	}

	sees := map[string]filtered{"key": {true, true, true}, "collection": {false, true, true},
		"region": {false, false, true}}
	before := filtered{}
	for i, c := range []struct {
		prefix string
		bits   int
	}{{"key", 16}, {"region", 16}, {"collection", 20}, {"key", 0}, {"key", 16}} {
		o := testOptions(t, fs)
		o.Knobs.BloomPrefix, o.Knobs.BloomBits = c.prefix, c.bits
		e := open(t, o)
		if i > 0 {
			check(e, before)
		}
		fill(e)
		before = sees[c.prefix]
		if c.bits == 0 {
			before = filtered{}
		}
		check(e, before)
		must(t, e.Close())
	}
}

// TestTablesEndWithTheirKeyspace: compactions of data leave the Raft log alone because no table holds both.
func TestTablesEndWithTheirKeyspace(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	b := e.NewBatch()
	for i := range uint64(100) {
		must(t, b.Set(keys.AppendLogEntry(nil, 1, i), []byte("an entry of some length")))
		must(t, b.Set(metadataKey(int(i)), []byte("v")))
	}
	must(t, b.Commit(false))
	compact(t, e)
	tables, err := e.db.SSTables(pebble.WithProperties())
	must(t, err)
	n := 0
	for _, level := range tables {
		for _, table := range level {
			n++
			if first, last := table.Smallest.UserKey[0], table.Largest.UserKey[0]; first != last {
				t.Errorf("a table reaches from keyspace %d to %d", first, last)
			}
			if blocks := table.Properties.NumValueBlocks; blocks != 0 {
				t.Errorf("keyspace %d: values were moved to %d blocks away from their keys", table.Smallest.UserKey[0],
					blocks)
			}
		}
	}
	if n != 2 {
		t.Errorf("%d tables; want 2", n)
	}
}
