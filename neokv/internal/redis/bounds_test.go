package redis

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/topology"
)

// This file tests regions side by side in one engine: nothing of one region may reach into the slots of another.

// contentOf returns what the engine holds of some slots, orphans included.
func (d *region) contentOf(slots topology.SlotRange) map[string]string {
	d.t.Helper()
	v := d.e.NewView()
	defer v.Close()
	found := map[string]string{}
	add := func(lower, upper []byte) {
		it, err := v.Iter(lower, upper)
		if err != nil {
			d.t.Fatal(err)
		}
		for ok := it.First(); ok; ok = it.Next() {
			found[string(it.Key())] = string(it.Value())
		}
		if err := it.Close(); err != nil {
			d.t.Fatal(err)
		}
	}
	for _, ks := range keys.RegionKeyspaces {
		add(keys.SlotBounds(ks, slots))
	}
	add(keys.OrphanBounds(slots))
	return found
}

// beside returns another region of the engine and the space of d. It begins with d's state.
func (d *region) beside(slots topology.SlotRange) *region {
	other := &region{t: d.t, e: d.e, now: d.now, state: d.state}
	other.state.Slots = slots
	return other
}

// crowd stores something of every kind under many keys.
func crowd(d *region) {
	for i := range 40 {
		d.must(2, "set", fmt.Sprint("string", i), "v")
		d.must(2, "hset", fmt.Sprint("hash", i), "f", "v")
		d.must(2, "zadd", fmt.Sprint("zset", i), "1", "m")
		d.must(2, "sadd", fmt.Sprint("orphan", i), "m")
		d.must(2, "set", fmt.Sprint("orphan", i), "v")
		d.must(2, "neokv", "legacyset", fmt.Sprint("legacy", i), "v", "px", "100")
	}
}

// TestFlushKeepsToBounds: FLUSHALL deletes the region's own slots, and what it does in some of them stays in those.
func TestFlushKeepsToBounds(t *testing.T) {
	before, own, behind := topology.SlotRange{Last: 4095}, topology.SlotRange{First: 4096, Last: 12287},
		topology.SlotRange{First: 12288, Last: 16383}
	part, rest := topology.SlotRange{First: 4096, Last: 8191}, topology.SlotRange{First: 8192, Last: 12287}
	flush := func(args ...string) Call {
		c := Call{Command: Lookup([]byte(args[0]))}
		for _, a := range args {
			c.Args = append(c.Args, []byte(a))
		}
		return c
	}
	for _, c := range []struct {
		call   Call
		reply  string
		empty  []topology.SlotRange
		full   []topology.SlotRange
		all    bool // the whole region is known to be empty
		nobody bool // nothing changes
	}{
		{flush("flushall"), "+OK\r\n", []topology.SlotRange{own}, nil, true, false},
		{flush("flushdb", "async"), "+OK\r\n", []topology.SlotRange{own}, nil, true, false},
		{FlushSlots(own, flush("flushall")), "+OK\r\n", []topology.SlotRange{own}, nil, true, false},
		{FlushSlots(allSlots, flush("flushall")), "+OK\r\n", []topology.SlotRange{own}, nil, true, false},
		{FlushSlots(part, flush("flushall", "sync")), "+OK\r\n", []topology.SlotRange{part}, []topology.SlotRange{rest},
			false, false},
		{FlushSlots(topology.SlotRange{First: 0, Last: 8191}, flush("flushall")), "+OK\r\n",
			[]topology.SlotRange{part}, []topology.SlotRange{rest}, false, false},
		{FlushSlots(before, flush("flushall")), "+OK\r\n", nil, []topology.SlotRange{own}, false, true},
		{FlushSlots(part, flush("flushall", "nope")), "-ERR syntax error\r\n", nil, []topology.SlotRange{own}, false,
			true},
	} {
		d := newRegion(t)
		crowd(d)
		d.state.Slots = own
		neighbours := []map[string]string{d.contentOf(before), d.contentOf(behind)}
		kept := make([]map[string]string, len(c.full))
		for i, slots := range c.full {
			kept[i] = d.contentOf(slots)
		}
		name := fmt.Sprintf("%q", c.call.Args)
		if len(neighbours[0]) == 0 || len(neighbours[1]) == 0 || len(d.contentOf(part)) == 0 {
			t.Fatal("some slots are empty")
		}
		out := Reply{}
		row := Lookup(c.call.Args[0])
		if row == nil {
			row = LookupInternal(c.call.Args)
		}
		if err := d.write(func(w *Writer) error { return w.Run(row, c.call.Args, &out) }); err != nil ||
			string(out.Buf) != c.reply {
			t.Errorf("%s: reply %q, %v", name, out.Buf, err)
		}
		if !maps.Equal(d.contentOf(before), neighbours[0]) || !maps.Equal(d.contentOf(behind), neighbours[1]) {
			t.Errorf("%s: a neighbour has changed", name)
		}
		for _, slots := range c.empty {
			if left := d.contentOf(slots); len(left) > 0 {
				t.Errorf("%s: %d records are left in slots %v", name, len(left), slots)
			}
		}
		for i, slots := range c.full {
			if !maps.Equal(d.contentOf(slots), kept[i]) {
				t.Errorf("%s: slots %v have changed", name, slots)
			}
		}
		s := &d.state
		if c.all != (s.KeysExact && s.KeyCount == 0 && s.CollectedAt == 0 && s.CollectedIn == 0 && !s.Legacy) {
			t.Errorf("%s: state %+v", name, *s)
		}
	}
}

// TestPartialFlushWithinABatch: what the batch does not have yet is written or deleted, by its slot.
func TestPartialFlushWithinABatch(t *testing.T) {
	d := newRegion(t)
	inside, outside := "foo", "bar" // slots 12182 and 5061
	flush := FlushSlots(topology.SlotRange{First: 12000, Last: 13000},
		Call{Command: Lookup([]byte("flushall")), Args: [][]byte{[]byte("flushall")}})
	calls := [][]string{{"hset", inside, "a", "1"}, {"hset", outside, "a", "1"}, nil, {"hset", inside, "b", "2"},
		{"hset", outside, "b", "2"}}
	err := d.write(func(w *Writer) error {
		for _, call := range calls {
			run := flush
			if call != nil {
				run = Call{Command: Lookup([]byte(call[0]))}
				for _, a := range call {
					run.Args = append(run.Args, []byte(a))
				}
			}
			if err := w.Run(run.Command, run.Args, &Reply{}); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	d.scenario(`hgetall foo => ["b" "2"]
		hgetall bar => ["b" "2" "a" "1"]`)
}

// TestTwoKeysOfOneVersion: a region that another one was merged into has keys with the same version. What the Writer
// keeps in memory of one is not taken for the other's.
func TestTwoKeysOfOneVersion(t *testing.T) {
	d := newRegion(t)
	one := func(args ...string) { // as if it were the first of its region
		d.w.VersionBase, d.state.LastVersion = 999, 0
		d.must(2, args...)
		d.w.VersionBase, d.state.LastVersion = 1_000_000, 1_000_000
	}
	const n = 3000 // so many that they have counts
	names := []string{"a", "b"}
	for _, name := range names {
		set, zset := []string{"sadd", "s" + name}, []string{"zadd", "z" + name}
		for i := range n {
			set = append(set, fmt.Sprint(name, i))
			zset = append(zset, fmt.Sprint(i), fmt.Sprint(name, i))
		}
		one(set...)
		one(zset...)
	}
	low, high := map[string]int{}, map[string]int{"a": n - 1, "b": n - 1}
	for i := range 1200 {
		name := names[i%2]
		for _, args := range [][]string{{"spop", "s" + name}, {"srandmember", "s" + name}} {
			if got := d.must(2, args...).String(); !strings.HasPrefix(got, `"`+name) {
				t.Fatalf("%q: %s is the other key's", args, got)
			}
		}
		if got, want := d.must(2, "zpopmin", "z"+name).String(),
			fmt.Sprintf(`["%s%d" "%d"]`, name, low[name], low[name]); got != want {
			t.Fatalf("zpopmin z%s: %s, want %s", name, got, want)
		}
		low[name]++
		if i%10 < 4 {
			if got, want := d.must(2, "zpopmax", "z"+name).String(),
				fmt.Sprintf(`["%s%d" "%d"]`, name, high[name], high[name]); got != want {
				t.Fatalf("zpopmax z%s: %s, want %s", name, got, want)
			}
			high[name]--
		}
		middle := (low[name] + high[name]) / 2
		if got, want := d.must(2, "zrank", "z"+name, fmt.Sprint(name, middle)).String(),
			fmt.Sprint(middle-low[name]); got != want {
			t.Fatalf("zrank z%s %s%d: %s, want %s", name, name, middle, got, want)
		}
	}
	// Several in one entry: the Writer then also goes by what it has chosen before.
	err := d.write(func(w *Writer) error {
		for i := range 100 {
			name := names[i%2]
			out := Reply{}
			args := [][]byte{[]byte("spop"), []byte("s" + name), []byte("2")}
			if err := w.Run(Lookup(args[0]), args, &out); err != nil {
				return err
			}
			parts := strings.Split(string(out.Buf), "\r\n")
			if len(parts) != 6 || parts[2][:1] != name || parts[4][:1] != name {
				return fmt.Errorf("spop of s%s: %q", name, out.Buf)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// When one is gone, the other is as it was.
	d.must(2, "del", "sa", "za")
	d.scenario(fmt.Sprintf("scard sb => %d\nzcard zb => %d", n-600-100, high["b"]-low["b"]+1))
	if got, want := d.must(2, "zpopmin", "zb").String(),
		fmt.Sprintf(`["b%d" "%d"]`, low["b"], low["b"]); got != want {
		t.Errorf("zpopmin zb: %s, want %s", got, want)
	}
}

// TestForget: keys that have been another region's for a while come back with a merge.
func TestForget(t *testing.T) {
	d := newRegion(t)
	fill := func(name string, from, to int) {
		args := []string{"zadd", name}
		for i := from; i < to; i++ {
			args = append(args, fmt.Sprint(i), fmt.Sprint("m", i))
		}
		d.must(2, args...)
	}
	fill("z", 0, 3000)
	d.must(2, "hset", "h", "a", "1")
	d.must(2, "sadd", "s", "x", "y", "z")
	d.scenario(`zpopmin z 2 => ["m0" "0" "m1" "1"]
		zpopmax z => ["m2999" "2999"]
		zrem z m5 => 1
		spop none => (nil)`)
	child := d.beside(topology.SlotRange{First: 1, Last: 16383})
	child.scenario(`zpopmin z 3 => ["m2" "2" "m3" "3" "m4" "4"]
		zpopmax z => ["m2998" "2998"]
		zrem z m1500 m1501 => 2
		hset h b 2 => 1
		del s => 1`)
	index := d.state.ApplyIndex
	d.state = child.state
	d.state.ApplyIndex, d.state.Slots = index, allSlots
	d.w.Forget()
	d.scenario(`zpopmin z => ["m6" "6"]
		zpopmax z => ["m2997" "2997"]
		zrem z m1600 => 1
		zrank z m2000 => 1990
		hset h c 3 => 1
		hlen h => 3
		spop s => (nil)
		zcard z => 2987`)
}

// TestSearchesKeepToBounds: a search may begin where the region no longer is.
func TestSearchesKeepToBounds(t *testing.T) {
	d := newRegion(t)
	want := map[string]bool{}
	own := topology.SlotRange{First: 4096, Last: 8191}
	for i := range 200 {
		key := fmt.Sprint("k", i)
		d.must(2, "set", key, "v", "px", "5")
		if own.Contains(topology.SlotOf([]byte(key))) {
			want[key] = true
		}
	}
	v := d.e.NewView()
	defer v.Close()
	x := ExpirySearch{Slots: own, Limit: 1000, Most: 1000}
	for _, from := range []topology.Slot{0, 4095, 4096, 6000, 8191, 8192, 16383} {
		if err := x.Step(v, keys.AppendSlot(nil, keys.RedisMetadata, from), start+10); err != nil {
			t.Fatal(err)
		}
		got := map[string]bool{}
		for _, key := range x.Expired {
			got[string(key)] = true
		}
		if !maps.Equal(got, want) || !x.All {
			t.Errorf("from slot %d: %d keys, all %v; want the %d of the region", from, len(got), x.All, len(want))
		}
	}
	if len(want) == 0 || len(want) == 200 {
		t.Fatal("no keys inside, or none outside")
	}
	// A sweep finds collections and legacy strings of the region alone.
	d.must(2, "hset", "foo", "f", "v") // slot 12182
	d.must(2, "neokv", "legacyset", "foo{bar}", "v")
	beside := ExpirySearch{Slots: own, Limit: 1000, Most: 1000}
	v2 := d.e.NewView()
	defer v2.Close()
	for _, c := range []struct {
		slots        topology.SlotRange
		legacy, none bool
	}{
		{topology.SlotRange{First: 0, Last: 4095}, true, true}, {topology.SlotRange{First: 4096, Last: 8191}, true, false},
		{topology.SlotRange{First: 4096, Last: 8191}, false, true}, {topology.SlotRange{First: 8192, Last: 16383}, false, false},
	} {
		beside.Slots = c.slots
		if none, err := beside.Sweep(v2, nil, c.legacy); err != nil || none != c.none {
			t.Errorf("sweep of %v, legacy strings %v: %v, %v; want %v", c.slots, c.legacy, none, err, c.none)
		}
	}
}
