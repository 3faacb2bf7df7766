package keys

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/cespare/xxhash/v2"

	"neokv.dev/neokv/internal/topology"
)

// All keys of Redis data share 16 bytes within a keyspace, space and index, which are always 1. Regions tell their keys
// apart by slot alone.
//
//	redis_metadata    [tag][space i64][index i64] [slot u16][user key length u32][user key]
//	data              ... the same with tag 3 ...  [version u64][subkey]
//	data              ... the same with tag 3 ...  ['S'], a legacy string (legacy.go)
//	redis_zset_score  ... the same with tag 6 ...  [version u64][place]
//	redis_zset_rank   ... the same with tag 9 ...  [version u64][kind u8][place]
//
// A place is [score 8][member]: see AppendPlace. The subkey of a field or a member is [hash u32][name]: see
// AppendElement.
//
// The length before the user key keeps keys of one slot from being prefixes of each other; so the subkeys of one
// version of one collection are one contiguous range.
const (
	// space holds space and index.
	space = "\x80\x00\x00\x00\x00\x00\x00\x01\x80\x00\x00\x00\x00\x00\x00\x01"
	// PrefixLen is the length of what all keys share within a keyspace: tag, space, index.
	PrefixLen = 1 + 8 + 8
	// UserKeyOffset is where the user key begins.
	UserKeyOffset = PrefixLen + 2 + 4
	// VersionLen is the length of the version between user key and subkey.
	VersionLen = 8
	// HashLen is the length of the hash with which the subkey of a field or a member begins.
	HashLen = 4
)

// AppendPrefix appends the PrefixLen bytes with which every key of Redis data in keyspace ks begins.
func AppendPrefix(dst []byte, ks Keyspace) []byte {
	return append(append(dst, byte(ks)), space...)
}

// AppendSlot appends the prefix of all keys of one slot.
func AppendSlot(dst []byte, ks Keyspace, slot topology.Slot) []byte {
	return binary.BigEndian.AppendUint16(AppendPrefix(dst, ks), uint16(slot))
}

// AppendUserKey appends the key up to and including the user key, in any of the keyspaces.
func AppendUserKey(dst []byte, ks Keyspace, slot topology.Slot, user []byte) []byte {
	dst = AppendSlot(dst, ks, slot)
	dst = binary.BigEndian.AppendUint32(dst, uint32(len(user)))
	return append(dst, user...)
}

// AppendMetadata appends the key of the record of user, whose slot the caller knows.
func AppendMetadata(dst []byte, slot topology.Slot, user []byte) []byte {
	return AppendUserKey(dst, RedisMetadata, slot, user)
}

// AppendCollection appends the prefix of all keys of one version of a collection, in Data, ZSetScore or ZSetRank.
// Subkeys and score keys follow by appending: the field or member (AppendElement), the index of a list or of a piece
// (u64), or score and member.
func AppendCollection(dst []byte, ks Keyspace, slot topology.Slot, user []byte, version uint64) []byte {
	return binary.BigEndian.AppendUint64(AppendUserKey(dst, ks, slot, user), version)
}

// AppendElement appends the subkey of a field of a hash, or of a member of a set or a sorted set. So elements lie in
// the order of their hashes, evenly spread over all numbers, whatever their names have in common: a random number leads
// to a random element, and a hash says how far a listing has come, whatever is added and removed meanwhile. All
// collections have the same order, so unions and intersections go through them side by side.
func AppendElement(dst, name []byte) []byte {
	return append(binary.BigEndian.AppendUint32(dst, ElementHash(name)), name...)
}

// ElementHash returns the upper half of a name's XXH64, with the seed 0.
func ElementHash(name []byte) uint32 { return uint32(xxhash.Sum64(name) >> 32) }

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
	if string(key[1:PrefixLen]) != space {
		return RedisKey{}, fmt.Errorf("redis key: in another space or index: %x", key[1:PrefixLen])
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

// SlotBounds returns the range [lower, upper) of engine keys of the slots r in keyspace ks. The range of the tail
// region ends where the space does.
func SlotBounds(ks Keyspace, r topology.SlotRange) (lower, upper []byte) {
	lower = AppendStartKey(AppendPrefix(nil, ks), r)
	upper = AppendEndKey(AppendPrefix(nil, ks), r)
	if len(upper) == PrefixLen {
		upper = Successor(upper)
	}
	return lower, upper
}

// RegionKeyspaces are the keyspaces in which a region has Redis data.
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
