package keys

import (
	"encoding/binary"
	"fmt"
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

// String is the type's name as the command TYPE prints it.
func (t Type) String() string {
	switch t {
	case String:
		return "string"
	case Hash:
		return "hash"
	case List:
		return "list"
	case Set:
		return "set"
	case ZSet:
		return "zset"
	}
	return fmt.Sprintf("type %d", byte(t))
}

// ListStart is head and tail of an empty list. Head moves down, tail up.
const ListStart uint64 = 1<<63 - 1

// Metadata is a decoded record of redis_metadata. Value is set for short strings, and aliases the record. The other
// fields are set for long strings and collections, which lie apart from the record.
//
//	short string    [flags u8][expire ms u64] [value]
//	long string     [flags u8][expire ms u64] [version u64][size u64]
//	hash, set, zset [flags u8][expire ms u64] [version u64][size u64]
//	list            [flags u8][expire ms u64] [version u64][size u64][head u64][tail u64]
//
// flags: bit 7 set, bit 6 zero, bit 5 set for sorted sets with Skiplist alone, bit 4 set for a long string alone, bits
// 0-3 the type. The size of a long string is its length in bytes, that of the others counts elements.
type Metadata struct {
	Type     Type
	ExpireMS uint64 // absolute Unix time in ms, 0 for never
	Value    []byte
	Version  uint64 // not 0 where what the key holds lies apart
	Size     uint64
	Head     uint64 // lists
	Tail     uint64 // lists
	// Skiplist says of a sorted set that it has been so large, or has had so long a member, that Redis keeps it as a
	// skiplist.
	Skiplist bool
}

const (
	flag64Bit = 0x80
	flagSkip  = 0x20
	flagLong  = 0x10
	flagsType = 0x0f

	headerLen     = 1 + 8 // flags, expire
	collectionLen = headerLen + 8 + 8
	listLen       = collectionLen + 8 + 8
)

// Long reports whether it is a long string, which lies apart from its record, in pieces.
func (m *Metadata) Long() bool { return m.Type == String && m.Version != 0 }

// Apart reports whether the key's value lies apart from its record, in the data keyspace under a version. So do all
// values but short strings.
func (m *Metadata) Apart() bool { return m.Type != String || m.Version != 0 }

func appendHeader(dst []byte, flags byte, expireMS uint64) []byte {
	return binary.BigEndian.AppendUint64(append(dst, flag64Bit|flags), expireMS)
}

// AppendString appends a short string's record.
func AppendString(dst []byte, expireMS uint64, value []byte) []byte {
	return append(appendHeader(dst, byte(String), expireMS), value...)
}

// StringLen is the length of the record of a short string of n bytes.
func StringLen(n int) int { return headerLen + n }

// Append appends the record of any type.
func (m *Metadata) Append(dst []byte) []byte {
	if !m.Apart() {
		return AppendString(dst, m.ExpireMS, m.Value)
	}
	flags := byte(m.Type)
	if m.Long() {
		flags |= flagLong
	}
	if m.Skiplist {
		flags |= flagSkip
	}
	dst = appendHeader(dst, flags, m.ExpireMS)
	dst = binary.BigEndian.AppendUint64(dst, m.Version)
	dst = binary.BigEndian.AppendUint64(dst, m.Size)
	if m.Type == List {
		dst = binary.BigEndian.AppendUint64(dst, m.Head)
		dst = binary.BigEndian.AppendUint64(dst, m.Tail)
	}
	return dst
}

// ParseMetadata decodes a record of redis_metadata. It accepts what Append makes and nothing else.
func ParseMetadata(record []byte) (m Metadata, err error) {
	if len(record) < headerLen {
		return m, fmt.Errorf("metadata: %d bytes, want at least %d", len(record), headerLen)
	}
	flags := record[0]
	long := flags == flag64Bit|flagLong|byte(String)
	m.Skiplist = flags == flag64Bit|flagSkip|byte(ZSet)
	if flags&^flagsType != flag64Bit && !long && !m.Skiplist {
		return m, fmt.Errorf("metadata: flags %#02x, want bit 7 set and bits 4-6 clear, but for bit 4 of a string "+
			"and bit 5 of a sorted set", flags)
	}
	m.Type = Type(flags & flagsType)
	m.ExpireMS = binary.BigEndian.Uint64(record[1:])
	want := collectionLen
	switch m.Type {
	case String:
		if !long {
			m.Value = record[headerLen:]
			return m, nil
		}
	case Hash, Set, ZSet:
	case List:
		want = listLen
	default:
		return m, fmt.Errorf("metadata: flags %#02x: unknown type %d", flags, byte(m.Type))
	}
	if len(record) != want {
		return m, fmt.Errorf("metadata: %v: %d bytes, want %d", m.Type, len(record), want)
	}
	m.Version = binary.BigEndian.Uint64(record[headerLen:])
	m.Size = binary.BigEndian.Uint64(record[headerLen+8:])
	if long && m.Version == 0 {
		return m, fmt.Errorf("metadata: long string of version 0")
	}
	if m.Type == List {
		m.Head = binary.BigEndian.Uint64(record[collectionLen:])
		m.Tail = binary.BigEndian.Uint64(record[collectionLen+8:])
	}
	return m, nil
}

// RankKind is the byte after the version in keys of redis_zset_rank, which has the counts of large sorted sets. The
// members of a sorted set, in the order of the score index, are cut into blocks, and the blocks are joined into groups:
//
//	group  [...][version u64][1] [score 8][member]  ->  [format u8 = 1] then the members of each block, uvarint
//	block  [...][version u64][2] [score 8][member]  ->  [format u8 = 1]
//	parts  [...][version u64][3]                    ->  [format u8 = 1] then the members of each part, uvarint
//
// Score and member are those of the first member of the group or block. The first group begins before all members:
// nothing follows its kind. The first block of a group has no record of its own. The members in the order of their
// hashes are cut into HashParts parts.
type RankKind byte

const (
	RankGroup RankKind = 1
	RankBlock RankKind = 2
	RankParts RankKind = 3
)

const (
	// HashParts is the number of parts, PartHashes how many hashes the members of one may have.
	HashParts  = 64
	PartHashes = 1 << 32 / HashParts
)

const rankFormat = 1

// AppendRankCounts appends the value of a group or of the parts, given how many members each block or part has.
func AppendRankCounts(dst []byte, counts []uint64) []byte {
	dst = append(dst, rankFormat)
	for _, n := range counts {
		dst = binary.AppendUvarint(dst, n)
	}
	return dst
}

// AppendRankBlock appends the value of a block.
func AppendRankBlock(dst []byte) []byte { return append(dst, rankFormat) }

// ParseRankCounts decodes what AppendRankCounts appends, and appends the counts to dst.
func ParseRankCounts(dst []uint64, value []byte) ([]uint64, error) {
	if len(value) < 2 {
		return dst, fmt.Errorf("rank counts: %d bytes, want at least 2", len(value))
	}
	if value[0] != rankFormat {
		return dst, fmt.Errorf("rank counts: format %d, want %d", value[0], rankFormat)
	}
	for value = value[1:]; len(value) > 0; {
		n, size := binary.Uvarint(value)
		if size <= 0 {
			return dst, fmt.Errorf("rank counts: count %d is cut short", len(dst))
		}
		dst, value = append(dst, n), value[size:]
	}
	return dst, nil
}
