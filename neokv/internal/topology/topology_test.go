package topology

import (
	"encoding/hex"
	"encoding/json"
	"math/rand/v2"
	"os"
	"slices"
	"testing"
	"time"
)

func TestVectorsOfSlots(t *testing.T) {
	b, err := os.ReadFile("../keys/testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	var v struct {
		Slots []struct {
			Key  string
			CRC  uint16 `json:"crc16_of_whole_key"`
			Slot Slot
		}
		Bounds []struct {
			First Slot   `json:"slot_start"`
			Last  Slot   `json:"slot_end"`
			Start string `json:"start_key"`
			End   string `json:"end_key"`
		} `json:"region_bounds"`
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.Slots) == 0 || len(v.Bounds) == 0 {
		t.Fatal("no vectors")
	}
	for _, c := range v.Slots {
		key, err := hex.DecodeString(c.Key)
		if err != nil {
			t.Fatal(err)
		}
		if got := crc16(key); got != c.CRC {
			t.Errorf("crc16(%q) = %d; want %d", key, got, c.CRC)
		}
		if got := SlotOf(key); got != c.Slot {
			t.Errorf("SlotOf(%q) = %d; want %d", key, got, c.Slot)
		}
	}
	// The bounds of the vectors are cuts into four, and one region for all.
	quarters := SplitEvenly(4)
	for _, c := range v.Bounds {
		r := SlotRange{c.First, c.Last}
		if r != SplitEvenly(1)[0] && r != quarters[c.First/4096] {
			t.Errorf("bounds %v are in no even split", r)
		}
	}
}

func TestSplitEvenly(t *testing.T) {
	for _, n := range []int{1, 2, 3, 7, 8, 1000, 1024, SlotCount} {
		ranges := SplitEvenly(n)
		if len(ranges) != n || ranges[0].First != 0 || ranges[n-1].Last != SlotCount-1 {
			t.Fatalf("SplitEvenly(%d): %d ranges from %d to %d", n, len(ranges), ranges[0].First, ranges[n-1].Last)
		}
		smallest, largest := SlotCount, 0
		for i, r := range ranges {
			if i > 0 && r.First != ranges[i-1].Last+1 {
				t.Fatalf("SplitEvenly(%d): %v behind %v", n, r, ranges[i-1])
			}
			smallest, largest = min(smallest, r.Count()), max(largest, r.Count())
		}
		if smallest < 1 || largest-smallest > 1 {
			t.Errorf("SplitEvenly(%d): sizes from %d to %d", n, smallest, largest)
		}
	}
}

// TestCover compares Cover with a loop over all ranges for each slot.
func TestCover(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	random := rand.New(rand.NewPCG(seed, 0))
	for n := range 100 {
		ranges := make([]SlotRange, n/2)
		for i := range ranges {
			a, b := Slot(random.IntN(SlotCount)), Slot(random.IntN(SlotCount))
			ranges[i] = SlotRange{First: min(a, b), Last: max(a, b)}
			if random.IntN(2) == 0 {
				ranges[i].Last = min(ranges[i].First+Slot(random.IntN(500)), SlotCount-1)
			}
		}
		for s, got := range Cover(ranges) {
			want := slices.IndexFunc(ranges, func(r SlotRange) bool { return r.Contains(Slot(s)) })
			if int(got) != want {
				t.Fatalf("seed %d: slot %d of %v: %d; want %d", seed, s, ranges, got, want)
			}
		}
	}
}

func TestSlotRange(t *testing.T) {
	r := SlotRange{First: 5, Last: 7}
	for s, want := range map[Slot]bool{4: false, 5: true, 7: true, 8: false} {
		if got := r.Contains(s); got != want {
			t.Errorf("%v contains %d: %v", r, s, got)
		}
	}
	if got := r.String(); got != "5-7" {
		t.Errorf("String() = %q", got)
	}
	if got := (SlotRange{First: 7, Last: 7}).String(); got != "7" {
		t.Errorf("String() = %q; want 7", got)
	}
}

func TestStoreOf(t *testing.T) {
	for _, s := range []StoreID{1, 9, 4294967295} {
		if got, ok := StoreOf(s.RaftAddress()); !ok || got != s {
			t.Errorf("StoreOf(%q) = %d, %v", s.RaftAddress(), got, ok)
		}
	}
	for _, address := range []string{"", "store-", "store-x", "store-01", "store-+1", "store-1 ", "store-1x",
		"store--1", "store-4294967296", "Store-1"} {
		if got, ok := StoreOf(address); ok {
			t.Errorf("StoreOf(%q) = %d; want none", address, got)
		}
	}
}

func TestRegionPeers(t *testing.T) {
	r := Region{Peers: []Peer{{Store: 1, Replica: 11}, {Store: 3, Replica: 13}}}
	if p, ok := r.PeerOn(3); !ok || p.Replica != 13 {
		t.Errorf("PeerOn(3) = %v, %v", p, ok)
	}
	if _, ok := r.PeerOn(2); ok {
		t.Error("PeerOn(2) found a replica")
	}
	if got := r.StoreOf(13); got != 3 {
		t.Errorf("StoreOf(13) = %d", got)
	}
	if got := r.StoreOf(12); got != 0 {
		t.Errorf("StoreOf(12) = %d; want 0", got)
	}
}

func BenchmarkSlotOf(b *testing.B) {
	key := []byte("user:0000001234")
	for b.Loop() {
		SlotOf(key)
	}
}
