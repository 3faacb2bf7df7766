package region

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	sm "github.com/lni/dragonboat/v4/statemachine"

	"neokv.dev/neokv/internal/disk"
	"neokv.dev/neokv/internal/keys"
	"neokv.dev/neokv/internal/redis"
	"neokv.dev/neokv/internal/topology"
)

// pieceBytes is how long the pieces of a long string are, and how long a string in its record may be.
const pieceBytes = 64 << 10

// TestOldEntries applies a log that begins with entries of older formats to a replica that has it all to apply, and to
// others that have applied a part of it by programs of that time. Those of the first format have left a region state
// that is old, too. The replicas are equal throughout. A long string lies in its record where an entry of formats 1 to
// 3 has written it, and in pieces where one of a later format has. Entries of formats 1 to 5 store scores of -0 as 0.
func TestOldEntries(t *testing.T) {
	if testing.Short() {
		t.Skip("a long test of one goroutine")
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	// The entries are of format 1, then of 2 and 3 in turn, then of 4 and 5, and then of 6 and 7. Those of 3, 5 and 7
	// have read sets.
	const first, old, unsigned, all = 150, 300, 450, 600
	formatOf := func(index int) byte {
		switch turn := byte(index % 2); {
		case index <= first:
			return 1
		case index <= old:
			return 2 + turn
		case index <= unsigned:
			return 4 + turn
		default:
			return 6 + turn
		}
	}
	var calls [][]string
	add := func(words ...any) { calls = append(calls, strings.Fields(fmt.Sprintln(words...))) }
	textOf := func(n int) string {
		word := fmt.Sprint(random.Uint64(), "-")
		return strings.Repeat(word, n/len(word)+1)[:n]
	}
	addZeros := func(key string, n int) { // a sorted set of scores of -0
		words := []any{"zadd", key, "-0", "m"}
		for i := range n {
			words = append(words, "-0", fmt.Sprint("m", i))
		}
		add(words...)
	}
	long := func() string { return textOf(pieceBytes + 1 + random.IntN(pieceBytes+1)) }
	some := func(to int) {
		for len(calls) < to {
			key := func() string { return fmt.Sprint("k", random.IntN(12)) }
			switch random.IntN(20) {
			case 0, 1, 2:
				add("hset", key(), "f", random.IntN(100))
			case 3, 4, 5:
				add("set", key(), "v")
			case 6:
				add("mset", key(), long(), key(), "w")
			case 7:
				add("setnx", key(), long())
			case 8, 9:
				add("rename", key(), key())
			case 10:
				add("pexpireat", key(), 1_000_000)
			case 11:
				add("del", key())
			case 12:
				if random.IntN(3) == 0 {
					add("flushall")
					continue
				}
				for i := range 12 {
					add("del", fmt.Sprint("k", i))
				}
				add("swept", len(calls), "collections")
			case 13:
				add("set", key(), long())
			case 14:
				add("set", key(), textOf(pieceBytes))
			case 15:
				add("append", key(), "x")
			case 16:
				add("append", key(), long())
			case 17:
				add("setrange", key(), random.IntN(2*pieceBytes), "patch")
			case 18:
				add("zadd", "z", random.IntN(2), "m", "-0", fmt.Sprint("n", random.IntN(4)))
			case 19:
				addZeros("z", random.IntN(200))
			}
		}
		calls = calls[:to]
	}
	add("set", "k0", long()) // one of each format, whatever the random choices
	some(first)
	add("set", "k0", long())
	add("set", "k0", long())
	some(old - 1)
	add("set", "k0", long())
	add("append", "k0", "x") // moves it
	add("set", "k0", long())
	some(unsigned - 2)
	addZeros("old", 200)
	addZeros("few", 100)
	addZeros("new", 200)
	add("zadd", "old", 1, "m0")
	add("zadd", "old", "-0", "m0")
	add("zadd", "few", "-0", "one")
	some(all)
	log := entries(1, calls...)
	states := make([]keys.RegionState, len(log)+1) // the model's, behind each entry
	apply := func(r still, to int) {
		t.Helper()
		for from := int(r.machine.state.ApplyIndex); from < to; from = int(r.machine.state.ApplyIndex) {
			n := min(to-from, 1+random.IntN(20))
			if _, err := r.machine.Update(append([]sm.Entry{}, log[from:from+n]...)); err != nil ||
				r.fs.Failed() != nil {
				t.Fatal(err, r.fs.Failed())
			}
			if got, want := r.machine.state, states[from+n]; want.ApplyIndex != 0 && got != want {
				t.Fatalf("state %+v; want %+v", got, want)
			}
		}
	}

	model := openStillOf(t, disk.Mem(), wholeRegion)
	defer model.close(t)
	states[0] = model.machine.state
	any, partly, withReads := false, false, uint64(0)
	held := simple{texts: map[string]text{}, hashes: map[string]bool{}}
	longs := map[byte]int{} // long strings written by entries of each format
	for i := 1; i <= len(log); i++ {
		if format := formatOf(i); format == 3 || format == 5 || format == 7 {
			log[i-1].Cmd = model.readAhead(t, log[i-1].Cmd, calls[i-1])
			withReads++
		}
		log[i-1].Cmd = ofFormat(log[i-1].Cmd, formatOf(i))
		apply(model, i)
		held.apply(calls[i-1], i)
		for key, want := range held.texts {
			got, inPieces := model.text(t, key)
			long := len(want.value) > pieceBytes
			if got != want.value || inPieces != (long && want.written > old) {
				t.Fatalf("behind %.40q at %d: %s has %d bytes, in pieces %v; want the %d bytes that were written at %d",
					calls[i-1], i, key, len(got), inPieces, len(want.value), want.written)
			}
			if long && want.written == i {
				longs[formatOf(i)]++
			}
		}
		switch i {
		case unsigned:
			if signed := model.signed(t); len(signed) > 0 {
				t.Fatalf("scores of -0 by entries of older formats, by key: %v", signed)
			}
		case unsigned + 4:
			// A listpack, up to 128 members, loses the sign.
			if signed, want := model.signed(t), (map[string]int{"old": 1, "new": 73}); !maps.Equal(signed, want) {
				t.Fatalf("scores of -0, by key: %v; want %v", signed, want)
			}
		}
		states[i] = model.machine.state
		s := &states[i]
		if in := s.CollectedIn; i <= first {
			any = any || in != 0
			if in != 0 && in != keys.AllSlots || in != 0 != (s.CollectedAt != 0) {
				t.Fatalf("behind %.40q at %d, of format 1: last write of a collection at index %d, in %#x",
					calls[i-1], i, s.CollectedAt, in)
			}
		} else {
			partly = partly || in != 0 && in != keys.AllSlots
		}
	}
	if !any || !partly {
		t.Errorf("collections in the first part %v, in some slots alone behind it %v", any, partly)
	}
	if used := model.counters.ReadSetsUsed.Load(); used != withReads {
		t.Errorf("%d read sets are used; want %d", used, withReads)
	}
	for format := byte(1); format <= 7; format++ {
		if longs[format] == 0 {
			t.Errorf("no entry of format %d has written a long string", format)
		}
	}
	want := model.content(t)
	for range 20 {
		r := openStillOf(t, disk.Mem(), wholeRegion)
		cut := random.IntN(old + 1)
		apply(r, cut)
		if 0 < cut && cut <= first {
			key := keys.AppendRegionState(nil, snapshotRegion.ID)
			state := r.machine.state.Append(nil)[:58]
			state[0] = 1
			b := r.o.Engine.NewBatch()
			if err := b.Set(key, state); err != nil {
				t.Fatal(err)
			}
			if err := b.Commit(false); err != nil {
				t.Fatal(err)
			}
		}
		r.machine = newMachine(&r.core, &r.proposer, &r.sums)
		if _, err := r.machine.Open(nil); err != nil || r.machine.state != states[cut] {
			t.Fatalf("opened with state %+v, %v; want %+v", r.machine.state, err, states[cut])
		}
		apply(r, len(log))
		if got := r.content(t); !maps.Equal(got, want) {
			t.Errorf("upgraded at %d: %d records, want %d, or they differ", cut, len(got), len(want))
		}
		r.close(t)
	}
}

// readAhead adds to an entry of one call the read set for it, as the replica's proposer makes it.
func (r still) readAhead(t *testing.T, entry []byte, words []string) []byte {
	t.Helper()
	call := redis.Call{Command: redis.Lookup([]byte(words[0]))}
	for _, w := range words {
		call.Args = append(call.Args, []byte(w))
	}
	v := r.o.Engine.NewView()
	defer v.Close()
	var set redis.ReadSet
	set.Begin(v, r.space, keys.AllSlots)
	if err := set.Add(&call); err != nil {
		t.Fatal(err)
	}
	return appendReads(entry, set.Bytes, r.machine.state.ApplyIndex)
}

// signed counts the scores of -0 that are stored, by the key of the sorted set.
func (r still) signed(t *testing.T) map[string]int {
	t.Helper()
	found := map[string]int{}
	for key, value := range r.content(t) {
		if k, err := keys.ParseRedis([]byte(key)); err == nil && k.Keyspace == keys.ZSetScore && value != "" {
			found[string(k.User)]++
		}
	}
	return found
}

// text puts together the string that a key holds from what is stored, and reports whether it lies in pieces.
func (r still) text(t *testing.T, key string) (value string, inPieces bool) {
	t.Helper()
	v := r.o.Engine.NewView()
	defer v.Close()
	get := func(key []byte) []byte {
		value, _, err := v.Get(key)
		if err != nil {
			t.Fatal(err)
		}
		return bytes.Clone(value)
	}
	m, err := keys.ParseMetadata(get(r.space.AppendMetadataOf(nil, []byte(key))))
	switch {
	case err != nil || m.Type != keys.String:
		t.Fatalf("%s: a record of a %v, %v; want that of a string", key, m.Type, err)
	case !m.Long():
		return string(m.Value), false
	}
	all := make([]byte, m.Size)
	for at := uint64(0); at < m.Size; at += pieceBytes {
		index := binary.BigEndian.AppendUint64(nil, at/pieceBytes)
		slot := topology.SlotOf([]byte(key))
		copy(all[at:], get(r.space.AppendSubkey(nil, slot, []byte(key), m.Version, index)))
	}
	return string(all), true
}

// simple is what keys hold by the calls of TestOldEntries: some a string, others a hash.
type simple struct {
	texts  map[string]text
	hashes map[string]bool
}

// text is a string, and the index of the entry that last wrote it.
type text struct {
	value   string
	written int
}

func (s *simple) apply(words []string, index int) {
	del := func(key string) { delete(s.texts, key); delete(s.hashes, key) }
	set := func(key, value string) { del(key); s.texts[key] = text{value, index} }
	key := words[min(1, len(words)-1)]
	old, isText := s.texts[key]
	isHash := s.hashes[key]
	switch words[0] {
	case "set", "mset":
		for i := 1; i < len(words); i += 2 {
			set(words[i], words[i+1])
		}
	case "setnx":
		if !isText && !isHash {
			set(key, words[2])
		}
	case "append":
		if !isHash {
			set(key, old.value+words[2])
		}
	case "setrange":
		from, _ := strconv.Atoi(words[2])
		if value := []byte(old.value); !isHash {
			value = append(value, make([]byte, max(0, from+len(words[3])-len(value)))...)
			copy(value[from:], words[3])
			set(key, string(value))
		}
	case "pexpireat": // far ahead
		if isText {
			set(key, old.value)
		}
	case "rename":
		switch to := words[2]; {
		case to == key:
		case isText:
			set(to, old.value)
			del(key)
		case isHash:
			del(to)
			s.hashes[to] = true
			del(key)
		}
	case "hset":
		if !isText {
			s.hashes[key] = true
		}
	case "del":
		del(key)
	case "flushall":
		clear(s.texts)
		clear(s.hashes)
	}
}

// wholeRegion has all slots.
var wholeRegion = topology.Region{ID: snapshotRegion.ID, Slots: topology.SlotRange{Last: topology.SlotCount - 1}}

// ofFormat gives an entry of the present format an older one, which says nothing of bounds.
func ofFormat(cmd []byte, format byte) []byte {
	cmd = slices.Delete(slices.Clone(cmd), oldHeaderBytes, entryHeaderBytes)
	cmd[0] = format
	return cmd
}
