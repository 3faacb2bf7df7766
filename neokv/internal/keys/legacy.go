package keys

import (
	"encoding/binary"
	"fmt"

	"neokv.dev/neokv/internal/topology"
)

// This file has the codec of legacy strings, which lie in the keyspace Data.
//
//	key    [as a subkey's, up to the user key]['S']
//	value  [expire ms u64][payload]

const legacyTag = 'S'

// AppendLegacy appends the key of a legacy string.
func AppendLegacy(dst []byte, slot topology.Slot, user []byte) []byte {
	return append(AppendUserKey(dst, Data, slot, user), legacyTag)
}

// LegacyKey turns the key of a record of redis_metadata into that of the user key's legacy string, in place.
func LegacyKey(key []byte) []byte {
	key[0] = byte(Data)
	return append(key, legacyTag)
}

// Legacy reports whether the key is that of a legacy string. Subkeys are longer: their version alone has 8 bytes.
func (k RedisKey) Legacy() bool { return len(k.Rest) == 1 && k.Rest[0] == legacyTag }

// AppendLegacyString appends the value.
func AppendLegacyString(dst []byte, expireMS uint64, payload []byte) []byte {
	return append(binary.BigEndian.AppendUint64(dst, expireMS), payload...)
}

// ParseLegacyString decodes the value into the Metadata that a record of redis_metadata would have.
func ParseLegacyString(value []byte) (Metadata, error) {
	if len(value) < 8 {
		return Metadata{}, fmt.Errorf("legacy string: %d bytes, want at least 8", len(value))
	}
	return Metadata{Type: String, ExpireMS: binary.BigEndian.Uint64(value), Value: value[8:]}, nil
}
