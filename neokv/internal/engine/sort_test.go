package engine

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/settings"
)

// TestSort compares sorted batches of keys of all lengths, from few letters, with a map.
func TestSort(t *testing.T) {
	e := open(t, testOptions(t, vfs.NewMem()))
	defer func() { must(t, e.Close()) }()
	rng := random(t)
	for range 200 {
		b := e.NewBatch()
		model := map[string]string{} // deleted keys have an empty value
		common := bytes.Repeat([]byte{7}, rng.IntN(20))
		for i := range sortMin + rng.IntN(300) {
			key := append([]byte{byte(keys.Data) + byte(rng.IntN(3))}, common...)
			for range rng.IntN(12) {
				key = append(key, byte(rng.IntN(2))*255)
			}
			if rng.IntN(4) == 0 {
				must(t, b.Delete(key))
				model[string(key)] = ""
			} else {
				value := fmt.Sprint("value ", i)
				must(t, b.Set(key, []byte(value)))
				model[string(key)] = value
			}
		}
		must(t, b.sort())
		var last []byte
		repr := b.batch.Repr()
		for at := batchrepr.HeaderLen; at < len(repr); {
			w, next := readWrite(repr, at)
			key, value := repr[w.key:w.keyEnd], string(repr[w.value:w.valueEnd])
			if bytes.Compare(last, key) >= 0 {
				t.Fatalf("%x comes before %x", last, key)
			}
			if want, ok := model[string(key)]; !ok || value != want {
				t.Fatalf("%x has %q; want %q", key, value, want)
			}
			delete(model, string(key))
			last, at = key, next
		}
		if len(model) > 0 {
			t.Fatalf("%d keys are missing", len(model))
		}
		must(t, b.Commit(false))
	}
}

// largeBatch makes a batch of more than 2^17 writes in random order, and returns what it leaves of each key, nothing of
// deleted ones. Some keys are written several times, and many share all that the sorter compares first.
func largeBatch(t testing.TB, e *Engine, rng *rand.Rand) (*Batch, map[string]string) {
	b, model := e.NewBatch(), map[string]string{}
	for i := range 1<<17 + rng.IntN(1000) {
		key := []byte{byte(keys.Data) + byte(rng.IntN(3)), 1, 1}
		key = binary.BigEndian.AppendUint64(key, uint64(rng.IntN(1000))<<54|uint64(rng.IntN(100)))
		if rng.IntN(4) == 0 {
			must(t, b.Delete(key))
			delete(model, string(key))
		} else {
			model[string(key)] = fmt.Sprint(i)
			must(t, b.Set(key, []byte(model[string(key)])))
		}
	}
	return b, model
}

// holds is an error unless an engine holds what a model says, and nothing else.
func holds(t testing.TB, e *Engine, model map[string]string) error {
	view := e.NewView()
	defer view.Close()
	it, err := view.Iter([]byte{byte(keys.Data)}, []byte{byte(keys.Data) + 3})
	must(t, err)
	defer func() { must(t, it.Close()) }()
	n := 0
	for ok := it.First(); ok; ok = it.Next() {
		if want, there := model[string(it.Key())]; !there || want != string(it.Value()) {
			return fmt.Errorf("%x has %q; want %q, %v", it.Key(), it.Value(), want, there)
		}
		n++
	}
	if n != len(model) {
		return fmt.Errorf("%d keys, want %d", n, len(model))
	}
	return nil
}

// TestSortLarge commits batches of one call, which are larger than what Pebble puts into a memtable. Where the work is
// over at any look of the sort, nothing is committed; the same batch can be committed after that.
func TestSortLarge(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	looks := -1 // the batch is committed, and counts them
	for range 6 {
		all := 0
		e := open(t, testOptions(t, vfs.NewMem()))
		over, left := errors.New("over"), looks
		w := &Work{Look: func() error {
			if all++; left == 0 {
				return over
			}
			left--
			return nil
		}}
		b, model := largeBatch(t, e, rand.New(rand.NewPCG(seed, 0)))
		b.Watch(w)
		err := b.Commit(false)
		switch {
		case looks < 0 && err != nil, looks >= 0 && !errors.Is(err, over):
			t.Fatalf("commit, over at look %d: %v", looks, err)
		case err != nil:
			must(t, holds(t, e, nil))
			b, _ = largeBatch(t, e, rand.New(rand.NewPCG(seed, 0)))
			must(t, b.Commit(false))
		case all < 50:
			t.Fatalf("%d looks", all)
		default:
			looks = all
		}
		must(t, holds(t, e, model))
		must(t, e.Close())
		if looks--; looks > 0 { // the last look, then any
			looks = rand.New(rand.NewPCG(seed, uint64(looks))).IntN(looks + 1)
		}
	}
}

// BenchmarkCommit commits batches of strings, of 100,000 keys of a region, to memtables that hold 200,000 writes.
func BenchmarkCommit(b *testing.B) {
	for _, writes := range []int{64, 128, 256, 1024} {
		b.Run(fmt.Sprint("writes=", writes), func(b *testing.B) {
			o := testOptions(b, vfs.NewMem())
			o.Knobs.MemtableSize = 1 << 30
			e := open(b, o)
			rng := rand.New(rand.NewPCG(1, 1))
			key, value := make([]byte, 0, 64), make([]byte, keys.StringLen(64))
			batch := func(writes int) *Batch {
				batch := e.NewBatch()
				for range writes {
					user := fmt.Appendf(nil, "key:{tag}:%012d", rng.IntN(100_000))
					binary.BigEndian.PutUint32(value, rng.Uint32())
					key = keys.AppendUserKey(key[:0], keys.RedisMetadata, 1, user)
					must(b, batch.Set(key, value))
				}
				return batch
			}
			for range 200 {
				must(b, batch(1000).Commit(false))
			}
			b.ResetTimer()
			b.StopTimer()
			for n := 0; n < b.N; n += writes {
				batch := batch(writes)
				b.StartTimer()
				must(b, batch.Commit(false))
				b.StopTimer()
			}
			must(b, e.Close())
		})
	}
}

// BenchmarkLargeCommit commits batches of 2^20 writes, or of fewer with larger values, each to an engine of its own: in
// random order, in that of their keys, or with every second key of another keyspace.
func BenchmarkLargeCommit(b *testing.B) {
	for _, c := range []struct {
		order         string
		writes, value int
	}{{"random", 1 << 20, 0}, {"rising", 1 << 20, 0}, {"falling", 1 << 20, 0}, {"pairs", 1 << 20, 0},
		{"random", 1 << 18, 0}, {"random", 1 << 18, 64}, {"random", 1 << 18, 256}} {
		for _, memtable := range []settings.Bytes{8 << 20, 64 << 20} {
			b.Run(fmt.Sprintf("%s-%d-value=%d-memtable=%v", c.order, c.writes, c.value, memtable), func(b *testing.B) {
				rng := rand.New(rand.NewPCG(1, 1))
				b.StopTimer()
				for range b.N {
					o := testOptions(b, vfs.NewMem())
					o.Knobs.MemtableSize = memtable
					e := open(b, o)
					batch, value := e.NewBatch(), make([]byte, c.value)
					key := [20]byte{byte(keys.Data), 1, 1}
					for i := range uint64(c.writes) {
						switch c.order {
						case "random":
							i = rng.Uint64()
						case "falling":
							i = -i
						case "pairs":
							key[0] = byte(keys.Data + keys.Keyspace(i%2))
						}
						binary.BigEndian.PutUint64(key[12:], i)
						must(b, batch.Set(key[:], value))
					}
					runtime.GC()
					b.StartTimer()
					must(b, batch.Commit(false))
					b.StopTimer()
					must(b, e.Close())
				}
			})
		}
	}
}
