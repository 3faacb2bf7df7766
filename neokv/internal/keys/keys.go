// Package keys is the codec of everything that is stored: keys, values, region state. It appends to byte slices and
// does no I/O. docs/storage.md is its specification; testdata/vectors.json holds golden vectors.
//
// All functions use one form of key, the engine's, which begins with the keyspace tag. Every Append function for keys
// appends the tag and then the form of the specification, so the golden vector of a key is key[1:]. Parse functions
// take the same form and check it. They return slices that alias their argument, and never copy or panic.
//
// Integers are big-endian. AppendI64 and AppendScore make byte order equal numeric order.
package keys

import (
	"encoding/binary"
	"fmt"
	"math"

	"neokv.dev/neokv/internal/topology"
)

// Keyspace is the tag byte in front of every key. A keyspace takes the place of a column family.
type Keyspace byte

const (
	RaftLog       Keyspace = 1 // log entries and Raft state of all regions
	BinLog        Keyspace = 2 // change log
	Data          Keyspace = 3 // subkeys of collections, pieces of long strings
	MetaInfo      Keyspace = 4 // store identity, region state, orphan records
	RedisMetadata Keyspace = 5 // one record per Redis key; strings inline
	ZSetScore     Keyspace = 6 // score index of sorted sets
	ColdData      Keyspace = 7
	ColdBinLog    Keyspace = 8
	ZSetRank      Keyspace = 9 // counts of large sorted sets
)

var keyspaceNames = [...]string{
	RaftLog: "raft_log", BinLog: "bin_log", Data: "data", MetaInfo: "meta_info",
	RedisMetadata: "redis_metadata", ZSetScore: "redis_zset_score", ColdData: "cold_data", ColdBinLog: "cold_binlog",
	ZSetRank: "redis_zset_rank",
}

// String is the keyspace's name in the specification.
func (k Keyspace) String() string {
	if int(k) < len(keyspaceNames) && keyspaceNames[k] != "" {
		return keyspaceNames[k]
	}
	return fmt.Sprintf("keyspace %d", byte(k))
}

// Bounds returns the range [lower, upper) of engine keys that holds the whole keyspace.
func (k Keyspace) Bounds() (lower, upper []byte) { return []byte{byte(k)}, []byte{byte(k) + 1} }

// AppendI64 appends v with the top bit flipped: 8 bytes whose order is numeric order also across zero.
func AppendI64(dst []byte, v int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(v)^1<<63)
}

// I64 is the inverse of AppendI64. b has at least 8 bytes.
func I64(b []byte) int64 { return int64(binary.BigEndian.Uint64(b) ^ 1<<63) }

// AppendScore appends a score as 8 bytes whose order is numeric order from -inf to +inf, with -0.0 just below +0.0.
// Callers must refuse NaN, which has no place in that order.
func AppendScore(dst []byte, score float64) []byte {
	bits := math.Float64bits(score)
	if bits>>63 != 0 {
		bits = ^bits
	} else {
		bits ^= 1 << 63
	}
	return binary.BigEndian.AppendUint64(dst, bits)
}

// Score is the inverse of AppendScore. b has at least 8 bytes.
func Score(b []byte) float64 {
	bits := binary.BigEndian.Uint64(b)
	if bits>>63 != 0 {
		bits ^= 1 << 63
	} else {
		bits = ^bits
	}
	return math.Float64frombits(bits)
}

// Version is the base from which an entry's proposer numbers new collections: microseconds since 1970 and a counter, of
// which the low 11 bits count.
func Version(timestampUS, counter uint64) uint64 { return timestampUS<<11 + counter%2048 }

// Successor increments prefix in place, as a number, and returns it: the upper bound of the range of keys that begin
// with it. A prefix of 0xff bytes alone has no successor; no key begins so, because tags are small.
func Successor(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		prefix[i]++
		if prefix[i] != 0 {
			break
		}
	}
	return prefix
}

// appendRegion appends the region, with which keys of raft_log and of region records begin.
func appendRegion(dst []byte, region topology.RegionID) []byte { return AppendI64(dst, int64(region)) }
