// Package keys is the codec of everything that is stored: keys, values, region state. It appends to byte slices and does no
// I/O. docs/storage.md is its specification; testdata/vectors.json holds golden vectors.
package keys

import "neokv.dev/neokv/internal/topology"

// Keyspace is the tag byte in front of every key; it stands in for a column family.
type Keyspace byte

const (
	RaftLog       Keyspace = 1 // log entries and Raft state of all regions
	BinLog        Keyspace = 2 // change log
	Data          Keyspace = 3 // subkeys of collections; legacy strings
	MetaInfo      Keyspace = 4 // store identity, region state, orphan records
	RedisMetadata Keyspace = 5 // one record per Redis key; strings inline
	ZSetScore     Keyspace = 6 // score index of sorted sets
	ColdData      Keyspace = 7
	ColdBinLog    Keyspace = 8
)

// Type is the type of a Redis key as stored in bits 0-3 of the flags byte.
type Type byte

const (
	String Type = 1
	Hash   Type = 2
	List   Type = 3
	Set    Type = 4
	ZSet   Type = 5
)

// Space is where a region's Redis data lives: the 16 bytes that all its keys share within a keyspace.
type Space struct {
	Region topology.RegionID
	Index  topology.IndexID
}

// Metadata is a decoded record of redis_metadata. Value is set for strings (it aliases the record), the other fields for collections.
type Metadata struct {
	Type     Type
	ExpireMS uint64 // absolute Unix time in ms, 0 for never
	Value    []byte
	Version  uint64
	Size     uint64
	Head     uint64 // lists
	Tail     uint64 // lists
}

// RegionState is what makes the replicas of a region equal. It is written with every apply batch.
type RegionState struct {
	ApplyIndex  uint64
	TimeMS      uint64 // region time, Unix ms
	LastVersion uint64
	TermTag     uint64 // largest term tag applied
	KeyCount    uint64
	KeysExact   bool
	LegacyAt    uint64 // apply index of the last write of a legacy string, 0 for none
	CollectedAt uint64 // apply index of the last write of a collection, 0 for none
}
