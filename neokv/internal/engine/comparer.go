package engine

import (
	"github.com/cockroachdb/pebble/v2"

	"neokv.dev/neokv/internal/keys"
)

// comparer orders keys bytewise. Its Split says, per keyspace, how much of a key is the prefix. Bloom filters hold
// prefixes, and SeekPrefixGE stays within one:
//
//	redis_metadata, data, meta_info   the whole key: they are looked up one by one
//	redis_zset_score                  up to and including the version: it is only walked
//	raft_log                          region and kind of record
//	bin_log                           timestamp
//
// A knob says how much of the prefix the filters see: see policy. A change of Split needs a new Name, because the
// layout of tables depends on it.
//
// Pebble demands that a prefix sorts before all keys that have it, and that prefixes sort as keys do. Both hold, since
// keys sort bytewise and only the bytes of the prefix decide where it ends.
var comparer = func() *pebble.Comparer {
	c := *pebble.DefaultComparer
	c.Name = "neokv.1"
	c.Split = split
	c.ImmediateSuccessor = immediateSuccessor
	return &c
}()

func split(key []byte) int {
	if len(key) == 0 {
		return 0
	}
	switch keys.Keyspace(key[0]) {
	case keys.RaftLog:
		return min(1+8+1, len(key))
	case keys.BinLog, keys.ColdBinLog:
		return min(1+8, len(key))
	case keys.ZSetScore:
		return keys.CollectionLen(key)
	}
	return len(key)
}

// immediateSuccessor appends the smallest prefix above prefix.
func immediateSuccessor(dst, prefix []byte) []byte {
	n := len(dst)
	dst = append(append(dst, prefix...), 0)
	if split(dst[n:]) == len(prefix)+1 {
		return dst
	}
	// Everything that begins with prefix has it as its prefix, so the next one differs within it.
	dst = dst[:len(dst)-1]
	for dst[len(dst)-1] == 0xff {
		dst = dst[:len(dst)-1]
	}
	dst[len(dst)-1]++
	return dst
}
