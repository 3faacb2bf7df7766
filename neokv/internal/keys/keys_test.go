package keys

import (
	"bytes"
	"cmp"
	"encoding/hex"
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"neokv.dev/neokv/internal/topology"
)

// random returns a random source whose seed is printed when the test fails.
func random(t *testing.T) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func randomBytes(rng *rand.Rand, longest int) []byte {
	b := make([]byte, rng.IntN(longest+1))
	for i := range b {
		b[i] = []byte{0, 1, 'a', 'b', 0x7f, 0x80, 0xfe, 0xff}[rng.IntN(8)]
	}
	return b
}

func TestByteOrderOfNumbers(t *testing.T) {
	rng := random(t)
	for range 100_000 {
		a, b := int64(rng.Uint64()), int64(rng.Uint64())
		if rng.IntN(2) == 0 {
			a, b = a>>60, b>>60
		}
		if got, want := bytes.Compare(AppendI64(nil, a), AppendI64(nil, b)), cmp.Compare(a, b); got != want {
			t.Fatalf("order of i64 %d and %d = %d; want %d", a, b, got, want)
		}
		x, y := math.Float64frombits(rng.Uint64()), math.Float64frombits(rng.Uint64())
		if rng.IntN(2) == 0 {
			x, y = float64(rng.IntN(5)-2), float64(rng.IntN(5)-2)
		}
		if math.IsNaN(x) || math.IsNaN(y) {
			continue
		}
		if got, want := bytes.Compare(AppendScore(nil, x), AppendScore(nil, y)), cmp.Compare(x, y); got != want {
			t.Fatalf("order of scores %v and %v = %d; want %d", x, y, got, want)
		}
	}
	if minus, plus := AppendScore(nil, math.Copysign(0, -1)), AppendScore(nil, 0); bytes.Compare(minus, plus) != -1 {
		t.Error("-0.0 is not just below +0.0")
	}
}

// TestByteOrderOfKeys compares the order of encoded keys with that of their parts: slot, length of the
// user key, user key, version, score, member.
func TestByteOrderOfKeys(t *testing.T) {
	type parts struct {
		slot    topology.Slot
		user    []byte
		version uint64
		score   float64
		member  []byte
	}
	rng := random(t)
	pick := func() parts {
		return parts{
			topology.Slot(rng.IntN(2) * 255),
			randomBytes(rng, 2), uint64(rng.IntN(2)), float64(rng.IntN(3) - 1), randomBytes(rng, 2),
		}
	}
	front := func(a, b parts) int {
		return cmp.Or(cmp.Compare(a.slot, b.slot),
			cmp.Compare(len(a.user), len(b.user)), bytes.Compare(a.user, b.user))
	}
	for range 100_000 {
		a, b := pick(), pick()
		metadata := func(p parts) []byte { return AppendMetadata(nil, p.slot, p.user) }
		subkey := func(p parts) []byte { return subkeyOf(p.slot, p.user, p.version, p.member) }
		scoreKey := func(p parts) []byte {
			return scoreKeyOf(p.slot, p.user, p.version, p.score, p.member)
		}
		collection := cmp.Or(front(a, b), cmp.Compare(a.version, b.version))
		for _, c := range []struct {
			name string
			key  func(parts) []byte
			want int
		}{
			{"metadata", metadata, front(a, b)},
			{"subkey", subkey, cmp.Or(collection, bytes.Compare(a.member, b.member))},
			{"score", scoreKey, cmp.Or(collection, cmp.Compare(a.score, b.score), bytes.Compare(a.member, b.member))},
		} {
			if got := bytes.Compare(c.key(a), c.key(b)); got != c.want {
				t.Fatalf("order of %s keys of %+v and %+v = %d; want %d", c.name, a, b, got, c.want)
			}
		}
		// A version of a collection is one range that holds its keys and no others.
		lower := AppendCollection(nil, Data, a.slot, a.user, a.version)
		upper := Successor(bytes.Clone(lower))
		key := subkey(b)
		if in := bytes.Compare(lower, key) <= 0 && bytes.Compare(key, upper) < 0; in != (collection == 0) {
			t.Fatalf("subkey of %+v in the range of %+v: %v", b, a, in)
		}
		if CollectionLen(key) != len(AppendCollection(nil, Data, b.slot, b.user, b.version)) {
			t.Fatalf("CollectionLen(%x) = %d", key, CollectionLen(key))
		}
	}
}

func TestBoundsOfRaftAndMetaInfo(t *testing.T) {
	in := func(key, lower, upper []byte) bool {
		return bytes.Compare(lower, key) <= 0 && bytes.Compare(key, upper) < 0
	}
	for region := topology.RegionID(0); region < 3; region++ {
		lower, upper := RaftBounds(1)
		for _, k := range []RaftRecord{LogMeta, RaftState, Bootstrap, RaftSnapshot} {
			if got := in(AppendRaft(nil, region, k), lower, upper); got != (region == 1) {
				t.Errorf("record %d of region %d in the bounds of region 1: %v", k, region, got)
			}
		}
		for _, index := range []uint64{0, 4, 5, 7, 8, math.MaxUint64} {
			key := AppendLogEntry(nil, region, index)
			if got := in(key, lower, upper); got != (region == 1) {
				t.Errorf("entry %d of region %d in the bounds of region 1: %v", index, region, got)
			}
			lower, upper := LogBounds(1, 5, 8)
			if got := in(key, lower, upper); got != (region == 1 && 5 <= index && index < 8) {
				t.Errorf("entry %d of region %d in [5, 8) of region 1: %v", index, region, got)
			}
			lower, upper = LogBounds(1, 5, 0)
			if got := in(key, lower, upper); got != (region == 1 && 5 <= index) {
				t.Errorf("entry %d of region %d in [5, end] of region 1: %v", index, region, got)
			}
		}
		orphan := Orphan{Slot: 100, User: []byte("k"), Version: 1}
		for _, slots := range []topology.SlotRange{{First: 0, Last: 100}, {First: 100, Last: 16383},
			{First: 101, Last: 16383}, {First: 0, Last: 99}} {
			lower, upper = OrphanBounds(slots)
			if got := in(orphan.AppendKey(nil), lower, upper); got != slots.Contains(100) {
				t.Errorf("orphan of slot 100 in the bounds of slots %v: %v", slots, got)
			}
		}
		lower, upper = CategoryBounds(CategoryRegion)
		if key := AppendRegionState(nil, region); !in(key, lower, upper) || in(orphan.AppendKey(nil), lower, upper) {
			t.Errorf("bounds of the region states do not hold exactly them")
		}
	}
	key := make([]byte, LogEntryKeyLen)
	PutLogEntry(key, 5, 77)
	equal(t, "PutLogEntry", key, AppendLogEntry(nil, 5, 77))
}

func TestSuccessor(t *testing.T) {
	for _, c := range []struct{ in, want []byte }{
		{[]byte{1}, []byte{2}},
		{[]byte{1, 0xff}, []byte{2, 0}},
		{[]byte{1, 2, 0xff, 0xff}, []byte{1, 3, 0, 0}},
	} {
		equal(t, fmt.Sprintf("Successor(%x)", c.in), Successor(bytes.Clone(c.in)), c.want)
	}
}

// TestErrorsNameTheLimit cuts and spoils every record.
func TestErrorsNameTheLimit(t *testing.T) {
	list := Metadata{Type: List, Version: 1, Size: 1, Head: 1, Tail: 2}
	long := Metadata{Type: String, Version: 1, Size: 100_000}
	state := (&RegionState{ApplyIndex: 1, Slots: topology.SlotRange{Last: 3}, Version: 1}).Append(nil)
	held := (&ReplicaRecord{ID: 1, PeerSet: PeerSet{Conf: 1, Peers: []topology.Peer{{Store: 1, Replica: 1}}}}).Append(nil)
	identity := (&StoreIdentity{Store: 1}).Append(nil)
	orphan := Orphan{User: []byte("k"), Type: Hash}
	metadataKey := AppendMetadata(nil, topology.SlotOf([]byte("key")), []byte("key"))
	with := func(b []byte, at int, to byte) []byte { b = slices.Clone(b); b[at] = to; return b }
	metadata := func(b []byte) error { _, err := ParseMetadata(b); return err }
	redis := func(b []byte) error { _, err := ParseRedis(b); return err }
	replica := func(b []byte) error { _, err := ParseReplica(b); return err }
	ended := func(b []byte) error { _, err := ParseEnded(b); return err }
	replicaKey := func(b []byte) error { _, err := ParseReplicaKey(b); return err }
	region := func(b []byte) error { _, err := ParseRegionState(b); return err }
	raft := func(b []byte) error { _, _, _, err := ParseRaft(b); return err }
	store := func(b []byte) error { _, err := ParseStoreIdentity(b); return err }
	orphanOf := func(key, value []byte) error { _, err := ParseOrphan(key, value); return err }
	rank := func(b []byte) error { _, err := ParseRankCounts(nil, b); return err }
	legacy := func(b []byte) error { _, err := ParseLegacyString(b); return err }

	for _, c := range []struct {
		err  error
		want string
	}{
		{metadata(nil), "metadata: 0 bytes, want at least 9"},
		{metadata(list.Append(nil)[:40]), "metadata: list: 40 bytes, want 41"},
		{metadata(append(list.Append(nil), 0)), "metadata: list: 42 bytes, want 41"},
		{metadata(with(list.Append(nil), 0, 0x82)), "metadata: hash: 41 bytes, want 25"},
		{metadata(with(list.Append(nil), 0, 0x03)), "metadata: flags 0x03, want bit 7 set and bits 4-6 clear"},
		{metadata(with(list.Append(nil), 0, 0xb3)), "metadata: flags 0xb3, want bit 7 set and bits 4-6 clear"},
		{metadata(with(list.Append(nil), 0, 0x87)), "metadata: flags 0x87: unknown type 7"},
		{rank([]byte{1}), "rank counts: 1 bytes, want at least 2"},
		{rank([]byte{2, 5}), "rank counts: format 2, want 1"},
		{rank([]byte{1, 5, 0x80}), "rank counts: count 1 is cut short"},
		{legacy(make([]byte, 7)), "legacy string: 7 bytes, want at least 8"},
		{redis(metadataKey[:22]), "redis key: 22 bytes, want at least 23"},
		{redis(metadataKey[:25]), "redis key: user key: 2 bytes, want 3"},
		{redis(append(slices.Clone(metadataKey), 'x')), "redis key: 1 bytes behind the user key, want none"},
		{redis(with(metadataKey, 0, 1)), "redis key: in raft_log"},
		{redis(with(metadataKey, 0, 77)), "redis key: in keyspace 77"},
		{region(nil), "region state: 0 bytes, want at least 62"},
		{region(state[:63]), "region state: there is no phase"},
		{region(state[:61]), "region state: 61 bytes, want at least 62"},
		{region(append(slices.Clone(state), 0)), "region state: 1 bytes too much"},
		{region(with(state, 63, 1)), "region state: the bounds are cut short"},
		{region(with(state, 0, 3)), "region state: format 3, want 4"},
		{region(with(state, 0, 5)), "region state: format 5, want 4"},
		{region(with(state, 62, 0)), "region state: version 0, want at least 1"},
		{region(with(state, 59, 4)), "region state: slots 4 to 3, want an ascending range up to 16383"},
		{region(with(state, 60, 0x40)), "region state: slots 0 to 16387, want an ascending range up to 16383"},
		{region(with(state, 63, 0x30)), "region state: phase 3, change 0, want less than 3 and 6"},
		{region(append(with(state, 63, 6), 1, 1)), "region state: phase 0, change 6, want less than 3 and 6"},
		{replica(nil), "replica: 0 bytes, want format 2 and at least 26"},
		{replica(held[:25]), "replica: 25 bytes, want format 2 and at least 26"},
		{replica(with(held, 0, 1)), "replica: 57 bytes, want format 2 and at least 26"},
		{replica(held[:56]), "replica: peers: 30 bytes, want 18 and 13 per peer"},
		{replica(with(held, 9, 3)), "replica: begins 3, want less than 3"},
		{replica(with(held, 33, 0)), "replica: peers: conf 0, want at least 1"},
		{replica(with(held, 56, 3)), "replica: peers: role 3, want less than 3"},
		{ended(nil), "ended replicas: 0 bytes, want format 1 and 9 bytes"},
		{replicaKey(AppendRegionState(nil, 1)), "replica key: 04028000000000000001"},
		{replicaKey(AppendReplica(nil, 1)[:9]), "replica key: 040780000000000000"},
		{region(with(state, 41, 4)), "region state: flags 0x04, want no bit but 0 and 1"},
		{raft(AppendRaft(nil, 1, LogMeta)[:9]), "raft log key: 9 bytes, want at least 10"},
		{raft(AppendRaft(nil, 1, LogEntry)), "raft log key: kind 2: 10 bytes, want 18"},
		{raft(AppendRaft(nil, 1, 9)), "raft log key: unknown kind 9"},
		{raft(with(AppendRaft(nil, 1, LogMeta), 0, 3)), "raft log key: in data"},
		{store(identity[:4]), "store identity: 4 bytes, want 25"},
		{store(with(identity, 0, 9)), "store identity: format 9, want 1"},
		{store(with(identity, 4, 13)), "store identity: the store has format 13; this program reads format 17"},
		{store(identity[:24]), "store identity: 24 bytes, want 25"},
		{orphanOf(orphan.AppendKey(nil)[:31], nil), "orphan key: 31 bytes, want at least 32"},
		{metadata(with(list.Append(nil), 0, 0x93)), "metadata: flags 0x93, want bit 7 set and bits 4-6 clear"},
		{metadata(with(list.Append(nil), 0, 0xb1)),
			"metadata: flags 0xb1, want bit 7 set and bits 4-6 clear, but for bit 4 of a string"},
		{metadata(with(list.Append(nil), 0, 0x91)), "metadata: string: 41 bytes, want 25"},
		{metadata(long.Append(nil)[:24]), "metadata: string: 24 bytes, want 25"},
		{metadata(with(long.Append(nil), 16, 0)), "metadata: long string of version 0"},
		{orphanOf(append(orphan.AppendKey(nil), 0), nil), "orphan key: 34 bytes, want 33"},
		{orphanOf(with(orphan.AppendKey(nil), 1, 2), nil), "orphan key: in meta_info category 2"},
		{orphanOf(orphan.AppendKey(nil), make([]byte, 9)), "orphan: 9 bytes, want 10"},
		{orphanOf(orphan.AppendKey(nil), make([]byte, 10)), "orphan: format 0, want 1"},
	} {
		if c.err == nil || !strings.Contains(c.err.Error(), c.want) {
			t.Errorf("error %v; want %q", c.err, c.want)
		}
	}
}

func FuzzParse(f *testing.F) {
	orphan := Orphan{User: []byte("k"), Type: Hash}
	f.Add(AppendMetadata(nil, topology.SlotOf([]byte("key")), []byte("key")), AppendString(nil, 1, []byte("v")))
	f.Add(scoreKeyOf(1, []byte("key"), 2, 1.5, []byte("m")), (&Metadata{Type: List}).Append(nil))
	f.Add(AppendCollection(nil, ZSetRank, 1, []byte("key"), 2), AppendRankCounts(nil, []uint64{1, 300}))
	f.Add(AppendLegacy(nil, 1, []byte("key")), (&RegionState{KeysExact: true, Version: 1}).Append(nil))
	f.Add(AppendMetadata(nil, 1, nil), goldenState.Append(nil))
	long := (&RegionState{KeysExact: true, Version: 1}).Append(nil)
	long = append(long[:len(long)-2], 0x81, 0, 0) // a version of two bytes, where one would do
	f.Add([]byte{}, long)
	f.Add(AppendReplica(nil, 7),
		(&ReplicaRecord{ID: 2, Begins: JoinsVoting, PeerSet: PeerSet{Conf: 1,
			Peers: []topology.Peer{{Store: 1, Replica: 2}}}}).Append(nil))
	f.Add(AppendEnded(nil, 7), AppendEndedID(nil, 9))
	f.Add(AppendLogEntry(nil, 1, 2), (&StoreIdentity{}).Append(nil))
	f.Add(orphan.AppendKey(nil), orphan.Append(nil))
	f.Add(subkeyOf(1, []byte("key"), 2, make([]byte, 8)),
		(&Metadata{Type: String, Version: 2, Size: 100_000}).Append(nil))
	f.Add([]byte{5, 18: 0xff, 19: 0xff, 20: 0xff, 21: 0xff, 22: 0xff}, []byte{0x81})

	// Whatever parses is what Append makes of it, byte for byte; nothing panics.
	f.Fuzz(func(t *testing.T, key, value []byte) {
		if n := CollectionLen(key); n > len(key) || n < min(len(key), UserKeyEnd(key)) {
			t.Errorf("CollectionLen(%x) = %d", key, n)
		}
		if p, err := ParseRedis(key); err == nil {
			again := append(AppendUserKey(nil, p.Keyspace, p.Slot, p.User), p.Rest...)
			equal(t, "redis key", again, key)
			if version, score, member, ok := parseScoreKey(p); ok && p.Keyspace == ZSetScore && !math.IsNaN(score) {
				equal(t, "score key", scoreKeyOf(p.Slot, p.User, version, score, member), key)
			}
			if version, sub, ok := p.Subkey(); ok && p.Keyspace == Data {
				equal(t, "subkey", subkeyOf(p.Slot, p.User, version, sub), key)
			}
		}
		if region, k, index, err := ParseRaft(key); err == nil {
			again := AppendRaft(nil, region, k)
			if k == LogEntry {
				again = AppendLogEntry(nil, region, index)
			}
			equal(t, "raft log key", again, key)
		}
		if m, err := ParseMetadata(value); err == nil {
			equal(t, "metadata", m.Append(nil), value)
		}
		if m, err := ParseLegacyString(value); err == nil {
			equal(t, "legacy string", AppendLegacyString(nil, m.ExpireMS, m.Value), value)
		}
		if counts, err := ParseRankCounts(nil, value); err == nil {
			if again, err := ParseRankCounts(nil, AppendRankCounts(nil, counts)); err != nil ||
				!slices.Equal(again, counts) {
				t.Errorf("rank counts of %d, and then of %d: %v", counts, again, err)
			}
		}
		if s, err := ParseRegionState(value); err == nil {
			equal(t, "region state", s.Append(nil), value)
		}
		if id, err := ParseReplicaKey(key); err == nil {
			equal(t, "replica key", AppendReplica(nil, id), key)
		}
		if r, err := ParseReplica(value); err == nil {
			equal(t, "replica", r.Append(nil), value)
		}
		if id, err := ParseEnded(value); err == nil {
			equal(t, "ended", AppendEndedID(nil, id), value)
		}
		if s, err := ParseStoreIdentity(value); err == nil {
			equal(t, "store identity", s.Append(nil), value)
		}
		if o, err := ParseOrphan(key, value); err == nil {
			equal(t, "orphan key", o.AppendKey(nil), key)
			equal(t, "orphan", o.Append(nil), value)
		}
	})
}

func BenchmarkMetadata(b *testing.B) {
	user := []byte("user:0000001234")
	var key, record []byte
	b.ReportAllocs()
	for b.Loop() {
		key = AppendMetadata(key[:0], topology.SlotOf(user), user)
		record = AppendString(record[:0], 0, user)
		if m, err := ParseMetadata(record); err != nil || m.Type != String {
			b.Fatal(err)
		}
	}
}

// FuzzOrder: the bytes of keys sort as what they are of does.
func FuzzOrder(f *testing.F) {
	f.Add(uint16(1), uint64(2), math.Float64bits(-1.5), []byte("a"), uint16(1), uint64(2), math.Float64bits(1.5),
		[]byte("b"))
	f.Add(uint16(1), uint64(2), math.Float64bits(math.Inf(-1)), []byte(nil), uint16(16383), uint64(2),
		math.Float64bits(math.SmallestNonzeroFloat64), []byte{0xff})
	f.Fuzz(func(t *testing.T, slotA uint16, versionA, bitsA uint64, memberA []byte,
		slotB uint16, versionB, bitsB uint64, memberB []byte,
	) {
		user := []byte("user")
		a, b := math.Float64frombits(bitsA), math.Float64frombits(bitsB)
		if math.IsNaN(a) || math.IsNaN(b) {
			return
		}
		want := cmp.Or(cmp.Compare(slotA, slotB), cmp.Compare(versionA, versionB), cmp.Compare(a, b),
			bytes.Compare(memberA, memberB))
		keyA := scoreKeyOf(topology.Slot(slotA), user, versionA, a, memberA)
		keyB := scoreKeyOf(topology.Slot(slotB), user, versionB, b, memberB)
		if got := bytes.Compare(keyA, keyB); got != want {
			t.Errorf("score keys of %d %d %v %q and %d %d %v %q compare as %d, want %d", slotA, versionA, a, memberA,
				slotB, versionB, b, memberB, got, want)
		}
		want = cmp.Or(cmp.Compare(slotA, slotB), cmp.Compare(versionA, versionB), bytes.Compare(memberA, memberB))
		keyA = subkeyOf(topology.Slot(slotA), user, versionA, memberA)
		keyB = subkeyOf(topology.Slot(slotB), user, versionB, memberB)
		if got := bytes.Compare(keyA, keyB); got != want {
			t.Errorf("subkeys of %d %d %q and %d %d %q compare as %d, want %d", slotA, versionA, memberA, slotB,
				versionB, memberB, got, want)
		}
		if got := bytes.Compare(AppendI64(nil, int64(bitsA)),
			AppendI64(nil, int64(bitsB))); got != cmp.Compare(int64(bitsA), int64(bitsB)) {
			t.Errorf("%d and %d compare as %d", int64(bitsA), int64(bitsB), got)
		}
	})
}

// TestStage: the record of a stage, as docs/storage.md has it, and what is none.
func TestStage(t *testing.T) {
	s := Stage{Index: 7, Units: 300, Touched: []byte{1, 0x80}, Choice: []byte("pcg:")}
	const want = "02" + "0000000000000007" + "000000000000012c" + "02" + "0180" + "7063673a"
	b := s.Append(nil)
	if got := hex.EncodeToString(b); got != want {
		t.Errorf("a stage is %s, want %s", got, want)
	}
	if got, err := ParseStage(b); err != nil || !reflect.DeepEqual(got, s) {
		t.Errorf("it comes back as %+v, %v", got, err)
	}
	for _, x := range []struct{ record, want string }{
		{"01" + want[2:], "stage: format 1, want 2"},
		{want[:34], "stage: 17 bytes, want at least 18"},
		{want[:38], "stage: bits of 2 bytes, cut short"},
		{want[:34] + "ff", "stage: bits of 0 bytes, cut short"},
	} {
		record, _ := hex.DecodeString(x.record)
		if _, err := ParseStage(record); err == nil || err.Error() != x.want {
			t.Errorf("ParseStage(%s) = %v, want %s", x.record, err, x.want)
		}
	}
}
