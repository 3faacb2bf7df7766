package store

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"neokv.dev/neokv/internal/topology"
)

// batchOf returns a batch with messages on the channel c.
func batchOf(incarnation, number uint64, payloads ...string) []byte {
	b := make([]byte, batchHeader)
	b[0] = busMark
	binary.BigEndian.PutUint64(b[1:], incarnation)
	binary.BigEndian.PutUint64(b[9:], number)
	for _, p := range payloads {
		b = appendPublished(b, false, []byte("c"), []byte(p))
	}
	return b
}

// TestBatches: a store takes only batches that are behind the last one that it has taken from the same store.
func TestBatches(t *testing.T) {
	var got []string
	o := Options{ID: 1, OnMessage: func(shard bool, channel, payload []byte) {
		got = append(got, string(payload))
	}}
	o.Settings.Cluster.Stores = 3
	s := newStore(o)
	for _, x := range []struct {
		from, incarnation, number int
		taken                     bool
	}{
		{2, 5, 1, true},
		{2, 5, 1, false}, // it came twice
		{2, 5, 3, true},  // 2 was lost
		{2, 5, 2, false}, // or late
		{3, 1, 1, true},  // other stores count by themselves
		{2, 7, 1, true},  // the store has started again
		{2, 5, 4, false}, // from before
		{2, 7, 2, true},
		{3, 1, 2, true},
	} {
		got = nil
		if err := handleBatch(s, x.from, batchOf(uint64(x.incarnation), uint64(x.number), "1", "2")); err != nil {
			t.Fatal(err)
		}
		if taken := slices.Equal(got, []string{"1", "2"}); taken != x.taken || !taken && got != nil {
			t.Errorf("store %d, start %d, batch %d: %q", x.from, x.incarnation, x.number, got)
		}
	}
	if n := s.bus.stats.Late.Load(); n != 6 {
		t.Errorf("%d messages came late, want 6", n)
	}
	for _, from := range []int{0, 1, 4} {
		if err := handleBatch(s, from, batchOf(9, 9, "x")); err == nil {
			t.Errorf("a batch of store %d was taken", from)
		}
	}
}

func handleBatch(s *Store, from int, b []byte) error {
	_, err := s.calls.handle(context.Background(), topology.StoreID(from), b)
	return err
}

// FuzzParseBatch: a batch is refused, or gives back what it was made of.
func FuzzParseBatch(f *testing.F) {
	f.Add(batchOf(1, 2, "", "a", "long"))
	f.Add(batchOf(1, 2))
	f.Add([]byte{busMark})
	f.Add(append(batchOf(1, 2), 0, 255, 255, 255, 255, 255, 255, 255, 255, 127))
	f.Fuzz(func(t *testing.T, b []byte) {
		all, err := parseBatch(b)
		if err != nil {
			return
		}
		again := bytes.Clone(b[:batchHeader])
		for _, m := range all {
			again = appendPublished(again, m.shard, m.channel, m.payload)
		}
		parsed, err := parseBatch(again)
		if err != nil || fmt.Sprint(parsed) != fmt.Sprint(all) || len(again) > len(b) {
			t.Errorf("%x: %v, then %v, %v", b, all, parsed, err)
		}
	})
}
