package redis

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// keyInSlot makes the i-th key of a slot, by trial.
func keysInSlot(slot topology.Slot, n int) (found []string) {
	var tag string
	for i := 0; ; i++ {
		if tag = fmt.Sprintf("{%d}", i); topology.SlotOf([]byte(tag)) == slot {
			break
		}
	}
	for i := range n {
		found = append(found, fmt.Sprintf("%s%06d", tag, i))
	}
	return found
}

// TestWalkSeesEveryKeyOnce compares walks of all kinds over random keys with a sorted list.
func TestWalkSeesEveryKeyOnce(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 0))
		d := newRegion(t)
		type walkedKey struct {
			slot topology.Slot
			key  string
			kind keys.Type
		}
		var want []walkedKey
		tags := []string{"{a}", "{b}", "{c}", ""}
		names := map[string]bool{"": true}
		for range rng.IntN(120) {
			name := tags[rng.IntN(len(tags))]
			for range rng.IntN(4) {
				name += string([]byte{byte(rng.IntN(3)), 'S', 0xff}[rng.IntN(3)])
			}
			names[name] = true
		}
		legacy := rng.IntN(2) == 0
		for name := range names {
			slot := topology.SlotOf([]byte(name))
			expireMS := []uint64{0, start + 5000, start - 1, start}[rng.IntN(4)]
			live := expireMS == 0 || expireMS > start
			e := walkedKey{slot, name, keys.String}
			switch rng.IntN(5) {
			case 0, 1:
				d.plant(name, keys.Metadata{Type: keys.String, ExpireMS: expireMS, Value: []byte("v")})
			case 2:
				if live = live && legacy; legacy {
					d.plantLegacy(name, "v", expireMS)
				}
			case 3: // a collection with subkeys around what would be a legacy string's key
				e.kind = keys.Hash
				d.plant(name, planted(keys.Hash, expireMS, 9, 2))
				for _, version := range []uint64{9, uint64('S') << 56, 0xff << 56} {
					d.put(subkeyOf(slot, []byte(name), version, []byte("S")), nil)
				}
			case 4: // left behind by a collection that is gone
				live = false
				d.put(subkeyOf(slot, []byte(name), uint64('S')<<56, []byte("f")), nil)
			}
			if live {
				want = append(want, e)
			}
		}
		slices.SortFunc(want, func(a, b walkedKey) int {
			return bytes.Compare(keys.AppendMetadata(nil, a.slot, []byte(a.key)),
				keys.AppendMetadata(nil, b.slot, []byte(b.key)))
		})
		slots := allSlots
		if len(want) > 0 && rng.IntN(2) == 0 { // only some of them
			slots = topology.SlotRange{First: want[len(want)/3].slot, Last: want[len(want)*2/3].slot}
			want = slices.DeleteFunc(want, func(e walkedKey) bool { return !slots.Contains(e.slot) })
		}
		for _, w := range []KeyWalk{{Slots: slots}, {Slots: slots, Limit: 1}, {Slots: slots, Limit: 7},
			{Slots: slots, Limit: 3, WholeSlots: true}} {
			var got []walkedKey
			kind, whole := fmt.Sprintf("seed %d, limit %d, whole slots %v", seed, w.Limit, w.WholeSlots), w.WholeSlots
			if err := d.walk(w, func(w *KeyWalk) {
				if w.Count != len(w.Keys) {
					t.Errorf("%s: count %d, keys %d", kind, w.Count, len(w.Keys))
				}
				if whole && len(got) > 0 && len(w.Keys) > 0 && got[len(got)-1].slot == w.Keys[0].Slot {
					t.Errorf("%s: slot %d in two steps", kind, w.Keys[0].Slot)
				}
				for _, k := range w.Keys {
					got = append(got, walkedKey{k.Slot, string(k.Key), k.Type})
				}
			}); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%s:\n got %v\nwant %v", kind, got, want)
			}
			n := 0
			w.CountOnly = true
			if err := d.walk(w, func(w *KeyWalk) { n += w.Count + len(w.Keys) }); err != nil || n != len(want) {
				t.Errorf("%s: counted %d, %v; want %d", kind, n, err, len(want))
			}
		}
	}
}

// TestWalkStepsAreBounded counts the records that each step looks at, and where it stops.
func TestWalkStepsAreBounded(t *testing.T) {
	d := newRegion(t)
	fill := func(slot topology.Slot, n int) {
		t.Helper()
		if err := d.write(func(w *Writer) error {
			for _, k := range keysInSlot(slot, n) {
				if err := w.store([]byte(k), 0, nil); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	fill(3, 5)
	fill(100, WholeSlotKeys)
	fill(200, WholeSlotKeys+1)
	fill(16383, 2*WholeSlotKeys+10)

	steps := func(w KeyWalk) (got []string) {
		t.Helper()
		if err := d.walk(w, func(w *KeyWalk) {
			place := "end"
			if !w.Done() {
				next := *w
				next.Advance()
				place = fmt.Sprint(next.Slots.First)
				if next.After != nil {
					place += " inside"
				}
			}
			got = append(got, fmt.Sprintf("%d -> %s", w.Count, place))
		}); err != nil {
			t.Fatal(err)
		}
		return got
	}
	for _, c := range []struct {
		w    KeyWalk
		want []string
	}{
		{KeyWalk{Slots: allSlots, WholeSlots: true, Limit: 10},
			[]string{"1029 -> 200", "1024 -> 200 inside", "1025 -> 16383 inside", "1024 -> 16383 inside", "10 -> end"}},
		{KeyWalk{Slots: allSlots, WholeSlots: true, Limit: 5}, []string{"5 -> 100", "1024 -> 200", "1024 -> 200 inside",
			"1025 -> 16383 inside", "1024 -> 16383 inside", "10 -> end"}},
		{KeyWalk{Slots: topology.SlotRange{First: 100, Last: 100}}, []string{"1000 -> 100 inside", "24 -> end"}},
		{KeyWalk{Slots: topology.SlotRange{First: 4, Last: 99}}, []string{"0 -> end"}},
		{KeyWalk{Slots: topology.SlotRange{First: 3, Last: 3}, Limit: 5}, []string{"5 -> end"}},
		{KeyWalk{Slots: topology.SlotRange{First: 3, Last: 3}, Limit: 1 << 20, CountOnly: true}, []string{"5 -> end"}},
		{KeyWalk{Slots: topology.SlotRange{First: 16383, Last: 16383}, Limit: 1 << 20},
			[]string{"1000 -> 16383 inside", "1000 -> 16383 inside", "58 -> end"}},
	} {
		if got := steps(c.w); !slices.Equal(got, c.want) {
			t.Errorf("%+v:\n got %q\nwant %q", c.w, got, c.want)
		}
	}
}

// TestKnownCount: a count holds at the apply index of the region that was counted. After a merge another region has the
// slots, and may be at the same index.
func TestKnownCount(t *testing.T) {
	d := newRegion(t)
	count := func(known *KeyCount, region topology.RegionID, index uint64) (n KeyCount, unchanged bool) {
		t.Helper()
		w := KeyWalk{Slots: allSlots, CountOnly: true, Known: known}
		if err := d.read(func(r *Reader) error {
			r.Region, r.Index = region, index
			return r.Step(&w)
		}); err != nil {
			t.Fatal(err)
		}
		n.Add(&w)
		return n, w.Unchanged
	}
	before, _ := count(nil, 3, 15)
	d.plant("k", keys.Metadata{Type: keys.String})
	for _, x := range []struct {
		region    topology.RegionID
		index     uint64
		unchanged bool
	}{{3, 15, true}, {3, 16, false}, {1, 15, false}} {
		if n, unchanged := count(&before, x.region, x.index); unchanged != x.unchanged || !unchanged && n.Keys != 1 {
			t.Errorf("region %d at %d: %d keys, unchanged %v", x.region, x.index, n.Keys, unchanged)
		}
	}
}

// TestWalkAgain: a step may run again, from where it began; and the place to go on from need not exist any more.
func TestWalkAgain(t *testing.T) {
	d := newRegion(t)
	all := keysInSlot(9, 10)
	for _, k := range all {
		d.plant(k, keys.Metadata{Type: keys.String})
	}
	w := KeyWalk{Slots: topology.SlotRange{First: 9, Last: 9}, Limit: 4}
	step := func(want ...string) {
		t.Helper()
		for range 2 {
			if err := d.read(func(r *Reader) error { return r.Step(&w) }); err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, k := range w.Keys {
				got = append(got, string(k.Key))
			}
			if !slices.Equal(got, want) {
				t.Fatalf("got %q, want %q", got, want)
			}
		}
	}
	step(all[:4]...)
	if !w.Advance() {
		t.Fatal("the walk has ended")
	}
	d.must(2, "del", all[3], all[4])
	step(all[5:9]...)
	w.Advance()
	step(all[9])
	if w.Advance() || !w.Done() {
		t.Fatal("the walk goes on behind its end")
	}
}

// TestWalkRefusesGarbage: a record that cannot be decoded is an error, not a key.
func TestWalkRefusesGarbage(t *testing.T) {
	d := newRegion(t)
	d.put(metadataOf([]byte("k")), []byte("garbage"))
	if err := d.walk(KeyWalk{Slots: allSlots}, func(*KeyWalk) {}); err == nil {
		t.Error("no error")
	}
}

func BenchmarkCountStep(b *testing.B) {
	d := newRegion(b)
	if err := d.write(func(w *Writer) error {
		for i := range 20_000 {
			if err := w.store(fmt.Appendf(nil, "key:%d", i), 0, []byte("0123456789abcdef")); err != nil {
				return err
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	w := KeyWalk{Slots: allSlots, CountOnly: true}
	b.ReportAllocs()
	for b.Loop() {
		if err := d.read(func(r *Reader) error { return r.Step(&w) }); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*MaxWalk), "ns/key")
}
