package keys

import (
	"encoding/binary"
	"fmt"
	"math"

	"neokv.dev/neokv/internal/topology"
)

// Space says where Redis data is: it makes the 16 bytes that all keys of Redis data share within a keyspace. Regions tell
// their keys apart by slot alone.
//
//	redis_metadata    [tag][space i64][index i64] [slot u16][user key length u32][user key]
//	data              ... the same with tag 3 ...  [version u64][subkey]
//	data              ... the same with tag 3 ...  ['S'], a legacy string (legacy.go)
//	redis_zset_score  ... the same with tag 6 ...  [version u64][place]
//	redis_zset_rank   ... the same with tag 9 ...  [version u64][kind u8][place]
//
// A place is [score 8][member]: see AppendPlace.
//
// The length before the user key keeps keys of one slot from being prefixes of each other; so the subkeys of one
// version of one collection are one contiguous range.
type Space struct {
	ID    int64
	Index topology.IndexID
}

const (
	// DataSpace is the ID of the Space in which all regions have their data.
	DataSpace = 1
	// PrefixLen is the length of what all keys of a Space share within a keyspace: tag, space, index.
	PrefixLen = 1 + 8 + 8
	// UserKeyOffset is where the user key begins.
	UserKeyOffset = PrefixLen + 2 + 4
	// VersionLen is the length of the version between user key and subkey.
	VersionLen = 8
)

// AppendPrefix appends the PrefixLen bytes with which every key of the space in keyspace ks begins.
func (s Space) AppendPrefix(dst []byte, ks Keyspace) []byte {
	dst = append(dst, byte(ks))
	dst = AppendI64(dst, s.ID)
	return AppendI64(dst, int64(s.Index))
}

// AppendSlot appends the prefix of all keys of one slot.
func (s Space) AppendSlot(dst []byte, ks Keyspace, slot topology.Slot) []byte {
	return binary.BigEndian.AppendUint16(s.AppendPrefix(dst, ks), uint16(slot))
}

// AppendUserKey appends the key up to and including the user key, in any of the keyspaces.
func (s Space) AppendUserKey(dst []byte, ks Keyspace, slot topology.Slot, user []byte) []byte {
	dst = s.AppendSlot(dst, ks, slot)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(user)))
	return append(dst, user...)
}

// AppendMetadata appends the key of the record of user, whose slot the caller knows.
func (s Space) AppendMetadata(dst []byte, slot topology.Slot, user []byte) []byte {
	return s.AppendUserKey(dst, RedisMetadata, slot, user)
}

// AppendMetadataOf is like AppendMetadata, for a caller that does not know the slot.
func (s Space) AppendMetadataOf(dst []byte, user []byte) []byte {
	return s.AppendMetadata(dst, topology.SlotOf(user), user)
}

// AppendCollection appends the prefix of all keys of one version of a collection, in Data, ZSetScore or ZSetRank.
// Subkeys and score keys follow by appending: the field or member, the index of a list or of a piece (u64), or score
// and member.
func (s Space) AppendCollection(dst []byte, ks Keyspace, slot topology.Slot, user []byte, version uint64) []byte {
	return binary.BigEndian.AppendUint64(s.AppendUserKey(dst, ks, slot, user), version)
}

// AppendSubkey appends the key of a hash's field or of a set's or sorted set's member.
func (s Space) AppendSubkey(dst []byte, slot topology.Slot, user []byte, version uint64, sub []byte) []byte {
	return append(s.AppendCollection(dst, Data, slot, user, version), sub...)
}

// AppendScoreKey appends a sorted set's entry in the score index.
func (s Space) AppendScoreKey(dst []byte, slot topology.Slot, user []byte, version uint64, score float64,
	member []byte) []byte {
	return AppendPlace(s.AppendCollection(dst, ZSetScore, slot, user, version), score, member)
}

// AppendPlace appends a member's place in the order of a sorted set: score and member. The places of -0 and 0 have the
// same score, since Redis takes the two as equal and then orders by member. The value of a score key has the sign.
func AppendPlace(dst []byte, score float64, member []byte) []byte {
	return append(AppendScore(dst, score+0), member...) // -0 + 0 is 0
}

// minus is the value of the score key of a member whose score is -0.
var minus = []byte{'-'}

// ScoreSign returns the value of a member's score key: "-" if the score is -0, else nothing.
func ScoreSign(score float64) []byte {
	if score == 0 && math.Signbit(score) {
		return minus
	}
	return nil
}

// RedisKey is a decoded key of one of the RegionKeyspaces. Its slices alias the key.
type RedisKey struct {
	Keyspace Keyspace
	Space    Space
	Slot     topology.Slot
	User     []byte
	Rest     []byte // what follows the user key: nothing in redis_metadata
}

// ParseRedis decodes a key of Redis data. The slot is the stored one; it is not computed again.
func ParseRedis(key []byte) (RedisKey, error) {
	if len(key) < UserKeyOffset {
		return RedisKey{}, fmt.Errorf("redis key: %d bytes, want at least %d", len(key), UserKeyOffset)
	}
	ks := Keyspace(key[0])
	if ks != RedisMetadata && ks != Data && ks != ZSetScore && ks != ZSetRank && ks != ColdData {
		return RedisKey{}, fmt.Errorf("redis key: in %v", ks)
	}
	n := uint64(binary.BigEndian.Uint32(key[PrefixLen+2:]))
	if rest := uint64(len(key) - UserKeyOffset); rest < n {
		return RedisKey{}, fmt.Errorf("redis key: user key: %d bytes, want %d", rest, n)
	}
	end := UserKeyOffset + int(n)
	if ks == RedisMetadata && end != len(key) {
		return RedisKey{}, fmt.Errorf("redis key: %d bytes behind the user key, want none", len(key)-end)
	}
	return RedisKey{
		Keyspace: ks,
		Space:    Space{ID: I64(key[1:]), Index: topology.IndexID(I64(key[9:]))},
		Slot:     topology.Slot(binary.BigEndian.Uint16(key[PrefixLen:])),
		User:     key[UserKeyOffset:end:end],
		Rest:     key[end:],
	}, nil
}

// Subkey returns version and subkey. ok is false if the key is too short to have them.
func (k RedisKey) Subkey() (version uint64, sub []byte, ok bool) {
	if len(k.Rest) < VersionLen {
		return 0, nil, false
	}
	return binary.BigEndian.Uint64(k.Rest), k.Rest[VersionLen:], true
}

// ScoreKey returns version, score and member of a key of redis_zset_score. A score of 0 may be -0: the value says so. ok
// is false if the key is too short to have them.
func (k RedisKey) ScoreKey() (version uint64, score float64, member []byte, ok bool) {
	version, rest, ok := k.Subkey()
	if !ok || len(rest) < 8 {
		return 0, 0, nil, false
	}
	return version, Score(rest), rest[8:], true
}

// AppendStartKey appends a slot range's lower bound in suffix space, which is what follows the PrefixLen bytes.
func AppendStartKey(dst []byte, r topology.SlotRange) []byte {
	return binary.BigEndian.AppendUint16(dst, uint16(r.First))
}

// AppendEndKey appends a slot range's upper bound in suffix space, exclusive; nothing for a range that ends with the
// last slot.
func AppendEndKey(dst []byte, r topology.SlotRange) []byte {
	if r.Last == topology.SlotCount-1 {
		return dst
	}
	return binary.BigEndian.AppendUint16(dst, uint16(r.Last)+1)
}

// Bounds returns the range [lower, upper) of engine keys of the slots r in keyspace ks. The range of the tail region
// ends where the space does.
func (s Space) Bounds(ks Keyspace, r topology.SlotRange) (lower, upper []byte) {
	lower = AppendStartKey(s.AppendPrefix(nil, ks), r)
	upper = AppendEndKey(s.AppendPrefix(nil, ks), r)
	if len(upper) == PrefixLen {
		upper = Successor(upper)
	}
	return lower, upper
}

// RegionKeyspaces are the keyspaces in which a region has Redis data, all of them with keys that begin with its Space.
var RegionKeyspaces = [...]Keyspace{Data, RedisMetadata, ZSetScore, ZSetRank}

// CollectionLen returns the length of a key's front up to and including the version. If the key is shorter, or is no
// key of Redis data, it returns the key's length. It takes any bytes.
func CollectionLen(key []byte) int { return min(UserKeyEnd(key)+VersionLen, len(key)) }

// UserKeyEnd returns the length of a key's front up to and including the user key. If the key is shorter, or has no
// user key, it returns the key's length. It takes any bytes, and reads no further than the user key's length.
func UserKeyEnd(key []byte) int {
	if len(key) < UserKeyOffset {
		return len(key)
	}
	n := uint64(binary.BigEndian.Uint32(key[PrefixLen+2:])) + UserKeyOffset
	return int(min(n, uint64(len(key))))
}
