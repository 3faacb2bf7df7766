package engine

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/cockroachdb/pebble/v2/batchrepr"
	"github.com/cockroachdb/pebble/v2/vfs"

	"neokv.dev/neokv/internal/keys"
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
