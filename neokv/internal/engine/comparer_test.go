package engine

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2"

	"neokv.dev/neokv/internal/keys"
)

// random returns a random source whose seed is printed when the test fails.
func random(t testing.TB) *rand.Rand {
	seed := uint64(time.Now().UnixNano())
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	})
	return rand.New(rand.NewPCG(seed, 0))
}

func TestSplit(t *testing.T) {
	user := []byte("key")
	collection := func(ks keys.Keyspace) []byte { return keys.AppendCollection(nil, ks, 9, user, 77) }
	for _, c := range []struct {
		name string
		key  []byte
		want int
	}{
		{"metadata", keys.AppendMetadata(nil, 9, user), len(keys.AppendMetadata(nil, 9, user))},
		{"subkey", append(collection(keys.Data), "field"...), len(collection(keys.Data)) + 5},
		{"legacy string", keys.AppendLegacy(nil, 9, user), len(keys.AppendLegacy(nil, 9, user))},
		{"score key", scoreKeyOf(9, user, 77, 1.5, []byte("member")), len(collection(keys.ZSetScore))},
		{"start of the score keys of a user key", keys.AppendUserKey(nil, keys.ZSetScore, 9, user),
			len(collection(keys.ZSetScore)) - 8},
		{"start of a slot", keys.AppendSlot(nil, keys.ZSetScore, 9), keys.PrefixLen + 2},
		{"log entry", keys.AppendLogEntry(nil, 3, 7), 10},
		{"raft state", keys.AppendRaft(nil, 3, keys.RaftState), 10},
		{"region state", keys.AppendRegionState(nil, 3), 10},
		{"change log", []byte("\x0212345678region__"), 9},
		{"tag alone", []byte{byte(keys.RaftLog)}, 1},
		{"nothing", nil, 0},
	} {
		if got := comparer.Split(c.key); got != c.want {
			t.Errorf("Split(%s %x) = %d; want %d", c.name, c.key, got, c.want)
		}
	}
}

// TestCheckComparer runs Pebble's own check where it can hold: it also wants every tail of a prefix to be a prefix,
// which a key with a header cannot promise, so its keys are of keyspaces with the whole key as prefix and have no byte
// that is another's tag.
func TestCheckComparer(t *testing.T) {
	var prefixes [][]byte
	for _, ks := range []keys.Keyspace{keys.RedisMetadata, keys.Data, keys.MetaInfo} {
		for _, tail := range []string{"", "a", "ab", "b", "\xff"} {
			prefixes = append(prefixes, append([]byte{byte(ks)}, tail...))
		}
	}
	if err := pebble.CheckComparer(comparer, prefixes, nil); err != nil {
		t.Error(err)
	}
	if comparer.ComparePointSuffixes == nil || comparer.CompareRangeSuffixes == nil {
		t.Error("a comparison of suffixes is missing")
	}
}

// randomKey makes keys of all keyspaces, often cut short, often sharing prefixes.
func randomKey(rng *rand.Rand) []byte {
	few := func() []byte {
		b := make([]byte, rng.IntN(3))
		for i := range b {
			b[i] = "\x00\x01\x80\xff"[rng.IntN(4)]
		}
		return b
	}
	version := []uint64{0, 1, 255, 1<<64 - 1}[rng.IntN(4)]
	var key []byte
	switch rng.IntN(6) {
	case 0:
		key = keys.AppendMetadata(nil, 1, few())
	case 1:
		key = subkeyOf(1, few(), version, few())
	case 2, 3:
		key = append(keys.AppendCollection(nil, keys.ZSetScore, 1, few(), version), few()...)
	case 4:
		key = keys.AppendLogEntry(nil, 3, version)
	case 5:
		key = append([]byte{byte(keys.BinLog), 0, 0, 0, 0, 0, 0, 0}, few()...)
	}
	if rng.IntN(3) == 0 {
		key = key[:rng.IntN(len(key)+1)]
	}
	return key
}

// TestSplitKeepsOrder checks what Pebble demands of Split, on all keyspaces: a prefix is its own prefix and sorts
// first, and prefixes sort as keys do; and of ImmediateSuccessor that nothing fits between.
func TestSplitKeepsOrder(t *testing.T) {
	rng := random(t)
	prefix := func(k []byte) []byte { return comparer.Split.Prefix(k) }
	for range 200_000 {
		a, b := randomKey(rng), randomKey(rng)
		pa, pb := prefix(a), prefix(b)
		if !bytes.Equal(prefix(pa), pa) {
			t.Fatalf("the prefix %x of %x has the prefix %x", pa, a, prefix(pa))
		}
		if c := bytes.Compare(pa, pb); c != 0 && c != comparer.Compare(a, b) {
			t.Fatalf("prefixes of %x and %x sort as %d, the keys as %d", a, b, c, comparer.Compare(a, b))
		} else if c == 0 && comparer.Compare(a, b) != comparer.ComparePointSuffixes(a[len(pa):], b[len(pb):]) {
			t.Fatalf("suffixes of %x and %x do not sort as the keys", a, b)
		}
		if len(pa) == 0 {
			continue
		}
		next := comparer.ImmediateSuccessor(nil, pa)
		if !bytes.Equal(prefix(next), next) || bytes.Compare(pa, next) >= 0 {
			t.Fatalf("ImmediateSuccessor(%x) = %x, with the prefix %x", pa, next, prefix(next))
		}
		if bytes.Compare(pa, pb) < 0 && bytes.Compare(pb, next) < 0 {
			t.Fatalf("the prefix %x lies between %x and its successor %x", pb, pa, next)
		}
	}
}

// FuzzComparer holds the comparer to what Pebble demands, for keys of any bytes: a prefix sorts before all keys with
// it, prefixes sort as their keys do, and an immediate successor is the next prefix.
func FuzzComparer(f *testing.F) {
	f.Add(scoreKeyOf(9, []byte("key"), 77, 1.5, []byte("member")),
		scoreKeyOf(9, []byte("kez"), 77, 1.5, nil))
	f.Add(keys.AppendLogEntry(nil, 3, 7), keys.AppendLogEntry(nil, 3, 8))
	f.Add(keys.AppendRaft(nil, 3, keys.RaftState), []byte{byte(keys.RaftLog), 0xff})
	f.Add(append(keys.AppendUserKey(nil, keys.ZSetScore, 9, nil), 0xff, 0xff, 0xff, 0xff),
		[]byte{byte(keys.BinLog), 1})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		if len(a) == 0 || len(b) == 0 || a[0] == 0xff || b[0] == 0xff { // a key begins with its keyspace
			return
		}
		prefixA, prefixB := a[:comparer.Split(a)], b[:comparer.Split(b)]
		if n := comparer.Split(prefixA); n != len(prefixA) {
			t.Errorf("the prefix of %x is %x, and the prefix of that has %d bytes", a, prefixA, n)
		}
		if keys, prefixes := comparer.Compare(a, b), comparer.Compare(prefixA, prefixB); prefixes != 0 &&
			prefixes != keys {
			t.Errorf("%x and %x compare as %d, their prefixes as %d", a, b, keys, prefixes)
		}
		next := comparer.ImmediateSuccessor(nil, prefixA)
		if comparer.Compare(prefixA, next) >= 0 || comparer.Split(next) != len(next) {
			t.Errorf("the prefix behind %x is %x", prefixA, next)
		}
		if comparer.Compare(prefixA, prefixB) < 0 && comparer.Compare(prefixB, next) < 0 {
			t.Errorf("%x is between %x and what is said to follow, %x", prefixB, prefixA, next)
		}
		if between := comparer.Separator(nil, a, b); comparer.Compare(a, b) < 0 && (comparer.Compare(a, between) > 0 ||
			comparer.Compare(between, b) >= 0) {
			t.Errorf("%x does not separate %x and %x", between, a, b)
		}
	})
}
