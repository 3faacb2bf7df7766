package keys

import (
	"encoding/binary"
	"fmt"

	"neokv.dev/neokv/internal/topology"
)

// RaftRecord is the kind of a record of raft_log.
//
//	[tag][region i64][kind u8]              all kinds but entries
//	[tag][region i64][kind u8][index u64]   a log entry
//
// The values of RaftState, Bootstrap and RaftSnapshot begin with the replica id; package raftlog writes them.
type RaftRecord byte

const (
	LogMeta      RaftRecord = 1 // first index
	LogEntry     RaftRecord = 2
	RaftState    RaftRecord = 3 // term, vote, commit
	Bootstrap    RaftRecord = 4
	RaftSnapshot RaftRecord = 5
)

const (
	raftRecordLen = 1 + 8 + 1
	logEntryLen   = raftRecordLen + 8
	// LogEntryKeyLen is the length of a log entry's key.
	LogEntryKeyLen = logEntryLen
)

// AppendRaft appends the key of a record of kind k; for LogEntry it is the prefix of all entries.
func AppendRaft(dst []byte, region topology.RegionID, k RaftRecord) []byte {
	return append(appendRegion(append(dst, byte(RaftLog)), region), byte(k))
}

// AppendLogEntry appends the key of a log entry.
func AppendLogEntry(dst []byte, region topology.RegionID, index uint64) []byte {
	return binary.BigEndian.AppendUint64(AppendRaft(dst, region, LogEntry), index)
}

// PutLogEntry writes the key of a log entry into the LogEntryKeyLen bytes of dst.
func PutLogEntry(dst []byte, region topology.RegionID, index uint64) {
	AppendLogEntry(dst[:0:LogEntryKeyLen], region, index)
}

// LogBounds returns the range of a region's entries with first <= index < end; end 0 means all from first on.
func LogBounds(region topology.RegionID, first, end uint64) (lower, upper []byte) {
	lower = AppendLogEntry(nil, region, first)
	if end == 0 {
		return lower, AppendRaft(nil, region, LogEntry+1)
	}
	return lower, AppendLogEntry(nil, region, end)
}

// RaftBounds returns the range of all records of a region in raft_log.
func RaftBounds(region topology.RegionID) (lower, upper []byte) {
	return AppendRaft(nil, region, 0), AppendRaft(nil, region, 0xff)
}

// ParseRaft decodes a key of raft_log; index is 0 for all kinds but LogEntry.
func ParseRaft(key []byte) (region topology.RegionID, k RaftRecord, index uint64, err error) {
	if len(key) < raftRecordLen {
		return 0, 0, 0, fmt.Errorf("raft log key: %d bytes, want at least %d", len(key), raftRecordLen)
	}
	if Keyspace(key[0]) != RaftLog {
		return 0, 0, 0, fmt.Errorf("raft log key: in %v", Keyspace(key[0]))
	}
	region, k = topology.RegionID(I64(key[1:])), RaftRecord(key[9])
	want := raftRecordLen
	switch k {
	case LogEntry:
		want = logEntryLen
	case LogMeta, RaftState, Bootstrap, RaftSnapshot:
	default:
		return 0, 0, 0, fmt.Errorf("raft log key: unknown kind %d", byte(k))
	}
	if len(key) != want {
		return 0, 0, 0, fmt.Errorf("raft log key: kind %d: %d bytes, want %d", byte(k), len(key), want)
	}
	if k == LogEntry {
		index = binary.BigEndian.Uint64(key[raftRecordLen:])
	}
	return region, k, index, nil
}
