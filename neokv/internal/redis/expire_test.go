package redis

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// TestRemoveExpired: the deletion of what a search has found judges each record again, by the time of its entry.
func TestRemoveExpired(t *testing.T) {
	d := newRegion(t)
	d.scenario("flushall => OK\nsetnx never 1 => 1\nsetnx past 1 => 1\nsetnx now 1 => 1\nsetnx later 1 => 1")
	d.scenario("pexpire past 5 => 1\npexpire now 10 => 1\npexpire later 11 => 1")
	hash := keys.Metadata{Type: keys.Hash, ExpireMS: start + 1, Version: 77, Size: 3}
	d.plant("hash", hash)
	d.state.KeyCount++
	d.state.TimeMS = start + 10
	out := Reply{}
	x := ExpirySearch{Slots: allSlots, Limit: 100, Most: 100}
	v := d.e.NewView()
	err := x.Step(v, nil, start+11) // the search judged by a later time than the entry's
	v.Close()
	if err != nil || len(x.Expired) != 4 || x.Looked != 5 || x.Volatile != 4 || x.SoonestMS != NoExpiry || !x.All {
		t.Fatalf("search found %q of %d, %d volatile, all %v: %v", x.Expired, x.Looked, x.Volatile, x.All, err)
	}
	call := x.Call()
	call.Args = append(call.Args, []byte("absent"), []byte("never"))
	if Lookup(call.Args[0]) != nil || LookupInternal(call.Args) != call.Command {
		t.Errorf("%q is found by clients, or not by regions", call.Args[0])
	}
	if err := d.write(func(w *Writer) error { return call.Command.Write(w, call.Args, &out) }); err != nil ||
		string(out.Buf) != ":3\r\n" {
		t.Fatalf("reply %q, %v", out.Buf, err)
	}
	for key, want := range map[string]bool{"never": true, "past": false, "now": false, "later": true, "hash": false} {
		if _, ok := d.has(metadataOf([]byte(key))); ok != want {
			t.Errorf("%s: record there %v, want %v", key, ok, want)
		}
	}
	o := keys.Orphan{Slot: topology.SlotOf([]byte("hash")), User: []byte("hash"), Version: 77,
		Type: keys.Hash, Size: 3}
	if _, ok := d.has(o.AppendKey(nil)); !ok {
		t.Error("the hash has left no orphan record")
	}
	if !d.state.KeysExact || d.state.KeyCount != 2 {
		t.Errorf("%d keys, exact %v; want 2", d.state.KeyCount, d.state.KeysExact)
	}
}

// TestSoonest: the writer is told of every expire time that a command stores.
func TestSoonest(t *testing.T) {
	for call, want := range map[string]uint64{
		"set k v": NoExpiry, "set k v px 7": start + 7, "set k v nx px 7": start + 7, "expire k 1": start + 1000,
		"getset k v": NoExpiry, "setex k 1 v": start + 1000, "getex k px 7": start + 7, "append k v": start + 5000,
		"rename k other": start + 5000,
	} {
		d := newRegion(t)
		if call[:3] == "set" {
			d.scenario("set other v => OK")
		} else {
			d.scenario("set k v px 5000 => OK")
		}
		d.w.SoonestMS = NoExpiry
		out := Reply{}
		if err := d.call(bytes.Fields([]byte(call)), &out); err != nil || out.Buf[0] == '-' {
			t.Errorf("%s: %q, %v", call, out.Buf, err)
		}
		if d.w.SoonestMS != want {
			t.Errorf("%s: soonest %d, want %d", call, int64(d.w.SoonestMS), int64(want))
		}
	}
}

// TestExpirySearch compares steps over random regions with a list: the records of a step are those that follow its
// position, going round at the end, and steps from Next to Next miss none.
func TestExpirySearch(t *testing.T) {
	oneGoroutine(t)
	seeds := uint64(40)
	if testing.Short() {
		seeds /= 4
	}
	for seed := range seeds {
		rng := rand.New(rand.NewPCG(seed, 0))
		d := newRegion(t)
		type expiringKey struct {
			key      []byte // in the engine
			expireMS uint64
		}
		var all []expiringKey
		for i := range rng.IntN(400) {
			name := fmt.Sprintf("%d%s", i, strings.Repeat("x", rng.IntN(3)))
			if rng.IntN(3) == 0 {
				name = "{tag}" + name
			}
			m := keys.Metadata{Type: keys.String, Value: []byte("v"),
				ExpireMS: []uint64{0, start - 1, start, start + 1 + uint64(i)}[rng.IntN(4)]}
			d.plant(name, m)
			if rng.IntN(8) == 0 {
				d.must(2, "set", name, "v")
				d.must(2, "del", name)
				continue
			}
			all = append(all, expiringKey{metadataOf([]byte(name)), m.ExpireMS})
		}
		slices.SortFunc(all, func(a, b expiringKey) int { return bytes.Compare(a.key, b.key) })
		x := ExpirySearch{Slots: allSlots, Limit: 1 + rng.IntN(150), Most: 1 + rng.IntN(50)}
		v := d.e.NewView()
		for range 20 {
			from := bytes.Clone(x.At(topology.Slot(rng.IntN(topology.SlotCount))))
			if rng.IntN(4) == 0 {
				from = nil
			}
			first := 0
			if from != nil {
				first, _ = slices.BinarySearchFunc(all, from,
					func(r expiringKey, key []byte) int { return bytes.Compare(r.key, key) })
			}
			for seen := 0; ; {
				if err := x.Step(v, from, start); err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				left := len(all)
				if from == nil {
					left = len(all) - first // a step from the beginning does not go round
				}
				want := ExpirySearch{SoonestMS: NoExpiry}
				for ; want.Looked < min(left, x.Limit) && len(want.Expired) < x.Most; want.Looked++ {
					r := all[(first+want.Looked)%len(all)]
					switch {
					case r.expireMS == 0:
						continue
					case r.expireMS > start:
						want.SoonestMS = min(want.SoonestMS, r.expireMS)
					default:
						want.Expired = append(want.Expired, r.key[keys.UserKeyOffset:])
					}
					want.Volatile++
				}
				if x.Looked != want.Looked || x.Volatile != want.Volatile || x.SoonestMS != want.SoonestMS ||
					!slices.EqualFunc(x.Expired, want.Expired, bytes.Equal) {
					t.Fatalf("seed %d: from %q: %d looked at, %d volatile, %q; want %d, %d, %q", seed, from, x.Looked,
						x.Volatile, x.Expired, want.Looked, want.Volatile, want.Expired)
				}
				if x.All != (x.Looked == len(all)) {
					t.Fatalf("seed %d: from %q: all %v after %d of %d", seed, from, x.All, x.Looked, len(all))
				}
				seen += x.Looked
				if x.All || seen >= len(all) {
					break
				}
				first = (first + x.Looked) % len(all)
				if from = x.Next; !bytes.Equal(from, all[first].key) {
					t.Fatalf("seed %d: next is %q, want %q", seed, from, all[first].key)
				}
			}
		}
		v.Close()
	}
}

// TestExpirySearchIsBounded: a step among records that are deleted, but still in the engine, ends after a while, and
// the next one goes on.
func TestExpirySearchIsBounded(t *testing.T) {
	oneGoroutine(t)
	const deleted = 100_000
	d := newRegion(t)
	for from := 0; from < deleted; from += 1000 {
		for _, change := range []func(w *Writer, key []byte) error{
			func(w *Writer, key []byte) error { return w.Batch.Set(key, nil) },
			func(w *Writer, key []byte) error { return w.Batch.Delete(key) },
		} {
			if err := d.write(func(w *Writer) error {
				for i := range 1000 {
					if err := change(w, metadataOf(fmt.Append(nil, from+i))); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
	}
	x := ExpirySearch{Slots: allSlots, Limit: 10, Most: 10}
	v := d.e.NewView()
	defer v.Close()
	steps, at := 0, []byte(nil)
	for more := true; more; more = x.Next != nil {
		if err := x.Step(v, at, start); err != nil || x.Looked != 0 {
			t.Fatalf("%d records, %v", x.Looked, err)
		}
		if at != nil && x.Next != nil && bytes.Compare(x.Next, at) <= 0 {
			break // round
		}
		at = bytes.Clone(x.Next)
		steps++
	}
	if steps < deleted/maxSteps || steps > 4*deleted/maxSteps {
		t.Errorf("%d steps past %d deleted records", steps, deleted)
	}
}

// TestSwept: a sweep says nothing about writes after the apply index at which it began.
func TestSwept(t *testing.T) {
	d := newRegion(t)
	d.scenario("hset h f v => 1\ndel h => 1\nset s v => OK")
	d.plantLegacy("old", "v", 0)
	last := d.state.CollectedAt
	in := keys.SlotBit(slotOf("h")) | keys.SlotBit(slotOf("old"))
	for _, c := range []struct {
		began uint64
		clear bool
	}{{last - 1, false}, {last, true}, {last + 1, true}} {
		call := Swept(c.began)
		if LookupInternal(call.Args) != call.Command || Lookup(call.Args[0]) != nil {
			t.Error("it is a client's command, or none at all")
		}
		err := d.write(func(w *Writer) error { return w.Run(call.Command, call.Args, new(Reply)) })
		at, slots := last, in
		if c.clear {
			at, slots = 0, 0
		}
		if s := &d.state; err != nil || s.CollectedAt != at || s.CollectedIn != slots || s.Legacy == c.clear {
			t.Errorf("%q: %d in %#x, legacy strings %v, %v; want %d in %#x", call.Args, s.CollectedAt, s.CollectedIn,
				s.Legacy, err, at, slots)
		}
	}
	d.scenario("hset h f v => 1")
	if d.state.CollectedAt == 0 || d.state.CollectedIn != keys.SlotBit(slotOf("h")) {
		t.Error("a hash is not noticed any more")
	}
}
