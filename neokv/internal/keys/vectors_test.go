package keys

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"os"
	"strconv"
	"testing"

	"neokv.dev/neokv/internal/topology"
)

// unhex is a byte string written in hex.
type unhex []byte

func (u *unhex) UnmarshalJSON(b []byte) error {
	s, err := strconv.Unquote(string(b))
	if err != nil {
		return err
	}
	*u, err = hex.DecodeString(s)
	return err
}

// golden are the vectors. They call a data space region_id: it was the region's id when they were made.
type golden struct {
	I64 []struct {
		Value int64 `json:",string"`
		Hex   unhex
	}
	Score []struct {
		Value string
		Hex   unhex
	}
	MetadataKey []struct {
		Space int64 `json:"region_id,string"`
		Index int64 `json:"index_id,string"`
		User  unhex `json:"user_key"`
		Hex   unhex
	} `json:"metadata_key"`
	MetadataValue []struct {
		Type     string
		ExpireMS uint64 `json:"expire_ms,string"`
		Inline   unhex  `json:"inline_value"`
		Version  uint64 `json:",string"`
		Size     uint64 `json:",string"`
		Head     uint64 `json:",string"`
		Tail     uint64 `json:",string"`
		Skiplist bool
		Hex      unhex
	} `json:"metadata_value"`
	Subkey []struct {
		Type      string
		User      unhex  `json:"user_key"`
		Version   uint64 `json:",string"`
		ListIndex uint64 `json:"list_index,string"`
		Name      unhex  `json:"name"`
		Sub       unhex  `json:"sub_key"`
		Hex       unhex
		Value     unhex
	}
	ScoreKey []struct {
		User    unhex  `json:"user_key"`
		Version uint64 `json:",string"`
		Score   string
		Member  unhex
		Hex     unhex
		Value   unhex
	} `json:"score_key"`
	Legacy []struct {
		Space    int64  `json:"region_id,string"`
		Index    int64  `json:"index_id,string"`
		User     unhex  `json:"user_key"`
		Key      unhex  `json:"key_hex"`
		ExpireMS uint64 `json:"expire_ms,string"`
		Payload  unhex
		Value    unhex `json:"value_hex"`
	} `json:"legacy_string"`
	Bounds []struct {
		First topology.Slot `json:"slot_start"`
		Last  topology.Slot `json:"slot_end"`
		Start unhex         `json:"start_key"`
		End   unhex         `json:"end_key"`
	} `json:"region_bounds"`
	RaftLogKey []struct {
		Region topology.RegionID `json:"region_id,string"`
		Kind   string
		Index  uint64 `json:",string"`
		Hex    unhex
	} `json:"raft_log_key"`
	Version []struct {
		TimestampUS uint64 `json:"timestamp_us,string"`
		Counter     uint64 `json:",string"`
		Version     uint64 `json:",string"`
	}
}

func vectors(t testing.TB) (v golden) {
	b, err := os.ReadFile("testdata/vectors.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

func equal(t *testing.T, what string, got, want []byte) {
	t.Helper()
	if !bytes.Equal(got, want) {
		t.Errorf("%s = %x; want %x", what, got, want)
	}
}

// tagged checks a key against its golden vector: the keyspace's tag, then the vector. It is appended behind other
// bytes, which must stay.
func tagged(t *testing.T, what string, ks Keyspace, appendKey func(dst []byte) []byte, vector []byte) []byte {
	t.Helper()
	key := appendKey([]byte("before"))
	if !bytes.HasPrefix(key, []byte("before")) {
		t.Errorf("%s: bytes before the key changed: %x", what, key)
	}
	key = key[len("before"):]
	equal(t, what, key, append([]byte{byte(ks)}, vector...))
	return key
}

// inSpace checks that a vector names a space and an index, and returns it with those that all keys have.
func inSpace(t *testing.T, vector []byte, id, index int64) []byte {
	t.Helper()
	equal(t, "space and index", vector[:len(space)], AppendI64(AppendI64(nil, id), index))
	return append([]byte(space), vector[len(space):]...)
}

// subkeyOf returns the key of a hash's field, or of a set's or sorted set's member.
func subkeyOf(slot topology.Slot, user []byte, version uint64, sub []byte) []byte {
	return append(AppendCollection(nil, Data, slot, user, version), sub...)
}

// scoreKeyOf returns the key of a sorted set's entry in the score index.
func scoreKeyOf(slot topology.Slot, user []byte, version uint64, score float64, member []byte) []byte {
	return AppendPlace(AppendCollection(nil, ZSetScore, slot, user, version), score, member)
}

// parseScoreKey is the inverse of scoreKeyOf.
func parseScoreKey(k RedisKey) (version uint64, score float64, member []byte, ok bool) {
	version, rest, ok := k.Subkey()
	if !ok || len(rest) < 8 {
		return 0, 0, nil, false
	}
	return version, Score(rest), rest[8:], true
}

func score(t *testing.T, s string) float64 {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

func TestVectorsOfIntegers(t *testing.T) {
	v := vectors(t)
	for _, c := range v.I64 {
		equal(t, strconv.FormatInt(c.Value, 10), AppendI64(nil, c.Value), c.Hex)
		if got := I64(c.Hex); got != c.Value {
			t.Errorf("I64(%x) = %d; want %d", c.Hex, got, c.Value)
		}
	}
	for _, c := range v.Score {
		equal(t, "score "+c.Value, AppendScore(nil, score(t, c.Value)), c.Hex)
		if got := AppendScore(nil, Score(c.Hex)); !bytes.Equal(got, c.Hex) {
			t.Errorf("Score(%x) = %x in bytes again", c.Hex, got)
		}
	}
	for _, c := range v.Version {
		if got := Version(c.TimestampUS, c.Counter); got != c.Version {
			t.Errorf("Version(%d, %d) = %d; want %d", c.TimestampUS, c.Counter, got, c.Version)
		}
	}
	if len(v.I64) == 0 || len(v.Score) == 0 || len(v.Version) == 0 {
		t.Error("a section of the vectors is empty")
	}
}

func TestVectorsOfRedisKeys(t *testing.T) {
	v := vectors(t)
	for _, c := range v.MetadataKey {
		key := tagged(t, "metadata key", RedisMetadata, func(dst []byte) []byte {
			return AppendMetadata(dst, topology.SlotOf(c.User), c.User)
		}, inSpace(t, c.Hex, c.Space, c.Index))
		p, err := ParseRedis(key)
		if err != nil || p.Slot != topology.SlotOf(c.User) || !bytes.Equal(p.User, c.User) ||
			len(p.Rest) != 0 {
			t.Errorf("ParseRedis(%x) = %+v, %v", key, p, err)
		}
	}
	for _, c := range v.Subkey {
		slot := topology.SlotOf(c.User)
		sub := []byte(c.Sub)
		if c.Type == "list" || c.Type == "string" {
			sub = binary.BigEndian.AppendUint64(nil, c.ListIndex)
			equal(t, "list index", sub, c.Sub)
		} else {
			equal(t, "subkey of a name", AppendElement(nil, c.Name), c.Sub)
		}
		key := tagged(t, c.Type+" subkey", Data,
			func(dst []byte) []byte { return append(dst, subkeyOf(slot, c.User, c.Version, sub)...) }, c.Hex)
		p, err := ParseRedis(key)
		version, gotSub, ok := p.Subkey()
		if err != nil || !ok || version != c.Version || !bytes.Equal(gotSub, sub) || p.Legacy() {
			t.Errorf("ParseRedis(%x) = %+v, %v; Subkey() = %d, %x, %v", key, p, err, version, gotSub, ok)
		}
		if c.Type == "zset" {
			equal(t, "value of a zset's subkey", AppendScore(nil, 99.5), c.Value)
		}
	}
	for _, c := range v.ScoreKey {
		slot, want := topology.SlotOf(c.User), score(t, c.Score)
		key := tagged(t, "score key", ZSetScore, func(dst []byte) []byte {
			return append(dst, scoreKeyOf(slot, c.User, c.Version, want, c.Member)...)
		}, c.Hex)
		p, err := ParseRedis(key)
		version, got, member, ok := parseScoreKey(p)
		if err != nil || !ok || version != c.Version || got != want || !bytes.Equal(member, c.Member) {
			t.Errorf("ParseRedis(%x).ScoreKey() = %d, %v, %q, %v, %v", key, version, got, member, ok, err)
		}
		equal(t, "value of the score key of "+c.Score, ScoreSign(want), c.Value)
	}
	for _, c := range v.Legacy {
		slot := topology.SlotOf(c.User)
		key := tagged(t, "legacy string", Data, func(dst []byte) []byte { return AppendLegacy(dst, slot, c.User) },
			inSpace(t, c.Key, c.Space, c.Index))
		if p, err := ParseRedis(key); err != nil || !p.Legacy() || !bytes.Equal(p.User, c.User) {
			t.Errorf("ParseRedis(%x) = %+v, %v; want a legacy string", key, p, err)
		}
		equal(t, "legacy value", AppendLegacyString(nil, c.ExpireMS, c.Payload), c.Value)
		if m, err := ParseLegacyString(c.Value); err != nil || m.ExpireMS != c.ExpireMS ||
			!bytes.Equal(m.Value, c.Payload) {
			t.Errorf("ParseLegacyString(%x) = %+v, %v", c.Value, m, err)
		}
	}
	if len(v.MetadataKey) == 0 || len(v.Subkey) == 0 || len(v.ScoreKey) == 0 || len(v.Legacy) == 0 {
		t.Error("a section of the vectors is empty")
	}
}

func TestVectorsOfMetadata(t *testing.T) {
	types := map[string]Type{"string": String, "hash": Hash, "list": List, "set": Set, "zset": ZSet}
	seen := map[Type]bool{}
	for _, c := range vectors(t).MetadataValue {
		m := Metadata{types[c.Type], c.ExpireMS, c.Inline, c.Version, c.Size, c.Head, c.Tail, c.Skiplist}
		seen[m.Type] = true
		if m.Type == List && (m.Head != ListStart-2 || m.Tail != ListStart+1) {
			// Two pushed at the head, one at the tail.
			t.Errorf("list of the vectors from %d to %d; ListStart is %d", m.Head, m.Tail, ListStart)
		}
		equal(t, c.Type, m.Append(nil), c.Hex)
		if c.Version == 0 {
			equal(t, "AppendString", AppendString(nil, m.ExpireMS, m.Value), c.Hex)
			if got := StringLen(len(m.Value)); got != len(c.Hex) {
				t.Errorf("StringLen(%d) = %d; want %d", len(m.Value), got, len(c.Hex))
			}
		}
		got, err := ParseMetadata(c.Hex)
		apart := len(c.Inline) == 0
		if err != nil || got.Type.String() != c.Type || !sameMetadata(got, m) || got.Apart() != apart ||
			got.Long() != (apart && m.Type == String) {
			t.Errorf("ParseMetadata(%x) = %+v, %v; want %+v", c.Hex, got, err, m)
		}
	}
	if len(seen) != len(types) {
		t.Errorf("vectors of %d types, want %d", len(seen), len(types))
	}
}

func sameMetadata(a, b Metadata) bool {
	values := bytes.Equal(a.Value, b.Value)
	a.Value, b.Value = nil, nil
	return values && a.Type == b.Type && a.ExpireMS == b.ExpireMS && a.Version == b.Version && a.Size == b.Size &&
		a.Head == b.Head && a.Tail == b.Tail && a.Skiplist == b.Skiplist
}

func TestVectorsOfBounds(t *testing.T) {
	prefix := AppendPrefix(nil, Data)
	v := vectors(t).Bounds
	for _, c := range v {
		r := topology.SlotRange{First: c.First, Last: c.Last}
		equal(t, r.String()+" start", AppendStartKey(nil, r), c.Start)
		equal(t, r.String()+" end", AppendEndKey(nil, r), c.End)

		lower, upper := SlotBounds(Data, r)
		equal(t, r.String()+" lower", lower, append(bytes.Clone(prefix), c.Start...))
		for slot := range topology.Slot(topology.SlotCount) {
			key := AppendLegacy(nil, slot, []byte{0xff, 0xff})
			if in := bytes.Compare(lower, key) <= 0 && bytes.Compare(key, upper) < 0; in != r.Contains(slot) {
				t.Fatalf("slots %v: bounds contain slot %d: %v", r, slot, in)
			}
		}
		next := Successor(AppendPrefix(nil, Data))
		if bytes.Compare(upper, next) > 0 {
			t.Errorf("slots %v: upper bound %x reaches into the next space", r, upper)
		}
	}
	if len(v) == 0 {
		t.Error("no vectors")
	}
}

func TestVectorsOfRaftLog(t *testing.T) {
	kinds := map[string]RaftRecord{"log_meta": LogMeta, "log_entry": LogEntry, "raft_state": RaftState}
	v := vectors(t).RaftLogKey
	for _, c := range v {
		key := tagged(t, c.Kind, RaftLog, func(dst []byte) []byte {
			if kinds[c.Kind] == LogEntry {
				return AppendLogEntry(dst, c.Region, c.Index)
			}
			return AppendRaft(dst, c.Region, kinds[c.Kind])
		}, c.Hex)
		if region, k, index, err := ParseRaft(key); err != nil || region != c.Region || k != kinds[c.Kind] ||
			index != c.Index {
			t.Errorf("ParseRaft(%x) = %d, %d, %d, %v", key, region, k, index, err)
		}
	}
	if len(v) == 0 {
		t.Error("no vectors")
	}
}

// The vectors of bytes that this package fixes itself.
func TestOwnLayouts(t *testing.T) {
	orphan := Orphan{Slot: topology.SlotOf([]byte("foo")), User: []byte("foo"),
		Version: 0x0102030405060708, Type: ZSet, Size: 3}
	rank := func(kind RankKind) []byte {
		return append(AppendCollection(nil, ZSetRank, orphan.Slot, orphan.User, orphan.Version),
			byte(kind))
	}
	const fooRank = "09" + "8000000000000001" + "8000000000000001" + "2f96" + "00000003" + "666f6f" + "0102030405060708"
	for _, c := range []struct {
		name string
		got  []byte
		want string
	}{
		{"first group key", rank(RankGroup), fooRank + "01"},
		{"group key", append(AppendScore(rank(RankGroup), 1.5), "m"...), fooRank + "01" + "bff8000000000000" + "6d"},
		{"group", AppendRankCounts(nil, []uint64{0, 5, 300}), "01" + "00" + "05" + "ac02"},
		{"block key", append(AppendScore(rank(RankBlock), -1), "n"...), fooRank + "02" + "400fffffffffffff" + "6e"},
		{"block", AppendRankBlock(nil), "01"},
		{"parts key", rank(RankParts), fooRank + "03"},
		{"store identity key", AppendStoreIdentity(nil), "0401"},
		{"store identity", (&StoreIdentity{Cluster: [16]byte{0: 0xaa, 15: 0xbb},
			Store: 2}).Append(nil),
			"01" + "00000011" + "aa0000000000000000000000000000bb" + "00000002"},
		{"region state key", AppendRegionState(nil, 7), "04028000000000000007"},
		{"region state", goldenState.Append(nil),
			"04" + "0000000000000001" + "0000000000000002" + "0000000000000003" + "0000000000000004" +
				"0000000000000005" + "03" +
				"0000000000000007" + "0000000000000008" +
				"000a" + "3fff" + "0b" + "15" + "0c" + "0d"},
		{"region state without a change", (&RegionState{Version: 300}).Append(nil)[58:],
			"0000" + "0000" + "ac02" + "00"},
		{"replica key", AppendReplica(nil, 7), "04078000000000000007"},
		{"replica", (&ReplicaRecord{ID: 1, Begins: JoinsNonVoting, Born: 6, After: 7, PeerSet: PeerSet{Conf: 8, Since: 9,
			Peers: []topology.Peer{{Store: 2, Replica: 3}, {Store: 4, Replica: 5, Role: topology.Leaving}}}}).Append(nil),
			"02" + "0000000000000001" + "02" + "0000000000000006" + "0000000000000007" +
				"0000000000000008" + "0000000000000009" + "0002" +
				"00000002" + "0000000000000003" + "00" + "00000004" + "0000000000000005" + "02"},
		{"replica without peers", (&ReplicaRecord{ID: 1, PeerSet: PeerSet{Conf: 1}}).Append(nil),
			"02" + "0000000000000001" + "00" + "0000000000000000" + "0000000000000000" +
				"0000000000000001" + "0000000000000000" + "0000"},
		{"ended key", AppendEnded(nil, 7), "04088000000000000007"},
		{"ended", AppendEndedID(nil, 9), "01" + "0000000000000009"},
		{"cluster map key", AppendClusterMap(nil), "0403"},
		{"meta state key", AppendMetaState(nil, "map"), "04046d6170"},
		{"orphan key", orphan.AppendKey(nil),
			"0405" + "8000000000000001" + "8000000000000001" + "2f96" + "00000003" + "666f6f" + "0102030405060708"},
		{"orphan", orphan.Append(nil), "01" + "05" + "0000000000000003"},
		{"bootstrap key", AppendRaft(nil, 42, Bootstrap), "01800000000000002a04"},
		{"raft snapshot key", AppendRaft(nil, 42, RaftSnapshot), "01800000000000002a05"},
	} {
		if got := hex.EncodeToString(c.got); got != c.want {
			t.Errorf("%s = %s; want %s", c.name, got, c.want)
		}
	}
}

// goldenState is a region that its left neighbour takes over.
var goldenState = RegionState{ApplyIndex: 1, TimeMS: 2, LastVersion: 3, TermTag: 4, KeyCount: 5, KeysExact: true,
	Legacy: true, CollectedAt: 7, CollectedIn: 8,
	Slots: topology.SlotRange{First: 10, Last: 16383}, Version: 11, Phase: Frozen,
	Change: RegionChange{Kind: Leaving, Other: 12, Begun: 13}}

func TestRegionStateReadsBack(t *testing.T) {
	if got, err := ParseRegionState(goldenState.Append(nil)); err != nil || got != goldenState {
		t.Errorf("ParseRegionState = %+v, %v; want %+v", got, err, goldenState)
	}
}
